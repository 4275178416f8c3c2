//! In which order the bytes of a group of ranks lie: mcrEngine's four schemes (Islam et al. 2012).
//!
//! Whole files lie one after another or are interleaved in blocks ("agnostic"), or all that has the
//! same meaning lies together, again one after another or in blocks ("aware"). Data of less than
//! 100 bytes is put together separately, as there.

use super::set::Member;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use treering::DType;

/// Parts smaller than this are put together.
const SMALL: usize = 100;

/// Order of the bytes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    pub by_meaning: bool,
    /// The size of the blocks in which ranks take turns; one rank after another if there is none.
    pub block: Option<usize>,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let what = if self.by_meaning { "by meaning" } else { "whole files" };
        let how = if self.block.is_some() { ", blocks" } else { "" };
        f.write_str(&format!("{what}{how}"))
    }
}

/// A stretch of a part of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    member: usize,
    part: usize,
    range: Range<usize>,
}

/// Known properties of the bytes of a run.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub dtype: DType,
    /// Whether it is made of small parts.
    pub small: bool,
    pub len: usize,
}

/// Pieces of one type that are encoded together.
#[derive(Debug)]
pub struct Run {
    pub kind: Kind,
    pub pieces: Vec<Piece>,
}

/// The order of all bytes of a group.
pub fn arrange(scheme: Scheme, group: &[Member]) -> Vec<Run> {
    match scheme.by_meaning {
        true => by_meaning(group, scheme.block),
        false => {
            let strand = |member: usize| {
                (0..group[member].len()).map(|part| whole(group, member, part)).collect()
            };
            let strands = (0..group.len()).map(strand).collect();
            vec![run(DType::Bytes, false, interleave(strands, scheme.block))]
        }
    }
}

/// Data of the same meaning, a strand for each rank.
type Like = (DType, Vec<VecDeque<Piece>>);

fn by_meaning(group: &[Member], block: Option<usize>) -> Vec<Run> {
    let mut like: BTreeMap<(&str, &str), Like> = BTreeMap::new();
    let mut small = Vec::new();
    for (member, parts) in group.iter().enumerate() {
        for (at, part) in parts.iter().enumerate() {
            let (meaning, piece) = (part.meaning.as_str(), whole(group, member, at));
            if part.bytes.len() < SMALL {
                small.push((meaning, piece));
                continue;
            }
            let key = (meaning, part.dtype.name());
            let (_, strands) = like.entry(key).or_insert((part.dtype, Vec::new()));
            strands.push(VecDeque::from([piece]));
        }
    }
    let runs = like.into_values();
    let mut runs: Vec<Run> =
        runs.map(|(dtype, strands)| run(dtype, false, interleave(strands, block))).collect();
    // Equal meanings stay in the order of the ranks.
    small.sort_by_key(|(meaning, _)| *meaning);
    let small = small.into_iter().map(|(_, piece)| piece).collect();
    runs.push(run(DType::Bytes, true, small));
    runs.retain(|run| run.kind.len > 0);
    runs
}

fn whole(group: &[Member], member: usize, part: usize) -> Piece {
    Piece { member, part, range: 0..group[member][part].bytes.len() }
}

fn run(dtype: DType, small: bool, pieces: Vec<Piece>) -> Run {
    let len = pieces.iter().map(|piece| piece.range.len()).sum();
    Run { kind: Kind { dtype, small, len }, pieces }
}

/// A block of each strand in turn, until all are used up.
fn interleave(mut strands: Vec<VecDeque<Piece>>, block: Option<usize>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    while !strands.is_empty() {
        for strand in &mut strands {
            cut(strand, block.unwrap_or(usize::MAX), &mut pieces);
        }
        strands.retain(|strand| !strand.is_empty());
    }
    pieces
}

/// Moves the first `left` bytes of a strand.
fn cut(strand: &mut VecDeque<Piece>, mut left: usize, pieces: &mut Vec<Piece>) {
    while left > 0
        && let Some(mut piece) = strand.pop_front()
    {
        let end = piece.range.end.min(piece.range.start.saturating_add(left));
        left -= end - piece.range.start;
        pieces.push(Piece { range: piece.range.start..end, ..piece });
        if end < piece.range.end {
            piece.range.start = end;
            strand.push_front(piece);
        }
    }
}

/// The bytes of a run.
pub fn gather(run: &Run, group: &[Member]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(run.kind.len);
    for piece in &run.pieces {
        bytes.extend_from_slice(&group[piece.member][piece.part].bytes[piece.range.clone()]);
    }
    bytes
}

/// Puts the bytes of a run back to where they came from.
pub fn scatter(run: &Run, mut bytes: &[u8], group: &mut [Vec<Vec<u8>>]) {
    for piece in &run.pieces {
        let (head, rest) = bytes.split_at(piece.range.len());
        group[piece.member][piece.part][piece.range.clone()].copy_from_slice(head);
        bytes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::super::set::Part;
    use super::*;

    const SCHEMES: [Scheme; 6] = [
        Scheme { by_meaning: true, block: None },
        Scheme { by_meaning: true, block: Some(64) },
        Scheme { by_meaning: true, block: Some(1) },
        Scheme { by_meaning: false, block: None },
        Scheme { by_meaning: false, block: Some(100) },
        Scheme { by_meaning: false, block: Some(1 << 30) },
    ];

    fn part(meaning: &str, dtype: DType, from: usize, len: usize) -> Part {
        let bytes = (from..from + len).map(|at| (at * 7 + at / 251) as u8).collect();
        Part { meaning: meaning.into(), dtype, bytes }
    }

    /// Members of unequal lengths, with small and empty parts, and one meaning with two types.
    fn group() -> Vec<Member> {
        let member = |rank: usize| {
            vec![
                part("t", DType::F64, rank, 800 + 320 * rank),
                part("p", if rank == 2 { DType::F32 } else { DType::F64 }, 3 * rank, 400),
                part("step", DType::I64, rank, 8),
                part("none", DType::U8, 0, 0),
                part(if rank == 1 { "other" } else { "t2" }, DType::I32, rank, 1000),
            ]
        };
        (0..4).map(member).collect()
    }

    #[test]
    fn every_byte_has_one_place() {
        let group = group();
        for scheme in SCHEMES {
            let mut seen: Vec<Vec<Vec<u8>>> = empty(&group);
            for run in arrange(scheme, &group) {
                for piece in &run.pieces {
                    let places = &mut seen[piece.member][piece.part][piece.range.clone()];
                    places.iter_mut().for_each(|count| *count += 1);
                }
            }
            assert!(seen.iter().flatten().flatten().all(|count| *count == 1), "{scheme:?}");
        }
    }

    #[test]
    fn what_was_gathered_is_scattered_back() {
        let group = group();
        for scheme in SCHEMES {
            let mut back = empty(&group);
            for run in arrange(scheme, &group) {
                let bytes = gather(&run, &group);
                assert_eq!(bytes.len(), run.kind.len);
                scatter(&run, &bytes, &mut back);
            }
            for (member, back) in group.iter().zip(&back) {
                assert!(member.iter().zip(back).all(|(part, back)| part.bytes == *back));
            }
        }
    }

    #[test]
    fn runs_hold_one_meaning_and_small_parts_lie_together() {
        let group = group();
        for block in [None, Some(64)] {
            let runs = arrange(Scheme { by_meaning: true, block }, &group);
            // p twice for its two types, t, t2, other, and what is small.
            assert_eq!(runs.len(), 6);
            for run in &runs {
                let parts = run.pieces.iter().map(|piece| &group[piece.member][piece.part]);
                let mut meanings: Vec<_> = parts.map(|part| (&part.meaning, part.dtype)).collect();
                meanings.dedup();
                assert!(run.kind.small || meanings.len() == 1, "{meanings:?}");
            }
            let small: Vec<_> = runs.iter().filter(|run| run.kind.small).collect();
            assert_eq!((small.len(), small[0].kind.len), (1, 4 * 8));
        }
    }

    #[test]
    fn ranks_take_turns_in_blocks() {
        let runs = arrange(Scheme { by_meaning: false, block: Some(2208) }, &group());
        let mut turns: Vec<usize> = runs[0].pieces.iter().map(|piece| piece.member).collect();
        turns.dedup();
        // The first rank has one block exactly, the others have more.
        assert_eq!(turns, [0, 1, 2, 3, 1, 2, 3]);
    }

    fn empty(group: &[Member]) -> Vec<Vec<Vec<u8>>> {
        let parts = |member: &Member| member.iter().map(|p| vec![0; p.bytes.len()]).collect();
        group.iter().map(parts).collect()
    }
}

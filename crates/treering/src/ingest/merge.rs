//! The order in which the variables of many ranks are packed.
//!
//! By meaning, like variables of all ranks lie side by side, as in mcrEngine. Where a program keeps the same values in several
//! arrays, it can be better to leave the arrays of a rank together. A sample is packed in both ways, and that decides. The
//! other schemes of mcrEngine can be chosen explicitly: whole files, and ranks that take turns in blocks.

use super::inputs::{FileVariable, Source};
use super::packing::Packing;
use crate::array::{Order, Rank, Shape};
use crate::error::Result;
use crate::pack::MergedVariable;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// The bytes that are packed in both ways to choose one.
const SAMPLE: u64 = 4 << 20;
/// The ranks that the sample is of, at most.
const SAMPLED_RANKS: usize = 4;
/// The runs of variables that it is made of, if it is not made of all.
const SAMPLED_RUNS: usize = 8;
/// Of a large variable, this many bytes are in it at least.
const PIECE: u64 = 64 << 10;

/// Order in which the variables of many ranks are packed.
///
/// ```
/// use treering::{IngestSettings, Merge};
/// let settings = IngestSettings { merge: Merge::Ranks, ..IngestSettings::default() };
/// assert_eq!(IngestSettings::default().merge, Merge::Auto);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// `Meaning` or `Ranks`, whichever packs a sample smaller.
    #[default]
    Auto,
    /// Similar variables of all ranks side by side.
    Meaning,
    /// All variables of a rank side by side, as its files hold them.
    Ranks,
    /// Whole files, of which nothing is understood.
    Files,
}

/// In which order the bytes of variables are packed: one variable after another or, with blocks, those
/// that are like each other in turns, a block of every rank.
pub(super) fn turns(
    inputs: &[&FileVariable],
    firsts: &[usize],
    block: Option<u64>,
) -> Vec<(usize, Range<u64>)> {
    let Some(block) = block else {
        return inputs.iter().enumerate().map(|(at, input)| (at, 0..input.len())).collect();
    };
    let mut turns = Vec::new();
    let all: Vec<usize> = (0..inputs.len()).collect();
    for alike in all.chunk_by(|a, b| firsts[*a] == firsts[*b]) {
        let mut strands: Vec<VecDeque<(usize, Range<u64>)>> = alike
            .chunk_by(|a, b| inputs[*a].rank == inputs[*b].rank)
            .map(|rank| rank.iter().map(|at| (*at, 0..inputs[*at].len())).collect())
            .collect();
        while !strands.is_empty() {
            for strand in &mut strands {
                let Some((at, rest)) = strand.pop_front() else { continue };
                let end = rest.end.min(rest.start + block);
                turns.push((at, rest.start..end));
                if end < rest.end {
                    strand.push_front((at, end..rest.end));
                }
            }
            strands.retain(|strand| !strand.is_empty());
        }
    }
    turns
}

/// The order in which variables are packed.
pub(super) fn sort(inputs: &mut [&FileVariable], merge: Merge) {
    match merge {
        // Likeness: name, type, class; then ranks in their order.
        Merge::Auto | Merge::Meaning => {
            inputs.sort_by_cached_key(|i| (i.like.clone(), i.description.dtype.name(), i.rank));
        }
        Merge::Ranks => inputs.sort_by_key(|input| merged(input).place_in_rank()),
        // The records of files come last.
        Merge::Files => inputs.sort_by_key(|i| (i.is_record(), i.rank)),
    }
}

/// Packs a sample in both ways. Arrays of a rank stay together only if that is clearly smaller: by meaning, later steps
/// can be stored as differences to the step before, which a sample of one step does not show.
pub(super) fn choose(inputs: &[&FileVariable], packing: &Packing) -> Result<Merge> {
    let sample = sample(inputs)?;
    if sample.len() < 2 {
        return Ok(Merge::Meaning);
    }
    let by_rank = packing.measure(&sample, Merge::Ranks)?;
    let by_meaning = packing.measure(&sample, Merge::Meaning)?;
    Ok(if by_rank * 10 < by_meaning * 9 { Merge::Ranks } else { Merge::Meaning })
}

/// The first rows of the variables of some ranks. Of more than can be packed twice quickly, runs of variables that
/// follow each other are taken, the same of all these ranks: so neighbours in a file stay neighbours, and like variables of
/// several ranks are there.
fn sample(inputs: &[&FileVariable]) -> Result<Vec<FileVariable>> {
    let ranks: BTreeSet<Rank> = inputs.iter().map(|input| input.rank).collect();
    let every = ranks.len().div_ceil(SAMPLED_RANKS);
    let ranks: BTreeSet<Rank> = ranks.into_iter().step_by(every.max(1)).collect();
    let own = || inputs.iter().filter(|input| ranks.contains(&input.rank));
    let names: BTreeSet<&str> = own().map(|input| input.like.as_str()).collect();
    let pieces: u64 = own().map(|input| input.len().min(PIECE)).sum();
    let part = pieces.div_ceil(SAMPLE).max(1) as usize;
    let run = names.len().div_ceil(SAMPLED_RUNS).max(part);
    let chosen = names.into_iter().enumerate().filter(|(at, _)| at % run < run / part);
    let chosen: BTreeSet<&str> = chosen.map(|(_, name)| name).collect();
    let count = own().filter(|input| chosen.contains(input.like.as_str())).count() as u64;
    let most = (SAMPLE / count.max(1)).max(PIECE);
    let taken = own().filter(|input| chosen.contains(input.like.as_str()));
    taken.map(|input| beginning(input, most)).collect()
}

/// The first rows of a variable, of about this many bytes; the first values, if a row has many more.
fn beginning(input: &FileVariable, most: u64) -> Result<FileVariable> {
    let mut description = input.description.clone();
    let (size, extents) = (description.dtype.size(), description.extents());
    let rows = extents.first().copied().unwrap_or(1).max(1);
    let row = input.len() / rows;
    if input.len() > most && row <= 2 * most {
        let slowest = if description.order == Order::C { 0 } else { extents.len() - 1 };
        description.shape.0[slowest] = most.div_ceil(row.max(1)).clamp(1, rows);
    } else if input.len() > most {
        description.shape = Shape(vec![most / size]);
    }
    let mut bytes = vec![0; description.bytes().unwrap_or(0) as usize];
    input.bytes.sample(&mut bytes).map_err(|error| error.at(&description.name))?;
    let (rank, like, rounded) = (input.rank, input.like.clone(), input.rounded);
    Ok(FileVariable { rank, description, like, bytes: Source::Held(bytes), rounded })
}

fn merged(input: &FileVariable) -> MergedVariable<'_> {
    MergedVariable {
        rank: input.rank,
        like: &input.like,
        dtype: input.description.dtype,
        len: input.len(),
        rounded: input.rounded.is_some(),
    }
}

//! The findings of a file, laid over it as pieces that do not overlap.
//!
//! Bytes between the pieces are literal. Arrays that lie interleaved are one piece; an array that
//! overlaps another, or whose values are not in the file, is no field.

use super::found::{Contents, FoundArray, Placement};
use super::parts::Interpretation;
use super::proof::{Built, Proof};
use super::rebuild::DeflateStream;
use super::spread::{Runs, Spread};
use super::{Extent, Field};
use crate::array::{DType, Description, Labels, Marks, Order, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Chunk, ChunkRecipe, Piece, Skeleton, Values};
use crate::merkle::Digest;
use crate::store::Blob;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// More literals than this become a field.
const MOST_LITERALS: u64 = 4 << 20;
/// The literals around the values of a deflated stream.
const MOST_AROUND: u64 = 1 << 18;
/// Bytes that an array may take which was hardly written to.
const SMALL: u64 = 1 << 16;
/// The name of the field of what is no value.
const REST: &str = "rest of the file";

/// Whether the last field of a skeleton holds everything that is no value: then no piece is literal,
/// though every format has a head.
pub(crate) fn has_rest(skeleton: &Skeleton, format: &str, last: Option<&str>) -> bool {
    let described = !["raw", "bytes"].contains(&format);
    let literal = |piece: &Piece| matches!(piece, Piece::Literal { .. });
    described
        && !skeleton.pieces.iter().any(literal)
        && last.is_some_and(|name| name.trim_end_matches('\'').ends_with(REST))
}

/// A piece at its place in the file, with the literals that the file does not have as they are.
struct Laid {
    at: u64,
    /// The array it belongs to.
    array: usize,
    piece: Piece,
    around: Vec<u8>,
}

impl Laid {
    fn end(&self) -> u64 {
        self.at + self.piece.bytes().unwrap_or(0)
    }
}

/// The findings, laid over the file.
pub(super) struct FilePlan<'a> {
    whole: &'a Extent,
    found: Vec<FoundArray>,
    others: Vec<(String, String)>,
    recipes: Vec<ChunkRecipe>,
    /// In the order of the file, without overlaps.
    laid: Vec<Laid>,
    /// The arrays that are fields.
    fields: Vec<usize>,
}

impl<'a> FilePlan<'a> {
    pub(super) fn new(whole: &'a Extent, contents: Contents) -> Result<Self> {
        let Contents { found, mut heads, others, undecoded, .. } = contents;
        let others = others.into_iter().map(|(name, why)| (name, why.to_string()));
        let undecoded = undecoded.into_iter().map(|one| (one.name, one.why.to_string()));
        let others = others.chain(undecoded).collect();
        let (recipes, laid, fields) = Default::default();
        let mut plan = FilePlan { whole, found, others, recipes, laid, fields };
        let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
        let records = plan.records(&mut taken)?;
        for number in 0..plan.found.len() {
            if records.contains(&number) {
                plan.fields.push(number);
                continue;
            }
            let Some(laid) = plan.lay(number)? else { continue };
            let spans: Vec<(u64, u64)> = laid
                .iter()
                .map(|laid| (laid.at, laid.piece.bytes().unwrap_or(0)))
                .filter(|span| span.1 > 0)
                .collect();
            if take(&mut taken, &spans, whole.size()) {
                plan.laid.extend(laid);
                plan.fields.push(number);
            }
        }
        plan.laid.retain(|laid| laid.piece.bytes() != Some(0));
        plan.laid.sort_by_key(|laid| laid.at);
        let fields: HashSet<usize> = plan.fields.iter().copied().collect();
        let others = (0..plan.found.len()).filter(|number| !fields.contains(number));
        heads.extend(others.flat_map(|number| plan.found[number].spans()));
        plan.note_shared(&heads);
        Ok(plan)
    }

    /// Notes which arrays lie where something else of the file does, too: only a damaged file has such.
    fn note_shared(&mut self, others: &[(u64, u64)]) {
        let mut shared = HashSet::new();
        for (start, len) in others {
            let end = start.saturating_add(*len);
            let first = self.laid.partition_point(|laid| laid.end() <= *start);
            let over = self.laid[first..].iter().take_while(|laid| laid.at < end);
            shared.extend(over.map(|laid| laid.array));
        }
        // Interleaved arrays are one piece.
        let runs = |found: &FoundArray| matches!(found.place, Placement::Runs(_));
        let any = shared.iter().any(|number| runs(&self.found[*number]));
        for (number, found) in self.found.iter_mut().enumerate() {
            found.shared = shared.contains(&number) || any && runs(found);
        }
    }

    /// The pieces of an array; none if it cannot be a field.
    fn lay(&mut self, number: usize) -> Result<Option<Vec<Laid>>> {
        let found = &self.found[number];
        let len = found.bytes();
        let values = |offset, len| Values { field: number as u64, offset, len, swap: found.swap };
        let laid = |at, piece| Laid { at, array: number, piece, around: Vec::new() };
        Ok(match &found.place {
            Placement::Plain { at } => Some(vec![laid(*at, Piece::Values(values(0, len)))]),
            Placement::Filled(_) if len <= SMALL => Some(Vec::new()),
            Placement::Filled(_) | Placement::Runs(_) | Placement::Unreadable(..) => None,
            Placement::Chunks(chunks) => {
                let written = chunks.stored.len() as u64 * chunks.grid.chunk_bytes();
                if len > written.saturating_mul(4).saturating_add(SMALL) {
                    return Ok(None);
                }
                let recipe = match chunks.calibrated() {
                    Ok(Some(recipe)) => recipe,
                    Err(error) if error.kind() == ErrorKind::Io => return Err(error),
                    Ok(None) | Err(_) => return Ok(None),
                };
                let pieces = chunks.stored.iter().map(|stored| {
                    let chunk = Chunk {
                        field: number as u64,
                        recipe: self.recipes.len() as u64,
                        index: stored.index,
                        left_out: stored.left_out,
                        stored: stored.len,
                    };
                    laid(stored.at, Piece::Chunk(chunk))
                });
                let pieces = pieces.collect();
                self.recipes.push(recipe);
                Some(pieces)
            }
            Placement::Member(member) => {
                let tail = member.inflated - member.head - len;
                if member.head.max(tail) > MOST_AROUND {
                    return Ok(None);
                }
                let mut around = vec![0; (member.head + tail) as usize];
                let (head, end) = around.split_at_mut(member.head as usize);
                let ends = member
                    .read_inflated(0, head)
                    .and_then(|()| member.read_inflated(member.head + len, end));
                let level = ends.and_then(|()| level_of(member, self.whole));
                let Ok(Some(level)) = level else { return Ok(None) };
                let piece = Piece::Stream {
                    values: values(0, len),
                    head: member.head,
                    tail,
                    level,
                    stored: member.stored(),
                };
                Some(vec![Laid { at: member.start, array: number, piece, around }])
            }
        })
    }

    /// Arrays that lie interleaved: all but the last turn are one piece.
    fn records(&mut self, taken: &mut BTreeMap<u64, u64>) -> Result<HashSet<usize>> {
        let mut columns: Vec<(usize, Runs, u8)> = Vec::new();
        for (number, found) in self.found.iter().enumerate() {
            if let Placement::Runs(runs) = &found.place {
                columns.push((number, *runs, found.swap));
            }
        }
        columns.sort_by_key(|(_, runs, _)| runs.at);
        let Some((_, first, _)) = columns.first().copied() else { return Ok(HashSet::new()) };
        let alike = columns.iter().all(|c| (c.1.stride, c.1.count) == (first.stride, first.count));
        let apart = columns.windows(2).all(|w| w[0].1.at + w[0].1.len <= w[1].1.at);
        let end = columns.last().map_or(0, |c| c.1.at + c.1.len) - first.at;
        let all = first.stride.checked_mul(first.count - 1).and_then(|n| n.checked_add(end));
        let span = all.map(|all| [(first.at, all)]);
        let fits = span.is_some_and(|span| take(taken, &span, self.whole.size()));
        if !alike || !apart || end > first.stride || !fits {
            return Ok(HashSet::new());
        }
        let values = |(number, runs, swap): &(usize, Runs, u8), turn: u64| Values {
            field: *number as u64,
            offset: turn * runs.len,
            len: runs.len,
            swap: *swap,
        };
        let mut cycle = Vec::new();
        let mut at = first.at;
        for column in &columns {
            if column.1.at > at {
                cycle.push(Piece::Literal { len: column.1.at - at });
            }
            cycle.push(Piece::Values(values(column, 0)));
            at = column.1.at + column.1.len;
        }
        if first.at + first.stride > at {
            cycle.push(Piece::Literal { len: first.at + first.stride - at });
        }
        let last = first.count - 1;
        let repeat = Piece::Repeat { count: last, cycle };
        self.laid.push(Laid {
            at: first.at,
            array: columns[0].0,
            piece: repeat,
            around: Vec::new(),
        });
        for column in &columns {
            let piece = Piece::Values(values(column, last));
            let at = column.1.at + last * first.stride;
            self.laid.push(Laid { at, array: column.0, piece, around: Vec::new() });
        }
        Ok(columns.iter().map(|c| c.0).collect())
    }

    /// Datasets that are no fields: names and reasons.
    pub(super) fn in_skeleton(&self) -> Vec<(String, String)> {
        let fields: HashSet<usize> = self.fields.iter().copied().collect();
        let why = |found: &FoundArray| match &found.place {
            Placement::Unreadable(why, _) => why.to_string(),
            Placement::Filled(_) => "its values were never written".to_string(),
            Placement::Chunks(_) | Placement::Member(_) => {
                "packing its values again does not give the same bytes".to_string()
            }
            Placement::Plain { .. } | Placement::Runs(_) => {
                "something else lies at its place".to_string()
            }
        };
        let left = self.found.iter().enumerate().filter(|(number, _)| !fields.contains(number));
        let left = left.map(|(_, found)| (found.description.name.clone(), why(found)));
        left.chain(self.others.iter().cloned()).collect()
    }

    /// Fields and skeleton of what is laid; the digest is not known yet.
    pub(super) fn build(&self) -> Result<Built> {
        let mut fields: Vec<Field> =
            self.fields.iter().map(|&n| self.found[n].field(self.whole)).collect::<Result<_>>()?;
        let mut numbers = vec![0u64; self.found.len()];
        for (at, &number) in self.fields.iter().enumerate() {
            numbers[number] = at as u64;
        }
        let gaps = self.gaps();
        let literal: u64 = gaps.iter().map(|gap| gap.1).sum::<u64>()
            + self.laid.iter().filter_map(|laid| laid.piece.literals()).sum::<u64>();
        let mut out = Literals {
            whole: self.whole,
            rest: (literal > MOST_LITERALS).then(|| (fields.len() as u64, 0, Vec::new())),
            bytes: Vec::new(),
        };
        let mut pieces = Vec::new();
        let mut gaps = gaps.into_iter().peekable();
        for laid in &self.laid {
            while let Some(gap) = gaps.next_if(|gap| gap.0 < laid.at) {
                pieces.push(out.literal(gap.0, gap.1)?);
            }
            pieces.push(self.numbered(laid, &numbers, &mut out)?);
        }
        for gap in gaps {
            pieces.push(out.literal(gap.0, gap.1)?);
        }
        if let Some((_, len, runs)) = out.rest {
            let taken = |name: &str| fields.iter().any(|f| f.description.name == name);
            let mut name = REST.to_string();
            while taken(&name) {
                name.push('\'');
            }
            let (dtype, shape, order) = (DType::Bytes, Shape(vec![len]), Order::C);
            let attributes = Labels::default();
            let description = Description { name, dtype, shape, order, part: None, attributes };
            let bytes = Arc::new(Spread::new(self.whole, runs));
            fields.push(Field {
                description,
                bytes,
                fixed: None,
                marks: Marks::default(),
                rounded: None,
                meaning: Interpretation::default(),
                chunk: None,
                place: None,
            });
        }
        let skeleton = Skeleton {
            size: self.whole.size(),
            digest: Digest::default(),
            recipes: self.recipes.clone(),
            pieces,
            literals: out.bytes,
        };
        Ok(Built { fields, skeleton })
    }

    /// A piece with the numbers of the fields, its literals taken.
    fn numbered(&self, laid: &Laid, numbers: &[u64], out: &mut Literals) -> Result<Piece> {
        let values = |v: &Values| Values { field: numbers[v.field as usize], ..*v };
        Ok(match &laid.piece {
            Piece::Literal { len } => Piece::Literal { len: *len },
            Piece::Values(v) => Piece::Values(values(v)),
            Piece::Chunk(chunk) => {
                Piece::Chunk(Chunk { field: numbers[chunk.field as usize], ..*chunk })
            }
            Piece::Stream { values: v, head, tail, level, stored } => {
                out.bytes.extend_from_slice(&laid.around);
                let (head, tail, level, stored) = (*head, *tail, *level, *stored);
                Piece::Stream { values: values(v), head, tail, level, stored }
            }
            Piece::Repeat { count, cycle } => {
                let mut at = laid.at;
                let stride = cycle.iter().filter_map(Piece::bytes).sum();
                let mut again = Vec::new();
                for piece in cycle {
                    let len = piece.bytes().unwrap_or(0);
                    again.push(match piece {
                        Piece::Values(v) => Piece::Values(values(v)),
                        _ => out.runs(Runs { at, len, stride, count: *count }),
                    });
                    at += len;
                }
                if out.rest.is_none() {
                    out.repeated(laid.at, cycle, *count)?;
                }
                Piece::Repeat { count: *count, cycle: again }
            }
        })
    }

    /// Bytes that no piece covers: place and length.
    fn gaps(&self) -> Vec<(u64, u64)> {
        let mut at = 0;
        let mut gaps = Vec::new();
        for laid in &self.laid {
            if laid.at > at {
                gaps.push((at, laid.at - at));
            }
            at = laid.at + laid.piece.bytes().unwrap_or(0);
        }
        if self.whole.size() > at {
            gaps.push((at, self.whole.size() - at));
        }
        gaps
    }

    /// Takes out the pieces that did not come out equal; tells whether there are any.
    pub(super) fn keep_stored(&mut self, proof: &Proof) -> bool {
        if proof.unequal.is_empty() && proof.unreadable.is_empty() {
            return false;
        }
        let unequal = |laid: &Laid| proof.unequal.contains(&laid.at);
        let mut lost = vec![0u64; self.found.len()];
        for laid in self.laid.iter().filter(|laid| unequal(laid)) {
            lost[laid.array] += laid.piece.bytes().unwrap_or(0);
        }
        let mut bad: HashSet<usize> = HashSet::new();
        for (at, &number) in self.fields.iter().enumerate() {
            let much = lost[number].saturating_mul(8) > self.found[number].bytes();
            if much || proof.unreadable.contains(&(at as u64)) {
                bad.insert(number);
            }
        }
        // Records are interleaved: all of them stay, or none.
        let records = |n: &usize| matches!(self.found[*n].place, Placement::Runs(_));
        let torn = bad.iter().any(records);
        let gone = |n: usize| bad.contains(&n) || torn && records(&n);
        let gone: HashSet<usize> = (0..self.found.len()).filter(|n| gone(*n)).collect();
        self.laid.retain(|laid| !gone.contains(&laid.array) && !proof.unequal.contains(&laid.at));
        self.fields.retain(|number| !gone.contains(number));
        true
    }
}

/// Literals as they are collected: in the skeleton, or as a field.
struct Literals<'a> {
    whole: &'a Extent,
    /// The number of the field, its length so far, and where its bytes lie.
    rest: Option<(u64, u64, Vec<Runs>)>,
    bytes: Vec<u8>,
}

impl Literals<'_> {
    fn literal(&mut self, at: u64, len: u64) -> Result<Piece> {
        if self.rest.is_none() {
            let from = self.bytes.len();
            self.bytes.resize(from + len as usize, 0);
            self.whole.read_at(at, &mut self.bytes[from..])?;
        }
        Ok(self.runs(Runs { at, len, stride: len, count: 1 }))
    }

    fn runs(&mut self, runs: Runs) -> Piece {
        match &mut self.rest {
            None => Piece::Literal { len: runs.len },
            Some((field, size, all)) => {
                let values = Values { field: *field, offset: *size, len: runs.len, swap: 0 };
                *size += runs.len * runs.count;
                all.push(runs);
                Piece::Values(values)
            }
        }
    }

    /// The literals of a cycle, turn by turn.
    fn repeated(&mut self, start: u64, cycle: &[Piece], count: u64) -> Result<()> {
        let stride: u64 = cycle.iter().filter_map(Piece::bytes).sum();
        for turn in 0..count {
            let mut at = start + turn * stride;
            for piece in cycle {
                let len = piece.bytes().unwrap_or(0);
                if matches!(piece, Piece::Literal { .. }) {
                    self.literal(at, len)?;
                }
                at += len;
            }
        }
        Ok(())
    }
}

/// Takes spans of the file, all or none: they must lie in it, apart from each other and from others.
fn take(taken: &mut BTreeMap<u64, u64>, spans: &[(u64, u64)], size: u64) -> bool {
    for (at, &(start, len)) in spans.iter().enumerate() {
        let end = start.checked_add(len).filter(|end| *end <= size);
        let free = end.is_some_and(|end| {
            taken.range(..end).next_back().is_none_or(|(other, len)| other + len <= start)
        });
        if !free {
            spans[..at].iter().for_each(|(start, _)| {
                taken.remove(start);
            });
            return false;
        }
        if len > 0 {
            taken.insert(start, len);
        }
    }
    true
}

/// The level of zlib whose output begins as a member does.
fn level_of(member: &super::npz::ZipMember, whole: &Extent) -> Result<Option<u8>> {
    let mut bytes = vec![0; member.inflated.min(1 << 20) as usize];
    member.read_inflated(0, &mut bytes)?;
    let mut stored = vec![0; member.stored().min(2 << 20) as usize];
    whole.read_at(member.start, &mut stored)?;
    let all = bytes.len() as u64 == member.inflated;
    for level in [6, 9, 1, 2, 3, 4, 5, 7, 8] {
        let mut stream = DeflateStream::new(level, member.stored());
        let mut came = 0;
        let mut same = |part: &[u8]| {
            let to = (came + part.len()).min(stored.len());
            let equal = stored[came.min(to)..to] == part[..to - came.min(to)];
            came += part.len();
            if equal { Ok(()) } else { Err(Error::damaged("this is not the level")) }
        };
        let fed = stream.feed(&bytes, &mut same);
        let done = fed.and_then(|()| if all { stream.finish(&mut same) } else { Ok(()) });
        if done.is_ok() {
            return Ok(Some(level));
        }
    }
    Ok(None)
}

//! How the variables of many ranks are put together in a pack.
//!
//! By meaning, like variables of all ranks lie side by side, as in mcrEngine: what is alike is coded
//! alike. Some programs keep the same values in several arrays of a rank; then it is better to leave
//! the arrays of a rank together, where repeats are found. A sample of one rank tells. The other schemes
//! of mcrEngine are there for who wants them: whole files, and ranks that take turns in blocks.

use super::inputs::FileVariable;
use crate::codec::values_between;
use crate::error::Result;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// How variables of many ranks are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// As does better on a sample.
    #[default]
    Auto,
    /// Like variables of all ranks side by side.
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

/// Variables below this size say nothing about the large ones.
const LARGE: u64 = 64 << 10;
/// How many bytes of a rank are looked at.
const SAMPLE: u64 = 1 << 20;
/// What share of the values of an array have to be in another one, too.
const GAIN: f64 = 0.08;
/// The same where values were rounded: they have few digits, and some are the same by chance.
const ROUNDED_GAIN: f64 = 0.3;

/// The order in which variables are packed.
pub(super) fn sort(inputs: &mut [&FileVariable], merge: Merge) {
    match merge {
        // Likeness: name, type, class; then ranks in their order.
        Merge::Auto | Merge::Meaning => {
            inputs.sort_by_cached_key(|i| (i.like.clone(), i.description.dtype.name(), i.rank));
        }
        // What is small would cut the frames of what is large.
        Merge::Ranks => {
            inputs.sort_by_key(|i| (i.len() < LARGE, i.description.dtype.name(), i.rank));
        }
        // What tells how a file comes back is no part of it.
        Merge::Files => inputs.sort_by_key(|i| (i.is_record(), i.rank)),
    }
}

/// Tries both on the large variables of one rank that have the most frequent type.
pub(super) fn choose(inputs: &[&FileVariable]) -> Result<Merge> {
    let large = || inputs.iter().filter(|input| input.len() >= LARGE);
    let mut types: BTreeMap<&str, u64> = BTreeMap::new();
    large().for_each(|i| *types.entry(i.description.dtype.name()).or_default() += i.len());
    let Some((most, _)) = types.into_iter().max_by_key(|(_, bytes)| *bytes) else {
        return Ok(Merge::Meaning);
    };
    let rank = large().map(|input| input.rank).min();
    let of_type =
        |input: &&&FileVariable| input.description.dtype.name() == most && Some(input.rank) == rank;
    let mut chosen: Vec<&FileVariable> = large().filter(of_type).copied().collect();
    let size = chosen.first().map_or(0, |input| input.description.dtype.size());
    let names: std::collections::BTreeSet<&str> = chosen.iter().map(|i| i.like.as_str()).collect();
    if names.len() < 2 || !matches!(size, 4 | 8) {
        return Ok(Merge::Meaning);
    }
    let share = SAMPLE / chosen.len() as u64 / 8 * 8;
    let read = |input: &&FileVariable| {
        let mut bytes = vec![0; input.len().min(share.max(LARGE)) as usize];
        input.bytes.read_at(0, &mut bytes).map(|()| bytes)
    };
    sort(&mut chosen, Merge::Ranks);
    let parts: Vec<Vec<u8>> = chosen.iter().map(read).collect::<Result<_>>()?;
    let between = values_between(parts.iter().map(Vec::as_slice), size as usize);
    let rounded = chosen.iter().any(|input| input.rounded.is_some());
    let gain = if rounded { ROUNDED_GAIN } else { GAIN };
    Ok(if between > gain { Merge::Ranks } else { Merge::Meaning })
}

//! How the variables of many ranks are put together in a pack.
//!
//! By meaning, like variables of all ranks lie side by side, as in mcrEngine, unless a sample says that the arrays of a rank
//! should stay together ([`stays_with_rank`]). The other schemes of mcrEngine are there for who wants them: whole files,
//! and ranks that take turns in blocks.

use super::inputs::FileVariable;
use crate::error::Result;
use crate::pack::{MergedVariable, stays_with_rank};
use std::collections::VecDeque;
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

/// The order in which variables are packed.
pub(super) fn sort(inputs: &mut [&FileVariable], merge: Merge) {
    match merge {
        // Likeness: name, type, class; then ranks in their order.
        Merge::Auto | Merge::Meaning => {
            inputs.sort_by_cached_key(|i| (i.like.clone(), i.description.dtype.name(), i.rank));
        }
        Merge::Ranks => inputs.sort_by_key(|input| merged(input).place_in_rank()),
        // What tells how a file comes back is no part of it.
        Merge::Files => inputs.sort_by_key(|i| (i.is_record(), i.rank)),
    }
}

/// Tries both on a sample.
pub(super) fn choose(inputs: &[&FileVariable]) -> Result<Merge> {
    let merged: Vec<MergedVariable> = inputs.iter().map(|input| merged(input)).collect();
    let read = |number: usize, out: &mut [u8]| inputs[number].bytes.read_at(0, out);
    Ok(if stays_with_rank(&merged, &read)? { Merge::Ranks } else { Merge::Meaning })
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

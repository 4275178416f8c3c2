//! Whether the arrays of a rank are packed together, or like arrays of all ranks. Pure.
//!
//! Side by side by meaning, what is alike is coded alike (mcrEngine). But some programs keep the same values in several
//! arrays of a rank; then it is better to leave the arrays of a rank together, where repeats are found. A sample of one
//! rank tells.

use crate::array::{DType, Rank};
use crate::codec::values_between;
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};

/// Variables below this size say nothing about the large ones.
const LARGE: u64 = 64 << 10;
/// Number of bytes of a rank that are sampled.
const SAMPLE: u64 = 1 << 20;
/// Minimum share of the values of an array that are in another one, too.
const GAIN: f64 = 0.08;
/// Minimum share where values were rounded: they have few digits, and some are equal by chance.
const ROUNDED_GAIN: f64 = 0.3;

/// A variable that is to be packed.
pub(crate) struct MergedVariable<'a> {
    pub(crate) rank: Rank,
    /// Properties that it shares with similar variables.
    pub(crate) like: &'a str,
    pub(crate) dtype: DType,
    pub(crate) len: u64,
    pub(crate) rounded: bool,
}

impl MergedVariable<'_> {
    /// By which variables are sorted if those of a rank stay together: what is small would cut the frames of what is large.
    pub(crate) fn place_in_rank(&self) -> (bool, &'static str, Rank) {
        (self.len < LARGE, self.dtype.name(), self.rank)
    }
}

/// Whether the arrays of a rank stay together, by the large ones of one rank that have the most frequent type. `read` fills
/// a buffer with the first bytes of a variable, by its number.
pub(crate) fn stays_with_rank(
    variables: &[MergedVariable],
    read: &dyn Fn(usize, &mut [u8]) -> Result<()>,
) -> Result<bool> {
    let large = || variables.iter().enumerate().filter(|(_, variable)| variable.len >= LARGE);
    let mut types: BTreeMap<&str, u64> = BTreeMap::new();
    large().for_each(|(_, v)| *types.entry(v.dtype.name()).or_default() += v.len);
    let Some((most, _)) = types.into_iter().max_by_key(|(_, bytes)| *bytes) else {
        return Ok(false);
    };
    let rank = large().map(|(_, variable)| variable.rank).min();
    let chosen = large().filter(|(_, v)| v.dtype.name() == most && Some(v.rank) == rank);
    let mut chosen: Vec<(usize, &MergedVariable)> = chosen.collect();
    let size = chosen.first().map_or(0, |(_, variable)| variable.dtype.size());
    let names: BTreeSet<&str> = chosen.iter().map(|(_, variable)| variable.like).collect();
    if names.len() < 2 || !matches!(size, 4 | 8) {
        return Ok(false);
    }
    let share = SAMPLE / chosen.len() as u64 / 8 * 8;
    chosen.sort_by_key(|(_, variable)| variable.place_in_rank());
    let mut parts = Vec::with_capacity(chosen.len());
    for (number, variable) in &chosen {
        let mut bytes = vec![0; variable.len.min(share.max(LARGE)) as usize];
        read(*number, &mut bytes)?;
        parts.push(bytes);
    }
    let between = values_between(parts.iter().map(Vec::as_slice), size as usize);
    let rounded = chosen.iter().any(|(_, variable)| variable.rounded);
    Ok(between > if rounded { ROUNDED_GAIN } else { GAIN })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two arrays of each of two ranks; those of a rank have a share of their values in common.
    fn stays(common: usize, names: [&str; 2]) -> bool {
        let value = |seed: usize| (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let array = |rank: usize, at: usize| -> Vec<u8> {
            let own = move |i: usize| {
                if i < common { value(rank << 40 | i) } else { value(rank << 40 | at << 32 | i) }
            };
            (0..20_000).flat_map(|i| own(i).to_le_bytes()).collect()
        };
        let (mut variables, mut bytes) = (Vec::new(), Vec::new());
        for rank in 0..2 {
            for (at, like) in names.into_iter().enumerate() {
                bytes.push(array(rank, at + 1));
                let len = bytes[0].len() as u64;
                let rank = Rank(rank as u32);
                variables.push(MergedVariable {
                    rank,
                    like,
                    dtype: DType::F64,
                    len,
                    rounded: false,
                });
            }
        }
        let read = |number: usize, out: &mut [u8]| {
            let len = out.len();
            out.copy_from_slice(&bytes[number][..len]);
            Ok(())
        };
        stays_with_rank(&variables, &read).unwrap()
    }

    #[test]
    fn arrays_stay_with_their_rank_if_they_share_values() {
        assert!(stays(10_000, ["a", "b"]));
        assert!(!stays(0, ["a", "b"]));
        // Of one kind there is nothing to keep together.
        assert!(!stays(10_000, ["a", "a"]));
        assert!(!stays_with_rank(&[], &|_, _| Ok(())).unwrap());
    }
}

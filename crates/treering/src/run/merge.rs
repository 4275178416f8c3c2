//! How the variables of many ranks are put together in a pack.
//!
//! By meaning, like variables of all ranks lie side by side, as in mcrEngine: what is alike is coded
//! alike. Some programs keep the same values in several arrays of a rank; then it is better to leave
//! the arrays of a rank together, where repeats are found. A sample of one rank tells.

use super::ingest::Input;
use crate::codec::{Chain, Codec, Step};
use crate::error::Result;
use std::collections::BTreeMap;

/// How variables of many ranks are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// As does better on a sample.
    #[default]
    Auto,
    /// Like variables of all ranks side by side.
    Meaning,
    /// All variables of a rank side by side, as its files hold them.
    Files,
}

/// Variables below this size say nothing about the large ones.
const LARGE: u64 = 64 << 10;
/// How many bytes of a rank are looked at.
const SAMPLE: u64 = 1 << 20;
/// What leaving files whole has to gain.
const GAIN: f64 = 0.95;

/// The order in which variables are packed.
pub(super) fn sort(inputs: &mut [&Input], merge: Merge) {
    match merge {
        // Likeness: name, type, class; then ranks in their order.
        Merge::Auto | Merge::Meaning => {
            inputs.sort_by_cached_key(|i| (i.like.clone(), i.description.dtype.name(), i.rank));
        }
        // What is small would cut the frames of what is large.
        Merge::Files => {
            inputs.sort_by_key(|i| (i.len() < LARGE, i.description.dtype.name(), i.rank));
        }
    }
}

/// Tries both on the large variables of one rank that have the most frequent type.
pub(super) fn choose(inputs: &[&Input]) -> Result<Merge> {
    let large = || inputs.iter().filter(|input| input.len() >= LARGE);
    let mut types: BTreeMap<&str, u64> = BTreeMap::new();
    large().for_each(|i| *types.entry(i.description.dtype.name()).or_default() += i.len());
    let Some((most, _)) = types.into_iter().max_by_key(|(_, bytes)| *bytes) else {
        return Ok(Merge::Meaning);
    };
    let rank = large().map(|input| input.rank).min();
    let of_type =
        |input: &&&Input| input.description.dtype.name() == most && Some(input.rank) == rank;
    let mut chosen: Vec<&Input> = large().filter(of_type).copied().collect();
    let size = chosen.first().map_or(0, |input| input.description.dtype.size());
    let names: std::collections::BTreeSet<&str> = chosen.iter().map(|i| i.like.as_str()).collect();
    if names.len() < 2 || !matches!(size, 4 | 8) {
        return Ok(Merge::Meaning);
    }
    let share = SAMPLE / chosen.len() as u64 / 8 * 8;
    let chain = Chain::new(&[Step::Repeats(size as u8), Step::Shuffle(size as u8), Step::Zstd(1)])?;
    let read = |input: &Input| {
        let mut bytes = vec![0; input.len().min(share.max(LARGE)) as usize];
        input.bytes.read_at(0, &mut bytes).map(|()| bytes)
    };
    sort(&mut chosen, Merge::Files);
    let together: Vec<Vec<u8>> = chosen.iter().map(|i| read(i)).collect::<Result<_>>()?;
    let joint = chain.encode(&together.concat())?.len();
    let mut alike: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    for (input, bytes) in chosen.iter().zip(&together) {
        alike.entry(&input.like).or_default().extend(bytes);
    }
    let mut apart = 0;
    for bytes in alike.values() {
        apart += chain.encode(bytes)?.len();
    }
    Ok(if (joint as f64) < GAIN * apart as f64 { Merge::Files } else { Merge::Meaning })
}

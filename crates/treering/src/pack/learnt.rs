//! The encodings of variables so far, for epochs and processes that go on with a run.
//!
//! Trying chains on samples costs as much as encoding, so what was chosen for one pack serves the
//! next ones, and every so often an epoch forgets it all and chooses anew. Nothing depends on it but
//! size and time.

use super::Packed;
use crate::array::VariableKey;
use crate::codec::{Chain, Chooser};
use crate::format::{Footer, Manifest, VariableDelta};
use std::collections::HashMap;

/// The first epoch after this many checkpoints chooses anew.
const EVERY: u64 = 32;

/// By which chain the new bytes of each variable of a pack were encoded, and to which share.
pub(crate) struct Learnt {
    chains: HashMap<VariableKey, (Chain, f64)>,
    /// Whether differences might have been chosen.
    tried: bool,
}

impl Learnt {
    pub(crate) fn new(footer: &Footer) -> Learnt {
        let of = |delta: &VariableDelta| {
            let new = delta.regions.iter().find(|region| region.fresh)?;
            let frame = &footer.frames[footer.frame_at(new.place.offset)?];
            let share = frame.encoded as f64 / frame.len as f64;
            let chain = footer.chain(frame).ok()?.into_owned();
            Some((VariableKey::new(delta.rank, &delta.name), (chain, share)))
        };
        Learnt { chains: footer.deltas.iter().filter_map(of).collect(), tried: footer.ordinal > 0 }
    }

    /// Tells it to one that has to choose for variables, of each the first that is like it.
    pub(crate) fn tell(&self, chooser: &mut Chooser, variables: &[Packed], firsts: &[usize]) {
        for (variable, first) in variables.iter().zip(firsts) {
            if let Some((chain, share)) = self.chains.get(&variable.key()) {
                let like = &variables[*first];
                chooser.remember(&like.like, like.nature, chain, *share, self.tried);
            }
        }
    }
}

/// Whether an epoch that begins behind this checkpoint chooses anew.
pub(crate) fn is_over(newest: &Manifest) -> bool {
    passes(newest.epoch.sequence.0, newest.sequence.next().0)
}

/// Whether the number of checkpoints passed a multiple between the beginnings of two epochs.
fn passes(epoch: u64, next: u64) -> bool {
    epoch / EVERY != next / EVERY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_of_any_length_learn_anew_and_not_too_often() {
        for len in 1..100 {
            let anew: Vec<u64> =
                (1..200).filter(|at| passes((at - 1) * len, at * len)).map(|at| at * len).collect();
            let steps: Vec<u64> = anew.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(!steps.is_empty());
            assert!(steps.iter().all(|step| *step < EVERY + len && *step + len > EVERY));
        }
    }
}

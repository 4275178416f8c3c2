//! Order in which ranks are asked to take over a lost copy of a range.
//!
//! Every range has its own pseudo-random order of all ranks, so that the copies of a dead rank are made again on many
//! ranks. The appendix of ReStore (Hübner et al., 2022) gives two ways to compute it, both without memory per range:
//! Distribution A is double hashing as in hash tables, (f + k·h) mod p with h coprime to p; Distribution B is a
//! permutation of the ranks that is seeded by the range.
//!
//! Law: the order of a range names each of the p ranks exactly once and depends on p, the seed and the range only.

use crate::error::Result;
use crate::replica::permutation::{Permutation, mix};
use crate::replica::placement::RangeId;
use crate::replica::topology::OriginalRank;

/// The way to compute the order of ranks in which a range gets new copies after deaths. `treering
/// bench replica` compares both: lookup time, balance, messages, loss.
///
/// ```
/// use treering::{Probing, ReplicaSettings};
/// let settings = ReplicaSettings { probing: Probing::Permutation, ..ReplicaSettings::default() };
/// assert_eq!(ReplicaSettings::default().probing, Probing::DoubleHashing);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probing {
    /// Distribution A: a start and a stride that is coprime to the number of ranks.
    DoubleHashing,
    /// Distribution B: a seeded permutation per range.
    Permutation,
}

/// Orders of ranks, one for each range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    probing: Probing,
    seed: u64,
    ranks: u32,
    /// The prime factors of the number of ranks.
    factors: Vec<u32>,
    permutation: Permutation,
}

/// The ranks in the order of one range.
#[derive(Clone, Debug)]
pub struct ProbeSequence {
    steps: ProbeSteps,
    next: u32,
    ranks: u32,
}

#[derive(Clone, Debug)]
enum ProbeSteps {
    Stride { at: u32, stride: u32 },
    Permuted(Permutation),
}

impl Probes {
    /// Orders of ranks `0..ranks`.
    pub fn new(probing: Probing, ranks: u32, seed: u64) -> Result<Self> {
        let permutation = Permutation::new(u64::from(ranks), seed)?;
        Ok(Probes { probing, seed: mix(seed), ranks, factors: prime_factors(ranks), permutation })
    }

    /// The order of a range.
    pub fn sequence(&self, range: RangeId) -> ProbeSequence {
        let hash = mix(self.seed ^ range.0);
        let steps = match self.probing {
            Probing::Permutation => ProbeSteps::Permuted(self.permutation.reseeded(hash)),
            Probing::DoubleHashing => {
                ProbeSteps::Stride { at: below(hash, self.ranks), stride: self.stride(hash) }
            }
        };
        ProbeSequence { steps, next: 0, ranks: self.ranks }
    }

    /// A number below p that is coprime to it, the first one in a series of hashes; 1 if there are only 1 or 2 ranks.
    fn stride(&self, mut hash: u64) -> u32 {
        if self.ranks <= 2 {
            return 1;
        }
        loop {
            hash = mix(hash);
            let stride = 1 + below(hash, self.ranks - 1);
            if self.factors.iter().all(|factor| !stride.is_multiple_of(*factor)) {
                return stride;
            }
        }
    }
}

impl Iterator for ProbeSequence {
    type Item = OriginalRank;

    #[inline]
    fn next(&mut self) -> Option<OriginalRank> {
        if self.next >= self.ranks {
            return None;
        }
        let position = self.next;
        self.next += 1;
        Some(OriginalRank(match &mut self.steps {
            ProbeSteps::Permuted(permutation) => permutation.apply(u64::from(position)) as u32,
            ProbeSteps::Stride { at, stride } => {
                let rank = *at;
                *at = ((u64::from(rank) + u64::from(*stride)) % u64::from(self.ranks)) as u32;
                rank
            }
        }))
    }
}

/// A hash scaled to a number below `limit`.
fn below(hash: u64, limit: u32) -> u32 {
    ((u128::from(hash) * u128::from(limit)) >> 64) as u32
}

fn prime_factors(mut n: u32) -> Vec<u32> {
    let mut factors = Vec::new();
    let mut candidate = 2;
    while u64::from(candidate) * u64::from(candidate) <= u64::from(n) {
        if n.is_multiple_of(candidate) {
            factors.push(candidate);
            while n.is_multiple_of(candidate) {
                n /= candidate;
            }
        }
        candidate += 1;
    }
    factors.extend((n > 1).then_some(n));
    factors
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prime_factors_of_the_papers_example() {
        assert_eq!(prime_factors(500), [2, 5]);
        assert_eq!(
            (prime_factors(1), prime_factors(97), prime_factors(u32::MAX)),
            (vec![], vec![97], vec![3, 5, 17, 257, 65537])
        );
    }

    /// The first places of the orders are even: chi-square within 6 deviations.
    #[test]
    fn ranges_begin_at_all_ranks_alike() {
        for probing in [Probing::DoubleHashing, Probing::Permutation] {
            let probes = Probes::new(probing, 60, 1).unwrap();
            for position in [0, 1, 5] {
                let mut counts = [0f64; 60];
                for range in 0..24_000 {
                    counts[probes.sequence(RangeId(range)).nth(position).unwrap().0 as usize] +=
                        1.0;
                }
                let chi: f64 = counts.iter().map(|count| (count - 400.0).powi(2) / 400.0).sum();
                assert!(
                    (chi - 59.0).abs() < 6.0 * 118f64.sqrt(),
                    "{probing:?} position {position}: {chi}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn an_order_names_every_rank_once(ranks in 0u32..400, seed: u64, range: u64) {
            for probing in [Probing::DoubleHashing, Probing::Permutation] {
                let probes = Probes::new(probing, ranks, seed).unwrap();
                let mut order: Vec<u32> = probes.sequence(RangeId(range)).map(|rank| rank.0).collect();
                prop_assert!(probes.sequence(RangeId(range)).map(|rank| rank.0).eq(order.iter().copied()));
                order.sort_unstable();
                prop_assert!(order.into_iter().eq(0..ranks));
            }
        }
    }
}

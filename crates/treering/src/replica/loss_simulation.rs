//! Simulation of random failures on the real placement, until data is lost.
//!
//! Units fail one by one, each living one with the same probability. After each failure only the holder sets of the
//! failed ranks are looked at, so that a simulation takes time for the failures and one bit of memory per rank and
//! works for any placement, also where no formula is known.
//!
//! Law: equal seeds give equal results, on any number of threads; the mean agrees with the formulas within the standard error.

use crate::error::{Error, Result};
use crate::replica::loss::LossProbability;
use crate::replica::permutation::mix;
use crate::replica::placement::ReplicaPlacement;
use crate::replica::topology::{FailureUnit, OriginalRank, UnitMembers};
use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// The number of failures until the first loss, in every simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossSimulation {
    units: u32,
    /// In ascending order.
    failures: Vec<u32>,
}

impl LossSimulation {
    /// The number of units that could fail.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// The number of failures up to and including the first that lost data, in ascending order.
    pub fn failures(&self) -> &[u32] {
        &self.failures
    }

    /// The mean share of units that fail up to and including the first failure that loses data.
    pub fn expected_failures_fraction(&self) -> f64 {
        self.mean() / f64::from(self.units)
    }

    /// The standard error of [`LossSimulation::expected_failures_fraction`]; infinite for a single simulation.
    pub fn standard_error(&self) -> f64 {
        let (mean, count) = (self.mean(), self.failures.len() as f64);
        let squares: f64 =
            self.failures.iter().map(|failures| (f64::from(*failures) - mean).powi(2)).sum();
        if count < 2.0 {
            f64::INFINITY
        } else {
            (squares / (count - 1.0) / count).sqrt() / f64::from(self.units)
        }
    }

    /// The probability that this many failures lose data. The standard error uses the Agresti-Coull estimate (two
    /// losses and two others more), so that it is not 0 where no simulation or every one lost data.
    pub fn probability(&self, failures: u32) -> LossProbability {
        let (lost, count) =
            (self.failures.partition_point(|f| *f <= failures) as f64, self.failures.len() as f64);
        let estimate = (lost + 2.0) / (count + 4.0);
        let error = (estimate * (1.0 - estimate) / (count + 4.0)).sqrt();
        LossProbability { value: lost / count, error }
    }

    fn mean(&self) -> f64 {
        self.failures.iter().map(|failures| f64::from(*failures)).sum::<f64>()
            / self.failures.len() as f64
    }
}

/// Simulates random failures of units until data is lost, `simulations` times, on all threads. The function `told` is
/// called with the number that are done and the number of all.
pub fn simulate(
    placement: &ReplicaPlacement,
    unit: FailureUnit,
    simulations: u32,
    seed: u64,
    told: &(dyn Fn(u64, u64) + Sync),
) -> Result<LossSimulation> {
    if simulations == 0 || placement.ranges() == 0 {
        return Err(Error::usage(format!(
            "cannot simulate {simulations} losses of {} ranges: expected 1 or more of both",
            placement.ranges()
        )));
    }
    let units = placement.topology().count(unit);
    let members = placement.topology().members(unit);
    let all = u64::from(simulations);
    let (done, every) = (Mutex::new(0u64), (all / 1000).max(1));
    let new = || (RankBits::new(placement.topology().ranks()), RankBits::new(units));
    let one = |(dead, failed): &mut (RankBits, RankBits), simulation: u32| {
        let mut draws = Draws(mix(mix(seed) ^ u64::from(simulation)));
        let failures = until_loss(placement, &members, units, &mut draws, dead, failed);
        // Under the lock, so that progress never goes back.
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        *done += 1;
        if done.is_multiple_of(every) {
            told(*done, all);
        }
        failures
    };
    let mut failures: Vec<u32> = (0..simulations).into_par_iter().map_init(new, one).collect();
    failures.sort_unstable();
    Ok(LossSimulation { units, failures })
}

/// The number of failures up to and including the first that loses data, in one simulation.
fn until_loss(
    placement: &ReplicaPlacement,
    members: &UnitMembers,
    units: u32,
    draws: &mut Draws,
    dead: &mut RankBits,
    failed: &mut RankBits,
) -> u32 {
    dead.clear();
    failed.clear();
    for failures in 1..units {
        let next = loop {
            let drawn = draws.below(units);
            if failed.insert(drawn) {
                break drawn;
            }
        };
        members.of(next).for_each(|rank| {
            dead.insert(rank.0);
        });
        let gone = |rank: OriginalRank| dead.contains(rank.0);
        if members.of(next).any(|rank| placement.loses_any(rank, gone)) {
            return failures;
        }
    }
    units
}

/// Pseudo-random numbers (SplitMix64).
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        ((u128::from(mix(self.0)) * u128::from(limit)) >> 64) as u32
    }
}

/// A set of ranks or other units, one bit each.
struct RankBits(Vec<u64>);

impl RankBits {
    fn new(size: u32) -> Self {
        RankBits(vec![0; size.div_ceil(64) as usize])
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    fn contains(&self, at: u32) -> bool {
        self.0[at as usize / 64] >> (at % 64) & 1 == 1
    }

    /// Whether it was not in the set before.
    fn insert(&mut self, at: u32) -> bool {
        let word = &mut self.0[at as usize / 64];
        let before = *word;
        *word |= 1 << (at % 64);
        *word != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::loss::{LossModel, placement_for_loss};
    use crate::replica::loss_exact::enumerate;
    use crate::replica::placement::{FirstCopy, ReplicaLayout};
    use crate::replica::topology::Topology;

    fn simulate(
        placement: &ReplicaPlacement,
        unit: FailureUnit,
        count: u32,
        seed: u64,
    ) -> Result<LossSimulation> {
        super::simulate(placement, unit, count, seed, &|_, _| {})
    }

    fn agrees(simulation: &LossSimulation, curve: &[f64]) {
        let units = f64::from(simulation.units());
        let expected = curve.iter().map(|lost| 1.0 - lost).sum::<f64>() / units;
        let difference = (simulation.expected_failures_fraction() - expected).abs();
        assert!(difference <= 4.0 * simulation.standard_error() + 1e-12, "{expected} {difference}");
        for (f, lost) in (0..).zip(curve) {
            let (simulated, count) =
                (simulation.probability(f).value, simulation.failures().len() as f64);
            // The true standard error, and two simulations more where losses are few.
            let error = (lost * (1.0 - lost) / count).sqrt();
            assert!(
                (simulated - lost).abs() <= 4.0 * error + 2.0 / count,
                "{f}: {simulated} {lost}"
            );
        }
    }

    #[test]
    fn simulation_and_exact_probability_agree() {
        use FailureUnit::*;
        for (ranks, copies, node, unit) in [
            (64, 4, 1, Rank),
            (67, 4, 1, Rank),
            (1000, 3, 1, Rank),
            (11, 4, 1, Rank),
            (240, 2, 4, Node),
            (250, 4, 5, Rank),
        ] {
            let placement = placement_for_loss(ranks, copies, node).unwrap();
            let curve = LossModel::new(&placement, unit).unwrap().unwrap().exact_curve().unwrap();
            let simulation = simulate(&placement, unit, 2000, u64::from(ranks)).unwrap();
            agrees(&simulation, &curve);
            assert_eq!(simulation, simulate(&placement, unit, 2000, u64::from(ranks)).unwrap());
        }
    }

    /// Placements without a formula: uneven nodes, a large domain, first copies on the submitters.
    #[test]
    fn simulation_and_counting_agree_on_any_placement() {
        let names = ["a", "a", "a", "a", "a", "b", "b", "c", "c", "d", "e", "f"];
        let topology = Topology::named(
            names.iter().map(|name| (*name, if *name < "c" { "left" } else { *name })),
        )
        .unwrap();
        let starts: Vec<u64> = (0..=12).map(|rank| 20 * rank).collect();
        for first_copy in [FirstCopy::Permuted, FirstCopy::Submitter { starts }] {
            let layout = ReplicaLayout {
                blocks: 240,
                range_blocks: 1,
                copies: 2,
                seed: Some(1),
                first_copy,
            };
            let placement = ReplicaPlacement::new(layout, topology.clone()).unwrap();
            for unit in [FailureUnit::Rank, FailureUnit::Node, FailureUnit::Domain] {
                assert_eq!(LossModel::new(&placement, unit).unwrap(), None);
                agrees(
                    &simulate(&placement, unit, 1000, 3).unwrap(),
                    &enumerate(&placement, unit).unwrap(),
                );
            }
        }
    }

    #[test]
    fn progress_ends_with_everything() {
        let heard = std::sync::Mutex::new(Vec::new());
        let placement = placement_for_loss(16, 2, 1).unwrap();
        let told = |done, all| heard.lock().unwrap().push((done, all));
        super::simulate(&placement, FailureUnit::Rank, 5000, 1, &told).unwrap();
        let heard = heard.into_inner().unwrap();
        assert!(heard.is_sorted());
        assert_eq!((heard.len(), heard.last()), (1000, Some(&(5000, 5000))));
    }

    #[test]
    fn many_ranks_are_simulated_in_little_memory() {
        let placement = placement_for_loss(1 << 20, 4, 1).unwrap();
        let simulation = simulate(&placement, FailureUnit::Rank, 10, 1).unwrap();
        let model = LossModel::new(&placement, FailureUnit::Rank).unwrap().unwrap();
        let expected = model.expected_failures() / f64::from(1 << 20);
        let difference = (simulation.expected_failures_fraction() - expected).abs();
        assert!(difference < 4.0 * simulation.standard_error(), "{expected} {difference}");
        assert!(simulate(&placement, FailureUnit::Rank, 0, 1).is_err());
        let single =
            simulate(&placement_for_loss(3, 3, 1).unwrap(), FailureUnit::Rank, 1, 1).unwrap();
        assert_eq!((single.failures(), single.standard_error()), (&[3][..], f64::INFINITY));
    }
}

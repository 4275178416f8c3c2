//! Comparison of the two ways to place copies that are made again: lookup time, balance, messages and loss.
//!
//! Rounds of deaths are played on a real placement, with remaking after each round. The caller passes the clock, so
//! that this code stays pure and tests do not depend on time.

use crate::error::Result;
use crate::replica::after_deaths::{AfterDeaths, RemakePlan};
use crate::replica::permutation::mix;
use crate::replica::placement::{FirstCopy, RangeId, ReplicaLayout, ReplicaPlacement};
use crate::replica::probing::Probing;
use crate::replica::topology::{OriginalRank, Topology};
use std::collections::HashSet;
use std::time::Duration;

/// Figures of successive deaths with remaking in between. Returned by [`RemakeScale::figures`], which has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct RemakeFigures {
    /// The way copies were placed.
    pub probing: Probing,
    /// The number of ranks that died.
    pub deaths: u32,
    /// Mean time to compute the holders of a range after all deaths, by the caller's clock.
    pub lookup: Duration,
    /// The mean number of ranks looked at for that.
    pub probes: f64,
    /// The number of ranges on the rank that holds most, after all deaths.
    pub most_ranges: u64,
    /// The mean number of ranges on a living rank.
    pub mean_ranges: f64,
    /// The number of copies that were made.
    pub transfers: u64,
    /// The number of messages, one for each pair of ranks in a round.
    pub messages: u64,
    /// The largest number of messages that one rank sent or received in a round.
    pub most_messages: u64,
    /// The largest number of copies that one rank sent or received in a round.
    pub most_transfers: u64,
    /// The number of ranges lost for good.
    pub lost: u64,
    /// The number of ranges that would have been lost without remaking.
    pub lost_without_remaking: u64,
}

impl RemakeFigures {
    /// Ranges on the fullest rank relative to the mean: 1 is perfect balance.
    pub fn imbalance(&self) -> f64 {
        if self.mean_ranges > 0.0 { self.most_ranges as f64 / self.mean_ranges } else { 1.0 }
    }
}

/// Successive deaths whose figures are computed. [`RemakeScale::figures`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemakeScale {
    /// The number of ranks at the start.
    pub ranks: u32,
    /// Ranks of a node.
    pub per_node: u32,
    /// Copies of every range.
    pub copies: u32,
    /// Ranges of every rank.
    pub ranges_per_rank: u64,
    /// Rounds of deaths; after each of them lost copies are made again.
    pub rounds: u32,
    /// Ranks that die in a round, chosen at random.
    pub deaths_per_round: u32,
    /// The seed of placement and deaths.
    pub seed: u64,
}

impl RemakeScale {
    /// The figures of one way to place copies. The deaths are the same for all ways.
    ///
    /// ```
    /// use std::time::Instant;
    /// use treering::{Probing, RemakeScale};
    /// let scale =
    ///     RemakeScale { ranks: 64, per_node: 8, copies: 3, ranges_per_rank: 16, rounds: 4, deaths_per_round: 2, seed: 1 };
    /// let start = Instant::now();
    /// let figures = scale.figures(Probing::DoubleHashing, || start.elapsed())?;
    /// assert_eq!((figures.deaths, figures.lost), (8, 0));
    /// println!("{} copies in {} messages", figures.transfers, figures.messages);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn figures(
        &self,
        probing: Probing,
        clock: impl FnMut() -> Duration,
    ) -> Result<RemakeFigures> {
        let layout = ReplicaLayout {
            blocks: self.ranges_per_rank * u64::from(self.ranks),
            range_blocks: 1,
            copies: self.copies,
            seed: Some(self.seed),
            first_copy: FirstCopy::Permuted,
        };
        let topology = Topology::blocks(self.ranks, self.per_node)?;
        let placement = ReplicaPlacement::new(layout, topology)?;
        remake_figures(&placement, probing, self.seed, &self.rounds(), clock)
    }

    fn rounds(&self) -> Vec<Vec<OriginalRank>> {
        let order = |rank: &u32| mix(self.seed ^ u64::from(*rank) << 20);
        let mut dying: Vec<u32> = (0..self.ranks).collect();
        dying.sort_by_key(order);
        // Somebody is left.
        dying.truncate((self.ranks as usize).saturating_sub(1));
        let rounds = dying.chunks(self.deaths_per_round.max(1) as usize).take(self.rounds as usize);
        rounds.map(|round| round.iter().map(|rank| OriginalRank(*rank)).collect()).collect()
    }
}

/// Plays rounds of deaths and returns their figures.
fn remake_figures(
    placement: &ReplicaPlacement,
    probing: Probing,
    seed: u64,
    rounds: &[Vec<OriginalRank>],
    mut clock: impl FnMut() -> Duration,
) -> Result<RemakeFigures> {
    let mut state = AfterDeaths::new(placement.clone(), probing, seed)?;
    let mut traffic = Traffic::new(placement.topology().ranks());
    for round in rounds {
        state.die(round)?;
        let plan = state.plan();
        traffic.add(&plan);
        state.remade();
    }
    let started = clock();
    let mut probes = 0;
    let lookups = placement.ranges();
    let mut held = vec![0u64; placement.topology().ranks() as usize];
    for range in (0..lookups).map(RangeId) {
        let copies = state.copies_counted(range, &mut probes);
        copies.living.iter().for_each(|rank| held[rank.0 as usize] += 1);
    }
    let spent = clock().saturating_sub(started);
    let gone =
        |range: &RangeId| placement.holders(*range).iter().all(|rank| !state.is_alive(*rank));
    let affected = state.affected();
    Ok(RemakeFigures {
        probing,
        deaths: placement.topology().ranks() - state.alive(),
        lookup: Duration::from_secs_f64(spent.as_secs_f64() / lookups.max(1) as f64),
        probes: probes as f64 / lookups.max(1) as f64,
        most_ranges: held.iter().copied().max().unwrap_or(0),
        mean_ranges: held.iter().sum::<u64>() as f64 / f64::from(state.alive().max(1)),
        transfers: traffic.transfers,
        messages: traffic.messages,
        most_messages: traffic.most_messages,
        most_transfers: traffic.most_transfers,
        lost: state.plan().lost.len() as u64,
        lost_without_remaking: affected.iter().filter(|range| gone(range)).count() as u64,
    })
}

/// Copies and messages, counted round by round.
struct Traffic {
    ranks: usize,
    transfers: u64,
    messages: u64,
    most_messages: u64,
    most_transfers: u64,
}

impl Traffic {
    fn new(ranks: u32) -> Self {
        Traffic {
            ranks: ranks as usize,
            transfers: 0,
            messages: 0,
            most_messages: 0,
            most_transfers: 0,
        }
    }

    fn add(&mut self, plan: &RemakePlan) {
        let pairs: HashSet<(u32, u32)> =
            plan.transfers.iter().map(|t| (t.from.0, t.to.0)).collect();
        self.transfers += plan.transfers.len() as u64;
        self.messages += pairs.len() as u64;
        self.most_messages = self.most_messages.max(self.most(pairs.into_iter()));
        let copies = plan.transfers.iter().map(|t| (t.from.0, t.to.0));
        self.most_transfers = self.most_transfers.max(self.most(copies));
    }

    /// The largest number of times that a rank sends or receives.
    fn most(&self, pairs: impl Iterator<Item = (u32, u32)>) -> u64 {
        let mut counts = vec![(0, 0); self.ranks];
        for (from, to) in pairs {
            counts[from as usize].0 += 1;
            counts[to as usize].1 += 1;
        }
        counts.into_iter().map(|(sent, received)| sent.max(received)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_balance_and_lose_nothing_while_deaths_are_fewer_than_copies() {
        let layout = ReplicaLayout {
            blocks: 64 * 96,
            range_blocks: 1,
            copies: 3,
            seed: Some(1),
            first_copy: FirstCopy::Permuted,
        };
        let placement = ReplicaPlacement::new(layout, Topology::blocks(96, 1).unwrap()).unwrap();
        // Half of all ranks die, two at a time: without remaking, groups of three would be gone.
        let pair = |at: u32| vec![OriginalRank(2 * at), OriginalRank(2 * at + 48)];
        let rounds: Vec<Vec<OriginalRank>> = (0..24).map(pair).collect();
        for probing in [Probing::DoubleHashing, Probing::Permutation] {
            let figures =
                remake_figures(&placement, probing, 7, &rounds, || Duration::ZERO).unwrap();
            assert_eq!(
                (figures.lost, figures.mean_ranges),
                (0, f64::from(3 * 96 * 64) / f64::from(96 - figures.deaths))
            );
            assert!(figures.lost_without_remaking > 0);
            assert!(figures.imbalance() < 1.25 && figures.probes < 12.0, "{figures:?}");
            assert!(
                figures.messages <= figures.transfers
                    && figures.most_messages <= figures.most_transfers
            );
        }
    }

    /// More deaths in a round than there are copies lose ranges, fewer do not, and both ways lose the same: a range is lost
    /// with its last copy, and every remade set is complete.
    #[test]
    fn losses_come_with_more_deaths_at_once_than_copies() {
        let scale = RemakeScale {
            ranks: 64,
            per_node: 1,
            copies: 2,
            ranges_per_rank: 256,
            rounds: 20,
            deaths_per_round: 1,
            seed: 3,
        };
        let ways = [Probing::DoubleHashing, Probing::Permutation];
        let of = |scale: RemakeScale| {
            ways.map(|probing| scale.figures(probing, || Duration::ZERO).unwrap())
        };
        for figures in of(scale) {
            assert_eq!((figures.deaths, figures.lost), (20, 0), "{figures:?}");
            assert!(figures.lost_without_remaking > 0 && figures.imbalance() < 1.4, "{figures:?}");
            assert!(figures.messages <= figures.transfers, "{figures:?}");
        }
        for figures in of(RemakeScale { rounds: 5, deaths_per_round: 4, ..scale }) {
            assert!(figures.deaths == 20 && figures.lost > 0, "{figures:?}");
            assert!(figures.lost < figures.lost_without_remaking, "{figures:?}");
        }
    }
}

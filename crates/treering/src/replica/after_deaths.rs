//! Holders of every range after deaths, and the ranks on which lost copies are made again.
//!
//! Copies on survivors stay where they are. A lost copy is made again on the first living rank in the range's order of
//! ranks (see `probing`) that does not hold the range and is in a failure domain without a copy, or on a node without
//! one if there is no such domain, or else on any rank. Deaths are recorded in epochs: an epoch ends when the copies
//! lost in it have been made again ([`AfterDeaths::remade`]). The holders of a range follow from its placement and the
//! epoch in which each rank died, so that every survivor computes the same without communication, in time that
//! grows with the deaths among the range's holders.
//!
//! Laws: after each epoch a range has min(r, living ranks) distinct living holders, unless all its holders died in one
//! epoch: then it is lost, for good. Holders are in different domains while r domains live. The order of deaths within
//! an epoch makes no difference.
//!
//! ReStore (Hübner et al., 2022), section IV-E and appendix; separation by domains is added here.

use crate::error::{Error, Result};
use crate::replica::permutation::mix;
use crate::replica::placement::{RangeId, ReplicaPlacement};
use crate::replica::probing::{Probes, Probing};
use crate::replica::topology::{FailureUnit, OriginalRank};
use std::collections::HashMap;

/// Epoch of the death of ranks that live.
const ALIVE: u32 = u32::MAX;

/// The copies of a range in the current epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeCopies {
    /// Living ranks that hold the range. None: the range is lost.
    pub living: Vec<OriginalRank>,
    /// Living ranks on which copies lost in this epoch are to be made again.
    pub remake: Vec<OriginalRank>,
}

/// A copy of a range from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CopyTransfer {
    /// The rank that holds the range.
    pub from: OriginalRank,
    /// The rank that will hold it, too.
    pub to: OriginalRank,
    /// The range.
    pub range: RangeId,
}

/// Plan of the work after deaths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemakePlan {
    /// The copies to make, in the order of ranges.
    pub transfers: Vec<CopyTransfer>,
    /// The ranges that have been lost for good, in this epoch or before, in ascending order.
    pub lost: Vec<RangeId>,
}

/// The number of living units of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Living {
    ranks: u32,
    nodes: u32,
    domains: u32,
}

/// A placement and the deaths since.
#[derive(Clone, Debug)]
pub struct AfterDeaths {
    placement: ReplicaPlacement,
    probes: Probes,
    /// The epoch in which each rank died.
    died: Vec<u32>,
    dead: Vec<OriginalRank>,
    epoch: u32,
    on_node: Vec<u32>,
    in_domain: Vec<u32>,
    /// The units that lived at the end of each epoch; the last is the current one.
    living: Vec<Living>,
}

impl AfterDeaths {
    /// A placement before any death.
    pub fn new(placement: ReplicaPlacement, probing: Probing, seed: u64) -> Result<Self> {
        let topology = placement.topology();
        let ranks = topology.ranks();
        let mut on_node = vec![0; topology.count(FailureUnit::Node) as usize];
        let mut in_domain = vec![0; topology.count(FailureUnit::Domain) as usize];
        for rank in (0..ranks).map(OriginalRank) {
            on_node[topology.unit_of(FailureUnit::Node, rank) as usize] += 1;
            in_domain[topology.unit_of(FailureUnit::Domain, rank) as usize] += 1;
        }
        let living =
            vec![Living { ranks, nodes: on_node.len() as u32, domains: in_domain.len() as u32 }];
        let (probes, died) = (Probes::new(probing, ranks, seed)?, vec![ALIVE; ranks as usize]);
        Ok(AfterDeaths {
            placement,
            probes,
            died,
            dead: Vec::new(),
            epoch: 0,
            on_node,
            in_domain,
            living,
        })
    }

    /// The placement before any death.
    pub fn placement(&self) -> &ReplicaPlacement {
        &self.placement
    }

    /// Whether a rank lives.
    pub fn is_alive(&self, rank: OriginalRank) -> bool {
        self.died.get(rank.0 as usize) == Some(&ALIVE)
    }

    #[cfg(feature = "tools")]
    /// The number of living ranks.
    pub fn alive(&self) -> u32 {
        self.now().ranks
    }

    /// Records deaths in the current epoch. A rank that is recorded as dead already stays so.
    pub fn die(&mut self, ranks: &[OriginalRank]) -> Result<()> {
        if let Some(bad) = ranks.iter().find(|rank| rank.0 as usize >= self.died.len()) {
            return Err(Error::usage(format!(
                "rank {bad} cannot have died: there were {} ranks",
                self.died.len()
            )));
        }
        for rank in ranks {
            if !self.is_alive(*rank) {
                continue;
            }
            self.died[rank.0 as usize] = self.epoch;
            self.dead.push(*rank);
            let topology = self.placement.topology();
            let node = &mut self.on_node[topology.unit_of(FailureUnit::Node, *rank) as usize];
            let domain = &mut self.in_domain[topology.unit_of(FailureUnit::Domain, *rank) as usize];
            (*node, *domain) = (*node - 1, *domain - 1);
            if let Some(now) = self.living.last_mut() {
                now.ranks -= 1;
                now.nodes -= u32::from(*node == 0);
                now.domains -= u32::from(*domain == 0);
            }
        }
        Ok(())
    }

    /// Ends the epoch: all copies of the plan have been made. Without deaths in this epoch nothing changes.
    pub fn remade(&mut self) {
        let any = self.dead.last().is_some_and(|rank| self.died[rank.0 as usize] == self.epoch);
        if any {
            self.living.push(self.now());
            self.epoch += 1;
        }
    }

    /// The copies of a range; none if there is no such range.
    pub fn copies(&self, range: RangeId) -> RangeCopies {
        self.copies_counted(range, &mut 0)
    }

    /// The copies of a range; adds the number of ranks that were looked at to `probes`.
    pub(crate) fn copies_counted(&self, range: RangeId, probes: &mut u64) -> RangeCopies {
        let mut holders = self.placement.holders(range);
        *probes += holders.len() as u64;
        loop {
            let next = holders.iter().map(|rank| self.died[rank.0 as usize]).min().unwrap_or(ALIVE);
            if next == ALIVE {
                return RangeCopies { living: holders, remake: Vec::new() };
            }
            holders.retain(|rank| self.died[rank.0 as usize] > next);
            let living = holders.len();
            if living > 0 {
                self.fill(range, &mut holders, next, probes);
            }
            if next == self.epoch {
                let remake = holders.split_off(living);
                return RangeCopies { living: holders, remake };
            }
        }
    }

    /// Adds holders that live at the end of an epoch until there are enough.
    fn fill(&self, range: RangeId, holders: &mut Vec<OriginalRank>, epoch: u32, probes: &mut u64) {
        let living = self.living.get(epoch as usize).copied().unwrap_or_default();
        let wanted = self.placement.copies().min(living.ranks) as usize;
        while holders.len() < wanted {
            let unit = self.fresh_unit(holders, living);
            let fits = |rank: &OriginalRank| {
                *probes += 1;
                self.died[rank.0 as usize] > epoch && !self.shares(unit, *rank, holders)
            };
            match self.probes.sequence(range).find(fits) {
                Some(rank) => holders.push(rank),
                None => return,
            }
        }
    }

    /// The coarsest kind of unit of which a living one holds no copy.
    fn fresh_unit(&self, holders: &[OriginalRank], living: Living) -> FailureUnit {
        let used = |unit| {
            let first = |at: usize| !self.shares(unit, holders[at], &holders[..at]);
            (0..holders.len()).filter(|at| first(*at)).count() as u32
        };
        if living.domains > used(FailureUnit::Domain) {
            FailureUnit::Domain
        } else if living.nodes > used(FailureUnit::Node) {
            FailureUnit::Node
        } else {
            FailureUnit::Rank
        }
    }

    /// Whether a rank is in the same unit as one of the holders.
    #[inline]
    fn shares(&self, unit: FailureUnit, rank: OriginalRank, holders: &[OriginalRank]) -> bool {
        let topology = self.placement.topology();
        let its = topology.unit_of(unit, rank);
        holders.iter().any(|holder| topology.unit_of(unit, *holder) == its)
    }

    /// The copies to make in this epoch, and everything lost. Only ranges that dead ranks held at first are looked at:
    /// no other range has lost a copy. Of the holders of a range, the one with the fewest sends so far sends it.
    pub fn plan(&self) -> RemakePlan {
        let mut plan = RemakePlan::default();
        let mut sends: HashMap<OriginalRank, u32> = HashMap::new();
        for range in self.affected() {
            let copies = self.copies(range);
            if copies.living.is_empty() {
                plan.lost.push(range);
                continue;
            }
            for to in copies.remake {
                let busy = |rank: &&OriginalRank| {
                    let draw = mix(range.0 ^ u64::from(rank.0) << 32);
                    (sends.get(*rank).copied().unwrap_or(0), draw)
                };
                if let Some(from) = copies.living.iter().min_by_key(busy).copied() {
                    *sends.entry(from).or_default() += 1;
                    plan.transfers.push(CopyTransfer { from, to, range });
                }
            }
        }
        plan
    }

    /// The ranges that a living rank holds, in ascending order: those of its placement, and copies made again on it.
    pub fn ranges_of(&self, rank: OriginalRank) -> Vec<RangeId> {
        if !self.is_alive(rank) {
            return Vec::new();
        }
        let holds = |range: &RangeId| self.copies(*range).living.contains(&rank);
        let mut ranges: Vec<RangeId> = self.affected().into_iter().filter(holds).collect();
        ranges.extend(self.placement.ranges_of(rank));
        ranges.sort_unstable();
        ranges.dedup();
        ranges
    }

    /// The ranges that have lost at least one of their first holders, in ascending order.
    pub(crate) fn affected(&self) -> Vec<RangeId> {
        let mut ranges: Vec<RangeId> =
            self.dead.iter().flat_map(|rank| self.placement.ranges_of(*rank)).collect();
        ranges.sort_unstable();
        ranges.dedup();
        ranges
    }

    fn now(&self) -> Living {
        self.living.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::placement::{FirstCopy, ReplicaLayout};
    use crate::replica::topology::Topology;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const BOTH: [Probing; 2] = [Probing::DoubleHashing, Probing::Permutation];

    fn placed(nodes: &[u8], per_domain: u8, copies: u32, blocks: u64) -> ReplicaPlacement {
        placed_with(nodes, per_domain, copies, blocks, FirstCopy::Permuted)
    }

    fn placed_with(
        nodes: &[u8],
        per_domain: u8,
        copies: u32,
        blocks: u64,
        first_copy: FirstCopy,
    ) -> ReplicaPlacement {
        let name = |node: &u8| (format!("n{node}"), format!("d{}", node / per_domain));
        let names: Vec<(String, String)> = nodes.iter().map(name).collect();
        let topology =
            Topology::named(names.iter().map(|(node, domain)| (&node[..], &domain[..]))).unwrap();
        let layout = ReplicaLayout { blocks, range_blocks: 1, copies, seed: Some(5), first_copy };
        ReplicaPlacement::new(layout, topology).unwrap()
    }

    /// The holders of each range, kept in sets.
    type Model = BTreeMap<RangeId, BTreeSet<OriginalRank>>;

    fn model(placement: &ReplicaPlacement) -> Model {
        let holders = |id| (RangeId(id), placement.holders(RangeId(id)).into_iter().collect());
        (0..placement.ranges()).map(holders).collect()
    }

    fn check_epoch(state: &AfterDeaths, model: &mut Model) {
        model.values_mut().for_each(|holders| holders.retain(|rank| state.is_alive(*rank)));
        let plan = state.plan();
        let lost: Vec<RangeId> =
            model.iter().filter(|(_, set)| set.is_empty()).map(|(range, _)| *range).collect();
        assert_eq!(plan.lost, lost);
        for (range, holders) in &*model {
            assert_eq!(*holders, state.copies(*range).living.into_iter().collect());
        }
        for CopyTransfer { from, to, range } in &plan.transfers {
            assert!(model[range].contains(from) && state.is_alive(*to));
            assert!(model.get_mut(range).unwrap().insert(*to), "{to} holds {range:?} already");
        }
        let wanted = state.placement().copies().min(state.alive()) as usize;
        assert!(model.values().all(|holders| holders.is_empty() || holders.len() == wanted));
        let topology = state.placement().topology();
        for (unit, alive) in
            [(FailureUnit::Domain, state.now().domains), (FailureUnit::Node, state.now().nodes)]
        {
            if alive >= state.placement().copies() {
                let separate = |holders: &BTreeSet<OriginalRank>| {
                    let units: BTreeSet<u32> =
                        holders.iter().map(|rank| topology.unit_of(unit, *rank)).collect();
                    units.len() == holders.len()
                };
                assert!(model.values().all(separate), "{unit:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_range_that_kept_a_copy_has_all_copies_again(
            nodes in prop::collection::vec(0u8..10, 1..30), per_domain in 1u8..4, copies in 1u32..5,
            rounds in prop::collection::vec(prop::collection::vec(0u32..30, 1..4), 0..6), seed: u64, keep_first: bool,
        ) {
            for probing in BOTH {
                let starts = (0..=nodes.len() as u64).map(|rank| rank * 80 / nodes.len() as u64).collect();
                let first_copy = if keep_first { FirstCopy::Submitter { starts } } else { FirstCopy::Permuted };
                let placement = placed_with(&nodes, per_domain, copies, 80, first_copy);
                let mut model = model(&placement);
                let mut state = AfterDeaths::new(placement, probing, seed).unwrap();
                check_epoch(&state, &mut model);
                for round in &rounds {
                    let dead: Vec<OriginalRank> = round.iter().map(|rank| OriginalRank(rank % nodes.len() as u32)).collect();
                    let mut other = state.clone();
                    state.die(&dead).unwrap();
                    // The order of deaths makes no difference, nor does a second report.
                    dead.iter().rev().chain(&dead).for_each(|rank| other.die(&[*rank]).unwrap());
                    prop_assert_eq!(state.plan(), other.plan());
                    check_epoch(&state, &mut model);
                    state.remade();
                    prop_assert!(state.plan().transfers.is_empty());
                    // Nothing died since: ending an epoch twice changes nothing.
                    state.remade();
                }
                check_epoch(&state, &mut model);
                for rank in (0..nodes.len() as u32).map(OriginalRank) {
                    let held = model.iter().filter(|(_, holders)| holders.contains(&rank)).map(|(range, _)| *range);
                    prop_assert!(held.eq(state.ranges_of(rank)));
                }
            }
        }
    }

    #[test]
    fn with_remaking_between_deaths_all_but_one_rank_may_die() {
        for probing in BOTH {
            let mut state =
                AfterDeaths::new(placed(&[0, 1, 2, 3, 4, 5, 6, 7], 1, 2, 200), probing, 1).unwrap();
            for rank in 0..7 {
                state.die(&[OriginalRank(rank)]).unwrap();
                assert!(state.plan().lost.is_empty());
                state.remade();
            }
            assert!((0..200).all(|id| state.copies(RangeId(id)).living == [OriginalRank(7)]));
        }
    }

    #[test]
    fn a_range_is_lost_if_a_second_holder_dies_before_the_copy_is_made() {
        let mut state =
            AfterDeaths::new(placed(&[0, 1, 2, 3], 1, 2, 4), Probing::DoubleHashing, 1).unwrap();
        let holders = state.placement().holders(RangeId(2));
        state.die(&holders[..1]).unwrap();
        assert_eq!(state.copies(RangeId(2)).living, holders[1..]);
        state.die(&holders[1..]).unwrap();
        assert!(state.plan().lost.contains(&RangeId(2)));
        state.remade();
        assert_eq!(state.copies(RangeId(2)), RangeCopies::default());
        assert!(state.plan().lost.contains(&RangeId(2)));
        assert!(state.die(&[OriginalRank(4)]).is_err() && !state.is_alive(OriginalRank(4)));
        assert_eq!(state.copies(RangeId(9)), RangeCopies::default());
    }

    #[test]
    fn a_dead_ranks_copies_are_made_again_on_many_ranks() {
        for probing in BOTH {
            let mut state =
                AfterDeaths::new(placed(&(0..60).collect::<Vec<_>>(), 1, 3, 60 * 64), probing, 1)
                    .unwrap();
            state.die(&[OriginalRank(17)]).unwrap();
            let plan = state.plan();
            assert_eq!(plan.transfers.len(), 3 * 64);
            let to: BTreeSet<OriginalRank> =
                plan.transfers.iter().map(|transfer| transfer.to).collect();
            // 192 balls into 57 bins leave 2 bins empty on average.
            assert!(to.len() > 48, "{probing:?}: {} ranks", to.len());
            // The two other holders send equally many.
            let sent = |rank| {
                plan.transfers.iter().filter(|transfer| transfer.from == OriginalRank(rank)).count()
            };
            assert_eq!((sent(37), sent(57)), (96, 96));
        }
    }
}

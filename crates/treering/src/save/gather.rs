//! Which checkpoint the nodes hold together. Pure.
//!
//! No node has all sections of a checkpoint, so nobody there knows whether it is complete. At `open` the ranks gather the
//! names of what their nodes hold, and those of what the shared store has already. A checkpoint is complete if every group
//! has a section somewhere, whichever rank's node that is: nodes may have changed, come in another order, or run another
//! number of ranks. It counts only if it is newer than everything in the shared log, and if no later opening has
//! overtaken its writer.

use super::tree::GroupTree;
use crate::array::{Rank, Sequence, Step};
use crate::comm::wire;
use crate::format::{FAN, WriterId};
use std::collections::{BTreeMap, BTreeSet};

/// A section, or a branch, that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StagedPart {
    pub(crate) sequence: u64,
    pub(crate) opening: u64,
    pub(crate) nonce: u64,
    pub(crate) step: u64,
    pub(crate) level: u8,
    pub(crate) index: u32,
    /// The number of groups of the checkpoint.
    pub(crate) of: u32,
}

wire! { struct StagedPart { sequence, opening, nonce, step, level, index, of } }

impl StagedPart {
    pub(crate) fn writer(&self) -> WriterId {
        WriterId { opening: Sequence(self.opening), nonce: self.nonce }
    }

    /// The groups below it.
    fn groups(&self) -> std::ops::Range<u64> {
        let span = u64::from(FAN).saturating_pow(self.level.into());
        let first = u64::from(self.index).saturating_mul(span);
        first..first.saturating_add(span)
    }
}

/// The holder of a part: a rank, through the store of its node, or the shared store.
pub(crate) type PartHolder = Option<Rank>;

/// A part, and who holds it.
pub(crate) type PlacedPart = (PartHolder, StagedPart);

/// A checkpoint that nodes and the shared store hold together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OnNodes {
    pub(crate) sequence: Sequence,
    pub(crate) writer: WriterId,
    pub(crate) step: Step,
    /// The sections that are only on nodes, and who brings each of them.
    pub(crate) bring: Vec<(u32, Rank)>,
    /// The first group of which nobody holds a section.
    pub(crate) missing: Option<u32>,
}

/// Whether somebody has opened the run since, without this.
pub(crate) fn is_overtaken(part: &StagedPart, openings: &[Sequence]) -> bool {
    openings.iter().any(|other| part.opening < other.0 && other.0 <= part.sequence)
}

/// Checkpoints behind the newest number of the log, the newest first. `bad` are sections that turned out to be useless.
pub(crate) fn on_nodes(
    parts: &[PlacedPart],
    newest: Sequence,
    openings: &[Sequence],
    bad: &BTreeSet<(Rank, StagedPart)>,
) -> Vec<OnNodes> {
    let mut checkpoints: BTreeMap<(u64, WriterId, u32), Vec<&PlacedPart>> = BTreeMap::new();
    for held in parts {
        let part = &held.1;
        let useless = held.0.is_some_and(|rank| bad.contains(&(rank, part.clone())));
        if Sequence(part.sequence) > newest && !is_overtaken(part, openings) && !useless {
            let key = (part.sequence, part.writer(), part.of);
            checkpoints.entry(key).or_default().push(held);
        }
    }
    let newest_first = checkpoints.into_iter().rev();
    newest_first
        .map(|((sequence, writer, of), held)| put_together(sequence, writer, of, &held))
        .collect()
}

fn put_together(sequence: u64, writer: WriterId, of: u32, held: &[&PlacedPart]) -> OnNodes {
    let top = GroupTree { groups: of, fan: FAN }.top();
    let mut near: BTreeMap<u64, Rank> = BTreeMap::new();
    let mut there: Vec<std::ops::Range<u64>> = Vec::new();
    for (holder, part) in held {
        match holder {
            None if part.level <= top => there.push(part.groups()),
            Some(rank) if part.level == 0 => {
                let holder = near.entry(part.index.into()).or_insert(*rank);
                *holder = (*rank).min(*holder);
            }
            _ => {}
        }
    }
    there.sort_by_key(|groups| groups.start);
    let (mut bring, mut group, mut next) = (Vec::new(), 0, 0);
    let missing = loop {
        if group >= u64::from(of) {
            break None;
        }
        while there.get(next).is_some_and(|groups| groups.end <= group) {
            next += 1;
        }
        match (there.get(next).filter(|groups| groups.contains(&group)), near.get(&group)) {
            (Some(groups), _) => group = groups.end,
            (None, Some(rank)) => {
                bring.push((group as u32, *rank));
                group += 1;
            }
            (None, None) => break Some(group as u32),
        }
    };
    let step = Step(held.first().map_or(0, |(_, part)| part.step));
    OnNodes { sequence: Sequence(sequence), writer, step, bring, missing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(sequence: u64, opening: u64, level: u8, index: u32, of: u32) -> StagedPart {
        StagedPart { sequence, opening, nonce: 9, step: sequence * 10, level, index, of }
    }

    proptest! {
        /// A checkpoint is complete exactly if every group is held, and each section that the shared store lacks is
        /// brought once, by a rank that holds it.
        #[test]
        fn every_group_is_found_wherever_it_is(
            of in 1u32..300,
            held in proptest::collection::vec((0u32..300, 0u32..5), 0..600),
            branches in proptest::collection::vec(0u32..5, 0..4),
            lost in proptest::collection::vec(0u32..300, 0..3),
        ) {
            let all = (0..of).map(|group| (group, group % 7));
            let held: Vec<(u32, u32)> = held.into_iter().chain(all).collect();
            let held = held.into_iter().filter(|(group, _)| *group < of && !lost.contains(group));
            let held: Vec<(u32, u32)> = held.collect();
            let mut parts: Vec<(PartHolder, StagedPart)> = held.iter()
                .map(|(group, rank)| (Some(Rank(*rank)), part(7, 2, 0, *group, of)))
                .collect();
            parts.extend(branches.iter().map(|index| (None, part(7, 2, 1, *index, of))));
            let covered = |group: u32| of > FAN && branches.contains(&(group / FAN));
            let found = on_nodes(&parts, Sequence(6), &[Sequence(2)], &BTreeSet::new());
            if parts.is_empty() {
                prop_assert!(found.is_empty());
                return Ok(());
            }
            prop_assert_eq!(found.len(), 1);
            let first_lost = lost.iter().copied().filter(|g| *g < of && !covered(*g)).min();
            prop_assert_eq!(found[0].missing, first_lost);
            for (group, rank) in &found[0].bring {
                prop_assert!(held.contains(&(*group, rank.0)) && !covered(*group));
            }
            if first_lost.is_none() {
                let needed: Vec<u32> = (0..of).filter(|group| !covered(*group)).collect();
                let brought: Vec<u32> = found[0].bring.iter().map(|(group, _)| *group).collect();
                prop_assert_eq!(brought, needed);
            }
        }
    }

    #[test]
    fn what_is_old_overtaken_or_bad_does_not_count() {
        let parts: Vec<(PartHolder, StagedPart)> = [
            part(5, 2, 0, 0, 1),
            part(7, 2, 0, 0, 1),
            part(8, 2, 0, 0, 1),
            part(8, 6, 0, 0, 1),
            part(9, 6, 0, 0, 2),
        ]
        .into_iter()
        .map(|part| (Some(Rank(3)), part))
        .collect();
        let openings = [Sequence(2), Sequence(6)];
        let found = on_nodes(&parts, Sequence(6), &openings, &BTreeSet::new());
        let seen: Vec<_> = found.iter().map(|c| (c.sequence.0, c.missing)).collect();
        assert_eq!(seen, [(9, Some(1)), (8, None)]);
        let bad = [(Rank(3), part(8, 6, 0, 0, 1))].into();
        assert_eq!(on_nodes(&parts, Sequence(6), &openings, &bad).len(), 1);
        // A number of groups that cannot be costs nothing.
        let odd = [(Some(Rank(0)), part(8, 6, 0, 0, u32::MAX))];
        assert_eq!(on_nodes(&odd, Sequence(6), &openings, &bad)[0].missing, Some(1));
    }
}

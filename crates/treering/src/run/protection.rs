//! Redundancy between the nodes of a run: when it is made, and when it may go.
//!
//! After a vote all ranks know the same: which checkpoints are complete on the nodes, which of these must stay there, and
//! which the shared store has. From that alone follows what is protected next ([`ProtectionState::due`]), so all ranks
//! come to the same calls. Each checkpoint is protected by itself, with the section and the pack of every group: the
//! parity of one that is needed never needs an object of one that is not.

use super::ranks::RankSide;
use crate::array::Sequence;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{BranchName, Names, PackName, ParityName, WriterId};
use crate::redundancy::{
    NodePlacement, NodeRanks, PIECE, ProtectJob, Redundancy, place, protect, spent,
};
use crate::save::{GroupSeat, Tiers, random};
use crate::store::Store;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// The nodes of a run that protect each other.
pub(super) struct NodeProtection {
    ranks: NodeRanks,
    placement: NodePlacement,
    pub(super) state: ProtectionState,
    /// The last note about a failure.
    trouble: Option<String>,
}

/// Facts about checkpoints on nodes that all ranks know.
#[derive(Clone, Debug, Default)]
pub(super) struct ProtectionState {
    /// The newest number that is protected, and everything before it that had to be.
    through: u64,
    /// The numbers at which epochs began.
    epochs: BTreeSet<u64>,
    /// The newest number that is in the shared store as a whole.
    committed: u64,
}

impl ProtectionState {
    /// Of a run that was opened with this number: everything before it is in the shared store, or given up.
    fn opened(opening: Sequence) -> ProtectionState {
        ProtectionState { committed: opening.0, ..ProtectionState::default() }
    }

    /// A checkpoint has begun.
    pub(super) fn began(&mut self, sequence: Sequence, whole: bool) {
        if whole {
            self.epochs.insert(sequence.0);
        }
    }

    /// The shared store has a checkpoint.
    pub(super) fn committed(&mut self, sequence: u64) {
        self.committed = self.committed.max(sequence);
    }

    /// The first number of which objects are needed on nodes: the epoch of the first checkpoint that stays there begins
    /// with it, unless the shared store has that.
    fn needed_from(&self, first: Sequence) -> u64 {
        let epoch = self.epochs.range(..=first.0).next_back().copied().unwrap_or(0);
        epoch.max(self.committed + 1)
    }

    /// Forgets the epochs that are over; the first number of which objects are needed on nodes.
    fn forget_before(&mut self, first: Sequence) -> u64 {
        if let Some(epoch) = self.epochs.range(..=first.0).next_back().copied() {
            self.epochs = self.epochs.split_off(&epoch);
        }
        self.needed_from(first)
    }

    /// The numbers to be protected when the newest complete checkpoint is `newest`, and `first` the first that stays.
    fn due(&self, newest: Sequence, first: Sequence) -> RangeInclusive<u64> {
        self.needed_from(first).max(self.through + 1)..=newest.0
    }
}

impl NodeProtection {
    /// For the nodes of these ranks; nothing if nothing was asked for. Also what a person should know.
    pub(super) fn new(
        ranks: NodeRanks,
        scheme: Redundancy,
        opening: Sequence,
    ) -> Result<(Option<NodeProtection>, Option<String>)> {
        let placement = place(ranks.nodes.clone(), scheme)?;
        let note = placement.note.clone();
        let state = ProtectionState::opened(opening);
        let own = NodeProtection { ranks, placement, state, trouble: None };
        Ok(((scheme != Redundancy::None).then_some(own), note))
    }

    /// Protects what is complete on the nodes and nowhere else; collective. An error of communication, or what a person
    /// should know.
    pub(super) fn bring_up_to_date(
        &mut self,
        (newest, first): (Sequence, Sequence),
        tiers: &Tiers,
        run: &str,
        writer: WriterId,
        writes: Option<&GroupSeat>,
    ) -> Result<Option<String>> {
        let store = tiers.first().as_ref();
        let names = Names::new(run);
        let needed = self.state.forget_before(first);
        // Parity that protects nothing any more makes room first.
        if self.ranks.leads_node() {
            // Files that cannot be removed now are removed after the next checkpoint, or by the next opener.
            let _ = remove_spent(store, run, Sequence(needed.saturating_sub(1)));
        }
        for number in self.state.due(newest, first) {
            let sequence = Sequence(number);
            let objects = writes.map(|seat| objects(store, &names, writer, sequence, seat));
            let objects = objects.unwrap_or_default();
            let job = ProtectJob {
                run,
                writer,
                sequence,
                random: random(),
                objects: &objects,
                piece: PIECE,
            };
            match protect(&self.ranks, &self.placement, store, &job) {
                Ok(_) => self.state.through = number,
                Err(error) if error.is_death() => {
                    return Err(error);
                }
                // It is tried again after the next checkpoint.
                Err(error) => return Ok(self.said_once(&error)),
            }
        }
        Ok(None)
    }

    fn said_once(&mut self, error: &Error) -> Option<String> {
        let what = format!("data that is only on nodes is not protected: {error}");
        let new = self.trouble.as_ref() != Some(&what);
        self.trouble = Some(what.clone());
        new.then_some(what)
    }
}

/// Objects that a group has put on its node for a checkpoint. A full node may have passed something on to the shared
/// store.
fn objects(
    store: &dyn Store,
    names: &Names,
    writer: WriterId,
    sequence: Sequence,
    seat: &GroupSeat,
) -> Vec<String> {
    let section = BranchName { sequence, writer, level: 0, index: seat.group.0 };
    let pack = PackName { writer, attempt: sequence.0, group: seat.group };
    let keys = [names.pack(pack), names.branch(section)];
    // What cannot be opened for another reason is there, and protecting it says what is wrong.
    let is_gone =
        |key: &String| store.open(key).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    keys.into_iter().filter(|key| !is_gone(key)).collect()
}

/// Removes the parity files of a node that protect nothing but checkpoints up to this one.
pub(super) fn remove_spent(store: &dyn Store, run: &str, through: Sequence) -> Result<()> {
    let items = store.list(&ParityName::folder(run))?;
    let keys = spent(run, items.iter().map(|item| &item.name[..]), through);
    if keys.is_empty() { Ok(()) } else { store.delete(&keys) }
}

impl RankSide {
    /// Protects what is complete on the nodes and nowhere else, as the last vote has found it; collective.
    pub(super) fn protect(
        &mut self,
        tiers: &Tiers,
        run: &str,
        writer: WriterId,
        seat: &GroupSeat,
    ) -> Result<Option<String>> {
        let writes = (seat.members.first() == Some(&self.rank())).then_some(seat);
        let (Some(protection), Some(complete)) = (&mut self.protection, self.on_nodes) else {
            return Ok(None);
        };
        let done = protection.bring_up_to_date(complete, tiers, run, writer, writes);
        self.or_all_stop(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever happens, every pack of the epoch of a checkpoint that stays is protected or in the shared store.
        #[test]
        fn everything_is_protected_that_a_checkpoint_on_nodes_needs(
            deeds in prop::collection::vec((any::<bool>(), 0u64..4, 0u64..3), 1..60),
        ) {
            let mut state = ProtectionState::opened(Sequence(3));
            let mut protected = BTreeSet::new();
            let (mut last, mut epochs, mut complete) = (3u64, vec![3u64], 0);
            for (whole, complete_before, shared_before) in deeds {
                last += 1;
                let whole = whole || last == 4;
                state.began(Sequence(last), whole);
                epochs.extend(whole.then_some(last));
                if shared_before == 2 && last > 8 {
                    state.committed(last - 5);
                }
                // A complete checkpoint stays complete.
                let newest = complete.max(last - complete_before.min(last));
                if newest <= 4 {
                    continue;
                }
                complete = newest;
                let first = newest - 1;
                state.forget_before(Sequence(first));
                for number in state.due(Sequence(newest), Sequence(first)) {
                    protected.insert(number);
                    state.through = number;
                }
                for stays in [first, newest] {
                    let epoch = epochs.iter().rev().find(|epoch| **epoch <= stays).unwrap();
                    for pack in *epoch..=stays {
                        prop_assert!(protected.contains(&pack) || pack <= state.committed, "{pack} of {stays}");
                    }
                    let gone = state.needed_from(Sequence(first));
                    prop_assert!((*epoch..=stays).all(|pack| pack >= gone || pack <= state.committed));
                }
            }
        }
    }
}

//! The accounts of an epoch: what restoring from it costs, and when a whole checkpoint begins the next.
//!
//! Everything here is pure. A checkpoint is decided once, before anything is hashed, from the votes of
//! all ranks ([`decide`]); outcomes come in later, by sequence number, in any order.
//!
//! The rule. Let W be the cost of restoring the epoch's whole checkpoint and D that of all deltas behind
//! it, those under way included at their expected cost; costs are counted in bytes to be read and filled,
//! and each file counts as [`FILE`] bytes. A delta is written as long as D ≤ max(growth × W, allowance). By
//! default growth is 1 and the allowance 64 MiB, so
//! - a restore costs at most twice that of a whole checkpoint, or, for small states, 64 MiB (some 50 ms) more;
//! - whole checkpoints add at most the size of the changes, and 64 KiB for each checkpoint, to what is
//!   written: an epoch ends only when its deltas have cost as much as the whole.
//!
//! Levels. With node stores in front, every m-th checkpoint goes to the shared store, or one that a rank asks for
//! ([`Cadence`]). Packs of its epoch that are only on nodes so far move along. If these and the changes come to more than
//! the state itself, the checkpoint is whole instead and needs none of them: so a checkpoint never writes more to the
//! shared store than the state and what encoding may add.

use crate::array::{Sequence, Step};
use crate::format::{Footer, MAX_DEPTH, VariableDelta};
use crate::lineage::MAX_PACKS;
use std::collections::VecDeque;

/// The cost of opening a file.
const FILE: u64 = 64 << 10;
/// The cost of following a region.
const REGION: u64 = 32;
/// Filling memory costs this much less than reading.
const FILLED_PER_READ: u64 = 2;
/// The default allowance.
const ALLOWANCE: u64 = 64 << 20;

/// Permitted extra cost of a restore, relative to that of a whole checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    /// As a share of the whole.
    pub(crate) part: f64,
    /// At least this many bytes.
    pub(crate) allowance: u64,
}

impl Default for Growth {
    fn default() -> Self {
        Growth { part: 1.0, allowance: ALLOWANCE }
    }
}

impl Growth {
    /// Exactly this share of the whole.
    pub(crate) fn of(part: f64) -> Growth {
        Growth { part, allowance: 0 }
    }
}

/// The vote of one rank on the next checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vote {
    /// The bytes of its variables.
    pub(crate) state: u64,
    /// The bytes that it expects to have changed.
    pub(crate) changed: u64,
    /// Whether it can build on nothing.
    pub(crate) whole: bool,
    /// Whether it wants to leave the checkpoint out, because its staging memory is full.
    pub(crate) overloaded: bool,
    /// Whether it wants the checkpoint in the shared store.
    pub(crate) shared: bool,
    /// The bytes of the open epoch's packs that are only on its node.
    pub(crate) aside: u64,
    /// Whether somebody has asked the program to stop.
    pub(crate) halt: bool,
}

/// The next step of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The number of the checkpoint in the log.
    pub(crate) sequence: Sequence,
    pub(crate) step: Step,
    /// Whether it begins an epoch.
    pub(crate) whole: bool,
    /// Whether it is left out; its number is not used then.
    pub(crate) skip: bool,
    /// Whether it goes to the shared store. Otherwise it stays on the nodes.
    pub(crate) shared: bool,
    /// Whether the program is asked to stop after it.
    pub(crate) halt: bool,
}

/// When checkpoints go to the shared store: every n-th.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cadence {
    every: u32,
    /// The checkpoints since the last one that went there.
    since: u32,
}

impl Cadence {
    pub(crate) fn new(every: u32) -> Cadence {
        Cadence { every, since: 0 }
    }

    /// Whether the next one goes there.
    pub(crate) fn is_due(self) -> bool {
        self.since.saturating_add(1) >= self.every
    }

    /// A checkpoint was decided on.
    pub(crate) fn decided(&mut self, decision: Decision) {
        self.since = if decision.shared { 0 } else { self.since.saturating_add(1) };
    }

    /// A checkpoint that was to go there does not exist: the next one takes its place.
    pub(crate) fn lost(&mut self) {
        self.since = self.every;
    }
}

/// The open epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epoch {
    growth: Growth,
    /// The first sequence number that belongs to it. `None`: there is nothing to build on.
    first: Option<Sequence>,
    /// The cost of restoring its whole checkpoint; an estimate until that is committed.
    whole: u64,
    /// The cost of the deltas that are committed.
    deltas: u64,
    packs: u64,
    /// Deltas under way: their numbers and the bytes that changed.
    pending: VecDeque<(Sequence, u64)>,
    /// The cost of the newest delta by its changed bytes; less than 1 where frames are differences.
    share: Option<f64>,
    /// The checkpoints of this epoch that are only on the node, and their bytes.
    aside: Vec<(Sequence, u64)>,
}

impl Epoch {
    pub(crate) fn new(growth: Growth) -> Self {
        Epoch { growth, ..Epoch::default() }
    }

    /// Whether there is a checkpoint to build on.
    pub(crate) fn is_open(&self) -> bool {
        self.first.is_some()
    }

    /// The bytes of its packs that are only on the node; those under way count as what has changed.
    pub(crate) fn aside(&self) -> u64 {
        self.aside.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add)
    }

    /// Begins the checkpoint that was decided on.
    pub(crate) fn begin(&mut self, decision: Decision, state: u64) {
        self.begin_delta_or_whole(decision, state);
        match decision.shared {
            // Everything before it moves along.
            true => self.aside.clear(),
            false => self.aside.push((decision.sequence, if decision.whole { state } else { 0 })),
        }
    }

    fn begin_delta_or_whole(&mut self, decision: Decision, state: u64) {
        match decision.whole {
            true => {
                *self = Epoch {
                    growth: self.growth,
                    first: Some(decision.sequence),
                    whole: estimate(state, 1.0),
                    packs: 1,
                    share: self.share,
                    ..Epoch::default()
                }
            }
            false => {
                self.packs += 1;
                self.pending.push_back((decision.sequence, 0));
            }
        }
    }

    /// A checkpoint has been captured, and this many bytes had changed.
    pub(crate) fn captured(&mut self, sequence: Sequence, changed: u64) {
        let under_way = self.pending.iter_mut().find(|(number, _)| *number == sequence);
        under_way.into_iter().for_each(|pending| pending.1 = changed);
        self.is_aside(sequence, changed);
    }

    /// The pack of a checkpoint that stays on the node has this many bytes; none if another rank counts them.
    pub(crate) fn is_aside(&mut self, sequence: Sequence, bytes: u64) {
        let aside = self.aside.iter_mut().find(|(number, _)| *number == sequence);
        aside.into_iter().for_each(|aside| aside.1 = bytes);
    }

    /// A checkpoint is complete in the first tier.
    pub(crate) fn committed(&mut self, sequence: Sequence, cost: u64) {
        if self.first == Some(sequence) {
            self.whole = cost;
        }
        // A delta of an epoch that is over is not pending any more.
        let Some(at) = self.pending.iter().position(|(number, _)| *number == sequence) else {
            return;
        };
        let changed = self.pending.remove(at).map_or(0, |(_, changed)| changed);
        self.deltas += cost;
        if changed > 0 {
            let expected = estimate(changed, 1.0) - FILE;
            self.share = Some((cost.saturating_sub(FILE) as f64 / expected as f64).min(1.0));
        }
    }

    /// A checkpoint has failed: nothing of its epoch can be built on.
    pub(crate) fn failed(&mut self, sequence: Sequence) {
        if self.first.is_some_and(|first| first <= sequence) {
            self.end();
        }
    }

    /// The next checkpoint is whole.
    pub(crate) fn end(&mut self) {
        (self.first, self.pending, self.aside) = (None, VecDeque::new(), Vec::new());
    }

    /// Goes on with an epoch that an earlier process wrote: the cost of each of its packs.
    pub(crate) fn resume(&mut self, whole: u64, deltas: u64, packs: u64) {
        let first = Some(Sequence::default());
        let growth = self.growth;
        *self = Epoch { growth, first, whole, deltas, packs, ..Epoch::default() };
    }

    /// Whether another delta, of which this many bytes are likely to have changed, would make restores too
    /// expensive.
    fn is_over(&self, changed: u64) -> bool {
        let share = self.share.unwrap_or(1.0);
        let coming = self.pending.iter().map(|(_, changed)| estimate(*changed, share));
        let coming = coming.sum::<u64>() + estimate(changed, share);
        let allowed = (self.growth.part * self.whole as f64).max(self.growth.allowance as f64);
        self.deltas as f64 + coming as f64 > allowed || self.packs >= u64::from(MAX_PACKS) - 1
    }
}

/// Decides on the next checkpoint from the votes of all ranks.
pub(crate) fn decide(epoch: &Epoch, votes: &[Vote], sequence: Sequence, step: Step) -> Decision {
    let changed = votes.iter().map(|vote| vote.changed).fold(0, u64::saturating_add);
    let whole = !epoch.is_open() || votes.iter().any(|vote| vote.whole) || epoch.is_over(changed);
    let halt = votes.iter().any(|vote| vote.halt);
    let shared = halt || votes.iter().any(|vote| vote.shared);
    let total = |of: fn(&Vote) -> u64| votes.iter().map(of).fold(0, u64::saturating_add);
    let whole = whole || shared && moves_too_much(total(|v| v.state), changed, total(|v| v.aside));
    let skip = votes.iter().any(|vote| vote.overloaded);
    Decision { sequence, step, whole, skip, shared, halt }
}

/// Whether a delta that goes to the shared store, with the packs that are only on nodes, comes to more than the state.
pub(crate) fn moves_too_much(state: u64, changed: u64, aside: u64) -> bool {
    aside > 0 && aside.saturating_add(changed) > state
}

/// The cost of a pack in which this many bytes are new.
fn estimate(changed: u64, share: f64) -> u64 {
    FILE + (share * (changed + changed / FILLED_PER_READ) as f64) as u64
}

/// The cost of a pack for a restore, in bytes to be read and decoded: its own, and the equivalent of
/// opening a file, following regions and filling memory.
///
/// A chain of differences ends after [`MAX_DEPTH`] packs by itself, so each counts as so small a part of a
/// whole: a new epoch would not shorten it.
pub(crate) fn restore_cost(footer: &Footer) -> u64 {
    let regions: u64 = footer.deltas.iter().map(|d| d.regions.len() as u64).sum();
    let filled = footer.deltas.iter().map(VariableDelta::covered_bytes);
    let filled = filled.fold(0, u64::saturating_add);
    let frame = |(frame, _): &(u32, _)| footer.frames.get(*frame as usize).map(|frame| frame.len);
    let differences = footer.before.iter().filter_map(frame).sum::<u64>().min(filled);
    let spared = differences - differences / (u64::from(MAX_DEPTH) + 1);
    let follow = (filled - spared) / FILLED_PER_READ + REGION * regions + FILE;
    (footer.len() - spared.min(footer.len())).saturating_add(follow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Steps of a program whose saves are done `lag` checkpoints later; how many were whole.
    fn wholes(growth: Growth, state: u64, changed: u64, steps: u64, lag: u64) -> u64 {
        let mut epoch = Epoch::new(growth);
        let mut wholes = 0;
        let cost = |whole: bool| estimate(if whole { state } else { changed }, 1.0);
        let mut under_way = VecDeque::new();
        for step in 0..steps {
            let vote = Vote { state, changed, ..Vote::default() };
            let decision = decide(&epoch, &[vote], Sequence(step + 2), Step(step));
            epoch.begin(decision, state);
            epoch.captured(decision.sequence, changed);
            wholes += u64::from(decision.whole);
            under_way.push_back(decision);
            if under_way.len() as u64 > lag
                && let Some(done) = under_way.pop_front()
            {
                epoch.committed(done.sequence, cost(done.whole));
            }
        }
        wholes
    }

    #[test]
    fn a_backlog_makes_no_whole_checkpoints() {
        for lag in [0, 1, 5, 15] {
            assert_eq!(wholes(Growth::default(), 32 << 20, 512, 30, lag), 1, "lag {lag}");
            assert_eq!(wholes(Growth::of(1.0), 64 << 20, 512, 200, lag), 1, "lag {lag}");
        }
    }

    #[test]
    fn small_states_are_rarely_written_whole() {
        // 1 kB of 100 kB, 2,000 times; one chunk of 8 MiB, 1,500 times.
        assert!(wholes(Growth::default(), 100_000, 1000, 2000, 1) <= 2);
        assert!(wholes(Growth::default(), 8 << 20, 512, 1500, 1) <= 2);
    }

    #[test]
    fn an_epoch_whose_save_failed_is_over_and_a_late_outcome_changes_nothing() {
        let mut epoch = Epoch::new(Growth::default());
        let vote = [Vote { state: 100, changed: 1, ..Vote::default() }];
        let first = decide(&epoch, &vote, Sequence(2), Step(0));
        epoch.begin(first, 100);
        let second = decide(&epoch, &vote, Sequence(3), Step(1));
        assert!(first.whole && !second.whole);
        epoch.begin(second, 100);
        epoch.failed(Sequence(2));
        let third = decide(&epoch, &vote, Sequence(4), Step(2));
        assert!(third.whole);
        epoch.begin(third, 100);
        // The second one builds on the first and fails after the third has begun.
        epoch.failed(Sequence(3));
        assert!(!decide(&epoch, &vote, Sequence(5), Step(3)).whole);
        epoch.committed(Sequence(3), 1 << 40);
        assert!(!decide(&epoch, &vote, Sequence(5), Step(3)).whole);
    }

    /// Every fourth goes to the shared store. Never more is written there than the state, and with small
    /// changes the packs of the nodes move along instead of a whole checkpoint.
    #[test]
    fn packs_of_nodes_move_along_unless_they_are_more_than_the_state() {
        for (changed, wholes) in [(10, 2), (400, 6)] {
            let (state, mut cadence) = (1000, Cadence::new(4));
            let (mut epoch, mut whole, mut there) = (Epoch::new(Growth::default()), 0, Vec::new());
            for step in 0..20 {
                let (shared, aside) = (cadence.is_due(), epoch.aside());
                let vote = Vote { state, changed, shared, aside, ..Vote::default() };
                let decision = decide(&epoch, &[vote], Sequence(step + 2), Step(step));
                cadence.decided(decision);
                epoch.begin(decision, state);
                let bytes = if decision.whole { state } else { changed };
                epoch.captured(decision.sequence, bytes);
                whole += u64::from(decision.whole);
                if decision.shared {
                    let moved = if decision.whole { state } else { aside + changed };
                    there.push((step, moved <= state, epoch.aside()));
                }
            }
            // The first shared one is always whole: it would bring a whole checkpoint and three deltas.
            assert_eq!(whole, wholes, "{changed}");
            assert_eq!(there, [3, 7, 11, 15, 19].map(|step| (step, true, 0)));
        }
        let mut cadence = Cadence::new(3);
        assert!(!cadence.is_due());
        cadence.lost();
        assert!(cadence.is_due() && Cadence::new(1).is_due());
    }

    proptest! {
        /// Both bounds of the rule, whatever the sizes and however late the outcomes.
        #[test]
        fn restores_and_writes_stay_within_the_rule(
            state in 1u64..1 << 32, share in 0.0f64..1.0, lag in 0u64..16,
        ) {
            let changed = (state as f64 * share) as u64;
            let (growth, steps) = (Growth::default(), 3000u64);
            let count = wholes(growth, state, changed, steps, lag);
            let (whole, delta) = (estimate(state, 1.0), estimate(changed, 1.0));
            let allowed = (whole as f64).max(growth.allowance as f64);
            // No epoch but the last is shorter than the rule lets it be: writes are bounded.
            let full = (allowed / delta as f64).floor() as u64 + 1;
            prop_assert!(count <= steps.div_ceil(full));
            // And none is longer: restores are bounded.
            prop_assert!(count >= steps / (full + 1));
        }
    }
}

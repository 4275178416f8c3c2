//! State that lasts from one checkpoint to the next behind the program.

use crate::array::VariableKey;
use crate::codec::{Chooser, Encoding};
use crate::lineage::{Habit, Record};
use crate::merkle::Tree;
use std::collections::HashMap;

/// The record of this epoch, the tree of each variable, and what was learned about each.
pub(crate) struct Keeper {
    pub(crate) record: Record,
    pub(crate) trees: HashMap<VariableKey, Tree>,
    /// Whether content repeats within whole checkpoints, and whether deltas repeat what is stored:
    /// a field may be constant in large parts although whatever changes in it is new.
    repeats: HashMap<(VariableKey, bool), Habit>,
    /// By which chains which variables are encoded.
    pub(crate) chooser: Chooser,
}

impl Keeper {
    /// Starts with nothing; the record takes at most about `record_limit` bytes.
    pub(crate) fn new(record_limit: u64, encoding: Encoding) -> Self {
        Keeper {
            record: Record::new(record_limit),
            trees: HashMap::new(),
            repeats: HashMap::new(),
            chooser: Chooser::new(encoding),
        }
    }

    /// A new epoch begins: references must not lead out of it.
    pub(crate) fn begin_epoch(&mut self) {
        self.record.clear();
    }

    /// Whether to look for duplicate chunks of a variable this time.
    pub(crate) fn look(&mut self, variable: &VariableKey, whole: bool) -> bool {
        self.repeats.entry((variable.clone(), whole)).or_default().look()
    }

    /// Learns from how many of the looked-up bytes were duplicates.
    pub(crate) fn learn(
        &mut self,
        variable: &VariableKey,
        whole: bool,
        duplicates: u64,
        looked_up: u64,
    ) {
        if let Some(habit) = self.repeats.get_mut(&(variable.clone(), whole))
            && looked_up >= 1 << 16
        {
            habit.observe(duplicates * 100 >= looked_up);
        }
    }

    /// Forgets variables that are not in the checkpoint any more.
    pub(crate) fn retain(&mut self, kept: impl Fn(&VariableKey) -> bool) {
        self.trees.retain(|variable, _| kept(variable));
        self.repeats.retain(|(variable, _), _| kept(variable));
    }
}

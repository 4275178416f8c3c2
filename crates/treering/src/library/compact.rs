//! Compaction as a tool: planned first, carried out afterwards.

use super::{Library, Progress};
use crate::compact::{Bundler, CompactPlan, Compaction};
use crate::error::Result;
use crate::log::named_packs;
use crate::retention::{LOCK, PATIENCE};
use crate::store::lock_patiently;
use std::cell::Cell;
use std::collections::BTreeSet;

impl Library {
    /// Plans a compaction of a run: which files go into which bundles. Takes no lock and writes nothing.
    pub fn plan_compact(&self, run: &str, rule: Compaction) -> Result<CompactPlan> {
        self.refuse_tier(run)?;
        self.log(run)?;
        Bundler::new(self.last.clone(), run).plan(rule)
    }

    /// Puts the small files of closed epochs into bundles. A program may have the run open meanwhile.
    ///
    /// **Waiting**: takes the store's lock, for which it waits up to ten seconds while other tools remove or share packs;
    /// then the error is of kind [`ErrorKind::Busy`](crate::ErrorKind::Busy). **Errors**: a file is removed only after its
    /// bundle is complete, so all checkpoints can be restored after an error or an interruption; the next compaction or
    /// pruning of the run removes what it has left.
    pub fn compact(&self, run: &str, rule: Compaction, progress: Progress) -> Result<CompactPlan> {
        self.refuse_tier(run)?;
        self.log(run)?;
        let _lock = lock_patiently(self.last.as_ref(), LOCK, PATIENCE)?;
        let bundler = Bundler::new(self.last.clone(), run);
        // It is not known what is needed while an entry cannot be read: then what was left stays.
        let tidied = bundler.tidy(&|| named_packs(&self.seen, run), &BTreeSet::new());
        let mut plan = bundler.plan(rule)?;
        if let Err(error) = tidied {
            plan.notes.push(format!("remains of an interrupted compaction stay: {error}"));
        }
        let done = Cell::new(0);
        progress(0, plan.bytes);
        bundler.compact(&plan, &|bytes| {
            done.set(done.get() + bytes);
            progress(done.get().min(plan.bytes), plan.bytes);
        })?;
        progress(plan.bytes, plan.bytes);
        Ok(plan)
    }
}

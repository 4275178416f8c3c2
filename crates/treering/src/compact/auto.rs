//! Compaction behind a program: when, and what becomes of its errors.

use super::{Bundler, Compaction};
use crate::error::Result;
use crate::format::{Manifest, Origin};
use crate::store::Store;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// The most notes that are kept.
const NOTES: usize = 100;

/// Notes of compactions and removals that failed, shared with the program, and the turn of those who do either.
#[derive(Clone, Default)]
pub(crate) struct UpkeepNotes {
    notes: Arc<Mutex<Vec<String>>>,
    turn: Arc<Mutex<()>>,
}

impl UpkeepNotes {
    pub(crate) fn get(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Waits until nobody else changes what is stored.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes the turn without waiting.
    fn try_turn(&self) -> Option<MutexGuard<'_, ()>> {
        match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn add(&self, note: String) {
        let mut notes = self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if notes.len() < NOTES && !notes.contains(&note) {
            notes.push(note);
        }
    }
}

/// Compacts closed epochs of a run when enough files have come together. It belongs to the thread that
/// commits to the last tier, which calls it when nothing waits to be written. An error is a note: the
/// checkpoints are where they were.
pub(crate) struct AutoCompact {
    bundler: Bundler,
    rule: Option<Compaction>,
    notes: UpkeepNotes,
    /// The open epoch, and its files.
    open: Option<Origin>,
    in_open: u64,
    /// The files of closed epochs since the last look.
    closed: u64,
    due: bool,
}

impl AutoCompact {
    /// For a run in its last tier that has this many files from earlier.
    pub(crate) fn new(
        last: Arc<dyn Store>,
        run: &str,
        rule: Option<Compaction>,
        files: u64,
        notes: UpkeepNotes,
    ) -> Self {
        let bundler = Bundler::new(last, run);
        AutoCompact { bundler, rule, notes, open: None, in_open: 0, closed: files, due: false }
    }

    /// A checkpoint has been committed to the last tier.
    pub(crate) fn committed(&mut self, manifest: &Manifest) {
        let Some(rule) = self.rule else { return };
        if self.open.as_ref() != Some(&manifest.epoch) {
            self.closed += std::mem::take(&mut self.in_open);
            self.open = Some(manifest.epoch.clone());
            self.due |= self.closed >= rule.files;
        }
        self.in_open += 1 + manifest.groups.count();
    }

    /// Whether there is something to do.
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Compacts if it is time.
    pub(crate) fn run_if_due(&mut self) {
        let Some(rule) = self.rule.filter(|_| self.due) else { return };
        // Saves do not wait for the removal of old checkpoints; the next look finds that it is still due.
        let notes = self.notes.clone();
        let Some(_turn) = notes.try_turn() else { return };
        // After an error, too, the next try comes when as many files have come together again.
        (self.due, self.closed) = (false, 0);
        let compact = || -> Result<()> {
            let plan = self.bundler.plan(rule)?;
            self.bundler.compact(&plan, &|_| {})
        };
        match catch_unwind(AssertUnwindSafe(compact)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.notes.add(format!("small files were not compacted: {error}")),
            Err(_) => {
                self.notes.add("a compaction ended in an internal error; please report it".into())
            }
        }
    }
}

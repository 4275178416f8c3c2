//! The front door for programs: open a run, hand over arrays, get states back.
//!
//! What the program waits for is in `capture`: hash, compare, copy what changed. Behind it, the
//! `worker` decides what is new, encodes it, writes the pack to the first tier and commits the
//! manifest; with two tiers the `mover` then brings both to the shared store. A save that fails is
//! reported through its [`Save`] and [`Run::failures`]; saves that build on it fail with it, and the
//! next checkpoint starts a new epoch, which needs nothing of what was lost.

mod capture;
pub(crate) mod commit;
mod mover;
pub(crate) mod open;
mod options;
mod reference;
mod save;
mod staging;
mod trees;
mod worker;

pub use options::{Options, Overload};
pub use reference::ReferenceReport;
pub use save::Save;

use crate::array::{Variable, VariableMut};
use crate::compare::Outcome;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Manifest, Origin};
use crate::log::Log;
use crate::restore::{Backwards, Checkpoint};
use crate::store::{Lock, Store};
use capture::Capture;
use reference::Watch;
use save::Failures;
use std::sync::Arc;
use worker::Worker;

/// A run that is open for writing. One process at a time can have it.
pub struct Run {
    options: Options,
    /// All tiers as one, for reading.
    store: Arc<dyn Store>,
    capture: Capture,
    worker: Worker,
    failures: Failures,
    reference: Option<Watch>,
    _lock: Lock,
}

/// What a restore found.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The step of the checkpoint.
    pub step: u64,
    /// What went wrong on the way: damaged copies, or newer checkpoints that could not be used.
    pub notes: Vec<String>,
}

impl Run {
    /// Opens a run for writing, creating it if it is new.
    pub fn open(options: Options) -> Result<Run> {
        options.check()?;
        let reference = options.reference.as_ref().map(Watch::open).transpose()?;
        let mut opened = open::open(&options)?;
        let failures = Failures::default();
        opened.trouble.drain(..).for_each(|(step, error)| failures.add(step, error));
        let worker = Worker::start(&options, &mut opened, failures.clone())?;
        let capture = Capture::new(&options, opened.seed, worker.staging.clone());
        let store = opened.store;
        Ok(Run { store, capture, worker, failures, reference, options, _lock: opened.lock })
    }

    /// Saves the arrays as the state of `step`; returns as soon as what is new has been copied.
    ///
    /// An error here means that nothing was captured: the arguments make no sense. Whether the save
    /// succeeds is asked of the [`Save`], or of [`Run::failures`].
    pub fn checkpoint(&mut self, step: u64, variables: &[Variable]) -> Result<Save> {
        capture::check(variables)?;
        if self.worker.lineage_lost() {
            self.capture.forget();
        }
        if self.options.overload == Overload::Skip && self.capture.is_overloaded(variables) {
            return Ok(Save::skipped(step));
        }
        let save = self.capture.capture(step, variables, &mut self.worker)?;
        self.hold_against_reference(step, variables);
        Ok(save)
    }

    /// What was found at the first checkpoint that differs from the reference run beyond the bounds;
    /// nothing as long as the two agree. See [`Options::reference`].
    pub fn divergence(&self) -> Option<&Outcome> {
        self.reference_report()?.divergence.as_ref()
    }

    /// Checkpoints that were compared with the reference run, and those that were not, with reasons;
    /// nothing without [`Options::reference`].
    pub fn reference_report(&self) -> Option<&ReferenceReport> {
        self.reference.as_ref().map(|watch| &watch.report)
    }

    /// Saves trees that were made elsewhere, and nothing else.
    pub(crate) fn checkpoint_trees(&mut self, step: u64, trees: &[Variable]) -> Result<Save> {
        if self.worker.lineage_lost() {
            self.capture.forget();
        }
        self.capture.capture_as_is(step, trees, &mut self.worker)
    }

    /// A comparison that fails stops neither the program nor the save; the report has the reason.
    fn hold_against_reference(&mut self, step: u64, variables: &[Variable]) {
        let Some(watch) = &mut self.reference else { return };
        let start = std::time::Instant::now();
        watch.checkpoint(step, variables, &self.capture.trees.variables(variables));
        self.capture.blocked += start.elapsed();
    }

    /// Fills the arrays from the newest complete checkpoint, if there is one.
    ///
    /// A checkpoint that turns out to be damaged is noted, and the one before it serves. Later
    /// checkpoints continue the lineage of the one that was restored.
    pub fn restore(&mut self, variables: &mut [VariableMut]) -> Result<Option<Restored>> {
        self.drain();
        let log = Log::read(self.store.clone(), &self.options.run)?;
        match log.sequences.is_empty() {
            true => Ok(None),
            false => self.restore_from(&log, log.newest(), variables),
        }
    }

    /// Fills the arrays from the newest checkpoint of that step.
    ///
    /// Later checkpoints continue from there: they make a branch, and the abandoned one stays.
    pub fn restore_step(&mut self, step: u64, variables: &mut [VariableMut]) -> Result<Restored> {
        self.drain();
        let log = Log::read(self.store.clone(), &self.options.run)?;
        let (manifests, trouble) = log.manifests();
        let Some(manifest) = manifests.into_iter().rev().find(|m| m.step == step) else {
            let missing = format!("run {:?} has no checkpoint of step {step}", self.options.run);
            return Err(trouble.into_iter().next().unwrap_or_else(|| {
                Error::new(ErrorKind::NotFound, missing).hint("`treering ls` lists what there is")
            }));
        };
        let newest_epoch = newest_epoch(&log);
        self.restore_one(manifest, newest_epoch, variables)
    }

    /// The states from the newest checkpoint back to the first, each made ready in advance.
    pub fn backwards(&mut self) -> Result<Backwards> {
        self.drain();
        let log = Log::read(self.store.clone(), &self.options.run)?;
        let newest = log.manifests().0.pop();
        let newest = newest.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("run {:?} has no checkpoint", self.options.run))
        })?;
        Backwards::new(self.store.clone(), &self.options.run, newest.sequence)
    }

    /// Waits until everything is durable; the first failure that was not asked for, if any.
    pub fn finish(mut self) -> Result<()> {
        self.drain();
        match self.failures().into_iter().next() {
            Some((step, error)) => Err(error.at(format!("save of step {step}"))),
            None => Ok(()),
        }
    }

    /// The saves that have failed since the last call: their steps and what went wrong.
    pub fn failures(&mut self) -> Vec<(u64, Error)> {
        self.failures.take()
    }

    /// How long checkpoints have held the program up so far.
    pub fn blocked(&self) -> std::time::Duration {
        self.capture.blocked
    }

    /// Waits for the saves that are under way.
    fn drain(&mut self) {
        self.worker.drain();
        if self.worker.lineage_lost() {
            self.capture.forget();
        }
    }

    fn restore_from(
        &mut self,
        log: &Log,
        newest: u64,
        variables: &mut [VariableMut],
    ) -> Result<Option<Restored>> {
        let mut notes = Vec::new();
        let newest_epoch = newest_epoch(log);
        let mut next = Some(newest);
        while let Some(sequence) = next {
            let before = log.sequences.iter().rev().find(|s| **s < sequence).copied();
            let parent;
            let trouble = match log.manifest(sequence) {
                Ok(None) => {
                    next = before;
                    continue;
                }
                Ok(Some(manifest)) => {
                    parent =
                        manifest.parent.clone().filter(|p| p.run.is_none()).map(|p| p.sequence);
                    let step = manifest.step;
                    match self.restore_one(manifest, newest_epoch.clone(), variables) {
                        Ok(mut restored) => {
                            notes.append(&mut restored.notes);
                            return Ok(Some(Restored { notes, ..restored }));
                        }
                        Err(error) if !may_fall_back(&error) => {
                            return Err(with_notes(error, &notes));
                        }
                        Err(error) => (format!("step {step}"), error),
                    }
                }
                Err(error) => {
                    parent = None;
                    (format!("number {sequence} of the log"), error)
                }
            };
            notes.push(format!("{} cannot be used: {}", trouble.0, trouble.1));
            // The parent is the state before it; without one, the next older of the log.
            next = parent.filter(|p| log.sequences.contains(p)).or(before);
        }
        match notes.is_empty() {
            true => Ok(None),
            false => {
                Err(Error::damaged(format!("no checkpoint can be restored: {}", notes.join("; ")))
                    .hint("`treering verify` tells what is damaged"))
            }
        }
    }

    fn restore_one(
        &mut self,
        manifest: Manifest,
        newest_epoch: Option<Origin>,
        variables: &mut [VariableMut],
    ) -> Result<Restored> {
        // References never leave their epoch, and only the newest is open: going further back
        // starts a new one.
        let goes_on = newest_epoch.as_ref() == Some(&manifest.epoch)
            && manifest.variables.iter().all(|v| v.chunk == self.options.chunk);
        let checkpoint = Checkpoint::load(self.store.clone(), manifest)?;
        let restored = checkpoint.resume_into(variables)?;
        let manifest = checkpoint.manifest();
        let step = manifest.step;
        self.worker.resume(&checkpoint, goes_on, &restored);
        match goes_on {
            true => self.capture.resume(manifest.seed, restored),
            false => self.capture.forget(),
        }
        Ok(Restored { step, notes: checkpoint.notes() })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.worker.drain();
    }
}

/// The epoch of the newest checkpoint that can be read.
fn newest_epoch(log: &Log) -> Option<Origin> {
    let newest_first = log.sequences.iter().rev();
    newest_first.filter_map(|s| log.manifest(*s).ok().flatten()).map(|m| m.epoch).next()
}

/// An error about an older checkpoint says why the newer ones did not serve.
fn with_notes(error: Error, notes: &[String]) -> Error {
    match notes.is_empty() {
        true => error,
        false => Error::new(
            error.kind(),
            format!("{error}; this is about an older checkpoint, because {}", notes.join(", and ")),
        ),
    }
}

/// Whether an older checkpoint may serve instead: not when the caller asked for the wrong thing.
fn may_fall_back(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound | ErrorKind::Io)
}

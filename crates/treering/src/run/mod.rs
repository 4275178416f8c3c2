//! The front door for programs: open a run, hand over arrays, get states back.
//!
//! The program waits for [`capture`](crate::capture): hash, compare, copy what changed. Behind it,
//! [`save`](crate::save) decides what is new, encodes it, writes it to the first tier and moves it on. This
//! is wiring only.

mod options;
mod reference;

pub use options::{Options, Overload};
pub use reference::ReferenceReport;

use crate::array::{Rank, Sequence, Step, Variable, VariableMut};
use crate::capture::{self, Capture, Declared, Staging, state_bytes};
use crate::compact::CompactionNotes;
use crate::compare::{Outcome, matches};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Manifest, Origin};
use crate::lineage::Method;
use crate::log::Log;
use crate::restore::{Backwards, Checkpoint};
use crate::save::{self, Failures, Save, Saver, Vote};
use crate::store::{Lock, Store};
use reference::ReferenceWatch;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A run that is open for writing. One process at a time can have it.
pub struct Run {
    options: Options,
    /// All tiers as one, for reading.
    store: Arc<dyn Store>,
    capture: Capture,
    saver: Saver,
    failures: Failures,
    reference: Option<ReferenceWatch>,
    blocked: Duration,
    notes: Vec<String>,
    /// Whether it was looked for bounds that no variable has.
    bounds_checked: bool,
    compaction: CompactionNotes,
    /// The process that has opened it; a forked child has no threads to save with.
    process: u32,
    _lock: Option<Lock>,
}

/// What a restore found.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The step of the checkpoint.
    pub step: u64,
    /// What went wrong on the way: damaged copies, or newer checkpoints that could not be used.
    pub notes: Vec<String>,
    /// Optional variables that the checkpoint does not have; their arrays were left as they are.
    pub missing: Vec<String>,
}

impl Run {
    /// Opens a run for writing, creating it if it is new.
    pub fn open(options: Options) -> Result<Run> {
        options.check()?;
        let writer = &options.writer;
        let reference = options.reference.as_ref().map(ReferenceWatch::open).transpose()?;
        let mut opened = save::open(&writer.tiers, &writer.run)?;
        let failures = Failures::default();
        for (step, error) in opened.trouble.drain(..) {
            failures.add(step, error, &Default::default());
        }
        let staging = Staging::new(options.staging);
        let compaction = CompactionNotes::default();
        let saver = Saver::start(
            writer.clone(),
            &mut opened,
            staging.clone(),
            failures.clone(),
            compaction.clone(),
        )?;
        Ok(Run {
            capture: Capture::new(options.capture(), opened.seed, staging),
            options,
            store: opened.store,
            saver,
            failures,
            reference,
            blocked: Duration::ZERO,
            notes: opened.notes,
            bounds_checked: false,
            compaction,
            process: std::process::id(),
            _lock: opened.lock,
        })
    }

    /// Saves the arrays as the state of `step`; returns as soon as what is new has been copied.
    ///
    /// An error here means that nothing was captured: the arguments make no sense. Whether the save
    /// succeeds is asked of the [`Save`], or of [`Run::failures`].
    pub fn checkpoint(&mut self, step: u64, variables: &[Variable]) -> Result<Save> {
        self.check_process()?;
        capture::check(variables)?;
        let start = Instant::now();
        let declared = self.capture.declare(variables)?;
        self.note_unused_bounds(variables);
        let save = self.save(step, start, declared, |capture, whole, declared, hand| {
            capture.capture(whole, variables, declared, hand)
        })?;
        if !save.is_skipped() {
            self.hold_against_reference(step, variables);
        }
        Ok(save)
    }

    /// Saves trees that were made elsewhere, and nothing else.
    pub(crate) fn checkpoint_trees(&mut self, step: u64, trees: &[Variable]) -> Result<Save> {
        let declared = Declared::of(trees)?;
        self.save(step, Instant::now(), declared, |capture, whole, declared, hand| {
            Ok(capture.capture_as_is(whole, trees, declared, hand))
        })
    }

    /// Decides on a checkpoint and captures it.
    fn save(
        &mut self,
        step: u64,
        start: Instant,
        declared: Vec<Declared>,
        scan: impl FnOnce(
            &mut Capture,
            bool,
            &[Declared],
            &mut dyn FnMut(capture::StagedBatch),
        ) -> Result<u64>,
    ) -> Result<Save> {
        let state = state_bytes(&declared);
        let mut vote = Vote {
            state,
            changed: self.capture.expected(state),
            whole: self.options.writer.method == Method::Full,
            overloaded: false,
        };
        let staging = self.saver.staging.clone();
        if self.options.overload == Overload::Skip {
            let expected =
                if self.saver.decide(Step(step), vote).whole { state } else { vote.changed };
            vote.overloaded = staging.is_full_for(expected.min(staging.limit()));
        }
        if vote.overloaded {
            return Ok(Save::skipped(Step(step)));
        }
        let turn = staging.begin_save();
        let decision = self.saver.decide(Step(step), vote);
        let hasher = self.capture.hasher();
        let mut capturing = self.saver.begin(decision, vote, declared.clone(), hasher);
        let hand = &mut |batch| capturing.hand(batch);
        let changed = scan(&mut self.capture, decision.whole, &declared, hand)?;
        let blocked = start.elapsed();
        self.blocked += blocked;
        drop(turn);
        Ok(Save::new(Step(step), capturing.end(changed, blocked), changed, blocked))
    }

    /// Notes, at the first checkpoint, bounds whose pattern matches none of its variables: probably a
    /// mistake that would show only when runs are compared. Variables may also come later, so it is no error.
    fn note_unused_bounds(&mut self, variables: &[Variable]) {
        if std::mem::replace(&mut self.bounds_checked, true) {
            return;
        }
        for (pattern, bound) in &self.options.bounds {
            if !variables.iter().any(|v| matches(pattern, &v.description.name)) {
                self.notes.push(format!(
                    "no variable of the first checkpoint matches the bound {bound} of {pattern:?}"
                ));
            }
        }
    }

    /// What a person should know: a file system without locks, checkpoints that a node gave up, bounds
    /// that no variable of the first checkpoint has.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Compactions of small files that failed; see [`Options::compact`]. No checkpoint is affected.
    pub fn compaction_notes(&self) -> Vec<String> {
        self.compaction.get()
    }

    fn check_process(&self) -> Result<()> {
        match std::process::id() == self.process {
            true => Ok(()),
            false => {
                Err(Error::usage("this process was forked from the one that has the run open")
                    .hint("only the process that opened a run can write to it"))
            }
        }
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

    /// A comparison that fails stops neither the program nor the save; the report has the reason.
    fn hold_against_reference(&mut self, step: u64, variables: &[Variable]) {
        let Some(watch) = &mut self.reference else { return };
        let start = std::time::Instant::now();
        watch.checkpoint(step, variables, &self.capture.trees.variables(variables));
        self.blocked += start.elapsed();
    }

    /// Fills the arrays from the newest complete checkpoint, if there is one.
    ///
    /// A checkpoint that turns out to be damaged is noted, and the one before it serves. An error of access
    /// (no permission, too many open files, a failing disk) is no reason for that: it is returned. Later
    /// checkpoints continue the lineage of the one that was restored. After an error the content of the
    /// arrays is unspecified.
    pub fn restore(&mut self, variables: &mut [VariableMut]) -> Result<Option<Restored>> {
        let log = self.read_log()?;
        let newest_epoch = log.newest_epoch();
        let mut notes = Vec::new();
        let mut next = log.ancestor(log.newest());
        while let Some(sequence) = next {
            let (what, error) = match log.manifest(sequence) {
                Ok(Some(manifest)) => {
                    next = log.before(sequence, Some(&manifest)).or_else(|| log.older(sequence));
                    let step = manifest.step;
                    match self.restore_one(manifest, newest_epoch.as_ref(), variables) {
                        Ok(mut restored) => {
                            notes.append(&mut restored.notes);
                            return Ok(Some(Restored { notes, ..restored }));
                        }
                        Err(error) => (format!("step {step}"), error),
                    }
                }
                Ok(None) => {
                    next = log.older(sequence);
                    continue;
                }
                Err(error) => {
                    next = log.older(sequence);
                    (format!("number {sequence} of the log"), error)
                }
            };
            if !may_fall_back(&error) {
                return Err(with_notes(error, &notes));
            }
            notes.push(format!("{what} cannot be used: {error}"));
        }
        match notes.is_empty() {
            true => Ok(None),
            false => {
                Err(Error::damaged(format!("no checkpoint can be restored: {}", notes.join("; ")))
                    .hint("`treering verify` reports what is damaged"))
            }
        }
    }

    /// Fills the arrays from the newest checkpoint of that step.
    ///
    /// Later checkpoints continue from there: they make a branch, and the abandoned one stays.
    pub fn restore_step(&mut self, step: u64, variables: &mut [VariableMut]) -> Result<Restored> {
        let log = self.read_log()?;
        let mut trouble = None;
        for sequence in log.sequences.iter().rev() {
            match log.manifest(*sequence) {
                Ok(Some(manifest)) if manifest.step == Step(step) => {
                    return self.restore_one(manifest, log.newest_epoch().as_ref(), variables);
                }
                Ok(_) => {}
                Err(_) if log.is_surely_no_manifest(*sequence) => {}
                Err(error) => drop(trouble.get_or_insert(error)),
            }
        }
        let run = &self.options.writer.run;
        let missing = format!("run {run:?} has no checkpoint of step {step}");
        Err(trouble.unwrap_or_else(|| {
            Error::new(ErrorKind::NotFound, missing).hint("`treering ls` lists what there is")
        }))
    }

    /// The states from the newest checkpoint back to the first, each made ready in advance. A state that
    /// cannot be read is an error in its place; the next older one follows.
    pub fn backwards(&mut self) -> Result<Backwards> {
        let log = self.read_log()?;
        let run = &self.options.writer.run;
        let newest: Option<Sequence> = log.ancestor(log.newest());
        let newest = newest.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("run {run:?} has no checkpoint"))
        })?;
        Backwards::new(self.store.clone(), run, newest)
    }

    /// Waits until everything is durable, trying once more what could not be moved to the last tier. The
    /// first failure that no [`Save`] and no [`Run::failures`] has told, if any.
    pub fn finish(self) -> Result<()> {
        self.check_process()?;
        self.saver.drain();
        match self.failures.take_untold().into_iter().next() {
            Some((step, error)) => Err(error.at(format!("save of step {step}"))),
            None => Ok(()),
        }
    }

    /// The saves that have failed since the last call: their steps and what went wrong.
    pub fn failures(&mut self) -> Vec<(u64, Error)> {
        self.failures.take().into_iter().map(|(step, error)| (step.0, error)).collect()
    }

    /// How long checkpoints have held the program up so far.
    pub fn blocked(&self) -> Duration {
        self.blocked
    }

    /// The log, when nothing is under way.
    fn read_log(&self) -> Result<Log> {
        self.check_process()?;
        self.saver.drain();
        Log::read(self.store.clone(), &self.options.writer.run)
    }

    fn restore_one(
        &mut self,
        manifest: Manifest,
        newest_epoch: Option<&Origin>,
        variables: &mut [VariableMut],
    ) -> Result<Restored> {
        let checkpoint = Checkpoint::load(self.store.clone(), manifest)?;
        let chunk = self.options.writer.chunk;
        // References never leave their epoch, and only the newest is open: going further back starts a
        // new one. So does a state of several ranks.
        let goes_on = newest_epoch == Some(&checkpoint.manifest().epoch)
            && checkpoint.packs.len() == 1
            && checkpoint.entries().iter().all(|v| v.chunk == chunk && v.rank == Rank(0));
        let restored = checkpoint.resume_into(variables)?;
        let absent = variables.iter().zip(&restored).filter(|(_, restored)| restored.is_none());
        let missing = absent.map(|(variable, _)| variable.name().to_string()).collect();
        let restored: Vec<_> = restored.into_iter().flatten().collect();
        self.saver.resume(&checkpoint, goes_on.then_some(&restored));
        match goes_on {
            true => self.capture.resume(checkpoint.manifest().seed, restored),
            false => self.capture.forget(),
        }
        Ok(Restored { step: checkpoint.step(), notes: checkpoint.notes(), missing })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        match self.check_process() {
            Ok(()) => self.saver.drain(),
            Err(_) => self.saver.abandon(),
        }
    }
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

/// Whether an older checkpoint may serve instead: not when the caller asked for the wrong thing, nor when
/// this one could be read if the operating system let us.
fn may_fall_back(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    /// A capture that fails between its begin and its end costs that save, and is not taken for the next.
    #[test]
    fn a_capture_that_fails_is_a_failed_save_and_the_next_one_is_right() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
        let mut data = vec![1u8; 100_000];
        run.checkpoint(0, &[Variable::new("x", &data)]).unwrap().durable().unwrap();
        for _ in 0..3 {
            data[7] += 1;
            let declared = Declared::of(&[Variable::new("x", &data)]).unwrap();
            let scan = |_: &mut Capture, _, _: &[Declared], _: &mut dyn FnMut(_)| {
                Err(Error::new(ErrorKind::Limit, "out of memory"))
            };
            assert!(run.save(1, Instant::now(), declared, scan).is_err());
        }
        data[8] += 1;
        run.saver.drain();
        run.checkpoint(2, &[Variable::new("x", &data)]).unwrap().durable().unwrap();
        assert_eq!(run.failures().iter().map(|(step, _)| *step).collect::<Vec<_>>(), [1, 1, 1]);
        run.finish().unwrap();
        let mut back = vec![0u8; data.len()];
        let mut run = Run::open(Options::in_store(store, "r")).unwrap();
        let restored = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
        assert!(restored.step == 2 && back == data);
    }
}

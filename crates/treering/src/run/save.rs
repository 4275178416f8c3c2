//! The two moments of a save that a program can wait for, and the list of what failed.

use crate::error::{Error, Result};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

#[derive(Clone, Debug)]
enum Phase {
    UnderWay,
    Staged,
    Durable,
    /// What went wrong, and whether it had been staged before.
    Failed(Error, bool),
}

/// What the worker tells and the program waits for.
#[derive(Clone)]
pub(super) struct Progress(Arc<(Mutex<Phase>, Condvar)>);

impl Progress {
    pub(super) fn new() -> Self {
        Progress(Arc::new((Mutex::new(Phase::UnderWay), Condvar::new())))
    }

    pub(super) fn staged(&self) {
        self.set(Phase::Staged);
    }

    pub(super) fn durable(&self) {
        self.set(Phase::Durable);
    }

    pub(super) fn failed(&self, error: Error) {
        let staged = matches!(*held(&self.0.0), Phase::Staged);
        self.set(Phase::Failed(error, staged));
    }

    fn set(&self, phase: Phase) {
        *held(&self.0.0) = phase;
        self.0.1.notify_all();
    }

    fn wait(&self, reached: impl Fn(&Phase) -> bool) -> Result<()> {
        let mut phase = held(&self.0.0);
        loop {
            match &*phase {
                now if reached(now) => return Ok(()),
                Phase::Failed(error, _) => return Err(error.clone()),
                _ => {}
            }
            phase = match self.0.1.wait(phase) {
                Ok(phase) => phase,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A checkpoint on its way to the store.
pub struct Save {
    step: u64,
    progress: Option<Progress>,
    changed: u64,
    blocked: Duration,
}

impl Save {
    pub(super) fn new(step: u64, progress: Progress, changed: u64, blocked: Duration) -> Self {
        Save { step, progress: Some(progress), changed, blocked }
    }

    pub(super) fn skipped(step: u64) -> Self {
        Save { step, progress: None, changed: 0, blocked: Duration::ZERO }
    }

    /// The step that was handed over.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Whether it was left out because the staging memory was full; see [`super::Overload`].
    pub fn is_skipped(&self) -> bool {
        self.progress.is_none()
    }

    /// How many bytes had changed and were copied.
    pub fn changed_bytes(&self) -> u64 {
        self.changed
    }

    /// How long the program was held up.
    pub fn blocked(&self) -> Duration {
        self.blocked
    }

    /// Waits until it is complete in the first tier: it survives the process.
    pub fn staged(&self) -> Result<()> {
        self.wait(|phase| matches!(phase, Phase::Staged | Phase::Durable | Phase::Failed(_, true)))
    }

    /// Waits until it is complete in the shared store: it survives the node.
    pub fn durable(&self) -> Result<()> {
        self.wait(|phase| matches!(phase, Phase::Durable))
    }

    fn wait(&self, reached: impl Fn(&Phase) -> bool) -> Result<()> {
        match &self.progress {
            Some(progress) => progress.wait(reached),
            None => Err(Error::usage(format!("the checkpoint of step {} was skipped", self.step))),
        }
    }
}

/// The saves that failed and that the program has not heard of yet.
#[derive(Clone, Default)]
pub(super) struct Failures(Arc<Mutex<Vec<(u64, Error)>>>);

impl Failures {
    pub(super) fn add(&self, step: u64, error: Error) {
        held(&self.0).push((step, error));
    }

    pub(super) fn take(&self) -> Vec<(u64, Error)> {
        std::mem::take(&mut *held(&self.0))
    }
}

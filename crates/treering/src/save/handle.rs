//! The handle of a save that a program can wait for, and the list of saves that failed.

use super::publish::overtaken;
use super::watch::DeathWatch;
use crate::array::{Sequence, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{LogEntry, Names, WriterId};
use crate::store::{Store, read_small};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, Default)]
struct SaveState {
    /// The tiers in which it is complete.
    tiers: usize,
    durable: bool,
    /// The newest error, until the next tier is reached after all.
    error: Option<Error>,
}

/// The progress of a save, shared by the threads that make it and the program that waits.
#[derive(Clone, Default)]
pub(crate) struct SaveProgress {
    state: Arc<(Mutex<SaveState>, Condvar)>,
    /// Whether the program has been told of the error.
    told: Arc<AtomicBool>,
}

impl SaveProgress {
    /// It is complete in one more tier.
    pub(crate) fn reached_tier(&self) {
        self.set(|state| (state.tiers, state.error) = (state.tiers + 1, None));
    }

    /// It is complete in the last tier.
    pub(crate) fn durable(&self) {
        self.set(|state| (state.durable, state.error) = (true, None));
    }

    /// Whether it is known to be in the last tier.
    pub(crate) fn is_durable(&self) -> bool {
        held(&self.state.0).durable
    }

    /// Whether its failure has been reported.
    pub(crate) fn has_failed(&self) -> bool {
        held(&self.state.0).error.is_some()
    }

    pub(crate) fn failed(&self, error: Error) {
        self.set(|state| state.error = Some(error));
    }

    /// Waits for the part of this rank's group. If a rank of the group dies, it fails.
    pub(crate) fn wait_for_part(&self, watch: &DeathWatch) -> Result<()> {
        loop {
            match self.wait_for(LOOK, |state| state.tiers > 0 || state.durable) {
                Some(done) => return done,
                None => drop(watch.look()),
            }
        }
    }

    fn set(&self, change: impl FnOnce(&mut SaveState)) {
        change(&mut held(&self.state.0));
        self.state.1.notify_all();
    }

    /// Waits for some time; nothing if that did not suffice.
    fn wait_for(&self, time: Duration, reached: impl Fn(&SaveState) -> bool) -> Option<Result<()>> {
        let ready = |state: &SaveState| reached(state) || state.error.is_some();
        let waited =
            self.state.1.wait_timeout_while(held(&self.state.0), time, |state| !ready(state));
        let (state, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        let done = ready(&state);
        drop(state);
        done.then(|| self.wait(reached))
    }

    fn wait(&self, reached: impl Fn(&SaveState) -> bool) -> Result<()> {
        let ready = |state: &SaveState| reached(state) || state.error.is_some();
        let state = self.state.1.wait_while(held(&self.state.0), |state| !ready(state));
        let state = state.unwrap_or_else(|poisoned| poisoned.into_inner());
        match &state.error {
            Some(error) if !reached(&state) => {
                self.told.store(true, Ordering::SeqCst);
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }
}

/// A panic of another thread leaves the value whole: every change is one assignment.
pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The manifest of a checkpoint of many ranks, which any of them may write.
pub(crate) struct Awaited {
    store: Arc<dyn Store>,
    key: String,
    writer: WriterId,
    limit: Duration,
    watch: DeathWatch,
}

/// The time between two looks at the other ranks.
const LOOK: Duration = Duration::from_millis(50);

impl Awaited {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        run: &str,
        writer: WriterId,
        sequence: Sequence,
        limit: Duration,
        watch: DeathWatch,
    ) -> Awaited {
        Awaited { store, key: Names::new(run).entry(sequence), writer, limit, watch }
    }

    /// Looks for the manifest less and less often; votes of the ranks may tell earlier.
    fn wait(&self, progress: &SaveProgress) -> Result<()> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            if let Some(done) = progress.wait_for(pause, |state| state.durable) {
                return done;
            }
            // Whoever has died may have completed it before; so the look at the store comes second.
            let death = self.watch.look();
            match self.store.open(&self.key).and_then(|blob| read_small(blob.as_ref())) {
                Ok(bytes) => match LogEntry::parse(&bytes)? {
                    LogEntry::Manifest(found) if found.writer == self.writer => progress.durable(),
                    LogEntry::Mark(mark) if mark.writer == self.writer => {
                        return Err(Error::new(ErrorKind::Lost, "this checkpoint was given up"));
                    }
                    // Somebody else has the number, whatever it holds.
                    _ => return Err(overtaken()),
                },
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Err(_) if death.is_some() => {
                    let hint = "Run::go_on_with tells what has become of this checkpoint";
                    return death.map_or(Ok(()), |death| Err(death.hint(hint)));
                }
                Err(_) if start.elapsed() > self.limit => {
                    let limit = self.limit;
                    let what = format!("not all ranks have written their part within {limit:?}");
                    return Err(Error::new(ErrorKind::Late, what));
                }
                Err(_) => {}
            }
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }
}

/// The place that a checkpoint is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The memory of ranks: it survives the death of some ranks, and is lost with the program.
    Memory,
    /// The stores of the nodes: it survives the program, and is lost with any of the nodes.
    Node,
    /// The shared store: it survives everything that the shared store does.
    Shared,
}

/// A checkpoint on its way to the store.
pub struct Save {
    step: Step,
    level: Level,
    halts: bool,
    progress: Option<SaveProgress>,
    /// With several ranks, its manifest, and whoever has a part in it.
    awaited: Option<Awaited>,
    changed: u64,
    blocked: Duration,
}

impl Save {
    pub(crate) fn new(step: Step, progress: SaveProgress, changed: u64, blocked: Duration) -> Self {
        let level = Level::Shared;
        let progress = Some(progress);
        Save { step, level, halts: false, progress, awaited: None, changed, blocked }
    }

    pub(crate) fn skipped(step: Step) -> Self {
        let (level, blocked) = (Level::Shared, Duration::ZERO);
        Save { step, level, halts: false, progress: None, awaited: None, changed: 0, blocked }
    }

    /// The step that was handed over.
    pub fn step(&self) -> u64 {
        self.step.0
    }

    /// Whether it was left out because the staging memory was full; see [`crate::Overload`].
    pub fn is_skipped(&self) -> bool {
        self.progress.is_none()
    }

    /// The bytes that had changed and were copied.
    pub fn changed_bytes(&self) -> u64 {
        self.changed
    }

    /// The time for which the program was held up.
    pub fn blocked(&self) -> Duration {
        self.blocked
    }

    /// The place that it is meant for; see [`Options::shared_every`](crate::Options::shared_every).
    pub fn level(&self) -> Level {
        self.level
    }

    /// Waits until it is complete in the first tier: it survives the process. With several ranks, this rank's group has
    /// done its part.
    pub fn staged(&self) -> Result<()> {
        if let (Some(awaited), Some(progress)) = (&self.awaited, &self.progress) {
            return progress.wait_for_part(&awaited.watch);
        }
        self.wait(|state| state.tiers > 0 || state.durable)
    }

    /// Waits until it is complete in the last tier: it survives the node. An error says why it is not
    /// there yet; a checkpoint that stays in a nearer tier is tried again at the next save and in
    /// [`Run::finish`](crate::Run::finish). With several ranks, a death ends the waiting: the error is of kind
    /// [`ErrorKind::Dead`], and [`Run::go_on_with`](crate::Run::go_on_with) tells what has become of the checkpoint.
    ///
    /// A checkpoint that is meant for the nodes only ([`Save::level`]) is never there: this is an error of kind
    /// [`ErrorKind::Usage`] then, at once.
    pub fn durable(&self) -> Result<()> {
        if self.level == Level::Node {
            let what = format!("the checkpoint of step {} stays on the nodes", self.step);
            return Err(Error::usage(what).hint(
                "ask Save::level, save with Run::checkpoint_shared, or wait with Save::staged",
            ));
        }
        match (&self.awaited, &self.progress) {
            (Some(awaited), Some(progress)) => awaited.wait(progress),
            _ => self.wait(|state| state.durable),
        }
    }

    /// Whether somebody has asked the program to stop after this checkpoint (`treering halt`), which goes to the shared
    /// store; the same on all ranks. The program does so by calling [`Run::finish`](crate::Run::finish) and ending.
    pub fn halts(&self) -> bool {
        self.halts
    }

    pub(crate) fn at(mut self, level: Level, halts: bool) -> Self {
        (self.level, self.halts) = (level, halts);
        self
    }

    pub(crate) fn awaiting(mut self, awaited: Option<Awaited>) -> Self {
        self.awaited = awaited;
        self
    }

    fn wait(&self, reached: impl Fn(&SaveState) -> bool) -> Result<()> {
        match &self.progress {
            Some(progress) => progress.wait(reached),
            None => Err(Error::usage(format!("the checkpoint of step {} was skipped", self.step))),
        }
    }
}

/// The saves that failed and that the program has not heard of yet.
#[derive(Clone, Default)]
pub(crate) struct Failures(Arc<Mutex<Vec<(Step, Error, SaveProgress)>>>);

impl Failures {
    /// Enters the failure of a save.
    pub(crate) fn add(&self, step: Step, error: Error, progress: &SaveProgress) {
        held(&self.0).push((step, error, progress.clone()));
    }

    /// Takes everything that has failed and did not come right after all.
    pub(crate) fn take(&self) -> Vec<(Step, Error)> {
        let all = std::mem::take(&mut *held(&self.0));
        let open = all.into_iter().filter(|(.., progress)| !held(&progress.state.0).durable);
        open.map(|(step, error, _)| (step, error)).collect()
    }

    /// The same, without what a [`Save`] has told the program.
    pub(crate) fn take_untold(&self) -> Vec<(Step, Error)> {
        held(&self.0).retain(|(.., progress)| !progress.told.load(Ordering::SeqCst));
        self.take()
    }
}

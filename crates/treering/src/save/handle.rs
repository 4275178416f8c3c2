//! The handle of a save that a program can wait for, and the list of saves that failed.

use super::publish::overtaken;
use super::watch::DeathWatch;
use crate::array::{Sequence, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{LogEntry, Names, WriterId};
use crate::store::{Store, read_small};
use crate::waiting::{Inquiry, WaitNotice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, Default)]
struct SaveState {
    /// The tiers in which it is complete.
    tiers: usize,
    durable: bool,
    /// The newest error, until the next tier is reached after all.
    error: Option<Error>,
}

/// Called when a save is in the last tier.
pub(crate) type SaveBell = Box<dyn FnOnce() + Send>;

/// The progress of a save, shared by the threads that make it and the program that waits.
#[derive(Clone, Default)]
pub(crate) struct SaveProgress {
    state: Arc<(Mutex<SaveState>, Condvar)>,
    /// Whether the program has been told of the error.
    told: Arc<AtomicBool>,
    /// Called when it is in the last tier.
    bell: Arc<Mutex<Option<SaveBell>>>,
}

impl SaveProgress {
    /// It is complete in one more tier.
    pub(crate) fn reached_tier(&self) {
        self.set(|state| (state.tiers, state.error) = (state.tiers + 1, None));
    }

    /// It is complete in the last tier.
    pub(crate) fn durable(&self) {
        self.set(|state| (state.durable, state.error) = (true, None));
        self.ring();
    }

    /// Calls a function as soon as it is in the last tier.
    pub(crate) fn when_durable(&self, bell: SaveBell) {
        *held(&self.bell) = Some(bell);
        if self.is_durable() {
            self.ring();
        }
    }

    fn ring(&self) {
        let bell = held(&self.bell).take();
        bell.into_iter().for_each(|bell| bell());
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

    /// Waits for the part of this rank's group, and reports that it takes long. If a rank of the group dies, it fails.
    pub(crate) fn wait_for_part(&self, watch: &DeathWatch, notice: &WaitNotice) -> Result<()> {
        loop {
            match self.wait_for(LOOK, |state| state.tiers > 0 || state.durable) {
                Some(done) => return done,
                None => drop(watch.look()),
            }
            notice.look();
        }
    }

    /// Waits for some time as [`SaveProgress::wait_for`] does, and reports that it takes long.
    fn wait_and_tell(
        &self,
        time: Duration,
        notice: Option<&WaitNotice>,
        reached: impl Fn(&SaveState) -> bool,
    ) -> Option<Result<()>> {
        let Some(notice) = notice else { return self.wait_for(time, reached) };
        let start = Instant::now();
        loop {
            let left = time.saturating_sub(start.elapsed());
            let done = self.wait_for(notice.pause().min(left), &reached);
            if done.is_some() || left.is_zero() {
                return done;
            }
            notice.look();
        }
    }

    fn set(&self, change: impl FnOnce(&mut SaveState)) {
        change(&mut held(&self.state.0));
        self.state.1.notify_all();
    }

    /// Waits for some time; nothing if that did not suffice.
    fn wait_for(&self, time: Duration, reached: impl Fn(&SaveState) -> bool) -> Option<Result<()>> {
        let open = |state: &mut SaveState| !reached(state) && state.error.is_none();
        let waited = self.state.1.wait_timeout_while(held(&self.state.0), time, open);
        let (state, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        match &state.error {
            _ if reached(&state) => Some(Ok(())),
            Some(error) => {
                self.told.store(true, Ordering::SeqCst);
                Some(Err(error.clone()))
            }
            None => None,
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
    /// Looks for it, in a store that may hang.
    inquiry: Mutex<Inquiry<Result<bool>>>,
}

/// The time between two looks at the other ranks, and the longest one for a look at the store.
const LOOK: Duration = Duration::from_millis(50);

/// The longest time for the last look at the store, before a checkpoint counts as incomplete.
const LAST_LOOK: Duration = Duration::from_secs(5);

impl Awaited {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        run: &str,
        writer: WriterId,
        sequence: Sequence,
        limit: Duration,
        watch: DeathWatch,
    ) -> Awaited {
        let inquiry = Mutex::default();
        Awaited { store, key: Names::new(run).entry(sequence), writer, limit, watch, inquiry }
    }

    /// Looks for the manifest less and less often; votes of the ranks may tell earlier. False if the time is over.
    fn wait(
        &self,
        progress: &SaveProgress,
        place: WaitsIn,
        time: Duration,
        notice: Option<&WaitNotice>,
    ) -> Result<bool> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            let left = time.saturating_sub(start.elapsed());
            if let Some(done) = progress.wait_for(pause.min(left), |state| state.durable) {
                return done.map(|()| true);
            }
            // A rank that has died may have completed it before; so the look at the store comes second, and does not take
            // the answer to an earlier one.
            let death = match place {
                WaitsIn::Program => self.watch.look(),
                WaitsIn::Thread => None,
            };
            let late = start.elapsed() > self.limit;
            if self.look(progress, death.is_some() || late)? {
                return Ok(true);
            }
            if let Some(death) = death {
                let hint = "Run::go_on_with tells what has become of this checkpoint";
                return Err(death.hint(hint));
            }
            if late {
                let limit = self.limit;
                let what = format!("not all ranks have written their part within {limit:?}");
                return Err(Error::new(ErrorKind::Late, what));
            }
            if left.is_zero() {
                return Ok(false);
            }
            notice.into_iter().for_each(WaitNotice::look);
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Whether the manifest is there, as far as the store says so in time; for the last time it gets more of that, and is
    /// asked anew.
    fn look(&self, progress: &SaveProgress, last: bool) -> Result<bool> {
        let (store, key, writer) = (self.store.clone(), self.key.clone(), self.writer);
        let look = move || is_there(store.as_ref(), &key, writer);
        let mut inquiry = held(&self.inquiry);
        let there = match last {
            true => inquiry.ask_afresh(LAST_LOOK, look),
            false => inquiry.ask(LOOK, look),
        };
        let there = there.unwrap_or(Ok(false))?;
        if there {
            progress.durable();
        }
        Ok(there)
    }
}

/// Whether the manifest of a writer has the number that was meant for it.
fn is_there(store: &dyn Store, key: &str, writer: WriterId) -> Result<bool> {
    match store.open(key).and_then(|blob| read_small(blob.as_ref())) {
        Ok(bytes) => match LogEntry::parse(&bytes)? {
            LogEntry::Manifest(found) if found.writer == writer => Ok(true),
            LogEntry::Mark(mark) if mark.writer == writer => {
                Err(Error::new(ErrorKind::Lost, "this checkpoint was given up"))
            }
            // Somebody else has the number, whatever it holds.
            _ => Err(overtaken()),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Destination of a checkpoint.
///
/// ```
/// use treering::{Level, Options, Run, Variable};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let mut run = Run::open(Options::directory(&store, "rod"))?;
/// let save = run.checkpoint(0, &[Variable::new("heat", &[1.0f64; 100])])?;
/// assert_eq!(save.level(), Level::Shared); // `Level::Node` with `Options::shared_every`
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The memory of ranks: it survives the death of some ranks, and is lost with the program.
    Memory,
    /// The stores of the nodes: it survives the program, and is lost with any of the nodes.
    Node,
    /// The shared store: it survives everything that the shared store does.
    Shared,
}

/// The waiting thread: only the program's thread may ask a communicator for deaths.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitsIn {
    Program,
    Thread,
}

/// Events that can be waited for, in any thread.
#[derive(Clone)]
struct Waited {
    step: Step,
    level: Level,
    progress: Option<SaveProgress>,
    /// With several ranks, its manifest, and whoever has a part in it.
    awaited: Option<Arc<Awaited>>,
}

impl Waited {
    /// Waits until it is complete in the last tier; false if the time is over.
    fn durable(&self, place: WaitsIn, time: Duration) -> Result<bool> {
        if self.level == Level::Node {
            let what = format!("the checkpoint of step {} stays on the nodes", self.step);
            return Err(Error::usage(what).hint(
                "ask Save::level, save with Run::checkpoint_shared, or wait with Save::staged",
            ));
        }
        let progress = self.progress()?;
        // A wait without a limit is reported; other threads, and calls with a limit, have ways of their own.
        let notice =
            (place == WaitsIn::Program && time == FOR_EVER).then(|| self.notice("durable"));
        match &self.awaited {
            Some(awaited) => awaited.wait(progress, place, time, notice.as_ref()),
            None => {
                let durable = |state: &SaveState| state.durable;
                let done = progress.wait_and_tell(time, notice.as_ref(), durable);
                done.map_or(Ok(false), |done| done.map(|()| true))
            }
        }
    }

    fn notice(&self, what: &str) -> WaitNotice {
        let until = format!("the checkpoint of step {} is {what}", self.step);
        WaitNotice::new("the program".to_string(), until)
    }

    /// With several ranks, whether somebody has completed it. A failure is not told here: it stays for who asks for it.
    fn is_found(&self, progress: &SaveProgress) -> bool {
        let open = self.level != Level::Node && !progress.has_failed();
        let awaited = self.awaited.as_ref().filter(|_| open);
        awaited.is_some_and(|awaited| awaited.look(progress, false).unwrap_or(false))
    }

    fn progress(&self) -> Result<&SaveProgress> {
        self.progress.as_ref().ok_or_else(|| {
            Error::usage(format!("the checkpoint of step {} was skipped", self.step))
        })
    }
}

/// Longer than anybody waits, and short enough for the clocks of all systems.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The result of a thread that waits for a save in the place of a future.
#[derive(Default)]
struct Found {
    outcome: Option<Result<()>>,
    waker: Option<Waker>,
}

/// A checkpoint on its way to the store.
///
/// It is written whether or not the program waits. A program that needs to know can wait ([`staged`](Save::staged),
/// [`durable`](Save::durable), [`wait_timeout`](Save::wait_timeout)), ask ([`is_durable`](Save::is_durable)),
/// register a callback ([`on_durable`](Save::on_durable)), or await it: a save is a future, whose output is that of
/// `durable`, and which needs no particular runtime. Dropping it does not stop the save.
///
/// ```
/// use std::time::Duration;
/// use treering::{Options, Run, Variable};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let mut run = Run::open(Options::directory(&store, "rod"))?;
/// let save = run.checkpoint(0, &[Variable::new("heat", &[1.0f64; 100])])?;
/// save.on_durable(|outcome| println!("step 0: {outcome:?}"))?;
/// while !save.wait_timeout(Duration::from_secs(10))? {
///     eprintln!("the file system is slow");
/// }
/// assert!(save.is_durable());
/// # Ok::<(), treering::Error>(())
/// ```
pub struct Save {
    waited: Waited,
    halts: bool,
    changed: u64,
    blocked: Duration,
    /// Since it was first polled.
    found: Option<Arc<Mutex<Found>>>,
}

impl Save {
    pub(crate) fn new(step: Step, progress: SaveProgress, changed: u64, blocked: Duration) -> Self {
        Save { changed, blocked, ..Save::of(step, Some(progress)) }
    }

    pub(crate) fn skipped(step: Step) -> Self {
        Save::of(step, None)
    }

    fn of(step: Step, progress: Option<SaveProgress>) -> Self {
        let waited = Waited { step, level: Level::Shared, progress, awaited: None };
        Save { waited, halts: false, changed: 0, blocked: Duration::ZERO, found: None }
    }

    /// The step that was given to [`Run::checkpoint`](crate::Run::checkpoint).
    pub fn step(&self) -> u64 {
        self.waited.step.0
    }

    /// Whether it was skipped because the staging memory was full; see [`crate::Overload`].
    pub fn is_skipped(&self) -> bool {
        self.waited.progress.is_none()
    }

    /// Number of bytes that had changed and were copied.
    pub fn changed_bytes(&self) -> u64 {
        self.changed
    }

    /// Time for which the program was blocked.
    pub fn blocked(&self) -> Duration {
        self.blocked
    }

    /// Destination; see [`Options::shared_every`](crate::Options::shared_every).
    pub fn level(&self) -> Level {
        self.waited.level
    }

    /// Waits until the checkpoint is complete in the first tier: it survives the process. With several ranks, this rank's
    /// group has done its part.
    ///
    /// The wait has no time limit, with several ranks neither. When a minute has passed, a notice on standard error reports
    /// it, then each time after twice as long. **Errors**: [`ErrorKind::Usage`] for a checkpoint that was skipped, or the
    /// reason for which the save failed; with several ranks, the death of a rank of this group fails it.
    pub fn staged(&self) -> Result<()> {
        let progress = self.waited.progress()?;
        let notice = self.waited.notice("complete in the first tier");
        match &self.waited.awaited {
            Some(awaited) => progress.wait_for_part(&awaited.watch, &notice),
            None => loop {
                let staged = |state: &SaveState| state.tiers > 0 || state.durable;
                if let Some(done) = progress.wait_and_tell(FOR_EVER, Some(&notice), staged) {
                    return done;
                }
            },
        }
    }

    /// Waits until the checkpoint is complete in the last tier: it survives the node. An error gives the reason why it is
    /// not there yet; a checkpoint that stays in a nearer tier is tried again at the next save and in
    /// [`Run::finish`](crate::Run::finish).
    ///
    /// **Waiting**: with one rank without a time limit. With several ranks, the error after
    /// [`Options::patience`](crate::Options::patience), and up to five seconds more for the store, is of kind
    /// [`ErrorKind::Late`]; the save goes on, and can be waited for again. A death ends the wait, too: the error is of kind [`ErrorKind::Dead`], and
    /// [`Run::go_on_with`](crate::Run::go_on_with) decides the fate of the checkpoint. When a minute has passed, a notice on
    /// standard error reports the wait, then each time after twice as long.
    ///
    /// A checkpoint that is meant for the nodes only ([`Save::level`]), or was skipped, never reaches the last tier: the
    /// error is of kind [`ErrorKind::Usage`], at once.
    pub fn durable(&self) -> Result<()> {
        self.waited.durable(WaitsIn::Program, FOR_EVER).map(drop)
    }

    /// Waits as [`durable`](Save::durable) does, for at most `time`, and without notices. Returns `false` if the checkpoint
    /// is not in the last tier by then. Nothing is given up; it can be waited for again.
    pub fn wait_timeout(&self, time: Duration) -> Result<bool> {
        self.waited.durable(WaitsIn::Program, time.min(FOR_EVER))
    }

    /// Whether the checkpoint is complete in the last tier. Does not wait; with several ranks the store is asked, which has
    /// 50 ms to answer. A save that failed or was skipped is not durable: [`durable`](Save::durable) returns the reason.
    pub fn is_durable(&self) -> bool {
        let Some(progress) = &self.waited.progress else { return false };
        progress.is_durable() || self.waited.is_found(progress)
    }

    /// Calls a function with the result of [`durable`](Save::durable), in a thread of its own that waits for it. The
    /// thread ends with the process: a program that wants to be sure calls [`Run::finish`](crate::Run::finish). With
    /// several ranks that thread does not notice deaths and gives up after
    /// [`Options::patience`](crate::Options::patience). The only error here is that the system has no more threads; the save
    /// goes on.
    pub fn on_durable(&self, call: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        let waited = self.waited.clone();
        let thread = std::thread::Builder::new().name("treering-wait".into());
        let wait = move || call(waited.durable(WaitsIn::Thread, FOR_EVER).map(drop));
        let begun = thread.spawn(wait);
        begun.map(drop).map_err(|error| Error::io("cannot start a thread that waits", error))
    }

    /// Whether the program was asked to stop after this checkpoint (`treering halt`), which goes to the shared
    /// store; the same on all ranks. The program stops by calling [`Run::finish`](crate::Run::finish) and ending.
    pub fn halts(&self) -> bool {
        self.halts
    }

    pub(crate) fn at(mut self, level: Level, halts: bool) -> Self {
        (self.waited.level, self.halts) = (level, halts);
        self
    }

    pub(crate) fn awaiting(mut self, awaited: Option<Awaited>) -> Self {
        self.waited.awaited = awaited.map(Arc::new);
        self
    }
}

/// Ends with what [`Save::durable`] returns. The first poll starts a thread that waits, as [`Save::on_durable`] does.
impl Future for Save {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let found = match &self.found {
            Some(found) => found.clone(),
            None => {
                let found = Arc::new(Mutex::new(Found::default()));
                let end = found.clone();
                let begun = self.on_durable(move |outcome| {
                    let waker = {
                        let mut end = held(&end);
                        end.outcome = Some(outcome);
                        end.waker.take()
                    };
                    waker.into_iter().for_each(Waker::wake);
                });
                if let Err(error) = begun {
                    return Poll::Ready(Err(error));
                }
                self.found = Some(found.clone());
                found
            }
        };
        let mut found = held(&found);
        match &found.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                found.waker = Some(context.waker().clone());
                Poll::Pending
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    static SAID: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn a_long_wait_for_a_save_is_reported() {
        let progress = SaveProgress::default();
        let waited = Waited {
            step: Step(7),
            level: Level::Shared,
            progress: Some(progress.clone()),
            awaited: None,
        };
        let notice = waited.notice("durable").reporting(Duration::from_millis(60), |text| {
            assert!(text.contains("until the checkpoint of step 7 is durable"), "{text}");
            SAID.fetch_add(1, Ordering::SeqCst);
        });
        // The store hangs until two notices were given.
        let end = std::thread::spawn(move || {
            while SAID.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            progress.durable();
        });
        let progress = waited.progress().unwrap();
        let done = progress.wait_and_tell(FOR_EVER, Some(&notice), |state| state.durable);
        assert!(matches!(done, Some(Ok(()))), "{done:?}");
        end.join().unwrap();
        // Without a notice the time is kept.
        let hung = SaveProgress::default();
        let short = Duration::from_millis(20);
        assert!(hung.wait_and_tell(short, None, |state| state.durable).is_none());
        assert!(hung.wait_and_tell(short, Some(&notice), |state| state.durable).is_none());
    }
}

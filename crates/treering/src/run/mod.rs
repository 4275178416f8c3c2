//! The front door for programs: open a run, save arrays, restore states.
//!
//! The program waits for [`capture`](crate::capture): hash, compare, copy what changed. Behind it,
//! [`save`](crate::save) decides what is new, encodes it, writes it to the first tier and moves it on. This
//! is wiring only.

mod aggregate;
mod nearby;
mod options;
mod protected;
mod protection;
mod ranks;
#[cfg(feature = "tools")]
mod reference;
#[cfg(not(feature = "tools"))]
#[path = "no_reference.rs"]
mod reference;
mod replicas;
#[cfg(feature = "signals")]
mod requests;
#[cfg(not(feature = "signals"))]
#[path = "no_requests.rs"]
mod requests;
mod restoring;
mod schedule;
#[cfg(feature = "toml")]
mod settings;
#[cfg(feature = "tools")]
mod share;

pub use aggregate::{Aggregation, AggregationReport, aggregate};
use options::LEAST_STAGING;
pub use options::{Options, Overload};
#[cfg(feature = "tools")]
pub use reference::ReferenceReport;
pub use restoring::Restored;
pub use schedule::{Due, Every};

use crate::array::{Description, Labels, Part, ProtectedArray, Rank, Sequence, Step, Variable};
use crate::capture::{self, Capture, Declared, SaveMeter, Staging, state_bytes};
use crate::comm::{Alone, Comm, Reduction};
use crate::compact::UpkeepNotes;
#[cfg(feature = "tools")]
use crate::compare::Outcome;
use crate::compare::matches;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Names;
use crate::lineage::Method;
use crate::log::Log;
use crate::merkle::{Digest, digest};
use crate::points::reach;
use crate::redundancy::{NodeRanks, Redundancy};
use crate::restore::Backwards;
use crate::retention::Retention;
use crate::save::{
    self, Awaited, Cadence, Decision, Failures, GroupSeat, Level, Opened, RankOf, Recovered, Save,
    SaveProgress, Saver, SaverRank, Team, Ticket, Tiers, Together, Vote, WriterSettings,
};
use crate::store::{Lock, Store};
use crate::trace::{TracedKind, TracedWork};
use crate::waiting::{Inquiry, WaitNotice};
use ranks::RankSide;
use reference::ReferenceWatch;
use replicas::ReplicaLevel;
pub(crate) use requests::Requests;
use schedule::Schedule;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Time for which a checkpoint waits for an answer of the store that it can do without.
const STORE_PATIENCE: Duration = Duration::from_secs(1);

/// Longest wait at the end of a run until a request to halt that it has honoured is removed.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// A look at the store for a request to stop.
struct HaltRequest {
    /// Whether one was there that had been honoured, and is gone now.
    removed: bool,
    found: bool,
}

type HaltQuestion = Box<dyn FnOnce() -> HaltRequest + Send>;

/// A checkpoint that the program asks for.
struct CheckpointCall {
    step: u64,
    start: Instant,
    /// Whether it goes to the shared store.
    shared: bool,
    labels: Labels,
}

/// A run that is open for writing. One process at a time, or one group of ranks, can have it open.
///
/// ```
/// use treering::{Options, Run, Variable, VariableMut};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let (mut heat, mut time) = (vec![0.0f64; 1000], 0.0f64);
/// let mut run = Run::open(Options::directory(&store, "rod"))?;
/// let mut state = [VariableMut::new("heat", &mut heat), VariableMut::scalar("time", &mut time)];
/// let restored = run.restore(&mut state)?;
/// for step in restored.map_or(0, |r| r.step + 1)..10 {
///     heat[step as usize] += 1.0; // the simulation
///     time += 0.1;
///     run.checkpoint(step, &[Variable::new("heat", &heat), Variable::scalar("time", &time)])?;
///     for (step, error) in run.failures() {
///         eprintln!("the save of step {step} failed: {error}"); // the program continues
///     }
/// }
/// run.finish()?;
/// # Ok::<(), treering::Error>(())
/// ```
///
/// **Waiting**: `checkpoint` returns when changed data is copied; the data is encoded and written behind the program. It
/// waits longer if the staging memory is full ([`Options::staging`], [`Options::overload`]); [`Run::checkpoint`] lists the
/// other waits. `finish` waits until everything is durable, and so does dropping a run, which then discards errors.
/// **Memory**: 12 bytes for each chunk, the staging memory, and the record of stored chunks ([`Options::record`]).
/// **Errors**: after a failed save the program can continue, and the next checkpoint is whole if need be; earlier
/// checkpoints are never affected.
pub struct Run {
    options: Options,
    /// All tiers as one, for reading.
    store: Arc<dyn Store>,
    capture: Capture,
    saver: Saver,
    failures: Failures,
    reference: Option<ReferenceWatch>,
    /// The other ranks, if there are some.
    ranks: Option<RankSide>,
    /// When checkpoints go to the shared store.
    cadence: Cadence,
    /// States in the memory of ranks.
    replicas: Option<ReplicaLevel>,
    /// Whether the ranks have agreed to make the checkpoint that is under way.
    agreed: bool,
    /// Steps of which no replicas were kept, and the note that counts them.
    unkept: Option<(u64, usize)>,
    /// A checkpoint after which the program was asked to stop.
    halting: Option<SaveProgress>,
    /// Looks for such a request.
    requested: Inquiry<HaltRequest>,
    /// The opening, for aggregators that come to know of the run.
    ticket: Ticket,
    blocked: Duration,
    /// Reports a long wait for room in the staging memory.
    room: Arc<WaitNotice>,
    opened_at: Instant,
    schedule: Schedule,
    requests: Option<Requests>,
    /// The newest save of which it is not known yet how long it takes.
    writing: Option<(Instant, SaveProgress)>,
    notes: Vec<String>,
    /// The labels of the next checkpoint, besides those of all.
    labels: Labels,
    /// Whether it was looked for bounds that no variable has.
    bounds_checked: bool,
    /// Whether the program has asked for earlier states, or has been told that there are some.
    looked_back: bool,
    upkeep: UpkeepNotes,
    /// Removes old checkpoints, on the first rank.
    retention: Option<Retention>,
    /// Arrays that it knows by itself, in the order in which they were registered.
    protected: Vec<Arc<dyn ProtectedArray>>,
    /// The bytes of the arrays that the last restore filled.
    restored_bytes: u64,
    /// Other times and another way to report a long wait than those of [`WaitNotice`].
    #[cfg(test)]
    reporting: Option<crate::waiting::NoticeWay>,
    /// The process that has opened it; a forked child has no threads to save with.
    process: u32,
    _lock: Option<Lock>,
}

impl Run {
    /// Opens a run for writing, and creates it if it is new. With several ranks this call is collective.
    ///
    /// **Waiting**: for another process that has the run open, two seconds; then the error is of kind
    /// [`ErrorKind::Busy`]. On a file system without locks the run is taken over instead, and the other process stops with
    /// an error ([`notes`](Run::notes) reports it). With [`Options::node`], the newest checkpoint that the nodes hold is
    /// first copied to the shared store, after lost parts are rebuilt ([`Options::redundancy`]); this takes as long as
    /// reading and writing that data. With several ranks, each vote waits for [`Options::patience`]. The store itself has no
    /// time limit: when a minute has passed, a notice on standard error reports the wait, then each time after twice as
    /// long.
    ///
    /// **Errors**: invalid options are of kind [`ErrorKind::Usage`], and nothing is written. Absent ranks are of kind
    /// [`ErrorKind::Late`], dead ones of kind [`ErrorKind::Dead`] or [`ErrorKind::Revoked`]. After an error the complete
    /// checkpoints of the run are as they were, and the run can be opened again.
    pub fn open(options: Options) -> Result<Run> {
        let notice = WaitNotice::new(named(&options.writer.run), "it is open".to_string());
        notice.during(|| Run::open_watched(options))
    }

    fn open_watched(options: Options) -> Result<Run> {
        let comm = options.ranks.clone().filter(|comm| comm.size() > 1);
        let link = options.aggregator.clone();
        let mut ranks = comm.map(|comm| RankSide::of(&options, comm, link));
        let failures = Failures::default();
        let checked = options.check().and_then(|()| match &ranks {
            Some(_) => save::probe(&options.writer.tiers, &options.writer.run),
            None => Ok(()),
        });
        let reference =
            checked.and_then(|()| options.reference.as_ref().map(ReferenceWatch::open).transpose());
        // A rank that does not find the reference says so in its vote: the others would wait for it.
        if let Some(ranks) = &mut ranks {
            let ballot = ranks.ballot(Together::Open, Sequence::default());
            ranks.vote(reference.as_ref().map(|_| ballot).map_err(Clone::clone), &failures)?;
        }
        let reference = reference?;
        if let Some(ranks) = &ranks {
            replicas::agree_on(&options, ranks)?;
        }
        let writer = &options.writer;
        let opened = match &mut ranks {
            None => open_alone(&writer.tiers, &writer.run)?,
            Some(ranks) => ranks.open(&writer.tiers, &writer.run, None)?,
        };
        let replicas = ReplicaLevel::of(&options);
        Run::begin(options, ranks, opened, failures, reference, replicas)
    }

    /// Starts what works behind a run that was opened.
    fn begin(
        options: Options,
        mut ranks: Option<RankSide>,
        mut opened: Opened,
        failures: Failures,
        reference: Option<ReferenceWatch>,
        replicas: Option<ReplicaLevel>,
    ) -> Result<Run> {
        let ticket = opened.ticket();
        let upkeep = UpkeepNotes::default();
        let requests = options.signals.then(Requests::listen).transpose()?;
        let left = |end: SystemTime| end.duration_since(SystemTime::now()).unwrap_or_default();
        let schedule = Schedule::new(options.every, options.end().map(left));
        let until = "there is room in its staging memory".to_string();
        let room = Arc::new(WaitNotice::new(named(&options.writer.run), until));
        let (saver, capture) = start(&options, &mut ranks, &mut opened, &failures, &upkeep, &room)?;
        let retention = retain(&options, ranks.as_ref(), &upkeep)?;
        Ok(Run {
            capture,
            retention,
            cadence: Cadence::new(options.shared_every),
            halting: None,
            requested: Inquiry::default(),
            replicas,
            agreed: false,
            unkept: None,
            options,
            store: opened.store,
            saver,
            failures,
            reference,
            ranks,
            ticket,
            blocked: Duration::ZERO,
            room,
            opened_at: Instant::now(),
            schedule,
            requests,
            writing: None,
            notes: opened.notes,
            labels: Labels::default(),
            bounds_checked: false,
            looked_back: false,
            upkeep,
            protected: Vec::new(),
            restored_bytes: 0,
            #[cfg(test)]
            reporting: None,
            process: std::process::id(),
            _lock: opened.lock,
        })
    }

    /// Decides whether a checkpoint of `step` is due, by [`Options::every`], [`Options::deadline`] and
    /// [`Options::on_signals`]. A program calls this after every step. After [`Due::Last`] it ends: nothing more is due, unless a
    /// rank dies and the others go on ([`Run::go_on_with`]). The checkpoint after [`Due::Last`] is never skipped
    /// ([`Overload::Skip`]).
    ///
    /// With several ranks all of them call this, and get the same answer. Unless [`Every::Steps`] is the only rule, they
    /// agree on it by a reduction ([`Comm::reduce`]), which has no time limit: each rank waits until all have called. A
    /// dead rank ends the wait with an error of kind [`ErrorKind::Dead`] or [`ErrorKind::Revoked`]. The store is not
    /// accessed.
    ///
    /// ```
    /// use treering::{Every, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut heat = vec![0.0f64; 1000];
    /// let options = Options::directory(&store, "rod").every(Every::Steps(100)).on_signals();
    /// let mut run = Run::open(options)?;
    /// for step in 1..=1000 {
    ///     heat[step as usize % 1000] += 1.0; // the simulation
    ///     let due = run.due(step)?;
    ///     if due.is_due() {
    ///         run.checkpoint(step, &[Variable::new("heat", &heat)])?;
    ///     }
    ///     if due.is_last() {
    ///         break;
    ///     }
    /// }
    /// run.finish()?;
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn due(&mut self, step: u64) -> Result<Due> {
        self.due_or(step, Due::No)
    }

    /// The same if this rank has heard of a request that signals of this process do not tell it.
    pub(crate) fn due_or(&mut self, step: u64, heard: Due) -> Result<Due> {
        self.check_process()?;
        if let Some((begun, _)) = self.writing.take_if(|(_, progress)| progress.is_durable()) {
            self.schedule.written(begun.elapsed());
        }
        let request = self.requests.as_ref().map_or(Due::No, Requests::take).max(heard);
        let mut due = self.schedule.due(self.opened_at.elapsed(), step, request);
        let is_known = self.requests.is_none() && self.schedule.is_known_to_all();
        if let Some(ranks) = self.ranks.as_ref().filter(|_| !is_known) {
            let mut most = [due.code()];
            ranks.or_all_stop(ranks.comm().reduce(Reduction::Max, &mut most))?;
            due = Due::from_code(most[0]);
        }
        self.schedule.agreed(due);
        Ok(due)
    }

    /// Saves the arrays as the state of `step`. Returns as soon as new data has been copied; the arrays may be changed
    /// then. Whether the save succeeds is reported later, by the [`Save`] or by [`Run::failures`].
    ///
    /// **Waiting**, besides hashing and copying:
    /// - for room in the staging memory if it is full, or if 16 saves are under way. [`Options::overload`] can skip the
    ///   checkpoint instead. This wait has no time limit; notices on standard error report it.
    /// - up to one second for a store that is slow to answer whether the program is asked to stop (`treering halt`).
    /// - with several ranks, for their vote ([`Options::patience`]).
    /// - for communication with other ranks if there are replicas ([`Options::replicas`]) or redundancy between nodes
    ///   ([`Options::redundancy`]), and for the comparison with a reference run ([`Options::reference`]), which may read its
    ///   store.
    /// - the first checkpoint of a program that has not called [`Run::restore`] reads the log of an existing run.
    ///
    /// **Errors**: nothing was captured if the arguments are invalid ([`ErrorKind::Usage`]) or differ between ranks, if a
    /// rank did not come in time ([`ErrorKind::Late`]). Other ranks may have captured their part by then; such a checkpoint
    /// never becomes complete, and their [`Run::failures`] report it. A capture that fails on one rank is a failed save on
    /// all. A death ([`ErrorKind::Dead`], [`ErrorKind::Revoked`]) can also be noticed after the capture, while replicas are
    /// sent: the save then goes on without its handle, and after [`Run::go_on_with`], [`Run::failures`] has it if it is not
    /// complete. After every error the earlier checkpoints are as they were.
    pub fn checkpoint(&mut self, step: u64, variables: &[Variable]) -> Result<Save> {
        self.checkpoint_at(step, variables, self.cadence.is_due())
    }

    /// Saves the arrays as [`Run::checkpoint`] does, and brings this checkpoint to the shared store, independent of
    /// [`Options::shared_every`]. With several ranks one caller suffices; the others may call [`Run::checkpoint`]. Waiting
    /// and errors are those of [`Run::checkpoint`]: this call does not wait for the shared store either, but
    /// [`Save::durable`] does.
    pub fn checkpoint_shared(&mut self, step: u64, variables: &[Variable]) -> Result<Save> {
        self.checkpoint_at(step, variables, true)
    }

    /// Saves the last state of the program as [`Run::checkpoint_shared`] does; it is never skipped. All ranks call this.
    pub(crate) fn checkpoint_last(&mut self, step: u64, variables: &[Variable]) -> Result<Save> {
        self.schedule.agreed(Due::Last);
        self.checkpoint_shared(step, variables)
    }

    fn checkpoint_at(&mut self, step: u64, variables: &[Variable], to: bool) -> Result<Save> {
        self.check_process()?;
        let start = Instant::now();
        let labels = self.options.labels.with(&std::mem::take(&mut self.labels));
        let checked = capture::check(variables);
        let shared = self.shared(variables);
        let own = self.own_of(variables);
        let declared = checked.and_then(|()| self.capture.declare(&own));
        let declared = self.or_all_fail(declared)?;
        self.note_unused_bounds(variables);
        self.note_beginning();
        let variables = &own[..];
        let scan =
            |capture: &mut Capture, whole, declared: &[Declared], hand: &mut dyn FnMut(_)| {
                capture.capture(whole, variables, declared, hand)
            };
        let asked = CheckpointCall { step, start, shared: to, labels };
        self.save_and_share(asked, declared, &shared, variables, scan)
    }

    /// Saves a state; with the other ranks it is compared with the reference and kept in memory.
    fn save_and_share(
        &mut self,
        asked: CheckpointCall,
        declared: Vec<Declared>,
        shared: &[(Description, Digest)],
        variables: &[Variable],
        scan: impl FnOnce(
            &mut Capture,
            bool,
            &[Declared],
            &mut dyn FnMut(capture::StagedBatch),
        ) -> Result<u64>,
    ) -> Result<Save> {
        let step = asked.step;
        self.agreed = false;
        let save = self.save(asked, declared, shared, scan);
        // A rank whose capture failed after all have agreed takes part: the others wait for it.
        let captured = match &save {
            Ok(done) if done.is_skipped() => return save,
            Ok(_) => Ok(variables),
            Err(error) if self.agreed => Err(error.clone()),
            Err(_) => return save,
        };
        self.hold_against_reference(step, captured.clone());
        self.submit_replicas(step, captured)?;
        save
    }

    /// Adds a label to the next checkpoint, in addition to those of all checkpoints ([`Options::label`]); a label of the same
    /// key is replaced. The next call of [`Run::checkpoint`] consumes it, also if that call fails. With several ranks, all of
    /// them give the same label.
    ///
    /// ```
    /// use treering::{Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let heat = vec![293.15f64; 1000];
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// run.label("phase", "equilibrated")?;
    /// run.checkpoint(1, &[Variable::new("heat", &heat)])?;
    /// run.finish()?;
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn label(&mut self, key: &str, value: impl std::fmt::Display) -> Result<()> {
        let mut labels = self.labels.clone();
        labels.set(key, value);
        self.options.labels.with(&labels).check()?;
        self.labels = labels;
        Ok(())
    }

    /// Keeps the arrays as the state of `step` in the memory of the ranks, and nowhere else: the state survives the death of
    /// ranks, not that of the program. Needs [`Options::replicas`]. Collective.
    ///
    /// **Waiting**: returns when all ranks have their copies. The vote of the ranks waits for [`Options::patience`]; the
    /// transfer after it has no time limit. No store is accessed. **Errors**: [`ErrorKind::Usage`] for invalid arguments or
    /// a run without replicas, [`ErrorKind::Late`] for absent ranks, [`ErrorKind::Dead`] or [`ErrorKind::Revoked`] after a
    /// death: the newest complete generation then still serves. Replicas that cannot be kept, for example for lack of
    /// memory, are no error: [`Run::notes`] reports them, and no older generation serves in their place.
    pub fn replicate(&mut self, step: u64, variables: &[Variable]) -> Result<()> {
        self.check_process()?;
        let checked = match self.replicas {
            Some(_) => capture::check(variables),
            None => Err(Error::usage("this run keeps no replicas").hint("give Options::replicas")),
        };
        self.or_all_fail(checked)?;
        if let Some(ranks) = &mut self.ranks {
            let ballot = ranks.ballot(Together::Replicate, self.saver.newest);
            ranks.vote(Ok(ballot), &self.failures)?;
        }
        let own = self.own_of(variables);
        self.submit_replicas(step, Ok(&own))
    }

    /// Whether one rank has the run.
    pub(crate) fn is_alone(&self) -> bool {
        self.ranks.is_none()
    }

    /// Whether all ranks keep the newest state in their memory; the same on all ranks.
    pub(crate) fn is_replicated(&self) -> bool {
        self.replicas.as_ref().is_some_and(ReplicaLevel::is_whole)
    }

    /// Submits what this rank stores of a state, or tells the others that it has failed. Replicas that cannot be kept are a
    /// note: no checkpoint fails for them.
    ///
    /// The last rank that is left keeps its states, too: a restore finds the newest one, not that of the last death.
    fn submit_replicas(&mut self, step: u64, own: Result<&[Variable]>) -> Result<()> {
        let (Some(level), Some(comm)) = (&mut self.replicas, &self.options.ranks) else {
            return Ok(());
        };
        let start = Instant::now();
        let done = level.submit(comm, (step, self.saver.newest.0), own);
        self.blocked += start.elapsed();
        match self.or_all_stop(done) {
            Err(error) if !error.is_death() => {
                // An older state must not pass for the newest.
                self.replicas.iter_mut().for_each(ReplicaLevel::forget);
                self.note_unkept(step, &error);
                Ok(())
            }
            done => done.inspect(|()| reach("replicas-kept")),
        }
    }

    /// Notes that no replicas of a step are kept: one note for all such steps, however many there are.
    fn note_unkept(&mut self, step: u64, error: &Error) {
        let (before, at) = self.unkept.unwrap_or((0, self.notes.len()));
        let others = match before {
            0 => String::new(),
            before => format!(" (nor of {before} earlier ones)"),
        };
        let note = format!("no replicas of step {step}{others} are kept: {error}");
        match self.notes.get_mut(at) {
            Some(old) => *old = note,
            None => self.notes.push(note),
        }
        self.unkept = Some((before + 1, at));
    }

    /// Waits until the newest checkpoint is on the nodes and makes it redundant by [`Options::redundancy`]: from then on it
    /// survives the loss of a node. Otherwise the next checkpoint does this. Collective. Does nothing without redundancy.
    ///
    /// **Waiting**: for the store of the node, without a time limit (notices on standard error report the wait), for the
    /// vote of the ranks, [`Options::patience`], and for the data that nodes send each other. **Errors**:
    /// [`ErrorKind::Late`] for absent ranks, [`ErrorKind::Dead`] or [`ErrorKind::Revoked`] after a death. After an error the
    /// checkpoint on the nodes is as it was. A node without room for the data of others is no error: [`Run::notes`] reports
    /// it.
    pub fn make_redundant(&mut self) -> Result<()> {
        self.check_process()?;
        let notice = self.wait_notice("its newest checkpoint is on the nodes");
        let Some(ranks) = self.ranks.as_mut().filter(|ranks| ranks.protection.is_some()) else {
            return Ok(());
        };
        ranks.wait_for_parts(&notice);
        ranks.vote(Ok(ranks.ballot(Together::Protect, self.saver.newest)), &self.failures)?;
        let start = Instant::now();
        let done = self.protect_nodes();
        self.blocked += start.elapsed();
        done
    }

    /// Saves trees that were made elsewhere, and nothing else.
    pub(crate) fn checkpoint_trees(&mut self, step: u64, trees: &[Variable]) -> Result<Save> {
        let declared = Declared::of(trees)?;
        let (start, labels) = (Instant::now(), Labels::default());
        let asked = CheckpointCall { step, start, shared: true, labels };
        self.save(asked, declared, &[], |capture, whole, declared, hand| {
            Ok(capture.capture_as_is(whole, trees, declared, hand))
        })
    }

    /// Decides on a checkpoint and captures it.
    fn save(
        &mut self,
        asked: CheckpointCall,
        declared: Vec<Declared>,
        shared: &[(Description, Digest)],
        scan: impl FnOnce(
            &mut Capture,
            bool,
            &[Declared],
            &mut dyn FnMut(capture::StagedBatch),
        ) -> Result<u64>,
    ) -> Result<Save> {
        let CheckpointCall { step, start, shared: to_shared, labels } = asked;
        let state = state_bytes(&declared);
        let mut vote = Vote {
            state,
            changed: self.capture.expected(state),
            whole: self.options.writer.method == Method::Full,
            overloaded: false,
            shared: to_shared,
            aside: self.saver.aside(),
            halt: self.is_to_halt(),
        };
        let staging = self.saver.staging.clone();
        if self.options.overload == Overload::Skip && !self.schedule.has_ended() {
            let expected =
                if self.saver.decide(Step(step), vote).whole { state } else { vote.changed };
            vote.overloaded = staging.is_full_for(expected.min(staging.limit()));
        }
        if vote.overloaded && self.ranks.is_none() {
            return Ok(Save::skipped(Step(step)));
        }
        // Saves that wait for an aggregator that is gone would take up all turns.
        let lost = self.ranks.as_ref().is_some_and(RankSide::has_lost_aggregator);
        self.room.begin();
        let turn = (!vote.overloaded).then(|| staging.begin_save());
        let (decision, time) = self.decide((Step(step), &labels), vote, &declared, shared, lost)?;
        if decision.skip {
            return Ok(Save::skipped(Step(step)));
        }
        reach("decided");
        self.cadence.decided(decision);
        let hasher = self.capture.hasher();
        // Those that stay on nodes are never in the last tier.
        let meter = self.saver.staging.meter().filter(|_| decision.shared);
        let open = meter.as_ref().map(SaveMeter::begin);
        let mut capturing =
            self.saver.begin((decision, time, labels), vote, declared.clone(), hasher);
        if let Some(ranks) = &mut self.ranks {
            ranks.began(decision, capturing.progress.clone());
        }
        let hand = &mut |batch| capturing.hand(batch);
        let traced = TracedWork::begin(TracedKind::Capture, &self.options.writer.run, Some(step));
        let scanned = scan(&mut self.capture, decision.whole, &declared, hand);
        let changed = traced.end(scanned, |changed| (None, *changed))?;
        reach("captured");
        let blocked = start.elapsed();
        self.blocked += blocked;
        drop(turn);
        let awaited = self.ranks.as_ref().map(|ranks| {
            let (last, run) = (self.options.writer.tiers.last.clone(), &self.options.writer.run);
            let (writer, sequence) = (self.ticket.writer(), decision.sequence);
            Awaited::new(last, run, writer, sequence, self.options.patience, ranks.watch())
        });
        let progress = capturing.end(changed, blocked);
        let bell = self.retention.as_ref().map(Retention::bell);
        if bell.is_some() || open.is_some() {
            progress.when_durable(Box::new(move || {
                drop(open);
                bell.into_iter().for_each(|bell| bell());
            }));
        }
        self.schedule.saved(self.opened_at.elapsed(), blocked);
        if let Some((begun, _)) = self.writing.replace((Instant::now(), progress.clone())) {
            // It takes so long at least.
            self.schedule.written(begun.elapsed());
        }
        let level = if decision.shared { Level::Shared } else { Level::Node };
        self.halting = decision.halt.then(|| progress.clone());
        let save = Save::new(Step(step), progress, changed, blocked).at(level, decision.halt);
        Ok(save.awaiting(awaited))
    }

    /// Whether somebody has asked the program to stop; the first rank looks. A request is removed once the checkpoint that
    /// honours it is durable. If the program dies before, the next one finds the request and stops, too: a request is never
    /// lost. A store that does not answer in time is asked again at the next checkpoint.
    fn is_to_halt(&mut self) -> bool {
        let patience = if self.requested.is_under_way() { Duration::ZERO } else { STORE_PATIENCE };
        self.look_for_halt(|requested, look| requested.ask(patience, look))
    }

    /// Removes a request that this run has honoured: the next job would stop at its first checkpoint.
    fn end_halt(&mut self) {
        if self.halting.as_ref().is_some_and(SaveProgress::is_durable) {
            self.look_for_halt(|requested, look| requested.ask_afresh(END_PATIENCE, look));
        }
    }

    fn look_for_halt(
        &mut self,
        ask: impl FnOnce(&mut Inquiry<HaltRequest>, HaltQuestion) -> Option<HaltRequest>,
    ) -> bool {
        let is_honoured = self.halting.as_ref().is_some_and(SaveProgress::is_durable);
        if self.ranks.as_ref().is_some_and(|ranks| ranks.rank() != Rank(0)) {
            self.halting.take_if(|_| is_honoured);
            return false;
        }
        let (store, run) = (self.options.writer.tiers.last.clone(), &self.options.writer.run);
        let key = Names::new(run).halt();
        let look = Box::new(move || HaltRequest {
            removed: is_honoured && store.delete(std::slice::from_ref(&key)).is_ok(),
            found: store.open(&key).is_ok(),
        });
        let Some(HaltRequest { removed, found }) = ask(&mut self.requested, look) else {
            return false;
        };
        self.halting.take_if(|_| removed);
        found
    }

    /// The variables that are the same on all ranks, with digests by which the ranks find out whether they are.
    fn shared(&self, variables: &[Variable]) -> Vec<(Description, Digest)> {
        let shared = variables.iter().filter(|_| self.ranks.is_some());
        let shared = shared.filter(|variable| variable.description.part == Some(Part::Same));
        shared
            .map(|variable| (variable.description.clone(), digest(&variable.bytes.whole())))
            .collect()
    }

    /// The variables that this rank stores: those that are the same on all ranks are stored by the first.
    fn own_of<'a>(&self, variables: &[Variable<'a>]) -> Vec<Variable<'a>> {
        let first = self.ranks.as_ref().is_none_or(|ranks| ranks.rank() == Rank(0));
        let stored = variables.iter();
        let stored = stored.filter(|v| first || v.description.part != Some(Part::Same));
        stored.cloned().collect()
    }

    /// Decides on a checkpoint, with the other ranks if there are some; the time that they agree on.
    fn decide(
        &mut self,
        (step, labels): (Step, &Labels),
        vote: Vote,
        declared: &[Declared],
        shared: &[(Description, Digest)],
        regroup: bool,
    ) -> Result<(Decision, Option<u64>)> {
        let own = self.saver.decide(step, vote);
        let Some(ranks) = &mut self.ranks else { return Ok((own, None)) };
        let ballot = ranks.ballot(Together::Checkpoint, self.saver.newest);
        let ballot = ballot.on(step, Vote { whole: own.whole, ..vote }).regrouping(regroup);
        let ballot = ballot.labelled(labels);
        let ballot = ballot.with(declared.iter().map(|declared| &declared.description));
        let ballot = ballot.sharing(shared.iter().map(|(shared, digest)| (shared, *digest)));
        let verdict = ranks.vote(Ok(ballot), &self.failures)?;
        self.agreed = !verdict.decision().skip;
        if ranks.take_lost() {
            self.cadence.lost();
        }
        self.protect_nodes()?;
        let Some(ranks) = &mut self.ranks else { return Ok((own, None)) };
        ranks.kept_from().into_iter().for_each(|first| self.saver.forget_before(first));
        if verdict.regroup {
            let (per_pack, run) = (self.options.ranks_per_pack, &self.options.writer.run);
            let (seat, team) = ranks.sit_down(per_pack, run, &self.ticket)?;
            self.saver.reseat(seat, team);
        }
        Ok((verdict.decision(), Some(verdict.time)))
    }

    /// Protects what is complete on nodes and nowhere else, as the last vote has found it.
    fn protect_nodes(&mut self) -> Result<()> {
        let Some(ranks) = &mut self.ranks else { return Ok(()) };
        let WriterSettings { tiers, run, .. } = &self.options.writer;
        let note = ranks.protect(tiers, run, self.ticket.writer(), &self.saver.seat)?;
        self.notes.extend(note);
        Ok(())
    }

    /// An error of this rank becomes that of all, because the others wait for its vote.
    fn or_all_fail<T>(&mut self, done: Result<T>) -> Result<T> {
        match (done, &mut self.ranks) {
            (Err(error), Some(ranks)) => {
                ranks.vote(Err(error.clone()), &self.failures)?;
                Err(error)
            }
            (done, _) => done,
        }
    }

    /// Notes, at the first checkpoint, bounds whose pattern matches none of its variables: probably a
    /// mistake that would show only when runs are compared. Variables may also come later, so it is not an error.
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

    /// Notes, at the first checkpoint, that the program has not asked for the states that the run has: perhaps a call of
    /// [`Run::restore`] is missing, and hours of work are done again.
    fn note_beginning(&mut self) {
        let first = self.ranks.as_ref().is_none_or(|ranks| ranks.rank() == Rank(0));
        // The first entry of a run is its opening.
        let is_new = self.ticket.writer().opening <= Sequence(1);
        if std::mem::replace(&mut self.looked_back, true) || !first || is_new {
            return;
        }
        let run = &self.options.writer.run;
        let Ok(log) = Log::read(self.store.clone(), run) else { return };
        if log.ancestor(log.newest()).is_some() {
            self.notes.push(format!(
                "run {run:?} has checkpoints of an earlier program, and this one starts over without Run::restore"
            ));
        }
    }

    /// Notes for people: a file system without locks, checkpoints that a node has given up, bounds that match no variable
    /// of the first checkpoint, replicas that are not kept, a program that has not called [`Run::restore`] although the run
    /// has checkpoints.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Failures of maintenance behind the program: compactions of small files ([`Options::compact`]), the removal of old
    /// checkpoints ([`Options::keep`]), a limit that cannot be kept ([`Options::limit`]). No checkpoint is affected.
    pub fn upkeep_notes(&self) -> Vec<String> {
        self.upkeep.get()
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

    /// The comparison of the first checkpoint that differs from the reference run beyond the bounds;
    /// `None` as long as the two agree. See [`Options::reference`]. With several ranks, all of them have the same
    /// answer when [`Run::checkpoint`] has returned on all; `variables` of the outcome are this rank's.
    #[cfg(feature = "tools")]
    pub fn divergence(&self) -> Option<&Outcome> {
        self.reference_report()?.divergence.as_ref()
    }

    /// Checkpoints that were compared with the reference run, and those that were not, with reasons;
    /// `None` without [`Options::reference`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use treering::{Bound, CompareSettings, MemoryStore, Options, Run, Store, Variable};
    /// let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    /// let mut run = Run::open(Options::in_store(store.clone(), "monday"))?;
    /// run.checkpoint(1, &[Variable::new("heat", &[293.15f64; 100])])?;
    /// run.finish()?;
    /// let within = CompareSettings::within(Bound::abs(1e-6));
    /// let options = Options::in_store(store.clone(), "tuesday").reference(store, "monday", within);
    /// let mut run = Run::open(options)?;
    /// run.checkpoint(1, &[Variable::new("heat", &[293.15f64; 100])])?;
    /// let report = run.reference_report().expect("a reference was given");
    /// assert!(report.compared == [1] && report.divergence.is_none());
    /// # Ok::<(), treering::Error>(())
    /// ```
    #[cfg(feature = "tools")]
    pub fn reference_report(&self) -> Option<&ReferenceReport> {
        self.reference.as_ref().map(|watch| &watch.report)
    }

    /// A comparison that fails stops neither the program nor the save; the report has the reason.
    fn hold_against_reference(&mut self, step: u64, captured: Result<&[Variable]>) {
        let Some(watch) = &mut self.reference else { return };
        let start = std::time::Instant::now();
        let trees = captured.as_ref().map(|variables| self.capture.trees.variables(variables));
        let trees = trees.unwrap_or_default();
        match (&mut self.ranks, captured) {
            (Some(ranks), captured) => {
                let captured = captured.map(|variables| (variables, &trees[..]));
                watch.checkpoint_together(step, captured, ranks);
            }
            (None, Ok(variables)) => watch.checkpoint(step, variables, &trees),
            (None, Err(_)) => {}
        }
        self.blocked += start.elapsed();
    }

    /// Iterates over the states from the newest checkpoint back to the first; each is prefetched. A state that
    /// cannot be read is an error in its place, and the next older one follows. Not collective: each rank that calls this
    /// gets the states of all ranks.
    ///
    /// **Waiting**: first for all saves that are under way, without a time limit; notices on standard error report the
    /// wait. **Errors**: [`ErrorKind::NotFound`] if the run has no checkpoint, or those of reading its log. **Memory**:
    /// three states at a time. [`Backwards`] has an example.
    pub fn backwards(&mut self) -> Result<Backwards> {
        self.looked_back = true;
        let log = self.read_log()?;
        let run = &self.options.writer.run;
        let newest: Option<Sequence> = log.ancestor(log.newest());
        let newest = newest.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("run {run:?} has no checkpoint"))
        })?;
        Backwards::new(self.store.clone(), run, newest)
    }

    /// Waits until everything is durable. Checkpoints that could not be moved to the last tier are tried once more. With
    /// several ranks this call is collective.
    ///
    /// **Waiting**: as long as the file system takes, without a time limit: if it hangs, so does this call. When a minute
    /// has passed, a notice on standard error reports the wait, then each time after twice as long. Old checkpoints that are
    /// being removed ([`Options::keep`]) are waited for, too, and the removal of a request to stop (`treering halt`) that was
    /// honoured, for up to 30 seconds. With several ranks, each vote waits for [`Options::patience`]. **Errors**: the first failure that no [`Save`] and no [`Run::failures`] has reported; later
    /// checkpoints may be durable all the same. With several ranks also [`ErrorKind::Late`], [`ErrorKind::Dead`] and
    /// [`ErrorKind::Revoked`]: the checkpoints whose parts are all there still become visible, at the latest when the run is
    /// opened again. The run is closed in any case.
    pub fn finish(mut self) -> Result<()> {
        self.check_process()?;
        self.saver.move_newest();
        self.drain();
        self.finish_together()?;
        self.end_halt();
        self.end_retention();
        match self.failures.take_untold().into_iter().next() {
            Some((step, error)) => Err(error.at(format!("save of step {step}"))),
            None => Ok(()),
        }
    }

    /// With several ranks: learns what has become of the last saves.
    fn finish_together(&mut self) -> Result<()> {
        let Some(ranks) = &mut self.ranks else { return Ok(()) };
        let newest = self.saver.newest;
        ranks.vote(Ok(ranks.ballot(Together::Finish, newest)), &self.failures)?;
        self.promote(Together::Finish)?;
        let Some(ranks) = &mut self.ranks else { return Ok(()) };
        if !ranks.is_settled() {
            // Everybody has published its sections; where listings are late, they may not have been seen.
            self.drain();
            let Some(ranks) = &mut self.ranks else { return Ok(()) };
            ranks.vote(Ok(ranks.ballot(Together::Finish, newest)), &self.failures)?;
            ranks.give_up(&self.failures);
        }
        Ok(())
    }

    /// Continues the run with the surviving ranks after the death of one. All survivors call this, with the communicator
    /// that [`Comm::shrink`] returned.
    ///
    /// When a call of any rank returns an error of kind [`ErrorKind::Dead`] or [`ErrorKind::Revoked`], that rank
    /// revokes the communicator, so that the others hear of it, and all of them shrink it and call this. The same run
    /// goes on: [`restore`](Run::restore) and [`checkpoint`](Run::checkpoint) work as after [`Run::open`] on the smaller
    /// number of ranks, and the next checkpoint is whole. A checkpoint that was under way when the rank died exists if
    /// all parts of it had been written, or had been packed by groups of which another rank lives; if not,
    /// [`Run::failures`] has it.
    ///
    /// The survivors take a new opening of the run. Anything that the old ranks still do completes nothing: a rank that
    /// counts as dead and was only slow, or a second set of survivors, is refused with [`ErrorKind::Busy`].
    ///
    /// **Waiting**: first for this rank's saves that are under way, without a time limit (notices on standard error report
    /// the wait), then as [`Run::open`] does, with a vote that waits for [`Options::patience`]. **Errors**: if another rank
    /// dies meanwhile, [`ErrorKind::Dead`] or [`ErrorKind::Revoked`]; revoke and shrink the smaller communicator, and call
    /// this again. After every error the run keeps its old ranks, and this can be called again. A death during [`Run::open`]
    /// leaves no run to go on with: open it again on the smaller communicator.
    ///
    /// **Caution**: a rank that has left for [`Run::finish`] or the end of the program cannot go on with
    /// the others, who would wait for it. Let all ranks come to the same place, with a call that communicates, before
    /// the first one leaves. Ranks can go on only where [`Comm::survives`]; with an MPI without ULFM a death ends the
    /// job, and a new job restores the newest checkpoint.
    ///
    /// ```no_run
    /// # fn main() -> treering::Result<()> {
    /// # let mut comm: std::sync::Arc<dyn treering::Comm> = std::sync::Arc::new(treering::Alone::new());
    /// # let mut run = treering::Run::open(treering::Options::directory("store", "run").ranks(comm.clone()))?;
    /// # fn simulate(_: &mut treering::Run, _: &dyn treering::Comm) -> treering::Result<()> { Ok(()) }
    /// let mut result = simulate(&mut run, &*comm);
    /// while result.as_ref().is_err_and(|error| error.is_death()) {
    ///     comm.revoke()?;
    ///     comm = comm.shrink()?;
    ///     let went_on = run.go_on_with(comm.clone());
    ///     result = went_on.and_then(|()| simulate(&mut run, &*comm));
    /// }
    /// # result
    /// # }
    /// ```
    pub fn go_on_with(&mut self, comm: Arc<dyn Comm>) -> Result<()> {
        self.check_process()?;
        self.drain();
        let Some(old) = &mut self.ranks else {
            return Err(Error::usage("this run has one rank, so no other rank can have died")
                .hint("open the run with Options::ranks"));
        };
        let heir = old.heir(comm.clone());
        // Another rank may be the one that takes the run now.
        self._lock = None;
        let mut ranks = Some(heir);
        let gone_on = self.go_on(&mut ranks, comm);
        if let (Err(_), Some(old), Some(heir)) = (&gone_on, &mut self.ranks, ranks) {
            let _ = heir.or_all_stop(gone_on.as_ref().map_err(Clone::clone));
            old.take_back(heir);
        }
        gone_on
    }

    /// Goes on as the only rank, with another communicator: nobody of this run has died, but the one that it had may be
    /// revoked.
    pub(crate) fn go_on_alone(&mut self, comm: Arc<dyn Comm>) -> Result<()> {
        if let Some(level) = &mut self.replicas {
            level.go_on(&comm)?;
        }
        self.schedule.goes_on();
        self.options.ranks = Some(comm);
        Ok(())
    }

    /// Joins ranks that have a run and call [`Run::go_on_with`], as a rank that takes the place of a dead one. The options
    /// are those of the other ranks, with the communicator that all of them have now. Collective with their
    /// [`Run::go_on_with`].
    ///
    /// **Waiting**: for the vote of the ranks, [`Options::patience`], and for the store as [`Run::open`] does, without
    /// notices. **Errors**: [`ErrorKind::Usage`] without other ranks or for invalid options, [`ErrorKind::Late`] for absent
    /// ranks, [`ErrorKind::Dead`] or [`ErrorKind::Revoked`] after another death, [`ErrorKind::Busy`] if another process has
    /// taken over the run. After an error there is no run here; try again with the communicator that the others then have.
    pub fn join(options: Options) -> Result<Run> {
        let failures = Failures::default();
        let comm = options.ranks.clone().filter(|comm| comm.size() > 1);
        let comm = comm.ok_or_else(|| Error::usage("there are no other ranks to join"))?;
        let mut side = RankSide::of(&options, comm.clone(), None);
        let checked = options.check();
        let reference =
            checked.and_then(|()| options.reference.as_ref().map(ReferenceWatch::open).transpose());
        let ready = reference.as_ref().map(|_| Sequence::default()).map_err(Clone::clone);
        let next = side.agree_to_go_on(ready, &failures)?;
        let reference = reference?;
        replicas::agree_on(&options, &side)?;
        let mut replicas = ReplicaLevel::of(&options);
        if let Some(level) = &mut replicas {
            side.or_all_stop(level.go_on(&comm))?;
        }
        let opened = side.open(&options.writer.tiers, &options.writer.run, Some(next))?;
        Run::begin(options, Some(side), opened, failures, reference, replicas)
    }

    /// Opens the run once more with other ranks. If this fails, the old ones stay as they are.
    fn go_on(&mut self, ranks: &mut Option<RankSide>, comm: Arc<dyn Comm>) -> Result<()> {
        let Some(side) = ranks else { return Ok(()) };
        let (newest, writer) = (self.saver.newest, self.options.writer.clone());
        let next = side.agree_to_go_on(Ok(newest), &self.failures)?;
        replicas::agree_on(&self.options, side)?;
        if let Some(level) = &mut self.replicas {
            level.go_on(&comm)?;
        }
        let mut opened = side.open(&writer.tiers, &writer.run, Some(next))?;
        let opening = opened.opening.writer.opening;
        side.resolve(writer.tiers.last.as_ref(), &writer.run, opening, &self.failures);
        if comm.size() == 1 {
            *ranks = None;
        }
        let (saver, capture) =
            start(&self.options, ranks, &mut opened, &self.failures, &self.upkeep, &self.room)?;
        // The first rank may be another one.
        self.retention = retain(&self.options, ranks.as_ref(), &self.upkeep)?;
        self.ticket = opened.ticket();
        self.looked_back = true;
        self.schedule.goes_on();
        (self.saver, self.capture, self.store) = (saver, capture, opened.store);
        self.options.ranks = Some(comm);
        self.ranks = ranks.take();
        self.notes.append(&mut opened.notes);
        self._lock = opened.lock;
        Ok(())
    }

    /// Brings the newest checkpoint to the shared store if it is on the nodes only; all ranks know that from their vote.
    fn promote(&mut self, call: Together) -> Result<()> {
        let Some(ranks) = &mut self.ranks else { return Ok(()) };
        let Some(carried) = ranks.promote() else { return Ok(()) };
        self.saver.promote(carried);
        self.drain();
        let Some(ranks) = &mut self.ranks else { return Ok(()) };
        // When all have voted, all have published their sections.
        ranks.vote(Ok(ranks.ballot(call, self.saver.newest)), &self.failures).map(drop)
    }

    /// Saves that have failed since the last call: the step and the error of each. Does not wait.
    pub fn failures(&mut self) -> Vec<(u64, Error)> {
        self.failures.take().into_iter().map(|(step, error)| (step.0, error)).collect()
    }

    /// Time for which checkpoints have blocked the program so far.
    pub fn blocked(&self) -> Duration {
        self.blocked
    }

    /// Waits until everything is in the last tier or has failed. Nobody waits for a rank that has died, and nobody waits
    /// long without a word.
    fn drain(&self) {
        let notice = self.wait_notice("its checkpoints are written");
        self.saver.drain(|| {
            self.ranks.iter().for_each(RankSide::look);
            notice.look();
        });
    }

    fn wait_notice(&self, until: &str) -> WaitNotice {
        let notice = WaitNotice::new(named(&self.options.writer.run), until.to_string());
        #[cfg(test)]
        if let Some((first, say)) = self.reporting {
            return notice.reporting(first, say);
        }
        notice
    }

    /// Waits until the last of the old checkpoints that may go are gone.
    fn end_retention(&mut self) {
        let notice = self.wait_notice("old checkpoints are removed");
        if let Some(mut retention) = self.retention.take() {
            retention.end(|| notice.look());
        }
    }

    /// The log, when nothing is under way.
    fn read_log(&self) -> Result<Log> {
        self.check_process()?;
        self.drain();
        self.wait_notice("its log is read").during(|| {
            let mut log = Log::read(self.store.clone(), &self.options.writer.run)?;
            log.look_up_to(self.saver.newest)?;
            Ok(log)
        })
    }
}

/// The run in a notice.
fn named(run: &str) -> String {
    format!("run {run:?}")
}

/// Starts what removes old checkpoints; the first rank does it for all.
fn retain(
    options: &Options,
    ranks: Option<&RankSide>,
    upkeep: &UpkeepNotes,
) -> Result<Option<Retention>> {
    let first = ranks.is_none_or(|ranks| ranks.rank() == Rank(0));
    let WriterSettings { tiers, run, .. } = &options.writer;
    let start = |keep| Retention::start(tiers.last.clone(), run, keep, upkeep.clone());
    options.keep.filter(|_| first).map(start).transpose()
}

/// Starts what works behind a run that was opened: the ranks take their seats, and their budgets are divided.
fn start(
    options: &Options,
    ranks: &mut Option<RankSide>,
    opened: &mut Opened,
    failures: &Failures,
    upkeep: &UpkeepNotes,
    room: &Arc<WaitNotice>,
) -> Result<(Saver, Capture)> {
    let own = ranks.as_ref().map_or(RankOf { rank: Rank(0), ranks: 1 }, RankSide::own);
    let outcomes = ranks.as_ref().map(|ranks| ranks.outcomes.clone()).unwrap_or_default();
    let staged = ranks.as_ref().map(|ranks| ranks.staged.clone()).unwrap_or_default();
    let (seat, team) = match ranks {
        None => (GroupSeat::alone(Rank(0), 1, 1), Team::Alone),
        Some(ranks) => {
            let (run, ticket) = (&options.writer.run, opened.ticket());
            ranks.sit_down(options.ranks_per_pack, run, &ticket)?
        }
    };
    let share = NodeShare::of(options, seat.on_node);
    let protected = options.redundancy != Redundancy::None;
    for (step, error) in opened.trouble.drain(..) {
        failures.add(step, error, &Default::default());
    }
    let (watch, room) = (ranks.as_ref().map(RankSide::watch), room.clone());
    let look = move || {
        watch.iter().for_each(|watch| drop(watch.look()));
        room.look();
    };
    let meter = options.save_progress.clone().map(SaveMeter::new);
    let staging = Staging::new(share.staging).looking(Arc::new(look)).metered(meter);
    let saver = Saver::start(
        WriterSettings { record: share.record, ..options.writer.clone() },
        opened,
        staging.clone(),
        failures.clone(),
        upkeep.clone(),
        SaverRank { own, seat, team, outcomes, staged, protected, threads: share.threads },
    )?;
    Ok((saver, Capture::new(options.capture(), opened.seed, staging)))
}

/// Opens a run for one rank. Ranks may have left checkpoints on its node.
fn open_alone(tiers: &Tiers, run: &str) -> Result<Opened> {
    if tiers.near.is_empty() {
        return save::open(tiers, run, None);
    }
    let nodes = NodeRanks::meet(Arc::new(Alone::new()), None, Redundancy::None)?;
    let rebuilt = save::rebuild_lost(&nodes, tiers, run)?;
    let Recovered { lock, notes } = save::recover(&Alone::new(), tiers, run, true, None)?;
    let mut opened = match lock {
        Some(lock) => save::open_locked(tiers, run, lock, None)?,
        None => save::open(tiers, run, None)?,
    };
    opened.notes.extend(rebuilt.into_iter().chain(notes));
    let opening = opened.opening.writer;
    let cleaned = save::clean_sections(tiers, run, opening)
        .and_then(|()| protection::remove_spent(tiers.first().as_ref(), run, opening.opening));
    let what = |error| format!("remains of earlier programs stay on this node: {error}");
    opened.notes.extend(cleaned.err().map(what));
    Ok(opened)
}

/// A rank's share of what a node has.
struct NodeShare {
    staging: u64,
    record: u64,
    threads: usize,
}

impl NodeShare {
    fn of(options: &Options, on_node: u32) -> NodeShare {
        let on_node = u64::from(on_node.max(1));
        NodeShare {
            staging: (options.staging / on_node).max(LEAST_STAGING),
            record: options.writer.record / on_node,
            threads: (rayon::current_num_threads() / on_node as usize).max(1),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        match self.check_process() {
            Ok(()) => {
                self.drain();
                self.end_retention();
            }
            Err(_) => {
                self.saver.abandon();
                self.retention.iter_mut().for_each(Retention::abandon);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::VariableMut;
    use crate::comm::{End, ThreadRanks};
    use crate::store::MemoryStore;
    use crate::testing::{Call, HookedStore};
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    /// The end of a program waits for its checkpoints as long as that takes, and not without a word.
    #[test]
    fn a_run_that_is_dropped_on_a_store_that_hangs_says_so_and_loses_nothing() {
        static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let (go, gone) = channel::<()>();
        let gone = Mutex::new(gone);
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let store = HookedStore::new(inner.clone(), move |call| {
            if matches!(call, Call::Finish(_)) {
                // Held until the sender is gone.
                let _ = gone.lock().unwrap().recv();
            }
            Ok(())
        });
        let mut run = Run::open(Options::in_store(Arc::new(store), "rod")).unwrap();
        run.reporting = Some((Duration::from_millis(50), |text| {
            SAID.lock().unwrap().push(text.to_string());
        }));
        let data = vec![1u8; 100_000];
        run.checkpoint(0, &[Variable::new("x", &data)]).unwrap();
        let (begun, dropped) = (Instant::now(), std::thread::spawn(move || drop(run)));
        while SAID.lock().unwrap().len() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody has said anything");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!dropped.is_finished());
        drop(go);
        dropped.join().unwrap();
        let said = SAID.lock().unwrap().join("\n");
        assert!(
            said.contains("\"rod\"") && said.contains("until its checkpoints are written"),
            "{said}"
        );
        let mut back = vec![0u8; data.len()];
        let mut run = Run::open(Options::in_store(inner, "rod")).unwrap();
        assert!(run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().is_some());
        assert!(back == data);
    }

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
            let (start, labels) = (Instant::now(), Labels::default());
            let asked = CheckpointCall { step: 1, start, shared: true, labels };
            assert!(run.save(asked, declared, &[], scan).is_err());
        }
        data[8] += 1;
        run.drain();
        run.checkpoint(2, &[Variable::new("x", &data)]).unwrap().durable().unwrap();
        assert_eq!(run.failures().iter().map(|(step, _)| *step).collect::<Vec<_>>(), [1, 1, 1]);
        run.finish().unwrap();
        let mut back = vec![0u8; data.len()];
        let mut run = Run::open(Options::in_store(store, "r")).unwrap();
        let restored = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
        assert!(restored.step == 2 && back == data);
    }

    /// The others wait for the replicas of a rank whose capture has failed, so it tells them.
    #[test]
    fn a_capture_that_fails_on_one_rank_holds_nobody_up() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let ends = ThreadRanks::new(2).run(move |comm| {
            let options = Options::in_store(store.clone(), "r").ranks(comm.clone()).replicas(2);
            let mut run = Run::open(options).unwrap();
            let data = vec![1u8; 1000];
            let variables = [Variable::new("x", &data)];
            if comm.rank() == Rank(1) {
                let declared = Declared::of(&variables).unwrap();
                let scan = |_: &mut Capture, _, _: &[Declared], _: &mut dyn FnMut(_)| {
                    Err(Error::new(ErrorKind::Limit, "out of memory"))
                };
                let (start, labels) = (Instant::now(), Labels::default());
                let asked = CheckpointCall { step: 1, start, shared: true, labels };
                assert!(run.save_and_share(asked, declared, &[], &variables, scan).is_err());
            } else {
                run.checkpoint(1, &variables).unwrap();
            }
            let unkept = |note: &&String| note.contains("no replicas of step 1 are kept");
            let noted = run.notes().iter().filter(unkept).count();
            // The next one is whole if the failure is known by then.
            run.drain();
            run.checkpoint(2, &variables).unwrap().durable().unwrap();
            let failed: Vec<u64> = run.failures().iter().map(|(step, _)| *step).collect();
            run.finish().unwrap();
            (noted, failed)
        });
        let ends: Vec<(usize, Vec<u64>)> = ends.into_iter().filter_map(End::done).collect();
        assert_eq!(ends, [(1, vec![1]), (1, vec![1])]);
    }
}

//! The feed of a program's arrays: one thread behind the program that writes its checkpoints.
//!
//! Every save has a channel of its own: batches, then the end. A channel that closes without an end is a
//! capture that failed, and the save fails with it; nothing of one save can be taken for part of another.

use super::aggregator::{Aggregator, AggregatorTurn, HandedDecision, ResumedFrom, ServedRun};
use super::ballot::Outcomes;
use super::carrier::{Carried, Carrier, CarrierWork};
use super::epoch::{Decision, Epoch, Vote, decide, restore_cost};
use super::group::SealedPack;
use super::handle::{Failures, SaveProgress, held};
use super::image::{EntrustedPack, ImagePut};
use super::joint::{GroupJob, GroupWork, TakeBatch};
use super::maker::{EpochBase, PackSource};
use super::mover::{Movers, PackPath, next};
use super::open::{Opened, join};
use super::publish::{LogWriter, commit_once};
use super::roomy::{Detour, RoomyPut};
use super::seats::GroupSeat;
use super::sections::Sections;
use super::team::Team;
use super::tree::GroupOf;
use super::{RankOf, WriterSettings};
use crate::array::{GroupId, Labels, Rank, Sequence, Step};
use crate::capture::{Declared, StagedBatch, Staging};
use crate::compact::{AutoCompact, UpkeepNotes};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Branch, Group, LogEntry, Manifest, Names, Origin, WriterId};
use crate::log::read_group;
use crate::merkle::{Hasher, Tree};
use crate::points::{inherited, reach};
use crate::restore::{Checkpoint, RestoredVariable};
use crate::trace::{TracedKind, TracedWork};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which a thread that waits for saves looks around.
const LOOK: Duration = Duration::from_millis(50);

/// A part of a save.
enum Feed {
    Batch(StagedBatch),
    End { blocked: Duration },
}

/// A save that has begun.
struct SaveJob {
    decision: Decision,
    /// The time of the checkpoint, if the ranks have agreed on one.
    time: Option<u64>,
    labels: Labels,
    hasher: Arc<Hasher>,
    declared: Vec<Declared>,
    progress: SaveProgress,
    feed: Receiver<Feed>,
}

enum SaverMessage {
    Save(Box<SaveJob>),
    Resume(Box<Resume>),
    /// Brings a checkpoint that stayed on the node to the shared store.
    Promote(Carried),
    ForgetBefore(Sequence),
    /// The ranks have taken other seats.
    Reseat(Box<(GroupSeat, Team)>),
    /// The newest checkpoint of one rank goes to the last tier, if it has stayed on the node.
    MoveNewest,
    Drain(Sender<()>),
}

/// The trees of variables, by their names.
type NamedTrees = Vec<(String, Tree)>;

/// The checkpoint to go on from.
struct Resume {
    /// The manifest, the own group and the trees of its variables, if its epoch is the open one.
    base: Option<(Manifest, Group, NamedTrees)>,
    parent: Option<Origin>,
}

/// The program's end of a save that is being captured.
pub(crate) struct Capturing {
    pub(crate) decision: Decision,
    pub(crate) progress: SaveProgress,
    sender: Sender<Feed>,
    epoch: Arc<Mutex<Epoch>>,
}

impl Capturing {
    pub(crate) fn hand(&mut self, batch: StagedBatch) {
        // The thread takes everything, even if the save has failed already.
        let _ = self.sender.send(Feed::Batch(batch));
    }

    /// Everything has been handed over. Dropped without this, the save fails.
    pub(crate) fn end(self, changed: u64, blocked: Duration) -> SaveProgress {
        held(&self.epoch).captured(self.decision.sequence, changed);
        let _ = self.sender.send(Feed::End { blocked });
        self.progress
    }
}

/// The place of a rank among the others, for the thread that saves.
pub(crate) struct SaverRank {
    pub(crate) own: RankOf,
    pub(crate) seat: GroupSeat,
    pub(crate) team: Team,
    pub(crate) outcomes: Arc<Mutex<Outcomes>>,
    /// The checkpoints of which the node holds this rank's part.
    pub(crate) staged: Arc<Mutex<BTreeSet<u64>>>,
    /// Whether nodes protect each other.
    pub(crate) protected: bool,
    /// The threads that encode; all cores by default.
    pub(crate) threads: usize,
}

/// The program's end of the thread.
pub(crate) struct Saver {
    sender: Option<Sender<SaverMessage>>,
    thread: Option<JoinHandle<()>>,
    epoch: Arc<Mutex<Epoch>>,
    pub(crate) newest: Sequence,
    pub(crate) staging: Staging,
    pub(crate) seat: GroupSeat,
}

impl Saver {
    pub(crate) fn start(
        settings: WriterSettings,
        opened: &mut Opened,
        staging: Staging,
        failures: Failures,
        notes: UpkeepNotes,
        rank: SaverRank,
    ) -> Result<Self> {
        let seat = rank.seat.clone();
        let mut work = Work::new(settings, opened, staging.clone(), failures, notes, rank)?;
        let epoch = work.epoch.clone();
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("treering-saver".into());
        let thread = thread.spawn(inherited(move || work.work(&receiver)));
        let thread = thread.map_err(|e| Error::io("cannot start the threads of a run", e))?;
        let newest = opened.newest;
        let (sender, thread) = (Some(sender), Some(thread));
        Ok(Saver { sender, thread, epoch, newest, staging, seat })
    }

    fn send(&self, message: SaverMessage) {
        if let Some(sender) = &self.sender {
            // The thread ends only when this is dropped.
            let _ = sender.send(message);
        }
    }

    /// Decides on the next checkpoint.
    pub(crate) fn decide(&self, step: Step, vote: Vote) -> Decision {
        decide(&held(&self.epoch), &[vote], self.newest.next(), step)
    }

    /// Begins the checkpoint that was decided on.
    pub(crate) fn begin(
        &mut self,
        (decision, time, labels): (Decision, Option<u64>, Labels),
        vote: Vote,
        declared: Vec<Declared>,
        hasher: Arc<Hasher>,
    ) -> Capturing {
        self.newest = decision.sequence;
        held(&self.epoch).begin(decision, vote.state);
        let (sender, feed) = channel();
        let progress = SaveProgress::default();
        let told = progress.clone();
        let job = SaveJob { decision, time, labels, hasher, declared, progress: told, feed };
        self.send(SaverMessage::Save(Box::new(job)));
        Capturing { decision, progress, sender, epoch: self.epoch.clone() }
    }

    /// Waits until everything is in the last tier or has failed; `look` is called now and then meanwhile.
    pub(crate) fn drain(&self, look: impl Fn()) {
        let (done, wait) = channel();
        self.send(SaverMessage::Drain(done));
        while wait.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            look();
        }
    }

    /// Brings the newest checkpoint of a run of one rank to the last tier, if it has stayed on the node.
    pub(crate) fn move_newest(&self) {
        self.send(SaverMessage::MoveNewest);
    }

    /// Brings a checkpoint that stayed on the nodes to the shared store; all ranks do.
    pub(crate) fn promote(&self, carried: Carried) {
        self.send(SaverMessage::Promote(carried));
    }

    /// Checkpoints before a number may leave the node.
    pub(crate) fn forget_before(&self, sequence: Sequence) {
        self.send(SaverMessage::ForgetBefore(sequence));
    }

    /// The bytes of the open epoch that are only on the node.
    pub(crate) fn aside(&self) -> u64 {
        held(&self.epoch).aside()
    }

    /// Goes on from a restored checkpoint; nothing is under way. With `restored`, its epoch goes on, too.
    pub(crate) fn resume(&self, checkpoint: &Checkpoint, restored: Option<&[RestoredVariable]>) {
        let manifest = checkpoint.manifest();
        let mut epoch = held(&self.epoch);
        match restored {
            Some(_) => {
                let packs = &checkpoint.packs[self.seat.group.index()];
                let share = self.seat.members.len() as u64;
                let costs: Vec<u64> =
                    packs.iter().map(|pack| restore_cost(&pack.footer) / share).collect();
                let (whole, deltas) = costs.split_first().map_or((0, &[][..]), |(w, d)| (*w, d));
                epoch.resume(whole, deltas.iter().sum(), costs.len() as u64);
            }
            None => epoch.end(),
        }
        let trees = |restored: &[RestoredVariable]| {
            restored.iter().map(|r| (r.name.clone(), r.tree.clone())).collect()
        };
        self.send(SaverMessage::Resume(Box::new(Resume {
            base: restored.and_then(|restored| {
                let group = checkpoint.group(self.seat.group)?.clone();
                Some((manifest.clone(), group, trees(restored)))
            }),
            parent: Some(Origin { run: None, sequence: manifest.sequence }),
        })));
    }

    /// Continues from a state that is in no store; the newest checkpoint before it is the parent of the next one.
    pub(crate) fn resume_at(&self, parent: Option<Sequence>) {
        held(&self.epoch).end();
        let parent = parent.map(|sequence| Origin { run: None, sequence });
        self.send(SaverMessage::Resume(Box::new(Resume { base: None, parent })));
    }

    /// Goes on in another group. Saves under way are finished, or fail, in the old one; the next checkpoint is whole.
    pub(crate) fn reseat(&mut self, seat: GroupSeat, team: Team) {
        self.seat = seat.clone();
        self.send(SaverMessage::Reseat(Box::new((seat, team))));
    }

    /// Lets go of everything without waiting: in a forked child the threads do not exist.
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(self.sender.take());
        std::mem::forget(self.thread.take());
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's end.
struct Work {
    settings: WriterSettings,
    /// The log of the first tier.
    log: LogWriter,
    /// With several ranks and a node's store, on the leader of a group: the way to the shared store.
    carrier: Option<Carrier>,
    /// With several ranks and a node's store: the checkpoints of which it holds this rank's part.
    staged: Option<Arc<Mutex<BTreeSet<u64>>>>,
    outcomes: Arc<Mutex<Outcomes>>,
    /// With several ranks and no node's store: where their sections meet.
    sections: Option<Sections>,
    /// The sections that were published and whose outcome is not known.
    published: Vec<Sequence>,
    rank: Rank,
    ranks: u32,
    seat: GroupSeat,
    /// The packs of the run, for reading.
    source: PackSource,
    writer: WriterId,
    group: GroupWork,
    /// The origin of the open epoch.
    origin: Option<Origin>,
    parent: Option<Origin>,
    epoch: Arc<Mutex<Epoch>>,
    staging: Staging,
    failures: Failures,
    movers: Movers,
    /// Only without nearer tiers.
    compact: Option<AutoCompact>,
    /// Past a first tier that is found to be full too late.
    detour: Detour,
    /// Its own threads, so that the program's capture never queues behind a save.
    pool: Option<rayon::ThreadPool>,
    threads: usize,
}

impl Work {
    fn new(
        settings: WriterSettings,
        opened: &mut Opened,
        staging: Staging,
        failures: Failures,
        notes: UpkeepNotes,
        rank: SaverRank,
    ) -> Result<Work> {
        let SaverRank { own, seat, team, outcomes, staged, protected, threads } = rank;
        let epoch = Arc::new(Mutex::new(Epoch::new(settings.growth)));
        let (last, rule) = (settings.tiers.last.clone(), settings.compaction);
        // The thread that commits to the last tier compacts it.
        let mut compact = (own.ranks == 1)
            .then(|| AutoCompact::new(last, &settings.run, rule, opened.files, notes));
        let moved = if opened.edges.is_empty() { None } else { compact.take() };
        let movers = Movers::start(std::mem::take(&mut opened.edges), &failures, &epoch, moved)?;
        let on_node = own.ranks > 1 && !settings.tiers.near.is_empty();
        let carrier = match on_node && !matches!(team, Team::Member(_)) {
            true => Some(Carrier::start(CarrierWork {
                path: PackPath::new(settings.tiers.first().clone(), settings.tiers.last.clone()),
                log: opened.log(&settings.tiers.last, true),
                sections: Sections::new(
                    settings.tiers.last.clone(),
                    &settings.run,
                    outcomes.clone(),
                ),
                own: GroupOf { group: seat.group, groups: seat.groups },
                run: settings.run.clone(),
                names: Names::new(&settings.run),
                staged: BTreeMap::new(),
                past: BTreeSet::new(),
                waiting: VecDeque::new(),
                published: Vec::new(),
                failures: failures.clone(),
                epoch: epoch.clone(),
                protected,
            })?),
            false => None,
        };
        let frames = match &team {
            Team::Aggregator(aggregator) => Some(aggregator.frames_before()),
            _ => None,
        };
        let source = PackSource::new(opened.store.clone(), &settings.run, own.ranks, frames);
        Ok(Work {
            log: opened.log(settings.tiers.first(), settings.tiers.near.is_empty()),
            carrier,
            staged: on_node.then_some(staged),
            outcomes: outcomes.clone(),
            sections: (own.ranks > 1 && !on_node)
                .then(|| Sections::new(settings.tiers.last.clone(), &settings.run, outcomes)),
            published: Vec::new(),
            rank: own.rank,
            ranks: own.ranks,
            seat: seat.clone(),
            writer: opened.opening.writer,
            group: GroupWork::new(own.rank, &seat, team, &settings, &source),
            source,
            origin: None,
            parent: None,
            epoch,
            staging,
            failures,
            movers,
            compact,
            detour: Detour::default(),
            pool: None,
            threads,
            settings,
        })
    }

    fn work(&mut self, messages: &Receiver<SaverMessage>) {
        while let Ok(message) = next(messages, self.compact.as_mut()) {
            match message {
                SaverMessage::Save(job) => self.save(*job),
                SaverMessage::Resume(resume) => self.resume(*resume),
                SaverMessage::Promote(carried) => {
                    self.carrier.iter().for_each(|carrier| carrier.carry(carried.clone()));
                }
                SaverMessage::ForgetBefore(sequence) => {
                    self.carrier.iter().for_each(|carrier| carrier.forget_before(sequence));
                }
                SaverMessage::Reseat(seat) => self.reseat(*seat),
                SaverMessage::MoveNewest => self.movers.move_newest(),
                SaverMessage::Drain(done) => {
                    self.movers.drain();
                    self.carrier.iter().for_each(Carrier::drain);
                    self.look_again();
                    let _ = done.send(());
                }
            }
        }
        self.movers.drain();
    }

    /// Finds out what has become of checkpoints.
    fn look_again(&mut self) {
        match (&self.group.team, &self.sections) {
            (Team::Hander(hander), _) => hander.look(),
            (_, Some(sections)) => sections.look_again(&mut self.log, &mut self.published),
            _ => {}
        }
    }

    fn reseat(&mut self, (seat, team): (GroupSeat, Team)) {
        self.group = GroupWork::new(self.rank, &seat, team, &self.settings, &self.source);
        if matches!(self.group.team, Team::Hander(_)) {
            let from = |parent: &Origin| ResumedFrom { parent: parent.sequence.0, base: None };
            self.group.resumed = self.parent.as_ref().map(from);
        }
        (self.seat, self.pool) = (seat, None);
        self.begin_epoch();
    }

    fn resume(&mut self, Resume { base, parent }: Resume) {
        if matches!(self.group.team, Team::Hander(_)) {
            let from = |parent: &Origin| ResumedFrom { parent: parent.sequence.0, base: None };
            self.group.resumed = parent.as_ref().map(from);
        }
        self.parent = parent;
        self.begin_epoch();
        if let Some((manifest, packs, trees)) = base {
            self.origin = Some(manifest.epoch.clone());
            self.group.resume(EpochBase { manifest, packs }, trees);
        }
    }

    fn begin_epoch(&mut self) {
        self.group.begin_epoch();
        self.origin = None;
    }

    fn save(&mut self, job: SaveJob) {
        // Also what comes before the first batch (giving back the record of the last epoch, opening files) would
        // take time from the capture.
        self.staging.wait_for_turn();
        let traced =
            TracedWork::begin(TracedKind::Save, &self.settings.run, Some(job.decision.step.0));
        let outcome = catch_unwind(AssertUnwindSafe(|| self.write(&job)));
        let outcome = outcome.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Io, "a save ended in an internal error; please report it"))
        });
        let outcome = traced.end(outcome, |saved| {
            let manifest = saved.as_ref().map(|(manifest, _)| manifest);
            let groups = manifest.and_then(|manifest| manifest.groups.here()).unwrap_or_default();
            (None, groups.iter().map(|group| group.seal.size).sum())
        });
        // Remains of a failed save are collected, so that their memory is free again.
        while job.feed.recv().is_ok() {}
        self.staging.end_save();
        let sequence = job.decision.sequence;
        self.tell_team(sequence, outcome.as_ref().map(drop));
        match outcome {
            // The leader of the group has published it.
            Ok(None) => {
                self.is_on_node(sequence);
                job.progress.reached_tier();
            }
            Ok(Some((manifest, direct))) => {
                self.is_on_node(sequence);
                job.progress.reached_tier();
                self.compact.iter_mut().for_each(|compact| compact.committed(&manifest));
                match direct {
                    true => job.progress.durable(),
                    // The next vote, or the last, tells what has become of the others' sections.
                    false if self.sections.is_some() => {}
                    false => match &self.carrier {
                        None => self.movers.send(manifest, job.progress, job.decision.shared),
                        Some(carrier) if job.decision.shared => {
                            let (step, progress) = (job.decision.step, job.progress);
                            carrier.carry(Carried { sequence, step, progress });
                        }
                        Some(_) => {}
                    },
                }
            }
            Err(error) => {
                let error = error.at(format!("{}@{}", self.settings.run, job.decision.step));
                self.begin_epoch();
                held(&self.epoch).failed(sequence);
                // A checkpoint that is not on the node is never carried to the shared store. Of a leader that is gone
                // nobody knows yet what it has left.
                let known = error.kind() != ErrorKind::Dead;
                if self.staged.is_some() && job.decision.shared && known {
                    held(&self.outcomes).given_up.insert(sequence.0);
                }
                self.failures.add(job.decision.step, error.clone(), &job.progress);
                job.progress.failed(error);
            }
        }
    }

    /// The node holds this rank's part of a checkpoint.
    fn is_on_node(&self, sequence: Sequence) {
        if let Some(staged) = &self.staged {
            held(staged).insert(sequence.0);
        }
    }

    /// Tells the other ranks of the group what has become of a checkpoint.
    fn tell_team(&self, sequence: Sequence, outcome: std::result::Result<(), &Error>) {
        match (&self.group.team, outcome) {
            (Team::Leader(leader), outcome) => leader.tell(sequence, outcome),
            (Team::Member(member), Err(error)) => member.fail(sequence, error),
            (Team::Hander(hander), Err(error)) => hander.fail(sequence, error),
            (Team::Aggregator(aggregator), outcome) => aggregator.tell(sequence, outcome),
            _ => {}
        }
    }

    /// Writes the pack and commits the manifest; whether they are in the last tier. `None` if that was done by the
    /// leader of the group.
    fn write(&mut self, job: &SaveJob) -> Result<Option<(Manifest, bool)>> {
        if job.decision.whole {
            self.begin_epoch();
        } else if !self.group.has_base() {
            return Err(Error::new(
                ErrorKind::Lost,
                "the save before it, on which this one builds, has failed",
            ));
        }
        if matches!(self.group.team, Team::Member(_)) {
            return self.hand_over(job).map(|()| None);
        }
        if matches!(self.group.team, Team::Hander(_)) {
            return self.hand_to_aggregator(job).map(|()| None);
        }
        if self.sections.is_some() {
            self.log.catch_up()?;
        }
        self.log.check()?;
        reach("pack-begun");
        let (sealed, manifest, direct) = self.pack(job)?;
        reach("pack-durable");
        let sequence = job.decision.sequence;
        let direct = self.publish(&manifest, direct)?;
        let cost = restore_cost(&sealed.footer);
        held(&self.epoch).committed(sequence, cost);
        held(&self.epoch).is_aside(sequence, sealed.seal.size);
        if let Team::Aggregator(aggregator) = &mut self.group.team {
            aggregator.cost = cost / aggregator.ranks().max(1) as u64;
        }
        self.group.keep(sealed);
        self.origin = Some(manifest.epoch.clone());
        self.parent = Some(Origin { run: None, sequence });
        Ok(Some((manifest, direct)))
    }

    /// Commits the manifest where its pack is, or, if the first tier has no room for it, in the last.
    fn publish(&mut self, manifest: &Manifest, direct: bool) -> Result<bool> {
        if let Some(sections) = &self.sections {
            let group = GroupOf { group: self.seat.group, groups: self.seat.groups };
            sections.publish(&mut self.log, manifest, group)?;
            self.published.push(manifest.sequence);
            return Ok(false);
        }
        if let Some(carrier) = &self.carrier {
            let (of, index) = (self.seat.groups, self.seat.group.0);
            carrier.stage(Branch { of, level: 0, index, part: manifest.clone() })?;
            return Ok(false);
        }
        if self.movers.is_empty() {
            return self.log.commit(manifest).map(|()| true);
        }
        if !direct {
            match self.log.commit(manifest) {
                Err(error) if error.kind() == ErrorKind::Full => {}
                done => return done.map(|()| false),
            }
            self.movers.make_room();
            match self.log.commit(manifest) {
                Err(error) if error.kind() == ErrorKind::Full => {}
                done => return done.map(|()| false),
            }
        }
        self.movers.publish(manifest).map(|()| true)
    }

    /// Hands the stage of a member to the leader.
    fn hand_over(&mut self, job: &SaveJob) -> Result<()> {
        let pool = self.pool.take().map_or_else(|| start_pool(self.threads), Ok)?;
        let group_job = GroupJob {
            settings: &self.settings,
            writer: self.writer,
            sequence: job.decision.sequence,
            declared: &job.declared,
            hasher: &job.hasher,
            pool: &pool,
        };
        let staging = &self.staging;
        let staged =
            self.group.write_stage(&group_job, &mut |take| each_batch(&job.feed, staging, take));
        self.pool = Some(pool);
        let (sealed, small, left) = staged?;
        let sequence = job.decision.sequence;
        if let Some(pack) = left {
            self.finish_for_leader(&pack)?;
        }
        let cost = restore_cost(&sealed.footer).saturating_add(small);
        let mut epoch = held(&self.epoch);
        epoch.committed(sequence, cost);
        // The leader counts the pack.
        epoch.is_aside(sequence, 0);
        drop(epoch);
        self.group.keep(sealed);
        self.origin.get_or_insert(Origin { run: None, sequence });
        Ok(())
    }

    /// Finishes the pack of a leader that is gone, and publishes its section.
    fn finish_for_leader(&mut self, pack: &EntrustedPack) -> Result<()> {
        let (names, part) = (Names::new(&self.settings.run), &pack.section.part);
        let key = names.pack(self.group.name(self.writer, part.sequence));
        if self.sections.is_some() {
            self.log.catch_up()?;
        }
        self.log.check()?;
        let store = self.settings.tiers.first();
        pack.write(store.as_ref(), &key)?;
        match &self.sections {
            Some(sections) => {
                let group = GroupOf { group: self.seat.group, groups: self.seat.groups };
                sections.publish(&mut self.log, part, group)
            }
            // The next opener of the run finds it on the node.
            None => commit_once(store.as_ref(), &names, &pack.section),
        }
    }

    /// Hands everything that changed to the aggregator.
    fn hand_to_aggregator(&mut self, job: &SaveJob) -> Result<()> {
        let pool = self.pool.take().map_or_else(|| start_pool(1), Ok)?;
        let sequence = job.decision.sequence;
        let group_job = GroupJob {
            settings: &self.settings,
            writer: self.writer,
            sequence,
            declared: &job.declared,
            hasher: &job.hasher,
            pool: &pool,
        };
        let time = job.time.unwrap_or_default();
        let labels = job.labels.clone();
        let decision = HandedDecision::new(job.decision, time, job.hasher.seed(), labels);
        let staging = &self.staging;
        let handed = self
            .group
            .hand_over(&group_job, decision, &mut |take| each_batch(&job.feed, staging, take));
        self.pool = Some(pool);
        held(&self.epoch).committed(sequence, handed?);
        let here = Origin { run: None, sequence };
        self.origin.get_or_insert(here.clone());
        self.parent = Some(here);
        Ok(())
    }

    /// Writes the pack; its manifest, and whether it is in the last tier.
    fn pack(&mut self, job: &SaveJob) -> Result<(SealedPack, Manifest, bool)> {
        let pool = self.pool.take().map_or_else(|| start_pool(self.threads), Ok)?;
        let name = self.group.name(self.writer, job.decision.sequence);
        let key = Names::new(&self.settings.run).pack(name);
        let (first, last) = (self.settings.tiers.first(), &self.settings.tiers.last);
        let (movers, carrier) = (&self.movers, &self.carrier);
        let make_room = || match carrier {
            Some(carrier) => carrier.make_room(),
            None => movers.make_room(),
        };
        let in_front = carrier.is_some() || !movers.is_empty();
        let make_room = in_front.then_some(&make_room as &(dyn Fn() + Sync));
        let goes_past = in_front && self.detour.take();
        let mut put = RoomyPut::new(first.as_ref(), last.as_ref(), key, make_room, goes_past)?;
        let sequence = job.decision.sequence;
        let epoch = self.origin.clone().unwrap_or(Origin { run: None, sequence });
        let (parent, writer, ranks) = (self.parent.clone(), self.writer, self.ranks);
        // The manifest of the checkpoint, or this group's part of it.
        let manifest = |group: &GroupWork, sealed: &SealedPack| {
            let mut manifest = group.draft(&self.settings.run, sealed, ranks);
            manifest.time = job.time.unwrap_or(manifest.time);
            (manifest.sequence, manifest.step) = (sequence, job.decision.step);
            (manifest.parent, manifest.epoch) = (parent.clone(), epoch.clone());
            (manifest.writer, manifest.seed) = (writer, job.hasher.seed());
            manifest.stats.blocked_ns = sealed.stats.blocked_ns;
            if self.seat.group == GroupId(0) {
                manifest.labels = job.labels.clone();
            }
            manifest
        };
        let group_job = GroupJob {
            settings: &self.settings,
            writer: self.writer,
            sequence: job.decision.sequence,
            declared: &job.declared,
            hasher: &job.hasher,
            pool: &pool,
        };
        let staging = &self.staging;
        let mut feed = |take: &mut TakeBatch| each_batch(&job.feed, staging, take);
        let sealed = match self.group.leader_with_deputy().is_some() {
            false => self.group.write(&group_job, &mut put, &mut feed),
            true => std::thread::scope(|scope| {
                // As much as the ranks of the group may stage.
                let limit = staging.limit().saturating_mul(self.seat.members.len() as u64);
                let mut kept = ImagePut::start(scope, &mut put, limit)?;
                let sealed = self.group.write(&group_job, &mut kept, &mut feed)?;
                if let (Some(leader), Some(image)) =
                    (self.group.leader_with_deputy(), kept.image()?)
                {
                    let (of, index) = (self.seat.groups, self.seat.group.0);
                    let part = manifest(&self.group, &sealed);
                    leader.entrust(&image, &Branch { of, level: 0, index, part });
                }
                kept.end().map(|()| sealed)
            }),
        };
        let in_first = !put.is_direct();
        let finished = sealed.is_ok().then(|| put.finish());
        self.pool = Some(pool);
        finished.iter().filter(|_| in_first).for_each(|finished| self.detour.came(finished));
        let (sealed, direct) = (sealed?, finished.transpose()?.unwrap_or(false));
        let manifest = manifest(&self.group, &sealed);
        Ok((sealed, manifest, direct))
    }
}

/// The output of an aggregator.
#[derive(Default)]
pub(crate) struct AggregatorTally {
    pub(crate) checkpoints: u64,
    pub(crate) failures: Vec<(Step, Error)>,
}

/// Writes the checkpoints that ranks hand to their aggregator, until all of them are gone.
pub(crate) fn serve(
    settings: WriterSettings,
    run: &ServedRun,
    aggregator: Aggregator,
    threads: usize,
    tally: &Mutex<AggregatorTally>,
) -> Result<()> {
    let mut opened = join(&settings.tiers, &run.run, run.ticket.clone());
    let members: Vec<Rank> = run.members.iter().map(|rank| Rank(*rank)).collect();
    let own = RankOf { rank: members.first().copied().unwrap_or_default(), ranks: run.ranks };
    let on_node = members.len() as u32;
    let seat = GroupSeat { group: run.group(), groups: run.groups, members, on_node };
    let outcomes = aggregator.outcomes.clone();
    let team = Team::Aggregator(Box::new(aggregator));
    let (staging, failures) = (Staging::new(0), Failures::default());
    let staged = Arc::default();
    let rank = SaverRank { own, seat, team, outcomes, staged, protected: false, threads };
    let notes = UpkeepNotes::default();
    let mut work = Work::new(settings, &mut opened, staging.clone(), failures, notes, rank)?;
    loop {
        let Team::Aggregator(aggregator) = &mut work.group.team else { return Ok(()) };
        match aggregator.next() {
            AggregatorTurn::End => return Ok(()),
            AggregatorTurn::Lost(sequence, error) => {
                aggregator.tell(sequence, Err(&error));
                work.begin_epoch();
            }
            AggregatorTurn::Look(rank) => {
                work.look_again();
                if let Team::Aggregator(aggregator) = &work.group.team {
                    aggregator.answer(rank);
                }
            }
            AggregatorTurn::Save(handed, stages) => {
                aggregator.stages = stages;
                if let Some(from) = &handed.resumed {
                    work.resume_handed(from);
                }
                drop(staging.begin_save());
                work.save(SaveJob::handed(&handed));
                let failed = work.failures.take();
                let mut tally = held(tally);
                tally.checkpoints += u64::from(failed.is_empty());
                tally.failures.extend(failed);
            }
        }
    }
}

impl SaveJob {
    /// A checkpoint whose bytes are there already.
    fn handed(handed: &HandedDecision) -> SaveJob {
        SaveJob {
            decision: handed.decision(),
            time: Some(handed.time),
            labels: handed.labels.clone(),
            hasher: Arc::new(Hasher::new(handed.seed)),
            declared: Vec::new(),
            progress: SaveProgress::default(),
            feed: channel().1,
        }
    }
}

impl Work {
    /// Goes on from the checkpoint that the ranks have restored. If its packs cannot be found, a delta to it fails.
    fn resume_handed(&mut self, from: &ResumedFrom) {
        let base = from.base.as_ref().and_then(|bytes| {
            let manifest = LogEntry::parse(bytes).ok()?.into_manifest()?;
            let group = read_group(self.settings.tiers.last.as_ref(), &manifest, self.seat.group);
            Some((manifest, group.ok()?, Vec::new()))
        });
        let parent = Some(Origin { run: None, sequence: Sequence(from.parent) });
        self.resume(Resume { base, parent });
    }
}

fn start_pool(threads: usize) -> Result<rayon::ThreadPool> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    let pool = pool.thread_name(|n| format!("treering-{n}")).build();
    let failed = |e| Error::io("cannot start the threads of a run", std::io::Error::other(e));
    pool.map_err(failed)
}

/// Takes the batches of a save up to its end; how long the program was held up.
fn each_batch(feed: &Receiver<Feed>, staging: &Staging, take: &mut TakeBatch) -> Result<Duration> {
    loop {
        match feed.recv() {
            Ok(Feed::Batch(batch)) => {
                staging.wait_for_turn();
                take(batch)?;
            }
            Ok(Feed::End { blocked }) => return Ok(blocked),
            Err(_) => {
                return Err(Error::new(
                    ErrorKind::Lost,
                    "the checkpoint was not captured to its end",
                ));
            }
        }
    }
}

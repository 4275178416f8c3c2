//! The feed of a program's arrays: one thread behind the program that writes its checkpoints.
//!
//! Every save has a channel of its own: batches, then the end. A channel that closes without an end is a
//! capture that failed, and the save fails with it; nothing of one save can be taken for part of another.

use super::ballot::Outcomes;
use super::epoch::{Decision, Epoch, Vote, decide, restore_cost};
use super::group::{GroupMember, GroupWriter, PackJob, SealedPack, Take, draft};
use super::handle::{Failures, SaveProgress, held};
use super::mover::{Movers, next};
use super::open::Opened;
use super::publish::LogWriter;
use super::roomy::RoomyPut;
use super::sections::Sections;
use super::{RankOf, WriterSettings};
use crate::array::{Sequence, Step, VariableKey};
use crate::capture::{Declared, StagedBatch, Staging};
use crate::compact::{AutoCompact, CompactionNotes};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Group, Manifest, Names, Origin, WriterId};
use crate::merkle::{Hasher, Tree};
use crate::pack::{Before, Keeper};
use crate::restore::{Checkpoint, Previous, RestoredVariable};
use crate::store::Store;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

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
    hasher: Arc<Hasher>,
    declared: Vec<Declared>,
    progress: SaveProgress,
    feed: Receiver<Feed>,
}

enum SaverMessage {
    Save(Box<SaveJob>),
    Resume(Box<Resume>),
    Drain(Sender<()>),
}

/// The checkpoint to go on from.
struct Resume {
    /// The manifest, the own group and the trees of its variables, if its epoch is the open one.
    base: Option<(Manifest, Group, Vec<(String, Tree)>)>,
    parent: Origin,
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

/// The program's end of the thread.
pub(crate) struct Saver {
    sender: Option<Sender<SaverMessage>>,
    thread: Option<JoinHandle<()>>,
    epoch: Arc<Mutex<Epoch>>,
    pub(crate) newest: Sequence,
    pub(crate) staging: Staging,
    own: RankOf,
}

impl Saver {
    pub(crate) fn start(
        settings: WriterSettings,
        opened: &mut Opened,
        staging: Staging,
        failures: Failures,
        notes: CompactionNotes,
        own: RankOf,
        outcomes: &Arc<Mutex<Outcomes>>,
    ) -> Result<Self> {
        let epoch = Arc::new(Mutex::new(Epoch::new(settings.growth)));
        let (last, rule) = (settings.tiers.last.clone(), settings.compaction);
        // The thread that commits to the last tier compacts it.
        let mut compact = (own.ranks == 1)
            .then(|| AutoCompact::new(last, &settings.run, rule, opened.files, notes));
        let moved = if opened.edges.is_empty() { None } else { compact.take() };
        let movers = Movers::start(std::mem::take(&mut opened.edges), &failures, &epoch, moved)?;
        let keeper = Keeper::new(settings.record, settings.encoding);
        let mut work = Work {
            store: opened.store.clone(),
            log: opened.log(settings.tiers.first(), settings.tiers.near.is_empty()),
            sections: (own.ranks > 1).then(|| {
                Sections::new(settings.tiers.last.clone(), &settings.run, outcomes.clone())
            }),
            published: Vec::new(),
            own,
            writer: opened.opening.writer,
            groups: [GroupWriter::new(own.group(), keeper)],
            origin: None,
            parent: None,
            previous: None,
            epoch: epoch.clone(),
            staging: staging.clone(),
            failures,
            movers,
            compact,
            pool: None,
            settings,
        };
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("treering-saver".into());
        let thread = thread.spawn(move || work.work(&receiver));
        let thread = thread.map_err(|e| Error::io("cannot start the threads of a run", e))?;
        let newest = opened.newest;
        Ok(Saver { sender: Some(sender), thread: Some(thread), epoch, newest, staging, own })
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
        (decision, time): (Decision, Option<u64>),
        vote: Vote,
        declared: Vec<Declared>,
        hasher: Arc<Hasher>,
    ) -> Capturing {
        self.newest = decision.sequence;
        held(&self.epoch).begin(decision, vote.state);
        let (sender, feed) = channel();
        let progress = SaveProgress::default();
        let job = SaveJob { decision, time, hasher, declared, progress: progress.clone(), feed };
        self.send(SaverMessage::Save(Box::new(job)));
        Capturing { decision, progress, sender, epoch: self.epoch.clone() }
    }

    /// Waits until everything is in the last tier or has failed.
    pub(crate) fn drain(&self) {
        let (done, wait) = channel();
        self.send(SaverMessage::Drain(done));
        let _ = wait.recv();
    }

    /// Goes on from a restored checkpoint; nothing is under way. With `restored`, its epoch goes on, too.
    pub(crate) fn resume(&self, checkpoint: &Checkpoint, restored: Option<&[RestoredVariable]>) {
        let manifest = checkpoint.manifest();
        let mut epoch = held(&self.epoch);
        match restored {
            Some(_) => {
                let own = self.own.group().0 as usize;
                let costs: Vec<u64> =
                    checkpoint.packs[own].iter().map(|pack| restore_cost(&pack.footer)).collect();
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
                let group = checkpoint.group(self.own.group())?.clone();
                Some((manifest.clone(), group, trees(restored)))
            }),
            parent: Origin { run: None, sequence: manifest.sequence },
        })));
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
    /// All tiers as one, for reading.
    store: Arc<dyn Store>,
    /// The log of the first tier.
    log: LogWriter,
    /// With several ranks: where their sections meet.
    sections: Option<Sections>,
    /// The sections that were published and whose outcome is not known.
    published: Vec<Sequence>,
    own: RankOf,
    writer: WriterId,
    groups: [GroupWriter; 1],
    /// The origin of the open epoch.
    origin: Option<Origin>,
    parent: Option<Origin>,
    /// The newest checkpoint, for differences to it.
    previous: Option<Previous>,
    epoch: Arc<Mutex<Epoch>>,
    staging: Staging,
    failures: Failures,
    movers: Movers,
    /// Only without nearer tiers.
    compact: Option<AutoCompact>,
    /// Its own threads, so that the program's capture never queues behind a save.
    pool: Option<rayon::ThreadPool>,
}

impl Work {
    fn work(&mut self, messages: &Receiver<SaverMessage>) {
        while let Ok(message) = next(messages, self.compact.as_mut()) {
            match message {
                SaverMessage::Save(job) => self.save(*job),
                SaverMessage::Resume(resume) => self.resume(*resume),
                SaverMessage::Drain(done) => {
                    self.movers.drain();
                    if let Some(sections) = &self.sections {
                        sections.look_again(&mut self.log, &mut self.published);
                    }
                    let _ = done.send(());
                }
            }
        }
        self.movers.drain();
    }

    fn resume(&mut self, Resume { base, parent }: Resume) {
        self.parent = Some(parent);
        self.groups[0].begin_epoch();
        (self.origin, self.previous) = (None, None);
        if let Some((manifest, group, trees)) = base {
            self.origin = Some(manifest.epoch.clone());
            let rank = self.own.rank;
            let trees = trees.into_iter().map(|(name, tree)| (VariableKey { rank, name }, tree));
            if self.sections.is_none() {
                self.previous = Some(Previous::new(self.store.clone(), manifest));
            }
            self.groups[0].resume(group, trees);
        }
    }

    fn save(&mut self, job: SaveJob) {
        // Also what comes before the first batch (giving back the record of the last epoch, opening files) would
        // take time from the capture.
        self.staging.wait_for_turn();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.write(&job)));
        let outcome = outcome.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Io, "a save ended in an internal error; please report it"))
        });
        // What is left of a save that has failed is taken in, so that its memory is free again.
        while job.feed.recv().is_ok() {}
        self.staging.end_save();
        let sequence = job.decision.sequence;
        match outcome {
            Ok((manifest, direct)) => {
                job.progress.reached_tier();
                self.compact.iter_mut().for_each(|compact| compact.committed(&manifest));
                match direct {
                    true => job.progress.durable(),
                    // The next vote, or the last, tells what has become of the others' sections.
                    false if self.sections.is_some() => {}
                    false => self.movers.send(manifest, job.progress),
                }
            }
            Err(error) => {
                let error = error.at(format!("{}@{}", self.settings.run, job.decision.step));
                self.groups[0].begin_epoch();
                (self.origin, self.previous) = (None, None);
                held(&self.epoch).failed(sequence);
                self.failures.add(job.decision.step, error.clone(), &job.progress);
                job.progress.failed(error);
            }
        }
    }

    /// Writes the pack and commits the manifest; whether they are in the last tier.
    fn write(&mut self, job: &SaveJob) -> Result<(Manifest, bool)> {
        if job.decision.whole {
            self.groups[0].begin_epoch();
            (self.origin, self.previous) = (None, None);
        } else if !self.groups[0].has_base() {
            return Err(Error::new(
                ErrorKind::Lost,
                "the save before it, on which this one builds, has failed",
            ));
        }
        if self.sections.is_some() {
            self.log.catch_up()?;
        }
        self.log.check()?;
        let (sealed, direct, blocked) = self.pack(job)?;
        let ranks = self.own.ranks;
        let mut manifest =
            draft(&self.settings.run, &self.groups, std::slice::from_ref(&sealed), ranks);
        manifest.time = job.time.unwrap_or(manifest.time);
        let sequence = job.decision.sequence;
        manifest.sequence = sequence;
        manifest.writer = self.writer;
        manifest.step = job.decision.step;
        manifest.parent = self.parent.clone();
        manifest.epoch = self.origin.clone().unwrap_or(Origin { run: None, sequence });
        manifest.seed = job.hasher.seed();
        manifest.stats.blocked_ns = blocked.as_nanos() as u64;
        let direct = self.publish(&manifest, direct)?;
        let cost = restore_cost(&sealed.footer);
        held(&self.epoch).committed(sequence, cost);
        self.groups[0].keep(self.groups[0].with(&sealed));
        self.origin = Some(manifest.epoch.clone());
        self.parent = Some(Origin { run: None, sequence });
        if self.sections.is_some() {
            return Ok((manifest, direct));
        }
        let packs = vec![sealed.into_pack()];
        match &mut self.previous {
            Some(previous) => previous.advance(manifest.clone(), packs),
            None => {
                let begun = Previous::begun(self.store.clone(), manifest.clone(), packs);
                self.previous = Some(begun);
            }
        }
        Ok((manifest, direct))
    }

    /// Commits the manifest where its pack is, or, if the first tier has no room for it, in the last.
    fn publish(&mut self, manifest: &Manifest, direct: bool) -> Result<bool> {
        if let Some(sections) = &self.sections {
            sections.publish(&mut self.log, manifest, self.own.group_of())?;
            self.published.push(manifest.sequence);
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

    /// Writes the pack; whether it is in the last tier, and how long the program was held up.
    fn pack(&mut self, job: &SaveJob) -> Result<(SealedPack, bool, Duration)> {
        let pool = self.pool.take().map_or_else(start_pool, Ok)?;
        let members: Vec<GroupMember> = job
            .declared
            .iter()
            .map(|d| GroupMember::own(self.own.rank, &d.description, d.rounded))
            .collect();
        let before = self.previous.as_ref().map(|previous| previous as &dyn Before);
        let [group] = &mut self.groups;
        let attempt = job.decision.sequence.0;
        let name = group.name(self.writer, attempt);
        let key = Names::new(&self.settings.run).pack(name);
        let (first, last) = (self.settings.tiers.first(), &self.settings.tiers.last);
        let mut put = RoomyPut::new(first.as_ref(), last.as_ref(), key, &self.movers)?;
        let mut blocked = None;
        let staging = &self.staging;
        let pack = PackJob {
            writer: self.writer,
            attempt,
            members: &members,
            hasher: &job.hasher,
            before,
            turns: false,
            pool: Some(&pool),
        };
        let sealed = group.write(&self.settings, pack, &mut put, |take| {
            blocked = Some(take_all(&job.feed, staging, take)?);
            Ok(())
        });
        self.pool = Some(pool);
        Ok((sealed?, put.finish()?, blocked.unwrap_or_default()))
    }
}

fn start_pool() -> Result<rayon::ThreadPool> {
    let pool = rayon::ThreadPoolBuilder::new().thread_name(|n| format!("treering-{n}")).build();
    let failed = |e| Error::io("cannot start the threads of a run", std::io::Error::other(e));
    pool.map_err(failed)
}

/// Takes the batches of a save up to its end; how long the program was held up.
fn take_all(feed: &Receiver<Feed>, staging: &Staging, take: &mut Take) -> Result<Duration> {
    loop {
        match feed.recv() {
            Ok(Feed::Batch(batch)) => {
                staging.wait_for_turn();
                take(&batch.strips, batch.staged.bytes())?;
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

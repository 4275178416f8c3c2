//! Behind the program: decide what is new, encode it, write the pack, commit the manifest.

use super::commit::LogWriter;
use super::mover::Mover;
use super::open::Opened;
use super::options::Options;
use super::save::{Failures, Progress};
use super::staging::{Staged, Staging};
use crate::array::{Description, Rounding};
use crate::codec::Nature;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Footer, Group, Kind, Manifest, Names, Origin, PackName, Seal, Stats, VariableEntry, header,
};
use crate::lineage::{ChunkSize, MAX_PACKS, Method};
use crate::merkle::{Digest, Hasher, Tree};
use crate::pack::{Before, Keeper, Packed, Packer, Plan, Strip};
use crate::restore::{Checkpoint, Previous, Restored};
use crate::store::Put;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The beginning of a save.
pub(super) struct Begin {
    pub(super) step: u64,
    pub(super) whole: bool,
    pub(super) hasher: Arc<Hasher>,
    pub(super) variables: Vec<Declared>,
    pub(super) progress: Progress,
}

/// A variable whose bytes will come, and how they were rounded.
pub(super) struct Declared {
    pub(super) description: Description,
    pub(super) rounded: Option<Rounding>,
}

/// What the worker is told, in order.
pub(super) enum Message {
    Begin(Begin),
    Batch { strips: Vec<Strip>, staged: Staged },
    End { changed: u64, blocked: Duration },
    Resume { base: Option<Base>, parent: Origin, trees: Vec<(String, Tree)>, costs: Vec<u64> },
    Drain(Sender<()>),
}

/// The checkpoint that the next delta builds on.
#[derive(Clone)]
pub(super) struct Base(Arc<Manifest>);

impl Base {
    fn group(&self) -> &Group {
        &self.0.groups[0]
    }
}

/// What both sides look at.
#[derive(Default)]
struct Shared {
    /// What restoring the first checkpoint of the open epoch costs; 0 while it is under way.
    whole: AtomicU64,
    /// What the deltas since then add to it.
    deltas: AtomicU64,
    /// The bytes of deltas that are under way.
    pending: AtomicU64,
    /// The newest delta: how many bytes had changed, and what it adds to a restore.
    newest: Mutex<Option<(u64, u64)>>,
    lost: AtomicBool,
}

/// The program's end of the worker.
pub(super) struct Worker {
    sender: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    pub(super) staging: Staging,
}

impl Worker {
    pub(super) fn start(
        options: &Options,
        opened: &mut Opened,
        failures: Failures,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let staging = Staging::new(options.staging);
        let (sender, receiver) = channel();
        let failed = |e| Error::io("cannot start the threads of a run", e);
        let pool = rayon::ThreadPoolBuilder::new().thread_name(|n| format!("treering-{n}")).build();
        let pool = pool.map_err(|e| failed(std::io::Error::other(e)))?;
        let mover = match opened.way.take() {
            Some(way) => Some(Mover::start(way, failures.clone())?),
            None => None,
        };
        let mut saver = Saver {
            log: LogWriter::new(options, opened),
            chunk: options.chunk,
            method: options.method,
            keeper: Keeper::new(options.record, options.encoding),
            base: None,
            parent: None,
            attempt: 0,
            shared: shared.clone(),
            staging: staging.clone(),
            failures,
            mover,
            pool,
        };
        let thread = std::thread::Builder::new().name("treering-saver".into());
        let thread = thread.spawn(move || saver.work(&receiver)).map_err(failed)?;
        Ok(Worker { sender: Some(sender), thread: Some(thread), shared, staging })
    }

    pub(super) fn send(&self, message: Message) {
        if let Some(sender) = &self.sender {
            // The worker outlives the sender; it ends only when this is dropped.
            let _ = sender.send(message);
        }
    }

    pub(super) fn begin(&mut self, begin: Begin) {
        if begin.whole {
            self.shared.whole.store(0, Ordering::SeqCst);
            self.shared.deltas.store(0, Ordering::SeqCst);
            self.shared.pending.store(0, Ordering::SeqCst);
        }
        self.send(Message::Begin(begin));
    }

    pub(super) fn end(&self, changed: u64, blocked: Duration) {
        self.shared.pending.fetch_add(changed, Ordering::SeqCst);
        self.send(Message::End { changed, blocked });
    }

    /// Whether another delta of `expected` bytes would make restores of this epoch too slow: more
    /// than `growth` times slower than that of its first checkpoint.
    pub(super) fn epoch_is_over(&self, state: u64, expected: u64, growth: f64) -> bool {
        let load = |value: &AtomicU64| value.load(Ordering::SeqCst);
        let whole = match load(&self.shared.whole) {
            0 => state,
            cost => cost,
        };
        let newest = *self.shared.newest.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Differences cost less than what changed.
        let share = match newest {
            Some((changed, cost)) if changed > 0 => (cost as f64 / changed as f64).min(1.0),
            _ => 1.0,
        };
        let coming = load(&self.shared.pending) + expected;
        load(&self.shared.deltas) as f64 + share * coming as f64 > growth * whole as f64
    }

    /// Whether a save has failed since the last call, so that the next one cannot build on it.
    pub(super) fn lineage_lost(&self) -> bool {
        self.shared.lost.swap(false, Ordering::SeqCst)
    }

    /// Waits until everything is durable or has failed.
    pub(super) fn drain(&self) {
        let (done, wait) = channel();
        self.send(Message::Drain(done));
        let _ = wait.recv();
    }

    /// Goes on from a restored checkpoint.
    pub(super) fn resume(&self, checkpoint: &Checkpoint, goes_on: bool, restored: &[Restored]) {
        let manifest = checkpoint.manifest();
        let base = goes_on.then(|| Base(Arc::new(manifest.clone())));
        self.send(Message::Resume {
            base,
            parent: Origin { run: None, sequence: manifest.sequence },
            trees: restored.iter().map(|r| (r.name.clone(), r.tree.clone())).collect(),
            costs: checkpoint.packs[0].iter().map(|pack| pack.footer.restore_cost()).collect(),
        });
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The worker's end.
struct Saver {
    log: LogWriter,
    chunk: ChunkSize,
    method: Method,
    keeper: Keeper,
    base: Option<Base>,
    parent: Option<Origin>,
    attempt: u64,
    shared: Arc<Shared>,
    staging: Staging,
    failures: Failures,
    mover: Option<Mover>,
    /// Its own threads, so that the program's capture never queues behind a save.
    pool: rayon::ThreadPool,
}

impl Saver {
    fn work(&mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Begin(begin) => self.save(begin, messages),
                Message::Resume { base, parent, trees, costs } => {
                    self.keeper.begin_epoch();
                    let trees = trees.into_iter().map(|(name, tree)| ((0, name), tree));
                    self.keeper.trees = trees.collect();
                    self.base = base;
                    self.parent = Some(parent);
                    self.shared.whole.store(costs.first().copied().unwrap_or(0), Ordering::SeqCst);
                    self.shared.deltas.store(costs.iter().skip(1).sum(), Ordering::SeqCst);
                }
                Message::Drain(done) => {
                    if let Some(mover) = &self.mover {
                        mover.drain();
                    }
                    let _ = done.send(());
                }
                // The rest of a save that has failed is taken in by `save`.
                Message::Batch { .. } | Message::End { .. } => {}
            }
        }
    }

    fn save(&mut self, begin: Begin, messages: &Receiver<Message>) {
        let mut ended = None;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.write(&begin, messages, &mut ended)));
        let outcome = outcome.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Io, "a save ended in an internal error; please report it"))
        });
        while ended.is_none() {
            match messages.recv() {
                Ok(Message::End { changed, blocked }) => ended = Some((changed, blocked)),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let changed = ended.map_or(0, |(changed, _)| changed);
        let took = |p: u64| Some(p.saturating_sub(changed));
        let _ = self.shared.pending.fetch_update(Ordering::SeqCst, Ordering::SeqCst, took);
        self.staging.end_save();
        match outcome {
            Ok(manifest) => self.hand_on(begin, manifest),
            Err(error) => {
                let error = error.at(format!("{}@{}", self.log.run, begin.step));
                self.base = None;
                self.keeper.begin_epoch();
                self.shared.lost.store(true, Ordering::SeqCst);
                self.failures.add(begin.step, error.clone());
                begin.progress.failed(error);
            }
        }
    }

    fn hand_on(&mut self, begin: Begin, manifest: Manifest) {
        match &self.mover {
            Some(mover) => {
                begin.progress.staged();
                mover.send(manifest, begin.progress);
            }
            None => begin.progress.durable(),
        }
    }

    /// Writes the pack and commits the manifest.
    fn write(
        &mut self,
        begin: &Begin,
        messages: &Receiver<Message>,
        ended: &mut Option<(u64, Duration)>,
    ) -> Result<Manifest> {
        let base = match begin.whole {
            true => None,
            false => Some(self.base.clone().ok_or_else(|| {
                Error::new(
                    ErrorKind::Lost,
                    "the save before it, on which this one builds, has failed",
                )
            })?),
        };
        if base.is_none() {
            self.keeper.begin_epoch();
            self.keeper.trees.clear();
        }
        self.mover.as_ref().map_or(Ok(()), Mover::check)?;
        let name = PackName { writer: self.log.writer, attempt: self.attempt, group: 0 };
        self.attempt += 1;
        let mut put = self.log.first.put(&Names::new(&self.log.run).pack(name))?;
        put.append(&header(Kind::Pack))?;
        let plan = self.plan(begin, name, base.as_ref())?;
        let previous = base
            .as_ref()
            .map(|base| Previous::new(self.log.store.clone(), Manifest::clone(&base.0)));
        let before = previous.as_ref().map(|previous| previous as &dyn Before);
        let packed = self.pack(plan, before, begin, messages, ended, put.as_mut())?;
        let (footer, mut stats) = packed;
        let (bytes, seal) = footer.write();
        put.append(&bytes)?;
        put.finish()?;
        stats.blocked_ns = ended.map_or(0, |(_, blocked)| blocked.as_nanos() as u64);
        let manifest = self.manifest(begin, base, name, seal, stats);
        let manifest = self.log.commit(manifest)?;
        let cost = footer.restore_cost();
        match footer.ordinal {
            0 => self.shared.whole.store(cost, Ordering::SeqCst),
            _ => drop(self.shared.deltas.fetch_add(cost, Ordering::SeqCst)),
        }
        if footer.ordinal > 0 {
            let changed = ended.map_or(0, |(changed, _)| changed);
            let mut newest =
                self.shared.newest.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            *newest = Some((changed, cost));
        }
        self.base = Some(Base(Arc::new(manifest.clone())));
        self.parent = Some(Origin { run: None, sequence: manifest.sequence });
        Ok(manifest)
    }

    fn plan(&self, begin: &Begin, name: PackName, base: Option<&Base>) -> Result<Plan> {
        let ordinal = base.map_or(0, |b| b.group().count());
        if ordinal >= u64::from(MAX_PACKS) - 1 {
            return Err(Error::new(ErrorKind::Limit, "the epoch has too many packs"));
        }
        let variables = begin.variables.iter().map(|Declared { description: d, rounded }| Packed {
            rank: 0,
            name: d.name.clone(),
            like: d.name.clone(),
            bytes: d.bytes().unwrap_or(0),
            nature: Nature::of(d).rounded(rounded.as_ref()),
            far: false,
        });
        Ok(Plan {
            run: self.log.run.clone(),
            name,
            ordinal: ordinal as u32,
            parent: base.map(|b| b.group().seal),
            chunk: self.chunk,
            method: self.method,
            variables: variables.collect(),
            turns: false,
        })
    }

    fn pack(
        &mut self,
        plan: Plan,
        before: Option<&dyn Before>,
        begin: &Begin,
        messages: &Receiver<Message>,
        ended: &mut Option<(u64, Duration)>,
        put: &mut dyn Put,
    ) -> Result<(Footer, Stats)> {
        let mut packer = Packer::new(plan, &begin.hasher, before);
        let mut sink = |bytes: &[u8]| put.append(bytes);
        loop {
            match messages.recv() {
                Ok(Message::Batch { strips, staged }) => {
                    self.staging.wait_for_turn();
                    let keeper = &mut self.keeper;
                    self.pool
                        .install(|| packer.take(keeper, &strips, staged.bytes(), &mut sink))?;
                }
                Ok(Message::End { changed, blocked }) => {
                    *ended = Some((changed, blocked));
                    let keeper = &mut self.keeper;
                    return self.pool.install(|| packer.finish(keeper, &mut sink));
                }
                _ => {
                    return Err(Error::new(
                        ErrorKind::Lost,
                        "the program ended during a checkpoint",
                    ));
                }
            }
        }
    }

    fn manifest(
        &mut self,
        begin: &Begin,
        base: Option<Base>,
        name: PackName,
        seal: Seal,
        stats: Stats,
    ) -> Manifest {
        let described: HashSet<&str> =
            begin.variables.iter().map(|d| d.description.name.as_str()).collect();
        self.keeper.retain(|(_, name)| described.contains(name.as_str()));
        let sequence = self.log.sequence + 1;
        let (mut group, epoch) = match base {
            Some(base) => (base.group().clone(), base.0.epoch.clone()),
            None => (Group { packs: Vec::new(), seal }, Origin { run: None, sequence }),
        };
        group.push(&self.log.run, name, seal);
        let variables =
            begin.variables.iter().map(|Declared { description, rounded }| VariableEntry {
                rank: 0,
                group: 0,
                description: description.clone(),
                chunk: self.chunk,
                root: self.root(description),
                rounded: *rounded,
                trees: Vec::new(),
            });
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Manifest {
            run: self.log.run.clone(),
            sequence,
            step: begin.step,
            time: time.as_millis() as u64,
            parent: self.parent.clone(),
            epoch,
            seed: begin.hasher.seed(),
            ranks: 1,
            groups: vec![group],
            variables: variables.collect(),
            stats,
        }
    }

    fn root(&self, description: &Description) -> Digest {
        let bytes = description.bytes().unwrap_or(0);
        let tree = self.keeper.trees.get(&(0, description.name.clone()));
        tree.map_or_else(|| Tree::default().root(bytes), |tree| tree.root(bytes))
    }
}

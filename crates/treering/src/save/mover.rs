//! From one tier to the next, behind the writer: one thread for each edge between two tiers.
//!
//! Packs before manifests, and checkpoints strictly in the order of their numbers: a checkpoint that
//! cannot be moved is tried again at the next one and at the end, and those behind it wait. So what a tier
//! holds up to the newest number of the next tier has reached that tier, whatever was pruned there since.
//! Copies of closed epochs leave a tier once the next one has them; when a tier is full, everything that
//! the next one has leaves it.

use super::epoch::Epoch;
use super::handle::{Failures, SaveProgress, held};
use super::publish::LogWriter;
use crate::array::Step;
use crate::compact::AutoCompact;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Footer, Manifest, Names, PackName, WriterId};
use crate::log::{FullManifest, Log};
use crate::merkle::checksum;
use crate::points::inherited;
use crate::restore::read_footer;
use crate::store::{Blob, BundledStore, Put, Store};
use crate::trace::{TracedKind, TracedWork};
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A checkpoint on its way to the next tier.
struct Moving {
    manifest: Manifest,
    progress: SaveProgress,
    /// Whether the program was told that it could not be moved.
    told: bool,
    /// Whether it goes to the last tier.
    shared: bool,
}

enum MoverMessage {
    Move(Box<Moving>),
    /// A checkpoint whose newest packs are in the next tier already.
    Publish(Box<Manifest>, Sender<Result<()>>),
    MakeRoom(Sender<()>),
    /// Lets the newest checkpoint go on that has stayed in front of the last tier.
    MoveNewest,
    /// Tries everything once more; whether nothing is left.
    Drain(Sender<bool>),
}

/// The writer's end of all edges.
pub(crate) struct Movers(Vec<Mover>);

struct Mover {
    sender: Option<Sender<MoverMessage>>,
    thread: Option<JoinHandle<()>>,
}

impl Movers {
    pub(crate) fn start(
        edges: Vec<Edge>,
        failures: &Failures,
        epoch: &Arc<Mutex<Epoch>>,
        mut compact: Option<AutoCompact>,
    ) -> Result<Self> {
        let mut movers: Vec<Mover> = Vec::new();
        // From the last edge to the first, so that each knows the next.
        for mut edge in edges.into_iter().rev() {
            let left = std::mem::take(&mut edge.left).into_iter();
            // Opening the run has reported them.
            let waiting = left.map(|manifest| Moving {
                manifest,
                progress: SaveProgress::default(),
                told: true,
                shared: true,
            });
            movers.push(Mover::start(Porter {
                edge,
                waiting: waiting.collect(),
                stayed: None,
                next: movers.last().and_then(|mover| mover.sender.clone()),
                failures: failures.clone(),
                epoch: epoch.clone(),
                compact: compact.take(),
            })?);
        }
        movers.reverse();
        Ok(Movers(movers))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Hands a checkpoint over that is complete in the first tier.
    pub(crate) fn send(&self, manifest: Manifest, progress: SaveProgress, shared: bool) {
        if let Some(first) = self.0.first() {
            let moving = Moving { manifest, progress, told: false, shared };
            first.tell(MoverMessage::Move(Box::new(moving)));
        }
    }

    /// Publishes a checkpoint in the last tier, behind everything that is on its way there.
    pub(crate) fn publish(&self, manifest: &Manifest) -> Result<()> {
        if !self.drain() {
            return Err(Error::new(
                ErrorKind::Io,
                "checkpoints that this one follows cannot be moved to the last tier",
            ));
        }
        let (done, wait) = channel();
        if let Some(last) = self.0.last() {
            last.tell(MoverMessage::Publish(Box::new(manifest.clone()), done));
        }
        wait.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Removes everything from the nearer tiers that the next ones have.
    pub(crate) fn make_room(&self) {
        for mover in self.0.iter().rev() {
            let (done, wait) = channel();
            mover.tell(MoverMessage::MakeRoom(done));
            let _ = wait.recv();
        }
    }

    /// Brings the newest checkpoint to the last tier, if it has stayed in front of it.
    pub(crate) fn move_newest(&self) {
        self.drain();
        self.0.last().into_iter().for_each(|last| last.tell(MoverMessage::MoveNewest));
    }

    /// Waits until everything is in the last tier or could not be moved; whether nothing is left.
    pub(crate) fn drain(&self) -> bool {
        let drained = |mover: &Mover| {
            let (done, wait) = channel();
            mover.tell(MoverMessage::Drain(done));
            wait.recv().unwrap_or(false)
        };
        // All of them, in order: what stays in front of one edge does not keep the others from trying.
        let ends: Vec<bool> = self.0.iter().map(drained).collect();
        ends.into_iter().all(|end| end)
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Io, "the thread that moves checkpoints to the next tier has ended")
}

impl Mover {
    fn start(mut porter: Porter) -> Result<Self> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("treering-mover".into());
        let spawned = thread.spawn(inherited(move || porter.work(&receiver)));
        let thread = spawned.map_err(|e| Error::io("cannot start the threads of a run", e))?;
        Ok(Mover { sender: Some(sender), thread: Some(thread) })
    }

    fn tell(&self, message: MoverMessage) {
        if let Some(sender) = &self.sender {
            // The thread ends only when this is dropped; a panic in it is caught.
            let _ = sender.send(message);
        }
    }
}

impl Drop for Movers {
    fn drop(&mut self) {
        // The first edge ends first: what it still hands on reaches the others.
        for mover in &mut self.0 {
            mover.sender = None;
            if let Some(thread) = mover.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// The thread of an edge.
struct Porter {
    edge: Edge,
    waiting: VecDeque<Moving>,
    /// The newest checkpoint that stays in front of the last tier, until a newer one is in it.
    stayed: Option<Box<Moving>>,
    next: Option<Sender<MoverMessage>>,
    failures: Failures,
    epoch: Arc<Mutex<Epoch>>,
    /// Only on the way to the last tier.
    compact: Option<AutoCompact>,
}

impl Porter {
    fn work(&mut self, messages: &Receiver<MoverMessage>) {
        while let Ok(message) = next(messages, self.compact.as_mut()) {
            match message {
                MoverMessage::Move(moving) if self.next.is_none() && !moving.shared => {
                    self.stayed = Some(moving);
                }
                MoverMessage::Move(moving) => {
                    self.waiting.push_back(*moving);
                    self.move_all();
                }
                MoverMessage::MoveNewest => {
                    self.move_all();
                    // Nothing newer has come through; it has a lower number than what still waits.
                    if let Some(stayed) = self.stayed.take() {
                        self.waiting.push_front(*stayed);
                        self.move_all();
                    }
                }
                MoverMessage::Publish(manifest, done) => {
                    let published = guarded(|| self.edge.publish(&manifest));
                    if published.is_ok() {
                        self.stayed = None;
                        self.compact.iter_mut().for_each(|compact| compact.committed(&manifest));
                    }
                    let _ = done.send(published.map(drop));
                }
                MoverMessage::MakeRoom(done) => {
                    self.move_all();
                    // Copies that cannot be removed stay, and the caller finds that there is no room.
                    let _ = guarded(|| self.edge.evict(None, &self.waiting));
                    let _ = done.send(());
                }
                MoverMessage::Drain(done) => {
                    self.move_all();
                    let _ = done.send(self.waiting.is_empty());
                }
            }
        }
    }

    /// Moves what waits, in order, up to the first that cannot be moved now.
    fn move_all(&mut self) {
        while let Some(moving) = self.waiting.pop_front() {
            let Manifest { run, step, .. } = &moving.manifest;
            let traced = TracedWork::begin(TracedKind::Move, run, Some(step.0));
            let moved = guarded(|| self.edge.publish(&moving.manifest));
            let error = match traced.end(moved, |bytes| (None, *bytes)) {
                Ok(_) => {
                    self.moved(moving);
                    continue;
                }
                Err(error) => error,
            };
            let hopeless = is_hopeless(&error);
            if hopeless {
                // Nothing that builds on it could be moved either.
                held(&self.epoch).failed(moving.manifest.sequence);
            }
            self.waiting.push_front(moving);
            self.report(&error);
            match hopeless {
                true => drop(self.waiting.pop_front()),
                false => return,
            }
        }
    }

    fn moved(&mut self, moving: Moving) {
        let number = moving.manifest.sequence;
        self.stayed.take_if(|stayed| stayed.manifest.sequence < number);
        self.compact.iter_mut().for_each(|compact| compact.committed(&moving.manifest));
        // Copies that cannot be removed now are removed after the next move.
        let _ = guarded(|| self.edge.evict(Some(&moving.manifest), &self.waiting));
        match &self.next {
            None => moving.progress.durable(),
            Some(next) => {
                moving.progress.reached_tier();
                let _ = next.send(MoverMessage::Move(Box::new(Moving { told: false, ..moving })));
            }
        }
    }

    /// Tells the program, once, about each checkpoint that could not be moved.
    fn report(&mut self, error: &Error) {
        for moving in self.waiting.iter_mut().filter(|moving| !moving.told) {
            moving.told = true;
            self.failures.add(moving.manifest.step, error.clone(), &moving.progress);
            moving.progress.failed(error.clone());
        }
    }
}

/// The next message. While there is none, small files are compacted.
pub(super) fn next<T>(
    messages: &Receiver<T>,
    compact: Option<&mut AutoCompact>,
) -> std::result::Result<T, RecvError> {
    let Some(compact) = compact.filter(|compact| compact.is_due()) else {
        return messages.recv();
    };
    match messages.try_recv() {
        Ok(message) => Ok(message),
        Err(_) => {
            compact.run_if_due();
            messages.recv()
        }
    }
}

/// A panic is a failure like any other: nobody may wait for this thread in vain.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Io, "a move ended in an internal error; please report it"))
    })
}

/// Whether trying again cannot help: the bytes themselves are bad, or somebody else has the number.
pub(super) fn is_hopeless(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Lost)
}

/// The way of packs from one tier to the next.
pub(crate) struct PackPath {
    pub(crate) from: Arc<dyn Store>,
    pub(crate) to: Arc<dyn Store>,
    /// The next tier, for reading.
    seen: Arc<dyn Store>,
    /// The other tiers: a full one is passed by, so what these two lack may be in one in front of them or behind them.
    in_front: Vec<Arc<dyn Store>>,
    behind: Vec<Arc<dyn Store>>,
    /// The packs that are durable in the next tier: a manifest there names them, or this process has seen to
    /// it.
    durable: HashSet<(String, PackName)>,
}

impl PackPath {
    pub(crate) fn new(from: Arc<dyn Store>, to: Arc<dyn Store>) -> PackPath {
        let seen: Arc<dyn Store> = Arc::new(BundledStore::new(to.clone()));
        PackPath {
            from,
            to,
            seen,
            in_front: Vec::new(),
            behind: Vec::new(),
            durable: HashSet::new(),
        }
    }

    pub(crate) fn is_durable(&self, pack: &(String, PackName)) -> bool {
        self.durable.contains(pack)
    }

    /// Brings packs over that the next tier lacks; the bytes that were copied.
    pub(crate) fn bring_all(
        &mut self,
        packs: impl IntoIterator<Item = (String, PackName)>,
    ) -> Result<u64> {
        let mut bytes = 0;
        for pack in packs {
            if !self.durable.contains(&pack) {
                bytes += self.bring(&pack)?;
                self.durable.insert(pack);
            }
        }
        Ok(bytes)
    }

    /// Takes packs for such as may be missing in the next tier.
    pub(crate) fn forget(&mut self, packs: impl IntoIterator<Item = (String, PackName)>) {
        for pack in packs {
            self.durable.remove(&pack);
        }
    }

    /// Brings a pack over. An object is whole under its name, so one that is there needs no second copy;
    /// whoever put it may have died before its name was durable.
    fn bring(&self, (run, name): &(String, PackName)) -> Result<u64> {
        let names = Names::new(run);
        let key = names.pack(*name);
        match (self.seen.open(&key), self.open_here(&key)) {
            (Ok(there), here) => {
                let (seal, _) = read_footer(there.as_ref(), false)?;
                if here
                    .is_ok_and(|here| read_footer(here.as_ref(), false).is_ok_and(|h| h.0 != seal))
                {
                    return Err(Error::damaged("another pack is in the place of this one").at(key));
                }
                self.to.settle(&names.packs())?;
                self.to.settle(&names.bundles())?;
                Ok(0)
            }
            (Err(error), _) if error.kind() != ErrorKind::NotFound => Err(error),
            (Err(_), Ok(here)) => copy(here.as_ref(), self.to.put(&key)?).map(|()| here.size()),
            (Err(_), Err(error)) if error.kind() == ErrorKind::NotFound => {
                match first_that_has(&self.behind, &key)? {
                    Some(_) => Ok(0),
                    None => Err(Error::damaged("a pack is in no tier").at(key)),
                }
            }
            (Err(_), Err(error)) => Err(error),
        }
    }

    /// Opens a pack in the nearer tier, or in one in front of it.
    fn open_here(&self, key: &str) -> Result<Box<dyn Blob>> {
        match self.from.open(key) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                first_that_has(&self.in_front, key)?.ok_or(error)
            }
            opened => opened,
        }
    }
}

/// Opens an object in the first store that has it.
fn first_that_has(stores: &[Arc<dyn Store>], key: &str) -> Result<Option<Box<dyn Blob>>> {
    for store in stores {
        match store.open(key) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => return opened.map(Some),
        }
    }
    Ok(None)
}

/// The fate of the checkpoints that an earlier process left.
#[derive(Default)]
pub(crate) struct RolledForward {
    /// Checkpoints that are in the next tier now.
    pub(crate) moved: Vec<Manifest>,
    /// Checkpoints that could not be moved: step and reason.
    pub(crate) trouble: Vec<(Step, Error)>,
}

/// Two neighbouring tiers of a run that this process has taken.
pub(crate) struct Edge {
    path: PackPath,
    log: LogWriter,
    /// The log of the last tier, only to learn whether the run is still this writer's.
    of_last: LogWriter,
    run: String,
    /// Checkpoints that an earlier process left, still to be moved.
    left: VecDeque<Manifest>,
    /// The last tier, for reading, and the writers whose entries were met here: whether they have opened this run.
    last: Arc<dyn Store>,
    writers: HashMap<WriterId, bool>,
}

impl Edge {
    /// The edge from the tier of that number, of all tiers, to the next one.
    pub(crate) fn new(
        (tiers, number): (&[Arc<dyn Store>], usize),
        (log, of_last): (LogWriter, LogWriter),
        run: &str,
        left: VecDeque<Manifest>,
    ) -> Result<Self> {
        let mut path = PackPath::new(tiers[number].clone(), tiers[number + 1].clone());
        path.in_front = tiers[..number].to_vec();
        let bundled =
            |tier: &Arc<dyn Store>| -> Arc<dyn Store> { Arc::new(BundledStore::new(tier.clone())) };
        path.behind = tiers[number + 2..].iter().map(bundled).collect();
        let there = Log::read(path.seen.clone(), run)?.survey().take_full(path.seen.as_ref());
        path.durable = there.iter().flat_map(FullManifest::packs).collect();
        let last = tiers.last().map_or_else(|| path.to.clone(), bundled);
        let (run, writers) = (run.to_string(), HashMap::from([(log.writer(), true)]));
        Ok(Edge { path, log, of_last, run, left, last, writers })
    }

    /// Brings over what an earlier process left, as far as that is possible now.
    pub(crate) fn roll_forward(&mut self) -> RolledForward {
        let mut rolled = RolledForward::default();
        let mut left = std::mem::take(&mut self.left);
        while let Some(manifest) = left.pop_front() {
            let Err(error) = self.publish(&manifest) else {
                rolled.moved.push(manifest);
                continue;
            };
            let hopeless = is_hopeless(&error);
            rolled.trouble.push((manifest.step, error));
            if !hopeless {
                left.push_front(manifest);
                break;
            }
        }
        self.left = left;
        rolled
    }

    /// Brings a checkpoint over: its packs, then its manifest; the bytes that were copied.
    fn publish(&mut self, manifest: &Manifest) -> Result<u64> {
        let published = self.bring_over(manifest);
        if published.as_ref().is_err_and(is_hopeless) {
            // Files that an overtaken writer lacks are no damage: the next one has removed them.
            self.of_last.catch_up_over_gaps()?;
        }
        published
    }

    fn bring_over(&mut self, manifest: &Manifest) -> Result<u64> {
        self.log.check()?;
        let full = FullManifest::read(self.path.from.as_ref(), manifest.clone())?;
        let bytes = self.path.bring_all(full.packs())?;
        if let Err(error) = self.log.commit(manifest) {
            // Nobody names the newest of them there yet, so they are looked for again the next time.
            self.path.forget(full.packs());
            return Err(error);
        }
        Ok(bytes)
    }

    /// Whether a writer has opened this run, and not another one of its name.
    fn is_of_run(&mut self, writer: WriterId) -> Result<bool> {
        if let Some(known) = self.writers.get(&writer) {
            return Ok(*known);
        }
        let known = Log::read(self.last.clone(), &self.run)?.was_opened_by(writer)?;
        self.writers.insert(writer, known);
        Ok(known)
    }

    /// Removes from the nearer tier what the next one has: of closed epochs, or without `newest` all of it.
    fn evict(&mut self, newest: Option<&Manifest>, waiting: &VecDeque<Moving>) -> Result<()> {
        let (from, run) = (&self.path.from.clone(), &self.run.clone());
        let names = Names::new(run);
        let log = Log::read(from.clone(), run)?;
        let mut entries = Vec::new();
        let mut needed: HashSet<(String, PackName)> = HashSet::new();
        let mut kept = Vec::new();
        for sequence in &log.sequences {
            let manifest = match log.manifest(*sequence) {
                // Nobody can use it.
                Err(error) if error.kind() == ErrorKind::Damaged => None,
                manifest => manifest?,
            };
            if let Some(manifest) = &manifest
                && !self.is_of_run(manifest.writer)?
            {
                continue;
            }
            let open = |m: &Manifest| newest.is_some_and(|newest| m.epoch == newest.epoch);
            let waits = waiting.iter().any(|moving| moving.manifest.sequence == *sequence);
            // A writer that was overtaken and has not noticed leaves what the next one has here.
            let later = |m: &Manifest| m.writer.opening > self.log.writer().opening;
            let later = manifest.as_ref().is_some_and(later);
            let moved = *sequence <= self.log.committed() && !waits && !later;
            match moved && !manifest.as_ref().is_some_and(open) {
                true => entries.push(names.entry(*sequence)),
                false => kept.extend(manifest),
            }
        }
        for manifest in kept.into_iter().chain(newest.cloned()) {
            needed.extend(FullManifest::read(from.as_ref(), manifest)?.packs());
        }
        from.delete(&entries)?;
        let mut packs = Vec::new();
        for item in from.list(&names.packs())? {
            let Some(name) = Names::parse_pack(&item.name) else { continue };
            let pack = (run.clone(), name);
            // Without `newest`, packs of checkpoints that wait here go, too, if the next tier has them.
            let moved =
                self.path.durable.contains(&pack) && (newest.is_none() || !needed.contains(&pack));
            // A checkpoint that stayed here, and that a later one in the next tier has replaced.
            let replaced = name.writer == self.log.writer()
                && name.attempt <= self.log.committed().0
                && !needed.contains(&pack);
            if moved || replaced {
                packs.push(names.pack(name));
            }
        }
        from.delete(&packs)
    }
}

/// Copies a pack, checking every frame on the way.
fn copy(from: &dyn Blob, mut to: Box<dyn Put>) -> Result<()> {
    let (_, footer): (_, Footer) = read_footer(from, false)?;
    let mut buffer = Vec::new();
    let mut at = 0;
    for frame in &footer.frames {
        buffer.resize((frame.position + frame.encoded - at) as usize, 0);
        from.read_at(at, &mut buffer)?;
        let encoded = &buffer[(frame.position - at) as usize..];
        if checksum(encoded) != frame.checksum {
            return Err(Error::damaged("a frame on the node is damaged; it was not moved on"));
        }
        to.append(&buffer)?;
        at = frame.position + frame.encoded;
    }
    buffer.resize((from.size() - at) as usize, 0);
    from.read_at(at, &mut buffer)?;
    to.append(&buffer)?;
    to.finish()
}

//! Taking a run: use up a sequence number, bring over and put right what an earlier process left.
//!
//! Opening commits an entry under the next sequence number of the last tier. That is what keeps writers
//! apart; the lock is only there to say so early and kindly.

use super::mover::Edge;
use super::publish::{Fence, LogWriter};
use super::sections::Sections;
use super::{Tiers, now};
use crate::array::{Sequence, Step};
use crate::compact::Bundler;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Groups, LogEntry, Manifest, Names, Opening, Origin, PackName, WriterId, check_run_name,
};
use crate::log::{FullManifest, Log, Survey, named_packs, settle_logs};
use crate::points::reach;
use crate::store::{BundledStore, Lock, Store, lock_patiently};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// The time for which to wait for a tool that is pruning the run.
const PATIENCE: Duration = Duration::from_secs(2);

/// A run that this process has taken.
pub(crate) struct Opened {
    /// All tiers as one.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) opening: Opening,
    /// The newest number that is in use.
    pub(crate) newest: Sequence,
    pub(crate) seed: u64,
    pub(crate) lock: Option<Lock>,
    /// From each tier to the next.
    pub(crate) edges: Vec<Edge>,
    pub(crate) fence: Fence,
    /// Checkpoints of an earlier process that could not be brought to the next tier: step and reason.
    pub(crate) trouble: Vec<(Step, Error)>,
    /// The number of files that the run had in the last tier, about.
    pub(crate) files: u64,
    /// Things the user should know.
    pub(crate) notes: Vec<String>,
}

impl Opened {
    /// The same, read through the stores in front.
    pub(crate) fn in_front(self, tiers: &Tiers) -> Opened {
        let store = tiers.together(BundledStore::new(tiers.last.clone()));
        Opened { store, ..self }
    }

    /// The number at which the epoch of the newest checkpoint began; 0 if that was in another run.
    pub(crate) fn open_epoch(&self) -> Option<u64> {
        let log = Log::read(self.store.clone(), &self.opening.run).ok()?;
        let epoch = log.newest_epoch()?;
        Some(if epoch.run.is_none() { epoch.sequence.0 } else { 0 })
    }

    /// The log of a tier.
    pub(crate) fn log(&self, store: &Arc<dyn Store>, last: bool) -> LogWriter {
        LogWriter::new(store.clone(), self.opening.clone(), last, self.fence.clone())
    }
}

/// The right of ranks that have had a run to open it once more.
#[derive(Clone, Debug)]
pub(crate) struct Succession {
    /// The random numbers of their own openings: those that they know of, and those that a rank of theirs may have
    /// made before it died.
    pub(crate) own: Vec<u64>,
    /// The random number of the next opening, which all of them know.
    pub(crate) next: u64,
}

impl Succession {
    /// Refuses to take a run from somebody else: its newest opening must be one of the own.
    fn check(&self, log: &Log) -> Result<()> {
        let newest = (!log.sequences.is_empty()).then(|| log.newest());
        for number in log.openings.last().copied().into_iter().chain(newest) {
            match log.entry(number)? {
                LogEntry::Opening(opening) if !self.own.contains(&opening.writer.nonce) => {
                    return Err(Error::new(
                        ErrorKind::Busy,
                        "another process has taken this run over",
                    )
                    .hint("end this one; it must not write any more"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The lock of a run; none where the store has no locks.
pub(crate) struct RunLock {
    lock: Option<Lock>,
    /// Why there is none although the store has locks.
    note: Option<String>,
}

/// Turns a second process away, where there are locks.
pub(crate) fn lock_run(
    tiers: &Tiers,
    run: &str,
    succession: Option<&Succession>,
) -> Result<RunLock> {
    check_run_name(run)?;
    match lock_patiently(tiers.last.as_ref(), &Names::new(run).lock(), PATIENCE) {
        // A rank that counts as dead may only be slow, and hold it: the number that is taken next fences it.
        Err(error) if error.kind() == ErrorKind::Busy && succession.is_some() => {
            let note = format!("the lock of run {run:?} is held by another process: {error}");
            Ok(RunLock { lock: None, note: Some(note) })
        }
        Ok(lock) => Ok(RunLock { lock, note: None }),
        Err(error) => Err(error.at(format!("run {run:?}"))),
    }
}

/// Takes a run, or, as successors, takes it once more.
pub(crate) fn open(tiers: &Tiers, run: &str, succession: Option<&Succession>) -> Result<Opened> {
    open_locked(tiers, run, lock_run(tiers, run, succession)?, succession)
}

/// Takes a run whose lock this process has.
pub(crate) fn open_locked(
    tiers: &Tiers,
    run: &str,
    RunLock { lock, note }: RunLock,
    succession: Option<&Succession>,
) -> Result<Opened> {
    let mut notes: Vec<String> = note.into_iter().collect();
    if lock.is_none() && notes.is_empty() {
        notes.push(format!(
            "{} has no file locks, so a second process that opens run {run:?} is not turned away: it \
             takes the run over, and the first one stops",
            tiers.last.name()
        ));
    }
    for tier in &tiers.near {
        match mark_tier(tier.as_ref(), tiers.last.as_ref(), run) {
            // A node that is full makes room later, or is passed by.
            Err(error) if error.kind() == ErrorKind::Full => {}
            marked => marked?,
        }
    }
    let view = BundledStore::new(tiers.last.clone());
    let store = tiers.together(view.clone());
    let (opening, left, files) = take(tiers, &view, run, succession)?;
    let (writer, fence) = (opening.writer, Fence::default());
    // Seeded per run, so that nobody can prepare data whose prints collide.
    let mut opened = Opened {
        store,
        newest: writer.opening,
        opening,
        seed: random(),
        lock,
        edges: Vec::new(),
        fence,
        trouble: Vec::new(),
        files,
        notes,
    };
    let waiting = left.adopt(tiers, run, &mut opened)?;
    clean(tiers, &opened.store, run, writer)?;
    reach("leftovers-removed");
    let all = tiers.all();
    // A checkpoint that has come to a tier goes on to the next.
    let mut came = Vec::new();
    for (number, left) in waiting.into_iter().enumerate() {
        let log = opened.log(&all[number + 1], number + 1 == tiers.near.len());
        let logs = (log, opened.log(&tiers.last, true));
        came.extend(left);
        came.sort_by_key(|manifest: &Manifest| manifest.sequence);
        let mut edge = Edge::new((&all, number), logs, run, came.into())?;
        let rolled = edge.roll_forward();
        opened.trouble.extend(rolled.trouble);
        came = rolled.moved;
        opened.edges.push(edge);
    }
    Ok(opened)
}

/// The ticket of the rank that has taken a run, for the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ticket {
    opening: u64,
    nonce: u64,
    time: u64,
    who: String,
    newest: u64,
    seed: u64,
    notes: Vec<String>,
    /// The number at which the open epoch begins, if nodes have to know.
    pub(crate) epoch: Option<u64>,
}

impl Ticket {
    /// The writer whose opening it is.
    pub(crate) fn writer(&self) -> WriterId {
        WriterId { opening: Sequence(self.opening), nonce: self.nonce }
    }
}

impl Opened {
    /// The ticket for the other ranks.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket {
            opening: self.opening.writer.opening.0,
            nonce: self.opening.writer.nonce,
            time: self.opening.time,
            who: self.opening.who.clone(),
            newest: self.newest.0,
            seed: self.seed,
            notes: self.notes.clone(),
            epoch: None,
        }
    }
}

/// Joins a run that another rank of the program has taken.
pub(crate) fn join(tiers: &Tiers, run: &str, ticket: Ticket) -> Opened {
    let writer = WriterId { opening: Sequence(ticket.opening), nonce: ticket.nonce };
    let (time, who) = (ticket.time, ticket.who);
    Opened {
        store: tiers.together(BundledStore::new(tiers.last.clone())),
        opening: Opening { run: run.to_string(), writer, time, who },
        newest: Sequence(ticket.newest),
        seed: ticket.seed,
        lock: None,
        edges: Vec::new(),
        fence: Fence::default(),
        trouble: Vec::new(),
        files: 0,
        notes: ticket.notes,
    }
}

/// A number that nobody can guess.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Uses up the next sequence number of the last tier: whoever had the run before was about to use that very
/// number, and cannot commit any more. Checkpoints in nearer tiers only are looked at first; if somebody else is
/// faster, everything is looked at again.
fn take(
    tiers: &Tiers,
    view: &BundledStore,
    run: &str,
    succession: Option<&Succession>,
) -> Result<(Opening, Leftovers, u64)> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let names = Names::new(run);
    let sections = Sections::new(tiers.last.clone(), run, Default::default());
    let nonce = succession.map_or_else(random, |succession| succession.next);
    for _ in 0..100 {
        let log = Log::read(Arc::new(view.clone()), run)?;
        succession.map_or(Ok(()), |succession| succession.check(&log))?;
        // A checkpoint of many ranks may lack nothing but its manifest.
        if sections.roll_forward(&log)? {
            continue;
        }
        let left = Leftovers::find(tiers, run, &log)?;
        let sequence: Sequence = log.newest().next();
        let opening = Opening {
            run: run.to_string(),
            writer: WriterId { opening: sequence, nonce },
            time: now(),
            who: format!("process {} on {host}", std::process::id()),
        };
        if tiers.last.commit(&names.entry(sequence), &opening.write())? {
            reach("opening-committed");
            // From here on, what earlier writers still commit behind this number counts for nothing.
            tiers.last.commit(&names.opening(sequence), &opening.write())?;
            reach("opening-announced");
            // A checkpoint that is not in a bundle takes two.
            let in_files = log.sequences.len().saturating_sub(view.bundled_entries(run));
            return Ok((opening, left, 2 * in_files as u64));
        }
    }
    Err(Error::new(ErrorKind::Busy, "other processes keep taking this run")
        .at(format!("run {run:?}")))
}

/// Checkpoints of earlier writers that are complete in a nearer tier and have not reached the last one.
///
/// A writer moves its checkpoints in order, and every opener takes the next number of the last tier. So what
/// has not been moved stands behind the newest number there; the opener goes on from it, and publishes it
/// again under its own numbers. Entries at or behind a later opening are given up:
/// another node has opened the run since. Everything else was moved, whatever was pruned since.
///
/// An opener may die, or find no room, before it has published all of them again. So an opening that nothing has
/// followed counts for nothing here, and the old entries go when all new ones are there: then all old ones are left, or
/// all new ones. Two entries of the same packs are one checkpoint. Only one thing is lost with such an opening: the packs
/// of a save that was under way then, whose writer may have lived on and committed it in front of the last tier.
#[derive(Default)]
struct Leftovers {
    /// In the order in which they were made.
    checkpoints: BTreeMap<LeftoverAge, Leftover>,
    /// Checkpoints that are given up, and their tiers.
    abandoned: Vec<(Manifest, usize)>,
    /// The newest number in the nearer tiers.
    newest: Sequence,
    notes: Vec<String>,
}

/// The opening and the number under which a checkpoint was first made, and its packs.
type LeftoverAge = (Sequence, u64, Vec<(String, PackName)>);

/// A checkpoint with all its entries.
struct Leftover {
    /// The newest of its entries.
    manifest: Manifest,
    /// The numbers of its entries, and the tiers that have them.
    entries: Vec<(Sequence, usize)>,
}

impl Leftover {
    fn places(&self) -> BTreeSet<usize> {
        self.entries.iter().map(|(_, place)| *place).collect()
    }
}

/// The age of a checkpoint, which stays the same under all its numbers.
fn age(full: &FullManifest) -> LeftoverAge {
    let own = (full.manifest.writer.opening, full.manifest.sequence.0);
    let made = full.made().map(|pack| (pack.writer.opening, pack.attempt)).max();
    let (opening, number) = made.unwrap_or(own);
    (opening, number, full.packs().collect())
}

/// Whether all packs of a checkpoint are in some tier; those of other runs are taken for granted.
fn is_complete(tiers: &Tiers, run: &str, full: &FullManifest) -> Result<bool> {
    let (names, store) = (Names::new(run), tiers.together(BundledStore::new(tiers.last.clone())));
    for (_, pack) in full.packs().filter(|(of, _)| of == run) {
        match store.open(&names.pack(pack)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => drop(opened?),
        }
    }
    Ok(true)
}

/// The newest entries of a log, behind which it has no checkpoint: openings, and marks of numbers that a writer has used for
/// none. A writer marks the numbers of checkpoints that stay on nodes, too, before it commits a later one, and may die
/// between.
#[derive(Default)]
struct EndOfLog {
    openings: BTreeSet<Sequence>,
    marks: BTreeSet<Sequence>,
}

impl EndOfLog {
    fn of(log: &Log) -> EndOfLog {
        let mut end = EndOfLog::default();
        for number in log.sequences.iter().rev().copied() {
            // One that was not announced any more is read.
            match log.openings.contains(&number) {
                true => drop(end.openings.insert(number)),
                false => match log.entry(number) {
                    Ok(LogEntry::Opening(_)) => drop(end.openings.insert(number)),
                    Ok(LogEntry::Mark(_)) => drop(end.marks.insert(number)),
                    _ => break,
                },
            }
        }
        end
    }
}

impl Leftovers {
    fn find(tiers: &Tiers, run: &str, last: &Log) -> Result<Leftovers> {
        let mut left = Leftovers::default();
        if tiers.near.is_empty() {
            return Ok(left);
        }
        let mut found = Vec::new();
        for (number, tier) in tiers.near.iter().enumerate() {
            let near = Log::read(tier.clone(), run)?;
            left.newest = left.newest.max(near.newest());
            for sequence in near.sequences.iter().copied() {
                match near.entry(sequence) {
                    Ok(LogEntry::Manifest(manifest)) => found.push((*manifest, number)),
                    Ok(_) => {}
                    Err(error) => {
                        let what = format!("an entry of {} cannot be read: {error}", tier.name());
                        left.notes.push(what);
                    }
                }
            }
        }
        // Openings that have made nothing, in the last tier or here: what was before them goes on.
        let EndOfLog { openings: mut idle, marks } = EndOfLog::of(last);
        for (manifest, place) in &found {
            let own = manifest.writer;
            if idle.contains(&own.opening) {
                let full = FullManifest::read(tiers.near[*place].as_ref(), manifest.clone())?;
                if full.made().any(|pack| pack.writer == own) {
                    idle.remove(&own.opening);
                }
            }
        }
        let is_used = |number: &&Sequence| !idle.contains(number) && !marks.contains(number);
        let used = last.sequences.iter().filter(is_used).max();
        let used = used.copied().unwrap_or_default();
        for (manifest, place) in found {
            let (own, sequence) = (manifest.writer.opening, manifest.sequence);
            let mut later = last.openings.iter().filter(|other| !idle.contains(other));
            if later.any(|other| own < *other && *other <= sequence) {
                left.abandoned.push((manifest, place));
            } else if sequence > used {
                let full = FullManifest::read(tiers.near[place].as_ref(), manifest)?;
                let behind = idle.iter().any(|other| own < *other && *other <= sequence);
                if behind && !is_complete(tiers, run, &full)? {
                    left.abandoned.push((full.manifest, place));
                    continue;
                }
                let entry = left.checkpoints.entry(age(&full));
                let manifest = full.manifest;
                let known = entry.or_insert_with(|| Leftover {
                    manifest: manifest.clone(),
                    entries: Vec::new(),
                });
                known.entries.push((sequence, place));
                if known.manifest.sequence < sequence {
                    known.manifest = manifest;
                }
            }
        }
        Ok(left)
    }

    /// Publishes them again under the numbers that follow the opening, in the tiers where they are; for each
    /// tier, those that are still to be moved to the next one.
    fn adopt(
        self,
        tiers: &Tiers,
        run: &str,
        opened: &mut Opened,
    ) -> Result<Vec<VecDeque<Manifest>>> {
        let names = Names::new(run);
        let mut waiting: Vec<VecDeque<Manifest>> =
            tiers.near.iter().map(|_| VecDeque::new()).collect();
        opened.notes.extend(self.notes);
        // Behind every number that is in use anywhere; the last tier gets marks for those between.
        opened.newest = opened.newest.max(self.newest);
        let mut renamed: HashMap<Sequence, Sequence> = HashMap::new();
        let mut known: HashSet<Vec<(String, PackName)>> = HashSet::new();
        let mut old_entries: Vec<Vec<String>> = tiers.near.iter().map(|_| Vec::new()).collect();
        for ((_, _, packs), leftover) in self.checkpoints {
            let sequence = opened.newest.next();
            let places = leftover.places();
            for (old, place) in &leftover.entries {
                renamed.insert(*old, sequence);
                old_entries[*place].push(names.entry(*old));
            }
            known.insert(packs);
            let mut manifest = leftover.manifest;
            (manifest.sequence, manifest.writer) = (sequence, opened.opening.writer);
            let rename = |origin: &mut Origin| {
                let new = origin.run.is_none().then(|| renamed.get(&origin.sequence)).flatten();
                new.into_iter().for_each(|new| origin.sequence = *new);
            };
            rename(&mut manifest.epoch);
            manifest.parent.iter_mut().for_each(rename);
            for place in &places {
                let tier = &tiers.near[*place];
                let published = tier.commit(&names.entry(sequence), &manifest.write());
                if !published.map_err(Error::on_node)? {
                    let what = "another process writes to the store of this node";
                    return Err(Error::new(ErrorKind::Busy, what)
                        .at(names.entry(sequence))
                        .hint("end it, and open the run again: nothing of it is lost"));
                }
                if !places.contains(&(place + 1)) {
                    waiting[*place].push_back(manifest.clone());
                }
            }
            opened.newest = sequence;
        }
        for (tier, old) in tiers.near.iter().zip(&old_entries) {
            tier.delete(old)?;
        }
        let mut given_up: BTreeMap<usize, BTreeSet<Step>> = BTreeMap::new();
        for (manifest, place) in self.abandoned {
            tiers.near[place].delete(&[names.entry(manifest.sequence)])?;
            // An earlier opener may have published it again and died before it had removed this one.
            let step = manifest.step;
            let full = FullManifest::read(tiers.near[place].as_ref(), manifest)?;
            if !known.contains(&full.packs().collect::<Vec<_>>()) {
                given_up.entry(place).or_default().insert(step);
            }
        }
        for (place, steps) in given_up {
            let steps: Vec<String> = steps.iter().map(Step::to_string).collect();
            opened.notes.push(format!(
                "checkpoints of steps {} were on {} only and are given up: the run was opened elsewhere \
                 since, and continues from the newest checkpoint of the last tier",
                steps.join(", "),
                tiers.near[place].name()
            ));
        }
        Ok(waiting)
    }
}

/// Makes sure that the stores in front can be written to.
pub(crate) fn probe(tiers: &Tiers, run: &str) -> Result<()> {
    tiers.near.iter().try_for_each(|tier| {
        let written = mark_tier(tier.as_ref(), tiers.last.as_ref(), run);
        // The mark may be there already. An object that is dropped before it is finished leaves nothing.
        let written = written.and_then(|()| tier.put(&Names::new(run).probe(random())).map(drop));
        match written {
            // A node that is full makes room later, or is passed by.
            Err(error) if error.kind() == ErrorKind::Full => Ok(()),
            Err(error) => {
                let what = format!("the store of a node cannot be written to: {error}");
                Err(Error::new(error.kind(), what).at(tier.name()))
            }
            Ok(()) => Ok(()),
        }
    })
}

/// Says in a tier in front of others that it is one, so that tools do not take it for the whole store.
fn mark_tier(store: &dyn Store, last: &dyn Store, run: &str) -> Result<()> {
    store.commit(&Names::new(run).tier(), last.name().as_bytes()).map(drop)
}

/// Removes what unfinished saves of earlier writers left behind. Each tier is asked by itself: one that cannot be listed
/// may hold the manifests that name a pack.
fn clean(tiers: &Tiers, store: &Arc<dyn Store>, run: &str, writer: WriterId) -> Result<()> {
    let (names, last) = (Names::new(run), &tiers.last);
    let seen: Arc<dyn Store> = Arc::new(BundledStore::new(last.clone()));
    let all = || tiers.near.iter().chain([&seen]);
    // A compaction whose unfinished bundle goes here starts again.
    last.sweep(&names.bundles())?;
    let named_by_any = || -> Result<HashSet<PackName>> {
        let named: Vec<_> = all().map(|tier| named_packs(tier, run)).collect::<Result<_>>()?;
        Ok(named.into_iter().flatten().collect())
    };
    match Bundler::new(last.clone(), run).tidy(&named_by_any, &BTreeSet::new()) {
        // A manifest or a bundle that cannot be read may need anything, and a full disk takes no void index.
        Err(error) if error.kind() == ErrorKind::Io => return Err(error),
        _ => {}
    }
    store.sweep(&names.log())?;
    store.sweep(&names.packs())?;
    // Somebody who has taken the run meanwhile may be writing already.
    let is_earlier = |other: WriterId| other.opening <= writer.opening && other != writer;
    clean_branches(last.as_ref(), &names, &Log::read(seen.clone(), run)?.survey(), &is_earlier)?;
    let (mut earlier, mut named, mut unknown) = (HashSet::new(), HashSet::new(), false);
    for tier in all() {
        let packs = tier.list(&names.packs())?;
        let packs = packs.iter().filter_map(|item| Names::parse_pack(&item.name));
        earlier.extend(packs.filter(|pack| is_earlier(pack.writer)));
        let mut own = Log::read(tier.clone(), run)?.survey();
        let full = own.take_full(tier.as_ref());
        named.extend(full.iter().flat_map(FullManifest::packs).map(|(_, pack)| pack));
        unknown |= !own.unreadable.is_empty();
    }
    // Most are named by this run: then no other run needs to be read.
    earlier.retain(|pack| !named.contains(pack));
    // A manifest that cannot be read may name any of them: then nothing is removed.
    if earlier.is_empty() || unknown {
        return Ok(());
    }
    let Ok(named) = named_by_any() else {
        return Ok(());
    };
    settle_logs(store)?;
    let unnamed = earlier.into_iter().filter(|pack| !named.contains(pack));
    store.delete(&unnamed.map(|pack| names.pack(pack)).collect::<Vec<_>>())
}

/// Removes the sections of earlier writers, and the branches whose checkpoint does not exist.
fn clean_branches(
    last: &dyn Store,
    names: &Names,
    log: &Survey,
    is_earlier: &dyn Fn(WriterId) -> bool,
) -> Result<()> {
    let has_branches = |manifest: &&Manifest| matches!(manifest.groups, Groups::Below(_));
    let manifests = log.manifests.iter().filter(has_branches);
    let needed: HashSet<_> = manifests.map(|m| (m.sequence, m.writer)).collect();
    let unknown: HashSet<_> = log.unreadable.iter().map(|(sequence, _)| *sequence).collect();
    for folder in [names.sections(), names.branches()] {
        last.sweep(&folder)?;
        let items = last.list(&folder)?;
        let all = items.iter().filter_map(|item| Names::parse_branch(&item.name));
        let goes = all.filter(|branch| {
            let needed = needed.contains(&(branch.sequence, branch.writer));
            let needed = needed || unknown.contains(&branch.sequence);
            is_earlier(branch.writer) && (branch.level == 0 || !needed)
        });
        let keys: Vec<String> = goes.map(|branch| names.branch(branch)).collect();
        if !keys.is_empty() {
            last.delete(&keys)?;
        }
    }
    Ok(())
}

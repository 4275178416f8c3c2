//! Taking a run: use up a sequence number, bring over and put right what an earlier process left.
//!
//! Opening commits an entry under the next sequence number of the last tier. That is what keeps writers
//! apart; the lock is only there to say so early and kindly.

use super::leftovers::Leftovers;
use super::mover::Edge;
use super::publish::{Fence, LogWriter};
use super::sections::Sections;
use super::{Tiers, now};
use crate::array::{Sequence, Step};
use crate::comm::wire;
use crate::compact::Bundler;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Groups, LogEntry, Manifest, Names, Opening, PackName, WriterId, check_run_name,
};
use crate::log::{FullManifest, Log, Survey, named_packs, remove_stale_openings, settle_logs};
use crate::points::reach;
use crate::store::{BundledStore, Lock, Store, lock_patiently};
use std::collections::{BTreeSet, HashSet};
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
#[derive(Clone, Debug, PartialEq, Eq)]
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

wire! { struct Ticket { opening, nonce, time, who, newest, seed, notes, epoch } }

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

/// Commits an opening under its number, and says that it is there; `None` if somebody else has the number.
pub(crate) fn announce(last: &dyn Store, run: &str, writer: WriterId) -> Result<Option<Opening>> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let who = format!("process {} on {host}", std::process::id());
    let opening = Opening { run: run.to_string(), writer, time: now(), who };
    let names = Names::new(run);
    if !last.commit(&names.entry(writer.opening), &opening.write())? {
        return Ok(None);
    }
    reach("opening-committed");
    // From here on, what earlier writers still commit behind this number counts for nothing.
    last.commit(&names.opening(writer.opening), &opening.write())?;
    reach("opening-announced");
    Ok(Some(opening))
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
    let sections = Sections::new(tiers.last.clone(), run, Default::default());
    let nonce = succession.map_or_else(random, |succession| succession.next);
    for _ in 0..100 {
        let log = Log::read(Arc::new(view.clone()), run)?;
        succession.map_or(Ok(()), |succession| succession.check(&log))?;
        // What an earlier run of this name has announced would overtake this one.
        if remove_stale_openings(tiers.last.as_ref(), &log)? {
            continue;
        }
        // A checkpoint of many ranks may lack nothing but its manifest.
        if sections.roll_forward(&log)? {
            continue;
        }
        let left = Leftovers::find(tiers, run, &log)?;
        let writer = WriterId { opening: log.newest().next(), nonce };
        if let Some(opening) = announce(tiers.last.as_ref(), run, writer)? {
            // A checkpoint that is not in a bundle takes two.
            let in_files = log.sequences.len().saturating_sub(view.bundled_entries(run));
            return Ok((opening, left, 2 * in_files as u64));
        }
    }
    Err(Error::new(ErrorKind::Busy, "other processes keep taking this run")
        .at(format!("run {run:?}")))
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
    let log = Log::read(seen.clone(), run)?;
    clean_branches(last.as_ref(), &names, &log.survey(), &is_earlier)?;
    let (mut earlier, mut named, mut unknown) = (HashSet::new(), HashSet::new(), false);
    for (number, tier) in all().enumerate() {
        let packs = tier.list(&names.packs())?;
        let packs = packs.iter().filter_map(|item| Names::parse_pack(&item.name));
        for pack in packs.filter(|pack| is_earlier(pack.writer)) {
            // A node may hold those of another run of this name.
            if number == tiers.near.len() || log.was_opened_by(pack.writer)? {
                earlier.insert(pack);
            }
        }
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

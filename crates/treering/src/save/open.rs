//! Taking a run: use up a sequence number, bring over and put right what an earlier process left.
//!
//! Opening commits an entry under the next sequence number of the last tier. That is what keeps writers
//! apart; the lock is only there to say so early and kindly.

use super::mover::{Backlog, Edge};
use super::publish::{Fence, LogWriter};
use super::{Tiers, now};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Names, Opening, Sequence, WriterId, check_run_name};
use crate::log::{Log, named_packs, packs_of, settle_logs};
use crate::store::{Lock, Store, lock_patiently};
use std::collections::HashSet;
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
    pub(crate) seed: u64,
    pub(crate) lock: Option<Lock>,
    /// From each tier to the next.
    pub(crate) edges: Vec<Edge>,
    pub(crate) fence: Fence,
    /// Checkpoints of an earlier process that could not be brought to the next tier: step and reason.
    pub(crate) trouble: Vec<(u64, Error)>,
    /// Things the user should know.
    pub(crate) notes: Vec<String>,
}

impl Opened {
    /// The log of a tier.
    pub(crate) fn log(&self, store: &Arc<dyn Store>, last: bool) -> LogWriter {
        LogWriter::new(store.clone(), self.opening.clone(), last, self.fence.clone())
    }
}

pub(crate) fn open(tiers: &Tiers, run: &str) -> Result<Opened> {
    check_run_name(run)?;
    let mut notes = Vec::new();
    let lock = lock_patiently(tiers.last.as_ref(), &Names::new(run).lock(), PATIENCE);
    let lock = lock.map_err(|error| error.at(format!("run {run:?}")))?;
    if lock.is_none() {
        notes.push(format!(
            "{} has no file locks, so a second process that opens run {run:?} is not turned away: it \
             takes the run over, and the first one stops",
            tiers.last.name()
        ));
    }
    let store = tiers.together();
    let openings = match tiers.near.is_empty() {
        true => Vec::new(),
        false => Log::read(tiers.last.clone(), run)?.survey().openings,
    };
    let (mut backlogs, mut trouble) = (Vec::new(), Vec::new());
    for (from, to, last) in tiers.edges() {
        mark_tier(from.as_ref(), tiers.last.as_ref(), run)?;
        let mut backlog = Backlog::new(from, to, &openings, run, &mut notes)?;
        trouble.extend(backlog.roll_forward());
        backlogs.push((backlog, last));
    }
    let opening = take(&store, run)?;
    clean(&store, run, opening.writer)?;
    // Seeded per run, so that nobody can prepare data whose prints collide.
    let (seed, fence) = (random(), Fence::default());
    let mut opened =
        Opened { store, opening, seed, lock, edges: Vec::new(), fence, trouble, notes };
    for (backlog, last) in backlogs {
        let log = opened.log(backlog.to(), last);
        opened.edges.push(Edge::new(backlog, log));
    }
    Ok(opened)
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Uses up the next sequence number: whoever had the run before cannot commit any more.
fn take(store: &Arc<dyn Store>, run: &str) -> Result<Opening> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for _ in 0..100 {
        let sequence: Sequence = Log::read(store.clone(), run)?.newest().next();
        let opening = Opening {
            run: run.to_string(),
            writer: WriterId { opening: sequence, nonce: random() },
            time: now(),
            who: format!("process {} on {host}", std::process::id()),
        };
        if store.commit(&Names::new(run).entry(sequence), &opening.write())? {
            return Ok(opening);
        }
    }
    Err(Error::new(ErrorKind::Busy, "other processes keep taking this run")
        .at(format!("run {run:?}")))
}

/// Says in a tier in front of others that it is one, so that tools do not take it for the whole store.
fn mark_tier(store: &dyn Store, last: &dyn Store, run: &str) -> Result<()> {
    store.commit(&Names::new(run).tier(), last.name().as_bytes()).map(drop)
}

/// Removes what unfinished saves of earlier writers left behind.
fn clean(store: &Arc<dyn Store>, run: &str, writer: WriterId) -> Result<()> {
    let names = Names::new(run);
    store.sweep(&names.log())?;
    let packs = store.list(&names.packs())?;
    let packs = packs.iter().filter_map(|item| Names::parse_pack(&item.name));
    // Somebody who has taken the run meanwhile may be writing already.
    let is_earlier = |other: WriterId| other.opening <= writer.opening && other != writer;
    let mut earlier: Vec<_> = packs.filter(|pack| is_earlier(pack.writer)).collect();
    // Most are named by this run: then no other run needs to be read.
    let own = Log::read(store.clone(), run)?.survey();
    let named: HashSet<_> = own.manifests.iter().flat_map(packs_of).map(|(_, pack)| pack).collect();
    earlier.retain(|pack| !named.contains(pack));
    // A manifest that cannot be read may name any of them: then nothing is removed.
    if earlier.is_empty() || !own.unreadable.is_empty() {
        return Ok(());
    }
    let Ok(named) = named_packs(store, run) else {
        return Ok(());
    };
    settle_logs(store)?;
    let unnamed = earlier.into_iter().filter(|pack| !named.contains(pack));
    store.delete(&unnamed.map(|pack| names.pack(pack)).collect::<Vec<_>>())
}

//! Taking a run: lock it, use up a sequence number, put right what a crash left.

use super::mover::Way;
use super::options::Options;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Names, Opening};
use crate::log::{Log, named_packs, settle_logs};
use crate::store::{Lock, Store, TieredStore, lock_patiently};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long to wait for a tool that is pruning the run.
const PATIENCE: Duration = Duration::from_secs(2);

/// A run that this process has taken.
pub(crate) struct Opened {
    /// All tiers as one.
    pub(crate) store: Arc<dyn Store>,
    /// The sequence number of the opening, which names this writer.
    pub(crate) writer: u64,
    pub(crate) seed: u64,
    pub(crate) lock: Lock,
    /// From the node to the shared store, if there are two.
    pub(crate) way: Option<Way>,
    /// What an earlier process left on the node and could not be brought over: step and reason.
    pub(crate) trouble: Vec<(u64, Error)>,
}

pub(crate) fn open(options: &Options) -> Result<Opened> {
    options.check()?;
    let run = &options.run;
    let names = Names::new(run);
    let lock = lock_patiently(options.shared.as_ref(), &names.lock(), PATIENCE);
    let lock = lock.map_err(|error| error.at(format!("run {run:?}")))?;
    let (mut way, mut trouble) = (None, Vec::new());
    let store: Arc<dyn Store> = match &options.node {
        Some(node) => {
            let mut there = Way::new(node.clone(), options.shared.clone(), run)?;
            trouble = there.roll_forward(run)?;
            way = Some(there);
            Arc::new(TieredStore::new(node.clone(), options.shared.clone()))
        }
        None => options.shared.clone(),
    };
    let writer = take(&store, run)?;
    clean(&store, run, writer)?;
    // Seeded per run, so that nobody can prepare data whose prints collide.
    let seed = RandomState::new().build_hasher().finish();
    Ok(Opened { store, writer, seed, lock, way, trouble })
}

/// Uses up the next sequence number: whoever had the run before cannot commit any more.
fn take(store: &Arc<dyn Store>, run: &str) -> Result<u64> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for _ in 0..100 {
        let sequence = Log::read(store.clone(), run)?.newest() + 1;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let opening = Opening {
            run: run.to_string(),
            sequence,
            time: time.as_millis() as u64,
            writer: format!("process {} on {host}", std::process::id()),
        };
        if store.commit(&Names::new(run).entry(sequence), &opening.write())? {
            return Ok(sequence);
        }
    }
    Err(Error::new(ErrorKind::Busy, "other processes keep taking this run")
        .at(format!("run {run:?}")))
}

/// Removes what unfinished saves of earlier writers left behind.
fn clean(store: &Arc<dyn Store>, run: &str, writer: u64) -> Result<()> {
    let names = Names::new(run);
    store.sweep(&names.log())?;
    let packs = store.list(&names.packs())?;
    let packs = packs.iter().filter_map(|item| Names::parse_pack(&item.name));
    let earlier: Vec<_> = packs.filter(|pack| pack.writer < writer).collect();
    if earlier.is_empty() {
        return Ok(());
    }
    // A manifest that cannot be read may name any of them: then nothing is removed.
    let Ok(named) = named_packs(store) else {
        return Ok(());
    };
    settle_logs(store)?;
    let unnamed = earlier.into_iter().filter(|pack| !named.contains(&(run.to_string(), *pack)));
    store.delete(&unnamed.map(|pack| names.pack(pack)).collect::<Vec<_>>())
}

//! The tools on runs of several ranks: beside running ranks, after damage, and while the store is full.

use crate::support::{assert_sound, keep};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use treering::testing::{Call, HookedStore, Locks};
use treering::{
    ChunkSize, Comm, Compaction, DirectoryStore, Encoding, End, Error, ErrorKind, Library,
    MemoryStore, Options, Run, Store, ThreadRanks, Variable, VariableMut,
};

const RANKS: u32 = 3;
/// The ranks that share a pack at most, and the groups that they form: one of two ranks, and one of one.
const PER_PACK: u32 = 2;
const GROUPS: usize = 2;
const LONG: Duration = Duration::from_secs(120);
const ALL: Compaction = Compaction { files: 3, pack_bytes: 1 << 20 };

fn options(store: &Arc<dyn Store>, comm: &Arc<dyn Comm>) -> Options {
    let options = Options::in_store(store.clone(), "r").ranks(comm.clone()).patience(LONG);
    let options = options.ranks_per_pack(PER_PACK);
    options.chunk(ChunkSize::new(64).unwrap()).encoding(Encoding::Raw)
}

fn memory(locks: Locks) -> Arc<dyn Store> {
    Arc::new(HookedStore::with_locks(Arc::new(MemoryStore::new()), locks))
}

/// The state of a rank at a step; its length grows.
fn state(rank: u32, step: u64) -> Vec<u64> {
    (0..300 + 7 * step)
        .map(|at| at * 31 + u64::from(rank) + step * u64::from(at % 50 == 0))
        .collect()
}

fn save(run: &mut Run, comm: &dyn Comm, step: u64) -> treering::Save {
    let values = state(comm.rank().0, step);
    run.checkpoint(step, &[Variable::new("values", &values)]).unwrap()
}

fn restore(run: &mut Run, comm: &dyn Comm) -> Option<(u64, Vec<String>)> {
    let mut values: Vec<u64> = Vec::new();
    let restored = run.restore(&mut [VariableMut::growing("values", &mut values)]).unwrap()?;
    assert!(values == state(comm.rank().0, restored.step), "step {}", restored.step);
    Some((restored.step, restored.notes))
}

fn all_done<T: std::fmt::Debug>(ends: Vec<End<T>>) -> Vec<T> {
    let shown = format!("{ends:?}");
    let done: Vec<T> = ends.into_iter().filter_map(End::done).collect();
    assert!(!shown.contains("Killed") && !shown.contains("Panicked"), "{shown}");
    done
}

/// Ranks that go on from what is there and save some more steps; the step that was restored.
fn go_on(store: &Arc<dyn Store>, more: u64) -> Option<u64> {
    let shared = store.clone();
    let ends = ThreadRanks::new(RANKS).run(move |comm| {
        let mut run = Run::open(options(&shared, &comm)).unwrap();
        let restored = restore(&mut run, &*comm).map(|(step, _)| step);
        let first = restored.map_or(0, |step| step + 1);
        (first..first + more).for_each(|step| drop(save(&mut run, &*comm, step)));
        run.finish().unwrap();
        restored
    });
    let restored = all_done(ends);
    assert!(restored.iter().all(|step| *step == restored[0]), "{restored:?}");
    restored[0]
}

fn steps(store: &Arc<dyn Store>) -> Vec<u64> {
    let (all, trouble) = Library::of(store.clone()).checkpoints("r").unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    assert!(all.iter().all(|info| info.ranks == RANKS));
    all.iter().map(|info| info.step).collect()
}

#[test]
fn tools_keep_runs_of_ranks_whole() {
    for locks in [Locks::Real, Locks::Lying, Locks::None] {
        let store = memory(locks);
        go_on(&store, 6);
        let library = Library::of(store.clone());
        library.branch("r", Some(3), "branch").unwrap();
        let at_3 = library.checkpoint("branch", None).unwrap();
        assert_eq!((at_3.step(), at_3.manifest().ranks), (3, RANKS));
        assert_sound(&store);
        library.prune("r", keep(2), &|_, _| {}).unwrap();
        assert_eq!(steps(&store), [4, 5]);
        assert_sound(&store);
        assert_eq!(go_on(&store, 2), Some(5));
        library.compact("r", ALL, &|_, _| {}).unwrap();
        assert_eq!(steps(&store), [4, 5, 6, 7]);
        assert_sound(&store);
        assert_eq!(go_on(&store, 0), Some(7));
    }
}

/// Tools beside running ranks: what was reported durable last is there, and everything is sound.
#[test]
fn prune_and_compact_beside_running_ranks() {
    const STEPS: u64 = 25;
    let store = memory(Locks::None);
    let (shared, ended) = (store.clone(), Arc::new(AtomicBool::new(false)));
    let (tools, until) = (store.clone(), ended.clone());
    let tools = std::thread::spawn(move || {
        let library = Library::of(tools);
        while !until.load(Ordering::Relaxed) {
            // The run may not be there yet.
            let _ = library.prune("r", keep(2), &|_, _| {});
            let _ = library.compact("r", ALL, &|_, _| {});
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let ends = ThreadRanks::new(RANKS).run(move |comm| {
        let mut run = Run::open(options(&shared, &comm).growth(0.1)).unwrap();
        for step in 0..STEPS {
            save(&mut run, &*comm, step).durable().unwrap();
        }
        let failures = run.failures();
        run.finish().unwrap();
        failures.len()
    });
    ended.store(true, Ordering::Relaxed);
    tools.join().unwrap();
    assert!(all_done(ends).iter().all(|failures| *failures == 0));
    let left = steps(&store);
    assert!(left.ends_with(&[STEPS - 2, STEPS - 1]), "{left:?}");
    assert_sound(&store);
    assert_eq!(go_on(&store, 1), Some(STEPS - 1));
}

fn packs(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(folder.join("runs/r/packs")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Damage in the pack of one group takes that checkpoint from all ranks: the one before serves, with a note.
#[test]
fn damage_of_one_group_makes_all_ranks_fall_back_together() {
    for victim in 0..GROUPS {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(folder.path()));
        go_on(&store, 3);
        let before = packs(folder.path());
        go_on(&store, 1);
        let new: Vec<PathBuf> = packs(folder.path()).difference(&before).cloned().collect();
        assert_eq!(new.len(), GROUPS);
        let mut bytes = std::fs::read(&new[victim]).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
        std::fs::write(&new[victim], bytes).unwrap();
        let shared = store.clone();
        let ends = ThreadRanks::new(RANKS).run(move |comm| {
            let mut run = Run::open(options(&shared, &comm)).unwrap();
            let (step, notes) = restore(&mut run, &*comm).unwrap();
            run.finish().unwrap();
            assert!(notes.iter().any(|note| note.contains("step 3 cannot be used")), "{notes:?}");
            step
        });
        assert_eq!(all_done(ends), [2, 2, 2]);
        let report = Library::of(store.clone()).verify(None, true, &|_, _| {}).unwrap();
        assert!(!report.is_sound());
    }
}

/// While one rank finds the store full, checkpoints do not appear; then they do again, and are whole.
#[test]
fn a_store_that_is_full_for_a_rank_costs_only_those_checkpoints() {
    // One that writes for others, and one that writes for itself.
    [0, 2].into_iter().for_each(full_for);
}

fn full_for(fails: u32) {
    let store = memory(Locks::None);
    let (shared, full) = (store.clone(), Arc::new(AtomicBool::new(false)));
    let ends = ThreadRanks::new(RANKS).run(move |comm| {
        let (is_full, rank) = (full.clone(), comm.rank().0);
        let seen = HookedStore::new(shared.clone(), move |call| match call {
            Call::Put(_) | Call::Append(..) if rank == fails && is_full.load(Ordering::Relaxed) => {
                Err(Error::new(ErrorKind::Full, "no room"))
            }
            _ => Ok(()),
        });
        let seen: Arc<dyn Store> = Arc::new(HookedStore::with_locks(Arc::new(seen), Locks::None));
        let mut run = Run::open(options(&seen, &comm)).unwrap();
        let mut done = Vec::new();
        for step in 0..8 {
            if rank == fails {
                full.store((3..5).contains(&step), Ordering::Relaxed);
            }
            // Only the rank that fails learns it at once; the others in their next call.
            let staged = save(&mut run, &*comm, step).staged().is_ok();
            done.push((step, staged));
        }
        let failed: BTreeSet<u64> = run.failures().into_iter().map(|(step, _)| step).collect();
        run.finish().unwrap();
        (failed, done)
    });
    for (failed, done) in all_done(ends) {
        assert_eq!(failed, BTreeSet::from([3, 4]), "{done:?}");
    }
    assert_eq!(steps(&store), [0, 1, 2, 5, 6, 7]);
    assert_sound(&store);
    assert_eq!(go_on(&store, 1), Some(7));
}

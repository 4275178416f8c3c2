//! Under load: slow stores, small states, full nodes, and stores that somebody takes away.

use crate::support::{assert_sound, keep, memory, steps};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use treering::testing::{Call, Disk, DiskFile, HookedStore, Locks, OsDisk};
use treering::{
    ChunkSize, DirectoryStore, Encoding, Error, ErrorKind, Library, Options, Result, Run, Store,
    Variable, VariableMut,
};

fn stored(store: &Arc<dyn Store>) -> u64 {
    Library::of(store.clone()).runs().unwrap().iter().map(|run| run.stored_bytes).sum()
}

/// The number of epochs, each of which begins with a whole checkpoint.
fn epochs(store: &Arc<dyn Store>) -> usize {
    let (all, _) = Library::of(store.clone()).checkpoints("r").unwrap();
    let epochs = all.iter().map(|info| info.epoch.sequence);
    epochs.collect::<std::collections::BTreeSet<_>>().len()
}

/// The processor time that this thread has used, whatever else the machine does.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the call fills the value that it is given.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn noise(words: usize) -> Vec<u64> {
    (0..words as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)).collect()
}

/// A program on a store that is far slower than it, of whose state 512 bytes change: 2 MiB without pauses, or with
/// `TREERING_BACKLOG` 32 MiB at 4 MB/s with pauses of two seconds (`make backlog`).
#[test]
fn a_backlog_makes_one_whole_checkpoint_and_stores_little() {
    let long = std::env::var_os("TREERING_BACKLOG").is_some();
    let (words, rate, pause) = match long {
        true => (4 << 20, 4e6, Duration::from_secs(2)),
        false => (1 << 18, 16e6, Duration::ZERO),
    };
    let objects = memory();
    let slow = HookedStore::new(objects.clone(), move |call| {
        if let Call::Append(_, bytes) = call {
            std::thread::sleep(Duration::from_secs_f64(bytes as f64 / rate));
        }
        Ok(())
    });
    let begun = Instant::now();
    // As it is: encoders would find the rule behind these numbers, and the store would not be slow.
    let options = Options::in_store(Arc::new(slow), "r").encoding(Encoding::Raw);
    let mut run = Run::open(options).unwrap();
    let mut data = noise(words);
    let mut blocked = Duration::ZERO;
    for step in 0..30u64 {
        data[step as usize * 64..][..64].fill(step);
        blocked += run.checkpoint(step, &[Variable::new("x", &data)]).unwrap().blocked();
        std::thread::sleep(pause);
    }
    let computed = begun.elapsed();
    run.finish().unwrap();
    assert_eq!((steps(&objects).len(), epochs(&objects)), (30, 1));
    let (state, changes) = (data.len() as u64 * 8, 30 * 512);
    let share = stored(&objects) as f64 / (state + changes) as f64;
    println!(
        "1 whole of 30; stored {share:.4} of state and changes; held up {blocked:.2?} of {computed:.2?}"
    );
    assert!(share < 1.2, "{share} of state and changes");
    // Without pauses the program does nothing but checkpoints, so it says nothing there.
    assert!(!long || blocked < computed / 10, "blocked for {blocked:.2?} of {computed:.2?}");
}

#[test]
fn small_states_do_not_grow_by_whole_checkpoints() {
    let store = memory();
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    let mut data = noise(12_500);
    for step in 0..300u64 {
        data[step as usize % 90 * 125..][..125].fill(step.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        run.checkpoint(step, &[Variable::new("x", &data)]).unwrap();
    }
    run.finish().unwrap();
    assert_eq!(epochs(&store), 1);
    // A little more than the changes: 1 kB, and what says where it belongs.
    assert!(stored(&store) < 100_000 + 300 * 1_800, "{} bytes", stored(&store));
}

fn options(node: &Arc<dyn Store>, shared: &Arc<dyn Store>) -> Options {
    Options::in_store(shared.clone(), "r")
        .node(node.clone())
        .chunk(ChunkSize::new(64).unwrap())
        .encoding(Encoding::Raw)
        .growth(2.5)
}

fn state(step: u64) -> Vec<u8> {
    (0..3000u64).map(|i| if i / 100 <= step { (i ^ step) as u8 } else { i as u8 }).collect()
}

fn save(run: &mut Run, step: u64) -> treering::Save {
    run.checkpoint(step, &[Variable::new("x", &state(step))]).unwrap()
}

/// A switch in front of a store: while it is on, writing fails with this kind of error.
fn switched(inner: &Arc<dyn Store>, kind: ErrorKind) -> (Arc<AtomicBool>, Arc<dyn Store>) {
    let switch = Arc::new(AtomicBool::new(false));
    let own = switch.clone();
    let store = HookedStore::new(inner.clone(), move |call| {
        let writes = matches!(call, Call::Put(_) | Call::Append(..) | Call::Commit(_));
        match writes && own.load(Ordering::SeqCst) {
            true => Err(Error::new(kind, "writing fails")),
            false => Ok(()),
        }
    });
    (switch, Arc::new(store))
}

/// The case that once lost everything: the newest checkpoints are on the node only.
#[test]
fn prune_counts_only_what_the_last_tier_has() {
    for tiers in [true, false] {
        for locks in [Locks::Real, Locks::Lying, Locks::None] {
            let (node, objects) = (memory(), memory());
            let locked: Arc<dyn Store> = Arc::new(HookedStore::with_locks(objects.clone(), locks));
            let (down, shared) = switched(&locked, ErrorKind::Io);
            let mut run = Run::open(options(&node, &shared)).unwrap();
            (0..4).for_each(|step| save(&mut run, step).durable().unwrap());
            down.store(true, Ordering::SeqCst);
            (4..10).for_each(|step| save(&mut run, step).staged().unwrap());
            let library = match tiers {
                true => Library::of_tiers(vec![node.clone()], locked.clone()),
                false => Library::of(locked.clone()),
            };
            let plan = library.prune("r", keep(4), &|_, _| {}).unwrap();
            assert_eq!(plan.removed, []);
            assert_eq!(steps(&objects), [0, 1, 2, 3]);
            library.prune("r", keep(1), &|_, _| {}).unwrap();
            assert!(steps(&objects).contains(&3));
            assert_sound(&objects);
            // The saves that the mover still has to bring over lack nothing.
            down.store(false, Ordering::SeqCst);
            save(&mut run, 10).durable().unwrap();
            drop(run);
            assert!(steps(&objects).ends_with(&[4, 5, 6, 7, 8, 9, 10]));
            assert_sound(&objects);
        }
    }
}

#[test]
fn a_nodes_store_is_not_pruned_by_itself() {
    let (node, shared) = (memory(), memory());
    let mut run = Run::open(options(&node, &shared)).unwrap();
    (0..3).for_each(|step| save(&mut run, step).durable().unwrap());
    let refused = Library::of(node.clone()).prune("r", keep(1), &|_, _| {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Usage);
    assert!(refused.to_string().contains("node"), "{refused}");
}

#[test]
fn a_full_node_makes_room_and_then_saves_go_past_it() {
    let (node, shared) = (memory(), memory());
    // The node holds 9 kB of packs: three whole states.
    let used = Arc::new(AtomicU64::new(0));
    let (own, inner) = (used.clone(), node.clone());
    let small: Arc<dyn Store> = Arc::new(HookedStore::new(node.clone(), move |call| {
        if let Call::Append(_, bytes) = call {
            let there = inner.list("runs/r/packs")?.iter().map(|item| item.size).sum::<u64>();
            own.fetch_max(there, Ordering::SeqCst);
            if there + bytes as u64 > 9_000 {
                return Err(Error::new(ErrorKind::Full, "the node is full"));
            }
        }
        Ok(())
    }));
    let mut run = Run::open(options(&small, &shared).growth(1000.0)).unwrap();
    for step in 0..40 {
        save(&mut run, step).durable().unwrap();
    }
    assert_eq!(run.failures().len(), 0);
    // A state that the node cannot hold at all goes to the shared store directly.
    let large = noise(4000);
    let save = run.checkpoint(40, &[Variable::new("x", &large)]).unwrap();
    save.durable().unwrap();
    run.finish().unwrap();
    assert!(used.load(Ordering::SeqCst) > 3_000, "the node was used");
    assert_eq!(steps(&shared), (0..=40).collect::<Vec<_>>());
    assert_sound(&shared);
    let mut run = Run::open(options(&small, &shared)).unwrap();
    let mut back = Vec::<u64>::new();
    run.restore(&mut [VariableMut::growing("x", &mut back)]).unwrap().unwrap();
    assert_eq!(back, large);
}

#[test]
fn steps_that_stayed_on_the_node_move_when_there_is_room_again() {
    let (node, objects) = (memory(), memory());
    let (full, shared) = switched(&objects, ErrorKind::Full);
    let mut run = Run::open(options(&node, &shared)).unwrap();
    save(&mut run, 0).durable().unwrap();
    full.store(true, Ordering::SeqCst);
    let waiting: Vec<_> = (1..4).map(|step| save(&mut run, step)).collect();
    for save in &waiting {
        save.staged().unwrap();
        assert_eq!(save.durable().unwrap_err().kind(), ErrorKind::Full);
    }
    full.store(false, Ordering::SeqCst);
    // Without another save, and without a restart.
    run.finish().unwrap();
    waiting.iter().for_each(|save| save.durable().unwrap());
    assert_eq!(steps(&objects), [0, 1, 2, 3]);
    assert_sound(&objects);
}

#[test]
fn a_failure_that_a_save_has_told_is_not_told_again_at_the_end() {
    let objects = memory();
    let (full, store) = switched(&objects, ErrorKind::Full);
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    full.store(true, Ordering::SeqCst);
    assert!(save(&mut run, 0).durable().is_err());
    run.finish().unwrap();
    full.store(false, Ordering::SeqCst);
    let mut run = Run::open(Options::in_store(store, "r")).unwrap();
    full.store(true, Ordering::SeqCst);
    drop(save(&mut run, 0));
    assert_eq!(run.finish().unwrap_err().kind(), ErrorKind::Full);
}

#[test]
fn two_jobs_at_one_path_never_share_a_run() {
    for removed in [false, true] {
        two_jobs_at_one_path(removed);
    }
}

fn two_jobs_at_one_path(removed: bool) {
    let folder = tempfile::tempdir().unwrap();
    let (here, away) = (folder.path().join("store"), folder.path().join("away"));
    let open = || Run::open(Options::directory(&here, "r").growth(100.0)).unwrap();
    let mut old = open();
    (0..3).for_each(|step| save(&mut old, step).durable().unwrap());
    match removed {
        true => std::fs::remove_dir_all(&here).unwrap(),
        false => std::fs::rename(&here, &away).unwrap(),
    }
    let gone = save(&mut old, 3).durable().unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
    // A new job begins where the old one was.
    let mut new = open();
    (100..103).for_each(|step| save(&mut new, step).durable().unwrap());
    for step in 4..6 {
        let lost = save(&mut old, step).durable().unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Busy, "{lost}");
    }
    save(&mut new, 103).durable().unwrap();
    drop((old, new));
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(&here));
    assert_eq!(steps(&store), [100, 101, 102, 103]);
    assert_sound(&store);
    let mut back = vec![0u8; 3000];
    let restored = open().restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
    assert_eq!((restored.step, back), (103, state(103)));
}

/// Even an entry that slipped in behind the check is a stray: nobody lists, restores or builds on it.
#[test]
fn an_entry_of_another_opening_is_a_stray() {
    let (first, second) = (memory(), memory());
    for (store, base) in [(&first, 0), (&second, 50)] {
        let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
        (base..base + 4).for_each(|step| save(&mut run, step).durable().unwrap());
    }
    // Number 5 of the first run, with its packs, appears in the second.
    second.delete(&["runs/r/log/000000000005".into()]).unwrap();
    for folder in ["runs/r/log", "runs/r/packs"] {
        for item in first.list(folder).unwrap() {
            let key = format!("{folder}/{}", item.name);
            let blob = first.open(&key).unwrap();
            let mut bytes = vec![0; blob.size() as usize];
            blob.read_at(0, &mut bytes).unwrap();
            // Entries that are there stay.
            second.commit(&key, &bytes).unwrap();
        }
    }
    assert_eq!(steps(&second), [50, 51, 52]);
    let mut run = Run::open(Options::in_store(second.clone(), "r")).unwrap();
    let mut back = vec![0u8; 3000];
    let restored = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
    assert_eq!((restored.step, back), (52, state(52)));
    save(&mut run, 53).durable().unwrap();
    drop(run);
    assert_eq!(steps(&second), [50, 51, 52, 53]);
}

/// A stray of this kind appears while a program with a node store runs: the checkpoint that was to have its number is
/// lost, and the program hears of it; everything after it moves on.
#[test]
fn a_stray_in_the_way_of_a_move_costs_one_checkpoint() {
    let (other, shared, node) = (memory(), memory(), memory());
    let mut run = Run::open(Options::in_store(other.clone(), "r")).unwrap();
    (0..4).for_each(|step| save(&mut run, step).durable().unwrap());
    drop(run);
    let key = "runs/r/log/000000000005";
    let blob = other.open(key).unwrap();
    let mut stray = vec![0; blob.size() as usize];
    blob.read_at(0, &mut stray).unwrap();
    // It comes between the look at the number and the entry itself.
    let late = shared.clone();
    let hooked = HookedStore::new(shared.clone(), move |call| match call {
        Call::Commit(name) if name == key => late.commit(key, &stray).map(drop),
        _ => Ok(()),
    });
    let options = Options::in_store(Arc::new(hooked), "r").node(node).growth(100.0);
    let mut run = Run::open(options).unwrap();
    let saved: Vec<Result<()>> = (10..16).map(|step| save(&mut run, step).durable()).collect();
    let lost = saved.iter().filter_map(|saved| saved.as_ref().err()).collect::<Vec<&Error>>();
    assert_eq!(lost.iter().map(|error| error.kind()).collect::<Vec<_>>(), [ErrorKind::Lost]);
    assert!(saved[5].is_ok(), "{:?}", saved[5]);
    run.finish().unwrap();
    assert_eq!(steps(&shared).len(), 5);
    assert_sound(&shared);
    let mut run = Run::open(Options::in_store(shared.clone(), "r")).unwrap();
    let mut back = vec![0u8; 3000];
    let restored = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
    assert_eq!((restored.step, back), (15, state(15)));
}

/// A tier that stays full, of which the program has heard, does not keep the tiers behind it from getting theirs.
#[test]
fn what_waits_behind_a_full_tier_is_tried_at_the_end() {
    let (node, middle, shared) = (memory(), memory(), memory());
    let [middle_full, shared_full] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let [hooked_middle, hooked_shared] =
        [(&middle, &middle_full), (&shared, &shared_full)].map(|(store, full)| -> Arc<dyn Store> {
            let full = full.clone();
            Arc::new(HookedStore::new(store.clone(), move |call| {
                let writes = matches!(call, Call::Put(_) | Call::Append(..) | Call::Commit(_));
                match writes && full.load(Ordering::SeqCst) {
                    true => Err(Error::new(ErrorKind::Full, "the store is full")),
                    false => Ok(()),
                }
            }))
        });
    let options = Options::in_store(hooked_shared, "r").node(hooked_middle).node(node);
    let mut run = Run::open(options).unwrap();
    save(&mut run, 0).durable().unwrap();
    shared_full.store(true, Ordering::SeqCst);
    save(&mut run, 1).durable().unwrap_err();
    middle_full.store(true, Ordering::SeqCst);
    save(&mut run, 2).durable().unwrap_err();
    run.failures();
    // Checkpoints in the middle can go on, those on the node cannot.
    shared_full.store(false, Ordering::SeqCst);
    let ended = run.finish();
    assert_eq!(steps(&shared), [0, 1], "{ended:?}");
}

/// A store that hangs when it is asked something a checkpoint can do without, as a request to stop.
#[test]
fn a_store_that_hangs_when_it_is_asked_holds_no_checkpoint_up() {
    let objects = memory();
    let hangs = Arc::new((Mutex::new(false), Condvar::new()));
    let gate = hangs.clone();
    let hooked = HookedStore::new(objects.clone(), move |call| {
        if matches!(call, Call::Open(key) if key.ends_with("/halt")) {
            drop(gate.1.wait_while(gate.0.lock().unwrap(), |hangs| *hangs).unwrap());
        }
        Ok(())
    });
    let mut run = Run::open(Options::in_store(Arc::new(hooked), "r")).unwrap();
    save(&mut run, 0).durable().unwrap();
    *hangs.0.lock().unwrap() = true;
    for step in 1..4 {
        assert!(!save(&mut run, step).halts());
    }
    Library::of(objects.clone()).halt("r").unwrap();
    *hangs.0.lock().unwrap() = false;
    hangs.1.notify_all();
    // The answer of before may still be on its way.
    assert!((4..100).any(|step| save(&mut run, step).halts()), "the request is not lost");
    run.finish().unwrap();
    assert!(objects.open("runs/r/halt").is_err(), "it was honoured");
}

/// A prune on another machine, at every moment of a save, with locks that lie or are not there.
#[test]
fn prune_at_any_moment_leaves_the_writer_whole() {
    for locks in [Locks::Real, Locks::Lying, Locks::None] {
        let objects = memory();
        let busy = Arc::new(AtomicBool::new(false));
        let (inner, own) = (objects.clone(), busy.clone());
        let pruning = HookedStore::new(objects.clone(), move |_| {
            if own.load(Ordering::SeqCst) {
                let elsewhere = Arc::new(HookedStore::with_locks(inner.clone(), locks));
                match Library::of(elsewhere).prune("r", keep(2), &|_, _| {}) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        });
        let store: Arc<dyn Store> = Arc::new(HookedStore::with_locks(Arc::new(pruning), locks));
        for round in 0..3u64 {
            busy.store(false, Ordering::SeqCst);
            let options = Options::in_store(store.clone(), "r").growth(2.0);
            let mut run = Run::open(options.chunk(ChunkSize::new(64).unwrap())).unwrap();
            let mut back = vec![0u8; 3000];
            run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap();
            // Goes on from an older step of the open epoch, so that a branch is in it.
            if let Some(older) = steps(&objects).iter().rev().nth(1) {
                run.restore_step(*older, &mut [VariableMut::new("x", &mut back)]).unwrap();
            }
            busy.store(true, Ordering::SeqCst);
            for step in round * 10..round * 10 + 7 {
                save(&mut run, step).durable().unwrap();
                assert_sound(&objects);
            }
        }
    }
}

#[test]
fn errors_of_access_are_reported_and_no_reason_to_go_back() {
    let objects = memory();
    let mut run = Run::open(Options::in_store(objects.clone(), "r").growth(100.0)).unwrap();
    (0..3).for_each(|step| save(&mut run, step).durable().unwrap());
    drop(run);
    let pack = objects.list("runs/r/packs").unwrap().pop().unwrap().name;
    let entry = objects.list("runs/r/log").unwrap().pop().unwrap().name;
    for (on_open, name) in [(true, &pack), (false, &pack), (true, &entry), (false, &entry)] {
        let denies = Arc::new(AtomicBool::new(true));
        let (name, denied_now) = (format!("/{name}"), denies.clone());
        let store: Arc<dyn Store> =
            Arc::new(HookedStore::new(objects.clone(), move |call| match call {
                _ if !denied_now.load(Ordering::SeqCst) => Ok(()),
                Call::Open(key) if on_open && key.ends_with(&name) => denied(),
                Call::Read(key, _) if !on_open && key.ends_with(&name) => denied(),
                _ => Ok(()),
            }));
        denies.store(false, Ordering::SeqCst);
        let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
        denies.store(true, Ordering::SeqCst);
        let mut back = vec![0u8; 3000];
        let error = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains("permission"), "{error}");
        drop(run);
        for step in [Some(2), None] {
            let library = Library::of(store.clone());
            let error = library.checkpoint("r", step).and_then(|c| c.read::<u8>("x"));
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Io);
        }
        let library = Library::of(store);
        let first = library.backwards("r").and_then(|mut states| states.next().unwrap());
        assert_eq!(first.unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(library.branch("r", None, "b").unwrap_err().kind(), ErrorKind::Io);
    }
}

/// A disk of which something goes wrong that a system says by a number.
struct BadDisk {
    /// The call that fails, a part of the path of which it does, and the number.
    fails: Mutex<Option<(BadCall, String, i32)>>,
    /// The number of errors that were given.
    given: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BadCall {
    Open,
    Read,
    List,
    Lock,
}

impl BadDisk {
    fn new() -> Arc<BadDisk> {
        Arc::new(BadDisk { fails: Mutex::new(None), given: AtomicU64::new(0) })
    }

    fn set(&self, call: BadCall, part: &str, number: i32) {
        *self.fails.lock().unwrap() = Some((call, part.to_string(), number));
    }

    fn clear(&self) {
        *self.fails.lock().unwrap() = None;
    }

    fn check(&self, call: BadCall, path: &Path) -> std::io::Result<()> {
        match &*self.fails.lock().unwrap() {
            Some((which, part, number))
                if *which == call && path.to_string_lossy().contains(part.as_str()) =>
            {
                self.given.fetch_add(1, Ordering::SeqCst);
                Err(std::io::Error::from_raw_os_error(*number))
            }
            _ => Ok(()),
        }
    }
}

/// The handle of [`BadDisk`] that a store has.
struct BadHandle(Arc<BadDisk>);

struct BadFile {
    file: Box<dyn DiskFile>,
    disk: Arc<BadDisk>,
    path: PathBuf,
}

impl Disk for BadHandle {
    fn create(&self, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
        OsDisk.create(path)
    }

    fn open(&self, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
        self.0.check(BadCall::Open, path)?;
        let (file, disk) = (OsDisk.open(path)?, self.0.clone());
        Ok(Box::new(BadFile { file, disk, path: path.to_path_buf() }))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        OsDisk.rename_new(from, to)
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.remove(path)
    }

    fn make_folder(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.make_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> std::io::Result<()> {
        OsDisk.sync_folder(path)
    }

    fn list(&self, path: &Path) -> std::io::Result<Vec<(String, u64, bool)>> {
        self.0.check(BadCall::List, path)?;
        OsDisk.list(path)
    }

    fn lock(&self, path: &Path, text: &str) -> std::io::Result<Box<dyn Any + Send + Sync>> {
        self.0.check(BadCall::Lock, path)?;
        OsDisk.lock(path, text)
    }
}

impl DiskFile for BadFile {
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.append(bytes)
    }

    fn truncate(&mut self, len: u64) -> std::io::Result<()> {
        self.file.truncate(len)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.file.sync()
    }

    fn size(&self) -> std::io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.disk.check(BadCall::Read, &self.path)?;
        self.file.read_at(offset, buffer)
    }

    fn read_vectored_at(
        &self,
        offset: u64,
        parts: &mut [std::io::IoSliceMut],
    ) -> std::io::Result<()> {
        self.disk.check(BadCall::Read, &self.path)?;
        self.file.read_vectored_at(offset, parts)
    }
}

/// The same where a real folder says it by the number of a system: no permission, too many open files, a failing disk.
#[test]
fn errors_of_access_of_a_folder_say_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let disk = BadDisk::new();
    let handle = || Arc::new(BadHandle(disk.clone()));
    let store = || -> Arc<dyn Store> { Arc::new(DirectoryStore::on(handle(), folder.path())) };
    let mut run = Run::open(Options::in_store(store(), "r").growth(100.0)).unwrap();
    (0..3).for_each(|step| save(&mut run, step).durable().unwrap());
    drop(run);
    let newest = |folder| store().list(folder).unwrap().pop().unwrap().name;
    let (pack, entry) = (newest("runs/r/packs"), newest("runs/r/log"));
    let cases = [
        (BadCall::Open, &pack),
        (BadCall::Read, &pack),
        (BadCall::Open, &entry),
        (BadCall::Read, &entry),
        (BadCall::List, &"runs/r/log".to_string()),
    ];
    for number in [libc::EACCES, libc::EMFILE, libc::EIO] {
        let says = std::io::Error::from_raw_os_error(number).to_string();
        let check = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert!(error.to_string().contains(&says), "{says}: {error}");
        };
        for (call, part) in cases {
            disk.clear();
            let mut run = Run::open(Options::in_store(store(), "r")).unwrap();
            disk.given.store(0, Ordering::SeqCst);
            disk.set(call, part, number);
            let mut back = vec![0u8; 3000];
            check(run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap_err());
            for step in [Some(2), None] {
                let library = Library::of(store());
                let read = library.checkpoint("r", step).and_then(|c| c.read::<u8>("x"));
                check(read.unwrap_err());
            }
            let first =
                Library::of(store()).backwards("r").and_then(|mut states| states.next().unwrap());
            check(first.err().unwrap());
            assert!(disk.given.load(Ordering::SeqCst) >= 4, "{call:?} of {part}");
            drop(run);
            disk.clear();
            // Nothing was lost by it.
            let mut run = Run::open(Options::in_store(store(), "r")).unwrap();
            let restored = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
            assert_eq!((restored.step, &back), (2, &state(2)));
        }
    }
}

/// Lustre mounted without `flock` and some network mounts answer so; a folder that refuses is something else.
#[test]
fn a_file_system_without_locks_is_used_with_a_note_and_one_that_refuses_is_not() {
    for number in [libc::ENOSYS, libc::EOPNOTSUPP, libc::ENOLCK] {
        let folder = tempfile::tempdir().unwrap();
        let disk = BadDisk::new();
        disk.set(BadCall::Lock, "", number);
        let store: Arc<dyn Store> =
            Arc::new(DirectoryStore::on(Arc::new(BadHandle(disk.clone())), folder.path()));
        let mut run = Run::open(Options::in_store(store.clone(), "r").growth(0.0)).unwrap();
        let notes = run.notes().to_vec();
        assert!(notes.iter().any(|note| note.contains("no file locks")), "{number}: {notes:?}");
        (0..5).for_each(|step| save(&mut run, step).durable().unwrap());
        let plan = Library::of(store.clone()).prune("r", keep(2), &|_, _| {}).unwrap();
        assert_eq!(plan.removed.len(), 3, "{number}");
        save(&mut run, 5).durable().unwrap();
        run.finish().unwrap();
        assert_eq!(steps(&store), [3, 4, 5]);
        assert_sound(&store);
        Library::of(store.clone()).remove_run("r").unwrap();
        // No lock was taken in between.
        assert!(disk.given.load(Ordering::SeqCst) >= 3);
        let denied = BadDisk::new();
        denied.set(BadCall::Lock, "", libc::EACCES);
        let denied: Arc<dyn Store> =
            Arc::new(DirectoryStore::on(Arc::new(BadHandle(denied)), folder.path()));
        let refused = Run::open(Options::in_store(denied, "r")).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Io, "{refused}");
        assert!(refused.to_string().contains("Permission denied"), "{refused}");
    }
}

fn denied() -> Result<()> {
    let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    Err(Error::io("cannot read a file of the store", denied))
}

#[test]
fn arrays_that_grow_fall_back_past_a_damaged_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Run::open(Options::directory(folder.path(), "r").growth(0.0)).unwrap();
    let mut run = open();
    for step in 0..4u64 {
        let list: Vec<u32> = (0..10 + 100 * step as u32).collect();
        let flags = [step as u8; 5];
        let mut variables = vec![Variable::new("list", &list)];
        if step != 2 {
            variables.push(Variable::new("flags", &flags));
        }
        run.checkpoint(step, &variables).unwrap().durable().unwrap();
    }
    drop(run);
    let packs = folder.path().join("runs/r/packs");
    let mut files: Vec<_> = std::fs::read_dir(packs).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let newest = files.last().unwrap();
    let mut bytes = std::fs::read(newest).unwrap();
    bytes[20] ^= 1;
    std::fs::write(newest, &bytes).unwrap();
    let mut run = open();
    let (mut list, mut flags) = (Vec::<u32>::new(), [9u8; 5]);
    let restored = run
        .restore(&mut [
            VariableMut::growing("list", &mut list),
            VariableMut::new("flags", &mut flags).optional(),
        ])
        .unwrap()
        .unwrap();
    assert_eq!((restored.step, list.len(), restored.missing), (2, 210, vec!["flags".to_string()]));
    assert!(!restored.notes.is_empty());
    // Going backwards, the damaged one is an error in its place.
    let states: Vec<_> = run.backwards().unwrap().map(|state| state.map(|s| s.step).ok()).collect();
    assert_eq!(states, [None, Some(2), Some(1), Some(0)]);
    let twice = run.restore(&mut [
        VariableMut::growing("list", &mut list),
        VariableMut::growing("list", &mut Vec::<u32>::new()),
    ]);
    assert_eq!(twice.unwrap_err().kind(), ErrorKind::Usage);
}

#[test]
fn verify_does_not_call_a_checkpoint_sound_that_needs_a_bad_frame() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::directory(folder.path(), "r").growth(100.0).encoding(Encoding::Raw);
    let mut run = Run::open(options).unwrap();
    let mut data = noise(8192);
    for step in 0..4u64 {
        // From the second step on, nothing needs the first bytes of the first pack.
        data[..64].fill(step);
        run.checkpoint(step, &[Variable::new("x", &data)]).unwrap().durable().unwrap();
    }
    run.finish().unwrap();
    let packs = folder.path().join("runs/r/packs");
    let mut files: Vec<_> = std::fs::read_dir(packs).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut bytes = std::fs::read(&files[2]).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&files[2], &bytes).unwrap();
    let report = Library::open(folder.path()).unwrap().verify(None, false, &|_, _| {}).unwrap();
    // Only the third needs the third pack: the others have replaced those bytes, or never had them.
    assert_eq!((report.checkpoints, report.sound), (4, 3), "{:?}", report.findings);
}

#[test]
fn a_store_without_locks_opens_with_a_note() {
    let none: Arc<dyn Store> = Arc::new(HookedStore::with_locks(memory(), Locks::None));
    let mut run = Run::open(Options::in_store(none.clone(), "r")).unwrap();
    assert!(run.notes().iter().any(|note| note.contains("locks")), "{:?}", run.notes());
    save(&mut run, 0).durable().unwrap();
    drop(run);
    assert_eq!(steps(&none), [0]);
    assert!(Run::open(Options::in_store(memory(), "r")).unwrap().notes().is_empty());
}

/// Each by its name, and none of them is silently dropped.
#[test]
fn ingest_refuses_options_that_it_would_ignore() {
    use std::time::SystemTime;
    use treering::{Alone, Bound, CompareSettings, Every, Overload, Redundancy, ReplicaSettings};
    let plain = || Options::in_store(memory(), "r");
    let alone: Arc<dyn treering::Comm> = Arc::new(Alone::new());
    let settings = ReplicaSettings { budget: 1 << 20, ..ReplicaSettings::default() };
    let reference = CompareSettings::default();
    let refused = [
        ("Options::node", plain().node(memory())),
        ("Options::ranks", plain().ranks(alone.clone())),
        ("Options::patience", plain().patience(Duration::from_secs(5))),
        ("IngestSettings::ranks_per_pack", plain().ranks_per_pack(4)),
        ("Options::pack_together", plain().pack_together(1 << 10)),
        ("Options::aggregator_memory", plain().aggregator_memory(16 << 20)),
        ("Options::shared_every", plain().shared_every(2)),
        ("Options::redundancy", plain().redundancy(Redundancy::Partner)),
        ("Options::domain", plain().domain("a switch")),
        ("Options::replicas", plain().replicas(1)),
        ("Options::replica_settings", plain().replica_settings(settings)),
        ("Options::spares", plain().spares(1)),
        ("Options::staging", plain().staging(1 << 25)),
        ("Options::overload", plain().overload(Overload::Skip)),
        ("Options::bound", plain().bound("*", Bound::abs(1.0))),
        ("Options::tree", plain().tree(8192, 4)),
        ("Options::trees_only", plain().trees_only()),
        ("Options::reference", plain().reference(memory(), "other", reference)),
        ("Options::keep", plain().keep(3, None)),
        ("Options::limit", plain().limit(1 << 30)),
        ("Options::store_limit", plain().store_limit(1 << 30)),
        ("Options::every", plain().every(Every::Steps(2))),
        ("Options::deadline", plain().deadline(SystemTime::now())),
        ("Options::on_signals", plain().on_signals()),
        ("Options::on_progress", plain().on_progress(|_, _| {})),
        ("Options::on_save_progress", plain().on_save_progress(|_, _| {})),
    ];
    for (name, options) in refused {
        let error = treering::Ingest::open(options, Default::default()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
        assert!(error.to_string().contains(name), "{name}: {error}");
    }
    let used = plain()
        .chunk(ChunkSize::new(1024).unwrap())
        .method(treering::Method::Basic)
        .encoding(Encoding::Raw)
        .record(1 << 20)
        .growth(2.0)
        .compact(None)
        .label("git", "4542149");
    treering::Ingest::open(used, Default::default()).unwrap();
}

#[test]
fn a_forked_child_cannot_write_and_ends_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::open(Options::directory(folder.path(), "r")).unwrap();
    save(&mut run, 0).durable().unwrap();
    // SAFETY: the child only uses what it has, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = run.checkpoint(1, &[Variable::new("x", &state(1))]);
        let code = i32::from(refused.err().map(|e| e.kind()) != Some(ErrorKind::Usage));
        drop(run);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    save(&mut run, 1).durable().unwrap();
    run.finish().unwrap();
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(folder.path()));
    assert_eq!(steps(&store), [0, 1]);
}

#[test]
fn states_of_several_ranks_go_backwards() {
    let folder = tempfile::tempdir().unwrap();
    let store = memory();
    let options = Options::in_store(store.clone(), "r").growth(100.0);
    let mut ingest = treering::Ingest::open(options, Default::default()).unwrap();
    let content = |rank: u32, step: u64| vec![rank as u8 * 16 + step as u8; 5000];
    for step in 0..3 {
        let files: Vec<_> = (0..3u32)
            .map(|rank| {
                let path = folder.path().join(format!("out.{rank}.{step}"));
                std::fs::write(&path, content(rank, step)).unwrap();
                let name = format!("out.{rank}");
                treering::RankFile {
                    rank: treering::Rank(rank),
                    path,
                    name,
                    like: "out.{rank}".into(),
                }
            })
            .collect();
        ingest.take(step, &files, &|_, _| {}).unwrap();
    }
    let states: Vec<_> = Library::of(store).backwards("r").unwrap().map(Result::unwrap).collect();
    assert_eq!(states.iter().map(|s| s.step).collect::<Vec<_>>(), [2, 1, 0]);
    for state in states {
        for rank in 0..3 {
            assert_eq!(
                state.get_of::<u8>(treering::Rank(rank), "out.{rank}").unwrap(),
                content(rank, state.step)
            );
        }
    }
}

#[test]
fn many_variables_are_read_in_one_pass_each() {
    let store = memory();
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    let values: Vec<[u32; 2]> = (0..8000).map(|i| [i, !i]).collect();
    let names: Vec<String> = (0..values.len()).map(|i| format!("variable {i}")).collect();
    let variables: Vec<_> =
        names.iter().zip(&values).map(|(name, value)| Variable::new(name, &value[..])).collect();
    run.checkpoint(0, &variables).unwrap().durable().unwrap();
    run.finish().unwrap();
    let library = Library::of(store);
    let checkpoint = library.checkpoint("r", None).unwrap();
    assert_eq!(library.variables(&checkpoint).len(), values.len());
    for (name, value) in names.iter().zip(&values) {
        assert_eq!(checkpoint.read::<u32>(name).unwrap(), value);
    }
}

/// Eight times as many variables take eight times as long, and not 64 times.
#[test]
fn the_time_for_all_variables_grows_with_their_number_only() {
    let least = |times: usize, work: &dyn Fn()| {
        let once = |_| {
            let begun = thread_time();
            work();
            thread_time() - begun
        };
        (0..times).map(once).min().unwrap().as_secs_f64()
    };
    let [few, many] = [2000, 16_000].map(|count: u32| {
        let store = memory();
        let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
        let values: Vec<u32> = (0..count).collect();
        let names: Vec<String> = (0..count).map(|at| format!("variable {at}")).collect();
        let state = names.iter().zip(&values);
        let state: Vec<_> = state.map(|(name, value)| Variable::scalar(name, value)).collect();
        run.checkpoint(0, &state).unwrap();
        run.finish().unwrap();
        let library = Library::of(store);
        let checkpoint = library.checkpoint("r", None).unwrap();
        let read = least(3, &|| {
            for (name, value) in names.iter().zip(&values) {
                assert_eq!(checkpoint.read::<u32>(name).unwrap(), [*value]);
            }
        });
        let listed = least(3, &|| assert_eq!(library.variables(&checkpoint).len(), names.len()));
        [read, listed]
    });
    for (what, few, many) in [("read", few[0], many[0]), ("variables", few[1], many[1])] {
        println!("{what}: {few:.4} s for 2,000, {many:.4} s for 16,000");
        assert!(many < 24.0 * few, "{what}: {few} s for 2,000, {many} s for 16,000");
    }
}

#[test]
fn a_run_of_trees_says_that_it_cannot_be_restored() {
    let store = memory();
    let options = || {
        let bound = treering::Bound::abs(1e-6);
        Options::in_store(store.clone(), "r").bound("*", bound).trees_only()
    };
    let mut run = Run::open(options()).unwrap();
    let values = vec![1.0f64; 1000];
    run.checkpoint(0, &[Variable::new("x", &values)]).unwrap().durable().unwrap();
    let mut back = vec![0.0f64; 1000];
    let error = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap_err();
    assert!(error.to_string().contains("trees only"), "{error}");
}

/// The sentence is what a `main` that returns an error prints.
#[test]
fn an_error_prints_its_sentence_in_both_forms() {
    let error = Library::of(memory()).checkpoint("none", None).err().unwrap();
    assert!(format!("{error:?}").starts_with(&error.to_string()), "{error:?}");
}

/// A thread behind the program that panics is a save that fails: nobody waits for it in vain, and the next
/// checkpoint is whole.
#[test]
fn a_panic_behind_the_program_fails_the_save_and_nothing_else() {
    for on_node in [true, false] {
        let (node, shared) = (memory(), memory());
        let panics = Arc::new(AtomicBool::new(false));
        let (when, inner) = (panics.clone(), if on_node { node.clone() } else { shared.clone() });
        let bad: Arc<dyn Store> = Arc::new(HookedStore::new(inner, move |call| {
            let pack = matches!(call, Call::Append(key, _) if key.ends_with(".pack"));
            assert!(!pack || !when.load(Ordering::SeqCst), "a bug of the store");
            Ok(())
        }));
        let (near, last) = if on_node { (bad, shared.clone()) } else { (node, bad) };
        let mut run = Run::open(Options::in_store(last, "r").node(near)).unwrap();
        let mut data = noise(1000);
        let mut save = |run: &mut Run, step: u64| {
            data[0] = step;
            run.checkpoint(step, &[Variable::new("x", &data)]).unwrap()
        };
        save(&mut run, 0).durable().unwrap();
        panics.store(true, Ordering::SeqCst);
        let error = save(&mut run, 1).durable().unwrap_err();
        assert!(error.to_string().contains("internal error"), "{error}");
        panics.store(false, Ordering::SeqCst);
        // On the node the save is lost; on its way to the shared store it is tried again.
        let expected = if on_node { vec![0, 2] } else { vec![0, 1, 2] };
        save(&mut run, 2).durable().unwrap();
        run.finish().unwrap();
        assert_eq!(steps(&shared), expected);
        assert_sound(&shared);
    }
}

/// A file that is there and cannot be looked at is no file that is not there: tools that remove what nobody names would take
/// it for that.
#[test]
fn a_folder_whose_files_cannot_be_looked_at_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("runs");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("file"), b"x").unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    // It can be listed, and nothing in it can be opened or looked at.
    std::fs::set_permissions(&inside, PermissionsExt::from_mode(0o444)).unwrap();
    let path = inside.clone();
    let listed = std::thread::spawn(move || {
        // SAFETY: it changes the user by which this thread alone accesses files.
        unsafe { libc::setfsuid(65534) };
        OsDisk.list(&path)
    });
    let error = listed.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    std::fs::set_permissions(&inside, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(OsDisk.list(&inside).unwrap().len(), 1);
}

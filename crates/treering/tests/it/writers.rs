//! One writer at a time, and lineages that go on, go back and part.

use crate::support::{assert_sound, keep, memory, steps_of as steps};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use treering::testing::{Call, HookedStore, Locks};
use treering::{
    ChunkSize, Error, ErrorKind, Library, Options, Result, Run, Store, Variable, VariableMut,
};

const BYTES: usize = 4096;

/// The state of a step; `line` tells redone steps from those that were done first.
fn state(line: u8, step: u64) -> Vec<u8> {
    let mut field: Vec<u8> = (0..BYTES as u32).map(|i| (i * i / 3) as u8).collect();
    for past in 1..=step {
        let at = past as usize * 512 % BYTES;
        field[at..at + 32].fill(line << 4 | past as u8);
    }
    field
}

fn options(store: &Arc<dyn Store>, run: &str) -> Options {
    Options::in_store(store.clone(), run).chunk(ChunkSize::new(64).unwrap()).growth(1000.0)
}

fn save(run: &mut Run, line: u8, step: u64) -> Result<()> {
    let field = state(line, step);
    let save = run.checkpoint(step, &[Variable::new("field", &field)]);
    save.unwrap().durable()
}

fn restore(run: &mut Run, step: Option<u64>) -> (u64, Vec<u8>) {
    let mut field = vec![0xEE; BYTES];
    let target = VariableMut::new("field", &mut field);
    let restored = match step {
        Some(step) => run.restore_step(step, &mut [target]).unwrap(),
        None => run.restore(&mut [target]).unwrap().unwrap(),
    };
    (restored.step, field)
}

fn read(store: &Arc<dyn Store>, run: &str, step: u64) -> Vec<u8> {
    let library = Library::of(store.clone());
    let checkpoint = library.checkpoint(run, Some(step)).unwrap();
    checkpoint.read::<u8>("field").unwrap()
}

fn stored(store: &Arc<dyn Store>) -> u64 {
    let runs = Library::of(store.clone()).runs().unwrap();
    runs.iter().map(|run| run.stored_bytes).sum()
}

/// The same objects with other locks: they keep nobody out, as on file systems without locks, or are not there.
fn unlocked(store: &Arc<dyn Store>, locks: Locks) -> Arc<dyn Store> {
    Arc::new(HookedStore::with_locks(store.clone(), locks))
}

const ALL_LOCKS: [Locks; 3] = [Locks::Real, Locks::Lying, Locks::None];

/// The same test in a store with each kind of locks: nothing but politeness may rest on them.
fn with_all_locks(test: impl Fn(Arc<dyn Store>)) {
    ALL_LOCKS.into_iter().for_each(|locks| test(unlocked(&memory(), locks)));
}

/// The calls that change a store, once they are counted.
#[derive(Clone, Default)]
struct Writes {
    counts: Arc<AtomicBool>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Writes {
    /// A store in front of which they are counted.
    fn before(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        let own = self.clone();
        Arc::new(HookedStore::new(store.clone(), move |call| {
            let reads = matches!(call, Call::Open(_) | Call::Read(..) | Call::List(_));
            if !reads && own.counts.load(Ordering::SeqCst) {
                own.calls.lock().unwrap().push(format!("{call:?}"));
            }
            Ok(())
        }))
    }

    fn count(&self) {
        self.counts.store(true, Ordering::SeqCst);
        self.calls.lock().unwrap().clear();
    }

    fn seen(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

/// Nothing is there that no checkpoint names.
fn assert_nothing_unnamed(store: &Arc<dyn Store>) {
    let report = Library::of(store.clone()).verify(None, true, &|_, _| {}).unwrap();
    assert_eq!(report.unreferenced, [] as [String; 0]);
}

fn kind(result: Result<()>) -> Option<ErrorKind> {
    result.err().map(|error: Error| error.kind())
}

#[test]
fn a_second_writer_is_refused_until_the_first_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let real: Arc<dyn Store> = Arc::new(treering::DirectoryStore::new(folder.path().join("s")));
    for store in [memory(), real] {
        let mut first = Run::open(options(&store, "r")).unwrap();
        save(&mut first, 0, 0).unwrap();
        let refused = Run::open(options(&store, "r")).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Busy);
        // Another run of the same store is free, and the first writer is not disturbed.
        drop(Run::open(options(&store, "other")).unwrap());
        save(&mut first, 0, 1).unwrap();
        drop(first);
        let mut second = Run::open(options(&store, "r")).unwrap();
        assert_eq!(restore(&mut second, None), (1, state(0, 1)));
        save(&mut second, 0, 2).unwrap();
        second.finish().unwrap();
        assert_eq!(steps(&store, "r"), [0, 1, 2]);
    }
}

/// A child process has a copy of every open file until it has become the program it will be.
#[test]
fn a_child_that_is_just_being_started_does_not_hold_the_lock() {
    use std::io::{Read, Write};
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    let options = || Options::directory(folder.path().join("s"), "r");
    let run = Run::open(options()).unwrap();
    let (mut forked, mut tell_forked) = std::io::pipe().unwrap();
    let (mut go_on, mut tell_go_on) = std::io::pipe().unwrap();
    let mut child = std::process::Command::new("true");
    // SAFETY: between fork and exec it only reads and writes a byte.
    unsafe {
        child.pre_exec(move || {
            tell_forked.write_all(b"x")?;
            go_on.read_exact(&mut [0])
        });
    }
    let starting = std::thread::spawn(move || child.status().unwrap());
    forked.read_exact(&mut [0]).unwrap();
    drop(run);
    let again = Run::open(options()).map(drop);
    tell_go_on.write_all(b"x").unwrap();
    starting.join().unwrap();
    again.unwrap();
}

#[test]
fn a_writer_that_was_overtaken_is_fenced() {
    for locks in [Locks::Lying, Locks::None] {
        let objects = memory();
        let writes = Writes::default();
        let store: Arc<dyn Store> = unlocked(&objects, locks);
        let mut old = Run::open(options(&writes.before(&store), "r")).unwrap();
        (0..3).for_each(|step| save(&mut old, 0, step).unwrap());
        let mut new = Run::open(options(&store, "r")).unwrap();
        assert_eq!(restore(&mut new, None), (2, state(0, 2)));
        // Nothing is under way, and each save looks first whether the run is still its own.
        writes.count();
        assert_eq!(kind(save(&mut old, 0, 3)), Some(ErrorKind::Busy));
        save(&mut new, 1, 3).unwrap();
        // It stays fenced, whatever the new writer has done meanwhile.
        assert_eq!(kind(save(&mut old, 0, 4)), Some(ErrorKind::Busy));
        save(&mut new, 1, 4).unwrap();
        assert_eq!(kind(save(&mut old, 0, 5)), Some(ErrorKind::Busy));
        assert_eq!(old.failures().len(), 3);
        drop(old);
        assert_eq!(writes.seen(), [] as [String; 0], "a fenced writer writes nothing more");
        new.finish().unwrap();
        assert_nothing_unnamed(&objects);
        assert_eq!(steps(&objects, "r"), [0, 1, 2, 3, 4]);
        assert_eq!(read(&objects, "r", 4), state(1, 4));
        assert_sound(&objects);
        let mut run = Run::open(options(&objects, "r")).unwrap();
        assert_eq!(restore(&mut run, None), (4, state(1, 4)));
    }
}

#[test]
fn a_writer_with_a_node_that_was_overtaken_is_fenced() {
    for locks in [Locks::Lying, Locks::None] {
        let objects = memory();
        let shared: Arc<dyn Store> = unlocked(&objects, locks);
        let (here, there) = (memory(), memory());
        let (at_shared, at_node) = (Writes::default(), Writes::default());
        let of_old = options(&at_shared.before(&shared), "r").node(at_node.before(&here));
        let mut old = Run::open(of_old).unwrap();
        (0..3).for_each(|step| save(&mut old, 0, step).unwrap());
        let mut new = Run::open(options(&shared, "r").node(there)).unwrap();
        assert_eq!(restore(&mut new, None), (2, state(0, 2)));
        at_shared.count();
        // On the node it writes until the first of its checkpoints is to go to the shared store.
        assert_eq!(kind(save(&mut old, 0, 3)), Some(ErrorKind::Busy));
        at_node.count();
        for step in 4..7 {
            assert_eq!(kind(save(&mut old, 0, step)), Some(ErrorKind::Busy));
        }
        save(&mut new, 1, 3).unwrap();
        assert_eq!(kind(save(&mut old, 0, 7)), Some(ErrorKind::Busy));
        save(&mut new, 1, 4).unwrap();
        drop(old);
        assert_eq!(at_shared.seen(), [] as [String; 0], "a fenced writer writes nothing more");
        assert_eq!(at_node.seen(), [] as [String; 0], "not even to its node");
        new.finish().unwrap();
        assert_nothing_unnamed(&objects);
        assert_eq!(steps(&objects, "r"), [0, 1, 2, 3, 4]);
        assert_eq!(read(&objects, "r", 4), state(1, 4));
        assert_sound(&objects);
    }
}

/// The new writer comes while saves of the old one are on their way, each held up at another call that writes: what it
/// does after that call is nothing but the rest of what was under way, and nothing of it is in the way of the new one.
#[test]
fn a_writer_that_is_overtaken_in_a_save_ends_it_and_writes_nothing_more() {
    for locks in [Locks::Lying, Locks::None] {
        for at in 0..6 {
            let objects = memory();
            let store = unlocked(&objects, locks);
            let (left, inner) = (Arc::new(AtomicI64::new(i64::MAX)), store.clone());
            let (fuse, writes) = (left.clone(), Writes::default());
            let held: Arc<dyn Store> = Arc::new(HookedStore::new(store.clone(), move |call| {
                let reads = matches!(call, Call::Open(_) | Call::Read(..) | Call::List(_));
                if !reads && fuse.fetch_sub(1, Ordering::SeqCst) == 0 {
                    let mut new = Run::open(options(&inner, "r"))?;
                    save(&mut new, 1, 3)?;
                    new.finish()?;
                }
                Ok(())
            }));
            let mut old = Run::open(options(&writes.before(&held), "r")).unwrap();
            (0..3).for_each(|step| save(&mut old, 0, step).unwrap());
            left.store(at, Ordering::SeqCst);
            // The save after it at the latest finds out.
            let ends = [3, 4].map(|step| kind(save(&mut old, 0, step)));
            assert_eq!(ends[1], Some(ErrorKind::Busy), "{at}: {ends:?}");
            writes.count();
            assert_eq!(kind(save(&mut old, 0, 5)), Some(ErrorKind::Busy));
            drop(old);
            assert_eq!(writes.seen(), [] as [String; 0], "at {at}");
            assert_eq!(read(&objects, "r", 3), state(1, 3), "at {at}");
            let mut run = Run::open(options(&store, "r")).unwrap();
            assert_eq!(restore(&mut run, None), (3, state(1, 3)), "at {at}");
            run.finish().unwrap();
            // The next opening has removed what was under way.
            assert_nothing_unnamed(&objects);
            assert_sound(&objects);
        }
    }
}

#[test]
fn a_program_that_panics_can_open_its_run_again() {
    with_all_locks(|store| {
        for attempt in 0..3u64 {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut run = Run::open(options(&store, "r")).unwrap();
                if attempt > 0 {
                    let newest = attempt * 2 - 1;
                    assert_eq!(restore(&mut run, None), (newest, state(0, newest)));
                }
                save(&mut run, 0, attempt * 2).unwrap();
                let field = state(0, attempt * 2 + 1);
                let variables = [Variable::new("field", &field)];
                run.checkpoint(attempt * 2 + 1, &variables).unwrap();
                // The last save is under way; unwinding waits for it.
                std::panic::resume_unwind(Box::new("the program fails"));
            }));
            let message = panicked.unwrap_err();
            assert_eq!(message.downcast_ref::<&str>(), Some(&"the program fails"));
        }
        assert_eq!(steps(&store, "r"), [0, 1, 2, 3, 4, 5]);
        assert_sound(&store);
    });
}

#[test]
fn a_restart_continues_the_lineage() {
    with_all_locks(|store| {
        let mut run = Run::open(options(&store, "r")).unwrap();
        (0..3).for_each(|step| save(&mut run, 0, step).unwrap());
        drop(run);
        for step in 3..6 {
            let mut run = Run::open(options(&store, "r")).unwrap();
            assert_eq!(restore(&mut run, None).0, step - 1);
            let field = state(0, step);
            let save = run.checkpoint(step, &[Variable::new("field", &field)]);
            assert!(save.unwrap().changed_bytes() <= 64);
            run.finish().unwrap();
        }
        let (all, _) = Library::of(store.clone()).checkpoints("r").unwrap();
        for info in &all[1..] {
            assert_eq!(info.epoch, all[0].epoch, "step {}", info.step);
            assert!(info.stats.new_bytes <= 64, "step {}", info.step);
            assert!(info.stored_bytes < BYTES as u64 / 4, "step {}", info.step);
        }
        (0..6).for_each(|step| assert_eq!(read(&store, "r", step), state(0, step)));
        assert_sound(&store);
    });
}

#[test]
fn redone_steps_make_a_branch() {
    with_all_locks(|store| {
        let mut run = Run::open(options(&store, "r")).unwrap();
        (0..5).for_each(|step| save(&mut run, 0, step).unwrap());
        assert_eq!(restore(&mut run, Some(2)), (2, state(0, 2)));
        let before = stored(&store);
        (3..5).for_each(|step| save(&mut run, 1, step).unwrap());
        assert!(stored(&store) - before < BYTES as u64 / 2, "a branch is a delta, too");
        // The abandoned states are still there; a redone step is the newest of its number.
        assert_eq!(restore(&mut run, None), (4, state(1, 4)));
        drop(run);
        let (all, _) = Library::of(store.clone()).checkpoints("r").unwrap();
        let flags: Vec<(u64, bool)> = all.iter().map(|c| (c.step, c.abandoned)).collect();
        let expected =
            [(0, false), (1, false), (2, false), (3, true), (4, true), (3, false), (4, false)];
        assert_eq!(flags, expected);
        assert_eq!(all[5].parent.as_ref().unwrap().sequence, all[2].sequence);
        assert_eq!(read(&store, "r", 3), state(1, 3));
        assert_eq!(read(&store, "r", 4), state(1, 4));
        let library = Library::of(store.clone());
        let back: Vec<(u64, Vec<u8>)> = library
            .backwards("r")
            .unwrap()
            .map(|state| state.unwrap())
            .map(|state| (state.step, state.get::<u8>("field").unwrap()))
            .collect();
        let lines = [(4, 1), (3, 1), (2, 0), (1, 0), (0, 0)];
        assert_eq!(back, lines.map(|(step, line)| (step, state(line, step))));
        assert_sound(&store);
    });
}

/// A run of five steps and a branch of it at step 2 that went on to step 4.
fn branch_in(store: &Arc<dyn Store>) {
    let mut run = Run::open(options(store, "r")).unwrap();
    (0..5).for_each(|step| save(&mut run, 0, step).unwrap());
    drop(run);
    let before = stored(store);
    let library = Library::of(store.clone());
    library.branch("r", Some(2), "side").unwrap();
    assert!(stored(store) - before < 1000, "no data is copied");
    assert_eq!(read(store, "side", 2), state(0, 2));
    let mut side = Run::open(options(store, "side")).unwrap();
    assert_eq!(restore(&mut side, None), (2, state(0, 2)));
    (3..5).for_each(|step| save(&mut side, 1, step).unwrap());
    drop(side);
    assert!(stored(store) - before < BYTES as u64, "it goes on with deltas");
    let taken = library.branch("r", Some(2), "side").err().unwrap();
    assert_eq!(taken.kind(), ErrorKind::Usage);
}

#[test]
fn pruning_the_source_keeps_what_a_branch_needs() {
    with_all_locks(|store| {
        branch_in(&store);
        let library = Library::of(store.clone());
        // A second epoch, so that the first one is free to go.
        let mut run = Run::open(options(&store, "r").growth(0.0)).unwrap();
        (5..7).for_each(|step| save(&mut run, 0, step).unwrap());
        drop(run);
        let planned = library.plan_prune("r", keep(1), &|_, _| {}).unwrap();
        let plan = library.prune("r", keep(1), &|_, _| {}).unwrap();
        assert_eq!((&plan.removed, &plan.packs), (&planned.removed, &planned.packs));
        assert!(!plan.removed.is_empty());
        assert_sound(&store);
        (3..5).for_each(|step| assert_eq!(read(&store, "side", step), state(1, step)));
        assert_eq!(read(&store, "side", 2), state(0, 2));
        assert_eq!(read(&store, "r", 6), state(0, 6));
        // Opening the source again must not take them for leftovers either.
        let mut run = Run::open(options(&store, "r")).unwrap();
        assert_eq!(restore(&mut run, None), (6, state(0, 6)));
        save(&mut run, 0, 7).unwrap();
        drop(run);
        assert_sound(&store);
        assert_eq!(read(&store, "side", 2), state(0, 2));
    });
}

#[test]
fn pruning_a_branch_keeps_the_source() {
    with_all_locks(|store| {
        branch_in(&store);
        let library = Library::of(store.clone());
        let plan = library.prune("side", keep(1), &|_, _| {}).unwrap();
        assert_eq!(plan.removed.len(), 2);
        assert_eq!(steps(&store, "side"), [4]);
        assert_eq!(steps(&store, "r"), [0, 1, 2, 3, 4]);
        (0..5).for_each(|step| assert_eq!(read(&store, "r", step), state(0, step)));
        assert_eq!(read(&store, "side", 4), state(1, 4));
        assert_sound(&store);
    });
}

#[test]
fn pruning_beside_a_living_writer_leaves_it_whole() {
    for locks in ALL_LOCKS {
        let store = unlocked(&memory(), locks);
        let mut run = Run::open(options(&store, "r")).unwrap();
        (0..5).for_each(|step| save(&mut run, 0, step).unwrap());
        // The manifests may go; every pack of the open epoch stays.
        let plan = Library::of(store.clone()).prune("r", keep(1), &|_, _| {}).unwrap();
        assert_eq!((plan.removed.len(), &plan.packs[..]), (4, &[][..]));
        // Content that came up only in the first step comes back, so the writer refers to it.
        save(&mut run, 0, 0).unwrap();
        assert_eq!(restore(&mut run, None), (0, state(0, 0)));
        drop(run);
        assert_sound(&store);
    }
}

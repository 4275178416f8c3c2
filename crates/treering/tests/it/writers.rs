//! One writer at a time, and lineages that go on, go back and part.

use std::sync::Arc;
use treering::testing::{HookedStore, Locks};
use treering::{
    ChunkSize, Error, ErrorKind, Keep, Library, MemoryStore, Options, Result, Run, Store, Variable,
    VariableMut,
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

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
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

fn assert_sound(store: &Arc<dyn Store>) {
    let report = Library::of(store.clone()).verify(None, true, &|_, _| {});
    let report = report.unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

fn steps(store: &Arc<dyn Store>, run: &str) -> Vec<u64> {
    let (all, trouble) = Library::of(store.clone()).checkpoints(run).unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    all.iter().map(|info| info.step).collect()
}

fn stored(store: &Arc<dyn Store>) -> u64 {
    let runs = Library::of(store.clone()).runs().unwrap();
    runs.iter().map(|run| run.stored_bytes).sum()
}

/// The same objects with other locks: they keep nobody out, as on file systems without locks, or are not there.
fn unlocked(store: &Arc<dyn Store>, locks: Locks) -> Arc<dyn Store> {
    Arc::new(HookedStore::with_locks(store.clone(), locks))
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
        let store: Arc<dyn Store> = unlocked(&objects, locks);
        let mut old = Run::open(options(&store, "r")).unwrap();
        (0..3).for_each(|step| save(&mut old, 0, step).unwrap());
        let mut new = Run::open(options(&store, "r")).unwrap();
        assert_eq!(restore(&mut new, None), (2, state(0, 2)));
        assert_eq!(kind(save(&mut old, 0, 3)), Some(ErrorKind::Busy));
        save(&mut new, 1, 3).unwrap();
        // It stays fenced, whatever the new writer has done meanwhile.
        assert_eq!(kind(save(&mut old, 0, 4)), Some(ErrorKind::Busy));
        save(&mut new, 1, 4).unwrap();
        assert_eq!(kind(save(&mut old, 0, 5)), Some(ErrorKind::Busy));
        assert_eq!(old.failures().len(), 3);
        drop((old, new));
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
        let mut old = Run::open(options(&shared, "r").node(here)).unwrap();
        (0..3).for_each(|step| save(&mut old, 0, step).unwrap());
        let mut new = Run::open(options(&shared, "r").node(there)).unwrap();
        assert_eq!(restore(&mut new, None), (2, state(0, 2)));
        for step in 3..7 {
            assert_eq!(kind(save(&mut old, 0, step)), Some(ErrorKind::Busy));
        }
        save(&mut new, 1, 3).unwrap();
        assert_eq!(kind(save(&mut old, 0, 7)), Some(ErrorKind::Busy));
        save(&mut new, 1, 4).unwrap();
        drop((old, new));
        assert_eq!(steps(&objects, "r"), [0, 1, 2, 3, 4]);
        assert_eq!(read(&objects, "r", 4), state(1, 4));
        assert_sound(&objects);
    }
}

#[test]
fn a_program_that_panics_can_open_its_run_again() {
    let store = memory();
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
}

#[test]
fn a_restart_continues_the_lineage() {
    let store = memory();
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
}

#[test]
fn redone_steps_make_a_branch() {
    let store = memory();
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
}

fn keep(last: u64) -> Keep {
    Keep::newest(last)
}

/// A run of five steps and a branch of it at step 2 that went on to step 4.
fn branched() -> Arc<dyn Store> {
    let store = memory();
    let mut run = Run::open(options(&store, "r")).unwrap();
    (0..5).for_each(|step| save(&mut run, 0, step).unwrap());
    drop(run);
    let before = stored(&store);
    let library = Library::of(store.clone());
    library.branch("r", Some(2), "side").unwrap();
    assert!(stored(&store) - before < 1000, "no data is copied");
    assert_eq!(read(&store, "side", 2), state(0, 2));
    let mut side = Run::open(options(&store, "side")).unwrap();
    assert_eq!(restore(&mut side, None), (2, state(0, 2)));
    (3..5).for_each(|step| save(&mut side, 1, step).unwrap());
    drop(side);
    assert!(stored(&store) - before < BYTES as u64, "it goes on with deltas");
    let taken = library.branch("r", Some(2), "side").err().unwrap();
    assert_eq!(taken.kind(), ErrorKind::Usage);
    store
}

#[test]
fn pruning_the_source_keeps_what_a_branch_needs() {
    let store = branched();
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
}

#[test]
fn pruning_a_branch_keeps_the_source() {
    let store = branched();
    let library = Library::of(store.clone());
    let plan = library.prune("side", keep(1), &|_, _| {}).unwrap();
    assert_eq!(plan.removed.len(), 2);
    assert_eq!(steps(&store, "side"), [4]);
    assert_eq!(steps(&store, "r"), [0, 1, 2, 3, 4]);
    (0..5).for_each(|step| assert_eq!(read(&store, "r", step), state(0, step)));
    assert_eq!(read(&store, "side", 4), state(1, 4));
    assert_sound(&store);
}

#[test]
fn pruning_beside_a_living_writer_leaves_it_whole() {
    for locks in [Locks::Real, Locks::Lying, Locks::None] {
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

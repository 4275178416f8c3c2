//! Two tiers: the node's store is near, the shared one lasts, and either can make good what the
//! other has lost.

mod leftovers;

use crate::support::memory;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use treering::testing::{Call, Fault, FaultStore, HookedStore, Locks};
use treering::{
    ChunkSize, DirectoryStore, Encoding, Error, ErrorKind, Level, Library, Options, Result, Run,
    Store, Variable, VariableMut,
};

const BYTES: usize = 4000;

fn state(step: u64) -> Vec<u8> {
    let mut field: Vec<u8> = (0..BYTES as u32).map(|i| (i * i / 3) as u8).collect();
    for past in 1..=step {
        let at = (past as usize * 911) % (BYTES - 100);
        field[at..at + 100].fill(past as u8);
    }
    field
}

/// Three deltas or so to an epoch.
fn options(node: &Arc<dyn Store>, shared: &Arc<dyn Store>) -> Options {
    Options::in_store(shared.clone(), "r")
        .node(node.clone())
        .chunk(ChunkSize::new(64).unwrap())
        .encoding(Encoding::Raw)
        .growth(2.5)
}

fn save(run: &mut Run, step: u64) -> treering::Save {
    let field = state(step);
    let save = run.checkpoint(step, &[Variable::new("field", &field)]);
    save.unwrap()
}

/// The step that was restored, exactly, and what went wrong on the way.
fn restore(run: &mut Run) -> Option<(u64, Vec<String>)> {
    let mut field = vec![0xEE; BYTES];
    let restored = run.restore(&mut [VariableMut::new("field", &mut field)]);
    let restored = restored.unwrap()?;
    assert_eq!(field, state(restored.step));
    Some((restored.step, restored.notes))
}

/// Where the newest state is.
fn level(run: &mut Run) -> Level {
    let restored = run.restore(&mut [VariableMut::new("field", &mut vec![0u8; BYTES])]);
    restored.unwrap().unwrap().level
}

/// The steps of the run in a store, each of which restores exactly.
fn steps(store: &Arc<dyn Store>) -> Vec<u64> {
    steps_in(&Library::of(store.clone()))
}

fn steps_in(library: &Library) -> Vec<u64> {
    let (all, trouble) = library.checkpoints("r").unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    for info in &all {
        let checkpoint = library.checkpoint("r", Some(info.step)).unwrap();
        let field = checkpoint.read::<u8>("field").unwrap();
        assert_eq!(field, state(info.step), "step {}", info.step);
    }
    let report = library.verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    all.iter().map(|info| info.step).collect()
}

/// Puts and commits wait at a gate, or fail while it is down.
#[derive(Clone, Default)]
struct Gate {
    closed: Arc<(Mutex<bool>, Condvar)>,
    down: Arc<AtomicBool>,
}

impl Gate {
    /// A gate, and the store behind it.
    fn before(inner: Arc<dyn Store>) -> (Gate, Arc<dyn Store>) {
        let gate = Gate::default();
        let own = gate.clone();
        let store = HookedStore::new(inner, move |call| match call {
            Call::Put(_) | Call::Commit(_) => own.pass(),
            _ => Ok(()),
        });
        (gate, Arc::new(store))
    }

    fn close(&self, closed: bool) {
        *self.closed.0.lock().unwrap() = closed;
        self.closed.1.notify_all();
    }

    fn go_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    fn pass(&self) -> Result<()> {
        let held = self.closed.0.lock().unwrap();
        drop(self.closed.1.wait_while(held, |closed| *closed).unwrap());
        match self.down.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Io, "the shared store is down")),
            false => Ok(()),
        }
    }
}

#[test]
fn staged_comes_before_durable() {
    let (node, inner) = (memory(), memory());
    let (gate, shared) = Gate::before(inner.clone());
    let mut run = Run::open(options(&node, &shared)).unwrap();
    gate.close(true);
    let save = save(&mut run, 0);
    save.staged().unwrap();
    // Nothing can have passed the gate yet, so it is on the node and nowhere else.
    assert_eq!(steps(&node), [0]);
    assert_eq!(Library::of(inner.clone()).checkpoints("r").unwrap().0.len(), 0);
    gate.close(false);
    save.durable().unwrap();
    save.staged().unwrap();
    assert_eq!(steps(&inner), [0]);
}

#[test]
fn what_is_staged_stays_so_when_the_shared_store_fails() {
    let (node, (gate, shared)) = (memory(), Gate::before(memory()));
    let mut run = Run::open(options(&node, &shared)).unwrap();
    gate.go_down(true);
    let save = save(&mut run, 0);
    assert!(save.durable().is_err());
    // The answer must not depend on whether the mover was faster than the question.
    save.staged().unwrap();
    assert_eq!(steps(&node), [0]);
}

#[test]
fn a_lost_node_costs_nothing_that_was_durable() {
    let (node, shared) = (memory(), memory());
    let mut run = Run::open(options(&node, &shared)).unwrap();
    for step in 0..9 {
        save(&mut run, step).durable().unwrap();
        // The node may be lost at any moment.
        assert_eq!(steps(&shared), (0..=step).collect::<Vec<_>>());
    }
    assert_eq!(level(&mut run), Level::Node);
    drop(run);
    let node = memory();
    let mut run = Run::open(options(&node, &shared)).unwrap();
    let (step, notes) = restore(&mut run).unwrap();
    assert_eq!((step, notes), (8, Vec::new()));
    assert_eq!(level(&mut run), Level::Shared);
    save(&mut run, 9).durable().unwrap();
    drop(run);
    assert_eq!(steps(&shared), (0..10).collect::<Vec<_>>());
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

#[test]
fn a_damaged_copy_on_the_node_is_served_from_shared() {
    let folder = tempfile::tempdir().unwrap();
    let node: Arc<dyn Store> = Arc::new(DirectoryStore::new(folder.path()));
    let shared = memory();
    let mut run = Run::open(options(&node, &shared)).unwrap();
    (0..3).for_each(|step| save(&mut run, step).durable().unwrap());
    drop(run);
    let mut all = Vec::new();
    files(folder.path(), &mut all);
    let packs = all.iter().filter(|f| f.extension().is_some());
    let packs: Vec<PathBuf> = packs.cloned().collect();
    assert_eq!(packs.len(), 3, "{all:?}");
    for file in &packs {
        let good = std::fs::read(file).unwrap();
        // In a frame, in the footer, in the trailer, and cut off.
        for at in [20, good.len() - 60, good.len() - 3, good.len()] {
            let mut bad = good.clone();
            match bad.get_mut(at) {
                Some(byte) => *byte ^= 0x20,
                None => bad.truncate(at / 2),
            }
            std::fs::write(file, &bad).unwrap();
            let mut run = Run::open(options(&node, &shared)).unwrap();
            let (step, notes) = restore(&mut run).unwrap();
            assert_eq!(step, 2);
            assert!(!notes.is_empty(), "byte {at} of {}", file.display());
            drop(run);
            let tiers = Library::of_tiers(vec![node.clone()], shared.clone());
            let report = tiers.verify(None, true, &|_, _| {}).unwrap();
            assert!(!report.is_sound() && report.sound == report.checkpoints);
        }
        std::fs::write(file, &good).unwrap();
    }
    for file in all.iter().filter(|f| f.extension().is_none()) {
        std::fs::write(file, "junk").unwrap();
    }
    let mut run = Run::open(options(&node, &shared)).unwrap();
    assert_eq!(restore(&mut run).unwrap().0, 2);
}

#[test]
fn a_flip_in_any_read_of_the_node_is_made_good() {
    let (node, shared) = (memory(), memory());
    let mut run = Run::open(options(&node, &shared)).unwrap();
    (0..3).for_each(|step| save(&mut run, step).durable().unwrap());
    drop(run);
    let counting = FaultStore::counting(node.clone());
    let read = |node: Arc<dyn Store>| {
        let tiers = Library::of_tiers(vec![node], shared.clone());
        let checkpoint = tiers.checkpoint("r", None).unwrap();
        assert_eq!(checkpoint.step(), 2);
        assert_eq!(checkpoint.read::<u8>("field").unwrap(), state(2));
        checkpoint.notes()
    };
    assert_eq!(read(Arc::new(counting.clone())), Vec::<String>::new());
    let calls = counting.calls();
    assert!(calls > 10);
    let mut noted = 0;
    for fault in [Fault::Flip, Fault::Fail] {
        for at in 0..calls {
            let notes = read(Arc::new(FaultStore::new(node.clone(), at, fault)));
            noted += notes.len();
        }
    }
    assert!(noted > 0);
}

#[test]
fn what_is_complete_on_the_node_only_is_brought_forward() {
    let (node, shared) = (memory(), memory());
    let mut run = Run::open(options(&node, &shared)).unwrap();
    (0..2).for_each(|step| save(&mut run, step).durable().unwrap());
    drop(run);
    // The shared store is full from some call after the opening on.
    let counting: Arc<dyn Store> = Arc::new(FaultStore::counting(shared.clone()));
    let counted = FaultStore::counting(counting);
    drop(Run::open(options(&node, &(Arc::new(counted.clone()) as Arc<dyn Store>))).unwrap());
    let full = FaultStore::new(shared.clone(), counted.calls() + 7, Fault::FailFrom);
    let full: Arc<dyn Store> = Arc::new(full);
    let mut run = Run::open(options(&node, &full)).unwrap();
    let mut only_staged = Vec::new();
    for step in 2..8 {
        if let Err(error) = save(&mut run, step).durable() {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            only_staged.push(step);
        }
    }
    let reported: Vec<u64> = run.failures().iter().map(|(step, _)| *step).collect();
    assert_eq!(reported, only_staged);
    assert!(only_staged.len() >= 4);
    drop(run);
    assert!(steps(&shared).len() < 8);
    let mut run = Run::open(options(&node, &shared)).unwrap();
    assert_eq!(steps(&shared), (0..8).collect::<Vec<_>>());
    assert_eq!(restore(&mut run).unwrap().0, 7);
    save(&mut run, 8).durable().unwrap();
    assert_eq!(steps(&shared), (0..9).collect::<Vec<_>>());
}

#[test]
fn a_shared_store_that_fails_once_heals_with_the_next_save() {
    let (node, inner) = (memory(), memory());
    let (gate, shared) = Gate::before(inner.clone());
    let mut run = Run::open(options(&node, &shared)).unwrap();
    save(&mut run, 0).durable().unwrap();
    gate.go_down(true);
    let lost = save(&mut run, 1).durable();
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(run.failures().len(), 1);
    gate.go_down(false);
    save(&mut run, 2).durable().unwrap();
    // Its packs are there again, whatever the node does now.
    assert!(steps(&inner).contains(&2));
    assert!(run.failures().is_empty());
    drop(run);
    drop(Run::open(options(&node, &shared)).unwrap());
    assert_eq!(steps(&inner), [0, 1, 2]);
}

#[test]
fn every_single_failure_of_either_tier_heals() {
    let played = |node: Arc<dyn Store>, shared: Arc<dyn Store>| {
        let mut durable = BTreeSet::new();
        let opened = Run::open(options(&node, &shared));
        let mut run = opened.or_else(|_| Run::open(options(&node, &shared))).unwrap();
        let mut failed = 0;
        for step in 0..6 {
            let save = save(&mut run, step);
            match save.durable() {
                Ok(()) => drop(durable.insert(step)),
                Err(_) => failed += 1,
            }
        }
        // A move that failed once may have come right since.
        assert!(run.failures().len() <= failed);
        assert!(failed <= 1, "one fault made {failed} saves fail");
        durable
    };
    for at_node in [true, false] {
        let count = FaultStore::counting(memory());
        let counted: Arc<dyn Store> = Arc::new(count.clone());
        match at_node {
            true => played(counted, memory()),
            false => played(memory(), counted),
        };
        for at in 0..count.calls() {
            for fault in [Fault::Fail, Fault::Tear] {
                let (node, shared) = (memory(), memory());
                let faulty = |inner: &Arc<dyn Store>| -> Arc<dyn Store> {
                    Arc::new(FaultStore::new(inner.clone(), at, fault))
                };
                let durable = match at_node {
                    true => played(faulty(&node), shared.clone()),
                    false => played(node.clone(), faulty(&shared)),
                };
                let there: BTreeSet<u64> = steps(&shared).into_iter().collect();
                assert!(there.is_superset(&durable), "{at_node} {at} {fault:?}");
                let mut run = Run::open(options(&node, &shared)).unwrap();
                restore(&mut run).unwrap();
                save(&mut run, 6).durable().unwrap();
            }
        }
    }
}

#[test]
fn a_damaged_checkpoint_on_the_node_does_not_keep_the_run_from_opening() {
    let folder = tempfile::tempdir().unwrap();
    let node: Arc<dyn Store> = Arc::new(DirectoryStore::new(folder.path()));
    let inner = memory();
    let (gate, shared) = Gate::before(inner.clone());
    let mut run = Run::open(options(&node, &shared)).unwrap();
    save(&mut run, 0).durable().unwrap();
    gate.go_down(true);
    assert!(save(&mut run, 1).durable().is_err());
    drop(run);
    gate.go_down(false);
    let mut all = Vec::new();
    files(folder.path(), &mut all);
    let newest = all.iter().filter(|f| f.extension().is_some()).max();
    let mut bytes = std::fs::read(newest.unwrap()).unwrap();
    bytes[20] ^= 1;
    std::fs::write(newest.unwrap(), &bytes).unwrap();
    let mut run = Run::open(options(&node, &shared)).unwrap();
    let (step, notes) = restore(&mut run).unwrap();
    assert_eq!(step, 0);
    assert!(!notes.is_empty());
    save(&mut run, 1).durable().unwrap();
    drop(run);
    assert_eq!(steps(&inner), [0, 1]);
}

/// A node that was away while the run went on elsewhere holds a past that is over.
#[test]
fn what_another_node_has_overtaken_is_not_brought_forward() {
    let (first, second, inner) = (memory(), memory(), memory());
    let (gate, shared) = Gate::before(inner.clone());
    let mut run = Run::open(options(&first, &shared)).unwrap();
    save(&mut run, 0).durable().unwrap();
    gate.go_down(true);
    for step in 1..6 {
        assert!(save(&mut run, step).durable().is_err());
    }
    drop(run);
    gate.go_down(false);
    let mut run = Run::open(options(&second, &shared)).unwrap();
    assert_eq!(restore(&mut run).unwrap().0, 0);
    save(&mut run, 1).durable().unwrap();
    drop(run);
    let mut run = Run::open(options(&first, &shared)).unwrap();
    let given_up = run.notes().iter().any(|note| note.contains("steps 1, 2, 3, 4, 5"));
    assert!(given_up, "what is dropped is reported: {:?}", run.notes());
    assert_eq!(restore(&mut run).unwrap().0, 1);
    save(&mut run, 2).durable().unwrap();
    drop(run);
    assert_eq!(restore(&mut Run::open(options(&second, &shared)).unwrap()).unwrap().0, 2);
}

#[test]
fn eviction_keeps_everything_restorable() {
    let (node, shared) = (memory(), memory());
    let tiers = Library::of_tiers(vec![node.clone()], shared.clone());
    let mut run = Run::open(options(&node, &shared)).unwrap();
    for step in 0..36 {
        save(&mut run, step).durable().unwrap();
        if step % 12 == 7 {
            drop(run);
            run = Run::open(options(&node, &shared)).unwrap();
            assert_eq!(restore(&mut run).unwrap().0, step);
        }
    }
    drop(run);
    let all: Vec<u64> = (0..36).collect();
    assert_eq!(steps_in(&tiers), all);
    assert_eq!(steps(&shared), all);
    let (infos, _) = Library::of(shared.clone()).checkpoints("r").unwrap();
    let epochs: BTreeSet<u64> = infos.iter().map(|c| c.epoch.sequence.0).collect();
    assert!(epochs.len() >= 5, "{epochs:?}");
    // The node holds no more than the open epoch and what closed with it.
    let near = node.list("runs/r/packs").unwrap();
    let far = shared.list("runs/r/packs").unwrap();
    assert_eq!(far.len(), 36);
    assert!(near.len() < 10, "{near:?}");
}

/// Some file systems find out that they are full when a file is made durable. That save fails; those after it go past the
/// node, and come to it again when there is room.
#[test]
fn a_node_that_is_found_full_too_late_is_passed_by_from_then_on() {
    let (node, shared) = (memory(), memory());
    let full = Arc::new(AtomicBool::new(false));
    let is_full = full.clone();
    let hooked = HookedStore::new(node.clone(), move |call| {
        match matches!(call, Call::Finish(_)) && is_full.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Full, "the node is full")),
            false => Ok(()),
        }
    });
    let hooked: Arc<dyn Store> = Arc::new(hooked);
    let mut run = Run::open(options(&hooked, &shared)).unwrap();
    save(&mut run, 0).durable().unwrap();
    full.store(true, Ordering::SeqCst);
    let saved: Vec<bool> = (1..20).map(|step| save(&mut run, step).durable().is_ok()).collect();
    // 1 after the first failure, 2 after the second, then 4 and 8.
    let fails = [1, 3, 6, 11].map(|step| step - 1);
    let expected: Vec<bool> = (0..19).map(|at| !fails.contains(&at)).collect();
    assert_eq!(saved, expected);
    full.store(false, Ordering::SeqCst);
    for step in 20..30 {
        save(&mut run, step).durable().unwrap();
    }
    run.failures();
    run.finish().unwrap();
    let packs = node.list("runs/r/packs").unwrap();
    assert!(!packs.is_empty(), "the node is used again");
    assert!(steps(&shared).ends_with(&(20..30).collect::<Vec<u64>>()));
}

/// A node without room for packs, or for entries of the log only, in front of two other tiers: checkpoints go past it, and
/// when there is room again the next ones go on from them, tier by tier.
#[test]
fn a_full_node_is_passed_by_in_front_of_two_tiers() {
    for only_log in [false, true] {
        let (node, middle, shared) = (memory(), memory(), memory());
        let full = Arc::new(AtomicBool::new(false));
        let is_full = full.clone();
        let hooked = HookedStore::new(node.clone(), move |call| {
            let stops = match call {
                Call::Commit(key) => key.contains("/log/"),
                Call::Put(_) | Call::Append(..) => !only_log,
                _ => false,
            };
            match stops && is_full.load(Ordering::SeqCst) {
                true => Err(Error::new(ErrorKind::Full, "the node is full")),
                false => Ok(()),
            }
        });
        let hooked: Arc<dyn Store> = Arc::new(hooked);
        let mut run = Run::open(options(&middle, &shared).node(hooked)).unwrap();
        for step in 0..12 {
            full.store(step % 4 < 2, Ordering::SeqCst);
            let durable = save(&mut run, step).durable();
            durable.unwrap_or_else(|e| panic!("step {step}, only the log {only_log}: {e}"));
        }
        run.finish().unwrap();
        assert_eq!(steps(&shared), (0..12).collect::<Vec<u64>>());
    }
}

/// Processes die one after another while they take over what an earlier one left on the node, each at another of their
/// writes: what was staged is there in the end, in its order.
#[test]
fn openers_that_die_lose_nothing_that_was_staged() {
    for deaths in 1..4u64 {
        for at in 0..16 {
            let (node, objects) = (memory(), memory());
            let (gate, shared) = Gate::before(objects.clone());
            let mut run = Run::open(options(&node, &shared)).unwrap();
            save(&mut run, 0).durable().unwrap();
            gate.go_down(true);
            (1..5).for_each(|step| save(&mut run, step).staged().unwrap());
            drop(run);
            let mut died = 0;
            for death in 0..deaths {
                let left = Arc::new(AtomicI64::new((at + death as i64) % 16));
                let dying = |store: &Arc<dyn Store>| -> Arc<dyn Store> {
                    let left = left.clone();
                    Arc::new(HookedStore::new(store.clone(), move |call| {
                        let writes = matches!(
                            call,
                            Call::Put(_) | Call::Commit(_) | Call::Delete(_) | Call::Finish(_)
                        );
                        let dead = left.load(Ordering::SeqCst) <= 0;
                        if writes && left.fetch_sub(1, Ordering::SeqCst) <= 0 || dead {
                            return Err(Error::new(ErrorKind::Io, "the process is dead"));
                        }
                        Ok(())
                    }))
                };
                let opened = Run::open(options(&dying(&node), &dying(&objects)));
                died += u64::from(opened.is_err());
                // A process that is killed saves nothing at its end.
                left.store(0, Ordering::SeqCst);
            }
            let mut run = Run::open(options(&node, &objects)).unwrap();
            let restored = restore(&mut run).map(|(step, _)| step);
            assert_eq!(restored, Some(4), "{died} of {deaths} died at {at}: {:?}", run.notes());
            save(&mut run, 5).durable().unwrap();
            run.finish().unwrap();
            assert_eq!(steps(&objects), [0, 1, 2, 3, 4, 5], "{died} of {deaths} died at {at}");
        }
    }
}

/// A shared checkpoint that a process dies in, wherever, costs none of those before it that stayed on the node.
#[test]
fn a_shared_checkpoint_that_is_interrupted_leaves_those_on_the_node() {
    let mut died = 0;
    for at in 0..30 {
        let (node, objects) = (memory(), memory());
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let dying = |store: &Arc<dyn Store>| -> Arc<dyn Store> {
            let left = left.clone();
            Arc::new(HookedStore::new(store.clone(), move |_| {
                match left.fetch_sub(1, Ordering::SeqCst) <= 0 {
                    true => Err(Error::new(ErrorKind::Io, "the process is dead")),
                    false => Ok(()),
                }
            }))
        };
        let rare = |node: &Arc<dyn Store>, objects: &Arc<dyn Store>| {
            options(node, objects).shared_every(10)
        };
        let mut run = Run::open(rare(&dying(&node), &dying(&objects))).unwrap();
        (0..4).for_each(|step| save(&mut run, step).staged().unwrap());
        left.store(at, Ordering::SeqCst);
        let data = state(4);
        let shared = run.checkpoint_shared(4, &[Variable::new("field", &data)]);
        died += u64::from(shared.and_then(|save| save.durable()).is_err());
        left.store(0, Ordering::SeqCst);
        drop(run);
        let mut run = Run::open(rare(&node, &objects)).unwrap();
        let restored = restore(&mut run).map(|(step, _)| step);
        assert!(restored >= Some(3), "died at {at}: {restored:?}, {:?}", run.notes());
        run.finish().unwrap();
    }
    assert!(died > 5, "{died}");
}

/// The node's store is full when the run is opened again: that costs nothing, neither then nor later.
#[test]
fn a_node_that_is_full_at_a_restart_keeps_what_was_staged() {
    let (node, objects) = (memory(), memory());
    let (gate, shared) = Gate::before(objects.clone());
    let mut run = Run::open(options(&node, &shared)).unwrap();
    save(&mut run, 0).durable().unwrap();
    gate.go_down(true);
    (1..5).for_each(|step| save(&mut run, step).staged().unwrap());
    drop(run);
    let full: Arc<dyn Store> = Arc::new(HookedStore::new(node.clone(), |call| match call {
        Call::Append(..) | Call::Commit(_) => Err(Error::io(
            "cannot write a file of the store",
            std::io::ErrorKind::StorageFull.into(),
        )),
        _ => Ok(()),
    }));
    for _ in 0..3 {
        let error = Run::open(options(&full, &objects)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        // A node's store is not pruned.
        assert!(!error.to_string().contains("prune"), "{error}");
    }
    let mut run = Run::open(options(&node, &objects)).unwrap();
    assert_eq!(restore(&mut run).map(|(step, _)| step), Some(4), "{:?}", run.notes());
    run.finish().unwrap();
    assert_eq!(steps(&objects), [0, 1, 2, 3, 4]);
    // With nothing to take over, a full node keeps nobody from opening.
    let mut run = Run::open(options(&full, &objects)).unwrap();
    save(&mut run, 5).durable().unwrap();
    run.finish().unwrap();
    assert_eq!(steps(&objects), [0, 1, 2, 3, 4, 5]);
}

/// A writer that was overtaken and cannot know it, because it does not reach the shared store, removes nothing from the node
/// that the next one has only there.
#[test]
fn an_overtaken_writer_leaves_what_the_next_one_has_on_the_node() {
    let (node, middle, objects) = (memory(), memory(), memory());
    let lying = |store: &Arc<dyn Store>| -> Arc<dyn Store> {
        Arc::new(HookedStore::with_locks(store.clone(), Locks::Lying))
    };
    let tiers = |middle: &Arc<dyn Store>, shared: &Arc<dyn Store>| {
        options(middle, &lying(shared)).node(node.clone()).growth(0.0)
    };
    let cut_off = Arc::new(AtomicBool::new(false));
    let cut = cut_off.clone();
    let of_old: Arc<dyn Store> =
        Arc::new(HookedStore::new(objects.clone(), move |_| match cut.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Io, "the shared store cannot be reached")),
            false => Ok(()),
        }));
    let mut old = Run::open(tiers(&middle, &of_old)).unwrap();
    save(&mut old, 0).durable().unwrap();
    let (down, of_new) = Gate::before(middle.clone());
    let mut new = Run::open(tiers(&of_new, &objects)).unwrap();
    assert_eq!(restore(&mut new).unwrap().0, 0);
    down.go_down(true);
    save(&mut new, 1).staged().unwrap();
    drop(new);
    cut_off.store(true, Ordering::SeqCst);
    // Some of its numbers are in use.
    let staged = (2..10).filter(|step| save(&mut old, *step).staged().is_ok()).count();
    assert!(staged > 2, "{staged}");
    drop(old);
    let mut run = Run::open(tiers(&middle, &objects)).unwrap();
    assert_eq!(restore(&mut run).unwrap().0, 1, "{:?}", run.notes());
    run.finish().unwrap();
    assert_eq!(steps(&objects), [0, 1]);
}

/// Checkpoints that a process left in front of several tiers go all the way, and not only one tier further.
#[test]
fn what_was_left_in_front_of_two_tiers_goes_to_the_last() {
    let (node, middle, objects) = (memory(), memory(), memory());
    let (gate, behind) = Gate::before(middle.clone());
    let mut run = Run::open(options(&behind, &objects).node(node.clone())).unwrap();
    save(&mut run, 0).durable().unwrap();
    gate.go_down(true);
    (1..4).for_each(|step| save(&mut run, step).staged().unwrap());
    drop(run);
    let mut run = Run::open(options(&middle, &objects).node(node)).unwrap();
    assert_eq!(steps(&objects), [0, 1, 2, 3]);
    save(&mut run, 4).durable().unwrap();
    run.finish().unwrap();
    assert_eq!(steps(&objects), [0, 1, 2, 3, 4]);
}

/// An opener removes what an overtaken writer had under way, which is no damage: that writer is told what has happened.
#[test]
fn an_overtaken_writer_is_told_so_and_not_of_damage() {
    let (node, middle, objects) = (memory(), memory(), memory());
    let lying: Arc<dyn Store> = Arc::new(HookedStore::with_locks(objects.clone(), Locks::Lying));
    let tiers = |node: &Arc<dyn Store>| options(&middle, &lying).node(node.clone());
    let (armed, inner) = (Arc::new(AtomicBool::new(false)), node.clone());
    let removes = armed.clone();
    // The pack goes before its manifest comes.
    let of_old: Arc<dyn Store> = Arc::new(HookedStore::new(node.clone(), move |call| {
        let entry = matches!(call, Call::Commit(key) if key.contains("/log/"));
        if entry && removes.load(Ordering::SeqCst) {
            let pack = inner.list("runs/r/packs")?.pop().unwrap().name;
            inner.delete(&[format!("runs/r/packs/{pack}")])?;
        }
        Ok(())
    }));
    let mut old = Run::open(tiers(&of_old)).unwrap();
    save(&mut old, 0).durable().unwrap();
    let mut new = Run::open(tiers(&node)).unwrap();
    assert_eq!(restore(&mut new).unwrap().0, 0);
    armed.store(true, Ordering::SeqCst);
    let error = save(&mut old, 1).durable().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    drop(old);
    save(&mut new, 2).durable().unwrap();
    new.finish().unwrap();
    assert_eq!(steps(&objects), [0, 2]);
}

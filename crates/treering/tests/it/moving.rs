//! Checkpoints on their way from a node to the shared store, beside whatever removes, renames or cleans up.

use crate::support::memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use treering::testing::{Call, HookedStore, Locks};
use treering::{
    ChunkSize, Encoding, Error, ErrorKind, Keep, Level, Library, Options, Result, Run, Save, Store,
    Variable, VariableMut,
};

const LAST: Keep = Keep::newest(1);

fn hooked(
    store: &Arc<dyn Store>,
    hook: impl Fn(Call) -> Result<()> + Send + Sync + 'static,
) -> Arc<dyn Store> {
    Arc::new(HookedStore::new(store.clone(), hook))
}

fn options(node: &Arc<dyn Store>, shared: &Arc<dyn Store>) -> Options {
    let options = Options::in_store(shared.clone(), "r").node(node.clone()).shared_every(3);
    options.chunk(ChunkSize::new(64).unwrap()).encoding(Encoding::Raw).growth(1000.0)
}

/// Every step changes another part.
fn values(step: u64) -> Vec<u64> {
    (0..500).map(|at| if at / 20 <= step { at + step } else { at }).collect()
}

fn save(run: &mut Run, step: u64) -> Save {
    run.checkpoint(step, &[Variable::new("x", &values(step))]).unwrap()
}

/// The steps that the shared store alone has; each restores to what was saved.
fn steps(shared: &Arc<dyn Store>) -> Vec<u64> {
    let library = Library::of(shared.clone());
    let (all, trouble) = library.checkpoints("r").unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    let steps: Vec<u64> = all.iter().map(|info| info.step).collect();
    for step in &steps {
        let checkpoint = library.checkpoint("r", Some(*step)).unwrap();
        assert_eq!(checkpoint.read::<u64>("x").unwrap(), values(*step), "step {step}");
    }
    steps
}

/// A store that has no room for the manifest of number 5, which is that of step 3: the opening has number 1.
fn without_number_5(store: &Arc<dyn Store>, full: &Arc<AtomicBool>) -> Arc<dyn Store> {
    let full = full.clone();
    hooked(store, move |call| match call {
        Call::Commit(key) if key.ends_with("/000000000005") && full.load(Ordering::SeqCst) => {
            Err(Error::new(ErrorKind::Full, "no room for the manifest"))
        }
        _ => Ok(()),
    })
}

/// Numbers that stayed on the node are given up in the shared store before the manifest that builds on them is written. Their
/// packs are there by then and nobody names them: they stay all the same.
#[test]
fn prune_leaves_packs_whose_manifest_is_still_to_come() {
    for locks in [Locks::Real, Locks::Lying, Locks::None] {
        let (node, shared) = (memory(), memory());
        let full = Arc::new(AtomicBool::new(false));
        let seen = without_number_5(&shared, &full);
        let seen: Arc<dyn Store> = Arc::new(HookedStore::with_locks(seen, locks));
        let mut run = Run::open(options(&node, &seen)).unwrap();
        run.checkpoint_shared(0, &[Variable::new("x", &values(0))]).unwrap().durable().unwrap();
        full.store(true, Ordering::SeqCst);
        for step in 1..3 {
            let save = save(&mut run, step);
            assert_eq!(save.level(), Level::Node);
            save.staged().unwrap();
        }
        assert_eq!(save(&mut run, 3).durable().unwrap_err().kind(), ErrorKind::Full);
        let packs = shared.list("runs/r/packs").unwrap().len();
        assert_eq!(
            (packs, steps(&shared)),
            (4, vec![0]),
            "the packs are there, the manifest is not"
        );
        let tool: Arc<dyn Store> = Arc::new(HookedStore::with_locks(shared.clone(), locks));
        Library::of(tool).prune("r", LAST, &|_, _| {}).unwrap();
        assert_eq!(shared.list("runs/r/packs").unwrap().len(), packs);
        full.store(false, Ordering::SeqCst);
        run.finish().unwrap();
        assert_eq!(steps(&shared), [0, 3]);
        assert!(Library::of(shared).verify(None, true, &|_, _| {}).unwrap().is_sound());
    }
}

/// If the packs are gone all the same, say because somebody deleted the files, a second try brings them again.
#[test]
fn a_move_that_is_tried_again_looks_for_its_packs() {
    let (node, shared) = (memory(), memory());
    let full = Arc::new(AtomicBool::new(true));
    let mut run = Run::open(options(&node, &without_number_5(&shared, &full))).unwrap();
    run.checkpoint_shared(0, &[Variable::new("x", &values(0))]).unwrap().durable().unwrap();
    save(&mut run, 1).staged().unwrap();
    save(&mut run, 2).staged().unwrap();
    let before = shared.list("runs/r/packs").unwrap();
    save(&mut run, 3).durable().unwrap_err();
    let packs = shared.list("runs/r/packs").unwrap();
    let new = packs.iter().filter(|pack| before.iter().all(|known| known.name != pack.name));
    let new: Vec<String> = new.map(|pack| format!("runs/r/packs/{}", pack.name)).collect();
    assert_eq!(new.len(), 3);
    shared.delete(&new).unwrap();
    full.store(false, Ordering::SeqCst);
    run.finish().unwrap();
    assert_eq!(steps(&shared), [0, 3]);
}

#[test]
fn one_rank_brings_its_last_checkpoint_when_it_ends() {
    for (count, expected) in [(1, vec![0]), (2, vec![1]), (3, vec![2]), (5, vec![2, 4])] {
        let (node, shared) = (memory(), memory());
        let mut run = Run::open(options(&node, &shared)).unwrap();
        for step in 0..count {
            save(&mut run, step).staged().unwrap();
        }
        run.finish().unwrap();
        assert_eq!(steps(&shared), expected);
    }
    // An end that cannot bring it says so, and the next start does.
    let (node, shared) = (memory(), memory());
    let full = Arc::new(AtomicBool::new(false));
    let refuses = full.clone();
    let seen = hooked(&shared, move |call| match call {
        Call::Put(_) if refuses.load(Ordering::SeqCst) => Err(Error::new(ErrorKind::Full, "full")),
        _ => Ok(()),
    });
    let mut run = Run::open(options(&node, &seen)).unwrap();
    save(&mut run, 0).staged().unwrap();
    full.store(true, Ordering::SeqCst);
    assert_eq!(run.finish().unwrap_err().kind(), ErrorKind::Full);
    full.store(false, Ordering::SeqCst);
    Run::open(options(&node, &seen)).unwrap().finish().unwrap();
    assert_eq!(steps(&shared), [0]);
}

#[test]
fn a_run_with_checkpoints_on_a_node_only_is_not_renamed() {
    let (node, shared) = (memory(), memory());
    let mut run = Run::open(options(&node, &shared)).unwrap();
    for step in 0..5 {
        save(&mut run, step).staged().unwrap();
    }
    drop(run);
    let library = Library::of_tiers(vec![node.clone()], shared.clone());
    let refused = library.rename_run("r", "s", &|_, _| {}).unwrap_err();
    assert!(refused.to_string().contains("only on a node"), "{refused}");
    let mut back = vec![0u64; 500];
    let mut run = Run::open(options(&node, &shared)).unwrap();
    let restored = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
    assert_eq!((restored.step, back), (4, values(4)));
}

/// A node whose folders cannot be listed for a moment may hold the manifests that name packs: nothing is cleaned up then.
#[test]
fn a_node_that_cannot_be_listed_loses_nothing_when_a_run_is_opened() {
    for refused in 0..30 {
        let (node, shared) = (memory(), memory());
        let mut run = Run::open(options(&node, &shared)).unwrap();
        for step in 0..5 {
            save(&mut run, step).staged().unwrap();
        }
        drop(run);
        let calls = AtomicU64::new(0);
        let seen = hooked(&node, move |call| match call {
            Call::List(_) if calls.fetch_add(1, Ordering::SeqCst) == refused => {
                Err(Error::new(ErrorKind::Io, "the folder cannot be listed"))
            }
            _ => Ok(()),
        });
        drop(Run::open(options(&seen, &shared)));
        let mut back = vec![0u64; 500];
        let mut run = Run::open(options(&node, &shared)).unwrap();
        let restored = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
        assert_eq!((restored.step, back), (4, values(4)), "list {refused}");
    }
}

/// An older checkpoint may be the only good one, and the system does not let us read it: nothing goes.
#[test]
fn prune_removes_nothing_while_a_checkpoint_cannot_be_judged() {
    let store = memory();
    let plain = || Options::in_store(store.clone(), "r").growth(0.0);
    let mut run = Run::open(plain()).unwrap();
    for step in 0..4 {
        save(&mut run, step).durable().unwrap();
    }
    run.finish().unwrap();
    let packs = store.list("runs/r/packs").unwrap();
    let mut packs: Vec<String> = packs.into_iter().map(|pack| pack.name).collect();
    packs.sort();
    let judged = |kinds: [ErrorKind; 4]| {
        let packs = packs.clone();
        let seen = hooked(&store, move |call| match call {
            Call::Open(key) => match packs.iter().position(|pack| key.ends_with(pack.as_str())) {
                Some(at) if kinds[at] != ErrorKind::Usage => {
                    Err(Error::new(kinds[at], "a pack is in a bad way"))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        });
        Library::of(seen).prune("r", LAST, &|_, _| {})
    };
    let (good, bad) = (ErrorKind::Usage, ErrorKind::Damaged);
    let error = judged([good, ErrorKind::Io, bad, bad]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let error = judged([bad, bad, bad, bad]).unwrap_err();
    assert!(error.to_string().contains("no checkpoint"), "{error}");
    assert_eq!(steps(&store), [0, 1, 2, 3]);
    // The newest stays, the newest sound one, and one of a second epoch.
    judged([good, good, bad, bad]).unwrap();
    assert_eq!(steps(&store), [1, 2, 3]);
}

#[test]
fn a_library_notices_that_another_run_has_taken_the_name() {
    let store = memory();
    let write = |steps: std::ops::Range<u64>| {
        let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
        steps.for_each(|step| drop(save(&mut run, step)));
        run.finish().unwrap();
    };
    let library = Library::of(store.clone());
    let listed = || -> Vec<u64> {
        library.checkpoints("r").unwrap().0.iter().map(|info| info.step).collect()
    };
    write(0..3);
    assert_eq!(listed(), [0, 1, 2]);
    Library::of(store.clone()).remove_run("r").unwrap();
    write(10..12);
    assert_eq!(listed(), [10, 11]);
    assert_eq!(library.checkpoint("r", None).unwrap().read::<u64>("x").unwrap(), values(11));
    write(12..13);
    assert_eq!(listed(), [10, 11, 12]);
}

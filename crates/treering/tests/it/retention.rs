//! Old checkpoints go behind the program: what stays, who does it, and what its failures cost.

use crate::support::lockless_memory as memory;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use treering::testing::{Call, HookedStore};
use treering::{
    Comm, Encoding, Error, ErrorKind, Keep, Library, Options, Run, Save, Store, ThreadRanks,
    Variable, VariableMut,
};

const BYTES: usize = 20_000;

fn options(store: &Arc<dyn Store>) -> Options {
    Options::in_store(store.clone(), "r").encoding(Encoding::Raw)
}

/// A state that differs everywhere from that of any other step.
fn state(step: u64) -> Vec<u8> {
    let word =
        |at: usize| (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(step as u32);
    (0..BYTES).map(|at| (word(at) >> 24) as u8 ^ step as u8).collect()
}

fn save(run: &mut Run, step: u64) -> Save {
    run.checkpoint(step, &[Variable::new("x", &state(step))]).unwrap()
}

fn listed(store: &Arc<dyn Store>) -> Vec<u64> {
    let (all, trouble) = Library::of(store.clone()).checkpoints("r").unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    all.iter().map(|info| info.step).collect()
}

/// All that is listed is what was handed over.
fn check(store: &Arc<dyn Store>) {
    let library = Library::of(store.clone());
    for step in listed(store) {
        assert_eq!(
            library.checkpoint("r", Some(step)).unwrap().read::<u8>("x").unwrap(),
            state(step)
        );
    }
    let report = library.verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound() && report.unreferenced.is_empty(), "{report:?}");
}

fn bytes(store: &Arc<dyn Store>) -> u64 {
    let folders = ["runs/r/log", "runs/r/packs", "runs/r/branches", "runs/r/bundles"];
    let items = folders.iter().filter_map(|folder| store.list(folder).ok()).flatten();
    items.map(|item| item.size).sum()
}

#[test]
fn the_newest_and_every_so_many_th_stay() {
    for node in [None, Some(memory())] {
        let store = memory();
        let with_node = |options: Options| match &node {
            Some(node) => options.node(node.clone()),
            None => options,
        };
        // Every checkpoint is an epoch of its own.
        let options = || with_node(options(&store).growth(0.0));
        let mut run = Run::open(options().keep(3, Some(10))).unwrap();
        (0..25).for_each(|step| drop(save(&mut run, step)));
        run.finish().unwrap();
        assert_eq!(listed(&store), [0, 10, 20, 22, 23, 24]);
        check(&store);
        // Another program keeps less, and goes on from what is there.
        let mut run = Run::open(options().keep(1, None)).unwrap();
        let mut back = vec![0u8; BYTES];
        let restored = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
        assert_eq!((restored.step, &back), (24, &state(24)));
        save(&mut run, 25).durable().unwrap();
        assert_eq!(run.upkeep_notes(), Vec::<String>::new());
        run.finish().unwrap();
        // The newest, and that of a second epoch.
        assert_eq!(listed(&store), [24, 25]);
        check(&store);
    }
}

/// In one epoch, checkpoints build on each other: manifests go, and what others build on stays.
#[test]
fn what_kept_checkpoints_build_on_stays() {
    let store = memory();
    let mut run = Run::open(options(&store).growth(1e9).keep(2, None)).unwrap();
    let mut data = vec![0u8; BYTES];
    for step in 0..20u64 {
        data[step as usize * 1000] = 1;
        run.checkpoint(step, &[Variable::new("x", &data)]).unwrap();
    }
    run.finish().unwrap();
    assert_eq!(listed(&store), [18, 19]);
    let library = Library::of(store.clone());
    let read: Vec<u8> = library.checkpoint("r", Some(19)).unwrap().read("x").unwrap();
    assert_eq!(read, data);
    assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
}

#[test]
fn saves_do_not_wait_for_removals() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let waits = gate.clone();
    let inner = memory();
    let hooked = HookedStore::new(inner.clone(), move |call| {
        if matches!(call, Call::Delete(_)) {
            let (open, bell) = (&waits.0, &waits.1);
            drop(bell.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        }
        Ok(())
    });
    let store: Arc<dyn Store> = Arc::new(hooked);
    let mut run = Run::open(options(&store).growth(0.0).keep(2, None)).unwrap();
    for step in 0..20 {
        save(&mut run, step).durable().unwrap();
    }
    assert_eq!(listed(&inner).len(), 20);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    run.finish().unwrap();
    assert_eq!(listed(&inner), [18, 19]);
    check(&inner);
}

#[test]
fn a_failure_is_a_note_and_no_failed_save() {
    let inner = memory();
    let hooked = HookedStore::new(inner.clone(), |call| match call {
        Call::Delete(key) if key.contains("/log/") => {
            Err(Error::new(ErrorKind::Io, "nothing is removed today"))
        }
        _ => Ok(()),
    });
    let store: Arc<dyn Store> = Arc::new(hooked);
    let mut run = Run::open(options(&store).growth(0.0).keep(1, None)).unwrap();
    (0..5).for_each(|step| save(&mut run, step).durable().unwrap());
    // The note comes with the first look that finds something to remove, which is behind the program.
    while run.upkeep_notes().is_empty() {
        std::thread::yield_now();
    }
    let notes = run.upkeep_notes();
    assert!(notes.iter().all(|note| note.contains("nothing is removed today")), "{notes:?}");
    assert!(run.failures().is_empty());
    run.finish().unwrap();
    assert_eq!(listed(&inner), [0, 1, 2, 3, 4]);
    check(&inner);
}

/// Where new packs cannot be read back, older checkpoints are what the run has left.
#[test]
fn nothing_goes_that_is_newer_than_the_newest_sound_one() {
    let (inner, bad) = (memory(), Arc::new(AtomicBool::new(false)));
    let mut run = Run::open(options(&inner).growth(0.0)).unwrap();
    (0..3).for_each(|step| drop(save(&mut run, step)));
    run.finish().unwrap();
    let old: Vec<String> =
        inner.list("runs/r/packs").unwrap().into_iter().map(|item| item.name).collect();
    let is_bad = bad.clone();
    let hooked = HookedStore::new(inner.clone(), move |call| match call {
        Call::Read(key, _) if is_bad.load(Ordering::SeqCst) && key.contains("/packs/") => {
            match old.iter().any(|name| key.ends_with(name)) {
                true => Ok(()),
                false => Err(Error::damaged("bytes came back different")),
            }
        }
        _ => Ok(()),
    });
    let store: Arc<dyn Store> = Arc::new(hooked);
    let mut run = Run::open(options(&store).growth(0.0).keep(1, None)).unwrap();
    let mut back = vec![0u8; BYTES];
    run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap();
    bad.store(true, Ordering::SeqCst);
    (3..6).for_each(|step| save(&mut run, step).durable().unwrap());
    while run.upkeep_notes().is_empty() {
        std::thread::yield_now();
    }
    let notes = run.upkeep_notes();
    assert!(notes.iter().any(|note| note.contains("cannot be restored")), "{notes:?}");
    run.finish().unwrap();
    assert!(listed(&inner).contains(&2), "{:?}", listed(&inner));
    assert!(listed(&inner).contains(&5));
}

#[test]
fn a_run_stays_below_its_limit_or_says_why_not() {
    let store = memory();
    let limit = 5 * BYTES as u64;
    let mut run = Run::open(options(&store).growth(0.0).limit(limit)).unwrap();
    (0..12).for_each(|step| drop(save(&mut run, step)));
    run.finish().unwrap();
    let left = listed(&store);
    assert!(bytes(&store) <= limit && bytes(&store) > limit - BYTES as u64 - 4000, "{left:?}");
    assert_eq!(left, [8, 9, 10, 11]);
    check(&store);
    // Less than two checkpoints cannot be held.
    let mut run = Run::open(options(&store).growth(0.0).limit(BYTES as u64 / 2)).unwrap();
    save(&mut run, 12).durable().unwrap();
    while run.upkeep_notes().is_empty() {
        std::thread::yield_now();
    }
    let notes = run.upkeep_notes();
    assert!(notes[0].contains("limit") && notes[0].contains("11, 12"), "{notes:?}");
    run.finish().unwrap();
    assert_eq!(listed(&store), [11, 12]);
    check(&store);
    // The tool has the same limit.
    let keep = Keep { limit: Some(1), ..Keep::newest(10) };
    let plan = Library::of(store.clone()).plan_prune("r", keep, &|_, _| {}).unwrap();
    assert!(plan.removed.is_empty() && plan.excess > 0 && plan.notes[0].contains("limit"));
}

#[test]
fn a_store_stays_below_its_limit_at_the_cost_of_the_run_that_has_it() {
    let store = memory();
    let other = || Options::in_store(store.clone(), "other").encoding(Encoding::Raw).growth(0.0);
    let mut run = Run::open(other()).unwrap();
    (0..3).for_each(|step| drop(save(&mut run, step)));
    run.finish().unwrap();
    let limit = 8 * BYTES as u64;
    let mut run = Run::open(options(&store).growth(0.0).store_limit(limit)).unwrap();
    (0..12).for_each(|step| drop(save(&mut run, step)));
    run.finish().unwrap();
    // Three are of the other run; heads and tails of packs are bytes as well.
    assert_eq!(listed(&store), [8, 9, 10, 11]);
    check(&store);
    // Another run that grows leaves less to this one, and is never touched.
    let mut run = Run::open(other()).unwrap();
    run.restore(&mut [VariableMut::new("x", &mut vec![0u8; BYTES])]).unwrap();
    (3..5).for_each(|step| drop(save(&mut run, step)));
    run.finish().unwrap();
    let library = Library::of(store.clone());
    let keep = Keep { store_limit: Some(limit), ..Keep::newest(10) };
    let planned = library.plan_prune("r", keep, &|_, _| {}).unwrap();
    let pruned = library.prune("r", keep, &|_, _| {}).unwrap();
    assert_eq!((&planned.removed, planned.excess), (&pruned.removed, 0));
    assert_eq!(listed(&store), [10, 11]);
    assert_eq!(library.checkpoints("other").unwrap().0.len(), 5);
    // Checkpoints that must stay do, and the reason is given.
    let keep = Keep { store_limit: Some(1), ..keep };
    let pruned = library.prune("r", keep, &|_, _| {}).unwrap();
    assert!(pruned.excess > 0 && pruned.notes[0].contains("other runs"), "{pruned:?}");
    assert_eq!(listed(&store), [10, 11]);
    check(&store);
}

/// The bytes of all runs.
fn all_bytes(store: &Arc<dyn Store>) -> u64 {
    let runs = Library::of(store.clone()).run_names().unwrap();
    let folders = runs.iter().flat_map(|run| {
        ["log", "packs", "branches", "bundles"].map(|folder| format!("runs/{run}/{folder}"))
    });
    let items = folders.filter_map(|folder| store.list(&folder).ok()).flatten();
    items.map(|item| item.size).sum()
}

/// Runs that save in turn: five steps of "a" and "b", of which "b" is a branch of "a" that begins at its step 1 if it is
/// told so. Epochs have as many members as the growth lets them have.
fn two_runs(growth: f64, branch: bool) -> Arc<dyn Store> {
    let store = memory();
    let options = |run: &str| {
        let options = Options::in_store(store.clone(), run).encoding(Encoding::Raw);
        options.growth(growth).compact(None)
    };
    let next = || std::thread::sleep(std::time::Duration::from_millis(2));
    let mut a = Run::open(options("a")).unwrap();
    for step in 0..2 {
        save(&mut a, step).durable().unwrap();
        next();
    }
    if branch {
        Library::of(store.clone()).branch("a", None, "b").unwrap();
    }
    let mut b = Run::open(options("b")).unwrap();
    b.restore(&mut [VariableMut::new("x", &mut vec![0u8; BYTES])]).unwrap();
    for step in 2..7 {
        for run in [&mut a, &mut b] {
            save(run, step).durable().unwrap();
            next();
        }
    }
    a.finish().unwrap();
    b.finish().unwrap();
    store
}

/// All that both runs list is what was saved, and nothing is left over.
fn check_both(store: &Arc<dyn Store>) -> [Vec<u64>; 2] {
    let library = Library::of(store.clone());
    let report = library.verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound() && report.unreferenced.is_empty(), "{report:?}");
    ["a", "b"].map(|run| {
        let steps: Vec<u64> =
            library.checkpoints(run).unwrap().0.iter().map(|info| info.step).collect();
        for step in &steps {
            let checkpoint = library.checkpoint(run, Some(*step)).unwrap();
            assert!(checkpoint.read::<u8>("x").unwrap() == state(*step), "{run}@{step}");
        }
        steps
    })
}

#[test]
fn the_oldest_of_all_runs_go_until_the_store_is_below_its_limit() {
    let store = two_runs(0.0, false);
    let library = Library::of(store.clone());
    let all = all_bytes(&store);
    assert!(library.prune_store(all, &|_, _| {}).unwrap().removed.is_empty());
    assert_eq!(library.prune_store(0, &|_, _| {}).unwrap_err().kind(), ErrorKind::Usage);
    // Room for all but four and a half.
    let limit = all - 9 * BYTES as u64 / 2;
    let planned = library.plan_prune_store(limit, &|_, _| {}).unwrap();
    assert_eq!(all_bytes(&store), all);
    let pruned = library.prune_store(limit, &|_, _| {}).unwrap();
    assert_eq!(
        (&planned.removed, planned.bytes, pruned.excess),
        (&pruned.removed, pruned.bytes, 0)
    );
    let removed: Vec<(&str, u64)> =
        pruned.removed.iter().map(|(run, gone)| (&run[..], gone.step)).collect();
    assert_eq!(removed, [("a", 0), ("a", 1), ("a", 2), ("b", 2), ("a", 3)]);
    assert!(all_bytes(&store) <= limit);
    assert_eq!(check_both(&store), [vec![4, 5, 6], vec![3, 4, 5, 6]]);
    // Two epochs of each run stay, whatever the limit.
    let pruned = library.prune_store(1, &|_, _| {}).unwrap();
    assert_eq!(pruned.excess, all_bytes(&store) - 1);
    assert!(pruned.notes[0].contains("more than the limit of 1"), "{pruned:?}");
    assert_eq!(check_both(&store), [vec![5, 6], vec![5, 6]]);
}

/// Packs that a branch shares go with the last checkpoint that needs them, in whichever run; no limit costs anything else.
#[test]
fn a_limit_of_the_store_honours_branches() {
    let mut freed_shared = 0;
    for growth in [0.0, 2.0] {
        let whole = all_bytes(&two_runs(growth, true));
        for part in 0..12 {
            let store = two_runs(growth, true);
            let limit = (whole * part / 11).max(1);
            let before = check_both(&store);
            let library = Library::of(store.clone());
            let plan = library.prune_store(limit, &|_, _| {}).unwrap();
            let after = check_both(&store);
            let left = all_bytes(&store);
            assert_eq!(plan.excess, left.saturating_sub(limit), "{growth} {part}: {plan:?}");
            assert!(before.iter().zip(&after).all(|(before, after)| before.last() == after.last()));
            // What stays, and packs of "a" that "b" alone needs among it, is counted by the next plan, too.
            let again = library.plan_prune_store(limit, &|_, _| {}).unwrap();
            assert_eq!((again.removed.len(), again.excess), (0, plan.excess), "{growth} {part}");
            let gone = |run: usize| before[run].len() - after[run].len();
            assert_eq!(plan.removed.len(), gone(0) + gone(1));
            freed_shared += usize::from(gone(0) > 0 && gone(1) > 0);
        }
    }
    assert!(freed_shared > 0);
}

#[test]
fn one_rank_does_it_for_all() {
    let store = memory();
    let shared = store.clone();
    let ends = ThreadRanks::new(3).run(move |comm: Arc<dyn Comm>| {
        let options = options(&shared).growth(0.0).ranks(comm.clone()).ranks_per_pack(1);
        let mut run = Run::open(options.keep(2, Some(4))).unwrap();
        for step in 0..10u64 {
            let own = vec![(step * 10 + u64::from(comm.rank().0)) as u8; 500];
            run.checkpoint(step, &[Variable::new("x", &own)]).unwrap();
        }
        run.finish().unwrap();
    });
    assert!(ends.into_iter().all(|end| end.done().is_some()));
    assert_eq!(listed(&store), [0, 4, 8, 9]);
    let report = Library::of(store.clone()).verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    let store = memory();
    let refused = |options: Options| Run::open(options).err().map(|error| error.kind());
    assert_eq!(refused(options(&store).keep(0, None)), Some(ErrorKind::Usage));
    assert_eq!(refused(options(&store).keep(1, Some(0))), Some(ErrorKind::Usage));
    assert_eq!(refused(options(&store).limit(0)), Some(ErrorKind::Usage));
}

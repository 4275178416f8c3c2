//! What ended writers have left on a node: it goes on with its own run, whatever fails meanwhile, and with no other one of
//! the same name.

use super::*;
use treering::testing::{PowerCut, SimDisk, SimFault};

/// A run whose newest checkpoints, from 1 on, have reached its node only.
fn staged(node: &Arc<dyn Store>, objects: &Arc<dyn Store>, newest: u64) {
    let (gate, shared) = Gate::before(objects.clone());
    let mut run = Run::open(options(node, &shared)).unwrap();
    save(&mut run, 0).durable().unwrap();
    gate.go_down(true);
    (1..=newest).for_each(|step| save(&mut run, step).staged().unwrap());
}

/// A store whose n-th call fails, and no other.
fn failing_once(store: &Arc<dyn Store>, at: u64) -> (FaultStore, Arc<dyn Store>) {
    let faulty = FaultStore::new(store.clone(), at, Fault::Fail);
    (faulty.clone(), Arc::new(faulty))
}

#[test]
fn a_node_that_serves_two_stores_mixes_nothing() {
    let (node, first, second) = (memory(), memory(), memory());
    staged(&node, &first, 3);
    for round in 0..2 {
        let mut run = Run::open(options(&node, &second)).unwrap();
        let told = run.notes().iter().filter(|note| note.contains("made for another store"));
        assert_eq!(told.count(), 1, "{:?}", run.notes());
        let restored = restore(&mut run).map(|(step, _)| step);
        assert_eq!(restored, (round == 1).then_some(19));
        (0..10).for_each(|step| drop(save(&mut run, 10 * round + 10 + step)));
        run.finish().unwrap();
    }
    assert_eq!(steps(&second), (10..30).collect::<Vec<_>>());
    let mut run = Run::open(options(&node, &first)).unwrap();
    assert_eq!(restore(&mut run).map(|(step, _)| step), Some(3), "{:?}", run.notes());
    save(&mut run, 4).durable().unwrap();
    run.finish().unwrap();
    assert_eq!(steps(&first), [0, 1, 2, 3, 4]);
    assert_eq!(steps(&second), (10..30).collect::<Vec<_>>());
}

#[test]
fn a_run_that_was_removed_does_not_come_back_from_a_node() {
    let (node, objects) = (memory(), memory());
    staged(&node, &objects, 3);
    // Its opening gets another number than the next run's first one.
    drop(Run::open(options(&memory(), &objects)).unwrap());
    staged(&node, &objects, 5);
    Library::of(objects.clone()).remove_run("r").unwrap();
    let mut run = Run::open(options(&node, &objects)).unwrap();
    assert_eq!(restore(&mut run), None, "{:?}", run.notes());
    (20..40).for_each(|step| drop(save(&mut run, step)));
    run.finish().unwrap();
    let mut run = Run::open(options(&node, &objects)).unwrap();
    assert_eq!(restore(&mut run).map(|(step, _)| step), Some(39), "{:?}", run.notes());
    run.finish().unwrap();
    assert_eq!(steps(&objects), (20..40).collect::<Vec<_>>());
}

/// A removal that is interrupted anywhere leaves nothing that overtakes the next run of the name.
#[test]
fn a_removal_that_is_interrupted_spoils_nothing_of_the_next_run() {
    for dies_at in 0..8 {
        let objects = memory();
        for opening in 0..3 {
            let mut run = Run::open(Options::in_store(objects.clone(), "r")).unwrap();
            (0..5).for_each(|step| drop(save(&mut run, 5 * opening + step)));
            run.finish().unwrap();
        }
        let left = AtomicI64::new(dies_at);
        let dying: Arc<dyn Store> = Arc::new(HookedStore::new(objects.clone(), move |call| {
            let deletes = matches!(call, Call::Delete(_));
            if deletes && left.fetch_sub(1, Ordering::SeqCst) <= 0 {
                return Err(Error::new(ErrorKind::Io, "the machine is gone"));
            }
            Ok(())
        }));
        let _ = Library::of(dying).remove_run("r");
        let before: Vec<u64> = match Library::of(objects.clone()).checkpoints("r") {
            Ok((all, _)) => all.iter().map(|info| info.step).collect(),
            Err(_) => Vec::new(),
        };
        let mut run = Run::open(Options::in_store(objects.clone(), "r")).unwrap();
        (100..130).for_each(|step| drop(save(&mut run, step)));
        run.finish().unwrap();
        drop(Run::open(Options::in_store(objects.clone(), "r")).unwrap());
        let expected: Vec<u64> = before.into_iter().chain(100..130).collect();
        assert_eq!(steps(&objects), expected, "died at removal {dies_at}");
    }
}

/// A call that fails once, while a run is opened, costs no checkpoint that is on the node only.
#[test]
fn an_error_that_passes_gives_nothing_up() {
    let (mut refused, mut at) = (0, 0);
    loop {
        let (node, objects) = (memory(), memory());
        staged(&node, &objects, 3);
        let (calls, faulty) = failing_once(if at % 2 == 0 { &node } else { &objects }, at / 2);
        let opened = match at % 2 {
            0 => Run::open(options(&faulty, &objects)),
            _ => Run::open(options(&node, &faulty)),
        };
        let reached = calls.calls() > at / 2;
        refused += u64::from(opened.is_err());
        drop(opened);
        let mut run = Run::open(options(&node, &objects)).unwrap();
        let restored = restore(&mut run).map(|(step, _)| step);
        assert_eq!(restored, Some(3), "call {at}: {:?}", run.notes());
        run.finish().unwrap();
        assert_eq!(steps(&objects), [0, 1, 2, 3], "call {at}");
        at += 1;
        if !reached && at > 100 {
            break;
        }
    }
    assert!(refused > 10, "{refused}");
}

/// An opener has died with nothing but its opening; `treering drain` then brings over what the writer before it left.
#[test]
fn a_drain_goes_on_behind_an_opener_that_died() {
    for dies_at in 1..4 {
        let (node, objects) = (memory(), memory());
        staged(&node, &objects, 3);
        let left = AtomicI64::new(dies_at);
        let dying: Arc<dyn Store> = Arc::new(HookedStore::new(objects.clone(), move |call| {
            let writes = matches!(call, Call::Put(_) | Call::Commit(_) | Call::Delete(_));
            if writes && left.fetch_sub(1, Ordering::SeqCst) <= 0 {
                return Err(Error::new(ErrorKind::Io, "the process is dead"));
            }
            Ok(())
        }));
        let full: Arc<dyn Store> = Arc::new(HookedStore::new(node.clone(), |call| match call {
            Call::Commit(_) => Err(Error::new(ErrorKind::Full, "the node is full")),
            _ => Ok(()),
        }));
        assert!(Run::open(options(&full, &dying)).is_err());
        let library = Library::of(objects.clone());
        let plan = library.plan_drain("r", std::slice::from_ref(&node)).unwrap();
        let planned: Vec<u64> = plan.completed.iter().map(|planned| planned.step).collect();
        assert_eq!(planned, [1, 2, 3], "{plan:?}");
        let done = library.drain("r", std::slice::from_ref(&node), &|_, _| {}).unwrap();
        assert_eq!(done.completed, plan.completed);
        assert_eq!(steps(&objects), [0, 1, 2, 3]);
        let again = library.drain("r", std::slice::from_ref(&node), &|_, _| {}).unwrap();
        assert!(again.parts.is_empty(), "{again:?}");
        let mut run = Run::open(options(&node, &objects)).unwrap();
        assert_eq!(restore(&mut run).map(|(step, _)| step), Some(3));
        assert!(run.notes().iter().all(|note| !note.contains("given up")), "{:?}", run.notes());
        (4..12).for_each(|step| drop(save(&mut run, step)));
        run.finish().unwrap();
        assert_eq!(steps(&objects), (0..12).collect::<Vec<_>>());
    }
}

/// The newest checkpoint was to be shared, and its data on the node is bad: the one before it, which was to stay there, is in
/// the shared store when the program ends.
#[test]
fn what_stays_on_the_node_goes_on_when_what_was_to_replace_it_cannot() {
    let (node, objects) = (memory(), memory());
    let (gate, shared) = Gate::before(objects.clone());
    let options = options(&node, &shared).shared_every(100).growth(100.0);
    let mut run = Run::open(options).unwrap();
    (0..2).for_each(|step| save(&mut run, step).staged().unwrap());
    let before: BTreeSet<String> =
        node.list("runs/r/packs").unwrap().into_iter().map(|item| item.name).collect();
    gate.close(true);
    let data = state(2);
    let last = run.checkpoint_shared(2, &[Variable::new("field", &data)]).unwrap();
    last.staged().unwrap();
    let packs = node.list("runs/r/packs").unwrap().into_iter().map(|item| item.name);
    let new: Vec<String> = packs.filter(|name| !before.contains(name)).collect();
    assert_eq!(new.len(), 1);
    let key = format!("runs/r/packs/{}", new[0]);
    let mut bytes = vec![0; node.open(&key).unwrap().size() as usize];
    node.open(&key).unwrap().read_at(0, &mut bytes).unwrap();
    bytes[40] ^= 1;
    node.delete(std::slice::from_ref(&key)).unwrap();
    let mut put = node.put(&key).unwrap();
    put.append(&bytes).unwrap();
    put.finish().unwrap();
    gate.close(false);
    assert!(last.durable().is_err());
    let _ = run.finish();
    let listed = Library::of(objects.clone()).checkpoints("r").unwrap().0;
    assert_eq!(listed.iter().map(|info| info.step).collect::<Vec<_>>(), [1]);
    let last = Library::of(objects).checkpoint("r", Some(1)).unwrap();
    assert_eq!(last.read::<u8>("field").unwrap(), state(1));
}

/// One operation of the shared disk fails while the last checkpoint is moved; it is moved again at the end. When the program
/// has ended well, a power cut costs nothing.
#[test]
fn what_a_program_has_ended_well_with_survives_a_power_cut() {
    let mut ended_well_after_a_failure = 0;
    for at in 0.. {
        let (node, disk) = (memory(), SimDisk::new());
        let on = |disk: SimDisk| -> Arc<dyn Store> {
            Arc::new(DirectoryStore::on(Arc::new(disk), "/store"))
        };
        let mut run = Run::open(options(&node, &on(disk.clone()))).unwrap();
        save(&mut run, 0).durable().unwrap();
        disk.inject(at, SimFault::Fail);
        let failed = save(&mut run, 1).durable().is_err();
        let (ended, reached) = (run.finish(), disk.operations() > at);
        if ended.is_ok() {
            ended_well_after_a_failure += u32::from(failed);
            let left = on(disk.after_cut(PowerCut::Lose));
            assert_eq!(steps(&left), [0, 1], "operation {at}");
        }
        if !reached {
            break;
        }
    }
    assert!(ended_well_after_a_failure > 3, "{ended_well_after_a_failure}");
}

//! The survivors of a rank's death go on with the same run, whoever dies when, also while they are about to go on.

use crate::support::lockless_memory as memory;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use treering::testing::{
    Fault, FaultStore, HookedStore, POINTS, PartialComm, PartialDeath, set_point_hook,
};
use treering::{
    ChunkSize, Comm, Encoding, End, Error, ErrorKind, Keep, Library, Options, Rank, Reduction,
    Result, Run, Store, ThreadRanks, Variable, VariableMut,
};

const LONG: Duration = Duration::from_secs(120);
const ROWS: u64 = 31;
const LENGTH: u64 = 40;
const STEPS: u64 = 6;

fn options(store: &Arc<dyn Store>, comm: &Arc<dyn Comm>) -> Options {
    let options = Options::in_store(store.clone(), "r").ranks(comm.clone()).patience(LONG);
    options.ranks_per_pack(2).chunk(ChunkSize::new(64).unwrap()).encoding(Encoding::Raw)
}

/// The rows of a rank: where they begin, and how many.
fn slab(comm: &dyn Comm) -> (u64, u64) {
    let at = |rank: u32| ROWS * u64::from(rank) / u64::from(comm.size());
    (at(comm.rank().0), at(comm.rank().0 + 1) - at(comm.rank().0))
}

/// Some rows of the global array at a step.
fn grid(first: u64, count: u64, step: u64) -> Vec<f64> {
    let value = |row: u64, at: u64| {
        let moves = if row % 5 == step % 5 { step } else { 0 };
        (row * 1000 + at) as f64 + moves as f64 / 64.0
    };
    (first..first + count).flat_map(|row| (0..LENGTH).map(move |at| value(row, at))).collect()
}

fn save(run: &mut Run, comm: &dyn Comm, step: u64) -> Result<treering::Save> {
    let (first, count) = slab(comm);
    let (grid, clock) = (grid(first, count, step), [step, step * step]);
    let grid = Variable::new("grid", &grid).shaped(&[count, LENGTH]);
    let grid = grid.part_of(&[ROWS, LENGTH], &[first, 0]);
    run.checkpoint(step, &[grid, Variable::new("clock", &clock).same()])
}

/// Restores the newest checkpoint and compares it with what was saved; its step.
fn restore(run: &mut Run, comm: &dyn Comm) -> Result<Option<u64>> {
    let (first, count) = slab(comm);
    let (mut back, mut clock) = (vec![0.0; (count * LENGTH) as usize], [0u64; 2]);
    let state = VariableMut::new("grid", &mut back).shaped(&[count, LENGTH]);
    let state = state.part_of(&[ROWS, LENGTH], &[first, 0]);
    let restored = run.restore(&mut [state, VariableMut::new("clock", &mut clock)])?;
    Ok(restored.map(|restored| {
        let step = restored.step;
        assert!(back == grid(first, count, step) && clock == [step, step * step], "step {step}");
        step
    }))
}

fn somebody_died(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Dead | ErrorKind::Revoked)
}

/// The steps that a rank was told are durable.
type Told = Arc<Mutex<BTreeSet<u64>>>;

/// Goes on from what there is to the last step; every other step is waited for, if somebody wants to be told.
fn simulate(run: &mut Run, comm: &dyn Comm, told: Option<&Told>) -> Result<()> {
    let first = restore(run, comm)?.map_or(0, |step| step + 1);
    for step in first..STEPS {
        let save = save(run, comm, step)?;
        let Some(told) = told.filter(|_| step % 2 == 1) else { continue };
        match save.durable() {
            Ok(()) => drop(told.lock().unwrap().insert(step)),
            Err(error) if somebody_died(&error) => return Err(error),
            Err(_) => {}
        }
    }
    // Nobody leaves before all have come to the end: whoever has left cannot go on with the others.
    comm.reduce(Reduction::Max, &mut [0])
}

/// Shrinks a communicator of which somebody has died.
fn shrink(comm: &mut Arc<dyn Comm>) {
    comm.revoke().unwrap();
    *comm = comm.shrink().unwrap();
}

/// Runs one rank to the end, whoever else dies; how often it has gone on. If its store fails, the others end, too.
fn survive(store: &Arc<dyn Store>, mut comm: Arc<dyn Comm>, told: Option<&Told>) -> Result<u32> {
    let ended = play(store, &mut comm, told);
    if ended.is_err() {
        comm.revoke().unwrap();
    }
    ended
}

fn play(store: &Arc<dyn Store>, comm: &mut Arc<dyn Comm>, told: Option<&Told>) -> Result<u32> {
    let mut gone_on = 0;
    let mut run = loop {
        match Run::open(options(store, comm)) {
            Err(error) if somebody_died(&error) => shrink(comm),
            opened => break opened?,
        }
    };
    let mut result = simulate(&mut run, &**comm, told);
    while result.as_ref().is_err_and(somebody_died) {
        shrink(comm);
        gone_on += 1;
        result = run.go_on_with(comm.clone()).and_then(|()| {
            let failed: Vec<u64> = run.failures().iter().map(|(step, _)| *step).collect();
            let once: BTreeSet<u64> = failed.iter().copied().collect();
            assert_eq!(once.len(), failed.len(), "a failure is reported once: {failed:?}");
            simulate(&mut run, &**comm, told)
        });
    }
    result?;
    match run.finish() {
        // A save that failed when the rank died is reported here, or was before; and a death at the very end costs
        // nothing.
        Err(error) if error.kind() == ErrorKind::Lost || somebody_died(&error) => Ok(gone_on),
        finished => finished.map(|()| gone_on),
    }
}

/// A store as a rank sees it that dies at a call.
fn seen(
    store: &Arc<dyn Store>,
    world: &ThreadRanks,
    rank: Rank,
    fuse: Option<&Arc<AtomicI64>>,
) -> Arc<dyn Store> {
    let (kill, fuse) = (world.clone(), fuse.cloned());
    Arc::new(HookedStore::new(store.clone(), move |_| {
        if fuse.as_ref().is_some_and(|left| left.fetch_sub(1, Ordering::SeqCst) == 0) {
            kill.kill(rank);
        }
        kill.stop_if_dead(rank)
    }))
}

/// Whatever was told is there, every state that is listed is exact, and others go on from the newest; its step.
fn assert_exact(store: &Arc<dyn Store>, told: &Told, what: &str) -> Option<u64> {
    let library = Library::of(store.clone());
    let listed = match library.runs().is_ok_and(|runs| runs.is_empty()) {
        true => BTreeSet::new(),
        false => {
            let (all, trouble) = library.checkpoints("r").unwrap();
            assert!(trouble.is_empty(), "{what}: {trouble:?}");
            all.iter().map(|info| info.step).collect()
        }
    };
    let told = told.lock().unwrap();
    assert!(told.is_subset(&listed), "{what}: {told:?} of {listed:?}");
    for step in &listed {
        let checkpoint = library.checkpoint("r", Some(*step)).unwrap();
        let whole = checkpoint.read_box::<f64>("grid", &[0, 0], &[ROWS, LENGTH]).unwrap();
        assert!(whole == grid(0, ROWS, *step), "{what}: step {step}");
    }
    let shared = store.clone();
    let ends = ThreadRanks::new(2).run(move |comm| {
        let mut run = Run::open(options(&shared, &comm)).unwrap();
        let step = restore(&mut run, &*comm).unwrap();
        run.finish().unwrap();
        step
    });
    let restored = ends.into_iter().map(|end| end.done().unwrap_or_else(|| panic!("{what}")));
    let restored: BTreeSet<Option<u64>> = restored.collect();
    let newest = *restored.first().unwrap();
    assert!(restored.len() == 1 && newest >= listed.last().copied(), "{what}: {restored:?}");
    let report = library.verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{what}: {:?}", report.findings);
    newest
}

/// A death of a rank: the victim, and the call of its store or of its communicators, or the hit of a point.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Death {
    StoreCall(u32, u64),
    CommCall(u32, u64),
    Point(u32, &'static str, i64),
}

/// One story of deaths, in which a call of the store of a rank may go wrong, too; how many ranks have died, and how often
/// survivors have gone on.
fn story(ranks: u32, deaths: &[Death], fault: Option<(u32, u64, Fault)>) -> (usize, u32) {
    let (store, told) = (memory(), Told::default());
    let mut world = ThreadRanks::new(ranks);
    let mut fuses: Vec<Option<Arc<AtomicI64>>> = vec![None; ranks as usize];
    for death in deaths {
        match *death {
            Death::StoreCall(victim, call) => {
                fuses[victim as usize] = Some(Arc::new(AtomicI64::new(call as i64)));
            }
            Death::CommCall(victim, call) => world = world.killed_at(Rank(victim), call),
            Death::Point(..) => {}
        }
    }
    let (shared, all, kills) = (store.clone(), told.clone(), world.clone());
    let points = deaths.to_vec();
    let ends = world.run(move |comm| {
        let rank = comm.rank();
        die_at_points(&kills, rank, &points);
        let fuse = fuses[rank.0 as usize].as_ref();
        let shared: Arc<dyn Store> = match fault {
            Some((of, at, fault)) if of == rank.0 => {
                Arc::new(FaultStore::new(shared.clone(), at, fault))
            }
            _ => shared.clone(),
        };
        // A part that fails is heard of in the next vote; whoever waits for it has to wait for long.
        let told = fault.is_none().then_some(&all);
        survive(&seen(&shared, &kills, rank, fuse), comm, told)
    });
    let (mut killed, mut gone_on) = (0, 0);
    for end in &ends {
        match end {
            End::Killed => killed += 1,
            End::Done(Ok(count)) => gone_on = gone_on.max(*count),
            // A store that fails may end the program; the others see the end of that rank.
            End::Done(Err(_)) if fault.is_some() => {}
            end => panic!("{deaths:?}, {fault:?}: {end:?}"),
        }
    }
    let newest = assert_exact(&store, &told, &format!("{deaths:?}, {fault:?}"));
    assert!(fault.is_some() || killed == ends.len() || newest == Some(STEPS - 1), "{deaths:?}");
    (killed, gone_on)
}

/// Kills the rank of this thread at points that it, or a thread that works for it, reaches.
pub(crate) fn die_at_points(world: &ThreadRanks, rank: Rank, deaths: &[Death]) {
    let mut points = Vec::new();
    for death in deaths {
        match *death {
            Death::Point(victim, point, hit) if victim == rank.0 => {
                points.push((point, AtomicI64::new(hit)));
            }
            _ => {}
        }
    }
    let world = world.clone();
    set_point_hook(Some(Arc::new(move |reached| {
        let hit = |(point, left): &(&str, AtomicI64)| {
            *point == reached && left.fetch_sub(1, Ordering::SeqCst) == 0
        };
        if points.iter().any(hit) {
            world.kill(rank);
        }
        let _ = world.stop_if_dead(rank);
    })));
}

/// Plays a story for every call of a victim, up to the first that it does not make.
fn every_call(stride: usize, death: impl Fn(u32, u64) -> Death) -> u32 {
    let mut gone_on = 0;
    for victim in 0..3 {
        for call in (victim as u64 % stride as u64..).step_by(stride) {
            let (killed, count) = story(3, &[death(victim, call)], None);
            gone_on += count;
            if killed == 0 {
                break;
            }
        }
    }
    gone_on
}

#[test]
fn survivors_go_on_when_a_rank_dies_at_any_call_of_its_store() {
    assert!(every_call(3, Death::StoreCall) > 10);
}

#[test]
fn survivors_go_on_when_a_rank_dies_at_any_call_of_its_communicators() {
    assert!(every_call(2, Death::CommCall) > 10);
}

/// One rank dies, and while the others go on, another one.
#[test]
fn survivors_go_on_when_another_rank_dies_meanwhile() {
    let (mut dice, mut twice) = (1u64, 0);
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    for _ in 0..25 {
        let first = roll(4) as u32;
        let second = (first + 1 + roll(3) as u32) % 4;
        let deaths = [Death::CommCall(first, roll(40)), Death::CommCall(second, 20 + roll(60))];
        let (killed, gone_on) = story(4, &deaths, None);
        twice += u32::from(killed == 2 && gone_on > 1);
    }
    assert!(twice > 0);
}

/// The points that programs without replicas reach; those of crews are in `crew`.
fn own_points() -> impl Iterator<Item = &'static str> {
    let of_crews = |point: &&str| point.starts_with("crew-") || point.starts_with("replicas-");
    POINTS.iter().map(|(point, _)| *point).filter(move |point| !of_crews(point))
}

/// Every rank dies at every point that it reaches, the first time and later, with a store that is well, and with one
/// that fails or tears a call of another rank meanwhile.
#[test]
fn a_rank_dies_at_every_point() {
    let mut reached = BTreeSet::new();
    for (number, point) in own_points().enumerate() {
        for victim in 0..3 {
            for hit in [0, 2] {
                let death = Death::Point(victim, point, hit);
                let other = Some((victim + 1) % 3);
                let fault = match (hit, (number + victim as usize) % 2) {
                    (0, _) => None,
                    (_, 0) => other.map(|rank| (rank, 12 + 7 * number as u64, Fault::Tear)),
                    (_, _) => other.map(|rank| (rank, 9 + 5 * number as u64, Fault::Fail)),
                };
                if story(3, &[death], fault).0 > 0 {
                    reached.insert(point);
                }
            }
        }
    }
    // The survivors of another death are the ones that go on.
    for victim in 0..3 {
        let first = Death::Point((victim + 1) % 3, "captured", 1);
        if story(3, &[first, Death::Point(victim, "going-on", 0)], None).0 > 1 {
            reached.insert("going-on");
        }
    }
    let missed: Vec<&str> = own_points().filter(|point| !reached.contains(point)).collect();
    // Branches need more groups, and prune is no rank's call: both have tests of their own below.
    assert_eq!(missed, ["branch-published", "entries-removed", "packs-removed"]);
}

/// A prune that dies leaves every checkpoint that it should keep.
#[test]
fn a_prune_dies_at_its_points() {
    for point in ["entries-removed", "packs-removed"] {
        let (store, told) = (memory(), Told::default());
        let (shared, steps) = (store.clone(), told.clone());
        let ends = ThreadRanks::new(3).run(move |comm| survive(&shared, comm, Some(&steps)));
        assert!(ends.iter().all(|end| matches!(end, End::Done(Ok(0)))), "{ends:?}");
        // The rank that goes on with another number of ranks begins a second epoch; then the first one may go.
        let (shared, steps) = (store.clone(), told.clone());
        let world = ThreadRanks::new(1);
        let kills = world.clone();
        let ends = world.run(move |comm| {
            let mut run = Run::open(options(&shared, &comm)).unwrap();
            let newest = restore(&mut run, &*comm).unwrap().unwrap();
            for step in newest + 1..newest + 3 {
                save(&mut run, &*comm, step).unwrap().durable().unwrap();
            }
            run.finish().unwrap();
            steps.lock().unwrap().clear();
            die_at_points(&kills, Rank(0), &[Death::Point(0, point, 0)]);
            let keep = Keep::newest(1);
            Library::of(shared.clone()).prune("r", keep, &|_, _| {}).map(drop)
        });
        assert_eq!(ends.len(), 1);
        assert!(matches!(ends[0], End::Killed), "{point} was not reached: {ends:?}");
        assert_eq!(assert_exact(&store, &told, point), Some(STEPS + 1));
    }
}

/// A rank that makes a branch of many groups dies before it has removed their sections.
#[test]
fn a_rank_dies_when_it_has_made_a_branch() {
    const RANKS: u32 = 66;
    let (store, world) = (memory(), ThreadRanks::new(RANKS));
    let (shared, kills) = (store.clone(), world.clone());
    let ends = world.run(move |comm| {
        let deaths: Vec<Death> =
            (0..RANKS).map(|v| Death::Point(v, "branch-published", 0)).collect();
        die_at_points(&kills, comm.rank(), &deaths);
        let store = seen(&shared, &kills, comm.rank(), None);
        let mut run = Run::open(options(&store, &comm).ranks_per_pack(1))?;
        let own = [u64::from(comm.rank().0); 9];
        let save = run.checkpoint(1, &[Variable::new("own", &own)])?;
        let done = save.durable();
        comm.revoke()?;
        done
    });
    assert!(ends.iter().any(|end| matches!(end, End::Killed)), "no branch was made");
    let library = Library::of(store.clone());
    let (all, trouble) = library.checkpoints("r").unwrap();
    assert!(trouble.is_empty() && all.len() <= 1, "{trouble:?}");
    // The next opener completes what is complete, or removes it.
    let shared = store.clone();
    let restored = ThreadRanks::new(RANKS).run(move |comm| {
        let mut run = Run::open(options(&shared, &comm).ranks_per_pack(1)).unwrap();
        let mut own = [0u64; 9];
        let restored = run.restore(&mut [VariableMut::new("own", &mut own)]).unwrap();
        run.finish().unwrap();
        restored.map(|restored| (restored.step, own == [u64::from(comm.rank().0); 9]))
    });
    let first = format!("{:?}", restored[0]);
    assert!(restored.iter().all(|end| format!("{end:?}") == first), "{restored:?}");
    assert!(["Done(None)", "Done(Some((1, true)))"].contains(&first.as_str()), "{first}");
    assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
}

/// The table of points has every name that the code uses, and the code uses every name of the table.
#[test]
fn the_table_of_points_is_complete() {
    fn uses(folder: &std::path::Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                uses(&entry, found);
            } else if entry.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&entry).unwrap();
                let calls = text.split("reach(\"").skip(1);
                found.extend(calls.filter_map(|rest| rest.split('"').next()).map(String::from));
            }
        }
    }
    let mut used = BTreeSet::new();
    uses(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut used);
    let table: BTreeSet<String> = POINTS.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(used, table);
    assert_eq!(table.len(), POINTS.len(), "a name stands twice");
}

/// Two halves of the ranks take each other for dead. The first to go on has the run; the other one is refused, and
/// completes nothing.
#[test]
fn a_second_set_of_survivors_is_refused() {
    let (store, world) = (memory(), ThreadRanks::new(4));
    let (shared, told) = (store.clone(), Told::default());
    let all_told = told.clone();
    let ends = world.run(move |comm| {
        let mut run = Run::open(options(&shared, &comm)).unwrap();
        save(&mut run, &*comm, 0).unwrap().durable().unwrap();
        let half = comm.split(comm.rank().0 % 2, 0).unwrap();
        let first = comm.rank().0 % 2 == 0;
        if first {
            run.go_on_with(half.clone()).unwrap();
            save(&mut run, &*half, 1).unwrap().durable().unwrap();
            all_told.lock().unwrap().extend([0, 1]);
        }
        comm.agree(true).unwrap();
        if !first {
            let error = run.go_on_with(half.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            assert_eq!(run.go_on_with(half).unwrap_err().kind(), ErrorKind::Busy);
            return;
        }
        simulate(&mut run, &*half, Some(&all_told)).unwrap();
        run.finish().unwrap();
    });
    assert!(ends.iter().all(|end| *end == End::Done(())), "{ends:?}");
    assert_eq!(assert_exact(&store, &told, "halves"), Some(STEPS - 1));
}

/// A stranger that has taken the run since keeps it.
#[test]
fn survivors_do_not_take_the_run_from_a_stranger() {
    let (store, world) = (memory(), ThreadRanks::new(3));
    let (shared, kills) = (store.clone(), world.clone());
    let ends = world.run(move |comm| {
        let mut run = Run::open(options(&shared, &comm)).unwrap();
        save(&mut run, &*comm, 0).unwrap().durable().unwrap();
        if comm.rank() == Rank(1) {
            kills.kill(Rank(1));
        }
        let smaller = comm.shrink().unwrap();
        if smaller.rank() == Rank(0) {
            let mut stranger = Run::open(Options::in_store(shared.clone(), "r")).unwrap();
            stranger.checkpoint(9, &[Variable::new("x", &[1u8; 9])]).unwrap().durable().unwrap();
            stranger.finish().unwrap();
        }
        smaller.agree(true).unwrap();
        let error = run.go_on_with(smaller).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    });
    assert_eq!(ends, [End::Done(()), End::Killed, End::Done(())]);
    let (all, _) = Library::of(store).checkpoints("r").unwrap();
    assert_eq!(all.iter().map(|info| info.step).collect::<Vec<_>>(), [0, 9]);
}

/// The leader of a group dies when everything of a checkpoint was handed over and its store is still slow. Its deputy
/// finishes the pack, so the survivors go on from that checkpoint, whole or delta, with stores of nodes or without.
#[test]
fn a_pack_that_a_dead_leader_has_left_is_finished() {
    for (near, fatal) in [(false, 0), (false, 3), (true, 0), (true, 3)] {
        let (store, nodes) = (memory(), [memory(), memory()]);
        let names: Vec<String> = ["a", "a", "b", "b"].map(String::from).to_vec();
        let world = ThreadRanks::on_nodes(&names);
        let (shared, kills) = (store.clone(), world.clone());
        let ends = world.run(move |comm| {
            let own = comm.rank();
            // A store of a rank that is dead does nothing.
            let (kill, slow) = (kills.clone(), own == Rank(2));
            let seen = |inner: &Arc<dyn Store>| -> Arc<dyn Store> {
                let kill = kill.clone();
                Arc::new(HookedStore::new(inner.clone(), move |_| {
                    if slow && std::thread::current().name() == Some("treering-writer") {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    kill.stop_if_dead(own)
                }))
            };
            let mut options = options(&seen(&shared), &comm).growth(1000.0);
            if near {
                options = options.node(seen(&nodes[own.0 as usize / 2])).shared_every(100);
            }
            let death = Death::Point(2, "pack-entrusted", fatal);
            die_at_points(&kills, own, &[death]);
            let mut run = Run::open(options).unwrap();
            let mut died = None;
            for step in 0..=fatal as u64 {
                let saved = save(&mut run, &*comm, step).and_then(|save| save.staged());
                died = died.or(saved.err());
            }
            // All of them hear of the death, at the latest here.
            let died = died.map_or_else(|| comm.reduce(Reduction::Max, &mut [0]), Err);
            assert!(died.is_err_and(|error| somebody_died(&error)));
            let mut comm = comm;
            shrink(&mut comm);
            run.go_on_with(comm.clone()).unwrap();
            let restored = restore(&mut run, &*comm).unwrap();
            let failed: Vec<u64> = run.failures().iter().map(|(step, _)| *step).collect();
            save(&mut run, &*comm, 9).unwrap();
            run.finish().unwrap();
            (restored, failed)
        });
        let ends: Vec<(Option<u64>, Vec<u64>)> = ends.into_iter().filter_map(End::done).collect();
        let expected = (Some(fatal as u64), Vec::new());
        assert!(ends.len() == 3 && ends.iter().all(|end| *end == expected), "{near}: {ends:?}");
        let report = Library::of(store).verify(None, true, &|_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
    }
}

/// Saves two steps on ranks of which one dies after a collective call that only some of the others complete; the survivors
/// go on until all have the second step. Whether somebody died: there may be fewer calls.
fn partly_dead(death: PartialDeath) -> bool {
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let world = ThreadRanks::new(4);
        let (store, kills) = (memory(), world.clone());
        let ends = world.run(move |mut all| -> Result<()> {
            // The run has a communicator of its own, so that an agreement of all is none of the run's.
            let mut deaths = vec![death];
            let mut run: Option<Run> = None;
            loop {
                let own = all.split(0, 0)?;
                let own = PartialComm::new(own, kills.clone(), std::mem::take(&mut deaths));
                let comm: Arc<dyn Comm> = Arc::new(own);
                let mut has_run = [u64::from(run.is_some())];
                all.reduce(Reduction::Max, &mut has_run)?;
                let mut work = || -> Result<()> {
                    match (&mut run, has_run) {
                        (None, [0]) => run = Some(Run::open(options(&store, &comm))?),
                        (None, _) => run = Some(Run::join(options(&store, &comm))?),
                        (Some(run), _) => run.go_on_with(comm.clone())?,
                    }
                    let run = run.as_mut().expect("it is open");
                    let next = restore(run, &*comm)?.map_or(0, |step| step + 1);
                    (next..2).try_for_each(|step| save(run, &*comm, step)?.durable())
                };
                let worked = work();
                if worked.is_err() {
                    comm.revoke()?;
                }
                // Nobody leaves before all have come to the end.
                let well = all.agree(worked.is_ok())?;
                match worked {
                    Err(error) if !error.is_death() => return Err(error),
                    _ if well => return Ok(()),
                    _ => {}
                }
                all.revoke()?;
                all = all.shrink()?;
            }
        });
        let well = |end: End<Result<()>>| match end.done() {
            Some(worked) => worked.map(|()| false).expect("survivors go on"),
            None => true,
        };
        let died = ends.into_iter().map(well).filter(|died| *died).count();
        let _ = ended.send(died);
    });
    let died = end.recv_timeout(LONG);
    died.unwrap_or_else(|_| panic!("ranks wait for each other for ever after {death:?}")) == 1
}

/// A death reaches ranks at different calls: some have the result of the last one, others have an error.
#[test]
fn calls_that_complete_on_some_ranks_only_hold_nobody_up() {
    for (victim, blind) in [(3, 0b0110), (3, 0b0001), (1, 0b1100), (0, 0b1010), (2, 0b1011)] {
        let mut call = 0;
        while partly_dead(PartialDeath { victim, call, blind }) {
            call += 1;
        }
        assert!(call > 4, "opening alone takes more calls than {call}");
    }
}

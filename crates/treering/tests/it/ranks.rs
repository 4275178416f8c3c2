//! One run of many ranks: every checkpoint is of all of them or of none, whoever dies when, and a restart takes any
//! number of ranks.

use crate::support::{assert_sound, lockless_memory as memory, steps};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use treering::testing::{Call, HookedStore};
use treering::{
    ChunkSize, Comm, Encoding, End, Error, ErrorKind, Library, Options, Rank, Result, Run, Store,
    ThreadRanks, Variable, VariableMut,
};

const LONG: Duration = Duration::from_secs(120);
/// The rows of the global array, and their length.
const ROWS: u64 = 37;
const LENGTH: u64 = 50;
/// The ranks that share a pack, where nothing else is said: some do, and some have one for themselves.
const PER_PACK: u32 = 2;

fn options(store: &Arc<dyn Store>, comm: &Arc<dyn Comm>) -> Options {
    options_with(store, comm, PER_PACK)
}

fn options_with(store: &Arc<dyn Store>, comm: &Arc<dyn Comm>, per_pack: u32) -> Options {
    let options = Options::in_store(store.clone(), "r").ranks(comm.clone()).patience(LONG);
    let options = options.ranks_per_pack(per_pack);
    options.chunk(ChunkSize::new(64).unwrap()).encoding(Encoding::Raw)
}

/// The rows of a rank: where they begin, and how many.
fn rows(rank: u32, ranks: u32) -> (u64, u64) {
    let at = |rank: u32| ROWS * u64::from(rank) / u64::from(ranks);
    (at(rank), at(rank + 1) - at(rank))
}

/// The rows of the global array at a step: few of them change from step to step.
fn grid(first: u64, count: u64, step: u64) -> Vec<f64> {
    let value = |row: u64, at: u64| {
        let moves = if row % 7 == step % 7 { step } else { 0 };
        (row * 1000 + at) as f64 + moves as f64 / 64.0
    };
    (first..first + count).flat_map(|row| (0..LENGTH).map(move |at| value(row, at))).collect()
}

/// Variables that belong to a rank alone.
fn own(rank: u32, step: u64) -> Vec<u32> {
    (0..100 + 10 * rank).map(|at| at ^ (rank << 8) ^ (step as u32 * u32::from(at < 3))).collect()
}

fn checkpoint(run: &mut Run, comm: &dyn Comm, step: u64) -> Result<treering::Save> {
    let (rank, ranks) = (comm.rank().0, comm.size());
    let (first, count) = rows(rank, ranks);
    let (grid, own) = (grid(first, count, step), own(rank, step));
    let state = [
        Variable::new("grid", &grid).shaped(&[count, LENGTH]).part_of(&[ROWS, LENGTH], &[first, 0]),
        Variable::new("own", &own),
    ];
    run.checkpoint(step, &state)
}

/// Restores the newest checkpoint and holds it to what was saved; its step.
fn restore(run: &mut Run, comm: &dyn Comm) -> Result<Option<u64>> {
    let (rank, ranks) = (comm.rank().0, comm.size());
    let (first, count) = rows(rank, ranks);
    let (mut grid_back, mut own_back) = (vec![0.0; (count * LENGTH) as usize], own(rank, 0));
    let mut state = [
        VariableMut::new("grid", &mut grid_back)
            .shaped(&[count, LENGTH])
            .part_of(&[ROWS, LENGTH], &[first, 0]),
        VariableMut::new("own", &mut own_back),
    ];
    let restored = run.restore(&mut state)?;
    if let Some(restored) = &restored {
        assert!(grid_back == grid(first, count, restored.step), "rank {rank} @ {}", restored.step);
        assert!(own_back == own(rank, restored.step), "rank {rank} @ {}", restored.step);
    }
    Ok(restored.map(|restored| restored.step))
}

fn all_done<T: std::fmt::Debug>(ends: Vec<End<T>>) -> Vec<T> {
    let shown = format!("{ends:?}");
    let done: Vec<T> = ends.into_iter().filter_map(End::done).collect();
    assert!(!shown.contains("Killed") && !shown.contains("Panicked"), "{shown}");
    done
}

/// Runs ranks that open the run, go on from what is there, and save some steps more.
fn go_on(store: &Arc<dyn Store>, ranks: u32, more: u64) -> Option<u64> {
    let shared = store.clone();
    let ends = ThreadRanks::new(ranks).run(move |comm| {
        let mut run = Run::open(options(&shared, &comm)).unwrap();
        let restored = restore(&mut run, &*comm).unwrap();
        let first = restored.map_or(0, |step| step + 1);
        for step in first..first + more {
            checkpoint(&mut run, &*comm, step).unwrap();
        }
        run.finish().unwrap();
        restored
    });
    let restored = all_done(ends);
    assert!(restored.iter().all(|step| *step == restored[0]), "{restored:?}");
    restored[0]
}

#[test]
fn checkpoints_of_all_ranks_come_back() {
    for ranks in [2, 3, 9] {
        let store = memory();
        assert_eq!(go_on(&store, ranks, 4), None);
        assert_eq!(go_on(&store, ranks, 3), Some(3));
        assert_eq!(go_on(&store, ranks, 0), Some(6));
        assert_eq!(steps(&store), (0..7).collect::<Vec<_>>());
        assert_sound(&store);
        let (all, _) = Library::of(store.clone()).checkpoints("r").unwrap();
        let newest = Library::of(store.clone()).checkpoint("r", None).unwrap();
        assert_eq!(newest.manifest().ranks, ranks);
        // The second process goes on with the epoch of the first: little is stored anew.
        let epochs: BTreeSet<_> = all.iter().map(|info| info.epoch.sequence).collect();
        assert_eq!(epochs.len(), 1);
        assert!(store.list("runs/r/sections").unwrap().is_empty(), "sections are removed");
    }
}

/// A global array comes back in other boxes; what belongs to a rank does not, and says so.
#[test]
fn global_arrays_come_back_on_any_number_of_ranks() {
    let store = memory();
    go_on(&store, 4, 3);
    for ranks in [1u32, 2, 3, 6] {
        let shared = store.clone();
        let ends = ThreadRanks::new(ranks).run(move |comm| {
            let mut run = Run::open(options(&shared, &comm)).unwrap();
            let error = restore(&mut run, &*comm).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
            let (first, count) = rows(comm.rank().0, comm.size());
            let mut back = vec![0.0; (count * LENGTH) as usize];
            let state = VariableMut::new("grid", &mut back).shaped(&[count, LENGTH]);
            let mut state = [state.part_of(&[ROWS, LENGTH], &[first, 0])];
            let step = run.restore(&mut state).unwrap().unwrap().step;
            assert!(back == grid(first, count, step));
            let mut back = vec![0.0; (count * LENGTH) as usize];
            let state = VariableMut::new("grid", &mut back).shaped(&[count, LENGTH]);
            let mut state = [state.part_of(&[ROWS, LENGTH], &[first, 0])];
            assert_eq!(run.restore_step(1, &mut state).unwrap().step, 1);
            assert!(back == grid(first, count, 1));
            assert!(run.restore_step(17, &mut []).is_err());
            run.finish().unwrap();
            step
        });
        assert!(all_done(ends).iter().all(|step| *step == 2));
    }
    let checkpoint = Library::of(store.clone()).checkpoint("r", Some(2)).unwrap();
    let corner = checkpoint.read_box::<f64>("grid", &[ROWS - 2, 0], &[2, LENGTH]).unwrap();
    assert!(corner == grid(ROWS - 2, 2, 2));
    // On another number of ranks the run goes on, with a new epoch.
    let shared = store.clone();
    let ends = ThreadRanks::new(3).run(move |comm| {
        let mut run = Run::open(options(&shared, &comm)).unwrap();
        checkpoint_and_wait(&mut run, &*comm, 3);
        run.finish().unwrap();
    });
    all_done(ends);
    assert_eq!(go_on(&store, 3, 1), Some(3));
    assert_sound(&store);
}

/// An array without a size of its own would take the part of one rank for the whole.
#[test]
fn one_rank_does_not_take_a_part_of_several_for_the_whole() {
    let store = memory();
    go_on(&store, 4, 2);
    let mut run = Run::open(Options::in_store(store, "r")).unwrap();
    for name in ["grid", "own"] {
        let mut refused: Vec<f64> = Vec::new();
        let error = run.restore(&mut [VariableMut::growing(name, &mut refused)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        let what = if name == "own" { "4 ranks have saved it" } else { "is a box of 37×50" };
        assert!(error.to_string().contains(what), "{error}");
    }
}

fn checkpoint_and_wait(run: &mut Run, comm: &dyn Comm, step: u64) {
    let save = checkpoint(run, comm, step).unwrap();
    save.durable().unwrap();
}

/// Every rank dies at every call of its store. Every checkpoint that is listed afterwards is complete and exact, and
/// whatever a rank was told is durable is there.
#[test]
fn a_rank_that_dies_at_any_call_leaves_nothing_half() {
    const RANKS: u32 = 3;
    let mut hits = 0;
    for victim in 0..RANKS {
        for fuse in (0..).step_by(if victim == 1 { 1 } else { 3 }) {
            let store = memory();
            go_on(&store, RANKS, 2);
            let world = ThreadRanks::new(RANKS);
            let (shared, durable) = (store.clone(), Arc::new(Mutex::new(BTreeSet::from([0, 1]))));
            let (kill, told) = (world.clone(), durable.clone());
            let left = Arc::new(AtomicI64::new(fuse));
            let fuse_left = left.clone();
            let ends = world.run(move |comm| {
                let (rank, kill, left) = (comm.rank(), kill.clone(), left.clone());
                let seen = HookedStore::new(shared.clone(), move |_| {
                    if rank == Rank(victim) && left.fetch_sub(1, Ordering::SeqCst) == 0 {
                        kill.kill(rank);
                    }
                    kill.stop_if_dead(rank)
                });
                let seen: Arc<dyn Store> = Arc::new(seen);
                let patience = Duration::from_millis(300);
                let program = || -> Result<()> {
                    let mut run = Run::open(options(&seen, &comm).patience(patience))?;
                    restore(&mut run, &*comm)?;
                    for step in 2..5 {
                        let save = checkpoint(&mut run, &*comm, step)?;
                        if save.durable().is_ok() {
                            told.lock().unwrap().insert(step);
                        }
                    }
                    run.finish()
                };
                // Whatever fails because of the death ends the program, on all ranks.
                let ended = program();
                if ended.is_err() {
                    comm.revoke().unwrap();
                }
                ended
            });
            assert!(ends.iter().all(|end| !matches!(end, End::Panicked(_))), "{ends:?}");
            let all = go_on(&store, RANKS, 1).unwrap();
            let listed: BTreeSet<u64> = steps(&store).into_iter().collect();
            let durable = durable.lock().unwrap().clone();
            assert!(
                durable.is_subset(&listed),
                "victim {victim}, call {fuse}: {durable:?} {listed:?}"
            );
            assert!(all >= *durable.last().unwrap());
            assert_sound(&store);
            if fuse_left.load(Ordering::SeqCst) >= 0 {
                break;
            }
            hits += 1;
        }
    }
    assert!(hits > 30, "{hits}");
}

/// A rank whose save fails does not stop the others: they hear of it, and the next checkpoint is whole again.
#[test]
fn a_part_that_fails_costs_that_checkpoint_and_nothing_else() {
    // A rank alone, the leader of others, and one that shares its pack with nobody while others do.
    for (per_pack, fails) in [(1, Rank(1)), (32, Rank(0)), (2, Rank(2))] {
        a_part_fails(per_pack, fails);
    }
}

fn a_part_fails(per_pack: u32, fails: Rank) {
    let store = memory();
    let (shared, broken) = (store.clone(), Arc::new(AtomicBool::new(false)));
    let ends = ThreadRanks::new(3).run(move |comm| {
        let when = broken.clone();
        let rank = comm.rank();
        let seen: Arc<dyn Store> = Arc::new(HookedStore::new(shared.clone(), move |call| {
            let pack = matches!(call, Call::Append(key, _) if key.ends_with(".pack"));
            match rank == fails && pack && when.load(Ordering::SeqCst) {
                true => Err(Error::new(ErrorKind::Full, "no space")),
                false => Ok(()),
            }
        }));
        let mut run = Run::open(options_with(&seen, &comm, per_pack)).unwrap();
        checkpoint_and_wait(&mut run, &*comm, 0);
        // All have seen the first one; then the disk of one rank is full for a while.
        comm.agree(true).unwrap();
        broken.store(true, Ordering::SeqCst);
        comm.agree(true).unwrap();
        let lost = checkpoint(&mut run, &*comm, 1).unwrap();
        if rank == fails {
            assert_eq!(lost.durable().unwrap_err().kind(), ErrorKind::Full);
            broken.store(false, Ordering::SeqCst);
        }
        comm.agree(true).unwrap();
        for step in 2..5 {
            checkpoint_and_wait(&mut run, &*comm, step);
        }
        let failed: Vec<u64> = run.failures().iter().map(|(step, _)| *step).collect();
        let at_end = run.finish();
        (rank, failed, at_end.is_err())
    });
    for (rank, failed, at_end) in all_done(ends) {
        let told = failed == [1] || failed.is_empty() && (at_end || rank == fails);
        assert!(told, "rank {rank} hears that step 1 is lost: {failed:?}");
    }
    assert_eq!(steps(&store), [0, 2, 3, 4]);
    assert_eq!(go_on(&store, 3, 1), Some(4));
    assert_sound(&store);
}

/// All sections are there, and whoever would have written the manifest died before: the next opener does.
#[test]
fn an_opener_completes_what_lacks_nothing_but_its_manifest() {
    let store = memory();
    go_on(&store, 2, 2);
    let world = ThreadRanks::new(2);
    let (shared, kill) = (store.clone(), world.clone());
    world.run(move |comm| {
        let (rank, kill) = (comm.rank(), kill.clone());
        let armed = Arc::new(AtomicBool::new(false));
        let when = armed.clone();
        let seen: Arc<dyn Store> = Arc::new(HookedStore::new(shared.clone(), move |call| {
            kill.stop_if_dead(rank)?;
            let entry = matches!(call, Call::Commit(key) if key.contains("/log/"));
            if entry && when.load(Ordering::SeqCst) {
                [0, 1].into_iter().for_each(|rank| kill.kill(Rank(rank)));
            }
            kill.stop_if_dead(rank)
        }));
        let mut run = Run::open(options(&seen, &comm)).unwrap();
        restore(&mut run, &*comm).unwrap();
        armed.store(true, Ordering::SeqCst);
        comm.agree(true).unwrap();
        let _ = checkpoint(&mut run, &*comm, 2).unwrap().durable();
    });
    assert_eq!(steps(&store), [0, 1], "it does not exist yet");
    assert_eq!(go_on(&store, 2, 0), Some(2));
    assert_eq!(steps(&store), [0, 1, 2]);
    assert_sound(&store);
}

/// A second program that takes the run stops the ranks of the first, on all of them.
#[test]
fn ranks_that_were_overtaken_write_nothing_more() {
    let store = memory();
    let shared = store.clone();
    let ends = ThreadRanks::new(3).run(move |comm| {
        // Locks are of one process here, and would turn the second one away.
        let seen: Arc<dyn Store> =
            Arc::new(HookedStore::with_locks(shared.clone(), treering::testing::Locks::None));
        let mut run = Run::open(options(&seen, &comm)).unwrap();
        checkpoint_and_wait(&mut run, &*comm, 0);
        comm.agree(true).unwrap();
        if comm.rank() == Rank(0) {
            let mut other = Run::open(Options::in_store(shared.clone(), "r")).unwrap();
            let state = [7u8; 100];
            other.checkpoint(50, &[Variable::new("x", &state)]).unwrap().durable().unwrap();
            other.finish().unwrap();
        }
        comm.agree(true).unwrap();
        let save = checkpoint(&mut run, &*comm, 1).unwrap();
        assert_eq!(save.staged().unwrap_err().kind(), ErrorKind::Busy);
        let _ = run.finish();
    });
    all_done(ends);
    assert_eq!(steps(&store), [0, 50]);
    assert_sound(&store);
}

/// A mistake of one rank is reported to all of them in one sentence, and they go on.
#[test]
fn ranks_that_disagree_get_one_answer() {
    let store = memory();
    let shared = store.clone();
    let ends = ThreadRanks::new(3).run(move |comm| {
        let mut run = Run::open(options(&shared, &comm)).unwrap();
        let (data, rank) = ([1u8, 2, 3], comm.rank().0);
        let mut texts = Vec::new();
        let mut wrong = |result: Result<treering::Save>| {
            let error = result.err().expect("this is wrong");
            assert_eq!(error.kind(), ErrorKind::Usage);
            texts.push((error.to_string(), error.is_repeated()));
        };
        wrong(run.checkpoint(u64::from(rank == 2), &[Variable::new("x", &data)]));
        let twice = [Variable::new("x", &data), Variable::new("x", &data)];
        wrong(run.checkpoint(1, if rank == 1 { &twice } else { &twice[..1] }));
        let offset = if rank == 2 { 5 } else { 3 * u64::from(rank) };
        wrong(run.checkpoint(1, &[Variable::new("x", &data).part_of(&[10], &[offset])]));
        checkpoint_and_wait(&mut run, &*comm, 2);
        run.finish().unwrap();
        texts
    });
    let all = all_done(ends);
    for (call, part) in ["saves step", "twice", "leave gaps"].into_iter().enumerate() {
        let answers: Vec<&(String, bool)> = all.iter().map(|texts| &texts[call]).collect();
        assert!(answers.iter().all(|(text, _)| *text == answers[0].0), "{answers:?}");
        assert!(answers[0].0.contains(part), "{answers:?}");
        // A program that prints what is not repeated prints one sentence.
        assert_eq!(answers.iter().filter(|(_, repeated)| !repeated).count(), 1, "{answers:?}");
    }
    assert_eq!(steps(&store), [2]);
}

/// More groups than a manifest holds: it stays small, the groups stand in branches, and these come and go with it.
#[test]
fn a_checkpoint_of_many_groups_has_branches() {
    const RANKS: u32 = 70;
    let store = memory();
    let save = |from: u64, to: u64| {
        let shared = store.clone();
        let ends = ThreadRanks::new(RANKS).run(move |comm| {
            let mut run = Run::open(options_with(&shared, &comm, 1)).unwrap();
            let rank = comm.rank().0;
            let mut back = own(rank, 0);
            let restored = run.restore(&mut [VariableMut::new("own", &mut back)]).unwrap();
            assert_eq!(restored.map(|restored| restored.step), from.checked_sub(1));
            assert!(from == 0 || back == own(rank, from - 1));
            for step in from..to {
                run.checkpoint(step, &[Variable::new("own", &own(rank, step))]).unwrap();
            }
            run.finish().unwrap();
        });
        all_done(ends);
    };
    save(0, 2);
    save(2, 3);
    let count = |folder: &str| store.list(&format!("runs/{folder}")).unwrap().len();
    assert_eq!((count("r/sections"), count("r/branches")), (0, 6));
    let log = store.list("runs/r/log").unwrap();
    assert!(log.iter().all(|entry| entry.size < 1024), "{log:?}");
    assert_sound(&store);
    let library = Library::of(store.clone());
    library.branch("r", Some(1), "other").unwrap();
    // A manifest that is small enough with all its groups needs no branches.
    assert_eq!(count("other/branches"), 0);
    assert_eq!(library.checkpoint("other", None).unwrap().groups().count(), RANKS as usize);
    let keep = treering::Keep::newest(1);
    let plan = library.prune("r", keep, &|_, _| {}).unwrap();
    assert_eq!((plan.branches.len(), count("r/branches")), (4, 2));
    assert_sound(&store);
    save(3, 3);
}

/// A second program takes the run and saves under a number that the first one uses, too: no rank of the first takes that
/// checkpoint for its own.
#[test]
fn the_checkpoint_of_a_second_writer_is_nobody_elses() {
    let store = memory();
    let (shared, second) = (store.clone(), store.clone());
    let ends = ThreadRanks::new(3).run(move |comm| {
        // Its own part fails late, after it has looked for the whole.
        let slow = HookedStore::new(shared.clone(), |_| {
            if std::thread::current().name() == Some("treering-saver") {
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        });
        let mut run = Run::open(options_with(&(Arc::new(slow) as _), &comm, 1)).unwrap();
        checkpoint(&mut run, &*comm, 0).unwrap().durable().unwrap();
        comm.reduce(treering::Reduction::Max, &mut [0]).unwrap();
        if comm.rank() == Rank(0) {
            let mut other = Run::open(Options::in_store(second.clone(), "r")).unwrap();
            for step in 90..94 {
                other.checkpoint(step, &[Variable::new("x", &[step])]).unwrap();
            }
            other.finish().unwrap();
        }
        comm.reduce(treering::Reduction::Max, &mut [0]).unwrap();
        let saves: Result<Vec<_>> = (1..5).map(|step| checkpoint(&mut run, &*comm, step)).collect();
        saves.map_or(0, |saves| saves.iter().filter(|save| save.durable().is_ok()).count())
    });
    for end in ends {
        assert_eq!(end.done(), Some(0), "a rank was told that it is durable");
    }
    let (all, _) = Library::of(store).checkpoints("r").unwrap();
    assert_eq!(all.iter().map(|info| info.step).collect::<Vec<_>>(), [0, 90, 91, 92, 93]);
}

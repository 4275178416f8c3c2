//! Crews take the checkpoints that are due, and stop when the last one is: before a deadline, or after SIGTERM.

use crate::crew::{Plate, STEPS, USUAL, options};
use crate::going_on::{Death, die_at_points};
use crate::support::lockless_memory as memory;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use treering::{
    Comm, End, Every, Library, Options, Pace, Rank, Result, Role, Store, Survival, ThreadRanks,
    survive,
};

const NEVER: Pace = Pace { replicas: 0, checkpoints: 0 };

/// A crew of four ranks, of which some may die, and how each has ended.
fn crew(
    store: &Arc<dyn Store>,
    deaths: &[Death],
    also: impl Fn(Options, Rank) -> Options + Send + Sync + 'static,
) -> Vec<Survival> {
    let (store, deaths) = (store.clone(), deaths.to_vec());
    let world = ThreadRanks::new(4);
    let kills = world.clone();
    let ends = world.run(move |comm: Arc<dyn Comm>| -> Result<Survival> {
        let rank = comm.rank();
        die_at_points(&kills, rank, &deaths);
        let options = also(options(&store, comm, USUAL), rank);
        survive(options, NEVER, &mut Plate::default())
    });
    let ended = |end: End<Result<Survival>>| match end {
        End::Killed => None,
        End::Done(survival) => Some(survival.unwrap()),
        end => panic!("{end:?}"),
    };
    ends.into_iter().filter_map(ended).collect()
}

fn steps(store: &Arc<dyn Store>) -> Vec<u64> {
    let (all, trouble) = Library::of(store.clone()).checkpoints("r").unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    all.iter().map(|info| info.step).collect()
}

#[test]
fn a_crew_takes_the_checkpoints_that_are_due() {
    let store = memory();
    let ends = crew(&store, &[], |options, _| options.every(Every::Steps(4)));
    assert!(ends.iter().all(|end| end.step == STEPS && !end.halted), "{ends:?}");
    // The last step is one, too.
    assert_eq!(steps(&store), [4, 8, STEPS]);
}

/// One rank sees the deadline: all stop at the same step, with a checkpoint in the shared store, and the next job goes on.
#[test]
fn a_deadline_that_one_rank_sees_stops_all_after_a_shared_checkpoint() {
    let store = memory();
    let node = memory();
    let far = || SystemTime::now() + Duration::from_secs(1_000_000);
    let own = node.clone();
    let ends = crew(&store, &[], move |options, rank| {
        let late = if rank == Rank(2) { SystemTime::now() } else { far() };
        options.deadline(late).node(own.clone()).shared_every(5)
    });
    assert_eq!(ends.len(), 4);
    assert!(ends.iter().all(|end| end.step == 1 && end.halted), "{ends:?}");
    assert_eq!(steps(&store), [1]);
    let ends = crew(&store, &[], move |options, _| options.deadline(far()));
    assert!(ends.iter().all(|end| end.step == STEPS && !end.halted), "{ends:?}");
}

/// A rank dies with the last checkpoint: it is due once more, and the others stop all the same.
#[test]
fn a_death_during_the_last_checkpoint_does_not_let_the_others_go_on() {
    for (victim, point) in [(0, "captured"), (1, "decided"), (3, "captured"), (2, "replicas-kept")]
    {
        let store = memory();
        // The state at the start is kept in memory before.
        let hit = if point == "replicas-kept" { 1 } else { 0 };
        let deaths = [Death::Point(victim, point, hit)];
        let ends = crew(&store, &deaths, |options, _| options.deadline(SystemTime::now()));
        assert_eq!(ends.len(), 3, "{point}");
        let last = ends[0].step;
        assert!(last < STEPS, "{point}: {ends:?}");
        assert!(ends.iter().all(|end| end.halted && end.step == last), "{point}: {ends:?}");
        assert_eq!(steps(&store).last(), Some(&last), "{point}");
    }
}

/// The variable that tells a child of a test what to do.
const CHILD: &str = "TREERING_CREW_CHILD";

/// SIGUSR1 and then SIGTERM come to a job, whose spares wait.
#[test]
fn signals_ask_a_crew_for_checkpoints_and_to_stop() {
    const TEST: &str = "crew_due::signals_ask_a_crew_for_checkpoints_and_to_stop";
    if std::env::var(CHILD).is_err() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).env(CHILD, "1");
        let done = command.env_remove("SLURM_JOB_END_TIME").output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"), "{done:?}");
        return;
    }
    let store = memory();
    let shared = store.clone();
    let job = std::thread::spawn(move || {
        ThreadRanks::new(4).run(move |comm: Arc<dyn Comm>| {
            let options = options(&shared, comm, USUAL).spares(1).on_signals();
            let mut plate = Plate::default();
            plate.pause = Duration::from_millis(100);
            survive(options, NEVER, &mut plate).unwrap()
        })
    });
    let raise = |signal| rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
    // Once there is a run, its ranks listen.
    while Library::of(store.clone()).run_names().unwrap().is_empty() {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(150));
    raise(rustix::process::Signal::USR1);
    while Library::of(store.clone()).checkpoints("r").is_ok_and(|(all, _)| all.is_empty()) {
        std::thread::yield_now();
    }
    raise(rustix::process::Signal::TERM);
    let ends: Vec<Survival> = job.join().unwrap().into_iter().map(|e| e.done().unwrap()).collect();
    let found = steps(&store);
    assert!(found.len() >= 2 && found.last().unwrap() < &STEPS, "{found:?} {ends:?}");
    for end in &ends {
        let worked = end.role != Role::Spare;
        assert_eq!(
            (end.halted, end.step),
            (worked, if worked { found[found.len() - 1] } else { 0 })
        );
    }
}

//! The same simulation on ranks: the same physics as on one, the same bits on any number of them, and
//! the same bits after a death and a restart on any number.

use particles::ranks::{OwnParticles, RankProgress, RankSchedule, RankSimulation, run_on_ranks};
use particles::{Schedule, Settings, Simulation};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use surviving::testing::on_ranks;
use treering::{Comm, End, Library, Options, Rank, Result, ThreadRanks};

fn settings() -> Settings {
    Settings { particles_per_side: 8, mesh: 24, threads: 1, ..Settings::default() }
}

/// The state of all ranks after some steps, without checkpoints.
fn after(steps: u32, settings: &Settings, ranks: u32) -> OwnParticles {
    let settings = settings.clone();
    let states = on_ranks(ranks, move |comm| {
        let mut simulation = RankSimulation::new(&settings, comm).unwrap();
        (0..steps).for_each(|_| simulation.step().unwrap());
        simulation.gather().unwrap()
    });
    states.into_iter().flatten().next().unwrap()
}

/// The end of a run with checkpoints.
#[derive(Debug)]
struct Outcome {
    resumed: Option<u64>,
    /// The state of all ranks that was restored, and the last one.
    restored: Option<OwnParticles>,
    end: OwnParticles,
}

fn schedule(steps: u64) -> RankSchedule {
    RankSchedule { schedule: Schedule { steps, every: 2 }, wait: 2 }
}

fn options(store: &Path) -> Options {
    Options::directory(store, "r").patience(Duration::from_secs(60))
}

/// One rank of a run with checkpoints.
fn one_rank(comm: Arc<dyn Comm>, store: &Path, steps: u64) -> Result<Option<Outcome>> {
    let mut simulation = RankSimulation::new(&settings(), comm)?;
    let (mut restored, mut end) = (None, None);
    let resumed = run_on_ranks(
        &mut simulation,
        schedule(steps),
        options(store),
        &mut |simulation, progress| {
            match progress {
                RankProgress::Resumed { .. } => restored = simulation.gather()?,
                RankProgress::Ended(_) => end = simulation.gather()?,
                RankProgress::Failed { step, error } => panic!("{step}: {error}"),
                _ => {}
            }
            Ok(())
        },
    )?;
    Ok(end.map(|end| Outcome { resumed, restored, end }))
}

fn with_checkpoints(ranks: u32, store: &Path, steps: u64) -> Outcome {
    let store: PathBuf = store.into();
    let outcomes = on_ranks(ranks, move |comm| one_rank(comm, &store, steps).unwrap());
    outcomes.into_iter().flatten().next().unwrap()
}

#[test]
fn physics_are_those_of_one_rank() {
    let mut serial = Simulation::new(&settings()).unwrap();
    let before = serial.energy();
    let pulls = serial.pulls().to_vec();
    let typical = pulls.iter().map(|p| p.acceleration[0].abs()).fold(0.0, f32::max);
    for ranks in [1, 3, 4] {
        let found = on_ranks(ranks, |comm| {
            let simulation = RankSimulation::new(&settings(), comm).unwrap();
            let ids = simulation.own().ids.clone();
            (ids, simulation.pulls().to_vec(), simulation.energy().unwrap())
        });
        for (ids, felt, energy) in found {
            for (id, pull) in ids.iter().zip(felt) {
                let expected = &pulls[*id as usize];
                for (a, b) in pull.acceleration.iter().zip(expected.acceleration) {
                    // Sums of 32-bit floats, in another order, and of fixed-point numbers.
                    assert!((a - b).abs() < 2e-5 * typical, "{id}: {a} {b} of {typical}");
                }
                assert!((pull.potential - expected.potential).abs() < 1e-5);
            }
            assert!((energy.kinetic - before.kinetic).abs() < 1e-5 * before.kinetic);
            assert!((energy.potential - before.potential).abs() < 1e-5 * before.potential.abs());
        }
    }
    (0..10).for_each(|_| serial.step());
    let ranked = after(10, &settings(), 3);
    for axis in 0..3 {
        let pairs = ranked.particles.arrays()[axis].iter().zip(serial.particles().arrays()[axis]);
        let apart = pairs.map(|(a, b)| (a - b).abs().min(1.0 - (a - b).abs()));
        assert!(apart.fold(0.0, f32::max) < 1e-5);
    }
}

#[test]
fn any_number_of_ranks_and_threads_gives_the_same_bits() {
    let one = after(12, &settings(), 1);
    assert!(one.ids.iter().copied().eq(0..512));
    for ranks in [1, 2, 3, 5, 8] {
        assert!(after(12, &settings(), ranks).bytes() == one.bytes(), "{ranks} ranks");
    }
    let threads = Settings { threads: 3, ..settings() };
    assert!(after(12, &threads, 2).bytes() == one.bytes());
}

/// Slabs without any particle, and particles that all change places.
#[test]
fn empty_slabs_are_no_trouble() {
    let small = Settings { particles_per_side: 2, timestep: 1.0, ..settings() };
    let one = after(3, &small, 1);
    assert!(after(3, &small, 7).bytes() == one.bytes());
}

#[test]
fn a_restart_on_any_number_of_ranks_goes_on_with_the_same_bits() {
    let end = after(15, &settings(), 1).bytes();
    let newest = after(8, &settings(), 4).bytes();
    for ranks in [1, 2, 3, 4, 6] {
        let folder = tempfile::tempdir().unwrap();
        let first = with_checkpoints(4, folder.path(), 10);
        assert_eq!(first.resumed, None);
        let second = with_checkpoints(ranks, folder.path(), 15);
        assert_eq!(second.resumed, Some(8), "{ranks} ranks");
        assert!(second.restored.unwrap().bytes() == newest, "{ranks} ranks");
        assert!(second.end.bytes() == end, "{ranks} ranks");
        // And once more, from what those have saved.
        let third = with_checkpoints(3, folder.path(), 15);
        assert_eq!(third.resumed, Some(14));
        assert!(third.end.bytes() == end, "{ranks} ranks, then 3");
    }
}

#[test]
fn the_same_number_of_ranks_goes_on_with_the_lineage() {
    let folder = tempfile::tempdir().unwrap();
    with_checkpoints(4, folder.path(), 6);
    with_checkpoints(4, folder.path(), 10);
    let (all, trouble) = Library::open(folder.path()).unwrap().checkpoints("r").unwrap();
    assert!(trouble.is_empty());
    assert_eq!(all.iter().map(|info| info.step).collect::<Vec<_>>(), [2, 4, 6, 8]);
    assert!(all.iter().all(|info| info.epoch == all[0].epoch));
}

/// A rank dies in the middle of a step, and the survivors return an error that says so.
#[test]
fn a_death_costs_no_checkpoint() {
    let end = after(14, &settings(), 1).bytes();
    for (ranks, again) in [(4, 4), (3, 5)] {
        let folder = tempfile::tempdir().unwrap();
        let world = ThreadRanks::new(ranks);
        let (store, killer) = (folder.path().to_path_buf(), world.clone());
        let ends = world.run(move |comm| {
            let mut simulation = RankSimulation::new(&settings(), comm.clone()).unwrap();
            let mut observer = |_: &RankSimulation, progress: RankProgress| {
                if matches!(progress, RankProgress::Captured(8)) && comm.rank() == Rank(1) {
                    killer.kill(Rank(1));
                }
                Ok(())
            };
            let options = options(&store);
            let error = run_on_ranks(&mut simulation, schedule(14), options, &mut observer);
            error.err().map(|error| error.to_string())
        });
        for end in ends {
            match end {
                End::Done(error) => assert!(error.unwrap().contains("died")),
                End::Killed => {}
                End::Panicked(text) => panic!("{text}"),
            }
        }
        // The dead rank's lock stays with its thread: a copy of the store is what another process sees.
        let copy = tempfile::tempdir().unwrap();
        copy_folder(folder.path(), copy.path());
        let outcome = with_checkpoints(again, copy.path(), 14);
        assert!(matches!(outcome.resumed, Some(6 | 8)), "{outcome:?}");
        assert!(outcome.end.bytes() == end);
    }
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => {
                std::fs::create_dir(&target).unwrap();
                copy_folder(&entry.path(), &target);
            }
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn a_run_of_other_settings_is_refused_on_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    with_checkpoints(2, folder.path(), 4);
    for ranks in [1, 2, 3] {
        let store = folder.path().to_path_buf();
        let told = on_ranks(ranks, move |comm| {
            let other = Settings { seed: 2, ..settings() };
            let mut simulation = RankSimulation::new(&other, comm).unwrap();
            run_on_ranks(&mut simulation, schedule(8), options(&store), &mut |_, _| Ok(()))
                .err()
                .map(|error| error.to_string())
        });
        for error in told {
            assert!(error.clone().unwrap().contains("other settings"), "{ranks}: {error:?}");
        }
    }
}

//! A simulation that ends early goes on from its newest checkpoint as if it never had.

use particles::{NAMES, Progress, Schedule, Settings, Simulation, run};
use std::path::Path;
use treering::{Library, Options};

fn settings() -> Settings {
    Settings { particles_per_side: 8, mesh: 24, threads: 1, ..Settings::default() }
}

fn simulate(
    settings: &Settings,
    steps: u64,
    store: Option<&Path>,
) -> treering::Result<(Simulation, particles::Summary)> {
    let mut simulation = Simulation::new(settings)?;
    let options = store.map(|store| Options::directory(store, "test"));
    let schedule = Schedule { steps, every: 3 };
    let summary = run(&mut simulation, schedule, options, |progress| {
        assert!(!matches!(progress, Progress::Failed { .. }), "{progress:?}");
    })?;
    Ok((simulation, summary))
}

fn bits(simulation: &Simulation) -> Vec<u32> {
    simulation.particles().arrays().into_iter().flatten().map(|value| value.to_bits()).collect()
}

#[test]
fn going_on_from_a_checkpoint_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let store = Some(folder.path());
    let (straight, summary) = simulate(&settings(), 12, None).unwrap();
    assert_eq!((summary.resumed, summary.steps, summary.checkpoints), (None, 12, 0));
    let (early, summary) = simulate(&settings(), 8, store).unwrap();
    assert_eq!((summary.resumed, summary.steps, summary.checkpoints), (None, 8, 2));
    assert!(bits(&early) != bits(&straight));
    let (resumed, summary) = simulate(&settings(), 12, store).unwrap();
    assert_eq!((summary.resumed, summary.steps, summary.checkpoints), (Some(6), 6, 1));
    assert!(bits(&resumed) == bits(&straight));
}

#[test]
fn a_checkpoint_holds_the_seven_arrays() {
    let folder = tempfile::tempdir().unwrap();
    simulate(&settings(), 4, Some(folder.path())).unwrap();
    let (third, _) = simulate(&settings(), 3, None).unwrap();
    let checkpoint = Library::open(folder.path()).unwrap().checkpoint("test", Some(3)).unwrap();
    for (name, array) in NAMES.iter().zip(third.particles().arrays()) {
        let stored: Vec<f32> = checkpoint.read(name).unwrap();
        assert!(stored == array, "{name}");
    }
}

#[test]
fn a_run_of_other_settings_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    simulate(&settings(), 4, Some(folder.path())).unwrap();
    let others = [
        (Settings { mesh: 30, ..settings() }, "other settings"),
        (Settings { seed: 2, ..settings() }, "other settings"),
        (Settings { timestep: 0.01, ..settings() }, "other settings"),
        (Settings { particles_per_side: 9, ..settings() }, "shape"),
    ];
    for (other, word) in others {
        let error = simulate(&other, 8, Some(folder.path())).err().unwrap().to_string();
        assert!(error.contains(word), "{error}");
    }
    let more_threads = Settings { threads: 2, ..settings() };
    assert_eq!(simulate(&more_threads, 8, Some(folder.path())).unwrap().1.resumed, Some(3));
}

//! Fields that change a little everywhere are stored as differences to the step before, and come back
//! bit for bit: every step, whoever wrote it, and never from a long chain.

use crate::support::memory;
use std::sync::Arc;
use treering::{
    Ingest, IngestSettings, Library, Options, RankFile, Run, Store, Variable, VariableMut,
};

/// A field of which the last digits change from step to step, as noise does.
fn field(step: u64, count: usize) -> Vec<f64> {
    let rough = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1u64 << 53) as f64;
    let value = |i: u64| 1.0 + rough(i + 1) + 1e-9 * rough(i * 31 + step * 7_919);
    (0..count as u64).map(value).collect()
}

fn open(store: &Arc<dyn Store>) -> Run {
    Run::open(Options::in_store(store.clone(), "sim")).unwrap()
}

fn save(run: &mut Run, step: u64, count: usize) {
    let values = field(step, count);
    let steady = vec![7.5f64; 30_000];
    let variables = [Variable::new("field", &values), Variable::new("steady", &steady)];
    run.checkpoint(step, &variables).unwrap().durable().unwrap();
}

/// Whether each checkpoint, by its step, holds the field as a difference.
fn differences(store: &Arc<dyn Store>, steps: std::ops::Range<u64>) -> Vec<bool> {
    let library = Library::of(store.clone());
    let of = |step: u64| {
        let checkpoint = library.checkpoint("sim", Some(step)).unwrap();
        let variables = library.variables(&checkpoint);
        let mut codecs = variables.iter().filter(|v| v.name == "field").flat_map(|v| &v.codecs);
        codecs.any(|codec| codec.contains("step before"))
    };
    steps.map(of).collect()
}

fn holds(store: &Arc<dyn Store>, step: u64, count: usize) {
    let checkpoint = Library::of(store.clone()).checkpoint("sim", Some(step)).unwrap();
    assert!(checkpoint.read::<f64>("field").unwrap() == field(step, count), "step {step}");
    let part = checkpoint.read_range::<f64>("field", 777..20_000).unwrap();
    assert!(part == field(step, count)[777..20_000], "part of step {step}");
    assert!(checkpoint.read::<f64>("steady").unwrap().iter().all(|v| *v == 7.5));
}

/// The longest row of checkpoints that are differences.
fn longest(differences: &[bool]) -> usize {
    differences.split(|d| !d).map(<[bool]>::len).max().unwrap_or(0)
}

#[test]
fn every_step_comes_back_and_no_chain_is_long() {
    let store = memory();
    let count = 300_000;
    let mut run = open(&store);
    (0..20).for_each(|step| save(&mut run, step, count));
    run.finish().unwrap();
    (0..20).for_each(|step| holds(&store, step, count));
    let made = differences(&store, 0..20);
    assert!(made[1..8].iter().all(|d| *d), "{made:?}");
    assert!(longest(&made) <= 7, "{made:?}");
    let library = Library::of(store);
    assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
    for (state, step) in library.backwards("sim").unwrap().zip((0..20).rev()) {
        assert!(state.unwrap().get::<f64>("field").unwrap() == field(step, count));
    }
}

#[test]
fn in_an_epoch_without_end_key_frames_come_all_the_same() {
    let (store, count) = (memory(), 60_000);
    let mut run = Run::open(Options::in_store(store.clone(), "sim").growth(1e9)).unwrap();
    (0..20).for_each(|step| save(&mut run, step, count));
    run.finish().unwrap();
    (0..20).for_each(|step| holds(&store, step, count));
    let made = differences(&store, 0..20);
    let keys: Vec<usize> = (0..20).filter(|step| !made[*step]).collect();
    assert_eq!(keys, [0, 8, 16]);
}

/// Every second block of 8 KiB changes, then all of them, and so on: the runs of a frame alternate
/// between two packs, and those of the frames below, too. A reader that decodes a frame for each run that
/// leads to it never ends here.
#[test]
fn blocks_that_change_in_turn_come_back_without_decoding_a_frame_again_and_again() {
    let (store, count, block) = (memory(), 131_072, 1024);
    let mut run = Run::open(Options::in_store(store.clone(), "sim").growth(1e9)).unwrap();
    let mut values = field(0, count);
    let mut states = Vec::new();
    for step in 0..16u64 {
        let fresh = field(step, count);
        for at in (0..count).filter(|at| step % 2 == 0 || at / block % 2 == 0) {
            values[at] = fresh[at];
        }
        run.checkpoint(step, &[Variable::new("field", &values)]).unwrap().durable().unwrap();
        states.push(values.clone());
    }
    run.finish().unwrap();
    assert!(differences(&store, 1..16).iter().filter(|made| **made).count() > 8);
    let library = Library::of(store);
    for (step, state) in (0..).zip(&states) {
        let checkpoint = library.checkpoint("sim", Some(step)).unwrap();
        assert!(checkpoint.read::<f64>("field").unwrap() == *state, "step {step}");
    }
}

#[test]
fn a_variable_that_grows_or_shrinks_comes_back() {
    let store = memory();
    let mut run = open(&store);
    let counts = [50_000, 50_000, 80_001, 80_001, 40_003, 40_003, 90_000, 90_000];
    for (step, count) in (0..).zip(counts) {
        save(&mut run, step, count);
    }
    run.finish().unwrap();
    for (step, count) in (0..).zip(counts) {
        holds(&store, step, count);
    }
}

#[test]
fn a_restarted_program_goes_on_with_differences() {
    let store = memory();
    let count = 200_000;
    for start in [0, 3, 6, 9] {
        let mut run = open(&store);
        let (mut values, mut steady) = (vec![0f64; count], vec![0f64; 30_000]);
        let mut targets =
            [VariableMut::new("field", &mut values), VariableMut::new("steady", &mut steady)];
        let restored = run.restore(&mut targets).unwrap();
        assert_eq!(restored.is_some(), start > 0);
        (start..start + 3).for_each(|step| save(&mut run, step, count));
        run.finish().unwrap();
    }
    (0..12).for_each(|step| holds(&store, step, count));
    let made = differences(&store, 0..12);
    assert!(made[4] && longest(&made) <= 7, "{made:?}");
}

#[test]
fn damage_below_a_difference_is_an_error_and_no_wrong_value() {
    let (store, count) = (memory(), 60_000);
    let mut run = open(&store);
    (0..4).for_each(|step| save(&mut run, step, count));
    run.finish().unwrap();
    let packs = store.list("runs/sim/packs").unwrap();
    let mut names: Vec<String> = packs.iter().map(|item| item.name.clone()).collect();
    names.sort();
    let key = format!("runs/sim/packs/{}", names[0]);
    let blob = store.open(&key).unwrap();
    let mut bytes = vec![0; blob.size() as usize];
    blob.read_at(0, &mut bytes).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    store.delete(std::slice::from_ref(&key)).unwrap();
    let mut put = store.put(&key).unwrap();
    put.append(&bytes).unwrap();
    put.finish().unwrap();
    let library = Library::of(store.clone());
    for step in 0..4 {
        let checkpoint = library.checkpoint("sim", Some(step)).unwrap();
        let error = checkpoint.read::<f64>("field").unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }
    // A program that goes on is not stopped by it.
    let mut run = open(&store);
    save(&mut run, 4, count);
    run.finish().unwrap();
    holds(&store, 4, count);
}

#[test]
fn files_of_separate_processes_are_differences_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = memory();
    let mut stored = Vec::new();
    for step in 0..12u64 {
        let mut files = Vec::new();
        for rank in 0..3u32 {
            let path = folder.path().join(format!("{step}.{rank}"));
            let values = field(step + 100 * u64::from(rank), 30_000 + 1_000 * rank as usize);
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            std::fs::write(&path, bytes).unwrap();
            let (name, like) = (format!("state.{rank}"), "state.{rank}".to_string());
            files.push(RankFile { rank: treering::Rank(rank), path, name, like });
        }
        let settings = IngestSettings {
            raw: Some(treering::RawLayout::values(treering::DType::F64, None)),
            ..IngestSettings::default()
        };
        let mut ingest = Ingest::open(Options::in_store(store.clone(), "sim"), settings).unwrap();
        let manifest = ingest.take(step, &files, &|_, _| {}).unwrap();
        stored.push(manifest.groups.here().unwrap()[0].seal.size);
    }
    assert!(stored[1..7].iter().all(|size| *size < stored[0] * 3 / 4), "{stored:?}");
    let library = Library::of(store);
    for step in 0..12u64 {
        let to = folder.path().join(format!("out-{step}"));
        library.export("sim", Some(step), &[], &to).unwrap();
        for rank in 0..3 {
            let original = std::fs::read(folder.path().join(format!("{step}.{rank}"))).unwrap();
            assert!(std::fs::read(to.join(format!("state.{rank}"))).unwrap() == original);
        }
    }
}

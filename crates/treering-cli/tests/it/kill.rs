//! A simulation that is killed with SIGKILL at random moments, again and again, loses nothing that
//! was listed, and ends in the very state of an undisturbed run.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use treering::{Library, Options, Run, Variable};

fn simulate(store: &Path, run: &str, steps: u64) -> Child {
    Command::new(env!("CARGO_BIN_EXE_treering"))
        .arg("demo-simulation")
        .arg(store)
        .args([run, "--steps", &steps.to_string(), "--every", "3", "--side", "64"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Number of kills of the simulation; the long campaign sets this.
fn kills() -> u64 {
    std::env::var("TREERING_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

#[test]
fn two_hundred_kills_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut random = 0x9E3779B97F4A7C15u64;
    let mut newest = None;
    for _ in 0..kills() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut child = simulate(&store, "killed", u64::MAX);
        std::thread::sleep(Duration::from_micros(random % 40_000));
        child.kill().unwrap();
        child.wait().unwrap();
        newest = check_newest(&store, newest);
    }
    let newest = newest.expect("no checkpoint survived, so nothing was tested");
    let last = newest.next_multiple_of(3) + 30;
    for run in ["killed", "undisturbed"] {
        assert!(simulate(&store, run, last).wait().unwrap().success());
    }
    compare(&store, last);
}

/// The newest listed checkpoint restores, and is no older than the one before the kill.
fn check_newest(store: &Path, before: Option<u64>) -> Option<u64> {
    let listed = Library::open(store).and_then(|library| {
        let steps = library.checkpoints("killed")?;
        Ok((library, steps))
    });
    // A run that was killed before it was opened is not there yet.
    let Ok((library, (checkpoints, unreadable))) = listed else {
        assert_eq!(before, None);
        return None;
    };
    assert!(unreadable.is_empty(), "{unreadable:?}");
    let Some(newest) = checkpoints.last() else {
        assert_eq!(before, None);
        return None;
    };
    assert!(before.is_none_or(|b| newest.step >= b), "{before:?} is gone");
    let checkpoint = library.checkpoint("killed", None).unwrap();
    for name in ["u", "v"] {
        checkpoint.read::<f64>(name).unwrap();
    }
    Some(newest.step)
}

/// Every checkpoint of the killed run equals that of the undisturbed one.
fn compare(store: &Path, last: u64) {
    let library = Library::open(store).unwrap();
    let (checkpoints, _) = library.checkpoints("killed").unwrap();
    assert_eq!(checkpoints.last().unwrap().step, last);
    for checkpoint in &checkpoints {
        let read = |run: &str, name: &str| {
            let checkpoint = library.checkpoint(run, Some(checkpoint.step)).unwrap();
            checkpoint.read::<u8>(name).or_else(|_| {
                let values = checkpoint.read::<f64>(name)?;
                Ok::<_, treering::Error>(values.iter().flat_map(|v| v.to_le_bytes()).collect())
            })
        };
        for name in ["u", "v"] {
            let (a, b) = (read("killed", name).unwrap(), read("undisturbed", name).unwrap());
            assert!(a == b, "{name} of step {} differs", checkpoint.step);
        }
    }
    let report = library.verify(None, false, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

/// The files of a step: eight ranks, each with values that change and values that do not.
fn write_set(folder: &Path, step: u64) {
    std::fs::create_dir_all(folder).unwrap();
    for rank in 0..8u64 {
        let value = |i: u64| {
            ((i * 7 + rank) as f64 * 0.01).sin()
                + if i.is_multiple_of(3) { step as f64 } else { 0.0 }
        };
        let bytes: Vec<u8> = (0..60_000).flat_map(|i| value(i).to_le_bytes()).collect();
        std::fs::write(folder.join(format!("rank-{rank}.raw")), bytes).unwrap();
    }
}

fn ingest(store: &Path, step: u64, files: &Path) -> Child {
    let place = format!("{}#sim@{step}", store.display());
    Command::new(env!("CARGO_BIN_EXE_treering"))
        .args(["ingest", &place])
        .arg(files)
        .args(["--type", "f64"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Every listed step comes back as the very files it was taken from.
fn check_sets(store: &Path, folder: &Path, expected: u64) {
    let library = Library::open(store).unwrap();
    assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
    let (checkpoints, unreadable) = library.checkpoints("sim").unwrap();
    assert!(unreadable.is_empty(), "{unreadable:?}");
    let steps: Vec<u64> = checkpoints.iter().map(|checkpoint| checkpoint.step).collect();
    assert!((0..expected).all(|step| steps.contains(&step)), "{steps:?} of {expected}");
    for step in steps {
        let to = tempfile::tempdir().unwrap();
        library.export("sim", Some(step), &[], to.path()).unwrap();
        for rank in 0..8 {
            let name = format!("rank-{rank}.raw");
            let original = std::fs::read(folder.join(step.to_string()).join(&name)).unwrap();
            assert!(std::fs::read(to.path().join(&name)).unwrap() == original, "{step} {name}");
        }
    }
}

#[test]
fn an_ingest_that_is_killed_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut random = 0x2545F4914F6CDD1Du64;
    let mut cut_short = 0;
    for step in 0..5 {
        let files = folder.path().join(step.to_string());
        write_set(&files, step);
        for _ in 0..4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut child = ingest(&store, step, &files);
            std::thread::sleep(Duration::from_micros(random % 60_000));
            child.kill().unwrap();
            cut_short += u32::from(!child.wait().unwrap().success());
            if step > 0 {
                check_sets(&store, folder.path(), step);
            }
        }
        // Whether or not one of the killed ones had got through.
        let through = ingest(&store, step, &files).wait().unwrap().success();
        let library = Library::open(&store).unwrap();
        let (checkpoints, _) = library.checkpoints("sim").unwrap();
        assert!(through || checkpoints.iter().any(|checkpoint| checkpoint.step == step));
        check_sets(&store, folder.path(), step + 1);
    }
    assert!(cut_short > 0, "none was killed in time, so nothing was tested");
}

/// All files below a folder, with their bytes; or the bytes of a file.
fn content(path: &Path) -> Vec<(String, Vec<u8>)> {
    if path.is_file() {
        return vec![(String::new(), std::fs::read(path).unwrap())];
    }
    let mut all = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let below = content(&entry.path()).into_iter();
        all.extend(below.map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
    }
    all.sort();
    all
}

#[test]
fn an_export_of_arrays_that_is_killed_leaves_nothing_that_looks_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let noise: Vec<u64> = (1..400_000u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    let mut run = Run::open(Options::directory(&store, "sim")).unwrap();
    let state = [
        Variable::new("a/b", &noise[..300_000]).shaped(&[300, 1000]).fortran(),
        Variable::new("a/c", &noise),
        Variable::new("d", &noise[..5]),
    ];
    run.checkpoint(4, &state).unwrap();
    run.finish().unwrap();
    let export = |format: &str, to: &Path| {
        Command::new(env!("CARGO_BIN_EXE_treering"))
            .args(["export", &format!("{}#sim", store.display()), "--as", format, "--to"])
            .arg(to)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut random = 0x9E3779B97F4A7C15u64;
    for (format, name) in [("npy", "sim-4"), ("hdf5", "sim-4.h5"), ("zarr", "sim-4.zarr")] {
        let whole = folder.path().join(format!("whole-{format}"));
        assert!(export(format, &whole).wait().unwrap().success());
        let expected = content(&whole.join(name));
        for kill in 0..kills().div_ceil(10) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let to = folder.path().join(format!("{format}-{kill}"));
            let mut child = export(format, &to);
            std::thread::sleep(Duration::from_micros(random % 150_000));
            child.kill().unwrap();
            child.wait().unwrap();
            let names = std::fs::read_dir(&to).into_iter().flatten();
            let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let seen: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
            if !seen.is_empty() {
                assert_eq!(seen, [name]);
                assert!(content(&to.join(name)) == expected, "{format} after kill {kill}");
            } else {
                // The remains are in nobody's way.
                assert!(export(format, &to).wait().unwrap().success());
                assert!(content(&to.join(name)) == expected);
            }
            std::fs::remove_dir_all(&to).unwrap();
        }
    }
}

//! A simulation that is killed with SIGKILL at random moments, again and again, loses nothing that
//! was listed, and ends in the very state of an undisturbed run.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use treering::Library;

fn simulate(store: &Path, run: &str, steps: u64) -> Child {
    Command::new(env!("CARGO_BIN_EXE_treering"))
        .arg("demo-simulation")
        .arg(store)
        .args([run, "--steps", &steps.to_string(), "--every", "3", "--side", "64"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// How often the simulation is killed; the long campaign sets this.
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

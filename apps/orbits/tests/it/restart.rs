//! A count that is killed goes on from its newest checkpoint and ends with the same numbers.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn orbits(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orbits"));
    command.args(arguments);
    command
}

fn count(folder: &Path, extra: &[&str]) -> Output {
    let graph = folder.join("graph").display().to_string();
    let mut arguments = vec!["count", "--edges", &graph, "--reorder"];
    arguments.extend_from_slice(extra);
    orbits(&arguments).output().unwrap()
}

#[test]
fn a_killed_count_goes_on_and_ends_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = orbits(&["make", "delaunay", "20000", "--out", &path("graph")]).output().unwrap();
    assert!(made.status.success());
    assert!(count(folder.path(), &["--out", &path("straight")]).status.success());

    let store = format!("{}#count", path("store"));
    let with_store = ["--store", &store, "--checkpoints", "12"];
    let mut child = orbits(&["count", "--edges", &path("graph"), "--reorder"])
        .args(with_store)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let third = lines.into_iter().find(|line| line.starts_with("checkpoint 3:"));
    assert!(third.is_some());
    child.kill().unwrap();
    child.wait().unwrap();

    let out = path("resumed");
    let resumed = count(folder.path(), &[&with_store[..], &["--out", &out]].concat());
    let told = String::from_utf8(resumed.stdout).unwrap();
    assert!(resumed.status.success());
    assert!(told.contains("checkpoint 12: 20000 of 20000 vertices"), "{told}");
    assert_eq!(std::fs::read(out).unwrap(), std::fs::read(path("straight")).unwrap());

    // The same store does not go with another order of the vertices.
    let other = orbits(&["count", "--edges", &path("graph")]).args(with_store).output().unwrap();
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8(other.stderr).unwrap().contains("another graph"));
}

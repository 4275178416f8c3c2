//! The program as its user meets it.

use std::process::{Command, Output};

fn particles(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_particles")).args(arguments).output().unwrap()
}

#[test]
fn it_goes_on_from_the_newest_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store").display().to_string();
    let small = ["--particles", "8", "--every", "2", "--store", &store, "--run", "a"];
    let told = |steps: &str| {
        let output = particles(&[&small[..], &["--steps", steps]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let first = told("5");
    assert!(first.contains("checkpoint of step 2\ncheckpoint of step 4\n"), "{first}");
    let second = told("8");
    assert!(second.contains("goes on from step 4\ncheckpoint of step 6\n"), "{second}");
    assert!(second.contains("4 steps, 1 checkpoints"), "{second}");
    assert!(told("8").contains("goes on from step 6"));
}

#[test]
fn bad_arguments_are_told_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store").display().to_string();
    let cases: [(&[&str], &str); 8] = [
        (&["--particles", "1"], "particles per side is 2 to 512, but 1 was asked for"),
        (&["--mesh", "8"], "mesh cells per side is 24 to 1024, but 8 was asked for"),
        (&["--threads", "0"], "threads is 1 to 1024, but 0 was asked for"),
        (&["--timestep", "NaN"], "a step takes a time above 0 and up to 1"),
        (&["--particles", "4", "--every", "0"], "at least one step apart"),
        (&["--particles", "many"], "invalid value 'many' for '--particles"),
        (&["--particles", "4", "--store", &store, "--run", ""], "run"),
        (&["--run", "a"], "required arguments were not provided"),
    ];
    for (arguments, sentence) in cases {
        let output = particles(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.lines().next().unwrap().contains(sentence), "{arguments:?}: {told}");
    }
}

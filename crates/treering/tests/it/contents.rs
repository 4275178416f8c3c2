//! Content of files beside arrays, and arrays that were not taken apart: two files that differ there are
//! never called equal, and two that differ in their layout only are.
//!
//! The pairs of files come from `make_pairs.py` (`make test`), which sets TREERING_FILE_PAIRS.

use std::path::{Path, PathBuf};
use treering::compare::{Answer, Outcome, Settings, compare};
use treering::library::open_side;
use treering::merkle::bounded::Bound;
use treering::{Ingest, IngestSettings, Library, Options, RankFile};

fn ingest(store: &Path, run: &str, file: &Path) {
    let name = "out.h5".to_string();
    let file = RankFile { rank: 0, path: file.into(), like: name.clone(), name };
    let options = Options::directory(store, run);
    let mut ingest = Ingest::open(options, IngestSettings::default()).unwrap();
    ingest.take(1, &[file], &|_, _| {}).unwrap();
}

fn compared(a: &str, b: &str) -> Outcome {
    let [a, b] = [a, b].map(|place| open_side(place, None, true).unwrap());
    let settings = Settings::within(Bound::abs(1e-3));
    compare(a.as_ref(), b.as_ref(), &settings, None, &|_, _| {}).unwrap()
}

/// The pairs of an answer.
fn pairs(answer: &str) -> Vec<(PathBuf, PathBuf)> {
    let folder = std::env::var_os("TREERING_FILE_PAIRS").expect("`make test` makes the pairs");
    let folder = Path::new(&folder).join(answer);
    let mut all = Vec::new();
    for pair in std::fs::read_dir(folder).unwrap() {
        let files = std::fs::read_dir(pair.unwrap().path()).unwrap();
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        all.push((files[0].clone(), files[1].clone()));
    }
    all.sort();
    assert!(!all.is_empty());
    all
}

/// Compares the pairs of an answer as files, in a store, and one against the other.
fn check(answer: &str, right: impl Fn(&Outcome) -> bool) {
    let mut wrong = Vec::new();
    for (a, b) in pairs(answer) {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path();
        ingest(store, "a", &a);
        ingest(store, "b", &b);
        let stored = |run: &str| format!("{}#{run}@1", store.display());
        let [of_a, of_b] = [&a, &b].map(|path| path.display().to_string());
        for (x, y) in [(of_a, of_b.clone()), (stored("a"), stored("b")), (stored("a"), of_b)] {
            let outcome = compared(&x, &y);
            if !right(&outcome) {
                let sentence = treering::report::sentence(&outcome);
                let why = (&outcome.unmatched, &outcome.contents, &outcome.not_compared);
                wrong.push(format!("{x} and {y}: {sentence}\n  {why:?}"));
            }
        }
        // A file is itself, however it is read.
        for x in [stored("a"), a.display().to_string()] {
            let outcome = compared(&stored("a"), &x);
            let same = outcome.verdict == Answer::Equal || answer == "unknown";
            if !same {
                wrong.push(format!("{x} and itself: {outcome:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn files_that_differ_beside_their_arrays_are_different() {
    check("different", |outcome| outcome.verdict == Answer::Different);
}

#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn files_that_differ_in_their_layout_are_equal() {
    check("equal", |outcome| outcome.verdict == Answer::Equal);
}

#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn files_that_nobody_understands_are_never_equal() {
    check("unknown", |outcome| outcome.verdict != Answer::Equal);
}

#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn datasets_that_were_not_taken_apart_are_listed() {
    let listed = ["foreign-gzip", "lzf", "scale-offset", "texts", "records-with-texts"];
    for (a, _) in pairs("different") {
        let name = a.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        if !listed.contains(&name.as_str()) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        ingest(folder.path(), "a", &a);
        let library = Library::open(folder.path()).unwrap();
        let checkpoint = library.checkpoint("a", Some(1)).unwrap();
        let whole = library.not_taken_apart(&checkpoint).unwrap();
        assert_eq!(whole.len(), 1, "{name}");
        assert_eq!(whole[0].dataset.name, "x", "{name}");
        assert!(!whole[0].dataset.why.is_empty(), "{name}");
    }
}

//! Content of files beside arrays, and arrays that were not taken apart: two files that differ there are
//! never called equal, and two that differ in their layout only are.
//!
//! The pairs of files come from `make_pairs.py` (`make test`), which sets TREERING_FILE_PAIRS.

use std::path::{Path, PathBuf};
use treering::{
    Answer, Bound, CompareSettings, Ingest, IngestSettings, Library, Options, Outcome, RankFile,
    compare, open_side,
};

fn ingest(store: &Path, run: &str, file: &Path) {
    let name = "out.h5".to_string();
    let file = RankFile { rank: treering::Rank(0), path: file.into(), like: name.clone(), name };
    let options = Options::directory(store, run);
    let mut ingest = Ingest::open(options, IngestSettings::default()).unwrap();
    ingest.take(1, &[file], &|_, _| {}).unwrap();
}

fn compared(a: &str, b: &str) -> Outcome {
    let [a, b] = [a, b].map(|place| open_side(place, None, true).unwrap());
    let settings = CompareSettings::within(Bound::abs(1e-3));
    compare(a.as_ref(), b.as_ref(), &settings, None, &|_, _| {}).unwrap()
}

/// A safetensors file of one tensor, with metadata in this order.
fn safetensors(path: &Path, metadata: &[(&str, &str)], value: f32) {
    let texts = metadata.iter().map(|(key, text)| format!("{key:?}:{text:?}"));
    let texts = texts.collect::<Vec<_>>().join(",");
    let head = format!(
        "{{\"__metadata__\":{{{texts}}},\"x\":{{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}}}"
    );
    let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
    bytes.extend(head.bytes());
    bytes.extend(value.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

/// Metadata of files is compared, in whatever order it stands, on a disk and in a store.
#[test]
fn metadata_is_content_and_its_order_is_not() {
    let one: &[(&str, &str)] = &[("format", "pt"), ("epoch", "3")];
    let turned: &[(&str, &str)] = &[("epoch", "3"), ("format", "pt")];
    let other: &[(&str, &str)] = &[("format", "pt"), ("epoch", "4")];
    for (metadata, value, answer) in [
        (one, 1.0, Answer::Equal),
        (turned, 1.0001, Answer::Equal),
        (other, 1.0001, Answer::Different),
        (&one[..1], 1.0, Answer::Different),
        (turned, 2.0, Answer::Different),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(format!("{name}.safetensors")));
        safetensors(&a, one, 1.0);
        safetensors(&b, metadata, value);
        let store = folder.path().join("store");
        ingest(&store, "a", &a);
        ingest(&store, "b", &b);
        let stored = |run: &str| format!("{}#{run}@1", store.display());
        let [of_a, of_b] = [&a, &b].map(|path| path.display().to_string());
        for (x, y) in [(of_a, of_b.clone()), (stored("a"), stored("b")), (stored("a"), of_b)] {
            let outcome = compared(&x, &y);
            assert_eq!(outcome.verdict, answer, "{x} {y} {metadata:?} {value}: {outcome:?}");
            let named = outcome.contents.first().is_some_and(|c| c.item == "metadata epoch");
            assert_eq!(named, metadata != one && metadata != turned, "{outcome:?}");
        }
        // Who asks for variables gets variables.
        let [a, b] = [stored("a"), stored("b")].map(|place| open_side(&place, None, true).unwrap());
        let bound = Some(Bound::abs(1e-3));
        let settings =
            CompareSettings { bound, variables: vec!["x".into()], ..CompareSettings::default() };
        let outcome = compare(a.as_ref(), b.as_ref(), &settings, None, &|_, _| {}).unwrap();
        assert_eq!(outcome.equal, value < 1.5);
    }
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
                let sentence = outcome.sentence();
                let why = (&outcome.unmatched, &outcome.contents, &outcome.not_compared);
                wrong.push(format!("{x} and {y}: {sentence}\n  {why:?}"));
            }
        }
        // A file is itself, however it is read.
        for x in [stored("a"), a.display().to_string()] {
            let outcome = compared(&stored("a"), &x);
            // Only the folder of a file tells which others hold its values.
            let elsewhere = a.display().to_string().contains("virtual");
            let same = outcome.verdict == Answer::Equal || elsewhere;
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

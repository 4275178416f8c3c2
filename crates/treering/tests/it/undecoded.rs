//! Content that is not decoded, and files that cannot be read: everything else is compared, these are listed, and they
//! are equal only if their stored bytes are.

use crate::laws::files::{npy, npz};
use std::path::{Path, PathBuf};
use treering::{
    Answer, CompareSettings, DType, Ingest, IngestSettings, Library, Options, Outcome, RankFile,
    compare, open_side,
};

/// An `.npy` file of another type, and the bytes behind its head.
fn typed(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let head = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((head.len() as u16).to_le_bytes());
    bytes.extend(head.as_bytes());
    bytes.extend(values);
    bytes
}

/// An archive of numbers and of objects.
fn archive(path: &Path, deflated: bool, number: f64, pickle: &[u8]) {
    let values: Vec<u8> = (0..5000).flat_map(|i| (f64::from(i) * number).to_le_bytes()).collect();
    let texts: Vec<u8> = "onetwo".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
    let members = [
        ("listed", typed("'|O'", "(2,)", pickle)),
        ("x", npy(DType::F64, &[50, 100], false, false, &values)),
        ("texts", typed("'<U3'", "(2,)", &texts)),
    ];
    npz(path, deflated, &members);
}

fn settled(a: &Path, b: &Path, settings: &CompareSettings) -> Outcome {
    let [a, b] = [a, b].map(|path| open_side(&path.display().to_string(), None, true).unwrap());
    compare(a.as_ref(), b.as_ref(), settings, None, &|_, _| {}).unwrap()
}

fn compared(a: &Path, b: &Path) -> Outcome {
    settled(a, b, &CompareSettings::default())
}

/// The names of what was not compared, each with a reason.
fn left_out(outcome: &Outcome) -> Vec<&str> {
    assert!(outcome.not_compared.iter().all(|left| !left.why.is_empty()), "{outcome:?}");
    outcome.not_compared.iter().filter_map(|left| left.variable.as_deref()).collect()
}

#[test]
fn one_array_of_objects_does_not_spoil_an_archive() {
    for deflated in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, number: f64, pickle: &[u8]| -> PathBuf {
            let path = folder.path().join(name);
            archive(&path, deflated, number, pickle);
            path
        };
        let a = write("a.npz", 1.0, b"one pickle");
        let outcome = compared(&a, &write("same.npz", 1.0, b"one pickle"));
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
        let undecoded: Vec<&str> = outcome
            .variables
            .iter()
            .filter(|v| v.undecoded.is_some())
            .map(|v| v.name.as_str())
            .collect();
        assert_eq!(undecoded, ["listed"]);
        assert!(outcome.notes.iter().any(|note| note.contains("listed")), "{:?}", outcome.notes);

        let other = write("other.npz", 1.0, b"two pickle");
        let outcome = compared(&a, &other);
        assert_eq!(outcome.verdict, Answer::Undecided, "{outcome:?}");
        assert_eq!(left_out(&outcome), ["listed"]);
        assert!(outcome.not_compared[0].why.contains("Python objects"), "{outcome:?}");
        assert_eq!(outcome.variables.len(), 2);

        let outcome = compared(&a, &write("both.npz", 2.0, b"two pickle"));
        assert_eq!((outcome.verdict, outcome.differences), (Answer::Different, 4999));
        assert_eq!(left_out(&outcome), ["listed"]);
        assert_eq!(outcome.first.as_ref().unwrap().variable, "x");

        // NaN that differs from itself may be among values that nobody has seen.
        let strict = CompareSettings { nan_equal: false, ..CompareSettings::default() };
        let outcome = settled(&a, &a, &strict);
        assert_eq!((outcome.verdict, left_out(&outcome)), (Answer::Undecided, vec!["listed"]));

        // The same from a store, in which numbers and texts are fields.
        let store = folder.path().join("store");
        for (run, file) in [("a", &a), ("other", &other)] {
            let (path, name) = (file.clone(), "a.npz".to_string());
            let file = RankFile { rank: treering::Rank(0), path, like: name.clone(), name };
            let options = Options::directory(&store, run);
            let mut ingest = Ingest::open(options, IngestSettings::default()).unwrap();
            ingest.take(1, &[file], &|_, _| {}).unwrap();
        }
        let library = Library::open(&store).unwrap();
        let whole = library.not_taken_apart(&library.checkpoint("a", Some(1)).unwrap()).unwrap();
        let whole: Vec<&str> = whole.iter().map(|one| one.dataset.name.as_str()).collect();
        assert_eq!(whole, ["listed"]);
        let place = |run: &str| PathBuf::from(format!("{}#{run}@1", store.display()));
        for (x, y, answer) in [
            (place("a"), a.clone(), Answer::Equal),
            (place("a"), place("other"), Answer::Undecided),
            (place("other"), a.clone(), Answer::Undecided),
        ] {
            let outcome = compared(&x, &y);
            assert_eq!(outcome.verdict, answer, "{outcome:?}");
            assert_eq!(left_out(&outcome).len(), usize::from(answer == Answer::Undecided));
        }
    }
}

#[test]
fn texts_and_records_are_compared_by_type_and_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, descr: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        npz(&path, true, &[("r", typed(descr, "(3,)", bytes))]);
        path
    };
    let record = "[('n', '<i4'), ('s', '|S2')]";
    let a = write("a.npz", record, b"111122333344555566");
    for (descr, bytes, answer) in [
        (record, b"111122333344555566", Answer::Equal),
        (record, b"111122333344555567", Answer::Different),
        ("[('n', '<u4'), ('s', '|S2')]", b"111122333344555566", Answer::Different),
    ] {
        let outcome = compared(&a, &write("b.npz", descr, bytes));
        assert_eq!(outcome.verdict, answer, "{descr}: {outcome:?}");
    }
    let path = folder.path().join("r.npy");
    std::fs::write(&path, typed(record, "(3,)", b"111122333344555566")).unwrap();
    assert_eq!(compared(&path, &path).verdict, Answer::Equal);
    let objects = folder.path().join("o.npy");
    std::fs::write(&objects, typed("'|O'", "(3,)", b"pickle")).unwrap();
    assert_eq!(compared(&objects, &objects).verdict, Answer::Equal);
}

/// The file of HDF5 that is kept for the fuzzers, with another filter for its deflated chunks.
fn unknown_filter(path: &Path, changed: bool) {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/anatomy");
    let mut bytes = std::fs::read(kept.join("hdf5-earliest-chunks")).unwrap();
    let name = bytes.windows(8).position(|eight| eight == b"deflate\0").unwrap();
    // Before its name: number, length of the name, flags, number of parameters.
    assert_eq!(bytes[name - 8..name - 6], [1, 0]);
    bytes[name - 8..name - 6].copy_from_slice(&4u16.to_le_bytes());
    if changed {
        // Within a deflated chunk.
        let chunk = bytes.windows(2).rposition(|two| two == [0x78, 0x5e]).unwrap();
        bytes[chunk + 20] ^= 1;
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn chunks_of_an_unknown_filter_are_equal_by_their_bytes_only() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a.h5", "b.h5", "c.h5"].map(|name| folder.path().join(name));
    unknown_filter(&a, false);
    unknown_filter(&b, false);
    unknown_filter(&c, true);
    let outcome = compared(&a, &b);
    assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    let packed = outcome.variables.iter().filter(|v| v.undecoded.is_some()).count();
    assert!(packed > 0, "{outcome:?}");
    let outcome = compared(&a, &c);
    assert_eq!(outcome.verdict, Answer::Undecided, "{outcome:?}");
    assert_eq!(left_out(&outcome).len(), 1, "{outcome:?}");
    assert!(outcome.not_compared[0].why.contains("szip"), "{outcome:?}");
}

#[test]
fn a_cut_file_does_not_spoil_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<u8> = (0..100).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    let sound = npy(DType::F64, &[100], false, false, &values);
    let side = |name: &str, fill: f64, cut: Option<usize>| -> PathBuf {
        let side = folder.path().join(name);
        std::fs::create_dir(&side).unwrap();
        let array = npy(DType::F64, &[1], false, false, &fill.to_le_bytes());
        std::fs::write(side.join("good.npy"), array).unwrap();
        let set = side.join("set.npz");
        npz(&set, false, &[("x", sound.clone()), ("y", sound.clone())]);
        if let Some(cut) = cut {
            std::fs::write(side.join("cut.npy"), &sound[..cut]).unwrap();
            let whole = std::fs::read(&set).unwrap();
            std::fs::write(&set, &whole[..whole.len() - sound.len() + cut]).unwrap();
        }
        side
    };
    let a = side("a", 1.0, Some(300));
    for (name, fill, cut, answer) in [
        ("same", 1.0, Some(300), Answer::Equal),
        ("shorter", 1.0, Some(200), Answer::Undecided),
        ("shorter and other", 2.0, Some(200), Answer::Different),
        ("whole", 1.0, Some(sound.len()), Answer::Undecided),
        ("whole and other", 2.0, Some(sound.len()), Answer::Different),
    ] {
        let b = side(name, fill, cut);
        for (x, y) in [(&a, &b), (&b, &a)] {
            let outcome = compared(x, y);
            assert_eq!(outcome.verdict, answer, "{name}: {outcome:?}");
            let expected: &[&str] = if name == "same" { &[] } else { &["cut.npy", "set.npz"] };
            let mut left = left_out(&outcome);
            left.sort_unstable();
            assert_eq!(left, expected, "{name}: {outcome:?}");
            assert!(outcome.unmatched.is_empty(), "{name}: {outcome:?}");
            assert!(outcome.variables.iter().any(|v| v.name == "good.npy"), "{name}");
            // A choice of a variable of such a file is reported.
            let only = vec!["good.npy".into(), "set.npz/x".into()];
            let only = CompareSettings { variables: only, ..CompareSettings::default() };
            if name == "whole" {
                assert_eq!(settled(x, y, &only).verdict, Answer::Undecided);
            }
        }
    }
    // A file that is missing is a difference, cut or not.
    let b = side("without", 1.0, None);
    let outcome = compared(&a, &b);
    assert_eq!(outcome.verdict, Answer::Different, "{outcome:?}");
    assert!(outcome.unmatched.iter().any(|u| u.variable.as_deref() == Some("cut.npy")));
}

/// Files that nobody understands, or that were cut: a checkpoint of them is compared with another one, and with their folder.
#[test]
fn undecoded_files_of_checkpoints_are_compared_by_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (files, store) = (folder.path().join("files"), folder.path().join("store"));
    std::fs::create_dir(&files).unwrap();
    let values: Vec<u8> = (0..100).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    let sound = npy(DType::F64, &[100], false, false, &values);
    std::fs::write(files.join("good.npy"), &sound).unwrap();
    let mut at = 0;
    let mut take = |name: &str, bytes: &[u8]| -> PathBuf {
        std::fs::write(files.join(name), bytes).unwrap();
        at += 1;
        let (options, settings) = (Options::directory(&store, "r"), IngestSettings::default());
        let found = treering::files_in(&files).unwrap().files.into_iter();
        let of_file = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            RankFile { rank: treering::Rank(0), path, like: name.clone(), name }
        };
        let set: Vec<RankFile> = found.map(of_file).collect();
        Ingest::open(options, settings).unwrap().take(at, &set, &|_, _| {}).unwrap();
        PathBuf::from(format!("{}#r@{at}", store.display()))
    };
    for (name, one, other) in [
        ("long.npy", typed("'<c32'", "(1,)", &[1; 32]), typed("'<c32'", "(1,)", &[2; 32])),
        ("objects.npy", typed("'|O'", "(3,)", b"pickle"), typed("'|O'", "(3,)", b"tickle")),
        ("cut.npy", sound[..300].to_vec(), sound[..301].to_vec()),
        ("cut.npz", b"PK\x03\x04 and no more".to_vec(), b"PK\x03\x04 and some more".to_vec()),
    ] {
        let before = take(name, &one);
        assert_eq!(compared(&before, &files).verdict, Answer::Equal, "{name}");
        assert_eq!(compared(&files, &before).verdict, Answer::Equal, "{name}");
        let after = take(name, &other);
        for (x, y) in [(&before, &after), (&after, &before), (&before, &files), (&files, &before)] {
            let outcome = compared(x, y);
            assert_ne!(outcome.verdict, Answer::Equal, "{name}: {outcome:?}");
            assert!(outcome.variables.iter().any(|v| v.name == "good.npy"), "{name}");
        }
        assert_eq!(compared(&after, &files).verdict, Answer::Equal, "{name}");
        std::fs::remove_file(files.join(name)).unwrap();
    }
}

//! A file of HDF5 whose chunks went through every filter that is only undone: its values are compared, and a damaged
//! chunk costs its own variable only. `make_filtered.py` wrote the file, and the chunks beside it.

use crate::parsers::drivers::FilteredChunk;
use std::path::{Path, PathBuf};
use treering::{Answer, CompareSettings, Outcome, compare, open_side};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
}

/// The stored chunks, by the names of their datasets.
fn chunks() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = std::fs::read_dir(corpus("filter"))
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let seed = std::fs::read(file.path()).unwrap();
            let stored = FilteredChunk::parse(&seed).unwrap().stored.to_vec();
            (file.file_name().into_string().unwrap(), stored)
        })
        .collect();
    all.sort();
    all
}

fn compared(a: &Path, b: &Path) -> Outcome {
    let [a, b] = [a, b].map(|path| open_side(&path.display().to_string(), None, true).unwrap());
    compare(a.as_ref(), b.as_ref(), &CompareSettings::default(), None, &|_, _| {}).unwrap()
}

#[test]
fn every_filter_is_undone() {
    let file = corpus("anatomy/hdf5-filters");
    let outcome = compared(&file, &file);
    assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    assert_eq!(outcome.variables.len(), chunks().len());
    let undecoded: Vec<_> = outcome.variables.iter().filter(|v| v.undecoded.is_some()).collect();
    assert!(undecoded.is_empty(), "{undecoded:?}");
}

/// `make_lzo.py` has the same.
fn noise(count: u64, salt: u64) -> Vec<u8> {
    let value = |at: u64| at.wrapping_mul(at).wrapping_mul(2_654_435_761).wrapping_add(at) >> 13;
    (salt..salt + count).map(|at| value(at) as u8).collect()
}

/// The values of a file that PyTables wrote.
#[test]
fn lzo_of_pytables_is_undone() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/lzo.h5");
    let far =
        [noise(20_000, 0), vec![0; 9_000], noise(20_000, 0), noise(3_000, 7), noise(3_000, 7)];
    let few: Vec<u8> = noise(6_000, 3).iter().map(|value| value % 3).collect();
    let slow: Vec<u8> = (0..3_000).flat_map(|i| f64::from(i / 7).to_le_bytes()).collect();
    let line: Vec<u8> = (0..3_000i32).flat_map(|i| (i * 3).to_le_bytes()).collect();
    let small: Vec<u8> = (0..240u16).flat_map(|i| f32::from(i * i % 97).to_le_bytes()).collect();
    let expected = [
        ("far", far.concat()),
        ("few", few),
        ("slow", slow),
        ("line", line),
        ("noise", noise(2_000, 5)),
        ("small", small),
    ];
    let side = open_side(&file.display().to_string(), None, true).unwrap();
    for (name, bytes) in expected {
        for name in [name.to_string(), format!("{name}_shuffled")] {
            let all = side.entries(None).unwrap();
            let entry = all.iter().find(|entry| entry.description.name == name).unwrap();
            let mut values = vec![0; bytes.len()];
            entry.values.as_ref().unwrap().read_at(0, &mut values).unwrap();
            assert!(values == bytes, "{name}");
        }
    }
}

#[test]
fn a_damaged_chunk_costs_its_own_variable_only() {
    let file = corpus("anatomy/hdf5-filters");
    let sound = std::fs::read(&file).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hdf5-filters");
    let mut not_decoded = Vec::new();
    for (name, stored) in chunks() {
        let mut bytes = sound.clone();
        let at = bytes.windows(stored.len()).position(|some| some == stored).unwrap();
        bytes[at + stored.len() / 2..at + stored.len()].fill(0x55);
        std::fs::write(&path, bytes).unwrap();
        for (a, b) in [(&file, &path), (&path, &file)] {
            let outcome = compared(a, b);
            assert_ne!(outcome.verdict, Answer::Equal, "{name}: {outcome:?}");
            for left in &outcome.not_compared {
                assert_eq!(left.variable.as_deref(), Some(&*name), "{left:?}");
                assert!(left.why.contains("decoded") || left.why.contains("chunk"), "{left:?}");
                not_decoded.push(name.clone());
            }
            let others = outcome.variables.iter().filter(|variable| variable.name != name);
            let others: Vec<bool> = others.map(|v| v.differences == 0 && !v.incomplete).collect();
            assert_eq!(others, vec![true; chunks().len() - 1], "{name}: {outcome:?}");
        }
    }
    not_decoded.dedup();
    // The others have no checks of their own, and become other values.
    assert!(not_decoded.len() >= 10, "{not_decoded:?}");
}

//! Every parser against the kept corpus of its fuzzer, and against bytes made from it.

#[path = "../../../../fuzz/drivers.rs"]
pub(crate) mod drivers;

use std::path::Path;
use treering::DType;

/// Feeds the corpus of `name`, and this many damaged copies of each of its files.
fn replay(name: &str, copies: u64, driver: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus of {name} is gone");
    let mut random = 0x9E3779B97F4A7C15u64;
    let mut dice = move |sides: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize % sides.max(1)
    };
    for file in files {
        let seed = std::fs::read(file).unwrap();
        driver(&seed);
        for _ in 0..copies {
            let mut bytes = seed.clone();
            for _ in 0..1 + dice(4) {
                let at = dice(bytes.len() + 1);
                match dice(4) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, dice(256) as u8),
                    _ if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][dice(5)],
                    _ => {}
                }
            }
            driver(&bytes);
        }
    }
}

#[test]
fn log_entries() {
    replay("log_entry", 3000, drivers::log_entry);
}

#[test]
fn branches() {
    replay("branch", 3000, drivers::branch);
}

#[test]
fn stages() {
    // The seed is a stage, so that damaged copies of it get past the door.
    let seed = include_bytes!("../../../../fuzz/corpus/stage/small");
    let sealed = [&seed[..], &treering::testing::digest(seed).to_bytes()].concat();
    assert_eq!(treering::testing::StageHead::parse(&sealed).unwrap().small.len(), 2);
    replay("stage", 3000, drivers::stage);
}

#[test]
fn letters() {
    // The seeds are letters, so that damaged copies of them get far.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/letter");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(treering::testing::read_letters(&std::fs::read(&path).unwrap()) > 0, "{path:?}");
    }
    replay("letter", 3000, drivers::letter);
}

#[test]
fn parity_files() {
    let seed = include_bytes!("../../../../fuzz/corpus/parity/small");
    let sealed = [&seed[..], &treering::testing::digest(seed).to_bytes()].concat();
    assert_eq!(treering::testing::ParityHead::parse(&sealed).unwrap().members.len(), 3);
    replay("parity", 3000, drivers::parity);
}

#[test]
fn bundles() {
    replay("bundle", 3000, drivers::bundle);
}

#[test]
fn footers() {
    replay("footer", 3000, drivers::footer);
}

#[test]
fn frames() {
    replay("frame", 300, drivers::frame);
}

#[test]
fn places() {
    replay("place", 3000, drivers::place);
}

#[test]
fn stores() {
    replay("store", 20, drivers::store);
}

#[test]
fn tree_heads() {
    replay("tree_head", 3000, drivers::tree_head);
}

#[test]
fn trees() {
    replay("tree", 100, drivers::tree);
}

#[test]
fn foreign_files() {
    replay("foreign", 200, drivers::foreign);
}

#[test]
fn anatomies() {
    replay("anatomy", 200, drivers::anatomy);
}

#[test]
fn skeletons() {
    replay("skeleton", 3000, drivers::skeleton);
}

#[test]
fn opened_anatomies() {
    replay("anatomy", 50, drivers::foreign);
}

#[test]
fn filters() {
    replay("filter", 3000, drivers::filter);
}

/// The numbers of a seed, as `f64`.
fn numbers(dtype: DType, swapped: bool, bytes: &[u8]) -> Vec<f64> {
    let number = |bytes: &[u8]| {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        if swapped {
            eight[..bytes.len()].reverse();
        }
        let bits = u64::from_le_bytes(eight);
        match dtype {
            DType::F32 => f32::from_bits(bits as u32).into(),
            DType::F64 => f64::from_bits(bits),
            _ => bits as f64,
        }
    };
    bytes.chunks_exact(dtype.size() as usize).map(number).collect()
}

/// The chunks with which the fuzzer of filters begins were written by HDF5 and its plugins; their numbers are known.
#[test]
fn kept_chunks_decode_to_their_numbers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/filter");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let seed = std::fs::read(&path).unwrap();
        let chunk = drivers::FilteredChunk::parse(&seed).unwrap();
        let bytes = chunk.decode().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_name().unwrap().to_string_lossy();
        let lost = match &*name {
            "zfp_rate" => 6.0,
            "zfp_precision" => 0.4,
            "zfp_accuracy" => 0.01,
            "zfp_expert" => 0.01,
            "scaled_float" => 0.05,
            _ => 0.0,
        };
        let found = numbers(chunk.dtype, chunk.swapped, &bytes);
        assert_eq!(found.len(), 240, "{name}");
        for (i, number) in found.iter().enumerate() {
            let expected = (i * i % 97) as f64;
            assert!((number - expected).abs() <= lost, "{name}: {number} for {expected} at {i}");
        }
        seen += 1;
    }
    assert!(seen >= 25, "only {seen} chunks are kept");
}

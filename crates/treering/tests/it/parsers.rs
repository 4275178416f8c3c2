//! Every parser against the kept corpus of its fuzzer, and against bytes made from it.

#[path = "../../../../fuzz/drivers.rs"]
mod drivers;

use std::path::Path;

/// Feeds the corpus of `name`, and so many damaged copies of each of its files.
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

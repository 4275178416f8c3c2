//! Frames of earlier encoders stay readable: every step has an encoded frame in `golden/codecs`, which is
//! never written again. A new step gets one by running this test with TREERING_NEW_GOLDEN set to a
//! folder.

use std::path::Path;
use treering::testing::{Chain, codec_suite};

/// Two waves that run across each other, and a few special values.
fn field() -> Vec<u8> {
    let value = |i: u32| match i % 97 {
        96 => f32::NAN,
        95 => -0.0,
        _ => (i % 32) as f32 * 0.125 + (i / 32) as f32 * 1.5 + ((i * i) % 7) as f32 * 1e-4,
    };
    (0..1025).flat_map(|i| value(i).to_le_bytes()).chain([1, 2, 3]).collect()
}

/// A table of counters: columns of zeros, columns that are zero for a while, and rows that come again.
fn table() -> Vec<u8> {
    let value = |i: u32| match (i / 24 % 50, i % 24) {
        (_, 3 | 7 | 22) | (20.., 9..) => 0,
        (row, column) => (row % 20 * row % 20 + column) * (1 + column % 5 * 300),
    };
    (0..24 * 130 + 11).flat_map(|i| value(i).to_le_bytes()).chain([1, 2, 3]).collect()
}

/// The steps of a chain as the format writes them.
const CHAINS: [(&str, &[u8]); 28] = [
    ("shuffle", &[2, 1, 4, 8, 3]),
    ("bit-shuffle", &[2, 2, 4, 8, 3]),
    ("split", &[3, 3, 4, 3, 1, 4, 8, 3]),
    ("predict-1d", &[2, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 8, 3]),
    ("predict-2d", &[3, 4, 4, 1, 32, 0, 0, 0, 0, 0, 0, 0, 1, 4, 8, 3]),
    ("predict-3d", &[2, 4, 4, 0, 8, 0, 0, 0, 32, 0, 0, 0, 6, 2, 136]),
    ("predict-wide", &[2, 4, 8, 1, 16, 0, 0, 0, 0, 0, 0, 0, 6, 3, 136]),
    ("predict-line", &[2, 4, 4, 2, 1, 0, 0, 0, 0, 0, 0, 0, 6, 2, 136]),
    ("predict-floats", &[2, 4, 4, 2, 32, 0, 0, 0, 96, 0, 0, 0, 6, 2, 136]),
    ("fpc-4", &[2, 5, 4, 8, 3]),
    ("fpc-8", &[2, 5, 8, 8, 3]),
    ("pco-f32", &[1, 6, 8, 8]),
    ("pco-u16", &[1, 6, 1, 8]),
    ("lz4", &[1, 7]),
    ("deflate", &[1, 9, 6]),
    ("repeats", &[3, 11, 4, 1, 4, 8, 3]),
    ("news", &[2, 13, 4, 2, 32, 0, 0, 0, 0, 0, 0, 0, 6, 2, 136]),
    ("news-ordered", &[3, 13, 132, 1, 8, 0, 0, 0, 32, 0, 0, 0, 1, 4, 8, 3]),
    (
        "multiples",
        &[3, 12, 4, 45, 67, 28, 235, 226, 54, 26, 63, 4, 4, 0, 32, 0, 0, 0, 0, 0, 0, 0, 6, 2, 136],
    ),
    ("no-multiples", &[2, 12, 8, 45, 67, 28, 235, 226, 54, 26, 63, 8, 3]),
    ("columns", &[1, 14, 4, 0, 32]),
    ("columns-signed", &[1, 14, 136, 1, 16]),
    ("columns-one", &[1, 14, 130, 0, 1]),
    ("table-columns", &[1, 14, 4, 0, 24]),
    ("table-rows", &[2, 15, 4, 24, 14, 132, 0, 24]),
    ("minus-before", &[3, 10, 0, 4, 1, 1, 4, 8, 3]),
    ("folded-minus-before", &[2, 10, 1, 4, 1, 6, 2, 136]),
    ("xor-before", &[2, 10, 2, 8, 0, 8, 3]),
];

/// The state that differences are taken to.
fn before() -> Vec<u8> {
    let mut before = field();
    before.iter_mut().step_by(9).for_each(|byte| *byte = byte.wrapping_mul(3));
    before
}

#[test]
fn encoded_frames_stay_readable() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/codecs");
    let before = before();
    for (name, steps) in CHAINS {
        let field = if name.starts_with("table") { table() } else { field() };
        let chain = Chain::parse(steps).unwrap();
        if let Some(folder) = std::env::var_os("TREERING_NEW_GOLDEN") {
            let encoded = chain.encode_beside(&field, &before).unwrap();
            std::fs::write(Path::new(&folder).join(name), encoded).unwrap();
        }
        let encoded = std::fs::read(golden.join(name)).unwrap();
        assert!(encoded.len() < field.len(), "{name}");
        let mut back = vec![0; field.len()];
        chain.decode_beside(&encoded, &before, &mut back).unwrap();
        assert!(back == field, "{name}");
    }
}

#[test]
fn chains_hold_to_the_law_of_an_encoder() {
    // A difference is encoded beside the bytes before, not alone.
    for (name, steps) in CHAINS.iter().filter(|(name, _)| !name.ends_with("before")) {
        let chain = Chain::parse(steps).unwrap_or_else(|e| panic!("{name}: {e}"));
        codec_suite(&chain);
    }
}

//! The law of an encoder, for every implementation.

use crate::codec::Codec;

/// Holds an encoder to its law, and panics where it does not: everything comes back, and bytes that it
/// did not write are an error or wrong values, never a panic.
pub fn codec_suite(codec: &dyn Codec) {
    for raw in samples() {
        let encoded = codec.encode(&raw).expect("every input can be encoded");
        let mut back = vec![0xA5; raw.len()];
        codec.decode(&encoded, &mut back).expect("encoded bytes decode");
        assert!(back == raw, "{} bytes come back different", raw.len());
        // Cut, changed, and asked for other lengths.
        for cut in [0, 1, encoded.len() / 2, encoded.len().saturating_sub(1)] {
            let _ = codec.decode(&encoded[..cut.min(encoded.len())], &mut back);
        }
        for at in (0..encoded.len()).step_by(1 + encoded.len() / 64) {
            let mut bad = encoded.clone();
            bad[at] ^= 0x5A;
            let _ = codec.decode(&bad, &mut back);
        }
        for len in [0, 1, raw.len() / 2, raw.len() + 1, raw.len() + 4096] {
            let _ = codec.decode(&encoded, &mut vec![0; len]);
        }
        let _ = codec.decode(&raw, &mut back);
    }
}

/// Inputs of all sizes: nothing, less than a value, constant, smooth, noise, and odd lengths.
fn samples() -> Vec<Vec<u8>> {
    let mut state = 88_172_645_463_325_252u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut samples = vec![Vec::new(), vec![7], vec![1, 2, 3], vec![0; 4096], vec![0xFF; 5001]];
    let smooth = (0..3000).flat_map(|i| (f64::from(i) / 100.0).sin().to_le_bytes());
    samples.push(smooth.collect());
    let counters = (0..5000u32).flat_map(|i| (i / 7).to_le_bytes());
    samples.push(counters.chain([1, 2]).collect());
    for len in [8, 63, 64, 1000, 65_536, 100_001] {
        samples.push((0..len).map(|_| random() as u8).collect());
    }
    samples
}

//! Checksums of ranges and of their parts: xxh3 with 64 bits, computed while bytes are copied.
//!
//! Law: the checksum of a copy equals the checksum of the whole, whatever the steps in which it was copied.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Bytes that are hashed and then copied while they are in the cache.
const STEP: usize = 32 << 10;

/// The checksum of bytes.
#[inline]
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Appends bytes to a buffer and returns their checksum.
pub(crate) fn append_summed(bytes: &[u8], to: &mut Vec<u8>) -> u64 {
    to.reserve(bytes.len());
    summed(bytes, |_, step| to.extend_from_slice(step))
}

/// Copies bytes to a slice of the same length and returns their checksum.
pub(crate) fn copy_summed(bytes: &[u8], to: &mut [u8]) -> u64 {
    summed(bytes, |at, step| to[at..at + step.len()].copy_from_slice(step))
}

fn summed(bytes: &[u8], mut copy: impl FnMut(usize, &[u8])) -> u64 {
    if bytes.len() <= STEP {
        copy(0, bytes);
        return xxh3_64(bytes);
    }
    let mut state = Xxh3::new();
    for (at, step) in bytes.chunks(STEP).enumerate() {
        state.update(step);
        copy(at * STEP, step);
    }
    state.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_checksum_of_the_whole() {
        for len in [0, 1, 100, STEP - 1, STEP, STEP + 1, 5 * STEP + 17] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
            let (mut slice, mut buffer) = (vec![0; len], vec![9]);
            assert_eq!(copy_summed(&bytes, &mut slice), checksum(&bytes));
            assert_eq!(append_summed(&bytes, &mut buffer), checksum(&bytes));
            assert!(slice == bytes && buffer[1..] == bytes);
        }
    }
}

//! Checksums of ranges, of their parts and of lists: xxh3 with 64 bits, computed while bytes are copied.
//!
//! Law: the checksum of a copy equals the checksum of the whole, whatever the steps in which it was copied.

pub(crate) use crate::merkle::checksum;

use crate::memory::copy_streaming;
use bytes::BytesMut;
use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// Bytes that are hashed and then copied while they are in the cache.
const STEP: usize = 32 << 10;

/// Bytes that are hashed and then copied past the cache, while the next ones come.
const STREAMED: usize = 8 << 10;

/// Bytes that are copied at a time: so few that no string instructions are used, which are slow for some alignments.
const COPIED: usize = 1 << 10;

/// Appends bytes to a buffer and returns their checksum.
pub(crate) fn append_summed(bytes: &[u8], to: &mut BytesMut) -> u64 {
    to.reserve(bytes.len());
    summed(bytes, |_, some| to.extend_from_slice(some))
}

/// Appends bytes to a buffer that nobody reads soon, past the cache.
pub(crate) fn append_streaming(bytes: &[u8], to: &mut BytesMut) {
    to.reserve(bytes.len());
    let len = to.len();
    // SAFETY: there is room for the bytes, which are all written here before anybody reads them.
    unsafe {
        let room = to.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        copy_streaming(std::slice::from_raw_parts_mut(room, bytes.len()), bytes);
        to.set_len(len + bytes.len());
    }
}

/// Appends bytes to a buffer that nobody reads soon, past the cache, and returns their checksum.
pub(crate) fn append_streaming_summed(bytes: &[u8], to: &mut BytesMut) -> u64 {
    to.reserve(bytes.len());
    let (mut state, mut rest) = (XxHash3_64::new(), bytes);
    while !rest.is_empty() {
        let (step, behind) = rest.split_at(rest.len().min(STREAMED));
        state.write(step);
        prefetch(&behind[..behind.len().min(STREAMED)]);
        append_streaming(step, to);
        rest = behind;
    }
    state.finish()
}

/// Asks for bytes that are needed soon.
fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        // SAFETY: a prefetch changes nothing, and these bytes exist.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// Copies bytes to a slice of the same length and returns their checksum.
pub(crate) fn copy_summed(bytes: &[u8], to: &mut [u8]) -> u64 {
    summed(bytes, |at, some| to[at..at + some.len()].copy_from_slice(some))
}

fn summed(bytes: &[u8], mut copy: impl FnMut(usize, &[u8])) -> u64 {
    let mut copy_all = |from: usize, step: &[u8]| {
        for (at, some) in step.chunks(COPIED).enumerate() {
            copy(from + at * COPIED, some);
        }
    };
    if bytes.len() <= STEP {
        copy_all(0, bytes);
        return checksum(bytes);
    }
    let mut state = XxHash3_64::new();
    for (at, step) in bytes.chunks(STEP).enumerate() {
        state.write(step);
        copy_all(at * STEP, step);
    }
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_checksum_of_the_whole() {
        for len in [0, 1, 100, STEP - 1, STEP, STEP + 1, 5 * STEP + 17] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
            let (mut slice, mut buffer) = (vec![0; len], BytesMut::from(&[9][..]));
            assert_eq!(copy_summed(&bytes, &mut slice), checksum(&bytes));
            assert_eq!(append_summed(&bytes, &mut buffer), checksum(&bytes));
            assert!(slice == bytes && buffer[1..] == bytes);
            buffer.truncate(1);
            assert_eq!(append_streaming_summed(&bytes, &mut buffer), checksum(&bytes));
            assert!(buffer[1..] == bytes);
        }
    }
}

//! The hash functions: prints and digests of chunks, and the checksums of the format.
//!
//! All of them are xxh3. Two libraries compute it: one finds out at run time what vector instructions
//! the processor has and is twice as fast on long inputs, the other is faster on short ones.

use twox_hash::{XxHash3_64, XxHash3_128};
use xxhash_rust::const_xxh3::{const_custom_default_secret, xxh3_64_with_seed};
use xxhash_rust::xxh3;

/// Up to here xxh3 has no use for vectors.
const SHORT: usize = 240;

/// The 64-bit hash by which a chunk is compared with itself one checkpoint earlier.
pub type Print = u64;

/// A 128-bit hash: what identifies a chunk among all others, and the node of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(pub [u64; 2]);

// SAFETY: two words of zeros are a digest.
unsafe impl bytemuck::Zeroable for Digest {}

impl Digest {
    fn from_u128(value: u128) -> Self {
        Digest([value as u64, (value >> 64) as u64])
    }

    /// The sixteen bytes, low word first.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_le_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_le_bytes());
        bytes
    }
}

impl std::hash::Hash for Digest {
    /// A digest is its own hash: one word of it is enough.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.0[0]);
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[1], self.0[0])
    }
}

/// Hashes chunks with the seed of a run.
#[derive(Clone)]
pub struct Hasher {
    seed: u64,
    secret: Box<[u8; 192]>,
}

impl Hasher {
    /// A hasher for the prints and digests of one run.
    pub fn new(seed: u64) -> Self {
        Hasher { seed, secret: Box::new(const_custom_default_secret(seed)) }
    }

    /// The seed it was made with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The print of a chunk.
    #[inline]
    pub fn print(&self, chunk: &[u8]) -> Print {
        let secret = &self.secret[..];
        match chunk.len() <= SHORT {
            true => xxh3::xxh3_64_with_secret(chunk, secret),
            false => XxHash3_64::oneshot_with_secret(secret, chunk)
                .expect("a secret of 192 bytes is long enough"),
        }
    }

    /// The digest of a chunk.
    #[inline]
    pub fn digest(&self, chunk: &[u8]) -> Digest {
        let secret = &self.secret[..];
        Digest::from_u128(match chunk.len() <= SHORT {
            true => xxh3::xxh3_128_with_secret(chunk, secret),
            false => XxHash3_128::oneshot_with_secret(secret, chunk)
                .expect("a secret of 192 bytes is long enough"),
        })
    }
}

/// The checksum of a frame: xxh3-64 without a seed.
pub fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The checksum of whole files and footers, and of tree nodes: xxh3-128 without a seed.
pub fn digest(bytes: &[u8]) -> Digest {
    Digest::from_u128(match bytes.len() <= SHORT {
        true => xxh3::xxh3_128(bytes),
        false => XxHash3_128::oneshot(bytes),
    })
}

/// The hash of a name, for the compiler to compute.
pub(crate) const fn hash_of_name(name: &str, seed: u64) -> u64 {
    xxh3_64_with_seed(name.as_bytes(), seed)
}

/// The [`digest`] of bytes that come in parts.
pub struct Digester(XxHash3_128);

impl Digester {
    /// No bytes yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Digester(XxHash3_128::new())
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The digest of all there were.
    pub fn finish(&self) -> Digest {
        Digest::from_u128(self.0.finish_128())
    }
}

/// Asks for the cache line at `address`, which need not be readable.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_libraries_compute_the_same() {
        let data: Vec<u8> = (0..5000u32).map(|i| ((i * i) >> 3) as u8).collect();
        let hasher = Hasher::new(77);
        let secret = &hasher.secret[..];
        for len in (0..600).chain([1024, 4096, 5000]) {
            let data = &data[..len];
            assert_eq!(hasher.print(data), xxh3::xxh3_64_with_secret(data, secret));
            let seeded = Digest::from_u128(xxh3::xxh3_128_with_secret(data, secret));
            assert_eq!(hasher.digest(data), seeded);
            assert_eq!(checksum(data), xxh3::xxh3_64(data));
            assert_eq!(digest(data), Digest::from_u128(xxh3::xxh3_128(data)));
            let mut parts = Digester::new();
            data.chunks(97).for_each(|part| parts.update(part));
            assert_eq!(parts.finish(), digest(data));
        }
    }
}

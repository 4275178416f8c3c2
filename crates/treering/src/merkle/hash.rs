//! The hash functions: prints and digests of chunks, and the checksums of the format.

use xxhash_rust::const_xxh3::const_custom_default_secret;
use xxhash_rust::xxh3;

/// The 64-bit hash by which a chunk is compared with itself one checkpoint earlier.
pub type Print = u64;

/// A 128-bit hash: what identifies a chunk among all others, and the node of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(pub [u64; 2]);

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
        xxh3::xxh3_64_with_secret(chunk, &self.secret[..])
    }

    /// The digest of a chunk.
    #[inline]
    pub fn digest(&self, chunk: &[u8]) -> Digest {
        Digest::from_u128(xxh3::xxh3_128_with_secret(chunk, &self.secret[..]))
    }
}

/// The checksum of a frame: xxh3-64 without a seed.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3::xxh3_64(bytes)
}

/// The checksum of whole files and footers, and of tree nodes: xxh3-128 without a seed.
pub fn digest(bytes: &[u8]) -> Digest {
    Digest::from_u128(xxh3::xxh3_128(bytes))
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

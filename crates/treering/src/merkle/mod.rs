//! Exact hashes of chunks and the Merkle tree over them.
//!
//! A variable is cut into chunks of one fixed size; only the last may be shorter. Each chunk has a
//! 64-bit *print*, seeded per run: it tells whether the chunk changed since the checkpoint before.
//! A changed chunk keeps its print with odds of 2^-64. Where two chunks of different places are
//! taken for equal, and so a whole record of them is searched, 128-bit digests are used instead.
//!
//! The tree stands on the prints. Node j of level L covers the chunks [j·2^L, (j+1)·2^L); a level
//! has as many nodes as it needs, so every number of chunks works the same way. The lowest level
//! that is stored is level 3: a *bough* is the digest of the prints of eight chunks. That keeps the
//! tree at four bytes per chunk, and a changed chunk's bough can be made while its neighbours'
//! prints are at hand. The law: the root is a function of the bytes, the chunk size and the seed
//! alone, however the tree came about (built at once, or updated change by change).

pub mod bounded;
mod hash;
mod tree;

pub use hash::{Digest, Digester, Hasher, Print, checksum, digest};
pub(crate) use hash::{hash_of_name, prefetch};
pub(crate) use tree::bough;
pub use tree::{BOUGH, Tree, boughs, boughs_of, prints, root_of};

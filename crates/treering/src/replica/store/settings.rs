//! Settings of a replica store, checked once at the door.

use super::checksum::checksum;
use crate::error::{Error, Result};
use crate::replica::probing::Probing;

/// Settings of a replica store, the same on all ranks.
///
/// ```
/// use std::sync::Arc;
/// use treering::{Alone, Options, ReplicaSettings};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path();
/// let settings = ReplicaSettings { budget: 8 << 30, ..ReplicaSettings::default() };
/// let options = Options::directory(store, "rod")
///     .ranks(Arc::new(Alone::new())) // or the communicator of an MPI
///     .replicas(1)
///     .replica_settings(settings);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSettings {
    /// Bytes of a block. Default: 64.
    pub block_size: u64,
    /// Blocks that stay together. Default: 4096, 256 KiB with the default block size.
    pub range_blocks: u64,
    /// Seed of the permutation. `None`: consecutive ranges stay together. Default: `Some(0)`.
    pub seed: Option<u64>,
    /// Failure domain of every rank. Empty: each node is a domain. Default: empty.
    pub domains: Vec<String>,
    /// Largest number of bytes that the store may use on a rank. Default: no limit.
    pub budget: u64,
    /// Bytes that a rank sends in one piece of a submit. Default: 16 MiB.
    pub piece: u64,
    /// Keep the first copy of a range on the rank that submits it; ranks then submit in the order of their numbers.
    /// Default: off. **Caution**: losing data becomes more likely, see `FirstCopy::Submitter`.
    pub keep_own: bool,
    /// Submits are repeated: the first one prepares the memory of the second, too, so that it takes longer and none of
    /// the others waits for new memory. Turn it off for data that is submitted once. Default: on.
    pub repeated: bool,
    /// The distribution of copies that are made again after deaths. Default: double hashing.
    pub probing: Probing,
}

impl Default for ReplicaSettings {
    fn default() -> Self {
        ReplicaSettings {
            block_size: 64,
            range_blocks: 4096,
            seed: Some(0),
            domains: Vec::new(),
            budget: u64::MAX,
            piece: 16 << 20,
            keep_own: false,
            repeated: true,
            probing: Probing::DoubleHashing,
        }
    }
}

impl ReplicaSettings {
    /// Refuses settings that are invalid for this many ranks and copies.
    pub(crate) fn check(&self, ranks: u32, copies: u32) -> Result<()> {
        let ReplicaSettings { block_size, range_blocks, piece, domains, .. } = self;
        let range = block_size.checked_mul(*range_blocks).filter(|bytes| *bytes <= 1 << 40);
        if copies == 0 || *block_size == 0 || *range_blocks == 0 || *piece == 0 || range.is_none() {
            return Err(Error::usage(format!(
                "invalid replicas: {copies} copies, blocks of {block_size} bytes, ranges of {range_blocks} blocks, \
                 pieces of {piece} bytes; expected 1 or more of each, and at most 1 TiB in a range"
            )));
        }
        if !domains.is_empty() && domains.len() != ranks as usize {
            return Err(Error::usage(format!(
                "{} failure domains are given for {ranks} ranks",
                domains.len()
            ))
            .hint("give one domain per rank, or none"));
        }
        Ok(())
    }

    /// A digest of the settings, to find ranks that differ.
    pub(crate) fn digest(&self, copies: u32) -> u64 {
        checksum(format!("{self:?} {copies}").as_bytes())
    }
}

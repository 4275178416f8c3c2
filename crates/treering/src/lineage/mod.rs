//! The data that a checkpoint adds to its lineage (after "Scalable Incremental Checkpointing using
//! GPU-Accelerated De-Duplication", ICPP 2023).
//!
//! A chunk of a variable is *same* (its print did not change since the checkpoint before), a *duplicate*
//! (its bytes are stored already, anywhere in this epoch) or *new*. The program waits only for
//! [`scan`]: hash, compare with the old print, copy what changed. From the copy, behind the
//! program, [`Record`] decides between duplicate and new, in ascending order of position, so that the
//! first occurrence is the lowest position and the result depends on nothing but the data.
//!
//! Neighbouring chunks are joined into regions by [`Regions`]. The paper joins up a Merkle tree:
//! two siblings that are wholly new become one new region and enter the record with their joint
//! hash; two duplicate siblings become one if their joint hash is in the record. Joint hashes in the
//! record belong to wholly new regions only, and the chunks of such a region are each the first
//! occurrence of their bytes: so the siblings' own places are neighbours exactly when their joint
//! hash would be found. We therefore join wherever places are neighbours. That finds everything the
//! tree finds, on any alignment, across the borders of sub-trees, for half the record; the tests
//! hold it against the paper's algorithm. A run of one repeating piece (zeros above all) is one
//! region with a period.
//!
//! A reference names a physical place (pack, offset), never another reference, and only new bytes
//! enter the record: there are no chains and no cycles. References stay within an *epoch*, which
//! begins with a checkpoint that stores everything.

mod habit;
mod map;
mod record;
mod region;
mod scan;

pub(crate) use habit::Habit;
pub(crate) use map::{Layer, PlacedRun, covers, resolve, runs, runs_and_repeats, subtract};
pub use record::Record;
pub(crate) use region::MAX_PACKS;
pub use region::{Location, Region, Regions};
pub use scan::{Changed, scan, scan_into};

use crate::error::{Error, Result};

/// Method by which a checkpoint is reduced to new data: the four of the paper.
///
/// ```
/// use treering::{Method, Options};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path();
/// let options = Options::directory(store, "rod").method(Method::Basic); // duplicates elsewhere are not looked for
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Everything, every time.
    Full,
    /// The chunks that changed at their place, and a bitmap of them.
    Basic,
    /// New chunks and references to duplicates, one entry for each chunk.
    List,
    /// Regions of new chunks and of duplicates, neighbours joined; the default.
    Tree,
}

impl Method {
    /// All four, in the order of the paper.
    pub const ALL: [Method; 4] = [Method::Full, Method::Basic, Method::List, Method::Tree];

    /// The paper's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Full => "Full",
            Method::Basic => "Basic",
            Method::List => "List",
            Method::Tree => "Tree",
        }
    }

    pub(crate) fn finds_duplicates(self) -> bool {
        matches!(self, Method::List | Method::Tree)
    }
}

/// The size of the chunks of a lineage: a power of two from 32 B to 64 KiB.
///
/// ```
/// use treering::{ChunkSize, Options};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path();
/// let options = Options::directory(store, "rod").chunk(ChunkSize::new(4096)?);
/// assert!(ChunkSize::new(1000).is_err()); // not a power of two
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSize(u32);

impl ChunkSize {
    /// A chunk size in bytes. Anything but a power of two from 32 to 65,536 is an error.
    pub fn new(bytes: u64) -> Result<Self> {
        match u32::try_from(bytes) {
            Ok(b) if b.is_power_of_two() && (32..=65536).contains(&b) => Ok(ChunkSize(b)),
            _ => Err(Error::usage(format!("a chunk of {bytes} bytes is out of range"))
                .hint("choose a power of two from 32 to 65536")),
        }
    }

    /// The size in bytes.
    pub fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Number of chunks that cover `bytes` bytes.
    pub fn count(self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.0))
    }
}

impl Default for ChunkSize {
    fn default() -> Self {
        ChunkSize(512)
    }
}

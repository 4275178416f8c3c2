//! From changed chunks to a pack: which of them are new, where they go, and how they are encoded.
//!
//! Everything here is pure: bytes come in as strips of changed chunks, in ascending order, and go
//! out through a function as encoded frames. A pack holds the new bytes of all its variables one
//! after another, cut into frames that are encoded and checked one by one. A frame holds bytes of one
//! kind (of variables that are like each other), so that it is encoded as what it is; little of
//! several kinds shares a frame. Where the state before is at hand and it pays, a frame holds the
//! difference to it instead. What lasts from one checkpoint to the next (the record, the trees,
//! what was learned) is in [`Keeper`]; what belongs to one pack is in [`Packer`].

mod keeper;
mod packer;

pub(crate) use keeper::Keeper;
pub(crate) use packer::{Packer, Plan};

use crate::codec::Nature;
use crate::format::Run;
use crate::lineage::Changed;
use std::ops::Range;

/// How many bytes a frame holds. A frame is read and checked as a whole, so a small sub-range costs
/// this much; smaller frames compress worse.
pub(crate) const FRAME: usize = 256 << 10;

/// Variables below this size share frames, whatever they are.
const SMALL: u64 = 16 << 10;
/// Less than this of one kind may share a frame with other kinds.
const LITTLE: usize = FRAME / 4;

/// Changed chunks of a strip of one variable, copied from the program.
pub(crate) struct Strip {
    /// The variable's position in the checkpoint.
    pub(crate) variable: usize,
    /// The strip's first chunk; a multiple of a bough.
    pub(crate) first: u64,
    /// What changed. Its boughs are missing if the strip was copied without being hashed.
    pub(crate) changed: Changed,
    /// Whether prints and boughs were made while copying.
    pub(crate) hashed: bool,
    /// Where its bytes begin in the batch.
    pub(crate) offset: usize,
}

/// Rank and name of a variable.
pub(crate) type Key = (u32, String);

/// A variable of the checkpoint that is being packed.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    pub(crate) rank: u32,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) nature: Nature,
}

/// The state before, as the packs of the epoch hold it.
pub(crate) trait Before: Sync {
    /// Fills `out` with ranges of a variable's bytes, one after another, and says where they lie;
    /// nothing if they cannot serve as what new ones are differences to.
    fn bytes(&self, key: &Key, ranges: &[Range<u64>], out: &mut [u8]) -> Option<Vec<Run>>;
}

impl Packed {
    fn key(&self) -> Key {
        (self.rank, self.name.clone())
    }
}

//! From changed chunks to a pack: which of them are new, where they go, and how they are encoded.
//!
//! Everything here is pure: bytes come in as strips of changed chunks, in ascending order, and go
//! out through a function as encoded frames. A pack holds the new bytes of all its variables one
//! after another, cut into frames that are encoded and checked one by one. A frame holds bytes of
//! one kind (of variables that are like each other), so that it is encoded as what it is; little of
//! several kinds shares a frame. Leaving out the chunks that are stored already takes the others
//! out of their rows and planes; where values are better predicted from these, or known by their rows, a strip
//! stays whole, or what changed of it.
//! Where the state before is at hand and it pays, a frame holds the difference to it instead. What
//! lasts from one checkpoint to the next (the record, the trees, what was learned) is in
//! [`Keeper`]; what belongs to one pack is in [`Packer`].

mod cut;
mod join;
mod keeper;
mod learnt;
mod merge;
mod packer;

pub(crate) use join::{JoinedPack, PartMaker, PartStarts, moved_to};
pub(crate) use keeper::Keeper;
pub(crate) use learnt::{Learnt, is_over as remembers_no_longer};
pub(crate) use merge::{MergedVariable, stays_with_rank};
pub(crate) use packer::{PackPlan, Packer, firsts};

use crate::array::{Rank, VariableKey};
use crate::codec::Nature;
use crate::format::PackExtent;
use crate::lineage::Changed;
use std::ops::Range;

/// Size of a frame in bytes. A frame is read and checked as a whole, so a small sub-range costs this much; smaller
/// frames compress worse.
pub(crate) const FRAME: usize = 256 << 10;

/// Variables below this size share frames, whatever they are.
const SMALL: u64 = 16 << 10;
/// Less than this of one kind may share a frame with other kinds.
const LITTLE: usize = FRAME / 4;

/// A strip of one variable, copied from the program: its changed chunks, or all of it.
pub(crate) struct Strip {
    /// The variable's position in the checkpoint.
    pub(crate) variable: usize,
    /// The strip's first chunk; a multiple of a bough.
    pub(crate) first: u64,
    /// The changes. Their boughs are missing if the strip was copied without being hashed.
    pub(crate) changed: Changed,
    /// Whether prints and boughs were made while copying.
    pub(crate) hashed: bool,
    /// Offset of its bytes in the batch.
    pub(crate) offset: usize,
    /// Size of the whole strip in bytes, if all of it is in the batch.
    pub(crate) whole: Option<usize>,
}

/// Some chunks of a strip: the first, how many, and where their bytes are in the batch.
struct ChunkSpan {
    first: u64,
    count: u64,
    bytes: Range<usize>,
}

impl Strip {
    /// The bytes that are in the batch.
    fn bytes<'b>(&self, batch: &'b [u8]) -> &'b [u8] {
        &batch[self.offset..][..self.whole.unwrap_or(self.changed.bytes)]
    }

    /// The changed chunks, one by one or, where nothing is looked up, run by run.
    fn pieces(&self, chunk: usize, one_by_one: bool) -> impl Iterator<Item = ChunkSpan> {
        let end = self.offset + self.whole.unwrap_or(self.changed.bytes);
        let mut next = self.offset;
        let runs = self.changed.runs.iter().flat_map(move |&(start, count)| {
            let step = if one_by_one { 1 } else { count };
            (start..start + count).step_by(step as usize).map(move |at| (at, step))
        });
        runs.map(move |(at, count)| {
            let from = match self.whole {
                Some(_) => self.offset + at as usize * chunk,
                None => next,
            };
            next = end.min(from + count as usize * chunk);
            ChunkSpan { first: self.first + u64::from(at), count: count.into(), bytes: from..next }
        })
    }
}

/// A variable of the checkpoint that is being packed.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    pub(crate) rank: Rank,
    pub(crate) name: String,
    /// Properties that neighbours have whose frames it may share, if they are of the same nature.
    pub(crate) like: String,
    pub(crate) bytes: u64,
    pub(crate) nature: Nature,
    /// Whether it is known that values repeat far apart.
    pub(crate) far: bool,
}

/// The state before, as the packs of the epoch hold it.
pub(crate) trait Before: Sync {
    /// Fills `out` with ranges of a variable's bytes, one after another, and says where they lie;
    /// nothing if they cannot serve as what new ones are differences to.
    fn bytes(
        &self,
        key: &VariableKey,
        ranges: &[Range<u64>],
        out: &mut [u8],
    ) -> Option<Vec<PackExtent>>;
}

impl Packed {
    pub(crate) fn key(&self) -> VariableKey {
        VariableKey::new(self.rank, &self.name)
    }
}

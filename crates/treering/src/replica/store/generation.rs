//! A generation: one submitted set of blocks, the distribution of its copies, and the copies of this rank.
//!
//! A generation carries everything that says where its copies are: its members by the numbers they had when the store
//! was made, their nodes and domains, seed, number of blocks and of copies, and the deaths since. Ranges are shared:
//! a generation that changes a part of the blocks refers to the same memory for the rest.
//!
//! Law: bytes are handed out only with a checksum that was computed when they arrived, so that damage since is found.

use super::checksum::checksum;
use super::named::Directory;
use super::parcel::RangeBytes;
use super::spares::Spares;
use super::variables::Streams;
use crate::array::Rank;
use crate::comm::MessageRoom;
use crate::error::{Error, Result};
use crate::replica::after_deaths::AfterDeaths;
use crate::replica::placement::{RangeId, RangePart};
use crate::replica::topology::OriginalRank;
use bytes::Bytes;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The number of a generation, from 1 on: the same on all ranks. Returned by
/// [`ReplicaStore::submit`](crate::ReplicaStore::submit), which has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GenerationNumber(pub u64);

/// The rank that a process had when the store was made. It is never used for another process. The example of
/// [`ReplicaStore::go_on_with`](crate::ReplicaStore::go_on_with) shows its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartRank(pub u32);

impl fmt::Display for StartRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The members of the communicator, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Roster {
    pub(crate) ranks: Vec<StartRank>,
}

impl Roster {
    /// The present rank of a process; shrinking keeps the order.
    pub(crate) fn rank_of(&self, start: StartRank) -> Option<Rank> {
        self.ranks.binary_search(&start).ok().map(|at| Rank(at as u32))
    }
}

/// A copy of a range, or a part of one that is being sent.
pub(crate) struct RangeCopy {
    room: MessageRoom,
    checksum: u64,
}

impl RangeCopy {
    pub(crate) fn new(room: MessageRoom, checksum: u64) -> Arc<Self> {
        Arc::new(RangeCopy { room, checksum })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.room.bytes
    }

    pub(crate) fn checksum(&self) -> u64 {
        self.checksum
    }

    pub(crate) fn is_intact(&self) -> bool {
        checksum(self.bytes()) == self.checksum
    }

    /// Shares the memory, for a message.
    pub(crate) fn share(self: &Arc<Self>) -> Bytes {
        Bytes::from_owner(SharedCopy(self.clone()))
    }

    /// The buffer.
    pub(crate) fn into_room(self) -> MessageRoom {
        self.room
    }

    #[cfg(test)]
    pub(crate) fn damaged(&self, spares: &Spares) -> Arc<Self> {
        let mut room = spares.fresh(self.bytes().len());
        room.bytes.extend_from_slice(self.bytes());
        let middle = room.bytes.len() / 2;
        room.bytes[middle] ^= 0x10;
        RangeCopy::new(room, self.checksum)
    }
}

struct SharedCopy(Arc<RangeCopy>);

impl AsRef<[u8]> for SharedCopy {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// The copies of a rank, by range.
pub(crate) type HeldRanges = HashMap<RangeId, Arc<RangeCopy>>;

/// A generation as one rank has it.
#[derive(Clone)]
pub(crate) struct Generation {
    pub(crate) number: GenerationNumber,
    pub(crate) tag: u64,
    /// Members by their rank in the placement.
    pub(crate) members: Arc<[StartRank]>,
    pub(crate) places: Arc<AfterDeaths>,
    /// Number of times that lost copies have been made again, and the deaths since the last time.
    pub(crate) remakes: u64,
    pub(crate) deaths: u32,
    pub(crate) block_size: u64,
    pub(crate) held: HeldRanges,
    pub(crate) directory: Option<Arc<Directory>>,
    /// Where the variables of ranks are, if these were submitted.
    pub(crate) streams: Option<Arc<Streams>>,
}

/// A generation as its user sees it. Returned by [`ReplicaStore::newest`](crate::ReplicaStore::newest); the example of
/// [`ReplicaStore::submit`](crate::ReplicaStore::submit) shows its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationInfo {
    /// Its number.
    pub number: GenerationNumber,
    /// The number that was given to it when it was submitted.
    pub tag: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The number of copies of each range at first.
    pub copies: u32,
    /// The ranks that submitted it, by the numbers that they had when the store was made.
    pub members: Vec<StartRank>,
    /// The members that have died since the copies were last complete.
    pub deaths: u32,
}

impl Generation {
    pub(crate) fn info(&self) -> GenerationInfo {
        GenerationInfo {
            number: self.number,
            tag: self.tag,
            blocks: self.blocks(),
            copies: self.places.placement().copies(),
            members: self.members.to_vec(),
            deaths: self.deaths,
        }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.places.placement().layout().blocks
    }

    /// The bytes of a range that is not the last one.
    pub(crate) fn whole_range(&self) -> u64 {
        self.places.placement().layout().range_blocks * self.block_size
    }

    /// The bytes of a range.
    pub(crate) fn range_len(&self, range: RangeId) -> u64 {
        let blocks = self.places.placement().blocks_of(range);
        (blocks.end - blocks.start) * self.block_size
    }

    /// The blocks that bytes of a range belong to.
    pub(crate) fn blocks_of(&self, part: &RangeBytes) -> Range<u64> {
        let first = self.places.placement().blocks_of(part.range).start;
        first + part.at / self.block_size..first + part.end().div_ceil(self.block_size)
    }

    /// The bytes of a range that blocks are.
    pub(crate) fn bytes_of(&self, part: &RangePart) -> RangeBytes {
        let first = self.places.placement().blocks_of(part.range).start;
        let (at, len) = (part.blocks.start - first, part.blocks.end - part.blocks.start);
        RangeBytes { range: part.range, at: at * self.block_size, len: len * self.block_size }
    }

    pub(crate) fn original(&self, start: StartRank) -> Option<OriginalRank> {
        self.members.binary_search(&start).ok().map(|at| OriginalRank(at as u32))
    }

    /// The living holders of a range by their present ranks.
    pub(crate) fn holders(&self, range: RangeId, roster: &Roster) -> Vec<Rank> {
        let living = self.places.copies(range).living;
        living.into_iter().filter_map(|rank| self.present(rank, roster)).collect()
    }

    pub(crate) fn present(&self, rank: OriginalRank, roster: &Roster) -> Option<Rank> {
        self.members.get(rank.0 as usize).and_then(|start| roster.rank_of(*start))
    }

    /// Records the deaths of members that are not on the roster.
    pub(crate) fn bury(&mut self, roster: &Roster) -> Result<()> {
        let gone = |rank: &OriginalRank| {
            self.places.is_alive(*rank) && self.present(*rank, roster).is_none()
        };
        let dead: Vec<OriginalRank> =
            (0..self.members.len() as u32).map(OriginalRank).filter(gone).collect();
        if !dead.is_empty() {
            self.deaths += dead.len() as u32;
            Arc::make_mut(&mut self.places).die(&dead)?;
        }
        Ok(())
    }

    /// Takes in copies that were made again: from now on they count.
    pub(crate) fn remade(&mut self, copies: HeldRanges) {
        self.held.extend(copies);
        Arc::make_mut(&mut self.places).remade();
        self.remakes += 1;
        self.deaths = 0;
    }

    /// Keeps buffers that nobody else refers to.
    pub(crate) fn free(self, spares: &mut Spares) {
        for copy in self.held.into_values() {
            if let Ok(copy) = Arc::try_unwrap(copy) {
                spares.give(copy.into_room());
            }
        }
    }

    /// The blocks of ranges and parts, merged and in order.
    pub(crate) fn block_ranges(&self, parts: impl Iterator<Item = RangeBytes>) -> Vec<Range<u64>> {
        merged(parts.map(|part| self.blocks_of(&part)).collect())
    }
}

/// Ranges in order, those that touch joined.
pub(crate) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// Ranges of blocks as text: "3..5, 9..10", at most a few.
pub(crate) fn listed(ranges: &[Range<u64>]) -> String {
    let some: Vec<String> =
        ranges.iter().take(8).map(|range| format!("{}..{}", range.start, range.end)).collect();
    let more =
        if ranges.len() > 8 { format!(" and {} more", ranges.len() - 8) } else { String::new() };
    some.join(", ") + &more
}

/// Finds blocks that are submitted twice or not at all. The shares of the ranks are (first block, blocks).
pub(crate) fn check_shares(shares: &[(u64, u64)], whole: bool) -> Result<u64> {
    let mut sorted: Vec<(usize, u64, u64)> =
        shares.iter().enumerate().map(|(rank, (first, count))| (rank, *first, *count)).collect();
    sorted.retain(|(_, _, count)| *count > 0);
    sorted.sort_unstable_by_key(|(_, first, _)| *first);
    let (mut end, mut last) = (0u64, 0);
    for (rank, first, count) in sorted {
        if first < end {
            return Err(Error::usage(format!(
                "blocks {first}..{} are submitted by rank {last} and by rank {rank}",
                end.min(first.saturating_add(count))
            )));
        }
        if whole && first > end {
            return Err(Error::usage(format!("blocks {end}..{first} are submitted by no rank"))
                .hint("all blocks from 0 on must be submitted; use submit_changed for a part"));
        }
        end = first.checked_add(count).ok_or_else(|| Error::usage("block ids exceed 2^64"))?;
        last = rank;
    }
    Ok(end)
}

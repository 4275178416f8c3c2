//! A generation under way: the parts that this rank has still to send, and the ranges that arrive here.
//!
//! A range that comes whole is kept as it came. One that comes in parts, because two ranks share it or because it is
//! larger than a piece, is put together. A range that is changed in part begins as a copy of what it was.
//!
//! Laws: nothing of the current generation is changed. A generation is complete only if every range that this rank is
//! to hold has arrived, and every part had its checksum.

use super::checksum::{append_summed, checksum, copy_summed};
use super::gauge::Metered;
use super::generation::{Generation, RangeCopy, Roster};
use super::parcel::{Payload, RangeBytes};
use super::spares::Spares;
use crate::array::Rank;
use crate::comm::{MessageRoom, garbled};
use crate::error::{Error, Result};
use crate::replica::placement::RangeId;
use bytes::BytesMut;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// A part of the submitted memory: one of its slices, from a position on.
pub(crate) struct OutPart {
    pub(crate) part: RangeBytes,
    pub(crate) slice: usize,
    pub(crate) from: usize,
}

/// A range that comes in parts.
struct Arriving {
    room: MessageRoom,
    filled: u64,
}

/// A generation under way.
pub(crate) struct Coming {
    pub(crate) generation: Generation,
    pub(crate) parts: Vec<OutPart>,
    pub(crate) next: usize,
    pub(crate) rounds: u64,
    /// The ranges that have not come yet; unknown if only changes are submitted.
    pub(crate) missing: Option<u64>,
    arriving: HashMap<RangeId, Arriving>,
    pub(crate) trouble: Option<Error>,
    _snapshot: Metered,
}

impl Coming {
    pub(crate) fn new(generation: Generation, missing: Option<u64>, snapshot: Metered) -> Self {
        Coming {
            generation,
            parts: Vec::new(),
            next: 0,
            rounds: 0,
            missing,
            arriving: HashMap::new(),
            trouble: None,
            _snapshot: snapshot,
        }
    }

    /// Adds the parts of consecutive blocks, which are a slice of the submitted memory.
    pub(crate) fn add_parts(&mut self, blocks: Range<u64>, slice: usize, piece: u64) -> Result<()> {
        let mut from = 0;
        for part in self.generation.places.placement().parts(&[blocks])? {
            let RangeBytes { range, at, len } = self.generation.bytes_of(&part);
            let mut done = 0;
            while done < len {
                let step = piece.min(len - done);
                let part = RangeBytes { range, at: at + done, len: step };
                self.parts.push(OutPart { part, slice, from });
                (done, from) = (done + step, from + step as usize);
            }
        }
        Ok(())
    }

    /// Says in which slices the submitted memory lies; parts that cross the end of one are divided.
    pub(crate) fn lie_in(&mut self, slices: &[&[u8]]) {
        let (mut slice, mut before, mut parts) = (0, 0, Vec::with_capacity(self.parts.len()));
        for OutPart { mut part, mut from, .. } in self.parts.drain(..) {
            while part.len > 0 {
                while slice + 1 < slices.len() && from >= before + slices[slice].len() {
                    before += slices[slice].len();
                    slice += 1;
                }
                let end = slices.get(slice).map_or(usize::MAX, |slice| before + slice.len());
                let len = part.len.min((end - from) as u64).max(1);
                let here = RangeBytes { len, ..part };
                parts.push(OutPart { part: here, slice, from: from - before });
                part = RangeBytes { at: part.at + len, len: part.len - len, ..part };
                from += len as usize;
            }
        }
        self.parts = parts;
    }

    /// Refuses parts that do not belong here.
    pub(crate) fn check(
        &self,
        from: Rank,
        part: RangeBytes,
        payload: &Payload<'_>,
        roster: &Roster,
        own: Rank,
    ) -> Result<()> {
        let fits = part.end() <= self.generation.range_len(part.range)
            && part.len > 0
            && !matches!(payload, Payload::Missing)
            && self.generation.holders(part.range, roster).contains(&own);
        match fits {
            true => Ok(()),
            false => Err(garbled().at(format!("from rank {from}"))),
        }
    }

    /// Stores a part and returns the checksum of its bytes.
    pub(crate) fn put(
        &mut self,
        part: RangeBytes,
        payload: Payload<'_>,
        base: Option<&Generation>,
        spares: &mut Spares,
    ) -> u64 {
        let len = self.generation.range_len(part.range);
        if part.len == len {
            let (room, sum) = match payload {
                Payload::Whole(room) => {
                    let sum = room.checksum().unwrap_or_else(|| checksum(&room.bytes));
                    spares.belongs(room.bytes.len());
                    (room, sum)
                }
                other => {
                    let mut room = spares.take(len as usize);
                    let sum = append_summed(other.bytes(), &mut room.bytes);
                    (room, sum)
                }
            };
            self.keep(part.range, RangeCopy::new(room, sum));
            return sum;
        }
        if !self.arriving.contains_key(&part.range) {
            let mut room = spares.take(len as usize);
            if self.missing.is_none() {
                self.copy_base(part.range, base, &mut room.bytes);
            }
            room.bytes.resize(len as usize, 0);
            self.arriving.insert(part.range, Arriving { room, filled: 0 });
        }
        let Some(arriving) = self.arriving.get_mut(&part.range) else { return 0 };
        let place = &mut arriving.room.bytes[part.at as usize..part.end() as usize];
        let sum = copy_summed(payload.bytes(), place);
        arriving.filled += part.len;
        if self.missing.is_some() && arriving.filled == len {
            self.keep_arrived(part.range);
        }
        if let Payload::Whole(room) = payload {
            spares.give(room);
        }
        sum
    }

    /// Begins a range that is changed in part with its bytes before the change.
    fn copy_base(&mut self, range: RangeId, base: Option<&Generation>, bytes: &mut BytesMut) {
        let copy = base.and_then(|base| base.held.get(&range));
        let good = copy.is_some_and(|copy| append_summed(copy.bytes(), bytes) == copy.checksum());
        if !good {
            let blocks = self.generation.places.placement().blocks_of(range);
            self.trouble.get_or_insert_with(|| {
                Error::damaged(format!(
                    "the copy of blocks {blocks:?} is damaged and cannot be changed in part"
                ))
                .hint("call scrub, or submit all blocks")
            });
        }
    }

    fn keep_arrived(&mut self, range: RangeId) {
        if let Some(Arriving { room, .. }) = self.arriving.remove(&range) {
            let sum = checksum(&room.bytes);
            self.keep(range, RangeCopy::new(room, sum));
        }
    }

    /// Keeps a whole range.
    pub(crate) fn keep(&mut self, range: RangeId, copy: Arc<RangeCopy>) {
        let new = self.generation.held.insert(range, copy).is_none();
        if let Some(missing) = &mut self.missing {
            *missing = missing.saturating_sub(u64::from(new));
        }
    }

    /// Finishes ranges that were changed in part; an error if anything is missing or damaged.
    pub(crate) fn complete(&mut self) -> Result<()> {
        if let Some(error) = self.trouble.take() {
            return Err(error);
        }
        if self.missing.is_none() {
            let ranges: Vec<RangeId> = self.arriving.keys().copied().collect();
            ranges.into_iter().for_each(|range| self.keep_arrived(range));
        }
        match self.missing {
            _ if self.next < self.parts.len() => {
                Err(Error::usage("a submit ended before its last piece"))
            }
            Some(missing @ 1..) => {
                Err(Error::damaged(format!("{missing} ranges of blocks did not arrive")))
            }
            _ => Ok(()),
        }
    }
}

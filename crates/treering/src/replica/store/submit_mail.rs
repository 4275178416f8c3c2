//! One rank's side of a round of a submit: parts are staged when they can be sent, and stored as they arrive.
//!
//! Submitted memory belongs to the caller, and a failed exchange may read messages later. So each part of it is copied
//! once, fused with its checksum, into memory that all of its messages share: that of the communicator if it has some, or
//! a staging buffer. When all of them have been received, the memory is used again, while it is in the cache. A snapshot
//! is shared, and is not copied.
//!
//! Law: every part is verified as it arrives; what is wrong with it is found out by all ranks at the end of the submit.

use super::checksum::{
    append_streaming, append_streaming_summed, append_summed, checksum, copy_summed,
};
use super::coming::{Coming, OutPart};
use super::generation::{Generation, RangeCopy, Roster};
use super::parcel::{Inbox, Outbox, PACKED, Payload, RangeBytes};
use super::spares::Spares;
use crate::array::Rank;
use crate::comm::{Mailbox, MessageMemory, MessageRoom};
use crate::error::Error;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Submitted bytes of a parcel, unless a piece has fewer.
pub(crate) const PARCEL: u64 = 1 << 20;

/// The memory that is submitted.
#[derive(Clone)]
pub(crate) enum SubmitData<'a> {
    /// Slices of the caller's.
    Borrowed(&'a [&'a [u8]]),
    /// A snapshot.
    Shared(Bytes),
}

impl SubmitData<'_> {
    /// A snapshot.
    pub(crate) fn shared(snapshot: &Arc<Vec<u8>>) -> SubmitData<'static> {
        SubmitData::Shared(Bytes::from_owner(SharedSnapshot(snapshot.clone())))
    }
}

struct SharedSnapshot(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedSnapshot {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A round under way.
pub(crate) struct SubmitMail<'a> {
    pub(crate) coming: &'a mut Coming,
    pub(crate) data: SubmitData<'a>,
    /// The generation that changes are changes of.
    pub(crate) base: Option<&'a Generation>,
    pub(crate) roster: &'a Roster,
    pub(crate) own: Rank,
    pub(crate) spares: &'a mut Spares,
    /// Bytes that are left in this round, all copies counted, and submitted bytes of a parcel.
    pub(crate) left: u64,
    parcel: u64,
    queue: VecDeque<(Rank, Bytes)>,
    /// Parts whose messages are under way.
    staged: Vec<Arc<RangeCopy>>,
    inbox: Inbox,
}

impl<'a> SubmitMail<'a> {
    pub(crate) fn new(
        coming: &'a mut Coming,
        data: SubmitData<'a>,
        (base, roster): (Option<&'a Generation>, &'a Roster),
        own: Rank,
        spares: &'a mut Spares,
        (left, piece): (u64, u64),
    ) -> Self {
        let (queue, staged, inbox) = Default::default();
        let parcel = PARCEL.min(piece);
        SubmitMail { coming, data, base, roster, own, spares, left, parcel, queue, staged, inbox }
    }

    /// Ends a round in which everything has been sent and received.
    pub(crate) fn finish(mut self) {
        self.reclaim();
        let finished = self.inbox.finish().err();
        self.coming.trouble = self.coming.trouble.take().or(finished);
    }

    /// Uses staging buffers again whose messages have been received.
    fn reclaim(&mut self) {
        for copy in std::mem::take(&mut self.staged) {
            match Arc::try_unwrap(copy) {
                Ok(copy) => self.spares.unstage(copy.into_room()),
                Err(copy) => self.staged.push(copy),
            }
        }
    }

    /// Prepares the next parts of this round.
    fn pack(&mut self, memory: &mut dyn MessageMemory) {
        self.reclaim();
        let (mut outbox, mut packed) = (Outbox::default(), 0);
        while packed < self.parcel && self.left > 0 && self.coming.next < self.coming.parts.len() {
            let next = self.coming.next;
            self.coming.next += 1;
            let OutPart { part, slice, from } = self.coming.parts[next];
            let place = from..from + part.len as usize;
            let holders = self.coming.generation.holders(part.range, self.roster);
            self.left = self.left.saturating_sub(part.len * holders.len() as u64);
            packed += part.len;
            let own = self.own;
            let mine = holders.contains(&own);
            let others = holders.into_iter().filter(|to| *to != own);
            match self.data.clone() {
                SubmitData::Borrowed(slices) if part.len >= PACKED => {
                    let (bytes, sum) = self.stage(part, &slices[slice][place], mine, memory);
                    others.for_each(|to| outbox.add(to, part, Some((bytes.clone(), sum))));
                }
                SubmitData::Borrowed(slices) => {
                    let bytes = &slices[slice][place];
                    let sum = self.put_own(part, bytes, mine);
                    others.for_each(|to| outbox.add_packed(to, part, bytes, sum));
                }
                SubmitData::Shared(all) => {
                    let bytes = all.slice(place);
                    let sum = self.put_own(part, &bytes, mine);
                    others.for_each(|to| outbox.add(to, part, Some((bytes.clone(), sum))));
                }
            }
        }
        outbox.seal(&mut self.queue);
    }

    /// Copies a part of borrowed memory, and once more if this rank is a holder: the memory is used again.
    fn stage(
        &mut self,
        part: RangeBytes,
        bytes: &[u8],
        mine: bool,
        memory: &mut dyn MessageMemory,
    ) -> (Bytes, u64) {
        let mut sum = 0;
        let made = memory.make(bytes.len(), &mut |to| sum = copy_summed(bytes, to));
        let shared = made.unwrap_or_else(|| {
            let mut room = self.spares.stage(bytes.len());
            sum = append_summed(bytes, &mut room.bytes);
            let copy = RangeCopy::new(room, sum);
            self.staged.push(copy.clone());
            copy.share()
        });
        match mine && part.len == self.coming.generation.range_len(part.range) {
            true => {
                let mut own = self.spares.take(bytes.len());
                append_streaming(&shared, &mut own.bytes);
                self.coming.keep(part.range, RangeCopy::new(own, sum));
            }
            false if mine => drop(self.put_own(part, &shared, mine)),
            false => {}
        }
        (shared, sum)
    }

    /// The checksum of a part, which is stored if it belongs to this rank.
    fn put_own(&mut self, part: RangeBytes, bytes: &[u8], mine: bool) -> u64 {
        match mine {
            true => self.coming.put(part, Payload::Packed(bytes), self.base, self.spares),
            false => checksum(bytes),
        }
    }
}

impl Mailbox for SubmitMail<'_> {
    fn next(&mut self, memory: &mut dyn MessageMemory) -> Option<(Rank, Bytes)> {
        while self.queue.is_empty() && self.left > 0 && self.coming.next < self.coming.parts.len() {
            self.pack(memory);
        }
        self.queue.pop_front()
    }

    fn room(&mut self, _from: Rank, len: usize) -> MessageRoom {
        // Lists and parts of ranges have lengths of their own; buffers for them would take the place of others.
        match len as u64 == self.coming.generation.whole_range() {
            true => self.spares.lend(len).copied_with(append_streaming_summed),
            false => self.spares.fresh(len),
        }
    }

    fn take(&mut self, from: Rank, message: MessageRoom) {
        let SubmitMail { coming, base, roster, own, spares, inbox, .. } = self;
        let received = inbox.receive(from, message, |part, sum, payload| {
            coming.check(from, part, &payload, roster, *own)?;
            match coming.put(part, payload, *base, spares) == sum {
                true => Ok(()),
                false => Err(Error::damaged(format!(
                    "blocks {:?} came damaged from rank {from}",
                    coming.generation.blocks_of(&part)
                ))),
            }
        });
        coming.trouble = coming.trouble.take().or(received.err());
        let range = coming.generation.whole_range();
        let done = inbox.done.drain(..).filter(|room| room.bytes.capacity() as u64 == range);
        done.for_each(|room| spares.give(room));
    }
}

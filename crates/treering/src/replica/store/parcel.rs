//! Parts of ranges on their way from one rank to another.
//!
//! Parts travel in parcels: a list (range, position, length, checksum) with a checksum of its own, which small parts are
//! packed behind, and the large parts as messages of their own, which share the memory where they are and which the
//! receiver may keep as they are: no copy on either side. A rank sends any number of parcels to another in one exchange.
//!
//! Law: parts are read in the order in which they were added; malformed or damaged lists are refused, never trusted. The
//! order of the messages from one rank to another is that of the communicator's law.

use super::checksum::checksum;
use crate::array::Rank;
use crate::comm::{MessageRoom, garbled};
use crate::error::{Error, Result};
use crate::replica::placement::RangeId;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Parts below this size are packed: a message of their own would cost more than a copy.
pub(crate) const PACKED: u64 = 16 << 10;

/// Bytes of a list entry.
const ENTRY: usize = 33;

/// Bytes behind list and packed parts: the number of entries, and the checksum of list and number.
const TAIL: usize = 16;

/// Whether a part of this many bytes is packed.
pub(crate) fn is_packed(len: u64) -> bool {
    len < PACKED
}

/// The bytes of a list of this many parts.
pub(crate) fn head_len(parts: u64) -> u64 {
    parts * ENTRY as u64 + TAIL as u64
}

/// A part of a range: `len` bytes from byte `at` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RangeBytes {
    pub(crate) range: RangeId,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

impl RangeBytes {
    pub(crate) fn end(&self) -> u64 {
        self.at.saturating_add(self.len)
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        [self.range.0, self.at, self.len].iter().for_each(|n| to.extend(n.to_le_bytes()));
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<RangeBytes> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(RangeBytes { range: RangeId(number(0)?), at: number(8)?, len: number(16)? })
    }
}

/// The bytes of a part that has arrived.
pub(crate) enum Payload<'a> {
    /// In a message with other parts.
    Packed(&'a [u8]),
    /// A message of its own.
    Whole(MessageRoom),
    /// The sender does not have the part, or its copy is damaged.
    Missing,
}

impl Payload<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Packed(bytes) => bytes,
            Payload::Whole(room) => &room.bytes,
            Payload::Missing => &[],
        }
    }
}

/// Parts to send, by receiver.
#[derive(Default)]
pub(crate) struct Outbox {
    parcels: BTreeMap<Rank, Parcel>,
}

#[derive(Default)]
struct Parcel {
    list: Vec<u8>,
    packed: Vec<u8>,
    whole: Vec<Bytes>,
}

impl Outbox {
    /// Adds a part that is packed, since it is small.
    pub(crate) fn add_packed(&mut self, to: Rank, part: RangeBytes, bytes: &[u8], sum: u64) {
        let parcel = self.parcels.entry(to).or_default();
        parcel.enter(part, Some(sum));
        parcel.packed.extend_from_slice(bytes);
    }

    /// Adds a part for a rank; `None` if this rank does not have it.
    pub(crate) fn add(&mut self, to: Rank, part: RangeBytes, bytes: Option<(Bytes, u64)>) {
        match bytes {
            Some((bytes, sum)) if part.len < PACKED => self.add_packed(to, part, &bytes, sum),
            Some((bytes, sum)) => {
                let parcel = self.parcels.entry(to).or_default();
                parcel.enter(part, Some(sum));
                parcel.whole.push(bytes);
            }
            None => self.parcels.entry(to).or_default().enter(part, None),
        }
    }

    /// Adds the messages to a queue. Large parts of different receivers take turns, so that all have something to do.
    pub(crate) fn seal(self, queue: &mut VecDeque<(Rank, Bytes)>) {
        let mut whole = Vec::with_capacity(self.parcels.len());
        for (to, mut parcel) in self.parcels {
            queue.push_back((to, parcel.head().into()));
            whole.push((to, parcel.whole.into_iter()));
        }
        while !whole.is_empty() {
            whole.retain_mut(|(to, rest)| match rest.next() {
                Some(bytes) => {
                    queue.push_back((*to, bytes));
                    true
                }
                None => false,
            });
        }
    }
}

impl Parcel {
    fn enter(&mut self, part: RangeBytes, sum: Option<u64>) {
        part.write(&mut self.list);
        self.list.extend(sum.unwrap_or(0).to_le_bytes());
        self.list.push(sum.is_some().into());
    }

    /// List, packed parts, and the tail.
    fn head(&mut self) -> Vec<u8> {
        let mut head = std::mem::take(&mut self.list);
        let entries = (head.len() / ENTRY) as u64;
        let sum = list_sum(&head, entries);
        head.reserve_exact(self.packed.len() + TAIL);
        head.append(&mut self.packed);
        head.extend(entries.to_le_bytes());
        head.extend(sum.to_le_bytes());
        head
    }
}

fn list_sum(list: &[u8], entries: u64) -> u64 {
    checksum(list) ^ entries.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Parcels that arrive.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Lists whose large parts have not all come.
    open: HashMap<Rank, OpenParcel>,
    /// Ranks of which nothing more is understood.
    garbled: Vec<Rank>,
    /// Large buffers of lists that are done.
    pub(crate) done: Vec<MessageRoom>,
}

struct OpenParcel {
    head: MessageRoom,
    /// The list is `at..list` of the head, the packed parts are `packed..tail`.
    at: usize,
    list: usize,
    packed: usize,
    tail: usize,
}

impl Inbox {
    /// Takes the next message of a rank, and hands every part that is there to `take`, with its checksum. The first
    /// error is returned; an error of `take` does not keep the other parts from it.
    pub(crate) fn receive(
        &mut self,
        from: Rank,
        message: MessageRoom,
        mut take: impl FnMut(RangeBytes, u64, Payload<'_>) -> Result<()>,
    ) -> Result<()> {
        if self.garbled.contains(&from) {
            return Ok(());
        }
        let (parcel, whole) = match self.open.remove(&from) {
            Some(parcel) => (Ok(parcel), Some(message)),
            None => (OpenParcel::new(message), None),
        };
        let mut trouble = Ok(());
        let rest = parcel.and_then(|parcel| parcel.hand_out(whole, &mut take, &mut trouble));
        match rest {
            Ok(parcel) => {
                match parcel.at < parcel.list {
                    true => drop(self.open.insert(from, parcel)),
                    false if is_packed(parcel.head.bytes.len() as u64) => {}
                    false => self.done.push(parcel.head),
                }
                trouble
            }
            Err(error) => {
                self.garbled.push(from);
                trouble.and(Err(error))
            }
        }
    }

    /// Refuses parcels that did not come whole.
    pub(crate) fn finish(self) -> Result<()> {
        match self.open.is_empty() {
            true => Ok(()),
            false => Err(garbled()),
        }
    }
}

impl OpenParcel {
    fn new(head: MessageRoom) -> Result<Self> {
        let (body, tail) = head.bytes.split_last_chunk::<TAIL>().ok_or_else(garbled)?;
        let number =
            |at: usize| tail[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let (entries, sum) = (number(0), number(8));
        let list = usize::try_from(entries).ok().and_then(|entries| entries.checked_mul(ENTRY));
        let list = list.filter(|len| *len <= body.len()).ok_or_else(garbled)?;
        if list_sum(&body[..list], entries) != sum {
            return Err(Error::damaged("a list of parts came damaged"));
        }
        let tail = body.len();
        Ok(OpenParcel { head, at: 0, list, packed: list, tail })
    }

    /// Hands out a large part that has come, and everything up to the next one.
    fn hand_out(
        mut self,
        mut whole: Option<MessageRoom>,
        take: &mut impl FnMut(RangeBytes, u64, Payload<'_>) -> Result<()>,
        trouble: &mut Result<()>,
    ) -> Result<Self> {
        while self.at < self.list {
            let entry = &self.head.bytes[self.at..self.at + ENTRY];
            let part = RangeBytes::read(entry).ok_or_else(garbled)?;
            let sum = u64::from_le_bytes(entry[24..32].try_into().map_err(|_| garbled())?);
            let payload = match (entry[32], part.len < PACKED) {
                (0, _) => Payload::Missing,
                (_, true) => {
                    let end = self.packed + part.len as usize;
                    let bytes = self.head.bytes.get(self.packed..end);
                    let bytes = bytes.filter(|_| end <= self.tail).ok_or_else(garbled)?;
                    self.packed = end;
                    Payload::Packed(bytes)
                }
                (_, false) => match whole.take() {
                    None => return Ok(self),
                    Some(room) if room.bytes.len() as u64 != part.len => return Err(garbled()),
                    Some(room) => Payload::Whole(room),
                },
            };
            let taken = take(part, sum, payload);
            if trouble.is_ok() {
                *trouble = taken;
            }
            self.at += ENTRY;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Messages = VecDeque<(Rank, Bytes)>;

    fn sent(parts: &[(u32, usize, bool)], bytes: &Bytes, parcels: usize) -> Messages {
        let (parts, mut queue): (Vec<_>, _) = ((0..).zip(parts).collect(), VecDeque::new());
        for some in parts.chunks(parts.len().div_ceil(parcels)) {
            let mut outbox = Outbox::default();
            for (at, (to, len, there)) in some {
                let part = RangeBytes { range: RangeId(*at), at: 3, len: *len as u64 };
                outbox.add(Rank(*to), part, there.then(|| (bytes.slice(..*len), *at)));
            }
            outbox.seal(&mut queue);
        }
        queue
    }

    type Seen = Vec<(u32, u64, Option<Vec<u8>>)>;

    /// Receivers stand in for senders.
    fn received(messages: Messages) -> (Seen, Result<()>) {
        let (mut all, mut inbox, mut trouble) = (Vec::new(), Inbox::default(), Ok(()));
        for (from, bytes) in messages {
            let room = MessageRoom::of((&bytes[..]).into(), None);
            let result = inbox.receive(from, room, |part, sum, payload| {
                let there = !matches!(payload, Payload::Missing);
                assert!(!there || sum == part.range.0);
                all.push((from.0, part.range.0, there.then(|| payload.bytes().to_vec())));
                Ok(())
            });
            trouble = trouble.and(result);
        }
        let trouble = trouble.and(inbox.finish());
        all.sort_by_key(|(from, at, _)| (*from, *at));
        (all, trouble)
    }

    proptest! {
        #[test]
        fn parts_arrive_in_order_and_damaged_lists_are_refused(
            parts in prop::collection::vec((0u32..3, prop_oneof![0usize..50, 16_000usize..17_000], any::<bool>()), 1..12),
            parcels in 1usize..4, cut in 0usize..400, flip in 0usize..400,
        ) {
            let bytes: Bytes = (0..17_000u32).map(|at| (at / 3) as u8).collect();
            let (all, trouble) = received(sent(&parts, &bytes, parcels));
            prop_assert!(trouble.is_ok());
            let mut expected: Seen = (0..).zip(&parts)
                .map(|(at, (to, len, there))| (*to, at, there.then(|| bytes[..*len].to_vec()))).collect();
            expected.sort_by_key(|(to, at, _)| (*to, *at));
            prop_assert_eq!(&all, &expected);
            // A change of the first list is noticed.
            let mut damaged = sent(&parts, &bytes, parcels);
            let mut head = damaged[0].1.to_vec();
            let list = (head.len() - TAIL).min(ENTRY);
            head[flip % list] ^= 0x80;
            head.truncate(head.len() - cut / 40);
            damaged[0].1 = head.into();
            let (some, trouble) = received(damaged);
            prop_assert!(trouble.is_err() && some.len() < all.len());
            prop_assert!(some.iter().all(|part| all.contains(part)));
        }
    }

    #[test]
    fn a_parcel_whose_last_message_is_missing_is_refused() {
        let bytes: Bytes = vec![7; 40_000].into();
        let mut messages = sent(&[(1, 40_000, true), (1, 5, true)], &bytes, 1);
        assert_eq!(messages.len(), 2);
        messages.pop_back();
        let (all, trouble) = received(messages);
        assert!(all.is_empty() && trouble.is_err());
    }
}

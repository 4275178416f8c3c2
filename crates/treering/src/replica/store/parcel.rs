//! Parts of ranges on their way from one rank to another.
//!
//! All parts for one rank travel in one exchange as a list (range, position, length, checksum) followed by the bytes.
//! Large parts are messages of their own, which the sender takes straight from the memory where they are, and which
//! the receiver may keep as they are: no copy on either side. Small parts are packed behind the list.
//!
//! Law: parts are read in the order in which they were added; malformed lists are refused, never trusted. The order
//! of the messages from one rank to another is that of the communicator's law.

use crate::array::Rank;
use crate::comm::{Message, garbled};
use crate::error::Result;
use crate::replica::placement::RangeId;
use std::collections::BTreeMap;

/// Parts below this size are packed: a message of their own would cost more than a copy.
const PACKED: u64 = 16 << 10;

/// Bytes of a list entry.
const ENTRY: usize = 33;

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
    Whole(Vec<u8>),
    /// The sender does not have the part, or its copy is damaged.
    Missing,
}

impl Payload<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Packed(bytes) => bytes,
            Payload::Whole(bytes) => bytes,
            Payload::Missing => &[],
        }
    }
}

/// Parts to send, by receiver.
#[derive(Default)]
pub(crate) struct Outbox<'a> {
    parcels: BTreeMap<Rank, Parcel<'a>>,
}

#[derive(Default)]
struct Parcel<'a> {
    /// The list; then list and packed parts.
    head: Vec<u8>,
    packed: Vec<&'a [u8]>,
    whole: Vec<&'a [u8]>,
}

impl<'a> Outbox<'a> {
    /// Adds a part for a rank; `None` if this rank does not have it.
    pub(crate) fn add(&mut self, to: Rank, part: RangeBytes, bytes: Option<(&'a [u8], u64)>) {
        let parcel = self.parcels.entry(to).or_default();
        part.write(&mut parcel.head);
        parcel.head.extend(bytes.map_or(0, |(_, checksum)| checksum).to_le_bytes());
        parcel.head.push(bytes.is_some().into());
        match bytes {
            Some((bytes, _)) if part.len < PACKED => parcel.packed.push(bytes),
            Some((bytes, _)) => parcel.whole.push(bytes),
            None => {}
        }
    }

    /// Packs small parts behind the lists.
    pub(crate) fn seal(mut self) -> SealedOutbox<'a> {
        for parcel in self.parcels.values_mut() {
            let entries = (parcel.head.len() / ENTRY) as u64;
            let packed: usize = parcel.packed.iter().map(|bytes| bytes.len()).sum();
            parcel.head.reserve(packed + 8);
            parcel.packed.iter().for_each(|bytes| parcel.head.extend_from_slice(bytes));
            parcel.head.extend(entries.to_le_bytes());
        }
        SealedOutbox(self)
    }
}

/// Parts that are ready to be sent.
pub(crate) struct SealedOutbox<'a>(Outbox<'a>);

impl SealedOutbox<'_> {
    pub(crate) fn messages(&self) -> Vec<(Rank, &[u8])> {
        let mut messages = Vec::new();
        for (to, parcel) in &self.0.parcels {
            messages.push((*to, &parcel.head[..]));
            messages.extend(parcel.whole.iter().map(|bytes| (*to, *bytes)));
        }
        messages
    }
}

/// Hands every part that has arrived to `take`, with its sender and checksum.
pub(crate) fn unpack(
    messages: Vec<Message>,
    mut take: impl FnMut(Rank, RangeBytes, u64, Payload<'_>) -> Result<()>,
) -> Result<()> {
    let mut messages = messages.into_iter();
    while let Some((from, head)) = messages.next() {
        let (body, count) = head.split_last_chunk::<8>().ok_or_else(garbled)?;
        let entries = usize::try_from(u64::from_le_bytes(*count)).map_err(|_| garbled())?;
        let listed = entries.checked_mul(ENTRY).filter(|len| *len <= body.len());
        let (list, mut packed) = body.split_at(listed.ok_or_else(garbled)?);
        for entry in list.chunks_exact(ENTRY) {
            let part = RangeBytes::read(entry).ok_or_else(garbled)?;
            let checksum = u64::from_le_bytes(entry[24..32].try_into().map_err(|_| garbled())?);
            let payload = match (entry[32], part.len < PACKED) {
                (0, _) => Payload::Missing,
                (_, true) => {
                    let (bytes, rest) =
                        packed.split_at_checked(part.len as usize).ok_or_else(garbled)?;
                    packed = rest;
                    Payload::Packed(bytes)
                }
                (_, false) => {
                    let (sender, bytes) = messages.next().ok_or_else(garbled)?;
                    if sender != from || bytes.len() as u64 != part.len {
                        return Err(garbled());
                    }
                    Payload::Whole(bytes)
                }
            };
            take(from, part, checksum, payload)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(parts: &[(u32, usize, bool)], bytes: &[u8]) -> Vec<Message> {
        let mut outbox = Outbox::default();
        for (at, (to, len, there)) in (0..).zip(parts) {
            let part = RangeBytes { range: RangeId(at), at: 3, len: *len as u64 };
            outbox.add(Rank(*to), part, there.then_some((&bytes[..*len], at)));
        }
        let sealed = outbox.seal();
        sealed.messages().into_iter().map(|(to, bytes)| (to, bytes.to_vec())).collect()
    }

    proptest! {
        #[test]
        fn parts_arrive_in_order_and_damaged_lists_are_refused(
            parts in prop::collection::vec((0u32..3, prop_oneof![0usize..50, 16_000usize..17_000], any::<bool>()), 0..12),
            cut in 0usize..400, flip in 0usize..400,
        ) {
            let bytes: Vec<u8> = (0..17_000u32).map(|at| (at / 3) as u8).collect();
            // Receivers stand in for senders.
            let mut all: Vec<(u32, u64, Option<Vec<u8>>)> = Vec::new();
            unpack(sent(&parts, &bytes), |from, part, checksum, payload| {
                let there = !matches!(payload, Payload::Missing);
                assert!(!there || checksum == part.range.0);
                all.push((from.0, part.range.0, there.then(|| payload.bytes().to_vec())));
                Ok(())
            }).unwrap();
            let mut expected: Vec<_> = (0..).zip(&parts)
                .map(|(at, (to, len, there))| (*to, at, there.then(|| bytes[..*len].to_vec()))).collect();
            expected.sort_by_key(|(to, at, _)| (*to, *at));
            prop_assert_eq!(all, expected);
            let mut damaged = sent(&parts, &bytes);
            if let Some((_, head)) = damaged.first_mut() {
                let at = flip % head.len();
                head[at] ^= 0x80;
                head.truncate(head.len().saturating_sub(cut / 40));
            }
            let _ = unpack(damaged, |_, _, _, _| Ok(()));
        }
    }
}

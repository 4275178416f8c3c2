//! Parts of ranges from other ranks: used by load, remake and scrub.
//!
//! A rank serves what it holds itself. For everything else it chooses senders among the living holders and asks them,
//! in one sparse exchange; the parts come in exchanges of bounded size. If the list of all requests is known to all
//! ranks, each sender computes what it has to send, and nobody asks. A part that comes damaged, or not at all, is
//! asked for from another holder in a further attempt; a part without a holder left is lost.
//!
//! Laws: every byte that is handed out was verified by its checksum. A part is lost only if no living holder has an
//! intact copy. All ranks make the same number of exchanges: the largest number of rounds is agreed on by reduction.

use super::checksum::checksum;
use super::generation::{Generation, Roster};
use super::link::Link;
use super::parcel::{Outbox, Payload, RangeBytes, unpack};
use super::senders::SenderChoice;
use crate::array::Rank;
use crate::comm::Reduction;
use crate::error::Result;
use crate::replica::placement::RangeId;
use std::collections::HashMap;

/// A part that this rank wants.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) part: RangeBytes,
    /// Its position in the output; for the sink.
    pub(crate) to: usize,
    /// Holders that have been tried.
    pub(crate) tried: Vec<Rank>,
}

/// A part that one rank sends to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) sender: Rank,
    pub(crate) requester: Rank,
    pub(crate) part: RangeBytes,
    pub(crate) round: u64,
}

/// Takes the parts that have arrived.
pub(crate) trait PartSink {
    /// Takes a part if its bytes have the checksum.
    fn put(&mut self, want: &Want, payload: Payload<'_>, checksum: u64) -> bool;
}

/// Rounds of a requester: each takes parts until it has a piece.
#[derive(Default)]
pub(crate) struct Rounds(HashMap<Rank, u64>);

impl Rounds {
    /// The round of the next part of a requester.
    pub(crate) fn next(&mut self, requester: Rank, len: u64, piece: u64) -> u64 {
        let bytes = self.0.entry(requester).or_default();
        let round = *bytes / piece;
        *bytes += len;
        round
    }
}

/// Parts under way to this rank.
pub(crate) struct Fetch<'a> {
    pub(crate) generation: &'a Generation,
    pub(crate) roster: &'a Roster,
    pub(crate) own: Rank,
    pub(crate) piece: u64,
    pending: Vec<(Want, Delivery)>,
    retry: Vec<Want>,
    pub(crate) lost: Vec<Want>,
    /// Copies that were found damaged or missing.
    pub(crate) bad_copies: u64,
    /// Held ranges whose checksum was computed for a part of them.
    intact: HashMap<RangeId, bool>,
}

impl<'a> Fetch<'a> {
    pub(crate) fn new(
        generation: &'a Generation,
        roster: &'a Roster,
        own: Rank,
        piece: u64,
    ) -> Self {
        let (pending, retry, lost) = Default::default();
        let (bad_copies, intact) = Default::default();
        Fetch { generation, roster, own, piece, pending, retry, lost, bad_copies, intact }
    }

    /// Takes what this rank holds itself and chooses senders for the rest. Returns the number of rounds.
    pub(crate) fn ask(&mut self, wants: Vec<Want>, sink: &mut dyn PartSink) -> u64 {
        self.retry = wants;
        self.take_own(sink);
        self.assign()
    }

    /// The same with deliveries that are known to all ranks.
    pub(crate) fn expect(
        &mut self,
        wants: Vec<Want>,
        deliveries: &[Delivery],
        sink: &mut dyn PartSink,
    ) -> u64 {
        self.retry = wants;
        self.take_own(sink);
        let own = deliveries.iter().filter(|delivery| delivery.requester == self.own);
        let mut coming: HashMap<RangeBytes, Vec<Delivery>> = HashMap::new();
        own.for_each(|delivery| coming.entry(delivery.part).or_default().push(*delivery));
        let wants = std::mem::take(&mut self.retry);
        for want in wants {
            match coming.get_mut(&want.part).and_then(Vec::pop) {
                Some(delivery) => self.pending.push((want, delivery)),
                None => self.retry.push(want),
            }
        }
        deliveries.iter().map(|delivery| delivery.round + 1).max().unwrap_or(0)
    }

    fn take_own(&mut self, sink: &mut dyn PartSink) {
        let wants = std::mem::take(&mut self.retry);
        for mut want in wants {
            if want.tried.contains(&self.own)
                || !self.generation.held.contains_key(&want.part.range)
            {
                self.retry.push(want);
                continue;
            }
            let found = self.serve(&want.part);
            let good =
                found.is_some_and(|(bytes, sum)| sink.put(&want, Payload::Packed(bytes), sum));
            if !good {
                self.bad_copies += 1;
                want.tried.push(self.own);
                self.retry.push(want);
            }
        }
    }

    /// Chooses senders for everything that is left.
    fn assign(&mut self) -> u64 {
        let (mut choice, mut rounds, mut last) = (SenderChoice::default(), Rounds::default(), 0);
        for want in std::mem::take(&mut self.retry) {
            let part = want.part;
            let mut candidates = self.generation.holders(part.range, self.roster);
            candidates.retain(|rank| *rank != self.own && !want.tried.contains(rank));
            match choice.choose(self.own, part.range, &candidates, part.len) {
                Some(sender) => {
                    let round = rounds.next(self.own, part.len, self.piece);
                    let delivery = Delivery { sender, requester: self.own, part, round };
                    last = round + 1;
                    self.pending.push((want, delivery));
                }
                None => self.lost.push(want),
            }
        }
        last
    }

    /// Brings everything that can be had. `rounds` is the largest number on any rank. With `known`, the deliveries
    /// of the first attempt are known to all.
    pub(crate) fn run(
        &mut self,
        link: &mut Link,
        mut rounds: u64,
        mut known: Option<&[Delivery]>,
        sink: &mut dyn PartSink,
    ) -> Result<()> {
        while rounds > 0 || known.is_some() {
            if rounds > 0 {
                let mut serving = match known.take() {
                    Some(all) => all.iter().filter(|d| d.sender == self.own).copied().collect(),
                    None => self.requests(link)?,
                };
                serving.sort_by_key(|delivery| delivery.round);
                self.attempt(link, rounds, &serving, sink)?;
            }
            let mut next = [self.assign()];
            link.reduce(Reduction::Max, &mut next)?;
            [rounds] = next;
            known = None;
        }
        Ok(())
    }

    /// Sends requests and returns those of others.
    fn requests(&self, link: &mut Link) -> Result<Vec<Delivery>> {
        let mut to: HashMap<Rank, Vec<u8>> = HashMap::new();
        for (_, delivery) in &self.pending {
            let bytes = to.entry(delivery.sender).or_default();
            delivery.part.write(bytes);
            bytes.extend(delivery.round.to_le_bytes());
        }
        let messages: Vec<(Rank, &[u8])> = to.iter().map(|(to, bytes)| (*to, &bytes[..])).collect();
        let mut serving = Vec::new();
        for (requester, bytes) in link.exchange(&messages)? {
            for entry in bytes.as_chunks::<32>().0 {
                let round = u64::from_le_bytes(*entry.last_chunk::<8>().unwrap_or(&[0; 8]));
                let part = RangeBytes::read(entry);
                serving.extend(part.map(|part| Delivery {
                    sender: self.own,
                    requester,
                    part,
                    round,
                }));
            }
        }
        Ok(serving)
    }

    fn attempt(
        &mut self,
        link: &mut Link,
        rounds: u64,
        mut serving: &[Delivery],
        sink: &mut dyn PartSink,
    ) -> Result<()> {
        let mut pending: HashMap<(Rank, RangeBytes), Vec<Want>> = HashMap::new();
        for (want, delivery) in self.pending.drain(..).rev() {
            pending.entry((delivery.sender, delivery.part)).or_default().push(want);
        }
        for round in 0..rounds {
            let now = serving.partition_point(|delivery| delivery.round <= round);
            let mut outbox = Outbox::default();
            for delivery in &serving[..now] {
                outbox.add(delivery.requester, delivery.part, self.serve(&delivery.part));
            }
            serving = &serving[now..];
            let sealed = outbox.seal();
            let messages = link.exchange(&sealed.messages())?;
            let unpacked = unpack(messages, |from, part, sum, payload| {
                let Some(mut want) = pending.get_mut(&(from, part)).and_then(Vec::pop) else {
                    return Ok(());
                };
                let there = !matches!(payload, Payload::Missing);
                if !there || !sink.put(&want, payload, sum) {
                    self.bad_copies += 1;
                    want.tried.push(from);
                    self.retry.push(want);
                }
                Ok(())
            });
            // Parts of a malformed message are asked for elsewhere.
            self.bad_copies += u64::from(unpacked.is_err());
        }
        for ((sender, _), wants) in pending {
            for mut want in wants {
                want.tried.push(sender);
                self.retry.push(want);
            }
        }
        self.retry.sort_by_key(|want| (want.part, want.to));
        Ok(())
    }

    /// The bytes of a part that this rank holds, with their checksum. A whole range goes with the checksum that it
    /// came with; of a part the whole range is verified first.
    fn serve(&mut self, part: &RangeBytes) -> Option<(&'a [u8], u64)> {
        let copy = self.generation.held.get(&part.range)?;
        let end = part.at.checked_add(part.len)?;
        let bytes = copy.bytes().get(part.at as usize..end as usize)?;
        if bytes.len() == copy.bytes().len() {
            return Some((bytes, copy.checksum()));
        }
        let intact = *self.intact.entry(part.range).or_insert_with(|| copy.is_intact());
        intact.then(|| (bytes, checksum(bytes)))
    }
}

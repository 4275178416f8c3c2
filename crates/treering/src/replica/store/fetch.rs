//! Parts of ranges from other ranks: used by load, remake and scrub.
//!
//! A rank serves what it holds itself. For everything else it chooses senders among the living holders and asks them,
//! in one sparse exchange; the parts come in another. If the list of all requests is known to all
//! ranks, each sender computes what it has to send, and nobody asks. A part that comes damaged, or not at all, is
//! asked for from another holder in a further attempt; a part without a holder left is lost.
//!
//! Laws: every byte that is handed out was verified by its checksum. A part is lost only if no living holder has an
//! intact copy. All ranks make the same number of attempts: whether any rank wants more is found out by reduction.

use super::checksum::checksum;
use super::generation::{Generation, RangeCopy, Roster};
use super::link::Link;
use super::parcel::{Inbox, Outbox, PACKED, Payload, RangeBytes};
use super::senders::SenderChoice;
use super::spares::Spares;
use crate::array::Rank;
use crate::comm::{Mailbox, MessageMemory, MessageRoom, Reduction};
use crate::error::Result;
use crate::replica::placement::RangeId;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a parcel.
const PARCEL: u64 = 4 << 20;

/// The bytes of a request for this many parts.
pub(crate) fn request_len(parts: u64) -> u64 {
    parts * 24 + 8
}

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
}

/// Takes the parts that have arrived.
pub(crate) trait PartSink {
    /// Takes a part if its bytes have the checksum. Buffers that it does not keep are spare.
    fn put(&mut self, want: &Want, payload: Payload<'_>, sum: u64, spares: &mut Spares) -> bool;
}

/// Parts under way to this rank.
pub(crate) struct Fetch<'a> {
    pub(crate) generation: &'a Generation,
    pub(crate) roster: &'a Roster,
    pub(crate) own: Rank,
    pub(crate) spares: &'a mut Spares,
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
        spares: &'a mut Spares,
    ) -> Self {
        let (pending, retry, lost) = Default::default();
        let (bad_copies, intact) = Default::default();
        Fetch { generation, roster, own, spares, pending, retry, lost, bad_copies, intact }
    }

    /// Takes what this rank holds itself and chooses senders for the rest. Returns whether there is any.
    pub(crate) fn ask(&mut self, wants: Vec<Want>, sink: &mut dyn PartSink) -> bool {
        self.retry = wants;
        self.take_own(sink);
        self.assign()
    }

    /// Expects deliveries that are known to all ranks.
    pub(crate) fn expect(
        &mut self,
        wants: Vec<Want>,
        deliveries: &[Delivery],
        sink: &mut dyn PartSink,
    ) {
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
            let good = self.find(&want.part).is_some_and(|(copy, place, sum)| {
                sink.put(&want, Payload::Packed(&copy.bytes()[place]), sum, self.spares)
            });
            if !good {
                self.bad_copies += 1;
                want.tried.push(self.own);
                self.retry.push(want);
            }
        }
    }

    /// Chooses senders for everything that is left. Returns whether there is anything to send.
    fn assign(&mut self) -> bool {
        let mut choice = SenderChoice::default();
        for want in std::mem::take(&mut self.retry) {
            let part = want.part;
            let mut candidates = self.generation.holders(part.range, self.roster);
            candidates.retain(|rank| *rank != self.own && !want.tried.contains(rank));
            match choice.choose(self.own, part.range, &candidates, part.len) {
                Some(sender) => {
                    let delivery = Delivery { sender, requester: self.own, part };
                    self.pending.push((want, delivery));
                }
                None => self.lost.push(want),
            }
        }
        !self.pending.is_empty()
    }

    /// Brings everything that can be had. `any` says whether any rank wants something. With `known`, the deliveries
    /// of the first attempt are known to all.
    pub(crate) fn run(
        &mut self,
        link: &mut Link,
        any: bool,
        known: Option<&[Delivery]>,
        sink: &mut dyn PartSink,
    ) -> Result<()> {
        if let Some(all) = known {
            let serving = all.iter().filter(|delivery| delivery.sender == self.own).copied();
            if !all.is_empty() {
                self.attempt(link, serving.collect(), sink)?;
            }
        }
        let mut more = any;
        // Parts of which a list is known may have failed on any rank.
        if known.is_some() {
            more = self.any_more(link)?;
        }
        while more {
            let serving = self.requests(link)?;
            self.attempt(link, serving, sink)?;
            more = self.any_more(link)?;
        }
        Ok(())
    }

    /// Whether any rank wants more.
    fn any_more(&mut self, link: &mut Link) -> Result<bool> {
        let mut more = [u64::from(self.assign())];
        link.reduce(Reduction::Max, &mut more)?;
        Ok(more[0] > 0)
    }

    /// Sends requests and returns those of others.
    fn requests(&self, link: &mut Link) -> Result<VecDeque<Delivery>> {
        let mut to: HashMap<Rank, Vec<u8>> = HashMap::new();
        for (_, delivery) in &self.pending {
            delivery.part.write(to.entry(delivery.sender).or_default());
        }
        let mut serving = VecDeque::new();
        for (requester, list) in link.exchange_lists(to.into_iter().collect())? {
            let parts = list.as_chunks::<24>().0.iter().filter_map(|entry| RangeBytes::read(entry));
            serving.extend(parts.map(|part| Delivery { sender: self.own, requester, part }));
        }
        Ok(serving)
    }

    fn attempt(
        &mut self,
        link: &mut Link,
        serving: VecDeque<Delivery>,
        sink: &mut dyn PartSink,
    ) -> Result<()> {
        let mut pending: HashMap<(Rank, RangeBytes), Vec<Want>> = HashMap::new();
        for (want, delivery) in self.pending.drain(..).rev() {
            pending.entry((delivery.sender, delivery.part)).or_default().push(want);
        }
        let (queue, inbox) = Default::default();
        let mut mail = FetchMail { fetch: self, serving, pending, sink, queue, inbox };
        link.exchange(&mut mail)?;
        let FetchMail { pending, inbox, .. } = mail;
        self.bad_copies += u64::from(inbox.finish().is_err());
        for ((sender, _), wants) in pending {
            for mut want in wants {
                want.tried.push(sender);
                self.retry.push(want);
            }
        }
        self.retry.sort_by_key(|want| (want.part, want.to));
        Ok(())
    }

    /// The place of a part in a copy that this rank holds, with the checksum of its bytes. A whole range goes with the
    /// checksum that it came with; of a part the whole range is verified first.
    fn find(&mut self, part: &RangeBytes) -> Option<(&'a Arc<RangeCopy>, Range<usize>, u64)> {
        let copy = self.generation.held.get(&part.range)?;
        let place = part.at as usize..part.at.checked_add(part.len)? as usize;
        let bytes = copy.bytes().get(place.clone())?;
        if bytes.len() == copy.bytes().len() {
            return Some((copy, place, copy.checksum()));
        }
        let intact = *self.intact.entry(part.range).or_insert_with(|| copy.is_intact());
        intact.then(|| (copy, place, checksum(bytes)))
    }
}

/// One attempt: parts for others, which share the memory of the copies, and parts that arrive.
struct FetchMail<'f, 'a> {
    fetch: &'f mut Fetch<'a>,
    serving: VecDeque<Delivery>,
    pending: HashMap<(Rank, RangeBytes), Vec<Want>>,
    sink: &'f mut dyn PartSink,
    queue: VecDeque<(Rank, Bytes)>,
    inbox: Inbox,
}

impl Mailbox for FetchMail<'_, '_> {
    fn next(&mut self, _: &mut dyn MessageMemory) -> Option<(Rank, Bytes)> {
        if self.queue.is_empty() {
            let (mut outbox, mut bytes) = (Outbox::default(), 0);
            while bytes < PARCEL
                && let Some(Delivery { requester, part, .. }) = self.serving.pop_front()
            {
                let found = self.fetch.find(&part);
                let shared = found.map(|(copy, place, sum)| (copy.share().slice(place), sum));
                bytes += part.len;
                outbox.add(requester, part, shared);
            }
            outbox.seal(&mut self.queue);
        }
        self.queue.pop_front()
    }

    fn room(&mut self, _from: Rank, len: usize) -> MessageRoom {
        match (len as u64) < PACKED {
            true => MessageRoom::new(len),
            false => self.fetch.spares.lend(len),
        }
    }

    fn take(&mut self, from: Rank, message: MessageRoom) {
        let FetchMail { fetch, pending, sink, inbox, .. } = self;
        let received = inbox.receive(from, message, |part, sum, payload| {
            let Some(mut want) = pending.get_mut(&(from, part)).and_then(Vec::pop) else {
                return Ok(());
            };
            let there = !matches!(payload, Payload::Missing);
            if !there || !sink.put(&want, payload, sum, fetch.spares) {
                fetch.bad_copies += 1;
                want.tried.push(from);
                fetch.retry.push(want);
            }
            Ok(())
        });
        // Parts of a malformed message are asked for elsewhere.
        fetch.bad_copies += u64::from(received.is_err());
        // Lists are not counted, see `room`.
        let done = inbox.done.drain(..).filter(|room| room.bytes.capacity() as u64 >= PACKED);
        done.for_each(|room| fetch.spares.give(room));
    }
}

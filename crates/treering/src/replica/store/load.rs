//! Loading blocks: any ranges, by any rank.
//!
//! With [`ReplicaStore::load`] each rank knows its own requests only and asks the holders. With
//! [`ReplicaStore::load_all`] all ranks know all requests, and nobody asks.
//!
//! Law: the bytes come in the order of the requests; the bytes of lost blocks are zero, and the blocks are named.

use super::ReplicaStore;
use super::checksum::{checksum, copy_summed};
use super::fetch::{Delivery, Fetch, PartSink, Want};
use super::generation::{Generation, Roster};
use super::link::{CallOpening, StoreCall};
use super::parcel::Payload;
use super::senders::SenderChoice;
use super::spares::Spares;
use crate::array::Rank;
use crate::error::{Error, Result};
use std::ops::Range;

/// Requested blocks and the ones among them that are lost. Returned by [`ReplicaStore::load`]. [`ReplicaStore`] has an
/// example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedBlocks {
    /// The bytes of the requested blocks, in the order of the requests; zero where they are lost.
    pub bytes: Vec<u8>,
    /// The requested blocks that are lost for good, in ascending order.
    pub lost: Vec<Range<u64>>,
    /// Copies that were found damaged or missing on the way; other copies were used in their place. See
    /// [`ReplicaStore::scrub`].
    pub bad_copies: u64,
}

/// Copies parts to their places in the caller's memory.
struct Output<'o>(&'o mut [u8]);

impl PartSink for Output<'_> {
    fn put(&mut self, want: &Want, payload: Payload<'_>, sum: u64, spares: &mut Spares) -> bool {
        let place = &mut self.0[want.to..want.to + want.part.len as usize];
        let good =
            payload.bytes().len() == place.len() && copy_summed(payload.bytes(), place) == sum;
        if let Payload::Whole(room) = payload {
            spares.give(room);
        }
        good
    }
}

impl ReplicaStore {
    /// Loads the blocks that this rank requests, from the newest generation; collective. Blocks of which no rank has an
    /// intact copy are no error: [`LoadedBlocks::lost`] names them.
    pub fn load(&mut self, requests: &[Range<u64>]) -> Result<LoadedBlocks> {
        self.load_checked(Ok(requests.to_vec()))
    }

    /// Loads blocks as [`ReplicaStore::load`] does, into memory of the caller, which must be as long as the requested
    /// blocks. `bytes` of the result is empty.
    pub fn load_into(&mut self, requests: &[Range<u64>], into: &mut [u8]) -> Result<LoadedBlocks> {
        let wants = self.submitted().and_then(|generation| wants(generation, requests));
        let wants = wants.and_then(|(wants, len)| match len == into.len() {
            true => Ok(wants),
            false => Err(Error::usage(format!(
                "the requested blocks are {len} bytes, but the memory for them is {} bytes",
                into.len()
            ))),
        });
        self.load_wants(wants, into)
    }

    /// Loads blocks; the requests may be an error, which all ranks return.
    pub(crate) fn load_checked(
        &mut self,
        requests: Result<Vec<Range<u64>>>,
    ) -> Result<LoadedBlocks> {
        let wants = requests.and_then(|requests| wants(self.submitted()?, &requests));
        let mut bytes = vec![0; wants.as_ref().map_or(0, |(_, len)| *len)];
        let loaded = self.load_wants(wants.map(|(wants, _)| wants), &mut bytes)?;
        Ok(LoadedBlocks { bytes, ..loaded })
    }

    fn load_wants(&mut self, wants: Result<Vec<Want>>, into: &mut [u8]) -> Result<LoadedBlocks> {
        let known = self.knowledge();
        let mut sink = Output(into);
        let ReplicaStore { link, roster, spares, current, .. } = self;
        let generation = current.as_ref();
        let mut fetch = generation.map(|it| Fetch::new(it, roster, link.rank(), spares));
        let ask = |wants| fetch.as_mut().is_some_and(|fetch| fetch.ask(wants, &mut sink));
        let any = wants.map(ask).map(|any| [any.into(), 0]);
        let opening = CallOpening { call: StoreCall::Load, known: known.agreed, same: (0, "") };
        let opened = link.open(opening, any)?;
        let mut outcome = (Vec::new(), 0);
        if let Some(mut fetch) = fetch {
            fetch.run(link, opened.largest[0] > 0, None, &mut sink)?;
            outcome = (fetch.lost, fetch.bad_copies);
        }
        self.free_known(known, opened.oldest_known);
        self.loaded(into, outcome)
    }

    /// Loads a list of requests that all ranks know, each for the rank that it names; collective. This rank gets the
    /// blocks of its own requests, in their order. No requests are sent.
    pub fn load_all(&mut self, requests: &[(Rank, Range<u64>)]) -> Result<LoadedBlocks> {
        let (own, known) = (self.link.rank(), self.knowledge());
        let mine = requests.iter().filter(|(rank, _)| *rank == own);
        let mine: Vec<Range<u64>> = mine.map(|(_, blocks)| blocks.clone()).collect();
        let planned = self.submitted().and_then(|generation| {
            let deliveries = plan_all(generation, &self.roster, requests)?;
            Ok((deliveries, wants(generation, &mine)?))
        });
        let opening = CallOpening {
            call: StoreCall::LoadAll,
            known: known.agreed,
            same: (digest(requests), "the list of requests"),
        };
        let checked = planned.as_ref().map(|_| [0; 2]).map_err(Error::clone);
        let opened = self.link.open(opening, checked)?;
        let (deliveries, (wants, len)) = planned?;
        let mut bytes = vec![0; len];
        let mut sink = Output(&mut bytes);
        let ReplicaStore { link, roster, spares, current, .. } = self;
        let mut outcome = (Vec::new(), 0);
        if let Some(generation) = current {
            let mut fetch = Fetch::new(generation, roster, own, spares);
            fetch.expect(wants, &deliveries, &mut sink);
            fetch.run(link, false, Some(&deliveries), &mut sink)?;
            outcome = (fetch.lost, fetch.bad_copies);
        }
        self.free_known(known, opened.oldest_known);
        let loaded = self.loaded(&mut bytes, outcome)?;
        Ok(LoadedBlocks { bytes, ..loaded })
    }

    fn loaded(
        &self,
        bytes: &mut [u8],
        (lost, bad_copies): (Vec<Want>, u64),
    ) -> Result<LoadedBlocks> {
        let place = |want: &Want| want.to..want.to + want.part.len as usize;
        lost.iter().for_each(|want| bytes[place(want)].fill(0));
        let lost = self.submitted()?.block_ranges(lost.iter().map(|want| want.part));
        Ok(LoadedBlocks { bytes: Vec::new(), lost, bad_copies })
    }
}

/// The parts of requested blocks, and the bytes of all.
fn wants(generation: &Generation, requests: &[Range<u64>]) -> Result<(Vec<Want>, usize)> {
    let mut to = 0;
    let parts = generation.places.placement().parts(requests)?;
    let want = |part| {
        let part = generation.bytes_of(&part);
        let want = Want { part, to, tried: Vec::new() };
        to += part.len as usize;
        want
    };
    let wants = parts.into_iter().map(want).collect();
    Ok((wants, to))
}

/// Deliveries of all ranks, from a list that all ranks know.
fn plan_all(
    generation: &Generation,
    roster: &Roster,
    requests: &[(Rank, Range<u64>)],
) -> Result<Vec<Delivery>> {
    let (mut choice, mut deliveries) = (SenderChoice::default(), Vec::new());
    for (requester, blocks) in requests {
        if requester.0 as usize >= roster.ranks.len() {
            return Err(Error::usage(format!(
                "there is no rank {requester}, but only {}",
                roster.ranks.len()
            )));
        }
        for part in generation.places.placement().parts(std::slice::from_ref(blocks))? {
            let part = generation.bytes_of(&part);
            let candidates = generation.holders(part.range, roster);
            if candidates.contains(requester) {
                continue;
            }
            if let Some(sender) = choice.choose(*requester, part.range, &candidates, part.len) {
                deliveries.push(Delivery { sender, requester: *requester, part });
            }
        }
    }
    Ok(deliveries)
}

fn digest(requests: &[(Rank, Range<u64>)]) -> u64 {
    let numbers =
        |(rank, blocks): &(Rank, Range<u64>)| [u64::from(rank.0), blocks.start, blocks.end];
    let bytes: Vec<u8> = requests.iter().flat_map(numbers).flat_map(u64::to_le_bytes).collect();
    checksum(&bytes)
}

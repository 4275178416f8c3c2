//! Making copies again that were lost with dead ranks.
//!
//! Every survivor computes the same plan (see `after_deaths`): who holds what, and who takes over. The ranges travel
//! by the same fetch as loads do, without requests. When all ranks have theirs, one reduction says so; from then on
//! the new copies count, and as many deaths as before are survived. The rule of `knowledge` decides if a rank dies
//! during that reduction.
//!
//! Law: after a remake every range that had an intact copy has min(r, living ranks) copies on different ranks.
//!
//! ReStore (Hübner et al., 2022), section IV-E and appendix.

use super::ReplicaStore;
use super::checksum::{append_summed, checksum};
use super::fetch::{Delivery, Fetch, PartSink, Want};
use super::generation::{Generation, HeldRanges, RangeCopy, Roster};
use super::link::StoreCall;
use super::parcel::{Payload, RangeBytes};
use super::spares::Spares;
use crate::array::Rank;
use crate::comm::Reduction;
use crate::error::{Error, ErrorKind, Result};
use crate::replica::after_deaths::RemakePlan;
use std::ops::Range;

/// Copies that were made again. Returned by [`ReplicaStore::remake`]; the example of [`ReplicaStore::go_on_with`] shows its
/// use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remade {
    /// Ranges that this rank holds a new copy of.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks that are lost for good, as far as this rank knows, in ascending order.
    pub lost: Vec<Range<u64>>,
}

/// Keeps whole ranges as they came.
#[derive(Default)]
pub(super) struct NewCopies {
    pub(super) copies: HeldRanges,
}

impl PartSink for NewCopies {
    fn put(&mut self, want: &Want, payload: Payload<'_>, sum: u64, spares: &mut Spares) -> bool {
        let (room, found) = match payload {
            Payload::Whole(room) => {
                let found = checksum(&room.bytes);
                (room, found)
            }
            other => {
                let mut room = spares.lend(other.bytes().len());
                let found = append_summed(other.bytes(), &mut room.bytes);
                (room, found)
            }
        };
        let good = found == sum && room.bytes.len() as u64 == want.part.len;
        match good {
            true => drop(self.copies.insert(want.part.range, RangeCopy::new(room, sum))),
            false => spares.give(room),
        }
        good
    }
}

impl ReplicaStore {
    /// Makes copies again that were lost with dead ranks; collective. Afterwards r − 1 further deaths are survived,
    /// if there are r ranks left.
    pub fn remake(&mut self) -> Result<Remade> {
        self.finish()?;
        let planned = self.plan_remake();
        let own = planned.as_ref().map(|_| [0; 2]).map_err(Error::clone);
        self.open(StoreCall::Remake, (0, ""), own)?;
        let (plan, deliveries, new) = planned?;
        let used = self.gauge.now() - self.spares.bytes();
        // New copies are made in spare buffers.
        self.spares.trim(self.settings.budget.saturating_sub(used).saturating_sub(new));
        let ReplicaStore { link, roster, spares, current, .. } = self;
        let Some(generation) = current else { return Ok(Remade::default()) };
        let mut sink = NewCopies::default();
        let mut failed = Vec::new();
        if generation.deaths > 0 {
            let own = link.rank();
            let mut fetch = Fetch::new(generation, roster, own, spares);
            let mine = deliveries.iter().filter(|delivery| delivery.requester == own);
            let wants = mine.map(|delivery| Want { part: delivery.part, to: 0, tried: Vec::new() });
            fetch.expect(wants.collect(), &deliveries, &mut sink);
            fetch.run(link, false, Some(&deliveries), &mut sink)?;
            failed = fetch.lost;
        }
        let whole = |range| RangeBytes { range, at: 0, len: generation.range_len(range) };
        let lost =
            plan.lost.iter().map(|range| whole(*range)).chain(failed.iter().map(|want| want.part));
        let remade = Remade {
            ranges: sink.copies.len() as u64,
            bytes: sink.copies.values().map(|copy| copy.bytes().len() as u64).sum(),
            lost: generation.block_ranges(lost),
        };
        let copies = sink.copies;
        if generation.deaths > 0 {
            if let Err(error) = link.reduce(Reduction::Max, &mut [0]) {
                // Another rank may know that they count.
                self.remade = Some(copies);
                return Err(error);
            }
            generation.remade(copies);
        }
        Ok(remade)
    }

    /// The plan of all ranks and the bytes of this one's part, if it has room for them.
    fn plan_remake(&self) -> Result<(RemakePlan, Vec<Delivery>, u64)> {
        let generation = self.submitted()?;
        let plan = generation.places.plan();
        let deliveries = deliveries(generation, &self.roster, &plan);
        let own = deliveries.iter().filter(|delivery| delivery.requester == self.link.rank());
        let new: u64 = own.map(|delivery| delivery.part.len).sum();
        let (used, budget) = (self.gauge.now() - self.spares.bytes(), self.settings.budget);
        match used.saturating_add(new) <= budget {
            true => Ok((plan, deliveries, new)),
            false => Err(Error::new(
                ErrorKind::Limit,
                format!(
                    "rank {} would use {} bytes for replicas that are made again, {used} in use and {new} new, but \
                     the budget is {budget}",
                    self.link.rank(),
                    used.saturating_add(new)
                ),
            )
            .hint("raise the budget, or submit again on the ranks that are left")),
        }
    }
}

fn deliveries(generation: &Generation, roster: &Roster, plan: &RemakePlan) -> Vec<Delivery> {
    let delivery = |transfer: &crate::replica::after_deaths::CopyTransfer| {
        let sender: Rank = generation.present(transfer.from, roster)?;
        let requester: Rank = generation.present(transfer.to, roster)?;
        let len = generation.range_len(transfer.range);
        let part = RangeBytes { range: transfer.range, at: 0, len };
        Some(Delivery { sender, requester, part })
    };
    plan.transfers.iter().filter_map(delivery).collect()
}

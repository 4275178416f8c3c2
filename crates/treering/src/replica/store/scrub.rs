//! Scrub: every copy is verified; a bad one is replaced from another holder, or reported.
//!
//! Law: after a scrub a rank's copies are intact, except for those of blocks that it names as lost.

use super::ReplicaStore;
use super::fetch::{Fetch, Want};
use super::generation::{Generation, StartRank};
use super::link::StoreCall;
use super::parcel::RangeBytes;
use super::remake::NewCopies;
use crate::error::{Error, Result};
use crate::replica::placement::RangeId;
use std::ops::Range;

/// Copies of this rank that were verified. Returned by [`ReplicaStore::scrub`], which has an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Ranges that were verified.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks whose copy here was damaged or missing, and was replaced.
    pub repaired: Vec<Range<u64>>,
    /// Blocks whose copy here is damaged or missing, and of which no holder has an intact copy.
    pub lost: Vec<Range<u64>>,
}

impl ReplicaStore {
    /// Verifies all copies and replaces bad ones; collective. The result is that of this rank's copies.
    ///
    /// ```
    /// use treering::{ReplicaSettings, ReplicaStore, ThreadRanks};
    /// let ends = ThreadRanks::new(2).run(|comm| -> treering::Result<()> {
    ///     let first = 100 * u64::from(comm.rank().0);
    ///     let mut store = ReplicaStore::new(comm, 2, ReplicaSettings::default())?;
    ///     store.submit(7, &[1; 6400], first)?;
    ///     let scrubbed = store.scrub()?;
    ///     assert_eq!((scrubbed.bytes, scrubbed.repaired.len()), (12_800, 0)); // each rank has a copy of everything
    ///     assert!(store.memory().now >= scrubbed.bytes);
    ///     assert!(store.traffic().bytes_sent >= 6400);
    ///     Ok(())
    /// });
    /// # ends.into_iter().for_each(|end| end.done().unwrap().unwrap());
    /// ```
    pub fn scrub(&mut self) -> Result<Scrubbed> {
        self.finish()?;
        let own_rank = self.link.rank();
        let bad = self.submitted().map(|generation| bad_ranges(generation, self.own));
        let want = |part| Want { part, to: 0, tried: vec![own_rank] };
        let ReplicaStore { link, roster, spares, current, .. } = self;
        let mut sink = NewCopies::default();
        let mut fetch =
            current.as_ref().map(|generation| Fetch::new(generation, roster, own_rank, spares));
        let any = bad.as_ref().map_err(Error::clone).map(|bad| {
            let wants = bad.iter().copied().map(want).collect();
            [fetch.as_mut().is_some_and(|fetch| fetch.ask(wants, &mut sink)).into(), 0]
        });
        let known = current.as_ref().map_or(0, |generation| generation.number.0);
        let opening = super::CallOpening { call: StoreCall::Scrub, known, same: (0, "") };
        let opened = link.open(opening, any)?;
        let mut lost = Vec::new();
        if let Some(mut fetch) = fetch {
            fetch.run(link, opened.largest[0] > 0, None, &mut sink)?;
            lost = fetch.lost;
        }
        let copies = sink.copies;
        let Some(generation) = current else { return Ok(Scrubbed::default()) };
        let repaired = bad?.into_iter().filter(|part| copies.contains_key(&part.range));
        let repaired = generation.block_ranges(repaired);
        let lost = generation.block_ranges(lost.iter().map(|want| want.part));
        generation.held.extend(copies);
        let bytes = generation.held.values().map(|copy| copy.bytes().len() as u64).sum();
        let ranges = generation.held.len() as u64;
        let agreed = self.knowledge();
        self.free_known(agreed, opened.oldest_known);
        Ok(Scrubbed { ranges, bytes, repaired, lost })
    }
}

/// Ranges that a rank is to hold, but has no intact copy of.
fn bad_ranges(generation: &Generation, own: StartRank) -> Vec<RangeBytes> {
    let placed = generation.original(own).map(|own| generation.places.ranges_of(own));
    let good = |range: &RangeId| generation.held.get(range).is_some_and(|copy| copy.is_intact());
    let bad = placed.unwrap_or_default().into_iter().filter(|range| !good(range));
    bad.map(|range| RangeBytes { range, at: 0, len: generation.range_len(range) }).collect()
}

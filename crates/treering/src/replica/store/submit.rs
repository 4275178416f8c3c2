//! Submitting a set of blocks: at once, or piece by piece behind the program.
//!
//! The ranks find the number of blocks and check their shares. Then each sends the parts of its ranges to their
//! holders, in one sparse exchange, or in one per call of `progress` (see `submit_mail`). A holder verifies every part
//! by its checksum; a range that comes whole is kept as it came. When all exchanges are done, one reduction tells
//! whether every rank has verified everything; if so, the generation replaces the one before.
//!
//! Laws: the work per rank is per range, never per block. Until a generation is agreed, the one before serves all
//! loads. All ranks make the same number of exchanges: it follows from the largest share.

use super::coming::Coming;
use super::gauge::Metered;
use super::generation::{Generation, GenerationNumber, StartRank, check_shares};
use super::link::StoreCall;
use super::named::Directory;
use super::submit_mail::{SubmitData, SubmitMail};
use super::variables::Streams;
use super::{ReplicaSettings, ReplicaStore};
use crate::comm::{Reduction, garbled};
use crate::error::{Error, ErrorKind, Result};
use crate::replica::after_deaths::AfterDeaths;
use crate::replica::placement::{FirstCopy, ReplicaLayout, ReplicaPlacement};
use crate::replica::topology::Topology;
use std::collections::HashMap;
use std::sync::Arc;

/// Progress of an asynchronous submit. Returned by [`ReplicaStore::progress`]; the example of
/// [`ReplicaStore::begin_submit`] shows its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmitProgress {
    /// Calls of [`ReplicaStore::progress`] that are left; 0 if nothing is under way.
    pub rounds_left: u64,
    /// The generation that this call has completed.
    pub completed: Option<GenerationNumber>,
}

/// Numbers of a submit that all ranks have agreed on.
pub(crate) struct SubmitPlan {
    pub(crate) blocks: u64,
    /// The largest share of a rank, in blocks.
    pub(crate) most: u64,
    /// The most bytes that a rank uses before the submit.
    pub(crate) used: u64,
    /// The first block of every rank, if first copies stay.
    pub(crate) starts: Vec<u64>,
}

impl ReplicaStore {
    /// Submits all blocks: `bytes` are those of this rank, from block `first` on; collective. Ranks may submit
    /// different numbers of blocks, also none. `tag` is a number of the caller's, such as its step, the same on all
    /// ranks. An asynchronous submit that is under way is completed first.
    ///
    /// **Waiting**: returns when all ranks have their copies, without a time limit. **Errors**: after an error, the generation
    /// before still serves.
    ///
    /// ```
    /// use treering::{GenerationNumber, ReplicaSettings, ReplicaStore, StartRank, ThreadRanks};
    /// let ends = ThreadRanks::new(2).run(|comm| -> treering::Result<()> {
    ///     let first = 10 * u64::from(comm.rank().0); // rank 0 has blocks 0 to 9, rank 1 has blocks 10 to 19
    ///     let mut store = ReplicaStore::new(comm, 2, ReplicaSettings::default())?;
    ///     assert_eq!(store.submit(7, &[1; 640], first)?, GenerationNumber(1)); // blocks of 64 bytes
    ///     let newest = store.newest().expect("a generation was submitted");
    ///     assert_eq!((newest.tag, newest.blocks, newest.copies), (7, 20, 2));
    ///     assert_eq!(newest.members, [StartRank(0), StartRank(1)]);
    ///     Ok(())
    /// });
    /// # ends.into_iter().for_each(|end| end.done().unwrap().unwrap());
    /// ```
    pub fn submit(&mut self, tag: u64, bytes: &[u8], first: u64) -> Result<GenerationNumber> {
        self.submit_slices(tag, &[bytes], first, None)
    }

    /// Submits the blocks of this rank in several slices, each of them of whole blocks.
    pub(crate) fn submit_slices(
        &mut self,
        tag: u64,
        slices: &[&[u8]],
        first: u64,
        streams: Option<Arc<Streams>>,
    ) -> Result<GenerationNumber> {
        self.finish()?;
        let len = slices.iter().map(|slice| slice.len()).sum();
        let mut coming = self.begin(StoreCall::Submit, tag, len, first, 0)?;
        coming.generation.streams = streams;
        coming.lie_in(slices);
        self.submit_at_once(coming, SubmitData::Borrowed(slices))
    }

    /// Begins to submit a snapshot, which [`ReplicaStore::progress`] moves piece by piece; collective. It is completed
    /// by the next submit at the latest.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use treering::{ReplicaSettings, ReplicaStore, ThreadRanks};
    /// let ends = ThreadRanks::new(2).run(|comm| -> treering::Result<()> {
    ///     let first = 100 * u64::from(comm.rank().0);
    ///     let settings = ReplicaSettings { piece: 1024, ..ReplicaSettings::default() };
    ///     let mut store = ReplicaStore::new(comm, 2, settings)?;
    ///     store.begin_submit(7, Arc::new(vec![1; 6400]), first)?;
    ///     let completed = loop {
    ///         // The program works on, and moves a piece now and then.
    ///         let progress = store.progress()?;
    ///         if progress.rounds_left == 0 {
    ///             break progress.completed;
    ///         }
    ///     };
    ///     assert_eq!(completed, store.newest().map(|newest| newest.number));
    ///     Ok(())
    /// });
    /// # ends.into_iter().for_each(|end| end.done().unwrap().unwrap());
    /// ```
    pub fn begin_submit(&mut self, tag: u64, snapshot: Arc<Vec<u8>>, first: u64) -> Result<()> {
        self.finish()?;
        let len = snapshot.len();
        let coming = self.begin(StoreCall::Submit, tag, len, first, len as u64)?;
        self.coming = Some((coming, snapshot));
        Ok(())
    }

    /// Moves one piece of the submit that is under way, if there is one; collective.
    pub fn progress(&mut self) -> Result<SubmitProgress> {
        let Some((mut coming, snapshot)) = self.coming.take() else {
            return Ok(SubmitProgress { rounds_left: 0, completed: None });
        };
        self.round(&mut coming, SubmitData::shared(&snapshot), self.settings.piece)?;
        coming.rounds -= 1;
        let rounds_left = coming.rounds;
        let completed = match rounds_left {
            0 => {
                let named = coming.generation.directory.is_some();
                let number = self.switch(coming)?;
                if let Some(buffer) = Arc::try_unwrap(snapshot).ok().filter(|_| named) {
                    self.keep_serialised(buffer);
                }
                Some(number)
            }
            _ => {
                self.coming = Some((coming, snapshot));
                None
            }
        };
        Ok(SubmitProgress { rounds_left, completed })
    }

    /// Sends and receives everything in one exchange.
    pub(crate) fn submit_at_once(
        &mut self,
        mut coming: Coming,
        data: SubmitData<'_>,
    ) -> Result<GenerationNumber> {
        self.round(&mut coming, data, u64::MAX)?;
        self.switch(coming)
    }

    /// Completes the submit that is under way.
    pub(crate) fn finish(&mut self) -> Result<()> {
        while self.coming.is_some() {
            self.progress()?;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        call: StoreCall,
        tag: u64,
        len: usize,
        first: u64,
        snapshot: u64,
    ) -> Result<Coming> {
        let snapshot = self.gauge.hold(snapshot);
        let size = self.settings.block_size;
        let own = match (len as u64).is_multiple_of(size) {
            true => Ok([self.last_number + 1, 0]),
            false => Err(Error::usage(format!(
                "{len} bytes are not a whole number of blocks of {size} bytes"
            ))
            .hint("pad the last block, or submit named pieces")),
        };
        let opened = self.open(call, (tag, "the tag of a submit"), own)?;
        self.prepare(opened.largest[0], tag, len, first, None, snapshot)
    }

    /// Plans a generation after its call was opened.
    pub(crate) fn prepare(
        &mut self,
        number: u64,
        tag: u64,
        len: usize,
        first: u64,
        directory: Option<Arc<Directory>>,
        snapshot: Metered,
    ) -> Result<Coming> {
        self.last_number = number;
        let blocks = len as u64 / self.settings.block_size;
        let plan = self.agree_on_shares(first, blocks)?;
        let places = self.place(&plan)?;
        let settings = &self.settings;
        let size = settings.block_size;
        let most_own = if settings.keep_own { plan.most } else { 0 };
        let range = settings.range_blocks * size;
        let new = places.placement().most_ranges().saturating_mul(range);
        let new = new.min(plan.blocks * size).saturating_add(most_own * size);
        // Small parts come packed, and are copied.
        let new = new.saturating_add(new.min(settings.piece));
        self.check_budget(plan.used, new)?;
        let generation = Generation {
            number: GenerationNumber(number),
            tag,
            members: self.roster.ranks.clone().into(),
            places,
            remakes: 0,
            deaths: 0,
            block_size: size,
            held: HashMap::new(),
            directory,
            streams: None,
        };
        let own = generation.original(self.own).ok_or_else(garbled)?;
        let missing = generation.places.placement().ranges_of(own).count() as u64;
        let mut coming = Coming::new(generation, Some(missing), snapshot);
        // The first block of a rank that submits nothing means nothing.
        if blocks > 0 {
            coming.add_parts(first..first + blocks, 0, self.settings.piece)?;
        }
        coming.rounds = self.rounds(plan.most);
        Ok(coming)
    }

    /// The rounds that the largest share needs.
    pub(crate) fn rounds(&self, most: u64) -> u64 {
        let copies = u64::from(self.copies).min(self.roster.ranks.len() as u64);
        most.saturating_mul(self.settings.block_size).saturating_mul(copies) / self.settings.piece
            + 1
    }

    fn agree_on_shares(&mut self, first: u64, blocks: u64) -> Result<SubmitPlan> {
        let used = self.gauge.now() - self.spares.bytes();
        let own: Vec<u8> = [first, blocks, used].iter().flat_map(|n| n.to_le_bytes()).collect();
        let keep_own = self.settings.keep_own;
        let decided = self.link.decide(&own, |all| {
            let all: Vec<[u64; 3]> =
                all.iter().map(|bytes| numbers(bytes)).collect::<Result<_>>()?;
            let shares: Vec<(u64, u64)> =
                all.iter().map(|[first, count, _]| (*first, *count)).collect();
            let blocks = check_shares(&shares, true)?;
            let most = |at: usize| all.iter().map(|share| share[at]).max().unwrap_or(0);
            let mut plan = vec![blocks, most(1), most(2)];
            if keep_own {
                plan.extend(starts(&shares, blocks)?);
            }
            Ok(plan.iter().flat_map(|n| n.to_le_bytes()).collect())
        })?;
        let [blocks, most, used] = numbers(&decided)?;
        let starts = decided.as_chunks::<8>().0.iter().skip(3).map(|n| u64::from_le_bytes(*n));
        Ok(SubmitPlan { blocks, most, used, starts: starts.collect() })
    }

    /// The distribution of a generation; that of the current one if nothing has changed.
    fn place(&self, plan: &SubmitPlan) -> Result<Arc<AfterDeaths>> {
        let ReplicaSettings { range_blocks, seed, keep_own, probing, .. } = self.settings;
        let first_copy = match keep_own {
            true => FirstCopy::Submitter { starts: plan.starts.clone() },
            false => FirstCopy::Permuted,
        };
        let (blocks, copies) = (plan.blocks, self.copies);
        let layout = ReplicaLayout { blocks, range_blocks, copies, seed, first_copy };
        if let Some(current) = &self.current
            && current.members[..] == self.roster.ranks[..]
            && *current.places.placement().layout() == layout
        {
            return Ok(current.places.clone());
        }
        let place = |rank: &StartRank| {
            let place = self.places.get(rank.0 as usize);
            place.map_or(("", ""), |(node, domain)| (&node[..], &domain[..]))
        };
        let topology = Topology::named(self.roster.ranks.iter().map(place))?;
        let placement = ReplicaPlacement::new(layout, topology)?;
        AfterDeaths::new(placement, probing, seed.unwrap_or(0)).map(Arc::new)
    }

    /// Refuses to use more than the budget; the numbers are the same on all ranks.
    pub(crate) fn check_budget(&mut self, used: u64, new: u64) -> Result<()> {
        let budget = self.settings.budget;
        let needed = used.saturating_add(new);
        if needed > budget {
            return Err(Error::new(
                ErrorKind::Limit,
                format!(
                    "a rank would use up to {needed} bytes for replicas, {used} in use and {new} new, \
                     but the budget is {budget}"
                ),
            )
            .hint("raise the budget, or keep fewer copies"));
        }
        self.spares.begin();
        self.spares.trim(budget - needed);
        Ok(())
    }

    /// Sends and receives parts, up to this many bytes with all copies.
    fn round(&mut self, coming: &mut Coming, data: SubmitData<'_>, bytes: u64) -> Result<()> {
        let ReplicaStore { link, roster, spares, current, settings, .. } = self;
        let (known, sizes) = ((current.as_ref(), &*roster), (bytes, settings.piece));
        let mut mail = SubmitMail::new(coming, data, known, link.rank(), spares, sizes);
        link.exchange(&mut mail)?;
        mail.finish();
        Ok(())
    }

    /// Agrees that a generation is complete everywhere, and lets it replace the one before.
    pub(crate) fn switch(&mut self, mut coming: Coming) -> Result<GenerationNumber> {
        let (whole, trouble) = (coming.missing.is_some(), coming.complete().err());
        let mut bad = [u64::from(trouble.is_some())];
        let agreed = self.link.reduce(Reduction::Max, &mut bad);
        let generation = coming.generation;
        if let Err(error) = agreed {
            // Another rank may know that it counts.
            self.complete = trouble.is_none().then_some(generation);
            return Err(error);
        }
        if bad[0] > 0 {
            return Err(self.link.refusal(trouble));
        }
        let number = generation.number;
        let constant = generation.streams.as_ref().is_some_and(|streams| streams.mostly_constant);
        self.older.extend(self.current.replace(generation));
        self.remade = None;
        if whole && self.settings.repeated && !constant {
            self.prepare_next();
        }
        Ok(number)
    }

    /// Prepares the memory of the next submit, as far as spare buffers and generations before this one do not provide it
    /// and the budget allows.
    fn prepare_next(&mut self) {
        let Some(current) = &self.current else { return };
        let lengths = |generation: &Generation| -> Vec<usize> {
            generation.held.values().map(|copy| copy.bytes().len()).collect()
        };
        let older: usize = self.older.iter().flat_map(lengths).sum();
        let mut there = self.spares.for_ranges() + older as u64;
        let mut room = self.settings.budget.saturating_sub(self.gauge.now());
        let mut missing = lengths(current);
        missing.retain(|len| {
            let len = *len as u64;
            let (provided, fits) = (there >= len, room >= len);
            there = there.saturating_sub(len);
            if !provided && fits {
                room -= len;
            }
            !provided && fits
        });
        self.spares.prepare(missing.into_iter());
    }
}

/// Numbers at the start of a message.
pub(crate) fn numbers<const N: usize>(bytes: &[u8]) -> Result<[u64; N]> {
    let all = bytes.as_chunks::<8>().0;
    let first = all.get(..N).ok_or_else(garbled)?;
    let mut numbers = [0; N];
    numbers.iter_mut().zip(first).for_each(|(number, bytes)| *number = u64::from_le_bytes(*bytes));
    Ok(numbers)
}

/// The first block of every rank, and the number of blocks.
fn starts(shares: &[(u64, u64)], blocks: u64) -> Result<Vec<u64>> {
    let (mut starts, mut end) = (Vec::with_capacity(shares.len() + 1), 0);
    for (rank, (first, count)) in shares.iter().enumerate() {
        if *count > 0 && *first != end {
            return Err(Error::usage(format!(
                "rank {rank} submits from block {first} on, but first copies that stay need shares in the order of ranks"
            ))
            .hint("submit in the order of ranks, or turn keep_own off"));
        }
        starts.push(end);
        end += count;
    }
    starts.push(blocks);
    Ok(starts)
}

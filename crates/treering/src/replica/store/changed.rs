//! Submitting only what has changed: a generation that shares all other ranges with the one before.
//!
//! Changed blocks go to the living holders of their ranges in the current generation. A range that is changed as a
//! whole is replaced; of a range that is changed in part, each holder makes a copy and changes that. Everything else
//! is the same memory.
//!
//! Laws: the generation before stays as it was until the new one is agreed. A range without a living holder cannot be
//! changed, since there would be no place for it: the whole set must be submitted again.

use super::ReplicaStore;
use super::coming::Coming;
use super::generation::{GenerationNumber, check_shares, listed, merged};
use super::link::StoreCall;
use super::submit::numbers;
use super::submit_mail::SubmitData;
use super::variables::Streams;
use crate::error::{Error, ErrorKind, Result};
use crate::replica::placement::RangeId;
use std::ops::Range;
use std::sync::Arc;

impl ReplicaStore {
    /// Submits changed blocks of this rank, each change a first block and bytes; collective. Ranks may change
    /// different numbers of blocks, also none, but no block twice. All other blocks stay as they are.
    pub fn submit_changed(
        &mut self,
        tag: u64,
        changes: &[(u64, &[u8])],
    ) -> Result<GenerationNumber> {
        self.submit_changed_streams(tag, changes, None)
    }

    /// Submits changes if the blocks are streams of variables.
    pub(crate) fn submit_changed_streams(
        &mut self,
        tag: u64,
        changes: &[(u64, &[u8])],
        streams: Option<Arc<Streams>>,
    ) -> Result<GenerationNumber> {
        self.finish()?;
        let own = self.check_changes(changes);
        let blocks = own.as_deref().unwrap_or(&[]).to_vec();
        let largest = own.map(|_| [self.last_number + 1, 0]);
        let opened = self.open(StoreCall::SubmitChanged, (tag, "the tag of a submit"), largest)?;
        let [number, _] = opened.largest;
        let [used, new] = self.agree_on_changes(&blocks)?;
        self.check_budget(used, new)?;
        self.last_number = number;
        let mut generation = self.submitted()?.clone();
        (generation.number, generation.tag, generation.remakes) =
            (GenerationNumber(number), tag, 0);
        generation.streams = streams;
        let mut coming = Coming::new(generation, None, self.gauge.hold(0));
        for (slice, blocks) in blocks.into_iter().enumerate() {
            coming.add_parts(blocks, slice, self.settings.piece)?;
        }
        let data: Vec<&[u8]> = changes.iter().map(|(_, bytes)| *bytes).collect();
        self.submit_at_once(coming, SubmitData::Borrowed(&data))
    }

    /// The changed blocks.
    fn check_changes(&self, changes: &[(u64, &[u8])]) -> Result<Vec<Range<u64>>> {
        let size = self.settings.block_size;
        let blocks = self.submitted()?.blocks();
        let change = |(first, bytes): &(u64, &[u8])| {
            let len = bytes.len() as u64;
            if !len.is_multiple_of(size) {
                return Err(Error::usage(format!(
                    "a change of {len} bytes is not a whole number of blocks of {size} bytes"
                )));
            }
            let end = first.saturating_add(len / size);
            match end <= blocks {
                true => Ok(*first..end),
                false => Err(Error::usage(format!(
                    "blocks {first}..{end} were never submitted: expected a part of 0..{blocks}"
                ))),
            }
        };
        changes.iter().map(change).collect()
    }

    /// Finds blocks that are changed twice and ranges that are lost. Returns the largest use of memory by a rank, and
    /// a bound of what a rank will need.
    fn agree_on_changes(&mut self, own: &[Range<u64>]) -> Result<[u64; 2]> {
        let used = self.gauge.now() - self.spares.bytes();
        let copies = self.current.iter().flat_map(|generation| generation.held.values());
        let held = copies.map(|copy| copy.bytes().len() as u64).sum();
        let changes = own.iter().flat_map(|blocks| [blocks.start, blocks.end]);
        let own: Vec<u8> =
            [used, held].into_iter().chain(changes).flat_map(u64::to_le_bytes).collect();
        let generation = self.current.as_ref();
        let decided = self.link.decide(&own, |all| {
            let memory =
                all.iter().map(|bytes| numbers(bytes)).collect::<Result<Vec<[u64; 2]>>>()?;
            let mut shares = Vec::new();
            for bytes in &all {
                let changes = bytes.get(16..).unwrap_or_default().as_chunks::<16>().0;
                for change in changes {
                    let [start, end] = numbers(change)?;
                    shares.push((start, end.saturating_sub(start)));
                }
            }
            check_shares(&shares, false).map_err(|_| {
                Error::usage("a block is changed twice in one submit")
                    .hint("change each block on one rank only")
            })?;
            let Some(generation) = generation else { return Ok(vec![0; 16]) };
            let placement = generation.places.placement();
            let size = placement.layout().range_blocks;
            let ranges = merged(
                shares
                    .iter()
                    .filter(|(_, n)| *n > 0)
                    .map(|(first, n)| first / size..(first + n).div_ceil(size))
                    .collect(),
            );
            let lost = |range: &RangeId| generation.places.copies(*range).living.is_empty();
            let lost: Vec<Range<u64>> = ranges
                .iter()
                .cloned()
                .flatten()
                .map(RangeId)
                .filter(lost)
                .map(|range| placement.blocks_of(range))
                .collect();
            if !lost.is_empty() {
                return Err(Error::new(
                    ErrorKind::Lost,
                    format!("blocks {} are lost and cannot be changed", listed(&merged(lost))),
                )
                .hint("submit all blocks again"));
            }
            let count: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            let changed = count.saturating_mul(size * generation.block_size);
            // No rank gets more than has changed, nor more than it holds.
            let need = |[used, held]: [u64; 2]| [used, changed.min(held)];
            let needs = memory.into_iter().map(need);
            let most =
                needs.max_by_key(|[used, new]| used.saturating_add(*new)).unwrap_or_default();
            Ok(most.iter().flat_map(|n| n.to_le_bytes()).collect())
        })?;
        numbers(&decided)
    }
}

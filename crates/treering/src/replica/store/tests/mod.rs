//! Laws of the store, on ranks that are threads.

// A list of requests often has one range.
#![allow(clippy::single_range_in_vec_init)]

mod bad_use;
mod damage;
mod deaths;
mod generations;
mod loads;
mod programs;
mod variables;

use super::*;
use crate::array::Rank;
use crate::comm::{End, ThreadRanks};
use crate::error::ErrorKind;
use crate::replica::placement::RangeId;
use crate::testing::{PartialComm, PartialDeath};
use std::ops::Range;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Runs ranks; whoever does not end in time hangs.
pub(super) fn run<T: Send + 'static>(
    ranks: &ThreadRanks,
    program: impl Fn(Arc<dyn Comm>) -> T + Send + Sync + 'static,
) -> Vec<End<T>> {
    let (done, waiting) = channel();
    let ranks = ranks.clone();
    std::thread::spawn(move || done.send(ranks.run(program)));
    waiting.recv_timeout(Duration::from_secs(40)).expect("the ranks hang")
}

/// The results of the ranks that live; a panic is passed on.
pub(super) fn survivors<T: std::fmt::Debug>(ends: Vec<End<T>>) -> Vec<T> {
    let done = |end| match end {
        End::Done(value) => Some(value),
        End::Killed => None,
        End::Panicked(text) => panic!("a rank panicked: {text}"),
    };
    ends.into_iter().filter_map(done).collect()
}

/// Revokes, shrinks and goes on until it works.
pub(super) fn recover(store: &mut ReplicaStore, comm: &mut Arc<dyn Comm>) -> Survived {
    loop {
        comm.revoke().unwrap();
        *comm = comm.shrink().unwrap();
        match store.go_on_with(comm.clone()) {
            Ok(survived) => return survived,
            Err(error) => assert!(error.is_death(), "{error}"),
        }
    }
}

/// Small blocks and ranges, so that everything has parts.
pub(super) fn small() -> ReplicaSettings {
    ReplicaSettings { block_size: 8, range_blocks: 4, piece: 100, ..ReplicaSettings::default() }
}

/// The bytes of a block in a generation.
pub(super) fn block(tag: u64, id: u64, size: u64) -> Vec<u8> {
    (0..size).map(|at| (tag * 131 + id * 7 + at * 31 + (id >> 8)) as u8).collect()
}

pub(super) fn blocks(tag: u64, ids: Range<u64>, size: u64) -> Vec<u8> {
    ids.flat_map(|id| block(tag, id, size)).collect()
}

/// Even shares of blocks.
pub(super) fn share(rank: u32, ranks: u32, blocks: u64) -> Range<u64> {
    let start = |rank: u32| u64::from(rank) * blocks / u64::from(ranks);
    start(rank)..start(rank + 1)
}

/// Submits even shares of blocks.
pub(super) fn submit_even(
    store: &mut ReplicaStore,
    tag: u64,
    count: u64,
) -> Result<GenerationNumber> {
    let (rank, ranks) = (store.link.rank().0, store.roster.ranks.len() as u32);
    let ids = share(rank, ranks, count);
    store.submit(tag, &blocks(tag, ids.clone(), store.settings.block_size), ids.start)
}

/// The ranges of which this rank has an intact copy.
pub(super) fn intact(store: &ReplicaStore) -> Vec<RangeId> {
    let held = store.current.iter().flat_map(|generation| &generation.held);
    held.filter(|(_, copy)| copy.is_intact()).map(|(range, _)| *range).collect()
}

/// Damages one of this rank's copies.
pub(super) fn damage(store: &mut ReplicaStore, nth: usize) -> Option<RangeId> {
    let generation = store.current.as_mut()?;
    let mut ranges: Vec<RangeId> = generation.held.keys().copied().collect();
    ranges.sort_unstable();
    let range = *ranges.get(nth % ranges.len().max(1))?;
    let copy = generation.held.get_mut(&range)?;
    *copy = copy.damaged(&store.spares);
    Some(range)
}

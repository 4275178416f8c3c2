//! Work that ranks share: each does a part of it, and all learn all results.
//!
//! The law: either every rank gets the same results of all parts, or every rank that lives gets an error. A rank that
//! fails takes part in the next exchange with its error, and one that is at another place in the work than the others
//! (because it sees other data) is found out by what it says that it does. After an error nobody exchanges anything more.

use super::{Comm, Wire, garbled};
use crate::array::Rank;
use crate::error::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// One rank's end of shared work.
pub(crate) struct WorkShare<'c> {
    comm: Option<&'c dyn Comm>,
    ended: AtomicBool,
}

const DONE: u8 = 0;
const FAILED: u8 = 1;

impl<'c> WorkShare<'c> {
    /// Work that nobody shares.
    pub(crate) fn alone() -> WorkShare<'static> {
        WorkShare { comm: None, ended: AtomicBool::new(false) }
    }

    /// Work of all ranks.
    pub(crate) fn of(comm: &'c dyn Comm) -> WorkShare<'c> {
        WorkShare { comm: (comm.size() > 1).then_some(comm), ended: AtomicBool::new(false) }
    }

    /// Whether other ranks do parts of the work.
    pub(crate) fn is_shared(&self) -> bool {
        self.comm.is_some()
    }

    /// The part of this rank of items with these weights: items that follow each other.
    pub(crate) fn part(&self, weights: &[u64]) -> Range<usize> {
        match self.comm {
            None => 0..weights.len(),
            Some(comm) => part(weights, comm.rank().0, comm.size()),
        }
    }

    /// Hands this rank's results to all and gets those of all, in the order of ranks; collective. `what` says what is
    /// being done, the same on all ranks.
    pub(crate) fn join(&self, what: &str, own: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        match self.comm {
            None => Ok(vec![own]),
            Some(comm) => self.exchange(comm, what, DONE, own),
        }
    }

    /// Does something for each item; the results of all, in order. Collective.
    pub(crate) fn each<T: Wire>(
        &self,
        what: &str,
        weights: &[u64],
        mut work: impl FnMut(usize) -> T,
    ) -> Result<Vec<T>> {
        let own: Vec<T> = self.part(weights).map(&mut work).collect();
        if !self.is_shared() {
            return Ok(own);
        }
        let what = format!("{what} {weights:?}");
        let mut all = Vec::new();
        for part in self.join(&what, own.to_letter())? {
            all.extend(Vec::<T>::from_letter(&part)?);
        }
        match all.len() == weights.len() {
            true => Ok(all),
            false => Err(garbled()),
        }
    }

    /// The number of ranks that share the work.
    pub(crate) fn ranks(&self) -> u64 {
        self.comm.map_or(1, |comm| u64::from(comm.size()))
    }

    /// Ends the work: a failure of one rank becomes one of all, as do results that are not the same, by `shown`.
    pub(crate) fn end<T>(&self, done: Result<T>, shown: impl FnOnce(&T) -> String) -> Result<T> {
        let Some(comm) = self.comm.filter(|_| !self.ended.load(Ordering::SeqCst)) else {
            return done;
        };
        match done {
            Ok(done) => {
                let what = format!("the end {}", shown(&done));
                self.exchange(comm, &what, DONE, Vec::new()).map(|_| done)
            }
            Err(error) => {
                let code = [error.kind().code()];
                let bytes = [&code[..], error.to_string().as_bytes()].concat();
                // The others get it; the own error says more.
                let _ = self.exchange(comm, "", FAILED, bytes);
                Err(error)
            }
        }
    }

    fn exchange(
        &self,
        comm: &dyn Comm,
        what: &str,
        state: u8,
        own: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>> {
        let joined = exchange(comm, what, state, own);
        if joined.is_err() {
            self.ended.store(true, Ordering::SeqCst);
        }
        joined
    }
}

fn exchange(comm: &dyn Comm, what: &str, state: u8, own: Vec<u8>) -> Result<Vec<Vec<u8>>> {
    let place = crate::merkle::digest(what.as_bytes()).to_bytes();
    let own = [&[state][..], &place, &own].concat();
    let mut table = Vec::new();
    let gathered = comm.gather(Rank(0), &own).and_then(|all| {
        for bytes in all {
            table.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            table.extend_from_slice(&bytes);
        }
        comm.broadcast(Rank(0), &mut table)
    });
    if let Err(error) = gathered {
        // Others may wait for this rank and not for the one that has died.
        let _ = comm.revoke();
        return Err(error);
    }
    let (mut all, mut rest, mut elsewhere) = (Vec::new(), &table[..], None);
    for rank in 0..comm.size() {
        let (len, behind) = rest.split_first_chunk::<8>().ok_or_else(garbled)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| garbled())?;
        let (bytes, behind) = behind.split_at_checked(len).ok_or_else(garbled)?;
        rest = behind;
        match (bytes.split_first(), bytes.get(17..)) {
            (Some((&DONE, of)), Some(bytes)) => {
                elsewhere = elsewhere.or((of[..16] != place).then_some(rank));
                all.push(bytes.to_vec());
            }
            (Some((&FAILED, _)), Some([code, text @ ..])) => {
                let kind = ErrorKind::from_code(*code).unwrap_or(ErrorKind::Io);
                let text = String::from_utf8_lossy(text);
                return Err(Error::new(kind, format!("rank {rank}: {text}")));
            }
            _ => return Err(garbled()),
        }
    }
    match elsewhere {
        None => Ok(all),
        Some(rank) => Err(Error::new(
            ErrorKind::Mismatch,
            format!("rank {rank} sees other data than rank {} does", comm.rank()),
        )
        .hint("all ranks must see the same files, which must not change meanwhile")),
    }
}

/// The items of a rank: those whose middle lies in its share of the sum of all weights.
fn part(weights: &[u64], rank: u32, ranks: u32) -> Range<usize> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight).max(1)).sum();
    let mut before = 0u128;
    let owner = |weight: &u64| {
        let weight = u128::from(*weight).max(1);
        let middle = 2 * before + weight;
        before += weight;
        (middle * u128::from(ranks) / (2 * total)) as u32
    };
    let owners: Vec<u32> = weights.iter().map(owner).collect();
    owners.partition_point(|owner| *owner < rank)..owners.partition_point(|owner| *owner <= rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{End, ThreadRanks};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_cover_all_items_in_order_and_are_balanced(
            weights in prop::collection::vec(0u64..1000, 0..60), ranks in 1u32..9,
        ) {
            let mut next = 0;
            let total: u64 = weights.iter().map(|weight| (*weight).max(1)).sum();
            let largest = weights.iter().map(|weight| (*weight).max(1)).max().unwrap_or(0);
            for rank in 0..ranks {
                let part = part(&weights, rank, ranks);
                prop_assert_eq!(part.start, next);
                next = part.end;
                let sum: u64 = weights[part].iter().map(|weight| (*weight).max(1)).sum();
                prop_assert!(sum <= total / u64::from(ranks) + 1 + largest);
            }
            prop_assert_eq!(next, weights.len());
        }
    }

    #[test]
    fn all_ranks_get_all_results_or_all_get_an_error() {
        for (ranks, failing) in [(1, None), (3, None), (3, Some(0)), (3, Some(2)), (2, Some(1))] {
            let ends = ThreadRanks::new(ranks).run(move |comm| {
                let share = WorkShare::of(&*comm);
                let work = || -> Result<Vec<u64>> {
                    if failing == Some(comm.rank().0) {
                        return Err(Error::usage("out of cheese"));
                    }
                    let squares =
                        share.each("squares", &[5, 1, 1, 9, 0], |at| at as u64 * at as u64)?;
                    let sums = share.each("sums", &squares, |at| squares[at] + 1)?;
                    Ok(sums)
                };
                share.end(work(), |sums| format!("{sums:?}")).map_err(|error| error.to_string())
            });
            for (rank, end) in (0..).zip(ends) {
                let expected = match failing {
                    None => Ok(vec![1, 2, 5, 10, 17]),
                    Some(failing) if failing == rank => Err("out of cheese".to_string()),
                    Some(failing) => Err(format!("rank {failing}: out of cheese")),
                };
                assert_eq!(end, End::Done(expected));
            }
        }
    }

    #[test]
    fn ranks_that_see_other_data_and_ranks_that_die_are_errors_of_all() {
        let ends = ThreadRanks::new(3).run(|comm| {
            let share = WorkShare::of(&*comm);
            let other = u64::from(comm.rank() == Rank(1));
            share.end(share.each("it", &[1, 2, other], |at| at as u64), |_| String::new()).is_err()
        });
        assert!(ends.into_iter().all(|end| end == End::Done(true)));
        for dead in 0..3 {
            let ranks = ThreadRanks::new(3);
            let kill = ranks.clone();
            let ends = ranks.run(move |comm| {
                let share = WorkShare::of(&*comm);
                let first = share.each("first", &[1, 2, 3], |at| at as u64);
                if comm.rank() == Rank(dead) {
                    kill.kill(Rank(dead));
                }
                share.end(first, |_| String::new()).is_err()
            });
            for (rank, end) in (0..).zip(ends) {
                assert_eq!(end, if rank == dead { End::Killed } else { End::Done(true) });
            }
        }
    }
}

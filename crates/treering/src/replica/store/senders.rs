//! Choice of the holder that sends a requested part: pure, and the same on every rank that knows the same requests.
//!
//! The holder with the fewest bytes to send so far is taken; a hash of range, requester and holder decides between
//! equals, so that requesters that do not know of each other begin with different holders. Consecutive ranges with
//! the same holders come from one of them, up to a limit, which saves messages.
//!
//! Law: only candidates are chosen, and the loads of the candidates of equal requests differ by at most one run.
//!
//! ReStore (Hübner et al., 2022), section IV-A.

use crate::array::Rank;
use crate::replica::permutation::mix;
use crate::replica::placement::RangeId;
use std::collections::HashMap;

/// Bytes of consecutive ranges that come from one holder before the next one has its turn.
const RUN: u64 = 1 << 20;

/// The bytes that senders were chosen for so far.
#[derive(Debug, Default)]
pub(crate) struct SenderChoice {
    load: HashMap<Rank, u64>,
    last: Option<SenderRun>,
}

#[derive(Debug)]
struct SenderRun {
    requester: Rank,
    next: RangeId,
    candidates: Vec<Rank>,
    sender: Rank,
    bytes: u64,
}

impl SenderChoice {
    /// The sender of a part of a range; `None` if there is no candidate.
    pub(crate) fn choose(
        &mut self,
        requester: Rank,
        range: RangeId,
        candidates: &[Rank],
        len: u64,
    ) -> Option<Rank> {
        let next = RangeId(range.0.wrapping_add(1));
        if let Some(run) = &mut self.last
            && (run.requester, run.next) == (requester, range)
            && run.candidates == candidates
            && run.bytes + len <= RUN
        {
            (run.bytes, run.next) = (run.bytes + len, next);
            *self.load.entry(run.sender).or_default() += len;
            return Some(run.sender);
        }
        let order = |rank: &&Rank| {
            let draw = mix(mix(range.0 ^ u64::from(requester.0) << 40) ^ u64::from(rank.0));
            (self.load.get(*rank).copied().unwrap_or(0), draw)
        };
        let sender = *candidates.iter().min_by_key(order)?;
        *self.load.entry(sender).or_default() += len;
        self.last = Some(SenderRun {
            requester,
            next,
            candidates: candidates.to_vec(),
            sender,
            bytes: len,
        });
        Some(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(choice: &SenderChoice, ranks: u32) -> Vec<u64> {
        (0..ranks).map(|rank| choice.load.get(&Rank(rank)).copied().unwrap_or(0)).collect()
    }

    #[test]
    fn candidates_share_the_load_evenly() {
        let mut choice = SenderChoice::default();
        let candidates = [Rank(1), Rank(2), Rank(3)];
        for range in 0..300 {
            // Every second range, so that there are no runs.
            let sender = choice.choose(Rank(0), RangeId(2 * range), &candidates, 1000);
            assert!(candidates.contains(&sender.unwrap()));
        }
        assert_eq!(loads(&choice, 4), [0, 100_000, 100_000, 100_000]);
        assert_eq!(choice.choose(Rank(0), RangeId(0), &[], 1), None);
    }

    #[test]
    fn consecutive_ranges_with_the_same_holders_come_from_one_up_to_a_limit() {
        let mut choice = SenderChoice::default();
        let candidates = [Rank(4), Rank(5)];
        let size = 256 << 10;
        let senders: Vec<Rank> = (0..16)
            .filter_map(|range| choice.choose(Rank(0), RangeId(range), &candidates, size))
            .collect();
        assert!(senders.chunks(4).all(|run| run.iter().all(|rank| *rank == run[0])));
        assert_eq!(loads(&choice, 6)[4..], [8 * size, 8 * size]);
    }

    #[test]
    fn requesters_that_do_not_know_of_each_other_spread_over_the_holders() {
        let mut first = [0; 4];
        for requester in 0..400 {
            let candidates: Vec<Rank> = (0..4).map(Rank).collect();
            let mut choice = SenderChoice::default();
            let sender = choice.choose(Rank(requester), RangeId(7), &candidates, 1).unwrap();
            first[sender.0 as usize] += 1;
        }
        assert!(first.iter().all(|count| (70..130).contains(count)), "{first:?}");
    }
}

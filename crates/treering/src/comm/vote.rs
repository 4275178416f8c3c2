//! One decision of all ranks, with a limit to how long they wait for each other.
//!
//! Votes travel up a tree of ranks with [`FAN`] children each and are merged on the way; the decision, made once
//! at its root, travels down. A rank that does not come within the limit, or that has died, is reported in the
//! place of its vote, so that everybody learns its number instead of waiting for ever. A rank that comes late finds
//! the answer that was given without it. Votes are numbered: what belongs to an earlier one is thrown away.
//!
//! Whether all ranks have heard a decision, nobody can know. A rank that acts on one must stay right if others have
//! given up: a checkpoint that some ranks do not take part in never gets its manifest.

use super::{Comm, died};
use crate::array::Rank;
use crate::error::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// Number of ranks that report to one.
const FAN: u64 = 8;

/// The kinds of messages.
const VOTE: u8 = 1;
const MISSING: u8 = 2;
const DECISION: u8 = 3;
const REFUSED: u8 = 4;
const GAVE_UP: u8 = 5;

/// The subject of a vote: how votes are merged and decided.
pub(crate) trait Voting {
    /// Adds the votes of other ranks to those in `votes`.
    fn merge(&self, votes: &mut Vec<u8>, others: &[u8]) -> Result<()>;

    /// Decides from the votes of all ranks; called by one rank.
    fn decide(&mut self, votes: &[u8]) -> Result<Vec<u8>>;
}

/// The ranks that are missing, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Absent {
    dead: Vec<Rank>,
    late: Vec<Rank>,
}

impl Absent {
    fn is_empty(&self) -> bool {
        self.dead.is_empty() && self.late.is_empty()
    }

    fn add(&mut self, other: Absent) {
        self.dead.extend(other.dead);
        self.late.extend(other.late);
    }

    fn write(&self) -> Vec<u8> {
        let ranks = self.dead.iter().chain(&self.late).map(|rank| rank.0);
        [self.dead.len() as u32].into_iter().chain(ranks).flat_map(u32::to_le_bytes).collect()
    }

    fn parse(bytes: &[u8]) -> Absent {
        let mut all = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let dead = all.next().unwrap_or(0) as usize;
        let all: Vec<Rank> = all.map(Rank).collect();
        let (dead, late) = all.split_at(dead.min(all.len()));
        Absent { dead: dead.to_vec(), late: late.to_vec() }
    }

    /// The error that all ranks return; the first rank that is there reports it as its own.
    fn error(&self, own: Rank, limit: Duration) -> Error {
        let absent = |rank: &Rank| self.dead.contains(rank) || self.late.contains(rank);
        let first = (0..).map(Rank).find(|rank| !absent(rank));
        let error = self.sentence(own, limit);
        if first == Some(own) { error } else { error.repeated() }
    }

    fn sentence(&self, own: Rank, limit: Duration) -> Error {
        if !self.dead.is_empty() {
            return died(&self.dead);
        }
        if self.late.contains(&own) {
            return Error::new(
                ErrorKind::Late,
                "the other ranks have given up waiting for this one",
            )
            .hint("all ranks must call checkpoint, restore and finish in the same order");
        }
        let late: Vec<String> = self.late.iter().map(Rank::to_string).collect();
        let what = format!("rank {} did not come within {limit:?}", late.join(", "));
        Error::new(ErrorKind::Late, what)
            .hint("all ranks must call checkpoint, restore and finish in the same order")
    }
}

/// Votes, and returns the decision. The number of votes so far must be the same on all ranks; `own` is an
/// error if this rank cannot take part, which all ranks then return.
pub(crate) fn vote(
    comm: &dyn Comm,
    number: u64,
    own: Result<Vec<u8>>,
    voting: &mut dyn Voting,
    limit: Duration,
) -> Result<Vec<u8>> {
    let booth = Booth { comm, number, limit };
    let rank = u64::from(comm.rank().0);
    let children = (FAN * rank + 1..=FAN * rank + FAN).filter(|c| *c < u64::from(comm.size()));
    let children: Vec<Rank> = children.map(|child| Rank(child as u32)).collect();
    let (mut votes, refusal) = match own {
        Ok(votes) => (votes, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let mut refusal = refusal.map(|error| Refusal { rank: comm.rank(), error });
    let mut absent = Absent::default();
    let start = Instant::now();
    for child in &children {
        // A child waits for its own children first.
        match booth.receive(*child, start + limit * (booth.levels_below(*child) + 1)) {
            Ok(Some((VOTE, bytes))) if refusal.is_none() => {
                let merged = voting.merge(&mut votes, &bytes);
                refusal = merged.err().map(|error| Refusal { rank: comm.rank(), error });
            }
            Ok(Some((VOTE, _))) => {}
            Ok(Some((REFUSED, bytes))) => {
                refusal.get_or_insert_with(|| Refusal::read(&bytes));
            }
            Ok(Some((_, bytes))) => absent.add(Absent::parse(&bytes)),
            Ok(None) => absent.late.push(*child),
            Err(error) if error.kind() == ErrorKind::Dead => absent.dead.push(*child),
            Err(error) => return Err(error),
        }
    }
    if rank == 0 && absent.is_empty() && booth.somebody_gave_up(&children)? {
        absent.late.push(Rank(0));
    }
    let (kind, bytes) = match rank {
        0 => match (refusal, absent.is_empty()) {
            (_, false) => (MISSING, absent.write()),
            (Some(refusal), true) => (REFUSED, refusal.write()),
            (None, true) => match voting.decide(&votes) {
                Ok(decision) => (DECISION, decision),
                Err(error) => (REFUSED, Refusal { rank: Rank(0), error }.write()),
            },
        },
        _ => booth.report(Rank(((rank - 1) / FAN) as u32), absent, refusal, votes)?,
    };
    for child in &children {
        // One that has died hears nothing, and does not mind.
        match booth.send(*child, kind, &bytes) {
            Err(error) if error.kind() != ErrorKind::Dead => return Err(error),
            _ => {}
        }
    }
    match kind {
        DECISION => Ok(bytes),
        REFUSED => Err(Refusal::read(&bytes).seen_by(comm.rank())),
        _ => Err(Absent::parse(&bytes).error(comm.rank(), limit)),
    }
}

/// One vote, seen by one rank.
struct Booth<'a> {
    comm: &'a dyn Comm,
    number: u64,
    limit: Duration,
}

impl Booth<'_> {
    /// Reports to the rank above and waits for its answer.
    fn report(
        &self,
        above: Rank,
        absent: Absent,
        refusal: Option<Refusal>,
        votes: Vec<u8>,
    ) -> Result<(u8, Vec<u8>)> {
        let (kind, bytes) = match (absent.is_empty(), refusal) {
            (false, _) => (MISSING, absent.write()),
            (true, Some(refusal)) => (REFUSED, refusal.write()),
            (true, None) => (VOTE, votes),
        };
        let gone = |dead: bool| {
            let (ranks, none) = (vec![above], Vec::new());
            let (dead, late) = if dead { (ranks, none) } else { (none, ranks) };
            (MISSING, Absent { dead, late }.write())
        };
        match self.send(above, kind, &bytes) {
            Err(error) if error.kind() == ErrorKind::Dead => return Ok(gone(true)),
            done => done?,
        }
        let patience = self.limit * (self.levels_below(Rank(0)) + 1);
        match self.receive(above, Instant::now() + patience) {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => {
                self.send(above, GAVE_UP, &[])?;
                Ok(gone(false))
            }
            Err(error) if error.kind() == ErrorKind::Dead => Ok(gone(true)),
            Err(error) => Err(error),
        }
    }

    /// The levels of the tree below a rank.
    fn levels_below(&self, rank: Rank) -> u32 {
        let first_child = |rank: &u64| Some(FAN * rank + 1);
        let below = std::iter::successors(Some(u64::from(rank.0)), first_child).skip(1);
        below.take_while(|child| *child < u64::from(self.comm.size())).count() as u32
    }

    /// Whether a rank that has voted did not wait for the decision.
    fn somebody_gave_up(&self, children: &[Rank]) -> Result<bool> {
        for child in children {
            match self.receive(*child, Instant::now()) {
                Ok(Some((GAVE_UP, _))) => return Ok(true),
                Err(error) if error.kind() != ErrorKind::Dead => return Err(error),
                _ => {}
            }
        }
        Ok(false)
    }

    fn send(&self, to: Rank, kind: u8, bytes: &[u8]) -> Result<()> {
        let mut message = self.number.to_le_bytes().to_vec();
        message.push(kind);
        message.extend_from_slice(bytes);
        self.comm.send(to, &message)
    }

    /// The next message of this vote from a rank.
    fn receive(&self, from: Rank, until: Instant) -> Result<Option<(u8, Vec<u8>)>> {
        loop {
            let patience = until.saturating_duration_since(Instant::now());
            let Some((_, message)) = self.comm.receive(Some(from), patience)? else {
                return Ok(None);
            };
            let Some((head, bytes)) = message.split_first_chunk::<9>() else { continue };
            let number = head[..8].iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
            match number.cmp(&self.number) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(Some((head[8], bytes.to_vec()))),
                std::cmp::Ordering::Greater => {
                    let what = format!("rank {from} is ahead of this one");
                    return Err(Error::new(ErrorKind::Late, what).hint(
                        "all ranks must call checkpoint, restore and finish in the same order",
                    ));
                }
            }
        }
    }
}

/// The reason why there is no decision, and the rank that reports it as its own.
struct Refusal {
    rank: Rank,
    error: Error,
}

impl Refusal {
    fn write(&self) -> Vec<u8> {
        [&self.rank.0.to_le_bytes()[..], &self.error.write()].concat()
    }

    fn read(bytes: &[u8]) -> Refusal {
        let (rank, error) = bytes.split_first_chunk::<4>().unwrap_or((&[0; 4], bytes));
        Refusal { rank: Rank(u32::from_le_bytes(*rank)), error: Error::read(error) }
    }

    /// The error that a rank returns.
    fn seen_by(self, rank: Rank) -> Error {
        match rank == self.rank {
            true => self.error.own(),
            false => self.error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{End, ThreadRanks};

    /// Ranks vote with their numbers; the decision is the sum.
    struct Sum;

    impl Voting for Sum {
        fn merge(&self, votes: &mut Vec<u8>, others: &[u8]) -> Result<()> {
            *votes = (number(votes) + number(others)).to_le_bytes().to_vec();
            Ok(())
        }

        fn decide(&mut self, votes: &[u8]) -> Result<Vec<u8>> {
            Ok(votes.to_vec())
        }
    }

    fn number(bytes: &[u8]) -> u64 {
        bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
    }

    const LONG: Duration = Duration::from_secs(60);

    fn own(comm: &dyn Comm) -> Result<Vec<u8>> {
        Ok(u64::from(comm.rank().0).to_le_bytes().to_vec())
    }

    #[test]
    fn all_ranks_get_one_decision_whatever_the_delays() {
        for ranks in [1, 2, 9, 10, 80] {
            let world = ThreadRanks::new(ranks).delayed(Duration::from_millis(2), ranks.into());
            let ends = world.run(|comm| {
                (0..3).map(|round| vote(&*comm, round, own(&*comm), &mut Sum, LONG)).collect()
            });
            let sum = u64::from(ranks) * u64::from(ranks - 1) / 2;
            for end in ends {
                let End::Done(decisions) = end else { panic!("a rank did not end") };
                let decisions: Result<Vec<Vec<u8>>> = decisions;
                assert!(decisions.unwrap().iter().all(|decision| number(decision) == sum));
            }
        }
    }

    #[test]
    fn a_rank_that_does_not_call_is_named_and_hears_of_it_when_it_does() {
        for late in [0, 1, 11].map(Rank) {
            let (gave_up, wait) = std::sync::mpsc::channel();
            let wait = std::sync::Mutex::new(wait);
            let ends = ThreadRanks::new(12).run(move |comm| {
                if comm.rank() == late {
                    // It comes when all others have given up.
                    (1..comm.size()).for_each(|_| wait.lock().unwrap().recv().unwrap());
                }
                let first = vote(&*comm, 1, own(&*comm), &mut Sum, Duration::from_millis(400));
                if comm.rank() != late {
                    gave_up.send(()).unwrap();
                }
                // The next vote is not disturbed by what is left of this one.
                let second = vote(&*comm, 2, own(&*comm), &mut Sum, LONG).unwrap();
                (first, number(&second))
            });
            for (rank, end) in ends.into_iter().enumerate() {
                let (first, second) = end.done().unwrap();
                let error = first.unwrap_err();
                assert_eq!((error.kind(), second), (ErrorKind::Late, 66), "rank {rank}: {error}");
                if rank as u32 != late.0 && late.0 != 0 {
                    let named = error.to_string().contains(&format!("rank {late} did"));
                    assert!(named, "late {late}, rank {rank}: {error}");
                }
            }
        }
    }

    #[test]
    fn a_rank_that_is_dead_is_named_to_all() {
        for dead in [0, 1, 8, 11].map(Rank) {
            let world = ThreadRanks::new(12);
            let kill = world.clone();
            let ends = world.run(move |comm| {
                if comm.rank() == dead {
                    kill.kill(dead);
                }
                vote(&*comm, 1, own(&*comm), &mut Sum, LONG).map(drop)
            });
            for (rank, end) in ends.into_iter().enumerate() {
                match end {
                    End::Done(outcome) => {
                        let error = outcome.unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::Dead, "rank {rank}: {error}");
                        assert!(error.to_string().contains(&format!("rank {dead} has died")));
                    }
                    end => assert!(rank as u32 == dead.0 && matches!(end, End::Killed)),
                }
            }
        }
    }

    #[test]
    fn a_rank_that_cannot_take_part_says_why_to_all() {
        let ends = ThreadRanks::new(20).run(|comm| {
            let own = match comm.rank().0 {
                13 => Err(Error::usage("two variables are called x")),
                _ => own(&*comm),
            };
            vote(&*comm, 1, own, &mut Sum, LONG).map(drop)
        });
        let mut own_errors = 0;
        for end in ends {
            let error = end.done().unwrap().unwrap_err();
            assert_eq!(
                (error.kind(), error.to_string()),
                (ErrorKind::Usage, "two variables are called x".to_string())
            );
            own_errors += usize::from(!error.is_repeated());
        }
        assert_eq!(own_errors, 1, "one rank reports it");
    }
}

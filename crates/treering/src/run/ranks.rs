//! The other ranks of a run, as one of them sees them.
//!
//! Every collective call begins with a vote, which has a limit: a rank that never calls is named instead of being
//! waited for. The outcomes of earlier checkpoints travel with the votes. No worker communicates.
//!
//! After a death the survivors go on as a new set of ranks ([`RankSide::heir`]), with an opening of their own. Its random
//! number is agreed on first, and nobody makes the opening before all of them know the number: so they tell an opening
//! that one of them made before it died from that of a stranger, and never take the run from anybody else.

use super::share::{ReferenceShare, ShareVoting};
use crate::array::{GroupId, Rank, Sequence, Step};
use crate::comm::{Comm, Voting, vote};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{LogEntry, Manifest, Names};
use crate::points::reach;
use crate::save::{
    Agreed, Ballot, BallotVoting, DeathWatch, Failures, GroupSeat, Opened, Outcomes, RankOf,
    SaveProgress, Succession, Team, TeamBreaker, TeamMeeting, Ticket, Tiers, Together, assign,
    held, join, now, open, random, seat,
};
use crate::store::{Store, read_small};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One rank's end of the agreement of all.
pub(super) struct RankSide {
    comm: Arc<dyn Comm>,
    limit: Duration,
    /// The number of votes so far.
    votes: u64,
    /// The number of those that were not refused.
    decisions: u64,
    pub(super) outcomes: Arc<Mutex<Outcomes>>,
    /// Saves whose outcome is not known yet.
    pending: Vec<(Sequence, Step, SaveProgress)>,
    watch: DeathWatch,
    /// The random numbers of the openings that these ranks have made or may have made.
    openings: Vec<u64>,
}

impl RankSide {
    pub(super) fn new(comm: Arc<dyn Comm>, limit: Duration) -> RankSide {
        let (members, breaker) = (Vec::new(), TeamBreaker::default());
        let watch = DeathWatch { comm: comm.clone(), members, breaker };
        RankSide {
            comm,
            limit,
            votes: 0,
            decisions: 0,
            outcomes: Arc::default(),
            pending: Vec::new(),
            watch,
            openings: Vec::new(),
        }
    }

    /// Ends the work with the ranks of this side, when nothing of it is under way here, and goes on with others. Whoever
    /// still waits for something of this rank hears that it does not come.
    pub(super) fn heir(&mut self, comm: Arc<dyn Comm>) -> RankSide {
        self.watch.breaker.break_up();
        if self.watch.look().is_some() {
            // Ranks that have not noticed the death end their calls, and come along.
            let _ = self.comm.revoke();
        }
        RankSide {
            outcomes: self.outcomes.clone(),
            pending: std::mem::take(&mut self.pending),
            openings: self.openings.clone(),
            ..RankSide::new(comm, self.limit)
        }
    }

    /// Takes back what an heir has that could not go on.
    pub(super) fn take_back(&mut self, heir: RankSide) {
        (self.pending, self.openings) = (heir.pending, heir.openings);
    }

    /// Agrees on the random number of the next opening; every rank knows it when one of them is asked to make it. What
    /// some ranks know of earlier saves, all of them know afterwards.
    pub(super) fn agree_to_go_on(&mut self, newest: Sequence, failures: &Failures) -> Result<u64> {
        self.votes += 1;
        let number = vote(&*self.comm, self.votes, Ok(Vec::new()), &mut NumberVoting, self.limit)?;
        let number = number.try_into().map(u64::from_le_bytes).map_err(|_| garbled())?;
        self.openings.push(number);
        // Whoever votes here knows the number.
        self.vote(Ok(self.ballot(Together::GoOn, newest)), failures)?;
        reach("going-on");
        Ok(number)
    }

    /// What has become of the saves before an opening: their manifests are there, or they never will be.
    pub(super) fn resolve(
        &mut self,
        store: &dyn Store,
        run: &str,
        opening: Sequence,
        failures: &Failures,
    ) {
        let names = Names::new(run);
        for (sequence, step, progress) in self.pending.drain(..) {
            let entry = match sequence < opening {
                true => store.open(&names.entry(sequence)).and_then(|b| read_small(b.as_ref())),
                false => {
                    fail(failures, step, &progress);
                    continue;
                }
            };
            match entry.and_then(|bytes| LogEntry::parse(&bytes)) {
                Ok(LogEntry::Manifest(_)) => progress.durable(),
                Ok(_) => fail(failures, step, &progress),
                // Numbers before an opening are all used: it was pruned, or put into a bundle.
                Err(error) if error.kind() == ErrorKind::NotFound => progress.durable(),
                Err(error) if !progress.has_failed() => {
                    failures.add(step, error.clone(), &progress);
                    progress.failed(error);
                }
                Err(_) => {}
            }
        }
    }

    /// A look at deaths, for whoever waits.
    pub(super) fn watch(&self) -> DeathWatch {
        self.watch.clone()
    }

    /// Ends the calls of all ranks if one has died: those that have not noticed would wait for those that have.
    pub(super) fn or_all_stop<T>(&self, done: Result<T>) -> Result<T> {
        done.inspect_err(|error| {
            if error.kind() == ErrorKind::Dead {
                let _ = self.comm.revoke();
            }
        })
    }

    /// Takes a seat in a group of ranks of this node. Where the ranks of a node cannot reach each other (containers
    /// with networks of their own), every rank has a group for itself.
    pub(super) fn sit_down(&mut self, per_group: u32) -> Result<(GroupSeat, Team)> {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        let seated = self.or_all_stop(self.find_seat(per_group));
        // Also a rank that has given up says so: the others ask all that live.
        let all = self.comm.agree(matches!(&seated, Ok((_, Ok(_)))))?;
        let (own, meeting) = match (all, seated?) {
            (true, (own, Ok(meeting))) => (own, meeting),
            (_, (own, _)) => (GroupSeat::alone(rank, ranks, own.on_node), TeamMeeting::Alone),
        };
        let (team, breaker) = meeting.begin(&own)?;
        (self.watch.members, self.watch.breaker) = (own.members.clone(), breaker);
        reach("seated");
        Ok((own, team))
    }

    /// The seat of this rank, and where its group meets; collective.
    fn find_seat(&self, per_group: u32) -> Result<(GroupSeat, Result<TeamMeeting>)> {
        let rank = self.comm.rank();
        let nodes = self.comm.gather(Rank(0), self.comm.node().as_bytes())?;
        let mut table: Vec<u8> = assign(&nodes, per_group)
            .iter()
            .flat_map(|(group, node)| [group.0, *node])
            .flat_map(u32::to_le_bytes)
            .collect();
        self.comm.broadcast(Rank(0), &mut table)?;
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let assigned: Vec<(GroupId, u32)> = table
            .chunks_exact(8)
            .map(|pair| (GroupId(word(&pair[..4])), word(&pair[4..])))
            .collect();
        let own = seat(rank, &assigned).ok_or_else(garbled)?;
        let meeting = self.meet(&own)?;
        Ok((own, meeting))
    }

    /// The leader of a group tells its members where to meet; collective.
    fn meet(&self, own: &GroupSeat) -> Result<Result<TeamMeeting>> {
        let leads = own.members[0] == self.comm.rank();
        let office = match leads && own.members.len() > 1 {
            true => TeamMeeting::lead(std::array::from_fn(|_| random())),
            false => Ok(TeamMeeting::Alone),
        };
        let address = match &office {
            Ok(TeamMeeting::Leads(office)) => office.address(),
            _ => &[],
        };
        let members = own.members[1..].iter().filter(|_| leads);
        let messages: Vec<(Rank, &[u8])> = members.map(|member| (*member, address)).collect();
        let letters = self.comm.exchange(&messages)?;
        match letters.first() {
            Some((_, address)) if !leads => Ok(TeamMeeting::join(self.comm.rank(), address)),
            _ => Ok(office),
        }
    }

    pub(super) fn own(&self) -> RankOf {
        RankOf { rank: self.comm.rank(), ranks: self.comm.size() }
    }

    /// A ballot of this rank, with what it knows.
    pub(super) fn ballot(&self, call: Together, newest: Sequence) -> Ballot {
        Ballot::new(call, self.comm.rank(), held(&self.outcomes).clone(), newest)
    }

    /// Votes, and takes note of what has become of earlier saves.
    pub(super) fn vote(&mut self, own: Result<Ballot>, failures: &Failures) -> Result<Agreed> {
        self.votes += 1;
        let own = own.and_then(|ballot| ballot.write());
        let mut voting = BallotVoting { time: now() };
        let verdict = vote(&*self.comm, self.votes, own, &mut voting, self.limit);
        let verdict = verdict.inspect_err(|error| {
            if matches!(error.kind(), ErrorKind::Dead | ErrorKind::Revoked) {
                self.look();
            }
        })?;
        let verdict = Agreed::parse(&verdict)?;
        self.decisions += 1;
        held(&self.outcomes).add(&verdict.outcomes);
        self.settle(&verdict.outcomes, failures);
        Ok(verdict)
    }

    /// Joins what all ranks have found in comparing with a reference.
    pub(super) fn join_shares(&mut self, share: &ReferenceShare) -> Result<ReferenceShare> {
        self.votes += 1;
        let joined = vote(&*self.comm, self.votes, share.write(), &mut ShareVoting, self.limit)?;
        ReferenceShare::parse(&joined)
    }

    /// Number of votes on calls that all ranks agreed to.
    pub(super) fn decisions(&self) -> u64 {
        self.decisions
    }

    /// A save has begun whose outcome later votes will tell.
    pub(super) fn began(&mut self, sequence: Sequence, step: Step, progress: SaveProgress) {
        self.pending.push((sequence, step, progress));
    }

    /// What all ranks know is told to the program, and forgotten.
    fn settle(&mut self, known: &Outcomes, failures: &Failures) {
        self.pending.retain(|(sequence, step, progress)| match known.of(*sequence) {
            None => true,
            Some(true) => {
                progress.durable();
                false
            }
            Some(false) => {
                fail(failures, *step, progress);
                false
            }
        });
        let open = self.pending.first().map(|(sequence, ..)| *sequence);
        let newest = known.committed.iter().chain(&known.given_up).max().copied().unwrap_or(0);
        held(&self.outcomes).forget_before(open.unwrap_or(Sequence(newest + 1)));
    }

    /// Whether the outcome of every save is known.
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// At the end: what has not appeared by now never will.
    pub(super) fn give_up(&mut self, failures: &Failures) {
        for (_, step, progress) in self.pending.drain(..) {
            fail(failures, step, &progress);
        }
    }

    /// One rank takes the run; the others join it. All ranks get its error.
    ///
    /// `next` is the random number of the opening of ranks that have had the run before.
    pub(super) fn open(&mut self, tiers: &Tiers, run: &str, next: Option<u64>) -> Result<Opened> {
        let mut own = None;
        let mut bytes = Vec::new();
        if self.comm.rank() == Rank(0) {
            let succession = next.map(|next| Succession { own: self.openings.clone(), next });
            let opened = open(tiers, run, succession.as_ref());
            bytes = match &opened {
                Ok(opened) => {
                    letter(OPENED, &serde_json::to_vec(&opened.ticket()).unwrap_or_default())
                }
                Err(error) => failure(error),
            };
            own = Some(opened);
        }
        self.or_all_stop(self.comm.broadcast(Rank(0), &mut bytes))?;
        let opened = match own {
            Some(opened) => opened?,
            None => {
                let ticket = read_letter(&bytes)?.ok_or_else(garbled)?;
                let ticket: Ticket = serde_json::from_slice(ticket).map_err(|_| garbled())?;
                join(tiers, run, ticket)
            }
        };
        self.openings.push(opened.opening.writer.nonce);
        reach("ticket-handed-out");
        Ok(opened)
    }

    /// Hands a manifest, or nothing, from the first rank to all.
    pub(super) fn share(&self, own: Result<Option<Manifest>>) -> Result<Option<Manifest>> {
        let mut bytes = match &own {
            Ok(Some(manifest)) => letter(MANIFEST, &manifest.write()),
            Ok(None) => letter(NOTHING, &[]),
            Err(error) => failure(error),
        };
        self.or_all_stop(self.comm.broadcast(Rank(0), &mut bytes))?;
        if self.comm.rank() == Rank(0) {
            return own;
        }
        match read_letter(&bytes)? {
            None => Ok(None),
            Some(manifest) => Ok(LogEntry::parse(manifest)?.into_manifest()),
        }
    }

    pub(super) fn comm(&self) -> &dyn Comm {
        &*self.comm
    }

    pub(super) fn rank(&self) -> Rank {
        self.comm.rank()
    }

    /// Ends the work of the group if a rank of it is known to have died, so that nobody waits for it.
    pub(super) fn look(&self) {
        drop(self.watch.look());
    }
}

/// The agreement on a random number.
struct NumberVoting;

impl Voting for NumberVoting {
    fn merge(&self, _: &mut Vec<u8>, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn decide(&mut self, _: &[u8]) -> Result<Vec<u8>> {
        Ok(random().to_le_bytes().to_vec())
    }
}

fn fail(failures: &Failures, step: Step, progress: &SaveProgress) {
    if progress.has_failed() {
        return;
    }
    let error = Error::new(
        ErrorKind::Lost,
        "another rank's part of this checkpoint has failed, so it does not exist",
    );
    failures.add(step, error.clone(), progress);
    progress.failed(error);
}

const NOTHING: u8 = 0;
const MANIFEST: u8 = 1;
const OPENED: u8 = 2;
const FAILED: u8 = 3;

fn letter(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind], bytes].concat()
}

fn failure(error: &Error) -> Vec<u8> {
    letter(FAILED, &error.write())
}

fn garbled() -> Error {
    Error::new(ErrorKind::Mismatch, "a message of another rank is not understood")
        .hint("all ranks must use the same release of treering")
}

/// The content of a letter, if it has any; the error that it tells.
fn read_letter(bytes: &[u8]) -> Result<Option<&[u8]>> {
    match bytes.split_first() {
        Some((&NOTHING, _)) => Ok(None),
        Some((&(MANIFEST | OPENED), content)) => Ok(Some(content)),
        Some((&FAILED, error)) => Err(Error::read(error)),
        _ => Err(garbled()),
    }
}

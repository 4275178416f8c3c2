//! The other ranks of a run, as one of them sees them.
//!
//! Every collective call begins with a vote, which has a limit: a rank that never calls is named instead of being
//! waited for. The outcomes of earlier checkpoints travel with the votes. No worker communicates.

use super::aggregate::AggregatorLink;
use super::share::{ReferenceShare, ShareVoting};
use crate::array::{GroupId, Rank, Sequence, Step};
use crate::comm::{Comm, vote};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{LogEntry, Manifest};
use crate::save::{
    Agreed, Ballot, BallotVoting, Failures, GroupSeat, Hander, Opened, Outcomes, RankOf,
    SaveProgress, SeatWish, ServedRun, Team, TeamBreaker, TeamMeeting, Ticket, Tiers, Together,
    assign, held, join, now, open, random, seat,
};
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// The ranks of its group, and the end of the work with them.
    members: Vec<Rank>,
    breaker: TeamBreaker,
    /// The way to its aggregator, if it has one, and whether that is known to be gone.
    link: Option<Arc<AggregatorLink>>,
    gone: Arc<AtomicBool>,
}

impl RankSide {
    pub(super) fn new(
        comm: Arc<dyn Comm>,
        limit: Duration,
        link: Option<Arc<AggregatorLink>>,
    ) -> RankSide {
        let (outcomes, breaker) = (Arc::default(), TeamBreaker::default());
        let (pending, members) = (Vec::new(), Vec::new());
        let (votes, decisions, gone) = (0, 0, Arc::default());
        RankSide { comm, limit, votes, decisions, outcomes, pending, members, breaker, link, gone }
    }

    /// Takes a seat in a group of ranks of this node. Where the ranks of a node cannot reach each other (containers
    /// with networks of their own), every rank has a group for itself.
    pub(super) fn sit_down(
        &mut self,
        per_group: u32,
        run: &str,
        ticket: &Ticket,
    ) -> Result<(GroupSeat, Team)> {
        // Of ranks that share an aggregator, some may have heard before others that it is gone.
        if self.has_lost_aggregator() || self.link.as_ref().is_some_and(|link| !link.answers()) {
            self.link = None;
        }
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        let (node, aggregator) = (self.comm.node(), self.link.as_ref().map(|l| l.aggregator));
        let wish = SeatWish { node: node.as_bytes().to_vec(), aggregator };
        let wishes = self.comm.gather(Rank(0), &wish.write())?;
        let wishes: Option<Vec<SeatWish>> = wishes.iter().map(|w| SeatWish::parse(w)).collect();
        let mut table: Vec<u8> = assign(&wishes.unwrap_or_default(), per_group)
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
        let meeting = match &self.link {
            None => self.meet(&own)?,
            // The others meet meanwhile.
            Some(link) => {
                self.comm.exchange(&[])?;
                self.hand_to(link, run, ticket, &own)
            }
        };
        let all = self.comm.agree(meeting.is_ok())?;
        let (own, meeting) = match (all, meeting) {
            (true, Ok(meeting)) => (own, meeting),
            _ => (GroupSeat::alone(rank, ranks, own.on_node), TeamMeeting::Alone),
        };
        if let TeamMeeting::Hands(hander) = &meeting {
            self.gone = hander.gone();
        }
        let (team, breaker) = meeting.begin(&own)?;
        (self.members, self.breaker) = (own.members.clone(), breaker);
        Ok((own, team))
    }

    /// Tells the aggregator of the run.
    fn hand_to(
        &self,
        link: &AggregatorLink,
        run: &str,
        ticket: &Ticket,
        own: &GroupSeat,
    ) -> Result<TeamMeeting> {
        let run = ServedRun {
            run: run.to_string(),
            ticket: ticket.clone(),
            group: own.group.0,
            groups: own.groups,
            members: own.members.iter().map(|rank| rank.0).collect(),
            ranks: self.comm.size(),
        };
        let (post, letter) = link.join(self.comm.rank(), run)?;
        Hander::join(post, &letter, self.outcomes.clone()).map(TeamMeeting::Hands)
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
                self.break_up_if_dead();
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
    pub(super) fn open(&mut self, tiers: &Tiers, run: &str) -> Result<Opened> {
        let mut own = None;
        let mut bytes = Vec::new();
        if self.comm.rank() == Rank(0) {
            let opened = open(tiers, run);
            bytes = match &opened {
                Ok(opened) => {
                    letter(OPENED, &serde_json::to_vec(&opened.ticket()).unwrap_or_default())
                }
                Err(error) => failure(error),
            };
            own = Some(opened);
        }
        self.comm.broadcast(Rank(0), &mut bytes)?;
        match own {
            Some(opened) => opened,
            None => {
                let ticket = read_letter(&bytes)?.ok_or_else(garbled)?;
                let ticket: Ticket = serde_json::from_slice(ticket).map_err(|_| garbled())?;
                Ok(join(tiers, run, ticket))
            }
        }
    }

    /// Hands a manifest, or nothing, from the first rank to all.
    pub(super) fn share(&self, own: Result<Option<Manifest>>) -> Result<Option<Manifest>> {
        let mut bytes = match &own {
            Ok(Some(manifest)) => letter(MANIFEST, &manifest.write()),
            Ok(None) => letter(NOTHING, &[]),
            Err(error) => failure(error),
        };
        self.comm.broadcast(Rank(0), &mut bytes)?;
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

    /// Whether the aggregator of this rank is gone; then nobody waits for it any more.
    pub(super) fn has_lost_aggregator(&self) -> bool {
        let Some(link) = &self.link else { return false };
        if link.is_dead() {
            self.breaker.break_up();
            return true;
        }
        self.gone.load(Ordering::SeqCst)
    }

    /// Ends the work of the group if a rank of it is known to have died, so that nobody waits for it. Other groups
    /// finish what they have begun: a checkpoint may lack nothing but their part.
    pub(super) fn break_up_if_dead(&self) {
        let dead = self.comm.dead().unwrap_or_default();
        let aggregator = self.link.as_ref().is_some_and(|link| link.is_dead());
        if aggregator || dead.iter().any(|rank| self.members.contains(rank)) {
            self.breaker.break_up();
        }
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

//! The other ranks of a run, as one of them sees them.
//!
//! Every collective call begins with a vote, which has a limit: a rank that never calls is named instead of being
//! waited for. The outcomes of earlier checkpoints travel with the votes. No worker communicates.
//!
//! After a death the survivors go on as a new set of ranks ([`RankSide::heir`]), with an opening of their own. Its random
//! number is agreed on first, and nobody makes the opening before all of them know the number: so they tell an opening
//! that one of them made before it died from that of a stranger, and never take the run from anybody else.

use super::aggregate::AggregatorLink;
use super::options::Options;
use super::protection::{NodeProtection, remove_spent};
#[cfg(feature = "tools")]
use super::share::{ShareBallot, ShareVoting};
use crate::array::{GroupId, Rank, Sequence, Step};
use crate::comm::{Comm, Reduction, Voting, Wire, garbled, vote};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{LogEntry, Manifest, Names};
use crate::points::reach;
use crate::redundancy::{NodeRanks, Redundancy};
use crate::save::{
    Agreed, Ballot, BallotVoting, Carried, DeathWatch, Decision, Failures, GroupSeat, Hander,
    Opened, Outcomes, RankOf, SaveProgress, SeatWish, ServedRun, Succession, Team, TeamBreaker,
    TeamMeeting, Ticket, Tiers, Together, assign, held, join, now, open, random, seat,
};
use crate::save::{
    Recovered, RunLock, clean_packs, clean_sections, open_locked, rebuild_lost, recover,
};
use crate::store::{Store, read_small};
use crate::waiting::WaitNotice;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One rank's end of the agreement of all.
pub(super) struct RankSide {
    comm: Arc<dyn Comm>,
    limit: Duration,
    /// The number of votes so far.
    votes: u64,
    pub(super) outcomes: Arc<Mutex<Outcomes>>,
    /// Saves whose outcome is not known yet, or that may still be brought to the shared store.
    pending: Vec<PendingSave>,
    /// Whether the nodes have stores.
    near: bool,
    /// The checkpoints of which this rank's node holds its part.
    pub(super) staged: Arc<Mutex<BTreeSet<u64>>>,
    /// The newest checkpoint that is complete on all nodes, and the first one that must stay there.
    pub(super) on_nodes: Option<(Sequence, Sequence)>,
    /// Redundancy between nodes, and this node's failure domain.
    redundancy: Redundancy,
    domain: Option<String>,
    pub(super) protection: Option<NodeProtection>,
    /// A checkpoint that was to go to the shared store does not exist.
    lost: bool,
    /// Whether this rank looks at the store of its node for all that run there.
    lists: bool,
    watch: DeathWatch,
    /// The random numbers of the openings that these ranks have made or may have made.
    openings: Vec<u64>,
    /// The way to its aggregator, if it has one, and whether that is known to be gone.
    link: Option<Arc<AggregatorLink>>,
    gone: Arc<AtomicBool>,
}

/// A save that has begun.
struct PendingSave {
    sequence: Sequence,
    step: Step,
    progress: SaveProgress,
    /// Whether it goes to the shared store.
    shared: bool,
}

impl RankSide {
    fn new(
        comm: Arc<dyn Comm>,
        limit: Duration,
        near: bool,
        link: Option<Arc<AggregatorLink>>,
    ) -> RankSide {
        let (members, breaker) = (Vec::new(), TeamBreaker::default());
        let watch = DeathWatch { comm: comm.clone(), members, breaker };
        RankSide {
            comm,
            limit,
            votes: 0,
            outcomes: Arc::default(),
            pending: Vec::new(),
            near,
            staged: Arc::default(),
            on_nodes: None,
            redundancy: Redundancy::None,
            domain: None,
            protection: None,
            lost: false,
            lists: false,
            watch,
            openings: Vec::new(),
            link,
            gone: Arc::default(),
        }
    }

    /// The side of a rank of a run with these options.
    pub(super) fn of(
        options: &Options,
        comm: Arc<dyn Comm>,
        link: Option<Arc<AggregatorLink>>,
    ) -> RankSide {
        let near = !options.writer.tiers.near.is_empty();
        let side = RankSide::new(comm, options.patience, near, link);
        side.protected(options.redundancy, options.domain.clone())
    }

    /// Lets nodes protect each other.
    fn protected(mut self, redundancy: Redundancy, domain: Option<String>) -> RankSide {
        (self.redundancy, self.domain) = (redundancy, domain);
        self
    }

    /// Ends the work with the ranks of this side, when nothing of it is under way here, and goes on with others. A rank
    /// that still waits for something of this rank is told that it does not come.
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
            // An aggregator ends with the ranks that it was for; those that are left lead themselves.
            ..RankSide::new(comm, self.limit, self.near, None)
                .protected(self.redundancy, self.domain.clone())
        }
    }

    /// Takes back what an heir has that could not go on.
    pub(super) fn take_back(&mut self, heir: RankSide) {
        (self.pending, self.openings) = (heir.pending, heir.openings);
    }

    /// Agrees on the random number of the next opening; every rank knows it when one of them is asked to make it.
    /// Knowledge of some ranks about earlier saves is that of all ranks afterwards.
    pub(super) fn agree_to_go_on(
        &mut self,
        newest: Result<Sequence>,
        failures: &Failures,
    ) -> Result<u64> {
        self.votes += 1;
        let own = self.openings.iter().flat_map(|nonce| nonce.to_le_bytes()).collect();
        let own = newest.as_ref().map(|_| own).map_err(Clone::clone);
        let all = vote(&*self.comm, self.votes, own, &mut NumberVoting, self.limit)?;
        // Ranks that join know of no opening; those that have missed one know fewer.
        let all = all.as_chunks::<8>().0.iter().map(|nonce| u64::from_le_bytes(*nonce));
        self.openings = all.collect();
        let number = self.openings.last().copied().ok_or_else(garbled)?;
        // A rank that votes here knows the number.
        self.vote(Ok(self.ballot(Together::GoOn, newest?)), failures)?;
        reach("going-on");
        Ok(number)
    }

    /// Decides the fate of the saves before an opening: their manifests are there, or they never will be.
    pub(super) fn resolve(
        &mut self,
        store: &dyn Store,
        run: &str,
        opening: Sequence,
        failures: &Failures,
    ) {
        let names = Names::new(run);
        let read = |pending: &PendingSave| -> Option<Result<LogEntry>> {
            let read = || {
                LogEntry::parse(&read_small(store.open(&names.entry(pending.sequence))?.as_ref())?)
            };
            (pending.sequence < opening).then(read)
        };
        let entries: Vec<Option<Result<LogEntry>>> = self.pending.iter().map(read).collect();
        // A checkpoint that was meant for nodes only needs nothing more once a later one is in the shared store.
        let own = |found: &Manifest| self.openings.contains(&found.writer.nonce);
        let there = |entry: &Option<Result<LogEntry>>| matches!(entry, Some(Ok(LogEntry::Manifest(m))) if own(m));
        let replaced = entries.iter().rposition(there).unwrap_or(0);
        let pending = self.pending.drain(..).zip(entries).enumerate();
        for (at, (PendingSave { step, progress, shared, .. }, entry)) in pending {
            match entry {
                Some(Ok(LogEntry::Manifest(m))) if own(&m) => progress.durable(),
                Some(Ok(_)) if !shared && at < replaced => {}
                None | Some(Ok(_)) => fail(failures, step, &progress),
                // Numbers before an opening are all used: it was pruned, or put into a bundle.
                Some(Err(error)) if error.kind() == ErrorKind::NotFound => progress.durable(),
                Some(Err(error)) if !progress.has_failed() => {
                    failures.add(step, error.clone(), &progress);
                    progress.failed(error);
                }
                Some(Err(_)) => {}
            }
        }
    }

    /// Waits until the parts of this rank's group of everything that was begun are there, or have failed.
    pub(super) fn wait_for_parts(&self, notice: &WaitNotice) {
        // The vote names the ranks that have failed.
        let wait = |pending: &PendingSave| pending.progress.wait_for_part(&self.watch, notice);
        self.pending.iter().for_each(|pending| drop(wait(pending)));
    }

    /// A look at deaths, for whoever waits.
    pub(super) fn watch(&self) -> DeathWatch {
        self.watch.clone()
    }

    /// Ends the calls of all ranks if one has died: those that have not noticed would wait for those that have.
    pub(super) fn or_all_stop<T>(&self, done: Result<T>) -> Result<T> {
        done.inspect_err(|error| {
            if error.is_death() {
                let _ = self.comm.revoke();
            }
        })
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
        let seated = self.or_all_stop(self.find_seat(per_group, run, ticket));
        if let Err(error) = &seated
            && error.is_death()
        {
            return Err(error.clone());
        }
        // No agreement of those that live: a rank that has heard of a death on its way here never comes, and while
        // revoking ends a reduction, it ends no agreement.
        let mut all = [u64::from(matches!(&seated, Ok((_, Ok(_)))))];
        self.or_all_stop(self.comm.reduce(Reduction::Min, &mut all))?;
        let (own, meeting) = match (all, seated?) {
            ([1], (own, Ok(meeting))) => (own, meeting),
            (_, (own, _)) => (GroupSeat::alone(rank, ranks, own.on_node), TeamMeeting::Alone),
        };
        if let TeamMeeting::Hands(hander) = &meeting {
            self.gone = hander.gone();
        }
        let (team, breaker) = meeting.begin(&own, self.comm.survives())?;
        (self.watch.members, self.watch.breaker) = (own.members.clone(), breaker);
        reach("seated");
        Ok((own, team))
    }

    /// The seat of this rank, and where its group meets; collective.
    fn find_seat(
        &self,
        per_group: u32,
        run: &str,
        ticket: &Ticket,
    ) -> Result<(GroupSeat, Result<TeamMeeting>)> {
        let rank = self.comm.rank();
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
        Ok((own, meeting))
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
        let ballot = Ballot::new(call, self.comm.rank(), held(&self.outcomes).clone(), newest);
        match self.near {
            true => ballot.on_node(held(&self.staged).clone()),
            false => ballot,
        }
    }

    /// Votes, and takes note of what has become of earlier saves.
    pub(super) fn vote(&mut self, own: Result<Ballot>, failures: &Failures) -> Result<Agreed> {
        self.votes += 1;
        let own = own.map(|ballot| ballot.to_letter());
        let mut voting = BallotVoting { time: now() };
        let verdict = vote(&*self.comm, self.votes, own, &mut voting, self.limit);
        let verdict = verdict.inspect_err(|error| {
            if error.is_death() {
                self.look();
            }
        })?;
        let verdict = Agreed::from_letter(&verdict)?;
        held(&self.outcomes).add(&verdict.outcomes);
        self.settle(&verdict.outcomes, failures);
        self.settle_on_nodes(&verdict.on_nodes, failures);
        Ok(verdict)
    }

    /// Joins what all ranks have found in comparing with a reference.
    #[cfg(feature = "tools")]
    pub(super) fn join_shares(&mut self, ballot: &ShareBallot) -> Result<ShareBallot> {
        self.votes += 1;
        let own = Ok(ballot.to_letter());
        let joined = vote(&*self.comm, self.votes, own, &mut ShareVoting, self.limit)?;
        ShareBallot::from_letter(&joined)
    }

    /// A save has begun whose outcome later votes will tell.
    pub(super) fn began(&mut self, decision: Decision, progress: SaveProgress) {
        let Decision { sequence, step, shared, whole, .. } = decision;
        if let Some(protection) = &mut self.protection {
            protection.state.began(sequence, whole);
        }
        if !shared {
            held(&self.outcomes).aside.insert(sequence.0);
        }
        self.pending.push(PendingSave { sequence, step, progress, shared });
    }

    /// Reports the known outcomes to the program, and forgets them.
    fn settle(&mut self, known: &Outcomes, failures: &Failures) {
        let replaced = known.committed.last().copied().unwrap_or(0);
        if let Some(protection) = &mut self.protection {
            protection.state.committed(replaced);
        }
        let lost = &mut self.lost;
        self.pending.retain(|PendingSave { sequence, step, progress, shared }| {
            match known.of(*sequence).filter(|_| *shared) {
                // Checkpoints that stay on nodes need nothing more once a later one is in the shared store.
                None => *shared || sequence.0 > replaced,
                Some(true) => {
                    progress.durable();
                    false
                }
                Some(false) => {
                    *lost = true;
                    fail(failures, *step, progress);
                    false
                }
            }
        });
        let open = self.pending.iter().find(|pending| pending.shared).map(|p| p.sequence);
        let newest = known.committed.iter().chain(&known.given_up).max().copied().unwrap_or(0);
        held(&self.outcomes).forget_before(open.unwrap_or(Sequence(newest + 1)));
    }

    /// Takes note of checkpoints that are complete on all nodes together. Ranks stage in the order of numbers, so one
    /// that is not complete although a later one is has failed somewhere.
    fn settle_on_nodes(&mut self, complete: &BTreeSet<u64>, failures: &Failures) {
        let Some(newest) = complete.last().copied() else { return };
        let first = complete.iter().rev().nth(1).copied().unwrap_or(newest);
        self.on_nodes = Some((Sequence(newest), Sequence(first)));
        let mut staged = held(&self.staged);
        *staged = staged.split_off(&first);
        drop(staged);
        self.pending.retain(|PendingSave { sequence, step, progress, shared }| {
            let is_complete = complete.contains(&sequence.0);
            if !shared && !is_complete && sequence.0 < newest && sequence.0 >= first {
                fail(failures, *step, progress);
            }
            *shared || sequence.0 >= newest
        });
    }

    /// The first checkpoint that must stay on the nodes, if that is known.
    pub(super) fn kept_from(&self) -> Option<Sequence> {
        self.on_nodes.map(|(_, first)| first)
    }

    /// Whether a checkpoint that was to go to the shared store was lost since this was asked.
    pub(super) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }

    /// The newest checkpoint, if it is complete on nodes and nowhere else. From now on it counts as one that goes to the
    /// shared store. The same on all ranks after a vote.
    pub(super) fn promote(&mut self) -> Option<Carried> {
        let (newest, _) = self.on_nodes?;
        let pending = self.pending.iter_mut().find(|p| p.sequence == newest && !p.shared)?;
        pending.shared = true;
        held(&self.outcomes).aside.remove(&newest.0);
        let PendingSave { sequence, step, progress, .. } = pending;
        Some(Carried { sequence: *sequence, step: *step, progress: progress.clone() })
    }

    /// Whether the outcome of every save that goes to the shared store is known.
    pub(super) fn is_settled(&self) -> bool {
        !self.pending.iter().any(|pending| pending.shared)
    }

    /// At the end: what has not appeared by now never will.
    pub(super) fn give_up(&mut self, failures: &Failures) {
        for pending in self.pending.drain(..).filter(|pending| pending.shared) {
            fail(failures, pending.step, &pending.progress);
        }
    }

    /// One rank takes the run; the others join it. All ranks get its error.
    ///
    /// `next` is the random number of the opening of ranks that have had the run before.
    pub(super) fn open(&mut self, tiers: &Tiers, run: &str, next: Option<u64>) -> Result<Opened> {
        let opened = self.open_with_nodes(tiers, run, next);
        let opened = self.or_all_stop(opened)?;
        self.openings.push(opened.opening.writer.nonce);
        reach("ticket-handed-out");
        Ok(opened)
    }

    fn open_with_nodes(&mut self, tiers: &Tiers, run: &str, next: Option<u64>) -> Result<Opened> {
        let succession = next.map(|next| Succession { own: self.openings.clone(), next });
        let succession = succession.as_ref();
        if !self.near {
            return self.open_shared(tiers, run, None, succession).map(|(opened, _)| opened);
        }
        let nodes = NodeRanks::meet(self.comm.clone(), self.domain.as_deref(), self.redundancy)?;
        let lists = nodes.leads_node();
        self.lists = lists;
        let rebuilt = rebuild_lost(&nodes, tiers, run)?;
        let Recovered { lock, notes } = recover(&*self.comm, tiers, run, lists, succession)?;
        let (mut opened, epoch) = self.open_shared(tiers, run, lock, succession)?;
        opened.notes.extend(rebuilt.into_iter().chain(notes));
        let opening = opened.opening.writer.opening;
        let (protection, note) = NodeProtection::new(nodes, self.redundancy, opening)?;
        self.protection = protection;
        opened.notes.extend(note.filter(|_| self.rank() == Rank(0)));
        if lists {
            let writer = opened.opening.writer;
            let cleaned = clean_sections(tiers, run, writer)
                .and_then(|()| clean_packs(tiers, run, writer, epoch))
                .and_then(|()| remove_spent(tiers.first().as_ref(), run, opening));
            let what = |error| format!("remains of earlier programs stay on this node: {error}");
            opened.notes.extend(cleaned.err().map(what));
        }
        Ok(opened)
    }

    /// One rank takes the run in the shared store; the others join it. Also the number at which the open epoch began.
    fn open_shared(
        &mut self,
        tiers: &Tiers,
        run: &str,
        lock: Option<RunLock>,
        succession: Option<&Succession>,
    ) -> Result<(Opened, Option<u64>)> {
        let mut own = None;
        let mut bytes = Vec::new();
        if self.comm.rank() == Rank(0) {
            // Checkpoints of several ranks have no manifest on nodes, so there is nothing to move from tier to tier.
            let last = Tiers { near: Vec::new(), last: tiers.last.clone() };
            let opened = match lock {
                None => open(&last, run, succession),
                Some(lock) => open_locked(&last, run, lock, succession),
            };
            let opened = opened.map(|opened| opened.in_front(tiers));
            bytes = match &opened {
                Ok(opened) => {
                    let epoch = self.near.then(|| opened.open_epoch()).flatten();
                    let mut ticket = opened.ticket();
                    ticket.epoch = epoch;
                    letter(OPENED, &ticket.to_letter())
                }
                Err(error) => failure(error),
            };
            own = Some(opened);
        }
        self.comm.broadcast(Rank(0), &mut bytes)?;
        let opened = own.transpose()?;
        let ticket = Ticket::from_letter(read_letter(&bytes)?.ok_or_else(garbled)?)?;
        let epoch = ticket.epoch;
        Ok((opened.unwrap_or_else(|| join(tiers, run, ticket)), epoch))
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

    /// Whether the nodes have stores.
    pub(super) fn has_nodes(&self) -> bool {
        self.near
    }

    /// Whether this rank looks at the store of its node for all that run there.
    pub(super) fn lists_node(&self) -> bool {
        self.lists
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
            self.watch.breaker.break_up();
            return true;
        }
        self.gone.load(Ordering::SeqCst)
    }

    /// Ends the work of the group if a rank of it is known to have died, so that nobody waits for it.
    pub(super) fn look(&self) {
        drop(self.watch.look());
        self.has_lost_aggregator();
    }
}

/// The agreement on the random numbers of openings: those that some rank knows, and at the end a new one.
struct NumberVoting;

impl Voting for NumberVoting {
    fn merge(&self, all: &mut Vec<u8>, other: &[u8]) -> Result<()> {
        let mut known: BTreeSet<[u8; 8]> = all.as_chunks().0.iter().copied().collect();
        let new = other.as_chunks().0.iter().filter(|nonce| known.insert(**nonce));
        all.extend(new.flatten());
        Ok(())
    }

    fn decide(&mut self, all: &[u8]) -> Result<Vec<u8>> {
        Ok([all, &random().to_le_bytes()].concat())
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

/// The content of a letter, if it has any; the error that it tells.
fn read_letter(bytes: &[u8]) -> Result<Option<&[u8]>> {
    match bytes.split_first() {
        Some((&NOTHING, _)) => Ok(None),
        Some((&(MANIFEST | OPENED), content)) => Ok(Some(content)),
        Some((&FAILED, error)) => Err(Error::read(error)),
        _ => Err(garbled()),
    }
}

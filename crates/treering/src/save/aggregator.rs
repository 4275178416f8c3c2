//! Ranks that write the checkpoints of others: compute ranks hand over what changed, and an aggregator makes the pack.
//!
//! ```text
//!  compute rank:  capture ──► shared memory, head ──┐            headers of all ranks first; then, side by side:
//!  compute rank:  capture ──► shared memory, head ──┴──► aggregator:  fetch ──► encode ──► write
//! ```
//! As in mcrEngine (§4.1), an aggregator reads the heads of all its ranks, plans the pack by meaning over all of them,
//! and then pulls the bytes piece by piece, so that its memory is bounded however large the checkpoint is. It takes no
//! part in votes: what the ranks have decided comes with what they hand over. The law is that of a team: a checkpoint of
//! a group is published with the part of every rank, or fails for all of them. When an aggregator is gone, its ranks say
//! so in their next vote; all ranks then take their seats again, and those whose aggregator is gone form groups of their
//! own, with a new epoch.

use super::behind::HeldBytes;
use super::handed::HandedStage;
use super::open::Ticket;
use super::{Decision, Outcomes, held};
use crate::array::{GroupId, Labels, Rank, Sequence, Step};
use crate::comm::{Wire, garbled, wire};
use crate::error::{Error, ErrorKind, Result};
use crate::io::Post;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// The stack of a thread that waits for letters.
const STACK: usize = 256 << 10;

/// The run that ranks of an aggregator have opened, and their group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedRun {
    pub(crate) run: String,
    pub(crate) ticket: Ticket,
    pub(crate) group: u32,
    pub(crate) groups: u32,
    pub(crate) members: Vec<u32>,
    pub(crate) ranks: u32,
}

wire! { struct ServedRun { run, ticket, group, groups, members, ranks } }

/// A checkpoint that the ranks have decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandedDecision {
    sequence: u64,
    step: u64,
    whole: bool,
    pub(super) time: u64,
    pub(super) seed: u64,
    pub(super) labels: Labels,
    /// The checkpoint that was restored since the last one was handed over.
    pub(super) resumed: Option<ResumedFrom>,
}

wire! { struct HandedDecision { sequence, step, whole, time, seed, labels, resumed } }

/// The checkpoint that a run goes on from, and its manifest if its epoch goes on, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResumedFrom {
    pub(super) parent: u64,
    pub(super) base: Option<Vec<u8>>,
}

wire! { struct ResumedFrom { parent, base } }

impl HandedDecision {
    pub(super) fn new(decision: Decision, time: u64, seed: u64, labels: Labels) -> HandedDecision {
        let Decision { sequence: Sequence(sequence), step: Step(step), whole, .. } = decision;
        HandedDecision { sequence, step, whole, time, seed, labels, resumed: None }
    }

    /// Adds the checkpoint that was restored before.
    pub(super) fn from(self, resumed: Option<ResumedFrom>) -> HandedDecision {
        HandedDecision { resumed, ..self }
    }

    pub(super) fn decision(&self) -> Decision {
        let (sequence, step) = (Sequence(self.sequence), Step(self.step));
        Decision { sequence, step, whole: self.whole, skip: false, shared: true, halt: false }
    }
}

/// A letter between a compute rank and its aggregator.
pub(crate) enum AggregatorLetter {
    /// A rank of the program is there, by its number among all ranks.
    Hello { rank: u32 },
    /// The rank needs no aggregator any more.
    Bye,
    /// A rank has opened a run: its number among all ranks, and in the run.
    Join { of_all: u32, rank: u32, run: ServedRun },
    /// Changed bytes come along, whose head lies there.
    Handed { decision: HandedDecision, head: u64 },
    /// A rank, or the aggregator, could not do its part.
    Failed { sequence: u64, code: u8, what: String },
    /// A rank wants to know what has become of checkpoints.
    Look,
    /// The section is published: what a restore of one rank's part costs, and what has become of checkpoints.
    Published { sequence: u64, cost: u64, outcomes: Outcomes },
    /// The answer to [`Look`](Self::Look).
    Looked { outcomes: Outcomes },
}

wire! {
    enum AggregatorLetter {
        0 Hello { rank },
        1 Bye,
        2 Join { of_all, rank, run },
        3 Handed { decision, head },
        4 Failed { sequence, code, what },
        5 Look,
        6 Published { sequence, cost, outcomes },
        7 Looked { outcomes },
    }
}

impl AggregatorLetter {
    fn failed(sequence: Sequence, error: &Error) -> AggregatorLetter {
        let (code, what) = (error.kind().code(), error.to_string());
        AggregatorLetter::Failed { sequence: sequence.0, code, what }
    }

    pub(crate) fn send(&self, post: &Post, memory: Option<&File>) -> Result<()> {
        post.send(&self.to_letter(), memory)
    }

    /// The next letter; `None` when the other end is gone.
    pub(crate) fn receive(post: &Post) -> Result<Option<(AggregatorLetter, Option<File>)>> {
        let Some(letter) = post.receive()? else { return Ok(None) };
        Ok(Some((AggregatorLetter::from_letter(&letter.bytes)?, letter.memory)))
    }
}

fn reported(code: u8, what: String) -> Error {
    Error::new(ErrorKind::from_code(code).unwrap_or(ErrorKind::Io), what)
}

/// A compute rank's end.
pub(crate) struct Hander {
    post: Post,
    outcomes: Arc<Mutex<Outcomes>>,
    /// Whether the aggregator is known to be gone; the ranks vote on what to do then.
    gone: Arc<AtomicBool>,
}

impl Hander {
    /// Tells the aggregator of the run; what it reports of checkpoints is added to `outcomes`.
    pub(crate) fn join(
        post: Post,
        letter: &AggregatorLetter,
        outcomes: Arc<Mutex<Outcomes>>,
    ) -> Result<Hander> {
        letter.send(&post, None)?;
        Ok(Hander { post, outcomes, gone: Arc::default() })
    }

    /// Turns true when the aggregator is gone.
    pub(crate) fn gone(&self) -> Arc<AtomicBool> {
        self.gone.clone()
    }

    fn is_gone(&self) -> Error {
        self.gone.store(true, Ordering::SeqCst);
        Error::new(ErrorKind::Lost, "the aggregator of this rank is gone")
            .hint("from the next checkpoint on, the ranks of its group do its work themselves")
    }

    pub(super) fn post(&self) -> Result<Post> {
        self.post.again()
    }

    /// Hands changed bytes over and waits until they are published; what a restore of this rank's part costs.
    pub(super) fn publish(&self, decision: HandedDecision, stage: &File, head: u64) -> Result<u64> {
        let number = decision.sequence;
        AggregatorLetter::Handed { decision, head }
            .send(&self.post, Some(stage))
            .map_err(|_| self.is_gone())?;
        loop {
            let letter = AggregatorLetter::receive(&self.post).ok().flatten();
            match letter.ok_or_else(|| self.is_gone())?.0 {
                AggregatorLetter::Published { sequence, cost, outcomes } if sequence == number => {
                    held(&self.outcomes).add(&outcomes);
                    return Ok(cost);
                }
                AggregatorLetter::Failed { sequence, code, what } if sequence == number => {
                    return Err(reported(code, what));
                }
                // The fate of an earlier checkpoint that this rank gave up.
                _ => {}
            }
        }
    }

    /// Asks what has become of checkpoints; nothing if the aggregator is gone.
    pub(super) fn look(&self) {
        let asked = AggregatorLetter::Look.send(&self.post, None).is_ok();
        while asked && let Ok(Some((letter, _))) = AggregatorLetter::receive(&self.post) {
            if let AggregatorLetter::Looked { outcomes } = letter {
                held(&self.outcomes).add(&outcomes);
                return;
            }
        }
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Tells the aggregator that nothing is handed over.
    pub(super) fn fail(&self, sequence: Sequence, error: &Error) {
        // An aggregator that is gone needs no letter.
        let _ = AggregatorLetter::failed(sequence, error).send(&self.post, None);
    }
}

/// Message of a rank.
enum HandEvent {
    Handed(HandedDecision, File, u64),
    Failed(Sequence, Error),
    Look,
    Gone,
}

impl HandEvent {
    fn sequence(&self) -> Option<Sequence> {
        match self {
            HandEvent::Handed(decision, ..) => Some(Sequence(decision.sequence)),
            HandEvent::Failed(sequence, _) => Some(*sequence),
            HandEvent::Look | HandEvent::Gone => None,
        }
    }
}

/// Next action of an aggregator.
pub(super) enum AggregatorTurn {
    Save(HandedDecision, Vec<HandedStage>),
    /// A checkpoint that lacks the part of a rank.
    Lost(Sequence, Error),
    Look(Rank),
    End,
}

/// The aggregator's end of one run.
pub(crate) struct Aggregator {
    posts: BTreeMap<Rank, Post>,
    events: Receiver<(Rank, HandEvent)>,
    queues: BTreeMap<Rank, VecDeque<HandEvent>>,
    gone: Vec<Rank>,
    /// Stages that ranks have handed over for the checkpoint that is being written.
    pub(super) stages: Vec<HandedStage>,
    /// The memory for bytes on their way to the pack, and the bytes that are there.
    pub(super) budget: u64,
    pub(super) count: HeldBytes,
    pub(super) outcomes: Arc<Mutex<Outcomes>>,
    /// Cost of a restore of one rank's part of the newest pack.
    pub(super) cost: u64,
}

impl Aggregator {
    pub(crate) fn start(
        posts: BTreeMap<Rank, Post>,
        budget: u64,
        count: HeldBytes,
        outcomes: Arc<Mutex<Outcomes>>,
    ) -> Result<Aggregator> {
        let (sender, events) = channel();
        for (rank, post) in &posts {
            let (rank, post, sender) = (*rank, post.again()?, sender.clone());
            let thread = std::thread::Builder::new().name("treering-headers".into());
            let started = thread.stack_size(STACK).spawn(move || receive_all(rank, &post, &sender));
            started.map_err(|e| Error::io("cannot start the threads of a run", e))?;
        }
        let queues = posts.keys().map(|rank| (*rank, VecDeque::new())).collect();
        let (gone, stages, cost) = (Vec::new(), Vec::new(), 0);
        Ok(Aggregator { posts, events, queues, gone, stages, budget, count, outcomes, cost })
    }

    /// Waits until all ranks have spoken about the same checkpoint, or one asks for something else.
    pub(super) fn next(&mut self) -> AggregatorTurn {
        loop {
            if self.gone.len() == self.posts.len() {
                return AggregatorTurn::End;
            }
            for (rank, queue) in &mut self.queues {
                if matches!(queue.front(), Some(HandEvent::Look)) {
                    queue.pop_front();
                    return AggregatorTurn::Look(*rank);
                }
            }
            let spoken = self.queues.values().filter_map(|queue| queue.front()?.sequence());
            let (count, lowest) =
                spoken.fold((0, None), |(count, lowest): (usize, _), sequence| {
                    (
                        count + 1,
                        Some(lowest.map_or(sequence, |lowest: Sequence| lowest.min(sequence))),
                    )
                });
            match lowest {
                Some(sequence) if count == self.posts.len() || !self.gone.is_empty() => {
                    return self.take(sequence);
                }
                _ => {}
            }
            match self.events.recv() {
                Ok((rank, HandEvent::Gone)) => self.gone.push(rank),
                Ok((rank, event)) => self.queues.entry(rank).or_default().push_back(event),
                Err(_) => return AggregatorTurn::End,
            }
        }
    }

    /// The messages of the ranks about a checkpoint.
    fn take(&mut self, sequence: Sequence) -> AggregatorTurn {
        let mut handed = Vec::new();
        let mut lost = self.gone.first().map(|rank| {
            Error::new(ErrorKind::Lost, format!("rank {rank}, which shares this pack, is gone"))
        });
        for (rank, queue) in &mut self.queues {
            let speaks = queue.front().is_some_and(|event| event.sequence() == Some(sequence));
            let Some(event) = speaks.then(|| queue.pop_front()).flatten() else { continue };
            match event {
                HandEvent::Handed(decision, file, head) => {
                    handed.push((*rank, decision, file, head))
                }
                HandEvent::Failed(_, error) => {
                    lost.get_or_insert(error.at(format!("rank {rank}")));
                }
                HandEvent::Look | HandEvent::Gone => {}
            }
        }
        let agree = |a: &HandedDecision| handed.iter().all(|(_, b, ..)| a == b);
        let decision = handed.first().map(|(_, decision, ..)| decision.clone());
        match (lost, decision) {
            (None, Some(decision)) if handed.len() == self.posts.len() && agree(&decision) => {
                let open = |(rank, _, file, head): (Rank, _, _, _)| {
                    let stage = HandedStage::open(file, head)?;
                    match (stage.head.sequence, stage.head.rank) == (sequence, rank) {
                        true => Ok(stage),
                        false => Err(garbled().at(format!("rank {rank}"))),
                    }
                };
                match handed.into_iter().map(open).collect() {
                    Ok(stages) => AggregatorTurn::Save(decision, stages),
                    Err(error) => AggregatorTurn::Lost(sequence, error),
                }
            }
            (lost, _) => AggregatorTurn::Lost(sequence, lost.unwrap_or_else(garbled)),
        }
    }

    /// Tells the ranks what has become of a checkpoint.
    pub(super) fn tell(&self, sequence: Sequence, outcome: std::result::Result<(), &Error>) {
        let outcomes = std::mem::take(&mut *held(&self.outcomes));
        let letter = match outcome {
            Ok(()) => {
                AggregatorLetter::Published { sequence: sequence.0, cost: self.cost, outcomes }
            }
            Err(error) => {
                *held(&self.outcomes) = outcomes;
                AggregatorLetter::failed(sequence, error)
            }
        };
        // Ranks that are gone hear nothing.
        self.posts.values().for_each(|post| drop(letter.send(post, None)));
    }

    /// Answers a rank.
    pub(super) fn answer(&self, rank: Rank) {
        let outcomes = held(&self.outcomes).clone();
        if let Some(post) = self.posts.get(&rank) {
            let _ = AggregatorLetter::Looked { outcomes }.send(post, None);
        }
    }

    /// The memory for decoded frames of the step before.
    pub(super) fn frames_before(&self) -> usize {
        self.budget as usize / 6
    }

    /// The number of ranks.
    pub(super) fn ranks(&self) -> usize {
        self.posts.len()
    }
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        // The threads that wait for letters end with their connections.
        self.posts.values().for_each(Post::close);
    }
}

/// Passes on everything that a rank sends.
fn receive_all(rank: Rank, post: &Post, events: &Sender<(Rank, HandEvent)>) {
    loop {
        let event = match AggregatorLetter::receive(post) {
            Ok(Some((AggregatorLetter::Handed { decision, head }, Some(memory)))) => {
                HandEvent::Handed(decision, memory, head)
            }
            Ok(Some((AggregatorLetter::Failed { sequence, code, what }, _))) => {
                HandEvent::Failed(Sequence(sequence), reported(code, what))
            }
            Ok(Some((AggregatorLetter::Look, _))) => HandEvent::Look,
            _ => HandEvent::Gone,
        };
        let last = matches!(event, HandEvent::Gone);
        if events.send((rank, event)).is_err() || last {
            return;
        }
    }
}

impl ServedRun {
    pub(crate) fn group(&self) -> GroupId {
        GroupId(self.group)
    }
}

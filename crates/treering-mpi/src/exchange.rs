//! The sparse exchange: the nonblocking consensus of Hoefler, Siebert and Lumsdaine (2010).
//!
//! Sends are synchronous, and a rank enters a barrier when all of its own have been received. Only a window of
//! messages is under way at a time: a message is made when there is room in it, and what arrives is handed over at
//! once. Large messages to ranks of the same machine lie in an [outbox](crate::outbox), and a note about them is sent.
//!
//! Law: the messages of one rank are handed over in the order in which they were sent.

use crate::outbox::{NOTE, Outboxes, Outgoing};
use crate::transfer::{Pause, Transfer, Wire};
use bytes::Bytes;
use std::collections::HashMap;
use std::ffi::c_int;
use treering::{Error, ErrorKind, Mailbox, MessageMemory, Rank, Result};

/// Bytes and messages that a rank sends before earlier ones have been received.
const WINDOW: usize = 4 << 20;
const WINDOW_MESSAGES: usize = 256;

/// Messages that a rank receives at a time.
const ARRIVING: usize = 16;

/// An exchange under way.
pub(crate) struct Exchange<'a> {
    wire: Wire,
    tag: c_int,
    size: u32,
    mail: &'a mut dyn Mailbox,
    outboxes: Option<&'a mut Outboxes>,
    /// The ranks of `MPI_COMM_WORLD` that others are.
    world_ranks: HashMap<Rank, i32>,
    more: bool,
    /// A message that waits for room in the outbox.
    waiting: Option<(Rank, Bytes)>,
    sending: Vec<Transfer>,
    senders: Vec<Rank>,
    arriving: Vec<Transfer>,
    barrier: Option<Transfer>,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(
        wire: Wire,
        tag: c_int,
        size: u32,
        mail: &'a mut dyn Mailbox,
        outboxes: Option<&'a mut Outboxes>,
    ) -> Self {
        Exchange {
            wire,
            tag,
            size,
            mail,
            // Notes must not be cut into pieces.
            outboxes: outboxes.filter(|_| wire.piece > NOTE),
            world_ranks: HashMap::new(),
            more: true,
            waiting: None,
            sending: Vec::new(),
            senders: Vec::new(),
            arriving: Vec::new(),
            barrier: None,
        }
    }

    /// Runs until all ranks have received everything.
    pub(crate) fn run(&mut self) -> Result<()> {
        let outcome = self.exchange();
        if let Some(outboxes) = &mut self.outboxes {
            outboxes.end(outcome.is_ok());
        }
        outcome
    }

    fn exchange(&mut self) -> Result<()> {
        let mut pause = Pause::new();
        loop {
            Transfer::look(&mut self.sending, &mut self.arriving)?;
            let moved = self.settle() | self.fill()? | self.accept()?;
            if let Some(barrier) = &mut self.barrier
                && self.arriving.is_empty()
                && barrier.is_done()?
            {
                self.barrier = None;
                return Ok(());
            }
            if self.barrier.is_none() && !self.more && self.sending.is_empty() {
                self.barrier = Some(self.wire.barrier()?);
            }
            match moved {
                true => pause = Pause::new(),
                false => pause.rest(),
            }
        }
    }

    /// Transfers that were given up: their memory may still be in use.
    pub(crate) fn unfinished(self) -> impl Iterator<Item = Transfer> {
        self.sending.into_iter().chain(self.arriving).chain(self.barrier)
    }

    /// Begins to send messages while there is room in the window.
    fn fill(&mut self) -> Result<bool> {
        let mut under_way: usize = self.sending.iter().map(Transfer::sent).sum();
        let mut begun = false;
        while self.more && under_way < WINDOW && self.sending.len() < WINDOW_MESSAGES {
            if self.waiting.is_none() && self.outboxes.as_ref().is_some_and(|all| !all.has_room()) {
                break;
            }
            let Exchange { mail, outboxes, waiting, .. } = self;
            let mut none = ();
            let memory: &mut dyn MessageMemory = match outboxes {
                Some(outboxes) => &mut **outboxes,
                None => &mut none,
            };
            let Some((to, bytes)) = waiting.take().or_else(|| mail.next(memory)) else {
                self.more = false;
                break;
            };
            check_rank(to, self.size)?;
            let world_rank = self.world_rank(to)?;
            let outgoing = self.outboxes.as_mut().map(|outboxes| outboxes.put(world_rank, &bytes));
            let bytes = match outgoing.unwrap_or(Outgoing::Through) {
                Outgoing::Through => bytes,
                Outgoing::Noted(note) => note,
                Outgoing::Later => {
                    self.waiting = Some((to, bytes));
                    break;
                }
            };
            (under_way, begun) = (under_way + bytes.len(), true);
            self.wire.send(to, self.tag, bytes, true, &mut self.sending)?;
        }
        Ok(begun)
    }

    /// The rank of `MPI_COMM_WORLD` that a rank is; -1 if it is none, or nobody wants to know.
    fn world_rank(&mut self, rank: Rank) -> Result<i32> {
        if self.outboxes.is_none() {
            return Ok(-1);
        }
        match self.world_ranks.get(&rank) {
            Some(known) => Ok(*known),
            None => {
                let found = self.wire.world_rank(rank)?;
                self.world_ranks.insert(rank, found);
                Ok(found)
            }
        }
    }

    /// Begins to receive messages, and hands over those that are whole.
    fn accept(&mut self) -> Result<bool> {
        let mut moved = self.deliver();
        while self.arriving.len() < ARRIVING {
            let Some((from, first)) = self.wire.probe(None, self.tag)? else { break };
            let world_rank = self.world_rank(from)?;
            let Exchange { wire, tag, mail, arriving, outboxes, .. } = self;
            let outboxes = outboxes.as_ref().filter(|outboxes| outboxes.reads(world_rank));
            match outboxes {
                Some(outboxes) if first == NOTE => {
                    let note: [u8; NOTE] = wire.receive_short(from, *tag)?;
                    let mut room = mail.room(from, Outboxes::length(&note)?);
                    outboxes.take(world_rank, &note, &mut room)?;
                    arriving.push(Transfer::done(room));
                }
                _ => wire.receive(from, *tag, first, |len| mail.room(from, len), arriving)?,
            }
            self.senders.push(from);
            self.deliver();
            moved = true;
        }
        Ok(moved)
    }

    /// Hands over messages that are whole, those of one rank in their order.
    fn deliver(&mut self) -> bool {
        let (mut at, mut waiting, mut moved) = (0, Vec::new(), false);
        while let Some(transfer) = self.arriving.get(at) {
            let from = self.senders[at];
            if transfer.is_over() && !waiting.contains(&from) {
                self.senders.remove(at);
                let message = self.arriving.remove(at).arrived();
                self.mail.take(from, message);
                moved = true;
            } else {
                waiting.push(from);
                at += 1;
            }
        }
        moved
    }

    /// Lets go of messages that have been received.
    fn settle(&mut self) -> bool {
        let before = self.sending.len();
        self.sending.retain(|transfer| !transfer.is_over());
        self.sending.len() < before
    }
}

/// Refuses a rank that does not exist.
pub(crate) fn check_rank(rank: Rank, size: u32) -> Result<()> {
    match rank.0 < size {
        true => Ok(()),
        false => {
            Err(Error::new(ErrorKind::Usage, format!("there is no rank {rank}, but only {size}")))
        }
    }
}

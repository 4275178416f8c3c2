//! A communicator whose calls complete on some ranks only when a rank dies, as the law of communicators allows, and that
//! can damage messages.
//!
//! Ranks that are threads complete a collective call on all ranks or on none. A real MPI does not: a rank that dies
//! after it has contributed leaves some ranks with the result and others with an error. Here the victim dies right
//! after a call, and a chosen set of ranks reports its death in place of the result.

use crate::array::Rank;
use crate::comm::{Comm, Mailbox, Message, MessageMemory, MessageRoom, Reduction, ThreadRanks};
use crate::error::Result;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A death after a collective call, and the ranks that do not get its result, by the numbers at the start.
#[derive(Clone, Copy, Debug)]
pub struct PartialDeath {
    /// The rank that dies, by its number at the start.
    pub victim: u32,
    /// The collective call of a communicator after which it dies, from 0 on.
    pub call: u64,
    /// The ranks that do not get the result of that call, a bit for each.
    pub blind: u16,
}

/// A communicator in which calls complete on some ranks only.
pub struct PartialComm {
    inner: Arc<dyn Comm>,
    world: ThreadRanks,
    start: u32,
    /// Deaths of this communicator and of those that shrinking it makes.
    deaths: Vec<PartialDeath>,
    calls: AtomicU64,
    /// The exchange whose messages arrive damaged here, and the byte that is, in thousandths of a message.
    damaged: Option<(u64, usize)>,
}

impl PartialComm {
    /// A communicator of all ranks of a world: the first death is for this one, the next for the one that shrinking it
    /// makes, and so on.
    pub fn new(inner: Arc<dyn Comm>, world: ThreadRanks, deaths: Vec<PartialDeath>) -> PartialComm {
        let start = inner.rank().0;
        PartialComm { inner, world, start, deaths, calls: AtomicU64::new(0), damaged: None }
    }

    /// The same; in the exchange of this number one byte of each message arrives damaged, at this many thousandths of it.
    #[must_use]
    pub fn with_damage(self, exchange: u64, thousandth: usize) -> PartialComm {
        PartialComm { damaged: Some((exchange, thousandth)), ..self }
    }

    fn partly<T>(&self, call: impl FnOnce(&dyn Comm) -> Result<T>) -> Result<T> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let result = call(&*self.inner)?;
        let Some(death) = self.deaths.first().filter(|death| death.call == number) else {
            return Ok(result);
        };
        if death.victim == self.start {
            self.world.kill(Rank(self.start));
            self.inner.dead()?;
        }
        if death.blind >> self.start & 1 == 0 {
            return Ok(result);
        }
        // A victim that is no member any more cannot die again.
        let until = std::time::Instant::now() + Duration::from_millis(200);
        while std::time::Instant::now() < until {
            let dead = self.inner.dead()?;
            if !dead.is_empty() {
                return Err(crate::comm::died(&dead));
            }
            std::thread::yield_now();
        }
        Ok(result)
    }
}

impl Comm for PartialComm {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn node(&self) -> &str {
        self.inner.node()
    }

    fn send(&self, to: Rank, bytes: &[u8]) -> Result<()> {
        self.inner.send(to, bytes)
    }

    fn receive(&self, from: Option<Rank>, patience: Duration) -> Result<Option<Message>> {
        self.inner.receive(from, patience)
    }

    fn broadcast(&self, root: Rank, bytes: &mut Vec<u8>) -> Result<()> {
        self.partly(|comm| comm.broadcast(root, bytes))
    }

    fn gather(&self, root: Rank, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.partly(|comm| comm.gather(root, bytes))
    }

    fn reduce(&self, reduction: Reduction, values: &mut [u64]) -> Result<()> {
        self.partly(|comm| comm.reduce(reduction, values))
    }

    fn exchange_mail(&self, mail: &mut dyn Mailbox) -> Result<()> {
        let number = self.calls.load(Ordering::SeqCst);
        let byte = self.damaged.filter(|(call, _)| *call == number).map(|(_, byte)| byte);
        self.partly(|comm| comm.exchange_mail(&mut DamagedMail { mail, byte }))
    }

    fn agree(&self, yes: bool) -> Result<bool> {
        self.inner.agree(yes)
    }

    fn split(&self, color: u32, key: u32) -> Result<Arc<dyn Comm>> {
        self.inner.split(color, key)
    }

    fn dead(&self) -> Result<Vec<Rank>> {
        self.inner.dead()
    }

    fn revoke(&self) -> Result<()> {
        self.inner.revoke()
    }

    fn shrink(&self) -> Result<Arc<dyn Comm>> {
        Ok(Arc::new(PartialComm {
            inner: self.inner.shrink()?,
            world: self.world.clone(),
            start: self.start,
            deaths: self.deaths.iter().skip(1).copied().collect(),
            calls: AtomicU64::new(0),
            damaged: None,
        }))
    }

    fn survives(&self) -> bool {
        self.inner.survives()
    }
}

/// Damages the messages that a mailbox gets.
struct DamagedMail<'m> {
    mail: &'m mut dyn Mailbox,
    byte: Option<usize>,
}

impl Mailbox for DamagedMail<'_> {
    fn next(&mut self, memory: &mut dyn MessageMemory) -> Option<(Rank, Bytes)> {
        self.mail.next(memory)
    }

    fn room(&mut self, from: Rank, len: usize) -> MessageRoom {
        self.mail.room(from, len)
    }

    fn take(&mut self, from: Rank, mut message: MessageRoom) {
        if let Some(byte) = self.byte.filter(|_| !message.bytes.is_empty()) {
            let mut damaged = message.bytes.to_vec();
            damaged[byte * message.bytes.len() / 1000] ^= 0x04;
            message.fill(&damaged);
        }
        self.mail.take(from, message);
    }
}

//! A communicator whose calls complete on some ranks only when a rank dies, as the law of communicators allows, and that
//! can damage messages.
//!
//! Ranks that are threads complete a collective call on all ranks or on none. A real MPI does not: a rank that dies
//! after it has contributed leaves some ranks with the result and others with an error. Here the victim dies right
//! after a call, and a chosen set of ranks reports its death in place of the result.

use super::*;
use crate::comm::{Mailbox, Message, MessageMemory, MessageRoom, Reduction};
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};

/// A death after a collective call, and the ranks that do not get its result, by the numbers at the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartialDeath {
    pub(super) victim: u32,
    pub(super) call: u64,
    pub(super) blind: u16,
}

pub(super) struct PartialComm {
    pub(super) inner: Arc<dyn Comm>,
    pub(super) world: ThreadRanks,
    pub(super) start: u32,
    /// Deaths of this communicator and of those that shrinking it makes.
    pub(super) deaths: Vec<PartialDeath>,
    pub(super) calls: AtomicU64,
    /// The exchange whose messages arrive damaged here, and the byte that is, in thousandths of a message.
    pub(super) damaged: Option<(u64, usize)>,
}

impl PartialComm {
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

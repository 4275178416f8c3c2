//! Messages that a store sends, recorded, and the same messages without a store.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use treering::{Comm, Mailbox, Message, MessageMemory, MessageRoom, Rank, Reduction, Result};

/// Messages without content, between memory that was used before.
#[derive(Default)]
pub(crate) struct Plain {
    pub(crate) from: Bytes,
    /// Where the next message lies in it.
    pub(crate) at: usize,
    pub(crate) messages: VecDeque<(Rank, usize)>,
    pub(crate) spare: Vec<MessageRoom>,
    pub(crate) received: Vec<MessageRoom>,
}

impl Mailbox for Plain {
    fn next(&mut self, _: &mut dyn MessageMemory) -> Option<(Rank, Bytes)> {
        let (to, len) = self.messages.pop_front()?;
        self.at += len;
        Some((to, self.from.slice(self.at - len..self.at)))
    }

    fn room(&mut self, _from: Rank, len: usize) -> MessageRoom {
        let fits = self.spare.iter().position(|room| room.bytes.capacity() >= len);
        fits.map_or_else(|| MessageRoom::new(len), |at| self.spare.swap_remove(at))
    }

    fn take(&mut self, _from: Rank, message: MessageRoom) {
        self.received.push(message);
    }
}

/// A communicator that records receivers and lengths of the messages of exchanges.
pub(crate) struct Recorded {
    pub(crate) inner: Arc<dyn Comm>,
    pub(crate) sent: Arc<Mutex<Vec<(Rank, usize)>>>,
}

struct RecordedMail<'m> {
    mail: &'m mut dyn Mailbox,
    sent: Arc<Mutex<Vec<(Rank, usize)>>>,
}

impl Mailbox for RecordedMail<'_> {
    fn next(&mut self, memory: &mut dyn MessageMemory) -> Option<(Rank, Bytes)> {
        let (to, bytes) = self.mail.next(memory)?;
        self.sent.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((to, bytes.len()));
        Some((to, bytes))
    }

    fn room(&mut self, from: Rank, len: usize) -> MessageRoom {
        self.mail.room(from, len)
    }

    fn take(&mut self, from: Rank, message: MessageRoom) {
        self.mail.take(from, message);
    }
}

impl Comm for Recorded {
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
        self.inner.broadcast(root, bytes)
    }

    fn gather(&self, root: Rank, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.inner.gather(root, bytes)
    }

    fn reduce(&self, reduction: Reduction, values: &mut [u64]) -> Result<()> {
        self.inner.reduce(reduction, values)
    }

    fn exchange_mail(&self, mail: &mut dyn Mailbox) -> Result<()> {
        self.inner.exchange_mail(&mut RecordedMail { mail, sent: self.sent.clone() })
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
        self.inner.shrink()
    }

    fn survives(&self) -> bool {
        self.inner.survives()
    }
}

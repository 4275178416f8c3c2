//! One rank's side of an exchange: messages are made when they can be sent, and taken as they arrive.
//!
//! A communicator asks for a message when there is room on the way, so that the memory of earlier ones can be used
//! again while it is in the cache. It shares the memory of a message instead of copying it: an exchange that fails
//! because a rank has died may still read it. Messages arrive in memory that the mailbox chooses, so that it need not
//! be touched anew, and are handed over at once, while they are in the cache.

use super::{Comm, Message, check_rank};
use crate::array::Rank;
use crate::error::Result;
use bytes::{Bytes, BytesMut};
use std::any::Any;
use std::sync::Arc;

/// Memory for a message that arrives, which a [`Mailbox`] provides; the trait has an example.
pub struct MessageRoom {
    /// The bytes that have arrived; the capacity is the room for them.
    pub bytes: BytesMut,
    /// A value that lives as long as the memory is in use, such as a count of it.
    pub owner: Option<Arc<dyn Any + Send + Sync>>,
    /// The function that copies a message from elsewhere for the mailbox, and the checksum that it gave.
    copying: Option<Copying>,
    checksum: Option<u64>,
}

/// Appends bytes to memory and returns their checksum.
pub(crate) type Copying = fn(&[u8], &mut BytesMut) -> u64;

impl MessageRoom {
    /// New memory for a message.
    pub fn new(len: usize) -> Self {
        MessageRoom::of(BytesMut::with_capacity(len), None)
    }

    /// Memory for a message, with its owner.
    pub(crate) fn of(bytes: BytesMut, owner: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        MessageRoom { bytes, owner, copying: None, checksum: None }
    }

    /// Lets a message that lies elsewhere be copied and summed in one pass.
    pub(crate) fn copied_with(mut self, copying: Copying) -> Self {
        self.copying = Some(copying);
        self
    }

    /// Copies a message that lies elsewhere, as the mailbox wants it.
    pub fn fill(&mut self, message: &[u8]) {
        self.bytes.clear();
        self.checksum = match self.copying {
            Some(copying) => Some(copying(message, &mut self.bytes)),
            None => {
                self.bytes.extend_from_slice(message);
                None
            }
        };
    }

    /// The checksum of the message, if it was summed while it was copied.
    pub(crate) fn checksum(&self) -> Option<u64> {
        self.checksum
    }

    /// Empties it, for another message.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.copying, self.checksum) = (None, None);
    }
}

/// Memory of a communicator, from which it sends messages without copying them. It is passed to a [`Mailbox`], which has
/// an example.
pub trait MessageMemory {
    /// A message of `len` bytes, which `fill` writes; `None` if there is no room for it now.
    fn make(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> Option<Bytes>;
}

/// A communicator without such memory.
impl MessageMemory for () {
    fn make(&mut self, _len: usize, _fill: &mut dyn FnMut(&mut [u8])) -> Option<Bytes> {
        None
    }
}

/// One rank's side of an exchange ([`Comm::exchange_mail`]): it makes the messages to send, and takes those that arrive.
///
/// ```
/// use bytes::Bytes;
/// use treering::{Mailbox, MessageMemory, MessageRoom, Rank, ThreadRanks};
///
/// /// Sends a byte to one rank, and adds up the bytes that arrive.
/// struct Sum { to: Option<Rank>, of: u8, total: u64 }
///
/// impl Mailbox for Sum {
///     fn next(&mut self, memory: &mut dyn MessageMemory) -> Option<(Rank, Bytes)> {
///         let (to, of) = (self.to.take()?, self.of);
///         let message = memory.make(1, &mut |bytes| bytes.fill(of)); // without a copy, if there is room
///         Some((to, message.unwrap_or_else(|| Bytes::copy_from_slice(&[of]))))
///     }
///     fn room(&mut self, _from: Rank, len: usize) -> MessageRoom {
///         MessageRoom::new(len)
///     }
///     fn take(&mut self, _from: Rank, message: MessageRoom) {
///         self.total += message.bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
///     }
/// }
///
/// let ends = ThreadRanks::new(3).run(|comm| -> treering::Result<u64> {
///     let mut mail = Sum { to: Some(Rank(0)), of: 7, total: 0 };
///     comm.exchange_mail(&mut mail)?;
///     Ok(mail.total)
/// });
/// let totals: Vec<u64> = ends.into_iter().map(|end| end.done().unwrap().unwrap()).collect();
/// assert_eq!(totals, [21, 0, 0]);
/// ```
pub trait Mailbox {
    /// The next message to send; `None`: there are no more. Its memory is shared until it is received. It may lie in
    /// `memory`, which saves a copy.
    fn next(&mut self, memory: &mut dyn MessageMemory) -> Option<(Rank, Bytes)>;

    /// Empty memory with a capacity of at least `len` bytes, for a message that is arriving.
    fn room(&mut self, from: Rank, len: usize) -> MessageRoom;

    /// Takes a message that has arrived.
    fn take(&mut self, from: Rank, message: MessageRoom);
}

/// Messages that are all there, and those that have arrived.
struct Letters<'a> {
    messages: std::slice::Iter<'a, (Rank, &'a [u8])>,
    received: Vec<Message>,
}

impl Mailbox for Letters<'_> {
    fn next(&mut self, _: &mut dyn MessageMemory) -> Option<(Rank, Bytes)> {
        self.messages.next().map(|(to, bytes)| (*to, Bytes::copy_from_slice(bytes)))
    }

    fn room(&mut self, _from: Rank, len: usize) -> MessageRoom {
        MessageRoom::new(len)
    }

    fn take(&mut self, from: Rank, message: MessageRoom) {
        self.received.push((from, message.bytes.into()));
    }
}

/// An exchange of messages that are all there, sorted by sender.
pub(super) fn exchange(comm: &dyn Comm, messages: &[(Rank, &[u8])]) -> Result<Vec<Message>> {
    messages.iter().try_for_each(|(to, _)| check_rank(comm, *to))?;
    let mut letters = Letters { messages: messages.iter(), received: Vec::new() };
    comm.exchange_mail(&mut letters)?;
    letters.received.sort_by_key(|(from, _)| *from);
    Ok(letters.received)
}

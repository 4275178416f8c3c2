//! The ranks of a parallel program, and what Treering needs of them: one small trait.
//!
//! The law of a communicator:
//! - Collective calls are made by all members in the same order. A call that cannot complete because a member
//!   has died returns an error of kind [`ErrorKind::Dead`] and never hangs, if [`Comm::survives`]; other
//!   members may have completed the same call.
//! - [`Comm::agree`] and [`Comm::shrink`] complete whoever has died, and all survivors get the same result.
//! - After [`Comm::revoke`] every other call of every member, under way or later, returns
//!   [`ErrorKind::Revoked`].
//! - Messages from one rank to another arrive in order; sending never waits for the receiver.
//! - An exchange hands every message to its receiver's [`Mailbox`] before it returns. Messages from one rank come in
//!   the order in which they were made; those from different ranks come in any order.
//!
//! All calls are made by the thread of the program, never by a worker: an MPI may not allow more. Every
//! implementation passes `testing::comm_suite`.

mod alone;
mod mailbox;
mod seal;
mod simulated;
mod threads;
mod vote;
mod wire;
mod work;

pub use alone::Alone;
pub use mailbox::{Mailbox, MessageMemory, MessageRoom};
pub(crate) use seal::{opened, seal, unsealed};
pub use simulated::SimulatedDeaths;
pub use threads::{End, ThreadRanks};
pub(crate) use vote::{Voting, vote};
#[cfg(any(test, feature = "testing"))]
pub(crate) use wire::letter_around;
pub(crate) use wire::{Wire, wire};
pub(crate) use work::WorkShare;

use crate::array::Rank;
use crate::error::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Operation by which [`Comm::reduce`] combines the values of all ranks. [`ThreadRanks`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum, modulo 2^64.
    Sum,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
}

impl Reduction {
    /// Combines two values.
    pub fn of(self, a: u64, b: u64) -> u64 {
        match self {
            Reduction::Sum => a.wrapping_add(b),
            Reduction::Min => a.min(b),
            Reduction::Max => a.max(b),
        }
    }
}

/// A message and the rank that it goes to, or came from.
///
/// ```
/// use treering::{Message, Rank, ThreadRanks};
/// let ends = ThreadRanks::new(2).run(|comm| -> treering::Result<Vec<Message>> {
///     let other = Rank(1 - comm.rank().0);
///     comm.exchange(&[(other, b"hello")])
/// });
/// let received = ends.into_iter().next().unwrap().done().expect("rank 0 has returned")?;
/// assert_eq!(received, [(Rank(1), b"hello".to_vec())]);
/// # Ok::<(), treering::Error>(())
/// ```
pub type Message = (Rank, Vec<u8>);

/// A group of ranks that communicate with each other: [`Alone`](crate::Alone), [`ThreadRanks`](crate::ThreadRanks), or
/// MPI with the crate `treering-mpi`. Calls are collective unless their description says otherwise: all ranks call them
/// in the same order, and each waits for the others, without a time limit. A call that needs a rank which has died returns
/// an error of kind [`ErrorKind::Dead`], and one on a revoked communicator of kind [`ErrorKind::Revoked`].
///
/// ```
/// use treering::{Options, Run, ThreadRanks, Variable};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// ThreadRanks::new(2).run(move |comm| {
///     let own = vec![f64::from(comm.rank().0); 50]; // half of a global array of 100 values
///     let offset = [50 * u64::from(comm.rank().0)];
///     let mut run = Run::open(Options::directory(&store, "rod").ranks(comm))?;
///     run.checkpoint(0, &[Variable::new("heat", &own).part_of(&[100], &offset)])?;
///     run.finish()
/// })
/// .into_iter()
/// .for_each(|end| end.done().expect("the rank has returned").expect("without an error"));
/// ```
///
/// No method has a default: a wrapper that forgets to pass one on does not compile.
pub trait Comm: Send + Sync {
    /// The number of this rank, from 0 on.
    fn rank(&self) -> Rank;

    /// The number of ranks.
    fn size(&self) -> u32;

    /// The name of the machine that this rank runs on.
    fn node(&self) -> &str;

    /// Sends bytes to a rank; not collective. Never waits for the receiver, and the bytes may be used again when it returns.
    /// Messages from one rank to another arrive in order.
    fn send(&self, to: Rank, bytes: &[u8]) -> Result<()>;

    /// Waits for the next message that was sent by a rank, or by any; not collective. `None` if there is none
    /// within the time.
    fn receive(&self, from: Option<Rank>, patience: Duration) -> Result<Option<Message>>;

    /// Sends the bytes of `root` to all ranks.
    fn broadcast(&self, root: Rank, bytes: &mut Vec<u8>) -> Result<()>;

    /// Brings the bytes of every rank to `root`, in the order of ranks; empty elsewhere.
    fn gather(&self, root: Rank, bytes: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Combines the values of all ranks, element by element; all ranks get the result.
    fn reduce(&self, reduction: Reduction, values: &mut [u64]) -> Result<()>;

    /// Sends the messages of a mailbox to their ranks, and hands it those that are sent to this rank. No rank needs to
    /// know its senders. After an error, the mailbox may have received some of its messages.
    fn exchange_mail(&self, mail: &mut dyn Mailbox) -> Result<()>;

    /// Agrees on whether all living ranks pass `true`. All survivors get the same result, also if ranks have died or die
    /// meanwhile.
    fn agree(&self, yes: bool) -> Result<bool>;

    /// A communicator of the ranks that name the same color, in the order of their keys, then of their numbers.
    fn split(&self, color: u32, key: u32) -> Result<Arc<dyn Comm>>;

    /// The members that are known to have died; not collective.
    fn dead(&self) -> Result<Vec<Rank>>;

    /// Ends this communicator for all members; not collective. Calls that communicate, under way or later, return an error of
    /// kind [`ErrorKind::Revoked`], but for [`agree`](Comm::agree) and [`shrink`](Comm::shrink).
    fn revoke(&self) -> Result<()>;

    /// A communicator of the members that live, in the same order. Completes also if ranks have died or die meanwhile.
    fn shrink(&self) -> Result<Arc<dyn Comm>>;

    /// Whether the survivors of a death can go on.
    fn survives(&self) -> bool;
}

impl dyn Comm + '_ {
    /// Sends messages to some ranks and returns those that were sent to this one, sorted by sender; collective. See
    /// [`Comm::exchange_mail`], which copies nothing.
    pub fn exchange(&self, messages: &[(Rank, &[u8])]) -> Result<Vec<Message>> {
        mailbox::exchange(self, messages)
    }
}

/// Refuses a rank that does not exist.
pub(crate) fn check_rank(comm: &dyn Comm, rank: Rank) -> Result<()> {
    match rank.0 < comm.size() {
        true => Ok(()),
        false => Err(Error::usage(format!("there is no rank {rank}, but only {}", comm.size()))),
    }
}

/// The error of a call that needs a rank that has died.
pub(crate) fn died(ranks: &[Rank]) -> Error {
    let ranks: Vec<String> = ranks.iter().map(Rank::to_string).collect();
    let what = match ranks.len() {
        0 => "a rank has died".to_string(),
        1 => format!("rank {} has died", ranks[0]),
        _ => format!("ranks {} have died", ranks.join(", ")),
    };
    Error::new(ErrorKind::Dead, what)
}

/// The error of a call on a communicator that was revoked.
pub(crate) fn revoked() -> Error {
    Error::new(ErrorKind::Revoked, "the communicator was revoked after a failure")
        .hint("shrink it and go on with the communicator that this returns")
}

/// The error of a corrupt message.
pub(crate) fn garbled() -> Error {
    Error::new(ErrorKind::Mismatch, "a message of another rank is not understood")
        .hint("all ranks must use the same release of treering")
}

/// The name of this machine.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A panic of another thread leaves the value whole: every change is one assignment.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

//! The communicator of a replica store: openings of collective calls, refusals, counts of messages and bytes.
//!
//! Every collective call of the store begins with one small reduction. It finds ranks that make different calls, or
//! the same call with different values; it brings refusals to everybody; it carries what the members know of
//! generations. After a call has met a death, all later calls return the same error at once, until the store goes on
//! with a smaller communicator.
//!
//! Law: a refusal is the same error on all ranks, before any data has moved. A death or a revocation comes back as
//! `Dead` or `Revoked` and never hangs, as the law of communicators has it.

use crate::array::Rank;
use crate::comm::{
    Comm, Mailbox, Message, MessageMemory, MessageRoom, Reduction, garbled, seal, unsealed,
};
use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::sync::Arc;

/// Messages and bytes of this rank; those that it keeps for itself are not counted. The example of
/// [`ReplicaStore::scrub`](crate::ReplicaStore::scrub) shows its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaTraffic {
    /// Messages to other ranks.
    pub messages_sent: u64,
    /// Bytes to other ranks.
    pub bytes_sent: u64,
    /// Messages from other ranks.
    pub messages_received: u64,
    /// Bytes from other ranks.
    pub bytes_received: u64,
    /// Collective calls.
    pub collectives: u64,
}

/// The collective calls of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreCall {
    New = 1,
    Submit,
    SubmitChanged,
    SubmitNamed,
    SubmitVariables,
    Load,
    LoadAll,
    Remake,
    Scrub,
    Settle,
    GoOn,
}

/// The values that a call is opened with: the largest of all ranks comes back.
pub(crate) type Largest = [u64; 2];

/// The contribution of a rank to the opening of a call.
pub(crate) struct CallOpening {
    pub(crate) call: StoreCall,
    /// The newest generation that this rank knows to be agreed.
    pub(crate) known: u64,
    /// A digest of everything that must be equal on all ranks, and what that is.
    pub(crate) same: (u64, &'static str),
}

/// The contributions of all ranks.
pub(crate) struct CallOpened {
    /// The oldest of the generations that ranks know to be agreed.
    pub(crate) oldest_known: u64,
    pub(crate) largest: Largest,
}

/// A communicator with counts of messages and bytes.
pub(crate) struct Link {
    comm: Arc<dyn Comm>,
    pub(crate) traffic: ReplicaTraffic,
    calls: u64,
    stopped: Option<Error>,
}

impl Link {
    pub(crate) fn new(comm: Arc<dyn Comm>, traffic: ReplicaTraffic) -> Self {
        Link { comm, traffic, calls: 0, stopped: None }
    }

    pub(crate) fn comm(&self) -> &dyn Comm {
        &*self.comm
    }

    pub(crate) fn rank(&self) -> Rank {
        self.comm.rank()
    }

    /// Opens a collective call. An error in `own` is a refusal, which all ranks return.
    pub(crate) fn open(
        &mut self,
        opening: CallOpening,
        own: Result<Largest>,
    ) -> Result<CallOpened> {
        self.calls += 1;
        let CallOpening { call, known, same: (same, what) } = opening;
        let call = call as u64;
        let [first, second] = *own.as_ref().unwrap_or(&[0; 2]);
        let refused = u64::from(own.is_err());
        // A rank that refuses has no say in what is the same.
        let (same, other) = if refused == 1 { (0, 0) } else { (same, !same) };
        let ([most, least], calls) = ([call, !call], self.calls);
        let mut all = [most, least, calls, !calls, !known, refused, same, other, first, second];
        self.reduce(Reduction::Max, &mut all)?;
        let [most, least, calls, fewest, unknown, refused, same, other, first, second] = all;
        if most != !least || calls != !fewest {
            return Err(Error::usage(
                "the ranks make different calls of the replica store at the same time",
            )
            .hint("submit, load, remake and scrub are collective: all ranks call them in the same order"));
        }
        if refused > 0 {
            return Err(self.refusal(own.err()));
        }
        if same != !other {
            return Err(Error::usage(format!("the ranks differ in {what}"))
                .hint("all ranks must give the same value"));
        }
        Ok(CallOpened { oldest_known: !unknown, largest: [first, second] })
    }

    /// The error of the first rank that has one, on all ranks; the others' comes back as repeated.
    pub(crate) fn refusal(&mut self, own: Option<Error>) -> Error {
        let refusing = own.is_some();
        let told = own.map(|error| error.write());
        let decide = |all: Vec<Vec<u8>>| {
            let at = all.iter().position(|bytes| !bytes.is_empty()).unwrap_or(0);
            Ok([&(at as u64).to_le_bytes()[..], all.get(at).map_or(&[], |bytes| bytes)].concat())
        };
        match self.decide(&told.unwrap_or_default(), decide) {
            Err(error) => error,
            Ok(bytes) => {
                let (first, text) = bytes.split_at(bytes.len().min(8));
                let error = Error::read(text);
                let own = refusing && first == u64::from(self.rank().0).to_le_bytes();
                if own { error.own() } else { error }
            }
        }
    }

    /// Brings the bytes of all ranks to rank 0, which decides; all get its decision, or its error.
    pub(crate) fn decide(
        &mut self,
        own: &[u8],
        decide: impl FnOnce(Vec<Vec<u8>>) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let mut own = own.to_vec();
        seal(&mut own);
        let all = self.guarded(|comm| comm.gather(Rank(0), &own))?;
        let mut decision = Vec::new();
        if self.rank() == Rank(0) {
            let bare = |(rank, bytes): (usize, &Vec<u8>)| {
                let damaged = || Error::damaged(format!("a message of rank {rank} came damaged"));
                unsealed(bytes).map(<[u8]>::to_vec).ok_or_else(damaged)
            };
            let all = all.iter().enumerate().map(bare).collect::<Result<_>>();
            decision = match all.and_then(decide) {
                Ok(bytes) => [&[1], &bytes[..]].concat(),
                Err(error) => [&[0], &error.write()[..]].concat(),
            };
            seal(&mut decision);
        }
        self.guarded(|comm| comm.broadcast(Rank(0), &mut decision))?;
        // A rank that has not got the decision must not be the only one to know.
        let mut bad = [u64::from(unsealed(&decision).is_none())];
        self.reduce(Reduction::Max, &mut bad)?;
        if bad[0] > 0 {
            return Err(Error::damaged("a decision of rank 0 came damaged"));
        }
        decision.truncate(decision.len().saturating_sub(8));
        match decision.split_first() {
            Some((1, _)) => Ok(decision.split_off(1)),
            Some((0, error)) if self.rank() == Rank(0) => Err(Error::read(error).own()),
            Some((0, error)) => Err(Error::read(error)),
            _ => Err(garbled()),
        }
    }

    /// The bytes of all ranks, on all ranks.
    pub(crate) fn gather_all(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let joined = self.decide(own, |all| {
            let whole = |bytes: &Vec<u8>| [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat();
            Ok(all.iter().flat_map(whole).collect())
        })?;
        let (mut rest, mut all) = (&joined[..], Vec::new());
        while let Some((len, behind)) = rest.split_first_chunk::<8>() {
            let len = u64::from_le_bytes(*len) as usize;
            let (bytes, behind) = behind.split_at_checked(len).ok_or_else(garbled)?;
            all.push(bytes.to_vec());
            rest = behind;
        }
        match all.len() == self.comm.size() as usize {
            true => Ok(all),
            false => Err(garbled()),
        }
    }

    pub(crate) fn reduce(&mut self, reduction: Reduction, values: &mut [u64]) -> Result<()> {
        self.guarded(|comm| comm.reduce(reduction, values))
    }

    /// Exchanges messages, which are counted.
    pub(crate) fn exchange(&mut self, mail: &mut dyn Mailbox) -> Result<()> {
        let mut counted = CountedMail { mail, own: self.rank(), traffic: self.traffic };
        let exchanged = self.guarded(|comm| comm.exchange_mail(&mut counted));
        let collectives = self.traffic.collectives;
        self.traffic = ReplicaTraffic { collectives, ..counted.traffic };
        exchanged
    }

    /// Exchanges lists, each with its checksum. A list that comes damaged is left out.
    pub(crate) fn exchange_lists(&mut self, lists: Vec<(Rank, Vec<u8>)>) -> Result<Vec<Message>> {
        let mut mail = ListMail { lists: lists.into_iter(), received: Vec::new() };
        self.exchange(&mut mail)?;
        mail.received.sort_by_key(|(from, _)| *from);
        Ok(mail.received)
    }

    /// Makes a collective call, unless an earlier one has met a death.
    fn guarded<T>(&mut self, call: impl FnOnce(&dyn Comm) -> Result<T>) -> Result<T> {
        if let Some(error) = &self.stopped {
            return Err(error.clone());
        }
        self.traffic.collectives += 1;
        call(&*self.comm).map_err(|error| match error.kind() {
            ErrorKind::Dead | ErrorKind::Revoked => {
                let error = error.hint(
                    "shrink the communicator and pass the smaller one to ReplicaStore::go_on_with",
                );
                self.stopped = Some(error.clone());
                error
            }
            _ => error,
        })
    }
}

/// Counts the messages of a mailbox.
struct CountedMail<'m> {
    mail: &'m mut dyn Mailbox,
    own: Rank,
    traffic: ReplicaTraffic,
}

impl Mailbox for CountedMail<'_> {
    fn next(&mut self, memory: &mut dyn MessageMemory) -> Option<(Rank, Bytes)> {
        let (to, bytes) = self.mail.next(memory)?;
        if to != self.own {
            self.traffic.messages_sent += 1;
            self.traffic.bytes_sent += bytes.len() as u64;
        }
        Some((to, bytes))
    }

    fn room(&mut self, from: Rank, len: usize) -> MessageRoom {
        self.mail.room(from, len)
    }

    fn take(&mut self, from: Rank, message: MessageRoom) {
        if from != self.own {
            self.traffic.messages_received += 1;
            self.traffic.bytes_received += message.bytes.len() as u64;
        }
        self.mail.take(from, message);
    }
}

/// Lists with checksums.
struct ListMail {
    lists: std::vec::IntoIter<(Rank, Vec<u8>)>,
    received: Vec<Message>,
}

impl Mailbox for ListMail {
    fn next(&mut self, _: &mut dyn MessageMemory) -> Option<(Rank, Bytes)> {
        let (to, mut list) = self.lists.next()?;
        seal(&mut list);
        Some((to, list.into()))
    }

    fn room(&mut self, _from: Rank, len: usize) -> MessageRoom {
        MessageRoom::new(len)
    }

    fn take(&mut self, from: Rank, message: MessageRoom) {
        let list = unsealed(&message.bytes).map(|list| (from, list.to_vec()));
        self.received.extend(list);
    }
}

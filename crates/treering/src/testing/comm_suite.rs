//! The law of communicators.

use crate::array::Rank;
use crate::comm::{Comm, Mailbox, MessageMemory, MessageRoom, Reduction};
use crate::error::ErrorKind;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// A time that no message takes.
const LONG: Duration = Duration::from_secs(60);

/// Holds a communicator to its law, and panics where it does not. Every rank calls it, with a communicator of
/// its own that nobody else uses; nobody dies meanwhile.
pub fn comm_suite(comm: &dyn Comm) {
    let (rank, size) = (comm.rank().0, comm.size());
    assert!(rank < size, "a rank is less than the number of ranks");
    assert!(!comm.node().is_empty(), "a node has a name");
    collectives(comm);
    messages(comm);
    exchanges(comm);
    splits(comm);
    assert!(comm.agree(true).unwrap(), "all say yes");
    assert!(!comm.agree(rank != size / 2).unwrap(), "one says no");
    assert!(comm.dead().unwrap().is_empty(), "nobody has died");
    let wrong = comm.send(Rank(size), b"x").unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Usage, "there is no such rank");
    assert_eq!(comm.gather(Rank(size), b"x").unwrap_err().kind(), ErrorKind::Usage);
    assert!(comm.agree(true).unwrap());
}

fn content(rank: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(31).wrapping_add(rank * 7) as u8).collect()
}

fn collectives(comm: &dyn Comm) {
    let (rank, size) = (comm.rank().0, comm.size());
    for root in [0, size - 1] {
        for len in [0, 1, 100_000] {
            let mut bytes = if rank == root { content(root, len) } else { vec![9; 3] };
            comm.broadcast(Rank(root), &mut bytes).unwrap();
            assert!(bytes == content(root, len), "a broadcast of {len} bytes from rank {root}");
        }
        let own = content(rank, 1000 * rank as usize);
        let all = comm.gather(Rank(root), &own).unwrap();
        match rank == root {
            true => {
                let expected: Vec<_> = (0..size).map(|r| content(r, 1000 * r as usize)).collect();
                assert!(all == expected, "a gather at rank {root}");
            }
            false => assert!(all.is_empty(), "only the root gets what is gathered"),
        }
    }
    let mut values = [u64::from(rank) + 1, u64::MAX - u64::from(rank)];
    comm.reduce(Reduction::Sum, &mut values).unwrap();
    let n = u64::from(size);
    let sum = |of: &dyn Fn(u64) -> u64| (0..n).map(of).fold(0u64, u64::wrapping_add);
    assert_eq!(values, [sum(&|r| r + 1), sum(&|r| u64::MAX - r)]);
    let mut values = [u64::from(rank), u64::MAX - u64::from(rank)];
    comm.reduce(Reduction::Max, &mut values).unwrap();
    assert_eq!(values, [n - 1, u64::MAX]);
    let mut values = [u64::from(rank), u64::MAX - u64::from(rank)];
    comm.reduce(Reduction::Min, &mut values).unwrap();
    assert_eq!(values, [0, u64::MAX - (n - 1)]);
    comm.reduce(Reduction::Min, &mut []).unwrap();
}

fn messages(comm: &dyn Comm) {
    let (rank, size) = (comm.rank().0, comm.size());
    let (next, previous) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
    // Sending does not wait, and the order stays; large messages, too.
    let lengths = [0usize, 5, 1 << 20, 3];
    lengths.iter().for_each(|len| comm.send(next, &content(rank, *len)).unwrap());
    for len in lengths {
        let (from, bytes) = comm.receive(Some(previous), LONG).unwrap().expect("a message");
        assert_eq!(from, previous);
        assert!(bytes == content(previous.0, len), "a message of {len} bytes");
    }
    assert!(comm.agree(true).unwrap());
    assert_eq!(comm.receive(None, Duration::ZERO).unwrap(), None, "nothing more was sent");
    assert_eq!(comm.receive(Some(next), Duration::from_millis(1)).unwrap(), None);
    assert!(comm.agree(true).unwrap());
    if rank == 0 {
        (0..size).for_each(|to| comm.send(Rank(to), &content(to, 10)).unwrap());
    }
    let (from, bytes) = comm.receive(None, LONG).unwrap().expect("a message from any rank");
    assert_eq!((from, bytes), (Rank(0), content(rank, 10)));
}

fn exchanges(comm: &dyn Comm) {
    let (rank, size) = (comm.rank().0, comm.size());
    // To each second rank, of different lengths; twice, so that one is not taken for the other.
    for round in 0..2u32 {
        let len = |from: u32, to: u32| ((from * 31 + to * 7 + round) % 5 * 40_000) as usize;
        let goes = |from: u32, to: u32| (from + to + round).is_multiple_of(2);
        let messages: Vec<(u32, Vec<u8>)> = (0..size)
            .filter(|to| goes(rank, *to))
            .map(|to| (to, content(rank + to, len(rank, to))))
            .collect();
        let messages: Vec<(Rank, &[u8])> =
            messages.iter().map(|(to, b)| (Rank(*to), &b[..])).collect();
        let received = comm.exchange(&messages).unwrap();
        let expected: Vec<(Rank, Vec<u8>)> = (0..size)
            .filter(|from| goes(*from, rank))
            .map(|from| (Rank(from), content(rank + from, len(from, rank))))
            .collect();
        assert!(received == expected, "an exchange delivers what was sent, by sender");
    }
    assert!(comm.exchange(&[]).unwrap().is_empty());
    several(comm);
}

/// Several messages from each rank to each, itself among them; lengths are around 64 KiB, where a communicator may
/// begin to cut messages.
fn several(comm: &dyn Comm) {
    let (rank, size) = (comm.rank().0, comm.size());
    let lengths = [0usize, 1, 1 << 16, 3, (1 << 16) - 1, (1 << 16) + 1, 1 << 17, 0, 300_000, 2];
    let all = |from: u32, to: u32| {
        (0u32..).zip(lengths).map(move |(at, len)| content(from * 17 + to * 5 + at, len))
    };
    let messages: Vec<(Rank, Vec<u8>)> =
        (0..size).flat_map(|to| all(rank, to).map(move |bytes| (Rank(to), bytes))).collect();
    let borrowed: Vec<(Rank, &[u8])> =
        messages.iter().map(|(to, bytes)| (*to, &bytes[..])).collect();
    let expected: Vec<(Rank, Vec<u8>)> =
        (0..size).flat_map(|from| all(from, rank).map(move |bytes| (Rank(from), bytes))).collect();
    assert!(comm.exchange(&borrowed).unwrap() == expected, "messages of one rank stay in order");
    // The same with memory that is shared, and with the memory of the receiver, which is used again.
    let mut mail = SuiteMail { messages: messages.into(), spare: Vec::new(), received: Vec::new() };
    comm.exchange_mail(&mut mail).unwrap();
    assert!(mail.messages.is_empty(), "all messages are sent");
    mail.received.sort_by_key(|(from, _)| *from);
    assert!(mail.received == expected, "a mailbox gets the messages of one rank in order");
}

/// A mailbox whose rooms are used again.
struct SuiteMail {
    messages: VecDeque<(Rank, Vec<u8>)>,
    spare: Vec<MessageRoom>,
    received: Vec<(Rank, Vec<u8>)>,
}

impl Mailbox for SuiteMail {
    fn next(&mut self, _: &mut dyn MessageMemory) -> Option<(Rank, Bytes)> {
        self.messages.pop_front().map(|(to, bytes)| (to, bytes.into()))
    }

    fn room(&mut self, _from: Rank, len: usize) -> MessageRoom {
        let fits = self.spare.iter().position(|room| room.bytes.capacity() >= len);
        let mut room = fits.map_or_else(|| MessageRoom::new(len), |at| self.spare.swap_remove(at));
        room.bytes.clear();
        room
    }

    fn take(&mut self, from: Rank, message: MessageRoom) {
        self.received.push((from, message.bytes.to_vec()));
        self.spare.push(message);
    }
}

fn splits(comm: &dyn Comm) {
    let (rank, size) = (comm.rank().0, comm.size());
    let half = comm.split(rank % 2, 7).unwrap();
    assert_eq!(half.size(), size / 2 + u32::from(rank % 2 == 0) * (size % 2));
    assert_eq!(half.rank(), Rank(rank / 2));
    let mut values = [u64::from(rank)];
    half.reduce(Reduction::Sum, &mut values).unwrap();
    let members = (0..u64::from(size)).filter(|other| other % 2 == u64::from(rank % 2));
    assert_eq!(values, [members.sum::<u64>()]);
    let turned = comm.split(0, size - rank).unwrap();
    assert_eq!((turned.size(), turned.rank()), (size, Rank(size - 1 - rank)));
    // A message of one communicator is not received in another.
    comm.send(Rank(rank), b"outer").unwrap();
    half.send(half.rank(), b"inner").unwrap();
    assert_eq!(half.receive(None, LONG).unwrap(), Some((half.rank(), b"inner".to_vec())));
    assert_eq!(comm.receive(None, LONG).unwrap(), Some((Rank(rank), b"outer".to_vec())));
    // A communicator can end without the others.
    let alone = comm.split(rank, 0).unwrap();
    alone.revoke().unwrap();
    let error = alone.reduce(Reduction::Sum, &mut [1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Revoked);
    if comm.survives() {
        assert_eq!(alone.shrink().unwrap().size(), 1);
    }
    comm.reduce(Reduction::Sum, &mut [1]).unwrap();
}

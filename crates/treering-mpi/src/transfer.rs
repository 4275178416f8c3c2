//! Messages under way: their requests, and the memory that MPI reads or writes.
//!
//! MPI counts with 31 bits, so a message of a piece or more travels in several: its first piece, its length, and the
//! other pieces, which have a tag of their own. A shorter message is one MPI message, whose length its receiver asks
//! MPI for. Nothing is copied, and memory that a message fills is not cleared before.
//!
//! Law: MPI never uses memory that was released. A transfer that is given up because a rank has died is kept until MPI
//! is done with it, or for ever.

use crate::shim::{self, Raw, TrRequest, check};
use bytes::Bytes;
use std::ffi::c_int;
use std::time::Duration;
use treering::{Error, ErrorKind, MessageRoom, Rank, Result};

/// The tag of lengths and pieces that follow a first piece.
const PIECES: c_int = 2;

/// A request of MPI.
struct Request(*mut TrRequest);

// SAFETY: requests are not bound to threads, and the mutex of the communicator lets one thread in at a time.
unsafe impl Send for Request {}

/// The memory of a message under way.
pub(crate) enum TransferMemory {
    None,
    Sent(Bytes),
    Arriving(MessageRoom, usize),
}

/// A message under way.
pub(crate) struct Transfer {
    requests: Vec<Request>,
    memory: TransferMemory,
}

impl Transfer {
    /// Whether MPI is done with it; so it is after an error, too.
    pub(crate) fn is_done(&mut self) -> Result<bool> {
        let mut trouble = Ok(());
        self.requests.retain(|request| {
            let mut done = 0;
            // SAFETY: the request is not done yet, or it would not be in the list.
            let code = unsafe { shim::tr_test(request.0, &mut done) };
            if let Err(error) = check(code, "cannot send or receive") {
                trouble = Err(error);
                return false;
            }
            done == 0
        });
        trouble.map(|()| self.requests.is_empty())
    }

    /// Lets MPI look at all transfers at once. After an error, those that it is about count as done.
    pub(crate) fn look(sending: &mut [Transfer], arriving: &mut [Transfer]) -> Result<()> {
        let all = || sending.iter().chain(arriving.iter());
        let mut requests: Vec<*mut TrRequest> =
            all().flat_map(|transfer| transfer.requests.iter().map(|request| request.0)).collect();
        if requests.is_empty() {
            return Ok(());
        }
        // SAFETY: the requests are not done yet, or they would not be in the lists.
        let code = unsafe { shim::tr_test_some(requests.as_mut_ptr(), requests.len() as c_int) };
        let mut left = requests.into_iter();
        for transfer in sending.iter_mut().chain(arriving) {
            transfer.requests.retain(|_| left.next().is_some_and(|request| !request.is_null()));
        }
        check(code, "cannot send or receive")
    }

    /// Whether MPI was done with it at the last look.
    pub(crate) fn is_over(&self) -> bool {
        self.requests.is_empty()
    }

    /// The bytes that it sends.
    pub(crate) fn sent(&self) -> usize {
        match &self.memory {
            TransferMemory::Sent(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// A message that has come on another way.
    pub(crate) fn done(room: MessageRoom) -> Transfer {
        let len = room.bytes.len();
        Transfer { requests: Vec::new(), memory: TransferMemory::Arriving(room, len) }
    }

    /// The message of a transfer that is done.
    pub(crate) fn arrived(self) -> MessageRoom {
        match self.memory {
            TransferMemory::Arriving(mut room, len) if self.requests.is_empty() => {
                // SAFETY: MPI has filled this many bytes from the start on; the capacity was checked before.
                unsafe { room.bytes.set_len(len) };
                room
            }
            _ => MessageRoom::new(0),
        }
    }
}

/// A communicator and the most bytes of one MPI message.
#[derive(Clone, Copy)]
pub(crate) struct Wire {
    pub(crate) raw: Raw,
    pub(crate) piece: usize,
}

impl Wire {
    /// Begins to send a message. With `synchronous`, it is done only when its receiver takes it.
    pub(crate) fn send(
        &self,
        to: Rank,
        tag: c_int,
        bytes: Bytes,
        synchronous: bool,
        under_way: &mut Vec<Transfer>,
    ) -> Result<()> {
        let first = bytes.slice(..bytes.len().min(self.piece));
        under_way.push(self.send_piece(to, tag, first, synchronous)?);
        if bytes.len() < self.piece {
            return Ok(());
        }
        let length = Bytes::copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        under_way.push(self.send_piece(to, PIECES + tag * 8, length, false)?);
        let mut at = self.piece;
        while at < bytes.len() {
            let end = bytes.len().min(at + self.piece);
            under_way.push(self.send_piece(to, PIECES + tag * 8, bytes.slice(at..end), false)?);
            at = end;
        }
        Ok(())
    }

    fn send_piece(
        &self,
        to: Rank,
        tag: c_int,
        bytes: Bytes,
        synchronous: bool,
    ) -> Result<Transfer> {
        let mut request = std::ptr::null_mut();
        let len = bytes.len() as c_int;
        // SAFETY: the bytes live as long as the request, in the transfer.
        let code = unsafe {
            let (to, pointer) = (to.0 as c_int, bytes.as_ptr().cast());
            shim::tr_isend(self.raw.0, to, tag, pointer, len, synchronous.into(), &mut request)
        };
        check(code, &format!("cannot send to rank {to}"))?;
        Ok(Transfer { requests: vec![Request(request)], memory: TransferMemory::Sent(bytes) })
    }

    /// Whether a message has arrived: its sender and the length of its first piece.
    pub(crate) fn probe(&self, from: Option<Rank>, tag: c_int) -> Result<Option<(Rank, usize)>> {
        let (mut found, mut source, mut len) = (0, 0, 0);
        let from = from.map_or(-1, |from| from.0 as c_int);
        // SAFETY: the pointers are valid for the call.
        let code =
            unsafe { shim::tr_iprobe(self.raw.0, from, tag, &mut found, &mut source, &mut len) };
        check(code, "cannot receive")?;
        Ok((found != 0).then_some((Rank(source as u32), len as usize)))
    }

    /// Begins to receive a message whose first piece has `first` bytes, in memory of `room`.
    pub(crate) fn receive(
        &self,
        from: Rank,
        tag: c_int,
        first: usize,
        room: impl FnOnce(usize) -> MessageRoom,
        under_way: &mut Vec<Transfer>,
    ) -> Result<()> {
        let len = match first < self.piece {
            true => first,
            false => self.length(from, PIECES + tag * 8)?,
        };
        let mut room = room(len);
        room.bytes.clear();
        let memory = room.bytes.spare_capacity_mut();
        if len < first || memory.len() < len {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!("a message of {len} bytes from rank {from} does not fit"),
            ));
        }
        let start: *mut u8 = memory.as_mut_ptr().cast();
        let memory = TransferMemory::Arriving(room, len);
        let at = under_way.len();
        under_way.push(Transfer { requests: Vec::new(), memory });
        let mut done = 0;
        loop {
            let piece = self.piece.min(len - done);
            let tag = if done == 0 { tag } else { PIECES + tag * 8 };
            let mut request = std::ptr::null_mut();
            // SAFETY: the memory has room for the whole message and stays where it is, in the transfer.
            let code = unsafe {
                let (to, from) = (start.add(done).cast(), from.0 as c_int);
                shim::tr_irecv(self.raw.0, from, tag, to, piece as c_int, &mut request)
            };
            check(code, &format!("cannot receive from rank {from}"))?;
            under_way[at].requests.push(Request(request));
            done += piece;
            if done == len {
                return Ok(());
            }
        }
    }

    /// The length of a message of several pieces.
    fn length(&self, from: Rank, tag: c_int) -> Result<usize> {
        self.receive_short(from, tag).map(|len| u64::from_le_bytes(len) as usize)
    }

    /// Receives a message that has arrived, or comes soon.
    pub(crate) fn receive_short<const N: usize>(&self, from: Rank, tag: c_int) -> Result<[u8; N]> {
        let mut bytes = [0u8; N];
        // SAFETY: the memory is as long as it says.
        let code = unsafe {
            let to = bytes.as_mut_ptr().cast();
            shim::tr_recv(self.raw.0, from.0 as c_int, tag, to, N as c_int)
        };
        check(code, &format!("cannot receive from rank {from}"))?;
        Ok(bytes)
    }

    /// The rank of `MPI_COMM_WORLD` that a rank is; -1 if it is none.
    pub(crate) fn world_rank(&self, rank: Rank) -> Result<i32> {
        let mut world_rank = -1;
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { shim::tr_world_rank(self.raw.0, rank.0 as c_int, &mut world_rank) };
        check(code, "cannot ask MPI for a rank of the world")?;
        Ok(world_rank)
    }

    /// A request that is done when all ranks have begun it.
    pub(crate) fn barrier(&self) -> Result<Transfer> {
        let mut request = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { shim::tr_ibarrier(self.raw.0, &mut request) };
        check(code, "cannot exchange")?;
        Ok(Transfer { requests: vec![Request(request)], memory: TransferMemory::None })
    }
}

/// Time to wait between two looks for a message, growing while nothing comes.
pub(crate) struct Pause(Duration);

impl Pause {
    pub(crate) fn new() -> Pause {
        Pause(Duration::ZERO)
    }

    pub(crate) fn rest(&mut self) {
        match self.0 < Duration::from_micros(20) {
            true => std::thread::yield_now(),
            false => std::thread::sleep(self.0),
        }
        self.0 = (self.0 + Duration::from_nanos(200)).min(Duration::from_micros(200));
    }
}

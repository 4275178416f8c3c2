//! A communicator over MPI.
//!
//! Messages longer than a piece travel as several, because MPI counts with 31 bits: the first carries the length of
//! the whole. The sparse exchange is the nonblocking consensus of Hoefler, Siebert and Lumsdaine (2010): synchronous
//! sends, and a barrier that a rank enters when all of its own have been received.

use crate::shim::{self, Raw, TrRequest, check};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use treering::{Comm, Error, ErrorKind, Message, Rank, Reduction, Result};

/// The most bytes of one MPI message.
const PIECE: usize = 1 << 29;
/// The length of a whole message, in front of its first piece.
const HEAD: usize = 8;

/// The tags of the kinds of messages.
const MAIL: c_int = 1;
const PIECES: c_int = 2;
const GATHER: c_int = 3;
/// Two that take turns: a rank can be one exchange ahead of another, and no more.
const EXCHANGE: c_int = 4;

/// Ranks of an MPI program.
pub struct MpiComm {
    rank: Rank,
    size: u32,
    node: String,
    survives: bool,
    revoked: AtomicBool,
    state: Mutex<State>,
}

struct State {
    raw: Raw,
    /// Messages under way; their bytes must stay.
    sending: Vec<Sending>,
    /// The number of exchanges so far.
    exchanges: u64,
}

struct Sending {
    request: *mut TrRequest,
    _bytes: Vec<u8>,
}

// SAFETY: requests are not bound to threads, and the mutex lets one thread in at a time.
unsafe impl Send for Sending {}

impl MpiComm {
    pub(crate) fn new(raw: Raw, survives: bool) -> Result<MpiComm> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: `raw` is a communicator of the shim, and the pointers are valid for the calls.
        unsafe {
            check(shim::tr_rank(raw.0, &mut rank), "cannot ask MPI for the rank")?;
            check(shim::tr_size(raw.0, &mut size), "cannot ask MPI for the number of ranks")?;
        }
        // Tests have several nodes on one machine.
        let node = std::env::var("TREERING_NODE")
            .unwrap_or_else(|_| rustix::system::uname().nodename().to_string_lossy().into_owned());
        Ok(MpiComm {
            rank: Rank(rank as u32),
            size: size as u32,
            node,
            survives,
            revoked: AtomicBool::new(false),
            state: Mutex::new(State { raw, sending: Vec::new(), exchanges: 0 }),
        })
    }

    /// The state, if the communicator was not revoked here.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        match self.revoked.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Revoked, "the communicator was revoked")),
            false => Ok(self.held()),
        }
    }

    fn held(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn check_rank(&self, rank: Rank) -> Result<()> {
        match rank.0 < self.size {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Usage,
                format!("there is no rank {rank}, but only {}", self.size),
            )),
        }
    }

    fn part(&self, raw: *mut shim::TrComm) -> Result<Arc<dyn Comm>> {
        MpiComm::new(Raw(raw), self.survives).map(|comm| Arc::new(comm) as Arc<dyn Comm>)
    }
}

impl State {
    /// Begins to send a message, in pieces; the request of each.
    fn begin(&self, to: Rank, tag: c_int, bytes: &[u8], synchronous: bool) -> Result<Vec<Sending>> {
        let mut first = (bytes.len() as u64).to_le_bytes().to_vec();
        let (head, rest) = bytes.split_at(bytes.len().min(PIECE - HEAD));
        first.extend_from_slice(head);
        let mut all = vec![self.send_piece(to, tag, first, synchronous)?];
        for piece in rest.chunks(PIECE) {
            all.push(self.send_piece(to, PIECES + tag * 8, piece.to_vec(), false)?);
        }
        Ok(all)
    }

    fn send_piece(
        &self,
        to: Rank,
        tag: c_int,
        bytes: Vec<u8>,
        synchronous: bool,
    ) -> Result<Sending> {
        let mut request = std::ptr::null_mut();
        let len = bytes.len() as c_int;
        // SAFETY: the bytes live as long as the request, in `Sending`.
        let code = unsafe {
            let (to, pointer) = (to.0 as c_int, bytes.as_ptr().cast());
            shim::tr_isend(self.raw.0, to, tag, pointer, len, synchronous.into(), &mut request)
        };
        check(code, &format!("cannot send to rank {to}"))?;
        Ok(Sending { request, _bytes: bytes })
    }

    /// Lets go of messages that have been sent.
    fn progress(&mut self) {
        // A message to a rank that has died is lost, and whoever waits for its answer hears of that.
        self.sending.retain(|sending| matches!(is_done(sending), Ok(false)));
    }

    /// Whether a message has arrived: its sender and the length of its first piece.
    fn probe(&self, from: Option<Rank>, tag: c_int) -> Result<Option<(Rank, usize)>> {
        let (mut found, mut source, mut len) = (0, 0, 0);
        let from = from.map_or(-1, |from| from.0 as c_int);
        // SAFETY: the pointers are valid for the call.
        let code =
            unsafe { shim::tr_iprobe(self.raw.0, from, tag, &mut found, &mut source, &mut len) };
        check(code, "cannot receive")?;
        Ok((found != 0).then_some((Rank(source as u32), len as usize)))
    }

    /// Receives a message whose first piece has arrived.
    fn take(&self, from: Rank, tag: c_int, first: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; first];
        self.receive_into(from, tag, &mut bytes)?;
        let wrong = || Error::new(ErrorKind::Damaged, "a message has no length");
        let head = bytes.get(..HEAD).and_then(|head| head.try_into().ok()).ok_or_else(wrong)?;
        let len = u64::from_le_bytes(head) as usize;
        bytes.drain(..HEAD);
        let mut at = bytes.len();
        if at < len {
            bytes.resize(len, 0);
        }
        while at < len {
            let end = len.min(at + PIECE);
            self.receive_into(from, PIECES + tag * 8, &mut bytes[at..end])?;
            at = end;
        }
        Ok(bytes)
    }

    fn receive_into(&self, from: Rank, tag: c_int, bytes: &mut [u8]) -> Result<()> {
        let (pointer, len) = (bytes.as_mut_ptr().cast(), bytes.len() as c_int);
        // SAFETY: the memory is as long as it says.
        let code = unsafe { shim::tr_recv(self.raw.0, from.0 as c_int, tag, pointer, len) };
        check(code, &format!("cannot receive from rank {from}"))
    }
}

/// Whether a message has been sent; its request is gone then, and after an error.
fn is_done(sending: &Sending) -> Result<bool> {
    let mut done = 0;
    // SAFETY: the request is not done yet, or it would have been dropped.
    let code = unsafe { shim::tr_test(sending.request, &mut done) };
    check(code, "cannot send")?;
    Ok(done != 0)
}

/// How long to wait between two looks for a message, growing while nothing comes.
struct Pause(Duration);

impl Pause {
    fn new() -> Pause {
        Pause(Duration::ZERO)
    }

    fn rest(&mut self) {
        match self.0 < Duration::from_micros(20) {
            true => std::thread::yield_now(),
            false => std::thread::sleep(self.0),
        }
        self.0 = (self.0 + Duration::from_nanos(200)).min(Duration::from_micros(200));
    }
}

impl Comm for MpiComm {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn node(&self) -> &str {
        &self.node
    }

    fn send(&self, to: Rank, bytes: &[u8]) -> Result<()> {
        self.check_rank(to)?;
        let mut state = self.state()?;
        state.progress();
        let sending = state.begin(to, MAIL, bytes, false)?;
        state.sending.extend(sending);
        Ok(())
    }

    fn receive(&self, from: Option<Rank>, patience: Duration) -> Result<Option<Message>> {
        from.map_or(Ok(()), |from| self.check_rank(from))?;
        let until = Instant::now() + patience;
        let mut pause = Pause::new();
        loop {
            let mut state = self.state()?;
            state.progress();
            if let Some((from, first)) = state.probe(from, MAIL)? {
                return state.take(from, MAIL, first).map(|bytes| Some((from, bytes)));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            drop(state);
            pause.rest();
        }
    }

    fn broadcast(&self, root: Rank, bytes: &mut Vec<u8>) -> Result<()> {
        self.check_rank(root)?;
        let state = self.state()?;
        let cast = |pointer: *mut u8, len: usize| {
            // SAFETY: the memory is as long as it says.
            let code = unsafe {
                shim::tr_bcast(state.raw.0, pointer.cast(), len as c_int, root.0 as c_int)
            };
            check(code, "cannot broadcast")
        };
        let mut len = (bytes.len() as u64).to_le_bytes();
        cast(len.as_mut_ptr(), HEAD)?;
        bytes.resize(u64::from_le_bytes(len) as usize, 0);
        bytes.chunks_mut(PIECE).try_for_each(|piece| cast(piece.as_mut_ptr(), piece.len()))
    }

    fn gather(&self, root: Rank, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.check_rank(root)?;
        let state = self.state()?;
        // The lengths come first, so that a rank which cannot take part is noticed by all.
        let mut lengths = vec![0u64; if self.rank == root { self.size as usize } else { 0 }];
        // SAFETY: the root's memory has room for the values of all ranks; elsewhere it is not used.
        let code = unsafe {
            let all = lengths.as_mut_ptr();
            shim::tr_gather(state.raw.0, bytes.len() as u64, all, root.0 as c_int)
        };
        check(code, "cannot gather")?;
        if self.rank != root {
            let mut sending = state.begin(root, GATHER, bytes, false)?;
            let mut pause = Pause::new();
            while !sending.is_empty() {
                let mut trouble = Ok(());
                sending.retain(|one| match is_done(one) {
                    Ok(done) => !done,
                    Err(error) => {
                        trouble = Err(error);
                        false
                    }
                });
                trouble?;
                pause.rest();
            }
            return Ok(Vec::new());
        }
        let mut all = Vec::with_capacity(lengths.len());
        for (from, len) in lengths.iter().enumerate() {
            let from = Rank(from as u32);
            all.push(match from == root {
                true => bytes.to_vec(),
                false => {
                    let first = (*len as usize).min(PIECE - HEAD) + HEAD;
                    state.take(from, GATHER, first)?
                }
            });
        }
        Ok(all)
    }

    fn reduce(&self, reduction: Reduction, values: &mut [u64]) -> Result<()> {
        let state = self.state()?;
        let how = match reduction {
            Reduction::Sum => 0,
            Reduction::Min => 1,
            Reduction::Max => 2,
        };
        let (pointer, len) = (values.as_mut_ptr(), values.len() as c_int);
        // SAFETY: the memory is as long as it says.
        let code = unsafe { shim::tr_reduce(state.raw.0, how, pointer, len) };
        check(code, "cannot reduce")
    }

    fn exchange(&self, messages: &[(Rank, &[u8])]) -> Result<Vec<Message>> {
        messages.iter().try_for_each(|(to, _)| self.check_rank(*to))?;
        let mut state = self.state()?;
        state.progress();
        let tag = EXCHANGE + (state.exchanges % 2) as c_int;
        state.exchanges += 1;
        let mut sending = Vec::new();
        for (to, bytes) in messages {
            sending.extend(state.begin(*to, tag, bytes, true)?);
        }
        let (mut received, mut pause) = (Vec::new(), Pause::new());
        let mut barrier: Option<Sending> = None;
        let outcome = loop {
            match state.probe(None, tag).and_then(|found| match found {
                Some((from, first)) => state.take(from, tag, first).map(|b| Some((from, b))),
                None => Ok(None),
            }) {
                Ok(Some(message)) => {
                    received.push(message);
                    pause = Pause::new();
                    continue;
                }
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            let mut trouble = None;
            sending.retain(|one: &Sending| match is_done(one) {
                Ok(done) => !done,
                Err(error) => {
                    trouble = Some(error);
                    false
                }
            });
            if let Some(error) = trouble {
                break Err(error);
            }
            match &barrier {
                Some(request) => match is_done(request) {
                    Ok(false) => {}
                    Ok(true) => break Ok(()),
                    Err(error) => break Err(error),
                },
                None if sending.is_empty() => {
                    let mut request = std::ptr::null_mut();
                    // SAFETY: the pointer is valid for the call.
                    let code = unsafe { shim::tr_ibarrier(state.raw.0, &mut request) };
                    match check(code, "cannot exchange") {
                        Ok(()) => barrier = Some(Sending { request, _bytes: Vec::new() }),
                        Err(error) => break Err(error),
                    }
                }
                None => {}
            }
            pause.rest();
        };
        // Their memory is still being read.
        state.sending.extend(sending);
        outcome?;
        received.sort_by_key(|(from, _)| *from);
        Ok(received)
    }

    fn agree(&self, yes: bool) -> Result<bool> {
        if !self.survives {
            let mut value = [u64::from(yes)];
            self.reduce(Reduction::Min, &mut value)?;
            return Ok(value[0] == 1);
        }
        let mut flag = c_int::from(yes);
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { shim::tr_agree(self.held().raw.0, &mut flag) };
        check(code, "cannot agree")?;
        Ok(flag != 0)
    }

    fn split(&self, color: u32, key: u32) -> Result<Arc<dyn Comm>> {
        let state = self.state()?;
        let mut raw = std::ptr::null_mut();
        // MPI's colors and keys are signed.
        let (color, key) = ((color & 0x7fff_ffff) as c_int, (key & 0x7fff_ffff) as c_int);
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { shim::tr_split(state.raw.0, color, key, &mut raw) };
        check(code, "cannot split a communicator")?;
        self.part(raw)
    }

    fn dead(&self) -> Result<Vec<Rank>> {
        if !self.survives {
            return Ok(Vec::new());
        }
        let mut ranks = vec![0 as c_int; self.size as usize];
        let mut count = 0;
        // SAFETY: there is room for all ranks.
        let code = unsafe { shim::tr_dead(self.held().raw.0, ranks.as_mut_ptr(), &mut count) };
        check(code, "cannot ask MPI who has died")?;
        ranks.truncate(count as usize);
        ranks.sort_unstable();
        Ok(ranks.into_iter().map(|rank| Rank(rank as u32)).collect())
    }

    fn revoke(&self) -> Result<()> {
        self.revoked.store(true, Ordering::SeqCst);
        if !self.survives {
            return Ok(());
        }
        // SAFETY: the communicator is valid.
        check(unsafe { shim::tr_revoke(self.held().raw.0) }, "cannot revoke a communicator")
    }

    fn shrink(&self) -> Result<Arc<dyn Comm>> {
        if !self.survives {
            return Err(Error::new(
                ErrorKind::Usage,
                "this MPI cannot go on after the death of a rank",
            )
            .hint("use Open MPI 5 and `mpirun --with-ft ulfm`"));
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { shim::tr_shrink(self.held().raw.0, &mut raw) };
        check(code, "cannot shrink a communicator")?;
        self.part(raw)
    }

    fn survives(&self) -> bool {
        self.survives
    }
}

impl Drop for MpiComm {
    fn drop(&mut self) {
        let revoked = self.revoked.load(Ordering::SeqCst);
        let mut state = self.held();
        state.progress();
        // Memory that MPI may still read is never given back.
        std::mem::take(&mut state.sending).into_iter().for_each(std::mem::forget);
        // SAFETY: nobody uses it any more. Freeing is collective, so one that has failed is only forgotten.
        unsafe {
            match revoked {
                true => shim::tr_forget(state.raw.0),
                false => drop(shim::tr_free(state.raw.0)),
            }
        }
    }
}

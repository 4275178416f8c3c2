//! A communicator over MPI.
//!
//! Short messages of collective calls travel with their lengths, so that they need one call of MPI and not two.

use crate::exchange::{Exchange, check_rank};
use crate::outbox::Outboxes;
use crate::shim::{self, Raw, check};
use crate::transfer::{Pause, Transfer, Wire};
use bytes::Bytes;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use treering::{Comm, Error, ErrorKind, Mailbox, Message, MessageRoom, Rank, Reduction, Result};

/// The tags of the kinds of messages.
const MAIL: c_int = 1;
const GATHER: c_int = 3;
/// Two that take turns: a rank can be one exchange ahead of another, and no more.
const EXCHANGE: c_int = 4;

/// Bytes that travel with their length.
const SHORT: usize = 248;

/// A length, and the bytes if there are few.
#[derive(Clone, Copy)]
#[repr(C)]
struct ShortMessage {
    len: [u8; 8],
    bytes: [u8; SHORT],
}

impl ShortMessage {
    const EMPTY: ShortMessage = ShortMessage { len: [0; 8], bytes: [0; SHORT] };

    fn of(bytes: &[u8]) -> ShortMessage {
        let mut short = ShortMessage { len: (bytes.len() as u64).to_le_bytes(), ..Self::EMPTY };
        if let Some(start) = short.bytes.get_mut(..bytes.len()) {
            start.copy_from_slice(bytes);
        }
        short
    }

    fn len(&self) -> usize {
        u64::from_le_bytes(self.len) as usize
    }

    /// The bytes, unless there are more than fit.
    fn get(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len())
    }
}

/// Ranks of an MPI program.
pub struct MpiComm {
    rank: Rank,
    size: u32,
    node: String,
    survives: bool,
    piece: usize,
    revoked: AtomicBool,
    state: Mutex<State>,
    /// The memory that ranks of this machine share, whichever communicators they have.
    outboxes: Option<Arc<Mutex<Outboxes>>>,
}

struct State {
    wire: Wire,
    /// Messages under way that no call waits for.
    under_way: Vec<Transfer>,
    /// The number of exchanges so far.
    exchanges: u64,
}

impl MpiComm {
    pub(crate) fn new(wire: Wire, survives: bool) -> Result<MpiComm> {
        let raw = wire.raw;
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
            piece: wire.piece,
            revoked: AtomicBool::new(false),
            state: Mutex::new(State { wire, under_way: Vec::new(), exchanges: 0 }),
            outboxes: None,
        })
    }

    /// Lets large messages between ranks of a machine go through memory that they share; collective. Where that does not
    /// work, they go through MPI.
    pub(crate) fn sharing(mut self) -> Result<MpiComm> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { shim::tr_machine(self.held().wire.raw.0, &mut raw) };
        check(code, "cannot find the ranks of this machine")?;
        let machine = MpiComm::new(Wire { raw: Raw(raw), piece: self.piece }, self.survives)?;
        if machine.size > 1 {
            let own = self.held().wire.world_rank(self.rank)?;
            let outboxes = Outboxes::share(&machine, own)?;
            self.outboxes = outboxes.map(|outboxes| Arc::new(Mutex::new(outboxes)));
        }
        Ok(self)
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

    /// After a failure, nonblocking collectives of some MPIs return an error of no special kind.
    fn told<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| {
            if error.kind() != ErrorKind::Io || !self.survives {
                return error;
            }
            // SAFETY: the communicator is valid.
            let revoked = unsafe { shim::tr_is_revoked(self.held().wire.raw.0) } != 0;
            match (revoked, self.dead()) {
                (true, _) => Error::new(ErrorKind::Revoked, error.to_string()),
                (false, Ok(dead)) if !dead.is_empty() => {
                    Error::new(ErrorKind::Dead, error.to_string())
                }
                _ => error,
            }
        })
    }

    /// Exchanges messages; collective.
    fn exchange_all(&self, mail: &mut dyn Mailbox) -> Result<()> {
        let mut state = self.state()?;
        state.progress();
        let tag = EXCHANGE + (state.exchanges % 2) as c_int;
        state.exchanges += 1;
        let outboxes = self.outboxes.as_ref().map(|shared| shared.lock());
        let mut outboxes =
            outboxes.map(|shared| shared.unwrap_or_else(|poisoned| poisoned.into_inner()));
        let mut exchange = Exchange::new(state.wire, tag, self.size, mail, outboxes.as_deref_mut());
        let outcome = exchange.run();
        state.under_way.extend(exchange.unfinished());
        outcome
    }

    fn part(&self, raw: *mut shim::TrComm) -> Result<Arc<dyn Comm>> {
        let wire = Wire { raw: Raw(raw), piece: self.piece };
        let mut comm = MpiComm::new(wire, self.survives)?;
        comm.outboxes = self.outboxes.clone();
        Ok(Arc::new(comm))
    }
}

impl State {
    /// Lets go of messages that are done.
    fn progress(&mut self) {
        // A message to a rank that has died is lost, and whoever waits for its answer hears of that.
        self.under_way.retain_mut(|transfer| matches!(transfer.is_done(), Ok(false)));
    }

    /// Sends a message and waits until it is on its way.
    fn put(&mut self, to: Rank, tag: c_int, bytes: &[u8]) -> Result<()> {
        let mut sending = Vec::new();
        let bytes = Bytes::copy_from_slice(bytes);
        let begun = self.wire.send(to, tag, bytes, false, &mut sending);
        let sent = begun.and_then(|()| wait(&mut sending));
        self.under_way.append(&mut sending);
        sent
    }

    /// Receives a message whose first piece has this many bytes.
    fn take(&mut self, from: Rank, tag: c_int, first: usize) -> Result<Vec<u8>> {
        let mut arriving = Vec::new();
        let begun = self.wire.receive(from, tag, first, MessageRoom::new, &mut arriving);
        if let Err(error) = begun.and_then(|()| wait(&mut arriving)) {
            self.under_way.append(&mut arriving);
            return Err(error);
        }
        Ok(arriving.pop().map_or_else(Vec::new, |transfer| transfer.arrived().bytes.into()))
    }
}

/// Waits until transfers are done.
fn wait(transfers: &mut [Transfer]) -> Result<()> {
    let mut pause = Pause::new();
    for transfer in transfers {
        while !transfer.is_done()? {
            pause.rest();
        }
    }
    Ok(())
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
        check_rank(to, self.size)?;
        let mut state = self.state()?;
        state.progress();
        let State { wire, under_way, .. } = &mut *state;
        wire.send(to, MAIL, Bytes::copy_from_slice(bytes), false, under_way)
    }

    fn receive(&self, from: Option<Rank>, patience: Duration) -> Result<Option<Message>> {
        from.map_or(Ok(()), |from| check_rank(from, self.size))?;
        let until = Instant::now() + patience;
        let mut pause = Pause::new();
        loop {
            let mut state = self.state()?;
            state.progress();
            if let Some((from, first)) = state.wire.probe(from, MAIL)? {
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
        check_rank(root, self.size)?;
        let state = self.state()?;
        let Wire { raw: comm, piece } = state.wire;
        let cast = |pointer: *mut u8, len: usize| {
            // SAFETY: the memory is as long as it says.
            let code =
                unsafe { shim::tr_bcast(comm.0, pointer.cast(), len as c_int, root.0 as c_int) };
            check(code, "cannot broadcast")
        };
        let mut short = ShortMessage::of(bytes);
        cast((&raw mut short).cast(), size_of::<ShortMessage>())?;
        if let Some(all) = short.get() {
            bytes.clear();
            bytes.extend_from_slice(all);
            return Ok(());
        }
        let len = short.len();
        if self.rank != root {
            bytes.clear();
            bytes.reserve(len);
        }
        let mut done = 0;
        while done < len {
            let step = piece.min(len - done);
            cast(bytes.as_mut_ptr().wrapping_add(done), step)?;
            done += step;
        }
        // SAFETY: there is room for this many bytes, and MPI has filled them; at the root they were there before.
        unsafe { bytes.set_len(len) };
        Ok(())
    }

    fn gather(&self, root: Rank, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        check_rank(root, self.size)?;
        let mut state = self.state()?;
        let own = ShortMessage::of(bytes);
        // The lengths come first, so that a rank which cannot take part is noticed by all.
        let ranks = if self.rank == root { self.size as usize } else { 0 };
        let mut shorts = vec![ShortMessage::EMPTY; ranks];
        // SAFETY: the root's memory has room for the messages of all ranks; elsewhere it is not used.
        let code = unsafe {
            let (own, len) = ((&raw const own).cast(), size_of::<ShortMessage>() as c_int);
            let all = shorts.as_mut_ptr().cast();
            shim::tr_gather(state.wire.raw.0, own, len, all, root.0 as c_int)
        };
        check(code, "cannot gather")?;
        if self.rank != root {
            if own.get().is_none() {
                state.put(root, GATHER, bytes)?;
            }
            return Ok(Vec::new());
        }
        let take = |(from, short): (u32, &ShortMessage)| match (short.get(), Rank(from)) {
            (Some(all), _) => Ok(all.to_vec()),
            (None, from) if from == root => Ok(bytes.to_vec()),
            (None, from) => {
                let first = short.len().min(state.wire.piece);
                state.take(from, GATHER, first)
            }
        };
        (0..).zip(&shorts).map(take).collect()
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
        let code = unsafe { shim::tr_reduce(state.wire.raw.0, how, pointer, len) };
        drop(state);
        self.told(check(code, "cannot reduce"))
    }

    fn exchange_mail(&self, mail: &mut dyn Mailbox) -> Result<()> {
        self.told(self.exchange_all(mail))
    }

    fn agree(&self, yes: bool) -> Result<bool> {
        if !self.survives {
            let mut value = [u64::from(yes)];
            self.reduce(Reduction::Min, &mut value)?;
            return Ok(value[0] == 1);
        }
        let mut flag = c_int::from(yes);
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { shim::tr_agree(self.held().wire.raw.0, &mut flag) };
        check(code, "cannot agree")?;
        Ok(flag != 0)
    }

    fn split(&self, color: u32, key: u32) -> Result<Arc<dyn Comm>> {
        let state = self.state()?;
        let mut raw = std::ptr::null_mut();
        // MPI's colors and keys are signed.
        let (color, key) = ((color & 0x7fff_ffff) as c_int, (key & 0x7fff_ffff) as c_int);
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { shim::tr_split(state.wire.raw.0, color, key, &mut raw) };
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
        let code = unsafe { shim::tr_dead(self.held().wire.raw.0, ranks.as_mut_ptr(), &mut count) };
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
        check(unsafe { shim::tr_revoke(self.held().wire.raw.0) }, "cannot revoke a communicator")
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
        let code = unsafe { shim::tr_shrink(self.held().wire.raw.0, &mut raw) };
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
        // Memory that MPI may still read is never released.
        std::mem::take(&mut state.under_way).into_iter().for_each(std::mem::forget);
        // Open MPI gives the number of a communicator that was freed to a new one. If a rank has revoked the old one, and
        // word of that comes late, it is taken for the new one, which may be half made: ompi_comm_revoke_local crashes.
        // So where ranks may die, numbers are not used again. Recoveries make a few each.
        let may_die = self.survives;
        // SAFETY: nobody uses it any more. Freeing is collective, so one that has failed is only forgotten.
        unsafe {
            match revoked || may_die {
                true => shim::tr_forget(state.wire.raw.0),
                false => drop(shim::tr_free(state.wire.raw.0)),
            }
        }
    }
}

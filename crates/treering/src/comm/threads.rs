//! Ranks as threads of one process: for tests of ranks, of their deaths, and of programs that use them.
//!
//! A rank that is killed runs nothing more, not even destructors: whatever it does next, it stops for ever
//! inside that call. It can be killed at a chosen call of its communicators. Messages can be delayed. One lock guards
//! everything, which is fast enough for tests.

use super::{Comm, Mailbox, Message, MessageMemory, Reduction, check_rank, died, held, revoked};
use crate::array::Rank;
use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// End of a rank: one of the results of [`ThreadRanks::run`]. The type has an example: [`ThreadRanks`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End<T> {
    /// The rank returned this.
    Done(T),
    /// The rank was killed.
    Killed,
    /// The rank panicked, which the others see as its death.
    Panicked(String),
}

impl<T> End<T> {
    /// The value that it returned, if it did.
    pub fn done(self) -> Option<T> {
        match self {
            End::Done(value) => Some(value),
            _ => None,
        }
    }
}

/// Ranks that are threads of one process, for tests and small programs. A panic of a rank is its death for the others.
///
/// ```
/// use treering::{Reduction, ThreadRanks};
/// let ends = ThreadRanks::new(4).run(|comm| {
///     let mut sum = [u64::from(comm.rank().0)];
///     comm.reduce(Reduction::Sum, &mut sum).unwrap();
///     sum[0]
/// });
/// let sums: Vec<u64> = ends.into_iter().filter_map(|end| end.done()).collect();
/// assert_eq!(sums, [6, 6, 6, 6]);
/// ```
#[derive(Clone)]
pub struct ThreadRanks {
    world: Arc<World>,
}

struct World {
    nodes: Vec<String>,
    /// The longest delay of a message, and the state of the random numbers.
    delay: Duration,
    dice: AtomicU64,
    shared: Mutex<Shared>,
    changed: Condvar,
}

#[derive(Default)]
struct Shared {
    dead: Vec<bool>,
    /// The ranks whose program has ended: survivors that meet do not wait for them.
    ended: Vec<bool>,
    /// The calls that each rank has made, and the number of the call that it does not survive.
    calls: Vec<(u64, Option<u64>)>,
    contexts: Vec<Context>,
    /// The receiver of deaths.
    ends: Option<Sender<Rank>>,
}

/// Messages of one rank to another, and when they arrive.
type Mail = VecDeque<(Instant, Vec<u8>)>;

/// Bytes that ranks have given to a collective call.
type Given = BTreeMap<Rank, Vec<u8>>;

/// The state of one communicator.
#[derive(Default)]
struct Context {
    /// The ranks of the world that are its members.
    members: Vec<Rank>,
    revoked: bool,
    /// Collective calls by their number; those that survive deaths are counted apart.
    meetings: HashMap<(bool, u64), Meeting>,
    mail: HashMap<(Rank, Rank), Mail>,
}

/// A collective call.
#[derive(Default)]
struct Meeting {
    given: Given,
    /// Everything that was given, once it is decided.
    result: Option<Arc<Given>>,
    /// The communicators that it has made, by color.
    made: BTreeMap<u32, usize>,
}

impl ThreadRanks {
    /// A number of ranks on one node.
    pub fn new(ranks: u32) -> ThreadRanks {
        Self::on_nodes(&vec!["node".to_string(); ranks as usize])
    }

    /// A rank for each name, which is that of its node.
    pub fn on_nodes(nodes: &[String]) -> ThreadRanks {
        let members = (0..nodes.len() as u32).map(Rank).collect();
        let shared = Shared {
            dead: vec![false; nodes.len()],
            ended: vec![false; nodes.len()],
            calls: vec![(0, None); nodes.len()],
            contexts: vec![Context { members, ..Context::default() }],
            ends: None,
        };
        ThreadRanks {
            world: Arc::new(World {
                nodes: nodes.to_vec(),
                delay: Duration::ZERO,
                dice: AtomicU64::new(1),
                shared: Mutex::new(shared),
                changed: Condvar::new(),
            }),
        }
    }

    /// Delays each message by a random time up to `longest`.
    #[must_use]
    pub fn delayed(mut self, longest: Duration, seed: u64) -> ThreadRanks {
        if let Some(world) = Arc::get_mut(&mut self.world) {
            (world.delay, world.dice) = (longest, AtomicU64::new(seed | 1));
        }
        self
    }

    /// Kills a rank: nothing that it does from now on takes effect, and the others notice.
    pub fn kill(&self, rank: Rank) {
        let mut shared = held(&self.world.shared);
        if let Some(dead) = shared.dead.get_mut(rank.0 as usize) {
            *dead = true;
        }
        if let Some(ends) = &shared.ends {
            let _ = ends.send(rank);
        }
        drop(shared);
        self.world.changed.notify_all();
    }

    /// Kills a rank when it makes a call of its communicators; they are counted from 0 on. Asking who is dead does not
    /// count: how often a rank does so depends on the time.
    #[must_use]
    pub fn killed_at(self, rank: Rank, call: u64) -> ThreadRanks {
        if let Some(calls) = held(&self.world.shared).calls.get_mut(rank.0 as usize) {
            calls.1 = Some(call);
        }
        self
    }

    /// Stops the calling thread for ever if its rank was killed; for stores and other objects of a rank. A thread
    /// without a name belongs to a pool that other ranks share: it gets an error, and continues with their work.
    pub fn stop_if_dead(&self, rank: Rank) -> Result<()> {
        let dead = held(&self.world.shared).dead.get(rank.0 as usize).copied().unwrap_or(false);
        match (dead, std::thread::current().name()) {
            (false, _) => Ok(()),
            (true, None) => Err(died(&[rank])),
            (true, Some(_)) => stop(),
        }
    }

    /// Runs all ranks, each with its communicator, until each has ended.
    pub fn run<T: Send + 'static>(
        &self,
        program: impl Fn(Arc<dyn Comm>) -> T + Send + Sync + 'static,
    ) -> Vec<End<T>> {
        let (ends, ended) = channel();
        {
            let mut shared = held(&self.world.shared);
            shared.ends = Some(ends.clone());
            shared.ended.fill(false);
        }
        let program = Arc::new(program);
        let results: Arc<Mutex<HashMap<Rank, End<T>>>> = Arc::default();
        let count = self.world.nodes.len() as u32;
        for rank in (0..count).map(Rank) {
            let (ranks, program, results) = (self.clone(), program.clone(), results.clone());
            let ends = ends.clone();
            let work = move || {
                let comm = Arc::new(ThreadComm::new(ranks.world.clone(), 0, rank));
                let end = catch_unwind(AssertUnwindSafe(|| program(comm)));
                let _ = ranks.stop_if_dead(rank);
                let end = end.map_or_else(|panic| End::Panicked(text(&*panic)), End::Done);
                let died = matches!(end, End::Panicked(_));
                held(&results).insert(rank, end);
                held(&ranks.world.shared).ended[rank.0 as usize] = true;
                ranks.world.changed.notify_all();
                let _ = ends.send(rank);
                if died {
                    ranks.kill(rank);
                }
            };
            let thread = std::thread::Builder::new().name(format!("rank {rank}"));
            if thread.spawn(work).is_err() {
                self.kill(rank);
            }
        }
        let mut missing: Vec<Rank> = (0..count).map(Rank).collect();
        while !missing.is_empty() {
            let Ok(rank) = ended.recv() else { break };
            missing.retain(|other| *other != rank);
        }
        let mut results = held(&results);
        (0..count).map(|rank| results.remove(&Rank(rank)).unwrap_or(End::Killed)).collect()
    }
}

/// The text of a panic.
fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// A dead rank does nothing more.
fn stop() -> ! {
    loop {
        std::thread::park();
    }
}

/// One rank's end of a communicator.
struct ThreadComm {
    world: Arc<World>,
    context: usize,
    /// The members, and this rank's place among them.
    members: Vec<Rank>,
    rank: Rank,
    /// The collective calls so far: those that need all members, and those that survive deaths.
    calls: [AtomicU64; 2],
}

impl ThreadComm {
    fn new(world: Arc<World>, context: usize, own: Rank) -> ThreadComm {
        let members = held(&world.shared).contexts[context].members.clone();
        let rank = members.iter().position(|member| *member == own).unwrap_or(0);
        let rank = Rank(rank as u32);
        ThreadComm { world, context, members, rank, calls: Default::default() }
    }

    fn own(&self) -> Rank {
        self.members[self.rank.0 as usize]
    }

    /// Counts a call, which may be the last one of this rank.
    fn count(&self) {
        let mut shared = held(&self.world.shared);
        let (made, last) = &mut shared.calls[self.own().0 as usize];
        let dies = *last == Some(*made);
        *made += 1;
        drop(shared);
        if dies {
            ThreadRanks { world: self.world.clone() }.kill(self.own());
        }
    }

    /// The world's state, for a rank that lives.
    fn shared(&self) -> MutexGuard<'_, Shared> {
        let shared = held(&self.world.shared);
        self.unless_dead(shared)
    }

    fn unless_dead<'s>(&self, shared: MutexGuard<'s, Shared>) -> MutexGuard<'s, Shared> {
        if shared.dead[self.own().0 as usize] {
            drop(shared);
            stop();
        }
        shared
    }

    fn wait<'s>(
        &self,
        shared: MutexGuard<'s, Shared>,
        until: Option<Instant>,
    ) -> MutexGuard<'s, Shared> {
        let changed = &self.world.changed;
        let shared = match until {
            None => changed.wait(shared).unwrap_or_else(|poisoned| poisoned.into_inner()),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                let waited = changed.wait_timeout(shared, left.max(Duration::from_micros(50)));
                waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0
            }
        };
        self.unless_dead(shared)
    }

    fn dead_members(&self, shared: &Shared) -> Vec<Rank> {
        let ranks = (0..self.size()).map(Rank);
        ranks.filter(|rank| shared.dead[self.members[rank.0 as usize].0 as usize]).collect()
    }

    /// Gives bytes and gets those of all members; with `tolerant`, of those that live.
    fn meet(&self, tolerant: bool, bytes: Vec<u8>) -> Result<(u64, Arc<Given>)> {
        self.count();
        let number = self.calls[usize::from(tolerant)].fetch_add(1, Ordering::SeqCst);
        let key = (tolerant, number);
        let mut shared = self.shared();
        let context = &mut shared.contexts[self.context];
        if !tolerant && context.revoked {
            return Err(revoked());
        }
        context.meetings.entry(key).or_default().given.insert(self.rank, bytes);
        self.world.changed.notify_all();
        loop {
            let dead = self.dead_members(&shared);
            let mut gone = dead.clone();
            let ended = |rank: &Rank| shared.ended[self.members[rank.0 as usize].0 as usize];
            gone.extend((0..self.size()).map(Rank).filter(ended));
            let context = &mut shared.contexts[self.context];
            let revoked_now = context.revoked;
            let meeting = context.meetings.entry(key).or_default();
            let missing = |rank: &Rank| !meeting.given.contains_key(rank);
            let absent: Vec<Rank> = (0..self.size()).map(Rank).filter(missing).collect();
            let excused = |rank: &Rank| tolerant && gone.contains(rank);
            if meeting.result.is_none() && absent.iter().all(excused) {
                let mut given = meeting.given.clone();
                // Of those that have died meanwhile nothing counts.
                given.retain(|rank, _| !(tolerant && dead.contains(rank)));
                meeting.result = Some(Arc::new(given));
                self.world.changed.notify_all();
            }
            if let Some(result) = &meeting.result {
                return Ok((number, result.clone()));
            }
            let lost: Vec<Rank> = absent.into_iter().filter(|rank| dead.contains(rank)).collect();
            if !tolerant && !lost.is_empty() {
                return Err(died(&lost));
            }
            if !tolerant && revoked_now {
                return Err(revoked());
            }
            shared = self.wait(shared, None);
        }
    }

    /// The communicator of some members that a meeting makes, one for each color.
    fn make(&self, tolerant: bool, number: u64, color: u32, ranks: &[Rank]) -> Arc<dyn Comm> {
        let mut shared = self.shared();
        let next = shared.contexts.len();
        let meeting = shared.contexts[self.context].meetings.entry((tolerant, number)).or_default();
        let context = *meeting.made.entry(color).or_insert(next);
        if context == next {
            let members = ranks.iter().map(|rank| self.members[rank.0 as usize]).collect();
            shared.contexts.push(Context { members, ..Context::default() });
        }
        drop(shared);
        Arc::new(ThreadComm::new(self.world.clone(), context, self.own()))
    }

    fn post(&self, shared: &mut Shared, to: Rank, bytes: &[u8]) {
        let roll = self.world.dice.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst);
        let share = (roll ^ (roll >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40;
        let delay = self.world.delay.mul_f64(share as f64 / (1u64 << 24) as f64);
        let mail = shared.contexts[self.context].mail.entry((self.rank, to)).or_default();
        let after = mail.back().map_or_else(Instant::now, |(time, _)| *time);
        mail.push_back((after.max(Instant::now()) + delay, bytes.to_vec()));
    }
}

impl Comm for ThreadComm {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.members.len() as u32
    }

    fn node(&self) -> &str {
        &self.world.nodes[self.own().0 as usize]
    }

    fn send(&self, to: Rank, bytes: &[u8]) -> Result<()> {
        self.count();
        check_rank(self, to)?;
        let mut shared = self.shared();
        if shared.contexts[self.context].revoked {
            return Err(revoked());
        }
        self.post(&mut shared, to, bytes);
        self.world.changed.notify_all();
        Ok(())
    }

    fn receive(&self, from: Option<Rank>, patience: Duration) -> Result<Option<Message>> {
        self.count();
        from.map_or(Ok(()), |from| check_rank(self, from))?;
        let until = Instant::now() + patience;
        let mut shared = self.shared();
        loop {
            if shared.contexts[self.context].revoked {
                return Err(revoked());
            }
            let now = Instant::now();
            let mail = &mut shared.contexts[self.context].mail;
            let senders = from.map_or(0..self.size(), |from| from.0..from.0 + 1).map(Rank);
            let mut first: Option<Instant> = None;
            for sender in senders {
                let Some(queue) = mail.get_mut(&(sender, self.rank)) else { continue };
                match queue.front() {
                    Some((time, _)) if *time <= now => {
                        let (_, bytes) = queue.pop_front().unwrap_or((now, Vec::new()));
                        return Ok(Some((sender, bytes)));
                    }
                    Some((time, _)) => first = Some(first.map_or(*time, |f| f.min(*time))),
                    None => {}
                }
            }
            // Messages that a rank sent before it died still arrive.
            if first.is_none()
                && from.is_some_and(|from| self.dead_members(&shared).contains(&from))
            {
                return Err(died(&from.into_iter().collect::<Vec<_>>()));
            }
            if now >= until {
                return Ok(None);
            }
            shared = self.wait(shared, Some(first.map_or(until, |first| first.min(until))));
        }
    }

    fn broadcast(&self, root: Rank, bytes: &mut Vec<u8>) -> Result<()> {
        check_rank(self, root)?;
        let own = if self.rank == root { std::mem::take(bytes) } else { Vec::new() };
        let (_, all) = self.meet(false, own)?;
        *bytes = all.get(&root).cloned().unwrap_or_default();
        Ok(())
    }

    fn gather(&self, root: Rank, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        check_rank(self, root)?;
        let (_, all) = self.meet(false, bytes.to_vec())?;
        Ok(if self.rank == root { all.values().cloned().collect() } else { Vec::new() })
    }

    fn reduce(&self, reduction: Reduction, values: &mut [u64]) -> Result<()> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let (_, all) = self.meet(false, bytes)?;
        let wrong = || Error::usage("the ranks reduce different numbers of values");
        for (at, value) in values.iter_mut().enumerate() {
            let mut given = all.values().map(|bytes| {
                let bytes = bytes.chunks_exact(8).nth(at).ok_or_else(wrong)?;
                Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| wrong())?))
            });
            let first = given.next().unwrap_or(Ok(*value))?;
            *value = given.try_fold(first, |a, b: Result<u64>| b.map(|b| reduction.of(a, b)))?;
        }
        Ok(())
    }

    fn exchange_mail(&self, mail: &mut dyn Mailbox) -> Result<()> {
        let (mut bytes, mut memory) = (Vec::new(), SomeMemory::default());
        while let Some((to, message)) = mail.next(&mut memory) {
            check_rank(self, to)?;
            bytes.extend_from_slice(&to.0.to_le_bytes());
            bytes.extend_from_slice(&(message.len() as u64).to_le_bytes());
            bytes.extend_from_slice(&message);
        }
        let (_, all) = self.meet(false, bytes)?;
        for (sender, bytes) in all.iter() {
            let mut rest = &bytes[..];
            while let Some((head, behind)) = rest.split_first_chunk::<12>() {
                let to = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
                let len = head[4..].iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
                let (message, behind) = behind.split_at(len as usize);
                if to == self.rank.0 {
                    let mut room = mail.room(*sender, message.len());
                    room.fill(message);
                    mail.take(*sender, room);
                }
                rest = behind;
            }
        }
        Ok(())
    }

    fn agree(&self, yes: bool) -> Result<bool> {
        let (_, all) = self.meet(true, vec![u8::from(yes)])?;
        Ok(all.values().all(|bytes| bytes == &[1]))
    }

    fn split(&self, color: u32, key: u32) -> Result<Arc<dyn Comm>> {
        let own = [color.to_le_bytes(), key.to_le_bytes()].concat();
        let (number, all) = self.meet(false, own)?;
        let same = all.iter().filter(|(_, bytes)| bytes[..4] == color.to_le_bytes());
        let key =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |key, byte| key << 8 | u32::from(*byte));
        let mut ranks: Vec<(u32, Rank)> = same.map(|(rank, own)| (key(&own[4..]), *rank)).collect();
        ranks.sort_unstable();
        let ranks: Vec<Rank> = ranks.into_iter().map(|(_, rank)| rank).collect();
        Ok(self.make(false, number, color, &ranks))
    }

    fn dead(&self) -> Result<Vec<Rank>> {
        Ok(self.dead_members(&self.shared()))
    }

    fn revoke(&self) -> Result<()> {
        self.count();
        self.shared().contexts[self.context].revoked = true;
        self.world.changed.notify_all();
        Ok(())
    }

    fn shrink(&self) -> Result<Arc<dyn Comm>> {
        let (number, all) = self.meet(true, Vec::new())?;
        let ranks: Vec<Rank> = all.keys().copied().collect();
        match ranks.contains(&self.rank) {
            true => Ok(self.make(true, number, 0, &ranks)),
            false => Err(Error::new(ErrorKind::Dead, "this rank counts as dead")),
        }
    }

    fn survives(&self) -> bool {
        true
    }
}

/// Memory in which there is room for every second message.
#[derive(Default)]
struct SomeMemory {
    full: bool,
}

impl MessageMemory for SomeMemory {
    fn make(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> Option<Bytes> {
        self.full = !self.full;
        self.full.then(|| {
            let mut message = vec![0; len];
            fill(&mut message);
            message.into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Alone;
    use crate::testing::comm_suite;

    #[test]
    fn ranks_as_threads_hold_to_the_law() {
        for ranks in [1, 2, 3, 8] {
            for delay in [0, 2] {
                let world =
                    ThreadRanks::new(ranks).delayed(Duration::from_millis(delay), ranks.into());
                let ends = world.run(|comm| comm_suite(&*comm));
                assert!(ends.iter().all(|end| *end == End::Done(())), "{ends:?}");
            }
        }
        comm_suite(&Alone::new());
    }

    #[test]
    fn the_survivors_of_a_death_go_on() {
        for dead in (0..4).map(Rank) {
            let world = ThreadRanks::new(4);
            let kill = world.clone();
            let ends = world.run(move |comm| {
                comm.reduce(Reduction::Sum, &mut [1]).unwrap();
                if comm.rank() == dead {
                    kill.kill(dead);
                }
                let error = comm.broadcast(dead, &mut vec![1]).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Dead | ErrorKind::Revoked), "{error}");
                comm.revoke().unwrap();
                let error = comm.gather(Rank(0), b"x").unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Dead | ErrorKind::Revoked), "{error}");
                assert!(comm.agree(true).unwrap());
                assert_eq!(comm.dead().unwrap(), [dead]);
                let smaller = comm.shrink().unwrap();
                comm_suite(&*smaller);
                (smaller.rank().0, smaller.size())
            });
            let alive = (0..4u32).filter(|rank| *rank != dead.0).enumerate();
            for (new, old) in alive {
                assert_eq!(ends[old as usize], End::Done((new as u32, 3)));
            }
            assert_eq!(ends[dead.0 as usize], End::Killed);
        }
    }

    #[test]
    fn a_panic_is_a_death_and_a_dead_rank_does_nothing_more() {
        struct Loud(Arc<AtomicU64>);
        impl Drop for Loud {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let drops = Arc::new(AtomicU64::new(0));
        let (world, counted) = (ThreadRanks::new(3), drops.clone());
        let kill = world.clone();
        let ends = world.run(move |comm| {
            let _loud = (comm.rank() == Rank(1)).then(|| Loud(counted.clone()));
            match comm.rank().0 {
                1 => kill.kill(Rank(1)),
                2 => panic!("out of cheese"),
                _ => {}
            }
            while comm.dead().unwrap() != [Rank(1), Rank(2)] {
                std::thread::yield_now();
            }
            comm.rank().0
        });
        assert_eq!(ends, [End::Done(0), End::Killed, End::Panicked("out of cheese".into())]);
        assert_eq!(drops.load(Ordering::SeqCst), 0);
    }
}

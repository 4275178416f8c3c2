//! Deaths without dying: for tests of programs that survive deaths, on MPIs that do not.
//!
//! The ranks agree on who dies by calling [`SimulatedDeaths::kill`] together, which splits them into those that live and
//! the others (`MPI_Comm_split`). From then on every communicator with a dead member behaves as after a death: calls return
//! [`ErrorKind::Dead`], and [`Comm::shrink`] of the communicator of all returns that of the living. A rank that counts as
//! dead gets `Dead` from every call, and leaves.
//!
//! Law: to the living it looks like a death between two calls. The whole communicator alone can be shrunk and agreed on
//! after a death; those that were split from it end.

use super::{Comm, Mailbox, Message, Reduction, died, held, revoked};
use crate::array::Rank;
use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Deaths that a program simulates on the ranks of a communicator.
///
/// ```
/// use treering::{ErrorKind, Rank, Reduction, Result, SimulatedDeaths, ThreadRanks};
/// let ends = ThreadRanks::new(3).run(|comm| -> Result<()> {
///     let (deaths, comm) = SimulatedDeaths::on(comm);
///     if deaths.kill(&[Rank(1)])? {
///         return Ok(()); // this rank counts as dead
///     }
///     let error = comm.reduce(Reduction::Sum, &mut [1]).unwrap_err();
///     assert_eq!(error.kind(), ErrorKind::Dead);
///     assert_eq!(comm.shrink()?.size(), 2);
///     Ok(())
/// });
/// ends.into_iter().for_each(|end| end.done().expect("the rank has returned").expect("without an error"));
/// ```
#[derive(Clone)]
pub struct SimulatedDeaths {
    fate: Arc<KnownDeaths>,
}

/// Deaths that a process knows of; members are known by their numbers in the first communicator.
struct KnownDeaths {
    own: Rank,
    dead: Mutex<BTreeSet<Rank>>,
    /// The communicator of those that live, and who they are.
    living: Mutex<(Arc<dyn Comm>, Vec<Rank>)>,
}

impl KnownDeaths {
    fn has_died(&self) -> bool {
        held(&self.dead).contains(&self.own)
    }
}

impl SimulatedDeaths {
    /// Lets the ranks of a communicator die at will: use the one that comes back instead of it. The communicator itself
    /// may end with the first death (programs revoke it); for what comes afterwards, make another one before.
    pub fn on(comm: Arc<dyn Comm>) -> (SimulatedDeaths, Arc<dyn Comm>) {
        let members: Vec<Rank> = (0..comm.size()).map(Rank).collect();
        let fate = Arc::new(KnownDeaths {
            own: comm.rank(),
            dead: Mutex::default(),
            living: Mutex::new((comm.clone(), members.clone())),
        });
        let mortal = MortalComm::shared(comm, members, fate.clone(), true);
        (SimulatedDeaths { fate }, mortal)
    }

    /// Lets ranks die, by their numbers in the first communicator. All ranks that live call it at the same place, also
    /// those that die. Whether this one has died.
    pub fn kill(&self, victims: &[Rank]) -> Result<bool> {
        let (comm, members) = held(&self.fate.living).clone();
        let dies = victims.contains(&self.fate.own);
        let left = comm.split(u32::from(dies), 0)?;
        let living = members.into_iter().filter(|rank| !victims.contains(rank)).collect();
        held(&self.fate.dead).extend(victims);
        if !dies {
            *held(&self.fate.living) = (left, living);
        }
        Ok(dies)
    }

    /// Lets groups of ranks take each other for dead although all of them live (false suspicion), as after a pause or
    /// a broken network. All ranks that live call this at the same place, each with the number of its group; each
    /// continues with its own group.
    pub fn separate(&self, group: u32) -> Result<()> {
        let (comm, members) = held(&self.fate.living).clone();
        let left = comm.split(group, 0)?;
        let own = left.gather(Rank(0), &self.fate.own.0.to_le_bytes())?;
        let mut all = own.concat();
        left.broadcast(Rank(0), &mut all)?;
        let kept = read_ranks(&all);
        let others = members.into_iter().filter(|rank| !kept.contains(rank));
        held(&self.fate.dead).extend(others);
        *held(&self.fate.living) = (left, kept);
        Ok(())
    }
}

fn read_ranks(bytes: &[u8]) -> Vec<Rank> {
    bytes.as_chunks::<4>().0.iter().map(|rank| Rank(u32::from_le_bytes(*rank))).collect()
}

/// A communicator whose members may have died.
struct MortalComm {
    inner: Arc<dyn Comm>,
    /// By their numbers in the first communicator.
    members: Vec<Rank>,
    fate: Arc<KnownDeaths>,
    /// Whether it has all ranks that lived when it was made.
    whole: bool,
    revoked: AtomicBool,
}

impl MortalComm {
    fn shared(
        inner: Arc<dyn Comm>,
        members: Vec<Rank>,
        fate: Arc<KnownDeaths>,
        whole: bool,
    ) -> Arc<dyn Comm> {
        Arc::new(MortalComm { inner, members, fate, whole, revoked: AtomicBool::new(false) })
    }

    fn died_here(&self) -> Vec<Rank> {
        let dead = held(&self.fate.dead);
        let gone = (0..).map(Rank).zip(&self.members).filter(|(_, member)| dead.contains(member));
        gone.map(|(rank, _)| rank).collect()
    }

    /// The communicator, as long as all of its members live.
    fn alive(&self) -> Result<&dyn Comm> {
        if self.fate.has_died() {
            return Err(Error::new(ErrorKind::Dead, "this rank counts as dead"));
        }
        if self.revoked.load(Ordering::SeqCst) {
            return Err(revoked());
        }
        let dead = self.died_here();
        match dead.is_empty() {
            true => Ok(&*self.inner),
            false => Err(died(&dead)),
        }
    }

    /// The communicator of those that live.
    fn survivors(&self) -> Result<(Arc<dyn Comm>, Vec<Rank>)> {
        if self.fate.has_died() {
            return Err(Error::new(ErrorKind::Dead, "this rank counts as dead"));
        }
        match self.whole {
            true => Ok(held(&self.fate.living).clone()),
            false => {
                Err(died(&self.died_here()).hint("shrink the communicator of all, and split that"))
            }
        }
    }
}

impl Drop for MortalComm {
    fn drop(&mut self) {
        // Giving it back is collective, and not all members come.
        if !self.died_here().is_empty() {
            let _ = self.inner.revoke();
        }
    }
}

impl Comm for MortalComm {
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
        self.alive()?.send(to, bytes)
    }

    fn receive(&self, from: Option<Rank>, patience: Duration) -> Result<Option<Message>> {
        self.alive()?.receive(from, patience)
    }

    fn broadcast(&self, root: Rank, bytes: &mut Vec<u8>) -> Result<()> {
        self.alive()?.broadcast(root, bytes)
    }

    fn gather(&self, root: Rank, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.alive()?.gather(root, bytes)
    }

    fn reduce(&self, reduction: Reduction, values: &mut [u64]) -> Result<()> {
        self.alive()?.reduce(reduction, values)
    }

    fn exchange_mail(&self, mail: &mut dyn Mailbox) -> Result<()> {
        self.alive()?.exchange_mail(mail)
    }

    fn agree(&self, yes: bool) -> Result<bool> {
        if let Ok(inner) = self.alive() {
            return inner.agree(yes);
        }
        let (living, _) = self.survivors()?;
        let mut all = [u64::from(yes)];
        living.reduce(Reduction::Min, &mut all)?;
        Ok(all == [1])
    }

    fn split(&self, color: u32, key: u32) -> Result<Arc<dyn Comm>> {
        let inner = self.alive()?.split(color, key)?;
        let own = inner.gather(Rank(0), &self.fate.own.0.to_le_bytes())?;
        let mut all: Vec<u8> = own.concat();
        inner.broadcast(Rank(0), &mut all)?;
        Ok(MortalComm::shared(inner, read_ranks(&all), self.fate.clone(), false))
    }

    fn dead(&self) -> Result<Vec<Rank>> {
        Ok(self.died_here())
    }

    fn revoke(&self) -> Result<()> {
        self.revoked.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn shrink(&self) -> Result<Arc<dyn Comm>> {
        let (living, members) = self.survivors()?;
        Ok(MortalComm::shared(living, members, self.fate.clone(), true))
    }

    fn survives(&self) -> bool {
        true
    }
}

//! A program of one rank.

use super::{Comm, Mailbox, Message, Reduction, check_rank, revoked};
use crate::array::Rank;
use crate::error::Result;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The communicator of a program of one rank.
///
/// ```
/// use std::sync::Arc;
/// use treering::{Alone, Comm, Options, Run};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let comm: Arc<dyn Comm> = Arc::new(Alone::new()); // or that of an MPI
/// assert_eq!(comm.size(), 1);
/// let run = Run::open(Options::directory(&store, "rod").ranks(comm))?;
/// # run.finish()?;
/// # Ok::<(), treering::Error>(())
/// ```
pub struct Alone {
    node: String,
    /// Messages that it has sent to itself.
    own: Mutex<VecDeque<Vec<u8>>>,
    revoked: AtomicBool,
}

impl Default for Alone {
    fn default() -> Self {
        Alone { node: super::host(), own: Mutex::default(), revoked: AtomicBool::new(false) }
    }
}

impl Alone {
    /// The only rank.
    pub fn new() -> Self {
        Self::default()
    }

    fn check(&self, rank: Rank) -> Result<()> {
        match self.revoked.load(Ordering::SeqCst) {
            true => Err(revoked()),
            false => check_rank(self, rank),
        }
    }
}

impl Comm for Alone {
    fn rank(&self) -> Rank {
        Rank(0)
    }

    fn size(&self) -> u32 {
        1
    }

    fn node(&self) -> &str {
        &self.node
    }

    fn send(&self, to: Rank, bytes: &[u8]) -> Result<()> {
        self.check(to)?;
        super::held(&self.own).push_back(bytes.to_vec());
        Ok(())
    }

    fn receive(&self, from: Option<Rank>, _patience: Duration) -> Result<Option<Message>> {
        self.check(from.unwrap_or_default())?;
        Ok(super::held(&self.own).pop_front().map(|bytes| (Rank(0), bytes)))
    }

    fn broadcast(&self, root: Rank, _bytes: &mut Vec<u8>) -> Result<()> {
        self.check(root)
    }

    fn gather(&self, root: Rank, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.check(root)?;
        Ok(vec![bytes.to_vec()])
    }

    fn reduce(&self, _reduction: Reduction, _values: &mut [u64]) -> Result<()> {
        self.check(Rank(0))
    }

    fn exchange_mail(&self, mail: &mut dyn Mailbox) -> Result<()> {
        self.check(Rank(0))?;
        while let Some((to, message)) = mail.next(&mut ()) {
            self.check(to)?;
            let mut room = mail.room(to, message.len());
            room.fill(&message);
            mail.take(to, room);
        }
        Ok(())
    }

    fn agree(&self, yes: bool) -> Result<bool> {
        Ok(yes)
    }

    fn split(&self, _color: u32, _key: u32) -> Result<Arc<dyn Comm>> {
        self.check(Rank(0))?;
        Ok(Arc::new(Alone::new()))
    }

    fn dead(&self) -> Result<Vec<Rank>> {
        Ok(Vec::new())
    }

    fn revoke(&self) -> Result<()> {
        self.revoked.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn shrink(&self) -> Result<Arc<dyn Comm>> {
        Ok(Arc::new(Alone::new()))
    }

    fn survives(&self) -> bool {
        true
    }
}

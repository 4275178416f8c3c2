//! Places for bytes: one small trait, and wrappers around it.
//!
//! The law of a store: what `finish`, `commit` and `delete` have returned from survives a power
//! cut; a committed object appears whole or not at all, and never replaces another; an object that
//! was being put when the process died may be there in part, but nothing refers to it. Every
//! implementation passes the suite in `tests/store_suite.rs`.

mod directory;
mod disk;
mod fault;
mod memory;
mod sim;
mod tiered;

pub use directory::DirectoryStore;
pub use disk::{Disk, DiskFile, OsDisk};
pub use fault::{Fault, FaultStore};
pub use memory::MemoryStore;
pub use sim::{PowerCut, SimDisk, SimFault};
pub use tiered::TieredStore;

use crate::error::{ErrorKind, Result};
use std::any::Any;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// A place for bytes, by key; a key is a path with `/`.
pub trait Store: Send + Sync {
    /// What to call it in messages.
    fn name(&self) -> String;

    /// Begins a new object, written piece by piece; it is an error if the key is in use.
    fn put(&self, key: &str) -> Result<Box<dyn Put>>;

    /// Writes a small object at once: whole and durable, or not at all. False if the key is in use.
    fn commit(&self, key: &str, bytes: &[u8]) -> Result<bool>;

    /// Opens an object for reading.
    fn open(&self, key: &str) -> Result<Box<dyn Blob>>;

    /// Every copy of an object there is, best first; empty if there is none.
    fn copies(&self, key: &str) -> Vec<Box<dyn Blob>> {
        self.open(key).into_iter().collect()
    }

    /// What is in a folder, sorted by name; a folder that does not exist is empty.
    fn list(&self, folder: &str) -> Result<Vec<Item>>;

    /// Removes objects of one folder, durably; what is not there is removed already.
    fn delete(&self, keys: &[String]) -> Result<()>;

    /// Removes what unfinished commits left in a folder; only for who holds the run's lock.
    fn sweep(&self, _folder: &str) -> Result<()> {
        Ok(())
    }

    /// Takes a lock that ends with the returned value, or with the process.
    fn lock(&self, key: &str) -> Result<Lock>;
}

/// An object that is being written; dropped without `finish`, it is removed.
pub trait Put: Send {
    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes it durable.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// An object that is being read.
pub trait Blob: Send + Sync {
    /// The store it is in, for messages.
    fn store(&self) -> &str;
    /// Its size.
    fn size(&self) -> u64;
    /// Fills `buffer` from `offset` on.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// The file that holds these bytes as they are, its path, and where in it they begin.
    fn file(&self) -> Option<(&File, &Path, u64)> {
        None
    }

    /// Whether going back is expensive.
    fn in_order(&self) -> bool {
        false
    }
}

/// Something in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// The last part of its key.
    pub name: String,
    /// Its size; 0 for a folder.
    pub size: u64,
    /// Whether it is a folder.
    pub folder: bool,
}

/// Held until it is dropped.
pub type Lock = Box<dyn Any + Send + Sync>;

/// Reads a whole small object, refusing sizes that no such object has.
pub(crate) fn read_small(blob: &dyn Blob) -> Result<Vec<u8>> {
    const LIMIT: u64 = 1 << 28;
    if blob.size() > LIMIT {
        return Err(crate::error::Error::damaged("a file of the log is larger than any can be"));
    }
    let mut bytes = vec![0; blob.size() as usize];
    blob.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Takes a lock that another may hold for a moment: tools do while they remove or share packs.
pub(crate) fn lock_patiently(store: &dyn Store, key: &str, patience: Duration) -> Result<Lock> {
    let start = Instant::now();
    loop {
        match store.lock(key) {
            Err(error) if error.kind() == ErrorKind::Busy && start.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

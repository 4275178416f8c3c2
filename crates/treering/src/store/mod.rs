//! Places for bytes: one small trait, and wrappers around it.
//!
//! The law of a store: what `finish`, `commit` and `delete` have returned from survives a power cut; an
//! object appears whole or not at all, and never replaces another. Every implementation passes
//! `testing::store_suite`.

mod bundled;
mod directory;
mod disk;
#[cfg(any(test, feature = "testing"))]
mod fault;
mod memory;
mod shelf;
#[cfg(any(test, feature = "testing"))]
mod sim;
mod tiered;

pub(crate) use bundled::BundledStore;
pub use directory::DirectoryStore;
pub use disk::{Disk, DiskFile, OsDisk};
#[cfg(any(test, feature = "testing"))]
pub use fault::{Fault, FaultStore};
pub use memory::MemoryStore;
pub(crate) use shelf::{Shelved, read_tail};
#[cfg(any(test, feature = "testing"))]
pub use sim::{PowerCut, SimDisk, SimFault};
pub(crate) use tiered::TieredStore;

use crate::error::{ErrorKind, Result};
use std::any::Any;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// A place for bytes, by key; a key is a path with `/`.
///
/// No method has a default: a wrapper that forgets to pass one on does not compile.
///
/// ```
/// use treering::{MemoryStore, Put, Store};
/// let store = MemoryStore::new();
/// let mut object: Box<dyn Put> = store.put("runs/a")?;
/// object.append(b"hello, ")?;
/// object.append(b"world")?;
/// object.finish()?; // durable, and visible from now on
/// assert!(store.commit("runs/b", b"small")?); // the same in one call
/// assert!(!store.commit("runs/b", b"other")?); // nothing is ever replaced
/// let blob = store.open("runs/a")?;
/// let mut bytes = vec![0; 5];
/// blob.read_at(7, &mut bytes)?;
/// assert_eq!((blob.size(), &bytes[..]), (12, &b"world"[..]));
/// let names: Vec<String> = store.list("runs")?.into_iter().map(|item| item.name).collect();
/// assert_eq!(names, ["a", "b"]);
/// let lock = store.lock("runs/lock")?; // held until it is dropped; None: this store has no locks
/// # drop(lock);
/// # Ok::<(), treering::Error>(())
/// ```
pub trait Store: Send + Sync {
    /// The name of the store in messages.
    fn name(&self) -> String;

    /// Begins a new object, written piece by piece; it is an error if the key is in use. The error may
    /// come when the object is finished.
    fn put(&self, key: &str) -> Result<Box<dyn Put>>;

    /// Writes a small object at once: whole and durable, or not at all. False if the key is in use.
    fn commit(&self, key: &str, bytes: &[u8]) -> Result<bool>;

    /// Opens an object for reading.
    fn open(&self, key: &str) -> Result<Box<dyn Blob>>;

    /// Every copy of an object, the nearest first. A tier without a copy is left out; a tier that cannot
    /// be read contributes its error, which is more useful than a missing copy.
    fn copies(&self, key: &str) -> Vec<Result<Box<dyn Blob>>>;

    /// The items of a folder, sorted by name; a folder that does not exist is empty.
    fn list(&self, folder: &str) -> Result<Vec<StoreItem>>;

    /// The items of a folder whose names are greater than `after`, sorted by name.
    fn list_after(&self, folder: &str, after: &str) -> Result<Vec<StoreItem>>;

    /// Removes objects of one folder, durably; an object that is missing is removed already.
    fn delete(&self, keys: &[String]) -> Result<()>;

    /// Makes every removal from a folder durable that any process has made before.
    fn settle(&self, folder: &str) -> Result<()>;

    /// Removes the remains of unfinished commits in a folder; only for the run's writer.
    fn sweep(&self, folder: &str) -> Result<()>;

    /// Takes a lock that ends with the returned value, or with the process. `None`: this store has no
    /// locks. Locks only report conflicts early: the safety of data must not depend on them.
    fn lock(&self, key: &str) -> Result<Option<Lock>>;
}

/// An object that is being written; dropped without `finish`, it is removed. [`Store`] has an example.
pub trait Put: Send {
    /// Adds bytes at the end. After an error the object is as it was before the call.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Reads back bytes that were appended.
    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// Makes the object durable, and visible under its key.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// An object that is being read. [`Store`] has an example.
pub trait Blob: Send + Sync {
    /// The name of its store, for messages.
    fn store(&self) -> &str;
    /// Its size.
    fn size(&self) -> u64;
    /// Fills `buffer` from `offset` on.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// Fills every buffer from its offset on, in one call: neighbours can then be read together, and a
    /// store behind a network can ask for all of them at once. The ranges may be reordered; after an error
    /// the buffers hold anything.
    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()>;
    /// The file that holds these bytes as they are, its path, and the offset at which they begin.
    /// `None` if there is no such file, or if its bytes are changed on the way.
    fn file(&self) -> Option<(&File, &Path, u64)>;
    /// Whether going back is expensive.
    fn in_order(&self) -> bool;
}

/// An entry of a folder of a store. [`Store`] has an example.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreItem {
    /// The last part of its key.
    pub name: String,
    /// Its size; 0 for a folder.
    pub size: u64,
    /// Whether it is a folder.
    pub folder: bool,
}

/// A lock of a store, held until it is dropped. [`Store`] has an example.
pub type Lock = Box<dyn Any + Send + Sync>;

/// Reads ranges one after another, for blobs that gain nothing by reading them together.
pub(crate) fn read_each<B: Blob + ?Sized>(blob: &B, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
    ranges.iter_mut().try_for_each(|(offset, buffer)| blob.read_at(*offset, buffer))
}

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
pub(crate) fn lock_patiently(
    store: &dyn Store,
    key: &str,
    patience: Duration,
) -> Result<Option<Lock>> {
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

/// The copies of an object in a store that has at most one.
pub(crate) fn only_copy(opened: Result<Box<dyn Blob>>) -> Vec<Result<Box<dyn Blob>>> {
    match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        opened => vec![opened],
    }
}

/// The items behind a name, of a listing that is sorted.
pub(crate) fn after(items: Vec<StoreItem>, after: &str) -> Vec<StoreItem> {
    let first = items.partition_point(|item| item.name.as_str() <= after);
    items.into_iter().skip(first).collect()
}

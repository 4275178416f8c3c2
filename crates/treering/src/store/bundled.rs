//! A store in which bundled objects are found under their own keys.
//!
//! Reading sees through bundles: an object is looked for as a file first, then in the bundles of its run,
//! which are listed again before it counts as missing, because it may have been bundled since. Listings take
//! files first and bundles afterwards, and an object is in a bundle before its file goes: so nothing is missed
//! that is on its way from one to the other. Writing, removing and locking go to the store itself: what keeps
//! writers apart is put-if-absent at the number of an *opening*, and openings are never bundled.
//!
//! Where a file and a bundle hold the same log entry, the bundle's counts (it is the last of the copies, which
//! the log asks first): the file that went into it was committed first. A writer that has lost its run, and
//! whose commit had come through although it failed, may put a mark under that number before it finds the
//! opening behind it.

use super::shelf::Shelf;
use super::{Blob, Lock, Put, Store, StoreItem, after};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{BundledName, Names};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

/// Number of times that bundles are listed again for an object that moves from one to another.
const TRIES: usize = 8;

/// A store whose bundles are looked into.
#[derive(Clone)]
pub(crate) struct BundledStore {
    inner: Arc<dyn Store>,
    /// The bundles of each run as they were listed last.
    shelves: Arc<Mutex<HashMap<String, Arc<Shelf>>>>,
}

impl BundledStore {
    /// Looks into the bundles of this store.
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        BundledStore { inner, shelves: Arc::default() }
    }

    /// The bundles of a run, listed anew.
    pub(crate) fn shelf(&self, run: &str) -> Result<Arc<Shelf>> {
        let shelf = Shelf::list(self.inner.as_ref(), run, self.known(run))?;
        let mut shelves = self.shelves.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        shelves.insert(run.to_string(), shelf.clone());
        Ok(shelf)
    }

    /// The number of log entries in bundles, as they were listed last.
    pub(crate) fn bundled_entries(&self, run: &str) -> usize {
        self.known(run).items(true).count()
    }

    fn known(&self, run: &str) -> Arc<Shelf> {
        let shelves = self.shelves.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        shelves.get(run).cloned().unwrap_or_default()
    }

    /// The copies of an object in bundles. If there are none, the reason why that is not certain.
    fn bundled(&self, key: &str) -> Vec<Result<Box<dyn Blob>>> {
        let Some((run, object)) = parse(key) else { return Vec::new() };
        let mut shelf = self.known(run);
        for _ in 0..TRIES {
            let copies = shelf.copies(self.inner.as_ref(), run, &object);
            if !copies.is_empty() {
                return copies;
            }
            let again = match self.shelf(run) {
                Ok(again) => again,
                Err(error) => return vec![Err(error)],
            };
            if Arc::ptr_eq(&again, &shelf) {
                break;
            }
            shelf = again;
        }
        let copies = shelf.copies(self.inner.as_ref(), run, &object);
        if !copies.is_empty() {
            return copies;
        }
        let may_hold = shelf.unreadable().find(|(bundle, _)| match object {
            BundledName::Entry(number) => {
                bundle.published && (bundle.name.first..=bundle.name.last).contains(&number)
            }
            BundledName::Pack(_) => true,
        });
        may_hold.map(|(_, error)| Err(unreadable(error))).into_iter().collect()
    }

    /// Adds what bundles hold to the files of a folder.
    fn add_bundled(&self, folder: &str, files: Vec<StoreItem>) -> Result<Vec<StoreItem>> {
        let Some((run, entries)) = parse_folder(folder) else { return Ok(files) };
        let shelf = self.shelf(run)?;
        if shelf.bundles.is_empty() {
            return Ok(files);
        }
        let names = Names::new(run);
        let item = |object: BundledName, size| {
            let key = object.key(&names);
            let name = key.rsplit('/').next().unwrap_or_default().to_string();
            (name.clone(), StoreItem { name, size, folder: false })
        };
        let mut all: BTreeMap<String, StoreItem> = BTreeMap::new();
        // A bundle that cannot be read shows as its first and its last entry, which cannot be read either:
        // nobody may take the checkpoints in it for gone.
        for (bundle, _) in shelf.unreadable().filter(|(bundle, _)| entries && bundle.published) {
            let ends = [bundle.name.first, bundle.name.last].into_iter().filter(|s| s.0 > 0);
            all.extend(ends.map(|sequence| item(BundledName::Entry(sequence), 0)));
        }
        all.extend(shelf.items(entries).map(|(object, size)| item(object, size)));
        all.extend(files.into_iter().map(|file| (file.name.clone(), file)));
        Ok(all.into_values().collect())
    }
}

fn unreadable(error: &Error) -> Error {
    Error::new(error.kind(), format!("a bundle that may hold it cannot be read: {error}"))
}

/// The run and the object of a key.
fn parse(key: &str) -> Option<(&str, BundledName)> {
    let (folder, file) = key.rsplit_once('/')?;
    let (run, entries) = parse_folder(folder)?;
    let object = match entries {
        true => BundledName::Entry(Names::parse_entry(file)?),
        false => BundledName::Pack(Names::parse_pack(file)?),
    };
    // One object has one name.
    (object.key(&Names::new(run)) == key).then_some((run, object))
}

/// The run whose log (true) or packs (false) a folder holds.
fn parse_folder(folder: &str) -> Option<(&str, bool)> {
    let (run, what) = folder.strip_prefix("runs/")?.split_once('/')?;
    match what {
        "log" => Some((run, true)),
        "packs" => Some((run, false)),
        _ => None,
    }
}

impl Store for BundledStore {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn put(&self, key: &str) -> Result<Box<dyn Put>> {
        self.inner.put(key)
    }

    fn commit(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        self.inner.commit(key, bytes)
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        match self.inner.open(key) {
            Err(missing) if missing.kind() == ErrorKind::NotFound => {
                let mut copies = self.bundled(key);
                match copies.iter().rposition(Result::is_ok) {
                    Some(good) => copies.swap_remove(good),
                    None => copies.pop().unwrap_or(Err(missing)),
                }
            }
            opened => opened,
        }
    }

    fn copies(&self, key: &str) -> Vec<Result<Box<dyn Blob>>> {
        let mut copies = self.inner.copies(key);
        match copies.iter().any(Result::is_ok) {
            // It needs no bundle; one that is known adds a copy.
            true => {
                if let Some((run, object)) = parse(key) {
                    copies.extend(self.known(run).copies(self.inner.as_ref(), run, &object));
                }
            }
            false => copies.extend(self.bundled(key)),
        }
        copies
    }

    fn list(&self, folder: &str) -> Result<Vec<StoreItem>> {
        let files = self.inner.list(folder)?;
        self.add_bundled(folder, files)
    }

    fn list_after(&self, folder: &str, from: &str) -> Result<Vec<StoreItem>> {
        let files = self.inner.list_after(folder, from)?;
        Ok(after(self.add_bundled(folder, files)?, from))
    }

    fn delete(&self, keys: &[String]) -> Result<()> {
        self.inner.delete(keys)
    }

    fn settle(&self, folder: &str) -> Result<()> {
        self.inner.settle(folder)
    }

    fn sweep(&self, folder: &str) -> Result<()> {
        self.inner.sweep(folder)
    }

    fn lock(&self, key: &str) -> Result<Option<Lock>> {
        self.inner.lock(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;
    use crate::testing::store_suite;

    #[test]
    fn a_store_whose_bundles_are_looked_into_holds_to_the_law_of_a_store() {
        store_suite(|| Arc::new(BundledStore::new(Arc::new(MemoryStore::new()))));
    }

    #[test]
    fn only_keys_as_they_are_written_name_bundled_objects() {
        let names = Names::new("r");
        let entry = BundledName::Entry(crate::array::Sequence(7));
        assert_eq!(parse(&entry.key(&names)), Some(("r", entry)));
        for key in ["runs/r/log/0000000000007", "runs/r/openings/000000000007", "runs/r/tier"] {
            assert_eq!(parse(key), None);
        }
    }
}

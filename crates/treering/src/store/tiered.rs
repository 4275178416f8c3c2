//! Several stores as one, the nearest first; the last one lasts.
//!
//! Reading tries the nearest first; a reader that finds a bad copy asks for the next. Writing goes to the
//! last tier: a run writes its nearer tiers itself, because it reports when each of them is done.

use super::{Blob, Lock, Put, Store, StoreItem, after};
use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tiers of a run as one store.
#[derive(Clone)]
pub(crate) struct TieredStore {
    near: Vec<Arc<dyn Store>>,
    last: Arc<dyn Store>,
}

impl TieredStore {
    /// Reads from `near`, in this order, before `last`.
    pub(crate) fn new(near: Vec<Arc<dyn Store>>, last: Arc<dyn Store>) -> Self {
        TieredStore { near, last }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn Store>> {
        self.near.iter().chain([&self.last])
    }
}

impl Store for TieredStore {
    fn name(&self) -> String {
        self.all().map(|tier| tier.name()).collect::<Vec<_>>().join(" in front of ")
    }

    fn put(&self, key: &str) -> Result<Box<dyn Put>> {
        self.last.put(key)
    }

    fn commit(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        self.last.commit(key, bytes)
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        let missing = || Error::new(ErrorKind::NotFound, "the object is in no tier").at(key);
        let mut copies = self.copies(key);
        match copies.iter().position(Result::is_ok) {
            Some(good) => copies.swap_remove(good),
            None => copies.pop().unwrap_or_else(|| Err(missing())),
        }
    }

    fn copies(&self, key: &str) -> Vec<Result<Box<dyn Blob>>> {
        self.all().flat_map(|tier| tier.copies(key)).collect()
    }

    fn list(&self, folder: &str) -> Result<Vec<StoreItem>> {
        self.list_after(folder, "")
    }

    fn list_after(&self, folder: &str, from: &str) -> Result<Vec<StoreItem>> {
        let mut all = BTreeMap::new();
        for tier in &self.near {
            // A node that is gone must not hide what the last tier has.
            let items = tier.list_after(folder, from).unwrap_or_default();
            all.extend(items.into_iter().map(|item| (item.name.clone(), item)));
        }
        let last = self.last.list_after(folder, from)?;
        all.extend(last.into_iter().map(|item| (item.name.clone(), item)));
        Ok(after(all.into_values().collect(), from))
    }

    fn delete(&self, keys: &[String]) -> Result<()> {
        self.last.delete(keys)?;
        self.near.iter().try_for_each(|tier| tier.delete(keys))
    }

    fn settle(&self, folder: &str) -> Result<()> {
        self.all().try_for_each(|tier| tier.settle(folder))
    }

    fn sweep(&self, folder: &str) -> Result<()> {
        self.all().try_for_each(|tier| tier.sweep(folder))
    }

    fn lock(&self, key: &str) -> Result<Option<Lock>> {
        self.last.lock(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{DirectoryStore, MemoryStore, SimDisk};
    use crate::testing::store_suite;

    #[test]
    fn tiers_hold_to_the_law_of_a_store() {
        let memory = || -> Arc<dyn Store> { Arc::new(MemoryStore::new()) };
        let simulated = || -> Arc<dyn Store> {
            Arc::new(DirectoryStore::on(Arc::new(SimDisk::new()), "/a/store"))
        };
        store_suite(|| Arc::new(TieredStore::new(vec![memory()], memory())));
        store_suite(|| Arc::new(TieredStore::new(vec![memory(), simulated()], simulated())));
    }
}

//! Two stores as one: the node's, which is near, and the shared one, which lasts.
//!
//! Reading tries the node first; whoever verifies what was read asks for the next copy when one is
//! bad. Writing goes to the shared store: the run writes its node tier itself, because it has to
//! tell when each of the two is done.

use super::{Blob, Item, Lock, Put, Store};
use crate::error::Result;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node's store in front of a shared one.
#[derive(Clone)]
pub struct TieredStore {
    node: Arc<dyn Store>,
    shared: Arc<dyn Store>,
}

impl TieredStore {
    /// Reads from `node` before `shared`.
    pub fn new(node: Arc<dyn Store>, shared: Arc<dyn Store>) -> Self {
        TieredStore { node, shared }
    }
}

impl Store for TieredStore {
    fn name(&self) -> String {
        format!("{} in front of {}", self.node.name(), self.shared.name())
    }

    fn put(&self, key: &str) -> Result<Box<dyn Put>> {
        self.shared.put(key)
    }

    fn commit(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        self.shared.commit(key, bytes)
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        self.node.open(key).or_else(|_| self.shared.open(key))
    }

    fn copies(&self, key: &str) -> Vec<Box<dyn Blob>> {
        let mut copies = self.node.copies(key);
        copies.extend(self.shared.copies(key));
        copies
    }

    fn list(&self, folder: &str) -> Result<Vec<Item>> {
        // A node that is gone must not hide what the shared store has.
        let near = self.node.list(folder).unwrap_or_default();
        let all = near.into_iter().chain(self.shared.list(folder)?);
        let merged: BTreeMap<String, Item> = all.map(|item| (item.name.clone(), item)).collect();
        Ok(merged.into_values().collect())
    }

    fn delete(&self, keys: &[String]) -> Result<()> {
        self.shared.delete(keys)?;
        self.node.delete(keys)
    }

    fn sweep(&self, folder: &str) -> Result<()> {
        self.node.sweep(folder)?;
        self.shared.sweep(folder)
    }

    fn lock(&self, key: &str) -> Result<Lock> {
        self.shared.lock(key)
    }
}

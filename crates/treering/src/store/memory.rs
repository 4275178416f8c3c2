//! A store in memory: for tests, and as the tier above the node's disk.

use super::{Blob, Lock, Put, Store, StoreItem, after, only_copy, read_each};
use crate::error::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

type Objects = Arc<Mutex<BTreeMap<String, Arc<Vec<u8>>>>>;

/// A store in memory, for tests and as a tier: it is gone with the process. Clones share their content.
///
/// ```
/// use std::sync::Arc;
/// use treering::{Library, MemoryStore, Options, Run, Variable};
/// let store = Arc::new(MemoryStore::new());
/// let mut run = Run::open(Options::in_store(store.clone(), "test"))?;
/// run.checkpoint(0, &[Variable::new("x", &[1.0f64])])?;
/// run.finish()?;
/// assert_eq!(Library::of(store).checkpoint("test", None)?.step(), 0);
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct MemoryStore {
    objects: Objects,
    locks: Arc<Mutex<BTreeSet<String>>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

/// A panic of another thread leaves the map whole: every change is one call.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Store for MemoryStore {
    fn name(&self) -> String {
        "memory".into()
    }

    fn put(&self, key: &str) -> Result<Box<dyn Put>> {
        if held(&self.objects).contains_key(key) {
            return Err(Error::new(ErrorKind::Io, "there is such an object already").at(key));
        }
        Ok(Box::new(MemoryPut {
            objects: self.objects.clone(),
            key: key.into(),
            bytes: Vec::new(),
        }))
    }

    fn commit(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        let mut objects = held(&self.objects);
        let free = !objects.contains_key(key);
        if free {
            objects.insert(key.into(), Arc::new(bytes.to_vec()));
        }
        Ok(free)
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        match held(&self.objects).get(key) {
            Some(bytes) => Ok(Box::new(MemoryBlob(bytes.clone()))),
            None => Err(Error::new(ErrorKind::NotFound, "there is no such object").at(key)),
        }
    }

    fn copies(&self, key: &str) -> Vec<Result<Box<dyn Blob>>> {
        only_copy(self.open(key))
    }

    fn list(&self, folder: &str) -> Result<Vec<StoreItem>> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut items = BTreeSet::new();
        for (key, bytes) in held(&self.objects).range(prefix.clone()..) {
            let Some(rest) = key.strip_prefix(&prefix) else {
                break;
            };
            items.insert(match rest.split_once('/') {
                Some((name, _)) => StoreItem { name: name.into(), size: 0, folder: true },
                None => StoreItem { name: rest.into(), size: bytes.len() as u64, folder: false },
            });
        }
        Ok(items.into_iter().collect())
    }

    fn list_after(&self, folder: &str, from: &str) -> Result<Vec<StoreItem>> {
        Ok(after(self.list(folder)?, from))
    }

    fn delete(&self, keys: &[String]) -> Result<()> {
        let mut objects = held(&self.objects);
        keys.iter().for_each(|key| drop(objects.remove(key)));
        Ok(())
    }

    fn settle(&self, _folder: &str) -> Result<()> {
        Ok(())
    }

    fn sweep(&self, _folder: &str) -> Result<()> {
        Ok(())
    }

    fn lock(&self, key: &str) -> Result<Option<Lock>> {
        if !held(&self.locks).insert(key.to_string()) {
            return Err(Error::new(ErrorKind::Busy, "it is in use in this process").at(key));
        }
        Ok(Some(Box::new(MemoryLock(self.locks.clone(), key.to_string()))))
    }
}

struct MemoryLock(Arc<Mutex<BTreeSet<String>>>, String);

impl Drop for MemoryLock {
    fn drop(&mut self) {
        held(&self.0).remove(&self.1);
    }
}

struct MemoryPut {
    objects: Objects,
    key: String,
    bytes: Vec<u8>,
}

impl Put for MemoryPut {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        copy_out(&self.bytes, offset, buffer)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let mut objects = held(&self.objects);
        if objects.contains_key(&self.key) {
            return Err(Error::new(ErrorKind::Io, "there is such an object already").at(self.key));
        }
        objects.insert(self.key, Arc::new(self.bytes));
        Ok(())
    }
}

struct MemoryBlob(Arc<Vec<u8>>);

impl Blob for MemoryBlob {
    fn store(&self) -> &str {
        "memory"
    }

    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        copy_out(&self.0, offset, buffer)
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn file(&self) -> Option<(&File, &Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        false
    }
}

fn copy_out(bytes: &[u8], offset: u64, buffer: &mut [u8]) -> Result<()> {
    let end = offset.checked_add(buffer.len() as u64);
    match end.and_then(|end| bytes.get(offset as usize..end as usize)) {
        Some(bytes) => buffer.copy_from_slice(bytes),
        None => return Err(Error::damaged("an object is shorter than it should be")),
    }
    Ok(())
}

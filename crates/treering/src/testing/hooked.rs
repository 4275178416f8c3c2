//! A store whose calls can be watched, held up or refused, and whose locks can be made to lie.

use crate::error::Result;
use crate::store::{Blob, Lock, Put, Store, StoreItem};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// A call of a store that is about to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// An object is begun.
    Put(&'a str),
    /// So many bytes are added to an object.
    Append(&'a str, usize),
    /// An object is made durable.
    Finish(&'a str),
    /// A small object is written.
    Commit(&'a str),
    /// An object is opened.
    Open(&'a str),
    /// So many bytes of an object are read.
    Read(&'a str, usize),
    /// A folder is listed.
    List(&'a str),
    /// An object is removed.
    Delete(&'a str),
}

/// Behaviour of the locks of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// They keep others out.
    Real,
    /// Everybody gets them, as on a file system whose locks hold on one machine only.
    Lying,
    /// There are none.
    None,
}

type Hook = Arc<dyn Fn(Call) -> Result<()> + Send + Sync>;

/// A store that asks a function before each call; an error from it is the call's.
#[derive(Clone)]
pub struct HookedStore {
    inner: Arc<dyn Store>,
    hook: Hook,
    locks: Locks,
}

impl HookedStore {
    /// Asks `hook` before each call.
    pub fn new(
        inner: Arc<dyn Store>,
        hook: impl Fn(Call) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        HookedStore { inner, hook: Arc::new(hook), locks: Locks::Real }
    }

    /// The same store with other locks.
    pub fn with_locks(inner: Arc<dyn Store>, locks: Locks) -> Self {
        HookedStore { inner, hook: Arc::new(|_| Ok(())), locks }
    }

    fn wrap(&self, key: &str, inner: Box<dyn Blob>) -> Box<dyn Blob> {
        Box::new(HookedBlob { inner, hook: self.hook.clone(), key: key.to_string() })
    }
}

impl Store for HookedStore {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn put(&self, key: &str) -> Result<Box<dyn Put>> {
        (self.hook)(Call::Put(key))?;
        let inner = self.inner.put(key)?;
        Ok(Box::new(HookedPut { inner, hook: self.hook.clone(), key: key.to_string() }))
    }

    fn commit(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        (self.hook)(Call::Commit(key))?;
        self.inner.commit(key, bytes)
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        (self.hook)(Call::Open(key))?;
        Ok(self.wrap(key, self.inner.open(key)?))
    }

    fn copies(&self, key: &str) -> Vec<Result<Box<dyn Blob>>> {
        if let Err(error) = (self.hook)(Call::Open(key)) {
            return vec![Err(error)];
        }
        let copies = self.inner.copies(key).into_iter();
        copies.map(|copy| copy.map(|inner| self.wrap(key, inner))).collect()
    }

    fn list(&self, folder: &str) -> Result<Vec<StoreItem>> {
        (self.hook)(Call::List(folder))?;
        self.inner.list(folder)
    }

    fn list_after(&self, folder: &str, after: &str) -> Result<Vec<StoreItem>> {
        (self.hook)(Call::List(folder))?;
        self.inner.list_after(folder, after)
    }

    fn delete(&self, keys: &[String]) -> Result<()> {
        keys.iter().try_for_each(|key| (self.hook)(Call::Delete(key)))?;
        self.inner.delete(keys)
    }

    fn settle(&self, folder: &str) -> Result<()> {
        self.inner.settle(folder)
    }

    fn sweep(&self, folder: &str) -> Result<()> {
        self.inner.sweep(folder)
    }

    fn lock(&self, key: &str) -> Result<Option<Lock>> {
        match self.locks {
            Locks::Real => self.inner.lock(key),
            Locks::Lying => Ok(Some(Box::new(()))),
            Locks::None => Ok(None),
        }
    }
}

struct HookedPut {
    inner: Box<dyn Put>,
    hook: Hook,
    key: String,
}

impl Put for HookedPut {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        (self.hook)(Call::Append(&self.key, bytes.len()))?;
        self.inner.append(bytes)
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read_back(offset, buffer)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        (self.hook)(Call::Finish(&self.key))?;
        self.inner.finish()
    }
}

struct HookedBlob {
    inner: Box<dyn Blob>,
    hook: Hook,
    key: String,
}

impl Blob for HookedBlob {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        (self.hook)(Call::Read(&self.key, buffer.len()))?;
        self.inner.read_at(offset, buffer)
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let bytes = ranges.iter().map(|(_, buffer)| buffer.len()).sum();
        (self.hook)(Call::Read(&self.key, bytes))?;
        self.inner.read_many(ranges)
    }

    fn file(&self) -> Option<(&File, &Path, u64)> {
        // Reading the file itself would go around the hook.
        None
    }

    fn in_order(&self) -> bool {
        self.inner.in_order()
    }
}

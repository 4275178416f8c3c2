//! A wrapper that makes the n-th call of a store go wrong; for tests of programs and of treering.

use super::{Blob, Lock, Put, Store, StoreItem};
use crate::error::{Error, ErrorKind, Result};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kind of an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails; nothing happens.
    Fail,
    /// The call and every later one fail, as on a disk that is full.
    FailFrom,
    /// An append writes half of its bytes and fails; other calls fail.
    Tear,
    /// A read gives one flipped bit; other calls are left alone.
    Flip,
}

struct FaultPlan {
    calls: AtomicU64,
    at: u64,
    fault: Option<Fault>,
}

impl FaultPlan {
    /// The fault of this call, if it is its turn.
    fn now(&self) -> Option<Fault> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        match self.fault {
            Some(Fault::FailFrom) if call >= self.at => Some(Fault::FailFrom),
            fault if call == self.at => fault,
            _ => None,
        }
    }

    fn check(&self) -> Result<()> {
        match self.now() {
            None | Some(Fault::Flip) => Ok(()),
            Some(Fault::FailFrom) => Err(Error::new(ErrorKind::Full, "no space left (injected)")),
            Some(_) => Err(Error::new(ErrorKind::Io, "the call failed (injected)")),
        }
    }
}

/// A store whose n-th call goes wrong.
#[derive(Clone)]
pub struct FaultStore {
    inner: Arc<dyn Store>,
    plan: Arc<FaultPlan>,
}

impl FaultStore {
    /// Counts the calls and lets them all through.
    pub fn counting(inner: Arc<dyn Store>) -> Self {
        Self::with(inner, 0, None)
    }

    /// Makes call number `at`, from 0, go wrong.
    pub fn new(inner: Arc<dyn Store>, at: u64, fault: Fault) -> Self {
        Self::with(inner, at, Some(fault))
    }

    fn with(inner: Arc<dyn Store>, at: u64, fault: Option<Fault>) -> Self {
        let calls = AtomicU64::new(0);
        FaultStore { inner, plan: Arc::new(FaultPlan { calls, at, fault }) }
    }

    /// The number of calls so far.
    pub fn calls(&self) -> u64 {
        self.plan.calls.load(Ordering::SeqCst)
    }
}

impl Store for FaultStore {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn put(&self, key: &str) -> Result<Box<dyn Put>> {
        self.plan.check()?;
        Ok(Box::new(FaultPut { inner: self.inner.put(key)?, plan: self.plan.clone() }))
    }

    fn commit(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        self.plan.check()?;
        self.inner.commit(key, bytes)
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        self.plan.check()?;
        Ok(Box::new(FaultBlob { inner: self.inner.open(key)?, plan: self.plan.clone() }))
    }

    fn copies(&self, key: &str) -> Vec<Result<Box<dyn Blob>>> {
        if let Err(error) = self.plan.check() {
            return vec![Err(error)];
        }
        let faulty =
            |inner| -> Box<dyn Blob> { Box::new(FaultBlob { inner, plan: self.plan.clone() }) };
        self.inner.copies(key).into_iter().map(|copy| copy.map(faulty)).collect()
    }

    fn list(&self, folder: &str) -> Result<Vec<StoreItem>> {
        self.plan.check()?;
        self.inner.list(folder)
    }

    fn list_after(&self, folder: &str, after: &str) -> Result<Vec<StoreItem>> {
        self.plan.check()?;
        self.inner.list_after(folder, after)
    }

    fn delete(&self, keys: &[String]) -> Result<()> {
        self.plan.check()?;
        self.inner.delete(keys)
    }

    fn settle(&self, folder: &str) -> Result<()> {
        self.plan.check()?;
        self.inner.settle(folder)
    }

    fn sweep(&self, folder: &str) -> Result<()> {
        self.plan.check()?;
        self.inner.sweep(folder)
    }

    fn lock(&self, key: &str) -> Result<Option<Lock>> {
        self.plan.check()?;
        self.inner.lock(key)
    }
}

struct FaultPut {
    inner: Box<dyn Put>,
    plan: Arc<FaultPlan>,
}

impl Put for FaultPut {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match self.plan.now() {
            None | Some(Fault::Flip) => self.inner.append(bytes),
            Some(Fault::Tear) => {
                self.inner.append(&bytes[..bytes.len() / 2])?;
                Err(Error::new(ErrorKind::Io, "the write was torn (injected)"))
            }
            Some(Fault::FailFrom) => Err(Error::new(ErrorKind::Full, "no space left (injected)")),
            Some(Fault::Fail) => Err(Error::new(ErrorKind::Io, "the write failed (injected)")),
        }
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.plan.check()?;
        self.inner.read_back(offset, buffer)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.plan.check()?;
        self.inner.finish()
    }
}

struct FaultBlob {
    inner: Box<dyn Blob>,
    plan: Arc<FaultPlan>,
}

impl Blob for FaultBlob {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let fault = self.plan.now();
        match fault {
            None | Some(Fault::Flip) => self.inner.read_at(offset, buffer)?,
            Some(_) => return Err(Error::new(ErrorKind::Io, "the read failed (injected)")),
        }
        if fault == Some(Fault::Flip)
            && let Some(byte) = buffer.get_mut(offset as usize % buffer.len().max(1))
        {
            *byte ^= 0x10;
        }
        Ok(())
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let fault = self.plan.now();
        match fault {
            None | Some(Fault::Flip) => self.inner.read_many(ranges)?,
            Some(_) => return Err(Error::new(ErrorKind::Io, "the read failed (injected)")),
        }
        let flipped = ranges.len() / 2;
        if fault == Some(Fault::Flip)
            && let Some((offset, buffer)) = ranges.get_mut(flipped)
            && let Some(byte) = buffer.get_mut(*offset as usize % buffer.len().max(1))
        {
            *byte ^= 0x10;
        }
        Ok(())
    }

    fn file(&self) -> Option<(&File, &Path, u64)> {
        // Reading the file itself would pass the faults by.
        None
    }

    fn in_order(&self) -> bool {
        self.inner.in_order()
    }
}

//! Writing behind: frames wait in a bounded queue while a thread of their own appends them to the store.

use super::handle::held;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Put;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Counts bytes that are held in memory, and the most that were at any time.
#[derive(Clone, Default)]
pub(crate) struct HeldBytes(Arc<(AtomicU64, AtomicU64)>);

impl HeldBytes {
    pub(super) fn add(&self, bytes: u64) {
        let now = self.0.0.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.0.1.fetch_max(now, Ordering::SeqCst);
    }

    pub(super) fn remove(&self, bytes: u64) {
        self.0.0.fetch_sub(bytes, Ordering::SeqCst);
    }

    pub(crate) fn most(&self) -> u64 {
        self.0.1.load(Ordering::SeqCst)
    }
}

#[derive(Default)]
struct WaitingFrames {
    frames: VecDeque<Vec<u8>>,
    bytes: u64,
    /// Nothing more comes.
    ended: bool,
    failed: Option<Error>,
}

#[derive(Default)]
struct FrameQueue {
    waiting: Mutex<WaitingFrames>,
    changed: Condvar,
}

impl FrameQueue {
    /// Waits until something is so, and changes it.
    fn when<T>(
        &self,
        ready: impl Fn(&WaitingFrames) -> bool,
        change: impl FnOnce(&mut WaitingFrames) -> T,
    ) -> T {
        let waited = self.changed.wait_while(held(&self.waiting), |waiting| !ready(waiting));
        let mut waiting = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        let changed = change(&mut waiting);
        drop(waiting);
        self.changed.notify_all();
        changed
    }
}

/// An object that a thread behind this one writes.
pub(super) struct BehindPut<'scope> {
    queue: Arc<FrameQueue>,
    limit: u64,
    count: HeldBytes,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

impl<'scope> BehindPut<'scope> {
    /// At most about `limit` bytes wait; `count` knows of them.
    pub(super) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        put: &'scope mut dyn Put,
        limit: u64,
        count: HeldBytes,
    ) -> Result<Self> {
        let queue = Arc::new(FrameQueue::default());
        let (of_thread, counted) = (queue.clone(), count.clone());
        let work = move || write_all(&of_thread, put, &counted);
        let thread = Builder::new().name("treering-writer".into()).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| Error::io("cannot start the threads of a run", e))?;
        Ok(BehindPut { queue, limit, count, thread: Some(thread) })
    }

    /// Waits until everything is written.
    pub(super) fn end(mut self) -> Result<()> {
        self.close();
        held(&self.queue.waiting).failed.take().map_or(Ok(()), Err)
    }

    fn close(&mut self) {
        self.queue.when(|_| true, |waiting| waiting.ended = true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            let what = "writing a pack ended in an internal error; please report it";
            held(&self.queue.waiting).failed.get_or_insert(Error::new(ErrorKind::Io, what));
        }
    }
}

impl Drop for BehindPut<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

fn write_all(queue: &FrameQueue, put: &mut dyn Put, count: &HeldBytes) {
    loop {
        let ready = |waiting: &WaitingFrames| !waiting.frames.is_empty() || waiting.ended;
        let Some(frame) = queue.when(ready, |waiting| waiting.frames.pop_front()) else { return };
        let failed = held(&queue.waiting).failed.is_some();
        let done = if failed { Ok(()) } else { put.append(&frame) };
        let bytes = frame.len() as u64;
        drop(frame);
        count.remove(bytes);
        queue.when(
            |_| true,
            |waiting| {
                waiting.bytes -= bytes;
                if let Err(error) = done {
                    waiting.failed.get_or_insert(error);
                }
            },
        );
    }
}

impl Put for BehindPut<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        let limit = self.limit;
        let fits = |w: &WaitingFrames| w.bytes == 0 || w.bytes + len <= limit || w.failed.is_some();
        self.queue.when(fits, |waiting| match &waiting.failed {
            Some(error) => Err(error.clone()),
            None => {
                self.count.add(len);
                waiting.bytes += len;
                waiting.frames.push_back(bytes.to_vec());
                Ok(())
            }
        })
    }

    fn read_back(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Err(Error::new(ErrorKind::Io, "data that another thread writes cannot be read back"))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        (*self).end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemoryStore, Store};

    struct Failing(u32);

    impl Put for Failing {
        fn append(&mut self, _: &[u8]) -> Result<()> {
            self.0 += 1;
            match self.0 {
                3 => Err(Error::new(ErrorKind::Full, "no room")),
                _ => Ok(()),
            }
        }
        fn read_back(&self, _: u64, _: &mut [u8]) -> Result<()> {
            Ok(())
        }
        fn finish(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn everything_arrives_in_order_and_little_waits() {
        let store = MemoryStore::new();
        let mut put = store.put("x").unwrap();
        let count = HeldBytes::default();
        let mut all = Vec::new();
        std::thread::scope(|scope| {
            let mut behind = BehindPut::start(scope, put.as_mut(), 1000, count.clone()).unwrap();
            for number in 0..200u32 {
                let frame = vec![number as u8; 1 + (number * 37 % 400) as usize];
                all.extend_from_slice(&frame);
                behind.append(&frame).unwrap();
            }
            behind.end().unwrap();
        });
        put.finish().unwrap();
        let blob = store.open("x").unwrap();
        let mut back = vec![0; blob.size() as usize];
        blob.read_at(0, &mut back).unwrap();
        // One frame more than the limit is on its way to the store.
        assert!(back == all && count.most() <= 1000 + 400 && count.0.0.load(Ordering::SeqCst) == 0);
    }

    #[test]
    fn an_error_of_the_store_is_that_of_a_later_call_or_of_the_end() {
        for frames in [3, 100] {
            let mut put = Failing(0);
            std::thread::scope(|scope| {
                let count = HeldBytes::default();
                let mut behind = BehindPut::start(scope, &mut put, 10, count).unwrap();
                let appended: Result<()> = (0..frames).try_for_each(|_| behind.append(&[1; 8]));
                let error = appended.and(behind.end()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Full);
            });
            assert_eq!(put.0, 3);
        }
    }
}

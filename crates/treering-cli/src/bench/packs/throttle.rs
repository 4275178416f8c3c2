//! A store that is no faster than a shared file system at work: a token bucket in front of another.
//!
//! Opening a file costs as much as the bytes that could go through meanwhile, and openings of several
//! threads do not overlap: so it is where one server knows all names.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use treering::{Blob, Lock, Put, Result, Store, StoreItem};

/// Seconds to open a file.
pub const LATENCY: f64 = 5e-3;
/// Unused time that may be caught up on: sleeping is not exact.
const DEPTH: f64 = 2e-3;

/// Tokens that come at a rate. The law: in any window of w seconds no more than rate · (w + DEPTH)
/// bytes and one request go through.
struct Bucket {
    rate: f64,
    /// When all that was asked for is through.
    free: f64,
    /// Tokens that were taken, in seconds.
    used: f64,
}

impl Bucket {
    fn new(rate: f64) -> Self {
        Bucket { rate, free: 0.0, used: 0.0 }
    }

    /// When this many bytes are through that are asked for at `now`.
    fn take(&mut self, now: f64, bytes: f64) -> f64 {
        let seconds = bytes / self.rate;
        self.used += seconds;
        self.free = self.free.max(now - DEPTH) + seconds;
        self.free.max(now)
    }
}

/// A bucket by the clock.
struct Throttle {
    bucket: Mutex<Bucket>,
    moved: AtomicU64,
    start: Instant,
}

impl Throttle {
    /// Does something that moves bytes, in the time it takes at least.
    fn pass<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        self.take(bytes as f64, work)
    }

    fn take<T>(&self, bytes: f64, work: impl FnOnce() -> T) -> T {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let through = bucket.take(self.start.elapsed().as_secs_f64(), bytes);
        drop(bucket);
        let done = work();
        let left = through - self.start.elapsed().as_secs_f64();
        if left > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(left));
        }
        done
    }

    fn open<T>(&self, work: impl FnOnce() -> T) -> T {
        let rate = self.bucket.lock().unwrap_or_else(PoisonError::into_inner).rate;
        self.take(LATENCY * rate, work)
    }
}

/// A throttled store.
#[derive(Clone)]
pub struct ThrottledStore {
    inner: Arc<dyn Store>,
    throttle: Arc<Throttle>,
}

impl ThrottledStore {
    /// So many bytes a second.
    pub fn new(inner: Arc<dyn Store>, rate: f64) -> Self {
        let throttle = Throttle {
            bucket: Mutex::new(Bucket::new(rate)),
            moved: AtomicU64::new(0),
            start: Instant::now(),
        };
        ThrottledStore { inner, throttle: Arc::new(throttle) }
    }

    /// Least number of seconds for which the store was busy.
    pub fn busy(&self) -> f64 {
        self.throttle.bucket.lock().unwrap_or_else(PoisonError::into_inner).used
    }

    /// Bytes that went through it, in and out.
    pub fn moved(&self) -> u64 {
        self.throttle.moved.load(Ordering::Relaxed)
    }
}

impl Store for ThrottledStore {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn put(&self, key: &str) -> Result<Box<dyn Put>> {
        let inner = self.throttle.open(|| self.inner.put(key))?;
        Ok(Box::new(ThrottledPut { inner, throttle: self.throttle.clone() }))
    }

    fn commit(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        let write = || self.throttle.pass(bytes.len(), || self.inner.commit(key, bytes));
        self.throttle.open(write)
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        let inner = self.throttle.open(|| self.inner.open(key))?;
        Ok(Box::new(ThrottledBlob { inner, throttle: self.throttle.clone() }))
    }

    fn copies(&self, key: &str) -> Vec<Result<Box<dyn Blob>>> {
        let slow = |inner| -> Box<dyn Blob> {
            Box::new(ThrottledBlob { inner, throttle: self.throttle.clone() })
        };
        let copies = self.throttle.open(|| self.inner.copies(key));
        copies.into_iter().map(|copy| copy.map(slow)).collect()
    }

    fn list(&self, folder: &str) -> Result<Vec<StoreItem>> {
        self.inner.list(folder)
    }

    fn list_after(&self, folder: &str, after: &str) -> Result<Vec<StoreItem>> {
        self.inner.list_after(folder, after)
    }

    fn settle(&self, folder: &str) -> Result<()> {
        self.inner.settle(folder)
    }

    fn delete(&self, keys: &[String]) -> Result<()> {
        self.inner.delete(keys)
    }

    fn sweep(&self, folder: &str) -> Result<()> {
        self.inner.sweep(folder)
    }

    fn lock(&self, key: &str) -> Result<Option<Lock>> {
        self.inner.lock(key)
    }
}

struct ThrottledPut {
    inner: Box<dyn Put>,
    throttle: Arc<Throttle>,
}

impl Put for ThrottledPut {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.throttle.pass(bytes.len(), || self.inner.append(bytes))
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.throttle.pass(buffer.len(), || self.inner.read_back(offset, buffer))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.inner.finish()
    }
}

/// Names no file: reading it directly would go around the throttle.
struct ThrottledBlob {
    inner: Box<dyn Blob>,
    throttle: Arc<Throttle>,
}

impl Blob for ThrottledBlob {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.throttle.pass(buffer.len(), || self.inner.read_at(offset, buffer))
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let bytes = ranges.iter().map(|(_, buffer)| buffer.len()).sum();
        self.throttle.pass(bytes, || self.inner.read_many(ranges))
    }

    fn file(&self) -> Option<(&File, &Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        self.inner.in_order()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treering::MemoryStore;

    #[test]
    fn no_window_lets_more_through_than_the_rate() {
        let rate = 1e6;
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let (mut bucket, mut now) = (Bucket::new(rate), 0.0);
        let mut through: Vec<(f64, f64)> = Vec::new();
        for _ in 0..400 {
            // Now at once, now late, now after a long rest, now before the last one was done.
            now = match (random(4), through.last()) {
                (0, Some((done, _))) => *done,
                (1, Some((done, _))) => done + random(3000) as f64 * 1e-6,
                (2, Some((done, _))) => done + 0.2,
                _ => now,
            }
            .max(now);
            let bytes = 1.0 + random(20_000) as f64;
            through.push((bucket.take(now, bytes), bytes));
        }
        for first in 0..through.len() {
            let (mut sum, mut largest) = (0.0, 0.0f64);
            for (done, bytes) in &through[first..] {
                (sum, largest) = (sum + bytes, largest.max(*bytes));
                let window = done - through[first].0;
                assert!(sum <= rate * (window + DEPTH) + largest + 1e-3, "{sum} in {window} s");
            }
        }
    }

    #[test]
    fn whoever_asks_all_the_time_gets_the_rate() {
        let (mut bucket, mut now) = (Bucket::new(1e6), 0.0);
        for _ in 0..1000 {
            // Woken a bit late every time.
            now = bucket.take(now, 1000.0) + 1e-4;
        }
        assert!((now - 1.0).abs() < 2.0 * DEPTH, "{now}");
    }

    #[test]
    fn a_throttled_store_gives_back_what_was_put() {
        let store = ThrottledStore::new(Arc::new(MemoryStore::default()), 1e9);
        let mut put = store.put("a/b").unwrap();
        put.append(&[7; 1000]).unwrap();
        put.finish().unwrap();
        let blob = store.open("a/b").unwrap();
        let mut bytes = vec![0; 1000];
        blob.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 1000]);
        assert!(blob.file().is_none());
        assert_eq!(store.moved(), 2000);
        assert!((store.busy() - (2.0 * LATENCY + 2e-6)).abs() < 1e-9);
    }
}

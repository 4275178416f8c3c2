//! Bytes of memory that a replica store uses, counted exactly: now, at the peak, and against the paper's formula.
//!
//! Every buffer that outlives a call carries a [`Metered`] token, which counts it from its making to its drop. A range
//! that two generations share is one buffer and is counted once.
//!
//! Law: [`Gauge::now`] is the sum of all living tokens, and [`Gauge::peak`] the largest value it has had.
//!
//! ReStore (Hübner et al., 2022), section IV-C: r·n/p blocks per rank, doubled during a submit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in use and their peak.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    now: AtomicU64,
    peak: AtomicU64,
}

/// A token for bytes in use.
#[derive(Debug)]
pub(crate) struct Metered {
    gauge: Arc<Gauge>,
    bytes: u64,
}

impl Gauge {
    /// Counts bytes until the token is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: u64) -> Metered {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
        Metered { gauge: self.clone(), bytes }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Metered {
    /// Counts fewer bytes from now on.
    pub(crate) fn release(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.gauge.now.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.gauge.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Buffers of freed ranges that the next submit uses again. At most as many bytes are kept as the last submit took.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    gauge: Arc<Gauge>,
    buffers: Vec<(Vec<u8>, Metered)>,
    bytes: u64,
    /// The bytes that were taken in this submit, and in the one before it.
    taken: [u64; 2],
}

impl Spares {
    pub(crate) fn new(gauge: Arc<Gauge>) -> Self {
        Spares { gauge, ..Spares::default() }
    }

    /// Begins a submit.
    pub(crate) fn begin(&mut self) {
        self.taken = [0, self.taken[0]];
    }

    /// An empty buffer with room for `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        self.taken[0] += len as u64;
        let fits = |(buffer, _): &(Vec<u8>, Metered)| {
            (len..=len.saturating_mul(2)).contains(&buffer.capacity())
        };
        match self.buffers.iter().rposition(fits) {
            Some(at) => {
                let (mut buffer, _) = self.buffers.swap_remove(at);
                self.bytes -= buffer.capacity() as u64;
                buffer.clear();
                buffer
            }
            None => Vec::with_capacity(len),
        }
    }

    /// Keeps a buffer for later, or frees it.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        let bytes = buffer.capacity() as u64;
        if self.bytes + bytes <= self.taken[0].max(self.taken[1]) {
            self.bytes += bytes;
            self.buffers.push((buffer, self.gauge.hold(bytes)));
        }
    }

    /// Frees buffers until at most `bytes` are left.
    pub(crate) fn trim(&mut self, bytes: u64) {
        while self.bytes > bytes {
            let Some((buffer, _)) = self.buffers.pop() else { return };
            self.bytes -= buffer.capacity() as u64;
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Memory of this rank's part of a replica store, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaMemory {
    /// In use now: copies of ranges, snapshots and spare buffers.
    pub now: u64,
    /// Spare buffers, a part of `now`.
    pub spare: u64,
    /// The largest use so far, transfers included.
    pub peak: u64,
    /// The paper's steady use: r·n/p blocks.
    pub paper_steady: u64,
    /// The paper's use during a submit: twice the steady one.
    pub paper_peak: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_add_up_and_spares_are_bounded_and_used_again() {
        let gauge = Arc::new(Gauge::default());
        let first = gauge.hold(10);
        let second = gauge.hold(5);
        drop(first);
        assert_eq!((gauge.now(), gauge.peak()), (5, 15));
        drop(second);
        let mut spares = Spares::new(gauge.clone());
        spares.begin();
        let (a, b) = (spares.take(100), spares.take(100));
        let at = a.as_ptr();
        spares.give(a);
        spares.give(b);
        spares.give(Vec::with_capacity(100));
        assert_eq!((spares.bytes(), gauge.now()), (200, 200));
        spares.trim(100);
        assert_eq!((spares.bytes(), gauge.now()), (100, 100));
        spares.begin();
        let again = spares.take(90);
        assert_eq!(again.as_ptr(), at);
        assert_eq!((spares.bytes(), gauge.now()), (0, 0));
        assert!(spares.take(90).capacity() >= 90);
    }
}

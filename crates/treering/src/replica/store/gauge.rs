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

impl Drop for Metered {
    fn drop(&mut self) {
        self.gauge.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Memory of this rank's part of a replica store, in bytes. The example of
/// [`ReplicaStore::scrub`](crate::ReplicaStore::scrub) shows its use.
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
    fn tokens_add_up() {
        let gauge = Arc::new(Gauge::default());
        let first = gauge.hold(10);
        let second = gauge.hold(5);
        drop(first);
        assert_eq!((gauge.now(), gauge.peak()), (5, 15));
        drop(second);
        assert_eq!(gauge.now(), 0);
    }
}

//! Helpers of many tests: stores in memory, the steps of a run, chance.

use std::sync::Arc;
use treering::testing::{HookedStore, Locks};
use treering::{Keep, Library, MemoryStore, Store};

/// A store in memory.
pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// The same without locks: what a process holds that was killed does not keep the next one out.
pub(crate) fn lockless_memory() -> Arc<dyn Store> {
    Arc::new(HookedStore::with_locks(memory(), Locks::None))
}

/// A rule that keeps the newest N checkpoints.
pub(crate) fn keep(last: u64) -> Keep {
    Keep::newest(last)
}

/// The steps of the run `r`, all of whose entries can be read.
pub(crate) fn steps(store: &Arc<dyn Store>) -> Vec<u64> {
    steps_of(store, "r")
}

/// The steps of a run, all of whose entries can be read.
pub(crate) fn steps_of(store: &Arc<dyn Store>, run: &str) -> Vec<u64> {
    let (all, trouble) = Library::of(store.clone()).checkpoints(run).unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    all.iter().map(|info| info.step).collect()
}

/// Every byte of a store is as it was written.
pub(crate) fn assert_sound(store: &Arc<dyn Store>) {
    let report = Library::of(store.clone()).verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

/// Numbers that look random, the same for the same seed; the seed is not 0.
#[derive(Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }
}

//! The counts of the graph while many threads add to them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{CountError, Counter, Counts, ORBITS};

/// A table of counters, lent to all threads for the time of a count.
pub(super) struct SharedTable<'a, T: Counter> {
    counters: &'a [T::Atomic],
    /// One more than the index of a counter that overflowed, or 0.
    overflow: AtomicU64,
}

impl<'a, T: Counter> SharedTable<'a, T> {
    pub fn new(counts: &'a mut Counts<T>) -> Self {
        Self { counters: T::share(counts.as_mut_slice()), overflow: AtomicU64::new(0) }
    }

    pub fn add(&self, vertex: u32, orbit: usize, amount: u64) {
        let index = vertex as usize * ORBITS + orbit;
        if !T::add(&self.counters[index], amount) {
            self.overflow.store(index as u64 + 1, Ordering::Relaxed);
        }
    }

    /// Calls the row of a vertex into the cache. An atomic addition waits for its memory
    /// before anything else goes on, so rows that are asked for in time save most of it.
    pub fn prefetch(&self, vertex: u32) {
        let begin = vertex as usize * ORBITS;
        for counter in self.counters[begin..begin + ORBITS].iter().step_by(16) {
            prefetch(counter);
        }
    }

    pub fn has_overflowed(&self) -> bool {
        self.overflow.load(Ordering::Relaxed) != 0
    }

    pub fn finish(self) -> Result<(), CountError> {
        let Some(index) = self.overflow.into_inner().checked_sub(1) else {
            return Ok(());
        };
        Err(CountError::Overflow {
            vertex: (index / ORBITS as u64) as u32,
            orbit: (index % ORBITS as u64) as usize,
            bits: 8 * size_of::<T>() as u32,
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn prefetch<A>(counter: &A) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch neither reads nor writes as far as the program can see, and the
    // address is that of a live reference.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(counter).cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch<A>(_: &A) {}

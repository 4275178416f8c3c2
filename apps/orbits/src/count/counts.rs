//! The table of counters, and the two types that a counter can have.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::ORBITS;

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

/// A counter type: `u32` or `u64`.
pub trait Counter: Copy + Default + Eq + Send + Sync + Into<u64> + sealed::Sealed {
    #[doc(hidden)]
    type Atomic: Sync;

    /// Lends the counters to many threads at once.
    #[doc(hidden)]
    fn share(counters: &mut [Self]) -> &[Self::Atomic];

    /// Adds, and tells whether the sum still fits.
    #[doc(hidden)]
    fn add(counter: &Self::Atomic, amount: u64) -> bool;

    /// The sum, if it fits.
    #[doc(hidden)]
    fn plus(self, amount: u64) -> Option<Self>;
}

macro_rules! counter {
    ($plain:ty, $atomic:ty) => {
        impl Counter for $plain {
            type Atomic = $atomic;

            fn share(counters: &mut [Self]) -> &[$atomic] {
                const { assert!(align_of::<$plain>() == align_of::<$atomic>()) };
                // SAFETY: the atomic type has the size of the plain one by its definition and
                // the same alignment as asserted above, and the exclusive borrow guarantees
                // that nobody reads or writes the counters in another way meanwhile.
                unsafe { &*(std::ptr::from_mut(counters) as *const [$atomic]) }
            }

            fn add(counter: &$atomic, amount: u64) -> bool {
                // Bits that do not fit the type are cut off, and reported by the comparison.
                let before = counter.fetch_add(amount as $plain, Ordering::Relaxed);
                u128::from(before) + u128::from(amount) <= u128::from(<$plain>::MAX)
            }

            fn plus(self, amount: u64) -> Option<Self> {
                <$plain>::try_from(u64::from(self).checked_add(amount)?).ok()
            }
        }
    };
}

counter!(u32, AtomicU32);
counter!(u64, AtomicU64);

/// The orbit counts of a graph: one row of [`ORBITS`] counters per vertex, in one slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts<T> {
    table: Vec<T>,
}

impl<T: Counter> Counts<T> {
    /// A table of zeros for a graph of this many vertices.
    pub fn new(vertices: u32) -> Self {
        Self { table: vec![T::default(); vertices as usize * ORBITS] }
    }

    /// The number of rows, one per vertex.
    pub fn rows(&self) -> usize {
        self.table.len() / ORBITS
    }

    /// The counts of one vertex, by orbit.
    pub fn row(&self, vertex: u32) -> &[T] {
        let begin = vertex as usize * ORBITS;
        &self.table[begin..begin + ORBITS]
    }

    /// The whole table, row after row.
    pub fn as_slice(&self) -> &[T] {
        &self.table
    }

    /// The whole table, to be filled from elsewhere, as when a count is resumed.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_tells_when_a_sum_no_longer_fits() {
        let mut counters = [u32::MAX - 1, 0];
        let shared = u32::share(&mut counters);
        assert!(u32::add(&shared[0], 1));
        assert!(!u32::add(&shared[0], 1));
        assert!(!u32::add(&shared[1], 1 << 32));
        let mut counters = [u64::from(u32::MAX)];
        assert!(u64::add(&u64::share(&mut counters)[0], 1));
        assert_eq!(counters, [1 << 32]);
        assert_eq!((7u32.plus(3), 7u32.plus(1 << 32)), (Some(10), None));
        assert_eq!((u32::MAX.plus(1), u64::MAX.plus(1)), (None, None));
    }
}

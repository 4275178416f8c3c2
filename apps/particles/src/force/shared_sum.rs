//! A sum that several threads add to at once.
//!
//! No addition is lost, but their order is whatever the threads make it, and the rounding of
//! floating-point sums depends on the order: this is where runs with more than one thread part.

use std::sync::atomic::{AtomicU32, Ordering};

/// A 32-bit float that starts at zero and is added to through a shared reference.
#[derive(Default)]
pub(super) struct SharedSum(AtomicU32);

impl SharedSum {
    pub fn add(&self, value: f32) {
        // The threads meet before anybody reads the sums, so the order of memory does not matter.
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let sum = (f32::from_bits(seen) + value).to_bits();
            match self.0.compare_exchange_weak(seen, sum, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(changed) => seen = changed,
            }
        }
    }

    pub fn get(&self) -> f32 {
        f32::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub fn clear(&mut self) {
        *self.0.get_mut() = 0.0f32.to_bits();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_addition_is_lost() {
        let sum = SharedSum::default();
        std::thread::scope(|scope| {
            for _thread in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| sum.add(1.0)));
            }
        });
        assert_eq!(sum.get(), 40_000.0);
    }
}

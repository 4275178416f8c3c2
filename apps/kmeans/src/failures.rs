//! Failures as in the paper's experiment: every rank fails in every iteration with the same small probability, so that
//! the number of living ranks decays exponentially.
//!
//! Law: whether a rank fails in an iteration depends on the seed, the rank and the iteration alone. A rank that has
//! survived an iteration survives it again when it is repeated after a recovery.

use crate::points::random;
use treering::{Error, Result};

/// Random failures of ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failures {
    seed: u64,
    /// A rank fails if its random number is below this.
    below: u64,
}

impl Failures {
    /// Half of the ranks fail within this many iterations.
    pub fn with_half_life(iterations: f64, seed: u64) -> Result<Failures> {
        if !(iterations > 0.0 && iterations.is_finite()) {
            return Err(Error::usage(format!(
                "invalid half-life {iterations}: expected a number of iterations > 0"
            )));
        }
        let probability = -(-std::f64::consts::LN_2 / iterations).exp_m1();
        Ok(Failures { seed, below: (probability * 2f64.powi(64)) as u64 })
    }

    /// Whether a rank, by the number that it had at the start, fails in an iteration.
    pub fn hit(self, rank: u32, iteration: u64) -> bool {
        random(random(self.seed, rank.into()), iteration) < self.below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_ranks_fail_within_a_half_life() {
        let failures = Failures::with_half_life(30.0, 5).unwrap();
        let lives = |rank: &u32| !(0..30).any(|iteration| failures.hit(*rank, iteration));
        let living = (0..10_000).filter(lives).count();
        // Four standard deviations.
        assert!(living.abs_diff(5000) < 200, "{living}");
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Failures::with_half_life(bad, 5).is_err());
        }
    }
}

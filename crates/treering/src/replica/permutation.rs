//! Seeded pseudo-random permutation of `0..n` without tables.
//!
//! A number is written as a pair of digits in the mixed radix (a, b), where a is the square root of n rounded up and b
//! is n / a rounded up. A Feistel network adds a hash of one digit to the other, modulo its radix, in turns. This is a
//! bijection on `0..a·b`, and a·b exceeds n by less than a. The few results from n on are put through the network again
//! until they fall below n (cycle walking), which is a bijection on `0..n`. The inverse runs the rounds backwards.
//!
//! Law: for every n up to 2^63 and every seed, [`Permutation::apply`] is a bijection on `u64` that keeps `0..n` within
//! itself and every other number fixed, and [`Permutation::invert`] is its exact inverse.
//!
//! Black and Rogaway, "Ciphers with Arbitrary Finite Domains" (2002); named in the appendix of ReStore (Hübner et al.,
//! 2022). The permutation spreads load; it keeps no secrets.

use crate::error::{Error, Result};

/// The largest n: 2^63.
pub const MOST_PERMUTED: u64 = 1 << 63;

const PAIRS_OF_ROUNDS: u64 = 3;

/// A pseudo-random permutation of `0..n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permutation {
    n: u64,
    high: u64,
    low: u64,
    seed: u64,
}

impl Permutation {
    /// The permutation of `0..n` that belongs to a seed.
    pub fn new(n: u64, seed: u64) -> Result<Self> {
        if n > MOST_PERMUTED {
            return Err(Error::usage(format!("cannot permute {n} numbers: at most 2^63")));
        }
        let root = n.isqrt();
        let high = (root + u64::from(root * root < n)).max(1);
        Ok(Permutation { n, high, low: n.div_ceil(high).max(1), seed: mix(seed) })
    }

    /// Another permutation of the same numbers, at the cost of one hash.
    pub fn reseeded(self, seed: u64) -> Self {
        Permutation { seed: mix(seed), ..self }
    }

    #[cfg(test)]
    /// The number of permuted numbers.
    pub fn len(&self) -> u64 {
        self.n
    }

    #[cfg(test)]
    /// Whether nothing is permuted.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The position of `x`. Numbers from n on stay where they are.
    #[inline]
    pub fn apply(&self, x: u64) -> u64 {
        self.walk(x, Self::forward)
    }

    /// The number at position `y`, the inverse of [`Permutation::apply`].
    #[inline]
    pub fn invert(&self, y: u64) -> u64 {
        self.walk(y, Self::backward)
    }

    #[inline]
    fn walk(&self, mut x: u64, step: impl Fn(&Self, u64) -> u64) -> u64 {
        if x >= self.n {
            return x;
        }
        loop {
            x = step(self, x);
            if x < self.n {
                return x;
            }
        }
    }

    #[inline]
    fn forward(&self, x: u64) -> u64 {
        let (mut high, mut low) = (x / self.low, x % self.low);
        for round in (0..PAIRS_OF_ROUNDS).map(|pair| 2 * pair) {
            high = add(high, self.digest(round, low, self.high), self.high);
            low = add(low, self.digest(round + 1, high, self.low), self.low);
        }
        high * self.low + low
    }

    #[inline]
    fn backward(&self, y: u64) -> u64 {
        let (mut high, mut low) = (y / self.low, y % self.low);
        for round in (0..PAIRS_OF_ROUNDS).rev().map(|pair| 2 * pair) {
            low = subtract(low, self.digest(round + 1, high, self.low), self.low);
            high = subtract(high, self.digest(round, low, self.high), self.high);
        }
        high * self.low + low
    }

    /// A hash of a digit in a round, below `radix`.
    #[inline]
    fn digest(&self, round: u64, digit: u64, radix: u64) -> u64 {
        let salted = self.seed.wrapping_add(round.wrapping_mul(0x9E37_79B9_7F4A_7C15)) ^ digit;
        let product = u128::from(salted) * 0xD6E8_FEB8_6659_FD93_u128;
        let folded = (product as u64 ^ (product >> 64) as u64).wrapping_mul(0xA076_1D64_78BD_642F);
        ((u128::from(folded) * u128::from(radix)) >> 64) as u64
    }
}

/// The sum modulo `radix` of two numbers below it; radices are below 2^32.
#[inline]
fn add(a: u64, b: u64, radix: u64) -> u64 {
    let sum = a + b;
    if sum >= radix { sum - radix } else { sum }
}

#[inline]
fn subtract(a: u64, b: u64, radix: u64) -> u64 {
    if a >= b { a - b } else { a + radix - b }
}

/// A hash of 64 bits that is a bijection (the finaliser of SplitMix64).
#[inline]
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check_whole(n: u64, seed: u64) {
        let permutation = Permutation::new(n, seed).unwrap();
        let mut seen = vec![false; n as usize];
        for x in 0..n {
            let y = permutation.apply(x);
            assert!(
                y < n && !std::mem::replace(&mut seen[y as usize], true),
                "n {n} seed {seed} x {x}"
            );
            assert_eq!(permutation.invert(y), x);
        }
    }

    #[test]
    fn it_is_a_bijection_for_every_small_n_and_for_primes_powers_and_their_neighbours() {
        (0..300).for_each(|n| (0..4).for_each(|seed| check_whole(n, seed)));
        for n in [
            997, 1009, 4093, 4096, 4097, 7919, 8191, 8192, 16383, 16384, 65521, 65536, 65537, 99991,
        ] {
            check_whole(n, n);
        }
    }

    #[test]
    fn numbers_outside_stay_and_too_many_numbers_are_refused() {
        for n in [0, 1, 2, 77] {
            let permutation = Permutation::new(n, 5).unwrap();
            assert_eq!((permutation.len(), permutation.is_empty()), (n, n == 0));
            for x in [n, n + 1, u64::MAX] {
                assert_eq!((permutation.apply(x), permutation.invert(x)), (x, x));
            }
        }
        let error = Permutation::new(MOST_PERMUTED + 1, 0).unwrap_err().to_string();
        assert!(error.contains("at most 2^63"), "{error}");
    }

    /// Every number is at every position about equally often over the seeds: chi-square within 6 deviations.
    #[test]
    fn seeds_spread_each_number_over_all_positions() {
        for n in [5u64, 16, 23, 64] {
            let seeds = 400 * n;
            for x in [0, 1, n / 2, n - 1] {
                let mut counts = vec![0f64; n as usize];
                for seed in 0..seeds {
                    counts[Permutation::new(n, seed).unwrap().apply(x) as usize] += 1.0;
                }
                let chi: f64 = counts.iter().map(|count| (count - 400.0).powi(2) / 400.0).sum();
                let freedom = (n - 1) as f64;
                assert!(
                    (chi - freedom).abs() < 6.0 * (2.0 * freedom).sqrt(),
                    "n {n} x {x} chi {chi}"
                );
            }
        }
    }

    /// Neighbours are torn apart: few of them stay neighbours.
    #[test]
    fn neighbours_do_not_stay_together() {
        let permutation = Permutation::new(100_000, 3).unwrap();
        let close = |x: &u64| permutation.apply(*x).abs_diff(permutation.apply(x + 1)) < 100;
        let together = (0..99_999).filter(close).count();
        assert!((150..250).contains(&together), "{together} of 99,999 pairs, 199 expected");
    }

    proptest! {
        #[test]
        fn the_inverse_is_exact_for_large_n(n in 1u64..=MOST_PERMUTED, seed: u64, part: u64, shift in 0u32..63) {
            let n = (n >> shift).max(1);
            let permutation = Permutation::new(n, 0).unwrap().reseeded(seed);
            prop_assert_eq!(permutation, Permutation::new(n, seed).unwrap());
            for x in [part % n, 0, n - 1, n / 2] {
                let y = permutation.apply(x);
                prop_assert!(y < n);
                prop_assert_eq!(permutation.invert(y), x);
                prop_assert_eq!(permutation.apply(permutation.invert(x)), x);
            }
        }
    }
}

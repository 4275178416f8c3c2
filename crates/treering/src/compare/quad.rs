//! Numbers of 128 bits with a fraction of 112 (IEEE binary128), as which long doubles are compared: every one of them is one
//! of these. No processor at hand computes with them, so what f64 cannot decide is decided in whole numbers of any length.

use super::judge::{Exact, clearly, times_bound};
use crate::merkle::bounded::Bound;

const SIGN: u128 = 1 << 127;
const FRACTION: u32 = 112;
const INFINITY: u128 = 0x7fff << FRACTION;

/// The number that begins `bytes`.
fn bits(bytes: &[u8]) -> u128 {
    let mut word = [0; 16];
    word.copy_from_slice(&bytes[..16]);
    u128::from_le_bytes(word)
}

/// The f64 towards zero; greater ones become infinite, and smaller ones zero.
pub(super) fn rounded(bytes: &[u8]) -> f64 {
    let word = bits(bytes);
    let (size, negative) = (word & !SIGN, word & SIGN != 0);
    let exponent = (size >> FRACTION) as i64 - 16383;
    let fraction = (size >> (FRACTION - 52)) as u64 & ((1 << 52) - 1);
    let near = match exponent {
        _ if size > INFINITY => f64::NAN,
        1024.. => f64::INFINITY,
        -1022..1024 => f64::from_bits(((exponent + 1023) as u64) << 52 | fraction),
        _ => 0.0,
    };
    if negative { -near } else { near }
}

/// The number as it is, if it is finite.
fn exact(word: u128) -> Exact {
    let exponent = (word >> FRACTION & 0x7fff) as i64;
    let fraction = word & ((1 << FRACTION) - 1);
    let fraction = if exponent > 0 { fraction | 1 << FRACTION } else { fraction };
    Exact::new(word & SIGN != 0, fraction, exponent.max(1) - 16383 - i64::from(FRACTION))
}

/// Whether numbers differ beyond a bound. Of `shift` bits at their ends, nothing counts for the number of representable ones
/// between them.
pub(super) fn differ(a: &[u8], b: &[u8], bound: Bound, nan_equal: bool, shift: u32) -> bool {
    let (x, y) = (bits(a), bits(b));
    let is_nan = |word: u128| word & !SIGN > INFINITY;
    match (is_nan(x), is_nan(y)) {
        _ if bound == Bound::Bits => return x != y,
        (true, true) => return !nan_equal,
        (false, false) => {}
        _ => return true,
    }
    match bound {
        Bound::Ulp(count) => ulps_apart(a, b, shift) > u128::from(count),
        Bound::Within { abs, rel } => beyond(x, y, abs, rel),
        Bound::Bits => x != y,
    }
}

fn is_same(x: u128, y: u128) -> bool {
    x == y || (x | y) & !SIGN == 0
}

fn beyond(x: u128, y: u128, abs: f64, rel: f64) -> bool {
    if is_same(x, y) {
        return false;
    }
    if [x, y].iter().any(|word| word & !SIGN == INFINITY) {
        return true;
    }
    let [a, b] = [x, y].map(|word| rounded(&word.to_le_bytes()));
    let (left, right) = ((a - b).abs(), abs + rel * b.abs());
    // Twice what rounding both can change on each side.
    let doubt = (a.abs() + b.abs()) * 2f64.powi(-49) * (1.0 + rel);
    if doubt > 0.0 && left > 4.0 * doubt && right > 4.0 * doubt {
        match (clearly(left - doubt, right), clearly(left + doubt, right)) {
            (Some(true), Some(true)) => return true,
            (Some(false), Some(false)) => return false,
            _ => {}
        }
    }
    let left = exact(x).minus(&exact(y)).size();
    let right = Exact::of(abs).plus(&Exact::of(rel).times(&exact(y & !SIGN)));
    left.minus(&right).is_positive()
}

/// Distance in representable numbers of a format with so many bits less. An infinity is apart from everything but itself.
fn ulps_apart(a: &[u8], b: &[u8], shift: u32) -> u128 {
    let (x, y) = (bits(a), bits(b));
    let (p, q) = (x & !SIGN, y & !SIGN);
    if x != y && (p == INFINITY || q == INFINITY) {
        return u128::MAX;
    }
    let apart = if (x ^ y) & SIGN == 0 { p.abs_diff(q) } else { p + q };
    // What the format cannot have is apart from what it can.
    (apart >> shift) + u128::from(apart & ((1 << shift) - 1) != 0)
}

/// The size of a difference; NaN if one of them is.
pub(super) fn difference(a: &[u8], b: &[u8]) -> f64 {
    let (x, y) = (bits(a), bits(b));
    let (p, q) = (x & !SIGN, y & !SIGN);
    match () {
        _ if p > INFINITY || q > INFINITY => f64::NAN,
        _ if is_same(x, y) => 0.0,
        _ if p == INFINITY || q == INFINITY => f64::INFINITY,
        _ => exact(x).minus(&exact(y)).size().rounded(),
    }
}

/// The difference in units of the bound.
pub(super) fn in_bounds(a: &[u8], b: &[u8], bound: Bound, shift: u32) -> f64 {
    match bound {
        Bound::Ulp(count) => times_bound(ulps_apart(a, b, shift) as f64, count as f64),
        Bound::Within { abs, rel } => times_bound(difference(a, b), abs + rel * rounded(b).abs()),
        Bound::Bits => times_bound(difference(a, b), 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An f64 as one of these numbers.
    fn quad(x: f64) -> u128 {
        let word = x.to_bits();
        let sign = u128::from(word >> 63) << 127;
        let fraction = word & ((1 << 52) - 1);
        sign | match word >> 52 & 0x7ff {
            0 if fraction == 0 => 0,
            0 => {
                let up = fraction.leading_zeros() - 11;
                let fraction = u128::from(fraction << up & ((1 << 52) - 1));
                u128::from(16383 - 1022 - u64::from(up)) << FRACTION | fraction << 60
            }
            0x7ff => INFINITY | u128::from(fraction) << 60,
            exponent => {
                u128::from(exponent + 16383 - 1023) << FRACTION | u128::from(fraction) << 60
            }
        }
    }

    fn differs(x: u128, y: u128, bound: Bound) -> bool {
        differ(&x.to_le_bytes(), &y.to_le_bytes(), bound, true, 0)
    }

    #[test]
    fn what_f64_cannot_tell_apart_is_decided() {
        let one = quad(1.0);
        // Apart by 2^-112 and 2^-100.
        assert!(differs(one, one + 1, Bound::EQUAL));
        assert!(!differs(one, one + 1, Bound::abs(2f64.powi(-112))));
        assert!(differs(one, one + 2, Bound::abs(2f64.powi(-112))));
        assert!(!differs(one, one + (1 << 12), Bound::abs(2f64.powi(-100))));
        assert!(differs(one, one + (1 << 12) + 1, Bound::abs(2f64.powi(-100))));
        assert_eq!(difference(&(one + 1).to_le_bytes(), &one.to_le_bytes()), 2f64.powi(-112));
        // 1.5 − 1 is the bound, and one more is beyond it.
        assert!(!differs(quad(1.5), one, Bound::rel(0.5)));
        assert!(differs(quad(1.5) + 1, one, Bound::rel(0.5)));
        assert!(differs(quad(1.5), one - 1, Bound::rel(0.5)));
        assert!(!differs(0, SIGN, Bound::EQUAL) && differs(0, SIGN, Bound::Bits));
        // Numbers beyond those of f64.
        let (huge, tiny) = (0x7ffe << FRACTION, 1);
        assert!(differs(huge, huge + 1, Bound::abs(f64::MAX)));
        assert!(!differs(huge, huge + 1, Bound::rel(1e-30)));
        assert!(differs(tiny, 0, Bound::EQUAL) && !differs(tiny, 0, Bound::abs(5e-324)));
        assert!(differs(INFINITY, huge, Bound::Within { abs: f64::MAX, rel: 1e300 }));
        assert!(
            !differs(INFINITY, INFINITY, Bound::EQUAL)
                && differs(INFINITY, INFINITY | SIGN, Bound::EQUAL)
        );
        let nan = (INFINITY | 1).to_le_bytes();
        assert!(
            !differ(&nan, &nan, Bound::EQUAL, true, 0)
                && differ(&nan, &nan, Bound::EQUAL, false, 0)
        );
        assert!(differ(&nan, &one.to_le_bytes(), Bound::abs(1e300), true, 0));
        assert!(!differs(one, one + 5, Bound::Ulp(5)) && differs(one, one + 6, Bound::Ulp(5)));
        let next = one + (1 << 49);
        assert!(!differ(&one.to_le_bytes(), &next.to_le_bytes(), Bound::Ulp(1), true, 49));
        assert!(differ(
            &one.to_le_bytes(),
            &(next + (1 << 49)).to_le_bytes(),
            Bound::Ulp(1),
            true,
            49
        ));
        assert!(differ(&one.to_le_bytes(), &next.to_le_bytes(), Bound::Ulp(0), true, 49));
    }

    proptest! {
        /// Numbers of f64 are judged as the same ones of 128 bits are.
        #[test]
        fn the_answer_is_that_of_f64(
            a: f64, up in -9i64..9, other: f64, near: bool, abs in prop_oneof![Just(0.0), 0.0f64..1e-3, any::<f64>().prop_map(f64::abs)],
            rel in prop_oneof![Just(0.0), 0.0f64..1e-12, 0.0f64..2.0],
        ) {
            prop_assume!(abs.is_finite() && !a.is_nan() && !other.is_nan());
            let b = if near { f64::from_bits(a.to_bits().wrapping_add_signed(up)) } else { other };
            prop_assume!(!b.is_nan());
            prop_assert_eq!(rounded(&quad(a).to_le_bytes()), if a.is_subnormal() { 0.0 } else { a });
            let bound = Bound::Within { abs, rel };
            let expected = super::super::judge::beyond(a, b, abs, rel);
            prop_assert_eq!(differs(quad(a), quad(b), bound), expected, "{} {} {}", a, b, bound);
        }
    }
}

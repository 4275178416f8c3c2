//! Whether two values differ, by whole numbers of any length: everything is a multiple of 2^-1074.

use super::Format;
use num_bigint::{BigInt, BigUint};
use std::cmp::Ordering;
use treering::{Bound, DType};

const UNIT: u64 = 1074;

/// A finite number in units of 2^-1074.
fn whole(format: Format, bits: u64) -> BigInt {
    let (number, exponent) = format.split(bits);
    let size = BigInt::from(number) << (exponent + UNIT as i64) as u64;
    if format.is_negative(bits) { -size } else { size }
}

fn bound(x: f64) -> BigUint {
    whole(Format::of(DType::F64), x.to_bits()).magnitude().clone()
}

/// Whether two elements differ beyond a bound.
pub fn differ(dtype: DType, within: Bound, nan_equal: bool, a: &[u8], b: &[u8]) -> bool {
    let within = within.of_type(dtype);
    let size = dtype.size() as usize;
    if within == Bound::Bits {
        return a[..size] != b[..size];
    }
    let format = Format::of(dtype);
    let parts = |bytes: &[u8]| (0..format.parts).map(|p| format.read(bytes, p)).collect::<Vec<_>>();
    let (a, b) = (parts(a), parts(b));
    let nan = |z: &[u64]| z.iter().any(|x| format.is_nan(*x));
    if nan(&a) || nan(&b) {
        return !(nan(&a) && nan(&b) && nan_equal);
    }
    // Equal infinities are no distance apart, and are left out; other ones are beyond everything.
    let infinite = |x: u64| format.is_infinite(x);
    if a.iter().zip(&b).any(|(x, y)| x != y && (infinite(*x) || infinite(*y))) {
        return true;
    }
    let pairs: Vec<(u64, u64)> = a.into_iter().zip(b).filter(|(x, _)| !infinite(*x)).collect();
    match within {
        Bound::Ulp(count) => {
            let apart =
                |x: u64, y: u64| (format.ordinal(x) as i128 - format.ordinal(y) as i128).abs();
            pairs.iter().any(|(x, y)| apart(*x, *y) > count as i128)
        }
        Bound::Within { abs, rel } => {
            let square = |x: BigInt| (&x * &x).magnitude().clone();
            // In units of 2^-2148.
            let gap =
                pairs.iter().map(|(x, y)| square(whole(format, *x) - whole(format, *y))).sum();
            let size = pairs.iter().map(|(_, y)| square(whole(format, *y))).sum();
            further(gap, size, bound(abs), bound(rel))
        }
        Bound::Bits => unreachable!(),
    }
}

/// Whether √gap > abs + rel·√size, with numbers in units: squares in units twice as fine.
fn further(gap: BigUint, size: BigUint, abs: BigUint, rel: BigUint) -> bool {
    // Both sides times 2^1074, so that the product with `rel` is whole: √gap > abs + √scaled.
    let gap = gap << (2 * UNIT);
    let abs = abs << UNIT;
    let scaled = &rel * &rel * size;
    let root = scaled.sqrt();
    if &root * &root == scaled {
        let right = abs + root;
        return gap > &right * &right;
    }
    if abs == BigUint::ZERO {
        return gap > scaled;
    }
    // √scaled is no fraction, so the two sides are never the same: enough digits tell.
    for digits in (0u64..).step_by(64) {
        let low = (&gap << (2 * digits)).sqrt();
        let right = (&abs << digits) + (&scaled << (2 * digits)).sqrt();
        // Each root is up to 1 greater than its floor.
        match low.cmp(&right) {
            Ordering::Greater if low > &right + 1u8 => return true,
            Ordering::Less if &low + 1u8 < right => return false,
            _ => {}
        }
    }
    unreachable!("the sides are different")
}

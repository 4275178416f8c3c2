//! Values replaced by others within a bound, which take fewer bytes.
//!
//! It happens before anything else looks at a variable: what is hashed, stored, compared and restored
//! is the rounded state, and everything behind is as exact as ever. (cuSZ, Tian et al. 2020, calls the
//! like of it dual quantisation: values are quantised first, so that predictions of whole numbers
//! behind it are exact and lose nothing more.)
//!
//! **Absolute bound b.** A value v becomes the multiple of a *spacing* s ≤ 2b that is nearest to it. The
//! spacing has few significant bits, so that multiples k·s are numbers of the type up to |k| = 2^19
//! (f64: 2^41) and rounding them costs no part of the bound. The product with 1/s may find a neighbour
//! of the nearest multiple, and large multiples are rounded themselves; so v' counts only if
//! |v' − v| ≤ b, and v stays otherwise. That difference is computed without error: for k ≥ 1, v' and v
//! lie within a factor of two, or v' = s and v is just below s/2 and a multiple of the same power of two.
//! Rounding again changes nothing: v' lies less than s/2 from k·s as long as |k| < 2^22 (f64: 2^50), and
//! values beyond that stay. Zeros lose their sign.
//!
//! **Relative bound b.** With 2^q ≤ b, the fraction of v is rounded to −q − 1 bits, to the nearest and
//! from the middle to even: the error is 2^q of the value's power of two at most. It may carry into the
//! exponent, but never to infinity. Denormals stay.
//!
//! NaN and infinities stay. Complex numbers are rounded part by part, such that the modulus of the
//! difference holds the bound.
//!
//! **Marks.** Files say that a certain value stands for none at all. It stays, and a value that
//! rounding would turn into it stays, too, so that rounding again changes nothing here either. Files also give
//! limits of valid values: a value that rounding would move to, from or across a limit stays.

use super::float_env::plain;
use super::{Bound, DType};
use crate::error::{Error, Result};

/// The distance between neighbouring values that rounding leaves: a positive normal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spacing(u64);

impl Spacing {
    /// The spacing with these bits, if it can be one.
    pub fn from_bits(bits: u64) -> Option<Spacing> {
        let value = f64::from_bits(bits);
        (value.is_normal() && value > 0.0).then_some(Spacing(bits))
    }

    /// The bits of the number.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }

    /// The largest with this many significant bits that is at most twice a bound; none if that is no
    /// normal number.
    fn of(bound: f64, bits: u32) -> Option<Spacing> {
        const LARGEST: f64 = f64::from_bits(0x7fe0_0000_0000_0000);
        let twice = (2.0 * bound).min(LARGEST);
        Spacing::from_bits(twice.to_bits() & u64::MAX << (53 - bits))
    }
}

/// 1.5 · 2^52: adding and subtracting it rounds numbers below 2^51 to whole ones.
const WHOLE: f64 = 6_755_399_441_055_744.0;

/// The whole number nearest to a number below 2^51.
#[inline(always)]
pub(crate) fn whole(number: f64) -> f64 {
    (number + WHOLE) - WHOLE
}

/// A little less than √½: parts of complex numbers within it times a bound are within the bound.
const PART: f64 = 0.707_106_781_186_547_4;

/// Marks in the values of a file: values that stand for something else, and limits of valid ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Marks {
    /// Fill values and missing ones, all of the size of an element.
    pub(crate) values: Vec<Vec<u8>>,
    /// Limits of valid values. They are kept for real numbers only.
    pub(crate) limits: Vec<f64>,
}

/// Rounding of the values of a variable within a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounding {
    bound: Bound,
    /// The size of a number; complex ones have two.
    size: usize,
    way: RoundingKind,
}

/// Bounds are never NaN.
impl Eq for Rounding {}

#[derive(Clone, Copy, Debug, PartialEq)]
enum RoundingKind {
    /// The bound asks for more than the type has.
    Exact,
    /// To multiples, each part within this bound.
    Spaced(Spacing, f64),
    /// Without this many of the lowest bits.
    Cut(u32),
}

impl Rounding {
    /// Refuses bounds that values cannot be rounded within, and types that have none.
    pub fn new(bound: Bound, dtype: DType) -> Result<Rounding> {
        plain(|| Rounding::made_plainly(bound, dtype))
    }

    fn made_plainly(bound: Bound, dtype: DType) -> Result<Rounding> {
        let complex = matches!(dtype, DType::C64 | DType::C128);
        let size = match dtype {
            DType::F32 | DType::C64 => 4,
            DType::F64 | DType::C128 => 8,
            _ => {
                return Err(Error::usage(format!("values of type {dtype} cannot be rounded"))
                    .hint("give bounds for variables of type f32, f64, c64 and c128 only"));
            }
        };
        let wrong = |why: &str| {
            Error::usage(format!("values cannot be rounded within {bound}: {why}"))
                .hint("give an absolute or a relative bound, such as abs:1e-6 or rel:1e-4")
        };
        let Bound::Within { abs, rel } = bound else {
            return Err(wrong("it is not a distance"));
        };
        if !abs.is_finite() || !rel.is_finite() {
            return Err(wrong("a bound is a finite number"));
        }
        let way = match (abs > 0.0, rel > 0.0) {
            (true, _) if rel == 0.0 => {
                let part = if complex { abs * PART } else { abs };
                let bits = if size == 4 { 5 } else { 12 };
                Spacing::of(part, bits)
                    .map_or(RoundingKind::Exact, |spacing| RoundingKind::Spaced(spacing, part))
            }
            (_, true) if abs == 0.0 && rel < 1.0 => cut(rel, size),
            (_, true) if abs == 0.0 => return Err(wrong("a relative bound is less than 1")),
            (true, true) => return Err(wrong("there are two")),
            _ => return Err(wrong("a bound is greater than 0")),
        };
        Ok(Rounding { bound, size, way })
    }

    /// The bound that holds for every value.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// Spacing whose multiples the rounded values are, except for values that stay as they are.
    pub fn spacing(&self) -> Option<Spacing> {
        match self.way {
            RoundingKind::Spaced(spacing, _) => Some(spacing),
            _ => None,
        }
    }

    /// Rounds whole values in place, but for marks, which stand for something else than a value: they
    /// stay, and nothing becomes one. No value passes a limit.
    pub(crate) fn round_but(&self, bytes: &mut [u8], marks: &Marks) {
        if marks.values.is_empty() && marks.limits.is_empty() {
            return self.round(bytes);
        }
        let size = marks.values.first().map_or(self.size, Vec::len).max(self.size);
        let number = |raw: &[u8]| match raw {
            [a, b, c, d] => f64::from(f32::from_le_bytes([*a, *b, *c, *d])),
            _ => raw.first_chunk().map_or(f64::NAN, |raw| f64::from_le_bytes(*raw)),
        };
        let passes = |before: &[u8], after: &[u8]| {
            let (before, after) = (number(before), number(after));
            marks.limits.iter().any(|limit| before.partial_cmp(limit) != after.partial_cmp(limit))
        };
        let mut original = [0; 4096];
        let part = original.len() / size.min(original.len()) * size;
        for bytes in bytes.chunks_mut(part) {
            let original = &mut original[..bytes.len()];
            original.copy_from_slice(bytes);
            self.round(bytes);
            for (value, before) in bytes.chunks_mut(size).zip(original.chunks(size)) {
                let mark = marks.values.iter().any(|mark| mark == before || mark == value);
                if mark || passes(before, value) {
                    value.copy_from_slice(before);
                }
            }
        }
    }

    /// Rounds whole values in place; the result does not depend on the program's rounding mode.
    pub fn round(&self, bytes: &mut [u8]) {
        plain(|| self.round_plainly(bytes));
    }

    fn round_plainly(&self, bytes: &mut [u8]) {
        match (self.way, self.size) {
            (RoundingKind::Exact, _) => {}
            (RoundingKind::Spaced(spacing, bound), 4) => {
                let grid = Multiples { spacing: spacing.get(), scale: 1.0 / spacing.get(), bound };
                each(bytes, |four| grid.narrow(f32::from_le_bytes(four)).to_le_bytes());
            }
            (RoundingKind::Spaced(spacing, bound), _) => {
                let grid = Multiples { spacing: spacing.get(), scale: 1.0 / spacing.get(), bound };
                each(bytes, |eight| grid.wide(f64::from_le_bytes(eight)).to_le_bytes());
            }
            (RoundingKind::Cut(drop), 4) => {
                each(bytes, |four| cut_f32(u32::from_le_bytes(four), drop).to_le_bytes());
            }
            (RoundingKind::Cut(drop), _) => {
                each(bytes, |eight| cut_f64(u64::from_le_bytes(eight), drop).to_le_bytes());
            }
        }
    }
}

/// Number of bits that a relative bound leaves out.
fn cut(rel: f64, size: usize) -> RoundingKind {
    let fraction = if size == 4 { 23 } else { 52 };
    // The exponent of a denormal bound is less than any type's fraction is long.
    let exponent = (rel.to_bits() >> 52) as i32 - 1023;
    match u32::try_from(fraction + 1 + exponent) {
        Ok(drop) if drop > 0 => RoundingKind::Cut(drop),
        _ => RoundingKind::Exact,
    }
}

#[inline(always)]
fn each<const N: usize>(bytes: &mut [u8], change: impl Fn([u8; N]) -> [u8; N]) {
    bytes.as_chunks_mut::<N>().0.iter_mut().for_each(|value| *value = change(*value));
}

/// Rounding to multiples.
#[derive(Clone, Copy)]
struct Multiples {
    spacing: f64,
    scale: f64,
    bound: f64,
}

impl Multiples {
    #[inline(always)]
    fn wide(self, value: f64) -> f64 {
        let count = value * self.scale;
        let to = whole(count) * self.spacing;
        let counts = count.abs() < (1u64 << 50) as f64 && (to - value).abs() <= self.bound;
        if counts { to } else { value }
    }

    #[inline(always)]
    fn narrow(self, value: f32) -> f32 {
        let wide = f64::from(value);
        let count = wide * self.scale;
        let to = (whole(count) * self.spacing) as f32;
        let counts =
            count.abs() < (1u64 << 22) as f64 && (f64::from(to) - wide).abs() <= self.bound;
        if counts { to } else { value }
    }
}

macro_rules! cut {
    ($name:ident, $word:ty, $fraction:literal, $top:literal) => {
        /// Rounds the bits of a number by their lowest ones.
        #[inline(always)]
        fn $name(bits: $word, drop: u32) -> $word {
            let exponent = |bits: $word| bits >> $fraction & $top;
            let even = bits >> drop & 1;
            let rounded = bits.wrapping_add((1 << (drop - 1)) - 1 + even) & <$word>::MAX << drop;
            let stays = exponent(bits) == 0 || exponent(bits) == $top || exponent(rounded) == $top;
            if stays { bits } else { rounded }
        }
    };
}
cut!(cut_f32, u32, 23, 0xff);
cut!(cut_f64, u64, 52, 0x7ff);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_bound_is_refused_with_a_sentence() {
        let why = |bound, dtype| Rounding::new(bound, dtype).unwrap_err().to_string();
        for dtype in [DType::I32, DType::F16, DType::BF16, DType::Bool, DType::Bytes] {
            assert!(why(Bound::abs(1.0), dtype).contains("cannot be rounded"));
        }
        let no_bounds = [
            (Bound::abs(0.0), "greater than 0"),
            (Bound::abs(-1.0), "greater than 0"),
            (Bound::rel(-0.5), "greater than 0"),
            (Bound::abs(f64::NAN), "finite"),
            (Bound::abs(f64::INFINITY), "finite"),
            (Bound::rel(f64::INFINITY), "finite"),
            (Bound::rel(1.0), "less than 1"),
            (Bound::Within { abs: 1.0, rel: 0.1 }, "there are two"),
            (Bound::Within { abs: 1.0, rel: -0.1 }, "0"),
            (Bound::Ulp(4), "not a distance"),
            (Bound::Bits, "not a distance"),
        ];
        for (bound, sentence) in no_bounds {
            let error = why(bound, DType::F64);
            assert!(error.contains(sentence) && error.contains("abs:1e-6"), "{bound}: {error}");
        }
    }

    #[test]
    fn values_go_to_the_nearest_multiple() {
        let round = |bound, value: f64| {
            let mut bytes = value.to_le_bytes();
            Rounding::new(bound, DType::F64).unwrap().round(&mut bytes);
            f64::from_le_bytes(bytes)
        };
        assert_eq!(round(Bound::abs(0.5), 2.4), 2.0);
        assert_eq!(round(Bound::abs(0.5), -2.6), -3.0);
        assert_eq!(round(Bound::abs(0.5), -0.2).to_bits(), 0);
        assert_eq!(round(Bound::abs(0.5), 1e300), 1e300);
        assert_eq!(round(Bound::rel(0.01), 1.0), 1.0);
        assert_eq!(round(Bound::rel(0.01), 1.003), 1.0);
        assert_eq!(round(Bound::rel(0.01), -1.99999), -2.0);
        assert_eq!(round(Bound::rel(0.01), f64::MAX), f64::MAX);
        assert_eq!(round(Bound::rel(0.01), 5e-324), 5e-324);
    }
}

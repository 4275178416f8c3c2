//! Whether two values differ beyond a bound: exactly, by the numbers as they are.
//!
//! |a − b| > abs + rel·|b| is decided in floating point where the two sides are clearly apart, and in
//! whole numbers of any length where rounding could tip the balance: fl(a − b) can equal the bound
//! although a − b exceeds it. The bound of complex numbers applies to the modulus of their difference,
//! a ULP bound to each component.

use super::quad;
use crate::array::DType;
use crate::merkle::bounded::Bound;
use crate::source::number;
use num_bigint::{BigInt, Sign};

/// One element, as it is shown. Values are found in [`First`](crate::First) and
/// [`ValueDifference`](crate::ValueDifference).
///
/// ```
/// use treering::{DType, Value};
/// let (a, b) = (Value::Float(1.5), Value::read(DType::F64, &2.0f64.to_le_bytes()));
/// assert_eq!(a.difference(&b), 0.5);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer, a byte or a boolean.
    Int(i128),
    /// A number.
    Float(f64),
    /// A complex number.
    Complex(f64, f64),
    /// A value that is not a number, or has a name.
    Text(String),
}

impl Value {
    /// The element that begins `bytes`.
    pub fn read(dtype: DType, bytes: &[u8]) -> Value {
        let word = |from: usize, size: usize| {
            bytes[from..from + size].iter().rev().fold(0u64, |word, byte| word << 8 | *byte as u64)
        };
        match dtype {
            DType::U8 | DType::Bool | DType::Bytes => Value::Int(bytes[0] as i128),
            DType::I8 => Value::Int(bytes[0] as i8 as i128),
            DType::U16 => Value::Int(word(0, 2) as i128),
            DType::I16 => Value::Int(word(0, 2) as i16 as i128),
            DType::U32 => Value::Int(word(0, 4) as i128),
            DType::I32 => Value::Int(word(0, 4) as i32 as i128),
            DType::U64 => Value::Int(word(0, 8) as i128),
            DType::I64 => Value::Int(word(0, 8) as i64 as i128),
            DType::F16 | DType::BF16 => Value::Float(number(dtype, word(0, 2))),
            DType::F32 => Value::Float(number(dtype, word(0, 4))),
            DType::F64 => Value::Float(number(dtype, word(0, 8))),
            DType::C64 => Value::Complex(number(dtype, word(0, 4)), number(dtype, word(4, 4))),
            DType::C128 => Value::Complex(number(dtype, word(0, 8)), number(dtype, word(8, 8))),
        }
    }

    /// Whether it is, or has a part that is, NaN.
    pub fn is_nan(&self) -> bool {
        match self {
            Value::Int(_) | Value::Text(_) => false,
            Value::Float(x) => x.is_nan(),
            Value::Complex(re, im) => re.is_nan() || im.is_nan(),
        }
    }

    /// The size of the difference; NaN if one of them is.
    pub fn difference(&self, other: &Value) -> f64 {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => a.abs_diff(*b) as f64,
            (Value::Float(a), Value::Float(b)) if a == b => 0.0,
            (Value::Float(a), Value::Float(b)) => (a - b).abs(),
            (Value::Complex(a, b), Value::Complex(c, d)) => {
                let part = |x: &f64, y: &f64| if x == y { 0.0 } else { x - y };
                part(a, c).hypot(part(b, d))
            }
            _ => f64::NAN,
        }
    }
}

impl Value {
    /// The difference from this value that a bound permits; 0 if it is given in bits or representable values.
    pub(crate) fn limit(&self, bound: Bound) -> f64 {
        let Bound::Within { abs, rel } = bound else { return 0.0 };
        match self {
            Value::Int(_) | Value::Text(_) => 0.0,
            Value::Float(x) => abs + rel * x.abs(),
            Value::Complex(re, im) => abs + rel * re.hypot(*im),
        }
    }
}

impl serde::Serialize for Value {
    /// JSON has no NaN and no infinity: they are written as text.
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Value::Int(x) => match i64::try_from(*x) {
                Ok(x) => s.serialize_i64(x),
                Err(_) => s.serialize_u64(*x as u64),
            },
            Value::Float(x) => Number(*x).serialize(s),
            Value::Complex(re, im) => (Number(*re), Number(*im)).serialize(s),
            Value::Text(text) => s.serialize_str(text),
        }
    }
}

/// A number in JSON, or its name if JSON cannot have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64);

impl serde::Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0.is_finite() {
            true => s.serialize_f64(self.0),
            false => s.collect_str(&self.0),
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Int(x) => write!(f, "{x}"),
            Value::Float(x) => write!(f, "{x:?}"),
            Value::Complex(re, im) => write!(f, "{re:?}{im:+?}i"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// Decides about pairs of values of one type.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    pub(crate) dtype: DType,
    pub(crate) bound: Bound,
    pub(crate) nan_equal: bool,
    /// Whether values are numbers of 128 bits, and the bits at their ends that none of them has.
    pub(super) quads: Option<u32>,
}

impl Judge {
    /// For a type; bounds other than bits are for floating-point types only.
    pub fn new(dtype: DType, bound: Bound, nan_equal: bool) -> Self {
        Judge { dtype, bound: bound.of_type(dtype), nan_equal, quads: None }
    }

    /// The element that begins `bytes`; of numbers of 128 bits, the nearest f64 towards zero.
    pub(super) fn read(&self, bytes: &[u8]) -> Value {
        match self.quads {
            Some(_) => Value::Float(quad::rounded(bytes)),
            None => Value::read(self.dtype, bytes),
        }
    }

    /// Whether the elements that begin `a` and `b` differ beyond the bound.
    pub fn differ(&self, a: &[u8], b: &[u8]) -> bool {
        if let Some(shift) = self.quads {
            return quad::differ(a, b, self.bound, self.nan_equal, shift);
        }
        let size = self.dtype.size() as usize;
        if self.bound == Bound::Bits {
            return a[..size] != b[..size];
        }
        let (x, y) = (Value::read(self.dtype, a), Value::read(self.dtype, b));
        match (x.is_nan(), y.is_nan()) {
            (true, true) => return !self.nan_equal,
            (false, false) => {}
            _ => return true,
        }
        match (self.bound, x, y) {
            (Bound::Within { abs, rel }, Value::Float(x), Value::Float(y)) => {
                beyond(x, y, abs, rel)
            }
            (Bound::Within { abs, rel }, Value::Complex(a, b), Value::Complex(c, d)) => {
                beyond_complex((a, b), (c, d), abs, rel)
            }
            (Bound::Ulp(count), _, _) => self.ulps_apart(a, b) > count as u128,
            _ => true,
        }
    }

    /// The number of representable values between two elements; of complex ones, between the components that are
    /// further apart.
    fn ulps_apart(&self, a: &[u8], b: &[u8]) -> u128 {
        let size = self.dtype.size() as usize;
        let complex = matches!(self.dtype, DType::C64 | DType::C128);
        let part = if complex { size / 2 } else { size };
        let apart =
            |from: usize| ordinals_apart(self.dtype, &a[from..from + part], &b[from..from + part]);
        (0..size).step_by(part).map(apart).max().unwrap_or(0)
    }

    /// The size of the difference between two elements; NaN if one of them is.
    pub(super) fn difference(&self, a: &[u8], b: &[u8]) -> f64 {
        match self.quads {
            Some(_) => quad::difference(a, b),
            None => Value::read(self.dtype, a).difference(&Value::read(self.dtype, b)),
        }
    }

    /// The difference between two elements in units of the bound, see [`times_bound`].
    pub(super) fn times_bound(&self, a: &[u8], b: &[u8]) -> f64 {
        if let Some(shift) = self.quads {
            return quad::in_bounds(a, b, self.bound, shift);
        }
        let (x, y) = (Value::read(self.dtype, a), Value::read(self.dtype, b));
        match self.bound {
            Bound::Ulp(count) => times_bound(self.ulps_apart(a, b) as f64, count as f64),
            bound => times_bound(x.difference(&y), y.limit(bound)),
        }
    }
}

/// A difference in units of the bound: infinite under a bound of 0, or if it has no finite size.
#[inline]
pub(super) fn times_bound(size: f64, limit: f64) -> f64 {
    let times = size / limit;
    if times.is_nan() { f64::INFINITY } else { times }
}

/// Distance of two numbers in representable values; −0 is +0. An infinity is apart from everything but itself.
fn ordinals_apart(dtype: DType, a: &[u8], b: &[u8]) -> u128 {
    let top = 8 * a.len() as u32 - 1;
    let mantissa = match dtype {
        DType::F16 => 10,
        DType::BF16 => 7,
        DType::F32 | DType::C64 => 23,
        _ => 52,
    };
    let infinity = ((1i128 << (top - mantissa)) - 1) << mantissa;
    let ordinal = |bytes: &[u8]| {
        let bits = bytes.iter().rev().fold(0u64, |word, byte| word << 8 | *byte as u64);
        let rest = (bits & ((1 << top) - 1)) as i128;
        if bits >> top & 1 == 1 { -rest } else { rest }
    };
    let (x, y) = (ordinal(a), ordinal(b));
    match x != y && (x.abs() == infinity || y.abs() == infinity) {
        true => u128::MAX,
        false => x.abs_diff(y),
    }
}

/// Rounding of a handful of operations.
const FUZZ: f64 = 1e-14;
/// Outside of these, products and squares lose more than a rounding.
const SAFE: std::ops::Range<f64> = 1e-140..1e140;

/// Whether |a − b| > abs + rel·|b|, for numbers that are not NaN.
#[inline]
pub(super) fn beyond(a: f64, b: f64, abs: f64, rel: f64) -> bool {
    if a == b {
        return false;
    }
    if a.is_infinite() || b.is_infinite() {
        return true;
    }
    let (left, right) = ((a - b).abs(), abs + rel * b.abs());
    if rel == 0.0 && left.is_finite() && left != right {
        // The right side is exact, and rounding the left is monotone.
        return left > right;
    }
    if let Some(answer) = clearly(left, right) {
        return answer;
    }
    beyond_exactly(a, b, abs, rel)
}

#[cold]
fn beyond_exactly(a: f64, b: f64, abs: f64, rel: f64) -> bool {
    let left = Exact::of(a).minus(&Exact::of(b)).size();
    let right = Exact::of(abs).plus(&Exact::of(rel).times(&Exact::of(b.abs())));
    left.minus(&right).is_positive()
}

/// Whether the left side is the greater one, if rounding cannot have decided it.
pub(super) fn clearly(left: f64, right: f64) -> Option<bool> {
    if !SAFE.contains(&left) || !SAFE.contains(&right) {
        return None;
    }
    match left {
        _ if left > right * (1.0 + FUZZ) => Some(true),
        _ if left < right * (1.0 - FUZZ) => Some(false),
        _ => None,
    }
}

/// Whether complex numbers differ beyond the bound, by the modulus.
fn beyond_complex(a: (f64, f64), b: (f64, f64), abs: f64, rel: f64) -> bool {
    if a == b {
        return false;
    }
    // Parts that are the same infinity are no distance apart, as their cells say; the other part
    // decides.
    let finite = |x: f64, y: f64| if x == y && x.is_infinite() { (0.0, 0.0) } else { (x, y) };
    let ((a0, b0), (a1, b1)) = (finite(a.0, b.0), finite(a.1, b.1));
    let (a, b) = ((a0, a1), (b0, b1));
    if [a.0, a.1, b.0, b.1].iter().any(|x| x.is_infinite()) {
        return true;
    }
    let left = (a.0 - b.0).hypot(a.1 - b.1);
    if let Some(answer) = clearly(left, abs + rel * b.0.hypot(b.1)) {
        return answer;
    }
    let square = |x: Exact| x.times(&x);
    let [a0, a1, b0, b1, abs, rel] = [a.0, a.1, b.0, b.1, abs, rel].map(Exact::of);
    let gap = square(a0.minus(&b0)).plus(&square(a1.minus(&b1)));
    let modulus = square(b0).plus(&square(b1));
    // gap > (abs + rel·√modulus)², without the root: rest > 2·abs·rel·√modulus.
    let rest = gap.minus(&square(abs.clone())).minus(&square(rel.clone()).times(&modulus));
    let mixed = square(abs.times(&rel)).times(&modulus).times(&Exact::of(4.0));
    rest.is_positive() && square(rest).minus(&mixed).is_positive()
}

/// A number n·2^e, of any length.
#[derive(Clone)]
pub(super) struct Exact(BigInt, i64);

impl Exact {
    /// The number n·2^e with a sign.
    pub(super) fn new(negative: bool, number: u128, exponent: i64) -> Exact {
        let sign = if negative { Sign::Minus } else { Sign::Plus };
        Exact(BigInt::from_biguint(sign, number.into()), exponent)
    }

    pub(super) fn of(x: f64) -> Exact {
        let bits = x.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as i64;
        let fraction = bits & ((1 << 52) - 1);
        let fraction = if exponent > 0 { fraction | 1 << 52 } else { fraction };
        Exact::new(x.is_sign_negative(), fraction.into(), exponent.max(1) - 1075)
    }

    pub(super) fn plus(&self, other: &Exact) -> Exact {
        let e = self.1.min(other.1);
        Exact((&self.0 << (self.1 - e)) + (&other.0 << (other.1 - e)), e)
    }

    pub(super) fn minus(&self, other: &Exact) -> Exact {
        self.plus(&Exact(-&other.0, other.1))
    }

    pub(super) fn times(&self, other: &Exact) -> Exact {
        Exact(&self.0 * &other.0, self.1 + other.1)
    }

    pub(super) fn size(self) -> Exact {
        Exact(BigInt::from(self.0.magnitude().clone()), self.1)
    }

    pub(super) fn is_positive(&self) -> bool {
        self.0.sign() == Sign::Plus
    }

    /// The f64 nearest to the size, or next to it.
    pub(super) fn rounded(&self) -> f64 {
        let size = self.0.magnitude();
        let more = size.bits().saturating_sub(64);
        let first = (size >> more).iter_u64_digits().next().unwrap_or(0) as f64;
        // In two steps, so that neither leaves the range of f64 if the result does not.
        let power = (self.1 + more as i64).clamp(-2400, 2400) as i32;
        first * 2f64.powi(power / 2) * 2f64.powi(power - power / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ(a: f64, b: f64, bound: Bound) -> bool {
        Judge::new(DType::F64, bound, true).differ(&a.to_le_bytes(), &b.to_le_bytes())
    }

    #[test]
    fn at_the_bound_and_just_above_it() {
        // 1 − (−2^-60) rounds to 1, and exceeds it.
        assert!(differ(1.0, -(2f64.powi(-60)), Bound::abs(1.0)));
        assert!(!differ(1.0, 2f64.powi(-60), Bound::abs(1.0)));
        assert!(!differ(1.0, 0.0, Bound::abs(1.0)));
        assert!(differ(1.0f64.next_up(), 0.0, Bound::abs(1.0)));
        assert!(!differ(3.0, 2.0, Bound::rel(0.5)));
        assert!(differ(3.0f64.next_up(), 2.0, Bound::rel(0.5)));
        assert!(!differ(f64::MAX, -f64::MAX, Bound::Within { abs: f64::MAX, rel: 1.0 }));
        assert!(differ(f64::MAX, -f64::MAX, Bound::abs(f64::MAX)));
        assert!(!differ(f64::INFINITY, f64::INFINITY, Bound::EQUAL));
        assert!(differ(f64::INFINITY, f64::MAX, Bound::Within { abs: f64::MAX, rel: 1e300 }));
        assert!(!differ(0.0, -0.0, Bound::EQUAL));
        assert!(differ(0.0, -0.0, Bound::Bits));
        assert!(differ(5e-324, -5e-324, Bound::abs(5e-324)));
        assert!(!differ(5e-324, -5e-324, Bound::Ulp(2)));
        assert!(differ(5e-324, -5e-324, Bound::Ulp(1)));
        assert!(differ(f64::MAX, f64::INFINITY, Bound::Ulp(u64::MAX)));
        assert!(!differ(f64::NAN, -f64::NAN, Bound::EQUAL));
        assert!(differ(f64::NAN, 0.0, Bound::abs(1e300)));
    }

    #[test]
    fn complex_numbers_are_held_to_the_modulus() {
        let differ = |a: [f64; 2], b: [f64; 2], bound| {
            let bytes = |z: [f64; 2]| [z[0].to_le_bytes(), z[1].to_le_bytes()].concat();
            Judge::new(DType::C128, bound, true).differ(&bytes(a), &bytes(b))
        };
        assert!(!differ([3.0, 4.0], [0.0, 0.0], Bound::abs(5.0)));
        assert!(differ([3.0, 4.0f64.next_up()], [0.0, 0.0], Bound::abs(5.0)));
        // |b| = 5, so the bound is 1 + 0.5·5 = 3.5.
        let bound = Bound::Within { abs: 1.0, rel: 0.5 };
        assert!(!differ([6.5, 4.0], [3.0, 4.0], bound));
        assert!(differ([6.5f64.next_up(), 4.0], [3.0, 4.0], bound));
        assert!(!differ([1e-170, 0.0], [0.0, 1e-170], Bound::abs(1.5e-170)));
        assert!(differ([1e-170, 0.0], [0.0, 1e-170], Bound::abs(1.4e-170)));
    }

    #[test]
    fn small_formats_become_the_numbers_they_are() {
        for bits in 0..=u16::MAX {
            let half = number(DType::F16, bits as u64);
            let exponent = (bits >> 10 & 31) as i32;
            let fraction = (bits & 1023) as f64;
            let expected = match exponent {
                31 if bits & 1023 != 0 => f64::NAN,
                31 => f64::INFINITY,
                0 => fraction * 2f64.powi(-24),
                e => (1024.0 + fraction) * 2f64.powi(e - 25),
            };
            let expected = if bits >> 15 == 1 { -expected } else { expected };
            assert!(half == expected || half.is_nan() && expected.is_nan(), "{bits:x}");
            let brain = number(DType::BF16, bits as u64);
            let expected = f32::from_bits((bits as u32) << 16) as f64;
            assert!(brain == expected || brain.is_nan() && expected.is_nan(), "{bits:x}");
        }
        for bits in [0u32, 1, 0x7f_ffff, 0x80_0000, 0x3f80_0001, 0xff7f_ffff, 0x8000_0003] {
            assert_eq!(number(DType::F32, bits as u64), f32::from_bits(bits) as f64);
        }
    }
}

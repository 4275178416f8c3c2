//! The values stage: compares two pieces of an array.
//!
//! A block of both is first asked a cheap question, many values at a time: is everything surely
//! within the bound? Only where the answer is no, values are judged one by one, exactly.

use super::judge::{Judge, Value, beyond, times_bound};
use crate::array::DType;
use crate::merkle::bounded::{Bound, widen_f16};
use serde::Serialize;
use std::sync::LazyLock;

/// Number of bytes that are tested at a time.
const BLOCK: usize = 4096;
/// Number of bytes that are tested again, where the first test failed.
const LINE: usize = 128;
/// Number of classes by size in which differences are counted.
pub const CLASSES: usize = 48;

/// Differences that were found in one part of a variable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Number of values that differ beyond the bound.
    pub differences: u64,
    /// Number of differences with a NaN on one side, or, if so wished, on both.
    pub nan_differences: u64,
    /// The largest difference among these; NaN does not count.
    pub largest: f64,
    /// The largest difference in units of the bound; NaN does not count.
    pub times_bound: f64,
    /// Number of finite differences.
    pub finite: u64,
    /// The sum of the squares of the finite ones.
    pub squares: f64,
    /// The first: its index and both values.
    pub first: Option<(u64, Value, Value)>,
    /// Number of NaN on each side, as far as values were read.
    pub nans: [u64; 2],
    /// Number of differences by size, see [`class_of`].
    pub classes: Classes,
}

/// Numbers of differences by size.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Classes(pub Vec<u64>);

/// The class of a difference: half-decades from 1e-12 up; the ends hold the rest.
pub fn class_of(difference: f64) -> usize {
    /// Where the classes begin, and the class of every power of two.
    static TABLES: LazyLock<([f64; CLASSES], [u8; 2048])> = LazyLock::new(|| {
        let borders: [f64; CLASSES] =
            std::array::from_fn(|class| 10f64.powf(class as f64 / 2.0 - 12.0));
        let class = |exponent: usize| {
            let power = f64::from_bits((exponent as u64) << 52);
            borders.partition_point(|border| *border <= power).saturating_sub(1) as u8
        };
        (borders, std::array::from_fn(class))
    });
    let (borders, of_powers) = &*TABLES;
    let class = of_powers[(difference.to_bits() >> 52 & 0x7ff) as usize] as usize;
    // Two powers of two lie in the same class or in neighbouring ones.
    class + usize::from(borders.get(class + 1).is_some_and(|border| *border <= difference))
}

impl Tally {
    /// Adds what was found further on.
    pub fn append(&mut self, later: Tally) {
        self.differences += later.differences;
        self.nan_differences += later.nan_differences;
        self.largest = self.largest.max(later.largest);
        self.times_bound = self.times_bound.max(later.times_bound);
        self.finite += later.finite;
        self.squares += later.squares;
        self.first = self.first.take().or(later.first);
        self.nans = [self.nans[0] + later.nans[0], self.nans[1] + later.nans[1]];
        if self.classes.0.is_empty() {
            self.classes = later.classes;
        } else {
            self.classes.0.iter_mut().zip(&later.classes.0).for_each(|(a, b)| *a += b);
        }
    }

    /// The root of the mean of the squares of the finite differences.
    pub fn root_mean_square(&self) -> f64 {
        match self.finite {
            0 => 0.0,
            count => (self.squares / count as f64).sqrt(),
        }
    }

    #[inline]
    fn add(
        &mut self,
        index: u64,
        values: impl FnOnce() -> (Value, Value),
        (size, times): (f64, f64),
    ) {
        self.differences += 1;
        if self.first.is_none() {
            let (a, b) = values();
            self.first = Some((index, a, b));
        }
        if size.is_nan() {
            self.nan_differences += 1;
            return;
        }
        self.largest = self.largest.max(size);
        self.times_bound = self.times_bound.max(times);
        if size.is_finite() {
            self.finite += 1;
            self.squares += size * size;
        }
        if self.classes.0.is_empty() {
            self.classes.0 = vec![0; CLASSES];
        }
        self.classes.0[class_of(size)] += 1;
    }
}

/// Called for every difference with its index, both values, and its size in units of the bound.
pub type Listener<'a> = &'a mut dyn FnMut(u64, Value, Value, f64);

/// Compares pieces of arrays of one type within one bound.
pub struct Comparer {
    judge: Judge,
    quick: Quick,
    size: usize,
}

/// The bound of the values of a block, and the counters that they are added to.
struct Block<'a, 'b> {
    first: u64,
    tally: &'a mut Tally,
    listener: &'a mut Option<Listener<'b>>,
}

impl Comparer {
    /// For a judge's type and bound.
    pub fn new(judge: Judge) -> Self {
        Comparer { judge, quick: Quick::new(&judge), size: judge.dtype.size() as usize }
    }

    /// Compares two pieces of the same length, whose first element has index `first`.
    pub fn compare(
        &self,
        a: &[u8],
        b: &[u8],
        first: u64,
        tally: &mut Tally,
        mut listener: Option<Listener>,
    ) {
        for (number, (x, y)) in a.chunks(BLOCK).zip(b.chunks(BLOCK)).enumerate() {
            let mut far = self.quick.far_lines(x, y);
            let start = first + (number * BLOCK / self.size) as u64;
            while far != 0 {
                let line = far.trailing_zeros() as usize;
                far &= far - 1;
                let place = line * LINE..x.len().min((line + 1) * LINE);
                let first = start + (line * LINE / self.size) as u64;
                let block = Block { first, tally, listener: &mut listener };
                self.line(&x[place.clone()], &y[place], block);
            }
        }
    }

    fn line(&self, a: &[u8], b: &[u8], block: Block) {
        match (self.judge.bound, self.judge.dtype) {
            (Bound::Within { abs, rel }, DType::F32) => {
                let load = |raw: &[u8; 4]| f32::from_le_bytes(*raw) as f64;
                self.floats(a, b, (abs, rel), load, block);
            }
            (Bound::Within { abs, rel }, DType::F64) => {
                self.floats(a, b, (abs, rel), |raw: &[u8; 8]| f64::from_le_bytes(*raw), block);
            }
            _ => self.one_by_one(a, b, block),
        }
    }

    /// The usual case, without detours.
    #[inline(always)]
    fn floats<const SIZE: usize>(
        &self,
        a: &[u8],
        b: &[u8],
        (abs, rel): (f64, f64),
        load: impl Fn(&[u8; SIZE]) -> f64,
        block: Block,
    ) {
        let pairs = a.as_chunks::<SIZE>().0.iter().zip(b.as_chunks::<SIZE>().0);
        for (at, (x, y)) in pairs.enumerate() {
            let (x, y) = (load(x), load(y));
            if x == y {
                continue;
            }
            let differ = match (x.is_nan(), y.is_nan()) {
                (false, false) => beyond(x, y, abs, rel),
                (nan, other) => {
                    block.tally.nans[0] += u64::from(nan);
                    block.tally.nans[1] += u64::from(other);
                    !(nan && other && self.judge.nan_equal)
                }
            };
            if differ {
                let index = block.first + at as u64;
                let values = || (Value::Float(x), Value::Float(y));
                let size = (x - y).abs();
                let times = times_bound(size, abs + rel * y.abs());
                block.tally.add(index, values, (size, times));
                if let Some(listener) = block.listener {
                    listener(index, Value::Float(x), Value::Float(y), times);
                }
            }
        }
    }

    fn one_by_one(&self, a: &[u8], b: &[u8], block: Block) {
        let pairs = a.chunks_exact(self.size).zip(b.chunks_exact(self.size));
        for (at, (x, y)) in pairs.enumerate() {
            let same = x == y;
            if same && self.judge.bound == Bound::Bits {
                continue;
            }
            let (v, w) = (self.judge.read(x), self.judge.read(y));
            let nan = (v.is_nan(), w.is_nan());
            block.tally.nans[0] += u64::from(nan.0);
            block.tally.nans[1] += u64::from(nan.1);
            if same && !nan.0 {
                continue;
            }
            if self.judge.differ(x, y) {
                let index = block.first + at as u64;
                let times = self.judge.times_bound(x, y);
                let size = self.judge.difference(x, y);
                block.tally.add(index, || (v.clone(), w.clone()), (size, times));
                if let Some(listener) = block.listener {
                    listener(index, v, w, times);
                }
            }
        }
    }
}

/// The cheap question.
#[derive(Clone, Copy)]
enum Quick {
    /// Are the bytes the same?
    Bytes,
    /// Are the bits of components of this many bytes the same, and no NaN, which is above this?
    Bits {
        size: usize,
        infinity: u64,
    },
    /// Are numbers of this format less apart than this?
    F32 {
        abs: f32,
        rel: f32,
        format: Narrow,
    },
    F64 {
        abs: f64,
        rel: f64,
    },
}

/// The notation of a number that fits into an f32.
#[derive(Clone, Copy)]
enum Narrow {
    F16,
    BF16,
    F32,
}

impl Quick {
    /// A little less than the bound, so that roundings do not matter.
    fn new(judge: &Judge) -> Quick {
        let (abs, rel) = match judge.bound {
            Bound::Bits => return Quick::Bytes,
            // The upper half of an infinity may be that of a NaN. Lower halves can look like one.
            _ if judge.quads.is_some() => {
                return Quick::Bits { size: 8, infinity: (0x7fff << 48) - 1 };
            }
            Bound::Ulp(_) => return Quick::bits(judge.dtype),
            Bound::Within { abs, rel } => (abs, rel),
        };
        let complex = matches!(judge.dtype, DType::C64 | DType::C128);
        let part = if complex { 0.7 } else { 1.0 };
        let narrow = |format| {
            let part = if rel > 0.0 { part * (1.0 - 1e-5) } else { part };
            Quick::F32 { abs: down(abs * part), rel: down(rel * part), format }
        };
        match judge.dtype {
            DType::F16 => narrow(Narrow::F16),
            DType::BF16 => narrow(Narrow::BF16),
            DType::F32 | DType::C64 => narrow(Narrow::F32),
            _ => {
                let part = if rel > 0.0 { part * (1.0 - 1e-12) } else { part };
                Quick::F64 { abs: abs * part, rel: rel * part }
            }
        }
    }

    fn bits(dtype: DType) -> Quick {
        match dtype {
            DType::F16 => Quick::Bits { size: 2, infinity: 0x7c00 },
            DType::BF16 => Quick::Bits { size: 2, infinity: 0x7f80 },
            DType::F32 | DType::C64 => Quick::Bits { size: 4, infinity: 0x7f80_0000 },
            _ => Quick::Bits { size: 8, infinity: 0x7ff << 52 },
        }
    }

    /// Which lines of a block are not all surely within, a bit for each.
    fn far_lines(&self, a: &[u8], b: &[u8]) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            return unsafe { self.far_lines_avx2(a, b) };
        }
        self.far_lines_any(a, b)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn far_lines_avx2(&self, a: &[u8], b: &[u8]) -> u32 {
        self.far_lines_any(a, b)
    }

    #[inline(always)]
    fn far_lines_any(&self, a: &[u8], b: &[u8]) -> u32 {
        let lines = |within: &dyn Fn(&[u8], &[u8]) -> bool| {
            let lines = a.chunks(LINE).zip(b.chunks(LINE)).enumerate();
            lines.fold(0, |far, (line, (x, y))| far | u32::from(!within(x, y)) << line)
        };
        match *self {
            Quick::F32 { abs, rel: 0.0, format: Narrow::F32 } => far_f32(a, b, abs),
            _ if self.all_within_any(a, b) => 0,
            _ => lines(&|x, y| self.all_within_any(x, y)),
        }
    }

    #[inline(always)]
    fn all_within_any(&self, a: &[u8], b: &[u8]) -> bool {
        match *self {
            Quick::Bytes => a == b,
            Quick::Bits { size, infinity } => a == b && no_nan(a, size, infinity),
            Quick::F32 { abs, rel, format } => {
                let wide = |raw: &[u8; 2], format| match format {
                    Narrow::F16 => widen_f16(u16::from_le_bytes(*raw) as u32),
                    _ => (u16::from_le_bytes(*raw) as u32) << 16,
                };
                match (format, rel == 0.0) {
                    (Narrow::F32, true) => near_f32(a, b, u32_of, |_| abs),
                    (Narrow::F32, false) => near_f32(a, b, u32_of, |b| abs + rel * b.abs()),
                    (format, _) => near_f32(a, b, |raw| wide(raw, format), |b| abs + rel * b.abs()),
                }
            }
            Quick::F64 { abs, rel: 0.0 } => near_f64(a, b, |_| abs),
            Quick::F64 { abs, rel } => near_f64(a, b, |b| abs + rel * b.abs()),
        }
    }
}

#[inline(always)]
fn u32_of(raw: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*raw)
}

/// The greatest f32 that is not above.
fn down(x: f64) -> f32 {
    let near = x as f32;
    if near as f64 > x { near.next_down() } else { near }
}

/// Whether all are less apart than `limit` says, or equal. NaN and infinities are not.
#[inline(always)]
fn near_f32<const SIZE: usize>(
    a: &[u8],
    b: &[u8],
    bits: impl Fn(&[u8; SIZE]) -> u32,
    limit: impl Fn(f32) -> f32,
) -> bool {
    let pairs = a.as_chunks::<SIZE>().0.iter().zip(b.as_chunks::<SIZE>().0);
    let far = pairs.fold(0u32, |far, (a, b)| {
        let (a, b) = (f32::from_bits(bits(a)), f32::from_bits(bits(b)));
        let apart = (a - b).abs();
        far | u32::from(!((apart < limit(b)) | (apart == 0.0)))
    });
    far == 0
}

/// The usual case: which lines have numbers that are not less apart than `abs`, nor equal.
#[inline(always)]
fn far_f32(a: &[u8], b: &[u8], abs: f32) -> u32 {
    let lines = a.as_chunks::<LINE>().0.iter().zip(b.as_chunks::<LINE>().0).enumerate();
    let mut far = lines
        .fold(0, |far, (line, (x, y))| far | u32::from(!near_f32(x, y, u32_of, |_| abs)) << line);
    let whole = a.len() / LINE * LINE;
    if whole < a.len() && !near_f32(&a[whole..], &b[whole..], u32_of, |_| abs) {
        far |= 1 << (whole / LINE);
    }
    far
}

#[inline(always)]
fn near_f64(a: &[u8], b: &[u8], limit: impl Fn(f64) -> f64) -> bool {
    let pairs = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let far = pairs.fold(0u64, |far, (a, b)| {
        let (a, b) = (f64::from_le_bytes(*a), f64::from_le_bytes(*b));
        let apart = (a - b).abs();
        far | u64::from(!((apart < limit(b)) | (apart == 0.0)))
    });
    far == 0
}

#[inline(always)]
fn no_nan(data: &[u8], size: usize, infinity: u64) -> bool {
    let top = 8 * size - 1;
    data.chunks_exact(size).all(|raw| {
        let bits = raw.iter().rev().fold(0u64, |word, byte| word << 8 | *byte as u64);
        bits & ((1 << top) - 1) <= infinity
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_difference_is_known_in_units_of_the_bound() {
        let times = |dtype, bound, a: &[u8], b: &[u8]| {
            let mut tally = Tally::default();
            Comparer::new(Judge::new(dtype, bound, true)).compare(a, b, 0, &mut tally, None);
            (tally.differences, tally.times_bound)
        };
        let f64s = |values: [f64; 3]| values.map(f64::to_le_bytes).concat();
        let far = |bound, a, b| times(DType::F64, bound, &f64s(a), &f64s(b));
        assert_eq!(far(Bound::abs(0.5), [1.0, 2.0, 3.0], [1.0, 3.0, 3.75]), (2, 2.0));
        // 1.5 / (0.5 + 0.5); 2 is within 0.5 + 4.
        let both = Bound::Within { abs: 0.5, rel: 0.5 };
        assert_eq!(far(both, [2.5, 10.0, 0.0], [1.0, 8.0, 0.0]), (1, 1.5));
        assert_eq!(far(Bound::abs(0.5), [1.0, f64::INFINITY, 3.0], [1.0; 3]), (2, f64::INFINITY));
        assert_eq!(far(Bound::rel(0.5), [f64::INFINITY, 1.0, 1.0], [1.0; 3]), (1, f64::INFINITY));
        assert_eq!(far(Bound::abs(0.5), [f64::NAN, 2.0, 3.0], [1.0, 2.0, 3.0]), (1, 0.0));
        assert_eq!(far(Bound::EQUAL, [1.0, 2.0, 3.0], [1.0, 2.0, 4.0]), (1, f64::INFINITY));
        let five = f64::from_bits(1f64.to_bits() + 5);
        assert_eq!(far(Bound::Ulp(2), [1.0; 3], [1.0, 1.0, five]), (1, 2.5));
        let bytes = times(DType::U8, Bound::abs(9.0), &[1, 2], &[1, 3]);
        assert_eq!(bytes, (1, f64::INFINITY));
        let z = |re: f64, im: f64| [re.to_le_bytes(), im.to_le_bytes()].concat();
        let complex = times(DType::C128, Bound::abs(0.5), &z(3.0, 4.0), &z(0.0, 0.0));
        assert_eq!(complex, (1, 10.0));
    }

    #[test]
    fn classes_begin_at_half_decades() {
        let border = |class: usize| 10f64.powf(class as f64 / 2.0 - 12.0);
        for class in 1..CLASSES {
            assert_eq!(class_of(border(class)), class);
            assert_eq!(class_of(border(class).next_down()), class - 1);
        }
        for (small, class) in [(0.0, 0), (f64::MIN_POSITIVE / 8.0, 0), (1e-300, 0)] {
            assert_eq!(class_of(small), class);
        }
        assert_eq!(class_of(f64::MAX), CLASSES - 1);
        assert_eq!(class_of(f64::INFINITY), CLASSES - 1);
        for exponent in -200..200 {
            let size = 1.37f64 * 1.3f64.powi(exponent);
            let expected = (1..CLASSES).rev().find(|class| border(*class) <= size).unwrap_or(0);
            assert_eq!(class_of(size), expected, "{size}");
        }
    }
}

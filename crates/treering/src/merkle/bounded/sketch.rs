//! Conclusions from the planes of two sides about a chunk whose leaves differ.

use super::grid::Component;
use super::keys::{BLOCK, Keys, Places, RowSums};
use super::{Bound, Grid, Leaf};
use crate::array::DType;
use std::sync::Arc;

/// Verdict on a chunk without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All values are within the bound.
    Within,
    /// Components differ beyond the bound: how many, the first, and the most cells between two of
    /// them. Others may be open.
    Beyond {
        /// Number of components that surely differ.
        count: u64,
        /// The first that does.
        first: u64,
        /// Whether there are components that only their values could decide.
        open: bool,
    },
    /// Some value differs beyond the bound, but even the planes do not locate it.
    Somewhere,
    /// The planes do not close the gap: one more may.
    More,
    /// The decision needs the values.
    Open,
}

/// Judges chunks by their planes.
pub struct Sketch {
    grid: Grid,
    dtype: DType,
    bound: Bound,
    keys: Arc<Keys>,
    reach: i64,
    planes: u8,
    components: usize,
}

impl Sketch {
    /// A sketch for chunks of up to `chunk` bytes, with `planes` planes kept. `None` if sketches cannot decide.
    pub fn new(grid: Grid, dtype: DType, bound: Bound, chunk: u32, planes: u8) -> Option<Sketch> {
        let component = Component::of(dtype)?;
        let reach = grid.reach(dtype, bound)?.min(i64::MAX as u64) as i64;
        if planes < 1 || grid == Grid::Bits {
            return None;
        }
        let components = chunk as usize / component.bytes;
        let keys = Keys::of(components, component.wide);
        Some(Sketch { grid, dtype, bound, keys, reach, planes, components })
    }

    /// Number of planes that can be read.
    pub fn planes(&self) -> u8 {
        self.planes
    }

    /// Whether values without a cell may be close to each other, so that chunks with such values prove
    /// nothing when their planes do not close the gap.
    pub fn may_lack_cells(&self) -> bool {
        matches!(self.grid, Grid::Ordinal { denormals: false, .. })
    }

    /// Judges a chunk by its leaves and its lowest planes, each `stride` bytes.
    ///
    /// `a` and `b` have the same number of planes, the lowest first; all of a chunk's components that
    /// the data does not have are 0. `lacking` says whether the chunk may have denormals without cells.
    pub fn judge(&self, leaves: (Leaf, Leaf), a: &[&[u8]], b: &[&[u8]], lacking: bool) -> Verdict {
        let gap = self.keys.gap(leaves.0, leaves.1);
        if self.closing(a, b) == gap {
            return self.decide(a, b);
        }
        match a.len() < self.planes as usize {
            true => Verdict::More,
            // Cells at least half the planes' range apart, or something without a cell on one side
            // only, which is further from all cells than this.
            false
                if !lacking
                    && self.grid.is_beyond(self.dtype, self.bound, 1 << (self.planes - 1)) =>
            {
                Verdict::Somewhere
            }
            false => Verdict::Open,
        }
    }

    /// The part of a leaf that the differences of the cells add, as far as the planes tell them.
    fn closing(&self, a: &[&[u8]], b: &[&[u8]]) -> Leaf {
        let sums = match a.len() {
            1 => self.sums::<1>(a, b),
            2 => self.sums::<2>(a, b),
            3 => self.sums::<3>(a, b),
            4 => self.sums::<4>(a, b),
            5 => self.sums::<5>(a, b),
            6 => self.sums::<6>(a, b),
            7 => self.sums::<7>(a, b),
            _ => self.sums::<8>(a, b),
        };
        self.keys.leaf_of(sums)
    }

    fn sums<const P: usize>(&self, a: &[&[u8]], b: &[&[u8]]) -> [u128; 2] {
        let words = self.components.div_ceil(64);
        let sides = (in_words::<P>(a, words), in_words::<P>(b, words));
        #[cfg(target_arch = "x86_64")]
        if self.keys.vectors {
            // SAFETY: the processor has the instructions.
            return unsafe { self.sums_in_vectors(sides, words) };
        }
        self.sums_by_lists(sides, words)
    }

    /// Rows of keys times numbers.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn sums_in_vectors<const P: usize>(&self, sides: Sides<P>, words: usize) -> [u128; 2] {
        let mut sums = RowSums::default();
        for block in (0..words).step_by(BLOCK) {
            let (differences, any) = differences(sides, block..words.min(block + BLOCK));
            if any {
                self.keys.add_rows(&mut sums, block * 64, words - block, &differences);
            }
        }
        self.keys.of_rows(sums)
    }

    /// Plane by plane, the keys of the bits that are set; the highest plane counts negatively.
    fn sums_by_lists<const P: usize>(&self, sides: Sides<P>, words: usize) -> [u128; 2] {
        let mut of_planes = [[0u128; 2]; P];
        let mut list: Places = [0; 64 * BLOCK + 8];
        for block in (0..words).step_by(BLOCK) {
            let (differences, any) = differences(sides, block..words.min(block + BLOCK));
            if any {
                for (marked, sums) in differences.iter().zip(of_planes.iter_mut()) {
                    self.keys.add_marked(sums, block * 64, marked, &mut list);
                }
            }
        }
        let mut total = [0u128; 2];
        for (plane, sums) in of_planes.iter().enumerate() {
            for (total, sum) in total.iter_mut().zip(sums) {
                let weighed = sum.wrapping_mul(1 << plane);
                *total = match plane == P - 1 {
                    true => total.wrapping_sub(weighed),
                    false => total.wrapping_add(weighed),
                };
            }
        }
        total
    }

    /// The conclusion from the differences of the cells, which are known now.
    fn decide(&self, a: &[&[u8]], b: &[&[u8]]) -> Verdict {
        if 1 << (a.len() - 1) <= self.reach {
            return Verdict::Within;
        }
        let (mut count, mut first, mut open) = (0u64, None, false);
        for word in 0..self.components.div_ceil(64) {
            let mut difference = [0u64; super::MAX_PLANES as usize];
            let mut any = subtract_any(a, b, word, &mut difference[..a.len()]);
            while any != 0 {
                let bit = any.trailing_zeros();
                any &= any - 1;
                let d = centred(&difference[..a.len()], bit).unsigned_abs();
                if d <= self.reach as u64 {
                    continue;
                }
                match self.grid.is_beyond(self.dtype, self.bound, d) {
                    true => {
                        count += 1;
                        first.get_or_insert((word * 64 + bit as usize) as u64);
                    }
                    false => open = true,
                }
            }
        }
        match first {
            Some(first) => Verdict::Beyond { count, first, open },
            None if open => Verdict::Open,
            None => Verdict::Within,
        }
    }
}

/// The planes in words of eight bytes.
fn in_words<'p, const P: usize>(planes: &[&'p [u8]], words: usize) -> [&'p [[u8; 8]]; P] {
    std::array::from_fn(|plane| &planes[plane].as_chunks::<8>().0[..words])
}

/// The planes of both sides, in words.
type Sides<'p, const P: usize> = ([&'p [[u8; 8]]; P], [&'p [[u8; 8]]; P]);

/// The differences of a block of words, plane by plane, and whether there are any.
#[inline(always)]
fn differences<const P: usize>(
    (a, b): Sides<P>,
    words: std::ops::Range<usize>,
) -> ([[u64; BLOCK]; P], bool) {
    let mut all = [[0u64; BLOCK]; P];
    let mut any = 0;
    for (at, word) in words.enumerate() {
        let mut difference = [0u64; P];
        let x = std::array::from_fn(|plane| u64::from_le_bytes(a[plane][word]));
        let y = std::array::from_fn(|plane| u64::from_le_bytes(b[plane][word]));
        any |= subtract::<P>(x, y, &mut difference);
        for (all, bits) in all.iter_mut().zip(difference) {
            all[at] = bits;
        }
    }
    (all, any != 0)
}

/// Subtracts 64 numbers at a time, bit by bit: y − x. Where the result is not 0.
#[inline(always)]
fn subtract<const P: usize>(x: [u64; P], y: [u64; P], difference: &mut [u64; P]) -> u64 {
    let (mut borrow, mut any) = (0u64, 0u64);
    for plane in 0..P {
        let half = x[plane] ^ y[plane];
        difference[plane] = half ^ borrow;
        borrow = (!y[plane] & x[plane]) | (!half & borrow);
        any |= difference[plane];
    }
    any
}

/// The same for any number of planes: those above are taken for equal, so the borrow must not count.
fn subtract_any(a: &[&[u8]], b: &[&[u8]], word: usize, difference: &mut [u64]) -> u64 {
    let load = |planes: &[&[u8]], plane: usize| match planes.get(plane) {
        Some(plane) => u64::from_le_bytes(plane.as_chunks::<8>().0[word]),
        None => 0,
    };
    let mut all = [0; super::MAX_PLANES as usize];
    let x = std::array::from_fn(|plane| load(a, plane));
    let y = std::array::from_fn(|plane| load(b, plane));
    subtract(x, y, &mut all);
    difference.copy_from_slice(&all[..difference.len()]);
    difference.iter().fold(0, |any, bits| any | bits)
}

/// The number at `bit`, of which the highest plane counts negatively.
#[inline]
fn centred(planes: &[u64], bit: u32) -> i64 {
    let top = planes.len() - 1;
    let value = |plane: usize| ((planes[plane] >> bit & 1) << plane) as i64;
    (0..top).map(value).sum::<i64>() - value(top)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Planes with a share of bits that differ, from none to all.
    fn planes(count: usize, bytes: usize, seed: u64) -> Vec<Vec<u8>> {
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        let mut plane = |number: usize| match (seed as usize + number) % 4 {
            0 => vec![0xff; bytes],
            1 => vec![0; bytes],
            2 => (0..bytes).map(|_| random() & random() & random()).collect(),
            _ => (0..bytes).map(|_| random()).collect(),
        };
        (0..count).map(&mut plane).collect()
    }

    fn check<const P: usize>(dtype: DType, chunk: u32) {
        if !super::super::lanes::has_vectors() {
            return;
        }
        let bound = Bound::abs(1e-3);
        let grid = Grid::choose(dtype, bound);
        let sketch = Sketch::new(grid, dtype, bound, chunk, P as u8).unwrap();
        let words = sketch.components.div_ceil(64);
        for seed in 0..16 {
            let (a, b) = (planes(P, words * 8, seed), planes(P, words * 8, seed / 4 + 100));
            let a: Vec<&[u8]> = a.iter().map(|plane| &plane[..]).collect();
            let b: Vec<&[u8]> = b.iter().map(|plane| &plane[..]).collect();
            let sides = (in_words::<P>(&a, words), in_words::<P>(&b, words));
            // SAFETY: the processor has the instructions.
            let vectors = unsafe { sketch.sums_in_vectors(sides, words) };
            let lists = sketch.sums_by_lists(sides, words);
            let leaves = [vectors, lists].map(|sums| sketch.keys.leaf_of(sums));
            assert_eq!(leaves[0], leaves[1], "{dtype}, {chunk} B, {P} planes, seed {seed}");
        }
    }

    #[test]
    fn vectors_and_lists_add_up_to_the_same() {
        for dtype in [DType::F32, DType::F64] {
            for chunk in [512, 4096, 12 << 10, 512 << 10] {
                check::<1>(dtype, chunk);
                check::<2>(dtype, chunk);
                check::<3>(dtype, chunk);
                check::<4>(dtype, chunk);
                check::<8>(dtype, chunk);
            }
        }
    }
}

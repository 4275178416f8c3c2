//! What the planes of two sides tell about a chunk whose leaves differ.

use super::grid::Component;
use super::keys::Keys;
use super::{Bound, Grid, Leaf};
use crate::array::DType;
use std::sync::Arc;

/// What is known of a chunk without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing differs beyond the bound.
    Within,
    /// Components differ beyond the bound: how many, the first, and the most cells between two of
    /// them. Others may be open.
    Beyond {
        /// How many surely differ.
        count: u64,
        /// The first that does.
        first: u64,
        /// Whether there are components that only their values could decide.
        open: bool,
    },
    /// Something differs beyond the bound, but not even the planes tell where.
    Somewhere,
    /// The planes do not close the gap: one more may.
    More,
    /// Only the values can tell.
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
    /// For chunks of up to `chunk` bytes, with `planes` planes kept. Nothing if sketches cannot tell.
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

    /// Whether only what is beyond every bound of the planes' reach has no cell.
    fn everything_has_its_cell(&self) -> bool {
        !matches!(self.grid, Grid::Ordinal { denormals: false, .. })
    }

    /// Judges a chunk by its leaves and its lowest planes, each `stride` bytes.
    ///
    /// `a` and `b` have the same number of planes, the lowest first; all of a chunk's components that
    /// the data does not have are 0.
    pub fn judge(&self, leaves: (Leaf, Leaf), a: &[&[u8]], b: &[&[u8]]) -> Verdict {
        let gap = self.keys.gap(leaves.0, leaves.1);
        let mut closed: Leaf = [0; 2];
        let (mut count, mut first, mut open) = (0u64, None, false);
        let words = self.components.div_ceil(64);
        for word in 0..words {
            let mut difference = [0u64; super::MAX_PLANES as usize];
            let mut any = subtract(a, b, word, &mut difference[..a.len()]);
            while any != 0 {
                let bit = any.trailing_zeros();
                any &= any - 1;
                let at = word * 64 + bit as usize;
                let d = centred(&difference[..a.len()], bit);
                self.keys.add(&mut closed, at, d);
                if d.unsigned_abs() > self.reach as u64 {
                    match self.grid.is_beyond(self.dtype, self.bound, d.unsigned_abs()) {
                        true => {
                            count += 1;
                            first.get_or_insert(at as u64);
                        }
                        false => open = true,
                    }
                }
            }
        }
        if closed == gap {
            return match first {
                Some(first) => Verdict::Beyond { count, first, open },
                None if open => Verdict::Open,
                None => Verdict::Within,
            };
        }
        match a.len() < self.planes as usize {
            true => Verdict::More,
            // Cells at least half the planes' range apart, or something without a cell on one side
            // only, which is further from all cells than this.
            false if self.everything_has_its_cell()
                && self.grid.is_beyond(self.dtype, self.bound, 1 << (self.planes - 1)) =>
            {
                Verdict::Somewhere
            }
            false => Verdict::Open,
        }
    }
}

/// Subtracts 64 numbers at a time, bit by bit: b − a. Where the result is not 0.
#[inline]
fn subtract(a: &[&[u8]], b: &[&[u8]], word: usize, difference: &mut [u64]) -> u64 {
    let (mut borrow, mut any) = (0u64, 0u64);
    for (plane, out) in difference.iter_mut().enumerate() {
        let (x, y) = (load(a[plane], word), load(b[plane], word));
        let half = x ^ y;
        *out = half ^ borrow;
        borrow = (!y & x) | (!half & borrow);
        any |= *out;
    }
    any
}

#[inline]
fn load(plane: &[u8], word: usize) -> u64 {
    let from = word * 8;
    match plane.get(from..from + 8).and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => u64::from_le_bytes(bytes),
        None => {
            let rest = plane.get(from..).unwrap_or_default();
            rest.iter().rev().fold(0, |word, byte| word << 8 | *byte as u64)
        }
    }
}

/// The number at `bit`, of which the highest plane counts negatively.
#[inline]
fn centred(planes: &[u64], bit: u32) -> i64 {
    let top = planes.len() - 1;
    let value = |plane: usize| ((planes[plane] >> bit & 1) << plane) as i64;
    (0..top).map(value).sum::<i64>() - value(top)
}

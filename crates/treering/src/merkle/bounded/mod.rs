//! Bounded hashing: trees by which two arrays are compared within a bound.
//!
//! **Cells.** Each value gets a whole number, its *cell*, by a monotone map ([`Grid`]), so that values
//! of one cell lie close together. All of it is integer arithmetic or multiplication by a power of
//! two, which is exact: no rounding mode, no flushing of denormals and no device changes a bit. Two
//! maps are enough. The *uniform* one has cells 2^e wide up to 2^(e+m), and cells 2^-m of their octave
//! wide above: an absolute bound has e alone, absolute + relative both. The *ordinal* one takes the
//! bit pattern, which counts the representable values, and drops its s lowest bits: ULP and relative
//! bounds. Negative values take `!t`; −0 is 0. NaN, infinities, values out of range, and denormals
//! under a relative bound, have no cell.
//!
//! **The law of the cells.** Let d be the difference of the cells of a and b, and k = |d| + 1.
//! 1. Uniform, no octaves: cells are half-open intervals of width 2^e, mirrored at 0, so
//!    |a−b| < k·2^e. (With different signs, |a| < (t+1)·2^e and |b| < (t'+1)·2^e, and t, `!t'` differ
//!    by t+t'+1 = |d|.)
//! 2. With octaves let w = 2^-m; a cell whose lower border is L ≥ 0 is at most max(2^e, w·L) wide.
//!    Let a and b have the same sign. If |a| ≤ |b|, all k cells between begin at |b| or below:
//!    ||b|−|a|| < k·max(2^e, w|b|). If |a| > |b|, the borders grow by at most 2^e or by a factor 1+w
//!    from cell to cell, so they all begin below (|b| + k·2^e)(1+w)^k. As (1+w)^k ≤ 1+2kw for kw ≤ 1,
//!    with η = kw(1+2kw) in both cases |a−b| < k·2^e·(1+η) + η|b|. With different signs both are in
//!    the uniform part if k ≤ 2^m, and 1. holds.
//! 3. Ordinal: a cell holds at most 2^s representable values, so a and b are at most k·2^s − 1 of
//!    them apart. Normal numbers of the same sign have cells at most w = 2^-m of their octave wide,
//!    and 2. holds without the 2^e.
//!
//! **The law of distance.** Let D = |d| − 1 ≥ 0 be the number of whole cells between a and b.
//! 4. Uniform, no octaves: |a−b| > D·2^e, which proves a difference under an absolute bound. A component of
//!    a complex number is no further from its partner than the number is.
//! 5. Ordinal: a and b are more than D·2^s representable values apart. If they have the same sign and
//!    D ≤ 2^m, then |a−b| > D·w|b|/2. For |a| < |b|, let the D cells lie between the borders X < Y ≤ |b|.
//!    As 1 − X/|b| ≥ 1 − X/Y, take |b| = Y. If t of the cells are in Y's octave, which begins at L, then
//!    Y = L(1+tw), Y−X ≥ wL(D+t)/2 for t ≤ D, and (D+t)/(1+tw) does not decrease in t because Dw ≤ 1: the
//!    quotient is at least Dw/2. For more cells below Y in its octave, Y−X = DwL and Y ≤ 2L. For |a| > |b|
//!    the cells begin at Y > |b| and are at least as wide as those of Y's octave: the same. Denormals are
//!    further apart, relative to their size, than normal numbers. With different signs, or b = 0, |a−b| ≥ |b|,
//!    which is more than Dw|b|/2. So D > 2·rel/w proves a difference under a relative bound.
//! 6. Octaves: cells are at least 2^e wide, too, and nowhere narrower than the ordinal ones of w, so
//!    |a−b| > D·max(2^e, w|b|/2). The quotient (abs + rel|b|) / max(2^e, w|b|/2) is greatest at
//!    |b| = 2^(e+1)/w, so D > abs/2^e + 2·rel/w proves a difference. (With different signs and
//!    |b| ≥ 2^(e+m), |a−b| ≥ |b|, and D ≤ 2^m gives 2^(e+m)·(1−2·rel) > abs.)
//!
//! So two arrays with the same cells everywhere are within every bound that [`Grid::reach`] grants,
//! and differences beyond the bound always show as different cells, or as something without a cell.
//!
//! **Sums.** The *leaf* of a chunk is linear in the cells: two sums Σ tᵢ·Kᵢ mod 2^64 with 32-bit cells
//! and independent 32-bit keys, or one sum mod 2^128 with 64-bit cells and keys. If cell i differs, by
//! Δ with 0 < |Δ| < 2^32, and everything else is given, the sums agree only for those Kᵢ that make
//! Δ·Kᵢ one number mod 2^64; as the products of Δ with different keys are less than 2^64 apart, that
//! is at most one key in 2^32 for each of two sums: odds of 2^-64 (64-bit cells: one key in 2^64 of
//! one sum). A value without a cell counts as 0 and adds xxh3-128 of its position and bits (NaN: of one
//! pattern for all) to the sums; its raw bits never pass through the keys, where two sign flips would
//! cancel. The keys are public: the odds are for data that was not made to defeat them.
//!
//! **Sketches.** Values that jitter cross borders, whatever the grid: a hash alone would flag all
//! chunks. So the lowest bits of the cells are kept, as *planes*. From p planes of both sides follows
//! d mod 2^p, centred; if Σ dᵢ·Kᵢ closes the gap between the leaves, then d is the difference of the
//! cells everywhere (with the odds above), and the law says which values are within the bound, which
//! are beyond it, and which are open. If no p planes close the gap, some cells are at least 2^(p−1) apart,
//! or a value has no cell on one side only, and the law of distance may prove a difference without telling
//! where. Denormals under a relative bound have no cell although they may be close: a chunk with some is
//! marked beside its number of NaN, and proves nothing this way. A leaf that is a digest of bytes proves a
//! difference wherever bits are compared: of integers, booleans, bytes, and under `bits`. A damaged or cut plane does not close the gap: planes need no
//! checksum of their own.
//!
//! Cells and keys after the paper's grid hash (Tan et al., Middleware 2024), which hashes the cells
//! and knows neither sums nor planes.

mod build;
mod cells;
mod grid;
mod image;
mod keys;
mod lanes;
mod sketch;
mod wide;

pub use crate::array::Bound;
pub(crate) use build::root as tree_root;
pub use build::{Builder, NODE};
pub(crate) use cells::widen_f16;
pub use grid::Grid;
pub(crate) use image::leaf_at;
pub use image::{Image, Layout, Recipe};
pub use sketch::{Sketch, Verdict};

/// The leaf of a chunk: two sums of 64 bits, one of 128, or a digest.
pub type Leaf = [u64; 2];
/// The mark, beside the number of NaN of a chunk, that it has finite values without a cell.
pub(crate) const LACKING: u32 = 1 << 31;
/// The most planes a sketch can have.
pub const MAX_PLANES: u8 = 8;

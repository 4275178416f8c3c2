//! Cells, sums and planes of f64 values, 32 values at a time, with 32-byte vectors.
//!
//! Vectors have no product of 64-bit numbers, so cells are found in vectors and multiplied one by one. Both are in
//! one loop over small blocks: a processor that executes out of order then works on the vectors of one block and on
//! the products of the block before at the same time. Vectors have no conversion to 64-bit integers either: a whole
//! number below 2^52 is the fraction of its sum with 2^52. Segments with larger numbers, or with values that have no
//! cell, are left to the plain loops of `cells`, which compute the same bits.

use super::lanes::ChunkPlanes;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Method by which a cell is found in a vector of f64 bits; see `cells`.
#[derive(Clone, Copy)]
pub(super) enum WideCell {
    /// Cells of one width: multiply by this.
    Uniform(f64),
    /// Cells of one width up to a border, and parts of octaves above.
    Octaves {
        scale: f64,
        /// The bit pattern from which on octaves count.
        border: u64,
        shift: u32,
        /// Makes the octaves continue the cells of one width.
        base: u64,
    },
    /// Bits dropped, and whether denormals count.
    Ordinal(u8, bool),
}

impl WideCell {
    /// Cells of a uniform grid; `m` is 63 if it has no octaves.
    pub(super) fn uniform(e: i16, m: u8) -> Self {
        let scale = 2f64.powi(-(e as i32));
        if m == 63 {
            return WideCell::Uniform(scale);
        }
        let exponent = (e as i32 + m as i32 + 1023) as u64;
        let (border, shift) = (exponent.min(2047) << 52, 52 - m as u32);
        WideCell::Octaves { scale, border, shift, base: (border >> shift).wrapping_sub(1 << m) }
    }
}

/// Results of a segment of values.
pub(super) struct WideFused {
    /// Number of values that were processed; the rest is less than a block.
    pub(super) done: usize,
    pub(super) sum: u128,
    /// Whether something has no cell, or one that these loops do not find: then nothing of this counts.
    pub(super) none: bool,
}

/// The values of a block.
const BLOCK: usize = 32;

/// Works off a segment of f64 values, from component `first` of a chunk on.
#[inline(always)]
pub(super) fn fused(
    values: &[[u8; 8]],
    keys: &[u64],
    cell: WideCell,
    first: usize,
    planes: &mut ChunkPlanes,
    vectors: bool,
) -> WideFused {
    planes.check_room(first, values.len());
    #[cfg(target_arch = "x86_64")]
    if vectors {
        // SAFETY: the caller has looked for AVX2 and BMI2, and there is room for the planes.
        return unsafe {
            match cell {
                WideCell::Uniform(scale) => {
                    fused_avx2(values, keys, first, planes, |bits| uniform_avx2(bits, scale))
                }
                WideCell::Octaves { scale, border, shift, base } => {
                    let octave = |bits| octaves_avx2(bits, scale, border, shift, base);
                    fused_avx2(values, keys, first, planes, octave)
                }
                WideCell::Ordinal(s, denormals) => {
                    fused_avx2(values, keys, first, planes, |b| ordinal_avx2(b, s, denormals))
                }
            }
        };
    }
    let _ = (keys, cell, vectors);
    WideFused { done: 0, sum: 0, none: false }
}

/// # Safety
/// The processor has AVX2 and BMI2, and the planes have room for all values from `first` on.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
#[inline]
unsafe fn fused_avx2(
    values: &[[u8; 8]],
    keys: &[u64],
    first: usize,
    planes: &mut ChunkPlanes,
    cell: impl Fn(__m256i) -> (__m256i, __m256i),
) -> WideFused {
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    let mut none = _mm256_setzero_si256();
    let mut sums = [0u128; 4];
    for (number, (block, keys)) in blocks.iter().zip(keys.as_chunks::<BLOCK>().0).enumerate() {
        let from = block.as_ptr().cast::<__m256i>();
        let mut cells = [_mm256_setzero_si256(); BLOCK / 4];
        for (at, out) in cells.iter_mut().enumerate() {
            // SAFETY: a block has eight vectors of values; the prefetch reads nothing.
            let bits = unsafe {
                if at % 2 == 0 {
                    _mm_prefetch::<_MM_HINT_T0>(
                        from.wrapping_add(at).cast::<i8>().wrapping_add(FAR),
                    );
                }
                _mm256_loadu_si256(from.add(at))
            };
            let without;
            (*out, without) = cell(bits);
            none = _mm256_or_si256(none, without);
        }
        if planes.count > 0 {
            // SAFETY: there is room for the planes of all values.
            unsafe { planes.put_bytes_avx2(first + number * BLOCK, lowest_bytes(&cells)) };
        }
        // SAFETY: both are 32 numbers of 64 bits, and every pattern is one.
        let cells: [u64; BLOCK] = unsafe { std::mem::transmute(cells) };
        for (fours, keys) in cells.as_chunks::<4>().0.iter().zip(keys.as_chunks::<4>().0) {
            for lane in 0..4 {
                let product = fours[lane] as u128 * keys[lane] as u128;
                sums[lane] = sums[lane].wrapping_add(product);
            }
        }
    }
    WideFused {
        done: values.len() - rest.len(),
        sum: sums.into_iter().fold(0, u128::wrapping_add),
        none: _mm256_testz_si256(none, none) == 0,
    }
}

/// Prefetch distance in bytes.
#[cfg(target_arch = "x86_64")]
const FAR: usize = 4096;

/// The lowest bytes of 32 cells, in their order.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn lowest_bytes(cells: &[__m256i; BLOCK / 4]) -> __m256i {
    let byte = _mm256_set1_epi32(0xff);
    let mut pairs = [_mm256_setzero_si256(); 4];
    for (at, pair) in pairs.iter_mut().enumerate() {
        let [a, b] = [cells[2 * at], cells[2 * at + 1]].map(|cells| _mm256_castsi256_ps(cells));
        let low = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
        *pair = _mm256_and_si256(low, byte);
    }
    let bytes = _mm256_packus_epi16(
        _mm256_packs_epi32(pairs[0], pairs[1]),
        _mm256_packs_epi32(pairs[2], pairs[3]),
    );
    // The lower half has the first two cells of every four, the upper half the last two.
    let (low, high) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
    _mm256_set_m128i(_mm_unpackhi_epi16(low, high), _mm_unpacklo_epi16(low, high))
}

/// All bits of what is below zero, and not of −0. By integers: the program may have told the processor to take
/// denormals for zero.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn below_zero(bits: __m256i) -> __m256i {
    let middle = _mm256_set1_epi64x(i64::MIN);
    _mm256_cmpgt_epi64(_mm256_xor_si256(bits, middle), _mm256_setzero_si256())
}

/// The whole part of values' magnitudes in cells of one width, and whether it is below 2^52.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn whole_avx2(rest: __m256i, scale: f64) -> (__m256i, __m256i) {
    let shift = _mm256_set1_pd(TWO_52);
    let scaled = _mm256_mul_pd(_mm256_castsi256_pd(rest), _mm256_set1_pd(scale));
    let inside = _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_LT_OQ>(scaled, shift));
    let whole = _mm256_round_pd::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(scaled);
    let shifted = _mm256_castpd_si256(_mm256_add_pd(whole, shift));
    (_mm256_xor_si256(shifted, _mm256_castpd_si256(shift)), inside)
}

#[cfg(target_arch = "x86_64")]
const TWO_52: f64 = (1u64 << 52) as f64;

/// Cells, and all bits where there is none, or one that is too large for these loops; what the cell is there does not
/// matter.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn uniform_avx2(bits: __m256i, scale: f64) -> (__m256i, __m256i) {
    let middle = _mm256_set1_epi64x(i64::MIN);
    let (t, inside) = whole_avx2(_mm256_andnot_si256(middle, bits), scale);
    let t = _mm256_xor_si256(t, _mm256_xor_si256(below_zero(bits), middle));
    (t, _mm256_xor_si256(inside, _mm256_set1_epi64x(-1)))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn octaves_avx2(
    bits: __m256i,
    scale: f64,
    border: u64,
    shift: u32,
    base: u64,
) -> (__m256i, __m256i) {
    let middle = _mm256_set1_epi64x(i64::MIN);
    let rest = _mm256_andnot_si256(middle, bits);
    let (small, _) = whole_avx2(rest, scale);
    let large = _mm256_srl_epi64(rest, _mm_cvtsi32_si128(shift as i32));
    let large = _mm256_sub_epi64(large, _mm256_set1_epi64x(base as i64));
    let is_small = _mm256_cmpgt_epi64(_mm256_set1_epi64x(border as i64), rest);
    let t = _mm256_blendv_epi8(large, small, is_small);
    let none = _mm256_cmpgt_epi64(rest, _mm256_set1_epi64x(GREATEST));
    (_mm256_xor_si256(t, _mm256_xor_si256(below_zero(bits), middle)), none)
}

/// The bits of the greatest finite number.
#[cfg(target_arch = "x86_64")]
const GREATEST: i64 = (0x7ff << 52) - 1;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn ordinal_avx2(bits: __m256i, s: u8, denormals: bool) -> (__m256i, __m256i) {
    let middle = _mm256_set1_epi64x(i64::MIN);
    let rest = _mm256_andnot_si256(middle, bits);
    let t = _mm256_srl_epi64(rest, _mm_cvtsi32_si128(s as i32));
    let mut none = _mm256_cmpgt_epi64(rest, _mm256_set1_epi64x(GREATEST));
    if !denormals {
        let small = _mm256_cmpgt_epi64(_mm256_set1_epi64x(1 << 52), rest);
        let zero = _mm256_cmpeq_epi64(rest, _mm256_setzero_si256());
        none = _mm256_or_si256(none, _mm256_andnot_si256(zero, small));
    }
    (_mm256_xor_si256(t, _mm256_xor_si256(below_zero(bits), middle)), none)
}

//! Sums and planes of a segment of cells, several at a time: with 32-byte vectors, with the 16-byte
//! ones of every x86-64 processor, or in plain steps on any other. All give the same bits.

use super::cells::SEGMENT;
#[cfg(target_arch = "x86_64")]
use super::keys::BLOCK;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
#[cfg(target_arch = "x86_64")]
use std::mem::MaybeUninit;

/// Destination of the planes of a chunk: plane p begins `pitch` bytes after plane p − 1.
pub(super) struct ChunkPlanes<'a> {
    pub(super) out: &'a mut [u8],
    pub(super) pitch: usize,
    pub(super) count: u8,
}

/// The sums of products of cells with two rows of keys. Two cells are taken as one word: processors
/// multiply the halves of such words.
#[inline(always)]
pub(super) fn sums(cells: &[u32], first: &[u32], second: &[u32]) -> (u64, u64) {
    let products = |keys: &[u32]| {
        cells.iter().zip(keys).fold(0u64, |sum, (t, k)| sum.wrapping_add(*t as u64 * *k as u64))
    };
    (products(first), products(second))
}

/// The sum of products of cells with 64-bit keys, in sums that do not wait for each other.
#[inline(always)]
pub(super) fn sum_wide(cells: &[u64], keys: &[u64]) -> u128 {
    let (fours, rest) = cells.as_chunks::<4>();
    let (key_fours, key_rest) = keys.as_chunks::<4>();
    let mut sums = [0u128; 4];
    for (t, k) in fours.iter().zip(key_fours) {
        for lane in 0..4 {
            sums[lane] = sums[lane].wrapping_add(t[lane] as u128 * k[lane] as u128);
        }
    }
    let products = rest.iter().zip(key_rest).map(|(t, k)| *t as u128 * *k as u128);
    sums.into_iter().chain(products).fold(0, u128::wrapping_add)
}

/// Method by which a cell is found in a vector of f32 bits; see `cells`.
#[derive(Clone, Copy)]
pub(super) enum Cell {
    /// Cells of one width: multiply by this.
    Uniform(f32),
    /// Bits dropped, and whether denormals count.
    Ordinal(u8, bool),
}

/// Results of a piece of values, all three loops in one, as long as every value has a cell.
pub(super) struct Fused {
    /// Number of values that were processed; the rest is less than a vector.
    pub(super) done: usize,
    pub(super) sums: (u64, u64),
    /// Whether something has no cell: then nothing of this counts.
    pub(super) none: bool,
}

/// Works off a segment of f32 values, from component `first` of a chunk on. Cells are put aside for
/// their planes: cut in the same loop, these would crowd the sums out of the registers.
#[inline(always)]
pub(super) fn fused(
    values: &[[u8; 4]],
    keys: (&[u32], &[u32]),
    cell: Cell,
    first: usize,
    planes: &mut ChunkPlanes,
    vectors: bool,
) -> Fused {
    assert!(keys.0.len() > values.len() && keys.1.len() > values.len());
    assert!(values.len() <= SEGMENT);
    planes.check_room(first, values.len());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller has looked for AVX2; the assertions make room for keys and planes.
    unsafe {
        match (vectors, cell) {
            (true, Cell::Uniform(scale)) => {
                fused_avx2(values, keys, first, planes, |bits| uniform_avx2(bits, scale))
            }
            (true, Cell::Ordinal(s, denormals)) => {
                fused_avx2(values, keys, first, planes, |bits| ordinal_avx2(bits, s, denormals))
            }
            (false, Cell::Uniform(scale)) => {
                fused_sse2(values, keys, first, planes, |bits| uniform_sse2(bits, scale))
            }
            (false, Cell::Ordinal(s, denormals)) => {
                fused_sse2(values, keys, first, planes, |bits| ordinal_sse2(bits, s, denormals))
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (cell, vectors);
        Fused { done: 0, sums: (0, 0), none: false }
    }
}

/// Cells, and all bits where there is none; what the cell is there does not matter.
///
/// The product is rounded towards zero with its sign; one less below zero, and not for −0, makes −t−1
/// of −t. Values that are too large, or NaN, become the one number that is no cell. The sign is read from the bits:
/// the program may have told the processor to take denormals for zero.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn uniform_avx2(bits: __m256i, scale: f32) -> (__m256i, __m256i) {
    let middle = _mm256_set1_epi32(i32::MIN);
    let values = _mm256_castsi256_ps(bits);
    let t = _mm256_cvttps_epi32(_mm256_mul_ps(values, _mm256_set1_ps(scale)));
    let none = _mm256_cmpeq_epi32(t, middle);
    let below = _mm256_cmpgt_epi32(_mm256_xor_si256(bits, middle), _mm256_setzero_si256());
    (_mm256_xor_si256(_mm256_add_epi32(t, below), middle), none)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn ordinal_avx2(bits: __m256i, s: u8, denormals: bool) -> (__m256i, __m256i) {
    let middle = _mm256_set1_epi32(i32::MIN);
    let rest = _mm256_andnot_si256(middle, bits);
    let t = _mm256_srl_epi32(rest, _mm_cvtsi32_si128(s as i32));
    let mut none = _mm256_cmpgt_epi32(rest, _mm256_set1_epi32(0x7f7f_ffff));
    if !denormals {
        let small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x80_0000), rest);
        let zero = _mm256_cmpeq_epi32(rest, _mm256_setzero_si256());
        none = _mm256_or_si256(none, _mm256_andnot_si256(zero, small));
    }
    let below = _mm256_cmpgt_epi32(_mm256_xor_si256(bits, middle), _mm256_setzero_si256());
    (_mm256_xor_si256(_mm256_xor_si256(t, below), middle), none)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn fused_avx2(
    values: &[[u8; 4]],
    keys: (&[u32], &[u32]),
    first: usize,
    planes: &mut ChunkPlanes,
    cell: impl Fn(__m256i) -> (__m256i, __m256i),
) -> Fused {
    let whole = values.len() / 32 * 32;
    let zero = _mm256_setzero_si256();
    let (mut a, mut b) = ([zero; 2], [zero; 2]);
    let mut none = zero;
    let mut cells = MaybeUninit::<[__m256i; SEGMENT / 8]>::uninit();
    let cells = cells.as_mut_ptr().cast::<__m256i>();
    for at in (0..whole).step_by(8) {
        // SAFETY: eight values and keys follow; the prefetch reads nothing.
        unsafe {
            if at % 16 == 0 {
                let ahead = values.as_ptr().wrapping_add(at).cast::<i8>().wrapping_add(FAR);
                _mm_prefetch::<_MM_HINT_T0>(ahead);
            }
            let (t, without) = cell(_mm256_loadu_si256(values.as_ptr().add(at).cast()));
            none = _mm256_or_si256(none, without);
            // Only the even lanes are multiplied: the odd keys are read one place further.
            let k = |odd: usize| _mm256_loadu_si256(keys.0.as_ptr().add(at + odd).cast());
            let l = |odd: usize| _mm256_loadu_si256(keys.1.as_ptr().add(at + odd).cast());
            let odd = _mm256_srli_epi64::<32>(t);
            a[0] = _mm256_add_epi64(a[0], _mm256_mul_epu32(t, k(0)));
            a[1] = _mm256_add_epi64(a[1], _mm256_mul_epu32(odd, k(1)));
            b[0] = _mm256_add_epi64(b[0], _mm256_mul_epu32(t, l(0)));
            b[1] = _mm256_add_epi64(b[1], _mm256_mul_epu32(odd, l(1)));
            cells.add(at / 8).write(t);
        }
    }
    // SAFETY: the cells were written, and there is room for their planes.
    unsafe { planes.cut_avx2(first, cells, whole) };
    let (a, b) = (_mm256_add_epi64(a[0], a[1]), _mm256_add_epi64(b[0], b[1]));
    let none = _mm256_movemask_epi8(none) != 0;
    Fused { done: whole, sums: (total_avx2(a), total_avx2(b)), none }
}

/// Prefetch distance in bytes.
#[cfg(target_arch = "x86_64")]
const FAR: usize = 4096;

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn uniform_sse2(bits: __m128i, scale: f32) -> (__m128i, __m128i) {
    // SAFETY: the instructions are part of the architecture.
    unsafe {
        let middle = _mm_set1_epi32(i32::MIN);
        let values = _mm_castsi128_ps(bits);
        let t = _mm_cvttps_epi32(_mm_mul_ps(values, _mm_set1_ps(scale)));
        let none = _mm_cmpeq_epi32(t, middle);
        let below = _mm_cmpgt_epi32(_mm_xor_si128(bits, middle), _mm_setzero_si128());
        (_mm_xor_si128(_mm_add_epi32(t, below), middle), none)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn ordinal_sse2(bits: __m128i, s: u8, denormals: bool) -> (__m128i, __m128i) {
    // SAFETY: the instructions are part of the architecture.
    unsafe {
        let middle = _mm_set1_epi32(i32::MIN);
        let rest = _mm_andnot_si128(middle, bits);
        let t = _mm_srl_epi32(rest, _mm_cvtsi32_si128(s as i32));
        let mut none = _mm_cmpgt_epi32(rest, _mm_set1_epi32(0x7f7f_ffff));
        if !denormals {
            let small = _mm_cmpgt_epi32(_mm_set1_epi32(0x80_0000), rest);
            let zero = _mm_cmpeq_epi32(rest, _mm_setzero_si128());
            none = _mm_or_si128(none, _mm_andnot_si128(zero, small));
        }
        let below = _mm_cmpgt_epi32(_mm_xor_si128(bits, middle), _mm_setzero_si128());
        (_mm_xor_si128(_mm_xor_si128(t, below), middle), none)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn fused_sse2(
    values: &[[u8; 4]],
    keys: (&[u32], &[u32]),
    first: usize,
    planes: &mut ChunkPlanes,
    cell: impl Fn(__m128i) -> (__m128i, __m128i),
) -> Fused {
    let whole = values.len() / 16 * 16;
    let mut cells = MaybeUninit::<[__m128i; SEGMENT / 4]>::uninit();
    let cells = cells.as_mut_ptr().cast::<__m128i>();
    // SAFETY: the instructions are part of the architecture; values and keys follow, and there is
    // room for cells and planes; the prefetch reads nothing.
    unsafe {
        let zero = _mm_setzero_si128();
        let (mut a, mut b, mut none) = ([zero; 2], [zero; 2], zero);
        for at in (0..whole).step_by(4) {
            if at % 16 == 0 {
                let ahead = values.as_ptr().wrapping_add(at).cast::<i8>().wrapping_add(FAR);
                _mm_prefetch::<_MM_HINT_T0>(ahead);
            }
            let (t, without) = cell(_mm_loadu_si128(values.as_ptr().add(at).cast()));
            none = _mm_or_si128(none, without);
            let k = |odd: usize| _mm_loadu_si128(keys.0.as_ptr().add(at + odd).cast());
            let l = |odd: usize| _mm_loadu_si128(keys.1.as_ptr().add(at + odd).cast());
            let odd = _mm_srli_epi64::<32>(t);
            a[0] = _mm_add_epi64(a[0], _mm_mul_epu32(t, k(0)));
            a[1] = _mm_add_epi64(a[1], _mm_mul_epu32(odd, k(1)));
            b[0] = _mm_add_epi64(b[0], _mm_mul_epu32(t, l(0)));
            b[1] = _mm_add_epi64(b[1], _mm_mul_epu32(odd, l(1)));
            cells.add(at / 4).write(t);
        }
        planes.cut_sse2(first, cells, whole);
        let (a, b) = (_mm_add_epi64(a[0], a[1]), _mm_add_epi64(b[0], b[1]));
        let total = |pair: __m128i| {
            (_mm_cvtsi128_si64(pair) as u64)
                .wrapping_add(_mm_cvtsi128_si64(_mm_unpackhi_epi64(pair, pair)) as u64)
        };
        Fused { done: whole, sums: (total(a), total(b)), none: _mm_movemask_epi8(none) != 0 }
    }
}

/// Four rows of keys times the numbers whose bits the planes hold; the highest plane counts
/// negatively. At most a block of words, so that 32 bits hold every sum.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn products_avx2<const P: usize>(
    rows: [&[[i16; 16]]; 4],
    planes: &[[u64; BLOCK]; P],
) -> [i64; 4] {
    let count = rows[0].len().min(4 * BLOCK);
    // Loops over arrays instead of closures: what they call must know of the instructions.
    let rows = [&rows[0][..count], &rows[1][..count], &rows[2][..count], &rows[3][..count]];
    let select = _mm256_setr_epi16(
        1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768,
    );
    let mut sums = [_mm256_setzero_si256(); 4];
    for at in 0..count {
        let mut numbers = _mm256_setzero_si256();
        for (plane, words) in planes.iter().enumerate() {
            let bits = _mm256_set1_epi16((words[at / 4] >> (16 * (at % 4))) as i16);
            // −1 where a bit is set, times its weight.
            let set = _mm256_cmpeq_epi16(_mm256_and_si256(bits, select), select);
            let weighed = _mm256_sll_epi16(set, _mm_cvtsi32_si128(plane as i32));
            numbers = match plane == P - 1 {
                true => _mm256_add_epi16(numbers, weighed),
                false => _mm256_sub_epi16(numbers, weighed),
            };
        }
        for row in 0..4 {
            // SAFETY: sixteen keys are there.
            let keys = unsafe { _mm256_loadu_si256(rows[row][at].as_ptr().cast()) };
            sums[row] = _mm256_add_epi32(sums[row], _mm256_madd_epi16(numbers, keys));
        }
    }
    let mut totals = [0; 4];
    for row in 0..4 {
        let low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(sums[row]));
        let high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256::<1>(sums[row]));
        totals[row] = total_avx2(_mm256_add_epi64(low, high)) as i64;
    }
    totals
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn total_avx2(lanes: __m256i) -> u64 {
    let half = _mm_add_epi64(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
    let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(half, half)) as u64;
    (_mm_cvtsi128_si64(half) as u64).wrapping_add(high)
}

/// Whether AVX2 is there, and what comes with it.
pub(super) fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("popcnt");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl ChunkPlanes<'_> {
    /// Holds that there is room for the planes of this many components from `first` on.
    #[inline(always)]
    pub(super) fn check_room(&self, first: usize, count: usize) {
        if self.count > 0 {
            let top = (self.count as usize - 1) * self.pitch + first / 8;
            assert!(top + count.div_ceil(8) <= self.out.len());
        }
    }

    /// Takes the lowest bits of the cells from component `first` on, which begins a byte.
    #[inline(always)]
    pub(super) fn put(&mut self, first: usize, cells: &[u32]) {
        if self.count == 0 {
            return;
        }
        self.check_room(first, cells.len());
        #[cfg(target_arch = "x86_64")]
        let done = cells.len() / 16 * 16;
        #[cfg(not(target_arch = "x86_64"))]
        let done = 0;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: there are that many cells, and there is room.
        unsafe {
            self.cut_sse2(first, cells.as_ptr().cast(), done);
        }
        for (at, eight) in cells[done..].chunks(8).enumerate() {
            for plane in 0..self.count as usize {
                let bit = |byte: u8, t: &u32| byte << 1 | (t >> plane & 1) as u8;
                let place = plane * self.pitch + (first + done) / 8 + at;
                self.out[place] = eight.iter().rev().fold(0, bit);
            }
        }
    }

    /// Takes the lowest bits of `len` cells, a multiple of 32.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn cut_avx2(&mut self, first: usize, cells: *const __m256i, len: usize) {
        // SAFETY: as the caller says. The loop for the default number of planes is unrolled.
        unsafe {
            match self.count {
                0 => {}
                4 => self.cut_some_avx2(first, cells, len, 4),
                count => self.cut_some_avx2(first, cells, len, count),
            }
        }
    }

    /// Brings 32 cells at a time together as bytes.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn cut_some_avx2(&mut self, first: usize, cells: *const __m256i, len: usize, count: u8) {
        let byte = _mm256_set1_epi32(0xff);
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        for at in (0..len).step_by(32) {
            // SAFETY: the caller has made sure that there are cells and room.
            unsafe {
                let low = |i: usize| _mm256_and_si256(cells.add(at / 8 + i).read(), byte);
                let bytes = _mm256_packus_epi16(
                    _mm256_packs_epi32(low(0), low(1)),
                    _mm256_packs_epi32(low(2), low(3)),
                );
                let bytes = _mm256_permutevar8x32_epi32(bytes, order);
                self.put_some_avx2(first + at, bytes, count);
            }
        }
    }

    /// Takes the lowest bits of the bytes of 32 cells from component `first` on, which begins a byte.
    ///
    /// # Safety
    /// The processor has AVX2, and there is room for the planes of these cells.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(super) unsafe fn put_bytes_avx2(&mut self, first: usize, bytes: __m256i) {
        // SAFETY: as the caller says. The loop for the default number of planes is unrolled.
        unsafe {
            match self.count {
                4 => self.put_some_avx2(first, bytes, 4),
                count => self.put_some_avx2(first, bytes, count),
            }
        }
    }

    /// The highest bit of each byte is shifted to be that of the highest plane, and adding a number to itself brings the
    /// next bit up.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn put_some_avx2(&mut self, first: usize, bytes: __m256i, count: u8) {
        let mut bytes = _mm256_sll_epi16(bytes, _mm_cvtsi32_si128(8 - count as i32));
        for plane in (0..count as usize).rev() {
            let bits = _mm256_movemask_epi8(bytes) as u32;
            // SAFETY: the caller has made sure that there is room.
            unsafe {
                let place = plane * self.pitch + first / 8;
                let to = self.out.as_mut_ptr().add(place).cast::<[u8; 4]>();
                to.write(bits.to_le_bytes());
            }
            bytes = _mm256_add_epi8(bytes, bytes);
        }
    }

    /// The same with vectors of half the length, for a multiple of 16 cells.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn cut_sse2(&mut self, first: usize, cells: *const __m128i, len: usize) {
        // SAFETY: as the caller says.
        unsafe {
            match self.count {
                0 => {}
                4 => self.cut_some_sse2(first, cells, len, 4),
                count => self.cut_some_sse2(first, cells, len, count),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn cut_some_sse2(&mut self, first: usize, cells: *const __m128i, len: usize, count: u8) {
        // SAFETY: the instructions are part of the architecture; the caller has made sure that there
        // are cells, which need not be aligned, and room.
        unsafe {
            let byte = _mm_set1_epi32(0xff);
            let up = _mm_cvtsi32_si128(8 - count as i32);
            for at in (0..len).step_by(16) {
                let low = |i: usize| _mm_and_si128(_mm_loadu_si128(cells.add(at / 4 + i)), byte);
                let bytes = _mm_packus_epi16(
                    _mm_packs_epi32(low(0), low(1)),
                    _mm_packs_epi32(low(2), low(3)),
                );
                let mut bytes = _mm_sll_epi16(bytes, up);
                for plane in (0..count as usize).rev() {
                    let bits = _mm_movemask_epi8(bytes) as u16;
                    let place = plane * self.pitch + (first + at) / 8;
                    let to = self.out.as_mut_ptr().add(place).cast::<[u8; 2]>();
                    to.write(bits.to_le_bytes());
                    bytes = _mm_add_epi8(bytes, bytes);
                }
            }
        }
    }
}

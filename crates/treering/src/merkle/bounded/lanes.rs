//! Sums and planes of a segment of cells, several at a time: with 32-byte vectors, with the 16-byte
//! ones of every x86-64 processor, or in plain steps on any other. All give the same bits.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Where the planes of a chunk go: plane p begins `pitch` bytes after plane p − 1.
pub(super) struct Planes<'a> {
    pub(super) out: &'a mut [u8],
    pub(super) pitch: usize,
    pub(super) count: u8,
}

/// The sums of products of cells with two rows of keys; `vectors` says that AVX2 is there.
#[inline(always)]
pub(super) fn sums(cells: &[u32], first: &[u32], second: &[u32], vectors: bool) -> (u64, u64) {
    let (first, second) = (&first[..cells.len()], &second[..cells.len()]);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller has looked for AVX2; all slices have the same length.
    let (done, mut a, mut b) = unsafe {
        match vectors {
            true => sums_avx2(cells, first, second),
            false => sums_sse2(cells, first, second),
        }
    };
    #[cfg(not(target_arch = "x86_64"))]
    let (done, mut a, mut b) = (0 * usize::from(vectors), 0u64, 0u64);
    for at in done..cells.len() {
        a = a.wrapping_add(cells[at] as u64 * first[at] as u64);
        b = b.wrapping_add(cells[at] as u64 * second[at] as u64);
    }
    (a, b)
}

/// Even lanes are multiplied where they are, odd ones are shifted down first.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn sums_avx2(cells: &[u32], first: &[u32], second: &[u32]) -> (usize, u64, u64) {
    let whole = cells.len() / 8 * 8;
    let (mut a, mut b) = ([_mm256_setzero_si256(); 2], [_mm256_setzero_si256(); 2]);
    for at in (0..whole).step_by(8) {
        // SAFETY: eight cells and keys follow.
        let (t, k, l) = unsafe {
            (
                _mm256_loadu_si256(cells.as_ptr().add(at).cast()),
                _mm256_loadu_si256(first.as_ptr().add(at).cast()),
                _mm256_loadu_si256(second.as_ptr().add(at).cast()),
            )
        };
        let odd = _mm256_srli_epi64::<32>(t);
        a[0] = _mm256_add_epi64(a[0], _mm256_mul_epu32(t, k));
        a[1] = _mm256_add_epi64(a[1], _mm256_mul_epu32(odd, _mm256_srli_epi64::<32>(k)));
        b[0] = _mm256_add_epi64(b[0], _mm256_mul_epu32(t, l));
        b[1] = _mm256_add_epi64(b[1], _mm256_mul_epu32(odd, _mm256_srli_epi64::<32>(l)));
    }
    let (a, b) = (_mm256_add_epi64(a[0], a[1]), _mm256_add_epi64(b[0], b[1]));
    (whole, total_avx2(a), total_avx2(b))
}

#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn sums_sse2(cells: &[u32], first: &[u32], second: &[u32]) -> (usize, u64, u64) {
    let whole = cells.len() / 4 * 4;
    // SAFETY: the instructions are part of the architecture, and four cells and keys follow.
    unsafe {
        let (mut a, mut b) = ([_mm_setzero_si128(); 2], [_mm_setzero_si128(); 2]);
        for at in (0..whole).step_by(4) {
            let t = _mm_loadu_si128(cells.as_ptr().add(at).cast());
            let k = _mm_loadu_si128(first.as_ptr().add(at).cast());
            let l = _mm_loadu_si128(second.as_ptr().add(at).cast());
            let odd = _mm_srli_epi64::<32>(t);
            a[0] = _mm_add_epi64(a[0], _mm_mul_epu32(t, k));
            a[1] = _mm_add_epi64(a[1], _mm_mul_epu32(odd, _mm_srli_epi64::<32>(k)));
            b[0] = _mm_add_epi64(b[0], _mm_mul_epu32(t, l));
            b[1] = _mm_add_epi64(b[1], _mm_mul_epu32(odd, _mm_srli_epi64::<32>(l)));
        }
        let total = |pair: [__m128i; 2]| {
            let both = _mm_add_epi64(pair[0], pair[1]);
            (_mm_cvtsi128_si64(both) as u64)
                .wrapping_add(_mm_cvtsi128_si64(_mm_unpackhi_epi64(both, both)) as u64)
        };
        (whole, total(a), total(b))
    }
}

/// The sums of those of 64 keys of two rows whose bits are set.
#[inline]
pub(super) fn marked(first: &[u32; 64], second: &[u32; 64], mut bits: u64, vectors: bool) -> (u64, u64) {
    #[cfg(target_arch = "x86_64")]
    if vectors && bits.count_ones() > FEW {
        // SAFETY: the caller has looked for AVX2.
        return unsafe { marked_avx2(first, second, bits) };
    }
    let _ = vectors;
    let (mut a, mut b) = (0u64, 0u64);
    while bits != 0 {
        let at = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        a += first[at] as u64;
        b += second[at] as u64;
    }
    (a, b)
}

/// Up to so many bits are faster one by one.
#[cfg(target_arch = "x86_64")]
const FEW: u32 = 6;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn marked_avx2(first: &[u32; 64], second: &[u32; 64], bits: u64) -> (u64, u64) {
    let select = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let low = _mm256_set1_epi64x(0xffff_ffff);
    let (mut a, mut b) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    for eight in 0..8 {
        let byte = _mm256_set1_epi32((bits >> (8 * eight)) as i32);
        let mask = _mm256_cmpeq_epi32(_mm256_and_si256(byte, select), select);
        // SAFETY: eight keys follow.
        let (k, l) = unsafe {
            (
                _mm256_loadu_si256(first.as_ptr().add(8 * eight).cast()),
                _mm256_loadu_si256(second.as_ptr().add(8 * eight).cast()),
            )
        };
        let (k, l) = (_mm256_and_si256(k, mask), _mm256_and_si256(l, mask));
        a = _mm256_add_epi64(a, _mm256_and_si256(k, low));
        a = _mm256_add_epi64(a, _mm256_srli_epi64::<32>(k));
        b = _mm256_add_epi64(b, _mm256_and_si256(l, low));
        b = _mm256_add_epi64(b, _mm256_srli_epi64::<32>(l));
    }
    (total_avx2(a), total_avx2(b))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn total_avx2(lanes: __m256i) -> u64 {
    let half = _mm_add_epi64(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
    let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(half, half)) as u64;
    (_mm_cvtsi128_si64(half) as u64).wrapping_add(high)
}

/// Whether AVX2 is there.
pub(super) fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("bmi2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl Planes<'_> {
    /// Takes the lowest bits of the cells from component `first` on, which begins a byte.
    #[inline(always)]
    pub(super) fn put(&mut self, first: usize, cells: &[u32], vectors: bool) {
        if self.count == 0 {
            return;
        }
        let top = (self.count as usize - 1) * self.pitch + first / 8;
        assert!(top + cells.len().div_ceil(8) <= self.out.len());
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller has looked for AVX2; the assertion makes room for all planes.
        let done = unsafe {
            match vectors {
                true => self.put_avx2(first, cells),
                false => self.put_sse2(first, cells),
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        let done = 0 * usize::from(vectors);
        for (at, eight) in cells[done..].chunks(8).enumerate() {
            for plane in 0..self.count as usize {
                let bit = |byte: u8, t: &u32| byte << 1 | (t >> plane & 1) as u8;
                let place = plane * self.pitch + (first + done) / 8 + at;
                self.out[place] = eight.iter().rev().fold(0, bit);
            }
        }
    }

    /// The lowest bytes of 32 cells become one vector, of which one bit of each byte is taken at a
    /// time, the highest plane first: adding a number to itself brings the next bit up.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn put_avx2(&mut self, first: usize, cells: &[u32]) -> usize {
        let whole = cells.len() / 32 * 32;
        let byte = _mm256_set1_epi32(0xff);
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let up = _mm_cvtsi32_si128(8 - self.count as i32);
        for at in (0..whole).step_by(32) {
            // SAFETY: 32 cells follow, and there is room for their planes.
            unsafe {
                let load = |i: usize| {
                    let t = _mm256_loadu_si256(cells.as_ptr().add(at + 8 * i).cast());
                    _mm256_and_si256(t, byte)
                };
                let (low, high) =
                    (_mm256_packs_epi32(load(0), load(1)), _mm256_packs_epi32(load(2), load(3)));
                let bytes = _mm256_packus_epi16(low, high);
                let bytes = _mm256_permutevar8x32_epi32(bytes, order);
                let mut bytes = _mm256_sll_epi16(bytes, up);
                for plane in (0..self.count as usize).rev() {
                    let bits = _mm256_movemask_epi8(bytes) as u32;
                    let place = plane * self.pitch + (first + at) / 8;
                    self.out.as_mut_ptr().add(place).cast::<[u8; 4]>().write(bits.to_le_bytes());
                    bytes = _mm256_add_epi8(bytes, bytes);
                }
            }
        }
        whole
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    unsafe fn put_sse2(&mut self, first: usize, cells: &[u32]) -> usize {
        let whole = cells.len() / 16 * 16;
        // SAFETY: the instructions are part of the architecture; 16 cells follow, and there is room
        // for their planes.
        unsafe {
            let byte = _mm_set1_epi32(0xff);
            let up = _mm_cvtsi32_si128(8 - self.count as i32);
            for at in (0..whole).step_by(16) {
                let load = |i: usize| {
                    _mm_and_si128(_mm_loadu_si128(cells.as_ptr().add(at + 4 * i).cast()), byte)
                };
                let (low, high) =
                    (_mm_packs_epi32(load(0), load(1)), _mm_packs_epi32(load(2), load(3)));
                let mut bytes = _mm_sll_epi16(_mm_packus_epi16(low, high), up);
                for plane in (0..self.count as usize).rev() {
                    let bits = _mm_movemask_epi8(bytes) as u16;
                    let place = plane * self.pitch + (first + at) / 8;
                    self.out.as_mut_ptr().add(place).cast::<[u8; 2]>().write(bits.to_le_bytes());
                    bytes = _mm_add_epi8(bytes, bytes);
                }
            }
        }
        whole
    }
}

//! The inner loops: values to cells, cells to sums and planes.
//!
//! A chunk is worked off in segments that stay in the first-level cache between the three loops. The
//! loops are written so that the compiler turns them into vector instructions; they are compiled
//! twice, for the processor that every machine has and for one with AVX2, and chosen at run time.

use super::grid::Component;
use super::keys::{Keys, add_wide};
use super::lanes::{self, Cell, ChunkPlanes};
use super::wide::{self, WideCell};
use super::{Grid, Leaf};
use crate::merkle::prefetch;

/// Number of components that are processed at a time.
pub(super) const SEGMENT: usize = 1024;
/// Prefetch distance in bytes.
const AHEAD: usize = 4096;

/// Results of a chunk.
#[derive(Default)]
pub(super) struct Done {
    pub(super) leaf: Leaf,
    pub(super) nans: u64,
    /// Whether there are finite values without a cell.
    pub(super) lacking: bool,
}

/// Everything that is the same for all chunks of a variable.
pub(super) struct Loops {
    component: Component,
    grid: Grid,
    keys: std::sync::Arc<Keys>,
    /// Whether AVX2 is there.
    vectors: bool,
}

impl Loops {
    pub(super) fn new(component: Component, grid: Grid, chunk: usize, vectors: bool) -> Self {
        let keys = Keys::of(chunk / component.bytes, component.wide);
        Loops { component, grid, keys, vectors: vectors && lanes::has_vectors() }
    }

    /// The leaf and the planes of one chunk.
    pub(super) fn chunk(&self, data: &[u8], planes: ChunkPlanes) -> Done {
        #[cfg(target_arch = "x86_64")]
        if self.vectors {
            // SAFETY: the processor has the instructions.
            return unsafe { self.chunk_avx2(data, planes) };
        }
        self.chunk_any(data, planes, false)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi2")]
    fn chunk_avx2(&self, data: &[u8], planes: ChunkPlanes) -> Done {
        self.chunk_any(data, planes, true)
    }

    #[inline(always)]
    fn chunk_any(&self, data: &[u8], planes: ChunkPlanes, vectors: bool) -> Done {
        match (self.grid, self.component.mantissa) {
            (Grid::Uniform { e, m: 63 }, 52) => {
                let scale = 2f64.powi(-(e as i32));
                self.wide(data, planes, vectors, WideCell::uniform(e, 63), |b| pure_wide(b, scale))
            }
            (Grid::Uniform { e, m }, 52) => {
                self.wide(data, planes, vectors, WideCell::uniform(e, m), |b| uniform_wide(b, e, m))
            }
            (Grid::Uniform { e, m: 31 }, 23) => {
                let scale = 2f32.powi(-(e as i32));
                let cell = Cell::Uniform(scale);
                self.fused(data, planes, vectors, cell, |b| uniform(b, scale))
            }
            (Grid::Uniform { e, m }, 23) => {
                let zones = Zones::new(e, m);
                self.narrow::<4>(data, planes, f32_bits, |b| zones.cell(b))
            }
            (Grid::Uniform { e, m }, 10) => {
                let zones = Zones::new(e, m);
                self.narrow::<2>(data, planes, f16_bits, |b| zones.cell(widen_f16(b)))
            }
            (Grid::Uniform { e, m }, _) => {
                let zones = Zones::new(e, m);
                self.narrow::<2>(data, planes, f16_bits, |b| zones.cell(b << 16))
            }
            (Grid::Ordinal { s, denormals }, 52) => {
                let cell = WideCell::Ordinal(s, denormals);
                self.wide(data, planes, vectors, cell, |b| ordinal_wide(b, s, denormals))
            }
            (Grid::Ordinal { s, denormals }, 23) => {
                let cell = Cell::Ordinal(s, denormals);
                self.fused(data, planes, vectors, cell, |b| ordinal::<23, 31>(b, s, denormals))
            }
            (Grid::Ordinal { s, denormals }, 10) => {
                self.narrow::<2>(data, planes, f16_bits, |b| ordinal::<10, 15>(b, s, denormals))
            }
            (Grid::Ordinal { s, denormals }, _) => {
                self.narrow::<2>(data, planes, f16_bits, |b| ordinal::<7, 15>(b, s, denormals))
            }
            (Grid::Bits, _) => unreachable!("bits have no cells"),
        }
    }

    /// f32 values, in registers where everything has a cell.
    #[inline(always)]
    fn fused(
        &self,
        data: &[u8],
        mut planes: ChunkPlanes,
        vectors: bool,
        in_vectors: Cell,
        cell: impl Fn(u32) -> u32,
    ) -> Done {
        let mut done = Done::default();
        for (number, part) in data.as_chunks::<4>().0.chunks(SEGMENT).enumerate() {
            let first = number * SEGMENT;
            let keys = (&self.keys.first[first..], &self.keys.second[first..]);
            let fused = lanes::fused(part, keys, in_vectors, first, &mut planes, vectors);
            let rest = match fused.none {
                true => 0,
                false => {
                    done.leaf[0] = done.leaf[0].wrapping_add(fused.sums.0);
                    done.leaf[1] = done.leaf[1].wrapping_add(fused.sums.1);
                    fused.done
                }
            };
            if rest < part.len() {
                self.segment(&part[rest..], first + rest, &mut planes, &mut done, f32_bits, &cell);
            }
        }
        done
    }

    #[inline(always)]
    fn narrow<const SIZE: usize>(
        &self,
        data: &[u8],
        mut planes: ChunkPlanes,
        load: impl Fn(&[u8; SIZE]) -> u32,
        cell: impl Fn(u32) -> u32,
    ) -> Done {
        let mut done = Done::default();
        for (number, part) in data.as_chunks::<SIZE>().0.chunks(SEGMENT).enumerate() {
            self.segment(part, number * SEGMENT, &mut planes, &mut done, &load, &cell);
        }
        done
    }

    /// Values from component `first` of a chunk on.
    #[inline(always)]
    fn segment<const SIZE: usize>(
        &self,
        values: &[[u8; SIZE]],
        first: usize,
        planes: &mut ChunkPlanes,
        done: &mut Done,
        load: impl Fn(&[u8; SIZE]) -> u32,
        cell: impl Fn(u32) -> u32,
    ) {
        let mut cells = [0u32; SEGMENT];
        let cells = &mut cells[..values.len()];
        let mut none = 0u32;
        ask_for(values.as_flattened());
        for (cell_out, raw) in cells.iter_mut().zip(values) {
            let t = cell(load(raw));
            none |= u32::from(t == 0);
            *cell_out = t;
        }
        let keys = first..first + values.len();
        let (a, b) = lanes::sums(cells, &self.keys.first[keys.clone()], &self.keys.second[keys]);
        done.leaf[0] = done.leaf[0].wrapping_add(a);
        done.leaf[1] = done.leaf[1].wrapping_add(b);
        planes.put(first, cells);
        if none != 0 {
            let bits = |at: usize| load(&values[at]) as u64;
            self.none(first, cells.iter().map(|t| *t == 0), bits, done);
        }
    }

    /// f64 values, in registers where everything has a cell.
    #[inline(always)]
    fn wide(
        &self,
        data: &[u8],
        mut planes: ChunkPlanes,
        vectors: bool,
        in_vectors: WideCell,
        cell: impl Fn(u64) -> u64,
    ) -> Done {
        let mut done = Done::default();
        for (number, part) in data.as_chunks::<8>().0.chunks(SEGMENT).enumerate() {
            let first = number * SEGMENT;
            let keys = &self.keys.wide[first..first + part.len()];
            let fused = wide::fused(part, keys, in_vectors, first, &mut planes, vectors);
            let rest = match fused.none {
                true => 0,
                false => {
                    add_wide(&mut done.leaf, fused.sum);
                    fused.done
                }
            };
            if rest < part.len() {
                self.wide_segment(&part[rest..], first + rest, &mut planes, &mut done, &cell);
            }
        }
        done
    }

    /// Processes a segment as [`Loops::segment`] does, for f64 values.
    #[inline(always)]
    fn wide_segment(
        &self,
        values: &[[u8; 8]],
        first: usize,
        planes: &mut ChunkPlanes,
        done: &mut Done,
        cell: impl Fn(u64) -> u64,
    ) {
        let (mut cells, mut low) = ([0u64; SEGMENT], [0u32; SEGMENT]);
        let (cells, low) = (&mut cells[..values.len()], &mut low[..values.len()]);
        let mut none = 0u64;
        ask_for(values.as_flattened());
        for ((cell_out, low), raw) in cells.iter_mut().zip(low.iter_mut()).zip(values) {
            let t = cell(u64::from_le_bytes(*raw));
            none |= u64::from(t == 0);
            *cell_out = t;
            *low = t as u32;
        }
        let keys = &self.keys.wide[first..first + values.len()];
        add_wide(&mut done.leaf, lanes::sum_wide(cells, keys));
        planes.put(first, low);
        if none != 0 {
            let bits = |at: usize| u64::from_le_bytes(values[at]);
            self.none(first, cells.iter().map(|t| *t == 0), bits, done);
        }
    }

    /// Adds what has no cell.
    #[cold]
    fn none(
        &self,
        first: usize,
        none: impl Iterator<Item = bool>,
        bits: impl Fn(usize) -> u64,
        done: &mut Done,
    ) {
        let top = 8 * self.component.bytes as u32 - 1;
        let exponent = self.component.infinity();
        for (at, _) in none.enumerate().filter(|(_, none)| *none) {
            let bits = bits(at);
            let nan = bits & ((1 << top) - 1) > exponent;
            done.nans += u64::from(nan);
            done.lacking |= !nan && bits & ((1 << top) - 1) != exponent;
            let bits = if nan { exponent | 1 } else { bits };
            self.keys.add_none(&mut done.leaf, first + at, bits);
        }
    }
}

/// Asks for what comes after a segment of data.
#[inline(always)]
fn ask_for(part: &[u8]) {
    for line in (0..part.len().min(AHEAD)).step_by(64) {
        prefetch(part.as_ptr().wrapping_add(AHEAD + line));
    }
}

#[inline(always)]
fn f32_bits(raw: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*raw)
}

#[inline(always)]
fn f16_bits(raw: &[u8; 2]) -> u32 {
    u16::from_le_bytes(*raw) as u32
}

/// The number as an f32; every f16 is one. Without branches, and without arithmetic on denormals.
#[inline(always)]
pub(crate) fn widen_f16(bits: u32) -> u32 {
    let (sign, rest) = ((bits & 0x8000) << 16, bits & 0x7fff);
    let normal = (rest << 13) + (112 << 23);
    let special = rest << 13 | 0x7f80_0000;
    let denormal = (rest as i32 as f32 * 2f32.powi(-24)).to_bits();
    let finite = if rest < 0x400 { denormal } else { normal };
    sign | if rest < 0x7c00 { finite } else { special }
}

/// The sign of everything but −0, as a mask.
#[inline(always)]
fn negative(bits: u32) -> u32 {
    (bits > 0x8000_0000) as u32 * u32::MAX
}

const MIDDLE: u32 = 1 << 31;

/// A cell of a grid without octaves; a product with a power of two is exact, or too small to reach
/// cell 1, or too large for any.
#[inline(always)]
fn uniform(bits: u32, scale: f32) -> u32 {
    let scaled = f32::from_bits(bits & 0x7fff_ffff) * scale;
    let inside = scaled < 2147483648.0;
    let scaled = if inside { scaled } else { 0.0 };
    // SAFETY: the number is from 0 to below 2^31.
    let t = unsafe { scaled.to_int_unchecked::<i32>() } as u32;
    let t = (t ^ negative(bits)) ^ MIDDLE;
    if inside { t } else { 0 }
}

/// A grid with octaves.
struct Zones {
    scale: f32,
    /// The bit pattern from which on octaves count.
    border: u32,
    shift: u32,
    /// Offset that makes the two parts continue each other.
    base: u32,
    pure: bool,
}

impl Zones {
    fn new(e: i16, m: u8) -> Self {
        let scale = 2f32.powi(-(e as i32));
        if m == 31 {
            return Zones { scale, border: 0, shift: 0, base: 0, pure: true };
        }
        let exponent = (e as i32 + m as i32 + 127) as u32;
        let border = exponent.min(255) << 23;
        let shift = 23 - m as u32;
        Zones { scale, border, shift, base: (border >> shift).wrapping_sub(1 << m), pure: false }
    }

    #[inline(always)]
    fn cell(&self, bits: u32) -> u32 {
        let rest = bits & 0x7fff_ffff;
        if self.pure || rest < self.border {
            return uniform(bits, self.scale);
        }
        let t = (rest >> self.shift).wrapping_sub(self.base);
        let t = (t ^ negative(bits)) ^ MIDDLE;
        if rest < 0x7f80_0000 { t } else { 0 }
    }
}

/// A cell of the ordinal grid, for a format with this many bits of fraction below this many in all.
#[inline(always)]
fn ordinal<const MANTISSA: u32, const TOP: u32>(bits: u32, s: u8, denormals: bool) -> u32 {
    let rest = bits & ((1 << TOP) - 1);
    let finite = rest < ((1 << (TOP - MANTISSA)) - 1) << MANTISSA;
    let counted = denormals || rest >= 1 << MANTISSA || rest == 0;
    let sign = (bits > 1 << TOP) as u32 * u32::MAX;
    let t = ((rest >> s) ^ sign) ^ MIDDLE;
    if finite & counted { t } else { 0 }
}

const MIDDLE_WIDE: u64 = 1 << 63;

#[inline(always)]
fn negative_wide(bits: u64) -> u64 {
    (bits > 1 << 63) as u64 * u64::MAX
}

/// The cell as of [`uniform`], for f64 values.
#[inline(always)]
fn pure_wide(bits: u64, scale: f64) -> u64 {
    let scaled = f64::from_bits(bits & (u64::MAX >> 1)) * scale;
    let inside = scaled < 2f64.powi(63);
    let scaled = if inside { scaled } else { 0.0 };
    // SAFETY: the number is from 0 to below 2^63.
    let t = unsafe { scaled.to_int_unchecked::<i64>() } as u64;
    let t = (t ^ negative_wide(bits)) ^ MIDDLE_WIDE;
    if inside { t } else { 0 }
}

/// The cell as of [`Zones::cell`], in integers: the fraction is shifted into place.
#[inline(always)]
fn uniform_wide(bits: u64, e: i16, m: u8) -> u64 {
    let rest = bits & (u64::MAX >> 1);
    let exponent = (rest >> 52) as i64;
    let t = match m < 63 && exponent >= e as i64 + m as i64 + 1023 {
        true => {
            let shift = 52 - m as u32;
            let border = ((e as i64 + m as i64 + 1023) as u64) << 52;
            (rest >> shift).wrapping_sub((border >> shift).wrapping_sub(1 << m))
        }
        false => {
            let fraction = rest & ((1 << 52) - 1) | 1 << 52;
            let up = exponent - (e as i64 + 1075);
            match up >= 0 {
                true => fraction << (up & 63),
                false => fraction.checked_shr(-up as u32).unwrap_or(0),
            }
        }
    };
    let inside = exponent < 2047 && (m < 63 || exponent < e as i64 + 63 + 1023);
    let t = (t ^ negative_wide(bits)) ^ MIDDLE_WIDE;
    if inside { t } else { 0 }
}

#[inline(always)]
fn ordinal_wide(bits: u64, s: u8, denormals: bool) -> u64 {
    let rest = bits & (u64::MAX >> 1);
    let counted = denormals || rest >= 1 << 52 || rest == 0;
    let t = ((rest >> s) ^ negative_wide(bits)) ^ MIDDLE_WIDE;
    if rest < 0x7ff << 52 && counted { t } else { 0 }
}

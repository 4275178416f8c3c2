//! Cells and leaves, value by value.

use super::Format;
use treering::DType;
use treering::testing::{Grid, Leaf, digest};

/// Puts the components of a type into cells.
#[derive(Clone, Copy)]
pub struct Cells {
    pub format: Format,
    grid: Grid,
    /// Without octaves there are 2^range cells on each side of 0.
    range: u32,
}

impl Cells {
    pub fn new(dtype: DType, grid: Grid) -> Cells {
        let format = Format::of(dtype);
        Cells { format, grid, range: if format.mantissa == 52 { 63 } else { 31 } }
    }

    /// The cell of a number, if it has one.
    pub fn cell(&self, bits: u64) -> Option<i128> {
        let format = self.format;
        let rest = format.rest(bits);
        if rest >= format.infinity() {
            return None;
        }
        let t = match self.grid {
            Grid::Ordinal { s, denormals } => {
                let denormal = rest != 0 && rest < 1 << format.mantissa;
                if denormal && !denormals {
                    return None;
                }
                (rest >> s) as i128
            }
            Grid::Uniform { e, m } => self.uniform(bits, e as i64, m as u32)?,
            Grid::Bits => panic!("bits have no cells"),
        };
        Some(if format.is_negative(bits) && rest != 0 { -t - 1 } else { t })
    }

    fn uniform(&self, bits: u64, e: i64, m: u32) -> Option<i128> {
        let (number, exponent) = self.format.split(bits);
        if number == 0 {
            return Some(0);
        }
        // 2^octave ≤ |x| < 2^(octave + 1)
        let length = number.ilog2() as i64;
        let octave = exponent + length;
        if octave < e + m as i64 {
            let up = exponent - e;
            return Some(match up >= 0 {
                true => (number as i128) << up,
                false => number.checked_shr(-up as u32).unwrap_or(0) as i128,
            });
        }
        if m == self.range {
            return None;
        }
        let above = (number - (1 << length)) as i128;
        let part = (above << m) >> length;
        Some(((1 + octave as i128 - e as i128 - m as i128) << m) + part)
    }

    /// The leaf of a chunk.
    pub fn leaf(&self, chunk: &[u8]) -> Leaf {
        let count = chunk.len() / self.format.bytes;
        let wide = self.range == 63;
        let (mut low, mut high, mut all) = (0u64, 0u64, 0u128);
        for at in 0..count {
            let bits = self.format.read(chunk, at);
            let key = mix(2 * at as u64 + u64::from(wide));
            match self.cell(bits) {
                Some(cell) if wide => {
                    let cell = (cell + (1 << 63)) as u128;
                    all = all.wrapping_add(cell.wrapping_mul(key as u128));
                }
                Some(cell) => {
                    let cell = (cell + (1 << 31)) as u64;
                    low = low.wrapping_add(cell * (key & 0xffff_ffff));
                    high = high.wrapping_add(cell * (key >> 32));
                }
                None => {
                    let [x, y] = self.nothing(at, bits);
                    low = low.wrapping_add(x);
                    high = high.wrapping_add(y);
                    all = all.wrapping_add(x as u128 | (y as u128) << 64);
                }
            }
        }
        if wide { [all as u64, (all >> 64) as u64] } else { [low, high] }
    }

    /// Whether planes hold the lowest bits of the cells of a chunk, and nothing behind them.
    pub fn are_in(&self, planes: &[&[u8]], chunk: &[u8]) -> bool {
        let count = chunk.len() / self.format.bytes;
        planes.iter().enumerate().all(|(number, plane)| {
            (0..plane.len() * 8).all(|at| {
                let cell = match at < count {
                    true => self.cell(self.format.read(chunk, at)).unwrap_or(0),
                    false => 0,
                };
                plane[at / 8] >> (at % 8) & 1 == (cell >> number & 1) as u8
            })
        })
    }

    fn nothing(&self, at: usize, bits: u64) -> [u64; 2] {
        let input = [(at as u64).to_le_bytes(), self.sole(bits).to_le_bytes()].concat();
        digest(&input).0
    }

    /// The identity of a number without a cell.
    pub fn sole(&self, bits: u64) -> u64 {
        if self.format.is_nan(bits) { self.format.infinity() | 1 } else { bits }
    }
}

/// The keys, as the format has them.
fn mix(at: u64) -> u64 {
    let mut z = (at ^ 0x7472_6565_7269_6e67).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

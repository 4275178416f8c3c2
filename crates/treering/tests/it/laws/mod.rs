//! The reference for the laws of comparison, written apart from the code under test: formats of
//! numbers, exact judgement by whole numbers, the cells and leaves as the head of `merkle::bounded`
//! tells them, and values made to find holes.
#![allow(dead_code)]

pub mod cells;
pub mod files;
pub mod oracle;
pub mod values;

use treering::DType;

/// The types that have cells.
pub const FLOATS: [DType; 6] =
    [DType::F16, DType::BF16, DType::F32, DType::F64, DType::C64, DType::C128];

/// The notation of the components of a type.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub bytes: usize,
    pub mantissa: u32,
    /// The bit of the sign.
    pub top: u32,
    /// Number of components of an element.
    pub parts: usize,
}

impl Format {
    pub fn of(dtype: DType) -> Format {
        let (bytes, mantissa, parts) = match dtype {
            DType::F16 => (2, 10, 1),
            DType::BF16 => (2, 7, 1),
            DType::F32 => (4, 23, 1),
            DType::F64 => (8, 52, 1),
            DType::C64 => (4, 23, 2),
            DType::C128 => (8, 52, 2),
            _ => panic!("{dtype} has no cells"),
        };
        Format { bytes, mantissa, top: 8 * bytes as u32 - 1, parts }
    }

    pub fn infinity(self) -> u64 {
        ((1 << (self.top - self.mantissa)) - 1) << self.mantissa
    }

    fn bias(self) -> i64 {
        (1 << (self.top - self.mantissa - 1)) - 1
    }

    pub fn rest(self, bits: u64) -> u64 {
        bits & ((1 << self.top) - 1)
    }

    pub fn is_negative(self, bits: u64) -> bool {
        bits >> self.top & 1 == 1
    }

    pub fn is_nan(self, bits: u64) -> bool {
        self.rest(bits) > self.infinity()
    }

    pub fn is_infinite(self, bits: u64) -> bool {
        self.rest(bits) == self.infinity()
    }

    /// The absolute value of a finite number as n·2^e.
    pub fn split(self, bits: u64) -> (u64, i64) {
        let rest = self.rest(bits);
        let (exponent, fraction) =
            ((rest >> self.mantissa) as i64, rest & ((1 << self.mantissa) - 1));
        let whole = if exponent > 0 { fraction | 1 << self.mantissa } else { fraction };
        (whole, exponent.max(1) - self.bias() - self.mantissa as i64)
    }

    /// The number, which fits into an f64.
    pub fn value(self, bits: u64) -> f64 {
        let sign = if self.is_negative(bits) { -1.0 } else { 1.0 };
        match self.mantissa {
            52 => f64::from_bits(bits),
            23 => f32::from_bits(bits as u32) as f64,
            7 => f32::from_bits((bits as u32) << 16) as f64,
            _ if self.is_nan(bits) => f64::NAN,
            _ if self.is_infinite(bits) => sign * f64::INFINITY,
            _ => {
                let (whole, exponent) = self.split(bits);
                sign * whole as f64 * 2f64.powi(exponent as i32)
            }
        }
    }

    /// The bits of the number of this format that is not further from 0, or of an infinity.
    pub fn near(self, x: f64) -> u64 {
        match self.mantissa {
            52 => x.to_bits(),
            23 => (x as f32).to_bits() as u64,
            _ if x.is_nan() => self.infinity() | 1,
            _ => {
                let (mut low, mut high) = (0, self.infinity() + 1);
                while high - low > 1 {
                    let middle = (low + high) / 2;
                    if self.value(middle) <= x.abs() {
                        low = middle;
                    } else {
                        high = middle;
                    }
                }
                low | (x.is_sign_negative() as u64) << self.top
            }
        }
    }

    /// The place of a number among all of its format; −0 and 0 have the same.
    pub fn ordinal(self, bits: u64) -> i64 {
        let rest = self.rest(bits) as i64;
        if self.is_negative(bits) { -rest } else { rest }
    }

    /// The bits of the number this many places further, infinities at the ends.
    pub fn step(self, bits: u64, by: i64) -> u64 {
        let end = self.infinity() as i64;
        let to = self.ordinal(bits).saturating_add(by).clamp(-end, end);
        to.unsigned_abs() | u64::from(to < 0) << self.top
    }

    pub fn read(self, bytes: &[u8], component: usize) -> u64 {
        let from = component * self.bytes;
        bytes[from..from + self.bytes].iter().rev().fold(0, |word, byte| word << 8 | *byte as u64)
    }

    pub fn write(self, bytes: &mut [u8], component: usize, bits: u64) {
        let from = component * self.bytes;
        bytes[from..from + self.bytes].copy_from_slice(&bits.to_le_bytes()[..self.bytes]);
    }
}

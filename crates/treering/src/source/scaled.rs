//! The scale-offset filter of HDF5, undone: numbers as their distance from the least of them, in as
//! few bits as the largest distance needs.

use crate::array::DType;
use crate::error::{Error, Result};

/// What the filter was set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scaled {
    dtype: DType,
    swapped: bool,
    /// Decimal digits that were kept of floating-point numbers.
    digits: u32,
    /// The bits of the value that stands for nothing, if there is one.
    fill: Option<u64>,
}

/// Before the numbers: bits of each, size of the least, the least, and room.
const HEAD: usize = 21;

impl Scaled {
    /// From the parameters in the file; none if they are not understood.
    pub(super) fn new(values: &[u32], dtype: DType, swapped: bool) -> Option<Self> {
        let float = matches!(dtype, DType::F32 | DType::F64);
        let integer = !matches!(dtype, DType::F16 | DType::BF16 | DType::C64 | DType::C128);
        // Integers have kind 2 and class 0; kind 0 is decimal digits, kind 1 was never written.
        let known = match values {
            [2, _, _, 0, ..] => integer && !float,
            [0, _, _, 1, ..] => float,
            _ => false,
        };
        let fill = match values.get(7..)? {
            [0, ..] => None,
            [_, low, rest @ ..] => {
                Some(u64::from(*low) | u64::from(rest.first().copied().unwrap_or(0)) << 32)
            }
            _ => return None,
        };
        let size = u64::from(*values.get(4)?) == dtype.size();
        let digits = *values.get(1)?;
        (known && size && digits <= 300).then_some(Scaled { dtype, swapped, digits, fill })
    }

    /// The numbers of a chunk, `len` bytes of them, as they were before.
    pub(super) fn decode(&self, bytes: &[u8], len: usize) -> Result<Vec<u8>> {
        let wrong = || Error::damaged("a chunk packed by scale-offset is damaged");
        let size = self.dtype.size() as usize;
        let bits = bytes.first_chunk::<4>().map(|b| u32::from_le_bytes(*b)).ok_or_else(wrong)?;
        let least = bytes.get(5..).and_then(|b| b.first_chunk::<8>()).ok_or_else(wrong)?;
        let least = u64::from_le_bytes(*least);
        let packed = bytes.get(HEAD..).ok_or_else(wrong)?;
        if bits as usize > 8 * size {
            return Err(wrong());
        }
        if bits as usize == 8 * size {
            return Ok(packed.get(..len).ok_or_else(wrong)?.to_vec());
        }
        let count = len / size;
        if packed.len() < (count * bits as usize).div_ceil(8) {
            return Err(wrong());
        }
        let mut out = Vec::with_capacity(len);
        for number in 0..count {
            let distance = take_bits(packed, number * bits as usize, bits as usize);
            let value = match self.fill {
                Some(fill) if bits > 0 && distance == (1 << bits) - 1 => fill,
                _ => self.value(distance, least),
            };
            let mut value = value.to_le_bytes();
            if self.swapped {
                value[..size].reverse();
            }
            out.extend_from_slice(&value[..size]);
        }
        Ok(out)
    }

    /// The bits of a number at a distance from the least.
    fn value(&self, distance: u64, least: u64) -> u64 {
        match self.dtype {
            DType::F32 => {
                let scale = 10f64.powi(self.digits as i32) as f32;
                let value = distance as u32 as i32 as f32 / scale + f32::from_bits(least as u32);
                u64::from(value.to_bits())
            }
            DType::F64 => {
                let scale = 10f64.powi(self.digits as i32);
                (distance as i64 as f64 / scale + f64::from_bits(least)).to_bits()
            }
            _ => least.wrapping_add(distance),
        }
    }
}

/// So many bits from a place on, the high ones first; they are there.
fn take_bits(bytes: &[u8], from: usize, count: usize) -> u64 {
    let mut value = 0u64;
    let (mut at, end) = (from, from + count);
    while at < end {
        let now = (8 - at % 8).min(end - at);
        let byte = bytes[at / 8] >> (8 - at % 8 - now);
        value = value << now | u64::from(byte) & ((1 << now) - 1);
        at += now;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_taken_from_the_high_end() {
        let bytes = [0b1010_0101, 0b1100_0011];
        assert_eq!(take_bits(&bytes, 0, 3), 0b101);
        assert_eq!(take_bits(&bytes, 6, 5), 0b01110);
        assert_eq!(take_bits(&bytes, 0, 16), 0b1010_0101_1100_0011);
        assert_eq!(take_bits(&bytes, 9, 0), 0);
    }
}

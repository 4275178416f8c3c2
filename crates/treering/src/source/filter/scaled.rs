//! The scale-offset filter of HDF5, undone: numbers as their distance from the least of them, in as few bits as the
//! largest distance needs. Floating-point numbers are rounded to decimal digits before.

use super::bits::HighBits;
use super::{broken, swap};
use crate::array::DType;
use crate::error::Result;

/// The settings of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) struct Scaled {
    dtype: DType,
    swapped: bool,
    /// Numbers of a chunk. `None`: chunks are left as they are.
    count: Option<u64>,
    /// Decimal digits that were kept of floating-point numbers; negative ones are digits before the point.
    digits: i32,
    /// The bits of the fill value, if there is one.
    fill: Option<u64>,
}

/// Before the numbers: bits of each, size of the least, the least, and room.
const HEAD: usize = 21;

/// The most decimal digits.
const MOST_DIGITS: i32 = 300;

impl Scaled {
    /// The settings from the parameters in the file; none if they are not understood.
    pub(super) fn new(values: &[u32], dtype: DType, swapped: bool) -> Option<Self> {
        let float = matches!(dtype, DType::F32 | DType::F64);
        let integer = !matches!(dtype, DType::F16 | DType::BF16 | DType::C64 | DType::C128);
        let [kind, scale, count, class, size, _, _, filled, ref fill @ ..] = *values else {
            return None;
        };
        // Integers have kind 2 and class 0; kind 0 is decimal digits, kind 1 was never written.
        let known = match (kind, class) {
            (2, 0) => integer && !float,
            (0, 1) => float,
            _ => false,
        };
        let digits = if float { scale as i32 } else { 0 };
        if !known || u64::from(size) != dtype.size() || digits.abs() > MOST_DIGITS {
            return None;
        }
        let word = |at: usize| fill.get(at).map_or(0, |word| u64::from(*word));
        let fill = (filled != 0).then(|| word(0) | word(1) << 32);
        // Integers in all their bits.
        let bare = !float && scale == 8 * size;
        let count = (!bare).then_some(u64::from(count));
        Some(Scaled { dtype, swapped, count, digits, fill })
    }

    /// The numbers of a chunk, of at most this many bytes.
    pub(super) fn decode(&self, bytes: Vec<u8>, most: usize) -> Result<Vec<u8>> {
        let Some(count) = self.count else { return Ok(bytes) };
        self.numbers(&bytes, count, most).ok_or_else(|| broken("scale-offset"))
    }

    /// The numbers of a chunk. `None`: it is corrupt.
    fn numbers(&self, bytes: &[u8], count: u64, most: usize) -> Option<Vec<u8>> {
        let size = self.dtype.size() as usize;
        let len = count.checked_mul(size as u64).filter(|len| *len <= most as u64)? as usize;
        let bits = u32::from_le_bytes(*bytes.first_chunk::<4>()?);
        let least = u64::from_le_bytes(*bytes.get(5..)?.first_chunk::<8>()?);
        let packed = bytes.get(HEAD..)?;
        if bits as usize > 8 * size {
            return None;
        }
        if bits as usize == 8 * size {
            // As they are, in the order of the machine that wrote them.
            let mut out = packed.get(..len)?.to_vec();
            swap(&mut out, if self.swapped { size as u8 } else { 0 });
            return Some(out);
        }
        let mut stream = HighBits::new(packed);
        let mut out = Vec::with_capacity(len);
        for _ in 0..count {
            let distance = stream.take(bits)?;
            let value = match self.fill {
                Some(fill) if distance == (1 << bits) - 1 => fill,
                _ => self.value(distance, least),
            };
            let mut value = value.to_le_bytes();
            if self.swapped {
                value[..size].reverse();
            }
            out.extend_from_slice(&value[..size]);
        }
        Some(out)
    }

    /// The bits of a number at a distance from the least.
    fn value(&self, distance: u64, least: u64) -> u64 {
        let scale = 10f64.powi(self.digits);
        match self.dtype {
            DType::F32 => {
                let value =
                    distance as u32 as i32 as f32 / scale as f32 + f32::from_bits(least as u32);
                u64::from(value.to_bits())
            }
            DType::F64 => (distance as i64 as f64 / scale + f64::from_bits(least)).to_bits(),
            _ => least.wrapping_add(distance),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters: kind, digits or bits, numbers, class, size, sign, order, and whether there is a fill value.
    fn parameters(kind: [u32; 2], size: u32, fill: Option<u32>) -> Vec<u32> {
        let class = u32::from(kind[0] == 0);
        let filled = u32::from(fill.is_some());
        vec![kind[0], kind[1], 3, class, size, 1, 0, filled, fill.unwrap_or(0)]
    }

    fn chunk(bits: u32, least: u64, packed: &[u8]) -> Vec<u8> {
        let mut chunk = bits.to_le_bytes().to_vec();
        chunk.push(8);
        chunk.extend(least.to_le_bytes());
        chunk.resize(HEAD, 0);
        chunk.extend(packed);
        chunk
    }

    #[test]
    fn integers_are_undone() {
        let scaled = Scaled::new(&parameters([2, 0], 2, Some(77)), DType::I16, true).unwrap();
        let packed = chunk(4, -3i64 as u64, &[0x1f, 0x50]);
        let expected = [-2i16, 77, 2].map(i16::to_be_bytes).concat();
        assert_eq!(scaled.decode(packed.clone(), 6).unwrap(), expected);
        assert!(scaled.decode(packed.clone(), 5).is_err());
        assert!(scaled.decode(packed[..HEAD + 1].to_vec(), 6).is_err());
        assert!(scaled.decode(chunk(17, 0, &[0; 9]), 6).is_err());
        // All bits: the bytes in the order of the machine.
        assert_eq!(
            scaled.decode(chunk(16, 0, &[1, 2, 3, 4, 5, 6]), 6).unwrap(),
            [2, 1, 4, 3, 6, 5]
        );
        let bare = Scaled::new(&parameters([2, 16], 2, None), DType::I16, true).unwrap();
        assert_eq!(bare.decode(vec![1, 2, 3], 6).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn decimal_digits_may_be_before_the_point() {
        for (digits, expected) in [(1, [0.5, 0.6, 0.8]), (-1i32, [0.5, 10.5, 30.5])] {
            let values = parameters([0, digits as u32], 8, None);
            let scaled = Scaled::new(&values, DType::F64, false).unwrap();
            let out = scaled.decode(chunk(2, 0.5f64.to_bits(), &[0b0001_1100]), 24).unwrap();
            assert_eq!(out, expected.map(f64::to_le_bytes).concat());
        }
        assert!(Scaled::new(&parameters([1, 1], 8, None), DType::F64, false).is_none());
        assert!(Scaled::new(&parameters([0, 301], 8, None), DType::F64, false).is_none());
        assert!(Scaled::new(&[2, 0, 3], DType::I16, false).is_none());
    }
}

//! The n-bit filter of HDF5, undone: of each number only the bits that its type uses, one behind another.

use super::bits::HighBits;
use super::broken;
use crate::error::Result;
use std::sync::Arc;

/// The settings of the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::source) struct Nbit {
    /// Elements of a chunk. `None`: the filter leaves chunks as they are.
    count: Option<u64>,
    element: Arc<NbitType>,
}

/// A type, as the parameters of the filter describe it.
#[derive(Debug, PartialEq, Eq)]
enum NbitType {
    Number {
        size: usize,
        big_endian: bool,
        precision: u32,
        offset: u32,
    },
    Array {
        size: usize,
        of: Box<NbitType>,
    },
    Record {
        size: usize,
        members: Vec<(usize, NbitType)>,
    },
    /// Bytes that are stored as they are.
    Bytes {
        size: usize,
    },
}

const DEEPEST: u32 = 16;

impl Nbit {
    /// The settings from the parameters in the file; none if they are not understood.
    pub(super) fn new(values: &[u32]) -> Option<Self> {
        let [_, bare, count, element @ ..] = values else { return None };
        if *bare != 0 {
            return Some(Nbit { count: None, element: Arc::new(NbitType::Bytes { size: 1 }) });
        }
        let element = Arc::new(NbitType::parse(&mut &*element, 0)?);
        Some(Nbit { count: Some(u64::from(*count)), element })
    }

    /// The elements of a chunk, of at most this many bytes.
    pub(super) fn decode(&self, bytes: &[u8], most: usize) -> Result<Vec<u8>> {
        let wrong = || broken("n-bit");
        let Some(count) = self.count else { return Ok(bytes.to_vec()) };
        let size = self.element.size();
        let len = count.checked_mul(size as u64).filter(|len| *len <= most as u64);
        let mut out = vec![0; len.ok_or_else(wrong)? as usize];
        let mut bits = HighBits::new(bytes);
        for element in out.chunks_exact_mut(size) {
            self.element.decode(&mut bits, element).ok_or_else(wrong)?;
        }
        Ok(out)
    }
}

impl NbitType {
    fn parse(input: &mut &[u32], depth: u32) -> Option<Self> {
        let mut next = || -> Option<usize> {
            let (first, rest) = input.split_first()?;
            *input = rest;
            usize::try_from(*first).ok()
        };
        let (class, size) = (next()?, next()?);
        if size == 0 || depth > DEEPEST {
            return None;
        }
        match class {
            1 => {
                let (order, precision, offset) = (next()?, next()? as u32, next()? as u32);
                let bits = 8 * u32::try_from(size).ok().filter(|size| *size <= 16)?;
                let fits = precision > 0 && precision.checked_add(offset)? <= bits;
                let big_endian = order == 1;
                fits.then_some(NbitType::Number { size, big_endian, precision, offset })
            }
            2 => {
                let of = NbitType::parse(input, depth + 1)?;
                // Bytes of an array are one piece, whatever the size of its base.
                let of = match of {
                    NbitType::Bytes { .. } => NbitType::Bytes { size },
                    of => of,
                };
                size.is_multiple_of(of.size()).then_some(NbitType::Array { size, of: Box::new(of) })
            }
            3 => {
                let count = next()?;
                let mut members = Vec::new();
                for _ in 0..count {
                    let (first, rest) = input.split_first()?;
                    *input = rest;
                    let member = NbitType::parse(input, depth + 1)?;
                    let at = *first as usize;
                    if at.checked_add(member.size())? > size {
                        return None;
                    }
                    members.push((at, member));
                }
                Some(NbitType::Record { size, members })
            }
            4 => Some(NbitType::Bytes { size }),
            _ => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            NbitType::Number { size, .. }
            | NbitType::Array { size, .. }
            | NbitType::Record { size, .. }
            | NbitType::Bytes { size } => *size,
        }
    }

    /// Fills an element. `None`: the stream is too short. Every byte costs a bit of the stream at least.
    fn decode(&self, bits: &mut HighBits, out: &mut [u8]) -> Option<()> {
        match self {
            NbitType::Number { size, big_endian, precision, offset } => {
                let high = bits.take(precision.saturating_sub(64))?;
                let low = bits.take(*precision.min(&64))?;
                let number = u128::from(high) << 64 | u128::from(low);
                let mut number = (number << offset).to_le_bytes();
                if *big_endian {
                    number[..*size].reverse();
                }
                out.copy_from_slice(&number[..*size]);
            }
            NbitType::Array { of, .. } => {
                for element in out.chunks_exact_mut(of.size()) {
                    of.decode(bits, element)?;
                }
            }
            NbitType::Record { members, .. } => {
                for (at, member) in members {
                    member.decode(bits, &mut out[*at..*at + member.size()])?;
                }
            }
            NbitType::Bytes { .. } => {
                for byte in out {
                    *byte = bits.take(8)? as u8;
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_records_and_arrays_are_undone() {
        // Two numbers of 16 bits with 9 bits from bit 3 on, one of each order.
        let little = Nbit::new(&[8, 0, 2, 1, 2, 0, 9, 3]).unwrap();
        let big = Nbit::new(&[8, 0, 2, 1, 2, 1, 9, 3]).unwrap();
        let packed = [0b1000_0000, 0b1011_1111, 0b1100_0000];
        assert_eq!(little.decode(&packed, 4).unwrap(), [0x08, 0x08, 0xf8, 0x07]);
        assert_eq!(big.decode(&packed, 4).unwrap(), [0x08, 0x08, 0x07, 0xf8]);
        assert!(little.decode(&packed[..2], 4).is_err());
        assert!(little.decode(&packed, 3).is_err());
        // A byte as it is, then two numbers of 4 bits, with a byte of nothing between.
        let record = [0, 0, 1, 3, 4, 2, 0, 4, 1, 2, 2, 2, 1, 1, 0, 4, 0];
        let record = Nbit::new(&record).unwrap();
        assert_eq!(record.decode(&[0xab, 0xcd], 4).unwrap(), [0xab, 0, 0xc, 0xd]);
        // Nothing to do.
        assert_eq!(Nbit::new(&[8, 1, 2]).unwrap().decode(&[1, 2, 3], 3).unwrap(), [1, 2, 3]);
        for wrong in
            [&[8, 0][..], &[8, 0, 2, 1, 2, 0, 0, 3], &[8, 0, 2, 1, 2, 0, 14, 3], &[8, 0, 2, 9, 1]]
        {
            assert!(Nbit::new(wrong).is_none(), "{wrong:?}");
        }
    }
}

//! Numbers of one type, read as those of a wider one. Every value of it is one of the wider type, so nothing is rounded.

use crate::array::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Blob;
use std::sync::Arc;

/// Kinds of numbers, each in types that hold all values of those before them.
const KINDS: [&[DType]; 5] = [
    &[DType::U8, DType::U16, DType::U32, DType::U64],
    &[DType::I8, DType::I16, DType::I32, DType::I64],
    &[DType::F16, DType::F32, DType::F64],
    &[DType::BF16, DType::F32, DType::F64],
    &[DType::C64, DType::C128],
];

/// The narrowest type that holds all values of both; none if there is none, or the types are the same.
pub(crate) fn common_type(a: DType, b: DType) -> Option<DType> {
    let of_both = |kind: &&[DType]| kind.contains(&a) && kind.contains(&b);
    match (a, b) {
        _ if a == b => None,
        (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => Some(DType::F32),
        _ => {
            let kind = KINDS.into_iter().find(of_both)?;
            kind.iter().rfind(|d| **d == a || **d == b).copied()
        }
    }
}

/// Whether values are integers.
pub(crate) fn is_integer(dtype: DType) -> bool {
    KINDS[..2].iter().any(|kind| kind.contains(&dtype))
}

/// Values of one type, read as those of a wider one.
pub(crate) struct Widened<'a> {
    pub(crate) inner: Arc<dyn Blob + 'a>,
    pub(crate) from: DType,
    pub(crate) to: DType,
}

impl Widened<'_> {
    /// Beginning of the narrow values of a range, and room for them.
    fn narrow(&self, offset: u64, wanted: &[u8]) -> Result<(u64, Vec<u8>)> {
        let (narrow, wide) = (self.from.size(), self.to.size());
        let (first, last) = (offset / wide, (offset + wanted.len() as u64).div_ceil(wide));
        Ok((first * narrow, crate::memory::zeroed((last - first) * narrow)?))
    }

    /// Widens narrow values that begin at `first`, as far as they are wanted.
    fn put(&self, first: u64, values: &[u8], offset: u64, wanted: &mut [u8]) -> Result<()> {
        let widened = widened(self.from, self.to, values)?;
        let from = (offset - first / self.from.size() * self.to.size()) as usize;
        wanted.copy_from_slice(&widened[from..][..wanted.len()]);
        Ok(())
    }
}

impl Blob for Widened<'_> {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn size(&self) -> u64 {
        self.inner.size() / self.from.size() * self.to.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let (first, mut values) = self.narrow(offset, buffer)?;
        self.inner.read_at(first, &mut values)?;
        self.put(first, &values, offset, buffer)
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let narrow = ranges.iter().map(|(offset, buffer)| self.narrow(*offset, buffer));
        let mut narrow = narrow.collect::<Result<Vec<_>>>()?;
        let mut reads: Vec<(u64, &mut [u8])> =
            narrow.iter_mut().map(|(first, values)| (*first, &mut values[..])).collect();
        // Reads may come back in another order; each buffer has its own bytes all the same.
        self.inner.read_many(&mut reads)?;
        for ((first, values), (offset, buffer)) in narrow.iter().zip(ranges) {
            self.put(*first, values, *offset, buffer)?;
        }
        Ok(())
    }

    fn in_order(&self) -> bool {
        self.inner.in_order()
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }
}

fn widened(from: DType, to: DType, values: &[u8]) -> Result<Vec<u8>> {
    let bits = |raw: &[u8]| {
        let mut word = [0; 8];
        word[..raw.len()].copy_from_slice(raw);
        u64::from_le_bytes(word)
    };
    // The parts of a complex number are widened one by one.
    let (from, to) = match (from, to) {
        (DType::C64, DType::C128) => (DType::F32, DType::F64),
        other => other,
    };
    let (narrow, wide) = (from.size() as usize, to.size() as usize);
    let mut out = Vec::with_capacity(values.len() / narrow * wide);
    for raw in values.chunks_exact(narrow) {
        let word = match (from, to) {
            (_, DType::F64) if is_integer(from) => real(from, bits(raw))?,
            // Bits are moved, because a mode of the processor may take denormals for zeros.
            (DType::BF16, DType::F32) => bits(raw) << 16,
            (DType::F16, DType::F32) => u64::from((number(from, bits(raw)) as f32).to_bits()),
            (DType::F16 | DType::BF16 | DType::F32, _) => number(from, bits(raw)).to_bits(),
            (DType::I8 | DType::I16 | DType::I32, _) => {
                let unused = 64 - 8 * narrow;
                ((bits(raw) << unused) as i64 >> unused) as u64
            }
            _ => bits(raw),
        };
        out.extend_from_slice(&word.to_le_bytes()[..wide]);
    }
    Ok(out)
}

/// The bits of the f64 that equals an integer.
pub(crate) fn real(from: DType, bits: u64) -> Result<u64> {
    let unused = 64 - 8 * from.size();
    let value = match KINDS[1].contains(&from) {
        true => i128::from((bits << unused) as i64 >> unused),
        false => i128::from(bits),
    };
    let real = value as f64;
    match real as i128 == value {
        true => Ok(real.to_bits()),
        false => Err(Error::new(
            ErrorKind::Limit,
            format!("the integer {value} cannot be compared within a bound: no f64 equals it"),
        )
        .hint("compare integers exactly, or give no bound to this variable")),
    }
}

/// The number that a component's bits stand for; integer steps, so that no mode of the processor
/// changes it.
pub(crate) fn number(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F16 => f64::from_bits(widen(bits, 10, 15)),
        DType::BF16 => f64::from_bits(widen(bits << 16, 23, 31)),
        DType::F32 | DType::C64 => f64::from_bits(widen(bits, 23, 31)),
        _ => f64::from_bits(bits),
    }
}

/// The f64 that equals a smaller number with `mantissa` bits of fraction below the sign at bit `top`.
fn widen(bits: u64, mantissa: u32, top: u32) -> u64 {
    let sign = (bits >> top & 1) << 63;
    let rest = bits & ((1 << top) - 1);
    let exponent = rest >> mantissa;
    let fraction = rest & ((1 << mantissa) - 1);
    let greatest = (1u64 << (top - mantissa)) - 1;
    let bias = greatest >> 1;
    if exponent == greatest {
        return sign | 0x7ff << 52 | fraction << (52 - mantissa);
    }
    if exponent > 0 {
        return sign | (exponent + 1023 - bias) << 52 | fraction << (52 - mantissa);
    }
    if fraction == 0 {
        return sign;
    }
    // A denormal of the small format is a normal number of the large one.
    let up = fraction.leading_zeros() - (63 - mantissa);
    let fraction = fraction << up & ((1 << mantissa) - 1);
    sign | (1024 - bias - up as u64) << 52 | fraction << (52 - mantissa)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_one_kind_have_a_common_one() {
        for (a, b, wide) in [
            (DType::F32, DType::F64, Some(DType::F64)),
            (DType::F16, DType::BF16, Some(DType::F32)),
            (DType::BF16, DType::F64, Some(DType::F64)),
            (DType::I32, DType::I64, Some(DType::I64)),
            (DType::U8, DType::U32, Some(DType::U32)),
            (DType::C64, DType::C128, Some(DType::C128)),
            (DType::I32, DType::U64, None),
            (DType::I32, DType::F64, None),
            (DType::Bool, DType::U8, None),
            (DType::Bytes, DType::U8, None),
            (DType::F64, DType::F64, None),
        ] {
            assert_eq!((common_type(a, b), common_type(b, a)), (wide, wide), "{a} {b}");
        }
    }

    #[test]
    fn widening_keeps_every_value() {
        let floats = [0.1f32, -0.0, f32::MIN_POSITIVE / 8.0, f32::MAX, f32::INFINITY];
        let bytes: Vec<u8> = floats.iter().flat_map(|v| v.to_le_bytes()).collect();
        let wide: Vec<u8> = floats.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect();
        assert_eq!(widened(DType::F32, DType::F64, &bytes).unwrap(), wide);
        let bytes = (-3i16).to_le_bytes();
        assert_eq!(widened(DType::I16, DType::I64, &bytes).unwrap(), (-3i64).to_le_bytes());
        assert_eq!(widened(DType::U16, DType::U32, &bytes).unwrap(), 0xfffdu32.to_le_bytes());
        // 1.5 and the smallest number of f16, −2 of bf16.
        let halves: Vec<u8> = [0x3e00u16, 1].iter().flat_map(|v| v.to_le_bytes()).collect();
        let wide: Vec<u8> = [1.5f32, 2f32.powi(-24)].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(widened(DType::F16, DType::F32, &halves).unwrap(), wide);
        assert_eq!(widened(DType::I16, DType::F64, &bytes).unwrap(), (-3f64).to_le_bytes());
        assert_eq!(widened(DType::U16, DType::F64, &bytes).unwrap(), 65533f64.to_le_bytes());
        let large = (1i64 << 53) + 1;
        assert!(widened(DType::I64, DType::F64, &large.to_le_bytes()).is_err());
        let even = (-1i64 << 60).to_le_bytes();
        assert_eq!(
            widened(DType::I64, DType::F64, &even).unwrap(),
            (-(2f64.powi(60))).to_le_bytes()
        );
        assert_eq!(
            widened(DType::BF16, DType::F64, &0xc000u16.to_le_bytes()).unwrap(),
            (-2f64).to_le_bytes()
        );
    }
}

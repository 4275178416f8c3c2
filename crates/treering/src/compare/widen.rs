//! Variables whose types differ only in their width, compared by value.
//!
//! The values of the narrower type are widened as they are read. Every value of it is one of the wider type, so nothing
//! is rounded, and the answer is that of the bound in the wider type. Trees of the narrower values do not serve.

use super::judge::number;
use super::partners::PartnerNames;
use super::side::SideEntry;
use crate::array::{DType, Rank};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Blob;
use std::collections::{BTreeSet, HashMap};
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
fn common(a: DType, b: DType) -> Option<DType> {
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
pub(super) fn is_integer(dtype: DType) -> bool {
    KINDS[..2].iter().any(|kind| kind.contains(&dtype))
}

/// Widens variables that the other side has in a wider type; a note for each name. Without `names`, the only variables of
/// both sides are partners. With `integers`, these become real
/// numbers, to which bounds apply.
pub(super) fn widen<'e>(
    a: &mut [SideEntry<'e>],
    b: &mut [SideEntry<'e>],
    names: Option<PartnerNames>,
    integers: bool,
) -> BTreeSet<String> {
    let types = |side: &[SideEntry]| -> HashMap<(Option<Rank>, String), DType> {
        let of = |e: &SideEntry| (key(e, names), e.description.dtype);
        side.iter().filter(|e| may_be_widened(e)).map(of).collect()
    };
    let (of_a, of_b) = (types(a), types(b));
    let mut notes = BTreeSet::new();
    // Both sides decide by the types as they were.
    for (side, own, others) in [(a, &of_a, &of_b), (b, &of_b, &of_a)] {
        for entry in side.iter_mut().filter(|entry| may_be_widened(entry)) {
            let key = key(entry, names);
            let (Some(p), Some(q)) = (own.get(&key), others.get(&key)) else { continue };
            if integers && is_integer(*p) && is_integer(*q) {
                entry.widen(DType::F64);
                continue;
            }
            let Some(wide) = common(*p, *q) else { continue };
            let (first, second) = (of_a[&key], of_b[&key]);
            notes.insert(format!(
                "variable {:?} is {first} in the first and {second} in the second: compared by value",
                entry.description.name
            ));
            entry.widen(wide);
        }
    }
    notes
}

/// Whether type and values are known, or the reason why these are not. Trees alone cannot be widened.
fn may_be_widened(entry: &SideEntry) -> bool {
    let known = entry.is_described() && (entry.values.is_some() || entry.unread.is_some());
    // Digests are no numbers.
    known && entry.meaning.kind.is_none()
}

/// Name and rank by which variables are compared; boxes of one array are alike on all ranks, and the only variables of
/// two sides whatever their names are.
fn key(entry: &SideEntry, names: Option<PartnerNames>) -> (Option<Rank>, String) {
    let Some(names) = names else { return (None, String::new()) };
    let rank = entry.description.global_box().is_none().then_some(entry.rank);
    (rank, names.name(entry).into_owned())
}

impl<'a> SideEntry<'a> {
    /// Converts the variable to a wider type.
    fn widen(&mut self, to: DType) {
        let from = self.description.dtype;
        if from == to {
            return;
        }
        self.description.dtype = to;
        self.trees.clear();
        let widened = |inner| -> Arc<dyn Blob + 'a> { Arc::new(Widened { inner, from, to }) };
        self.values = self.values.take().map(widened);
    }
}

/// Values of one type, read as those of a wider one.
struct Widened<'a> {
    inner: Arc<dyn Blob + 'a>,
    from: DType,
    to: DType,
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
pub(super) fn real(from: DType, bits: u64) -> Result<u64> {
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
            assert_eq!((common(a, b), common(b, a)), (wide, wide), "{a} {b}");
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

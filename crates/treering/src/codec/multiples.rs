//! Multiples of a spacing as the whole numbers they are.
//!
//! Values that were rounded within an absolute bound are k·s, rounded to their type, for few different
//! k. Taken as floating-point numbers their fractions look like noise; as numbers k they are predicted
//! without error, and what is left takes a few bits (cuSZ, Tian et al. 2020: quantise first, then
//! predict whole numbers exactly). The step itself is exact for any bytes: what is no multiple, such as
//! NaN or −0, is an exception, and its place among the numbers repeats the one before.
//!
//! Output: the numbers in two's complement, as wide as the values; for each exception how many values
//! lie between it and the one before; the exceptions themselves; what is left over behind the last
//! whole value; and a 1. If more than one value in four is an exception: the bytes as they are, and a 0.

use super::word::Word;
use crate::array::{Spacing, whole};
use crate::error::{Error, Result};

/// A value, or the number it is a multiple by.
trait Quantized: Word {
    /// The number, if the value is just that multiple.
    fn number(self, spacing: f64, scale: f64) -> Option<Self>;
    /// The multiple by a number.
    fn multiple(self, spacing: f64) -> Self;
    fn of_count(count: u32) -> Self;
    fn count(self) -> u64;
}

macro_rules! value {
    ($word:ty, $signed:ty, $float:ty, $most:literal) => {
        impl Quantized for $word {
            #[inline(always)]
            fn number(self, spacing: f64, scale: f64) -> Option<Self> {
                let count = whole(f64::from(<$float>::from_bits(self)) * scale);
                let number = count as $signed as $word;
                let found = count.abs() < $most && number.multiple(spacing) == self;
                found.then_some(number)
            }
            #[inline(always)]
            fn multiple(self, spacing: f64) -> Self {
                ((self as $signed as f64 * spacing) as $float).to_bits()
            }
            fn of_count(count: u32) -> Self {
                <$word>::from(count)
            }
            fn count(self) -> u64 {
                u64::from(self)
            }
        }
    };
}
value!(u32, i32, f32, 2_147_483_648.0);
value!(u64, i64, f64, 1_125_899_906_842_624.0);

/// Meanings of the last byte.
const AS_IT_IS: u8 = 0;
const NUMBERS: u8 = 1;

pub(super) fn encode(raw: &[u8], size: u8, spacing: Spacing) -> Vec<u8> {
    let encoded = match size {
        4 => numbers::<u32>(raw, spacing.get()),
        _ => numbers::<u64>(raw, spacing.get()),
    };
    encoded.unwrap_or_else(|| [raw, &[AS_IT_IS]].concat())
}

/// Nothing if there are too many exceptions.
fn numbers<V: Quantized>(raw: &[u8], spacing: f64) -> Option<Vec<u8>> {
    let values = raw.chunks_exact(V::BYTES);
    let (left, most) = (values.remainder(), values.len() / 4);
    let scale = 1.0 / spacing;
    let mut out = vec![0; values.len() * V::BYTES];
    let mut exceptions: Vec<(u32, V)> = Vec::new();
    let (mut last, mut between) = (V::default(), 0);
    for (value, out) in values.map(V::read).zip(out.chunks_exact_mut(V::BYTES)) {
        match value.number(spacing, scale) {
            Some(number) => {
                last = number;
                between += 1;
            }
            None if exceptions.len() == most => return None,
            None => exceptions.push((std::mem::take(&mut between), value)),
        }
        last.put(out);
    }
    let places = exceptions.iter().map(|(between, _)| V::of_count(*between));
    for word in places.chain(exceptions.iter().map(|(_, value)| *value)) {
        let from = out.len();
        out.resize(from + V::BYTES, 0);
        word.put(&mut out[from..]);
    }
    out.extend_from_slice(left);
    out.push(NUMBERS);
    Some(out)
}

pub(super) fn decode(encoded: &[u8], raw: &mut [u8], size: u8, spacing: Spacing) -> Result<()> {
    let bad = || Error::damaged("a frame of multiples does not decode");
    let (kind, encoded) = encoded.split_last().ok_or_else(bad)?;
    let decoded = match (*kind, size) {
        (AS_IT_IS, _) if encoded.len() == raw.len() => {
            raw.copy_from_slice(encoded);
            Some(())
        }
        (NUMBERS, 4) => values::<u32>(encoded, raw, spacing.get()),
        (NUMBERS, _) => values::<u64>(encoded, raw, spacing.get()),
        _ => None,
    };
    decoded.ok_or_else(bad)
}

fn values<V: Quantized>(encoded: &[u8], raw: &mut [u8], spacing: f64) -> Option<()> {
    let (all, left) = raw.split_at_mut(raw.len() / V::BYTES * V::BYTES);
    let (numbers, rest) = encoded.split_at_checked(all.len())?;
    let (exceptions, rest) = rest.split_at_checked(rest.len().checked_sub(left.len())?)?;
    left.copy_from_slice(rest);
    for (value, number) in all.chunks_exact_mut(V::BYTES).zip(numbers.chunks_exact(V::BYTES)) {
        V::read(number).multiple(spacing).put(value);
    }
    if exceptions.len() % (2 * V::BYTES) != 0 {
        return None;
    }
    let (places, exceptions) = exceptions.split_at(exceptions.len() / 2);
    let mut at = 0u64;
    for (between, value) in places.chunks_exact(V::BYTES).zip(exceptions.chunks_exact(V::BYTES)) {
        at = at.checked_add(V::read(between).count())?;
        let from = usize::try_from(at).ok()?.checked_mul(V::BYTES)?;
        all.get_mut(from..from.checked_add(V::BYTES)?)?.copy_from_slice(value);
        at += 1;
    }
    Some(())
}

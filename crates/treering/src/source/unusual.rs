//! Numbers that no processor of today computes with as they are: long doubles and other layouts of real numbers,
//! integers of odd widths, fields of bits. They are compared by value: bits that belong to no value, such as the six bytes
//! behind a long double, do not count. Real numbers are given out as those of 128 bits (IEEE binary128) if each of them is
//! one of these, so that bounds apply to them.

use crate::error::{Error, Result};
use num_bigint::BigUint;

/// Number of decimal digits that are shown: enough to tell any two of 113 bits apart.
const DIGITS: u32 = 36;

/// Bits of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BitRange {
    swapped: bool,
    offset: u32,
    precision: u32,
    /// Whether it is a number, and has a sign.
    signed: Option<bool>,
}

/// A word of up to 16 bytes.
fn read(bytes: &[u8], swapped: bool) -> u128 {
    let mut word = [0; 16];
    let len = bytes.len().min(16);
    word[..len].copy_from_slice(&bytes[..len]);
    if swapped {
        word[..len].reverse();
    }
    u128::from_le_bytes(word)
}

fn bits(word: u128, at: u32, count: u32) -> u128 {
    match count {
        0 => 0,
        _ => word >> at & u128::MAX >> (128 - count),
    }
}

impl BitRange {
    /// From the properties of a type: offset and precision in bits.
    pub(super) fn new(
        properties: &[u8],
        swapped: bool,
        signed: Option<bool>,
        size: u64,
    ) -> Option<Self> {
        let [a, b, c, d] = *properties else { return None };
        let offset = u32::from(u16::from_le_bytes([a, b]));
        let precision = u32::from(u16::from_le_bytes([c, d]));
        let fits = (1..=16).contains(&size) && u64::from(offset + precision) <= 8 * size;
        (fits && precision > 0).then_some(BitRange { swapped, offset, precision, signed })
    }

    /// Bytes that are the same for the same value only.
    pub(super) fn value(&self, bytes: &[u8]) -> [u8; 16] {
        self.number(bytes).to_le_bytes()
    }

    /// A signed number is extended to all bits.
    fn number(&self, bytes: &[u8]) -> u128 {
        let value = bits(read(bytes, self.swapped), self.offset, self.precision);
        let unused = 128 - self.precision;
        match self.signed {
            Some(true) => ((value << unused) as i128 >> unused) as u128,
            _ => value,
        }
    }

    pub(super) fn text(&self, bytes: &[u8]) -> String {
        let value = self.number(bytes);
        match self.signed {
            Some(true) => (value as i128).to_string(),
            Some(false) => value.to_string(),
            None => format!("0x{value:0width$x}", width = self.precision.div_ceil(4) as usize),
        }
    }
}

/// The layout of a real number with a sign, a biased exponent and a mantissa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FloatLayout {
    swapped: bool,
    sign: u32,
    exponent: (u32, u32),
    mantissa: (u32, u32),
    bias: u32,
    /// Whether the first bit of the mantissa is not stored.
    implied: bool,
    /// Whether the file does not tell the layout, so that values may show that it is another one.
    guessed: bool,
}

/// Numbers that are given out with 128 bits, IEEE binary128, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuadNumbers {
    /// The bits of their fractions, if the exponent is that of binary128: then the rest of 112 is 0.
    pub(crate) fraction: Option<u32>,
}

impl QuadNumbers {
    /// The bits of a fraction.
    pub(crate) const FRACTION: u32 = 112;
}

/// A number: sign, and mantissa times a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Real {
    Zero,
    Finite { negative: bool, mantissa: u128, power: i64 },
    Infinite { negative: bool },
    NotANumber,
}

impl FloatLayout {
    /// From the properties and the bits of a type; none if its numbers are made in another way.
    pub(super) fn new(properties: &[u8], flags: &[u8], size: u64) -> Option<Self> {
        let [_, _, _, _, e_at, e_bits, m_at, m_bits, a, b, c, d] = *properties else {
            return None;
        };
        let bias = u32::from_le_bytes([a, b, c, d]);
        let exponent = (u32::from(e_at), u32::from(e_bits));
        let mantissa = (u32::from(m_at), u32::from(m_bits));
        let sign = u32::from(flags[1]);
        let width = 8 * u32::try_from(size).ok().filter(|size| *size <= 16)?;
        let (e_end, m_end) = (exponent.0 + exponent.1, mantissa.0 + mantissa.1);
        let inside = sign < width && e_end <= width && m_end <= width;
        let known = (2..=16).contains(&exponent.1) && (1..=113).contains(&mantissa.1);
        let usual = known && bias == (1u32 << (exponent.1 - 1)) - 1;
        // Order of VAX has a bit of its own; 2 is a first bit of the mantissa that is not stored.
        let implied = match (flags[0] & 0x40, flags[0] >> 4 & 3) {
            (0, 0 | 1) => false,
            (0, 2) => true,
            _ => return None,
        };
        let swapped = flags[0] & 1 != 0;
        (inside && usual).then_some(FloatLayout {
            swapped,
            sign,
            exponent,
            mantissa,
            bias,
            implied,
            guessed: false,
        })
    }

    /// The long double of x86 processors, in 12 or 16 bytes, of a file that does not tell whether it is.
    pub(super) fn x87(swapped: bool) -> Self {
        FloatLayout {
            swapped,
            sign: 79,
            exponent: (64, 15),
            mantissa: (0, 64),
            bias: 16383,
            implied: false,
            guessed: true,
        }
    }

    /// The numbers as which they are given out, if each of them is one of binary128.
    pub(super) fn quads(&self) -> Option<QuadNumbers> {
        let fraction = self.mantissa.1 - u32::from(!self.implied);
        let fits = self.exponent.1 <= 15 && fraction <= QuadNumbers::FRACTION;
        let fraction = (self.exponent.1 == 15).then_some(fraction);
        fits.then_some(QuadNumbers { fraction })
    }

    /// The number in binary128.
    pub(super) fn quad(&self, bytes: &[u8]) -> Result<u128> {
        let word = read(bytes, self.swapped);
        if self.guessed && !is_x87(word) {
            return Err(Error::usage(
                "its long doubles are not those of x86 processors, and .npy files do not tell what they are",
            )
            .hint("convert it with numpy's astype on the machine that wrote it, as to f8"));
        }
        let sign = bits(word, self.sign, 1) << 127;
        let infinity = 0x7fff << QuadNumbers::FRACTION;
        Ok(sign
            | match self.real(bytes) {
                Real::Zero => 0,
                Real::Infinite { .. } => infinity,
                Real::NotANumber => {
                    let places = self.mantissa.1 - u32::from(!self.implied);
                    let payload = bits(word, self.mantissa.0, places);
                    infinity | payload << (QuadNumbers::FRACTION - places)
                }
                Real::Finite { mantissa, power, .. } => {
                    let top = 127 - i64::from(mantissa.leading_zeros());
                    let exponent = top + power + 16383;
                    match exponent {
                        1.. => {
                            let fraction = mantissa << (i64::from(QuadNumbers::FRACTION) - top);
                            (exponent as u128) << QuadNumbers::FRACTION
                                | fraction & ((1 << QuadNumbers::FRACTION) - 1)
                        }
                        // The least numbers have no first bit.
                        _ => mantissa << (power + 16382 + i64::from(QuadNumbers::FRACTION)),
                    }
                }
            })
    }

    fn real(&self, bytes: &[u8]) -> Real {
        let word = read(bytes, self.swapped);
        let negative = bits(word, self.sign, 1) == 1;
        let exponent = bits(word, self.exponent.0, self.exponent.1) as i64;
        let mantissa = bits(word, self.mantissa.0, self.mantissa.1);
        let places = i64::from(self.mantissa.1) - i64::from(!self.implied);
        if exponent == (1 << self.exponent.1) - 1 {
            // A first bit that is stored is part of every infinity.
            let fraction = if self.implied { mantissa } else { bits(mantissa, 0, places as u32) };
            return match fraction {
                0 => Real::Infinite { negative },
                _ => Real::NotANumber,
            };
        }
        let first = if self.implied && exponent > 0 { 1u128 << self.mantissa.1 } else { 0 };
        let mantissa = mantissa | first;
        if mantissa == 0 {
            return Real::Zero;
        }
        let power = exponent.max(1) - i64::from(self.bias) - places;
        let zeros = mantissa.trailing_zeros();
        Real::Finite { negative, mantissa: mantissa >> zeros, power: power + i64::from(zeros) }
    }

    /// Bytes that are the same for the same value only; −0 is +0, and NaN is NaN.
    pub(super) fn value(&self, bytes: &[u8]) -> Vec<u8> {
        match self.real(bytes) {
            Real::Zero => vec![0],
            Real::Infinite { negative } => vec![1, negative.into()],
            Real::NotANumber => vec![2],
            Real::Finite { negative, mantissa, power } => {
                let mut value = vec![3, negative.into()];
                value.extend(mantissa.to_le_bytes());
                value.extend(power.to_le_bytes());
                value
            }
        }
    }

    pub(super) fn text(&self, bytes: &[u8]) -> String {
        let (negative, mantissa, power) = match self.real(bytes) {
            Real::Zero => return "0".into(),
            Real::Infinite { negative } => return if negative { "-inf" } else { "inf" }.into(),
            Real::NotANumber => return "NaN".into(),
            Real::Finite { negative, mantissa, power } => (negative, mantissa, power),
        };
        format!("{}{}", if negative { "-" } else { "" }, decimal(mantissa, power))
    }
}

/// Whether a word may be a number of x86: all but the least have their first bit. A number of 128 bits that is not 0 has its
/// exponent in the padding, and bits of its fraction where one of x86 has its own: so where anything is in the padding, the
/// exponent has to be one of an f64, or that of infinity.
fn is_x87(word: u128) -> bool {
    let (first, exponent) = (bits(word, 63, 1), bits(word, 64, 15));
    let usual = exponent.abs_diff(16383) <= 1100 || exponent == 0x7fff;
    (first == 1 || exponent == 0) && (usual || bits(word, 112, 15) == 0)
}

/// mantissa · 2^power with as many digits as tell it from its neighbours.
fn decimal(mantissa: u128, power: i64) -> String {
    // The decimal exponent of the first digit, or one less.
    let bits = 128 - i64::from(mantissa.leading_zeros()) + power;
    let mut tens = ((bits - 1) as f64 * std::f64::consts::LOG10_2).floor() as i64;
    let scaled = |tens: i64| {
        let shift = i64::from(DIGITS) - 1 - tens;
        let mut number = BigUint::from(mantissa);
        let mut below = BigUint::from(1u8);
        let ten = BigUint::from(10u8).pow(shift.unsigned_abs() as u32);
        if shift >= 0 {
            number *= ten
        } else {
            below *= ten
        }
        if power >= 0 {
            number <<= power as u64
        } else {
            below <<= power.unsigned_abs()
        }
        ((number * 2u8 + &below) / (below * 2u8)).to_string()
    };
    let mut digits = scaled(tens);
    if digits.len() > DIGITS as usize {
        tens += 1;
        digits = scaled(tens);
    }
    let short = digits.trim_end_matches('0');
    let (first, rest) = short.split_at(1.min(short.len()));
    let rest = if rest.is_empty() { "0" } else { rest };
    match tens {
        0 => format!("{first}.{rest}"),
        _ => format!("{first}.{rest}e{tens}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Properties of a type: no offset, precision, exponent, mantissa, bias.
    fn layout(exponent: (u8, u8), mantissa: (u8, u8), flags: [u8; 2], size: u64) -> FloatLayout {
        let bias = (1u32 << (exponent.1 - 1)) - 1;
        let mut properties = vec![0, 0, 0, 0, exponent.0, exponent.1, mantissa.0, mantissa.1];
        properties.extend(bias.to_le_bytes());
        FloatLayout::new(&properties, &flags, size).unwrap()
    }

    /// The long double of x86, which stores the first bit of its mantissa.
    fn x87() -> FloatLayout {
        layout((64, 15), (0, 64), [0x10, 79], 16)
    }

    #[test]
    fn long_doubles_have_their_values() {
        let one = [0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f, 1, 2, 3, 4, 5, 6];
        let mut next = one;
        next[0] = 1;
        let mut padded = one;
        padded[12] = 99;
        assert_eq!(x87().text(&one), "1.0");
        assert_eq!(x87().value(&one), x87().value(&padded));
        assert_ne!(x87().value(&one), x87().value(&next));
        assert_eq!(x87().text(&next), "1.00000000000000000010842021724855044");
        let quad = layout((112, 15), (0, 112), [0x20, 127], 16);
        let mut third = 0x3ffd_5555_5555_5555_5555_5555_5555_5555u128.to_le_bytes();
        assert!(quad.text(&third).starts_with("3.33333333333333333333333333333333"));
        assert!(quad.text(&third).ends_with("e-1"));
        third[15] |= 0x80;
        assert!(quad.text(&third).starts_with("-3.33"));
        let infinity = [0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x7f, 0, 0, 0, 0, 0, 0];
        assert_eq!(x87().text(&infinity), "inf");
    }

    #[test]
    fn long_doubles_are_numbers_of_128_bits() {
        let quad = layout((112, 15), (0, 112), [0x20, 127], 16);
        for (text, bytes) in [
            ("one", 0x3fff_8000_0000_0000_0000u128),
            ("next to it", 0x3fff_8000_0000_0000_0001),
            ("two thirds", 0xbffe_aaaa_aaaa_aaaa_aaab),
            ("the least", 1),
            ("the greatest of the least", 0x7fff_ffff_ffff_ffff),
            ("the greatest", 0x7ffe_ffff_ffff_ffff_ffff),
            ("zero", 0x8000 << 64),
            ("infinity", 0x7fff_8000_0000_0000_0000),
        ] {
            let raw = bytes.to_le_bytes();
            let wide = x87().quad(&raw).unwrap();
            assert_eq!(quad.quad(&wide.to_le_bytes()).unwrap(), wide, "{text}");
            assert_eq!(quad.value(&wide.to_le_bytes()), x87().value(&raw), "{text}");
        }
        assert_eq!(x87().quad(&(0x8000u128 << 64).to_le_bytes()).unwrap(), 1 << 127);
        let nan = x87().quad(&0x7fff_c000_0000_0000_0001u128.to_le_bytes()).unwrap();
        assert_eq!(quad.real(&nan.to_le_bytes()), Real::NotANumber);
        // Padding does not count, unless the number is of another kind.
        let one = 0x3fff_8000_0000_0000_0000u128;
        let guessed = FloatLayout::x87(false);
        assert_eq!(guessed.quad(&(one | 99 << 100).to_le_bytes()).unwrap(), 0x3fff << 112);
        assert!(guessed.quad(&(0x3fffu128 << 112).to_le_bytes()).is_err());
        // Twice a value, of 128 bits, of which the first 80 would be a number of x86.
        let twice = 0x4000_1234_5678_9abc_8000_0000_0000_0001u128;
        assert!(guessed.quad(&twice.to_le_bytes()).is_err());
        let third = 0x3ffd_5555_5555_5555_5555_5555_5555_5555u128;
        assert!(guessed.quad(&third.to_le_bytes()).is_err());
        assert_eq!(quad.quad(&third.to_le_bytes()).unwrap(), third);
    }

    proptest! {
        /// The general rule gives an f64 its own value.
        #[test]
        fn the_general_rule_holds_for_f64(word: u64, swapped: bool) {
            let flags = if swapped { 0x21 } else { 0x20 };
            let f64s = layout((52, 11), (0, 52), [flags, 63], 8);
            let value = f64::from_bits(word);
            let bytes = if swapped { word.to_be_bytes() } else { word.to_le_bytes() };
            match f64s.real(&bytes) {
                Real::Zero => prop_assert_eq!(value, 0.0),
                Real::NotANumber => prop_assert!(value.is_nan()),
                Real::Infinite { negative } => {
                    prop_assert!(value.is_infinite() && negative == value.is_sign_negative());
                }
                Real::Finite { .. } => {
                    prop_assert_eq!(f64s.text(&bytes).parse::<f64>().unwrap(), value);
                }
            }
        }

        #[test]
        fn bits_are_those_of_the_number(value: i32, offset in 0u16..4, precision in 1u16..28, swapped: bool) {
            let properties = [offset.to_le_bytes(), precision.to_le_bytes()].concat();
            let shifted = value << offset;
            let bytes = if swapped { shifted.to_be_bytes() } else { shifted.to_le_bytes() };
            let range = BitRange::new(&properties, swapped, Some(true), 4).unwrap();
            let expected = i128::from(value) << (128 - precision) >> (128 - precision);
            prop_assert_eq!(range.text(&bytes), expected.to_string());
            let flags = BitRange::new(&properties, swapped, None, 4).unwrap();
            let expected = value as u32 & ((1u32 << precision) - 1);
            prop_assert_eq!(u128::from_str_radix(&flags.text(&bytes)[2..], 16).unwrap(), expected.into());
        }
    }
}

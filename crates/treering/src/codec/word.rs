//! Values as integers, as predictions and differences need them.

/// An integer of some size.
pub(super) trait Word: Copy + Default {
    const BYTES: usize;
    fn read(raw: &[u8]) -> Self;
    fn put(self, out: &mut [u8]);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// The number with more bits, and back.
    fn wide(self) -> u64;
    fn of_wide(number: u64) -> Self;
    /// Number of bits without leading zeros.
    fn bits(self) -> u32;
    fn fold(self) -> Self;
    fn unfold(self) -> Self;
    /// A word whose order is that of the number.
    fn ordered(self) -> Self;
    fn unordered(self) -> Self;
    /// The sum of floating-point numbers less others, in their order; the first of them if that is
    /// no number. Words that are none have no such sum.
    fn float_sum(plus: &[Self], minus: &[Self]) -> Self;
}

macro_rules! word {
    ($word:ty, $signed:ty, $float_sum:expr) => {
        impl Word for $word {
            const BYTES: usize = size_of::<$word>();
            #[inline(always)]
            fn read(raw: &[u8]) -> Self {
                let mut bytes = [0; Self::BYTES];
                bytes.copy_from_slice(raw);
                <$word>::from_le_bytes(bytes)
            }
            #[inline(always)]
            fn put(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn wide(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn of_wide(number: u64) -> Self {
                number as $word
            }
            #[inline(always)]
            fn bits(self) -> u32 {
                <$word>::BITS - self.leading_zeros()
            }
            #[inline(always)]
            fn fold(self) -> Self {
                (self << 1) ^ (self as $signed >> (<$word>::BITS - 1)) as $word
            }
            #[inline(always)]
            fn unfold(self) -> Self {
                (self >> 1) ^ (0 as $word).wrapping_sub(self & 1)
            }
            #[inline(always)]
            fn ordered(self) -> Self {
                let negative = (self as $signed >> (<$word>::BITS - 1)) as $word;
                self ^ (negative | 1 << (<$word>::BITS - 1))
            }
            #[inline(always)]
            fn unordered(self) -> Self {
                let positive = (self as $signed >> (<$word>::BITS - 1)) as $word;
                self ^ (!positive | 1 << (<$word>::BITS - 1))
            }
            #[inline(always)]
            fn float_sum(plus: &[Self], minus: &[Self]) -> Self {
                $float_sum(plus, minus)
            }
        }
    };
}

macro_rules! float_sum {
    ($float:ty) => {
        |plus: &[_], minus: &[_]| {
            let (first, rest) = (plus[0], &plus[1..]);
            let sum = rest
                .iter()
                .fold(<$float>::from_bits(first), |sum, word| sum + <$float>::from_bits(*word));
            let sum = minus.iter().fold(sum, |sum, word| sum - <$float>::from_bits(*word));
            // NaN has no bits of its own on every machine.
            if sum.is_finite() { sum.to_bits() } else { first }
        }
    };
}

word!(u8, i8, |plus: &[u8], _: &[u8]| plus[0]);
word!(u16, i16, |plus: &[u16], _: &[u16]| plus[0]);
word!(u32, i32, float_sum!(f32));
word!(u64, i64, float_sum!(f64));

//! Values as integers, as predictions and differences need them.

/// An integer of some size.
pub(super) trait Word: Copy + Default {
    const BYTES: usize;
    fn read(raw: &[u8]) -> Self;
    fn put(self, out: &mut [u8]);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn fold(self) -> Self;
    fn unfold(self) -> Self;
    /// Such that greater numbers have greater words.
    fn ordered(self) -> Self;
    fn unordered(self) -> Self;
}

macro_rules! word {
    ($word:ty, $signed:ty) => {
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
        }
    };
}

word!(u8, i8);
word!(u16, i16);
word!(u32, i32);
word!(u64, i64);

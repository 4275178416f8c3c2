//! Streams of bits, read in the two orders in which filters write them.

/// The mask of the lowest bits.
fn low(count: u32) -> u64 {
    u64::MAX.checked_shr(64 - count).unwrap_or(0)
}

/// Up to eight bytes from a place on, followed by zeros.
fn window(bytes: &[u8], from: usize) -> [u8; 8] {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.first_chunk().copied().unwrap_or_else(|| {
        let mut some = [0; 8];
        some[..rest.len()].copy_from_slice(rest);
        some
    })
}

/// A stream in which the high bit of a byte comes first.
pub(super) struct HighBits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> HighBits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        HighBits { bytes, at: 0 }
    }

    /// The next bits as a number, at most 64 of them. `None`: the stream is shorter.
    pub(super) fn take(&mut self, count: u32) -> Option<u64> {
        if count > 56 {
            let high = self.take(count - 32)?;
            return Some(high << 32 | self.take(32)?);
        }
        if count as usize > 8 * self.bytes.len() - self.at {
            return None;
        }
        let bits = u64::from_be_bytes(window(self.bytes, self.at / 8)) << (self.at % 8);
        self.at += count as usize;
        Some(bits.checked_shr(64 - count).unwrap_or(0))
    }

    /// The number of zeros before the next one, behind which the stream goes on.
    pub(super) fn zeros(&mut self) -> Option<u64> {
        let first = self.at;
        loop {
            let bits = u64::from_be_bytes(window(self.bytes, self.at / 8)) << (self.at % 8);
            if bits != 0 {
                self.at += bits.leading_zeros() as usize;
                let zeros = self.at - first;
                self.at += 1;
                return Some(zeros as u64);
            }
            self.at = (self.at / 8 + 8) * 8;
            if self.at >= 8 * self.bytes.len() {
                self.at = 8 * self.bytes.len();
                return None;
            }
        }
    }
}

/// A stream in which the low bit of a byte comes first, and the low bits of a number.
pub(super) struct LowBits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> LowBits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        LowBits { bytes, at: 0 }
    }

    /// The next bits as a number, at most 64 of them. `None`: the stream is shorter.
    pub(super) fn take(&mut self, count: u32) -> Option<u64> {
        if count > 56 {
            let first = self.take(32)?;
            return Some(self.take(count - 32)? << 32 | first);
        }
        let end = self.at.checked_add(count as usize)?;
        if end > 8 * self.bytes.len() {
            return None;
        }
        let bits = u64::from_le_bytes(window(self.bytes, self.at / 8)) >> (self.at % 8);
        self.at = end;
        Some(bits & low(count))
    }

    /// The next bit.
    pub(super) fn bit(&mut self) -> Option<bool> {
        let bit = self.bytes.get(self.at / 8)? >> (self.at % 8) & 1;
        self.at += 1;
        Some(bit != 0)
    }

    /// Leaves out bits, which need not be there.
    pub(super) fn skip(&mut self, count: usize) {
        self.at = self.at.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bits by their places, one by one.
    fn slowly(bytes: &[u8], high_first: bool) -> Vec<bool> {
        let bit =
            |at: usize| bytes[at / 8] >> if high_first { 7 - at % 8 } else { at % 8 } & 1 != 0;
        (0..8 * bytes.len()).map(bit).collect()
    }

    proptest! {
        #[test]
        fn numbers_are_their_bits(bytes in proptest::collection::vec(any::<u8>(), 0..40),
                                  counts in proptest::collection::vec(0u32..=64, 0..20)) {
            let (mut high, mut low) = (HighBits::new(&bytes), LowBits::new(&bytes));
            let mut at = 0;
            for count in counts {
                let bits = |all: Vec<bool>| all.get(at..at + count as usize).map(<[bool]>::to_vec);
                let number = |all: Vec<bool>| all.iter().fold(0u64, |n, bit| n << 1 | u64::from(*bit));
                let expected = bits(slowly(&bytes, true)).map(number);
                prop_assert_eq!(high.take(count), expected);
                let expected = bits(slowly(&bytes, false)).map(|mut all| { all.reverse(); number(all) });
                prop_assert_eq!(low.take(count), expected);
                if expected.is_none() {
                    break;
                }
                at += count as usize;
            }
        }

        #[test]
        fn runs_of_zeros_are_counted(bytes in proptest::collection::vec(prop_oneof![4 => Just(0u8), 1 => any::<u8>()], 0..60)) {
            let all = slowly(&bytes, true);
            let mut runs: Vec<usize> = all.split(|bit| *bit).map(<[bool]>::len).collect();
            runs.pop();
            let mut stream = HighBits::new(&bytes);
            for run in runs {
                prop_assert_eq!(stream.zeros(), Some(run as u64));
            }
            prop_assert_eq!(stream.zeros(), None);
        }
    }
}

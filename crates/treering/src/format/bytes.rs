//! Little-endian numbers, varints and strings, written to and read from byte slices.

use crate::error::{Error, ErrorKind, Result};
use crate::merkle::{Digest, digest};

/// Collects bytes.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    /// Begins a file: its magic number and the version.
    pub(crate) fn file(magic: &[u8; 8]) -> Self {
        let mut writer = Writer::default();
        writer.raw(magic);
        writer.raw(&super::VERSION.to_le_bytes());
        writer
    }

    /// Ends a file: the digest of all that went before.
    pub(crate) fn sealed(mut self) -> Vec<u8> {
        let digest = digest(&self.0);
        self.digest(digest);
        self.0
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    pub(crate) fn digest(&mut self, value: Digest) {
        self.raw(&value.to_bytes());
    }

    /// Seven bits a byte, low bits first.
    pub(crate) fn int(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    /// A signed number: small magnitudes take few bytes.
    pub(crate) fn signed(&mut self, value: i64) {
        self.int((value << 1 ^ value >> 63) as u64);
    }

    pub(crate) fn ints(&mut self, values: &[u64]) {
        self.int(values.len() as u64);
        values.iter().for_each(|v| self.int(*v));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.int(bytes.len() as u64);
        self.raw(bytes);
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }
}

/// The number at the beginning of eight bytes, and how many of them it takes; `None` if it goes on behind them.
#[inline]
fn int_of(word: u64) -> Option<(u64, usize)> {
    const ENDS: u64 = 0x8080_8080_8080_8080;
    let end = (!word & ENDS).trailing_zeros();
    if end == u64::BITS {
        return None;
    }
    // Groups of seven bits are joined to pairs, the pairs to fours, and these to one number.
    let groups = word & !ENDS & (u64::MAX >> (u64::BITS - 1 - end));
    let pairs = groups & 0x007f_007f_007f_007f | (groups & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    let value = fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4;
    Some((value, end as usize / 8 + 1))
}

/// Reads bytes; every method fails instead of reading past the end.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// Checks magic number, version and closing digest, and reads what lies between.
    pub(crate) fn file(bytes: &'a [u8], magic: &[u8; 8], what: &str) -> Result<Self> {
        if bytes.len() < 26 || &bytes[..8] != magic {
            return Err(Error::damaged(format!("not a {what}")));
        }
        let (body, seal) = bytes.split_at(bytes.len() - 16);
        check_version_of([bytes[8], bytes[9]], || {
            let own = [&magic[..], &super::VERSION.to_le_bytes(), &body[10..]].concat();
            digest(&own).to_bytes() == *seal
        })?;
        if digest(body).to_bytes() != *seal {
            return Err(Error::damaged(format!("the digest of this {what} does not match")));
        }
        Ok(Reader::new(&body[10..]))
    }

    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(len) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => Err(Error::damaged("the data ends too early")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.raw(N)?);
        Ok(out)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn digest(&mut self) -> Result<Digest> {
        Ok(Digest([self.u64()?, self.u64()?]))
    }

    #[inline]
    pub(crate) fn int(&mut self) -> Result<u64> {
        // Most numbers of a delta are small.
        if let Some((&byte, tail)) = self.rest.split_first()
            && byte < 0x80
        {
            self.rest = tail;
            return Ok(u64::from(byte));
        }
        if let Some(word) = self.rest.first_chunk::<8>()
            && let Some((value, len)) = int_of(u64::from_le_bytes(*word))
        {
            self.rest = &self.rest[len..];
            return Ok(value);
        }
        self.long_int()
    }

    fn long_int(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::damaged("a number is too long"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64> {
        let value = self.int()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        u32::try_from(self.int()?).map_err(|_| Error::damaged("a number is too large"))
    }

    /// A count of things that take at least one byte each, so it cannot exceed what is left.
    pub(crate) fn count(&mut self) -> Result<usize> {
        match usize::try_from(self.int()?) {
            Ok(count) if count <= self.rest.len() => Ok(count),
            _ => Err(Error::damaged("a count is larger than the data")),
        }
    }

    pub(crate) fn ints(&mut self) -> Result<Vec<u64>> {
        let count = self.count()?;
        (0..count).map(|_| self.int()).collect()
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.count()?;
        self.raw(len)
    }

    pub(crate) fn string(&mut self) -> Result<String> {
        match std::str::from_utf8(self.bytes()?) {
            Ok(text) => Ok(text.to_string()),
            Err(_) => Err(Error::damaged("a name is not UTF-8")),
        }
    }

    /// Whether everything has been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Everything must have been read.
    pub(crate) fn end(self) -> Result<()> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(Error::damaged("there is more data than expected")),
        }
    }
}

/// Refuses versions that this release does not know.
pub(crate) fn check_version(bytes: [u8; 2]) -> Result<()> {
    let version = u16::from_le_bytes(bytes);
    match version {
        0 => Err(Error::damaged("format version 0 does not exist")),
        v if v > super::VERSION => Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "this was written in format version {v}, and this release reads up to {}",
                super::VERSION
            ),
        )
        .hint("use a newer release of treering")),
        _ => Ok(()),
    }
}

/// The same of a file that has a digest. If it fits to what it would be in this release's version, the version itself is
/// damaged: then nobody is to look for a newer release, and another copy or something older serves.
pub(crate) fn check_version_of(bytes: [u8; 2], fits_own: impl FnOnce() -> bool) -> Result<()> {
    match check_version(bytes) {
        Err(error) if error.kind() == ErrorKind::Mismatch && fits_own() => {
            Err(Error::damaged("the version in the head of a file is damaged"))
        }
        checked => checked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_return(values in proptest::collection::vec(any::<u64>(), 0..50), shift in 0u32..64) {
            let mut writer = Writer::default();
            for value in &values {
                writer.int(value >> shift);
                writer.signed((*value as i64) >> shift);
            }
            writer.ints(&values);
            let mut reader = Reader::new(&writer.0);
            for value in &values {
                prop_assert_eq!(reader.int().unwrap(), value >> shift);
                prop_assert_eq!(reader.signed().unwrap(), (*value as i64) >> shift);
            }
            prop_assert_eq!(reader.ints().unwrap(), values);
            prop_assert!(reader.end().is_ok());
        }
    }

    /// Every flip of a bit of the version is damage, and a file of a newer release is none.
    #[test]
    fn a_damaged_version_is_told_apart_from_a_newer_one() {
        let kind = |bytes: &[u8]| Reader::file(bytes, b"TREETEST", "test").err().map(|e| e.kind());
        let mut file = Writer::file(b"TREETEST");
        file.string("something");
        let file = file.sealed();
        assert_eq!(kind(&file), None);
        for bit in 0..16 {
            let mut bad = file.clone();
            bad[8 + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(kind(&bad), Some(ErrorKind::Damaged), "bit {bit}");
        }
        let mut newer = file[..file.len() - 16].to_vec();
        newer[8..10].copy_from_slice(&(crate::format::VERSION + 1).to_le_bytes());
        assert_eq!(kind(&Writer(newer).sealed()), Some(ErrorKind::Mismatch));
    }

    #[test]
    fn a_number_of_eleven_bytes_is_refused() {
        assert!(Reader::new(&[0xff; 11]).int().is_err());
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).int().unwrap(),
            u64::MAX
        );
        assert!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).int().is_err()
        );
    }
}

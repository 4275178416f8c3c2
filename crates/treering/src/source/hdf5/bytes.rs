//! Reading the metadata of a file: numbers of several widths, addresses, and a limit to it all.

use crate::error::{Error, Result};
use crate::source::Extent;
use crate::store::Blob;
use std::cell::{Cell, RefCell};

/// No piece of metadata is longer.
const MOST_AT_ONCE: u64 = 1 << 26;

/// The widths and the beginning of a file's addresses.
pub(super) struct Meta<'a> {
    pub(super) whole: &'a Extent,
    pub(super) base: u64,
    /// Bytes of an address.
    pub(super) offsets: usize,
    /// Bytes of a length.
    pub(super) lengths: usize,
    /// Bytes that may still be read: structures that point to each other would be read for ever.
    fuel: Cell<u64>,
    /// Where all that was read lies in the file.
    heads: RefCell<Vec<(u64, u64)>>,
    /// Where messages of the file itself are, if there are any.
    pub(super) extension: Option<u64>,
}

impl<'a> Meta<'a> {
    pub(super) fn new(whole: &'a Extent, base: u64, offsets: u8, lengths: u8) -> Result<Self> {
        let known = |width| [2, 4, 8].contains(&width);
        if !known(offsets) || !known(lengths) {
            return Err(Error::damaged("addresses of this HDF5 file have an impossible width"));
        }
        let fuel = Cell::new(whole.size().saturating_mul(4).saturating_add(1 << 20));
        Ok(Meta {
            whole,
            base,
            offsets: offsets.into(),
            lengths: lengths.into(),
            fuel,
            heads: RefCell::default(),
            extension: None,
        })
    }

    /// Bytes at an address.
    pub(super) fn read(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let fuel = self.fuel.get().checked_sub(len.saturating_add(16));
        let fuel = fuel.filter(|_| len <= MOST_AT_ONCE);
        self.fuel
            .set(fuel.ok_or_else(|| Error::damaged("the metadata of this HDF5 file has no end"))?);
        let at = self.place(at)?;
        let part = self.whole.part(at, len)?;
        let mut bytes = vec![0; len as usize];
        part.read_at(0, &mut bytes)?;
        self.heads.borrow_mut().push((at, len));
        Ok(bytes)
    }

    /// Where all that was read lies in the file: places and lengths.
    pub(super) fn heads(&self) -> Vec<(u64, u64)> {
        self.heads.take()
    }

    /// Bytes at an address with the checksum behind them, which is checked.
    pub(super) fn checked(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = self.read(at, len.saturating_add(4))?;
        check(&bytes)?;
        bytes.truncate(len as usize);
        Ok(bytes)
    }

    /// Where an address is in the file.
    pub(super) fn place(&self, at: u64) -> Result<u64> {
        at.checked_add(self.base).ok_or_else(|| Error::damaged("an address is out of the file"))
    }

    /// Reads and checks a signature.
    pub(super) fn signed(&self, at: u64, len: u64, signature: &[u8; 4]) -> Result<Vec<u8>> {
        let bytes = self.read(at, len)?;
        match bytes.starts_with(signature) {
            true => Ok(bytes),
            false => Err(Error::damaged(format!(
                "{} is missing in this HDF5 file",
                String::from_utf8_lossy(signature)
            ))),
        }
    }

    /// The same with a checksum behind.
    pub(super) fn sealed(&self, at: u64, len: u64, signature: &[u8; 4]) -> Result<Vec<u8>> {
        let mut bytes = self.signed(at, len.saturating_add(4), signature)?;
        check(&bytes)?;
        bytes.truncate(len as usize);
        Ok(bytes)
    }

    pub(super) fn cursor<'b>(&self, bytes: &'b [u8]) -> MetaCursor<'b> {
        MetaCursor { rest: bytes, offsets: self.offsets, lengths: self.lengths }
    }
}

/// Holds the last four bytes against the others, whose checksum they are.
pub(super) fn check(bytes: &[u8]) -> Result<()> {
    let wrong = || Error::damaged("a checksum of this HDF5 file does not match");
    let (bytes, sum) = bytes.split_last_chunk().ok_or_else(wrong)?;
    // No fuzzer finds sums.
    match cfg!(fuzzing) || lookup3(bytes) == u32::from_le_bytes(*sum) {
        true => Ok(()),
        false => Err(wrong()),
    }
}

/// Jenkins' hash of 2006 (lookup3), by which HDF5 sums up its metadata. Its three words take turns.
pub(crate) fn lookup3(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let [mut a, mut b, mut c] = [start; 3];
    let mut blocks = bytes.chunks(12).peekable();
    while let Some(block) = blocks.next() {
        let mut words = [[0; 4]; 3];
        words.as_flattened_mut()[..block.len()].copy_from_slice(block);
        let [x, y, z] = words.map(u32::from_le_bytes);
        (a, b, c) = (a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z));
        if blocks.peek().is_some() {
            for by in [4, 6, 8, 16, 19, 4] {
                a = a.wrapping_sub(c) ^ c.rotate_left(by);
                c = c.wrapping_add(b);
                (a, b, c) = (b, c, a);
            }
        } else {
            for by in [14, 11, 25, 16, 4, 14, 24] {
                c = (c ^ b).wrapping_sub(b.rotate_left(by));
                (a, b, c) = (b, c, a);
            }
            return b;
        }
    }
    c
}

/// Bytes that are read from the front.
#[derive(Clone)]
pub(super) struct MetaCursor<'b> {
    pub(super) rest: &'b [u8],
    offsets: usize,
    lengths: usize,
}

impl<'b> MetaCursor<'b> {
    /// Bytes without addresses.
    pub(super) fn of(bytes: &'b [u8]) -> Self {
        MetaCursor { rest: bytes, offsets: 8, lengths: 8 }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'b [u8]> {
        let cut = || Error::damaged("metadata of this HDF5 file is cut short");
        let (now, later) = self.rest.split_at_checked(len).ok_or_else(cut)?;
        self.rest = later;
        Ok(now)
    }

    pub(super) fn skip(&mut self, len: usize) -> Result<()> {
        self.take(len).map(|_| ())
    }

    /// A number of up to eight bytes.
    pub(super) fn uint(&mut self, width: usize) -> Result<u64> {
        if width > 8 {
            return Err(Error::damaged("a number of this HDF5 file is too wide"));
        }
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(self.take(width)?);
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.uint(1)? as u8)
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(self.uint(2)? as u16)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(self.uint(4)? as u32)
    }

    pub(super) fn length(&mut self) -> Result<u64> {
        self.uint(self.lengths)
    }

    /// An address; none if it is undefined.
    pub(super) fn address(&mut self) -> Result<Option<u64>> {
        match self.uint(self.offsets)? {
            value if value == u64::MAX >> (64 - 8 * self.offsets) => Ok(None),
            // No file is so large, and sums of addresses and lengths stay numbers.
            value if value >> 62 != 0 => Err(Error::damaged("an address is out of the file")),
            value => Ok(Some(value)),
        }
    }

    /// An address that must be there.
    pub(super) fn defined(&mut self) -> Result<u64> {
        self.address()?.ok_or_else(|| Error::damaged("an address of this HDF5 file is undefined"))
    }

    /// Text up to a zero, and the zero; as many bytes as `multiple` asks for.
    pub(super) fn name(&mut self, multiple: usize) -> Result<&'b [u8]> {
        let len = self.rest.iter().position(|byte| *byte == 0);
        let len = len.ok_or_else(|| Error::damaged("a name of this HDF5 file has no end"))?;
        let name = self.take((len + 1).next_multiple_of(multiple))?;
        Ok(&name[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_their_author() {
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
        let mut bytes = b"twelve bytes".to_vec();
        bytes.extend(lookup3(b"twelve bytes").to_le_bytes());
        check(&bytes).unwrap();
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert!(check(&wrong).is_err());
        }
        assert!(check(&[1, 2, 3]).is_err());
    }
}

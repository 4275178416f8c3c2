//! Compressors that copy earlier output, as HDF5 filters frame them: LZF, LZ4, LZO, BloscLZ, Snappy; and zstd
//! and bzip2.

use super::{broken, inflate};
use crate::error::Result;
use bzip2::{Decompress, Status};

/// Takes bytes from the front of a stream.
struct LzInput<'a>(&'a [u8]);

impl<'a> LzInput<'a> {
    fn byte(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(usize::from(*first))
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn big_endian(&mut self, width: usize) -> Option<u64> {
        Some(self.bytes(width)?.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }
}

/// LzOutput of a limited length.
struct LzOutput {
    bytes: Vec<u8>,
    most: usize,
}

impl LzOutput {
    fn new(most: usize) -> Self {
        LzOutput { bytes: Vec::new(), most }
    }

    fn add(&mut self, bytes: &[u8]) -> Option<()> {
        (bytes.len() <= self.most - self.bytes.len()).then(|| self.bytes.extend_from_slice(bytes))
    }

    /// Repeats earlier output from this many bytes back on. The copy may overlap itself.
    fn repeat(&mut self, back: usize, len: usize) -> Option<()> {
        let start = self.bytes.len().checked_sub(back).filter(|_| back > 0)?;
        if len > self.most - self.bytes.len() {
            return None;
        }
        if back >= len {
            self.bytes.extend_from_within(start..start + len);
        } else {
            for at in start..start + len {
                self.bytes.push(self.bytes[at]);
            }
        }
        Some(())
    }
}

/// The LZF of h5py.
pub(super) fn lzf(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let mut out = LzOutput::new(most);
    let mut input = LzInput(bytes);
    while !input.0.is_empty() {
        lzf_step(&mut input, &mut out).ok_or_else(|| broken("LZF"))?;
    }
    Ok(out.bytes)
}

fn lzf_step(input: &mut LzInput, out: &mut LzOutput) -> Option<()> {
    let control = input.byte()?;
    if control < 32 {
        return out.add(input.bytes(control + 1)?);
    }
    let mut len = control >> 5;
    if len == 7 {
        len += input.byte()?;
    }
    let back = (control & 31) << 8 | input.byte()?;
    out.repeat(back + 1, len + 2)
}

/// The LZO of PyTables: one stream of LZO1X, as the documentation of Linux describes it.
pub(super) fn lzo(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let mut stream = Lzo { input: LzInput(bytes), out: LzOutput::new(most), literals: 0 };
    let mut more = stream.begin();
    while let Some(true) = more {
        more = stream.step();
    }
    // An end that is marked, and nothing behind it.
    match more {
        Some(false) if stream.input.0.is_empty() => Ok(stream.out.bytes),
        _ => Err(broken("LZO")),
    }
}

/// A stream of LZO1X. The meaning of a short instruction depends on the number of bytes that the one before it copied
/// from the stream.
struct Lzo<'a> {
    input: LzInput<'a>,
    out: LzOutput,
    /// 0 to 3 behind a copy of earlier output, 4 behind a longer run of bytes.
    literals: usize,
}

impl Lzo<'_> {
    /// A first instruction above 17 is a run of bytes.
    fn begin(&mut self) -> Option<bool> {
        if *self.input.0.first()? > 17 {
            let run = self.input.byte()? - 17;
            self.run(run)?;
        }
        Some(true)
    }

    fn run(&mut self, count: usize) -> Option<()> {
        self.literals = count.min(4);
        self.out.add(self.input.bytes(count)?)
    }

    /// A length of this many bits, or one more than these can hold, in bytes behind the instruction.
    fn length(&mut self, control: usize, bits: u32) -> Option<usize> {
        let most = (1 << bits) - 1;
        if control & most > 0 {
            return Some(control & most);
        }
        let mut len = most;
        loop {
            match self.input.byte()? {
                0 => len += 255,
                last => return Some(len + last),
            }
        }
    }

    /// One instruction; whether there are more.
    fn step(&mut self) -> Option<bool> {
        let control = self.input.byte()?;
        let (len, back, run) = match control {
            0..16 if self.literals == 0 => {
                let run = self.length(control, 4)? + 3;
                self.run(run)?;
                return Some(true);
            }
            0..16 => {
                let back = self.input.byte()? << 2 | control >> 2;
                match self.literals {
                    4 => (3, back + 2049, control),
                    _ => (2, back + 1, control),
                }
            }
            16..64 => {
                let far = control < 32;
                let len = self.length(control, if far { 3 } else { 5 })? + 2;
                let word = self.input.byte()? | self.input.byte()? << 8;
                let back = if far { (control & 8) << 11 | word >> 2 } else { word >> 2 };
                match (far, back) {
                    (true, 0) => return Some(false),
                    (true, _) => (len, back + 16384, word),
                    (false, _) => (len, back + 1, word),
                }
            }
            _ => {
                let len =
                    if control < 128 { 3 + (control >> 5 & 1) } else { 5 + (control >> 5 & 3) };
                (len, (self.input.byte()? << 3 | control >> 2 & 7) + 1, control)
            }
        };
        self.out.repeat(back, len)?;
        self.run(run & 3)?;
        Some(true)
    }
}

/// One stream of BloscLZ.
pub(super) fn blosclz(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let mut out = LzOutput::new(most);
    let mut input = LzInput(bytes);
    let mut first = true;
    while !input.0.is_empty() {
        blosclz_step(&mut input, &mut out, first).ok_or_else(|| broken("BloscLZ"))?;
        first = false;
    }
    Ok(out.bytes)
}

/// The longest distance that fits 13 bits; longer ones have 16 more.
const BLOSCLZ_FAR: usize = 8191;

fn blosclz_step(input: &mut LzInput, out: &mut LzOutput, first: bool) -> Option<()> {
    // A stream begins with bytes as they are; the high bits of its first control byte are a version.
    let control = input.byte()? & if first { 31 } else { 255 };
    if control < 32 {
        return out.add(input.bytes(control + 1)?);
    }
    let mut len = (control >> 5) + 2;
    if control >> 5 == 7 {
        loop {
            let more = input.byte()?;
            len = len.checked_add(more)?;
            if more < 255 {
                break;
            }
        }
    }
    let mut back = (control & 31) << 8 | input.byte()?;
    if back == BLOSCLZ_FAR {
        back += input.big_endian(2)? as usize;
    }
    out.repeat(back + 1, len)
}

/// A stream of Snappy, which old versions of Blosc have.
pub(super) fn snappy(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let wrong = || broken("Snappy");
    let mut out = LzOutput::new(most);
    let mut input = LzInput(bytes);
    // The length, seven bits in a byte.
    while input.byte().ok_or_else(wrong)? >= 128 {}
    while !input.0.is_empty() {
        snappy_step(&mut input, &mut out).ok_or_else(wrong)?;
    }
    Ok(out.bytes)
}

fn snappy_step(input: &mut LzInput, out: &mut LzOutput) -> Option<()> {
    let tag = input.byte()?;
    let mut little = |width: usize| {
        let bytes = input.bytes(width)?;
        Some(bytes.iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte)))
    };
    match tag & 3 {
        0 => {
            let len = match tag >> 2 {
                len @ 0..60 => len,
                wide => little(wide - 59)?,
            };
            out.add(input.bytes(len.checked_add(1)?)?)
        }
        1 => {
            let back = tag >> 5 << 8 | little(1)?;
            out.repeat(back, (tag >> 2 & 7) + 4)
        }
        kind => {
            let back = little(if kind == 2 { 2 } else { 4 })?;
            out.repeat(back, (tag >> 2) + 1)
        }
    }
}

/// A block of LZ4, which becomes this many bytes.
pub(super) fn lz4_block(bytes: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; len];
    match lz4_flex::block::decompress_into(bytes, &mut out) {
        Ok(made) if made == len => Ok(out),
        _ => Err(broken("LZ4")),
    }
}

/// The LZ4 filter: the length, the length of a block, and blocks with their lengths.
pub(super) fn lz4(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let wrong = || broken("LZ4");
    let mut input = LzInput(bytes);
    let len = input.big_endian(8).filter(|len| *len <= most as u64).ok_or_else(wrong)? as usize;
    let block = input.big_endian(4).ok_or_else(wrong)? as usize;
    let mut out = Vec::new();
    while out.len() < len {
        let size = block.min(len - out.len());
        let stored = input.big_endian(4).ok_or_else(wrong)? as usize;
        let stored = input.bytes(stored).filter(|_| size > 0).ok_or_else(wrong)?;
        match stored.len() == size {
            true => out.extend_from_slice(stored),
            false => out.extend(lz4_block(stored, size)?),
        }
    }
    Ok(out)
}

/// Frames of zstd.
pub(super) fn zstd(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let mut raw = Vec::with_capacity(most);
    zstd_safe::decompress(&mut raw, bytes).map_err(|_| broken("zstd"))?;
    Ok(raw)
}

/// A stream of zlib.
pub(super) fn zlib(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    inflate(bytes, most)
}

/// A stream of bzip2.
pub(super) fn bzip2(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut stream = Decompress::new(false);
    loop {
        let room = most + 1 - out.len();
        out.reserve_exact(room.min((1 << 16).max(out.len())));
        let (read, made) = (stream.total_in(), out.len());
        let rest = bytes.get(read as usize..).unwrap_or_default();
        match stream.decompress_vec(rest, &mut out) {
            Ok(Status::StreamEnd) if out.len() <= most => return Ok(out),
            Ok(_) if out.len() > most => return Err(broken("bzip2")),
            Ok(_) if stream.total_in() > read || out.len() > made => {}
            _ => return Err(broken("bzip2")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lzf_is_undone() {
        let packed = [2, b'a', b'b', b'c', 0x20, 2, 0xe0, 1, 0];
        assert_eq!(lzf(&packed, 100).unwrap(), b"abcabccccccccccc");
        assert!(lzf(&packed, 10).is_err());
        assert!(lzf(&packed[..8], 100).is_err());
    }

    #[test]
    fn lzo_is_undone() {
        // Four letters; four bytes from two back, and a letter; two bytes from five back; the end.
        let packed = [21, b'a', b'b', b'c', b'd', 0x65, 0, b'e', 0, 1, 17, 0, 0];
        assert_eq!(lzo(&packed, 100).unwrap(), b"abcdcdcdecd");
        for cut in 0..packed.len() {
            assert!(lzo(&packed[..cut], 100).is_err(), "{cut}");
        }
        assert!(lzo(&packed, 10).is_err());
        assert!(lzo(&[&packed[..], &[0]].concat(), 100).is_err());
        // A distance before the beginning.
        assert!(lzo(&[21, 1, 2, 3, 4, 0x5c, 0, 17, 0, 0], 100).is_err());
    }

    #[test]
    fn blosclz_is_undone() {
        // Three letters; six bytes from three back; a run whose length takes two bytes more.
        let packed = [0x22, b'a', b'b', b'c', 0x80, 2, 0xe0, 255, 3, 0];
        let mut expected = b"abcabcabc".to_vec();
        expected.extend([b'c'; 9 + 255 + 3]);
        assert_eq!(blosclz(&packed, 1000).unwrap(), expected);
        assert!(blosclz(&packed, expected.len() - 1).is_err());
        assert!(blosclz(&packed[..9], 1000).is_err());
        assert!(blosclz(&[0, b'a', 0x80, 2], 1000).is_err());
    }

    #[test]
    fn snappy_is_undone() {
        // The length, two letters, copies with an offset of one and of two bytes.
        let packed = [12, 1 << 2, b'a', b'b', 1 | 2 << 2, 2, 2 | 3 << 2, 1, 0];
        assert_eq!(snappy(&packed, 12).unwrap(), b"ababababbbbb");
        assert!(snappy(&packed, 11).is_err());
        assert!(snappy(&packed[..8], 12).is_err());
        assert!(snappy(&[3, 1, 9], 12).is_err());
    }

    #[test]
    fn blocks_of_lz4_may_be_stored_as_they_are() {
        let mut packed = 10u64.to_be_bytes().to_vec();
        packed.extend(8u32.to_be_bytes());
        let block = lz4_flex::block::compress(&[7; 8]);
        packed.extend((block.len() as u32).to_be_bytes());
        packed.extend(&block);
        packed.extend(2u32.to_be_bytes());
        packed.extend([1, 2]);
        assert_eq!(lz4(&packed, 10).unwrap(), [7, 7, 7, 7, 7, 7, 7, 7, 1, 2]);
        assert!(lz4(&packed, 9).is_err());
        assert!(lz4(&packed[..packed.len() - 1], 10).is_err());
    }

    #[test]
    fn bzip2_stops_at_its_limit() {
        use std::io::Read;
        let values: Vec<u8> = (0..200_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let mut packed = Vec::new();
        let mut packer = ::bzip2::read::BzEncoder::new(&values[..], ::bzip2::Compression::fast());
        packer.read_to_end(&mut packed).unwrap();
        assert_eq!(bzip2(&packed, values.len()).unwrap(), values);
        assert!(bzip2(&packed, values.len() - 1).is_err());
        assert!(bzip2(&packed[..packed.len() / 2], values.len()).is_err());
        assert!(bzip2(&[], 10).is_err());
    }
}

//! The filters that HDF5 applies to the bytes of a chunk, undone and done again.
//!
//! Deflate, shuffle and the checksum can be done again. This gives the bytes of the file only with the zlib that wrote
//! it, so the caller compares the result with the file. All other filters are only undone: what they packed is kept as
//! the bytes of the file. Decoders are bounded by the length of the chunk, whatever the stored bytes claim.

mod bits;
mod bitshuffle;
mod blosc;
mod frame;
mod lz;
mod nbit;
mod scaled;
mod szip;
mod zfp;

use crate::array::DType;
use crate::error::{Error, Result};
use crate::format::{ChunkRecipe, Filter};
use bitshuffle::Bitshuffle;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use nbit::Nbit;
use scaled::Scaled;
use szip::Szip;
use zfp::Zfp;

/// A filter as a file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// One that can be done again.
    Known(Filter),
    /// The LZF of h5py.
    Lzf,
    Lz4,
    /// The LZO of PyTables.
    Lzo,
    Zstd,
    Bzip2,
    Blosc,
    Blosc2,
    Bitshuffle(Bitshuffle),
    Scaled(Scaled),
    Nbit(Nbit),
    Szip(Szip),
    Zfp(Zfp),
    /// One that rounds values when they are written, and does nothing when they are read.
    Rounded,
}

pub(super) use crate::format::MOST_INFLATED;

/// The largest ratio at which filters other than deflate pack values that are all the same.
const MOST_UNPACKED: u64 = 1 << 20;

/// Largest size of an array of these filters, as a multiple of its stored bytes.
pub(super) fn most_inflated(codings: &[Coding]) -> u64 {
    let all_known = codings.iter().all(|coding| matches!(coding, Coding::Known(_)));
    if all_known { MOST_INFLATED } else { MOST_UNPACKED }
}

/// A chunk that cannot be decoded.
fn broken(filter: &str) -> Error {
    Error::damaged(format!("a chunk packed by {filter} could not be decoded"))
}

impl Coding {
    /// The filter of a number with its parameters, for numbers of a type whose bytes may be swapped. An error says why it
    /// is not understood.
    pub(super) fn new(number: u16, values: &[u32], dtype: DType, swapped: bool) -> Result<Self> {
        let first = values.first();
        let coding = match number {
            1 => {
                let level = first.map_or(6, |level| *level.min(&9)) as u8;
                Some(Coding::Known(Filter::Deflate(level)))
            }
            2 => Some(Coding::Known(Filter::Shuffle(first.copied().unwrap_or(1)))),
            3 => Some(Coding::Known(Filter::Fletcher32)),
            4 => Szip::new(values).map(Coding::Szip),
            5 => Nbit::new(values).map(Coding::Nbit),
            6 => Scaled::new(values, dtype, swapped).map(Coding::Scaled),
            305 => Some(Coding::Lzo),
            307 => Some(Coding::Bzip2),
            32000 => Some(Coding::Lzf),
            32001 => Some(Coding::Blosc),
            32004 => Some(Coding::Lz4),
            32008 => Bitshuffle::new(values).map(Coding::Bitshuffle),
            32013 => Zfp::new(values).map(Coding::Zfp),
            32015 => Some(Coding::Zstd),
            32022 | 32023 => Some(Coding::Rounded),
            32026 => Some(Coding::Blosc2),
            _ => None,
        };
        coding.ok_or_else(|| {
            Error::usage(format!("its chunks are packed by {}", name(number)))
                .hint("repack them with h5repack; `compare --exclude` leaves the variable out")
        })
    }

    /// The bytes before this filter, at most this many.
    fn decode(&self, bytes: Vec<u8>, most: usize) -> Result<Vec<u8>> {
        match self {
            Coding::Known(Filter::Deflate(_)) => inflate(&bytes, most),
            Coding::Known(Filter::Shuffle(element)) => Ok(unshuffle(&bytes, *element as usize)),
            Coding::Known(Filter::Fletcher32) => checked(bytes),
            Coding::Lzf => lz::lzf(&bytes, most),
            Coding::Lz4 => lz::lz4(&bytes, most),
            Coding::Lzo => lz::lzo(&bytes, most),
            Coding::Zstd => lz::zstd(&bytes, most),
            Coding::Bzip2 => lz::bzip2(&bytes, most),
            Coding::Blosc => blosc::decode(&bytes, most),
            Coding::Blosc2 => frame::decode(&bytes, most),
            Coding::Bitshuffle(bitshuffle) => bitshuffle.decode(&bytes, most),
            Coding::Scaled(scaled) => scaled.decode(bytes, most),
            Coding::Nbit(nbit) => nbit.decode(&bytes, most),
            Coding::Szip(szip) => szip.decode(&bytes, most),
            Coding::Zfp(zfp) => zfp.decode(&bytes, most),
            Coding::Rounded => Ok(bytes),
        }
    }
}

/// The name of a filter, for people.
fn name(number: u16) -> String {
    let name = match number {
        4 => "szip",
        5 => "n-bit",
        6 => "scale-offset",
        32008 => "bitshuffle",
        32013 => "zfp",
        32017 => "SZ",
        32018 => "FCIDECOMP",
        32024 => "SZ3",
        32028 => "SPERR",
        _ => return format!("filter {number} of HDF5"),
    };
    format!("{name} in a way that is not understood")
}

/// The bytes of a chunk, `len` of them, before its filters.
pub(super) fn decode(
    codings: &[Coding],
    left_out: u32,
    stored: Vec<u8>,
    len: usize,
) -> Result<Vec<u8>> {
    let wrong = || Error::damaged("a chunk has another length than its array asks for");
    if len as u64 > (stored.len() as u64 + 64).saturating_mul(most_inflated(codings)) {
        return Err(wrong());
    }
    // Checksums, heads of filters, and what does not shrink.
    let most = len + len / 16 + 4096;
    let mut bytes = stored;
    for (at, coding) in codings.iter().enumerate().rev() {
        if at >= 32 || left_out & 1 << at == 0 {
            bytes = coding.decode(bytes, most)?;
        }
    }
    if bytes.len() == len { Ok(bytes) } else { Err(wrong()) }
}

/// The stored bytes of a chunk.
pub(super) fn encode(recipe: &ChunkRecipe, left_out: u32, bytes: Vec<u8>) -> Vec<u8> {
    let mut bytes = bytes;
    for (at, filter) in recipe.filters.iter().enumerate() {
        if at < 32 && left_out & 1 << at != 0 {
            continue;
        }
        match *filter {
            Filter::Deflate(level) => bytes = deflate(&bytes, level),
            Filter::Shuffle(element) => bytes = shuffle(&bytes, element as usize),
            Filter::Fletcher32 => {
                let sum = fletcher32(&bytes);
                bytes.extend(sum.to_le_bytes());
            }
        }
    }
    bytes
}

/// The size of the numbers whose bytes are in the other order, or 0.
pub(super) fn swap_size(dtype: DType, swapped: bool) -> u8 {
    let component = match dtype {
        DType::C64 | DType::C128 => dtype.size() / 2,
        _ => dtype.size(),
    };
    if swapped && component > 1 { component as u8 } else { 0 }
}

/// Turns round the bytes of each number.
pub(super) fn swap(bytes: &mut [u8], component: u8) {
    match component {
        0 | 1 => {}
        2 => swap_all::<2>(bytes),
        4 => swap_all::<4>(bytes),
        8 => swap_all::<8>(bytes),
        _ => bytes.chunks_exact_mut(component.into()).for_each(<[u8]>::reverse),
    }
}

fn swap_all<const N: usize>(bytes: &mut [u8]) {
    bytes.as_chunks_mut::<N>().0.iter_mut().for_each(|number| number.reverse());
}

fn inflate(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; most];
    let mut zlib = Decompress::new(true);
    match zlib.decompress(bytes, &mut out, FlushDecompress::Finish) {
        Ok(Status::StreamEnd) => {
            out.truncate(zlib.total_out() as usize);
            Ok(out)
        }
        Ok(_) => Err(Error::damaged("a chunk cannot be inflated: its stream has no end")),
        Err(e) => Err(Error::damaged(format!("a chunk cannot be inflated: {e}"))),
    }
}

fn deflate(bytes: &[u8], level: u8) -> Vec<u8> {
    let mut zlib = Compress::new(Compression::new(level.into()), true);
    // More than zlib's own bound.
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 1000 + 1024);
    loop {
        let from = zlib.total_in() as usize;
        match zlib.compress_vec(&bytes[from..], &mut out, FlushCompress::Finish) {
            Ok(Status::Ok | Status::BufError) => out.reserve(out.capacity().max(1024)),
            Ok(Status::StreamEnd) | Err(_) => return out,
        }
    }
}

fn shuffle(bytes: &[u8], element: usize) -> Vec<u8> {
    if element < 2 || element > bytes.len() {
        return bytes.to_vec();
    }
    let count = bytes.len() / element;
    let mut out = vec![0; bytes.len()];
    for plane in 0..element {
        let to = &mut out[plane * count..][..count];
        to.iter_mut()
            .zip(bytes[plane..].iter().step_by(element))
            .for_each(|(to, from)| *to = *from);
    }
    out[count * element..].copy_from_slice(&bytes[count * element..]);
    out
}

fn unshuffle(bytes: &[u8], element: usize) -> Vec<u8> {
    if element < 2 || element > bytes.len() {
        return bytes.to_vec();
    }
    let count = bytes.len() / element;
    let mut out = vec![0; bytes.len()];
    for plane in 0..element {
        let from = &bytes[plane * count..][..count];
        out[plane..].iter_mut().step_by(element).zip(from).for_each(|(to, from)| *to = *from);
    }
    out[count * element..].copy_from_slice(&bytes[count * element..]);
    out
}

fn checked(mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let Some((_, sum)) = bytes.split_last_chunk::<4>() else {
        return Err(Error::damaged("a chunk is shorter than its checksum"));
    };
    let sum = u32::from_le_bytes(*sum);
    bytes.truncate(bytes.len() - 4);
    let right = fletcher32(&bytes);
    // Old libraries wrote the bytes of both halves the other way round.
    let old = right.swap_bytes().rotate_left(16);
    match sum == right || sum == old {
        true => Ok(bytes),
        false => Err(Error::damaged("the checksum of a chunk does not match")),
    }
}

/// The checksum of HDF5: Fletcher's, over big-endian words of 16 bits.
fn fletcher32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (0u32, 0u32);
    let (words, rest) = bytes.as_chunks::<2>();
    for block in words.chunks(360) {
        for word in block {
            a += u32::from(u16::from_be_bytes(*word));
            b += a;
        }
        a = (a & 0xffff) + (a >> 16);
        b = (b & 0xffff) + (b >> 16);
    }
    if let [last] = rest {
        a += u32::from(*last) << 8;
        b += a;
        a = (a & 0xffff) + (a >> 16);
        b = (b & 0xffff) + (b >> 16);
    }
    a = (a & 0xffff) + (a >> 16);
    b = (b & 0xffff) + (b >> 16);
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_done_is_undone(bytes in proptest::collection::vec(any::<u8>(), 0..3000),
                                  element in 1u32..9, level in 1u8..10, left_out in 0u32..8) {
            let filters = vec![Filter::Shuffle(element), Filter::Deflate(level), Filter::Fletcher32];
            let codings: Vec<Coding> = filters.iter().map(|f| Coding::Known(*f)).collect();
            let recipe = ChunkRecipe { shape: vec![], chunk: vec![], swap: 0, padding: vec![], filters };
            let stored = encode(&recipe, left_out, bytes.clone());
            prop_assert_eq!(decode(&codings, left_out, stored, bytes.len()).unwrap(), bytes);
        }

        #[test]
        fn junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..300), len in 0usize..5000) {
            let parameters: [(u16, &[u32]); 16] = [
                (1, &[]),
                (3, &[]),
                (4, &[32, 8, 64, 30]),
                (4, &[0, 16, 12, 100]),
                (5, &[8, 0, 100, 1, 4, 0, 17, 2]),
                (6, &[2, 0, 100, 0, 4, 1, 0, 1, 7]),
                (305, &[1, 36, 0]),
                (307, &[]),
                (32000, &[]),
                (32001, &[]),
                (32004, &[]),
                (32008, &[0, 3, 4, 0, 2]),
                (32008, &[0, 3, 4, 0, 3]),
                (32013, &[269504785, 91252346, 3489661238, 2281701377]),
                (32015, &[]),
                (32026, &[]),
            ];
            for (number, values) in parameters {
                let coding = Coding::new(number, values, DType::I32, false).unwrap();
                let _ = decode(&[coding], 0, junk.clone(), len);
            }
        }
    }
}

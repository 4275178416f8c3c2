//! What HDF5 does to the bytes of a chunk, undone and done again.
//!
//! Doing it again gives the bytes of the file only with the zlib that wrote it; whoever calls holds
//! the result against the file.

use super::scaled::Scaled;
use crate::error::{Error, Result};
use crate::format::{ChunkRecipe, Filter};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// A filter as a file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// One that can be done again.
    Known(Filter),
    /// The LZF of h5py, which is only undone.
    Lzf,
    /// Scale and offset, which are only undone.
    Scaled(Scaled),
}

pub(super) use crate::format::MOST_INFLATED;

/// The bytes of a chunk, `len` of them, before its filters.
pub(super) fn decode(
    codings: &[Coding],
    left_out: u32,
    stored: Vec<u8>,
    len: usize,
) -> Result<Vec<u8>> {
    let wrong = || Error::damaged("a chunk has another length than its array asks for");
    if len as u64 > (stored.len() as u64 + 64).saturating_mul(MOST_INFLATED) {
        return Err(wrong());
    }
    let mut bytes = stored;
    for (at, coding) in codings.iter().enumerate().rev() {
        if at < 32 && left_out & 1 << at != 0 {
            continue;
        }
        let most = len + 4 * codings.len();
        bytes = match *coding {
            Coding::Known(Filter::Deflate(_)) => inflate(&bytes, most)?,
            Coding::Known(Filter::Shuffle(element)) => unshuffle(&bytes, element as usize),
            Coding::Known(Filter::Fletcher32) => checked(bytes)?,
            Coding::Lzf => unlzf(&bytes, most)?,
            Coding::Scaled(scaled) => scaled.decode(&bytes, len)?,
        };
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

fn unlzf(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let wrong = || Error::damaged("a chunk packed by LZF is damaged");
    let mut out = Vec::with_capacity(most);
    let mut rest = bytes;
    let next = |rest: &mut &[u8]| {
        let (first, tail) = rest.split_first().ok_or_else(wrong)?;
        *rest = tail;
        Ok(usize::from(*first))
    };
    while !rest.is_empty() {
        let control = next(&mut rest)?;
        if control < 32 {
            let (run, tail) = rest.split_at_checked(control + 1).ok_or_else(wrong)?;
            out.extend_from_slice(run);
            rest = tail;
        } else {
            let mut len = control >> 5;
            if len == 7 {
                len += next(&mut rest)?;
            }
            let back = (control & 31) << 8 | next(&mut rest)?;
            let start = out.len().checked_sub(back + 1).ok_or_else(wrong)?;
            for at in start..start + len + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > most {
            return Err(wrong());
        }
    }
    Ok(out)
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
            for coding in [Coding::Lzf, Coding::Known(Filter::Deflate(1)), Coding::Known(Filter::Fletcher32)] {
                let _ = decode(&[coding], 0, junk.clone(), len);
            }
        }
    }

    #[test]
    fn lzf_is_undone() {
        let packed = [2, b'a', b'b', b'c', 0x20, 2, 0xe0, 1, 0];
        assert_eq!(unlzf(&packed, 100).unwrap(), b"abcabccccccccccc");
        assert!(unlzf(&packed, 10).is_err());
        assert!(unlzf(&packed[..8], 100).is_err());
    }
}

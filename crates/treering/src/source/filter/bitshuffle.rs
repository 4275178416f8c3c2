//! The bitshuffle filter, undone: the first bits of all elements of a block together, then the second ones, and so on;
//! each block may then be packed by LZ4 or zstd.

use super::{broken, lz};
use crate::error::Result;

/// The settings of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) struct Bitshuffle {
    element: usize,
    /// Elements of a block.
    block: usize,
    packing: BlockPacking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockPacking {
    None,
    Lz4,
    Zstd,
}

impl Bitshuffle {
    /// The settings from the parameters in the file; none if they are not understood.
    pub(super) fn new(values: &[u32]) -> Option<Self> {
        let element =
            usize::try_from(*values.get(2)?).ok().filter(|size| (1..=1 << 16).contains(size))?;
        let packing = match values.get(4).unwrap_or(&0) {
            0 => BlockPacking::None,
            2 => BlockPacking::Lz4,
            3 => BlockPacking::Zstd,
            _ => return None,
        };
        let block = match *values.get(3).unwrap_or(&0) as usize {
            0 => usual_block(element),
            block => block,
        };
        block.is_multiple_of(8).then_some(Bitshuffle { element, block, packing })
    }

    /// The elements of a chunk, of at most this many bytes.
    pub(super) fn decode(&self, bytes: &[u8], most: usize) -> Result<Vec<u8>> {
        let wrong = || broken("bitshuffle");
        if self.packing == BlockPacking::None {
            return self.blocks(
                bytes.len(),
                self.block,
                &mut ShuffledBlocks { rest: bytes, packing: self.packing },
            );
        }
        let (head, rest) = bytes.split_first_chunk::<12>().ok_or_else(wrong)?;
        let (len, block) = head.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        let (len, block) = (number(len), number(block) as usize / self.element);
        let block = if block == 0 { usual_block(self.element) } else { block };
        if len > most as u64 || !block.is_multiple_of(8) {
            return Err(wrong());
        }
        self.blocks(len as usize, block, &mut ShuffledBlocks { rest, packing: self.packing })
    }

    /// Whole blocks, then one of the rest, as far as eight elements go; what is left is stored as it is.
    fn blocks(&self, len: usize, block: usize, blocks: &mut ShuffledBlocks) -> Result<Vec<u8>> {
        let wrong = || broken("bitshuffle");
        if !len.is_multiple_of(self.element) {
            return Err(wrong());
        }
        let mut out = Vec::new();
        let mut left = len / self.element;
        while left >= 8 {
            let count = block.min(left - left % 8);
            let planes = blocks.next(count * self.element)?;
            unshuffle_bits(&planes, self.element, &mut out);
            left -= count;
        }
        let tail = blocks.rest.get(..left * self.element).ok_or_else(wrong)?;
        out.extend_from_slice(tail);
        Ok(out)
    }
}

/// The number of elements of a block if nobody chose one.
fn usual_block(element: usize) -> usize {
    (8192 / element / 8 * 8).max(128)
}

/// ShuffledBlocks in a stream.
struct ShuffledBlocks<'a> {
    rest: &'a [u8],
    packing: BlockPacking,
}

impl ShuffledBlocks<'_> {
    /// The next block, which has this many bytes.
    fn next(&mut self, len: usize) -> Result<Vec<u8>> {
        let wrong = || broken("bitshuffle");
        let stored = match self.packing {
            BlockPacking::None => len,
            _ => {
                let (stored, rest) = self.rest.split_first_chunk::<4>().ok_or_else(wrong)?;
                self.rest = rest;
                u32::from_be_bytes(*stored) as usize
            }
        };
        let (stored, rest) = self.rest.split_at_checked(stored).ok_or_else(wrong)?;
        self.rest = rest;
        let block = match self.packing {
            BlockPacking::None => stored.to_vec(),
            BlockPacking::Lz4 => lz::lz4_block(stored, len)?,
            BlockPacking::Zstd => lz::zstd(stored, len)?,
        };
        if block.len() == len { Ok(block) } else { Err(wrong()) }
    }
}

/// Adds the elements of a block, a multiple of eight, of which `planes` has the bits.
pub(super) fn unshuffle_bits(planes: &[u8], element: usize, out: &mut Vec<u8>) {
    let from = out.len();
    out.resize(from + planes.len(), 0);
    let out = &mut out[from..];
    let groups = planes.len() / element / 8;
    for byte in 0..element {
        let planes = &planes[8 * byte * groups..];
        for group in 0..groups {
            let bits = std::array::from_fn(|bit| planes[bit * groups + group]);
            let bytes = transposed(u64::from_le_bytes(bits)).to_le_bytes();
            for (number, value) in bytes.iter().enumerate() {
                out[(8 * group + number) * element + byte] = *value;
            }
        }
    }
}

/// Eight bytes of eight bits, rows and columns exchanged.
fn transposed(mut bits: u64) -> u64 {
    for (shift, mask) in
        [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)]
    {
        let moved = (bits ^ bits >> shift) & mask;
        bits ^= moved ^ moved << shift;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bits of elements in planes, one by one.
    fn shuffle_bits(bytes: &[u8], element: usize) -> Vec<u8> {
        let count = bytes.len() / element;
        let mut out = vec![0; bytes.len()];
        for plane in 0..8 * element {
            for number in 0..count {
                let bit = bytes[number * element + plane / 8] >> (plane % 8) & 1;
                out[plane * (count / 8) + number / 8] |= bit << (number % 8);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn bits_return_to_their_elements(element in 1usize..9, groups in 0usize..20, seed in any::<u8>()) {
            let bytes: Vec<u8> = (0..8 * groups * element).map(|i| (i as u8).wrapping_mul(seed | 1)).collect();
            let mut out = vec![9];
            unshuffle_bits(&shuffle_bits(&bytes, element), element, &mut out);
            prop_assert_eq!(&out[1..], &bytes[..]);
        }
    }

    #[test]
    fn a_rest_is_stored_as_it_is() {
        let bytes: Vec<u8> = (0..4 * 300u32).map(|i| (i * i / 7) as u8).collect();
        let whole = |from: usize, to: usize| shuffle_bits(&bytes[4 * from..4 * to], 4);
        let packed =
            [whole(0, 128), whole(128, 256), whole(256, 296), bytes[4 * 296..].to_vec()].concat();
        let filter = Bitshuffle::new(&[0, 3, 4, 128, 0]).unwrap();
        assert_eq!(filter.decode(&packed, 1200).unwrap(), bytes);
        assert!(filter.decode(&packed[..1199], 1200).is_err());
        assert!(Bitshuffle::new(&[0, 3, 0, 0]).is_none());
        assert!(Bitshuffle::new(&[0, 3, 4, 7]).is_none());
        assert!(Bitshuffle::new(&[0, 3, 4, 0, 9]).is_none());
    }
}

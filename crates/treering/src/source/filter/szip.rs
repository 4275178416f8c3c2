//! The szip filter of HDF5, undone: the adaptive entropy coding of CCSDS 121.0, as szip and libaec write it.
//!
//! Samples come in scanlines of blocks. Each block begins with the number of its code: a run of blocks of zeros, the
//! second extension (two samples in one code word), numbers split into a unary high part and `k` low bits, or samples
//! as they are. With prediction, the first sample of a scanline is stored and the others are differences from the one
//! before, folded to positive numbers. Samples of 32 and 64 bits are coded as planes of bytes.

use super::bits::HighBits;
use super::broken;
use crate::error::Result;

/// The settings of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) struct Szip {
    predicted: bool,
    big_endian: bool,
    /// Bits of a sample of the stream, and bytes of it in the chunk.
    bits: u32,
    bytes: usize,
    /// The number of planes of bytes, if samples are coded as these.
    planes: Option<usize>,
    block: usize,
    /// Samples of a scanline, and its blocks.
    line: usize,
    blocks: usize,
}

/// Options of szip.
const BIG_ENDIAN: u32 = 16;
const PREDICTED: u32 = 32;

/// The largest sum of two samples of the second extension.
const MOST_SUM: u64 = 12;
/// Numbers of blocks of zeros from which on the code has another meaning.
const REST_OF_SEGMENT: u64 = 5;
const SEGMENT: usize = 64;

impl Szip {
    /// The settings from the parameters in the file; none if they are not understood.
    pub(super) fn new(values: &[u32]) -> Option<Self> {
        let [options, block, pixel, line, ..] = *values else { return None };
        let known = matches!(pixel, 1..=24 | 32 | 64);
        let known = known && (2..=64).contains(&block) && block % 2 == 0;
        if !known || !(1..=1 << 16).contains(&line) {
            return None;
        }
        let planes = (pixel >= 32).then_some(pixel as usize / 8);
        let bits = if planes.is_some() { 8 } else { pixel };
        let bytes = match bits {
            0..=8 => 1,
            9..=16 => 2,
            _ => 4,
        };
        Some(Szip {
            predicted: options & PREDICTED != 0,
            big_endian: options & BIG_ENDIAN != 0,
            bits,
            bytes,
            planes,
            block: block as usize,
            line: line as usize,
            blocks: line.div_ceil(block) as usize,
        })
    }

    /// The samples of a chunk, of at most this many bytes. Its length stands before the stream.
    pub(super) fn decode(&self, bytes: &[u8], most: usize) -> Result<Vec<u8>> {
        let wrong = || broken("szip");
        let (len, stream) = bytes.split_first_chunk::<4>().ok_or_else(wrong)?;
        let len = u32::from_le_bytes(*len) as usize;
        if len > most || !len.is_multiple_of(self.bytes) {
            return Err(wrong());
        }
        let mut out = Vec::with_capacity(len);
        let mut bits = HighBits::new(stream);
        let mut samples = Vec::with_capacity(self.blocks * self.block);
        while out.len() < len {
            let wanted = ((len - out.len()) / self.bytes).min(self.line);
            samples.clear();
            while samples.len() < wanted {
                self.block(&mut bits, &mut samples).ok_or_else(wrong)?;
            }
            if self.predicted {
                self.add_up(&mut samples);
            }
            for sample in &samples[..wanted] {
                match (self.bytes, self.big_endian) {
                    (1, _) => out.push(*sample as u8),
                    (2, false) => out.extend((*sample as u16).to_le_bytes()),
                    (2, true) => out.extend((*sample as u16).to_be_bytes()),
                    (_, false) => out.extend(sample.to_le_bytes()),
                    (_, true) => out.extend(sample.to_be_bytes()),
                }
            }
        }
        Ok(match self.planes {
            Some(planes) => super::unshuffle(&out, planes),
            None => out,
        })
    }

    /// Adds the samples of a block of a scanline, or of a run of them.
    fn block(&self, bits: &mut HighBits, samples: &mut Vec<u32>) -> Option<()> {
        let code_bits = match self.bits {
            0..=8 => 3,
            9..=16 => 4,
            _ => 5,
        };
        let code = bits.take(code_bits)?;
        let first = self.predicted && samples.is_empty();
        let left = self.block - usize::from(first);
        if code == (1 << code_bits) - 1 {
            for _ in 0..self.block {
                samples.push(bits.take(self.bits)? as u32);
            }
        } else if code > 0 {
            if first {
                samples.push(bits.take(self.bits)? as u32);
            }
            let (k, from) = (code as u32 - 1, samples.len());
            for _ in 0..left {
                samples.push((bits.zeros()? << k) as u32);
            }
            for sample in &mut samples[from..] {
                *sample |= bits.take(k)? as u32;
            }
        } else {
            let pairs = bits.take(1)? == 1;
            if first {
                samples.push(bits.take(self.bits)? as u32);
            }
            if pairs {
                self.pairs(bits, left, samples)?;
            } else {
                let used = samples.len() / self.block;
                let blocks = match bits.zeros()? + 1 {
                    REST_OF_SEGMENT => (self.blocks - used).min(SEGMENT - used % SEGMENT),
                    more if more > REST_OF_SEGMENT => usize::try_from(more - 1).ok()?,
                    few => few as usize,
                };
                if blocks > self.blocks - used {
                    return None;
                }
                samples.resize((used + blocks) * self.block, 0);
            }
        }
        Some(())
    }

    /// Adds samples of which two are in a code word; the first of them is missing where a stored one stands before.
    fn pairs(&self, bits: &mut HighBits, left: usize, samples: &mut Vec<u32>) -> Option<()> {
        let mut skip = left % 2 == 1;
        for _ in 0..left.div_ceil(2) {
            let word = bits.zeros()?;
            // Words are ordered by the sum of both, then by the second.
            let sum = (0..=MOST_SUM).find(|sum| word < (sum + 1) * (sum + 2) / 2)?;
            let second = word - sum * (sum + 1) / 2;
            if !skip {
                samples.push((sum - second) as u32);
            }
            samples.push(second as u32);
            skip = false;
        }
        Some(())
    }

    /// Undoes the prediction of each sample by the one before.
    fn add_up(&self, samples: &mut [u32]) {
        let largest = u32::MAX >> (32 - self.bits);
        let middle = largest / 2 + 1;
        let Some((first, rest)) = samples.split_first_mut() else { return };
        let mut last = *first;
        for sample in rest {
            let folded = *sample;
            // The room on the nearer side of the range; differences beyond it have one sign only.
            let turned = if last & middle == 0 { 0 } else { largest };
            last = if folded / 2 + (folded & 1) <= turned ^ last {
                let half = folded / 2;
                last.wrapping_add(if folded & 1 == 0 { half } else { !half }) & largest
            } else {
                (turned ^ folded) & largest
            };
            *sample = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        assert!(Szip::new(&[PREDICTED, 32, 64, 256]).is_some());
        for wrong in [
            &[32, 32, 64][..],
            &[32, 0, 64, 256],
            &[32, 7, 8, 256],
            &[32, 32, 65, 256],
            &[32, 32, 64, 0],
        ] {
            assert!(Szip::new(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn a_hand_made_stream_is_undone() {
        // Samples of 8 bits in blocks of 4, no prediction: as they are; split at 1; pairs; zeros to the end.
        let szip = Szip::new(&[0, 4, 8, 16]).unwrap();
        let bits = concat!(
            "111", "00000001", "00000010", "00000011", "11111111", "010", "1", "01", "001", "1",
            "1", "0", "1", "0", "000", "1", "00001", "1", "000", "0", "1",
        );
        let mut stream: Vec<u8> = 16u32.to_le_bytes().to_vec();
        for byte in bits.as_bytes().chunks(8) {
            let byte = format!("{:0<8}", std::str::from_utf8(byte).unwrap());
            stream.push(u8::from_str_radix(&byte, 2).unwrap());
        }
        let samples = szip.decode(&stream, 16).unwrap();
        assert_eq!(samples, [1, 2, 3, 255, 1, 2, 5, 0, 1, 1, 0, 0, 0, 0, 0, 0]);
        assert!(szip.decode(&stream, 15).is_err());
        assert!(szip.decode(&stream[..8], 16).is_err());
        assert!(szip.decode(&[], 16).is_err());
    }
}

//! The zfp filter of HDF5 (H5Z-ZFP), undone: blocks of 4^d values whose transformed integers are stored bit plane by bit
//! plane, with a limit on bits, planes or errors, or without loss.
//!
//! The head of zfp, with type, extents and mode, is among the parameters of the filter; chunks are bare streams.

use super::bits::LowBits;
use super::broken;
use crate::error::Result;

/// The settings of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) struct Zfp {
    kind: ZfpKind,
    axes: u32,
    /// The fastest axis first; 1 for axes that there are not.
    extents: [usize; 4],
    /// Bits of a block, bit planes, and the exponent of the lowest plane.
    least_bits: u32,
    most_bits: u32,
    planes: u32,
    least_exponent: i32,
    /// Whether the file was written on a big-endian machine.
    swapped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZfpKind {
    I32,
    I64,
    F32,
    F64,
}

/// The exponent below which nothing is stored; one lower stands for no loss.
const LEAST_EXPONENT: i32 = -1074;
const MOST_BITS: u32 = 16658;
const MOST_PLANES: u32 = 64;

impl Zfp {
    /// The settings from the parameters in the file; none if they are not understood.
    pub(super) fn new(values: &[u32]) -> Option<Self> {
        let head = values.get(1..)?;
        let plain: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        let turned: Vec<u8> = head.iter().flat_map(|word| word.to_be_bytes()).collect();
        Zfp::parse(&plain, false).or_else(|| Zfp::parse(&turned, true))
    }

    fn parse(head: &[u8], swapped: bool) -> Option<Self> {
        // The last byte is the version of the codec.
        let mut bits = LowBits::new(head.strip_prefix(b"zfp\x05")?);
        let mut meta = bits.take(52)?;
        let mut field = |width: u32| {
            let value = meta & ((1 << width) - 1);
            meta >>= width;
            value as usize
        };
        let kind = [ZfpKind::I32, ZfpKind::I64, ZfpKind::F32, ZfpKind::F64][field(2)];
        let axes = field(2) as u32 + 1;
        let mut extents = [1; 4];
        for extent in &mut extents[..axes as usize] {
            *extent = field(48 / axes) + 1;
        }
        let short = bits.take(12)? as u32;
        let (least_bits, most_bits, planes, least_exponent) = match short {
            0..2048 => (short + 1, short + 1, MOST_PLANES, LEAST_EXPONENT),
            2048..2176 => (1, MOST_BITS, short - 2047, LEAST_EXPONENT),
            2176 => (1, MOST_BITS, MOST_PLANES, LEAST_EXPONENT - 1),
            2177..0xfff => (1, MOST_BITS, MOST_PLANES, short as i32 - 2177 + LEAST_EXPONENT),
            _ => {
                let [least, most] = [bits.take(15)? as u32 + 1, bits.take(15)? as u32 + 1];
                (least, most, bits.take(7)? as u32 + 1, bits.take(15)? as i32 - 16495)
            }
        };
        let sound = least_bits <= most_bits && planes <= MOST_PLANES;
        let zfp =
            Zfp { kind, axes, extents, least_bits, most_bits, planes, least_exponent, swapped };
        sound.then_some(zfp)
    }

    /// The values of a chunk, of at most this many bytes.
    pub(super) fn decode(&self, bytes: &[u8], most: usize) -> Result<Vec<u8>> {
        let size: usize = match self.kind {
            ZfpKind::I32 | ZfpKind::F32 => 4,
            ZfpKind::I64 | ZfpKind::F64 => 8,
        };
        let len = self.extents.iter().try_fold(size, |n, extent| n.checked_mul(*extent));
        let len = len.filter(|len| *len <= most).ok_or_else(|| broken("zfp"))?;
        let mut out = vec![0; len];
        let made = match size {
            4 => self.blocks::<i32>(bytes, &mut out),
            _ => self.blocks::<i64>(bytes, &mut out),
        };
        made.ok_or_else(|| broken("zfp"))?;
        if self.swapped {
            super::swap(&mut out, size as u8);
        }
        Ok(out)
    }

    /// Decodes all blocks, the fastest axis first. `None`: the stream is too short.
    fn blocks<T: ZfpLane>(&self, bytes: &[u8], out: &mut [u8]) -> Option<()> {
        let mut stream = LowBits::new(bytes);
        let [nx, ny, nz, nw] = self.extents;
        let values = 1 << (2 * self.axes);
        let (mut planes, mut block) = (vec![0u64; values], vec![T::ZERO; values]);
        for w in (0..nw).step_by(4) {
            for z in (0..nz).step_by(4) {
                for y in (0..ny).step_by(4) {
                    for x in (0..nx).step_by(4) {
                        self.block(&mut stream, &mut planes, &mut block)?;
                        self.put(&block, [x, y, z, w], out);
                    }
                }
            }
        }
        Some(())
    }

    /// Puts the values of a block to their places, as far as they belong to the array.
    fn put<T: ZfpLane>(&self, block: &[T], at: [usize; 4], out: &mut [u8]) {
        let [nx, ny, nz, nw] = self.extents;
        let size = T::BITS as usize / 8;
        let within = |axis: usize| (self.extents[axis] - at[axis]).min(4);
        for w in at[3]..nw.min(at[3] + within(3)) {
            for z in at[2]..nz.min(at[2] + within(2)) {
                for y in at[1]..ny.min(at[1] + within(1)) {
                    let from = 4 * ((y - at[1]) + 4 * ((z - at[2]) + 4 * (w - at[3])));
                    let to = ((w * nz + z) * ny + y) * nx + at[0];
                    for (number, value) in block[from..from + within(0)].iter().enumerate() {
                        value.write(&mut out[(to + number) * size..][..size]);
                    }
                }
            }
        }
    }

    /// Decodes a block; floating-point values as their bits.
    fn block<T: ZfpLane>(
        &self,
        stream: &mut LowBits,
        planes: &mut [u64],
        block: &mut [T],
    ) -> Option<()> {
        let lossless = self.least_exponent < LEAST_EXPONENT;
        if matches!(self.kind, ZfpKind::I32 | ZfpKind::I64) {
            return self.integers(stream, 0, self.planes, lossless, planes, block);
        }
        if !stream.bit()? {
            block.fill(T::ZERO);
            stream.skip(self.least_bits.saturating_sub(1) as usize);
            return Some(());
        }
        let mut used = 1;
        if lossless {
            used += 1;
            if stream.bit()? {
                self.integers(stream, used, MOST_PLANES, true, planes, block)?;
                block.iter_mut().for_each(|value| *value = value.of_ordered());
                return Some(());
            }
        }
        used += T::EXPONENT_BITS;
        let bias = (1 << (T::EXPONENT_BITS - 1)) - 1;
        let exponent = stream.take(T::EXPONENT_BITS)? as i32 - bias;
        let depth = exponent - self.least_exponent + 2 * self.axes as i32 + 2;
        let limit = self.planes.min(depth.max(0) as u32);
        self.integers(stream, used, limit, lossless, planes, block)?;
        if lossless && exponent == -bias {
            block.fill(T::ZERO);
        } else {
            block.iter_mut().for_each(|value| *value = value.scaled(exponent));
        }
        Some(())
    }

    /// Decodes the integers of a block, of which this many bits were used before.
    fn integers<T: ZfpLane>(
        &self,
        stream: &mut LowBits,
        used: u32,
        limit: u32,
        lossless: bool,
        planes: &mut [u64],
        block: &mut [T],
    ) -> Option<()> {
        let (mut used, mut limit) = (used, limit);
        if lossless {
            let bits = T::BITS.ilog2();
            limit = stream.take(bits)? as u32 + 1;
            used += bits;
        }
        let room = self.most_bits.saturating_sub(used);
        used += bit_planes(stream, room, limit, T::BITS, planes)?;
        stream.skip(self.least_bits.saturating_sub(used) as usize);
        let order: &[u8] = match self.axes {
            1 => &[0, 1, 2, 3],
            2 => &ORDER_2,
            3 => &ORDER_3,
            _ => &ORDER_4,
        };
        for (place, bits) in order.iter().zip(planes.iter()) {
            block[usize::from(*place)] = T::from_negabinary(*bits);
        }
        for axis in (0..self.axes).rev() {
            let stride = 1 << (2 * axis);
            for at in (0..block.len()).filter(|at| at / stride % 4 == 0) {
                let four = std::array::from_fn(|n| block[at + n * stride]);
                let four = if lossless { T::unfold_exactly(four) } else { T::unfold(four) };
                four.iter().enumerate().for_each(|(n, value)| block[at + n * stride] = *value);
            }
        }
        Some(())
    }
}

/// Decodes bit planes, the highest first, within a number of bits; the number of bits that it took.
fn bit_planes(
    stream: &mut LowBits,
    room: u32,
    limit: u32,
    width: u32,
    values: &mut [u64],
) -> Option<u32> {
    values.fill(0);
    let (mut left, mut known) = (room, 0);
    for plane in (width.saturating_sub(limit)..width).rev() {
        if left == 0 {
            break;
        }
        // Values that have a bit in a higher plane have one here, too; of the others runs of zeros are coded.
        let verbatim = (known as u32).min(left);
        left -= verbatim;
        for value in &mut values[..verbatim as usize] {
            *value |= u64::from(stream.bit()?) << plane;
        }
        while known < values.len() && left > 0 {
            left -= 1;
            if !stream.bit()? {
                break;
            }
            while known < values.len() - 1 && left > 0 {
                left -= 1;
                if stream.bit()? {
                    break;
                }
                known += 1;
            }
            values[known] |= 1 << plane;
            known += 1;
        }
    }
    Some(room - left)
}

/// Integers of a block: of 32 or of 64 bits.
trait ZfpLane: Copy {
    const BITS: u32;
    const EXPONENT_BITS: u32;
    const ZERO: Self;
    fn from_negabinary(bits: u64) -> Self;
    /// Undoes the transform of four values with loss.
    fn unfold(four: [Self; 4]) -> [Self; 4];
    /// Undoes the transform of four values without loss: differences of differences.
    fn unfold_exactly(four: [Self; 4]) -> [Self; 4];
    /// The bits of a floating-point number whose order as an integer this is.
    fn of_ordered(self) -> Self;
    /// The bits of the floating-point number that this is a part of, given the exponent of its block.
    fn scaled(self, exponent: i32) -> Self;
    fn write(self, out: &mut [u8]);
}

macro_rules! lane {
    ($int:ty, $uint:ty, $float:ty, $exponent_bits:expr) => {
        impl ZfpLane for $int {
            const BITS: u32 = <$int>::BITS;
            const EXPONENT_BITS: u32 = $exponent_bits;
            const ZERO: Self = 0;

            fn from_negabinary(bits: u64) -> Self {
                let mask = (0xaaaa_aaaa_aaaa_aaaa_u64) as $uint;
                ((bits as $uint) ^ mask).wrapping_sub(mask) as $int
            }

            fn unfold([mut x, mut y, mut z, mut w]: [Self; 4]) -> [Self; 4] {
                y = y.wrapping_add(w >> 1);
                w = w.wrapping_sub(y >> 1);
                (y, w) = (y.wrapping_add(w), w.wrapping_sub(y));
                (z, x) = (z.wrapping_add(x), x.wrapping_sub(z));
                (y, z) = (y.wrapping_add(z), z.wrapping_sub(y));
                (w, x) = (w.wrapping_add(x), x.wrapping_sub(w));
                [x, y, z, w]
            }

            fn unfold_exactly([x, mut y, mut z, mut w]: [Self; 4]) -> [Self; 4] {
                w = w.wrapping_add(z);
                z = z.wrapping_add(y);
                w = w.wrapping_add(z);
                y = y.wrapping_add(x);
                z = z.wrapping_add(y);
                w = w.wrapping_add(z);
                [x, y, z, w]
            }

            fn of_ordered(self) -> Self {
                if self < 0 { self ^ <$int>::MAX } else { self }
            }

            fn scaled(self, exponent: i32) -> Self {
                let scale = power_of_two(exponent - (Self::BITS as i32 - 2)) as $float;
                (self as $float * scale).to_bits() as $int
            }

            fn write(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
        }
    };
}

lane!(i32, u32, f32, 8);
lane!(i64, u64, f64, 11);

/// A power of two, rounded to zero where there is none.
fn power_of_two(exponent: i32) -> f64 {
    match exponent {
        -1074..-1022 => f64::from_bits(1 << (exponent + 1074)),
        -1022..=1023 => f64::from_bits(((exponent + 1023) as u64) << 52),
        ..-1074 => 0.0,
        _ => f64::INFINITY,
    }
}

/// The order of the coefficients of a block: by the sum of their indices, then by the sum of squares.
#[rustfmt::skip]
static ORDER_2: [u8; 16] = [
    0, 1, 4, 5, 2, 8, 6, 9, 3, 12, 10, 7, 13, 11, 14, 15,
];

#[rustfmt::skip]
static ORDER_3: [u8; 64] = [
    0, 1, 4, 16, 20, 17, 5, 2, 8, 32, 21, 6, 18, 24, 9, 33,
    36, 3, 12, 48, 22, 25, 37, 40, 34, 10, 7, 19, 28, 13, 49, 52,
    41, 38, 26, 23, 29, 53, 11, 35, 44, 14, 50, 56, 42, 27, 39, 45,
    30, 54, 57, 60, 51, 15, 43, 46, 58, 61, 55, 31, 62, 59, 47, 63,
];

#[rustfmt::skip]
static ORDER_4: [u8; 256] = [
    0, 1, 4, 16, 64, 5, 80, 17, 68, 65, 20, 2, 8, 32, 128, 84,
    81, 69, 21, 6, 18, 66, 24, 72, 9, 96, 33, 36, 129, 132, 144, 3,
    12, 48, 192, 85, 82, 70, 22, 73, 25, 88, 37, 100, 97, 148, 145, 133,
    10, 160, 34, 136, 130, 40, 7, 19, 67, 28, 76, 13, 112, 49, 52, 193,
    196, 208, 86, 89, 101, 149, 161, 137, 41, 134, 38, 164, 26, 152, 146, 104,
    98, 74, 83, 71, 23, 77, 29, 92, 53, 116, 113, 212, 209, 197, 11, 35,
    131, 44, 140, 14, 176, 50, 56, 194, 200, 224, 90, 165, 102, 153, 150, 105,
    168, 162, 138, 42, 87, 93, 117, 213, 27, 75, 99, 39, 135, 147, 108, 45,
    141, 156, 30, 78, 177, 180, 54, 114, 120, 57, 198, 210, 216, 201, 225, 228,
    15, 240, 51, 204, 195, 60, 169, 166, 154, 106, 91, 103, 151, 109, 157, 94,
    181, 118, 121, 214, 217, 229, 163, 139, 43, 142, 46, 172, 58, 184, 178, 232,
    226, 202, 241, 205, 61, 199, 55, 244, 31, 220, 211, 124, 115, 79, 170, 167,
    155, 107, 158, 110, 173, 122, 185, 182, 233, 230, 218, 95, 245, 119, 221, 215,
    125, 242, 206, 62, 203, 59, 248, 47, 236, 227, 188, 179, 143, 171, 174, 186,
    234, 246, 222, 126, 219, 123, 249, 111, 237, 231, 189, 183, 159, 252, 243, 207,
    63, 175, 250, 187, 238, 235, 190, 253, 247, 223, 127, 254, 251, 239, 191, 255,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_permutations_by_the_sum_of_indices() {
        for (order, axes) in [(&ORDER_2[..], 2), (&ORDER_3, 3), (&ORDER_4, 4)] {
            let mut sorted = order.to_vec();
            sorted.sort_unstable();
            assert!(sorted.iter().enumerate().all(|(at, place)| at == usize::from(*place)));
            let sum = |place: &u8| (0..axes).map(|axis| place >> (2 * axis) & 3).sum::<u8>();
            assert!(order.windows(2).all(|pair| sum(&pair[0]) <= sum(&pair[1])));
        }
    }

    #[test]
    fn powers_of_two() {
        for exponent in -1080..=1024 {
            assert_eq!(power_of_two(exponent), 2f64.powf(f64::from(exponent)), "{exponent}");
        }
    }

    #[test]
    fn heads_that_make_no_sense_are_refused() {
        // Floating-point numbers of 32 bits, 20 × 30, no loss: as a file of h5py has it.
        let values = [269504785, 91252346, 3489661238, 2281701377];
        let zfp = Zfp::new(&values).unwrap();
        assert_eq!((zfp.kind, zfp.axes, zfp.extents), (ZfpKind::F32, 2, [20, 30, 1, 1]));
        assert_eq!(zfp.least_exponent, LEAST_EXPONENT - 1);
        let turned = values.map(u32::swap_bytes);
        assert!(Zfp::new(&turned).unwrap().swapped);
        assert!(Zfp::new(&values[..3]).is_none());
        assert!(Zfp::new(&[0, 1, 2, 3]).is_none());
        assert!(zfp.decode(&[], 2400).is_err());
        assert!(zfp.decode(&[0; 5], 2399).is_err());
        // A bit for each of 5 × 8 blocks of zeros.
        assert_eq!(zfp.decode(&[0; 5], 2400).unwrap(), [0; 2400]);
    }
}

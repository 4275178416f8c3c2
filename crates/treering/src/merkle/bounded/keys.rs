//! The public keys of the sums, and the sums.

use super::{Leaf, lanes};
use std::sync::{Arc, Mutex};

/// The keys of a chunk: for 32-bit cells those of two sums, for 64-bit cells those of one.
pub(crate) struct Keys {
    pub(crate) first: Vec<u32>,
    pub(crate) second: Vec<u32>,
    pub(crate) wide: Vec<u64>,
    /// The keys in four rows of 16 bits, the lowest first, each less by [`HALF`].
    rows: [Vec<[i16; 16]>; 4],
    /// Whether AVX2 is there.
    pub(super) vectors: bool,
}

impl Keys {
    /// The keys of chunks of up to `count` components. The i-th key is the same for every count.
    pub(crate) fn of(count: usize, wide: bool) -> Arc<Keys> {
        static MADE: Mutex<[Option<Arc<Keys>>; 2]> = Mutex::new([None, None]);
        let mut made = MADE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let made = &mut made[usize::from(wide)];
        // The vector loops look one key further than they need.
        let count = (count + 1).next_multiple_of(64);
        match made {
            Some(keys) if keys.len() >= count => keys.clone(),
            _ => made.insert(Arc::new(Keys::make(count, wide))).clone(),
        }
    }

    fn make(count: usize, wide: bool) -> Keys {
        let words: Vec<u64> = (0..count as u64).map(|i| mix(2 * i + u64::from(wide))).collect();
        let vectors = lanes::has_vectors();
        let row = |row: usize| {
            let part = |word: &u64| ((word >> (16 * row)) as u16).wrapping_sub(HALF) as i16;
            let sixteen = |words: &[u64; 16]| words.each_ref().map(part);
            let all = words.as_chunks().0.iter().map(sixteen);
            if vectors { all.collect() } else { Vec::new() }
        };
        let rows = std::array::from_fn(row);
        let half = |shift: u32| match wide {
            true => Vec::new(),
            false => words.iter().map(|w| (w >> shift) as u32).collect(),
        };
        let (first, second) = (half(0), half(32));
        Keys { first, second, rows, wide: if wide { words } else { Vec::new() }, vectors }
    }

    fn len(&self) -> usize {
        self.first.len().max(self.wide.len())
    }

    /// Adds up the keys of the components whose bits are set in some words, of which the lowest bit
    /// of the first is component `first`, a multiple of 64.
    ///
    /// The places are listed first: a loop over a list does not stumble at the end of every word.
    pub(crate) fn add_marked(
        &self,
        sums: &mut [u128; 2],
        first: usize,
        words: &[u64],
        list: &mut Places,
    ) {
        let narrow = self.wide.is_empty();
        let len = places(words, list);
        let list = &list[..len];
        match narrow {
            true => {
                let (keys, others) = (&self.first[first..], &self.second[first..]);
                let (mut a, mut b) = (0u64, 0u64);
                for at in list {
                    a += keys[*at as usize] as u64;
                    b += others[*at as usize] as u64;
                }
                sums[0] += a as u128;
                sums[1] += b as u128;
            }
            false => {
                let keys = &self.wide[first..];
                sums[0] += list.iter().map(|at| keys[*at as usize] as u128).sum::<u128>();
            }
        }
    }

    /// Adds the products of keys and numbers: those that the planes of a block hold, of which the
    /// highest counts negatively, for at most `words` words from component `first` on.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    pub(crate) fn add_rows<const P: usize>(
        &self,
        sums: &mut RowSums,
        first: usize,
        words: usize,
        planes: &[[u64; BLOCK]; P],
    ) {
        let words = words.min(BLOCK);
        let rows = self.rows.each_ref().map(|row| &row[first / 16..first / 16 + 4 * words]);
        let products = lanes::products_avx2(rows, planes);
        for (sum, product) in sums.rows.iter_mut().zip(products) {
            *sum += product;
        }
        for (plane, bits) in planes.iter().enumerate() {
            let mut count = 0;
            for word in bits {
                count += word.count_ones() as i64;
            }
            sums.numbers += if plane == P - 1 { -(count << plane) } else { count << plane };
        }
    }

    /// The sums of products with whole keys.
    pub(crate) fn of_rows(&self, sums: RowSums) -> [u128; 2] {
        let row = |at: usize| {
            // The amount that is missing in the row is the same for every number.
            let whole = sums.rows[at] as i128 + HALF as i128 * sums.numbers as i128;
            whole as u128
        };
        match self.wide.is_empty() {
            true => {
                let pair = |low: usize| row(low).wrapping_add(row(low + 1) << 16);
                [pair(0), pair(2)]
            }
            false => {
                let all = (0..4).map(|at| row(at) << (16 * at));
                [all.fold(0, u128::wrapping_add), 0]
            }
        }
    }

    /// Sums of products as a leaf.
    pub(crate) fn leaf_of(&self, sums: [u128; 2]) -> Leaf {
        match self.wide.is_empty() {
            true => [sums[0] as u64, sums[1] as u64],
            false => split(sums[0]),
        }
    }

    /// Adds what a component without a cell adds.
    pub(crate) fn add_none(&self, leaf: &mut Leaf, at: usize, bits: u64) {
        let mut input = [0; 16];
        input[..8].copy_from_slice(&(at as u64).to_le_bytes());
        input[8..].copy_from_slice(&bits.to_le_bytes());
        let digest = crate::merkle::digest(&input);
        match self.wide.is_empty() {
            true => {
                leaf[0] = leaf[0].wrapping_add(digest.0[0]);
                leaf[1] = leaf[1].wrapping_add(digest.0[1]);
            }
            false => add_wide(leaf, digest.0[0] as u128 | (digest.0[1] as u128) << 64),
        }
    }

    /// The gap between two leaves.
    pub(crate) fn gap(&self, from: Leaf, to: Leaf) -> Leaf {
        match self.wide.is_empty() {
            true => [to[0].wrapping_sub(from[0]), to[1].wrapping_sub(from[1])],
            false => split(join(to).wrapping_sub(join(from))),
        }
    }
}

/// Number of words that are processed at a time.
pub(super) const BLOCK: usize = 16;
/// Room for the places of all bits of a block, and some more.
pub(super) type Places = [u16; 64 * BLOCK + 8];
/// Half of what 16 bits can hold: keys less by it are numbers with a sign, as vectors multiply them.
const HALF: u16 = 1 << 15;

/// Sums of products with the rows of keys, and of the numbers alone.
#[derive(Default)]
pub(crate) struct RowSums {
    rows: [i64; 4],
    numbers: i64,
}

/// Lists the places of the bits that are set; how many there are. The list has room for eight more.
#[inline(always)]
fn places(words: &[u64], list: &mut Places) -> usize {
    let mut len = 0;
    for (number, word) in words[..words.len().min(BLOCK)].iter().enumerate() {
        let (mut bits, end) = (*word, len + word.count_ones() as usize);
        // Four at a time, whether there are that many or not: what is too much is written over.
        while len < end {
            for place in &mut list[len..len + 4] {
                *place = (number * 64) as u16 + bits.trailing_zeros() as u16;
                bits &= bits.wrapping_sub(1);
            }
            len += 4;
        }
        len = end;
    }
    len
}

/// Adds to a sum of 128 bits.
#[inline(always)]
pub(super) fn add_wide(leaf: &mut Leaf, amount: u128) {
    *leaf = split(join(*leaf).wrapping_add(amount));
}

#[inline(always)]
fn join(leaf: Leaf) -> u128 {
    leaf[0] as u128 | (leaf[1] as u128) << 64
}

#[inline(always)]
fn split(sum: u128) -> Leaf {
    [sum as u64, (sum >> 64) as u64]
}

/// The finaliser of splitmix64 over a Weyl sequence: fixed, public, without structure.
fn mix(at: u64) -> u64 {
    let mut z = (at ^ 0x7472_6565_7269_6e67).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

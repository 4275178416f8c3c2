//! The public keys of the sums, and the sums.

use super::{Leaf, lanes};
use std::sync::{Arc, Mutex};

/// The keys of a chunk: for 32-bit cells those of two sums, for 64-bit cells those of one.
pub(crate) struct Keys {
    pub(crate) first: Vec<u32>,
    pub(crate) second: Vec<u32>,
    pub(crate) wide: Vec<u64>,
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
        let words = (0..count as u64).map(|i| mix(2 * i + u64::from(wide)));
        let vectors = lanes::has_vectors();
        match wide {
            true => Keys { first: Vec::new(), second: Vec::new(), wide: words.collect(), vectors },
            false => Keys {
                first: words.clone().map(|w| w as u32).collect(),
                second: words.map(|w| (w >> 32) as u32).collect(),
                wide: Vec::new(),
                vectors,
            },
        }
    }

    fn len(&self) -> usize {
        self.first.len().max(self.wide.len())
    }

    /// Adds up the keys of the components whose bits are set in some words, of which the lowest bit
    /// of the first is component `first`, a multiple of 64.
    ///
    /// The places are listed first: a loop over a list does not stumble at the end of every word.
    #[inline(always)]
    pub(crate) fn add_marked(
        &self,
        sums: &mut [u128; 2],
        first: usize,
        words: &[u64],
        list: &mut Places,
    ) {
        let many = words.iter().map(|w| w.count_ones() as usize).sum::<usize>();
        let narrow = self.wide.is_empty();
        if narrow && many > words.len() * MANY {
            let pairs = self.first.as_chunks::<64>().0.iter().zip(self.second.as_chunks::<64>().0);
            for ((keys, others), bits) in pairs.skip(first / 64).zip(words) {
                let (a, b) = lanes::marked(keys, others, *bits, self.vectors);
                sums[0] += a as u128;
                sums[1] += b as u128;
            }
            return;
        }
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

/// How many words are looked at at a time.
pub(super) const BLOCK: usize = 16;
/// Room for the places of all bits of a block, and some more.
pub(super) type Places = [u16; 64 * BLOCK + 8];
/// From so many bits a word on, vectors are faster than lists.
const MANY: usize = 8;

/// Lists the places of the bits that are set; how many there are. The list has room for eight more.
#[inline(always)]
fn places(words: &[u64], list: &mut Places) -> usize {
    let mut len = 0;
    for (number, word) in words[..words.len().min(BLOCK)].iter().enumerate() {
        let (mut bits, end) = (*word, len + word.count_ones() as usize);
        // Four at a time, whether there are so many or not: what is too much is written over.
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

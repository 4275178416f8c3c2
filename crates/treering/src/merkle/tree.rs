//! Prints, boughs and the flat tree above them: built at once in parallel, or updated where
//! something changed.

use super::hash::{Digest, Hasher, Print, digest, prefetch};
use rayon::prelude::*;

/// Number of chunks that one bough covers.
pub const BOUGH: usize = 8;
/// Number of chunks that one parallel task hashes; a multiple of [`BOUGH`].
const TASK: usize = 1024;
/// Prefetch distance of the hash in bytes.
const AHEAD: usize = 2048;

/// The prints of all chunks of `data`, in parallel.
pub fn prints(data: &[u8], chunk: usize, hasher: &Hasher) -> Vec<Print> {
    let mut out = vec![0; data.len().div_ceil(chunk)];
    let tasks = out.par_chunks_mut(TASK).zip(data.par_chunks(TASK * chunk));
    tasks.for_each(|(out, data)| print_all(data, chunk, hasher, out));
    out
}

fn print_all(data: &[u8], chunk: usize, hasher: &Hasher, out: &mut [Print]) {
    for (print, piece) in out.iter_mut().zip(data.chunks(chunk)) {
        for line in (0..chunk.min(AHEAD)).step_by(64) {
            prefetch(piece.as_ptr().wrapping_add(AHEAD + line));
        }
        *print = hasher.print(piece);
    }
}

/// The boughs over `prints`, in parallel.
pub fn boughs(prints: &[Print]) -> Vec<Digest> {
    prints.par_chunks(BOUGH).with_min_len(TASK / BOUGH).map(bough).collect()
}

/// The boughs over the chunks of `data`, for callers that do not need the prints.
pub fn boughs_of(data: &[u8], chunk: usize, hasher: &Hasher) -> Vec<Digest> {
    let groups = data.par_chunks(BOUGH * chunk).with_min_len(TASK / BOUGH);
    let one = |group: &[u8]| {
        let mut prints = [0; BOUGH];
        print_all(group, chunk, hasher, &mut prints);
        bough(&prints[..group.len().div_ceil(chunk)])
    };
    groups.map(one).collect()
}

/// The digest of up to [`BOUGH`] neighbouring prints.
#[inline]
pub(crate) fn bough(prints: &[Print]) -> Digest {
    let mut bytes = [0u8; BOUGH * 8];
    for (bytes, print) in bytes.chunks_exact_mut(8).zip(prints) {
        bytes.copy_from_slice(&print.to_le_bytes());
    }
    digest(&bytes[..prints.len() * 8])
}

/// A Merkle tree over boughs; level 0 here is level 3 of the chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// From the boughs up; the last level has one node, unless there are no chunks at all.
    levels: Vec<Vec<Digest>>,
}

impl Tree {
    /// Builds all levels over `boughs`.
    pub fn build(boughs: Vec<Digest>) -> Self {
        let mut levels = vec![boughs];
        while levels[levels.len() - 1].len() > 1 {
            let below = &levels[levels.len() - 1];
            let above = below.par_chunks(2).with_min_len(512).map(node).collect();
            levels.push(above);
        }
        Tree { levels }
    }

    /// Gives the tree `count` boughs and puts new digests at the places of `changes`.
    ///
    /// Boughs that are added must be among the changes, and so must the last one when the count
    /// changes.
    pub fn update(&mut self, count: usize, changes: &[(u64, Digest)]) {
        if self.levels.is_empty() {
            self.levels.push(Vec::new());
        }
        let resized = self.levels[0].len() != count;
        self.levels[0].resize(count, Digest::default());
        for &(at, digest) in changes {
            self.levels[0][at as usize] = digest;
        }
        if resized || changes.len() * 4 > count {
            *self = Tree::build(std::mem::take(&mut self.levels[0]));
            return;
        }
        let mut dirty: Vec<u64> = changes.iter().map(|c| c.0).collect();
        dirty.sort_unstable();
        for level in 1..self.levels.len() {
            dirty.iter_mut().for_each(|at| *at /= 2);
            dirty.dedup();
            let (below, above) = self.levels.split_at_mut(level);
            let below = &below[level - 1];
            for &at in &dirty {
                let first = at as usize * 2;
                above[0][at as usize] = node(&below[first..below.len().min(first + 2)]);
            }
        }
    }

    /// The boughs that it was built over.
    pub(crate) fn boughs(&self) -> &[Digest] {
        self.levels.first().map_or(&[], |boughs| boughs)
    }

    /// The root over `bytes` bytes of data; the length is part of it.
    pub fn root(&self, bytes: u64) -> Digest {
        root(self.levels.last().and_then(|l| l.first()), bytes)
    }
}

/// Number of levels that [`root_of`] climbs at a time.
const CLIMB: u32 = 10;

/// The root of the tree over `boughs`, for callers that do not need the tree.
pub fn root_of(mut boughs: Vec<Digest>, bytes: u64) -> Digest {
    while boughs.len() > 1 {
        let levels = boughs.len().next_power_of_two().ilog2().min(CLIMB);
        boughs = boughs.par_chunks(1 << levels).map(|below| climb(below, levels)).collect();
    }
    root(boughs.first(), bytes)
}

/// The one node this many levels above up to `2^levels` nodes.
fn climb(below: &[Digest], levels: u32) -> Digest {
    let mut nodes = [Digest::default(); 1 << CLIMB];
    let mut count = below.len();
    nodes[..count].copy_from_slice(below);
    for _ in 0..levels {
        let above = count.div_ceil(2);
        for at in 0..above {
            nodes[at] = node(&nodes[2 * at..count.min(2 * at + 2)]);
        }
        count = above;
    }
    nodes[0]
}

fn root(top: Option<&Digest>, bytes: u64) -> Digest {
    let mut input = [0u8; 24];
    input[..16].copy_from_slice(&top.copied().unwrap_or_default().to_bytes());
    input[16..].copy_from_slice(&bytes.to_le_bytes());
    digest(&input)
}

/// The digest of one or two children.
fn node(children: &[Digest]) -> Digest {
    let mut bytes = [0u8; 32];
    for (bytes, child) in bytes.chunks_exact_mut(16).zip(children) {
        bytes.copy_from_slice(&child.to_bytes());
    }
    digest(&bytes[..children.len() * 16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree_of(data: &[u8], chunk: usize) -> Tree {
        Tree::build(boughs(&prints(data, chunk, &Hasher::new(1))))
    }

    proptest! {
        #[test]
        fn an_updated_tree_equals_a_built_one(
            data in proptest::collection::vec(any::<u8>(), 0..5000),
            flips in proptest::collection::vec(any::<prop::sample::Index>(), 1..20),
            grow in 0usize..400,
        ) {
            let chunk = 32;
            let mut tree = tree_of(&data, chunk);
            let mut next = data.clone();
            next.resize(data.len() + grow, 7);
            let old = prints(&data, chunk, &Hasher::new(1));
            if !next.is_empty() {
                for flip in &flips {
                    let at = flip.index(next.len());
                    next[at] ^= 0x55;
                }
            }
            let new = prints(&next, chunk, &Hasher::new(1));
            let after = boughs(&new);
            let before = boughs(&old);
            let changes: Vec<_> = after.iter().enumerate()
                .filter(|(i, d)| before.get(*i) != Some(d))
                .map(|(i, d)| (i as u64, *d)).collect();
            tree.update(after.len(), &changes);
            prop_assert_eq!(&tree, &tree_of(&next, chunk));
            prop_assert_eq!(tree.root(1) == tree.root(2), false);
        }

        #[test]
        fn the_root_comes_the_same_without_a_tree(len in 0usize..5000) {
            let boughs: Vec<Digest> = (0..len as u64).map(|at| Digest([at, at * at])).collect();
            prop_assert_eq!(root_of(boughs.clone(), 9), Tree::build(boughs).root(9));
        }

        #[test]
        fn boughs_come_the_same_either_way(len in 0usize..9000) {
            let data: Vec<u8> = (0..len).map(|i| (i * 7 / 3) as u8).collect();
            let hasher = Hasher::new(3);
            prop_assert_eq!(boughs_of(&data, 64, &hasher), boughs(&prints(&data, 64, &hasher)));
        }

        #[test]
        fn the_tree_does_not_depend_on_the_thread_count(len in 0usize..100_000) {
            let data: Vec<u8> = (0..len).map(|i| (i * 7 / 3) as u8).collect();
            let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            let many = rayon::ThreadPoolBuilder::new().num_threads(5).build().unwrap();
            prop_assert_eq!(one.install(|| tree_of(&data, 64)), many.install(|| tree_of(&data, 64)));
        }
    }

    #[test]
    fn any_flipped_bit_changes_the_root() {
        let data: Vec<u8> = (0..777u32).map(|i| (i * i) as u8).collect();
        let root = tree_of(&data, 32).root(777);
        for at in 0..data.len() {
            let mut other = data.clone();
            other[at] ^= 1 << (at % 8);
            assert_ne!(tree_of(&other, 32).root(777), root);
        }
    }
}

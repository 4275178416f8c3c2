//! Arrays in chunks, compared tile by tile.
//!
//! A file may hold an array in chunks that reach far along its slow axes. Walking such an array from front to back needs
//! nearly all of its chunks all the time: either all of them stay in memory, or each is decoded again and again. So two
//! arrays of which one is stored this way are compared in tiles: boxes that fit into memory, and that consist of whole
//! chunks of both sides as far as possible. A tile is decoded on both sides, each chunk once, then compared on all cores,
//! then forgotten.
//!
//! Where the chunks of one side do not fit those of the other, chunks are cut by the borders of tiles and decoded once for
//! each tile that they reach into. The tiles are chosen so that little is decoded in all: beginning with the whole array,
//! that axis is cut, and in that number of parts, which costs least for what it saves, until a tile fits.
//!
//! Counts, the first difference, examples and pictures do not depend on the order. A list of all differences, or the first
//! one alone, is found in the order of the array, without tiles (`source::chunks` has a window for that).

use super::pair::Pair;
use super::side::SideEntry;
use super::sides::Held;
use crate::array::{Description, GlobalBox, IndexBox, Order, Part, Shape};
use crate::error::{Error, Result};
use crate::memory::zeroed;
use std::sync::Arc;

/// The tiles in which two variables are compared, if one of them is stored in chunks that ask for it; both sides' tiles
/// take at most so much memory.
pub(super) fn tiles_of(pair: &Pair, memory: u64) -> Option<ArrayTiles> {
    let entries = [pair.a, pair.b];
    let plain = |entry: &&SideEntry| {
        entry.description.part.is_none() && entry.description.order == Order::C
    };
    let chunks = entries.map(|entry| entry.chunk.as_deref());
    let wanted = chunks.iter().any(Option::is_some) && entries.iter().all(plain);
    let values = pair.trees.is_none() && pair.inputs.is_some();
    let description = &pair.a.description;
    (wanted && values && pair.bytes > 0).then(|| {
        ArrayTiles::new(&description.shape.0, description.dtype.size(), chunks, memory / 2)
    })
}

/// Boxes of one extent, cut off at the end of the array, that make up an array.
#[derive(Clone, Debug)]
pub(super) struct ArrayTiles {
    shape: Vec<u64>,
    extent: Vec<u64>,
}

impl ArrayTiles {
    /// For an array of elements of some bytes, in chunks of these extents on each side; a tile has at most this many bytes.
    fn new(shape: &[u64], element: u64, chunks: [Option<&[u64]>; 2], most: u64) -> ArrayTiles {
        let fits = |chunk: &&[u64]| chunk.len() == shape.len();
        let chunks: Vec<&[u64]> = chunks.into_iter().flatten().filter(fits).collect();
        let mut extent = shape.to_vec();
        let bytes = |extent: &[u64]| extent.iter().fold(element, |n, e| n.saturating_mul(*e));
        let cost = |extent: &[u64]| chunks.iter().map(|c| decoded(shape, c, extent)).sum::<f64>();
        while bytes(&extent) > most {
            let (now, before) = (bytes(&extent) as f64, cost(&extent));
            let mut best: Option<(f64, Vec<u64>)> = None;
            for axis in 0..shape.len() {
                for size in smaller(shape[axis], extent[axis], chunks.iter().map(|c| c[axis])) {
                    let mut next = extent.clone();
                    next[axis] = size;
                    let worse = (cost(&next) / before).ln() / (now / bytes(&next) as f64).ln();
                    // The slower axis is cut if it does not matter, so that rows stay long.
                    if best.as_ref().is_none_or(|(least, _)| worse < *least - 1e-9) {
                        best = Some((worse, next));
                    }
                }
            }
            // A single element is not cut.
            let Some((_, next)) = best else { break };
            extent = next;
        }
        ArrayTiles { shape: shape.to_vec(), extent }
    }

    /// All tiles, in the order of their first elements.
    pub(super) fn all(&self) -> impl Iterator<Item = IndexBox> {
        let counts: Vec<u64> =
            self.shape.iter().zip(&self.extent).map(|(s, e)| s.div_ceil((*e).max(1))).collect();
        (0..counts.iter().product()).map(move |mut number: u64| {
            let mut tile = IndexBox { offset: self.shape.clone(), extent: self.extent.clone() };
            for axis in (0..counts.len()).rev() {
                tile.offset[axis] = number % counts[axis] * self.extent[axis];
                tile.extent[axis] = self.extent[axis].min(self.shape[axis] - tile.offset[axis]);
                number /= counts[axis];
            }
            tile
        })
    }
}

/// Mean number of times that a chunk is decoded: the number of tiles that it reaches into.
fn decoded(shape: &[u64], chunk: &[u64], tile: &[u64]) -> f64 {
    let along = |axis: usize| {
        let (len, chunk, tile) = (shape[axis].max(1), chunk[axis].max(1), tile[axis].max(1));
        let chunks = len.div_ceil(chunk);
        let borders = (len - 1) / tile;
        // Borders of tiles that are borders of chunks cut nothing.
        let common = tile / gcd(tile, chunk);
        let harmless = common.checked_mul(chunk).map_or(0, |common| (len - 1) / common);
        (chunks + borders - harmless) as f64 / chunks as f64
    };
    (0..shape.len()).map(along).product()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Sizes of tiles along an axis that are smaller than the present one: even shares, and multiples of chunks.
fn smaller(len: u64, now: u64, chunks: impl Iterator<Item = u64>) -> Vec<u64> {
    /// So many shares are tried.
    const TRIES: u64 = 8;
    let parts = len.div_ceil(now.max(1));
    let last = parts.saturating_mul(2);
    let step = ((last - parts) / TRIES).max(1);
    let shares = || (parts + 1..=last).step_by(step as usize).map(|parts| len.div_ceil(parts));
    let mut sizes: Vec<u64> = shares().collect();
    for chunk in chunks.filter(|chunk| *chunk > 1) {
        sizes.extend(
            shares().flat_map(|size| [size / chunk, size.div_ceil(chunk)]).map(|n| n * chunk),
        );
    }
    sizes.retain(|size| *size > 0 && *size < now);
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    sizes
}

impl SideEntry<'_> {
    /// A part of this variable, decoded.
    pub(super) fn tile(&self, tile: &IndexBox) -> Result<SideEntry<'static>> {
        let values = self.values.as_ref().ok_or_else(|| Error::usage("there are no values"))?;
        let global = self.description.shape.clone();
        let whole = IndexBox { offset: vec![0; global.0.len()], extent: global.0.clone() };
        let size = self.description.dtype.size();
        let runs = whole.runs_of(tile, tile, Order::C);
        let mut bytes: Vec<u8> = zeroed(tile.elements().unwrap_or(u64::MAX).saturating_mul(size))?;
        let mut reads: Vec<(u64, &mut [u8])> = Vec::with_capacity(runs.len());
        let mut rest = &mut bytes[..];
        for run in &runs {
            let (row, later) = rest.split_at_mut((run.len * size) as usize);
            reads.push((run.from * size, row));
            rest = later;
        }
        values.read_many(&mut reads)?;
        let part = Part::Box(GlobalBox { global, offset: tile.offset.clone(), ghosts: None });
        let description = Description {
            shape: Shape(tile.extent.clone()),
            part: Some(part),
            ..self.description.clone()
        };
        Ok(SideEntry {
            rank: self.rank,
            description,
            origin: self.origin.clone(),
            values: Some(Arc::new(Held(bytes))),
            trees: Vec::new(),
            unread: None,
            chunk: None,
            meaning: Default::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the chunks, tiles hold every element once, and no more bytes than they may.
        #[test]
        fn tiles_make_up_the_array(
            axes in proptest::collection::vec((1u64..30, 1u64..12, 1u64..12), 1..4),
            both in any::<bool>(),
            most in 8u64..4000,
        ) {
            let shape: Vec<u64> = axes.iter().map(|a| a.0).collect();
            let chunks: [Vec<u64>; 2] =
                [axes.iter().map(|a| a.1).collect(), axes.iter().map(|a| a.2).collect()];
            let tiles = ArrayTiles::new(&shape, 8, [Some(&chunks[0]), both.then_some(&chunks[1][..])], most);
            let whole = IndexBox { offset: vec![0; shape.len()], extent: shape.clone() };
            let mut seen = vec![0; shape.iter().product::<u64>() as usize];
            for tile in tiles.all() {
                prop_assert!(tile.elements().unwrap() * 8 <= most);
                for run in whole.runs_of(&tile, &tile, Order::C) {
                    seen[run.from as usize..][..run.len as usize].iter_mut().for_each(|s| *s += 1);
                }
            }
            prop_assert!(seen.iter().all(|times| *times == 1));
        }

        /// The estimate of what is decoded is exact.
        #[test]
        fn chunks_are_counted_as_they_are_cut(
            axes in proptest::collection::vec((1u64..30, 1u64..12, 1u64..12), 1..4),
        ) {
            let shape: Vec<u64> = axes.iter().map(|a| a.0).collect();
            let chunk: Vec<u64> = axes.iter().map(|a| a.1).collect();
            let extent: Vec<u64> = axes.iter().map(|a| a.2).collect();
            let boxes = |extent: &[u64]| ArrayTiles { shape: shape.clone(), extent: extent.to_vec() };
            let chunks: Vec<IndexBox> = boxes(&chunk).all().collect();
            let tiles = boxes(&extent);
            let pairs = tiles.all().map(|tile| {
                chunks.iter().filter(|chunk| tile.common(chunk).is_some()).count()
            });
            let pairs: usize = pairs.sum();
            let counted = decoded(&shape, &chunk, &extent) * chunks.len() as f64;
            prop_assert!((counted - pairs as f64).abs() < 1e-6, "{} {}", counted, pairs);
        }
    }

    /// Chunks that suit each other are decoded once, and others a few times.
    #[test]
    fn tiles_suit_chunks() {
        let shape = [300, 600, 600];
        let cost = |a: &[u64; 3], b: Option<&[u64; 3]>, most: u64| {
            let chunks = [Some(&a[..]), b.map(|b| &b[..])];
            let tiles = ArrayTiles::new(&shape, 4, chunks, most);
            chunks.into_iter().flatten().map(|c| decoded(&shape, c, &tiles.extent)).sum::<f64>()
        };
        let (by_space, by_time) = ([300, 10, 10], [1, 600, 600]);
        for most in [16 << 20, 128 << 20] {
            assert_eq!(cost(&by_space, None, most), 1.0);
            assert_eq!(cost(&by_space, Some(&by_space), most), 2.0);
            assert_eq!(cost(&[20, 60, 60], Some(&by_space), most), 2.0);
        }
        assert!(cost(&by_space, Some(&by_time), 128 << 20) <= 4.0);
        assert!(cost(&by_space, Some(&by_time), 16 << 20) <= 11.0);
        assert_eq!(cost(&by_space, Some(&by_time), 512 << 20), 2.0);
    }
}

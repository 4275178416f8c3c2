//! A bounded tree as it lies in memory and in files: one block of bytes, and where what is in it.
//!
//! A node covers 1,024 children ([`NODE`]): the digest of their 16 bytes each. So the tree above the
//! leaves adds a thousandth, a walk reads 16 KiB for each node it descends into, and hashing it goes at
//! the speed of memory. The planes of a *strip* of chunks lie together, the lowest plane first.

use super::build::NODE;
use super::grid::Component;
use super::{Bound, Grid, Leaf, MAX_PLANES};
use crate::array::DType;
use crate::error::{Error, Result};
use crate::merkle::Digest;
use std::ops::Range;

/// Bytes of a strip, if chunks are small enough: the work of one task.
const STRIP_BYTES: u64 = 4 << 20;

/// Recipe of a tree: bound, chunk size and planes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// The bound it was asked for.
    pub bound: Bound,
    /// The cells that serve it.
    pub grid: Grid,
    /// Size of a chunk in bytes.
    pub chunk: u32,
    /// Number of planes of the sketch.
    pub planes: u8,
}

impl Recipe {
    /// The recipe for a type; only what has cells has planes.
    pub fn new(dtype: DType, bound: Bound, chunk: u32, planes: u8) -> Result<Recipe> {
        let bound = bound.check()?.of_type(dtype);
        let grid = Grid::choose(dtype, bound);
        let planes = if grid == Grid::Bits { 0 } else { planes };
        Recipe { bound, grid, chunk, planes }.check()
    }

    /// The same recipe with as many planes as prove every large difference, if there are as many: for
    /// trees that stand without values. Recipes with less than four planes stay as they are.
    pub fn proving(self, dtype: DType) -> Recipe {
        let proves = |planes: &u8| self.grid.is_beyond(dtype, self.bound, 1 << (planes - 1));
        match self.planes {
            0..4 => self,
            least => {
                let planes = (least..=MAX_PLANES).find(proves).unwrap_or(least);
                Recipe { planes, ..self }
            }
        }
    }

    /// Refuses sizes that do not work.
    pub fn check(self) -> Result<Recipe> {
        if !self.chunk.is_power_of_two() || !(512..=1 << 20).contains(&self.chunk) {
            return Err(Error::usage(format!("invalid chunk of a tree: {} bytes", self.chunk))
                .hint("give a power of two from 512 B to 1 MiB; 4 KiB is usual"));
        }
        if self.planes > MAX_PLANES {
            return Err(Error::usage(format!("a sketch has at most {MAX_PLANES} planes")));
        }
        Ok(self)
    }
}

/// Byte ranges of the sections of a tree image (levels, leaves, NaN counts, planes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of chunks.
    pub chunks: u64,
    /// Size of a chunk of the data in bytes.
    pub chunk: u64,
    /// The bytes of data.
    pub bytes: u64,
    /// The places of the levels above the leaves, the lowest first.
    pub levels: Vec<Range<u64>>,
    /// The place of the leaves.
    pub leaves: Range<u64>,
    /// The place of the numbers of NaN, four bytes for each chunk; empty for what cannot be NaN.
    pub nans: Range<u64>,
    /// The place of the planes.
    pub planes: Range<u64>,
    /// Number of planes.
    pub plane_count: u8,
    /// Size of a plane of one chunk in bytes.
    pub stride: u64,
    /// Number of chunks of a strip; a multiple of eight.
    pub strip: u64,
}

impl Layout {
    /// The layout of an image for this many bytes of data.
    pub fn new(dtype: DType, bytes: u64, recipe: &Recipe) -> Result<Layout> {
        let component = Component::of(dtype);
        let chunk = recipe.chunk as u64;
        let chunks = bytes.div_ceil(chunk);
        let too_large = || Error::usage("a variable of this size is too large for a tree");
        let mut counts = Vec::new();
        let mut count = chunks;
        while count > 1 || counts.is_empty() && count > 0 {
            count = count.div_ceil(NODE);
            counts.push(count);
        }
        let mut end = 0u64;
        let mut take = |count: u64, size: u64| {
            let start = end;
            end = count.checked_mul(size).and_then(|len| start.checked_add(len))?;
            Some(start..end)
        };
        // Top levels first.
        let mut levels = Vec::new();
        for count in counts.iter().rev() {
            levels.push(take(*count, 16).ok_or_else(too_large)?);
        }
        levels.reverse();
        let leaves = take(chunks, 16).ok_or_else(too_large)?;
        let nans = take(if component.is_some() { chunks } else { 0 }, 4).ok_or_else(too_large)?;
        let stride = match component {
            Some(component) if recipe.planes > 0 => chunk / component.bytes as u64 / 8,
            _ => 0,
        };
        let plane_count = if stride > 0 { recipe.planes } else { 0 };
        let planes = chunks
            .checked_mul(stride)
            .and_then(|all| take(all, plane_count as u64))
            .ok_or_else(too_large)?;
        let strip = (STRIP_BYTES / chunk).clamp(8, NODE);
        Ok(Layout {
            chunks,
            chunk,
            bytes,
            levels,
            leaves,
            nans,
            planes,
            plane_count,
            stride,
            strip,
        })
    }

    /// The length of the image.
    pub fn len(&self) -> u64 {
        self.planes.end
    }

    /// Whether there is nothing to be hashed.
    pub fn is_empty(&self) -> bool {
        self.chunks == 0
    }

    /// The number of strips.
    pub fn strips(&self) -> u64 {
        self.chunks.div_ceil(self.strip)
    }

    /// The chunks of a strip.
    pub fn chunks_of(&self, strip: u64) -> Range<u64> {
        strip * self.strip..self.chunks.min((strip + 1) * self.strip)
    }

    /// The bytes of data of a chunk.
    pub fn data_of(&self, chunk: u64) -> Range<u64> {
        chunk * self.chunk..self.bytes.min((chunk + 1) * self.chunk)
    }

    /// The place of planes `planes` of a whole strip.
    pub fn planes_of(&self, strip: u64, planes: Range<u8>) -> Range<u64> {
        let chunks = self.chunks_of(strip);
        let pitch = (chunks.end - chunks.start) * self.stride;
        let start = self.planes.start + chunks.start * self.stride * self.plane_count as u64;
        start + pitch * planes.start as u64..start + pitch * planes.end as u64
    }
}

/// A whole tree in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// The recipe by which it was made.
    pub recipe: Recipe,
    /// The byte ranges of its sections.
    pub layout: Layout,
    /// The digest of everything but the planes.
    pub root: Digest,
    /// Number of values that are NaN.
    pub nans: u64,
    /// Number of bytes that are kept free in front of the body.
    pub front: usize,
    /// The front, then levels, leaves, numbers of NaN and planes.
    pub bytes: Vec<u8>,
}

impl Image {
    /// The levels, leaves, numbers of NaN and planes.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.front..]
    }

    pub(super) fn body_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.front..]
    }

    /// The leaf of a chunk.
    pub fn leaf(&self, chunk: u64) -> Leaf {
        leaf_at(self.body(), (self.layout.leaves.start + 16 * chunk) as usize)
    }
}

/// The leaf that begins at byte `at`.
pub(crate) fn leaf_at(bytes: &[u8], at: usize) -> Leaf {
    let word = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |w, b| w << 8 | *b as u64);
    [word(at), word(at + 8)]
}

//! Making trees: all at once, or again where something changed.

use super::cells::Loops;
use super::grid::Component;
use super::lanes::ChunkPlanes;
use super::{Grid, Image, LACKING, Layout, Leaf, Recipe};
use crate::array::{DType, Rounding};
use crate::error::Result;
use crate::memory::zeroed;
use crate::merkle::{Digest, digest};
use rayon::prelude::*;
use std::ops::Range;

/// Number of children of a node.
pub const NODE: u64 = 1024;

/// Makes the trees of one variable, for several bounds at once.
pub struct Builder {
    dtype: DType,
    recipes: Vec<Recipe>,
    vectors: bool,
    front: usize,
    rounding: Option<Rounding>,
}

/// Hands over a range of the data.
type Lend<'a> = dyn Fn(Range<u64>, &mut dyn FnMut(&[u8])) + Sync + 'a;

/// Results for one strip of data and one recipe.
struct Out<'a> {
    leaves: &'a mut [u8],
    nans: &'a mut [u8],
    planes: &'a mut [u8],
}

impl Builder {
    /// For arrays of a type; all recipes have the same chunk size.
    pub fn new(dtype: DType, recipes: &[Recipe]) -> Self {
        debug_assert!(recipes.windows(2).all(|r| r[0].chunk == r[1].chunk));
        Builder { dtype, recipes: recipes.to_vec(), vectors: true, front: 0, rounding: None }
    }

    #[cfg(any(test, feature = "testing"))]
    /// Does without vector instructions that not every processor has; the same bits come out.
    #[must_use]
    pub fn baseline(mut self) -> Self {
        self.vectors = false;
        self
    }

    /// Keeps bytes free in front of every tree, for its head.
    #[must_use]
    pub fn front(mut self, bytes: usize) -> Self {
        self.front = bytes;
        self
    }

    /// Makes the trees of values in memory as they are when they are rounded.
    #[must_use]
    pub(crate) fn rounded(mut self, rounding: Option<Rounding>) -> Self {
        self.rounding = rounding;
        self
    }

    /// The trees over `data`, one for each recipe, in one pass over it.
    pub fn build(&self, data: &[u8]) -> Result<Vec<Image>> {
        self.build_from(data.len() as u64, true, |range, work| {
            self.lend(data, range, work);
            Ok(())
        })
    }

    /// Hands over a range of values in memory, rounded if they are to be.
    fn lend(&self, data: &[u8], range: Range<u64>, work: &mut dyn FnMut(&[u8])) {
        let data = &data[range.start as usize..range.end as usize];
        match self.rounding {
            None => work(data),
            Some(rounding) => {
                let mut rounded = data.to_vec();
                rounding.round(&mut rounded);
                work(&rounded);
            }
        }
    }

    /// Builds trees of data that is not in memory: `lend` is asked for ranges of it, each once, in order or from
    /// several threads, and passes them to the function it is given.
    pub fn build_from(
        &self,
        bytes: u64,
        parallel: bool,
        lend: impl Fn(Range<u64>, &mut dyn FnMut(&[u8])) -> Result<()> + Sync,
    ) -> Result<Vec<Image>> {
        let mut images = self.blank(bytes)?;
        self.fill(&mut images, bytes, parallel, lend)?;
        Ok(images)
    }

    /// Makes the trees of other data of the same length in the memory of these.
    pub fn rebuild(&self, images: &mut [Image], data: &[u8]) -> Result<()> {
        self.fill(images, data.len() as u64, true, |range, work| {
            self.lend(data, range, work);
            Ok(())
        })
    }

    fn fill(
        &self,
        images: &mut [Image],
        bytes: u64,
        parallel: bool,
        lend: impl Fn(Range<u64>, &mut dyn FnMut(&[u8])) -> Result<()> + Sync,
    ) -> Result<()> {
        let Some(first) = images.first() else { return Ok(()) };
        let (chunk, strip) = (first.layout.chunk, first.layout.strip);
        let mut parts: Vec<_> = images.iter_mut().map(parts).collect();
        let strips = (0..bytes.div_ceil(strip * chunk)).map(|at| {
            let range = at * strip * chunk..bytes.min((at + 1) * strip * chunk);
            let len = (range.end - range.start) as usize;
            (range, parts.iter_mut().map(|parts| parts.take(len)).collect())
        });
        let strips: Vec<(Range<u64>, Vec<Out>)> = strips.collect();
        let workers = self.workers();
        let one = |(range, mut outs): (Range<u64>, Vec<Out>)| {
            lend(range, &mut |data: &[u8]| {
                let count = data.len().div_ceil(chunk as usize);
                for (at, piece) in data.chunks(chunk as usize).enumerate() {
                    for (worker, out) in workers.iter().zip(&mut outs) {
                        worker.chunk(piece, at, count, out);
                    }
                }
            })
        };
        match parallel {
            true => strips.into_par_iter().try_for_each(one)?,
            false => strips.into_iter().try_for_each(one)?,
        }
        drop(parts);
        images.iter_mut().for_each(|image| image.close(None));
        Ok(())
    }

    /// Brings trees up to date with `data`, of which only the bytes of `dirty` may have changed.
    ///
    /// The trees are those of data of the same length; `dirty` is ascending.
    pub fn update(&self, images: &mut [Image], data: &[u8], dirty: &[Range<u64>]) {
        let Some(first) = self.recipes.first() else { return };
        let chunk = first.chunk as u64;
        let mut chunks: Vec<u64> = dirty
            .iter()
            .filter(|range| !range.is_empty())
            .flat_map(|range| range.start / chunk..range.end.div_ceil(chunk))
            .collect();
        chunks.dedup();
        let workers = self.workers();
        let lend = |range: Range<u64>, work: &mut dyn FnMut(&[u8])| self.lend(data, range, work);
        for (worker, image) in workers.iter().zip(images) {
            image.renew(worker, &lend, &chunks);
        }
    }

    /// Size in bytes of each tree over this much data, with the space that is kept free in front.
    pub fn sizes(&self, bytes: u64) -> Result<Vec<u64>> {
        let layout = |recipe: &Recipe| Layout::new(self.dtype, bytes, recipe);
        let sizes = self.recipes.iter().map(|r| Ok(self.front as u64 + layout(r)?.len()));
        sizes.collect()
    }

    fn blank(&self, bytes: u64) -> Result<Vec<Image>> {
        let blank = |recipe: &Recipe| {
            let layout = Layout::new(self.dtype, bytes, recipe)?;
            let len = self.front as u64 + layout.len();
            let bytes = zeroed(len)
                .map_err(|e| e.hint("make the tree with larger chunks or fewer planes"))?;
            let root = Digest::default();
            Ok(Image { recipe: *recipe, layout, root, nans: 0, front: self.front, bytes })
        };
        self.recipes.iter().map(blank).collect()
    }

    fn workers(&self) -> Vec<TreeWorker> {
        let worker = |recipe: &Recipe| match (recipe.grid, Component::of(self.dtype)) {
            (_, None) => TreeWorker { loops: None, component: None, planes: 0 },
            (Grid::Bits, component) => TreeWorker { loops: None, component, planes: 0 },
            (grid, Some(component)) => {
                let loops = Loops::new(component, grid, recipe.chunk as usize, self.vectors);
                TreeWorker { loops: Some(loops), component: Some(component), planes: recipe.planes }
            }
        };
        self.recipes.iter().map(worker).collect()
    }
}

/// Computes chunks for one recipe.
struct TreeWorker {
    /// Nothing for trees over bits.
    loops: Option<Loops>,
    /// Nothing for what cannot be NaN.
    component: Option<Component>,
    planes: u8,
}

impl TreeWorker {
    /// Computes chunk `at` of the `count` of a strip.
    fn chunk(&self, data: &[u8], at: usize, count: usize, out: &mut Out) {
        let (leaf, nans) = match &self.loops {
            None => {
                let nans = self.component.map_or(0, |component| component.nans(data));
                (digest(data).0, nans)
            }
            Some(loops) => {
                let stride = out.planes.len() / count / (self.planes.max(1) as usize);
                let from = (at * stride).min(out.planes.len());
                let planes = ChunkPlanes {
                    out: &mut out.planes[from..],
                    pitch: count * stride,
                    count: self.planes,
                };
                let done = loops.chunk(data, planes);
                (done.leaf, done.nans | if done.lacking { u64::from(LACKING) } else { 0 })
            }
        };
        put_leaf(&mut out.leaves[at * 16..at * 16 + 16], leaf);
        if !out.nans.is_empty() {
            out.nans[at * 4..at * 4 + 4].copy_from_slice(&(nans as u32).to_le_bytes());
        }
    }
}

fn put_leaf(out: &mut [u8], leaf: Leaf) {
    out[..8].copy_from_slice(&leaf[0].to_le_bytes());
    out[8..].copy_from_slice(&leaf[1].to_le_bytes());
}

/// The parts of an image that are still to be handed out, strip by strip.
struct ImageParts<'a> {
    leaves: &'a mut [u8],
    nans: &'a mut [u8],
    planes: &'a mut [u8],
    chunk: usize,
    /// The bytes of all planes of one chunk.
    plane_bytes: usize,
}

fn parts(image: &mut Image) -> ImageParts<'_> {
    let layout = image.layout.clone();
    let (_, rest) = image.body_mut().split_at_mut(layout.leaves.start as usize);
    let (leaves, rest) = rest.split_at_mut((layout.leaves.end - layout.leaves.start) as usize);
    let (nans, planes) = rest.split_at_mut((layout.nans.end - layout.nans.start) as usize);
    ImageParts {
        leaves,
        nans,
        planes,
        chunk: layout.chunk as usize,
        plane_bytes: layout.stride as usize * layout.plane_count as usize,
    }
}

impl<'a> ImageParts<'a> {
    /// The places for the next strip, which has this many bytes of data.
    fn take(&mut self, bytes: usize) -> Out<'a> {
        let chunks = bytes.div_ceil(self.chunk);
        let nans = if self.nans.is_empty() { 0 } else { chunks * 4 };
        Out {
            leaves: self.leaves.split_off_mut(..chunks * 16).unwrap_or_default(),
            nans: self.nans.split_off_mut(..nans).unwrap_or_default(),
            planes: self.planes.split_off_mut(..chunks * self.plane_bytes).unwrap_or_default(),
        }
    }
}

impl Image {
    /// Computes the given chunks again, in parallel, and what stands above them.
    fn renew(&mut self, worker: &TreeWorker, lend: &Lend, chunks: &[u64]) {
        let layout = self.layout.clone();
        let stride = layout.stride as usize;
        let one = |chunk: &u64| {
            let range = layout.data_of(*chunk);
            let mut leaf = [0; 16];
            let mut nans = [0; 4];
            let mut planes = vec![0; stride * layout.plane_count as usize];
            let mut out = Out { leaves: &mut leaf, nans: &mut nans, planes: &mut planes };
            lend(range, &mut |data| worker.chunk(data, 0, 1, &mut out));
            (*chunk, leaf, nans, planes)
        };
        for batch in chunks.chunks(NODE as usize) {
            let made: Vec<_> = batch.par_iter().map(one).collect();
            for (chunk, leaf, nans, planes) in made {
                let at = (layout.leaves.start + chunk * 16) as usize;
                self.body_mut()[at..at + 16].copy_from_slice(&leaf);
                if !layout.nans.is_empty() {
                    let at = (layout.nans.start + chunk * 4) as usize;
                    self.body_mut()[at..at + 4].copy_from_slice(&nans);
                }
                let strip = chunk / layout.strip;
                let within = ((chunk - strip * layout.strip) * layout.stride) as usize;
                for plane in 0..layout.plane_count {
                    let at = layout.planes_of(strip, plane..plane + 1).start as usize + within;
                    let from = plane as usize * stride;
                    self.body_mut()[at..at + stride].copy_from_slice(&planes[from..from + stride]);
                }
            }
        }
        self.close(Some(chunks));
    }

    /// Computes the nodes above the leaves, all or those above `changed`, and the root.
    fn close(&mut self, changed: Option<&[u64]>) {
        let layout = self.layout.clone();
        let mut dirty: Option<Vec<u64>> = changed.map(<[u64]>::to_vec);
        let mut below = layout.leaves.clone();
        for level in &layout.levels {
            let children = &self.body()[below.start as usize..below.end as usize];
            let node = |at: u64| {
                let from = (at * NODE * 16) as usize;
                digest(&children[from..children.len().min(from + NODE as usize * 16)])
            };
            if let Some(dirty) = &mut dirty {
                dirty.iter_mut().for_each(|at| *at /= NODE);
                dirty.dedup();
            }
            let all = (level.end - level.start) / 16;
            let nodes: Vec<(u64, Digest)> = match &dirty {
                Some(dirty) => dirty.par_iter().map(|at| (*at, node(*at))).collect(),
                None => (0..all).into_par_iter().map(|at| (at, node(at))).collect(),
            };
            for (at, node) in nodes {
                let at = (level.start + at * 16) as usize;
                self.body_mut()[at..at + 16].copy_from_slice(&node.to_bytes());
            }
            below = level.clone();
        }
        let nans = &self.body()[layout.nans.start as usize..layout.nans.end as usize];
        let count = |four: &[u8; 4]| u64::from(u32::from_le_bytes(*four) & !LACKING);
        let (total, nans) = (nans.as_chunks::<4>().0.iter().map(count).sum(), digest(nans));
        self.nans = total;
        self.root = root(&layout, self.body(), nans);
    }
}

/// The root: a digest of the top node, of the numbers of NaN and of the length.
///
/// The top node comes first in a body.
pub(crate) fn root(layout: &Layout, body: &[u8], nans: Digest) -> Digest {
    let mut input = [0; 40];
    if !layout.levels.is_empty() {
        input[..16].copy_from_slice(&body[..16]);
    }
    input[16..32].copy_from_slice(&nans.to_bytes());
    input[32..].copy_from_slice(&layout.bytes.to_le_bytes());
    digest(&input)
}

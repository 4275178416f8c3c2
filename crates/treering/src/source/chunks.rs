//! A chunked array of a file, read as if its values lay one after another.
//!
//! The chunks that a read touches are decoded, each once as long as the cache holds it; the cache is
//! shared by all arrays of a file and bounded.

use super::Extent;
use super::filter::{self, Coding};
use super::grid::ChunkGrid;
use crate::error::{Error, Result};
use crate::format::{ChunkRecipe, Filter};
use crate::store::{Blob, read_each};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

/// How many bytes of decoded chunks are kept for a file.
const KEPT: usize = 64 << 20;

/// Where a chunk lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) index: u64,
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) left_out: u32,
}

/// A chunked array.
pub(super) struct Chunks {
    pub(super) recipe: ChunkRecipe,
    codings: Vec<Coding>,
    pub(super) grid: ChunkGrid,
    /// In the order of their indices; what is missing was never written.
    pub(super) stored: Vec<Stored>,
    /// The value of what was never written, as in the field.
    fill: Vec<u8>,
    whole: Extent,
    size: u64,
    cache: Arc<Cache>,
}

impl Chunks {
    /// Refuses chunks that are there twice; those beyond the array are left out.
    pub(super) fn new(
        recipe: ChunkRecipe,
        codings: Vec<Coding>,
        mut stored: Vec<Stored>,
        whole: &Extent,
        cache: &Arc<Cache>,
    ) -> Result<Self> {
        recipe.check()?;
        let element = recipe.padding.len() as u64;
        let grid = ChunkGrid::new(&recipe.shape, &recipe.chunk, element);
        stored.retain(|chunk| chunk.index < grid.chunks());
        stored.sort_by_key(|chunk| chunk.index);
        if stored.windows(2).any(|pair| pair[0].index == pair[1].index) {
            return Err(Error::damaged("a chunk of an array is there twice"));
        }
        for chunk in &stored {
            whole.part(chunk.at, chunk.len)?;
        }
        let mut fill = recipe.padding.clone();
        filter::swap(&mut fill, recipe.swap);
        let size = recipe.shape.iter().product::<u64>() * element;
        Ok(Chunks {
            recipe,
            codings,
            grid,
            stored,
            fill,
            whole: whole.clone(),
            size,
            cache: cache.clone(),
        })
    }

    /// Whether its chunks pass filters on their way into the file.
    pub(super) fn is_filtered(&self) -> bool {
        !self.codings.is_empty()
    }

    fn stored_bytes(&self, chunk: &Stored) -> Result<Vec<u8>> {
        let mut bytes = vec![0; chunk.len as usize];
        self.whole.read_at(chunk.at, &mut bytes)?;
        Ok(bytes)
    }

    /// A chunk before its filters, its bytes in the file's order.
    fn decode(&self, chunk: &Stored) -> Result<Vec<u8>> {
        let stored = self.stored_bytes(chunk)?;
        let len = self.grid.chunk_bytes() as usize;
        filter::decode(&self.codings, chunk.left_out, stored, len)
            .map_err(|e| e.at(self.whole.store()))
    }

    /// A chunk as it is in the field, with its padding.
    fn values(&self, chunk: &Stored) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.cache.get(chunk.at) {
            return Ok(bytes);
        }
        let mut bytes = self.decode(chunk)?;
        filter::swap(&mut bytes, self.recipe.swap);
        let bytes = Arc::new(bytes);
        self.cache.put(chunk.at, &bytes);
        Ok(bytes)
    }

    /// The recipe by which the chunks can be made again, as far as one of them tells.
    ///
    /// Padding is looked up in the first chunk that has some; the level of zlib is found by trying,
    /// the one that the file names first.
    pub(super) fn calibrated(&self) -> Result<Option<ChunkRecipe>> {
        let mut recipe = self.recipe.clone();
        recipe.filters.clear();
        for coding in &self.codings {
            let Coding::Known(filter) = coding else { return Ok(None) };
            recipe.filters.push(*filter);
        }
        if let Some(chunk) = self.stored.iter().find(|chunk| self.grid.padded(chunk.index)) {
            recipe.padding = self.padding(chunk, &self.decode(chunk)?)?;
        }
        let place = recipe.filters.iter().position(|f| matches!(f, Filter::Deflate(_)));
        let Some(place) = place else { return Ok(Some(recipe)) };
        let Some(chunk) = self.stored.iter().find(|chunk| chunk.left_out & 1 << place == 0) else {
            return Ok(Some(recipe));
        };
        let (bytes, stored) = (self.decode(chunk)?, self.stored_bytes(chunk)?);
        let Filter::Deflate(named) = recipe.filters[place] else { return Ok(Some(recipe)) };
        for level in [named].into_iter().chain((1..=9).filter(|level| *level != named)) {
            recipe.filters[place] = Filter::Deflate(level);
            if filter::encode(&recipe, chunk.left_out, bytes.clone()) == stored {
                return Ok(Some(recipe));
            }
        }
        Ok(None)
    }

    /// The first element of a chunk that is beyond the array.
    fn padding(&self, chunk: &Stored, bytes: &[u8]) -> Result<Vec<u8>> {
        let element = self.recipe.padding.len();
        let mut covered = vec![false; bytes.len()];
        self.grid.rows(chunk.index, 0, u64::MAX, &mut |_, at, len| {
            covered[at..at + len].fill(true);
            Ok(())
        })?;
        let free = covered.chunks_exact(element).position(|element| !element[0]);
        Ok(free.map_or(self.recipe.padding.clone(), |at| bytes[at * element..][..element].to_vec()))
    }
}

impl Blob for Chunks {
    fn store(&self) -> &str {
        self.whole.store()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset + buffer.len() as u64;
        self.grid.within(offset, end, &mut |index| match self
            .stored
            .binary_search_by_key(&index, |chunk| chunk.index)
        {
            Ok(at) => {
                let bytes = self.values(&self.stored[at])?;
                self.grid.rows(index, offset, end, &mut |array, place, len| {
                    buffer[(array - offset) as usize..][..len]
                        .copy_from_slice(&bytes[place..place + len]);
                    Ok(())
                })
            }
            Err(_) => self.grid.rows(index, offset, end, &mut |array, _, len| {
                repeat(&self.fill, array, &mut buffer[(array - offset) as usize..][..len]);
                Ok(())
            }),
        })
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        false
    }
}

/// Fills bytes of an array, from its byte `from` on, with one element again and again.
pub(super) fn repeat(element: &[u8], from: u64, buffer: &mut [u8]) {
    if element.iter().all(|byte| *byte == 0) {
        return buffer.fill(0);
    }
    let first = (from % element.len() as u64) as usize;
    buffer.iter_mut().zip(element.iter().cycle().skip(first)).for_each(|(to, from)| *to = *from);
}

/// Decoded chunks of a file, by where they lie in it; the oldest goes first.
#[derive(Default)]
pub(super) struct Cache(Mutex<CachedChunks>);

#[derive(Default)]
struct CachedChunks {
    chunks: HashMap<u64, Arc<Vec<u8>>>,
    order: VecDeque<u64>,
    bytes: usize,
}

impl Cache {
    fn get(&self, at: u64) -> Option<Arc<Vec<u8>>> {
        let kept = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.chunks.get(&at).cloned()
    }

    fn put(&self, at: u64, bytes: &Arc<Vec<u8>>) {
        let mut kept = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if kept.chunks.insert(at, bytes.clone()).is_some() {
            return;
        }
        kept.order.push_back(at);
        kept.bytes += bytes.len();
        while kept.bytes > KEPT
            && kept.order.len() > 1
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.bytes -= kept.chunks.remove(&oldest).map_or(0, |bytes| bytes.len());
        }
    }
}

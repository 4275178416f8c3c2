//! A chunked array of a file, read as if its values lay one after another.
//!
//! A read decodes the chunks that it touches, on all cores, each once however many ranges of the read it serves. Decoded
//! chunks are kept in a cache, which is bounded and shared by all arrays of a file.
//!
//! A *band* is a row of chunks along all axes but the first. A walk from front to back needs all chunks of a band again
//! and again. An array whose bands do not fit into the cache is therefore walked through a *window*: as many bytes as
//! memory allows, decoded at once. Then a chunk is decoded once if its band fits into the window, and otherwise once for
//! each window that the band is cut into. An array of this kind asks to be read in order. A caller that can choose its
//! order reads boxes of whole chunks ([`read_many`](Blob::read_many)), which decodes each chunk once without a window.

use super::Extent;
use super::filter::{self, Coding};
use super::grid::ChunkGrid;
use super::window::WindowRoom;
use crate::error::{Error, Result};
use crate::format::{ChunkRecipe, Filter};
use crate::store::Blob;
use rayon::prelude::*;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Bytes of decoded chunks that are kept for a file.
const KEPT: u64 = 64 << 20;
/// Memory of one window, at most.
const WINDOW: u64 = 256 << 20;
/// Longest skip that still counts as walking along the array.
const SKIPPED: u64 = 4 << 20;
/// Largest number of pairs of a chunk and a range that are sorted at a time.
const MOST_PARTS: usize = 4 << 20;

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
    window: Mutex<ChunkWindow>,
    /// Size of the largest window.
    most: u64,
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
            window: Mutex::default(),
            most: WINDOW,
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

    /// A chunk as it is in the field, with its padding; kept if it is `wanted_again`.
    fn values(&self, chunk: &Stored, wanted_again: bool) -> Result<Arc<Vec<u8>>> {
        let decode = || -> Result<Arc<Vec<u8>>> {
            let mut bytes = self.decode(chunk)?;
            filter::swap(&mut bytes, self.recipe.swap);
            self.cache.decoded.fetch_add(1, Ordering::Relaxed);
            Ok(Arc::new(bytes))
        };
        match wanted_again {
            true => self.cache.get_or(chunk.at, self.grid.chunk_bytes(), decode),
            false => self.cache.get(chunk.at).map_or_else(decode, Ok),
        }
    }

    /// Fills ranges with values, each chunk decoded once; those of a large array in several turns.
    fn fill(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let targets: Vec<(u64, u64, Mutex<&mut [u8]>)> = ranges
            .iter_mut()
            .map(|(from, to)| (*from, *from + to.len() as u64, Mutex::new(&mut **to)))
            .collect();
        let mut parts: Vec<(u64, usize)> = Vec::new();
        for (number, (from, to, _)) in targets.iter().enumerate() {
            self.grid.within(*from, *to, &mut |index| {
                parts.push((index, number));
                match parts.len() < MOST_PARTS {
                    true => Ok(()),
                    false => self.fill_parts(&mut parts, &targets),
                }
            })?;
        }
        self.fill_parts(&mut parts, &targets)
    }

    /// Decodes chunks and deals them out to the ranges that they belong to. Another core decodes the next chunk
    /// while one is dealt out.
    fn fill_parts(
        &self,
        parts: &mut Vec<(u64, usize)>,
        targets: &[(u64, u64, Mutex<&mut [u8]>)],
    ) -> Result<()> {
        parts.sort_unstable();
        let of_chunks: Vec<&[(u64, usize)]> = parts.chunk_by(|a, b| a.0 == b.0).collect();
        let bytes = self.grid.chunk_bytes().saturating_mul(of_chunks.len() as u64);
        let wanted_again = of_chunks.len() == 1 || bytes <= self.cache.limit;
        let fill = |parts: &&[(u64, usize)]| -> Result<()> {
            let index = parts[0].0;
            let stored = self.stored.binary_search_by_key(&index, |chunk| chunk.index);
            let values = stored.ok().map(|at| self.values(&self.stored[at], wanted_again));
            let values = values.transpose()?;
            for (_, number) in *parts {
                let (from, to, target) = &targets[*number];
                let mut target = target.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                self.grid.rows(index, *from, *to, &mut |array, place, len| {
                    let row = &mut target[(array - from) as usize..][..len];
                    match &values {
                        Some(values) => row.copy_from_slice(&values[place..place + len]),
                        None => repeat(&self.fill, array, row),
                    }
                    Ok(())
                })?;
            }
            Ok(())
        };
        match &of_chunks[..] {
            [one] => fill(one)?,
            all => all.par_iter().try_for_each(fill)?,
        }
        parts.clear();
        Ok(())
    }

    /// Reads through the window. A read that does not begin where the last one ended, or a little later, does without: it
    /// decodes what it needs.
    fn read_on(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset + buffer.len() as u64;
        // No lock is held while chunks are decoded.
        let mut window = std::mem::take(&mut *self.window());
        let (mut at, mut rest) = (offset, &mut buffer[..]);
        while at < end {
            if !window.range().contains(&at) {
                let goes_on = at.checked_sub(window.next).is_some_and(|skipped| skipped <= SKIPPED);
                if !goes_on && at != 0 {
                    self.fill(&mut [(at, rest)])?;
                    break;
                }
                drop(std::mem::take(&mut window));
                window = ChunkWindow::new(at, |most| self.window_end(at, most), self.most)?;
                self.fill(&mut [(at, &mut window.bytes)])?;
            }
            let len = (window.range().end.min(end) - at) as usize;
            let (head, tail) = rest.split_at_mut(len);
            head.copy_from_slice(&window.bytes[(at - window.start) as usize..][..len]);
            (at, rest) = (at + len as u64, tail);
            window.next = at;
        }
        window.next = end;
        if end < self.size {
            *self.window() = window;
        }
        Ok(())
    }

    fn window(&self) -> MutexGuard<'_, ChunkWindow> {
        self.window.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The end of a window: whole bands, or an even share of one.
    fn window_end(&self, start: u64, most: u64) -> u64 {
        let band = self.grid.band_at(start);
        let (len, left) = (band.end - band.start, band.end - start);
        let end = match left <= most {
            true => band.end + (most - left) / len * len,
            false => start + left.div_ceil(left.div_ceil(most)),
        };
        end.min(self.size)
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
        match self.in_order() && (buffer.len() as u64) < self.most {
            true => self.read_on(offset, buffer),
            false => self.fill(&mut [(offset, buffer)]),
        }
    }

    /// Each chunk is decoded once, whichever ranges it has bytes of.
    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.fill(ranges)
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }

    /// Whether bands do not fit into the cache.
    fn in_order(&self) -> bool {
        let band = self.grid.chunks_of_band().saturating_mul(self.grid.chunk_bytes());
        band > self.cache.room()
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

/// Bytes of an array that were decoded together.
#[derive(Default)]
struct ChunkWindow {
    start: u64,
    bytes: Vec<u8>,
    /// Where the next read begins if the array is read in order.
    next: u64,
    _room: WindowRoom,
}

impl ChunkWindow {
    /// A window of zeros that begins at `start`; `end` tells where it ends if it may have this many bytes.
    fn new(start: u64, end: impl Fn(u64) -> u64, most: u64) -> Result<Self> {
        let len = end(WindowRoom::left(most)) - start;
        let bytes = crate::memory::zeroed(len)?;
        Ok(ChunkWindow { start, bytes, next: start, _room: WindowRoom::take(len) })
    }

    fn range(&self) -> std::ops::Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }
}

/// Decoded chunks of a file, by where they lie in it; the oldest goes first.
pub(super) struct Cache {
    kept: Mutex<CachedChunks>,
    /// Number of bytes that are kept.
    limit: u64,
    /// Number of chunks that were decoded.
    decoded: AtomicU64,
}

/// The values of a chunk, which one reader decodes while others wait.
type CachedChunk = Arc<OnceLock<Result<Arc<Vec<u8>>>>>;

#[derive(Default)]
struct CachedChunks {
    chunks: HashMap<u64, (CachedChunk, u64)>,
    order: VecDeque<u64>,
    bytes: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Cache { kept: Mutex::default(), limit: KEPT, decoded: AtomicU64::new(0) }
    }
}

impl Cache {
    /// Size of the largest band that is kept: a read may touch two.
    fn room(&self) -> u64 {
        self.limit / 2
    }

    fn kept(&self) -> MutexGuard<'_, CachedChunks> {
        self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn get(&self, at: u64) -> Option<Arc<Vec<u8>>> {
        self.kept().chunks.get(&at)?.0.get()?.clone().ok()
    }

    fn get_or(
        &self,
        at: u64,
        len: u64,
        decode: impl FnOnce() -> Result<Arc<Vec<u8>>>,
    ) -> Result<Arc<Vec<u8>>> {
        let chunk = self.kept().slot(at, len, self.limit);
        let values = chunk.get_or_init(decode).clone();
        if values.is_err() {
            // The next reader tries again.
            self.kept().forget(at);
        }
        values
    }
}

impl CachedChunks {
    fn slot(&mut self, at: u64, len: u64, limit: u64) -> CachedChunk {
        if let Some((chunk, _)) = self.chunks.get(&at) {
            return chunk.clone();
        }
        let chunk = CachedChunk::default();
        self.chunks.insert(at, (chunk.clone(), len));
        self.order.push_back(at);
        self.bytes += len;
        while self.bytes > limit
            && self.order.len() > 1
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.chunks.remove(&oldest).map_or(0, |(_, len)| len);
        }
        chunk
    }

    fn forget(&mut self, at: u64) {
        if let Some((_, len)) = self.chunks.remove(&at) {
            self.bytes -= len;
            self.order.retain(|other| *other != at);
        }
    }
}

#[cfg(test)]
mod tests;

//! A file made again from its skeleton and the values of its fields.
//!
//! The pieces are rendered in the order of the file, in bounded memory; chunks are gathered from
//! their fields in batches and filtered side by side. The same rendering proves a skeleton when a
//! file is taken apart and writes the file when it is given back, where the digest has the last word.

use super::filter;
use super::grid::ChunkGrid;
use crate::error::{Error, Result};
use crate::format::{Chunk, ChunkRecipe, Piece, Skeleton, Values};
use crate::memory::Scratch;
use crate::merkle::Digester;
use flate2::{Compress, Compression, FlushCompress, Status};
use rayon::prelude::*;
use std::io::Write;

/// How many bytes are read at a time, so that they are still near when they are written, and how many
/// are filtered side by side.
const BLOCK: u64 = 256 << 10;
const BATCH: u64 = 32 << 20;

/// Gives the bytes of a field from an offset on.
pub type ReadField<'a> = &'a dyn Fn(usize, u64, &mut [u8]) -> Result<()>;
/// Takes the bytes of a piece, in parts, or the reason why it has none.
pub(super) type Emit<'a> = &'a mut dyn FnMut(usize, Result<&[u8]>) -> Result<()>;

impl Skeleton {
    /// Writes the file; `read` gives the bytes of a field from an offset on, as the field has them.
    pub fn rebuild(&self, read: ReadField, out: &mut dyn Write) -> Result<()> {
        let mut digester = Digester::new();
        let mut written = 0;
        self.render(read, &|_| true, &mut |_, bytes| {
            let bytes = bytes?;
            written += bytes.len() as u64;
            if written > self.size {
                return Err(Error::damaged("a file comes out longer than it was"));
            }
            digester.update(bytes);
            out.write_all(bytes).map_err(|e| Error::io("cannot write a file", e))
        })?;
        match written == self.size && digester.finish() == self.digest {
            true => Ok(()),
            false => Err(Error::damaged("a file comes out different from what it was")
                .hint("its values are not those that it was taken apart into")),
        }
    }

    /// Hands over every piece, in parts; of values only those that are wanted.
    pub(super) fn render(
        &self,
        read: ReadField,
        wanted: &dyn Fn(usize) -> bool,
        emit: Emit,
    ) -> Result<()> {
        let mut renderer = Renderer {
            recipes: &self.recipes,
            grids: self.recipes.iter().map(grid).collect(),
            literals: &self.literals,
            read,
            window: None,
        };
        let mut at = 0;
        while at < self.pieces.len() {
            if matches!(self.pieces[at], Piece::Values(_)) && !wanted(at) {
                at += 1;
                continue;
            }
            at += renderer.some(&self.pieces[at..], at, emit)?;
        }
        Ok(())
    }
}

fn grid(recipe: &ChunkRecipe) -> ChunkGrid {
    ChunkGrid::new(&recipe.shape, &recipe.chunk, recipe.padding.len() as u64)
}

struct Renderer<'a> {
    recipes: &'a [ChunkRecipe],
    grids: Vec<ChunkGrid>,
    literals: &'a [u8],
    read: ReadField<'a>,
    /// A band of a field, read at once: the field, where it begins, its bytes.
    window: Option<(u64, u64, Vec<u8>)>,
}

impl<'a> Renderer<'a> {
    /// Renders the first piece, or as many chunks as make a batch; tells how many.
    fn some(&mut self, pieces: &[Piece], number: usize, emit: Emit) -> Result<usize> {
        match &pieces[0] {
            Piece::Literal { len } => {
                let bytes = self.literal(*len)?;
                emit(number, Ok(bytes))?;
            }
            Piece::Values(values) => self.values(values, &mut |part| emit(number, part))?,
            Piece::Repeat { count, cycle } => {
                self.repeat(*count, cycle, &mut |part| emit(number, part))?;
            }
            Piece::Chunk(_) => return self.chunks(pieces, number, emit),
            Piece::Stream { values, head, tail, level, stored } => {
                let (head, tail) = (self.literal(*head)?, self.literal(*tail)?);
                let mut stream = DeflateStream::new(*level, *stored);
                let done = stream.feed(head, &mut |part| emit(number, Ok(part)));
                let done = done.and_then(|()| {
                    self.values(values, &mut |part| {
                        stream.feed(part?, &mut |part| emit(number, Ok(part)))
                    })
                });
                let done = done.and_then(|()| {
                    stream.feed(tail, &mut |part| emit(number, Ok(part)))?;
                    stream.finish(&mut |part| emit(number, Ok(part)))
                });
                if let Err(error) = done {
                    emit(number, Err(error))?;
                }
            }
        }
        Ok(1)
    }

    fn literal(&mut self, len: u64) -> Result<&'a [u8]> {
        let (now, later) = usize::try_from(len)
            .ok()
            .and_then(|len| self.literals.split_at_checked(len))
            .ok_or_else(|| Error::damaged("a skeleton has too few literals"))?;
        self.literals = later;
        Ok(now)
    }

    fn values(
        &self,
        values: &Values,
        emit: &mut dyn FnMut(Result<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let block = BLOCK - BLOCK % u64::from(values.swap.max(1));
        let mut buffer = Scratch::new(values.len.min(block) as usize)?;
        let mut done = 0;
        while done < values.len {
            let part = &mut buffer[..(values.len - done).min(block) as usize];
            match (self.read)(values.field as usize, values.offset + done, part) {
                Ok(()) => filter::swap(part, values.swap),
                Err(error) => return emit(Err(error)),
            }
            emit(Ok(part))?;
            done += part.len() as u64;
        }
        Ok(())
    }

    /// Reads as many turns of the cycle at once as make a block, and deals them out.
    fn repeat(
        &mut self,
        count: u64,
        cycle: &[Piece],
        emit: &mut dyn FnMut(Result<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let turn: u64 = cycle.iter().filter_map(Piece::bytes).sum();
        let turns = (BLOCK / turn.max(1)).clamp(1, count.max(1));
        let mut done = 0;
        while done < count {
            let now = turns.min(count - done);
            let moved =
                |values: &Values| Values { offset: values.offset + done * values.len, ..*values };
            if now == 1 {
                for piece in cycle {
                    match piece {
                        Piece::Literal { len } => emit(Ok(self.literal(*len)?))?,
                        Piece::Values(values) => self.values(&moved(values), emit)?,
                        _ => return Err(Error::damaged("a piece of a skeleton makes no sense")),
                    }
                }
            } else {
                let mut block = Scratch::new((turn * now) as usize)?;
                if let Err(error) = self.deal(cycle, turn as usize, &mut block, &moved) {
                    return emit(Err(error));
                }
                emit(Ok(&block))?;
            }
            done += now;
        }
        Ok(())
    }

    fn deal(
        &mut self,
        cycle: &[Piece],
        turn: usize,
        block: &mut [u8],
        moved: &dyn Fn(&Values) -> Values,
    ) -> Result<()> {
        let turns = block.len() / turn;
        let mut column = 0;
        for piece in cycle {
            let Piece::Values(values) = piece else {
                column += piece.bytes().unwrap_or(0) as usize;
                continue;
            };
            let (values, len) = (moved(values), values.len as usize);
            let mut bytes = Scratch::new(len * turns)?;
            (self.read)(values.field as usize, values.offset, &mut bytes)?;
            filter::swap(&mut bytes, values.swap);
            for (at, from) in bytes.chunks_exact(len.max(1)).enumerate() {
                block[at * turn + column..][..len].copy_from_slice(from);
            }
            column += len;
        }
        for at in 0..turns {
            let mut column = at * turn;
            for piece in cycle {
                let len = piece.bytes().unwrap_or(0) as usize;
                if matches!(piece, Piece::Literal { .. }) {
                    block[column..][..len].copy_from_slice(self.literal(len as u64)?);
                }
                column += len;
            }
        }
        Ok(())
    }

    fn chunks(&mut self, pieces: &[Piece], number: usize, emit: Emit) -> Result<usize> {
        let mut batch: Vec<Chunk> = Vec::new();
        let mut bytes = 0;
        for piece in pieces {
            let Piece::Chunk(chunk) = piece else { break };
            bytes += self.recipe(chunk)?.0.chunk_bytes();
            if !batch.is_empty() && bytes > BATCH {
                break;
            }
            batch.push(*chunk);
        }
        let gathered: Vec<Result<Vec<u8>>> =
            batch.iter().enumerate().map(|(at, chunk)| self.gather(chunk, &batch[at..])).collect();
        let recipes = self.recipes;
        let encoded: Vec<Result<Vec<u8>>> = gathered
            .into_par_iter()
            .zip(&batch)
            .map(|(bytes, chunk)| {
                Ok(filter::encode(&recipes[chunk.recipe as usize], chunk.left_out, bytes?))
            })
            .collect();
        for (at, bytes) in encoded.iter().enumerate() {
            let bytes = bytes.as_ref().map(Vec::as_slice).map_err(Error::clone);
            emit(number + at, bytes)?;
        }
        Ok(batch.len())
    }

    fn recipe(&self, chunk: &Chunk) -> Result<(&'a ChunkRecipe, &ChunkGrid)> {
        let at = chunk.recipe as usize;
        match (self.recipes.get(at), self.grids.get(at)) {
            (Some(recipe), Some(grid)) if chunk.index < grid.chunks() => Ok((recipe, grid)),
            _ => Err(Error::damaged("a skeleton names a chunk that its field does not have")),
        }
    }

    /// A chunk before its filters; `coming` are the chunks that will be asked for next.
    fn gather(&mut self, chunk: &Chunk, coming: &[Chunk]) -> Result<Vec<u8>> {
        let (recipe, _) = self.recipe(chunk)?;
        let (start, len, beside) = self.grids[chunk.recipe as usize].band(chunk.index);
        let there =
            |w: &(u64, u64, Vec<u8>)| w.0 == chunk.field && w.1 == start && w.2.len() as u64 == len;
        let near = || {
            let same =
                |c: &&Chunk| c.field == chunk.field && c.index / beside == chunk.index / beside;
            coming.iter().take(beside as usize).filter(same).count() as u64 * 4 >= beside
        };
        if !self.window.as_ref().is_some_and(there) && len <= BATCH && near() {
            let (_, _, mut bytes) = self.window.take().unwrap_or_default();
            bytes.resize(len as usize, 0);
            (self.read)(chunk.field as usize, start, &mut bytes)?;
            self.window = Some((chunk.field, start, bytes));
        }
        let window = self.window.as_ref().filter(|w| there(w));
        let grid = &self.grids[chunk.recipe as usize];
        let mut padding = recipe.padding.clone();
        filter::swap(&mut padding, recipe.swap);
        let mut out = vec![0; grid.chunk_bytes() as usize];
        if grid.padded(chunk.index) && padding.iter().any(|byte| *byte != 0) {
            out.chunks_exact_mut(padding.len()).for_each(|to| to.copy_from_slice(&padding));
        }
        grid.rows(chunk.index, 0, u64::MAX, &mut |array, at, len| {
            let to = &mut out[at..at + len];
            match window {
                Some((_, start, bytes)) => {
                    to.copy_from_slice(&bytes[(array - start) as usize..][..len]);
                    Ok(())
                }
                None => (self.read)(chunk.field as usize, array, to),
            }
        })?;
        filter::swap(&mut out, recipe.swap);
        Ok(out)
    }
}

/// A stream that is being deflated, up to the length it must have.
pub(super) struct DeflateStream {
    zlib: Compress,
    left: u64,
    out: Vec<u8>,
}

impl DeflateStream {
    pub(super) fn new(level: u8, stored: u64) -> Self {
        let zlib = Compress::new(Compression::new(level.into()), false);
        DeflateStream { zlib, left: stored, out: Vec::with_capacity(1 << 16) }
    }

    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        emit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let before = self.zlib.total_in();
            self.step(rest, FlushCompress::None, emit)?;
            rest = &rest[(self.zlib.total_in() - before) as usize..];
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, emit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while self.step(&[], FlushCompress::Finish, emit)? != Status::StreamEnd {}
        match self.left {
            0 => Ok(()),
            _ => Err(Error::damaged("a stream comes out shorter than it was")),
        }
    }

    fn step(
        &mut self,
        bytes: &[u8],
        flush: FlushCompress,
        emit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Status> {
        self.out.clear();
        let status = self
            .zlib
            .compress_vec(bytes, &mut self.out, flush)
            .map_err(|e| Error::damaged(format!("zlib failed: {e}")))?;
        self.left = self
            .left
            .checked_sub(self.out.len() as u64)
            .ok_or_else(|| Error::damaged("a stream comes out longer than it was"))?;
        emit(&self.out)?;
        Ok(status)
    }
}

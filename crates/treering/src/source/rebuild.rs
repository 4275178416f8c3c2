//! A file made again from its skeleton and the values of its fields.
//!
//! The pieces are rendered in the order of the file, in bounded memory. Chunks are gathered from their fields in
//! batches and filtered side by side: all rows of a batch are asked for together, in the order of the field, so that a
//! field whose values lie one after another is read from front to back, whatever the shape of its chunks. The same
//! rendering proves a skeleton when a file is taken apart and writes the file when it is exported, where the digest has
//! the last word.

use super::Field;
use super::filter;
use super::grid::ChunkGrid;
use crate::error::{Error, Result};
use crate::format::{Chunk, ChunkRecipe, Piece, Skeleton, Values};
use crate::memory::{Scratch, zeroed};
use crate::merkle::Digester;
use flate2::{Compress, Compression, FlushCompress, Status};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;

/// The number of a chunk, and room for its values.
type ChunkValues<'a> = (u64, &'a mut [u8]);

/// Number of bytes that are read at a time, so that they are still near when they are written, and how many
/// are filtered side by side.
const BLOCK: u64 = 256 << 10;
const BATCH: u64 = 32 << 20;
/// Number of bytes of a field of which all rows of chunks are asked for at once.
const SLAB: u64 = 64 << 20;

/// The fields that a file is made of. A function that reads bytes of a field from an offset on will do.
pub trait FieldValues {
    /// Fills `out` with the bytes of a field from an offset on.
    fn read(&self, field: usize, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Fills rows of chunks, which ascend, with the bytes of a field.
    fn read_rows(&self, field: usize, rows: &mut [(u64, &mut [u8])]) -> Result<()>;

    /// Number of bytes of chunks that are gathered at a time: more where each time costs a walk along the field.
    fn batch(&self) -> u64;
}

impl<F: Fn(usize, u64, &mut [u8]) -> Result<()>> FieldValues for F {
    fn read(&self, field: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        self(field, offset, out)
    }

    fn read_rows(&self, field: usize, rows: &mut [(u64, &mut [u8])]) -> Result<()> {
        rows.iter_mut().try_for_each(|(offset, row)| self(field, *offset, row))
    }

    fn batch(&self) -> u64 {
        BATCH
    }
}

/// The fields of a file as it was taken apart.
impl FieldValues for Vec<Field> {
    fn read(&self, field: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        self.get(field).ok_or_else(no_field)?.bytes.read_at(offset, out)
    }

    fn read_rows(&self, field: usize, rows: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.get(field).ok_or_else(no_field)?.bytes.read_many(rows)
    }

    fn batch(&self) -> u64 {
        BATCH
    }
}

fn no_field() -> Error {
    Error::damaged("a skeleton names a field that is not there")
}

/// Takes the bytes of a piece, in parts, or the reason why it has none.
pub(super) type Emit<'a> = &'a mut dyn FnMut(usize, Result<&[u8]>) -> Result<()>;

impl Skeleton {
    /// Writes the file, made of the bytes of fields as the fields have them.
    pub fn rebuild(&self, fields: &dyn FieldValues, out: &mut dyn Write) -> Result<()> {
        let mut digester = Digester::new();
        let mut written = 0;
        self.render(fields, &|_| true, &mut |_, bytes| {
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
        fields: &dyn FieldValues,
        wanted: &dyn Fn(usize) -> bool,
        emit: Emit,
    ) -> Result<()> {
        let mut renderer = Renderer {
            recipes: &self.recipes,
            grids: self.recipes.iter().map(grid).collect(),
            literals: &self.literals,
            fields,
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
    fields: &'a dyn FieldValues,
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
            match self.fields.read(values.field as usize, values.offset + done, part) {
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
                        _ => return Err(Error::damaged("corrupt skeleton: invalid piece")),
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
            self.fields.read(values.field as usize, values.offset, &mut bytes)?;
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
        let mut bytes = 0u64;
        for piece in pieces {
            let Piece::Chunk(chunk) = piece else { break };
            bytes = bytes.saturating_add(self.recipe(chunk)?.0.chunk_bytes());
            if !batch.is_empty() && bytes > self.fields.batch() {
                break;
            }
            batch.push(*chunk);
        }
        let recipes = self.recipes;
        let encoded: Vec<Result<Vec<u8>>> = self
            .gathered(&batch)?
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

    /// Chunks before their filters. If some values cannot be read, each chunk is tried by itself.
    fn gathered(&self, batch: &[Chunk]) -> Result<Vec<Result<Vec<u8>>>> {
        let mut values = batch.iter().map(|chunk| self.blank(chunk)).collect::<Result<Vec<_>>>()?;
        let mut of_fields: BTreeMap<(u64, u64), Vec<ChunkValues>> = BTreeMap::new();
        for (chunk, values) in batch.iter().zip(&mut values) {
            let of_field = of_fields.entry((chunk.field, chunk.recipe)).or_default();
            of_field.push((chunk.index, values));
        }
        let gathered = of_fields.into_iter().try_for_each(|((field, recipe), mut chunks)| {
            self.gather(field as usize, recipe as usize, &mut chunks)
        });
        let swapped = |chunk: &Chunk, mut bytes: Vec<u8>| {
            filter::swap(&mut bytes, self.recipes[chunk.recipe as usize].swap);
            bytes
        };
        let all = batch.iter().zip(values);
        if gathered.is_ok() || batch.len() == 1 {
            let of_chunk = |(chunk, bytes)| gathered.clone().map(|()| swapped(chunk, bytes));
            return Ok(all.map(of_chunk).collect());
        }
        let of_chunk = |(chunk, mut bytes): (&Chunk, Vec<u8>)| {
            let (field, recipe) = (chunk.field as usize, chunk.recipe as usize);
            self.gather(field, recipe, &mut [(chunk.index, &mut bytes)])?;
            Ok(swapped(chunk, bytes))
        };
        Ok(all.map(of_chunk).collect())
    }

    /// A chunk of zeros, or of padding if it reaches beyond the field.
    fn blank(&self, chunk: &Chunk) -> Result<Vec<u8>> {
        let (recipe, grid) = self.recipe(chunk)?;
        let mut padding = recipe.padding.clone();
        filter::swap(&mut padding, recipe.swap);
        let mut blank = zeroed(grid.chunk_bytes())?;
        if grid.padded(chunk.index) && padding.iter().any(|byte| *byte != 0) {
            blank.chunks_exact_mut(padding.len()).for_each(|to| to.copy_from_slice(&padding));
        }
        Ok(blank)
    }

    /// Fills chunks of a field, slab by slab of the field.
    fn gather(&self, field: usize, recipe: usize, chunks: &mut [(u64, &mut [u8])]) -> Result<()> {
        let grid = &self.grids[recipe];
        let bands = || chunks.iter().map(|(index, _)| grid.band(*index));
        let start = bands().map(|band| band.start).min().unwrap_or(0);
        let end = bands().map(|band| band.end).max().unwrap_or(0);
        for from in (start..end).step_by(SLAB as usize) {
            let to = end.min(from + SLAB);
            let mut rows: Vec<(u64, &mut [u8])> = Vec::new();
            for (index, bytes) in chunks.iter_mut() {
                let (mut rest, mut done) = (&mut bytes[..], 0);
                grid.rows(*index, from, to, &mut |array, at, len| {
                    let (row, later) = std::mem::take(&mut rest)[at - done..].split_at_mut(len);
                    rows.push((array, row));
                    (rest, done) = (later, at + len);
                    Ok(())
                })?;
            }
            rows.sort_unstable_by_key(|(array, _)| *array);
            if !rows.is_empty() {
                self.fields.read_rows(field, &mut rows)?;
            }
        }
        Ok(())
    }

    fn recipe(&self, chunk: &Chunk) -> Result<(&'a ChunkRecipe, &ChunkGrid)> {
        let at = chunk.recipe as usize;
        match (self.recipes.get(at), self.grids.get(at)) {
            (Some(recipe), Some(grid)) if chunk.index < grid.chunks() => Ok((recipe, grid)),
            _ => Err(Error::damaged("a skeleton names a chunk that its field does not have")),
        }
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

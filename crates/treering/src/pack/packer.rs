//! Building one pack.

use super::{FRAME, Keeper, Packed, Strip};
use crate::codec::{self, Codec};
use crate::error::Result;
use crate::format::{Footer, Frame, HEADER_BYTES, PackName, Seal, Stats, VariableDelta};
use crate::lineage::{Changed, ChunkSize, Method, Place, Regions};
use crate::merkle::{Digest, Hasher, boughs_of, checksum};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// What a pack is made by.
pub(crate) struct Plan {
    pub(crate) run: String,
    pub(crate) name: PackName,
    pub(crate) rank: u32,
    /// Its position in the epoch.
    pub(crate) ordinal: u32,
    /// The seal of the pack before it in the epoch.
    pub(crate) parent: Option<Seal>,
    pub(crate) chunk: ChunkSize,
    pub(crate) method: Method,
    pub(crate) variables: Vec<Packed>,
}

/// Takes an encoded frame on its way to the store.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<()> + Send + 'a;

/// A pack that is being built.
pub(crate) struct Packer<'a> {
    plan: Plan,
    codec: &'a dyn Codec,
    hasher: &'a Hasher,
    frames: Vec<Frame>,
    /// The bytes of the frame that is not full yet.
    partial: Vec<u8>,
    /// How many new bytes there are so far.
    offset: u64,
    /// The size of the file so far.
    position: u64,
    open: Option<OpenVariable>,
    deltas: Vec<VariableDelta>,
    stats: Stats,
}

/// The variable whose strips are coming in.
struct OpenVariable {
    at: usize,
    base: u64,
    regions: Regions,
    boughs: Vec<(u64, Digest)>,
    look: bool,
    moved: u64,
    looked_up: u64,
}

/// What is computed of a strip in parallel, before anything is decided.
#[derive(Default)]
struct Prepared {
    /// The digest of each changed chunk; empty when moved ones are not looked for.
    digests: Vec<Digest>,
    boughs: Vec<(u32, Digest)>,
}

impl<'a> Packer<'a> {
    pub(crate) fn new(plan: Plan, codec: &'a dyn Codec, hasher: &'a Hasher) -> Self {
        Packer {
            plan,
            codec,
            hasher,
            frames: Vec::new(),
            partial: Vec::new(),
            offset: 0,
            position: HEADER_BYTES,
            open: None,
            deltas: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// Takes the strips of a batch, which follow those of the batch before.
    pub(crate) fn take(
        &mut self,
        keeper: &mut Keeper,
        strips: &[Strip],
        bytes: &[u8],
        sink: &mut Sink,
    ) -> Result<()> {
        let mut fresh = Vec::new();
        for same in strips.chunk_by(|a, b| a.variable == b.variable) {
            let look = self.switch_to(keeper, same[0].variable);
            let prepared: Vec<Prepared> =
                same.par_iter().map(|strip| self.prepare(strip, bytes, look)).collect();
            // Deciding goes in ascending order, so that the first occurrence is the lowest place.
            for (strip, prepared) in same.iter().zip(prepared) {
                self.decide(keeper, strip, prepared, &mut fresh);
            }
        }
        let frames = self.carve(&fresh, bytes);
        self.write(frames, sink)
    }

    /// Writes what is left and describes the whole.
    pub(crate) fn finish(
        mut self,
        keeper: &mut Keeper,
        sink: &mut Sink,
    ) -> Result<(Footer, Stats)> {
        self.close(keeper);
        let rest = std::mem::take(&mut self.partial);
        if !rest.is_empty() {
            self.write(vec![Cow::Owned(rest)], sink)?;
        }
        for variable in &self.plan.variables {
            // Also those of which nothing changed but the length.
            let tree = keeper.trees.entry(variable.name.clone()).or_default();
            tree.update(bough_count(self.plan.chunk.count(variable.bytes)), &[]);
        }
        let all: u64 = self.plan.variables.iter().map(|v| v.bytes).sum();
        self.stats.same_bytes = all - self.stats.new_bytes - self.stats.moved_bytes;
        let footer = Footer {
            run: self.plan.run,
            name: self.plan.name,
            ordinal: self.plan.ordinal,
            parent: self.plan.parent,
            frames: self.frames,
            deltas: self.deltas,
        };
        Ok((footer, self.stats))
    }

    /// Makes a variable the one whose strips come in; whether to look for its moved chunks.
    fn switch_to(&mut self, keeper: &mut Keeper, at: usize) -> bool {
        if let Some(open) = self.open.as_ref().filter(|open| open.at == at) {
            return open.look;
        }
        self.close(keeper);
        let look = self.plan.method.finds_moved()
            && keeper.look(&self.plan.variables[at].name, self.plan.ordinal == 0);
        self.open = Some(OpenVariable {
            at,
            base: self.offset,
            regions: Regions::new(self.plan.chunk.bytes(), self.plan.method != Method::List),
            boughs: Vec::new(),
            look,
            moved: 0,
            looked_up: 0,
        });
        look
    }

    fn close(&mut self, keeper: &mut Keeper) {
        let Some(open) = self.open.take() else {
            return;
        };
        let variable = &self.plan.variables[open.at];
        let chunks = self.plan.chunk.count(variable.bytes);
        let tree = keeper.trees.entry(variable.name.clone()).or_default();
        tree.update(bough_count(chunks), &open.boughs);
        if open.look {
            keeper.learn(&variable.name, self.plan.ordinal == 0, open.moved, open.looked_up);
        }
        self.deltas.push(VariableDelta {
            rank: self.plan.rank,
            name: variable.name.clone(),
            chunk: self.plan.chunk,
            bytes: variable.bytes,
            base: open.base,
            bitmap: self.plan.method == Method::Basic,
            regions: open.regions.into_vec(),
        });
    }

    /// Hashes of a strip that are not there yet.
    fn prepare(&self, strip: &Strip, bytes: &[u8], look: bool) -> Prepared {
        let chunk = self.plan.chunk.bytes();
        let bytes = &bytes[strip.offset..strip.offset + strip.changed.bytes];
        let mut prepared = Prepared::default();
        if look {
            prepared.digests = bytes.chunks(chunk).map(|c| self.hasher.digest(c)).collect();
        }
        if !strip.hashed {
            let digests = boughs_of(bytes, chunk, self.hasher);
            prepared.boughs = (0..).zip(digests).collect();
        }
        prepared
    }

    /// Sorts the changed chunks of a strip into new and moved.
    fn decide(
        &mut self,
        keeper: &mut Keeper,
        strip: &Strip,
        prepared: Prepared,
        fresh: &mut Vec<Range<usize>>,
    ) {
        let Some(open) = &mut self.open else {
            return;
        };
        let first_bough = strip.first / crate::merkle::BOUGH as u64;
        let hashed = strip.changed.boughs.iter().chain(&prepared.boughs);
        open.boughs.extend(hashed.map(|(at, digest)| (first_bough + u64::from(*at), *digest)));
        let mut place = Place { pack: self.plan.ordinal, offset: self.offset };
        let mut from = strip.offset;
        let mut digests = prepared.digests.iter();
        for (start, len, count) in pieces(&strip.changed, self.plan.chunk.bytes(), open.look) {
            let chunk = strip.first + u64::from(start);
            let found = match digests.next() {
                Some(digest) => {
                    open.looked_up += len as u64;
                    keeper.record.find_or_enter(*digest, place)
                }
                None => None,
            };
            match found {
                Some(source) => {
                    open.regions.push(chunk, count, source, false);
                    open.moved += len as u64;
                    self.stats.moved_bytes += len as u64;
                }
                None => {
                    open.regions.push(chunk, count, place, true);
                    place.offset += len as u64;
                    self.stats.new_bytes += len as u64;
                    match fresh.last_mut() {
                        Some(last) if last.end == from => last.end += len,
                        _ => fresh.push(from..from + len),
                    }
                }
            }
            from += len;
        }
        self.offset = place.offset;
    }

    /// Cuts new bytes into frames; what does not fill one is kept for the next time.
    fn carve<'b>(&mut self, fresh: &[Range<usize>], bytes: &'b [u8]) -> Vec<Cow<'b, [u8]>> {
        let mut frames = Vec::new();
        for range in fresh {
            let mut rest = &bytes[range.clone()];
            while !rest.is_empty() {
                if self.partial.is_empty() && rest.len() >= FRAME {
                    let (frame, tail) = rest.split_at(FRAME);
                    frames.push(Cow::Borrowed(frame));
                    rest = tail;
                    continue;
                }
                let (head, tail) = rest.split_at(rest.len().min(FRAME - self.partial.len()));
                self.partial.extend_from_slice(head);
                rest = tail;
                if self.partial.len() == FRAME {
                    frames.push(Cow::Owned(std::mem::take(&mut self.partial)));
                }
            }
        }
        frames
    }

    /// Encodes frames in parallel and writes them in order.
    fn write(&mut self, frames: Vec<Cow<[u8]>>, sink: &mut Sink) -> Result<()> {
        let codec = self.codec;
        let encoded: Vec<(Cow<[u8]>, u8, u64)> =
            frames.par_iter().map(|raw| encode(codec, raw)).collect::<Result<_>>()?;
        let mut offset = self.frames.last().map_or(0, |f| f.offset + f.len);
        for (raw, (bytes, codec, checksum)) in frames.iter().zip(&encoded) {
            self.frames.push(Frame {
                offset,
                len: raw.len() as u64,
                position: self.position,
                encoded: bytes.len() as u64,
                codec: *codec,
                checksum: *checksum,
            });
            offset += raw.len() as u64;
            self.position += bytes.len() as u64;
            sink(bytes)?;
        }
        Ok(())
    }
}

/// How many boughs cover so many chunks.
fn bough_count(chunks: u64) -> usize {
    chunks.div_ceil(crate::merkle::BOUGH as u64) as usize
}

/// The changed chunks of a strip, one by one or, where nothing is looked up, run by run: the first
/// chunk, how many bytes, and how many chunks.
fn pieces(
    changed: &Changed,
    chunk: usize,
    one_by_one: bool,
) -> impl Iterator<Item = (u32, usize, u64)> {
    let mut left = changed.bytes;
    let runs = changed.runs.iter();
    runs.flat_map(move |&(start, count)| {
        let step = if one_by_one { 1 } else { count };
        (start..start + count).step_by(step as usize).map(move |at| (at, step))
    })
    .map(move |(at, count)| {
        let len = left.min(count as usize * chunk);
        left -= len;
        (at, len, u64::from(count))
    })
}

/// Encodes a frame; one that does not get smaller stays raw.
fn encode<'b>(codec: &dyn Codec, raw: &'b [u8]) -> Result<(Cow<'b, [u8]>, u8, u64)> {
    let encoded = codec.encode(raw)?;
    if codec.id() != codec::RAW && encoded.len() < raw.len() {
        let sum = checksum(&encoded);
        return Ok((encoded, codec.id(), sum));
    }
    Ok((Cow::Borrowed(raw), codec::RAW, checksum(raw)))
}

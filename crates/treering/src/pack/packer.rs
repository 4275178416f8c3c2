//! Building one pack.

use super::{Before, FRAME, Keeper, LITTLE, Packed, SMALL, Strip};
use crate::codec::{Chain, Nature};
use crate::error::Result;
use crate::format::{Footer, Frame, HEADER_BYTES, PackName, RAW, Run, Seal, Stats, VariableDelta};
use crate::lineage::{Changed, ChunkSize, Method, Place, Regions};
use crate::merkle::{Digest, Hasher, boughs_of, checksum};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// What a pack is made by.
pub(crate) struct Plan {
    pub(crate) run: String,
    pub(crate) name: PackName,
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
    hasher: &'a Hasher,
    /// The state before, if frames may be differences to it.
    before: Option<&'a dyn Before>,
    frames: Vec<Frame>,
    chains: Vec<Chain>,
    differences: Vec<(u32, Vec<Run>)>,
    /// The frame that is not full yet.
    partial: Vec<u8>,
    partial_before: Option<Old>,
    kind: Kind,
    /// How many new bytes there are so far.
    offset: u64,
    /// The size of the file so far.
    position: u64,
    open: Option<OpenVariable>,
    /// Whether differences are tried for a kind, for the kind of the newest variable.
    wanted: Option<(usize, bool)>,
    deltas: Vec<VariableDelta>,
    stats: Stats,
}

/// Which bytes a frame holds: of the variable at this place of the plan, or of several.
type Kind = Option<usize>;

/// Bytes that make a frame, and those before, if it may be a difference.
struct Cut<'b> {
    bytes: Cow<'b, [u8]>,
    kind: Kind,
    before: Option<Old>,
}

/// How many frames are encoded side by side before they are written.
const ROUND: usize = 32;

/// New bytes in pieces shorter than this on average, or such before them, make no differences.
const SCATTERED: usize = 4 << 10;

/// Bytes of the state before, and where they lie.
#[derive(Default)]
struct Old {
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// How many of the bytes, and of the runs, have been taken.
    taken: (usize, usize),
}

impl Old {
    fn take(&mut self, len: usize) -> Old {
        let bytes = self.bytes[self.taken.0..self.taken.0 + len].to_vec();
        self.taken.0 += len;
        let (mut runs, mut left) = (Vec::new(), len as u64);
        while left > 0 {
            let run = &mut self.runs[self.taken.1];
            let part = run.len.min(left);
            runs.push(Run { place: run.place, len: part });
            left -= part;
            run.place.offset += part;
            run.len -= part;
            self.taken.1 += usize::from(run.len == 0);
        }
        Old { bytes, runs, taken: (0, 0) }
    }

    fn append(&mut self, other: &Old) {
        self.bytes.extend_from_slice(&other.bytes);
        for run in &other.runs {
            match self.runs.last_mut() {
                Some(last)
                    if last.place.pack == run.place.pack
                        && last.place.offset + last.len == run.place.offset =>
                {
                    last.len += run.len;
                }
                _ => self.runs.push(*run),
            }
        }
    }
}

/// New bytes of a variable: where they are in the batch, and where in the variable.
struct Fresh {
    bytes: Range<usize>,
    at: u64,
}

/// The variable whose strips are coming in.
struct OpenVariable {
    at: usize,
    base: u64,
    regions: Regions,
    boughs: Vec<(u64, Digest)>,
    look: bool,
    /// Whether to try differences.
    beside: bool,
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
    /// A pack that begins its epoch has nothing before it.
    pub(crate) fn new(plan: Plan, hasher: &'a Hasher, before: Option<&'a dyn Before>) -> Self {
        Packer {
            before: before.filter(|_| plan.ordinal > 0),
            plan,
            hasher,
            frames: Vec::new(),
            chains: Vec::new(),
            differences: Vec::new(),
            partial: Vec::new(),
            partial_before: None,
            kind: None,
            offset: 0,
            position: HEADER_BYTES,
            open: None,
            wanted: None,
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
        let mut cuts = Vec::new();
        for same in strips.chunk_by(|a, b| a.variable == b.variable) {
            let look = self.switch_to(keeper, same[0].variable);
            let prepared: Vec<Prepared> =
                same.par_iter().map(|strip| self.prepare(strip, bytes, look)).collect();
            // Deciding goes in ascending order, so that the first occurrence is the lowest place.
            let mut fresh = Vec::new();
            for (strip, prepared) in same.iter().zip(prepared) {
                self.decide(keeper, strip, prepared, &mut fresh);
            }
            let old = self.old(same[0].variable, &fresh);
            self.carve(keeper, same[0].variable, &fresh, bytes, old, &mut cuts)?;
        }
        self.write(keeper, cuts, sink)
    }

    /// Writes what is left and describes the whole.
    pub(crate) fn finish(
        mut self,
        keeper: &mut Keeper,
        sink: &mut Sink,
    ) -> Result<(Footer, Stats)> {
        self.close(keeper);
        let mut cuts = Vec::new();
        self.flush(&mut cuts);
        self.write(keeper, cuts, sink)?;
        for variable in &self.plan.variables {
            // Also those of which nothing changed but the length.
            let tree = keeper.trees.entry(variable.key()).or_default();
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
            chains: self.chains,
            before: self.differences,
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
            && keeper.look(&self.plan.variables[at].key(), self.plan.ordinal == 0);
        let beside = self.wants_before(keeper, at);
        self.open = Some(OpenVariable {
            at,
            base: self.offset,
            regions: Regions::new(self.plan.chunk.bytes(), self.plan.method != Method::List),
            boughs: Vec::new(),
            look,
            beside,
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
        let tree = keeper.trees.entry(variable.key()).or_default();
        tree.update(bough_count(chunks), &open.boughs);
        if open.look {
            keeper.learn(&variable.key(), self.plan.ordinal == 0, open.moved, open.looked_up);
        }
        self.deltas.push(VariableDelta {
            rank: variable.rank,
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
        fresh: &mut Vec<Fresh>,
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
        let size = self.plan.chunk.bytes() as u64;
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
                    let at = chunk * size;
                    match fresh.last_mut() {
                        Some(Fresh { bytes, at: first })
                            if bytes.end == from
                                && (!open.beside || *first + bytes.len() as u64 == at) =>
                        {
                            bytes.end += len;
                        }
                        _ => fresh.push(Fresh { bytes: from..from + len, at }),
                    }
                }
            }
            from += len;
        }
        self.offset = place.offset;
    }

    /// Whether differences are to be tried for a variable; asked once for those that are alike.
    fn wants_before(&mut self, keeper: &mut Keeper, at: usize) -> bool {
        // Arrays that repeat each other share frames, which differences of some would cut.
        if self.before.is_none() || self.plan.variables[at].far {
            return false;
        }
        match self.kind_of(at) {
            None => false,
            Some(first) => {
                let wanted = self.wanted.filter(|(kind, _)| *kind == first);
                let (_, wanted) = wanted.unwrap_or_else(|| {
                    let (like, nature) = self.likeness(Some(first));
                    (first, keeper.chooser.wants_before(like, nature))
                });
                self.wanted = Some((first, wanted));
                wanted
            }
        }
    }

    /// What stood where new bytes are.
    fn old(&self, variable: usize, fresh: &[Fresh]) -> Option<Old> {
        let before = self.before.filter(|_| self.open.as_ref().is_some_and(|open| open.beside))?;
        let ranges = fresh.iter().map(|fresh| fresh.at..fresh.at + fresh.bytes.len() as u64);
        let ranges: Vec<Range<u64>> = ranges.collect();
        let len: usize = fresh.iter().map(|fresh| fresh.bytes.len()).sum();
        // What is small or scattered is not worth following.
        if len < SMALL as usize || ranges.len() * SCATTERED > len {
            return None;
        }
        let mut bytes = vec![0; len];
        let runs = before.bytes(&self.plan.variables[variable].key(), &ranges, &mut bytes)?;
        (runs.len() * SCATTERED <= len).then_some(Old { bytes, runs, taken: (0, 0) })
    }

    /// Cuts new bytes of a variable into frames; what does not fill one is kept for the next time.
    fn carve<'b>(
        &mut self,
        keeper: &mut Keeper,
        variable: usize,
        fresh: &[Fresh],
        bytes: &'b [u8],
        mut old: Option<Old>,
        cuts: &mut Vec<Cut<'b>>,
    ) -> Result<()> {
        let all: usize = fresh.iter().map(|fresh| fresh.bytes.len()).sum();
        let kind = self.kind_of(variable);
        let differs = self.kind != kind || self.partial_before.is_some() != old.is_some();
        let mixes = self.partial_before.is_some() || old.is_some();
        if differs && (mixes || all >= LITTLE || self.partial.len() >= LITTLE) {
            self.flush(cuts);
        }
        self.kind = match self.partial.is_empty() || self.kind == kind {
            true => kind,
            false => None,
        };
        let len = match (self.kind, fresh.first(), fresh.last()) {
            (Some(_), Some(first), Some(last)) => {
                let (like, nature) = self.likeness(self.kind);
                let bytes = match self.plan.variables[variable].far {
                    true => None,
                    false => Some(&bytes[first.bytes.start..last.bytes.end]),
                };
                keeper.chooser.frame_len(like, nature, bytes, FRAME)?
            }
            _ => FRAME,
        };
        for fresh in fresh {
            let mut rest = &bytes[fresh.bytes.clone()];
            while !rest.is_empty() {
                if self.partial.is_empty() && rest.len() >= len {
                    let (frame, tail) = rest.split_at(len);
                    let before = old.as_mut().map(|old| old.take(len));
                    cuts.push(Cut { bytes: Cow::Borrowed(frame), kind: self.kind, before });
                    rest = tail;
                    continue;
                }
                let room = len.saturating_sub(self.partial.len()).max(1);
                let (head, tail) = rest.split_at(rest.len().min(room));
                self.partial.extend_from_slice(head);
                if let Some(old) = &mut old {
                    let head = old.take(head.len());
                    self.partial_before.get_or_insert_default().append(&head);
                }
                rest = tail;
                if self.partial.len() >= len {
                    self.flush(cuts);
                }
            }
        }
        Ok(())
    }

    /// The first of those variables next to this one that are like it, unless it is small.
    fn kind_of(&self, variable: usize) -> Kind {
        let all = &self.plan.variables;
        let this = &all[variable];
        if this.bytes < SMALL {
            return None;
        }
        let like = |other: &&Packed| other.like == this.like && other.nature == this.nature;
        let before = all[..variable].iter().rev().take_while(like).count();
        Some(variable - before)
    }

    /// Makes a frame of what there is.
    fn flush(&mut self, cuts: &mut Vec<Cut>) {
        if !self.partial.is_empty() {
            let bytes = Cow::Owned(std::mem::take(&mut self.partial));
            cuts.push(Cut { bytes, kind: self.kind, before: self.partial_before.take() });
        }
    }

    /// Encodes frames in parallel and writes them in order.
    fn write(&mut self, keeper: &mut Keeper, cuts: Vec<Cut>, sink: &mut Sink) -> Result<()> {
        let mut ways: Vec<(Chain, u8)> = Vec::with_capacity(cuts.len());
        let alike = |a: &Cut, b: &Cut| a.kind == b.kind && a.before.is_some() == b.before.is_some();
        for same in cuts.chunk_by(alike) {
            let (like, nature) = self.likeness(same[0].kind);
            let frames = same.iter().map(|cut| (&*cut.bytes, cut.before()));
            let chain = keeper.chooser.chain(like, nature, &frames.collect::<Vec<_>>())?;
            let way = match Footer::number(&mut self.chains, &chain) {
                Some(number) => (chain, number),
                None => (Chain::default(), RAW),
            };
            ways.extend(same.iter().map(|_| way.clone()));
        }
        let mut cuts = cuts.into_iter().zip(ways);
        loop {
            // What was written makes room for the next few.
            let few: Vec<(Cut, (Chain, u8))> = cuts.by_ref().take(ROUND).collect();
            if few.is_empty() {
                return Ok(());
            }
            let encoded: Vec<(Option<Vec<u8>>, u64)> =
                few.par_iter().map(|(cut, way)| encode(way, cut)).collect::<Result<_>>()?;
            for ((cut, way), (encoded, checksum)) in few.into_iter().zip(&encoded) {
                let (bytes, codec) = match encoded {
                    Some(encoded) => (&encoded[..], way.1),
                    None => (&*cut.bytes, RAW),
                };
                self.enter(keeper, &cut, bytes.len(), (codec, *checksum));
                if let Some(old) = cut.before.filter(|_| codec != RAW && way.0.is_difference()) {
                    self.differences.push((self.frames.len() as u32 - 1, old.runs));
                }
                sink(bytes)?;
            }
        }
    }

    /// Notes a frame that is to be written next.
    fn enter(
        &mut self,
        keeper: &mut Keeper,
        cut: &Cut,
        encoded: usize,
        (codec, checksum): (u8, u64),
    ) {
        let (like, nature) = self.likeness(cut.kind);
        keeper.chooser.came_to(like, nature, cut.before.is_some(), cut.bytes.len(), encoded);
        let (len, position) = (cut.bytes.len() as u64, self.position);
        let offset = self.frames.last().map_or(0, |last| last.offset + last.len);
        let encoded = encoded as u64;
        self.frames.push(Frame { offset, len, position, encoded, codec, checksum });
        self.position += encoded;
    }

    /// What the bytes of a kind are like.
    fn likeness(&self, kind: Kind) -> (&str, Nature) {
        match kind.map(|at| &self.plan.variables[at]) {
            Some(variable) => (&variable.like, variable.nature),
            None => ("", Nature::BYTES),
        }
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

impl Cut<'_> {
    fn before(&self) -> Option<&[u8]> {
        self.before.as_ref().map(|old| &old.bytes[..])
    }
}

/// Encodes a frame, with the checksum of what is stored; one that does not get smaller stays raw.
fn encode((chain, number): &(Chain, u8), cut: &Cut) -> Result<(Option<Vec<u8>>, u64)> {
    if *number != RAW {
        let encoded = chain.encode_beside(&cut.bytes, cut.before().unwrap_or_default())?;
        if encoded.len() < cut.bytes.len() {
            let sum = checksum(&encoded);
            return Ok((Some(encoded), sum));
        }
    }
    Ok((None, checksum(&cut.bytes)))
}

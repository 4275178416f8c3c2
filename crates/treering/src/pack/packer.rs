//! Building one pack.

use super::cut::{Cut, FrameKind, Old, encode};
use super::{Before, ChunkSpan, FRAME, Keeper, LITTLE, Packed, SMALL, Strip};
use crate::codec::{Chain, Nature, StripRest};
use crate::error::Result;
use crate::format::{
    Footer, Frame, HEADER_BYTES, PackExtent, PackName, RAW, Seal, Stats, VariableDelta,
};
use crate::lineage::{ChunkSize, Location, Method, Regions};
use crate::merkle::{Digest, Hasher, boughs_of};
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Settings and variables by which a pack is made.
pub(crate) struct PackPlan {
    pub(crate) run: String,
    pub(crate) name: PackName,
    /// Its position in the epoch.
    pub(crate) ordinal: u32,
    /// The seal of the pack before it in the epoch.
    pub(crate) parent: Option<Seal>,
    pub(crate) chunk: ChunkSize,
    pub(crate) method: Method,
    pub(crate) variables: Vec<Packed>,
    /// Whether variables that are like each other take turns in blocks.
    pub(crate) turns: bool,
}

/// For each variable, the first of those next to it that are like it.
pub(crate) fn firsts(variables: &[Packed]) -> Vec<usize> {
    let mut firsts: Vec<usize> = Vec::with_capacity(variables.len());
    for (at, this) in variables.iter().enumerate() {
        let like = |before: &Packed| before.like == this.like && before.nature == this.nature;
        let goes_on = at > 0 && like(&variables[at - 1]);
        firsts.push(if goes_on { firsts[at - 1] } else { at });
    }
    firsts
}

/// Takes an encoded frame on its way to the store.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<()> + Send + 'a;

/// A pack that is being built.
pub(crate) struct Packer<'a> {
    plan: PackPlan,
    /// For each variable, the first of those next to it that are like it.
    firsts: Vec<usize>,
    hasher: &'a Hasher,
    /// The state before, if frames may be differences to it.
    before: Option<&'a dyn Before>,
    frames: Vec<Frame>,
    chains: Vec<Chain>,
    differences: Vec<(u32, Vec<PackExtent>)>,
    /// The frame that is not full yet.
    partial: Vec<u8>,
    partial_before: Option<Old>,
    kind: FrameKind,
    /// Number of new bytes so far, and at the beginning of this kind.
    offset: u64,
    kind_start: u64,
    /// The size of the file so far.
    position: u64,
    open: Option<OpenVariable>,
    /// Similar variables that wait for their next turn.
    waiting: BTreeMap<usize, OpenVariable>,
    /// Whether differences are tried for a kind, for the kind of the newest variable.
    wanted: Option<(usize, bool)>,
    deltas: Vec<VariableDelta>,
    stats: Stats,
}

/// Number of frames that are encoded side by side before they are written.
const ROUND: usize = 32;

/// New bytes in pieces shorter than this on average, or such before them, make no differences.
const SCATTERED: usize = 4 << 10;

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
    duplicates: u64,
    looked_up: u64,
}

impl OpenVariable {
    /// Takes the boughs of a strip.
    fn note_boughs(&mut self, strip: &Strip, prepared: &PreparedStrip) {
        let first = strip.first / crate::merkle::BOUGH as u64;
        let hashed = strip.changed.boughs.iter().chain(&prepared.boughs);
        self.boughs.extend(hashed.map(|(at, digest)| (first + u64::from(*at), *digest)));
    }
}

/// The frames of an array whose planes are larger than a frame: an even number of them makes up a plane, so that whoever
/// reads half of the array in each direction reads little of the other half.
#[derive(Clone, Copy)]
struct PlaneFrames {
    plane: u64,
    count: u64,
    element: u64,
}

impl PlaneFrames {
    fn of(nature: Nature) -> Option<PlaneFrames> {
        let element = nature.dtype.size() * u64::from(nature.record);
        let plane = element * u64::from(nature.plane);
        let count = 2 * plane.div_ceil(2 * FRAME as u64);
        (plane > FRAME as u64).then_some(PlaneFrames { plane, count, element })
    }

    /// The bytes from a place of the array to the end of its frame.
    fn left(self, at: u64) -> usize {
        let in_plane = at % self.plane;
        let end = |frame: u64| frame * self.plane / self.count / self.element * self.element;
        // Rounding down to elements may have put the place into the frame before.
        let frame = in_plane * self.count / self.plane + 1;
        let end = (frame..).map(end).find(|end| *end > in_plane).unwrap_or(self.plane);
        (end - in_plane) as usize
    }
}

/// Results for a strip that are computed in parallel, before anything is decided.
#[derive(Default)]
struct PreparedStrip {
    /// The digest of each changed chunk; empty when duplicates are not looked for.
    digests: Vec<Digest>,
    boughs: Vec<(u32, Digest)>,
}

impl<'a> Packer<'a> {
    /// A pack that begins its epoch has nothing before it.
    pub(crate) fn new(plan: PackPlan, hasher: &'a Hasher, before: Option<&'a dyn Before>) -> Self {
        Packer {
            firsts: firsts(&plan.variables),
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
            kind_start: 0,
            position: HEADER_BYTES,
            open: None,
            waiting: BTreeMap::new(),
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
        for alike in strips.chunk_by(|a, b| self.firsts[a.variable] == self.firsts[b.variable]) {
            let first = &self.plan.variables[alike[0].variable];
            let last = &alike[alike.len() - 1];
            let all = &bytes[alike[0].offset..last.offset + last.bytes(bytes).len()];
            keeper.chooser.look_far(&first.like, first.nature, all, FRAME);
        }
        for same in strips.chunk_by(|a, b| a.variable == b.variable) {
            let look = self.switch_to(keeper, same[0].variable);
            let prepared: Vec<PreparedStrip> =
                same.par_iter().map(|strip| self.prepare(strip, bytes, look)).collect();
            // Deciding goes in ascending order, so that the first occurrence is the lowest place.
            let mut fresh = Vec::new();
            for (strip, prepared) in same.iter().zip(prepared) {
                match self.stays_whole(keeper, strip, &prepared, bytes)? {
                    true => self.keep_whole(keeper, strip, prepared, &mut fresh),
                    false => self.decide(keeper, strip, prepared, &mut fresh),
                }
            }
            let old = self.old(same[0].variable, &fresh);
            self.carve(keeper, same[0].variable, &fresh, bytes, old, &mut cuts);
        }
        self.write(keeper, cuts, sink)
    }

    /// Writes what is left and describes the whole.
    pub(crate) fn finish(
        mut self,
        keeper: &mut Keeper,
        sink: &mut Sink,
    ) -> Result<(Footer, Stats)> {
        self.close_all(keeper);
        let mut cuts = Vec::new();
        self.flush(&mut cuts);
        self.write(keeper, cuts, sink)?;
        for variable in &self.plan.variables {
            // Also those of which nothing changed but the length.
            let tree = keeper.trees.entry(variable.key()).or_default();
            tree.update(bough_count(self.plan.chunk.count(variable.bytes)), &[]);
        }
        let all: u64 = self.plan.variables.iter().map(|v| v.bytes).sum();
        self.stats.same_bytes = all - self.stats.new_bytes - self.stats.duplicate_bytes;
        let footer = Footer {
            run: self.plan.run,
            name: self.plan.name,
            ordinal: self.plan.ordinal,
            parent: self.plan.parent,
            frames: self.frames,
            chains: self.chains,
            before: self.differences,
            deltas: self.deltas,
            variables: Vec::new(),
        };
        Ok((footer, self.stats))
    }

    /// Makes a variable the one whose strips come in; whether to look for its duplicate chunks.
    fn switch_to(&mut self, keeper: &mut Keeper, at: usize) -> bool {
        if let Some(open) = self.open.as_ref().filter(|open| open.at == at) {
            return open.look;
        }
        let began = self.open.as_ref().is_some_and(|open| self.firsts[open.at] == self.firsts[at]);
        self.kind_start = if began { self.kind_start } else { self.offset };
        match self.plan.turns && began {
            true => self.waiting.extend(self.open.take().map(|open| (open.at, open))),
            false => self.close_all(keeper),
        }
        if let Some(open) = self.waiting.remove(&at) {
            return self.open.insert(open).look;
        }
        let look = self.plan.method.finds_duplicates()
            && keeper.look(&self.plan.variables[at].key(), self.plan.ordinal == 0);
        let beside = self.wants_before(keeper, at);
        self.open = Some(OpenVariable {
            at,
            base: self.offset,
            regions: Regions::new(self.plan.chunk.bytes(), self.plan.method != Method::List),
            boughs: Vec::new(),
            look,
            beside,
            duplicates: 0,
            looked_up: 0,
        });
        look
    }

    fn close_all(&mut self, keeper: &mut Keeper) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.extend(self.open.take().map(|open| (open.at, open)));
        waiting.into_values().for_each(|open| self.close(keeper, open));
    }

    fn close(&mut self, keeper: &mut Keeper, open: OpenVariable) {
        let variable = &self.plan.variables[open.at];
        let chunks = self.plan.chunk.count(variable.bytes);
        let tree = keeper.trees.entry(variable.key()).or_default();
        tree.update(bough_count(chunks), &open.boughs);
        if open.look {
            keeper.learn(&variable.key(), self.plan.ordinal == 0, open.duplicates, open.looked_up);
        }
        self.deltas.push(VariableDelta {
            rank: variable.rank,
            name: variable.name.clone(),
            chunk: self.plan.chunk,
            bytes: variable.bytes,
            base: open.base,
            // A bitmap tells no places.
            bitmap: self.plan.method == Method::Basic && !self.plan.turns,
            regions: open.regions.into_vec(),
        });
    }

    /// Hashes of a strip that are not there yet.
    fn prepare(&self, strip: &Strip, bytes: &[u8], look: bool) -> PreparedStrip {
        let chunk = self.plan.chunk.bytes();
        let mut prepared = PreparedStrip::default();
        if look {
            let pieces = strip.pieces(chunk, true);
            prepared.digests = pieces.map(|c| self.hasher.digest(&bytes[c.bytes])).collect();
        }
        if !strip.hashed {
            let digests = boughs_of(strip.bytes(bytes), chunk, self.hasher);
            prepared.boughs = (0..).zip(digests).collect();
        }
        prepared
    }

    /// Whether a strip that is there as a whole, or all that changed of a table, is stored so, what is stored already
    /// included.
    fn stays_whole(
        &self,
        keeper: &mut Keeper,
        strip: &Strip,
        prepared: &PreparedStrip,
        bytes: &[u8],
    ) -> Result<bool> {
        let kind = self.open.as_ref().and_then(|open| self.kind_of(open.at));
        let (like, nature) = self.likeness(kind);
        let there = strip.whole.is_some() || matches!(strip.changed.runs[..], [(0, _)]);
        let loses = strip.whole.is_some() || !prepared.digests.is_empty();
        let matters = nature.has_rows() && (there || !nature.has_planes());
        if !keeper.chooser.weighs() || !loses || !matters {
            return Ok(false);
        }
        let (mut left, mut near, mut seen) = (Vec::new(), 0, HashMap::new());
        let mut regions = Regions::new(self.plan.chunk.bytes(), true);
        let mut place = Location { pack: self.plan.ordinal, offset: self.offset };
        for (at, piece) in strip.pieces(self.plan.chunk.bytes(), true).enumerate() {
            let digest = prepared.digests.get(at);
            let known = digest.and_then(|digest| keeper.record.find(digest));
            let found = known.or_else(|| digest.and_then(|digest| seen.get(digest).copied()));
            regions.push(piece.first, piece.count, found.unwrap_or(place), found.is_none());
            match found {
                // Frames of this kind hold the same bytes already, or will.
                Some(found) => {
                    let here = found.pack == self.plan.ordinal && found.offset >= self.kind_start;
                    near += if here { piece.bytes.len() } else { 0 };
                }
                None => {
                    seen.extend(digest.map(|digest| (*digest, place)));
                    place.offset += piece.bytes.len() as u64;
                    left.push(piece.bytes);
                }
            }
        }
        let rest = StripRest {
            left: left.iter().map(|range| range.len()).sum(),
            near,
            regions: regions.into_vec().len(),
        };
        keeper.chooser.keeps_whole(like, nature, strip.bytes(bytes), rest, || {
            left.into_iter().flat_map(|range| &bytes[range]).copied().collect()
        })
    }

    /// Makes all of a strip new, or all that is there of it.
    fn keep_whole(
        &mut self,
        keeper: &mut Keeper,
        strip: &Strip,
        prepared: PreparedStrip,
        fresh: &mut Vec<Fresh>,
    ) {
        let Some(open) = &mut self.open else {
            return;
        };
        open.note_boughs(strip, &prepared);
        let size = self.plan.chunk.bytes() as u64;
        let mut offset = self.offset;
        for (piece, digest) in strip.pieces(size as usize, true).zip(&prepared.digests) {
            let at = match strip.whole {
                Some(_) => self.offset + (piece.first - strip.first) * size,
                None => offset,
            };
            keeper.record.find_or_enter(*digest, Location { pack: self.plan.ordinal, offset: at });
            offset += piece.bytes.len() as u64;
        }
        let pieces: Vec<ChunkSpan> = match strip.whole {
            Some(len) => vec![ChunkSpan {
                first: strip.first,
                count: (len as u64).div_ceil(size),
                bytes: strip.offset..strip.offset + len,
            }],
            None => strip.pieces(size as usize, false).collect(),
        };
        for ChunkSpan { first, count, bytes } in pieces {
            let place = Location { pack: self.plan.ordinal, offset: self.offset };
            open.regions.push(first, count, place, true);
            self.offset += bytes.len() as u64;
            self.stats.new_bytes += bytes.len() as u64;
            fresh.push(Fresh { bytes, at: first * size });
        }
    }

    /// Sorts the changed chunks of a strip into new ones and duplicates.
    fn decide(
        &mut self,
        keeper: &mut Keeper,
        strip: &Strip,
        prepared: PreparedStrip,
        fresh: &mut Vec<Fresh>,
    ) {
        let Some(open) = &mut self.open else {
            return;
        };
        open.note_boughs(strip, &prepared);
        let mut place = Location { pack: self.plan.ordinal, offset: self.offset };
        let mut digests = prepared.digests.iter();
        let size = self.plan.chunk.bytes() as u64;
        for ChunkSpan { first: chunk, count, bytes } in
            strip.pieces(self.plan.chunk.bytes(), open.look)
        {
            let (from, len) = (bytes.start, bytes.len());
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
                    open.duplicates += len as u64;
                    self.stats.duplicate_bytes += len as u64;
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

    /// The older bytes in the places of new ones.
    fn old(&self, variable: usize, fresh: &[Fresh]) -> Option<Old> {
        let before = self.before.filter(|_| self.open.as_ref().is_some_and(|open| open.beside))?;
        let ranges = fresh.iter().map(|fresh| fresh.at..fresh.at + fresh.bytes.len() as u64);
        let ranges: Vec<Range<u64>> = ranges.collect();
        let len: usize = fresh.iter().map(|fresh| fresh.bytes.len()).sum();
        // Small or scattered pieces are not worth following.
        if len < SMALL as usize || ranges.len() * SCATTERED > len {
            return None;
        }
        let mut bytes = vec![0; len];
        let runs = before.bytes(&self.plan.variables[variable].key(), &ranges, &mut bytes)?;
        (runs.len() * SCATTERED <= len).then(|| Old::new(bytes, runs))
    }

    /// Cuts new bytes of a variable into frames; what does not fill one is kept for the next time.
    fn carve<'b>(
        &mut self,
        keeper: &Keeper,
        variable: usize,
        fresh: &[Fresh],
        bytes: &'b [u8],
        mut old: Option<Old>,
        cuts: &mut Vec<Cut<'b>>,
    ) {
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
        let len = match self.kind {
            Some(_) => {
                let ((like, nature), far) =
                    (self.likeness(kind), self.plan.variables[variable].far);
                keeper.chooser.frame_len(like, nature, far, FRAME)
            }
            None => FRAME,
        };
        let planes = PlaneFrames::of(self.plan.variables[variable].nature);
        let planes = planes.filter(|_| self.kind.is_some() && len == FRAME);
        for fresh in fresh {
            let mut rest = &bytes[fresh.bytes.clone()];
            let end = fresh.at + rest.len() as u64;
            // Where little has changed there are no planes to keep apart.
            let planes = planes.filter(|_| rest.len() >= 2 * FRAME);
            while !rest.is_empty() {
                let room = match planes {
                    Some(planes) => planes.left(end - rest.len() as u64),
                    None => len.saturating_sub(self.partial.len()).max(1),
                };
                let (head, tail) = rest.split_at(rest.len().min(room));
                rest = tail;
                let full = head.len() == room;
                if full && self.partial.is_empty() {
                    let before = old.as_mut().map(|old| old.take(room));
                    cuts.push(Cut { bytes: Cow::Borrowed(head), kind: self.kind, before });
                    continue;
                }
                self.partial.extend_from_slice(head);
                if let Some(old) = &mut old {
                    let head = old.take(head.len());
                    self.partial_before.get_or_insert_default().append(&head);
                }
                if full {
                    self.flush(cuts);
                }
            }
        }
    }

    /// The first of those variables next to this one that are like it, unless it is small.
    fn kind_of(&self, variable: usize) -> FrameKind {
        (self.plan.variables[variable].bytes >= SMALL).then(|| self.firsts[variable])
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
        let whole = self.plan.ordinal == 0;
        let alike = |a: &Cut, b: &Cut| a.kind == b.kind && a.before.is_some() == b.before.is_some();
        for same in cuts.chunk_by(alike) {
            let (like, nature) = self.likeness(same[0].kind);
            let frames = same.iter().map(|cut| (&*cut.bytes, cut.before()));
            let frames = frames.collect::<Vec<_>>();
            let chain = keeper.chooser.chain(like, nature, &frames, whole)?;
            let way = match Footer::number(&mut self.chains, &chain) {
                Some(number) => (chain, number),
                None => (Chain::default(), RAW),
            };
            ways.extend(same.iter().map(|_| way.clone()));
        }
        let mut cuts = cuts.into_iter().zip(ways);
        loop {
            // Written frames make room for the next few.
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

    /// Properties of the bytes of a kind.
    fn likeness(&self, kind: FrameKind) -> (&str, Nature) {
        match kind.map(|at| &self.plan.variables[at]) {
            Some(variable) => (&variable.like, variable.nature),
            None => ("", Nature::BYTES),
        }
    }
}

/// Number of boughs that cover this many chunks.
fn bough_count(chunks: u64) -> usize {
    chunks.div_ceil(crate::merkle::BOUGH as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::DType;
    use proptest::prelude::*;

    proptest! {
        /// Frames follow each other without gaps, none is larger than the usual one, and planes and halves of planes begin
        /// with one.
        #[test]
        fn an_even_number_of_frames_makes_up_a_plane(a in 1u32..3000, b in 1u32..3000, record in 1u8..4) {
            let nature = Nature { dtype: DType::F64, record, row: b, plane: a * b, spacing: None };
            let plane = u64::from(a * b) * 8 * u64::from(record);
            let Some(frames) = PlaneFrames::of(nature) else {
                prop_assert!(plane <= FRAME as u64);
                return Ok(());
            };
            let (mut at, mut starts) = (0, Vec::new());
            while at < 2 * plane {
                starts.push(at);
                let left = frames.left(at);
                prop_assert!((1..=FRAME + 24).contains(&left));
                prop_assert_eq!(at % (8 * u64::from(record)), 0);
                at += left as u64;
            }
            prop_assert_eq!(at, 2 * plane);
            prop_assert!(starts.contains(&plane) && starts.len() as u64 == 2 * frames.count);
            if plane % (2 * frames.element) == 0 {
                prop_assert!(starts.contains(&(plane / 2)));
            }
        }
    }
}

//! One strip of a pair: leaves, then sketches, then values.

use super::ahead::Ahead;
use super::fetch::{Fetcher, RUN};
use super::judge::Value;
use super::outcome::Picture;
use super::pair::{Pair, TreePair};
use super::side::{Meter, TreeView};
use super::tally::Tally;
use super::walk;
use crate::array::DType;
use crate::array::float_env::StandardFloats;
use crate::error::{Error, Result};
use crate::merkle::bounded::{Bound, Leaf, MAX_PLANES, NODE, Verdict, leaf_at};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Number of chunks that are judged by their sketches before it is decided whether that pays.
const PROBES: usize = 8;
/// Chunks so far apart are still read at once: what lies between costs less than one more read.
const WARM_GAP: u64 = 8 << 10;
const COLD_GAP: u64 = 64 << 10;
/// With this many planes the sketches are begun.
const FIRST_PLANES: u8 = 2;

/// Findings in one strip.
#[derive(Default)]
pub(super) struct StripFinding {
    pub(super) tally: Tally,
    /// Chunks that only values could decide, which are not there.
    pub(super) undecided: u64,
    pub(super) mismatched: u64,
    pub(super) read: u64,
    /// The first place that surely differs, where only sketches are there.
    pub(super) placed: Option<Range<u64>>,
    pub(super) listed: Vec<(u64, Value, Value)>,
    pub(super) pictures: Vec<Picture>,
    /// The error of a tree here.
    pub(super) trouble: Option<Error>,
}

/// The stages whose time is taken.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    Trees,
    Walking,
    Sketches,
    Reading,
    Comparing,
}

/// The time each stage took, of all threads, in nanoseconds.
#[derive(Default)]
pub(super) struct Clock([AtomicU64; 5]);

impl Clock {
    pub(super) fn add(&self, stage: Stage, since: Instant) {
        self.0[stage as usize].fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn seconds(&self, stage: Stage) -> f64 {
        self.0[stage as usize].load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// State of a worker, beside the strip.
pub(super) struct StripWorker<'w> {
    /// Values are compared in the standard floating-point environment.
    pub(super) _standard: StandardFloats,
    pub(super) fetcher: Fetcher,
    pub(super) ahead: Ahead,
    pub(super) meter: &'w Meter,
    pub(super) clock: &'w Clock,
    pub(super) list: bool,
    pub(super) pictures: bool,
    /// Memory for planes, used again and again.
    pub(super) room: [Vec<u8>; 2],
    pub(super) doubt: Doubt,
}

/// Whether sketches have been of use recently. Where they leave everything open, values are read at
/// once for a while, longer and longer, and then they are tried again.
#[derive(Default)]
pub(super) struct Doubt {
    /// Of which pair.
    pair: usize,
    /// Number of strips with sketches that were left open one after another.
    streak: u32,
    /// Number of strips that are still to be done without sketches.
    left: u32,
}

impl Doubt {
    /// Whether the next strip does without sketches.
    fn skips(&mut self, pair: &Pair) -> bool {
        let pair = std::ptr::from_ref(pair) as usize;
        if self.pair != pair {
            *self = Doubt { pair, streak: 0, left: 0 };
        }
        let skips = self.left > 0;
        self.left -= u32::from(skips);
        skips
    }

    fn saw(&mut self, hopeless: bool) {
        self.streak = if hopeless { self.streak + 1 } else { 0 };
        self.left = if hopeless { 1 << self.streak.min(4) } else { 0 };
    }
}

impl StripWorker<'_> {
    /// Compares a strip; this worker is likely to be given those that come `next` of the same pair.
    pub(super) fn strip(
        &mut self,
        pair: &Pair,
        strip: u64,
        next: impl Iterator<Item = u64>,
    ) -> Result<StripFinding> {
        let mut found = StripFinding::default();
        let chunks = pair.chunks_of(strip);
        let open = match &pair.trees {
            None => chunks.clone().collect(),
            Some(trees) => {
                let start = Instant::now();
                let flagged = self.flagged(trees, chunks.clone());
                self.clock.add(Stage::Walking, start);
                let start = Instant::now();
                let open = flagged.and_then(|flagged| {
                    found.mismatched = flagged.len() as u64;
                    self.sketches(pair, trees, strip, next, &flagged, &mut found)
                });
                self.clock.add(Stage::Sketches, start);
                match open {
                    Ok(open) => open,
                    // The values tell whatever a damaged tree does not.
                    Err(error) if pair.inputs.is_some() => {
                        found.trouble = Some(error);
                        chunks.clone().collect()
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        if pair.trees.is_none() {
            found.mismatched = open.len() as u64;
        }
        if pair.inputs.is_some() {
            self.values(pair, &open, &mut found)?;
        }
        Ok(found)
    }

    /// The chunks of which the leaves differ, with both leaves.
    fn flagged(&self, trees: &TreePair, chunks: Range<u64>) -> Result<Vec<(u64, [Leaf; 2])>> {
        let mut flagged = Vec::new();
        let node = trees.node_above(chunks.start);
        let leaves = match node {
            Some(node) => walk::leaves(trees.views, node, self.meter).map_err(|(_, e)| e)?,
            None => [Vec::new(), Vec::new()],
        };
        let first = chunks.start / NODE * NODE;
        for chunk in chunks {
            let at = (chunk - first) as usize * 16;
            let both = match node {
                Some(_) => [leaf_at(&leaves[0], at), leaf_at(&leaves[1], at)],
                None => [[0; 2]; 2],
            };
            let nan = trees.with_nan.contains(&chunk);
            if both[0] != both[1] || nan {
                flagged.push((chunk, both));
            }
        }
        Ok(flagged)
    }

    /// The chunks that the sketches leave open.
    fn sketches(
        &mut self,
        pair: &Pair,
        trees: &TreePair,
        strip: u64,
        next: impl Iterator<Item = u64>,
        flagged: &[(u64, [Leaf; 2])],
        found: &mut StripFinding,
    ) -> Result<Vec<u64>> {
        let values = pair.inputs.is_some();
        let chunks = pair.chunks_of(strip);
        let all = (chunks.end - chunks.start) as usize;
        // A few small chunks are read as fast as their planes.
        let few = flagged.len() * 32 < all && pair.chunk <= 16 << 10;
        let skip = values && (few || self.doubt.skips(pair));
        if trees.sketch.is_none() || flagged.is_empty() || skip {
            if !values {
                for (chunk, leaves) in flagged {
                    let verdict = match trees.is_exact(pair.bound) {
                        true if leaves[0] == leaves[1] => continue,
                        true => Verdict::Somewhere,
                        false => Verdict::Open,
                    };
                    note(pair, *chunk, verdict, found);
                }
            }
            return Ok(flagged.iter().map(|(chunk, _)| *chunk).collect());
        }
        let dense = flagged.len() * 8 >= all;
        self.ahead.settle(trees, strip);
        let enough = trees.sketch.as_ref().is_some_and(|sketch| sketch.planes() >= FIRST_PLANES);
        if dense && enough && self.doubt.streak == 0 {
            self.ahead.ask(trees, next, FIRST_PLANES, self.meter);
        }
        let mut open = Vec::new();
        let room = std::mem::take(&mut self.room);
        let mut planes = PlanePair::new(trees.views, strip, &chunks, self.meter, room);
        planes.early = self.ahead.planes(trees, strip);
        planes.whole = dense || planes.early.is_some();
        // A few from all over the strip tell whether the sketches settle anything.
        let probes = flagged.len().min(PROBES);
        let mut hopeless = values;
        for probe in (0..probes).map(|probe| flagged[probe * flagged.len() / probes]) {
            hopeless =
                hopeless && self.judge(trees, &mut planes, probe.0, probe.1)? != Verdict::Within;
        }
        if hopeless {
            open.extend(flagged.iter().map(|(chunk, _)| *chunk));
        }
        for (chunk, leaves) in flagged.iter().filter(|_| !hopeless) {
            let verdict = match trees.with_nan.contains(chunk) {
                true => Verdict::Open,
                false => self.judge(trees, &mut planes, *chunk, *leaves)?,
            };
            if verdict == Verdict::Within {
                continue;
            }
            match values {
                true => open.push(*chunk),
                false => note(pair, *chunk, verdict, found),
            }
        }
        self.room = planes.all;
        self.doubt.saw(hopeless);
        Ok(open)
    }

    fn judge(
        &self,
        trees: &TreePair,
        planes: &mut PlanePair,
        chunk: u64,
        leaves: [Leaf; 2],
    ) -> Result<Verdict> {
        let Some(sketch) = &trees.sketch else { return Ok(Verdict::Open) };
        let kept = sketch.planes();
        let mut count = FIRST_PLANES.min(kept);
        loop {
            planes.load(chunk, count)?;
            let (a, b) = (planes.of(0, chunk), planes.of(1, chunk));
            let ready = count as usize;
            let lacking = trees.lacking.contains(&chunk);
            match sketch.judge((leaves[0], leaves[1]), &a[..ready], &b[..ready], lacking) {
                Verdict::More => count += 1,
                verdict => return Ok(verdict),
            }
        }
    }

    /// Reads and compares the values of chunks.
    fn values(&mut self, pair: &Pair, open: &[u64], found: &mut StripFinding) -> Result<()> {
        let Some(inputs) = &pair.inputs else { return Ok(()) };
        found.read += open.len() as u64;
        let start = Instant::now();
        let mut comparing = 0u64;
        let (Some(first), Some(last)) = (open.first(), open.last()) else { return Ok(()) };
        let span = first * pair.chunk..pair.bytes.min((last + 1) * pair.chunk);
        let warm = [inputs[0].is_warm(&span), inputs[1].is_warm(&span)];
        let runs = runs(pair, open, if warm == [true; 2] { WARM_GAP } else { COLD_GAP });
        let size = pair.a.description.dtype.size();
        let mut parts: Vec<(u64, PairFinding)> = Vec::new();
        let (list, pictures) = (self.list, self.pictures);
        let mut visit = |range: Range<u64>, a: &[u8], b: &[u8]| {
            let start = Instant::now();
            let mut part = PairFinding::default();
            compare(pair, open, range.clone(), a, b, list, pictures, &mut part);
            if part.tally != Tally::default() {
                parts.push((range.start / size, part));
            }
            comparing += start.elapsed().as_nanos() as u64;
            Ok(())
        };
        let bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
        self.meter.add(2 * bytes);
        let outcome = self.fetcher.run([&inputs[0], &inputs[1]], runs, warm, &mut visit);
        self.clock.add(Stage::Reading, start + std::time::Duration::from_nanos(comparing));
        self.clock.add_nanos(Stage::Comparing, comparing);
        outcome?;
        // Pairs come in any order; what is added up is added in that of the indices.
        parts.sort_by_key(|(at, _)| *at);
        for (_, part) in parts {
            found.tally.append(part.tally);
            found.listed.extend(part.listed);
            match found.pictures.is_empty() {
                true => found.pictures = part.pictures,
                false => {
                    found.pictures.iter_mut().zip(&part.pictures).for_each(|(p, q)| p.merge(q))
                }
            }
        }
        Ok(())
    }
}

impl Clock {
    fn add_nanos(&self, stage: Stage, nanos: u64) {
        self.0[stage as usize].fetch_add(nanos, Ordering::Relaxed);
    }
}

/// Findings in one pair of reads.
#[derive(Default)]
struct PairFinding {
    tally: Tally,
    listed: Vec<(u64, Value, Value)>,
    pictures: Vec<Picture>,
}

/// Compares those chunks of a range that are open.
#[allow(clippy::too_many_arguments)]
fn compare(
    pair: &Pair,
    open: &[u64],
    range: Range<u64>,
    a: &[u8],
    b: &[u8],
    list: bool,
    pictures: bool,
    part: &mut PairFinding,
) {
    let size = pair.a.description.dtype.size();
    let PairFinding { tally, listed, pictures: drawn } = part;
    let exact = pair.bound.is_exact();
    let mut listener = |place: u64, x: Value, y: Value, times: f64| {
        if pictures {
            if drawn.is_empty() {
                *drawn = Picture::of(pair.extent());
            }
            let index = pair.index(place);
            let size = if exact { pair.size_of_difference(&x, &y) } else { times };
            drawn.iter_mut().for_each(|picture| picture.add(&index, size));
        }
        if list {
            listed.push((place, x, y));
        }
    };
    let first = open.partition_point(|chunk| (chunk + 1) * pair.chunk <= range.start);
    let mut at = first;
    while let Some(chunk) = open.get(at).filter(|chunk| **chunk * pair.chunk < range.end) {
        // Neighbours are compared in one go.
        let mut end = at + 1;
        while open.get(end) == Some(&(chunk + (end - at) as u64)) {
            end += 1;
        }
        let from = (chunk * pair.chunk).max(range.start);
        let to = ((chunk + (end - at) as u64) * pair.chunk).min(range.end);
        let inside = (from - range.start) as usize..(to - range.start) as usize;
        pair.comparer.compare(
            &a[inside.clone()],
            &b[inside],
            from / size,
            tally,
            if list || pictures { Some(&mut listener) } else { None },
        );
        at = end;
    }
}

/// Joins chunks to ranges of bytes: neighbours, and those with no more than a gap between them.
fn runs(pair: &Pair, open: &[u64], gap: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for chunk in open {
        let mut range = chunk * pair.chunk..pair.bytes.min((chunk + 1) * pair.chunk);
        while range.start < range.end {
            let end = range.end.min(range.start + RUN as u64);
            match runs.last_mut() {
                Some(last) if range.start <= last.end + gap && end <= last.start + RUN as u64 => {
                    last.end = end;
                }
                _ => runs.push(range.start..end),
            }
            range.start = end;
        }
    }
    runs
}

/// Notes what a sketch tells where there are no values.
fn note(pair: &Pair, chunk: u64, verdict: Verdict, found: &mut StripFinding) {
    let dtype = pair.a.description.dtype;
    let parts = if matches!(dtype, DType::C64 | DType::C128) { 2 } else { 1 };
    let start = chunk * pair.chunk / dtype.size();
    // A complex number with a part that is NaN is NaN: its other part tells nothing.
    let nans = |trees: &TreePair| trees.views.iter().any(|view| view.entry.nans > 0);
    let bits = pair.bound == Bound::Bits;
    let verdict = match parts == 2 && !bits && pair.trees.as_ref().is_some_and(nans) {
        true => Verdict::Open,
        false => verdict,
    };
    match verdict {
        Verdict::Beyond { count, first, open } => {
            found.tally.differences += count.div_ceil(parts);
            let first = start + first / parts;
            found.placed.get_or_insert(first..first + 1);
            found.undecided += u64::from(open);
        }
        Verdict::Somewhere => {
            found.tally.differences += 1;
            let end = pair.bytes.min((chunk + 1) * pair.chunk) / dtype.size();
            found.placed.get_or_insert(start..end);
        }
        _ => found.undecided += 1,
    }
}

/// The planes of both sides, as far as they were read: chunk by chunk, or of the whole strip.
struct PlanePair<'a> {
    views: [&'a TreeView<'a>; 2],
    strip: u64,
    chunks: Range<u64>,
    meter: &'a Meter,
    whole: bool,
    /// The first planes of the whole strip, if they were read ahead.
    early: Option<[&'a [u8]; 2]>,
    /// The planes of the whole strip.
    all: [Vec<u8>; 2],
    all_count: u8,
    /// The planes of one chunk.
    one: [Vec<u8>; 2],
    one_chunk: u64,
    one_count: u8,
}

impl<'a> PlanePair<'a> {
    fn new(
        views: [&'a TreeView<'a>; 2],
        strip: u64,
        chunks: &Range<u64>,
        meter: &'a Meter,
        all: [Vec<u8>; 2],
    ) -> Self {
        PlanePair {
            views,
            strip,
            chunks: chunks.clone(),
            meter,
            whole: false,
            early: None,
            all,
            all_count: 0,
            one: Default::default(),
            one_chunk: u64::MAX,
            one_count: 0,
        }
    }

    /// Makes the lowest `count` planes of a chunk ready.
    fn load(&mut self, chunk: u64, count: u8) -> Result<()> {
        if let Some(early) = self.early {
            if count <= FIRST_PLANES {
                return Ok(());
            }
            // The chunks that were read ahead are the first of all.
            for (all, early) in self.all.iter_mut().zip(early) {
                all.clear();
                all.extend_from_slice(early);
            }
            (self.early, self.all_count) = (None, FIRST_PLANES);
        }
        if self.whole {
            if self.all_count < count {
                self.load_all(count)?;
            }
            return Ok(());
        }
        if self.one_chunk != chunk {
            self.one.iter_mut().for_each(Vec::clear);
            (self.one_chunk, self.one_count) = (chunk, 0);
        }
        for plane in self.one_count..count {
            for (side, view) in self.views.iter().enumerate() {
                let stride = view.layout.stride;
                let at = view.layout.planes_of(self.strip, plane..plane + 1).start
                    + (chunk - self.chunks.start) * stride;
                let old = self.one[side].len();
                self.one[side].resize(old + stride as usize, 0);
                view.read_into(at, &mut self.one[side][old..], self.meter)?;
            }
        }
        self.one_count = self.one_count.max(count);
        Ok(())
    }

    /// Reads planes of the whole strip.
    fn load_all(&mut self, count: u8) -> Result<()> {
        for (side, view) in self.views.iter().enumerate() {
            let start = view.layout.planes_of(self.strip, 0..0).start;
            let more = view.layout.planes_of(self.strip, self.all_count..count);
            let place = (more.start - start) as usize..(more.end - start) as usize;
            if self.all[side].len() < place.end {
                self.all[side].resize(place.end, 0);
            }
            view.read_into(more.start, &mut self.all[side][place], self.meter)?;
        }
        self.all_count = count;
        Ok(())
    }

    /// The planes of a chunk: those that are ready, and nothing for the others.
    fn of(&self, side: usize, chunk: u64) -> [&[u8]; MAX_PLANES as usize] {
        let stride = self.views[side].layout.stride as usize;
        let within = (chunk - self.chunks.start) as usize;
        let pitch = (self.chunks.end - self.chunks.start) as usize * stride;
        let (bytes, count, pitch, at) = match (self.early, self.whole) {
            (Some(early), _) => (early[side], FIRST_PLANES, pitch, within * stride),
            (None, true) => (&self.all[side][..], self.all_count, pitch, within * stride),
            (None, false) => (&self.one[side][..], self.one_count, stride, 0),
        };
        let mut planes: [&[u8]; MAX_PLANES as usize] = [&[]; MAX_PLANES as usize];
        for (plane, of_chunk) in planes.iter_mut().enumerate().take(count as usize) {
            *of_chunk = &bytes[plane * pitch + at..][..stride];
        }
        planes
    }
}

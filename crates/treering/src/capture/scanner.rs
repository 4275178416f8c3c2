//! The part of a checkpoint that the program waits for.
//!
//! All variables are cut into strips, strips are grouped into batches, and the strips of a batch
//! are scanned in parallel: each copies what changed to the front of its own slot of a buffer. A
//! batch in which most changed is handed on as it is; of any other, the changed bytes
//! are copied together, which costs little because they are few. A strip of a variable with a bound is
//! rounded into a buffer of its thread first, and nothing behind it sees the program's own values.

use super::staging::{Staged, Staging};
use super::trees::{CaptureTrees, Dirty};
use super::{CaptureSettings, Declared};
use crate::array::{ArrayBytes, Rounding, Variable};
use crate::error::Result;
use crate::lineage::{Changed, ChunkSize, Habit, Method, scan_into};
use crate::memory::copy_streaming;
use crate::memory::zeroed;
use crate::merkle::{BOUGH, Digest, Hasher, Print};
use crate::pack::Strip;
use crate::restore::RestoredVariable;
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that one task scans: few enough to stay in the cache between hashing and copying.
const STRIP: usize = 256 << 10;
/// Bytes that are passed on at a time.
const BATCH: usize = 64 << 20;
/// Variables smaller than this are always watched: there is nothing to gain by not hashing them.
const SMALL: usize = 64 << 10;

/// State of a variable at the checkpoint before.
#[derive(Default)]
struct Tracker {
    bytes: u64,
    prints: Vec<Print>,
    /// Number of valid prints.
    known: u64,
    stays: Habit,
    mode: Mode,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    /// Hash, compare, copy what changed.
    #[default]
    Watch,
    /// Copy everything; it has been changing everywhere all the time.
    Copy,
}

impl Tracker {
    /// Prepares for data of `bytes` bytes.
    fn prepare(&mut self, bytes: u64, chunk: ChunkSize, whole: bool, method: Method) {
        if bytes != self.bytes {
            // The last chunk may have been short, and the last bough may get other members.
            let full = self.bytes.min(bytes) / chunk.bytes() as u64;
            self.known = self.known.min(full / BOUGH as u64 * BOUGH as u64);
            self.bytes = bytes;
        }
        if whole {
            self.known = 0;
        }
        let watched = bytes < SMALL as u64 || self.stays.look();
        self.mode = match watched && method != Method::Full {
            true => Mode::Watch,
            false => Mode::Copy,
        };
        if self.mode == Mode::Copy {
            self.known = 0;
            self.prints = Vec::new();
        } else {
            let count = chunk.count(bytes);
            match self.prints.is_empty() {
                // Zeros of the system are touched by the threads that scan.
                true => self.prints = zeroed(count).unwrap_or_else(|_| vec![0; count as usize]),
                false => self.prints.resize(count as usize, 0),
            }
        }
    }

    /// Learns from what a scan found.
    fn learn(&mut self, changed: u64, chunk: ChunkSize) {
        let chunks = chunk.count(self.bytes);
        if self.mode == Mode::Copy {
            return;
        }
        if self.known == chunks && self.bytes >= SMALL as u64 {
            self.stays.observe(changed * 10 <= self.bytes * 9);
        }
        self.known = chunks;
    }
}

/// One strip of one variable, to be scanned.
struct ScanJob<'a> {
    variable: usize,
    first: u64,
    /// The bytes of the variable, and those of the strip.
    bytes: ArrayBytes<'a>,
    range: Range<usize>,
    /// Empty when the strip is only copied.
    prints: &'a mut [Print],
    known: usize,
    rounding: Option<Rounding>,
    /// Memory for the boughs.
    boughs: Vec<(u32, Digest)>,
}

impl ScanJob<'_> {
    /// `memory` is for values that are to be gathered, and for those that are to be rounded.
    fn run(
        &mut self,
        chunk: usize,
        hasher: &Hasher,
        slot: &mut [u8],
        (gathered, rounded): &mut (Vec<u8>, Vec<u8>),
    ) -> Changed {
        let own = self.bytes.part(self.range.clone(), gathered);
        let data = match self.rounding {
            None => own,
            Some(rounding) => {
                rounded.clear();
                rounded.extend_from_slice(own);
                rounding.round(rounded);
                rounded
            }
        };
        if self.prints.is_empty() {
            copy_streaming(&mut slot[..data.len()], data);
            return Changed {
                runs: vec![(0, data.len().div_ceil(chunk) as u32)],
                boughs: Vec::new(),
                bytes: data.len(),
            };
        }
        let boughs = std::mem::take(&mut self.boughs);
        scan_into(data, chunk, self.known, self.prints, hasher, slot, boughs)
    }
}

/// Changed chunks on their way to a pack, and the memory that holds them.
pub(crate) struct StagedBatch {
    pub(crate) strips: Vec<Strip>,
    pub(crate) staged: Staged,
}

/// Takes batches as they are captured.
type Hand<'a> = &'a mut dyn FnMut(StagedBatch);

/// The state of the capturing side.
pub(crate) struct Capture {
    settings: CaptureSettings,
    hasher: Arc<Hasher>,
    staging: Staging,
    trackers: HashMap<String, Tracker>,
    last_changed: u64,
    pub(crate) trees: CaptureTrees,
}

impl Capture {
    pub(crate) fn new(settings: CaptureSettings, seed: u64, staging: Staging) -> Self {
        Capture {
            hasher: Arc::new(Hasher::new(seed)),
            staging,
            trackers: HashMap::new(),
            last_changed: 0,
            trees: CaptureTrees::new(&settings.bounds, &settings.trees),
            settings,
        }
    }

    pub(crate) fn hasher(&self) -> Arc<Hasher> {
        self.hasher.clone()
    }

    /// Forgets the arrays: the next checkpoint is captured as if it were the first.
    pub(crate) fn forget(&mut self) {
        self.trackers.values_mut().for_each(|t| t.known = 0);
    }

    /// Goes on from a restored state.
    pub(crate) fn resume(&mut self, seed: u64, restored: Vec<RestoredVariable>) {
        self.hasher = Arc::new(Hasher::new(seed));
        self.trees.forget();
        let tracked = restored.into_iter().map(|r| {
            let known = r.prints.len() as u64;
            (r.name, Tracker { bytes: r.bytes, prints: r.prints, known, ..Tracker::default() })
        });
        self.trackers = tracked.collect();
    }

    /// Touches memory for a first checkpoint of this many bytes, behind the program.
    pub(crate) fn prepare(&self, state: u64) {
        if !self.settings.trees_only {
            let boughs = STRIP / self.settings.chunk.bytes() / BOUGH;
            self.staging.prepare(state, BATCH, (STRIP, boughs));
        }
    }

    /// The bytes that are likely to have changed, of this many.
    pub(crate) fn expected(&self, state: u64) -> u64 {
        self.last_changed.min(state)
    }

    /// Everything that a checkpoint of these arrays will hold: their data, and the trees of those that have
    /// bounds.
    pub(crate) fn declare(&mut self, variables: &[Variable]) -> Result<Vec<Declared>> {
        let trees = self.trees.prepare(variables)?;
        let data = if self.settings.trees_only { &[] } else { variables };
        let mut declared = Declared::of(data)?;
        declared.extend(trees.into_iter().map(|d| Declared { description: d, rounded: None }));
        Ok(declared)
    }

    /// Captures arrays, and the trees of those that have bounds; how many bytes had changed.
    pub(crate) fn capture(
        &mut self,
        whole: bool,
        variables: &[Variable],
        declared: &[Declared],
        hand: Hand,
    ) -> Result<u64> {
        let data = if self.settings.trees_only { &[] } else { variables };
        let mut scan = Scan::new(whole, declared, std::mem::take(&mut self.trackers));
        let mut changed = self.scan_all(data, &mut scan, hand);
        if !self.trees.is_empty() {
            let mut dirty = std::mem::take(&mut scan.dirty);
            dirty.resize(variables.len(), None);
            self.trees.renew(variables, &dirty)?;
            // The trees are lent to the scan, which needs the rest of this.
            let trees =
                std::mem::replace(&mut self.trees, CaptureTrees::new(&[], &Default::default()));
            changed += self.scan_all(&trees.variables(variables), &mut scan, hand);
            self.trees = trees;
        }
        self.last_changed = if whole { 0 } else { changed };
        Ok(changed)
    }

    /// Captures variables without making trees of them.
    pub(crate) fn capture_as_is(
        &mut self,
        whole: bool,
        variables: &[Variable],
        declared: &[Declared],
        hand: Hand,
    ) -> u64 {
        let mut scan = Scan::new(whole, declared, std::mem::take(&mut self.trackers));
        let changed = self.scan_all(variables, &mut scan, hand);
        self.last_changed = if whole { 0 } else { changed };
        changed
    }

    /// Scans variables, batch by batch; how many bytes had changed.
    fn scan_all(&mut self, variables: &[Variable], scan: &mut Scan, hand: Hand) -> u64 {
        let mut trackers: Vec<Tracker> = variables
            .iter()
            .map(|variable| {
                let mut tracker = scan.old.remove(&variable.description.name).unwrap_or_default();
                let bytes = variable.bytes.len() as u64;
                tracker.prepare(bytes, self.settings.chunk, scan.whole, self.settings.method);
                tracker
            })
            .collect();
        let mut changed = vec![0u64; variables.len()];
        let first = scan.scanned;
        scan.scanned += variables.len();
        if !self.trees.is_empty() {
            let known = |tracker: &Tracker| (tracker.known > 0).then(Vec::new);
            scan.dirty = trackers.iter().map(known).collect();
        }
        let roundings = &scan.roundings[first..];
        let jobs = jobs(variables, roundings, &mut trackers, self.settings.chunk);
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let mut batch = Vec::new();
            let mut room = BATCH.min(self.staging.limit() as usize);
            while let Some(job) = jobs.next_if(|job| batch.is_empty() || job.range.len() <= room) {
                room = room.saturating_sub(job.range.len());
                batch.push(job);
            }
            let (mut strips, staged) = self.scan_batch(batch);
            for strip in &mut strips {
                changed[strip.variable] += strip.changed.bytes as u64;
                if let Some(Some(dirty)) = scan.dirty.get_mut(strip.variable) {
                    let bytes = variables[strip.variable].bytes.len() as u64;
                    dirty.extend(dirty_ranges(strip, self.settings.chunk.bytes() as u64, bytes));
                }
                strip.variable += first;
            }
            if !strips.is_empty() {
                hand(StagedBatch { strips, staged });
            }
        }
        drop(jobs);
        for (tracker, changed) in trackers.iter_mut().zip(&changed) {
            tracker.learn(*changed, self.settings.chunk);
        }
        let names = variables.iter().map(|v| v.description.name.clone());
        self.trackers.extend(names.zip(trackers));
        changed.iter().sum()
    }

    fn scan_batch(&self, mut batch: Vec<ScanJob>) -> (Vec<Strip>, Staged) {
        // Slots begin at cache lines, so that they can be written past the cache.
        let slot_len = |job: &ScanJob| job.range.len().next_multiple_of(64);
        let len: usize = batch.iter().map(slot_len).sum();
        self.staging.reserve(len as u64);
        let mut buffer = self.staging.buffer(len);
        let watched = batch.iter_mut().filter(|job| !job.prints.is_empty());
        self.staging.lend_boughs(watched.map(|job| &mut job.boughs));
        let mut slots = Vec::with_capacity(batch.len());
        let mut rest = &mut buffer[..];
        for job in &batch {
            let (slot, tail) = rest.split_at_mut(slot_len(job));
            slots.push(slot);
            rest = tail;
        }
        let chunk = self.settings.chunk.bytes();
        let one = |memory: &mut (Vec<u8>, Vec<u8>), (job, slot): (&mut ScanJob, &mut [u8])| {
            job.run(chunk, &self.hasher, slot, memory)
        };
        let found: Vec<Changed> = match len > STRIP {
            true => batch.par_iter_mut().zip(slots).map_init(Default::default, one).collect(),
            false => {
                let mut memory = Default::default();
                batch.iter_mut().zip(slots).map(|job| one(&mut memory, job)).collect()
            }
        };
        let mut strips = Vec::new();
        let mut offset = 0;
        for (job, changed) in batch.iter().zip(found) {
            if changed.bytes > 0 {
                let hashed = !job.prints.is_empty();
                strips.push(Strip {
                    variable: job.variable,
                    first: job.first,
                    changed,
                    hashed,
                    offset,
                    whole: None,
                });
            }
            offset += slot_len(job);
        }
        let staged = self.stage(buffer, &mut strips, len);
        (strips, staged)
    }

    /// Hands the buffer over as it is, or copies the few bytes that matter out of it.
    fn stage(&self, buffer: memmap2::MmapMut, strips: &mut [Strip], len: usize) -> Staged {
        let changed: usize = strips.iter().map(|s| s.changed.bytes).sum();
        if changed * 2 >= len {
            return self.staging.keep(buffer, len as u64);
        }
        let parts: Vec<(usize, usize)> =
            strips.iter().map(|s| (s.offset, s.changed.bytes)).collect();
        let mut offset = 0;
        for strip in strips {
            strip.offset = offset;
            offset += strip.changed.bytes;
        }
        self.staging.condense(buffer, &parts, len as u64)
    }
}

/// A checkpoint that is being scanned.
struct Scan {
    whole: bool,
    /// The trackers of variables that were not scanned yet; those of variables that are not handed over
    /// any more are dropped with them.
    old: HashMap<String, Tracker>,
    /// The rounding of each variable.
    roundings: Vec<Option<Rounding>>,
    /// The number of variables that were scanned.
    scanned: usize,
    /// The changes in each variable, if there are trees that need them.
    dirty: Vec<Dirty>,
}

impl Scan {
    fn new(whole: bool, declared: &[Declared], old: HashMap<String, Tracker>) -> Self {
        let roundings = declared.iter().map(|d| d.rounded).collect();
        Scan { whole, old, roundings, scanned: 0, dirty: Vec::new() }
    }
}

/// The bytes of a variable in which a strip found changes.
fn dirty_ranges(strip: &Strip, chunk: u64, bytes: u64) -> impl Iterator<Item = Range<u64>> {
    strip.changed.runs.iter().map(move |(start, count)| {
        let first = strip.first + *start as u64;
        first * chunk..bytes.min((first + *count as u64) * chunk)
    })
}

/// All strips of all variables, in order.
fn jobs<'a>(
    variables: &[Variable<'a>],
    roundings: &[Option<Rounding>],
    trackers: &'a mut [Tracker],
    chunk: ChunkSize,
) -> Vec<ScanJob<'a>> {
    let bytes = chunk.bytes();
    let chunks = (STRIP / bytes).next_multiple_of(BOUGH);
    let mut jobs = Vec::new();
    let each = variables.iter().zip(roundings).zip(trackers);
    for (at, ((variable, rounding), tracker)) in each.enumerate() {
        let known = tracker.known as usize;
        let mut prints = tracker.prints.chunks_mut(chunks);
        let all = variable.bytes.len();
        for (number, from) in (0..all).step_by(chunks * bytes).enumerate() {
            jobs.push(ScanJob {
                variable: at,
                first: (number * chunks) as u64,
                bytes: variable.bytes.clone(),
                range: from..all.min(from + chunks * bytes),
                prints: prints.next().unwrap_or_default(),
                known: known.saturating_sub(number * chunks),
                rounding: *rounding,
                boughs: Vec::new(),
            });
        }
    }
    jobs
}

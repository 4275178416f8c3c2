//! The part of a checkpoint that the program waits for.
//!
//! All variables are cut into strips, strips are grouped into batches, and the strips of a batch
//! are scanned in parallel: each copies what changed to the front of its own slot of a buffer. A
//! batch in which most changed is handed to the worker as it is; of any other, the changed bytes
//! are copied together, which costs little because they are few. A strip of a variable with a bound is
//! rounded into a buffer of its thread first, and nothing behind it sees the program's own values.

use super::options::Options;
use super::save::{Progress, Save};
use super::staging::{Staged, Staging, Turn};
use super::trees::{Dirty, Trees};
use super::worker::{Begin, Declared, Message, Worker};
use crate::array::{Description, Rounding, Variable};
use crate::error::{Error, Result};
use crate::lineage::{Changed, ChunkSize, Habit, Method, copy_streaming, scan};
use crate::merkle::{BOUGH, Hasher, Print};
use crate::pack::Strip;
use crate::restore::Restored;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much one task scans: small enough to stay in the cache between hashing and copying.
const STRIP: usize = 256 << 10;
/// How much is handed to the worker at a time.
const BATCH: usize = 64 << 20;
/// Variables smaller than this are always watched: there is nothing to gain by not hashing them.
const SMALL: usize = 64 << 10;

/// Refuses variables that make no sense, before anything is touched.
pub(super) fn check(variables: &[Variable]) -> Result<()> {
    let mut names = HashSet::new();
    for variable in variables {
        variable.check()?;
        if variable.description.name.starts_with(crate::format::HIDDEN) {
            return Err(Error::usage(format!(
                "names that begin with treering: are taken, as in {:?}",
                variable.description.name
            ))
            .hint("give the variable another name"));
        }
        if !names.insert(&variable.description.name) {
            return Err(Error::usage(format!(
                "variable {:?} was handed over twice in one checkpoint",
                variable.description.name
            )));
        }
    }
    Ok(())
}

/// What is known of a variable from the checkpoint before.
#[derive(Default)]
struct Tracker {
    bytes: u64,
    prints: Vec<Print>,
    /// How many of the prints are valid.
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
            self.prints.resize(chunk.count(bytes) as usize, 0);
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
struct Job<'a> {
    variable: usize,
    first: u64,
    data: &'a [u8],
    /// Empty when the strip is only copied.
    prints: &'a mut [Print],
    known: usize,
    rounding: Option<Rounding>,
}

impl Job<'_> {
    /// `rounded` is memory for values that are to be rounded.
    fn run(
        &mut self,
        chunk: usize,
        hasher: &Hasher,
        slot: &mut [u8],
        rounded: &mut Vec<u8>,
    ) -> Changed {
        let data = match self.rounding {
            None => self.data,
            Some(rounding) => {
                rounded.clear();
                rounded.extend_from_slice(self.data);
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
        scan(data, chunk, self.known, self.prints, hasher, slot)
    }
}

/// The state of the capturing side.
pub(super) struct Capture {
    chunk: ChunkSize,
    method: Method,
    growth: f64,
    hasher: Arc<Hasher>,
    staging: Staging,
    trackers: HashMap<String, Tracker>,
    /// Whether there is a checkpoint to build on.
    attached: bool,
    last_changed: u64,
    pub(super) trees: Trees,
    trees_only: bool,
    pub(super) blocked: Duration,
}

impl Capture {
    pub(super) fn new(options: &Options, seed: u64, staging: Staging) -> Self {
        Capture {
            chunk: options.chunk,
            method: options.method,
            growth: options.growth,
            hasher: Arc::new(Hasher::new(seed)),
            staging,
            trackers: HashMap::new(),
            attached: false,
            last_changed: 0,
            trees: Trees::new(&options.bounds, &options.trees),
            trees_only: options.trees_only,
            blocked: Duration::ZERO,
        }
    }

    /// The next checkpoint must not build on anything.
    pub(super) fn forget(&mut self) {
        self.attached = false;
        self.trackers.values_mut().for_each(|t| t.known = 0);
    }

    /// Goes on from a restored state.
    pub(super) fn resume(&mut self, seed: u64, restored: Vec<Restored>) {
        self.hasher = Arc::new(Hasher::new(seed));
        self.attached = true;
        self.trees.forget();
        let tracked = restored.into_iter().map(|r| {
            let known = r.prints.len() as u64;
            (r.name, Tracker { bytes: r.bytes, prints: r.prints, known, ..Tracker::default() })
        });
        self.trackers = tracked.collect();
    }

    /// Whether this checkpoint would have to wait for memory.
    pub(super) fn is_overloaded(&self, variables: &[Variable]) -> bool {
        let total: u64 = variables.iter().map(|v| v.bytes.len() as u64).sum();
        let expected = if self.attached { self.last_changed.min(total) } else { total };
        self.staging.is_full_for(expected.min(self.staging.limit()))
    }

    /// Captures arrays, and the trees of those that have bounds.
    pub(super) fn capture(
        &mut self,
        step: u64,
        variables: &[Variable],
        worker: &mut Worker,
    ) -> Result<Save> {
        let start = Instant::now();
        let trees = self.trees.prepare(variables)?;
        let data = if self.trees_only { &[] } else { variables };
        let mut begun = self.begin(step, data, trees, worker)?;
        let mut changed = self.scan_all(data, &mut begun, worker);
        if !self.trees.is_empty() {
            let mut dirty = std::mem::take(&mut begun.dirty);
            dirty.resize(variables.len(), None);
            self.trees.renew(variables, &dirty)?;
            // The trees are lent to the scan, which needs the rest of this.
            let trees = std::mem::replace(&mut self.trees, Trees::new(&[], &Default::default()));
            changed += self.scan_all(&trees.variables(variables), &mut begun, worker);
            self.trees = trees;
        }
        Ok(self.end(begun, changed, start, worker))
    }

    /// Captures variables without making trees of them.
    pub(super) fn capture_as_is(
        &mut self,
        step: u64,
        variables: &[Variable],
        worker: &mut Worker,
    ) -> Result<Save> {
        let start = Instant::now();
        let mut begun = self.begin(step, variables, Vec::new(), worker)?;
        let changed = self.scan_all(variables, &mut begun, worker);
        Ok(self.end(begun, changed, start, worker))
    }

    /// Tells the worker what will come: variables, and then what is only described yet.
    fn begin(
        &mut self,
        step: u64,
        variables: &[Variable],
        later: Vec<Description>,
        worker: &mut Worker,
    ) -> Result<Begun> {
        let declared = |v: &Variable| {
            Ok(Declared { description: v.description.clone(), rounded: v.rounding()? })
        };
        let mut declared: Vec<Declared> = variables.iter().map(declared).collect::<Result<_>>()?;
        declared.extend(later.into_iter().map(|d| Declared { description: d, rounded: None }));
        let turn = self.staging.begin_save();
        let total: u64 = declared.iter().filter_map(|d| d.description.bytes()).sum();
        let whole = !self.attached
            || self.method == Method::Full
            || worker.epoch_is_over(total, self.last_changed.min(total), self.growth);
        let roundings = declared.iter().map(|d| d.rounded).collect();
        let progress = Progress::new();
        worker.begin(Begin {
            step,
            whole,
            hasher: self.hasher.clone(),
            variables: declared,
            progress: progress.clone(),
        });
        // Trackers of variables that are not handed over any more are dropped with the old map.
        let old = std::mem::take(&mut self.trackers);
        Ok(Begun { step, whole, progress, turn, old, roundings, scanned: 0, dirty: Vec::new() })
    }

    fn end(&mut self, begun: Begun, changed: u64, start: Instant, worker: &mut Worker) -> Save {
        self.attached = true;
        self.last_changed = if begun.whole { 0 } else { changed };
        let blocked = start.elapsed();
        self.blocked += blocked;
        drop(begun.turn);
        worker.end(changed, blocked);
        Save::new(begun.step, begun.progress, changed, blocked)
    }

    /// Scans variables, batch by batch; how many bytes had changed.
    fn scan_all(&mut self, variables: &[Variable], begun: &mut Begun, worker: &Worker) -> u64 {
        let mut trackers: Vec<Tracker> = variables
            .iter()
            .map(|variable| {
                let mut tracker = begun.old.remove(&variable.description.name).unwrap_or_default();
                let bytes = variable.bytes.len() as u64;
                tracker.prepare(bytes, self.chunk, begun.whole, self.method);
                tracker
            })
            .collect();
        let mut changed = vec![0u64; variables.len()];
        let first = begun.scanned;
        begun.scanned += variables.len();
        if !self.trees.is_empty() {
            let known = |tracker: &Tracker| (tracker.known > 0).then(Vec::new);
            begun.dirty = trackers.iter().map(known).collect();
        }
        let roundings = &begun.roundings[first..];
        let jobs = jobs(variables, roundings, &mut trackers, self.chunk);
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let mut batch = Vec::new();
            let mut room = BATCH.min(self.staging.limit() as usize);
            while let Some(job) = jobs.next_if(|job| batch.is_empty() || job.data.len() <= room) {
                room = room.saturating_sub(job.data.len());
                batch.push(job);
            }
            let (mut strips, staged) = self.scan_batch(batch);
            for strip in &mut strips {
                changed[strip.variable] += strip.changed.bytes as u64;
                if let Some(Some(dirty)) = begun.dirty.get_mut(strip.variable) {
                    let bytes = variables[strip.variable].bytes.len() as u64;
                    dirty.extend(dirty_ranges(strip, self.chunk.bytes() as u64, bytes));
                }
                strip.variable += first;
            }
            if !strips.is_empty() {
                worker.send(Message::Batch { strips, staged });
            }
        }
        drop(jobs);
        for (tracker, changed) in trackers.iter_mut().zip(&changed) {
            tracker.learn(*changed, self.chunk);
        }
        let names = variables.iter().map(|v| v.description.name.clone());
        self.trackers.extend(names.zip(trackers));
        changed.iter().sum()
    }

    fn scan_batch(&self, mut batch: Vec<Job>) -> (Vec<Strip>, Staged) {
        // Slots begin at cache lines, so that they can be written past the cache.
        let slot_len = |job: &Job| job.data.len().next_multiple_of(64);
        let len: usize = batch.iter().map(slot_len).sum();
        self.staging.reserve(len as u64);
        let mut buffer = self.staging.buffer(len);
        let mut slots = Vec::with_capacity(batch.len());
        let mut rest = &mut buffer[..];
        for job in &batch {
            let (slot, tail) = rest.split_at_mut(slot_len(job));
            slots.push(slot);
            rest = tail;
        }
        let chunk = self.chunk.bytes();
        let one = |rounded: &mut Vec<u8>, (job, slot): (&mut Job, &mut [u8])| {
            job.run(chunk, &self.hasher, slot, rounded)
        };
        let found: Vec<Changed> = match len > STRIP {
            true => batch.par_iter_mut().zip(slots).map_init(Vec::new, one).collect(),
            false => {
                let mut rounded = Vec::new();
                batch.iter_mut().zip(slots).map(|job| one(&mut rounded, job)).collect()
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

/// A checkpoint that is being captured.
struct Begun {
    step: u64,
    whole: bool,
    progress: Progress,
    turn: Turn,
    /// What is known of variables that were not scanned yet.
    old: HashMap<String, Tracker>,
    /// How each variable is rounded.
    roundings: Vec<Option<Rounding>>,
    /// How many variables were scanned.
    scanned: usize,
    /// What changed in each, if somebody wants to know.
    dirty: Vec<Dirty>,
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
) -> Vec<Job<'a>> {
    let bytes = chunk.bytes();
    let chunks = (STRIP / bytes).next_multiple_of(BOUGH);
    let mut jobs = Vec::new();
    let each = variables.iter().zip(roundings).zip(trackers);
    for (at, ((variable, rounding), tracker)) in each.enumerate() {
        let known = tracker.known as usize;
        let mut prints = tracker.prints.chunks_mut(chunks);
        for (number, data) in variable.bytes.chunks(chunks * bytes).enumerate() {
            jobs.push(Job {
                variable: at,
                first: (number * chunks) as u64,
                data,
                prints: prints.next().unwrap_or_default(),
                known: known.saturating_sub(number * chunks),
                rounding: *rounding,
            });
        }
    }
    jobs
}

//! Checkpoints made of files that a program wrote itself.
//!
//! Every file is taken apart into fields and a skeleton. The fields of all ranks of a group go into
//! one pack, those that are like each other (same path, name, type and class) side by side, so that
//! they are encoded together, unless a sample says otherwise ([`Merge`]). Nothing is in memory but a
//! few batches: one thread reads ahead while the others hash and encode. As in a run, the prints of
//! all chunks tell what changed since the step before, and the record tells what was stored already
//! elsewhere. Another process that goes on with the run reads the newest checkpoint once and has the
//! prints again; the record starts anew.

mod feed;
mod files;
mod inputs;
mod merge;
mod names;
mod packing;
mod watch;

pub use files::{ChosenFiles, is_inside, rank_files};
pub use merge::Merge;
pub use names::FileRules;
pub use watch::{WatchEvent, WatchSettings, WatchStop, Watcher};

use self::feed::Prints;
use self::inputs::{FileVariable, Limit};
use self::packing::Packing;
use crate::array::{Bound, GroupId, Labels, Rank, Sequence, Step};
use crate::codec::Encoding;
use crate::compact::{AutoCompact, UpkeepNotes};
use crate::error::{Error, Result};
use crate::format::{Manifest, Names, Origin, WriterId};
use crate::log::Log;
use crate::merkle::Hasher;
use crate::pack::{Before, Keeper, Learnt, remembers_no_longer};
use crate::restore::{Checkpoint, Pack, Previous, RestoredVariable};
use crate::run::Options;
use crate::save::{
    self, Decision, Epoch, GroupWriter, LogWriter, SealedPack, Tiers, Vote, WriterSettings, decide,
    draft, restore_cost,
};
use crate::source::{self, Anatomy, RawLayout};
use crate::store::{Lock, Store};
use rayon::prelude::*;
use regex::Regex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Memory of the record of stored chunks, for all groups.
const RECORD: u64 = 256 << 20;

/// A file of a checkpoint. [`rank_files`] lists files, and has an example.
#[derive(Clone, Debug)]
pub struct RankFile {
    /// The rank that wrote it.
    pub rank: Rank,
    /// Path of the file.
    pub path: PathBuf,
    /// Name in the checkpoint: a path below a folder.
    pub name: String,
    /// The name without the rank, the same for similar files of all ranks. Variables are named after it, with `{step}` in
    /// place of numbers of two or more digits that are the step.
    pub like: String,
}

/// Settings of an [`Ingest`].
///
/// ```
/// use treering::{Bound, Ingest, IngestSettings, Options};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let settings = IngestSettings {
///     error_bounds: vec![("pressure*".to_string(), Bound::abs(0.01))], // exports hold rounded values
///     ..IngestSettings::default()
/// };
/// let ingest = Ingest::open(Options::directory(&store, "sim"), settings)?;
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct IngestSettings {
    /// Number of ranks that share a pack. Default: 32.
    pub ranks_per_pack: u32,
    /// Layout of raw files. Default: `None`, files of unknown formats are kept as bytes.
    pub raw: Option<RawLayout>,
    /// Order in which the variables of many ranks are packed. Default: [`Merge::Auto`].
    pub merge: Merge,
    /// Interleave ranks in blocks of this size, rounded up to whole groups of chunks. Default: `None`, one rank after
    /// another.
    pub block: Option<u64>,
    /// Replacements in names ([`Regex::replace_all`]): variables whose names and types are then the same are similar, and
    /// encoded together.
    pub like: Vec<(Regex, String)>,
    /// Patterns (`*` and `?`) and bounds, absolute or relative: variables whose names match, as a whole or without the name
    /// of the file, are rounded within the bound; the first that matches counts. An exported file then holds the rounded
    /// values. A pattern that matches no variable is an error.
    pub error_bounds: Vec<(String, Bound)>,
}

impl Default for IngestSettings {
    fn default() -> Self {
        IngestSettings {
            ranks_per_pack: 32,
            raw: None,
            merge: Merge::Auto,
            block: None,
            like: Vec::new(),
            error_bounds: Vec::new(),
        }
    }
}

/// A run whose checkpoints are made of files that a program wrote.
///
/// ```
/// use treering::{FileRules, Ingest, IngestSettings, Library, Options, export, rank_files};
/// # let folder = tempfile::tempdir().unwrap();
/// # let (out, store, back) = (folder.path().join("out"), folder.path().join("store"), folder.path().join("back"));
/// std::fs::create_dir(&out)?;
/// std::fs::write(out.join("state_0.raw"), [1u8; 4096])?;
/// std::fs::write(out.join("state_1.raw"), [2u8; 4096])?;
/// let files = rank_files(&[out.clone()], &FileRules::default())?.files; // the ranks are in the names: 0 and 1
/// let mut ingest = Ingest::open(Options::directory(&store, "sim"), IngestSettings::default())?;
/// let manifest = ingest.take(100, &files, &|_packed, _of| {})?;
/// assert_eq!(manifest.ranks, 2);
/// let checkpoint = Library::open(&store)?.checkpoint("sim", Some(100))?;
/// export(&checkpoint, &[], &back)?;
/// assert_eq!(std::fs::read(back.join("state_1.raw"))?, [2u8; 4096]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ingest {
    writer: WriterSettings,
    settings: IngestSettings,
    within: Vec<Limit>,
    labels: Labels,
    store: Arc<dyn Store>,
    log: LogWriter,
    id: WriterId,
    hasher: Hasher,
    /// The writers of the groups of the open epoch, what else is known of each, and all ranks.
    writers: Vec<GroupWriter>,
    groups: Vec<GroupState>,
    ranks: Vec<Rank>,
    epoch: Epoch,
    /// The first checkpoint of the open epoch.
    origin: Option<Origin>,
    /// The newest checkpoint of the run, and the same for differences to it.
    newest: Option<Manifest>,
    previous: Option<Previous>,
    /// Whether it was made by an earlier process and is still to be looked at.
    inherited: bool,
    /// The newest number of the log, and the bytes that had changed then.
    sequence: Sequence,
    changed: u64,
    compact: AutoCompact,
    compaction: UpkeepNotes,
    notes: Vec<String>,
    _lock: Option<Lock>,
}

struct GroupState {
    /// The prints of the chunks of every variable, as they were at the step before.
    prints: Prints,
    merge: Merge,
    /// Encodings that an earlier process has chosen for variables, the newest pack first.
    learnt: Vec<Learnt>,
}

impl Ingest {
    /// Opens the run for writing, as [`Run::open`](crate::Run::open) does. Options that only matter to programs are
    /// an error.
    pub fn open(options: Options, settings: IngestSettings) -> Result<Ingest> {
        if settings.ranks_per_pack == 0 {
            return Err(Error::usage("a pack needs one rank at least"));
        }
        if settings.block == Some(0) {
            return Err(Error::usage("a block needs one byte at least"));
        }
        // First: some of them are only complete with others, about which the check would ask.
        refuse_unused(&options)?;
        options.check()?;
        let within = settings.error_bounds.iter().map(Limit::new).collect::<Result<_>>()?;
        let writer = options.writer;
        let opened = save::open(&writer.tiers, &writer.run, None)?;
        let newest = Log::read(opened.store.clone(), &writer.run)?.manifests().0.pop();
        let compaction = UpkeepNotes::default();
        Ok(Ingest {
            log: opened.log(&writer.tiers.last, true),
            id: opened.opening.writer,
            hasher: Hasher::new(opened.seed),
            settings,
            within,
            labels: options.labels,
            writers: Vec::new(),
            groups: Vec::new(),
            ranks: Vec::new(),
            epoch: Epoch::new(writer.growth),
            origin: None,
            inherited: newest.is_some(),
            newest,
            previous: None,
            sequence: opened.newest,
            changed: 0,
            compact: AutoCompact::new(
                writer.tiers.last.clone(),
                &writer.run,
                writer.compaction,
                opened.files,
                compaction.clone(),
            ),
            compaction,
            writer,
            store: opened.store,
            notes: opened.notes,
            _lock: opened.lock,
        })
    }

    /// The writer that opened the run.
    pub(crate) fn writer(&self) -> WriterId {
        self.id
    }

    /// Notes for people about the opening of the run.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Compactions of small files that failed; see [`Options::compact`]. No checkpoint is affected.
    pub fn compaction_notes(&self) -> Vec<String> {
        self.compaction.get()
    }

    /// Ingests a set of files as the checkpoint of a step. The function `told` is called with the number of bytes
    /// that were packed so far, and their total.
    ///
    /// Returns when the checkpoint is durable. After an error there is no checkpoint of these files, and the next call
    /// works as before. Files must not change meanwhile; one that does is an error.
    pub fn take(
        &mut self,
        step: u64,
        files: &[RankFile],
        told: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Manifest> {
        self.take_if(step, files, told, &|| Ok(()))
    }

    /// Like [`take`](Self::take), but calls `confirm` after all input is read and before the checkpoint is
    /// committed; an error from it aborts.
    pub fn take_if(
        &mut self,
        step: u64,
        files: &[RankFile],
        told: &(dyn Fn(u64, u64) + Sync),
        confirm: &dyn Fn() -> Result<()>,
    ) -> Result<Manifest> {
        // Files of successive steps that have the step in their names are the same files.
        let alike = |file: &RankFile| {
            let like = names::without_step(&file.like, step);
            RankFile { like, ..file.clone() }
        };
        let files: &[RankFile] = &files.iter().map(alike).collect::<Vec<_>>();
        inputs::check(files)?;
        self.log.check()?;
        let raw = self.settings.raw.as_ref();
        let mut anatomies: Vec<Anatomy> = files
            .par_iter()
            .map(|file| match self.settings.merge {
                Merge::Files => source::take_whole(&file.path),
                _ => source::take_apart(&file.path, raw),
            })
            .collect::<Result<_>>()?;
        let names = inputs::names(files.iter().zip(&anatomies));
        inputs::round(files, &mut anatomies, &names, &self.within)?;
        let inputs = inputs::gather(files, &anatomies, names, &self.settings.like)?;
        let ranks: Vec<Rank> = inputs.keys().copied().collect();
        let total = inputs.values().flatten().map(FileVariable::len).fold(0, u64::saturating_add);
        let decision = self.decide(Step(step), &ranks, total);
        // A number is used once, and so is the name of a pack.
        self.sequence = decision.sequence;
        let told = |done: u64| told(done, total);
        let sizes = anatomies.iter().map(|anatomy| anatomy.skeleton.size);
        let source_bytes = sizes.fold(0, u64::saturating_add);
        let outcome = self.save((decision, source_bytes), &inputs, &told, &|| {
            anatomies.iter().try_for_each(Anatomy::unchanged)?;
            confirm()
        });
        match &outcome {
            Ok(manifest) => {
                self.compact.committed(manifest);
                self.compact.run_if_due();
            }
            // The next checkpoint builds on nothing that may not be there.
            Err(_) => self.epoch.failed(decision.sequence),
        }
        outcome
    }

    /// Decides on the next checkpoint, and makes the groups ready for it.
    fn decide(&mut self, step: Step, ranks: &[Rank], state: u64) -> Decision {
        if std::mem::take(&mut self.inherited) {
            self.go_on(ranks);
        }
        let (changed, whole) = (self.changed.min(state), ranks != self.ranks);
        let vote = Vote { state, changed, whole, shared: true, ..Vote::default() };
        let decision = decide(&self.epoch, &[vote], self.sequence.next(), step);
        if decision.whole {
            self.begin_epoch(ranks);
        }
        self.epoch.begin(decision, state);
        decision
    }

    fn save(
        &mut self,
        (decision, source_bytes): (Decision, u64),
        inputs: &BTreeMap<Rank, Vec<FileVariable>>,
        told: &(dyn Fn(u64) + Sync),
        confirm: &dyn Fn() -> Result<()>,
    ) -> Result<Manifest> {
        let mut groups: Vec<Vec<&FileVariable>> = Vec::new();
        let per_pack = self.settings.ranks_per_pack as usize;
        for (number, ranks) in self.ranks.chunks(per_pack).enumerate() {
            let mut members: Vec<&FileVariable> =
                ranks.iter().filter_map(|rank| inputs.get(rank)).flatten().collect();
            let state = &mut self.groups[number];
            if state.merge == Merge::Auto {
                let packing = Packing {
                    settings: &self.writer,
                    hasher: &self.hasher,
                    writer: self.id,
                    attempt: decision.sequence.0,
                    merge: Merge::Meaning,
                    block: self.settings.block,
                    before: None,
                };
                state.merge = match self.writer.encoding {
                    Encoding::Best(_) => merge::choose(&members, &packing)?,
                    _ => Merge::Meaning,
                };
            }
            merge::sort(&mut members, state.merge);
            groups.push(members);
        }
        let (mut done, mut sealed) = (0, Vec::new());
        let previous = self.previous.take();
        let before = previous.as_ref().map(|previous| previous as &dyn Before);
        for (number, group) in groups.iter().enumerate() {
            sealed.push(self.pack(number, group, before, &mut |bytes| {
                done += bytes;
                told(done);
            })?);
        }
        confirm()?;
        let manifest = Manifest { source_bytes, ..self.manifest(decision, &sealed) };
        self.log.commit(&manifest)?;
        self.keep(&manifest, sealed, previous);
        Ok(manifest)
    }

    /// Goes on with the epoch of the newest checkpoint if it holds the same ranks in the same packs,
    /// and if all of it can be read; else a new one begins, which needs nothing of it.
    fn go_on(&mut self, ranks: &[Rank]) {
        let Some(newest) = self.newest.clone() else { return };
        let per_pack = self.settings.ranks_per_pack as usize;
        if newest.groups.count() != ranks.len().div_ceil(per_pack) as u64 {
            return;
        }
        let Ok(checkpoint) = Checkpoint::load(self.store.clone(), newest.clone()) else {
            return;
        };
        let place = |rank: Rank| ranks.binary_search(&rank).ok();
        let chunk = self.writer.chunk;
        let fits = checkpoint.entries().iter().all(|entry| {
            place(entry.rank).is_some_and(|at| at / per_pack == entry.group.index())
                && entry.chunk == chunk
        });
        if !fits {
            return;
        }
        self.begin_epoch(ranks);
        for (state, packs) in self.groups.iter_mut().zip(&checkpoint.packs) {
            let known = [packs.last(), packs.first()].into_iter().flatten();
            state.learnt = known.map(|pack| Learnt::new(&pack.footer)).collect();
        }
        // The first pack of an epoch tells nothing of differences; the one before it does.
        if newest.epoch.sequence == newest.sequence
            && let Some(older) = self.ancestor(&newest)
        {
            for (state, packs) in self.groups.iter_mut().zip(&older.packs) {
                state.learnt.extend(packs.last().map(|pack| Learnt::new(&pack.footer)));
            }
        }
        let Ok(restored) = checkpoint.retrace_all() else { return };
        let mut trees: Vec<Vec<_>> = self.groups.iter().map(|_| Vec::new()).collect();
        for (entry, RestoredVariable { prints, tree, .. }) in
            checkpoint.entries().iter().zip(restored)
        {
            let key = entry.key();
            trees[entry.group.index()].push((key.clone(), tree));
            self.groups[entry.group.index()].prints.insert(key, prints);
        }
        for ((writer, packs), trees) in self.writers.iter_mut().zip(checkpoint.groups()).zip(trees)
        {
            writer.resume(packs.clone(), trees);
        }
        let cost = |pack: &Pack| restore_cost(&pack.footer);
        let first = checkpoint.packs.iter().filter_map(|packs| packs.first().map(cost));
        let others = checkpoint.packs.iter().flat_map(|packs| packs.iter().skip(1)).map(cost);
        let packs = checkpoint.packs.iter().map(Vec::len).max().unwrap_or(0);
        self.epoch.resume(first.sum(), others.sum(), packs as u64);
        self.hasher = Hasher::new(newest.seed);
        self.origin = Some(newest.epoch.clone());
        self.previous = Some(Previous::made(self.store.clone(), newest));
    }

    /// The checkpoint before one, if it is of this run and can be read.
    fn ancestor(&self, manifest: &Manifest) -> Option<Checkpoint> {
        let parent = manifest.parent.as_ref().filter(|parent| parent.run.is_none())?;
        let log = Log::read(self.store.clone(), &self.writer.run).ok()?;
        let older = log.manifest(parent.sequence).ok()??;
        Checkpoint::load(self.store.clone(), older).ok()
    }

    /// The learnt encodings of variables last for some epochs, if these are of the same ranks.
    fn begin_epoch(&mut self, ranks: &[Rank]) {
        let groups = ranks.len().div_ceil(self.settings.ranks_per_pack as usize);
        let record = self.writer.record.min(RECORD) / groups.max(1) as u64;
        let known =
            std::mem::take(&mut self.writers).into_iter().zip(std::mem::take(&mut self.groups));
        let mut known: Vec<_> =
            known.map(|(writer, state)| (writer.keeper.chooser, state.learnt)).collect();
        if ranks != self.ranks || self.newest.as_ref().is_some_and(remembers_no_longer) {
            known.clear();
        }
        let mut known = known.into_iter();
        for number in 0..groups as u32 {
            let mut keeper = Keeper::new(record, self.writer.encoding);
            let mut learnt = Vec::new();
            if let Some((chooser, known)) = known.next() {
                (keeper.chooser, learnt) = (chooser, known);
            }
            self.writers.push(GroupWriter::new(GroupId(number), keeper));
            let merge = self.settings.merge;
            self.groups.push(GroupState { prints: Prints::new(), merge, learnt });
        }
        (self.ranks, self.origin, self.previous) = (ranks.to_vec(), None, None);
        self.epoch.end();
    }

    /// The next checkpoint builds on the committed one.
    fn keep(&mut self, manifest: &Manifest, sealed: Vec<SealedPack>, previous: Option<Previous>) {
        // This process has just made them.
        let groups = manifest.groups.here().unwrap_or_default();
        for (writer, packs) in self.writers.iter_mut().zip(groups) {
            writer.keep(packs.clone());
        }
        let stats = &manifest.stats;
        self.changed = stats.new_bytes + stats.duplicate_bytes;
        self.epoch.captured(manifest.sequence, self.changed);
        let cost = sealed.iter().map(|sealed| restore_cost(&sealed.footer)).sum();
        self.epoch.committed(manifest.sequence, cost);
        let packs = sealed.into_iter().map(SealedPack::into_pack).collect();
        let begun = || Previous::begun(self.store.clone(), manifest.clone());
        self.previous.insert(previous.unwrap_or_else(begun)).advance(packs);
        self.origin = Some(manifest.epoch.clone());
        self.newest = Some(manifest.clone());
    }

    /// Writes the pack of a group.
    fn pack(
        &mut self,
        number: usize,
        inputs: &[&FileVariable],
        before: Option<&dyn Before>,
        told: &mut (dyn FnMut(u64) + Send),
    ) -> Result<SealedPack> {
        let (writer, state) = (&mut self.writers[number], &mut self.groups[number]);
        let packing = Packing {
            settings: &self.writer,
            hasher: &self.hasher,
            writer: self.id,
            attempt: self.sequence.0,
            merge: state.merge,
            block: self.settings.block,
            before,
        };
        let name = writer.name(self.id, self.sequence.0);
        let mut put = self.store.put(&Names::new(&self.writer.run).pack(name))?;
        let mut prints = std::mem::take(&mut state.prints);
        let learnt = (&mut prints, std::mem::take(&mut state.learnt));
        let sealed = packing.write(writer, inputs, learnt, put.as_mut(), told)?;
        state.prints = prints;
        put.finish()?;
        Ok(sealed)
    }

    fn manifest(&self, decision: Decision, sealed: &[SealedPack]) -> Manifest {
        let ranks = self.ranks.last().map_or(1, |rank| rank.0 + 1);
        let sequence = decision.sequence;
        let parent = self.newest.as_ref();
        Manifest {
            sequence,
            writer: self.id,
            step: decision.step,
            parent: parent.map(|m| Origin { run: None, sequence: m.sequence }),
            epoch: self.origin.clone().unwrap_or(Origin { run: None, sequence }),
            seed: self.hasher.seed(),
            labels: self.labels.clone(),
            ..draft(&self.writer.run, &self.writers, sealed, ranks)
        }
    }
}

/// Refuses options that ingest would ignore. Every field is named here, so that a new option does not compile until
/// somebody has decided about it.
fn refuse_unused(options: &Options) -> Result<()> {
    let plain = Options::in_store(options.writer.tiers.last.clone(), &options.writer.run);
    let Options {
        writer,
        keep,
        progress,
        save_progress,
        staging,
        overload,
        bounds,
        trees,
        trees_only,
        reference,
        ranks,
        patience,
        ranks_per_pack,
        shared_every,
        redundancy,
        domain,
        aggregator,
        aggregator_memory,
        replicas,
        replica_settings,
        spares,
        every,
        deadline,
        signals,
        labels: _,
    } = options;
    let WriterSettings {
        run: _,
        tiers: Tiers { near, last: _ },
        chunk: _,
        method: _,
        encoding: _,
        record: _,
        growth: _,
        compaction: _,
        together,
    } = writer;
    let unused = [
        (!near.is_empty(), "a node's store (Options::node)"),
        (aggregator.is_some(), "Options::aggregated"),
        (ranks.is_some(), "Options::ranks; the ranks are those of the files"),
        (*patience != plain.patience, "Options::patience"),
        (
            *ranks_per_pack != plain.ranks_per_pack,
            "Options::ranks_per_pack; give IngestSettings::ranks_per_pack",
        ),
        (*together != plain.writer.together, "Options::pack_together"),
        (*shared_every != plain.shared_every, "Options::shared_every"),
        (*redundancy != plain.redundancy, "Options::redundancy"),
        (domain.is_some(), "Options::domain"),
        (*aggregator_memory != plain.aggregator_memory, "Options::aggregator_memory"),
        (*replicas != plain.replicas, "Options::replicas"),
        (*replica_settings != plain.replica_settings, "Options::replica_settings"),
        (*spares != plain.spares, "Options::spares"),
        (*staging != plain.staging, "Options::staging"),
        (*overload != plain.overload, "Options::overload"),
        (!bounds.is_empty(), "Options::bound"),
        (*trees != plain.trees, "Options::tree"),
        (*trees_only, "Options::trees_only"),
        (reference.is_some(), "Options::reference"),
        (keep.is_some(), "Options::keep, Options::limit and Options::store_limit"),
        (every.is_some(), "Options::every"),
        (deadline.is_some(), "Options::deadline"),
        (*signals, "Options::on_signals"),
        (progress.is_some(), "Options::on_progress"),
        (save_progress.is_some(), "Options::on_save_progress"),
    ];
    match unused.iter().find(|(given, _)| *given) {
        Some((_, what)) => Err(Error::usage(format!("ingest cannot use {what}"))
            .hint("leave it out: files are ingested as they are, and go straight to the store")),
        None => Ok(()),
    }
}

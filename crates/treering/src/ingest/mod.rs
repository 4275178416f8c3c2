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
mod inputs;
mod merge;

pub use merge::Merge;

use self::feed::{Batch, Prints, read};
use self::inputs::{Input, Limit};
use crate::run::commit::LogWriter;

use crate::array::Bound;
use crate::codec::Encoding;
use crate::error::{Error, Result};
use crate::format::{
    Footer, Group, Kind, Manifest, Names, Origin, PackName, Seal, Stats, VariableEntry, header,
};
use crate::lineage::MAX_PACKS;
use crate::log::Log;
use crate::merkle::{BOUGH, Hasher, Tree};
use crate::pack::{Before, Keeper, Learnt, Packed, Packer, Plan, firsts, remembers_no_longer};
use crate::restore::{Checkpoint, Pack, Previous, Restored};
use crate::run::Options;
use crate::run::open;
use crate::source::{self, Anatomy, RawLayout};
use crate::store::Lock;
use rayon::prelude::*;
use regex::Regex;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

/// How many batches wait to be packed.
const AHEAD: usize = 1;
/// How much memory the record of stored chunks may take for all groups.
const RECORD: u64 = 256 << 20;

/// A file of a checkpoint.
#[derive(Clone, Debug)]
pub struct RankFile {
    /// The rank that wrote it.
    pub rank: u32,
    /// Where it is.
    pub path: PathBuf,
    /// What it is called in the checkpoint: a path below a folder.
    pub name: String,
    /// The same without what tells its rank, so that like files of all ranks are called the same.
    pub like: String,
}

/// How files are taken in.
#[derive(Clone, Debug)]
pub struct IngestSettings {
    /// How many ranks share a pack.
    pub ranks_per_pack: u32,
    /// What raw files hold; without it, what is not understood is kept as bytes.
    pub raw: Option<RawLayout>,
    /// How variables of many ranks are put together.
    pub merge: Merge,
    /// How many bytes a rank gives before the next one has its turn, rounded up to whole boughs of
    /// chunks; one rank after another if there are none.
    pub block: Option<u64>,
    /// Variables are like each other when their names agree after these replacements, as
    /// [`Regex::replace_all`] makes them, and their types do.
    pub like: Vec<(Regex, String)>,
    /// Variables whose whole name matches are rounded within the bound, absolute or relative; the
    /// first that matches counts. A file given back then holds the rounded values.
    pub within: Vec<(Regex, Bound)>,
}

impl Default for IngestSettings {
    fn default() -> Self {
        IngestSettings {
            ranks_per_pack: 32,
            raw: None,
            merge: Merge::Auto,
            block: None,
            like: Vec::new(),
            within: Vec::new(),
        }
    }
}

/// Takes files in as the checkpoints of a run.
pub struct Ingest {
    options: Options,
    settings: IngestSettings,
    within: Vec<Limit>,
    log: LogWriter,
    hasher: Hasher,
    /// The groups of the open epoch, and its ranks.
    groups: Vec<GroupState>,
    ranks: Vec<u32>,
    epoch: Option<Origin>,
    /// The newest checkpoint of the run.
    newest: Option<Manifest>,
    /// Whether it was made by an earlier process and is still to be looked at.
    inherited: bool,
    attempt: u64,
    /// What restoring the first checkpoint of the epoch costs, and what the others add.
    whole: u64,
    deltas: u64,
    _lock: Lock,
}

struct GroupState {
    keeper: Keeper,
    /// The prints of the chunks of every variable, as they were at the step before.
    prints: Prints,
    packs: Option<Group>,
    merge: Merge,
    /// How an earlier process encoded variables, the newest pack first.
    learnt: Vec<Learnt>,
}

impl Ingest {
    /// Takes the run, as [`super::Run::open`] does.
    pub fn open(options: Options, settings: IngestSettings) -> Result<Ingest> {
        if settings.ranks_per_pack == 0 {
            return Err(Error::usage("a pack needs one rank at least"));
        }
        if settings.block == Some(0) {
            return Err(Error::usage("a block needs one byte at least"));
        }
        let within = settings.within.iter().map(Limit::new).collect::<Result<_>>()?;
        let opened = open::open(&options)?;
        let log = Log::read(opened.store.clone(), &options.run)?;
        let newest = log.manifests().0.pop();
        Ok(Ingest {
            log: LogWriter::new(&options, &opened),
            hasher: Hasher::new(opened.seed),
            options,
            settings,
            within,
            groups: Vec::new(),
            ranks: Vec::new(),
            epoch: None,
            inherited: newest.is_some(),
            newest,
            attempt: 0,
            whole: 0,
            deltas: 0,
            _lock: opened.lock,
        })
    }

    /// Takes in a set of files as the checkpoint of a step; `told` hears of bytes that were packed.
    pub fn take(
        &mut self,
        step: u64,
        files: &[RankFile],
        told: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Manifest> {
        self.take_if(step, files, told, &|| Ok(()))
    }

    /// The same, unless `still` objects when everything has been read and nothing is committed.
    pub fn take_if(
        &mut self,
        step: u64,
        files: &[RankFile],
        told: &(dyn Fn(u64, u64) + Sync),
        still: &dyn Fn() -> Result<()>,
    ) -> Result<Manifest> {
        let outcome = self.save(step, files, told, still);
        if outcome.is_err() {
            // The next checkpoint builds on nothing that may not be there.
            self.epoch = None;
        }
        outcome
    }

    fn save(
        &mut self,
        step: u64,
        files: &[RankFile],
        told: &(dyn Fn(u64, u64) + Sync),
        still: &dyn Fn() -> Result<()>,
    ) -> Result<Manifest> {
        inputs::check(files)?;
        // What a save that failed left behind keeps its name.
        self.attempt += 1;
        let raw = self.settings.raw.as_ref();
        let mut anatomies: Vec<Anatomy> = files
            .par_iter()
            .map(|file| match self.settings.merge {
                Merge::Files => source::take_whole(&file.path),
                _ => source::take_apart(&file.path, raw),
            })
            .collect::<Result<_>>()?;
        let names = inputs::names(files, &anatomies);
        inputs::round(&mut anatomies, &names, &self.within)?;
        let inputs = inputs::gather(files, &anatomies, names, &self.settings.like)?;
        let ranks: Vec<u32> = inputs.keys().copied().collect();
        if std::mem::take(&mut self.inherited) {
            self.go_on(&ranks);
        }
        if self.epoch.is_none() || ranks != self.ranks || self.epoch_is_over() {
            self.begin_epoch(&ranks);
        }
        let per_pack = self.settings.ranks_per_pack as usize;
        let mut groups: Vec<Vec<&Input>> = Vec::new();
        for (number, ranks) in ranks.chunks(per_pack).enumerate() {
            let mut all: Vec<&Input> = ranks.iter().flat_map(|rank| &inputs[rank]).collect();
            let state = &mut self.groups[number];
            if state.merge == Merge::Auto {
                state.merge = match self.options.encoding {
                    Encoding::Best(_) => merge::choose(&all)?,
                    _ => Merge::Meaning,
                };
            }
            merge::sort(&mut all, state.merge);
            groups.push(all);
        }
        let total = groups.iter().flatten().map(|input| input.len()).sum();
        let mut done = 0;
        let (mut stats, mut cost, mut packs) = (Stats::default(), 0, Vec::new());
        let previous = self.newest.clone().filter(|_| self.epoch.is_some());
        let previous = previous.map(|manifest| Previous::new(self.log.store.clone(), manifest));
        let before = previous.as_ref().map(|previous| previous as &dyn Before);
        for (number, group) in groups.iter().enumerate() {
            let (footer, added, seal) = self.pack(number, group, before, &mut |bytes| {
                done += bytes;
                told(done, total);
            })?;
            stats.same_bytes += added.same_bytes;
            stats.moved_bytes += added.moved_bytes;
            stats.new_bytes += added.new_bytes;
            cost += footer.restore_cost();
            let state = &self.groups[number];
            let mut group = state.packs.clone().unwrap_or(Group { packs: Vec::new(), seal });
            group.push(&self.log.run, footer.name, seal);
            packs.push(group);
        }
        anatomies.iter().try_for_each(Anatomy::unchanged)?;
        still()?;
        let manifest = self.manifest(step, &groups, packs, stats);
        let manifest = self.log.commit(manifest)?;
        self.keep(&manifest, cost);
        Ok(manifest)
    }

    /// Goes on with the epoch of the newest checkpoint if it holds the same ranks in the same packs,
    /// and if all of it can be read; else a new one begins, which needs nothing of it.
    fn go_on(&mut self, ranks: &[u32]) {
        let Some(newest) = self.newest.clone() else { return };
        let place = |rank: u32| ranks.binary_search(&rank).ok();
        let per_pack = self.settings.ranks_per_pack as usize;
        let fits = |entry: &VariableEntry| {
            place(entry.rank).is_some_and(|at| at / per_pack == entry.group as usize)
                && entry.chunk == self.options.chunk
        };
        let groups = ranks.len().div_ceil(per_pack);
        if newest.groups.len() != groups || !newest.variables.iter().all(fits) {
            return;
        }
        let Ok(checkpoint) = Checkpoint::load(self.log.store.clone(), newest.clone()) else {
            return;
        };
        self.begin_epoch(ranks);
        let groups = newest.groups.iter().zip(&checkpoint.packs);
        for (state, (group, packs)) in self.groups.iter_mut().zip(groups) {
            state.packs = Some(group.clone());
            let told = [packs.last(), packs.first()].into_iter().flatten();
            state.learnt = told.map(|pack| Learnt::new(&pack.footer)).collect();
        }
        // The first pack of an epoch tells nothing of differences; the one before it does.
        if newest.epoch.sequence == newest.sequence
            && let Some(older) = self.ancestor(&newest)
        {
            for (state, packs) in self.groups.iter_mut().zip(&older.packs) {
                state.learnt.extend(packs.last().map(|pack| Learnt::new(&pack.footer)));
            }
        }
        let cost = |pack: &Pack| pack.footer.restore_cost();
        let first = checkpoint.packs.iter().filter_map(|packs| packs.first().map(cost));
        self.whole = first.sum();
        self.deltas =
            checkpoint.packs.iter().flat_map(|packs| packs.iter().skip(1)).map(cost).sum();
        if self.epoch_is_over() {
            return;
        }
        let Ok(restored) = checkpoint.retrace_all() else { return };
        self.hasher = Hasher::new(newest.seed);
        for (entry, Restored { prints, tree, .. }) in newest.variables.iter().zip(restored) {
            let state = &mut self.groups[entry.group as usize];
            let key = (entry.rank, entry.description.name.clone());
            state.keeper.trees.insert(key.clone(), tree);
            state.prints.insert(key, prints);
        }
        self.epoch = Some(newest.epoch);
    }

    /// The checkpoint before one, if it is of this run and can be read.
    fn ancestor(&self, manifest: &Manifest) -> Option<Checkpoint> {
        let parent = manifest.parent.as_ref().filter(|parent| parent.run.is_none())?;
        let log = Log::read(self.log.store.clone(), &self.log.run).ok()?;
        let older = log.manifest(parent.sequence).ok()??;
        Checkpoint::load(self.log.store.clone(), older).ok()
    }

    fn epoch_is_over(&self) -> bool {
        let packs = self.groups.iter().filter_map(|g| g.packs.as_ref());
        self.deltas as f64 > self.options.growth * self.whole as f64
            || packs.map(Group::count).max() >= Some(u64::from(MAX_PACKS) - 1)
    }

    /// What was learnt about variables lasts for some epochs, if these are of the same ranks.
    fn begin_epoch(&mut self, ranks: &[u32]) {
        let groups = ranks.len().div_ceil(self.settings.ranks_per_pack as usize);
        let record = self.options.record.min(RECORD) / groups.max(1) as u64;
        let mut known = std::mem::take(&mut self.groups).into_iter();
        if ranks != self.ranks || self.newest.as_ref().is_some_and(remembers_no_longer) {
            known = Vec::new().into_iter();
        }
        let group = |_| {
            let mut keeper = Keeper::new(record, self.options.encoding);
            let mut learnt = Vec::new();
            if let Some(known) = known.next() {
                keeper.chooser = known.keeper.chooser;
                learnt = known.learnt;
            }
            let merge = self.settings.merge;
            GroupState { keeper, prints: Prints::new(), packs: None, merge, learnt }
        };
        self.groups = (0..groups).map(group).collect();
        (self.ranks, self.epoch, self.whole, self.deltas) = (ranks.to_vec(), None, 0, 0);
    }

    /// What was committed is what the next checkpoint builds on.
    fn keep(&mut self, manifest: &Manifest, cost: u64) {
        for (state, group) in self.groups.iter_mut().zip(&manifest.groups) {
            state.packs = Some(group.clone());
        }
        match self.epoch {
            None => self.whole = cost,
            Some(_) => self.deltas += cost,
        }
        self.epoch = Some(manifest.epoch.clone());
        self.newest = Some(manifest.clone());
    }

    /// Writes the pack of a group.
    fn pack(
        &mut self,
        number: usize,
        inputs: &[&Input],
        before: Option<&dyn Before>,
        told: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(Footer, Stats, Seal)> {
        let (log, options) = (&self.log, &self.options);
        let state = &mut self.groups[number];
        let name = PackName { writer: log.writer, attempt: self.attempt, group: number as u32 };
        let (merge, block) = (state.merge, self.settings.block);
        let variables: Vec<Packed> = inputs.iter().map(|i| i.packed(merge, block)).collect();
        let bough = (options.chunk.bytes() * BOUGH) as u64;
        let block = block.map(|block| block.max(1).next_multiple_of(bough));
        let firsts = firsts(&variables);
        let turns = merge::turns(inputs, &firsts, block);
        for learnt in std::mem::take(&mut state.learnt) {
            learnt.tell(&mut state.keeper.chooser, &variables, &firsts);
        }
        let plan = Plan {
            run: log.run.clone(),
            name,
            ordinal: state.packs.as_ref().map_or(0, Group::count) as u32,
            parent: state.packs.as_ref().map(|group| group.seal),
            chunk: options.chunk,
            method: options.method,
            variables,
            turns: block.is_some(),
        };
        let mut put = log.first.put(&Names::new(&log.run).pack(name))?;
        put.append(&header(Kind::Pack))?;
        let mut packer = Packer::new(plan, &self.hasher, before);
        let (sender, batches) = sync_channel(AHEAD);
        let (give_back, spare) = sync_channel(AHEAD + 2);
        let chunk = options.chunk.bytes();
        let (keeper, hasher) = (&mut state.keeper, &self.hasher);
        let mut before = std::mem::take(&mut state.prints);
        let (footer, stats) = std::thread::scope(|scope| {
            let before = &mut before;
            scope.spawn(move || {
                if let Err(error) = read(inputs, &turns, chunk, hasher, before, &sender, &spare) {
                    let _ = sender.send(Err(error));
                }
            });
            let batches: Receiver<Result<Batch>> = batches;
            let mut sink = |bytes: &[u8]| put.append(bytes);
            for batch in batches {
                let batch = batch?;
                packer.take(keeper, &batch.strips, &batch.bytes[..batch.filled], &mut sink)?;
                told(batch.read);
                let _ = give_back.try_send(batch.bytes);
            }
            packer.finish(keeper, &mut sink)
        })?;
        state.prints = before;
        state.keeper.retain(|key| state.prints.contains_key(key));
        let (bytes, seal) = footer.write();
        put.append(&bytes)?;
        put.finish()?;
        Ok((footer, stats, seal))
    }

    fn manifest(
        &self,
        step: u64,
        groups: &[Vec<&Input>],
        packs: Vec<Group>,
        stats: Stats,
    ) -> Manifest {
        let sequence = self.log.sequence + 1;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut variables = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            let trees = &self.groups[number].keeper.trees;
            variables.extend(group.iter().map(|input| {
                let key = (input.rank, input.description.name.clone());
                let tree = trees.get(&key);
                VariableEntry {
                    rank: input.rank,
                    group: number as u32,
                    description: input.description.clone(),
                    chunk: self.options.chunk,
                    root: tree
                        .map_or_else(|| Tree::default().root(input.len()), |t| t.root(input.len())),
                    rounded: input.rounded,
                    trees: Vec::new(),
                }
            }));
        }
        Manifest {
            run: self.log.run.clone(),
            sequence,
            step,
            time: time.as_millis() as u64,
            parent: self.newest.as_ref().map(|m| Origin { run: None, sequence: m.sequence }),
            epoch: self.epoch.clone().unwrap_or(Origin { run: None, sequence }),
            seed: self.hasher.seed(),
            ranks: self.ranks.last().map_or(1, |rank| rank + 1),
            groups: packs,
            variables,
            stats,
        }
    }
}

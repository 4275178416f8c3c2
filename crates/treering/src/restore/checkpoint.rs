//! A checkpoint that can be read: its manifest and the footers of its epoch.

use super::delivery::check_type;
use super::fetch::{
    FillTold, FrameCache, Notes, Pack, fetch, image, note, read_footer, read_sealed,
};
use super::footers::KnownFooters;
use super::handles::{Handles, first_good};
use super::plan::{ChunkHashes, FramePiece, Wanted, fill, plan};
use super::target::SharedTarget;
use crate::array::{
    Description, Element, GroupId, Labels, Rank, VariableKey, VariableMut, filled, scalars_of,
    settled,
};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    FILE_PREFIX, FileOrigin, Footer, Group, Manifest, Names, PackExtent, PackName, Seal,
    VariableEntry,
};
use crate::lineage::{Layer, covers, resolve, runs};
use crate::log::{FullManifest, read_group};
use crate::memory::{TOGETHER, batches, zeroed};
use crate::merkle::{Digest, Hasher, Print, Tree, boughs, boughs_of, prints, root_of};
use crate::store::{Blob, Store};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// A checkpoint, ready to be read. Every byte is verified before a caller sees it.
///
/// ```
/// use treering::{Library, Options, Run, Variable};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let mut run = Run::open(Options::directory(&store, "rod"))?;
/// run.checkpoint(7, &[Variable::new("heat", &[1.0f64, 2.0, 3.0])])?;
/// run.finish()?;
/// let checkpoint = Library::open(&store)?.checkpoint("rod", Some(7))?; // `None`: the newest
/// let names: Vec<&str> = checkpoint.variables().map(|v| &v.name[..]).collect();
/// assert_eq!(names, ["heat"]);
/// assert_eq!(checkpoint.read::<f64>("heat")?, [1.0, 2.0, 3.0]);
/// assert_eq!(checkpoint.read_range::<f64>("heat", 1..2)?, [2.0]);
/// # Ok::<(), treering::Error>(())
/// ```
///
/// Opening it reads the descriptions of its variables, and no data. A read returns when its data is in memory. A damaged
/// copy is noted ([`notes`](Checkpoint::notes)) and another copy serves; without one, the read is an error of kind
/// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged), and other variables can still be read. Pruning the checkpoint
/// makes later reads fail.
pub struct Checkpoint {
    handles: Handles,
    manifest: Manifest,
    /// The groups that are loaded: all of them, or one.
    groups: BTreeMap<GroupId, Group>,
    /// The rank whose own variables are read; `None`: arrays of all ranks, and otherwise those of rank 0.
    of_rank: Option<Rank>,
    /// The variables of all ranks, group by group.
    variables: Vec<VariableEntry>,
    /// The packs of each group's epoch, oldest first.
    pub(crate) packs: Vec<Vec<Pack>>,
    deltas: Deltas,
    /// The position of each variable in the list, by rank and name.
    positions: HashMap<VariableKey, usize>,
    notes: Notes,
    kept: FrameCache,
}

/// Deltas of each variable (group, rank, name): pack and position in its footer.
type Deltas = HashMap<(GroupId, VariableKey), Vec<(usize, usize)>>;

/// A variable that was filled, and the prints of its chunks if they came about on the way.
type FilledVariable<'a> = (&'a VariableEntry, Option<ChunkHashes>);

/// Number of names that an error lists.
const MOST_NAMES: usize = 20;

/// Number of bytes of a variable that are read at a time where it need not be in memory as a whole.
const PART: usize = 16 << 20;

/// The name of a variable by that of the array in its file; an error if several files have such arrays.
pub(super) fn only_array<'n>(
    names: impl Iterator<Item = (Rank, &'n str)>,
    is_file: impl Fn(Rank, &str) -> bool,
    array: &str,
) -> Result<Option<&'n str>> {
    let named = |rank: Rank, name: &str| {
        let ends = name.strip_suffix(array).is_some_and(|file| file.ends_with('/'));
        let origin = || FileOrigin::among(name, |file| is_file(rank, file));
        ends && origin().is_some_and(|origin| origin.array(name) == array)
    };
    let found = names.filter(|(rank, name)| named(*rank, name)).map(|(_, name)| name);
    let found: BTreeSet<&str> = found.collect();
    if found.len() > 1 {
        let names: Vec<&str> = found.iter().copied().take(MOST_NAMES).collect();
        let more = if found.len() > MOST_NAMES { ", …" } else { "" };
        return Err(Error::usage(format!("several files have an array {array:?}"))
            .hint(format!("name one of {}{more}", names.join(", "))));
    }
    Ok(found.into_iter().next())
}

/// State of a variable after its restore: enough to continue its lineage.
pub(crate) struct RestoredVariable {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) prints: Vec<Print>,
    pub(crate) tree: Tree,
}

impl Checkpoint {
    /// Reads and checks the footers of all packs that the manifest names.
    pub(crate) fn load(store: Arc<dyn Store>, manifest: Manifest) -> Result<Self> {
        Self::load_beside(store, manifest, &KnownFooters::default())
    }

    /// Loads the variables of one group; the others are as if they were not there.
    pub(crate) fn load_group_of(
        store: Arc<dyn Store>,
        manifest: Manifest,
        only: GroupId,
    ) -> Result<Self> {
        let groups = [(only, read_group(store.as_ref(), &manifest, only)?)].into();
        Self::load_some(store, manifest, &KnownFooters::default(), groups)
    }

    /// Loads the variables of some groups, to be read piece by piece; `chosen` picks them from all.
    pub(crate) fn load_groups(
        store: Arc<dyn Store>,
        manifest: Manifest,
        chosen: impl FnOnce(&[Group]) -> Vec<GroupId>,
    ) -> Result<Self> {
        let all = FullManifest::read(store.as_ref(), manifest.clone())?.into_groups();
        let chosen = chosen(&all);
        let groups = (0..).map(GroupId).zip(all).filter(|(number, _)| chosen.contains(number));
        let groups = groups.collect();
        let mut checkpoint = Self::load_some(store, manifest, &KnownFooters::default(), groups)?;
        checkpoint.kept.by_pieces = true;
        Ok(checkpoint)
    }

    /// Loads a checkpoint; footers that are known are not read again.
    pub(crate) fn load_beside(
        store: Arc<dyn Store>,
        manifest: Manifest,
        known: &KnownFooters,
    ) -> Result<Self> {
        let all = FullManifest::read(store.as_ref(), manifest.clone())?.into_groups();
        Self::load_some(store, manifest, known, (0..).map(GroupId).zip(all).collect())
    }

    fn load_some(
        store: Arc<dyn Store>,
        manifest: Manifest,
        known: &KnownFooters,
        groups: BTreeMap<GroupId, Group>,
    ) -> Result<Self> {
        let notes = Notes::default();
        let here = format!("{}@{}", manifest.run, manifest.step);
        let handles = Handles::new(store.clone());
        let mut packs = Vec::new();
        for (number, group) in &groups {
            packs.resize_with(number.index(), Vec::new);
            let loaded = load_group(store.as_ref(), group, *number, &notes, known);
            packs.push(loaded.map_err(|error| error.at(&here))?);
        }
        let mut checkpoint = Checkpoint {
            handles,
            manifest,
            groups,
            of_rank: None,
            variables: Vec::new(),
            packs,
            deltas: Deltas::new(),
            positions: HashMap::new(),
            notes,
            kept: FrameCache::default(),
        };
        (0..checkpoint.packs.len()).for_each(|group| checkpoint.index(group, 0));
        checkpoint.take_sections()?;
        checkpoint.keep_footers(known);
        Ok(checkpoint)
    }

    /// Keeps the footers of all packs for the next checkpoint of the epoch that is looked at.
    fn keep_footers(&self, known: &KnownFooters) {
        for (number, group) in &self.groups {
            let Some(packs) = self.packs.get(number.index()) else { continue };
            let mut seal = Some(group.seal);
            for pack in packs.iter().rev() {
                if let Some(seal) = seal {
                    known.keep(&pack.key, seal, &pack.footer);
                }
                seal = pack.footer.parent;
            }
        }
    }

    /// A checkpoint without packs, which [`advance`](Self::advance) adds.
    pub(crate) fn begun(store: Arc<dyn Store>, manifest: Manifest) -> Self {
        Checkpoint {
            handles: Handles::new(store),
            manifest,
            groups: BTreeMap::new(),
            of_rank: None,
            variables: Vec::new(),
            packs: Vec::new(),
            deltas: Deltas::new(),
            positions: HashMap::new(),
            notes: Notes::default(),
            kept: FrameCache::default(),
        }
    }

    /// Becomes the next checkpoint of the epoch, which adds one pack to each group that is loaded.
    pub(crate) fn advance(&mut self, packs: Vec<Pack>) -> Result<()> {
        for pack in packs {
            let group = pack.footer.name.group.index();
            if self.packs.len() <= group {
                self.packs.resize_with(group + 1, Vec::new);
            }
            let first = self.packs[group].len();
            if pack.footer.ordinal as usize != first {
                return Err(Error::damaged("a pack of the epoch is missing").at(pack.key));
            }
            self.packs[group].push(pack);
            self.index(group, first);
        }
        self.take_sections()
    }

    /// Limits the memory for decoded frames.
    pub(crate) fn keep_frames(&mut self, most: usize) {
        self.kept.most = most;
    }

    /// Forgets the variables of all other ranks.
    pub(crate) fn keep_only(&mut self, rank: Rank) {
        for pack in self.packs.iter_mut().flatten() {
            Arc::make_mut(&mut pack.footer).deltas.retain(|delta| delta.rank == rank);
        }
        self.deltas.clear();
        (0..self.packs.len()).for_each(|group| self.index(group, 0));
        self.variables.retain(|variable| variable.rank == rank);
        self.find_positions();
    }

    /// Enters the deltas of packs from `first` on.
    fn index(&mut self, group: usize, first: usize) {
        for (number, pack) in self.packs[group].iter().enumerate().skip(first) {
            for (at, delta) in pack.footer.deltas.iter().enumerate() {
                let variable = VariableKey::new(delta.rank, &delta.name);
                let key = (GroupId(group as u32), variable);
                self.deltas.entry(key).or_default().push((number, at));
            }
        }
    }

    /// Takes the variables out of the newest packs.
    fn take_sections(&mut self) -> Result<()> {
        self.variables.clear();
        for packs in &mut self.packs {
            if let Some(newest) = packs.last_mut() {
                self.variables.append(&mut Arc::make_mut(&mut newest.footer).variables);
            }
        }
        if self.variables.iter().any(|v| v.rank.0 >= self.manifest.ranks) {
            return Err(Error::damaged("a variable belongs to a rank that does not exist"));
        }
        self.find_positions();
        Ok(())
    }

    fn find_positions(&mut self) {
        let named = self.variables.iter().enumerate();
        self.positions = named.map(|(at, v)| (v.key(), at)).collect();
    }

    pub(crate) fn note(&self, text: String) {
        note(&self.notes, text);
    }

    /// The manifest of the checkpoint.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The groups that are loaded.
    #[doc(hidden)]
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// One of them.
    pub(crate) fn group(&self, group: GroupId) -> Option<&Group> {
        self.groups.get(&group)
    }

    /// Run and step, for messages.
    pub(crate) fn place(&self) -> String {
        format!("{}@{}", self.manifest.run, self.manifest.step)
    }

    /// The description of a variable of a rank.
    pub(crate) fn entry(&self, key: &VariableKey) -> Option<&VariableEntry> {
        self.positions.get(key).map(|at| &self.variables[*at])
    }

    /// The variable of that rank and name. An array of a file may be named without its file, where only one file has an
    /// array of that name.
    pub fn variable(&self, rank: Rank, name: &str) -> Result<&VariableEntry> {
        match self.entry(&VariableKey::new(rank, name)) {
            Some(entry) => Ok(entry),
            None => {
                let of_rank = self.variables.iter().filter(|entry| entry.rank == rank);
                match self.only_array(of_rank, name)? {
                    Some(name) => self.exact(rank, name),
                    None => Err(self.no_variable(rank, name)),
                }
            }
        }
    }

    /// The variable of that rank and whole name.
    pub(crate) fn exact(&self, rank: Rank, name: &str) -> Result<&VariableEntry> {
        let entry = self.entry(&VariableKey::new(rank, name));
        entry.ok_or_else(|| self.no_variable(rank, name))
    }

    fn no_variable(&self, rank: Rank, name: &str) -> Error {
        let shown = self.variables.iter().filter(|v| !v.is_hidden());
        let names: Vec<&str> =
            shown.map(|v| v.description.name.as_str()).take(MOST_NAMES).collect();
        let hint = match names.is_empty() {
            true => "this checkpoint holds trees only, and no data that could be restored".into(),
            false => format!("it has {}", names.join(", ")),
        };
        Error::new(ErrorKind::Mismatch, format!("there is no variable {name:?} of rank {rank}"))
            .at(self.place())
            .hint(hint)
    }

    /// The file that a variable is an array of, as the records of files tell; `None` for variables of programs.
    pub(crate) fn origin(&self, entry: &VariableEntry) -> Option<FileOrigin> {
        if self.manifest.files == 0 {
            return None;
        }
        FileOrigin::among(&entry.description.name, |file| self.is_file(entry.rank, file))
    }

    fn is_file(&self, rank: Rank, file: &str) -> bool {
        self.entry(&VariableKey::new(rank, &format!("{FILE_PREFIX}{file}"))).is_some()
    }

    /// The variable of an array, of some variables, by its name in its file.
    pub(super) fn only_array<'e>(
        &self,
        entries: impl Iterator<Item = &'e VariableEntry>,
        array: &str,
    ) -> Result<Option<&'e str>> {
        let names = entries.map(|entry| (entry.rank, &entry.description.name[..]));
        only_array(names, |rank, file| self.is_file(rank, file), array)
            .map_err(|error| error.at(self.place()))
    }

    /// The variables of all ranks, trees and records of files included.
    pub fn entries(&self) -> &[VariableEntry] {
        &self.variables
    }

    /// The program's iteration number.
    pub fn step(&self) -> u64 {
        self.manifest.step.0
    }

    /// The labels that the program gave it.
    pub fn labels(&self) -> &Labels {
        &self.manifest.labels
    }

    /// Its variables.
    pub fn variables(&self) -> impl Iterator<Item = &Description> {
        self.variables.iter().map(|v| &v.description)
    }

    /// Problems that reads have worked around so far, for example damaged copies.
    pub fn notes(&self) -> Vec<String> {
        self.notes.get()
    }

    /// Makes all reads those of a rank's own variables, as that rank handed them over: its own array where several ranks
    /// have one of that name, its own box of a global array, and indices that begin with 0. It can be called again for
    /// another rank. Without it, [`read`](Self::read), [`read_range`](Self::read_range) and
    /// [`read_into`](Self::read_into) are of rank 0, and [`read_box`](Self::read_box), [`read_slab`](Self::read_slab) and
    /// [`read_array`](Self::read_array) of global arrays.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use treering::{Comm, Library, Options, Rank, Run, ThreadRanks, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// # let shared = store.clone();
    /// ThreadRanks::new(2).run(move |comm: Arc<dyn Comm>| {
    ///     let seed = [u64::from(comm.rank().0); 4]; // each rank has an array of its own
    ///     let mut run = Run::open(Options::directory(&shared, "dice").ranks(comm))?;
    ///     run.checkpoint(7, &[Variable::new("seed", &seed)])?;
    ///     run.finish()
    /// });
    /// let checkpoint = Library::open(&store)?.checkpoint("dice", Some(7))?.of_rank(Rank(1))?;
    /// assert_eq!(checkpoint.read::<u64>("seed")?, [1; 4]);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn of_rank(mut self, rank: Rank) -> Result<Self> {
        let ranks = self.manifest.ranks;
        if rank.0 >= ranks {
            let what = format!("there is no rank {rank} of {ranks}");
            return Err(Error::usage(what).at(self.place()).hint("ranks are counted from 0"));
        }
        self.of_rank = Some(rank);
        Ok(self)
    }

    /// The rank whose own variables are read, if one was chosen.
    pub(super) fn chosen_rank(&self) -> Option<Rank> {
        self.of_rank
    }

    fn rank(&self) -> Rank {
        self.of_rank.unwrap_or(Rank(0))
    }

    /// Fills whole variables of rank 0, or of the rank of [`of_rank`](Self::of_rank); type, shape and name must agree with
    /// what is stored. As in [`variable`](Self::variable), an array of a file may be named without its file.
    ///
    /// On an error the arrays' content is unspecified.
    pub fn read_into(&self, targets: &mut [VariableMut]) -> Result<()> {
        settled(self.read_all(targets), targets)
    }

    fn read_all(&self, targets: &mut [VariableMut]) -> Result<()> {
        let mut targets: Vec<&mut VariableMut> = targets.iter_mut().collect();
        let rank = self.rank();
        let find = |name: &str| match self.variable(rank, name) {
            // Two files have it: nobody could tell which is meant.
            Err(error) if error.kind() == ErrorKind::Usage => Err(error),
            found => Ok(found.ok()),
        };
        let entries = self.fill(rank, &mut targets, &find, false)?;
        let mut filled = entries.into_iter().zip(targets.iter_mut());
        filled.try_for_each(|(entry, target)| match entry {
            Some((entry, hashes)) => self.check_root(entry, target.bytes(), hashes),
            None => Ok(()),
        })
    }

    /// Fills variables, and returns the state that a writer needs to continue their lineage; `None` for optional
    /// variables that the checkpoint does not have.
    pub(crate) fn resume_into(
        &self,
        rank: Rank,
        targets: &mut [&mut VariableMut],
    ) -> Result<Vec<Option<RestoredVariable>>> {
        // A lineage goes on under the very name.
        let find = |name: &str| Ok(self.entry(&VariableKey::new(rank, name)));
        let entries = self.fill(rank, targets, &find, true)?;
        let filled = entries.into_iter().zip(targets.iter_mut());
        let retrace = |(entry, hashes): FilledVariable, target: &mut VariableMut| {
            self.retrace(entry, target.bytes(), hashes)
        };
        filled
            .map(|(entry, target)| entry.map(|entry| retrace(entry, target)).transpose())
            .collect()
    }

    /// A whole variable of rank 0, or of the rank of [`of_rank`](Self::of_rank), named as in [`variable`](Self::variable).
    pub fn read<T: Element>(&self, name: &str) -> Result<Vec<T>> {
        let entry = self.variable(self.rank(), name)?;
        let scalars = entry.description.shape.elements().unwrap_or(0);
        self.read_range(name, 0..scalars.checked_div(scalars_of::<T>()).unwrap_or(0))
    }

    /// The elements `range` of a variable of rank 0, or of the rank of [`of_rank`](Self::of_rank), counted in the order of
    /// memory.
    pub fn read_range<T: Element>(&self, name: &str, range: Range<u64>) -> Result<Vec<T>> {
        let entry = self.variable(self.rank(), name)?;
        let Description { dtype, shape, .. } = &entry.description;
        check_type(name, *dtype, T::DTYPE)?;
        let (scalars, each) = (shape.elements().unwrap_or(0), scalars_of::<T>());
        if each == 0 || scalars % each != 0 {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!("variable {name:?} of shape {shape} does not consist of arrays of {each}"),
            ));
        }
        if range.start > range.end || range.end > scalars / each {
            return Err(Error::usage(format!(
                "elements {}..{} are outside of variable {name:?}, which has {}",
                range.start,
                range.end,
                scalars / each
            )));
        }
        let size = dtype.size() * each;
        let bytes = range.start * size..range.end * size;
        filled((range.end - range.start) * each, |out| self.read_bytes(entry, bytes, out))
    }

    /// Bytes `range` of a variable; a whole variable is checked by its root, too.
    pub(crate) fn read_bytes(
        &self,
        entry: &VariableEntry,
        range: Range<u64>,
        out: &mut [u8],
    ) -> Result<()> {
        let whole = range == (0..entry.description.bytes().unwrap_or(0));
        let wanted = self.wanted(entry, 0, range);
        let mut hashes = self.carry_out(entry.group, &[wanted], &mut [out])?;
        if whole {
            self.check_root(entry, out, hashes.pop().flatten())?;
        }
        Ok(())
    }

    /// Ranges of a variable's bytes, one after another.
    pub(crate) fn read_ranges(
        &self,
        entry: &VariableEntry,
        ranges: &[Range<u64>],
        mut out: &mut [u8],
    ) -> Result<()> {
        let mut targets = Vec::with_capacity(ranges.len());
        for range in ranges {
            let (head, rest) = out.split_at_mut((range.end - range.start) as usize);
            targets.push(head);
            out = rest;
        }
        let wanted = ranges.iter().enumerate();
        let wanted = wanted.map(|(at, range)| self.wanted(entry, at as u32, range.clone()));
        self.carry_out(entry.group, &wanted.collect::<Vec<_>>(), &mut targets).map(drop)
    }

    /// Locations of ranges of a variable's bytes, which begin with chunks; `None` if some have no place.
    pub(crate) fn runs_of(
        &self,
        entry: &VariableEntry,
        ranges: &[Range<u64>],
    ) -> Option<Vec<PackExtent>> {
        let chunk = entry.chunk.bytes() as u64;
        let layers = self.layers(entry);
        let mut all = Vec::new();
        let mut places = Vec::new();
        for range in ranges {
            let window = range.start / chunk..range.end.div_ceil(chunk);
            if range.start % chunk != 0 || range.end > entry.description.bytes()? {
                return None;
            }
            resolve(&layers, chunk, window.clone(), &mut places).ok()?;
            for (first, count, place) in runs(&places, chunk) {
                let start = (window.start + first) * chunk;
                let len = (start + count * chunk).min(range.end) - start;
                all.push(PackExtent { place, len });
            }
        }
        let packs = &self.packs[entry.group.index()];
        let held = |run: &PackExtent| {
            let pack = packs.get(run.place.pack as usize);
            pack.is_some_and(|pack| run.place.offset + run.len <= pack.footer.len())
        };
        all.iter().all(held).then_some(all)
    }

    /// A whole variable, of which `base` holds what is the same in a newer checkpoint.
    pub(crate) fn read_beside(
        &self,
        entry: &VariableEntry,
        base: Option<(&Checkpoint, Vec<u8>)>,
    ) -> Result<Vec<u8>> {
        let bytes = entry.description.bytes().unwrap_or(0);
        let mut wanted = self.wanted(entry, 0, 0..bytes);
        let usable = base.filter(|(newer, old)| {
            newer.manifest.epoch == self.manifest.epoch && old.len() as u64 == bytes
        });
        let newer_entry = usable.as_ref().and_then(|(newer, _)| {
            let found = newer.exact(entry.rank, &entry.description.name).ok()?;
            Some(newer.layers(found))
        });
        let mut out = match (usable.as_ref(), newer_entry) {
            (Some((_, old)), Some(layers)) => {
                wanted.at_hand = Some(layers);
                old.clone()
            }
            _ => zeroed(bytes)?,
        };
        let mut hashes = self.carry_out(entry.group, &[wanted], &mut [&mut out])?;
        self.check_root(entry, &out, hashes.pop().flatten())?;
        Ok(out)
    }

    /// Tells somebody how many bytes were filled so far.
    pub(crate) fn tell(&self, told: FillTold) {
        self.notes.tell(told);
    }

    /// Fills whole variables, frame by frame verified; their roots are still to be checked.
    fn fill<'s>(
        &'s self,
        rank: Rank,
        targets: &mut [&mut VariableMut],
        find: &dyn Fn(&str) -> Result<Option<&'s VariableEntry>>,
        with_prints: bool,
    ) -> Result<Vec<Option<FilledVariable<'s>>>> {
        let mut names = HashSet::new();
        let mut entries = Vec::new();
        for target in targets.iter_mut() {
            target.check()?;
            if !names.insert(target.name().to_string()) {
                let name = target.name();
                return Err(Error::usage(format!(
                    "variable {name:?} was given twice in one restore"
                )));
            }
            let entry = find(target.name())?;
            if entry.is_none() && !target.is_optional() {
                return Err(self.no_variable(rank, target.name()));
            }
            if let Some(entry) = entry {
                target.fit(&entry.description)?;
            }
            entries.push(entry);
        }
        let wanted: Vec<&VariableEntry> = entries.iter().flatten().copied().collect();
        let there = targets.iter_mut().zip(&entries).filter(|(_, entry)| entry.is_some());
        let mut places: Vec<&mut [u8]> = there.map(|(target, _)| target.bytes()).collect();
        let mut hashes = self.fill_places(&wanted, &mut places, with_prints)?.into_iter();
        let mut filled = |entry| (entry, hashes.next().flatten());
        Ok(entries.into_iter().map(|entry| entry.map(&mut filled)).collect())
    }

    /// Fills places with whole variables; each frame is decoded once. The hashes of their chunks that came about.
    fn fill_places(
        &self,
        entries: &[&VariableEntry],
        places: &mut [&mut [u8]],
        with_prints: bool,
    ) -> Result<Vec<Option<ChunkHashes>>> {
        let mut hashes: Vec<Option<ChunkHashes>> = entries.iter().map(|_| None).collect();
        for group in (0..self.packs.len() as u32).map(GroupId) {
            let members = entries.iter().enumerate().filter(|(_, e)| e.group == group);
            let wanted: Vec<Wanted> = members
                .map(|(at, entry)| {
                    let all = 0..entry.description.bytes().unwrap_or(0);
                    Wanted { prints: with_prints, ..self.wanted(entry, at as u32, all) }
                })
                .collect();
            let made = self.carry_out(group, &wanted, places)?;
            for (want, made) in wanted.iter().zip(made) {
                hashes[want.target as usize] = made;
            }
        }
        Ok(hashes)
    }

    /// Reads whole variables of any ranks: their bytes one after another, verified. Each frame that they share is decoded
    /// once. Memory for all of them is allocated; one variable that cannot be read is an error of the whole call.
    pub fn read_together(&self, entries: &[&VariableEntry]) -> Result<Vec<u8>> {
        let check =
            |entry: &VariableEntry, bytes: &[u8], hashes| self.check_root(entry, bytes, hashes);
        self.with_all(entries, false, check).map(|(all, _)| all)
    }

    /// Whole variables one behind another, and what `look` finds in each.
    fn with_all<T: Send>(
        &self,
        entries: &[&VariableEntry],
        with_prints: bool,
        look: impl Fn(&VariableEntry, &[u8], Option<ChunkHashes>) -> Result<T> + Sync,
    ) -> Result<(Vec<u8>, Vec<T>)> {
        let len = |entry: &VariableEntry| entry.description.bytes().unwrap_or(0);
        let mut bytes: Vec<u8> = zeroed(entries.iter().map(|entry| len(entry)).sum())?;
        let (mut places, mut rest) = (Vec::with_capacity(entries.len()), &mut bytes[..]);
        for entry in entries {
            let (place, behind) = rest.split_at_mut(len(entry) as usize);
            places.push(place);
            rest = behind;
        }
        let hashes = self.fill_places(entries, &mut places, with_prints)?;
        let filled = entries.par_iter().zip(&places).zip(hashes);
        let found = filled.map(|((entry, place), hashes)| look(entry, place, hashes));
        let found = found.collect::<Result<_>>()?;
        Ok((bytes, found))
    }

    /// States of all variables by which a writer continues their lineage; a part of the variables is in memory at a
    /// time.
    pub(crate) fn retrace_all(&self) -> Result<Vec<RestoredVariable>> {
        let entries: Vec<&VariableEntry> = self.variables.iter().collect();
        let size = |entry: &&VariableEntry| entry.description.bytes().unwrap_or(0);
        let mut all = Vec::with_capacity(entries.len());
        for batch in batches(&entries, TOGETHER, size) {
            match batch {
                [large] if size(large) > TOGETHER => all.push(self.retrace_stored(large)?),
                _ => all.extend(self.with_all(batch, true, |e, b, h| self.retrace(e, b, h))?.1),
            }
        }
        Ok(all)
    }

    fn wanted(&self, entry: &VariableEntry, target: u32, range: Range<u64>) -> Wanted<'_> {
        Wanted {
            target,
            chunk: entry.chunk.bytes() as u64,
            bytes: entry.description.bytes().unwrap_or(0),
            range,
            layers: self.layers(entry),
            at_hand: None,
            prints: false,
        }
    }

    /// Layers of a variable: the regions that each checkpoint of the epoch added to it, oldest first.
    ///
    /// Layers from before the variable vanished and came back do not count, nor do those of another
    /// chunk size: the later one that replaced them covers every chunk.
    pub(crate) fn layers(&self, entry: &VariableEntry) -> Vec<Layer<'_>> {
        let key = (entry.group, entry.key());
        let mut layers = Vec::new();
        for (pack, at) in self.deltas.get(&key).into_iter().flatten() {
            let delta = &self.packs[entry.group.index()][*pack].footer.deltas[*at];
            match delta.chunk == entry.chunk {
                true => layers.push(&delta.regions[..]),
                false => layers.clear(),
            }
        }
        layers
    }

    /// Number of encoded bytes of the frames that hold all variables. It is computed from footers that are in memory: no
    /// pack is read. A restore reads more where frames build on older frames. A variable without a place in any pack is an
    /// error of kind [`ErrorKind::Damaged`].
    pub fn read_bytes_needed(&self) -> Result<u64> {
        let mut bytes = 0;
        for (number, packs) in self.packs.iter().enumerate() {
            let size = |(pack, frame): &(u32, u32)| {
                packs[*pack as usize].footer.frames[*frame as usize].encoded
            };
            bytes += self.frames_of(number)?.iter().map(size).sum::<u64>();
        }
        Ok(bytes)
    }

    /// Refuses if a restore would need a frame that is bad, by the keys of packs.
    pub(crate) fn avoids(&self, bad: &HashMap<String, HashSet<u32>>) -> Result<()> {
        for (number, packs) in self.packs.iter().enumerate() {
            let mut next: Vec<(u32, u32)> = self.frames_of(number)?;
            let mut seen: HashSet<(u32, u32)> = next.iter().copied().collect();
            while let Some((pack, frame)) = next.pop() {
                let Pack { key, footer } = &packs[pack as usize];
                if bad.get(key).is_some_and(|frames| frames.contains(&frame)) {
                    return Err(Error::damaged(format!(
                        "it needs frame {frame} of a pack, which is damaged"
                    ))
                    .at(key));
                }
                for run in footer.before(frame as usize).into_iter().flatten() {
                    let older = &packs[run.place.pack as usize].footer;
                    let first = older.frame_at(run.place.offset).unwrap_or(0);
                    let last =
                        older.frame_at(run.place.offset + run.len.max(1) - 1).unwrap_or(first);
                    let below = (first..=last).map(|frame| (run.place.pack, frame as u32));
                    next.extend(below.filter(|place| seen.insert(*place)));
                }
            }
        }
        Ok(())
    }

    /// The frames (pack, frame) of a group that hold the bytes of its variables.
    fn frames_of(&self, group: usize) -> Result<Vec<(u32, u32)>> {
        let footers: Vec<&Footer> = self.packs[group].iter().map(|p| &*p.footer).collect();
        let members = self.variables.iter().filter(|v| v.group.index() == group);
        let wanted: Vec<Wanted> =
            members.map(|entry| self.wanted(entry, 0, 0..entry.bytes())).collect();
        let pieces = plan(&footers, &wanted)?;
        let mut frames: Vec<(u32, u32)> = pieces.iter().map(|p| (p.pack, p.frame)).collect();
        frames.dedup();
        Ok(frames)
    }

    /// Follows every reference of a variable without reading what it leads to.
    pub(crate) fn check_references(&self, entry: &VariableEntry) -> Result<()> {
        let packs = &self.packs[entry.group.index()];
        let chunk = entry.chunk.bytes() as u64;
        let bytes = entry.description.bytes().unwrap_or(0);
        let layers = self.layers(entry);
        for region in layers.iter().flat_map(|layer| layer.iter()) {
            let distinct = if region.period > 0 { region.period } else { region.count };
            // The last chunk, then or now, may be short; reading it tells.
            let end = region.place.offset + (distinct - 1) * chunk;
            let held = packs.get(region.place.pack as usize).map_or(0, |pack| pack.footer.len());
            if end >= held && bytes > 0 {
                return Err(Error::damaged("a reference leads past the end of its pack"));
            }
        }
        match covers(&layers, entry.chunk.count(bytes)) {
            true => Ok(()),
            false => Err(Error::damaged("a chunk has no place in any pack of its epoch")),
        }
    }

    /// Fills targets; the hashes of the chunks of each that is wanted as a whole.
    fn carry_out(
        &self,
        group: GroupId,
        wanted: &[Wanted],
        targets: &mut [&mut [u8]],
    ) -> Result<Vec<Option<ChunkHashes>>> {
        let here = || format!("{}@{}", self.manifest.run, self.manifest.step);
        let packs = &self.packs[group.index()];
        // If a pack cannot be read as a whole, the frames that are needed may still be sound: then they are read alone.
        if !self.kept.by_pieces
            && self.is_repetitive(packs, wanted)
            && let Ok(images) = self.images(packs)
        {
            let hasher = Hasher::new(self.manifest.seed);
            let filled = wanted
                .iter()
                .map(|want| fill(&images, want, &hasher, targets[want.target as usize]));
            return filled.collect::<Result<_>>().map_err(|e| e.at(here()));
        }
        let footers: Vec<&Footer> = packs.iter().map(|p| &*p.footer).collect();
        let plan: Vec<FramePiece> = plan(&footers, wanted).map_err(|e| e.at(here()))?;
        let hasher = Hasher::new(self.manifest.seed);
        let mut prints: Vec<Option<Vec<Print>>> = vec![None; wanted.len()];
        for (want, prints) in wanted.iter().zip(&mut prints) {
            if want.is_whole() {
                *prints = Some(zeroed(want.bytes.div_ceil(want.chunk))?);
            }
        }
        let mut of_target: Vec<_> = (0..targets.len()).map(|_| None).collect();
        for (want, prints) in wanted.iter().zip(&mut prints) {
            of_target[want.target as usize] = prints.as_mut().map(|p| (p, want.chunk as usize));
        }
        let shared = targets.iter_mut().zip(of_target).map(|(target, prints)| match prints {
            Some((prints, chunk)) => SharedTarget::with_prints(target, prints, chunk, &hasher),
            None => SharedTarget::new(target),
        });
        let shared: Vec<SharedTarget> = shared.collect();
        let packs = (group, &packs[..]);
        fetch(&self.handles, packs, &plan, &shared, &self.notes, &self.kept)
            .map_err(|e| e.at(here()))?;
        shared.into_iter().for_each(SharedTarget::finish);
        Ok(prints.into_iter().map(|prints| prints.map(ChunkHashes::Prints)).collect())
    }

    /// Whether the packs hold far fewer bytes than are wanted of them, because content repeats.
    fn is_repetitive(&self, packs: &[Pack], wanted: &[Wanted]) -> bool {
        let stored: u64 = packs.iter().map(|p| p.footer.len()).sum();
        let bytes: u64 = wanted.iter().map(|w| w.range.end - w.range.start).sum();
        stored * 2 < bytes && wanted.iter().all(|w| w.at_hand.is_none())
    }

    /// The bytes of all packs, those included that are not needed.
    fn images(&self, packs: &[Pack]) -> Result<Vec<Vec<u8>>> {
        let numbers = (0..packs.len()).into_par_iter();
        numbers.map(|number| image(&self.handles, packs, number, &self.notes)).collect()
    }

    /// Compares a variable's bytes with the root that the manifest names, by the hashes of its chunks if these are known.
    pub(super) fn check_root(
        &self,
        entry: &VariableEntry,
        bytes: &[u8],
        hashes: Option<ChunkHashes>,
    ) -> Result<()> {
        let boughs = match hashes {
            Some(ChunkHashes::Boughs(boughs)) => boughs,
            Some(ChunkHashes::Prints(prints)) => boughs(&prints),
            None => boughs_of(bytes, entry.chunk.bytes(), &Hasher::new(self.manifest.seed)),
        };
        self.compare_root(entry, root_of(boughs, bytes.len() as u64))
    }

    /// Checks the root, and computes the state that the next checkpoint of the lineage needs.
    fn retrace(
        &self,
        entry: &VariableEntry,
        bytes: &[u8],
        hashes: Option<ChunkHashes>,
    ) -> Result<RestoredVariable> {
        let prints = match hashes {
            Some(ChunkHashes::Prints(prints)) => prints,
            _ => prints(bytes, entry.chunk.bytes(), &Hasher::new(self.manifest.seed)),
        };
        let tree = Tree::build(boughs(&prints));
        self.compare_root(entry, tree.root(bytes.len() as u64))?;
        let name = entry.description.name.clone();
        Ok(RestoredVariable { name, bytes: bytes.len() as u64, prints, tree })
    }

    /// Computes the state of a variable that is in the store only; a part of it is in memory at a time.
    fn retrace_stored(&self, entry: &VariableEntry) -> Result<RestoredVariable> {
        let (bytes, chunk) = (entry.description.bytes().unwrap_or(0), entry.chunk.bytes());
        let hasher = Hasher::new(self.manifest.seed);
        let part = PART.next_multiple_of(chunk) as u64;
        let mut all = Vec::new();
        let mut buffer = Vec::new();
        for start in (0..bytes).step_by(part as usize) {
            let end = bytes.min(start + part);
            buffer.resize((end - start) as usize, 0);
            self.read_ranges(entry, std::slice::from_ref(&(start..end)), &mut buffer)?;
            all.extend(prints(&buffer, chunk, &hasher));
        }
        let tree = Tree::build(boughs(&all));
        self.compare_root(entry, tree.root(bytes))?;
        Ok(RestoredVariable { name: entry.description.name.clone(), bytes, prints: all, tree })
    }

    fn compare_root(&self, entry: &VariableEntry, root: Digest) -> Result<()> {
        match root == entry.root {
            true => Ok(()),
            false => Err(Error::damaged(format!(
                "variable {:?} does not have the root that its manifest names",
                entry.description.name
            ))
            .at(format!("{}@{}", self.manifest.run, self.manifest.step))),
        }
    }
}

/// One variable of a checkpoint, read as far as needed; frame by frame verified.
pub(crate) struct VariableBlob {
    checkpoint: Arc<Checkpoint>,
    at: usize,
    name: String,
}

impl VariableBlob {
    /// The variable at a position of the manifest.
    pub(crate) fn new(checkpoint: &Arc<Checkpoint>, at: usize) -> Self {
        let manifest = &checkpoint.manifest;
        VariableBlob {
            checkpoint: checkpoint.clone(),
            at,
            name: format!("{}@{}", manifest.run, manifest.step),
        }
    }
}

impl Blob for VariableBlob {
    fn store(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.checkpoint.variables[self.at].description.bytes().unwrap_or(0)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(buffer.len() as u64);
        if end > self.size() {
            return Err(Error::damaged("a variable is shorter than it should be").at(&self.name));
        }
        let entry = &self.checkpoint.variables[self.at];
        self.checkpoint.read_bytes(entry, offset..end, buffer)
    }

    /// In one plan: a frame that several ranges need is decoded once.
    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let entry = &self.checkpoint.variables[self.at];
        let mut wanted = Vec::with_capacity(ranges.len());
        for (at, (offset, buffer)) in ranges.iter().enumerate() {
            let end = offset.saturating_add(buffer.len() as u64);
            if end > self.size() {
                let what = "a variable is shorter than it should be";
                return Err(Error::damaged(what).at(&self.name));
            }
            wanted.push(self.checkpoint.wanted(entry, at as u32, *offset..end));
        }
        let mut targets: Vec<&mut [u8]> =
            ranges.iter_mut().map(|(_, buffer)| &mut **buffer).collect();
        self.checkpoint.carry_out(entry.group, &wanted, &mut targets).map(drop)
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        false
    }
}

fn load_group(
    store: &dyn Store,
    group: &Group,
    number: GroupId,
    notes: &Notes,
    known: &KnownFooters,
) -> Result<Vec<Pack>> {
    let names: Vec<(&str, PackName)> = group.names(number).collect();
    // Footers are read in parallel, from whichever copy is readable, and then checked against the chain.
    let found: Vec<Option<(Seal, Arc<Footer>)>> = names
        .par_iter()
        .enumerate()
        .map(|(ordinal, (run, name))| {
            let key = Names::new(run).pack(*name);
            let newest = ordinal + 1 == names.len();
            if let Some(known) = known.get(&key).filter(|_| !newest) {
                return Some(known);
            }
            let copies = store.copies(&key);
            let note = |store: &str, error: &Error| {
                note(notes, format!("{key} in {store}: {error}"));
            };
            let read = |copy: &dyn Blob| match newest {
                true => read_sealed(copy, &group.seal, true).map(|footer| (group.seal, footer)),
                false => read_footer(copy, false),
            };
            first_good(&copies, read, note).ok().map(|(seal, footer)| (seal, Arc::new(footer)))
        })
        .collect();
    let mut packs = Vec::with_capacity(names.len());
    let mut expected = Some(group.seal);
    for (ordinal, ((run, name), found)) in names.iter().zip(found).enumerate().rev() {
        let key = Names::new(run).pack(*name);
        let Some(seal) = expected else {
            return Err(Error::damaged("an epoch begins in the middle").at(key));
        };
        let newest = ordinal + 1 == names.len();
        let good = match found {
            Some((found, footer)) if found == seal => Ok(footer),
            _ => load_sealed(store, &key, seal, newest, notes).map(Arc::new),
        };
        let footer = good.map_err(|e| e.at(&key))?;
        if footer.ordinal as usize != ordinal || footer.name != *name || footer.run != *run {
            return Err(Error::damaged("a pack is not the one that belongs here").at(key));
        }
        expected = footer.parent;
        packs.push(Pack { key, footer });
    }
    packs.reverse();
    Ok(packs)
}

/// Looks through all copies of a pack for the one that has the seal.
fn load_sealed(
    store: &dyn Store,
    key: &str,
    seal: Seal,
    newest: bool,
    notes: &Notes,
) -> Result<Footer> {
    let copies = store.copies(key);
    let read = |copy: &dyn Blob| read_sealed(copy, &seal, newest);
    let note = |store: &str, error: &Error| note(notes, format!("{key} in {store}: {error}"));
    first_good(&copies, read, note).map_err(|error| match (error.kind(), copies.len()) {
        (ErrorKind::Damaged, 1..) => {
            Error::damaged("a pack's footer is damaged, or another pack is in its place")
        }
        _ => error,
    })
}

//! The sides there are: files, runs and checkpoints of a store, tree files, and arrays in memory.

use super::side::{
    FileContent, FileView, OpenedFile, Side, SideEntry, TreeView, Unread, read_trees,
};
use crate::array::{DType, Description, Marks, Order, Rank, Shape, Step, Variable, VariableKey};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    FILE_PREFIX, FileRecord, Manifest, TREE_PREFIX, TREES_RUN, TreeFile, TreeOrigin, VariableEntry,
};
use crate::log::{Log, lineage};
use crate::merkle::Digest;
use crate::restore::{Checkpoint, VariableBlob};
use crate::source::{
    self, Extent, LeftOut, RawLayout, Rendered, Rounded, StoredBytes, UndecodedArray, has_rest,
    name_of,
};
use crate::store::{Blob, BundledStore, Store, read_each};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

/// Trees up to this size are read at once.
const SMALL_TREE: u64 = 1 << 20;

/// Where the trees of a file lie: beside it.
pub fn sidecar(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tree");
    name.into()
}

/// What a file is, so that a tree made from it can be told from one that was not.
pub(crate) fn identity(path: &Path) -> Result<TreeOrigin> {
    let failed = |e| Error::io(format!("cannot look at {}", path.display()), e);
    let meta = std::fs::metadata(path).map_err(failed)?;
    let changed = meta.modified().map_err(failed)?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(TreeOrigin::File { size: meta.len(), changed: changed.as_nanos() as u64 })
}

/// Whether a file was changed in any way after its tree was put there. Its own time can be set back,
/// as copying with `cp -p` does; that of its entry cannot.
fn touched_since(path: &Path, beside: &Path) -> bool {
    let changed = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.ctime(), meta.ctime_nsec()))
    };
    match (changed(path), changed(beside)) {
        (Some(file), Some(tree)) => file > tree,
        _ => true,
    }
}

/// A file, or all files of a folder, with the trees beside them.
#[derive(Default)]
pub struct FileSide {
    name: String,
    entries: Vec<SideEntry<'static>>,
    files: Vec<FileView>,
    notes: Vec<String>,
}

impl FileSide {
    /// Opens a file or a folder; `raw` says what files are that do not say so themselves.
    pub fn open(path: &Path, raw: Option<&RawLayout>, trees: bool) -> Result<FileSide> {
        let mut side = FileSide { name: path.display().to_string(), ..FileSide::default() };
        if !path.is_dir() {
            let name = path.file_name().map(name_of).unwrap_or_default();
            side.add(path, &name, raw, trees, |name| name.to_string())?;
            return Ok(side);
        }
        let found = source::files(path)?;
        for (other, left_out) in &found.others {
            let name = name_of(other.strip_prefix(path).unwrap_or(other).as_os_str());
            if *left_out == LeftOut::NoFile {
                side.notes.push(format!("{name} is left out: it is {}", left_out.why()));
            }
        }
        let files = found.files;
        let mut stems: HashMap<PathBuf, u32> = HashMap::new();
        files.iter().for_each(|file| *stems.entry(file.with_extension("")).or_default() += 1);
        for file in files {
            let inside = file.strip_prefix(path).unwrap_or(&file);
            // Files that only their extensions tell apart, such as those of ranks, keep them.
            let stem = match stems[&file.with_extension("")] {
                1 => inside.with_extension(""),
                _ => inside.to_path_buf(),
            };
            let stem = name_of(stem.as_os_str());
            let own = file.file_stem().map(name_of).unwrap_or_default();
            // The only array of a file is called like it; an archive's are inside of it.
            let rename =
                |name: &str| if name == own { stem.clone() } else { format!("{stem}/{name}") };
            let inside = name_of(inside.as_os_str());
            match side.add(&file, &inside, raw, trees, rename) {
                Err(error) if error.kind() == ErrorKind::Usage => {
                    side.notes.push(format!("{inside} is compared byte for byte: {error}"));
                    side.add_bytes(&file, inside)?;
                }
                // Other files can be compared all the same.
                Err(error) => side.add_unread(&file, stem, &inside, error),
                Ok(()) => {}
            }
        }
        if side.entries.is_empty() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{} has no file that can be compared", path.display()),
            )
            .hint(
                "it may hold .npy and .npz files, or raw ones of a type given with --type; a run \
                   of a store is written STORE#RUN",
            ));
        }
        Ok(side)
    }

    /// One array of a file, or all of a group by their names in it. Content beside arrays is left out.
    pub(crate) fn only(mut self, object: &str) -> Result<FileSide> {
        let object = object.trim_matches('/');
        let below = format!("{object}/");
        let has = |entry: &SideEntry| {
            let name = &entry.description.name;
            object.is_empty() || name == object || name.starts_with(&below)
        };
        let total = self.entries.len();
        let some = self.entries.first().map(|entry| entry.description.name.clone());
        self.entries.retain(has);
        if self.entries.is_empty() {
            let such_as = some.map_or(String::new(), |name| format!(", such as {name:?}"));
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{} has no array and no group {object:?}", self.name),
            )
            .hint(format!("there are {total} arrays{such_as}")));
        }
        for entry in &mut self.entries {
            if let Some(name) = entry.description.name.strip_prefix(&below) {
                entry.description.name = name.to_string();
            }
        }
        self.name = format!("{}:/{object}", self.name);
        self.files.clear();
        self.notes.push("of a named object, attributes and links are not compared".into());
        Ok(self)
    }

    /// A file of which nothing is known but its bytes.
    fn add_bytes(&mut self, path: &Path, name: String) -> Result<()> {
        let values: Arc<dyn Blob> = Arc::new(open_extent(path)?);
        let shape = Shape(vec![values.size()]);
        self.files.push(FileView::of_bytes(Rank(0), &name, &[]));
        let description =
            Description { name, dtype: DType::Bytes, shape, order: Order::C, part: None };
        description.check().map_err(|e| e.at(path.display()))?;
        self.entries.push(SideEntry {
            rank: Rank(0),
            description,
            values: Some(values),
            trees: Vec::new(),
            unread: None,
        });
        Ok(())
    }

    /// A file that cannot be read, or is damaged.
    fn add_unread(&mut self, path: &Path, variable: String, name: &str, why: Error) {
        let whole = open_extent(path).ok();
        let stored = whole.as_ref().map(StoredBytes::all);
        let size = whole.map_or(0, |whole| whole.size());
        self.files.push(FileView::new(Rank(0), name, || {
            Ok(OpenedFile { digest: None, content: FileContent::Unread })
        }));
        let unread = Unread { why, described: false, certain: true, stored };
        let mut entry = unread_entry(Rank(0), variable, unread);
        entry.description.shape = Shape(vec![size]);
        self.entries.push(entry);
    }

    fn add(
        &mut self,
        path: &Path,
        name: &str,
        raw: Option<&RawLayout>,
        trees: bool,
        rename: impl Fn(&str) -> String,
    ) -> Result<()> {
        let opened = source::open_all(path, raw)?;
        let (whole, raw) = (open_extent(path)?, raw.cloned());
        self.files.push(FileView::new(Rank(0), name, move || {
            let content = FileContent::Whole(whole.clone(), raw.clone());
            Ok(OpenedFile { digest: None, content })
        }));
        let mut views = match trees {
            true => self.trees_beside(path),
            false => Vec::new(),
        };
        for field in opened.fields {
            let fits = |view: &TreeView| view.entry.description == field.description;
            let trees = views.extract_if(.., |view| fits(view)).collect();
            let name = rename(&field.description.name);
            self.entries.push(SideEntry {
                rank: Rank(0),
                description: Description { name, ..field.description },
                values: Some(field.bytes),
                trees,
                unread: None,
            });
        }
        let undecoded = opened.undecoded.into_iter();
        self.entries.extend(undecoded.map(|one| {
            let name = rename(&one.name);
            undecoded_entry(Rank(0), name, one)
        }));
        Ok(())
    }

    /// The trees beside a file, unless the file is another one by now.
    fn trees_beside(&mut self, path: &Path) -> Vec<TreeView<'static>> {
        let beside = sidecar(path);
        if !beside.exists() {
            return Vec::new();
        }
        let read = open_file(&beside).and_then(|blob| read_trees(blob));
        let current = identity(path);
        match (read, current) {
            (Ok((file, views)), Ok(current))
                if file.origin == current && !touched_since(path, &beside) =>
            {
                views
            }
            (Ok(_), _) => {
                self.notes.push(format!(
                    "{} was made before {} was written, and is not used; make it again with \
                     `treering tree`",
                    beside.display(),
                    path.display()
                ));
                Vec::new()
            }
            (Err(error), _) => {
                self.notes.push(format!("{} cannot be used: {error}", beside.display()));
                Vec::new()
            }
        }
    }
}

/// A variable of which only the name is known.
fn unread_entry(rank: Rank, name: String, unread: Unread) -> SideEntry<'static> {
    let (dtype, shape, order) = (DType::Bytes, Shape(vec![0]), Order::C);
    let description = Description { name, dtype, shape, order, part: None };
    SideEntry { rank, description, values: None, trees: Vec::new(), unread: Some(unread) }
}

/// An array of a file that is not decoded.
fn undecoded_entry(rank: Rank, name: String, array: UndecodedArray) -> SideEntry<'static> {
    let UndecodedArray { description, why, stored, is_group, .. } = array;
    let unread = Unread { why, described: description.is_some(), certain: !is_group, stored };
    let mut entry = unread_entry(rank, name, unread);
    if let Some(description) = description {
        entry.description = Description { name: entry.description.name, ..description };
    }
    entry
}

fn open_file(path: &Path) -> Result<Arc<dyn Blob>> {
    Ok(Arc::new(open_extent(path)?))
}

fn open_extent(path: &Path) -> Result<Extent> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("there is no {}", path.display()))
        }
        _ => Error::io(format!("cannot read {}", path.display()), e),
    };
    // Asked before it is opened: opening a pipe waits for somebody to write.
    let meta = std::fs::metadata(path).map_err(failed)?;
    if !meta.is_file() {
        return Err(Error::usage(format!("{} is no file", path.display())));
    }
    let file = File::open(path).map_err(failed)?;
    Ok(Extent::new(Arc::new(file), 0, meta.len(), path))
}

impl Side for FileSide {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn steps(&self) -> Result<Vec<Option<Step>>> {
        Ok(vec![None])
    }

    fn entries(&self, step: Option<Step>) -> Result<Vec<SideEntry<'_>>> {
        Ok(if step.is_none() { self.entries.clone() } else { Vec::new() })
    }

    fn files(&self, step: Option<Step>) -> Result<Vec<FileView>> {
        Ok(if step.is_none() { self.files.clone() } else { Vec::new() })
    }

    fn unreadable(&self) -> u64 {
        0
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

/// A tree file that stands for itself: what is expected, without values.
pub struct Golden {
    name: String,
    views: Vec<TreeView<'static>>,
}

impl Golden {
    /// Opens a tree file.
    pub fn open(path: &Path) -> Result<Golden> {
        let read = read_trees(open_file(path)?);
        let (_, views) = read.map_err(|e| e.at(path.display()))?;
        Ok(Golden { name: path.display().to_string(), views })
    }

    /// What it says about its trees.
    pub fn views(&self) -> &[TreeView<'static>] {
        &self.views
    }
}

impl Side for Golden {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn steps(&self) -> Result<Vec<Option<Step>>> {
        let mut steps: Vec<_> = self.views.iter().map(|view| view.entry.step).collect();
        steps.sort_unstable();
        steps.dedup();
        Ok(steps)
    }

    fn entries(&self, step: Option<Step>) -> Result<Vec<SideEntry<'_>>> {
        let mut entries = Vec::new();
        let of_step = self.views.iter().filter(|view| view.entry.step == step);
        of_step.for_each(|view| attach(&mut entries, view.clone()));
        Ok(entries)
    }

    fn files(&self, _step: Option<Step>) -> Result<Vec<FileView>> {
        Ok(Vec::new())
    }

    fn unreadable(&self) -> u64 {
        0
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Gives a tree to the variable it belongs to; one that is not there has no values.
fn attach<'a>(entries: &mut Vec<SideEntry<'a>>, view: TreeView<'a>) {
    let (rank, description) = (view.entry.rank, &view.entry.description);
    match entries.iter_mut().find(|e| e.rank == rank && e.description == *description) {
        Some(entry) => entry.trees.push(view),
        None => entries.push(SideEntry {
            rank,
            description: description.clone(),
            values: None,
            trees: vec![view],
            unread: None,
        }),
    }
}

/// A run of a store, or one checkpoint of it.
pub struct StoredSide {
    store: Arc<dyn Store>,
    name: String,
    /// The newest of each step, ascending.
    manifests: Vec<Manifest>,
    /// How many others of the run cannot be read.
    unreadable: u64,
    /// Those of the run that holds trees made afterwards.
    afterwards: Vec<Manifest>,
    notes: Mutex<Vec<String>>,
}

impl StoredSide {
    /// All checkpoints of a run from which the newest descends, or the newest of one step.
    pub fn open(store: Arc<dyn Store>, run: &str, step: Option<Step>) -> Result<StoredSide> {
        let store: Arc<dyn Store> = Arc::new(BundledStore::new(store));
        let (manifests, trouble) = by_step(&store, run)?;
        let mut notes: Vec<String> = trouble.iter().map(Error::to_string).collect();
        let afterwards = match by_step(&store, &format!("{run}{TREES_RUN}")) {
            Ok((manifests, _)) => manifests,
            Err(error) => {
                notes.push(format!("trees made afterwards cannot be read: {error}"));
                Vec::new()
            }
        };
        let mut manifests = manifests;
        manifests.retain(|m| step.is_none_or(|step| step == m.step));
        if manifests.is_empty() {
            let what = match step {
                Some(step) => format!("run {run:?} has no checkpoint of step {step}"),
                None => format!("there is no run {run:?} with a checkpoint"),
            };
            let why = trouble.into_iter().next();
            return Err(why.unwrap_or_else(|| {
                Error::new(ErrorKind::NotFound, what)
                    .at(store.name())
                    .hint("`treering ls` lists what there is")
            }));
        }
        let at = step.map_or(String::new(), |step| format!("@{step}"));
        let name = format!("{}#{run}{at}", store.name());
        let unreadable = if step.is_none() { trouble.len() as u64 } else { 0 };
        let notes = Mutex::new(notes);
        Ok(StoredSide { store, name, manifests, unreadable, afterwards, notes })
    }

    /// One checkpoint of this run, by what was read of its log already.
    pub(crate) fn only(&self, step: Step) -> Option<StoredSide> {
        let of_step = |all: &[Manifest]| -> Vec<Manifest> {
            all.iter().filter(|m| m.step == step).cloned().collect()
        };
        let manifests = of_step(&self.manifests);
        let name = format!("{}@{step}", self.name);
        (!manifests.is_empty()).then(|| StoredSide {
            store: self.store.clone(),
            name,
            manifests,
            unreadable: 0,
            afterwards: of_step(&self.afterwards),
            notes: Mutex::default(),
        })
    }

    fn checkpoint(
        &self,
        manifests: &[Manifest],
        step: Option<Step>,
    ) -> Result<Option<Arc<Checkpoint>>> {
        let manifest = manifests.iter().find(|m| Some(m.step) == step);
        let load = |m: &Manifest| Checkpoint::load(self.store.clone(), m.clone()).map(Arc::new);
        manifest.map(load).transpose()
    }

    fn note(&self, note: String) {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(note);
    }

    /// The trees that a checkpoint holds as variables.
    fn trees(&self, checkpoint: &Arc<Checkpoint>) -> Vec<TreeView<'static>> {
        let mut views = Vec::new();
        for (at, entry) in checkpoint.entries().iter().enumerate() {
            if !entry.description.name.starts_with(TREE_PREFIX) {
                continue;
            }
            let stored = VariableBlob::new(checkpoint, at);
            let blob: Result<Arc<dyn Blob>> = match stored.size() <= SMALL_TREE {
                true => whole(&stored),
                false => Ok(Arc::new(stored)),
            };
            match blob.and_then(|blob| read_trees(blob)) {
                Ok((file, mut found)) => {
                    // A tree made while capturing belongs to the rank that captured it.
                    if file.origin == TreeOrigin::None {
                        found.iter_mut().for_each(|view| view.entry.rank = entry.rank);
                    }
                    views.append(&mut found);
                }
                Err(error) => self.note(format!("a tree cannot be used: {error}")),
            }
        }
        views
    }
}

fn whole(blob: &dyn Blob) -> Result<Arc<dyn Blob>> {
    let mut bytes = vec![0; blob.size() as usize];
    blob.read_at(0, &mut bytes)?;
    Ok(Arc::new(Held(bytes)))
}

/// The newest manifest of each step in the lineage of the newest, ascending.
fn by_step(store: &Arc<dyn Store>, run: &str) -> Result<(Vec<Manifest>, Vec<Error>)> {
    crate::format::check_run_name(run)?;
    let (mut manifests, trouble) = Log::read(store.clone(), run)?.manifests();
    let line = lineage(&manifests);
    manifests.retain(|m| line.contains(&m.sequence));
    manifests.sort_by_key(|m| (m.step, std::cmp::Reverse(m.sequence)));
    manifests.dedup_by_key(|m| m.step);
    Ok((manifests, trouble))
}

/// A file of a checkpoint.
struct StoredFile {
    rank: Rank,
    record: FileRecord,
}

/// The variables of a checkpoint that hold the records of files.
fn file_records(checkpoint: &Checkpoint) -> impl Iterator<Item = (&VariableEntry, &str)> {
    let named = |v| {
        let variable: &VariableEntry = v;
        Some((variable, variable.description.name.strip_prefix(FILE_PREFIX)?))
    };
    checkpoint.entries().iter().filter_map(named)
}

impl StoredFile {
    fn read(checkpoint: &Checkpoint, variable: &VariableEntry) -> Result<StoredFile> {
        let mut bytes = crate::memory::zeroed(variable.description.bytes().unwrap_or(0))?;
        checkpoint.read_bytes(variable, 0..bytes.len() as u64, &mut bytes)?;
        let record = FileRecord::parse(&bytes).map_err(|e| e.at(&variable.description.name))?;
        Ok(StoredFile { rank: variable.rank, record })
    }

    /// The variable that holds everything of this file that is no value: it is compared by its meaning.
    fn rest(&self) -> Option<VariableKey> {
        let FileRecord { fields, skeleton, format, .. } = &self.record;
        let last = fields.last().map(String::as_str);
        let rest = last.filter(|_| has_rest(skeleton, format, last));
        rest.map(|name| VariableKey::new(self.rank, name))
    }

    /// The file as it was, read from the store.
    fn whole(&self, checkpoint: &Arc<Checkpoint>) -> Extent {
        let all = checkpoint.entries();
        let field = |name: &String| -> Arc<dyn Blob> {
            match all.iter().position(|v| v.rank == self.rank && v.description.name == *name) {
                Some(at) => Arc::new(VariableBlob::new(checkpoint, at)),
                None => Arc::new(Held(Vec::new())),
            }
        };
        let fields = self.record.fields.iter().map(field).collect();
        let rendered = Rendered::new(self.record.skeleton.clone(), fields, &self.record.name);
        Extent::of(Arc::new(rendered), &self.record.name)
    }

    fn opened(&self, checkpoint: &Arc<Checkpoint>) -> OpenedFile {
        let FileRecord { format, skeleton, .. } = &self.record;
        let content = match format.as_str() {
            "raw" | "bytes" => FileContent::Beside(format.clone(), skeleton.literals.clone()),
            _ => FileContent::Whole(self.whole(checkpoint), None),
        };
        OpenedFile { digest: Some(skeleton.digest), content }
    }

    /// Datasets whose values are in the skeleton, as far as they can be read.
    fn in_skeleton(&self, checkpoint: &Arc<Checkpoint>) -> Vec<SideEntry<'static>> {
        if self.record.in_skeleton.is_empty() {
            return Vec::new();
        }
        let whole = self.whole(checkpoint);
        let arrays = source::arrays_of(&whole);
        let mut entries = Vec::new();
        for dataset in &self.record.in_skeleton {
            let (rank, name) = (self.rank, dataset.variable.clone());
            let arrays = match &arrays {
                Ok(arrays) => arrays,
                Err(error) => {
                    let (why, stored) = (error.clone(), Some(StoredBytes::all(&whole)));
                    let unread = Unread { why, described: false, certain: true, stored };
                    entries.push(unread_entry(rank, name, unread));
                    continue;
                }
            };
            let field = arrays.fields.iter().find(|field| field.description.name == dataset.name);
            let undecoded = arrays.undecoded.iter().find(|array| array.name == dataset.name);
            // Values of variable length are neither: they are compared as content of the file.
            if let Some(field) = field {
                let description = Description { name, ..field.description.clone() };
                let (values, trees) = (Some(field.bytes.clone()), Vec::new());
                entries.push(SideEntry { rank, description, values, trees, unread: None });
            } else if let Some(undecoded) = undecoded {
                entries.push(undecoded_entry(rank, name, undecoded.clone()));
            }
        }
        entries
    }
}

impl Side for StoredSide {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn unreadable(&self) -> u64 {
        self.unreadable
    }

    fn files(&self, step: Option<Step>) -> Result<Vec<FileView>> {
        let manifest = self.manifests.iter().find(|m| Some(m.step) == step);
        if manifest.is_none_or(|manifest| manifest.files == 0) {
            return Ok(Vec::new());
        }
        let Some(checkpoint) = self.checkpoint(&self.manifests, step)? else {
            return Ok(Vec::new());
        };
        // Skeletons can be large: each is read when its file is compared.
        let view = |(variable, name): (&VariableEntry, &str)| {
            let (checkpoint, variable) = (checkpoint.clone(), variable.clone());
            FileView::new(variable.rank, name, move || {
                Ok(StoredFile::read(&checkpoint, &variable)?.opened(&checkpoint))
            })
        };
        Ok(file_records(&checkpoint).map(view).collect())
    }

    fn steps(&self) -> Result<Vec<Option<Step>>> {
        Ok(self.manifests.iter().map(|m| Some(m.step)).collect())
    }

    fn entries(&self, step: Option<Step>) -> Result<Vec<SideEntry<'_>>> {
        let Some(checkpoint) = self.checkpoint(&self.manifests, step)? else {
            return Ok(Vec::new());
        };
        let mut entries = Vec::new();
        let (mut rests, mut in_skeletons) = (HashSet::new(), Vec::new());
        for (variable, _) in file_records(&checkpoint) {
            let file = StoredFile::read(&checkpoint, variable)?;
            rests.extend(file.rest());
            in_skeletons.extend(file.in_skeleton(&checkpoint));
        }
        let rest = |v: &VariableEntry| !rests.is_empty() && rests.contains(&v.key());
        for (at, variable) in checkpoint.entries().iter().enumerate() {
            if !variable.is_hidden() && !rest(variable) {
                entries.push(SideEntry {
                    rank: variable.rank,
                    description: variable.description.clone(),
                    values: Some(Arc::new(VariableBlob::new(&checkpoint, at))),
                    trees: Vec::new(),
                    unread: None,
                });
            }
        }
        entries.extend(in_skeletons);
        self.trees(&checkpoint).into_iter().for_each(|view| attach(&mut entries, view));
        if let Some(later) = self.checkpoint(&self.afterwards, step)? {
            // A step that was done again has other data than its tree was made from.
            let root = |view: &TreeView| -> Option<Digest> {
                let found = checkpoint
                    .entries()
                    .iter()
                    .find(|v| v.rank == view.entry.rank && v.description == view.entry.description);
                found.map(|v| v.root)
            };
            let views = self.trees(&later).into_iter();
            let current = views.filter(|view| root(view) == Some(view.entry.exact));
            current.for_each(|view| attach(&mut entries, view));
        }
        let notes = checkpoint.notes();
        notes.into_iter().for_each(|note| self.note(note));
        Ok(entries)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

/// Arrays in memory, with trees that were made of them.
pub struct MemorySide<'a> {
    step: Step,
    entries: Vec<SideEntry<'a>>,
}

impl<'a> MemorySide<'a> {
    /// The arrays of a program at a step, as they would be stored, and the bytes of tree files.
    pub fn new(step: u64, variables: &[Variable<'a>], trees: &[&'a [u8]]) -> Result<Self> {
        let entry = |variable: &Variable<'a>| {
            let mut values: Arc<dyn Blob + 'a> = Arc::new(Lent(variable.bytes.whole()));
            if let Some(rounding) = variable.rounding()? {
                values = Arc::new(Rounded { inner: values, rounding, marks: Marks::default() });
            }
            Ok(SideEntry {
                rank: Rank(0),
                description: variable.description.clone(),
                values: Some(values),
                trees: Vec::new(),
                unread: None,
            })
        };
        let mut entries: Vec<SideEntry> = variables.iter().map(entry).collect::<Result<_>>()?;
        for bytes in trees {
            let (_, views) = read_trees(Arc::new(Lent((*bytes).into())) as Arc<dyn Blob + 'a>)?;
            views.into_iter().for_each(|view| attach(&mut entries, view));
        }
        Ok(MemorySide { step: Step(step), entries })
    }

    /// The same as the arrays of another rank.
    pub(crate) fn of_rank(mut self, rank: Rank) -> Self {
        for entry in &mut self.entries {
            entry.rank = rank;
            entry.trees.iter_mut().for_each(|tree| tree.entry.rank = rank);
        }
        self
    }
}

impl<'a> MemorySide<'a> {
    /// The variables by themselves.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn into_entries(self) -> Vec<SideEntry<'a>> {
        self.entries
    }
}

impl Side for MemorySide<'_> {
    fn name(&self) -> String {
        "this run".to_string()
    }

    fn steps(&self) -> Result<Vec<Option<Step>>> {
        Ok(vec![Some(self.step)])
    }

    fn entries(&self, step: Option<Step>) -> Result<Vec<SideEntry<'_>>> {
        Ok(if step == Some(self.step) { self.entries.clone() } else { Vec::new() })
    }

    fn files(&self, _step: Option<Step>) -> Result<Vec<FileView>> {
        Ok(Vec::new())
    }

    fn unreadable(&self) -> u64 {
        0
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Bytes of somebody else.
struct Lent<'a>(Cow<'a, [u8]>);

/// Bytes of its own.
pub(super) struct Held(pub(super) Vec<u8>);

fn copy(from: &[u8], offset: u64, buffer: &mut [u8]) -> Result<()> {
    let start = usize::try_from(offset).ok();
    let part = start.and_then(|start| from.get(start..)?.get(..buffer.len()));
    buffer.copy_from_slice(part.ok_or_else(|| Error::damaged("the data ends too early"))?);
    Ok(())
}

impl Blob for Lent<'_> {
    fn store(&self) -> &str {
        "memory"
    }

    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        copy(&self.0, offset, buffer)
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        false
    }
}

impl Blob for Held {
    fn store(&self) -> &str {
        "memory"
    }

    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        copy(&self.0, offset, buffer)
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        false
    }
}

/// Whether a file is a tree file, by its first bytes.
pub(crate) fn is_tree_file(path: &Path) -> bool {
    let read = || -> std::io::Result<[u8; TreeFile::PREFIX]> {
        use std::io::Read;
        let mut prefix = [0; TreeFile::PREFIX];
        File::open(path)?.read_exact(&mut prefix)?;
        Ok(prefix)
    };
    read().is_ok_and(|prefix| TreeFile::head_len(&prefix).is_ok())
}

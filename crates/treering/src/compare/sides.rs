//! The sides there are: files, runs and checkpoints of a store, tree files, and arrays in memory.

use super::side::{
    FileContent, FileView, OpenedFile, Side, SideEntry, TreeView, Unread, read_trees,
};
use crate::array::{
    DType, Description, Labels, Marks, Order, Rank, Shape, Step, Variable, VariableKey,
};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    FILE_PREFIX, FileOrigin, FileRecord, Manifest, TREE_PREFIX, TREES_RUN, TreeFile, TreeOrigin,
    VariableEntry, variable_name,
};
use crate::io::open_file;
use crate::log::{Log, lineage};
use crate::merkle::Digest;
use crate::restore::{Checkpoint, VariableBlob};
use crate::source::{
    self, Extent, Field, Interpretation, LeftOut, OpenedArrays, RawLayout, Rendered, Rounded,
    StoredBytes, UndecodedArray, has_rest, name_of, open_whole,
};
use crate::store::{Blob, BundledStore, Store, read_each};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Trees up to this size are read at once.
const SMALL_TREE: u64 = 1 << 20;

/// The most files of a folder of which each has a note.
const MOST_NOTES: u64 = 10;

/// Path of the tree file beside a file, where [`make_trees_beside`](crate::make_trees_beside) writes it.
///
/// ```
/// use std::path::Path;
/// assert_eq!(treering::sidecar(Path::new("out/x.f64")), Path::new("out/x.f64.tree"));
/// ```
pub fn sidecar(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tree");
    name.into()
}

/// The identity of a file, so that a tree made from it is distinguished from one that was not.
pub(crate) fn identity(path: &Path) -> Result<TreeOrigin> {
    let failed = |e| Error::io(format!("cannot look at {}", path.display()), e);
    let meta = std::fs::metadata(path).map_err(failed)?;
    let nanoseconds = |seconds: i64, rest: i64| {
        seconds.saturating_mul(1_000_000_000).saturating_add(rest).max(0) as u64
    };
    Ok(TreeOrigin::File {
        size: meta.len(),
        changed: nanoseconds(meta.mtime(), meta.mtime_nsec()),
        entered: nanoseconds(meta.ctime(), meta.ctime_nsec()),
    })
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
    pub(super) name: String,
    pub(super) entries: Vec<SideEntry<'static>>,
    pub(super) files: Vec<FileView>,
    pub(super) notes: Vec<String>,
}

impl FileSide {
    /// Opens a file or a folder; `raw` is the layout of files that do not describe themselves.
    pub fn open(path: &Path, raw: Option<&RawLayout>, trees: bool) -> Result<FileSide> {
        let mut side = FileSide { name: path.display().to_string(), ..FileSide::default() };
        if !path.is_dir() {
            let name = path.file_name().map(name_of).unwrap_or_default();
            side.add(path, &name, raw, trees, Naming::Array)?;
            return Ok(side);
        }
        let found = source::files(path)?;
        for (other, left_out) in &found.others {
            let name = name_of(other.strip_prefix(path).unwrap_or(other).as_os_str());
            if *left_out == LeftOut::NoFile {
                side.notes.push(format!("{name} is left out: it is {}", left_out.why()));
                let (why, target) = source::why_no_file(other);
                side.files.push(FileView::of_no_file(&name, why, target));
            }
        }
        let mut as_bytes = 0;
        for file in found.files {
            let inside = file.strip_prefix(path).unwrap_or(&file);
            let inside = name_of(inside.as_os_str());
            match side.add(&file, &inside, raw, trees, Naming::FileAndArray) {
                Err(error) if error.kind() == ErrorKind::Usage => {
                    as_bytes += 1;
                    if as_bytes <= MOST_NOTES {
                        side.notes.push(format!("{inside} is compared byte for byte: {error}"));
                    }
                    side.add_bytes(&file, inside)?;
                }
                // Other files can be compared all the same.
                Err(error) => side.add_unread(&file, &inside, error),
                Ok(()) => {}
            }
        }
        if as_bytes > MOST_NOTES {
            let more = as_bytes - MOST_NOTES;
            side.notes.push(format!("{more} other files are compared byte for byte, too"));
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

    /// A file of which nothing is known but its bytes.
    fn add_bytes(&mut self, path: &Path, name: String) -> Result<()> {
        let values: Arc<dyn Blob> = Arc::new(open_whole(path)?);
        let shape = Shape(vec![values.size()]);
        self.files.push(FileView::of_bytes(Rank(0), &name, &[]));
        let origin = FileOrigin::of(&name, &name);
        let (dtype, order, attributes) = (DType::Bytes, Order::C, Labels::default());
        let description = Description { name, dtype, shape, order, part: None, attributes };
        description.check().map_err(|e| e.at(path.display()))?;
        self.entries.push(SideEntry {
            rank: Rank(0),
            description,
            origin,
            values: Some(values),
            trees: Vec::new(),
            unread: None,
            meaning: Interpretation::default(),
            chunk: None,
        });
        Ok(())
    }

    /// A file that cannot be read, or is damaged.
    fn add_unread(&mut self, path: &Path, name: &str, why: Error) {
        let whole = open_whole(path).ok();
        let stored = whole.as_ref().map(StoredBytes::all);
        let size = whole.map_or(0, |whole| whole.size());
        self.files.push(FileView::new(Rank(0), name, || {
            Ok(OpenedFile { digest: None, content: FileContent::Unread })
        }));
        let unread = Unread { why, described: false, certain: true, stored };
        let variable = NamedVariable { name: name.to_string(), origin: FileOrigin::of(name, name) };
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
        naming: Naming,
    ) -> Result<()> {
        let opened = source::open_all(path, raw)?;
        let file = name;
        let (whole, raw) = (open_whole(path)?, raw.cloned());
        self.files.push(FileView::new(Rank(0), name, move || {
            let content = FileContent::Whole(whole.clone(), raw.clone());
            Ok(OpenedFile { digest: None, content })
        }));
        let mut views = match trees {
            true => self.trees_beside(path),
            false => Vec::new(),
        };
        let mut add = |field: Field, variable: NamedVariable| {
            let fits = |view: &TreeView| {
                view.entry.description == field.description && Some(view.entry.exact) == field.place
            };
            let trees = views.extract_if(.., |view| fits(view)).collect();
            self.entries.push(SideEntry { trees, ..field_entry(Rank(0), variable, field) });
        };
        let variable = |array: &str| naming.variable(file, array, opened.own_name(array));
        for field in opened.fields.clone() {
            let variable = variable(&field.description.name);
            add(field, variable);
        }
        for array in &opened.structured {
            let whole = variable(&array.whole.name);
            for field in array.fields.clone() {
                let (variable, field) = part_of(&whole, &array.whole, field);
                add(field, variable);
            }
        }
        let undecoded = opened.undecoded.iter();
        self.entries.extend(undecoded.map(|one| {
            let variable = variable(&one.name);
            undecoded_entry(Rank(0), variable, one.clone())
        }));
        Ok(())
    }

    /// The trees beside a file, unless the file is another one by now.
    fn trees_beside(&mut self, path: &Path) -> Vec<TreeView<'static>> {
        let beside = sidecar(path);
        if !beside.exists() {
            return Vec::new();
        }
        let read = open_blob(&beside).and_then(|blob| read_trees(blob));
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

/// The way in which variables of files are named.
#[derive(Clone, Copy)]
enum Naming {
    /// By the array alone: a person has named the file.
    Array,
    /// Names of file and array, as in a checkpoint.
    FileAndArray,
}

impl Naming {
    /// The variable of an array, which has this name in lists of the file, and this one of its own.
    fn variable(self, file: &str, array: &str, own: &str) -> NamedVariable {
        match self {
            Naming::Array => {
                let unnamed = || FileOrigin::unnamed(file, array);
                let origin = if own.is_empty() { unnamed() } else { FileOrigin::named(file) };
                NamedVariable { name: array.to_string(), origin: Some(origin) }
            }
            Naming::FileAndArray => {
                let name = variable_name(file, own);
                let origin = FileOrigin::of(file, &name);
                NamedVariable { name, origin }
            }
        }
    }
}

/// The name of a variable, and the file that it is an array of.
struct NamedVariable {
    name: String,
    origin: Option<FileOrigin>,
}

/// A field of a file under this name.
fn field_entry(rank: Rank, variable: NamedVariable, field: Field) -> SideEntry<'static> {
    let NamedVariable { name, origin } = variable;
    SideEntry {
        rank,
        description: Description { name, ..field.description },
        origin,
        values: Some(field.bytes),
        trees: Vec::new(),
        unread: None,
        chunk: field.chunk,
        meaning: field.meaning,
    }
}

/// The variable of a part of an array that is named like this, and the part.
fn part_of(named: &NamedVariable, whole: &Description, mut field: Field) -> (NamedVariable, Field) {
    let suffix = field.description.name.strip_prefix(&whole.name).unwrap_or_default();
    let name = format!("{}{suffix}", named.name);
    field.meaning.array = field.meaning.array.map(|_| named.name.clone());
    (NamedVariable { name, origin: named.origin.clone() }, field)
}

/// A variable of which only the name is known.
fn unread_entry(rank: Rank, variable: NamedVariable, unread: Unread) -> SideEntry<'static> {
    let NamedVariable { name, origin } = variable;
    let (dtype, shape, order) = (DType::Bytes, Shape(vec![0]), Order::C);
    let attributes = Labels::default();
    let description = Description { name, dtype, shape, order, part: None, attributes };
    let (meaning, trees) = Default::default();
    let (values, unread) = (None, Some(unread));
    SideEntry { rank, description, origin, values, trees, unread, chunk: None, meaning }
}

/// An array of a file that is not decoded.
fn undecoded_entry(
    rank: Rank,
    variable: NamedVariable,
    array: UndecodedArray,
) -> SideEntry<'static> {
    let UndecodedArray { description, why, stored, is_group, .. } = array;
    let unread = Unread { why, described: description.is_some(), certain: !is_group, stored };
    let mut entry = unread_entry(rank, variable, unread);
    if let Some(description) = description {
        entry.description = Description { name: entry.description.name, ..description };
    }
    entry
}

fn open_blob(path: &Path) -> Result<Arc<dyn Blob>> {
    Ok(Arc::new(open_whole(path)?))
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

/// A tree file as one side of a comparison: expected results, without their values.
///
/// ```
/// use treering::{Bound, CompareSettings, DType, Golden, RawLayout, TreeSettings, TreedSide};
/// use treering::{compare, open_side, record_golden};
/// # let folder = tempfile::tempdir().unwrap();
/// # let (data, file) = (folder.path().join("x.f64"), folder.path().join("x.golden"));
/// # std::fs::write(&data, [1.0f64; 1000].map(f64::to_le_bytes).concat()).unwrap();
/// let layout = RawLayout::values(DType::F64, None);
/// let side = open_side(&data.display().to_string(), Some(&layout), false)?;
/// let trees = TreeSettings { bounds: vec![Bound::abs(1e-6)], ..TreeSettings::default() };
/// record_golden(side.as_ref(), &CompareSettings::default(), &trees, &file, &|_, _| {})?;
///
/// let golden = Golden::open(&file)?; // in CI, from the repository
/// let today = TreedSide::new(side.as_ref(), &golden);
/// let settings = CompareSettings { expected: true, ..CompareSettings::default() };
/// assert!(compare(&golden, &today, &settings, None, &|_, _| {})?.equal);
/// # Ok::<(), treering::Error>(())
/// ```
pub struct Golden {
    name: String,
    views: Vec<TreeView<'static>>,
}

impl Golden {
    /// Opens a tree file.
    pub fn open(path: &Path) -> Result<Golden> {
        let read = read_trees(open_blob(path)?);
        let written = "`treering golden record` and `treering tree` write tree files";
        let (_, views) = read.map_err(|e| e.at(path.display()).hint(written))?;
        Ok(Golden { name: path.display().to_string(), views })
    }

    /// The trees and their descriptions.
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
    match entries.iter_mut().find(|e| e.rank == rank && e.description.is_same_array(description)) {
        Some(entry) => entry.trees.push(view),
        None => entries.push(SideEntry {
            rank,
            description: description.clone(),
            origin: view.entry.file.clone(),
            values: None,
            trees: vec![view],
            unread: None,
            meaning: Interpretation::default(),
            chunk: None,
        }),
    }
}

/// A run of a store, or one checkpoint of it, as one side of a comparison.
///
/// ```
/// use std::sync::Arc;
/// use treering::{CompareSettings, MemoryStore, Options, Run, Store, StoredSide, Variable, compare};
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
/// for name in ["monday", "tuesday"] {
///     let mut run = Run::open(Options::in_store(store.clone(), name))?;
///     run.checkpoint(1, &[Variable::new("heat", &[293.15f64; 100])])?;
///     run.finish()?;
/// }
/// let monday = StoredSide::open(store.clone(), "monday", None)?;
/// let tuesday = StoredSide::open(store, "tuesday", None)?;
/// assert!(compare(&monday, &tuesday, &CompareSettings::default(), None, &|_, _| {})?.equal);
/// # Ok::<(), treering::Error>(())
/// ```
pub struct StoredSide {
    store: Arc<dyn Store>,
    name: String,
    /// The newest of each step, ascending.
    manifests: Vec<Manifest>,
    /// Number of other entries of the run that cannot be read.
    unreadable: u64,
    /// Manifests of the run that holds trees made afterwards.
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
    /// Its name without the rank: variables are named after it.
    name: String,
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
    fn read(
        checkpoint: &Checkpoint,
        (variable, name): (&VariableEntry, &str),
    ) -> Result<StoredFile> {
        let mut bytes = crate::memory::zeroed(variable.description.bytes().unwrap_or(0))?;
        checkpoint.read_bytes(variable, 0..bytes.len() as u64, &mut bytes)?;
        let record = FileRecord::parse(&bytes).map_err(|e| e.at(&variable.description.name))?;
        Ok(StoredFile { rank: variable.rank, name: name.to_string(), record })
    }

    /// The origin of a variable of this file. In stores of early releases, it may have the name of the array alone, or
    /// that of an `.npy` file without the extension.
    fn origin(&self, variable: &str) -> FileOrigin {
        let origin = FileOrigin::of(&self.name, variable);
        let mut origin = origin.unwrap_or_else(|| match &self.record.format[..] {
            "npy" => FileOrigin::unnamed(&self.name, variable),
            _ => FileOrigin::named(&self.name),
        });
        origin.original = Some(self.record.name.clone());
        origin
    }

    /// The variable of an array of this file, by its name in the file; of early releases, too.
    fn variable(&self, array: &str) -> Option<&String> {
        let FileRecord { fields, in_skeleton, .. } = &self.record;
        let name = variable_name(&self.name, array);
        let only = if fields.len() + in_skeleton.len() == 1 { fields.first() } else { None };
        let named = |name: &str| fields.iter().find(|field| **field == name);
        named(&name).or_else(|| named(array)).or(only)
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

    /// Whether arrays may be more than the variables show: bytes that are records or texts, or values in the skeleton.
    fn may_have_structure(&self, checkpoint: &Checkpoint) -> bool {
        let is_field = |v: &VariableEntry| {
            v.rank == self.rank && self.record.fields.contains(&v.description.name)
        };
        let bytes = |v: &VariableEntry| v.description.dtype == DType::Bytes && is_field(v);
        let described = !["raw", "bytes"].contains(&&self.record.format[..]);
        described && (!self.record.in_skeleton.is_empty() || checkpoint.entries().iter().any(bytes))
    }

    /// Arrays that are more than the variables show; `hidden` gets the variables that hold their bytes.
    fn structure(
        &self,
        checkpoint: &Arc<Checkpoint>,
        hidden: &mut HashSet<VariableKey>,
    ) -> Vec<SideEntry<'static>> {
        if !self.may_have_structure(checkpoint) {
            return Vec::new();
        }
        let whole = self.whole(checkpoint);
        let arrays = source::arrays_of(&whole, &self.record.name);
        let mut entries = self.in_skeleton(&whole, &arrays);
        let Ok(arrays) = arrays else { return entries };
        for array in &arrays.structured {
            let Some(name) = self.variable(arrays.own_name(&array.whole.name)) else { continue };
            let same = |v: &VariableEntry| {
                let Description { dtype, shape, .. } = &v.description;
                v.rank == self.rank
                    && v.description.name == *name
                    && (*dtype, shape) == (array.whole.dtype, &array.whole.shape)
            };
            let Some(at) = checkpoint.entries().iter().position(same) else { continue };
            let bytes: Arc<dyn Blob> = Arc::new(VariableBlob::new(checkpoint, at));
            let Some(fields) = array.read_from(&bytes) else { continue };
            hidden.insert(VariableKey::new(self.rank, name));
            let whole = NamedVariable { name: name.clone(), origin: Some(self.origin(name)) };
            for field in fields {
                let (variable, field) = part_of(&whole, &array.whole, field);
                entries.push(field_entry(self.rank, variable, field));
            }
        }
        entries
    }

    /// Datasets whose values are in the skeleton, as far as they can be read.
    fn in_skeleton(
        &self,
        whole: &Extent,
        arrays: &Result<OpenedArrays>,
    ) -> Vec<SideEntry<'static>> {
        let mut entries = Vec::new();
        for dataset in &self.record.in_skeleton {
            let (rank, name) = (self.rank, dataset.variable.clone());
            let variable = NamedVariable { origin: Some(self.origin(&name)), name };
            let arrays = match arrays {
                Ok(arrays) => arrays,
                Err(error) => {
                    let (why, stored) = (error.clone(), Some(StoredBytes::all(whole)));
                    let unread = Unread { why, described: false, certain: true, stored };
                    entries.push(unread_entry(rank, variable, unread));
                    continue;
                }
            };
            let field = arrays.fields.iter().find(|field| field.description.name == dataset.name);
            let undecoded = arrays.undecoded.iter().find(|array| array.name == dataset.name);
            let structured =
                arrays.structured.iter().find(|array| array.whole.name == dataset.name);
            if let Some(field) = field {
                entries.push(field_entry(rank, variable, field.clone()));
            } else if let Some(array) = structured {
                for field in array.fields.clone() {
                    let (member, field) = part_of(&variable, &array.whole, field);
                    entries.push(field_entry(rank, member, field));
                }
            } else if let Some(undecoded) = undecoded {
                entries.push(undecoded_entry(rank, variable, undecoded.clone()));
            } else {
                // A value that is not found is not equal.
                let why = Error::damaged(format!("it was not found again: {}", dataset.why));
                let stored = Some(StoredBytes::all(whole));
                let unread = Unread { why, described: false, certain: true, stored };
                entries.push(unread_entry(rank, variable, unread));
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
            let (rank, own) = (variable.rank, name.to_string());
            FileView::new(rank, name, move || {
                Ok(StoredFile::read(&checkpoint, (&variable, &own))?.opened(&checkpoint))
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
        let (mut hidden, mut structure) = (HashSet::new(), Vec::new());
        let mut origins = HashMap::new();
        for record in file_records(&checkpoint) {
            let file = StoredFile::read(&checkpoint, record)?;
            let fields = file.record.fields.iter();
            origins.extend(fields.map(|v| (VariableKey::new(file.rank, v), file.origin(v))));
            hidden.extend(file.rest());
            structure.extend(file.structure(&checkpoint, &mut hidden));
        }
        let is_hidden = |v: &VariableEntry| !hidden.is_empty() && hidden.contains(&v.key());
        for (at, variable) in checkpoint.entries().iter().enumerate() {
            if !variable.is_hidden() && !is_hidden(variable) {
                entries.push(SideEntry {
                    rank: variable.rank,
                    description: variable.description.clone(),
                    origin: origins.remove(&variable.key()),
                    values: Some(Arc::new(VariableBlob::new(&checkpoint, at))),
                    trees: Vec::new(),
                    unread: None,
                    meaning: Interpretation::default(),
                    chunk: None,
                });
            }
        }
        entries.extend(structure);
        // Trees of bytes that are records or texts serve nothing.
        let is_shown = |view: &TreeView| {
            let key = VariableKey::new(view.entry.rank, &view.entry.description.name);
            hidden.is_empty() || !hidden.contains(&key)
        };
        let views = self.trees(&checkpoint).into_iter().filter(is_shown);
        views.for_each(|view| attach(&mut entries, view));
        if let Some(later) = self.checkpoint(&self.afterwards, step)? {
            // A step that was done again has other data than its tree was made from.
            let same =
                |of: &Description, view: &TreeView| of.is_same_array(&view.entry.description);
            let root = |view: &TreeView| -> Option<Digest> {
                let found = checkpoint
                    .entries()
                    .iter()
                    .find(|v| v.rank == view.entry.rank && same(&v.description, view));
                found.map(|v| v.root)
            };
            let views = self.trees(&later).into_iter().filter(is_shown);
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
                origin: None,
                values: Some(values),
                trees: Vec::new(),
                unread: None,
                meaning: Interpretation::default(),
                chunk: None,
            })
        };
        let mut entries: Vec<SideEntry> = variables.iter().map(entry).collect::<Result<_>>()?;
        for bytes in trees {
            let (_, views) = read_trees(Arc::new(Lent((*bytes).into())) as Arc<dyn Blob + 'a>)?;
            views.into_iter().for_each(|view| attach(&mut entries, view));
        }
        Ok(MemorySide { step: Step(step), entries })
    }

    /// Presents the arrays as those of another rank.
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
        open_file(path)?.read_exact(&mut prefix)?;
        Ok(prefix)
    };
    read().is_ok_and(|prefix| TreeFile::head_len(&prefix).is_ok())
}

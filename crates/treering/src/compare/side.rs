//! Sides of a comparison: variables with values, with trees, or with both.

use super::settings::matches_variable;
use super::view::ObjectView;
use crate::array::{DType, Description, Rank, Step};
use crate::error::{Error, Result};
use crate::format::{FileOrigin, TreeEntry, TreeFile};
use crate::merkle::Digest;
use crate::merkle::bounded::Layout;
use crate::source::{
    Extent, Interpretation, Inventory, RawLayout, StoredBytes, digest_of, inventory,
};
use crate::store::Blob;
use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One side of a comparison.
///
/// There are no default methods: a wrapper that forgets to forward one would turn "cannot be read" into
/// "equal".
///
/// ```
/// use treering::{DType, RawLayout, Side, SideEntry, open_side};
/// # let folder = tempfile::tempdir().unwrap();
/// # let file = folder.path().join("x.f64").display().to_string();
/// # std::fs::write(&file, [0u8; 80]).unwrap();
/// let raw = RawLayout::values(DType::F64, None); // most formats describe themselves and need none
/// let side: Box<dyn Side> = open_side(&file, Some(&raw), true)?;
/// for step in side.steps()? { // of a file: one, `None`
///     for SideEntry { description, unread, .. } in side.entries(step)? {
///         println!("{}: {} {}", description.name, description.dtype, description.shape);
///         assert!(unread.is_none()); // otherwise the reason why its values cannot be compared
///     }
///     assert_eq!(side.files(step)?.len(), 1); // for their attributes, links and texts
/// }
/// # Ok::<(), treering::Error>(())
/// ```
pub trait Side: Sync {
    /// Its name in messages and reports.
    fn name(&self) -> String;

    /// Its steps, ascending; a single `None` for a side without steps.
    fn steps(&self) -> Result<Vec<Option<Step>>>;

    /// The variables of a step.
    fn entries(&self, step: Option<Step>) -> Result<Vec<SideEntry<'_>>>;

    /// The files of a step, for their content beside arrays; empty if there are no files.
    fn files(&self, step: Option<Step>) -> Result<Vec<FileView>>;

    /// Number of its checkpoints that cannot be read.
    fn unreadable(&self) -> u64;

    /// Notes for people: problems that did not end the comparison.
    fn notes(&self) -> Vec<String>;
}

/// A variable of one side at one step. [`Side`] has an example.
#[derive(Clone)]
pub struct SideEntry<'a> {
    /// The rank.
    pub rank: Rank,
    /// Name, type and extent.
    pub description: Description,
    /// The file that it is an array of; `None` for arrays of programs, and where this is unknown.
    pub origin: Option<FileOrigin>,
    /// Its values, unless only trees were kept.
    pub values: Option<Arc<dyn Blob + 'a>>,
    /// Its trees.
    pub trees: Vec<TreeView<'a>>,
    /// The reason why its values cannot be compared, if they cannot.
    pub unread: Option<Unread>,
    /// Meaning of its values, beside their type. Default: plain values.
    pub meaning: Interpretation,
    /// Extent of the chunks in which a file holds the values, if walking along the array would decode each many times.
    pub chunk: Option<Vec<u64>>,
}

impl SideEntry<'_> {
    /// Whether values that are NaN have digests, which are the same for each of them.
    pub(super) fn may_hide_nan(&self) -> bool {
        matches!(self.meaning.kind, Some("number" | "sequence" | "record" | "array"))
    }

    /// The type in words: that of the values, also if there are only digests of them.
    pub(crate) fn type_name(&self) -> &'static str {
        self.meaning.kind.unwrap_or(self.description.dtype.name())
    }

    /// The reason why its values cannot be read, if they cannot.
    pub(crate) fn why_unread(&self) -> Option<&Error> {
        self.unread.as_ref().map(|unread| &unread.why)
    }

    /// Whether an item of a file says no more than that this array is there.
    pub(crate) fn is_object(&self, item: &str) -> bool {
        let object = item.strip_prefix("object ");
        object.is_some_and(|object| self.names().any(|name| name == object))
    }

    /// Whether digests on one side stand for other things than the values on the other side do. A tree alone does
    /// not tell what its values are.
    pub(super) fn is_unlike(&self, other: &SideEntry) -> bool {
        let known = self.values.is_some() && other.values.is_some();
        known && self.meaning.kind != other.meaning.kind
    }

    /// Whether a pattern is for this variable, or for the array that it is a part of. The name of the file may be left
    /// out.
    pub(super) fn is_named(&self, pattern: &str) -> bool {
        let is_for = |name: &str| matches_variable(pattern, name, self.origin.as_ref());
        is_for(&self.description.name) || self.meaning.array.as_deref().is_some_and(is_for)
    }

    /// The names that a pattern may be for.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let array = self.meaning.array.as_deref();
        let names = [Some(&self.description.name[..]), array].into_iter().flatten();
        names.flat_map(move |name| [name, self.own_part(name)]).map(str::to_string)
    }

    /// The name of the array in its file, or of the variable if there is no file. Empty if the array has none.
    pub(super) fn array_name(&self) -> &str {
        self.own_part(&self.description.name)
    }

    fn own_part<'n>(&self, name: &'n str) -> &'n str {
        self.origin.as_ref().map_or(name, |origin| origin.array(name))
    }

    /// The name behind that of the file, also if the file was named alone.
    pub(super) fn full_name(&self) -> Cow<'_, str> {
        let name = &self.description.name;
        match &self.origin {
            Some(origin) => Cow::Owned(origin.full_name(name)),
            None => Cow::Borrowed(name),
        }
    }

    /// The digest of the bytes in which values are stored that are not decoded, or of a file that is taken as bytes;
    /// none if nothing proves what the values are.
    pub(super) fn stored_digest(&self) -> Result<Option<Digest>> {
        match (&self.unread, &self.values) {
            (Some(unread), _) => unread.stored.as_ref().map_or(Ok(None), |stored| stored.digest()),
            (None, Some(bytes)) if self.description.dtype == DType::Bytes => {
                StoredBytes::digest_of_all(bytes.as_ref()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether type and extent are known.
    pub(super) fn is_described(&self) -> bool {
        self.unread.as_ref().is_none_or(|unread| unread.described)
    }
}

/// The reason why the values of a variable cannot be compared. Its stored bytes may prove all the same that it is equal.
/// [`Side`] has an example.
#[derive(Clone)]
pub struct Unread {
    pub(super) why: Error,
    /// Whether type and extent are known. If not, variables below its name cannot be read, either.
    pub(super) described: bool,
    /// Whether it is surely a variable or a file. If not, it may be a group without any.
    pub(super) certain: bool,
    pub(super) stored: Option<Arc<StoredBytes>>,
}

impl From<Error> for Unread {
    fn from(why: Error) -> Self {
        Unread { why, described: true, certain: true, stored: None }
    }
}

/// A file of one side at one step; it is opened when it is compared. [`Side`] has an example.
#[derive(Clone)]
pub struct FileView {
    /// The rank.
    pub rank: Rank,
    /// Its name; files of the same name and rank belong together.
    pub name: String,
    /// Its name among files of the other side.
    pub(super) known_as: String,
    /// The reason why it is not read, if it is no file.
    pub(super) no_file: Option<NoFile>,
    pub(super) open: Arc<dyn Fn() -> Result<OpenedFile> + Send + Sync>,
}

/// The reason why something of a folder is not read.
#[derive(Clone)]
pub(super) struct NoFile {
    pub(super) why: &'static str,
    /// The place that it names, if it is a link that leads nowhere.
    target: Option<PathBuf>,
}

impl NoFile {
    /// Whether both are links to the same place, which is not there.
    pub(super) fn is_same_link(&self, other: &NoFile) -> bool {
        self.target.is_some() && self.target == other.target
    }
}

/// A file whose content is about to be compared.
pub(super) struct OpenedFile {
    /// The digest of all its bytes, if it is known without reading them.
    pub(super) digest: Option<Digest>,
    pub(super) content: FileContent,
}

/// The way to what a file holds beside arrays.
pub(super) enum FileContent {
    /// A file that describes itself, or for which there is a layout.
    Whole(Extent, Option<RawLayout>),
    /// One object of such a file, or the target of its links.
    View(ObjectView),
    /// A file of a format that does not describe itself: these bytes belong to no array.
    Beside(String, Vec<u8>),
    /// A file that cannot be read: as a variable, it has the reason.
    Unread,
}

impl FileView {
    pub(super) fn new(
        rank: Rank,
        name: &str,
        open: impl Fn() -> Result<OpenedFile> + Send + Sync + 'static,
    ) -> Self {
        let (name, known_as) = (name.to_string(), name.to_string());
        FileView { rank, name, known_as, no_file: None, open: Arc::new(open) }
    }

    /// Something of a folder that is no file, with the place that it names if it is a link that leads nowhere.
    pub(super) fn of_no_file(name: &str, why: &'static str, target: Option<PathBuf>) -> Self {
        let unread = || Ok(OpenedFile { digest: None, content: FileContent::Unread });
        let no_file = Some(NoFile { why, target });
        FileView { no_file, ..FileView::new(Rank(0), name, unread) }
    }

    /// Content beside arrays.
    pub(crate) fn inventory(&self) -> Result<Inventory> {
        (self.open)()?.inventory()
    }

    /// A file of a format that does not describe itself, of which these bytes belong to no array.
    pub fn of_bytes(rank: Rank, name: &str, beside: &[u8]) -> Self {
        let beside = beside.to_vec();
        FileView::new(rank, name, move || {
            let content = FileContent::Beside("bytes".into(), beside.clone());
            Ok(OpenedFile { digest: None, content })
        })
    }
}

impl OpenedFile {
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.content, FileContent::Unread)
    }

    /// Content beside arrays.
    pub(super) fn inventory(&self) -> Result<Inventory> {
        match &self.content {
            FileContent::Unread => Ok(Inventory::default()),
            FileContent::Whole(whole, raw) => inventory(whole, raw.as_ref()),
            FileContent::View(view) => view.inventory(),
            FileContent::Beside(format, bytes) => Ok(Inventory::of_bytes(format, bytes)),
        }
    }

    /// Whether two files have the same bytes, as far as that is known without reading them.
    pub(super) fn is_known_same(&self, other: &OpenedFile) -> bool {
        self.digest.is_some() && self.digest == other.digest
    }

    /// The digest of all its bytes, read if need be.
    pub(super) fn digest(&self) -> Result<Option<Digest>> {
        match (&self.digest, &self.content) {
            (Some(digest), _) => Ok(Some(*digest)),
            (None, FileContent::Whole(whole, _)) => digest_of(whole).map(Some),
            // The bytes of a file say nothing about two objects of it, nor about what links lead to.
            (None, FileContent::View(_) | FileContent::Beside(..) | FileContent::Unread) => {
                Ok(None)
            }
        }
    }
}

/// A tree that is read as far as needed.
#[derive(Clone)]
pub struct TreeView<'a> {
    /// The description of the tree in the head of its file.
    pub entry: TreeEntry,
    /// Whether its bound is meant as that of the data.
    pub(super) declares: bool,
    pub(super) layout: Layout,
    /// Its share of the head's bytes.
    pub(super) head: u64,
    blob: Arc<dyn Blob + 'a>,
}

/// Counter of bytes that were read.
#[derive(Default)]
pub(super) struct Meter(AtomicU64);

impl Meter {
    pub(super) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reads the head of a tree file, and what trees it has.
pub fn read_trees<'a>(blob: Arc<dyn Blob + 'a>) -> Result<(TreeFile, Vec<TreeView<'a>>)> {
    let mut prefix = [0; TreeFile::PREFIX];
    let too_short = || Error::damaged("a tree file ends within its head");
    if blob.size() < prefix.len() as u64 {
        return Err(too_short());
    }
    blob.read_at(0, &mut prefix)?;
    let len = TreeFile::head_len(&prefix)?;
    if len > blob.size() {
        return Err(too_short());
    }
    let mut head = vec![0; len as usize];
    blob.read_at(0, &mut head)?;
    let file = TreeFile::parse(&head)?;
    if file.len()? > blob.size() {
        return Err(Error::damaged("a tree file is shorter than its head says"));
    }
    let view = |entry: &TreeEntry| {
        let layout = entry.layout()?;
        Ok(TreeView {
            entry: entry.clone(),
            declares: file.origin.declares_bounds(),
            layout,
            head: len / file.entries.len() as u64,
            blob: blob.clone(),
        })
    };
    let views = file.entries.iter().map(view).collect::<Result<_>>()?;
    Ok((file, views))
}

impl TreeView<'_> {
    /// Reads a part of the body.
    pub(super) fn read(&self, range: Range<u64>, meter: &Meter) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.read_into(range.start, &mut bytes, meter)?;
        Ok(bytes)
    }

    /// The file that holds it, and where in it the body begins.
    pub(super) fn file(&self) -> Option<(&File, u64)> {
        self.blob.file().map(|(file, _, base)| (file, base + self.entry.offset))
    }

    pub(super) fn read_into(&self, at: u64, out: &mut [u8], meter: &Meter) -> Result<()> {
        meter.add(out.len() as u64);
        self.blob.read_at(self.entry.offset + at, out)
    }
}

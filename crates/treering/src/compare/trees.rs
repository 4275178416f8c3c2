//! Making trees of data that is there already: beside files, as golden files, or to be compared at
//! once.

use super::engine::Progress;
use super::partners::{PartnerNames, name_as_partners};
use super::settings::{CompareSettings, matches_variable};
use super::side::{FileView, Side, SideEntry, read_trees};
use super::sides::{Held, identity, sidecar};
use super::tree_settings::{TreeSettings, put_head};
use crate::array::Step;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{TREE_FRONT, TreeEntry, TreeFile, TreeOrigin, variable_name};
use crate::io::{AtomicFile, open_file};
use crate::merkle::bounded::{Builder, Image, Recipe};
use crate::source::{self, RawLayout};
use crate::store::Blob;
use std::borrow::Cow;

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Builds the trees of some values, read piece by piece.
pub(crate) fn build(
    dtype: crate::array::DType,
    recipes: &[Recipe],
    values: &dyn Blob,
    front: usize,
    told: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Image>> {
    let builder = Builder::new(dtype, recipes).front(front);
    builder.build_from(values.size(), !values.in_order(), |range, work| {
        let len = range.end - range.start;
        let mut buffer: Vec<u8> = crate::memory::zeroed(len)?;
        values.read_at(range.start, &mut buffer)?;
        work(&buffer);
        told(len);
        Ok(())
    })
}

/// Makes the trees of the arrays of a file, or of those that match a pattern, and writes them to the file
/// [`sidecar`](crate::sidecar) beside it, whose path is returned. That file appears when it is complete. If no array
/// matches, or the file changes meanwhile, the result is an error and nothing is written. Arrays whose values lie in other
/// files (virtual datasets, external storage) get no trees: the file does not show when these change.
///
/// ```
/// use treering::{Bound, DType, RawLayout, TreeSettings, make_trees_beside, sidecar};
/// # let folder = tempfile::tempdir().unwrap();
/// # let data = folder.path().join("x.f64");
/// # std::fs::write(&data, [1.0f64; 1000].map(f64::to_le_bytes).concat()).unwrap();
/// let raw = RawLayout::values(DType::F64, None);
/// let settings = TreeSettings { bounds: vec![Bound::abs(1e-6)], ..TreeSettings::default() };
/// let trees = make_trees_beside(&data, Some(&raw), &[], &settings, &|_, _| {})?;
/// assert_eq!(trees, sidecar(&data));
/// # Ok::<(), treering::Error>(())
/// ```
pub fn make_beside(
    path: &Path,
    raw: Option<&RawLayout>,
    patterns: &[String],
    settings: &TreeSettings,
    progress: Progress,
) -> Result<PathBuf> {
    settings.check()?;
    let before = settled_identity(path)?;
    let mut fields = source::open(path, raw)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let named = |pattern: &str, array: &str| {
        let whole = variable_name(&name, array);
        matches_variable(pattern, array, None) || matches_variable(pattern, &whole, None)
    };
    fields.retain(|field| {
        let array = &field.description.name;
        patterns.is_empty() || patterns.iter().any(|pattern| named(pattern, array))
    });
    if fields.is_empty() {
        return Err(nothing_in(path, !patterns.is_empty()));
    }
    // A tree is used as long as this file is the same.
    fields.retain(|field| field.place.is_some() && field.meaning.quads.is_none());
    if fields.is_empty() {
        let what =
            format!("the values of {} lie in other files, or are long doubles", path.display());
        return Err(Error::usage(what)
            .hint("make trees of those files: this one does not show when they change"));
    }
    let total: u64 = fields.iter().map(|field| field.bytes.size()).sum();
    let done = AtomicU64::new(0);
    let told = |bytes| progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
    let mut made = Vec::new();
    for field in &fields {
        let array = &field.description.name;
        let recipes = settings.recipes(field.description.dtype, |pattern| named(pattern, array))?;
        if recipes.is_empty() {
            continue;
        }
        let images = build(field.description.dtype, &recipes, field.bytes.as_ref(), 0, &told)
            .map_err(|e| e.at(path.display()))?;
        for image in images {
            let exact = field.place.unwrap_or_default();
            made.push((TreeEntry { exact, ..TreeEntry::new(&field.description, &image) }, image));
        }
    }
    if made.is_empty() {
        return Err(nothing_in(path, true));
    }
    if identity(path)? != before {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("{} changed while its tree was made", path.display()),
        )
        .hint("wait until it is written, and make it again"));
    }
    let beside = sidecar(path);
    write(&beside, before, made)?;
    Ok(beside)
}

fn nothing_in(path: &Path, chosen: bool) -> Error {
    let what = if chosen { "no array that matches" } else { "no array" };
    Error::new(ErrorKind::NotFound, format!("{} has {what}, so it gets no tree", path.display()))
        .hint("`treering show` lists what it holds; give the type of a raw file with --type")
}

/// The identity of a file, read when a later change is sure to get another time.
fn settled_identity(path: &Path) -> Result<TreeOrigin> {
    const TICK: Duration = Duration::from_millis(50);
    let origin = identity(path)?;
    if let TreeOrigin::File { changed, entered, .. } = origin {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // The first can be set back.
        let newest = Duration::from_nanos(changed.max(entered));
        if now.saturating_sub(newest) < TICK {
            std::thread::sleep(TICK);
        }
    }
    Ok(origin)
}

/// Refuses to replace a file that is no tree file.
fn refuse_others(path: &Path) -> Result<()> {
    let is_other = |path: &Path| -> Option<bool> {
        let mut start = Vec::new();
        let file = std::fs::metadata(path).ok().filter(|meta| meta.is_file() && meta.len() > 0);
        file.and_then(|_| open_file(path).ok())?.take(8).read_to_end(&mut start).ok()?;
        Some(!TreeFile::is_magic(&start))
    };
    if is_other(path) != Some(true) {
        return Ok(());
    }
    Err(Error::usage(format!("{} exists and is not a tree file", path.display()))
        .hint("nothing is replaced but tree files: choose another name, or move it away"))
}

/// Writes a tree file: whole, or not at all.
fn write(path: &Path, origin: TreeOrigin, made: Vec<(TreeEntry, Image)>) -> Result<()> {
    let (entries, images): (Vec<TreeEntry>, Vec<Image>) = made.into_iter().unzip();
    let mut file = TreeFile { origin, entries };
    let head = file.write()?;
    refuse_others(path)?;
    let mut out = AtomicFile::create(path)?;
    out.write(&head)?;
    let mut at = head.len() as u64;
    for (entry, image) in file.entries.iter().zip(&images) {
        out.write(&vec![0; (entry.offset - at) as usize])?;
        out.write(image.body())?;
        at = entry.offset + image.body().len() as u64;
    }
    out.finish()
}

/// Writes the trees of all variables that a comparison would use to a file that stands for a side: a golden file. Returns
/// its size. Settings of four planes or more are replaced by as many as prove differences within their bound. The example
/// of [`Golden`](crate::Golden) shows its use.
pub fn record(
    side: &dyn Side,
    choice: &CompareSettings,
    settings: &TreeSettings,
    path: &Path,
    progress: Progress,
) -> Result<u64> {
    settings.check()?;
    let (mut made, mut names) = (Vec::new(), BTreeSet::new());
    for step in side.steps()? {
        let entries = side.entries(step)?;
        names.extend(entries.iter().flat_map(|entry| entry.names()));
        for entry in entries.iter().filter(|e| choice.wants(e)) {
            if let Some(unread) = &entry.unread {
                return Err(unread.why.clone());
            }
            if entry.meaning.quads.is_some() {
                let what = format!(
                    "variable {:?} has long doubles, of which no trees are made",
                    entry.description.name
                );
                return Err(Error::usage(what).hint("leave it out with --exclude"));
            }
            let dtype = entry.description.dtype;
            let recipes = settings.recipes(dtype, |pattern| entry.is_named(pattern))?;
            if recipes.is_empty() {
                continue;
            }
            let Some(values) = &entry.values else {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("variable {:?} has no values", entry.description.name),
                )
                .hint("record from a run that keeps its data"));
            };
            let done = AtomicU64::new(0);
            let told =
                |bytes| progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes, values.size());
            let recipes: Vec<Recipe> =
                recipes.into_iter().map(|recipe| recipe.proving(dtype)).collect();
            for image in build(dtype, &recipes, values.as_ref(), 0, &told)? {
                let tree = TreeEntry::new(&entry.description, &image);
                let file = entry.origin.clone();
                made.push((TreeEntry { step, rank: entry.rank, file, ..tree }, image));
            }
        }
    }
    choice.check_exclude(&names)?;
    if made.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "there is nothing to record")
            .hint("no variable matches, or there is none"));
    }
    write(path, TreeOrigin::Recorded, made)?;
    Ok(std::fs::metadata(path).map_or(0, |meta| meta.len()))
}

/// A side whose variables are given trees like those of another one, where they have none. The example of
/// [`Golden`](crate::Golden) shows its use.
pub struct TreedSide<'s> {
    side: &'s dyn Side,
    like: &'s dyn Side,
    read: AtomicU64,
}

impl<'s> TreedSide<'s> {
    /// Gives the variables of `side` trees, so that it can be compared with `like`.
    pub fn new(side: &'s dyn Side, like: &'s dyn Side) -> Self {
        TreedSide { side, like, read: AtomicU64::new(0) }
    }

    /// The bytes of values that were read to make trees.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

impl Side for TreedSide<'_> {
    fn name(&self) -> String {
        self.side.name()
    }

    fn steps(&self) -> Result<Vec<Option<Step>>> {
        self.side.steps()
    }

    fn entries(&self, step: Option<Step>) -> Result<Vec<SideEntry<'_>>> {
        let mut entries = self.side.entries(step)?;
        let of_like = self.like.steps()?;
        let their_step = if of_like.len() == 1 { of_like[0] } else { step };
        let mut models = self.like.entries(their_step)?;
        let lone = entries.len() == 1 && models.len() == 1;
        // The ranks and names that a comparison gives them.
        let mut aliases = entries.clone();
        name_as_partners((step, &mut aliases, &mut []), (their_step, &mut models, &mut []));
        let names = PartnerNames::of(&aliases, &models);
        let named: Vec<Cow<str>> = models.iter().map(|model| names.name(model)).collect();
        for (entry, alias) in entries.iter_mut().zip(&aliases) {
            let own = names.name(alias);
            // Trees of boxes are compared between the same boxes, whichever ranks have them.
            let model = models.iter().zip(&named).find(|(m, name)| {
                let (p, q) = (&m.description, &entry.description);
                let same_box = p.shape == q.shape && p.part == q.part;
                lone || **name == own
                    && if p.global_box().is_some() { same_box } else { m.rank == alias.rank }
            });
            let (Some(_), Some((model, _))) = (&entry.values, model) else { continue };
            // Trees alone have the order that they were made in.
            if model.values.is_none() {
                entry.reorder(model.description.order);
            }
            let Some(values) = entry.values.clone() else { continue };
            let quads = entry.meaning.quads.is_some();
            if model.description.dtype != entry.description.dtype || quads {
                continue;
            }
            let mut recipes: Vec<Recipe> = model.trees.iter().map(|t| t.entry.recipe).collect();
            recipes.retain(|r| !entry.trees.iter().any(|t| t.entry.recipe == *r));
            let dtype = entry.description.dtype;
            for recipe in recipes {
                let told = |bytes| {
                    self.read.fetch_add(bytes, Ordering::Relaxed);
                };
                let images = build(dtype, &[recipe], values.as_ref(), TREE_FRONT, &told);
                let images = match images {
                    Ok(images) => images,
                    // Other variables can be compared all the same.
                    Err(error) => {
                        entry.unread = Some(error.into());
                        break;
                    }
                };
                for mut image in images {
                    put_head(&entry.description, &mut image, TreeOrigin::None, Default::default())?;
                    let (_, views) = read_trees(Arc::new(Held(image.bytes)) as Arc<dyn Blob>)?;
                    entry.trees.extend(views);
                }
            }
        }
        Ok(entries)
    }

    fn files(&self, step: Option<Step>) -> Result<Vec<FileView>> {
        self.side.files(step)
    }

    fn unreadable(&self) -> u64 {
        self.side.unreadable()
    }

    fn notes(&self) -> Vec<String> {
        self.side.notes()
    }
}

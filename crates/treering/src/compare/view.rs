//! A file as a person names it: all of it or one object, and with what its links lead to, or without.
//!
//! A view is a *root*, an object of the file, and *aliases*: objects that are seen under further names. With links followed,
//! these are all objects that links below the root lead to, in this file or in others, and those behind links in them. A
//! link that leads nowhere, or to a group that it lies in, stays a link, which is compared by its destination. Otherwise they
//! are the objects of hard links below the root whose other names are all outside of it: nobody else compares these.
//!
//! Values, attributes, types and packing are all seen through the same view, so that one cannot be forgotten.

use super::side::{FileContent, FileView, OpenedFile, SideEntry};
use super::sides::FileSide;
use crate::array::Rank;
use crate::error::{Error, ErrorKind, Result};
use crate::source::{
    Extent, Inventory, LinkedPlace, PackedNumbers, RawLayout, beside, inventory, is_in, open_whole,
    packed_arrays,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of files that are opened on the way to an object.
const MOST_FILES: u32 = 8;
/// The most objects that are seen under further names. Links to groups with links can make any number of them.
const MOST_ALIASES: usize = 10_000;

/// One object of a file with everything below it, and objects of this or other files under further names.
#[derive(Clone)]
pub(super) struct ObjectView {
    /// The file, and those that aliases are in.
    files: Arc<[Extent]>,
    raw: Option<RawLayout>,
    root: String,
    aliases: Arc<[Alias]>,
}

struct Alias {
    /// Its path in the view, before names are those below the root.
    name: String,
    /// The number of its file.
    file: usize,
    object: String,
}

impl ObjectView {
    /// Content beside arrays.
    pub(super) fn inventory(&self) -> Result<Inventory> {
        let of = |file: &Extent| inventory(file, self.raw.as_ref());
        let all: Vec<Inventory> = self.files.iter().map(of).collect::<Result<_>>()?;
        let mut here = all[0].clone();
        for alias in self.aliases.iter() {
            here.add_below(&alias.name, all[alias.file].clone().only(&alias.object));
        }
        let names: BTreeSet<String> = self.aliases.iter().map(|alias| alias.name.clone()).collect();
        Ok(here.without_links(&names).only(&self.root))
    }

    /// The arrays by their names in the view, and how their numbers are packed.
    pub(super) fn packed_arrays(&self) -> Result<Vec<(String, Option<PackedNumbers>)>> {
        let all: Vec<_> = self.files.iter().map(packed_arrays).collect::<Result<_>>()?;
        let mut seen = all[0].clone();
        for alias in self.aliases.iter() {
            let below = all[alias.file]
                .iter()
                .filter_map(|(array, packed)| Some((alias.seen_as(array)?, packed.clone())));
            seen.extend(below);
        }
        let below = |name: String| in_root(&self.root, &name).map(str::to_string);
        Ok(seen.into_iter().filter_map(|(name, packed)| Some((below(name)?, packed))).collect())
    }

    /// Whether it is this array and nothing else.
    pub(super) fn is_array(&self, name: &str) -> bool {
        !self.root.is_empty() && self.root == name
    }
}

impl Alias {
    /// The path under which a path of its file is seen; none if it is not below the object.
    fn seen_as(&self, path: &str) -> Option<String> {
        let rest = is_in(path, &self.object)?;
        Some(joined(&self.name, rest))
    }
}

fn joined(above: &str, rest: &str) -> String {
    match (above.is_empty(), rest.is_empty()) {
        (true, _) => rest.to_string(),
        (_, true) => above.to_string(),
        _ => format!("{above}/{rest}"),
    }
}

/// The name below the root. An array that is the root keeps its own.
fn in_root<'n>(root: &str, name: &'n str) -> Option<&'n str> {
    is_in(name, root).map(|rest| if rest.is_empty() { name } else { rest })
}

/// A file on the way, and what it holds beside arrays.
struct WalkedFile {
    path: PathBuf,
    /// The same without links of the file system.
    real: PathBuf,
    whole: Extent,
    all: Inventory,
    /// Its arrays, once they are needed.
    side: Option<FileSide>,
}

/// Finds the objects that are seen under further names.
struct LinkWalk<'r> {
    raw: Option<&'r RawLayout>,
    follow: bool,
    root: String,
    files: Vec<WalkedFile>,
    aliases: Vec<Alias>,
    /// The objects that are being looked through: links to what holds them have no end.
    within: Vec<(usize, String)>,
}

impl LinkWalk<'_> {
    /// The number of a file; none if it is missing.
    fn file(&mut self, path: &Path) -> Result<Option<usize>> {
        let Ok(real) = path.canonicalize() else { return Ok(None) };
        if let Some(known) = self.files.iter().position(|file| file.real == real) {
            return Ok(Some(known));
        }
        if !real.is_file() {
            return Ok(None);
        }
        let whole = open_whole(path)?;
        let all = inventory(&whole, self.raw)?;
        let path = path.to_path_buf();
        self.files.push(WalkedFile { path, real, whole, all, side: None });
        Ok(Some(self.files.len() - 1))
    }

    /// The object that a path of a file leads to; none if it leads nowhere.
    fn target(&mut self, mut file: usize, path: &str) -> Result<Option<(usize, String)>> {
        let mut path = path.to_string();
        for _ in 0..MOST_FILES {
            let WalkedFile { all, path: here, .. } = &self.files[file];
            match all.resolve(&path) {
                Some(LinkedPlace::Here(there)) => {
                    return Ok(all.has(&there).then_some((file, there)));
                }
                Some(LinkedPlace::Elsewhere(other, there)) => {
                    let Some(other) = beside(here, Path::new(&other)) else { return Ok(None) };
                    let Some(next) = self.file(&other)? else { return Ok(None) };
                    (file, path) = (next, there);
                }
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Looks through the links below an object that is seen under a name.
    fn walk(&mut self, file: usize, object: &str, name: &str) -> Result<()> {
        let links: Vec<String> = self.files[file].all.links().cloned().collect();
        for link in links {
            let Some(rest) = is_in(&link, object).filter(|rest| !rest.is_empty()) else { continue };
            let Some((of, there)) = self.target(file, &link)? else { continue };
            let seen = |root: &str| of == file && is_in(&there, root).is_some();
            let known = seen(object) || of == 0 && is_in(&there, &self.root).is_some();
            if !self.follow && (known || !self.files[file].all.is_hard(&link)) {
                continue;
            }
            let holds =
                |(other, inner): &(usize, String)| *other == of && is_in(inner, &there).is_some();
            if of == file && is_in(&link, &there).is_some() || self.within.iter().any(holds) {
                continue;
            }
            if self.aliases.len() == MOST_ALIASES {
                let what = format!("more than {MOST_ALIASES} objects are behind links");
                return Err(
                    Error::new(ErrorKind::Limit, what).hint("compare without --follow-links")
                );
            }
            let own = joined(name, rest);
            self.aliases.push(Alias { name: own.clone(), file: of, object: there.clone() });
            self.within.push((of, there.clone()));
            self.walk(of, &there, &own)?;
            self.within.pop();
        }
        Ok(())
    }

    /// The arrays of an alias, under the names of the view.
    fn entries(&mut self, alias: &Alias) -> Result<Vec<SideEntry<'static>>> {
        let file = &mut self.files[alias.file];
        let side = match &mut file.side {
            Some(side) => side,
            none => none.insert(FileSide::open(&file.path, self.raw, false)?),
        };
        Ok(side.entries.iter().filter_map(|entry| entry.seen_through(alias)).collect())
    }
}

impl SideEntry<'static> {
    /// The same array under the name of an alias; none if it is not below it.
    fn seen_through(&self, alias: &Alias) -> Option<SideEntry<'static>> {
        // Members of records have the names of their arrays, a point and their own.
        let array = self.meaning.array.as_deref().unwrap_or(&self.description.name);
        let name = alias.seen_as(array)?;
        let member = self.description.name.strip_prefix(array).unwrap_or_default();
        let mut seen = self.clone();
        seen.description.name = format!("{name}{member}");
        seen.meaning.array = self.meaning.array.as_ref().map(|_| name);
        seen.trees.clear();
        Some(seen)
    }
}

impl FileSide {
    /// Opens one object of a file: an array, or all that a group holds by the names in it. Links on the way are followed,
    /// also to other files, and with `follow` those below it.
    pub(crate) fn open_object(
        path: &Path,
        object: &str,
        raw: Option<&RawLayout>,
        trees: bool,
        follow: bool,
    ) -> Result<FileSide> {
        let asked = format!("{}:{object}", path.display());
        let object = object.trim_matches('/').to_string();
        let (files, aliases, within) = (Vec::new(), Vec::new(), Vec::new());
        let mut walk = LinkWalk { raw, follow, root: object.clone(), files, aliases, within };
        let first = match walk.file(path) {
            Ok(Some(first)) => first,
            // A file of which only arrays are understood, or none.
            _ => return FileSide::open(path, raw, trees)?.only(&object, Vec::new()),
        };
        let Some((file, there)) = walk.target(first, &object)? else {
            let to = walk.files[first].all.resolve(&object);
            let side = FileSide::open(path, raw, trees)?;
            return match to {
                Some(LinkedPlace::Here(there)) if there == object => side.only(&object, Vec::new()),
                Some(to) => Err(Error::new(
                    ErrorKind::NotFound,
                    format!("{asked} leads to {to}, which is missing"),
                )),
                None => Err(Error::new(ErrorKind::NotFound, format!("{asked} leads in circles"))),
            };
        };
        walk.files.swap(0, file);
        walk.files.truncate(1);
        walk.root = there;
        walk.side(trees).map(|side| FileSide { name: asked, ..side })
    }

    /// Opens a file and follows its links: an object that a link leads to has the name of the link, too.
    pub(crate) fn open_following(
        path: &Path,
        raw: Option<&RawLayout>,
        trees: bool,
    ) -> Result<FileSide> {
        let (files, aliases, within) = (Vec::new(), Vec::new(), Vec::new());
        let mut walk = LinkWalk { raw, follow: true, root: String::new(), files, aliases, within };
        match walk.file(path) {
            Ok(Some(_)) => {
                let side = walk.side(trees)?;
                Ok(FileSide { name: path.display().to_string(), ..side })
            }
            _ => FileSide::open(path, raw, trees),
        }
    }

    /// One array, or all of a group by their names in it, with arrays of aliases.
    fn only(mut self, object: &str, more: Vec<SideEntry<'static>>) -> Result<FileSide> {
        let total = self.entries.len();
        let some = self.entries.first().map(|entry| entry.description.name.clone());
        self.entries.extend(more);
        self.entries.retain_mut(|entry| entry.is_below(object));
        if self.entries.is_empty() && !self.has(object)? {
            let such_as = some.map_or(String::new(), |name| format!(", such as {name:?}"));
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{} has no object {object:?}", self.name),
            )
            .hint(format!("there are {total} arrays{such_as}")));
        }
        Ok(self)
    }

    /// Whether there is such an object, also if it has no arrays.
    fn has(&self, object: &str) -> Result<bool> {
        let all = self.files.first().map(FileView::inventory).transpose()?;
        Ok(all.is_some_and(|all| all.has(object)))
    }
}

impl LinkWalk<'_> {
    /// The side of a view of the first file.
    fn side(mut self, trees: bool) -> Result<FileSide> {
        let root = self.root.clone();
        self.within.push((0, root.clone()));
        self.walk(0, &root, &root)?;
        let mut side = FileSide::open(&self.files[0].path, self.raw, trees)?;
        let (mut more, aliases) = (Vec::new(), std::mem::take(&mut self.aliases));
        for alias in &aliases {
            let mut entries = self.entries(alias)?;
            let origin =
                side.files.first().map(|file| crate::format::FileOrigin::named(&file.name));
            entries.iter_mut().for_each(|entry| entry.origin = origin.clone());
            more.append(&mut entries);
        }
        side = side.only(&root, more)?;
        if root.is_empty() && aliases.is_empty() {
            return Ok(side);
        }
        let view = ObjectView {
            files: self.files.iter().map(|file| file.whole.clone()).collect(),
            raw: self.raw.cloned(),
            root,
            aliases: aliases.into(),
        };
        let name = side.files.first().map(|file| file.name.clone()).unwrap_or_default();
        side.files = vec![FileView::new(Rank(0), &name, move || {
            Ok(OpenedFile { digest: None, content: FileContent::View(view.clone()) })
        })];
        Ok(side)
    }
}

impl SideEntry<'static> {
    /// Whether it is an object or below it; then it has its name in it.
    fn is_below(&mut self, object: &str) -> bool {
        let array = self.meaning.array.clone().unwrap_or_else(|| self.description.name.clone());
        let Some(own) = in_root(object, &array) else { return false };
        self.meaning.chosen = !object.is_empty() && array == object;
        let member = self.description.name.strip_prefix(&array).unwrap_or_default();
        self.description.name = format!("{own}{member}");
        self.meaning.array = self.meaning.array.as_ref().map(|_| own.to_string());
        true
    }
}

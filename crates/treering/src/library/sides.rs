//! From what people write to what can be compared.

use super::{Library, Place};
use crate::array::Step;
use crate::compare::{FileSide, Golden, Side, StoredSide, is_tree_file};
use crate::error::{Error, ErrorKind, Result};
use crate::source::RawLayout;
use crate::store::DirectoryStore;
use std::path::Path;
use std::sync::Arc;

/// Opens `STORE#RUN`, `STORE#RUN@STEP`, a file, `FILE:NAME` (an array or a group of a file), a folder of files or a tree
/// file.
///
/// `raw` is the layout of files whose format does not describe itself; without `trees`, tree files beside files are
/// ignored.
///
/// ```
/// use treering::{Bound, CompareSettings, DType, RawLayout, compare, open_side};
/// # let folder = tempfile::tempdir().unwrap();
/// # let [a, b] = ["a.f64", "b.f64"].map(|name| folder.path().join(name).display().to_string());
/// std::fs::write(&a, 1.0f64.to_le_bytes()).unwrap();
/// std::fs::write(&b, 1.5f64.to_le_bytes()).unwrap();
/// let raw = RawLayout::values(DType::F64, None);
/// let (a, b) = (open_side(&a, Some(&raw), false)?, open_side(&b, Some(&raw), false)?);
/// let settings = CompareSettings::within(Bound::abs(0.1));
/// let outcome = compare(a.as_ref(), b.as_ref(), &settings, None, &|_, _| {})?;
/// assert_eq!(outcome.differences, 1);
/// # Ok::<(), treering::Error>(())
/// ```
pub fn open_side(text: &str, raw: Option<&RawLayout>, trees: bool) -> Result<Box<dyn Side>> {
    let path = Path::new(text);
    if path.is_file() && is_tree_file(path) {
        return Ok(Box::new(Golden::open(path)?));
    }
    if path.is_dir() && Library::open(path).is_ok() {
        let names = Library::open(path)?.run_names()?;
        return match &names[..] {
            [run] => stored(path, run, None),
            _ => Err(Error::usage(format!("{text} is a store of {} runs", names.len()))
                .hint(format!("name one, as in {text}#{}", names.first().map_or("RUN", |n| n)))),
        };
    }
    if let Some((file, object)) = named_object(text) {
        return Ok(Box::new(FileSide::open_object(file, object, raw, trees, false)?));
    }
    if path.exists() || !text.contains('#') {
        return Ok(Box::new(FileSide::open(path, raw, trees)?));
    }
    let place = Place::parse(text)?;
    if !place.store.is_dir() {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("there is no store {}", place.store.display()),
        )
        .hint("give the folder that a run was opened in"));
    }
    match &place.run {
        Some(run) => stored(&place.store, run, place.step),
        None => Err(Error::usage(format!("{text} names no run")).hint("write STORE#RUN")),
    }
}

/// Opens a side as [`open_side`] does; links in an HDF5 file are followed, and what they lead to is compared under the
/// names of the links. A folder or a run is an error.
pub fn open_side_following(
    text: &str,
    raw: Option<&RawLayout>,
    trees: bool,
) -> Result<Box<dyn Side>> {
    let path = Path::new(text);
    if path.is_file() && !is_tree_file(path) {
        return Ok(Box::new(FileSide::open_following(path, raw, trees)?));
    }
    match named_object(text) {
        Some((file, object)) => {
            Ok(Box::new(FileSide::open_object(file, object, raw, trees, true)?))
        }
        None if path.is_file() => open_side(text, raw, trees),
        None => {
            Err(Error::usage(format!("{text} is not a file; links are followed in files only"))
                .hint("compare its files one by one, or leave --follow-links out"))
        }
    }
}

/// A file and the name of an array or a group in it, unless the whole text is the name of something.
pub(super) fn named_object(text: &str) -> Option<(&Path, &str)> {
    let splits = text.rmatch_indices(':').map(|(at, _)| (Path::new(&text[..at]), &text[at + 1..]));
    let mut named = splits.filter(|(file, object)| file.is_file() && !object.is_empty());
    named.next().filter(|_| !Path::new(text).exists())
}

fn stored(store: &Path, run: &str, step: Option<u64>) -> Result<Box<dyn Side>> {
    let store = Arc::new(DirectoryStore::new(store));
    Ok(Box::new(StoredSide::open(store, run, step.map(Step))?))
}

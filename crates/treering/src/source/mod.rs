//! Foreign files as variables, and back byte for byte: HDF5 and netCDF, `.npy`, `.npz`, safetensors,
//! raw files of a given type.
//!
//! A file is opened and its head is read; a variable then is a description and a view of bytes that
//! are read on request. A file is known by its first bytes, not by its name. Every claim of a file
//! is checked against its length before anything else sees it.
//!
//! [`open`] gives the arrays of a file for comparison. [`take_apart`] gives arrays and a skeleton, of
//! which [`rebuild`](crate::format::Skeleton::rebuild) makes the file again. The law: what was taken
//! apart comes back byte for byte, whatever the file is.

mod anatomy;
mod chunks;
mod extent;
mod filter;
mod found;
mod grid;
mod hdf5;
mod inventory;
mod netcdf;
mod npy;
mod npz;
mod numpy_type;
mod outside;
mod parts;
mod plan;
mod proof;
mod raw;
mod rebuild;
mod rendered;
mod reordered;
mod rounded;
mod safetensors;
mod spread;
mod undecoded;
mod unfinished;
mod unusual;
mod widened;
mod window;

pub(crate) use anatomy::digest_of;
pub use anatomy::{Anatomy, take_apart, take_whole};
pub use extent::Extent;
pub(crate) use found::PackedNumbers;
pub(crate) use hdf5::checksum as hdf5_checksum;
pub use inventory::Inventory;
pub(crate) use inventory::{KINDS, LinkedPlace, OF, inventory, is_in, printable, printable_value};
pub(crate) use outside::beside;
pub(crate) use parts::{ElementType, Interpretation};
pub(crate) use plan::has_rest;
pub use raw::RawLayout;
pub use rebuild::FieldValues;
pub(crate) use rendered::Rendered;
pub(crate) use reordered::Reordered;
pub(crate) use rounded::Rounded;
pub(crate) use undecoded::{StoredBytes, UndecodedArray};
pub(crate) use unfinished::unfinished;
pub(crate) use unusual::QuadNumbers;
pub(crate) use widened::{Widened, common_type, is_integer, number, real};

use self::found::{Contents, FoundArray, Placement};
use self::outside::Viewpoint;
use crate::array::{Description, Marks, Rounding};
use crate::error::{Error, ErrorKind, Result};
use crate::format::TreeFile;
use crate::io::open_file;
use crate::merkle::Digest;
use crate::store::Blob;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A variable of a foreign file.
#[derive(Clone)]
pub struct Field {
    /// Name, type and extent, as the file tells them.
    pub description: Description,
    /// Its bytes, little-endian.
    pub bytes: Arc<dyn Blob>,
    /// Why its values cannot take other bits in the file; nothing if they can.
    pub(crate) fixed: Option<&'static str>,
    /// Values that stand for something else, such as cells on land, and limits of valid ones.
    pub(crate) marks: Marks,
    /// Rounding of its values, if they are rounded.
    pub(crate) rounded: Option<Rounding>,
    /// Meaning of the values, beside their type.
    pub(crate) meaning: Interpretation,
    /// The extent of its chunks, if walking along the array would decode each many times.
    pub(crate) chunk: Option<Vec<u64>>,
    /// The digest of how the file is read to get the values: where they lie, and in which order their bytes are. `None`:
    /// they lie in other files, too, so nothing that is known of this one tells whether they have changed.
    pub(crate) place: Option<Digest>,
}

/// The arrays of a file, and everything of it that is not decoded.
pub(crate) struct OpenedArrays {
    /// Arrays of numbers and bytes.
    pub(crate) fields: Vec<Field>,
    /// Arrays whose elements are more than one number.
    pub(crate) structured: Vec<StructuredArray>,
    pub(crate) undecoded: Vec<UndecodedArray>,
    /// The name that stands for that of an array without one.
    stand_in: Option<String>,
}

/// An array whose elements are more than one number.
pub(crate) struct StructuredArray {
    /// The array as bytes, or as numbers without names.
    pub(crate) whole: Description,
    /// The parts of its elements, with their names in the file.
    pub(crate) fields: Vec<Field>,
    element: Arc<ElementType>,
}

impl StructuredArray {
    /// The parts of the same elements, read from somewhere else.
    pub(crate) fn read_from(&self, bytes: &Arc<dyn Blob>) -> Option<Vec<Field>> {
        self.element.fields(&self.whole, bytes)
    }
}

/// Opens a file whose arrays can all be trusted; `raw` says what it is if it does not say so itself. Arrays that are
/// not understood are left out; of records, each member is a field.
///
/// The only variable of a file is named after it, without the extension.
pub fn open(path: &Path, raw: Option<&RawLayout>) -> Result<Vec<Field>> {
    let opened = open_all(path, raw)?;
    let damaged = |one: &&UndecodedArray| one.why.kind() == ErrorKind::Damaged;
    match opened.undecoded.iter().find(damaged) {
        Some(one) => Err(one.why.clone().at(path.display())),
        None => {
            let parts = opened.structured.into_iter().flat_map(|array| array.fields);
            Ok(opened.fields.into_iter().chain(parts).collect())
        }
    }
}

/// The bytes of a chunk of HDF5, `len` of them, before its filters, each of which has a number and parameters. The bits
/// of `left_out` are filters that the chunk did not go through.
#[cfg(any(test, feature = "testing"))]
pub fn decode_chunk(
    filters: &[(u16, Vec<u32>)],
    numbers: (crate::array::DType, bool),
    left_out: u32,
    stored: &[u8],
    len: usize,
) -> Result<Vec<u8>> {
    let (dtype, swapped) = numbers;
    let coding =
        |(number, values): &(u16, Vec<u32>)| filter::Coding::new(*number, values, dtype, swapped);
    let codings = filters.iter().map(coding).collect::<Result<Vec<_>>>()?;
    filter::decode(&codings, left_out, stored.to_vec(), len)
}

/// Opens a file as far as it is understood.
pub(crate) fn open_all(path: &Path, raw: Option<&RawLayout>) -> Result<OpenedArrays> {
    let file = OpenFile::new(path)?;
    let mut stand_in = None;
    let found = match file.find() {
        Ok(Some((format, contents))) => {
            stand_in = file.stand_in(format, raw);
            Ok(contents)
        }
        Ok(None) => match raw {
            Some(raw) => {
                stand_in = file.stand_in(RAW, Some(raw));
                raw.find(&file.whole, &file.stem).map(Contents::from)
            }
            None => Err(Error::usage("the file is not HDF5, netCDF, .npy, .npz or safetensors")
                .hint("give the type of its values with --type, as in --type f32; --type bytes takes it as bytes")),
        },
        Err(error) => Err(error),
    };
    let opened = found.and_then(|all| OpenedArrays::of(&all, &file.whole));
    let opened = opened.map(|opened| OpenedArrays { stand_in, ..opened });
    opened.map_err(|error| error.at(path.display()))
}

impl OpenedArrays {
    /// The name of an array in the file; empty if it has none.
    pub(crate) fn own_name<'n>(&self, name: &'n str) -> &'n str {
        own_name(name, self.stand_in.as_deref())
    }

    fn of(all: &Contents, whole: &Extent) -> Result<Self> {
        let (fields, structured, stand_in) = Default::default();
        let undecoded = all.undecoded.clone();
        let mut opened = OpenedArrays { fields, structured, undecoded, stand_in };
        let names = all.arrays().map(|found| found.description.name.clone());
        let mut names: HashSet<String> = names.collect();
        for found in all.arrays() {
            if let Some(field) = opened.read(found, whole)? {
                opened.add(found, field, &mut names);
            }
        }
        Ok(opened)
    }

    /// The values of an array, wherever they lie; none if they cannot be read.
    fn read(&mut self, found: &FoundArray, whole: &Extent) -> Result<Option<Field>> {
        let Placement::Unreadable(why, stored) = &found.place else {
            return found.field(whole).map(Some);
        };
        let place = format!("{} in {}", found.description.name, whole.store());
        let viewpoint = Viewpoint::of(whole);
        let outside = found.outside.as_ref().zip(viewpoint);
        let why = match outside.map(|(outside, from)| outside.open(found, &from)) {
            Some(Ok(mut values)) => {
                // The values that are there are compared; the missing ones are unknown.
                self.undecoded.extend(values.missing.take().map(|why| UndecodedArray {
                    name: format!("{} (missing values)", found.description.name),
                    description: None,
                    is_group: true,
                    ..found.undecoded(why.at(&place), stored.clone())
                }));
                return Ok(Some(Field { place: None, ..values.field(found) }));
            }
            Some(Err(error)) => error,
            None => why.clone(),
        };
        self.undecoded.push(found.undecoded(why.at(place), stored.clone()));
        Ok(None)
    }

    /// Adds an array, or the parts of its elements. A part may have the name of another array: then nobody could tell
    /// which is which.
    fn add(&mut self, found: &FoundArray, field: Field, names: &mut HashSet<String>) {
        let Some(element) = found.element.clone() else {
            self.fields.push(field);
            return;
        };
        let (whole, place) = (field.description, field.place);
        let mut apart = |parts: &Vec<Field>| {
            let own = parts.iter().map(|part| &part.description.name);
            own.filter(|name| **name != whole.name).all(|name| names.insert(name.clone()))
        };
        match element.fields(&whole, &field.bytes).filter(|parts| apart(parts)) {
            Some(mut fields) => {
                fields.iter_mut().for_each(|field| field.place = place);
                self.structured.push(StructuredArray { whole, fields, element });
            }
            None => {
                let why = Error::usage("the members of its elements cannot be named");
                self.undecoded.push(found.undecoded(why, None));
            }
        }
    }
}

/// The arrays of a file that is in a store, by the names that they had when it was ingested under this name.
pub(crate) fn arrays_of(whole: &Extent, name: &str) -> Result<OpenedArrays> {
    let stem = Path::new(name).file_stem().map(name_of).unwrap_or_default();
    let file = OpenFile { whole: whole.clone(), stem };
    let (stand_in, contents) = match file.find()? {
        Some((format, contents)) => (file.stand_in(format, None), contents),
        None => (None, Vec::new().into()),
    };
    Ok(OpenedArrays { stand_in, ..OpenedArrays::of(&contents, whole)? })
}

/// The arrays of a file by their names in it, and how their numbers are packed.
pub(crate) fn packed_arrays(whole: &Extent) -> Result<Vec<(String, Option<PackedNumbers>)>> {
    let file = OpenFile { whole: whole.clone(), stem: String::new() };
    let found = file.find()?.map_or_else(Vec::new, |(_, contents)| contents.found);
    Ok(found.iter().map(|found| (found.description.name.clone(), found.packed())).collect())
}

/// The format of files that a layout describes.
const RAW: &str = "raw";
/// The format of files that nobody understands.
const BYTES: &str = "bytes";

/// The name of an array in its file, of which one name stands for none.
fn own_name<'n>(name: &'n str, stand_in: Option<&str>) -> &'n str {
    if stand_in == Some(name) { "" } else { name }
}

/// A file that is about to be looked into.
struct OpenFile {
    whole: Extent,
    stem: String,
}

impl OpenFile {
    fn new(path: &Path) -> Result<Self> {
        let whole = open_whole(path)?;
        let stem = path.file_stem().map(name_of).unwrap_or_default();
        Ok(OpenFile { whole, stem })
    }

    /// The name that the array of a format without names gets: that of the file, without the extension.
    fn stand_in(&self, format: &str, raw: Option<&RawLayout>) -> Option<String> {
        let unnamed = match format {
            RAW => raw.is_some_and(|raw| !raw.has_names()),
            _ => ["npy", BYTES].contains(&format),
        };
        unnamed.then(|| self.stem.clone())
    }

    /// The format, as the first bytes tell, and the arrays; none if the format is not known.
    fn find(&self) -> Result<Option<(&'static str, Contents)>> {
        let whole = &self.whole;
        let mut start = [0u8; 9];
        whole.read_at(0, &mut start[..whole.size().min(9) as usize])?;
        let (format, mut contents) = match start {
            _ if start.starts_with(npy::MAGIC) => ("npy", npy::contents(whole, &self.stem)?),
            _ if start.starts_with(npz::MAGIC) || start.starts_with(npz::EMPTY) => {
                ("npz", npz::find(whole)?)
            }
            _ if netcdf::known(&start) => ("netcdf", netcdf::find(whole)?),
            _ => match hdf5::base(whole)? {
                Some(base) => ("hdf5", hdf5::find(whole, base)?),
                None => match safetensors::find(whole, &start)? {
                    Some(found) => ("safetensors", found.into()),
                    None => return Ok(None),
                },
            },
        };
        found::name_apart(&mut contents);
        Ok(Some((format, contents)))
    }
}

/// The content of a folder.
#[derive(Default)]
pub struct Folder {
    /// Files, sorted.
    pub files: Vec<PathBuf>,
    /// Entries that are left out, sorted.
    pub others: Vec<(PathBuf, LeftOut)>,
}

/// Reason for leaving out an entry of a folder. The example of [`files_in`](crate::files_in) shows its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// Its name begins with a dot.
    Hidden,
    /// A tree that lies beside a file.
    Tree,
    /// A link to a folder whose files are found elsewhere, or to one above.
    LinkToFolder,
    /// A pipe, a device, a link that leads nowhere.
    NoFile,
}

impl LeftOut {
    /// The reason in words, to follow "it is".
    pub fn why(self) -> &'static str {
        match self {
            LeftOut::Hidden => "hidden",
            LeftOut::Tree => "a tree of values",
            LeftOut::LinkToFolder => "a link to a folder",
            LeftOut::NoFile => "not a file",
        }
    }
}

/// Lists the files of a folder and of the folders below it. Links to folders are followed last, so that a file that is
/// there under its own name is listed under that; links to folders above are left out.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let out = folder.path();
/// std::fs::create_dir(out.join("step_1"))?;
/// std::fs::write(out.join("step_1/rank_0.raw"), [0; 8])?;
/// std::fs::write(out.join(".lock"), "")?;
/// let found = treering::files_in(out)?;
/// assert_eq!(found.files, [out.join("step_1/rank_0.raw")]);
/// for (path, reason) in &found.others {
///     println!("{} is left out: it is {}", path.display(), reason.why()); // .lock: it is hidden
/// }
/// # assert_eq!(found.others, [(out.join(".lock"), treering::LeftOut::Hidden)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn files(folder: &Path) -> Result<Folder> {
    let real = |folder: &Path| std::fs::canonicalize(folder).map_err(|e| unreadable(folder, e));
    let root = real(folder)?;
    let mut found = Folder::default();
    let (mut folders, mut links) = (vec![folder.to_path_buf()], BTreeSet::new());
    let mut seen = HashSet::new();
    while let Some(next) = folders.pop().or_else(|| links.pop_first()) {
        let identity = real(&next)?;
        let above = root.starts_with(&identity) && next != folder;
        if above || !seen.insert(identity) {
            found.others.push((next, LeftOut::LinkToFolder));
            continue;
        }
        for entry in std::fs::read_dir(&next).map_err(|e| unreadable(&next, e))? {
            let entry = entry.map_err(|e| unreadable(&next, e))?;
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            match path.is_dir() {
                _ if hidden => found.others.push((path, LeftOut::Hidden)),
                true if link => _ = links.insert(path),
                true => folders.push(path),
                false if !path.is_file() => found.others.push((path, LeftOut::NoFile)),
                false if is_tree(&path) => found.others.push((path, LeftOut::Tree)),
                false => found.files.push(path),
            }
        }
    }
    found.files.sort();
    found.others.sort();
    Ok(found)
}

/// Reason why an entry of a folder is not a file, and the place that it names if it is a link that leads nowhere.
pub(crate) fn why_no_file(path: &Path) -> (&'static str, Option<PathBuf>) {
    match std::fs::metadata(path) {
        Ok(_) => ("it is a pipe, a socket or a device", None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            ("it is a link that leads nowhere", std::fs::read_link(path).ok())
        }
        Err(_) => ("its type cannot be read", None),
    }
}

/// Whether a file is a tree that lies beside another one, by its name and its first bytes.
pub fn is_tree(path: &Path) -> bool {
    let mut start = [0; 8];
    path.extension().is_some_and(|extension| extension == "tree")
        && open_file(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && TreeFile::is_magic(&start)
}

/// A file's name as text: what is no text, or would not show, is written as its bytes (`\xff`), so
/// that two names never become one.
pub fn name_of(name: &OsStr) -> String {
    let mut text = String::new();
    for part in name.as_encoded_bytes().utf8_chunks() {
        for c in part.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => {
                    let mut bytes = [0; 4];
                    let bytes = c.encode_utf8(&mut bytes).bytes();
                    bytes.for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
                }
                c => text.push(c),
            }
        }
        part.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// A file's bytes.
pub(crate) fn open_whole(path: &Path) -> Result<Extent> {
    let file = open_file(path).map_err(|e| unreadable(path, e))?;
    let size = file.metadata().map_err(|e| unreadable(path, e))?.len();
    Ok(Extent::new(Arc::new(file), 0, size, path))
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    let what = match error.kind() {
        std::io::ErrorKind::NotFound => {
            return Error::new(ErrorKind::NotFound, format!("there is no {}", path.display()))
                .hint("give a file, a folder, or STORE#RUN");
        }
        std::io::ErrorKind::PermissionDenied => {
            return Error::new(ErrorKind::Io, format!("{} may not be read", path.display()))
                .hint("check its owner and permissions");
        }
        std::io::ErrorKind::InvalidInput => {
            return Error::usage(format!("{} is not a file", path.display()))
                .hint("give a file or a folder");
        }
        _ => format!("cannot read {}", path.display()),
    };
    Error::io(what, error)
}

//! A file taken apart: its typed arrays, and the skeleton of everything else.
//!
//! The findings of a format are laid over the file as pieces that do not overlap; what lies between them is
//! literal. The pieces are then rendered as they will be when the file is exported, and compared
//! with the file: a chunk or stream that does not come out equal stays as it is stored, and an
//! array most of whose bytes would have to be stored so is no field. Whatever is not understood
//! becomes one field of bytes. Literals beyond a few MiB become a field of their own, so that a
//! skeleton stays small.

use super::found::{Contents, FoundArray, Placement};
use super::plan::FilePlan;
use super::proof::Built;
use super::{BYTES, Extent, Field, OpenFile, RAW, RawLayout, Rounded, own_name};
use crate::array::{Bound, DType, Rounding};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Skeleton;
use crate::merkle::{Digest, Digester};
use crate::store::Blob;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Number of names in a message.
const MOST_NAMES: usize = 20;

/// A file taken apart.
pub struct Anatomy {
    /// `hdf5`, `netcdf`, `npy`, `npz`, `safetensors`, `raw`, or `bytes` if it is nothing of these.
    pub format: &'static str,
    /// Its arrays.
    pub fields: Vec<Field>,
    /// The way in which the file is made of them.
    pub skeleton: Skeleton,
    /// Datasets whose bytes stay in the skeleton: names and reasons.
    pub in_skeleton: Vec<(String, String)>,
    /// The name that stands for that of an array without one.
    stand_in: Option<String>,
    path: PathBuf,
    stamp: Stamp,
}

impl Anatomy {
    /// The name of a field or a dataset in the file; empty if it has none.
    pub(crate) fn own_name<'n>(&self, name: &'n str) -> &'n str {
        own_name(name, self.stand_in.as_deref())
    }

    /// Refuses a file that has changed since it was taken apart; to be asked when all is read.
    pub fn unchanged(&self) -> Result<()> {
        self.stamp.check(&self.path)
    }

    /// Rounds the values of fields that have a bound: the file that is exported holds the rounded
    /// ones, and everything else of it is the same. Fields are called by these names.
    pub(crate) fn round(&mut self, names: &[String], bounds: &[Option<Bound>]) -> Result<()> {
        let mut refused: Vec<(&String, String)> = Vec::new();
        for ((field, name), bound) in self.fields.iter_mut().zip(names).zip(bounds) {
            let Some(bound) = *bound else { continue };
            let dtype = field.description.dtype;
            match (field.fixed, Rounding::new(bound, dtype)) {
                (None, Ok(rounding)) => {
                    let (inner, marks) = (field.bytes.clone(), field.marks.clone());
                    field.bytes = Arc::new(Rounded { inner, rounding, marks });
                    field.rounded = Some(rounding);
                }
                (Some(why), Ok(_)) => {
                    refused.push((name, format!("values cannot be rounded where they are: {why}")));
                }
                (_, Err(_)) => refused.push((
                    name,
                    format!("values of type {dtype} cannot be rounded within {bound}"),
                )),
            }
        }
        if let [(name, why), ..] = &refused[..] {
            let exact = refused.iter().take(MOST_NAMES).map(|(name, _)| format!("'{name}=bits'"));
            let exact = exact.collect::<Vec<_>>().join(", ");
            return Err(Error::usage(why)
                .at(format!("variable {name:?} of {}", self.path.display()))
                .hint(format!("to leave variables as they are, give {exact} first")));
        }
        if self.fields.iter().any(|field| field.rounded.is_some()) {
            self.skeleton.digest = self.digest_rendered()?;
        }
        Ok(())
    }

    /// The digest of the file as it is exported.
    fn digest_rendered(&self) -> Result<Digest> {
        let mut digester = Digester::new();
        self.skeleton.render(&self.fields, &|_| true, &mut |_, bytes| {
            digester.update(bytes?);
            Ok(())
        })?;
        Ok(digester.finish())
    }
}

/// Takes a file apart; `raw` says what it is if it does not say so itself.
pub fn take_apart(path: &Path, raw: Option<&RawLayout>) -> Result<Anatomy> {
    let file = OpenFile::new(path)?;
    let stamp = Stamp::of(&file.whole, path)?;
    let found = match file.find() {
        Ok(None) => match raw {
            Some(raw) => {
                let found = raw.find(&file.whole, &file.stem).map_err(|e| e.at(path.display()))?;
                Some((RAW, found.into()))
            }
            None => None,
        },
        // Nothing of a damaged file is believed: it is kept as bytes.
        Ok(Some((_, contents))) if contents.damage().is_some() => None,
        Ok(known) => known,
        Err(error) if error.kind() == ErrorKind::Io => return Err(error.at(path.display())),
        Err(_) => None,
    };
    built_of(path, &file, stamp, found, raw)
}

/// Takes a file as bytes, whatever it is.
pub fn take_whole(path: &Path) -> Result<Anatomy> {
    let file = OpenFile::new(path)?;
    let stamp = Stamp::of(&file.whole, path)?;
    built_of(path, &file, stamp, None, None)
}

/// The format and the arrays of a file if they are known, else all of it as bytes.
fn built_of(
    path: &Path,
    file: &OpenFile,
    stamp: Stamp,
    found: Option<(&'static str, Contents)>,
    raw: Option<&RawLayout>,
) -> Result<Anatomy> {
    let (format, found) = match found {
        Some(found) => found,
        None => (BYTES, vec![all_bytes(file)?].into()),
    };
    let (plan, Built { fields, skeleton }) = proved(&file.whole, found)?;
    stamp.check(path)?;
    let (in_skeleton, stand_in) = (plan.in_skeleton(), file.stand_in(format, raw));
    Ok(Anatomy { format, fields, skeleton, in_skeleton, stand_in, path: path.into(), stamp })
}

/// Fields and skeleton of what is found in a file, proved.
pub(super) fn proved(whole: &Extent, found: Contents) -> Result<(FilePlan<'_>, Built)> {
    let mut plan = FilePlan::new(whole, found)?;
    let mut built = plan.build()?;
    let proof = built.prove(whole)?;
    if plan.keep_stored(&proof) {
        built = plan.build()?;
    }
    built.skeleton.digest = proof.digest;
    Ok((plan, built))
}

fn all_bytes(file: &OpenFile) -> Result<FoundArray> {
    FoundArray::new(
        &file.stem,
        DType::Bytes,
        vec![file.whole.size()],
        false,
        Placement::Plain { at: 0 },
    )
}

/// The digest of all bytes of a file.
pub(crate) fn digest_of(whole: &Extent) -> Result<Digest> {
    let mut digester = Digester::new();
    let mut buffer = vec![0; whole.size().min(1 << 20) as usize];
    let mut at = 0;
    while at < whole.size() {
        let part = &mut buffer[..(whole.size() - at).min(1 << 20) as usize];
        whole.read_at(at, part)?;
        digester.update(part);
        at += part.len() as u64;
    }
    Ok(digester.finish())
}

/// Signs that a file was written to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    time: Option<SystemTime>,
}

impl Stamp {
    fn of(whole: &Extent, path: &Path) -> Result<Stamp> {
        let (file, ..) = whole.file().ok_or_else(|| Error::usage("not a file"))?;
        let meta = file.metadata().map_err(|e| super::unreadable(path, e))?;
        Ok(Stamp { size: meta.len(), time: meta.modified().ok() })
    }

    fn check(&self, path: &Path) -> Result<()> {
        let meta = std::fs::metadata(path).map_err(|e| super::unreadable(path, e))?;
        match *self == (Stamp { size: meta.len(), time: meta.modified().ok() }) {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Busy,
                format!("{} changed while it was read", path.display()),
            )
            .hint("wait until its program has closed it, then try again")),
        }
    }
}

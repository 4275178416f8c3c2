//! A foreign file of a checkpoint: what it was called, and how it is made of variables.

use super::bytes::{Reader, Writer};
use super::skeleton::Skeleton;
use crate::error::{Error, Result};
use std::path::{Component, Path};

const MAGIC: &[u8; 8] = b"TREEFILE";

/// The record of a file; it is kept as a variable whose name begins with this.
pub const FILE_PREFIX: &str = "treering:file:";

/// Record of a file: everything that is kept of it beside the values of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// Its name: a path below the folder it was taken from.
    pub name: String,
    /// Its format, in a word.
    pub format: String,
    /// Its permissions.
    pub mode: u32,
    /// Time of the last write, in nanoseconds since 1970.
    pub modified: u64,
    /// The variables that hold its fields, in their order.
    pub fields: Vec<String>,
    /// Datasets that were not taken apart: their bytes are in the skeleton.
    pub in_skeleton: Vec<InSkeleton>,
    /// The layout of the file: its literal bytes, and the places of its fields.
    pub skeleton: Skeleton,
}

/// A dataset of a file that is stored as the bytes it has in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
pub struct InSkeleton {
    /// Its name in the file.
    pub name: String,
    /// The name under which its values can be compared.
    pub variable: String,
    /// The reason why it was not taken apart.
    pub why: String,
}

impl FileRecord {
    /// The bytes of the record.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::file(MAGIC);
        out.string(&self.name);
        out.string(&self.format);
        out.int(u64::from(self.mode));
        out.int(self.modified);
        out.int(self.fields.len() as u64);
        self.fields.iter().for_each(|field| out.string(field));
        out.int(self.in_skeleton.len() as u64);
        for dataset in &self.in_skeleton {
            out.string(&dataset.name);
            out.string(&dataset.variable);
            out.string(&dataset.why);
        }
        out.bytes(&self.skeleton.write());
        out.sealed()
    }

    /// Reads a record.
    pub fn parse(bytes: &[u8]) -> Result<FileRecord> {
        let mut reader = Reader::file(bytes, MAGIC, "record of a file")?;
        let record = FileRecord {
            name: reader.string()?,
            format: reader.string()?,
            mode: reader.u32()?,
            modified: reader.int()?,
            fields: (0..reader.count()?).map(|_| reader.string()).collect::<Result<_>>()?,
            in_skeleton: (0..reader.count()?)
                .map(|_| {
                    let (name, variable) = (reader.string()?, reader.string()?);
                    Ok(InSkeleton { name, variable, why: reader.string()? })
                })
                .collect::<Result<_>>()?,
            skeleton: Skeleton::parse(reader.bytes()?)?,
        };
        reader.end()?;
        check_file_name(&record.name)?;
        Ok(record)
    }
}

/// Refuses names that would lead out of the folder that files are written to.
pub fn check_file_name(name: &str) -> Result<()> {
    let inside = |part: Component| matches!(part, Component::Normal(_));
    let plain = Path::new(name).components().all(inside) && !name.is_empty();
    match plain && !name.contains('\0') {
        true => Ok(()),
        false => {
            Err(Error::usage(format!("invalid file name {name:?}: expected a path below a folder"))
                .hint("names must be relative, without . and .."))
        }
    }
}

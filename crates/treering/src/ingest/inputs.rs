//! The variables of a set of files: what each is called, what it is like, and how a file comes back.
//!
//! Every file gives its fields and one variable more, the record of the file. The law: within a rank
//! no two variables share a name, and no two files of a set do, so that everything can be exported.

use super::RankFile;
use super::merge::Merge;
use crate::array::{Bound, DType, Description, Labels, Order, Rank, Rounding, Shape, VariableKey};
use crate::codec::Nature;
use crate::compare::matches;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FILE_PREFIX, FileRecord, InSkeleton, check_file_name};
use crate::pack::Packed;
use crate::save::GroupMember;
use crate::source::Anatomy;
use crate::store::Blob;
use rayon::prelude::*;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// How many names a message lists.
const MOST_NAMES: usize = 20;

/// A variable that is to be packed.
pub(super) struct FileVariable {
    pub(super) rank: Rank,
    pub(super) description: Description,
    /// Its name, as far as those of variables that are like it agree.
    pub(super) like: String,
    pub(super) bytes: Source,
    pub(super) rounded: Option<Rounding>,
}

pub(super) enum Source {
    Blob(Arc<dyn Blob>),
    Held(Vec<u8>),
}

impl Source {
    /// The first bytes; more are not about to be read.
    pub(super) fn sample(&self, out: &mut [u8]) -> Result<()> {
        match self {
            Source::Blob(blob) => blob.read_many(&mut [(0, out)]),
            Source::Held(_) => self.read_at(0, out),
        }
    }

    pub(super) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match self {
            Source::Blob(blob) => blob.read_at(offset, out),
            Source::Held(bytes) => {
                out.copy_from_slice(&bytes[offset as usize..offset as usize + out.len()]);
                Ok(())
            }
        }
    }
}

impl FileVariable {
    pub(super) fn len(&self) -> u64 {
        self.description.bytes().unwrap_or(0)
    }

    /// Whether it tells how a file comes back.
    pub(super) fn is_record(&self) -> bool {
        self.description.name.starts_with(FILE_PREFIX)
    }

    pub(super) fn member(&self, merge: Merge, block: Option<u64>) -> GroupMember {
        let flat = Nature::flat(self.description.dtype);
        let (like, nature) = match merge {
            Merge::Ranks | Merge::Files => (String::new(), flat),
            // Blocks have no rows.
            _ if block.is_some() => (self.like.clone(), flat),
            _ => (self.like.clone(), Nature::of(&self.description)),
        };
        let nature = nature.rounded(self.rounded.as_ref());
        let name = self.description.name.clone();
        let far = merge == Merge::Ranks;
        let packed = Packed { rank: self.rank, name, like, bytes: self.len(), nature, far };
        GroupMember { packed, description: self.description.clone(), rounded: self.rounded }
    }
}

/// Refuses sets that cannot be exported as they are.
pub(super) fn check(files: &[RankFile]) -> Result<()> {
    if files.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "there are no files to ingest")
            .hint("give files, or a folder that has some"));
    }
    let mut names = HashSet::new();
    for file in files {
        check_file_name(&file.name)?;
        if !names.insert(&file.name) {
            return Err(Error::usage(format!("two files are called {:?}", file.name))
                .hint("give the folder that holds both, so that their names tell them apart"));
        }
    }
    Ok(())
}

/// The bound of variables whose whole name matches.
pub(super) struct Limit {
    /// A pattern with `*` and `?`.
    pattern: String,
    bound: Bound,
}

impl Limit {
    pub(super) fn new((pattern, bound): &(String, Bound)) -> Result<Limit> {
        if *bound != Bound::Bits {
            Rounding::new(*bound, DType::F64)?;
        }
        Ok(Limit { pattern: pattern.clone(), bound: *bound })
    }
}

/// The names of the variables of each file: of its fields, then of datasets in its skeleton.
pub(super) fn names(files: &[RankFile], anatomies: &[Anatomy]) -> Vec<Vec<String>> {
    let mut of_rank: HashMap<Rank, usize> = HashMap::new();
    files.iter().for_each(|file| *of_rank.entry(file.rank).or_default() += 1);
    let alone = of_rank.values().all(|count| *count == 1);
    let of_file = |(file, anatomy): (&RankFile, &Anatomy)| {
        let own = alone && anatomy.format != "bytes" && anatomy.format != "raw";
        let alone = anatomy.fields.len() + anatomy.in_skeleton.len() == 1;
        let named = |name: &String| match name.is_empty() || alone {
            // The array in an `.npy` file has no name but the file's, in which the rank stands.
            _ if own && anatomy.format == "npy" => {
                file.like.strip_suffix(".npy").unwrap_or(&file.like).to_string()
            }
            _ if own => name.clone(),
            true => file.like.clone(),
            false => format!("{}/{name}", file.like),
        };
        let fields = anatomy.fields.iter().map(|field| named(&field.description.name));
        fields.chain(anatomy.in_skeleton.iter().map(|(name, _)| named(name))).collect()
    };
    files.iter().zip(anatomies).map(of_file).collect()
}

/// Rounds variables that have a bound. A pattern that no name matches is a mistake that nobody would
/// notice otherwise.
pub(super) fn round(
    anatomies: &mut [Anatomy],
    names: &[Vec<String>],
    within: &[Limit],
) -> Result<()> {
    // Datasets in skeletons keep their bytes.
    let fields = anatomies
        .iter()
        .zip(names)
        .map(|(anatomy, names)| &names[..anatomy.fields.len().min(names.len())]);
    let names: Vec<&[String]> = fields.collect();
    for Limit { pattern, .. } in within {
        if !names.iter().copied().flatten().any(|name| matches(pattern, name)) {
            let there = names.iter().copied().flatten().map(String::as_str);
            let there: BTreeSet<&str> = there.collect();
            let more = if there.len() > MOST_NAMES { ", …" } else { "" };
            let known = anatomies.iter().all(|anatomy| anatomy.format != "bytes");
            let more = more.to_string()
                + if known { "" } else { "; what is not understood of a file has the file's name" };
            let there: Vec<&str> = there.into_iter().take(MOST_NAMES).collect();
            return Err(Error::usage(format!("no variable matches the bound of {pattern:?}"))
                .hint(format!(
                    "* and ? stand for anything; there are {}{more}",
                    there.join(", ")
                )));
        }
    }
    let bound = |name: &String| {
        let first = within.iter().find(|limit| matches(&limit.pattern, name));
        first.map(|limit| limit.bound).filter(|bound| *bound != Bound::Bits)
    };
    let files = anatomies.par_iter_mut().zip(&names);
    files.try_for_each(|(anatomy, names)| {
        let bounds: Vec<Option<Bound>> = names.iter().map(bound).collect();
        anatomy.round(names, &bounds)
    })
}

/// The variables of all files, by rank: fields, and the records of the files.
pub(super) fn gather(
    files: &[RankFile],
    anatomies: &[Anatomy],
    names: Vec<Vec<String>>,
    likeness: &[(Regex, String)],
) -> Result<BTreeMap<Rank, Vec<FileVariable>>> {
    let mut inputs: BTreeMap<Rank, Vec<FileVariable>> = BTreeMap::new();
    let mut taken = HashSet::new();
    for ((file, anatomy), names) in files.iter().zip(anatomies).zip(names) {
        let own = inputs.entry(file.rank).or_default();
        let mut fields = Vec::new();
        let mut names = names.into_iter();
        for (field, name) in anatomy.fields.iter().zip(names.by_ref()) {
            let description = Description { name, ..field.description.clone() };
            description.check().map_err(|e| e.at(file.path.display()))?;
            if !taken.insert(VariableKey::new(file.rank, &description.name)) {
                return Err(Error::usage(format!(
                    "rank {} has two arrays called {:?}",
                    file.rank, description.name
                ))
                .at(file.path.display())
                .hint("check which rank each file belongs to"));
            }
            fields.push(description.name.clone());
            let bytes = Source::Blob(field.bytes.clone());
            let same = |name: String, (pattern, text): &(Regex, String)| {
                pattern.replace_all(&name, text).into_owned()
            };
            let like = likeness.iter().fold(description.name.clone(), same);
            let rounded = field.rounded;
            own.push(FileVariable { rank: file.rank, description, like, bytes, rounded });
        }
        let in_skeleton = anatomy.in_skeleton.iter().zip(names);
        let in_skeleton = in_skeleton.map(|((name, why), variable)| InSkeleton {
            name: name.clone(),
            variable,
            why: why.clone(),
        });
        let record = record(file, anatomy, fields, in_skeleton.collect())?.write();
        let name = format!("{FILE_PREFIX}{}", file.like);
        let shape = Shape(vec![record.len() as u64]);
        let (dtype, order, attributes) = (DType::Bytes, Order::C, Labels::default());
        let description = Description { name, dtype, shape, order, part: None, attributes };
        description.check().map_err(|e| e.at(file.path.display()))?;
        if !taken.insert(VariableKey::new(file.rank, &description.name)) {
            return Err(Error::usage(format!(
                "two files of rank {} are like each other: {:?}",
                file.rank, file.like
            ))
            .hint("say how the rank stands in the name"));
        }
        let like = description.name.clone();
        let bytes = Source::Held(record);
        own.push(FileVariable { rank: file.rank, description, like, bytes, rounded: None });
    }
    Ok(inputs)
}

fn record(
    file: &RankFile,
    anatomy: &Anatomy,
    fields: Vec<String>,
    in_skeleton: Vec<InSkeleton>,
) -> Result<FileRecord> {
    let meta = std::fs::metadata(&file.path)
        .map_err(|e| Error::io(format!("cannot look at {}", file.path.display()), e))?;
    let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(FileRecord {
        name: file.name.clone(),
        format: anatomy.format.to_string(),
        mode: meta.mode() & 0o7777,
        modified: modified.map_or(0, |time| time.as_nanos() as u64),
        fields,
        in_skeleton,
        skeleton: anatomy.skeleton.clone(),
    })
}

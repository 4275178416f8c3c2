//! The variables of a set of files: what each is called, what it is like, and how a file comes back.
//!
//! Every file gives its fields and one variable more, the record of the file. The law: within a rank
//! no two variables share a name, and no two files of a set do, so that everything can be exported.

use super::RankFile;
use super::merge::Merge;
use crate::array::{Bound, DType, Description, Labels, Order, Rank, Rounding, Shape, VariableKey};
use crate::codec::Nature;
use crate::compare::matches_variable;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    FILE_PREFIX, FileOrigin, FileRecord, InSkeleton, check_file_name, variable_name,
};
use crate::pack::Packed;
use crate::save::GroupMember;
use crate::source::Anatomy;
use crate::store::Blob;
use rayon::prelude::*;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Number of names that a message lists.
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
        if !names.insert(&file.name[..]) {
            return Err(Error::usage(format!("two files are called {:?}", file.name))
                .hint("give the folder that holds both, so that their names tell them apart"));
        }
    }
    // Otherwise nobody could tell where the name of a file ends in that of a variable.
    let similar: HashSet<(Rank, &str)> = files.iter().map(|f| (f.rank, &f.like[..])).collect();
    for file in files {
        let mut above = folders(&file.name).filter(|folder| names.contains(folder));
        let mut alike = folders(&file.like).filter(|like| similar.contains(&(file.rank, *like)));
        if let Some(folder) = above.next().or_else(|| alike.next()) {
            return Err(Error::usage(format!(
                "{folder:?} is a file, and {:?} lies in a folder of this name",
                file.name
            ))
            .hint("give the folder that holds both, so that their names tell them apart"));
        }
    }
    Ok(())
}

/// The folders that a name leads through.
fn folders(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('/').map(|(at, _)| &name[..at])
}

/// The bound of variables whose whole name matches, or whose array's own name does.
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

/// The names of the variables of each file: of its fields, then of datasets in its skeleton. Each follows from its own
/// file and array alone, so that one file more changes none of them.
pub(super) fn names<'f>(
    files: impl Iterator<Item = (&'f RankFile, &'f Anatomy)>,
) -> Vec<Vec<String>> {
    let of_file = |(file, anatomy): (&RankFile, &Anatomy)| {
        let fields = anatomy.fields.iter().map(|field| &field.description.name);
        let arrays = fields.chain(anatomy.in_skeleton.iter().map(|(name, _)| name));
        arrays.map(|name| variable_name(&file.like, anatomy.own_name(name))).collect()
    };
    files.map(of_file).collect()
}

/// Rounds variables that have a bound. A pattern that no name matches is a mistake that nobody would
/// notice otherwise.
pub(super) fn round(
    files: &[RankFile],
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
    let is_for = |pattern: &str, file: &RankFile, name: &str| {
        matches_variable(pattern, name, FileOrigin::of(&file.like, name).as_ref())
    };
    for Limit { pattern, .. } in within {
        let mut all = files.iter().zip(&names);
        let mut of_file =
            |(file, names): (&RankFile, &&[String])| names.iter().any(|n| is_for(pattern, file, n));
        if !all.any(&mut of_file) {
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
    let bound = |file: &RankFile, name: &String| {
        let first = within.iter().find(|limit| is_for(&limit.pattern, file, name));
        first.map(|limit| limit.bound).filter(|bound| *bound != Bound::Bits)
    };
    let files = files.par_iter().zip(anatomies.par_iter_mut()).zip(&names);
    files.try_for_each(|((file, anatomy), names)| {
        let bounds: Vec<Option<Bound>> = names.iter().map(|name| bound(file, name)).collect();
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
            .hint("give the position of the rank in the name"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{RawLayout, take_apart};
    use proptest::prelude::*;
    use std::path::{Path, PathBuf};
    use std::sync::LazyLock;

    /// A safetensors file of arrays of one byte.
    fn tensors(names: &[&str]) -> Vec<u8> {
        let entry = |(at, name): (usize, &&str)| {
            format!(
                "{name:?}:{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{at},{}]}}",
                at + 1
            )
        };
        let entries: Vec<String> = names.iter().enumerate().map(entry).collect();
        let head = format!("{{{}}}", entries.join(","));
        let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
        bytes.extend(head.bytes());
        bytes.extend(names.iter().map(|_| 7));
        bytes
    }

    fn npy() -> Vec<u8> {
        let head = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }";
        [b"\x93NUMPY\x01\x00\x76\x00", format!("{head:<117}\n").as_bytes(), &[1, 2]].concat()
    }

    /// A file of the test: its name, with and without the rank, its content, its layout, and its variables.
    type MadeFile<'l> = (&'l str, &'l str, Vec<u8>, Option<&'l RawLayout>, &'l [&'static str]);

    /// Files of every kind, and their variables.
    static FILES: LazyLock<Vec<(RankFile, Anatomy, Vec<&str>)>> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        let layout = RawLayout::parse("[[field]]\nname = \"v\"\ntype = \"u8\"").unwrap();
        let values = RawLayout::values(DType::U8, None);
        let files: [MadeFile; 7] = [
            ("a.st", "a.st", tensors(&["T", "g/p"]), None, &["a.st/T", "a.st/g/p"]),
            ("b.st", "b.st", tensors(&["b"]), None, &["b.st/b"]),
            ("b.npy", "b.npy", npy(), None, &["b.npy"]),
            ("sub/b", "sub/b", b"text".to_vec(), None, &["sub/b"]),
            ("raw", "raw", vec![1, 2], Some(&values), &["raw"]),
            ("state", "state", vec![1, 2], Some(&layout), &["state/v"]),
            ("rank_1.st", "rank_{rank}.st", tensors(&["T"]), None, &["rank_{rank}.st/T"]),
        ];
        let made = files.into_iter().map(|(name, like, bytes, raw, names)| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).unwrap();
            std::fs::write(&path, bytes).unwrap();
            let anatomy = take_apart(&path, raw).unwrap();
            let rank = Rank(u32::from(name.starts_with("rank")));
            let path = PathBuf::from(name);
            (RankFile { rank, path, name: name.into(), like: like.into() }, anatomy, names.to_vec())
        });
        made.collect()
    });

    proptest! {
        /// The names of a file's variables are the same alone and beside any other files.
        #[test]
        fn other_files_change_no_name(
            chosen in proptest::sample::subsequence((0..7).collect::<Vec<usize>>(), 1..=7)
        ) {
            let chosen = chosen.into_iter().map(|at| &FILES[at]);
            for set in [chosen.clone().collect::<Vec<_>>(), chosen.rev().collect()] {
                let files: Vec<RankFile> = set.iter().map(|(file, ..)| file.clone()).collect();
                check(&files).unwrap();
                let found = names(set.iter().map(|(file, anatomy, _)| (file, anatomy)));
                let expected: Vec<Vec<&str>> = set.iter().map(|(.., names)| names.clone()).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}

//! The arrays that an export writes, and their names in it, as plain values.
//!
//! Boxes and rows of several ranks become the one array that they are parts of, a variable that is the same on all
//! ranks is written once, and a variable that belongs to one rank is written for that rank: with several ranks, below
//! `rank-N`. If ranks are asked for, their boxes and rows are written as these ranks saved them. A slash in a name
//! makes groups. Two arrays never get one name, and no name leads out of the output: both are errors.

use super::{ArrayExport, ArrayFormat};
use crate::array::{DType, Labels, Part, Rank, Shape};
use crate::compare::matches_variable;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FileOrigin, VariableEntry};
use crate::restore::ArraySources;
use std::collections::{BTreeMap, BTreeSet};

/// The longest name of a file.
const MAX_FILE_NAME: usize = 255;
/// Number of names that an error lists.
const MOST_NAMES: usize = 20;

/// A variable of the checkpoint, and the file that it is an array of.
pub(super) struct StoredVariable<'c> {
    pub(super) entry: &'c VariableEntry,
    pub(super) origin: Option<FileOrigin>,
}

impl StoredVariable<'_> {
    fn name(&self) -> &str {
        &self.entry.description.name
    }
}

/// An array to be written.
pub(super) struct OutputArray<'c> {
    /// The variable that it is.
    pub(super) variable: &'c str,
    /// The rank, if the array is one that a rank saved.
    pub(super) rank: Option<Rank>,
    /// The names of its groups, and its own.
    pub(super) path: Vec<String>,
    pub(super) dtype: DType,
    pub(super) attributes: &'c Labels,
    pub(super) values: ArraySources<'c>,
}

impl<'c> OutputArray<'c> {
    fn new(entry: &'c VariableEntry, rank: Option<Rank>, values: ArraySources<'c>) -> Self {
        let (variable, dtype) = (entry.description.name.as_str(), entry.description.dtype);
        let path = variable.split('/').map(str::to_string).collect();
        let attributes = &entry.description.attributes;
        OutputArray { variable, rank, path, dtype, attributes, values }
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.values.global
    }

    /// Its name in the output. The suffix of a format is not added twice, as to that of an ingested `.npy` file.
    pub(super) fn file_name(&self, format: ArrayFormat) -> String {
        let (name, suffix) = (self.path.join("/"), format.array_suffix());
        let has = !suffix.is_empty() && name.ends_with(suffix);
        if has { name } else { name + suffix }
    }

    /// The length of its values; the plan was made of arrays that have one.
    pub(super) fn bytes(&self) -> u64 {
        self.shape().elements().unwrap_or(0).saturating_mul(self.dtype.size())
    }
}

/// The arrays to write, sorted by their names in the output.
pub(super) fn plan<'c>(
    entries: &[StoredVariable<'c>],
    saved_by: u32,
    wanted: &ArrayExport,
) -> Result<Vec<OutputArray<'c>>> {
    check_wanted(entries, saved_by, wanted)?;
    let by_rank = !wanted.ranks.is_empty();
    let mut joined: BTreeMap<&str, Vec<&VariableEntry>> = BTreeMap::new();
    let mut arrays = Vec::new();
    for variable in entries {
        let (entry, origin) = (variable.entry, variable.origin.as_ref());
        let name = entry.description.name.as_str();
        let named = |pattern: &String| matches_variable(pattern, name, origin);
        if !wanted.variables.is_empty() && !wanted.variables.iter().any(named) {
            continue;
        }
        match &entry.description.part {
            Some(Part::Same) => {
                arrays.push(OutputArray::new(entry, None, ArraySources::own(entry)));
            }
            _ if by_rank && !wanted.ranks.contains(&entry.rank) => {}
            Some(Part::Box(_) | Part::Rows) if !by_rank => {
                joined.entry(name).or_default().push(entry);
            }
            _ => {
                let own = ArraySources::own(entry);
                let mut array = OutputArray::new(entry, Some(entry.rank), own);
                if saved_by > 1 {
                    array.path.insert(0, format!("rank-{}", entry.rank));
                }
                arrays.push(array);
            }
        }
    }
    for (name, parts) in joined {
        let apart = |e: Error| e.hint("export what each rank saved, with --rank");
        let values = ArraySources::joined(name, &parts).map_err(apart)?;
        values.check_whole(name, parts[0].description.dtype).map_err(apart)?;
        arrays.push(OutputArray::new(parts[0], None, values));
    }
    arrays.sort_by(|a, b| a.path.cmp(&b.path));
    check_paths(&arrays, wanted.format)?;
    Ok(arrays)
}

/// Refuses patterns that match nothing and ranks that are not there: nobody would notice otherwise.
fn check_wanted(entries: &[StoredVariable], saved_by: u32, wanted: &ArrayExport) -> Result<()> {
    let names: BTreeSet<&str> = entries.iter().map(StoredVariable::name).collect();
    for pattern in &wanted.variables {
        if !entries.iter().any(|v| matches_variable(pattern, v.name(), v.origin.as_ref())) {
            let more = if names.len() > MOST_NAMES { ", …" } else { "" };
            let listed: Vec<&str> = names.iter().copied().take(MOST_NAMES).collect();
            let what = format!("no variable matches {pattern:?}");
            let hint = format!("* and ? stand for anything; there are {}{more}", listed.join(", "));
            return Err(Error::new(ErrorKind::NotFound, what).hint(hint));
        }
    }
    match wanted.ranks.iter().find(|rank| rank.0 >= saved_by) {
        Some(rank) => Err(Error::new(ErrorKind::NotFound, format!("there is no rank {rank}"))
            .hint(format!("the checkpoint was saved by {saved_by}, counted from 0"))),
        None => Ok(()),
    }
}

/// Refuses names that lead out of the output, that the format has no room for, or that two arrays would share.
fn check_paths(arrays: &[OutputArray], format: ArrayFormat) -> Result<()> {
    let mut taken: BTreeMap<String, &OutputArray> = BTreeMap::new();
    for array in arrays {
        for name in &array.path {
            if let Some(why) = fault(name, format) {
                let what = format!("variable {:?} cannot be exported: {why}", array.variable);
                return Err(Error::usage(what).hint("export other variables, with --vars"));
            }
        }
        let path = array.file_name(format);
        if let Some(other) = taken.insert(path, array) {
            return Err(shared(array, other));
        }
    }
    for array in arrays {
        for depth in 1..array.path.len() {
            if let Some(other) = taken.get(&array.path[..depth].join("/")) {
                return Err(shared(array, other));
            }
        }
    }
    Ok(())
}

/// The error of two arrays that need one name.
fn shared(array: &OutputArray, other: &OutputArray) -> Error {
    let shown = |array: &OutputArray| match array.rank {
        Some(rank) => format!("{:?} of rank {rank}", array.variable),
        None => format!("{:?}", array.variable),
    };
    let what = format!("variables {} and {} need the same name", shown(other), shown(array));
    Error::usage(what).hint("export one of them at a time, with --vars or --rank")
}

/// The reason for which a group or an array cannot have a name, if there is one.
fn fault(name: &str, format: ArrayFormat) -> Option<&'static str> {
    let files = format != ArrayFormat::Hdf5;
    match name {
        "" => Some("a name between slashes is empty"),
        "." | ".." => Some("its name has a part . or .."),
        _ if files && name.len() + format.array_suffix().len() > MAX_FILE_NAME => {
            Some("its name is too long for a file")
        }
        _ if format == ArrayFormat::Zarr && name.starts_with("__") => {
            Some("Zarr reserves names that begin with __")
        }
        _ if format == ArrayFormat::Zarr
            && (name == "zarr.json" || name.trim_matches('.').is_empty()) =>
        {
            Some("Zarr has no such names")
        }
        _ => None,
    }
}

/// Groups and arrays by their names; arrays are numbers in the plan.
#[derive(Default)]
pub(super) struct OutputGroup<'p> {
    pub(super) groups: BTreeMap<&'p str, OutputGroup<'p>>,
    pub(super) arrays: BTreeMap<&'p str, usize>,
}

impl<'p> OutputGroup<'p> {
    /// The outermost group.
    pub(super) fn root(arrays: &'p [OutputArray]) -> Self {
        let mut root = OutputGroup::default();
        for (number, array) in arrays.iter().enumerate() {
            let Some((own, groups)) = array.path.split_last() else { continue };
            let mut group = &mut root;
            for name in groups {
                group = group.groups.entry(name).or_default();
            }
            group.arrays.insert(own, number);
        }
        root
    }

    /// The paths of all groups below this one, outer ones first.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for (name, group) in &self.groups {
            paths.push(name.to_string());
            paths.extend(group.paths().iter().map(|below| format!("{name}/{below}")));
        }
        paths
    }
}

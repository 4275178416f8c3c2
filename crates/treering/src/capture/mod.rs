//! The part of a checkpoint that the program waits for: scanning arrays for changes and copying them.
//!
//! Nothing here decides whether a checkpoint is whole, or writes anything: that decision comes in, and
//! batches of changed chunks go out.

mod meter;
mod scanner;
mod staging;
mod trees;

pub(crate) use meter::{ProgressCall, SaveMeter};
pub(crate) use scanner::{Capture, StagedBatch};
pub(crate) use staging::Staging;

use crate::array::{Bound, Description, Rounding, Variable};
use crate::compare::TreeSettings;
use crate::error::{Error, Result};
use crate::lineage::{ChunkSize, Method};
use std::collections::HashSet;

/// Settings of a capture.
#[derive(Clone)]
pub(crate) struct CaptureSettings {
    pub(crate) chunk: ChunkSize,
    pub(crate) method: Method,
    /// Patterns of names, and the bounds of the trees for variables that match.
    pub(crate) bounds: Vec<(String, Bound)>,
    pub(crate) trees: TreeSettings,
    /// Whether only trees are kept.
    pub(crate) trees_only: bool,
}

/// A variable whose bytes will come, and how they are rounded.
#[derive(Clone)]
pub(crate) struct Declared {
    pub(crate) description: Description,
    pub(crate) rounded: Option<Rounding>,
}

impl Declared {
    pub(crate) fn of(variables: &[Variable]) -> Result<Vec<Declared>> {
        let declare = |v: &Variable| {
            Ok(Declared { description: v.description.clone(), rounded: v.rounding()? })
        };
        variables.iter().map(declare).collect()
    }
}

/// The bytes of all variables.
pub(crate) fn state_bytes(declared: &[Declared]) -> u64 {
    declared.iter().filter_map(|d| d.description.bytes()).fold(0, u64::saturating_add)
}

/// Refuses invalid variables before anything is touched.
pub(crate) fn check(variables: &[Variable]) -> Result<()> {
    let mut names = HashSet::new();
    for variable in variables {
        variable.check()?;
        if variable.description.name.starts_with(crate::format::HIDDEN) {
            return Err(Error::usage(format!(
                "names that begin with treering: are taken, as in {:?}",
                variable.description.name
            ))
            .hint("give the variable another name"));
        }
        if !names.insert(&variable.description.name) {
            return Err(Error::usage(format!(
                "variable {:?} was given twice in one checkpoint",
                variable.description.name
            )));
        }
    }
    Ok(())
}

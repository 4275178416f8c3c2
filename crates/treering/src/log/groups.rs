//! The groups of checkpoints, wherever they stand: in the manifest, or in branches below it.
//!
//! Lists of checkpoints need none of this. A reader of all groups reads each branch once; a reader of one reads
//! the branches on the way to it, one for each level. A branch is what its digest says, or it is damaged.

use super::Survey;
use crate::array::GroupId;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Branch, BranchName, BranchRef, Branches, Group, Groups, Manifest, Names, PackName,
};
use crate::merkle::digest;
use crate::store::{Blob, Store, read_small};

/// A checkpoint with all its groups.
#[derive(Clone, Debug)]
pub(crate) struct FullManifest {
    pub(crate) manifest: Manifest,
    /// Groups that are not in the manifest itself.
    below: Vec<Group>,
}

impl FullManifest {
    /// Reads what stands below a manifest.
    pub(crate) fn read(store: &dyn Store, manifest: Manifest) -> Result<FullManifest> {
        let mut below = Vec::new();
        if let Groups::Below(branches) = &manifest.groups {
            let place = format!("{}@{}", manifest.run, manifest.step);
            collect(store, &manifest, branches, &mut below).map_err(|error| error.at(place))?;
        }
        Ok(FullManifest { manifest, below })
    }

    /// One whose groups are in the manifest itself.
    #[cfg(test)]
    pub(crate) fn of(manifest: Manifest) -> FullManifest {
        FullManifest { manifest, below: Vec::new() }
    }

    pub(crate) fn groups(&self) -> &[Group] {
        self.manifest.groups.here().unwrap_or(&self.below)
    }

    pub(crate) fn into_groups(self) -> Vec<Group> {
        match self.manifest.groups {
            Groups::Here(groups) => groups,
            Groups::Below(_) => self.below,
        }
    }

    /// The packs that it names.
    pub(crate) fn packs(&self) -> impl Iterator<Item = (String, PackName)> {
        self.groups().iter().enumerate().flat_map(|(number, group)| {
            group.names(GroupId(number as u32)).map(|(run, name)| (run.to_string(), name))
        })
    }

    /// The packs that it has added to its run.
    pub(crate) fn made(&self) -> impl Iterator<Item = PackName> {
        self.groups().iter().enumerate().filter_map(|(number, group)| {
            let newest = group.names(GroupId(number as u32)).last();
            newest.filter(|(run, _)| *run == self.manifest.run).map(|(_, name)| name)
        })
    }
}

impl Survey {
    /// Takes the checkpoints out, with all their groups; one whose groups cannot be read is unreadable.
    pub(crate) fn take_full(&mut self, store: &dyn Store) -> Vec<FullManifest> {
        let mut full = Vec::new();
        for manifest in std::mem::take(&mut self.manifests) {
            let sequence = manifest.sequence;
            match FullManifest::read(store, manifest) {
                Ok(manifest) => full.push(manifest),
                Err(error) => self.unreadable.push((sequence, error)),
            }
        }
        full
    }
}

/// One group of a checkpoint.
pub(crate) fn read_group(store: &dyn Store, manifest: &Manifest, group: GroupId) -> Result<Group> {
    let none = || {
        Error::damaged(format!("there is no group {group}"))
            .at(format!("{}@{}", manifest.run, manifest.step))
    };
    let mut groups = manifest.groups.clone();
    let mut number = group.0;
    loop {
        let below = match groups {
            Groups::Here(here) => return here.into_iter().nth(number as usize).ok_or_else(none),
            Groups::Below(below) => below,
        };
        let mut found = None;
        for (place, child) in (below.first..).zip(&below.refs) {
            match number.checked_sub(child.groups) {
                Some(rest) => number = rest,
                None => {
                    found = Some((place, child));
                    break;
                }
            }
        }
        let (index, child) = found.ok_or_else(none)?;
        groups = read_branch(store, manifest, below.level, index, child)?;
    }
}

/// Adds all groups below some branches, in their order.
fn collect(
    store: &dyn Store,
    manifest: &Manifest,
    branches: &Branches,
    groups: &mut Vec<Group>,
) -> Result<()> {
    for (index, child) in (branches.first..).zip(&branches.refs) {
        match read_branch(store, manifest, branches.level, index, child)? {
            Groups::Here(mut here) => groups.append(&mut here),
            Groups::Below(below) => collect(store, manifest, &below, groups)?,
        }
    }
    Ok(())
}

/// The groups of a branch; a bad copy gives way to the next.
fn read_branch(
    store: &dyn Store,
    manifest: &Manifest,
    level: u8,
    index: u32,
    expected: &BranchRef,
) -> Result<Groups> {
    let (sequence, writer) = (manifest.sequence, manifest.writer);
    let name = BranchName { sequence, writer, level, index };
    let key = Names::new(&manifest.run).branch(name);
    let mut trouble = Error::damaged("a branch of this checkpoint is missing").at(&key);
    for copy in store.copies(&key).into_iter().rev() {
        match copy.and_then(|copy| check(copy.as_ref(), level, expected)) {
            Ok(groups) => return Ok(groups),
            // An error of access says that the branch may be fine; damage in another copy does not.
            Err(error) if trouble.kind() != ErrorKind::Io => trouble = error.at(&key),
            Err(_) => {}
        }
    }
    Err(trouble)
}

fn check(copy: &dyn Blob, level: u8, expected: &BranchRef) -> Result<Groups> {
    let bytes = read_small(copy)?;
    let wrong = || Error::damaged("a branch is not the one that the manifest means");
    if digest(&bytes) != expected.digest {
        return Err(wrong());
    }
    let branch = Branch::parse(&bytes)?;
    let fits = branch.level == level && branch.part.groups.count() == u64::from(expected.groups);
    if fits { Ok(branch.part.groups) } else { Err(wrong()) }
}

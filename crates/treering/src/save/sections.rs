//! Making a checkpoint of many groups appear: every group publishes its section, whoever completes a branch publishes
//! that, and whoever completes the tree writes the manifest.
//!
//! A section is what one group adds, under a name of its own. Nobody waits for anybody and nobody is special: after a
//! group has published its section it looks at those beside it, at most [`FAN`] names; if none is missing, it makes their
//! branch and looks at the branches beside that one, and so on to the manifest. Each is a pure function of what stands
//! below it ([`Branch::join`]), so two that make it at once write the same bytes, and put-if-absent takes one. Names are
//! opened one by one up to the first that is missing, never listed: what was published before somebody looks is
//! found, also where listings are late. The law:
//! - a branch appears only when everything below it has, and a section only when its pack is durable;
//! - a delta's manifest appears only behind that of the checkpoint before; a whole checkpoint marks the numbers before it
//!   that are still missing, which gives them up. Checkpoints that stay on nodes are no reason to wait; they get marks;
//! - sections go when their branch is there, or their manifest; an opener makes the branches and the manifest of a set
//!   that is complete, and removes all others.

use super::ballot::Outcomes;
use super::handle::held;
use super::publish::{LogWriter, commit_once, with_branches};
use super::tree::{GroupOf, GroupTree};
use crate::array::{GroupId, Sequence};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Branch, BranchName, FAN, Manifest, Mark, Names, Opening, WriterId};
use crate::log::Log;
use crate::points::reach;
use crate::store::{Store, read_small};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The sections and branches of a run in its last tier.
pub(crate) struct Sections {
    store: Arc<dyn Store>,
    names: Names,
    fan: u32,
    /// The fates of checkpoints, as far as this process knows.
    outcomes: Arc<Mutex<Outcomes>>,
    /// The group that has published here.
    own: Cell<Option<GroupOf>>,
}

/// The tree of one checkpoint.
#[derive(Clone, Copy)]
struct CheckpointTree {
    sequence: Sequence,
    writer: WriterId,
    shape: GroupTree,
}

impl CheckpointTree {
    fn name(&self, level: u8, index: u32) -> BranchName {
        BranchName { sequence: self.sequence, writer: self.writer, level, index }
    }

    /// The names of everything that stands right below a branch.
    fn children(&self, level: u8, index: u32) -> impl Iterator<Item = BranchName> {
        self.shape.children(level, index).map(move |child| self.name(level - 1, child))
    }
}

impl Sections {
    pub(crate) fn new(store: Arc<dyn Store>, run: &str, outcomes: Arc<Mutex<Outcomes>>) -> Self {
        Sections { store, names: Names::new(run), fan: FAN, outcomes, own: Cell::new(None) }
    }

    /// Publishes the section of a group, and completes every checkpoint that is complete now.
    pub(crate) fn publish(&self, log: &mut LogWriter, part: &Manifest, own: GroupOf) -> Result<()> {
        let (of, index) = (own.groups, own.group.0);
        self.put(&Branch { of, level: 0, index, part: part.clone() })?;
        reach("section-published");
        self.own.set(Some(own));
        self.complete_from(log, part.sequence)
    }

    /// Looks again for what has become of checkpoints: somebody may have died before it had made a branch.
    pub(crate) fn look_again(&self, log: &mut LogWriter, published: &mut Vec<Sequence>) {
        published.retain(|sequence| held(&self.outcomes).of(*sequence).is_none());
        // A fate that cannot be found out now is found out later.
        published.retain(|sequence| !matches!(self.complete(log, *sequence), Ok(true)));
    }

    /// Completes a checkpoint and those behind it, as far as they are complete.
    pub(crate) fn complete_from(&self, log: &mut LogWriter, first: Sequence) -> Result<()> {
        let mut sequence = first;
        while self.complete(log, sequence)? {
            sequence = sequence.next();
        }
        Ok(())
    }

    /// Completes what can be completed on the way from the own section to the manifest of a checkpoint; whether it has
    /// a manifest now.
    fn complete(&self, log: &mut LogWriter, sequence: Sequence) -> Result<bool> {
        log.catch_up()?;
        if sequence <= log.committed() {
            if !self.is_aside(sequence) {
                self.note(sequence, log.is_mark(sequence)?);
            }
            return Ok(true);
        }
        let Some(own) = self.own.get() else { return Ok(false) };
        let shape = GroupTree { groups: own.groups, fan: self.fan };
        let tree = CheckpointTree { sequence, writer: log.writer(), shape };
        let Some(children) = self.climb(&tree, own.group)? else { return Ok(false) };
        let manifest = Branch::join(children)?;
        let begins = manifest.epoch.run.is_none() && manifest.epoch.sequence == sequence;
        if !self.complete_before(log, sequence)? && !begins {
            return Ok(false);
        }
        let given_up: Vec<Sequence> = log.missing_before(sequence);
        let given_up: Vec<Sequence> =
            given_up.into_iter().filter(|number| !self.is_aside(*number)).collect();
        log.commit(&manifest)?;
        given_up.into_iter().for_each(|number| self.note(number, true));
        self.note(sequence, false);
        if shape.top() == 0 {
            self.remove_sections(&tree, 0..shape.groups);
        }
        Ok(true)
    }

    /// Completes the checkpoints before one that can appear now; whether none of them is missing. The objects that a
    /// checkpoint builds on come first; without them it never appears.
    fn complete_before(&self, log: &mut LogWriter, sequence: Sequence) -> Result<bool> {
        let mut all = true;
        let mut before = log.committed().next();
        while before < sequence {
            let mut there = self.is_aside(before) || self.complete(log, before)?;
            if !there {
                // Others have committed it, and somebody has removed it since: the log has a gap.
                log.catch_up_over_gaps()?;
                there = before <= log.committed();
            }
            all &= there;
            before = before.next();
        }
        Ok(all)
    }

    /// Makes the branches above a group, as far as nothing below them is missing. Returns the objects right below the
    /// manifest, if none of them is missing.
    fn climb(&self, tree: &CheckpointTree, group: GroupId) -> Result<Option<Vec<Branch>>> {
        let top = tree.shape.top();
        for level in 1..=top {
            if !self.make(tree, level, tree.shape.above(group, level))? {
                return Ok(None);
            }
        }
        self.all(tree, (0..tree.shape.width(top)).map(|index| tree.name(top, index)))
    }

    /// Makes a branch if nothing below it is missing; whether it is there now.
    fn make(&self, tree: &CheckpointTree, level: u8, index: u32) -> Result<bool> {
        match self.all(tree, tree.children(level, index))? {
            Some(children) => self.put_above(tree, level, index, children).map(|_| true),
            // Its sections may be gone because it is there.
            None => Ok(self.read(tree.name(level, index))?.is_some()),
        }
    }

    /// Publishes the branch that others make.
    fn put_above(
        &self,
        tree: &CheckpointTree,
        level: u8,
        index: u32,
        children: Vec<Branch>,
    ) -> Result<Branch> {
        let part = Branch::join(children)?;
        let branch = Branch { of: tree.shape.groups, level, index, part };
        self.put(&branch)?;
        reach("branch-published");
        if level == 1 {
            self.remove_sections(tree, tree.shape.children(level, index));
        }
        Ok(branch)
    }

    fn put(&self, branch: &Branch) -> Result<()> {
        commit_once(self.store.as_ref(), &self.names, branch)
    }

    fn remove_sections(&self, tree: &CheckpointTree, groups: Range<u32>) {
        let keys: Vec<String> = groups.map(|g| self.names.branch(tree.name(0, g))).collect();
        // Files that cannot be removed now are removed when the run is opened again.
        let _ = self.store.delete(&keys);
        reach("sections-removed");
    }

    /// All of these; nothing if one is missing, or is of another number of groups.
    fn all(
        &self,
        tree: &CheckpointTree,
        names: impl Iterator<Item = BranchName>,
    ) -> Result<Option<Vec<Branch>>> {
        let mut all = Vec::new();
        for name in names {
            match self.read(name)? {
                Some(branch) if branch.of == tree.shape.groups => all.push(branch),
                _ => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// A branch or section, if it is there.
    fn read(&self, name: BranchName) -> Result<Option<Branch>> {
        let key = self.names.branch(name);
        let bytes = match self.store.open(&key).and_then(|blob| read_small(blob.as_ref())) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let branch = Branch::parse(&bytes).map_err(|error| error.at(&key))?;
        // The object above holds the digest of these bytes.
        match branch.name() == name && branch.write() == bytes {
            true => Ok(Some(branch)),
            false => Err(Error::damaged("a section or branch belongs elsewhere").at(key)),
        }
    }

    /// A checkpoint never gets the section of this group.
    pub(crate) fn give_up(&self, sequence: Sequence) {
        self.note(sequence, true);
    }

    /// Whether a checkpoint stays on nodes.
    fn is_aside(&self, sequence: Sequence) -> bool {
        held(&self.outcomes).aside.contains(&sequence.0)
    }

    fn note(&self, sequence: Sequence, given_up: bool) {
        let mut outcomes = held(&self.outcomes);
        match given_up {
            true => outcomes.given_up.insert(sequence.0),
            false => outcomes.committed.insert(sequence.0),
        };
    }

    /// Completes, for an opener, the checkpoints of the newest writer behind the newest entry whose sections are all
    /// there; whether the log is another one now. A section is there only if all packs of its epoch are, so numbers
    /// between that lack one are no reason not to: they get marks.
    pub(crate) fn roll_forward(&self, log: &Log) -> Result<bool> {
        let Some(opening) = log.newest_opening()? else { return Ok(false) };
        let writer = opening.writer;
        let mut newest = log.newest();
        for sequence in self.begun_behind(newest, writer)? {
            let Some(manifest) = self.assembled(sequence, writer)? else { continue };
            let run = &manifest.run;
            for number in (newest.0 + 1..sequence.0).map(Sequence) {
                let mark = Mark { run: run.clone(), sequence: number, writer }.write();
                let free = self.store.commit(&self.names.entry(number), &mark)?;
                if !free && self.is_opening(number)? {
                    return Ok(true);
                }
            }
            if !self.store.commit(&self.names.entry(sequence), &manifest.write())? {
                return Ok(true);
            }
            newest = sequence;
        }
        Ok(newest != log.newest())
    }

    /// Whether somebody has taken the run with this number.
    fn is_opening(&self, sequence: Sequence) -> Result<bool> {
        let entry = self.store.open(&self.names.entry(sequence));
        let bytes = entry.and_then(|blob| read_small(blob.as_ref()))?;
        Ok(Opening::is_magic(&bytes))
    }

    /// The numbers behind one of which a writer has published something.
    fn begun_behind(&self, newest: Sequence, writer: WriterId) -> Result<BTreeSet<Sequence>> {
        let mut begun = BTreeSet::new();
        for folder in [self.names.sections(), self.names.branches()] {
            let items = self.store.list_after(&folder, &format!("{:012}", newest.0))?;
            let names = items.iter().filter_map(|item| Names::parse_branch(&item.name));
            let own = names.filter(|name| name.writer == writer && name.sequence > newest);
            begun.extend(own.map(|name| name.sequence));
        }
        Ok(begun)
    }

    /// The manifest of a checkpoint, if nothing below it is missing; its branches are made.
    fn assembled(&self, sequence: Sequence, writer: WriterId) -> Result<Option<Manifest>> {
        let assembled = self.assemble_all(sequence, writer).and_then(|children| match children {
            Some(children) => {
                let manifest = Branch::join(children)?;
                with_branches(self.store.as_ref(), &self.names, manifest).map(Some)
            }
            None => Ok(None),
        });
        match assembled {
            // A section that cannot be read completes nothing.
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(None),
            assembled => assembled,
        }
    }

    /// The objects right below the manifest of a checkpoint, made where they were missing; `None` if a section is
    /// missing.
    fn assemble_all(&self, sequence: Sequence, writer: WriterId) -> Result<Option<Vec<Branch>>> {
        let shape = GroupTree { groups: 1, fan: self.fan };
        let mut tree = CheckpointTree { sequence, writer, shape };
        // The first section tells how many there are, or the branch above it, if that is there already.
        for level in 0.. {
            match self.read(tree.name(level, 0))? {
                Some(first) => {
                    tree.shape.groups = first.of;
                    break;
                }
                None if level > GroupTree { groups: u32::MAX, fan: self.fan }.top() => {
                    return Ok(None);
                }
                None => {}
            }
        }
        let top = tree.shape.top();
        let children = 0..tree.shape.width(top);
        children.map(|index| self.assemble(&tree, top, index)).collect()
    }

    fn assemble(&self, tree: &CheckpointTree, level: u8, index: u32) -> Result<Option<Branch>> {
        if let Some(branch) = self.read(tree.name(level, index))? {
            return Ok(Some(branch));
        }
        if level == 0 {
            return Ok(None);
        }
        let children = tree.shape.children(level, index);
        let children: Result<Option<Vec<Branch>>> =
            children.map(|child| self.assemble(tree, level - 1, child)).collect();
        match children? {
            Some(children) => self.put_above(tree, level, index, children).map(Some),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;

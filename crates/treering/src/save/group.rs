//! Writing the pack of one group of ranks: batches of changed chunks in, a sealed pack out.
//!
//! The writer keeps what lasts from one checkpoint to the next (the record, the trees, what was learnt
//! about variables), and the packs of the open epoch. It is told when a pack has become part of a
//! checkpoint; until then the pack counts for nothing.

use super::WriterSettings;
use crate::array::{Description, GroupId, Rank, Rounding, Step, VariableKey};
use crate::codec::Nature;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    FILE_PREFIX, Footer, Group, Manifest, Names, Origin, PackName, Seal, Stats, VariableEntry,
    WriterId, header,
};
use crate::lineage::MAX_PACKS;
use crate::merkle::{Digest, Hasher, Tree};
use crate::pack::{Before, Keeper, PackPlan, Packed, Packer, Strip};
use crate::restore::Pack;
use crate::store::Put;
use std::collections::HashSet;
use std::sync::Arc;

/// A variable of a checkpoint that is being written.
pub(crate) struct GroupMember {
    pub(crate) packed: Packed,
    pub(crate) description: Description,
    pub(crate) rounded: Option<Rounding>,
}

impl GroupMember {
    /// A variable that stands for itself.
    pub(crate) fn own(
        rank: Rank,
        description: &Description,
        rounded: Option<Rounding>,
    ) -> GroupMember {
        let packed = Packed {
            rank,
            name: description.name.clone(),
            like: description.name.clone(),
            bytes: description.bytes().unwrap_or(0),
            nature: Nature::of(description).rounded(rounded.as_ref()),
            far: false,
        };
        GroupMember { packed, description: description.clone(), rounded }
    }

    /// The same variable, packed together with all others of its rank: values repeat from one to another.
    pub(crate) fn with_rank(mut self) -> GroupMember {
        let flat = Nature::flat(self.description.dtype).rounded(self.rounded.as_ref());
        (self.packed.like, self.packed.nature, self.packed.far) = (String::new(), flat, true);
        self
    }
}

/// One pack to be written.
pub(crate) struct PackJob<'a> {
    pub(crate) writer: WriterId,
    /// The number of the checkpoint, which no other pack of this writer has.
    pub(crate) attempt: u64,
    pub(crate) members: &'a [GroupMember],
    pub(crate) hasher: &'a Hasher,
    /// The state before, if frames may be differences to it.
    pub(crate) before: Option<&'a dyn Before>,
    /// Whether similar variables of several ranks take turns in blocks.
    pub(crate) turns: bool,
    /// The threads that encode; by default those of the whole process.
    pub(crate) pool: Option<&'a rayon::ThreadPool>,
}

/// A pack that is complete.
pub(crate) struct SealedPack {
    pub(crate) footer: Footer,
    pub(crate) seal: Seal,
    pub(crate) stats: Stats,
}

impl SealedPack {
    /// The pack as readers of the epoch see it.
    pub(crate) fn into_pack(self) -> Pack {
        pack_of(self.footer)
    }
}

/// The pack that a footer names.
pub(super) fn pack_of(footer: Footer) -> Pack {
    Pack { key: Names::new(&footer.run).pack(footer.name), footer: Arc::new(footer) }
}

/// Takes strips and the batch that holds their bytes.
pub(crate) type Take<'t> = dyn FnMut(&[Strip], &[u8]) -> Result<()> + 't;

/// The writer of one group.
pub(crate) struct GroupWriter {
    group: GroupId,
    pub(crate) keeper: Keeper,
    /// The packs of the open epoch.
    packs: Option<Group>,
}

impl GroupWriter {
    pub(crate) fn new(group: GroupId, keeper: Keeper) -> Self {
        GroupWriter { group, keeper, packs: None }
    }

    /// Whether there is a pack to build on.
    pub(crate) fn has_base(&self) -> bool {
        self.packs.is_some()
    }

    /// The next pack builds on nothing.
    pub(crate) fn begin_epoch(&mut self) {
        self.keeper.begin_epoch();
        self.keeper.trees.clear();
        self.packs = None;
    }

    /// Goes on with an epoch that was read: its packs, and the tree of each variable.
    pub(crate) fn resume(
        &mut self,
        packs: Group,
        trees: impl IntoIterator<Item = (VariableKey, Tree)>,
    ) {
        self.begin_epoch();
        self.keeper.trees.extend(trees);
        self.packs = Some(packs);
    }

    /// The name that a pack of this group would have.
    pub(crate) fn name(&self, writer: WriterId, attempt: u64) -> PackName {
        PackName { writer, attempt, group: self.group }
    }

    /// Writes a pack to `put`, which is left to be finished; `feed` hands over all batches in order.
    pub(crate) fn write(
        &mut self,
        settings: &WriterSettings,
        job: PackJob,
        put: &mut dyn Put,
        feed: impl FnOnce(&mut Take) -> Result<()>,
    ) -> Result<SealedPack> {
        let pool = job.pool;
        put.append(&header())?;
        let (footer, stats) = self.write_frames(settings, job, put, feed)?;
        let (bytes, seal) = within(pool, || footer.write());
        put.append(&bytes)?;
        Ok(SealedPack { footer, seal, stats })
    }

    /// The same without header and footer: the footer that would follow.
    pub(crate) fn write_frames(
        &mut self,
        settings: &WriterSettings,
        job: PackJob,
        put: &mut dyn Put,
        feed: impl FnOnce(&mut Take) -> Result<()>,
    ) -> Result<(Footer, Stats)> {
        let ordinal = self.packs.as_ref().map_or(0, Group::count);
        if ordinal >= u64::from(MAX_PACKS) - 1 {
            return Err(Error::new(ErrorKind::Limit, "the epoch has too many packs"));
        }
        let plan = PackPlan {
            run: settings.run.clone(),
            name: self.name(job.writer, job.attempt),
            ordinal: ordinal as u32,
            parent: self.packs.as_ref().map(|group| group.seal),
            chunk: settings.chunk,
            method: settings.method,
            variables: job.members.iter().map(|member| member.packed.clone()).collect(),
            turns: job.turns,
        };
        let keeper = &mut self.keeper;
        let mut packer = Packer::new(plan, job.hasher, job.before);
        let mut sink = |bytes: &[u8]| put.append(bytes);
        feed(&mut |strips, bytes| {
            within(job.pool, || packer.take(keeper, strips, bytes, &mut sink))
        })?;
        let (mut footer, stats) = within(job.pool, || packer.finish(keeper, &mut sink))?;
        let keys: HashSet<VariableKey> =
            job.members.iter().map(|member| member.packed.key()).collect();
        keeper.retain(|key| keys.contains(key));
        let entry = |member: &GroupMember| VariableEntry {
            rank: member.packed.rank,
            group: self.group,
            description: member.description.clone(),
            chunk: settings.chunk,
            root: root(keeper, &member.packed),
            rounded: member.rounded,
        };
        footer.variables = job.members.iter().map(entry).collect();
        Ok((footer, stats))
    }

    /// The seal of the newest pack of the epoch.
    pub(crate) fn newest_seal(&self) -> Option<Seal> {
        self.packs.as_ref().map(|group| group.seal)
    }

    /// The packs of the epoch with a new one behind them.
    pub(crate) fn with(&self, sealed: &SealedPack) -> Group {
        let none = Group { packs: Vec::new(), seal: sealed.seal };
        let mut group = self.packs.clone().unwrap_or(none);
        group.push(&sealed.footer.run, sealed.footer.name, sealed.seal);
        group
    }

    /// A checkpoint with these packs exists now.
    pub(crate) fn keep(&mut self, packs: Group) {
        self.packs = Some(packs);
    }
}

pub(super) fn within<T: Send>(
    pool: Option<&rayon::ThreadPool>,
    work: impl FnOnce() -> T + Send,
) -> T {
    match pool {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

fn root(keeper: &Keeper, packed: &Packed) -> Digest {
    let tree = keeper.trees.get(&packed.key());
    tree.map_or_else(|| Tree::default().root(packed.bytes), |tree| tree.root(packed.bytes))
}

/// The manifest of a checkpoint of these packs; where it stands in the log is still to be filled in.
pub(crate) fn draft(
    run: &str,
    writers: &[GroupWriter],
    sealed: &[SealedPack],
    ranks: u32,
) -> Manifest {
    let mut manifest = Manifest {
        run: run.to_string(),
        sequence: Default::default(),
        writer: WriterId::default(),
        step: Step(0),
        time: super::now(),
        parent: None,
        epoch: Origin { run: None, sequence: Default::default() },
        seed: 0,
        ranks,
        variables: 0,
        rounded: 0,
        files: 0,
        full_bytes: 0,
        stats: Stats::default(),
        groups: writers.iter().zip(sealed).map(|(writer, sealed)| writer.with(sealed)).collect(),
        labels: Default::default(),
        source_bytes: 0,
    };
    for sealed in sealed {
        manifest.stats.same_bytes += sealed.stats.same_bytes;
        manifest.stats.duplicate_bytes += sealed.stats.duplicate_bytes;
        manifest.stats.new_bytes += sealed.stats.new_bytes;
        for variable in &sealed.footer.variables {
            if !variable.is_hidden() {
                manifest.variables += 1;
                manifest.source_bytes = manifest.source_bytes.saturating_add(variable.bytes());
            }
            manifest.rounded += u64::from(variable.rounded.is_some());
            manifest.files += u64::from(variable.description.name.starts_with(FILE_PREFIX));
            manifest.full_bytes = manifest.full_bytes.saturating_add(variable.bytes());
        }
    }
    manifest
}

//! The maker of one part of a group's packs: its writer, and the bytes that it packed before, for differences.
//!
//! A rank sees the packs of its group through the footers of its own parts, with places that begin at 0 in every part;
//! whoever joins the parts moves these places ([`JoinedPack`](crate::pack::JoinedPack)). So the places of a difference
//! are those of the maker, and its bytes are read from the joined packs.

use super::WriterSettings;
use super::group::{GroupWriter, PackJob, SealedPack, Take, draft};
use crate::array::{GroupId, Rank, VariableKey};
use crate::error::Result;
use crate::format::{Footer, Group, Manifest, Stats};
use crate::merkle::Tree;
use crate::pack::{Before, Keeper};
use crate::restore::{Pack, Previous};
use crate::store::{Put, Store};
use std::sync::Arc;

/// The store that holds the packs of a run, for reading.
#[derive(Clone)]
pub(super) struct PackSource {
    store: Arc<dyn Store>,
    /// The run and the number of its ranks.
    of: Manifest,
    /// The most memory for decoded frames, if it is limited.
    frames: Option<usize>,
}

impl PackSource {
    pub(super) fn new(
        store: Arc<dyn Store>,
        run: &str,
        ranks: u32,
        frames: Option<usize>,
    ) -> PackSource {
        PackSource { store, of: draft(run, &[], &[], ranks), frames }
    }
}

/// The checkpoint that an epoch goes on from.
#[derive(Clone)]
pub(super) struct EpochBase {
    pub(super) manifest: Manifest,
    /// The own group in it.
    pub(super) packs: Group,
}

pub(super) struct PartWriter {
    pub(super) writer: GroupWriter,
    group: GroupId,
    source: PackSource,
    previous: Option<Previous>,
}

impl PartWriter {
    pub(super) fn new(group: GroupId, keeper: Keeper, source: PackSource) -> PartWriter {
        PartWriter { writer: GroupWriter::new(group, keeper), group, source, previous: None }
    }

    /// The next pack builds on nothing.
    pub(super) fn begin_epoch(&mut self) {
        self.writer.begin_epoch();
        self.previous = None;
    }

    /// Goes on with an epoch that was read: its packs, and the tree of each variable. `rank` is the only one whose
    /// variables are in this part, if there is one.
    pub(super) fn resume(
        &mut self,
        base: EpochBase,
        trees: impl IntoIterator<Item = (VariableKey, Tree)>,
        rank: Option<Rank>,
    ) {
        self.writer.resume(base.packs, trees);
        let store = self.source.store.clone();
        let previous = Previous::made_by(store, base.manifest, self.group, rank);
        self.previous = Some(previous.keeping(self.source.frames));
    }

    /// A checkpoint with these packs exists now. `part` is what this maker added to the newest, as it lies there; without
    /// it there are no differences until the next epoch.
    pub(super) fn keep(&mut self, packs: Group, part: Option<Pack>) {
        self.writer.keep(packs);
        let PackSource { store, of, frames } = &self.source;
        let begun = || Previous::begun(store.clone(), of.clone()).keeping(*frames);
        let previous = self.previous.get_or_insert_with(begun);
        if let Some(part) = part {
            previous.advance(vec![part]);
        }
    }

    /// As [`GroupWriter::write`].
    pub(super) fn write(
        &mut self,
        settings: &WriterSettings,
        job: PackJob,
        put: &mut dyn Put,
        feed: impl FnOnce(&mut Take) -> Result<()>,
    ) -> Result<SealedPack> {
        let before = self.previous.as_ref().map(|previous| previous as &dyn Before);
        self.writer.write(settings, PackJob { before, ..job }, put, feed)
    }

    /// As [`GroupWriter::write_frames`].
    pub(super) fn write_frames(
        &mut self,
        settings: &WriterSettings,
        job: PackJob,
        put: &mut dyn Put,
        feed: impl FnOnce(&mut Take) -> Result<()>,
    ) -> Result<(Footer, Stats)> {
        let before = self.previous.as_ref().map(|previous| previous as &dyn Before);
        self.writer.write_frames(settings, PackJob { before, ..job }, put, feed)
    }
}

//! The checkpoint before the one that is being made, for differences to it.
//!
//! Its bytes are read from the packs themselves, so it does not matter which process wrote it; the footers
//! of the open epoch stay in memory once they were needed. Where ranks share packs, each of them sees the
//! packs that were joined since it opened the run through the footers of its own part, moved to where that
//! part lies; older ones are seen as they are. Bytes that cannot be read are no base for a difference, and
//! nothing else.

use super::checkpoint::Checkpoint;
use super::fetch::Pack;
use crate::array::{GroupId, Rank, VariableKey};
use crate::error::Result;
use crate::format::{Footer, MAX_DEPTH, Manifest, PackExtent};
use crate::pack::Before;
use crate::store::Store;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

/// A checkpoint that is loaded when something of it is asked for.
pub(crate) struct Previous {
    store: Arc<dyn Store>,
    /// The manifest that names the store's run, and how much of it is there already.
    manifest: Manifest,
    there: AlreadyThere,
    /// The most memory for decoded frames, if it is limited.
    frames: Option<usize>,
    /// The packs of each checkpoint since, as long as they are not loaded.
    added: Mutex<Vec<Vec<Pack>>>,
    loaded: OnceLock<Option<Loaded>>,
}

/// The part of an epoch that was there before its packs are added one by one.
enum AlreadyThere {
    Nothing,
    /// All groups of the checkpoint that the manifest names.
    All,
    /// One group of it, or the variables of one rank in that group.
    Group(GroupId, Option<Rank>),
}

struct Loaded {
    checkpoint: Checkpoint,
    /// Number of differences behind each frame, by group and pack.
    depths: Vec<Vec<Vec<u8>>>,
}

impl Previous {
    fn new(store: Arc<dyn Store>, manifest: Manifest, there: AlreadyThere) -> Self {
        let (added, loaded) = (Mutex::default(), OnceLock::new());
        Previous { store, manifest, there, frames: None, added, loaded }
    }

    /// Limits the memory for decoded frames.
    pub(crate) fn keeping(self, frames: Option<usize>) -> Self {
        Previous { frames, ..self }
    }

    /// A checkpoint that an earlier process made.
    pub(crate) fn made(store: Arc<dyn Store>, manifest: Manifest) -> Self {
        Self::new(store, manifest, AlreadyThere::All)
    }

    /// The variables of one group of it, or of one of its ranks.
    pub(crate) fn made_by(
        store: Arc<dyn Store>,
        manifest: Manifest,
        group: GroupId,
        rank: Option<Rank>,
    ) -> Self {
        Self::new(store, manifest, AlreadyThere::Group(group, rank))
    }

    /// An epoch that has no packs yet; the manifest names the run and the number of ranks.
    pub(crate) fn begun(store: Arc<dyn Store>, manifest: Manifest) -> Self {
        Self::new(store, manifest, AlreadyThere::Nothing)
    }

    /// Becomes the next checkpoint of the epoch, which adds a pack to each group. Once a pack was left out, there are
    /// no bytes before until the next epoch.
    pub(crate) fn advance(&mut self, packs: Vec<Pack>) {
        match self.loaded.take().flatten() {
            Some(mut loaded) => {
                let advanced = loaded.advance(packs).is_ok().then_some(loaded);
                let _ = self.loaded.set(advanced);
            }
            // Parts that could not be loaded are tried again.
            None => self.added.get_mut().unwrap_or_else(|p| p.into_inner()).push(packs),
        }
    }

    fn loaded(&self) -> Option<&Loaded> {
        self.loaded.get_or_init(|| self.load().ok()).as_ref()
    }

    fn load(&self) -> Result<Loaded> {
        let (store, manifest) = (self.store.clone(), self.manifest.clone());
        let mut checkpoint = match self.there {
            AlreadyThere::Nothing => Checkpoint::begun(store, manifest),
            AlreadyThere::All => Checkpoint::load(store, manifest)?,
            AlreadyThere::Group(group, _) => Checkpoint::load_group_of(store, manifest, group)?,
        };
        if let AlreadyThere::Group(_, Some(rank)) = self.there {
            checkpoint.keep_only(rank);
        }
        if let Some(most) = self.frames {
            checkpoint.keep_frames(most);
        }
        let mut loaded = Loaded { checkpoint, depths: Vec::new() };
        loaded.deepen();
        let added = std::mem::take(&mut *self.added.lock().unwrap_or_else(|p| p.into_inner()));
        added.into_iter().try_for_each(|packs| loaded.advance(packs))?;
        Ok(loaded)
    }
}

impl Loaded {
    fn advance(&mut self, packs: Vec<Pack>) -> Result<()> {
        self.checkpoint.advance(packs)?;
        self.deepen();
        Ok(())
    }

    fn deepen(&mut self) {
        let packs = &self.checkpoint.packs;
        self.depths.resize_with(packs.len(), Vec::new);
        self.depths.iter_mut().zip(packs).for_each(|(depths, packs)| deepen(depths, packs));
    }
}

impl Before for Previous {
    fn bytes(
        &self,
        key: &VariableKey,
        ranges: &[Range<u64>],
        out: &mut [u8],
    ) -> Option<Vec<PackExtent>> {
        let Loaded { checkpoint, depths } = self.loaded()?;
        let entry = checkpoint.entry(key)?;
        let group = entry.group.index();
        let runs = checkpoint.runs_of(entry, ranges)?;
        let footers = &checkpoint.packs[group];
        let is_deep = |run: &PackExtent| {
            let footer = &footers[run.place.pack as usize].footer;
            let depths = &depths[group][run.place.pack as usize];
            let first = footer.frame_at(run.place.offset);
            let last = footer.frame_at(run.place.offset + run.len - 1);
            match (first, last) {
                (Some(first), Some(last)) => depths[first..=last].iter().any(|d| *d >= MAX_DEPTH),
                _ => true,
            }
        };
        if runs.iter().any(is_deep) {
            return None;
        }
        checkpoint.read_ranges(entry, ranges, out).ok()?;
        Some(runs)
    }
}

/// Adds, for packs of an epoch that are not counted yet, how many differences stand behind each frame.
fn deepen(all: &mut Vec<Vec<u8>>, packs: &[Pack]) {
    for pack in &packs[all.len()..] {
        let footer: &Footer = &pack.footer;
        let mut own = vec![0u8; footer.frames.len()];
        for (frame, runs) in &footer.before {
            let below = runs.iter().map(|run| {
                let older = &packs[run.place.pack as usize].footer;
                let first = older.frame_at(run.place.offset).unwrap_or(0);
                let last = older.frame_at(run.place.offset + run.len.max(1) - 1).unwrap_or(first);
                let depths = all.get(run.place.pack as usize).map_or(&[][..], |d| &d[..]);
                depths.get(first..=last).into_iter().flatten().copied().max().unwrap_or(MAX_DEPTH)
            });
            own[*frame as usize] = below.max().unwrap_or(0).saturating_add(1);
        }
        all.push(own);
    }
}

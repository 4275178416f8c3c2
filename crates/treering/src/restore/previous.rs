//! The checkpoint before the one that is being made, for differences to it.
//!
//! Its bytes are read from the packs themselves, so it does not matter which process wrote it; the footers
//! of the open epoch stay in memory once they were needed. Bytes that cannot be read are no base for a
//! difference, and nothing else.

use super::checkpoint::Checkpoint;
use super::fetch::Pack;
use crate::array::VariableKey;
use crate::error::Result;
use crate::format::{Footer, MAX_DEPTH, Manifest, PackExtent};
use crate::pack::Before;
use crate::store::Store;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A checkpoint that is loaded when something of it is asked for.
pub(crate) struct Previous {
    store: Arc<dyn Store>,
    manifest: Manifest,
    loaded: OnceLock<Option<Loaded>>,
}

struct Loaded {
    checkpoint: Checkpoint,
    /// How many differences stand behind each frame, by group and pack.
    depths: Vec<Vec<Vec<u8>>>,
}

impl Previous {
    pub(crate) fn new(store: Arc<dyn Store>, manifest: Manifest) -> Self {
        Previous { store, manifest, loaded: OnceLock::new() }
    }

    /// The first checkpoint of an epoch, whose packs this process has just written.
    pub(crate) fn begun(store: Arc<dyn Store>, manifest: Manifest, packs: Vec<Pack>) -> Self {
        let previous = Self::new(store.clone(), manifest.clone());
        if let Ok(checkpoint) = Checkpoint::begun(store, manifest, packs) {
            let _ = previous.loaded.set(Some(Loaded::new(checkpoint)));
        }
        previous
    }

    /// Becomes the next checkpoint of the epoch, which adds a pack to each group.
    pub(crate) fn advance(&mut self, manifest: Manifest, packs: Vec<Pack>) {
        let loaded = self.loaded.take().flatten();
        let advanced = loaded.and_then(|mut loaded| {
            loaded.advance(manifest.clone(), packs).ok()?;
            Some(loaded)
        });
        self.manifest = manifest;
        if let Some(advanced) = advanced {
            let _ = self.loaded.set(Some(advanced));
        }
    }

    fn loaded(&self) -> Option<&Loaded> {
        let load = || {
            let checkpoint = Checkpoint::load(self.store.clone(), self.manifest.clone()).ok()?;
            Some(Loaded::new(checkpoint))
        };
        self.loaded.get_or_init(load).as_ref()
    }
}

impl Loaded {
    fn new(checkpoint: Checkpoint) -> Self {
        let mut depths: Vec<Vec<Vec<u8>>> = checkpoint.packs.iter().map(|_| Vec::new()).collect();
        depths.iter_mut().zip(&checkpoint.packs).for_each(|(depths, packs)| deepen(depths, packs));
        Loaded { checkpoint, depths }
    }

    fn advance(&mut self, manifest: Manifest, packs: Vec<Pack>) -> Result<()> {
        self.checkpoint.advance(manifest, packs)?;
        let groups = self.depths.iter_mut().zip(&self.checkpoint.packs);
        groups.for_each(|(depths, packs)| deepen(depths, packs));
        Ok(())
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

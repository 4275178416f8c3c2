//! The checkpoint before the one that is being made, for differences to it.
//!
//! It is read from the packs themselves, so that nothing has to be held in memory for it and it does
//! not matter which process wrote it. Whatever cannot be read is merely no base for a difference.

use super::checkpoint::Checkpoint;
use super::fetch::Pack;
use crate::format::{Footer, MAX_DEPTH, Manifest, Run};
use crate::pack::{Before, Key};
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

    fn loaded(&self) -> Option<&Loaded> {
        let load = || {
            let checkpoint = Checkpoint::load(self.store.clone(), self.manifest.clone()).ok()?;
            let depths = checkpoint.packs.iter().map(|packs| depths(packs)).collect();
            Some(Loaded { checkpoint, depths })
        };
        self.loaded.get_or_init(load).as_ref()
    }
}

impl Before for Previous {
    fn bytes(&self, key: &Key, ranges: &[Range<u64>], out: &mut [u8]) -> Option<Vec<Run>> {
        let Loaded { checkpoint, depths } = self.loaded()?;
        let entry = checkpoint.entry(key)?;
        let group = entry.group as usize;
        let runs = checkpoint.runs_of(entry, ranges)?;
        let footers = &checkpoint.packs[group];
        let is_deep = |run: &Run| {
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

/// How many differences stand behind each frame of the packs of an epoch.
fn depths(packs: &[Pack]) -> Vec<Vec<u8>> {
    let footers: Vec<&Footer> = packs.iter().map(|pack| &pack.footer).collect();
    let mut all: Vec<Vec<u8>> = Vec::new();
    for footer in &footers {
        let mut own = vec![0u8; footer.frames.len()];
        for (frame, runs) in &footer.before {
            let below = runs.iter().map(|run| {
                let older = footers[run.place.pack as usize];
                let first = older.frame_at(run.place.offset).unwrap_or(0);
                let last = older.frame_at(run.place.offset + run.len.max(1) - 1).unwrap_or(first);
                let depths = all.get(run.place.pack as usize).map_or(&[][..], |d| &d[..]);
                depths.get(first..=last).into_iter().flatten().copied().max().unwrap_or(MAX_DEPTH)
            });
            own[*frame as usize] = below.max().unwrap_or(0).saturating_add(1);
        }
        all.push(own);
    }
    all
}

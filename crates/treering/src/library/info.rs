//! What tables and JSON show of runs, checkpoints and variables.

use super::Library;
use crate::array::{DType, Part, Shape};
use crate::error::Result;
use crate::format::{Manifest, Origin, Stats};
use crate::restore::{Checkpoint, lineage};
use serde::Serialize;

/// A run, in short.
#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    /// Its name.
    pub name: String,
    /// How many checkpoints can be read.
    pub checkpoints: u64,
    /// How many entries of the log cannot be read.
    pub unreadable: u64,
    /// The step of the newest.
    pub newest_step: Option<u64>,
    /// When the newest was captured, in milliseconds since 1970.
    pub newest_time: Option<u64>,
    /// What full copies of all checkpoints would take.
    pub full_bytes: u64,
    /// What its packs and its log take; a branch's share in another run's packs is counted there.
    pub stored_bytes: u64,
}

/// A checkpoint, in short.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointInfo {
    /// Its sequence number.
    pub sequence: u64,
    /// The program's iteration number.
    pub step: u64,
    /// When, in milliseconds since 1970.
    pub time: u64,
    /// The checkpoint it continues.
    pub parent: Option<Origin>,
    /// Where its epoch began.
    pub epoch: Origin,
    /// Whether the newest checkpoint does not descend from it.
    pub abandoned: bool,
    /// What a full copy would take.
    pub full_bytes: u64,
    /// What this checkpoint added to the store.
    pub stored_bytes: u64,
    /// How many variables it has.
    pub variables: u64,
    /// How its bytes divide, and how long the program was held up.
    #[serde(flatten)]
    pub stats: Stats,
}

/// A variable of a checkpoint.
#[derive(Clone, Debug, Serialize)]
pub struct VariableInfo {
    /// The rank.
    pub rank: u32,
    /// The name.
    pub name: String,
    /// The type.
    pub dtype: DType,
    /// The extent.
    pub shape: Shape,
    /// Its place in a global array.
    pub part: Option<Part>,
    /// Its length in bytes.
    pub bytes: u64,
    /// The bytes of it that this checkpoint stored.
    pub new_bytes: u64,
    /// The bytes of it that this checkpoint found elsewhere.
    pub moved_bytes: u64,
    /// The chunk size of its tree.
    pub chunk_bytes: u64,
    /// The root of its tree.
    pub root: String,
}

pub(super) fn run(library: &Library, run: &str) -> Result<RunInfo> {
    let log = library.log(run);
    let (manifests, trouble) = match &log {
        Ok(log) => log.manifests(),
        Err(_) => Default::default(),
    };
    let names = crate::format::Names::new(run);
    let mut stored_bytes = 0;
    for folder in [names.log(), names.packs()] {
        let items = library.store.list(&folder)?;
        stored_bytes += items.iter().map(|item| item.size).sum::<u64>();
    }
    let newest = manifests.last();
    Ok(RunInfo {
        name: run.to_string(),
        checkpoints: manifests.len() as u64,
        unreadable: trouble.len() as u64,
        newest_step: newest.map(|m| m.step),
        newest_time: newest.map(|m| m.time),
        full_bytes: manifests.iter().map(Manifest::full_bytes).sum(),
        stored_bytes,
    })
}

pub(super) fn checkpoints(manifests: &[Manifest]) -> Vec<CheckpointInfo> {
    let line = lineage(manifests);
    let info = |m: &Manifest| CheckpointInfo {
        sequence: m.sequence,
        step: m.step,
        time: m.time,
        parent: m.parent.clone(),
        epoch: m.epoch.clone(),
        abandoned: !line.contains(&m.sequence),
        full_bytes: m.full_bytes(),
        stored_bytes: added_bytes(m),
        variables: m.variables.len() as u64,
        stats: m.stats,
    };
    manifests.iter().map(info).collect()
}

/// What a checkpoint added: its manifest, and its own packs unless it only shares another run's.
fn added_bytes(manifest: &Manifest) -> u64 {
    let own =
        manifest.groups.iter().filter(|g| g.packs.last().is_some_and(|p| p.run == manifest.run));
    own.map(|group| group.seal.size).sum::<u64>() + manifest.write().len() as u64
}

pub(super) fn variables(checkpoint: &Checkpoint) -> Vec<VariableInfo> {
    let manifest = checkpoint.manifest();
    let info = |entry: &crate::format::VariableEntry| {
        let newest = checkpoint.packs[entry.group as usize].last();
        let mut deltas = newest.iter().flat_map(|pack| &pack.footer.deltas);
        let delta = deltas.find(|d| d.rank == entry.rank && d.name == entry.description.name);
        let bytes = entry.description.bytes().unwrap_or(0);
        let chunk = entry.chunk.bytes() as u64;
        let of_kind = |fresh: bool| {
            let regions = delta.iter().flat_map(|d| &d.regions).filter(|r| r.fresh == fresh);
            regions
                .map(|r| {
                    bytes
                        .min(r.end().saturating_mul(chunk))
                        .saturating_sub(r.start.saturating_mul(chunk))
                })
                .sum()
        };
        VariableInfo {
            rank: entry.rank,
            name: entry.description.name.clone(),
            dtype: entry.description.dtype,
            shape: entry.description.shape.clone(),
            part: entry.description.part.clone(),
            bytes,
            new_bytes: of_kind(true),
            moved_bytes: of_kind(false),
            chunk_bytes: chunk,
            root: entry.root.to_string(),
        }
    };
    manifest.variables.iter().map(info).collect()
}

//! Summaries of runs, checkpoints and variables, for tables and JSON.

use super::Library;
use crate::array::{DType, Labels, Order, Part, Rank, Sequence, Shape, VariableKey};
use crate::error::{ErrorKind, Result};
use crate::format::{
    Footer, Manifest, Origin, Stats, TREE_FRONT, TREE_PREFIX, TreeEntry, TreeFile, TreeOrigin,
    VariableDelta, VariableEntry,
};
use crate::log::lineage;
use crate::merkle::bounded::Bound;
use crate::restore::Checkpoint;
use serde::Serialize;
use std::collections::HashMap;
use std::ops::Range;

/// Summary of a run. Returned by [`Library::runs`], which has an example.
#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    /// Its name.
    pub name: String,
    /// Number of checkpoints that can be read.
    pub checkpoints: u64,
    /// Number of entries of the log that cannot be read.
    pub unreadable: u64,
    /// The step of the newest checkpoint.
    pub newest_step: Option<u64>,
    /// Time at which the newest checkpoint was captured, in milliseconds since 1970.
    pub newest_time: Option<u64>,
    /// Bytes of all checkpoints as the program has them: its files as they were, or its arrays.
    pub source_bytes: u64,
    /// The bytes of all variables of all checkpoints, decoded, with trees.
    pub full_bytes: u64,
    /// Bytes of its packs and its log. A branch's share in the packs of another run counts there.
    pub stored_bytes: u64,
}

/// Summary of a checkpoint. Returned by [`Library::checkpoints`], which has an example.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointInfo {
    /// Its sequence number.
    pub sequence: Sequence,
    /// The program's iteration number.
    pub step: u64,
    /// Time of capture, in milliseconds since 1970.
    pub time: u64,
    /// The checkpoint it continues.
    pub parent: Option<Origin>,
    /// First checkpoint of its epoch.
    pub epoch: Origin,
    /// Whether the newest checkpoint does not descend from it.
    pub abandoned: bool,
    /// Its bytes as the program has them: its files as they were, or its arrays.
    pub source_bytes: u64,
    /// The bytes of all variables, decoded, with trees.
    pub full_bytes: u64,
    /// Bytes that this checkpoint has added to the store.
    pub stored_bytes: u64,
    /// Number of variables.
    pub variables: u64,
    /// Number of ranks.
    pub ranks: u32,
    /// Its labels.
    pub labels: Labels,
    /// Bytes by kind, and the time for which the program was blocked.
    #[serde(flatten)]
    pub stats: Stats,
}

/// Summary of a variable of a checkpoint. Returned by [`Library::variables`], which has an example.
#[derive(Clone, Debug, Serialize)]
pub struct VariableInfo {
    /// The rank.
    pub rank: Rank,
    /// The name.
    pub name: String,
    /// The type.
    pub dtype: DType,
    /// The extent.
    pub shape: Shape,
    /// The order of its elements in memory.
    pub order: Order,
    /// Its place in a global array.
    pub part: Option<Part>,
    /// Texts about it, such as its units.
    pub attributes: Labels,
    /// Its length in bytes.
    pub bytes: u64,
    /// Number of its bytes that this checkpoint stored.
    pub new_bytes: u64,
    /// Encoded size of the new bytes in the pack. A frame that it shares with others counts in part.
    pub encoded_bytes: u64,
    /// Encodings of the new bytes.
    pub codecs: Vec<String>,
    /// Number of its bytes that are duplicates: stored already, elsewhere.
    pub duplicate_bytes: u64,
    /// The chunk size of its tree.
    pub chunk_bytes: u64,
    /// The root of its tree.
    pub root: String,
    /// The bound within which the program's values were rounded; `None` if they are exact, or if only
    /// trees were kept.
    pub error_bound: Option<Bound>,
    /// The trees that it has, each for a bound.
    pub bounds: Vec<TreeInfo>,
}

/// A bounded tree of a variable: one of [`VariableInfo::bounds`]. Trees are made by [`Library::make_trees`], which has an
/// example.
#[derive(Clone, Debug, Serialize)]
pub struct TreeInfo {
    /// The bound it was made for.
    pub bound: Bound,
    /// The size of its chunks.
    pub chunk_bytes: u64,
    /// Number of planes of its sketch.
    pub planes: u8,
    /// Size in bytes.
    pub bytes: u64,
}

/// A run in short; nothing for a folder that nobody has opened to the end, or whose name no run can have.
pub(super) fn run(library: &Library, run: &str) -> Result<Option<RunInfo>> {
    let (manifests, trouble) = match library.log(run) {
        Ok(log) => log.manifests(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Usage) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let names = crate::format::Names::new(run);
    let mut stored_bytes = 0;
    for folder in [names.log(), names.branches(), names.packs()] {
        let items = library.store.list(&folder)?;
        stored_bytes += items.iter().map(|item| item.size).sum::<u64>();
    }
    let newest = manifests.last();
    Ok(Some(RunInfo {
        name: run.to_string(),
        checkpoints: manifests.len() as u64,
        unreadable: trouble.len() as u64,
        newest_step: newest.map(|m| m.step.0),
        newest_time: newest.map(|m| m.time),
        source_bytes: manifests.iter().map(|m| m.source_bytes).sum(),
        full_bytes: manifests.iter().map(|m| m.full_bytes).sum(),
        stored_bytes,
    }))
}

pub(super) fn checkpoints(manifests: &[Manifest]) -> Vec<CheckpointInfo> {
    let line = lineage(manifests);
    let info = |m: &Manifest| CheckpointInfo {
        sequence: m.sequence,
        step: m.step.0,
        time: m.time,
        parent: m.parent.clone(),
        epoch: m.epoch.clone(),
        abandoned: !line.contains(&m.sequence),
        source_bytes: m.source_bytes,
        full_bytes: m.full_bytes,
        stored_bytes: m.stored_bytes(),
        ranks: m.ranks,
        variables: m.variables,
        labels: m.labels.clone(),
        stats: m.stats,
    };
    manifests.iter().map(info).collect()
}

pub(super) fn variables(checkpoint: &Checkpoint) -> Vec<VariableInfo> {
    let newest = checkpoint.packs.iter().filter_map(|packs| packs.last());
    let deltas: HashMap<(Rank, &str), (&Footer, &VariableDelta)> = newest
        .flat_map(|pack| pack.footer.deltas.iter().map(|delta| (&*pack.footer, delta)))
        .map(|(footer, delta)| ((delta.rank, delta.name.as_str()), (footer, delta)))
        .collect();
    let data = checkpoint.entries().iter().filter(|v| !v.is_hidden());
    let row = |entry: &VariableEntry| {
        let key = (entry.rank, entry.description.name.as_str());
        row(entry, deltas.get(&key).copied())
    };
    let mut variables: Vec<VariableInfo> = data.map(row).collect();
    let named = variables.iter().enumerate();
    let mut places: HashMap<VariableKey, usize> =
        named.map(|(at, v)| (VariableKey::new(v.rank, &v.name), at)).collect();
    for (rank, tree, bytes) in trees(checkpoint) {
        let bound = tree_info(&tree, bytes);
        let at =
            *places.entry(VariableKey::new(rank, &tree.description.name)).or_insert_with(|| {
                // A variable of which only trees were kept.
                variables.push(without_data(rank, &tree));
                variables.len() - 1
            });
        variables[at].bounds.push(bound);
    }
    variables
}

/// A variable, and what the newest pack adds to it.
fn row(entry: &VariableEntry, added: Option<(&Footer, &VariableDelta)>) -> VariableInfo {
    let (bytes, chunk) = (entry.bytes(), entry.chunk.bytes() as u64);
    let of_kind = |fresh: bool| -> u64 {
        let regions = added.iter().flat_map(|(_, delta)| &delta.regions);
        let covered = |r: &crate::lineage::Region| {
            let end = bytes.min(r.end().saturating_mul(chunk));
            end.saturating_sub(r.start.saturating_mul(chunk))
        };
        regions.filter(|r| r.fresh == fresh).map(covered).sum()
    };
    let new_bytes = of_kind(true);
    let (encoded_bytes, codecs) =
        added.map(|(footer, delta)| stored(footer, delta, new_bytes)).unwrap_or_default();
    VariableInfo {
        rank: entry.rank,
        name: entry.description.name.clone(),
        dtype: entry.description.dtype,
        shape: entry.description.shape.clone(),
        order: entry.description.order,
        part: entry.description.part.clone(),
        attributes: entry.description.attributes.clone(),
        bytes,
        new_bytes,
        encoded_bytes,
        codecs,
        duplicate_bytes: of_kind(false),
        chunk_bytes: chunk,
        root: entry.root.to_string(),
        error_bound: entry.rounded.map(|rounding| rounding.bound()),
        bounds: Vec::new(),
    }
}

fn without_data(rank: Rank, tree: &TreeEntry) -> VariableInfo {
    let description = tree.description.clone();
    VariableInfo {
        rank,
        bytes: 0,
        name: description.name,
        dtype: description.dtype,
        shape: description.shape,
        order: description.order,
        part: description.part,
        attributes: description.attributes,
        new_bytes: 0,
        encoded_bytes: 0,
        codecs: Vec::new(),
        duplicate_bytes: 0,
        chunk_bytes: 0,
        root: tree.root.to_string(),
        error_bound: None,
        bounds: Vec::new(),
    }
}

/// The encoded size of the new bytes of a variable, and their codecs.
fn stored(footer: &Footer, delta: &VariableDelta, new_bytes: u64) -> (u64, Vec<String>) {
    let chunk = delta.chunk.bytes() as u64;
    // Of all chunks only the last one may be short.
    let mut left = new_bytes;
    let places = delta.regions.iter().filter(|region| region.fresh).map(|region| {
        let len = left.min(region.count.saturating_mul(chunk));
        left -= len;
        region.place.offset..region.place.offset.saturating_add(len)
    });
    encoded(footer, &places.collect::<Vec<_>>())
}

/// Encoded size of some bytes of a pack, and their encodings.
fn encoded(footer: &Footer, places: &[Range<u64>]) -> (u64, Vec<String>) {
    let (mut all, mut codecs) = (0u64, Vec::new());
    let mut first = 0;
    for frame in &footer.frames {
        // Places and frames are in the same order.
        let ended = places[first..].iter().take_while(|place| place.end <= frame.offset);
        first += ended.count();
        let here = places[first..].iter().take_while(|p| p.start < frame.offset + frame.len);
        let inside: u64 = here
            .map(|place| {
                let end = place.end.min(frame.offset + frame.len);
                end.saturating_sub(place.start.max(frame.offset))
            })
            .sum();
        if inside == 0 {
            continue;
        }
        all += (u128::from(frame.encoded) * u128::from(inside) / u128::from(frame.len)) as u64;
        let name = footer.chain(frame).map_or("unknown".into(), |chain| chain.to_string());
        if !codecs.contains(&name) {
            codecs.push(name);
        }
    }
    (all, codecs)
}

/// Rank, head and size of every tree that can be read.
fn trees(checkpoint: &Checkpoint) -> Vec<(Rank, TreeEntry, u64)> {
    let hidden =
        checkpoint.entries().iter().filter(|v| v.description.name.starts_with(TREE_PREFIX));
    let head = |entry: &crate::format::VariableEntry| -> Option<(Rank, TreeEntry, u64)> {
        let bytes = entry.description.bytes()?;
        let mut front = vec![0; bytes.min(TREE_FRONT as u64) as usize];
        checkpoint.read_bytes(entry, 0..front.len() as u64, &mut front).ok()?;
        let len = TreeFile::head_len(front.get(..TreeFile::PREFIX)?).ok()?;
        let file = TreeFile::parse(front.get(..usize::try_from(len).ok()?)?).ok()?;
        let rank =
            if file.origin == TreeOrigin::None { entry.rank } else { file.entries.first()?.rank };
        Some((rank, file.entries.into_iter().next()?, bytes))
    };
    hidden.filter_map(head).collect()
}

fn tree_info(tree: &TreeEntry, bytes: u64) -> TreeInfo {
    let recipe = tree.recipe;
    let (bound, planes) = (recipe.bound, recipe.planes);
    TreeInfo { bound, chunk_bytes: recipe.chunk as u64, planes, bytes }
}

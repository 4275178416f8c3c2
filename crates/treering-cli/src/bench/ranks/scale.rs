//! Checkpoints of up to 2^20 ranks: one process plays the leaders of all groups in random order over a store in
//! memory. Objects, opened names and bytes for each checkpoint.

use super::counting::Counter;
use crate::bench::pattern::Random;
use crate::output;
use serde::Serialize;
use std::sync::Arc;
use treering::testing::PlayedRun;
use treering::{Library, MemoryStore, Result, Store};

const RANKS: [u32; 3] = [1 << 10, 1 << 15, 1 << 20];
/// The ranks of a group, and of a node.
const GROUP: u32 = 32;
const NODE: u32 = 64;
/// A manifest is no larger than this.
const MANIFEST: u64 = 8 << 10;

/// One checkpoint of this many ranks.
#[derive(Serialize)]
pub struct Scale {
    ranks: u32,
    groups: u32,
    whole: bool,
    created: u64,
    /// 2 G + G/63 + 2 for G groups.
    created_limit: u64,
    left: u64,
    /// The most names that one leader opened in one folder, or on one level of branches.
    opened_of_a_level: u64,
    listed: u64,
    calls_of_a_leader: u64,
    calls_of_a_leader_mean: f64,
    manifest_bytes: u64,
    manifest_limit: u64,
    sections_bytes: u64,
    branches_bytes: u64,
    /// The bytes that a list of the run's checkpoints reads.
    ls_bytes: u64,
}

pub fn run() -> Result<Vec<Scale>> {
    let mut rows = Vec::new();
    for ranks in RANKS {
        rows.extend(play(ranks)?);
    }
    Ok(rows)
}

fn objects(store: &dyn Store) -> Result<(u64, u64)> {
    let (mut count, mut branches) = (0, 0);
    for folder in ["log", "packs", "sections", "branches"] {
        let items = store.list(&format!("runs/r/{folder}"))?;
        count += items.len() as u64;
        if folder == "branches" {
            branches = items.iter().map(|item| item.size).sum();
        }
    }
    Ok((count, branches))
}

fn play(ranks: u32) -> Result<Vec<Scale>> {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let counter = Counter::default();
    let store = counter.count(memory.clone());
    let run = PlayedRun::open(store.clone(), "r", ranks, (NODE, GROUP))?;
    let groups = run.groups();
    let mut leaders: Vec<_> = (0..groups).map(|group| run.leader(group, &store)).collect();
    let mut random = Random::new();
    let (mut sequence, mut rows) = (run.next(), Vec::new());
    for whole in [true, false] {
        let before = objects(memory.as_ref())?;
        let mut order: Vec<usize> = (0..leaders.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, (random.next() % (at as u64 + 1)) as usize);
        }
        let (mut written, mut sections) = (std::collections::HashSet::new(), 0);
        let (mut opened, mut listed, mut most, mut all) = (0, 0, 0, 0);
        counter.take();
        for leader in order {
            sections += leaders[leader].publish(&run, sequence)? as u64;
            let calls = counter.take();
            written.extend(calls.written);
            opened = opened.max(calls.opened.values().copied().max().unwrap_or(0));
            listed += calls.listed;
            most = most.max(calls.all);
            all += calls.all;
        }
        let after = objects(memory.as_ref())?;
        let key = format!("runs/r/log/{:012}", sequence.0);
        let manifest_bytes = memory.open(&key)?.size();
        counter.take();
        let (listed_checkpoints, _) = Library::of(store.clone()).checkpoints("r")?;
        let ls_bytes = counter.take().bytes_read;
        if listed_checkpoints.len() != rows.len() + 1 {
            return Err(treering::Error::damaged("a checkpoint of simulated ranks is not listed"));
        }
        rows.push(Scale {
            ranks,
            groups,
            whole,
            created: written.len() as u64,
            created_limit: u64::from(2 * groups + groups / 63 + 2),
            left: after.0 - before.0,
            opened_of_a_level: opened,
            listed,
            calls_of_a_leader: most,
            calls_of_a_leader_mean: all as f64 / f64::from(groups),
            manifest_bytes,
            manifest_limit: MANIFEST,
            sections_bytes: sections,
            branches_bytes: after.1 - before.1,
            ls_bytes,
        });
        sequence = sequence.next();
    }
    Ok(rows)
}

pub fn show(rows: &[Scale]) {
    output::line(format!(
        "Simulated ranks, {GROUP} for each group, leaders in random order, a store in memory. Limits: 2 G + G/63 + 2\n\
         objects for G groups, 66 names of a level, {} of manifest.",
        output::bytes(MANIFEST)
    ));
    let cells = |row: &Scale| {
        vec![
            row.ranks.to_string(),
            if row.whole { "whole" } else { "delta" }.to_string(),
            format!("{} of {}", row.created, row.created_limit),
            row.left.to_string(),
            row.opened_of_a_level.to_string(),
            row.listed.to_string(),
            format!("{} ({:.1})", row.calls_of_a_leader, row.calls_of_a_leader_mean),
            output::bytes(row.manifest_bytes),
            output::bytes(row.sections_bytes),
            output::bytes(row.branches_bytes),
            output::bytes(row.ls_bytes),
        ]
    };
    let header = [
        "ranks",
        "",
        "created",
        "left",
        "names of a level",
        "lists",
        "calls of a leader (mean)",
        "manifest",
        "sections",
        "branches",
        "ls reads",
    ];
    output::line(output::table(&header, &[1], rows.iter().map(cells)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_of_many_groups_stay_within_their_limits() {
        // As many groups as a manifest holds by itself; then one more, which is not full.
        for ranks in [65 * GROUP, 65 * GROUP + 7] {
            for row in play(ranks).unwrap() {
                assert_eq!(row.groups, ranks.div_ceil(GROUP));
                assert!(row.created <= row.created_limit && row.left < row.created);
                assert!(row.opened_of_a_level <= 66, "{}", row.opened_of_a_level);
                assert_eq!(row.listed, 0);
                assert!(row.manifest_bytes <= row.manifest_limit);
                assert!(row.ls_bytes < 4 * MANIFEST);
            }
        }
    }
}

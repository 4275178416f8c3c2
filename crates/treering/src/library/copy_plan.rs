//! The numbers of a copied run, as plain values.
//!
//! A copy is a run of one writer. Checkpoints keep their order and get new numbers, and every pack, whatever run or writer
//! it comes from, gets a number of that writer that belongs to no other pack of its group: so pruning a copy needs to
//! know nothing of where it came from. A number is left for each pack whose checkpoint is not copied.

use crate::array::{GroupId, Sequence};
use crate::format::{Groups, Manifest, Origin, PackName, WriterId};
use crate::log::FullManifest;
use std::collections::{BTreeMap, HashMap};

/// The number that hides a copy until it is complete. Checkpoints come behind it.
pub(super) const BLOCKER: Sequence = Sequence(1);

/// A run that is to be copied.
pub(super) struct CopyPlan {
    /// The checkpoints in the order of their numbers: the source, and the copy without its groups.
    pub(super) checkpoints: Vec<(FullManifest, Manifest)>,
    /// The names of all packs in the copy, by their runs and names.
    pub(super) names: HashMap<(String, PackName), PackName>,
}

/// Numbers checkpoints and packs. The checkpoints are in the order of their numbers.
pub(super) fn plan_copy(source: Vec<FullManifest>, new: &str, writer: WriterId) -> CopyPlan {
    let mut names: HashMap<(String, PackName), PackName> = HashMap::new();
    let mut numbers: BTreeMap<Sequence, Sequence> = BTreeMap::new();
    let (mut checkpoints, mut newest) = (Vec::with_capacity(source.len()), BLOCKER.0);
    for full in source {
        let fresh: Vec<Vec<(String, PackName)>> = (0..)
            .zip(full.groups())
            .map(|(number, group)| {
                let all = group.names(GroupId(number)).map(|(run, name)| (run.to_string(), name));
                all.filter(|pack| !names.contains_key(pack)).collect()
            })
            .collect();
        newest += fresh.iter().map(Vec::len).max().unwrap_or(0).max(1) as u64;
        for packs in fresh {
            let first = newest + 1 - packs.len() as u64;
            for (attempt, pack) in (first..).zip(packs) {
                let name = PackName { writer, attempt, group: pack.1.group };
                names.insert(pack, name);
            }
        }
        let sequence = Sequence(newest);
        let manifest = &full.manifest;
        let copy = Manifest {
            run: new.to_string(),
            sequence,
            writer,
            parent: manifest.parent.as_ref().and_then(|parent| parent_of(parent, &numbers)),
            epoch: Origin { run: None, sequence: begun(&full, &names).unwrap_or(sequence) },
            groups: Groups::Here(Vec::new()),
            ..manifest.clone()
        };
        numbers.insert(manifest.sequence, sequence);
        checkpoints.push((full, copy));
    }
    CopyPlan { checkpoints, names }
}

/// The parent of a copied checkpoint: the copy of the newest that is not behind it. A parent in another run stays.
fn parent_of(parent: &Origin, numbers: &BTreeMap<Sequence, Sequence>) -> Option<Origin> {
    match parent.run {
        Some(_) => Some(parent.clone()),
        None => {
            let (_, sequence) = numbers.range(..=parent.sequence).next_back()?;
            Some(Origin { run: None, sequence: *sequence })
        }
    }
}

/// The number of the first pack of the epoch.
fn begun(full: &FullManifest, names: &HashMap<(String, PackName), PackName>) -> Option<Sequence> {
    let (run, first) = full.groups().first()?.names(GroupId(0)).next()?;
    names.get(&(run.to_string(), first)).map(|name| Sequence(name.attempt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Step;
    use crate::format::{Group, Seal, Stats};
    use crate::merkle::Digest;
    use std::collections::BTreeSet;

    const OLD: WriterId = WriterId { opening: Sequence(1), nonce: 5 };
    const NEW: WriterId = WriterId { opening: Sequence(1), nonce: 6 };

    /// A checkpoint of two groups whose packs have these numbers, of this run or of another one.
    fn checkpoint(number: u64, parent: Option<u64>, packs: &[(&str, u64)]) -> FullManifest {
        let seal = Seal { size: 100, footer: 10, digest: Digest::default() };
        let group = |group: u32| {
            let mut all = Group { packs: Vec::new(), seal };
            for (run, attempt) in packs {
                let (attempt, group) = (*attempt, GroupId(group));
                all.push(run, PackName { writer: OLD, attempt, group }, seal);
            }
            all
        };
        FullManifest::of(Manifest {
            run: "r".into(),
            sequence: Sequence(number),
            writer: OLD,
            step: Step(number * 10),
            time: 7,
            parent: parent.map(|sequence| Origin { run: None, sequence: Sequence(sequence) }),
            epoch: Origin { run: None, sequence: Sequence(packs[0].1) },
            seed: 3,
            ranks: 2,
            variables: 1,
            rounded: 0,
            files: 0,
            full_bytes: 100,
            stats: Stats::default(),
            groups: Groups::Here(vec![group(0), group(1)]),
            labels: [("git", "4542149")].into_iter().collect(),
            source_bytes: 90,
        })
    }

    #[test]
    fn every_pack_has_a_number_of_its_own_up_to_that_of_its_checkpoint() {
        // The run is a branch of another one; 7 was restored from 4, and 3 and 8 are not copied.
        let source = vec![
            checkpoint(1, None, &[("p", 3), ("p", 4)]),
            checkpoint(4, Some(3), &[("p", 3), ("p", 4), ("r", 3), ("r", 4)]),
            checkpoint(7, Some(4), &[("p", 3), ("p", 4), ("r", 3), ("r", 7)]),
            checkpoint(9, Some(8), &[("r", 9)]),
        ];
        let plan = plan_copy(source.clone(), "n", NEW);
        let copies: Vec<&Manifest> = plan.checkpoints.iter().map(|(_, copy)| copy).collect();
        let numbers: Vec<u64> = copies.iter().map(|copy| copy.sequence.0).collect();
        assert_eq!(numbers, [3, 5, 6, 7]);
        let parents: Vec<Option<u64>> =
            copies.iter().map(|copy| copy.parent.as_ref().map(|p| p.sequence.0)).collect();
        assert_eq!(parents, [None, Some(3), Some(5), Some(6)]);
        let epochs: Vec<u64> = copies.iter().map(|copy| copy.epoch.sequence.0).collect();
        assert_eq!(epochs, [2, 2, 2, 7]);
        for (full, copy) in &plan.checkpoints {
            let all: BTreeSet<PackName> = full.packs().map(|pack| plan.names[&pack]).collect();
            assert_eq!(all.len(), full.packs().count());
            let fits = |name: &PackName| name.writer == NEW && name.attempt <= copy.sequence.0;
            assert!(all.iter().all(fits), "{all:?}");
            assert!(all.iter().any(|name| name.attempt == copy.sequence.0));
            assert_eq!(
                (copy.step, &copy.run[..], copy.source_bytes),
                (full.manifest.step, "n", 90)
            );
            assert_eq!(copy.labels, full.manifest.labels);
        }
        let all: BTreeSet<PackName> = plan.names.values().copied().collect();
        assert_eq!(all.len(), plan.names.len());
    }
}

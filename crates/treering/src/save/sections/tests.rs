//! Groups that publish in any order, die at any call and are overtaken, over a tree of a small fan.

use super::super::{Opened, Tiers, open};
use super::*;
use crate::array::Step;
use crate::format::{Group, Origin, PackName, Seal, Stats};
use crate::log::FullManifest;
use crate::merkle::Digest;
use crate::store::MemoryStore;
use crate::testing::{Call, HookedStore, Locks};
use proptest::prelude::*;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

fn memory() -> Arc<dyn Store> {
    Arc::new(HookedStore::with_locks(Arc::new(MemoryStore::new()), Locks::None))
}

fn opened(store: &Arc<dyn Store>) -> Opened {
    open(&Tiers { near: Vec::new(), last: store.clone() }, "r", None).unwrap()
}

/// The leader of a group, through a store of its own.
struct Leader {
    sections: Sections,
    log: LogWriter,
    own: GroupOf,
}

impl Leader {
    fn new(run: &Opened, store: &Arc<dyn Store>, fan: u32, group: u32, groups: u32) -> Leader {
        let sections = Sections { fan, ..Sections::new(store.clone(), "r", Arc::default()) };
        let own = GroupOf { group: GroupId(group), groups };
        Leader { sections, log: run.log(store, true), own }
    }

    fn publish(&mut self, sequence: u64, whole: bool) -> Result<()> {
        let (writer, group) = (self.log.writer(), self.own.group);
        let seal = Seal { size: 4096, footer: 99, digest: Digest([group.0.into(), sequence]) };
        let mut packs = Group { packs: Vec::new(), seal };
        packs.push("r", PackName { writer, attempt: sequence, group }, seal);
        let epoch = if whole { sequence } else { writer.opening.0 + 1 };
        let part = Manifest {
            run: "r".into(),
            sequence: Sequence(sequence),
            writer,
            step: Step(sequence),
            time: 7,
            parent: None,
            epoch: Origin { run: None, sequence: Sequence(epoch) },
            seed: 42,
            ranks: self.own.groups,
            variables: 1,
            rounded: 0,
            files: 0,
            full_bytes: 100,
            stats: Stats::default(),
            groups: [packs].into_iter().collect(),
            labels: Default::default(),
            source_bytes: 100,
        };
        self.sections.publish(&mut self.log, &part, self.own)
    }
}

/// The manifest of a number with all its groups, which must be those of all leaders.
fn manifest(store: &Arc<dyn Store>, sequence: u64, groups: u32) -> Option<FullManifest> {
    let log = Log::read(store.clone(), "r").unwrap();
    log.sequences.binary_search(&Sequence(sequence)).ok()?;
    let manifest = log.manifest(Sequence(sequence)).unwrap()?;
    assert_eq!((manifest.variables, manifest.groups.count()), (groups.into(), groups.into()));
    let full = FullManifest::read(store.as_ref(), manifest).unwrap();
    let numbers: Vec<u64> = full.groups().iter().map(|group| group.seal.digest.0[0]).collect();
    assert_eq!(numbers, (0..u64::from(groups)).collect::<Vec<_>>());
    Some(full)
}

fn shuffled(count: u32, mut seed: u64) -> Vec<u32> {
    let mut all: Vec<u32> = (0..count).collect();
    for at in (1..all.len()).rev() {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        all.swap(at, (seed >> 33) as usize % (at + 1));
    }
    all
}

fn names(store: &Arc<dyn Store>, folder: &str) -> usize {
    store.list(&format!("runs/r/{folder}")).unwrap().len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The manifest appears with the last section, whatever the order; nobody lists anything, and nobody opens more than
    /// a family of names on each level.
    #[test]
    fn the_last_section_makes_the_manifest(groups in 1u32..90, fan in 2u32..9, seed: u64) {
        let store = memory();
        let run = opened(&store);
        let (opens, lists) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen, listed) = (opens.clone(), lists.clone());
        let counted: Arc<dyn Store> = Arc::new(HookedStore::new(store.clone(), move |call| {
            seen.fetch_add(usize::from(matches!(call, Call::Open(_))), Ordering::SeqCst);
            listed.fetch_add(usize::from(matches!(call, Call::List(_))), Ordering::SeqCst);
            Ok(())
        }));
        let shape = GroupTree { groups, fan };
        let first = run.newest.0 + 1;
        for (sequence, order) in [(first, shuffled(groups, seed)), (first + 1, shuffled(groups, !seed))] {
            for group in &order {
                prop_assert!(manifest(&store, sequence, groups).is_none());
                let mut leader = Leader::new(&run, &counted, fan, *group, groups);
                opens.store(0, Ordering::SeqCst);
                leader.publish(sequence, false).unwrap();
                let most = (fan as usize + 1) * (usize::from(shape.top()) + 1) + 8;
                prop_assert!(opens.load(Ordering::SeqCst) <= most);
            }
            prop_assert!(manifest(&store, sequence, groups).is_some());
            prop_assert_eq!(names(&store, "sections"), 0);
        }
        prop_assert_eq!(lists.load(Ordering::SeqCst), 0);
        prop_assert_eq!(names(&store, "branches") as u64, 2 * shape.branches());
    }

    /// A leader dies at any of its calls, the others go on. If all sections are there, the opener completes the
    /// checkpoint; else nothing is left of it, not even a branch.
    #[test]
    fn a_leader_that_dies_leaves_all_or_nothing(groups in 2u32..20, fan in 2u32..4, seed: u64, fuse in 0i64..40) {
        let store = memory();
        let run = opened(&store);
        let sequence = run.newest.0 + 1;
        let order = shuffled(groups, seed);
        let victim = order[(seed % u64::from(groups)) as usize];
        let left = Arc::new(AtomicI64::new(fuse));
        let dying: Arc<dyn Store> = Arc::new(HookedStore::new(store.clone(), move |_| {
            match left.fetch_sub(1, Ordering::SeqCst) > 0 {
                true => Ok(()),
                false => Err(Error::new(ErrorKind::Io, "dead")),
            }
        }));
        let mut published = 0;
        for group in order {
            let through = if group == victim { &dying } else { &store };
            let mut leader = Leader::new(&run, through, fan, group, groups);
            let name = leader.sections.names.branch(BranchName {
                sequence: Sequence(sequence), writer: leader.log.writer(), level: 0, index: group,
            });
            let done = leader.publish(sequence, true);
            prop_assert!(done.is_ok() || group == victim);
            published += u32::from(done.is_ok() || store.open(&name).is_ok() || fuse > 0);
        }
        let sections = Sections { fan, ..Sections::new(store.clone(), "r", Arc::default()) };
        while sections.roll_forward(&Log::read(store.clone(), "r").unwrap()).unwrap() {}
        drop(run);
        opened(&store);
        let there = manifest(&store, sequence, groups);
        prop_assert_eq!(there.is_some(), published == groups);
        prop_assert_eq!(names(&store, "sections"), 0);
        let branches = if there.is_some() { GroupTree { groups, fan }.branches() } else { 0 };
        prop_assert_eq!(names(&store, "branches") as u64, branches);
    }
}

/// A delta that is complete waits for the one before it, and whoever completes that one completes both.
#[test]
fn a_delta_appears_behind_the_checkpoint_before_it() {
    let store = memory();
    let run = opened(&store);
    let first = run.newest.0 + 1;
    let mut leaders: Vec<Leader> =
        (0..10).map(|group| Leader::new(&run, &store, 3, group, 10)).collect();
    leaders[1..].iter_mut().for_each(|leader| leader.publish(first, false).unwrap());
    let (late, others) = leaders.split_first_mut().unwrap();
    others.iter_mut().for_each(|leader| leader.publish(first + 1, false).unwrap());
    Leader::new(&run, &store, 3, 0, 10).publish(first + 1, false).unwrap();
    assert!(manifest(&store, first, 10).is_none() && manifest(&store, first + 1, 10).is_none());
    late.publish(first, false).unwrap();
    assert!(manifest(&store, first, 10).is_some() && manifest(&store, first + 1, 10).is_some());
}

/// Somebody opens the run while a section is missing: its leader completes nothing any more.
#[test]
fn a_late_leader_of_an_older_opening_completes_nothing() {
    let store = memory();
    let old = opened(&store);
    let sequence = old.newest.0 + 1;
    for group in 0..9 {
        Leader::new(&old, &store, 3, group, 10).publish(sequence, true).unwrap();
    }
    let new = opened(&store);
    assert_eq!(names(&store, "sections") + names(&store, "branches"), 0);
    let error = Leader::new(&old, &store, 3, 9, 10).publish(sequence, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    for group in 0..10 {
        Leader::new(&new, &store, 3, group, 10).publish(sequence + 1, true).unwrap();
    }
    assert!(
        manifest(&store, sequence, 10).is_none() && manifest(&store, sequence + 1, 10).is_some()
    );
    opened(&store);
    assert_eq!(names(&store, "sections"), 0);
}

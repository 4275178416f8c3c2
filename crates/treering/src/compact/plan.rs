//! The plan of a compaction: pure.
//!
//! Unit of the plan is a closed epoch: its manifests and every pack they name go into one bundle, so that a
//! bundle holds all that its checkpoints need. Epochs and bundles that share packs go together. Of the bundles
//! that are there already, those go along that are not larger than what has been collected so far: so sizes
//! at least double, a run of n objects has about log n bundles, and each byte is copied log n times at most.

use crate::array::Sequence;
use crate::format::{BundleIndex, BundleName, BundledName, Names, Origin, PackName};
use crate::log::FullManifest;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Small bundles are joined up to this size.
pub(super) const BUNDLE_BYTES: u64 = 256 << 20;
/// A bundle takes its data and its index.
const BUNDLE_FILES: u64 = 2;

/// The rule by which closed epochs are compacted.
///
/// ```
/// use treering::{Compaction, Options};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path();
/// let rarely = Compaction { files: 1000, ..Compaction::default() };
/// let options = Options::directory(store, "rod").compact(Some(rarely));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Compact when this many files would go.
    pub files: u64,
    /// Leave epochs alone whose packs are larger than this on average.
    pub pack_bytes: u64,
}

impl Default for Compaction {
    fn default() -> Self {
        Compaction { files: 128, pack_bytes: 256 << 10 }
    }
}

/// A bundle that a compaction would write: one of [`CompactPlan::bundles`]. [`CompactPlan`] has an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
pub struct PlannedBundle {
    /// The number of log entries and packs that are files now.
    pub files: u64,
    /// The number of bundles that it replaces.
    pub merged: u64,
    /// The bytes that are copied into it.
    pub bytes: u64,
    /// The objects that are files now, or in a bundle that nobody has published.
    #[cfg_attr(feature = "tools", serde(skip))]
    pub(crate) objects: BTreeSet<BundledName>,
    /// The bundles it replaces.
    #[cfg_attr(feature = "tools", serde(skip))]
    pub(crate) bundles: BTreeSet<BundleName>,
}

/// Plan of a compaction. Returned by `Library::plan_compact` and `Library::compact`.
///
/// ```
/// use treering::{Compaction, Library, Options, Run, Variable};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let mut run = Run::open(Options::directory(&store, "rod").growth(0.0).compact(None))?;
/// for step in 0..4 {
///     run.checkpoint(step, &[Variable::new("heat", &[step as f64; 100])])?;
/// }
/// run.finish()?;
/// let library = Library::open(&store)?;
/// let rule = Compaction { files: 1, ..Compaction::default() };
/// let plan = library.plan_compact("rod", rule)?; // writes nothing
/// assert!(plan.files_after < plan.files_before);
/// for bundle in &plan.bundles {
///     println!("{} files become a bundle of {} bytes", bundle.files, bundle.bytes);
/// }
/// assert_eq!(library.compact("rod", rule, &|_done, _of| {})?.files_after, plan.files_after);
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
pub struct CompactPlan {
    /// The run.
    pub run: String,
    /// The number of files of its log, packs and bundles before.
    pub files_before: u64,
    /// The number of these files afterwards.
    pub files_after: u64,
    /// The bytes that are copied.
    pub bytes: u64,
    /// The bundles to be written.
    pub bundles: Vec<PlannedBundle>,
    /// The keys of files whose content is in a bundle already: an earlier compaction did not get to its end.
    pub leftovers: Vec<String>,
    /// Notes for people.
    pub notes: Vec<String>,
}

/// A bundle as it is now.
#[derive(Clone)]
pub(crate) struct HeldBundle {
    pub(crate) name: BundleName,
    pub(crate) published: bool,
    pub(crate) index: Arc<BundleIndex>,
}

/// The files and bundles of a run as they are now.
#[derive(Default)]
pub(crate) struct RunObjects {
    /// The checkpoints whose manifests are files, ascending; strays left out.
    pub(crate) manifests: Vec<FullManifest>,
    /// The marks that are files.
    pub(crate) marks: Vec<Sequence>,
    /// The sizes of log entries and packs that are files.
    pub(crate) sizes: HashMap<BundledName, u64>,
    /// All bundles that can be read.
    pub(crate) bundles: Vec<HeldBundle>,
    /// The number of files, those of bundles included.
    pub(crate) files: u64,
    pub(crate) notes: Vec<String>,
}

/// Things that go into the same bundle.
#[derive(Default)]
struct BundleUnit {
    objects: BTreeSet<BundledName>,
    bundles: BTreeSet<usize>,
    files: u64,
    bytes: u64,
}

/// Computes what to do by a rule.
pub(crate) fn plan(run: &str, rule: Compaction, holding: &RunObjects) -> CompactPlan {
    let mut plan = CompactPlan {
        run: run.to_string(),
        files_before: holding.files,
        notes: holding.notes.clone(),
        ..CompactPlan::default()
    };
    let names = Names::new(run);
    let places = places(holding);
    let is_left = |object: &BundledName| {
        places.get(object).is_some_and(|held| held.iter().any(|at| holding.bundles[*at].published))
    };
    let left: BTreeSet<&BundledName> = holding.sizes.keys().filter(|o| is_left(o)).collect();
    plan.leftovers = left.iter().map(|object| object.key(&names)).collect();
    let units = units(run, rule, holding, &places, &mut plan.notes);
    let (mut loose, mut alone): (Vec<BundleUnit>, Vec<BundleUnit>) =
        join(units, holding, &places, &left).into_iter().partition(|c| c.freed() > 0);
    let freed = loose.iter().map(BundleUnit::freed).sum::<u64>() + left.len() as u64;
    if freed >= rule.files {
        alone.sort_by_key(|component| component.bytes);
        let mut total: u64 = loose.iter().map(|component| component.bytes).sum();
        for component in alone {
            if component.bytes > total.min(BUNDLE_BYTES / 2) {
                break;
            }
            total += component.bytes;
            loose.push(component);
        }
        plan.bundles = fill(loose, holding);
    }
    plan.bytes = plan.bundles.iter().map(|bundle| bundle.bytes).sum();
    let gone = |b: &PlannedBundle| (b.files + BUNDLE_FILES * b.merged).saturating_sub(BUNDLE_FILES);
    let gone = plan.bundles.iter().map(gone).sum::<u64>() + left.len() as u64;
    plan.files_after = plan.files_before.saturating_sub(gone);
    plan
}

/// The bundles that hold each object; entries of bundles that nobody has published do not count.
fn places(holding: &RunObjects) -> HashMap<BundledName, Vec<usize>> {
    let mut places: HashMap<BundledName, Vec<usize>> = HashMap::new();
    for (at, bundle) in holding.bundles.iter().enumerate() {
        for object in &bundle.index.objects {
            if bundle.published || matches!(object.name, BundledName::Pack(_)) {
                places.entry(object.name).or_default().push(at);
            }
        }
    }
    places
}

/// The closed epochs whose manifests are files, and the marks before the open epoch.
fn units(
    run: &str,
    rule: Compaction,
    holding: &RunObjects,
    places: &HashMap<BundledName, Vec<usize>>,
    notes: &mut Vec<String>,
) -> Vec<BTreeSet<BundledName>> {
    let Some(open) = holding.manifests.last().map(|newest| &newest.manifest.epoch) else {
        return Vec::new();
    };
    let mut epochs: BTreeMap<&Origin, Vec<&FullManifest>> = BTreeMap::new();
    for full in holding.manifests.iter().filter(|m| m.manifest.epoch != *open) {
        epochs.entry(&full.manifest.epoch).or_default().push(full);
    }
    let mut units = Vec::new();
    for manifests in epochs.into_values() {
        let packs: HashSet<(String, PackName)> = manifests.iter().flat_map(|m| m.packs()).collect();
        // A bundle must hold all that its checkpoints need.
        if packs.iter().any(|(of, _)| of != run) {
            continue;
        }
        let packs: Vec<_> = packs.into_iter().map(|(_, pack)| BundledName::Pack(pack)).collect();
        let there = |o: &&BundledName| holding.sizes.contains_key(o) || places.contains_key(o);
        if !packs.iter().all(|pack| there(&pack)) {
            let step = manifests.last().map_or_else(Default::default, |m| m.manifest.step);
            notes.push(format!("the epoch of step {step} stays as it is: a pack of it is missing"));
            continue;
        }
        let sizes: Vec<u64> = packs.iter().filter_map(|p| holding.sizes.get(p)).copied().collect();
        let most = rule.pack_bytes.saturating_mul(sizes.len() as u64);
        if sizes.iter().fold(0, |all: u64, size| all.saturating_add(*size)) > most {
            continue;
        }
        let entries = manifests.iter().map(|m| BundledName::Entry(m.manifest.sequence));
        units.push(entries.chain(packs).collect());
    }
    // The writer's newest numbers stay files.
    let manifests = holding.manifests.iter().map(|m| &m.manifest);
    let first = manifests.filter(|m| m.epoch == *open).map(|m| m.sequence).min();
    let marks = holding.marks.iter().filter(|mark| first.is_some_and(|first| **mark < first));
    let marks: BTreeSet<_> = marks.map(|mark| BundledName::Entry(*mark)).collect();
    units.extend((!marks.is_empty()).then_some(marks));
    units
}

/// Joins units and published bundles that hold the same objects.
fn join(
    units: Vec<BTreeSet<BundledName>>,
    holding: &RunObjects,
    places: &HashMap<BundledName, Vec<usize>>,
    left: &BTreeSet<&BundledName>,
) -> Vec<BundleUnit> {
    let count = holding.bundles.len();
    let mut above: Vec<usize> = (0..count + units.len()).collect();
    fn root(above: &mut [usize], mut at: usize) -> usize {
        while above[at] != at {
            above[at] = above[above[at]];
            at = above[at];
        }
        at
    }
    let published = |at: &usize| holding.bundles[*at].published;
    let mut unite = |a: usize, b: usize| {
        let (a, b) = (root(&mut above, a), root(&mut above, b));
        above[a] = b;
    };
    for held in places.values() {
        let mut held = held.iter().copied().filter(published);
        if let Some(first) = held.next() {
            held.for_each(|other| unite(first, other));
        }
    }
    for (number, unit) in units.iter().enumerate() {
        for held in unit.iter().filter_map(|object| places.get(object)) {
            held.iter().copied().filter(published).for_each(|at| unite(at, count + number));
        }
    }
    let mut components: BTreeMap<usize, BundleUnit> = BTreeMap::new();
    for (number, unit) in units.into_iter().enumerate() {
        let component = components.entry(root(&mut above, count + number)).or_default();
        for object in unit.into_iter().filter(|object| !left.contains(object)) {
            let size = holding.sizes.get(&object);
            let held = || {
                let at = *places.get(&object)?.first()?;
                let objects = &holding.bundles[at].index.objects;
                objects.iter().find(|o| o.name == object).map(|o| o.size)
            };
            let in_published = places.get(&object).is_some_and(|held| held.iter().any(published));
            if !in_published && component.objects.insert(object) {
                component.files += u64::from(size.is_some());
                component.bytes += size.copied().or_else(held).unwrap_or(0);
            }
        }
    }
    for at in (0..count).filter(published) {
        let component = components.entry(root(&mut above, at)).or_default();
        component.bundles.insert(at);
        component.bytes += holding.bundles[at].index.object_bytes();
    }
    components.into_values().collect()
}

impl BundleUnit {
    /// The files that would go, one bundle left out.
    fn freed(&self) -> u64 {
        self.files + BUNDLE_FILES * (self.bundles.len() as u64).saturating_sub(1)
    }

    fn first(&self, holding: &RunObjects) -> Option<BundledName> {
        let objects = self.objects.first().copied();
        let bundled =
            self.bundles.iter().filter_map(|at| holding.bundles[*at].index.objects.first());
        objects.into_iter().chain(bundled.map(|object| object.name)).min()
    }
}

/// Fills bundles with components in the order of their numbers.
fn fill(mut components: Vec<BundleUnit>, holding: &RunObjects) -> Vec<PlannedBundle> {
    components.sort_by_key(|component| component.first(holding));
    let mut bundles: Vec<PlannedBundle> = Vec::new();
    for component in components {
        let fits = |bundle: &PlannedBundle| bundle.bytes + component.bytes <= BUNDLE_BYTES;
        if !bundles.last().is_some_and(fits) {
            bundles.push(PlannedBundle::default());
        }
        if let Some(bundle) = bundles.last_mut() {
            bundle.files += component.files;
            bundle.merged += component.bundles.len() as u64;
            bundle.bytes += component.bytes;
            bundle.objects.extend(component.objects);
            bundle.bundles.extend(component.bundles.iter().map(|at| holding.bundles[*at].name));
        }
    }
    bundles.retain(|bundle| bundle.files + BUNDLE_FILES * bundle.merged > BUNDLE_FILES);
    bundles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{GroupId, Step};
    use crate::format::{BundledObject, Group, Groups, Manifest, PackRange, Seal, Stats, WriterId};
    use crate::merkle::Digest;

    const WRITER: WriterId = WriterId { opening: Sequence(1), nonce: 5 };
    const RULE: Compaction = Compaction { files: 4, pack_bytes: 1000 };

    fn pack(number: u64) -> BundledName {
        BundledName::Pack(PackName { writer: WRITER, attempt: number, group: GroupId(0) })
    }

    /// A checkpoint whose epoch began at `epoch`, and builds on every pack from there.
    fn manifest(number: u64, epoch: u64, packs_of: &str) -> FullManifest {
        let (first, count) = (epoch, number - epoch + 1);
        let range = PackRange { run: packs_of.into(), writer: WRITER, first, count };
        let seal = Seal { size: 100, footer: 10, digest: Digest::default() };
        let manifest = Manifest {
            run: "r".into(),
            sequence: Sequence(number),
            writer: WRITER,
            step: Step(number),
            time: 0,
            parent: None,
            epoch: Origin { run: None, sequence: Sequence(epoch) },
            seed: 0,
            ranks: 1,
            variables: 1,
            rounded: 0,
            files: 0,
            full_bytes: 100,
            stats: Stats::default(),
            groups: Groups::Here(vec![Group { packs: vec![range], seal }]),
            labels: Default::default(),
            source_bytes: 100,
        };
        FullManifest::of(manifest)
    }

    /// Epochs of three checkpoints each, all as files with packs of this size; the last one is open.
    fn holding(checkpoints: u64, size: u64) -> RunObjects {
        let mut holding = RunObjects::default();
        for number in 2..2 + checkpoints {
            holding.manifests.push(manifest(number, 2 + (number - 2) / 3 * 3, "r"));
            holding.sizes.insert(BundledName::Entry(Sequence(number)), 50);
            holding.sizes.insert(pack(number), size);
        }
        holding.files = 2 * checkpoints;
        holding
    }

    fn bundle(generation: u64, published: bool, objects: &[(BundledName, u64)]) -> HeldBundle {
        let name = BundleName { generation, nonce: generation, ..BundleName::default() };
        let mut objects: Vec<_> = objects
            .iter()
            .map(|(name, size)| BundledObject {
                name: *name,
                size: *size,
                digest: Digest::default(),
            })
            .collect();
        objects.sort_by_key(|object| object.name);
        let index = Arc::new(BundleIndex { run: "r".into(), name, objects });
        HeldBundle { name, published, index }
    }

    #[test]
    fn closed_epochs_go_and_the_open_one_with_its_marks_stays() {
        let mut all = holding(8, 100);
        all.marks = vec![Sequence(1), Sequence(11)];
        all.sizes.insert(BundledName::Entry(Sequence(1)), 30);
        all.sizes.insert(BundledName::Entry(Sequence(11)), 30);
        let plan = plan("r", RULE, &all);
        let objects: Vec<_> = (1..8).map(|n| BundledName::Entry(Sequence(n))).collect();
        let objects: BTreeSet<_> = objects.into_iter().chain((2..8).map(pack)).collect();
        assert_eq!(plan.bundles.len(), 1);
        assert_eq!(plan.bundles[0].objects, objects);
        assert_eq!((plan.files_before, plan.files_after), (16, 16 - 13 + 2));
        assert_eq!(plan.bytes, 6 * 150 + 30);
    }

    #[test]
    fn too_few_files_large_packs_missing_packs_and_other_runs_packs_stay() {
        assert!(plan("r", Compaction { files: 13, ..RULE }, &holding(8, 100)).bundles.is_empty());
        assert!(plan("r", RULE, &holding(8, 1001)).bundles.is_empty());
        assert!(plan("r", RULE, &holding(3, 100)).bundles.is_empty());
        let mut other = holding(8, 100);
        other.manifests[0] = manifest(2, 2, "elsewhere");
        other.sizes.remove(&pack(6));
        let plan = plan("r", RULE, &other);
        assert!(plan.bundles.is_empty());
        assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
    }

    #[test]
    fn an_epoch_goes_with_the_bundle_that_has_its_packs_and_duplicates_go_together() {
        let mut all = holding(8, 100);
        // The packs of the first epoch are in a bundle already, and so is one of its manifests.
        for number in 2..5 {
            all.sizes.remove(&pack(number));
        }
        let first =
            [(pack(2), 100), (pack(3), 100), (pack(4), 100), (BundledName::Entry(Sequence(2)), 50)];
        all.bundles.push(bundle(1, true, &first));
        all.bundles.push(bundle(2, true, &[(pack(2), 100)]));
        let plan = plan("r", RULE, &all);
        assert_eq!(plan.leftovers, ["runs/r/log/000000000002"]);
        assert_eq!(plan.bundles.len(), 1);
        assert_eq!(plan.bundles[0].merged, 2);
        assert!(!plan.bundles[0].objects.contains(&pack(2)));
    }

    #[test]
    fn packs_in_a_bundle_that_nobody_has_published_are_copied_and_its_entries_do_not_count() {
        let mut all = holding(5, 100);
        all.sizes.remove(&pack(2));
        all.bundles.push(bundle(1, false, &[(pack(2), 70), (BundledName::Entry(Sequence(3)), 50)]));
        let plan = plan("r", RULE, &all);
        assert_eq!(plan.leftovers, Vec::<String>::new());
        assert!(plan.bundles[0].objects.contains(&pack(2)));
        assert_eq!((plan.bundles[0].merged, plan.bundles[0].bytes), (0, 3 * 50 + 2 * 100 + 70));
    }

    #[test]
    fn smaller_bundles_go_along_and_larger_ones_do_not() {
        let mut all = holding(8, 100);
        all.bundles.push(bundle(1, true, &[(pack(100), 100_000)]));
        all.bundles.push(bundle(2, true, &[(pack(101), 800)]));
        all.bundles.push(bundle(3, true, &[(pack(102), 1500)]));
        let made = plan("r", RULE, &all);
        let merged: Vec<u64> = made.bundles[0].bundles.iter().map(|b| b.generation).collect();
        assert_eq!(merged, [2, 3]);
        // Without anything else to do, bundles are left alone.
        let alone = RunObjects { bundles: all.bundles, ..RunObjects::default() };
        assert!(plan("r", RULE, &alone).bundles.is_empty());
    }

    #[test]
    fn no_bundle_is_larger_than_it_should_be_but_for_one_epoch() {
        let all = holding(12, BUNDLE_BYTES / 5);
        let rule = Compaction { files: 3, pack_bytes: u64::MAX };
        let made = plan("r", rule, &all);
        assert_eq!(made.bundles.len(), 3);
        assert!(made.bundles.iter().all(|bundle| bundle.bytes <= BUNDLE_BYTES));
        let all = holding(12, BUNDLE_BYTES);
        assert_eq!(plan("r", rule, &all).bundles.len(), 3);
    }
}

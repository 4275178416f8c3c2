//! What may go, computed from what a run holds.

use crate::array::Sequence;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{BranchName, Groups, Manifest, Names, PackName, WriterId};
use crate::log::FullManifest;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Rule for the checkpoints that a pruning keeps.
///
/// ```
/// use treering::Keep;
/// // The newest 3, every 1000th step, and at most 10 GiB in all.
/// let keep = Keep { every: Some(1000), limit: Some(10 << 30), ..Keep::newest(3) };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Number of newest checkpoints that are kept.
    pub last: u64,
    /// Checkpoints whose step is a multiple of this are kept, too.
    pub every: Option<u64>,
    /// The bytes that the run may take: of these checkpoints the oldest go until it takes no more. `None`: any number.
    pub limit: Option<u64>,
    /// The bytes that all runs of the store may take together: the oldest checkpoints of this run go until they take no
    /// more. No checkpoint of another run goes. `None`: any number.
    pub store_limit: Option<u64>,
    /// Whether to remove damaged entries of the log, so that their checkpoints are lost for good. Otherwise they keep
    /// everything from being removed.
    pub forget_damaged: bool,
}

impl Keep {
    /// The newest `last` checkpoints, however many bytes they take.
    pub const fn newest(last: u64) -> Keep {
        Keep { last, every: None, limit: None, store_limit: None, forget_damaged: false }
    }

    /// The bytes that a run may take if other runs of its store take so many.
    fn room(&self, others: u64) -> Option<u64> {
        let left = self.store_limit.map(|limit| limit.saturating_sub(others));
        self.limit.into_iter().chain(left).min()
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.last == 0 {
            return Err(Error::usage("at least one checkpoint must be kept")
                .hint("--keep-last 1 keeps the newest"));
        }
        if self.every == Some(0) {
            return Err(Error::usage("invalid interval 0: expected every first step or more")
                .hint("give --keep-every 1 or more"));
        }
        if self.limit == Some(0) || self.store_limit == Some(0) {
            return Err(Error::usage("a run with checkpoints takes more than 0 bytes")
                .hint("give a limit of several times the size of a checkpoint"));
        }
        Ok(())
    }
}

/// Rule of a removal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule<'g> {
    /// All but what is kept.
    Keep(Keep),
    /// The checkpoints of a step.
    Without(u64),
    /// These checkpoints.
    These(&'g BTreeSet<Sequence>),
}

impl Rule<'_> {
    /// Whether it matters how many bytes other runs take.
    pub(super) fn counts_others(&self) -> bool {
        matches!(self, Rule::Keep(Keep { store_limit: Some(_), .. }))
    }
}

/// A checkpoint in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PlannedStep {
    /// Its step.
    pub step: u64,
    /// Its number in the log.
    pub sequence: Sequence,
}

impl PlannedStep {
    pub(super) fn of(manifest: &Manifest) -> PlannedStep {
        PlannedStep { step: manifest.step.0, sequence: manifest.sequence }
    }
}

/// Plan of a pruning: the checkpoints and files that it removes, and the checkpoints that it keeps. Returned by
/// `Library::plan_prune` and `Library::prune`, which have examples.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PrunePlan {
    /// The run.
    pub run: String,
    /// The checkpoints that stay.
    pub kept: Vec<PlannedStep>,
    /// The checkpoints that go.
    pub removed: Vec<PlannedStep>,
    /// The sequence numbers of damaged entries of the log that go.
    pub forgotten: Vec<Sequence>,
    /// The keys of packs that go.
    pub packs: Vec<String>,
    /// The keys of branches that go.
    pub branches: Vec<String>,
    /// The bytes that this frees.
    pub bytes: u64,
    /// Number of packs of removed checkpoints that stay, because other checkpoints build on them.
    pub held: u64,
    /// Size of these packs in bytes.
    pub held_bytes: u64,
    /// The bytes that the run takes beyond [`Keep::limit`] although nothing more may go.
    pub excess: u64,
    /// Notes for people.
    pub notes: Vec<String>,
}

/// The manifests and packs of a run as they are now.
#[derive(Clone)]
pub(super) struct Holding {
    pub(super) manifests: Vec<FullManifest>,
    pub(super) unreadable: Vec<(Sequence, Error)>,
    /// Packs of this run that other runs name.
    pub(super) shared: HashSet<PackName>,
    /// The numbers of packs and branches that nothing will name any more.
    pub(super) over: Over,
    /// The packs that are there, and their sizes.
    pub(super) packs: Vec<(PackName, u64)>,
    /// The branches that are there, and their sizes.
    pub(super) branches: Vec<(BranchName, u64)>,
    /// The entries of the log, and their sizes.
    pub(super) entries: BTreeMap<Sequence, u64>,
    /// The bytes that other runs of the store take; 0 if no rule asks for them.
    pub(super) others: u64,
}

impl Holding {
    /// The same if other runs name these packs of it.
    pub(super) fn sharing(&self, shared: HashSet<PackName>) -> Holding {
        Holding { shared, ..self.clone() }
    }
}

/// The newest checkpoint that can be restored, and what is wrong with newer ones.
#[derive(Clone, Default)]
pub(crate) struct Sound {
    pub(super) sequence: Option<Sequence>,
    /// The newest checkpoint of the log in which the sound one was looked for. The looking takes time, and a program goes
    /// on saving meanwhile: newer checkpoints are not judged, otherwise the sound one would stay in their place.
    pub(super) judged: Option<Sequence>,
    pub(super) notes: Vec<String>,
}

impl Sound {
    /// Whether there are checkpoints, and none of them can be restored.
    pub(crate) fn is_none(&self) -> bool {
        self.judged.is_some() && self.sequence.is_none()
    }

    /// The checkpoints that stay whatever the rule says.
    pub(super) fn stays(&self, manifests: &[FullManifest]) -> BTreeSet<Sequence> {
        let all = manifests.iter().map(|m| m.manifest.sequence);
        let newer = all.filter(|sequence| self.judged.is_some_and(|judged| *sequence > judged));
        newer.chain(self.sequence).collect()
    }
}

pub(super) fn plan(run: &str, rule: Rule, holding: &Holding, sound: Sound) -> Result<PrunePlan> {
    let forget_damaged = match rule {
        Rule::Keep(keep) => {
            keep.check()?;
            keep.forget_damaged
        }
        Rule::Without(_) | Rule::These(_) => false,
    };
    let stays = sound.stays(&holding.manifests);
    let mut plan = PrunePlan { run: run.to_string(), notes: sound.notes, ..PrunePlan::default() };
    for (sequence, error) in &holding.unreadable {
        match forget_damaged && error.kind() == ErrorKind::Damaged {
            true => plan.forgotten.push(*sequence),
            false => return Err(unknown(run, error)),
        }
    }
    let mut kept = choose(&holding.manifests, rule, &mut plan.notes);
    kept.extend(&stays);
    if let Rule::Keep(keep) = rule
        && let Some(room) = keep.room(holding.others)
    {
        plan.excess = stay_below(keep, room, (run, holding), &mut kept, &stays, &mut plan.notes);
    }
    for FullManifest { manifest, .. } in &holding.manifests {
        let planned = PlannedStep::of(manifest);
        match kept.contains(&manifest.sequence) {
            true => plan.kept.push(planned),
            false => plan.removed.push(planned),
        }
    }
    let (packs, bytes) = removable(holding, &kept);
    let goes = holding.manifests.iter().filter(|m| !kept.contains(&m.manifest.sequence));
    let made: HashSet<PackName> = goes.flat_map(FullManifest::made).collect();
    let held =
        holding.packs.iter().filter(|(pack, _)| made.contains(pack) && !packs.contains(pack));
    (plan.held, plan.held_bytes) = held.fold((0, 0), |(n, all), (_, size)| (n + 1, all + size));
    let names = Names::new(run);
    plan.packs = packs.iter().map(|pack| names.pack(*pack)).collect();
    let (branches, branch_bytes) = removable_branches(holding, &kept);
    plan.branches = branches.iter().map(|branch| names.branch(*branch)).collect();
    plan.bytes = bytes + branch_bytes;
    Ok(plan)
}

/// Gives up the oldest checkpoints until the run takes no more than a rule permits; what it takes beyond that if it cannot.
fn stay_below(
    keep: Keep,
    room: u64,
    (run, holding): (&str, &Holding),
    kept: &mut BTreeSet<Sequence>,
    stays: &BTreeSet<Sequence>,
    notes: &mut Vec<String>,
) -> u64 {
    let least = least(holding, stays);
    let may_go: Vec<GoingCheckpoint> =
        kept.difference(&least).map(|sequence| (0, *sequence)).collect();
    let run = HeldRun { run, holding, kept, needed: &holding.shared };
    let (gone, bytes) = oldest_until(room, &[run], &may_go);
    kept.retain(|sequence| !gone.contains(&(0, *sequence)));
    let excess = bytes.saturating_sub(room);
    if excess > 0 {
        let left = holding.manifests.iter().filter(|m| kept.contains(&m.manifest.sequence));
        let steps: Vec<String> = left.map(|m| m.manifest.step.to_string()).collect();
        let too_much = match (keep.limit, keep.store_limit) {
            (Some(limit), _) if bytes > limit => {
                format!("the run takes {bytes} bytes, more than its limit of {limit}")
            }
            (_, limit) => format!(
                "the runs of the store take {} bytes, more than its limit of {}; other runs take {} of these",
                bytes + holding.others,
                limit.unwrap_or(0),
                holding.others
            ),
        };
        notes.push(format!(
            "{too_much}: the checkpoints of steps {} stay, because a program may continue from them, they are the newest of \
             two epochs, or others need their data; raise the limit, or let epochs be shorter (Options::growth)",
            steps.join(", ")
        ));
    }
    excess
}

/// The checkpoints of a run that no limit takes: those that every pruning keeps, and those that `stays` has.
pub(super) fn least(holding: &Holding, stays: &BTreeSet<Sequence>) -> BTreeSet<Sequence> {
    let mut least = choose(&holding.manifests, Rule::Keep(Keep::newest(1)), &mut Vec::new());
    least.extend(stays);
    least
}

/// A run in a plan, and the checkpoints that it has before any goes.
pub(super) struct HeldRun<'h> {
    pub(super) run: &'h str,
    pub(super) holding: &'h Holding,
    pub(super) kept: &'h BTreeSet<Sequence>,
    /// Packs of the run that runs name which are not in the plan.
    pub(super) needed: &'h HashSet<PackName>,
}

/// A checkpoint that may go: the place of its run among those of a plan, and its number.
pub(super) type GoingCheckpoint = (usize, Sequence);

/// Gives checkpoints up, in this order, until the runs take no more than `room`; those that go, and the bytes that the runs
/// take without them.
pub(super) fn oldest_until(
    room: u64,
    runs: &[HeldRun],
    may_go: &[GoingCheckpoint],
) -> (Vec<GoingCheckpoint>, u64) {
    let mut bytes: u64 = runs.iter().map(|run| bytes_left(run.holding, run.kept)).sum();
    let mut gone = Vec::new();
    for (turn, freed) in may_go.iter().zip(freed(runs, may_go)) {
        if bytes <= room {
            break;
        }
        bytes = bytes.saturating_sub(freed);
        gone.push((*turn, freed));
    }
    // If that is not enough, those stay whose packs others need: giving them up frees nothing but their entries.
    let entry = |(at, sequence): &GoingCheckpoint| {
        runs.get(*at).and_then(|run| run.holding.entries.get(sequence)).copied().unwrap_or(0)
    };
    while let Some((_, freed)) = gone.pop_if(|(turn, freed)| bytes > room && *freed <= entry(turn))
    {
        bytes += freed;
    }
    (gone.into_iter().map(|(turn, _)| turn).collect(), bytes)
}

/// The bytes that each of these checkpoints frees when it goes after those before it.
fn freed(runs: &[HeldRun], may_go: &[GoingCheckpoint]) -> Vec<u64> {
    let turn: HashMap<GoingCheckpoint, usize> = may_go.iter().copied().zip(0..).collect();
    // The turn of the last checkpoint that names a pack of a run; those that stay have none.
    let mut last: HashMap<(String, PackName), usize> = HashMap::new();
    for (at, HeldRun { holding, kept, .. }) in runs.iter().enumerate() {
        for full in holding.manifests.iter().filter(|m| kept.contains(&m.manifest.sequence)) {
            let turn = turn.get(&(at, full.manifest.sequence)).copied().unwrap_or(usize::MAX);
            for pack in full.packs() {
                let last = last.entry(pack).or_default();
                *last = turn.max(*last);
            }
        }
    }
    let mut freed = vec![0; may_go.len()];
    let mut add = |turn: Option<&usize>, bytes: u64| {
        if let Some(freed) = turn.and_then(|turn| freed.get_mut(*turn)) {
            *freed += bytes;
        }
    };
    for (at, HeldRun { run, holding, needed, .. }) in runs.iter().enumerate() {
        let is_over = |pack: &PackName| !needed.contains(pack) && holding.over.has_pack(*pack);
        let packs = holding.packs.iter().filter(|(pack, _)| is_over(pack));
        packs.for_each(|(pack, bytes)| add(last.get(&(run.to_string(), *pack)), *bytes));
        let branches = holding.branches.iter();
        let branches = branches.filter(|(branch, _)| holding.over.has_branch(*branch));
        branches.for_each(|(branch, bytes)| add(turn.get(&(at, branch.sequence)), *bytes));
        holding.entries.iter().for_each(|(number, bytes)| add(turn.get(&(at, *number)), *bytes));
    }
    freed
}

/// The bytes that a run takes when only `kept` checkpoints stay.
fn bytes_left(holding: &Holding, kept: &BTreeSet<Sequence>) -> u64 {
    let packs: u64 = holding.packs.iter().map(|(_, size)| size).sum();
    let branches: u64 = holding.branches.iter().map(|(_, size)| size).sum();
    let entries: u64 = holding.entries.values().sum();
    let goes = holding.manifests.iter().map(|m| m.manifest.sequence).filter(|s| !kept.contains(s));
    let goes: u64 = goes.filter_map(|sequence| holding.entries.get(&sequence)).sum();
    let goes = goes + removable(holding, kept).1 + removable_branches(holding, kept).1;
    (packs + branches + entries).saturating_sub(goes)
}

/// Numbers of a log that nothing will name any more, whoever is at work on the run.
///
/// Checkpoints come to the last tier in the order of their numbers, and a checkpoint names packs of its own epoch only. An
/// epoch that is not the newest is never gone on with. So packs before those of the newest checkpoint there are over if
/// nobody names them. Later ones may be on their way: a checkpoint that stays on a node has no manifest in the last
/// tier, and its packs come with a later checkpoint that builds on them, or under another number when a later process
/// takes it over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Over {
    /// Packs before this number.
    packs: Sequence,
    /// Branches up to this number; each serves the checkpoint of its number alone.
    branches: Sequence,
}

impl Over {
    pub(super) fn of(run: &str, manifests: &[FullManifest]) -> Over {
        let Some(newest) = manifests.last() else { return Over::default() };
        let Manifest { sequence, epoch, .. } = &newest.manifest;
        let own = newest.packs().filter(|(of, _)| of == run).map(|(_, pack)| pack.attempt);
        let whole = if epoch.run.is_none() { epoch.sequence } else { Sequence::default() };
        Over { packs: own.map(Sequence).fold(whole, Sequence::min), branches: *sequence }
    }

    /// The numbers that were over at two looks.
    pub(super) fn and(self, other: Over) -> Over {
        Over { packs: self.packs.min(other.packs), branches: self.branches.min(other.branches) }
    }

    fn has_pack(self, pack: PackName) -> bool {
        Sequence(pack.attempt) < self.packs
    }

    fn has_branch(self, branch: BranchName) -> bool {
        branch.sequence <= self.branches
    }
}

/// The packs that may go when only `kept` checkpoints stay, and their bytes.
pub(super) fn removable(holding: &Holding, kept: &BTreeSet<Sequence>) -> (BTreeSet<PackName>, u64) {
    let stays = holding.manifests.iter().filter(|m| kept.contains(&m.manifest.sequence));
    let mut needed: HashSet<PackName> =
        stays.flat_map(FullManifest::packs).map(|(_, pack)| pack).collect();
    needed.extend(&holding.shared);
    let mut bytes = 0;
    let goes = holding
        .packs
        .iter()
        .filter(|(pack, _)| !needed.contains(pack) && holding.over.has_pack(*pack));
    let goes = goes.map(|(pack, size)| {
        bytes += size;
        *pack
    });
    (goes.collect(), bytes)
}

/// The branches that may go when only `kept` checkpoints stay, and their bytes.
pub(super) fn removable_branches(
    holding: &Holding,
    kept: &BTreeSet<Sequence>,
) -> (BTreeSet<BranchName>, u64) {
    let stays = holding.manifests.iter().map(|m| &m.manifest).filter(|manifest| {
        kept.contains(&manifest.sequence) && matches!(manifest.groups, Groups::Below(_))
    });
    let needed: HashSet<(Sequence, WriterId)> = stays.map(|m| (m.sequence, m.writer)).collect();
    // As with packs: one of a checkpoint that is under way stays.
    let goes = holding.branches.iter().filter(|(branch, _)| {
        !needed.contains(&(branch.sequence, branch.writer)) && holding.over.has_branch(*branch)
    });
    let bytes = goes.clone().map(|(_, size)| size).sum();
    (goes.map(|(branch, _)| *branch).collect(), bytes)
}

/// Nothing is removed while it is unknown what is needed.
pub(super) fn unknown(run: &str, error: &Error) -> Error {
    let what = format!("an entry of the log of run {run:?} cannot be read: {error}");
    Error::new(error.kind(), what).hint(format!(
        "nothing is removed while it is unknown what it needs; `treering prune STORE#{run} --forget-damaged` \
         gives the damaged entry up"
    ))
}

/// The sequence numbers to keep.
fn choose(manifests: &[FullManifest], rule: Rule, notes: &mut Vec<String>) -> BTreeSet<Sequence> {
    let newest_first = || manifests.iter().rev().map(|m| &m.manifest);
    let last = match rule {
        Rule::Keep(Keep { last, .. }) => last,
        Rule::Without(_) | Rule::These(_) => 1,
    };
    let is_kept = |manifest: &Manifest| match rule {
        Rule::Keep(Keep { every, .. }) => {
            every.is_some_and(|every| manifest.step.0.is_multiple_of(every))
        }
        Rule::Without(gone) => manifest.step.0 != gone,
        Rule::These(gone) => !gone.contains(&manifest.sequence),
    };
    let mut kept: BTreeSet<Sequence> =
        newest_first().take(last as usize).map(|m| m.sequence).collect();
    kept.extend(newest_first().filter(|m| is_kept(m)).map(|m| m.sequence));
    let Some(newest) = manifests.last() else {
        return kept;
    };
    let packs: HashSet<_> = newest.packs().collect();
    let newest = &newest.manifest;
    let open = manifests.iter().rev().filter(|m| m.manifest.epoch == newest.epoch);
    for full in open.filter(|m| !m.packs().all(|pack| packs.contains(&pack))) {
        let manifest = &full.manifest;
        if kept.insert(manifest.sequence) {
            let step = manifest.step;
            notes.push(format!(
                "step {step} stays: a program could continue from it in the open epoch"
            ));
        }
    }
    let is_second = |m: &&Manifest| m.epoch != newest.epoch;
    if !newest_first().filter(|m| kept.contains(&m.sequence)).any(|m| is_second(&m))
        && let Some(second) = newest_first().find(is_second)
    {
        kept.insert(second.sequence);
        notes.push(format!("step {} stays as the newest of a second epoch", second.step));
    }
    kept
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::array::{GroupId, Step};
    use crate::format::{Group, Origin, PackRange, Seal, Stats};
    use crate::merkle::Digest;
    use proptest::prelude::*;

    const WRITER: WriterId = WriterId { opening: Sequence(1), nonce: 5 };

    fn pack(number: u64) -> PackName {
        PackName { writer: WRITER, attempt: number, group: GroupId(0) }
    }

    /// A checkpoint whose epoch began at `epoch`, and builds on every pack from there.
    fn manifest(number: u64, epoch: u64) -> FullManifest {
        let (first, count) = (epoch, number - epoch + 1);
        let range = PackRange { run: "r".into(), writer: WRITER, first, count };
        let seal = Seal { size: 100, footer: 10, digest: Digest::default() };
        FullManifest::of(Manifest {
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
        })
    }

    /// Checkpoints from 2 on, whose epochs have so many members each; the last number is that of a save under way.
    fn holding(epochs: &[u64], sizes: &[u64], shared: &[bool]) -> Holding {
        let mut manifests = Vec::new();
        let mut number = 2;
        for members in epochs {
            let epoch = number;
            manifests.extend((0..*members).map(|at| manifest(epoch + at, epoch)));
            number += members;
        }
        let size = |number: u64| sizes[number as usize % sizes.len()];
        let is_shared = |number: &u64| shared[*number as usize % shared.len()];
        Holding {
            unreadable: Vec::new(),
            shared: (2..number).filter(is_shared).map(pack).collect(),
            over: Over::of("r", &manifests),
            packs: (2..=number).map(|number| (pack(number), size(number))).collect(),
            branches: Vec::new(),
            entries: (2..number).map(|number| (Sequence(number), 10 + number % 3)).collect(),
            manifests,
            others: 0,
        }
    }

    proptest! {
        /// What each checkpoint frees in its turn is what the run takes less without it.
        #[test]
        fn freed_bytes_add_up(
            epochs in prop::collection::vec(1u64..5, 1..6),
            sizes in prop::collection::vec(0u64..1000, 1..9),
            shared in prop::collection::vec(prop::bool::weighted(0.1), 1..20),
            stays in prop::collection::vec(any::<bool>(), 1..20),
        ) {
            let holding = holding(&epochs, &sizes, &shared);
            let mut kept: BTreeSet<Sequence> =
                holding.manifests.iter().map(|m| m.manifest.sequence).collect();
            let stays = |sequence: &&Sequence| !stays[sequence.0 as usize % stays.len()];
            let may_go: Vec<Sequence> = kept.iter().filter(stays).copied().collect();
            let mut bytes = bytes_left(&holding, &kept);
            let turns: Vec<GoingCheckpoint> = may_go.iter().map(|sequence| (0, *sequence)).collect();
            let whole = kept.clone();
            let needed = &holding.shared;
            let run = HeldRun { run: "r", holding: &holding, kept: &whole, needed };
            for (sequence, freed) in may_go.iter().zip(freed(&[run], &turns)) {
                kept.remove(sequence);
                bytes -= freed;
                prop_assert_eq!(bytes, bytes_left(&holding, &kept));
            }
        }

        /// A limit takes the oldest, no more than needed, and never what must stay.
        #[test]
        fn a_limit_takes_the_oldest_and_no_more_than_needed(
            epochs in prop::collection::vec(1u64..5, 1..6),
            sizes in prop::collection::vec(0u64..1000, 1..9),
            limit in 1u64..8000,
        ) {
            let holding = holding(&epochs, &sizes, &[false]);
            let keep = |limit| Rule::Keep(Keep { limit, ..Keep::newest(1000) });
            let newest = holding.manifests.last().map(|m| m.manifest.sequence);
            let sound = || Sound { sequence: newest, judged: newest, notes: Vec::new() };
            let made = plan("r", keep(Some(limit)), &holding, sound()).unwrap();
            let kept: BTreeSet<Sequence> = made.kept.iter().map(|kept| kept.sequence).collect();
            prop_assert_eq!(made.excess, bytes_left(&holding, &kept).saturating_sub(limit));
            let one = Rule::Keep(Keep::newest(1));
            let least = plan("r", one, &holding, sound()).unwrap().kept;
            prop_assert!(least.iter().all(|kept| made.kept.contains(kept)));
            // What stays beyond that although it is too much would free its entries alone.
            if made.excess > 0 {
                let least: BTreeSet<Sequence> = least.iter().map(|kept| kept.sequence).collect();
                let more: u64 = kept.difference(&least).map(|more| holding.entries[more]).sum();
                prop_assert_eq!(bytes_left(&holding, &kept), bytes_left(&holding, &least) + more);
            }
            if let Some(last) = made.removed.last() {
                // What is older and stays must; one more would be too many.
                let older = made.kept.iter().filter(|kept| kept.sequence < last.sequence);
                prop_assert!(older.into_iter().all(|kept| least.contains(kept)));
                let mut more = kept.clone();
                more.insert(last.sequence);
                prop_assert!(bytes_left(&holding, &more) > limit);
            }
        }

        /// A limit of the store is one of the run, less by what other runs take; the stricter of two holds.
        #[test]
        fn a_limit_of_the_store_leaves_a_run_what_others_do_not_take(
            epochs in prop::collection::vec(1u64..5, 1..6),
            sizes in prop::collection::vec(0u64..1000, 1..9),
            (limit, store, others) in (prop::option::of(1u64..8000), 1u64..16_000, 0u64..16_000),
        ) {
            let mut holding = holding(&epochs, &sizes, &[false]);
            holding.others = others;
            let newest = holding.manifests.last().map(|m| m.manifest.sequence);
            let sound = || Sound { sequence: newest, judged: newest, notes: Vec::new() };
            let both = Keep { limit, store_limit: Some(store), ..Keep::newest(1000) };
            let made = plan("r", Rule::Keep(both), &holding, sound()).unwrap();
            let room = store.saturating_sub(others).min(limit.unwrap_or(u64::MAX));
            // A limit of no bytes is refused, and one byte is too few as well.
            let alone = Keep { limit: Some(room.max(1)), ..Keep::newest(1000) };
            let alone = plan("r", Rule::Keep(alone), &holding, sound()).unwrap();
            prop_assert_eq!(&made.removed, &alone.removed);
            prop_assert_eq!(made.excess, alone.excess + u64::from(room == 0));
        }

        /// Packs that nobody names go if they are older than all packs of the newest checkpoint, whoever wrote them; newer
        /// ones may be on their way.
        #[test]
        fn packs_on_their_way_stay(
            epochs in prop::collection::vec(1u64..5, 1..6),
            strays in prop::collection::btree_set(2u64..40, 0..20),
        ) {
            let mut holding = holding(&epochs, &[100], &[false]);
            let writer = WriterId { opening: Sequence(1), nonce: 6 };
            let stray = |number: &u64| PackName { writer, ..pack(*number) };
            holding.packs.extend(strays.iter().map(|number| (stray(number), 100)));
            let one = Rule::Keep(Keep::newest(1));
            let made = plan("r", one, &holding, Sound::default()).unwrap();
            let first = 2 + epochs[..epochs.len() - 1].iter().sum::<u64>();
            let names = Names::new("r");
            for number in strays {
                prop_assert_eq!(made.packs.contains(&names.pack(stray(&number))), number < first);
            }
        }

        /// Checkpoints that came while the sound one was looked for stay, whatever the rule says.
        #[test]
        fn what_came_after_the_look_is_not_judged(
            epochs in prop::collection::vec(1u64..5, 1..6),
            sizes in prop::collection::vec(0u64..1000, 1..9),
            limit in prop::option::of(1u64..8000),
            last in 1u64..6,
            judged in any::<prop::sample::Index>(),
        ) {
            let holding = holding(&epochs, &sizes, &[false]);
            let rule = Rule::Keep(Keep { limit, ..Keep::newest(last) });
            let judged = judged.get(&holding.manifests).manifest.sequence;
            let sound = Sound { sequence: Some(judged), judged: Some(judged), notes: Vec::new() };
            let made = plan("r", rule, &holding, sound).unwrap();
            prop_assert!(made.removed.iter().all(|gone| gone.sequence < judged));
        }
    }
}

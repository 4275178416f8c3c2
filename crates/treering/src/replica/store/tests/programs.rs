//! Random programs with deaths, damage and delays, against a plain map of blocks.
//!
//! Every rank keeps the expected blocks of each generation by its tag. After an error the survivors recover and go on
//! with the furthest operation that any of them has reached. Checks of the ranks are put together afterwards: what was
//! reported as lost must be exactly what no member held intact.

use super::*;
use crate::comm::Reduction;
use crate::replica::permutation::mix;
use crate::replica::probing::Probing;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(super) enum Op {
    Submit { blocks: u64, skew: u64, later: bool },
    Changed(u64),
    Progress,
    Load(u64),
    LoadAll(u64),
    Remake,
    Scrub,
    Settle,
    Damage { rank: u32, nth: usize },
    Die(Vec<u32>),
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodes: Vec<u8>,
    pub(super) per_domain: u8,
    pub(super) copies: u32,
    pub(super) settings: ReplicaSettings,
    pub(super) ops: Vec<Op>,
    /// Ranks that die at a communicator call.
    pub(super) kills: Vec<(u32, u64)>,
    pub(super) delay: u64,
    /// Deaths that only some ranks notice, one for each communicator.
    pub(super) partial: Vec<PartialDeath>,
}

/// The view of one rank of one load.
#[derive(Clone, Debug)]
pub(super) struct Check {
    op: usize,
    members: Vec<StartRank>,
    number: GenerationNumber,
    intact: BTreeSet<u64>,
    requested: Vec<Range<u64>>,
    lost: Vec<Range<u64>>,
}

struct Player {
    world: ThreadRanks,
    comm: Arc<dyn Comm>,
    store: ReplicaStore,
    start: u32,
    /// The expected blocks, by tag.
    model: BTreeMap<u64, Vec<u8>>,
    /// Nothing can be lost in this generation and its changes, unless more members die than there are copies.
    safe: bool,
    checks: Vec<Check>,
}

const SIZE: u64 = 8;

impl Player {
    fn play(&mut self, ops: &[Op]) {
        let mut at = 0;
        while at < ops.len() {
            match self.step(at, &ops[at]) {
                Ok(()) => at += 1,
                Err(error) => {
                    assert!(error.is_death(), "op {at} {:?}: {error}", ops[at]);
                    at = self.survive(at);
                }
            }
        }
    }

    /// Recovers; the furthest operation of all survivors.
    fn survive(&mut self, at: usize) -> usize {
        loop {
            recover(&mut self.store, &mut self.comm);
            let number = self.store.newest().map_or(0, |info| info.number.0);
            let mut all = [at as u64, number, !number];
            match self.comm.reduce(Reduction::Max, &mut all) {
                Ok(()) => {
                    assert_eq!(all[1], !all[2], "survivors have chosen different generations");
                    return all[0] as usize;
                }
                Err(error) => assert!(error.is_death(), "{error}"),
            }
        }
    }

    fn step(&mut self, at: usize, op: &Op) -> Result<()> {
        let (rank, ranks) = (self.comm.rank().0, self.comm.size());
        // A remake that others complete forgets the deaths, not the losses.
        self.safe &= self.store.newest().is_none_or(|info| info.deaths < info.copies);
        match op {
            Op::Submit { blocks: count, skew, later } => {
                let tag = at as u64;
                self.model.insert(tag, blocks(tag, 0..*count, SIZE));
                let turned = if self.store.settings.keep_own { 0 } else { *skew as u32 % ranks };
                let own = uneven((rank + turned) % ranks, ranks, *count, *skew);
                let bytes = blocks(tag, own.clone(), SIZE);
                match later {
                    true => self.store.begin_submit(tag, Arc::new(bytes), own.start)?,
                    false => drop(self.store.submit(tag, &bytes, own.start)?),
                }
                self.safe = !later || self.safe;
            }
            Op::Changed(seed) => self.change(at as u64, *seed)?,
            Op::Progress => {
                if self.store.progress()?.completed.is_some() {
                    self.safe = true;
                }
            }
            Op::Load(seed) => {
                let Some(info) = self.store.newest() else { return Ok(()) };
                let requests = requests(*seed ^ u64::from(rank), info.blocks);
                let before = intact(&self.store);
                let loaded = self.store.load(&requests)?;
                self.check(at, before, requests, loaded);
            }
            Op::LoadAll(seed) => {
                let Some(info) = self.store.newest() else { return Ok(()) };
                let of = |rank: u32| requests(*seed ^ u64::from(rank), info.blocks);
                let list: Vec<(Rank, Range<u64>)> = (0..ranks)
                    .flat_map(|rank| of(rank).into_iter().map(move |r| (Rank(rank), r)))
                    .collect();
                let before = intact(&self.store);
                let loaded = self.store.load_all(&list)?;
                self.check(at, before, of(rank), loaded);
            }
            Op::Remake if self.store.newest().is_some() || self.store.coming.is_some() => {
                let lost = self.store.remake()?.lost;
                self.safe &= lost.is_empty();
            }
            Op::Scrub if self.store.newest().is_some() || self.store.coming.is_some() => {
                drop(self.store.scrub()?);
                assert!(self.store.scrub()?.repaired.is_empty());
            }
            Op::Settle => self.store.settle()?,
            Op::Damage { rank, nth } => {
                if self.start == *rank {
                    damage(&mut self.store, *nth);
                }
                self.safe = false;
            }
            Op::Die(ranks) => {
                if ranks.contains(&self.start) {
                    self.world.kill(Rank(self.start));
                }
            }
            Op::Remake | Op::Scrub => {}
        }
        Ok(())
    }

    fn change(&mut self, tag: u64, seed: u64) -> Result<()> {
        self.store.finish()?;
        let Some(info) = self.store.newest() else { return Ok(()) };
        self.safe &= info.deaths < info.copies;
        let mut new = self.model[&info.tag].clone();
        let (rank, ranks) = (self.comm.rank().0, self.comm.size());
        let mut own = Vec::new();
        for (at, ids) in requests(seed, info.blocks).into_iter().enumerate() {
            let bytes = blocks(tag, ids.clone(), SIZE);
            new[(ids.start * SIZE) as usize..(ids.end * SIZE) as usize].copy_from_slice(&bytes);
            if mix(seed ^ at as u64) as u32 % ranks == rank {
                own.push((ids.start, bytes));
            }
        }
        self.model.insert(tag, new);
        let own: Vec<(u64, &[u8])> =
            own.iter().map(|(first, bytes)| (*first, &bytes[..])).collect();
        match self.store.submit_changed(tag, &own) {
            Ok(_) => Ok(()),
            // The same on all ranks, and nothing has changed.
            Err(error) if [ErrorKind::Lost, ErrorKind::Damaged].contains(&error.kind()) => {
                assert!(!self.safe, "{error}");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn check(
        &mut self,
        op: usize,
        before: Vec<RangeId>,
        requested: Vec<Range<u64>>,
        loaded: LoadedBlocks,
    ) {
        let info = self.store.newest().unwrap();
        let expected = &self.model[&info.tag];
        let ids = requested.iter().cloned().flatten();
        for (at, id) in ids.enumerate() {
            let got = &loaded.bytes[at * SIZE as usize..(at + 1) * SIZE as usize];
            let lost = loaded.lost.iter().any(|lost| lost.contains(&id));
            let block = &expected[(id * SIZE) as usize..((id + 1) * SIZE) as usize];
            assert!(
                if lost { got == [0; SIZE as usize] } else { got == block },
                "block {id} of op {op}"
            );
        }
        self.safe &= info.deaths < info.copies;
        assert!(
            !self.safe || loaded.lost.is_empty(),
            "{:?} lost after {} deaths",
            loaded.lost,
            info.deaths
        );
        self.checks.push(Check {
            op,
            members: self.store.members().to_vec(),
            number: info.number,
            intact: before.into_iter().map(|range| range.0).collect(),
            requested,
            lost: loaded.lost,
        });
    }
}

/// Uneven shares, some of them empty.
fn uneven(at: u32, ranks: u32, blocks: u64, skew: u64) -> Range<u64> {
    let mut cuts: Vec<u64> =
        (1..ranks).map(|cut| mix(skew ^ u64::from(cut) << 32) % (blocks + 1)).collect();
    cuts.extend([0, blocks]);
    cuts.sort_unstable();
    cuts[at as usize]..cuts[at as usize + 1]
}

/// Some ranges of blocks that do not overlap.
fn requests(seed: u64, blocks: u64) -> Vec<Range<u64>> {
    let mut cuts: Vec<u64> =
        (0..2 * (seed % 4)).map(|cut| mix(seed ^ cut << 40) % (blocks + 1)).collect();
    if seed.is_multiple_of(5) {
        cuts = vec![0, blocks];
    }
    cuts.sort_unstable();
    cuts.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Runs a plan; returns the number of ranks that lived to the end and the loads that all members completed.
pub(super) fn run_plan(plan: &Plan) -> (usize, usize) {
    let names: Vec<String> = plan.nodes.iter().map(|node| format!("n{node}")).collect();
    let mut world = ThreadRanks::on_nodes(&names).delayed(Duration::from_micros(plan.delay), 3);
    for (rank, call) in &plan.kills {
        world = world.killed_at(Rank(rank % plan.nodes.len() as u32), *call);
    }
    let domains = plan.nodes.iter().map(|node| format!("d{}", node / plan.per_domain)).collect();
    let settings = ReplicaSettings { domains, ..plan.settings.clone() };
    let (inner, ops, copies) = (world.clone(), plan.ops.clone(), plan.copies);
    let partial = plan.partial.clone();
    let ends = run(&world, move |comm| {
        let start = comm.rank().0;
        let comm: Arc<dyn Comm> = Arc::new(PartialComm::new(comm, inner.clone(), partial.clone()));
        // A store cannot be made while ranks die: the survivors have nothing yet.
        let store = ReplicaStore::new(comm.clone(), copies, settings.clone());
        let store = match store {
            Ok(store) => store,
            Err(error) => {
                assert!(error.is_death(), "{error}");
                return Vec::new();
            }
        };
        let model = BTreeMap::new();
        let world = inner.clone();
        let mut player =
            Player { world, comm, store, start, model, safe: true, checks: Vec::new() };
        player.play(&ops);
        player.checks
    });
    let ends = survivors(ends);
    let living = ends.len();
    (living, check_losses(ends.into_iter().flatten().collect(), plan.settings.range_blocks))
}

/// Lost blocks are those that no member holds.
fn check_losses(checks: Vec<Check>, range_blocks: u64) -> usize {
    let mut groups: BTreeMap<(usize, Vec<StartRank>, GenerationNumber), Vec<Check>> =
        BTreeMap::new();
    for check in checks {
        groups.entry((check.op, check.members.clone(), check.number)).or_default().push(check);
    }
    let mut whole = 0;
    for ((_, members, _), group) in groups {
        // An operation that was repeated, or that some member did not complete or live to tell.
        if group.len() != members.len() {
            continue;
        }
        whole += 1;
        let held: BTreeSet<u64> =
            group.iter().flat_map(|check| check.intact.iter().copied()).collect();
        for check in &group {
            let lost: BTreeSet<u64> = check.lost.iter().cloned().flatten().collect();
            let gone = |id: &u64| !held.contains(&(id / range_blocks));
            let expected: BTreeSet<u64> =
                check.requested.iter().cloned().flatten().filter(gone).collect();
            assert_eq!(lost, expected, "op {}", check.op);
        }
    }
    whole
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0u64..150, any::<u64>(), any::<bool>())
            .prop_map(|(blocks, skew, later)| Op::Submit { blocks, skew, later }),
        2 => any::<u64>().prop_map(Op::Changed),
        2 => Just(Op::Progress),
        4 => any::<u64>().prop_map(Op::Load),
        3 => any::<u64>().prop_map(Op::LoadAll),
        2 => Just(Op::Remake),
        1 => Just(Op::Scrub),
        1 => Just(Op::Settle),
        1 => (0u32..9, 0usize..40).prop_map(|(rank, nth)| Op::Damage { rank, nth }),
        2 => prop::collection::vec(0u32..9, 1..3).prop_map(Op::Die),
    ]
}

fn settings() -> impl Strategy<Value = ReplicaSettings> {
    (1u64..9, any::<Option<u64>>(), any::<bool>(), any::<bool>(), 1u64..2000).prop_map(
        |(range_blocks, seed, keep_own, permuted, piece)| {
            let probing = if permuted { Probing::Permutation } else { Probing::DoubleHashing };
            let block_size = SIZE;
            ReplicaSettings {
                block_size,
                range_blocks,
                seed,
                keep_own,
                probing,
                piece,
                ..ReplicaSettings::default()
            }
        },
    )
}

fn plan() -> impl Strategy<Value = Plan> {
    let kills = prop::collection::vec((0u32..9, 0u64..70), 0..3);
    let partial = (0u32..9, 3u64..60, any::<u16>());
    let partial = prop::collection::vec(
        partial.prop_map(|(victim, call, blind)| PartialDeath { victim, call, blind }),
        0..3,
    );
    let partial = partial.prop_map(|mut deaths| {
        // Recovery makes few calls: deaths in it need small numbers.
        deaths.iter_mut().skip(1).for_each(|death| death.call %= 30);
        deaths
    });
    let first = (1u64..150, any::<u64>()).prop_map(|(blocks, skew)| Op::Submit {
        blocks,
        skew,
        later: false,
    });
    let ops = (first, prop::collection::vec(op(), 1..14)).prop_map(|(first, mut ops)| {
        ops.insert(0, first);
        ops.extend([Op::Load(0), Op::LoadAll(0)]);
        ops
    });
    let delay = prop_oneof![4 => Just(0u64), 1 => Just(300u64)];
    (
        prop::collection::vec(0u8..6, 1..10),
        1u8..4,
        1u32..5,
        settings(),
        ops,
        kills,
        (delay, partial),
    )
        .prop_map(|(nodes, per_domain, copies, settings, ops, kills, (delay, partial))| Plan {
            nodes,
            per_domain,
            copies,
            settings,
            ops,
            kills,
            delay,
            partial,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("CASES").map_or(300, |n| n.parse().unwrap()), max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn every_byte_with_a_living_holder_comes_back_and_all_others_are_named(plan in plan()) {
        run_plan(&plan);
    }
}

//! Ranks that share packs: one pack for each group, whatever the ranks hand over, and everything comes back.

use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use treering::testing::{HookedStore, Locks};
use treering::{
    ChunkSize, Comm, Encoding, End, Library, MemoryStore, Options, Run, Store, ThreadRanks,
    Variable, VariableMut,
};

const LONG: Duration = Duration::from_secs(120);

pub fn memory() -> Arc<dyn Store> {
    Arc::new(HookedStore::with_locks(Arc::new(MemoryStore::new()), Locks::None))
}

pub fn options(store: &Arc<dyn Store>, comm: &Arc<dyn Comm>, per_pack: u32, raw: bool) -> Options {
    let options = Options::in_store(store.clone(), "r").ranks(comm.clone()).patience(LONG);
    let options = options.ranks_per_pack(per_pack).chunk(ChunkSize::new(64).unwrap());
    // All large variables are packed by their ranks, or some of them by the leader.
    let options = options.pack_together(if raw { 0 } else { 1 << 19 });
    if raw { options.encoding(Encoding::Raw) } else { options }
}

fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ x >> 32
}

/// The arrays of a program of several ranks: sizes around the border between small and large variables, which grow,
/// shrink, appear and vanish; content that changes here and there, repeats on other ranks, and stays.
#[derive(Clone, Debug)]
pub struct Program {
    pub seed: u64,
    pub steps: u64,
}

impl Program {
    fn variables(&self, rank: u32, step: u64) -> Vec<(String, Vec<u64>)> {
        let count = 2 + mix(self.seed ^ u64::from(rank)) % 4;
        let mut all = Vec::new();
        for number in 0..count {
            let of = mix(self.seed ^ (u64::from(rank) << 20) ^ (number << 40));
            if (of ^ step).is_multiple_of(11) {
                continue;
            }
            let base = [10, 700, 31_000, 33_500, 120_000][(of % 5) as usize];
            let len = base + (of >> 8) % 50 * if of.is_multiple_of(3) { step } else { 1 };
            let changes = |at: u64| mix(of ^ (at / 97) ^ (step * 31)).is_multiple_of(13);
            let value = |at: u64| match of >> 60 {
                0..4 => at / 100,
                4..8 => mix(number ^ (at / 64)),
                _ => mix(of ^ at),
            };
            let last = |at: u64| {
                (0..=step).rev().find(|step| mix(of ^ (at / 97) ^ (step * 31)).is_multiple_of(13))
            };
            let content = |at: u64| match changes(at) {
                true => value(at) + step,
                false => value(at) + last(at).unwrap_or(0),
            };
            all.push((format!("v{number}"), (0..len).map(content).collect()));
        }
        all
    }

    /// Saves steps on this many ranks, after comparing the restored state with the saved one.
    pub fn run(
        &self,
        store: &Arc<dyn Store>,
        nodes: &[String],
        per_pack: u32,
        first: u64,
        raw: bool,
    ) {
        let (program, shared) = (self.clone(), store.clone());
        let ends = ThreadRanks::on_nodes(nodes).run(move |comm| {
            let mut run = Run::open(options(&shared, &comm, per_pack, raw)).unwrap();
            program.run_on(comm.rank().0, &mut run, first);
            run.finish().unwrap();
        });
        assert!(ends.iter().all(|end| matches!(end, End::Done(()))), "{ends:?}");
    }

    /// The same on one rank.
    pub fn run_on(&self, rank: u32, run: &mut Run, first: u64) {
        let mut go_on_from = 0;
        if first > 0 {
            let saved = self.variables(rank, first - 1);
            let mut back: Vec<Vec<u64>> = saved.iter().map(|_| Vec::new()).collect();
            let mut state: Vec<VariableMut> = saved
                .iter()
                .zip(&mut back)
                .map(|((name, _), data)| VariableMut::growing(name, data))
                .collect();
            go_on_from = run.restore(&mut state).unwrap().unwrap().step + 1;
            drop(state);
            let same = saved.iter().zip(&back).all(|((_, saved), back)| saved == back);
            assert!(same, "rank {rank}");
        }
        assert_eq!(go_on_from, first);
        for step in first..first + self.steps {
            let state = self.variables(rank, step);
            let state: Vec<Variable> =
                state.iter().map(|(name, data)| Variable::new(name, data)).collect();
            let save = run.checkpoint(step, &state).unwrap();
            if step % 2 == 0 {
                save.durable().unwrap();
            }
        }
    }

    /// Every checkpoint is listed once, sound, in as many packs as there are groups, and holds what was saved.
    pub fn check(&self, store: &Arc<dyn Store>, ranks: u32, groups: usize, steps: u64) {
        let library = Library::of(store.clone());
        let (all, trouble) = library.checkpoints("r").unwrap();
        assert!(trouble.is_empty(), "{trouble:?}");
        assert_eq!(
            all.iter().map(|info| info.step).collect::<Vec<_>>(),
            (0..steps).collect::<Vec<_>>()
        );
        let packs = store.list("runs/r/packs").unwrap().len();
        assert_eq!(packs, groups * steps as usize);
        let report = library.verify(None, true, &|_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
        for step in 0..steps {
            let checkpoint = library.checkpoint("r", Some(step)).unwrap();
            let mut saved = 0;
            for rank in 0..ranks {
                for (name, data) in self.variables(rank, step) {
                    let entry = checkpoint.variable(treering::Rank(rank), &name).unwrap();
                    assert_eq!(entry.description.shape.0, [data.len() as u64]);
                    saved += 1;
                }
            }
            assert_eq!(checkpoint.entries().len(), saved);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Random programs on random nodes, in groups of any size, restarted in the same or in other groups.
    #[test]
    fn whatever_ranks_hand_over_comes_back(
        seed in 0u64..1 << 40,
        nodes in proptest::collection::vec(0u8..3, 2..6),
        per_pack in 1u32..5,
        other_groups in any::<bool>(),
        raw in any::<bool>(),
    ) {
        let program = Program { seed, steps: 3 };
        let names: Vec<String> = nodes.iter().map(|node| format!("node{node}")).collect();
        let groups = |per_pack: u32| -> usize {
            (0u8..3)
                .map(|node| nodes.iter().filter(|n| **n == node).count().div_ceil(per_pack as usize))
                .sum()
        };
        let store = memory();
        program.run(&store, &names, per_pack, 0, raw);
        program.check(&store, nodes.len() as u32, groups(per_pack), 3);
        let again = if other_groups { per_pack % 4 + 1 } else { per_pack };
        program.run(&store, &names, again, 3, raw);
        if groups(again) == groups(per_pack) {
            program.check(&store, nodes.len() as u32, groups(per_pack), 6);
        }
        program.run(&store, &names, again, 6, raw);
        let report = Library::of(store.clone()).verify(None, true, &|_, _| {}).unwrap();
        prop_assert!(report.is_sound());
    }
}

/// The process that restarts goes on with the epoch, in groups as before: small variables, too, whose trees the leader
/// gets from their ranks.
#[test]
fn an_epoch_goes_on_after_a_restart_of_groups() {
    let store = memory();
    let state = |rank: u32, step: u64| -> [Vec<u64>; 2] {
        let touched = |len: u64| {
            (0..len).map(|at| mix(at ^ u64::from(rank)) + u64::from(at == step)).collect()
        };
        [touched(500), touched(60_000)]
    };
    for first in [0, 3, 6] {
        let shared = store.clone();
        let ends = ThreadRanks::new(5).run(move |comm| {
            let rank = comm.rank().0;
            let mut run = Run::open(options(&shared, &comm, 3, false)).unwrap();
            if first > 0 {
                let [mut small, mut large] = state(rank, 99);
                let mut back =
                    [VariableMut::new("small", &mut small), VariableMut::new("large", &mut large)];
                assert_eq!(run.restore(&mut back).unwrap().unwrap().step, first - 1);
                assert!([small, large] == state(rank, first - 1));
            }
            for step in first..first + 3 {
                let [small, large] = state(rank, step);
                run.checkpoint(
                    step,
                    &[Variable::new("small", &small), Variable::new("large", &large)],
                )
                .unwrap();
            }
            run.finish().unwrap();
        });
        assert!(ends.iter().all(|end| matches!(end, End::Done(()))), "{ends:?}");
    }
    let library = Library::of(store.clone());
    let (all, _) = library.checkpoints("r").unwrap();
    assert_eq!(all.len(), 9);
    assert!(all.iter().all(|info| info.epoch == all[0].epoch), "one epoch");
    assert!(all[1..].iter().all(|info| info.stored_bytes * 20 < all[0].stored_bytes));
    assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
    assert_eq!(store.list("runs/r/packs").unwrap().len(), 2 * 9);
}

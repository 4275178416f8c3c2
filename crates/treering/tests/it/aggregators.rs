//! Ranks that write the checkpoints of others: whatever the compute ranks hand over comes back, in one pack for each
//! aggregator, and a death costs the checkpoint under way and nothing else.

use crate::groups::{Program, memory, options};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use treering::testing::{Fault, HookedStore, Locks};
use treering::{
    Aggregation, AggregationReport, Comm, End, Library, MemoryStore, Options, Rank, Run, Store,
    ThreadRanks, Variable, VariableMut, aggregate,
};

fn named(nodes: &[u8]) -> Vec<String> {
    nodes.iter().map(|node| format!("node{node}")).collect()
}

/// The number of ranks that compute, and of their groups.
fn seats(nodes: &[u8], per_node: usize, per_pack: usize) -> (u32, usize) {
    let on = |node: u8| nodes.iter().filter(|other| **other == node).count();
    let each = (0u8..3).map(|node| {
        let given_up = per_node.min(on(node) / 2);
        let compute = on(node) - given_up;
        (compute as u32, if given_up > 0 { given_up } else { compute.div_ceil(per_pack) })
    });
    each.fold((0, 0), |(ranks, groups), (r, g)| (ranks + r, groups + g))
}

/// Runs a program on the compute ranks; what the aggregators report.
fn run_all(
    nodes: &[String],
    per_node: u32,
    options: impl Fn(Arc<dyn Comm>) -> Options + Send + Sync + 'static,
    program: impl Fn(u32, &mut Run) + Send + Sync + 'static,
) -> Vec<AggregationReport> {
    let ends = ThreadRanks::on_nodes(nodes).run(move |all| {
        let aggregation = Aggregation::new(all, per_node).unwrap();
        let options = options(aggregation.comm());
        if aggregation.is_aggregator() {
            return Some(aggregate(options, &aggregation).unwrap());
        }
        let rank = aggregation.comm().rank().0;
        let mut run = Run::open(options.aggregated(&aggregation)).unwrap();
        program(rank, &mut run);
        run.finish().unwrap();
        None
    });
    let done = |end: End<Option<AggregationReport>>| match end {
        End::Done(report) => report,
        other => panic!("{other:?}"),
    };
    ends.into_iter().filter_map(done).collect()
}

/// Saves steps with aggregators, after restoring what was saved before.
fn save(
    program: &Program,
    store: &Arc<dyn Store>,
    nodes: &[String],
    (per_node, per_pack, raw): (u32, u32, bool),
    first: u64,
) -> Vec<AggregationReport> {
    let (program, shared) = (program.clone(), store.clone());
    let options = move |comm: Arc<dyn Comm>| options(&shared, &comm, per_pack, raw);
    let options = move |comm| options(comm).aggregator_memory(8 << 20);
    run_all(nodes, per_node, options, move |rank, run| program.run_on(rank, run, first))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    /// Random programs on random nodes, some of which have aggregators; restarted with as many, or without, or with
    /// other numbers of them.
    #[test]
    fn whatever_compute_ranks_hand_over_comes_back(
        seed in 0u64..1 << 40,
        nodes in proptest::collection::vec(0u8..3, 2..8),
        per_node in 1u32..3,
        per_pack in 1u32..4,
        raw in any::<bool>(),
    ) {
        let program = Program { seed, steps: 3 };
        let (ranks, groups) = seats(&nodes, per_node as usize, per_pack as usize);
        let names = named(&nodes);
        let store = memory();
        let reports = save(&program, &store, &names, (per_node, per_pack, raw), 0);
        prop_assert!(reports.iter().all(|r| r.checkpoints == 3 && r.failures.is_empty()));
        prop_assert!(reports.iter().all(|r| r.most_held <= 8 << 20));
        program.check(&store, ranks, groups, 3);
        // The same ranks, on a node of their own, without aggregators: another grouping, so a new epoch.
        let alone = vec!["node".to_string(); ranks as usize];
        program.run(&store, &alone, per_pack, 3, raw);
        // And with them again, twice: the second time the epoch goes on.
        for first in [6, 9] {
            save(&program, &store, &names, (per_node, per_pack, raw), first);
        }
        let library = Library::of(store.clone());
        let report = library.verify(None, true, &|_, _| {}).unwrap();
        prop_assert!(report.is_sound());
        let (all, _) = library.checkpoints("r").unwrap();
        prop_assert_eq!(all.len(), 12);
    }
}

/// A state of which much is large, on two ranks with one aggregator: it goes through a memory that is far smaller, and a
/// restarted program goes on with the epoch, with differences to the step before.
#[test]
fn large_states_pass_through_little_memory() {
    let store = memory();
    let state = |rank: u32, step: u64| -> Vec<f64> {
        let value =
            |at: u64| (at ^ u64::from(rank) << 30).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
        (0..1_500_000).map(|at| value(at * at) as f64 + 1e-3 * (step * (at % 7)) as f64).collect()
    };
    for first in [0, 2] {
        let shared = store.clone();
        let options = move |_: Arc<dyn Comm>| {
            Options::in_store(shared.clone(), "r").aggregator_memory(8 << 20)
        };
        let nodes = vec!["node".to_string(); 3];
        let reports = run_all(&nodes, 1, options, move |rank, run| {
            if first > 0 {
                let mut back = state(rank, 99);
                let restored = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap();
                assert_eq!(restored.unwrap().step, first - 1);
                assert!(back == state(rank, first - 1));
            }
            for step in first..first + 2 {
                let data = state(rank, step);
                run.checkpoint(step, &[Variable::new("x", &data)]).unwrap().durable().unwrap();
            }
        });
        let [report] = &reports[..] else { panic!("{reports:?}") };
        assert!(report.checkpoints == 2 && report.failures.is_empty(), "{report:?}");
        // 24 MB went through it each time, and not in crumbs.
        assert!((2 << 20..=8 << 20).contains(&report.most_held), "{}", report.most_held);
    }
    let library = Library::of(store.clone());
    let (all, _) = library.checkpoints("r").unwrap();
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|info| info.epoch == all[0].epoch), "one epoch");
    assert!(all[1..].iter().all(|info| info.stored_bytes * 4 < all[0].stored_bytes), "{all:?}");
    for step in 0..4 {
        let checkpoint = library.checkpoint("r", Some(step)).unwrap();
        for rank in 0..2 {
            let entry = checkpoint.variable(Rank(rank), "x").unwrap();
            let stored = checkpoint.read_together(&[entry]).unwrap();
            assert!(stored == bytemuck::cast_slice::<f64, u8>(&state(rank, step)));
        }
    }
    assert_eq!(store.list("runs/r/packs").unwrap().len(), 4);
}

//! Ranks that write the checkpoints of others: whatever the compute ranks hand over comes back, in one pack for each
//! aggregator, and a death costs the checkpoint under way and nothing else.

use crate::groups::{Program, memory, options};
use crate::pack_size::field;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use treering::testing::HookedStore;
use treering::{
    Aggregation, AggregationReport, Comm, End, ErrorKind, Library, Options, Rank, Run, Store,
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
        // A program of one rank writes itself.
        prop_assume!(ranks > 1);
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
    let state = |rank: u32, step: u64| field(rank, 1, step, 600_000);
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
        // 9.6 MB went through it each time, and not in crumbs.
        assert!((2 << 20..=8 << 20).contains(&report.most_held), "{}", report.most_held);
    }
    let library = Library::of(store.clone());
    let (all, _) = library.checkpoints("r").unwrap();
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|info| info.epoch == all[0].epoch), "one epoch");
    assert!(all[1..].iter().all(|info| info.stored_bytes * 3 < all[0].stored_bytes), "{all:?}");
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

fn steps(store: &Arc<dyn Store>) -> BTreeSet<u64> {
    Library::of(store.clone()).checkpoints("r").unwrap().0.iter().map(|info| info.step).collect()
}

/// A state of a rank, part of which changes.
fn small_state(rank: u32, step: u64) -> Vec<u64> {
    (0..3000).map(|at| at * 7 + u64::from(rank) + if at < 500 { step } else { 0 }).collect()
}

/// Everything that is listed is sound and holds what was saved, also for ranks that restart without aggregators.
fn holds_what_was_saved(store: &Arc<dyn Store>, ranks: u32) {
    assert!(Library::of(store.clone()).verify(None, true, &|_, _| {}).unwrap().is_sound());
    let listed = steps(store);
    let shared = store.clone();
    let ends = ThreadRanks::new(ranks).run(move |comm| {
        let rank = comm.rank().0;
        let mut run = Run::open(options(&shared, &comm, 32, false)).unwrap();
        for step in &listed {
            let mut back = Vec::<u64>::new();
            run.restore_step(*step, &mut [VariableMut::growing("x", &mut back)]).unwrap();
            assert!(back == small_state(rank, *step), "rank {rank}, step {step}");
        }
    });
    assert!(ends.iter().all(|end| *end == End::Done(())), "{ends:?}");
}

/// One of two aggregators dies at every call of its store. The checkpoint under way may be lost; then its ranks do its
/// work themselves, and everything that is listed is exact.
#[test]
fn an_aggregator_that_dies_at_any_call_costs_one_checkpoint() {
    const VICTIM: Rank = Rank(2);
    let mut hits = 0;
    for fuse in 0.. {
        let store = memory();
        let nodes: Vec<String> = ["a", "a", "a", "b", "b"].map(String::from).into();
        let world = ThreadRanks::on_nodes(&nodes);
        let (kill, shared, left) = (world.clone(), store.clone(), Arc::new(AtomicI64::new(fuse)));
        let (burns, late) = (left.clone(), Arc::new(AtomicBool::new(false)));
        let died_late = late.clone();
        let ends = world.run(move |all| {
            let (own, kill, left) = (all.rank(), kill.clone(), left.clone());
            let aggregation = Aggregation::new(all.clone(), 1).unwrap();
            let seen: Arc<dyn Store> = Arc::new(HookedStore::new(shared.clone(), move |_| {
                if own == VICTIM && left.fetch_sub(1, Ordering::SeqCst) == 0 {
                    kill.kill(own);
                }
                kill.stop_if_dead(own)
            }));
            let comm = aggregation.comm();
            let options = options(&seen, &comm, 32, false);
            if aggregation.is_aggregator() {
                return aggregate(options, &aggregation).map(drop);
            }
            let mut run = Run::open(options.aggregated(&aggregation))?;
            let dead = || all.dead().unwrap().contains(&VICTIM);
            for step in 0..4 {
                let last = step == 3 && !dead();
                let data = small_state(comm.rank().0, step);
                run.checkpoint(step, &[Variable::new("x", &data)])?;
                while !steps(&shared).contains(&step) && !dead() {
                    std::thread::yield_now();
                }
                // A rank that dies during the last one takes it along.
                died_late.fetch_or(last && dead(), Ordering::SeqCst);
            }
            // The checkpoint that was lost is reported.
            let _ = run.finish();
            Ok(())
        });
        let fine = |end: &End<treering::Result<()>>| matches!(end, End::Done(Ok(())));
        let died = burns.load(Ordering::SeqCst) < 0;
        assert!(ends.iter().enumerate().all(|(rank, end)| rank == 2 || fine(end)), "{ends:?}");
        let listed = steps(&store);
        assert!(listed.len() >= 3, "call {fuse}: {listed:?}");
        assert!(late.load(Ordering::SeqCst) || listed.contains(&3), "call {fuse}: {listed:?}");
        holds_what_was_saved(&store, 3);
        if !died {
            assert_eq!(listed.len(), 4);
            break;
        }
        hits += 1;
    }
    assert!(hits > 10, "{hits}");
}

/// A compute rank dies: its aggregator names it, and what was complete is there.
#[test]
fn the_death_of_a_compute_rank_is_named_and_costs_what_is_under_way() {
    let store = memory();
    let world = ThreadRanks::on_nodes(&["a", "a", "a", "a"].map(String::from));
    let (kill, shared) = (world.clone(), store.clone());
    let ends = world.run(move |all| {
        let aggregation = Aggregation::new(all.clone(), 1).unwrap();
        let comm = aggregation.comm();
        let options = options(&shared, &comm, 32, false);
        if aggregation.is_aggregator() {
            return aggregate(options, &aggregation).map(drop);
        }
        let mut run = Run::open(options.aggregated(&aggregation))?;
        for step in 0..3 {
            if step == 2 && comm.rank() == Rank(1) {
                kill.kill(all.rank());
            }
            let data = small_state(comm.rank().0, step);
            run.checkpoint(step, &[Variable::new("x", &data)])?.durable()?;
        }
        run.finish()
    });
    for (rank, end) in ends.into_iter().enumerate() {
        match (rank, end) {
            (1, end) => assert!(matches!(end, End::Killed)),
            (_, End::Done(Err(error))) => {
                assert_eq!(error.kind(), ErrorKind::Dead, "{error}");
                assert!(error.to_string().contains("rank 1 has died"), "{error}");
            }
            (rank, end) => panic!("rank {rank}: {end:?}"),
        }
    }
    assert_eq!(steps(&store), BTreeSet::from([0, 1]));
    holds_what_was_saved(&store, 3);
}

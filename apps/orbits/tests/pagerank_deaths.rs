//! PageRank whose ranks die comes to the scores of an undisturbed one; the graph is read once.

use orbits::pagerank::{PageRank, PageRankSettings, SurvivingPageRank};
use orbits::{Graph, make};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use surviving::testing::{Story, survivors};
use treering::{Comm, Level, Pace, Rank, Role, Survival, ThreadRanks};

const SETTINGS: PageRankSettings =
    PageRankSettings { damping: 0.85, tolerance: 1e-6, iterations: 90 };

fn graph() -> Graph {
    // Some vertices have no neighbours.
    let edges: Vec<(u32, u32)> = make::delaunay(300, 2).unwrap().edge_list().collect();
    Graph::from_edges(320, edges).unwrap()
}

/// Counts how often a rank brings the graph.
fn program(
    brought: Arc<AtomicU32>,
) -> impl Fn(&ThreadRanks, Rank) -> SurvivingPageRank<'static> + Send + Sync + 'static {
    move |_, _| {
        let brought = brought.clone();
        SurvivingPageRank::new(PageRank::new(SETTINGS), move |_: &dyn Comm| {
            brought.fetch_add(1, Ordering::SeqCst);
            Ok(graph())
        })
    }
}

/// The last step, the scores on one rank, and the recoveries.
type Told = (u64, Option<Vec<f64>>, Vec<Option<(u64, Level)>>);

fn tell(program: &SurvivingPageRank, survival: Survival) -> Told {
    let recovered = survival.recoveries.iter().map(|recovery| recovery.from).collect();
    (survival.step, program.scores.clone(), recovered)
}

/// The end of a story: the last step, the scores, the killed, the times that a rank brought the graph, recoveries.
fn end_of(story: &Story) -> (u64, Vec<f64>, usize, u32, Vec<Option<(u64, Level)>>) {
    let brought = Arc::new(AtomicU32::new(0));
    let (told, killed) = survivors(story.play(program(brought.clone()), tell));
    let step = told.iter().map(|(step, ..)| *step).max().unwrap();
    let scores = told.iter().find_map(|(_, scores, _)| scores.clone()).unwrap();
    let recovered = told.into_iter().map(|(.., recovered)| recovered).max_by_key(Vec::len);
    (step, scores, killed, brought.load(Ordering::SeqCst), recovered.unwrap())
}

#[test]
fn a_rank_may_die_at_any_call_and_nobody_reads_the_graph_again() {
    let alone = Story { ranks: 1, copies: 0, ..Story::new() };
    let (step, scores, ..) = end_of(&alone);
    assert!((20..90).contains(&step), "{step}");
    let (mut killed, mut from_memory) = (0, 0);
    for (victim, call) in (3..240).step_by(5).map(|call| (call as u32 % 4, call)) {
        let story = Story { deaths: vec![(victim, call)], ..Story::new() };
        let (last, found, dead, brought, recovered) = end_of(&story);
        assert!(last == step && found == scores, "rank {victim}, call {call}");
        killed += dead;
        for from in recovered {
            let memory = matches!(from, Some((_, Level::Memory)));
            from_memory += usize::from(memory);
            // Four ranks bring it at the start; whoever begins again without a state, once more.
            assert!(!memory || brought <= 4, "{brought}");
        }
    }
    assert!(killed > 25 && from_memory > 20, "{killed} {from_memory}");
}

#[test]
fn two_ranks_and_a_spare_come_to_the_same_scores() {
    let alone = Story { ranks: 1, copies: 0, ..Story::new() };
    let (step, scores, ..) = end_of(&alone);
    for (ranks, spares) in [(6, 0), (4, 1), (4, 2)] {
        for first in 0..3 {
            let deaths = vec![(first, 120), (first + 1, 150 + 20 * u64::from(first))];
            let story = Story { ranks, spares, copies: 3, deaths, ..Story::new() };
            let (last, found, killed, ..) = end_of(&story);
            assert!(last == step && found == scores && killed > 0, "{ranks}, {spares}: {killed}");
        }
    }
}

#[test]
fn a_run_of_another_graph_is_refused() {
    let pace = Pace { replicas: 0, checkpoints: 4 };
    let story = Story { pace, copies: 0, ..Story::new() };
    let (step, scores, ..) = end_of(&story);
    let again = Story { ranks: 3, ..story.clone() };
    let other = |_: &ThreadRanks, _: Rank| {
        SurvivingPageRank::new(PageRank::new(SETTINGS), |_: &dyn Comm| {
            Ok(make::delaunay(200, 5).unwrap())
        })
    };
    for end in again.play(other, |_, survival| assert_ne!(survival.role, Role::Spare)) {
        let error = end.done().unwrap().unwrap_err();
        assert!(error.to_string().contains("another graph"), "{error}");
    }
    // With its own one there is nothing left to do.
    let (last, found, ..) = end_of(&again);
    assert!(last == step && found == scores);
}

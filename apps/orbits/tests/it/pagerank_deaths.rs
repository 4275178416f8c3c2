//! PageRank whose ranks die comes to the scores of an undisturbed one; the graph is read once.

use orbits::pagerank::{PageRank, PageRankSettings, SurvivingPageRank};
use orbits::{Graph, make};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use surviving::testing::{Story, refusal, survivors};
use treering::{Comm, Level, Pace, Rank, Survival, ThreadRanks};

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

/// The end of a story.
struct StoryEnd {
    step: u64,
    scores: Vec<f64>,
    killed: usize,
    /// Number of times that a rank brought the graph.
    brought: u32,
    recovered: Vec<Option<(u64, Level)>>,
}

fn end_of(story: &Story) -> StoryEnd {
    let brought = Arc::new(AtomicU32::new(0));
    let (told, killed) = survivors(story.play(program(brought.clone()), tell));
    let step = told.iter().map(|(step, ..)| *step).max().unwrap();
    let scores = told.iter().find_map(|(_, scores, _)| scores.clone()).unwrap();
    let recovered = told.into_iter().map(|(.., recovered)| recovered).max_by_key(Vec::len);
    let (brought, recovered) = (brought.load(Ordering::SeqCst), recovered.unwrap());
    StoryEnd { step, scores, killed, brought, recovered }
}

/// An undisturbed run of one rank.
fn undisturbed() -> StoryEnd {
    end_of(&Story { ranks: 1, copies: 0, ..Story::new() })
}

#[test]
fn a_rank_may_die_at_any_call_and_nobody_reads_the_graph_again() {
    let expected = undisturbed();
    assert!((20..90).contains(&expected.step), "{}", expected.step);
    let (mut killed, mut from_memory) = (0, 0);
    for (victim, call) in (3..240).step_by(5).map(|call| (call as u32 % 4, call)) {
        let end = end_of(&Story { deaths: vec![(victim, call)], ..Story::new() });
        assert!(end.step == expected.step, "rank {victim}, call {call}: step {}", end.step);
        assert!(end.scores == expected.scores, "rank {victim}, call {call}");
        killed += end.killed;
        for from in end.recovered {
            let memory = matches!(from, Some((_, Level::Memory)));
            from_memory += usize::from(memory);
            // Four ranks bring it at the start; whoever begins again without a state, once more.
            assert!(!memory || end.brought <= 4, "{}", end.brought);
        }
    }
    assert!(killed > 25 && from_memory > 20, "{killed} {from_memory}");
}

#[test]
fn two_ranks_and_a_spare_come_to_the_same_scores() {
    let expected = undisturbed();
    for (ranks, spares) in [(6, 0), (4, 1), (4, 2)] {
        for first in 0..3 {
            let deaths = vec![(first, 120), (first + 1, 150 + 20 * u64::from(first))];
            let end = end_of(&Story { ranks, spares, copies: 3, deaths, ..Story::new() });
            assert!(end.step == expected.step && end.scores == expected.scores);
            assert!(end.killed > 0, "{ranks} ranks, {spares} spares");
        }
    }
}

#[test]
fn a_run_of_another_graph_is_refused() {
    let pace = Pace { replicas: 0, checkpoints: 4 };
    let story = Story { pace, copies: 0, ..Story::new() };
    let first = end_of(&story);
    let again = Story { ranks: 3, ..story.clone() };
    let other = |_: &ThreadRanks, _: Rank| {
        SurvivingPageRank::new(PageRank::new(SETTINGS), |_: &dyn Comm| {
            Ok(make::delaunay(200, 5).unwrap())
        })
    };
    assert!(refusal(again.play(other, |_, _| ())).contains("another graph"));
    // With its own one there is nothing left to do.
    let end = end_of(&again);
    assert!(end.step == first.step && end.scores == first.scores);
}

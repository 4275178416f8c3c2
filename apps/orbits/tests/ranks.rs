//! The same count on ranks: the counts of one process on any number of them, also after a death and a restart on
//! another number.

use orbits::ranks::{CountProgress, CountSchedule, RankCount, count_on_ranks, share_graph};
use orbits::{Counts, Graph, GraphError, count_range, make};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use treering::{Comm, End, Options, Rank, Run, ThreadRanks};

/// The result of each rank; all must have ended well.
fn on_ranks<T: Send + std::fmt::Debug + 'static>(
    ranks: u32,
    program: impl Fn(Arc<dyn Comm>) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let ends = ThreadRanks::new(ranks).run(program);
    ends.into_iter()
        .map(|end| match end {
            End::Done(value) => value,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn straight(graph: &Graph) -> Counts<u64> {
    let mut counts = Counts::new(graph.vertices());
    count_range(graph, 0..graph.vertices(), &mut counts).unwrap();
    counts
}

fn schedule() -> CountSchedule {
    CountSchedule { checkpoints: 7, wait: true }
}

fn open(store: &Path, comm: &Arc<dyn Comm>) -> treering::Result<Run> {
    let options = Options::directory(store, "r").ranks(comm.clone());
    Run::open(options.patience(Duration::from_secs(60)))
}

/// Counts with checkpoints; the step that the count went on from, and all counts.
fn with_checkpoints(ranks: u32, store: &Path, graph: &Graph) -> (Option<u64>, Counts<u64>) {
    let (store, graph) = (store.to_path_buf(), graph.clone());
    let outcomes = on_ranks(ranks, move |comm| {
        let run = open(&store, &comm).unwrap();
        let mut count = RankCount::<u32>::new(graph.clone(), comm, 1).unwrap();
        let mut resumed = None;
        count_on_ranks(&mut count, run, schedule(), &mut |progress| match progress {
            CountProgress::Resumed { step, .. } => resumed = Some(step),
            CountProgress::Saved { .. } => {}
            CountProgress::Failed { step, error } => panic!("{step}: {error}"),
        })
        .unwrap();
        (resumed, count.gather().unwrap())
    });
    let (resumed, counts) = outcomes.into_iter().next().unwrap();
    (resumed, counts.unwrap())
}

#[test]
fn any_number_of_ranks_counts_the_same() {
    let graphs = [
        make::delaunay(700, 3).unwrap(),
        make::road(500, 1).unwrap(),
        // A hub, whose neighbours are everybody's.
        Graph::from_edges(60, (1..60).flat_map(|v| [(30, v - 1), (v - 1, v)])).unwrap(),
        // More ranks than vertices, and none at all.
        Graph::from_edges(3, [(0, 1), (1, 2)]).unwrap(),
        Graph::from_edges(0, []).unwrap(),
    ];
    for graph in graphs {
        let expected = straight(&graph);
        for ranks in [1, 2, 3, 5] {
            let folder = tempfile::tempdir().unwrap();
            let (resumed, counts) = with_checkpoints(ranks, folder.path(), &graph);
            assert_eq!(resumed, None);
            assert!(counts == expected, "{ranks} ranks, {} vertices", graph.vertices());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the graph, the cut of the roots and the number of ranks.
    #[test]
    fn batches_of_any_length_count_the_same(
        vertices in 1u32..24, edges in proptest::collection::vec((0u32..24, 0u32..24), 0..70),
        ranks in 1u32..6, mut ends in proptest::collection::vec(0u32..24, 0..4),
    ) {
        let edges = edges.into_iter().map(|(a, b)| (a % vertices, b % vertices));
        let graph = Graph::from_edges(vertices, edges).unwrap();
        let expected = straight(&graph);
        ends.push(u32::MAX);
        ends.sort_unstable();
        let counts = on_ranks(ranks, move |comm| {
            let mut count = RankCount::<u64>::new(graph.clone(), comm, 1).unwrap();
            ends.iter().for_each(|end| count.count_to(*end).unwrap());
            count.gather().unwrap()
        });
        prop_assert!(counts.into_iter().flatten().next().unwrap() == expected);
    }
}

/// A rank dies after a checkpoint, and other numbers of ranks go on from it.
#[test]
fn a_death_costs_no_checkpoint() {
    let graph = make::delaunay(900, 5).unwrap();
    let expected = straight(&graph);
    for (ranks, again) in [(4, 4), (3, 5), (2, 1), (5, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let world = ThreadRanks::new(ranks);
        let (store, of, killer) = (folder.path().to_path_buf(), graph.clone(), world.clone());
        let ends = world.run(move |comm| {
            let run = open(&store, &comm).unwrap();
            let mut count = RankCount::<u32>::new(of.clone(), comm.clone(), 1).unwrap();
            let mut observer = |progress: CountProgress| {
                let third = matches!(progress, CountProgress::Saved { step: 3, .. });
                if third && comm.rank() == Rank(1) {
                    killer.kill(Rank(1));
                }
            };
            let error = count_on_ranks(&mut count, run, schedule(), &mut observer);
            error.err().map(|error| error.to_string())
        });
        for end in ends {
            match end {
                End::Done(error) => assert!(error.unwrap().contains("died")),
                End::Killed => {}
                End::Panicked(text) => panic!("{text}"),
            }
        }
        // The dead rank's lock stays with its thread: a copy of the store is what another process sees.
        let copy = tempfile::tempdir().unwrap();
        copy_folder(folder.path(), copy.path());
        let (resumed, counts) = with_checkpoints(again, copy.path(), &graph);
        assert_eq!(resumed, Some(3), "{ranks} ranks, then {again}");
        assert!(counts == expected, "{ranks} ranks, then {again}");
        // The last checkpoint has everything, on yet another number.
        let (resumed, counts) = with_checkpoints(3, copy.path(), &graph);
        assert_eq!(resumed, Some(7));
        assert!(counts == expected);
    }
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => {
                std::fs::create_dir(&target).unwrap();
                copy_folder(&entry.path(), &target);
            }
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn another_graph_is_refused_on_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    with_checkpoints(2, folder.path(), &make::delaunay(200, 1).unwrap());
    for ranks in [1, 2, 3] {
        let store = folder.path().to_path_buf();
        let told = on_ranks(ranks, move |comm| {
            let graph = make::delaunay(200, 2).unwrap();
            let run = open(&store, &comm).unwrap();
            let mut count = RankCount::<u32>::new(graph, comm, 1).unwrap();
            let done = count_on_ranks(&mut count, run, schedule(), &mut |_| {});
            done.unwrap_err().to_string()
        });
        assert!(told.iter().all(|error| error.contains("another graph")), "{told:?}");
    }
}

#[test]
fn one_rank_brings_the_graph_or_its_error_to_all() {
    let graph = make::delaunay(300, 1).unwrap();
    let brought = graph.clone();
    let all = on_ranks(3, move |comm| share_graph(&*comm, || Ok(brought.clone())).unwrap());
    assert!(all.iter().all(|one| *one == graph));
    let told = on_ranks(3, |comm| {
        let none = || -> Result<Graph, GraphError> {
            Err(orbits::read_graph(Path::new("/no/such/graph")).unwrap_err())
        };
        share_graph(&*comm, none).unwrap_err().to_string()
    });
    assert!(told.iter().all(|error| *error == told[0] && error.contains("/no/such/graph")));
}

//! Laws of the public face: cuts, threads, counter types and numberings do not change a
//! count, and no text makes the parsers panic.

use orbits::read::parse_graph;
use orbits::{Counts, Graph, Permutation, count_range, gorder};
use proptest::prelude::*;

fn graphs() -> impl Strategy<Value = Graph> {
    (1..40_u32).prop_flat_map(|n| {
        let edges = proptest::collection::vec((0..n, 0..n), 0..80);
        edges.prop_map(move |edges| Graph::from_edges(n, edges).unwrap())
    })
}

fn counted(graph: &Graph) -> Counts<u64> {
    let mut counts = Counts::new(graph.vertices());
    count_range(graph, 0..graph.vertices(), &mut counts).unwrap();
    counts
}

fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build().unwrap().install(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cut_gives_the_same_table(
        graph in graphs(),
        cuts in proptest::collection::vec(0..40_u32, 0..5),
    ) {
        let mut ends: Vec<u32> = cuts.iter().map(|&c| c.min(graph.vertices())).collect();
        ends.extend([0, graph.vertices()]);
        ends.sort_unstable();
        let mut counts = Counts::<u64>::new(graph.vertices());
        for part in ends.windows(2).rev() {
            count_range(&graph, part[0]..part[1], &mut counts).unwrap();
        }
        prop_assert_eq!(counts, counted(&graph));
    }

    #[test]
    fn narrow_and_wide_counters_agree(graph in graphs()) {
        let mut narrow = Counts::<u32>::new(graph.vertices());
        count_range(&graph, 0..graph.vertices(), &mut narrow).unwrap();
        let widened = narrow.as_slice().iter().map(|&c| u64::from(c));
        prop_assert!(widened.eq(counted(&graph).as_slice().iter().copied()));
    }

    #[test]
    fn gorder_is_a_permutation(graph in graphs()) {
        let labels = gorder(&graph).labels().to_vec();
        prop_assert!(Permutation::from_labels(labels).is_ok());
    }

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_graph(bytes.as_slice());
    }

    #[test]
    fn no_numbers_make_a_parser_panic(
        market in any::<bool>(),
        text in "([0-9]{1,3}|[0-9]{1,20}|-1|1e9|%|#)([ ,\n][0-9]{1,2}){0,30}",
    ) {
        let header = "%%MatrixMarket matrix coordinate pattern general\n";
        let text = if market { format!("{header}{text}") } else { text };
        let _ = parse_graph(text.as_bytes());
    }

    #[test]
    fn an_edge_list_written_is_the_graph_read(graph in graphs()) {
        let text: String = graph.edge_list().map(|(a, b)| format!("{a} {b}\n")).collect();
        let read = parse_graph(text.as_bytes()).unwrap();
        prop_assert!(read.edge_list().eq(graph.edge_list()));
    }
}

#[test]
fn any_number_of_threads_gives_the_same_table() {
    // An ordinary part of many runs, and a hub whose spokes are more than fit one: the
    // chain 0 - 1 - 2 leads to it, and the roots 0 and 1 see it without too many subgraphs.
    let mesh = orbits::make::delaunay(3000, 4).unwrap();
    let mesh = mesh.edge_list().map(|(a, b)| (a + 3, b + 3));
    let hub = 3003;
    let spokes = (hub + 1..hub + 3000).map(|v| (hub, v));
    let rim = (hub + 1..hub + 2999).step_by(3).map(|v| (v, v + 1));
    let chain = [(0, 1), (1, 2), (2, hub)].into_iter();
    let edges = chain.chain(mesh).chain(spokes).chain(rim);
    let graph = Graph::from_edges(hub + 3000, edges).unwrap();
    let count = || {
        let mut counts = Counts::<u64>::new(graph.vertices());
        count_range(&graph, 0..2, &mut counts).unwrap();
        count_range(&graph, 3..hub, &mut counts).unwrap();
        counts
    };
    let single = with_threads(1, count);
    for threads in [2, 5] {
        assert!(with_threads(threads, count) == single, "{threads} threads");
    }
}

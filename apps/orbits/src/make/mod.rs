//! Makes graphs like those that orbit counts are used for, each fully told by its size and
//! seed.

mod delaunay;
mod events;
mod geometric;
mod random;
mod road;

pub use delaunay::delaunay;
pub use events::{message_race, unstructured_mesh};
pub use geometric::geometric;
pub use road::road;

use crate::GraphError;

/// Refuses a size that a generator cannot work with.
fn at_least(least: u32, n: u32, what: &str) -> Result<(), GraphError> {
    if n < least {
        return Err(GraphError::new(format!(
            "{what} needs at least {least} vertices, but {n} were asked for"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Graph;

    type Generator = fn(u32, u64) -> Result<Graph, GraphError>;

    const ALL: [(&str, Generator); 5] = [
        ("delaunay", delaunay),
        ("road", road),
        ("geometric", |n, seed| geometric(n, 6.0, seed)),
        ("message_race", message_race),
        ("unstructured_mesh", unstructured_mesh),
    ];

    #[test]
    fn the_seed_tells_the_graph() {
        for (name, make) in ALL {
            let graph = make(3000, 7).unwrap();
            assert_eq!(graph, make(3000, 7).unwrap(), "{name}");
            assert_ne!(graph, make(3000, 8).unwrap(), "{name}");
        }
    }

    #[test]
    fn small_sizes_make_a_graph_or_a_sentence() {
        for (name, make) in ALL {
            for n in 0..60 {
                match make(n, 3) {
                    Ok(graph) => assert!(graph.vertices() <= n, "{name} {n}"),
                    Err(error) => assert!(error.to_string().contains("at least"), "{name} {n}"),
                }
            }
        }
    }

    fn edges_per_vertex(graph: &Graph) -> f64 {
        graph.edges() as f64 / f64::from(graph.vertices())
    }

    #[test]
    fn densities_are_those_of_the_models() {
        let expected = [
            ("delaunay", 2.9..3.0),
            ("road", 1.05..1.25),
            ("geometric", 2.7..3.1),
            ("message_race", 1.45..1.5),
            ("unstructured_mesh", 1.45..1.5),
        ];
        for ((name, make), (_, range)) in ALL.iter().zip(expected) {
            let graph = make(20_000, 5).unwrap();
            let density = edges_per_vertex(&graph);
            assert!(range.contains(&density), "{name}: {density}");
            assert!(graph.vertices() > 19_000, "{name}: {}", graph.vertices());
        }
    }
}

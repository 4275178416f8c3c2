//! One rank reads or makes the graph, and hands it to the others.

use super::garbled;
use crate::{Graph, GraphError};
use treering::{Comm, Error, Rank, Result};

const GRAPH: u8 = 1;
const TROUBLE: u8 = 2;

/// Hands the graph that rank 0 brings to all ranks; the others bring nothing. If it has none, all ranks get the same
/// error. Collective.
pub fn share_graph(
    comm: &dyn Comm,
    bring: impl FnOnce() -> std::result::Result<Graph, GraphError>,
) -> Result<Graph> {
    let brought = (comm.rank() == Rank(0)).then(bring);
    let mut bytes = match &brought {
        None => Vec::new(),
        Some(Ok(graph)) => write(graph),
        Some(Err(error)) => [&[TROUBLE], error.to_string().as_bytes()].concat(),
    };
    comm.broadcast(Rank(0), &mut bytes)?;
    match brought {
        Some(Ok(graph)) => Ok(graph),
        _ => read(&bytes),
    }
}

fn write(graph: &Graph) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(5 + 8 * graph.edges());
    bytes.push(GRAPH);
    bytes.extend_from_slice(&graph.vertices().to_le_bytes());
    for end in graph.edge_list().flat_map(|(a, b)| [a, b]) {
        bytes.extend_from_slice(&end.to_le_bytes());
    }
    bytes
}

fn read(bytes: &[u8]) -> Result<Graph> {
    let number = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
    match bytes.split_first() {
        Some((&GRAPH, bytes)) => {
            let (vertices, edges) = bytes.split_first_chunk().ok_or_else(garbled)?;
            let edges = edges.chunks_exact(8).filter_map(|edge| {
                let (a, b) = edge.split_first_chunk()?;
                Some((number(a), number(b.first_chunk()?)))
            });
            Graph::from_edges(number(vertices), edges).map_err(|_| garbled())
        }
        Some((&TROUBLE, text)) => Err(Error::usage(String::from_utf8_lossy(text))),
        _ => Err(garbled()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make;

    #[test]
    fn graphs_return_and_other_bytes_are_refused() {
        for graph in [make::delaunay(100, 1).unwrap(), Graph::from_edges(9, []).unwrap()] {
            assert_eq!(read(&write(&graph)).unwrap(), graph);
        }
        let mut beyond = write(&make::delaunay(100, 1).unwrap());
        beyond[1] = 7;
        for bad in [&[][..], &[9, 9], &[GRAPH, 1, 0], &beyond] {
            assert!(read(bad).unwrap_err().to_string().contains("not understood"));
        }
        assert_eq!(read(b"\x02no such file").unwrap_err().to_string(), "no such file");
    }
}

//! Graphlet orbit counts of large sparse graphs.
//!
//! A graphlet is a connected induced subgraph of 2 to 5 vertices; its orbits are the
//! positions that a vertex can take in it, up to symmetry. There are 30 graphlets with 73
//! orbits, numbered as by Przulj (2007) and the ORCA tool. For each vertex of a graph this
//! crate counts how often it stands in each orbit.
//!
//! The way of the data: [`read`] or [`make`] gives a [`Graph`], [`reorder`] renumbers it so
//! that neighbours lie close in memory, [`count`] fills a table of |V| x 73 counters. [`ranks`] does the
//! same on several ranks, each of which has some rows of the table. [`pagerank`] scores the vertices of the same
//! graphs on ranks that survive each other's death.
//!
//! ```
//! use orbits::{Counts, Graph, count_range};
//!
//! let triangle = Graph::from_edges(3, [(0, 1), (1, 2), (2, 0)])?;
//! let mut counts = Counts::<u32>::new(triangle.vertices());
//! count_range(&triangle, 0..triangle.vertices(), &mut counts)?;
//! assert_eq!(counts.row(0)[0], 2); // two edges
//! assert_eq!(counts.row(0)[3], 1); // one triangle
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod count;
mod error;
mod graph;
pub mod make;
pub mod pagerank;
pub mod ranks;
pub mod read;
pub mod reorder;

pub use count::{CountError, Counter, Counts, ORBITS, count_range};
pub use error::GraphError;
pub use graph::Graph;
pub use read::read_graph;
pub use reorder::{Permutation, gorder};

//! The arguments that say which graph a program works on.

use clap::{Args, ValueEnum};
use orbits::{Graph, GraphError, make, read_graph};
use std::path::PathBuf;

#[derive(Args)]
pub struct GraphSource {
    /// An edge list or a Matrix Market file.
    #[arg(long, value_name = "FILE", required_unless_present = "make")]
    edges: Option<PathBuf>,
    /// Make a graph instead of reading one.
    #[arg(long, value_enum, conflicts_with = "edges")]
    make: Option<Kind>,
    /// Number of vertices to make.
    #[arg(long, default_value_t = 100_000)]
    vertices: u32,
    /// The seed of a graph that is made.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl GraphSource {
    /// The graph that is read or made.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        match (&self.edges, self.make) {
            (Some(path), _) => read_graph(path),
            // Without either, the arguments would have been refused.
            (None, kind) => kind.unwrap_or(Kind::Delaunay).make(self.vertices, self.seed),
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Kind {
    /// A Delaunay triangulation of random points.
    Delaunay,
    /// A road network.
    Road,
    /// A random geometric graph.
    Geometric,
    /// The events of a message race.
    MessageRace,
    /// The events of an exchange on an unstructured mesh.
    UnstructuredMesh,
}

impl Kind {
    pub fn make(self, vertices: u32, seed: u64) -> Result<Graph, GraphError> {
        match self {
            Kind::Delaunay => make::delaunay(vertices, seed),
            Kind::Road => make::road(vertices, seed),
            Kind::Geometric => make::geometric(vertices, 6.0, seed),
            Kind::MessageRace => make::message_race(vertices, seed),
            Kind::UnstructuredMesh => make::unstructured_mesh(vertices, seed),
        }
    }
}

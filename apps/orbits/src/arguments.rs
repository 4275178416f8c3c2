//! The arguments that both programs have, and the files that they write.

use clap::{Args, ValueEnum};
use orbits::{Counter, Counts, Graph, GraphError, Permutation, gorder, make, read_graph};
use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

pub type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Args)]
pub struct GraphArguments {
    /// An edge list or a Matrix Market file.
    #[arg(long, value_name = "FILE", required_unless_present = "make")]
    edges: Option<PathBuf>,
    /// Make a graph instead of reading one.
    #[arg(long, value_enum, conflicts_with = "edges")]
    make: Option<Kind>,
    /// How many vertices to make.
    #[arg(long, default_value_t = 100_000)]
    vertices: u32,
    /// The seed of a graph that is made.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Order the vertices for locality first (Gorder); results keep the order of the input.
    #[arg(long)]
    reorder: bool,
}

impl GraphArguments {
    /// The graph in the order in which it is counted, and that order.
    pub fn graph(&self) -> Result<(Graph, Permutation), GraphError> {
        let graph = match (&self.edges, self.make) {
            (Some(path), _) => read_graph(path)?,
            // Without either, the arguments would have been refused.
            (None, kind) => kind.unwrap_or(Kind::Delaunay).make(self.vertices, self.seed)?,
        };
        let order = match self.reorder {
            true => gorder(&graph),
            false => Permutation::identity(graph.vertices()),
        };
        Ok((graph.relabel(&order)?, order))
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

#[derive(Clone, Copy, ValueEnum)]
pub enum Width {
    U32,
    U64,
}

pub fn create(path: &Path) -> Outcome<BufWriter<std::fs::File>> {
    let file = std::fs::File::create(path)
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(BufWriter::new(file))
}

pub fn write_counts<T: Counter>(
    counts: &Counts<T>,
    order: &Permutation,
    path: &Path,
) -> Outcome<()> {
    let mut file = create(path)?;
    for vertex in 0..order.len() {
        let row = counts.row(order.label(vertex)).iter();
        let row: Vec<String> = row.map(|count| (*count).into().to_string()).collect();
        writeln!(file, "{}", row.join(" "))?;
    }
    Ok(file.flush()?)
}

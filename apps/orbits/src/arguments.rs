//! The arguments that both programs that count have, and the files that they write.

use crate::graph_source::GraphSource;
use clap::{Args, ValueEnum};
use orbits::{Counter, Counts, Graph, GraphError, Permutation, gorder};
use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::Path;

pub type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Args)]
pub struct GraphArguments {
    #[command(flatten)]
    source: GraphSource,
    /// Order the vertices for locality first (Gorder); results keep the order of the input.
    #[arg(long)]
    reorder: bool,
}

impl GraphArguments {
    /// The graph in the order in which it is counted, and that order.
    pub fn graph(&self) -> Result<(Graph, Permutation), GraphError> {
        let graph = self.source.graph()?;
        let order = match self.reorder {
            true => gorder(&graph),
            false => Permutation::identity(graph.vertices()),
        };
        Ok((graph.relabel(&order)?, order))
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

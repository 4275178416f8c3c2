//! One rank's end of PageRank: the edges and the scores of its vertices.

use super::borders::{Division, Rows, edge, ends};
use crate::Graph;
use crate::ranks::garbled;
use std::ops::Range;
use treering::{Comm, Error, Rank, Reduction, Result, Variable, VariableMut, redistribute};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The fixed-point value of 1: scores add up to 1, and changes of them to 2 at most.
const ONE: f64 = (1u64 << 61) as f64;

/// Parameters of PageRank. All must stay the same over a restart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageRankSettings {
    /// The part of a score that is given to neighbours. Default: 0.85.
    pub damping: f64,
    /// The end: scores change by less than this, all together, in an iteration. 0: go on to the last iteration.
    /// Default: 1e-10.
    pub tolerance: f64,
    /// The last iteration at the latest. Default: 1000.
    pub iterations: u64,
}

impl Default for PageRankSettings {
    fn default() -> Self {
        PageRankSettings { damping: 0.85, tolerance: 1e-10, iterations: 1000 }
    }
}

impl PageRankSettings {
    /// Refuses parameters that cannot be computed with.
    pub fn check(&self) -> Result<()> {
        if !(0.0..1.0).contains(&self.damping) {
            let damping = self.damping;
            return Err(Error::usage(format!(
                "invalid damping {damping}: expected a number from 0 to below 1"
            )));
        }
        match self.tolerance >= 0.0 {
            true => Ok(()),
            false => Err(Error::usage(format!(
                "invalid tolerance {}: expected 0 or more",
                self.tolerance
            ))),
        }
    }
}

/// A rank's end of PageRank. The calls that take a communicator are collective.
pub struct PageRank {
    settings: PageRankSettings,
    /// The number of vertices and the fingerprint of the graph; none before a graph is taken or restored.
    graph: Vec<u64>,
    rank: Rank,
    /// Edges in both directions: those of own vertices, or some of all vertices after a restore.
    edges: Vec<u64>,
    scores: Vec<f64>,
    /// The change of all scores in the last iteration; infinite before the first.
    change: Vec<f64>,
    own: Range<u32>,
    rows: Rows,
    /// Own contributions, and those of other ranks behind them.
    contributions: Vec<f64>,
}

impl PageRank {
    /// A rank's end without a graph.
    pub fn new(settings: PageRankSettings) -> PageRank {
        PageRank {
            settings,
            graph: Vec::new(),
            rank: Rank(0),
            edges: Vec::new(),
            scores: Vec::new(),
            change: Vec::new(),
            own: 0..0,
            rows: Rows::default(),
            contributions: Vec::new(),
        }
    }

    /// Begins with a graph, which is the same on all ranks; equal scores of all vertices.
    pub fn begin(&mut self, graph: &Graph, comm: &dyn Comm) -> Result<()> {
        let vertices = graph.vertices();
        let own = Division { vertices, ranks: comm.size() }.of(comm.rank());
        let of = |v: u32| graph.neighbours(v).iter().map(move |u| edge(v, *u));
        self.edges = own.clone().flat_map(of).collect();
        self.scores = vec![1.0 / f64::from(vertices); own.len()];
        self.change = vec![f64::INFINITY];
        self.graph = fingerprint(graph);
        self.settle(comm)
    }

    /// Forgets the graph and the scores.
    pub fn clear(&mut self) {
        (self.graph, self.edges, self.own) = (Vec::new(), Vec::new(), 0..0);
        (self.scores, self.change, self.rows) = (Vec::new(), Vec::new(), Rows::default());
    }

    /// The state: rows of global arrays, and numbers that are the same on all ranks.
    pub fn variables(&self) -> Vec<Variable<'_>> {
        vec![
            Variable::new("edges", &self.edges).rows(),
            Variable::new("scores", &self.scores).rows(),
            Variable::new("change", &self.change).same(),
            Variable::new("graph", &self.graph).same(),
        ]
    }

    /// The arrays of the state, to be filled; [`PageRank::settle`] must follow.
    pub fn variables_mut(&mut self) -> Vec<VariableMut<'_>> {
        vec![
            VariableMut::growing("edges", &mut self.edges),
            VariableMut::growing("scores", &mut self.scores),
            VariableMut::growing("change", &mut self.change),
            VariableMut::growing("graph", &mut self.graph),
        ]
    }

    /// Checks the settings, brings every edge to the rank that owns its vertex, and prepares to iterate.
    pub fn settle(&mut self, comm: &dyn Comm) -> Result<()> {
        self.settings.check()?;
        let vertices = self.graph.first().and_then(|vertices| u32::try_from(*vertices).ok());
        let vertices = vertices.ok_or_else(garbled)?;
        let division = Division { vertices, ranks: comm.size() };
        let owners: Vec<Rank> =
            self.edges.iter().map(|edge| division.owner(ends(*edge).0)).collect();
        let edges = &mut [VariableMut::growing("edges", &mut self.edges)];
        redistribute(comm, &owners, edges)?;
        (self.rank, self.own) = (comm.rank(), division.of(comm.rank()));
        self.rows = Rows::new(division, self.rank, &self.edges)?;
        match self.scores.len() == self.own.len() && self.change.len() == 1 {
            true => Ok(()),
            false => Err(garbled()),
        }
    }

    /// Whether the scores have changed by less than the tolerance; the same on all ranks.
    pub fn is_settled(&self) -> bool {
        self.change() < self.settings.tolerance
    }

    /// The change of all scores in the last iteration; infinite before the first.
    pub fn change(&self) -> f64 {
        self.change.first().copied().unwrap_or(f64::INFINITY)
    }

    /// The parameters.
    pub fn settings(&self) -> &PageRankSettings {
        &self.settings
    }

    /// The vertices of this rank, and their scores.
    pub fn scores(&self) -> (Range<u32>, &[f64]) {
        (self.own.clone(), &self.scores)
    }

    /// Whether the scores are those of a graph; the same on all ranks.
    pub fn is_of(&self, graph: &Graph) -> bool {
        self.graph == fingerprint(graph)
    }

    /// One iteration.
    pub fn iterate(&mut self, comm: &dyn Comm) -> Result<()> {
        let PageRank { rows, scores, contributions, .. } = self;
        let idle = scores.iter().enumerate().filter(|(row, _)| rows.degree(*row) == 0);
        let idle = total(comm, idle.map(|(_, score)| *score))?;
        contributions.clear();
        contributions.extend(scores.iter().enumerate().map(|(row, score)| {
            // A vertex without neighbours gives to nobody.
            score / rows.degree(row).max(1) as f64
        }));
        rows.exchange(comm, contributions)?;
        let (damping, vertices) = (self.settings.damping, self.graph[0] as f64);
        let share = (1.0 - damping + damping * idle) / vertices;
        let changes = scores.iter_mut().enumerate().map(|(row, score)| {
            let given = rows.sources(row).iter().map(|at| contributions[*at as usize]);
            let new = share + damping * given.fold(0.0, |sum, given| sum + given);
            let change = (new - *score).abs();
            *score = new;
            change
        });
        let change = changes.fold(0u64, |sum, change| sum.wrapping_add(fixed(change)));
        self.change = vec![reduced(comm, change)?];
        Ok(())
    }

    /// The sum of all scores.
    pub fn sum(&self, comm: &dyn Comm) -> Result<f64> {
        total(comm, self.scores.iter().copied())
    }

    /// A digest of the edges and the scores that does not depend on how they are divided.
    pub fn digest(&self, comm: &dyn Comm) -> Result<u64> {
        let edges = self.edges.iter().map(|edge| xxh3_64_with_seed(&edge.to_le_bytes(), 1));
        let scores = (self.own.start..)
            .zip(&self.scores)
            .map(|(vertex, score)| xxh3_64_with_seed(&score.to_le_bytes(), 2 + u64::from(vertex)));
        let mut sum = [edges.chain(scores).fold(0, u64::wrapping_add)];
        comm.reduce(Reduction::Sum, &mut sum)?;
        Ok(xxh3_64_with_seed(&self.change().to_le_bytes(), sum[0]))
    }

    /// The scores of all vertices on rank 0; nothing elsewhere.
    pub fn gather(&self, comm: &dyn Comm) -> Result<Option<Vec<f64>>> {
        let own: Vec<u8> = self.scores.iter().flat_map(|score| score.to_le_bytes()).collect();
        let parts = comm.gather(Rank(0), &own)?;
        let parts = parts.iter().flat_map(|part| part.as_chunks::<8>().0);
        let all: Vec<f64> = parts.map(|bytes| f64::from_le_bytes(*bytes)).collect();
        Ok((comm.rank() == Rank(0)).then_some(all))
    }
}

/// The number of vertices of a graph, and a digest of its edges.
fn fingerprint(graph: &Graph) -> Vec<u64> {
    let [low, high] = graph.fingerprint();
    vec![graph.vertices().into(), low, high]
}

/// A value as a fixed-point number.
fn fixed(value: f64) -> u64 {
    (value * ONE).round() as u64
}

/// The sum of the fixed-point sums of all ranks.
fn reduced(comm: &dyn Comm, own: u64) -> Result<f64> {
    let mut sum = [own];
    comm.reduce(Reduction::Sum, &mut sum)?;
    Ok(sum[0] as f64 / ONE)
}

/// The sum of the values of all ranks, in any order.
fn total(comm: &dyn Comm, values: impl Iterator<Item = f64>) -> Result<f64> {
    reduced(comm, values.fold(0, |sum: u64, value| sum.wrapping_add(fixed(value))))
}

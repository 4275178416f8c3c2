//! PageRank (Brin and Page 1998) of the vertices of a graph, on several ranks.
//!
//! Each rank has an even share of the vertices: their edges and their scores. In an iteration every vertex divides its
//! score evenly among its neighbours, and gets (1 − d)/n + d · (what its neighbours give + an even share of the scores
//! of vertices without neighbours). Ranks exchange what crosses their borders. The graph is undirected, so a rank knows
//! from its own edges what the others need, and what they will send.
//!
//! The state that is saved is a global array of edges, each in both directions, and one of scores. Nothing of it depends
//! on the number of ranks: [`PageRank::settle`] brings restored edges to the ranks that own them.
//!
//! The law: the scores after an iteration are a function of the graph, the damping and the iteration alone, bit for bit.
//! Contributions to a vertex are added in the order of its neighbours; sums over all vertices are of fixed-point numbers.

mod borders;
mod scores;
mod surviving;

pub use scores::{PageRank, PageRankSettings};
pub use surviving::SurvivingPageRank;

//! Graphlet orbits and PageRank: what they count, restarts, ranks, and the deaths of some.

mod golden;
mod pagerank;
mod pagerank_deaths;
mod properties;
mod ranks;
mod restart;

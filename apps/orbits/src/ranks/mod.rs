//! The same count on several ranks.
//!
//! Every rank has the whole graph, which is small, and some rows of the table of counters, which is not: a box of it.
//! Roots are counted in batches, in the order of their numbers, and those of a batch are split evenly. A rank counts its
//! roots on the subgraph that they can reach, so that it never needs the whole table. The subgraphs that it finds reach
//! beyond its own rows; after each batch the ranks hand what they have counted to the owners of the rows, who add it up.
//!
//! The law: after a batch the table is a function of the graph and of the last root alone. Neither the number of ranks
//! nor that of threads counts, nor where a count was interrupted.

mod count;
mod run;
mod share;

pub use count::RankCount;
pub use run::{CountProgress, CountSchedule, count_on_ranks};
pub use share::share_graph;

use treering::{Error, ErrorKind};

pub(crate) fn garbled() -> Error {
    Error::new(ErrorKind::Mismatch, "a message of another rank is not understood")
        .hint("all ranks must use the same release of this program")
}

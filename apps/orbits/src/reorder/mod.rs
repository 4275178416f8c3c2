//! Renumbering of vertices, so that what is used together lies together.

mod gorder;
mod permutation;
mod unit_heap;

pub use gorder::gorder;
pub use permutation::Permutation;

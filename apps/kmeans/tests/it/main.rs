//! k-means: what it computes, on ranks, and when some of them die.

mod deaths;
mod ranks;

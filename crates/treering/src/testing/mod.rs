//! Conformance suites: what every implementation of a trait of this crate must do.
//!
//! A crate that implements one of the traits calls the suite in its own tests; the feature `testing`
//! makes this module public there. A suite panics with a sentence where an implementation fails.

mod side;

pub use side::{check_side, check_side_wrapper};

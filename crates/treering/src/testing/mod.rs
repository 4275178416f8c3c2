//! For tests of Treering, of crates that implement its traits, and of programs that use it (feature
//! `testing`): stores that fail, wait or lie, and conformance suites. A suite panics with a sentence where an
//! implementation fails.

mod hooked;
mod side;
mod store_suite;

pub use hooked::{Call, HookedStore, Locks};
pub use side::{check_side, check_side_wrapper};
pub use store_suite::store_suite;

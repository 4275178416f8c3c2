//! For tests of Treering, of crates that implement its traits, and of programs that use it (feature
//! `testing`): stores that fail, wait or lie, and conformance suites. A suite panics with a sentence where an
//! implementation fails.

mod codec_suite;
mod comm_suite;
mod hooked;
mod side;
mod source_suite;
mod store_suite;

pub use codec_suite::codec_suite;
pub use comm_suite::comm_suite;
pub use hooked::{Call, HookedStore, Locks};
pub use side::{check_side, check_side_wrapper};
pub use source_suite::source_suite;
pub use store_suite::store_suite;

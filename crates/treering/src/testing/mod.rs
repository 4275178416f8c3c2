//! For tests of Treering, of stores made elsewhere, and of programs that use it (feature `testing`).

mod hooked;
mod store_suite;

pub use hooked::{Call, HookedStore, Locks};
pub use store_suite::store_suite;

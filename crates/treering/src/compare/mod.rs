//! Finds where two states diverge beyond a bound.
//!
//! Three stages, each of which reads less than the next would: trees, then the sketches of chunks
//! whose leaves differ, then the values of what is still open. A variable without trees begins with
//! its values, read once from front to back; where most chunks mismatch, reading what lies between
//! them makes the third stage the same. Arrays in chunks that reach far are compared tile by tile. Without values (golden files, runs that kept trees only) the
//! first two stages give a third answer beside equal and different: undecided.
//!
//! The law: a difference beyond the bound is never missed, but for the odds in `merkle::bounded`; what
//! is reported was found by its values, or follows from the cells' law; and the answer does not depend
//! on the number of threads, nor on whether there were trees.

#[cfg(feature = "tools")]
mod ahead;
#[cfg(feature = "tools")]
mod boxes;
#[cfg(feature = "tools")]
mod contents;
#[cfg(feature = "tools")]
mod engine;
#[cfg(feature = "tools")]
mod fetch;
#[cfg(feature = "tools")]
mod in_order;
#[cfg(feature = "tools")]
mod judge;
#[cfg(feature = "tools")]
mod letters;
#[cfg(feature = "tools")]
mod list;
#[cfg(feature = "tools")]
mod outcome;
#[cfg(feature = "tools")]
mod pair;
#[cfg(feature = "tools")]
mod partners;
#[cfg(feature = "tools")]
mod quad;
#[cfg(feature = "tools")]
mod reorder;
mod settings;
#[cfg(feature = "tools")]
mod side;
#[cfg(feature = "tools")]
mod sides;
#[cfg(feature = "tools")]
mod strip;
#[cfg(feature = "tools")]
mod tally;
#[cfg(feature = "tools")]
mod tiles;
mod tree_settings;
#[cfg(feature = "tools")]
mod trees;
#[cfg(feature = "tools")]
mod unpack;
#[cfg(feature = "tools")]
mod view;
#[cfg(feature = "tools")]
mod walk;
#[cfg(feature = "tools")]
mod widen;

#[cfg(any(test, feature = "testing"))]
pub use crate::io::Reading;
#[cfg(feature = "tools")]
pub(crate) use engine::{NOT_IN_SHARE, compare_share};
#[cfg(feature = "tools")]
pub use engine::{Progress, compare};
#[cfg(any(test, feature = "testing"))]
pub use judge::Judge;
#[cfg(feature = "tools")]
pub use judge::{Number, Value};
#[cfg(feature = "tools")]
pub use list::DifferenceList;
#[cfg(feature = "tools")]
pub(crate) use outcome::Severity;
#[cfg(feature = "tools")]
pub use outcome::{
    Answer, ContentDifference, First, NotCompared, Outcome, Timings, Unmatched, ValueDifference,
    VariableOutcome,
};
pub use settings::CompareSettings;
pub(crate) use settings::matches;
#[cfg(feature = "tools")]
pub(crate) use settings::matches_variable;
#[cfg(feature = "tools")]
pub use side::{FileView, Side, SideEntry, Unread};
#[cfg(feature = "tools")]
pub(crate) use sides::is_tree_file;
#[cfg(feature = "tools")]
pub use sides::{FileSide, Golden, MemorySide, StoredSide, sidecar};
pub use tree_settings::TreeSettings;
pub(crate) use tree_settings::put_head;
#[cfg(feature = "tools")]
pub(crate) use trees::build as build_trees;
#[cfg(feature = "tools")]
pub use trees::{TreedSide, make_beside, record};

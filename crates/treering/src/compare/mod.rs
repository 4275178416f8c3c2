//! Where two states part, within a bound.
//!
//! Three stages, each of which reads less than the next would: trees, then the sketches of chunks
//! whose leaves differ, then the values of what is still open. A variable without trees begins with
//! its values, read once from front to back; where most chunks mismatch, reading what lies between
//! them makes the third stage the same. Without values (golden files, runs that kept trees only) the
//! first two stages give a third answer beside equal and different: undecided.
//!
//! The law: a difference beyond the bound is never missed, but for the odds in `merkle::bounded`; what
//! is reported was found by its values, or follows from the cells' law; and the answer does not depend
//! on the number of threads, nor on whether there were trees.

mod ahead;
mod boxes;
mod contents;
mod engine;
mod fetch;
mod in_order;
mod judge;
mod letters;
mod list;
mod outcome;
mod pair;
mod settings;
mod side;
mod sides;
mod strip;
mod tally;
mod trees;
mod walk;
mod widen;

#[cfg(any(test, feature = "testing"))]
pub use crate::io::Reading;
pub(crate) use engine::{NOT_IN_SHARE, compare_share};
pub use engine::{Progress, compare};
#[cfg(any(test, feature = "testing"))]
pub use judge::Judge;
pub use judge::{Number, Value};
pub use list::DifferenceList;
pub use outcome::{
    Answer, ContentDifference, First, NotCompared, Outcome, Timings, Unmatched, ValueDifference,
    VariableOutcome,
};
pub use settings::CompareSettings;
pub(crate) use settings::matches;
pub use side::{FileView, Side, SideEntry, Unread};
pub(crate) use sides::is_tree_file;
pub use sides::{FileSide, Golden, MemorySide, StoredSide, sidecar};
pub use trees::{TreeSettings, TreedSide, make_beside, record};
pub(crate) use trees::{build as build_trees, put_head};

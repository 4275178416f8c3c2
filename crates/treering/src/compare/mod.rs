//! Where two states part, within a bound.
mod judge;
mod tally;
pub use judge::{Judge, Number, Value};
pub use tally::{CLASSES, Classes, Comparer, Tally, class_of};

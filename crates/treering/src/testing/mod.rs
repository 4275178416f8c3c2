//! For tests of Treering, of crates that implement its traits, and of programs that use it (feature
//! `testing`): stores that fail, wait or lie, and conformance suites. A suite panics with a sentence where an
//! implementation fails.

mod codec_suite;
mod comm_suite;
mod hooked;
mod leaders;
mod letters;
mod partial;
mod side;
mod source_suite;
mod store_suite;

pub use codec_suite::codec_suite;
pub use comm_suite::comm_suite;
pub use hooked::{Call, HookedStore, Locks};
pub use leaders::{PlayedLeader, PlayedRun};
pub use letters::read_letters;
pub use partial::{PartialComm, PartialDeath};
pub use side::{check_side, check_side_wrapper};
pub use source_suite::source_suite;
pub use store_suite::store_suite;

// Rooms that fuzzers, benchmarks and oracles look into.
pub use crate::array::{GroupId, Rounding};
pub use crate::codec::{Chain, Codec, CodecStep, LorenzoGrid, Numbers, Reckoning, TableShape};
pub use crate::compare::{FileSide, Judge, MemorySide, Reading};
pub use crate::format::{
    Branch, BundleIndex, FileRecord, Footer, LogEntry, ParityHead, Seal, Skeleton, StageHead,
    TreeFile, TreeOrigin,
};
pub use crate::format::{TREE_FRONT, TREE_PREFIX, VariableEntry};
pub use crate::merkle::bounded::{Builder, Grid, Image, Leaf, MAX_PLANES, Recipe, Sketch, Verdict};
pub use crate::merkle::{Digest, digest};
pub use crate::points::{POINTS, PointHook, set_point_hook};
pub use crate::source::{Anatomy, Field, decode_chunk, name_of, open as open_file, take_apart};
pub use crate::store::{Disk, DiskFile, Fault, FaultStore, OsDisk, PowerCut, SimDisk, SimFault};

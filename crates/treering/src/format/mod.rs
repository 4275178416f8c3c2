//! Every byte on disk is written and read here; `docs/src/format.md` is the specification.
//!
//! Nine kinds of file: an *opening* (a writer has taken the run), a *manifest* (a checkpoint is
//! complete), a *branch* (some groups of a checkpoint of many), a *mark* (a number of the log without a checkpoint), a *pack* (the bytes of a delta, in
//! frames, and its section), a *bundle* (many of the others in one file), a *parity file* (what one node keeps for
//! others), a *tree file* (bounded trees) and a *skeleton* (what a foreign file is made of). All of them have a magic number, a version and a digest. Parsers take any bytes: a count is believed only as far as
//! the bytes behind it reach, so nothing is allocated that the input does not pay for.

mod branch;
mod bundle;
mod bytes;
mod delta;
mod file;
mod file_variable;
mod labels;
mod manifest;
mod names;
mod pack;
mod parity;
mod section;
mod skeleton;
mod stage;
mod tree;

pub use branch::{Branch, FAN};
pub(crate) use bundle::BUNDLE_TRAILER;
pub use bundle::{BundleIndex, BundledName, BundledObject};
pub(crate) use bytes::{Reader, Writer};
pub use file::{FILE_PREFIX, FileRecord, InSkeleton, check_file_name};
pub use file_variable::{FileOrigin, variable_name};
#[cfg(test)]
pub(crate) use manifest::PackRange;
pub use manifest::{BranchRef, Branches, Group, Groups};
pub use manifest::{LogEntry, Manifest, Mark, Opening, Origin, Stats};
pub use names::{BranchName, BundleName, Names, PackName, WriterId, check_run_name};
pub use pack::{Footer, Frame, PackExtent, RAW, Seal, VariableDelta};
pub(crate) use pack::{HEADER_BYTES, MAX_DEPTH, TRAILER_BYTES, header, parse_trailer};
pub(crate) use parity::{MOST_MEMBERS, PARITY_TRAILER};
pub use parity::{ParityHead, ParityMember, ParityName, ParityObject, Striping};

pub use section::{HIDDEN, VariableEntry};
pub(crate) use section::{parse_description, write_description};
pub(crate) use skeleton::MOST_INFLATED;
pub use skeleton::{Chunk, ChunkRecipe, Filter, MAX_CHUNK, Piece, Skeleton, Values};
pub use stage::StageHead;
pub(crate) use stage::{SmallStrip, SmallVariable};
pub use tree::{TREE_FRONT, TREE_PREFIX, TreeEntry, TreeFile, TreeOrigin};
pub(crate) use tree::{TREES_RUN, tree_name};

/// The version this release writes, and the newest it reads.
pub const VERSION: u16 = 1;

//! Compaction: many small files of closed epochs become a few bundles.
//!
//! A small checkpoint costs two files, its manifest and its pack; a bundle holds thousands of both as they
//! were, and costs two. Readers see through it (`store/bundled.rs`). The laws, none of which rests on a lock:
//!
//! - *What is never bundled*: openings. Every writer's next number in the last tier is where the next opening
//!   would stand, so a writer that has lost its run finds that opening by opening a file, and stops. The open
//!   epoch, strays, packs that no manifest names, and epochs that build on another run's packs stay files, too.
//! - *Order*: the bundle is written and made durable, read back, its sources are looked at once more, then its
//!   index is committed, which publishes it; only then do the sources go. A crash before the index leaves a
//!   bundle that nobody counts on, a crash after it leaves files that are in the bundle, too. Both are found by
//!   the next compaction, prune or opening.
//! - *Where an object is*: files come before bundles, and bundles before those of a later generation. A file goes
//!   only if a published bundle has it; a published bundle goes only when every object of it that is still
//!   needed is in a published bundle that its remover has written itself, of a later generation. So two
//!   compactions, or a compaction and a prune, can make copies of an object, and never remove both.
//! - *Each bundle holds all packs of its checkpoints*. If a checkpoint is pruned while a compaction copies it,
//!   the checkpoint may come back, but never without its packs; the next prune removes it again.
//! - *A bundle without an index* is removed only after a void index was committed in its place, so that its
//!   writer cannot publish it any more; and only if what is needed of it is elsewhere. A writer that has committed
//!   its index makes sure that its data is still there before it removes anything.
//! - *Bundles never change*. Prune takes entries back by removing an index, which needs no space; what else the
//!   bundle held has been copied into a new one before. Then all runs are asked which packs they name, and then
//!   the data goes.

mod auto;
mod bundler;
mod check;
mod plan;

pub(crate) use auto::{AutoCompact, UpkeepNotes};
pub(crate) use bundler::Bundler;
pub(crate) use plan::HeldBundle;
pub use plan::{CompactPlan, Compaction, PlannedBundle};

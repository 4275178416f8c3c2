//! Treering is a checkpointing library for simulations: it stores only what has changed since the last checkpoint,
//! restores any state bit for bit after a crash (arrays declared as global on any number of ranks), and reports where two
//! runs diverge.
//!
//! | to | use |
//! |---|---|
//! | checkpoint a program and restart it | [`Run`], [`Options`], [`Variable`], [`VariableMut`], [`Save`] |
//! | do so on several ranks | [`Options::ranks`], [`Comm`], [`ThreadRanks`], and the crate `treering-mpi` |
//! | survive the death of ranks | [`survive`], [`Options::replicas`], [`ReplicaStore`] |
//! | look at a store and tidy it | [`Library`], [`Checkpoint`], [`Slab`] |
//! | ingest and export files | [`Ingest`], [`Watcher`], [`export`], [`export_arrays`] |
//! | compare two results | [`compare()`], [`CompareSettings`], [`Outcome`], [`Golden`] |
//!
//! A program opens a [`Run`], hands named arrays to [`Run::checkpoint`], and on start asks [`Run::restore`] for the newest
//! complete step. It waits while changes are found and copied, and for nothing else.
//!
//! ```
//! use treering::{Options, Run, Variable, VariableMut};
//! # let folder = tempfile::tempdir().unwrap();
//! # let store = folder.path().join("store");
//! let mut heat = vec![0.0f64; 1000];
//! let mut run = Run::open(Options::directory(&store, "rod"))?;
//! let restored = run.restore(&mut [VariableMut::new("heat", &mut heat)])?;
//! let first = restored.map_or(0, |r| r.step + 1);
//! for step in first..10 {
//!     heat[step as usize] += 1.0; // the simulation
//!     run.checkpoint(step, &[Variable::new("heat", &heat)])?;
//! }
//! run.finish()?; // everything is durable now
//! # Ok::<(), treering::Error>(())
//! ```

#![cfg_attr(not(feature = "tools"), allow(dead_code, unused_imports))] // what only tools use

/// Items for one configuration, and others for all others. rustfmt finds the modules in macros of this name.
macro_rules! cfg_if {
    (if #[cfg($cfg:meta)] { $($item:item)* } else { $($other:item)* }) => {
        $(#[cfg($cfg)] $item)*
        $(#[cfg(not($cfg))] $other)*
    };
}

// On other platforms the crate is this sentence, and not one error for everything that they lack.
cfg_if! {
if #[cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))] {

// README and the chapters of the book that have Rust code: their examples are tests.

#[cfg(all(doctest, feature = "tools"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(all(doctest, feature = "tools"))]
#[doc = include_str!("../../../docs/src/getting-started.md")]
struct GettingStarted;

#[cfg(all(doctest, feature = "tools"))]
#[doc = include_str!("../../../docs/src/checkpointing.md")]
struct Checkpointing;

#[cfg(all(doctest, feature = "tools"))]
#[doc = include_str!("../../../docs/src/ranks.md")]
struct Ranks;

#[cfg(all(doctest, feature = "tools"))]
#[doc = include_str!("../../../docs/src/comparing.md")]
struct Comparing;

#[cfg(all(doctest, feature = "tools"))]
#[doc = include_str!("../../../docs/src/lossy.md")]
struct Lossy;

mod array;
mod capture;
mod codec;
mod comm;
mod compact;
mod compare;
mod crew;
mod error;
mod format;
#[cfg(feature = "tools")]
mod ingest;
mod io;
#[cfg(feature = "tools")]
mod library;
mod lineage;
mod log;
mod memory;
mod merkle;
mod pack;
mod points;
mod redundancy;
mod replica;
#[cfg(feature = "tools")]
mod report;
mod restore;
mod retention;
mod run;
mod save;
#[cfg(feature = "tools")]
mod source;
mod store;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
mod trace;
mod waiting;

// The public interface, and all of it. Modules are private; what tests, fuzzers and benchmarks need beyond
// this list is in `testing`.

// Programs.
pub use array::{Bound, DType, Description, Element, Order, Shape, Variable, VariableMut};
pub use array::{Ghosts, GlobalBox, Labels, Part};
pub use array::{Protected, RawArray};
pub use array::{Rank, Sequence, Step, VariableKey};
pub use codec::{Aim, Encoding};
pub use comm::{
    Alone, Comm, End, Mailbox, Message, MessageMemory, MessageRoom, Reduction, SimulatedDeaths,
    ThreadRanks,
};
pub use compact::{CompactPlan, Compaction, PlannedBundle};
pub use crew::{Crew, Pace, Recovery, Role, Steps, Survival, survive};
pub use error::{Error, ErrorKind, Result};
pub use lineage::{ChunkSize, Method};
pub use redundancy::Redundancy;
pub use replica::{
    GenerationInfo, GenerationNumber, LoadedBlocks, LoadedPiece, Probing, Remade, ReplicaMemory,
    ReplicaSettings, ReplicaStore, ReplicaTraffic, Scrubbed, StartRank, SubmitProgress, Survived,
};
#[cfg(feature = "tools")]
pub use replica::{LossPoint, LossReport, LossSettings, RemakeFigures, RemakeScale, loss};
pub use replica::{ReplicaCount, ReplicaOperation, ReplicaScale};
pub use restore::redistribute;
#[cfg(feature = "tools")]
pub use run::ReferenceReport;
pub use run::{Aggregation, AggregationReport, aggregate};
pub use run::{Due, Every, Options, Overload, Restored, Run};
pub use save::{Level, Save};

// Files of other programs.
pub use format::{FileOrigin, Manifest};
#[cfg(feature = "tools")]
pub use ingest::{ChosenFiles, FileRules, Ingest, IngestSettings, Merge, RankFile};
#[cfg(feature = "tools")]
pub use ingest::{WatchEvent, WatchSettings, WatchStop, Watcher, is_inside, rank_files};
#[cfg(feature = "tools")]
pub use source::{LeftOut, RawLayout, files as files_in};

// Tools: what a store holds.
#[cfg(feature = "tools")]
pub use library::export;
#[cfg(feature = "tools")]
pub use library::{ArrayExport, ArrayFormat, ExportedArray, ExportedArrays, export_arrays};
#[cfg(feature = "tools")]
pub use library::{
    CheckpointInfo, DrainPlan, DrainedPart, HeldSet, Holdings, Library, NotTakenApart, RunInfo,
    VariableInfo,
};
#[cfg(feature = "tools")]
pub use library::{CopiedRun, LabelTest, RemovedRun};
#[cfg(feature = "tools")]
pub use library::{Exported, Finding, Place, TreeInfo, VerifyReport};
#[cfg(feature = "tools")]
pub use library::{FileListing, ListedArray};
pub use restore::{Backwards, Checkpoint, Slab, State, StoredArray};
pub use retention::{Keep, PlannedStep, PrunePlan, StorePrunePlan};

// Stores.
pub use store::{Blob, DirectoryStore, Lock, MemoryStore, Put, Store, StoreItem};

// Comparison.
#[cfg(feature = "tools")]
pub use compare::{
    Answer, ContentDifference, First, NotCompared, Outcome, Timings, Unmatched, Value,
    ValueDifference,
};
#[cfg(feature = "tools")]
pub use compare::{CompareSettings, DifferenceList, VariableOutcome, compare};
#[cfg(feature = "tools")]
pub use compare::{FileView, Golden, Side, SideEntry, StoredSide, TreeSettings, TreedSide, Unread};
#[cfg(feature = "tools")]
pub use compare::{make_beside as make_trees_beside, record as record_golden, sidecar};
pub use format::TreeEntry;
pub use io::write_whole;
#[cfg(feature = "tools")]
pub use library::{open_side, open_side_following};
#[cfg(feature = "tools")]
pub use report::VariableSummary;

} else {

compile_error! {
    "treering works on Linux with 64-bit little-endian processors only: stored bytes are those of memory, and durable \
     files rest on what Linux promises of them"
}

}
}

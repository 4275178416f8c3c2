//! Treering keeps the states that a simulation passes through, as a tree keeps its years.
//!
//! A program opens a [`Run`], hands named arrays to [`Run::checkpoint`], and on start asks
//! [`Run::restore`] for the newest complete step. Only what is new is stored; the program waits for
//! hashing and copying that, and nothing else. Tools look at a store through a [`Library`].
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

// README and the chapters of the book that have Rust code: their examples are tests.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/getting-started.md")]
struct GettingStarted;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/checkpointing.md")]
struct Checkpointing;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/ranks.md")]
struct Ranks;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/comparing.md")]
struct Comparing;

#[cfg(doctest)]
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
mod ingest;
mod io;
mod library;
mod lineage;
mod log;
mod memory;
mod merkle;
mod pack;
mod points;
mod redundancy;
mod replica;
mod report;
mod restore;
mod run;
mod save;
mod source;
mod store;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;

// The public interface, and all of it. Modules are private; what tests, fuzzers and benchmarks need beyond
// this list is in `testing`.

// Programs.
pub use array::{Bound, DType, Description, Element, Order, Shape, Variable, VariableMut};
pub use array::{Ghosts, GlobalBox, Part};
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
pub use replica::{LossPoint, LossReport, LossSettings, loss};
pub use replica::{ReplicaCount, ReplicaOperation, ReplicaScale};
pub use restore::redistribute;
pub use run::{Aggregation, AggregationReport, aggregate};
pub use run::{Due, Every, Options, Overload, ReferenceReport, Restored, Run};
pub use save::{Level, Save};

// Files of other programs.
pub use format::Manifest;
pub use ingest::{ChosenFiles, FileRules, Ingest, IngestSettings, Merge, RankFile};
pub use ingest::{WatchEvent, WatchSettings, WatchStop, Watcher, is_inside, rank_files};
pub use source::{LeftOut, RawLayout, files as files_in};

// Tools: what a store holds.
pub use library::RemovedRun;
pub use library::export;
pub use library::{ArrayExport, ArrayFormat, ExportedArray, ExportedArrays, export_arrays};
pub use library::{
    CheckpointInfo, DrainPlan, DrainedPart, HeldSet, Holdings, Library, NotTakenApart, RunInfo,
    VariableInfo,
};
pub use library::{Exported, Finding, Keep, Place, PlannedStep, PrunePlan, TreeInfo, VerifyReport};
pub use restore::{Backwards, Checkpoint, Slab, State, StoredArray};

// Stores.
pub use store::{Blob, DirectoryStore, Lock, MemoryStore, Put, Store, StoreItem};

// Comparison.
pub use compare::{
    Answer, ContentDifference, First, NotCompared, Outcome, Timings, Unmatched, Value,
    ValueDifference,
};
pub use compare::{CompareSettings, DifferenceList, VariableOutcome, compare};
pub use compare::{FileView, Golden, Side, SideEntry, StoredSide, TreeSettings, TreedSide, Unread};
pub use compare::{make_beside as make_trees_beside, record as record_golden, sidecar};
pub use format::TreeEntry;
pub use io::write_whole;
pub use library::open_side;

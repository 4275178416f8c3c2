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

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub mod array;
mod capture;
pub mod codec;
pub mod compare;
pub mod error;
pub mod format;
pub mod ingest;
pub mod io;
pub mod library;
pub mod lineage;
mod log;
mod memory;
pub mod merkle;
mod pack;
pub mod report;
pub mod restore;
pub mod run;
mod save;
pub mod source;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use array::{Bound, DType, Description, Element, Order, Shape, Variable, VariableMut};
pub use codec::{Aim, Encoding};
pub use error::{Error, ErrorKind, Result};
pub use ingest::{Ingest, IngestSettings, Merge, RankFile};
pub use library::Library;
pub use lineage::{ChunkSize, Method};
pub use restore::{Backwards, Checkpoint, State};
pub use run::{Options, Overload, ReferenceReport, Restored, Run};
pub use save::Save;

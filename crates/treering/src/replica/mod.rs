//! Replicas: copies of every block in the memory of several ranks, so that the survivors of deaths load what the dead
//! ones held and go on.
//!
//! ```text
//!  blocks 0..n ──► ranges ──► permutation ──► slots ──► r holders             permutation, topology, placement
//!                                                           │ deaths
//!                                                           ▼
//!                     survivors, and the ranks that take over lost copies     probing, after_deaths, comparison
//!                                                           │ more deaths than copies
//!                                                           ▼
//!                     probability of loss: exact, bounded, simulated          loss, loss_exact, loss_simulation,
//!                                                                             loss_report
//! ```
//!
//! Everything but the store is arithmetic on original ranks: all ranks compute the same without communication, for any
//! number of ranks, and tests need neither ranks nor bytes. The store ([`ReplicaStore`]) moves bytes as that tells it.
//!
//! The paper: Hübner, Hespe, Sanders and Stamatakis, "ReStore: In-Memory REplicated STORagE for Rapid Recovery in
//! Fault-Tolerant Algorithms" (2022).

mod after_deaths;
#[cfg(feature = "tools")]
mod comparison;
mod counts;
#[cfg(feature = "tools")]
mod loss;
#[cfg(feature = "tools")]
mod loss_exact;
#[cfg(feature = "tools")]
mod loss_report;
#[cfg(feature = "tools")]
mod loss_simulation;
mod permutation;
mod placement;
mod probing;
mod store;
mod topology;

#[cfg(feature = "tools")]
pub use comparison::{RemakeFigures, RemakeScale};
pub use counts::{ReplicaCount, ReplicaOperation, ReplicaScale};
#[cfg(feature = "tools")]
pub(crate) use loss_report::{LossCurve, LossMachine};
#[cfg(feature = "tools")]
pub use loss_report::{LossPoint, LossReport, LossSettings, loss};
pub use probing::Probing;
pub(crate) use store::HeldStreams;
pub use store::{
    GenerationInfo, GenerationNumber, LoadedBlocks, LoadedPiece, Remade, ReplicaMemory,
    ReplicaSettings, ReplicaStore, ReplicaTraffic, Scrubbed, StartRank, SubmitProgress, Survived,
};

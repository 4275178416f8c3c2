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
//! Everything here is arithmetic on original ranks: all ranks compute the same without communication, for any number
//! of ranks, and tests need neither ranks nor bytes.
//!
//! The paper: Hübner, Hespe, Sanders and Stamatakis, "ReStore: In-Memory REplicated STORagE for Rapid Recovery in
//! Fault-Tolerant Algorithms" (2022).

// The store of issue 14, part 1, makes lost copies again by this.
#[allow(dead_code)]
mod after_deaths;
// `bench replica` of issue 14, part 6, prints these figures.
#[allow(dead_code)]
mod comparison;
mod loss;
mod loss_exact;
mod loss_report;
mod loss_simulation;
// The store of issue 14, part 1, uses the rest of these four.
#[allow(dead_code)]
mod permutation;
#[allow(dead_code)]
mod placement;
#[allow(dead_code)]
mod probing;
#[allow(dead_code)]
mod topology;

pub(crate) use loss_report::{LossCurve, LossMachine};
pub use loss_report::{LossPoint, LossReport, LossSettings, loss};

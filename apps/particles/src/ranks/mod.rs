//! The same simulation on several ranks.
//!
//! The cube is cut into one slab for each rank along the first axis, and each rank has the particles
//! of its slab, in the order of their numbers. After a drift, particles that have left a slab are
//! handed over. The density of the mesh is summed over the ranks and solved on each of them; pairs
//! need the places of particles within the cutoff of a slab, which the ranks exchange.
//!
//! The law: the state after a step is a function of the settings and the step alone, bit for bit.
//! Neither the number of ranks nor that of threads counts, nor where a run was interrupted.

mod exchange;
mod run;
mod simulation;
mod slabs;
mod surviving;

pub use run::{RankObserver, RankPhase, RankProgress, RankSchedule, run_on_ranks};
pub use simulation::{OwnParticles, RankSimulation};
pub use surviving::SurvivingSimulation;

//! Retention: what to keep is computed first, as a plan, and carried out afterwards; by a tool, or behind a program.
//!
//! Only the last tier counts: a checkpoint that is on a node alone is neither kept for the user's number nor
//! removed. Always kept: the newest checkpoint, a checkpoint of a second epoch (one bad frame can spoil all
//! checkpoints of an epoch), and, if the newest kept one cannot be restored, the newest that can.
//!
//! Nothing here rests on a lock. A writer that is at work, here or on another machine, builds on a
//! checkpoint of the newest epoch; so every pack of that epoch stays: a manifest of it is removed only if the
//! newest manifest names all its packs. A pack that no manifest names may be part of a save or a move that is under
//! way; it goes only if it is older than all packs of the newest manifest, whose epoch is the only one that is gone on
//! with (the next opening of the run removes what a crash has left). Manifests go first, durably; then all runs are
//! asked again which packs they name. Branches go with their manifests.

mod behind;
mod plan;
mod pruner;
mod store_plan;

pub(crate) use behind::Retention;
pub use plan::{Keep, PlannedStep, PrunePlan};
pub(crate) use plan::{Rule, Sound};
pub(crate) use pruner::Pruner;
pub use store_plan::StorePrunePlan;

use std::time::Duration;

/// The lock that keeps those apart who remove packs and those who begin to share them.
pub(crate) const LOCK: &str = "lock";

/// The time for which tools wait for each other.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

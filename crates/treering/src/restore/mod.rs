//! Giving states back: plan, fetch, verify, fill.
//!
//! A checkpoint is loaded by reading its manifest and the footers of its epoch's packs, each one
//! vouched for by the seal in the next. A plan says which bytes of which frames go where; it is
//! sorted by file and offset, read in parallel, and every frame is checked before a byte of it is
//! used. A bad copy is reported and the next tier serves. The chunks of a whole variable are hashed as
//! they are put in their places; its tree is built again and its root compared with the manifest's:
//! that also catches mistakes in places and plans, not only in bytes.

mod backwards;
mod boxes;
mod checkpoint;
mod delivery;
mod exchange;
mod fetch;
mod footers;
mod handles;
mod nearby;
mod plan;
mod previous;
mod redistribute;
mod slab;
mod target;

pub use backwards::{Backwards, State};
pub(crate) use boxes::ArraySources;
pub use checkpoint::Checkpoint;
pub(crate) use checkpoint::{RestoredVariable, VariableBlob};
pub(crate) use delivery::{HeldVariable, readers};
pub(crate) use exchange::{HeldCheckpoint, HeldState, fill_together, share_all};
pub(crate) use fetch::{Pack, check_frames, read_footer, read_sealed};
pub(crate) use footers::KnownFooters;
pub(crate) use handles::first_good;
pub(crate) use nearby::{NearGroup, NodeView, near_readers};
pub(crate) use previous::Previous;
pub use redistribute::redistribute;
pub use slab::{Slab, StoredArray};

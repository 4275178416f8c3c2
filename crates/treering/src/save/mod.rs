//! The one writer: from batches of changed chunks to a checkpoint that exists.
//!
//! ```text
//!  votes ──► decide ──► GroupWriter: batches in, sealed pack out ──► LogWriter: manifest ──► Mover ──► next tier
//!            (Epoch)    one for each group of ranks                  first tier              one for each edge
//! ```
//! With aggregators the ranks that compute hand batches over as they are, and a rank of their node is the writer.
//! Arrays of a program ([`Saver`]) and files ([`Ingest`](crate::Ingest)) are two feeds of it. A save that
//! fails is reported through its [`Save`] and the list of failures; saves that build on it fail with it, and
//! the next checkpoint begins a new epoch, which needs nothing of what was lost.

mod aggregator;
mod ballot;
mod behind;
mod carrier;
mod epoch;
mod gather;
mod group;
mod handed;
mod handle;
mod image;
mod joint;
mod leftovers;
mod maker;
mod mover;
mod open;
mod publish;
mod recover;
mod roomy;
mod saver;
mod seats;
mod sections;
mod stage;
mod team;
mod tree;
mod watch;

pub(crate) use aggregator::{Aggregator, AggregatorLetter, Hander, ServedRun};
pub(crate) use ballot::{Agreed, Ballot, BallotVoting, Outcomes, Together};
pub(crate) use behind::HeldBytes;
pub(crate) use carrier::Carried;
pub(crate) use epoch::{Cadence, Decision, Epoch, Growth, Vote, decide, restore_cost};
pub(crate) use gather::{OnNodes, StagedPart, on_nodes};
pub(crate) use group::{GroupMember, GroupWriter, PackJob, SealedPack, draft};
pub(crate) use handle::{Awaited, Failures, SaveProgress, held};
pub use handle::{Level, Save};
pub(crate) use leftovers::{Leftovers, TakenOver};
pub(crate) use mover::PackPath;
pub(crate) use open::{
    Opened, RunLock, Succession, Ticket, announce, join, lock_run, open, open_locked, probe, random,
};
pub(crate) use publish::{Fence, LogWriter, with_branches};
pub(crate) use recover::{
    NodeParts, Recovered, bring_section, clean_packs, clean_sections, completed, rebuild_lost,
    recover, section_packs, what_waits,
};
pub(crate) use saver::{AggregatorTally, Saver, SaverRank, serve};
pub(crate) use seats::{GroupSeat, NodeRole, SeatWish, assign, roles, seat};
#[cfg(any(test, feature = "testing"))]
pub(crate) use sections::Sections;
pub(crate) use team::{Team, TeamBreaker, TeamMeeting};
#[cfg(any(test, feature = "testing"))]
pub(crate) use tree::GroupOf;
pub(crate) use watch::DeathWatch;

use crate::array::Rank;
use crate::codec::Encoding;
use crate::compact::Compaction;
use crate::lineage::{ChunkSize, Method};
use crate::store::{BundledStore, Store, TieredStore};
use std::sync::Arc;

/// The rank of this process and the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankOf {
    pub(crate) rank: Rank,
    pub(crate) ranks: u32,
}

/// Settings by which a run is written.
#[derive(Clone)]
pub(crate) struct WriterSettings {
    pub(crate) run: String,
    pub(crate) tiers: Tiers,
    pub(crate) chunk: ChunkSize,
    pub(crate) method: Method,
    pub(crate) encoding: Encoding,
    /// The memory for the record of stored chunks.
    pub(crate) record: u64,
    pub(crate) growth: Growth,
    /// When closed epochs are compacted, if ever.
    pub(crate) compaction: Option<Compaction>,
    /// The bytes of a rank that are packed side by side with those of others, whatever their variables are.
    pub(crate) together: u64,
}

/// The stores of a run: those in front, the nearest first, and the one that lasts.
#[derive(Clone)]
pub(crate) struct Tiers {
    pub(crate) near: Vec<Arc<dyn Store>>,
    pub(crate) last: Arc<dyn Store>,
}

impl Tiers {
    /// The tier that saves go to first.
    pub(crate) fn first(&self) -> &Arc<dyn Store> {
        self.near.first().unwrap_or(&self.last)
    }

    /// All tiers as one, for reading. Bundles are in the last tier only: the others are left by closed epochs.
    pub(crate) fn together(&self, last: BundledStore) -> Arc<dyn Store> {
        match self.near.is_empty() {
            true => Arc::new(last),
            false => Arc::new(TieredStore::new(self.near.clone(), Arc::new(last))),
        }
    }

    /// Each of them, the nearest first.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Store>> {
        self.near.iter().chain([&self.last]).cloned().collect()
    }
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.unwrap_or_default().as_millis() as u64
}

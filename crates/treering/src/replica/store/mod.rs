//! The replicated store: copies of every block in the memory of several ranks, over any `Comm`.
//!
//! Blocks of equal size have ids `0..n`, which do not depend on the number of ranks. A [`ReplicaStore::submit`] makes
//! a generation: every range of blocks goes to r ranks (see `placement`). A generation replaces the one before only
//! when it is complete and verified everywhere (see `knowledge`). After deaths the survivors shrink their
//! communicator, call [`ReplicaStore::go_on_with`], and load any blocks; what no survivor holds is named as lost.
//! [`ReplicaStore::remake`] makes lost copies again, [`ReplicaStore::scrub`] finds and repairs damaged ones.
//!
//! Laws: all calls but the plain questions are collective. A call that meets a death returns `Dead` or `Revoked`, and
//! the store stays usable. Every byte that a living rank holds intact comes back exactly; all others are named. Bad
//! use is the same error on all ranks.
//!
//! **Caution**: after an error of kind `Dead` or `Revoked`, revoke the communicator before shrinking it: other ranks
//! may not have noticed, and would wait.
//!
//! ReStore (Hübner et al., 2022); generations, changed ranges, asynchronous submits and checksums are added here.

mod changed;
mod checksum;
mod coming;
mod fetch;
mod gauge;
mod generation;
mod go_on;
mod knowledge;
mod link;
mod load;
mod named;
mod parcel;
mod remake;
mod scrub;
mod senders;
mod settings;
mod spares;
mod submit;
mod submit_mail;
#[cfg(test)]
mod tests;
mod variables;

pub use gauge::ReplicaMemory;
pub use generation::{GenerationInfo, GenerationNumber, StartRank};
pub use go_on::Survived;
pub use link::ReplicaTraffic;
pub use load::LoadedBlocks;
pub use named::LoadedPiece;
pub use remake::Remade;
pub use scrub::Scrubbed;
pub use settings::ReplicaSettings;
pub use submit::SubmitProgress;
pub(crate) use variables::HeldStreams;

// For counts of messages without a store.
pub(crate) use fetch::request_len;
pub(crate) use parcel::{head_len, is_packed};
pub(crate) use senders::SenderChoice;
pub(crate) use submit_mail::PARCEL;

use crate::comm::{Comm, garbled};
use crate::error::{Error, Result};
use crate::replica::placement::RangeId;
use crate::replica::topology::Topology;
use coming::Coming;
use gauge::{Gauge, Metered};
use generation::{Generation, HeldRanges, Roster, merged};
use knowledge::Knowledge;
use link::{CallOpened, CallOpening, Largest, Link, StoreCall};
use spares::Spares;
use std::ops::Range;
use std::sync::Arc;

/// Blocks with copies in the memory of several ranks: after deaths, the survivors load what the dead ones had.
///
/// **Waiting**: collective calls wait for all ranks, without a time limit. **Errors**: invalid arguments of one rank are the
/// same error on all of them, and nothing has changed. After an error of kind [`ErrorKind::Dead`](crate::ErrorKind::Dead) or
/// [`ErrorKind::Revoked`](crate::ErrorKind::Revoked) the newest generation that was complete is still held: revoke and
/// shrink the communicator, and call [`go_on_with`](ReplicaStore::go_on_with). Lost blocks are no error; the results name
/// them.
///
/// ```
/// use treering::{ReplicaSettings, ReplicaStore, ThreadRanks};
///
/// // Four ranks, here threads, keep three copies of each other's 64-byte blocks.
/// ThreadRanks::new(4).run(|comm| {
///     let own = u64::from(comm.rank().0);
///     let mut store = ReplicaStore::new(comm, 3, ReplicaSettings::default()).unwrap();
///     store.submit(7, &vec![own as u8; 6400], own * 100).unwrap();
///     // Any rank loads any blocks; after a death first `go_on_with(smaller)`, and `remake()` makes lost copies again.
///     let loaded = store.load(&[150..250]).unwrap();
///     assert!(loaded.lost.is_empty());
///     assert!(loaded.bytes[..3200] == [1; 3200] && loaded.bytes[3200..] == [2; 3200]);
/// });
/// ```
pub struct ReplicaStore {
    link: Link,
    roster: Roster,
    own: StartRank,
    settings: ReplicaSettings,
    copies: u32,
    /// Node and domain of every rank, by the numbers when the store was made.
    places: Vec<(String, String)>,
    /// The newest generation that this rank knows to be agreed.
    current: Option<Generation>,
    /// Generations before it that some rank may still need.
    older: Vec<Generation>,
    /// A generation that is complete here, but not known to be agreed.
    complete: Option<Generation>,
    /// Copies of the current generation that were made again, but are not known to count.
    remade: Option<HeldRanges>,
    /// An asynchronous submit under way, and its snapshot.
    coming: Option<(Coming, Arc<Vec<u8>>)>,
    /// The largest number of a generation so far.
    last_number: u64,
    /// Whether the next submit looks at all of what is constant.
    looks_again: bool,
    gauge: Arc<Gauge>,
    spares: Spares,
    /// Memory of serialised pieces that is used again.
    serialised: Option<(Vec<u8>, Metered)>,
}

impl ReplicaStore {
    /// An empty store of all ranks of a communicator that keeps `copies` copies of everything; collective.
    pub fn new(comm: Arc<dyn Comm>, copies: u32, settings: ReplicaSettings) -> Result<Self> {
        let (own, ranks) = (StartRank(comm.rank().0), comm.size());
        let mut link = Link::new(comm, ReplicaTraffic::default());
        let checked = settings.check(ranks, copies).map(|()| [0; 2]);
        let same = (settings.digest(copies), "the settings of the replica store");
        link.open(CallOpening { call: StoreCall::New, known: 0, same }, checked)?;
        let node = link.comm().node().as_bytes().to_vec();
        let nodes = link.gather_all(&node)?;
        let text = |node: Vec<u8>| String::from_utf8(node).map_err(|_| garbled());
        let nodes: Vec<String> = nodes.into_iter().map(text).collect::<Result<_>>()?;
        let domain = |(rank, node): (usize, String)| {
            let domain = settings.domains.get(rank).unwrap_or(&node).clone();
            (node, domain)
        };
        let places: Vec<(String, String)> = nodes.into_iter().enumerate().map(domain).collect();
        // Contradictory domains are found now, and on all ranks.
        Topology::named(places.iter().map(|(node, domain)| (&node[..], &domain[..])))?;
        let gauge = Arc::new(Gauge::default());
        Ok(ReplicaStore {
            link,
            roster: Roster { ranks: (0..ranks).map(StartRank).collect() },
            own,
            copies,
            places,
            current: None,
            older: Vec::new(),
            complete: None,
            remade: None,
            coming: None,
            last_number: 0,
            looks_again: false,
            spares: Spares::new(gauge.clone(), settings.piece),
            settings,
            gauge,
            serialised: None,
        })
    }

    /// The newest generation that counts, as far as this rank knows; not collective.
    pub fn newest(&self) -> Option<GenerationInfo> {
        self.current.as_ref().map(Generation::info)
    }

    /// The blocks among these that this rank has a copy of, in ascending order; not collective. Loading them sends no
    /// messages.
    pub fn held(&self, blocks: Range<u64>) -> Vec<Range<u64>> {
        let Some(generation) = &self.current else { return Vec::new() };
        let placement = generation.places.placement();
        let size = placement.layout().range_blocks;
        let ranges =
            (blocks.start / size..blocks.end.div_ceil(size).min(placement.ranges())).map(RangeId);
        let held = ranges.filter(|range| generation.held.contains_key(range));
        let inside = |range| {
            let whole = placement.blocks_of(range);
            whole.start.max(blocks.start)..whole.end.min(blocks.end)
        };
        merged(held.map(inside).collect())
    }

    /// The members of the communicator, by the numbers that they had when the store was made; not collective.
    pub fn members(&self) -> &[StartRank] {
        &self.roster.ranks
    }

    /// Messages and bytes of this rank so far; not collective.
    pub fn traffic(&self) -> ReplicaTraffic {
        self.link.traffic
    }

    /// Memory of this rank; not collective.
    pub fn memory(&self) -> ReplicaMemory {
        let steady = self.current.as_ref().map_or(0, |generation| {
            let info = generation.info();
            let bytes = info.blocks * generation.block_size * u64::from(info.copies);
            bytes.div_ceil(info.members.len().max(1) as u64)
        });
        ReplicaMemory {
            now: self.gauge.now(),
            spare: self.spares.bytes(),
            peak: self.gauge.peak(),
            paper_steady: steady,
            paper_peak: 2 * steady,
        }
    }

    /// Tells all ranks what this one knows, so that memory of replaced generations is freed; collective. Every other
    /// collective call does so, too.
    pub fn settle(&mut self) -> Result<()> {
        self.open(StoreCall::Settle, (0, ""), Ok([0; 2])).map(|_| ())
    }

    fn knowledge(&self) -> Knowledge {
        self.current.as_ref().map_or_else(Knowledge::default, |generation| Knowledge {
            agreed: generation.number.0,
            remakes: generation.remakes,
        })
    }

    /// Opens a collective call, and frees what nobody needs any more.
    fn open(
        &mut self,
        call: StoreCall,
        same: (u64, &'static str),
        own: Result<Largest>,
    ) -> Result<CallOpened> {
        let known = self.knowledge();
        let opened = self.link.open(CallOpening { call, known: known.agreed, same }, own)?;
        self.free_known(known, opened.oldest_known);
        Ok(opened)
    }

    fn free_known(&mut self, known: Knowledge, oldest_known: u64) {
        if knowledge::all_know(known, oldest_known) {
            for generation in std::mem::take(&mut self.older) {
                generation.free(&mut self.spares);
            }
        }
    }

    /// The current generation, or the error of a call that needs one.
    fn submitted(&self) -> Result<&Generation> {
        self.current.as_ref().ok_or_else(|| {
            Error::usage("nothing has been submitted to the replica store")
                .hint("submit blocks before loading, changing or remaking them")
        })
    }
}

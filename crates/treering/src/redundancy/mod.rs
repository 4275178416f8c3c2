//! Redundancy between nodes: what is only in the stores of nodes survives the loss of a node.
//!
//! ```text
//!  nodes, domains ──► place ──► protect: strings of objects ──► lanes ──XOR──► parity files on other nodes
//!                     (pure)                                                            │
//!                     stores that are left ──► survey ──► plan (pure) ──► rebuild ◄─────┘
//! ```
//! A node's new objects are regarded as one string of bytes. With [`Redundancy::Partner`] another node keeps a copy of it;
//! with [`Redundancy::Xor`] the nodes of a set keep the parity of each other's strings, as in RAID 5, so that a set of k
//! nodes keeps 1/(k−1) of its longest string on each of them. These are the schemes PARTNER and XOR of SCR (Moody et al.,
//! "Design, Modeling, and Evaluation of a Scalable Multi-level Checkpointing System", SC 2010). Unlike there, the unit is
//! the object of a store and not the process: any number of ranks on other nodes, in any order, can rebuild.
//!
//! The law: a parity file appears whole or not at all, and describes all that it was made of, so that whatever is left
//! after deaths in the middle is either of use or never looked at. A rebuilt object is checked against the digest that
//! was computed when it was protected, before it appears. Parts that cannot be rebuilt are named, with the reason.
//!
//! All traffic is on the thread of the program, in pieces of bounded size, by one rank of each node.

mod census;
mod nodes;
mod placement;
mod plan;
mod protect;
mod rebuild;
mod strings;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
pub(crate) use nodes::NodeRanks;
pub(crate) use placement::{NodePlacement, place, spent};
#[cfg(test)]
pub(crate) use protect::ProtectedBytes;
pub(crate) use protect::{ProtectJob, protect};
pub(crate) use rebuild::{Rebuilt, rebuild};

/// Protection of checkpoints that are only in the stores of nodes against the loss of a node.
///
/// ```
/// use std::sync::Arc;
/// use treering::{DirectoryStore, Options, Redundancy};
/// # let folder = tempfile::tempdir().unwrap();
/// # let (store, node) = (folder.path().join("store"), folder.path().join("node"));
/// let options = Options::directory(&store, "rod") // with `Options::ranks` on several nodes
///     .node(Arc::new(DirectoryStore::new(&node)))
///     .shared_every(10)
///     .redundancy(Redundancy::Xor { set: 8 });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redundancy {
    /// No redundancy.
    #[default]
    None,
    /// Another node keeps a full copy.
    Partner,
    /// Nodes form sets of about this size and keep XOR parity of each other's data: a set survives the loss of one of its
    /// nodes. 8 is a common choice.
    Xor {
        /// The number of nodes of a set.
        set: u32,
    },
}

impl Redundancy {
    /// Refuses invalid settings.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Redundancy::Xor { set: 0 | 1 } => {
                Err(Error::usage("a set of nodes for XOR needs 2 nodes at least")
                    .hint("8 is a common choice"))
            }
            _ => Ok(()),
        }
    }
}

/// The bytes that a node hands over at a time.
pub(crate) const PIECE: u64 = 4 << 20;

//! Deaths of other ranks, as whoever waits for their work sees them.
//!
//! Only the program's thread looks: a worker does not communicate. The law: nobody waits for a rank that is known to
//! have died, and a death ends the work of its own group only. Other groups finish what they have begun, because a
//! checkpoint may lack nothing but their part.

use super::team::TeamBreaker;
use crate::array::Rank;
use crate::comm::{Comm, died};
use crate::error::Error;
use std::sync::Arc;

/// A look at the other ranks.
#[derive(Clone)]
pub(crate) struct DeathWatch {
    pub(crate) comm: Arc<dyn Comm>,
    /// The ranks of the own group, and the end of the work with them.
    pub(crate) members: Vec<Rank>,
    pub(crate) breaker: TeamBreaker,
}

impl DeathWatch {
    /// Ends the work of the group if a rank of it is known to have died. The error that names those who have died, in
    /// whatever group.
    pub(crate) fn look(&self) -> Option<Error> {
        let dead = self.comm.dead().unwrap_or_default();
        if dead.iter().any(|rank| self.members.contains(rank)) {
            self.breaker.break_up();
        }
        (!dead.is_empty()).then(|| died(&dead))
    }
}

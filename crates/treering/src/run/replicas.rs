//! The level of a run in the memory of its ranks ([`Options::replicas`](super::Options::replicas)).
//!
//! Every state is a generation of a [`ReplicaStore`]. Ranks that join later (spares) have no part in a store that was made
//! before: the next submit makes a store of all ranks, and the one before serves until a generation of the new one is
//! agreed. Stores are numbered, and survivors take the newest of which one of them knows such a generation: then all
//! ranks that made it hold it.
//!
//! Law: whether there is a generation, and which, is the same on all ranks and needs no file system.

use super::Options;
use super::ranks::RankSide;
use crate::array::{Rank, Variable};
use crate::comm::{Comm, Reduction, garbled};
use crate::error::{Error, Result};
use crate::replica::{HeldStreams, ReplicaSettings, ReplicaStore};
use crate::restore::share_all;
use std::sync::Arc;

/// The newest state in the memory of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryState {
    pub(super) step: u64,
    /// The newest checkpoint that it was submitted with, or after.
    pub(super) sequence: u64,
    /// The number of ranks that submitted it.
    ranks: u32,
}

struct NumberedStore {
    number: u64,
    store: ReplicaStore,
}

/// The states of a run in the memory of its ranks, as one of them sees them.
pub(super) struct ReplicaLevel {
    copies: u32,
    settings: ReplicaSettings,
    domain: Option<String>,
    current: Option<NumberedStore>,
    /// A store of which no generation is known to be agreed.
    next: Option<NumberedStore>,
    /// Whether all ranks are members of the current store.
    whole: bool,
}

/// Finds ranks that want other replicas than others, or other times for checkpoints; collective.
pub(super) fn agree_on(options: &Options, ranks: &RankSide) -> Result<()> {
    let wishes = [options.replica_settings.digest(options.replicas), options.due_digest()];
    let mut extremes = [wishes[0], !wishes[0], wishes[1], !wishes[1]];
    ranks.or_all_stop(ranks.comm().reduce(Reduction::Max, &mut extremes))?;
    let error = match extremes {
        [most, least, ..] if most != !least => Error::usage(
            "the ranks differ in the number or the settings of their replicas",
        )
        .hint("give Options::replicas and Options::replica_settings the same values on all ranks"),
        [.., most, least] if most != !least => {
            Error::usage("the ranks differ in when checkpoints are due")
                .hint("give Options::every, deadline and on_signals in the same way on all ranks")
        }
        _ => return Ok(()),
    };
    Err(if ranks.rank() == Rank(0) { error } else { error.repeated() })
}

impl ReplicaLevel {
    /// The level that options ask for.
    pub(super) fn of(options: &Options) -> Option<ReplicaLevel> {
        let (current, next) = (None, None);
        (options.replicas > 0).then(|| ReplicaLevel {
            copies: options.replicas,
            settings: options.replica_settings.clone(),
            domain: options.domain.clone(),
            current,
            next,
            whole: false,
        })
    }

    /// Submits the variables of this rank as the state of a step; collective. An error in their place is that of all
    /// ranks.
    pub(super) fn submit(
        &mut self,
        comm: &Arc<dyn Comm>,
        (step, sequence): (u64, u64),
        variables: Result<&[Variable]>,
    ) -> Result<()> {
        if !self.whole {
            self.make_store(comm)?;
        }
        let target = if self.whole { &mut self.current } else { &mut self.next };
        let Some(target) = target else { return Err(garbled()) };
        target.store.submit_labelled((step, sequence), variables)?;
        if let Some(next) = self.next.take() {
            (self.current, self.whole) = (Some(next), true);
        }
        Ok(())
    }

    /// Makes a store of all ranks; collective.
    fn make_store(&mut self, comm: &Arc<dyn Comm>) -> Result<()> {
        self.next = None;
        let mut number = [self.current.as_ref().map_or(0, |current| current.number)];
        comm.reduce(Reduction::Max, &mut number)?;
        let own = (self.domain.clone().unwrap_or_default(), comm.node().to_string());
        let all: Vec<(String, String)> = share_all(&**comm, &own)?;
        let mut settings = self.settings.clone();
        if all.iter().any(|(domain, _)| !domain.is_empty()) {
            let domain = |(domain, node): (String, String)| match domain.is_empty() {
                true => format!("node {node}"),
                false => domain,
            };
            settings.domains = all.into_iter().map(domain).collect();
        }
        let store = ReplicaStore::new(comm.clone(), self.copies, settings)?;
        self.next = Some(NumberedStore { number: number[0] + 1, store });
        Ok(())
    }

    /// Whether all ranks are members of the store that has the newest state.
    pub(super) fn is_whole(&self) -> bool {
        self.whole && self.current.is_some()
    }

    /// The arrays of this rank were filled by a restore.
    pub(super) fn restored(&mut self) {
        let stores = self.current.iter_mut().chain(&mut self.next);
        stores.for_each(|numbered| numbered.store.look_again());
    }

    /// Forgets all states; all ranks do so.
    pub(super) fn forget(&mut self) {
        (self.current, self.next, self.whole) = (None, None, false);
    }

    /// Goes on with other ranks; collective. Nothing is lost if it fails.
    pub(super) fn go_on(&mut self, comm: &Arc<dyn Comm>) -> Result<()> {
        let agreed = |store: &NumberedStore| store.store.newest().map_or(0, |_| store.number);
        let known = self.current.iter().chain(&self.next).map(agreed).max().unwrap_or(0);
        let mut number = [known];
        comm.reduce(Reduction::Max, &mut number)?;
        let is = |store: &NumberedStore| number[0] > 0 && store.number == number[0];
        let member = self.current.iter().chain(&self.next).any(is);
        let mut members = [u64::from(member)];
        comm.reduce(Reduction::Sum, &mut members)?;
        let veterans = comm.split(u32::from(!member), comm.rank().0)?;
        let mut stores = self.current.as_mut().into_iter().chain(&mut self.next);
        if let Some(store) = stores.find(|store| is(store)) {
            store.store.go_on_with(veterans)?;
        }
        self.current = self.current.take().filter(is).or(self.next.take().filter(is));
        self.next = None;
        self.whole = members[0] == u64::from(comm.size());
        Ok(())
    }

    /// The newest state that the ranks have in memory; collective.
    pub(super) fn newest(&self, comm: &dyn Comm) -> Result<Option<MemoryState>> {
        let own = self.current.as_ref().and_then(|current| {
            let (info, label) = (current.store.newest()?, current.store.label()?);
            Some([1, info.tag, label, info.members.len() as u64])
        });
        let mut numbers = own.unwrap_or_default();
        comm.reduce(Reduction::Max, &mut numbers)?;
        let [there, step, sequence, ranks] = numbers;
        Ok((there == 1).then_some(MemoryState { step, sequence, ranks: ranks as u32 }))
    }

    /// Loads this rank's share of the newest state; collective among those that have it. An error names what is lost.
    pub(super) fn load(&mut self, state: MemoryState) -> Result<HeldStreams> {
        match &mut self.current {
            Some(current) => current.store.hold_streams(),
            None => Ok(HeldStreams::nothing(state.ranks, state.step)),
        }
    }

    /// Makes lost copies again, if all ranks are members of the store; collective.
    pub(super) fn remake(&mut self) -> Result<()> {
        match &mut self.current {
            Some(current) if self.whole => current.store.remake().map(drop),
            _ => Ok(()),
        }
    }
}

//! Going on with the survivors.
//!
//! The ranks of the smaller communicator tell each other who they are and which generation they know to be agreed,
//! and all choose the same one (see `knowledge`); no file system is involved. Ranks that are missing count as dead
//! from then on, in every generation.
//!
//! Law: the call can be repeated: if it returns `Dead` or `Revoked`, nothing has changed here; shrink again and call it
//! again, even if other ranks have completed it.

use super::ReplicaStore;
use super::generation::{GenerationInfo, Roster, StartRank};
use super::knowledge::{Knowledge, newest};
use super::link::{CallOpening, Link, StoreCall};
use super::submit::numbers;
use crate::comm::Comm;
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// State of the store after deaths, the same on all survivors. Returned by [`ReplicaStore::go_on_with`], which has an
/// example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survived {
    /// The newest whole generation; `None` if none was ever complete.
    pub newest: Option<GenerationInfo>,
    /// The ranks that have died, by the numbers that they had when the store was made: those since the last time.
    pub dead: Vec<StartRank>,
}

impl ReplicaStore {
    /// Continues with the communicator that [`Comm::shrink`] returned; collective on it. A submit that was under way is
    /// given up, unless some survivor knows that it was completed.
    ///
    /// ```
    /// use treering::{Rank, ReplicaSettings, ReplicaStore, SimulatedDeaths, StartRank, ThreadRanks};
    /// let ends = ThreadRanks::new(3).run(|comm| -> treering::Result<()> {
    ///     let (deaths, comm) = SimulatedDeaths::on(comm); // in place of real ones
    ///     let own = u64::from(comm.rank().0);
    ///     let mut store = ReplicaStore::new(comm.clone(), 2, ReplicaSettings::default())?;
    ///     store.submit(7, &vec![own as u8; 6400], own * 100)?;
    ///     if deaths.kill(&[Rank(1)])? {
    ///         return Ok(()); // this rank counts as dead
    ///     }
    ///     let survived = store.go_on_with(comm.shrink()?)?;
    ///     assert_eq!((survived.newest.unwrap().tag, &survived.dead[..]), (7, &[StartRank(1)][..]));
    ///     assert_eq!(store.load(&[100..200])?.bytes, [1; 6400]); // what the dead rank had
    ///     let remade = store.remake()?; // from now on another death is survived
    ///     assert!(remade.lost.is_empty());
    ///     Ok(())
    /// });
    /// # ends.into_iter().for_each(|end| end.done().unwrap().unwrap());
    /// ```
    pub fn go_on_with(&mut self, smaller: Arc<dyn Comm>) -> Result<Survived> {
        let mut link = Link::new(smaller, self.link.traffic);
        let Knowledge { agreed, remakes } = self.knowledge();
        let own = [u64::from(self.own.0), agreed, remakes, self.last_number];
        let own: Vec<u8> = own.iter().flat_map(|n| n.to_le_bytes()).collect();
        let same = (self.settings.digest(self.copies), "the settings of the replica store");
        link.open(CallOpening { call: StoreCall::GoOn, known: agreed, same }, Ok([0; 2]))?;
        let all = link.gather_all(&own)?;
        let all: Vec<[u64; 4]> = all.iter().map(|bytes| numbers(bytes)).collect::<Result<_>>()?;
        let roster =
            Roster { ranks: all.iter().map(|[rank, ..]| StartRank(*rank as u32)).collect() };
        self.check_survivors(&roster)?;
        let known: Vec<Knowledge> = all
            .iter()
            .map(|[_, agreed, remakes, _]| Knowledge { agreed: *agreed, remakes: *remakes })
            .collect();
        let verdict = newest(&known);
        self.adopt(verdict)?;
        let gone = |rank: &StartRank| roster.rank_of(*rank).is_none();
        let dead = self.roster.ranks.iter().copied().filter(gone).collect();
        for generation in self.current.iter_mut().chain(&mut self.older) {
            generation.bury(&roster)?;
        }
        self.last_number = all.iter().map(|numbers| numbers[3]).max().unwrap_or(0);
        (self.link, self.roster) = (link, roster);
        (self.coming, self.complete, self.remade) = (None, None, None);
        Ok(Survived { newest: self.newest(), dead })
    }

    /// Refuses a communicator with ranks that were no members, or in another order.
    fn check_survivors(&self, roster: &Roster) -> Result<()> {
        let ordered = roster.ranks.windows(2).all(|pair| pair[0] < pair[1]);
        // A rank that has missed an earlier call knows more members, but the store was made by the same ranks.
        let known = roster.ranks.iter().all(|rank| (rank.0 as usize) < self.places.len());
        match ordered && known {
            true => Ok(()),
            false => Err(Error::usage(
                "the communicator has ranks that are not survivors of the store's",
            )
            .hint("give the communicator that shrinking the store's own returns")),
        }
    }

    /// Makes what counts the current state. Everything that counts is complete on every survivor.
    fn adopt(&mut self, verdict: Knowledge) -> Result<()> {
        let number = |generation: &super::Generation| generation.number.0;
        if verdict.agreed > self.knowledge().agreed {
            match self.complete.take().filter(|generation| number(generation) == verdict.agreed) {
                Some(generation) => self.older.extend(self.current.replace(generation)),
                None => return Err(missing("a generation")),
            }
        }
        if let Some(current) = self.current.as_mut().filter(|it| it.remakes < verdict.remakes) {
            match self.remade.take() {
                Some(copies) => current.remade(copies),
                None => return Err(missing("copies that were made again")),
            }
        }
        Ok(())
    }
}

fn missing(what: &str) -> Error {
    Error::new(
        ErrorKind::Lost,
        format!("this rank does not have {what} that another rank knows to be complete"),
    )
    .hint("this is a bug of treering: please report it")
}

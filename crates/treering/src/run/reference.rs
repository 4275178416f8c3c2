//! Comparison with another run while this one goes on.
//!
//! The log of the reference run is read once, when the run is opened, and again only when a step is not in
//! it: a run of thousands of checkpoints is not listed at every checkpoint. A comparison that fails is no
//! failed save; [`ReferenceReport`] tells what was compared and what was not.
//!
//! Of several ranks, each compares its own variables and its own boxes of global arrays, in whatever boxes the
//! reference has them. Then they join what they found in one vote, so that all of them have the same report. They
//! vote after every checkpoint, whatever they know already: votes are numbered.

use super::ranks::RankSide;
use super::share::{ReferenceShare, ShareBallot};
use crate::array::{Step, Variable};
use crate::compare::{
    Answer, CompareSettings, FileView, MemorySide, NotCompared, Outcome, Side, SideEntry,
    StoredSide, compare, compare_share,
};
use crate::error::{Error, ErrorKind, Result};
use crate::format::check_run_name;
use crate::log::Log;
use crate::save::RankOf;
use crate::store::{BundledStore, Store};
use std::collections::HashMap;
use std::sync::Arc;

/// The reference run, and how to compare with it.
#[derive(Clone)]
pub(crate) struct Reference {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) run: String,
    pub(crate) settings: CompareSettings,
}

impl Reference {
    pub(super) fn check(&self) -> Result<()> {
        check_run_name(&self.run)?;
        self.settings.check()
    }
}

/// Checkpoints that were compared with a reference run, and those that were not. Returned by
/// [`Run::reference_report`](crate::Run::reference_report), which has an example. With several ranks, it is the same
/// on all of them, except for [`Outcome::variables`] of the divergence, which are those of this rank.
#[derive(Clone, Debug, Default)]
pub struct ReferenceReport {
    /// Steps that were compared completely, in the order of their checkpoints.
    pub compared: Vec<u64>,
    /// Steps, or parts of them, that were not compared, with the reasons.
    pub not_compared: Vec<NotCompared>,
    /// The first checkpoint that differs from the reference beyond the bounds. Later checkpoints are
    /// not compared.
    pub divergence: Option<Outcome>,
    /// Number of checkpoints after the divergence, which were not compared.
    pub after_divergence: u64,
}

/// A run that is compared with its reference.
pub(super) struct ReferenceWatch {
    reference: Reference,
    /// The checkpoints of the reference; none as long as it has none.
    side: Option<StoredSide>,
    pub(super) report: ReferenceReport,
    /// The divergence that the ranks have found together.
    diverged: Option<ReferenceShare>,
}

impl ReferenceWatch {
    /// Looks for the reference run, which must exist.
    pub(super) fn open(reference: &Reference) -> Result<ReferenceWatch> {
        let store = Arc::new(BundledStore::new(reference.store.clone()));
        let log = Log::read(store, &reference.run)?;
        if log.sequences.is_empty() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("the reference run {:?} does not exist", reference.run),
            )
            .at(reference.store.name())
            .hint(
                "check its name, or open this run without a reference; `treering ls` lists runs",
            ));
        }
        let mut watch = ReferenceWatch {
            reference: reference.clone(),
            side: None,
            report: ReferenceReport::default(),
            diverged: None,
        };
        watch.refresh()?;
        Ok(watch)
    }

    fn refresh(&mut self) -> Result<()> {
        let Reference { store, run, .. } = &self.reference;
        self.side = match StoredSide::open(store.clone(), run, None) {
            Ok(side) => Some(side),
            // It was opened and has no checkpoint yet.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Compares arrays in memory with the reference's checkpoint of that step: by trees and sketches, and
    /// by values where these leave something open and the reference has kept them.
    pub(super) fn checkpoint(&mut self, step: u64, variables: &[Variable], trees: &[Variable]) {
        if self.report.divergence.is_some() {
            self.report.after_divergence += 1;
            return;
        }
        let outcome = match self.compare(step, variables, trees, None) {
            Ok(outcome) => outcome,
            Err(error) => return self.leave_out(step, error.to_string()),
        };
        let undecided: u64 = outcome.variables.iter().map(|v| v.undecided).sum();
        match outcome.verdict {
            Answer::Equal => self.report.compared.push(step),
            Answer::Different => {
                self.report.compared.push(step);
                self.report.divergence = Some(outcome);
            }
            Answer::Undecided if undecided > 0 => {
                let why = format!("{undecided} chunks could not be decided without values");
                self.leave_out(step, why);
            }
            Answer::Undecided => self.report.not_compared.extend(outcome.not_compared),
        }
    }

    /// Compares the share of this rank, and joins what all ranks have found. If this rank has nothing to
    /// compare, `captured` has the reason.
    pub(super) fn checkpoint_together(
        &mut self,
        step: u64,
        captured: Result<(&[Variable], &[Variable])>,
        ranks: &mut RankSide,
    ) {
        let own = ranks.own();
        let known = self.report.divergence.is_some();
        let found = match captured {
            _ if known => Ok((None, ReferenceShare::nothing(step))),
            Ok((variables, trees)) => {
                self.compare(step, variables, trees, Some(own)).map(|outcome| {
                    let share = ReferenceShare::of(step, &outcome, variables);
                    (Some(outcome), share)
                })
            }
            Err(error) => Err(error),
        };
        let (outcome, share) = found.unwrap_or_else(|error| {
            (None, ReferenceShare::failed(step, own.rank, error.to_string()))
        });
        match ranks.join_shares(&ShareBallot { share, known: self.diverged.clone() }) {
            Ok(joined) => self.settle(joined, outcome),
            Err(error) => self.leave_out(step, format!("the ranks did not agree: {error}")),
        }
    }

    /// Adds what all ranks have found together to the report.
    fn settle(&mut self, joined: ShareBallot, own: Option<Outcome>) {
        if self.report.divergence.is_some() {
            self.report.after_divergence += 1;
            return;
        }
        let (joined, own) = match joined.known {
            // This rank has missed the vote that found it.
            Some(known) => (known, None),
            None => (joined.share, own),
        };
        match joined.verdict() {
            Answer::Equal => self.report.compared.push(joined.step()),
            Answer::Undecided => self.report.not_compared.extend(joined.not_compared()),
            Answer::Different => {
                self.report.compared.push(joined.step());
                self.report.divergence = Some(joined.outcome(own, &self.reference.run));
                self.diverged = Some(joined);
            }
        }
    }

    fn leave_out(&mut self, step: u64, why: String) {
        let (step, rank, variable) = (Some(step), None, None);
        self.report.not_compared.push(NotCompared { step, rank, variable, why });
    }

    fn compare(
        &mut self,
        step: u64,
        variables: &[Variable],
        trees: &[Variable],
        of: Option<RankOf>,
    ) -> Result<Outcome> {
        let mut side = self.side.as_ref().and_then(|side| side.only(Step(step)));
        if side.is_none() {
            self.refresh()?;
            side = self.side.as_ref().and_then(|side| side.only(Step(step)));
        }
        let run = &self.reference.run;
        let side = side.ok_or_else(|| {
            let what = format!("the reference run {run:?} has no checkpoint of this step");
            Error::new(ErrorKind::NotFound, what)
        })?;
        let trees: Vec<&[u8]> = trees.iter().filter_map(|tree| tree.bytes.lent()).collect();
        let here = MemorySide::new(step, variables, &trees)?;
        let settings = &self.reference.settings;
        match of {
            None => compare(&here, &side, settings, None, &|_, _| {}),
            Some(own) => compare_share(&here.of_rank(own.rank), &RankShare { side, own }, settings),
        }
    }
}

/// The variables of a reference that concern one rank: its own, boxes of global arrays, those that only one rank
/// of the reference has, which may be a whole global array, and, for the first rank, those of ranks that this run
/// does not have.
struct RankShare {
    side: StoredSide,
    own: RankOf,
}

impl Side for RankShare {
    fn name(&self) -> String {
        self.side.name()
    }

    fn steps(&self) -> Result<Vec<Option<Step>>> {
        self.side.steps()
    }

    fn entries(&self, step: Option<Step>) -> Result<Vec<SideEntry<'_>>> {
        let mut entries = self.side.entries(step)?;
        let mut holders: HashMap<String, u32> = HashMap::new();
        for entry in &entries {
            *holders.entry(entry.description.name.clone()).or_default() += 1;
        }
        let RankOf { rank, ranks } = self.own;
        entries.retain(|entry| {
            entry.rank == rank
                || entry.description.part.is_some()
                || holders[&entry.description.name] == 1
                || rank.0 == 0 && entry.rank.0 >= ranks
        });
        Ok(entries)
    }

    fn files(&self, _: Option<Step>) -> Result<Vec<FileView>> {
        Ok(Vec::new())
    }

    fn unreadable(&self) -> u64 {
        self.side.unreadable()
    }

    fn notes(&self) -> Vec<String> {
        self.side.notes()
    }
}

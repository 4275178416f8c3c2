//! Comparison with another run while this one goes on.
//!
//! The log of the reference run is read once, when the run is opened, and again only when a step is not in
//! it: a run of thousands of checkpoints is not listed at every checkpoint. A comparison that fails is no
//! failed save; [`ReferenceReport`] tells what was compared and what was not.

use crate::array::{Step, Variable};
use crate::compare::{
    Answer, CompareSettings, MemorySide, NotCompared, Outcome, Side, StoredSide, compare,
};
use crate::error::{Error, ErrorKind, Result};
use crate::log::Log;
use crate::store::{BundledStore, Store};
use std::sync::Arc;

/// The reference run, and how to compare with it.
#[derive(Clone)]
pub(crate) struct Reference {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) run: String,
    pub(crate) settings: CompareSettings,
}

/// Checkpoints that were compared with a reference run, and those that were not.
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
        let outcome = match self.compare(step, variables, trees) {
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

    fn leave_out(&mut self, step: u64, why: String) {
        let (step, rank, variable) = (Some(step), None, None);
        self.report.not_compared.push(NotCompared { step, rank, variable, why });
    }

    fn compare(
        &mut self,
        step: u64,
        variables: &[Variable],
        trees: &[Variable],
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
        let trees: Vec<&[u8]> = trees.iter().map(|tree| tree.bytes).collect();
        let here = MemorySide::new(step, variables, &trees)?;
        let side: &dyn Side = &side;
        compare(&here, side, &self.reference.settings, None, &|_, _| {})
    }
}

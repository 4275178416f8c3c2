//! A run that this one is held against while it goes on.

use crate::array::Variable;
use crate::compare::{Answer, MemorySide, Outcome, Settings, StoredSide, compare};
use crate::error::Result;
use crate::store::Store;
use std::sync::Arc;

/// The run to be held against, and how.
#[derive(Clone)]
pub(crate) struct Reference {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) run: String,
    pub(crate) settings: Settings,
}

impl Reference {
    /// Compares arrays in memory with the reference's checkpoint of that step, if it has one: by
    /// trees and sketches, and by values where these leave something open and it has kept them.
    pub(super) fn compare(
        &self,
        step: u64,
        variables: &[Variable],
        trees: &[Variable],
    ) -> Result<Option<Outcome>> {
        let side = match StoredSide::open(self.store.clone(), &self.run, Some(step)) {
            Ok(side) => side,
            Err(error) if error.kind() == crate::error::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let trees: Vec<&[u8]> = trees.iter().map(|tree| tree.bytes).collect();
        let here = MemorySide::new(step, variables, &trees)?;
        compare(&here, &side, &self.settings, None, &|_, _| {}).map(Some)
    }
}

/// Whether a comparison found that the runs have parted.
pub(super) fn parted(outcome: &Outcome) -> bool {
    outcome.verdict == Answer::Different
}

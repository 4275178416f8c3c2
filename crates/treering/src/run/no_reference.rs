//! Without the feature `tools` no run has a reference.

use super::ranks::RankSide;
use crate::array::Variable;
use crate::error::Result;

/// No reference run.
#[derive(Clone)]
pub(crate) enum Reference {}

impl Reference {
    pub(super) fn check(&self) -> Result<()> {
        match *self {}
    }
}

/// Nothing to compare with.
pub(super) enum ReferenceWatch {}

impl ReferenceWatch {
    pub(super) fn open(reference: &Reference) -> Result<ReferenceWatch> {
        match *reference {}
    }

    pub(super) fn checkpoint(&mut self, _: u64, _: &[Variable], _: &[Variable]) {
        match *self {}
    }

    pub(super) fn checkpoint_together(
        &mut self,
        _: u64,
        _: Result<(&[Variable], &[Variable])>,
        _: &mut RankSide,
    ) {
        match *self {}
    }
}

//! Without the feature `signals` nobody asks for checkpoints by signals.

use super::schedule::Due;
use crate::error::{Error, Result};

/// No requests.
pub(crate) enum Requests {}

impl Requests {
    pub(crate) fn listen() -> Result<Requests> {
        Err(Error::usage("this program was built without the feature `signals` of treering"))
    }

    pub(crate) fn take(&self) -> Due {
        match *self {}
    }
}

//! Requests by signals: SIGUSR1 asks for a checkpoint, SIGTERM for the last one.
//!
//! Law: a signal is a flag, and nothing else happens when it comes. A second SIGTERM, and one that comes when the run is
//! closed, ends the process as it would without this.

use super::schedule::Due;
use crate::error::{Error, Result};
use signal_hook::SigId;
use signal_hook::consts::{SIGTERM, SIGUSR1};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Requests by signals since the last look.
pub(super) struct Requests {
    checkpoint: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
    /// Whether a SIGTERM does what it does without this.
    ends_process: Arc<AtomicBool>,
    handlers: Vec<SigId>,
}

impl Requests {
    /// Listens for signals from now on.
    pub(super) fn listen() -> Result<Requests> {
        let mut requests = Requests {
            checkpoint: Arc::default(),
            end: Arc::default(),
            ends_process: Arc::default(),
            handlers: Vec::new(),
        };
        requests.register().map_err(|error| Error::io("cannot listen for signals", error))?;
        Ok(requests)
    }

    fn register(&mut self) -> std::io::Result<()> {
        use signal_hook::flag::{register, register_conditional_default};
        // In this order: the first SIGTERM finds the flag as it was. This handler stays when the run is closed.
        register_conditional_default(SIGTERM, self.ends_process.clone())?;
        self.handlers.push(register(SIGTERM, self.ends_process.clone())?);
        self.handlers.push(register(SIGTERM, self.end.clone())?);
        self.handlers.push(register(SIGUSR1, self.checkpoint.clone())?);
        Ok(())
    }

    /// The pending request; one for a checkpoint is reported once, one to end until the process ends.
    pub(super) fn take(&self) -> Due {
        let checkpoint = self.checkpoint.swap(false, Ordering::AcqRel);
        match self.end.load(Ordering::Acquire) {
            true => Due::Last,
            false if checkpoint => Due::Checkpoint,
            false => Due::No,
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.ends_process.store(true, Ordering::Release);
        for handler in self.handlers.drain(..) {
            signal_hook::low_level::unregister(handler);
        }
    }
}

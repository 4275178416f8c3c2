//! Requests by signals: SIGUSR1 asks for a checkpoint, SIGTERM for the last one.
//!
//! Law: a signal is a flag, and nothing else happens when it comes. A second SIGTERM, and one that comes when nobody
//! listens any more, ends the process as it would without this.

use super::schedule::Due;
use crate::error::{Error, Result};
use signal_hook::SigId;
use signal_hook::consts::{SIGTERM, SIGUSR1};
use signal_hook::flag::{register, register_conditional_default};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a SIGTERM does to this process; its handlers stay until the process ends.
struct Termination {
    /// Whether a SIGTERM does what it does without this.
    ends_process: Arc<AtomicBool>,
    /// Whether one has come.
    came: Arc<AtomicBool>,
    listeners: usize,
}

static TERMINATION: Mutex<Option<Termination>> = Mutex::new(None);

impl Termination {
    fn register() -> std::io::Result<Termination> {
        let (ends_process, came) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        // In this order: the first SIGTERM finds the flag as it was.
        register_conditional_default(SIGTERM, ends_process.clone())?;
        register(SIGTERM, ends_process.clone())?;
        register(SIGTERM, came.clone())?;
        Ok(Termination { ends_process, came, listeners: 0 })
    }

    fn begin(&mut self) {
        self.listeners += 1;
        if self.listeners == 1 && !self.came.load(Ordering::Acquire) {
            self.ends_process.store(false, Ordering::Release);
            // One that came in between.
            self.ends_process.fetch_or(self.came.load(Ordering::Acquire), Ordering::AcqRel);
        }
    }

    fn end(&mut self) {
        self.listeners = self.listeners.saturating_sub(1);
        self.ends_process.fetch_or(self.listeners == 0, Ordering::AcqRel);
    }
}

/// Requests by signals since the last look.
pub(crate) struct Requests {
    checkpoint: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
    handlers: Vec<SigId>,
}

impl Requests {
    /// Listens for signals from now on.
    pub(crate) fn listen() -> Result<Requests> {
        let cannot = |error| Error::io("cannot listen for signals", error);
        let mut termination = TERMINATION.lock().unwrap_or_else(PoisonError::into_inner);
        let own = match &mut *termination {
            Some(own) => own,
            none => none.insert(Termination::register().map_err(cannot)?),
        };
        own.begin();
        drop(termination);
        let (checkpoint, end) = Default::default();
        let mut requests = Requests { checkpoint, end, handlers: Vec::new() };
        requests.register().map_err(cannot)?;
        Ok(requests)
    }

    fn register(&mut self) -> std::io::Result<()> {
        self.handlers.push(register(SIGTERM, self.end.clone())?);
        self.handlers.push(register(SIGUSR1, self.checkpoint.clone())?);
        Ok(())
    }

    /// The pending request; one for a checkpoint is reported once, one to end until the process ends.
    pub(crate) fn take(&self) -> Due {
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
        let mut termination = TERMINATION.lock().unwrap_or_else(PoisonError::into_inner);
        termination.iter_mut().for_each(Termination::end);
        for handler in self.handlers.drain(..) {
            signal_hook::low_level::unregister(handler);
        }
    }
}

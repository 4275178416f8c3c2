//! The work of a run as spans and events of `tracing` (feature `tracing`). Without the feature nothing is recorded, and
//! nothing is spent on it.
//!
//! Each piece of work is a span named after it, and ends with one event: at level INFO with bytes and time, or at level WARN
//! with the error. Spans and events have the target `treering`.

use crate::error::Result;

/// A kind of work.
#[derive(Clone, Copy)]
pub(crate) enum TracedKind {
    /// Scanning arrays and copying what changed, on the program's thread.
    Capture,
    /// Encoding and writing a checkpoint to the first tier.
    Save,
    /// Bringing a checkpoint from one tier to the next.
    Move,
    /// Removing old checkpoints.
    Prune,
    /// Filling arrays.
    Restore,
}

/// A piece of work that has begun.
pub(crate) struct TracedWork {
    #[cfg(feature = "tracing")]
    recorded: Option<recorded::RecordedWork>,
}

impl TracedWork {
    pub(crate) fn begin(work: TracedKind, run: &str, step: Option<u64>) -> TracedWork {
        #[cfg(not(feature = "tracing"))]
        let _ = (work, run, step);
        TracedWork {
            #[cfg(feature = "tracing")]
            recorded: recorded::RecordedWork::begin(work, run, step),
        }
    }

    /// Ends it; `measure` tells the step, if that was not known before, and the bytes.
    pub(crate) fn end<T>(
        self,
        done: Result<T>,
        measure: impl FnOnce(&T) -> (Option<u64>, u64),
    ) -> Result<T> {
        #[cfg(feature = "tracing")]
        if let Some(recorded) = self.recorded {
            recorded.end(done.as_ref().map(measure));
        }
        #[cfg(not(feature = "tracing"))]
        let _ = measure;
        done
    }
}

/// A note for people, as an event at level WARN.
pub(crate) fn warn(text: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "treering", "{text}");
    #[cfg(not(feature = "tracing"))]
    let _ = text;
}

#[cfg(feature = "tracing")]
mod recorded {
    use super::TracedKind;
    use crate::error::Error;
    use std::time::Instant;
    use tracing::span::EnteredSpan;

    /// A piece of work that somebody wants to hear of.
    pub(super) struct RecordedWork {
        work: TracedKind,
        run: String,
        step: Option<u64>,
        begun: Instant,
        _span: EnteredSpan,
    }

    impl RecordedWork {
        pub(super) fn begin(
            work: TracedKind,
            run: &str,
            step: Option<u64>,
        ) -> Option<RecordedWork> {
            macro_rules! span {
                ($name:literal) => {
                    tracing::info_span!(target: "treering", $name, run, step)
                };
            }
            let span = match work {
                TracedKind::Capture => span!("capture"),
                TracedKind::Save => span!("save"),
                TracedKind::Move => span!("move"),
                TracedKind::Prune => span!("prune"),
                TracedKind::Restore => span!("restore"),
            };
            let begun = Instant::now();
            let run = run.to_string();
            let record = |span: EnteredSpan| RecordedWork { work, run, step, begun, _span: span };
            (!span.is_disabled()).then(|| record(span.entered()))
        }

        pub(super) fn end(self, done: Result<(Option<u64>, u64), &Error>) {
            let name = match self.work {
                TracedKind::Capture => "capture",
                TracedKind::Save => "save",
                TracedKind::Move => "move",
                TracedKind::Prune => "prune",
                TracedKind::Restore => "restore",
            };
            let (run, microseconds) = (&self.run[..], self.begun.elapsed().as_micros() as u64);
            match done {
                Ok((step, bytes)) => {
                    let step = step.or(self.step);
                    tracing::info!(target: "treering", run, step, bytes, microseconds, "{name}");
                }
                Err(error) => {
                    let (step, error) = (self.step, error.to_string());
                    tracing::warn!(target: "treering", run, step, microseconds, error, "{name} failed");
                }
            }
        }
    }
}

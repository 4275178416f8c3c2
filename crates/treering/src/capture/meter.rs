//! The progress of saves: bytes that were captured, and those of them that are packed.
//!
//! Laws: the two numbers that are told are equal if and only if nothing is under way; then they begin anew. Until then neither
//! becomes smaller.

use std::sync::{Arc, Mutex, PoisonError};

/// A callback that hears how many bytes are done, of how many.
pub(crate) type ProgressCall = Arc<dyn Fn(u64, u64) + Send + Sync>;

#[derive(Default)]
struct SaveBytes {
    captured: u64,
    packed: u64,
    /// Saves that are not durable yet.
    open: u64,
}

/// Counts what saves have done, and tells it.
pub(crate) struct SaveMeter {
    told: ProgressCall,
    metered: Mutex<SaveBytes>,
}

impl SaveMeter {
    pub(crate) fn new(told: ProgressCall) -> Arc<SaveMeter> {
        Arc::new(SaveMeter { told, metered: Mutex::default() })
    }

    /// A save begins. It ends when the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenSave {
        self.change(false, |metered| metered.open += 1);
        OpenSave(self.clone())
    }

    pub(super) fn captured(&self, bytes: u64) {
        self.change(false, |metered| metered.captured += bytes);
    }

    pub(super) fn packed(&self, bytes: u64) {
        self.change(true, |metered| metered.packed += bytes);
    }

    /// Tells while it holds the numbers, so that nobody hears of an earlier state after a later one.
    fn change(&self, tells: bool, change: impl FnOnce(&mut SaveBytes)) {
        let mut metered = self.metered.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut metered);
        let SaveBytes { captured, packed, open } = *metered;
        if !tells || captured == 0 {
            return;
        }
        let is_over = open == 0 && packed == captured;
        let done = if is_over { captured } else { packed.min(captured - 1) };
        (self.told)(done, captured);
        if is_over {
            *metered = SaveBytes::default();
        }
    }
}

/// A save that is under way.
pub(crate) struct OpenSave(Arc<SaveMeter>);

impl Drop for OpenSave {
    fn drop(&mut self) {
        self.0.change(true, |metered| metered.open = metered.open.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_equal_when_nothing_is_under_way() {
        let told: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
        let hears = told.clone();
        let meter =
            SaveMeter::new(Arc::new(move |done, all| hears.lock().unwrap().push((done, all))));
        let take = || std::mem::take(&mut *told.lock().unwrap());
        for _ in 0..2 {
            let first = meter.begin();
            meter.captured(100);
            meter.packed(40);
            meter.packed(60);
            assert_eq!(take(), [(40, 100), (99, 100)]);
            let second = meter.begin();
            meter.captured(50);
            drop(first);
            meter.packed(50);
            assert_eq!(take(), [(100, 150), (149, 150)]);
            drop(second);
            assert_eq!(take(), [(150, 150)]);
        }
        // Nothing has changed: there is nothing to tell.
        drop(meter.begin());
        assert!(take().is_empty());
    }
}

//! The memory of windows, through which arrays are read in order.

use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of all windows of this process, and of each window beyond that, at most.
const ALL_WINDOWS: u64 = 512 << 20;
const LEAST_WINDOW: u64 = 32 << 20;

static WINDOWS: AtomicU64 = AtomicU64::new(0);

/// The share of a window in the memory of all windows.
#[derive(Default)]
pub(super) struct WindowRoom(u64);

impl WindowRoom {
    /// How many bytes a window may have, of `most`.
    pub(super) fn left(most: u64) -> u64 {
        ALL_WINDOWS.saturating_sub(WINDOWS.load(Ordering::Relaxed)).max(LEAST_WINDOW).min(most)
    }

    /// Counts a window of so many bytes.
    pub(super) fn take(len: u64) -> Self {
        WINDOWS.fetch_add(len, Ordering::Relaxed);
        WindowRoom(len)
    }
}

impl Drop for WindowRoom {
    fn drop(&mut self) {
        WINDOWS.fetch_sub(self.0, Ordering::Relaxed);
    }
}

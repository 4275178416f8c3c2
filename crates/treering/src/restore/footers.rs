//! Footers that were read before: the packs of an epoch are named by all its checkpoints, so whoever looks
//! at one checkpoint after another would read each footer as many times.

use crate::format::{Footer, Seal};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Largest number of bytes of footers, as they are stored, that are kept. Beyond that all of them are forgotten.
const KEPT: u64 = 64 << 20;

/// Footers without their sections, by the keys of packs. A pack never changes, and its seal vouches for it.
#[derive(Clone, Default)]
pub(crate) struct KnownFooters(Arc<Mutex<Footers>>);

#[derive(Default)]
struct Footers {
    by_key: HashMap<String, (Seal, Arc<Footer>)>,
    bytes: u64,
}

impl KnownFooters {
    fn held(&self) -> MutexGuard<'_, Footers> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn get(&self, key: &str) -> Option<(Seal, Arc<Footer>)> {
        self.held().by_key.get(key).cloned()
    }

    /// Keeps the footer of a pack; its section is empty.
    pub(super) fn keep(&self, key: &str, seal: Seal, footer: &Arc<Footer>) {
        let mut footers = self.held();
        if footers.by_key.contains_key(key) {
            return;
        }
        if footers.bytes.saturating_add(seal.footer) > KEPT {
            *footers = Footers::default();
        }
        footers.bytes = footers.bytes.saturating_add(seal.footer);
        footers.by_key.insert(key.to_string(), (seal, footer.clone()));
    }
}

//! Open copies of packs: opening a file is a round trip to a server, and a pack is read many times.

use crate::error::{Error, ErrorKind, Result};
use crate::store::{Blob, Store};
use std::sync::{Arc, Mutex};

/// The most packs that stay open: processes have few file descriptors.
const OPEN: usize = 64;

/// The copies of one pack, the nearest first, and the errors of tiers that could not be read.
pub(crate) type Copies = Arc<Vec<Result<Box<dyn Blob>>>>;

/// The packs of a checkpoint that are open.
pub(crate) struct Handles {
    store: Arc<dyn Store>,
    open: Mutex<Vec<(String, Copies)>>,
}

impl Handles {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Handles { store, open: Mutex::default() }
    }

    /// All copies of a pack.
    pub(crate) fn copies(&self, key: &str) -> Copies {
        let held = || self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, copies)) = held().iter().find(|(open, _)| open == key) {
            return copies.clone();
        }
        let copies: Copies = Arc::new(self.store.copies(key));
        // A copy that cannot be opened may be there the next time.
        if !copies.is_empty() && copies.iter().all(Result::is_ok) {
            let mut open = held();
            if open.len() >= OPEN {
                open.remove(0);
            }
            open.push((key.to_string(), copies.clone()));
        }
        copies
    }
}

/// The first copy from which `read` succeeds. `note` hears of copies that fail although another serves.
///
/// An error of access (no permission, too many open files, a failing disk) is reported as such: the
/// bytes may be fine, so nobody must take them for damaged.
pub(crate) fn first_good<T>(
    copies: &[Result<Box<dyn Blob>>],
    read: impl Fn(&dyn Blob) -> Result<T>,
    note: impl Fn(&str, &Error),
) -> Result<T> {
    let mut trouble: Option<Error> = None;
    for copy in copies {
        let error = match copy {
            Ok(copy) => match read(copy.as_ref()) {
                Ok(got) => return Ok(got),
                Err(error) => {
                    note(copy.store(), &error);
                    error
                }
            },
            Err(error) => {
                note("a tier", error);
                error.clone()
            }
        };
        if trouble.as_ref().is_none_or(|t| t.kind() != ErrorKind::Io) {
            trouble = Some(error);
        }
    }
    Err(trouble.unwrap_or_else(|| Error::damaged("a pack is missing")))
}

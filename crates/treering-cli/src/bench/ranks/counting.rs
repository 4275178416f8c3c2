//! A store that counts what is asked of it.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use treering::Store;
use treering::testing::{Call, HookedStore};

/// Calls of a store.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The names under which something was written.
    pub written: HashSet<String>,
    /// Openings by folder; branches by their level.
    pub opened: BTreeMap<String, u64>,
    pub listed: u64,
    pub bytes_read: u64,
    /// All calls but those that read or append.
    pub all: u64,
}

/// Counts the calls of the store that it makes.
#[derive(Clone, Default)]
pub struct Counter(Arc<Mutex<Calls>>);

impl Counter {
    fn held(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls since the last time.
    pub fn take(&self) -> Calls {
        std::mem::take(&mut *self.held())
    }

    /// The same store, counted.
    pub fn count(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let counter = self.clone();
        Arc::new(HookedStore::new(store, move |call| {
            let mut calls = counter.held();
            calls.all += u64::from(!matches!(call, Call::Read(..) | Call::Append(..)));
            match call {
                Call::Finish(key) | Call::Commit(key) => drop(calls.written.insert(key.into())),
                Call::Open(key) => *calls.opened.entry(level(key)).or_default() += 1,
                Call::Read(_, bytes) => calls.bytes_read += bytes as u64,
                Call::List(_) => calls.listed += 1,
                Call::Put(_) | Call::Append(..) | Call::Delete(_) => {}
            }
            Ok(())
        }))
    }
}

/// The folder of a key, and the level of a branch.
fn level(key: &str) -> String {
    let mut parts = key.rsplit('/');
    let (name, folder) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let level = name.split('-').find(|part| part.starts_with('b') && part.len() == 2);
    match (folder, level) {
        ("branches", Some(level)) => format!("{folder} {}", &level[1..]),
        _ => folder.to_string(),
    }
}

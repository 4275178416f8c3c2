//! The law of a store, held by every implementation.

use crate::support::memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use treering::testing::{FaultStore, HookedStore, Locks, PowerCut, SimDisk, store_suite as suite};
use treering::{DirectoryStore, Store};

fn put(store: &dyn Store, key: &str, pieces: &[&[u8]]) {
    let mut object = store.put(key).unwrap();
    pieces.iter().for_each(|p| object.append(p).unwrap());
    object.finish().unwrap();
}

fn content(store: &dyn Store, key: &str) -> Vec<u8> {
    let blob = store.open(key).unwrap();
    let mut bytes = vec![0; blob.size() as usize];
    blob.read_at(0, &mut bytes).unwrap();
    bytes
}

fn names(store: &dyn Store, folder: &str) -> Vec<String> {
    let items = store.list(folder).unwrap();
    items.into_iter().map(|item| item.name).collect()
}

fn simulated() -> Arc<dyn Store> {
    Arc::new(DirectoryStore::on(Arc::new(SimDisk::new()), "/a/store"))
}

/// A real folder for each store, which are removed together in the end.
fn real(folder: &tempfile::TempDir) -> impl Fn() -> Arc<dyn Store> + '_ {
    let made = AtomicUsize::new(0);
    move || {
        let number = made.fetch_add(1, Ordering::SeqCst);
        let path = folder.path().join(number.to_string()).join("not/there/yet");
        Arc::new(DirectoryStore::new(path))
    }
}

#[test]
fn memory_store() {
    suite(memory);
}

#[test]
fn directory_store() {
    let folder = tempfile::tempdir().unwrap();
    suite(real(&folder));
}

#[test]
fn directory_store_on_a_simulated_disk() {
    suite(simulated);
}

#[test]
fn hooked_store() {
    for locks in [Locks::Real, Locks::None] {
        suite(|| Arc::new(HookedStore::with_locks(memory(), locks)));
    }
}

#[test]
fn counting_store() {
    suite(|| Arc::new(FaultStore::counting(memory())));
    suite(|| Arc::new(FaultStore::counting(simulated())));
}

#[test]
fn directory_stores_refuse_keys_that_lead_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let real: Arc<dyn Store> = Arc::new(DirectoryStore::new(folder.path().join("store")));
    std::fs::write(folder.path().join("outside"), "x").unwrap();
    for store in [real, simulated()] {
        for key in [
            "",
            ".",
            "..",
            "../outside",
            "a/../../outside",
            "a//b",
            "/a",
            "a/",
            "./a",
            "a/./b",
            "a\0b",
        ] {
            assert!(store.put(key).is_err(), "{key:?}");
            assert!(store.commit(key, b"x").is_err(), "{key:?}");
            assert!(store.open(key).is_err(), "{key:?}");
            assert!(store.delete(&[key.to_string()]).is_err(), "{key:?}");
            assert!(store.lock(key).is_err(), "{key:?}");
            assert!(key.is_empty() || store.list(key).is_err(), "{key:?}");
        }
    }
    assert_eq!(std::fs::read(folder.path().join("outside")).unwrap(), b"x");
}

/// The effects of `finish`, `commit` and `delete` survive a power cut once they have returned.
#[test]
fn what_was_answered_survives_a_power_cut() {
    for cut in [PowerCut::Lose, PowerCut::Random(1), PowerCut::Random(2)] {
        let disk = SimDisk::new();
        let store = DirectoryStore::on(Arc::new(disk.clone()), "/a/store");
        put(&store, "x/put", &[b"put"]);
        put(&store, "x/old", &[b"old"]);
        assert!(store.commit("y/z/committed", b"committed").unwrap());
        store.delete(&["x/old".to_string()]).unwrap();
        let mut unfinished = store.put("x/unfinished").unwrap();
        unfinished.append(b"half").unwrap();
        let disk = disk.after_cut(cut);
        let store = DirectoryStore::on(Arc::new(disk), "/a/store");
        assert_eq!(content(&store, "x/put"), b"put");
        assert_eq!(content(&store, "y/z/committed"), b"committed");
        assert!(store.open("x/old").is_err());
        assert_eq!(names(&store, "y/z"), ["committed"]);
    }
}

#[test]
fn a_sweep_removes_what_unfinished_commits_left() {
    let folder = tempfile::tempdir().unwrap();
    let store = DirectoryStore::new(folder.path());
    assert!(store.commit("f/a", b"a").unwrap());
    let left = folder.path().join("f/.new-b-host-1-0");
    std::fs::write(&left, "half").unwrap();
    assert_eq!(names(&store, "f"), ["a"]);
    store.sweep("f").unwrap();
    assert!(!left.exists());
    assert_eq!(content(&store, "f/a"), b"a");
}

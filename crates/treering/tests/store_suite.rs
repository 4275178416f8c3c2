//! The law of a store, held by every implementation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use treering::ErrorKind;
use treering::store::{
    DirectoryStore, FaultStore, Item, MemoryStore, PowerCut, SimDisk, Store, TieredStore,
};

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

/// Everything a store has to hold to; `make` gives a new, empty one.
fn suite(make: impl Fn() -> Arc<dyn Store>) {
    what_is_put_can_be_read(make().as_ref());
    a_read_past_the_end_is_an_error(make().as_ref());
    a_key_is_used_once(make().as_ref());
    an_unfinished_object_leaves_nothing(make().as_ref());
    of_two_writers_of_one_key_one_finishes(make().as_ref());
    a_commit_never_replaces(make().as_ref());
    lists_are_sorted_and_tell_folders(make().as_ref());
    what_is_deleted_is_gone(make().as_ref());
    a_lock_excludes_until_it_is_dropped(make().as_ref());
    a_sweep_keeps_what_is_there(make().as_ref());
    one_of_many_committers_wins(make());
}

fn what_is_put_can_be_read(store: &dyn Store) {
    put(store, "f/a", &[b"one", b"", b" two"]);
    put(store, "f/empty", &[]);
    assert_eq!(content(store, "f/a"), b"one two");
    assert_eq!(content(store, "f/empty"), b"");
    let blob = store.open("f/a").unwrap();
    assert_eq!(blob.size(), 7);
    let mut middle = [0; 3];
    blob.read_at(2, &mut middle).unwrap();
    assert_eq!(&middle, b"e t");
    blob.read_at(7, &mut []).unwrap();
    assert_eq!(store.copies("f/a").len(), 1);
    assert_eq!(store.copies("f/none").len(), 0);
    let missing = store.open("f/none").err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(!store.name().is_empty());
}

fn a_read_past_the_end_is_an_error(store: &dyn Store) {
    put(store, "f/a", &[b"seven b"]);
    let blob = store.open("f/a").unwrap();
    for (offset, len) in [(0, 8), (6, 2), (7, 1), (8, 1), (1 << 40, 1)] {
        let read = blob.read_at(offset, &mut vec![0; len]);
        assert!(read.is_err(), "{len} bytes at {offset}");
    }
    for offset in [u64::MAX, u64::MAX - 3, i64::MAX as u64] {
        assert!(blob.read_at(offset, &mut [0; 4]).is_err(), "at {offset}");
    }
}

fn a_key_is_used_once(store: &dyn Store) {
    put(store, "f/put", &[b"first"]);
    assert!(store.commit("f/committed", b"first").unwrap());
    for key in ["f/put", "f/committed"] {
        let again = store.put(key).and_then(|mut object| {
            object.append(b"second")?;
            object.finish()
        });
        assert!(again.is_err());
        assert!(!store.commit(key, b"second").unwrap());
        assert_eq!(content(store, key), b"first");
    }
}

fn an_unfinished_object_leaves_nothing(store: &dyn Store) {
    let mut object = store.put("f/a").unwrap();
    object.append(b"half").unwrap();
    drop(object);
    assert!(store.open("f/a").is_err());
    assert_eq!(names(store, "f"), Vec::<String>::new());
    put(store, "f/a", &[b"whole"]);
    assert_eq!(content(store, "f/a"), b"whole");
}

fn of_two_writers_of_one_key_one_finishes(store: &dyn Store) {
    let mut first = store.put("f/a").unwrap();
    first.append(b"first").unwrap();
    let second = store.put("f/a").and_then(|mut object| {
        object.append(b"second")?;
        object.finish()
    });
    let finished = first.finish();
    assert!(second.is_ok() != finished.is_ok(), "both or none finished");
    let winner: &[u8] = if finished.is_ok() { b"first" } else { b"second" };
    assert_eq!(content(store, "f/a"), winner);
}

fn a_commit_never_replaces(store: &dyn Store) {
    assert!(store.commit("deep/er/folder/a", b"first").unwrap());
    assert!(!store.commit("deep/er/folder/a", b"").unwrap());
    assert!(!store.commit("deep/er/folder/a", b"first").unwrap());
    assert_eq!(content(store, "deep/er/folder/a"), b"first");
    assert!(store.commit("deep/er/folder/empty", b"").unwrap());
    assert!(!store.commit("deep/er/folder/empty", b"x").unwrap());
    assert_eq!(names(store, "deep/er/folder"), ["a", "empty"]);
}

fn lists_are_sorted_and_tell_folders(store: &dyn Store) {
    assert_eq!(store.list("").unwrap(), []);
    assert_eq!(store.list("no/such/folder").unwrap(), []);
    for key in ["f/b", "f/a", "f/sub/x", "f/sub/y", "fa/z", "f.a", "f/b.c"] {
        put(store, key, &[key.as_bytes()]);
    }
    let item = |name: &str, size, folder| Item { name: name.into(), size, folder };
    let in_f =
        [item("a", 3, false), item("b", 3, false), item("b.c", 5, false), item("sub", 0, true)];
    assert_eq!(store.list("f").unwrap(), in_f);
    let at_top = [item("f", 0, true), item("f.a", 3, false), item("fa", 0, true)];
    let folders_have_no_size = |mut items: Vec<Item>| {
        items.iter_mut().filter(|i| i.folder).for_each(|i| i.size = 0);
        items
    };
    assert_eq!(folders_have_no_size(store.list("").unwrap()), at_top);
    let sub = store.list("f/sub").unwrap();
    assert_eq!(sub, [item("x", 7, false), item("y", 7, false)]);
}

fn what_is_deleted_is_gone(store: &dyn Store) {
    put(store, "f/a", &[b"a"]);
    put(store, "f/b", &[b"b"]);
    put(store, "f/c", &[b"c"]);
    let keys = ["f/a", "f/none", "f/b"].map(String::from);
    store.delete(&keys).unwrap();
    store.delete(&keys).unwrap();
    store.delete(&["no/such/folder".to_string()]).unwrap();
    store.delete(&[]).unwrap();
    assert_eq!(names(store, "f"), ["c"]);
    assert!(store.open("f/a").is_err());
    put(store, "f/a", &[b"again"]);
    assert_eq!(content(store, "f/a"), b"again");
}

fn a_lock_excludes_until_it_is_dropped(store: &dyn Store) {
    let held = store.lock("runs/x/lock").unwrap();
    let other = store.lock("runs/y/lock").unwrap();
    let refused = store.lock("runs/x/lock").err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    drop(held);
    let again = store.lock("runs/x/lock").unwrap();
    drop((again, other));
}

fn a_sweep_keeps_what_is_there(store: &dyn Store) {
    store.sweep("f").unwrap();
    assert!(store.commit("f/a", b"a").unwrap());
    put(store, "f/b", &[b"b"]);
    store.sweep("f").unwrap();
    assert_eq!(names(store, "f"), ["a", "b"]);
}

fn one_of_many_committers_wins(store: Arc<dyn Store>) {
    for round in 0..20 {
        let key = format!("f/{round}");
        let wins = AtomicUsize::new(0);
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (store, key, wins, start) = (&store, &key, &wins, &start);
                scope.spawn(move || {
                    start.wait();
                    if store.commit(key, &[thread; 100]).unwrap() {
                        wins.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(content(store.as_ref(), key), [thread; 100]);
                    }
                });
            }
        });
        assert_eq!(wins.load(Ordering::SeqCst), 1);
    }
    assert_eq!(names(store.as_ref(), "f").len(), 20);
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
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
fn tiered_store() {
    suite(|| Arc::new(TieredStore::new(memory(), memory())));
    suite(|| Arc::new(TieredStore::new(memory(), simulated())));
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

/// What `finish`, `commit` and `delete` have returned from survives a power cut.
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

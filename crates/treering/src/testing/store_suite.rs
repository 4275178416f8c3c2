//! The law of a store, for every implementation.

use crate::error::{ErrorKind, Result};
use crate::store::{Store, StoreItem};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Holds a store to its law, and panics where it does not; `make` gives a new, empty one each time.
pub fn store_suite(make: impl Fn() -> Arc<dyn Store>) {
    what_is_put_can_be_read(make().as_ref());
    a_read_past_the_end_is_an_error(make().as_ref());
    many_ranges_are_read_in_one_call(make().as_ref());
    a_key_is_used_once(make().as_ref());
    an_unfinished_object_leaves_nothing(make().as_ref());
    of_two_writers_of_one_key_one_finishes(make().as_ref());
    a_commit_never_replaces(make().as_ref());
    lists_are_sorted_and_tell_folders(make().as_ref());
    what_is_deleted_is_gone(make().as_ref());
    a_lock_excludes_until_it_is_dropped(make().as_ref());
    a_sweep_keeps_what_is_there(make().as_ref());
    appended_bytes_can_be_read_back(make().as_ref());
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
    let copies = store.copies("f/a");
    assert!(!copies.is_empty() && copies.iter().all(Result::is_ok));
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

fn many_ranges_are_read_in_one_call(store: &dyn Store) {
    let bytes: Vec<u8> = (0..10_000u32).map(|i| ((i * i) >> 3) as u8).collect();
    put(store, "f/a", &[&bytes]);
    let blob = store.open("f/a").unwrap();
    let check = |wanted: &[(u64, usize)]| {
        let mut buffers: Vec<Vec<u8>> = wanted.iter().map(|(_, len)| vec![0; *len]).collect();
        let offsets = wanted.iter().map(|(offset, _)| *offset);
        let mut ranges: Vec<(u64, &mut [u8])> =
            offsets.zip(buffers.iter_mut().map(Vec::as_mut_slice)).collect();
        let read = blob.read_many(&mut ranges);
        let there = |(offset, len): &(u64, usize)| {
            bytes.get(*offset as usize..).and_then(|rest| rest.get(..*len))
        };
        assert_eq!(read.is_ok(), wanted.iter().all(|w| there(w).is_some()), "{wanted:?}");
        if read.is_ok() {
            for (wanted, buffer) in wanted.iter().zip(&buffers) {
                assert!(there(wanted) == Some(buffer), "{wanted:?}");
            }
        }
    };
    check(&[]);
    check(&[(0, 10_000)]);
    // Neighbours, gaps, overlaps, the same twice, nothing, the end; in any order.
    check(&[(0, 100), (100, 1), (101, 4000), (5000, 10), (9_999, 1)]);
    check(&[(9_000, 1000), (100, 0), (0, 100), (50, 100), (50, 100), (10_000, 0)]);
    // More neighbours than one call of the system takes.
    check(&(0..3000).map(|at| (at, 1)).collect::<Vec<_>>());
    check(&[(0, 100), (9_990, 11)]);
    check(&[(10_001, 1), (0, 1)]);
    check(&[(u64::MAX - 3, 4), (0, 1)]);
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
    let item = |name: &str, size, folder| StoreItem { name: name.into(), size, folder };
    let in_f =
        [item("a", 3, false), item("b", 3, false), item("b.c", 5, false), item("sub", 0, true)];
    assert_eq!(store.list("f").unwrap(), in_f);
    let at_top = [item("f", 0, true), item("f.a", 3, false), item("fa", 0, true)];
    let folders_have_no_size = |mut items: Vec<StoreItem>| {
        items.iter_mut().filter(|i| i.folder).for_each(|i| i.size = 0);
        items
    };
    assert_eq!(folders_have_no_size(store.list("").unwrap()), at_top);
    assert_eq!(store.list_after("f", "").unwrap(), in_f);
    assert_eq!(store.list_after("f", "a").unwrap(), in_f[1..]);
    assert_eq!(store.list_after("f", "aa").unwrap(), in_f[1..]);
    assert_eq!(store.list_after("f", "zz").unwrap(), []);
    assert_eq!(store.list_after("no/such/folder", "a").unwrap(), []);
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
    store.settle("f").unwrap();
    store.settle("no/such/folder").unwrap();
    assert_eq!(names(store, "f"), ["c"]);
    assert!(store.open("f/a").is_err());
    put(store, "f/a", &[b"again"]);
    assert_eq!(content(store, "f/a"), b"again");
}

fn a_lock_excludes_until_it_is_dropped(store: &dyn Store) {
    // A store may have no locks; one that has them keeps others out.
    let Some(held) = store.lock("runs/x/lock").unwrap() else { return };
    let other = store.lock("runs/y/lock").unwrap();
    let refused = store.lock("runs/x/lock").err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    drop(held);
    let again = store.lock("runs/x/lock").unwrap();
    drop((again, other));
}

fn appended_bytes_can_be_read_back(store: &dyn Store) {
    let mut object = store.put("f/a").unwrap();
    object.append(b"one").unwrap();
    object.append(b" two").unwrap();
    let mut middle = [0; 3];
    object.read_back(2, &mut middle).unwrap();
    assert_eq!(&middle, b"e t");
    assert!(object.read_back(5, &mut [0; 3]).is_err());
    object.append(b" three").unwrap();
    object.finish().unwrap();
    assert_eq!(content(store, "f/a"), b"one two three");
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

//! Small checkpoints end in a few files, and every one of them restores, whatever happens meanwhile.

use crate::support::memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use treering::testing::{Call, HookedStore, SimDisk, SimFault};
use treering::{
    ChunkSize, CompactPlan, Compaction, DirectoryStore, Encoding, Error, ErrorKind, Keep, Library,
    Options, Run, Store, Variable, VariableMut,
};

const ALL: Compaction = Compaction { files: 3, pack_bytes: 1 << 20 };

fn state(step: u64) -> Vec<u8> {
    let mut field: Vec<u8> = (0..1500u32).map(|i| (i * i / 7) as u8).collect();
    for past in step.saturating_sub(5)..=step {
        let at = (past as usize * 389) % 1400;
        field[at..at + 80].fill(past as u8);
    }
    field
}

fn options(store: &Arc<dyn Store>, run: &str) -> Options {
    Options::in_store(store.clone(), run)
        .chunk(ChunkSize::new(64).unwrap())
        .encoding(Encoding::Raw)
        .growth(2.5)
        .compact(None)
}

fn save(run: &mut Run, steps: std::ops::Range<u64>) {
    for step in steps {
        let save = run.checkpoint(step, &[Variable::new("field", &state(step))]).unwrap();
        save.durable().unwrap();
    }
}

fn written(store: &Arc<dyn Store>, run: &str, steps: u64) {
    let mut open = Run::open(options(store, run)).unwrap();
    save(&mut open, 0..steps);
    open.finish().unwrap();
}

fn files(store: &Arc<dyn Store>, run: &str) -> usize {
    let folders = ["log", "packs", "bundles"].map(|folder| format!("runs/{run}/{folder}"));
    folders.iter().map(|folder| store.list(folder).unwrap().len()).sum()
}

fn bundles(store: &Arc<dyn Store>, run: &str) -> Vec<String> {
    let items = store.list(&format!("runs/{run}/bundles")).unwrap();
    items.into_iter().map(|item| format!("runs/{run}/bundles/{}", item.name)).collect()
}

/// Every listed checkpoint restores; their steps.
fn steps(store: &Arc<dyn Store>, run: &str) -> Vec<u64> {
    let library = Library::of(store.clone());
    let (listed, trouble) = library.checkpoints(run).unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    for info in &listed {
        let checkpoint = library.checkpoint(run, Some(info.step)).unwrap();
        assert_eq!(checkpoint.read::<u8>("field").unwrap(), state(info.step), "{}", info.step);
    }
    listed.iter().map(|info| info.step).collect()
}

fn compact(store: &Arc<dyn Store>, run: &str) -> CompactPlan {
    Library::of(store.clone()).compact(run, ALL, &|_, _| {}).unwrap()
}

fn sound(store: &Arc<dyn Store>) {
    let report = Library::of(store.clone()).verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    assert_eq!(report.unreferenced, Vec::<String>::new());
}

fn bytes(store: &Arc<dyn Store>, key: &str) -> Vec<u8> {
    let blob = store.open(key).unwrap();
    let mut bytes = vec![0; blob.size() as usize];
    blob.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn two_thousand_small_checkpoints_end_in_a_handful_of_files_and_each_restores() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(folder.path().join("store")));
    let by_itself = options(&store, "r").compact(Some(Compaction::default()));
    let mut run = Run::open(by_itself).unwrap();
    for step in 0..2000 {
        run.checkpoint(step, &[Variable::new("field", &state(step))]).unwrap();
    }
    assert_eq!(run.upkeep_notes(), Vec::<String>::new());
    run.finish().unwrap();
    let by_itself = files(&store, "r");
    assert!(by_itself < 200, "{by_itself} files");
    let plan = compact(&store, "r");
    let now = files(&store, "r");
    assert!(now <= 30, "{now} files");
    assert_eq!((plan.files_before as usize, plan.files_after as usize), (by_itself, now));
    assert_eq!(steps(&store, "r"), (0..2000).collect::<Vec<_>>());
    sound(&store);
    // Nothing is left to do.
    assert_eq!(compact(&store, "r").bundles, []);
    let mut field = vec![0; 1500];
    let mut run = Run::open(options(&store, "r")).unwrap();
    let restored = run.restore(&mut [VariableMut::new("field", &mut field)]).unwrap().unwrap();
    assert_eq!((restored.step, field), (1999, state(1999)));
    save(&mut run, 2000..2010);
    assert_eq!(steps(&store, "r").len(), 2010);
}

#[test]
fn a_dry_run_changes_nothing_and_tells_the_numbers_of_the_real_one() {
    let store = memory();
    written(&store, "r", 30);
    let before = files(&store, "r");
    let library = Library::of(store.clone());
    let plan = library.plan_compact("r", ALL).unwrap();
    assert_eq!(files(&store, "r"), before);
    assert_eq!(compact(&store, "r"), plan);
    assert_eq!(files(&store, "r") as u64, plan.files_after);
    // The rule: enough files, and small packs.
    written(&store, "s", 30);
    let few = Compaction { files: 1000, ..ALL };
    assert!(library.plan_compact("s", few).unwrap().bundles.is_empty());
    let small = Compaction { pack_bytes: 10, ..ALL };
    assert!(library.plan_compact("s", small).unwrap().bundles.is_empty());
    assert_eq!(library.plan_compact("x", ALL).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_living_writer_and_readers_that_have_listed_go_on() {
    let store = memory();
    let library = Library::of(store.clone());
    let mut run = Run::open(options(&store, "r")).unwrap();
    save(&mut run, 0..12);
    let early = library.checkpoint("r", Some(1)).unwrap();
    let mut backwards = library.backwards("r").unwrap();
    for round in 1..8 {
        compact(&store, "r");
        save(&mut run, 12 * round..12 * (round + 1));
    }
    assert_eq!(early.read::<u8>("field").unwrap(), state(1));
    for step in (0..12).rev() {
        let state_then = backwards.next().unwrap().unwrap();
        assert_eq!(state_then.step, step);
    }
    run.finish().unwrap();
    assert_eq!(steps(&store, "r").len(), 96);
    sound(&store);
}

/// A bundle is listed, and before its index is read it has been copied into another one and is gone.
#[test]
fn a_bundle_that_goes_between_listing_and_reading_hides_nothing() {
    let store = memory();
    written(&store, "r", 12);
    compact(&store, "r");
    let first = bundles(&store, "r");
    let mut open = Run::open(options(&store, "r")).unwrap();
    save(&mut open, 12..24);
    open.finish().unwrap();
    let (inner, compacted) = (store.clone(), AtomicBool::new(false));
    let seen: Arc<dyn Store> = Arc::new(HookedStore::new(store.clone(), move |call| {
        let reads_index = matches!(call, Call::Open(key) if key.contains("/bundles/"));
        if reads_index && !compacted.swap(true, Ordering::SeqCst) {
            compact(&inner, "r");
        }
        Ok(())
    }));
    assert_eq!(steps(&seen, "r"), (0..24).collect::<Vec<_>>());
    assert!(bundles(&store, "r").iter().all(|bundle| !first.contains(bundle)), "not replaced");
}

#[test]
fn a_writer_that_has_lost_its_run_is_stopped_after_a_compaction_too() {
    let plain = memory();
    let store: Arc<dyn Store> =
        Arc::new(HookedStore::with_locks(plain.clone(), treering::testing::Locks::None));
    let mut old = Run::open(options(&store, "r")).unwrap();
    save(&mut old, 0..9);
    let mut new = Run::open(options(&store, "r")).unwrap();
    save(&mut new, 9..20);
    compact(&store, "r");
    let refused = old.checkpoint(100, &[Variable::new("field", &state(9))]).unwrap().durable();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Busy);
    save(&mut new, 20..22);
    drop(new);
    assert_eq!(steps(&plain, "r"), (0..22).collect::<Vec<_>>());
}

/// The commit of its newest manifest came through and was reported as failed; then it was overtaken, and that
/// manifest was bundled: the number looks free to it.
#[test]
fn a_mark_of_a_lost_writer_does_not_hide_a_bundled_checkpoint() {
    let mut tried = 0;
    // The first operation looks for a request to stop, and may fail.
    for at in 1.. {
        let disk = SimDisk::new();
        let plain: Arc<dyn Store> = Arc::new(DirectoryStore::on(Arc::new(disk.clone()), "/store"));
        let store: Arc<dyn Store> =
            Arc::new(HookedStore::with_locks(plain.clone(), treering::testing::Locks::None));
        let mut old = Run::open(options(&store, "r")).unwrap();
        save(&mut old, 0..3);
        disk.inject(at, SimFault::Fail);
        let saved = old.checkpoint(3, &[Variable::new("field", &state(3))]).unwrap().durable();
        if saved.is_ok() {
            break;
        }
        if steps(&plain, "r") != [0, 1, 2, 3] {
            continue;
        }
        tried += 1;
        // The next opening stands behind that number.
        let mut new = Run::open(options(&store, "r")).unwrap();
        save(&mut new, 4..14);
        compact(&store, "r");
        let log = plain.list("runs/r/log").unwrap();
        assert!(log.iter().all(|item| item.name != "000000000005"), "{log:?}");
        let refused = old.checkpoint(50, &[Variable::new("field", &state(3))]).unwrap().durable();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Busy);
        let log = plain.list("runs/r/log").unwrap();
        assert!(log.iter().any(|item| item.name == "000000000005"), "no mark: {log:?}");
        assert_eq!(steps(&plain, "r"), (0..14).collect::<Vec<_>>());
        compact(&store, "r");
        assert_eq!(steps(&plain, "r"), (0..14).collect::<Vec<_>>());
        drop((old, new));
        drop(Run::open(options(&store, "r")).unwrap());
        sound(&plain);
    }
    assert!(tried > 0, "no operation fails behind a commit");
}

#[test]
fn two_compactions_at_once_lose_nothing() {
    for at in 0..40u64 {
        let store = memory();
        written(&store, "r", 24);
        // The second one runs inside the first, before its call number `at`.
        let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (inner, counted) = (store.clone(), count.clone());
        let hooked: Arc<dyn Store> = Arc::new(HookedStore::with_locks(
            Arc::new(HookedStore::new(store.clone(), move |call| {
                let writes = matches!(
                    call,
                    Call::Put(_)
                        | Call::Finish(_)
                        | Call::Commit(_)
                        | Call::Delete(_)
                        | Call::List(_)
                );
                if writes && counted.fetch_add(1, Ordering::SeqCst) == at {
                    compact(&inner, "r");
                }
                Ok(())
            })),
            treering::testing::Locks::None,
        ));
        let done = Library::of(hooked).compact("r", ALL, &|_, _| {});
        if let Err(error) = done {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        }
        assert_eq!(steps(&store, "r"), (0..24).collect::<Vec<_>>(), "at {at}");
        compact(&store, "r");
        assert_eq!(steps(&store, "r"), (0..24).collect::<Vec<_>>(), "at {at}");
        sound(&store);
    }
}

#[test]
fn prune_beside_a_compaction_leaves_no_half_checkpoint() {
    const KEEP: Keep = Keep::newest(3);
    for (at, bundled) in (0..40u64).flat_map(|at| [(at, false), (at, true)]) {
        let store = memory();
        written(&store, "r", 24);
        if bundled {
            compact(&store, "r");
            let mut run = Run::open(options(&store, "r")).unwrap();
            save(&mut run, 24..40);
        }
        let before = steps(&store, "r");
        let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (inner, counted) = (store.clone(), count.clone());
        let hooked: Arc<dyn Store> = Arc::new(HookedStore::with_locks(
            Arc::new(HookedStore::new(store.clone(), move |call| {
                let counts = !matches!(call, Call::Open(_) | Call::Read(..) | Call::Append(..));
                if counts && counted.fetch_add(1, Ordering::SeqCst) == at {
                    match at % 2 {
                        0 => drop(Library::of(inner.clone()).prune("r", KEEP, &|_, _| {}).unwrap()),
                        _ => drop(compact(&inner, "r")),
                    }
                }
                Ok(())
            })),
            treering::testing::Locks::None,
        ));
        let library = Library::of(hooked);
        let error = match at % 2 {
            0 => library.compact("r", ALL, &|_, _| {}).err(),
            _ => library.prune("r", KEEP, &|_, _| {}).err(),
        };
        if let Some(error) = error {
            assert_eq!(error.kind(), ErrorKind::Busy, "at {at}: {error}");
        }
        let after = steps(&store, "r");
        assert_eq!(after[after.len() - 3..], before[before.len() - 3..], "at {at}");
        Library::of(store.clone()).prune("r", KEEP, &|_, _| {}).unwrap();
        compact(&store, "r");
        assert!(steps(&store, "r").len() < before.len());
        drop(Run::open(options(&store, "r")).unwrap());
        sound(&store);
    }
}

#[test]
fn prune_takes_checkpoints_out_of_bundles_and_frees_their_bytes() {
    let store = memory();
    written(&store, "r", 60);
    compact(&store, "r");
    let library = Library::of(store.clone());
    let size = |store: &Arc<dyn Store>| {
        bundles(store, "r").iter().map(|key| store.open(key).unwrap().size()).sum::<u64>()
    };
    let before = size(&store);
    let keep = Keep { every: Some(20), ..Keep::newest(1) };
    let plan = library.plan_prune("r", keep, &|_, _| {}).unwrap();
    let pruned = library.prune("r", keep, &|_, _| {}).unwrap();
    assert_eq!((&plan.removed, &plan.packs), (&pruned.removed, &pruned.packs));
    let kept: Vec<u64> = plan.kept.iter().map(|kept| kept.step).collect();
    assert_eq!(steps(&store, "r"), kept);
    assert!(size(&store) < before / 2, "{} of {before}", size(&store));
    sound(&store);
    // Without any of them nothing is left but the open epoch.
    let keep = Keep::newest(1);
    library.prune("r", keep, &|_, _| {}).unwrap();
    sound(&store);
    assert_eq!(bundles(&store, "r").len(), 2, "one bundle with the second epoch");
}

#[test]
fn a_branch_keeps_what_it_needs_in_the_other_runs_bundles() {
    let store = memory();
    written(&store, "r", 40);
    let library = Library::of(store.clone());
    compact(&store, "r");
    library.branch("r", Some(7), "side").unwrap();
    let mut run = Run::open(options(&store, "side")).unwrap();
    let mut field = vec![0; 1500];
    run.restore(&mut [VariableMut::new("field", &mut field)]).unwrap();
    assert_eq!(field, state(7));
    save(&mut run, 8..30);
    drop(run);
    let keep = Keep::newest(1);
    library.prune("r", keep, &|_, _| {}).unwrap();
    compact(&store, "side");
    compact(&store, "r");
    assert_eq!(steps(&store, "side"), (7..30).collect::<Vec<_>>());
    assert!(steps(&store, "r").len() < 10);
    sound(&store);
}

#[test]
fn without_space_whole_bundles_still_go_and_a_compaction_changes_nothing() {
    let store = memory();
    written(&store, "r", 24);
    let full = Arc::new(AtomicBool::new(true));
    let is_full = full.clone();
    let hooked: Arc<dyn Store> = Arc::new(HookedStore::new(store.clone(), move |call| {
        let writes = matches!(call, Call::Put(_) | Call::Append(..) | Call::Commit(_));
        match writes && is_full.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Full, "the store is full")),
            false => Ok(()),
        }
    }));
    let library = Library::of(hooked);
    let before = files(&store, "r");
    let refused = library.compact("r", ALL, &|_, _| {}).unwrap_err();
    assert_eq!((refused.kind(), files(&store, "r")), (ErrorKind::Full, before));
    full.store(false, Ordering::SeqCst);
    library.compact("r", ALL, &|_, _| {}).unwrap();
    let mut run = Run::open(options(&store, "r")).unwrap();
    save(&mut run, 24..50);
    drop(run);
    let epochs = library.checkpoints("r").unwrap().0;
    let newest = epochs.iter().rev().take_while(|c| c.epoch == epochs.last().unwrap().epoch);
    let keep = Keep::newest(newest.count() as u64 + 1);
    full.store(true, Ordering::SeqCst);
    let plan = library.prune("r", keep, &|_, _| {}).unwrap();
    assert!(plan.removed.iter().any(|gone| gone.step < 20), "{plan:?}");
    assert_eq!(bundles(&store, "r").len(), 0);
    assert_eq!(steps(&store, "r").len(), plan.kept.len());
    // One of which something stays cannot be written anew: its checkpoints stay, and a note says so.
    full.store(false, Ordering::SeqCst);
    let mut run = Run::open(options(&store, "r")).unwrap();
    save(&mut run, 50..80);
    drop(run);
    library.compact("r", ALL, &|_, _| {}).unwrap();
    full.store(true, Ordering::SeqCst);
    let keep = Keep { every: Some(60), ..Keep::newest(1) };
    let before = steps(&store, "r");
    let plan = library.prune("r", keep, &|_, _| {}).unwrap();
    assert!(plan.notes.iter().any(|note| note.contains("no room")), "{:?}", plan.notes);
    assert_eq!(steps(&store, "r"), plan.kept.iter().map(|k| k.step).collect::<Vec<_>>());
    full.store(false, Ordering::SeqCst);
    library.prune("r", keep, &|_, _| {}).unwrap();
    assert!(steps(&store, "r").len() < before.len());
    sound(&store);
}

#[test]
fn damage_in_any_byte_of_a_bundle_is_found_and_never_restored() {
    let store = memory();
    let mut run = Run::open(options(&store, "r").growth(1000.0)).unwrap();
    save(&mut run, 0..2);
    drop(run);
    // A second and a third epoch, so that the first one is closed.
    for step in 2..4 {
        let mut run = Run::open(options(&store, "r")).unwrap();
        save(&mut run, step..step + 1);
    }
    compact(&store, "r");
    let keys = bundles(&store, "r");
    assert_eq!(keys.len(), 2, "{keys:?}");
    for key in keys {
        let whole = bytes(&store, &key);
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 0x40;
            store.delete(std::slice::from_ref(&key)).unwrap();
            assert!(store.commit(&key, &bad).unwrap());
            let library = Library::of(store.clone());
            let report = library.verify(None, true, &|_, _| {}).unwrap();
            assert!(!report.is_sound(), "{key}: byte {at}");
            for step in 0..4 {
                if let Ok(read) =
                    library.checkpoint("r", Some(step)).and_then(|c| c.read::<u8>("field"))
                {
                    assert_eq!(read, state(step), "{key}: byte {at}");
                }
            }
            // Either index will do.
            let newest = library.checkpoint("r", None).unwrap();
            assert_eq!(newest.step(), 3, "{key}: byte {at}");
            if key.ends_with(".index") {
                assert_eq!(report.sound, 4, "byte {at}");
            }
        }
        store.delete(std::slice::from_ref(&key)).unwrap();
        assert!(store.commit(&key, &whole).unwrap());
    }
    sound(&store);
}

#[test]
fn a_bundle_whose_data_is_gone_is_damage() {
    let store = memory();
    written(&store, "r", 24);
    compact(&store, "r");
    let data = bundles(&store, "r").into_iter().find(|key| !key.ends_with(".index")).unwrap();
    let (whole, key) = (bytes(&store, &data), std::slice::from_ref(&data));
    store.delete(key).unwrap();
    let report = Library::of(store.clone()).verify(None, false, &|_, _| {}).unwrap();
    let found: Vec<_> = report.findings.iter().map(|finding| format!("{finding:?}")).collect();
    assert!(found.len() == 1 && found[0].contains("entries of the log is gone"), "{found:?}");
    assert!(store.commit(&data, &whole).unwrap());
    sound(&store);
}

#[test]
fn a_bundle_without_any_index_keeps_prune_from_removing_and_can_be_given_up() {
    let store = memory();
    written(&store, "r", 24);
    compact(&store, "r");
    for key in bundles(&store, "r") {
        let mut bad = bytes(&store, &key);
        let at = bad.len() - 30;
        bad[at] ^= 1;
        store.delete(std::slice::from_ref(&key)).unwrap();
        assert!(store.commit(&key, &bad).unwrap());
    }
    let library = Library::of(store.clone());
    assert!(!library.verify(None, false, &|_, _| {}).unwrap().is_sound());
    let mut field = vec![0; 1500];
    let mut run = Run::open(options(&store, "r")).unwrap();
    let restored = run.restore(&mut [VariableMut::new("field", &mut field)]).unwrap().unwrap();
    assert_eq!((restored.step, field), (23, state(23)));
    drop(run);
    let keep = Keep::newest(1);
    assert_eq!(library.prune("r", keep, &|_, _| {}).unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!(library.compact("r", ALL, &|_, _| {}).unwrap().bundles, []);
    library.prune("r", Keep { forget_damaged: true, ..keep }, &|_, _| {}).unwrap();
    assert_eq!(bundles(&store, "r").len(), 0);
    assert_eq!(steps(&store, "r").last(), Some(&23));
    sound(&store);
}

#[test]
fn the_last_tier_is_compacted_behind_a_program_with_a_node() {
    let (store, node) = (memory(), memory());
    let rule = Compaction { files: 20, ..Compaction::default() };
    let options = options(&store, "r").compact(Some(rule)).node(node.clone());
    let mut run = Run::open(options.clone()).unwrap();
    save(&mut run, 0..100);
    run.finish().unwrap();
    assert!(files(&store, "r") < 80, "{}", files(&store, "r"));
    assert_eq!(bundles(&node, "r").len(), 0);
    assert_eq!(steps(&store, "r").len(), 100);
    let mut run = Run::open(options).unwrap();
    save(&mut run, 100..110);
    drop(run);
    assert_eq!(steps(&store, "r").len(), 110);
    let refused = Library::of(node).compact("r", ALL, &|_, _| {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Usage);
    sound(&store);
}

#[test]
fn a_compaction_that_fails_is_a_note_and_no_failed_save() {
    let store = memory();
    let hooked: Arc<dyn Store> = Arc::new(HookedStore::new(store.clone(), |call| match call {
        Call::Put(key) if key.contains("/bundles/") => {
            Err(Error::new(ErrorKind::Io, "no bundles today"))
        }
        _ => Ok(()),
    }));
    let rule = Compaction { files: 10, ..Compaction::default() };
    let mut run = Run::open(options(&hooked, "r").compact(Some(rule))).unwrap();
    save(&mut run, 0..50);
    // It happens between saves; the last of them may have come before it.
    for _ in 0..500 {
        if !run.upkeep_notes().is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(run.upkeep_notes()[0].contains("no bundles today"));
    assert!(run.failures().is_empty());
    run.finish().unwrap();
    assert_eq!(steps(&store, "r").len(), 50);
    assert_eq!(bundles(&store, "r").len(), 0);
}

//! Copying and renaming runs: everything arrives verified, appears at once or not at all, and nothing is lost on the way.

use crate::levels::{LONG, memory};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use treering::testing::{Call, HookedStore};
use treering::{
    Bound, ChunkSize, Compaction, DirectoryStore, Encoding, Error, ErrorKind, Keep, Library,
    MemoryStore, Options, Run, Store, ThreadRanks, Variable, VariableMut,
};

const ALL: Compaction = Compaction { files: 3, pack_bytes: 1 << 20 };

fn state(step: u64) -> Vec<u64> {
    (0..700).map(|at| at * 31 + step * u64::from(at % 90 == step % 90)).collect()
}

fn options(store: &Arc<dyn Store>, run: &str) -> Options {
    let options = Options::in_store(store.clone(), run).compact(None).growth(1.5);
    options.chunk(ChunkSize::new(64).unwrap()).encoding(Encoding::Zstd(1)).label("git", "4542149")
}

/// Goes on with a run and saves some steps.
fn save(store: &Arc<dyn Store>, run: &str, steps: std::ops::Range<u64>) {
    let mut run = Run::open(options(store, run)).unwrap();
    let mut data = state(0);
    run.restore(&mut [VariableMut::new("x", &mut data).optional()]).unwrap();
    for step in steps {
        let data = state(step);
        let x = Variable::new("x", &data).attribute("units", "K");
        run.checkpoint(step, &[x]).unwrap().durable().unwrap();
    }
    run.finish().unwrap();
}

fn steps(store: &Arc<dyn Store>, run: &str) -> Vec<u64> {
    let library = Library::of(store.clone());
    match library.checkpoints(run) {
        Ok((all, trouble)) => {
            assert!(trouble.is_empty(), "{trouble:?}");
            for info in &all {
                assert_eq!(info.labels.get("git"), Some("4542149"));
                let checkpoint = library.checkpoint(run, Some(info.step)).unwrap();
                assert!(checkpoint.read::<u64>("x").unwrap() == state(info.step), "{}", info.step);
                let x = checkpoint.variables().find(|v| v.name == "x").unwrap();
                assert_eq!(x.attributes.get("units"), Some("K"));
            }
            all.iter().map(|info| info.step).collect()
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            Vec::new()
        }
    }
}

fn assert_sound(store: &Arc<dyn Store>) -> treering::VerifyReport {
    let report = Library::of(store.clone()).verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    report
}

/// Sound, and there is nothing that no checkpoint needs.
fn assert_tidy(store: &Arc<dyn Store>) {
    assert_eq!(assert_sound(store).unreferenced, [] as [String; 0]);
}

fn copy(from: &Arc<dyn Store>, steps: &[u64], to: &Arc<dyn Store>, new: &str) {
    let (from, to) = (Library::of(from.clone()), Library::of(to.clone()));
    let planned = from.plan_copy("r", steps, &to, new).unwrap();
    let last = Mutex::new((0, 0));
    let told = |done, total| *last.lock().unwrap() = (done, total);
    let copied = from.copy_run("r", steps, &to, new, &told).unwrap();
    assert_eq!(planned, copied);
    assert_eq!(last.into_inner().unwrap(), (copied.bytes, copied.bytes));
}

#[test]
fn a_copy_is_a_run_like_any_other() {
    let (store, other) = (memory(), memory());
    save(&store, "r", 0..7);
    save(&store, "r", 7..9);
    // An abandoned branch: two writers of one epoch.
    let mut run = Run::open(options(&store, "r")).unwrap();
    let mut data = state(0);
    run.restore_step(5, &mut [VariableMut::new("x", &mut data)]).unwrap();
    let data = state(6);
    run.checkpoint(6, &[Variable::new("x", &data).attribute("units", "K")]).unwrap();
    run.finish().unwrap();
    let all = [0, 1, 2, 3, 4, 5, 6, 7, 8, 6];
    assert_eq!(steps(&store, "r"), all);
    copy(&store, &[], &other, "n");
    assert_eq!(steps(&other, "n"), all);
    let info = |store: &Arc<dyn Store>, run: &str| -> Vec<(u64, bool, u64, bool)> {
        let (all, _) = Library::of(store.clone()).checkpoints(run).unwrap();
        let whole = |c: &treering::CheckpointInfo| c.epoch.sequence == c.sequence;
        all.iter().map(|c| (c.time, c.abandoned, c.source_bytes, whole(c))).collect()
    };
    assert_eq!(info(&store, "r"), info(&other, "n"));
    assert_tidy(&other);
    // A program goes on with it, tools work on it, and the original is as it was.
    save(&other, "n", 9..14);
    let library = Library::of(other.clone());
    library.compact("n", ALL, &|_, _| {}).unwrap();
    let keep = Keep::newest(1);
    let plan = library.prune("n", keep, &|_, _| {}).unwrap();
    assert!(plan.removed.len() > 5 && !plan.packs.is_empty(), "{plan:?}");
    assert_sound(&other);
    assert_eq!(steps(&store, "r"), all);
}

#[test]
fn what_a_prune_of_a_copy_keeps_is_all_that_stays() {
    let (store, other) = (memory(), memory());
    save(&store, "r", 0..12);
    copy(&store, &[], &other, "n");
    let keep = Keep::newest(1);
    Library::of(other.clone()).prune("n", keep, &|_, _| {}).unwrap();
    // Nobody has opened it since: all packs that no checkpoint names are gone.
    assert_tidy(&other);
    assert!(steps(&other, "n").len() < 12);
}

#[test]
fn steps_branches_and_bundles_are_copied_with_what_they_need() {
    let (store, other) = (memory(), memory());
    save(&store, "r", 0..10);
    copy(&store, &[3, 8], &other, "some");
    assert_eq!(steps(&other, "some"), [3, 8]);
    let library = Library::of(store.clone());
    library.branch("r", Some(4), "b").unwrap();
    save(&store, "b", 20..23);
    library.compact("r", ALL, &|_, _| {}).unwrap();
    library.compact("b", ALL, &|_, _| {}).unwrap();
    let to = Library::of(other.clone());
    library.copy_run("b", &[], &to, "b", &|_, _| {}).unwrap();
    assert_eq!(steps(&other, "b"), [4, 20, 21, 22]);
    assert_sound(&other);
    copy(&store, &[], &store, "again");
    library.remove_run("b").unwrap();
    library.remove_run("r").unwrap();
    assert_eq!(steps(&store, "again"), (0..10).collect::<Vec<_>>());
    assert_sound(&store);
    save(&other, "b", 23..25);
    assert_sound(&other);
}

#[test]
fn checkpoints_of_many_groups_are_copied() {
    let (store, other) = (memory(), memory());
    let shared = store.clone();
    let ends = ThreadRanks::new(70).run(move |comm| {
        let rank = u64::from(comm.rank().0);
        let options = options(&shared, "r").ranks(comm).ranks_per_pack(1).patience(LONG);
        let mut run = Run::open(options).unwrap();
        for step in 0..2u64 {
            let data = vec![rank * 100 + step; 20];
            run.checkpoint(step, &[Variable::new("x", &data).rows()]).unwrap();
        }
        run.finish().unwrap();
    });
    assert!(ends.into_iter().all(|end| end.done().is_some()));
    copy(&store, &[], &other, "n");
    let all = |store: &Arc<dyn Store>, run: &str| -> Vec<Vec<u64>> {
        let library = Library::of(store.clone());
        let of = |step| library.checkpoint(run, Some(step)).unwrap().read_box("x", &[0], &[1400]);
        [0, 1].map(|step| of(step).unwrap()).into()
    };
    assert!(all(&store, "r") == all(&other, "n"));
    assert_sound(&other);
    assert!(other.list("runs/n/log").unwrap().iter().all(|item| item.size <= 8192));
}

/// Not even a lock, whose folder would look like a run.
#[test]
fn a_copy_of_a_missing_step_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let library = {
        let mut run = Run::open(Options::directory(folder.path(), "r")).unwrap();
        run.checkpoint(0, &[Variable::new("x", &[1u64; 20])]).unwrap().durable().unwrap();
        run.finish().unwrap();
        Library::open(folder.path()).unwrap()
    };
    assert!(library.copy_run("r", &[7], &library, "m", &|_, _| {}).is_err());
    assert!(!folder.path().join("runs/m").exists());
    library.copy_run("r", &[0], &library, "m", &|_, _| {}).unwrap();
    assert!(folder.path().join("runs/m").exists());
}

#[test]
fn what_cannot_be_copied_is_refused_and_leaves_nothing() {
    let (store, other) = (memory(), memory());
    save(&store, "r", 0..3);
    save(&other, "n", 0..1);
    let (from, to) = (Library::of(store.clone()), Library::of(other.clone()));
    let refused = |run: &str, steps: &[u64], new: &str, words: &str| {
        let error = from.copy_run(run, steps, &to, new, &|_, _| {}).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused("r", &[], "n", "there is a run \"n\" already");
    refused("r", &[], "../x", "name");
    refused("r", &[7], "m", "no checkpoint of step 7");
    refused("q", &[], "m", "no run \"q\"");
    assert!(from.rename_run("q", "m", &|_, _| {}).is_err());
    drop(Run::open(options(&store, "empty")).unwrap());
    refused("empty", &[], "m", "no checkpoint yet");
    assert!(from.rename_run("empty", "m", &|_, _| {}).is_err());
    from.branch("r", Some(1), "b").unwrap();
    let error = from.rename_run("r", "m", &|_, _| {}).unwrap_err().to_string();
    assert!(error.contains("\"b\" is a branch"), "{error}");
    // A damaged pack is found on the way.
    let key = store.list("runs/r/packs").unwrap()[1].name.clone();
    let key = format!("runs/r/packs/{key}");
    let blob = store.open(&key).unwrap();
    let mut bytes = vec![0; blob.size() as usize];
    blob.read_at(0, &mut bytes).unwrap();
    bytes[20] ^= 1;
    store.delete(std::slice::from_ref(&key)).unwrap();
    store.commit(&key, &bytes).unwrap();
    let error = Library::of(store).copy_run("r", &[], &to, "m", &|_, _| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains("runs/r/packs"), "{error}");
    assert!(other.list("runs/m/packs").unwrap().is_empty());
    assert!(other.list("runs/m/log").unwrap().is_empty());
    assert_eq!(to.runs().unwrap().len(), 1);
}

#[test]
fn a_run_is_renamed_with_its_trees() {
    let store = memory();
    save(&store, "r", 0..5);
    let library = Library::of(store.clone());
    library.make_trees("r", None, &[], &trees(), &|_, _| {}).unwrap();
    let renamed = library.rename_run("r", "n", &|_, _| {}).unwrap();
    assert_eq!((renamed.run.as_str(), renamed.new.as_str()), ("r", "n"));
    assert_eq!(renamed.steps, [0, 1, 2, 3, 4]);
    let names: Vec<String> = library.runs().unwrap().into_iter().map(|run| run.name).collect();
    assert_eq!(names, ["n", "n+trees"]);
    assert_eq!(steps(&store, "n"), [0, 1, 2, 3, 4]);
    assert!(store.list("runs/r/packs").unwrap().is_empty());
    assert_sound(&store);
    save(&store, "n", 5..7);
    save(&store, "r", 0..1);
    assert_sound(&store);
}

fn trees() -> treering::TreeSettings {
    treering::TreeSettings { bounds: vec![Bound::Bits], ..Default::default() }
}

#[test]
fn a_living_program_keeps_its_run_or_stops() {
    // With locks it is refused.
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut run = Run::open(options(&store, "r")).unwrap();
    let data = state(0);
    let x = || Variable::new("x", &data).attribute("units", "K");
    run.checkpoint(0, &[x()]).unwrap().durable().unwrap();
    let library = Library::of(store.clone());
    let error = library.rename_run("r", "n", &|_, _| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    // Copying works beside it.
    copy(&store, &[], &store, "c");
    assert_eq!((steps(&store, "c"), steps(&store, "n")), (vec![0], vec![]));
    run.checkpoint(1, &[x()]).unwrap();
    run.finish().unwrap();
    // Without locks the program is the one that stops, and nothing that it saved is lost.
    let store = memory();
    let mut run = Run::open(options(&store, "r")).unwrap();
    run.checkpoint(0, &[x()]).unwrap().durable().unwrap();
    Library::of(store.clone()).rename_run("r", "n", &|_, _| {}).unwrap();
    assert!(run.checkpoint(1, &[x()]).unwrap().durable().is_err());
    drop(run);
    assert_eq!(steps(&store, "n"), [0]);
    assert_sound(&store);
}

/// A store of which every call from a certain one on fails, as if the process had been killed there.
fn dying(inner: &Arc<dyn Store>, dies_at: usize) -> Arc<dyn Store> {
    let left = Mutex::new(dies_at);
    Arc::new(HookedStore::new(inner.clone(), move |call| {
        let mut left = left.lock().unwrap();
        if matches!(call, Call::Read(..)) {
            return Ok(());
        }
        match left.checked_sub(1) {
            Some(less) => *left = less,
            None => return Err(Error::new(ErrorKind::Io, "the machine is gone")),
        }
        Ok(())
    }))
}

/// A store with the same objects.
fn twin(of: &Arc<dyn Store>) -> Arc<dyn Store> {
    let twin = memory();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for item in of.list(&folder).unwrap() {
            let key = format!("{folder}{}{}", if folder.is_empty() { "" } else { "/" }, item.name);
            if item.folder {
                folders.push(key);
                continue;
            }
            let blob = of.open(&key).unwrap();
            let mut bytes = vec![0; blob.size() as usize];
            blob.read_at(0, &mut bytes).unwrap();
            assert!(twin.commit(&key, &bytes).unwrap());
        }
    }
    twin
}

#[test]
fn a_copy_that_is_interrupted_anywhere_shows_all_or_nothing() {
    let store = memory();
    save(&store, "r", 0..3);
    let (mut seen, mut dies_at) = (BTreeSet::new(), 0);
    loop {
        let other = memory();
        let to = Library::of(dying(&other, dies_at));
        let copied = Library::of(store.clone()).copy_run("r", &[], &to, "n", &|_, _| {});
        let found = steps(&other, "n");
        assert!(found.is_empty() || found == [0, 1, 2], "{dies_at}: {found:?}");
        seen.insert((copied.is_ok(), found.len()));
        let library = Library::of(other.clone());
        if found.is_empty() {
            // The remains are no obstacle once they are removed.
            match library.remove_run("n") {
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
                Ok(removed) => assert_eq!(removed.checkpoints, 0),
            }
            copy(&store, &[], &other, "n");
            assert_eq!(steps(&other, "n"), [0, 1, 2]);
        }
        if copied.is_ok() {
            break;
        }
        dies_at += 1;
    }
    assert!(dies_at > 20, "{dies_at}");
    assert_eq!(seen, BTreeSet::from([(false, 0), (false, 3), (true, 3)]));
}

#[test]
fn a_renaming_that_is_interrupted_anywhere_loses_nothing() {
    let store = memory();
    save(&store, "r", 0..3);
    let mut dies_at = 0;
    loop {
        let other = twin(&store);
        let renamed = Library::of(dying(&other, dies_at)).rename_run("r", "n", &|_, _| {});
        let (old, new) = (steps(&other, "r"), steps(&other, "n"));
        assert!(new.is_empty() || new == [0, 1, 2], "{dies_at}: {new:?}");
        assert!(!new.is_empty() || old == [0, 1, 2], "{dies_at}: {old:?}");
        let report = Library::of(other.clone()).verify(None, true, &|_, _| {}).unwrap();
        assert!(report.is_sound(), "{dies_at}: {:?}", report.findings);
        if renamed.is_ok() {
            assert!(old.is_empty());
            assert_tidy(&other);
            break;
        }
        dies_at += 1;
    }
    assert!(dies_at > 30, "{dies_at}");
}

#[test]
fn who_takes_the_name_of_a_copy_meanwhile_keeps_it() {
    let store = memory();
    save(&store, "r", 0..2);
    let inner = memory();
    let other = inner.clone();
    let once = Mutex::new(true);
    let hooked: Arc<dyn Store> = Arc::new(HookedStore::new(inner.clone(), move |call| {
        // The copy is complete but for its last manifest.
        let last = matches!(call, Call::Commit(key) if key.ends_with("log/000000000003"));
        if last && std::mem::take(&mut *once.lock().unwrap()) {
            save(&other, "n", 7..9);
        }
        Ok(())
    }));
    let to = Library::of(hooked);
    let error = Library::of(store).copy_run("r", &[], &to, "n", &|_, _| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(steps(&inner, "n"), [7, 8]);
    let report = Library::of(inner).verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

/// Whatever moment a run or its old checkpoints are removed at, whoever verifies the store then reports no damage.
#[test]
fn what_is_removed_while_it_is_verified_is_no_damage() {
    for (whole, compacted) in [(true, false), (true, true), (false, false), (false, true)] {
        for moment in 0..40 {
            let store = memory();
            (0..4).for_each(|part| save(&store, "r", part * 3..part * 3 + 3));
            save(&store, "other", 0..2);
            if compacted {
                Library::of(store.clone()).compact("r", ALL, &|_, _| {}).unwrap();
            }
            let (inner, calls) = (store.clone(), AtomicU64::new(0));
            let seen: Arc<dyn Store> = Arc::new(HookedStore::new(store, move |call| {
                let reads = matches!(call, Call::Open(_) | Call::List(_));
                if reads && calls.fetch_add(1, Ordering::SeqCst) == moment * 3 {
                    let library = Library::of(inner.clone());
                    match whole {
                        true => drop(library.remove_run("r").unwrap()),
                        false => drop(library.prune("r", Keep::newest(1), &|_, _| {}).unwrap()),
                    }
                }
                Ok(())
            }));
            let what = format!("whole: {whole}, compacted: {compacted}, call {}", moment * 3);
            let report = Library::of(seen).verify(None, true, &|_, _| {}).unwrap();
            assert_eq!(report.findings, [], "{what}");
            assert!(report.sound == report.checkpoints && report.sound >= 2, "{what}");
        }
    }
}

/// Damage stays reported, also if a checkpoint that needed the data is removed meanwhile.
#[test]
fn damage_is_reported_whatever_is_removed_while_it_is_verified() {
    for (moment, run) in (0..40).flat_map(|moment| [(moment, None), (moment, Some("r"))]) {
        let store = memory();
        save(&store, "r", 0..3);
        Library::of(store.clone()).branch("r", Some(2), "b").unwrap();
        (1..4).for_each(|part| save(&store, "r", part * 3..part * 3 + 3));
        // Of the branch, and of a run that has lost its log.
        save(&store, "lost", 0..1);
        for item in store.list("runs/lost/log").unwrap() {
            store.delete(&[format!("runs/lost/log/{}", item.name)]).unwrap();
        }
        let opening = store.list("runs/lost/openings").unwrap().remove(0).name;
        // Of the first writer's packs, the branch needs some.
        let packs = store.list("runs/r/packs").unwrap().into_iter();
        let packs = packs.filter(|pack| pack.name.starts_with("000001-"));
        let mut places: Vec<String> =
            packs.map(|pack| format!("runs/r/packs/{}", pack.name)).collect();
        places.push(format!("runs/lost/openings/{opening}"));
        for place in &places {
            let mut bytes = vec![0; store.open(place).unwrap().size() as usize];
            store.open(place).unwrap().read_at(0, &mut bytes).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            store.delete(std::slice::from_ref(place)).unwrap();
            let mut put = store.put(place).unwrap();
            put.append(&bytes).unwrap();
            put.finish().unwrap();
        }
        let (inner, calls) = (store.clone(), AtomicU64::new(0));
        let seen: Arc<dyn Store> = Arc::new(HookedStore::new(store.clone(), move |call| {
            // With one run alone, packs of what is gone at the begin are not looked at: all of them have been read.
            let reads = match run {
                None => matches!(call, Call::Open(_) | Call::List(_)),
                Some(_) => matches!(call, Call::Read(key, _) if key.contains("/packs/")),
            };
            let due = if run.is_some() { 24 + moment } else { moment * 3 };
            if reads && calls.fetch_add(1, Ordering::SeqCst) == due {
                let pruned = Library::of(inner.clone()).prune("r", Keep::newest(1), &|_, _| {});
                assert!(pruned.unwrap().removed.len() > 8);
            }
            Ok(())
        }));
        let report = Library::of(seen).verify(run, true, &|_, _| {}).unwrap();
        let is_wanted = |place: &String| run.is_none() || place.starts_with("runs/r/");
        places.retain(|place| store.open(place).is_ok() && is_wanted(place));
        assert!(!places.is_empty());
        for place in places {
            let found = report.findings.iter().any(|finding| finding.place.starts_with(&place));
            assert!(found, "{place} at moment {moment} of {run:?}: {:?}", report.findings);
        }
    }
}

/// A store that is not there any more is not sound.
#[test]
fn a_store_that_vanishes_while_it_is_verified_is_an_error() {
    for moment in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("store");
        let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(&place));
        save(&store, "r", 0..3);
        save(&store, "s", 0..3);
        let (away, calls) = (folder.path().join("away"), AtomicU64::new(0));
        let seen: Arc<dyn Store> = Arc::new(HookedStore::new(store, move |call| {
            let reads = matches!(call, Call::Open(_) | Call::List(_));
            if reads && calls.fetch_add(1, Ordering::SeqCst) == 8 + moment * 2 {
                std::fs::rename(&place, &away).unwrap();
            }
            Ok(())
        }));
        let report = Library::of(seen).verify(None, true, &|_, _| {});
        if folder.path().join("away").exists() {
            let sound = report.as_ref().is_ok_and(|report| report.is_sound());
            assert!(!sound, "call {}: {report:?}", 8 + moment * 2);
        }
    }
}

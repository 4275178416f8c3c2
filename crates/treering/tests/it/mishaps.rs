//! Mishaps of stores: people move them, prune them, lose a file, look at them while they change.

use std::path::{Path, PathBuf};
use treering::{ErrorKind, Keep, Library, Options, Run, Variable, VariableMut};

fn field(step: u64) -> Vec<u64> {
    (0..5000).map(|i| if i / 100 == step { step + i } else { 7 }).collect()
}

fn save(run: &mut Run, step: u64) -> treering::Result<()> {
    run.checkpoint(step, &[Variable::new("x", &field(step))])?.durable()
}

/// A store in a temporary folder, with a run of this many steps.
fn store(folder: &Path, steps: u64) -> PathBuf {
    let store = folder.join("store");
    let mut run = Run::open(Options::directory(&store, "r").growth(3.0)).unwrap();
    (0..steps).for_each(|step| save(&mut run, step).unwrap());
    run.finish().unwrap();
    store
}

fn keep(last: u64, every: Option<u64>) -> Keep {
    Keep { every, ..Keep::newest(last) }
}

#[test]
fn a_store_that_is_moved_away_is_not_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (folder.path().join("store"), folder.path().join("elsewhere"));
    let mut run = Run::open(Options::directory(&here, "r").growth(100.0)).unwrap();
    save(&mut run, 0).unwrap();
    std::fs::rename(&here, &there).unwrap();
    assert_eq!(save(&mut run, 1).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(save(&mut run, 2).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!here.exists());
    std::fs::rename(&there, &here).unwrap();
    save(&mut run, 3).unwrap();
    run.failures();
    run.finish().unwrap();
    let report = Library::open(&here).unwrap().verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound() && report.checkpoints == 2, "{:?}", report.findings);
}

#[test]
fn pruned_checkpoints_leave_no_gap_in_the_lineage() {
    let folder = tempfile::tempdir().unwrap();
    let library = Library::open(store(folder.path(), 30)).unwrap();
    library.prune("r", keep(2, Some(5)), &|_, _| {}).unwrap();
    let (checkpoints, _) = library.checkpoints("r").unwrap();
    let steps: Vec<u64> = checkpoints.iter().map(|c| c.step).collect();
    assert!([0, 5, 10, 15, 20, 25, 28, 29].iter().all(|s| steps.contains(s)), "{steps:?}");
    assert!(checkpoints.iter().all(|c| !c.abandoned));
    let back: Vec<u64> = library.backwards("r").unwrap().map(|state| state.unwrap().step).collect();
    assert_eq!(back, steps.into_iter().rev().collect::<Vec<_>>());
}

#[test]
fn a_damaged_manifest_keeps_packs_until_it_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), 12);
    let damage = |number: u64| {
        let path = store.join(format!("runs/r/log/{number:012}"));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[40] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    let library = Library::open(&store).unwrap();
    // Number 1 is the opening, which names no packs.
    damage(1);
    assert!(library.plan_prune("r", keep(3, None), &|_, _| {}).is_ok());
    damage(4);
    let refused = library.prune("r", keep(3, None), &|_, _| {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Damaged);
    assert!(refused.to_string().contains("--forget-damaged"));
    let forget = Keep { forget_damaged: true, ..keep(3, None) };
    let plan = library.prune("r", forget, &|_, _| {}).unwrap();
    assert_eq!(plan.forgotten, [treering::Sequence(4)]);
    assert!(library.plan_prune("r", keep(3, None), &|_, _| {}).is_ok());
    assert_eq!(library.checkpoint("r", None).unwrap().read::<u64>("x").unwrap(), field(11));
}

/// The entry of an opening is damaged beyond recognition, and given up: what its writer made stays, whoever opens the run
/// since.
#[test]
fn an_opening_that_is_given_up_costs_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), 3);
    let again = |steps: std::ops::Range<u64>| {
        let mut run = Run::open(Options::directory(&store, "r").growth(3.0)).unwrap();
        run.restore(&mut [VariableMut::new("x", &mut [0u64; 5000])]).unwrap();
        steps.for_each(|step| save(&mut run, step).unwrap());
        run.finish().unwrap();
    };
    again(3..6);
    // Numbers 2 to 4 are of the first opening, 5 is the second one.
    std::fs::write(store.join("runs/r/log/000000000005"), [0; 100]).unwrap();
    let library = Library::open(&store).unwrap();
    let forget = Keep { forget_damaged: true, ..keep(100, None) };
    let plan = library.prune("r", forget, &|_, _| {}).unwrap();
    assert_eq!(plan.forgotten, [treering::Sequence(5)]);
    again(6..8);
    again(8..9);
    let library = Library::open(&store).unwrap();
    let (listed, trouble) = library.checkpoints("r").unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    assert_eq!(listed.iter().map(|c| c.step).collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
    for step in 0..9 {
        let found = library.checkpoint("r", Some(step)).unwrap();
        assert_eq!(found.read::<u64>("x").unwrap(), field(step), "{step}");
    }
}

#[test]
fn a_branch_does_not_begin_with_what_cannot_be_restored() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), 3);
    for entry in std::fs::read_dir(store.join("runs/r/packs")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let library = Library::open(&store).unwrap();
    assert_eq!(library.branch("r", None, "b").unwrap_err().kind(), ErrorKind::Damaged);
    assert!(library.checkpoint("b", None).is_err());
}

#[test]
fn a_fallback_that_does_not_fit_says_why_it_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut run = Run::open(Options::directory(&store, "r")).unwrap();
    run.checkpoint(0, &[Variable::new("x", &[1u64, 2])]).unwrap();
    run.checkpoint(1, &[Variable::new("x", &[1u64, 2, 3])]).unwrap();
    run.finish().unwrap();
    let packs = std::fs::read_dir(store.join("runs/r/packs")).unwrap();
    let newest = packs.map(|e| e.unwrap().path()).max().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[18] ^= 1;
    std::fs::write(newest, bytes).unwrap();
    let mut run = Run::open(Options::directory(&store, "r")).unwrap();
    let mut data = [0u64; 3];
    let error = run.restore(&mut [VariableMut::new("x", &mut data)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let text = error.to_string();
    assert!(text.contains("step 1 cannot be used") && text.contains("shape"), "{text}");
}

#[test]
fn thousands_of_variables_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let names: Vec<String> = (0..3000).map(|i| format!("particle/{i}")).collect();
    let mut data: Vec<[f64; 2]> = (0..3000).map(|i| [f64::from(i), 0.5]).collect();
    let mut run = Run::open(Options::directory(&store, "r").growth(100.0)).unwrap();
    for step in 0..3 {
        data[step as usize][1] = 9.0;
        let variables: Vec<Variable> =
            names.iter().zip(&data).map(|(name, data)| Variable::new(name, &data[..])).collect();
        let save = run.checkpoint(step, &variables).unwrap();
        assert!(step == 0 || save.changed_bytes() == 16);
    }
    run.finish().unwrap();
    let mut back = vec![[0.0f64; 2]; 3000];
    let mut targets: Vec<VariableMut> = names
        .iter()
        .zip(&mut back)
        .map(|(name, data)| VariableMut::new(name, &mut data[..]))
        .collect();
    let mut run = Run::open(Options::directory(&store, "r")).unwrap();
    assert_eq!(run.restore(&mut targets).unwrap().unwrap().step, 2);
    assert_eq!(back, data);
}

#[test]
fn a_relative_store_stays_where_it_is_when_the_program_changes_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    [&a, &b].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    std::thread::scope(|scope| {
        let program = scope.spawn(|| {
            // SAFETY: only gives this thread, and those that it starts, a working directory of their own.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
            std::env::set_current_dir(&a).unwrap();
            let mut run = Run::open(Options::directory("store", "r")).unwrap();
            save(&mut run, 0).unwrap();
            std::env::set_current_dir(&b).unwrap();
            save(&mut run, 1).unwrap();
            let mut x = vec![0u64; 5000];
            let restored = run.restore(&mut [VariableMut::new("x", &mut x)]).unwrap().unwrap();
            assert_eq!((restored.step, &x), (1, &field(1)));
            run.finish().unwrap();
        });
        program.join().unwrap();
    });
    assert_eq!(std::fs::read_dir(&b).unwrap().count(), 0);
    let (infos, trouble) = Library::open(a.join("store")).unwrap().checkpoints("r").unwrap();
    assert_eq!((infos.len(), trouble.len()), (2, 0));
}

#[test]
fn a_bound_that_no_variable_has_is_noted() {
    let store = std::sync::Arc::new(treering::MemoryStore::default());
    let bound = treering::Bound::abs(1e-6);
    let options = Options::in_store(store, "r").bound("x", bound).bound("prssure*", bound);
    let mut run = Run::open(options).unwrap();
    assert!(run.notes().is_empty());
    let x = [0.5f64; 1000];
    run.checkpoint(0, &[Variable::new("x", &x)]).unwrap();
    run.checkpoint(1, &[Variable::new("x", &x)]).unwrap();
    let notes = run.notes().join("\n");
    assert_eq!(notes.matches("no variable").count(), 1, "{notes}");
    assert!(notes.contains("\"prssure*\""), "{notes}");
    run.finish().unwrap();
}

/// A program that was killed while it opened a new run leaves folders, and no run: nobody lists it, nobody finds it.
#[test]
fn a_run_that_was_not_opened_to_the_end_is_none() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("runs/ghost/log")).unwrap();
    let run = Run::open(Options::directory(folder.path(), "real")).unwrap();
    run.finish().unwrap();
    let library = Library::of(std::sync::Arc::new(treering::DirectoryStore::new(folder.path())));
    let names: Vec<String> = library.runs().unwrap().into_iter().map(|run| run.name).collect();
    assert_eq!(names, ["real"]);
    assert_eq!(library.checkpoints("ghost").unwrap_err().kind(), treering::ErrorKind::NotFound);
}

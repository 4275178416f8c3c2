//! The watcher with probes that are made up: writers that nobody sees, or that close when told.

use super::*;
use crate::array::Variable;
use crate::ingest::watch::writers::Openness;
use crate::ingest::{IngestSettings, Merge};
use crate::library::Place;
use crate::run::Run;
use std::sync::Mutex;

/// Gives the same answer for every file.
#[derive(Clone)]
struct Answer(Arc<Mutex<Openness>>);

impl Probe for Answer {
    fn look(&self, files: &[PathBuf]) -> Vec<Openness> {
        vec![self.0.lock().unwrap().clone(); files.len()]
    }
}

struct Stage {
    folder: tempfile::TempDir,
    answer: Answer,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    fn new(openness: Openness) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("out")).unwrap();
        let answer = Answer(Arc::new(Mutex::new(openness)));
        Stage { folder, answer, lines: Arc::default() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("out/state_1_0.raw")
    }

    /// One look at the folder. Everything that was told.
    fn once(&self, remove: bool) -> Vec<String> {
        self.once_merged(remove, Merge::Auto)
    }

    fn once_merged(&self, remove: bool, merge: Merge) -> Vec<String> {
        self.watcher(remove, merge).once().unwrap();
        self.told()
    }

    /// Events since the last time.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    fn watcher(&self, remove: bool, merge: Merge) -> Watcher {
        let store = self.folder.path().join("store");
        let place = Place { store, run: Some("sim".into()), step: None };
        let settings = WatchSettings {
            files: Some(1),
            settle: Duration::ZERO,
            remove,
            ingest: IngestSettings { merge, ..IngestSettings::default() },
            ..WatchSettings::new(place, self.folder.path().join("out"))
        };
        let lines = self.lines.clone();
        let told = move |event: WatchEvent| lines.lock().unwrap().push(event.to_string());
        let mut watcher = Watcher::open(settings, told).unwrap();
        watcher.probe = Box::new(self.answer.clone());
        watcher
    }
}

#[test]
fn a_writer_keeps_a_set_back_until_it_has_closed() {
    let stage = Stage::new(Openness::Open(None));
    std::fs::write(stage.file(), "half").unwrap();
    let told = stage.once(true);
    assert!(told.len() == 1 && told[0].contains("not ingested: state_1_0.raw is open"), "{told:?}");
    *stage.answer.0.lock().unwrap() = Openness::Closed;
    let told = stage.once(true);
    assert!(told[0].contains("sim@1: 1 file ingested"), "{told:?}");
    assert!(!stage.file().exists());
}

#[test]
fn where_processes_are_hidden_sets_are_taken_and_originals_stay() {
    let stage = Stage::new(Openness::Hidden);
    std::fs::write(stage.file(), "whole, perhaps").unwrap();
    let told = stage.once(true);
    assert!(told[0].contains("may be open for writing"), "{told:?}");
    assert!(told[1].contains("sim@1: 1 file ingested"), "{told:?}");
    assert!(told[2].contains("is not removed"), "{told:?}");
    assert!(told.len() == 3 && stage.file().exists(), "{told:?}");
    // Somebody who may look removes it.
    *stage.answer.0.lock().unwrap() = Openness::Closed;
    assert_eq!(stage.once(true), [""; 0]);
    assert!(!stage.file().exists());
}

#[test]
fn an_original_that_is_open_stays_although_the_run_holds_it() {
    let stage = Stage::new(Openness::Closed);
    std::fs::write(stage.file(), "a state").unwrap();
    assert_eq!(stage.once(false).len(), 1);
    *stage.answer.0.lock().unwrap() = Openness::Open(None);
    assert_eq!(stage.once(true), [""; 0]);
    assert!(stage.file().exists());
}

#[test]
fn a_file_that_lacks_bytes_waits_unless_files_are_taken_as_bytes() {
    let stage = Stage::new(Openness::Closed);
    let path = stage.folder.path().join("out/state_1_0.npy");
    let text = "{'descr': '<f8', 'fortran_order': False, 'shape': (500,), }\n";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.bytes().chain([7; 2000]));
    std::fs::write(&path, &bytes).unwrap();
    let told = stage.once(false);
    assert!(told.len() == 1 && told[0].contains("its head promises"), "{told:?}");
    assert!(stage.once_merged(false, Merge::Files)[0].contains("ingested"));
    bytes.extend([7; 2000]);
    std::fs::write(&path, &bytes).unwrap();
    assert!(stage.once(false)[0].contains("ingested"));
}

/// The last number of a name is in the place of a rank, which is said where it hardly is one.
#[test]
fn numbers_that_are_hardly_ranks_are_reported_once() {
    let stage = Stage::new(Openness::Closed);
    let mut watcher = stage.watcher(false, Merge::Auto);
    for name in ["state_1_0.raw", "run2_000100.raw", "run3_000100.raw"] {
        std::fs::write(stage.folder.path().join("out").join(name), "a state").unwrap();
        watcher.look(name);
        watcher.once().unwrap();
    }
    let told = stage.told();
    let odd: Vec<_> = told.iter().filter(|line| line.contains("--no-ranks")).collect();
    assert_eq!(odd.len(), 1, "{told:?}");
    assert!(
        odd[0].contains("run2_000100.raw was read as step 2, with 100 in the place of a rank"),
        "{odd:?}"
    );
}

/// The number of entries in the log of the run.
fn sequences(store: &Path) -> usize {
    std::fs::read_dir(store.join("runs/sim/log")).map_or(0, Iterator::count)
}

/// The file system of the store is unmounted while the service runs: nothing is written to the folder below it, no
/// original is removed, and all goes on when the store is back.
#[test]
fn a_store_that_is_gone_is_never_made_anew() {
    let stage = Stage::new(Openness::Closed);
    let (store, away) = (stage.folder.path().join("store"), stage.folder.path().join("away"));
    let file = |step: u64| stage.folder.path().join(format!("out/state_{step}_0.raw"));
    let mut watcher = stage.watcher(true, Merge::Auto);
    std::fs::write(file(1), "a state").unwrap();
    watcher.look("state_1_0.raw");
    watcher.once().unwrap();
    assert!(stage.told()[0].contains("sim@1: 1 file ingested") && !file(1).exists());
    std::fs::rename(&store, &away).unwrap();
    let entries = || std::fs::read_dir(&store).map_or(0, Iterator::count);
    for below in ["nothing", "a folder", "another store"] {
        match below {
            "a folder" => std::fs::create_dir(&store).unwrap(),
            // Of a run of the same name, opened more often.
            "another store" => (0..3).for_each(|step| {
                let mut run = Run::open(Options::directory(&store, "sim")).unwrap();
                run.checkpoint(step, &[Variable::scalar("x", &1.0f64)]).unwrap();
                run.finish().unwrap();
            }),
            _ => {}
        }
        let before = (entries(), sequences(&store));
        std::fs::write(file(2), "another state").unwrap();
        watcher.look("state_2_0.raw");
        // The first failure is of the run that is open, the others are of opening it again.
        for _ in 0..3 {
            let now = watcher.now();
            let set = watcher.sets.complete(now).unwrap();
            let error = watcher.take(&set).unwrap_err();
            assert!(error.kind() == ErrorKind::NotFound, "{error}");
        }
        watcher.remove_leftovers();
        assert!(file(2).exists());
        assert_eq!((entries(), sequences(&store)), before, "{below}");
    }
    let error = watcher.open_ingest().map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("has lost what this service wrote"), "{error}");
    std::fs::remove_dir_all(&store).unwrap();
    std::fs::rename(&away, &store).unwrap();
    watcher.look("state_2_0.raw");
    watcher.once().unwrap();
    assert!(stage.told()[0].contains("sim@2: 1 file ingested") && !file(2).exists());
}

#[test]
fn a_set_with_too_few_files_is_reported_while_the_service_runs_and_when_it_stops() {
    let stage = Stage::new(Openness::Closed);
    std::fs::write(stage.file(), "one of two").unwrap();
    let mut watcher = stage.watcher(false, Merge::Auto);
    let (settle, grace) = (Duration::ZERO, Duration::from_millis(20));
    watcher.sets = Sets::new(SetRule { files: Some(2), settle, grace }, None);
    let stopper = watcher.stopper();
    let service = std::thread::spawn(move || watcher.serve().unwrap());
    let begun = Instant::now();
    while stage.lines.lock().unwrap().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was told");
        std::thread::sleep(Duration::from_millis(1));
    }
    let told = stage.told();
    assert!(told[0].contains("step 1 has 1 file where 2 were expected, and no more"), "{told:?}");
    stopper.stop();
    service.join().unwrap();
    assert_eq!(stage.told(), ["step 1 is not ingested: 1 file of 2"]);
    // With the rest it is ingested.
    std::fs::write(stage.folder.path().join("out/state_1_1.raw"), "two of two").unwrap();
    let mut watcher = stage.watcher(false, Merge::Auto);
    watcher.sets = Sets::new(SetRule { files: Some(2), settle, grace }, None);
    watcher.once().unwrap();
    assert!(stage.told()[0].contains("sim@1: 2 files ingested"));
}

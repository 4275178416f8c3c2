//! A real disk that is full: the save that does not fit fails and says what to try, the program
//! goes on, and nothing that was saved before is lost.

use std::path::{Path, PathBuf};
use std::process::Command;
use treering::{
    ArrayExport, ArrayFormat, Encoding, ErrorKind, Keep, Library, Options, Run, Variable,
    VariableMut, export_arrays,
};

const BYTES: usize = 600 << 10;

/// A small file system that is gone when this is dropped, also after a panic.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn new(size: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .output();
        let trouble = match mounted {
            Ok(done) if done.status.success() => return SmallDisk { folder },
            Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        panic!("this test needs the right to mount a tmpfs (run it as root): {trouble}");
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Takes space away until it is removed again.
    fn fill(&self, bytes: usize) -> PathBuf {
        let filler = self.folder.path().join("filler");
        std::fs::write(&filler, vec![7u8; bytes]).unwrap();
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.folder.path()).status();
        let done = unmounted.is_ok_and(|status| status.success());
        assert!(done || std::thread::panicking(), "cannot unmount the tmpfs");
    }
}

/// Noise that is new in every step, so that every save takes its whole size.
fn state(step: u64) -> Vec<u64> {
    let mut seed = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    std::iter::repeat_with(next).take(BYTES / 8).collect()
}

fn open(store: &Path) -> Run {
    Run::open(Options::directory(store, "r").encoding(Encoding::Raw).growth(1.0)).unwrap()
}

fn save(run: &mut Run, step: u64) -> treering::Result<()> {
    let field = state(step);
    let save = run.checkpoint(step, &[Variable::new("field", &field)]);
    save.unwrap().durable()
}

/// The steps that are listed; each of them restores exactly.
fn steps(store: &Path) -> Vec<u64> {
    let library = Library::open(store).unwrap();
    let report = library.verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    let (all, trouble) = library.checkpoints("r").unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    for info in &all {
        let checkpoint = library.checkpoint("r", Some(info.step)).unwrap();
        assert_eq!(checkpoint.read::<u64>("field").unwrap(), state(info.step));
    }
    all.iter().map(|info| info.step).collect()
}

/// Saves until nothing fits any more; the first step that failed.
fn save_until_full(run: &mut Run, first: u64) -> u64 {
    for step in first..first + 20 {
        let Err(error) = save(run, step) else {
            continue;
        };
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert!(error.to_string().contains("treering prune"), "{error}");
        let failures = run.failures();
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].0, step);
        return step;
    }
    panic!("the disk did not get full");
}

#[test]
fn the_program_goes_on_and_saves_again_when_there_is_space() {
    let disk = SmallDisk::new("4m");
    let store = disk.store();
    let filler = disk.fill(1 << 20);
    let mut run = open(&store);
    let failed = save_until_full(&mut run, 0);
    assert!(failed >= 2);
    assert_eq!(steps(&store), (0..failed).collect::<Vec<_>>());
    // Still full: it fails again, and again costs nothing.
    save_until_full(&mut run, failed);
    assert_eq!(steps(&store), (0..failed).collect::<Vec<_>>());
    std::fs::remove_file(filler).unwrap();
    save(&mut run, failed + 1).unwrap();
    run.finish().unwrap();
    let mut expected: Vec<u64> = (0..failed).collect();
    expected.push(failed + 1);
    assert_eq!(steps(&store), expected);
}

#[test]
fn pruning_makes_space_beside_the_running_program() {
    let disk = SmallDisk::new("4m");
    let store = disk.store();
    let mut run = open(&store);
    let failed = save_until_full(&mut run, 0);
    let keep = Keep::newest(2);
    let library = Library::open(&store).unwrap();
    let plan = library.prune("r", keep, &|_, _| {}).unwrap();
    assert!(plan.bytes as usize > BYTES, "{plan:?}");
    save(&mut run, failed + 1).unwrap();
    let mut expected: Vec<u64> = plan.kept.iter().map(|kept| kept.step).collect();
    expected.push(failed + 1);
    assert_eq!(steps(&store), expected);
}

#[test]
fn a_run_opens_and_restores_on_a_full_disk_once_a_little_space_is_freed() {
    let disk = SmallDisk::new("4m");
    let store = disk.store();
    let mut run = open(&store);
    let failed = save_until_full(&mut run, 0);
    drop(run);
    // The rest of the space, to the last page.
    let mut size = BYTES;
    while size >= 4096 {
        let more = disk.folder.path().join(format!("filler{size}"));
        match std::fs::write(&more, vec![1u8; size]) {
            Ok(()) => {}
            Err(_) => drop(std::fs::remove_file(&more)),
        }
        size /= 2;
    }
    if let Err(error) = Run::open(Options::directory(&store, "r")) {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    }
    assert_eq!(steps(&store), (0..failed).collect::<Vec<_>>());
    for entry in std::fs::read_dir(disk.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::remove_file(path).unwrap();
        }
    }
    let mut run = open(&store);
    let mut field = vec![0u64; BYTES / 8];
    let restored = run.restore(&mut [VariableMut::new("field", &mut field)]);
    assert_eq!(restored.unwrap().unwrap().step, failed - 1);
    assert_eq!(field, state(failed - 1));
}

#[test]
fn an_export_of_arrays_that_does_not_fit_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SmallDisk::new("1m");
    let (first, second) = (state(1), state(2));
    let mut run = Run::open(Options::directory(folder.path().join("store"), "r")).unwrap();
    let variables = [Variable::new("first", &first), Variable::new("second", &second)];
    run.checkpoint(5, &variables).unwrap();
    run.finish().unwrap();
    let library = Library::open(folder.path().join("store")).unwrap();
    let checkpoint = library.checkpoint("r", None).unwrap();
    for format in [ArrayFormat::Npy, ArrayFormat::Hdf5, ArrayFormat::Zarr] {
        let export = |variables: &[&str]| {
            let variables = variables.iter().map(|name| name.to_string()).collect();
            let wanted = ArrayExport { format, variables, ranks: Vec::new() };
            export_arrays(&checkpoint, &wanted, disk.folder.path(), &|_, _| {})
        };
        let error = export(&[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert!(error.to_string().contains("free some space"), "{error}");
        assert_eq!(std::fs::read_dir(disk.folder.path()).unwrap().count(), 0);
        // One of them fits.
        let path = export(&["first"]).unwrap().path;
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }
}

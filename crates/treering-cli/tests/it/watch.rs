//! `ingest --watch` beside programs of every habit: whatever they do, and however often the service
//! is killed, every complete set is in the run once, and none is half. Nothing here depends on how
//! fast anything is: each test waits until things have happened.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use treering::Library;

/// Time to wait for anything before giving up.
const PATIENCE: Duration = Duration::from_secs(120);

struct Service {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Service {
    fn start(place: &str, folder: &Path, arguments: &[&str]) -> Service {
        let mut command = Command::new(env!("CARGO_BIN_EXE_treering"));
        command.args(["ingest", "--json", place, "--watch"]).arg(folder).args(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("no service");
        let lines = collect(child.stdout.take().unwrap());
        let notes = collect(child.stderr.take().unwrap());
        Service { child, lines, notes }
    }

    fn steps(&self) -> Vec<u64> {
        let lines = self.lines.lock().unwrap();
        let step = |line: &String| serde_json::from_str::<Value>(line).unwrap()["step"].as_u64();
        lines.iter().map(|line| step(line).unwrap()).collect()
    }

    fn notes(&self) -> String {
        self.notes.lock().unwrap().join("\n")
    }

    fn wait_for_steps(&self, steps: &[u64]) {
        wait(&format!("{steps:?} from {:?} {}", self.steps(), self.notes()), || {
            self.steps().len() >= steps.len()
        });
        assert_eq!(self.steps(), steps, "{}", self.notes());
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks the service to end, and tells its exit code.
    fn end(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(from: impl Read + Send + 'static) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let to = lines.clone();
    std::thread::spawn(move || {
        BufReader::new(from).lines().map_while(Result::ok).for_each(|l| to.lock().unwrap().push(l));
    });
    lines
}

fn wait(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A folder, and a store outside of it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("out")).unwrap();
        Place { folder }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn run(&self) -> String {
        format!("{}#sim", self.folder.path().join("store").display())
    }

    fn watch(&self, arguments: &[&str]) -> Service {
        Service::start(&self.run(), &self.out(), arguments)
    }

    fn library(&self) -> Library {
        Library::open(self.folder.path().join("store")).unwrap()
    }

    fn kept(&self) -> Vec<u64> {
        let (checkpoints, trouble) = self.library().checkpoints("sim").unwrap();
        assert!(trouble.is_empty(), "{trouble:?}");
        checkpoints.iter().map(|checkpoint| checkpoint.step).collect()
    }

    /// The files of a step, as they are exported.
    fn export(&self, step: u64) -> BTreeMap<String, Vec<u8>> {
        let to = tempfile::tempdir().unwrap();
        let files = self.library().export("sim", Some(step), &[], to.path()).unwrap();
        let name = |path: &Path| path.strip_prefix(to.path()).unwrap().display().to_string();
        files.iter().map(|file| (name(&file.path), fs::read(&file.path).unwrap())).collect()
    }

    /// Writes a set of two files in one go, the second one renamed in.
    fn write(&self, step: u64, version: u64) -> BTreeMap<String, Vec<u8>> {
        let set: BTreeMap<String, Vec<u8>> =
            (0..2).map(|rank| (name(step, rank), content(step, rank, version, 3000))).collect();
        for (name, bytes) in &set {
            put(&self.out().join(name), bytes);
        }
        set
    }
}

fn name(step: u64, rank: u64) -> String {
    format!("step_{step:06}/rank_{rank}.raw")
}

/// Smooth values, different in every file; only the first ones change from step to step.
fn content(step: u64, rank: u64, version: u64, values: u64) -> Vec<u8> {
    let value = |i: u64| {
        let still = (i as f32 / 40.0 + rank as f32).sin();
        if i < 200 { still + step as f32 + version as f32 / 8.0 } else { still }
    };
    (0..values).flat_map(|i| value(i).to_le_bytes()).collect()
}

/// Gives a file its name when it is whole.
fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, bytes).unwrap();
    fs::rename(&temporary, path).unwrap();
}

const QUICK: [&str; 4] = ["--files", "2", "--settle", "0"];

#[test]
fn files_that_are_written_slowly_are_taken_whole() {
    let place = Place::new();
    let service = place.watch(&["--files", "2", "--settle", "0.1"]);
    place.write(0, 0);
    service.wait_for_steps(&[0]);
    // The service is there, so it sees that these are open however long the writer rests.
    let names = (0..2).map(|rank| format!("slow_1_{rank}"));
    let whole: BTreeMap<String, Vec<u8>> =
        names.zip((0..2).map(|r| content(1, r, 0, 3000))).collect();
    let open = |(name, bytes): (&String, &Vec<u8>)| {
        let pieces: Vec<Vec<u8>> = bytes.chunks(4000).map(<[u8]>::to_vec).collect();
        (File::create(place.out().join(name)).unwrap(), pieces)
    };
    let mut files: Vec<_> = whole.iter().map(open).collect();
    for number in 0..3 {
        for (file, pieces) in &mut files {
            file.write_all(&pieces[number]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(service.steps(), [0]);
    drop(files);
    service.wait_for_steps(&[0, 1]);
    assert!(place.export(1) == whole);
}

/// A program of its own that opens a file, writes one half of it, rests, and writes the other.
struct Resting {
    child: Child,
}

impl Resting {
    /// Starts it and waits until it rests.
    fn start(path: &Path, halves: [&str; 2]) -> Resting {
        let script =
            r#"exec 3>>"$0"; printf %s "$1" >&3; echo rests; read line; printf %s "$2" >&3"#;
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(path).args(halves);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "rests\n");
        Resting { child }
    }

    fn go_on(mut self) {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn a_program_that_rests_inside_a_file_when_the_service_starts_is_waited_for() {
    let place = Place::new();
    let path = place.out().join("state_1_0");
    let resting = Resting::start(&path, ["half of ", "a state"]);
    let pid = resting.child.id();
    // Neither a look nor a service takes half a file, however long it stays the same.
    let mut once = place.watch(&["--files", "1", "--settle", "0.1", "--once", "--remove"]);
    assert!(once.child.wait().unwrap().success());
    wait("a note", || {
        once.notes().contains("step 1 is not ingested: state_1_0 is open for writing")
    });
    let mut service = place.watch(&["--files", "1", "--settle", "0.1", "--remove"]);
    put(&place.out().join("state_2_0"), b"another state");
    service.wait_for_steps(&[2]);
    let waits =
        format!("step 1 waits to be ingested: state_1_0 is open for writing by process {pid} (sh)");
    wait("a note", || service.notes().contains(&waits));
    assert_eq!((service.steps(), place.kept()), (vec![2], vec![2]));
    assert_eq!(fs::read(&path).unwrap(), b"half of ");
    resting.go_on();
    service.wait_for_steps(&[2, 1]);
    wait("removal", || !path.exists());
    assert_eq!(service.end(), Some(0));
    assert_eq!(service.notes().matches("waits").count(), 1, "{}", service.notes());
    assert_eq!(place.export(1)["state_1_0"], b"half of a state");
}

#[test]
fn a_file_of_two_writers_is_taken_when_both_have_closed_it() {
    let place = Place::new();
    let service = place.watch(&["--files", "1", "--settle", "0.1"]);
    let path = place.out().join("state_1_0");
    let [one, two] = ["a", "c"].map(|half| Resting::start(&path, [half, "b"]));
    one.go_on();
    put(&place.out().join("state_2_0"), b"another state");
    service.wait_for_steps(&[2]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(service.steps(), [2]);
    two.go_on();
    service.wait_for_steps(&[2, 1]);
    assert_eq!(place.export(1)["state_1_0"], b"acbb");
}

#[test]
fn a_file_that_lacks_bytes_is_waited_for() {
    let place = Place::new();
    let text = "{'descr': '<f8', 'fortran_order': False, 'shape': (500,), }\n";
    let head =
        [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat();
    let whole = [head, vec![7; 4000]].concat();
    let path = place.out().join("state_1_0.npy");
    // Closed, as on another machine: nothing but its head tells.
    fs::write(&path, &whole[..3000]).unwrap();
    let service = place.watch(&["--files", "1", "--settle", "0.1"]);
    put(&place.out().join("state_2_0"), b"another state");
    service.wait_for_steps(&[2]);
    wait("a note", || {
        service.notes().contains("state_1_0.npy has 3000 bytes, but its head promises")
    });
    assert_eq!(service.steps(), [2]);
    let mut rest = OpenOptions::new().append(true).open(&path).unwrap();
    rest.write_all(&whole[3000..]).unwrap();
    drop(rest);
    service.wait_for_steps(&[2, 1]);
    assert_eq!(place.export(1)["state_1_0.npy"], whole);
}

#[test]
fn a_file_may_be_closed_and_opened_again() {
    let place = Place::new();
    let service = place.watch(&["--files", "2", "--settle", "0.1"]);
    let whole = content(4, 0, 0, 4000);
    fs::create_dir(place.out().join("step_000004")).unwrap();
    for piece in whole.chunks(2000) {
        let path = place.out().join(name(4, 0));
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(piece).unwrap();
    }
    put(&place.out().join(name(4, 1)), b"the last one");
    service.wait_for_steps(&[4]);
    assert!(place.export(4)[&name(4, 0)] == whole);
}

#[test]
fn folders_may_be_made_moved_and_deep() {
    let place = Place::new();
    let service = place.watch(&QUICK);
    let hidden = place.out().join("step_000001.tmp");
    fs::create_dir(&hidden).unwrap();
    for rank in 0..2 {
        fs::write(hidden.join(format!("rank_{rank}.raw")), content(1, rank, 0, 100)).unwrap();
    }
    fs::rename(&hidden, place.out().join("step_000001")).unwrap();
    service.wait_for_steps(&[1]);
    let deep = place.out().join("a/b/c");
    fs::create_dir_all(&deep).unwrap();
    for rank in 0..2 {
        put(&deep.join(format!("x_2_{rank}")), &content(2, rank, 0, 100));
    }
    service.wait_for_steps(&[1, 2]);
    assert_eq!(place.export(2).keys().collect::<Vec<_>>(), ["a/b/c/x_2_0", "a/b/c/x_2_1"]);
    // A folder that was moved has another name, and with it another step.
    fs::rename(place.out().join("step_000001"), place.out().join("step_000003")).unwrap();
    service.wait_for_steps(&[1, 2, 3]);
    assert!(place.export(1).into_values().eq(place.export(3).into_values()));
    place.write(3, 7);
    service.wait_for_steps(&[1, 2, 3, 3]);
}

#[test]
fn a_set_is_taken_again_only_if_it_was_rewritten() {
    let place = Place::new();
    let mut service = place.watch(&QUICK);
    let old = place.write(1, 0);
    service.wait_for_steps(&[1]);
    let new = place.write(1, 1);
    service.wait_for_steps(&[1, 1]);
    assert!(old != new && place.export(1) == new);
    // One process takes both in, so only what changed is stored.
    let lines = service.lines.lock().unwrap().clone();
    let stored = |line: &str| serde_json::from_str::<Value>(line).unwrap()["stored_bytes"].as_u64();
    assert!(stored(&lines[1]).unwrap() * 2 < stored(&lines[0]).unwrap(), "{lines:?}");
    // The same bytes at another time, and one file of two, are nothing new.
    place.write(1, 1);
    place.write(2, 0);
    service.wait_for_steps(&[1, 1, 2]);
    put(&place.out().join(name(2, 0)), b"half of a new set");
    place.write(3, 0);
    service.wait_for_steps(&[1, 1, 2, 3]);
    wait("a note about step 2", || service.notes().contains("step 2 has 1 file where 2"));
    assert_eq!(service.end(), Some(0));
    assert_eq!(place.kept(), [1, 1, 2, 3]);
    // Nor is anything new for another service.
    let mut service = place.watch(&QUICK);
    place.write(4, 0);
    service.wait_for_steps(&[4]);
    assert_eq!(service.end(), Some(0));
    assert_eq!(place.kept(), [1, 1, 2, 3, 4]);
}

#[test]
fn rounded_sets_are_taken_once() {
    let place = Place::new();
    let within = [&QUICK[..], &["--type", "f32", "--error-bound", "*=0.01"]].concat();
    let mut service = place.watch(&within);
    let set = place.write(1, 0);
    service.wait_for_steps(&[1]);
    // The same bytes at another time are nothing new, nor are they for another service.
    place.write(1, 0);
    place.write(2, 0);
    service.wait_for_steps(&[1, 2]);
    service.kill();
    let mut service = place.watch(&within);
    place.write(3, 0);
    service.wait_for_steps(&[3]);
    place.write(1, 1);
    service.wait_for_steps(&[3, 1]);
    assert_eq!(service.end(), Some(0));
    assert_eq!(place.kept(), [1, 2, 3, 1]);
    assert!(place.export(1) != set);
    // Without bounds, or to remove the originals, they are taken as they are.
    let mut service = place.watch(&[&QUICK[..], &["--remove"]].concat());
    wait("all are removed", || fs::read_dir(place.out()).unwrap().count() == 0);
    assert_eq!(service.end(), Some(0));
    assert_eq!(place.export(2), originals(2));
}

/// The files of a step as they were first written.
fn originals(step: u64) -> BTreeMap<String, Vec<u8>> {
    (0..2).map(|rank| (name(step, rank), content(step, rank, 0, 3000))).collect()
}

#[test]
fn once_takes_what_is_there_and_ends() {
    let place = Place::new();
    let once = |arguments: &[&str]| {
        let mut service = place.watch(arguments);
        assert!(service.child.wait().unwrap().success(), "{}", service.notes());
        wait("all lines", || Arc::strong_count(&service.lines) == 1);
        wait("its note", || service.notes().contains("step 3 is not ingested: 1 file of 2"));
        service.steps()
    };
    let sets = [place.write(1, 0), place.write(2, 0)];
    // The count is that of the set before.
    fs::write(place.out().join("half_3_0"), "one file of two").unwrap();
    assert_eq!(once(&["--once", "--settle", "0.1"]), [1, 2]);
    assert!(place.export(1) == sets[0] && place.export(2) == sets[1]);
    let log = || fs::read_dir(place.folder.path().join("store/runs/sim/log")).unwrap().count();
    let before = log();
    assert_eq!(once(&["--once", "--settle", "0.1"]), [0u64; 0]);
    assert_eq!(log(), before, "looking leaves no trace");
    assert_eq!(once(&["--once", "--settle", "0.1", "--remove"]), [0u64; 0]);
    let left: Vec<_> = fs::read_dir(place.out()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["half_3_0"]);
}

#[test]
fn folders_that_a_killed_service_has_emptied_are_removed_by_the_next_one() {
    let place = Place::new();
    let once = || {
        let mut service = place.watch(&["--files", "2", "--settle", "0", "--once", "--remove"]);
        assert!(service.child.wait().unwrap().success(), "{}", service.notes());
    };
    place.write(0, 0);
    once();
    assert_eq!((place.kept(), fs::read_dir(place.out()).unwrap().count()), (vec![0], 0));
    // It was killed between its last file and the folder; another folder waits for its program.
    fs::create_dir(place.out().join("step_000000")).unwrap();
    fs::create_dir_all(place.out().join("step_000001/inner")).unwrap();
    fs::create_dir(place.out().join("notes")).unwrap();
    once();
    let left = fs::read_dir(place.out()).unwrap().map(|e| e.unwrap().file_name());
    let left: BTreeSet<_> = left.map(|name| name.into_string().unwrap()).collect();
    assert_eq!(left, BTreeSet::from(["notes".to_string(), "step_000001".to_string()]));
    assert!(place.out().join("step_000001/inner").is_dir());
}

#[test]
fn originals_are_removed_if_the_store_gives_them_back() {
    let place = Place::new();
    let mut service = place.watch(&QUICK);
    let sets: Vec<_> = (1..4).map(|step| place.write(step, 0)).collect();
    service.wait_for_steps(&[1, 2, 3]);
    service.kill();
    // Other bytes of the same name, size and time: only reading tells.
    let path = place.out().join(name(2, 1));
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let mut other = sets[1][&name(2, 1)].clone();
    other[17] ^= 1;
    fs::write(&path, &other).unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    // And files that are no part of a set, and a folder of the program's own.
    fs::create_dir(place.out().join("rank_7")).unwrap();
    put(&place.out().join("rank_7/only_9_7"), b"one of two");
    let mut arguments = QUICK.to_vec();
    arguments.push("--remove");
    let mut service = place.watch(&arguments);
    let last = place.write(4, 0);
    service.wait_for_steps(&[4]);
    let gone = |step: u64| !place.out().join(format!("step_{step:06}")).exists();
    wait("removal", || [1, 3, 4].into_iter().all(gone));
    wait("removal", || !place.out().join(name(2, 0)).exists());
    assert!(fs::read(&path).unwrap() == other);
    assert_eq!(service.end(), Some(0));
    assert!(place.out().join("rank_7/only_9_7").exists());
    for (step, set) in (1..5).zip(sets.iter().chain([&last])) {
        assert!(place.export(step) == *set, "step {step}");
    }
}

#[test]
fn odd_files_are_left_alone() {
    let place = Place::new();
    let odd = |name: &[u8]| place.out().join(std::ffi::OsStr::from_bytes(name));
    for name in [&b"log.txt"[..], b".hidden_1_0", b"x_1_0.tmp", b"x_1_1~", b"bad\xff_1_1"] {
        fs::write(odd(name), "x").unwrap();
    }
    fs::write(odd(b"x_1_99999999999"), "no rank").unwrap();
    std::os::unix::fs::symlink("nowhere", odd(b"link_1_0")).unwrap();
    std::os::unix::fs::symlink(".", odd(b"loop_1_0")).unwrap();
    let pipe = Command::new("mkfifo").arg(odd(b"pipe_1_0")).status().unwrap();
    assert!(pipe.success());
    let mut service = place.watch(&["--files", "1", "--settle", "0"]);
    // Two files that would be the same in a checkpoint cannot be taken, and do not keep others back.
    for (folder, name) in [("a", "s_7_1"), ("a", "s_07_1")] {
        fs::create_dir_all(odd(folder.as_bytes())).unwrap();
        put(&odd(folder.as_bytes()).join(name), b"x");
    }
    put(&odd(b"fine_8_0.npy"), b"\x93NUMPY but damaged");
    wait("step 8", || service.steps().contains(&8));
    assert_eq!(service.end(), Some(0));
    wait("all notes", || Arc::strong_count(&service.notes) == 1);
    assert_eq!(service.notes().matches("is left out").count(), 3, "{}", service.notes());
    assert_eq!(place.export(8)["fine_8_0.npy"], b"\x93NUMPY but damaged");
    assert!(place.kept().iter().all(|step| [7, 8].contains(step)), "{:?}", place.kept());
}

#[test]
fn trouble_is_told_in_a_sentence() {
    let place = Place::new();
    let out = place.out().display().to_string();
    let inner = format!("{out}/store#sim");
    let run = place.run();
    let step = format!("{run}@3");
    let told = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_treering"));
        let done = command.arg("ingest").args(arguments).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    for (arguments, words) in [
        (vec![&*run, "--watch", "nowhere"], "there is no folder nowhere"),
        (vec![&step, "--watch", &out], "STORE#RUN"),
        (vec![&inner, "--watch", &out], "the store lies in"),
        (vec![&run, "--watch", &out, "--settle", "0"], "--files"),
        (vec![&run, "--watch", &out, "--settle", "soon"], "invalid time"),
        (vec![&run, "--watch", &out, "--files", "0"], "invalid number of files"),
        (vec![&run, "--watch", &out, "--step-pattern", "x"], "invalid pattern of the step"),
        (vec![&run, "--watch", &out, "file"], "finds files itself"),
        (vec![&run, "file", "--remove"], "--watch"),
        (vec![&run, "--watch", &out, "--remove", "--error-bound", "x=1"], "are not removed"),
        (vec![&run], "required"),
    ] {
        let text = told(&arguments);
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
    let mut service = place.watch(&QUICK);
    place.write(1, 0);
    service.wait_for_steps(&[1]);
    let text = told(&[&run, "--watch", &out]);
    assert!(
        text.contains("in use") || text.contains("holds") || text.contains("process"),
        "{text}"
    );
    fs::rename(place.out(), place.folder.path().join("elsewhere")).unwrap();
    assert_eq!(service.child.wait().unwrap().code(), Some(2));
    wait("a sentence", || service.notes().contains("is gone; start again"));
}

/// A small file system that is gone when this is dropped, also after a panic.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(folder: PathBuf) -> SmallDisk {
        fs::create_dir(&folder).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&folder).status();
        let done = mounted.is_ok_and(|status| status.success());
        assert!(done, "this test needs the right to mount a tmpfs (run it as root)");
        SmallDisk(folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        let done = unmounted.is_ok_and(|status| status.success());
        assert!(done || std::thread::panicking(), "cannot unmount the tmpfs");
    }
}

#[test]
fn a_full_disk_is_waited_for() {
    let place = Place::new();
    let disk = SmallDisk::new(place.folder.path().join("store"));
    let mut arguments = QUICK.to_vec();
    arguments.push("--remove");
    let mut service = place.watch(&arguments);
    place.write(1, 0);
    service.wait_for_steps(&[1]);
    let filler = disk.0.join("filler");
    // As much as there is room for.
    let mut file = File::create(&filler).unwrap();
    while file.write_all(&[7; 512]).is_ok() {}
    let set = place.write(2, 0);
    wait("a note", || service.notes().matches("step 2 is tried again").count() >= 2);
    assert!(service.notes().contains("free some space"), "{}", service.notes());
    assert!(set.iter().all(|(name, bytes)| fs::read(place.out().join(name)).unwrap() == *bytes));
    assert_eq!(service.steps(), [1]);
    drop(file);
    fs::remove_file(filler).unwrap();
    service.wait_for_steps(&[1, 2]);
    wait("removal", || !place.out().join("step_000002").exists());
    assert_eq!(service.end(), Some(0));
    assert!(place.export(2) == set);
    drop(service);
    drop(disk);
}

/// A number that the long campaign sets.
fn number(name: &str, short: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(short)
}

const RANKS: u64 = 32;

/// A program that writes sets of 32 files, each in its own way, but the last one of a set always
/// renamed in: so no set is complete before it is whole. Tells when each was, in ms since 1970.
fn program(out: &Path, sets: u64, values: u64, pace: Duration) -> Vec<u64> {
    let began = Instant::now();
    let mut whole = Vec::new();
    for step in 0..sets {
        for rank in 0..RANKS {
            let (path, bytes) = (out.join(name(step, rank)), content(step, rank, 0, values));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match rank {
                0..16 => {
                    let mut file = File::create(&path).unwrap();
                    bytes.chunks(bytes.len() / 4 + 1).for_each(|p| file.write_all(p).unwrap());
                }
                _ => put(&path, &bytes),
            }
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        whole.push(now.as_millis() as u64);
        std::thread::sleep((pace * (step as u32 + 1)).saturating_sub(began.elapsed()));
    }
    whole
}

fn load(arguments: &[&str]) {
    let place = Place::new();
    let sets = number("TREERING_WATCH_SETS", 6);
    let pace = Duration::from_millis(number("TREERING_WATCH_PACE", 150));
    let values = number("TREERING_WATCH_VALUES", 4096);
    let mut all = vec!["--files", "32", "--settle", "0.2"];
    all.extend(arguments);
    let out = place.out();
    let writer = std::thread::spawn(move || program(&out, sets, values, pace));
    let mut steps = Vec::new();
    for part in 1..=2 {
        let mut service = place.watch(&all);
        let begun = place.out().join(name(sets * part / 3, 9));
        // Killed when the writer has come so far, whatever the service is at.
        wait("the writer", || begun.exists() || place.listed() > (sets * part / 3) as usize);
        service.kill();
        steps.extend(service.steps());
    }
    let mut service = place.watch(&all);
    let whole = writer.join().unwrap();
    wait("every set", || place.listed() as u64 >= sets);
    if arguments.contains(&"--remove") {
        wait("removal", || fs::read_dir(place.out()).unwrap().count() == 0);
    }
    assert_eq!(service.end(), Some(0), "{}", service.notes());
    steps.extend(service.steps());
    let mut kept = place.kept();
    kept.sort_unstable();
    assert_eq!(kept, (0..sets).collect::<Vec<_>>(), "told: {steps:?}; {}", service.notes());
    for step in 0..sets {
        let files = place.export(step);
        assert_eq!(files.len() as u64, RANKS);
        for rank in 0..RANKS {
            assert!(files[&name(step, rank)] == content(step, rank, 0, values), "{step} {rank}");
        }
    }
    let (checkpoints, _) = place.library().checkpoints("sim").unwrap();
    let delay = |c: &treering::CheckpointInfo| c.time.saturating_sub(whole[c.step as usize]);
    let mut delays: Vec<u64> = checkpoints.iter().map(delay).collect();
    delays.sort_unstable();
    let stored: u64 = checkpoints.iter().map(|c| c.stored_bytes).sum();
    println!(
        "{arguments:?}: {sets} sets of {RANKS} files of {} bytes, {} told, {stored} bytes stored; \
         from the last file of a set to its checkpoint: median {} ms, longest {} ms",
        values * 4,
        steps.len(),
        delays[delays.len() / 2],
        delays[delays.len() - 1],
    );
}

impl Place {
    fn listed(&self) -> usize {
        let library = Library::open(self.folder.path().join("store"));
        library.and_then(|l| l.checkpoints("sim")).map_or(0, |(checkpoints, _)| checkpoints.len())
    }
}

#[test]
fn under_load_and_kills_every_set_is_there_once() {
    load(&[]);
}

#[test]
fn under_load_and_kills_originals_are_removed_once_they_are_held() {
    load(&["--remove"]);
}

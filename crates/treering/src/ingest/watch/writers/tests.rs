//! Writers of real files by real processes, and processes that are made up or hidden.

use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

fn whole_file(folder: &Path) -> PathBuf {
    let path = folder.join("state_1_0");
    fs::write(&path, "half of a state").unwrap();
    path
}

fn look(path: &Path) -> Openness {
    ThisMachine.look(&[path.to_path_buf()]).remove(0)
}

fn owned() -> OpenWriter {
    let command = fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_string();
    OpenWriter { pid: std::process::id(), command }
}

#[test]
fn writers_and_mappings_are_found_and_readers_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = whole_file(folder.path());
    assert_eq!(look(&path), Openness::Closed);
    let reader = File::open(&path).unwrap();
    assert_eq!(look(&path), Openness::Closed);
    let writer = File::options().append(true).open(&path).unwrap();
    assert_eq!(look(&path), Openness::Open(Some(owned())));
    drop(writer);
    assert_eq!(look(&path), Openness::Closed);
    // A mapping can write after its descriptor is closed.
    let writer = File::options().read(true).write(true).open(&path).unwrap();
    // SAFETY: nobody else changes the file.
    let mapped = unsafe { memmap2::MmapMut::map_mut(&writer) }.unwrap();
    drop(writer);
    assert_eq!(look(&path), Openness::Open(Some(owned())));
    drop((mapped, reader));
    assert_eq!(look(&path), Openness::Closed);
    assert_eq!(look(&folder.path().join("nothing")), Openness::Closed);
}

#[test]
fn asking_for_a_lease_leaves_none_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = whole_file(folder.path());
    let reader = File::open(&path).unwrap();
    assert_eq!(ask(&reader), Lease::Granted);
    // With a lease in place, this would wait for a signal's worth of time.
    let began = std::time::Instant::now();
    drop(File::options().write(true).open(&path).unwrap());
    assert!(began.elapsed().as_secs() < 10);
    assert_eq!(ask(&reader), Lease::Granted);
}

/// A folder like `/proc` with one process that has a file open with these flags.
fn process(folder: &Path, pid: u32, file: &Path, flags: &str) {
    let own = folder.join(pid.to_string());
    fs::create_dir_all(own.join("fd")).unwrap();
    fs::create_dir_all(own.join("fdinfo")).unwrap();
    symlink(file, own.join("fd/3")).unwrap();
    fs::write(own.join("fdinfo/3"), format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t27\n")).unwrap();
    fs::write(own.join("comm"), "simulate\n").unwrap();
}

/// A process whose descriptors cannot be read.
fn hidden(folder: &Path, pid: u32, user: u32) {
    let own = folder.join(pid.to_string());
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("fd"), "no folder").unwrap();
    fs::write(own.join("status"), format!("Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\n"))
        .unwrap();
}

#[test]
fn without_leases_processes_tell_as_far_as_they_can_be_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = whole_file(folder.path());
    let identity = FileIdentity::of_path(&path).unwrap();
    let owner = fs::metadata(&path).unwrap().uid();
    let judged = |proc: &Path, lease: Lease, network: bool| {
        let processes = Processes::search(proc, &[identity]);
        Asked { lease, network, file: Some(identity) }.judge(&processes)
    };
    let proc = folder.path().join("proc");
    let simulate = Some(OpenWriter { pid: 7, command: "simulate".into() });
    process(&proc, 1, &path, "0100000");
    hidden(&proc, 5, owner + 1);
    assert_eq!(judged(&proc, Lease::NotAnswered, false), Openness::Closed);
    // A lease that is refused proves a writer, but not on a network file system.
    assert_eq!(judged(&proc, Lease::Refused, false), Openness::Open(None));
    assert_eq!(judged(&proc, Lease::Refused, true), Openness::Closed);
    // A process of the owner that cannot be looked at.
    hidden(&proc, 6, owner);
    for network in [false, true] {
        assert_eq!(judged(&proc, Lease::NotAnswered, network), Openness::Hidden);
    }
    assert_eq!(judged(&proc, Lease::Granted, false), Openness::Closed);
    process(&proc, 7, &path, "0102001");
    assert_eq!(judged(&proc, Lease::NotAnswered, true), Openness::Open(simulate));
    assert_eq!(judged(&folder.path().join("none"), Lease::NotAnswered, false), Openness::Hidden);
}

#[test]
fn shared_writable_mappings_are_read_from_maps() {
    let folder = tempfile::tempdir().unwrap();
    let path = whole_file(folder.path());
    let identity = FileIdentity::of_path(&path).unwrap();
    let meta = fs::metadata(&path).unwrap();
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    for (mode, found) in [("rw-s", true), ("r--s", false), ("rw-p", false)] {
        let proc = folder.path().join(mode);
        process(&proc, 1, Path::new("/dev/null"), "0100001");
        let line = format!("7f00-7f01 {mode} 00000000 {major:02x}:{minor:02x} {} /x\n", meta.ino());
        fs::write(proc.join("1/maps"), line).unwrap();
        let processes = Processes::search(&proc, &[identity]);
        assert_eq!(processes.writer(identity).is_some(), found, "{mode}");
    }
}

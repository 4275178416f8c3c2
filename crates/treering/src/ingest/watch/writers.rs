//! Open writers: whether a process still has a file open for writing.
//!
//! A program that rests inside a file looks like one that has finished it: size and time stand still.
//! Two sources tell them apart, and they are combined because neither suffices.
//!
//! A *read lease* (`fcntl(F_SETLEASE)`) is refused while any process of this machine can write to the
//! file, through a descriptor or a shared mapping, in any container, whoever it belongs to. It costs two
//! system calls. It needs the file's owner or CAP_LEASE, and a local file system: network file systems
//! refuse leases for reasons of their own.
//!
//! *Processes* (`/proc/*/fd`, `fdinfo` and `maps`) are searched only where the lease does not answer, and
//! to name the process that a set waits for. Descriptors of other users' processes cannot be read, and
//! processes in other containers are not listed. A process that cannot be read matters if it may belong
//! to the owner of the file: the program that wrote it.
//!
//! Neither sees other machines of a network file system, nor a program that has closed a file and will
//! open it again.

mod lease;
mod processes;

use self::lease::{Lease, ask, is_network};
use self::processes::{FileIdentity, Processes};
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Whether a file is open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Openness {
    /// No process of this machine has it open for writing.
    Closed,
    /// A process has; it is known unless it belongs to another user or container.
    Open(Option<OpenWriter>),
    /// A process of its owner may have, and cannot be looked at.
    Hidden,
}

/// A process that has a file open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenWriter {
    pid: u32,
    command: String,
}

impl fmt::Display for Openness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Openness::Closed => f.write_str("is closed"),
            Openness::Open(Some(OpenWriter { pid, command })) => {
                write!(f, "is open for writing by process {pid} ({command})")
            }
            Openness::Open(None) => f.write_str(
                "is open for writing by a process that cannot be named: it belongs to another user or \
                 container",
            ),
            Openness::Hidden => f.write_str(
                "may be open for writing: processes of its owner cannot be looked at by this user",
            ),
        }
    }
}

/// Looks for open writers. A trait, so that tests can hide processes.
pub(super) trait Probe: Send + Sync {
    /// The openness of each file. A file that does not exist is closed.
    fn look(&self, files: &[PathBuf]) -> Vec<Openness>;
}

/// The processes of this machine.
pub(super) struct ThisMachine;

impl Probe for ThisMachine {
    fn look(&self, files: &[PathBuf]) -> Vec<Openness> {
        let asked: Vec<Asked> = files.iter().map(|path| Asked::new(path)).collect();
        let unclear = asked.iter().filter(|asked| asked.lease != Lease::Granted);
        let wanted: Vec<FileIdentity> = unclear.filter_map(|asked| asked.file).collect();
        let processes = match wanted.is_empty() {
            true => Processes::default(),
            false => Processes::search(Path::new("/proc"), &wanted),
        };
        asked.iter().map(|asked| asked.judge(&processes)).collect()
    }
}

/// A file, and the answer to the request for a lease.
struct Asked {
    lease: Lease,
    /// Whether its file system may refuse leases for other reasons than a writer.
    network: bool,
    /// `None`: it could not be opened.
    file: Option<FileIdentity>,
}

impl Asked {
    fn new(path: &Path) -> Asked {
        // Not blocking: the path may be a pipe by now, or somebody may hold a lease.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let unknown = Asked { lease: Lease::NotAnswered, network: false, file: None };
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from) else {
            // The file is gone, or ingesting it will report that it may not be read.
            return Asked { file: FileIdentity::of_path(path), ..unknown };
        };
        let Some(identity) = FileIdentity::of_path(path) else { return unknown };
        Asked { lease: ask(&file), network: is_network(&file), file: Some(identity) }
    }

    /// Combines both sources.
    fn judge(&self, processes: &Processes) -> Openness {
        let Some(file) = self.file else { return Openness::Closed };
        let writer = processes.writer(file);
        match (self.lease, writer) {
            (Lease::Granted, _) => Openness::Closed,
            (_, Some(writer)) => Openness::Open(Some(writer.clone())),
            (Lease::Refused, None) if !self.network => Openness::Open(None),
            _ if processes.may_hide(file) => Openness::Hidden,
            _ => Openness::Closed,
        }
    }
}

#[cfg(test)]
mod tests;

//! Processes that have files open for writing, as `/proc` shows them.

use super::OpenWriter;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::collections::{HashMap, HashSet};
use std::fs::read_to_string;
use std::io::ErrorKind;
use std::path::Path;

/// Mask of the access mode in a descriptor's flags; zero is reading.
const ACCESS: u32 = 0b11;

/// A file, whatever its name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileIdentity {
    /// Major and minor number.
    device: (u32, u32),
    inode: u64,
    owner: u32,
}

impl FileIdentity {
    /// The file at a path, or behind a descriptor in `/proc`. Attributes that the kernel knows suffice:
    /// a server that does not answer must not hold up the search.
    pub(super) fn of_path(path: &Path) -> Option<FileIdentity> {
        let what = StatxFlags::INO | StatxFlags::UID;
        let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, what).ok()?;
        let device = (found.stx_dev_major, found.stx_dev_minor);
        Some(FileIdentity { device, inode: found.stx_ino, owner: found.stx_uid })
    }
}

/// Writers of some files, and users whose processes could not be looked at.
#[derive(Default)]
pub(super) struct Processes {
    writers: HashMap<FileIdentity, OpenWriter>,
    hidden: HashSet<u32>,
    /// Not even the users of all processes are known.
    blind: bool,
}

impl Processes {
    /// Searches all processes for descriptors and shared mappings that can write to these files.
    pub(super) fn search(proc: &Path, files: &[FileIdentity]) -> Processes {
        let mut all = Processes::default();
        let Ok(entries) = std::fs::read_dir(proc) else {
            return Processes { blind: true, ..all };
        };
        for entry in entries.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            if let Some(pid) = pid {
                all.look_at(&entry.path(), pid, files);
            }
        }
        // `/proc` may be mounted so that only own processes are listed; the first one is root's.
        let own = rustix::process::geteuid().as_raw();
        all.blind |= files.iter().any(|file| file.owner != own) && !proc.join("1").exists();
        all
    }

    pub(super) fn writer(&self, file: FileIdentity) -> Option<&OpenWriter> {
        self.writers.get(&file)
    }

    /// Whether a process of the file's owner could not be looked at.
    pub(super) fn may_hide(&self, file: FileIdentity) -> bool {
        self.blind || self.hidden.contains(&file.owner)
    }

    fn look_at(&mut self, process: &Path, pid: u32, files: &[FileIdentity]) {
        let open = match std::fs::read_dir(process.join("fd")) {
            Ok(descriptors) => descriptors,
            // It has ended meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(_) => return self.hide(process),
        };
        let mut found: Vec<FileIdentity> = open
            .flatten()
            .filter(|link| can_write(&process.join("fdinfo").join(link.file_name())))
            .filter_map(|link| FileIdentity::of_path(&link.path()))
            .filter(|file| files.contains(file))
            .collect();
        let maps = read_to_string(process.join("maps")).unwrap_or_default();
        found.extend(files.iter().filter(|file| maps.lines().any(|line| maps_to(line, file))));
        for file in found {
            let command = read_to_string(process.join("comm")).unwrap_or_default();
            let command = command.trim_end().to_string();
            self.writers.entry(file).or_insert(OpenWriter { pid, command });
        }
    }

    /// Takes note of the users of a process that cannot be looked at.
    fn hide(&mut self, process: &Path) {
        let status = match read_to_string(process.join("status")) {
            Ok(status) => status,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(_) => return self.blind = true,
        };
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        match users {
            Some(users) => {
                self.hidden
                    .extend(users.split_whitespace().filter_map(|user| user.parse::<u32>().ok()));
            }
            None => self.blind = true,
        }
    }
}

/// Whether a descriptor is open for writing. One that is closed meanwhile is not.
fn can_write(info: &Path) -> bool {
    let text = read_to_string(info).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & ACCESS != 0)
}

/// Whether a line of `maps` is a shared, writable mapping of a file. Columns: addresses, permissions,
/// offset, device, inode.
fn maps_to(line: &str, file: &FileIdentity) -> bool {
    let mut columns = line.split_whitespace().skip(1);
    let (mode, device, inode) = (columns.next(), columns.nth(1), columns.next());
    let device = device.and_then(|device| device.split_once(':')).and_then(|(major, minor)| {
        Some((u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?))
    });
    mode.is_some_and(|mode| mode.contains('w') && mode.contains('s'))
        && device == Some(file.device)
        && inode.and_then(|inode| inode.parse().ok()) == Some(file.inode)
}

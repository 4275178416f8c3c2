//! Read leases as a question: is this file open for writing?

use rustix::fs::fstatfs;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `fcntl` command that chooses the signal of a lease; the `libc` crate lacks it for glibc.
const F_SETSIG: libc::c_int = 10;

/// File systems on which a refused lease does not prove a writer (magic numbers of `statfs`): NFS,
/// SMB, CIFS, SMB2, AFS, Ceph, 9P, Lustre, GPFS, FUSE.
const NETWORK: [u32; 10] = [
    0x6969,
    0x517B,
    0xFF53_4D42,
    0xFE53_4D42,
    0x5346_414F,
    0x00C3_6400,
    0x0102_1997,
    0x0BD0_0BD0,
    0x4750_4653,
    0x6573_5546,
];

/// Answer to the request for a read lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lease {
    /// No process can write to the file.
    Granted,
    /// A process can write to it, or the file system has another reason.
    Refused,
    /// This user or this file system has no leases.
    NotAnswered,
}

/// Asks for a read lease and gives it back at once.
///
/// While it is held, for microseconds, another process that opens the file for writing waits, and the
/// kernel sends this one a signal: by default SIGIO, which would end the process, here SIGURG, which is
/// ignored by default.
pub(super) fn ask(file: &File) -> Lease {
    let descriptor = file.as_raw_fd();
    // SAFETY: the descriptor is open, and the arguments of these commands are plain numbers.
    let answer = unsafe {
        if libc::fcntl(descriptor, F_SETSIG, libc::SIGURG) != 0 {
            return Lease::NotAnswered;
        }
        libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_RDLCK)
    };
    if answer == 0 {
        // SAFETY: as above. If it fails, closing the descriptor ends the lease.
        unsafe { libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_UNLCK) };
        return Lease::Granted;
    }
    match io::Error::last_os_error().kind() {
        io::ErrorKind::WouldBlock => Lease::Refused,
        _ => Lease::NotAnswered,
    }
}

/// Whether the file system of a file is one of [`NETWORK`]; one that is not known counts as such.
pub(super) fn is_network(file: &File) -> bool {
    fstatfs(file).map_or(true, |system| NETWORK.contains(&(system.f_type as u32)))
}

//! Files that are opened for reading, and nothing else: to open a pipe would wait for somebody who writes.

use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a regular file for reading. Anything else (a folder, a pipe, a device) is an error of kind
/// [`InvalidInput`](io::ErrorKind::InvalidInput), at once.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = match open(path, flags | OFlags::NONBLOCK, Mode::empty()) {
        // Somebody has a lease on it, so it is a file: wait until they give it back.
        Err(rustix::io::Errno::AGAIN) => File::from(open(path, flags, Mode::empty())?),
        // A socket.
        Err(rustix::io::Errno::NXIO) => return Err(no_file()),
        opened => File::from(opened?),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
}

fn no_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "this is not a regular file")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_files_are_opened_and_nothing_waits() {
        let folder = tempfile::tempdir().unwrap();
        let [file, pipe, socket] = ["file", "pipe", "socket"].map(|name| folder.path().join(name));
        std::fs::write(&file, "text").unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(open_file(&file).unwrap().metadata().unwrap().len(), 4);
        for other in [folder.path(), &pipe, &socket, Path::new("/dev/null")] {
            let refused = open_file(other).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{}", other.display());
        }
        let missing = open_file(&folder.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}

//! Files that are opened for reading, and nothing else: to open a pipe would wait for somebody who writes.

use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a regular file for reading. Anything else (a folder, a pipe, a device) is an error of kind
/// [`InvalidInput`](io::ErrorKind::InvalidInput), at once.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let open = |flags| retry_on_intr(|| open(path, flags, Mode::empty()));
    let file = match open(flags | OFlags::NONBLOCK) {
        // Somebody has a lease on it, so it is a file: wait until they give it back.
        Err(rustix::io::Errno::AGAIN) => File::from(open(flags)?),
        Err(rustix::io::Errno::NXIO) if is_socket(path) => return Err(no_file()),
        opened => File::from(opened?),
    };
    if !file.metadata()?.is_file() {
        return Err(no_file());
    }
    // Reads wait for their data.
    fcntl_setfl(&file, flags - OFlags::CLOEXEC)?;
    Ok(file)
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
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

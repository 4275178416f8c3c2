//! The operations of a file system that a directory store needs, so that a simulated disk can take
//! the place of the real one in tests of power cuts.

use crate::io::open_file;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::any::Any;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The operations of a file system.
pub trait Disk: Send + Sync {
    /// Creates a file that must not exist yet.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for reading. Anything but a file is an error of kind `InvalidInput`.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name, which must not be in use.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes a folder; its parent exists.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes names in a folder durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// Name, size and whether it is a folder, of everything in a folder.
    fn list(&self, path: &Path) -> io::Result<Vec<(String, u64, bool)>>;
    /// Takes an exclusive lock on a file, creating it; the file's text is put into the error when
    /// somebody else has it, and replaced by `text` when not.
    fn lock(&self, path: &Path, text: &str) -> io::Result<Box<dyn Any + Send + Sync>>;
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Takes bytes at the end back, down to a length.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Makes the content durable.
    fn sync(&mut self) -> io::Result<()>;
    /// The size.
    fn size(&self) -> io::Result<u64>;
    /// Fills `buffer` from `offset` on.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Fills the parts one after another from `offset` on; they are left anyhow.
    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut]) -> io::Result<()>;
}

/// The real file system.
pub struct OsDisk;

impl Disk for OsDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(open_file(path)?))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Some network file systems have no rename without replacing, but hard links.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => link_new(from, to),
            done => Ok(done?),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(String, u64, bool)>> {
        let mut items = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                // It was removed since the folder was opened.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            if let Ok(name) = entry.file_name().into_string() {
                items.push((name, metadata.len(), metadata.is_dir()));
            }
        }
        Ok(items)
    }

    fn lock(&self, path: &Path, text: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                // Only for people: a full disk must not keep anyone from pruning it.
                let written = file.write_all(text.as_bytes());
                let _ = written.and_then(|()| file.set_len(text.len() as u64));
                Ok(Box::new(OsLock(file)))
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                let holder = std::fs::read_to_string(path).unwrap_or_default();
                Err(io::Error::new(io::ErrorKind::WouldBlock, holder))
            }
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

/// A lock that ends when it is dropped, even if a child process has a copy of the open file.
struct OsLock(File);

impl Drop for OsLock {
    fn drop(&mut self) {
        // If this fails, closing the file ends the lock.
        let _ = self.0.unlock();
    }
}

/// The most parts that the system reads in one call (IOV_MAX).
const MOST_PARTS: usize = 1024;

impl DiskFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        self.seek(SeekFrom::Start(len)).map(drop)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn read_vectored_at(&self, mut offset: u64, parts: &mut [IoSliceMut]) -> io::Result<()> {
        for mut parts in parts.chunks_mut(MOST_PARTS) {
            IoSliceMut::advance_slices(&mut parts, 0);
            while !parts.is_empty() {
                match rustix::io::preadv(self, parts, offset) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(read) => {
                        offset += read as u64;
                        IoSliceMut::advance_slices(&mut parts, read);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

fn link_new(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_name_replaces_nothing_with_and_without_links() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let ways: [fn(&Path, &Path) -> io::Result<()>; 2] =
            [|from, to| OsDisk.rename_new(from, to), link_new];
        for (at, way) in ways.into_iter().enumerate() {
            let to = path(&format!("to {at}"));
            std::fs::write(path("first"), "first").unwrap();
            way(&path("first"), &to).unwrap();
            std::fs::write(path("second"), "second").unwrap();
            let refused = way(&path("second"), &to).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(std::fs::read(&to).unwrap(), b"first");
            assert!(!path("first").exists() && path("second").exists());
        }
    }
}

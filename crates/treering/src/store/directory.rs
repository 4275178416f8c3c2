//! A store in a folder of a file system.
//!
//! Put and commit write a temporary file, fsync it, rename it without replacing, and fsync the folder: under
//! its own name a file is always whole, and nobody ever removes or continues a file that another process is
//! writing. A failed fsync is never tried again on the same file, because the kernel may have dropped what it
//! could not write: the file is given up.

use super::disk::{Disk, DiskFile, OsDisk};
use super::{Blob, Lock, Put, Store, StoreItem, after, only_copy};
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Prefix of temporary files; they are not listed.
const TEMPORARY: &str = ".new-";

/// A store in a folder.
///
/// ```
/// use std::sync::Arc;
/// use treering::{DirectoryStore, Options};
/// let scratch = Arc::new(DirectoryStore::new("/local/scratch")); // of the node
/// let shared = Arc::new(DirectoryStore::new("/lustre/project/store"));
/// let options = Options::in_store(shared, "rod").node(scratch); // nothing is touched before `Run::open`
/// ```
///
/// Writes are durable (fsync of file and folder) before they are reported. After a full disk or an I/O error the object
/// in question does not exist, and everything else is as it was.
pub struct DirectoryStore {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    name: String,
    /// The folders whose names this process has made durable.
    ready: Mutex<HashSet<PathBuf>>,
}

impl DirectoryStore {
    /// A store in `root`, which is made when the first object is put.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let name = root.display().to_string();
        // The program may change its working directory later.
        let root = std::path::absolute(&root).unwrap_or(root);
        DirectoryStore { name, ..Self::on(Arc::new(OsDisk), root) }
    }

    /// A store on another disk than the real one.
    pub fn on(disk: Arc<dyn Disk>, root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let name = root.display().to_string();
        DirectoryStore { disk, root, name, ready: Mutex::default() }
    }

    fn path(&self, key: &str) -> Result<PathBuf> {
        let bad = |part: &str| part.is_empty() || part == "." || part == "..";
        if key.split('/').any(bad) || key.contains('\0') {
            return Err(Error::usage(format!("invalid key {key:?} of a store")));
        }
        Ok(self.root.join(key))
    }

    /// Makes a folder and all above it, durably. A folder that is there already may have been made
    /// by a process that died before its name was synced: so the first use of each one syncs it.
    fn ready(&self, folder: &Path) -> io::Result<()> {
        if self.is_ready(folder) {
            return Ok(());
        }
        let outside = !folder.starts_with(&self.root);
        if folder.as_os_str().is_empty() || (outside && self.disk.list(folder).is_ok()) {
            return Ok(());
        }
        if let Some(above) = folder.parent() {
            self.ready(above)?;
            match self.disk.make_folder(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => self.disk.sync_folder(parent(folder))?,
            }
        }
        self.ready.lock().unwrap_or_else(|p| p.into_inner()).insert(folder.to_path_buf());
        Ok(())
    }

    fn is_ready(&self, folder: &Path) -> bool {
        self.ready.lock().unwrap_or_else(|p| p.into_inner()).contains(folder)
    }

    /// Creates a file. A folder that was there and is gone is not made again: somebody has moved or
    /// removed the store, and what goes on elsewhere would lack everything from before.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.ready(parent(path))?;
        self.disk.create(path)
    }

    fn write_temporary(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create(path)?;
        file.append(bytes)?;
        file.sync()
    }

    /// Makes the names of a folder durable; one that is gone has none.
    fn sync(&self, folder: &Path) -> Result<()> {
        match self.disk.sync_folder(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", &folder.display().to_string(), error))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, what: &str, key: &str, error: io::Error) -> Error {
        Error::io(format!("cannot {what} a file of the store"), error)
            .at(self.root.join(key).display())
    }
}

/// The holder of a lock, from its file.
fn holder(error: &io::Error) -> String {
    match error.to_string() {
        text if text.is_empty() => "another process".to_string(),
        text => text,
    }
}

/// A name that no other process or thread uses.
fn temporary(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    path.with_file_name(format!("{TEMPORARY}{name}-{host}-{}-{count}", std::process::id()))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Store for DirectoryStore {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn put(&self, key: &str) -> Result<Box<dyn Put>> {
        let path = self.path(key)?;
        let temporary = temporary(&path);
        let file = self.create(&temporary).map_err(|e| self.failed("create", key, e))?;
        let (disk, file) = (self.disk.clone(), Some(file));
        Ok(Box::new(DirectoryPut { disk, file, temporary, path, len: 0 }))
    }

    fn commit(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        let path = self.path(key)?;
        let temporary = temporary(&path);
        let written = self.write_temporary(&temporary, bytes);
        let renamed = written.and_then(|()| self.disk.rename_new(&temporary, &path));
        if let Err(error) = renamed {
            // Its remains are never listed, and the next opening of the run removes them.
            let _ = self.disk.remove(&temporary);
            return match error.kind() {
                io::ErrorKind::AlreadyExists => Ok(false),
                _ => Err(self.failed("commit", key, error)),
            };
        }
        let synced = self.disk.sync_folder(parent(&path));
        synced.map_err(|e| self.failed("commit", key, e))?;
        Ok(true)
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        let opened = self.disk.open(&self.path(key)?);
        let file = opened.map_err(|error| match error.kind() {
            // Said by `open_file`; a file system that refuses with EINVAL is trouble of another kind.
            io::ErrorKind::InvalidInput if error.raw_os_error().is_none() => {
                Error::damaged("something that is not a file has the name of one")
                    .at(self.root.join(key).display())
                    .hint("move it out of the store")
            }
            _ => self.failed("open", key, error),
        })?;
        let size = file.size().map_err(|e| self.failed("open", key, e))?;
        Ok(Box::new(DirectoryBlob {
            file,
            size,
            key: self.root.join(key).display().to_string(),
            store: self.name.clone(),
        }))
    }

    fn copies(&self, key: &str) -> Vec<Result<Box<dyn Blob>>> {
        only_copy(self.open(key))
    }

    fn list_after(&self, folder: &str, from: &str) -> Result<Vec<StoreItem>> {
        Ok(after(self.list(folder)?, from))
    }

    fn list(&self, folder: &str) -> Result<Vec<StoreItem>> {
        let listed = match folder {
            "" => self.disk.list(&self.root),
            _ => self.disk.list(&self.path(folder)?),
        };
        let items = match listed {
            Ok(items) => items,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("list", folder, error)),
        };
        let mut items: Vec<StoreItem> = items
            .into_iter()
            .filter(|(name, ..)| !name.starts_with('.'))
            .map(|(name, size, folder)| StoreItem {
                name,
                size: if folder { 0 } else { size },
                folder,
            })
            .collect();
        items.sort();
        Ok(items)
    }

    fn delete(&self, keys: &[String]) -> Result<()> {
        let mut folders: Vec<PathBuf> = Vec::new();
        for key in keys {
            let path = self.path(key)?;
            match self.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.failed("remove", key, error));
                }
                // A file that is gone already may have been removed without a sync.
                _ => folders.push(parent(&path).to_path_buf()),
            }
        }
        folders.sort();
        folders.dedup();
        folders.iter().try_for_each(|folder| self.sync(folder))
    }

    fn settle(&self, folder: &str) -> Result<()> {
        self.sync(&self.path(folder)?)
    }

    fn sweep(&self, folder: &str) -> Result<()> {
        let path = self.path(folder)?;
        let Ok(items) = self.disk.list(&path) else {
            return Ok(());
        };
        for (name, ..) in items.iter().filter(|(name, ..)| name.starts_with(TEMPORARY)) {
            let removed = self.disk.remove(&path.join(name));
            removed.map_err(|e| self.failed("remove", &format!("{folder}/{name}"), e))?;
        }
        Ok(())
    }

    fn lock(&self, key: &str) -> Result<Option<Lock>> {
        let path = self.path(key)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let text = format!("process {} on {host}", std::process::id());
        let taken = self.ready(parent(&path)).and_then(|()| self.disk.lock(&path, &text));
        match taken {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if has_no_locks(&error) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let what = if key.contains('/') { "the run" } else { "the store" };
                Err(Error::new(ErrorKind::Busy, format!("{what} is in use by {}", holder(&error)))
                    .at(path.display())
                    .hint("wait for that process to end, or end it"))
            }
            Err(error) => Err(self.failed("lock", key, error)),
        }
    }
}

/// Whether a file system has no locks, as Lustre mounted without `flock` and some network mounts.
fn has_no_locks(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::ENOSYS, libc::EOPNOTSUPP, libc::ENOLCK].map(Some).contains(&code)
        || error.kind() == io::ErrorKind::Unsupported
}

struct DirectoryPut {
    disk: Arc<dyn Disk>,
    file: Option<Box<dyn DiskFile>>,
    /// Its name until it is whole.
    temporary: PathBuf,
    path: PathBuf,
    /// The bytes that were appended.
    len: u64,
}

impl DirectoryPut {
    fn failed(&self, error: io::Error) -> Error {
        Error::io("cannot write a file of the store", error).at(self.path.display())
    }

    fn gone(&self) -> Error {
        Error::new(ErrorKind::Io, "a file of the store was given up after an error")
            .at(self.path.display())
    }
}

impl Put for DirectoryPut {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else { return Err(self.gone()) };
        let len = self.len;
        let appended = file.append(bytes).map_err(|error| (error, file.truncate(len).is_ok()));
        match appended {
            Ok(()) => self.len += bytes.len() as u64,
            Err((error, true)) => return Err(self.failed(error)),
            // A part of the bytes is there and cannot be taken back: the object is given up.
            Err((error, false)) => {
                self.file = None;
                let _ = self.disk.remove(&self.temporary);
                return Err(self.failed(error));
            }
        }
        Ok(())
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match &self.file {
            Some(file) => file.read_at(offset, buffer).map_err(|e| self.failed(e)),
            None => Err(self.gone()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let Some(mut file) = self.file.take() else { return Err(self.gone()) };
        let named = file.sync().and_then(|()| self.disk.rename_new(&self.temporary, &self.path));
        if named.is_err() {
            // It is never listed; if it cannot be removed now, the next opening of the run does.
            let _ = self.disk.remove(&self.temporary);
        }
        let synced = named.and_then(|()| self.disk.sync_folder(parent(&self.path)));
        synced.map_err(|e| self.failed(e))
    }
}

impl Drop for DirectoryPut {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // It is never listed; if it cannot be removed now, the next opening of the run does.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}

struct DirectoryBlob {
    file: Box<dyn DiskFile>,
    size: u64,
    key: String,
    store: String,
}

impl DirectoryBlob {
    fn failed(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::damaged("a file is shorter than it should be").at(&self.key)
            }
            _ => Error::io("cannot read a file of the store", error).at(&self.key),
        }
    }
}

impl Blob for DirectoryBlob {
    fn store(&self) -> &str {
        &self.store
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, buffer).map_err(|e| self.failed(e))
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        ranges.sort_unstable_by_key(|(offset, _)| *offset);
        // Ranges that follow each other are read by one call.
        let follows = |a: &(u64, &mut [u8]), b: &(u64, &mut [u8])| {
            a.0.checked_add(a.1.len() as u64) == Some(b.0)
        };
        for together in ranges.chunk_by_mut(follows) {
            let offset = together[0].0;
            let mut parts: Vec<IoSliceMut> =
                together.iter_mut().map(|(_, buffer)| IoSliceMut::new(buffer)).collect();
            self.file.read_vectored_at(offset, &mut parts).map_err(|e| self.failed(e))?;
        }
        Ok(())
    }

    fn file(&self) -> Option<(&File, &Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        false
    }
}

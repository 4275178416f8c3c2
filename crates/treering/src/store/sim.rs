//! A simulated disk that can lose what was not synced.
//!
//! A power cut cannot be tested with SIGKILL, because the kernel's page cache survives that. This
//! disk keeps, for each file, the content that was synced beside the content that was written, and
//! for each folder the names that were synced beside the changes since. After a cut, each change of
//! a name is there or not, independently of the others (an atomic rename is one change); and what
//! was written to a file without a sync is there wholly, in part, as zeros, or not at all.

use super::disk::{Disk, DiskFile};
use std::any::Any;
use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Kind of a fault at one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimFault {
    /// The operation fails, once.
    Fail,
    /// A write leaves half of its bytes and fails; another operation fails.
    Tear,
    /// The operation happens, and then the power is cut: all later ones fail.
    Cut,
}

#[derive(Clone, Debug)]
enum SimNode {
    File(usize),
    Folder,
}

#[derive(Clone, Debug)]
enum Change {
    Add(String, SimNode),
    Remove(String),
    Rename(String, String),
}

#[derive(Clone, Default)]
struct SimFolder {
    synced: BTreeMap<String, SimNode>,
    changes: Vec<Change>,
}

impl SimFolder {
    fn now(&self) -> BTreeMap<String, SimNode> {
        let mut names = self.synced.clone();
        self.changes.iter().for_each(|c| apply(&mut names, c));
        names
    }
}

fn apply(names: &mut BTreeMap<String, SimNode>, change: &Change) {
    match change {
        Change::Add(name, node) => {
            names.insert(name.clone(), node.clone());
        }
        Change::Remove(name) => {
            names.remove(name);
        }
        Change::Rename(from, to) => {
            if let Some(node) = names.remove(from) {
                names.insert(to.clone(), node);
            }
        }
    }
}

#[derive(Clone, Default)]
struct SimContent {
    synced: Vec<u8>,
    now: Vec<u8>,
}

#[derive(Clone, Default)]
struct SimState {
    files: Vec<SimContent>,
    folders: BTreeMap<PathBuf, SimFolder>,
    locks: BTreeMap<PathBuf, ()>,
    operations: u64,
    fault: Option<(u64, SimFault)>,
    dead: bool,
}

/// A disk in memory that loses what was not synced.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<SimState>>);

/// The fate of each unsynced change in a power cut: a source of small numbers.
///
/// Rolling 0 everywhere loses everything that was not synced.
#[derive(Clone, Copy, Debug)]
pub enum PowerCut {
    /// All unsynced changes are lost.
    Lose,
    /// All unsynced changes survive.
    Keep,
    /// Each change by the dice.
    Random(u64),
    /// One of all outcomes there are, by its number; see [`SimDisk::outcomes`].
    Number(u64),
}

impl PowerCut {
    fn roll(&mut self, sides: u64) -> u64 {
        match self {
            PowerCut::Lose => 0,
            PowerCut::Keep => sides - 1,
            PowerCut::Number(rest) => {
                let rolled = *rest % sides;
                *rest /= sides;
                rolled
            }
            PowerCut::Random(state) => {
                *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (*state >> 33) % sides
            }
        }
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        let mut state = SimState::default();
        state.folders.insert(PathBuf::from("/"), SimFolder::default());
        SimDisk(Arc::new(Mutex::new(state)))
    }

    /// Makes the operation with that number, from now on counted from 0, go wrong.
    pub fn inject(&self, at: u64, fault: SimFault) {
        let mut state = self.held();
        state.operations = 0;
        state.fault = Some((at, fault));
    }

    /// The number of operations since the last injection.
    pub fn operations(&self) -> u64 {
        self.held().operations
    }

    /// Whether the power has been cut.
    pub fn is_dead(&self) -> bool {
        self.held().dead
    }

    /// The number of possible outcomes of a power cut at this moment.
    pub fn outcomes(&self) -> u64 {
        let state = self.held();
        let unsynced = state.files.iter().filter(|c| c.synced != c.now).count();
        let changes: usize = state.folders.values().map(|f| f.changes.len()).sum();
        1u64.checked_shl((2 * unsynced + changes) as u32).unwrap_or(u64::MAX)
    }

    /// The disk as it may be found after a power cut at this moment.
    pub fn after_cut(&self, mut dice: PowerCut) -> SimDisk {
        let state = self.held();
        let mut next = SimState::default();
        for content in &state.files {
            let data = survive(content, &mut dice);
            next.files.push(SimContent { synced: data.clone(), now: data });
        }
        for (path, folder) in &state.folders {
            let mut names = folder.synced.clone();
            for change in &folder.changes {
                if dice.roll(2) == 1 {
                    apply(&mut names, change);
                }
            }
            next.folders.insert(path.clone(), SimFolder { synced: names, changes: Vec::new() });
        }
        SimDisk(Arc::new(Mutex::new(next)))
    }

    /// A copy of the disk as it is now, as a killed process leaves it.
    pub fn after_kill(&self) -> SimDisk {
        self.after_cut(PowerCut::Keep)
    }

    fn held(&self) -> MutexGuard<'_, SimState> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts an operation; the state, and whether it is to be torn.
    fn operate(&self) -> io::Result<(MutexGuard<'_, SimState>, bool)> {
        let mut state = self.held();
        if state.dead {
            return Err(io::Error::other("the power is cut (simulated)"));
        }
        let number = state.operations;
        state.operations += 1;
        match state.fault {
            Some((at, SimFault::Fail)) if at == number => {
                Err(io::Error::other("the operation failed (simulated)"))
            }
            Some((at, SimFault::Tear)) if at == number => Ok((state, true)),
            Some((at, SimFault::Cut)) if at == number => {
                state.dead = true;
                Ok((state, false))
            }
            _ => Ok((state, false)),
        }
    }

    fn whole(&self) -> io::Result<MutexGuard<'_, SimState>> {
        match self.operate()? {
            (state, false) => Ok(state),
            (_, true) => Err(io::Error::other("the operation failed (simulated)")),
        }
    }
}

/// The part of a file that a power cut leaves.
fn survive(content: &SimContent, dice: &mut PowerCut) -> Vec<u8> {
    let (synced, now) = (&content.synced, &content.now);
    if synced == now {
        return now.clone();
    }
    match dice.roll(4) {
        0 => synced.clone(),
        1 => now[..synced.len() + (now.len() - synced.len()) / 2].to_vec(),
        2 => {
            let mut zeros = synced.clone();
            zeros.resize(now.len(), 0);
            zeros
        }
        _ => now.clone(),
    }
}

fn split(path: &Path) -> io::Result<(PathBuf, String)> {
    let parent = path.parent().map(Path::to_path_buf).unwrap_or_default();
    match path.file_name().and_then(|n| n.to_str()) {
        Some(name) => Ok((parent, name.to_string())),
        None => Err(io::ErrorKind::InvalidInput.into()),
    }
}

impl SimState {
    /// A folder exists if its name is there, and so all the way up.
    fn folder(&mut self, path: &Path) -> io::Result<&mut SimFolder> {
        if path != Path::new("/") {
            let (parent, name) = split(path)?;
            match self.folder(&parent)?.now().get(&name) {
                Some(SimNode::Folder) => {}
                _ => return Err(io::ErrorKind::NotFound.into()),
            }
        }
        self.folders.get_mut(path).ok_or(io::ErrorKind::NotFound.into())
    }

    fn file(&mut self, path: &Path) -> io::Result<usize> {
        let (parent, name) = split(path)?;
        match self.folder(&parent)?.now().get(&name) {
            Some(SimNode::File(file)) => Ok(*file),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn add(&mut self, path: &Path, node: SimNode) -> io::Result<()> {
        let (parent, name) = split(path)?;
        let folder = self.folder(&parent)?;
        if folder.now().contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        folder.changes.push(Change::Add(name, node));
        Ok(())
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.whole()?;
        let file = state.files.len();
        state.add(path, SimNode::File(file))?;
        state.files.push(SimContent::default());
        Ok(Box::new(SimFile { disk: self.clone(), file }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.whole()?.file(path)?;
        Ok(Box::new(SimFile { disk: self.clone(), file }))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.whole()?;
        state.file(from)?;
        if state.file(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let ((parent, from), (_, to)) = (split(from)?, split(to)?);
        state.folder(&parent)?.changes.push(Change::Rename(from, to));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.whole()?;
        state.file(path)?;
        let (parent, name) = split(path)?;
        state.folder(&parent)?.changes.push(Change::Remove(name));
        Ok(())
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.whole()?;
        state.add(path, SimNode::Folder)?;
        state.folders.insert(path.to_path_buf(), SimFolder::default());
        Ok(())
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.whole()?;
        let folder = state.folder(path)?;
        folder.synced = folder.now();
        folder.changes.clear();
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(String, u64, bool)>> {
        let mut state = self.whole()?;
        let names = state.folder(path)?.now();
        let item = |(name, node): (String, SimNode)| match node {
            SimNode::File(file) => (name, state.files[file].now.len() as u64, false),
            SimNode::Folder => (name, 0, true),
        };
        Ok(names.into_iter().map(item).collect())
    }

    fn lock(&self, path: &Path, _: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut state = self.whole()?;
        if state.file(path).is_err() {
            let file = state.files.len();
            state.add(path, SimNode::File(file))?;
            state.files.push(SimContent::default());
        }
        if state.locks.insert(path.to_path_buf(), ()).is_some() {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "this process"));
        }
        Ok(Box::new(SimLock(self.clone(), path.to_path_buf())))
    }
}

struct SimLock(SimDisk, PathBuf);

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.held().locks.remove(&self.1);
    }
}

struct SimFile {
    disk: SimDisk,
    file: usize,
}

impl DiskFile for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut state, torn) = self.disk.operate()?;
        let kept = if torn { bytes.len() / 2 } else { bytes.len() };
        state.files[self.file].now.extend_from_slice(&bytes[..kept]);
        match torn {
            true => Err(io::Error::other("the write was torn (simulated)")),
            false => Ok(()),
        }
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.disk.whole()?.files[self.file].now.truncate(len as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.whole()?;
        let content = &mut state.files[self.file];
        content.synced = content.now.clone();
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.held().files[self.file].now.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let state = self.disk.whole()?;
        let end = (offset as usize).saturating_add(buffer.len());
        match state.files[self.file].now.get(offset as usize..end) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }

    fn read_vectored_at(&self, mut offset: u64, parts: &mut [IoSliceMut]) -> io::Result<()> {
        parts.iter_mut().try_for_each(|part| {
            let at = offset;
            offset = at.saturating_add(part.len() as u64);
            self.read_at(at, part)
        })
    }
}

//! A pack that is kept in memory while a thread writes it to the store, so that another rank can finish it.
//!
//! Where ranks survive each other, the leader of a group makes its pack in memory and hands that to a deputy, a member
//! of the group, together with the section, as soon as nothing of either is missing; a slow store may still be at it. If
//! the leader dies before it has published the section, the deputy writes the same bytes under the same names: whoever is
//! faster, and if both do, the checkpoint is the same. A pack that is larger than the memory for it is not kept: what is
//! written of it is removed, and nobody can finish it.

use super::handle::held;
use super::stage::StagePut;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Branch;
use crate::io::give_back;
use crate::memory::zeroed;
use crate::store::{Put, Store};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// The bytes that are written at a time.
const PIECE: u64 = 1 << 20;

/// A pack that its leader may not be able to finish.
pub(super) struct EntrustedPack {
    pub(super) image: File,
    /// The data that is published when the pack is in the store.
    pub(super) section: Branch,
}

impl EntrustedPack {
    /// Writes the pack, if its leader has not finished it.
    pub(super) fn write(&self, store: &dyn Store, key: &str) -> Result<()> {
        let unread = |error| Error::io("cannot read the pack of another rank", error);
        let size = self.image.metadata().map_err(unread)?.len();
        match store.open(key) {
            Ok(blob) if blob.size() == size => return Ok(()),
            Ok(_) => return Err(Error::damaged("a pack has another size than its image").at(key)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut put = store.put(key)?;
        let mut piece = zeroed(PIECE.min(size))?;
        for at in (0..size).step_by(PIECE as usize) {
            let piece = &mut piece[..(size - at).min(PIECE) as usize];
            self.image.read_exact_at(piece, at).map_err(unread)?;
            put.append(piece)?;
        }
        put.finish()
    }
}

/// Progress of a pack.
#[derive(Default)]
struct ImageState {
    /// The bytes that were appended, and those of them that are written.
    len: u64,
    done: u64,
    /// Whether it has become too large to be kept.
    large: bool,
    /// Nothing more comes.
    ended: bool,
    failed: Option<Error>,
}

type SharedImage = Arc<(Mutex<ImageState>, Condvar)>;

/// A pack in memory that a thread behind this one writes to the store.
pub(super) struct ImagePut<'scope> {
    memory: StagePut,
    limit: u64,
    state: SharedImage,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

impl<'scope> ImagePut<'scope> {
    /// At most about `limit` bytes are in memory.
    pub(super) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        put: &'scope mut dyn Put,
        limit: u64,
    ) -> Result<Self> {
        let (memory, state) = (StagePut::new()?, SharedImage::default());
        let (image, of_thread) = (memory.again()?, state.clone());
        let work = move || write_behind(&image, &of_thread, put);
        let thread = Builder::new().name("treering-writer".into()).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| Error::io("cannot start the threads of a run", e))?;
        Ok(ImagePut { memory, limit, state, thread: Some(thread) })
    }

    /// The memory, if it holds all of the pack.
    pub(super) fn image(&self) -> Result<Option<File>> {
        let large = held(&self.state.0).large;
        (!large).then(|| self.memory.again()).transpose()
    }

    /// Waits until everything is written.
    pub(super) fn end(mut self) -> Result<()> {
        self.close();
        held(&self.state.0).failed.take().map_or(Ok(()), Err)
    }

    fn change(&self, change: impl FnOnce(&mut ImageState)) {
        change(&mut held(&self.state.0));
        self.state.1.notify_all();
    }

    fn close(&mut self) {
        self.change(|state| state.ended = true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            let what = "writing a pack ended in an internal error; please report it";
            held(&self.state.0).failed.get_or_insert(Error::new(ErrorKind::Io, what));
        }
    }
}

impl Drop for ImagePut<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

fn write_behind(image: &File, (state, changed): &(Mutex<ImageState>, Condvar), put: &mut dyn Put) {
    loop {
        let idle = |state: &mut ImageState| state.len <= state.done && !state.ended;
        let waited = changed.wait_while(held(state), idle);
        let now = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        let (len, done) = (now.len, now.done);
        drop(now);
        if len <= done {
            return;
        }
        let written = zeroed((len - done).min(PIECE)).and_then(|mut piece| {
            let read = image.read_exact_at(&mut piece, done);
            read.map_err(|error| Error::io("cannot read a pack that is kept in memory", error))?;
            put.append(&piece)?;
            Ok(piece.len() as u64)
        });
        let failed = written.is_err();
        let mut now = held(state);
        match written {
            Ok(bytes) => {
                // A save that waits for room finds it.
                if now.large {
                    // From a border of pages on, or parts of them would stay.
                    give_back(image, done / PIECE * PIECE..done + bytes);
                }
                now.done += bytes;
            }
            Err(error) => now.failed = Some(error),
        }
        drop(now);
        changed.notify_all();
        if failed {
            return;
        }
    }
}

impl Put for ImagePut<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut state = held(&self.state.0);
        if !state.large && state.len + bytes.len() as u64 > self.limit {
            state.large = true;
            give_back(self.memory.file(), 0..state.done);
        }
        // A pack that is not kept waits for room.
        let full = |state: &mut ImageState| {
            state.large && state.len > state.done + self.limit && state.failed.is_none()
        };
        let waited = self.state.1.wait_while(state, full);
        let state = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        drop(state);
        self.memory.append(bytes)?;
        self.change(|state| state.len += bytes.len() as u64);
        Ok(())
    }

    fn read_back(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Err(Error::new(ErrorKind::Io, "data that another thread writes cannot be read back"))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        (*self).end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;
    use crate::testing::{Call, HookedStore};

    #[test]
    fn everything_arrives_in_the_store_and_stays_in_memory() {
        let store = MemoryStore::new();
        let mut put = store.put("x").unwrap();
        let mut all = Vec::new();
        let image = std::thread::scope(|scope| {
            let mut kept = ImagePut::start(scope, put.as_mut(), u64::MAX).unwrap();
            for number in 0..200u32 {
                let frame = vec![number as u8; 1 + (number * 3701 % 40_000) as usize];
                all.extend_from_slice(&frame);
                kept.append(&frame).unwrap();
            }
            let image = kept.image().unwrap();
            kept.end().unwrap();
            image.unwrap()
        });
        put.finish().unwrap();
        let part = crate::save::group::draft("r", &[], &[], 1);
        let section = Branch { of: 1, level: 0, index: 0, part };
        let pack = EntrustedPack { image, section };
        // Whether the leader has finished it or not, the store has it afterwards.
        for key in ["x", "y", "y"] {
            pack.write(&store, key).unwrap();
            let blob = store.open(key).unwrap();
            let mut back = vec![0; blob.size() as usize];
            blob.read_at(0, &mut back).unwrap();
            assert!(back == all, "{key}");
        }
        store.commit("z", b"short").unwrap();
        assert_eq!(pack.write(&store, "z").unwrap_err().kind(), ErrorKind::Damaged);
    }

    #[test]
    fn an_error_of_the_store_is_that_of_a_later_call_or_of_the_end() {
        for (frames, limit) in [(2, u64::MAX), (5000, u64::MAX), (5000, 10_000)] {
            let full = HookedStore::new(Arc::new(MemoryStore::new()), |call| match call {
                Call::Append(..) => Err(Error::new(ErrorKind::Full, "no room")),
                _ => Ok(()),
            });
            let mut put = full.put("x").unwrap();
            std::thread::scope(|scope| {
                let mut kept = ImagePut::start(scope, put.as_mut(), limit).unwrap();
                let appended: Result<()> = (0..frames).try_for_each(|_| kept.append(&[1; 800]));
                assert_eq!(appended.and(kept.end()).unwrap_err().kind(), ErrorKind::Full);
            });
        }
    }

    /// A pack that is larger than its memory arrives all the same, and is not kept.
    #[test]
    fn what_is_too_large_is_written_and_not_kept() {
        const LIMIT: u64 = 3 << 20;
        let store = MemoryStore::new();
        let mut put = store.put("x").unwrap();
        let mut all = Vec::new();
        std::thread::scope(|scope| {
            let mut kept = ImagePut::start(scope, put.as_mut(), LIMIT).unwrap();
            for number in 0..400u32 {
                let frame = vec![number as u8; 40_000 + number as usize];
                all.extend_from_slice(&frame);
                kept.append(&frame).unwrap();
                let blocks = std::os::unix::fs::MetadataExt::blocks;
                let memory = 512 * blocks(&kept.memory.again().unwrap().metadata().unwrap());
                assert!(memory <= LIMIT + 50_000, "{memory} bytes are held");
            }
            assert!(kept.image().unwrap().is_none());
            kept.end().unwrap();
        });
        put.finish().unwrap();
        let blob = store.open("x").unwrap();
        let mut back = vec![0; blob.size() as usize];
        blob.read_at(0, &mut back).unwrap();
        assert!(back == all);
    }
}

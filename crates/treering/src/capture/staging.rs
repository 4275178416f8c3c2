//! The memory in which copies wait to be written: bounded, and used again and again, because the
//! first touch of a page costs more than copying to it.

use memmap2::{Advice, MmapMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The most saves that may be under way at a time, however small they are.
const MAX_SAVES: usize = 16;
const HUGE: usize = 2 << 20;
/// The time between two looks around of a program that waits.
const LOOK: Duration = Duration::from_millis(50);

/// A look around of the program's thread while it waits for room.
type Look = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Inner {
    /// Bytes that are promised or filled.
    used: u64,
    saves: usize,
    /// Whether the program is being held up by a capture that has the memory it needs.
    capturing: bool,
    free: Vec<MmapMut>,
}

/// The staging memory of a run.
#[derive(Clone)]
pub(crate) struct Staging {
    inner: Arc<(Mutex<Inner>, Condvar)>,
    limit: u64,
    look: Option<Look>,
}

impl Staging {
    pub(crate) fn new(limit: u64) -> Self {
        Staging { inner: Arc::default(), limit, look: None }
    }

    /// Lets the program look around while it waits: what it waits for may never come, and it has to end that.
    pub(crate) fn looking(mut self, look: Look) -> Self {
        self.look = Some(look);
        self
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    fn held(&self) -> MutexGuard<'_, Inner> {
        self.inner.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn wait_until(&self, ready: impl Fn(&Inner) -> bool) -> MutexGuard<'_, Inner> {
        let waited = self.inner.1.wait_while(self.held(), |inner| !ready(inner));
        waited.unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The same on the program's thread, which looks around meanwhile.
    fn wait_and_look(&self, ready: impl Fn(&Inner) -> bool) -> MutexGuard<'_, Inner> {
        let Some(look) = &self.look else { return self.wait_until(ready) };
        loop {
            let waited = self.inner.1.wait_timeout_while(self.held(), LOOK, |i| !ready(i));
            let (inner, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
            if ready(&inner) {
                return inner;
            }
            drop(inner);
            look();
        }
    }

    /// Waits until another save may begin; the worker is held back until the turn is dropped.
    pub(crate) fn begin_save(&self) -> Turn {
        let mut inner = self.wait_and_look(|inner| inner.saves < MAX_SAVES);
        inner.saves += 1;
        inner.capturing = true;
        Turn(self.clone())
    }

    /// Holds the worker back while the program is waiting for a capture: they would share the cores.
    /// A capture that itself waits for memory lets the worker go on.
    pub(crate) fn wait_for_turn(&self) {
        drop(self.wait_until(|inner| !inner.capturing));
    }

    pub(crate) fn end_save(&self) {
        self.held().saves -= 1;
        self.inner.1.notify_all();
    }

    /// Whether a save of so many bytes would have to wait.
    pub(crate) fn is_full_for(&self, bytes: u64) -> bool {
        let inner = self.held();
        inner.saves >= MAX_SAVES || (inner.used > 0 && inner.used + bytes > self.limit)
    }

    /// Waits for room; one batch always fits when nothing else is staged.
    pub(crate) fn reserve(&self, bytes: u64) {
        let fits = |inner: &Inner| inner.used == 0 || inner.used + bytes <= self.limit;
        let mut inner = self.held();
        if !fits(&inner) {
            inner.capturing = false;
            drop(inner);
            self.inner.1.notify_all();
            inner = self.wait_and_look(fits);
            inner.capturing = true;
        }
        inner.used += bytes;
    }

    fn release(&self, bytes: u64) {
        self.held().used -= bytes;
        self.inner.1.notify_all();
    }

    /// A buffer of at least `len` bytes; its content is whatever was in it before.
    pub(crate) fn buffer(&self, len: usize) -> MmapMut {
        let mut inner = self.held();
        if let Some(at) = inner.free.iter().position(|b| b.len() >= len) {
            return inner.free.swap_remove(at);
        }
        drop(inner);
        let len = len.max(1).next_multiple_of(HUGE);
        match MmapMut::map_anon(len) {
            Ok(buffer) => {
                #[cfg(target_os = "linux")]
                // Only advice: without huge pages it is slower and works the same.
                let _ = buffer.advise(Advice::HugePage);
                buffer
            }
            // The same as when any other allocation fails.
            Err(_) => std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; HUGE]>()),
        }
    }

    /// Keeps a buffer for the next time, as long as all of them fit into the limit.
    fn give_back(&self, buffer: MmapMut) {
        let mut inner = self.held();
        let kept: u64 = inner.free.iter().map(|b| b.len() as u64).sum();
        if kept + buffer.len() as u64 <= self.limit {
            inner.free.push(buffer);
        }
    }

    /// Hands a whole buffer over; its reservation stays until it is dropped.
    pub(crate) fn keep(&self, buffer: MmapMut, reserved: u64) -> Staged {
        Staged { content: StagedContent::Buffer(Some(buffer)), reserved, staging: self.clone() }
    }

    /// Copies the parts of a buffer that are needed, and gives buffer and reservation back.
    pub(crate) fn condense(
        &self,
        buffer: MmapMut,
        parts: &[(usize, usize)],
        reserved: u64,
    ) -> Staged {
        let len: usize = parts.iter().map(|(_, len)| len).sum();
        let mut bytes = Vec::with_capacity(len);
        for (offset, len) in parts {
            bytes.extend_from_slice(&buffer[*offset..offset + len]);
        }
        self.give_back(buffer);
        self.release(reserved - len as u64);
        Staged { content: StagedContent::Tight(bytes), reserved: len as u64, staging: self.clone() }
    }
}

/// The program is being held up by a capture, until this is dropped.
pub(crate) struct Turn(Staging);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.held().capturing = false;
        self.0.inner.1.notify_all();
    }
}

enum StagedContent {
    Buffer(Option<MmapMut>),
    Tight(Vec<u8>),
}

/// Copied bytes; their memory is free again when this is dropped.
pub(crate) struct Staged {
    content: StagedContent,
    reserved: u64,
    staging: Staging,
}

impl Staged {
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.content {
            StagedContent::Buffer(buffer) => buffer.as_deref().unwrap_or_default(),
            StagedContent::Tight(bytes) => bytes,
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let StagedContent::Buffer(buffer) = &mut self.content
            && let Some(buffer) = buffer.take()
        {
            self.staging.give_back(buffer);
        }
        self.staging.release(self.reserved);
    }
}

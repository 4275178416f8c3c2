//! The memory in which copies wait to be written: bounded, and used again and again, because the
//! first touch of a page costs more than copying to it.

use super::meter::SaveMeter;
use crate::merkle::Digest;
use memmap2::{Advice, MmapMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// The most saves that may be under way at a time, however small they are.
const MAX_SAVES: usize = 16;
const HUGE: usize = 2 << 20;
const PAGE: usize = 4 << 10;
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
    /// Buffers that were touched in advance; those that the first save does not need are released to the system.
    ready: Vec<MmapMut>,
    /// Memory for the boughs of strips that was touched in advance.
    ready_boughs: Vec<Vec<(u32, Digest)>>,
}

/// The staging memory of a run.
#[derive(Clone)]
pub(crate) struct Staging {
    inner: Arc<(Mutex<Inner>, Condvar)>,
    limit: u64,
    look: Option<Look>,
    meter: Option<Arc<SaveMeter>>,
}

impl Staging {
    pub(crate) fn new(limit: u64) -> Self {
        Staging { inner: Arc::default(), limit, look: None, meter: None }
    }

    /// Lets the program look around while it waits: what it waits for may never come, and it has to end that.
    pub(crate) fn looking(mut self, look: Look) -> Self {
        self.look = Some(look);
        self
    }

    /// Counts what is staged, and what of it is packed.
    pub(crate) fn metered(mut self, meter: Option<Arc<SaveMeter>>) -> Self {
        self.meter = meter;
        self
    }

    pub(crate) fn meter(&self) -> Option<Arc<SaveMeter>> {
        self.meter.clone()
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

    /// Waits on the program's thread, which looks around meanwhile.
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
        let mut inner = self.held();
        inner.saves -= 1;
        let unused = (std::mem::take(&mut inner.ready), std::mem::take(&mut inner.ready_boughs));
        drop(inner);
        self.inner.1.notify_all();
        drop(unused);
    }

    /// Touches buffers for this many bytes behind the program, in batches of `batch` bytes, so that its first checkpoint
    /// does not wait for that; and memory for this many boughs of each strip of this many bytes. Ends when a capture begins.
    pub(crate) fn prepare(&self, bytes: u64, batch: usize, (strip, boughs): (usize, usize)) {
        let (inner, bytes) = (Arc::downgrade(&self.inner), bytes.min(self.limit));
        let prepare = move || {
            for _ in 0..bytes.div_ceil(strip as u64) {
                let mut touched = vec![(0, Digest::default()); boughs];
                touched.clear();
                let Some(inner) = inner.upgrade() else { return };
                let mut inner = inner.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                if inner.saves > 0 {
                    return;
                }
                inner.ready_boughs.push(touched);
            }
            let mut left = bytes;
            while left > 0 {
                // Slots of small arrays are rounded up.
                let len = left.min(batch as u64) as usize + HUGE;
                let Some(buffer) = mapped(len).and_then(|buffer| touched(buffer, &inner)) else {
                    return;
                };
                let Some(inner) = inner.upgrade() else { return };
                let mut inner = inner.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                if inner.saves > 0 {
                    return;
                }
                inner.ready.push(buffer);
                drop(inner);
                left = left.saturating_sub(batch as u64);
            }
        };
        // Without it, the first checkpoint takes longer and works the same.
        drop(std::thread::Builder::new().name("treering-memory".into()).spawn(prepare));
    }

    /// Whether a save of this many bytes would have to wait.
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
        let Inner { free, ready, .. } = &mut *inner;
        for kept in [free, ready] {
            if let Some(at) = kept.iter().position(|b| b.len() >= len) {
                return kept.swap_remove(at);
            }
        }
        drop(inner);
        // The same as when any other allocation fails.
        let failed = || std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; HUGE]>());
        mapped(len).unwrap_or_else(failed)
    }

    /// Hands out memory for boughs, as long as there is some.
    pub(crate) fn lend_boughs<'b>(&self, to: impl Iterator<Item = &'b mut Vec<(u32, Digest)>>) {
        let mut inner = self.held();
        for (boughs, ready) in to.zip(std::iter::from_fn(|| inner.ready_boughs.pop())) {
            *boughs = ready;
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
        self.staged(StagedContent::Buffer(Some(buffer)), reserved)
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
        self.staged(StagedContent::Tight(bytes), len as u64)
    }

    fn staged(&self, content: StagedContent, reserved: u64) -> Staged {
        self.meter.iter().for_each(|meter| meter.captured(reserved));
        Staged { content, reserved, staging: self.clone() }
    }
}

/// Memory that nobody has touched, on huge pages where there are any.
fn mapped(len: usize) -> Option<MmapMut> {
    let buffer = MmapMut::map_anon(len.max(1).next_multiple_of(HUGE)).ok()?;
    // Only advice: without huge pages it is slower and works the same.
    let _ = buffer.advise(Advice::HugePage);
    Some(buffer)
}

/// Touches all pages of a buffer; nothing if a capture begins meanwhile, or nobody needs it any more.
fn touched(mut buffer: MmapMut, inner: &Weak<(Mutex<Inner>, Condvar)>) -> Option<MmapMut> {
    for at in (0..buffer.len()).step_by(HUGE) {
        let inner = inner.upgrade()?;
        let saves = inner.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).saves;
        if saves > 0 {
            return None;
        }
        // A kernel older than 5.14 does not know the advice.
        if buffer.advise_range(Advice::PopulateWrite, at, HUGE).is_err() {
            (at..at + HUGE).step_by(PAGE).for_each(|page| buffer[page] = 0);
        }
    }
    Some(buffer)
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
        self.staging.meter.iter().for_each(|meter| meter.packed(self.reserved));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until the thread that touches memory is done: it holds the only weak reference.
    fn settle(staging: &Staging) {
        while Arc::weak_count(&staging.inner) > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn memory_that_was_touched_in_advance_serves_the_first_save_and_the_rest_goes() {
        let staging = Staging::new(64 << 20);
        staging.prepare(10 << 20, 4 << 20, (1 << 20, 8));
        settle(&staging);
        let ready = staging.held().ready.iter().map(|b| b.as_ptr()).collect::<Vec<_>>();
        assert_eq!(ready.len(), 3);
        let turn = staging.begin_save();
        // One strip more than there are.
        let mut boughs = vec![Vec::new(); 11];
        staging.lend_boughs(boughs.iter_mut());
        let lent = |boughs: &&Vec<_>| boughs.is_empty() && boughs.capacity() == 8;
        assert_eq!(boughs.iter().filter(lent).count(), 10);
        staging.reserve(4 << 20);
        let buffer = staging.buffer(4 << 20);
        assert!(ready.contains(&buffer.as_ptr()) && buffer.iter().all(|byte| *byte == 0));
        drop((staging.keep(buffer, 4 << 20), turn));
        staging.end_save();
        let inner = staging.held();
        assert_eq!((inner.ready.len(), inner.free.len(), inner.used), (0, 1, 0));
    }

    #[test]
    fn no_more_memory_is_touched_than_may_be_used_and_none_during_a_save() {
        let staging = Staging::new(4 << 20);
        staging.prepare(1 << 40, 1 << 20, (1 << 20, 8));
        settle(&staging);
        assert_eq!(staging.held().ready.len(), 4);
        let staging = Staging::new(64 << 20);
        let turn = staging.begin_save();
        staging.prepare(8 << 20, 4 << 20, (1 << 20, 8));
        settle(&staging);
        assert!(staging.held().ready.is_empty());
        drop(turn);
    }
}

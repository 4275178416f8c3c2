//! Buffers of ranges: taken for parts that are sent or arrive, and used again when they are free.
//!
//! The first touch of memory costs several times as much as copying what goes into it. Therefore buffers of freed
//! ranges are kept for the next submit, and the first submit prepares those of the second. Staging buffers have a list
//! of their own, the last one first: they stay in the cache. They are on huge pages, which other processes of the node
//! read half as fast again: the kernel looks up one page and not hundreds.
//!
//! Laws: at most as many bytes are kept as the last submit took. All memory is counted by the gauge.

use super::gauge::Gauge;
use crate::comm::MessageRoom;
use crate::memory::huge_room;
use bytes::BytesMut;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of staging buffers that are made at once.
const STAGING: usize = 4 << 20;

/// Buffers of this many bytes begin with a page.
const ALIGNED: usize = 16 << 10;
const PAGE: usize = 4096;

/// Buffers that are used again.
pub(crate) struct Spares {
    gauge: Arc<Gauge>,
    /// Whether there is memory for staging buffers on huge pages.
    staging: bool,
    /// By their capacities.
    buffers: BTreeMap<usize, Vec<MessageRoom>>,
    /// Their bytes.
    kept: u64,
    /// Staging buffers, and their bytes.
    warm: Vec<MessageRoom>,
    warm_bytes: u64,
    /// The bytes that were taken in this submit, and in the one before it.
    taken: [u64; 2],
}

impl Spares {
    /// No buffers yet; those for staging take no more than a piece.
    pub(crate) fn new(gauge: Arc<Gauge>, piece: u64) -> Self {
        let (buffers, warm) = Default::default();
        let staging = piece >= STAGING as u64;
        Spares { gauge, staging, buffers, kept: 0, warm, warm_bytes: 0, taken: [0; 2] }
    }

    /// Begins a submit.
    pub(crate) fn begin(&mut self) {
        self.taken = [0, self.taken[0]];
    }

    /// An empty buffer for `len` bytes of a range that is kept.
    pub(crate) fn take(&mut self, len: usize) -> MessageRoom {
        let room = self.lend(len);
        self.belongs(len);
        room
    }

    /// Counts a buffer that was lent for `len` bytes, and belongs to a range now.
    pub(crate) fn belongs(&mut self, len: usize) {
        self.taken[0] += len as u64;
    }

    /// An empty buffer for `len` bytes that are soon not needed any more.
    pub(crate) fn lend(&mut self, len: usize) -> MessageRoom {
        let fitting = self.buffers.range_mut(len..=len.saturating_mul(2)).next();
        let Some((capacity, rooms)) = fitting else { return self.fresh(len) };
        let (capacity, room) = (*capacity, rooms.pop());
        if rooms.is_empty() {
            self.buffers.remove(&capacity);
        }
        let Some(mut room) = room else { return self.fresh(len) };
        self.kept -= capacity as u64;
        room.clear();
        room
    }

    /// A new buffer. A large one begins with a page: string instructions of some processors copy four times slower to
    /// memory that is a few bytes further in its page than the source in its own.
    pub(crate) fn fresh(&self, len: usize) -> MessageRoom {
        let mut bytes = BytesMut::with_capacity(if len < ALIGNED { len } else { len + PAGE });
        let owner = Arc::new(self.gauge.hold(bytes.capacity() as u64));
        if len >= ALIGNED {
            let start = bytes.as_ptr() as usize;
            bytes = bytes.split_off(start.next_multiple_of(PAGE) - start);
            drop(bytes.split_off(len));
        }
        MessageRoom::of(bytes, Some(owner))
    }

    /// A staging buffer.
    pub(crate) fn stage(&mut self, len: usize) -> MessageRoom {
        if self.staging && (1..=STAGING / 8).contains(&len) {
            self.staging = false;
            self.make_staging(len.next_multiple_of(4096));
        }
        match self.warm.pop_if(|room| room.bytes.capacity() >= len) {
            Some(mut room) => {
                self.warm_bytes -= room.bytes.capacity() as u64;
                room.clear();
                room
            }
            None => self.lend(len),
        }
    }

    fn make_staging(&mut self, stride: usize) {
        let mut all = huge_room(STAGING / stride * stride);
        let owner = Arc::new(self.gauge.hold(all.capacity() as u64));
        while all.capacity() > 0 {
            let rest = all.split_off(stride);
            let bytes = std::mem::replace(&mut all, rest);
            self.unstage(MessageRoom::of(bytes, Some(owner.clone())));
        }
    }

    /// Takes a staging buffer back.
    pub(crate) fn unstage(&mut self, room: MessageRoom) {
        self.warm_bytes += room.bytes.capacity() as u64;
        self.warm.push(room);
    }

    /// Makes buffers and touches them.
    pub(crate) fn prepare(&mut self, lengths: impl Iterator<Item = usize>) {
        for len in lengths {
            let mut room = self.fresh(len);
            room.bytes.resize(len, 0);
            self.give(room);
        }
    }

    /// Keeps a buffer for later, or frees it.
    pub(crate) fn give(&mut self, room: MessageRoom) {
        let capacity = room.bytes.capacity();
        let bytes = capacity as u64;
        if self.kept + bytes <= self.taken[0].max(self.taken[1]) {
            self.kept += bytes;
            self.buffers.entry(capacity).or_default().push(room);
        }
    }

    /// Frees buffers until at most `bytes` are left.
    pub(crate) fn trim(&mut self, bytes: u64) {
        if self.bytes() > bytes {
            // Buffers on huge pages are freed together.
            self.warm.clear();
            self.warm_bytes = 0;
        }
        while self.kept > bytes {
            let Some(mut last) = self.buffers.last_entry() else { return };
            last.get_mut().pop();
            self.kept -= *last.key() as u64;
            if last.get().is_empty() {
                last.remove();
            }
        }
    }

    /// The bytes of all spare buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.kept + self.warm_bytes
    }

    /// The bytes of those that ranges can have.
    pub(crate) fn for_ranges(&self) -> u64 {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spares_are_bounded_and_used_again() {
        let gauge = Arc::new(Gauge::default());
        let mut spares = Spares::new(gauge.clone(), 0);
        spares.begin();
        let (a, b) = (spares.take(100), spares.take(100));
        let at = a.bytes.as_ptr();
        spares.give(b);
        spares.give(a);
        let other = spares.fresh(100);
        spares.give(other);
        assert_eq!((spares.bytes(), gauge.now()), (200, 200));
        let again = spares.take(90);
        assert_eq!(again.bytes.as_ptr(), at);
        spares.trim(0);
        assert_eq!((spares.bytes(), gauge.now()), (0, 100));
        assert!(spares.lend(90).bytes.capacity() >= 90);
        spares.unstage(again);
        assert_eq!((spares.stage(95).bytes.as_ptr(), spares.bytes()), (at, 0));
        spares.prepare([40, 50].into_iter());
        assert_eq!((spares.bytes(), gauge.now()), (90, 90));
    }

    #[test]
    fn staging_buffers_share_no_bytes_and_are_counted() {
        let gauge = Arc::new(Gauge::default());
        let mut spares = Spares::new(gauge.clone(), STAGING as u64);
        let mut rooms: Vec<MessageRoom> = (0..40).map(|_| spares.stage(200_000)).collect();
        assert!(gauge.now() >= 40 * 200_000 && gauge.now() < 42 * 208_896);
        for (value, room) in rooms.iter_mut().enumerate() {
            room.bytes.resize(200_000, value as u8);
        }
        for (value, room) in rooms.iter().enumerate() {
            assert!(room.bytes.iter().all(|byte| *byte == value as u8));
        }
        let used = gauge.now();
        rooms.into_iter().for_each(|room| spares.unstage(room));
        assert!(spares.bytes() <= used && gauge.now() == used);
        spares.trim(0);
        assert_eq!((spares.bytes(), gauge.now()), (0, 0));
    }
}

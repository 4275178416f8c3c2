//! Buffers of ranges: taken for parts that are sent or arrive, and used again when they are free.
//!
//! The first touch of memory costs several times as much as copying what goes into it. Therefore buffers of freed
//! ranges are kept for the next submit, and the first submit prepares those of the second. Staging buffers have a list
//! of their own, the last one first: they stay in the cache.
//!
//! Laws: at most as many bytes are kept as the last submit took. All memory is counted by the gauge.

use super::gauge::Gauge;
use crate::comm::MessageRoom;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Buffers that are used again.
pub(crate) struct Spares {
    gauge: Arc<Gauge>,
    /// By their capacities.
    buffers: BTreeMap<usize, Vec<MessageRoom>>,
    /// Staging buffers.
    warm: Vec<MessageRoom>,
    /// The bytes of all these.
    bytes: u64,
    /// The bytes that were taken in this submit, and in the one before it.
    taken: [u64; 2],
}

impl Spares {
    pub(crate) fn new(gauge: Arc<Gauge>) -> Self {
        let (buffers, warm) = Default::default();
        Spares { gauge, buffers, warm, bytes: 0, taken: [0; 2] }
    }

    /// Begins a submit.
    pub(crate) fn begin(&mut self) {
        self.taken = [0, self.taken[0]];
        for room in std::mem::take(&mut self.warm) {
            self.bytes -= room.bytes.capacity() as u64;
            self.give(room);
        }
    }

    /// An empty buffer for `len` bytes of a range that is kept.
    pub(crate) fn take(&mut self, len: usize) -> MessageRoom {
        let room = self.lend(len);
        self.kept(len);
        room
    }

    /// Counts a buffer that was lent for `len` bytes, and is kept.
    pub(crate) fn kept(&mut self, len: usize) {
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
        self.bytes -= capacity as u64;
        room.bytes.clear();
        room
    }

    /// A new buffer.
    pub(crate) fn fresh(&self, len: usize) -> MessageRoom {
        let mut room = MessageRoom::new(len);
        room.owner = Some(Arc::new(self.gauge.hold(room.bytes.capacity() as u64)));
        room
    }

    /// A staging buffer.
    pub(crate) fn stage(&mut self, len: usize) -> MessageRoom {
        match self.warm.pop_if(|room| room.bytes.capacity() >= len) {
            Some(mut room) => {
                self.bytes -= room.bytes.capacity() as u64;
                room.bytes.clear();
                room
            }
            None => self.lend(len),
        }
    }

    /// Takes a staging buffer back.
    pub(crate) fn unstage(&mut self, room: MessageRoom) {
        self.bytes += room.bytes.capacity() as u64;
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
        if self.bytes + bytes <= self.taken[0].max(self.taken[1]) {
            self.bytes += bytes;
            self.buffers.entry(capacity).or_default().push(room);
        }
    }

    /// Frees buffers until at most `bytes` are left.
    pub(crate) fn trim(&mut self, bytes: u64) {
        while self.bytes > bytes {
            let Some(mut last) = self.buffers.last_entry() else { return };
            last.get_mut().pop();
            self.bytes -= *last.key() as u64;
            if last.get().is_empty() {
                last.remove();
            }
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spares_are_bounded_and_used_again() {
        let gauge = Arc::new(Gauge::default());
        let mut spares = Spares::new(gauge.clone());
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
}

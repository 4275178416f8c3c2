//! Planes of strips that come next, read while this one is judged.
//!
//! Only those that the page cache does not hold: they are read past it, for they are used once, and
//! filling the cache would cost more than judging them. Data that was requested and is not used costs
//! nothing but its reading; data that could not be read in this way is read in the ordinary way.

use super::pair::TreePair;
use super::side::Meter;
use crate::io::{ALIGN, Engine, Read, Reading, engine, is_warm};
use memmap2::MmapMut;
use std::os::fd::AsRawFd;

/// Number of strips that are requested ahead.
pub(super) const STRIPS: usize = 6;

/// Reads planes ahead, for one worker.
pub(super) struct Ahead {
    slots: Vec<PlaneSlot>,
    engine: Option<Box<dyn Engine>>,
    reading: Reading,
}

/// The planes of one strip, of both sides.
struct PlaneSlot {
    /// Of which strip of which trees.
    of: Option<(usize, u64)>,
    sides: [Half; 2],
    waiting: u8,
}

#[derive(Default)]
struct Half {
    buffer: Option<MmapMut>,
    /// Where in the buffer the planes begin, and how long they are.
    skew: usize,
    len: usize,
    whole: bool,
}

impl Ahead {
    pub(super) fn new(reading: Reading) -> Self {
        Ahead { slots: Vec::new(), engine: None, reading }
    }

    /// Begins to read the lowest planes of strips.
    pub(super) fn ask(
        &mut self,
        trees: &TreePair,
        strips: impl Iterator<Item = u64>,
        planes: u8,
        meter: &Meter,
    ) {
        for strip in strips.take(STRIPS) {
            let of = Some((identity(trees), strip));
            if self.slots.iter().any(|slot| slot.of == of) {
                continue;
            }
            if self.slots.len() < STRIPS {
                self.slots.push(PlaneSlot { of: None, sides: Default::default(), waiting: 0 });
            }
            let Some(at) = self.slots.iter().position(|slot| slot.of.is_none()) else { return };
            if self.begin(at, trees, strip, planes, meter) {
                self.slots[at].of = of;
            }
        }
    }

    /// Begins to read into a slot that is free; whether it did.
    fn begin(
        &mut self,
        at: usize,
        trees: &TreePair,
        strip: u64,
        planes: u8,
        meter: &Meter,
    ) -> bool {
        let mut reads = Vec::new();
        for (side, view) in trees.views.iter().enumerate() {
            let range = view.layout.planes_of(strip, 0..planes);
            let (Some((file, base)), Some(direct)) = (view.file(), trees.past_the_cache(side))
            else {
                return false;
            };
            let (from, len) = (base + range.start, (range.end - range.start) as usize);
            if len == 0 || is_warm(file, from, len as u64) {
                return false;
            }
            let half = &mut self.slots[at].sides[side];
            let skew = (from % ALIGN) as usize;
            let room = (skew + len).next_multiple_of(ALIGN as usize);
            if half.buffer.as_ref().is_none_or(|buffer| buffer.len() < room) {
                half.buffer = MmapMut::map_anon(room).ok();
            }
            let Some(buffer) = &mut half.buffer else { return false };
            (half.skew, half.len, half.whole) = (skew, len, false);
            reads.push(Read {
                id: at * 2 + side,
                fd: direct.as_raw_fd(),
                from: from - skew as u64,
                buffer: buffer.as_mut_ptr(),
                len: room,
            });
        }
        let reading = self.reading;
        let engine = self.engine.get_or_insert_with(|| engine(reading, 2 * STRIPS));
        for read in reads {
            let len = read.len as u64;
            if engine.submit(read).is_ok() {
                self.slots[at].waiting += 1;
                meter.add(len);
            }
        }
        // They have to be on their way while this thread computes.
        engine.flush();
        true
    }

    /// Waits for the planes of a strip, if they were asked for, and forgets those of earlier ones.
    pub(super) fn settle(&mut self, trees: &TreePair, strip: u64) {
        let here = identity(trees);
        let wanted = |of: (usize, u64)| of.0 == here && of.1 > strip;
        let due = |slot: &PlaneSlot| slot.waiting > 0 && slot.of.is_some_and(|of| !wanted(of));
        while self.slots.iter().any(due) && self.wait() {}
        let past = |of: &(usize, u64)| of.0 != here || of.1 < strip;
        for slot in self.slots.iter_mut().filter(|slot| slot.waiting == 0) {
            slot.of = slot.of.filter(|of| !past(of));
        }
    }

    /// The planes of a strip of both sides, if they are there.
    pub(super) fn planes(&self, trees: &TreePair, strip: u64) -> Option<[&[u8]; 2]> {
        let of = Some((identity(trees), strip));
        let slot = self.slots.iter().find(|slot| slot.of == of && slot.waiting == 0)?;
        let [a, b] = slot.sides.each_ref().map(Half::bytes);
        Some([a?, b?])
    }

    /// Waits for one read; whether there is any use in waiting for more.
    fn wait(&mut self) -> bool {
        let Some(Ok((id, outcome))) = self.engine.as_mut().map(|engine| engine.wait()) else {
            return false;
        };
        let slot = &mut self.slots[id / 2];
        slot.waiting -= 1;
        let half = &mut slot.sides[id % 2];
        half.whole = outcome.is_ok_and(|got| got >= half.skew + half.len);
        true
    }
}

impl Half {
    fn bytes(&self) -> Option<&[u8]> {
        let buffer = self.buffer.as_ref().filter(|_| self.whole)?;
        Some(&buffer[self.skew..self.skew + self.len])
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Buffers must not go before the last read has ended.
        while self.slots.iter().any(|slot| slot.waiting > 0) {
            if !self.wait() {
                // It cannot be known when they end: the buffers stay for good.
                self.slots.drain(..).for_each(std::mem::forget);
            }
        }
    }
}

fn identity(trees: &TreePair) -> usize {
    std::ptr::from_ref(trees) as usize
}

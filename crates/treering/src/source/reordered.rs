//! An array in C's order, read as if it were in Fortran's, or the other way round.
//!
//! Elements that are neighbours in one order are far apart in the other, so that reading them one by one would read most of
//! the file many times. The array is read through a *window*: a box of indices that is one range in the wanted order, as
//! large as memory allows. A window is filled in the order of the file: pieces along its fastest axis, with small gaps
//! between them, many in one read. The array asks to be read in order, and a window is given back at its end.

use super::window::WindowRoom;
use crate::array::{Order, Shape};
use crate::error::{Error, Result};
use crate::memory::zeroed;
use crate::store::{Blob, read_each};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// The most bytes of a window.
const WINDOW: u64 = 128 << 20;
/// The most bytes that are read together, and the most pieces.
const BATCH: u64 = 16 << 20;
const MOST_PIECES: usize = 1 << 18;
/// Gaps up to this size between two pieces are read rather than skipped.
const GAP: u64 = 4096;

/// The values of an array in the other order.
pub(crate) struct Reordered<'a> {
    inner: Arc<dyn Blob + 'a>,
    /// Extents in the wanted order of memory, the slowest axis first; in the order of the file, it is the fastest.
    extents: Vec<u64>,
    /// The size of an element.
    element: u64,
    most: u64,
    window: Mutex<OrderWindow>,
}

/// The elements of a box of indices, in the wanted order.
#[derive(Default)]
struct OrderWindow {
    /// The byte of the array that it begins with.
    start: u64,
    bytes: Vec<u8>,
    _room: WindowRoom,
}

/// Elements one after another in the file.
struct ReadPiece {
    /// Where they begin among the bytes that were read.
    at: usize,
    /// The number in the window of the first one.
    to: usize,
    len: usize,
}

impl<'a> Reordered<'a> {
    /// The values of an array of this shape, with elements of some bytes, in the order `to`; they lie in the other one.
    pub(crate) fn new(inner: Arc<dyn Blob + 'a>, shape: &Shape, element: u64, to: Order) -> Self {
        let mut extents = shape.0.clone();
        if to == Order::Fortran {
            extents.reverse();
        }
        Reordered { inner, extents, element, most: WINDOW, window: Mutex::default() }
    }

    fn window(&self) -> MutexGuard<'_, OrderWindow> {
        self.window.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The window that holds an element, as large as it may be.
    fn window_at(&self, element: u64) -> Result<OrderWindow> {
        let extents = &self.extents;
        let room = WindowRoom::left(self.most);
        let most = (room / self.element).max(1);
        // Elements in a step along each axis.
        let step = |axis: usize| extents[axis + 1..].iter().product::<u64>();
        let Some(last) = extents.len().checked_sub(1) else {
            return self.filled(0, &[], room);
        };
        let cut = (0..last).find(|axis| step(*axis) <= most).unwrap_or(last);
        let mut places = Vec::with_capacity(extents.len());
        let mut start = 0;
        for (axis, extent) in extents.iter().enumerate() {
            let index = element / step(axis) % extent;
            places.push(match axis {
                _ if axis > cut => 0..*extent,
                _ if axis == cut => index..index.saturating_add(most / step(axis)).min(*extent),
                _ => index..index + 1,
            });
            start += if axis > cut { 0 } else { index * step(axis) };
        }
        self.filled(start, &places, room)
    }

    /// A window with the elements at these places along the axes.
    fn filled(&self, start: u64, places: &[Range<u64>], room: u64) -> Result<OrderWindow> {
        let counts: Vec<u64> = places.iter().map(|place| place.end - place.start).collect();
        let size = counts.iter().product::<u64>() * self.element;
        let mut window = OrderWindow {
            start: start * self.element,
            bytes: zeroed(size)?,
            _room: WindowRoom::take(size.min(room)),
        };
        // Distances between neighbours along each axis, in the file and in the window.
        let in_file: Vec<u64> =
            (0..counts.len()).map(|axis| self.extents[..axis].iter().product()).collect();
        let in_window: Vec<u64> =
            (0..counts.len()).map(|axis| counts[axis + 1..].iter().product()).collect();
        let row = counts.first().copied().unwrap_or(1);
        let apart = in_window.first().copied().unwrap_or(1) as usize;
        let first: u64 = places.iter().zip(&in_file).map(|(place, step)| place.start * step).sum();
        let mut index = vec![0; counts.len()];
        let mut batch = ReadBatch::default();
        loop {
            let along =
                |steps: &[u64]| -> u64 { index.iter().zip(steps).map(|(i, s)| i * s).sum() };
            let (from, to) = (first + along(&in_file), along(&in_window) as usize);
            let longest = (BATCH / self.element).max(1);
            for done in (0..row).step_by(longest as usize) {
                let len = longest.min(row - done);
                if !batch.add(from + done, to + done as usize * apart, len, self.element) {
                    self.carry_out(std::mem::take(&mut batch), apart, &mut window.bytes)?;
                    batch.add(from + done, to + done as usize * apart, len, self.element);
                }
            }
            // The next row in the order of the file.
            let next = (1..index.len()).find(|axis| {
                index[*axis] = (index[*axis] + 1) % counts[*axis];
                index[*axis] > 0
            });
            if next.is_none() {
                break;
            }
        }
        self.carry_out(batch, apart, &mut window.bytes)?;
        Ok(window)
    }

    /// Reads what was put together, and takes every element to its place in the window.
    fn carry_out(&self, batch: ReadBatch, apart: usize, window: &mut [u8]) -> Result<()> {
        let mut bytes: Vec<u8> = zeroed(batch.bytes)?;
        let mut reads: Vec<(u64, &mut [u8])> = Vec::with_capacity(batch.spans.len());
        let mut rest = &mut bytes[..];
        for span in &batch.spans {
            let (head, tail) = rest.split_at_mut((span.end - span.start) as usize);
            reads.push((span.start, head));
            rest = tail;
        }
        self.inner.read_many(&mut reads)?;
        for piece in &batch.pieces {
            match self.element {
                1 => scatter::<1>(&bytes, piece, apart, window),
                2 => scatter::<2>(&bytes, piece, apart, window),
                4 => scatter::<4>(&bytes, piece, apart, window),
                8 => scatter::<8>(&bytes, piece, apart, window),
                16 => scatter::<16>(&bytes, piece, apart, window),
                size => scatter_any(&bytes, piece, apart, window, size as usize),
            }
        }
        Ok(())
    }
}

fn scatter<const SIZE: usize>(bytes: &[u8], piece: &ReadPiece, apart: usize, window: &mut [u8]) {
    let from = bytes[piece.at..].as_chunks::<SIZE>().0;
    let to = window.as_chunks_mut::<SIZE>().0[piece.to..].iter_mut().step_by(apart.max(1));
    to.zip(&from[..piece.len]).for_each(|(to, from)| *to = *from);
}

fn scatter_any(bytes: &[u8], piece: &ReadPiece, apart: usize, window: &mut [u8], size: usize) {
    for (number, from) in bytes[piece.at..].chunks_exact(size).take(piece.len).enumerate() {
        let to = (piece.to + number * apart) * size;
        window[to..to + size].copy_from_slice(from);
    }
}

/// Pieces that are read together.
#[derive(Default)]
struct ReadBatch {
    /// Bytes of the file, ascending.
    spans: Vec<Range<u64>>,
    bytes: u64,
    pieces: Vec<ReadPiece>,
}

impl ReadBatch {
    /// Adds elements that begin at a number in the file and one in the window, unless it is full.
    fn add(&mut self, from: u64, to: usize, len: u64, element: u64) -> bool {
        let wanted = from * element..(from + len) * element;
        let last = self.spans.last().filter(|last| wanted.start - last.end <= GAP);
        let more = wanted.end - last.map_or(wanted.start, |last| last.end);
        let full = self.bytes + more > BATCH || self.pieces.len() == MOST_PIECES;
        if full && !self.pieces.is_empty() {
            return false;
        }
        match self.spans.last_mut().filter(|last| wanted.start - last.end <= GAP) {
            Some(last) => last.end = wanted.end,
            None => self.spans.push(wanted.clone()),
        }
        self.bytes += more;
        let at = (self.bytes - (wanted.end - wanted.start)) as usize;
        self.pieces.push(ReadPiece { at, to, len: len as usize });
        true
    }
}

impl Blob for Reordered<'_> {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(buffer.len() as u64);
        if end > self.size() {
            return Err(Error::damaged("the data ends too early").at(self.store()));
        }
        // No lock is held while the window is filled, on all cores.
        let mut window = std::mem::take(&mut *self.window());
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let held = window.start..window.start + window.bytes.len() as u64;
            if !held.contains(&at) {
                drop(std::mem::take(&mut window));
                window = self.window_at(at / self.element)?;
                continue;
            }
            let len = rest.len().min((held.end - at) as usize);
            let (head, tail) = rest.split_at_mut(len);
            head.copy_from_slice(&window.bytes[(at - held.start) as usize..][..len]);
            (at, rest) = (at + len as u64, tail);
        }
        // Whoever has read the end hardly comes back.
        if end < self.size() {
            *self.window() = window;
        }
        Ok(())
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn in_order(&self) -> bool {
        true
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Held(Vec<u8>);

    impl Blob for Held {
        fn store(&self) -> &str {
            "memory"
        }

        fn size(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
            Ok(())
        }

        fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
            read_each(self, ranges)
        }

        fn in_order(&self) -> bool {
            false
        }

        fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
            None
        }
    }

    proptest! {
        /// Each element is found at its index, in windows of any size, from any place on.
        #[test]
        fn elements_keep_their_indices(
            shape in proptest::collection::vec(1u64..9, 0..5),
            element in prop_oneof![Just(1u64), Just(2), Just(3), Just(4), Just(8), Just(12), Just(16)],
            most in 1u64..3000,
            places in proptest::collection::vec((0.0f64..1.0, 0.0f64..1.0), 1..8),
            fortran: bool,
        ) {
            let count: u64 = shape.iter().product();
            let mut extents = shape.clone();
            if fortran {
                extents.reverse();
            }
            let bytes = |number: u64| (0..element).map(move |k| (number * 31 + k * 7) as u8);
            let wanted: Vec<u8> = (0..count).flat_map(bytes).collect();
            let mut held = vec![0; wanted.len()];
            for number in 0..count {
                // The index in the wanted order, slowest first; in the file the first axis is the fastest.
                let mut rest = number;
                let mut index = vec![0; extents.len()];
                for axis in (0..extents.len()).rev() {
                    index[axis] = rest % extents[axis];
                    rest /= extents[axis];
                }
                let at = (0..extents.len()).rev().fold(0, |at, axis| at * extents[axis] + index[axis]);
                let (from, to) = ((number * element) as usize, (at * element) as usize);
                held[to..to + element as usize]
                    .copy_from_slice(&wanted[from..from + element as usize]);
            }
            let order = if fortran { Order::Fortran } else { Order::C };
            let inner: Arc<dyn Blob> = Arc::new(Held(held));
            let reordered =
                Reordered { most, ..Reordered::new(inner, &Shape(shape), element, order) };
            for (start, end) in places {
                let size = wanted.len() as f64;
                let (start, end) = ((start.min(end) * size) as usize, (start.max(end) * size) as usize);
                let mut part = vec![0; end - start];
                reordered.read_at(start as u64, &mut part).unwrap();
                prop_assert_eq!(&part[..], &wanted[start..end]);
            }
            let mut beyond = vec![0; wanted.len() + 1];
            prop_assert!(reordered.read_at(0, &mut beyond).is_err());
        }
    }
}

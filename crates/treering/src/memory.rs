//! Memory for bytes on their way: zeros on huge pages, buffers that a thread keeps, and copies past the cache.
//!
//! A page that is touched for the first time costs as much time as decoding what goes into it.
//! Therefore what is large is put on huge pages where the system has them, and what is needed again
//! and again is not released in between.

use crate::error::{Error, ErrorKind, Result};
use bytes::BytesMut;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

const HUGE: usize = 2 << 20;
/// Number of buffers that a thread keeps, and their bytes in all.
const KEPT: usize = 4;
const KEPT_BYTES: usize = 16 << 20;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Zeros, or an error when there are not that many.
pub(crate) fn zeroed<T: bytemuck::Zeroable>(len: u64) -> Result<Vec<T>> {
    let made = usize::try_from(len).ok().map(bytemuck::allocation::try_zeroed_vec);
    let made: Option<Vec<T>> = made.and_then(|made| made.ok());
    let made = made.ok_or_else(|| {
        let bytes = len.saturating_mul(size_of::<T>() as u64);
        Error::new(ErrorKind::Limit, format!("{bytes} bytes do not fit into memory"))
    })?;
    on_huge_pages(made.as_ptr().cast(), size_of_val(&made[..]));
    Ok(made)
}

/// Asks for huge pages for memory that was not touched yet.
fn on_huge_pages(start: *const u8, len: usize) {
    let at = start as usize;
    let inside = at.next_multiple_of(HUGE)..(at + len) / HUGE * HUGE;
    if inside.len() >= HUGE {
        let from = start.wrapping_add(inside.start - at).cast_mut();
        // SAFETY: the pages are all within the memory, and the advice changes nothing of them.
        let _ = unsafe {
            rustix::mm::madvise(from.cast(), inside.len(), rustix::mm::Advice::LinuxHugepage)
        };
    }
}

/// Room for bytes on huge pages, from the start of one on.
pub(crate) fn huge_room(len: usize) -> BytesMut {
    let mut whole = BytesMut::with_capacity(len + HUGE);
    let start = whole.as_ptr() as usize;
    let mut room = whole.split_off(start.next_multiple_of(HUGE) - start);
    on_huge_pages(room.as_ptr(), room.capacity());
    drop(room.split_off(len));
    room
}

/// Number of bytes that are read together, so that shared frames are decoded once.
pub(crate) const TOGETHER: u64 = 64 << 20;

/// Neighbours of up to this many bytes in all, or one that has more.
pub(crate) fn batches<T>(all: &[T], limit: u64, size: impl Fn(&T) -> u64) -> Vec<&[T]> {
    let (mut batches, mut start, mut bytes) = (Vec::new(), 0, 0u64);
    for (at, one) in all.iter().enumerate() {
        let more = bytes.saturating_add(size(one));
        bytes = match at > start && more > limit {
            true => {
                batches.push(&all[start..at]);
                start = at;
                size(one)
            }
            false => more,
        };
    }
    batches.extend((start < all.len()).then(|| &all[start..]));
    batches
}

/// Bytes of which nothing is known, from those that this thread keeps; it gets them back.
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    len: usize,
}

impl Scratch {
    pub(crate) fn new(len: usize) -> Result<Scratch> {
        let kept = BUFFERS.with_borrow_mut(|kept| {
            let fits = kept.iter().position(|bytes| bytes.len() >= len);
            fits.map(|at| kept.swap_remove(at))
        });
        let bytes = kept.map_or_else(|| zeroed(len as u64), Ok)?;
        Ok(Scratch { bytes, len })
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        // A thread that ends has nothing to keep them in any more.
        let _ = BUFFERS.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            kept.push(bytes);
            if kept.len() > KEPT {
                let smallest = (0..kept.len()).min_by_key(|at| kept[*at].len());
                smallest.map(|at| kept.swap_remove(at));
            }
            while kept.iter().map(Vec::len).sum::<usize>() > KEPT_BYTES {
                let largest = (0..kept.len()).max_by_key(|at| kept[*at].len());
                largest.map(|at| kept.swap_remove(at));
            }
        });
    }
}

/// Copies past the cache: the copy is read much later, by another core, and an ordinary store
/// would first fetch every line that it overwrites.
pub(crate) fn copy_streaming(to: &mut [u8], from: &[u8]) {
    stream(to, from);
    settle();
}

/// The copy itself; other cores may see it only after [`settle`].
#[inline]
pub(crate) fn stream(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len());
    #[cfg(target_arch = "x86_64")]
    if (to.as_ptr() as usize).is_multiple_of(16) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let words = to.len() / 64 * 4;
        // SAFETY: both slices hold `words` words of 16 bytes, and `to` is aligned to them.
        unsafe {
            let source = from.as_ptr().cast::<__m128i>();
            let target = to.as_mut_ptr().cast::<__m128i>();
            for word in (0..words).step_by(4) {
                let a = _mm_loadu_si128(source.add(word));
                let b = _mm_loadu_si128(source.add(word + 1));
                let c = _mm_loadu_si128(source.add(word + 2));
                let d = _mm_loadu_si128(source.add(word + 3));
                _mm_stream_si128(target.add(word), a);
                _mm_stream_si128(target.add(word + 1), b);
                _mm_stream_si128(target.add(word + 2), c);
                _mm_stream_si128(target.add(word + 3), d);
            }
        }
        to[words * 16..].copy_from_slice(&from[words * 16..]);
        return;
    }
    to.copy_from_slice(from);
}

/// Orders streamed copies before everything that follows. Once for many copies, because it is slow.
pub(crate) fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_streaming_copy_is_a_copy(len in 0usize..3000, shift in 0usize..20) {
            let from: Vec<u8> = (0..len + shift).map(|i| i as u8).collect();
            let mut to = vec![0; len + shift];
            copy_streaming(&mut to[shift..], &from[shift..]);
            prop_assert_eq!(&to[shift..], &from[shift..]);
        }
    }

    #[test]
    fn zeros_are_zeros_and_too_many_are_refused() {
        for len in [0, 1, 3 << 20, (9 << 20) + 5] {
            let made: Vec<u64> = zeroed(len).unwrap();
            assert!(made.len() as u64 == len && made.iter().all(|value| *value == 0));
        }
        assert_eq!(zeroed::<u64>(1 << 60).unwrap_err().kind(), ErrorKind::Limit);
    }

    #[test]
    fn room_on_huge_pages_has_the_asked_capacity() {
        for len in [1, HUGE, 5 * HUGE + 100] {
            let mut room = huge_room(len);
            assert!(room.is_empty() && room.capacity() == len);
            assert_eq!(room.as_ptr() as usize % HUGE, 0);
            room.resize(len, 7);
            assert!(room.iter().all(|byte| *byte == 7) && room.capacity() == len);
        }
    }

    #[test]
    fn batches_hold_all_and_no_more_than_they_may() {
        let sizes = [3, 4, 5, 20, 1, u64::MAX, 2, 8];
        let found = batches(&sizes, 10, |size| *size);
        let expected: [&[u64]; 6] = [&[3, 4], &[5], &[20], &[1], &[u64::MAX], &[2, 8]];
        assert_eq!(found, expected);
        assert!(batches(&[0u64; 0], 10, |size| *size).is_empty());
    }

    #[test]
    fn buffers_have_the_asked_length_and_never_share_bytes() {
        for len in [0, 5, 100_000, 70, 3 << 20, 5, 9 << 20, 40 << 20, 6 << 20] {
            let (mut one, mut other) = (Scratch::new(len).unwrap(), Scratch::new(len).unwrap());
            one.fill(1);
            other.fill(2);
            assert!(one.len() == len && other.len() == len);
            assert!(one.iter().all(|byte| *byte == 1) && other.iter().all(|byte| *byte == 2));
        }
        BUFFERS.with_borrow(|kept| {
            assert!(!kept.is_empty() && kept.len() <= KEPT);
            assert!(kept.iter().map(Vec::len).sum::<usize>() <= KEPT_BYTES);
        });
    }
}

//! Which bytes of which frames go where, as a plain value.

use crate::error::{Error, Result};
use crate::format::Footer;
use crate::lineage::{Layer, resolve, runs, subtract};
use rayon::prelude::*;
use std::ops::Range;

/// How many chunks are resolved at a time.
const WINDOW: u64 = 1 << 16;

/// Bytes of one frame that go to one place of one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FramePiece {
    /// The pack's position in its epoch.
    pub(crate) pack: u32,
    /// The frame's position in the pack.
    pub(crate) frame: u32,
    /// Which target.
    pub(crate) target: u32,
    /// Where in the target.
    pub(crate) to: u64,
    /// Where in the frame.
    pub(crate) from: u32,
    /// How many bytes.
    pub(crate) len: u32,
}

/// A variable, or a range of its bytes, to be fetched.
pub(crate) struct Wanted<'a> {
    /// Which target it goes to.
    pub(crate) target: u32,
    /// The chunk size.
    pub(crate) chunk: u64,
    /// The length of the whole variable in bytes.
    pub(crate) bytes: u64,
    /// Which of its bytes are wanted.
    pub(crate) range: Range<u64>,
    /// What each checkpoint of the epoch added to it, oldest first.
    pub(crate) layers: Vec<Layer<'a>>,
    /// The layers of a newer checkpoint whose bytes the target holds already.
    pub(crate) at_hand: Option<Vec<Layer<'a>>>,
}

/// All pieces of a restore, in the order in which they lie in the packs.
pub(crate) fn plan(footers: &[&Footer], wanted: &[Wanted]) -> Result<Vec<FramePiece>> {
    let mut tasks = Vec::new();
    for (at, want) in wanted.iter().enumerate() {
        let chunks = want.range.start / want.chunk..want.range.end.div_ceil(want.chunk);
        let starts = (chunks.start..chunks.end).step_by(WINDOW as usize);
        tasks.extend(starts.map(|s| (at, s..chunks.end.min(s + WINDOW))));
    }
    let parts: Vec<Vec<FramePiece>> = tasks
        .into_par_iter()
        .map_init(Vec::new, |places, (at, window)| pieces(footers, &wanted[at], window, places))
        .collect::<Result<_>>()?;
    Ok(by_frame(footers, &parts))
}

/// Sorts pieces by pack and frame, by counting: there are few frames and many pieces. Within a frame
/// they stay in the order of their targets.
fn by_frame(footers: &[&Footer], parts: &[Vec<FramePiece>]) -> Vec<FramePiece> {
    let mut first_frame = vec![0];
    for footer in footers {
        first_frame.push(first_frame[first_frame.len() - 1] + footer.frames.len());
    }
    let frame_of = |piece: &FramePiece| first_frame[piece.pack as usize] + piece.frame as usize;
    let mut next = vec![0usize; first_frame[footers.len()] + 1];
    for piece in parts.iter().flatten() {
        next[frame_of(piece) + 1] += 1;
    }
    for at in 1..next.len() {
        next[at] += next[at - 1];
    }
    let mut sorted = vec![FramePiece::default(); next[next.len() - 1]];
    for piece in parts.iter().flatten() {
        let at = &mut next[frame_of(piece)];
        sorted[*at] = *piece;
        *at += 1;
    }
    sorted
}

/// Fills a target in its own order from the bytes of all packs, which are at hand.
///
/// Where content repeats, a state is made of many small pieces of few bytes; sorting them by where
/// they lie would take longer than copying them.
pub(crate) fn fill(images: &[Vec<u8>], want: &Wanted, target: &mut [u8]) -> Result<()> {
    let chunk = want.chunk;
    let first = want.range.start / chunk;
    // Windows start at chunks; only the first and the last may be cut by the range.
    let head = ((first + WINDOW) * chunk).min(want.range.end) - want.range.start;
    let (head, rest) = target.split_at_mut(head as usize);
    fill_window(images, want, first, want.range.start, head, &mut Vec::new())?;
    let windows = rest.par_chunks_mut((WINDOW * chunk) as usize).enumerate();
    windows.try_for_each_init(Vec::new, |places, (at, part)| {
        let start = first + (at as u64 + 1) * WINDOW;
        fill_window(images, want, start, start * chunk, part, places)
    })
}

/// Fills the bytes from `from` on, which lie in the window of chunks that begins with `start`.
fn fill_window(
    images: &[Vec<u8>],
    want: &Wanted,
    start: u64,
    from: u64,
    part: &mut [u8],
    places: &mut Vec<u64>,
) -> Result<()> {
    let chunk = want.chunk;
    let to = from + part.len() as u64;
    let missing = || Error::damaged("a reference leads past the end of its pack");
    resolve(&want.layers, chunk, start..to.div_ceil(chunk), places)?;
    for (first, count, place) in runs(places, chunk) {
        let run = (start + first) * chunk;
        let (a, b) = (run.max(from), (run + count * chunk).min(to));
        let image = images.get(place.pack as usize).ok_or_else(missing)?;
        let source = (place.offset + a - run) as usize;
        let source = image.get(source..source + (b - a) as usize).ok_or_else(missing)?;
        part[(a - from) as usize..(b - from) as usize].copy_from_slice(source);
    }
    Ok(())
}

/// The pieces of one window of chunks.
fn pieces(
    footers: &[&Footer],
    want: &Wanted,
    window: Range<u64>,
    places: &mut Vec<u64>,
) -> Result<Vec<FramePiece>> {
    resolve(&want.layers, want.chunk, window.clone(), places)?;
    if let Some(layers) = &want.at_hand {
        subtract(places, layers, want.chunk, window.clone())?;
    }
    let mut pieces = Vec::new();
    for (first, count, place) in runs(places, want.chunk) {
        let start = (window.start + first) * want.chunk;
        let end = want.bytes.min(start + count * want.chunk);
        let from = start.max(want.range.start);
        let to = end.min(want.range.end);
        if from >= to {
            continue;
        }
        let footer = footers.get(place.pack as usize);
        let footer =
            footer.ok_or_else(|| Error::damaged("a reference names a pack that is not there"))?;
        let offset = place.offset + (from - start);
        cut(
            footer,
            place.pack,
            offset,
            to - from,
            want.target,
            from - want.range.start,
            &mut pieces,
        )?;
    }
    Ok(pieces)
}

/// Cuts bytes of a pack at the borders of its frames.
fn cut(
    footer: &Footer,
    pack: u32,
    mut offset: u64,
    mut len: u64,
    target: u32,
    mut to: u64,
    pieces: &mut Vec<FramePiece>,
) -> Result<()> {
    let missing = || Error::damaged("a reference leads past the end of its pack");
    let mut frame = footer.frame_at(offset).ok_or_else(missing)?;
    while len > 0 {
        let entry = footer.frames.get(frame).ok_or_else(missing)?;
        let from = offset - entry.offset;
        let take = len.min(entry.len - from);
        pieces.push(FramePiece {
            pack,
            frame: frame as u32,
            target,
            to,
            from: from as u32,
            len: take as u32,
        });
        (offset, to, len, frame) = (offset + take, to + take, len - take, frame + 1);
    }
    Ok(())
}

//! Which bytes of which frames go where, as a plain value.

use crate::error::{Error, Result};
use crate::format::Footer;
use crate::lineage::{Layer, resolve, runs, subtract};
use rayon::prelude::*;
use std::ops::Range;

/// How many chunks are resolved at a time.
const WINDOW: u64 = 1 << 16;

/// Bytes of one frame that go to one place of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Piece {
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
pub(crate) fn plan(footers: &[&Footer], wanted: &[Wanted]) -> Result<Vec<Piece>> {
    let mut tasks = Vec::new();
    for (at, want) in wanted.iter().enumerate() {
        let chunks = want.range.start / want.chunk..want.range.end.div_ceil(want.chunk);
        let starts = (chunks.start..chunks.end).step_by(WINDOW as usize);
        tasks.extend(starts.map(|s| (at, s..chunks.end.min(s + WINDOW))));
    }
    let parts: Vec<Vec<Piece>> = tasks
        .into_par_iter()
        .map(|(at, window)| pieces(footers, &wanted[at], window))
        .collect::<Result<_>>()?;
    let mut all = parts.concat();
    all.par_sort_unstable();
    Ok(all)
}

/// The pieces of one window of chunks.
fn pieces(footers: &[&Footer], want: &Wanted, window: Range<u64>) -> Result<Vec<Piece>> {
    let mut places = resolve(&want.layers, want.chunk, window.clone())?;
    if let Some(layers) = &want.at_hand {
        subtract(&mut places, layers, want.chunk, window.clone())?;
    }
    let mut pieces = Vec::new();
    for (first, count, place) in runs(&places, want.chunk) {
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
    pieces: &mut Vec<Piece>,
) -> Result<()> {
    let missing = || Error::damaged("a reference leads past the end of its pack");
    let mut frame = footer.frame_at(offset).ok_or_else(missing)?;
    while len > 0 {
        let entry = footer.frames.get(frame).ok_or_else(missing)?;
        let from = offset - entry.offset;
        let take = len.min(entry.len - from);
        pieces.push(Piece {
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

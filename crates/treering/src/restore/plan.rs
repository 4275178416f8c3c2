//! Which bytes of which frames go where, as a plain value.

use crate::error::{Error, Result};
use crate::format::Footer;
use crate::lineage::{Layer, PlacedRun, resolve, runs, runs_and_repeats, subtract};
use crate::memory::{settle, stream, zeroed};
use crate::merkle::{BOUGH, Digest, Hasher, Print, bough, prefetch};
use rayon::prelude::*;
use std::ops::Range;

/// Number of chunks that are resolved at a time.
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
    /// Offset in the target.
    pub(crate) to: u64,
    /// Offset in the frame.
    pub(crate) from: u32,
    /// Number of bytes.
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
    /// The regions that each checkpoint of the epoch added to it, oldest first.
    pub(crate) layers: Vec<Layer<'a>>,
    /// The layers of a newer checkpoint whose bytes the target holds already.
    pub(crate) at_hand: Option<Vec<Layer<'a>>>,
    /// Whether the prints of the chunks of a whole variable are needed, and not only its root.
    pub(crate) prints: bool,
}

impl Wanted<'_> {
    /// Whether the target is a whole variable, all of which is fetched.
    pub(super) fn is_whole(&self) -> bool {
        self.range == (0..self.bytes) && self.at_hand.is_none()
    }
}

/// Hashes of the chunks of a whole variable, as they came about while it was filled.
pub(super) enum ChunkHashes {
    Prints(Vec<Print>),
    Boughs(Vec<Digest>),
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

/// Fills a target in its own order from the bytes of all packs, which are at hand; the hashes of its chunks if it is a
/// whole variable.
///
/// Where content repeats, a state is made of many small pieces of few bytes; sorting them by where
/// they lie would take longer than copying them. A chunk is hashed as soon as it is copied, while it is in the cache, and
/// one that repeats the chunk before it is not hashed again.
pub(crate) fn fill(
    images: &[Vec<u8>],
    want: &Wanted,
    hasher: &Hasher,
    target: &mut [u8],
) -> Result<Option<ChunkHashes>> {
    let chunk = want.chunk;
    let (first, last) = (want.range.start / chunk, want.range.end.div_ceil(chunk));
    // Only whole variables have hashes, so windows begin with boughs.
    let (mut prints, mut boughs) = (Vec::new(), Vec::new());
    match (want.is_whole(), want.prints) {
        (false, _) => {}
        (true, true) => prints = zeroed(last)?,
        (true, false) => boughs = zeroed(last.div_ceil(BOUGH as u64))?,
    }
    let count = (FILLED / chunk).clamp(1, WINDOW).next_multiple_of(BOUGH as u64);
    let (mut windows, mut rest) = (Vec::new(), target);
    let (mut prints_of, mut boughs_of) =
        (prints.chunks_mut(count as usize), boughs.chunks_mut(count as usize / BOUGH));
    for start in (first..last).step_by(count as usize) {
        let end = last.min(start + count);
        // Windows start at chunks; only the first and the last may be cut by the range.
        let bytes = want.range.start.max(start * chunk)..want.range.end.min(end * chunk);
        let (part, behind) = rest.split_at_mut((bytes.end - bytes.start) as usize);
        let hashes = match (prints_of.next(), boughs_of.next()) {
            (Some(prints), _) => WindowHashes::Prints(prints),
            (None, Some(boughs)) => WindowHashes::Boughs(boughs),
            (None, None) => WindowHashes::Unneeded,
        };
        windows.push((FillWindow { chunks: start..end, bytes, part }, hashes));
        rest = behind;
    }
    windows.into_par_iter().try_for_each_init(Buffers::default, |buffers, (window, hashes)| {
        let filled = window.fill(images, want, hasher, hashes, buffers);
        // After an error, too: others fill the target again then.
        settle();
        filled
    })?;
    Ok(match (want.is_whole(), want.prints) {
        (false, _) => None,
        (true, true) => Some(ChunkHashes::Prints(prints)),
        (true, false) => Some(ChunkHashes::Boughs(boughs)),
    })
}

/// Number of bytes of a target that one task fills.
const FILLED: u64 = 1 << 20;
/// Number of runs by which bytes are requested ahead of the copy: they lie in as many places as there are packs.
const RUNS_AHEAD: usize = 12;
/// Number of runs that are known at a time.
const RUNS: usize = 512;

/// Some chunks of a target.
struct FillWindow<'a> {
    chunks: Range<u64>,
    /// Their bytes that are wanted.
    bytes: Range<u64>,
    part: &'a mut [u8],
}

/// Destination of the hashes of a window's chunks.
enum WindowHashes<'a> {
    Unneeded,
    Prints(&'a mut [Print]),
    Boughs(&'a mut [Digest]),
}

/// Buffers of a thread, used for one window after another.
#[derive(Default)]
struct Buffers {
    places: Vec<u64>,
    prints: Vec<Print>,
}

impl FillWindow<'_> {
    fn fill(
        self,
        images: &[Vec<u8>],
        want: &Wanted,
        hasher: &Hasher,
        hashes: WindowHashes,
        Buffers { places, prints }: &mut Buffers,
    ) -> Result<()> {
        resolve(&want.layers, want.chunk, self.chunks.clone(), places)?;
        match hashes {
            WindowHashes::Unneeded => self.put_all(places, images, want, hasher, &mut []),
            WindowHashes::Prints(prints) => self.put_all(places, images, want, hasher, prints),
            WindowHashes::Boughs(boughs) => {
                prints.resize(places.len(), 0);
                self.put_all(places, images, want, hasher, prints)?;
                let made = prints.chunks(BOUGH).map(bough);
                boughs.iter_mut().zip(made).for_each(|(bough, made)| *bough = made);
                Ok(())
            }
        }
    }

    fn put_all(
        mut self,
        places: &[u64],
        images: &[Vec<u8>],
        want: &Wanted,
        hasher: &Hasher,
        prints: &mut [Print],
    ) -> Result<()> {
        let mut runs = runs_and_repeats(places, want.chunk);
        let mut some = Vec::with_capacity(RUNS);
        loop {
            some.clear();
            some.extend(runs.by_ref().take(RUNS));
            if some.is_empty() {
                return Ok(());
            }
            for (at, run) in some.iter().enumerate() {
                if let Some(PlacedRun { place, .. }) = some.get(at + RUNS_AHEAD) {
                    let image = images.get(place.pack as usize).map_or(&[][..], |image| image);
                    let start = image.as_ptr().wrapping_add(place.offset as usize);
                    (0..want.chunk.min(512)).step_by(64).for_each(|line| {
                        prefetch(start.wrapping_add(line as usize));
                    });
                }
                let (source, len) = self.put(run, images, want)?;
                if !prints.is_empty() {
                    let prints = &mut prints[run.first as usize..][..run.count as usize];
                    match run.repeats {
                        true => print_repeats(source, len, hasher, prints),
                        false => {
                            let chunks = source.chunks(want.chunk as usize);
                            prints.iter_mut().zip(chunks).for_each(|(p, c)| *p = hasher.print(c));
                        }
                    }
                }
            }
        }
    }

    /// Fills a run of chunks; its distinct bytes, and how many it has with their repeats.
    fn put<'i>(
        &mut self,
        run: &PlacedRun,
        images: &'i [Vec<u8>],
        want: &Wanted,
    ) -> Result<(&'i [u8], usize)> {
        let missing = || Error::damaged("a reference leads past the end of its pack");
        let (chunk, FillWindow { chunks, bytes, part }) = (want.chunk, self);
        let start = (chunks.start + run.first) * chunk;
        let (from, to) = (start.max(bytes.start), (start + run.count * chunk).min(bytes.end));
        let target = &mut part[(from - bytes.start) as usize..(to - bytes.start) as usize];
        let image = images.get(run.place.pack as usize).ok_or_else(missing)?;
        // A repeat is cut by the range at its first chunk only, where it begins a window.
        let skipped = from - start;
        let distinct = if run.repeats { chunk.min(to - start) } else { to - start };
        let source = run.place.offset as usize..(run.place.offset + distinct) as usize;
        let source = image.get(source).ok_or_else(missing)?;
        match run.repeats {
            true => repeat(source, skipped as usize, target),
            false => stream(target, &source[skipped as usize..]),
        }
        Ok((source, target.len()))
    }
}

/// Writes a chunk again and again, at first from `skipped` on.
fn repeat(chunk: &[u8], skipped: usize, target: &mut [u8]) {
    let (head, rest) = target.split_at_mut((chunk.len() - skipped).min(target.len()));
    stream(head, &chunk[skipped..skipped + head.len()]);
    for part in rest.chunks_mut(chunk.len()) {
        stream(part, &chunk[..part.len()]);
    }
}

/// The prints of a chunk that is repeated, `len` bytes in all: the last of a variable may be short.
fn print_repeats(chunk: &[u8], len: usize, hasher: &Hasher, prints: &mut [Print]) {
    prints.fill(hasher.print(chunk));
    if let (short @ 1.., Some(last)) = (len % chunk.len(), prints.last_mut()) {
        *last = hasher.print(&chunk[..short]);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::{Location, Region};
    use proptest::prelude::*;

    const CHUNK: u64 = 32;
    /// More chunks than a window of `fill` has.
    const CHUNKS: u64 = WINDOW + 500;

    /// Regions one behind another, with gaps in layers above the first: length, gap, place and period of each.
    type Shapes = Vec<(u64, u64, u64, u64)>;

    fn layer(pack: u32, shapes: &Shapes, gaps: bool) -> Vec<Region> {
        let (mut regions, mut start) = (Vec::new(), 0);
        for (count, gap, place, period) in shapes.iter().cycle() {
            start += if gaps { gap } else { &0 };
            if start >= CHUNKS {
                return regions;
            }
            let count = *(count.min(&(CHUNKS - start)));
            let place = Location { pack, offset: place * CHUNK };
            let period = if *period < count { *period } else { 0 };
            regions.push(Region { start, count, place, period, fresh: false });
            start += count;
        }
        regions
    }

    fn shapes() -> impl Strategy<Value = Shapes> {
        proptest::collection::vec((1u64..900, 0u64..900, 0u64..50, 0u64..4), 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// A target is filled as its chunks' places say, and the prints are those of its bytes.
        #[test]
        fn a_target_is_filled_and_its_prints_are_made(
            (base, newer) in (shapes(), shapes()),
            (short, kept) in (0..CHUNK, any::<bool>()),
            cut in proptest::option::of((0.0..1.0f64, 0.0..1.0f64)),
        ) {
            // One image repeats a chunk of zeros, the other repeats nothing.
            let image = |pack: u64| {
                let byte = move |at: u64| ((at / 7 * (at / CHUNK % 3) + pack) * (at / CHUNK % 5)) as u8;
                (0..1000 * CHUNK).map(byte).collect::<Vec<u8>>()
            };
            let images = [image(0), image(3)];
            let (base, newer) = (layer(0, &base, false), layer(1, &newer, true));
            let bytes = CHUNKS * CHUNK - short;
            let range = match cut {
                None => 0..bytes,
                Some((a, b)) => {
                    let (a, b) = ((a * bytes as f64) as u64, (b * bytes as f64) as u64);
                    a.min(b)..a.max(b)
                }
            };
            let layers: Vec<Layer> = vec![&base, &newer];
            let mut places = Vec::new();
            resolve(&layers, CHUNK, 0..CHUNKS, &mut places).unwrap();
            let mut expected: Vec<u8> = Vec::new();
            for place in places {
                let Location { pack, offset } = Location::from_packed(place);
                let chunk = offset as usize..(offset + CHUNK) as usize;
                expected.extend_from_slice(&images[pack as usize][chunk]);
            }
            expected.truncate(bytes as usize);
            let range_of = range.clone();
            let want = Wanted { target: 0, chunk: CHUNK, bytes, range: range_of, layers, at_hand: None, prints: kept };
            let mut target = vec![0xaa; (range.end - range.start) as usize];
            let hasher = Hasher::new(5);
            let hashes = fill(&images, &want, &hasher, &mut target).unwrap();
            prop_assert!(target == expected[range.start as usize..range.end as usize]);
            let whole = crate::merkle::prints(&expected, CHUNK as usize, &hasher);
            prop_assert_eq!(hashes.is_some(), range == (0..bytes));
            match hashes {
                None => {}
                Some(ChunkHashes::Prints(prints)) => prop_assert!(kept && prints == whole),
                Some(ChunkHashes::Boughs(made)) => {
                    prop_assert!(!kept && made == crate::merkle::boughs(&whole));
                }
            }
        }
    }
}

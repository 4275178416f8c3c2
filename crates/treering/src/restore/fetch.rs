//! Carrying out a plan: read frames, check them, decode them, fill the targets.

use super::handles::{Handles, first_good};
use super::plan::FramePiece;
use super::target::SharedTarget;
use crate::array::GroupId;
use crate::codec::Codec;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Footer, Frame, HEADER_BYTES, MAX_DEPTH, RAW, Seal, TRAILER_BYTES, parse_trailer,
};
use crate::memory::{Scratch, batches, zeroed};
use crate::merkle::checksum;
use crate::store::Blob;
use rayon::prelude::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Number of frames of one pack that one task reads; the file is opened once for them.
const FRAMES: usize = 16;
/// Number of bytes of frames that are read in one call: as much as stays in a cache until it is decoded.
const TOGETHER: u64 = 1 << 20;

/// Footers that are longer are looked for in the size of a pack before memory is taken for them.
const MUCH: u64 = 16 << 20;

/// A pack of the checkpoint's epoch.
pub(crate) struct Pack {
    /// Its key in the store.
    pub(crate) key: String,
    /// Its footer.
    pub(crate) footer: Arc<Footer>,
}

/// Problems on the way that did not stop it: bad copies for which another tier served.
#[derive(Default)]
pub(crate) struct Notes {
    texts: Mutex<Vec<String>>,
    /// The bytes that were filled, and who hears of them.
    filled: AtomicU64,
    told: OnceLock<FillTold>,
}

/// Hears of the bytes that were filled so far.
pub(crate) type FillTold = Box<dyn Fn(u64) + Send + Sync>;

impl Notes {
    pub(super) fn get(&self) -> Vec<String> {
        self.texts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(super) fn tell(&self, told: FillTold) {
        // The first one hears of it.
        let _ = self.told.set(told);
    }

    fn filled(&self, pieces: &[&[FramePiece]]) {
        if let Some(told) = self.told.get() {
            let bytes: u64 =
                pieces.iter().copied().flatten().map(|piece| u64::from(piece.len)).sum();
            told(self.filled.fetch_add(bytes, Ordering::Relaxed) + bytes);
        }
    }
}

pub(crate) fn note(notes: &Notes, text: String) {
    let mut notes = notes.texts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if notes.len() < 100 {
        notes.push(text);
    }
}

/// Decoded frames of which only parts were wanted: the next part is often wanted soon.
pub(crate) struct FrameCache {
    frames: Mutex<Vec<(FrameId, Arc<Vec<u8>>)>>,
    /// Whether everything is read bit by bit, so that no frame must be read twice.
    pub(crate) by_pieces: bool,
    /// The most bytes that are kept, but for the newest.
    pub(crate) most: usize,
}

impl Default for FrameCache {
    fn default() -> Self {
        FrameCache { frames: Mutex::default(), by_pieces: false, most: KEPT }
    }
}

/// Group, pack and frame.
type FrameId = (GroupId, u32, u32);

/// Number of bytes of frames that are kept by default.
const KEPT: usize = 64 << 20;

impl FrameCache {
    fn get(&self, place: FrameId) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.frames.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let at = kept.iter().position(|(other, _)| *other == place)?;
        let found = kept.remove(at);
        let bytes = found.1.clone();
        kept.push(found);
        Some(bytes)
    }

    fn put(&self, place: FrameId, bytes: Arc<Vec<u8>>) {
        let mut kept = self.frames.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.push((place, bytes));
        let mut all: usize = kept.iter().map(|(_, bytes)| bytes.len()).sum();
        while all > self.most && kept.len() > 1 {
            all -= kept.remove(0).1.len();
        }
    }
}

/// Fills the targets by the plan, from the packs of a group.
pub(crate) fn fetch(
    handles: &Handles,
    (group, packs): (GroupId, &[Pack]),
    plan: &[FramePiece],
    targets: &[SharedTarget],
    notes: &Notes,
    kept: &FrameCache,
) -> Result<()> {
    let by_frame: Vec<&[FramePiece]> =
        plan.chunk_by(|a, b| (a.pack, a.frame) == (b.pack, b.frame)).collect();
    // Only who reads bit by bit comes back for the rest of a frame.
    let few = kept.by_pieces || by_frame.len() <= FRAMES;
    let tasks: Vec<&[&[FramePiece]]> = by_frame
        .chunk_by(|a, b| a[0].pack == b[0].pack)
        .flat_map(|same_pack| same_pack.chunks(FRAMES))
        .collect();
    tasks.into_par_iter().try_for_each(|task| {
        let pack = &packs[task[0][0].pack as usize];
        let copies = handles.copies(&pack.key);
        let mut direct = Vec::new();
        for pieces in task {
            let (number, wanted) = (pieces[0].frame as usize, pieces.iter().map(|p| p.len as u64));
            let whole = !few || wanted.sum::<u64>() >= pack.footer.frames[number].len;
            let place = (group, pieces[0].pack, pieces[0].frame);
            let bytes = match kept.get(place) {
                Some(bytes) => bytes,
                None if whole && pack.footer.before(number).is_none() => {
                    direct.push(*pieces);
                    continue;
                }
                None => {
                    let bytes = frame(handles, packs, place.1, place.2, notes)?;
                    let bytes = Arc::new(bytes);
                    if !whole {
                        kept.put(place, bytes.clone());
                    }
                    bytes
                }
            };
            copy_pieces(&bytes, pieces, targets);
            notes.filled(std::slice::from_ref(pieces));
        }
        let encoded = |pieces: &&[FramePiece]| pack.footer.frames[pieces[0].frame as usize].encoded;
        let mut together = batches(&direct, TOGETHER, encoded).into_iter();
        together.try_for_each(|frames| {
            fill_together(pack, &copies, frames, targets, notes)?;
            notes.filled(frames);
            Ok(())
        })
    })
}

/// Fills the pieces of several frames of a pack, which the nearest copy gives in one call.
fn fill_together(
    pack: &Pack,
    copies: &[Result<Box<dyn Blob>>],
    frames: &[&[FramePiece]],
    targets: &[SharedTarget],
    notes: &Notes,
) -> Result<()> {
    let one_by_one =
        || frames.iter().try_for_each(|pieces| fill(pack, copies, pieces, targets, notes));
    let (Some(Ok(nearest)), [_, _, ..]) = (copies.first(), frames) else { return one_by_one() };
    let of = |pieces: &[FramePiece]| &pack.footer.frames[pieces[0].frame as usize];
    let mut rooms = frames
        .iter()
        .map(|pieces| match straight(of(pieces), pieces) {
            Some(_) => Ok(None),
            None => Scratch::new(of(pieces).encoded as usize).map(Some),
        })
        .collect::<Result<Vec<Option<Scratch>>>>()?;
    let mut ranges: Vec<(u64, &mut [u8])> = Vec::with_capacity(frames.len());
    for (pieces, room) in frames.iter().zip(&mut rooms) {
        let buffer = match room {
            Some(room) => &mut room[..],
            // SAFETY: see `SharedTarget::slice_of`; nobody else looks at it before the reads are done.
            None => unsafe { targets[pieces[0].target as usize].slice_of(&pieces[0]) },
        };
        ranges.push((of(pieces).position, buffer));
    }
    if let Err(error) = nearest.read_many(&mut ranges) {
        let store = nearest.store();
        note(notes, format!("{} in {store}, {} frames at once: {error}", pack.key, frames.len()));
        return one_by_one();
    }
    drop(ranges);
    for (pieces, room) in frames.iter().zip(rooms) {
        let frame = of(pieces);
        let filled = match room {
            Some(encoded) => decoded(encoded, &pack.footer, frame)
                .map(|bytes| copy_pieces(&bytes, pieces, targets)),
            None => check_straight(&targets[pieces[0].target as usize], &pieces[0], frame),
        };
        if let Err(error) = filled {
            fill_but_nearest(pack, copies, pieces, targets, notes, error)?;
        }
    }
    Ok(())
}

/// Fills the pieces of one frame, of which the nearest copy was found to be bad.
fn fill_but_nearest(
    pack: &Pack,
    copies: &[Result<Box<dyn Blob>>],
    pieces: &[FramePiece],
    targets: &[SharedTarget],
    notes: &Notes,
    error: Error,
) -> Result<()> {
    let number = pieces[0].frame as usize;
    let nearest = Cell::new(Some(error));
    from_copies(pack, copies, number, notes, |copy| match nearest.take() {
        Some(error) => Err(error),
        None => fill_from(copy, &pack.footer, number, pieces, targets),
    })
}

/// The bytes of a whole frame.
///
/// A difference leads to an earlier pack always, and packs are finite; yet a chain that is longer
/// than any writer makes is damage. Each frame below is decoded once, however many runs lead to it:
/// without that, chains whose runs alternate between packs would take time to the power of their length.
fn frame(
    handles: &Handles,
    packs: &[Pack],
    pack: u32,
    number: u32,
    notes: &Notes,
) -> Result<Vec<u8>> {
    Below { handles, packs, notes, decoded: HashMap::new() }.frame((pack, number), 0)
}

/// The frames that one frame is made of.
struct Below<'a> {
    handles: &'a Handles,
    packs: &'a [Pack],
    notes: &'a Notes,
    decoded: HashMap<(u32, u32), Vec<u8>>,
}

impl Below<'_> {
    fn frame(&mut self, (pack, number): (u32, u32), depth: u8) -> Result<Vec<u8>> {
        let lost = || Error::damaged("a difference leads to bytes that are not there");
        let packs = self.packs;
        let pack = packs.get(pack as usize).ok_or_else(lost)?;
        let frame = pack.footer.frames.get(number as usize).ok_or_else(lost)?;
        if depth > MAX_DEPTH {
            return Err(Error::damaged("a chain of differences is too long").at(&pack.key));
        }
        let mut before = Vec::new();
        for run in pack.footer.before(number as usize).into_iter().flatten() {
            let mut at = run.place.offset;
            let end = at + run.len;
            while at < end {
                let older = packs.get(run.place.pack as usize).ok_or_else(lost)?;
                let older_number = older.footer.frame_at(at).ok_or_else(lost)?;
                let older_frame = &older.footer.frames[older_number];
                let place = (run.place.pack, older_number as u32);
                if !self.decoded.contains_key(&place) {
                    let bytes = self.frame(place, depth + 1)?;
                    self.decoded.insert(place, bytes);
                }
                let from = (at - older_frame.offset) as usize;
                let to = (end - older_frame.offset).min(older_frame.len) as usize;
                before.extend_from_slice(&self.decoded[&place][from..to]);
                at += (to - from) as u64;
            }
        }
        let chain = pack.footer.chain(frame)?;
        from_copies(pack, &self.handles.copies(&pack.key), number as usize, self.notes, |copy| {
            let mut encoded = Scratch::new(frame.encoded as usize)?;
            copy.read_at(frame.position, &mut encoded)?;
            check(&encoded, frame)?;
            let mut raw = zeroed(frame.len)?;
            chain.decode_beside(&encoded, &before, &mut raw)?;
            Ok(raw)
        })
    }
}

/// The bytes of a whole pack, from the first good copy of each frame.
pub(crate) fn image(
    handles: &Handles,
    packs: &[Pack],
    number: usize,
    notes: &Notes,
) -> Result<Vec<u8>> {
    let pack = &packs[number];
    let mut bytes: Vec<u8> = zeroed(pack.footer.len())?;
    let frames = pack.footer.frames.iter().enumerate();
    let plan: Vec<FramePiece> = frames
        .map(|(at, frame)| FramePiece {
            pack: number as u32,
            frame: at as u32,
            target: 0,
            to: frame.offset,
            from: 0,
            len: frame.len as u32,
        })
        .collect();
    let targets = [SharedTarget::new(&mut bytes)];
    fetch(handles, (GroupId(0), packs), &plan, &targets, notes, &FrameCache::default())?;
    Ok(bytes)
}

/// Fills the pieces of one frame from the first copy that is good.
fn fill(
    pack: &Pack,
    copies: &[Result<Box<dyn Blob>>],
    pieces: &[FramePiece],
    targets: &[SharedTarget],
    notes: &Notes,
) -> Result<()> {
    let number = pieces[0].frame as usize;
    from_copies(pack, copies, number, notes, |copy| {
        fill_from(copy, &pack.footer, number, pieces, targets)
    })
}

/// Result from the first good copy of a frame.
fn from_copies<T>(
    pack: &Pack,
    copies: &[Result<Box<dyn Blob>>],
    number: usize,
    notes: &Notes,
    read: impl Fn(&dyn Blob) -> Result<T>,
) -> Result<T> {
    let note = |store: &str, error: &Error| {
        note(notes, format!("{} in {store}, frame {number}: {error}", pack.key));
    };
    first_good(copies, read, note).map_err(|error| {
        match (error.kind(), copies.len()) {
            (ErrorKind::Damaged, 1) => {
                Error::damaged(format!("frame {number} of a pack is damaged"))
            }
            (ErrorKind::Damaged, 2..) => Error::damaged(format!(
                "frame {number} of a pack is damaged in all {} copies",
                copies.len()
            )),
            _ => error,
        }
        .at(&pack.key)
    })
}

fn fill_from(
    copy: &dyn Blob,
    footer: &Footer,
    number: usize,
    pieces: &[FramePiece],
    targets: &[SharedTarget],
) -> Result<()> {
    let frame = &footer.frames[number];
    if let Some(piece) = straight(frame, pieces) {
        let target = &targets[piece.target as usize];
        // SAFETY: see `SharedTarget::slice_of`; the slice is gone before the check.
        copy.read_at(frame.position, unsafe { target.slice_of(piece) })?;
        return check_straight(target, piece, frame);
    }
    let mut encoded = Scratch::new(frame.encoded as usize)?;
    copy.read_at(frame.position, &mut encoded)?;
    copy_pieces(&decoded(encoded, footer, frame)?, pieces, targets);
    Ok(())
}

/// The piece of a frame that is raw and wanted as a whole: it goes straight to its place.
fn straight<'p>(frame: &Frame, pieces: &'p [FramePiece]) -> Option<&'p FramePiece> {
    match pieces {
        [piece]
            if frame.codec == RAW
                && u64::from(piece.len) == frame.len
                && frame.encoded == frame.len =>
        {
            Some(piece)
        }
        _ => None,
    }
}

/// Number of pieces of one frame that are copied by one thread: content that repeats may be wanted at very many
/// places.
const PIECES: usize = 16 << 10;

/// Copies what pieces want of a frame.
fn copy_pieces(bytes: &[u8], pieces: &[FramePiece], targets: &[SharedTarget]) {
    let copy = |pieces: &[FramePiece]| {
        for same in pieces.chunk_by(|a, b| a.target == b.target) {
            // SAFETY: see `SharedTarget::slice_of`.
            unsafe { targets[same[0].target as usize].put(bytes, same) };
        }
    };
    match pieces.len() > PIECES {
        true => pieces.par_chunks(PIECES).for_each(copy),
        false => copy(pieces),
    }
}

/// Checks a frame that was read straight to its place.
fn check_straight(target: &SharedTarget, piece: &FramePiece, frame: &Frame) -> Result<()> {
    // SAFETY: see `SharedTarget::slice_of`.
    check(unsafe { target.slice_of(piece) }, frame)?;
    // SAFETY: as above, and the bytes are there.
    unsafe { target.came(piece) };
    Ok(())
}

fn check(encoded: &[u8], frame: &Frame) -> Result<()> {
    match checksum(encoded) == frame.checksum {
        true => Ok(()),
        false => Err(Error::damaged("the checksum does not match")),
    }
}

/// The frame's bytes, checked and decoded unless they are raw already; of a difference, what is left
/// without the bytes before.
fn decoded(encoded: Scratch, footer: &Footer, frame: &Frame) -> Result<Scratch> {
    check(&encoded, frame)?;
    if frame.codec == RAW && encoded.len() as u64 == frame.len {
        return Ok(encoded);
    }
    let chain = footer.chain(frame)?.behind();
    let mut raw = Scratch::new(frame.len as usize)?;
    chain.decode(&encoded, &mut raw)?;
    Ok(raw)
}

/// Reads header, footer and trailer of one copy of a pack; with `section`, its variables, too.
pub(crate) fn read_footer(copy: &dyn Blob, section: bool) -> Result<(Seal, Footer)> {
    let size = copy.size();
    let short = || Error::damaged("a pack is cut off");
    let at = size.checked_sub(TRAILER_BYTES).ok_or_else(short)?;
    let mut trailer = [0; TRAILER_BYTES as usize];
    copy.read_at(at, &mut trailer)?;
    let seal = parse_trailer(&trailer, size)?;
    let mut header = [0; HEADER_BYTES as usize];
    copy.read_at(0, &mut header)?;
    let mut footer = vec![0; seal.footer as usize];
    copy.read_at(at - seal.footer, &mut footer)?;
    Ok((seal, Footer::parse(&header, &footer, &seal, section)?))
}

/// Reads the footer of one copy of a pack whose seal is known: its size is not asked for, and header,
/// footer and trailer come in one call.
pub(crate) fn read_sealed(copy: &dyn Blob, seal: &Seal, section: bool) -> Result<Footer> {
    let wrong = || Error::damaged("another pack is in its place");
    let behind = seal.footer.checked_add(TRAILER_BYTES).ok_or_else(wrong)?;
    let footer_at = seal.size.checked_sub(behind).ok_or_else(wrong)?;
    // A seal may claim anything; much memory is taken only if the store says that there is as much.
    if seal.footer > MUCH && copy.size() != seal.size {
        return Err(wrong());
    }
    let (mut header, mut trailer) = ([0; HEADER_BYTES as usize], [0; TRAILER_BYTES as usize]);
    let mut footer: Vec<u8> = zeroed(seal.footer)?;
    let trailer_at = footer_at + seal.footer;
    copy.read_many(&mut [(0, &mut header), (footer_at, &mut footer), (trailer_at, &mut trailer)])?;
    match parse_trailer(&trailer, seal.size)? == *seal {
        true => Footer::parse(&header, &footer, seal, section),
        false => Err(wrong()),
    }
}

/// Reads, checks and decodes every frame of one copy; the numbers of bad ones. `done` hears of bytes.
pub(crate) fn check_frames(
    copy: &dyn Blob,
    footer: &Footer,
    done: &(dyn Fn(u64) + Sync),
) -> Vec<(u32, Error)> {
    let failures = footer.frames.par_iter().enumerate().filter_map(|(number, frame)| {
        let outcome = Scratch::new(frame.encoded as usize).and_then(|mut encoded| {
            copy.read_at(frame.position, &mut encoded)?;
            decoded(encoded, footer, frame)
        });
        done(frame.encoded);
        outcome.err().map(|error| (number as u32, error.at(format!("frame {number}"))))
    });
    failures.collect()
}

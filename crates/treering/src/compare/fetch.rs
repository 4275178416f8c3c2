//! Reading the same ranges of two sides, many at a time, and handing each pair over when both are
//! there.
//!
//! Data in the page cache is compared in place, if files may be mapped and most of a stretch is
//! asked for, and else copied from it into buffers that are still warm from the pair before. Data that it
//! does not hold is read past it, many reads under way at once: with io_uring, or with a pool of
//! threads where there is none. The number of buffers is fixed, so memory is bounded.

use crate::error::{Error, Result};
use crate::io::Mapped;
use crate::io::{ALIGN, Engine, Read, Reading, cached, engine, is_warm, past_the_cache};
use crate::store::Blob;
use memmap2::MmapMut;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::time::Instant;

/// The most bytes of one read; two buffers of it fit into the second-level cache.
pub(super) const RUN: usize = 128 << 10;
/// Number of pairs that can be under way.
const SLOTS: usize = 64;
/// A stretch is mapped if at least one of this many bytes is asked for.
const DENSE: u64 = 8;

/// The bytes of one side.
pub(super) struct SideBytes<'a> {
    blob: &'a (dyn Blob + 'a),
    /// The file that holds them, and where in it they begin.
    file: Option<(&'a File, u64)>,
    /// The file, opened to be read past the page cache.
    direct: Option<File>,
    /// The bytes, mapped when they are first wanted so.
    map: OnceLock<Option<Mapped>>,
}

impl<'a> SideBytes<'a> {
    pub(super) fn new(blob: &'a (dyn Blob + 'a)) -> Self {
        let file = blob.file().map(|(file, _, offset)| (file, offset));
        let direct = file.and_then(|(file, _)| past_the_cache(file));
        SideBytes { blob, file, direct, map: OnceLock::new() }
    }

    /// Whether the bytes of a range need not come from below the page cache.
    pub(super) fn is_warm(&self, range: &Range<u64>) -> bool {
        self.file
            .is_none_or(|(file, base)| is_warm(file, base + range.start, range.end - range.start))
    }

    /// The bytes as they lie in the page cache.
    fn mapped(&self) -> Option<&Mapped> {
        let (file, base) = self.file?;
        let map = || Mapped::new(file, base, self.blob.size());
        self.map.get_or_init(map).as_ref()
    }
}

/// One pair of reads.
struct ReadSlot {
    buffers: [MmapMut; 2],
    /// Offset of the range in each buffer.
    skews: [usize; 2],
    range: Range<u64>,
    waiting: u8,
}

/// Reads pairs of ranges.
pub(super) struct Fetcher {
    slots: Vec<ReadSlot>,
    free: Vec<usize>,
    engine: Option<Box<dyn Engine>>,
    reading: Reading,
    mapped: bool,
    /// Whether the page cache seems to hold what is read now.
    warm: [bool; 2],
    paces: Paces,
}

/// Recent speed of both methods of reading. Mapping large pages costs nothing; mapping small ones, as some
/// file systems have them, costs more than copying them.
#[derive(Default)]
struct Paces {
    /// Seconds a byte.
    recent: [f64; 2],
    turns: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum ReadMode {
    Map,
    Copy,
}

impl Paces {
    /// The faster way; now and then the other one, to see.
    fn way(&mut self) -> ReadMode {
        let faster = if self.recent[0] <= self.recent[1] { ReadMode::Map } else { ReadMode::Copy };
        let other = if faster == ReadMode::Map { ReadMode::Copy } else { ReadMode::Map };
        self.turns += 1;
        match self.turns {
            1 => ReadMode::Map,
            2 => ReadMode::Copy,
            turn if turn % 16 == 0 => other,
            _ => faster,
        }
    }

    fn took(&mut self, way: ReadMode, pace: f64) {
        let recent = &mut self.recent[way as usize];
        *recent = if *recent == 0.0 { pace } else { 0.75 * *recent + 0.25 * pace };
    }
}

/// Told of every pair: its range and the bytes of both sides.
pub(super) type Visit<'v> = &'v mut dyn FnMut(Range<u64>, &[u8], &[u8]) -> Result<()>;

impl Fetcher {
    pub(super) fn new(reading: Reading, mapped: bool) -> Self {
        Fetcher {
            slots: Vec::new(),
            free: Vec::new(),
            engine: None,
            reading,
            mapped,
            warm: [true; 2],
            paces: Paces::default(),
        }
    }

    /// Reads all ranges, ascending and each at most [`RUN`] bytes, of both sides, which are warm or
    /// not; pairs come in any order.
    pub(super) fn run(
        &mut self,
        inputs: [&SideBytes; 2],
        ranges: Vec<Range<u64>>,
        warm: [bool; 2],
        visit: Visit,
    ) -> Result<()> {
        self.warm = warm;
        let Some((maps, asked)) = self.maps(inputs, &ranges) else {
            return self.copy(inputs, ranges, visit);
        };
        let start = Instant::now();
        let way = self.paces.way();
        let outcome = match way {
            ReadMode::Map => look(inputs, maps, ranges, visit),
            ReadMode::Copy => self.copy(inputs, ranges, visit),
        };
        self.paces.took(way, start.elapsed().as_secs_f64() / asked as f64);
        outcome
    }

    fn copy(
        &mut self,
        inputs: [&SideBytes; 2],
        ranges: Vec<Range<u64>>,
        visit: Visit,
    ) -> Result<()> {
        let mut outcome = Ok(());
        for range in ranges {
            outcome = self.begin(inputs, range, visit);
            if outcome.is_err() {
                break;
            }
        }
        // Buffers must not go, and slots must be free, before the last read has ended.
        while self.is_waiting() {
            let step = self.complete(inputs, visit);
            outcome = outcome.and(step);
        }
        outcome
    }

    /// Both sides mapped, if that is allowed and can pay, and how many bytes are asked for.
    fn maps<'i>(
        &self,
        inputs: [&'i SideBytes; 2],
        ranges: &[Range<u64>],
    ) -> Option<([&'i Mapped; 2], u64)> {
        let span = ranges.first()?.start..ranges.last()?.end;
        let asked: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if !self.mapped
            || self.warm != [true; 2]
            || asked < RUN as u64
            || asked * DENSE < span.end - span.start
        {
            return None;
        }
        let maps = [inputs[0].mapped()?, inputs[1].mapped()?];
        Some((maps, asked))
    }

    fn begin(&mut self, inputs: [&SideBytes; 2], range: Range<u64>, visit: Visit) -> Result<()> {
        let at = loop {
            match self.free.pop() {
                Some(at) => break at,
                None if self.slots.len() < SLOTS => self.add_slot()?,
                None => self.complete(inputs, visit)?,
            }
        };
        self.slots[at].range = range.clone();
        self.slots[at].waiting = 0;
        for (side, input) in inputs.iter().enumerate() {
            if let Err(error) = self.read(at, side, input, &range) {
                // A read of the first side may be under way; `run` waits for it.
                if self.slots[at].waiting == 0 {
                    self.free.push(at);
                }
                return Err(error);
            }
        }
        match self.slots[at].waiting {
            0 => self.hand_over(at, visit),
            _ => Ok(()),
        }
    }

    fn add_slot(&mut self) -> Result<()> {
        let buffer = || {
            MmapMut::map_anon(RUN + 2 * ALIGN as usize)
                .map_err(|e| Error::io("cannot get memory for reading", e))
        };
        let buffers = [buffer()?, buffer()?];
        self.slots.push(ReadSlot { buffers, skews: [0; 2], range: 0..0, waiting: 0 });
        self.free.push(self.slots.len() - 1);
        Ok(())
    }

    fn hand_over(&mut self, at: usize, visit: Visit) -> Result<()> {
        self.free.push(at);
        let slot = &self.slots[at];
        let len = (slot.range.end - slot.range.start) as usize;
        let part = |side: usize| &slot.buffers[side][slot.skews[side]..][..len];
        visit(slot.range.clone(), part(0), part(1))
    }

    /// Reads one side from the cache, or begins to read it from below.
    fn read(
        &mut self,
        at: usize,
        side: usize,
        input: &SideBytes,
        range: &Range<u64>,
    ) -> Result<()> {
        let len = (range.end - range.start) as usize;
        let Some((file, base)) = input.file else {
            self.slots[at].skews[side] = 0;
            return input.blob.read_at(range.start, &mut self.slots[at].buffers[side][..len]);
        };
        let from = base + range.start;
        let skew = (from % ALIGN) as usize;
        let slot = &mut self.slots[at];
        slot.skews[side] = skew;
        if self.warm[side] && cached(file, from, &mut slot.buffers[side][skew..skew + len]) {
            return Ok(());
        }
        let (fd, from, place) = match &input.direct {
            Some(direct) => (
                direct.as_raw_fd(),
                from - skew as u64,
                0..(skew + len).next_multiple_of(ALIGN as usize),
            ),
            None => (file.as_raw_fd(), from, skew..skew + len),
        };
        let buffer = &mut slot.buffers[side][place];
        let read =
            Read { id: at * 2 + side, fd, from, buffer: buffer.as_mut_ptr(), len: buffer.len() };
        slot.waiting += 1;
        let submitted = match &mut self.engine {
            Some(engine) => engine.submit(read),
            none => none.insert(engine(self.reading, 2 * SLOTS)).submit(read),
        };
        if submitted.is_err() {
            self.slots[at].waiting -= 1;
        }
        submitted
    }

    fn is_waiting(&self) -> bool {
        self.slots.iter().any(|slot| slot.waiting > 0)
    }

    /// Waits for one read: its number, and how many bytes it got. If waiting fails, no read is waited for
    /// any longer.
    fn wait(&mut self) -> Result<(usize, std::io::Result<usize>)> {
        let done = match &mut self.engine {
            Some(engine) => engine.wait(),
            None => Err(Error::usage("a read is waited for that was never begun")),
        };
        match &done {
            Ok((id, _)) => self.slots[id / 2].waiting -= 1,
            Err(_) => self.abandon(),
        }
        done
    }

    /// Gives up all reads under way. Nobody knows when they end, so their buffers are never freed.
    fn abandon(&mut self) {
        self.slots.drain(..).for_each(std::mem::forget);
        self.free.clear();
        self.engine = None;
    }

    /// Waits for one read, and hands its pair over if it was the second.
    fn complete(&mut self, inputs: [&SideBytes; 2], visit: Visit) -> Result<()> {
        let (id, outcome) = self.wait()?;
        let (at, side) = (id / 2, id % 2);
        let slot = &mut self.slots[at];
        let len = (slot.range.end - slot.range.start) as usize;
        let needed = match inputs[side].direct {
            Some(_) => slot.skews[side] + len,
            None => len,
        };
        if !matches!(outcome, Ok(got) if got >= needed) {
            // Some file systems cannot read past the cache, and some reads come back short.
            let (start, skew) = (slot.range.start, slot.skews[side]);
            let retried =
                inputs[side].blob.read_at(start, &mut slot.buffers[side][skew..skew + len]);
            if let Err(error) = retried {
                if slot.waiting == 0 {
                    self.free.push(at);
                }
                return Err(error);
            }
        }
        match self.slots[at].waiting {
            0 => self.hand_over(at, visit),
            _ => Ok(()),
        }
    }
}

impl Drop for Fetcher {
    /// Buffers must not be freed before the last read has ended, even if a visitor panicked.
    fn drop(&mut self) {
        while self.is_waiting() {
            // A read that failed has ended, too; if waiting itself fails, nothing is waited for any more.
            let _ = self.wait();
        }
    }
}

/// Hands pairs over where they lie.
fn look(
    inputs: [&SideBytes; 2],
    maps: [&Mapped; 2],
    ranges: Vec<Range<u64>>,
    visit: Visit,
) -> Result<()> {
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return Ok(()) };
    let span = first.start..last.end;
    maps.iter().for_each(|map| map.ready(span.clone()));
    for range in ranges {
        let outcome =
            visit(range.clone(), maps[0].bytes(range.clone()), maps[1].bytes(range.clone()));
        for (input, map) in inputs.iter().zip(maps) {
            if map.is_torn() {
                // Reading the same tells why; if it can be read by now, it was another file before.
                let len = (range.end - range.start) as usize;
                input.blob.read_at(range.start, &mut vec![0; len])?;
                return Err(
                    Error::damaged("a file changed while it was read").at(input.blob.store())
                );
            }
        }
        outcome?;
    }
    maps.iter().for_each(|map| map.passed(span.end));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Extent;
    use std::io::Write;
    use std::path::Path;
    use std::sync::Arc;

    const SIZE: u64 = 1 << 20;

    fn file(fill: u8) -> File {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..SIZE).map(|i| (i / 1000) as u8 ^ fill).collect();
        file.write_all(&bytes).unwrap();
        file
    }

    fn extent(file: &File) -> Extent {
        let file = Arc::new(file.try_clone().unwrap());
        Extent::new(file, 100, SIZE - 100, Path::new("a file"))
    }

    fn ranges() -> Vec<Range<u64>> {
        let run = RUN as u64;
        (0..(SIZE - 100).div_ceil(run)).map(|i| i * run..(SIZE - 100).min((i + 1) * run)).collect()
    }

    #[test]
    fn mapped_and_copied_bytes_are_the_same() {
        let files = [extent(&file(0)), extent(&file(1))];
        let inputs = files.each_ref().map(|file| SideBytes::new(file));
        let mut fetcher = Fetcher::new(Reading::Ring, true);
        // The first is mapped, the second copied, and then whichever was faster.
        for turn in 0..40 {
            let mut seen = 0;
            let mut visit = |range: Range<u64>, a: &[u8], b: &[u8]| {
                seen += range.end - range.start;
                let right = |i: usize, fill| ((range.start + 100 + i as u64) / 1000) as u8 ^ fill;
                assert!(a.iter().enumerate().all(|(i, byte)| *byte == right(i, 0)), "{turn}");
                assert!(b.iter().enumerate().all(|(i, byte)| *byte == right(i, 1)), "{turn}");
                Ok(())
            };
            fetcher.run([&inputs[0], &inputs[1]], ranges(), [true; 2], &mut visit).unwrap();
            assert_eq!(seen, SIZE - 100);
        }
    }

    /// Reads at once and counts the reads that were not waited for; waiting may fail.
    struct Counting {
        done: Vec<usize>,
        left: Arc<std::sync::atomic::AtomicUsize>,
        fails: bool,
    }

    impl Engine for Counting {
        fn submit(&mut self, read: Read) -> Result<()> {
            self.done.push(read.id);
            self.left.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }

        fn flush(&mut self) {}

        fn wait(&mut self) -> Result<(usize, std::io::Result<usize>)> {
            let id = self.done.pop().filter(|_| !self.fails);
            let id = id.ok_or_else(|| Error::usage("waiting fails"))?;
            self.left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            Ok((id, Ok(RUN + 2 * ALIGN as usize)))
        }
    }

    fn counting(fails: bool) -> (Fetcher, Arc<std::sync::atomic::AtomicUsize>) {
        let left = Arc::<std::sync::atomic::AtomicUsize>::default();
        let mut fetcher = Fetcher::new(Reading::Ring, false);
        fetcher.engine = Some(Box::new(Counting { done: Vec::new(), left: left.clone(), fails }));
        (fetcher, left)
    }

    #[test]
    fn a_visitor_that_panics_leaves_no_read_under_way() {
        let files = [extent(&file(0)), extent(&file(1))];
        let inputs = files.each_ref().map(|file| SideBytes::new(file));
        let (mut fetcher, left) = counting(false);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut visit = |_: Range<u64>, _: &[u8], _: &[u8]| panic!("a visitor panics");
            fetcher.run([&inputs[0], &inputs[1]], ranges(), [false; 2], &mut visit)
        }));
        assert!(run.is_err());
        assert!(left.load(std::sync::atomic::Ordering::Relaxed) > 0);
        drop(fetcher);
        assert_eq!(left.load(std::sync::atomic::Ordering::Relaxed), 0);
    }

    #[test]
    fn waiting_that_fails_is_an_error_and_has_an_end() {
        let files = [extent(&file(0)), extent(&file(1))];
        let inputs = files.each_ref().map(|file| SideBytes::new(file));
        let (mut fetcher, _) = counting(true);
        let mut visit = |_: Range<u64>, _: &[u8], _: &[u8]| Ok(());
        let run = fetcher.run([&inputs[0], &inputs[1]], ranges(), [false; 2], &mut visit);
        assert!(run.unwrap_err().to_string().contains("waiting fails"));
        // The fetcher is as good as new.
        let mut seen = 0;
        let mut visit = |range: Range<u64>, _: &[u8], _: &[u8]| {
            seen += range.end - range.start;
            Ok(())
        };
        fetcher.run([&inputs[0], &inputs[1]], ranges(), [true; 2], &mut visit).unwrap();
        assert_eq!(seen, SIZE - 100);
    }

    #[test]
    fn a_file_that_is_cut_meanwhile_is_an_error_and_not_the_end() {
        for mapped in [true, false] {
            let (whole, cut) = (file(0), file(1));
            let files = [extent(&whole), extent(&cut)];
            let inputs = files.each_ref().map(|file| SideBytes::new(file));
            let mut fetcher = Fetcher::new(Reading::Ring, mapped);
            let mut visit = |_: Range<u64>, _: &[u8], b: &[u8]| {
                cut.set_len(SIZE / 2).unwrap();
                // Compared data is touched.
                std::hint::black_box(b.iter().fold(0, |or, byte| or | byte));
                Ok(())
            };
            let outcome = fetcher.run([&inputs[0], &inputs[1]], ranges(), [true; 2], &mut visit);
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains("became shorter while it was read"), "{mapped}: {error}");
        }
    }
}

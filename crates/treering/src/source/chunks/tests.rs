use super::*;
use crate::array::DType;
use crate::source::anatomy::proved;
use crate::source::found::{FoundArray, Placement};
use crate::store::read_each;
use proptest::prelude::*;
use std::ops::Range;

/// A file in memory that counts what is read of it.
pub(crate) struct CountedFile {
    bytes: Vec<u8>,
    read: AtomicU64,
}

impl Blob for CountedFile {
    fn store(&self) -> &str {
        "a file"
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
        Ok(())
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        false
    }
}

/// An array of one byte for each element, the file that holds it in deflated chunks, and these.
struct Sample {
    values: Vec<u8>,
    file: Arc<CountedFile>,
    chunks: Chunks,
}

impl Sample {
    /// Every `missing`-th chunk was never written.
    fn new(shape: &[u64], chunk: &[u64], missing: u64, limit: u64, window: u64) -> Sample {
        let recipe = ChunkRecipe {
            shape: shape.to_vec(),
            chunk: chunk.to_vec(),
            swap: 0,
            padding: vec![7],
            filters: vec![Filter::Shuffle(1), Filter::Deflate(4)],
        };
        let grid = ChunkGrid::new(shape, chunk, 1);
        let mut values: Vec<u8> =
            (0..shape.iter().product::<u64>()).map(|i| (i * i % 251) as u8).collect();
        let (mut bytes, mut stored) = (b"the head".to_vec(), Vec::new());
        for index in 0..grid.chunks() {
            let is_missing = missing > 0 && index % missing == 1;
            let mut of_chunk = vec![7; grid.chunk_bytes() as usize];
            grid.rows(index, 0, u64::MAX, &mut |array, at, len| {
                let row = &mut values[array as usize..][..len];
                if is_missing {
                    row.fill(7);
                }
                of_chunk[at..at + len].copy_from_slice(row);
                Ok(())
            })
            .unwrap();
            if !is_missing {
                let packed = filter::encode(&recipe, 0, of_chunk);
                let (at, len) = (bytes.len() as u64, packed.len() as u64);
                stored.push(Stored { index, at, len, left_out: 0 });
                bytes.extend(packed);
            }
        }
        bytes.extend(b"the tail");
        let file = Arc::new(CountedFile { bytes, read: AtomicU64::new(0) });
        let whole = Extent::of(file.clone(), "a file");
        let codings = recipe.filters.iter().map(|f| Coding::Known(*f)).collect();
        let cache = Arc::new(Cache { limit, ..Cache::default() });
        let mut chunks = Chunks::new(recipe, codings, stored, &whole, &cache).unwrap();
        chunks.most = window;
        Sample { values, file, chunks }
    }

    fn decoded(&self) -> u64 {
        self.chunks.cache.decoded.load(Ordering::Relaxed)
    }

    /// Most windows that the bands are cut into: a window has at least one byte.
    fn windows(&self, window: u64) -> u64 {
        let band = self.chunks.grid.band_at(0);
        (band.end - band.start).div_ceil(window)
    }
}

type Axes = Vec<(u64, u64)>;

/// Shapes and chunks, of which every n-th is missing; the size of the cache and of the window.
fn arrays() -> impl Strategy<Value = (Axes, u64, u64, u64)> {
    (proptest::collection::vec((1u64..9, 1u64..6), 1..4), 0u64..4, 1u64..400, 1u64..400)
}

fn sample((axes, missing, limit, window): &(Axes, u64, u64, u64)) -> Sample {
    let (shape, chunk): (Vec<u64>, Vec<u64>) = axes.iter().copied().unzip();
    Sample::new(&shape, &chunk, *missing, *limit, *window)
}

proptest! {
    /// An array that is walked from front to back has its values, and every chunk is decoded once for each window
    /// that its band is cut into; once if its band fits.
    #[test]
    fn a_walk_decodes_a_chunk_once_for_each_window(array in arrays(), step in 1usize..50) {
        let sample = sample(&array);
        let (_, _, limit, window) = array;
        let mut walked = vec![0; sample.values.len()];
        for (at, part) in walked.chunks_mut(step).enumerate() {
            sample.chunks.read_at((at * step) as u64, part).unwrap();
        }
        prop_assert_eq!(&walked, &sample.values);
        let stored = sample.chunks.stored.len() as u64;
        let band = sample.chunks.grid.band_at(0);
        if !sample.chunks.in_order() && step as u64 <= band.end - band.start {
            prop_assert_eq!(sample.decoded(), stored, "cache of {}", limit);
        } else if !sample.chunks.in_order() {
            prop_assert!(sample.decoded() <= 2 * stored, "{} {}", sample.decoded(), stored);
        } else if (step as u64) < window {
            let most = stored * sample.windows(window);
            prop_assert!(sample.decoded() <= most, "{} {}", sample.decoded(), most);
        }
    }

    /// Reads anywhere, of many ranges or one, have their values, whatever was read before. Ranges that are read
    /// together decode each chunk once.
    #[test]
    fn any_ranges_have_their_values(
        array in arrays(),
        places in proptest::collection::vec(any::<(u16, u16)>(), 1..8),
    ) {
        let sample = sample(&array);
        let size = sample.values.len() as u64;
        let range = |(a, b): &(u16, u16)| -> Range<u64> {
            let (a, b) = (u64::from(*a) % (size + 1), u64::from(*b) % (size + 1));
            a.min(b)..a.max(b)
        };
        let ranges: Vec<Range<u64>> = places.iter().map(range).collect();
        let right = |range: &Range<u64>| &sample.values[range.start as usize..range.end as usize];
        let room = |range: &Range<u64>| vec![0u8; (range.end - range.start) as usize];
        let mut together: Vec<Vec<u8>> = ranges.iter().map(room).collect();
        let mut reads: Vec<(u64, &mut [u8])> =
            ranges.iter().zip(&mut together).map(|(r, bytes)| (r.start, &mut bytes[..])).collect();
        sample.chunks.read_many(&mut reads).unwrap();
        prop_assert!(sample.decoded() <= sample.chunks.stored.len() as u64);
        for (range, together) in ranges.iter().zip(&together) {
            let mut alone = room(range);
            sample.chunks.read_at(range.start, &mut alone).unwrap();
            prop_assert_eq!((&alone[..], &together[..]), (right(range), right(range)));
        }
    }

    /// A file of chunks comes back from its fields, and its digest is that of its bytes. It is read once for the proof,
    /// and once for its values, which are decoded once; a little more to find out how it was deflated.
    #[test]
    fn a_proof_reads_a_file_once(array in arrays()) {
        // Files of which little was ever written stay as they are.
        let (axes, _, _, window) = array;
        let sample = sample(&(axes, 0, KEPT, window));
        let Sample { values, file, chunks } = sample;
        let (shape, cache) = (chunks.recipe.shape.clone(), chunks.cache.clone());
        let (count, largest) = (chunks.stored.len() as u64, chunks.stored.iter().map(|c| c.len).max());
        let found = FoundArray::new("v", DType::U8, shape, false, Placement::Chunks(Arc::new(chunks)));
        let whole = Extent::of(file.clone(), "a file");
        let (_, built) = proved(&whole, vec![found.unwrap()].into()).unwrap();
        prop_assert_eq!(built.fields.len(), 1);
        prop_assert_eq!(built.skeleton.digest, crate::merkle::digest(&file.bytes));
        let literals = built.skeleton.literals.len() as u64;
        let most = 2 * file.size() + literals + 3 * largest.unwrap_or(0);
        prop_assert!(file.read.load(Ordering::Relaxed) <= most);
        prop_assert!(cache.decoded.load(Ordering::Relaxed) <= count);
        let read = |_: usize, offset: u64, out: &mut [u8]| {
            out.copy_from_slice(&values[offset as usize..][..out.len()]);
            Ok(())
        };
        let mut back = Vec::new();
        built.skeleton.rebuild(&read, &mut back).unwrap();
        prop_assert_eq!(&back, &file.bytes);
    }
}

/// Threads that need the same chunk at the same time decode it once.
#[test]
fn threads_share_what_one_of_them_decodes() {
    let sample = Sample::new(&[40, 30, 30], &[40, 10, 10], 0, KEPT, WINDOW);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let sample = &sample;
            scope.spawn(move || {
                let mut strip = [0; 9000];
                sample.chunks.read_at(thread * 9000, &mut strip).unwrap();
                assert!(strip == sample.values[thread as usize * 9000..][..9000]);
            });
        }
    });
    assert_eq!(sample.decoded(), 9);
}

/// A chunk that cannot be decoded is an error each time, and others are not affected.
#[test]
fn a_damaged_chunk_is_an_error() {
    let Sample { values, file, chunks } = Sample::new(&[4, 20], &[4, 5], 0, KEPT, WINDOW);
    let second = chunks.stored[1];
    let mut bytes = file.bytes.clone();
    bytes[second.at as usize..][..second.len as usize].fill(0xff);
    let whole = Extent::of(Arc::new(CountedFile { bytes, read: AtomicU64::new(0) }), "a file");
    let codings = chunks.recipe.filters.iter().map(|f| Coding::Known(*f)).collect();
    let cache = Arc::default();
    let chunks = Chunks::new(chunks.recipe, codings, chunks.stored, &whole, &cache).unwrap();
    for _ in 0..2 {
        assert!(chunks.read_at(0, &mut [0; 80]).is_err());
        let mut row = [0; 5];
        chunks.read_at(20, &mut row).unwrap();
        assert_eq!(row, values[20..25]);
    }
}

//! The files under each aim on one core, beside zstd at level 3 over all of them.
//!
//! Files come from the page cache, packs go to memory and the state comes back to memory, checked: what
//! is left out is the disk. The unit is processor time, of all threads together.

use super::set::Files;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::sync::Arc;
use treering::testing::VariableEntry;
use treering::{
    Aim, Encoding, Error, Ingest, IngestSettings, Library, MemoryStore, Options, Result,
};

/// The work is done so often, or until it took this many seconds; the shortest time counts.
const TIMES: usize = 5;
const SECONDS: f64 = 3.0;

#[derive(Serialize)]
pub struct Aimed {
    pub name: String,
    pub ratio: f64,
    pub encode_mb_s: f64,
    pub decode_mb_s: f64,
}

pub const AIMS: [(&str, Aim); 3] =
    [("balanced", Aim::Balanced), ("smallest", Aim::Smallest), ("fastest", Aim::Fastest)];

/// All aims, and the other one for comparison; `told` hears of bytes that came through.
pub fn run(
    ranks: &[Files],
    group: usize,
    bytes: usize,
    told: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Aimed>> {
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let alone = alone.map_err(|e| Error::usage(format!("cannot start a thread: {e}")))?;
    alone.install(|| {
        let mut rows = vec![zstd(ranks, bytes)?];
        for (name, aim) in AIMS {
            told((rows.len() * bytes) as u64, ((1 + AIMS.len()) * bytes) as u64);
            rows.push(treering(name, aim, ranks, group, bytes)?);
        }
        Ok(rows)
    })
}

fn treering(name: &str, aim: Aim, ranks: &[Files], group: usize, bytes: usize) -> Result<Aimed> {
    let files: Files = ranks.iter().flatten().cloned().collect();
    let ((store, manifest), encode) = least(|| {
        let store = Arc::new(MemoryStore::new());
        let options = Options::in_store(store.clone(), "packs").encoding(Encoding::Best(aim));
        let settings = IngestSettings { ranks_per_pack: group as u32, ..Default::default() };
        let manifest = Ingest::open(options, settings)?.take(0, &files, &|_, _| {})?;
        Ok((store, manifest))
    })?;
    let stored = manifest.stored_bytes() as usize;
    let library = Library::of(store);
    let (state, decode) = least(|| {
        let checkpoint = library.checkpoint("packs", None)?;
        let all: Vec<&VariableEntry> = checkpoint.entries().iter().collect();
        checkpoint.read_together(&all)
    })?;
    let row = Aimed::new(format!("treering, {name}"), bytes, stored, encode, decode);
    Ok(Aimed { decode_mb_s: state.len() as f64 / decode / 1e6, ..row })
}

fn zstd(ranks: &[Files], bytes: usize) -> Result<Aimed> {
    let failed = |e| Error::io("zstd failed", e);
    let (encoded, encode) = least(|| {
        let mut all = Vec::with_capacity(bytes);
        for file in ranks.iter().flatten() {
            let shown = || format!("cannot read {}", file.path.display());
            all.extend(std::fs::read(&file.path).map_err(|e| Error::io(shown(), e))?);
        }
        zstd::bulk::compress(&all, 3).map_err(failed)
    })?;
    let (_, decode) = least(|| zstd::bulk::decompress(&encoded, bytes).map_err(failed))?;
    Ok(Aimed::new("all files, zstd 3".to_string(), bytes, encoded.len(), encode, decode))
}

impl Aimed {
    fn new(name: String, bytes: usize, stored: usize, encode: f64, decode: f64) -> Aimed {
        let rate = |seconds: f64| bytes as f64 / seconds / 1e6;
        let ratio = bytes as f64 / stored as f64;
        Aimed { name, ratio, encode_mb_s: rate(encode), decode_mb_s: rate(decode) }
    }
}

/// Result of some work, and the least processor time it took.
pub fn least<T>(mut work: impl FnMut() -> Result<T>) -> Result<(T, f64)> {
    let (mut shortest, mut all, mut times) = (f64::INFINITY, 0.0, 0);
    loop {
        let before = processor_time();
        let done = work()?;
        let seconds = processor_time() - before;
        (shortest, all, times) = (shortest.min(seconds), all + seconds, times + 1);
        if times == TIMES || all > SECONDS {
            return Ok((done, shortest.max(1e-9)));
        }
    }
}

fn processor_time() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

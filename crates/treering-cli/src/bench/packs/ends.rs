//! From files to a slow shared store and back: the paper's five configurations, and Treering itself.
//!
//! The five do one step after another, each on all cores, so that each can be timed; Treering reads,
//! encodes and writes at the same time, so only its whole is told, and how long the store was busy.
//! All files are synced, and all come back byte for byte.

use super::aims::AIMS;
use super::passes::{self, DEFLATE, Pass, ZSTD};
use super::schemes::{Kind, Run, Scheme, arrange, gather, scatter};
use super::set::{self, Files, Member};
use super::throttle::ThrottledStore;
use rayon::prelude::*;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use treering::{
    Aim, DirectoryStore, Encoding, Error, Ingest, IngestSettings, Library, Options, Result, Store,
};

/// One configuration. A step that is not told apart is left out.
#[derive(Default, Serialize)]
pub struct End {
    pub name: String,
    pub files: usize,
    pub ratio: f64,
    pub read_s: Option<f64>,
    pub merge_s: Option<f64>,
    pub encode_s: Option<f64>,
    pub write_s: f64,
    pub checkpoint_s: f64,
    /// Number of times that the restart read the stored bytes.
    pub fetched: f64,
    pub fetch_s: f64,
    pub decode_s: Option<f64>,
    pub scatter_s: Option<f64>,
    pub restart_s: f64,
    /// Rates at which the files became durable and came back, as fractions of the store's rate.
    pub checkpoint_of_throttle: f64,
    pub restart_of_throttle: f64,
}

/// Differences between the paper's five.
struct Configuration {
    name: &'static str,
    joined: bool,
    scheme: Scheme,
    pass: Pass,
}

fn configurations(aware: Scheme) -> Vec<Configuration> {
    let whole = Scheme { by_meaning: false, block: None };
    let of = |name, joined, scheme, pass| Configuration { name, joined, scheme, pass };
    vec![
        of("files", false, whole, Pass::Raw),
        of("files", false, whole, Pass::General(DEFLATE)),
        of("files", false, whole, Pass::General(ZSTD)),
        of("joined", true, whole, Pass::Raw),
        of("joined", true, whole, Pass::General(DEFLATE)),
        of("joined", true, whole, Pass::General(ZSTD)),
        of("joined by meaning", true, aware, Pass::Double(DEFLATE)),
        of("joined by meaning", true, aware, Pass::Double(ZSTD)),
    ]
}

/// Input of all configurations.
pub struct Bench<'a> {
    pub ranks: &'a [Files],
    /// Number of ranks that share a pack.
    pub group: usize,
    /// The rate of the store, in bytes a second.
    pub rate: f64,
    pub folder: &'a Path,
    pub bytes: usize,
}

impl Bench<'_> {
    /// All configurations; `aware` is the better of the two schemes by meaning, and `told` hears of
    /// bytes that came through.
    pub fn run(&self, aware: Scheme, told: &dyn Fn(u64, u64)) -> Result<Vec<End>> {
        let mut ends = Vec::new();
        let configurations = configurations(aware);
        let all = ((configurations.len() + AIMS.len()) * self.bytes) as u64;
        for configuration in configurations {
            ends.push(self.in_new_folder(|folder| self.configuration(&configuration, folder))?);
            told((ends.len() * self.bytes) as u64, all);
        }
        for (name, aim) in AIMS {
            ends.push(self.in_new_folder(|folder| self.treering(name, aim, folder))?);
            told((ends.len() * self.bytes) as u64, all);
        }
        Ok(ends)
    }

    fn in_new_folder(&self, work: impl FnOnce(&Path) -> Result<End>) -> Result<End> {
        let folder = tempfile::tempdir_in(self.folder)
            .map_err(|e| Error::io("cannot make a folder for the benchmark", e))?;
        let end = work(folder.path())?;
        set::check(self.ranks, &folder.path().join("back"))?;
        let of_rate = |seconds: f64| self.bytes as f64 / seconds / self.rate;
        Ok(End {
            checkpoint_of_throttle: of_rate(end.checkpoint_s),
            restart_of_throttle: of_rate(end.restart_s),
            ..end
        })
    }

    fn store(&self, folder: &Path) -> ThrottledStore {
        ThrottledStore::new(Arc::new(DirectoryStore::new(folder.join("store"))), self.rate)
    }

    fn configuration(&self, it: &Configuration, folder: &Path) -> Result<End> {
        // Without aggregation every file stays its own.
        let ranks: Vec<Files> = match it.joined {
            true => self.ranks.to_vec(),
            false => self.ranks.iter().flatten().map(|file| vec![file.clone()]).collect(),
        };
        let group = if it.joined { self.group } else { 1 };
        let store = self.store(folder);
        let (members, read) = timed(|| set::load(&ranks, it.scheme.by_meaning))?;
        let (mut merge, mut encode, mut write, mut stored) = (0.0, 0.0, 0.0, 0);
        for (number, members) in members.chunks(group).enumerate() {
            let (runs, seconds) = timed(|| {
                let runs = arrange(it.scheme, members);
                let runs = runs.par_iter().map(|run| (run.kind, gather(run, members)));
                Ok(runs.collect::<Vec<(Kind, Vec<u8>)>>())
            })?;
            merge += seconds;
            let (file, seconds) = timed(|| Ok(passes::write(&passes::encode(it.pass, &runs)?)))?;
            encode += seconds;
            stored += file.len();
            write += timed(|| {
                let mut put = store.put(&format!("{number}"))?;
                file.chunks(1 << 20).try_for_each(|part| put.append(part))?;
                put.finish()
            })?
            .1;
        }
        let end = End {
            name: format!("{}, {}", it.name, it.pass),
            files: ranks.len().div_ceil(group),
            ratio: self.bytes as f64 / stored as f64,
            read_s: Some(read),
            merge_s: Some(merge),
            encode_s: Some(encode),
            write_s: write,
            checkpoint_s: read + merge + encode + write,
            ..End::default()
        };
        restart(it, &ranks, &members, group, &store, folder, end)
    }

    fn treering(&self, name: &str, aim: Aim, folder: &Path) -> Result<End> {
        let store = self.store(folder);
        let files: Files = self.ranks.iter().flatten().cloned().collect();
        let settings = IngestSettings { ranks_per_pack: self.group as u32, ..Default::default() };
        let (manifest, checkpoint) = timed(|| {
            let options = Options::in_store(Arc::new(store.clone()), "packs");
            let options = options.encoding(Encoding::Best(aim));
            Ingest::open(options, settings)?.take(0, &files, &|_, _| {})
        })?;
        let (write, moved) = (store.busy(), store.moved());
        let stored = manifest.stored_bytes();
        let (_, restart) = timed(|| {
            let library = Library::of(Arc::new(store.clone()));
            library.export("packs", None, &[], &folder.join("back"))
        })?;
        Ok(End {
            name: format!("treering, {name}"),
            files: manifest.groups.count() as usize + 1,
            ratio: self.bytes as f64 / stored as f64,
            write_s: write,
            checkpoint_s: checkpoint,
            fetched: (store.moved() - moved) as f64 / stored as f64,
            fetch_s: store.busy() - write,
            restart_s: restart,
            ..End::default()
        })
    }
}

/// Reads all groups again, and writes the files to `back`. Where which bytes lie is known here; in the
/// sizes it is counted by the records of the files.
fn restart(
    it: &Configuration,
    ranks: &[Files],
    members: &[Member],
    group: usize,
    store: &dyn Store,
    folder: &Path,
    end: End,
) -> Result<End> {
    let (mut fetch, mut decode, mut spread) = (0.0, 0.0, 0.0);
    for (number, (members, ranks)) in members.chunks(group).zip(ranks.chunks(group)).enumerate() {
        let runs: Vec<Run> = arrange(it.scheme, members);
        let kinds: Vec<Kind> = runs.iter().map(|run| run.kind).collect();
        let (file, seconds) = timed(|| {
            let blob = store.open(&format!("{number}"))?;
            let mut file = vec![0; blob.size() as usize];
            let parts = file.chunks_mut(1 << 20).enumerate();
            for (at, part) in parts {
                blob.read_at((at << 20) as u64, part)?;
            }
            Ok(file)
        })?;
        fetch += seconds;
        let (bytes, seconds) = timed(|| passes::decode(it.pass, &kinds, &passes::read(&file)?))?;
        decode += seconds;
        spread += timed(|| {
            let parts = |member: &Member| member.iter().map(|p| vec![0; p.bytes.len()]).collect();
            let mut back: Vec<Vec<Vec<u8>>> = members.iter().map(parts).collect();
            runs.iter().zip(&bytes).for_each(|(run, bytes)| scatter(run, bytes, &mut back));
            let (to, by_meaning) = (folder.join("back"), it.scheme.by_meaning);
            let pairs = ranks.par_iter().zip(&back);
            pairs.try_for_each(|(files, parts)| set::give_back(files, parts, by_meaning, &to))
        })?
        .1;
    }
    Ok(End {
        fetched: 1.0,
        fetch_s: fetch,
        decode_s: Some(decode),
        scatter_s: Some(spread),
        restart_s: fetch + decode + spread,
        ..end
    })
}

/// Result of some work, and its seconds.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let done = work()?;
    Ok((done, start.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_gives_the_files_back() {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("files");
        let mut bytes = 0;
        for rank in 0..3 {
            let head = "{'descr': '<f8', 'fortran_order': False, 'shape': (4000,), }";
            let mut file = b"\x93NUMPY\x01\x00".to_vec();
            file.extend((head.len() as u16).to_le_bytes());
            file.extend(head.as_bytes());
            file.extend((0..4000).flat_map(|at| ((at + rank) as f64).sqrt().to_le_bytes()));
            let own = files.join(format!("rank{rank}"));
            std::fs::create_dir_all(&own).unwrap();
            std::fs::write(own.join("heat.npy"), &file).unwrap();
            std::fs::write(own.join("notes.txt"), format!("rank {rank}")).unwrap();
            bytes += file.len() + 6;
        }
        let ranks = set::ranks(&files, None).unwrap();
        assert_eq!(ranks.len(), 3);
        // A last group that is not full.
        let bench = Bench { ranks: &ranks, group: 2, rate: 1e9, folder: folder.path(), bytes };
        let ends = bench.run(Scheme { by_meaning: true, block: Some(1024) }, &|_, _| {}).unwrap();
        let files: Vec<usize> = ends.iter().map(|end| end.files).collect();
        assert_eq!(files, [6, 6, 6, 2, 2, 2, 2, 2, 3, 3, 3]);
        let aims = super::super::aims::run(&ranks, 2, bytes, &|_, _| {}).unwrap();
        for (aim, end) in aims[1..].iter().zip(&ends[8..]) {
            assert_eq!(aim.name, end.name);
            assert!((aim.ratio / end.ratio - 1.0).abs() < 0.01, "{} {}", aim.ratio, end.ratio);
        }
        // Where bytes have no type there is little to gain.
        assert!(ends[7].ratio > 1.1 * ends[5].ratio, "{} {}", ends[7].ratio, ends[5].ratio);
    }
}

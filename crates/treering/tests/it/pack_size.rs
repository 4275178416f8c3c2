//! Ranks that share packs store no more than `ingest` does of the same variables.

use crate::laws::files::npy;
use crate::support::lockless_memory as memory;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use treering::{
    Comm, DType, End, Ingest, IngestSettings, Library, Options, Rank, RankFile, Run, Store,
    ThreadRanks, Variable, VariableMut,
};

const RANKS: u32 = 4;
const STEPS: u64 = 4;

fn rough(i: u64) -> f64 {
    let mut x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ x >> 31) >> 11) as f64 / (1u64 << 53) as f64
}

/// A field of a rank that drifts: smooth in space, with digits that are noise and mostly stay.
pub fn field(rank: u32, number: u64, step: u64, len: u64) -> Vec<f64> {
    let start = u64::from(rank) * len;
    let value = |i: u64| {
        let x = (start + i) as f64 * 1e-3 + number as f64;
        let noise = rough((start + i) ^ number << 40);
        1.5 + 0.3 * x.sin()
            + 0.1 * noise
            + 1e-9 * step as f64 * (x * 0.7).cos()
            + 1e-13 * rough(i ^ step << 30)
    };
    (0..len).map(value).collect()
}

/// The variables of a rank: some fill frames by themselves and some do not; one stays as it is.
fn state(rank: u32, step: u64) -> Vec<(&'static str, Vec<f64>)> {
    vec![
        ("density", field(rank, 1, step, 70_000)),
        ("energy", field(rank, 2, step, 33_000 + 500 * u64::from(rank))),
        ("edge", field(rank, 3, step, 9_000)),
        ("corner", field(rank, 4, step, 1_500)),
        ("grid", field(rank, 5, 0, 10_000)),
    ]
}

/// Saves the steps with ranks that share a pack, restarting before each of `restarts`.
fn save_with_ranks(store: &Arc<dyn Store>, per_pack: u32, restarts: &[u64]) {
    let mut first = 0;
    for end in restarts.iter().copied().chain([STEPS]) {
        let shared = store.clone();
        let ends = ThreadRanks::new(RANKS).run(move |comm: Arc<dyn Comm>| {
            let rank = comm.rank().0;
            let options = Options::in_store(shared.clone(), "r").ranks(comm);
            let options = options.patience(Duration::from_secs(120)).ranks_per_pack(per_pack);
            let mut run = Run::open(options).unwrap();
            if first > 0 {
                let mut back = state(rank, 99);
                let mut targets: Vec<VariableMut> =
                    back.iter_mut().map(|(name, data)| VariableMut::new(name, data)).collect();
                assert_eq!(run.restore(&mut targets).unwrap().unwrap().step, first - 1);
                assert!(back == state(rank, first - 1));
            }
            for step in first..end {
                let own = state(rank, step);
                let own: Vec<Variable> =
                    own.iter().map(|(name, data)| Variable::new(name, data)).collect();
                run.checkpoint(step, &own).unwrap().durable().unwrap();
            }
            run.finish().unwrap();
        });
        assert!(ends.iter().all(|end| *end == End::Done(())), "{ends:?}");
        first = end;
    }
}

/// Ingests the same variables, a file for each.
fn ingest(store: &Arc<dyn Store>, folder: &Path) {
    let options = Options::in_store(store.clone(), "r");
    let mut ingest = Ingest::open(options, IngestSettings::default()).unwrap();
    for step in 0..STEPS {
        let mut files = Vec::new();
        for rank in 0..RANKS {
            for (variable, data) in state(rank, step) {
                let name = format!("{variable}.{rank}.npy");
                let path = folder.join(&name);
                let bytes = npy(
                    DType::F64,
                    &[data.len() as u64],
                    false,
                    false,
                    bytemuck::cast_slice(&data),
                );
                std::fs::write(&path, bytes).unwrap();
                let like = format!("{variable}.npy");
                files.push(RankFile { rank: Rank(rank), path, name, like });
            }
        }
        ingest.take(step, &files, &|_, _| {}).unwrap();
    }
}

/// The bytes of each step in the store.
fn sizes(store: &Arc<dyn Store>) -> Vec<u64> {
    let library = Library::of(store.clone());
    assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
    let (all, _) = library.checkpoints("r").unwrap();
    assert!(all.iter().all(|info| info.epoch == all[0].epoch), "one epoch");
    all.iter().map(|info| info.stored_bytes).collect()
}

/// Every value of every step, as a reader of all ranks sees it.
fn check(store: &Arc<dyn Store>) {
    let library = Library::of(store.clone());
    for step in 0..STEPS {
        let checkpoint = library.checkpoint("r", Some(step)).unwrap();
        for rank in 0..RANKS {
            for (name, data) in state(rank, step) {
                let entry = checkpoint.variable(Rank(rank), name).unwrap();
                let stored = checkpoint.read_together(&[entry]).unwrap();
                assert!(
                    stored == bytemuck::cast_slice::<f64, u8>(&data),
                    "{name} of {rank}@{step}"
                );
            }
        }
    }
}

#[test]
fn ranks_store_no_more_than_ingest_does() {
    let folder = tempfile::tempdir().unwrap();
    let ingested = memory();
    ingest(&ingested, folder.path());
    let ingested = sizes(&ingested);
    let (whole, all) = (ingested[0], ingested.iter().sum::<u64>());
    // The fields are such that differences pay.
    assert!(ingested[1..].iter().all(|size| size * 2 < whole), "{ingested:?}");
    for (per_pack, restarts) in [(32, &[][..]), (2, &[3])] {
        let store = memory();
        save_with_ranks(&store, per_pack, restarts);
        check(&store);
        let sizes = sizes(&store);
        let ratio = sizes.iter().sum::<u64>() as f64 / all as f64;
        assert!(ratio <= 1.02, "{per_pack} ranks a pack: {ratio:.4}, {sizes:?} {ingested:?}");
    }
}

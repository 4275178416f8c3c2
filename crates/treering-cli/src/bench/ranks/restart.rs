//! Bytes that a restart reads: a run of four ranks on other numbers of them, and boxes of an array that eight wrote.

use super::counting::Counter;
use crate::bench::Options;
use crate::output;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use treering::{
    Comm, DirectoryStore, Encoding, End, Error, ErrorKind, Library, Result, Run, Store,
    ThreadRanks, Variable, VariableMut,
};

const WRITERS: u32 = 4;
const READERS: [u32; 6] = [1, 2, 3, 4, 6, 8];
/// The limits of bytes read over bytes stored, or over the bytes of the box.
const READ: f64 = 1.05;
const SLAB: f64 = 1.2;
const CUBE: f64 = 2.5;

/// A restart on this many ranks.
#[derive(Serialize)]
pub struct Readers {
    ranks: u32,
    encoding: &'static str,
    read_of_stored: f64,
    limit: f64,
}

/// A box that one rank reads.
#[derive(Serialize)]
pub struct ReadBox {
    name: &'static str,
    bytes: u64,
    read_of_own: f64,
    limit: f64,
}

pub fn patient(store: Arc<dyn Store>, comm: &Arc<dyn Comm>) -> treering::Options {
    let options = treering::Options::in_store(store, "r").ranks(comm.clone());
    options.patience(Duration::from_secs(3600))
}

/// Runs a program on ranks; the first error of any.
pub fn on_ranks(
    ranks: u32,
    program: impl Fn(Arc<dyn Comm>) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let ends = ThreadRanks::new(ranks).run(program);
    ends.into_iter().try_for_each(|end| match end {
        End::Done(done) => done,
        other => Err(Error::new(ErrorKind::Io, format!("a rank ended badly: {other:?}"))),
    })
}

/// The bytes of the packs of a run.
pub fn pack_bytes(store: &dyn Store) -> Result<u64> {
    Ok(store.list("runs/r/packs")?.iter().map(|item| item.size).sum())
}

/// A smooth field with noise in its lower bits.
fn value(index: u64) -> f64 {
    let noise = (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64;
    (index as f64 * 1e-4).sin() + noise * 1e-9
}

/// Restarts of a run of four ranks.
pub fn readers(options: &Options) -> Result<Vec<Readers>> {
    let elements = options.size / 8;
    let mut rows = Vec::new();
    for (encoding, name) in [(Encoding::Raw, "raw"), (Encoding::default(), "best")] {
        let folder = options.folder()?;
        let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(folder.path()));
        let share = move |rank: u32, ranks: u32| {
            let at = |rank: u32| elements * u64::from(rank) / u64::from(ranks);
            at(rank)..at(rank + 1)
        };
        let shared = store.clone();
        on_ranks(WRITERS, move |comm| {
            let own = share(comm.rank().0, comm.size());
            let mut field: Vec<f64> = own.clone().map(value).collect();
            let mut run = Run::open(patient(shared.clone(), &comm).encoding(encoding))?;
            for step in 0..2 {
                let part = Variable::new("field", &field).part_of(&[elements], &[own.start]);
                let parameters = [step; 4];
                run.checkpoint(step, &[part, Variable::new("step", &parameters).same()])?;
                field.iter_mut().step_by(1000).for_each(|value| *value += 1.0);
            }
            run.finish()
        })?;
        let stored = pack_bytes(store.as_ref())?;
        for ranks in READERS {
            let counter = Counter::default();
            let counted = counter.count(store.clone());
            on_ranks(ranks, move |comm| {
                let own = share(comm.rank().0, comm.size());
                let (mut field, mut step) =
                    (vec![0.0f64; (own.end - own.start) as usize], [0u64; 4]);
                let mut run = Run::open(patient(counted.clone(), &comm))?;
                let part = VariableMut::new("field", &mut field);
                let part = part.part_of(&[elements], &[own.start]);
                run.restore(&mut [part, VariableMut::new("step", &mut step)])?;
                check(own.start, &field, u64::from(step == [1; 4]))
            })?;
            let read_of_stored = counter.take().bytes_read as f64 / stored as f64;
            rows.push(Readers { ranks, encoding: name, read_of_stored, limit: READ });
        }
    }
    Ok(rows)
}

/// Refuses values that are not those of the last checkpoint.
fn check(first: u64, field: &[f64], steps: u64) -> Result<()> {
    let wrong = || Error::damaged("a restart brought back other values");
    if steps != 1 {
        return Err(wrong());
    }
    match (first..)
        .zip(field)
        .step_by(1001)
        .all(|(index, v)| *v == value(index) || *v == value(index) + 1.0)
    {
        true => Ok(()),
        false => Err(wrong()),
    }
}

/// Boxes of a cube that eight ranks have written, two along each axis.
pub fn boxes(options: &Options) -> Result<Vec<ReadBox>> {
    let folder = options.folder()?;
    let side = options.side;
    write_cube(folder.path(), side)?;
    let (eighth, half) = (side / 8, side / 2);
    let boxes = [
        ("slab of an eighth", [eighth, side, side], [half - eighth / 2, 0, 0], SLAB),
        ("slab of one's own", [eighth, side, side], [0, 0, 0], SLAB),
        ("cube that cuts all eight", [half, half, half], [half / 2; 3], CUBE),
    ];
    let row = |(name, extent, offset, limit): (&'static str, [u64; 3], [u64; 3], f64)| {
        let counter = Counter::default();
        let store = counter.count(Arc::new(DirectoryStore::new(folder.path())));
        let checkpoint = Library::of(store).checkpoint("r", None)?;
        let field = checkpoint.read_box::<f64>("field", &offset, &extent)?;
        let first = value((offset[0] * side + offset[1]) * side + offset[2]);
        if field.first() != Some(&first) {
            return Err(Error::damaged("a box of an array came back with other values"));
        }
        let bytes = 8 * field.len() as u64;
        let read_of_own = counter.take().bytes_read as f64 / bytes as f64;
        Ok(ReadBox { name, bytes, read_of_own, limit })
    };
    boxes.into_iter().map(row).collect()
}

fn write_cube(folder: &Path, side: u64) -> Result<()> {
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(folder));
    let half = side / 2;
    on_ranks(8, move |comm| {
        let rank = u64::from(comm.rank().0);
        let corner = [rank / 4, rank / 2 % 2, rank % 2].map(|at| at * half);
        let extent = corner.map(|at| if at == 0 { half } else { side - half });
        let mut field = Vec::with_capacity(extent.iter().product::<u64>() as usize);
        for x in 0..extent[0] {
            for y in 0..extent[1] {
                let row = ((corner[0] + x) * side + corner[1] + y) * side + corner[2];
                field.extend((row..row + extent[2]).map(value));
            }
        }
        // As it is, so that bytes of the array can be compared with bytes of the store.
        let options = patient(store.clone(), &comm).encoding(Encoding::Raw).staging(1 << 30);
        let mut run = Run::open(options)?;
        let part = Variable::new("field", &field).shaped(&extent);
        run.checkpoint(0, &[part.part_of(&[side; 3], &corner)])?;
        run.finish()
    })
}

pub fn show(readers: &[Readers], boxes: &[ReadBox]) {
    output::line(format!(
        "\nA restart of a run of {WRITERS} ranks: bytes read by all ranks over bytes stored."
    ));
    let cells = |row: &Readers| {
        vec![
            row.ranks.to_string(),
            row.encoding.to_string(),
            format!("{:.3}", row.read_of_stored),
            row.limit.to_string(),
        ]
    };
    let header = ["ranks", "encoding", "read of stored", "limit"];
    output::line(output::table(&header, &[1], readers.iter().map(cells)));
    output::line("\nA box of an array that 8 ranks wrote: bytes read over bytes of the box.");
    let cells = |row: &ReadBox| {
        vec![
            row.name.to_string(),
            output::bytes(row.bytes),
            format!("{:.3}", row.read_of_own),
            row.limit.to_string(),
        ]
    };
    let header = ["box", "size", "read of own", "limit"];
    output::line(output::table(&header, &[], boxes.iter().map(cells)));
}

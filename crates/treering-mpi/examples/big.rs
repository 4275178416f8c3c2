//! Arrays beyond the limits of 31 and 32 bits: `mpirun -n 2 big save|check STORE ELEMENTS`, `mpirun -n 3 big replicas
//! COPIES ELEMENTS`.
//!
//! Every rank has an even share of one global array of this many 64-bit numbers, each of which follows from its index.
//! `save` takes a checkpoint of it; `check` restores it, on any number of ranks, and compares every number. With
//! `replicas`, the first rank submits the whole array to the memory of all ranks, and every rank loads its share.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use treering::{
    Comm, Error, ErrorKind, Options, Rank, ReplicaSettings, ReplicaStore, Result, Run, Variable,
    VariableMut,
};
use treering_mpi::MpiRanks;

/// The number at an index: without any order, so that nothing gets smaller on the way.
fn value(index: u64) -> u64 {
    let mixed = (index ^ (index >> 29)).wrapping_add(1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 32)
}

/// Finds the first number that is not what it should be.
fn compare(first: u64, mut numbers: impl Iterator<Item = u64>) -> Result<()> {
    let mut index = first..;
    match numbers.position(|number| index.next().is_none_or(|index| value(index) != number)) {
        Some(at) => {
            let what = format!("the number at index {} is wrong", first + at as u64);
            Err(Error::new(ErrorKind::Damaged, what))
        }
        None => Ok(()),
    }
}

/// One rank's end of a submit of everything by the first rank, and of a load of even shares.
fn replicas(comm: Arc<dyn Comm>, copies: u32, elements: u64, own: Range<u64>) -> Result<()> {
    let settings = ReplicaSettings { block_size: 8, ..ReplicaSettings::default() };
    let first = comm.rank() == Rank(0);
    let mut store = ReplicaStore::new(comm, copies, settings)?;
    let submitted: Vec<u8> = match first {
        true => (0..elements).flat_map(|index| value(index).to_le_bytes()).collect(),
        false => Vec::new(),
    };
    store.submit(1, &submitted, 0)?;
    drop(submitted);
    let loaded = store.load(std::slice::from_ref(&own))?;
    if !loaded.lost.is_empty() {
        return Err(Error::new(ErrorKind::Lost, "some numbers are lost, although nobody has died"));
    }
    compare(own.start, loaded.bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)))
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = || Error::usage("use: big save|check STORE ELEMENTS, big replicas COPIES ELEMENTS");
    let mode = arguments.next().filter(|mode| ["save", "check", "replicas"].contains(&&mode[..]));
    let mode = mode.ok_or_else(usage)?;
    let store = arguments.next().ok_or_else(usage)?;
    let elements: u64 = arguments.next().and_then(|text| text.parse().ok()).ok_or_else(usage)?;
    let mpi = MpiRanks::init()?;
    let comm = mpi.world()?;
    let begin = |rank: u32| elements * u64::from(rank) / u64::from(comm.size());
    let (first, end) = (begin(comm.rank().0), begin(comm.rank().0 + 1));
    if mode == "replicas" {
        let copies = store.parse().map_err(|_| usage())?;
        replicas(comm.clone(), copies, elements, first..end)?;
        println!("{mode}: rank {} of {}, {} bytes", comm.rank(), comm.size(), 8 * (end - first));
        return Ok(());
    }
    let options = Options::directory(&store, "big").ranks(comm.clone());
    let mut run = Run::open(options.patience(Duration::from_secs(600)))?;
    if mode == "save" {
        let numbers: Vec<u64> = (first..end).map(value).collect();
        run.checkpoint(1, &[Variable::new("numbers", &numbers).part_of(&[elements], &[first])])?;
    } else {
        let mut numbers = vec![0u64; (end - first) as usize];
        let state = VariableMut::new("numbers", &mut numbers).part_of(&[elements], &[first]);
        run.restore(&mut [state])?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{store} has no checkpoint; `big save` first"))
        })?;
        compare(first, numbers.into_iter())?;
    }
    run.finish()?;
    println!("{mode}: rank {} of {}, {} bytes", comm.rank(), comm.size(), 8 * (end - first));
    Ok(())
}

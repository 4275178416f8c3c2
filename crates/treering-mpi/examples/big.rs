//! Arrays beyond the limits of 31 and 32 bits: `mpirun -n 2 big save|check STORE ELEMENTS`.
//!
//! Every rank has an even share of one global array of so many 64-bit numbers, each of which follows from its index.
//! `save` takes a checkpoint of it; `check` restores it, on any number of ranks, and compares every number.

use std::time::Duration;
use treering::{Error, ErrorKind, Options, Result, Run, Variable, VariableMut};
use treering_mpi::MpiRanks;

/// The number at an index: without any order, so that nothing gets smaller on the way.
fn value(index: u64) -> u64 {
    let mixed = (index ^ (index >> 29)).wrapping_add(1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 32)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = || Error::usage("use: big save|check STORE ELEMENTS");
    let mode =
        arguments.next().filter(|mode| mode == "save" || mode == "check").ok_or_else(usage)?;
    let store = arguments.next().ok_or_else(usage)?;
    let elements: u64 = arguments.next().and_then(|text| text.parse().ok()).ok_or_else(usage)?;
    let mpi = MpiRanks::init()?;
    let comm = mpi.world()?;
    let begin = |rank: u32| elements * u64::from(rank) / u64::from(comm.size());
    let (first, end) = (begin(comm.rank().0), begin(comm.rank().0 + 1));
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
        if let Some(at) = (first..end).zip(&numbers).position(|(index, n)| value(index) != *n) {
            let what = format!("the number at index {} is wrong", first + at as u64);
            return Err(Error::new(ErrorKind::Damaged, what));
        }
    }
    run.finish()?;
    println!("{mode}: rank {} of {}, {} bytes", comm.rank(), comm.size(), 8 * (end - first));
    Ok(())
}

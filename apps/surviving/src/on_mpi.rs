//! Programs on the ranks of MPI.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use treering::{Comm, Result};
use treering_mpi::MpiRanks;

/// Starts MPI and runs a program on all ranks of the job. An error ends the process with code 2, and is printed after the
/// name of the program by one of the ranks that have it.
pub fn on_mpi(name: &str, program: impl FnOnce(Arc<dyn Comm>) -> Result<()>) {
    if let Err(error) = started(program) {
        // An error that all ranks return is printed by one of them.
        if !error.is_repeated() {
            eprintln!("{name}: {error}");
        }
        // MPI is not ended: after the death of a rank that may wait for ever.
        std::process::exit(2);
    }
}

fn started(program: impl FnOnce(Arc<dyn Comm>) -> Result<()>) -> Result<()> {
    let mpi = ManuallyDrop::new(MpiRanks::init()?);
    program(mpi.world()?)?;
    drop(ManuallyDrop::into_inner(mpi));
    Ok(())
}

//! Data in the memory of other ranks: `mpirun --with-ft ulfm -n 4 replicas [VICTIM...]`.
//!
//! Every rank submits 4 MiB, of which three ranks keep copies, twice. Then each VICTIM kills itself (SIGKILL), one after
//! another. The survivors go on with fewer ranks, load what the dead ones had submitted and compare it with what it should
//! be, and make the lost copies again, so that the next death is survived, too.

use rustix::process::Signal;
use std::process::ExitCode;
use treering::{Error, ErrorKind, Rank, ReplicaSettings, ReplicaStore, Result};
use treering_mpi::MpiRanks;

const BYTES: u64 = 4 << 20;
const BLOCK: u64 = 64;
const COPIES: u32 = 3;

/// The bytes that a rank submits as a step.
fn data(rank: u64, step: u64) -> Vec<u8> {
    let value = |at: u64| (rank * BYTES + at).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ step;
    (0..BYTES / 8).flat_map(|at| value(at * 8).to_le_bytes()).collect()
}

fn main() -> ExitCode {
    match replicas() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("replicas: {error}");
            ExitCode::FAILURE
        }
    }
}

fn replicas() -> Result<()> {
    let mpi = MpiRanks::init()?;
    let mut comm = mpi.world()?;
    let (own, all) = (u64::from(comm.rank().0), comm.size());
    let settings = ReplicaSettings { block_size: BLOCK, ..ReplicaSettings::default() };
    let mut store = ReplicaStore::new(comm.clone(), COPIES, settings)?;
    for step in 1..3 {
        store.submit(step, &data(own, step), own * BYTES / BLOCK)?;
    }
    let victims = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    for victim in victims {
        if own == victim {
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
        }
        // The next call notices the death, if it was not noticed before.
        let mut dead = Vec::new();
        let mut done = store.settle();
        while done.as_ref().is_err_and(Error::is_death) {
            comm.revoke()?;
            comm = comm.shrink()?;
            done = store.go_on_with(comm.clone()).map(|survived| dead.extend(survived.dead));
        }
        done?;
        let expected = dead.iter().any(|rank| u64::from(rank.0) == victim);
        if !expected || store.newest().is_none_or(|newest| newest.tag != 2) {
            return Err(Error::new(ErrorKind::Lost, format!("{dead:?} died instead of {victim}")));
        }
        // Every survivor loads a part of what the dead rank had.
        let blocks = BYTES / BLOCK;
        let share = |rank: u32| victim * blocks + blocks * u64::from(rank) / u64::from(comm.size());
        let part = share(comm.rank().0)..share(comm.rank().0 + 1);
        let loaded = store.load(std::slice::from_ref(&part))?;
        let first = ((part.start - victim * blocks) * BLOCK) as usize;
        if !loaded.lost.is_empty() || loaded.bytes != data(victim, 2)[first..][..loaded.bytes.len()]
        {
            return Err(Error::damaged(format!("other bytes of rank {victim} came back")));
        }
        let remade = store.remake()?;
        if !remade.lost.is_empty() || !store.scrub()?.lost.is_empty() {
            return Err(Error::new(ErrorKind::Lost, "some blocks are lost"));
        }
    }
    if comm.rank() == Rank(0) {
        println!("{} of {all} ranks have everything", comm.size());
    }
    // Ranks that end at different moments must not take each other for dead.
    comm.agree(true)?;
    Ok(())
}

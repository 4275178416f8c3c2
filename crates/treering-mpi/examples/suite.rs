//! Holds this crate to the law of communicators, on the MPI that is there: `mpirun -n 4 suite`. With `kill`, a
//! rank is killed in the middle and the survivors go on.

use treering::testing::comm_suite;
use treering::{Comm, ErrorKind, Rank, Reduction};
use treering_mpi::MpiRanks;

fn main() -> treering::Result<()> {
    // First with messages that travel in pieces.
    let ranks = MpiRanks::init()?.pieces(1 << 16)?;
    comm_suite(&*ranks.world()?);
    let ranks = ranks.pieces(1 << 29)?;
    let world = ranks.world()?;
    comm_suite(&*world);
    let mode = std::env::args().nth(1).unwrap_or_default();
    if mode == "kill" {
        assert!(ranks.survives(), "this MPI does not survive deaths");
        kill(&*world, Rank(world.size() - 1));
        return Ok(());
    }
    if world.rank() == Rank(0) {
        println!("{} ranks hold to the law; survives: {}", world.size(), ranks.survives());
    }
    Ok(())
}

/// One rank dies; the others notice, agree, shrink and go on.
fn kill(world: &dyn Comm, victim: Rank) {
    if world.rank() == victim {
        std::process::abort();
    }
    let failed = loop {
        match world.reduce(Reduction::Sum, &mut [1]) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(failed.kind(), ErrorKind::Dead | ErrorKind::Revoked), "{failed}");
    world.revoke().unwrap();
    assert_eq!(world.gather(Rank(0), b"x").unwrap_err().kind(), ErrorKind::Revoked);
    assert!(world.agree(true).unwrap());
    assert_eq!(world.dead().unwrap(), [victim]);
    let smaller = world.shrink().unwrap();
    assert_eq!(smaller.size(), world.size() - 1);
    comm_suite(&*smaller);
    if smaller.rank() == Rank(0) {
        println!("{} survivors of {} went on", smaller.size(), world.size());
    }
}

//! Holds this crate to the law of communicators, on the MPI that is there: `mpirun -n 4 suite`. Three ranks or more also
//! survive a simulated death. With `kill`, a rank is killed in the middle and the survivors go on.

use std::sync::Arc;
use treering::testing::comm_suite;
use treering::{
    Comm, Crew, ErrorKind, Level, Options, Pace, Rank, Reduction, Restored, Result,
    SimulatedDeaths, Steps, Variable, VariableMut, survive,
};
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
    if world.size() > 2 {
        simulate(ranks.world()?, &*world)?;
    }
    if world.rank() == Rank(0) {
        println!("{} ranks hold to the law; survives: {}", world.size(), ranks.survives());
    }
    Ok(())
}

/// Counts in 100 cells; one rank dies in the fourth step, and the others go on from the second.
struct Counting {
    cells: Vec<u64>,
    first: u64,
    deaths: SimulatedDeaths,
    restored: Vec<(u64, Level)>,
}

impl Steps for Counting {
    fn begin(&mut self, crew: &Crew) -> Result<()> {
        let share = crew.share(100);
        self.first = share.start;
        self.cells = share.map(|cell| cell * 1000).collect();
        Ok(())
    }

    fn state(&self) -> Vec<Variable<'_>> {
        vec![Variable::new("cells", &self.cells).part_of(&[100], &[self.first])]
    }

    fn arrays(&mut self) -> Vec<VariableMut<'_>> {
        vec![VariableMut::new("cells", &mut self.cells).part_of(&[100], &[self.first])]
    }

    fn resumed(&mut self, _: &Crew, restored: Option<&Restored>) -> Result<()> {
        self.restored.extend(restored.map(|restored| (restored.step, restored.level)));
        Ok(())
    }

    fn is_done(&self, step: u64) -> bool {
        step == 6
    }

    fn step(&mut self, crew: &Crew, step: u64) -> Result<()> {
        if step == 4 && crew.recoveries() == 0 {
            self.deaths.kill(&[Rank(1)])?;
        }
        crew.comm().reduce(Reduction::Sum, &mut [1])?;
        self.cells.iter_mut().for_each(|cell| *cell += step);
        Ok(())
    }
}

/// Also an MPI that does not survive deaths survives one that is simulated.
fn simulate(world: Arc<dyn Comm>, all: &dyn Comm) -> Result<()> {
    let mut name = std::process::id().to_string().into_bytes();
    all.broadcast(Rank(0), &mut name)?;
    let store = format!("treering-suite-{}", String::from_utf8_lossy(&name));
    let store = std::env::temp_dir().join(store);
    let (deaths, mortal) = SimulatedDeaths::on(world.clone());
    let options = Options::directory(&store, "cells").ranks(mortal).replicas(2);
    let mut program = Counting { cells: Vec::new(), first: 0, deaths, restored: Vec::new() };
    let survival = survive(options, Pace { replicas: 2, checkpoints: 0 }, &mut program);
    match survival {
        Err(error) => assert!(world.rank() == Rank(1) && error.is_death(), "{error}"),
        Ok(survival) => {
            assert!(world.rank() != Rank(1) && survival.recoveries[0].ranks == world.size() - 1);
            assert_eq!(program.restored, [(2, Level::Memory)]);
            let expected = (program.first..).map(|cell| cell * 1000 + 21);
            assert!(program.cells.iter().copied().eq(expected.take(program.cells.len())));
        }
    }
    // Those that count as dead live on here.
    all.reduce(Reduction::Sum, &mut [0])?;
    if world.rank() == Rank(0) {
        let _ = std::fs::remove_dir_all(store);
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
    assert!(failed.is_death(), "{failed}");
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

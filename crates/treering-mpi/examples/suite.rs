//! Holds this crate to the law of communicators, on the MPI that is there: `mpirun -n 4 suite`. Three ranks or more also
//! survive a simulated death, and one that is none: a rank that is stopped (SIGSTOP) and counts as dead, and wakes up when the
//! others have gone on, is refused and leaves their checkpoints alone. With `kill`, a rank is killed in the middle and the survivors go on.

use rustix::process::{Pid, Signal, getpid, kill_process};
use std::sync::Arc;
use treering::testing::comm_suite;
use treering::{
    Comm, Crew, ErrorKind, Level, Library, Options, Pace, Rank, Reduction, Restored, Result,
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
        suspect(ranks.world()?, &*world)?;
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
    /// The group of this rank if groups take each other for dead; the ranks of group 1 are stopped.
    group: Option<u32>,
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
            match self.group {
                None => drop(self.deaths.kill(&[Rank(1)])?),
                Some(group) => self.deaths.separate(group)?,
            }
            if self.group == Some(1) {
                kill_process(getpid(), Signal::STOP).unwrap();
            }
        }
        crew.comm().reduce(Reduction::Sum, &mut [1])?;
        self.cells.iter_mut().for_each(|cell| *cell += step);
        Ok(())
    }
}

impl Counting {
    fn check(&self) {
        let expected = (self.first..).map(|cell| cell * 1000 + 21);
        assert!(self.cells.iter().copied().eq(expected.take(self.cells.len())));
    }
}

/// A folder that all ranks know.
fn store(all: &dyn Comm, purpose: &str) -> Result<std::path::PathBuf> {
    let mut name = std::process::id().to_string().into_bytes();
    all.broadcast(Rank(0), &mut name)?;
    let name = format!("treering-suite-{purpose}-{}", String::from_utf8_lossy(&name));
    Ok(std::env::temp_dir().join(name))
}

/// The last rank is stopped, and the others take it for dead and go on. When they have come to the end it wakes up, takes
/// them for dead, and is refused.
fn suspect(world: Arc<dyn Comm>, all: &dyn Comm) -> Result<()> {
    let store = store(all, "suspicion")?;
    let last = Rank(world.size() - 1);
    let stopped = world.rank() == last;
    let pids = all.gather(Rank(0), &std::process::id().to_le_bytes())?;
    let (deaths, mortal) = SimulatedDeaths::on(world.clone());
    let options = Options::directory(&store, "cells").ranks(mortal).replicas(2);
    let group = Some(u32::from(stopped));
    let mut program = Counting { cells: Vec::new(), first: 0, deaths, group, restored: Vec::new() };
    let survival = survive(options, Pace { replicas: 2, checkpoints: 3 }, &mut program);
    if world.rank() == Rank(0) {
        let pid = u32::from_le_bytes(pids[last.0 as usize][..].try_into().unwrap());
        // It may be on its way to be stopped.
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while !state().contains(") T ") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::CONT).unwrap();
    }
    match survival {
        Err(error) => assert!(stopped && error.kind() == ErrorKind::Busy, "{error}"),
        Ok(survival) => {
            assert!(!stopped && survival.recoveries[0].ranks == world.size() - 1);
            assert_eq!(program.restored, [(3, Level::Memory)]);
            program.check();
        }
    }
    all.reduce(Reduction::Sum, &mut [0])?;
    if world.rank() == Rank(0) {
        let library = Library::open(&store)?;
        let (found, trouble) = library.checkpoints("cells")?;
        assert!(trouble.is_empty() && found.iter().map(|info| info.step).eq([3, 6]), "{found:?}");
        assert!(library.verify(None, true, &|_, _| {})?.is_sound());
        let _ = std::fs::remove_dir_all(store);
    }
    Ok(())
}

/// Also an MPI that does not survive deaths survives one that is simulated.
fn simulate(world: Arc<dyn Comm>, all: &dyn Comm) -> Result<()> {
    let store = store(all, "death")?;
    let (deaths, mortal) = SimulatedDeaths::on(world.clone());
    let options = Options::directory(&store, "cells").ranks(mortal).replicas(2);
    let mut program =
        Counting { cells: Vec::new(), first: 0, deaths, group: None, restored: Vec::new() };
    let survival = survive(options, Pace { replicas: 2, checkpoints: 0 }, &mut program);
    match survival {
        Err(error) => assert!(world.rank() == Rank(1) && error.is_death(), "{error}"),
        Ok(survival) => {
            assert!(world.rank() != Rank(1) && survival.recoveries[0].ranks == world.size() - 1);
            assert_eq!(program.restored, [(2, Level::Memory)]);
            program.check();
        }
    }
    // Ranks that count as dead live on here.
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

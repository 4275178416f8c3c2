//! Going on: a program made of steps that survives the death of ranks.
//!
//! [`survive`] forms a crew of the ranks that work, and leaves the others to wait as spares. The crew opens the run,
//! restores the newest state and works step by step; states go to the memory of ranks and to stores as it goes. When
//! somebody has died, all processes end what they are doing, shrink the communicator of all, and form a crew again:
//! spares take the places of the dead as long as there are some, then the crew is smaller. Everything that a recovery does
//! can be done again, so a death meanwhile is only the next reason to begin it anew.
//!
//! Laws: who sits where is a pure function ([`seats`]) of what all processes tell, and counts when all that live have
//! agreed. On the communicator of all, every process agrees when the crew is formed and when it ends, whatever has
//! happened, and shrinks only if one of these agreements says so: so no agreement of one process meets the shrinking of
//! another. Nobody leaves before all have come to the end.

mod keeping;
mod seats;

use crate::array::{Rank, Variable, VariableMut};
use crate::comm::{Comm, died, garbled, wire};
use crate::error::{Error, ErrorKind, Result};
use crate::points::reach;
use crate::restore::share_all;
use crate::run::{Due, Options, Requests, Restored, Run};
use crate::save::{Level, Save};
use keeping::{KeptAs, keeping};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The message that a spare gets when the work is done.
const DONE: &[u8] = b"done";

/// The messages of a spare whose process was asked by a signal for a checkpoint, or for the last one.
const REQUESTS: [(&[u8], Due); 2] =
    [(b"checkpoint", Due::Checkpoint), (b"last checkpoint", Due::Last)];

/// Role of a rank: worker, survivor or spare. [`survive`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The rank works from the beginning.
    Initial,
    /// The rank worked before a death.
    Survivor,
    /// The rank was a spare and has taken the place of a rank that died.
    Replacement,
    /// The rank waits for a place.
    Spare,
}

/// The ranks that work together, as one of them sees them. [`survive`] has an example.
pub struct Crew {
    comm: Arc<dyn Comm>,
    role: Role,
    recoveries: u32,
}

impl Crew {
    /// The communicator of the crew. Programs with communicators of their own derive them from it in
    /// [`Steps::begin`].
    pub fn comm(&self) -> &Arc<dyn Comm> {
        &self.comm
    }

    /// Role of this rank.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Number of recoveries of the crew so far, the one under way included; the same on all ranks.
    pub fn recoveries(&self) -> u32 {
        self.recoveries
    }

    /// The range of `len` elements that this rank has if they are split evenly, in the order of ranks.
    pub fn share(&self, len: u64) -> Range<u64> {
        let (rank, ranks) = (u128::from(self.comm.rank().0), u128::from(self.comm.size()));
        let at = |rank: u128| (u128::from(len) * rank / ranks) as u64;
        at(rank)..at(rank + 1)
    }
}

/// A program made of steps. [`survive`] has an example.
///
/// Ranks that survive a death call [`begin`](Steps::begin) again with the ranks that are left, so everything that depends
/// on the number of ranks belongs there. An error of kind `Dead` or `Revoked`, from any call, lets [`survive`] continue
/// with the others; any other error ends the program on all ranks.
pub trait Steps {
    /// Prepares the initial state for this crew: divides the data, makes room, makes communicators. The state that a restore
    /// finds replaces it.
    fn begin(&mut self, crew: &Crew) -> Result<()>;

    /// The state, to be saved.
    fn state(&self) -> Vec<Variable<'_>>;

    /// The arrays of the state, to be filled.
    fn arrays(&mut self) -> Vec<VariableMut<'_>>;

    /// Called when the arrays have been filled, or no state was found: the place to balance data that was split evenly.
    fn resumed(&mut self, crew: &Crew, restored: Option<&Restored>) -> Result<()> {
        let _ = (crew, restored);
        Ok(())
    }

    /// Whether `step` was the last one; the same on all ranks.
    fn is_done(&self, step: u64) -> bool;

    /// One step, from 1 on.
    fn step(&mut self, crew: &Crew, step: u64) -> Result<()>;

    /// Called after the last step, before any rank leaves; called again if a rank dies meanwhile.
    fn end(&mut self, crew: &Crew, step: u64) -> Result<()> {
        let _ = (crew, step);
        Ok(())
    }
}

/// Intervals at which states are kept. A checkpoint is also taken when one is due by [`Options::every`],
/// [`Options::deadline`] or [`Options::on_signals`]. [`survive`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Steps from one state in the memory of ranks to the next, with [`Options::replicas`]; 0: only checkpoints and the
    /// state at the start.
    pub replicas: u64,
    /// Steps from one checkpoint to the next; 0: none, but for those that are due by the options. Unless this is 0 and
    /// there is no [`Options::every`], the last step is one, too, in the shared store.
    pub checkpoints: u64,
}

/// A recovery after deaths: one of [`Survival::recoveries`]. [`survive`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The ranks of the crew after it.
    pub ranks: u32,
    /// The step from which the crew went on, and where its state was; `None`: from the beginning.
    pub from: Option<(u64, Level)>,
    /// The time from noticing the death to the next step.
    pub time: Duration,
}

/// Result of [`survive`], which has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survival {
    /// The last role of this rank.
    pub role: Role,
    /// The last step.
    pub step: u64,
    /// Whether the program stopped before its end: its deadline is near ([`Options::deadline`]), or it was asked to, by
    /// SIGTERM ([`Options::on_signals`]) or `treering halt`. The state of the last step is in the shared store then, and the
    /// same program continues from it. The same on all ranks, but for spares.
    pub halted: bool,
    /// Recoveries of this rank.
    pub recoveries: Vec<Recovery>,
    /// The time that this rank has spent in saving and restoring states.
    pub saving: Duration,
    /// Notes for people.
    pub notes: Vec<String>,
}

/// Runs a program to its end on all ranks of [`Options::ranks`], of which the last [`Options::spares`] wait. When a
/// rank dies, the others continue. Collective. Needs an MPI with ULFM (`mpirun --with-ft ulfm`) to survive deaths;
/// without, it works, and a death ends the job.
///
/// After each step the ranks agree on whether a checkpoint is due, as by [`Run::due`]: at its [`Pace`], by
/// [`Options::every`], by a deadline or by signals. If it is the last one, it goes to the shared store, and all ranks stop as
/// soon as it is durable ([`Survival::halted`]). SIGTERM may go to any process, spares included.
///
/// ```
/// use treering::{
///     Crew, MemoryStore, Options, Pace, Result, Role, Steps, ThreadRanks, Variable, VariableMut, survive,
/// };
/// # use std::sync::Arc;
///
/// /// Adds 1 to each of 1000 cells, 20 times.
/// struct Cells { own: Vec<f64>, first: u64 }
///
/// impl Steps for Cells {
///     fn begin(&mut self, crew: &Crew) -> Result<()> {
///         let share = crew.share(1000);
///         (self.own, self.first) = (vec![0.0; (share.end - share.start) as usize], share.start);
///         Ok(())
///     }
///     fn state(&self) -> Vec<Variable<'_>> {
///         vec![Variable::new("cells", &self.own).part_of(&[1000], &[self.first])]
///     }
///     fn arrays(&mut self) -> Vec<VariableMut<'_>> {
///         vec![VariableMut::new("cells", &mut self.own).part_of(&[1000], &[self.first])]
///     }
///     fn is_done(&self, step: u64) -> bool {
///         step == 20
///     }
///     fn step(&mut self, _: &Crew, _: u64) -> Result<()> {
///         self.own.iter_mut().for_each(|cell| *cell += 1.0);
///         Ok(())
///     }
/// }
///
/// let store: Arc<dyn treering::Store> = Arc::new(MemoryStore::new());
/// ThreadRanks::new(4).run(move |comm| {
///     // Two copies of every fifth state are in the memory of other ranks; every tenth goes to the store.
///     let options = Options::in_store(store.clone(), "cells").ranks(comm).replicas(2);
///     let mut cells = Cells { own: Vec::new(), first: 0 };
///     let survival = survive(options, Pace { replicas: 5, checkpoints: 10 }, &mut cells).unwrap();
///     assert!(survival.step == 20 && cells.own.iter().all(|cell| *cell == 20.0));
///     assert!(survival.role == Role::Initial && survival.recoveries.is_empty()); // nobody has died
/// })
/// # .into_iter().for_each(|end| end.done().unwrap());
/// ```
pub fn survive(options: Options, pace: Pace, program: &mut impl Steps) -> Result<Survival> {
    let requests = options.signals.then(Requests::listen).transpose()?;
    let asked = move || requests.as_ref().map_or(Due::No, Requests::take);
    let mut process = Process::new(options, pace, Box::new(asked))?;
    process.live(program)?;
    process.leave()
}

/// A process of the job.
struct Process {
    options: Options,
    pace: Pace,
    /// What signals of this process have asked for since the last look. A run listens as well; this is for spares, and
    /// outlives a run that could not be opened.
    asked: Box<dyn Fn() -> Due>,
    /// All processes that live.
    world: Arc<dyn Comm>,
    /// The seats of the crew.
    size: u32,
    seat: Option<u32>,
    /// The recoveries of the next crew, as far as this process knows: one more than those of the last crew that it has
    /// resumed in; 0 if it never has.
    recoveries: u32,
    run: Option<Run>,
    /// An error of this rank's program, which ends it for all.
    failed: Option<Error>,
    /// When a death was noticed.
    noticed: Option<Instant>,
    survival: Survival,
}

/// The announcement of a process when a crew is formed.
struct Applicant {
    seat: Option<u32>,
    has_run: bool,
    recoveries: u32,
    /// The error of its program, and whether another process has it as its own.
    failed: Option<(Vec<u8>, bool)>,
}

wire! { struct Applicant { seat, has_run, recoveries, failed } }

/// Result of forming a crew.
enum Assembly {
    Crew(Formed),
    /// The program of a rank has failed.
    Failed(Error),
}

/// A crew, from outside.
struct Formed {
    seat: Option<u32>,
    size: u32,
    comm: Arc<dyn Comm>,
    /// Whether some member has the run already.
    goes_on: bool,
    recoveries: u32,
    /// The first rank of the crew, by its rank in the world.
    first: Rank,
    /// The spares, by their ranks in the world.
    spares: Vec<Rank>,
}

impl Process {
    fn new(options: Options, pace: Pace, asked: Box<dyn Fn() -> Due>) -> Result<Process> {
        let world = options.ranks.clone().ok_or_else(|| {
            Error::usage("a program needs ranks to survive their deaths")
                .hint("give Options::ranks")
        })?;
        let (ranks, spares) = (world.size(), options.spares);
        if spares >= ranks {
            return Err(Error::usage(format!("{spares} of {ranks} ranks cannot be spares"))
                .hint("at least one rank must work"));
        }
        let seat = Some(world.rank().0).filter(|rank| *rank < ranks - spares);
        Ok(Process {
            options,
            pace,
            asked,
            world,
            size: ranks - spares,
            seat,
            recoveries: 0,
            run: None,
            failed: None,
            noticed: None,
            survival: Survival {
                role: if seat.is_some() { Role::Initial } else { Role::Spare },
                step: 0,
                halted: false,
                recoveries: Vec::new(),
                saving: Duration::ZERO,
                notes: Vec::new(),
            },
        })
    }

    /// Forms crews and works until all have come to the end.
    fn live(&mut self, program: &mut impl Steps) -> Result<()> {
        loop {
            let assembly = self.assemble();
            let well = self.world.agree(assembly.is_ok());
            match (assembly, &well) {
                (Ok(Assembly::Failed(error)), Ok(true)) => return Err(error),
                (Ok(Assembly::Crew(formed)), Ok(true)) => {
                    reach("crew-formed");
                    let worked = self.take_part(program, formed);
                    let ended = self.world.agree(worked.is_ok());
                    self.note(worked);
                    if self.or_failed(ended)? {
                        return Ok(());
                    }
                }
                (assembly, _) => {
                    self.note(assembly.map(drop));
                    self.or_failed(well)?;
                }
            }
            // A process that has not noticed ends its work now.
            let _ = self.world.revoke();
            reach("crew-revoked");
            self.world = self.or_failed(self.world.shrink())?;
            reach("crew-shrunk");
        }
    }

    /// Where ranks cannot go on together, an error of this rank's own program is what its user wants to know.
    fn or_failed<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| self.failed.clone().unwrap_or(error))
    }

    /// Remembers why a crew has ended. A death is a reason to go on, everything else ends the program.
    fn note(&mut self, worked: Result<()>) {
        self.noticed.get_or_insert_with(Instant::now);
        self.failed = worked.err().filter(|error| !error.is_death()).or(self.failed.take());
    }

    /// Finds a seat in the next crew; collective. Nothing counts before all have agreed.
    fn assemble(&self) -> Result<Assembly> {
        let own = Applicant {
            seat: self.seat,
            has_run: self.run.is_some(),
            recoveries: self.recoveries,
            failed: self.failed.as_ref().map(|error| (error.write(), error.is_repeated())),
        };
        let all: Vec<Applicant> = share_all(&*self.world, &own)?;
        if let Some((first, failed)) = first_failure(&all) {
            // An error that several ranks return is the own error of one of them.
            let error = match &self.failed {
                Some(own) if first == self.world.rank() => own.clone().own(),
                Some(own) if !own.is_repeated() && own.write() != failed => own.clone(),
                _ => Error::read(failed),
            };
            return Ok(Assembly::Failed(error));
        }
        let told: Vec<Option<u32>> = all.iter().map(|applicant| applicant.seat).collect();
        let seats = seats::assign(&told, self.size);
        let seat = *seats.get(self.world.rank().0 as usize).ok_or_else(garbled)?;
        let comm = self.world.split(u32::from(seat.is_none()), seat.unwrap_or(0))?;
        let members = all.iter().zip(&seats).filter(|(_, seat)| seat.is_some());
        let has_run: Vec<bool> = members.map(|(applicant, _)| applicant.has_run).collect();
        let ranks = || (0..).map(Rank).zip(&seats);
        let first = ranks().filter_map(|(rank, seat)| seat.map(|seat| (seat, rank))).min();
        let (_, first) = first.ok_or_else(garbled)?;
        let spares = ranks().filter(|(_, seat)| seat.is_none());
        Ok(Assembly::Crew(Formed {
            seat,
            size: has_run.len() as u32,
            comm,
            goes_on: has_run.contains(&true),
            // Some may have resumed in a crew that others have not.
            recoveries: all.iter().map(|applicant| applicant.recoveries).max().unwrap_or(0),
            first,
            spares: spares.map(|(rank, _)| rank).collect(),
        }))
    }

    /// Works in the crew, or waits as a spare, to the end. A failure ends it for all others, too.
    fn take_part(&mut self, program: &mut impl Steps, formed: Formed) -> Result<()> {
        (self.seat, self.size) = (formed.seat, formed.size);
        let comm = formed.comm.clone();
        let done = match formed.seat {
            None => {
                // A recovery in which it is not needed is none of its own.
                self.noticed = None;
                self.wait(formed.first)
            }
            Some(_) => {
                // A process that has not resumed yet keeps its role: its first recovery may have been interrupted.
                self.survival.role = match self.survival.role {
                    Role::Spare => Role::Replacement,
                    _ if self.recoveries > 0 => Role::Survivor,
                    role => role,
                };
                let (role, recoveries) = (self.survival.role, formed.recoveries);
                let crew = Crew { comm: formed.comm.clone(), role, recoveries };
                self.work(program, &crew, &formed)
            }
        };
        if done.is_err() {
            let _ = (comm.revoke(), self.world.revoke());
        }
        done
    }

    /// Waits as a spare until the work is done, and passes on what signals ask for; an error tells of a death.
    fn wait(&self, first: Rank) -> Result<()> {
        let mut passed_on = Due::No;
        loop {
            let asked = (self.asked)();
            if let Some((message, _)) = REQUESTS.iter().find(|(_, due)| *due == asked)
                && passed_on != Due::Last
            {
                self.world.send(first, message)?;
                passed_on = asked;
            }
            match self.world.receive(None, Duration::from_millis(100))? {
                Some((_, message)) if message == DONE => return Ok(()),
                Some(_) => return Err(garbled()),
                None => {}
            }
            let dead = self.world.dead()?;
            if !dead.is_empty() {
                return Err(died(&dead));
            }
        }
    }

    fn work(&mut self, program: &mut impl Steps, crew: &Crew, formed: &Formed) -> Result<()> {
        program.begin(crew)?;
        let start = Instant::now();
        self.take_run(crew, formed)?;
        reach("crew-opened");
        let mut run = self.run.take().ok_or_else(garbled)?;
        let worked = self.resume(&mut run, program, crew, start);
        let worked = worked.and_then(|step| self.step(&mut run, program, (crew, formed), step));
        let failed = run.failures().into_iter();
        let failed = failed.map(|(step, error)| format!("step {step} was not saved: {error}"));
        self.survival.notes.extend(failed);
        self.run = Some(run);
        worked?;
        // Only spares that live want to know.
        let tells = crew.comm.rank() == Rank(0);
        formed
            .spares
            .iter()
            .filter(|_| tells)
            .for_each(|spare| drop(self.world.send(*spare, DONE)));
        Ok(())
    }

    /// Opens the run, goes on with it, or joins those that do.
    fn take_run(&mut self, crew: &Crew, formed: &Formed) -> Result<()> {
        let options = self.options.clone().ranks(crew.comm.clone()).spares(0);
        match (&mut self.run, formed.goes_on) {
            // Only spares can have died.
            (Some(run), _) if run.is_alone() => run.go_on_alone(crew.comm.clone()),
            (Some(run), _) => run.go_on_with(crew.comm.clone()),
            (own, true) => Run::join(options).map(|run| *own = Some(run)),
            (own, false) => Run::open(options).map(|run| *own = Some(run)),
        }
    }

    /// Gets the newest state back; its step.
    fn resume(
        &mut self,
        run: &mut Run,
        program: &mut impl Steps,
        crew: &Crew,
        start: Instant,
    ) -> Result<u64> {
        let restored = run.restore(&mut program.arrays())?;
        reach("crew-restored");
        self.survival.notes.extend(restored.iter().flat_map(|restored| restored.notes.clone()));
        program.resumed(crew, restored.as_ref())?;
        let step = restored.as_ref().map_or(0, |restored| restored.step);
        let kept = restored.as_ref().is_some_and(|restored| restored.level == Level::Memory);
        // A state that only some ranks of the crew keep, or none, is kept by all from here on.
        if self.options.replicas > 0 && !(kept && run.is_replicated()) {
            run.replicate(step, &program.state())?;
        }
        self.survival.saving += start.elapsed();
        if let Some(noticed) = self.noticed.take() {
            let from = restored.map(|restored| (restored.step, restored.level));
            let recovery = Recovery { ranks: crew.comm.size(), from, time: noticed.elapsed() };
            self.survival.recoveries.push(recovery);
        }
        self.recoveries = crew.recoveries + 1;
        reach("crew-resumed");
        Ok(step)
    }

    /// Steps to the end, or until the last checkpoint is due.
    fn step(
        &mut self,
        run: &mut Run,
        program: &mut impl Steps,
        (crew, formed): (&Crew, &Formed),
        mut step: u64,
    ) -> Result<()> {
        let replicas = if self.options.replicas > 0 { self.pace.replicas } else { 0 };
        let pace = Pace { replicas, ..self.pace };
        let saves = pace.checkpoints > 0 || self.options.every.is_some();
        (self.survival.step, self.survival.halted) = (step, false);
        let mut last: Option<Save> = None;
        while !program.is_done(step) && !self.survival.halted {
            step += 1;
            program.step(crew, step)?;
            self.survival.step = step;
            let due = run.due_or(step, self.heard(formed)?)?;
            let start = Instant::now();
            let ends = program.is_done(step);
            match keeping(pace, saves, step, ends, due) {
                KeptAs::Nothing => {}
                KeptAs::Replicas => run.replicate(step, &program.state())?,
                KeptAs::Checkpoint => last = Some(run.checkpoint(step, &program.state())?),
                KeptAs::Last => last = Some(run.checkpoint_last(step, &program.state())?),
            }
            let asked = last.as_ref().is_some_and(|save| save.step() == step && save.halts());
            self.survival.halted = !ends && (asked || due.is_last());
            self.survival.saving += start.elapsed();
        }
        // A death from here on costs nothing. A checkpoint that was skipped or stays on the nodes was not the last.
        let last = last.filter(|save| save.step() == step && !save.is_skipped());
        let last = last.filter(|save| save.level() == Level::Shared);
        last.map_or(Ok(()), |save| save.durable())?;
        program.end(crew, step)
    }

    /// The requests of signals: those of this process, and, on the first rank, those of spares.
    fn heard(&self, formed: &Formed) -> Result<Due> {
        let mut heard = (self.asked)();
        let hears = self.options.signals && self.world.rank() == formed.first;
        while hears && !formed.spares.is_empty() {
            let Some((_, message)) = self.world.receive(None, Duration::ZERO)? else { break };
            let request = REQUESTS.iter().find(|(known, _)| *known == message);
            heard = heard.max(request.ok_or_else(garbled)?.1);
        }
        Ok(heard)
    }

    /// After all have come to the end. The data of a rank that dies now is durable.
    fn leave(mut self) -> Result<Survival> {
        if let Some(run) = self.run.take() {
            self.survival.notes.extend(run.notes().iter().cloned());
            match run.finish() {
                Err(error) if error.is_death() || error.kind() == ErrorKind::Lost => {}
                finished => finished?,
            }
        }
        Ok(self.survival)
    }
}

/// The first process whose program has failed with an error of its own, or else the first whose program has failed.
fn first_failure(all: &[Applicant]) -> Option<(Rank, &[u8])> {
    let errors = all.iter().map(|applicant| applicant.failed.as_ref());
    let failed = (0..).map(Rank).zip(errors).filter_map(|(rank, error)| error.map(|e| (rank, e)));
    let first = failed.min_by_key(|(rank, (_, repeated))| (*repeated, *rank));
    first.map(|(rank, (error, _))| (rank, &error[..]))
}

#[cfg(test)]
mod tests;

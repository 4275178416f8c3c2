//! Crews come to the right end, whoever dies when: smaller, or with spares in the places of the dead.

use crate::going_on::{Death, die_at_points};
use crate::support::lockless_memory as memory;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use treering::testing::POINTS;
use treering::{
    ChunkSize, Comm, Crew, Encoding, End, Error, ErrorKind, Level, Library, Options, Pace, Rank,
    Reduction, Redundancy, ReplicaSettings, Restored, Result, Role, Run, SimulatedDeaths, Steps,
    Store, Survival, ThreadRanks, Variable, VariableMut, survive,
};

const ROWS: u64 = 37;
const LENGTH: u64 = 24;
pub(crate) const STEPS: u64 = 9;

/// A program of which every value depends on all steps before; the sum of all values is part of the next step.
#[derive(Default)]
pub(crate) struct Plate {
    own: Vec<f64>,
    first: u64,
    total: [u64; 1],
    /// Numbers of things with a home of their own choice.
    dust: Vec<u64>,
    /// Belongs to its rank alone; only a crew that keeps its size gets it back.
    alone: Option<[u64; 2]>,
    /// The states that recoveries restored: step and level.
    restored: Vec<(u64, Level)>,
    roles: Vec<Role>,
    ended: bool,
    trouble: Option<(u64, u32)>,
    /// The time that a step takes.
    pub(crate) pause: Duration,
}

fn advance(cell: f64, row: u64, at: u64, step: u64, total: u64) -> f64 {
    cell * 0.75 + ((row * 31 + at * 7 + step * 3 + total) % 101) as f64
}

fn sum(cells: &[f64]) -> u64 {
    cells.iter().fold(0, |sum, cell| sum.wrapping_add(cell.to_bits()))
}

/// The state after a step, of one rank that nobody disturbs.
fn expected(step: u64) -> (Vec<f64>, u64) {
    let (mut cells, mut total) = (vec![1.0; (ROWS * LENGTH) as usize], 0);
    for step in 1..=step {
        for (at, cell) in cells.iter_mut().enumerate() {
            *cell = advance(*cell, at as u64 / LENGTH, at as u64 % LENGTH, step, total);
        }
        total = sum(&cells);
    }
    (cells, total)
}

impl Plate {
    fn rows(&self) -> u64 {
        self.own.len() as u64 / LENGTH
    }

    fn check(&self, step: u64) {
        let (cells, total) = expected(step);
        let first = (self.first * LENGTH) as usize;
        assert!(self.own == cells[first..first + self.own.len()], "step {step}");
        assert_eq!(self.total, [total], "step {step}");
    }
}

impl Steps for Plate {
    fn begin(&mut self, crew: &Crew) -> Result<()> {
        let share = crew.share(ROWS);
        self.first = share.start;
        self.own = vec![1.0; ((share.end - share.start) * LENGTH) as usize];
        self.total = [0];
        let home = u64::from(crew.comm().rank().0);
        self.dust = (0..5).map(|at| home * 5 + at).collect();
        self.alone = self.alone.map(|_| [home, 0]);
        self.roles.push(crew.role());
        Ok(())
    }

    fn state(&self) -> Vec<Variable<'_>> {
        let plate = Variable::new("plate", &self.own).shaped(&[self.rows(), LENGTH]);
        let mut all = vec![
            plate.part_of(&[ROWS, LENGTH], &[self.first, 0]),
            Variable::new("total", &self.total).same(),
            Variable::new("dust", &self.dust).rows(),
        ];
        all.extend(self.alone.iter().map(|alone| Variable::new("alone", alone)));
        all
    }

    fn arrays(&mut self) -> Vec<VariableMut<'_>> {
        let rows = self.rows();
        let plate = VariableMut::new("plate", &mut self.own).shaped(&[rows, LENGTH]);
        let mut all = vec![
            plate.part_of(&[ROWS, LENGTH], &[self.first, 0]),
            VariableMut::new("total", &mut self.total),
            VariableMut::growing("dust", &mut self.dust),
        ];
        all.extend(self.alone.iter_mut().map(|alone| VariableMut::new("alone", alone)));
        all
    }

    fn resumed(&mut self, crew: &Crew, restored: Option<&Restored>) -> Result<()> {
        let mut recoveries = [u64::from(crew.recoveries()), !u64::from(crew.recoveries())];
        crew.comm().reduce(Reduction::Max, &mut recoveries)?;
        assert_eq!(recoveries[0], !recoveries[1], "the ranks count other recoveries");
        let Some(restored) = restored else { return Ok(()) };
        self.check(restored.step);
        self.restored.push((restored.step, restored.level));
        if let Some(alone) = self.alone {
            assert_eq!(alone, [u64::from(crew.comm().rank().0), restored.step]);
        }
        Ok(())
    }

    fn is_done(&self, step: u64) -> bool {
        step >= STEPS
    }

    fn step(&mut self, crew: &Crew, step: u64) -> Result<()> {
        if self.trouble == Some((step, crew.comm().rank().0)) {
            return Err(Error::new(ErrorKind::Usage, "the plate is broken"));
        }
        std::thread::sleep(self.pause);
        let (first, total) = (self.first, self.total[0]);
        for (at, cell) in self.own.iter_mut().enumerate() {
            let at = at as u64;
            *cell = advance(*cell, first + at / LENGTH, at % LENGTH, step, total);
        }
        self.total = [sum(&self.own)];
        crew.comm().reduce(Reduction::Sum, &mut self.total)?;
        self.alone.iter_mut().for_each(|alone| alone[1] = step);
        Ok(())
    }

    fn end(&mut self, crew: &Crew, step: u64) -> Result<()> {
        self.check(step);
        // Every grain is there once, however many ranks are left.
        let mut grains = [self.dust.len() as u64, self.dust.iter().sum()];
        crew.comm().reduce(Reduction::Sum, &mut grains)?;
        assert!(
            grains[0].is_multiple_of(5) && grains[1] == (0..grains[0]).sum::<u64>(),
            "{grains:?}"
        );
        self.ended = true;
        Ok(())
    }
}

/// The setting of a crew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    ranks: u32,
    spares: u32,
    copies: u32,
    pace: Pace,
    alone: bool,
    /// Number of nodes of the ranks, each with a store in front of the shared one; 0: no stores of nodes.
    nodes: u32,
    /// Redundancy between these nodes.
    redundancy: Redundancy,
    /// Bytes for replicas.
    budget: u64,
    /// Number of checkpoints that are kept; 0: all.
    keep: u64,
    pause: Duration,
}

pub(crate) const USUAL: Setting = Setting {
    ranks: 4,
    spares: 0,
    copies: 2,
    pace: Pace { replicas: 2, checkpoints: 0 },
    alone: false,
    nodes: 0,
    redundancy: Redundancy::None,
    budget: u64::MAX,
    keep: 0,
    pause: Duration::ZERO,
};

pub(crate) fn options(store: &Arc<dyn Store>, comm: Arc<dyn Comm>, setting: Setting) -> Options {
    let Setting { budget, keep, .. } = setting;
    let small =
        ReplicaSettings { range_blocks: 4, piece: 4096, budget, ..ReplicaSettings::default() };
    let options = Options::in_store(store.clone(), "r").ranks(comm).replicas(setting.copies);
    let options = options.replica_settings(small).spares(setting.spares);
    let options = options.patience(Duration::from_secs(120)).ranks_per_pack(2);
    let options = if keep > 0 { options.keep(keep, None) } else { options };
    options.chunk(ChunkSize::new(64).unwrap()).encoding(Encoding::Raw)
}

type Ended = End<(Result<Survival>, Vec<(u64, Level)>, Vec<Role>)>;

/// One story; how every process has ended.
fn story(setting: Setting, deaths: &[Death], trouble: Option<(u64, u32)>) -> Vec<Ended> {
    let store = memory();
    let nodes: Vec<Arc<dyn Store>> = (0..setting.nodes).map(|_| memory()).collect();
    let node_of = |rank: u32| format!("{}", rank % setting.nodes.max(1));
    let names: Vec<String> = (0..setting.ranks + setting.spares).map(node_of).collect();
    let mut world = ThreadRanks::on_nodes(&names);
    for death in deaths {
        if let Death::CommCall(victim, call) = *death {
            world = world.killed_at(Rank(victim), call);
        }
    }
    let (kills, points) = (world.clone(), deaths.to_vec());
    world.run(move |comm| {
        die_at_points(&kills, comm.rank(), &points);
        let alone = setting.alone.then_some([0; 2]);
        let pause = setting.pause;
        let mut plate = Plate { alone, trouble, pause, ..Plate::default() };
        let node = nodes.get(comm.node().parse::<usize>().unwrap()).cloned();
        let mut options = options(&store, comm, setting);
        if let Some(node) = node {
            options = options.node(node).shared_every(2).redundancy(setting.redundancy);
        }
        let survival = survive(options, setting.pace, &mut plate);
        if let Ok(survival) = &survival {
            assert_eq!(plate.ended, survival.role != Role::Spare);
        }
        (survival, plate.restored, plate.roles)
    })
}

/// Everybody who lives has come to the right end; the numbers of the dead and of recoveries from memory.
fn all_well(setting: Setting, deaths: &[Death]) -> (usize, usize) {
    let (mut dead, mut from_memory) = (0, 0);
    for end in story(setting, deaths, None) {
        match end {
            End::Killed => dead += 1,
            End::Done((Ok(survival), restored, _)) => {
                assert!(survival.role == Role::Spare || survival.step == STEPS, "{survival:?}");
                let memory = restored.iter().filter(|(_, level)| *level == Level::Memory).count();
                from_memory = from_memory.max(memory);
            }
            end => panic!("{setting:?}, {deaths:?}: {end:?}"),
        }
    }
    (dead, from_memory)
}

#[test]
fn a_crew_goes_on_from_memory_when_a_rank_dies_at_any_call() {
    let mut recovered = 0;
    for victim in 0..4 {
        for call in (u64::from(victim)..).step_by(5) {
            let (dead, from_memory) = all_well(USUAL, &[Death::CommCall(victim, call)]);
            recovered += from_memory;
            if dead == 0 {
                break;
            }
        }
    }
    assert!(recovered > 10, "{recovered}");
}

#[test]
fn ranks_die_one_after_another_and_each_recovery_is_complete() {
    // Replicas are made again after each death, so two copies survive three deaths in turn.
    for first in 0..4 {
        for hit in 1..4 {
            let victim = |after: u32| (first + after) % 4;
            let deaths = [
                Death::Point(victim(0), "replicas-kept", hit),
                Death::Point(victim(1), "crew-resumed", 1),
                Death::Point(victim(2), "crew-resumed", 2),
            ];
            assert_eq!(all_well(USUAL, &deaths), (3, 3), "{deaths:?}");
        }
    }
}

/// A second rank dies at every point of a recovery, and at every point where states are kept.
#[test]
fn a_second_rank_dies_at_every_point_of_a_recovery() {
    let of_crews = |(point, _): &&(&'static str, &str)| {
        point.starts_with("crew-") || point.starts_with("replicas-")
    };
    let mut reached = BTreeSet::new();
    for (point, _) in POINTS.iter().filter(of_crews) {
        for victim in 0..4 {
            let first = Death::Point((victim + 1) % 4, "replicas-kept", 2);
            // Of points that are passed at the start, too, the second hit is that of the recovery.
            let early =
                matches!(*point, "crew-formed" | "crew-opened" | "crew-restored" | "crew-resumed");
            let hit = if early {
                1
            } else if *point == "replicas-kept" {
                3
            } else {
                0
            };
            let setting = Setting { copies: 3, ..USUAL };
            let (dead, _) = all_well(setting, &[first, Death::Point(victim, point, hit)]);
            if dead == 2 {
                reached.insert(*point);
            }
        }
    }
    let missed: Vec<&str> = POINTS.iter().filter(of_crews).map(|(point, _)| *point).collect();
    let missed: Vec<&str> = missed.into_iter().filter(|point| !reached.contains(point)).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn spares_take_the_places_of_the_dead_and_get_what_was_theirs() {
    let setting = Setting { ranks: 3, spares: 2, alone: true, ..USUAL };
    for victim in 0..3 {
        let deaths = [Death::Point(victim, "replicas-kept", 2)];
        let ends = story(setting, &deaths, None);
        let mut roles = BTreeSet::new();
        for (rank, end) in ends.into_iter().enumerate() {
            match end {
                End::Killed => assert_eq!(rank as u32, victim),
                End::Done((Ok(survival), restored, all)) => {
                    roles.insert(format!("{:?}", survival.role));
                    match survival.role {
                        Role::Survivor => assert_eq!(all, [Role::Initial, Role::Survivor]),
                        Role::Replacement => assert_eq!(all, [Role::Replacement]),
                        role => assert!(role == Role::Spare && all.is_empty(), "{role:?} {all:?}"),
                    }
                    if survival.role != Role::Spare {
                        assert_eq!(restored, [(4, Level::Memory)]);
                        assert_eq!(survival.recoveries[0].ranks, 3);
                    }
                }
                end => panic!("{end:?}"),
            }
        }
        let expected = ["Replacement", "Spare", "Survivor"].map(String::from);
        assert_eq!(roles, BTreeSet::from(expected));
    }
}

#[test]
fn a_crew_without_spares_left_becomes_smaller() {
    let setting = Setting { ranks: 4, spares: 1, copies: 3, ..USUAL };
    let deaths = [
        Death::Point(0, "replicas-kept", 1),
        Death::Point(2, "replicas-kept", 3),
        // The spare that has taken the place of rank 0.
        Death::Point(4, "replicas-kept", 3),
    ];
    let mut sizes = BTreeSet::new();
    for end in story(setting, &deaths, None) {
        match end {
            End::Killed => {}
            End::Done((Ok(survival), ..)) => {
                sizes.extend(survival.recoveries.iter().map(|recovery| recovery.ranks));
            }
            end => panic!("{end:?}"),
        }
    }
    assert_eq!(sizes, BTreeSet::from([2, 3, 4]));
}

/// Both holders of some blocks die at once: the crew says so, and goes back to the newest checkpoint.
#[test]
fn what_all_holders_took_with_them_comes_from_the_newest_checkpoint() {
    let setting =
        Setting { ranks: 8, copies: 2, pace: Pace { replicas: 1, checkpoints: 3 }, ..USUAL };
    // Step 5 is in memory, step 3 in the store.
    let deaths = [Death::Point(1, "replicas-kept", 5), Death::Point(5, "replicas-kept", 5)];
    let mut told = 0;
    for end in story(setting, &deaths, None) {
        match end {
            End::Killed => {}
            End::Done((Ok(survival), restored, _)) => {
                let (step, level) = restored[0];
                assert_eq!(level, Level::Shared);
                assert_eq!(step, 3);
                let note = survival.notes.iter().find(|note| note.contains("are lost"));
                let note = note.unwrap_or_else(|| panic!("{:?}", survival.notes));
                assert!(note.contains("step 5") && note.contains("bytes of rank"), "{note}");
                told += 1;
            }
            end => panic!("{end:?}"),
        }
    }
    assert_eq!(told, 6);
}

#[test]
fn lost_states_without_a_checkpoint_are_an_error_that_names_them() {
    let setting = Setting { ranks: 8, copies: 2, ..USUAL };
    let deaths = [Death::Point(1, "replicas-kept", 2), Death::Point(5, "replicas-kept", 2)];
    let mut first_hand = 0;
    for end in story(setting, &deaths, None) {
        match end {
            End::Killed => {}
            End::Done((Err(error), ..)) => {
                assert!(error.to_string().contains("are lost"), "{error}");
                first_hand += usize::from(!error.is_repeated());
            }
            end => panic!("{end:?}"),
        }
    }
    assert!(first_hand > 0);
}

/// Data that the replicas have lost is on the nodes, and the shared store need not be asked.
#[test]
fn what_all_holders_took_with_them_comes_from_the_nodes() {
    let (pace, pause) = (Pace { replicas: 1, checkpoints: 2 }, Duration::from_millis(10));
    let setting = Setting { ranks: 8, nodes: 2, pace, pause, ..USUAL };
    let mut levels = Vec::new();
    // The copies of a range are on different nodes; not every pair of ranks has one together.
    for pair in 0..16 {
        let (first, second) = (pair / 4 * 2, pair % 4 * 2 + 1);
        let deaths =
            [Death::Point(first, "replicas-kept", 7), Death::Point(second, "replicas-kept", 7)];
        for end in story(setting, &deaths, None) {
            match end {
                End::Killed => {}
                End::Done((Ok(survival), restored, _)) => {
                    if survival.notes.iter().any(|note| note.contains("are lost")) {
                        let (step, level) = restored[0];
                        assert!(step < 7 && level != Level::Memory, "{restored:?} {survival:?}");
                        levels.push(level);
                    }
                }
                end => panic!("{end:?}"),
            }
        }
    }
    assert!(levels.contains(&Level::Node), "{levels:?}");
}

/// Checkpoints are removed behind a program that goes back to them, whoever dies when.
#[test]
fn checkpoints_that_go_are_not_those_that_a_crew_goes_back_to() {
    let mut gone_back = 0;
    for (keep, victim) in [(1, 0), (1, 2), (2, 1), (2, 3)] {
        for call in (10 + u64::from(victim)..110).step_by(9) {
            let pace = Pace { replicas: 3, checkpoints: 1 };
            // Some ranges die with the only rank that has them.
            let setting = Setting { copies: 1, pace, keep, ..USUAL };
            for end in story(setting, &[Death::CommCall(victim, call)], None) {
                match end {
                    End::Killed => {}
                    End::Done((Ok(survival), restored, _)) => {
                        assert_eq!(survival.step, STEPS);
                        let shared = restored.iter().filter(|(_, level)| *level == Level::Shared);
                        gone_back += shared.count();
                    }
                    // Before the first checkpoint there is nothing to go back to.
                    End::Done((Err(error), ..)) => {
                        assert!(error.to_string().contains("are lost"), "{error}");
                    }
                    end => panic!("{end:?}"),
                }
            }
        }
    }
    assert!(gone_back > 0);
}

/// Copies that have no room when they are made again are fewer copies, and no end of the program.
#[test]
fn a_budget_without_room_for_lost_replicas_is_a_note() {
    let mut noted = 0;
    // Ranks die before the next submit, so that the first generation is more and more on each rank that is left.
    for (budget, deaths) in (6..22).flat_map(|half| (1..7).map(move |deaths| (half << 9, deaths))) {
        let setting = Setting { ranks: 8, budget, ..USUAL };
        let deaths: Vec<Death> =
            (0..deaths).map(|at| Death::Point(at, "crew-resumed", i64::from(at))).collect();
        let mut notes = Vec::new();
        for end in story(setting, &deaths, None) {
            match end {
                End::Killed => {}
                End::Done((Ok(survival), ..)) => {
                    assert_eq!(survival.step, STEPS);
                    let of = survival.notes.into_iter().filter(|note| note.contains("made again"));
                    notes.push(of.count());
                }
                // The next death takes copies along that were not made again.
                End::Done((Err(error), ..)) => {
                    assert!(error.to_string().contains("are lost"), "{budget}: {error}");
                }
                end => panic!("{budget}: {end:?}"),
            }
        }
        assert!(notes.iter().all(|count| *count == notes[0]), "{budget}: {notes:?}");
        noted += usize::from(notes.first().is_some_and(|count| *count > 0));
    }
    assert!(noted > 0);
}

/// Steps without replicas are one note, which counts them.
#[test]
fn replicas_that_are_never_kept_are_one_note() {
    let setting = Setting { budget: 1, ..USUAL };
    for end in story(setting, &[], None) {
        let (survival, ..) = end.done().unwrap();
        let notes = survival.unwrap().notes.into_iter();
        let notes: Vec<String> = notes.filter(|note| note.contains("no replicas")).collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("no replicas of step 8 (nor of 4 earlier ones)"), "{notes:?}");
    }
}

/// The last rank that is left has states that nobody else has, and gets the newest of them back.
#[test]
fn the_last_rank_keeps_its_newest_state() {
    let (store, world) = (memory(), ThreadRanks::new(2));
    let kills = world.clone();
    let ends = world.run(move |comm| {
        let mut run = Run::open(options(&store, comm.clone(), USUAL)).unwrap();
        let own = |step: u64| vec![step * 7; 50];
        let replicate = |run: &mut Run, step: u64| {
            let own = own(step);
            run.replicate(step, &[Variable::new("x", &own).rows()])
        };
        let restored = |run: &mut Run| {
            let mut x = Vec::<u64>::new();
            let restored = run.restore(&mut [VariableMut::growing("x", &mut x)]).unwrap().unwrap();
            assert!(x.iter().all(|x| *x == restored.step * 7));
            (restored.step, restored.level)
        };
        replicate(&mut run, 1).unwrap();
        if comm.rank() == Rank(1) {
            kills.kill(Rank(1));
        }
        assert!(comm.reduce(Reduction::Max, &mut [0]).unwrap_err().is_death());
        comm.revoke().unwrap();
        run.go_on_with(comm.shrink().unwrap()).unwrap();
        assert_eq!(restored(&mut run), (1, Level::Memory));
        let x = own(2);
        let save = run.checkpoint(2, &[Variable::new("x", &x).rows()]).unwrap();
        save.durable().unwrap();
        assert_eq!(restored(&mut run).0, 2);
        replicate(&mut run, 3).unwrap();
        assert_eq!(restored(&mut run), (3, Level::Memory));
        run.finish().unwrap();
    });
    assert!(matches!(ends[..], [End::Done(()), End::Killed]), "{ends:?}");
}

/// A spare whose first recovery is interrupted has not worked before: it is a replacement still.
#[test]
fn a_replacement_whose_recovery_is_interrupted_stays_one() {
    let setting = Setting { ranks: 3, spares: 2, copies: 3, ..USUAL };
    for point in ["crew-opened", "crew-restored"] {
        let deaths = [Death::Point(0, "replicas-kept", 2), Death::Point(1, point, 1)];
        let mut roles = Vec::new();
        for (rank, end) in story(setting, &deaths, None).into_iter().enumerate() {
            match end {
                End::Killed => assert!(rank < 2),
                End::Done((Ok(survival), _, all)) => {
                    assert_eq!(survival.recoveries.len(), 1, "{survival:?}");
                    roles.push((survival.role, all));
                }
                end => panic!("{end:?}"),
            }
        }
        let [survivor, interrupted, last] = &roles[..] else { panic!("{roles:?}") };
        assert_eq!(survivor.1, [Role::Initial, Role::Survivor, Role::Survivor]);
        assert_eq!(interrupted.1, [Role::Replacement; 2]);
        assert_eq!(last.1, [Role::Replacement]);
    }
}

/// The recovery of a spare begins when the death is noticed for which it is needed, not at one before.
#[test]
fn a_spare_that_waits_does_not_count_the_time_between_deaths() {
    let pause = Duration::from_millis(150);
    let setting = Setting { ranks: 3, spares: 2, pause, ..USUAL };
    // States are kept at the start and every second step: four steps lie between these deaths.
    let deaths = [Death::Point(0, "replicas-kept", 1), Death::Point(1, "replicas-kept", 3)];
    let ends = story(setting, &deaths, None);
    let recoveries: Vec<Vec<Duration>> = ends
        .into_iter()
        .filter_map(End::done)
        .map(|(survival, ..)| survival.unwrap().recoveries.iter().map(|r| r.time).collect())
        .collect();
    let [survivor, _, spare] = &recoveries[..] else { panic!("{recoveries:?}") };
    assert!(survivor.len() == 2 && spare.len() == 1, "{recoveries:?}");
    assert!(spare[0] < survivor[1] + 2 * pause, "{recoveries:?}");
}

/// The last step is in the shared store, also where only every second checkpoint would go there.
#[test]
fn nodes_with_stores_keep_nothing_to_themselves_at_the_end() {
    for (checkpoints, victim) in [(2, 0), (3, 1), (4, 2), (5, 3)] {
        let pace = Pace { replicas: 0, checkpoints };
        let setting = Setting { nodes: 2, pace, ..USUAL };
        assert_eq!(all_well(setting, &[]).0, 0);
        let deaths = [Death::Point(victim, "captured", 1)];
        assert_eq!(all_well(setting, &deaths).0, 1);
    }
}

#[test]
fn ranks_that_want_other_replicas_than_others_are_told_so() {
    let store = memory();
    let ends = ThreadRanks::new(3).run(move |comm| {
        let copies = [2, 2, 0][comm.rank().0 as usize];
        let opened = Run::open(options(&store, comm.clone(), Setting { copies, ..USUAL }));
        let settings =
            ReplicaSettings { seed: Some(u64::from(comm.rank().0)), ..Default::default() };
        let other = options(&store, comm, USUAL).replica_settings(settings);
        [opened.err(), Run::open(other).err()].map(|error| {
            let error = error.expect("the ranks disagree");
            assert!(error.kind() == ErrorKind::Usage && error.to_string().contains("replicas"));
            error.is_repeated()
        })
    });
    for (rank, end) in ends.into_iter().enumerate() {
        assert_eq!(end.done().unwrap(), [rank > 0; 2]);
    }
}

#[test]
fn a_program_that_fails_on_one_rank_ends_on_all() {
    let mut first_hand = 0;
    for end in story(USUAL, &[], Some((4, 2))) {
        match end {
            End::Done((Err(error), ..)) => {
                assert!(error.to_string().contains("the plate is broken"), "{error}");
                first_hand += usize::from(!error.is_repeated());
            }
            end => panic!("{end:?}"),
        }
    }
    assert_eq!(first_hand, 1);
}

#[test]
fn a_panic_of_a_rank_is_survived_like_a_death() {
    struct Panics(Plate);
    impl Steps for Panics {
        fn begin(&mut self, crew: &Crew) -> Result<()> {
            self.0.begin(crew)
        }
        fn state(&self) -> Vec<Variable<'_>> {
            self.0.state()
        }
        fn arrays(&mut self) -> Vec<VariableMut<'_>> {
            self.0.arrays()
        }
        fn resumed(&mut self, crew: &Crew, restored: Option<&Restored>) -> Result<()> {
            self.0.resumed(crew, restored)
        }
        fn is_done(&self, step: u64) -> bool {
            self.0.is_done(step)
        }
        fn step(&mut self, crew: &Crew, step: u64) -> Result<()> {
            let victim = crew.comm().rank() == Rank(1) && crew.role() == Role::Initial;
            assert!(!(victim && step == 5), "this rank has a bug");
            self.0.step(crew, step)
        }
        fn end(&mut self, crew: &Crew, step: u64) -> Result<()> {
            self.0.end(crew, step)
        }
    }
    let store = memory();
    let restored = Arc::new(Mutex::new(Vec::new()));
    let found = restored.clone();
    let ends = ThreadRanks::new(3).run(move |comm| {
        let mut program = Panics(Plate::default());
        let survival = survive(options(&store, comm, USUAL), USUAL.pace, &mut program).unwrap();
        found.lock().unwrap().extend(program.0.restored);
        survival.step
    });
    let panicked = ends.iter().filter(|end| !matches!(end, End::Done(STEPS))).count();
    assert_eq!(panicked, 1);
    assert_eq!(*restored.lock().unwrap(), [(4, Level::Memory); 2]);
}

/// Random crews, paces, copies, stores and deaths. `TREERING_PROGRAMS=N` runs a fiftieth of that many (`make model`);
/// `TREERING_CREW_SEED=S` runs one.
#[test]
fn random_crews_come_to_the_right_end() {
    let number = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let programs = number("TREERING_PROGRAMS").map_or(60, |count| count / 50);
    let only = number("TREERING_CREW_SEED");
    for seed in only.map_or(0..programs, |seed| seed..seed + 1) {
        let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut roll = |sides: u64| {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % sides
        };
        let (ranks, spares) = (1 + roll(5) as u32, roll(3) as u32);
        let pace = Pace { replicas: roll(4), checkpoints: roll(4) };
        let copies = 1 + roll(3) as u32;
        let nodes = (roll(5) as u32).saturating_sub(1);
        let redundancy = [Redundancy::None, Redundancy::Partner, Redundancy::Xor { set: 3 }];
        let redundancy = redundancy[roll(3) as usize];
        let keep = roll(3);
        let setting = Setting { ranks, spares, copies, pace, nodes, redundancy, keep, ..USUAL };
        let deaths: Vec<Death> = (0..roll(u64::from(ranks + spares)))
            .map(|_| {
                let victim = roll(u64::from(ranks + spares)) as u32;
                match roll(2) {
                    0 => Death::CommCall(victim, roll(150)),
                    _ => {
                        let point = POINTS[roll(POINTS.len() as u64) as usize].0;
                        Death::Point(victim, point, roll(4) as i64)
                    }
                }
            })
            .collect();
        for end in story(setting, &deaths, None) {
            match end {
                End::Killed => {}
                End::Done((Ok(survival), ..)) => {
                    let well = survival.role == Role::Spare || survival.step == STEPS;
                    assert!(well, "seed {seed}: {setting:?} {deaths:?}: {survival:?}");
                }
                End::Done((Err(error), ..)) => {
                    // All holders may die before the first checkpoint.
                    let lost = error.to_string().contains("are lost");
                    assert!(lost, "seed {seed}: {setting:?} {deaths:?}: {error}");
                }
                end => panic!("seed {seed}: {setting:?} {deaths:?}: {end:?}"),
            }
        }
    }
}

/// Deaths that are simulated, as on an MPI that cannot survive real ones.
#[test]
fn simulated_deaths_are_survived_like_real_ones() {
    struct Mortal {
        plate: Plate,
        deaths: SimulatedDeaths,
    }
    impl Steps for Mortal {
        fn begin(&mut self, crew: &Crew) -> Result<()> {
            self.plate.begin(crew)
        }
        fn state(&self) -> Vec<Variable<'_>> {
            self.plate.state()
        }
        fn arrays(&mut self) -> Vec<VariableMut<'_>> {
            self.plate.arrays()
        }
        fn resumed(&mut self, crew: &Crew, restored: Option<&Restored>) -> Result<()> {
            self.plate.resumed(crew, restored)
        }
        fn is_done(&self, step: u64) -> bool {
            self.plate.is_done(step)
        }
        fn step(&mut self, crew: &Crew, step: u64) -> Result<()> {
            match (crew.recoveries(), step) {
                (0, 3) => drop(self.deaths.kill(&[Rank(0), Rank(3)])?),
                (1, 5) => drop(self.deaths.kill(&[Rank(4)])?),
                _ => {}
            }
            self.plate.step(crew, step)
        }
        fn end(&mut self, crew: &Crew, step: u64) -> Result<()> {
            self.plate.end(crew, step)
        }
    }
    let store = memory();
    let ends = ThreadRanks::new(5).run(move |comm| {
        let (deaths, comm) = SimulatedDeaths::on(comm);
        let mut program = Mortal { plate: Plate::default(), deaths };
        let setting = Setting { copies: 3, ..USUAL };
        let survival = survive(options(&store, comm, setting), setting.pace, &mut program);
        (survival.map(|survival| survival.step), program.plate.restored)
    });
    for (rank, end) in ends.into_iter().enumerate() {
        match (rank, end) {
            (0 | 3 | 4, End::Done((Err(error), _))) => assert_eq!(error.kind(), ErrorKind::Dead),
            (1 | 2, End::Done((Ok(STEPS), restored))) => {
                assert_eq!(restored, [(2, Level::Memory), (4, Level::Memory)]);
            }
            end => panic!("{end:?}"),
        }
    }
}

/// Two groups take each other for dead and go on at the same time, each with the replicas that it holds. One of them has
/// the run and comes to the right end; the other one is refused on all of its ranks, and leaves nothing in the store.
#[test]
fn of_two_groups_that_take_each_other_for_dead_one_goes_on() {
    struct Suspicious {
        plate: Plate,
        deaths: SimulatedDeaths,
        group: u32,
        at: u64,
    }
    impl Steps for Suspicious {
        fn begin(&mut self, crew: &Crew) -> Result<()> {
            self.plate.begin(crew)
        }
        fn state(&self) -> Vec<Variable<'_>> {
            self.plate.state()
        }
        fn arrays(&mut self) -> Vec<VariableMut<'_>> {
            self.plate.arrays()
        }
        fn resumed(&mut self, crew: &Crew, restored: Option<&Restored>) -> Result<()> {
            self.plate.resumed(crew, restored)
        }
        fn is_done(&self, step: u64) -> bool {
            self.plate.is_done(step)
        }
        fn step(&mut self, crew: &Crew, step: u64) -> Result<()> {
            if crew.recoveries() == 0 && step == self.at {
                self.deaths.separate(self.group)?;
            }
            self.plate.step(crew, step)
        }
        fn end(&mut self, crew: &Crew, step: u64) -> Result<()> {
            self.plate.end(crew, step)
        }
    }
    for round in 0..12 {
        let store = memory();
        let (shared, at) = (store.clone(), 3 + round % 5);
        let ends = ThreadRanks::new(5).run(move |comm| {
            let group = comm.rank().0 % 2;
            let (deaths, comm) = SimulatedDeaths::on(comm);
            let mut program = Suspicious { plate: Plate::default(), deaths, group, at };
            let pace = Pace { replicas: 1, checkpoints: 2 };
            // Every group holds a copy of everything.
            let setting = Setting { copies: 4, pace, ..USUAL };
            survive(options(&shared, comm, setting), pace, &mut program).map(|s| s.step)
        });
        let ends: Vec<Result<u64>> = ends.into_iter().map(|end| end.done().unwrap()).collect();
        let well = |rank: usize| matches!(ends[rank], Ok(STEPS));
        let winner = usize::from(!well(0));
        for (rank, end) in ends.iter().enumerate() {
            match end {
                Ok(step) => assert!(rank % 2 == winner && *step == STEPS, "{ends:?}"),
                Err(error) => {
                    assert!(rank % 2 != winner, "{ends:?}");
                    assert_eq!(error.kind(), ErrorKind::Busy, "{ends:?}");
                }
            }
        }
        let library = Library::of(store);
        let (all, trouble) = library.checkpoints("r").unwrap();
        assert!(trouble.is_empty(), "{trouble:?}");
        assert_eq!(all.last().map(|info| info.step), Some(STEPS));
        assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
    }
}

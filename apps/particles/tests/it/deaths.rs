//! Simulations whose ranks die come to the state of an undisturbed one, bit for bit, with every particle once.

use particles::Settings;
use particles::ranks::{OwnParticles, SurvivingSimulation};
use surviving::testing::{Story, refusal, survivors};
use treering::{Level, Rank, Role, Survival, ThreadRanks};

const STEPS: u64 = 9;

fn settings() -> Settings {
    Settings { particles_per_side: 6, mesh: 24, threads: 1, ..Settings::default() }
}

fn program(_: &ThreadRanks, _: Rank) -> SurvivingSimulation {
    SurvivingSimulation::new(&settings(), STEPS)
}

/// Own particles of a rank that worked, and the recoveries.
type Told = (Option<OwnParticles>, Vec<Option<(u64, Level)>>);

fn tell(program: &SurvivingSimulation, survival: Survival) -> Told {
    let own = program.simulation().filter(|_| survival.role != Role::Spare);
    let recovered = survival.recoveries.iter().map(|recovery| recovery.from).collect();
    (own.map(|simulation| simulation.own().clone()), recovered)
}

/// A particle by its number and its bits.
type Particle = (u32, [u32; 7]);

/// All particles in the order of their numbers, the killed, and the recoveries from memory.
fn end_of(story: &Story) -> (Vec<Particle>, usize, usize) {
    let (told, killed) = survivors(story.play(program, tell));
    let mut all = Vec::new();
    for own in told.iter().flat_map(|(own, _)| own) {
        for (at, id) in own.ids.iter().enumerate() {
            all.push((*id, own.particles.arrays().map(|array| array[at].to_bits())));
        }
    }
    all.sort_unstable();
    let is_memory = |from: &&Option<(u64, Level)>| matches!(from, Some((_, Level::Memory)));
    let recovered = told.iter().map(|(_, from)| from.iter().filter(is_memory).count());
    (all, killed, recovered.max().unwrap_or(0))
}

#[test]
fn a_rank_may_die_at_any_call() {
    let (expected, ..) = end_of(&Story { ranks: 1, copies: 0, ..Story::new() });
    assert!(expected.iter().map(|(id, _)| *id).eq(0..216));
    let (mut killed, mut recovered, mut late) = (0, 0, 0);
    for (victim, call) in (5..260).step_by(7).map(|call| (call as u32 % 4, call)) {
        let story = Story { deaths: vec![(victim, call)], ..Story::new() };
        let (found, dead, from_memory) = end_of(&story);
        // A rank that dies when all have agreed that the end is reached takes its own particles along.
        let ended = dead == 1 && from_memory == 0 && found.len() < expected.len();
        late += usize::from(ended);
        let once = found.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let right = once && found.iter().all(|particle| expected.contains(particle));
        assert!(if ended { right } else { found == expected }, "rank {victim}, call {call}");
        (killed, recovered) = (killed + dead, recovered + from_memory);
    }
    assert!(killed > 10 && recovered > 6 && late <= 3, "{killed} {recovered} {late}");
}

#[test]
fn spares_take_the_places_of_two_that_die() {
    let (expected, ..) = end_of(&Story { ranks: 1, copies: 0, ..Story::new() });
    for spares in 0..3 {
        let deaths = vec![(0, 90), (2, 130)];
        let story = Story { spares, copies: 3, deaths, ..Story::new() };
        let (found, killed, recovered) = end_of(&story);
        assert!(found == expected, "{spares} spares");
        assert!(killed == 2 && recovered > 0, "{killed} {recovered}");
    }
}

#[test]
fn a_run_of_other_settings_is_refused() {
    let pace = treering::Pace { replicas: 0, checkpoints: 3 };
    let story = Story { pace, copies: 0, ..Story::new() };
    end_of(&story);
    let other = |_: &ThreadRanks, _: Rank| {
        SurvivingSimulation::new(&Settings { seed: 9, ..settings() }, STEPS)
    };
    assert!(refusal(story.play(other, |_, _| ())).contains("other settings"));
}

//! Clusterings whose ranks die come to the centres of an undisturbed one, with the points that the dead had.

use kmeans::points::make_points;
use kmeans::{Clustering, Failures, Settings, SurvivingClustering};
use surviving::testing::{Story, refusal, survivors};
use treering::{Level, Pace, Rank, Role, ThreadRanks};

fn settings() -> Settings {
    Settings { points: 3000, dimensions: 5, centres: 6, iterations: 11, ..Settings::default() }
}

fn program(_: &ThreadRanks, _: Rank) -> SurvivingClustering {
    SurvivingClustering::new(Clustering::new(&settings()))
}

/// A program of which a rank dies before an iteration.
fn dies(victim: u32, at: u64) -> impl Fn(&ThreadRanks, Rank) -> SurvivingClustering {
    move |world, own| {
        let (mut program, world) = (program(world, own), world.clone());
        program.before_iteration = Box::new(move |iteration| {
            if own.0 == victim && iteration == at {
                world.kill(own);
            }
        });
        program
    }
}

/// The result of a rank: role, centres, inertia, and the step and level of each recovery.
type Told = (Role, Vec<f64>, f64, Vec<Option<(u64, Level)>>);

fn tell(program: &SurvivingClustering, survival: treering::Survival) -> Told {
    let clustering = &program.clustering;
    let Settings { dimensions, seed, .. } = settings();
    let count = clustering.points().len() as u64 / u64::from(dimensions);
    // The points came back from other ranks, and are those of the seed.
    let made = make_points(seed, clustering.first(), count, dimensions);
    assert!(clustering.points() == made);
    let recovered = survival.recoveries.iter().map(|recovery| recovery.from).collect();
    (survival.role, clustering.centres().to_vec(), clustering.inertia(), recovered)
}

/// The centres and the inertia at the end, which are the same on all ranks that worked.
fn undisturbed() -> (Vec<f64>, f64) {
    let story = Story { ranks: 1, copies: 0, ..Story::new() };
    let (mut told, _) = survivors(story.play(program, tell));
    let (_, centres, inertia, _) = told.remove(0);
    (centres, inertia)
}

#[test]
fn any_rank_may_die_in_any_iteration() {
    let (centres, inertia) = undisturbed();
    for victim in 0..4 {
        for at in [1, 2, 3, 6, 11] {
            let ends = Story::new().play(dies(victim, at), tell);
            let (told, killed) = survivors(ends);
            assert_eq!((told.len(), killed), (3, 1));
            // Every other state is kept, and the one at the start.
            let from = Some(((at - 1) / 2 * 2, Level::Memory));
            for (role, found, sum, recovered) in told {
                assert_eq!((role, &recovered[..]), (Role::Survivor, &[from][..]));
                assert!(found == centres && sum == inertia, "rank {victim} in iteration {at}");
            }
        }
    }
}

#[test]
fn a_rank_may_die_at_any_call() {
    let (centres, inertia) = undisturbed();
    let mut killed = 0;
    for (victim, call) in (0..120).step_by(3).map(|call| (call as u32 % 4, call)) {
        let story = Story { deaths: vec![(victim, call)], ..Story::new() };
        let (told, dead) = survivors(story.play(program, tell));
        killed += dead;
        assert!(told.iter().all(|(_, found, sum, _)| *found == centres && *sum == inertia));
    }
    assert!(killed > 25, "{killed}");
}

#[test]
fn spares_take_over_the_points_of_the_dead() {
    let (centres, _) = undisturbed();
    let story = Story { spares: 2, ..Story::new() };
    for victim in 0..4 {
        let (told, killed) = survivors(story.play(dies(victim, 6), |program, survival| {
            let role = survival.role;
            (role, (role != Role::Spare).then(|| tell(program, survival)))
        }));
        assert_eq!(killed, 1);
        let count = |wanted| told.iter().filter(|(role, _)| *role == wanted).count();
        assert_eq!([Role::Survivor, Role::Replacement, Role::Spare].map(count), [3, 1, 1]);
        assert!(told.iter().flat_map(|(_, told)| told).all(|(_, found, ..)| *found == centres));
    }
}

/// As in the paper: ranks fail at random, one after another.
#[test]
fn the_last_of_many_ranks_comes_to_the_same_centres() {
    let (centres, inertia) = undisturbed();
    let failures = Failures::with_half_life(8.0, 3).unwrap();
    let story = Story { ranks: 9, copies: 3, ..Story::new() };
    let ends = story.play(
        move |world, own| {
            let (mut program, world) = (program(world, own), world.clone());
            program.before_iteration = Box::new(move |iteration| {
                if failures.hit(own.0, iteration) {
                    world.kill(own);
                }
            });
            program
        },
        tell,
    );
    let (told, killed) = survivors(ends);
    let expected = (0..9).filter(|rank| (1..=11).any(|at| failures.hit(*rank, at))).count();
    assert!(killed == expected && (3..8).contains(&killed), "{killed} of {expected}");
    assert!(told.iter().all(|(_, found, sum, _)| *found == centres && *sum == inertia));
}

#[test]
fn a_program_that_is_started_again_goes_on_with_its_own_settings() {
    let (centres, _) = undisturbed();
    let pace = Pace { replicas: 0, checkpoints: 4 };
    let story = Story { pace, copies: 0, ..Story::new() };
    let shorter = |_: &ThreadRanks, _: Rank| {
        let settings = Settings { iterations: 7, ..settings() };
        SurvivingClustering::new(Clustering::new(&settings))
    };
    survivors(story.play(shorter, |_, _| ()));
    let again = Story { ranks: 3, ..story.clone() };
    let other = |_: &ThreadRanks, _: Rank| {
        let settings = Settings { seed: 2, ..settings() };
        SurvivingClustering::new(Clustering::new(&settings))
    };
    assert!(refusal(again.play(other, |_, _| ())).contains("other settings"));
    let (told, _) = survivors(again.play(program, tell));
    assert!(told.iter().all(|(_, found, ..)| *found == centres));
}

#[test]
fn invalid_settings_end_the_program_on_all_ranks() {
    let bad = |_: &ThreadRanks, _: Rank| {
        let settings = Settings { centres: 0, ..settings() };
        SurvivingClustering::new(Clustering::new(&settings))
    };
    let error = refusal(Story::new().play(bad, |_, _| ()));
    assert!(error.contains("invalid number of centres"), "{error}");
}

//! A program is played to its end, and its end is told.

use surviving::{SurvivalArguments, play};
use treering::{Crew, Reduction, Result, Steps, ThreadRanks, Variable, VariableMut};

/// Counts its steps.
#[derive(Default)]
struct Counter([u64; 1]);

impl Steps for Counter {
    fn begin(&mut self, _: &Crew) -> Result<()> {
        self.0 = [0];
        Ok(())
    }

    fn state(&self) -> Vec<Variable<'_>> {
        vec![Variable::new("count", &self.0).same()]
    }

    fn arrays(&mut self) -> Vec<VariableMut<'_>> {
        vec![VariableMut::new("count", &mut self.0)]
    }

    fn is_done(&self, step: u64) -> bool {
        step >= 7
    }

    fn step(&mut self, crew: &Crew, _: u64) -> Result<()> {
        self.0[0] += 1;
        crew.comm().reduce(Reduction::Max, &mut self.0)
    }
}

#[test]
fn one_rank_tells_the_end_and_a_program_that_is_started_again_has_nothing_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = SurvivalArguments {
        replicas: 2,
        replicate_every: 2,
        spares: 1,
        digests: true,
        store: folder.path().into(),
    };
    for _ in 0..2 {
        let arguments = arguments.clone();
        let ends = ThreadRanks::new(4).run(move |comm| {
            let mut counter = Counter::default();
            let digest = |counter: &Counter, _: &dyn treering::Comm| Ok(counter.0[0]);
            let played = play(&arguments, ("r", 3), &comm, &mut counter, digest).unwrap();
            (played.first, played.survival.step, counter.0[0], played.sentences())
        });
        let ends: Vec<_> = ends.into_iter().map(|end| end.done().unwrap()).collect();
        // The last rank is a spare.
        assert!(ends[..3].iter().all(|(_, step, count, _)| (*step, *count) == (7, 7)));
        assert_eq!(
            ends.iter().map(|(first, ..)| *first).collect::<Vec<_>>(),
            [true, false, false, false]
        );
        let last = ends[0].3.last().unwrap();
        assert!(last.starts_with("7 steps in ") && last.contains(" %) to keep"), "{last}");
    }
}

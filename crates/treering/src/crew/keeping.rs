//! What is kept of a step: pure, and the same on all ranks, which have agreed on what is due.

use super::Pace;
use crate::run::Due;

/// What becomes of the state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptAs {
    Nothing,
    /// It goes to the memory of ranks.
    Replicas,
    /// It is a checkpoint.
    Checkpoint,
    /// It is the last checkpoint, in the shared store.
    Last,
}

/// What becomes of the state of `step`, the last one if it `ends`. `saves`: whether the program has checkpoints at all.
pub(super) fn keeping(pace: Pace, saves: bool, step: u64, ends: bool, due: Due) -> KeptAs {
    let is_time = |every: u64| every > 0 && step.is_multiple_of(every);
    match due {
        Due::Last => KeptAs::Last,
        _ if ends && saves => KeptAs::Last,
        Due::Checkpoint => KeptAs::Checkpoint,
        Due::No if is_time(pace.checkpoints) => KeptAs::Checkpoint,
        Due::No if is_time(pace.replicas) => KeptAs::Replicas,
        Due::No => KeptAs::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_goes_where_the_pace_or_what_is_due_puts_it() {
        let pace = Pace { replicas: 2, checkpoints: 3 };
        let at = |step, due| keeping(pace, true, step, false, due);
        let quiet: Vec<KeptAs> = (1..=6).map(|step| at(step, Due::No)).collect();
        use KeptAs::{Checkpoint, Last, Nothing, Replicas};
        assert_eq!(quiet, [Nothing, Replicas, Checkpoint, Replicas, Nothing, Checkpoint]);
        for step in 1..=6 {
            assert_eq!(at(step, Due::Checkpoint), Checkpoint);
            assert_eq!(at(step, Due::Last), Last);
        }
        let never = Pace { replicas: 0, checkpoints: 0 };
        for (saves, due, expected) in [
            (false, Due::No, Nothing),
            (true, Due::No, Last),
            (true, Due::Checkpoint, Last),
            (false, Due::Last, Last),
        ] {
            assert_eq!(keeping(never, saves, 5, true, due), expected);
        }
    }
}

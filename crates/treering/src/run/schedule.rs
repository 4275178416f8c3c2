//! Decides when a checkpoint is due: at regular steps, at regular times, or at the optimal interval; before a deadline; on
//! request.
//!
//! The interval that pays most is the optimum of Young (1974) in the better approximation of Daly (2006): it weighs the
//! time that a checkpoint holds the program up, which is measured, against the work that a failure destroys, from the
//! mean time between failures, which the caller knows.
//!
//! Laws: everything here is a function of what it is told; the clock is handed in, as the time since the run was opened.
//! The last checkpoint before a deadline is due as long as one more step and a save would end after it, by the longest
//! of the latest steps and saves; it is due once.

use std::time::Duration;

/// Interval of checkpoints; see [`Options::every`](crate::Options::every).
///
/// ```
/// use std::time::Duration;
/// use treering::{Every, Options};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path();
/// let steps = Options::directory(store, "rod").every(Every::Steps(100));
/// let time = Options::directory(store, "rod").every(Every::Time(Duration::from_secs(600)));
/// let day = Duration::from_secs(86_400);
/// let optimum = Options::directory(store, "rod").every(Every::Optimum { between_failures: day });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// A number of steps: checkpoints are due at its multiples.
    Steps(u64),
    /// The time from one checkpoint to the next.
    Time(Duration),
    /// The optimal interval of Young and Daly if the machine fails after this time on average, computed from the time
    /// for which checkpoints block the program.
    Optimum {
        /// The mean time between failures that end the program.
        between_failures: Duration,
    },
}

/// Whether a checkpoint is due; see [`Run::due`](crate::Run::due).
///
/// ```
/// use treering::{Every, Options, Run, Variable};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let mut run = Run::open(Options::directory(&store, "rod").every(Every::Steps(10)))?;
/// let heat = vec![0.0f64; 1000];
/// for step in 1..=25 {
///     let due = run.due(step)?;
///     if due.is_due() {
///         run.checkpoint(step, &[Variable::new("heat", &heat)])?; // steps 10 and 20
///     }
///     if due.is_last() {
///         break; // the deadline is near, or a signal asked the program to end
///     }
/// }
/// run.finish()?;
/// # assert_eq!(treering::Library::open(&store)?.checkpoints("rod")?.0.len(), 2);
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Not now.
    No,
    /// A checkpoint is due.
    Checkpoint,
    /// The last checkpoint is due: the deadline is near, or the program was asked to end.
    Last,
}

impl Due {
    /// Whether a checkpoint should be taken.
    pub fn is_due(self) -> bool {
        self != Due::No
    }

    /// Whether the program should end after it.
    pub fn is_last(self) -> bool {
        self == Due::Last
    }

    pub(super) fn code(self) -> u64 {
        self as u64
    }

    pub(super) fn from_code(code: u64) -> Due {
        match code {
            0 => Due::No,
            1 => Due::Checkpoint,
            _ => Due::Last,
        }
    }
}

/// The best time between two checkpoints that cost `cost` each, if a failure comes after `mean` on average.
fn optimum(cost: Duration, mean: Duration) -> Duration {
    let (cost, mean) = (cost.as_secs_f64(), mean.as_secs_f64());
    if cost >= 2.0 * mean {
        return Duration::from_secs_f64(mean);
    }
    let part = cost / (2.0 * mean);
    let best = (2.0 * cost * mean).sqrt() * (1.0 + part.sqrt() / 3.0 + part / 9.0) - cost;
    Duration::from_secs_f64(best.max(0.0))
}

/// The longest of the latest few times.
#[derive(Clone, Debug, Default)]
struct Latest {
    times: [Duration; 8],
    count: usize,
}

impl Latest {
    fn add(&mut self, time: Duration) {
        self.times[self.count % self.times.len()] = time;
        self.count += 1;
    }

    fn longest(&self) -> Duration {
        self.times.iter().copied().max().unwrap_or_default()
    }

    fn mean(&self) -> Option<Duration> {
        let count = self.count.min(self.times.len()) as u32;
        (count > 0).then(|| self.times.iter().sum::<Duration>() / count)
    }
}

/// Measurements of the program so far.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    every: Option<Every>,
    /// Since the run was opened, as everything here.
    deadline: Option<Duration>,
    asked: Option<Duration>,
    saved: Option<Duration>,
    steps: Latest,
    /// The times for which checkpoints held the program up, and those until they were durable.
    costs: Latest,
    writes: Latest,
    ended: bool,
}

impl Schedule {
    pub(super) fn new(every: Option<Every>, deadline: Option<Duration>) -> Schedule {
        let (steps, costs, writes) = Default::default();
        Schedule { every, deadline, asked: None, saved: None, steps, costs, writes, ended: false }
    }

    /// Whether all ranks come to the same answer by themselves.
    pub(super) fn is_known_to_all(&self) -> bool {
        self.deadline.is_none() && matches!(self.every, None | Some(Every::Steps(_)))
    }

    /// Whether a checkpoint of `step` is due; `request` is what signals ask for.
    pub(super) fn due(&mut self, now: Duration, step: u64, request: Due) -> Due {
        if let Some(before) = self.asked.replace(now) {
            self.steps.add(now.saturating_sub(before));
        }
        let own = match self.deadline {
            Some(deadline) if now + self.needed() >= deadline => Due::Last,
            _ if self.is_time(now, step) => Due::Checkpoint,
            _ => Due::No,
        };
        match own.max(request) {
            Due::Last if self.ended => Due::No,
            due => due,
        }
    }

    /// All ranks have agreed on an answer.
    pub(super) fn agreed(&mut self, due: Due) {
        self.ended |= due == Due::Last;
    }

    /// Whether the last checkpoint was due: no other one can stand in for it.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The run goes on after a death. The last checkpoint may have been lost with it, so it may be due again; and the time
    /// of the recovery is none of a step.
    pub(super) fn goes_on(&mut self) {
        (self.ended, self.asked) = (false, None);
    }

    /// The time that one more step and the last save take, by the longest of the latest ones, and a quarter more. Before
    /// that step, a checkpoint may be due, which holds the program up as well.
    fn needed(&self) -> Duration {
        (self.steps.longest() + 2 * self.costs.longest() + self.writes.longest()).mul_f64(1.25)
    }

    fn is_time(&self, now: Duration, step: u64) -> bool {
        let since = now.saturating_sub(self.saved.unwrap_or_default());
        match self.every {
            None => false,
            Some(Every::Steps(steps)) => step.is_multiple_of(steps.max(1)),
            Some(Every::Time(time)) => since >= time,
            // The cost of a checkpoint is known after the first one.
            Some(Every::Optimum { between_failures }) => match self.costs.mean() {
                Some(cost) => since >= optimum(cost, between_failures),
                None => true,
            },
        }
    }

    /// A checkpoint was taken, which held the program up for `cost`.
    pub(super) fn saved(&mut self, now: Duration, cost: Duration) {
        self.saved = Some(now);
        self.costs.add(cost);
        // A step is the program's work; the checkpoint is counted by itself.
        self.asked = Some(now);
    }

    /// A checkpoint became durable so long after it was taken.
    pub(super) fn written(&mut self, time: Duration) {
        self.writes.add(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn steps_due(
        schedule: &mut Schedule,
        steps: u64,
        step_time: Duration,
        cost: Duration,
    ) -> Vec<u64> {
        let (mut now, mut due) = (Duration::ZERO, Vec::new());
        for step in 1..=steps {
            now += step_time;
            let answer = schedule.due(now, step, Due::No);
            schedule.agreed(answer);
            if answer.is_due() {
                now += cost;
                schedule.saved(now, cost);
                due.push(step);
            }
            if answer.is_last() {
                break;
            }
        }
        due
    }

    #[test]
    fn steps_and_times_are_kept() {
        let mut by_steps = Schedule::new(Some(Every::Steps(10)), None);
        assert_eq!(steps_due(&mut by_steps, 35, SECOND, SECOND), [10, 20, 30]);
        let mut by_time = Schedule::new(Some(Every::Time(5 * SECOND)), None);
        assert_eq!(steps_due(&mut by_time, 16, SECOND, Duration::ZERO), [5, 10, 15]);
        let mut never = Schedule::new(None, None);
        assert!(steps_due(&mut never, 100, SECOND, SECOND).is_empty());
    }

    #[test]
    fn the_optimum_is_that_of_the_papers() {
        // Young: sqrt(2 · 5 min · 24 h) = 120 min; Daly adds 1.7 min and takes away the 5 min of the checkpoint.
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let best = optimum(minutes(5), minutes(24 * 60)).as_secs_f64() / 60.0;
        assert!((best - 116.69).abs() < 0.01, "{best}");
        assert_eq!(optimum(minutes(10), minutes(5)), minutes(5));
        assert_eq!(optimum(Duration::ZERO, minutes(5)), Duration::ZERO);
        // Program: steps of 1 min, checkpoints of 5 min; the first at once, then every 117 min.
        let every = Every::Optimum { between_failures: minutes(24 * 60) };
        let mut schedule = Schedule::new(Some(every), None);
        assert_eq!(steps_due(&mut schedule, 300, minutes(1), minutes(5)), [1, 118, 235]);
    }

    #[test]
    fn requests_are_answered_and_the_last_checkpoint_is_due_once() {
        let mut schedule = Schedule::new(None, None);
        for (step, request) in [Due::No, Due::Checkpoint, Due::Last].into_iter().enumerate() {
            let due = schedule.due(SECOND, step as u64, request);
            schedule.agreed(due);
            assert_eq!(due, request);
        }
        assert_eq!(schedule.due(2 * SECOND, 9, Due::Last), Due::No);
        assert!(
            [Due::No, Due::Checkpoint, Due::Last]
                .iter()
                .all(|due| Due::from_code(due.code()) == *due)
        );
    }

    #[test]
    fn the_last_checkpoint_is_due_again_after_a_death() {
        let mut schedule = Schedule::new(None, Some(10 * SECOND));
        for step in 1..=2 {
            let due = schedule.due(10 * SECOND, step, Due::No);
            assert_eq!(due, Due::Last);
            schedule.agreed(due);
            assert!(schedule.has_ended());
            schedule.goes_on();
        }
        // A recovery of 5 s is no step of 5 s.
        let mut schedule = Schedule::new(None, Some(10 * SECOND));
        assert_eq!(schedule.due(SECOND, 1, Due::No), Due::No);
        schedule.goes_on();
        assert_eq!(schedule.due(6 * SECOND, 2, Due::No), Due::No);
        assert_eq!(schedule.due(7 * SECOND, 3, Due::No), Due::No);
    }

    proptest! {
        /// A program whose steps and saves take no longer than before ends before its deadline, and not much too early.
        #[test]
        fn the_last_checkpoint_ends_before_the_deadline(
            step in 1u64..100, cost in 0u64..50, write in 0u64..200, deadline in 2_000u64..100_000,
        ) {
            let ms = Duration::from_millis;
            let mut schedule = Schedule::new(Some(Every::Steps(7)), Some(ms(deadline)));
            let mut now = Duration::ZERO;
            for at in 1.. {
                now += ms(step);
                let due = schedule.due(now, at, Due::No);
                schedule.agreed(due);
                if due.is_due() {
                    now += ms(cost);
                    schedule.saved(now, ms(cost));
                    schedule.written(ms(write));
                }
                if due.is_last() {
                    break;
                }
                prop_assert!(now < ms(deadline));
            }
            prop_assert!(now + ms(write) <= ms(deadline), "{now:?}");
            let early = ms(3 * (step + 2 * cost + write));
            prop_assert!(now + early >= ms(deadline), "{now:?}");
        }
    }
}

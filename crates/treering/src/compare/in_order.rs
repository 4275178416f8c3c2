//! A parallel queue whose results are taken in the order of its tasks.
//!
//! Worker n of w carries out the tasks n, n + w, n + 2w, …, so that each worker knows its next task and
//! can read ahead. Results are handed over in the order of the tasks, whichever worker finishes first. A
//! worker waits when it is further ahead than the permitted lead, which bounds the memory of waiting results.
//!
//! A panic in a worker ends the whole queue with an error: a task that was not carried out must never
//! pass for one that found nothing.

use crate::error::{Error, ErrorKind, Result};
use std::any::Any;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// Size of a queue.
#[derive(Clone, Copy)]
pub(super) struct Workforce {
    /// Number of tasks.
    pub(super) tasks: usize,
    /// Number of workers; the caller's thread is one of them.
    pub(super) threads: usize,
    /// Number of tasks that a worker may be ahead of the first result that is missing.
    pub(super) lead: usize,
}

/// Asks whether the queue has ended, so that a long task can stop early.
pub(super) struct Ended<'q>(&'q AtomicBool);

impl Ended<'_> {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Results that wait for their turn.
struct Queue<R, F> {
    next: usize,
    waiting: BTreeMap<usize, R>,
    take: F,
    ended: bool,
    failed: Option<Error>,
}

/// Carries out all tasks and hands their results to `take` in order, until it breaks.
///
/// `begin` makes the state of a worker on its own thread; `work` carries out one task.
pub(super) fn in_order<W, R: Send>(
    crew: Workforce,
    begin: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, usize, &Ended) -> R + Sync,
    take: impl FnMut(usize, R) -> ControlFlow<()> + Send,
) -> Result<()> {
    let queue =
        Mutex::new(Queue { next: 0, waiting: BTreeMap::new(), take, ended: false, failed: None });
    let changed = Condvar::new();
    let stop = AtomicBool::new(false);
    let end_with = |error: Error| {
        let mut queue = held(&queue);
        queue.failed.get_or_insert(error);
        queue.ended = true;
        stop.store(true, Ordering::Relaxed);
        changed.notify_all();
    };
    let share = |number: usize| {
        let mut worker = begin();
        for at in (number..crew.tasks).step_by(crew.threads) {
            let result = work(&mut worker, at, &Ended(&stop));
            let mut queue = held(&queue);
            queue.waiting.insert(at, result);
            queue.take_ready();
            stop.fetch_or(queue.ended, Ordering::Relaxed);
            changed.notify_all();
            while !queue.ended && queue.next + crew.lead < at {
                queue = changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            if queue.ended {
                return;
            }
        }
    };
    let guarded = |number: usize| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| share(number))) {
            end_with(panicked(panic.as_ref()));
        }
    };
    std::thread::scope(|scope| {
        let guarded = &guarded;
        for number in 1..crew.threads.min(crew.tasks) {
            let thread = std::thread::Builder::new().name("treering-compare".into());
            if let Err(error) = thread.spawn_scoped(scope, move || guarded(number)) {
                end_with(Error::io("cannot start a thread", error));
                return;
            }
        }
        if crew.tasks > 0 {
            guarded(0);
        }
    });
    let queue = queue.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    match queue.failed {
        Some(error) => Err(error),
        None if queue.ended || queue.next == crew.tasks => Ok(()),
        None => Err(Error::new(ErrorKind::Lost, "some tasks of a comparison were not carried out")),
    }
}

impl<R, F: FnMut(usize, R) -> ControlFlow<()>> Queue<R, F> {
    fn take_ready(&mut self) {
        while !self.ended
            && let Some(result) = self.waiting.remove(&self.next)
        {
            let at = self.next;
            self.next += 1;
            self.ended = (self.take)(at, result).is_break();
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::new(ErrorKind::Lost, format!("a worker of the comparison panicked: {text}"))
        .hint("nothing was decided; this is a fault of Treering, please report it")
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn crew(tasks: usize, threads: usize, lead: usize) -> Workforce {
        Workforce { tasks, threads, lead }
    }

    #[test]
    fn results_come_in_the_order_of_their_tasks() {
        for threads in 1..6 {
            for (tasks, lead) in [(0, 0), (1, 0), (100, 0), (100, 7)] {
                let mut taken = Vec::new();
                let work = |_: &mut (), at: usize, _: &Ended| {
                    if at.is_multiple_of(7) {
                        std::thread::yield_now();
                    }
                    at * at
                };
                in_order(
                    crew(tasks, threads, lead),
                    || (),
                    work,
                    |at, square| {
                        taken.push((at, square));
                        ControlFlow::Continue(())
                    },
                )
                .unwrap();
                let all: Vec<_> = (0..tasks).map(|at| (at, at * at)).collect();
                assert_eq!(taken, all, "{threads} threads");
            }
        }
    }

    #[test]
    fn nothing_is_taken_after_the_break() {
        for threads in 1..5 {
            let mut taken = Vec::new();
            in_order(
                crew(1000, threads, 4),
                || (),
                |_, at, _| at,
                |at, _| {
                    taken.push(at);
                    if at == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                },
            )
            .unwrap();
            assert_eq!(taken, (0..=10).collect::<Vec<_>>());
        }
    }

    /// A panic anywhere is an error, and no other worker waits for its result for ever.
    #[test]
    fn a_panic_is_an_error_and_never_a_hang() {
        for threads in 1..5 {
            for bad in [0, 1, 2, 50, 99] {
                let work = |_: &mut (), at: usize, _: &Ended| {
                    if at == bad {
                        panic!("task {at} is bad");
                    }
                };
                let taken = AtomicUsize::new(0);
                let outcome = in_order(
                    crew(100, threads, 0),
                    || (),
                    work,
                    |_, ()| {
                        taken.fetch_add(1, Ordering::Relaxed);
                        ControlFlow::Continue(())
                    },
                );
                let error = outcome.unwrap_err().to_string();
                assert!(error.contains(&format!("task {bad} is bad")), "{error}");
                assert!(taken.into_inner() <= bad);
            }
        }
        let outcome = in_order(
            crew(9, 3, 0),
            || panic!("no worker"),
            |_: &mut (), _, _| (),
            |_, ()| ControlFlow::Continue(()),
        );
        assert!(outcome.unwrap_err().to_string().contains("no worker"));
        let outcome = in_order(
            crew(9, 3, 0),
            || (),
            |_, at, _| at,
            |at, _| {
                assert!(at < 4, "not taken");
                ControlFlow::Continue(())
            },
        );
        assert!(outcome.unwrap_err().to_string().contains("not taken"));
    }
}

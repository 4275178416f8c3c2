//! A word to the person in front of the program when it waits long for its store.
//!
//! A file system that hangs holds up whoever waits for the saves, at the end of a program for ever. Nothing can be done
//! about it from here without losing checkpoints, so it is said: after a minute, then each time after twice as long.

use std::cell::Cell;
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(60);

/// What is said after so much time, if `next` is over; and when it is said again.
fn notice(run: &str, waited: Duration, next: Duration) -> Option<(String, Duration)> {
    let seconds = waited.as_secs();
    let text = format!(
        "treering: run {run:?} has waited for {seconds} s until its checkpoints are written, and goes on waiting. If the \
         file system of its store hangs, checkpoints since the last durable one are lost with the program."
    );
    (waited >= next).then(|| (text, waited.max(next) * 2))
}

/// One time of waiting.
pub(super) struct WaitNotice<'a> {
    run: &'a str,
    begun: Instant,
    next: Cell<Duration>,
}

impl<'a> WaitNotice<'a> {
    pub(super) fn new(run: &'a str) -> Self {
        WaitNotice { run, begun: Instant::now(), next: Cell::new(FIRST) }
    }

    /// Called now and then while the program waits.
    pub(super) fn look(&self) {
        if let Some((text, next)) = notice(self.run, self.begun.elapsed(), self.next.get()) {
            eprintln!("{text}");
            self.next.set(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_after_a_minute_and_then_less_and_less_often() {
        let (mut next, mut said) = (FIRST, Vec::new());
        for second in 0..1000 {
            if let Some((text, then)) = notice("rod", Duration::from_secs(second), next) {
                assert!(
                    text.contains("\"rod\"") && text.contains(&format!("{second} s")),
                    "{text}"
                );
                (next, _) = (then, said.push(second));
            }
        }
        assert_eq!(said, [60, 120, 240, 480, 960]);
    }
}

//! Notices on standard error while a program waits long for its store.
//!
//! A file system that hangs holds up whoever waits for the saves, at the end of a program for ever. Nothing can be done
//! about it from here without losing checkpoints, so it is reported: after a minute, then each time after twice as long.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(60);

/// Notices during one wait, or during one wait after another.
pub(crate) struct WaitNotice {
    /// Whoever waits, and the event that ends the wait.
    who: String,
    until: String,
    first: Duration,
    /// Begin of the wait, and the time after which the next notice is due.
    wait: Mutex<(Instant, Duration)>,
    say: fn(&str),
}

impl WaitNotice {
    pub(crate) fn new(who: String, until: String) -> Self {
        let wait = Mutex::new((Instant::now(), FIRST));
        WaitNotice { who, until, first: FIRST, wait, say: |text| eprintln!("{text}") }
    }

    /// The same with other times and another way to report, for tests.
    #[cfg(test)]
    pub(crate) fn reporting(mut self, first: Duration, say: fn(&str)) -> Self {
        (self.first, self.say) = (first, say);
        self.begin();
        self
    }

    /// Begins another wait.
    pub(crate) fn begin(&self) {
        *self.held() = (Instant::now(), self.first);
    }

    /// Called now and then while the program waits, at least as often as [`WaitNotice::pause`] says.
    pub(crate) fn look(&self) {
        let mut wait = self.held();
        let (begun, next) = *wait;
        if let Some((text, next)) = self.notice(begun.elapsed(), next) {
            (self.say)(&text);
            wait.1 = next;
        }
    }

    /// Time between two looks.
    pub(crate) fn pause(&self) -> Duration {
        self.first / 60
    }

    /// The notice after so much time, if `next` is over; and when the next one is due.
    fn notice(&self, waited: Duration, next: Duration) -> Option<(String, Duration)> {
        let WaitNotice { who, until, .. } = self;
        let seconds = waited.as_secs();
        let text = format!(
            "treering: {who} has waited for {seconds} s until {until}, and goes on waiting. If the file system of its store \
             hangs, checkpoints since the last durable one are lost with the program."
        );
        (waited >= next).then(|| (text, waited.max(next) * 2))
    }

    fn held(&self) -> MutexGuard<'_, (Instant, Duration)> {
        self.wait.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_after_a_minute_and_then_less_and_less_often() {
        let wait = WaitNotice::new("run \"rod\"".into(), "its checkpoints are written".into());
        assert_eq!(wait.pause(), Duration::from_secs(1));
        let (mut next, mut said) = (FIRST, Vec::new());
        for second in 0..1000 {
            if let Some((text, then)) = wait.notice(Duration::from_secs(second), next) {
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

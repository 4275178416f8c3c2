//! Waiting for a store that may hang.
//!
//! A file system that hangs holds up whoever waits for the saves, at the end of a program for ever. Nothing can be done
//! about it from here without losing checkpoints, so a [`WaitNotice`] reports it: after a minute, then each time after
//! twice as long. A question that the program can go on without is an [`Inquiry`]: it is put to the store in another
//! thread, and the program waits for the answer no longer than it likes.

use crate::trace;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(60);

/// The time until the first notice, and a way to report, for tests.
#[cfg(test)]
pub(crate) type NoticeWay = (Duration, fn(&str));

/// Notices during one wait, or during one wait after another.
pub(crate) struct WaitNotice {
    /// The waiting program or run, and the event that ends the wait.
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
        WaitNotice { who, until, first: FIRST, wait, say: report }
    }

    /// The same with other times and another way to report, for tests.
    #[cfg(test)]
    pub(crate) fn reporting(mut self, first: Duration, say: fn(&str)) -> Self {
        (self.first, self.say) = (first, say);
        self.begin();
        self
    }

    /// Does work that may take long, and reports that it does.
    pub(crate) fn during<T>(self, work: impl FnOnce() -> T) -> T {
        let (end, ended) = channel::<()>();
        std::thread::scope(|scope| {
            let watch = move || {
                while ended.recv_timeout(self.pause()) == Err(RecvTimeoutError::Timeout) {
                    self.look();
                }
            };
            // Without another thread nobody reports, and the work is done all the same.
            let _ = std::thread::Builder::new()
                .name("treering-watch".into())
                .spawn_scoped(scope, watch);
            let done = work();
            drop(end);
            done
        })
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
            "treering: {who} has been waiting for {seconds} s until {until}, and keeps waiting. If the file system of its \
             store hangs and the program is ended, checkpoints since the last durable one are lost."
        );
        (waited >= next).then(|| (text, waited.max(next) * 2))
    }

    fn held(&self) -> MutexGuard<'_, (Instant, Duration)> {
        self.wait.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn report(text: &str) {
    trace::warn(text);
    // A program that has closed its standard error goes on all the same.
    let _ = writeln!(std::io::stderr(), "{text}");
}

type Question<A> = Box<dyn FnOnce() -> A + Send>;

/// Questions to a store that may hang, one at a time, put by a thread of their own.
pub(crate) struct Inquiry<A> {
    /// Begins with the first question, and ends with the inquiry and the last answer.
    thread: Option<(Sender<Question<A>>, Receiver<A>)>,
    under_way: bool,
}

impl<A> Default for Inquiry<A> {
    fn default() -> Self {
        Inquiry { thread: None, under_way: false }
    }
}

impl<A: Send + 'static> Inquiry<A> {
    /// Whether a question was not answered in time and has not been answered since, perhaps because the store hangs.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// The answer to a question that is put now, if it comes within `time`: the answer to an earlier one that is still
    /// under way may be out of date, and is dropped.
    pub(crate) fn ask_afresh(
        &mut self,
        time: Duration,
        question: impl FnOnce() -> A + Send + 'static,
    ) -> Option<A> {
        let start = Instant::now();
        if let Some((_, answers)) = self.thread.as_ref().filter(|_| self.under_way) {
            match answers.recv_timeout(time) {
                Ok(_) => self.under_way = false,
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => *self = Inquiry::default(),
            }
        }
        self.ask(time.saturating_sub(start.elapsed()), question)
    }

    /// The answer to a question, if it comes within `time`. Else it is asked for by the next call, whose own question is
    /// not put then: so there is never more than one thread that hangs.
    pub(crate) fn ask(
        &mut self,
        time: Duration,
        question: impl FnOnce() -> A + Send + 'static,
    ) -> Option<A> {
        if self.thread.is_none() {
            self.thread = started();
        }
        let Some((questions, answers)) = &self.thread else { return Some(question()) };
        if !self.under_way {
            self.under_way = questions.send(Box::new(question)).is_ok();
        }
        match answers.recv_timeout(time) {
            Ok(answer) => {
                self.under_way = false;
                Some(answer)
            }
            Err(RecvTimeoutError::Timeout) => None,
            // The question has panicked; the next one begins another thread.
            Err(RecvTimeoutError::Disconnected) => {
                *self = Inquiry::default();
                None
            }
        }
    }
}

/// A thread that answers questions; none if the system has no more threads.
fn started<A: Send + 'static>() -> Option<(Sender<Question<A>>, Receiver<A>)> {
    let (questions, asked) = channel::<Question<A>>();
    let (answer, answers) = channel();
    let work =
        move || asked.into_iter().map(|question| question()).try_for_each(|a| answer.send(a));
    let thread = std::thread::Builder::new().name("treering-ask".into());
    thread.spawn(move || drop(work())).ok().map(|_| (questions, answers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_question_that_hangs_holds_nobody_up_and_is_answered_later() {
        let mut inquiry = Inquiry::default();
        let long = Duration::from_secs(100);
        assert_eq!(inquiry.ask(long, || 1), Some(1));
        let (go, gone) = channel::<()>();
        let hung = move || gone.recv().map_or(0, |()| 2);
        assert_eq!(inquiry.ask(Duration::from_millis(1), hung), None);
        assert!(inquiry.is_under_way());
        // Nothing more is asked meanwhile.
        assert_eq!(inquiry.ask(Duration::ZERO, || panic!("nobody asks this")), None);
        go.send(()).unwrap();
        assert_eq!(inquiry.ask(long, || panic!("nobody asks this either")), Some(2));
        assert!(!inquiry.is_under_way());
        assert_eq!(inquiry.ask(long, || 3), Some(3));
        // Put anew, a question waits for the earlier one and does not take its answer.
        let (go, gone) = channel::<()>();
        let hung = move || gone.recv().map_or(0, |()| 5);
        assert_eq!(inquiry.ask(Duration::from_millis(1), hung), None);
        assert_eq!(inquiry.ask_afresh(Duration::from_millis(1), || panic!("not yet")), None);
        go.send(()).unwrap();
        assert_eq!(inquiry.ask_afresh(long, || 6), Some(6));
        assert!(!inquiry.is_under_way());
        // A panic is no answer, and the next question is.
        assert_eq!(inquiry.ask(long, || panic!("as tests do")), None);
        assert_eq!(inquiry.ask(long, || 4), Some(4));
    }

    #[test]
    fn work_that_takes_long_is_reported_while_it_is_done() {
        static SAID: AtomicU32 = AtomicU32::new(0);
        let notice = WaitNotice::new("run \"rod\"".into(), "its checkpoints are read".into());
        let notice = notice.reporting(Duration::from_millis(60), |text| {
            assert!(text.contains("until its checkpoints are read"), "{text}");
            SAID.fetch_add(1, Ordering::SeqCst);
        });
        let done = notice.during(|| {
            while SAID.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            7
        });
        assert_eq!(done, 7);
    }

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

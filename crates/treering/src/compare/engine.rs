//! Carrying out a comparison: steps one after another, the strips of a step on all cores.
//!
//! The results of strips are added up in order, so that every figure is the same for any number of
//! threads; `in_order` is the queue.

use super::ahead::Ahead;
use super::contents;
use super::fetch::Fetcher;
use super::in_order::{Crew, Ended, in_order};
use super::judge::Number;
use super::list::{DifferenceList, Line};
use super::outcome::{
    Answer, First, NotCompared, Outcome, Picture, Timings, Unmatched, VariableOutcome, index_of,
};
use super::pair::Pair;
use super::settings::{CompareSettings, matches};
use super::side::{FileView, Meter, Side, SideEntry};
use super::strip::{Clock, Stage, StripFinding, StripWorker};
use super::tally::Tally;
use crate::array::Step;
use crate::array::float_env::StandardFloats;
use crate::error::{Error, ErrorKind, Result};
use crate::merkle::bounded::Bound;
use std::ops::{ControlFlow, Range};
use std::time::Instant;

/// How many results of each worker may wait for those before them.
const LEAD: usize = 4;

/// Told how many bytes of both sides' data are done, and of how many.
pub type Progress<'p> = &'p (dyn Fn(u64, u64) + Sync);

/// Compares two sides: all steps, ranks and variables that both have.
pub fn compare(
    a: &dyn Side,
    b: &dyn Side,
    settings: &CompareSettings,
    list: Option<&mut DifferenceList>,
    progress: Progress,
) -> Result<Outcome> {
    settings.check()?;
    let mut state = Comparison::new(a, b, settings, list, progress);
    let (steps, only) = steps(a, b)?;
    state.outcome.unmatched = only;
    for (of_a, of_b) in steps {
        match (a.entries(of_a), b.entries(of_b)) {
            (Ok(left), Ok(right)) => {
                // A file may have any name; two checkpoints of runs agree about names.
                let named = of_a.is_some() && of_b.is_some();
                state.step(of_a, named, &left, &right)?;
                state.contents(of_a, a.files(of_a), b.files(of_b));
            }
            (Err(error), _) | (_, Err(error)) => state.leave_out(of_a, None, error),
        }
        if settings.first && state.outcome.first.is_some() {
            state.outcome.stopped = true;
            break;
        }
    }
    for (side, which) in [(a, "first"), (b, "second")] {
        let notes = side.notes().into_iter();
        state.outcome.notes.extend(notes.map(|note| format!("{which} side: {note}")));
        state.outcome.unreadable += side.unreadable();
    }
    state.finish()
}

/// Says that the second side lacks a step.
const ONLY_IN_THE_FIRST: &str = "step only in the first";

/// A step of the first side and one of the second.
type Steps = Vec<(Option<Step>, Option<Step>)>;

/// The steps to be compared, and those that one side only has.
fn steps(a: &dyn Side, b: &dyn Side) -> Result<(Steps, Vec<Unmatched>)> {
    let (of_a, of_b) = (a.steps()?, b.steps()?);
    // What is one state on both sides is compared, whatever its number.
    if let ([x], [y]) = (&of_a[..], &of_b[..]) {
        return Ok((vec![(*x, *y)], Vec::new()));
    }
    let common: Steps = of_a.iter().filter(|s| of_b.contains(s)).map(|s| (*s, *s)).collect();
    let alone = |steps: &[Option<Step>], others: &[Option<Step>], what: &str| -> Vec<Unmatched> {
        let missing = steps.iter().filter(|step| !others.contains(step));
        missing
            .map(|step| Unmatched {
                what: what.to_string(),
                step: step.map(u64::from),
                rank: None,
                variable: None,
                detail: String::new(),
            })
            .collect()
    };
    let mut only = alone(&of_a, &of_b, ONLY_IN_THE_FIRST);
    only.extend(alone(&of_b, &of_a, "step only in the second"));
    if common.is_empty() {
        let shown = |steps: &[Option<Step>]| match steps.iter().flatten().collect::<Vec<_>>()[..] {
            [] => "none".to_string(),
            [first] => first.to_string(),
            [first, .., last] => format!("{first} to {last}"),
        };
        return Err(Error::new(ErrorKind::Mismatch, "the two sides have no step in common")
            .hint(format!("the first has {}, the second {}", shown(&of_a), shown(&of_b))));
    }
    Ok((common, only))
}

struct Comparison<'s> {
    settings: &'s CompareSettings,
    list: Option<&'s mut DifferenceList>,
    progress: Progress<'s>,
    outcome: Outcome,
    meter: Meter,
    clock: Clock,
    /// The first error by which something was not compared.
    left_out: Option<Error>,
    /// The number of pairs of files whose content beside arrays was compared.
    files: u64,
    start: Instant,
    done: u64,
    /// The most workers there were at a time.
    threads: usize,
}

/// What is done at a time: strips of one pair.
struct Task {
    pair: usize,
    strips: Range<usize>,
}

/// What is known of a pair so far.
#[derive(Default)]
struct Sum {
    tally: Tally,
    /// The first error by which a strip was not compared.
    failed: Option<Error>,
    incomplete: bool,
    undecided: u64,
    mismatched: u64,
    read: u64,
    placed: Option<Range<u64>>,
    pictures: Vec<Picture>,
}

impl<'s> Comparison<'s> {
    fn new(
        a: &dyn Side,
        b: &dyn Side,
        settings: &'s CompareSettings,
        list: Option<&'s mut DifferenceList>,
        progress: Progress<'s>,
    ) -> Self {
        let outcome = Outcome {
            a: a.name(),
            b: b.name(),
            equal: false,
            verdict: Answer::Equal,
            differences: 0,
            bytes_total: 0,
            bytes_read: 0,
            first: None,
            variables: Vec::new(),
            unmatched: Vec::new(),
            contents: Vec::new(),
            not_compared: Vec::new(),
            unreadable: 0,
            stopped: false,
            notes: Vec::new(),
            timings: Timings::default(),
        };
        Comparison {
            settings,
            list,
            progress,
            outcome,
            meter: Meter::default(),
            clock: Clock::default(),
            left_out: None,
            files: 0,
            start: Instant::now(),
            done: 0,
            threads: 0,
        }
    }

    fn step(
        &mut self,
        step: Option<Step>,
        named: bool,
        a: &[SideEntry],
        b: &[SideEntry],
    ) -> Result<()> {
        let matched = self.matched(step, named, a, b)?;
        let mut notes = Vec::new();
        let mut pairs = Vec::new();
        let begun = Instant::now();
        let mut strips = Vec::new();
        for (x, y, bound) in matched {
            let (nan, trees) = (self.settings.nan_equal, self.settings.trees);
            let trouble = x.unread.clone().or_else(|| y.unread.clone()).map_or(Ok(()), Err);
            let pair = trouble.and_then(|()| {
                let mut pair = Pair::new(x, y, bound, nan, trees, &mut notes)?;
                for view in pair.trees.iter().flat_map(|trees| trees.views) {
                    self.meter.add(view.head);
                }
                let strips = pair.strips(nan, &self.meter, &mut notes)?;
                Ok((pair, strips))
            });
            match pair {
                Ok((pair, of_pair)) => {
                    pairs.push(pair);
                    strips.push(of_pair);
                }
                Err(error) => self.leave_out(step, Some(x), error),
            }
        }
        self.clock.add(Stage::Trees, begun);
        self.outcome.bytes_total += pairs.iter().map(|pair| 2 * pair.bytes).sum::<u64>();
        let sums = self.carry_out(step, &pairs, &strips)?;
        for (pair, mut sum) in pairs.iter().zip(sums) {
            if let Some(error) = sum.failed.take() {
                sum.incomplete = true;
                self.leave_out(step, Some(pair.a), error);
            }
            self.add(step, pair, sum);
        }
        notes.retain(|note| !self.outcome.notes.contains(note));
        self.outcome.notes.extend(notes);
        self.done = self.outcome.bytes_total;
        Ok(())
    }

    /// Notes a step or a variable that cannot be compared; everything else is compared all the same.
    fn leave_out(&mut self, step: Option<Step>, entry: Option<&SideEntry>, error: Error) {
        self.left_out.get_or_insert_with(|| error.clone());
        let of_same = |n: &NotCompared| {
            n.step == step.map(u64::from)
                && n.rank == entry.map(|e| e.rank)
                && n.variable.as_ref() == entry.map(|e| &e.description.name)
        };
        // A variable that is compared within several bounds fails once.
        if !self.outcome.not_compared.iter().any(of_same) {
            self.outcome.not_compared.push(NotCompared {
                step: step.map(u64::from),
                rank: entry.map(|entry| entry.rank),
                variable: entry.map(|entry| entry.description.name.clone()),
                why: error.to_string(),
            });
        }
    }

    /// Compares what files hold beside arrays. Who names variables wants those only, and a side without
    /// files has arrays only.
    fn contents(&mut self, step: Option<Step>, a: Result<Vec<FileView>>, b: Result<Vec<FileView>>) {
        let enough = self.settings.first && self.outcome.first.is_some();
        if enough || !self.settings.variables.is_empty() {
            return;
        }
        let found = match (a, b) {
            (Ok(a), Ok(b)) => contents::compare(step, &a, &b),
            (Err(error), _) | (_, Err(error)) => {
                return self.leave_out(step, None, error);
            }
        };
        self.files += found.pairs;
        self.outcome.contents.extend(found.differences);
        self.outcome.not_compared.extend(found.not_compared);
    }

    /// Pairs variables by rank and name; what has no partner, or an unlike one, is noted.
    fn matched<'e>(
        &mut self,
        step: Option<Step>,
        named: bool,
        a: &'e [SideEntry<'e>],
        b: &'e [SideEntry<'e>],
    ) -> Result<Vec<(&'e SideEntry<'e>, &'e SideEntry<'e>, Bound)>> {
        let mut matched = Vec::new();
        let mut trouble = Vec::new();
        let lone = a.len() == 1 && b.len() == 1 && !named;
        let mut unmatched = |what: &str, entry: &SideEntry, detail: String| {
            self.outcome.unmatched.push(Unmatched {
                what: what.to_string(),
                step: step.map(u64::from),
                rank: Some(entry.rank),
                variable: Some(entry.description.name.clone()),
                detail,
            });
        };
        let same = |x: &SideEntry, y: &SideEntry| {
            lone || x.rank == y.rank && x.description.name == y.description.name
        };
        for x in a.iter().filter(|x| self.settings.wants(&x.description.name)) {
            let Some(y) = b.iter().find(|y| same(x, y)) else {
                let ranks = b.iter().all(|y| y.rank != x.rank);
                let what = if ranks { "rank only in the first" } else { "only in the first" };
                unmatched(what, x, String::new());
                continue;
            };
            let (p, q) = (&x.description, &y.description);
            let unlike = match () {
                _ if p.dtype != q.dtype => {
                    Some(("types differ", format!("{} and {}", p.dtype, q.dtype)))
                }
                _ if p.shape != q.shape => {
                    Some(("shapes differ", format!("{} and {}", p.shape, q.shape)))
                }
                _ if p.part != q.part => Some(("parts differ", "they lie elsewhere".to_string())),
                _ if !p.is_ordered_as(q) => {
                    trouble.push((x, orders_differ(&p.name)));
                    continue;
                }
                _ => None,
            };
            match unlike {
                Some((what, detail)) => unmatched(what, x, detail),
                None => {
                    let bounds = match self.settings.bound_of(p)? {
                        Some(bound) => vec![bound],
                        None => own_bounds(x, y),
                    };
                    matched.extend(bounds.into_iter().map(|bound| (x, y, bound)));
                }
            }
        }
        for y in b.iter().filter(|y| self.settings.wants(&y.description.name)) {
            if !a.iter().any(|x| same(x, y)) {
                let ranks = a.iter().all(|x| x.rank != y.rank);
                let what = if ranks { "rank only in the second" } else { "only in the second" };
                unmatched(what, y, String::new());
            }
        }
        for (entry, error) in trouble {
            self.leave_out(step, Some(entry), error);
        }
        Ok(matched)
    }

    /// Compares all strips of all pairs of a step.
    fn carry_out(
        &mut self,
        step: Option<Step>,
        pairs: &[Pair],
        strips: &[Vec<u64>],
    ) -> Result<Vec<Sum>> {
        let tasks = tasks(pairs, strips);
        // A worker that waits for the disk leaves its core to another one.
        let cold = pairs.iter().any(Pair::is_cold);
        let threads = rayon::current_num_threads() * if cold { 2 } else { 1 };
        let threads = threads.min(tasks.len());
        self.threads = self.threads.max(threads);
        let list = self.list.is_some();
        // Lists can be long; without them, a few more results may wait for their turn.
        let lead = if list { 0 } else { LEAD * threads };
        let (settings, meter, clock) = (self.settings, &self.meter, &self.clock);
        let begin = || StripWorker {
            _standard: StandardFloats::set(),
            fetcher: Fetcher::new(settings.reading, settings.mapped),
            ahead: Ahead::new(settings.reading),
            meter,
            clock,
            list,
            pictures: settings.pictures,
            room: Default::default(),
            doubt: Default::default(),
        };
        let work = |worker: &mut StripWorker, at: usize, ended: &Ended| {
            let task = &tasks[at];
            let later = tasks[at..].iter().step_by(threads).skip(1);
            let next = later
                .take_while(|later| later.pair == task.pair)
                .map(|later| strips[later.pair][later.strips.start]);
            let mut found = StripFinding::default();
            for strip in &strips[task.pair][task.strips.clone()] {
                if ended.is_set() {
                    break;
                }
                found = found.join(worker.strip(&pairs[task.pair], *strip, next.clone())?);
            }
            Ok(found)
        };
        let (total, base, progress) =
            (self.outcome.bytes_total, self.outcome.variables.len(), self.progress);
        let mut sums = Sums {
            of_pairs: pairs.iter().map(|_| Sum::default()).collect(),
            list: self.list.take(),
            notes: Vec::new(),
            failed: None,
        };
        let mut done = self.done;
        let take = |at: usize, found: Result<StripFinding>| {
            let task = &tasks[at];
            let pair = &pairs[task.pair];
            let differs = found.as_ref().is_ok_and(|found| found.tally.differences > 0);
            sums.take(task, found, pair, step, base);
            done = total.min(done + 2 * pair.chunk * pair.strip * task.strips.len() as u64);
            progress(done, total);
            match sums.failed.is_some() || settings.first && differs {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let outcome = in_order(Crew { tasks: tasks.len(), threads, lead }, begin, work, take);
        self.list = sums.list;
        self.outcome.notes.extend(sums.notes);
        outcome?;
        match sums.failed {
            Some(error) => Err(error),
            None => Ok(sums.of_pairs),
        }
    }

    /// Adds what was found in a pair to the outcome.
    fn add(&mut self, step: Option<Step>, pair: &Pair, sum: Sum) {
        let description = &pair.a.description;
        let index = |place: u64| index_of(description, place);
        let seen = sum.tally.first.map(|first| first.0..first.0 + 1);
        let place = seen.or(sum.placed);
        let last = |place: &Range<u64>| (place.end - place.start > 1).then(|| index(place.end - 1));
        let nans = match &pair.trees {
            Some(trees) => Some(trees.views.map(|view| view.entry.nans)),
            None if self.settings.first => None,
            None => Some(sum.tally.nans),
        };
        let mut outcome = VariableOutcome {
            name: description.name.clone(),
            step: step.map(u64::from),
            rank: pair.a.rank,
            dtype: description.dtype,
            shape: description.shape.clone(),
            bound: pair.bound,
            values: description.shape.elements().unwrap_or(0),
            differences: 0,
            undecided: sum.undecided,
            nan_differences: 0,
            max_difference: Number(0.0),
            rms: Number(0.0),
            first_index: place.as_ref().map(|place| index(place.start)),
            first_until: place.as_ref().and_then(last),
            at_least: false,
            incomplete: sum.incomplete,
            nans,
            chunks: pair.bytes.div_ceil(pair.chunk),
            mismatched_chunks: sum.mismatched,
            read_chunks: sum.read,
            classes: Default::default(),
            pictures: sum.pictures,
        };
        outcome.fill(&sum.tally);
        outcome.at_least |= sum.incomplete && outcome.differences > 0;
        if let (None, Some(place)) = (&self.outcome.first, &place) {
            let values = sum.tally.first;
            self.outcome.first = Some(First {
                step: step.map(u64::from),
                rank: pair.a.rank,
                variable: description.name.clone(),
                index: index(place.start),
                until: last(place),
                a: values.map(|first| first.1),
                b: values.map(|first| first.2),
            });
        }
        self.outcome.differences += outcome.differences;
        self.outcome.variables.push(outcome);
    }

    /// A bound that was given for a variable that is not there would be missed silently.
    fn check_patterns(&self) -> Result<()> {
        let compared = self.outcome.variables.iter().map(|v| &v.name);
        let others = self.outcome.unmatched.iter().filter_map(|u| u.variable.as_ref());
        let left_out = self.outcome.not_compared.iter().filter_map(|n| n.variable.as_ref());
        let names: Vec<&String> = compared.chain(others).chain(left_out).collect();
        for (pattern, _) in &self.settings.bounds {
            if !self.outcome.stopped && !names.iter().any(|name| matches(pattern, name)) {
                let first =
                    names.first().map_or(String::new(), |name| format!(", such as {name:?}"));
                return Err(Error::usage(format!("no variable matches the bound of {pattern:?}"))
                    .hint(format!("there are {} variables{first}", names.len())));
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Outcome> {
        self.check_patterns()?;
        let outcome = &mut self.outcome;
        outcome.bytes_read = self.meter.total();
        let steps_only = |u: &Unmatched| u.variable.is_none();
        let missing = |u: &Unmatched| self.settings.expected && u.what == ONLY_IN_THE_FIRST;
        let unlike = outcome.unmatched.iter().any(|u| !steps_only(u) || missing(u));
        let undecided = outcome.variables.iter().any(|v| v.undecided > 0);
        outcome.verdict = match () {
            _ if outcome.differences > 0 || unlike => Answer::Different,
            _ if !outcome.contents.is_empty() => Answer::Different,
            _ if undecided || outcome.unreadable > 0 => Answer::Undecided,
            _ if !outcome.not_compared.is_empty() => Answer::Undecided,
            _ => Answer::Equal,
        };
        outcome.equal = outcome.verdict == Answer::Equal;
        let total = self.start.elapsed().as_secs_f64();
        let threads = self.threads.max(1) as f64;
        let share = |stage| self.clock.seconds(stage) / threads;
        outcome.timings = Timings {
            setup: 0.0,
            trees: self.clock.seconds(Stage::Trees),
            walking: share(Stage::Walking),
            sketches: share(Stage::Sketches),
            reading: share(Stage::Reading),
            comparing: share(Stage::Comparing),
            total,
        };
        let t = &mut outcome.timings;
        t.setup = (total - t.trees - t.walking - t.sketches - t.reading - t.comparing).max(0.0);
        let compared = outcome.variables.iter().any(|v| !v.incomplete || v.differences > 0);
        let files = self.files > 0 && self.left_out.is_none() || !outcome.contents.is_empty();
        if !compared && !files && outcome.unmatched.iter().all(steps_only) {
            // An answer about nothing is none: the reason is the answer.
            if let Some(error) = self.left_out {
                return Err(error);
            }
            return Err(Error::new(ErrorKind::NotFound, "there is nothing to compare")
                .hint("no variable matches, or both sides are empty"));
        }
        Ok(self.outcome)
    }
}

/// The bounds that both sides' trees were made for, or that nothing may differ.
fn own_bounds(a: &SideEntry, b: &SideEntry) -> Vec<Bound> {
    let mut common: Vec<Bound> = Vec::new();
    for bound in a.trees.iter().map(|tree| tree.entry.recipe.bound) {
        let there = b.trees.iter().any(|tree| tree.entry.recipe.bound == bound);
        if there && !common.contains(&bound) {
            common.push(bound);
        }
    }
    if common.is_empty() {
        common.push(Bound::EQUAL);
    }
    common
}

fn orders_differ(name: &str) -> Error {
    Error::new(
        ErrorKind::Mismatch,
        format!("variable {name:?} is in Fortran's order on one side only, and is not compared"),
    )
    .hint("save both sides in one order, as with numpy.ascontiguousarray")
}

/// Strips one by one; all at once where going back is expensive.
fn tasks(pairs: &[Pair], strips: &[Vec<u64>]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (pair, strips) in strips.iter().enumerate() {
        let at_once = if pairs[pair].in_order() { strips.len().max(1) } else { 1 };
        let starts = (0..strips.len()).step_by(at_once);
        tasks.extend(starts.map(|s| Task { pair, strips: s..strips.len().min(s + at_once) }));
    }
    tasks
}

/// Results of a step, added up task by task.
struct Sums<'t> {
    of_pairs: Vec<Sum>,
    list: Option<&'t mut DifferenceList>,
    notes: Vec<String>,
    failed: Option<Error>,
}

impl Sums<'_> {
    fn take(
        &mut self,
        task: &Task,
        found: Result<StripFinding>,
        pair: &Pair,
        step: Option<Step>,
        base: usize,
    ) {
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let error = error.at(&pair.a.description.name);
                self.of_pairs[task.pair].failed.get_or_insert(error);
                return;
            }
        };
        if let Some(list) = &mut self.list {
            for (place, a, b) in &found.listed {
                let index = index_of(&pair.a.description, *place);
                let line = Line {
                    step: step.map(u64::from),
                    rank: pair.a.rank,
                    variable: &pair.a.description.name,
                    index: &index,
                    place: *place,
                    number: (base + task.pair) as u32,
                    a: *a,
                    b: *b,
                };
                if let Err(error) = list.add(&line) {
                    self.failed.get_or_insert(error);
                    return;
                }
            }
        }
        if let Some(error) = &found.trouble {
            let name = &pair.a.description.name;
            let note = format!("a tree of {name:?} cannot be used ({error}); values are compared");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        let sum = &mut self.of_pairs[task.pair];
        sum.placed = sum.placed.take().or(found.placed);
        sum.undecided += found.undecided;
        sum.mismatched += found.mismatched;
        sum.read += found.read;
        sum.tally.append(found.tally);
        match sum.pictures.is_empty() {
            true => sum.pictures = found.pictures,
            false => sum.pictures.iter_mut().zip(&found.pictures).for_each(|(p, q)| p.merge(q)),
        }
    }
}

impl StripFinding {
    /// Adds what was found in the next strip.
    fn join(mut self, later: StripFinding) -> StripFinding {
        self.tally.append(later.tally);
        self.undecided += later.undecided;
        self.mismatched += later.mismatched;
        self.read += later.read;
        self.placed = self.placed.or(later.placed);
        self.listed.extend(later.listed);
        self.trouble = self.trouble.or(later.trouble);
        match self.pictures.is_empty() {
            true => self.pictures = later.pictures,
            false => self.pictures.iter_mut().zip(&later.pictures).for_each(|(p, q)| p.merge(q)),
        }
        self
    }
}

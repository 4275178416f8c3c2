//! Carrying out a comparison: steps one after another, the strips of a step on all cores.
//!
//! The results of strips are added up in order, so that every figure is the same for any number of
//! threads; `in_order` is the queue.

use super::ahead::Ahead;
use super::boxes::{EntryPair, SideArray, box_pairs, position};
use super::contents;
use super::fetch::Fetcher;
use super::in_order::{Ended, Workforce, in_order};
use super::judge::{Number, Value};
use super::letters::FoundShare;
use super::list::{DifferenceList, Line};
use super::outcome::{
    Answer, First, NotCompared, Outcome, Picture, Timings, Unmatched, ValueDifference,
    VariableOutcome, bound_maps,
};
use super::pair::Pair;
use super::partners::{PartnerCandidate, PartnerNames, name_as_partners};
use super::reorder::reorder;
use super::settings::{CompareSettings, matches};
use super::side::{FileView, Meter, Side, SideEntry};
use super::strip::{Clock, Stage, StripFinding, StripWorker};
use super::tally::Tally;
use super::tiles::{ArrayTiles, tiles_of};
use super::unpack::unpack;
use super::widen::widen;
use crate::array::float_env::StandardFloats;
use crate::array::{DType, Description, Rank, Shape, Step};
use crate::comm::{Comm, WorkShare, garbled};
use crate::error::{Error, ErrorKind, Result};
use crate::merkle::bounded::Bound;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::ops::{ControlFlow, Range};
use std::time::Instant;

/// Number of results of each worker that may wait for those before them.
const LEAD: usize = 4;

/// Number of variables that may get maps before those that are not among the worst are removed again.
const MAPS_BETWEEN: usize = 64;

/// Number of names that a note lists.
const MOST_NAMES: usize = 5;

/// Called with the bytes of both sides' data that are done, and with their total.
pub type Progress<'p> = &'p (dyn Fn(u64, u64) + Sync);

/// Compares two sides: all steps, ranks and variables that both have. Boxes of a global array are compared as
/// that array, also if the sides have different boxes of it. `list` receives every difference.
///
/// Returns when everything has been read that is needed, on all cores; memory is bounded. Data that cannot be read or
/// decoded is listed in [`Outcome::not_compared`], and everything else is compared. Errors are returned for invalid
/// settings, for sides that cannot be read at all, and if nothing could be compared.
///
/// ```
/// use treering::{Bound, CompareSettings, DType, RawLayout, compare, open_side};
/// # let folder = tempfile::tempdir().unwrap();
/// # let [a, b] = ["a.f64", "b.f64"].map(|name| folder.path().join(name).display().to_string());
/// # std::fs::write(&a, 1.0f64.to_le_bytes()).unwrap();
/// # std::fs::write(&b, 1.5f64.to_le_bytes()).unwrap();
/// let raw = RawLayout::values(DType::F64, None); // most formats describe themselves and need none
/// let (a, b) = (open_side(&a, Some(&raw), true)?, open_side(&b, Some(&raw), true)?);
/// let settings = CompareSettings::within(Bound::abs(1e-6));
/// let outcome = compare(a.as_ref(), b.as_ref(), &settings, None, &|_done, _of| {})?;
/// assert!(!outcome.equal);
/// # Ok::<(), treering::Error>(())
/// ```
pub fn compare(
    a: &dyn Side,
    b: &dyn Side,
    settings: &CompareSettings,
    list: Option<&mut DifferenceList>,
    progress: Progress,
) -> Result<Outcome> {
    settings.check()?;
    let alone = WorkShare::alone();
    carry_out(Comparison::new(a, b, settings, list, progress, &alone), a, b)
}

impl Outcome {
    /// Compares two sides as [`compare`](crate::compare) does, together with other ranks, each of which compares a part;
    /// collective. All ranks open the same sides and give the same settings; one of them may give a list. All get the same
    /// outcome, or an error if one of them has died or failed, also if it could not open its sides.
    pub fn of_ranks(
        comm: &dyn Comm,
        sides: Result<(&dyn Side, &dyn Side)>,
        settings: &CompareSettings,
        list: Option<&mut DifferenceList>,
        progress: Progress,
    ) -> Result<Outcome> {
        let share = WorkShare::of(comm);
        let work = || {
            let (a, b) = sides?;
            settings.check()?;
            let lists = share.join("lists", vec![u8::from(list.is_some())])?;
            let mut state = Comparison::new(a, b, settings, list, progress, &share);
            state.listing = lists.contains(&vec![1]);
            carry_out(state, a, b)
        };
        share.end(work(), |outcome: &Outcome| {
            let Outcome { verdict, differences, first, unmatched, contents, not_compared, .. } =
                outcome;
            format!("{:?}", (verdict, differences, first, unmatched, contents, not_compared))
        })
    }
}

/// Compares the share of one rank with a whole side: of global arrays, only the boxes that the first side has,
/// and none that it lacks.
pub(crate) fn compare_share(
    a: &dyn Side,
    b: &dyn Side,
    settings: &CompareSettings,
) -> Result<Outcome> {
    settings.check()?;
    let alone = WorkShare::alone();
    let mut state = Comparison::new(a, b, settings, None, &|_, _| {}, &alone);
    state.share = true;
    carry_out(state, a, b)
}

fn carry_out(mut state: Comparison, a: &dyn Side, b: &dyn Side) -> Result<Outcome> {
    let settings = state.settings;
    let (steps, only) = steps(a, b)?;
    state.outcome.unmatched = only;
    for (of_a, of_b) in steps {
        match (a.entries(of_a), b.entries(of_b)) {
            (Ok(mut left), Ok(mut right)) => {
                for (entries, side, step) in [(&mut left, a, of_a), (&mut right, b, of_b)] {
                    state.unpack(entries, side, step);
                }
                let (mut files_a, mut files_b) = (a.files(of_a), b.files(of_b));
                name_as_partners(
                    (of_a, &mut left, files_a.as_deref_mut().unwrap_or_default()),
                    (of_b, &mut right, files_b.as_deref_mut().unwrap_or_default()),
                );
                // An array that has no name of its own, or that a person has named, may have any partner.
                let any = may_have_any_partner(&left) || may_have_any_partner(&right);
                if any {
                    name_alike(&left, &mut right);
                }
                let lone = any && is_one(&left) && is_one(&right);
                let names = PartnerNames::of(&left, &right);
                let known = (!lone).then_some(names);
                reorder(&mut left, &mut right, known);
                state.note(widen(&mut left, &mut right, known, settings.integers));
                let no_files = |files: &Result<Vec<FileView>>| {
                    files.as_ref().is_ok_and(|files| files.is_empty())
                };
                state.programs = no_files(&files_a) && no_files(&files_b);
                state.step(of_a, (lone, names), &left, &right)?;
                state.contents(of_a, names, files_a, files_b);
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

/// Marks that this share lacks a variable that another rank may have.
pub(crate) const NOT_IN_SHARE: &str = "not in this share";

/// Marks that the second side lacks a step.
const ONLY_IN_THE_FIRST: &str = "step only in the first";

/// A step of the first side and one of the second.
type StepPairs = Vec<(Option<Step>, Option<Step>)>;

/// The steps to be compared, and those that one side only has.
fn steps(a: &dyn Side, b: &dyn Side) -> Result<(StepPairs, Vec<Unmatched>)> {
    let (of_a, of_b) = (a.steps()?, b.steps()?);
    // A single state on both sides is compared, whatever its number.
    if let ([x], [y]) = (&of_a[..], &of_b[..]) {
        return Ok((vec![(*x, *y)], Vec::new()));
    }
    let common: StepPairs = of_a.iter().filter(|s| of_b.contains(s)).map(|s| (*s, *s)).collect();
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
    /// Whether the first side has a share of its global arrays only.
    share: bool,
    /// The ranks that do parts of it.
    work: &'s WorkShare<'s>,
    list: Option<&'s mut DifferenceList>,
    /// Whether this rank or another one lists differences.
    listing: bool,
    progress: Progress<'s>,
    outcome: Outcome,
    meter: Meter,
    clock: Clock,
    /// The names of all variables, if patterns exclude some.
    names: BTreeSet<String>,
    /// The names that bounds may be for: of variables, with and without their files, and of arrays of which members
    /// are variables.
    known: BTreeSet<String>,
    /// The names of variables that were unpacked, behind the names of files.
    unpacked: BTreeSet<String>,
    /// The first error by which something was not compared.
    left_out: Option<Error>,
    /// The number of pairs of files whose content beside arrays was compared.
    files: u64,
    /// Whether neither side of this step has files: variables are those of programs, and their attributes are known.
    programs: bool,
    /// Whether some variable, or some box of an array, was compared completely.
    compared: bool,
    start: Instant,
    done: u64,
    /// The most workers there were at a time.
    threads: usize,
    /// The variable that holds the first difference.
    first_at: Option<usize>,
    /// Number of variables that got maps since some were removed.
    mapped: usize,
}

/// Unit of work: strips of one pair.
struct Task {
    pair: usize,
    strips: Range<usize>,
}

/// A variable, or a global array, that both sides have.
struct MatchedVariable<'e> {
    /// Of a global array: with its whole extent, and no box.
    description: Description,
    rank: Rank,
    bound: Bound,
    /// Number of values to be compared.
    values: u64,
    /// The boxes of the first side, and the number of those of the second, of a global array.
    boxes: Option<(SideArray<'e>, u64)>,
    pairs: Vec<EntryPair<'e>>,
}

impl<'e> MatchedVariable<'e> {
    /// The boxes of the first side, if pairs are those of the second: several ranks may hold one of these.
    fn holders(&self) -> Option<&SideArray<'e>> {
        let of_second = |(a, b): &&(SideArray, u64)| (a.boxes.len() as u64) < *b;
        self.boxes.as_ref().filter(of_second).map(|(a, _)| a)
    }
}

/// A variable of which pairs are compared, or are proved equal.
struct ComparedVariable<'m, 'e> {
    variable: &'m MatchedVariable<'e>,
    /// Number of pairs whose values are compared.
    count: usize,
    /// Whether some of it is not compared.
    incomplete: bool,
    /// The reason why some of it was compared by its stored bytes.
    undecoded: Option<String>,
}

/// Results of a pair so far.
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
    examples: Vec<(u64, Value, Value)>,
}

impl Sum {
    /// Adds what was found in a tile.
    fn add_tile(&mut self, whole: &Pair, tile: &Pair, mut found: Sum) {
        let place = |place: u64| {
            let order = whole.a.description.order;
            position(&tile.index(place), whole.extent(), order) as u64
        };
        let first = found.tally.first.take().map(|(at, a, b)| (place(at), a, b));
        let before = self.tally.first.take();
        let earliest = before.into_iter().chain(first).min_by_key(|first| first.0);
        self.tally.append(found.tally);
        self.tally.first = earliest;
        self.failed = self.failed.take().or(found.failed);
        self.mismatched += found.mismatched;
        self.read += found.read;
        merge_pictures(&mut self.pictures, found.pictures);
        self.examples.extend(found.examples.into_iter().map(|(at, a, b)| (place(at), a, b)));
    }
}

impl<'s> Comparison<'s> {
    fn new(
        a: &dyn Side,
        b: &dyn Side,
        settings: &'s CompareSettings,
        list: Option<&'s mut DifferenceList>,
        progress: Progress<'s>,
        work: &'s WorkShare<'s>,
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
            excluded: 0,
            unreadable: 0,
            stopped: false,
            notes: Vec::new(),
            timings: Timings::default(),
        };
        Comparison {
            settings,
            share: false,
            work,
            listing: list.is_some(),
            list,
            progress,
            outcome,
            meter: Meter::default(),
            clock: Clock::default(),
            names: BTreeSet::new(),
            known: BTreeSet::new(),
            unpacked: BTreeSet::new(),
            left_out: None,
            files: 0,
            programs: false,
            compared: false,
            start: Instant::now(),
            done: 0,
            threads: 0,
            first_at: None,
            mapped: 0,
        }
    }

    fn step(
        &mut self,
        step: Option<Step>,
        (lone, names): (bool, PartnerNames),
        a: &[SideEntry],
        b: &[SideEntry],
    ) -> Result<()> {
        self.count_excluded(a, b);
        let (a, b) = (names.candidates(a), names.candidates(b));
        let matched = self.matched(step, lone, &a, &b)?;
        let mut notes = Vec::new();
        let (mut pairs, mut strips, mut compared) = (Vec::new(), Vec::new(), Vec::new());
        let mut tiled: Vec<(usize, ArrayTiles)> = Vec::new();
        let begun = Instant::now();
        for variable in &matched {
            let (before, mut incomplete, mut undecoded) = (pairs.len(), false, None);
            for (x, y) in &variable.pairs {
                if let Some(unread) = x.unread.as_ref().or(y.unread.as_ref()) {
                    match self.prove_same(x, y) {
                        Ok(()) => undecoded = Some(unread.why.to_string()),
                        Err(error) => {
                            incomplete = true;
                            self.leave_out(step, Some(x), error);
                        }
                    }
                    continue;
                }
                if !self.settings.nan_equal && (x.may_hide_nan() || y.may_hide_nan()) {
                    incomplete = true;
                    let why =
                        "its values are compared by digests, in which a NaN is like any other";
                    let hint = "leave --nan different out, or exclude the variable";
                    self.leave_out(step, Some(x), Error::usage(why).hint(hint));
                    continue;
                }
                match self.pair((x, y), variable.bound, compared.len(), &mut notes) {
                    Ok((pair, of_pair)) => {
                        let tiles = self.tiles(&pair);
                        strips.push(if tiles.is_some() { Vec::new() } else { of_pair });
                        tiled.extend(tiles.map(|tiles| (pairs.len(), tiles)));
                        pairs.push(pair);
                    }
                    Err(error) => {
                        incomplete = true;
                        self.leave_out(step, Some(x), error);
                    }
                }
            }
            let count = pairs.len() - before;
            if count > 0 || !incomplete {
                compared.push(ComparedVariable { variable, count, incomplete, undecoded });
            }
        }
        self.clock.add(Stage::Trees, begun);
        self.outcome.bytes_total += pairs.iter().map(|pair| 2 * pair.bytes).sum::<u64>();
        let holders: Vec<Option<&SideArray>> =
            compared.iter().map(|compared| compared.variable.holders()).collect();
        let mut sums = self.carry_out(step, &pairs, &strips, &holders)?;
        let in_tiles = tiled.iter().map(|(at, _)| 2 * pairs[*at].bytes).sum::<u64>();
        self.done = self.outcome.bytes_total - in_tiles;
        for (at, tiles) in &tiled {
            sums[*at] = self.in_tiles(step, &pairs[*at], tiles)?;
        }
        let mut parts = pairs.iter().zip(sums);
        for compared in compared {
            let mut parts: Vec<(&Pair, Sum)> = parts.by_ref().take(compared.count).collect();
            for (pair, sum) in &mut parts {
                if let Some(error) = sum.failed.take() {
                    sum.incomplete = true;
                    self.leave_out(step, Some(pair.a), error);
                }
            }
            self.add(step, compared, parts);
        }
        self.note(notes);
        self.done = self.outcome.bytes_total;
        Ok(())
    }

    /// Adds notes, each once.
    fn note(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            if !self.outcome.notes.contains(&note) {
                self.outcome.notes.push(note);
            }
        }
    }

    /// Makes two variables ready to be compared: the strips that have to be looked at.
    fn pair<'e>(
        &self,
        (x, y): (&'e SideEntry<'e>, &'e SideEntry<'e>),
        bound: Bound,
        variable: usize,
        notes: &mut Vec<String>,
    ) -> Result<(Pair<'e>, Vec<u64>)> {
        let (nan, trees) = (self.settings.nan_equal, self.settings.trees);
        let mut pair = Pair::new(x, y, bound, nan, trees, notes)?;
        pair.variable = variable;
        for view in pair.trees.iter().flat_map(|trees| trees.views) {
            self.meter.add(view.head);
        }
        let strips = pair.strips(nan, &self.meter, notes)?;
        Ok((pair, strips))
    }

    /// The tiles in which two variables are compared. Ranks that share the work, lists of differences and a search for the
    /// first one need strips, which are in the order of the array.
    fn tiles(&self, pair: &Pair) -> Option<ArrayTiles> {
        let in_order = self.listing || self.settings.first || self.work.is_shared();
        if in_order { None } else { tiles_of(pair, self.settings.memory) }
    }

    /// Compares two variables tile by tile.
    fn in_tiles(&mut self, step: Option<Step>, whole: &Pair, tiles: &ArrayTiles) -> Result<Sum> {
        let mut sum = Sum::default();
        for tile in tiles.all() {
            let begun = Instant::now();
            let both = rayon::join(|| whole.a.tile(&tile), || whole.b.tile(&tile));
            self.clock.add(Stage::Reading, begun);
            let (a, b) = match both {
                (Ok(a), Ok(b)) => (a, b),
                (Err(error), _) | (_, Err(error)) => {
                    let error = error.at(&whole.a.description.name);
                    sum.failed.get_or_insert(error);
                    continue;
                }
            };
            let nan = self.settings.nan_equal;
            let pair = Pair::new(&a, &b, whole.bound, nan, false, &mut Vec::new())?;
            let strips = vec![(0..pair.bytes.div_ceil(pair.chunk * pair.strip)).collect()];
            let pairs = [pair];
            let found = self.carry_out(step, &pairs, &strips, &[None])?;
            found.into_iter().for_each(|found| sum.add_tile(whole, &pairs[0], found));
            self.done += 2 * pairs[0].bytes;
        }
        sum.examples.sort_by_key(|(place, ..)| *place);
        // A chunk of which several tiles have a part counts once.
        let chunks = whole.bytes.div_ceil(whole.chunk);
        (sum.read, sum.mismatched) = (sum.read.min(chunks), sum.mismatched.min(chunks));
        Ok(sum)
    }

    /// Proves that two variables are equal of which not all values can be read: by the bytes in which they are stored.
    fn prove_same(&self, x: &SideEntry, y: &SideEntry) -> Result<()> {
        let why = [x, y].into_iter().find_map(|entry| entry.unread.as_ref());
        let why =
            why.map_or_else(|| Error::damaged("it cannot be read"), |unread| unread.why.clone());
        // NaN may be among values that nobody has seen.
        let whole = |e: &SideEntry| Bound::EQUAL.of_type(e.description.dtype) == Bound::Bits;
        let exact = [x, y].into_iter().all(|entry| entry.is_described() && whole(entry));
        match (x.stored_digest()?, y.stored_digest()?) {
            (Some(p), Some(q)) if p == q && (exact || self.settings.nan_equal) => Ok(()),
            _ => Err(why),
        }
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

    /// Unpacks the variables of a side, if that is wanted.
    fn unpack(&mut self, entries: &mut [SideEntry], side: &dyn Side, step: Option<Step>) {
        if !self.settings.unpack {
            return;
        }
        let files = side.files(step);
        if files.as_ref().is_ok_and(Vec::is_empty) {
            let note = "has no files that say how numbers are packed: nothing of it was unpacked";
            self.note([format!("{} {note}", side.name())]);
        }
        match files.and_then(|files| unpack(entries, &files)) {
            Ok(names) => self.unpacked.extend(names),
            Err(error) => self.leave_out(step, None, error),
        }
    }

    /// Compares the content of files beside arrays; a side without files has arrays only.
    fn contents(
        &mut self,
        step: Option<Step>,
        names: PartnerNames,
        a: Result<Vec<FileView>>,
        b: Result<Vec<FileView>>,
    ) {
        let enough = self.settings.first && self.outcome.first.is_some();
        if enough {
            return;
        }
        let found = match (a, b) {
            (Ok(a), Ok(b)) => contents::compare(step, &a, &b, names, self.settings, &self.unpacked),
            (Err(error), _) | (_, Err(error)) => {
                return self.leave_out(step, None, error);
            }
        };
        self.files += found.pairs;
        self.outcome.contents.extend(found.differences);
        self.outcome.not_compared.extend(found.not_compared);
        self.names.extend(found.owners);
        self.outcome.excluded += found.excluded;
    }

    /// Compares the attributes of two variables of programs.
    fn attributes(&mut self, step: Option<Step>, x: &SideEntry, y: &SideEntry) {
        let own = self.programs && x.origin.is_none() && y.origin.is_none();
        if own && self.settings.attributes {
            self.outcome.contents.extend(contents::attributes(step, x, y));
        }
    }

    /// Pairs variables by rank and name, and boxes of global arrays by their places; what has no partner, or an
    /// unlike one, is noted. `lone` variables are partners whatever their names are.
    fn matched<'e>(
        &mut self,
        step: Option<Step>,
        lone: bool,
        a: &[PartnerCandidate<'e>],
        b: &[PartnerCandidate<'e>],
    ) -> Result<Vec<MatchedVariable<'e>>> {
        let mut matched = Vec::new();
        let parted = |c: &&PartnerCandidate| c.entry.description.global_box().is_some();
        let arrays: HashSet<&str> = a.iter().chain(b).filter(parted).map(|c| &c.name[..]).collect();
        let mut done: HashSet<&str> = HashSet::new();
        let lone_array = lone && !arrays.is_empty();
        for x in a {
            let array = lone_array || arrays.contains(&x.name[..]);
            let same = |y: &&PartnerCandidate<'e>| {
                lone || x.name == y.name && (array || x.entry.rank == y.entry.rank)
            };
            let y = b.iter().find(same).map(|y| y.entry);
            if !self.settings.wants_pair(x.entry, y) {
                continue;
            }
            self.know(Some(x.entry).into_iter().chain(y));
            if array {
                if !done.insert(&x.name) {
                    continue;
                }
                let of_name = |side: &[PartnerCandidate<'e>]| -> Vec<&'e SideEntry<'e>> {
                    let of_name = |c: &&PartnerCandidate| lone_array || c.name == x.name;
                    side.iter().filter(of_name).map(|c| c.entry).collect()
                };
                let (xs, ys) = (of_name(a), of_name(b));
                if let (Some(p), Some(q)) = (SideArray::of(&xs), SideArray::of(&ys)) {
                    matched.extend(self.matched_array(step, p, q)?);
                    continue;
                }
                if ys.is_empty() {
                    self.unmatched(step, "only in the first", x.entry, String::new());
                    continue;
                }
                // They are no boxes of one array: each rank has its own.
                for x in xs {
                    let y = ys.iter().find(|y| y.rank == x.rank).copied();
                    matched.extend(self.matched_variable(step, x, y, b)?);
                }
                continue;
            }
            if y.is_some() || !self.is_unknown(step, x, b) {
                matched.extend(self.matched_variable(step, x.entry, y, b)?);
            }
        }
        for y in b.iter().filter(|y| self.settings.wants(y.entry)) {
            self.know([y.entry]);
            let array = arrays.contains(&y.name[..]);
            let same = |x: &PartnerCandidate| {
                lone || (array || x.entry.rank == y.entry.rank) && x.name == y.name
            };
            if a.iter().any(same) || array && !done.insert(&y.name) || self.is_unknown(step, y, a) {
                continue;
            }
            let alone = || b.iter().filter(|other| other.name == y.name).count() == 1;
            if self.share && (array || alone()) {
                self.unmatched(step, NOT_IN_SHARE, y.entry, String::new());
                continue;
            }
            let ranks = !array && !a.is_empty() && a.iter().all(|x| x.entry.rank != y.entry.rank);
            let what = if ranks { "rank only in the second" } else { "only in the second" };
            self.unmatched(step, what, y.entry, String::new());
        }
        Ok(matched)
    }

    /// Keeps the names of variables that bounds may be for.
    fn know<'k>(&mut self, entries: impl IntoIterator<Item = &'k SideEntry<'k>>) {
        if !self.settings.bounds.is_empty() || !self.settings.variables.is_empty() {
            self.known.extend(entries.into_iter().flat_map(|entry| entry.names()));
        }
    }

    /// Counts the variables that patterns exclude.
    fn count_excluded(&mut self, a: &[SideEntry], b: &[SideEntry]) {
        if self.settings.exclude.is_empty() {
            return;
        }
        let mut excluded = HashSet::new();
        for entry in a.iter().chain(b) {
            if self.settings.excludes(entry) {
                excluded.insert((entry.rank, &entry.description.name));
            }
            self.names.extend(entry.names());
        }
        self.outcome.excluded += excluded.len() as u64;
    }

    /// Whether a variable without a partner of its name may have one all the same: it, or something of the other side
    /// that it may belong to, is known by its name only. The one that is not known is noted as not compared.
    fn is_unknown(
        &mut self,
        step: Option<Step>,
        one: &PartnerCandidate,
        others: &[PartnerCandidate],
    ) -> bool {
        let above = others.iter().find(|other| other.is_above(one)).map(|other| other.entry);
        let uncertain = one.entry.unread.as_ref().is_some_and(|unread| !unread.certain);
        let own = uncertain || others.iter().any(|other| one.is_above(other));
        let unknown = if own { Some(one.entry) } else { above };
        let Some((entry, unread)) = unknown.and_then(|e| Some((e, e.unread.as_ref()?))) else {
            return false;
        };
        self.leave_out(step, Some(entry), unread.why.clone());
        true
    }

    fn unmatched(&mut self, step: Option<Step>, what: &str, entry: &SideEntry, detail: String) {
        self.outcome.unmatched.push(Unmatched {
            what: what.to_string(),
            step: step.map(u64::from),
            rank: Some(entry.rank),
            variable: Some(entry.description.name.clone()),
            detail,
        });
    }

    /// A variable of one rank, once for each bound, or nothing if it has no partner that is like it.
    fn matched_variable<'e>(
        &mut self,
        step: Option<Step>,
        x: &'e SideEntry<'e>,
        y: Option<&'e SideEntry<'e>>,
        others: &[PartnerCandidate],
    ) -> Result<Vec<MatchedVariable<'e>>> {
        let Some(y) = y else {
            let ranks = !others.is_empty() && others.iter().all(|y| y.entry.rank != x.rank);
            let what = if ranks { "rank only in the first" } else { "only in the first" };
            self.unmatched(step, what, x, String::new());
            return Ok(Vec::new());
        };
        self.attributes(step, x, y);
        let (p, q) = (&x.description, &y.description);
        let described = x.is_described() && y.is_described();
        let unlike = match () {
            _ if !described => None,
            _ if p.dtype != q.dtype || x.is_unlike(y) => {
                Some(("types differ", format!("{} and {}", x.type_name(), y.type_name())))
            }
            _ if p.shape != q.shape => Some(("shapes differ", shapes(&p.shape, &q.shape))),
            _ if p.part != q.part => Some(("boxes differ", "they lie elsewhere".to_string())),
            _ => None,
        };
        if let Some((what, detail)) = unlike {
            self.unmatched(step, what, x, detail);
            return Ok(Vec::new());
        }
        if !p.is_ordered_as(q) {
            self.leave_out(step, Some(x), orders_differ(&p.name));
            return Ok(Vec::new());
        }
        let bounds = match described {
            // No bound applies to what is not known.
            false => vec![Bound::EQUAL],
            true => match self.settings.bound_of(x, Some(y))? {
                Some(bound) => vec![bound],
                None => own_bounds(&[x, y]),
            },
        };
        let variable = |bound| MatchedVariable {
            description: p.clone(),
            rank: x.rank,
            bound,
            values: p.shape.elements().unwrap_or(0),
            boxes: None,
            pairs: vec![(Cow::Borrowed(x), Cow::Borrowed(y))],
        };
        Ok(bounds.into_iter().map(variable).collect())
    }

    /// A global array, once for each bound, or nothing if the two are not alike. Boxes that overlap or leave
    /// gaps are not compared: nobody can tell which value is that of the array.
    fn matched_array<'e>(
        &mut self,
        step: Option<Step>,
        a: SideArray<'e>,
        b: SideArray<'e>,
    ) -> Result<Vec<MatchedVariable<'e>>> {
        let x = a.boxes[0].1;
        // Ranks give a variable of one name the same attributes.
        if let Some((_, y)) = b.boxes.first() {
            self.attributes(step, x, y);
        }
        let unlike = match () {
            _ if a.dtype != b.dtype => Some(("types differ", types(a.dtype, b.dtype))),
            _ if a.global != b.global => Some(("shapes differ", shapes(&a.global, &b.global))),
            _ => None,
        };
        if let Some((what, detail)) = unlike {
            self.unmatched(step, what, x, detail);
            return Ok(Vec::new());
        }
        let whole = |array: &SideArray| Description {
            shape: array.global.clone(),
            order: array.order,
            part: None,
            ..x.description.clone()
        };
        let description = whole(&a);
        let checked = match description.is_ordered_as(&whole(&b)) {
            true => a.check(!self.share, "first").and_then(|()| b.check(true, "second")),
            false => Err(orders_differ(&description.name)),
        };
        if let Err(error) = checked {
            self.leave_out(step, Some(x), error);
            return Ok(Vec::new());
        }
        let entries: Vec<&SideEntry> =
            a.boxes.iter().chain(&b.boxes).map(|(_, entry)| *entry).collect();
        let bounds = match self.settings.bound_of(x, b.boxes.first().map(|(_, y)| *y))? {
            Some(bound) => vec![bound],
            None => own_bounds(&entries),
        };
        let variable = |bound| MatchedVariable {
            description: description.clone(),
            rank: x.rank,
            bound,
            values: a.elements(),
            pairs: box_pairs(&a, &b, self.share),
            boxes: Some((a.clone(), b.boxes.len() as u64)),
        };
        Ok(bounds.into_iter().map(variable).collect())
    }

    /// Compares all strips of all pairs of a step.
    fn carry_out(
        &mut self,
        step: Option<Step>,
        pairs: &[Pair],
        strips: &[Vec<u64>],
        holders: &[Option<&SideArray>],
    ) -> Result<Vec<Sum>> {
        let tasks = tasks(pairs, strips);
        let weight = |task: &Task| {
            let pair = &pairs[task.pair];
            pair.chunk * pair.strip * task.strips.len() as u64
        };
        let weights: Vec<u64> = tasks.iter().map(weight).collect();
        let own = self.work.part(&weights);
        // A worker that waits for the disk leaves its core to another one.
        let cold = pairs.iter().any(Pair::is_cold);
        let threads = rayon::current_num_threads() * if cold { 2 } else { 1 };
        let threads = threads.min(own.len());
        self.threads = self.threads.max(threads);
        let list = self.listing || self.settings.examples > 0;
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
            let of_rank = &tasks[own.clone()];
            let task = &of_rank[at];
            let later = of_rank[at..].iter().step_by(threads).skip(1);
            let next = later
                .take_while(|later| later.pair == task.pair)
                .map(|later| strips[later.pair][later.strips.start]);
            let pair = &pairs[task.pair];
            let mut found = StripFinding::default();
            for strip in &strips[task.pair][task.strips.clone()] {
                if ended.is_set() {
                    break;
                }
                let strip = worker.strip(pair, *strip, next.clone());
                found = found.join(strip.map_err(|error| error.at(&pair.a.description.name))?);
            }
            Ok(found)
        };
        let crew = Workforce { tasks: own.len(), threads, lead };
        let (total, base, progress) =
            (self.outcome.bytes_total, self.outcome.variables.len(), self.progress);
        // Another box of the same array may hold an index before the one that was found.
        let is_enough = |at: usize, earliest: Option<u128>| {
            let pair = &pairs[tasks[at].pair];
            let later = tasks[at + 1..].iter();
            let mut of_same = later.take_while(|task| pairs[task.pair].variable == pair.variable);
            let is_first = |found: u128| {
                of_same.all(|task| {
                    let pair = &pairs[task.pair];
                    pair.position(pair.first_of(strips[task.pair][task.strips.start])) > found
                })
            };
            settings.first && earliest.is_some_and(is_first)
        };
        let first_of = |at: usize, found: &Result<StripFinding>| {
            let first = found.as_ref().ok().and_then(StripFinding::first);
            first.map(|place| pairs[tasks[at].pair].position(place))
        };
        let mut sums = Sums {
            of_pairs: pairs.iter().map(|_| Sum::default()).collect(),
            list: self.list.take(),
            most: self.settings.examples,
            notes: Vec::new(),
            failed: None,
        };
        let mut done = self.done;
        let mut earliest: Option<u128> = None;
        let mut take = |at: usize, found: Result<StripFinding>| {
            let task = &tasks[at];
            let pair = &pairs[task.pair];
            earliest = earliest.into_iter().chain(first_of(at, &found)).min();
            sums.take(task, found, (pair, holders[pair.variable]), step, base);
            done = total.min(done + 2 * weights[at]);
            progress(done, total);
            match sums.failed.is_some() || is_enough(at, earliest) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let outcome = match self.work.is_shared() {
            false => in_order(crew, begin, work, take),
            true => {
                let (mut here, mut found_here) = (None, Vec::<Result<StripFinding>>::new());
                let (before, mut told) = (meter.total(), self.done);
                let keep = |at: usize, mut found: Result<StripFinding>| {
                    let at = own.start + at;
                    here = here.into_iter().chain(first_of(at, &found)).min();
                    // Maps of one variable are merged: they would fill memory and messages.
                    if let (Some(Ok(earlier)), Ok(later)) = (found_here.last_mut(), &mut found)
                        && !settings.first
                        && tasks[at - 1].pair == tasks[at].pair
                    {
                        merge_pictures(&mut later.pictures, std::mem::take(&mut earlier.pictures));
                    }
                    found_here.push(found);
                    told = total.min(told + 2 * weights[at] * self.work.ranks());
                    progress(told, total);
                    match is_enough(at, here) {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                };
                in_order(crew, begin, work, keep).and_then(|()| {
                    let read = meter.total() - before;
                    let found = FoundShare { first: own.start, read, found: found_here };
                    let what = format!("step {step:?} {strips:?}");
                    self.join(&what, &found, tasks.len(), &mut take)
                })
            }
        };
        self.list = sums.list;
        self.outcome.notes.extend(sums.notes);
        outcome?;
        match sums.failed {
            Some(error) => Err(error),
            None => Ok(sums.of_pairs),
        }
    }

    /// Takes what all ranks have found, in the order of tasks.
    fn join(
        &self,
        what: &str,
        own: &FoundShare,
        tasks: usize,
        take: &mut dyn FnMut(usize, Result<StripFinding>) -> ControlFlow<()>,
    ) -> Result<()> {
        let before = self.meter.total() - own.read;
        let mut found: Vec<Option<Result<StripFinding>>> = (0..tasks).map(|_| None).collect();
        let mut read = 0;
        for bytes in self.work.join(what, own.write())? {
            let share = FoundShare::parse(&bytes)?;
            read += share.read;
            let places = found.get_mut(share.first..).unwrap_or_default().iter_mut();
            places.zip(share.found).for_each(|(place, found)| *place = Some(found));
        }
        self.meter.add((before + read).saturating_sub(self.meter.total()));
        for (at, found) in found.into_iter().enumerate() {
            // Parts that a rank has left out lie behind the first difference.
            if take(at, found.ok_or_else(garbled)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Adds what was found in the pairs of a variable to the outcome.
    fn add(&mut self, step: Option<Step>, compared: ComparedVariable, parts: Vec<(&Pair, Sum)>) {
        let ComparedVariable { variable, incomplete, undecoded, .. } = compared;
        let description = &variable.description;
        let found = FoundFirst::of(&parts);
        let index = found.as_ref().map(|found| found.index.clone());
        let until = found.as_ref().and_then(|found| found.until.clone());
        let holder = variable.boxes.as_ref().zip(index.as_ref());
        let holder = holder.and_then(|((boxes, _), index)| boxes.rank_at(index));
        let rank = holder.unwrap_or(variable.rank);
        let mut outcome = VariableOutcome {
            name: description.name.clone(),
            step: step.map(u64::from),
            rank: variable.rank,
            dtype: description.dtype,
            kind: None,
            shape: description.shape.clone(),
            boxes: variable.boxes.as_ref().map(|(a, b)| [a.boxes.len() as u64, *b]),
            bound: variable.bound.of_type(description.dtype),
            values: variable.values,
            differences: 0,
            undecided: 0,
            nan_differences: 0,
            max_difference: Number(0.0),
            times_bound: Number(0.0),
            rms: Number(0.0),
            first_index: index.clone(),
            first_until: until.clone(),
            at_least: false,
            incomplete,
            nans: undecoded.is_none().then_some([0; 2]),
            chunks: 0,
            mismatched_chunks: 0,
            read_chunks: 0,
            classes: Default::default(),
            pictures: Vec::new(),
            examples: Vec::new(),
            undecoded,
        };
        let (mut tally, mut examples) = (Tally::default(), Vec::new());
        let mut kinds = variable.pairs.iter().map(|(x, y)| x.meaning.kind.or(y.meaning.kind));
        let kind = kinds.next().flatten();
        let digests = variable
            .pairs
            .first()
            .is_some_and(|(x, y)| x.meaning.is_of_digests() || y.meaning.is_of_digests());
        self.compared |= parts.is_empty() || parts.iter().any(|(_, sum)| !sum.incomplete);
        for (pair, sum) in parts {
            let nans = match &pair.trees {
                Some(trees) => Some(trees.views.map(|view| view.entry.nans)),
                None if self.settings.first => None,
                None => Some(sum.tally.nans),
            };
            outcome.nans = outcome.nans.zip(nans).map(|(x, y)| [x[0] + y[0], x[1] + y[1]]);
            outcome.undecided += sum.undecided;
            outcome.incomplete |= sum.incomplete;
            outcome.chunks += pair.bytes.div_ceil(pair.chunk);
            outcome.mismatched_chunks += sum.mismatched;
            outcome.read_chunks += sum.read;
            outcome.at_least |= sum.tally.differences > 0 && sum.tally.first.is_none();
            merge_pictures(&mut outcome.pictures, sum.pictures);
            examples.extend(sum.examples.into_iter().map(|(place, a, b)| {
                let (a, b) = pair.shown(place, (a, b));
                (pair.position(place), ValueDifference { index: pair.index(place), a, b })
            }));
            tally.append(sum.tally);
        }
        Picture::slice(&mut outcome.pictures);
        // The first in the order of memory of the whole array.
        examples.sort_by_key(|(position, _)| *position);
        let first = examples.into_iter().take(self.settings.examples);
        outcome.examples = first.map(|(_, example)| example).collect();
        outcome.fill(&tally);
        if digests && outcome.differences > 0 {
            // Digests tell that values differ, and not how much.
            let unknown = Number(f64::NAN);
            (outcome.max_difference, outcome.rms) = (unknown, unknown);
            outcome.classes = Default::default();
        }
        outcome.kind = kind.map(str::to_string);
        outcome.at_least |= outcome.incomplete && outcome.differences > 0;
        if let (None, Some(found)) = (&self.outcome.first, found) {
            let (a, b) = found.values.unzip();
            self.first_at = Some(self.outcome.variables.len());
            self.outcome.first = Some(First {
                step: step.map(u64::from),
                rank,
                variable: description.name.clone(),
                index: found.index,
                until: found.until,
                global: variable.boxes.is_some(),
                a,
                b,
            });
        }
        self.outcome.differences += outcome.differences;
        self.mapped += usize::from(!outcome.pictures.is_empty());
        self.outcome.variables.push(outcome);
        if self.mapped > MAPS_BETWEEN {
            bound_maps(&mut self.outcome.variables, self.first_at);
            self.mapped = 0;
        }
    }

    /// A bound that was given for a variable that is not there would be missed silently.
    fn check_patterns(&self) -> Result<()> {
        let compared = self.outcome.variables.iter().map(|v| &v.name);
        let others = self.outcome.unmatched.iter().filter_map(|u| u.variable.as_ref());
        let left_out = self.outcome.not_compared.iter().filter_map(|n| n.variable.as_ref());
        let names: Vec<&String> = compared.chain(others).chain(left_out).collect();
        let bounds = self.settings.bounds.iter().map(|(pattern, _)| (pattern, "the bound of"));
        let chosen = self.settings.variables.iter().map(|pattern| (pattern, "the pattern"));
        for (pattern, what) in bounds.chain(chosen) {
            let mut known = names.iter().copied().chain(&self.known);
            // An array without a name of its own is known by that of its file.
            let known = known.any(|name| !name.is_empty() && matches(pattern, name));
            if !self.outcome.stopped && !known {
                let first =
                    names.first().map_or(String::new(), |name| format!(", such as {name:?}"));
                return Err(Error::usage(format!("no variable matches {what} {pattern:?}")).hint(
                    match names.len() {
                        1 => format!("there is one variable: {:?}", names[0]),
                        many => format!("there are {many} variables{first}"),
                    },
                ));
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Outcome> {
        // Variables that match may be those of other ranks.
        if !self.share {
            self.check_patterns()?;
            if !self.outcome.stopped {
                self.settings.check_exclude(&self.names)?;
            }
        }
        bound_maps(&mut self.outcome.variables, self.first_at);
        let outcome = &mut self.outcome;
        outcome.notes.extend(undecoded_note(&outcome.variables));
        if outcome.excluded > 0 {
            let noun = if outcome.excluded == 1 { "item was" } else { "items were" };
            outcome.notes.push(format!("{} {noun} excluded by patterns", outcome.excluded));
        }
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
        let compared = self.compared || outcome.differences > 0;
        // Files of which every array is left out on request say nothing about their values.
        let whole = self.left_out.is_none() && outcome.excluded == 0;
        let files = self.files > 0 && whole || !outcome.contents.is_empty();
        if !compared && !files && outcome.unmatched.iter().all(steps_only) {
            // An answer about nothing is none: the reason is the answer.
            if let Some(error) = self.left_out {
                return Err(error);
            }
            return Err(Error::new(ErrorKind::NotFound, "there is nothing to compare")
                .hint("no variable matches, all are excluded, or both sides are empty"));
        }
        Ok(self.outcome)
    }
}

/// A note about variables that are equal by their stored bytes, as far as there are any.
fn undecoded_note(variables: &[VariableOutcome]) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    let mut why = None;
    for variable in variables {
        if let Some(reason) = &variable.undecoded
            && !names.contains(&&variable.name[..])
        {
            names.push(&variable.name);
            why = why.or(Some(reason));
        }
    }
    let (why, count) = (why?, names.len());
    let more = if count > MOST_NAMES { ", …" } else { "" };
    names.truncate(MOST_NAMES);
    let names = names.join(", ");
    let (noun, have) =
        if count == 1 { ("variable was", "has") } else { ("variables were", "have") };
    Some(format!(
        "{count} {noun} not decoded and {have} the same stored bytes: {names}{more} ({why})"
    ))
}

/// The first difference of a variable.
struct FoundFirst {
    index: Vec<u64>,
    /// The last index at which it may be, where only sketches tell.
    until: Option<Vec<u64>>,
    values: Option<(Value, Value)>,
}

impl FoundFirst {
    /// The lowest in the order of memory of the whole array.
    fn of(parts: &[(&Pair, Sum)]) -> Option<FoundFirst> {
        let place = |(pair, sum): &(&Pair, Sum)| {
            let seen = sum.tally.first.as_ref().map(|first| first.0..first.0 + 1);
            let place = seen.or(sum.placed.clone())?;
            Some((pair.position(place.start), place))
        };
        let places = parts.iter().filter_map(|part| Some((place(part)?, part)));
        let ((_, place), (pair, sum)) = places.min_by_key(|((position, _), _)| *position)?;
        Some(FoundFirst {
            index: pair.index(place.start),
            until: (place.end - place.start > 1).then(|| pair.index(place.end - 1)),
            values: sum.tally.first.clone().map(|(place, a, b)| pair.shown(place, (a, b))),
        })
    }
}

/// If each side is one array of records, names the parts of the second as those of the first: a file may have any name.
fn name_alike(a: &[SideEntry], b: &mut [SideEntry]) {
    let array = |side: &[SideEntry]| -> Option<String> {
        let array = side.first()?.meaning.array.clone()?;
        side.iter().all(|entry| entry.meaning.array.as_ref() == Some(&array)).then_some(array)
    };
    let (Some(of_a), Some(of_b)) = (array(a), array(b)) else { return };
    let origin = a.first().and_then(|entry| entry.origin.clone());
    for entry in b {
        let suffix = entry.description.name.strip_prefix(&of_b).unwrap_or_default();
        entry.description.name = format!("{of_a}{suffix}");
        entry.origin = origin.clone();
        entry.meaning.array = Some(of_a.clone());
    }
}

/// Whether a side is an array without a name of its own, such as that of an `.npy` file, or one that a person has named.
fn may_have_any_partner(entries: &[SideEntry]) -> bool {
    entries.iter().all(|entry| entry.meaning.chosen || entry.array_name().is_empty())
}

/// Whether there is one variable, or one global array in boxes.
fn is_one(entries: &[SideEntry]) -> bool {
    let boxes_of_one = entries.windows(2).all(|two| {
        let [p, q] = [&two[0].description, &two[1].description];
        p.global_box().is_some() && q.global_box().is_some() && p.name == q.name
    });
    !entries.is_empty() && boxes_of_one
}

fn types(a: DType, b: DType) -> String {
    format!("{a} and {b}")
}

fn shapes(a: &Shape, b: &Shape) -> String {
    format!("{a} and {b}")
}

/// The bounds that the program or a golden file told, if all entries have trees of them, or that nothing may differ.
fn own_bounds(entries: &[&SideEntry]) -> Vec<Bound> {
    let holds = |entry: &&SideEntry| entry.description.bytes() != Some(0);
    let some: Vec<&SideEntry> = entries.iter().copied().filter(holds).collect();
    let trees = some.iter().flat_map(|entry| &entry.trees);
    let mut common: Vec<Bound> = Vec::new();
    for bound in trees.filter(|tree| tree.declares).map(|tree| tree.entry.recipe.bound) {
        let has = |entry: &&SideEntry| entry.trees.iter().any(|t| t.entry.recipe.bound == bound);
        if some.iter().all(has) && !common.contains(&bound) {
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
        format!(
            "variable {name:?} is in Fortran's order on one side only, and has no values on one"
        ),
    )
    .hint("trees follow the order of memory: make them of arrays in one order")
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
    /// Number of examples of each pair.
    most: usize,
    notes: Vec<String>,
    failed: Option<Error>,
}

impl Sums<'_> {
    fn take(
        &mut self,
        task: &Task,
        found: Result<StripFinding>,
        (pair, holders): (&Pair, Option<&SideArray>),
        step: Option<Step>,
        base: usize,
    ) {
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.of_pairs[task.pair].failed.get_or_insert(error);
                return;
            }
        };
        let examples = &mut self.of_pairs[task.pair].examples;
        let few = self.most.saturating_sub(examples.len());
        examples.extend(found.listed.iter().take(few).cloned());
        if let Some(list) = &mut self.list {
            for (place, a, b) in &found.listed {
                let index = pair.index(*place);
                let holder = holders.and_then(|array| array.rank_at(&index));
                let (a, b) = pair.shown(*place, (a.clone(), b.clone()));
                let line = Line {
                    step: step.map(u64::from),
                    rank: holder.unwrap_or(pair.a.rank),
                    variable: &pair.a.description.name,
                    index: &index,
                    place: pair.position(*place) as u64,
                    number: (base + pair.variable) as u32,
                    a,
                    b,
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
        merge_pictures(&mut sum.pictures, found.pictures);
    }
}

fn merge_pictures(pictures: &mut Vec<Picture>, others: Vec<Picture>) {
    match pictures.is_empty() {
        true => *pictures = others,
        false => pictures.iter_mut().zip(&others).for_each(|(p, q)| p.merge(q)),
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
        merge_pictures(&mut self.pictures, later.pictures);
        self
    }

    /// The place of the first difference.
    fn first(&self) -> Option<u64> {
        let seen = self.tally.first.as_ref().map(|first| first.0);
        seen.or_else(|| self.placed.as_ref().map(|place| place.start))
    }
}

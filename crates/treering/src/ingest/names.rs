//! Rules that read the step and the rank of a file from its name.
//!
//! The rank is the last number of the path below the folder, and the step is the last of the others;
//! a lone number is the step, of rank 0. A date, or a date and a time, is the step, and only a number behind it is a
//! rank. A pattern replaces the rule for either of them. The similar
//! name of a file is its name without these numbers, so that files of successive steps share it.
//!
//! This is how a service learns which step a file belongs to. Once the files of a set are known, their ranks are decided
//! together, in the same way for files that a person names and for those that a service has found at rest: a number is a
//! rank only if files differ in it and in nothing else, or if it stands
//! behind the word rank. Files whose names differ in more never matter: `mesh2.h5` keeps its name beside `s.1` and `s.2`.
//! Dates and numbers that no communicator has ranks for are none.

use super::RankFile;
use crate::array::Rank;
use crate::error::{Error, Result};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::LazyLock;

/// Rules that read the step and the rank of a file from its name.
///
/// ```
/// use treering::FileRules;
/// let file = FileRules::default().read("step_000100/rank_3.h5").unwrap();
/// assert_eq!((file.step, file.rank), (100, 3));
/// let rules = FileRules::new(Some(r"plt(\d+)"), None)?;
/// assert_eq!(rules.read("plt00100/Level_0/Cell_D_00003").unwrap().step, 100);
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FileRules {
    step: Option<Regex>,
    rank: Option<Regex>,
    /// Whether all files are of rank 0.
    no_ranks: bool,
}

/// Step and rank of a file, as its name states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// Step.
    pub step: u64,
    /// The number that may be its rank. Default: 0. [`rank_files`](crate::rank_files) decides, for all files of a set.
    pub rank: u32,
    /// The name with `{step}` and `{rank}` in place of the numbers.
    pub like: String,
    /// Length of the leading part of the path that ends with the component that holds the step.
    pub step_folder: usize,
}

impl FileRules {
    /// Rules with patterns: regular expressions whose groups match numbers. The rank has one group. The groups of a step
    /// are read as one number, as in `(\d{4})-(\d\d)-(\d\d)`.
    pub fn new(step: Option<&str>, rank: Option<&str>) -> Result<FileRules> {
        let step = step.map(|text| grouped(text, "step")).transpose()?;
        let rank = rank.map(|text| grouped(text, "rank")).transpose()?;
        if let Some(rank) = rank.as_ref().filter(|rank| rank.captures_len() > 2) {
            return Err(Error::usage(format!(
                "invalid pattern of the rank \"{rank}\": it has several groups"
            ))
            .hint("write a regular expression with one group, such as 'rank(\\d+)'"));
        }
        Ok(FileRules { step, rank, no_ranks: false })
    }

    /// The same rules for files that are all of rank 0, whatever numbers their names have.
    #[must_use]
    pub fn without_ranks(self) -> Self {
        FileRules { rank: None, no_ranks: true, ..self }
    }

    /// Whether ranks are found by the place of their number alone.
    pub(super) fn guesses_ranks(&self) -> bool {
        self.rank.is_none() && !self.no_ranks
    }

    /// Reads step and rank from a path below a folder. The error completes a sentence that begins with
    /// the name.
    pub fn read(&self, name: &str) -> std::result::Result<FileName, String> {
        let (step, rank) = self.places(name);
        if step.is_empty() {
            return Err("names no step".into());
        }
        let digits: String = step.iter().map(|place| digits(&name[place.clone()])).collect();
        let number: u64 =
            digits.parse().map_err(|_| "has a step that is not a whole number of up to 64 bits")?;
        let of_rank = |place: &Range<usize>| name[place.clone()].parse::<u32>();
        let own = rank
            .as_ref()
            .map_or(Ok(0), of_rank)
            .map_err(|_| "has a rank that is not a whole number of up to 32 bits")?;
        let in_step = |place: &Range<usize>| step.iter().any(|step| overlap(place, step));
        if rank.as_ref().is_some_and(in_step) {
            return Err("has the same number for its step and its rank".into());
        }
        // A step that is written twice, in the folder and in the file, is left out twice.
        let is_rank = |n: &Range<usize>| rank.as_ref().is_some_and(|rank| overlap(rank, n));
        let again = |n: &Range<usize>| {
            !in_step(n) && !is_rank(n) && digits_of(&name[n.clone()]) == Some(number)
        };
        let times = times(name);
        let others = apart(&numbers(name), &times).into_iter().chain(times);
        let mut marks: Vec<_> = others.filter(again).map(|place| (place, "{step}")).collect();
        marks.extend(step.iter().map(|place| (place.clone(), "{step}")));
        marks.extend(rank.map(|place| (place, "{rank}")));
        let end = step.iter().map(|place| place.end).max().unwrap_or(0);
        let like = marked(name, marks);
        let step_folder = name[end..].find('/').map_or(name.len(), |slash| end + slash);
        Ok(FileName { step: number, rank: own, like, step_folder })
    }

    /// The places of the step, and that of the rank.
    fn places(&self, name: &str) -> (Vec<Range<usize>>, Option<Range<usize>>) {
        let times = times(name);
        let numbers = apart(&numbers(name), &times);
        let last_but = |from: &[Range<usize>]| apart(&numbers, from).pop();
        let behind = |time: &Range<usize>| numbers.iter().rfind(|n| n.start >= time.end).cloned();
        let rank = self.rank.as_ref().map(|rank| group(rank, name).into_iter().next());
        let (step, rank) = match (&self.step, rank, times.last()) {
            (Some(step), Some(rank), _) => (group(step, name), rank),
            (Some(step), None, _) => {
                let step = group(step, name);
                let rank = last_but(&step);
                (step, rank)
            }
            (None, Some(rank), Some(time)) => (vec![time.clone()], rank),
            (None, Some(rank), None) => {
                let step = last_but(rank.as_slice());
                (Vec::from_iter(step), rank)
            }
            (None, None, Some(time)) => (vec![time.clone()], behind(time)),
            (None, None, None) => match numbers.as_slice() {
                [.., step] if self.no_ranks => (vec![step.clone()], None),
                [] => (Vec::new(), None),
                [step] => (vec![step.clone()], None),
                [.., step, rank] => (vec![step.clone()], Some(rank.clone())),
            },
        };
        (step, rank.filter(|_| !self.no_ranks))
    }

    /// The files of a set whose step is known, by their names below a folder.
    pub(super) fn rank_files(&self, files: &[(String, PathBuf)]) -> Result<Vec<RankFile>> {
        let ranks = self.ranks(files)?;
        let file = |((name, path), rank): (&(String, PathBuf), Option<RankNumber>)| {
            let marks = rank.iter().map(|rank| (rank.place.clone(), "{rank}")).collect();
            let like = marked(name, marks);
            let rank = Rank(rank.map_or(0, |rank| rank.rank));
            RankFile { rank, path: path.clone(), name: name.clone(), like }
        };
        Ok(files.iter().zip(ranks).map(file).collect())
    }

    /// The same for files whose step was read from their names ([`read`](Self::read)): ranks are the same, and the place of
    /// the step is known, so that it is left out however many digits it has.
    pub(super) fn rank_files_of_step(&self, files: &[(String, PathBuf)]) -> Result<Vec<RankFile>> {
        let mut ranked = self.rank_files(files)?;
        for (file, rank) in ranked.iter_mut().zip(self.ranks(files)?) {
            let rank = rank.map(|rank| rank.place);
            let is_free = |place: &Range<usize>| rank.iter().all(|rank| !overlap(rank, place));
            let steps = self.places(&file.name).0.into_iter().filter(is_free);
            let mut marks: Vec<_> = steps.map(|place| (place, "{step}")).collect();
            marks.extend(rank.iter().map(|place| (place.clone(), "{rank}")));
            file.like = marked(&file.name, marks);
        }
        Ok(ranked)
    }

    /// The ranks of the files of a set; `None` for files that belong to none.
    fn ranks(&self, files: &[(String, PathBuf)]) -> Result<Vec<Option<RankNumber>>> {
        let places = files.iter().map(|(name, _)| self.rank_place(name));
        let places: Vec<Option<Range<usize>>> = places.collect::<Result<_>>()?;
        let mut groups: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for ((name, _), place) in files.iter().zip(&places) {
            if let Some((rank, like)) = place.as_ref().and_then(|place| ranked(name, place)) {
                groups.entry(like).or_default().insert(rank);
            }
        }
        let told = self.rank.is_some();
        let several = |like: &str| groups.get(like).is_some_and(|ranks| ranks.len() > 1);
        let is_rank = |like: &str| told || several(like) || says_rank(like);
        let rank = |((name, _), place): (&(String, PathBuf), Option<Range<usize>>)| {
            let Some(place) = place else { return Ok(None) };
            match ranked(name, &place).filter(|(_, like)| is_rank(like)) {
                Some((rank, _)) => Ok(Some(RankNumber { rank, place })),
                // A pattern says that it is one.
                None if told => Err(Error::usage(format!(
                    "the rank in {name:?} is not a whole number of up to 32 bits"
                ))
                .hint("set the position of the rank in the name with --rank-pattern")),
                None => Ok(None),
            }
        };
        files.iter().zip(places).map(rank).collect()
    }

    /// The place of a number that may be a rank: the last one of a name that is not in the step's pattern, or the group of
    /// the rank's pattern, which then has to match once.
    fn rank_place(&self, name: &str) -> Result<Option<Range<usize>>> {
        match &self.rank {
            _ if self.no_ranks => Ok(None),
            Some(pattern) => only_match(pattern, name).map(Some),
            None => {
                let step = self.step.as_ref().map_or(Vec::new(), |step| group(step, name));
                Ok(apart(&apart(&numbers(name), &times(name)), &step).pop())
            }
        }
    }
}

/// The rank of a file, and its place in the name.
struct RankNumber {
    rank: u32,
    place: Range<usize>,
}

/// A name with marks in place of numbers.
fn marked(name: &str, mut marks: Vec<(Range<usize>, &str)>) -> String {
    marks.sort_by_key(|(place, _)| place.start);
    let mut out = name.to_string();
    for (place, mark) in marks.into_iter().rev() {
        out.replace_range(place, mark);
    }
    out
}

/// The fewest digits of a number that is taken for a step that is known: `mesh2.h5` has a 2 at every step.
const STEP_DIGITS: usize = 2;

/// The name of a file of a step with `{step}` in place of it, so that files of successive steps share it. It depends on
/// the name and the step alone.
pub(super) fn without_step(name: &str, step: u64) -> String {
    let times = times(name);
    let numbers = apart(&numbers(name), &times);
    let is_step = |place: &Range<usize>| {
        place.len() >= STEP_DIGITS && digits_of(&name[place.clone()]) == Some(step)
    };
    let mut places: Vec<Range<usize>> = numbers.into_iter().chain(times).filter(is_step).collect();
    places.sort_by_key(|place| place.start);
    let mut out = name.to_string();
    for place in places.into_iter().rev() {
        out.replace_range(place, "{step}");
    }
    out
}

/// Whether a name without its rank has the word rank before it.
fn says_rank(like: &str) -> bool {
    let before = like.split("{rank}").next().unwrap_or_default().trim_end_matches(['_', '-', '.']);
    before.to_ascii_lowercase().ends_with("rank")
}

/// The rank at a place of a name, and the name without it.
fn ranked(name: &str, place: &Range<usize>) -> Option<(u32, String)> {
    let rank = name[place.clone()].parse().ok()?;
    Some((rank, format!("{}{{rank}}{}", &name[..place.start], &name[place.end..])))
}

/// Dates, and dates with times: 2024-01-31, 2024-01-31_12:00:00 (also with _, - or . in the time), 2024-01-31_120000,
/// 2024-01-31-43200 (seconds of the day), 2024-01-31T12, 20240131, 2024013112, 202401311200, 20240131120000,
/// 20240131_120000, 20240131T1200.
static TIMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let date = r"(?:19|20|21)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])";
    let compact = r"(?:19|20|21)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])";
    let (hour, more) = (r"(?:[01]\d|2[0-3])", r"[0-5]\d");
    let clock = format!("{hour}[:_.-]{more}(?:[:_.-]{more})?");
    let close = format!("{hour}(?::?{more}(?::?{more})?)?");
    // Shorter digits behind a date may be a rank.
    let six = format!("[_-]{hour}{more}{more}");
    let of_day = r"-[0-8]\d{4}";
    Regex::new(&format!(
        "{date}(?:T{close}|[T_ -]{clock}|{six}|{of_day})?|{compact}(?:T{close}|{six}|{hour}(?:{more}){{0,2}})?"
    ))
    .ok()
});

/// Places of dates and times in a name. One within a longer number is none.
fn times(name: &str) -> Vec<Range<usize>> {
    let Some(pattern) = TIMES.as_ref() else { return Vec::new() };
    let digit = |at: usize| name.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let whole = |at: Range<usize>| {
        let found = pattern.find(&name[at.clone()]).map(|found| found.range());
        found == Some(0..at.len()) && !digit(at.end)
    };
    let mut all = Vec::new();
    for found in pattern.find_iter(name).map(|found| found.range()) {
        if found.start > 0 && digit(found.start - 1) {
            continue;
        }
        // A number behind it, such as a rank, may begin like minutes or seconds.
        let shorter = found.clone().rev().filter(|end| !digit(*end));
        let ends = std::iter::once(found.end).chain(shorter);
        all.extend(ends.map(|end| found.start..end).find(|at| whole(at.clone())));
    }
    all
}

fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

fn digits_of(text: &str) -> Option<u64> {
    digits(text).parse().ok()
}

/// The places that overlap none of others.
fn apart(places: &[Range<usize>], others: &[Range<usize>]) -> Vec<Range<usize>> {
    let free = |place: &&Range<usize>| !others.iter().any(|other| overlap(place, other));
    places.iter().filter(free).cloned().collect()
}

/// The group of a pattern that must match exactly once.
fn only_match(pattern: &Regex, name: &str) -> Result<Range<usize>> {
    let mut found = pattern.captures_iter(name);
    let group = found.next().and_then(|captures| captures.get(1)).map(|g| g.range());
    match (group, found.next()) {
        (Some(group), None) => Ok(group),
        (None, _) => Err(Error::usage(format!("{pattern} does not match {name:?}"))
            .hint("every file needs a rank")),
        (Some(_), Some(_)) => Err(Error::usage(format!("{pattern} matches {name:?} twice"))
            .hint("write a pattern that matches the rank only")),
    }
}

/// Compiles a pattern whose groups are the number of a step or a rank.
fn grouped(text: &str, what: &str) -> Result<Regex> {
    let bad = |why: String| {
        Error::usage(format!("invalid pattern of the {what} {text:?}: {why}"))
            .hint(format!("write a regular expression with a group, such as '{what}(\\d+)'"))
    };
    let pattern = Regex::new(text).map_err(|e| bad(e.to_string().replace('\n', " ")))?;
    match pattern.captures_len() {
        2.. => Ok(pattern),
        _ => Err(bad("it has no group".into())),
    }
}

/// Positions of the numbers in a name. Digits of an extension such as `.h5` do not count, unless the
/// extension is nothing but a number.
fn numbers(name: &str) -> Vec<Range<usize>> {
    let end = match name.rfind('.') {
        Some(dot) if dot + 1 < name.len() && !name[dot + 1..].contains('/') => {
            let number = name[dot + 1..].bytes().all(|b| b.is_ascii_digit());
            if number { name.len() } else { dot }
        }
        _ => name.len(),
    };
    let digit = |at: usize| name.as_bytes()[at].is_ascii_digit();
    let starts = (0..end).filter(|at| digit(*at) && (*at == 0 || !digit(at - 1)));
    starts.map(|start| start..(start..end).find(|at| !digit(*at)).unwrap_or(end)).collect()
}

/// The groups of the first match; none if there is none.
fn group(pattern: &Regex, name: &str) -> Vec<Range<usize>> {
    let groups = pattern.captures(name).into_iter();
    groups
        .flat_map(|found| found.iter().skip(1).flatten().map(|g| g.range()).collect::<Vec<_>>())
        .collect()
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Whether a file or folder of this name is hidden, or temporary by convention.
pub(super) fn is_passing(name: &str) -> bool {
    let endings = [".tmp", ".temp", ".part", ".partial", "~"];
    name.starts_with('.') || endings.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(naming: &FileRules, name: &str) -> (u64, u32, String) {
        let named = naming.read(name).unwrap();
        (named.step, named.rank, named.like)
    }

    #[test]
    fn names_tell_steps_and_ranks() {
        let plain = FileRules::default();
        for (name, step, rank, like) in [
            ("step_000100/rank_3.h5", 100, 3, "step_{step}/rank_{rank}.h5"),
            ("ckpt.000100.3.h5", 100, 3, "ckpt.{step}.{rank}.h5"),
            ("ckpt.000100.3", 100, 3, "ckpt.{step}.{rank}"),
            ("restart_000100.nc", 100, 0, "restart_{step}.nc"),
            ("a.b1c_7.h5", 1, 7, "a.b{step}c_{rank}.h5"),
            ("step_100/state_0100.0003.h5", 100, 3, "step_{step}/state_{step}.{rank}.h5"),
            ("step_3/rank_3.h5", 3, 3, "step_{step}/rank_{rank}.h5"),
        ] {
            assert_eq!(read(&plain, name), (step, rank, like.into()), "{name}");
        }
        for odd in ["mesh.h5", "", "x_99999999999999999999999.nc", "x_1_99999999999.nc"] {
            assert!(plain.read(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn patterns_go_before_the_rule() {
        let step = FileRules::new(Some(r"plt(\d+)"), None).unwrap();
        let like = "plt{step}/Level_0/Cell_D_{rank}".to_string();
        assert_eq!(read(&step, "plt00100/Level_0/Cell_D_00003"), (100, 3, like));
        assert_eq!(read(&step, "plt7.h5"), (7, 0, "plt{step}.h5".into()));
        assert!(step.read("chk00100/3").is_err());
        let rank = FileRules::new(None, Some(r"proc(\d+)")).unwrap();
        assert_eq!(read(&rank, "proc4/out_20.nc"), (20, 4, "proc{rank}/out_{step}.nc".into()));
        assert_eq!(read(&rank, "out_20.nc"), (20, 0, "out_{step}.nc".into()));
        let both = FileRules::new(Some(r"_(\d+)"), Some(r"_(\d+)")).unwrap();
        assert!(both.read("x_1").is_err());
        for bad in ["(", "x"] {
            assert!(FileRules::new(Some(bad), None).is_err(), "{bad}");
        }
        assert!(FileRules::new(None, Some("(a)(b)")).is_err());
        let groups = FileRules::new(Some(r"y(\d+)m(\d\d)"), None).unwrap();
        assert_eq!(read(&groups, "y2024m03_7.nc"), (202_403, 7, "y{step}m{step}_{rank}.nc".into()));
        assert!(FileRules::new(Some("(a)"), None).unwrap().read("a").is_err());
    }

    #[test]
    fn dates_and_times_are_steps() {
        let plain = FileRules::default();
        for (name, step, rank, like) in [
            ("wrfout_d01_2024-01-31_06:30:00", 20_240_131_063_000, 0, "wrfout_d01_{step}"),
            (
                "wrfout_d01_2024-01-31_06_30_00_0003",
                20_240_131_063_000,
                3,
                "wrfout_d01_{step}_{rank}",
            ),
            ("c.cam.h0.2000-12-01-43200.nc", 2_000_120_143_200, 0, "c.cam.h0.{step}.nc"),
            ("x-202012211200.nc", 202_012_211_200, 0, "x-{step}.nc"),
            ("a1_20201221T1200Z.h5", 202_012_211_200, 0, "a1_{step}Z.h5"),
            ("20201221/b_2020-12-21.nc", 20_201_221, 0, "{step}/b_{step}.nc"),
            ("x_20240131_120000.nc", 20_240_131_120_000, 0, "x_{step}.nc"),
            ("2024-01-31_120000_0003.nc", 20_240_131_120_000, 3, "{step}_{rank}.nc"),
            ("2024-01-31T12.nc", 2_024_013_112, 0, "{step}.nc"),
            ("history.2012-05-25_00.00.00.nc", 20_120_525_000_000, 0, "history.{step}.nc"),
            ("2024-01-31_0003.nc", 20_240_131, 3, "{step}_{rank}.nc"),
            ("20240131_0003.nc", 20_240_131, 3, "{step}_{rank}.nc"),
            ("20240131_990000.nc", 20_240_131, 990_000, "{step}_{rank}.nc"),
            ("2024-01-31_06_30_0003.nc", 202_401_310_630, 3, "{step}_{rank}.nc"),
            // No dates.
            ("out_20241301.nc", 20_241_301, 0, "out_{step}.nc"),
            ("out_120240131.3.nc", 120_240_131, 3, "out_{step}.{rank}.nc"),
        ] {
            assert_eq!(read(&plain, name), (step, rank, like.into()), "{name}");
        }
        let alone = FileRules::default().without_ranks();
        assert_eq!(read(&alone, "run2_000100.h5"), (100, 0, "run2_{step}.h5".into()));
        assert_eq!(read(&alone, "d01_2024-01-31_7"), (20_240_131, 0, "d01_{step}_7".into()));
    }

    #[test]
    fn files_of_successive_steps_share_a_name() {
        for (name, step, without) in [
            ("out_000100.h5", 100, "out_{step}.h5"),
            ("out_000100.h5", 200, "out_000100.h5"),
            ("step_100/rank_{rank}_100.h5", 100, "step_{step}/rank_{rank}_{step}.h5"),
            ("wrfout_d01_2024-01-31.nc", 20_240_131, "wrfout_d01_{step}.nc"),
            ("out_01.h5", 1, "out_{step}.h5"),
            // By chance.
            ("mesh2.h5", 2, "mesh2.h5"),
            ("x.h55", 55, "x.h55"),
            ("out_{step}.h5", 100, "out_{step}.h5"),
        ] {
            assert_eq!(without_step(name, step), without);
        }
    }

    #[test]
    fn the_folder_of_a_step_ends_where_its_name_does() {
        let plain = FileRules::default();
        let end = |name: &str| plain.read(name).unwrap().step_folder;
        assert_eq!(end("all/step_10_x/deep/rank_3.h5"), "all/step_10_x".len());
        assert_eq!(end("all/ckpt_10_3.h5"), "all/ckpt_10_3.h5".len());
    }

    #[test]
    fn names_of_unfinished_files_are_known() {
        for name in ["a.tmp", ".a", "a~", "b.h5.part"] {
            assert!(is_passing(name), "{name}");
        }
        for name in ["a", "mesh.part.3", "tmp1", "a.h5"] {
            assert!(!is_passing(name), "{name}");
        }
    }

    /// Ranks and similar names of the files of a set.
    fn set(rules: &FileRules, names: &[&str]) -> Result<Vec<(u32, String)>> {
        let files: Vec<_> = names.iter().map(|n| (n.to_string(), PathBuf::from(n))).collect();
        let files = rules.rank_files(&files)?;
        Ok(files.into_iter().map(|file| (file.rank.0, file.like)).collect())
    }

    #[test]
    fn ranks_are_numbers_that_files_of_a_set_differ_in() {
        let rules = FileRules::default();
        let ranks = |names: &[&str]| -> Vec<u32> {
            set(&rules, names).unwrap().into_iter().map(|(rank, _)| rank).collect()
        };
        assert_eq!(
            set(&rules, &["state.0003.h5", "state.0012.h5"]).unwrap(),
            [(3, "state.{rank}.h5".to_string()), (12, "state.{rank}.h5".to_string())]
        );
        assert_eq!(ranks(&["step10_rank7.nc", "step10_rank8.nc"]), [7, 8]);
        assert_eq!(ranks(&["proc4/state.h5", "proc5/state.h5"]), [4, 5]);
        assert_eq!(ranks(&["rank2/state.h5", "Rank_7.h5", "frank.h5", "proc9.h5"]), [2, 7, 0, 0]);
        // Files beside those of ranks keep their names, also if their number is one of the ranks.
        let beside = set(&rules, &["s.0", "s.1", "s.2", "mesh2.h5", "mesh9.npy"]).unwrap();
        assert_eq!(beside.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1, 2, 0, 0]);
        assert_eq!((&beside[3].1[..], &beside[4].1[..]), ("mesh2.h5", "mesh9.npy"));
        assert_eq!(
            set(&rules, &["80BAU3B.npz", "AFIRO.npz"]).unwrap(),
            [(0, "80BAU3B.npz".to_string()), (0, "AFIRO.npz".to_string())]
        );
        assert_eq!(ranks(&["x-202012211200.nc", "x-202012211300.nc"]), [0, 0]);
        assert_eq!(ranks(&["x-20201221.nc", "x-20201222.nc"]), [0, 0]);
        assert_eq!(ranks(&["x99999999999", "x99999999998"]), [0, 0]);
        let alone = FileRules::default().without_ranks();
        assert_eq!(set(&alone, &["s.0", "s.1"]).unwrap()[1], (0, "s.1".to_string()));
        let told = FileRules::new(None, Some(r"r(\d+)")).unwrap();
        assert_eq!(set(&told, &["r7_1.nc"]).unwrap(), [(7, "r{rank}_1.nc".to_string())]);
        assert!(set(&told, &["x7"]).is_err());
        // The number of a pattern for steps is no rank.
        let step = FileRules::new(Some(r"out_(\d+)"), None).unwrap();
        assert_eq!(
            set(&step, &["proc4/out_20.nc", "proc5/out_20.nc"]).unwrap(),
            [(4, "proc{rank}/out_20.nc".to_string()), (5, "proc{rank}/out_20.nc".to_string())]
        );
        assert!(set(&told, &["r99999999999"]).is_err());
    }

    /// A service and a person who names the files of a step find the same ranks and the same names of variables.
    #[test]
    fn ranks_are_the_same_for_a_service() {
        let rules = [
            FileRules::default(),
            FileRules::default().without_ranks(),
            FileRules::new(Some(r"(?:out|state)_(\d+)"), None).unwrap(),
        ];
        for names in [
            &["state_0100.0003.h5", "state_0100.0012.h5"][..],
            // Alone, a number is no rank.
            &["state_0100.0003.h5"],
            &["step_100/rank_3.h5", "step_100/rank_4.h5", "step_100/mesh2.h5"],
            &["proc4/out_100.nc", "proc5/out_100.nc"],
            &["wrfout_d01_2024-01-31_06:30:00", "wrfout_d02_2024-01-31_06:30:00"],
            &["a_100.h5", "b_100.h5"],
        ] {
            for rules in &rules {
                let files: Vec<_> =
                    names.iter().map(|n| (n.to_string(), PathBuf::from(n))).collect();
                let named =
                    |file: RankFile, step| (file.rank.0, without_step(&file.like, step), file.name);
                let Ok(step) = rules.read(names[0]).map(|named| named.step) else { continue };
                if step < 10 {
                    continue;
                }
                let of = |files: Result<Vec<RankFile>>| -> Vec<_> {
                    files.unwrap().into_iter().map(|file| named(file, step)).collect()
                };
                let (person, service) =
                    (of(rules.rank_files(&files)), of(rules.rank_files_of_step(&files)));
                assert_eq!(person, service, "{names:?}");
            }
        }
        // A service knows the place of the step, also of one with one digit.
        let files = vec![("step_3/rank_7.h5".to_string(), PathBuf::new())];
        let found = FileRules::default().rank_files_of_step(&files).unwrap();
        assert_eq!((found[0].rank.0, &found[0].like[..]), (7, "step_{step}/rank_{rank}.h5"));
    }
}

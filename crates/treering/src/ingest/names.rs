//! Rules that read the step and the rank of a file from its name.
//!
//! The rank is the last number of the path below the folder, and the step is the last of the others;
//! a lone number is the step, of rank 0. A pattern replaces the rule for either of them. The similar
//! name of a file is its name without both numbers, so that files of successive steps share it.

use super::RankFile;
use crate::array::Rank;
use crate::error::{Error, Result};
use regex::Regex;
use std::ops::Range;
use std::path::Path;

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
}

/// Step and rank of a file, as its name states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// Step.
    pub step: u64,
    /// Rank. Default: 0.
    pub rank: u32,
    /// The name with `{step}` and `{rank}` in place of the numbers.
    pub like: String,
    /// Length of the leading part of the path that ends with the component that holds the step.
    pub step_folder: usize,
}

impl FileRules {
    /// Rules with patterns: regular expressions with one group each, which matches the number.
    pub fn new(step: Option<&str>, rank: Option<&str>) -> Result<FileRules> {
        let step = step.map(|text| one_group(text, "step")).transpose()?;
        let rank = rank.map(|text| one_group(text, "rank")).transpose()?;
        Ok(FileRules { step, rank })
    }

    /// Reads step and rank from a path below a folder. The error completes a sentence that begins with
    /// the name.
    pub fn read(&self, name: &str) -> std::result::Result<FileName, String> {
        let numbers = numbers(name);
        let apart = |from: &Option<Range<usize>>| {
            let from = from.clone();
            numbers.iter().filter(move |n| from.as_ref().is_none_or(|f| !overlap(f, n))).cloned()
        };
        let (step, rank) = match (&self.step, &self.rank) {
            (Some(step), Some(rank)) => (group(step, name), group(rank, name)),
            (Some(step), None) => {
                let step = group(step, name);
                let rank = apart(&step).next_back();
                (step, rank)
            }
            (None, Some(rank)) => {
                let rank = group(rank, name);
                (apart(&rank).next_back(), rank)
            }
            (None, None) => match numbers.as_slice() {
                [] => (None, None),
                [step] => (Some(step.clone()), None),
                [.., step, rank] => (Some(step.clone()), Some(rank.clone())),
            },
        };
        let step = step.ok_or("names no step")?;
        let number: u64 = name[step.clone()].parse().map_err(|_| "has a step that is no number")?;
        let of_rank = |place: &Range<usize>| name[place.clone()].parse::<u32>();
        let own = rank.as_ref().map_or(Ok(0), of_rank).map_err(|_| "has a rank that is none")?;
        if rank.as_ref().is_some_and(|rank| overlap(rank, &step)) {
            return Err("has the same number for its step and its rank".into());
        }
        // A step that is written twice, in the folder and in the file, is left out twice.
        let again = |n: &Range<usize>| !overlap(n, &step) && name[n.clone()].parse() == Ok(number);
        let mut marks: Vec<_> = apart(&rank).filter(again).map(|place| (place, "{step}")).collect();
        marks.push((step.clone(), "{step}"));
        marks.extend(rank.map(|place| (place, "{rank}")));
        marks.sort_by_key(|(place, _)| place.start);
        let mut like = name.to_string();
        for (place, mark) in marks.into_iter().rev() {
            like.replace_range(place, mark);
        }
        let step_folder = name[step.end..].find('/').map_or(name.len(), |slash| step.end + slash);
        Ok(FileName { step: number, rank: own, like, step_folder })
    }

    /// The file of a set whose step is known: its rank is the last number of its name, or the group of
    /// the rank's pattern, which then has to match once.
    pub fn rank_file(&self, name: &str, path: &Path) -> Result<RankFile> {
        let place = match &self.rank {
            Some(pattern) => Some(only_match(pattern, name)?),
            None => numbers(name).pop(),
        };
        let Some(place) = place else {
            let (name, like) = (name.to_string(), name.to_string());
            return Ok(RankFile { rank: Rank(0), path: path.into(), name, like });
        };
        let rank = name[place.clone()].parse().map_err(|_| {
            Error::usage(format!("{:?} in {name:?} is no rank", &name[place.clone()]))
                .hint("say with --rank how the rank stands in the name")
        })?;
        let like = format!("{}{{rank}}{}", &name[..place.start], &name[place.end..]);
        Ok(RankFile { rank, path: path.into(), name: name.to_string(), like })
    }
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

/// Compiles a pattern whose one group is the number of a step or a rank.
fn one_group(text: &str, what: &str) -> Result<Regex> {
    let bad = |why: String| {
        Error::usage(format!("{text:?} tells no {what}: {why}"))
            .hint(format!("write a regular expression with one group, such as '{what}(\\d+)'"))
    };
    let pattern = Regex::new(text).map_err(|e| bad(e.to_string().replace('\n', " ")))?;
    match pattern.captures_len() {
        2 => Ok(pattern),
        _ => Err(bad("it has not one group".into())),
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

fn group(pattern: &Regex, name: &str) -> Option<Range<usize>> {
    pattern.captures(name)?.get(1).map(|group| group.range())
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
        for bad in ["(", "x", "(a)(b)"] {
            assert!(FileRules::new(Some(bad), None).is_err(), "{bad}");
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

    #[test]
    fn ranks_are_the_last_number_of_a_name() {
        let rules = FileRules::default();
        let rank = |name: &str| {
            let file = rules.rank_file(name, Path::new(name)).unwrap();
            (file.rank.0, file.like)
        };
        assert_eq!(rank("state.0003.h5"), (3, "state.{rank}.h5".into()));
        assert_eq!(rank("step10_rank7.nc"), (7, "step10_rank{rank}.nc".into()));
        assert_eq!(rank("restart.0012"), (12, "restart.{rank}".into()));
        assert_eq!(rank("state.h5"), (0, "state.h5".into()));
        assert_eq!(rank("proc4/state.h5"), (4, "proc{rank}/state.h5".into()));
        assert_eq!(rank("v1.2/state"), (2, "v1.{rank}/state".into()));
        assert!(rules.rank_file("x99999999999", Path::new("x")).is_err());
    }
}

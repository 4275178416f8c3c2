//! What a name tells: the step and the rank of a file, and what it is like.
//!
//! The rank is the last number of the path below the folder, and the step is the last of the others;
//! a lone number is the step, of rank 0. A pattern says otherwise for either of them. What a file is
//! like is its name without both, so that the files of successive steps are called alike.

use crate::files::{numbers, one_group};
use regex::Regex;
use std::ops::Range;
use treering::Result;

/// How steps and ranks stand in names.
pub struct Naming {
    step: Option<Regex>,
    rank: Option<Regex>,
}

/// What a name tells.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    pub step: u64,
    pub rank: u32,
    pub like: String,
    /// Where the part of the path ends that has the step in it.
    pub step_folder: usize,
}

impl Naming {
    pub fn new(step: Option<&str>, rank: Option<&str>) -> Result<Naming> {
        let step = step.map(|text| one_group(text, "step")).transpose()?;
        let rank = rank.map(|text| one_group(text, "rank")).transpose()?;
        Ok(Naming { step, rank })
    }

    /// What a name tells, or why it tells nothing.
    pub fn read(&self, name: &str) -> std::result::Result<Named, String> {
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
        Ok(Named { step: number, rank: own, like, step_folder })
    }
}

fn group(pattern: &Regex, name: &str) -> Option<Range<usize>> {
    pattern.captures(name)?.get(1).map(|group| group.range())
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Whether a file or folder of this name is unfinished or hidden.
pub fn is_passing(name: &str) -> bool {
    let endings = [".tmp", ".temp", ".part", ".partial", "~"];
    name.starts_with('.') || endings.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(naming: &Naming, name: &str) -> (u64, u32, String) {
        let named = naming.read(name).unwrap();
        (named.step, named.rank, named.like)
    }

    #[test]
    fn names_tell_steps_and_ranks() {
        let plain = Naming::new(None, None).unwrap();
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
        let step = Naming::new(Some(r"plt(\d+)"), None).unwrap();
        let like = "plt{step}/Level_0/Cell_D_{rank}".to_string();
        assert_eq!(read(&step, "plt00100/Level_0/Cell_D_00003"), (100, 3, like));
        assert_eq!(read(&step, "plt7.h5"), (7, 0, "plt{step}.h5".into()));
        assert!(step.read("chk00100/3").is_err());
        let rank = Naming::new(None, Some(r"proc(\d+)")).unwrap();
        assert_eq!(read(&rank, "proc4/out_20.nc"), (20, 4, "proc{rank}/out_{step}.nc".into()));
        assert_eq!(read(&rank, "out_20.nc"), (20, 0, "out_{step}.nc".into()));
        let both = Naming::new(Some(r"_(\d+)"), Some(r"_(\d+)")).unwrap();
        assert!(both.read("x_1").is_err());
        for bad in ["(", "x", "(a)(b)"] {
            assert!(Naming::new(Some(bad), None).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_folder_of_a_step_ends_where_its_name_does() {
        let plain = Naming::new(None, None).unwrap();
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
}

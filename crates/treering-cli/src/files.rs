//! The commands that take in files that a program wrote itself, and give them back.

use crate::compare::RawOptions;
use crate::watch::is_inside;
use crate::{output, watch};
use regex::Regex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use treering::{
    Aim, Bound, Encoding, Error, Ingest, IngestSettings, LeftOut, Library, Manifest, Merge,
    Options, Place, Rank, RankFile, Result, export as export_files,
};

#[derive(clap::Args)]
pub struct IngestArguments {
    /// Where to keep them: STORE#RUN@STEP; with --watch STORE#RUN.
    pub place: String,
    /// Files, or folders of files.
    #[arg(required_unless_present = "watch")]
    pub files: Vec<PathBuf>,
    /// How the rank stands in a file's name: a regular expression with one group, as in 'rank(\d+)';
    /// the last number in the name unless told.
    #[arg(long, value_name = "REGEX")]
    pub rank: Option<String>,
    /// How many ranks share a pack.
    #[arg(long, value_name = "N", default_value_t = 32)]
    ranks_per_pack: u32,
    /// Variables are like each other, and encoded together, when their names agree after this
    /// replacement, as in 'block\d+=block'; may be given several times.
    #[arg(long, value_name = "REGEX=TEXT")]
    like: Vec<String>,
    /// Store variables that match rounded within a bound, absolute as in 'temp*=1e-6' or relative as in
    /// 'velocity_?=rel:1e-4'; * and ? stand for anything. May be given several times, the first that
    /// matches counts, and 'n*=bits' leaves variables as they are. What files mark as filled or missing stays.
    /// Files given back then hold values within the bound, not the original bytes. Only floating-point
    /// and complex variables that lie uncompressed in their files can have one.
    #[arg(long, value_name = "GLOB=BOUND")]
    pub within: Vec<String>,
    /// How variables of many ranks are put together.
    #[arg(long, value_enum, default_value_t = MergeName::Auto)]
    merge: MergeName,
    /// Let ranks take turns in blocks of this size, as in 64KiB, instead of one after another.
    #[arg(long, value_name = "SIZE", value_parser = crate::output::parse_bytes)]
    block: Option<u64>,
    /// What encoding is to be good at.
    #[arg(long, value_enum, default_value_t = AimName::Balanced)]
    aim: AimName,
    #[command(flatten)]
    raw: RawOptions,
    #[command(flatten)]
    pub watch: watch::Arguments,
}

impl IngestArguments {
    pub fn options(&self, place: &Place, run: &str) -> Options {
        Options::directory(&place.store, run).encoding(Encoding::Best(self.aim.aim()))
    }

    pub fn settings(&self) -> Result<IngestSettings> {
        Ok(IngestSettings {
            ranks_per_pack: self.ranks_per_pack,
            raw: self.raw.raw()?,
            merge: self.merge.merge(),
            block: self.block,
            like: self.like.iter().map(|text| likeness(text)).collect::<Result<_>>()?,
            within: self.within.iter().map(|text| limit(text)).collect::<Result<_>>()?,
        })
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum AimName {
    Smallest,
    Balanced,
    Fastest,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum MergeName {
    /// As does better on a sample.
    Auto,
    /// Like variables of all ranks side by side.
    Meaning,
    /// All variables of a rank side by side, as its files hold them.
    Ranks,
    /// Whole files, of which nothing is understood.
    Files,
}

impl MergeName {
    fn merge(self) -> Merge {
        match self {
            MergeName::Auto => Merge::Auto,
            MergeName::Meaning => Merge::Meaning,
            MergeName::Ranks => Merge::Ranks,
            MergeName::Files => Merge::Files,
        }
    }
}

/// A regular expression and what takes the place of what it matches.
fn likeness(text: &str) -> Result<(Regex, String)> {
    let bad = |why: &str| {
        Error::usage(format!("{text:?} maps no names: {why}")).hint(
            "write a regular expression, '=', and what takes its place, as in 'block\\d+=block'",
        )
    };
    let (pattern, by) = text.rsplit_once('=').ok_or_else(|| bad("there is no '='"))?;
    let pattern = Regex::new(pattern).map_err(|e| bad(&e.to_string().replace('\n', " ")))?;
    Ok((pattern, by.to_string()))
}

/// A pattern of names and the bound of variables that match it; names may hold '=', bounds do not.
pub fn limit(text: &str) -> Result<(String, Bound)> {
    let bad = |why: &str| {
        Error::usage(format!("{text:?} gives no variable a bound: {why}")).hint(
            "write a name (* and ? stand for anything), '=', and a bound, as in 'temp*=1e-6' or 'v_?=rel:1e-4'",
        )
    };
    let (pattern, bound) = text.rsplit_once('=').ok_or_else(|| bad("there is no '='"))?;
    let bound = match bound.parse() {
        Ok(number) => Bound::abs(number),
        Err(_) => Bound::parse(bound)?,
    };
    Ok((pattern.to_string(), bound))
}

impl AimName {
    fn aim(self) -> Aim {
        match self {
            AimName::Smallest => Aim::Smallest,
            AimName::Balanced => Aim::Balanced,
            AimName::Fastest => Aim::Fastest,
        }
    }
}

fn names_a_step(place: &str) -> Result<(Place, String, u64)> {
    let place = Place::parse(place)?;
    match (place.run.clone(), place.step) {
        (Some(run), Some(step)) => Ok((place, run, step)),
        _ => Err(Error::usage(format!("{place} names no step")).hint("write STORE#RUN@STEP")),
    }
}

/// Takes files in as the checkpoint of a step.
pub fn ingest(arguments: &IngestArguments, json: bool) -> Result<()> {
    if arguments.watch.watch.is_some() {
        return watch::run(arguments, json);
    }
    let (place, run, step) = names_a_step(&arguments.place)?;
    let Chosen { files, left_out } = rank_files(&arguments.files, arguments.rank.as_deref())?;
    if let Some(own) = files.iter().find(|file| is_inside(&file.path, &place.store)) {
        return Err(Error::usage(format!("{} belongs to the store", own.path.display()))
            .hint("keep the store outside of the folder that is taken in"));
    }
    let bar = output::progress("taking in");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let mut ingest = Ingest::open(arguments.options(&place, &run), arguments.settings()?)?;
    let manifest = ingest.take(step, &files, &told)?;
    bar.finish_and_clear();
    let sizes = files.iter().filter_map(|file| std::fs::metadata(&file.path).ok());
    let size = sizes.map(|meta| meta.len()).sum();
    let taken = Taken { place: &arguments.place, files: &files, size, manifest: &manifest };
    let library = Library::open(&place.store)?;
    let whole = library.not_taken_apart(&library.checkpoint(&run, Some(step))?)?;
    if json {
        let mut told = taken.json();
        told["not_taken_apart"] = serde_json::json!(whole);
        let left_out = left_out.iter().map(|(path, _)| path.display().to_string());
        told["left_out"] = left_out.collect::<Vec<_>>().into();
        return output::json(&told);
    }
    output::line(taken.line());
    for (path, why) in left_out.iter().take(MOST_LEFT_OUT) {
        output::line(format!("left out: {} is {}", path.display(), why.why()));
    }
    if left_out.len() > MOST_LEFT_OUT {
        output::line(format!("left out: {} more like these", left_out.len() - MOST_LEFT_OUT));
    }
    crate::commands::print_not_taken_apart(&whole);
    if taken.rounded() > 0 {
        output::line(
            "exported files will hold the rounded values, within the bounds, and not the bytes of \
             the originals",
        );
    }
    Ok(())
}

/// A checkpoint that was made of files.
pub struct Taken<'a> {
    pub place: &'a str,
    pub files: &'a [RankFile],
    pub size: u64,
    pub manifest: &'a Manifest,
}

impl Taken<'_> {
    fn stored(&self) -> u64 {
        let packs = self.manifest.groups.iter().map(|group| group.seal.size);
        packs.sum::<u64>() + self.manifest.write().len() as u64
    }

    fn ranks(&self) -> BTreeSet<Rank> {
        self.files.iter().map(|file| file.rank).collect()
    }

    /// How many variables are stored rounded.
    fn rounded(&self) -> u64 {
        self.manifest.rounded
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "place": self.place, "step": self.manifest.step, "files": self.files.len(),
            "ranks": self.ranks(), "bytes": self.size, "stored_bytes": self.stored(),
            "packs": self.manifest.groups.len(), "sequence": self.manifest.sequence,
            "rounded_variables": self.rounded(),
        })
    }

    pub fn line(&self) -> String {
        let rounded = match self.rounded() {
            0 => String::new(),
            count => format!(", {} rounded", output::count(count, "variable")),
        };
        format!(
            "{}: {} of {} ({}) in {} of {} ({}){rounded}",
            self.place,
            output::count(self.files.len() as u64, "file"),
            output::count(self.ranks().len() as u64, "rank"),
            output::bytes(self.size),
            output::count(self.manifest.groups.len() as u64, "pack"),
            output::bytes(self.stored()),
            output::ratio(self.size, self.stored()),
        )
    }
}

/// How much of what is left out is told one by one.
const MOST_LEFT_OUT: usize = 5;

/// What is to be taken in, and what is not.
pub struct Chosen {
    pub files: Vec<RankFile>,
    pub left_out: Vec<(PathBuf, LeftOut)>,
}

/// The files of all arguments, each with its rank and its name below the folder it was found in.
pub fn rank_files(arguments: &[PathBuf], pattern: Option<&str>) -> Result<Chosen> {
    let pattern = pattern.map(|text| one_group(text, "rank")).transpose()?;
    let (mut files, mut left_out) = (Vec::new(), Vec::new());
    for argument in arguments {
        let found = match argument.is_dir() {
            true => {
                let found = treering::files_in(argument)?;
                left_out.extend(found.others);
                found.files
            }
            false => vec![argument.clone()],
        };
        for path in found {
            let inside = match argument.is_dir() {
                true => path.strip_prefix(argument).unwrap_or(&path),
                false => Path::new(path.file_name().unwrap_or_default()),
            };
            let Some(name) = inside.to_str() else {
                return Err(Error::usage(format!("the name of {} is no text", path.display()))
                    .hint("rename it"));
            };
            files.push(with_rank(name, &path, pattern.as_ref())?);
        }
    }
    Ok(Chosen { files, left_out })
}

/// A pattern whose group is the number of what is asked for.
pub fn one_group(text: &str, what: &str) -> Result<Regex> {
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

fn with_rank(name: &str, path: &Path, pattern: Option<&Regex>) -> Result<RankFile> {
    let place = match pattern {
        Some(pattern) => {
            let mut found = pattern.captures_iter(name);
            let group = found.next().and_then(|captures| captures.get(1)).map(|g| g.range());
            let Some(group) = group else {
                return Err(Error::usage(format!("{pattern} does not match {name:?}"))
                    .hint("every file needs a rank"));
            };
            if found.next().is_some() {
                return Err(Error::usage(format!("{pattern} matches {name:?} twice"))
                    .hint("write a pattern that matches the rank only"));
            }
            Some(group)
        }
        None => last_number(name),
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

/// The last number in a name.
fn last_number(name: &str) -> Option<Range<usize>> {
    numbers(name).pop()
}

/// Where the numbers in a name are; those of an extension such as `.h5` do not count, unless it is
/// nothing but a number.
pub fn numbers(name: &str) -> Vec<Range<usize>> {
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

#[derive(clap::Args)]
pub struct ExportArguments {
    /// STORE#RUN (the newest) or STORE#RUN@STEP.
    place: String,
    /// The folder to write to.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Only files of this rank; may be given several times.
    #[arg(long, value_name = "RANK")]
    rank: Vec<Rank>,
}

/// Gives files back.
pub fn export(arguments: &ExportArguments, json: bool) -> Result<()> {
    let place = Place::parse(&arguments.place)?;
    let Some(run) = &place.run else {
        return Err(Error::usage(format!("{place} names no run")).hint("write STORE#RUN@STEP"));
    };
    let library = Library::open(&place.store)?;
    let checkpoint = library.checkpoint(run, place.step)?;
    let files = export_files(&checkpoint, &arguments.rank, &arguments.to)?;
    let (step, notes) = (checkpoint.step(), checkpoint.notes());
    output::notes(&notes);
    if json {
        return output::json(&serde_json::json!({ "step": step, "files": files, "notes": notes }));
    }
    let bytes = files.iter().map(|file| file.bytes).sum();
    output::line(format!(
        "{run}@{step}: {} of {} in {}",
        output::count(files.len() as u64, "file"),
        output::bytes(bytes),
        arguments.to.display()
    ));
    let rounded: Vec<u64> = files.iter().map(|f| f.rounded).filter(|count| *count > 0).collect();
    if !rounded.is_empty() {
        output::line(format!(
            "{} with {} rounded within bounds: not the bytes of the originals",
            output::count(rounded.len() as u64, "file"),
            output::count(rounded.iter().sum(), "variable"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_last_number_of_a_name() {
        let rank = |name: &str| {
            let file = with_rank(name, Path::new(name), None).unwrap();
            (file.rank, file.like)
        };
        assert_eq!(rank("state.0003.h5"), (Rank(3), "state.{rank}.h5".into()));
        assert_eq!(rank("step10_rank7.nc"), (Rank(7), "step10_rank{rank}.nc".into()));
        assert_eq!(rank("restart.0012"), (Rank(12), "restart.{rank}".into()));
        assert_eq!(rank("state.h5"), (Rank(0), "state.h5".into()));
        assert_eq!(rank("proc4/state.h5"), (Rank(4), "proc{rank}/state.h5".into()));
        assert_eq!(rank("v1.2/state"), (Rank(2), "v1.{rank}/state".into()));
        assert!(with_rank("x99999999999", Path::new("x"), None).is_err());
    }
}

//! The commands that ingest files of other programs, and export files and arrays.

use crate::compare::RawOptions;
use crate::{output, watch};
use regex::Regex;
use std::collections::BTreeSet;
use std::path::PathBuf;
use treering::{
    Aim, ArrayExport, ArrayFormat, Bound, Checkpoint, ChosenFiles, DType, Encoding, Error,
    ExportedArray, FileRules, Ingest, IngestSettings, Labels, Library, Manifest, Merge, Options,
    Place, Rank, RankFile, Result, export as export_files, export_arrays, is_inside, rank_files,
};

#[derive(clap::Args)]
pub struct IngestArguments {
    /// Place of the new checkpoint: STORE#RUN@STEP; with --watch: STORE#RUN.
    pub place: String,
    /// Files, or folders of files.
    #[arg(required_unless_present = "watch")]
    pub files: Vec<PathBuf>,
    /// Position of the rank in a file's name: a regular expression with one group, as in 'rank(\d+)'. Default: the
    /// last number in the name, if files of the set differ in it or it stands behind the word rank.
    #[arg(long, value_name = "REGEX")]
    pub rank_pattern: Option<String>,
    /// Assign all files to rank 0, and ignore numbers in their names.
    #[arg(long, conflicts_with = "rank_pattern")]
    pub no_ranks: bool,
    /// Number of ranks that share a pack.
    #[arg(long, value_name = "N", default_value_t = 32)]
    ranks_per_pack: u32,
    /// Encode variables together whose names are the same after this replacement, as in 'block\d+=block': REGEX is a
    /// regular expression, and TEXT takes the place of each match. May be given several times.
    #[arg(long, value_name = "REGEX=TEXT")]
    like: Vec<String>,
    /// Lossy: store variables that match rounded within a bound, absolute as in 'temp*=1e-6' or relative as in
    /// 'velocity_?=rel:1e-4'; * and ? stand for anything, and the name of the file may be left out. May be given
    /// several times, the first that matches counts, and 'n*=bits' leaves variables as they are. Values that files mark
    /// as filled or missing stay. Caution: exported files then hold
    /// values within the bound, not the original bytes. Only floating-point and complex variables that are not compressed
    /// in their files can have a bound. Default: values are stored exactly.
    #[arg(long, value_name = "GLOB=BOUND")]
    pub error_bound: Vec<String>,
    /// Add a label to the checkpoint, as in 'git=4542149'; may be given several times.
    #[arg(long, value_name = "KEY=TEXT")]
    label: Vec<String>,
    /// Order in which the variables of many ranks are packed.
    #[arg(long, value_enum, default_value_t = MergeName::Auto)]
    merge: MergeName,
    /// Interleave ranks in blocks of this size, as in 64KiB. Default: one rank after another.
    #[arg(long, value_name = "SIZE", value_parser = crate::output::parse_bytes)]
    block: Option<u64>,
    /// Optimize for size, speed or a balance of both.
    #[arg(long, value_enum, default_value_t = AimName::Balanced)]
    aim: AimName,
    #[command(flatten)]
    raw: RawOptions,
    #[command(flatten)]
    pub watch: watch::Arguments,
}

impl IngestArguments {
    /// Rules for the names of files.
    pub fn rules(&self, step: Option<&str>) -> Result<FileRules> {
        let rules = FileRules::new(step, self.rank_pattern.as_deref())?;
        Ok(if self.no_ranks { rules.without_ranks() } else { rules })
    }

    pub fn encoding(&self) -> Encoding {
        Encoding::Best(self.aim.aim())
    }

    /// The labels of checkpoints.
    pub fn labels(&self) -> Result<Labels> {
        let parse = |text: &String| match text.split_once('=') {
            Some((key, value)) => Ok((key.to_string(), value.to_string())),
            None => Err(Error::usage(format!("invalid label {text:?}"))
                .hint("write a key, '=', and a text, as in 'git=4542149'")),
        };
        self.label.iter().map(parse).collect()
    }

    pub fn settings(&self) -> Result<IngestSettings> {
        Ok(IngestSettings {
            ranks_per_pack: self.ranks_per_pack,
            raw: self.raw.raw()?,
            merge: self.merge.merge(),
            block: self.block,
            like: self.like.iter().map(|text| likeness(text)).collect::<Result<_>>()?,
            error_bounds: self.error_bound.iter().map(|text| limit(text)).collect::<Result<_>>()?,
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
    /// Meaning or ranks, whichever is smaller on a sample.
    Auto,
    /// Similar variables of all ranks side by side.
    Meaning,
    /// All variables of a rank side by side, as its files hold them.
    Ranks,
    /// Whole files as bytes: their formats are not parsed.
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
        Error::usage(format!("invalid replacement {text:?}: {why}"))
            .hint("write a regular expression, '=' and its replacement, as in 'block\\d+=block'")
    };
    let (pattern, by) = text.rsplit_once('=').ok_or_else(|| bad("there is no '='"))?;
    let pattern = Regex::new(pattern).map_err(|e| bad(&e.to_string().replace('\n', " ")))?;
    Ok((pattern, by.to_string()))
}

/// A bound: a number is an absolute one.
fn bound(text: &str) -> Result<Bound> {
    match text.parse() {
        Ok(number) => Ok(Bound::abs(number)),
        Err(_) => Bound::parse(text),
    }
}

/// A bound, of the variables that match a pattern or, without one, of all.
pub fn limit_or_bound(text: &str) -> Result<(Option<String>, Bound)> {
    match text.contains('=') {
        true => limit(text).map(|(pattern, bound)| (Some(pattern), bound)),
        false => bound(text).map(|bound| (None, bound)),
    }
}

/// A pattern of names and the bound of variables that match it; names may hold '=', bounds do not.
pub fn limit(text: &str) -> Result<(String, Bound)> {
    let bad = |why: &str| {
        Error::usage(format!("invalid bound {text:?}: {why}")).hint(
            "write a name (* and ? stand for anything), '=' and a bound, as in 'temp*=1e-6' or 'v_?=rel:1e-4'",
        )
    };
    let (pattern, of_these) = text.rsplit_once('=').ok_or_else(|| bad("there is no '='"))?;
    Ok((pattern.to_string(), bound(of_these)?))
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
        _ => Err(Error::usage(format!("{place} names no step"))
            .hint("write STORE#RUN@STEP, as in store#sim@100")),
    }
}

/// Ingests files as the checkpoint of a step.
pub fn ingest(arguments: &IngestArguments, json: bool) -> Result<()> {
    if arguments.watch.watch.is_some() {
        return watch::run(arguments, json);
    }
    let (place, run, step) = names_a_step(&arguments.place)?;
    let rules = arguments.rules(None)?;
    let ChosenFiles { files, left_out } = rank_files(&arguments.files, &rules)?;
    if let Some(own) = files.iter().find(|file| is_inside(&file.path, &place.store)) {
        return Err(Error::usage(format!("{} belongs to the store", own.path.display()))
            .hint("keep the store outside of the folder that is ingested"));
    }
    let bar = output::progress("ingesting");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let options = Options::directory(&place.store, &run).encoding(arguments.encoding());
    let labels = arguments.labels()?;
    let options = labels.iter().fold(options, |options, (key, text)| options.label(key, text));
    let mut ingest = Ingest::open(options, arguments.settings()?)?;
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
    crate::listing::print_not_taken_apart(&whole);
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
        self.manifest.stored_bytes()
    }

    fn ranks(&self) -> BTreeSet<Rank> {
        self.files.iter().map(|file| file.rank).collect()
    }

    /// Number of variables that are stored rounded.
    fn rounded(&self) -> u64 {
        self.manifest.rounded
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "place": self.place, "step": self.manifest.step, "files": self.files.len(),
            "ranks": self.ranks(), "bytes": self.size, "stored_bytes": self.stored(),
            "packs": self.manifest.groups.count(), "sequence": self.manifest.sequence,
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
            output::count(self.manifest.groups.count(), "pack"),
            output::bytes(self.stored()),
            output::ratio(self.size, self.stored()),
        )
    }
}

/// Number of files left out that are listed one by one.
const MOST_LEFT_OUT: usize = 5;

#[derive(clap::Args)]
pub struct ExportArguments {
    /// STORE#RUN (the newest) or STORE#RUN@STEP.
    place: String,
    /// Folder to write to. Existing files are not replaced.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Export arrays instead of ingested files: those that a program saved, and those of ingested files.
    ///
    /// Indices stay as the program wrote them. Boxes and rows of several ranks become one array. With several
    /// ranks, arrays that belong to one rank are put below rank-N. A slash in a name makes groups or folders.
    /// The output appears when it is complete.
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    format: Option<FormatName>,
    /// Export only variables that match; * and ? stand for anything, and the name of the file may be left out. May be
    /// given several times.
    #[arg(long, value_name = "GLOB", requires = "format")]
    vars: Vec<String>,
    /// Export only files of this rank. With --as: arrays as this rank saved them, boxes with their ghost cells
    /// included. May be given several times.
    #[arg(long, value_name = "RANK")]
    rank: Vec<Rank>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FormatName {
    /// Folder RUN-STEP with a .npy file for each array; bf16 as uint16 (its bits).
    Npy,
    /// File RUN-STEP.h5 (HDF5 1.8 and later); arrays in Fortran order are stored in C order.
    Hdf5,
    /// Folder RUN-STEP.zarr, a group of Zarr v3, compressed with Zstandard; bf16 as uint16 (its bits).
    Zarr,
}

impl FormatName {
    fn format(self) -> ArrayFormat {
        match self {
            FormatName::Npy => ArrayFormat::Npy,
            FormatName::Hdf5 => ArrayFormat::Hdf5,
            FormatName::Zarr => ArrayFormat::Zarr,
        }
    }
}

/// Exports files or arrays.
pub fn export(arguments: &ExportArguments, json: bool) -> Result<()> {
    let place = Place::parse(&arguments.place)?;
    let Some(run) = &place.run else {
        return Err(Error::usage(format!("{place} names no run")).hint("write STORE#RUN@STEP"));
    };
    let library = Library::open(&place.store)?;
    let checkpoint = library.checkpoint(run, place.step)?;
    match arguments.format {
        Some(format) => arrays(&checkpoint, arguments, format.format(), json),
        None => whole_files(&checkpoint, arguments, json),
    }
}

/// Exports arrays.
fn arrays(
    checkpoint: &Checkpoint,
    arguments: &ExportArguments,
    format: ArrayFormat,
    json: bool,
) -> Result<()> {
    let bar = output::progress("exporting");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let (variables, ranks) = (arguments.vars.clone(), arguments.rank.clone());
    let wanted = ArrayExport { format, variables, ranks };
    let exported = export_arrays(checkpoint, &wanted, &arguments.to, &told)?;
    bar.finish_and_clear();
    let (run, step, notes) = (&checkpoint.manifest().run, checkpoint.step(), checkpoint.notes());
    output::notes(&notes);
    if json {
        let mut told = serde_json::json!(exported);
        told["run"] = run.as_str().into();
        told["step"] = step.into();
        told["notes"] = notes.into();
        return output::json(&told);
    }
    let count = |test: &dyn Fn(&ExportedArray) -> bool| {
        exported.arrays.iter().filter(|array| test(array)).count() as u64
    };
    output::line(format!(
        "{run}@{step}: {} of {} in {}",
        output::count(count(&|_| true), "array"),
        output::bytes(exported.bytes),
        exported.path.display()
    ));
    let as_bits = count(&|array| array.dtype != array.written_as && array.dtype == DType::BF16);
    if as_bits > 0 {
        output::line(format!(
            "{} of type bf16, which this format does not have: written as the bits, u16",
            output::count(as_bits, "array")
        ));
    }
    let rounded = count(&|array| array.rounded);
    if rounded > 0 {
        output::line(format!(
            "{} with values that were rounded within bounds when they were stored",
            output::count(rounded, "array")
        ));
    }
    crate::listing::print_not_taken_apart(&exported.not_taken_apart);
    Ok(())
}

/// Exports ingested files.
fn whole_files(checkpoint: &Checkpoint, arguments: &ExportArguments, json: bool) -> Result<()> {
    let files = export_files(checkpoint, &arguments.rank, &arguments.to)?;
    let (run, step, notes) = (&checkpoint.manifest().run, checkpoint.step(), checkpoint.notes());
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

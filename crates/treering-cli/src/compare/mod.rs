//! The commands that compare states: `compare`, `tree`, `golden`.

mod golden;
mod raw;
mod screen;
mod trees;

pub use golden::{GoldenCommand, golden};
pub use raw::RawOptions;
pub use trees::{TreeArguments, show_trees, tree};

use crate::files::limit_or_bound;
use crate::output;
use crate::ranks::CommandRanks;
use screen::ScreenSettings;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use treering::{
    Answer, Bound, CompareSettings, DifferenceList, Error, Outcome, Result, Side, open_side,
    open_side_following, sidecar, write_whole,
};

#[derive(clap::Args)]
pub struct CompareOptions {
    /// One side: STORE#RUN, STORE#RUN@STEP, a file, FILE:NAME (an array or a group of a file, as in a.h5:/g/x), a folder
    /// of files, or a tree file.
    a: String,
    /// The other side, of the same kinds. Relative bounds refer to this side.
    b: String,
    /// Permit this absolute difference. With --rel: |a − b| ≤ X + Y·|b|, as numpy.allclose. Default: the bounds that
    /// both runs declare, otherwise equality (−0 is +0).
    #[arg(long, value_name = "X", allow_hyphen_values = true, conflicts_with_all = ["ulp", "bits"])]
    abs: Option<f64>,
    /// Permit this difference relative to the value of B: |a − b| ≤ Y·|b|.
    #[arg(long, value_name = "Y", allow_hyphen_values = true, conflicts_with_all = ["ulp", "bits"])]
    rel: Option<f64>,
    /// Permit values to be N representable numbers apart.
    #[arg(long, value_name = "N", conflicts_with = "bits")]
    ulp: Option<u64>,
    /// Permit no difference: the bits must be the same, so that −0 differs from +0.
    #[arg(long)]
    bits: bool,
    /// Bound of variables that match, as in x=1e-6, 'v*=abs:1e-8,rel:1e-5', t=ulp:4 or n=bits; * and ? stand for
    /// anything, and the name of the file may be left out. Without GLOB=: bound of all variables. May be given several
    /// times; the first that matches counts.
    #[arg(long, value_name = "[GLOB=]BOUND")]
    bound: Vec<String>,
    /// Compare only variables that match; * and ? stand for anything, and the name of the file may be left out. Other
    /// content of files (attributes, links, texts) is then not compared. May be given several times.
    #[arg(long, value_name = "GLOB")]
    vars: Vec<String>,
    /// Leave out variables that match, and attributes, links and texts that belong to them; * and ? stand for
    /// anything, and the name of the file may be left out. May be given several times.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Do not compare attributes, neither of files nor of a program's variables. Links, texts, types and shapes are still compared.
    #[arg(long)]
    no_attributes: bool,
    /// Apply bounds to integers, too. Integers beyond 2^53 that f64 cannot represent are then listed as not
    /// compared. Default: integers are compared exactly.
    #[arg(long)]
    integers: bool,
    /// Follow links in HDF5 files: their targets are compared, too, under the names of the links. Default: links are
    /// compared by the paths of their targets.
    #[arg(long)]
    follow_links: bool,
    /// Whether NaN on both sides is equal or different.
    #[arg(long, value_enum, default_value_t = Nan::Equal)]
    nan: Nan,
    /// Compare packed numbers of HDF5 and netCDF files by the values that they represent: number × scale_factor +
    /// add_offset, NaN for fill values. Bounds apply to these values.
    #[arg(long)]
    unpack: bool,
    /// Stop at the first difference. The counts then cover only the data that was compared before it.
    #[arg(long)]
    first: bool,
    /// Print the first N differences of each variable that differs, with both values. 0: none.
    #[arg(long, value_name = "N", default_value_t = 0)]
    print: usize,
    /// Print at most N of the worst variables, and at most N of the other items: differences beside the arrays, and
    /// items that were not compared.
    #[arg(long, value_name = "N", default_value_t = screen::ROWS)]
    rows: usize,
    /// Print every variable that differs, at each step and rank, and every item that was not compared, with the reason.
    #[arg(long, conflicts_with = "rows")]
    all: bool,
    /// Write every difference to a file: records if its name ends in .npy, otherwise JSON lines.
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Write a report page with figures and maps: one HTML file that needs no network.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Print the time of each stage.
    #[arg(long)]
    timings: bool,
    /// Read and compare all values, also where trees would suffice. Default: trees are used where there are any.
    #[arg(long)]
    no_trees: bool,
    /// Memory for decoded chunks of large compressed arrays (HDF5, netCDF), as in 1GiB. Where the chunks of both sides
    /// have different shapes, some are decoded several times; with more memory, fewer are.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = output::parse_bytes)]
    memory: u64,
    #[command(flatten)]
    raw: RawOptions,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Nan {
    Equal,
    Different,
}

impl CompareOptions {
    fn settings(&self) -> Result<CompareSettings> {
        let bound = match (self.abs, self.rel, self.ulp, self.bits) {
            (None, None, None, false) => None,
            (_, _, _, true) => Some(Bound::Bits),
            (_, _, Some(count), _) => Some(Bound::Ulp(count)),
            (abs, rel, _, _) => {
                Some(Bound::Within { abs: abs.unwrap_or(0.0), rel: rel.unwrap_or(0.0) })
            }
        };
        let settings = CompareSettings {
            bound,
            bounds: self.bound.iter().map(|text| for_compare(text)).collect::<Result<_>>()?,
            variables: self.vars.clone(),
            exclude: self.exclude.clone(),
            attributes: !self.no_attributes,
            integers: self.integers,
            nan_equal: matches!(self.nan, Nan::Equal),
            first: self.first,
            unpack: self.unpack,
            examples: self.print,
            pictures: self.report.is_some(),
            trees: !self.no_trees,
            memory: self.memory,
            mapped: true,
            ..CompareSettings::default()
        };
        settings.check()?;
        Ok(settings)
    }
}

/// A bound of the variables that match; without a pattern, of all.
fn for_compare(text: &str) -> Result<(String, Bound)> {
    limit_or_bound(text).map(|(pattern, bound)| (pattern.unwrap_or("*".to_string()), bound))
}

pub fn run(options: &CompareOptions, json: bool) -> Result<ExitCode> {
    let settings = options.settings()?;
    let ranks = CommandRanks::start()?;
    let mut opened = open(options, &settings, ranks.is_first());
    let (sides, list) = match &mut opened {
        Ok(opened) => (Ok((opened.a.as_ref(), opened.b.as_ref())), opened.list.as_mut()),
        Err(error) => (Err(error.clone()), None),
    };
    let bar = output::progress("comparing");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let outcome = Outcome::of_ranks(ranks.comm(), sides, &settings, list, &told)?;
    let list = opened?.list;
    bar.finish_and_clear();
    let listed = list.map(DifferenceList::finish).transpose()?;
    if let Some(path) = options.report.as_ref().filter(|_| ranks.is_first()) {
        write_report(path, &outcome)?;
    }
    let settings =
        ScreenSettings { all: options.all, rows: options.rows, timings: options.timings };
    show(&outcome, settings, json)?;
    if let (false, Some(path), Some(count)) = (json, &options.list, listed) {
        let differences = output::count(count, "difference");
        output::line(format!("{} holds {differences}", path.display()));
    }
    Ok(answer(&outcome))
}

/// Both sides of a comparison, and the list to write.
struct Opened {
    a: Box<dyn Side>,
    b: Box<dyn Side>,
    /// Only the first rank lists differences.
    list: Option<DifferenceList>,
}

fn open(options: &CompareOptions, settings: &CompareSettings, first: bool) -> Result<Opened> {
    let raw = options.raw.raw()?;
    let outputs = [options.list.as_deref(), options.report.as_deref()];
    keep_inputs(&outputs, &[&options.a, &options.b])?;
    let open = if options.follow_links { open_side_following } else { open_side };
    let a = open(&options.a, raw.as_ref(), settings.trees)?;
    let b = open(&options.b, raw.as_ref(), settings.trees)?;
    let list = options.list.as_deref().filter(|_| first);
    Ok(Opened { a, b, list: list.map(DifferenceList::create).transpose()? })
}

/// Refuses to write to what is read, or two things to one place.
fn keep_inputs(outputs: &[Option<&Path>], inputs: &[&str]) -> Result<()> {
    let identity = |path: &Path| {
        let meta = std::fs::metadata(path).ok().filter(|meta| meta.is_file())?;
        Some((meta.dev(), meta.ino()))
    };
    let mut taken = Vec::new();
    // Of FILE:NAME, the file is read.
    let whole = |input: &&str| {
        let named = input.match_indices(':').map(|(at, _)| input[..at].to_string());
        named.chain([input.to_string()]).map(PathBuf::from).collect::<Vec<_>>()
    };
    for input in inputs.iter().flat_map(whole) {
        let files = match input.is_dir() {
            true => treering::files_in(&input)?.files,
            false => vec![input],
        };
        taken.extend(files.iter().flat_map(|file| [identity(file), identity(&sidecar(file))]));
    }
    let outputs: Vec<&Path> = outputs.iter().copied().flatten().collect();
    for (at, output) in outputs.iter().enumerate() {
        if identity(output).is_some_and(|id| taken.contains(&Some(id))) {
            return Err(Error::usage(format!("{} is one of the inputs", output.display()))
                .hint("give the output another name"));
        }
        if outputs[..at].contains(output) {
            return Err(Error::usage(format!("{} was given for two outputs", output.display()))
                .hint("give each a name of its own"));
        }
    }
    Ok(())
}

/// Writes the page.
pub fn write_report(path: &Path, outcome: &Outcome) -> Result<()> {
    write_whole(path, outcome.html(&output::now())?.as_bytes())
}

/// The exit code: 0 for equal, 1 for different, 2 for undecided.
fn answer(outcome: &Outcome) -> ExitCode {
    match outcome.verdict {
        Answer::Equal => ExitCode::SUCCESS,
        Answer::Different => ExitCode::from(1),
        Answer::Undecided => {
            let chunks = outcome.variables.iter().map(|v| v.undecided).sum();
            if chunks > 0 {
                output::complain(format!(
                    "{} could not be decided without values; compare with data on both sides, or \
                     with trees of a smaller bound",
                    output::count(chunks, "chunk")
                ));
            }
            if !outcome.not_compared.is_empty() {
                output::complain(format!(
                    "{} could not be compared; --all lists them with the reasons",
                    output::count(outcome.not_compared.len() as u64, "item")
                ));
            }
            if outcome.unreadable > 0 {
                output::complain(format!(
                    "{} cannot be read, so not everything was compared; `treering verify` says more",
                    output::count(outcome.unreadable, "checkpoint")
                ));
            }
            ExitCode::from(2)
        }
    }
}

/// Prints the result, as text or JSON.
fn show(outcome: &Outcome, settings: ScreenSettings, json: bool) -> Result<()> {
    // On a terminal, notes are part of the text, in their place and not more than fit.
    if json || output::terminal_width().is_none() {
        output::notes(&outcome.notes);
    }
    match json {
        true => output::json(outcome),
        false => {
            screen::show(outcome, settings);
            Ok(())
        }
    }
}

//! The commands that hold states against each other: `compare`, `tree`, `golden`.

use crate::files::limit;
use crate::output;
use crate::ranks::CommandRanks;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use treering::{
    Answer, Bound, CompareSettings, ContentDifference, DType, DifferenceList, Error, Golden,
    Library, NotCompared, Outcome, Place, Rank, RawLayout, Result, Shape, Side, Timings,
    TreeSettings, TreedSide, Unmatched, VariableOutcome, compare, make_trees_beside, open_side,
    record_golden, sidecar, write_whole,
};

/// What files are that do not say so themselves.
#[derive(clap::Args)]
pub struct RawOptions {
    /// The type of the values of raw files, little-endian: f32, f64, f16, bf16, c64, i32, u8, …
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    dtype: Option<DType>,
    /// The shape of raw files, slowest axis first, as in 100x200; one axis unless told.
    #[arg(long, value_name = "SHAPE", value_parser = parse_shape, requires = "dtype")]
    shape: Option<Shape>,
    /// The fields of raw files, in a TOML file of [[field]] tables with name, type and, if need be,
    /// shape, offset, big_endian, fortran.
    #[arg(long, value_name = "FILE", conflicts_with = "dtype")]
    layout: Option<PathBuf>,
}

impl RawOptions {
    pub fn raw(&self) -> Result<Option<RawLayout>> {
        let Some(path) = &self.layout else {
            return Ok(self.dtype.map(|dtype| RawLayout::values(dtype, self.shape.clone())));
        };
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::io(format!("cannot read {}", path.display()), e))?;
        RawLayout::parse(&text).map(Some).map_err(|e| e.at(path.display()))
    }
}

fn parse_type(text: &str) -> std::result::Result<DType, String> {
    let found = DType::ALL.iter().find(|dtype| dtype.name() == text);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
        format!("there is no type {text:?}; there are {}", names.join(", "))
    })
}

fn parse_shape(text: &str) -> std::result::Result<Shape, String> {
    let extents: std::result::Result<Vec<u64>, _> =
        text.split(['x', '×', ',']).map(|part| part.trim().parse::<u64>()).collect();
    extents.map(Shape).map_err(|_| format!("{text:?} is no shape; write it as in 100x200"))
}

#[derive(clap::Args)]
pub struct CompareOptions {
    /// STORE#RUN, STORE#RUN@STEP, a file, FILE:NAME (an array or a group of a file, as in a.h5:/g/x), a folder of
    /// files, or a tree file.
    a: String,
    /// The same; relative bounds refer to this side.
    b: String,
    /// Permit this absolute difference. With --rel: |a − b| ≤ X + Y·|b|, as numpy.allclose.
    #[arg(long, value_name = "X", allow_hyphen_values = true, conflicts_with_all = ["ulp", "bits"])]
    abs: Option<f64>,
    /// Permit this difference relative to B.
    #[arg(long, value_name = "Y", allow_hyphen_values = true, conflicts_with_all = ["ulp", "bits"])]
    rel: Option<f64>,
    /// Permit values to be N representable numbers apart.
    #[arg(long, value_name = "N", conflicts_with = "bits")]
    ulp: Option<u64>,
    /// Permit nothing: the same bits, so that −0 differs from +0.
    #[arg(long)]
    bits: bool,
    /// The bound of variables that match, as in x=1e-6, 'v*=abs:1e-8,rel:1e-5', t=ulp:4, n=bits; * and ?
    /// stand for anything, and the first that matches counts.
    #[arg(long, value_name = "GLOB=BOUND")]
    bound: Vec<String>,
    /// Only variables that match; * and ? stand for anything. Other content of files (attributes, links,
    /// texts) is then not compared.
    #[arg(long, value_name = "GLOB")]
    vars: Vec<String>,
    /// Leave out variables that match, and attributes, links and texts that belong to them; * and ? stand for
    /// anything. May be given several times.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Whether NaN on both sides is the same.
    #[arg(long, value_enum, default_value_t = Nan::Equal)]
    nan: Nan,
    /// Stop at the first difference; counts are then of what was looked at until there.
    #[arg(long)]
    first: bool,
    /// Print the first N differences of each variable that differs, with both values.
    #[arg(long, value_name = "N", default_value_t = 0)]
    print: usize,
    /// Print at most N variables that differ, and N other items.
    #[arg(long, value_name = "N", default_value_t = ROWS)]
    rows: usize,
    /// Write every difference: as records if the name ends in .npy, else as JSON lines.
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Write a page with figures, complete in one file.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Tell where the time went.
    #[arg(long)]
    timings: bool,
    /// Compare all values, even where trees would do.
    #[arg(long)]
    no_trees: bool,
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
            bounds: self.bound.iter().map(|text| limit(text)).collect::<Result<_>>()?,
            variables: self.vars.clone(),
            exclude: self.exclude.clone(),
            nan_equal: matches!(self.nan, Nan::Equal),
            first: self.first,
            examples: self.print,
            pictures: self.report.is_some(),
            trees: !self.no_trees,
            mapped: true,
            ..CompareSettings::default()
        };
        settings.check()?;
        Ok(settings)
    }
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
    show(&outcome, options.rows, options.timings, json)?;
    if let (false, Some(path), Some(count)) = (json, &options.list, listed) {
        let differences = output::count(count, "difference");
        output::line(format!("{} holds {differences}", path.display()));
    }
    Ok(answer(&outcome))
}

/// What a comparison needs.
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
    let a = open_side(&options.a, raw.as_ref(), settings.trees)?;
    let b = open_side(&options.b, raw.as_ref(), settings.trees)?;
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

/// 0 for equal, 1 for different; what could not be decided is trouble.
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
                    "{} could not be compared; the list above gives the reasons",
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

fn show(outcome: &Outcome, rows: usize, timings: bool, json: bool) -> Result<()> {
    output::notes(&outcome.notes);
    if json {
        return output::json(outcome);
    }
    print_some(outcome.unmatched.iter().map(unmatched_line), rows);
    print_some(outcome.contents.iter().map(content_line), rows);
    print_some(outcome.not_compared.iter().map(not_compared_line), rows);
    if outcome.differences > 0 {
        print_differences(outcome, rows);
        print_examples(outcome, rows);
    }
    output::line(outcome.sentence());
    let share = 100.0 * outcome.bytes_read as f64 / (outcome.bytes_total as f64).max(1.0);
    output::line(format!(
        "read {} of data, sketches and trees; both sides have {} of data ({share:.2} %)",
        output::bytes(outcome.bytes_read),
        output::bytes(outcome.bytes_total)
    ));
    if timings {
        print_timings(&outcome.timings);
    }
    Ok(())
}

/// Prints the first lines, and says how many more there are.
fn print_some(mut lines: impl ExactSizeIterator<Item = String>, most: usize) {
    lines.by_ref().take(most).for_each(output::line);
    if lines.len() > 0 {
        output::line(format!("and {} more", lines.len()));
    }
}

/// Variable, step and rank, as far as there are any.
fn location(variable: Option<&String>, step: Option<u64>, rank: Option<Rank>) -> String {
    let mut parts = Vec::new();
    parts.extend(variable.map(|name| format!("variable {name}")));
    parts.extend(step.map(|step| format!("step {step}")));
    parts.extend(rank.filter(|rank| rank.0 > 0).map(|rank| format!("rank {rank}")));
    parts.join(", ")
}

fn content_line(content: &ContentDifference) -> String {
    let place = location(None, content.step, Some(content.rank));
    let place = if place.is_empty() { place } else { format!(", {place}") };
    let detail = match content.detail.is_empty() {
        true => String::new(),
        false => format!(": {}", content.detail),
    };
    format!("file {}{place}: {} differs{detail}", content.file, content.item)
}

fn not_compared_line(left: &NotCompared) -> String {
    let place = location(left.variable.as_ref(), left.step, left.rank);
    format!("{place}: not compared: {}", left.why)
}

fn unmatched_line(unmatched: &Unmatched) -> String {
    let place = location(unmatched.variable.as_ref(), unmatched.step, unmatched.rank);
    let detail = match unmatched.detail.is_empty() {
        true => String::new(),
        false => format!(": {}", unmatched.detail),
    };
    format!("{place}: {}{detail}", unmatched.what)
}

/// Shows what trees a tree file holds.
pub fn show_trees(path: &Path, json: bool) -> Result<()> {
    let golden = Golden::open(path)?;
    let entries = || golden.views().iter().map(|view| &view.entry);
    if json {
        let tree = |e: &treering::TreeEntry| {
            serde_json::json!({
                "name": e.description.name, "step": e.step, "rank": e.rank,
                "dtype": e.description.dtype, "shape": e.description.shape,
                "bound": e.recipe.bound, "chunk_bytes": e.recipe.chunk, "planes": e.recipe.planes,
                "nans": e.nans,
            })
        };
        return output::json(
            &serde_json::json!({ "trees": entries().map(tree).collect::<Vec<_>>() }),
        );
    }
    let row = |e: &treering::TreeEntry| {
        vec![
            e.description.name.clone(),
            e.step.map_or("–".into(), |step| step.to_string()),
            e.rank.to_string(),
            e.description.dtype.to_string(),
            e.description.shape.to_string(),
            e.recipe.bound.to_string(),
            output::bytes(u64::from(e.recipe.chunk)),
            e.recipe.planes.to_string(),
        ]
    };
    let header = ["variable", "step", "rank", "type", "shape", "bound", "chunk", "planes"];
    output::line(output::table(&header, &[3, 4, 5], entries().map(row)));
    Ok(())
}

/// The most rows that are shown by default.
const ROWS: usize = 40;

/// Prints values that differ, variable by variable.
fn print_examples(outcome: &Outcome, most: usize) {
    for variable in outcome.variables.iter().filter(|v| !v.examples.is_empty()).take(most) {
        output::line(location(Some(&variable.name), variable.step, Some(variable.rank)));
        for example in &variable.examples {
            let index: Vec<String> = example.index.iter().map(u64::to_string).collect();
            output::line(format!("  ({}): {} and {}", index.join(", "), example.a, example.b));
        }
    }
}

fn print_differences(outcome: &Outcome, most: usize) {
    let row = |v: &VariableOutcome| {
        vec![
            v.name.clone(),
            v.step.map_or("–".into(), |step| step.to_string()),
            v.rank.to_string(),
            v.bound.to_string(),
            v.values.to_string(),
            format!("{}{}", if v.at_least { "≥ " } else { "" }, v.differences),
            v.max_difference.short(),
            v.rms.short(),
            v.nan_differences.to_string(),
            v.span(),
        ]
    };
    let differing: Vec<_> = outcome.variables.iter().filter(|v| v.differences > 0).collect();
    let header = [
        "variable",
        "step",
        "rank",
        "bound",
        "values",
        "beyond",
        "largest",
        "rms",
        "NaN",
        "first index",
    ];
    let rows = differing.iter().take(most).map(|v| row(v));
    output::line(output::table(&header, &[3], rows));
    if differing.len() > most {
        output::line(format!("and {} more", differing.len() - most));
    }
}

fn print_timings(timings: &Timings) {
    let parts = [
        ("set-up", timings.setup),
        ("reading trees", timings.trees),
        ("walking", timings.walking),
        ("sketches", timings.sketches),
        ("reading values", timings.reading),
        ("comparing values", timings.comparing),
        ("total", timings.total),
    ];
    let rows = parts.map(|(name, time)| vec![name.to_string(), output::seconds(time)]);
    output::line(output::table(&["stage", "time"], &[], rows));
}

/// The bounds of new trees, their chunks and planes.
#[derive(clap::Args)]
pub struct TreeOptions {
    /// Make a tree for this absolute bound; may be given several times. With --rel: both together.
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    abs: Vec<f64>,
    /// Make a tree for this relative bound; may be given several times.
    #[arg(long, value_name = "Y", allow_hyphen_values = true)]
    rel: Vec<f64>,
    /// Make a tree for this bound in representable numbers; may be given several times.
    #[arg(long, value_name = "N")]
    ulp: Vec<u64>,
    /// Make a tree for this bound: abs:1e-6, rel:1e-5, abs:1e-8,rel:1e-5, ulp:4 or bits.
    #[arg(long, value_name = "BOUND")]
    bound: Vec<String>,
    /// The size of a chunk: a power of two from 512 B to 1 MiB.
    #[arg(long, default_value = "4KiB", value_parser = output::parse_bytes)]
    chunk: u64,
    /// Only variables that match; * and ? stand for anything.
    #[arg(long, value_name = "GLOB")]
    vars: Vec<String>,
}

impl TreeOptions {
    fn settings(&self, planes: u8) -> Result<TreeSettings> {
        let mut bounds = match (&self.abs[..], &self.rel[..]) {
            ([abs], [rel]) => vec![Bound::Within { abs: *abs, rel: *rel }],
            (abs, rel) if abs.is_empty() || rel.is_empty() => {
                let rel = rel.iter().map(|rel| Bound::rel(*rel));
                abs.iter().map(|abs| Bound::abs(*abs)).chain(rel).collect()
            }
            _ => {
                return Err(Error::usage("several absolute and relative bounds were given")
                    .hint("write those that belong together as --bound abs:1e-8,rel:1e-5"));
            }
        };
        bounds.extend(self.ulp.iter().map(|count| Bound::Ulp(*count)));
        for text in &self.bound {
            bounds.push(Bound::parse(text)?);
        }
        let chunk = u32::try_from(self.chunk).unwrap_or(u32::MAX);
        let settings = TreeSettings { bounds, chunk, planes };
        settings.check()?;
        Ok(settings)
    }
}

#[derive(clap::Args)]
pub struct TreeArguments {
    /// STORE#RUN, STORE#RUN@STEP, files, or folders of files.
    #[arg(required = true)]
    places: Vec<String>,
    #[command(flatten)]
    options: TreeOptions,
    /// How many planes the sketches have; 0 leaves them out.
    #[arg(long, default_value_t = 4)]
    planes: u8,
    /// Keep the trees of files in a store instead of beside the files.
    #[arg(long, value_name = "STORE#RUN@STEP")]
    to: Option<String>,
    #[command(flatten)]
    raw: RawOptions,
}

/// Makes trees for data that has none.
pub fn tree(arguments: &TreeArguments, json: bool) -> Result<()> {
    let settings = arguments.options.settings(arguments.planes)?;
    let raw = arguments.raw.raw()?;
    let bar = output::progress("making trees");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let mut made = Vec::new();
    let mut kept = Vec::new();
    for place in &arguments.places {
        let path = Path::new(place);
        if !path.exists() && place.contains('#') {
            let parsed = Place::parse(place)?;
            let run = parsed.run.as_deref().unwrap_or_default();
            let library = Library::open(&parsed.store)?;
            let vars = &arguments.options.vars;
            let (count, notes) = library.make_trees(run, parsed.step, vars, &settings, &told)?;
            output::notes(&notes);
            made.push(format!(
                "{} in {}#{run}+trees",
                output::count(count, "tree"),
                parsed.store.display()
            ));
            continue;
        }
        if arguments.to.is_some() {
            kept.push(open_side(place, raw.as_ref(), false)?);
            continue;
        }
        let files = match path.is_dir() {
            true => treering::files_in(path)?.files,
            false => vec![path.to_path_buf()],
        };
        if files.is_empty() {
            return Err(Error::new(
                treering::ErrorKind::NotFound,
                format!("{place} has no files to make trees of"),
            ));
        }
        for file in files {
            made.push(
                make_trees_beside(&file, raw.as_ref(), &settings, &told)?.display().to_string(),
            );
        }
    }
    if let Some(to) = arguments.to.as_ref().filter(|_| !kept.is_empty()) {
        let to = Place::parse(to)?;
        let (Some(run), Some(step)) = (&to.run, to.step) else {
            return Err(Error::usage(format!("{to} names no step")).hint("write STORE#RUN@STEP"));
        };
        let store = treering::DirectoryStore::new(&to.store);
        let library = Library::of(std::sync::Arc::new(store));
        library.keep_trees(run, step, &kept, &arguments.options.vars, &settings, &told)?;
        made.push(to.to_string());
    }
    bar.finish_and_clear();
    match json {
        true => output::json(&serde_json::json!({ "trees": made })),
        false => {
            made.iter().for_each(|place| output::line(format!("made {place}")));
            Ok(())
        }
    }
}

#[derive(clap::Subcommand)]
pub enum GoldenCommand {
    /// Writes the trees of what is expected to a small file.
    Record {
        /// STORE#RUN, STORE#RUN@STEP, a file, or a folder of files.
        a: String,
        /// The file to write.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        #[command(flatten)]
        options: TreeOptions,
        /// Number of planes of the sketches. From 4 on, as many are kept as prove differences within
        /// the bound; with less, differences may stay undecided.
        #[arg(long, default_value_t = 4)]
        planes: u8,
        /// Leave out variables that match; * and ? stand for anything. May be given several times. The check
        /// needs the same option.
        #[arg(long, value_name = "GLOB")]
        exclude: Vec<String>,
        #[command(flatten)]
        raw: RawOptions,
    },
    /// Tells whether something still agrees with such a file: exit code 0 equal, 1 different, 2
    /// undecided or trouble.
    Check {
        /// The file that was recorded.
        file: PathBuf,
        /// STORE#RUN, STORE#RUN@STEP, a file, or a folder of files.
        a: String,
        /// Write a page with figures, complete in one file.
        #[arg(long, value_name = "FILE.html")]
        report: Option<PathBuf>,
        /// Leave out variables that match; * and ? stand for anything. May be given several times.
        #[arg(long, value_name = "GLOB")]
        exclude: Vec<String>,
        #[command(flatten)]
        raw: RawOptions,
    },
}

pub fn golden(command: &GoldenCommand, json: bool) -> Result<ExitCode> {
    let bar = output::progress("making trees");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    match command {
        GoldenCommand::Record { a, output: path, options, planes, exclude, raw } => {
            keep_inputs(&[Some(path)], &[a])?;
            let side = open_side(a, raw.raw()?.as_ref(), false)?;
            let settings = options.settings(*planes)?;
            let choice = CompareSettings {
                variables: options.vars.clone(),
                exclude: exclude.clone(),
                ..CompareSettings::default()
            };
            let size = record_golden(side.as_ref(), &choice, &settings, path, &told)?;
            bar.finish_and_clear();
            match json {
                true => output::json(&serde_json::json!({ "file": path, "bytes": size }))?,
                false => output::line(format!("{} has {}", path.display(), output::bytes(size))),
            }
            Ok(ExitCode::SUCCESS)
        }
        GoldenCommand::Check { file, a, report, exclude, raw } => {
            keep_inputs(&[report.as_deref()], &[a, &file.to_string_lossy()])?;
            let golden = Golden::open(file)?;
            let side = open_side(a, raw.raw()?.as_ref(), false)?;
            let prepared = TreedSide::new(side.as_ref(), &golden);
            let settings = CompareSettings {
                expected: true,
                exclude: exclude.clone(),
                ..CompareSettings::default()
            };
            let outcome = compare(&golden, &prepared, &settings, None, &told)?;
            bar.finish_and_clear();
            if let Some(path) = report {
                write_report(path, &outcome)?;
            }
            show(&outcome, ROWS, false, json)?;
            Ok(answer(&outcome))
        }
    }
}

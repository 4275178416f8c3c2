//! `treering tree`, and what `show` says about tree files.

use super::raw::RawOptions;
use crate::files::limit_or_bound;
use crate::output;
use std::path::Path;
use treering::{
    Bound, Error, ErrorKind, Golden, Library, Place, Result, TreeSettings, make_trees_beside,
    open_side,
};

/// The bounds of new trees, their chunks and planes.
#[derive(clap::Args)]
pub struct TreeOptions {
    /// Make a tree for this absolute bound; may be given several times. One --abs and one --rel make one tree:
    /// |a − b| ≤ X + Y·|b|.
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    abs: Vec<f64>,
    /// Make a tree for this relative bound; may be given several times.
    #[arg(long, value_name = "Y", allow_hyphen_values = true)]
    rel: Vec<f64>,
    /// Make a tree for values that are N representable numbers apart; may be given several times.
    #[arg(long, value_name = "N")]
    ulp: Vec<u64>,
    /// Make a tree for this bound, of all variables or of those that match: abs:1e-6, rel:1e-5, abs:1e-8,rel:1e-5, ulp:4,
    /// bits, 'v*=1e-6' or 'v*=ulp:4'; * and ? stand for anything. May be given several times.
    #[arg(long, value_name = "[GLOB=]BOUND")]
    bound: Vec<String>,
    /// Size of the chunks that have a hash each: a power of two from 512 B to 1 MiB.
    #[arg(long, default_value = "4KiB", value_parser = output::parse_bytes)]
    chunk: u64,
    /// Only variables that match; * and ? stand for anything. May be given several times. Default: all.
    #[arg(long, value_name = "GLOB")]
    pub(super) vars: Vec<String>,
}

impl TreeOptions {
    pub(super) fn settings(&self, planes: u8) -> Result<TreeSettings> {
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
        let mut bounds_of = Vec::new();
        for text in &self.bound {
            match limit_or_bound(text)? {
                (Some(pattern), bound) => bounds_of.push((pattern, bound)),
                (None, bound) => bounds.push(bound),
            }
        }
        let chunk = u32::try_from(self.chunk).unwrap_or(u32::MAX);
        let settings = TreeSettings { bounds, bounds_of, chunk, planes };
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
    /// Bits of each value that a sketch keeps, which distinguish jitter within the bound from differences without
    /// reading the values. 0: no sketches.
    #[arg(long, default_value_t = 4)]
    planes: u8,
    /// Keep the trees of all places as this checkpoint of a store, without the data. Default: beside the files, or in the
    /// store of the run.
    #[arg(long, value_name = "STORE#RUN@STEP")]
    into: Option<String>,
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
    let (mut kept, mut notes) = (Vec::new(), Vec::new());
    for place in &arguments.places {
        let path = Path::new(place);
        if arguments.into.is_some() {
            kept.push(open_side(place, raw.as_ref(), false)?);
            continue;
        }
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
        let files = match path.is_dir() {
            true => treering::files_in(path)?.files,
            false => vec![path.to_path_buf()],
        };
        if files.is_empty() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{place} has no files to make trees of"),
            ));
        }
        let (before, alone) = (made.len(), !path.is_dir());
        for file in files {
            let vars = &arguments.options.vars;
            match make_trees_beside(&file, raw.as_ref(), vars, &settings, &told) {
                Ok(beside) => made.push(beside.display().to_string()),
                // A folder may hold texts, too.
                Err(error) if error.kind() == ErrorKind::NotFound && !alone => {
                    notes.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        if made.len() == before {
            let what = format!("{place} has no arrays to make trees of");
            return Err(Error::new(ErrorKind::NotFound, what));
        }
    }
    if let Some(to) = arguments.into.as_ref().filter(|_| !kept.is_empty()) {
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
    output::notes(&notes);
    match json {
        true => output::json(&serde_json::json!({ "trees": made })),
        false => {
            made.iter().for_each(|place| output::line(format!("made {place}")));
            Ok(())
        }
    }
}

/// Shows the trees of a tree file.
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

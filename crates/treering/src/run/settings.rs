//! Options as plain data: TOML, and variables of the environment.
//!
//! Law: a key that does not exist is refused by its name, and an invalid value by its key. A key replaces the option, in
//! whichever way it was set before; an option without a key stays as it is.

use super::schedule::Every;
use super::{Options, Overload};
use crate::array::Bound;
use crate::codec::{Aim, Encoding};
use crate::error::{Error, Result};
use crate::lineage::{ChunkSize, Method};
use crate::redundancy::Redundancy;
use crate::store::{DirectoryStore, Store};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use toml::{Table, Value};

/// Prefix of the environment variables that are options.
const PREFIX: &str = "TREERING_OPTION_";
/// The variable that names a file of options.
const FILE: &str = "TREERING_OPTIONS";

/// The keys, each that of a method of [`Options`].
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    store: Option<PathBuf>,
    run: Option<String>,
    node: Option<PathBuf>,
    chunk: Option<Size>,
    method: Option<String>,
    encoding: Option<String>,
    staging: Option<Size>,
    record: Option<Size>,
    overload: Option<String>,
    growth: Option<f64>,
    every: Option<String>,
    deadline: Option<u64>,
    signals: Option<bool>,
    patience: Option<String>,
    ranks_per_pack: Option<u32>,
    pack_together: Option<Size>,
    aggregator_memory: Option<Size>,
    shared_every: Option<u32>,
    redundancy: Option<String>,
    replicas: Option<u32>,
    spares: Option<u32>,
    domain: Option<String>,
    compact: Option<bool>,
    keep: Option<KeepSettings>,
    limit: Option<Size>,
    store_limit: Option<Size>,
    trees_only: Option<bool>,
    tree: Option<TreeTable>,
    #[serde(default)]
    bounds: BTreeMap<String, String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The arguments of [`Options::keep`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeepSettings {
    last: u64,
    every: Option<u64>,
}

/// The arguments of [`Options::tree`]. Default: as they are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeTable {
    chunk: Option<Size>,
    planes: Option<u8>,
}

/// A number of bytes, or a text such as `512MiB`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Bytes(u64),
    Text(String),
}

/// A number and its unit.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn size(key: &str, size: Size) -> Result<u64> {
    const UNITS: [(&str, u64); 10] = [
        ("", 1),
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    match size {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Text(text) => parse(&text, &UNITS).ok_or_else(|| wrong(key, &text, "512MiB")),
    }
}

fn time(text: &str) -> Option<Duration> {
    const UNITS: [(&str, u64); 5] =
        [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    parse(text, &UNITS).map(Duration::from_millis)
}

fn every(text: &str) -> Option<Every> {
    if let Some(between_failures) = text.strip_prefix("optimum:") {
        return Some(Every::Optimum { between_failures: time(between_failures)? });
    }
    let steps = text.strip_suffix("steps").map(str::trim);
    match steps.or_else(|| text.strip_suffix("step").map(str::trim)) {
        Some(steps) => steps.parse().ok().map(Every::Steps),
        None => time(text).map(Every::Time),
    }
}

fn wrong(key: &str, text: &str, example: &str) -> Error {
    Error::usage(format!("invalid value {text:?} of the option {key:?}"))
        .hint(format!("write, for example, {key} = {example:?}"))
}

/// One of several words.
fn choice<T: Copy>(key: &str, text: &str, choices: &[(&str, T)]) -> Result<T> {
    let found = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Error::usage(format!("invalid value {text:?} of the option {key:?}"))
            .hint(format!("choose {}", names.join(", ")))
    })
}

fn encoding(text: &str) -> Result<Encoding> {
    if let Some(level) = text.strip_prefix("zstd:") {
        return level.parse().map(Encoding::Zstd).map_err(|_| wrong("encoding", text, "zstd:3"));
    }
    let choices = [
        ("smallest", Encoding::Best(Aim::Smallest)),
        ("balanced", Encoding::Best(Aim::Balanced)),
        ("fastest", Encoding::Best(Aim::Fastest)),
        ("raw", Encoding::Raw),
        ("zstd:LEVEL", Encoding::Zstd(3)),
    ];
    choice("encoding", text, &choices)
}

fn redundancy(text: &str) -> Result<Redundancy> {
    if let Some(set) = text.strip_prefix("xor:") {
        let set = set.parse().map_err(|_| wrong("redundancy", text, "xor:8"))?;
        return Ok(Redundancy::Xor { set });
    }
    let choices = [
        ("none", Redundancy::None),
        ("partner", Redundancy::Partner),
        ("xor:NODES", Redundancy::Xor { set: 8 }),
    ];
    choice("redundancy", text, &choices)
}

impl Settings {
    fn of(table: Table) -> Result<Settings> {
        let wrong = |error: toml::de::Error| {
            let what = error.to_string();
            let what: Vec<&str> = what.lines().map(str::trim).collect();
            Error::usage(format!("invalid options: {}", what.join(" ").trim()))
                .hint("the keys are those of the methods of Options; the book lists them")
        };
        Value::Table(table).try_into().map_err(wrong)
    }

    /// Replaces the options that have a key here.
    fn apply(self, mut options: Options) -> Result<Options> {
        if let Some(store) = self.store {
            options.writer.tiers.last = Arc::new(DirectoryStore::new(&store));
        }
        if let Some(run) = self.run {
            options.writer.run = run;
        }
        if let Some(node) = self.node {
            let store = || Arc::new(DirectoryStore::new(&node)) as Arc<dyn Store>;
            let given = !node.as_os_str().is_empty();
            options.writer.tiers.near = given.then(store).into_iter().collect();
        }
        if let Some(bytes) = self.chunk {
            options = options.chunk(ChunkSize::new(size("chunk", bytes)?)?);
        }
        if let Some(text) = self.method {
            let choices = Method::ALL.map(|method| (method.name(), method));
            options = options.method(choice("method", &text, &choices)?);
        }
        if let Some(text) = self.encoding {
            options = options.encoding(encoding(&text)?);
        }
        if let Some(bytes) = self.staging {
            options = options.staging(size("staging", bytes)?);
        }
        if let Some(bytes) = self.record {
            options = options.record(size("record", bytes)?);
        }
        if let Some(text) = self.overload {
            let choices = [("wait", Overload::Wait), ("skip", Overload::Skip)];
            options = options.overload(choice("overload", &text, &choices)?);
        }
        if let Some(part) = self.growth {
            options = options.growth(part);
        }
        if let Some(text) = self.every {
            let every = every(&text).ok_or_else(|| {
                wrong("every", &text, "100 steps").hint("or \"10min\", or \"optimum:24h\"")
            })?;
            options = options.every(every);
        }
        if let Some(seconds) = self.deadline {
            let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
            let seconds = seconds.to_string();
            options =
                options.deadline(time.ok_or_else(|| wrong("deadline", &seconds, "1767225600"))?);
        }
        options.signals = self.signals.unwrap_or(options.signals);
        if let Some(text) = self.patience {
            let limit = time(&text).ok_or_else(|| wrong("patience", &text, "10min"))?;
            options = options.patience(limit);
        }
        if let Some(ranks) = self.ranks_per_pack {
            options = options.ranks_per_pack(ranks);
        }
        if let Some(bytes) = self.pack_together {
            options = options.pack_together(size("pack_together", bytes)?);
        }
        if let Some(bytes) = self.aggregator_memory {
            options = options.aggregator_memory(size("aggregator_memory", bytes)?);
        }
        if let Some(checkpoints) = self.shared_every {
            options = options.shared_every(checkpoints);
        }
        if let Some(text) = self.redundancy {
            options = options.redundancy(redundancy(&text)?);
        }
        if let Some(copies) = self.replicas {
            options = options.replicas(copies);
        }
        if let Some(ranks) = self.spares {
            options = options.spares(ranks);
        }
        if let Some(name) = self.domain {
            options = options.domain(&name);
        }
        if let Some(compact) = self.compact {
            let rule = options.writer.compaction.unwrap_or_default();
            options = options.compact(compact.then_some(rule));
        }
        if let Some(KeepSettings { last, every }) = self.keep {
            options = options.keep(last, every);
        }
        if let Some(bytes) = self.limit {
            options = options.limit(size("limit", bytes)?);
        }
        if let Some(bytes) = self.store_limit {
            options = options.store_limit(size("store_limit", bytes)?);
        }
        options.trees_only = self.trees_only.unwrap_or(options.trees_only);
        if let Some(TreeTable { chunk, planes }) = self.tree {
            let bytes = chunk.map(|chunk| size("tree.chunk", chunk)).transpose()?;
            let bytes = bytes.unwrap_or(u64::from(options.trees.chunk));
            let chunk = u32::try_from(bytes)
                .map_err(|_| wrong("tree.chunk", &bytes.to_string(), "4KiB"))?;
            let planes = planes.unwrap_or(options.trees.planes);
            options = options.tree(chunk, planes);
        }
        for (pattern, bound) in &self.bounds {
            options.bounds.retain(|(known, _)| known != pattern);
            options = options.bound(pattern, Bound::parse(bound)?);
        }
        for (key, text) in &self.labels {
            options = options.label(key, text);
        }
        options.labels.check()?;
        Ok(options)
    }
}

fn table(text: &str) -> Result<Table> {
    text.parse().map_err(|error: toml::de::Error| {
        let what = error.to_string();
        Error::usage(format!("invalid options: not TOML: {}", what.trim()))
    })
}

/// A value of the environment: what TOML understands, or else a text.
fn value(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>();
    let parsed = parsed.ok().and_then(|mut table| table.remove("value"));
    parsed.unwrap_or_else(|| Value::String(text.to_string()))
}

/// The options that variables of the environment are.
fn environment(variables: impl Iterator<Item = (String, String)>) -> Table {
    let named = variables.filter_map(|(name, text)| {
        let key = name.strip_prefix(PREFIX)?.to_lowercase();
        Some((key, value(&text)))
    });
    named.collect()
}

impl Options {
    /// Options from TOML: the folder of the store, the run, and any other option. Keys have the names of methods, but for
    /// `signals`, `bounds` and `labels`; a key that does not exist is an error that names it. `deadline` is a number of
    /// seconds since 1970, as in `SLURM_JOB_END_TIME`.
    ///
    /// ```
    /// use treering::Options;
    /// let options = Options::from_toml(
    ///     r#"
    ///     store = "store"
    ///     run = "rod"
    ///     every = "10min"        # or "100 steps", or "optimum:24h"
    ///     staging = "512MiB"
    ///     encoding = "fastest"
    ///     bounds = { "heat*" = "abs:1e-6" }
    ///     "#,
    /// )?;
    /// let options = options.with_environment()?; // who starts the program has the last word
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Options> {
        let settings = Settings::of(table(text)?)?;
        let (Some(store), Some(run)) = (&settings.store, &settings.run) else {
            return Err(Error::usage("the options name no store or no run")
                .hint("write store = \"FOLDER\" and run = \"NAME\""));
        };
        let options = Options::directory(store, run);
        settings.apply(options)
    }

    /// Replaces options by those of TOML, as [`Options::from_toml`] reads it; options without a key stay as they are. `node`
    /// replaces the stores of the node (`node = ""` leaves them out), and a bound replaces that of the same pattern.
    ///
    /// An unknown key or an invalid value is an error of kind [`ErrorKind::Usage`](crate::ErrorKind::Usage) that names it.
    /// The options are consumed then; a program that goes on without the text passes a clone.
    pub fn with_toml(self, text: &str) -> Result<Options> {
        Settings::of(table(text)?)?.apply(self)
    }

    /// Changes options by the environment: first by the file of TOML that `TREERING_OPTIONS` names, then by variables such
    /// as `TREERING_OPTION_STAGING=512MiB`, with the keys of [`Options::from_toml`]. The person who starts a program can
    /// thus override its options.
    ///
    /// A file that cannot be read, an unknown key and an invalid value are errors. The options are consumed then; a program
    /// that goes on without the environment passes a clone.
    pub fn with_environment(self) -> Result<Options> {
        let mut options = self;
        if let Some(path) = std::env::var_os(FILE) {
            let path = PathBuf::from(path);
            let read = std::fs::read_to_string(&path);
            let shown = path.display();
            let text =
                read.map_err(|e| Error::io(format!("cannot read options from {shown}"), e))?;
            options = options.with_toml(&text).map_err(|error| error.at(shown))?;
        }
        let variables = std::env::vars_os();
        let variables = variables
            .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
        Settings::of(environment(variables))?.apply(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn plain() -> Options {
        Options::in_store(Arc::new(MemoryStore::new()), "r")
    }

    #[test]
    fn every_key_does_what_its_method_does() {
        let text = r#"
            chunk = 128
            method = "basic"
            encoding = "zstd:7"
            staging = "512MiB"
            record = 1048576
            overload = "skip"
            growth = 0.5
            every = "optimum:24h"
            signals = true
            patience = "90s"
            ranks_per_pack = 4
            shared_every = 10
            redundancy = "xor:4"
            replicas = 3
            domain = "rack 7"
            compact = false
            keep = { last = 3, every = 100 }
            limit = "10GiB"
            store_limit = "2TB"
            bounds = { "p*" = "abs:1e-6" }
            labels = { git = "4542149" }
        "#;
        let options = plain().with_toml(text).unwrap();
        assert_eq!(options.writer.chunk, ChunkSize::new(128).unwrap());
        assert_eq!(options.writer.method, Method::Basic);
        assert_eq!(options.writer.encoding, Encoding::Zstd(7));
        assert_eq!((options.staging, options.writer.record), (512 << 20, 1 << 20));
        assert_eq!(options.overload, Overload::Skip);
        let day = Duration::from_secs(86_400);
        assert_eq!(options.every, Some(Every::Optimum { between_failures: day }));
        assert!(options.signals && options.patience == Duration::from_secs(90));
        assert_eq!((options.ranks_per_pack, options.shared_every, options.replicas), (4, 10, 3));
        assert_eq!(options.redundancy, Redundancy::Xor { set: 4 });
        assert!(options.domain.as_deref() == Some("rack 7") && options.writer.compaction.is_none());
        assert_eq!(options.bounds, [("p*".to_string(), Bound::abs(1e-6))]);
        assert_eq!(options.labels.get("git"), Some("4542149"));
        let keep = options.keep.unwrap();
        assert_eq!((keep.last, keep.every, keep.limit), (3, Some(100), Some(10 << 30)));
        assert_eq!(keep.store_limit, Some(2_000_000_000_000));
        // What is not said stays.
        let same = options.with_toml("growth = 2").unwrap();
        assert_eq!((same.staging, same.replicas), (512 << 20, 3));
    }

    #[test]
    fn later_settings_replace_earlier_ones_in_both_directions() {
        let near = |options: &Options| options.writer.tiers.near.len();
        let [on, off] = [
            "signals = true\ncompact = true\ntrees_only = true\nnode = \"ssd\"\ndeadline = 2000000000\n\
             tree = { chunk = \"8KiB\", planes = 2 }\nbounds = { \"p*\" = \"abs:1e-6\" }",
            "signals = false\ncompact = false\ntrees_only = false\nnode = \"\"\ndeadline = 1000000000\n\
             tree = { chunk = 4096 }\nbounds = { \"p*\" = \"abs:1e-3\" }",
        ];
        let check = |options: &Options, first: bool| {
            assert_eq!((options.signals, options.trees_only), (first, first));
            assert_eq!(options.writer.compaction.is_some(), first);
            assert_eq!(near(options), usize::from(first));
            let seconds = if first { 2_000_000_000 } else { 1_000_000_000 };
            let end = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(options.deadline, Some(end));
            assert_eq!(options.trees.chunk, if first { 8192 } else { 4096 });
            assert_eq!(options.trees.planes, 2);
            let bound = Bound::abs(if first { 1e-6 } else { 1e-3 });
            assert_eq!(options.bounds, [("p*".to_string(), bound)]);
        };
        let once = plain().with_toml(on).unwrap();
        check(&once, true);
        let back = once.clone().with_toml(off).unwrap();
        check(&back, false);
        check(&back.with_toml(on).unwrap(), true);
        // Stores of a node that the program gives are replaced, not added to.
        let given = plain().node(Arc::new(MemoryStore::new())).node(Arc::new(MemoryStore::new()));
        assert_eq!(near(&given.clone().with_toml("node = \"ssd\"").unwrap()), 1);
        assert_eq!(near(&given.with_toml("growth = 1").unwrap()), 2);
        // The environment has the last word over the program and over TOML.
        let variables = [
            ("SIGNALS", "false"),
            ("COMPACT", "false"),
            ("TREES_ONLY", "false"),
            ("NODE", ""),
            ("DEADLINE", "1000000000"),
            ("TREE", "{ chunk = 4096 }"),
            ("BOUNDS", "{ \"p*\" = \"abs:1e-3\" }"),
        ];
        let variables = variables.map(|(name, text)| (format!("{PREFIX}{name}"), text.to_string()));
        let table = environment(variables.into_iter());
        check(&Settings::of(table).unwrap().apply(once).unwrap(), false);
    }

    #[test]
    fn invalid_keys_and_values_are_refused_by_name() {
        for (text, named) in [
            ("stagign = 5", "stagign"),
            ("staging = \"5 parsecs\"", "staging"),
            ("staging = \"99999999999TiB\"", "staging"),
            ("every = \"now and then\"", "every"),
            ("overload = \"panic\"", "overload"),
            ("encoding = \"zstd:fast\"", "encoding"),
            ("chunk = 100", "100"),
            ("bounds = { x = \"1e-6\" }", "1e-6"),
            ("replicas = \"many\"", "replicas"),
            ("labels = { step = \"5\" }", "step"),
            ("keep = { newest = 3 }", "newest"),
            ("tree = { depth = 3 }", "depth"),
            ("tree = { chunk = \"8GiB\" }", "tree.chunk"),
            ("deadline = \"soon\"", "deadline"),
            ("= 5", "TOML"),
        ] {
            let error = plain().with_toml(text).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains(named)), "{text}: {error:?}");
        }
        assert!(Options::from_toml("run = \"r\"").is_err());
    }

    #[test]
    fn the_environment_has_numbers_and_texts() {
        let variables = [
            ("TREERING_OPTION_STAGING", "1GiB"),
            ("TREERING_OPTION_REPLICAS", "3"),
            ("TREERING_OPTION_EVERY", "5 steps"),
            ("TREERING_OTHER", "7"),
            ("HOME", "/root"),
        ];
        let variables = variables.map(|(name, text)| (name.to_string(), text.to_string()));
        let table = environment(variables.into_iter());
        let options = Settings::of(table).unwrap().apply(plain()).unwrap();
        assert_eq!((options.staging, options.replicas), (1 << 30, 3));
        assert_eq!(options.every, Some(Every::Steps(5)));
        let unknown =
            environment([("TREERING_OPTION_STAGIGN".to_string(), "1".to_string())].into_iter());
        assert!(Settings::of(unknown).err().unwrap().to_string().contains("stagign"));
    }
}

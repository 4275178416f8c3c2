//! Options as plain data: TOML, and variables of the environment.
//!
//! Law: a key that does not exist is refused by its name, and an invalid value by its key. A key replaces the option, in
//! whichever way it was set before; an option without a key stays as it is.

use super::schedule::Every;
use super::{Options, Overload};
use crate::array::Bound;
use crate::codec::{Aim, Encoding};
use crate::compact::Compaction;
use crate::error::{Error, Result};
use crate::lineage::{ChunkSize, Method};
use crate::redundancy::Redundancy;
use crate::replica::ReplicaSettings;
use crate::store::{DirectoryStore, Store};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
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
    on_signals: Option<bool>,
    patience: Option<String>,
    ranks_per_pack: Option<u32>,
    pack_together: Option<Size>,
    aggregator_memory: Option<Size>,
    shared_every: Option<u32>,
    redundancy: Option<String>,
    replicas: Option<u32>,
    replica_settings: Option<ReplicaTable>,
    spares: Option<u32>,
    domain: Option<String>,
    /// A table of numbers, or whether to compact.
    compact: Option<Value>,
    keep: Option<KeepSettings>,
    limit: Option<Size>,
    store_limit: Option<Size>,
    trees_only: Option<bool>,
    tree: Option<TreeTable>,
    reference: Option<ReferenceTable>,
    #[serde(default)]
    bound: BTreeMap<String, String>,
    #[serde(default)]
    label: BTreeMap<String, String>,
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

/// The numbers of a [`Compaction`]. Default: as they are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompactTable {
    files: Option<u64>,
    pack_bytes: Option<Size>,
}

/// The settings of replicas that sizes and memory decide. Default: as they are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplicaTable {
    block_size: Option<Size>,
    range_blocks: Option<u64>,
    budget: Option<Size>,
    piece: Option<Size>,
    keep_own: Option<bool>,
    repeated: Option<bool>,
}

/// The arguments of [`Options::reference`], with one bound for all variables.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReferenceTable {
    store: PathBuf,
    run: String,
    bound: Option<String>,
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

fn refused(error: toml::de::Error) -> Error {
    let what = error.to_string();
    let what: Vec<&str> = what.lines().map(str::trim).collect();
    Error::usage(format!("invalid options: {}", what.join(" ").trim()))
        .hint("the keys are those of the methods of Options; the book lists them")
}

/// The rule for compactions; `None`: never.
fn compaction(value: Value, now: Option<Compaction>) -> Result<Option<Compaction>> {
    let rule = now.unwrap_or_default();
    if let Value::Boolean(compact) = value {
        return Ok(compact.then_some(rule));
    }
    let CompactTable { files, pack_bytes } = value.try_into().map_err(|error| {
        refused(error).at("option \"compact\"").hint("write true, false or { files = 128 }")
    })?;
    let pack_bytes = pack_bytes.map(|bytes| size("compact.pack_bytes", bytes)).transpose()?;
    Ok(Some(Compaction {
        files: files.unwrap_or(rule.files),
        pack_bytes: pack_bytes.unwrap_or(rule.pack_bytes),
    }))
}

impl ReplicaTable {
    fn apply(self, mut settings: ReplicaSettings) -> Result<ReplicaSettings> {
        let bytes = |key: &str, given: Option<Size>, now: u64| match given {
            Some(given) => size(&format!("replica_settings.{key}"), given),
            None => Ok(now),
        };
        settings.block_size = bytes("block_size", self.block_size, settings.block_size)?;
        settings.budget = bytes("budget", self.budget, settings.budget)?;
        settings.piece = bytes("piece", self.piece, settings.piece)?;
        settings.range_blocks = self.range_blocks.unwrap_or(settings.range_blocks);
        settings.keep_own = self.keep_own.unwrap_or(settings.keep_own);
        settings.repeated = self.repeated.unwrap_or(settings.repeated);
        Ok(settings)
    }
}

impl ReferenceTable {
    #[cfg(feature = "tools")]
    fn apply(self, options: Options) -> Result<Options> {
        let bound = self.bound.map(|bound| Bound::parse(&bound)).transpose()?;
        let settings = crate::compare::CompareSettings { bound, ..Default::default() };
        Ok(options.reference(Arc::new(DirectoryStore::new(&self.store)), &self.run, settings))
    }

    #[cfg(not(feature = "tools"))]
    fn apply(self, _: Options) -> Result<Options> {
        Err(Error::usage("this program cannot compare its run with a reference").hint(
            "build it with the feature `tools` of treering, or leave out the key `reference`",
        ))
    }
}

impl Settings {
    fn of(table: Table) -> Result<Settings> {
        Value::Table(table).try_into().map_err(refused)
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
        options.signals = self.on_signals.unwrap_or(options.signals);
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
        if let Some(table) = self.replica_settings {
            options.replica_settings = table.apply(options.replica_settings)?;
        }
        if let Some(ranks) = self.spares {
            options = options.spares(ranks);
        }
        if let Some(name) = self.domain {
            options = options.domain(&name);
        }
        if let Some(value) = self.compact {
            let rule = compaction(value, options.writer.compaction)?;
            options = options.compact(rule);
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
        if let Some(table) = self.reference {
            options = table.apply(options)?;
        }
        for (pattern, bound) in &self.bound {
            options.bounds.retain(|(known, _)| known != pattern);
            options = options.bound(pattern, Bound::parse(bound)?);
        }
        for (key, text) in &self.label {
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

/// Replaces options by those that variables of the environment are, one by one: an error names its variable.
fn with_variables(
    mut options: Options,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Options> {
    for (name, text) in variables {
        let shown = name.to_string_lossy().into_owned();
        let Some(key) = shown.strip_prefix(PREFIX) else { continue };
        let place = format!("environment variable {shown}");
        let wrong = |what: &str| Error::usage(format!("invalid options: {what}")).at(&place);
        let text = text.into_string().map_err(|_| wrong("the value is not UTF-8"))?;
        let table = Table::from_iter([(key.to_lowercase(), value(&text))]);
        let given = Settings::of(table).and_then(|given| given.apply(options));
        options = given.map_err(|error| error.at(&place))?;
    }
    Ok(options)
}

impl Options {
    /// Options from TOML: the folder of the store, the run, and most other options. Keys have the names of methods; a key
    /// that does not exist is an error that names it. `deadline` is a number of seconds since 1970, as in
    /// `SLURM_JOB_END_TIME`. `bound` and `label` are tables of patterns and keys. These have no key, because they are
    /// objects of the program: `ranks`, `aggregated`, `on_progress`, `on_save_progress`, and other
    /// stores than folders.
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
    ///     bound = { "heat*" = "abs:1e-6" }
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
    /// A file that cannot be read, an unknown key, an invalid value and a value that is not UTF-8 are errors, which name the
    /// file or the variable. The options are consumed then; a program that goes on without the environment passes a clone.
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
        with_variables(options, std::env::vars_os())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;
    use std::os::unix::ffi::OsStringExt;

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
            on_signals = true
            patience = "90s"
            ranks_per_pack = 4
            shared_every = 10
            redundancy = "xor:4"
            replicas = 3
            domain = "rack 7"
            compact = { files = 64, pack_bytes = "1MiB" }
            replica_settings = { block_size = 128, budget = "4GiB", keep_own = true }
            reference = { store = "archive", run = "monday", bound = "abs:1e-6" }
            keep = { last = 3, every = 100 }
            limit = "10GiB"
            store_limit = "2TB"
            bound = { "p*" = "abs:1e-6" }
            label = { git = "4542149" }
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
        assert_eq!(options.domain.as_deref(), Some("rack 7"));
        let rule = Compaction { files: 64, pack_bytes: 1 << 20 };
        assert_eq!(options.writer.compaction, Some(rule));
        let ReplicaSettings { block_size, budget, keep_own, piece, .. } = options.replica_settings;
        assert_eq!((block_size, budget, keep_own, piece), (128, 4 << 30, true, 16 << 20));
        let reference = options.reference.clone().unwrap();
        assert_eq!(
            (&reference.run[..], reference.settings.bound),
            ("monday", Some(Bound::abs(1e-6)))
        );
        assert_eq!(options.bounds, [("p*".to_string(), Bound::abs(1e-6))]);
        assert_eq!(options.labels.get("git"), Some("4542149"));
        let keep = options.keep.unwrap();
        assert_eq!((keep.last, keep.every, keep.limit), (3, Some(100), Some(10 << 30)));
        assert_eq!(keep.store_limit, Some(2_000_000_000_000));
        // Options without a key stay.
        let same = options.with_toml("growth = 2").unwrap();
        assert_eq!((same.staging, same.replicas), (512 << 20, 3));
    }

    #[test]
    fn later_settings_replace_earlier_ones_in_both_directions() {
        let near = |options: &Options| options.writer.tiers.near.len();
        let [on, off] = [
            "on_signals = true\ncompact = true\ntrees_only = true\nnode = \"ssd\"\ndeadline = 2000000000\n\
             tree = { chunk = \"8KiB\", planes = 2 }\nbound = { \"p*\" = \"abs:1e-6\" }",
            "on_signals = false\ncompact = false\ntrees_only = false\nnode = \"\"\ndeadline = 1000000000\n\
             tree = { chunk = 4096 }\nbound = { \"p*\" = \"abs:1e-3\" }",
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
            ("ON_SIGNALS", "false"),
            ("COMPACT", "false"),
            ("TREES_ONLY", "false"),
            ("NODE", ""),
            ("DEADLINE", "1000000000"),
            ("TREE", "{ chunk = 4096 }"),
            ("BOUND", "{ \"p*\" = \"abs:1e-3\" }"),
        ];
        let variables =
            variables.map(|(name, text)| (format!("{PREFIX}{name}").into(), text.into()));
        check(&with_variables(once, variables.into_iter()).unwrap(), false);
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
            ("bound = { x = \"1e-6\" }", "1e-6"),
            ("signals = true", "signals"),
            ("compact = { size = 3 }", "size"),
            ("compact = \"often\"", "compact"),
            ("compact = { pack_bytes = \"much\" }", "compact.pack_bytes"),
            ("replica_settings = { copies = 3 }", "copies"),
            ("replica_settings = { budget = \"much\" }", "replica_settings.budget"),
            ("reference = { store = \"x\" }", "run"),
            ("reference = { store = \"x\", run = \"y\", bound = \"5\" }", "5"),
            ("replicas = \"many\"", "replicas"),
            ("label = { step = \"5\" }", "step"),
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
        let given = |variables: &[(&str, &[u8])]| {
            let of = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            let variables: Vec<_> =
                variables.iter().map(|(name, text)| (OsString::from(name), of(text))).collect();
            with_variables(plain(), variables.into_iter())
        };
        let options = given(&variables.map(|(name, text)| (name, text.as_bytes()))).unwrap();
        assert_eq!((options.staging, options.replicas), (1 << 30, 3));
        assert_eq!(options.every, Some(Every::Steps(5)));
        // Nothing is dropped silently, and an error says that it came from the environment.
        for (name, text, named) in [
            ("TREERING_OPTION_STAGIGN", &b"1"[..], "stagign"),
            ("TREERING_OPTION_STAGING", b"much", "much"),
            ("TREERING_OPTION_RUN", b"r\xff", "not UTF-8"),
        ] {
            let error = given(&[(name, text)]).err().unwrap();
            assert_eq!(error.kind(), crate::error::ErrorKind::Usage);
            let told = error.to_string();
            assert!(told.contains(named) && told.contains(name), "{told}");
        }
        assert!(given(&[("HOME", b"r\xff")]).is_ok());
    }
}

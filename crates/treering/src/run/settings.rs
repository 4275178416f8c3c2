//! Options as plain data: TOML, and variables of the environment.
//!
//! Law: a key that does not exist is refused by its name, and so is a value that makes no sense, by its key. What is not
//! said stays as it is.

use super::schedule::Every;
use super::{Options, Overload};
use crate::array::Bound;
use crate::codec::{Aim, Encoding};
use crate::error::{Error, Result};
use crate::lineage::{ChunkSize, Method};
use crate::redundancy::Redundancy;
use crate::store::DirectoryStore;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use toml::{Table, Value};

/// What variables of the environment that are options begin with.
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
    trees_only: Option<bool>,
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
    const UNITS: [(&str, u64); 6] =
        [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
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
    Error::usage(format!("{text:?} is no value for the option {key:?}"))
        .hint(format!("write, for example, {key} = {example:?}"))
}

/// One of several words.
fn choice<T: Copy>(key: &str, text: &str, choices: &[(&str, T)]) -> Result<T> {
    let found = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Error::usage(format!("{text:?} is no value for the option {key:?}"))
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
            Error::usage(format!("the options make no sense: {}", what.join(" ").trim()))
                .hint("the keys are those of the methods of Options; the book lists them")
        };
        Value::Table(table).try_into().map_err(wrong)
    }

    /// Applies what is said.
    fn apply(self, mut options: Options) -> Result<Options> {
        if let Some(store) = self.store {
            options.writer.tiers.last = Arc::new(DirectoryStore::new(&store));
        }
        if let Some(run) = self.run {
            options.writer.run = run;
        }
        if let Some(node) = self.node {
            options = options.node(Arc::new(DirectoryStore::new(&node)));
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
        options.signals |= self.signals.unwrap_or(false);
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
        if self.compact == Some(false) {
            options = options.compact(None);
        }
        if let Some(KeepSettings { last, every }) = self.keep {
            options = options.keep(last, every);
        }
        if let Some(bytes) = self.limit {
            options = options.limit(size("limit", bytes)?);
        }
        if self.trees_only == Some(true) {
            options = options.trees_only();
        }
        for (pattern, bound) in &self.bounds {
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
        Error::usage(format!("the options are no TOML: {}", what.trim()))
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
    /// `signals`, `bounds` and `labels`; a key that does not exist is an error that names it.
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

    /// Changes options by TOML, as [`Options::from_toml`] reads it; what it does not say stays as it is.
    pub fn with_toml(self, text: &str) -> Result<Options> {
        Settings::of(table(text)?)?.apply(self)
    }

    /// Changes options by the environment: first by the file of TOML that `TREERING_OPTIONS` names, then by variables such
    /// as `TREERING_OPTION_STAGING=512MiB`, with the keys of [`Options::from_toml`]. So the person who starts a program can
    /// choose what it leaves open.
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
        // What is not said stays.
        let same = options.with_toml("growth = 2").unwrap();
        assert_eq!((same.staging, same.replicas), (512 << 20, 3));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_name() {
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

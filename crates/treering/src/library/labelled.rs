//! Finding checkpoints by their labels, and by the attributes of their variables.

use super::{CheckpointInfo, Library};
use crate::array::Labels;
use crate::compare::{matches, matches_variable};
use crate::error::{Error, Result};
use crate::restore::Checkpoint;

/// A test of a checkpoint: `KEY=PATTERN` of its labels, or `VARIABLE:KEY=PATTERN` of the attributes of its variables. In
/// patterns, `*` and `?` stand for anything.
///
/// ```
/// use treering::{LabelTest, Library, Options, Run, Variable};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let mut run = Run::open(Options::directory(&store, "rod").label("git", "4542149"))?;
/// run.checkpoint(1, &[Variable::new("heat", &[293.15f64; 10]).attribute("units", "K")])?;
/// run.finish()?;
/// let library = Library::open(&store)?;
/// let found = |test: &str| -> treering::Result<usize> {
///     let (all, _) = library.checkpoints("rod")?;
///     let tests = [LabelTest::parse(test)?];
///     let met = all.iter().map(|info| library.passes("rod", info, &tests));
///     Ok(met.filter(|met| matches!(met, Ok(true))).count())
/// };
/// assert_eq!((found("git=4542*")?, found("heat:units=C")?), (1, 0));
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelTest {
    /// The variables whose attributes are looked at; `None` for the labels of the checkpoint.
    variable: Option<String>,
    key: String,
    pattern: String,
}

impl LabelTest {
    /// Reads a test.
    ///
    /// ```
    /// use treering::LabelTest;
    /// assert!(LabelTest::parse("git=4542*").is_ok());
    /// assert!(LabelTest::parse("heat*:units=K").is_ok());
    /// assert!(LabelTest::parse("git").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<LabelTest> {
        let wrong = || {
            Error::usage(format!("invalid test {text:?}"))
                .hint("write KEY=PATTERN, or VARIABLE:KEY=PATTERN for attributes of variables")
        };
        let (left, pattern) = text.split_once('=').ok_or_else(wrong)?;
        let (variable, key) = match left.rsplit_once(':') {
            Some((variable, key)) => (Some(variable), key),
            None => (None, left),
        };
        if key.is_empty() || variable == Some("") {
            return Err(wrong());
        }
        let (variable, key) = (variable.map(str::to_string), key.to_string());
        Ok(LabelTest { variable, key, pattern: pattern.to_string() })
    }

    fn is_met_by(&self, labels: &Labels) -> bool {
        labels.get(&self.key).is_some_and(|text| matches(&self.pattern, text))
    }

    /// Whether a variable of a checkpoint has the attribute.
    fn is_met_in(&self, checkpoint: &Checkpoint, variable: &str) -> bool {
        let shown = checkpoint.entries().iter().filter(|entry| !entry.is_hidden());
        let mut named = shown.filter(|entry| {
            matches_variable(variable, &entry.description.name, checkpoint.origin(entry).as_ref())
        });
        named.any(|entry| self.is_met_by(&entry.description.attributes))
    }
}

impl Library {
    /// Whether a checkpoint of a run passes all tests. The list of variables is read only if a test needs it.
    pub fn passes(&self, run: &str, info: &CheckpointInfo, tests: &[LabelTest]) -> Result<bool> {
        let mut of_labels = tests.iter().filter(|test| test.variable.is_none());
        if !of_labels.all(|test| test.is_met_by(&info.labels)) {
            return Ok(false);
        }
        let of_variables = tests.iter().filter_map(|test| Some((test, test.variable.as_ref()?)));
        let of_variables: Vec<_> = of_variables.collect();
        if of_variables.is_empty() {
            return Ok(true);
        }
        let Some(manifest) = self.log(run)?.manifest(info.sequence)? else { return Ok(false) };
        let checkpoint = Checkpoint::load_beside(self.store.clone(), manifest, &self.footers)?;
        Ok(of_variables.iter().all(|(test, variable)| test.is_met_in(&checkpoint, variable)))
    }
}

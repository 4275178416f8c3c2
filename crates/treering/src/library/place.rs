//! Places as people write them: `STORE`, `STORE#RUN`, `STORE#RUN@STEP`.

use crate::error::{Error, Result};
use crate::format::check_run_name;
use std::fmt;
use std::path::PathBuf;

/// A store, a run in it, or a checkpoint of that run, as the command line names them.
///
/// ```
/// use treering::Place;
/// let place = Place::parse("results/store#sim@100")?;
/// assert_eq!((place.run.as_deref(), place.step), (Some("sim"), Some(100)));
/// assert_eq!(place.to_string(), "results/store#sim@100");
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The folder of the store.
    pub store: PathBuf,
    /// The run.
    pub run: Option<String>,
    /// The step.
    pub step: Option<u64>,
}

impl Place {
    /// Reads a place; the last `#` divides the folder from the run.
    pub fn parse(text: &str) -> Result<Place> {
        let Some((store, rest)) = text.rsplit_once('#') else {
            return match text.is_empty() {
                true => Err(wrong(text)),
                false => Ok(Place { store: text.into(), run: None, step: None }),
            };
        };
        let (run, step) = match rest.split_once('@') {
            Some((run, step)) => match step.parse::<u64>() {
                Ok(number) if step.bytes().all(|b| b.is_ascii_digit()) => (run, Some(number)),
                _ => return Err(wrong(text)),
            },
            None => (rest, None),
        };
        check_run_name(run)?;
        match store.is_empty() {
            true => Err(wrong(text)),
            false => Ok(Place { store: store.into(), run: Some(run.to_string()), step }),
        }
    }
}

fn wrong(text: &str) -> Error {
    Error::usage(format!("invalid place {text:?}")).hint("write STORE, STORE#RUN or STORE#RUN@STEP")
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.store.display())?;
        if let Some(run) = &self.run {
            write!(f, "#{run}")?;
        }
        if let Some(step) = self.step {
            write!(f, "@{step}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_return_and_junk_is_refused() {
        for text in ["store", "a/b#run", "a#b/c#run@12"] {
            assert_eq!(Place::parse(text).unwrap().to_string(), text);
        }
        for junk in [
            "",
            "#run",
            "s#",
            "s#r@",
            "s#r@x",
            "s#r@-1",
            "s#r@+1",
            "s#../x",
            "s#r@99999999999999999999",
        ] {
            assert!(Place::parse(junk).is_err(), "{junk}");
        }
    }
}

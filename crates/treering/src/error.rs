//! One error type: what happened, to what, and what to try.
//!
//! Every error that leaves the library is a sentence a person can act on. The kind lets a program
//! decide (a damaged copy is served from elsewhere, a full disk is reported and the run goes on);
//! the rest is for the person.

use std::fmt;
use std::sync::Arc;

/// Result of a call that can fail.
///
/// ```
/// use treering::{Library, Result};
/// fn newest_step(store: &str, run: &str) -> Result<u64> {
///     Ok(Library::open(store)?.checkpoint(run, None)?.step())
/// }
/// assert!(newest_step("no-store", "rod").is_err());
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an [`Error`], by which programs decide.
///
/// ```
/// use treering::{ErrorKind, Library};
/// # let folder = tempfile::tempdir().unwrap();
/// match Library::open(folder.path()) {
///     Err(error) if error.kind() == ErrorKind::NotFound => println!("nothing was saved there yet"),
///     Err(error) => return Err(error),
///     Ok(library) => println!("{} runs", library.run_names()?.len()),
/// }
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is invalid; asking again will not help.
    Usage,
    /// There is no such store, run, checkpoint or variable.
    NotFound,
    /// Names, types or shapes do not agree with the stored ones.
    Mismatch,
    /// Bytes came back different from what was written.
    Damaged,
    /// The operating system refused or failed.
    Io,
    /// There is no space left where the data should go.
    Full,
    /// Another process has the run open, or has taken it over.
    Busy,
    /// An earlier save that this one builds on has failed.
    Lost,
    /// A limit of the format or of the options is exceeded.
    Limit,
    /// A rank that takes part has died.
    Dead,
    /// A rank that takes part did not come in time.
    Late,
    /// The communicator was revoked because a rank has died.
    Revoked,
}

/// Every kind with its number, which never changes.
const CODES: [(ErrorKind, u8); 12] = [
    (ErrorKind::Usage, 1),
    (ErrorKind::NotFound, 2),
    (ErrorKind::Mismatch, 3),
    (ErrorKind::Damaged, 4),
    (ErrorKind::Io, 5),
    (ErrorKind::Full, 6),
    (ErrorKind::Busy, 7),
    (ErrorKind::Lost, 8),
    (ErrorKind::Limit, 9),
    (ErrorKind::Dead, 10),
    (ErrorKind::Late, 11),
    (ErrorKind::Revoked, 12),
];

impl ErrorKind {
    /// Whether something older may serve instead: not when the caller asked for the wrong thing, nor when this could be
    /// read if the operating system let us.
    pub(crate) fn lets_older_serve(self) -> bool {
        matches!(self, ErrorKind::Damaged | ErrorKind::NotFound)
    }

    /// The number of this kind, the same in every release.
    pub fn code(self) -> u8 {
        CODES.iter().find(|(kind, _)| *kind == self).map_or(0, |(_, code)| *code)
    }

    /// The kind with a number.
    pub fn from_code(code: u8) -> Option<ErrorKind> {
        CODES.iter().find(|(_, number)| *number == code).map(|(kind, _)| *kind)
    }
}

/// An error: what happened, where, and what to try. It prints as one sentence.
///
/// ```
/// use treering::{ErrorKind, Library};
/// # let folder = tempfile::tempdir().unwrap();
/// let error = Library::open(folder.path()).err().expect("an empty folder is not a store");
/// assert_eq!(error.kind(), ErrorKind::NotFound); // programs decide by the kind
/// assert_eq!(error.kind().code(), 2); // a number that never changes
/// eprintln!("{error}");
/// ```
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    place: Option<String>,
    hint: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    repeated: bool,
}

impl Error {
    /// An error of `kind`; `what` is a sentence without its full stop.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        let (place, hint, source) = (None, None, None);
        Error { kind, what: what.into(), place, hint, source, repeated: false }
    }

    /// Shorthand for [`ErrorKind::Damaged`].
    pub fn damaged(what: impl Into<String>) -> Self {
        Error::new(ErrorKind::Damaged, what)
    }

    /// Shorthand for [`ErrorKind::Usage`].
    pub fn usage(what: impl Into<String>) -> Self {
        Error::new(ErrorKind::Usage, what)
    }

    /// An operating-system error while doing `what`; a full disk and a missing file get their kind.
    pub fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        use std::io::ErrorKind as Os;
        let (kind, hint) = match source.kind() {
            Os::StorageFull | Os::QuotaExceeded | Os::FileTooLarge => (
                ErrorKind::Full,
                Some("free some space, or remove old checkpoints with `treering prune`"),
            ),
            Os::NotFound => (ErrorKind::NotFound, None),
            Os::NotADirectory => (ErrorKind::Io, Some("give a folder, not a file")),
            Os::ReadOnlyFilesystem => {
                (ErrorKind::Io, Some("choose a folder that can be written to"))
            }
            Os::PermissionDenied => {
                (ErrorKind::Io, Some("check the owner and the permissions of the store's folder"))
            }
            _ => (ErrorKind::Io, None),
        };
        let mut error = Error::new(kind, what);
        error.hint = hint.map(String::from);
        error.source = Some(Arc::new(source));
        error
    }

    /// Adds a location: a key of a store, a path, or `run@step variable`. The innermost location stays.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.place.get_or_insert_with(|| place.to_string());
        self
    }

    /// Adds advice on what to try. The innermost advice stays.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// The store of a node is full: it is not pruned, and leaves what has moved on by itself.
    #[must_use]
    pub(crate) fn on_node(mut self) -> Self {
        if self.kind == ErrorKind::Full {
            let hint = "free some space on the node, or leave Options::node out: checkpoints then go to the \
                        shared store directly";
            self.hint = Some(hint.to_string());
        }
        self
    }

    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The advice that the sentence ends with, if there is some.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether the error is due to the death of ranks: the survivors can go on with each other
    /// ([`Run::go_on_with`](crate::Run::go_on_with)).
    pub fn is_death(&self) -> bool {
        matches!(self.kind, ErrorKind::Dead | ErrorKind::Revoked)
    }

    /// Whether another rank of the program has this error as its own. A call that fails on all ranks returns the same
    /// error everywhere, and this is false on one of them: a program that prints only errors for which this is false
    /// prints each error once, on any number of ranks.
    pub fn is_repeated(&self) -> bool {
        self.repeated
    }

    /// The error of another rank.
    #[must_use]
    pub(crate) fn repeated(mut self) -> Self {
        self.repeated = true;
        self
    }

    /// The error of this rank, after it has been to others and back.
    #[must_use]
    pub(crate) fn own(mut self) -> Self {
        self.repeated = false;
        self
    }

    /// The error as it travels to other ranks.
    pub(crate) fn write(&self) -> Vec<u8> {
        [&[self.kind.code()], self.to_string().as_bytes()].concat()
    }

    /// An error that came from another rank.
    pub(crate) fn read(bytes: &[u8]) -> Error {
        let kind = bytes.first().and_then(|code| ErrorKind::from_code(*code));
        let text = String::from_utf8_lossy(bytes.get(1..).unwrap_or_default()).into_owned();
        Error::new(kind.unwrap_or(ErrorKind::Io), text).repeated()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(place) = &self.place {
            write!(f, " ({place})")?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

/// The sentence, too: it is what a `main` that returns an error prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} [{:?}]", self.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_sentence_with_place_cause_and_advice() {
        let os = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = Error::io("cannot write a pack", os).at("runs/a/packs/1-0-g0");
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Full);
        assert!(text.starts_with("cannot write a pack (runs/a/packs/1-0-g0): "));
        assert!(text.contains("treering prune"));
        assert!(error.advice().is_some_and(|advice| text.ends_with(advice)));
        assert!(!text.contains('\n'));
    }

    /// A node's store is not pruned, so nobody is told to.
    #[test]
    fn a_full_node_is_not_to_be_pruned() {
        let full = || Error::io("cannot write", std::io::ErrorKind::StorageFull.into());
        let text = full().on_node().to_string();
        assert!(!text.contains("prune") && text.contains("node"), "{text}");
        let denied = || Error::io("cannot write", std::io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied().on_node().to_string(), denied().to_string());
    }

    /// Programs and ranks of other releases know kinds by these numbers.
    #[test]
    fn codes_never_change() {
        let mut kinds = 0;
        for code in 0..=u8::MAX {
            let Some(kind) = ErrorKind::from_code(code) else { continue };
            // A new kind has to be entered here, with a new number.
            let expected = match kind {
                ErrorKind::Usage => 1,
                ErrorKind::NotFound => 2,
                ErrorKind::Mismatch => 3,
                ErrorKind::Damaged => 4,
                ErrorKind::Io => 5,
                ErrorKind::Full => 6,
                ErrorKind::Busy => 7,
                ErrorKind::Lost => 8,
                ErrorKind::Limit => 9,
                ErrorKind::Dead => 10,
                ErrorKind::Late => 11,
                ErrorKind::Revoked => 12,
            };
            assert_eq!((code, kind.code()), (expected, expected), "{kind:?}");
            assert_eq!(Error::new(kind, "x").kind().code(), expected);
            kinds += 1;
        }
        assert_eq!(kinds, CODES.len());
        assert!(ErrorKind::from_code(0).is_none() && ErrorKind::from_code(13).is_none());
    }
}

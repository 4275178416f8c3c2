//! The error of everything that brings a graph into being: one sentence for the user.

use std::fmt;

/// Why a graph could not be read, made or renumbered, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphError(String);

impl GraphError {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    /// The same error, with the place where it happened put in front.
    pub(crate) fn at(self, place: impl fmt::Display) -> Self {
        Self(format!("{place}: {}", self.0))
    }
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GraphError {}

//! Numbers with a meaning. Each has a type, so that a step is never taken for a sequence number nor a
//! group for a rank.

use serde::Serialize;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($number:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        #[repr(transparent)]
        pub struct $name(pub $number);

        impl From<$number> for $name {
            fn from(number: $number) -> Self {
                $name(number)
            }
        }

        impl From<$name> for $number {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<Self, ParseIntError> {
                text.parse().map($name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// The program's own iteration number. Programs hand over and get back plain `u64`.
    Step(u64);
    /// The position of an entry in the log of its run; the first is 1.
    Sequence(u64);
    /// A member of the program's communicator; 0 in a program of one process.
    Rank(u32);
    /// The position of a group of ranks, which share packs, in its checkpoint.
    GroupId(u32);
}

impl Sequence {
    /// The number behind this one.
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

impl GroupId {
    /// The group as an index.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A variable of a rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariableKey {
    /// The rank it belongs to.
    pub rank: Rank,
    /// Its name.
    pub name: String,
}

impl VariableKey {
    /// The key of a variable.
    pub fn new(rank: Rank, name: &str) -> Self {
        VariableKey { rank, name: name.to_string() }
    }
}

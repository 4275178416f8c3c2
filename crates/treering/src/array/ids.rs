//! Numbers with a meaning. Each has a type, so that a step is never taken for a sequence number nor a
//! group for a rank.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($number:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "tools", derive(serde::Serialize), serde(transparent))]
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
    /// The program's own iteration number. Calls for programs use plain `u64`.
    ///
    /// ```
    /// use treering::Step;
    /// let step = Step::from(7);
    /// assert_eq!((u64::from(step), step.to_string()), (7, "7".to_string()));
    /// ```
    Step(u64);
    /// The position of an entry in the log of its run; the first is 1.
    ///
    /// ```
    /// use treering::Sequence;
    /// assert_eq!(Sequence(1).next(), Sequence(2));
    /// ```
    Sequence(u64);
    /// A member of the program's communicator; 0 in a program of one process.
    ///
    /// ```
    /// use treering::Rank;
    /// let rank: Rank = "3".parse()?;
    /// assert_eq!((rank, u32::from(rank)), (Rank(3), 3));
    /// # Ok::<(), std::num::ParseIntError>(())
    /// ```
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
///
/// ```
/// use treering::{Rank, State, VariableKey};
/// fn keys_of(state: &State, rank: Rank) -> Vec<&VariableKey> {
///     state.variables.keys().filter(|key| key.rank == rank).collect() // a state has the variables of all ranks
/// }
/// let heat = VariableKey::new(Rank(1), "heat");
/// let mut state = State::default();
/// state.variables.insert(heat.clone(), vec![0; 8]);
/// assert_eq!(keys_of(&state, Rank(1)), [&heat]);
/// ```
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

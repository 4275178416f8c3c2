//! Letters that ranks send to each other, for fuzzers.

use crate::comm::{Wire, letter_around};
use crate::redundancy::Rebuilt;
use crate::restore::HeldVariable;
use crate::save::{AggregatorLetter, Agreed, Ballot, NodeParts};

/// Reads bytes as the content of letters of several kinds; each that is one is written and read back as it was. The number
/// of kinds it is one of.
pub fn read_letters(body: &[u8]) -> usize {
    [
        is_letter::<Agreed>(body),
        is_letter::<Ballot>(body),
        is_letter::<AggregatorLetter>(body),
        is_letter::<NodeParts>(body),
        is_letter::<Rebuilt>(body),
        is_letter::<Vec<HeldVariable>>(body),
        is_letter::<Vec<(Result<i64, String>, [bool; 2])>>(body),
    ]
    .into_iter()
    .filter(|is_one| *is_one)
    .count()
}

fn is_letter<T: Wire>(body: &[u8]) -> bool {
    let Ok(read) = T::from_letter(&letter_around::<T>(body)) else { return false };
    let letter = read.to_letter();
    let again = T::from_letter(&letter).expect("what was written must be read");
    assert_eq!(again.to_letter(), letter);
    true
}

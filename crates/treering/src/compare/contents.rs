//! Files that belong together, compared by what they hold beside arrays.
//!
//! Files of the same bytes are the same. Of others, the arrays were compared as variables; here the rest
//! of their content is: an item that differs is a difference, and content that nobody understands leaves
//! the answer undecided.

use super::outcome::{ContentDifference, NotCompared};
use super::side::FileView;
use crate::array::Step;
use crate::error::Result;

/// Differences, and what could not be compared.
#[derive(Default)]
pub(super) struct ContentReport {
    pub(super) differences: Vec<ContentDifference>,
    pub(super) not_compared: Vec<NotCompared>,
    /// The number of pairs that were compared.
    pub(super) pairs: u64,
}

/// How many names a message lists.
const MOST_NAMES: usize = 5;

/// Compares the files of a step.
pub(super) fn compare(step: Option<Step>, a: &[FileView], b: &[FileView]) -> ContentReport {
    let mut contents = ContentReport::default();
    if a.is_empty() || b.is_empty() {
        return contents;
    }
    let leave_out = |file: &FileView, why: String| NotCompared {
        step: step.map(u64::from),
        rank: Some(file.rank),
        variable: Some(file.name.clone()),
        why,
    };
    let lone = a.len() == 1 && b.len() == 1;
    let same = |x: &FileView, y: &FileView| lone || x.rank == y.rank && x.name == y.name;
    for x in a {
        let Some(y) = b.iter().find(|y| same(x, y)) else {
            let why = "the second side has no file of this name".to_string();
            contents.not_compared.push(leave_out(x, why));
            continue;
        };
        match pair(x, y) {
            Ok((differences, None)) => {
                contents.pairs += 1;
                contents.differences.extend(differences.into_iter().map(|(item, detail)| {
                    let (rank, file) = (x.rank, x.name.clone());
                    ContentDifference { step: step.map(u64::from), rank, file, item, detail }
                }));
            }
            Ok((_, Some(why))) => contents.not_compared.push(leave_out(x, why)),
            Err(error) => contents.not_compared.push(leave_out(x, error.to_string())),
        }
    }
    for y in b.iter().filter(|y| !a.iter().any(|x| same(x, y))) {
        let why = "the first side has no file of this name".to_string();
        contents.not_compared.push(leave_out(y, why));
    }
    contents
}

/// The items in which two files differ, or the reason why that cannot be told.
type FileVerdict = (Vec<(String, String)>, Option<String>);

fn pair(x: &FileView, y: &FileView) -> Result<FileVerdict> {
    let (x, y) = ((x.open)()?, (y.open)()?);
    if x.is_known_same(&y) {
        return Ok((Vec::new(), None));
    }
    let (p, q) = (x.inventory()?, y.inventory()?);
    if p.format != q.format {
        let why = (!p.is_bare() || !q.is_bare()).then(|| {
            format!("one file is {}, the other {}: only arrays were compared", p.format, q.format)
        });
        return Ok((Vec::new(), why));
    }
    let differences = p.differences(&q);
    let unknown: Vec<&String> = p.unknown().iter().chain(q.unknown()).collect();
    // A difference that is known decides, and the same bytes have the same meaning.
    if !differences.is_empty() || unknown.is_empty() || x.digest()? == y.digest()? {
        return Ok((differences, None));
    }
    let mut names: Vec<&str> = unknown.iter().map(|name| name.as_str()).collect();
    names.dedup();
    let more = if names.len() > MOST_NAMES { ", …" } else { "" };
    names.truncate(MOST_NAMES);
    Ok((Vec::new(), Some(format!("not understood: {}{more}", names.join(", ")))))
}

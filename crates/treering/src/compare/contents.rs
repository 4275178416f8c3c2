//! Files that belong together, compared by what they hold beside arrays.
//!
//! Files of the same bytes are the same. Of others, the arrays were compared as variables; here the rest
//! of their content is: an item that differs is a difference, and content that nobody understands is listed as
//! not compared.

use super::outcome::{ContentDifference, NotCompared};
use super::partners::PartnerNames;
use super::settings::CompareSettings;
use super::side::{FileView, SideEntry};
use crate::array::Step;
use crate::error::Result;
use crate::format::variable_name;
use crate::source::{KINDS, OF, printable, printable_value};
use std::collections::BTreeSet;

/// Differences, and what could not be compared.
#[derive(Default)]
pub(super) struct ContentReport {
    pub(super) differences: Vec<ContentDifference>,
    pub(super) not_compared: Vec<NotCompared>,
    /// The number of pairs that were compared.
    pub(super) pairs: u64,
    /// Number of items that belong to variables which patterns exclude, and the names of these.
    pub(super) excluded: u64,
    pub(super) owners: Vec<String>,
}

impl ContentReport {
    /// Whether patterns exclude a file, or everything in it; it is then counted.
    fn is_excluded(&mut self, file: &FileView, settings: &CompareSettings) -> bool {
        let names = [file.name.clone(), format!("{}/", file.name)];
        let name = names.into_iter().find(|name| settings.excludes_name(name));
        self.excluded += u64::from(name.is_some());
        let excluded = name.is_some();
        self.owners.extend(name);
        excluded
    }

    /// Leaves out what is no file, unless both sides have the same link to a place that is not there.
    fn leave_out_others<'f>(
        &mut self,
        a: &[&'f FileView],
        b: &[&'f FileView],
        settings: &CompareSettings,
        leave_out: impl Fn(&FileView, String) -> NotCompared,
    ) {
        let alike = |x: &FileView, y: &FileView| x.rank == y.rank && x.known_as == y.known_as;
        let of_first = a.iter().map(|x| (*x, b.iter().copied().find(|y| alike(x, y))));
        let lone = b.iter().copied().filter(|y| !a.iter().any(|x| alike(x, y)));
        for (one, other) in of_first.chain(lone.map(|y| (y, None))) {
            let Some(no_file) = &one.no_file else { continue };
            let theirs = other.and_then(|other| other.no_file.as_ref());
            let same = theirs.is_some_and(|theirs| no_file.is_same_link(theirs));
            if !same && !self.is_excluded(one, settings) {
                self.not_compared.push(leave_out(one, no_file.why.to_string()));
            }
        }
    }
}

/// Number of names that a message lists.
const MOST_NAMES: usize = 5;

/// Compares the files of a step. Of variables that were unpacked, the way they are packed is left out. If variables are
/// chosen, only the meaning of their types is compared: the units of times, the names of an enumeration.
pub(super) fn compare(
    step: Option<Step>,
    a: &[FileView],
    b: &[FileView],
    names: PartnerNames,
    settings: &CompareSettings,
    unpacked: &BTreeSet<String>,
) -> ContentReport {
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
    let is_file = |file: &&FileView| file.no_file.is_none();
    let (a, others_a): (Vec<&FileView>, Vec<&FileView>) = a.iter().partition(is_file);
    let (b, others_b): (Vec<&FileView>, Vec<&FileView>) = b.iter().partition(is_file);
    let chosen_only = !settings.variables.is_empty();
    if !chosen_only {
        contents.leave_out_others(&others_a, &others_b, settings, leave_out);
    }
    let lone = a.len() == 1 && b.len() == 1;
    // Of one file on each side, every rank has its own.
    let one = names == PartnerNames::Array && is_one(&a) && is_one(&b);
    let same =
        |x: &FileView, y: &FileView| lone || x.rank == y.rank && (one || x.known_as == y.known_as);
    for &x in &a {
        let Some(y) = b.iter().copied().find(|y| same(x, y)) else {
            if !chosen_only && !contents.is_excluded(x, settings) {
                let why = "the second side has no file of this name".to_string();
                contents.not_compared.push(leave_out(x, why));
            }
            continue;
        };
        let mut known = |item: &str| {
            let of_both = owners(&x.name, item).chain(owners(&y.name, item));
            contents.owners.extend(of_both.filter(|owner| settings.excludes_name(owner)));
        };
        if !settings.exclude.is_empty() {
            // A pattern is right if there is something of its name, whether that differs or not.
            let both = [x, y].into_iter().filter_map(|file| file.inventory().ok());
            both.for_each(|all| all.items().for_each(|(item, _)| known(item)));
        }
        let mut excludes = |item: &str| {
            let mut names = owners(&x.name, item).chain(owners(&y.name, item));
            let is_chosen = is_type(item) && names.any(|name| settings.chooses_name(&name));
            if chosen_only && !is_chosen {
                return true;
            }
            let of_both = owners(&x.name, item).chain(owners(&y.name, item));
            let whole = item.ends_with(" of /").then_some([&x.name, &y.name]).into_iter().flatten();
            if is_packing(item)
                && of_both.chain(whole.cloned()).any(|owner| unpacked.contains(&owner))
            {
                return true;
            }
            if !settings.attributes && is_attribute(item) {
                return true;
            }
            let mut of_both = owners(&x.name, item).chain(owners(&y.name, item));
            let excluded = of_both.any(|owner| settings.excludes_name(&owner));
            contents.excluded += u64::from(excluded);
            excluded
        };
        match pair(x, y, &mut excludes) {
            Ok((differences, unknown)) => {
                contents.pairs += u64::from(unknown.is_none() && !chosen_only);
                contents.differences.extend(differences.into_iter().map(|(item, detail)| {
                    let (rank, file, variable) = (x.rank, Some(x.name.clone()), None);
                    let (item, detail) = (printable(&item), printable_value(&detail));
                    let step = step.map(u64::from);
                    ContentDifference { step, rank, file, variable, item, detail }
                }));
                let unknown = unknown.filter(|_| !chosen_only);
                contents.not_compared.extend(unknown.map(|why| leave_out(x, why)));
            }
            Err(_) if chosen_only => {}
            Err(error) => contents.not_compared.push(leave_out(x, error.to_string())),
        }
    }
    for y in b.iter().filter(|y| !a.iter().any(|x| same(x, y))) {
        if !chosen_only && !contents.is_excluded(y, settings) {
            let why = "the first side has no file of this name".to_string();
            contents.not_compared.push(leave_out(y, why));
        }
    }
    contents
}

/// The attributes in which two variables of programs differ. Those of arrays in files are items of the files.
pub(super) fn attributes(
    step: Option<Step>,
    x: &SideEntry,
    y: &SideEntry,
) -> Vec<ContentDifference> {
    let (p, q) = (&x.description.attributes, &y.description.attributes);
    let keys: BTreeSet<&str> = p.iter().chain(q.iter()).map(|(key, _)| key).collect();
    let unlike = keys.into_iter().filter(|key| p.get(key) != q.get(key));
    let difference = |key: &str| {
        let detail = match (p.get(key), q.get(key)) {
            (Some(a), Some(b)) => format!("{a} and {b}"),
            (Some(_), None) => "only in the first".to_string(),
            _ => "only in the second".to_string(),
        };
        ContentDifference {
            step: step.map(u64::from),
            rank: x.rank,
            file: None,
            variable: Some(x.description.name.clone()),
            item: printable(&format!("attribute {key}")),
            detail: printable_value(&detail),
        }
    };
    unlike.map(difference).collect()
}

/// Whether all files of a side are the same file of their ranks.
fn is_one(files: &[&FileView]) -> bool {
    files.windows(2).all(|two| two[0].name == two[1].name)
}

/// Whether an item is what a type means beside its numbers.
fn is_type(item: &str) -> bool {
    item.starts_with("type of ")
}

/// Whether an item is an attribute.
fn is_attribute(item: &str) -> bool {
    item.starts_with("attribute ")
}

/// Whether an item says how numbers are packed. It is part of unpacked values.
fn is_packing(item: &str) -> bool {
    const NAMES: [&str; 5] =
        ["scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"];
    let name = item.strip_prefix("attribute ").and_then(|rest| rest.split_once(" of "));
    name.is_some_and(|(name, _)| NAMES.contains(&name))
}

/// The items in which two files differ, and the reason why there may be more of them.
type FileVerdict = (Vec<(String, String)>, Option<String>);

fn pair(x: &FileView, y: &FileView, excludes: &mut dyn FnMut(&str) -> bool) -> Result<FileVerdict> {
    let (x, y) = ((x.open)()?, (y.open)()?);
    if x.is_known_same(&y) || x.is_unread() || y.is_unread() {
        return Ok((Vec::new(), None));
    }
    let (p, q) = match (x.inventory(), y.inventory()) {
        (Ok(p), Ok(q)) => (p, q),
        // The same bytes have the same meaning, also if nobody understands them.
        (Err(error), _) | (_, Err(error)) => match (x.digest()?, y.digest()?) {
            (Some(p), Some(q)) if p == q => return Ok((Vec::new(), None)),
            _ => return Err(error),
        },
    };
    if p.format != q.format {
        let why = (!p.is_bare() || !q.is_bare()).then(|| {
            format!("one file is {}, the other {}: only arrays were compared", p.format, q.format)
        });
        return Ok((Vec::new(), why));
    }
    let mut differences = p.differences(&q);
    differences.retain(|(item, _)| !excludes(item));
    let mut unknown: Vec<&(String, String)> = p.unknown().iter().chain(q.unknown()).collect();
    unknown.retain(|(item, _)| !excludes(item));
    // Files of the same bytes have no differences; of others, each digest is read only if it decides.
    let same = || -> Result<bool> {
        Ok(matches!((x.digest()?, y.digest()?), (Some(p), Some(q)) if p == q))
    };
    if unknown.is_empty() || differences.is_empty() && same()? {
        return Ok((differences, None));
    }
    let shown =
        |(name, why): &&(String, String)| format!("{} ({})", printable(name), printable_value(why));
    let mut names: Vec<String> = unknown.iter().map(shown).collect();
    names.dedup();
    let more = if names.len() > MOST_NAMES { ", …" } else { "" };
    names.truncate(MOST_NAMES);
    Ok((differences, Some(format!("not understood: {}{more}", names.join(", ")))))
}

/// The names of variables to which an item of a file may belong: the object in its name, alone and behind the name of
/// the file.
fn owners<'i>(file: &'i str, item: &'i str) -> impl Iterator<Item = String> + 'i {
    let named = KINDS.iter().filter_map(|kind| item.strip_prefix(kind));
    let of = item.match_indices(OF).map(|(at, _)| &item[at + OF.len()..]);
    named
        .chain(of)
        .map(|name| name.trim_start_matches('/'))
        .filter(|name| !name.is_empty())
        .flat_map(move |name| [name.to_string(), variable_name(file, name)])
}

#[cfg(test)]
mod tests {
    use super::owners;

    #[test]
    fn items_belong_to_objects() {
        let all = |item| owners("sub/a.h5", item).collect::<Vec<_>>();
        assert_eq!(all("attribute units of /g/x"), ["g/x", "sub/a.h5/g/x"]);
        assert_eq!(all("object g/x")[0], "g/x");
        assert_eq!(all("axis 0 of temp")[0], "temp");
        assert!(all("attribute title of /").is_empty());
        assert!(all("user block").is_empty());
    }
}

//! Everything of a file that is content and is no array: attributes, links, types, texts.
//!
//! Two files can have the same values and still differ: a scale factor was doubled, a text was changed,
//! a link leads elsewhere. Their bytes do not tell, because compressed values move everything that lies
//! behind them. So the content is listed as items, each with a digest that does not depend on addresses:
//! two files with the same arrays and the same items have the same content, whatever their bytes are.
//! Structure without content (free space, padding, addresses, checksums, times of the file system, the
//! layout of chunks and their filters) is left out. Content that is not understood is listed as unknown, and
//! files that differ and have some are never called equal.

use super::found::FoundArray;
use super::{Extent, RawLayout, hdf5, netcdf, npy, npz, safetensors};
use crate::array::DType;
use crate::error::Result;
use crate::merkle::{Digest, Digester, digest};
use crate::store::Blob;
use std::collections::{BTreeMap, BTreeSet};

/// Number of characters of a value that a message shows.
const SHOWN: usize = 60;

/// The content of a file beside its arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The format, in a word.
    pub format: String,
    /// Items by name.
    items: BTreeMap<String, InventoryItem>,
    /// Names of content that is not understood, each with the reason.
    unknown: Vec<(String, String)>,
    /// Places that links lead to, by the paths of the links.
    links: BTreeMap<String, LinkedPlace>,
    /// Items that are further names of objects, with the first names.
    hard: BTreeMap<String, String>,
}

/// The place that a link leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkedPlace {
    /// A path of the same file.
    Here(String),
    /// A file, and a path in it.
    Elsewhere(String, String),
}

impl std::fmt::Display for LinkedPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkedPlace::Here(path) => f.write_str(path),
            LinkedPlace::Elsewhere(file, path) => write!(f, "{file}:{path}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct InventoryItem {
    digest: Digest,
    /// The value as a message shows it; empty if it is too long for that.
    shown: String,
}

impl Inventory {
    /// Adds an item whose content is some bytes.
    pub(super) fn add(&mut self, name: String, bytes: &[u8], shown: String) {
        self.add_digest(name, digest(bytes), shown);
    }

    pub(super) fn add_digest(&mut self, name: String, digest: Digest, shown: String) {
        let shown = if shown.chars().count() > SHOWN { String::new() } else { shown };
        self.items.insert(name, InventoryItem { digest, shown });
    }

    /// Adds content that is not understood.
    pub(super) fn add_unknown(&mut self, name: String, why: impl std::fmt::Display) {
        self.unknown.push((name, why.to_string()));
    }

    /// Notes where a link leads to.
    pub(super) fn add_link(&mut self, path: &str, to: LinkedPlace) {
        self.links.insert(path.into(), to);
    }

    /// Notes a further name of an object.
    pub(super) fn add_hard_link(&mut self, path: &str, first: &str) {
        self.add(format!("{LINK}{path}"), first.as_bytes(), first.to_string());
        self.add_link(path, LinkedPlace::Here(format!("/{first}")));
        self.hard.insert(path.into(), first.into());
    }

    /// Whether a link is a further name of an object.
    pub(crate) fn is_hard(&self, link: &str) -> bool {
        self.hard.contains_key(link)
    }

    /// Adds the content of an object that is seen under another name.
    pub(crate) fn add_below(&mut self, name: &str, object: Inventory) {
        let items = object.items.into_iter().map(|(item, content)| (outside(&item, name), content));
        self.items.extend(items);
        let unknown = object.unknown.into_iter().map(|(item, why)| (outside(&item, name), why));
        self.unknown.extend(unknown);
    }

    /// The place that a path leads to when all links on its way are followed; none if they lead in circles.
    pub(crate) fn resolve(&self, path: &str) -> Option<LinkedPlace> {
        let parts = |path: &str| -> Vec<String> {
            let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
            parts.map(str::to_string).collect()
        };
        let mut left = parts(path);
        left.reverse();
        let mut here: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(part) = left.pop() {
            here.push(part);
            let Some(to) = self.links.get(&here.join("/")) else { continue };
            links += 1;
            if links > MOST_LINKS {
                return None;
            }
            match to {
                LinkedPlace::Here(to) => {
                    here.pop();
                    if to.starts_with('/') {
                        here.clear();
                    }
                    left.extend(parts(to).into_iter().rev());
                }
                LinkedPlace::Elsewhere(file, to) => {
                    let rest: Vec<String> =
                        parts(to).into_iter().chain(left.into_iter().rev()).collect();
                    return Some(LinkedPlace::Elsewhere(file.clone(), rest.join("/")));
                }
            }
        }
        Some(LinkedPlace::Here(here.join("/")))
    }

    /// The paths of all links.
    pub(crate) fn links(&self) -> impl Iterator<Item = &String> {
        self.links.keys()
    }

    /// The same without links of these paths, because what they lead to is compared.
    #[must_use]
    pub(crate) fn without_links(mut self, followed: &BTreeSet<String>) -> Inventory {
        let is_followed =
            |item: &str| item.strip_prefix(LINK).is_some_and(|path| followed.contains(path));
        self.items.retain(|item, _| !is_followed(item));
        self.hard.retain(|link, _| !followed.contains(link));
        self
    }

    /// Whether there is an object or a link of this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        path.is_empty()
            || [OBJECT, LINK].iter().any(|kind| self.items.contains_key(&format!("{kind}{path}")))
    }

    /// The content of one object, and of all below it if it is a group, by names in it.
    #[must_use]
    pub(crate) fn only(mut self, object: &str) -> Inventory {
        // Other names of what is inside are names in it, too.
        for (link, first) in std::mem::take(&mut self.hard) {
            if let (Some(_), Some(first)) = (is_in(&link, object), is_in(&first, object)) {
                self.add(format!("{LINK}{link}"), first.as_bytes(), first.to_string());
            }
        }
        let rename = |name: &String| inside(name, object);
        let items = std::mem::take(&mut self.items).into_iter();
        self.items = items.filter_map(|(name, item)| Some((rename(&name)?, item))).collect();
        let unknown = std::mem::take(&mut self.unknown).into_iter();
        self.unknown = unknown.filter_map(|(name, why)| Some((rename(&name)?, why))).collect();
        self
    }

    /// An inventory of bytes that belong to no array.
    pub(crate) fn of_bytes(format: &str, beside: &[u8]) -> Self {
        let mut all = Inventory { format: format.into(), ..Inventory::default() };
        if !beside.is_empty() {
            all.add(BESIDE.into(), beside, String::new());
        }
        all
    }

    /// Names and values of all items, as far as values are short.
    pub(crate) fn items(&self) -> impl Iterator<Item = (&str, &str)> {
        self.items.iter().map(|(name, item)| (&name[..], &item.shown[..]))
    }

    /// Whether there is nothing but arrays, and groups that hold them.
    pub fn is_bare(&self) -> bool {
        self.unknown.is_empty() && self.items.keys().all(|name| name.starts_with(OBJECT))
    }

    /// Content of either side that is not understood.
    pub fn unknown(&self) -> &[(String, String)] {
        &self.unknown
    }

    /// The items in which two files differ, each with a few words about how.
    pub fn differences(&self, other: &Inventory) -> Vec<(String, String)> {
        let mut all = Vec::new();
        // An object that cannot be read has no kind.
        let unknown: BTreeSet<&String> =
            self.unknown.iter().chain(&other.unknown).map(|(name, _)| name).collect();
        for (name, item) in &self.items {
            match other.items.get(name) {
                Some(_) if name.starts_with(OBJECT) && unknown.contains(name) => {}
                None => all.push((name.clone(), "only in the first".to_string())),
                Some(same) if same.digest == item.digest => {}
                Some(unlike) => {
                    let how = match item.shown.is_empty() || unlike.shown.is_empty() {
                        true => String::new(),
                        false => format!("{} and {}", item.shown, unlike.shown),
                    };
                    all.push((name.clone(), how));
                }
            }
        }
        let only = other.items.keys().filter(|name| !self.items.contains_key(*name));
        all.extend(only.map(|name| (name.clone(), "only in the second".to_string())));
        all
    }
}

/// The content of a file beside its arrays; `raw` gives the layout of a file that does not describe itself.
pub(crate) fn inventory(whole: &Extent, raw: Option<&RawLayout>) -> Result<Inventory> {
    let mut start = [0u8; 9];
    whole.read_at(0, &mut start[..whole.size().min(9) as usize])?;
    let mut all = Inventory::default();
    all.format = match start {
        _ if start.starts_with(npy::MAGIC) => {
            // An array that is not decoded is all there is.
            let found = npy::contents(whole, "")?.found;
            if !found.is_empty() {
                let mut start = vec![0; whole.size().min(npy::START) as usize];
                whole.read_at(0, &mut start)?;
                npy::add_type("the array", &start, &mut all);
                beside(whole, &found, false, &mut all)?;
            }
            "npy"
        }
        _ if start.starts_with(npz::MAGIC) || start.starts_with(npz::EMPTY) => {
            npz::inventory(whole, &mut all)?;
            "npz"
        }
        _ if netcdf::known(&start) => {
            netcdf::inventory(whole, &mut all)?;
            "netcdf"
        }
        _ => match hdf5::base(whole)? {
            Some(base) => {
                hdf5::inventory(whole, base, &mut all)?;
                "hdf5"
            }
            None => match safetensors::find(whole, &start)? {
                Some(_) => {
                    safetensors::inventory(whole, &start, &mut all)?;
                    "safetensors"
                }
                None => {
                    let found = raw.map(|raw| raw.find(whole, "values")).transpose()?;
                    // Without a layout all bytes are one array.
                    if let Some(found) = &found {
                        beside(whole, found, true, &mut all)?;
                    }
                    if found.is_some() { "raw" } else { "bytes" }
                }
            },
        },
    }
    .to_string();
    Ok(all)
}

/// The names of the items of objects begin with this.
pub(super) const OBJECT: &str = "object ";
/// Items that are links begin with this.
pub(super) const LINK: &str = "link ";
/// The words before the name of an item that stands for itself, and those before the object of another item.
pub(crate) const KINDS: [&str; 4] = [OBJECT, LINK, "tensor ", "member "];
pub(crate) const OF: &str = " of ";
/// Number of links that are followed on the way to an object.
const MOST_LINKS: u32 = 64;

/// The name of an item within an object; none if it does not belong to it. Names of attributes may look like paths:
/// then an item may belong to several objects.
fn inside(name: &str, object: &str) -> Option<String> {
    if object.is_empty() {
        return Some(name.to_string());
    }
    let itself = KINDS.iter().find_map(|kind| match is_in(name.strip_prefix(kind)?, object)? {
        "" if *kind == OBJECT => Some(format!("{kind}/")),
        rest => Some(format!("{kind}{rest}")),
    });
    let mut of = name.match_indices(OF).filter_map(|(at, _)| {
        let rest = is_in(name[at + OF.len()..].trim_start_matches('/'), object)?;
        Some(format!("{}{OF}/{rest}", &name[..at]))
    });
    itself.or_else(|| of.next())
}

/// The name of an item of an object that is seen under another name: what [`inside`] takes away.
fn outside(name: &str, above: &str) -> String {
    if let Some(kind) = KINDS.iter().find(|kind| name.starts_with(**kind)) {
        let rest = name[kind.len()..].trim_start_matches('/');
        return match rest.is_empty() {
            true => format!("{kind}{above}"),
            false => format!("{kind}{above}/{rest}"),
        };
    }
    match name.rsplit_once(" of /") {
        Some((item, "")) => format!("{item}{OF}/{above}"),
        Some((item, rest)) => format!("{item}{OF}/{above}/{rest}"),
        None => format!("{name}{OF}/{above}"),
    }
}

/// The part of a path behind an object that it is, or lies in; the whole path if the object is that of the file.
pub(crate) fn is_in<'p>(path: &'p str, object: &str) -> Option<&'p str> {
    if object.is_empty() {
        return Some(path);
    }
    let rest = path.strip_prefix(object)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
}

/// The name of the item of bytes that belong to no array.
const BESIDE: &str = "bytes outside of the arrays";

/// Adds the bytes that lie behind the arrays, or with `before` all that lie between them, too.
fn beside(whole: &Extent, found: &[FoundArray], before: bool, all: &mut Inventory) -> Result<()> {
    let mut spans: Vec<(u64, u64)> = found.iter().flat_map(FoundArray::spans).collect();
    spans.sort_unstable();
    let mut digester = Digester::new();
    let (mut at, mut any) = (0, false);
    let end = spans.iter().map(|span| span.0.saturating_add(span.1)).max().unwrap_or(0);
    if !before {
        spans = vec![(0, end)];
    }
    for (start, len) in spans.into_iter().chain([(whole.size(), 0)]) {
        let mut buffer = vec![0; 1 << 16];
        while at < start {
            let part = &mut buffer[..(start - at).min(1 << 16) as usize];
            whole.read_at(at, part)?;
            digester.update(part);
            at += part.len() as u64;
            any = true;
        }
        at = at.max(start.saturating_add(len));
    }
    if any {
        all.add_digest(BESIDE.into(), digester.finish(), String::new());
    }
    Ok(())
}

/// A name as a message shows it: a control character becomes its escape, such as `\u{1b}`, so that it does nothing to a
/// terminal. Different names stay different, because a backslash that would begin an escape becomes one, too.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c.is_control() || text[at..].starts_with("\\u{") {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown
}

/// A value as a message shows it. Texts that are quoted have escapes of their own, which stay.
pub(crate) fn printable_value(text: &str) -> String {
    match text.chars().any(char::is_control) {
        true => printable(text),
        false => text.to_string(),
    }
}

/// A few values as text; nothing for more of them.
pub(super) fn shown(dtype: DType, bytes: &[u8]) -> String {
    const FEW: usize = 4;
    let size = dtype.size() as usize;
    if dtype == DType::Bytes {
        return format!("{:?}", String::from_utf8_lossy(bytes).trim_end_matches('\0'));
    }
    if bytes.len() > FEW * size {
        return String::new();
    }
    let one = |raw: &[u8]| {
        let mut wide = [0u8; 8];
        wide[..raw.len().min(8)].copy_from_slice(&raw[..raw.len().min(8)]);
        let bits = u64::from_le_bytes(wide);
        match dtype {
            DType::F32 => f32::from_bits(bits as u32).to_string(),
            DType::F64 => f64::from_bits(bits).to_string(),
            DType::I8 => (bits as i8).to_string(),
            DType::I16 => (bits as i16).to_string(),
            DType::I32 => (bits as i32).to_string(),
            DType::I64 => (bits as i64).to_string(),
            DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool => bits.to_string(),
            _ => String::new(),
        }
    };
    let values: Vec<String> = bytes.chunks_exact(size).map(one).collect();
    values.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed() {
        let mut all = Inventory::default();
        let here = |path: &str| LinkedPlace::Here(path.into());
        all.add_link("soft", here("/g/x"));
        all.add_link("g/near", here("x"));
        all.add_link("g/up", here("/soft"));
        all.add_link("round", here("/trip"));
        all.add_link("trip", here("round"));
        all.add_link("dir", here("./g"));
        all.add_link("away", LinkedPlace::Elsewhere("b.h5".into(), "/there".into()));
        for (path, to) in [
            ("/g/x", here("g/x")),
            ("soft", here("g/x")),
            ("/g/near", here("g/x")),
            ("g/up", here("g/x")),
            ("dir/near", here("g/x")),
            ("away/x", LinkedPlace::Elsewhere("b.h5".into(), "there/x".into())),
            ("/", here("")),
        ] {
            assert_eq!(all.resolve(path), Some(to), "{path}");
        }
        assert_eq!(all.resolve("round/x"), None);
    }

    #[test]
    fn control_characters_are_shown_as_escapes() {
        for (text, shown) in [
            ("temp \u{b5}m \\x \\", "temp \u{b5}m \\x \\"),
            ("a\u{1b}[2J", "a\\u{1b}[2J"),
            ("a\\u{1b}[2J", "a\\u{5c}u{1b}[2J"),
            ("\n\u{9b}\u{7f}", "\\u{a}\\u{9b}\\u{7f}"),
        ] {
            assert_eq!(printable(text), shown);
        }
        assert_eq!(printable_value("\"a\\u{1b}\""), "\"a\\u{1b}\"");
        assert_eq!(printable_value("a\u{1b}"), "a\\u{1b}");
    }

    #[test]
    fn items_have_names_within_objects() {
        for (name, object, inside_of_it) in [
            ("attribute units of /g/x", "g", Some("attribute units of /x")),
            ("attribute units of /g/x", "g/x", Some("attribute units of /")),
            ("attribute units of /gg/x", "g", None),
            ("object g/x", "g", Some("object x")),
            ("object g", "g", Some("object /")),
            ("tensor g/x", "g/x", Some("tensor ")),
            ("axis 0 of temp", "temp", Some("axis 0 of /")),
            ("user block", "g", None),
        ] {
            assert_eq!(inside(name, object).as_deref(), inside_of_it, "{name} {object}");
            // Seen under a name, it is where it was.
            if let Some(item) = inside_of_it.filter(|_| name.contains('/') || name == "object g") {
                assert_eq!(outside(item, object), name);
            }
        }
    }
}

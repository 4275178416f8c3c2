//! Every name of the public interface has an example that runs, or a link to one.

use crate::rooms::files;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A declaration: its file, what it belongs to (`Run::` for a method of `Run`), its name, and its doc comment.
struct Declared {
    file: String,
    owner: String,
    name: String,
    doc: String,
}

impl Declared {
    /// Whether the doc comment has code that is compiled as a test.
    fn has_example(&self) -> bool {
        let mut inside = false;
        let fences = self.doc.lines().filter_map(|line| line.strip_prefix("```"));
        fences.fold(false, |found, kind| {
            inside = !inside;
            found || inside && ["", "no_run"].contains(&kind)
        })
    }

    /// The items that intra-doc links of the doc comment lead to, as `Type::method` or `name`.
    fn links(&self) -> BTreeSet<String> {
        let link = Regex::new(r"\[`([\w:]+)(?:\(\))?`\](?:\(([\w:]+)\))?").unwrap();
        let target = |found: regex::Captures| {
            let path = found.get(2).or(found.get(1)).unwrap().as_str().to_string();
            let mut segments: Vec<&str> = path.split("::").collect();
            let name = segments.pop().unwrap();
            match segments.pop().filter(|owner| owner.starts_with(char::is_uppercase)) {
                Some(owner) => format!("{owner}::{name}"),
                None => name.to_string(),
            }
        };
        link.captures_iter(&self.doc).map(target).collect()
    }
}

/// The declarations of a file, documented or not.
fn declared(file: &str, text: &str) -> Vec<Declared> {
    let item = Regex::new(
        r"^(?:pub(?:\([a-z]+\))? )?(?:const |unsafe |async )*(?:fn|struct|enum|trait|type|const) (\w+)",
    );
    let (item, number) = (item.unwrap(), Regex::new(r"^(\w+)\(\w+\);$").unwrap());
    let owner = Regex::new(r"^(?:impl(?:<[^>]*>)?|pub trait) (?:.* for )?(?:dyn )?(\w+)").unwrap();
    let (mut found, mut doc, mut attribute) = (Vec::new(), String::new(), false);
    let mut of = String::new();
    for line in text.lines() {
        let inner = line.trim_start();
        if let Some(line) = inner.strip_prefix("///") {
            doc.push_str(line.strip_prefix(' ').unwrap_or(line));
            doc.push('\n');
            continue;
        }
        // Attributes stand between a doc comment and its item, some of them on several lines.
        if attribute || inner.starts_with("#[") {
            attribute = !inner.ends_with(']');
            continue;
        }
        if line == "}" {
            of.clear();
        }
        if let Some(name) = item.captures(inner).or_else(|| number.captures(inner)) {
            let (file, doc) = (file.to_string(), std::mem::take(&mut doc));
            found.push(Declared { file, owner: of.clone(), name: name[1].to_string(), doc });
        }
        if let Some(owner) = owner.captures(line) {
            of = format!("{}::", &owner[1]);
        }
        doc.clear();
    }
    found
}

/// The names that the root offers: the room, the name there, and the name that is offered.
fn offered(root: &str) -> Vec<(String, String, String)> {
    let uses = Regex::new(r"(?m)^pub use (\w+)::(?:\{([^}]+)\}|(\w+));").unwrap();
    let names = |found: regex::Captures| {
        let list = found.get(2).or(found.get(3)).unwrap().as_str().split(',');
        let members: Vec<&str> = list.map(str::trim).filter(|name| !name.is_empty()).collect();
        let room = found[1].to_string();
        members
            .into_iter()
            .map(move |member| {
                let (name, offered) = member.split_once(" as ").unwrap_or((member, member));
                (room.clone(), name.to_string(), offered.to_string())
            })
            .collect::<Vec<_>>()
    };
    uses.captures_iter(root).flat_map(names).collect()
}

#[test]
fn every_public_name_has_an_example_or_a_link_to_one() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    for file in files(&source).into_iter().filter(|f| f.extension().is_some_and(|e| e == "rs")) {
        let inside = file.strip_prefix(&source).unwrap().display().to_string();
        all.extend(declared(&inside, &std::fs::read_to_string(&file).unwrap()));
    }
    let names = offered(&std::fs::read_to_string(source.join("lib.rs")).unwrap());
    assert!(names.len() > 150, "{} names", names.len());
    let shown = all.iter().filter(|item| item.has_example());
    let mut shown: BTreeSet<String> =
        shown.map(|item| format!("{}{}", item.owner, item.name)).collect();
    // Links use the names that are offered.
    let renamed = names.iter().filter(|(_, name, _)| shown.contains(name));
    let renamed: Vec<String> = renamed.map(|(_, _, offered)| offered.clone()).collect();
    shown.extend(renamed);
    let mut by_name = BTreeMap::<&str, Vec<&Declared>>::new();
    for item in all.iter().filter(|item| item.owner.is_empty()) {
        by_name.entry(&item.name).or_default().push(item);
    }
    let lacks = |(room, name, _): &&(String, String, String)| {
        let in_room = |item: &&&Declared| {
            item.file.starts_with(&format!("{room}/")) || item.file == format!("{room}.rs")
        };
        let mut items = by_name.get(&name[..]).into_iter().flatten().filter(in_room);
        !items.any(|item| item.has_example() || item.links().iter().any(|l| shown.contains(l)))
    };
    let lacking: Vec<&str> = names.iter().filter(lacks).map(|(_, _, name)| &name[..]).collect();
    assert!(lacking.is_empty(), "no example, and no link to an item with one: {lacking:?}");
}

#[test]
fn the_reader_of_examples_sees_items_links_and_new_names() {
    let text = "/// Words.\n///\n/// ```text\n/// a\n/// ```\n#[derive(Clone)]\npub struct A;\n\
                impl A {\n    /// ```no_run\n    /// a();\n    /// ```\n    pub fn f() {}\n}\n\
                /// See [`A::f`](crate::A::f) and [`g()`].\n#[doc(\n    hidden\n)]\npub fn h() {}\n";
    let found = declared("a.rs", text);
    let seen = |item: &Declared| (format!("{}{}", item.owner, item.name), item.has_example());
    let expected = [("A", false), ("A::f", true), ("h", false)];
    assert_eq!(
        found.iter().map(seen).collect::<Vec<_>>(),
        expected.map(|(name, example)| (name.to_string(), example))
    );
    assert_eq!(found[2].links(), ["A::f", "g"].map(str::to_string).into());
    let names = offered("pub use a::{A, f as g};\npub use b::C;\nuse d::E;\n");
    let name = |[a, b, c]: [&str; 3]| (a.to_string(), b.to_string(), c.to_string());
    assert_eq!(names, [["a", "A", "A"], ["a", "f", "g"], ["b", "C", "C"]].map(name));
}

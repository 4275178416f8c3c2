//! The way of the data is visible in the folders: a room uses only those above it, and pure rooms touch
//! neither files nor clocks, threads or the environment.

use std::path::{Path, PathBuf};

/// A room, and whether it is pure.
const ROOMS: [(&str, bool); 30] = [
    ("error", true),
    // With the feature `testing` it asks the environment.
    ("points", false),
    // It reads the clock.
    ("trace", false),
    // It reads the clock and reports to the person in front of the program.
    ("waiting", false),
    // It advises the kernel about huge pages.
    ("memory", false),
    ("array", true),
    ("merkle", true),
    ("lineage", true),
    ("codec", true),
    ("format", true),
    ("pack", true),
    ("io", false),
    ("store", false),
    ("source", false),
    ("comm", false),
    ("redundancy", false),
    ("log", false),
    ("compact", false),
    ("restore", false),
    ("retention", false),
    // Placement and probabilities are pure, see below; the store in ranks' memory is not.
    ("replica", false),
    ("compare", false),
    ("report", true),
    ("capture", false),
    ("save", false),
    ("run", false),
    ("crew", false),
    ("library", false),
    // Its watcher asks the library which files a run holds.
    ("ingest", false),
    ("testing", false),
];

/// Pure code in rooms that are not pure as a whole.
const PURE_FILES: [&str; 43] = [
    "comm/wire.rs",
    "compact/plan.rs",
    "crew/keeping.rs",
    "crew/seats.rs",
    "redundancy/census.rs",
    "redundancy/placement.rs",
    "redundancy/plan.rs",
    "replica/after_deaths.rs",
    "replica/comparison.rs",
    "replica/counts.rs",
    "replica/loss.rs",
    "replica/loss_exact.rs",
    "replica/loss_report.rs",
    "replica/loss_simulation.rs",
    "replica/permutation.rs",
    "replica/placement/layers.rs",
    "replica/placement/mod.rs",
    "replica/placement/seating.rs",
    "replica/probing.rs",
    "replica/topology.rs",
    "restore/delivery.rs",
    "restore/nearby.rs",
    "restore/plan.rs",
    "retention/plan.rs",
    "retention/store_plan.rs",
    "run/schedule.rs",
    "save/ballot.rs",
    "save/epoch.rs",
    "save/gather.rs",
    "save/seats.rs",
    "save/tree.rs",
    "ingest/merge.rs",
    "ingest/names.rs",
    "ingest/watch/sets.rs",
    "compare/judge.rs",
    "compare/letters.rs",
    "compare/partners.rs",
    "compare/walk.rs",
    "library/arrays/hdf5.rs",
    "library/arrays/npy.rs",
    "library/arrays/plan.rs",
    "library/arrays/tiles.rs",
    "library/arrays/zarr.rs",
];

/// Names of the world that pure code does not touch. Threads that only compute (rayon) are no state of the world.
const WORLD: [&str; 8] =
    ["SystemTime", "Instant", "File::", "OpenOptions", "rustix::", "libc::", "print!", "println!"];

/// The modules of the standard library that it does not touch, alone or in a group.
const STD: [&str; 6] = ["fs", "env", "thread", "process", "net", "os"];

pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn place(room: &str) -> Option<usize> {
    ROOMS.iter().position(|(name, _)| *name == room)
}

/// The code of a file without its tests and comments; tests may look anywhere.
fn code(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if line.trim_start().starts_with("#[cfg(test)]") {
            // The item behind it, to the brace that closes it at the same depth.
            let depth = line.len() - line.trim_start().len();
            let closing = format!("{}}}", " ".repeat(depth));
            let one_line = lines.get(at + 1).is_some_and(|next| next.trim_end().ends_with(';'));
            let end = lines[at..].iter().position(|line| one_line || **line == closing);
            at += end.map_or(lines.len(), |end| end.max(usize::from(one_line))) + 1;
            continue;
        }
        if !line.trim_start().starts_with("//") {
            out.push_str(line);
            out.push('\n');
        }
        at += 1;
    }
    out
}

/// The rooms that code names.
fn used(code: &str) -> Vec<String> {
    behind(code, "crate::")
}

/// The names that code has behind a path: one, or a group in braces.
fn behind(code: &str, path: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for rest in code.split(path).skip(1) {
        let word = |text: &str| -> String {
            text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        match rest.strip_prefix('{') {
            // The first word of each member of the group, at its own depth.
            Some(group) => {
                let (mut depth, mut member) = (0, String::new());
                for c in group.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => rooms.push(word(&std::mem::take(&mut member))),
                        _ => {}
                    }
                    if !(c == ',' && depth == 0) {
                        member.push(c);
                    }
                }
                rooms.push(word(&member));
            }
            None => rooms.push(word(rest)),
        }
    }
    rooms.retain(|room| !room.is_empty());
    rooms
}

#[test]
fn rooms_use_only_those_above_them_and_pure_ones_touch_nothing() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut looked_at, mut wrong) = (0, Vec::new());
    for file in files(&source).into_iter().filter(|f| f.extension().is_some_and(|e| e == "rs")) {
        let inside = file.strip_prefix(&source).unwrap().display().to_string();
        let room = inside.trim_end_matches(".rs").split('/').next().unwrap().to_string();
        // Tests may look anywhere.
        if room == "lib" || inside.ends_with("/tests.rs") || inside.contains("/tests/") {
            continue;
        }
        let Some(own) = place(&room) else {
            wrong.push(format!("{inside} is in no room"));
            continue;
        };
        let code = code(&std::fs::read_to_string(&file).unwrap());
        for other in used(&code) {
            looked_at += 1;
            match place(&other) {
                Some(other_place) if other_place <= own => {}
                Some(_) => wrong.push(format!("{inside} uses {other}, which is below it")),
                // Names of the root hide the room that they come from.
                None => wrong.push(format!("{inside} uses crate::{other}, which is no room")),
            }
        }
        let (steps, depth) = (steps_up(&code), depth(&inside) + usize::from(has_modules(&code)));
        if steps > depth {
            wrong.push(format!("{inside} leaves its room by {}", "super::".repeat(steps)));
        }
        if ROOMS[own].1 || PURE_FILES.contains(&inside.as_str()) {
            let touched = touched(&code);
            wrong.extend(
                touched.iter().map(|touched| format!("{inside} is pure and uses {touched}")),
            );
        }
    }
    assert!(looked_at > 300, "{looked_at}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Names of the world that code touches.
fn touched(code: &str) -> Vec<String> {
    let words = WORLD.iter().filter(|word| code.contains(**word)).map(|word| word.to_string());
    let modules = behind(code, "std::").into_iter().filter(|name| STD.contains(&name.as_str()));
    words.chain(modules.map(|name| format!("std::{name}"))).collect()
}

/// The modules that are between a file and its room.
fn depth(inside: &str) -> usize {
    inside.matches('/').count() - usize::from(inside.ends_with("/mod.rs"))
}

/// Whether code has modules of its own in braces.
fn has_modules(code: &str) -> bool {
    code.lines().any(|line| line.ends_with('{') && line.trim_start().starts_with("mod "))
}

/// The most modules that code goes up at once.
fn steps_up(code: &str) -> usize {
    let mut most = 0;
    for (at, _) in code.match_indices("super::") {
        let steps = code[at..].split("super::").skip(1).take_while(|rest| rest.is_empty()).count();
        most = most.max(steps + 1);
    }
    most
}

#[test]
fn the_reader_of_the_world_sees_groups_and_steps_up() {
    let seen = |code: &str| touched(code);
    assert_eq!(seen("use std::{collections::HashMap, fs, time::Instant};"), ["Instant", "std::fs"]);
    assert_eq!(seen("let x = std::env::var(name);\nprintln!(\"x\");"), ["println!", "std::env"]);
    assert_eq!(seen("unsafe { libc::getpid() };"), ["libc::"]);
    assert_eq!(seen("use std::collections::HashMap;"), [] as [&str; 0]);
    assert_eq!(["run/mod.rs", "run/options.rs", "a/b/mod.rs", "error.rs"].map(depth), [0, 1, 1, 0]);
    assert!(has_modules("mod off {\n}\n") && !has_modules("mod a;\nstruct Mod {\n}\n"));
    let codes = ["use super::x;", "use super::super::x;\nuse super::y;", "use crate::x;"];
    assert_eq!(codes.map(steps_up), [1, 2, 0]);
}

/// The book has the same rooms in the same order.
#[test]
fn the_book_names_the_rooms() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/internals.md");
    let book = std::fs::read_to_string(book).unwrap();
    let (_, rooms) = book.split_once("## The rooms\n").unwrap();
    let rooms = rooms.split("\n## ").next().unwrap();
    let rows = rooms.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.map(|row| {
        let name = row.split('`').next().unwrap();
        let pure = row.trim_end_matches('|').rsplit('|').next().unwrap().trim();
        (name, pure)
    });
    let rows: Vec<(&str, &str)> = rows.collect();
    assert_eq!(rows.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ROOMS.map(|(name, _)| name));
    for ((name, said), (_, pure)) in rows.iter().zip(ROOMS) {
        let has_pure = PURE_FILES.iter().any(|file| file.starts_with(&format!("{name}/")));
        let right = match *said {
            "yes" => pure,
            "partly" => !pure && has_pure,
            "no" => !pure && !has_pure,
            "wiring" => !pure,
            _ => false,
        };
        assert!(right, "{name}: {said}");
    }
}

#[test]
fn the_reader_of_rooms_sees_groups_and_root_names() {
    let text = "use crate::{run::Run, store::{Blob, Store}, Error};\nlet x = crate::save::open();\n\
                #[cfg(test)]\nmod tests {\n    use crate::library::Library;\n}\nuse crate::log::Log;\n";
    assert_eq!(used(&code(text)), ["run", "store", "Error", "save", "log"]);
}

/// The names of the types that code declares outside of functions. A type that is declared anew for each
/// platform counts once.
fn types(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut under_cfg = false;
    for line in code.lines() {
        let depth = line.len() - line.trim_start().len();
        let mut words =
            line.split_whitespace().skip_while(|word| word.starts_with("pub")).peekable();
        let public = line.trim_start().starts_with("pub");
        let kind = words.next().unwrap_or("");
        let declares = matches!(kind, "struct" | "enum" | "trait" | "union" | "type");
        // Helpers in functions and associated types are indented and not public.
        if declares && (depth == 0 || public) {
            let name = words.next().unwrap_or("");
            let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
            if !(under_cfg && found.contains(&name)) {
                found.push(name);
            }
        }
        under_cfg = line.starts_with("#[cfg(");
    }
    found
}

#[test]
fn a_name_of_a_type_is_unique_in_the_crate() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut places: std::collections::BTreeMap<String, Vec<String>> = Default::default();
    for file in files(&source).into_iter().filter(|f| f.extension().is_some_and(|e| e == "rs")) {
        let inside = file.strip_prefix(&source).unwrap().display().to_string();
        // Tests may call things as they like; what stands in for a file without its feature has its names.
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name == "tests.rs" || name.starts_with("no_") {
            continue;
        }
        for name in types(&code(&std::fs::read_to_string(&file).unwrap())) {
            places.entry(name).or_default().push(inside.clone());
        }
    }
    assert!(places.len() > 300, "{}", places.len());
    places.retain(|_, files| files.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}

#[test]
fn the_reader_of_types_sees_declarations_outside_of_functions() {
    let text = "pub(crate) struct A<'a> {\n}\nenum B;\n#[cfg(x)]\ntype C = u8;\n#[cfg(y)]\ntype C = u16;\n\
                fn f() {\n    struct A;\n    type Item = u8;\n}\nmod m {\n    pub trait D {}\n}\n";
    assert_eq!(types(text), ["A", "B", "C", "D"]);
}

/// The names that the root offers: modules that are public, and what is re-exported.
fn offered(root: &str) -> (Vec<String>, Vec<String>) {
    let (mut modules, mut names) = (Vec::new(), Vec::new());
    for item in code(root).split(';') {
        let item = item.trim().rsplit("]\n").next().unwrap_or("").trim();
        if let Some(module) = item.strip_prefix("pub mod ") {
            modules.push(module.to_string());
        } else if let Some(list) = item.strip_prefix("pub use ") {
            let list = list.rsplit_once("::").map_or(list, |(_, last)| last);
            let members = list.trim_matches(['{', '}']).split(',').map(str::trim);
            let named = members.filter(|m| !m.is_empty());
            names.extend(named.map(|m| m.rsplit(" as ").next().unwrap_or(m).to_string()));
        }
    }
    (modules, names)
}

/// The public interface is one list that a person can read. There is a reason for every name that makes it longer.
#[test]
fn the_public_interface_is_one_short_list() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let root = std::fs::read_to_string(source).unwrap();
    let (modules, mut names) = offered(&root);
    assert_eq!(modules, ["testing"], "modules are private");
    assert!((50..=169).contains(&names.len()), "{} names", names.len());
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "a name is offered once");
    assert!(!root.contains("::*"), "names are listed one by one");
}

#[test]
fn the_reader_of_the_interface_sees_modules_lists_and_new_names() {
    let root = "mod a;\n#[doc(hidden)]\npub mod testing;\n// words\npub use a::{B, c as d};\npub use e::F;\n";
    let (modules, names) = offered(root);
    assert_eq!(modules, ["testing"]);
    assert_eq!(names, ["B", "d", "F"]);
}

/// The crate as other platforms see it: without any of its modules, and with one error, which says why.
#[test]
fn other_platforms_are_refused_with_one_sentence() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = std::fs::read_to_string(crate_folder.join("src/lib.rs")).unwrap();
    let here = "#[cfg(all(target_os = \"linux\",";
    assert_eq!(root.matches(here).count(), 1);
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("lib.rs");
    std::fs::write(&elsewhere, root.replace(here, "#[cfg(all(target_os = \"windows\",")).unwrap();
    let cargo = std::env::var_os("CARGO").map(PathBuf::from);
    let beside = cargo.map(|cargo| cargo.with_file_name("rustc")).filter(|rustc| rustc.is_file());
    let mut rustc = std::process::Command::new(beside.unwrap_or("rustc".into()));
    rustc.args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--out-dir"]);
    let output = rustc.arg(folder.path()).arg(elsewhere).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let errors: Vec<&str> = told.lines().filter(|line| line.starts_with("error")).collect();
    assert_eq!(errors.len(), 2, "{told}");
    assert!(errors[0].starts_with("error: treering works on Linux"), "{told}");
    assert!(errors[1].contains("aborting due to 1 previous error"), "{told}");
    // Crates that build on Linux only are not fetched there.
    let manifest = std::fs::read_to_string(crate_folder.join("Cargo.toml")).unwrap();
    let (everywhere, linux) = manifest.split_once("[target.'cfg(target_os = \"linux\")'").unwrap();
    assert!(!everywhere.contains("\nio-uring =") && linux.contains("\nio-uring ="));
}

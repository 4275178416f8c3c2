//! README and book: every chapter is in the summary, every link leads somewhere, and every example runs.
//!
//! The info string of a fenced block says what happens to it:
//! - `sh`: all blocks of a file run in order, in one shell (`set -e`) and one temporary folder, with `treering` on the
//!   path. The folder holds the sample files of the book (`make_samples.py` writes them).
//! - `text,output`, right behind an `sh` block: what that block prints, on standard output and standard error. Blank
//!   lines do not count, and white space counts as one space. `…` in a line stands for any text, and a line that is
//!   only `…` for any number of lines.
//! - `rust`, `rust,no_run`: doctests of the crate that includes the file.
//! - `console`: commands that a test cannot run (they install something, or need a cluster).
//! - `text`, `toml`, `yaml`: content.

use regex::Regex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const KINDS: [&str; 8] =
    ["sh", "text,output", "rust", "rust,no_run", "console", "text", "toml", "yaml"];
/// README is for a first look; everything else is in the book.
const README_LINES: usize = 120;
/// Separates the output of one block from that of the next.
const MARK: &str = "-- next block --";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    let full = root().join(path);
    std::fs::read_to_string(&full).unwrap_or_else(|error| panic!("{}: {error}", full.display()))
}

/// The files of the book, and README.
fn files() -> Vec<String> {
    let folder = root().join("docs/src");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut files: Vec<String> = names
        .map(|name| name.into_string().unwrap())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/src/{name}"))
        .collect();
    files.push("README.md".to_string());
    files.sort();
    files
}

/// A fenced block of a file.
struct Block {
    kind: String,
    text: String,
    /// The line of its opening fence, counted from 1.
    line: usize,
    /// Whether only blank lines are between it and the block before.
    follows: bool,
}

/// The blocks of a file, and its text without them.
fn parse(text: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut prose) = (Vec::<Block>::new(), String::new());
    let (mut open, mut follows) = (false, false);
    for (at, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if open => (open, follows) = (false, true),
            Some(kind) => {
                let (kind, text) = (kind.to_string(), String::new());
                blocks.push(Block { kind, text, line: at + 1, follows });
                open = true;
            }
            None if open => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {
                follows &= line.trim().is_empty();
                prose.push_str(line);
                prose.push('\n');
            }
        }
    }
    assert!(!open, "a block is not closed");
    (blocks, prose)
}

/// The relative links of a file: path and anchor, one of which may be empty.
fn links(prose: &str) -> Vec<(String, String)> {
    let code = Regex::new("`[^`]*`").unwrap();
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let prose = code.replace_all(prose, "code");
    let targets = link.captures_iter(&prose).map(|found| found[1].to_string());
    let relative = targets.filter(|target| !target.contains("://"));
    relative
        .map(|target| match target.split_once('#') {
            Some((path, anchor)) => (path.to_string(), anchor.to_string()),
            None => (target, String::new()),
        })
        .collect()
}

/// The anchors of a file's headings, as mdBook and others make them.
fn anchors(prose: &str) -> BTreeSet<String> {
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let text = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_chapter_is_in_the_summary() {
    let (_, summary) = parse(&read("docs/src/SUMMARY.md"));
    let listed: BTreeSet<String> =
        links(&summary).into_iter().map(|(path, _)| format!("docs/src/{path}")).collect();
    let mut chapters: BTreeSet<String> = files().into_iter().collect();
    chapters.remove("README.md");
    chapters.remove("docs/src/SUMMARY.md");
    assert_eq!(listed, chapters);
}

#[test]
fn every_link_leads_somewhere() {
    for file in files() {
        let (_, prose) = parse(&read(&file));
        let folder = Path::new(&file).parent().unwrap();
        for (path, anchor) in links(&prose) {
            let target = if path.is_empty() { PathBuf::from(&file) } else { folder.join(&path) };
            assert!(root().join(&target).exists(), "{file}: {path} does not exist");
            // A page of the book is read alone: what is not a chapter is not there.
            let inside = file == "README.md" || !path.contains('/');
            assert!(inside, "{file}: {path} is outside of the book");
            if !anchor.is_empty() {
                let (_, other) = parse(&read(target.to_str().unwrap()));
                assert!(
                    anchors(&other).contains(&anchor),
                    "{file}: {path}#{anchor} does not exist"
                );
            }
        }
    }
}

/// The part of a file from a heading to the next one of its level or above; without an anchor, all of it.
fn section<'t>(text: &'t str, anchor: &str) -> &'t str {
    let (mut start, mut level, mut at, mut in_block) = (None, 0, 0, false);
    for line in text.split_inclusive('\n') {
        in_block ^= line.starts_with("```");
        let depth = line.bytes().take_while(|byte| *byte == b'#').count();
        if !in_block && depth > 0 {
            match start {
                Some(start) if depth <= level => return &text[start..at],
                None if anchors(line).contains(anchor) => (start, level) = (Some(at), depth),
                _ => {}
            }
        }
        at += line.len();
    }
    &text[start.unwrap_or(0)..]
}

#[test]
fn a_section_ends_at_the_next_heading_of_its_level() {
    let text = "# A\na\n## B c\nb\n```sh\n# no heading\n```\n### D\nd\n## E\ne\n";
    assert_eq!(section(text, "b-c"), "## B c\nb\n```sh\n# no heading\n```\n### D\nd\n");
    assert_eq!((section(text, "e"), section(text, "")), ("## E\ne\n", text));
}

/// The part of a section before its first heading below.
fn own_part(section: &str) -> &str {
    let (mut at, mut in_block) = (0, false);
    for line in section.split_inclusive('\n') {
        in_block ^= line.starts_with("```");
        if at > 0 && !in_block && line.starts_with('#') {
            break;
        }
        at += line.len();
    }
    &section[..at]
}

/// A program or commands without their comments.
fn code(block: &Block) -> String {
    let comment = if block.kind == "sh" { " # " } else { "// " };
    let lines = block.text.lines().map(|line| line.split(comment).next().unwrap_or(line));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Anyone who looks for a task finds the section whose example, which runs, has the names that the table gives.
#[test]
fn every_task_has_an_example_that_runs() {
    const TABLE: &str = "| task | section | look for |\n|---|---|---|\n";
    let chapter = read("docs/src/tasks.md");
    let (_, rows) = chapter.split_once(TABLE).expect("the table of tasks");
    let rows: Vec<&str> = rows.lines().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 60, "{} tasks", rows.len());
    let quoted = Regex::new("`([^`]+)`").unwrap();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [_, place, names] = cells[..] else { panic!("three cells: {row}") };
        let places = links(place);
        let [(path, anchor)] = &places[..] else { panic!("one link: {row}") };
        let text = read(&format!("docs/src/{path}"));
        assert!(anchors(&parse(&text).1).contains(anchor), "{path}#{anchor} does not exist");
        let (blocks, _) = parse(own_part(section(&text, anchor)));
        let runs = blocks.iter().filter(|block| ["rust", "sh"].contains(&block.kind.as_str()));
        let code: String = runs.map(code).collect();
        let names: Vec<&str> =
            quoted.captures_iter(names).map(|n| n.get(1).unwrap().as_str()).collect();
        assert!(!names.is_empty(), "no name to look for: {row}");
        for name in names {
            assert!(code.contains(name), "no example that runs has {name}: {row}");
        }
    }
}

#[test]
fn examples_are_searched_without_comments_and_sections_below() {
    let text = "# A\na\n```sh\n# no heading\ntreering ls store#a # why\n```\n## B\n```sh\nb\n```\n";
    let (blocks, _) = parse(own_part(text));
    assert_eq!(blocks.iter().map(code).collect::<String>(), "# no heading\ntreering ls store#a\n");
    let block =
        |text: &str| Block { kind: "rust".into(), text: text.into(), line: 1, follows: false };
    assert_eq!(code(&block("a(); // b\n# c();\n")), "a(); \n# c();\n");
}

#[test]
fn every_block_says_what_it_is() {
    for file in files() {
        let (blocks, prose) = parse(&read(&file));
        let indented = prose.lines().find(|line| line.trim_start().starts_with("```"));
        assert_eq!(indented, None, "{file}: blocks begin at the margin");
        let mut before = None;
        for block in &blocks {
            let (kind, line) = (block.kind.as_str(), block.line);
            assert!(KINDS.contains(&kind), "{file}:{line}: there is no kind of block {kind:?}");
            let behind_commands = block.follows && before == Some("sh");
            assert!(kind != "text,output" || behind_commands, "{file}:{line}: output of what?");
            before = Some(kind);
        }
    }
}

/// A file with Rust code is a doctest of the library or, if it uses MPI, of the crate for that.
#[test]
fn all_rust_code_is_tested() {
    for file in files() {
        let (blocks, _) = parse(&read(&file));
        let rust: Vec<&Block> = blocks.iter().filter(|b| b.kind.starts_with("rust")).collect();
        let mpi = rust.iter().any(|block| block.text.contains("treering_mpi"));
        let library = read(match mpi {
            true => "crates/treering-mpi/src/lib.rs",
            false => "crates/treering/src/lib.rs",
        });
        let included = library.contains(&format!("#[doc = include_str!(\"../../../{file}\")]"));
        assert_eq!(
            included,
            !rust.is_empty(),
            "{file}: a doctest if, and only if, it has Rust code"
        );
    }
}

/// The programs of README stand in the book, too, where they run: README cannot hide lines that a test needs.
#[test]
fn the_readme_is_short_and_its_programs_run() {
    let readme = read("README.md");
    let lines = readme.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines");
    let (chapter, _) = parse(&read("docs/src/getting-started.md"));
    let shown = |text: &str| -> String {
        let lines = text.lines().filter(|line| *line != "#" && !line.starts_with("# "));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let runs: Vec<String> =
        chapter.iter().filter(|block| block.kind == "rust").map(|b| shown(&b.text)).collect();
    for block in parse(&readme).0.iter().filter(|block| block.kind.starts_with("rust")) {
        assert!(runs.contains(&block.text), "README.md:{}: does not run in the book", block.line);
    }
}

/// The tests that the book names exist.
#[test]
fn guarantees_are_held_by_tests_that_exist() {
    let (_, prose) = parse(&read("docs/src/guarantees.md"));
    let named = Regex::new(r"`(cli )?([a-z_]+(?:::[a-z_]+)?)::([a-z_]+)`").unwrap();
    let mut count = 0;
    for found in named.captures_iter(&prose).filter(|found| &found[2] != "treering") {
        let folder = if found.get(1).is_some() { "treering-cli" } else { "treering" };
        let (module, test) = (found[2].replace("::", "/"), &found[3]);
        let tests = format!("crates/{folder}/tests/it/{module}");
        let is_folder = root().join(&tests).is_dir();
        let file = if is_folder { format!("{tests}/mod.rs") } else { format!("{tests}.rs") };
        assert!(read(&file).contains(&format!("fn {test}(")), "{file} has no test {test}");
        count += 1;
    }
    assert!(count > 50, "{count} names of tests");
}

/// Whether a line is as expected: `…` stands for any text.
fn fits(expected: &str, line: &str) -> bool {
    let mut pieces = expected.split('…');
    let first = pieces.next().unwrap_or("");
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// Whether lines are as expected: a line of `…` stands for any number of them.
fn all_fit(expected: &[String], lines: &[String]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((any, rest)) if any == "…" => {
            (0..=lines.len()).any(|at| all_fit(rest, &lines[at..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| fits(first, line) && all_fit(rest, others)),
    }
}

/// The lines that count, with single spaces.
fn plain(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn output_is_compared_line_by_line() {
    let fit = |expected: &str, text: &str| all_fit(&plain(expected), &plain(text));
    assert!(fit("a  b\n\nc", "a b\nc\n"));
    assert!(!fit("a b", "a b\nc"));
    assert!(!fit("a b\nc", "a b"));
    assert!(fit("a … b … c", "a 1 b 2 b 3 c"));
    assert!(!fit("a … b", "a b c"));
    assert!(fit("a\n…\nc", "a\nb\nb\nc") && fit("a\n…\nc", "a\nc"));
    assert!(!fit("a\n…\nc", "a\nb"));
    assert!(fit("…", "") && fit("…", "a\nb"));
}

/// Puts the sample files of the book into a folder: all its files that are no chapters.
fn copy_samples(folder: &Path) {
    for entry in std::fs::read_dir(root().join("docs/src")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            std::fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// Runs the commands of a file.
fn run(file: &str) {
    let (blocks, _) = parse(&read(file));
    let shell: Vec<usize> = (0..blocks.len()).filter(|at| blocks[*at].kind == "sh").collect();
    let mut script = "set -e\nexec 2>&1\n".to_string();
    for at in &shell {
        script.push_str(&format!("echo '{MARK}'\n{}", blocks[*at].text));
    }
    let folder = tempfile::tempdir().unwrap();
    copy_samples(folder.path());
    let command = Path::new(env!("CARGO_BIN_EXE_treering"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", command.parent().unwrap().display());
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path())
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let outputs: Vec<&str> = text.split(&format!("{MARK}\n")).skip(1).collect();
    let last = outputs.len().checked_sub(1).map(|last| (blocks[shell[last]].line, outputs[last]));
    assert!(output.status.success(), "{file}: {} in the block of line {last:?}", output.status);
    assert_eq!(outputs.len(), shell.len(), "{file}: a block has ended the shell: {last:?}");
    for (at, output) in shell.iter().zip(outputs) {
        let Some(expected) = blocks.get(at + 1).filter(|next| next.kind == "text,output") else {
            continue;
        };
        assert!(
            all_fit(&plain(&expected.text), &plain(output)),
            "{file}:{}: the output is now\n{output}",
            expected.line
        );
    }
}

/// A test for each file with commands, and their list.
macro_rules! with_commands {
    ($($name:ident: $file:literal),+ $(,)?) => {
        $(#[test]
        fn $name() {
            run($file);
        })+

        const WITH_COMMANDS: &[&str] = &[$($file),+];
    };
}

with_commands! {
    the_commands_of_readme: "README.md",
    the_commands_of_the_demo_and_getting_started: "docs/src/getting-started.md",
    the_commands_of_files: "docs/src/files.md",
    the_commands_of_comparing: "docs/src/comparing.md",
    the_commands_of_lossy: "docs/src/lossy.md",
    the_commands_of_operations: "docs/src/operations.md",
    the_commands_of_ranks: "docs/src/ranks.md",
    the_commands_of_the_command: "docs/src/commands.md",
}

#[test]
fn every_file_with_commands_is_run() {
    let with: BTreeSet<String> = files()
        .into_iter()
        .filter(|file| parse(&read(file)).0.iter().any(|block| block.kind == "sh"))
        .collect();
    assert_eq!(with, WITH_COMMANDS.iter().map(|file| file.to_string()).collect());
}

//! A module uses only those above it in this list: the way of the data is visible in the folders.

use std::path::{Path, PathBuf};

const ORDER: [&str; 19] = [
    "error", "memory", "array", "merkle", "lineage", "codec", "format", "pack", "io", "store",
    "source", "log", "restore", "compare", "report", "run", "ingest", "library", "testing",
];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn modules_use_only_those_above_them() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let place = |module: &str| ORDER.iter().position(|m| *m == module);
    let mut looked_at = 0;
    for file in files(&source) {
        let inside = file.strip_prefix(&source).unwrap().display().to_string();
        let module = inside.trim_end_matches(".rs").split('/').next().unwrap().to_string();
        if module == "lib" {
            continue;
        }
        let own = place(&module).unwrap_or_else(|| panic!("{inside} is in no room"));
        let text = std::fs::read_to_string(&file).unwrap();
        // What stands in tests may look anywhere.
        let text = text.split("#[cfg(test)]").next().unwrap();
        for rest in text.split("crate::").skip(1) {
            let used: String =
                rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if let Some(other) = place(&used) {
                assert!(other <= own, "{inside} uses {used}, which is below it");
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 50);
}

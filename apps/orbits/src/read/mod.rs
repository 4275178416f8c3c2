//! Reads graphs from files: edge lists and Matrix Market, told apart by their first line.
//!
//! A file is a claim, not a promise: memory grows with the lines that were really read,
//! never with a number that a header or a label names.

mod edges;
mod market;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::{Graph, GraphError};

/// Vertices that a graph may have without any edge that names them.
const FREE_VERTICES: u64 = 1 << 20;

/// Vertices that a graph may have besides, per edge.
const VERTICES_PER_EDGE: u64 = 64;

/// Reads the graph in the file at `path`, an edge list or a Matrix Market file.
pub fn read_graph(path: impl AsRef<Path>) -> Result<Graph, GraphError> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|error| {
        GraphError::new(format!("cannot open the graph: {error}")).at(path.display())
    })?;
    parse_graph(BufReader::with_capacity(1 << 18, file)).map_err(|error| error.at(path.display()))
}

/// Reads a graph from the text of an edge list or a Matrix Market file.
pub fn parse_graph(text: impl BufRead) -> Result<Graph, GraphError> {
    let mut lines = Lines::new(text);
    let first = lines.next()?.unwrap_or_default();
    if first.to_ascii_lowercase().starts_with(b"%%matrixmarket") {
        let header = String::from_utf8_lossy(first).into_owned();
        market::parse(&header, lines)
    } else {
        lines.again();
        edges::parse(lines)
    }
}

/// The lines of a text, with their numbers, through one buffer.
struct Lines<R> {
    text: R,
    line: Vec<u8>,
    number: usize,
    repeat: bool,
}

impl<R: BufRead> Lines<R> {
    fn new(text: R) -> Self {
        Self { text, line: Vec::new(), number: 0, repeat: false }
    }

    fn next(&mut self) -> Result<Option<&[u8]>, GraphError> {
        if !std::mem::take(&mut self.repeat) {
            self.line.clear();
            self.number += 1;
            let read = self.text.read_until(b'\n', &mut self.line);
            read.map_err(|error| self.wrong(format!("cannot read on: {error}")))?;
        }
        Ok(Some(self.line.as_slice()).filter(|line| !line.is_empty()))
    }

    /// Lets the last line be read once more.
    fn again(&mut self) {
        self.repeat = true;
    }

    /// An error at the last line.
    fn wrong(&self, sentence: impl Into<String>) -> GraphError {
        GraphError::new(sentence).at(format_args!("line {}", self.number))
    }
}

/// The fields of a line, separated by blanks or commas.
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',' || byte.is_ascii_whitespace()).filter(|field| !field.is_empty())
}

/// A field as a number, or the reason why it is none.
fn number(field: &[u8]) -> Result<u64, String> {
    let text = std::str::from_utf8(field).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("\"{}\" is not a whole number from 0", shown(field)))
}

/// A field as it can be shown in an error, cut if long.
fn shown(field: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(field).chars().take(40).collect();
    text.escape_debug().to_string()
}

/// Whether a graph of this many vertices is worth its memory, given its edges.
fn is_too_sparse(vertices: u64, edges: usize) -> bool {
    vertices > FREE_VERTICES + VERTICES_PER_EDGE * edges as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_tells_the_format() {
        let market = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 1\n";
        let edges = "% a comment, as some edge lists have\n1 0\n2 0\n";
        let graph = parse_graph(market.as_bytes()).unwrap();
        assert_eq!(graph, parse_graph(edges.as_bytes()).unwrap());
    }

    #[test]
    fn an_empty_text_is_an_empty_graph() {
        assert_eq!(parse_graph(&b""[..]).unwrap().vertices(), 0);
    }

    #[test]
    fn errors_name_the_file() {
        let missing = read_graph("no/such/file.edges").unwrap_err().to_string();
        assert!(missing.starts_with("no/such/file.edges: cannot open the graph"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.edges");
        std::fs::write(&path, "0 1\n0 x\n").unwrap();
        let bad = read_graph(&path).unwrap_err().to_string();
        assert!(bad.ends_with("bad.edges: line 2: \"x\" is not a whole number from 0"));
        assert!(read_graph(folder.path()).is_err());
    }
}

//! Matrix Market files in coordinate format: a square matrix whose entries are edges, with
//! vertices counted from 1. Values are passed over; an entry is an edge whatever it holds.

use std::io::BufRead;

use super::{Lines, fields, is_too_sparse, number, shown};
use crate::{Graph, GraphError};

pub(super) fn parse(header: &str, mut lines: Lines<impl BufRead>) -> Result<Graph, GraphError> {
    let values = check_header(header).map_err(|sentence| lines.wrong(sentence))?;
    let size = read_size(&mut lines)?;
    let mut edges = Vec::new();
    while let Some(line) = lines.next()? {
        match parse_entry(line, values, size.vertices) {
            Ok(None) => {}
            Ok(Some(_)) if edges.len() as u64 == size.entries => {
                return Err(lines.wrong(format!(
                    "there are more entries than the {} that the size line says",
                    size.entries
                )));
            }
            Ok(Some(edge)) => edges.push(edge),
            Err(sentence) => return Err(lines.wrong(sentence)),
        }
    }
    if (edges.len() as u64) < size.entries {
        return Err(GraphError::new(format!(
            "the file ends after {} entries, but its size line says {}; it may be cut off",
            edges.len(),
            size.entries
        )));
    }
    if is_too_sparse(u64::from(size.vertices), edges.len()) {
        return Err(GraphError::new(format!(
            "the matrix has {} rows, but only {} entries, so that nearly all vertices would \
             be isolated; renumber the vertices without gaps",
            size.vertices,
            edges.len()
        )));
    }
    Graph::from_edges(size.vertices, edges)
}

/// Whether entries have a value after their two indices.
#[derive(Clone, Copy, PartialEq)]
enum Values {
    None,
    One,
}

fn check_header(header: &str) -> Result<Values, String> {
    let header = header.to_ascii_lowercase();
    let words: Vec<&str> = header.split_ascii_whitespace().collect();
    let ["%%matrixmarket", "matrix", format, field, symmetry] = words[..] else {
        return Err(
            "the header must be \"%%MatrixMarket matrix coordinate FIELD SYMMETRY\"".to_owned()
        );
    };
    if format != "coordinate" {
        return Err(format!(
            "the format \"{}\" is not a list of entries, only \"coordinate\" can be read",
            shown(format.as_bytes())
        ));
    }
    if !matches!(symmetry, "symmetric" | "general") {
        return Err(format!(
            "the symmetry \"{}\" is not an undirected graph, only \"symmetric\" and \"general\" \
             can be read",
            shown(symmetry.as_bytes())
        ));
    }
    match field {
        "pattern" => Ok(Values::None),
        "real" | "integer" => Ok(Values::One),
        _ => Err(format!(
            "the field \"{}\" cannot be read, only \"pattern\", \"real\" and \"integer\"",
            shown(field.as_bytes())
        )),
    }
}

struct Size {
    vertices: u32,
    entries: u64,
}

fn read_size(lines: &mut Lines<impl BufRead>) -> Result<Size, GraphError> {
    while let Some(line) = lines.next()? {
        match parse_size(line) {
            Ok(None) => {}
            Ok(Some(size)) => return Ok(size),
            Err(sentence) => return Err(lines.wrong(sentence)),
        }
    }
    Err(lines.wrong("the file ends before the line that tells rows, columns and entries"))
}

fn parse_size(line: &[u8]) -> Result<Option<Size>, String> {
    let Some(words) = words(line) else {
        return Ok(None);
    };
    let [rows, columns, entries] = words[..] else {
        return Err("expected three numbers: rows, columns and entries".to_owned());
    };
    let (rows, columns, entries) = (number(rows)?, number(columns)?, number(entries)?);
    if rows != columns {
        return Err(format!(
            "a matrix of {rows} rows and {columns} columns is not a graph, it must be square"
        ));
    }
    let vertices = u32::try_from(rows).map_err(|_| {
        format!(
            "a matrix of {rows} rows is too large, at most {} vertices can be numbered",
            u32::MAX
        )
    })?;
    Ok(Some(Size { vertices, entries }))
}

fn parse_entry(line: &[u8], values: Values, vertices: u32) -> Result<Option<(u32, u32)>, String> {
    let Some(words) = words(line) else {
        return Ok(None);
    };
    let (row, column) = match (values, &words[..]) {
        (Values::None, [row, column]) | (Values::One, [row, column, _]) => (row, column),
        (Values::None, _) => return Err("expected a row and a column".to_owned()),
        (Values::One, _) => return Err("expected a row, a column and a value".to_owned()),
    };
    let index = |field: &[u8]| match number(field)? {
        index if (1..=u64::from(vertices)).contains(&index) => Ok(index as u32 - 1),
        index => {
            Err(format!("the index {index} is not within 1 to {vertices}, the rows of the matrix"))
        }
    };
    Ok(Some((index(row)?, index(column)?)))
}

/// Up to four fields of a line; none if it is blank or a comment.
fn words(line: &[u8]) -> Option<Vec<&[u8]>> {
    let mut fields = fields(line).take(4).peekable();
    let first = *fields.peek()?;
    (!first.starts_with(b"%")).then(|| fields.collect())
}

#[cfg(test)]
mod tests {
    use crate::Graph;
    use crate::read::parse_graph;

    fn error(text: &str) -> String {
        parse_graph(text.as_bytes()).unwrap_err().to_string()
    }

    fn entries(kind: &str, body: &str) -> String {
        format!("%%MatrixMarket matrix coordinate {kind}\n% a comment\n{body}")
    }

    #[test]
    fn all_kinds_give_the_same_graph() {
        let expected = Graph::from_edges(3, [(0, 1), (0, 2)]).unwrap();
        for text in [
            entries("pattern symmetric", "3 3 3\n2 1\n3 1\n3 3\n"),
            entries("real general", "3 3 3\n2 1 0.5\n1 2 -1e9\n1 3 0\n"),
            entries("integer symmetric", "3 3 2\n2 1 4\n3 1 -4"),
        ] {
            assert_eq!(parse_graph(text.as_bytes()).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_graph_is_refused_by_name() {
        let complex = error(&entries("complex general", "1 1 0\n"));
        assert!(complex.starts_with("line 1: the field \"complex\""));
        let skew = error(&entries("real skew-symmetric", "1 1 0\n"));
        assert!(skew.contains("\"skew-symmetric\""));
        let array = error("%%MatrixMarket matrix array real general\n1 1\n0\n");
        assert!(array.contains("\"array\""));
        assert!(error("%%MatrixMarket tensor\n").contains("header must be"));
        assert!(error(&entries("pattern general", "3 4 0\n")).contains("square"));
    }

    #[test]
    fn wrong_entries_are_told_with_their_line() {
        let beyond = error(&entries("pattern general", "3 3 2\n1 2\n1 4\n"));
        assert_eq!(beyond, "line 5: the index 4 is not within 1 to 3, the rows of the matrix");
        let zero = error(&entries("pattern general", "3 3 1\n0 1\n"));
        assert!(zero.starts_with("line 4: the index 0"));
        let value = error(&entries("real general", "3 3 1\n1 2\n"));
        assert!(value.contains("a value"));
        let more = error(&entries("pattern general", "3 3 1\n1 2\n1 3\n"));
        assert!(more.starts_with("line 5: there are more entries"));
    }

    #[test]
    fn a_hostile_size_reserves_no_memory() {
        let many = entries("pattern general", "9 9 1000000000000000000\n1 2\n");
        assert!(error(&many).contains("cut off"));
        let wide = entries("pattern general", "4000000000 4000000000 1\n1 2\n");
        assert!(error(&wide).contains("nearly all vertices would be isolated"));
        let wider = entries("pattern general", "99999999999 99999999999 1\n1 2\n");
        assert!(error(&wider).contains("too large"));
        assert!(error(&entries("pattern general", "1 1")).contains("three numbers"));
        assert!(error(&entries("pattern general", "")).contains("ends before"));
    }
}

//! Edge lists: two vertex numbers per line, blanks or a comma between them, comments after
//! `#` or `%`. The numbers are kept as they are, so that in a list that counts from 1
//! vertex 0 is there and has no neighbours.

use std::io::BufRead;

use super::{Lines, fields, is_too_sparse, number};
use crate::{Graph, GraphError};

pub(super) fn parse(mut lines: Lines<impl BufRead>) -> Result<Graph, GraphError> {
    let mut edges = Vec::new();
    let mut largest = None;
    while let Some(line) = lines.next()? {
        match parse_line(line) {
            Ok(None) => {}
            Ok(Some((a, b))) => {
                largest = largest.max(Some(a.max(b)));
                edges.push((a, b));
            }
            Err(sentence) => return Err(lines.wrong(sentence)),
        }
    }
    let Some(largest) = largest else {
        return Graph::from_edges(0, []);
    };
    if is_too_sparse(u64::from(largest) + 1, edges.len()) {
        return Err(GraphError::new(format!(
            "the largest vertex number is {largest}, but there are only {} edges, so that \
             nearly all vertices would be isolated; renumber the vertices without gaps",
            edges.len()
        )));
    }
    Graph::from_edges(largest + 1, edges)
}

fn parse_line(line: &[u8]) -> Result<Option<(u32, u32)>, String> {
    let comment = line.iter().position(|byte| matches!(byte, b'#' | b'%'));
    let mut fields = fields(&line[..comment.unwrap_or(line.len())]);
    match (fields.next(), fields.next(), fields.next()) {
        (None, ..) => Ok(None),
        (Some(a), Some(b), None) => Ok(Some((label(a)?, label(b)?))),
        (_, second, _) => {
            let found = if second.is_none() { "one field" } else { "more than two fields" };
            Err(format!("expected two vertex numbers, but found {found}"))
        }
    }
}

fn label(field: &[u8]) -> Result<u32, String> {
    let label = number(field)?;
    match u32::try_from(label) {
        Ok(label) if label < u32::MAX => Ok(label),
        _ => Err(format!(
            "the vertex number {label} is too large, the largest possible is {}",
            u32::MAX - 1
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::Graph;
    use crate::read::parse_graph;

    fn error(text: &str) -> String {
        parse_graph(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn blanks_commas_and_comments_are_understood() {
        let text = "# made by hand\n0 1\n1,2 # the second\r\n\n% another\n\t2\t ,  3\n3 3\n1 0";
        let graph = parse_graph(text.as_bytes()).unwrap();
        assert_eq!(graph, Graph::from_edges(4, [(0, 1), (1, 2), (2, 3)]).unwrap());
    }

    #[test]
    fn wrong_lines_are_told_with_their_number() {
        assert_eq!(error("0 1\n2\n"), "line 2: expected two vertex numbers, but found one field");
        assert_eq!(
            error("0 1 0.5\n"),
            "line 1: expected two vertex numbers, but found more than two fields"
        );
        assert_eq!(error("\n0 -1\n"), "line 2: \"-1\" is not a whole number from 0");
        assert_eq!(
            error("0 4294967295"),
            "line 1: the vertex number 4294967295 is too large, the largest possible is \
             4294967294"
        );
    }

    #[test]
    fn a_hostile_label_reserves_no_memory() {
        assert!(error("0 4294967294\n").contains("renumber the vertices"));
    }
}

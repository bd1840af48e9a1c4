//! AS relationships as CAIDA publishes them: `PROVIDER|CUSTOMER|-1` and `PEER|PEER|0`, one link a line, with a source
//! (`|bgp`, `|mlp`) in serial-2. Lines that begin with `#` are remarks. Older files have siblings (`2`), whom the same
//! owner has: they are peers here, because the files do not say who is whose provider.

use std::io::{self, BufRead};

use super::graph::{AsGraph, GraphBuilder, GraphError, Relation};

/// Why a file of relationships cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("line {line}: {source}")]
    Io {
        /// Which one.
        line: usize,
        /// Why.
        source: io::Error,
    },
    /// A line is not what it should be.
    #[error("line {line}: {text:?} is not `AS|AS|-1` (provider and customer) or `AS|AS|0` (peers)")]
    Line {
        /// Which one.
        line: usize,
        /// What is there.
        text: String,
    },
    /// A line contradicts one before it.
    #[error("line {line}: {source}")]
    Contradiction {
        /// Which one.
        line: usize,
        /// In what.
        source: GraphError,
    },
    /// The links do not make a graph.
    #[error(transparent)]
    Graph(GraphError),
    /// There is nothing in it.
    #[error("no relationship is in it: lines are `AS|AS|-1` or `AS|AS|0`")]
    Empty,
}

/// Reads the relationships of all lines.
pub fn read_as_relationships(input: impl BufRead) -> Result<AsGraph, ReadError> {
    let mut builder = GraphBuilder::default();
    let mut is_empty = true;
    for (line, text) in (1..).zip(input.lines()) {
        let text = text.map_err(|source| ReadError::Io { line, source })?;
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let Some((a, b, relation)) = parse(text) else {
            let text = text.chars().take(60).collect();
            return Err(ReadError::Line { line, text });
        };
        builder.link(a, b, relation).map_err(|source| ReadError::Contradiction { line, source })?;
        is_empty = false;
    }
    if is_empty {
        return Err(ReadError::Empty);
    }
    builder.build().map_err(ReadError::Graph)
}

fn parse(text: &str) -> Option<(u32, u32, Relation)> {
    let mut fields = text.split('|');
    let (a, b) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let relation = match fields.next()? {
        "-1" => Relation::Customer,
        "0" | "2" => Relation::Peer,
        _ => return None,
    };
    // What follows is where the link was seen.
    (fields.count() <= 1).then_some((a, b, relation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        read_as_relationships(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn both_serials_are_read() {
        let text = "# inferred clique: 1 2\n1|2|0|bgp\n1|3|-1|bgp\n2|3|-1\n3|4|-1|mlp\n\n4|5|2\n";
        let graph = read_as_relationships(text.as_bytes()).unwrap();
        assert_eq!((graph.len(), graph.links()), (5, 5));
        assert_eq!(graph.those(2, Relation::Provider), [0, 1]);
        assert_eq!(graph.those(3, Relation::Peer), [4]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        assert!(error("1|2|0\n1|2\n").starts_with("line 2: \"1|2\" is not"));
        assert!(error("1|x|0\n").starts_with("line 1: "));
        assert!(error("1|2|7\n").starts_with("line 1: "));
        assert!(error("1|2|0|bgp|more\n").starts_with("line 1: "));
        assert_eq!(
            error("1|2|0\n2|1|-1\n"),
            "line 2: AS 1 and AS 2 are linked twice, as Peer and as Provider"
        );
        assert!(error("1|2|-1\n2|3|-1\n3|1|-1\n").contains("each of these is a customer of the next"));
        assert!(error("# nothing\n").starts_with("no relationship"));
    }
}

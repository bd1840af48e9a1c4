//! Reads CAIDA's AS relationships, serial-1 and serial-2, plain or compressed.
//!
//! A line is `a|b|-1` (`a` is a provider of `b`), `a|b|0` (peers) or `a|b|2` (siblings). Serial-2 adds a
//! column that says how the link was found (such as `bgp`, `mlp` or `ark`). Lines that begin with `#` are
//! comments. Siblings, two ASes of one organization, become peers and are counted. The license forbids
//! redistribution, so users bring their own file.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use thalweg_ports::decompressed;

use super::graph::{AsGraph, CIRCLE_SHOWN, GraphBuilder, LATENCY_DEFAULT_US, Relation};
use super::{GraphError, TopologyError};

/// The graph of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct CaidaFile {
    pub graph: AsGraph,
    /// The number of links between siblings, which are peers in the graph.
    pub siblings: usize,
}

/// Reads a file, compressed or not. Providers in a circle are an error: such a network need not have a stable state.
pub fn read_caida(path: &Path) -> Result<CaidaFile, TopologyError> {
    let (builder, siblings) = links(path)?;
    let graph = builder.build().map_err(|error| match error {
        // The error names the line together with the file.
        GraphError::Loop { line, .. } | GraphError::Contradiction { line, .. } => {
            let words = error.to_string();
            let message = words.split_once(": ").map_or(words.as_str(), |(_, message)| message).to_owned();
            TopologyError::at(path, line, message)
        }
        error => TopologyError::Graph { path: path.to_owned(), error },
    })?;
    match graph.providers_first() {
        Ok(_) => Ok(CaidaFile { graph, siblings }),
        Err(GraphError::ProviderCycle(asns)) => Err(circle(path, asns)?),
        Err(error) => Err(TopologyError::Graph { path: path.to_owned(), error }),
    }
}

/// The links of a file, and how many are between siblings.
fn links(path: &Path) -> Result<(GraphBuilder, usize), TopologyError> {
    let bytes = File::open(path)
        .and_then(|file| {
            let mut bytes = Vec::new();
            decompressed(file)?.1.read_to_end(&mut bytes)?;
            Ok(bytes)
        })
        .map_err(|error| TopologyError::File { path: path.to_owned(), error })?;
    let mut builder = GraphBuilder::new();
    let siblings = parse(&bytes, &mut builder);
    let siblings = siblings.map_err(|(line, message)| TopologyError::at(path, line, message))?;
    Ok((builder, siblings))
}

/// Names a circle of providers with its lines. The graph has none, so the file is read again.
fn circle(path: &Path, asns: Vec<u32>) -> Result<TopologyError, TopologyError> {
    let (builder, _) = links(path)?;
    let customers = asns.iter().zip(asns.iter().cycle().skip(1));
    let lines: Vec<usize> = customers.filter_map(|(a, b)| builder.line_between(*a, *b)).collect();
    let line = lines.iter().copied().max().unwrap_or(0);
    // As many as the error names ASes of a long circle.
    let shown: Vec<String> = lines.iter().take(CIRCLE_SHOWN).map(usize::to_string).collect();
    let more = if lines.len() > CIRCLE_SHOWN { " and others" } else { "" };
    let message = format!("{}, by lines {}{more}", GraphError::ProviderCycle(asns), shown.join(", "));
    Ok(TopologyError::at(path, line, message))
}

/// Writes a graph as serial-1, so that other programs can read the same graph.
pub fn write_caida(graph: &AsGraph, path: &Path) -> Result<(), TopologyError> {
    let write = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for node in 0..graph.len() {
            let asn = graph.asn(node);
            for customer in graph.neighbors(node, Relation::Customer) {
                writeln!(file, "{asn}|{}|-1", graph.asn(*customer as usize))?;
            }
            for peer in graph.neighbors(node, Relation::Peer).iter().filter(|peer| **peer as usize > node) {
                writeln!(file, "{asn}|{}|0", graph.asn(*peer as usize))?;
            }
        }
        file.flush()
    };
    write().map_err(|error| TopologyError::File { path: path.to_owned(), error })
}

/// Adds the lines to the builder. Returns the number of siblings, or a line and its error.
fn parse(bytes: &[u8], builder: &mut GraphBuilder) -> Result<usize, (usize, String)> {
    let mut siblings = 0;
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let number = at + 1;
        let mut columns = line.split(|byte| *byte == b'|');
        let mut asn = |what: &str| match columns.next() {
            Some(word) => asn(word).ok_or_else(|| {
                (number, format!("{what} AS \"{}\" is no AS number", String::from_utf8_lossy(word)))
            }),
            None => Err((number, format!("the {what} AS is missing; wanted a|b|-1, a|b|0 or a|b|2"))),
        };
        let (a, b) = (asn("first")?, asn("second")?);
        let relation = match columns.next() {
            Some(b"-1") => Relation::Customer,
            Some(b"0") => Relation::Peer,
            Some(b"2") => {
                siblings += 1;
                Relation::Peer
            }
            Some(word) => {
                let word = String::from_utf8_lossy(word);
                return Err((number, format!("relationship \"{word}\" is none of -1, 0 and 2")));
            }
            None => return Err((number, "the relationship is missing; wanted -1, 0 or 2".to_owned())),
        };
        builder.link(a, b, relation, LATENCY_DEFAULT_US, number);
    }
    Ok(siblings)
}

fn asn(word: &[u8]) -> Option<u32> {
    if word.is_empty() || word.len() > 10 {
        return None;
    }
    let mut value = 0u64;
    for byte in word {
        value = value * 10 + u64::from(byte.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    u32::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const SERIAL_2: &str = "# inferred clique: 1 2\n1|2|0|bgp\n1|3|-1|bgp\r\n2|3|-1|mlp\n3|4|2\n\n";

    fn read(bytes: &[u8]) -> Result<CaidaFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("as-rel.txt");
        std::fs::write(&path, bytes).unwrap();
        let strip =
            |error: TopologyError| error.to_string().replace(&format!("{}/", folder.path().display()), "");
        read_caida(&path).map_err(strip)
    }

    #[test]
    fn both_serials_are_read_plain_and_compressed() {
        let plain = read(SERIAL_2.as_bytes()).unwrap();
        assert_eq!((plain.graph.len(), plain.graph.links(), plain.siblings), (4, 4, 1));
        assert_eq!(plain.graph.neighbors(2, Relation::Provider), [0, 1]);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(SERIAL_2.as_bytes()).unwrap();
        assert_eq!(read(&gzip.finish().unwrap()).unwrap(), plain);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("as-rel.txt");
        let graph = crate::topology::internet(200, 1).unwrap();
        write_caida(&graph, &path).unwrap();
        let again = read_caida(&path).unwrap().graph;
        assert_eq!((again.len(), again.links()), (graph.len(), graph.links()));
        for node in 0..graph.len() {
            for relation in Relation::ALL {
                assert_eq!(again.neighbors(node, relation), graph.neighbors(node, relation));
            }
        }
    }

    #[test]
    fn damaged_lines_are_named() {
        for (text, error) in [
            ("1|2|0\nx|3|0", "as-rel.txt:2: first AS \"x\" is no AS number"),
            ("1|4294967296|0", "as-rel.txt:1: second AS \"4294967296\" is no AS number"),
            ("1|2", "as-rel.txt:1: the relationship is missing; wanted -1, 0 or 2"),
            ("1", "as-rel.txt:1: the second AS is missing; wanted a|b|-1, a|b|0 or a|b|2"),
            ("1|2|7", "as-rel.txt:1: relationship \"7\" is none of -1, 0 and 2"),
            ("#\n1|1|0", "as-rel.txt:2: AS1 has a link to itself"),
            ("1|2|0\n2|1|-1", "as-rel.txt:2: AS2 is a provider of AS1, but line 1 made it a peer"),
            (
                "1|2|-1\n2|3|-1\n4|1|0\n3|1|-1",
                "as-rel.txt:4: providers in a circle: AS1 -> AS3 -> AS2 -> AS1, by lines 4, 2, 1",
            ),
        ] {
            assert_eq!(read(text.as_bytes()).unwrap_err(), error);
        }
    }
}

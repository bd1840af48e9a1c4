//! Reads files of the topology generator BRITE.
//!
//! ```text
//! Topology: ( 3 Nodes, 2 Edges )
//! Model (3 - ASWaxman):  3 1000 100 1  2  0.15 0.2 1 1 10.0 1024.0
//!
//! Nodes: ( 3 )
//! 0  418.0 655.0  1 1  0  AS_NODE        number, place, links in and out, AS, kind
//! ...
//! Edges: ( 2 )
//! 0  0 1  520.3 1.73 10.0  0 1  E_AS U   number, ends, length, delay in ms, bandwidth, ASes, kind
//! ```
//!
//! Each node is an AS, whose number is the node's plus 1. Places are in kilometers. A missing delay (zero or
//! less) follows from the length. Relationships follow from the numbers of links (`relate.rs`), which may add
//! a link.

use std::path::Path;

use super::TopologyError;
use super::graph::{AsGraph, Place};
use super::relate::{Bare, related};

/// Reads a file into a graph.
pub fn read_brite(path: &Path) -> Result<AsGraph, TopologyError> {
    let text = TopologyError::read(path)?;
    let file = parse(&text).map_err(|(line, fault)| TopologyError::at(path, line, fault))?;
    related(&file.places, &file.links)
        .build()
        .map_err(|error| TopologyError::Graph { path: path.to_owned(), error })
}

#[derive(Default)]
struct File {
    places: Vec<Place>,
    links: Vec<Bare>,
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Head,
    Nodes,
    Edges,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("no lines \"Nodes:\" and \"Edges:\": is this BRITE's?")]
    NoSections,
    #[error("the {0} is missing")]
    Missing(&'static str),
    #[error("{what} \"{word}\" is no number")]
    NoNumber { what: &'static str, word: String },
    #[error("node {node} comes after {before} nodes; BRITE numbers them from 0")]
    NodeOrder { node: u32, before: usize },
    #[error("there is no node {0}")]
    NoNode(u32),
    #[error("node {0} has a link to itself")]
    Loop(u32),
}

fn parse(text: &str) -> Result<File, (usize, Fault)> {
    let mut file = File::default();
    let mut section = Section::Head;
    for (at, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words.first(), section) {
            (None, _) => {}
            (Some(&"Nodes:"), _) => section = Section::Nodes,
            (Some(&"Edges:"), _) => section = Section::Edges,
            (_, Section::Head) => {}
            (_, Section::Nodes) => file.node(&words).map_err(|fault| (at + 1, fault))?,
            (_, Section::Edges) => file.edge(&words).map_err(|fault| (at + 1, fault))?,
        }
    }
    match section {
        Section::Edges => Ok(file),
        _ => Err((text.lines().count().max(1), Fault::NoSections)),
    }
}

fn word<T: std::str::FromStr>(words: &[&str], at: usize, what: &'static str) -> Result<T, Fault> {
    let word = words.get(at).ok_or(Fault::Missing(what))?;
    word.parse().map_err(|_| Fault::NoNumber { what, word: (*word).to_owned() })
}

impl File {
    fn node(&mut self, words: &[&str]) -> Result<(), Fault> {
        let node: u32 = word(words, 0, "node")?;
        let place = Place::Plane(word(words, 1, "x")?, word(words, 2, "y")?);
        let before = self.places.len();
        if node as usize != before {
            return Err(Fault::NodeOrder { node, before });
        }
        self.places.push(place);
        Ok(())
    }

    fn edge(&mut self, words: &[&str]) -> Result<(), Fault> {
        let ends: [u32; 2] = [word(words, 1, "first end")?, word(words, 2, "second end")?];
        let delay_ms: f64 = word(words, 4, "delay")?;
        if let Some(end) = ends.into_iter().find(|end| *end as usize >= self.places.len()) {
            return Err(Fault::NoNode(end));
        }
        if ends[0] == ends[1] {
            return Err(Fault::Loop(ends[0]));
        }
        let latency = (delay_ms > 0.0).then(|| (delay_ms * 1000.0).round().max(1.0) as u32);
        self.links.push((ends[0], ends[1], latency));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Relation;

    const FILE: &str = "Topology: ( 4 Nodes, 3 Edges )\nModel (3 - ASWaxman):  4 1000 100 1  2  0.15 0.2 1 1 10.0 1024.0\n\n\
        Nodes: ( 4 )\n0\t418.0\t655.0\t3\t3\t0\tAS_NODE\n1\t10\t20\t1\t1\t1\tAS_NODE\n2\t0\t0\t1\t1\t2\tAS_NODE\n\
        3\t5\t5\t1\t1\t3\tAS_NODE\n\n\nEdges: ( 3 )\n0\t0\t1\t520.3\t1.7344\t10.0\t0\t1\tE_AS\tU\n\
        1\t2\t0\t400\t0\t10.0\t2\t0\tE_AS\tU\n2\t0\t3\t1\t0.1\t10.0\t0\t3\tE_AS\tU\n";

    fn read(text: &str) -> Result<AsGraph, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.brite");
        std::fs::write(&path, text).unwrap();
        read_brite(&path)
            .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
    }

    #[test]
    fn nodes_places_and_delays() {
        let graph = read(FILE).unwrap();
        assert_eq!((graph.len(), graph.links(), graph.asn(0)), (4, 3, 1));
        assert_eq!(graph.place(1), Some(Place::Plane(10.0, 20.0)));
        assert_eq!(graph.neighbors(0, Relation::Customer), [1, 2, 3]);
        let latencies: Vec<u32> = graph.links_of(0).map(|(_, _, latency)| latency).collect();
        assert_eq!(latencies, [1734, Place::Plane(418.0, 655.0).latency_us(Place::Plane(0.0, 0.0)), 100]);
    }

    #[test]
    fn damaged_lines_are_named() {
        for (from, to, error) in [
            ("1\t10\t20", "1\tten\t20", "a.brite:6: x \"ten\" is no number"),
            ("1\t10\t20", "7\t10\t20", "a.brite:6: node 7 comes after 1 nodes; BRITE numbers them from 0"),
            ("2\t0\t3\t1\t0.1", "2\t0\t9\t1\t0.1", "a.brite:14: there is no node 9"),
            ("2\t0\t3\t1\t0.1", "2\t0\t0\t1\t0.1", "a.brite:14: node 0 has a link to itself"),
            ("2\t0\t3\t1\t0.1\t10.0\t0\t3\tE_AS\tU", "2\t0\t3", "a.brite:14: the delay is missing"),
            ("Edges:", "Kanten:", "a.brite:11: node \"Kanten:\" is no number"),
        ] {
            let damaged = FILE.replace(from, to);
            assert_eq!(read(&damaged).unwrap_err(), error);
        }
        assert!(read("").unwrap_err().starts_with("a.brite:1: no lines \"Nodes:\""));
    }
}

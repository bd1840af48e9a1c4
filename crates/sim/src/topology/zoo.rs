//! Reads networks of the Internet Topology Zoo (GraphML): the routers of one AS and the links between them.
//!
//! Latencies and IGP metrics follow from the coordinates. A router without coordinates gets the mean of its
//! neighbors' (the Zoo omits them for places that it could not find). Several cables between two routers
//! become one link with the sum of their speeds.
//!
//! The reader knows the GraphML that the Zoo uses: `key`, `node`, `edge` and `data`. It skips other elements.

use std::path::Path;

use hashbrown::HashMap;

use super::TopologyError;
use super::graph::{LATENCY_DEFAULT_US, Place};

/// A node of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct ZooRouter {
    /// Usually a town.
    pub label: String,
    pub place: Option<Place>,
    /// `false` for the outside ends of the network's links.
    pub internal: bool,
}

/// A link between two routers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZooLink {
    /// The router with the lower number.
    pub a: usize,
    pub b: usize,
    /// From the distance.
    pub latency_us: u32,
    pub bits_per_s: Option<f64>,
}

impl ZooLink {
    /// The metric of an IGP: the latency in units of 10 microseconds, at least 1.
    pub fn metric(&self) -> u32 {
        (self.latency_us / 10).max(1)
    }
}

/// The network of one AS.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZooNetwork {
    pub name: String,
    /// In file order.
    pub routers: Vec<ZooRouter>,
    /// Ascending by their ends.
    pub links: Vec<ZooLink>,
}

impl ZooNetwork {
    /// The metric of the best path from a router to each other one; none if there is no path.
    pub fn metrics_from(&self, router: usize) -> Vec<Option<u32>> {
        let mut neighbors: Vec<Vec<(usize, u32)>> = vec![Vec::new(); self.routers.len()];
        for link in &self.links {
            neighbors[link.a].push((link.b, link.metric()));
            neighbors[link.b].push((link.a, link.metric()));
        }
        let mut sums: Vec<Option<u32>> = vec![None; self.routers.len()];
        let mut waiting = std::collections::BinaryHeap::from([std::cmp::Reverse((0u32, router))]);
        while let Some(std::cmp::Reverse((sum, at))) = waiting.pop() {
            if sums[at].is_some() {
                continue;
            }
            sums[at] = Some(sum);
            for &(next, metric) in neighbors[at].iter().filter(|(next, _)| sums[*next].is_none()) {
                waiting.push(std::cmp::Reverse((sum.saturating_add(metric), next)));
            }
        }
        sums
    }

    /// The most central routers, where route reflectors are placed: first those that reach most others, then
    /// those nearest to all others.
    pub fn middles(&self, count: usize) -> Vec<usize> {
        let mut routers: Vec<usize> =
            (0..self.routers.len()).filter(|router| self.routers[*router].internal).collect();
        routers.sort_by_cached_key(|router| {
            let sums = self.metrics_from(*router);
            let total: u64 = sums.iter().flatten().map(|sum| u64::from(*sum)).sum();
            (std::cmp::Reverse(sums.iter().flatten().count()), total, *router)
        });
        routers.truncate(count);
        routers
    }
}

/// Reads a file.
pub fn read_zoo(path: &Path) -> Result<ZooNetwork, TopologyError> {
    let text = TopologyError::read(path)?;
    let file = File::read(&text).map_err(|(line, message)| TopologyError::at(path, line, message))?;
    Ok(file.network())
}

/// The error and its line.
type Wrong = (usize, String);

/// A node or edge: its attributes, its data by key name, and its line.
#[derive(Default)]
struct Element {
    attributes: HashMap<String, String>,
    data: HashMap<String, String>,
    line: usize,
}

impl Element {
    fn attribute(&self, name: &str) -> Result<&str, Wrong> {
        let value = self.attributes.get(name).map(String::as_str);
        value.ok_or_else(|| (self.line, format!("the attribute {name} is missing")))
    }

    fn number(&self, name: &str) -> Result<Option<f64>, Wrong> {
        let Some(text) = self.data.get(name) else { return Ok(None) };
        let number: f64 = text.parse().map_err(|_| (self.line, format!("{name} \"{text}\" is no number")))?;
        if number.is_finite() { Ok(Some(number)) } else { Err((self.line, format!("{name} is not finite"))) }
    }
}

#[derive(Default)]
struct File {
    name: String,
    routers: Vec<ZooRouter>,
    /// Speeds by ends.
    links: std::collections::BTreeMap<(usize, usize), Option<f64>>,
    /// Names of keys by identifier.
    keys: HashMap<String, String>,
    numbers: HashMap<String, usize>,
}

impl File {
    fn read(text: &str) -> Result<Self, Wrong> {
        let mut file = Self::default();
        let mut xml = Xml { text, at: 0, counted: 0, line: 1 };
        let mut open: Option<(bool, Element)> = None;
        let mut is_graphml = false;
        while let Some(tag) = xml.next_tag()? {
            match (tag.name, tag.closes) {
                ("graphml", false) => is_graphml = true,
                ("key", false) => file.key(&tag)?,
                ("node" | "edge", false) => {
                    let element =
                        Element { attributes: tag.attributes()?, data: HashMap::new(), line: tag.line };
                    let is_node = tag.name == "node";
                    if tag.is_empty { file.take(is_node, &element)? } else { open = Some((is_node, element)) }
                }
                ("node" | "edge", true) => {
                    if let Some((is_node, element)) = open.take() {
                        file.take(is_node, &element)?;
                    }
                }
                ("data", false) if !tag.is_empty => {
                    let key = tag.attributes()?.remove("key");
                    let name = key.and_then(|key| file.keys.get(&key).cloned());
                    let value = xml.text_here(tag.line)?;
                    match (name, &mut open) {
                        (Some(name), Some((_, element))) => drop(element.data.insert(name, value)),
                        (Some(name), None) if name == "Network" => file.name = value,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        match (is_graphml, open) {
            (_, Some((_, element))) => Err((element.line, "the element does not end".to_owned())),
            (false, _) => Err((1, "no element graphml: is this GraphML?".to_owned())),
            (true, None) => Ok(file),
        }
    }

    fn key(&mut self, tag: &Tag<'_>) -> Result<(), Wrong> {
        let mut attributes = tag.attributes()?;
        if let (Some(id), Some(name)) = (attributes.remove("id"), attributes.remove("attr.name")) {
            self.keys.insert(id, name);
        }
        Ok(())
    }

    fn take(&mut self, is_node: bool, element: &Element) -> Result<(), Wrong> {
        if is_node { self.node(element) } else { self.edge(element) }
    }

    fn node(&mut self, element: &Element) -> Result<(), Wrong> {
        let id = element.attribute("id")?;
        let place = match (element.number("Latitude")?, element.number("Longitude")?) {
            (Some(latitude), Some(longitude)) => Some(Place::Earth(latitude as f32, longitude as f32)),
            _ => None,
        };
        let label = element.data.get("label").cloned().unwrap_or_else(|| id.to_owned());
        let internal = element.number("Internal")? != Some(0.0);
        if self.numbers.insert(id.to_owned(), self.routers.len()).is_some() {
            return Err((element.line, format!("there are two nodes {id}")));
        }
        self.routers.push(ZooRouter { label, place, internal });
        Ok(())
    }

    fn edge(&mut self, element: &Element) -> Result<(), Wrong> {
        let end = |name: &str| {
            let id = element.attribute(name)?;
            self.numbers.get(id).copied().ok_or_else(|| (element.line, format!("there is no node {id}")))
        };
        let (a, b) = (end("source")?, end("target")?);
        let speed = element.number("LinkSpeedRaw")?;
        // A few networks have a cable from a router to itself, which carries no routes.
        if a != b {
            let total = self.links.entry((a.min(b), a.max(b))).or_default();
            *total = match (*total, speed) {
                (Some(total), Some(speed)) => Some(total + speed),
                (total, speed) => total.or(speed),
            };
        }
        Ok(())
    }

    fn network(mut self) -> ZooNetwork {
        self.fill_places();
        let link = |(&(a, b), &bits_per_s): (&(usize, usize), &Option<f64>)| {
            let latency_us = match (self.routers[a].place, self.routers[b].place) {
                (Some(a), Some(b)) => a.latency_us(b),
                _ => LATENCY_DEFAULT_US,
            };
            ZooLink { a, b, latency_us, bits_per_s }
        };
        let links = self.links.iter().map(link).collect();
        ZooNetwork { name: self.name, routers: self.routers, links }
    }

    /// Gives places to routers whose neighbors have one, until nothing more follows.
    fn fill_places(&mut self) {
        loop {
            let mut found = Vec::new();
            for node in (0..self.routers.len()).filter(|node| self.routers[*node].place.is_none()) {
                let other = |&(a, b): &(usize, usize)| match node {
                    _ if a == node => Some(b),
                    _ if b == node => Some(a),
                    _ => None,
                };
                let around =
                    self.links.keys().filter_map(other).filter_map(|other| self.routers[other].place);
                let around: Vec<(f32, f32)> = around
                    .map(|place| match place {
                        Place::Earth(a, b) | Place::Plane(a, b) => (a, b),
                    })
                    .collect();
                if !around.is_empty() {
                    let mean =
                        |of: fn(&(f32, f32)) -> f32| around.iter().map(of).sum::<f32>() / around.len() as f32;
                    found.push((node, Place::Earth(mean(|at| at.0), mean(|at| at.1))));
                }
            }
            if found.is_empty() {
                return;
            }
            for (node, place) in found {
                self.routers[node].place = Some(place);
            }
        }
    }
}

/// A reader of tags that knows only as much XML as GraphML needs.
struct Xml<'a> {
    text: &'a str,
    at: usize,
    /// The end of the text whose lines have been counted.
    counted: usize,
    line: usize,
}

struct Tag<'a> {
    name: &'a str,
    /// The text after the name.
    rest: &'a str,
    closes: bool,
    is_empty: bool,
    line: usize,
}

impl<'a> Xml<'a> {
    fn line(&mut self) -> usize {
        self.line += self.text[self.counted..self.at].matches('\n').count();
        self.counted = self.at;
        self.line
    }

    /// The next tag; comments and declarations are skipped.
    fn next_tag(&mut self) -> Result<Option<Tag<'a>>, Wrong> {
        loop {
            let Some(from) = self.text[self.at..].find('<') else { return Ok(None) };
            self.at += from;
            let line = self.line();
            let rest = &self.text[self.at..];
            let end = if rest.starts_with("<!--") { "-->" } else { ">" };
            let Some(length) = rest.find(end) else {
                return Err((line, format!("\"<\" without \"{end}\"")));
            };
            self.at += length + end.len();
            let inside = &rest[1..length];
            if inside.starts_with(['!', '?']) {
                continue;
            }
            let (closes, inside) = inside.strip_prefix('/').map_or((false, inside), |name| (true, name));
            let (is_empty, inside) =
                inside.strip_suffix('/').map_or((false, inside), |inside| (true, inside));
            let (name, rest) = inside.split_once(char::is_whitespace).unwrap_or((inside, ""));
            return Ok(Some(Tag { name, rest, closes, is_empty, line }));
        }
    }

    /// The text up to the next tag.
    fn text_here(&mut self, line: usize) -> Result<String, Wrong> {
        let rest = &self.text[self.at..];
        let length = rest.find('<').ok_or_else(|| (line, "the element does not end".to_owned()))?;
        self.at += length;
        Ok(unescaped(rest[..length].trim()))
    }
}

impl Tag<'_> {
    fn attributes(&self) -> Result<HashMap<String, String>, Wrong> {
        let mut attributes = HashMap::new();
        let mut rest = self.rest.trim();
        while !rest.is_empty() {
            let wrong = || (self.line, format!("attributes of {} are not name=\"value\"", self.name));
            let (name, after) = rest.split_once('=').ok_or_else(wrong)?;
            let after = after.trim_start();
            let quote = after.chars().next().filter(|quote| matches!(quote, '"' | '\'')).ok_or_else(wrong)?;
            let (value, after) = after[1..].split_once(quote).ok_or_else(wrong)?;
            attributes.insert(name.trim().to_owned(), unescaped(value));
            rest = after.trim_start();
        }
        Ok(attributes)
    }
}

/// Replaces the five predefined entities of XML.
fn unescaped(text: &str) -> String {
    let names = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    names.iter().fold(text.to_owned(), |text, (name, is)| text.replace(name, is))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"<?xml version="1.0"?><graphml xmlns="x">
  <key attr.name="Latitude" for="node" id="d1" /><key attr.name="Longitude" for="node" id="d2" />
  <key attr.name="label" for="node" id="d3" /><key attr.name="Network" for="graph" id="d4" />
  <key attr.name="LinkSpeedRaw" for="edge" id="d5" /><key attr.name="Internal" for="node" id="d6" />
  <graph edgedefault="undirected"><data key="d4">A &amp; B</data>
  <!-- <node id="9"> is none -->
  <node id="0"><data key="d1">52.37</data><data key="d2">4.9</data><data key="d3">Amsterdam</data></node>
  <node id="1"><data key="d3">Between</data></node>
  <node id="2"><data key="d1">52.37</data><data key="d2">6.9</data><data key="d6">0</data></node>
  <edge source="0" target="1"><data key="d5">1e9</data></edge>
  <edge source="1" target="0"><data key="d5">2e9</data></edge>
  <edge source="2" target="1" /></graph></graphml>"#;

    fn read(text: &str) -> Result<ZooNetwork, Wrong> {
        File::read(text).map(File::network)
    }

    #[test]
    fn routers_links_and_metrics() {
        let network = read(FILE).unwrap();
        assert_eq!((network.name.as_str(), network.routers.len()), ("A & B", 3));
        assert_eq!(network.routers[1].place, Some(Place::Earth(52.37, 5.9)));
        assert_eq!((network.routers[0].internal, network.routers[2].internal), (true, false));
        assert_eq!(network.routers[2].label, "2");
        assert_eq!(network.links[0].bits_per_s, Some(3e9));
        // The mean is 68 km away.
        let metric = network.links[0].metric();
        assert!((55..65).contains(&metric), "{metric}");
        assert_eq!(
            network.metrics_from(0),
            [Some(0), Some(metric), Some(metric + network.links[1].metric())]
        );
        assert_eq!(network.middles(1), [1]);
    }

    #[test]
    fn damaged_files_are_refused_with_the_line() {
        for (from, to, error) in [
            (
                "52.37</data><data key=\"d2\">4.9",
                "north</data><data key=\"d2\">4.9",
                (7, "Latitude \"north\" is no number"),
            ),
            ("target=\"1\" />", "target=\"7\" />", (12, "there is no node 7")),
            ("<node id=\"1\">", "<node id=\"0\">", (8, "there are two nodes 0")),
            ("<node id=\"1\">", "<node>", (8, "the attribute id is missing")),
            ("<node id=\"1\">", "<node id=1>", (8, "attributes of node are not name=\"value\"")),
            ("is none -->", "is none", (6, "\"<\" without \"-->\"")),
            ("<graphml", "<graph", (1, "no element graphml: is this GraphML?")),
        ] {
            assert_eq!(read(&FILE.replace(from, to)).unwrap_err(), (error.0, error.1.to_owned()));
        }
    }

    #[test]
    fn real_networks_are_read() {
        let Some(folder) = thalweg_testdata::shared("topology/zoo") else {
            return thalweg_testdata::skipped("no networks of the Topology Zoo here");
        };
        let mut networks = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let network = read_zoo(&entry.unwrap().path()).unwrap();
            assert!(network.routers.len() >= 4 && network.links.len() >= 4, "{}", network.name);
            networks += 1;
            if network.name == "GEANT" {
                assert_eq!((network.routers.len(), network.links.len()), (40, 61));
                assert!(network.metrics_from(network.middles(1)[0]).iter().all(Option::is_some));
            }
        }
        assert!(networks > 10, "{networks}");
    }
}

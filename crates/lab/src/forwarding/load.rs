//! The router's task: its routes, whether it translates, and the flows of the frames.

use super::ForwardingError;
use super::frame::PORT_ECHO;
use crate::unexpected::Unexpected;
use crate::workload::destinations::{Destinations, Kind};
use crate::workload::frames::Endpoint;
use crate::workload::prefixes;
use ipnet::Ipv4Net;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::Path;
use std::str::FromStr;

/// Routes of the generated table, as many as a full one has; fewer with `quick`.
const MADE: usize = 900_000;
const MADE_QUICK: usize = 50_000;
/// The most text a table may have once decompressed.
const TEXT_BYTES_MAX: u64 = 1 << 30;
/// The most flows: each takes 20 bytes here and a session in a translator.
pub const FLOWS_MAX: usize = 1 << 20;
/// The one route, to the sink.
pub const ONE_ROUTE: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 19, 128, 0), 17);
/// Hosts on tester-a's network that frames come from; the router's own address is left out.
const SOURCE_HOSTS: usize = 250;
const SOURCE_PORT_FIRST: usize = 1024;

/// Which routes and flows, and whether with translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Scenario {
    /// Whether sources are translated to the router's address.
    pub nat: bool,
    /// Whether the router has the whole table; else one route.
    pub full_table: bool,
    pub flows: usize,
}

impl Scenario {
    /// Whether both need the router set up in the same way.
    pub fn same_set_up(&self, other: &Self) -> bool {
        (self.nat, self.full_table) == (other.nat, other.full_table)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.nat, self.full_table) {
            (true, _) => "nat",
            (false, true) => "full",
            (false, false) => "one",
        };
        write!(f, "{kind}:{}", self.flows)
    }
}

/// As on the command line: `one:FLOWS`, `full:FLOWS` or `nat:FLOWS`.
impl FromStr for Scenario {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        let wrong = || Unexpected::new(text, "one:FLOWS, full:FLOWS or nat:FLOWS, such as one:1");
        let (kind, flows) = text.split_once(':').ok_or_else(wrong)?;
        let flows: usize = flows.parse().map_err(|_| wrong())?;
        if !(1..=FLOWS_MAX).contains(&flows) {
            return Err(Unexpected::new(text, format!("1 to {FLOWS_MAX} flows")));
        }
        let (nat, full_table) = match kind {
            "one" => (false, false),
            "full" => (false, true),
            "nat" => (true, false),
            _ => return Err(wrong()),
        };
        // A port for each flow of a translated host, behind one address.
        if nat && flows > 60_000 {
            return Err(Unexpected::new(text, "at most 60000 flows: one public address has no more ports"));
        }
        Ok(Self { nat, full_table, flows })
    }
}

/// The whole table, and where it is from.
#[derive(Clone, Debug)]
pub struct RouteTable {
    pub prefixes: Vec<Ipv4Net>,
    /// In a few words, for the report.
    pub description: String,
}

impl RouteTable {
    /// Reads one prefix a line, plain or compressed; what follows it on its line is ignored, and so are IPv6 prefixes
    /// and those that no frame can be routed by.
    pub fn read(path: &Path) -> Result<Self, ForwardingError> {
        let failed = |source| ForwardingError::System { what: path.display().to_string(), source };
        let file = File::open(path).map_err(failed)?;
        let (_, reader) = thalweg_ports::decompressed(file).map_err(failed)?;
        let mut text = String::new();
        reader.take(TEXT_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        let words = text.lines().filter_map(|line| line.split_whitespace().next());
        let prefixes = usable(words.filter_map(|word| word.parse().ok()));
        if prefixes.is_empty() {
            return Err(ForwardingError::NoPrefixes(path.to_path_buf()));
        }
        let description = format!("{}, {} IPv4 prefixes used", path.display(), prefixes.len());
        Ok(Self { prefixes, description })
    }

    /// A table made from a seed.
    pub fn made(seed: u64, quick: bool) -> Self {
        let prefixes = usable(prefixes::v4(if quick { MADE_QUICK } else { MADE }, seed).into_iter());
        let description = format!(
            "a generated table, spread more evenly than a real one, {} IPv4 prefixes, seed {seed}",
            prefixes.len()
        );
        Self { prefixes, description }
    }
}

/// Each prefix once, without those that overlap the tester's own networks or are no unicast destination.
fn usable(prefixes: impl Iterator<Item = Ipv4Net>) -> Vec<Ipv4Net> {
    let mut known = HashSet::new();
    let own = Ipv4Net::new(Ipv4Addr::new(198, 18, 0, 0), 15).unwrap_or_default();
    let is_usable = |net: &Ipv4Net| {
        let first = net.network().octets()[0];
        let link_local = net.network().octets()[..2] == [169, 254];
        !matches!(first, 0 | 10 | 127 | 224..) && !link_local && !own.contains(net) && !net.contains(&own)
    };
    prefixes.map(|net| net.trunc()).filter(is_usable).filter(|net| known.insert(*net)).collect()
}

/// The flows of a scenario: sources on tester-a's network, destinations behind the sink, all following from the seed.
pub fn flows(scenario: &Scenario, table: &[Ipv4Net], seed: u64) -> Vec<(Endpoint, Endpoint)> {
    let (one, length) = ONE_ROUTE;
    let one = u32::from(one);
    let hosts = (1u32 << (32 - length)) - 2;
    let mut inside = Destinations::new(Kind::Inside, table, seed);
    let full = scenario.full_table && !table.is_empty();
    (0..scenario.flows)
        .map(|i| {
            let host = 2 + (i % SOURCE_HOSTS) as u32;
            let port = SOURCE_PORT_FIRST + i / SOURCE_HOSTS;
            let source = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + host;
            let from = Endpoint { address: source, port: port as u16 };
            let destination = if full { unicast(&mut inside) } else { one + 1 + i as u32 % hosts };
            (from, Endpoint { address: destination, port: PORT_ECHO })
        })
        .collect()
}

/// An address in the table that a packet may go to: a short prefix may hold others.
fn unicast(inside: &mut Destinations<'_, Ipv4Net>) -> u32 {
    let mut address = inside.next_address();
    // A few draws are enough: hardly any prefix holds such addresses, and none is made of them.
    for _ in 0..64 {
        let bytes = Ipv4Addr::from(address).octets();
        if !matches!(bytes[0], 0 | 10 | 127 | 224..) && bytes[..2] != [169, 254] && bytes[..2] != [198, 18] {
            break;
        }
        address = inside.next_address();
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(text: &str) -> Scenario {
        text.parse().unwrap()
    }

    #[test]
    fn scenarios_are_read_as_they_are_written() {
        for text in ["one:1", "full:65536", "nat:10000"] {
            assert_eq!(scenario(text).to_string(), text);
        }
        for bad in ["", "one", "one:", "one:0", "two:1", "nat:70000", "one:9999999", "one:-1"] {
            assert!(bad.parse::<Scenario>().is_err(), "{bad}");
        }
        assert!(scenario("one:1").same_set_up(&scenario("one:9")));
        assert!(!scenario("one:1").same_set_up(&scenario("nat:1")));
    }

    #[test]
    fn flows_are_distinct_and_go_where_routes_are() {
        let table = RouteTable::made(1, true);
        for text in ["one:10000", "full:10000", "nat:60000"] {
            let scenario = scenario(text);
            let flows = flows(&scenario, &table.prefixes, 7);
            assert_eq!(flows.len(), scenario.flows);
            let sources: HashSet<_> = flows.iter().map(|(from, _)| *from).collect();
            assert_eq!(sources.len(), flows.len(), "{text}");
            for (from, to) in &flows {
                let [a, b, c, d] = Ipv4Addr::from(from.address).octets();
                assert!([a, b, c] == [198, 18, 0] && (2..252).contains(&d), "{a}.{b}.{c}.{d}");
                let to = Ipv4Addr::from(to.address);
                let one = Ipv4Net::new(ONE_ROUTE.0, ONE_ROUTE.1).unwrap();
                assert_eq!(one.contains(&to), !scenario.full_table, "{to}");
            }
        }
        let full = scenario("full:200");
        for (_, to) in flows(&full, &table.prefixes, 7) {
            let to = Ipv4Addr::from(to.address);
            assert!(table.prefixes.iter().any(|net| net.contains(&to)), "{to}");
        }
        assert_eq!(flows(&full, &table.prefixes, 7), flows(&full, &table.prefixes, 7));
        assert_eq!(
            flows(&scenario("full:3"), &[], 7).len(),
            3,
            "without a table there is still the one route"
        );
    }

    #[test]
    fn a_table_is_read_and_cleaned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prefixes.txt");
        std::fs::write(
            &path,
            "1.0.0.0/24 64500\n2001:db8::/32\n10.0.0.0/8\n1.0.0.0/24\n198.18.0.0/16\n0.0.0.0/0\n8.8.8.0/23\nx\n\n",
        )
        .unwrap();
        let table = RouteTable::read(&path).unwrap();
        let names: Vec<String> = table.prefixes.iter().map(Ipv4Net::to_string).collect();
        assert_eq!(names, ["1.0.0.0/24", "8.8.8.0/23"]);
        std::fs::write(&path, "nothing\n").unwrap();
        assert!(RouteTable::read(&path).unwrap_err().to_string().contains("prefixes.txt"));
        assert!(RouteTable::read(&folder.path().join("none")).is_err());
    }
}

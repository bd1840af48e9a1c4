//! Packets for a simulated router: its table as routes, a trace, and the configuration of a router that forwards
//! the trace.
//!
//! Each neighbor is a port, named after its AS; port `own` has the AS's own prefixes. A packet's destination is a
//! prefix of the table, the k-th with probability proportional to 1/k. Its source is a host of another prefix,
//! and it arrives on the port that leads there.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use thalweg_base::XorShift64Star;
use thalweg_node::control::{BgpRequest, RouteFilter, RouteView};
use thalweg_sim::Simulation;
use thalweg_sim::policy::address;

use super::NetworkError;
use crate::workload::destinations::Prefix;
use crate::workload::trace::TraceOptions;

/// The start of the links' networks, with four addresses each: the second is ours, the third the neighbor's.
const LINKS: u32 = u32::from_be_bytes([100, 64, 0, 0]);
/// How often a source is drawn again if it is behind the port of the destination.
const DRAWS: usize = 32;

const CLASSES: &str = r#"
[[qos.classes]]
name = "rtp"
strict = 0
match = [{ application = "rtp" }]

[[qos.classes]]
name = "sip"
strict = 1
match = [{ application = "sip" }]

[[qos.classes]]
name = "http"
strict = 2
match = [{ application = "http" }]
"#;

/// A route of the table: prefix and port.
struct Route {
    prefix: Ipv4Net,
    port: usize,
}

/// Writes `ASN-packets.txt`, `ASN-packets.toml` and `ASN-prefixes.txt`.
pub(super) fn write(
    simulation: &Simulation,
    node: usize,
    packets: u64,
    folder: &Path,
) -> Result<(), NetworkError> {
    let graph = &simulation.scenario().graph;
    let asn = graph.asn(node);
    let neighbors: Vec<usize> = graph.links_of(node).map(|(other, ..)| other).collect();
    let mut ports: Vec<String> = neighbors.iter().map(|other| format!("as{}", graph.asn(*other))).collect();
    ports.push("own".to_owned());
    let routes = table(simulation, node, &neighbors)?;
    let at = |name: &str| folder.join(format!("AS{asn}-{name}"));
    let files = |path: PathBuf, write: &dyn Fn(&mut BufWriter<File>) -> io::Result<()>| {
        let written = File::create(&path).and_then(|file| {
            let mut out = BufWriter::new(file);
            write(&mut out)?;
            out.flush()
        });
        written.map_err(|source| NetworkError::File { path, source })
    };
    files(at("prefixes.txt"), &|out| {
        routes.iter().try_for_each(|route| writeln!(out, "{} {}", route.prefix, theirs(route.port)))
    })?;
    files(at("packets.toml"), &|out| out.write_all(configuration(asn, &ports).as_bytes()))?;
    files(at("packets.txt"), &|out| trace(&routes, &ports, packets, simulation.scenario().seed, out))
}

fn ours(port: usize) -> Ipv4Addr {
    Ipv4Addr::from(LINKS + 4 * port as u32 + 1)
}

fn theirs(port: usize) -> Ipv4Addr {
    Ipv4Addr::from(LINKS + 4 * port as u32 + 2)
}

/// The best route of each prefix.
fn table(simulation: &Simulation, node: usize, neighbors: &[usize]) -> Result<Vec<Route>, NetworkError> {
    let views: Vec<RouteView> = simulation.network.ask(node, &BgpRequest::Routes(RouteFilter::default()))?;
    let port = |view: &RouteView| {
        let from: Option<IpAddr> = view.neighbor.parse().ok();
        let is_it = |other: &usize| Some(IpAddr::V4(address(*other))) == from;
        // A prefix that no neighbor sent is our own, behind the last port.
        neighbors.iter().position(is_it).unwrap_or(neighbors.len())
    };
    let route = |view: &RouteView| Some(Route { prefix: view.prefix.parse().ok()?, port: port(view) });
    let mut routes: Vec<Route> = views.iter().filter(|view| view.best).filter_map(route).collect();
    routes.sort_unstable_by_key(|route| route.prefix);
    Ok(routes)
}

fn configuration(asn: u32, ports: &[String]) -> String {
    let mut text =
        format!("# The router of AS {asn}: a port for each neighbor, and one for its own prefixes.\n");
    for (port, name) in ports.iter().enumerate() {
        let [high, low] = (port as u16).to_be_bytes();
        let _ = write!(
            text,
            "\n[ports.{name}]\nmac = \"02:00:00:00:{high:02x}:{low:02x}\"\naddresses = [\"{}/30\"]\n\
             default_mac = \"02:00:00:01:{high:02x}:{low:02x}\"\n",
            ours(port)
        );
    }
    let _ = write!(text, "\n[routing]\nfiles = [\"AS{asn}-prefixes.txt\"]\n");
    text + CLASSES
}

fn trace(
    routes: &[Route],
    ports: &[String],
    packets: u64,
    seed: u64,
    out: &mut impl Write,
) -> io::Result<()> {
    let options = TraceOptions::default();
    let mut rng = XorShift64Star::new(seed);
    // Which prefixes are popular is random.
    let mut order: Vec<usize> = (0..routes.len()).collect();
    crate::stats::shuffle(&mut order, &mut rng);
    for _ in 0..if routes.is_empty() { 0 } else { packets } {
        let share = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = (routes.len() as f64).powf(share) as usize;
        let to = &routes[order[rank.clamp(1, routes.len()) - 1]];
        let mut from = &routes[rng.below(routes.len() as u32) as usize];
        for _ in 0..DRAWS {
            if from.port != to.port {
                break;
            }
            from = &routes[rng.below(routes.len() as u32) as usize];
        }
        let [destination, source] = [to, from].map(|route| Ipv4Addr::from(route.prefix.within(&mut rng)));
        let service = options.services[rng.below(options.services.len() as u32) as usize];
        let protocol = &options.protocols[rng.below(options.protocols.len() as u32) as usize];
        let port = 1024 + rng.below(60_000);
        writeln!(out, "{} {destination} {source} {service} {port} {protocol}", ports[from.port])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_follow_zipf_and_sources_are_elsewhere() {
        let route = |number: u8| Route {
            prefix: Ipv4Net::new_assert([20, 0, number, 0].into(), 24),
            port: number as usize % 4,
        };
        let routes: Vec<Route> = (0..40).map(route).collect();
        let ports = ["a", "b", "c", "own"].map(str::to_owned);
        let mut out = Vec::new();
        trace(&routes, &ports, 20_000, 1, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let mut counts = [0_usize; 40];
        for line in text.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let third = |address: &str| address.split('.').nth(2).unwrap().parse::<usize>().unwrap();
            counts[third(fields[1])] += 1;
            assert_eq!(fields[0], ports[third(fields[2]) % 4], "{line}");
            assert_ne!(third(fields[1]) % 4, third(fields[2]) % 4, "{line}");
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // A share of ln 2 / ln 40 has rank 1.
        assert!((3400..4100).contains(&counts[0]), "{counts:?}");
    }
}

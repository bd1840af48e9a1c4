//! Text packet traces: one packet per line, `port destination source destination-port source-port protocol`.
//!
//! Hosts of four inside networks exchange packets with outside hosts. Two packets in three go out; the others
//! come in, to the public address and to the port that the source article's emulator would have given the host.
//! With default options the bytes are those of the published generator, so other programs can be measured with
//! the same trace.

use std::io::{self, BufWriter, Write};
use std::net::Ipv4Addr;
use thalweg_base::XorShift64Star;

/// An inside network of 65,536 addresses, and its port.
#[derive(Clone, Debug)]
pub struct Network {
    /// The first two bytes of its addresses.
    pub bytes: [u8; 2],
    pub port: String,
}

/// The parameters of a trace. No list may be empty, no count zero.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    pub seed: u64,
    /// Inside hosts: at most 16,000, because each has four public ports.
    pub inside_hosts: u32,
    pub outside_hosts: u32,
    /// The networks of inside hosts.
    pub networks: Vec<Network>,
    /// The router's public address.
    pub public_address: Ipv4Addr,
    /// The name of the outside port.
    pub public_port: String,
    /// One packet in this many comes in.
    pub one_inward_in: u32,
    /// Protocol names with equal probability; a repeated name has more.
    pub protocols: Vec<String>,
    /// Ports of outside services, with equal probability.
    pub services: Vec<u16>,
}

impl Default for TraceOptions {
    fn default() -> Self {
        let network = |bytes, port: &str| Network { bytes, port: port.to_owned() };
        let weights = [("http", 8), ("ftp", 3), ("rtp", 3), ("sip", 2), ("dns", 3), ("smtp", 1)];
        let protocols =
            weights.iter().flat_map(|(name, times)| std::iter::repeat_n((*name).to_owned(), *times));
        Self {
            seed: XorShift64Star::DEFAULT_SEED,
            inside_hosts: 2000,
            outside_hosts: 500,
            networks: vec![
                network([10, 230], "eth0"),
                network([10, 231], "eth1"),
                network([134, 77], "eth2"),
                network([172, 16], "eth4"),
            ],
            public_address: Ipv4Addr::new(104, 44, 44, 10),
            public_port: "eth3".to_owned(),
            one_inward_in: 3,
            protocols: protocols.collect(),
            services: vec![80, 443, 21, 53, 25, 4003, 5003, 5060],
        }
    }
}

/// More hosts would have ports beyond 65,535.
const INSIDE_HOSTS_MAX: u32 = 16_000;
/// Public ports per host, and the first one of all.
const PORTS_PER_HOST: u32 = 4;
const PORT_FIRST: u32 = 1024;

struct InsideHost {
    address: String,
    network: usize,
    first_port: u32,
}

/// Writes `lines` lines.
pub fn write(options: &TraceOptions, lines: u64, out: impl Write) -> io::Result<()> {
    check(options)?;
    let mut rng = XorShift64Star::new(options.seed);
    let inside = inside_hosts(options, &mut rng);
    let outside: Vec<String> = (0..options.outside_hosts)
        .map(|_| {
            let mut byte = |limit, from| rng.below(limit) + from;
            // The last byte may have a leading zero; it is decimal nevertheless.
            format!("{}.{}.{}.{:02}", byte(90, 20), byte(250, 1), byte(250, 1), byte(250, 1))
        })
        .collect();
    let mut out = BufWriter::with_capacity(1 << 18, out);
    let public = options.public_address;
    for _ in 0..lines {
        let host = &inside[rng.below(options.inside_hosts) as usize];
        let peer = &outside[rng.below(options.outside_hosts) as usize];
        let service = options.services[rng.below(options.services.len() as u32) as usize];
        let protocol = &options.protocols[rng.below(options.protocols.len() as u32) as usize];
        let outward = rng.below(options.one_inward_in) != 0;
        let port = host.first_port + rng.below(PORTS_PER_HOST);
        if outward {
            let nic = &options.networks[host.network].port;
            writeln!(out, "{nic} {peer} {} {service} {port} {protocol}", host.address)?;
        } else {
            writeln!(out, "{} {public} {peer} {port} {service} {protocol}", options.public_port)?;
        }
    }
    out.flush()
}

fn inside_hosts(options: &TraceOptions, rng: &mut XorShift64Star) -> Vec<InsideHost> {
    (0..options.inside_hosts)
        .map(|i| {
            let network = rng.below(options.networks.len() as u32) as usize;
            let [a, b] = options.networks[network].bytes;
            let (c, d) = (rng.below(250) + 1, rng.below(250) + 1);
            let address = format!("{a}.{b}.{c:02}.{d:02}");
            InsideHost { address, network, first_port: PORT_FIRST + i * PORTS_PER_HOST }
        })
        .collect()
}

fn check(options: &TraceOptions) -> io::Result<()> {
    let wrong =
        |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("trace options: {what}")));
    if options.inside_hosts == 0 || options.inside_hosts > INSIDE_HOSTS_MAX {
        return wrong(&format!("inside_hosts is {}, not 1 to {INSIDE_HOSTS_MAX}", options.inside_hosts));
    }
    if options.outside_hosts == 0 || options.one_inward_in == 0 {
        return wrong("outside_hosts and one_inward_in cannot be 0");
    }
    if options.networks.is_empty() || options.protocols.is_empty() || options.services.is_empty() {
        return wrong("networks, protocols and services cannot be empty");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(options: &TraceOptions, lines: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(options, lines, &mut out).unwrap();
        out
    }

    #[test]
    fn the_default_trace_is_the_published_one() {
        let text = trace(&TraceOptions::default(), 1000);
        let first = "eth1 60.225.1.144 10.231.197.187 5060 8497 http\n\
                     eth3 104.44.44.10 93.55.143.162 2015 80 rtp\n\
                     eth2 64.97.90.139 134.77.113.148 4003 8897 http\n";
        assert!(text.starts_with(first.as_bytes()));
        assert_eq!(text.len(), 46_103);
        let fnv1a = text
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        assert_eq!(fnv1a, 0xa0dd_d447_5c45_56e5, "of the first 1000 lines of the published generator");
    }

    #[test]
    fn senseless_options_are_refused() {
        let mut nowhere = Vec::new();
        let ordinary = TraceOptions::default;
        for options in [
            TraceOptions { inside_hosts: 0, ..ordinary() },
            TraceOptions { inside_hosts: INSIDE_HOSTS_MAX + 1, ..ordinary() },
            TraceOptions { outside_hosts: 0, ..ordinary() },
            TraceOptions { one_inward_in: 0, ..ordinary() },
            TraceOptions { protocols: vec![], ..ordinary() },
            TraceOptions { networks: vec![], ..ordinary() },
            TraceOptions { services: vec![], ..ordinary() },
        ] {
            let error = write(&options, 1, &mut nowhere).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        assert!(nowhere.is_empty());
    }

    proptest! {
        #[test]
        fn every_line_has_the_grammar(seed: u64, inside_hosts in 1..=INSIDE_HOSTS_MAX, lines in 0u64..50) {
            let options = TraceOptions { seed, inside_hosts, ..TraceOptions::default() };
            let text = String::from_utf8(trace(&options, lines)).unwrap();
            prop_assert_eq!(text.lines().count() as u64, lines);
            for line in text.lines() {
                let fields: Vec<&str> = line.split(' ').collect();
                prop_assert_eq!(fields.len(), 6, "{}", line);
                for address in &fields[1..3] {
                    let bytes: Vec<u8> = address.split('.').map(|o| o.parse().unwrap()).collect();
                    prop_assert_eq!(bytes.len(), 4);
                }
                for port in &fields[3..5] {
                    prop_assert!(port.parse::<u16>().is_ok(), "{}", line);
                }
                prop_assert!(options.protocols.iter().any(|p| p == fields[5]));
            }
        }
    }
}

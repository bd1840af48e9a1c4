//! Packets of a given number of flows, for meters. The cost of a flow cache depends on the number of concurrent
//! flows and on how packets are spread over them.
//!
//! | kind | packets |
//! |---|---|
//! | `zipf:N` | of N flows, the k-th with probability proportional to 1/k |
//! | `uniform:N` | each of N flows with equal probability |
//! | `unique` | every packet is a new flow |
//!
//! Flow number `i` of a seed always has the same key: `i` with the seed mixed in goes through a bijection of 64
//! bits, and the result is laid out as source (24 bits in 10.0.0.0/8), destination (22 in 100.64.0.0/10), source
//! port (16) and service (2). So flows are distinct by construction, and counting them needs no table. One
//! service in four is TCP. Destinations and sources never swap, so a meter of both directions finds as many
//! flows.

use super::frames::{Endpoint, Frame, FrameSource, tcp, udp};
use crate::unexpected::Unexpected;
use std::fmt;
use std::str::FromStr;
use thalweg_base::{XorShift64Star, mix64};

/// The network of sources, and how many bits of their addresses are drawn.
const SOURCES: (u32, u32) = (0x0a00_0000, 24);
/// The same for destinations.
const DESTINATIONS: (u32, u32) = (0x6440_0000, 22);
/// Destination ports; one of them is for TCP. DNS is not among them, because nfpcapd exports each DNS packet
/// separately.
const SERVICES: [u16; 4] = [123, 443, 4500, 5060];
const TCP_SERVICE: u16 = 443;
/// More flows have no distinct keys in 32 bits and do not fit into memory.
pub const FLOWS_MAX: u32 = 100_000_000;

/// How packets are spread over flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spread {
    /// Of this many flows, few often and many seldom.
    Zipf(u32),
    /// This many flows with equal probability.
    Uniform(u32),
    /// Every packet is a new flow.
    Unique,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spread::Zipf(flows) => write!(f, "zipf:{flows}"),
            Spread::Uniform(flows) => write!(f, "uniform:{flows}"),
            Spread::Unique => f.write_str("unique"),
        }
    }
}

impl FromStr for Spread {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        let expected = || {
            let expected = format!("zipf:FLOWS, uniform:FLOWS or unique, with FLOWS from 1 to {FLOWS_MAX}");
            Unexpected::new(text, expected)
        };
        let flows = |digits: &str| {
            digits.parse().ok().filter(|flows| (1..=FLOWS_MAX).contains(flows)).ok_or_else(expected)
        };
        match text.split_once(':') {
            None if text == "unique" => Ok(Spread::Unique),
            Some(("zipf", digits)) => flows(digits).map(Spread::Zipf),
            Some(("uniform", digits)) => flows(digits).map(Spread::Uniform),
            _ => Err(expected()),
        }
    }
}

/// An endless series of packets, and a count of the flows that occurred.
#[derive(Clone, Debug)]
pub struct Flows {
    spread: Spread,
    rng: XorShift64Star,
    seed: u64,
    packets: u64,
    /// A bit for each flow that has occurred, for kinds in which flows repeat.
    seen: Vec<u64>,
    flows_seen: u64,
}

impl Flows {
    /// Packets that depend only on the seed.
    pub fn new(spread: Spread, seed: u64) -> Self {
        let flows = match spread {
            Spread::Zipf(flows) | Spread::Uniform(flows) => flows as usize,
            Spread::Unique => 0,
        };
        let (rng, seen) = (XorShift64Star::new(seed), vec![0; flows.div_ceil(64)]);
        Self { spread, rng, seed: mix64(seed ^ 0x5eed), packets: 0, seen, flows_seen: 0 }
    }

    /// The number of different flows among the packets so far.
    pub fn flows_seen(&self) -> u64 {
        self.flows_seen
    }

    /// The number of the next packet's flow.
    fn draw(&mut self) -> u64 {
        let flow = match self.spread {
            Spread::Unique => {
                self.flows_seen += 1;
                return self.packets;
            }
            Spread::Uniform(flows) => u64::from(self.rng.below(flows)),
            Spread::Zipf(flows) => {
                let share = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                let place = f64::from(flows).powf(share) as u64;
                place.clamp(1, u64::from(flows)) - 1
            }
        };
        let word = &mut self.seen[(flow / 64) as usize];
        let bit = 1 << (flow % 64);
        self.flows_seen += u64::from(*word & bit == 0);
        *word |= bit;
        flow
    }
}

/// The endpoints of a flow: a bijection, see the module.
fn ends(flow: u64, seed: u64) -> (Endpoint, Endpoint) {
    let drawn = mix64(flow ^ seed);
    let field = |at: u32, bits: u32| (drawn >> at & ((1 << bits) - 1)) as u32;
    let ((sources, source_bits), (destinations, destination_bits)) = (SOURCES, DESTINATIONS);
    let at_port = source_bits + destination_bits;
    let from = Endpoint { address: sources | field(0, source_bits), port: field(at_port, 16) as u16 };
    let to = Endpoint {
        address: destinations | field(source_bits, destination_bits),
        port: SERVICES[field(at_port + 16, 2) as usize],
    };
    (from, to)
}

impl FrameSource for Flows {
    fn next_frame(&mut self, frame: &mut Frame) -> u16 {
        let flow = self.draw();
        let (from, to) = ends(flow, self.seed);
        let write = if to.port == TCP_SERVICE { tcp } else { udp };
        write(frame, from, to, self.packets);
        self.packets += 1;
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    /// The flow key, read from a frame.
    fn key(frame: &Frame) -> (u8, [u8; 12]) {
        (frame[23], frame[26..38].try_into().unwrap())
    }

    fn drawn(spread: Spread, seed: u64, packets: usize) -> (HashMap<(u8, [u8; 12]), u64>, u64) {
        let (mut flows, mut frame, mut counts) = (Flows::new(spread, seed), [0; 60], HashMap::new());
        for _ in 0..packets {
            assert_eq!(flows.next_frame(&mut frame), 0);
            *counts.entry(key(&frame)).or_insert(0) += 1;
        }
        (counts, flows.flows_seen())
    }

    #[test]
    fn flows_are_counted_right_and_are_those_of_the_seed() {
        for spread in [Spread::Zipf(1000), Spread::Uniform(1000), Spread::Unique] {
            let (counts, seen) = drawn(spread, 7, 5000);
            assert_eq!(counts.len() as u64, seen, "{spread}");
            assert_eq!(drawn(spread, 7, 5000).0, counts, "{spread}");
            let other: HashSet<_> = drawn(spread, 8, 5000).0.into_keys().collect();
            assert!(counts.keys().filter(|key| other.contains(*key)).count() < 50, "{spread}");
            let tcp = counts.keys().filter(|(protocol, _)| *protocol == 6).count();
            assert!((counts.len() / 6..counts.len() / 3).contains(&tcp), "{spread}: {tcp} of TCP");
        }
    }

    #[test]
    fn packets_are_spread_as_said() {
        let of = |spread| {
            let mut counts: Vec<u64> = drawn(spread, 1, 50_000).0.into_values().collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts
        };
        let (zipf, uniform, unique) = (of(Spread::Zipf(1000)), of(Spread::Uniform(1000)), of(Spread::Unique));
        // The first of a thousand flows gets log(2)/log(1000), a tenth; with equal probability each gets 50.
        assert!((4_000..6_500).contains(&zipf[0]), "{}", zipf[0]);
        assert!(zipf[0] > 20 * zipf[100]);
        assert_eq!(uniform.len(), 1000);
        assert!(uniform.iter().all(|count| (15..100).contains(count)), "{:?}", &uniform[..3]);
        assert_eq!((unique.len(), unique[0]), (50_000, 1));
    }

    #[test]
    fn checksums_of_tcp_are_right() {
        let (mut flows, mut frame) = (Flows::new(Spread::Unique, 3), [0; 60]);
        let ones = |words: &[u8]| {
            let total: u32 = words.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
            (total & 0xffff) + (total >> 16)
        };
        let mut found = 0;
        for _ in 0..400 {
            flows.next_frame(&mut frame);
            let mut pseudo = frame[26..34].to_vec();
            pseudo.extend([0, frame[23], 0, 26]);
            pseudo.extend(&frame[34..60]);
            assert_eq!((ones(&frame[14..34]), ones(&pseudo)), (0xffff, 0xffff), "{frame:?}");
            found += u32::from(frame[23] == 6);
        }
        assert!(found > 50, "{found}");
    }

    #[test]
    fn names_are_read_back() {
        for spread in [Spread::Zipf(200_000), Spread::Uniform(1), Spread::Unique] {
            assert_eq!(spread.to_string().parse(), Ok(spread));
        }
        for wrong in ["", "zipf", "zipf:0", "zipf:x", "uniform:100000001", "unique:3", "flood"] {
            let error = wrong.parse::<Spread>().unwrap_err().to_string();
            assert!(error.contains("expected zipf:FLOWS") && error.contains(wrong), "{error}");
        }
    }
}

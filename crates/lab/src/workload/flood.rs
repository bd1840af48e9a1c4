//! A flood of the smallest packets, each to another destination.

use super::destinations::{Destinations, Kind};
use super::frames::{Endpoint, Frame, FrameSource, udp};
use ipnet::Ipv4Net;

/// UDP packets to destinations drawn from a prefix list.
#[derive(Debug)]
pub struct Flood<'a> {
    destinations: Destinations<'a, Ipv4Net>,
    from: Endpoint,
    port_in: u16,
    number: u64,
}

impl<'a> Flood<'a> {
    /// Packets from `from` that arrive on `port_in`. Seed 0 gives the published look-up workload.
    pub fn new(kind: Kind, prefixes: &'a [Ipv4Net], seed: u64, from: Endpoint, port_in: u16) -> Self {
        Self { destinations: Destinations::new(kind, prefixes, seed), from, port_in, number: 0 }
    }
}

impl FrameSource for Flood<'_> {
    fn next_frame(&mut self, frame: &mut Frame) -> u16 {
        let address = self.destinations.next_address();
        // 4,096 destination ports make different flows, which spread over shards.
        let to = Endpoint { address, port: 1024 + (self.number & 0xfff) as u16 };
        udp(frame, self.from, to, self.number);
        self.number += 1;
        self.port_in
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::{Chunks, tests::parse};
    use super::*;

    #[test]
    fn packets_go_to_the_drawn_addresses() {
        let prefixes: Vec<Ipv4Net> = vec!["20.0.0.0/8".parse().unwrap(), "31.1.0.0/16".parse().unwrap()];
        let from = Endpoint { address: 0x0a00_0001, port: 5000 };
        for kind in Kind::ALL {
            let mut draws = Destinations::new(kind, &prefixes, 0);
            let mut flood = Flood::new(kind, &prefixes, 0, from, 7);
            for chunk in Chunks::new(&mut flood, 100, 33, 10) {
                for i in 0..chunk.packets().len() {
                    let (source, to) = parse(chunk.frame(i)).unwrap();
                    assert_eq!((source, to.address), (from, draws.next_address()));
                    assert_eq!(chunk.packets()[i].port_in, 7);
                }
            }
        }
    }
}

//! Tests of the parts together: a router with one inside and one outside port.

mod bare;
mod events;
mod help;
mod icmp;
mod migrate;
mod nat64;
mod one_to_one;
mod own;
mod pools;
mod protection;
mod reference;
mod rfc;
mod several;
mod standby;
mod subscribers;
mod tayga;
mod tenants;
mod vrf;

use super::testing::{self, INSIDE, OUTSIDE, SECOND_NS, checksums, chunk, label};
use super::{Cursor, EndedBy, Labeler, NatConfig, NatProtocol, NatStage, PortForward, SessionInfo};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use thalweg_base::{Chunk, DropReason, PacketFlags};

/// A forward of one port of the first public address.
fn forward(protocol: NatProtocol, public_port: u16, to: SocketAddrV4) -> PortForward {
    PortForward {
        protocol,
        public_address: 0,
        public_port,
        inside_address: *to.ip(),
        vrf: 0,
        inside_port: to.port(),
        count: 1,
    }
}

/// A NAT and its clock.
struct Router {
    labeler: Labeler,
    nat: NatStage,
    shards: u16,
    now_ns: u64,
}

/// The fate of a packet.
type Outcome = Result<Vec<u8>, DropReason>;

impl Router {
    fn new(config: &NatConfig) -> Self {
        Self {
            labeler: Labeler::new(config).unwrap(),
            nat: NatStage::new(config).unwrap(),
            shards: config.shards,
            now_ns: 1_700_000_000 * SECOND_NS,
        }
    }

    fn wait_s(&mut self, seconds: u64) {
        self.now_ns += seconds * SECOND_NS;
    }

    fn run(&self, chunk: &mut Chunk) {
        label(&self.labeler, chunk, self.shards);
        self.nat.run_groups(chunk, 0..1, 1);
        self.nat.run_crossing(chunk, &mut |_, _, _| ());
    }

    /// Sends one packet, and checks that the output has correct checksums and a descriptor that agrees with its
    /// bytes.
    fn send(&self, port_in: u16, bytes: &[u8]) -> Outcome {
        self.send_snapped(port_in, bytes, bytes.len())
    }

    /// As `send` with only the first `kept` bytes captured.
    fn send_snapped(&self, port_in: u16, bytes: &[u8], kept: usize) -> Outcome {
        checksums(bytes).unwrap();
        let mut chunk = chunk(&[(port_in, &bytes[..kept], bytes.len() as u32)], self.now_ns);
        self.run(&mut chunk);
        let packet = &chunk.packets()[0];
        if let Some(reason) = packet.drop_reason() {
            return Err(reason);
        }
        let after = chunk.frame(0).to_vec();
        if packet.flags.has(PacketFlags::HAS_PORTS) && !packet.flags.has(PacketFlags::LATER_FRAGMENT) {
            let mut again =
                testing::chunk(&[(port_in, &after, bytes.len().max(after.len()) as u32)], self.now_ns);
            let again = &mut again.packets_mut()[0];
            assert_eq!((packet.src_port, packet.dst_port), (again.src_port, again.dst_port));
        }
        if kept == bytes.len() {
            checksums(&after).unwrap();
        }
        Ok(after)
    }

    fn leave(&self, bytes: &[u8]) -> Outcome {
        self.send(INSIDE, bytes)
    }

    fn arrive(&self, bytes: &[u8]) -> Outcome {
        self.send(OUTSIDE, bytes)
    }

    /// Sends a packet from inside and returns its public endpoint.
    fn open(
        &self,
        protocol: NatProtocol,
        from: SocketAddrV4,
        to: SocketAddrV4,
    ) -> Result<SocketAddrV4, DropReason> {
        self.leave(&testing::any(protocol, from, to, SYN)).map(|bytes| source(&bytes))
    }

    /// Whether a packet from outside is admitted, and its destination.
    fn enter(
        &self,
        protocol: NatProtocol,
        from: SocketAddrV4,
        to: SocketAddrV4,
    ) -> Result<SocketAddrV4, DropReason> {
        let packet = match protocol {
            NatProtocol::Icmp => testing::echo((*from.ip()).into(), (*to.ip()).into(), 0, to.port()),
            _ => testing::any(protocol, from, to, ACK),
        };
        self.arrive(&packet).map(|bytes| destination(&bytes))
    }

    fn sessions(&self) -> Vec<SessionInfo> {
        let mut all = Vec::new();
        let mut next = Some(Cursor::default());
        while let Some(from) = next {
            next = self.nat.sessions(from, self.now_ns, |_| true, &mut all);
        }
        all
    }
}

const FIN: u8 = 17;
const SYN: u8 = 2;
const SYN_ACK: u8 = 18;
const RST: u8 = 4;
const ACK: u8 = 16;

fn at(address: [u8; 4], port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(address.into(), port)
}

fn host(n: u8, port: u16) -> SocketAddrV4 {
    at([192, 168, 0, n], port)
}

fn remote(n: u8, port: u16) -> SocketAddrV4 {
    at([203, 0, 113, n], port)
}

fn endpoint(bytes: &[u8], address: usize, port: usize) -> SocketAddrV4 {
    let header = usize::from(bytes[0] & 15) * 4;
    let port = header + if bytes[9] == 1 { 4 } else { port };
    let ip: [u8; 4] = bytes[address..address + 4].try_into().unwrap();
    at(ip, u16::from_be_bytes([bytes[port], bytes[port + 1]]))
}

/// Source endpoint; the port is the identifier for ICMP.
fn source(bytes: &[u8]) -> SocketAddrV4 {
    endpoint(bytes, 12, 0)
}

/// Destination endpoint; the port is the identifier for ICMP.
fn destination(bytes: &[u8]) -> SocketAddrV4 {
    endpoint(bytes, 16, 2)
}

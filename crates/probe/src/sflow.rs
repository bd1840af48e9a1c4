//! sFlow 5: samples of packets for collectors, beside the flow records.
//!
//! ```text
//! worker: Sampler (counts down to its next sample) ──> bounded queue ──> Agent: datagrams ──> collectors
//! ```
//!
//! A worker counts packets by port, and samples each with the same probability: how many it passes over until the next
//! one is drawn at once, from a geometric distribution. A sample carries what its worker has counted at its port since
//! the last one, so that the pools of all workers add up in the agent. Frames that merge segments count as the packets
//! on the wire, each of which may be sampled.
//!
//! Packets of files wait for room in the queue. Those of interfaces do not: the sample is lost, and told in `drops`.
//!
//! Missing: counter samples, samples of a router.

mod agent;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use thalweg_base::{LinkType, Packet, XorShift64Star, mix64};
use thalweg_flow::parse::vlan_of;
use thalweg_wire::checksum;

pub(crate) use agent::Agent;

/// The capacity of the queue: 1 MiB of usual samples.
const QUEUE_SAMPLES: usize = 4096;
/// A fixed seed makes the probe sample the same packets of a file in every run with one worker.
const SEED: u64 = 1;

/// A sampled packet, on its way to the agent.
#[derive(Debug, PartialEq, Eq)]
struct Sampled {
    port: u16,
    /// Packets at this port, and samples lost there, since the worker's last one.
    pool: u32,
    drops: u32,
    /// `None`: sFlow has no number for what the packet begins with.
    header: Option<Start>,
}

/// How a packet begins.
#[derive(Debug, PartialEq, Eq)]
struct Start {
    /// `header_protocol`.
    protocol: u32,
    /// Of the packet on the wire.
    bytes: u32,
    vlan: Option<u16>,
    start: Vec<u8>,
}

/// The sending end, from which every worker gets its own sampler.
#[derive(Clone)]
pub(crate) struct SampleQueue {
    samples: Sender<Sampled>,
    rate: u32,
    header_bytes: usize,
    waits: bool,
    seed: u64,
    /// Numbers the samplers.
    samplers: Arc<AtomicU64>,
    /// Samples that found the queue full.
    lost: Arc<AtomicU64>,
}

impl SampleQueue {
    /// Makes a queue; with `waits`, samples wait for room, and the same packets are sampled in every run.
    fn new((rate, header_bytes): (u32, u16), waits: bool) -> (Self, Receiver<Sampled>) {
        let (samples, arrivals) = bounded(QUEUE_SAMPLES);
        // Senders of packets must not be able to predict which are seen.
        let seed = if waits { SEED } else { RandomState::new().build_hasher().finish() };
        let header_bytes = usize::from(header_bytes);
        let (samplers, lost) = (Arc::default(), Arc::default());
        (Self { samples, rate: rate.max(1), header_bytes, waits, seed, samplers, lost }, arrivals)
    }

    pub(crate) fn sampler(&self) -> Sampler {
        let number = self.samplers.fetch_add(1, Ordering::Relaxed);
        let rng = XorShift64Star::new(mix64(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let mut sampler = Sampler { queue: self.clone(), rng, left: 0, ports: Vec::new() };
        sampler.left = sampler.skip();
        sampler
    }
}

/// A worker's end.
pub(crate) struct Sampler {
    queue: SampleQueue,
    rng: XorShift64Star,
    /// Packets to pass over before the next sample.
    left: u64,
    /// By port: packets and lost samples since the last sample.
    ports: Vec<(u32, u32)>,
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler")
            .field("left", &self.left)
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}

impl Sampler {
    /// Counts a parsed packet, and samples it if it is its turn.
    #[inline]
    pub(crate) fn pass(&mut self, packet: &Packet, frame: &[u8]) {
        let packets = packet.wire_packets();
        match self.ports.get_mut(usize::from(packet.port_in)) {
            Some((pool, _)) => *pool = pool.wrapping_add(packets),
            None => self.add_port(packet.port_in, packets),
        }
        match self.left.checked_sub(u64::from(packets)) {
            Some(left) => self.left = left,
            None => self.take(packet, frame, packets),
        }
    }

    #[cold]
    fn add_port(&mut self, port: u16, packets: u32) {
        self.ports.resize(usize::from(port) + 1, (0, 0));
        self.ports[usize::from(port)].0 = packets;
    }

    /// Samples one or more of the packets of this frame.
    #[cold]
    fn take(&mut self, packet: &Packet, frame: &[u8], packets: u32) {
        let mut nth = self.left;
        while let Ok(segment) = u32::try_from(nth)
            && segment < packets
        {
            self.send(packet, frame, segment);
            nth += 1 + self.skip();
        }
        self.left = nth - u64::from(packets);
    }

    fn send(&mut self, packet: &Packet, frame: &[u8], segment: u32) {
        let (pool, drops) = std::mem::take(&mut self.ports[usize::from(packet.port_in)]);
        let header = start_of(packet, frame, (segment, self.queue.header_bytes));
        let sampled = Sampled { port: packet.port_in, pool, drops, header };
        let is_lost = match self.queue.waits {
            // Without a receiver the run is about to fail.
            true => self.queue.samples.send(sampled).is_err(),
            false => self.queue.samples.try_send(sampled).is_err(),
        };
        if is_lost {
            self.ports[usize::from(packet.port_in)] = (pool, drops.wrapping_add(1));
            self.queue.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many packets to pass over: the geometric distribution of a chance of one in `rate`.
    fn skip(&mut self) -> u64 {
        let word = u32::try_from(self.rng.next_u64() >> 32).unwrap_or(u32::MAX);
        let chance = (f64::from(word) + 1.0) / (f64::from(u32::MAX) + 1.0);
        let skip = chance.ln() / (-1.0 / f64::from(self.queue.rate)).ln_1p();
        // At most 23 times the rate.
        skip as u64
    }
}

/// How a packet begins on the wire: the `segment`th one that a frame merges, or the only one.
fn start_of(packet: &Packet, frame: &[u8], (segment, bytes_max): (u32, usize)) -> Option<Start> {
    let l3 = usize::from(packet.l3_offset);
    let is_ethernet = packet.link == LinkType::Ethernet;
    let (protocol, skipped) = match (is_ethernet, frame.get(l3).map(|first| first >> 4)) {
        (true, _) => (1, 0),
        (false, Some(4)) if packet.is_alive() => (11, packet.l3_offset),
        (false, Some(6)) if packet.is_alive() => (12, packet.l3_offset),
        _ => return None,
    };
    let whole = frame.get(usize::from(skipped)..)?;
    let mut start = whole[..whole.len().min(bytes_max)].to_vec();
    let mut bytes = packet.wire_len;
    if packet.wire_packets() > 1 {
        let ip_bytes = packet.wire_ip_len_of(segment);
        bytes = u32::from(packet.l3_offset) + ip_bytes;
        if let Some(ip) = start.get_mut(l3 - usize::from(skipped)..) {
            set_length(ip, ip_bytes);
        }
    }
    let vlan = Some(vlan_of(frame, packet)).filter(|vlan| packet.is_alive() && *vlan != 0);
    Some(Start { protocol, bytes: bytes.saturating_sub(skipped.into()), vlan, start })
}

/// Writes the length that a segment has on the wire into the header of the merged ones.
fn set_length(ip: &mut [u8], bytes: u32) {
    let clamped = |bytes: u32| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    match ip {
        [first, ..] if *first >> 4 == 4 && ip.len() >= 20 => {
            ip[2..4].copy_from_slice(&clamped(bytes));
            ip[10..12].fill(0);
            let header = ip.len().min(usize::from(ip[0] & 15) * 4);
            let sum = checksum::finish(checksum::sum(&ip[..header], 0));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        [first, ..] if *first >> 4 == 6 && ip.len() >= 6 => {
            ip[4..6].copy_from_slice(&clamped(bytes.saturating_sub(40)));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;

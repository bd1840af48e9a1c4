//! Samples of packets, for sFlow: how one packet in so many begins.
//!
//! Each packet has the same chance, and one that is not sampled costs a count: how many packets a worker passes over
//! until its next sample is drawn at once, from a geometric distribution. A sample carries what its worker has counted
//! at its port since the last one there, so that the pools of all workers can be added up. Frames that merge segments
//! count as the packets on the wire, each of which may be sampled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_base::{LinkType, Packet, PacketSample, PacketStart, StartLink, XorShift64Star, mix64};
use thalweg_wire::checksum;

use crate::parse::vlan_of;

/// Which packets are sampled, and how much of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSampling {
    /// One packet in this many, at random; at least 1.
    pub rate: u32,
    /// The most bytes of a packet, at most [`Self::HEADER_BYTES_MAX`].
    pub header_bytes: u16,
}

impl PacketSampling {
    pub const RATE_MAX: u32 = 100_000_000;
    /// A sample with so much of a packet fits into a datagram.
    pub const HEADER_BYTES_MAX: u16 = 1024;
    /// Ethernet's header.
    pub const HEADER_BYTES_MIN: u16 = 14;
}

impl Default for PacketSampling {
    /// As other agents on links of 1 Gbit/s.
    fn default() -> Self {
        Self { rate: 1000, header_bytes: 128 }
    }
}

thalweg_base::words! {
    /// Why a collector did not get a sample, in its status and in metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SampleLoss {
        /// The queue to the thread that sends samples was full.
        Queue => "sample-queue",
        /// The system did not send its datagram.
        Send => "send-failed",
        /// sFlow has no number for its header: not IP, on a link other than Ethernet.
        NoHeader => "no-header",
    }
}

/// Makes the samplers of all workers, each with a sequence of its own.
#[derive(Clone, Debug)]
pub struct PacketSamplers {
    sampling: PacketSampling,
    seed: u64,
    /// Numbers the workers.
    made: Arc<AtomicU64>,
}

impl PacketSamplers {
    /// Senders that do not know the seed cannot know which packets are sampled.
    pub fn new(sampling: PacketSampling, seed: u64) -> Self {
        Self { sampling, seed, made: Arc::default() }
    }

    /// The sampler of another worker.
    pub fn another(&self) -> PacketSampler {
        PacketSampler::new(self.sampling, self.seed, self.made.fetch_add(1, Ordering::Relaxed))
    }
}

/// Samples the packets of one worker.
#[derive(Clone, Debug)]
pub struct PacketSampler {
    sampling: PacketSampling,
    rng: XorShift64Star,
    /// Packets to pass over before the next sample.
    left: u64,
    /// By port: packets since the last sample.
    pools: Vec<u32>,
}

impl PacketSampler {
    fn new(sampling: PacketSampling, seed: u64, worker: u64) -> Self {
        let rng = XorShift64Star::new(mix64(seed ^ worker.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let sampling = PacketSampling { rate: sampling.rate.max(1), ..sampling };
        let mut sampler = Self { sampling, rng, left: 0, pools: Vec::new() };
        sampler.left = sampler.skip();
        sampler
    }

    /// Counts a packet with known headers, and samples it if it is its turn.
    #[inline]
    pub fn pass(&mut self, packet: &Packet, frame: &[u8], take: &mut impl FnMut(PacketSample)) {
        let packets = packet.wire_packets();
        match self.pools.get_mut(usize::from(packet.port_in)) {
            Some(pool) => *pool = pool.wrapping_add(packets),
            None => self.add_port(packet.port_in, packets),
        }
        match self.left.checked_sub(u64::from(packets)) {
            Some(left) => self.left = left,
            None => self.sample(packet, frame, packets, take),
        }
    }

    /// Packets by port since the last sample there, which no sample will tell any more.
    pub fn take_pools(&mut self) -> impl Iterator<Item = (u16, u32)> {
        let pools = std::mem::take(&mut self.pools);
        (0..=u16::MAX).zip(pools).filter(|(_, packets)| *packets > 0)
    }

    #[cold]
    fn add_port(&mut self, port: u16, packets: u32) {
        self.pools.resize(usize::from(port) + 1, 0);
        self.pools[usize::from(port)] = packets;
    }

    /// Samples one or more of the packets of this frame.
    #[cold]
    fn sample(&mut self, packet: &Packet, frame: &[u8], packets: u32, take: &mut impl FnMut(PacketSample)) {
        let PacketSampling { rate, header_bytes } = self.sampling;
        let mut nth = self.left;
        while let Ok(segment) = u32::try_from(nth)
            && segment < packets
        {
            let pool = std::mem::take(&mut self.pools[usize::from(packet.port_in)]);
            let start = start_of(packet, frame, (segment, header_bytes.into()));
            take(PacketSample {
                index: packet.index,
                port_in: packet.port_in,
                pool,
                rate,
                start,
                fate: None,
            });
            nth += 1 + self.skip();
        }
        self.left = nth - u64::from(packets);
    }

    /// How many packets to pass over: the geometric distribution of a chance of one in `rate`.
    fn skip(&mut self) -> u64 {
        let word = u32::try_from(self.rng.next_u64() >> 32).unwrap_or(u32::MAX);
        let chance = (f64::from(word) + 1.0) / (f64::from(u32::MAX) + 1.0);
        let skip = chance.ln() / (-1.0 / f64::from(self.sampling.rate)).ln_1p();
        // At most 23 times the rate.
        skip as u64
    }
}

/// How a packet begins on the wire: the `segment`th one that a frame merges, or the only one.
fn start_of(packet: &Packet, frame: &[u8], (segment, bytes_max): (u32, usize)) -> Option<PacketStart> {
    let l3 = usize::from(packet.l3_offset);
    let is_ethernet = packet.link == LinkType::Ethernet;
    let (link, skipped) = match (is_ethernet, frame.get(l3).map(|first| first >> 4)) {
        (true, _) => (StartLink::Ethernet, 0),
        (false, Some(4)) if packet.is_alive() => (StartLink::Ipv4, packet.l3_offset),
        (false, Some(6)) if packet.is_alive() => (StartLink::Ipv6, packet.l3_offset),
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
    Some(PacketStart { link, wire_bytes: bytes.saturating_sub(skipped.into()), vlan, bytes: start })
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

//! Clamps the maximum segment size of TCP (RFC 9293 3.7.1): a SYN announces no longer segments than the ports permit by
//! which it comes and goes. It helps hosts behind a small MTU (PPPoE, a tunnel) where the Internet loses the ICMP errors
//! of path MTU discovery.
//!
//! Only a SYN that announces too much is changed, and its checksum with it (RFC 1624). One without the option stays: it
//! means 536 bytes, or 1220 with IPv6. Of several values each is lowered, because hosts differ in which of them they
//! believe. Behind the end of the list, and behind an option with an impossible length, hosts read nothing, and neither
//! does this.

use crate::route::{NextHops, SharedNextHops};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::{Batch, Packet, PacketFlags};
use thalweg_wire::checksum::ChecksumDelta;
use thalweg_wire::{ip_protocol, tcp};

/// What bounds the segments of TCP through a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentLimit {
    /// The largest segment of IPv4. That of IPv6, whose header is longer, is 20 bytes smaller.
    Bytes(u16),
    /// What the MTU of this port leaves room for, or that of the connection's other port if it is smaller.
    Mtu,
}

/// The headers of a segment without options, by family: a maximum segment size does not count options (RFC 6691).
const HEADERS: u32 = 40;
const HEADERS_IPV6: u32 = 60;
const DATA_OFFSET: usize = 12;
const CHECKSUM: usize = 16;
/// Options (RFC 9293 3.2): the end, a filler, the maximum segment size with its length.
const END: u8 = 0;
const FILLER: u8 = 1;
const MSS: [u8; 2] = [2, 4];

/// The limits of ports, and how often they were applied. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct MssClamp {
    /// By port; empty if none has a limit.
    ports: Arc<[Limited]>,
}

/// A port's limit.
#[derive(Debug)]
struct Limited {
    limit: Option<SegmentLimit>,
    /// SYNs that announced too much.
    lowered: AtomicU64,
}

impl Limited {
    /// The longest IPv4 packet of connections that pass this port; `mtu` is the smaller one of their two ports.
    fn longest(&self, mtu: u32) -> Option<u32> {
        self.limit.map(|limit| match limit {
            SegmentLimit::Bytes(bytes) => u32::from(bytes) + HEADERS,
            SegmentLimit::Mtu => mtu,
        })
    }
}

impl MssClamp {
    /// Clamps at the ports that have a limit here.
    pub fn new(limits: impl IntoIterator<Item = Option<SegmentLimit>>) -> Self {
        let of_port = |limit| Limited { limit, lowered: AtomicU64::new(0) };
        let ports: Vec<Limited> = limits.into_iter().map(of_port).collect();
        let clamps = ports.iter().any(|port| port.limit.is_some());
        Self { ports: if clamps { ports.into() } else { Arc::default() } }
    }

    /// Goes on with the counters of a former configuration, by port.
    pub fn take_over(&self, before: &Self) {
        for (port, before) in self.ports.iter().zip(&*before.ports) {
            port.lowered.fetch_add(before.lowered.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The SYNs that announced more than a port's limit.
    pub fn lowered(&self, port: u16) -> u64 {
        self.ports.get(usize::from(port)).map_or(0, |port| port.lowered.load(Ordering::Relaxed))
    }

    /// Clamps the routed packets of a batch. The next hops know the ports' MTUs.
    #[inline(always)]
    pub fn process(&self, batch: &mut Batch<'_>, next_hops: &SharedNextHops) {
        if !self.ports.is_empty() {
            self.run(batch, &next_hops.load());
        }
    }

    fn run(&self, batch: &mut Batch<'_>, next_hops: &NextHops) {
        for i in 0..batch.len() {
            let packet = &batch.packets()[i];
            let is_first = !packet.flags.has(PacketFlags::LATER_FRAGMENT);
            if packet.protocol != ip_protocol::TCP || !is_first || !packet.is_leaving() {
                continue;
            }
            let Some((port, longest)) = self.strictest(packet, next_hops) else { continue };
            let (packet, l3) = batch.packet_and_l3(i);
            if clamp(packet, l3, longest) {
                port.lowered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The port with the stricter limit of the two that a packet passes.
    fn strictest(&self, packet: &Packet, next_hops: &NextHops) -> Option<(&Limited, u32)> {
        let mtu = next_hops.mtu_of(packet.port_in).min(next_hops.mtu_of(packet.port_out));
        let limited = [packet.port_in, packet.port_out].map(|port| {
            let port = self.ports.get(usize::from(port))?;
            Some((port, port.longest(mtu)?))
        });
        limited.into_iter().flatten().min_by_key(|(_, longest)| *longest)
    }
}

/// Lowers what a SYN announces to what fits packets of IPv4 of this length; returns whether it was more.
fn clamp(packet: &Packet, l3: &mut [u8], longest: u32) -> bool {
    let start = packet.l4_offset.checked_sub(packet.l3_offset).map(usize::from);
    let Some(segment) = start.and_then(|start| l3.get_mut(start..packet.l3_captured_len())) else {
        return false;
    };
    let Some((header, options)) = segment.split_first_chunk_mut::<{ tcp::HEADER_BYTES }>() else {
        return false;
    };
    if header[tcp::FLAGS_AT] & tcp::SYN == 0 {
        return false;
    }
    let length =
        (usize::from(header[DATA_OFFSET] >> 4) * 4).saturating_sub(tcp::HEADER_BYTES).min(options.len());
    let headers = if packet.is_ipv6() { HEADERS_IPV6 } else { HEADERS };
    let most = u16::try_from(longest.saturating_sub(headers)).unwrap_or(u16::MAX);
    let Some(change) = lower_all(&mut options[..length], most) else { return false };
    let [high, low] = &mut header[CHECKSUM..CHECKSUM + 2] else { return false };
    [*high, *low] = change.apply(u16::from_be_bytes([*high, *low])).to_be_bytes();
    true
}

/// Lowers each maximum segment size among a header's options that is more than `most`. Returns the change of the sum, if
/// there was any.
fn lower_all(mut options: &mut [u8], most: u16) -> Option<ChecksumDelta> {
    let (mut change, mut is_even) = (None, true);
    loop {
        let length = match options {
            [] | [END, ..] => return change,
            [FILLER, ..] => 1,
            [kind, length, high, low, ..] if [*kind, *length] == MSS => {
                let old = u16::from_be_bytes([*high, *low]);
                if old > most {
                    [*high, *low] = most.to_be_bytes();
                    // In an odd place a value lies across two words of the sum, so its bytes change places.
                    let turned = |value: u16| if is_even { value } else { value.swap_bytes() };
                    change.get_or_insert_with(ChecksumDelta::default).replace_u16(turned(old), turned(most));
                }
                MSS[1]
            }
            [_, length, ..] if *length >= 2 => *length,
            _ => return change,
        };
        is_even ^= length % 2 == 1;
        options = options.get_mut(usize::from(length)..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingress::Ingress;
    use crate::test_support::{Frame, chunk};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::net::{IpAddr, SocketAddr};
    use thalweg_base::DropReason;
    use thalweg_wire::ipv4::{self, Ipv4Repr};
    use thalweg_wire::testing;

    /// The MTUs and limits of the ports.
    const PORTS: [(u16, Option<SegmentLimit>); 4] = [
        (1500, None),
        (1492, Some(SegmentLimit::Mtu)),
        (1400, None),
        (9000, Some(SegmentLimit::Bytes(1300))),
    ];

    fn clamp_of_ports() -> (MssClamp, SharedNextHops) {
        let mut next_hops = NextHops::new();
        (0..).zip(PORTS).for_each(|(port, (mtu, _))| next_hops.set_mtu(port, mtu.into()));
        (MssClamp::new(PORTS.map(|(_, limit)| limit)), next_hops.into())
    }

    /// The longest packet of a connection between two ports, as the documentation has it.
    fn longest(ports: [usize; 2], is_ipv6: bool) -> u16 {
        let by_mtu = ports.contains(&1).then(|| ports.map(|port| PORTS.get(port).map_or(u16::MAX, |p| p.0)));
        let by_mtu =
            by_mtu.and_then(|mtus| mtus.into_iter().min()).map(|mtu| mtu - if is_ipv6 { 60 } else { 40 });
        let by_bytes = ports.contains(&3).then_some(if is_ipv6 { 1280 } else { 1300 });
        by_mtu.into_iter().chain(by_bytes).min().unwrap_or(u16::MAX)
    }

    fn ends(is_ipv6: bool) -> [SocketAddr; 2] {
        let hosts = if is_ipv6 { ["2001:db8:1::1", "2001:db8:9::7"] } else { ["10.0.0.1", "198.51.100.7"] };
        hosts.map(|host| SocketAddr::new(host.parse().unwrap(), 4000))
    }

    fn segment(is_ipv6: bool, flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
        let [from, to] = ends(is_ipv6);
        testing::tcp_segment_with_options(from, to, flags, options, data)
    }

    /// The slow and obvious way: reads the options as a list, changes it, and writes it again.
    fn rewritten(options: &[u8], most: u16) -> Vec<u8> {
        let mut list: Vec<Vec<u8>> = Vec::new();
        let mut rest = options;
        while let Some(&kind) = rest.first() {
            let length = match kind {
                0 => rest.len(),
                1 => 1,
                _ => rest.get(1).map_or(0, |length| usize::from(*length)),
            };
            let is_sound = kind < 2 || (2..=rest.len()).contains(&length);
            let (option, others) = rest.split_at(if is_sound { length } else { rest.len() });
            list.push(match option {
                [2, 4, high, low] => {
                    let value = u16::from_be_bytes([*high, *low]).min(most);
                    [&[2, 4][..], &value.to_be_bytes()].concat()
                }
                _ => option.to_vec(),
            });
            rest = others;
        }
        list.concat()
    }

    /// What becomes of packets between two ports, and the counters of these.
    fn through(packet: Vec<u8>, ports: [usize; 2], drops: Option<DropReason>) -> (Vec<u8>, u64) {
        let [inward, outward] = ports.map(|port| port as u16);
        let mut chunk = chunk(vec![Frame::raw(packet).on_port(inward)]);
        let mut batch = chunk.batch(0);
        Ingress::default().process(&mut batch);
        let packet = &mut batch.packets_mut()[0];
        assert!(packet.is_alive(), "{:?}", packet.drop_reason());
        packet.port_out = outward;
        drops.into_iter().for_each(|reason| packet.drop_for(reason));
        let (clamp, next_hops) = clamp_of_ports();
        clamp.process(&mut batch, &next_hops);
        let lowered = (0..PORTS.len() as u16).map(|port| clamp.lowered(port)).sum();
        (chunk.frame(0).to_vec(), lowered)
    }

    fn option() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            1 => Just(vec![FILLER]),
            3 => any::<u16>().prop_map(|mss| [&MSS[..], &mss.to_be_bytes()].concat()),
            1 => Just(vec![4, 2]),
            1 => Just(vec![3, 3, 7]),
            1 => vec(any::<u8>(), 1..4),
        ]
    }

    proptest! {
        #[test]
        fn a_syn_announces_no_more_than_fits(
            options in vec(option(), 0..7),
            flags in proptest::sample::select(&[tcp::SYN, tcp::SYN | tcp::ACK, tcp::ACK, tcp::RST][..]),
            ports in [0usize..5, 0usize..5],
            is_ipv6: bool,
            is_fragment: bool,
            data in vec(any::<u8>(), 0..16),
        ) {
            let options: Vec<u8> = options.concat().into_iter().take(40).collect();
            let whole = segment(is_ipv6, flags, &options, &data);
            // Of a first fragment, the data is in the next one.
            let is_fragment = is_fragment && !is_ipv6;
            let first = &whole[..whole.len() - if is_fragment { data.len() } else { 0 }];
            let [from, to] = ends(is_ipv6);
            let before = match (from.ip(), to.ip()) {
                (IpAddr::V4(from), IpAddr::V4(to)) if is_fragment => {
                    let header = Ipv4Repr::new(from, to, ip_protocol::TCP, first.len());
                    testing::ipv4(Ipv4Repr { flags_and_offset: ipv4::MORE_FRAGMENTS, ..header }, first)
                }
                (from, to) => testing::ip(from, to, ip_protocol::TCP, first),
            };
            let (after, lowered) = through(before.clone(), ports, None);
            let most = if flags & tcp::SYN == 0 { u16::MAX } else { longest(ports, is_ipv6) };
            let at = before.len() - first.len();
            let filled = options.len().next_multiple_of(4);
            let expected = segment(is_ipv6, flags, &rewritten(&whole[20..20 + filled], most), &data);
            prop_assert_eq!(&after[at..], &expected[..first.len()]);
            prop_assert_eq!(&after[..at], &before[..at]);
            prop_assert_eq!(lowered, u64::from(after != before));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in vec(any::<u8>(), 0..60), is_ipv6: bool) {
            let [from, to] = ends(is_ipv6).map(|end| end.ip());
            let mut segment = segment(is_ipv6, tcp::SYN, &[], &[]);
            segment.truncate(12);
            segment.extend(bytes);
            let mut chunk = chunk(vec![Frame::raw(testing::ip(from, to, ip_protocol::TCP, &segment)).on_port(1)]);
            let mut batch = chunk.batch(0);
            Ingress::default().process(&mut batch);
            let (clamp, next_hops) = clamp_of_ports();
            clamp.process(&mut batch, &next_hops);
        }
    }

    fn syn(mss: u16) -> Vec<u8> {
        let [from, to] = ends(false).map(|end| end.ip());
        let options = [&MSS[..], &mss.to_be_bytes()].concat();
        testing::ip(from, to, ip_protocol::TCP, &segment(false, tcp::SYN, &options, &[]))
    }

    #[test]
    fn packets_that_wait_are_clamped_and_others_that_stay_are_not() {
        let packet = syn(1460);
        let waits = through(packet.clone(), [0, 1], Some(DropReason::NeighborUnresolved));
        assert_eq!(waits, through(packet.clone(), [0, 1], None));
        assert_eq!(waits.1, 1);
        assert_eq!(through(packet.clone(), [0, 1], Some(DropReason::Local)), (packet, 0));
    }

    #[test]
    fn counters_go_on_in_the_next_configuration() {
        let limits = PORTS.map(|(_, limit)| limit);
        let (old, new) = (MssClamp::new(limits), MssClamp::new(limits.into_iter().take(2)));
        old.ports[1].lowered.store(7, Ordering::Relaxed);
        new.take_over(&old);
        assert_eq!((new.lowered(1), new.lowered(3)), (7, 0));
    }
}

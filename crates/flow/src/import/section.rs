//! Packets, or beginnings of packets, as flows of one packet: what exporters send that do not meter flows
//! themselves (RFC 5477).

use thalweg_base::{ChunkBuilder, DropReason, LinkType, NO_PORT};

use crate::key::{Facts, KeyRules};
use crate::parse::{ParseOptions, parse};
use crate::{Counters, FlowRecord, MeterOptions};
use thalweg_wire::ip_protocol;

/// The bytes of a section that are read: more than the longest chain of headers.
const BYTES_MAX: usize = 2048;

/// The flow of a packet that had `wire_len` bytes and was seen at this time. Fails if it is not IP, or cannot be
/// read.
pub(super) fn flow_of(
    link: LinkType,
    section: &[u8],
    wire_len: u32,
    at_ns: u64,
) -> Result<FlowRecord, DropReason> {
    let section = &section[..section.len().min(BYTES_MAX)];
    let mut builder = ChunkBuilder::with_capacity(ChunkBuilder::HEADROOM + section.len());
    let at = builder.next_frame_offset();
    builder.buffer_mut()[at..at + section.len()].copy_from_slice(section);
    builder.push(at, section.len(), wire_len, at_ns, link, NO_PORT, 0);
    let mut chunk = builder.finish(0, 0, at_ns);
    let mut batch = chunk.whole().0;
    let (packet, frame) = batch.frames().next().ok_or(DropReason::FrameTooShort)?;
    parse(packet, frame, &ParseOptions::default());
    let mut facts = Facts::NONE;
    KeyRules::new(&MeterOptions::default()).read(packet, frame, None, &mut facts)?;
    let key = if facts.ipv6 { facts.key6().flow_key(false) } else { facts.key4().flow_key(false) };
    let ttl = Some(facts.ttl).filter(|ttl| *ttl != 0);
    let counters = Counters {
        packets: 1,
        bytes: u64::from(facts.bytes),
        first_ns: at_ns,
        last_ns: at_ns,
        tcp_flags: (key.protocol == ip_protocol::TCP).then_some(facts.tcp_flags),
        ttl_min: ttl,
        ttl_max: ttl,
    };
    Ok(FlowRecord::new(key, counters, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::testing;

    #[test]
    fn a_packet_is_a_flow_whatever_was_cut_off() {
        let packet = testing::udp(([192, 0, 2, 1], 1000), ([192, 0, 2, 2], 53), &[0; 100]);
        let whole = flow_of(LinkType::RawIp, &packet, 128, 7).unwrap();
        assert_eq!((whole.counters.packets, whole.counters.bytes, whole.counters.last_ns), (1, 128, 7));
        assert_eq!((whole.key.src_port, whole.key.dst_port, whole.key.ingress), (1000, 53, 0));
        assert_eq!(flow_of(LinkType::RawIp, &packet[..24], 128, 7), Ok(whole));
        for length in 0..20 {
            assert!(flow_of(LinkType::RawIp, &packet[..length], 128, 7).is_err(), "{length} bytes");
        }
    }
}

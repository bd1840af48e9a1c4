use crate::DropReason;

/// The packet has no port: it is not routed yet, or its input does not say where it arrived.
pub const NO_PORT: u16 = u16::MAX;
/// The input names a port that is not configured: the packet cannot be accepted.
pub const UNKNOWN_PORT: u16 = u16::MAX - 1;
/// The packet has no class: it was dropped before classification.
pub const NO_CLASS: u8 = u8::MAX;
/// The packet has no shard: the stage that owns shards does not handle it.
pub const NO_SHARD: u16 = u16::MAX;

/// The link-layer header that a frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkType {
    /// Ethernet II, with any VLAN tags.
    Ethernet,
    /// An IPv4 or IPv6 header; the version nibble tells which.
    RawIp,
    /// Linux "cooked" capture, version 1 (16-byte header).
    LinuxCooked,
    /// Linux "cooked" capture, version 2 (20-byte header).
    LinuxCooked2,
    /// BSD loopback: a 4-byte address family, then IP.
    BsdLoopback,
    /// PPP, with or without the address and control bytes of HDLC framing (RFC 1661, 1662).
    Ppp,
    /// Cisco HDLC: address, control, an EtherType.
    CiscoHdlc,
    /// Frame Relay: a Q.922 address, then RFC 2427 or Cisco's EtherType.
    FrameRelay,
    /// FDDI: frame control, addresses, LLC.
    Fddi,
    Ieee80211,
    /// A radiotap header, then an IEEE 802.11 header.
    Radiotap,
    /// A Linux netfilter log: attributes, one of which is the packet.
    NetfilterLog,
    /// Anything else: counted, not decoded.
    Unsupported,
}

/// Facts about a packet that later stages branch on, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFlags(pub u8);

impl PacketFlags {
    /// Set for IPv6, clear for IPv4.
    pub const IPV6: u8 = 1;
    /// Part of a fragmented datagram, first fragment included.
    pub const FRAGMENT: u8 = 2;
    /// A fragment other than the first: it carries no transport header.
    pub const LATER_FRAGMENT: u8 = 4;
    /// `src_port` and `dst_port` hold this packet's (or its datagram's) ports.
    pub const HAS_PORTS: u8 = 8;
    /// NAT has rewritten the packet.
    pub const TRANSLATED: u8 = 16;
    /// Leaves the inside network: NAT translates its source. With `NAT_IN` too, it is a hairpin.
    pub const NAT_OUT: u8 = 32;
    /// Addressed to a public address: NAT translates its destination.
    pub const NAT_IN: u8 = 64;
    /// Denied by an access list that answers the sender (ICMP: administratively prohibited).
    pub const REJECT: u8 = 128;

    /// Whether all bits of `mask` are set.
    #[inline(always)]
    pub fn has(self, mask: u8) -> bool {
        self.0 & mask == mask
    }

    /// Sets the bits of `mask`.
    #[inline(always)]
    pub fn set(&mut self, mask: u8) {
        self.0 |= mask;
    }
}

/// The descriptor of one packet: exactly one cache line, which moves as a whole.
///
/// The span of its bytes in the chunk's slab is private: a packet can be moved, reordered and split off, but
/// never forged or copied, so no two packets ever share bytes (see [`crate::Slab`]).
///
/// Offsets count from the start of the frame as it arrived. The source and the stages fill the fields in the
/// order of the plan; a stage may rely on what earlier ones wrote.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Packet {
    /// Arrival by the capture's clock, in nanoseconds since the epoch.
    pub arrival_ns: u64,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) slab_tag: u32,
    /// Length on the wire; larger than the captured length when the capture cut the packet, or when the frame merges
    /// several: then the sum of their lengths.
    pub wire_len: u32,
    /// Symmetric flow hash: equal for both directions of an untranslated flow.
    pub flow_hash: u32,
    /// Length of the IP packet according to its header, in bytes.
    pub ip_len: u32,
    /// The result of the route look-up; before it, what another stage has chosen instead, or 0.
    pub next_hop: u16,
    /// Payload bytes of each merged segment but the last; 0 if the frame is a single packet.
    pub(crate) segment_bytes: u16,
    /// Place among the packets of its chunk as they arrived, from 0.
    pub index: u16,
    /// Place in the chunk's order of service, from 0; equals `index` until the chunk is scheduled.
    pub position: u16,
    /// Where the IP header begins.
    pub l3_offset: u16,
    /// Where the transport header begins (or the fragment's payload).
    pub l4_offset: u16,
    /// Transport source port, or the identifier of an ICMP echo.
    pub src_port: u16,
    /// Transport destination port, or the identifier of an ICMP echo.
    pub dst_port: u16,
    pub port_in: u16,
    pub port_out: u16,
    /// The shard that owns the packet's state, or would if it had any. Labeling gives one to every live
    /// packet, so that a farm can spread all traffic by it.
    pub shard: u16,
    /// The second shard of a packet that needs two (hairpin NAT), else [`NO_SHARD`].
    pub crossing_shard: u16,
    pub(crate) drop_code: u8,
    /// Bytes of the headers of each merged segment, from the link layer's on.
    pub(crate) segment_headers: u8,
    pub link: LinkType,
    pub flags: PacketFlags,
    /// Transport protocol: the last header of an IPv6 chain.
    pub protocol: u8,
    /// Differentiated services field, ECN bits included.
    pub traffic_class: u8,
    /// Index of the class in the configuration; see [`NO_CLASS`].
    pub class: u8,
    /// Application code if the source or the classifier knows it; 0 means unknown.
    pub application: u8,
}

const _: () = assert!(size_of::<Packet>() == 64);

impl Packet {
    /// Where the frame begins in its slab.
    #[inline(always)]
    pub(crate) fn start(&self) -> usize {
        self.offset as usize
    }

    /// Captured bytes of the frame.
    #[inline(always)]
    pub fn captured_len(&self) -> usize {
        self.len as usize
    }

    /// Captured bytes of the IP packet, from its header to its end or to where the capture cut it.
    #[inline(always)]
    pub fn l3_captured_len(&self) -> usize {
        (self.len as usize).saturating_sub(usize::from(self.l3_offset)).min(self.ip_len as usize)
    }

    /// Payload bytes of each segment but the last, if the frame merges several segments of a TCP flow (see
    /// [`crate::ChunkBuilder::merge_last`]).
    #[inline(always)]
    pub fn segment_bytes(&self) -> Option<u16> {
        (self.segment_bytes != 0).then_some(self.segment_bytes)
    }

    /// The packets that this frame is on a wire: one, or as many as it merges.
    #[inline(always)]
    pub fn wire_packets(&self) -> u32 {
        1 + self.further_segments()
    }

    /// The bytes of these packets from their IP headers on.
    #[inline(always)]
    pub fn wire_ip_bytes(&self) -> u64 {
        u64::from(self.ip_len) + u64::from(self.further_segments()) * u64::from(self.ip_headers())
    }

    /// The length of the longest of these packets, which is the first, from its IP header on.
    pub fn wire_ip_len_max(&self) -> u32 {
        self.wire_ip_len_of(0)
    }

    /// The length of the `nth` of these packets from its IP header on.
    pub fn wire_ip_len_of(&self, nth: u32) -> u32 {
        let payload = u32::from(self.segment_bytes);
        if payload == 0 {
            return self.ip_len;
        }
        let headers = self.ip_headers();
        let left = self.ip_len.saturating_sub(headers).saturating_sub(nth.saturating_mul(payload));
        headers + left.min(payload)
    }

    /// Bytes from the IP header of a merged segment to its payload.
    #[inline(always)]
    fn ip_headers(&self) -> u32 {
        u32::from(self.segment_headers).saturating_sub(u32::from(self.l3_offset))
    }

    /// Merged segments behind the first. Each adds its headers to the length on the wire.
    #[inline(always)]
    pub(crate) fn further_segments(&self) -> u32 {
        match self.segment_bytes {
            0 => 0,
            _ => (self.wire_len - self.len) / u32::from(self.segment_headers),
        }
    }

    /// Whether no stage has dropped the packet.
    #[inline(always)]
    pub fn is_alive(&self) -> bool {
        self.drop_code == 0
    }

    /// The drop reason; `None` while the packet is alive.
    pub fn drop_reason(&self) -> Option<DropReason> {
        DropReason::from_code(self.drop_code)
    }

    /// Drops the packet. Only the first reason counts.
    #[inline(always)]
    pub fn drop_for(&mut self, reason: DropReason) {
        if self.drop_code == 0 {
            self.drop_code = reason as u8;
        }
    }

    /// Whether the packet leaves the fast path only for the time being: the host thread will resolve its neighbor
    /// or cut it, and send it on.
    #[inline(always)]
    pub fn is_detained(&self) -> bool {
        matches!(self.drop_reason(), Some(DropReason::NeighborUnresolved | DropReason::MtuExceeded))
    }

    /// Whether the packet leaves by `port_out` unless a stage behind the look-up forbids it: now, or once the host
    /// thread has resolved its neighbor or cut it.
    #[inline(always)]
    pub fn is_leaving(&self) -> bool {
        self.is_alive() || self.is_detained()
    }

    /// Drops the packet even if it was left to the host thread, to be sent on later or as one for the router itself:
    /// this becomes its reason. For stages that judge such packets too.
    #[inline(always)]
    pub fn drop_for_good(&mut self, reason: DropReason) {
        self.drop_code = 0;
        self.drop_for(reason);
    }

    /// Whether the packet is IPv6.
    #[inline(always)]
    pub fn is_ipv6(&self) -> bool {
        self.flags.has(PacketFlags::IPV6)
    }
}

//! Undoes what the kernel merges or leaves to hardware, so that frames are as on a wire.
//!
//! ```text
//! |Ethernet|IP|TCP|           payload, up to 64 KiB          |   what the kernel has (TSO, GRO, LRO; UDP: USO)
//!      |
//!      v   Segments
//! |Ethernet|IP'|TCP'| payload |   |Ethernet|IP'|TCP'| payload |  ...   what a wire would have carried
//! ```
//!
//! A kernel that sends to a virtual interface hands over whole super-segments and unfinished checksums, because it
//! expects hardware to do the rest. A kernel that receives merges segments before any program sees them. A router
//! that passed such frames on would send frames that are too long or have wrong checksums. The header in front of
//! the frame (`struct virtio_net_hdr`, VIRTIO 1.2 section 5.1.6) says what is left to do: [`Offload`].
//!
//! # Fields of a segment
//!
//! | field | first | middle | last |
//! |---|---|---|---|
//! | IPv4 identification | as it was | + 1 each | + 1 each |
//! | IPv4 total length, header checksum; IPv6 payload length; UDP length | computed | computed | computed |
//! | TCP sequence number | as it was | + payload before it | + payload before it |
//! | TCP FIN, PSH | cleared | cleared | as it was |
//! | TCP CWR (RFC 3168 section 6.1.2: once) | as it was | cleared | cleared |
//! | TCP, UDP checksum | computed | computed | computed |
//!
//! Everything else (options, DSCP and ECN, addresses, ports) is the same in all segments. IPv6 extension headers
//! are allowed, because the offload header says where the transport header is.
//!
//! # Frames that stay whole
//!
//! The stages need the headers of a TCP flow once, not once for each of its segments. So a frame may pass them whole
//! ([`Segments::may_stay_merged`]) and leave whole if the driver can send it ([`Opening`]); otherwise it is cut on its
//! way out. Its transport checksum means nothing on the way: cutting the frame computes that of each segment, and
//! [`Opening`] stores the pseudo header's sum of addresses and ports as they are then.
//!
//! A frame stays whole only if its segments differ in nothing that a stage looks at. Those with SYN, FIN, RST, URG or
//! CWR are cut, and so are fragments, and packets with IPv4 options or IPv6 extension headers.
//!
//! Pure: no clock, no socket. No bytes make this module panic; what makes no sense is an error.
//!
//! Missing: segments inside tunnels (the kernel does not hand those over in this form either), UDP fragmentation
//! offload (gone from the kernel since 4.14), SCTP.

use thalweg_wire::ethernet::HEADER_BYTES as ETHERNET;
use thalweg_wire::ip_protocol::{TCP, UDP};
use thalweg_wire::vlan::TAG_BYTES;
use thalweg_wire::{EtherType, checksum, tcp};

/// Bytes of `struct virtio_net_hdr` in its legacy form, in the machine's byte order.
pub const OFFLOAD_BYTES: usize = 10;

/// How far an Ethernet header moves what is behind it.
pub(super) const ETHERNET_OFFSET: i16 = 14;
const _: () = assert!(ETHERNET == 14);

const FLAG_NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The most tags of a frame: a bound for the search.
const TAGS_MAX: usize = 4;

/// The longest header that [`link_header_bytes`] finds.
pub(super) const LINK_HEADER_BYTES_MAX: usize = ETHERNET + TAGS_MAX * TAG_BYTES;

const FIN_PSH: u8 = tcp::FIN | tcp::PSH;
const CWR: u8 = 0x80;
/// Flags that all segments have in common, and PSH, which only the last may have.
const FLAGS_OF_MERGED: u8 = tcp::ACK | tcp::PSH | 0x40;
/// The longest headers of a frame that stays whole: Ethernet with two tags, IPv4 or IPv6, and TCP with all options.
const OPENING_BYTES_MAX: usize = ETHERNET + 2 * TAG_BYTES + 60 + 60;
/// Where the checksum is in a TCP header.
const TCP_CHECKSUM: u16 = 16;

/// The work that is left to do on a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// If the checksum is unfinished: where the sum begins, and the offset from there to the checksum field, which
    /// holds the pseudo header's sum.
    pub checksum: Option<(u16, u16)>,
    /// How to cut the frame, if it consists of merged segments.
    pub segments: Option<SegmentKind>,
}

/// How to cut a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentKind {
    pub transport: Transport,
    /// Payload bytes of each segment but the last.
    pub payload: u16,
}

/// The transport protocol of merged segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of one flow, over IPv4 or IPv6.
    Udp,
}

/// Why a frame or its offload header makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    #[error("merged segments of an unknown kind ({0})")]
    Kind(u8),
    #[error("merged segments of length 0")]
    NoPayload,
    /// The frame ends within its headers.
    #[error("merged segments that end within their headers")]
    Short,
    /// The frame has other headers than the kind of segments implies.
    #[error("merged segments whose headers are of another kind than the kernel says")]
    Mismatch,
    /// The checksum field lies outside the frame.
    #[error("an unfinished checksum whose place is outside the frame")]
    Checksum,
}

impl Offload {
    /// Reads the offload header.
    pub fn parse(header: &[u8; OFFLOAD_BYTES]) -> Result<Self, SegmentError> {
        let [flags, kind, _, _, size_low, size_high, start_low, start_high, offset_low, offset_high] =
            *header;
        let start = u16::from_ne_bytes([start_low, start_high]);
        let offset = u16::from_ne_bytes([offset_low, offset_high]);
        let transport = match kind & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCP_V4 => Some(Transport::TcpV4),
            GSO_TCP_V6 => Some(Transport::TcpV6),
            GSO_UDP_L4 => Some(Transport::Udp),
            other => return Err(SegmentError::Kind(other)),
        };
        let payload = u16::from_ne_bytes([size_low, size_high]);
        if transport.is_some() && payload == 0 {
            return Err(SegmentError::NoPayload);
        }
        Ok(Self {
            checksum: (flags & FLAG_NEEDS_CHECKSUM != 0).then_some((start, offset)),
            segments: transport.map(|transport| SegmentKind { transport, payload }),
        })
    }

    /// Whether nothing is left to do.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Finishes a checksum: sums from `start` to the end of the frame and stores the result at `start + offset`.
pub fn finish_checksum(frame: &mut [u8], start: u16, offset: u16) -> Result<(), SegmentError> {
    let (start, at) = (usize::from(start), usize::from(start) + usize::from(offset));
    if at + 2 > frame.len() {
        return Err(SegmentError::Checksum);
    }
    // The field holds the pseudo header's sum, so it is part of the sum.
    let sum = checksum::finish(checksum::sum(&frame[start..], 0));
    // RFC 768: a sum of zero is sent as all ones, since zero means no checksum. For TCP both are the same number.
    let sum = if sum == 0 { 0xffff } else { sum };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// The length of a frame's Ethernet header with its VLAN tags.
pub fn link_header_bytes(frame: &[u8]) -> usize {
    let mut length = ETHERNET;
    for _ in 0..TAGS_MAX {
        match frame.get(length - 2..length) {
            Some(&[a, b]) if EtherType::from_be_bytes([a, b]).is_tag() => length += TAG_BYTES,
            _ => break,
        }
    }
    length
}

/// Cuts one frame into its segments.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    layout: Layout,
    kind: Transport,
    payload: usize,
    /// End of the IP packet within the frame.
    end: usize,
    written: usize,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Layout {
    network: usize,
    transport: usize,
    data: usize,
    v6: bool,
}

impl Segments {
    /// Finds the segments of a frame that stayed merged, with up to `payload` bytes of TCP each. Its IP header is at
    /// `network`.
    pub fn of_tcp(frame: &[u8], network: usize, payload: u16) -> Result<Self, SegmentError> {
        let version = frame.get(network).map(|byte| byte >> 4);
        let transport = if version == Some(6) { Transport::TcpV6 } else { Transport::TcpV4 };
        Self::behind(network, frame, SegmentKind { transport, payload }, None)
    }

    /// Finds the segments of a frame, without copying it.
    pub fn new(frame: &[u8], kind: SegmentKind, checksum: Option<(u16, u16)>) -> Result<Self, SegmentError> {
        Self::behind(link_header_bytes(frame), frame, kind, checksum)
    }

    fn behind(
        network: usize,
        frame: &[u8],
        kind: SegmentKind,
        checksum: Option<(u16, u16)>,
    ) -> Result<Self, SegmentError> {
        let (v6, header_end, end) = match frame.get(network).map(|byte| byte >> 4) {
            Some(4) => {
                let header = frame.get(network..network + 20).ok_or(SegmentError::Short)?;
                let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
                (false, network + usize::from(header[0] & 15) * 4, network + total)
            }
            Some(6) => {
                let header = frame.get(network..network + 40).ok_or(SegmentError::Short)?;
                let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
                (true, network + 40, network + 40 + payload)
            }
            _ => return Err(SegmentError::Mismatch),
        };
        // A length that does not fit its field is 0 (jumbograms, RFC 2675; Linux's "big TCP").
        let end = if end <= header_end || end > frame.len() { frame.len() } else { end };
        let transport = match checksum {
            Some((start, _)) if v6 && usize::from(start) >= header_end => usize::from(start),
            _ => header_end,
        };
        let protocol_fits = match kind.transport {
            Transport::TcpV4 => !v6 && frame.get(network + 9) == Some(&TCP),
            // The protocol may be behind extension headers.
            Transport::TcpV6 => v6,
            Transport::Udp => v6 || frame.get(network + 9) == Some(&UDP),
        };
        if !protocol_fits || header_end < network + 20 {
            return Err(SegmentError::Mismatch);
        }
        let data = match kind.transport {
            Transport::Udp => transport + 8,
            Transport::TcpV4 | Transport::TcpV6 => {
                let words = usize::from(*frame.get(transport + 12).ok_or(SegmentError::Short)? >> 4);
                if words < 5 {
                    return Err(SegmentError::Mismatch);
                }
                transport + words * 4
            }
        };
        if data > end || kind.payload == 0 {
            return Err(SegmentError::Short);
        }
        let payload = usize::from(kind.payload);
        let count = (end - data).div_ceil(payload).max(1);
        let layout = Layout { network, transport, data, v6 };
        Ok(Self { layout, kind: kind.transport, payload, end, written: 0, count })
    }

    /// Bytes of the headers that each segment has, from the link layer on.
    pub fn header_bytes(&self) -> usize {
        self.layout.data
    }

    /// Payload bytes of each segment but the last.
    pub fn payload_bytes(&self) -> usize {
        self.payload
    }

    /// The length of all segments' frames together.
    pub fn wire_bytes(&self) -> usize {
        self.end + (self.count - 1) * self.layout.data
    }

    /// Whether the stages may take `frame`, from which this was made, whole: see the module.
    pub fn may_stay_merged(&self, frame: &[u8]) -> bool {
        let Layout { network, transport, data, v6 } = self.layout;
        let Some(header) = frame.get(network..transport) else { return false };
        let length = (self.end - network) as u64;
        let is_plain = if v6 {
            // No extension header, and a payload length that holds.
            header.len() == 40
                && header[6] == TCP
                && u64::from(u16::from_be_bytes([header[4], header[5]])) + 40 == length
        } else {
            header.len() == 20
                && u64::from(u16::from_be_bytes([header[2], header[3]])) == length
                && u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0
        };
        is_plain
            && self.kind != Transport::Udp
            && self.count > 1
            && self.end == frame.len()
            && data <= OPENING_BYTES_MAX
            && frame[transport + tcp::FLAGS_AT] & !FLAGS_OF_MERGED == 0
    }

    /// The number of segments that have not been written or skipped.
    pub fn left(&self) -> usize {
        self.count - self.written
    }

    /// The length of the next segment's frame; `None` after the last.
    pub fn next_bytes(&self) -> Option<usize> {
        (self.written < self.count).then(|| self.layout.data + self.part().len())
    }

    fn part(&self) -> std::ops::Range<usize> {
        let start = self.layout.data + self.written * self.payload;
        start..(start + self.payload).min(self.end)
    }

    /// Skips the next segment.
    pub fn skip(&mut self) {
        self.written += usize::from(self.written < self.count);
    }

    /// Writes the next segment to the start of `into`, which must have room for [`next_bytes`](Self::next_bytes).
    /// `frame` is the one that was given to [`new`](Self::new).
    pub fn write_next(&mut self, frame: &[u8], into: &mut [u8]) {
        let Some(bytes) = self.next_bytes() else { return };
        let part = self.part();
        let Layout { data, .. } = self.layout;
        let into = &mut into[..bytes];
        into[..data].copy_from_slice(&frame[..data]);
        into[data..].copy_from_slice(&frame[part]);
        match self.kind {
            Transport::Udp => {
                let length = (bytes - self.layout.transport) as u16;
                let at = self.layout.transport + 4;
                into[at..at + 2].copy_from_slice(&length.to_be_bytes());
            }
            Transport::TcpV4 | Transport::TcpV6 => self.write_tcp(into),
        }
        self.write_network(into);
        self.write_checksum(into);
        self.written += 1;
    }

    fn write_tcp(&self, into: &mut [u8]) {
        let header = &mut into[self.layout.transport..];
        let before = (self.written * self.payload) as u32;
        let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]).wrapping_add(before);
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        if self.written + 1 < self.count {
            header[13] &= !FIN_PSH;
        }
        if self.written > 0 {
            header[13] &= !CWR;
        }
    }

    fn write_network(&self, into: &mut [u8]) {
        let Layout { network, transport, v6, .. } = self.layout;
        let bytes = into.len();
        let header = &mut into[network..];
        if v6 {
            header[4..6].copy_from_slice(&((bytes - network - 40) as u16).to_be_bytes());
            return;
        }
        header[2..4].copy_from_slice(&((bytes - network) as u16).to_be_bytes());
        let identification = u16::from_be_bytes([header[4], header[5]]).wrapping_add(self.written as u16);
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        header[10..12].fill(0);
        let sum = checksum::finish(checksum::sum(&header[..transport - network], 0));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    fn write_checksum(&self, into: &mut [u8]) {
        let Layout { network, transport, v6, .. } = self.layout;
        let (protocol, field) = match self.kind {
            Transport::Udp => (UDP, 6),
            Transport::TcpV4 | Transport::TcpV6 => (TCP, 16),
        };
        let length = (into.len() - transport) as u32;
        let pseudo = checksum::sum(&into[addresses(network, v6)], u32::from(protocol) + length);
        into[transport + field..transport + field + 2].fill(0);
        let sum = checksum::finish(checksum::sum(&into[transport..], pseudo));
        let sum = if sum == 0 && protocol == UDP { 0xffff } else { sum };
        into[transport + field..transport + field + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The beginning of a merged frame for a receiver that cuts it itself or takes it whole: an offload header, and the
/// frame's headers with an unfinished checksum. The rest of the frame follows unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    bytes: [u8; OFFLOAD_BYTES + OPENING_BYTES_MAX],
    headers: usize,
    rest_at: usize,
    longest: usize,
    count: usize,
    wire_bytes: usize,
}

impl Opening {
    /// Makes the beginning of a frame that merges TCP segments with up to `payload` bytes each.
    pub fn new(frame: &[u8], payload: u16) -> Result<Self, SegmentError> {
        let segments = Segments::of_tcp(frame, link_header_bytes(frame), payload)?;
        let Layout { network, transport, data, v6 } = segments.layout;
        if data > OPENING_BYTES_MAX || segments.end != frame.len() {
            return Err(SegmentError::Mismatch);
        }
        let mut bytes = [0; OFFLOAD_BYTES + OPENING_BYTES_MAX];
        let (offload, headers) = bytes.split_at_mut(OFFLOAD_BYTES);
        offload[0] = FLAG_NEEDS_CHECKSUM;
        offload[1] = if v6 { GSO_TCP_V6 } else { GSO_TCP_V4 };
        let place = |at: usize| u16::try_from(at).map_err(|_| SegmentError::Mismatch);
        let fields = [place(data)?, payload, place(transport)?, TCP_CHECKSUM];
        for (field, value) in offload[2..].chunks_exact_mut(2).zip(fields) {
            field.copy_from_slice(&value.to_ne_bytes());
        }
        headers[..data].copy_from_slice(&frame[..data]);
        let length = u32::try_from(frame.len() - transport).map_err(|_| SegmentError::Mismatch)?;
        let pseudo = checksum::sum(&frame[addresses(network, v6)], u32::from(TCP) + length);
        let at = transport + usize::from(TCP_CHECKSUM);
        headers[at..at + 2].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
        let Segments { payload, count, .. } = segments;
        let longest = data + payload.min(frame.len() - data);
        Ok(Self { bytes, headers: data, rest_at: data, longest, count, wire_bytes: segments.wire_bytes() })
    }

    /// Takes off the Ethernet header, for an interface without a link layer.
    pub fn undress(&mut self) {
        self.bytes.copy_within(OFFLOAD_BYTES + ETHERNET..OFFLOAD_BYTES + self.headers, OFFLOAD_BYTES);
        self.headers -= ETHERNET;
        move_offsets(&mut self.bytes, -ETHERNET_OFFSET);
    }

    /// Offload header and headers.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..OFFLOAD_BYTES + self.headers]
    }

    /// Where the rest begins in the frame.
    pub fn rest_at(&self) -> usize {
        self.rest_at
    }

    /// The length of the longest segment's frame.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The number of segments.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The length of all segments' frames together.
    pub fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }
}

/// Moves what an offload header says about places in the frame (`hdr_len`, `csum_start`).
pub fn move_offsets(offload: &mut [u8], by: i16) {
    for at in [2, 6] {
        let place = u16::from_ne_bytes([offload[at], offload[at + 1]]);
        offload[at..at + 2].copy_from_slice(&place.wrapping_add_signed(by).to_ne_bytes());
    }
}

/// Where the addresses of an IP header at `network` are.
fn addresses(network: usize, v6: bool) -> std::ops::Range<usize> {
    if v6 { network + 8..network + 40 } else { network + 12..network + 20 }
}

#[cfg(test)]
mod tests;

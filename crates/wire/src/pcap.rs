//! Reads and writes classic pcap files: a file header, then records, each with a header and the bytes of a
//! frame.
//!
//! Everything here is a pure function of the given bytes; others read the files. The magic number gives the
//! byte order, the unit of fractional seconds (micro- or nanoseconds), and whether record headers have the
//! eight extra bytes of "modified" libpcap (Kuznetzov's patch), which are skipped.
//!
//! The upper bits of the link type field (length of the frame check sequence) are ignored: IP's length field
//! finds the end of the packet anyway.
//!
//! Format: draft-ietf-opsawg-pcap; link types: draft-ietf-opsawg-pcaplinktype.
//!
//! Files older than version 2.3 have the two lengths of a record in the opposite order. Some writers of 2.3
//! still did, so there the smaller length is taken as the captured one (as libpcap does).

use thalweg_base::LinkType;

pub const FILE_HEADER_LEN: usize = 24;
/// Without the extra bytes of modified libpcap.
pub const RECORD_HEADER_LEN: usize = 16;
/// The longest frame of a record; more is an error (libpcap's own limit).
pub const FRAME_BYTES_MAX: usize = 262_144;

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

/// The byte order of a capture's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// Decodes 16 bits.
    #[inline(always)]
    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Decodes 32 bits.
    #[inline(always)]
    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The number of 32 bits at `at`, or `None` past the end.
    pub(crate) fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        Some(self.u32(*bytes.get(at..)?.first_chunk()?))
    }

    /// The number of 16 bits at `at`, or `None` past the end.
    pub(crate) fn u16_at(self, bytes: &[u8], at: usize) -> Option<u16> {
        Some(self.u16(*bytes.get(at..)?.first_chunk()?))
    }

    fn bytes_of(self, n: u32) -> [u8; 4] {
        match self {
            ByteOrder::Little => n.to_le_bytes(),
            ByteOrder::Big => n.to_be_bytes(),
        }
    }
}

/// Maps a link type number.
pub fn link_type(code: u32) -> LinkType {
    match code {
        0 | 108 => LinkType::BsdLoopback,
        1 => LinkType::Ethernet,
        // RAW under its three numbers, then bare IPv4 and IPv6.
        12 | 14 | 101 | 228 | 229 => LinkType::RawIp,
        // PPP, and PPP in HDLC framing.
        9 | 50 => LinkType::Ppp,
        10 => LinkType::Fddi,
        104 => LinkType::CiscoHdlc,
        105 => LinkType::Ieee80211,
        107 => LinkType::FrameRelay,
        113 => LinkType::LinuxCooked,
        127 => LinkType::Radiotap,
        239 => LinkType::NetfilterLog,
        276 => LinkType::LinuxCooked2,
        _ => LinkType::Unsupported,
    }
}

/// Why the bytes are not a valid capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcapError {
    /// The first four bytes are not a magic number.
    #[error("expected a capture's magic number, found {magic:#010x}")]
    NotACapture {
        /// Read as little-endian.
        magic: u32,
    },
    /// A record claims more bytes than the limit.
    #[error("expected a record of at most {FRAME_BYTES_MAX} bytes, found one of {bytes}")]
    RecordTooLong {
        /// The length claimed.
        bytes: u32,
    },
}

/// The order of a record's two lengths, which depends on the file's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthOrder {
    /// Captured length first, as since version 2.4.
    CapturedFirst,
    /// Wire length first, as before version 2.3.
    WireFirst,
    /// Unknown, in version 2.3: the smaller one is the captured length.
    Either,
}

/// The decoded file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    pub order: ByteOrder,
    /// Nanoseconds per unit of a record's fraction: 1000 or 1.
    pub nanoseconds_per_unit: u32,
    /// Record headers have the eight extra bytes of modified libpcap.
    pub modified: bool,
    pub lengths: LengthOrder,
    /// The longest frame according to the writer; 0 for unknown.
    pub snap_len: u32,
    /// Link type number, for [`link_type`].
    pub link_code: u32,
}

impl FileHeader {
    /// A header for a new file: little-endian, nanoseconds.
    pub fn nanoseconds(link_code: u32) -> Self {
        Self {
            order: ByteOrder::Little,
            nanoseconds_per_unit: 1,
            modified: false,
            lengths: LengthOrder::CapturedFirst,
            snap_len: FRAME_BYTES_MAX as u32,
            link_code,
        }
    }

    /// Whether these first bytes are a magic number of the format.
    pub fn is_magic(bytes: &[u8; 4]) -> bool {
        Self::of_magic(*bytes).is_some()
    }

    fn of_magic(bytes: [u8; 4]) -> Option<(ByteOrder, u32, bool)> {
        [ByteOrder::Little, ByteOrder::Big].into_iter().find_map(|order| match order.u32(bytes) {
            MAGIC_MICROSECONDS => Some((order, 1000, false)),
            MAGIC_NANOSECONDS => Some((order, 1, false)),
            MAGIC_MODIFIED => Some((order, 1000, true)),
            _ => None,
        })
    }

    /// Parses a file header. Errors with [`PcapError::NotACapture`].
    pub fn parse(bytes: &[u8; FILE_HEADER_LEN]) -> Result<Self, PcapError> {
        let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let (order, nanoseconds_per_unit, modified) =
            Self::of_magic(magic).ok_or(PcapError::NotACapture { magic: u32::from_le_bytes(magic) })?;
        let number = |at: usize| order.u32([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let lengths = match (order.u16([bytes[4], bytes[5]]), order.u16([bytes[6], bytes[7]])) {
            (2, 0..=2) => LengthOrder::WireFirst,
            (2, 3) => LengthOrder::Either,
            _ => LengthOrder::CapturedFirst,
        };
        let (snap_len, link_code) = (number(16), number(20) & 0x03ff_ffff);
        Ok(Self { order, nanoseconds_per_unit, modified, lengths, snap_len, link_code })
    }

    /// Encodes the header: version 2.4 unless lengths are in another order; time zone and accuracy are zero.
    pub fn encode(&self) -> [u8; FILE_HEADER_LEN] {
        let magic = match (self.modified, self.nanoseconds_per_unit) {
            (true, _) => MAGIC_MODIFIED,
            (false, 1) => MAGIC_NANOSECONDS,
            (false, _) => MAGIC_MICROSECONDS,
        };
        let minor = match self.lengths {
            LengthOrder::WireFirst => 2,
            LengthOrder::Either => 3,
            LengthOrder::CapturedFirst => 4,
        };
        let version = match self.order {
            ByteOrder::Little => minor << 16 | 2,
            ByteOrder::Big => 2 << 16 | minor,
        };
        let mut out = [0; FILE_HEADER_LEN];
        for (slot, n) in
            out.as_chunks_mut::<4>().0.iter_mut().zip([magic, version, 0, 0, self.snap_len, self.link_code])
        {
            *slot = self.order.bytes_of(n);
        }
        out
    }

    /// Bytes of every record header.
    #[inline(always)]
    pub fn record_header_len(&self) -> usize {
        if self.modified { RECORD_HEADER_LEN + 8 } else { RECORD_HEADER_LEN }
    }
}

/// The decoded header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Seconds since the epoch.
    pub seconds: u32,
    /// In units of the file's resolution.
    pub fraction: u32,
    pub captured_len: u32,
    pub wire_len: u32,
}

impl RecordHeader {
    /// Parses a record header. Errors with [`PcapError::RecordTooLong`].
    #[inline(always)]
    pub fn parse(file: &FileHeader, bytes: &[u8; RECORD_HEADER_LEN]) -> Result<Self, PcapError> {
        let number = |at: usize| file.order.u32([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (first, second) = (number(8), number(12));
        let (captured_len, wire_len) = match file.lengths {
            LengthOrder::CapturedFirst => (first, second),
            LengthOrder::WireFirst => (second, first),
            LengthOrder::Either => (first.min(second), first.max(second)),
        };
        if captured_len as usize > FRAME_BYTES_MAX {
            return Err(PcapError::RecordTooLong { bytes: captured_len });
        }
        Ok(Self {
            seconds: number(0),
            fraction: number(4),
            captured_len,
            wire_len: wire_len.max(captured_len),
        })
    }

    /// Makes a header for a frame that arrived at `arrival_ns`, in the file's resolution. Times after the
    /// year 2106 do not fit the format and wrap.
    pub fn new(file: &FileHeader, arrival_ns: u64, captured_len: u32, wire_len: u32) -> Self {
        let fraction = (arrival_ns % 1_000_000_000) as u32 / file.nanoseconds_per_unit.max(1);
        Self { seconds: (arrival_ns / 1_000_000_000) as u32, fraction, captured_len, wire_len }
    }

    /// Encodes the header, without the extra bytes of modified libpcap.
    pub fn encode(&self, file: &FileHeader) -> [u8; RECORD_HEADER_LEN] {
        let mut out = [0; RECORD_HEADER_LEN];
        let lengths = match file.lengths {
            LengthOrder::CapturedFirst | LengthOrder::Either => [self.captured_len, self.wire_len],
            LengthOrder::WireFirst => [self.wire_len, self.captured_len],
        };
        let fields = [self.seconds, self.fraction, lengths[0], lengths[1]];
        for (slot, n) in out.as_chunks_mut::<4>().0.iter_mut().zip(fields) {
            *slot = file.order.bytes_of(n);
        }
        out
    }

    /// Arrival in nanoseconds since the epoch. Fractions above a second, which broken writers produce, are
    /// added.
    #[inline(always)]
    pub fn arrival_ns(&self, file: &FileHeader) -> u64 {
        u64::from(self.seconds) * 1_000_000_000
            + u64::from(self.fraction) * u64::from(file.nanoseconds_per_unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_header() -> impl Strategy<Value = FileHeader> {
        use LengthOrder::*;
        let lengths = prop_oneof![Just(CapturedFirst), Just(WireFirst), Just(Either)];
        (any::<bool>(), 0..3u8, lengths, any::<u32>(), 0u32..0x0400_0000).prop_map(
            |(big, kind, lengths, snap_len, link_code)| FileHeader {
                order: if big { ByteOrder::Big } else { ByteOrder::Little },
                nanoseconds_per_unit: if kind == 1 { 1 } else { 1000 },
                modified: kind == 2,
                lengths,
                snap_len,
                link_code,
            },
        )
    }

    #[test]
    fn known_bytes() {
        // The header tcpdump 4.99 writes on x86: microseconds, version 2.4, 262144 bytes, Ethernet.
        let bytes = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
        let header = FileHeader::parse(&bytes).unwrap();
        assert_eq!(
            (header.order, header.nanoseconds_per_unit, header.modified),
            (ByteOrder::Little, 1000, false)
        );
        assert_eq!((header.snap_len, header.link_code), (262_144, 1));
        assert_eq!(header.encode(), bytes);
        let record = [0x10, 0, 0, 0, 0x20, 0, 0, 0, 60, 0, 0, 0, 64, 0, 0, 0];
        let record = RecordHeader::parse(&header, &record).unwrap();
        assert_eq!(record.arrival_ns(&header), 16_000_032_000);
        assert_eq!((record.captured_len, record.wire_len), (60, 64));
    }

    #[test]
    fn old_files_have_lengths_the_other_way_round() {
        let record = [0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 60, 0, 0, 0];
        for (minor, lengths) in [(0, (60, 64)), (2, (60, 64)), (3, (60, 64)), (4, (64, 64))] {
            let mut bytes = FileHeader::nanoseconds(1).encode();
            bytes[6] = minor;
            let header = FileHeader::parse(&bytes).unwrap();
            let record = RecordHeader::parse(&header, &record).unwrap();
            assert_eq!((record.captured_len, record.wire_len), lengths, "version 2.{minor}");
        }
    }

    #[test]
    fn link_types() {
        for (code, expected) in [
            (0, LinkType::BsdLoopback),
            (1, LinkType::Ethernet),
            (101, LinkType::RawIp),
            (229, LinkType::RawIp),
            (113, LinkType::LinuxCooked),
            (276, LinkType::LinuxCooked2),
            (9, LinkType::Ppp),
            (105, LinkType::Ieee80211),
            (127, LinkType::Radiotap),
            (147, LinkType::Unsupported),
        ] {
            assert_eq!(link_type(code), expected);
        }
    }

    proptest! {
        #[test]
        fn headers_round_trip(file in any_header(), seconds: u32, nanoseconds in 0u64..1_000_000_000,
                              captured in 0u32..=FRAME_BYTES_MAX as u32, more in 0u32..1000) {
            prop_assert_eq!(FileHeader::parse(&file.encode()), Ok(file));
            let arrival = u64::from(seconds) * 1_000_000_000 + nanoseconds;
            let record = RecordHeader::new(&file, arrival, captured, captured + more);
            let back = RecordHeader::parse(&file, &record.encode(&file)).unwrap();
            prop_assert_eq!(back, record);
            prop_assert_eq!(back.arrival_ns(&file), arrival - arrival % u64::from(file.nanoseconds_per_unit));
        }

        #[test]
        fn strangers_are_refused(bytes: [u8; FILE_HEADER_LEN]) {
            let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
            prop_assert_eq!(FileHeader::parse(&bytes).is_ok(), FileHeader::is_magic(&magic));
        }
    }
}

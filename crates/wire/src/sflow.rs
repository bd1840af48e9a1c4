//! sFlow 5 (<https://sflow.org/sflow_version_5.txt>): datagrams of samples, in XDR (RFC 4506).
//!
//! Flow samples are read in both forms, compact and expanded, with the records that describe a packet and its way.
//! Of counter samples the generic counters of interfaces are read. Other records are passed over by their length.
//! [`Writer`] writes datagrams of both.

mod counters;
mod put;
mod write;

pub use counters::{CounterSample, DirectionCounters, InterfaceCounters};
pub use write::{DATAGRAM_BYTES_MAX, Source, Writer};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a datagram, or the rest of it, is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SflowFault {
    #[error("sFlow {0}: expected version 5")]
    Version(u32),
    #[error("ends inside its header")]
    HeaderShort,
    /// An address of neither IPv4 nor IPv6.
    #[error("an address of type {0}")]
    AddressType(u32),
    #[error("sample {number} ends behind the datagram, or inside a record")]
    SampleShort {
        /// From 1.
        number: u32,
    },
}

/// A datagram's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The address by which the exporter calls itself.
    pub agent: IpAddr,
    pub sub_agent: u32,
    /// Of the sub-agent's datagrams.
    pub sequence: u32,
    pub samples: u32,
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample<'a> {
    Flow(FlowSample<'a>),
    Counters(CounterSample),
    /// Of a vendor, or of a kind that is not read.
    Other,
}

/// A packet that was sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSample<'a> {
    /// One packet in this many was sampled.
    pub rate: u32,
    pub input: Interface,
    pub output: Interface,
    pub header: Option<Header<'a>>,
    pub ip: Option<IpFields>,
    /// Of arrival; 0 is none.
    pub vlan: Option<u32>,
    /// Of departure.
    pub vlan_out: Option<u32>,
    pub router: Option<Router>,
    pub gateway: Option<Gateway>,
}

/// Where a packet came in or left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    #[default]
    Unknown,
    Number(u32),
    /// The exporter itself has sent it, or has got it.
    Itself,
    /// For a [reason](discard).
    Dropped(u32),
    /// By as many interfaces as the number says.
    Several(u32),
}

/// Why a packet was discarded. Up to 255 the codes are those of ICMP's `Destination Unreachable`.
pub mod discard {
    pub const NET_UNREACHABLE: u32 = 0;
    pub const HOST_UNREACHABLE: u32 = 1;
    pub const UNKNOWN: u32 = 256;
    pub const TTL_EXCEEDED: u32 = 257;
    pub const ACL: u32 = 258;
    pub const NO_BUFFER: u32 = 259;
    pub const RATE_LIMIT: u32 = 261;
    pub const TOO_BIG: u32 = 262;
}

/// In place of an interface's number: the exporter itself.
const INTERNAL: u32 = 0x3fff_ffff;

/// The beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// `header_protocol`: 1 is Ethernet, 11 IPv4, 12 IPv6.
    pub protocol: u32,
    /// Bytes on the wire, without those that the exporter stripped.
    pub bytes: u32,
    pub start: &'a [u8],
}

/// Fields that the exporter read from the packet itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpFields {
    pub bytes: u32,
    pub protocol: u32,
    pub src: IpAddr,
    pub dst: IpAddr,
    pub src_port: u32,
    pub dst_port: u32,
    pub tcp_flags: u32,
    pub traffic_class: u32,
}

/// The route that a packet took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Router {
    pub next_hop: IpAddr,
    pub src_prefix_length: u32,
    pub dst_prefix_length: u32,
}

/// BGP's view of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gateway {
    pub next_hop: IpAddr,
    pub src_as: u32,
    /// The last AS of the path to the destination, if there is one.
    pub dst_as: Option<u32>,
}

/// Whether bytes may be an sFlow datagram: other exports begin with 16 bits that are not 0.
pub fn is_sflow(bytes: &[u8]) -> bool {
    bytes.first_chunk() == Some(&[0, 0, 0, 5])
}

/// Bytes that are read as XDR, from the beginning.
struct Xdr<'a>(&'a [u8]);

impl<'a> Xdr<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// `None` if it is short; an unknown type has no length and makes everything behind it unreadable.
    fn address(&mut self) -> Option<Result<IpAddr, u32>> {
        Some(Ok(match self.u32()? {
            0 => Ipv4Addr::UNSPECIFIED.into(),
            1 => self.v4()?,
            2 => self.v6()?,
            other => return Some(Err(other)),
        }))
    }

    fn v4(&mut self) -> Option<IpAddr> {
        self.u32().map(|bits| Ipv4Addr::from_bits(bits).into())
    }

    fn v6(&mut self) -> Option<IpAddr> {
        let (bytes, rest) = self.0.split_first_chunk::<16>()?;
        self.0 = rest;
        Some(Ipv6Addr::from(*bytes).into())
    }

    /// Bytes behind their number, padded to words. The last ones may lack their padding.
    fn opaque(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        let (bytes, _) = self.0.split_at_checked(length)?;
        self.0 = self.0.get(length.checked_next_multiple_of(4)?..).unwrap_or_default();
        Some(bytes)
    }
}

/// Reads a datagram; calls `visit` for each sample.
///
/// # Errors
/// The header is short or of another version: nothing was read. A fault in a sample ends the reading, and is in the
/// second place of the result.
pub fn read(
    bytes: &[u8],
    mut visit: impl FnMut(&Datagram, &Sample<'_>),
) -> Result<(Datagram, Option<SflowFault>), SflowFault> {
    let mut xdr = Xdr(bytes);
    let short = SflowFault::HeaderShort;
    let version = xdr.u32().ok_or(short)?;
    if version != 5 {
        return Err(SflowFault::Version(version));
    }
    let agent = xdr.address().ok_or(short)?.map_err(SflowFault::AddressType)?;
    let mut word = || xdr.u32().ok_or(short);
    let (sub_agent, sequence, _uptime_ms, samples) = (word()?, word()?, word()?, word()?);
    let datagram = Datagram { agent, sub_agent, sequence, samples };
    for number in 1..=samples {
        let sample = (|| {
            let kind = xdr.u32()?;
            let body = xdr.opaque()?;
            match kind {
                1 | 3 => flow_sample(Xdr(body), kind == 3).map(Sample::Flow),
                2 | 4 => counters::read(Xdr(body), kind == 4).map(Sample::Counters),
                _ => Some(Sample::Other),
            }
        })();
        match sample {
            Some(sample) => visit(&datagram, &sample),
            None => return Ok((datagram, Some(SflowFault::SampleShort { number }))),
        }
    }
    Ok((datagram, None))
}

fn flow_sample(mut xdr: Xdr<'_>, is_expanded: bool) -> Option<FlowSample<'_>> {
    // Sequence number and source.
    for _ in 0..2 + usize::from(is_expanded) {
        xdr.u32()?;
    }
    let mut sample = FlowSample { rate: xdr.u32()?, ..FlowSample::default() };
    // Packets that could have been sampled, and samples that were lost.
    xdr.u32()?;
    xdr.u32()?;
    for place in [&mut sample.input, &mut sample.output] {
        let (format, value) = match is_expanded {
            true => (xdr.u32()?, xdr.u32()?),
            false => xdr.u32().map(|word| (word >> 30, word & 0x3fff_ffff))?,
        };
        *place = match (format, value) {
            (0, 0) => Interface::Unknown,
            (0, INTERNAL | u32::MAX) => Interface::Itself,
            (0, number) => Interface::Number(number),
            (1, reason) => Interface::Dropped(reason),
            (2, count) => Interface::Several(count),
            _ => Interface::Unknown,
        };
    }
    for _ in 0..xdr.u32()? {
        let (kind, body) = (xdr.u32()?, Xdr(xdr.opaque()?));
        read_record(kind, body, &mut sample)?;
    }
    Some(sample)
}

/// Reads a record of a flow sample; one of another kind is passed over.
fn read_record<'a>(kind: u32, mut xdr: Xdr<'a>, sample: &mut FlowSample<'a>) -> Option<()> {
    match kind {
        1 => {
            let (protocol, bytes, stripped) = (xdr.u32()?, xdr.u32()?, xdr.u32()?);
            let bytes = bytes.saturating_sub(stripped);
            sample.header = Some(Header { protocol, bytes, start: xdr.opaque()? });
        }
        3 | 4 => {
            let (bytes, protocol) = (xdr.u32()?, xdr.u32()?);
            let mut address = || if kind == 3 { xdr.v4() } else { xdr.v6() };
            let (src, dst) = (address()?, address()?);
            let (src_port, dst_port) = (xdr.u32()?, xdr.u32()?);
            let (tcp_flags, traffic_class) = (xdr.u32()?, xdr.u32()?);
            sample.ip =
                Some(IpFields { bytes, protocol, src, dst, src_port, dst_port, tcp_flags, traffic_class });
        }
        1001 => {
            sample.vlan = Some(xdr.u32()?);
            sample.vlan_out = xdr.u32().and_then(|_priority| xdr.u32());
        }
        1002 => {
            let Ok(next_hop) = xdr.address()? else { return Some(()) };
            let (src_prefix_length, dst_prefix_length) = (xdr.u32()?, xdr.u32()?);
            sample.router = Some(Router { next_hop, src_prefix_length, dst_prefix_length });
        }
        1003 => {
            let Ok(next_hop) = xdr.address()? else { return Some(()) };
            let (_own, src_as, _src_peer) = (xdr.u32()?, xdr.u32()?, xdr.u32()?);
            let mut dst_as = None;
            for _ in 0..xdr.u32()? {
                let (_kind, length) = (xdr.u32()?, xdr.u32()?);
                for _ in 0..length {
                    dst_as = Some(xdr.u32()?);
                }
            }
            sample.gateway = Some(Gateway { next_hop, src_as, dst_as });
        }
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(samples: &[(u32, Vec<u32>)]) -> Vec<u8> {
        let count = u32::try_from(samples.len()).unwrap();
        let mut words = vec![5, 1, 0xc000_0201, 7, 40, 1000, count];
        for (kind, body) in samples {
            words.extend([*kind, u32::try_from(4 * body.len()).unwrap()]);
            words.extend(body);
        }
        words.into_iter().flat_map(u32::to_be_bytes).collect()
    }

    /// Samples: a drop in compact form, with fields of IPv4; counters; several outputs in expanded form.
    fn example() -> Vec<u8> {
        let ip = [100, 6, 0x0a00_0001, 0x0a00_0002, 1000, 443, 2, 0];
        let mut compact = vec![1, 3, 512, 9000, 0, 4, 1 << 30 | 257, 2, 3, 32];
        compact.extend(ip);
        compact.extend([1001, 16, 100, 0, 100, 0]);
        let gateway = [1003, 48, 1, 0x0a00_0009, 64500, 64501, 64502, 1, 2, 2, 64503, 64504, 0, 100];
        let mut expanded = vec![1, 0, 3, 64, 9000, 0, 0, 70_000, 2, 3, 1];
        expanded.extend(gateway);
        datagram(&[(1, compact), (2, vec![1, 3, 0]), (3, expanded)])
    }

    #[test]
    fn samples_of_both_forms_are_read() {
        let mut samples = Vec::new();
        let bytes = example();
        let (header, fault) = read(&bytes, |_, sample| samples.push(format!("{sample:?}"))).unwrap();
        assert_eq!((header.agent.to_string().as_str(), header.sub_agent, fault), ("192.0.2.1", 7, None));
        assert_eq!((header.sequence, header.samples, samples.len()), (40, 3, 3));
        assert!(
            samples[0].contains("rate: 512") && samples[0].contains("output: Dropped(257)"),
            "{}",
            samples[0]
        );
        assert!(
            samples[0].contains("dst_port: 443") && samples[0].contains("vlan: Some(100)"),
            "{}",
            samples[0]
        );
        assert_eq!(samples[1], "Counters(CounterSample { source: 3, sequence: 1, interface: None })");
        assert!(samples[2].contains("Number(70000)") && samples[2].contains("Several(3)"), "{}", samples[2]);
        assert!(samples[2].contains("src_as: 64501, dst_as: Some(64504)"), "{}", samples[2]);
    }

    #[test]
    fn what_is_cut_or_something_else_is_a_fault() {
        let whole = example();
        for length in 0..whole.len() {
            let mut count = 0;
            match read(&whole[..length], |_, _| count += 1) {
                Ok((_, fault)) => assert!(fault.is_some() && count < 3, "{length} bytes"),
                Err(fault) => assert_eq!((fault, length < 28), (SflowFault::HeaderShort, true)),
            }
        }
        assert!(is_sflow(&whole) && !is_sflow(&whole[4..]));
        assert_eq!(read(&[0, 0, 0, 4], |_, _| ()).unwrap_err(), SflowFault::Version(4));
        assert_eq!(read(&[0, 0, 0, 5, 0, 0, 0, 9], |_, _| ()).unwrap_err(), SflowFault::AddressType(9));
    }

    #[test]
    fn whatever_comes_is_no_panic() {
        let mut chance = thalweg_base::XorShift64Star::new(3);
        for _ in 0..20_000 {
            let mut bytes = example();
            for _ in 0..1 + chance.below(6) {
                let at = chance.below(bytes.len() as u32) as usize;
                bytes[at] = chance.next_u64() as u8;
            }
            let _ = read(&bytes, |_, _| ());
        }
    }
}

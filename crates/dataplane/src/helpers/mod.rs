//! Helpers: protocols whose messages carry addresses and ports of other connections (FTP, SIP, PPTP). NAT has to
//! rewrite them, and the firewall has to know what they announce.
//!
//! A packet concerns a helper by its port alone: 21 and 1723 of TCP, 5060 of UDP, at either end. Labels make it *cross*
//! ([`thalweg_base::Chunk::crosses_shards`]), because what it announces may belong to another shard than it does. So
//! packets that concern no helper pay nothing, and what was announced is known from the next chunk on, under every
//! execution model.
//!
//! ```text
//!  NAT:       headers of all packets, in their shards
//!             payloads of helpers' packets, one by one, with all shards at hand --> Chunk::expected
//!  firewall:  all packets, in their shards
//!             Chunk::expected, and what packets announce that NAT did not translate --> what is expected
//! ```
//!
//! The modules here read and write messages, without state (`ftp`, `sip`, `pptp`), and adapt a TCP stream to
//! replacements of another length (`stream`). Nothing is held back and no stream is put together: a message that is
//! not whole in its packet passes as it is, and is counted.

pub(crate) mod ftp;
pub(crate) mod payload;
pub(crate) mod pptp;
pub(crate) mod sip;
pub(crate) mod stream;

use crate::ip_packet::number_of_address;
use std::net::IpAddr;
use thalweg_base::{Expected, Packet, PacketFlags};
use thalweg_wire::ip_protocol::{GRE, TCP, UDP};

thalweg_base::words! {
    /// A protocol with a helper.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Helper {
        /// RFC 959, RFC 2428.
        Ftp => "ftp",
        /// RFC 3261 over UDP, with bodies of SDP (RFC 8866).
        Sip => "sip",
        /// RFC 2637.
        Pptp => "pptp",
    }
}

impl Helper {
    fn bit(self) -> u8 {
        match self {
            Self::Ftp => 1,
            Self::Sip => 2,
            Self::Pptp => 4,
        }
    }
}

/// The helpers in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Helpers(u8);

impl FromIterator<Helper> for Helpers {
    fn from_iter<T: IntoIterator<Item = Helper>>(helpers: T) -> Self {
        Self(helpers.into_iter().fold(0, |bits, helper| bits | helper.bit()))
    }
}

impl Helpers {
    /// Whether none is in use.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is in use.
    pub fn has(self, helper: Helper) -> bool {
        self.0 & helper.bit() != 0
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The helper that a packet concerns. Later fragments concern none.
    pub fn concerning(self, packet: &Packet) -> Option<Helper> {
        if self.is_empty() || packet.flags.0 & KNOWN != PacketFlags::HAS_PORTS {
            return None;
        }
        let has = |port: u16| packet.src_port == port || packet.dst_port == port;
        let helper = match packet.protocol {
            TCP if has(ftp::PORT) => Helper::Ftp,
            TCP if has(pptp::PORT) => Helper::Pptp,
            UDP if has(sip::PORT) => Helper::Sip,
            _ => return None,
        };
        self.has(helper).then_some(helper)
    }
}

const KNOWN: u8 = PacketFlags::HAS_PORTS | PacketFlags::LATER_FRAGMENT;

/// Seconds for which a connection is expected, if its message does not say it.
pub(crate) const EXPECTED_S: u32 = 120;

/// An IPv4 connection that is expected.
pub(crate) fn expected_v4(protocol: u8, from: Option<u32>, to: (u32, u16), lifetime_s: u32) -> Expected {
    let from = from.map(u128::from);
    Expected { protocol, is_ipv6: false, to: (to.0.into(), to.1), from, lifetime_s }
}

/// Passes on what a packet announces that NAT does not translate. Returns how many messages could not be read, and how
/// many announced what is not their sender's.
pub(crate) fn announced(
    helper: Helper,
    packet: &Packet,
    l3: &[u8],
    (source, destination): (u128, u128),
    announce: &mut dyn FnMut(Expected),
) -> (u64, u64) {
    let Some(range) = payload::range(packet, l3) else { return (1, 0) };
    let Some(bytes) = l3.get(range) else { return (1, 0) };
    let is_ipv6 = packet.is_ipv6();
    let expect = |protocol, from, to, lifetime_s| Expected { protocol, is_ipv6, to, from, lifetime_s };
    let (mut unread, mut refused) = (0, 0);
    match helper {
        Helper::Ftp => {
            let is_client = packet.dst_port == ftp::PORT;
            for line in stream::whole_lines(bytes) {
                match ftp::read(is_client, &bytes[line]) {
                    ftp::Found::Nothing => {}
                    ftp::Found::Unreadable => unread += 1,
                    ftp::Found::Announces(announced) => {
                        let is_own = announced.address.is_none_or(|to| number_of_address(to) == source);
                        if is_own && announced.port >= ftp::LOWEST_PORT {
                            let to = (source, announced.port);
                            announce(expect(TCP, Some(destination), to, EXPECTED_S));
                        } else {
                            refused += 1;
                        }
                    }
                }
            }
        }
        Helper::Pptp if pptp::begins_call(bytes) => {
            announce(expect(GRE, Some(destination), (source, 0), EXPECTED_S));
            announce(expect(GRE, Some(source), (destination, 0), EXPECTED_S));
        }
        Helper::Pptp => {}
        // SDP of IPv6 is not read.
        Helper::Sip if is_ipv6 => {}
        Helper::Sip => match sip::read(bytes) {
            Some(message) => {
                for media in message.media.iter().filter(|media| media.port != 0) {
                    let Some(address) = message.address_of(media) else { continue };
                    let address = u128::from(u32::from(address));
                    let from = if address == source { None } else { Some(destination) };
                    for port in media.ports() {
                        announce(expect(UDP, from, (address, port), EXPECTED_S));
                    }
                }
                if let Some(lifetime_s) = message.registers_s.filter(|_| packet.dst_port == sip::PORT) {
                    announce(expect(UDP, Some(destination), (source, packet.src_port), lifetime_s));
                }
            }
            None => unread += u64::from(sip::is_message(bytes)),
        },
    }
    (unread, refused)
}

/// The IPv4 address in a message.
pub(crate) fn as_v4(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => Some(address.into()),
        IpAddr::V6(_) => None,
    }
}

/// Reads numbers of all three grammars from fuzzer input, and adapts a stream by what it says.
#[doc(hidden)]
pub fn fuzz_one(data: &[u8]) {
    for is_client in [true, false] {
        for line in stream::whole_lines(data) {
            if let ftp::Found::Announces(announced) = ftp::read(is_client, &data[line.clone()]) {
                assert!(announced.range.end <= line.len(), "within its line");
            }
        }
    }
    let mut copy = data.to_vec();
    pptp::each_call(&mut copy, true, &mut |_, call| Some(call));
    assert!(copy == data, "unchanged numbers change nothing");
    if let Some(message) = sip::read(data) {
        let mut edits = sip::Edits::default();
        assert!(message.rewritten(data, &mut edits).is_none_or(|bytes| bytes == data));
    }
}

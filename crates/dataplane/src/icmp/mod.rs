//! ICMP as a router writes it: errors about packets that end here, and answers to requests to the router itself. IP
//! packets go in, IP packets come out; the caller routes them.
//!
//! The contents follow RFC 792, RFC 1812 (4.3, 5.2.7) and RFC 1191 for IPv4, RFC 4443 and RFC 8201 for IPv6. An
//! error quotes its packet from the IP header on, as much as fits 576 (RFC 1812 4.3.2.3) or 1280 bytes (RFC 4443
//! 2.4 c). The quote is the packet *as the caller hands it in*: for one that NAT has changed, that should be what
//! its sender sent (RFC 5508 REQ-4). [`untranslate`] restores the addresses, which the caller must know.
//!
//! No error is written about an ICMP error or redirect, a later fragment (IPv4: RFC 1812 4.3.2.7; IPv6 has no such
//! rule, RFC 4443 2.4 e), a packet that arrived by or was addressed to multicast or broadcast (except IPv6's
//! "packet too big" and "unknown option", which multicast needs), or one whose source is not a single host.
//!
//! Limits (RFC 1812 4.3.2.8, RFC 4443 2.4 f): one bucket for everything, and a fixed number of buckets to which
//! receivers' addresses hash, so that one victim of spoofed sources, or one loud sender, does not use up what
//! others need. "Packet too big" is exempt from the second: each informs another flow, and losing it stalls a
//! connection rather than a traceroute. Suppressed messages are counted by reason.
//!
//! Missing: RFC 4884 extensions and with them RFC 5837 (interface information); redirects, which routers may leave
//! out (RFC 1812 5.2.7.2 wants them, many networks forbid them); timestamp and mask replies; options in echo
//! replies (record route is not continued, 4.3.3.6); reassembly of echo requests.

mod build;
mod echo;
mod untranslate;

pub use build::{IcmpError, NotWritten, write_error};
pub use echo::{Echo, echo_reply, echo_request};
pub use untranslate::{Original, untranslate};

use crate::ip_packet::IpPacket;
use crate::rate_limit::{Rate, TokenBucket};
use std::net::IpAddr;
use thalweg_base::mix64;
use thalweg_wire::ip_protocol::{ICMP, ICMPV6, UDP};

/// Rate limits of ICMP. The defaults are those of Linux (`net.ipv4.icmp_msgs_per_sec`, `icmp_msgs_burst`,
/// `icmp_ratelimit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpConfig {
    /// Errors to all receivers together.
    pub errors: Rate,
    /// Errors to receivers in one bucket.
    pub errors_per_destination: Rate,
    /// Answers to echo requests.
    pub echo_replies: Rate,
    /// Buckets for receivers, of eight bytes each.
    pub destination_buckets: usize,
    /// Varies the buckets of receivers, so that an attacker cannot target another's.
    pub seed: u64,
}

impl Default for IcmpConfig {
    fn default() -> Self {
        Self {
            errors: Rate::per_second(1000, 50),
            errors_per_destination: Rate::per_second(1, 6),
            echo_replies: Rate::per_second(10_000, 1000),
            destination_buckets: 1024,
            seed: 0,
        }
    }
}

/// Counters of messages written and suppressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IcmpCounters {
    pub errors_written: u64,
    pub echo_replies_written: u64,
    /// Errors not written, by [`NotWritten::index`].
    pub errors_not_written: [u64; NotWritten::ALL.len()],
    /// Echo requests not answered because of the limit.
    pub echo_replies_limited: u64,
}

/// Writes errors and answers, within limits.
#[derive(Clone, Debug)]
pub struct IcmpWriter {
    config: IcmpConfig,
    errors: TokenBucket,
    destinations: Vec<TokenBucket>,
    echo_replies: TokenBucket,
    counters: IcmpCounters,
}

impl IcmpWriter {
    /// A writer whose buckets are full.
    pub fn new(config: IcmpConfig) -> Self {
        Self {
            errors: TokenBucket::default(),
            destinations: vec![TokenBucket::default(); config.destination_buckets.max(1)],
            echo_replies: TokenBucket::default(),
            counters: IcmpCounters::default(),
            config,
        }
    }

    /// The counters.
    pub fn counters(&self) -> &IcmpCounters {
        &self.counters
    }

    /// Writes an error about `packet` with an address of the router as `source` (RFC 1812 4.3.2.4: of its egress
    /// port; common practice, which traceroute expects: of the ingress port). `sent_to_one` says that the link
    /// layer delivered it to this router alone.
    pub fn error(
        &mut self,
        error: IcmpError,
        packet: &[u8],
        source: IpAddr,
        sent_to_one: bool,
        now_ns: u64,
    ) -> Result<Vec<u8>, NotWritten> {
        let written = write_error(error, packet, source, sent_to_one)
            .and_then(|(written, receiver)| self.admit(error, receiver, now_ns).map(|()| written));
        match &written {
            Ok(_) => self.counters.errors_written += 1,
            Err(why) => self.counters.errors_not_written[why.index()] += 1,
        }
        written
    }

    fn admit(&mut self, error: IcmpError, receiver: IpAddr, now_ns: u64) -> Result<(), NotWritten> {
        if self.errors.ready_at(self.config.errors) > now_ns {
            return Err(NotWritten::Limited);
        }
        if !matches!(error, IcmpError::PacketTooBig { .. }) {
            let bucket = self.bucket(receiver);
            let rate = self.config.errors_per_destination;
            if !self.destinations.get_mut(bucket).is_some_and(|b| b.take(rate, now_ns)) {
                return Err(NotWritten::LimitedForReceiver);
            }
        }
        if self.errors.take(self.config.errors, now_ns) { Ok(()) } else { Err(NotWritten::Limited) }
    }

    /// IPv6 receivers share a bucket by /64, because one host can have any number of addresses there.
    fn bucket(&self, receiver: IpAddr) -> usize {
        let folded = match receiver {
            IpAddr::V4(address) => u64::from(u32::from(address)),
            IpAddr::V6(address) => (u128::from(address) >> 64) as u64 ^ 1 << 63,
        };
        (mix64(mix64(folded) ^ self.config.seed) % self.destinations.len() as u64) as usize
    }

    /// Answers a packet to one of the router's own addresses: an echo request with its reply, UDP with "port
    /// unreachable", so that traceroute ends. Other packets get no answer.
    ///
    /// This is for a router without a host behind it. If a mirror interface takes such packets, the kernel answers.
    pub fn answer(&mut self, packet: &[u8], sent_to_one: bool, now_ns: u64) -> Option<Vec<u8>> {
        let read = IpPacket::parse(packet)?;
        match read.protocol {
            ICMP | ICMPV6 => self.echo_reply(packet, now_ns),
            UDP => {
                let about = IcmpError::PortUnreachable;
                self.error(about, packet, read.destination, sent_to_one, now_ns).ok()
            }
            _ => None,
        }
    }

    /// [`echo_reply`] within the limit.
    pub fn echo_reply(&mut self, packet: &[u8], now_ns: u64) -> Option<Vec<u8>> {
        let reply = echo_reply(packet)?;
        if !self.echo_replies.take(self.config.echo_replies, now_ns) {
            self.counters.echo_replies_limited += 1;
            return None;
        }
        self.counters.echo_replies_written += 1;
        Some(reply)
    }
}

#[cfg(test)]
mod tests;

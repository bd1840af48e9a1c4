//! Names in the first payloads of a flow: the server that a client asks for (TLS, QUIC, HTTP), the application
//! protocols that it offers, what is asked for in DNS and answered, the fingerprint of its hello.
//!
//! ```text
//! payload of a young flow --> hello in one piece, host, DNS message --> FlowNames, beside the flow's entry
//!                         \-> hello or head in several             --> Part: waits for the rest, bounded
//! ```
//!
//! A flow is young until it has its name, or until a few payloads were looked at ([`NAME_LOOKS_MAX`]); some bits of
//! its key note that, so a packet of an older flow costs one test. Only the client's direction has a name (and of DNS
//! the server's the answers); a biflow has all.
//!
//! A hello that takes several segments or Initial packets is put together from them in any order, up to
//! [`assembly::BYTES_MAX`] bytes for a flow and [`PARTS_MAX`] flows at a time in a shard. What its beginning shows is
//! noted at once; what does not become whole is counted ([`NameCounts::given_up`]). So however a message is cut, the
//! name is the same, or the flow is counted.
//!
//! Names are lower case, without a port, and have only the characters of hosts and addresses; texts of others are
//! not taken. Sources: RFC 8446, 6066 and 7301 (TLS), 9000 and 9001 (QUIC), 9112 (HTTP), 1035 (DNS).
//!
//! [`NAME_LOOKS_MAX`]: crate::key::NAME_LOOKS_MAX
//!
//! Missing: names in HTTP/2 without TLS, in DTLS, behind STARTTLS after the fourth payload; encrypted ClientHello
//! shows the name that is meant for watchers.

mod assembly;
pub(crate) mod crypto;
mod hello;
pub(crate) mod resolved;

use crate::key::{NameNotes, Next};
use crate::meter::options::NameOptions;
use crate::meter::totals::NameCounts;
use crate::parse::payload_of;
use crate::record::FlowNames;
use assembly::Assembly;
use std::collections::VecDeque;
use thalweg_base::{Name, Packet};
use thalweg_wire::dns::{Answer, DnsView};
use thalweg_wire::http::{self, Host};
use thalweg_wire::ip_protocol::{TCP, UDP};
use thalweg_wire::quic::{InitialView, crypto_frames};
use thalweg_wire::tls::{self, ClientHello};

/// The most flows of a shard that wait for the rest of a message; the first gives way.
const PARTS_MAX: usize = 64;
/// The most Initial packets of a datagram that are opened.
const INITIALS_MAX: usize = 4;
/// DNS, mDNS, LLMNR.
const DNS_PORTS: [u16; 3] = [53, 5353, 5355];

/// A packet's payload, with what its place in the flow follows from.
pub(crate) struct Payload<'a> {
    protocol: u8,
    ports: [u16; 2],
    /// The payload's place in TCP's stream.
    sequence: u32,
    /// The direction, in a meter of biflows.
    backward: bool,
    bytes: &'a [u8],
}

impl<'a> Payload<'a> {
    /// The payload of TCP or UDP, if there is one.
    pub(crate) fn of(packet: &Packet, frame: &'a [u8], backward: bool) -> Option<Self> {
        let bytes = payload_of(frame, packet);
        let at = usize::from(packet.l4_offset);
        let sequence = frame.get(at + 4..)?.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let ports = [packet.src_port, packet.dst_port];
        (!bytes.is_empty()).then_some(Self { protocol: packet.protocol, ports, sequence, backward, bytes })
    }

    fn is_dns(&self) -> bool {
        self.ports.iter().any(|port| DNS_PORTS.contains(port))
    }
}

/// What bytes say.
enum Reading {
    Whole,
    /// More may follow; names have what there is.
    Cut,
    Other,
}

/// A message that waits for its rest.
#[derive(Debug)]
struct Part {
    slot: u32,
    backward: bool,
    carrier: Carrier,
    assembly: Assembly,
}

/// What brings a message's bytes.
#[derive(Debug)]
enum Carrier {
    /// The sequence number of the first byte.
    Tcp(u32),
    /// The connection identifier that keys follow from.
    Quic(Vec<u8>),
}

/// Looks for the names of a shard's flows; see the module documentation.
#[derive(Debug)]
pub(crate) struct Looks {
    pub(crate) options: NameOptions,
    parts: VecDeque<Part>,
    pub(crate) counts: NameCounts,
}

impl Looks {
    pub(crate) fn new(options: NameOptions) -> Self {
        Self { options, parts: VecDeque::new(), counts: NameCounts::default() }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.parts.iter().map(|part| size_of::<Part>() + part.assembly.memory_bytes()).sum()
    }

    /// Looks at a payload of the flow that is in this slot.
    pub(crate) fn look(
        &mut self,
        slot: u32,
        NameNotes { is_last, waits, .. }: NameNotes,
        payload: &Payload<'_>,
        names: &mut FlowNames,
    ) -> Next {
        self.counts.looked_at += 1;
        let next = match (waits, self.take_part(slot)) {
            (true, Some(part)) => self.go_on(part, payload, names),
            // It had to go for others, and was counted then.
            (true, None) => Next::Done,
            (false, left) => {
                // That of a flow that ended.
                self.counts.given_up += u64::from(left.is_some());
                self.begin(slot, payload, names)
            }
        };
        if !is_last {
            return next;
        }
        if next == Next::Wait {
            self.take_part(slot);
            self.counts.given_up += 1;
        }
        Next::Done
    }

    fn take_part(&mut self, slot: u32) -> Option<Part> {
        let place = self.parts.iter().position(|part| part.slot == slot)?;
        self.parts.remove(place)
    }

    /// Keeps a message for its rest.
    fn keep(&mut self, part: Part) -> Next {
        if self.parts.len() >= PARTS_MAX {
            self.parts.pop_front();
            self.counts.given_up += 1;
        }
        self.parts.push_back(part);
        Next::Wait
    }

    fn give_up(&mut self) -> Next {
        self.counts.given_up += 1;
        Next::Done
    }

    fn begin(&mut self, slot: u32, payload: &Payload<'_>, names: &mut FlowNames) -> Next {
        let &Payload { protocol, sequence, backward, bytes, .. } = payload;
        match protocol {
            TCP if self.options.dns && payload.is_dns() => {
                // A length, then the message.
                dns(bytes.get(2..).unwrap_or_default(), names)
            }
            TCP => match self.of_stream(bytes, names) {
                Reading::Whole => Next::Done,
                Reading::Cut => {
                    let mut assembly = Assembly::default();
                    match assembly.insert(0, bytes) {
                        true => self.keep(Part { slot, backward, carrier: Carrier::Tcp(sequence), assembly }),
                        false => self.give_up(),
                    }
                }
                Reading::Other => Next::Look,
            },
            UDP if self.options.dns && payload.is_dns() => dns(bytes, names),
            UDP if self.options.quic => self.of_initials(slot, None, payload, names),
            _ => Next::Look,
        }
    }

    fn go_on(&mut self, mut part: Part, payload: &Payload<'_>, names: &mut FlowNames) -> Next {
        if part.backward != payload.backward {
            return self.keep(part);
        }
        let Carrier::Tcp(first) = part.carrier else {
            return self.of_initials(part.slot, Some(part), payload, names);
        };
        let place = payload.sequence.wrapping_sub(first);
        if place > u32::MAX / 2 {
            // A repetition of something before.
            return self.keep(part);
        }
        if !part.assembly.insert(u64::from(place), payload.bytes) {
            return self.give_up();
        }
        match self.of_stream(part.assembly.beginning(), names) {
            Reading::Whole => Next::Done,
            Reading::Cut => self.keep(part),
            Reading::Other => self.give_up(),
        }
    }

    /// Reads the beginning of a TCP stream.
    fn of_stream(&self, bytes: &[u8], names: &mut FlowNames) -> Reading {
        match bytes {
            [0x16] | [0x16, 3, ..] if self.options.tls => match tls::handshake(bytes) {
                Some(messages) => self.of_handshake(&messages, 't', names),
                None if bytes.len() < 5 => Reading::Cut,
                None => Reading::Other,
            },
            [b'A'..=b'Z', ..] if self.options.http => match http::host(bytes) {
                Host::Is(host) => {
                    names.server = hello::host_name(host);
                    Reading::Whole
                }
                Host::Later => Reading::Cut,
                Host::None => Reading::Other,
            },
            _ => Reading::Other,
        }
    }

    /// Reads a client's hello; `carrier` is `t` for TCP, `q` for QUIC.
    fn of_handshake(&self, messages: &[u8], carrier: char, names: &mut FlowNames) -> Reading {
        const CLIENT_HELLO: u8 = 1;
        match ClientHello::new(messages) {
            Some(hello) => {
                hello::read(&hello, carrier, self.options.ja4, names);
                if hello.is_whole() { Reading::Whole } else { Reading::Cut }
            }
            None if messages.len() < 6 && messages.first().is_none_or(|kind| *kind == CLIENT_HELLO) => {
                Reading::Cut
            }
            None => Reading::Other,
        }
    }

    /// Opens the Initial packets of a datagram. What cannot be opened is a server's, or not QUIC.
    fn of_initials(
        &mut self,
        slot: u32,
        mut part: Option<Part>,
        payload: &Payload<'_>,
        names: &mut FlowNames,
    ) -> Next {
        let mut rest = payload.bytes;
        for _ in 0..INITIALS_MAX {
            let Some(initial) = InitialView::new(rest) else { break };
            rest = &rest[initial.packet.len()..];
            let known = part.as_ref().and_then(|part| match &part.carrier {
                Carrier::Quic(destination) => crypto::open(&initial, destination),
                Carrier::Tcp(_) => None,
            });
            let Some(opened) = known.or_else(|| {
                // The first packet, or the first after a Retry, whose identifier replaces the client's own.
                let opened = crypto::open(&initial, initial.destination)?;
                let carrier = Carrier::Quic(initial.destination.to_vec());
                part =
                    Some(Part { slot, backward: payload.backward, carrier, assembly: Assembly::default() });
                Some(opened)
            }) else {
                continue;
            };
            let Some(part) = &mut part else { continue };
            for (place, content) in crypto_frames(&opened) {
                if !part.assembly.insert(place, content) {
                    return self.give_up();
                }
            }
        }
        let Some(part) = part else { return Next::Look };
        match self.of_handshake(part.assembly.beginning(), 'q', names) {
            Reading::Whole => Next::Done,
            Reading::Cut => self.keep(part),
            Reading::Other => self.give_up(),
        }
    }
}

/// Reads a DNS message. A flow has its first question, and the first response to that.
fn dns(message: &[u8], names: &mut FlowNames) -> Next {
    let Some((view, question)) = DnsView::new(message).and_then(|view| Some((view, view.question()?))) else {
        return Next::Look;
    };
    let name = Name::passing(if question.name.is_empty() { "." } else { &question.name });
    if names.dns_question == Name::NONE {
        (names.dns_question, names.dns_type) = (name, question.kind);
    }
    if !view.is_response() || (names.dns_question, names.dns_type) != (name, question.kind) {
        return Next::Look;
    }
    let mut answers = String::new();
    for (answer, _) in view.answers() {
        let text = match answer {
            Answer::Address(address) => address.to_string(),
            Answer::Alias(name) => name,
            Answer::Other => continue,
        };
        hello::push_to_list(&mut answers, &text);
    }
    names.dns_code = Some(view.code());
    names.dns_answers = Name::passing(&answers);
    Next::Done
}

#[cfg(test)]
mod tests;

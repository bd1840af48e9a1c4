//! Inside addresses with public ones of their own (RFC 3022 2.1, "basic NAT"), and packets that NAT leaves alone.
//!
//! A pair of networks of one length maps every address of the one to that of the other, in both directions and for all
//! protocols, without a state: only addresses and the checksums that cover them change. Labels and translation ask the
//! same tables, so they agree. Each packet has a shard all the same, that of the inside and the remote address, because
//! the firewall keeps its connections there and spreads work by it; a fragment or an ICMP error is where its flow is.
//!
//! A hairpin may have one end here and the other in a session, or both here. Its source is translated first: filters of
//! sessions know remote hosts by their public addresses.

use super::config::{AddressPair, NatConfig, NatProtocol};
use super::layout::End;
use super::rewrite::{self, Quote};
use super::shard::{at_hand, is_whole, transport};
use ipnet::Ipv4Net;
use std::net::SocketAddrV4;
use thalweg_base::{DropReason, Packet, PacketFlags};

/// The pairs of a NAT, by either side.
#[derive(Debug)]
pub(crate) struct OneToOne {
    inside: Box<[Run]>,
    public: Box<[Run]>,
}

/// Consecutive addresses, and those that stand for them.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    last: u32,
    other: u32,
    /// The place of the outside port.
    outside: usize,
}

/// The address that stands for another, and the place of its outside port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counterpart {
    pub(crate) address: u32,
    pub(crate) outside: usize,
}

impl OneToOne {
    /// The pairs of a validated configuration; `None` if it has none.
    pub(crate) fn new(config: &NatConfig) -> Option<Self> {
        let runs = |from: fn(&AddressPair) -> Ipv4Net, to: fn(&AddressPair) -> Ipv4Net| {
            let of = |pair: &AddressPair| Run {
                first: from(pair).network().into(),
                last: from(pair).broadcast().into(),
                other: to(pair).network().into(),
                outside: pair.outside,
            };
            let mut runs: Vec<Run> = config.one_to_one.iter().map(of).collect();
            runs.sort_by_key(|run| run.first);
            runs.into_boxed_slice()
        };
        let inside = runs(|pair| pair.inside, |pair| pair.public);
        let public = runs(|pair| pair.public, |pair| pair.inside);
        (!inside.is_empty()).then_some(Self { inside, public })
    }

    /// The public address of an inside host.
    pub(crate) fn public_of(&self, inside: u32) -> Option<Counterpart> {
        counterpart(&self.inside, inside)
    }

    /// The inside host of a public address.
    pub(crate) fn inside_of(&self, public: u32) -> Option<Counterpart> {
        counterpart(&self.public, public)
    }

    /// What stands for the address that is translated at an end.
    fn of(&self, end: End, address: u32) -> Option<Counterpart> {
        match end {
            End::Source => self.public_of(address),
            End::Destination => self.inside_of(address),
        }
    }

    /// Translates one end of a packet, if its address has a counterpart at one of the outside ports that `is_here` admits.
    pub(crate) fn translate(
        &self,
        end: End,
        packet: &mut Packet,
        l3: &mut [u8],
        is_here: impl FnOnce(usize) -> bool,
    ) -> Option<Result<(), DropReason>> {
        let whole = is_whole(packet, l3);
        let l3 = at_hand(packet, l3);
        let about = About::of(packet, l3);
        let found = self.of(end, about.address(l3, end)?).filter(|found| is_here(found.outside))?;
        match about {
            About::Itself => {
                let has_port = matches!(
                    NatProtocol::from_ip(packet.protocol),
                    Some(NatProtocol::Tcp | NatProtocol::Udp)
                );
                let port = if end == End::Source { packet.src_port } else { packet.dst_port };
                let l4 = transport(packet).filter(|_| has_port);
                rewrite::rewrite_packet(l3, l4, packet.protocol, end, found.address, port);
            }
            About::Quoted(quote) if quote.checksums_hold(l3, whole) => {
                let (inner, port) = match end {
                    End::Source => (End::Destination, quote.destination_port),
                    End::Destination => (End::Source, quote.source_port),
                };
                rewrite::rewrite_error(l3, &quote, end, inner, found.address, port);
            }
            About::Quoted(_) | About::Unknown => return Some(Err(DropReason::NatIcmp)),
        }
        packet.flags.set(PacketFlags::TRANSLATED);
        Some(Ok(()))
    }
}

impl OneToOne {
    /// The inside endpoint that a hairpin leads to, if its destination has a counterpart; none for an ICMP error, whose
    /// endpoint is that of the quoted packet.
    pub(crate) fn receiver(&self, packet: &Packet, l3: &[u8]) -> Option<Option<SocketAddrV4>> {
        let (_, destination) = rewrite::addresses(l3)?;
        let address = self.inside_of(destination)?.address;
        let has_port = packet.flags.has(PacketFlags::HAS_PORTS);
        Some(has_port.then(|| SocketAddrV4::new(address.into(), packet.dst_port)))
    }
}

fn counterpart(runs: &[Run], address: u32) -> Option<Counterpart> {
    let run = runs[..runs.partition_point(|run| run.first <= address)].last()?;
    let place = address - run.first;
    (address <= run.last).then(|| Counterpart { address: run.other + place, outside: run.outside })
}

/// What of a packet says whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    /// Its own addresses.
    Itself,
    /// It is an ICMP error: the packet that it quotes, which went the other way.
    Quoted(Quote),
    /// It is an ICMP error or a redirect that says nothing useful.
    Unknown,
}

impl About {
    /// Of a packet; `l3` has nothing behind it.
    pub(crate) fn of(packet: &Packet, l3: &[u8]) -> Self {
        let is_icmp = packet.protocol == NatProtocol::Icmp.number();
        if !is_icmp || packet.flags.has(PacketFlags::HAS_PORTS) {
            return Self::Itself;
        }
        let Some(at) = transport(packet) else { return Self::Itself };
        if !matches!(l3.get(at), Some(3 | 4 | 5 | 11 | 12)) {
            return Self::Itself;
        }
        // An error goes to the sender of the packet that it quotes.
        let is_for = |quote: &Quote| rewrite::addresses(l3).is_some_and(|(_, to)| to == quote.source);
        Quote::parse(l3, at).filter(is_for).map_or(Self::Unknown, Self::Quoted)
    }

    /// The address that is translated at an end.
    pub(crate) fn address(&self, l3: &[u8], end: End) -> Option<u32> {
        let (source, destination) = rewrite::addresses(l3)?;
        Some(match (self, end) {
            (Self::Quoted(quote), End::Source) => quote.destination,
            (_, End::Source) => source,
            (_, End::Destination) => destination,
        })
    }

    /// The protocol of the flow.
    pub(crate) fn protocol(&self, packet: &Packet) -> u8 {
        match self {
            Self::Quoted(quote) => quote.protocol,
            _ => packet.protocol,
        }
    }

    /// The remote address of the flow, for a packet between these ends that is translated at `end`.
    pub(crate) fn remote(&self, (source, destination): (u32, u32), end: End) -> u32 {
        match (self, end) {
            (Self::Quoted(quote), End::Source) => quote.source,
            (Self::Quoted(quote), End::Destination) => quote.destination,
            (_, End::Source) => destination,
            (_, End::Destination) => source,
        }
    }
}

/// A network and its mask.
type Masked = (u32, u32);

fn masked(net: &Ipv4Net) -> Masked {
    (net.network().into(), net.netmask().into())
}

/// Which packets from inside are not translated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Untranslated {
    destinations: Box<[Masked]>,
    /// Source and destination.
    pairs: Box<[(Masked, Masked)]>,
}

impl Untranslated {
    /// Destinations inside, and the configuration's exceptions.
    pub(crate) fn new(config: &NatConfig) -> Self {
        let (of_source, of_any): (Vec<_>, Vec<_>) =
            config.exceptions.iter().partition(|exception| !exception.sources.is_empty());
        let destinations = of_any.iter().flat_map(|exception| &exception.destinations);
        let everywhere = [Ipv4Net::default()];
        let pairs = of_source.iter().flat_map(|exception| {
            let to =
                if exception.destinations.is_empty() { &everywhere[..] } else { &exception.destinations };
            exception.sources.iter().flat_map(move |from| to.iter().map(move |to| (masked(from), masked(to))))
        });
        Self {
            destinations: config.untranslated.iter().chain(destinations).map(masked).collect(),
            pairs: pairs.collect(),
        }
    }

    /// Whether an exception names sources.
    pub(crate) fn asks_for_source(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Whether packets to this destination are left alone, no matter who sends them.
    #[inline(always)]
    pub(crate) fn has(&self, destination: u32) -> bool {
        // All of them without an early exit: there are few, and where the match is cannot be predicted.
        self.destinations.iter().fold(false, |found, net| found | holds(*net, destination))
    }

    /// Whether an exception is about packets of this source to this destination.
    pub(crate) fn has_pair(&self, source: u32, destination: u32) -> bool {
        self.pairs.iter().any(|(from, to)| holds(*from, source) && holds(*to, destination))
    }
}

#[inline(always)]
fn holds((network, mask): Masked, address: u32) -> bool {
    address & mask == network
}

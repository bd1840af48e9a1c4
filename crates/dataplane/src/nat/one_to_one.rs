//! Inside addresses with public ones of their own (RFC 3022 2.1, "basic NAT"), and packets that NAT leaves alone.
//!
//! A pair of networks of one length maps every address of the one to that of the other, in both directions and for all
//! protocols, without a state: only addresses and the checksums that cover them change. Labels and translation ask the
//! same tables, so they agree. Each packet has a shard all the same, that of the inside and the remote address, because
//! the firewall keeps its connections there and spreads work by it; a fragment or an ICMP error is where its flow is.
//!
//! A hairpin may have one end here and the other in a session, or both here. Its source is translated first: filters of
//! sessions know remote hosts by their public addresses.

use super::config::{AddressPair, NatConfig, NatProtocol, small};
use super::endpoint::{End, Inside};
use super::rewrite::{self, Quote};
use super::shard::{at_hand, is_whole, transport};
use crate::vrf::table_number;
use ipnet::Ipv4Net;
use std::net::SocketAddrV4;
use thalweg_base::{DropReason, Packet, PacketFlags};

/// The pairs of a NAT, by either side.
#[derive(Debug)]
pub(crate) struct OneToOne {
    inside: Box<[Run]>,
    public: Box<[Run]>,
    /// Whether there are ports of NAT in several VRFs, so that the look-up of what comes in is in its host's.
    leads: bool,
}

/// Consecutive addresses of a VRF, and those that stand for them.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: Inside,
    last: u32,
    other: Inside,
    /// The place of the outside port.
    outside: usize,
}

/// The address that stands for another, and the place of its outside port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counterpart {
    pub(crate) address: u32,
    /// Its VRF.
    pub(crate) vrf: u8,
    pub(crate) outside: usize,
}

impl OneToOne {
    /// The pairs of a validated configuration; `None` if it has none.
    pub(crate) fn new(config: &NatConfig) -> Option<Self> {
        let outsides: Vec<u8> = config.outside_ports().map(|port| config.vrf_of(port)).collect();
        let vrf_of = |pair: &AddressPair| outsides.get(pair.outside).copied().unwrap_or(0);
        let runs = |is_inside: bool| {
            let of = |pair: &AddressPair| {
                let inside = (small(pair.vrf), pair.inside);
                let public = (vrf_of(pair), pair.public);
                let (from, to) = if is_inside { (inside, public) } else { (public, inside) };
                let first = |(vrf, net): (u8, Ipv4Net)| Inside { vrf, address: net.network().into() };
                Run {
                    first: first(from),
                    last: from.1.broadcast().into(),
                    other: first(to),
                    outside: pair.outside,
                }
            };
            let mut runs: Vec<Run> = config.one_to_one.iter().map(of).collect();
            runs.sort_by_key(|run| run.first);
            runs.into_boxed_slice()
        };
        let (inside, public) = (runs(true), runs(false));
        (!inside.is_empty()).then_some(Self { inside, public, leads: !config.vrfs.is_empty() })
    }

    /// The public address of an inside host.
    pub(crate) fn public_of(&self, inside: Inside) -> Option<Counterpart> {
        counterpart(&self.inside, inside)
    }

    /// The inside host of a public address of a VRF.
    pub(crate) fn inside_of(&self, public: Inside) -> Option<Counterpart> {
        counterpart(&self.public, public)
    }

    /// What stands for the address that is translated at an end.
    fn of(&self, end: End, address: Inside) -> Option<Counterpart> {
        match end {
            End::Source => self.public_of(address),
            End::Destination => self.inside_of(address),
        }
    }

    /// Translates one end of a packet, whose address is in this VRF, if it has a counterpart at one of the outside ports
    /// that `is_here` admits.
    pub(crate) fn translate(
        &self,
        (end, vrf): (End, u8),
        packet: &mut Packet,
        l3: &mut [u8],
        is_here: impl FnOnce(usize) -> bool,
    ) -> Option<Result<(), DropReason>> {
        let whole = is_whole(packet, l3);
        let l3 = at_hand(packet, l3);
        let about = About::of(packet, l3);
        let address = about.address(l3, end)?;
        let found = self.of(end, Inside { vrf, address }).filter(|found| is_here(found.outside))?;
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
        if self.leads && end == End::Destination {
            packet.next_hop = table_number(found.vrf.into());
        }
        packet.flags.set(PacketFlags::TRANSLATED);
        Some(Ok(()))
    }
}

impl OneToOne {
    /// The inside endpoint that a hairpin leads to, if its destination, in this VRF, has a counterpart; none for an ICMP
    /// error, whose endpoint is that of the quoted packet. The packet is led there.
    pub(crate) fn receiver(&self, packet: &mut Packet, l3: &[u8], vrf: u8) -> Option<Option<SocketAddrV4>> {
        let (_, destination) = rewrite::addresses(l3)?;
        let Counterpart { address, vrf, .. } = self.inside_of(Inside { vrf, address: destination })?;
        if self.leads {
            packet.next_hop = table_number(vrf.into());
        }
        let has_port = packet.flags.has(PacketFlags::HAS_PORTS);
        Some(has_port.then(|| SocketAddrV4::new(address.into(), packet.dst_port)))
    }
}

fn counterpart(runs: &[Run], of: Inside) -> Option<Counterpart> {
    let run = runs[..runs.partition_point(|run| run.first <= of)].last()?;
    let (place, Inside { vrf, address }) = (of.address.wrapping_sub(run.first.address), run.other);
    let is_within = run.first.vrf == of.vrf && of.address <= run.last;
    is_within.then(|| Counterpart { address: address.wrapping_add(place), vrf, outside: run.outside })
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
    /// For each of them the VRF of the senders; none means all. Empty if all of NAT is in the main table.
    vrfs: Box<[Option<u8>]>,
    /// The VRF of the senders, sources and destinations.
    pairs: Box<[(Option<u8>, Masked, Masked)]>,
}

impl Untranslated {
    /// Destinations inside, and the configuration's exceptions.
    pub(crate) fn new(config: &NatConfig) -> Self {
        let (of_source, of_any): (Vec<_>, Vec<_>) =
            config.exceptions.iter().partition(|exception| !exception.sources.is_empty());
        let of_any = of_any
            .iter()
            .flat_map(|exception| exception.destinations.iter().map(|net| (exception.vrf.map(small), *net)));
        let inside = config.untranslated.iter().map(|(vrf, net)| (Some(small(*vrf)), *net));
        let destinations: Vec<_> = inside.chain(of_any).collect();
        let everywhere = [Ipv4Net::default()];
        let pairs = of_source.iter().flat_map(|exception| {
            let to =
                if exception.destinations.is_empty() { &everywhere[..] } else { &exception.destinations };
            let (vrf, from) = (exception.vrf.map(small), &exception.sources);
            from.iter().flat_map(move |from| to.iter().map(move |to| (vrf, masked(from), masked(to))))
        });
        let vrfs = destinations.iter().map(|(vrf, _)| *vrf);
        Self {
            vrfs: if config.vrfs.is_empty() { Box::default() } else { vrfs.collect() },
            destinations: destinations.iter().map(|(_, net)| masked(net)).collect(),
            pairs: pairs.collect(),
        }
    }

    /// Whether an exception names sources.
    pub(crate) fn asks_for_source(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Whether packets to this destination from hosts of a VRF are left alone.
    pub(crate) fn has_from(&self, vrf: u8, destination: u32) -> bool {
        if self.vrfs.is_empty() {
            return self.has(destination);
        }
        let is_about = |of: &Option<u8>| of.is_none_or(|of| of == vrf);
        let mut all = self.vrfs.iter().zip(&self.destinations);
        all.any(|(of, net)| is_about(of) && holds(*net, destination))
    }

    /// Whether packets to this destination are left alone, no matter who sends them, if all are in the main table.
    #[inline(always)]
    pub(crate) fn has(&self, destination: u32) -> bool {
        // All of them without an early exit: there are few, and where the match is cannot be predicted.
        self.destinations.iter().fold(false, |found, net| found | holds(*net, destination))
    }

    /// Whether an exception is about packets of this source to this destination.
    pub(crate) fn has_pair(&self, source: Inside, destination: u32) -> bool {
        let is_about = |vrf: Option<u8>| vrf.is_none_or(|vrf| vrf == source.vrf);
        let mut all = self.pairs.iter();
        all.any(|(vrf, from, to)| is_about(*vrf) && holds(*from, source.address) && holds(*to, destination))
    }
}

#[inline(always)]
fn holds((network, mask): Masked, address: u32) -> bool {
    address & mask == network
}

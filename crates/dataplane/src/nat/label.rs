//! Labels packets for NAT: whether it translates them, and in which shard. Stateless, so it can run anywhere.
//!
//! | arrives on | destination | label |
//! |---|---|---|
//! | inside port | an untranslated prefix, or what an exception says | none |
//! | inside port | a public address | `NAT_OUT` and `NAT_IN` (hairpin); ICMP echo: none, the router answers |
//! | inside port | anything else | `NAT_OUT` |
//! | an outside port | a public address | `NAT_IN` |
//! | any other | anything | none |
//!
//! With several outside ports the address says whose NAT a packet for a public address belongs to, by whichever of them
//! it came. A packet from inside belongs to the port by which it will leave, and is not translated if that is none of
//! them; an endpoint with a port forward belongs to the forward's port.
//!
//! With ports in several VRFs the same holds, with one outside port too: the way decides. A public address is one of the
//! VRF where its packet arrives, or, for a packet from inside, of the VRF where its way leads.
//!
//! Packets that concern a [helper](crate::helpers) cross too, with their own shard as the second one.
//!
//! A public address of one host is like that of a pool. Hosts with one need no session: their packets have a shard by both
//! addresses.
//!
//! The shard follows from the inside endpoint for `NAT_OUT` and from the public port for `NAT_IN`; a hairpin has
//! both, the second as its crossing shard. An ICMP error belongs to the shard of the packet it quotes, a packet of
//! a protocol without ports to that of its protocol and peer.
//!
//! An IPv6 packet from inside to an IPv4 host (`nat64`) is `NAT_OUT`, and a hairpin if that host's address is public; its
//! session's shard follows from its host's home. Exceptions and pairs are about IPv4 hosts.
//!
//! Protocols without ports have no hairpins: for them, a public address belongs to the router when they come from
//! inside. ICMP echo cannot be a hairpin either, because its one identifier would have to be the sender's public
//! one and the receiver's at the same time.

use super::config::{NatConfig, NatConfigError, NatProtocol};
use super::endpoint::{End, Inside};
use super::layout::Layout;
use super::nat64::{self, Nat64Prefix, Outward};
use super::one_to_one::{About, Counterpart, OneToOne, Untranslated};
use super::rewrite::{self, Quote};
use crate::helpers::Helpers;
use crate::ingress::Addresses;
use crate::records::place;
use std::hint::select_unpredictable;
use std::sync::Arc;
use thalweg_base::{Chunk, DropReason, NO_SHARD, Packet, PacketFlags};
use thalweg_wire::ip_protocol::{ICMP, ICMPV6};

/// A port's side of NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Neither,
    Inside,
    Outside,
}

const HAIRPIN: u8 = PacketFlags::NAT_OUT | PacketFlags::NAT_IN;

/// The table above: by side, whether the destination is public, whether it is untranslated.
const LABELS: [[[u8; 2]; 2]; 3] = {
    const OUT: u8 = PacketFlags::NAT_OUT;
    const IN: u8 = PacketFlags::NAT_IN;
    [[[0, 0], [0, 0]], [[OUT, 0], [HAIRPIN, HAIRPIN]], [[0, 0], [IN, IN]]]
};

impl Side {
    /// The labels of a packet that arrives on this side.
    #[inline(always)]
    fn labels(self, public: bool, untranslated: bool) -> u8 {
        LABELS[self as usize][usize::from(public)][usize::from(untranslated)]
    }
}

/// Decides for every packet whether and where it is translated.
#[derive(Clone, Debug)]
pub struct Labeler {
    /// Of the first outside port.
    layout: Arc<Layout>,
    others: Box<[Arc<Layout>]>,
    sides: Box<[Side]>,
    untranslated: Untranslated,
    /// Inside hosts with public addresses of their own.
    one_to_one: Option<Arc<OneToOne>>,
    /// Whether a packet from inside is asked for its way: there are several outside ports, or VRFs.
    asks_for_way: bool,
    /// Whether what a packet is may depend on more than its port of arrival and its destination.
    asks_more: bool,
    helpers: Helpers,
    hairpin: bool,
}

impl Labeler {
    /// A labeler for this configuration; errors as [`NatConfig::validate`] does.
    pub fn new(config: &NatConfig) -> Result<Self, NatConfigError> {
        config.validate()?;
        let ports = config.inside_ports.iter().copied().chain(config.outside_ports());
        let mut sides = vec![Side::Neither; ports.max().map_or(0, |last| usize::from(last) + 1)];
        for &port in &config.inside_ports {
            sides[usize::from(port)] = Side::Inside;
        }
        for port in config.outside_ports() {
            sides[usize::from(port)] = Side::Outside;
        }
        let others: Box<_> =
            config.outsides().skip(1).map(|outside| Arc::new(Layout::new(&outside))).collect();
        let untranslated = Untranslated::new(config);
        let one_to_one = OneToOne::new(config).map(Arc::new);
        Ok(Self {
            layout: Arc::new(Layout::new(config)),
            asks_for_way: !others.is_empty() || !config.vrfs.is_empty(),
            others,
            sides: sides.into_boxed_slice(),
            asks_more: one_to_one.is_some() || untranslated.asks_for_source() || !config.helpers.is_empty(),
            helpers: config.helpers,
            untranslated,
            one_to_one,
            hairpin: config.hairpin,
        })
    }

    /// Labels one packet; `l3` is its IPv4 packet. Sets `NAT_OUT`, `NAT_IN`, `shard` and `crossing_shard`, or drops
    /// the packet if it needs a translation that is impossible. Leaves packets that NAT does not touch unchanged,
    /// dropped ones included.
    ///
    /// Traffic mixes directions at random, so differences between them are looked up or computed, not branched on:
    /// a misprediction costs more than all the rest.
    ///
    /// With several outside ports, packets from inside leave by the first.
    #[inline(always)]
    pub fn label(&self, packet: &mut Packet, l3: &[u8]) {
        self.label_toward(packet, l3, |_, _, home| Some(home.unwrap_or(0)));
    }

    /// The same, if packets from inside are asked for their way ([`Self::asks_for_way`]). `choose` gets a packet from inside, its destination, and the place
    /// of the outside port that has a forward to its source, if one has; it returns the place of the one by which the
    /// packet leaves, if it leaves by one of them.
    #[inline(always)]
    pub fn label_toward(
        &self,
        packet: &mut Packet,
        l3: &[u8],
        choose: impl FnOnce(&mut Packet, u32, Option<usize>) -> Option<usize>,
    ) {
        if !packet.is_alive() {
            return;
        }
        if packet.is_ipv6() {
            if let Some(nat64) = &self.layout.nat64 {
                self.label_ipv6(&nat64.prefix, packet, l3, choose);
            }
            return;
        }
        let Some((source, destination)) = rewrite::addresses(l3) else { return };
        if self.translates_ipv6() && nat64::is_number(source) {
            // It stands for an IPv6 host.
            return packet.drop_for(DropReason::MartianSource);
        }
        if self.asks_for_way || self.asks_more && self.is_special(packet, (source, destination)) {
            return self.label_among(packet, l3, (source, destination), choose);
        }
        let labels = self.labels(packet.port_in, destination);
        if labels == 0 {
            return;
        }
        let ports = packet.flags.has(PacketFlags::HAS_PORTS) && NatProtocol::translates(packet.protocol);
        if !ports || labels == HAIRPIN {
            return self.label_carefully(packet, l3, (source, destination), labels, 0);
        }
        self.label_with_ports(packet, source, labels);
    }

    /// [`Self::label`] for a packet that ingress found to be of the usual kind, if there is one outside port.
    #[inline(always)]
    pub fn label_usual(&self, packet: &mut Packet, frame: &[u8], addresses: Addresses) {
        let Addresses { source, destination } = addresses;
        if self.asks_more && self.is_special(packet, (source, destination)) {
            return self.label_special(packet, frame, (source, destination));
        }
        match self.labels(packet.port_in, destination) {
            0 => {}
            HAIRPIN => {
                let l3 = frame.get(usize::from(packet.l3_offset)..).unwrap_or_default();
                self.label_carefully(packet, l3, (source, destination), HAIRPIN, 0);
            }
            labels => self.label_with_ports(packet, source, labels),
        }
    }

    /// Whether the way of a packet from inside decides what becomes of it: there are several outside ports, or VRFs.
    pub fn asks_for_way(&self) -> bool {
        self.asks_for_way
    }

    /// Whether IPv6 hosts inside reach IPv4 hosts.
    pub fn translates_ipv6(&self) -> bool {
        self.layout.nat64.is_some()
    }

    /// Makes room in a labeled chunk for packets that may become longer.
    pub fn make_room(&self, chunk: &mut Chunk) {
        if self.translates_ipv6() {
            nat64::make_room(chunk);
        }
    }

    /// Labels an IPv6 packet, if it comes from inside and goes to an IPv4 host.
    #[cold]
    fn label_ipv6(
        &self,
        prefix: &Nat64Prefix,
        packet: &mut Packet,
        l3: &[u8],
        choose: impl FnOnce(&mut Packet, u32, Option<usize>) -> Option<usize>,
    ) {
        if self.side(packet.port_in) != Side::Inside {
            return;
        }
        match Outward::of(prefix, packet, l3) {
            None => {}
            Some(Err(reason)) => packet.drop_for(reason),
            Some(Ok(outward)) => {
                let labeled = self.label_outward(packet, &outward, choose);
                labeled.unwrap_or_else(|reason| packet.drop_for(reason));
            }
        }
    }

    fn label_outward(
        &self,
        packet: &mut Packet,
        outward: &Outward,
        choose: impl FnOnce(&mut Packet, u32, Option<usize>) -> Option<usize>,
    ) -> Result<(), DropReason> {
        let remote = outward.remote;
        // A rule has chosen a way for IPv6.
        packet.next_hop = 0;
        let mut way = Way::new(choose);
        let (owner, receiver) = self.owner_inward(packet, remote, None, &mut way);
        let vrf = self.layout.vrf_of(packet.port_in);
        if owner.is_none() && self.untranslated.has_from(vrf, remote) {
            // Answers of an IPv4 host inside would not come back through NAT.
            return Err(DropReason::Nat64Address);
        }
        if owner.is_some() && (!self.hairpin || is_echo(packet)) {
            return Err(DropReason::NatNoMapping);
        }
        let outside = owner.or_else(|| way.of(packet, remote, None)).ok_or(DropReason::NoRoute)?;
        let (layout, first) = self.layout_of(outside);
        let home = Inside { vrf, address: layout.home_of(outward.host) };
        packet.shard = first + layout.session_shard(outward.protocol, home, outward.port);
        packet.flags.set(PacketFlags::NAT_OUT);
        if owner.is_some() {
            packet.flags.set(PacketFlags::NAT_IN);
            packet.crossing_shard = match receiver {
                Some(_) => packet.shard,
                None => first + layout.port_shard(outward.remote_port),
            };
        }
        Ok(())
    }

    /// What the table above says, if all is in the main table.
    #[inline(always)]
    fn labels(&self, port_in: u16, destination: u32) -> u8 {
        let public = self.layout.is_public(destination);
        self.side(port_in).labels(public, self.untranslated.has(destination))
    }

    #[inline(always)]
    fn side(&self, port: u16) -> Side {
        self.sides.get(usize::from(port)).copied().unwrap_or(Side::Neither)
    }

    /// [`Self::label_usual`] for a packet that is special.
    #[cold]
    fn label_special(&self, packet: &mut Packet, frame: &[u8], ends: (u32, u32)) {
        let l3 = frame.get(usize::from(packet.l3_offset)..).unwrap_or_default();
        self.label_among(packet, l3, ends, |_, _, home| Some(home.unwrap_or(0)));
    }

    /// Whether a packet may be one of an exception with a source, have an end with a public address of its own, or
    /// concern a helper.
    fn is_special(&self, packet: &Packet, (source, destination): (u32, u32)) -> bool {
        // There is one VRF: otherwise all packets are looked at with care.
        let [sender, receiver] = [source, destination].map(|address| Inside { vrf: 0, address });
        let is_mapped = |one_to_one: &Arc<OneToOne>| {
            one_to_one.public_of(sender).is_some() || one_to_one.inside_of(receiver).is_some()
        };
        // An ICMP error may come from anybody.
        let is_error =
            packet.protocol == NatProtocol::Icmp.number() && !packet.flags.has(PacketFlags::HAS_PORTS);
        is_error
            || self.helpers.concerning(packet).is_some()
            || self.untranslated.has_pair(sender, destination)
            || self.one_to_one.as_ref().is_some_and(is_mapped)
    }

    /// Labels a packet that is not a hairpin, of a protocol with ports.
    #[inline(always)]
    fn label_with_ports(&self, packet: &mut Packet, source: u32, labels: u8) {
        packet.flags.set(labels);
        let outbound = labels & PacketFlags::NAT_OUT != 0;
        let port = select_unpredictable(outbound, packet.src_port, packet.dst_port);
        packet.shard = self.layout.port_shard(port);
        if !self.layout.shard_is_port_shard() {
            let sender = Inside { vrf: 0, address: source };
            let of_session = self.layout.inside_shard(packet.protocol, sender, packet.src_port);
            packet.shard = select_unpredictable(outbound, of_session, packet.shard);
        }
    }

    /// The place of the outside port with a public address of a VRF, and the host whose own it is.
    fn owner(&self, vrf: u8, address: u32) -> (Option<usize>, Option<Counterpart>) {
        let pool = self.layouts().position(|layout| layout.vrf == vrf && layout.is_public(address));
        let pairs = self.one_to_one.as_deref();
        let receiver = pairs.and_then(|pairs| pairs.inside_of(Inside { vrf, address }));
        (pool.or(receiver.map(|receiver| receiver.outside)), receiver)
    }

    /// The same for a packet from inside, to which an address means what it does in its VRF, else where its way leads.
    fn owner_inward(
        &self,
        packet: &mut Packet,
        address: u32,
        home: Option<usize>,
        way: &mut Way<impl FnOnce(&mut Packet, u32, Option<usize>) -> Option<usize>>,
    ) -> (Option<usize>, Option<Counterpart>) {
        let vrf = self.layout.vrf_of(packet.port_in);
        let found = self.owner(vrf, address);
        let is_elsewhere = |of: u8| of != vrf && self.owner(of, address).0.is_some();
        if found.0.is_some() || !self.layouts().any(|layout| is_elsewhere(layout.vrf)) {
            return found;
        }
        let leads_to = way.of(packet, address, home).map(|outside| self.layout_of(outside).0.vrf);
        leads_to.map_or((None, None), |vrf| self.owner(vrf, address))
    }

    /// Labels a packet where there are several outside ports or VRFs, hosts with public addresses of their own, or
    /// exceptions with sources.
    fn label_among(
        &self,
        packet: &mut Packet,
        l3: &[u8],
        ends: (u32, u32),
        choose: impl FnOnce(&mut Packet, u32, Option<usize>) -> Option<usize>,
    ) {
        let side = self.side(packet.port_in);
        if side == Side::Neither {
            return;
        }
        let about = About::of(packet, &l3[..l3.len().min(place(packet.ip_len))]);
        let inside = self.layout.inside_of(packet, about.address(l3, End::Source).unwrap_or(ends.0));
        let one_to_one = self.one_to_one.as_deref();
        let sender = one_to_one.and_then(|pairs| pairs.public_of(inside)).filter(|_| side == Side::Inside);
        let home = if side == Side::Inside { self.home(packet, l3, ends.0) } else { None };
        // What a rule has chosen stays, unless NAT sends the packet out.
        let (chosen, mut way) = (packet.next_hop, Way::new(choose));
        let (owner, receiver) = match side {
            Side::Inside => self.owner_inward(packet, ends.1, home, &mut way),
            _ => self.owner(inside.vrf, ends.1),
        };
        let untranslated =
            self.untranslated.has_from(inside.vrf, ends.1) || self.untranslated.has_pair(inside, ends.1);
        let labels = side.labels(owner.is_some(), untranslated);
        let outside = match labels {
            0 => None,
            PacketFlags::NAT_OUT => way.of(packet, ends.1, home),
            _ => owner,
        };
        let Some(outside) = outside else {
            packet.next_hop = chosen;
            return;
        };
        let (layout, first) = self.layout_of(outside);
        let (protocol, is_out) = (about.protocol(packet), labels == PacketFlags::NAT_OUT);
        let shard_between =
            |inside: u32, remote: u32| first + layout.bare_shard(protocol, inside.wrapping_add(remote));
        match (labels, sender, receiver) {
            (HAIRPIN, None, None) => self.label_carefully(packet, l3, ends, labels, outside),
            (HAIRPIN, ..) if self.hairpin => {
                let shard = match (sender, receiver) {
                    (Some(_), Some(receiver)) => Some(shard_between(inside.address, receiver.address)),
                    _ if NatProtocol::from_ip(protocol).is_none() => None,
                    _ => shards(layout, packet, l3, ends.0, ends.1)
                        .map(|(out, into)| first + if sender.is_none() { out } else { into }),
                };
                // Both have one shard, so that either direction is where its connection is.
                if let Some(shard) = shard {
                    packet.flags.set(HAIRPIN);
                    (packet.shard, packet.crossing_shard) = (shard, shard);
                }
            }
            (HAIRPIN, ..) => {}
            (_, Some(sender), _) if is_out && sender.outside == outside => {
                packet.flags.set(labels);
                packet.shard = shard_between(inside.address, about.remote(ends, End::Source));
            }
            (_, _, Some(receiver)) if !is_out => {
                packet.flags.set(labels);
                packet.shard = shard_between(receiver.address, about.remote(ends, End::Destination));
            }
            _ => self.label_carefully(packet, l3, ends, labels, outside),
        }
        if !packet.flags.has(PacketFlags::NAT_OUT) {
            packet.next_hop = chosen;
        }
        // What a helper reads waits for all shards, as hairpins do; hairpins themselves are not read.
        if labels != HAIRPIN && packet.shard != NO_SHARD && self.helpers.concerning(packet).is_some() {
            packet.crossing_shard = packet.shard;
        }
    }

    /// The geometry of an outside port, and the number of its first shard.
    fn layout_of(&self, outside: usize) -> (&Layout, u16) {
        let layout = outside.checked_sub(1).and_then(|at| self.others.get(at)).unwrap_or(&self.layout);
        // There are at most `NatConfig::OUTSIDES_MAX`.
        (layout, u16::try_from(outside).unwrap_or(0) * layout.shards)
    }

    fn layouts(&self) -> impl Iterator<Item = &Arc<Layout>> {
        std::iter::once(&self.layout).chain(&self.others)
    }

    /// The place of the outside port with a forward to the source of a packet from inside, or to the host that an ICMP
    /// error from there is about.
    fn home(&self, packet: &Packet, l3: &[u8], source: u32) -> Option<usize> {
        let (protocol, address, port) = if packet.flags.has(PacketFlags::HAS_PORTS) {
            (NatProtocol::from_ip(packet.protocol)?, source, packet.src_port)
        } else {
            let quote = quote_of(packet, l3).filter(|_| packet.protocol == NatProtocol::Icmp.number())?;
            (quote.transport?, quote.destination, quote.destination_port)
        };
        let inside = self.layout.inside_of(packet, address);
        self.layouts().position(|layout| layout.is_forwarded(protocol, inside, port))
    }

    /// Labels hairpins, packets without ports and packets of other protocols, and all packets where there are several
    /// outside ports.
    #[cold]
    fn label_carefully(
        &self,
        packet: &mut Packet,
        l3: &[u8],
        (source, destination): (u32, u32),
        labels: u8,
        outside: usize,
    ) {
        let (layout, first) = self.layout_of(outside);
        let is_bare = NatProtocol::from_ip(packet.protocol).is_none();
        if labels == HAIRPIN && (!self.hairpin || is_bare || is_echo(packet)) {
            return;
        }
        if is_bare {
            let peer = if labels == PacketFlags::NAT_OUT { destination } else { source };
            packet.flags.set(labels);
            packet.shard = first + layout.bare_shard(packet.protocol, peer);
            return;
        }
        let Some((out_shard, in_shard)) = shards(layout, packet, l3, source, destination) else { return };
        packet.flags.set(labels);
        match labels {
            PacketFlags::NAT_IN => packet.shard = first + in_shard,
            PacketFlags::NAT_OUT => packet.shard = first + out_shard,
            _ => {
                packet.shard = first + out_shard;
                packet.crossing_shard = first + in_shard;
            }
        }
    }
}

/// The outside port by which a packet from inside leaves, asked for at most once.
struct Way<C> {
    choose: Option<C>,
    found: Option<usize>,
}

impl<C: FnOnce(&mut Packet, u32, Option<usize>) -> Option<usize>> Way<C> {
    fn new(choose: C) -> Self {
        Self { choose: Some(choose), found: None }
    }

    fn of(&mut self, packet: &mut Packet, destination: u32, home: Option<usize>) -> Option<usize> {
        if let Some(choose) = self.choose.take() {
            self.found = choose(packet, destination, home);
        }
        self.found
    }
}

/// The shards of the packet as one from inside and as one from outside; drops it if it has none.
fn shards(
    layout: &Layout,
    packet: &mut Packet,
    l3: &[u8],
    source: u32,
    destination: u32,
) -> Option<(u16, u16)> {
    let Some(protocol) = NatProtocol::from_ip(packet.protocol) else {
        packet.drop_for(DropReason::NatProtocol);
        return None;
    };
    if packet.flags.has(PacketFlags::HAS_PORTS) {
        return Some((
            layout.session_shard(protocol, layout.inside_of(packet, source), packet.src_port),
            layout.port_shard(packet.dst_port),
        ));
    }
    if packet.flags.has(PacketFlags::LATER_FRAGMENT) {
        packet.drop_for(DropReason::FragmentWithoutFirst);
        return None;
    }
    if protocol != NatProtocol::Icmp {
        packet.drop_for(DropReason::NatProtocol);
        return None;
    }
    error_shards(layout, packet, l3, destination)
}

/// The shards of an ICMP error: its quoted packet went the other way.
#[cold]
fn error_shards(layout: &Layout, packet: &mut Packet, l3: &[u8], destination: u32) -> Option<(u16, u16)> {
    // An error goes to the sender of the packet that it quotes.
    let Some(quote) = quote_of(packet, l3).filter(|quote| quote.source == destination) else {
        packet.drop_for(DropReason::NatIcmp);
        return None;
    };
    Some(match quote.transport {
        Some(protocol) => (
            layout.session_shard(
                protocol,
                layout.inside_of(packet, quote.destination),
                quote.destination_port,
            ),
            layout.port_shard(quote.source_port),
        ),
        None => (
            layout.bare_shard(quote.protocol, quote.source),
            layout.bare_shard(quote.protocol, quote.destination),
        ),
    })
}

/// The packet that an ICMP error quotes.
fn quote_of(packet: &Packet, l3: &[u8]) -> Option<Quote> {
    let end = l3.len().min(packet.ip_len as usize);
    let icmp = usize::from(packet.l4_offset).checked_sub(usize::from(packet.l3_offset));
    icmp.filter(|&at| at >= rewrite::IPV4_HEADER).and_then(|at| Quote::parse(&l3[..end], at))
}

fn is_echo(packet: &Packet) -> bool {
    matches!(packet.protocol, ICMP | ICMPV6) && packet.flags.has(PacketFlags::HAS_PORTS)
}

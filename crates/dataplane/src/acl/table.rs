//! A list compiled for one family: areas, and the tree that finds the few that may hold a packet.
//!
//! An *area* has one interval of each part of a packet (addresses, ports, protocol). A rule with several networks has an
//! area for each; of its other parts with several intervals, and of what is no interval (TCP flags, DSCP, fragments),
//! its areas share what they ask [besides](More). Areas have the order of their rules, so the first area that holds a
//! packet tells the first rule.
//!
//! Memory: an area takes 44 bytes (IPv6: 96), its places in the tree about 12.

use super::cuts::{Bounds, Interval, PARTS, Part, Tree, Window};
use super::{Fragment, IcmpKind, Rule, TcpFlags, icmp, ports, tcp_flags};
use ipnet::IpNet;
use std::ops::RangeInclusive;
use thalweg_base::Packet;

/// The most areas of a table: 200 MB of IPv6.
pub(super) const AREAS_MAX: usize = 1 << 21;

/// The number for a packet's first port if it has neither port nor ICMP type; ports are below it, ICMP types and
/// codes start at [`ICMP`].
const NO_PORT: u32 = 0x2_0000;
const ICMP: u32 = 0x1_0000;
/// Stands for the flags of packets other than TCP.
const NO_FLAGS: u16 = 256;
/// The interval of a part that a rule does not ask for.
const ALL: Interval = (0, u128::MAX);

/// An address of either family.
pub(super) trait Address: Copy + Default + Ord + Into<u128> {
    const BITS: u32;
    /// The first and the last address of a network of this family.
    fn span(net: &IpNet) -> Option<Interval>;
    /// This number, or the last address.
    fn of(number: u128) -> Self;
    /// The bits under a mask from `shift` on.
    fn bits(self, shift: u32, mask: u32) -> u32;
}

impl Address for u32 {
    const BITS: u32 = u32::BITS;

    fn span(net: &IpNet) -> Option<Interval> {
        match net {
            IpNet::V4(n) => Some((u32::from(n.network()).into(), u32::from(n.broadcast()).into())),
            IpNet::V6(_) => None,
        }
    }

    fn of(number: u128) -> Self {
        Self::try_from(number).unwrap_or(Self::MAX)
    }

    #[inline(always)]
    fn bits(self, shift: u32, mask: u32) -> u32 {
        self >> shift & mask
    }
}

impl Address for u128 {
    const BITS: u32 = u128::BITS;

    fn span(net: &IpNet) -> Option<Interval> {
        match net {
            IpNet::V6(n) => Some((n.network().into(), n.broadcast().into())),
            IpNet::V4(_) => None,
        }
    }

    fn of(number: u128) -> Self {
        number
    }

    #[inline(always)]
    fn bits(self, shift: u32, mask: u32) -> u32 {
        (self >> shift) as u32 & mask
    }
}

/// The properties of a packet in the form that areas have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<A> {
    source: A,
    destination: A,
    first_port: u32,
    destination_port: u32,
    tcp_flags: u16,
    protocol: u8,
    dscp_fragment: u8,
}

impl<A: Address> Default for Key<A> {
    fn default() -> Self {
        Self {
            source: A::default(),
            destination: A::default(),
            first_port: NO_PORT,
            destination_port: NO_PORT,
            tcp_flags: NO_FLAGS,
            protocol: 0,
            dscp_fragment: 0,
        }
    }
}

impl<A: Address> Key<A> {
    fn number(&self, part: Part) -> u128 {
        match part {
            Part::Source => self.source.into(),
            Part::Destination => self.destination.into(),
            Part::FirstPort => self.first_port.into(),
            Part::DestinationPort => self.destination_port.into(),
            Part::Protocol => self.protocol.into(),
        }
    }

    #[inline(always)]
    fn slot(&self, &Window { part, shift, mask }: &Window) -> usize {
        let bits = match part {
            Part::Source => self.source.bits(shift, mask),
            Part::Destination => self.destination.bits(shift, mask),
            Part::FirstPort => self.first_port.bits(shift, mask),
            Part::DestinationPort => self.destination_port.bits(shift, mask),
            Part::Protocol => u32::from(self.protocol).bits(shift, mask),
        };
        bits as usize
    }
}

/// What a rule matches, or a piece of that.
#[derive(Clone, Debug)]
struct Area<A> {
    /// Of sources and destinations.
    addresses: [(A, A); 2],
    /// First ports and destination ports.
    ports: [(u32, u32); 2],
    protocols: (u8, u8),
    /// The place of its rule in the list.
    rule: u32,
    /// One past the place of what its rule asks besides; 0 for nothing.
    more: u32,
}

impl<A: Address> Area<A> {
    fn new(bounds: &Bounds, rule: u32, more: u32) -> Self {
        let both = |part: Part| bounds[part as usize];
        let address = |part| (A::of(both(part).0), A::of(both(part).1));
        let port = |part| (u32::of(both(part).0), u32::of(both(part).1));
        let protocol = |number: u128| u8::try_from(number).unwrap_or(u8::MAX);
        let protocols = both(Part::Protocol);
        Self {
            addresses: [address(Part::Source), address(Part::Destination)],
            ports: [port(Part::FirstPort), port(Part::DestinationPort)],
            protocols: (protocol(protocols.0), protocol(protocols.1)),
            rule,
            more,
        }
    }

    /// Without branches: which comparison fails cannot be predicted.
    #[inline(always)]
    fn holds(&self, key: &Key<A>) -> bool {
        let ([source, destination], [first, last]) = (self.addresses, self.ports);
        within(source, key.source)
            & within(destination, key.destination)
            & within(first, key.first_port)
            & within(last, key.destination_port)
            & within(self.protocols, key.protocol)
    }
}

#[inline(always)]
fn within<N: Ord>((first, last): (N, N), number: N) -> bool {
    (first <= number) & (number <= last)
}

/// What a rule asks besides its area.
#[derive(Clone, Debug)]
struct More {
    /// Those of parts that have several.
    intervals: [Vec<Interval>; PARTS],
    /// A bit for each code point.
    dscp: u64,
    /// A bit for each [`Fragment`].
    fragments: u8,
    tcp_flags: Vec<TcpFlags>,
}

impl More {
    /// `None` if the rule asks nothing besides.
    fn of(rule: &Rule, intervals: [Vec<Interval>; PARTS]) -> Option<Self> {
        let asks = !(rule.dscp.is_empty() && rule.fragments.is_empty() && rule.tcp_flags.is_empty())
            || intervals.iter().any(|intervals| !intervals.is_empty());
        let dscp = rule.dscp.iter().filter(|point| **point < 64).fold(0, |all, point| all | 1 << point);
        let fragments = rule.fragments.iter().fold(0, |all, fragment| all | 1 << *fragment as u8);
        asks.then(|| Self {
            intervals,
            dscp: if rule.dscp.is_empty() { u64::MAX } else { dscp },
            fragments: if rule.fragments.is_empty() { u8::MAX } else { fragments },
            tcp_flags: rule.tcp_flags.clone(),
        })
    }

    fn holds<A: Address>(&self, key: &Key<A>) -> bool {
        let has = |flags: &TcpFlags| {
            key.tcp_flags != NO_FLAGS && key.tcp_flags & u16::from(flags.mask) == flags.value.into()
        };
        (self.dscp >> (key.dscp_fragment & 63) & 1 != 0)
            && (self.fragments >> (key.dscp_fragment >> 6) & 1 != 0)
            && (self.tcp_flags.is_empty() || self.tcp_flags.iter().any(has))
            && Part::ALL.into_iter().zip(&self.intervals).all(|(part, intervals)| {
                let number = key.number(part);
                let next = intervals.partition_point(|interval| interval.0 <= number);
                intervals.is_empty() || next.checked_sub(1).is_some_and(|at| number <= intervals[at].1)
            })
    }
}

/// A list for addresses `A`.
#[derive(Clone, Debug)]
pub(super) struct Table<A> {
    areas: Vec<Area<A>>,
    more: Vec<More>,
    tree: Tree,
    asks_ports: bool,
    asks_icmp: bool,
    asks_flags: bool,
}

impl<A: Address> Table<A> {
    /// Compiles the rules that packets of this family can match. `None` if they have too many areas.
    pub(super) fn new(rules: &[Rule]) -> Option<Self> {
        let (mut areas, mut bounds, mut more) = (Vec::new(), Vec::new(), Vec::new());
        for (number, rule) in (0..).zip(rules) {
            let Some(mut parts) = intervals::<A>(rule) else { continue };
            // Of the part with the most intervals, each has an area.
            let longest = Part::ALL.into_iter().max_by_key(|part| parts[*part as usize].len())?;
            let each = std::mem::take(&mut parts[longest as usize]);
            let mut of_area: Bounds = [ALL; PARTS];
            for (bounds, intervals) in of_area.iter_mut().zip(&mut parts) {
                if let ([first, ..], [.., last]) = (&intervals[..], &intervals[..]) {
                    *bounds = (first.0, last.1);
                }
                if intervals.len() == 1 {
                    intervals.clear();
                }
            }
            let asks = More::of(rule, parts);
            more.extend(asks.iter().cloned());
            let besides = if asks.is_some() { u32::of(more.len() as u128) } else { 0 };
            for interval in if each.is_empty() { vec![ALL] } else { each } {
                of_area[longest as usize] = interval;
                areas.push(Area::new(&of_area, number, besides));
                bounds.push(of_area);
            }
            if areas.len() > AREAS_MAX {
                return None;
            }
        }
        let asks = |part: fn(&Rule) -> bool| rules.iter().any(part);
        Some(Self {
            tree: Tree::new(&bounds, [A::BITS, A::BITS, 18, 18, 8]),
            areas,
            more,
            asks_ports: asks(|rule| !(rule.source_ports.is_empty() && rule.destination_ports.is_empty())),
            asks_icmp: asks(|rule| !rule.icmp.is_empty()),
            asks_flags: asks(|rule| !rule.tcp_flags.is_empty()),
        })
    }

    /// The key of a packet between these addresses.
    #[inline(always)]
    pub(super) fn key(&self, source: A, destination: A, packet: &Packet, l3: &[u8]) -> Key<A> {
        let mut key = Key {
            source,
            destination,
            protocol: packet.protocol,
            dscp_fragment: (Fragment::of(packet) as u8) << 6 | packet.traffic_class >> 2,
            ..Key::default()
        };
        if self.asks_ports
            && let Some((source_port, destination_port)) = ports(packet)
        {
            key.first_port = u32::from(source_port);
            key.destination_port = u32::from(destination_port);
        }
        if self.asks_icmp
            && let Some((kind, code)) = icmp(packet, l3)
        {
            key.first_port = ICMP | u32::from(kind) << 8 | u32::from(code);
        }
        if self.asks_flags {
            key.tcp_flags = tcp_flags(packet, l3).map_or(NO_FLAGS, u16::from);
        }
        key
    }

    /// The place of the first matching rule.
    #[inline(always)]
    pub(super) fn first(&self, key: &Key<A>) -> Option<usize> {
        let holds = |area: usize| {
            let area = &self.areas[area];
            area.holds(key) && (area.more == 0 || self.more[area.more as usize - 1].holds(key))
        };
        self.tree.first(&|window| key.slot(window), &holds).map(|area| self.areas[area].rule as usize)
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let intervals = self.more.iter().flat_map(|more| &more.intervals).map(Vec::len).sum::<usize>();
        self.tree.memory_bytes()
            + self.areas.len() * size_of::<Area<A>>()
            + self.more.len() * size_of::<More>()
            + intervals * size_of::<Interval>()
    }
}

/// The intervals of each part of a rule; none of a part that it does not ask for. `None` if it matches no packet of this
/// family.
fn intervals<A: Address>(rule: &Rule) -> Option<[Vec<Interval>; PARTS]> {
    let nets = |nets: &[IpNet]| joined(nets, A::span);
    let ports = |ports: &[RangeInclusive<u16>]| {
        joined(ports, |ports| Some(((*ports.start()).into(), (*ports.end()).into())))
    };
    let kind = |icmp: &IcmpKind| {
        let first = ICMP | u32::from(icmp.kind) << 8 | u32::from(icmp.code.unwrap_or(0));
        Some((first.into(), (first | icmp.code.map_or(255, |_| 0)).into()))
    };
    let first_ports = match (rule.source_ports.is_empty(), rule.icmp.is_empty()) {
        (false, false) => None,
        (_, true) => ports(&rule.source_ports),
        (true, false) => joined(&rule.icmp, kind),
    };
    Some([
        nets(&rule.sources)?,
        nets(&rule.destinations)?,
        first_ports?,
        ports(&rule.destination_ports)?,
        joined(&rule.protocols, |number| Some(((*number).into(), (*number).into())))?,
    ])
}

/// The intervals of entries, those that overlap or touch as one. `None` if there are entries but no interval.
fn joined<T>(entries: &[T], interval: impl Fn(&T) -> Option<Interval>) -> Option<Vec<Interval>> {
    let mut found: Vec<Interval> =
        entries.iter().filter_map(interval).filter(|(first, last)| first <= last).collect();
    found.sort_unstable();
    found.dedup_by(|next, before| {
        let joins = next.0 <= before.1.saturating_add(1);
        before.1 = if joins { before.1.max(next.1) } else { before.1 };
        joins
    });
    (entries.is_empty() || !found.is_empty()).then_some(found)
}

//! Kernel routes and their netlink messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thalweg_base::{Address, IpPrefix, Prefix};

use super::message::{AttributesOf, Message, MessageWriter, u16_at, u32_at};

/// What a route does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RouteTarget {
    /// Send them to a neighbor. An IPv4 route may have an IPv6 gateway (RFC 8950).
    Gateway {
        address: IpAddr,
        /// The gateway's interface; if `None`, the kernel finds it (not for a link-local address).
        interface: Option<u32>,
    },
    /// Send them out of an interface, whose neighbors are the destinations themselves.
    Interface(u32),
    /// Use the kernel's next-hop object with this number.
    Object(u32),
    /// Drop them silently.
    Blackhole,
    /// Drop them and tell the sender.
    Unreachable,
}

impl RouteTarget {
    /// Whether the kernel's target is the requested one: the kernel fills in a gateway's interface.
    pub fn is_met_by(self, found: Self) -> bool {
        match (self, found) {
            (Self::Gateway { address, interface: None }, Self::Gateway { address: found, .. }) => {
                address == found
            }
            _ => self == found,
        }
    }
}

/// A route to install. The installer adds table, protocol and metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelRoute {
    pub prefix: IpPrefix,
    pub target: RouteTarget,
}

/// A route found in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FoundRoute {
    pub prefix: IpPrefix,
    /// `None` for a target that [`RouteTarget`] cannot express, such as several paths or a local address.
    pub target: Option<RouteTarget>,
    /// Lower is preferred.
    pub metric: u32,
    /// The number of the program that installed it.
    pub protocol: u8,
    pub table: u32,
}

/// What all routes of an installer have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) table: u32,
    pub(super) protocol: u8,
    pub(super) metric: u32,
    /// Gateways are on the link of the route's interface, whatever networks the kernel knows there.
    pub(super) on_link: bool,
}

/// Bytes of `struct rtmsg`.
pub(super) const ROUTE_HEADER: usize = 12;

/// `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
fn header(family: i32, length: u8, table: u32, protocol: u8, scope: u8, kind: u8) -> [u8; ROUTE_HEADER] {
    // A table number above 255 is in an attribute.
    let table = u8::try_from(table).unwrap_or(libc::RT_TABLE_UNSPEC);
    [family as u8, length, 0, 0, table, protocol, scope, kind, 0, 0, 0, 0]
}

fn family(prefix: IpPrefix) -> i32 {
    match prefix {
        IpPrefix::V4(_) => libc::AF_INET,
        IpPrefix::V6(_) => libc::AF_INET6,
    }
}

fn write_address(writer: &mut MessageWriter, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(address) => writer.attribute(kind, &address.octets()),
        IpAddr::V6(address) => writer.attribute(kind, &address.octets()),
    }
}

/// Adds a message that installs a route or replaces the one with the same prefix, metric and table.
pub(super) fn write_replace(writer: &mut MessageWriter, sequence: u32, route: &KernelRoute, place: Place) {
    let kind = match route.target {
        RouteTarget::Blackhole => libc::RTN_BLACKHOLE,
        RouteTarget::Unreachable => libc::RTN_UNREACHABLE,
        _ => libc::RTN_UNICAST,
    };
    let scope = match (route.prefix, route.target) {
        // For an IPv4 route through an interface, the kernel requires the scope of hosts on the link.
        (IpPrefix::V4(_), RouteTarget::Interface(_)) => libc::RT_SCOPE_LINK,
        _ => libc::RT_SCOPE_UNIVERSE,
    };
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let mut header =
        header(family(route.prefix), route.prefix.length(), place.table, place.protocol, scope, kind);
    if let (RouteTarget::Gateway { interface: Some(_), .. }, true) = (route.target, place.on_link) {
        // `rtm_flags`.
        header[8..12].copy_from_slice(&RTNH_F_ONLINK.to_ne_bytes());
    }
    writer.begin(libc::RTM_NEWROUTE, flags as u16, sequence, &header);
    write_address(writer, libc::RTA_DST, route.prefix.address());
    write_place(writer, place.table, place.metric);
    match route.target {
        RouteTarget::Gateway { address, interface } => {
            match (route.prefix, address) {
                (IpPrefix::V4(_), IpAddr::V6(address)) => {
                    let mut via = [0; 18];
                    via[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                    via[2..].copy_from_slice(&address.octets());
                    writer.attribute(RTA_VIA, &via);
                }
                _ => write_address(writer, libc::RTA_GATEWAY, address),
            }
            if let Some(interface) = interface {
                writer.attribute_u32(libc::RTA_OIF, interface);
            }
        }
        RouteTarget::Interface(interface) => writer.attribute_u32(libc::RTA_OIF, interface),
        RouteTarget::Object(id) => writer.attribute_u32(RTA_NH_ID, id),
        RouteTarget::Blackhole | RouteTarget::Unreachable => {}
    }
    writer.end();
}

/// Adds a message that removes our route of a prefix.
pub(super) fn write_delete(writer: &mut MessageWriter, sequence: u32, prefix: IpPrefix, place: Place) {
    let nowhere = libc::RT_SCOPE_NOWHERE;
    // Neither scope nor type is given: this removes whichever route of ours exists.
    let header = header(family(prefix), prefix.length(), place.table, place.protocol, nowhere, 0);
    writer.begin(libc::RTM_DELROUTE, libc::NLM_F_REQUEST as u16, sequence, &header);
    write_address(writer, libc::RTA_DST, prefix.address());
    write_place(writer, place.table, place.metric);
    writer.end();
}

fn write_place(writer: &mut MessageWriter, table: u32, metric: u32) {
    if table > 255 {
        writer.attribute_u32(libc::RTA_TABLE, table);
    }
    writer.attribute_u32(libc::RTA_PRIORITY, metric);
}

/// Adds a message that requests the routes of a table, all or those of one protocol.
pub(super) fn write_dump(writer: &mut MessageWriter, sequence: u32, family: i32, table: u32, protocol: u8) {
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_DUMP;
    writer.begin(libc::RTM_GETROUTE, flags as u16, sequence, &header(family, 0, table, protocol, 0, 0));
    writer.attribute_u32(libc::RTA_TABLE, table);
    writer.end();
}

/// A gateway of another family than the route.
const RTA_VIA: u16 = 18;
/// Path flag: the link is down, or has no carrier.
const RTNH_F_DEAD: u8 = 1;
const RTNH_F_LINKDOWN: u8 = 16;
/// Flag: the gateway is on the link of the interface, whatever addresses that has.
const RTNH_F_ONLINK: u32 = 4;
/// The number of a next-hop object.
const RTA_NH_ID: u16 = 30;

/// The route in a message that lists or reports one; `None` for other messages, cached exceptions and other
/// families.
pub(super) fn parse(message: &Message<'_>) -> Option<FoundRoute> {
    let (found, fields) = read(message)?;
    Some(FoundRoute { target: fields.target(), ..found })
}

/// [`parse`] with one item per path of the route, without paths that the kernel itself skips. A next-hop
/// object is replaced by its paths.
pub(super) fn parse_ways(message: &Message<'_>) -> Vec<FoundRoute> {
    let Some((found, fields)) = read(message) else { return Vec::new() };
    let several =
        fields.several.filter(|_| fields.kind == libc::RTN_UNICAST).map(|ways| Ways(ways).collect());
    let targets = several.unwrap_or_else(|| Vec::from_iter(fields.way().or(fields.target())));
    targets.into_iter().map(|target| FoundRoute { target: Some(target), ..found }).collect()
}

/// Everything about a route but its target.
fn read<'a>(message: &Message<'a>) -> Option<(FoundRoute, Fields<'a>)> {
    if !matches!(message.kind, libc::RTM_NEWROUTE | libc::RTM_DELROUTE) {
        return None;
    }
    let header: &[u8; ROUTE_HEADER] = message.body.first_chunk()?;
    let [family, length, _, _, table, protocol, _, kind, ..] = *header;
    if u32_at(header, 8)? & libc::RTM_F_CLONED != 0 {
        return None;
    }
    let v6 = match i32::from(family) {
        libc::AF_INET => false,
        libc::AF_INET6 => true,
        _ => return None,
    };
    let mut fields = Fields { kind, table: table.into(), ..Fields::default() };
    for (attribute, value) in AttributesOf(message.body.get(ROUTE_HEADER..)?) {
        fields.take(attribute, value);
    }
    let prefix = match (v6, fields.destination) {
        (false, None) => Prefix::<u32>::new(0, length).ok()?.into(),
        (true, None) => Prefix::<u128>::new(0, length).ok()?.into(),
        (false, Some(IpAddr::V4(address))) => Prefix::new(u32::from(address), length).ok()?.into(),
        (true, Some(IpAddr::V6(address))) => Prefix::new(u128::from(address), length).ok()?.into(),
        _ => return None,
    };
    let (metric, table) = (fields.metric, fields.table);
    Some((FoundRoute { prefix, target: None, metric, protocol, table }, fields))
}

/// The attributes of a route.
#[derive(Default)]
struct Fields<'a> {
    kind: u8,
    destination: Option<IpAddr>,
    gateway: Option<IpAddr>,
    interface: Option<u32>,
    object: Option<u32>,
    several: Option<&'a [u8]>,
    metric: u32,
    table: u32,
}

impl<'a> Fields<'a> {
    fn take(&mut self, attribute: u16, value: &'a [u8]) {
        match attribute {
            libc::RTA_DST => self.destination = address(value),
            libc::RTA_GATEWAY => self.gateway = address(value),
            RTA_VIA => {
                self.gateway = value.get(2..).and_then(address).filter(|_| {
                    u16_at(value, 0)
                        .is_some_and(|family| [libc::AF_INET, libc::AF_INET6].contains(&i32::from(family)))
                })
            }
            libc::RTA_OIF => self.interface = u32_at(value, 0),
            libc::RTA_PRIORITY => self.metric = u32_at(value, 0).unwrap_or(0),
            libc::RTA_TABLE => self.table = u32_at(value, 0).unwrap_or(self.table),
            libc::RTA_MULTIPATH => self.several = Some(value),
            RTA_NH_ID => self.object = u32_at(value, 0),
            _ => {}
        }
    }

    fn target(&self) -> Option<RouteTarget> {
        match self.kind {
            libc::RTN_BLACKHOLE => Some(RouteTarget::Blackhole),
            libc::RTN_UNREACHABLE => Some(RouteTarget::Unreachable),
            libc::RTN_UNICAST => match (self.object, self.several) {
                (Some(id), _) => Some(RouteTarget::Object(id)),
                (None, Some(_)) => None,
                (None, None) => self.way(),
            },
            _ => None,
        }
    }

    /// The gateway or interface of a route with one path.
    fn way(&self) -> Option<RouteTarget> {
        if self.kind != libc::RTN_UNICAST {
            return None;
        }
        match (self.gateway, self.interface) {
            (Some(address), interface) => Some(RouteTarget::Gateway { address, interface }),
            (None, Some(interface)) => Some(RouteTarget::Interface(interface)),
            (None, None) => None,
        }
    }
}

/// The paths of a route with several, without dead ones; ends at the first malformed one.
struct Ways<'a>(&'a [u8]);

impl Iterator for Ways<'_> {
    type Item = RouteTarget;

    fn next(&mut self) -> Option<RouteTarget> {
        /// `struct rtnexthop`: length 2, flags, hops, index 4.
        const HEADER: usize = 8;
        loop {
            let length = usize::from(u16_at(self.0, 0)?);
            let way = self.0.get(..length).filter(|way| way.len() >= HEADER)?;
            self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
            let mut fields =
                Fields { kind: libc::RTN_UNICAST, interface: u32_at(way, 4), ..Fields::default() };
            AttributesOf(&way[HEADER..]).for_each(|(attribute, value)| fields.take(attribute, value));
            if way[2] & (RTNH_F_DEAD | RTNH_F_LINKDOWN) == 0 {
                return fields.way();
            }
        }
    }
}

/// An address of 4 or 16 bytes.
pub(super) fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into()),
        _ => None,
    }
}

/// The prefix that contains an interface's address.
pub(super) fn prefix_of(address: IpAddr, length: u8) -> Option<IpPrefix> {
    fn new<A: Address>(address: A, length: u8) -> Option<Prefix<A>> {
        Prefix::new(address, length).ok()
    }
    match address {
        IpAddr::V4(address) => new(u32::from(address), length).map(IpPrefix::V4),
        IpAddr::V6(address) => new(u128::from(address), length).map(IpPrefix::V6),
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Messages;
    use super::*;
    use proptest::prelude::*;

    fn target() -> impl Strategy<Value = RouteTarget> {
        let address =
            prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from),];
        prop_oneof![
            (address, any::<Option<u32>>())
                .prop_map(|(address, interface)| RouteTarget::Gateway { address, interface }),
            any::<u32>().prop_map(RouteTarget::Interface),
            any::<u32>().prop_map(RouteTarget::Object),
            Just(RouteTarget::Blackhole),
            Just(RouteTarget::Unreachable),
        ]
    }

    proptest! {
        #[test]
        fn a_route_that_is_written_is_read(
            bits: u128, length in 0u8..=128, v6: bool, target in target(), metric: u32, protocol: u8, table in 1u32..1000,
        ) {
            let prefix: IpPrefix = if v6 {
                Prefix::new(bits, length).unwrap().into()
            } else {
                Prefix::new(bits as u32, length.min(32)).unwrap().into()
            };
            let place = Place { table, protocol, metric, on_link: metric % 2 == 0 };
            let mut writer = MessageWriter::default();
            write_replace(&mut writer, 7, &KernelRoute { prefix, target }, place);
            write_delete(&mut writer, 8, prefix, place);
            let messages: Vec<_> = Messages(writer.bytes()).collect();
            let found = FoundRoute { prefix, target: Some(target), metric, protocol, table };
            prop_assert_eq!(parse(&messages[0]), Some(found));
            prop_assert_eq!(parse(&messages[1]), Some(FoundRoute { target: None, ..found }));
        }

        #[test]
        fn nonsense_is_no_route(body in prop::collection::vec(any::<u8>(), 0..80)) {
            let message = Message { kind: libc::RTM_NEWROUTE, flags: 0, sequence: 0, body: &body };
            if let Some(route) = parse(&message) {
                prop_assert!(body.len() >= ROUTE_HEADER && route.protocol == body[5]);
            }
            prop_assert!(parse_ways(&message).len() <= body.len() / 8 + 1);
        }
    }

    #[test]
    fn each_way_of_a_route_with_several_is_found_but_for_dead_ones() {
        let way = |flags: u8, interface: u32, gateway: &[u8]| {
            let mut bytes = vec![8 + 4 + gateway.len() as u8, 0, flags, 0];
            bytes.extend(interface.to_ne_bytes());
            bytes.extend([4 + gateway.len() as u8, 0, libc::RTA_GATEWAY as u8, 0]);
            bytes.extend(gateway);
            bytes
        };
        let ways = [
            way(0, 3, &[192, 0, 2, 1]),
            way(RTNH_F_DEAD, 4, &[192, 0, 2, 2]),
            way(RTNH_F_LINKDOWN, 4, &[192, 0, 2, 3]),
            way(0, 5, &[192, 0, 2, 4]),
        ];
        let mut writer = MessageWriter::default();
        let header = header(libc::AF_INET, 24, 254, 4, 0, libc::RTN_UNICAST);
        writer.begin(libc::RTM_NEWROUTE, 0, 1, &header);
        writer.attribute(libc::RTA_DST, &[198, 51, 100, 0]);
        writer.attribute_u32(libc::RTA_PRIORITY, 20);
        writer.attribute(libc::RTA_MULTIPATH, &ways.concat());
        writer.end();
        let message = Messages(writer.bytes()).next().unwrap();
        let found: Vec<_> = parse_ways(&message).iter().map(|route| (route.metric, route.target)).collect();
        let gateway = |host, interface| {
            (20, Some(RouteTarget::Gateway { address: [192, 0, 2, host].into(), interface: Some(interface) }))
        };
        assert_eq!(found, [gateway(1, 3), gateway(4, 5)]);
        assert_eq!(parse(&message).unwrap().target, None);
    }

    #[test]
    fn the_kernel_may_fill_in_the_interface() {
        let gateway = |interface| RouteTarget::Gateway { address: [192, 0, 2, 1].into(), interface };
        assert!(gateway(None).is_met_by(gateway(Some(3))));
        assert!(!gateway(Some(2)).is_met_by(gateway(Some(3))));
        assert!(!gateway(None).is_met_by(RouteTarget::Interface(3)));
    }
}

//! `[nat]`: address and port translation for IPv4.
//!
//! ```toml
//! [nat]
//! outside = "wan"                  # required: port towards the public network
//! inside = ["lan", "voice"]        # required: ports whose sources are translated
//! addresses = ["203.0.113.2"]      # public addresses; default: the IPv4 addresses of the outside port, those that a
//!                                  # DHCP client gives its mirror among them
//! ports = "1024-65535"             # public ports for sessions; this is the default
//! shards = 64                      # a power of two up to 256, at most ports / 2; default 64
//! sessions_max = 65536             # size of the session table; default 65536
//! port_selection = "preserve"      # or "hash"; RFC 4787 section 4.2
//! filtering = "endpoint-independent"  # or "address-dependent"; RFC 4787 section 5
//! hairpin = true                   # inside hosts reach each other through public addresses
//! inbound_refresh = false          # packets from outside keep a session alive too (RFC 4787 REQ-6)
//! host_sessions_max = 4096         # sessions of one inside host; default: a 16th of sessions_max, 64 to 4096; 0: no limit
//! host_sessions_per_second = 1000  # new ones; default: a quarter of the default above, 100 to 1000; 0: no limit
//! drop_half_open = true            # half-open TCP sessions live shorter, and make room, when the table fills up
//! refusal = "host-unreachable"     # or "prohibited", "silent": what a host is told that gets no session
//!
//! [nat.timeouts]                   # seconds of idleness; these are the defaults
//! udp_s = 300
//! tcp_established_s = 7440
//! tcp_transitory_s = 240
//! tcp_aborted_s = 10               # connections that were refused or reset beyond doubt
//! icmp_s = 60
//! other_s = 600                    # protocols without ports
//!
//! [[nat.forwards]]
//! protocol = "tcp"                 # or "udp"; required
//! port = 8080                      # public port, or a range "8080-8090"; required
//! address = "203.0.113.2"          # public address; default: the first one
//! to = "192.168.1.10:80"           # inside host and its port, the first of a range; required
//! ```
//!
//! `[nat.subscribers]` is in `nat_subscribers.rs`.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use crate::diagnostic::ErrorKind;
use crate::nat_subscribers;
use crate::ports::Ports;
use crate::reader::{At, Item, Reader, Section, integer_of};
use crate::types::{
    Filtering, ForwardProtocol, HostLimits, NatConfig, NatRefusal, NatTimeouts, PortForward, PortIndex,
    PortRange, PortSelection,
};
use crate::values;

const SHARDS_DEFAULT: u16 = 64;
const SHARDS_MAX: u64 = 256;
const ADDRESSES_MAX: usize = 256;
const SESSIONS_DEFAULT: u32 = 65_536;
const SESSIONS_MAX: u64 = 1 << 24;
const HOST_RATE_MAX: u64 = 1_000_000;
const PORTS_DEFAULT: PortRange = PortRange { first: 1024, last: 65535 };
/// A week: longer timeouts are mistakes.
const TIMEOUT_MAX_S: u64 = 7 * 24 * 3600;

/// Reads `[nat]`; `None` if it is not there or has no use because of mistakes.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, ports: &Ports) -> Option<NatConfig> {
    let item = root.take("nat")?;
    let mut section = reader.section(&item, "[nat]".to_owned())?;
    let outside = section.require("outside", "\"wan\"").and_then(|item| ports.named(reader, &item));
    let inside = read_inside(reader, &mut section, ports, outside);
    let addresses = read_addresses(reader, &mut section, ports, outside, &inside);
    let range = section.take("ports").and_then(|item| port_range(reader, &item));
    let range = range.unwrap_or(At { value: PORTS_DEFAULT, span: section.span.clone() });
    let subscribers = nat_subscribers::read(reader, &mut section, &range, addresses.len());
    let shards = read_shards(reader, &mut section, &range, subscribers.as_ref());
    let sessions_max = read_sessions_max(reader, &mut section, range.value, addresses.len());
    let hosts = read_hosts(reader, &mut section, sessions_max);
    let selections = [("preserve", PortSelection::Preserve), ("hash", PortSelection::Hash)];
    let filterings = [
        ("endpoint-independent", Filtering::EndpointIndependent),
        ("address-dependent", Filtering::AddressDependent),
    ];
    let port_selection = section.take("port_selection").and_then(|item| reader.word(&item, &selections));
    let filtering = section.take("filtering").and_then(|item| reader.word(&item, &filterings));
    let hairpin = section.take("hairpin").and_then(|item| reader.boolean(&item)).unwrap_or(true);
    let inbound_refresh =
        section.take("inbound_refresh").and_then(|item| reader.boolean(&item)).unwrap_or(false);
    let refusals = [
        ("host-unreachable", NatRefusal::HostUnreachable),
        ("prohibited", NatRefusal::Prohibited),
        ("silent", NatRefusal::Silent),
    ];
    let refusal = section.take("refusal").and_then(|item| reader.word(&item, &refusals)).unwrap_or_default();
    let timeouts = read_timeouts(reader, &mut section);
    let forwards = read_forwards(reader, &mut section, ports, outside, &addresses);
    section.finish(reader);
    Some(NatConfig {
        outside: outside?,
        inside,
        addresses,
        ports: range.value,
        shards,
        sessions_max,
        port_selection: port_selection.unwrap_or_default(),
        filtering: filtering.unwrap_or_default(),
        hairpin,
        inbound_refresh,
        timeouts,
        forwards,
        subscribers: subscribers.map(|subscribers| subscribers.config),
        hosts,
        refusal,
    })
}

/// A port or a range of ports.
pub(crate) fn port_range(reader: &mut Reader, item: &Item<'_>) -> Option<At<PortRange>> {
    if integer_of(item.value).is_some() {
        let port = reader.integer(item, 1..=65535, "")? as u16;
        return Some(At { value: PortRange { first: port, last: port }, span: item.span.clone() });
    }
    reader.parse(item, values::port_range)
}

fn read_inside(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    outside: Option<PortIndex>,
) -> Vec<PortIndex> {
    let mut inside = Vec::new();
    let Some(item) = section.require("inside", "[\"lan\"]") else { return inside };
    for entry in reader.filled_list(&item) {
        let Some(port) = ports.named(reader, &entry) else { continue };
        if Some(port) == outside {
            let message = format!("port {} is both outside and inside", ports.name(port));
            reader.error(ErrorKind::Conflict, &entry.span, message, "a port other than the outside one");
        } else if inside.contains(&port) {
            let message = format!("port {} is given twice", ports.name(port));
            reader.error(ErrorKind::Duplicate, &entry.span, message, "each port once");
        } else {
            inside.push(port);
        }
    }
    inside
}

fn read_addresses(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    outside: Option<PortIndex>,
    inside: &[PortIndex],
) -> Vec<Ipv4Addr> {
    let mut addresses = Vec::new();
    let Some(item) = section.take("addresses") else {
        addresses.extend(outside.iter().flat_map(|port| own_v4(ports, *port)));
        let pending = outside.filter(|_| addresses.is_empty()).and_then(|port| mirror_of(ports, port));
        if let Some((port, mirror)) = pending {
            let message =
                format!("port {port} has no IPv4 address: NAT waits for one on its mirror {mirror}");
            let expected = "a DHCP client there, or `addresses` of the port";
            reader.warning(ErrorKind::MissingKey, &section.span.clone(), message, expected);
        } else if let (true, Some(outside)) = (addresses.is_empty(), outside) {
            let message = format!("no public address: port {} has no IPv4 address", ports.name(outside));
            reader.error(ErrorKind::MissingKey, &section.span.clone(), message, "`addresses = [\"...\"]`");
        }
        return addresses;
    };
    for entry in reader.filled_list(&item) {
        let Some(at) = reader.parse(&entry, values::address_v4) else { continue };
        let address = at.value;
        if let Some(why) = ports.nobodys(IpAddr::V4(address)) {
            let message = format!("public address {why}");
            reader.error(ErrorKind::BadValue, &at.span, message, "a unicast address");
            continue;
        }
        if !values::is_unicast(IpAddr::V4(address)) {
            let message = format!("{address} cannot be a public address");
            reader.error(ErrorKind::BadValue, &at.span, message, "a unicast address");
            continue;
        }
        if addresses.contains(&address) {
            let message = format!("public address {address} is given twice");
            reader.error(ErrorKind::Duplicate, &at.span, message, "each address once");
            continue;
        }
        if addresses.len() >= ADDRESSES_MAX {
            let expected = format!("at most {ADDRESSES_MAX}");
            reader.error(ErrorKind::TooMany, &at.span, "too many public addresses", expected);
            break;
        }
        addresses.push(address);
        let owner = ports.owner(IpAddr::V4(address));
        if let Some(port) = owner.filter(|port| inside.contains(port)) {
            let message = format!("public address {address} belongs to the inside port {}", ports.name(port));
            reader.error(ErrorKind::Conflict, &at.span, message, "an address of the outside network");
        } else if let Some(port) = ports.connected(IpAddr::V4(address)).filter(|port| inside.contains(port)) {
            let message =
                format!("public address {address} is in the network of the inside port {}", ports.name(port));
            reader.error(ErrorKind::Conflict, &at.span, message, "an address of the outside network");
        } else if let Some(outside) = outside.filter(|port| owner != Some(*port)) {
            let message =
                format!("public address {address} is not an address of port {}", ports.name(outside));
            let finding =
                reader.warning(ErrorKind::NotConnected, &at.span, message, "an address of the outside port");
            finding.help = Some("fine if the next router has a route to it through this one".to_owned());
        }
    }
    addresses
}

/// A port's name and its mirror, where a DHCP client may work.
fn mirror_of(ports: &Ports, port: PortIndex) -> Option<(&str, &str)> {
    let config = ports.configs.get(usize::from(port))?;
    Some((&config.name, config.interface.as_ref()?.mirror.as_deref()?))
}

fn own_v4(ports: &Ports, port: PortIndex) -> impl Iterator<Item = Ipv4Addr> {
    ports.addresses.iter().filter(move |(p, _)| *p == port).filter_map(|(_, net)| match net.value.addr() {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    })
}

/// A shard owns pairs of ports (RFC 4787 REQ-4 keeps the parity of a port), so it needs two at least; or blocks of
/// subscribers, of which it needs one on each address.
fn read_shards(
    reader: &mut Reader,
    section: &mut Section<'_>,
    range: &At<PortRange>,
    subscribers: Option<&nat_subscribers::Read>,
) -> u16 {
    let pairs = range.value.count() / 2;
    if pairs == 0 {
        let message = "one public port is too few".to_owned();
        reader.error(ErrorKind::BadValue, &range.span, message, "at least two ports");
    }
    let Some(item) = section.take("shards") else {
        let default = SHARDS_DEFAULT.min(1 << pairs.clamp(1, 256).ilog2());
        return subscribers.map_or(default, |subscribers| subscribers.shards_default());
    };
    let Some(shards) = reader.integer(&item, 1..=SHARDS_MAX, "") else { return SHARDS_DEFAULT };
    if !shards.is_power_of_two() {
        let message = format!("{shards} shards cannot be told apart by bits of a hash");
        reader.error(ErrorKind::BadValue, &item.span, message, "a power of two from 1 to 256");
    } else if shards > u64::from(pairs.max(1)) {
        let message = format!("{shards} shards cannot share {} public ports", range.value.count());
        reader.error(ErrorKind::Conflict, &item.span, message, "at most one shard for every two ports");
    } else if let Some(subscribers) = subscribers.filter(|s| shards > u64::from(s.blocks.max(1))) {
        let message = format!("{shards} shards cannot share {} blocks of ports", subscribers.blocks);
        reader.error(ErrorKind::Conflict, &item.span, message, "at most one shard for every block");
    }
    shards as u16
}

fn read_sessions_max(
    reader: &mut Reader,
    section: &mut Section<'_>,
    range: PortRange,
    addresses: usize,
) -> u32 {
    let Some(item) = section.take("sessions_max") else { return SESSIONS_DEFAULT };
    let Some(sessions) = reader.integer(&item, 1..=SESSIONS_MAX, "") else { return SESSIONS_DEFAULT };
    // TCP, UDP and ICMP have port spaces of their own.
    let mappings = 3 * u64::from(range.count()) * addresses as u64;
    if sessions > mappings && addresses > 0 {
        let message = format!("{sessions} sessions are more than {mappings} public ports can carry");
        let expected = "at most addresses x ports x 3 protocols";
        reader.warning(ErrorKind::TooMany, &item.span, message, expected);
    }
    sessions as u32
}

/// What one inside host may take.
fn read_hosts(reader: &mut Reader, section: &mut Section<'_>, sessions_max: u32) -> HostLimits {
    let fair = HostLimits::fair(sessions_max);
    let mut limit = |key: &'static str, most: u64, default: Option<u32>| {
        let value = section.take(key).and_then(|item| reader.integer(&item, 0..=most, ""));
        value.map_or(default, |n| (n > 0).then_some(n as u32))
    };
    let sessions_max = limit("host_sessions_max", SESSIONS_MAX, fair.sessions_max);
    let new_per_second = limit("host_sessions_per_second", HOST_RATE_MAX, fair.new_per_second);
    let half_open = section.take("drop_half_open").and_then(|item| reader.boolean(&item));
    let drops_half_open = half_open.unwrap_or(fair.drops_half_open);
    HostLimits { sessions_max, new_per_second, drops_half_open }
}

fn read_timeouts(reader: &mut Reader, section: &mut Section<'_>) -> NatTimeouts {
    let mut timeouts = NatTimeouts::default();
    let Some(item) = section.take("timeouts") else { return timeouts };
    let Some(mut section) = reader.section(&item, "[nat.timeouts]".to_owned()) else { return timeouts };
    let rows: [(&'static str, &mut u32, u32, &str); 6] = [
        ("udp_s", &mut timeouts.udp_s, 120, "RFC 4787 section 4.3"),
        ("tcp_established_s", &mut timeouts.tcp_established_s, 7440, "RFC 5382 section 5"),
        ("tcp_transitory_s", &mut timeouts.tcp_transitory_s, 240, "RFC 5382 section 5"),
        ("tcp_aborted_s", &mut timeouts.tcp_aborted_s, 1, ""),
        ("icmp_s", &mut timeouts.icmp_s, 60, "RFC 5508 section 3.2"),
        ("other_s", &mut timeouts.bare_s, 30, "keepalives of tunnels"),
    ];
    for (key, value, least, source) in rows {
        let Some(item) = section.take(key) else { continue };
        let Some(seconds) = reader.integer(&item, 1..=TIMEOUT_MAX_S, "seconds") else { continue };
        *value = seconds as u32;
        if *value < least {
            let message = format!("{key} is shorter than hosts rely on");
            let expected = format!("at least {least} ({source})");
            reader.warning(ErrorKind::BadValue, &item.span, message, expected);
        }
    }
    section.finish(reader);
    timeouts
}

fn read_forwards(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    outside: Option<PortIndex>,
    addresses: &[Ipv4Addr],
) -> Vec<PortForward> {
    let mut forwards: Vec<(PortForward, Range<usize>)> = Vec::new();
    let Some(item) = section.take("forwards") else { return Vec::new() };
    let protocols = [("tcp", ForwardProtocol::Tcp), ("udp", ForwardProtocol::Udp)];
    for entry in reader.list(&item) {
        let Some(mut section) = reader.section(&entry, "[[nat.forwards]]".to_owned()) else { continue };
        let protocol = section.require("protocol", "\"tcp\"").and_then(|item| reader.word(&item, &protocols));
        let range = section.require("port", "8080").and_then(|item| port_range(reader, &item));
        let address = match section.take("address") {
            Some(item) => read_forward_address(reader, &item, addresses),
            None => addresses.first().copied(),
        };
        let to = section
            .require("to", "\"192.168.1.10:80\"")
            .and_then(|item| reader.parse(&item, values::socket_v4));
        section.finish(reader);
        let (Some(protocol), Some(range), Some(address), Some(to)) = (protocol, range, address, to) else {
            continue;
        };
        let forward = PortForward { protocol, address, ports: range.value, to: to.value };
        if u32::from(to.value.port()) + range.value.count() > 65_536 {
            let message =
                format!("{} ports from {} on end beyond 65535", range.value.count(), to.value.port());
            let expected = format!("a first port of at most {}", 65_536 - range.value.count());
            reader.error(ErrorKind::BadValue, &to.span, message, expected);
            continue;
        }
        let inside = IpAddr::V4(*to.value.ip());
        let leads_out = outside.is_some() && ports.connected(inside) == outside;
        if !values::is_unicast(inside) || leads_out || addresses.contains(to.value.ip()) {
            let message = format!("port forward to {inside}, which is not inside");
            reader.error(ErrorKind::Conflict, &to.span, message, "an inside host");
            continue;
        }
        if let Some(port) = ports.owner(inside) {
            let message =
                format!("port forward to {inside}, the router's own address on port {}", ports.name(port));
            reader.error(ErrorKind::Conflict, &to.span, message, "an inside host");
            continue;
        }
        if let Some(why) = ports.nobodys(inside) {
            reader.error(ErrorKind::BadValue, &to.span, format!("port forward: {why}"), "an inside host");
            continue;
        }
        if let Some((other, first)) = forwards.iter().find(|(other, _)| clash_outside(other, &forward)) {
            let message = format!("public port {} is forwarded twice", forward.ports);
            let expected = format!("ports other than {} of {}", other.ports, reader.line(first));
            reader.error(ErrorKind::Overlap, &range.span, message, expected);
            continue;
        }
        if let Some((_, first)) = forwards.iter().find(|(other, _)| clash_inside(other, &forward)) {
            let message = format!("two port forwards lead to {}", to.value);
            let expected = format!("an inside port other than that of {}", reader.line(first));
            let finding = reader.error(ErrorKind::Overlap, &to.span, message, expected);
            finding.help = Some("an inside host's port has one public port (RFC 4787 REQ-1)".to_owned());
            continue;
        }
        forwards.push((forward, range.span));
    }
    forwards.into_iter().map(|(forward, _)| forward).collect()
}

fn read_forward_address(reader: &mut Reader, item: &Item<'_>, addresses: &[Ipv4Addr]) -> Option<Ipv4Addr> {
    let at = reader.parse(item, values::address_v4)?;
    if !addresses.contains(&at.value) {
        let message = format!("{} is none of the public addresses", at.value);
        reader.error(ErrorKind::UnknownName, &at.span, message, "one of [nat] addresses");
        return None;
    }
    Some(at.value)
}

fn clash_outside(a: &PortForward, b: &PortForward) -> bool {
    a.protocol == b.protocol && a.address == b.address && a.ports.overlaps(b.ports)
}

/// With endpoint-independent mapping, replies of an inside port can leave by one public port only.
fn clash_inside(a: &PortForward, b: &PortForward) -> bool {
    a.protocol == b.protocol && a.to.ip() == b.to.ip() && a.inside_ports().overlaps(b.inside_ports())
}

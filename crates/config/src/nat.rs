//! `[nat]`: address and port translation to IPv4. `[nat.subscribers]` is in `nat_subscribers.rs`, groups of hosts in
//! `nat_groups.rs`, pairs of addresses and exceptions in `nat_addresses.rs`, and what both know of public
//! addresses in `nat_publics.rs`.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::ops::{Range, RangeInclusive};

use ipnet::{IpNet, Ipv4Net};
use thalweg_dataplane::helpers::Helper;
use thalweg_dataplane::nat::{
    BlockAllocation, Filtering, HostLimits, Nat64Config, Nat64Prefix, NatConfig, NatProtocol, NatRefusal,
    NatTimeouts, OtherOutside, PortForward, PortSelection,
};

use crate::diagnostic::{ErrorKind, one_of};
use crate::items::{helpers, port_range};
use crate::key::{Key, Sub, table};
use crate::nat_addresses;
use crate::nat_groups;
use crate::nat_publics::Publics;
use crate::nat_subscribers::{self, SUBSCRIBERS};
use crate::ports::Ports;
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::types::{MTU_DEFAULT, PortIndex, RouteTarget, RoutingConfig, TargetIndex, VrfIndex};
use crate::values::{self, ports_text};

pub(crate) static NAT: Key<Sub> = Key::section("nat", &TABLE)
    .help("network address translation, to IPv4 from IPv4 and from IPv6: see [nat.md](nat.md)");
table! {
    static TABLE: "nat", "[nat]";

    static OUTSIDE: Key<()> = Key::raw("outside", "a port or a list").required("\"wan\"").help(
        "the port toward the public network, or several: see [nat.md](nat.md#several-outside-ports)",
    );
    static INSIDE: Key<()> = Key::raw("inside", "a port or a list")
        .required("[\"lan\"]")
        .help("the ports whose sources are translated: `[\"office\", \"voice\"]`");
    static ADDRESSES: Key<()> = Key::raw("addresses", "an address or a list of at most 256")
        .otherwise("the IPv4 addresses of the outside port, those that a DHCP client gives its mirror among them")
        .help("public addresses");
    static POOLS: Key<()> = Key::raw("pools", "a table").help(
        "public addresses by outside port, where there are several: `isp1 = [\"203.0.113.2\"]`; the others have those of \
         their port",
    );
    static PORTS: Key<RangeInclusive<u16>> = Key::by("ports", "a port or a range", port_range)
        .default_toml("\"1024-65535\"")
        .help("public ports for sessions");
    static SHARDS: Key<u16> = Key::number("shards", 1..=256)
        .otherwise("`64`, or less where ports or blocks are fewer")
        .help(
            "pieces that sessions are cut into: a power of two, at most half as many as there are ports, with blocks at most \
             as many as an address has",
        );
    static SESSIONS_MAX: Key<u32> = Key::number("sessions_max", 1..=SESSIONS_MOST)
        .default_of(|| NatConfig::default().sessions_max)
        .help("size of the session table");
    static PORT_SELECTION: Key<PortSelection> = Key::word("port_selection", &PortSelection::NAMES)
        .default_of(|| NatConfig::default().port_selection)
        .help("`\"preserve\"`: the inside port if it is free; `\"hash\"`: any of the shard's (RFC 4787 section 4.2)");
    static FILTERING: Key<Filtering> =
        Key::word("filtering", &Filtering::NAMES).default_of(|| NatConfig::default().filtering).help(
            "who may use a session from outside: `\"endpoint-independent\"`: anyone; `\"address-dependent\"`: addresses the \
             inside host has sent to; `\"address-and-port-dependent\"`: their ports that it has sent to (RFC 4787 section 5)",
        );
    static HAIRPIN: Key<bool> = Key::flag("hairpin")
        .default_of(|| NatConfig::default().hairpin)
        .help("inside hosts reach each other through public addresses");
    static INBOUND_REFRESH: Key<bool> = Key::flag("inbound_refresh")
        .default_of(|| NatConfig::default().inbound_refresh)
        .help("let packets from outside refresh UDP and ICMP sessions too (RFC 4787 REQ-6)");
    static HOST_SESSIONS_MAX: Key<u32> = Key::number("host_sessions_max", 0..=SESSIONS_MOST)
        .otherwise("a sixteenth of `sessions_max`, at least 64, at most 4096")
        .help(
            "sessions that one inside host may have, [about](nat.md#what-one-host-may-take); `0`: no limit. With \
             `[nat.subscribers]` its `sessions_max` holds instead",
        );
    static HOST_SESSIONS_PER_SECOND: Key<u32> = Key::number("host_sessions_per_second", 0..=1_000_000)
        .otherwise("a sixty-fourth of `sessions_max`, at least 100, at most 1000")
        .help("limit of new sessions per second of an inside host, approximate; `0`: no limit");
    static DROP_HALF_OPEN: Key<bool> = Key::flag("drop_half_open")
        .default(true)
        .help("when the table fills up, shorten half-open TCP sessions to 30 s and evict them first");
    static REFUSAL: Key<NatRefusal> =
        Key::word("refusal", &NatRefusal::NAMES).default_of(|| NatConfig::default().refusal).help(
            "what a host is told, on live interfaces, whose packet needs a session and gets none: `\"host-unreachable\"` \
             (ICMP 3/1, RFC 6888 REQ-11b), `\"prohibited\"` (3/13, RFC 5508 REQ-8), `\"silent\"`",
        );
    static NAT64: Key<Nat64Prefix> = Key::text("nat64", NAT64_PREFIX, nat64_prefix)
        .otherwise("none")
        .example("\"64:ff9b::/96\"")
        .help(
            "IPv6 hosts on inside ports reach IPv4 hosts by addresses with this prefix (RFC 6146): see \
             [nat.md](nat.md#ipv6-hosts-inside)",
        );
    static TIMEOUTS: Key<Sub> = Key::section("timeouts", &TIMEOUTS_TABLE).help("idle timeouts of sessions");
    row SUBSCRIBERS;
    static FORWARDS: Key<Sub> =
        Key::sections("forwards", &FORWARDS_TABLE).help("static port forwards to inside hosts");
    static HELPERS: Key<Vec<Helper>> = Key::by("helpers", "a word or a list", helpers)
        .otherwise("none")
        .help("`\"ftp\"`, `\"sip\"`, `\"pptp\"`: rewrite their messages and let in what these announce, [about](nat.md#helpers)");
    row nat_addresses::ONE_TO_ONE;
    row nat_addresses::EXCEPTIONS;
    row nat_groups::GROUPS;
}

table! {
    static TIMEOUTS_TABLE: "nat.timeouts", "[nat.timeouts]";

    static UDP_S: Key<u32> = Key::number("udp_s", TIMEOUT_S)
        .unit("seconds")
        .default(NatTimeouts::DEFAULT.udp_s)
        .help("UDP (RFC 4787 section 4.3)");
    static TCP_ESTABLISHED_S: Key<u32> = Key::number("tcp_established_s", TIMEOUT_S)
        .unit("seconds")
        .default(NatTimeouts::DEFAULT.tcp_established_s)
        .help("established TCP (RFC 5382 section 5)");
    static TCP_TRANSITORY_S: Key<u32> = Key::number("tcp_transitory_s", TIMEOUT_S)
        .unit("seconds")
        .default(NatTimeouts::DEFAULT.tcp_transitory_s)
        .help("TCP that opens or closes (RFC 5382 section 5)");
    static TCP_ABORTED_S: Key<u32> = Key::number("tcp_aborted_s", TIMEOUT_S).unit("seconds").default(NatTimeouts::DEFAULT.tcp_aborted_s).help(
        "TCP that was refused or reset, [beyond doubt](nat.md#what-one-host-may-take); at most `tcp_transitory_s`",
    );
    static ICMP_S: Key<u32> = Key::number("icmp_s", TIMEOUT_S)
        .unit("seconds")
        .default(NatTimeouts::DEFAULT.icmp_s)
        .help("ICMP queries (RFC 5508 section 3.2)");
    static OTHER_S: Key<u32> = Key::number("other_s", TIMEOUT_S)
        .unit("seconds")
        .default(NatTimeouts::DEFAULT.bare_s)
        .help("protocols without ports: GRE, ESP, SCTP and all others");
}

table! {
    static FORWARDS_TABLE: "nat.forwards", "[[nat.forwards]]";

    static FORWARD_PROTOCOL: Key<NatProtocol> =
        Key::word("protocol", &[("tcp", NatProtocol::Tcp), ("udp", NatProtocol::Udp)])
            .required("\"tcp\"")
            .help("transport protocol");
    static FORWARD_PORT: Key<RangeInclusive<u16>> = Key::by("port", "a port or a range", port_range)
        .required("8080")
        .help("public port, or a range `\"8080-8090\"`");
    static FORWARD_ADDRESS: Key<Ipv4Addr> = Key::text("address", "an IPv4 address", values::address_v4)
        .otherwise("the first one")
        .help("public address");
    static FORWARD_OUTSIDE: Key<()> = Key::raw("outside", "a port")
        .otherwise("the one that has the address")
        .help("the outside port, where several have the address, each in its VRF");
    static FORWARD_VRF: Key<()> = Key::raw("vrf", "a VRF")
        .otherwise("that of the outside port")
        .help("the [VRF](vrf.md) of the inside host");
    static FORWARD_TO: Key<SocketAddrV4> = Key::text("to", "an IPv4 address and port", values::socket_v4)
        .required("\"192.168.1.10:80\"")
        .help("inside host and its port, or the first port of a range: `\"192.168.1.10:80\"`");
}

const NAT64_PREFIX: &str = "an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, bits 64 to 71 zero (RFC 6052)";
const SHARDS_DEFAULT: u16 = 64;
const SESSIONS_MOST: u64 = 1 << 24;
/// Up to a week: longer timeouts are errors.
const TIMEOUT_S: RangeInclusive<u64> = 1..=7 * 24 * 3600;

fn nat64_prefix(text: &str) -> Result<Nat64Prefix, &'static str> {
    match values::prefix(text)? {
        IpNet::V6(net) => Nat64Prefix::new(net).ok_or(NAT64_PREFIX),
        IpNet::V4(_) => Err(NAT64_PREFIX),
    }
}

/// Reads `[nat]`; `None` if it is missing or unusable because of errors.
pub(crate) fn read(
    reader: &mut Reader,
    root: &mut Section<'_>,
    ports: &Ports,
    routing: &mut RoutingConfig,
) -> Option<NatConfig> {
    let mut section = root.section(reader, &NAT)?;
    let outsides = read_outsides(reader, &mut section, ports);
    let inside = read_inside(reader, &mut section, ports, &outsides);
    let mut pools = read_pools(reader, &mut section, ports, &outsides, &inside);
    let addresses = pools.concat();
    let span = section.span.clone();
    let range = section.read(reader, &PORTS);
    let range = range.or_else(|| Some(At { value: PORTS.default_value(reader)?, span }))?;
    let subscribers = nat_subscribers::read(reader, &mut section, &range, addresses.len());
    let allocation = subscribers.as_ref().map(|subscribers| &subscribers.config.allocation);
    if let (Some(BlockAllocation::Deterministic(_)), true) = (allocation, outsides.len() > 1) {
        let message = "deterministic blocks on several outside ports: a subscriber would have several";
        reader.error(
            ErrorKind::Conflict,
            &section.span.clone(),
            message,
            "one outside port, or dynamic blocks",
        );
    }
    if let Some(BlockAllocation::Deterministic(_)) = allocation {
        check_deterministic(reader, ports, &inside, &section.span.clone());
    }
    let mut nat = NatConfig { inside_ports: inside, ..NatConfig::default() };
    nat.vrfs = vrfs_of(ports, nat.inside_ports.iter().chain(&outsides));
    nat.shards = read_shards(reader, &mut section, &range, subscribers.as_ref());
    nat.sessions_max = read_sessions_max(reader, &mut section, &range.value, addresses.len());
    nat.hosts = read_hosts(reader, &mut section, nat.sessions_max);
    // The first port may still wait for an address.
    let first = pools.first().and_then(|pool| (!pool.is_empty()).then_some(0));
    let mtus = nat.inside_ports.iter().filter_map(|port| ports.configs.get(usize::from(*port)));
    let mtu_bytes = mtus.map(|port| port.mtu).min().unwrap_or(MTU_DEFAULT);
    nat.nat64 = section.get(reader, &NAT64).map(|prefix| Nat64Config { prefix, mtu_bytes });
    let limits = (nat.hosts, subscribers.as_ref(), nat.nat64.is_some());
    let inside = (&outsides[..], &nat.inside_ports[..]);
    nat.groups = nat_groups::read(reader, &mut section, ports, inside, &mut pools, limits);
    section.set(reader, &PORT_SELECTION, &mut nat.port_selection);
    section.set(reader, &FILTERING, &mut nat.filtering);
    section.set(reader, &HAIRPIN, &mut nat.hairpin);
    section.set(reader, &INBOUND_REFRESH, &mut nat.inbound_refresh);
    section.set(reader, &REFUSAL, &mut nat.refusal);
    nat.helpers = section.get(reader, &HELPERS).unwrap_or_default().into_iter().collect();
    read_timeouts(reader, &mut section, &mut nat.timeouts);
    let known = Publics { outsides: &outsides, pools: &pools, first };
    let forwards = read_forwards(reader, &mut section, ports, &known);
    nat.one_to_one = nat_addresses::read_pairs(reader, &mut section, ports, &known, &forwards);
    nat.exceptions = nat_addresses::read_exceptions(reader, &mut section, ports);
    let span = section.finish(reader).unwrap_or_default();
    nat.untranslated = inside_networks(&nat.inside_ports, ports, routing);
    nat.port_range = range.value;
    nat.subscribers = subscribers.map(|subscribers| subscribers.config);
    let mut each = by_outside(&outsides, pools, &forwards).into_iter();
    let first = each.next()?;
    (nat.outside_port, nat.public_addresses, nat.forwards) =
        (first.port, first.public_addresses, first.forwards);
    nat.others = each.collect();
    if !nat.others.is_empty() {
        read_gateways(reader, &nat, ports, routing, &span);
    }
    Some(nat)
}

fn read_outsides(reader: &mut Reader, section: &mut Section<'_>, ports: &Ports) -> Vec<PortIndex> {
    let mut outsides = Vec::new();
    let Some(item) = section.take(&OUTSIDE) else { return outsides };
    for entry in reader.filled_list(&item) {
        let Some(port) = ports.named(reader, &entry) else { continue };
        if outsides.contains(&port) {
            let message = format!("port {} is given twice", ports.name(port));
            reader.error(ErrorKind::Duplicate, &entry.span, message, "each port once");
        } else if outsides.len() >= NatConfig::OUTSIDES_MAX {
            let expected = format!("at most {}", NatConfig::OUTSIDES_MAX);
            reader.error(ErrorKind::TooMany, &entry.span, "too many outside ports", expected);
            break;
        } else {
            outsides.push(port);
        }
    }
    outsides
}

/// The public addresses of each outside port.
fn read_pools(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    outsides: &[PortIndex],
    inside: &[PortIndex],
) -> Vec<Vec<Ipv4Addr>> {
    let (addresses, pools) = (section.take(&ADDRESSES), section.take(&POOLS));
    if let Some(item) = addresses.as_ref().filter(|_| outsides.len() > 1) {
        let message = "`addresses` does not say which outside port has them";
        reader.error(ErrorKind::Conflict, &item.span, message, "[nat.pools]");
    }
    let mut given: Vec<Option<Item<'_>>> = vec![None; outsides.len()];
    for (span, item) in pools.and_then(|pools| reader.names(&pools)).unwrap_or_default() {
        let place = outsides.iter().position(|port| ports.name(*port) == item.key);
        match place.and_then(|place| given.get_mut(place)) {
            Some(_) if addresses.is_some() => {
                let message = "`addresses` and `pools` are two ways to say one thing";
                reader.error(ErrorKind::Conflict, &span, message, "either of them alone");
            }
            Some(place) => *place = Some(item),
            None => {
                let message = format!("`{}` is no outside port", item.key);
                let expected = one_of(outsides.iter().map(|port| ports.name(*port)));
                reader.error(ErrorKind::UnknownName, &span, message, expected);
            }
        }
    }
    if let (Some(first), Some(addresses)) = (given.first_mut(), addresses) {
        *first = Some(addresses);
    }
    let mut taken = Vec::new();
    let each = outsides.iter().zip(given);
    each.map(|(port, item)| {
        let pool = nat_addresses::read_addresses(
            reader,
            (section.span.clone(), item),
            ports,
            (*port, &taken),
            inside,
        );
        taken.extend(pool.iter().map(|address| (ports.vrf_of(*port), *address)));
        pool
    })
    .collect()
}

/// What belongs to each outside port. The indexes of the forwards count over all public addresses.
fn by_outside(
    outsides: &[PortIndex],
    pools: Vec<Vec<Ipv4Addr>>,
    forwards: &[PortForward],
) -> Vec<OtherOutside> {
    let mut before = 0;
    let each = outsides.iter().zip(pools);
    each.map(|(port, public_addresses)| {
        let own = before..before + public_addresses.len();
        let of_port = forwards.iter().filter(|forward| own.contains(&forward.public_address));
        let forwards = of_port.map(|f| PortForward { public_address: f.public_address - own.start, ..*f });
        before = own.end;
        OtherOutside { port: *port, forwards: forwards.collect(), public_addresses }
    })
    .collect()
}

/// Finds where answers to what came by port forwards leave: by the gateways of their outside port.
fn read_gateways(
    reader: &mut Reader,
    nat: &NatConfig,
    ports: &Ports,
    routing: &mut RoutingConfig,
    span: &Range<usize>,
) {
    for outside in nat.outsides() {
        let port = outside.outside_port;
        let gateways = routing.gateways_on(port);
        if gateways.is_empty() && !outside.forwards.is_empty() {
            let name = ports.name(port);
            let message = format!(
                "no default route leads out of {name}: answers of forwarded ports leave by other routes"
            );
            let expected = format!("a default route by {name}, with a higher metric if it stands by");
            reader.warning(ErrorKind::MissingKey, span, message, expected);
        }
        if !gateways.is_empty() {
            let target = routing.target(RouteTarget::Forward(gateways));
            routing.outsides.push((port, target));
        }
    }
}

/// The VRFs of ports, if some of these is not in the main table.
fn vrfs_of<'p>(ports: &Ports, of_nat: impl Iterator<Item = &'p PortIndex>) -> Vec<VrfIndex> {
    let mut vrfs = Vec::new();
    for port in of_nat.filter(|port| ports.vrf_of(**port) != 0) {
        let place = usize::from(*port);
        vrfs.resize(vrfs.len().max(place + 1), 0);
        vrfs[place] = ports.vrf_of(*port);
    }
    vrfs
}

/// The n-th address has the n-th block, which hosts of two VRFs would share.
fn check_deterministic(reader: &mut Reader, ports: &Ports, inside: &[PortIndex], span: &Range<usize>) {
    let mut vrfs = inside.iter().map(|port| ports.vrf_of(*port));
    let first = vrfs.next();
    if let Some(other) = vrfs.find(|vrf| Some(*vrf) != first) {
        let names = [first.unwrap_or_default(), other].map(|vrf| ports.vrfs.name(vrf));
        let message = format!(
            "deterministic blocks for hosts of the VRFs {}: two hosts would share one",
            names.join(" and ")
        );
        reader.error(ErrorKind::Conflict, span, message, "inside ports of one VRF, or dynamic blocks");
    }
}

/// Networks that packets from inside reach untranslated, by VRF: those whose every path leads to an inside port there.
/// Sorted, and none contains another.
fn inside_networks(inside: &[PortIndex], ports: &Ports, routing: &RoutingConfig) -> Vec<(VrfIndex, Ipv4Net)> {
    let of_vrf = |vrf| inside.iter().copied().filter(|port| ports.vrf_of(*port) == vrf).collect::<Vec<_>>();
    let each = routing.tables().map(|(vrf, routes, _)| (vrf, routes, of_vrf(vrf)));
    let nets = each.flat_map(|(vrf, routes, inside)| {
        networks_of(&inside, routes, routing).into_iter().map(move |net| (vrf, net))
    });
    nets.collect()
}

/// Those of one table.
fn networks_of(
    inside: &[PortIndex],
    routes: &[(Ipv4Net, TargetIndex)],
    routing: &RoutingConfig,
) -> Vec<Ipv4Net> {
    fn is_inside(target: &RouteTarget, inside: &[PortIndex]) -> bool {
        match target {
            RouteTarget::Forward(hops) => hops.iter().all(|hop| inside.contains(&hop.port)),
            RouteTarget::Local(port) => inside.contains(port),
            RouteTarget::Blackhole
            | RouteTarget::Unreachable
            | RouteTarget::Routes
            | RouteTarget::Table(_) => false,
            RouteTarget::Ranked(tiers) => tiers.iter().all(|tier| is_inside(tier, inside)),
        }
    }
    let targets: Vec<bool> = routing.targets.iter().map(|target| is_inside(target, inside)).collect();
    let routes = routes.iter().filter(|(_, target)| targets.get(*target as usize) == Some(&true));
    Ipv4Net::aggregate(&routes.map(|(net, _)| *net).collect())
}

fn read_inside(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    outsides: &[PortIndex],
) -> Vec<PortIndex> {
    let mut inside = Vec::new();
    let Some(item) = section.take(&INSIDE) else { return inside };
    for entry in reader.filled_list(&item) {
        let Some(port) = ports.named(reader, &entry) else { continue };
        if outsides.contains(&port) {
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

/// A shard owns pairs of ports (RFC 4787 REQ-4 preserves the parity of a port), so it needs at least two; or
/// blocks of subscribers, of which it needs one on each address.
fn read_shards(
    reader: &mut Reader,
    section: &mut Section<'_>,
    range: &At<RangeInclusive<u16>>,
    subscribers: Option<&nat_subscribers::Read>,
) -> u16 {
    let pairs = values::count(&range.value) / 2;
    if pairs == 0 {
        let message = "one public port is too few".to_owned();
        reader.error(ErrorKind::BadValue, &range.span, message, "at least two ports");
    }
    let Some(At { value: shards, span }) = section.read(reader, &SHARDS) else {
        let default = SHARDS_DEFAULT.min(1 << pairs.clamp(1, 256).ilog2());
        return subscribers.map_or(default, |subscribers| subscribers.shards_default());
    };
    if !shards.is_power_of_two() {
        let message = format!("{shards} shards cannot be told apart by bits of a hash");
        reader.error(ErrorKind::BadValue, &span, message, "a power of two from 1 to 256");
    } else if u32::from(shards) > pairs.max(1) {
        let message = format!("{shards} shards cannot share {} public ports", values::count(&range.value));
        reader.error(ErrorKind::Conflict, &span, message, "at most one shard for every two ports");
    } else if let Some(subscribers) = subscribers.filter(|s| u32::from(shards) > s.blocks.max(1)) {
        let message = format!("{shards} shards cannot share {} blocks of ports", subscribers.blocks);
        reader.error(ErrorKind::Conflict, &span, message, "at most one shard for every block");
    }
    shards
}

fn read_sessions_max(
    reader: &mut Reader,
    section: &mut Section<'_>,
    range: &RangeInclusive<u16>,
    addresses: usize,
) -> u32 {
    let Some(At { value: sessions, span }) = section.read(reader, &SESSIONS_MAX) else {
        return SESSIONS_MAX.default_value(reader).unwrap_or_default();
    };
    // TCP, UDP and ICMP have separate port spaces.
    let mappings = 3 * u64::from(values::count(range)) * addresses as u64;
    if u64::from(sessions) > mappings && addresses > 0 {
        let message = format!("{sessions} sessions are more than {mappings} public ports can carry");
        let expected = "at most addresses x ports x 3 protocols";
        reader.warning(ErrorKind::TooMany, &span, message, expected);
    }
    sessions
}

fn read_hosts(reader: &mut Reader, section: &mut Section<'_>, sessions_max: u32) -> HostLimits {
    let mut limits = HostLimits::fair(sessions_max);
    for (key, limit) in [
        (&HOST_SESSIONS_MAX, &mut limits.sessions_max),
        (&HOST_SESSIONS_PER_SECOND, &mut limits.new_per_second),
    ] {
        *limit = section.get(reader, key).map_or(*limit, |most| (most > 0).then_some(most));
    }
    section.set(reader, &DROP_HALF_OPEN, &mut limits.drops_half_open);
    limits
}

fn read_timeouts(reader: &mut Reader, nat: &mut Section<'_>, timeouts: &mut NatTimeouts) {
    let mut section = nat.section_or_empty(reader, &TIMEOUTS);
    let rows: [(&'static Key<u32>, &mut u32, u32, &str); 6] = [
        (&UDP_S, &mut timeouts.udp_s, 120, "RFC 4787 section 4.3"),
        (&TCP_ESTABLISHED_S, &mut timeouts.tcp_established_s, 7440, "RFC 5382 section 5"),
        (&TCP_TRANSITORY_S, &mut timeouts.tcp_transitory_s, 240, "RFC 5382 section 5"),
        (&TCP_ABORTED_S, &mut timeouts.tcp_aborted_s, 1, ""),
        (&ICMP_S, &mut timeouts.icmp_s, 60, "RFC 5508 section 3.2"),
        (&OTHER_S, &mut timeouts.bare_s, 30, "keepalives of tunnels"),
    ];
    for (key, timeout, least, source) in rows {
        let given = section.read(reader, key);
        *timeout = given.as_ref().map(|at| at.value).or(key.default_value(reader)).unwrap_or(*timeout);
        if let Some(At { span, .. }) = given.filter(|at| at.value < least) {
            let message = format!("{} is shorter than hosts rely on", key.name());
            let expected = format!("at least {least} ({source})");
            reader.warning(ErrorKind::BadValue, &span, message, expected);
        }
    }
    section.finish(reader);
}

fn read_forwards(
    reader: &mut Reader,
    nat: &mut Section<'_>,
    ports: &Ports,
    publics: &Publics<'_>,
) -> Vec<PortForward> {
    let mut forwards: Vec<(PortForward, Range<usize>)> = Vec::new();
    for mut section in nat.sections(reader, &FORWARDS) {
        let protocol = section.read(reader, &FORWARD_PROTOCOL).map(|at| at.value);
        let range = section.read(reader, &FORWARD_PORT);
        let outside = section.take(&FORWARD_OUTSIDE);
        let outside = outside.map(|item| publics.outside(reader, ports, &item));
        let vrf = section.take(&FORWARD_VRF).map(|item| ports.vrfs.named(reader, &item));
        let address = section.take(&FORWARD_ADDRESS);
        // A name that is none was reported.
        let address = match (outside, vrf) {
            (Some(None), _) | (_, Some(None)) => None,
            _ => read_forward_address(reader, address, ports, publics, (outside.flatten(), vrf.flatten())),
        };
        let to = section.read(reader, &FORWARD_TO);
        section.finish(reader);
        let (Some(protocol), Some(range), Some((public_address, place)), Some(to)) =
            (protocol, range, address, to)
        else {
            continue;
        };
        let vrf = vrf.flatten().unwrap_or_else(|| publics.vrf_of(ports, place));
        let count = values::count(&range.value);
        if u32::from(to.value.port()) + count > 65_536 {
            let message = format!("{count} ports from {} on end beyond 65535", to.value.port());
            let expected = format!("a first port of at most {}", 65_536 - count);
            reader.error(ErrorKind::BadValue, &to.span, message, expected);
            continue;
        }
        let forward = PortForward {
            protocol,
            public_address,
            public_port: *range.value.start(),
            inside_address: *to.value.ip(),
            vrf,
            inside_port: to.value.port(),
            count: count as u16,
        };
        if leads_inside(reader, ports, publics, vrf, &to)
            && is_new(reader, &forwards, &forward, (&range, &to))
        {
            forwards.push((forward, range.span));
        }
    }
    forwards.into_iter().map(|(forward, _)| forward).collect()
}

/// Whether a port forward leads to an inside host; if not, reports why.
fn leads_inside(
    reader: &mut Reader,
    ports: &Ports,
    publics: &Publics<'_>,
    vrf: VrfIndex,
    to: &At<SocketAddrV4>,
) -> bool {
    let inside = IpAddr::V4(*to.value.ip());
    let leads_out = ports.connected(inside, vrf).is_some_and(|port| publics.outsides.contains(&port));
    let is_public = publics.of_vrf(ports, vrf).any(|address| address == *to.value.ip());
    let (kind, message) = if !values::is_unicast(inside) || leads_out || is_public {
        (ErrorKind::Conflict, format!("port forward to {inside}, which is not inside"))
    } else if let Some(port) = ports.owner(inside, vrf) {
        let port = ports.name(port);
        (ErrorKind::Conflict, format!("port forward to {inside}, the router's own address on port {port}"))
    } else if let Some(why) = ports.nobodys(inside, vrf) {
        (ErrorKind::BadValue, format!("port forward: {why}"))
    } else {
        return true;
    };
    reader.error(kind, &to.span, message, "an inside host");
    false
}

/// Whether a port forward shares no ports with an earlier one; otherwise reports which.
fn is_new(
    reader: &mut Reader,
    forwards: &[(PortForward, Range<usize>)],
    forward: &PortForward,
    (range, to): (&At<RangeInclusive<u16>>, &At<SocketAddrV4>),
) -> bool {
    if let Some((other, first)) = forwards.iter().find(|(other, _)| other.shares_public_port(forward)) {
        let message = format!("public port {} is forwarded twice", ports_text(&range.value));
        let other = ports_text(&other.public_ports());
        let expected = format!("ports other than {other} of {}", reader.line(first));
        reader.error(ErrorKind::Overlap, &range.span, message, expected);
        return false;
    }
    if let Some((_, first)) = forwards.iter().find(|(other, _)| other.shares_inside_port(forward)) {
        let message = format!("two port forwards lead to {}", to.value);
        let expected = format!("an inside port other than that of {}", reader.line(first));
        let finding = reader.error(ErrorKind::Overlap, &to.span, message, expected);
        finding.help = Some("an inside host's port has one public port (RFC 4787 REQ-1)".to_owned());
        return false;
    }
    true
}

/// The index of the public address of a forward, and the place of its outside port. Of several ports with the address it
/// is the one that is named, else the one in the VRF of the inside host.
fn read_forward_address(
    reader: &mut Reader,
    item: Option<Item<'_>>,
    ports: &Ports,
    publics: &Publics<'_>,
    (outside, vrf): (Option<usize>, Option<VrfIndex>),
) -> Option<(usize, usize)> {
    let all: Vec<_> = publics.all().enumerate().collect();
    let is_there = |place: usize| outside.is_none_or(|outside| outside == place);
    let Some(item) = item else {
        let found = all.iter().find(|(index, (place, _))| match outside {
            Some(outside) => outside == *place,
            None => Some(*index) == publics.first,
        });
        return found.map(|(index, (place, _))| (*index, *place));
    };
    let address = FORWARD_ADDRESS.value(reader, &item)?;
    let mut found: Vec<_> =
        all.iter().filter(|(_, (at, known))| *known == address && is_there(*at)).collect();
    if found.len() > 1 {
        found.retain(|(_, (place, _))| Some(publics.vrf_of(ports, *place)) == vrf);
    }
    match found[..] {
        [(index, (place, _))] => Some((*index, *place)),
        _ if all.iter().any(|(_, (place, known))| *known == address && is_there(*place)) => {
            let message = format!("{address} is public in several VRFs");
            reader.error(ErrorKind::Conflict, &item.span, message, "`outside`, the port that is meant");
            None
        }
        _ => {
            let message = format!("{address} is none of the public addresses");
            reader.error(ErrorKind::UnknownName, &item.span, message, "one of [nat] addresses");
            None
        }
    }
}

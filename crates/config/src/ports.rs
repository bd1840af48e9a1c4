//! `[ports.NAME]` and `[[neighbors]]`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};
use thalweg_wire::MacAddr;

use ipnet::IpNet;
use thalweg_dataplane::mss::SegmentLimit;
use thalweg_dataplane::nat::NatConfig;
use thalweg_dataplane::reverse_path::ReversePathMode;

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::interfaces::{self, InterfaceNames, MIRROR, read_interface};
use crate::key::{Differs, Key, Sub, table};
use crate::reader::{At, Item, Reader, integer_of};
use crate::section::Section;
use crate::types::{
    Driver, InterfaceConfig, MAIN_VRF, MTU_DEFAULT, NextHop, PORTS_MAX, PortConfig, PortIndex, RouteTarget,
    RoutingConfig, StaticNeighbor, SubInterface, VrfIndex,
};
use crate::values;
use crate::vrf::Vrfs;

pub(crate) static PORTS: Key<Sub> = Key::named_sections("ports", &PORT_TABLE)
    .otherwise("required, unless the router only speaks BGP")
    .help("the ports of the router");
table! {
    pub(crate) static PORT_TABLE: "ports.NAME", "[ports.NAME]";

    static MAC: Key<MacAddr> = Key::text("mac", "a MAC address", values::mac)
        .otherwise("required; with `parent` that one's, with `interface` too, except one of a capture")
        .example("\"02:00:00:00:00:01\"")
        .restart(Differs::Port(|old, new| {
            old.mac != new.mac || interfaces::differ(old, new, |interface| interface.own_mac)
        }))
        .help("MAC address of the port: `\"02:00:00:00:00:01\"`");
    static ADDRESSES: Key<()> = Key::raw("addresses", "an address with prefix length, or a list")
        .otherwise("none, and [those that programs give the mirror](live.md#mirrors)")
        .help(
            "the router's own addresses, each with the prefix that is connected here: `[\"203.0.113.2/30\", \
             \"2001:db8:1::2/64\"]`. `\"198.51.100.7/32\"` has no network: its gateway is a route with \
             [`onlink`](#routing-and-routes)",
        );
    static VRF: Key<()> = Key::raw("vrf", "a VRF")
        .otherwise("`\"main\"`")
        .help("the [table](#vrfsname) in which packets that arrive here are looked up");
    static MTU: Key<()> = Key::raw("mtu", "68 to 65535 bytes, with IPv6 from 1280")
        .otherwise("1500; the parent's")
        .help("MTU: the largest IP packet that may leave");
    static TRACE_NAME: Key<String> = Key::text("trace_name", "a name", parse_trace_name)
        .otherwise("the port's name")
        .help("its name in text traces and as a pcapng interface");
    static DEFAULT_MAC: Key<MacAddr> = Key::text("default_mac", "a MAC address", values::mac)
        .otherwise("live they are asked for, in replays dropped as `neighbor-unresolved`")
        .help("destination MAC address for neighbors that are not listed");
    row interfaces::INTERFACE;
    row interfaces::DRIVER;
    row interfaces::DEVICE;
    row interfaces::CAPTURE;
    row interfaces::CAPTURE_RATE;
    row MIRROR;
    row interfaces::ROUTER_ADVERTISEMENTS;
    row interfaces::OFFLOAD;
    row interfaces::XDP_MODE;
    row interfaces::QUEUES;
    row interfaces::QUEUE_WORKERS;
    static ACL_IN: Key<String> =
        Key::by("acl_in", "a name", acl_name).help("[access list](#acl) for packets that enter here");
    static ACL_OUT: Key<String> =
        Key::by("acl_out", "a name", acl_name).help("[access list](#acl) for packets that leave here");
    static URPF: Key<ReversePathMode> = Key::word("urpf", &MODES)
        .otherwise(
            "`\"new-sessions\"` on `[nat] inside` ports that have an IPv4 network and no default route, else `\"off\"`",
        )
        .help("[source check](acl.md#source-checks)");
    static MSS: Key<SegmentLimit> = Key::by("mss", "bytes, or `\"mtu\"`", |reader, item| {
        match integer_of(item.value) {
            Some(_) => reader.integer(item, SEGMENT_BYTES, "bytes").map(SegmentLimit::Bytes),
            None => reader.word(item, &[("mtu", SegmentLimit::Mtu)]),
        }
    })
    .help(
        "[the largest segment](neighbors-and-icmp.md#segment-sizes-of-tcp) that TCP connections through this port may \
         announce: a number for IPv4, which is 20 less for IPv6, or what `mtu` leaves room for",
    );
    static PARENT: Key<String> = Key::by("parent", "a port", |reader, item| {
        reader.string(item, "the name of a port").map(str::to_owned)
    })
    .example("\"wan\"")
    .help(
        "with `vlan`, the port is a [VLAN sub-interface](acl.md#vlan-sub-interfaces) of this one: `mac` and `mtu` default to \
         the parent's; `interface` and `driver` are the parent's, `mirror` and `router_advertisements` its own",
    );
    static VLAN: Key<u16> = Key::number("vlan", 1..=4094).example("100").help("VLAN ID on the parent");
}

const MODES: [(&str, ReversePathMode); 5] = [
    ("new-sessions", ReversePathMode::NewSessions),
    ("strict", ReversePathMode::Strict),
    ("loose", ReversePathMode::Loose),
    ("loose-allow-default", ReversePathMode::LooseAllowDefault),
    ("off", ReversePathMode::Off),
];

pub(crate) static NEIGHBORS: Key<Sub> =
    Key::sections("neighbors", &NEIGHBOR_TABLE).former("neighbours").help("static neighbors (ARP, ND)");
table! {
    static NEIGHBOR_TABLE: "neighbors", "[[neighbors]]";

    static NEIGHBOR_PORT: Key<()> = Key::raw("port", "a port").required("\"wan\"").help("where it is");
    static NEIGHBOR_ADDRESS: Key<IpAddr> = Key::text("address", "an address", values::address)
        .required("\"192.0.2.1\"")
        .help("within a connected prefix of the port, or IPv6 link-local");
    static NEIGHBOR_MAC: Key<MacAddr> =
        Key::text("mac", "a MAC address", values::mac).required("\"02:00:00:00:00:99\"").help("its MAC address");
}

/// Hosts ignore segment sizes below the least, as Linux does.
const SEGMENT_BYTES: RangeInclusive<u64> = 88..=65_495;

/// RFC 791 requires 68 bytes on every link, RFC 8200 section 5 requires 1280 for IPv6.
const MTU_MIN: u64 = 68;
const MTU_MIN_IPV6: u64 = 1280;
const NAME_MAX: usize = 64;

/// The ports, with the positions in the text that later checks need.
#[derive(Default)]
pub(crate) struct Ports {
    pub(crate) configs: Vec<PortConfig>,
    /// The addresses of all ports, with their ports.
    pub(crate) addresses: Vec<(PortIndex, At<IpNet>)>,
    pub(crate) neighbors: Vec<StaticNeighbor>,
    pub(crate) vrfs: Vrfs,
    /// The addresses of virtual routers, with their ports.
    pub(crate) shared: Vec<(PortIndex, IpAddr)>,
    /// Access lists that ports name; `true` for incoming packets, `false` for outgoing ones.
    pub(crate) acl_names: Vec<(PortIndex, bool, At<String>)>,
    /// Ports with `urpf`.
    with_urpf: Vec<PortIndex>,
    /// Ports with `parent`.
    parents: Vec<Parent>,
    interface_names: InterfaceNames,
}

/// An address that a program, such as a DHCP client, has given to a port's mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedAddress {
    /// The port's name.
    pub port: String,
    /// With the prefix length of its network.
    pub address: IpNet,
}

impl LearnedAddress {
    /// `None` if the prefix length is invalid.
    pub fn new(port: &str, address: IpAddr, length: u8) -> Option<Self> {
        Some(Self { port: port.to_owned(), address: IpNet::new(address, length).ok()? })
    }
}

/// A port's parent by name, until all ports are known.
struct Parent {
    port: PortIndex,
    name: At<String>,
    vlan: At<u16>,
    has_mac: bool,
    mtu: Option<Range<usize>>,
}

impl Ports {
    /// Reads `[ports]`. A port with errors keeps its name and number, so that references to it do not fail as
    /// well. Ports in `places` have their index there as their number; others follow.
    pub(crate) fn read(
        reader: &mut Reader,
        root: &mut Section<'_>,
        learned: &[LearnedAddress],
        places: &[String],
        vrfs: Vrfs,
    ) -> Self {
        let mut ports = Self::read_named(reader, root, learned, places, vrfs);
        ports.fill_up_to(places.len());
        ports.resolve_parents(reader);
        ports.check_overlaps(reader);
        ports
    }

    /// Numbers below `place` without a port stay vacant.
    fn fill_up_to(&mut self, place: usize) {
        let length = self.configs.len().max(place);
        self.configs.resize_with(length, PortConfig::vacant);
    }

    fn read_named(
        reader: &mut Reader,
        root: &mut Section<'_>,
        learned: &[LearnedAddress],
        places: &[String],
        vrfs: Vrfs,
    ) -> Self {
        let mut ports = Ports { vrfs, ..Self::default() };
        let Some(item) = root.take(&PORTS) else {
            // A BGP router that forwards nothing: a route server, a reflector, a collector.
            if root.has("bgp") {
                return ports;
            }
            let expected = "a section [ports.NAME] for each port";
            reader.error(ErrorKind::MissingKey, &(0..0), "the router has no ports", expected);
            return ports;
        };
        let Some(mut names) = reader.names(&item) else { return ports };
        let place_of: HashMap<&str, usize> = places.iter().map(String::as_str).zip(0..).collect();
        let place = |item: &Item<'_>| place_of.get(item.key).copied().unwrap_or(places.len());
        names.sort_by_key(|(_, item)| place(item));
        if names.is_empty() {
            reader.error(
                ErrorKind::MissingKey,
                &item.span,
                "the router has no ports",
                "a section [ports.NAME] for each port",
            );
        }
        let mut trace_names: Vec<At<String>> = Vec::new();
        for (name_span, item) in names {
            ports.fill_up_to(place(&item));
            if ports.configs.len() >= PORTS_MAX {
                let expected = format!("at most {PORTS_MAX} ports");
                reader.error(ErrorKind::TooMany, &name_span, "too many ports", expected);
                break;
            }
            let mut config = ports.read_port(reader, &name_span, &item);
            ports.add_learned(&mut config, learned, &name_span);
            check_trace_name(reader, &mut trace_names, &config, &name_span, &item);
            ports.configs.push(config);
        }
        ports
    }

    /// Adds addresses that programs have given to the port's mirror.
    fn add_learned(&mut self, config: &mut PortConfig, learned: &[LearnedAddress], name_span: &Range<usize>) {
        let port = self.configs.len() as PortIndex;
        for LearnedAddress { address, .. } in learned.iter().filter(|each| each.port == config.name) {
            if config.addresses.iter().all(|own| own.addr() != address.addr()) {
                config.addresses.push(*address);
                config.learned.push(*address);
                self.addresses.push((port, At { value: *address, span: name_span.clone() }));
            }
        }
    }

    fn read_port(&mut self, reader: &mut Reader, name_span: &Range<usize>, item: &Item<'_>) -> PortConfig {
        let name = item.key.to_owned();
        let mut config = PortConfig::named(name);
        check_name(reader, &config.name, name_span);
        let title = format!("[ports.{}]", config.name);
        let Some(mut section) = reader.section_called(item, &PORT_TABLE, title) else { return config };
        let index = self.configs.len() as PortIndex;
        // One with a bad name still has a MAC address.
        let names_one = section.has(interfaces::INTERFACE.name());
        config.interface = read_interface(reader, &mut section, &config.name, &mut self.interface_names);
        let is_sub_interface = section.has(PARENT.name());
        let is_played =
            config.interface.as_ref().is_some_and(|interface| interface.driver == Driver::Capture);
        let has_own = is_sub_interface || ((config.interface.is_some() || names_one) && !is_played);
        let mac = if has_own { section.take(&MAC) } else { section.require(&MAC) };
        if let Some(item) = &mac {
            config.mac = MAC.value(reader, item).unwrap_or_default();
            if let Some(interface) = &mut config.interface {
                interface.own_mac = false;
            }
        }
        if let Some(addresses) = section.take(&ADDRESSES) {
            for entry in reader.list(&addresses) {
                if let Some(net) = reader.parse(&entry, values::interface_address) {
                    config.addresses.push(net.value);
                    self.addresses.push((index, net));
                }
            }
        }
        if let Some(vrf) = section.take(&VRF) {
            config.vrf = self.vrfs.named(reader, &vrf).unwrap_or_default();
            check_mirror(reader, &config, &vrf.span);
        }
        let mtu = section.take(&MTU);
        if let Some(mtu) = &mtu {
            let has_ipv6 = config.addresses.iter().any(|net| matches!(net, IpNet::V6(_)));
            let least = if has_ipv6 { MTU_MIN_IPV6 } else { MTU_MIN };
            let unit = if has_ipv6 { "bytes (IPv6 needs 1280)" } else { "bytes" };
            config.mtu = reader.integer(mtu, least..=65535, unit).unwrap_or(MTU_DEFAULT);
        }
        section.set(reader, &TRACE_NAME, &mut config.trace_name);
        config.mss = section.get(reader, &MSS);
        config.default_mac = section.get(reader, &DEFAULT_MAC);
        self.read_parent(reader, &mut section, index, mac.is_some(), mtu.map(|item| item.span));
        self.read_filters(reader, &mut section, index, &mut config);
        section.finish(reader);
        config
    }

    fn read_parent(
        &mut self,
        reader: &mut Reader,
        section: &mut Section<'_>,
        port: PortIndex,
        has_mac: bool,
        mtu: Option<Range<usize>>,
    ) {
        let both = section.has(PARENT.name()) || section.has(VLAN.name());
        let (parent, vlan) = match both {
            true => (section.require(&PARENT), section.require(&VLAN)),
            false => (section.take(&PARENT), section.take(&VLAN)),
        };
        let (Some(parent), Some(vlan)) = (parent, vlan) else { return };
        let name = PARENT.value(reader, &parent);
        let vlan_id = VLAN.value(reader, &vlan);
        if let (Some(name), Some(id)) = (name, vlan_id) {
            let name = At { value: name, span: parent.span };
            let vlan = At { value: id, span: vlan.span };
            self.parents.push(Parent { port, name, vlan, has_mac, mtu });
        }
    }

    fn read_filters(
        &mut self,
        reader: &mut Reader,
        section: &mut Section<'_>,
        port: PortIndex,
        config: &mut PortConfig,
    ) {
        for (key, inbound) in [(&ACL_IN, true), (&ACL_OUT, false)] {
            let name = section.read(reader, key);
            self.acl_names.extend(name.map(|name| (port, inbound, name)));
        }
        if let Some(item) = section.take(&URPF) {
            config.urpf = URPF.value(reader, &item).unwrap_or_default();
            self.with_urpf.push(port);
        }
    }

    /// Enables source checks on ports that NAT translates and that do not configure `urpf`, where a packet
    /// would create a session: ports with an IPv4 network and without a default route.
    pub(crate) fn check_sources_for(&mut self, nat: &NatConfig, routing: &RoutingConfig) {
        let targets = routing.v4.iter().filter(|(net, _)| net.prefix_len() == 0).map(|(_, target)| *target);
        let defaults: Vec<PortIndex> = targets
            .filter_map(|target| routing.targets.get(target as usize))
            .flat_map(|target| match target {
                RouteTarget::Forward(hops) => hops.iter().map(|hop| hop.port).collect(),
                _ => Vec::new(),
            })
            .collect();
        for &port in
            nat.inside_ports.iter().filter(|port| !self.with_urpf.contains(port) && !defaults.contains(port))
        {
            if let Some(config) = self.configs.get_mut(usize::from(port))
                && config.addresses.iter().any(|net| net.addr().is_ipv4())
            {
                config.urpf = ReversePathMode::NewSessions;
            }
        }
    }

    fn resolve_parents(&mut self, reader: &mut Reader) {
        let parents = std::mem::take(&mut self.parents);
        let mut seen: Vec<(SubInterface, Range<usize>)> = Vec::new();
        for Parent { port, name, vlan, has_mac, mtu } in &parents {
            let Some(parent) = self.find(reader, &name.value, &name.span) else { continue };
            if parent == *port || parents.iter().any(|other| other.port == parent) {
                let message = format!("parent `{}` is a sub-interface itself", name.value);
                reader.error(ErrorKind::Conflict, &name.span, message, "a port that is none");
                continue;
            }
            let sub_interface = SubInterface { parent, vlan: vlan.value };
            if let Some((_, first)) = seen.iter().find(|(other, _)| *other == sub_interface) {
                let message = format!("two ports are VLAN {} of port {}", vlan.value, name.value);
                let expected = format!("a VLAN other than that on {}", reader.line(first));
                reader.error(ErrorKind::Duplicate, &vlan.span, message, expected);
                continue;
            }
            seen.push((sub_interface, vlan.span.clone()));
            let PortConfig { mac, mtu: most, interface, .. } = self.configs[usize::from(parent)].clone();
            let config = &mut self.configs[usize::from(*port)];
            config.sub_interface = Some(sub_interface);
            let wants = config.interface.take();
            match &interface {
                Some(_) if *has_mac && config.mac != mac => {
                    let message = format!("port {} has another MAC address than its parent", config.name);
                    let expected = format!("no `mac` here: {} has an interface, which has one", name.value);
                    reader.error(ErrorKind::Conflict, &vlan.span, message, expected);
                }
                Some(parent) => {
                    config.interface = wants.map(|wants| InterfaceConfig {
                        mirror: wants.mirror,
                        router_advertisements: wants.router_advertisements,
                        ..parent.clone()
                    });
                }
                None if wants.is_some_and(|wants| wants.mirror.is_some() || wants.router_advertisements) => {
                    let message = format!("port {} has no interface to be seen or heard on", config.name);
                    let expected = format!("a key `interface` in [ports.{}]", name.value);
                    reader.error(ErrorKind::MissingKey, &name.span, message, expected);
                }
                None => {}
            }
            if !has_mac {
                config.mac = mac;
            }
            match mtu {
                None => config.mtu = most,
                Some(span) if config.mtu > most => {
                    let message = format!("the MTU is larger than that of port {}", name.value);
                    reader.error(ErrorKind::Conflict, span, message, format!("at most {most} bytes"));
                }
                Some(_) => {}
            }
        }
    }

    /// Reports an address that occurs twice, and connected prefixes of different ports that overlap.
    fn check_overlaps(&self, reader: &mut Reader) {
        for (i, (port, at)) in self.addresses.iter().enumerate() {
            for (earlier_port, earlier) in &self.addresses[..i] {
                let where_from = format!(
                    "`{}` of port {}, {}",
                    earlier.value,
                    self.configs[usize::from(*earlier_port)].name,
                    reader.line(&earlier.span)
                );
                if self.vrf_of(*port) != self.vrf_of(*earlier_port) {
                    continue;
                }
                if at.value.addr() == earlier.value.addr() {
                    let message = format!("address {} is given twice", at.value.addr());
                    let expected = format!("an address other than {where_from}");
                    reader.error(ErrorKind::Duplicate, &at.span, message, expected);
                    break;
                }
                let link_local = is_link_local(at.value.addr()) || is_link_local(earlier.value.addr());
                if port != earlier_port && !link_local && overlap(&at.value, &earlier.value) {
                    let message = format!("prefix {} is connected to two ports", at.value.trunc());
                    let expected = format!("a prefix that shares no address with {where_from}");
                    reader.error(ErrorKind::Overlap, &at.span, message, expected);
                    break;
                }
            }
        }
    }

    /// The port with this name.
    pub(crate) fn named(&self, reader: &mut Reader, item: &Item<'_>) -> Option<PortIndex> {
        let name = reader.string(item, &self.expected_name())?;
        self.find(reader, name, &item.span)
    }

    fn expected_name(&self) -> String {
        let mut names = self.names().peekable();
        if names.peek().is_none() { "the name of a port".to_owned() } else { one_of(names) }
    }

    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.configs.iter().filter(|port| !port.is_vacant()).map(|port| port.name.as_str())
    }

    fn find(&self, reader: &mut Reader, name: &str, span: &Range<usize>) -> Option<PortIndex> {
        let named = |port: &PortConfig| port.name == name && !port.is_vacant();
        if let Some(index) = self.configs.iter().position(named) {
            return Some(index as PortIndex);
        }
        let expected = self.expected_name();
        let finding =
            reader.error(ErrorKind::UnknownName, span, format!("no port is named `{name}`"), expected);
        finding.help = match self.configs.iter().find(|port| port.trace_name == name && !port.is_vacant()) {
            Some(port) => {
                Some(format!("`{name}` is the trace_name of port `{}`; use the port's name", port.name))
            }
            None => nearest(name, self.names()).map(|s| format!("did you mean `{s}`?")),
        };
        None
    }

    pub(crate) fn vrf_of(&self, port: PortIndex) -> VrfIndex {
        self.configs.get(usize::from(port)).map_or(0, |config| config.vrf)
    }

    /// The addresses of a VRF's ports.
    pub(crate) fn addresses_in(&self, vrf: VrfIndex) -> impl Iterator<Item = &(PortIndex, At<IpNet>)> {
        self.addresses.iter().filter(move |(port, _)| self.vrf_of(*port) == vrf)
    }

    /// The port of a VRF connected to an address, by the longest connected prefix.
    pub(crate) fn connected(&self, address: IpAddr, vrf: VrfIndex) -> Option<PortIndex> {
        self.addresses_in(vrf)
            .filter(|(_, net)| !is_link_local(net.value.addr()) && net.value.contains(&address))
            .max_by_key(|(_, net)| net.value.prefix_len())
            .map(|(port, _)| *port)
    }

    /// The port of a VRF with this address.
    pub(crate) fn owner(&self, address: IpAddr, vrf: VrfIndex) -> Option<PortIndex> {
        self.addresses_in(vrf).find(|(_, net)| net.value.addr() == address).map(|(port, _)| *port)
    }

    /// Whether `address` can be a neighbor on `port`.
    pub(crate) fn is_on(&self, address: IpAddr, port: PortIndex) -> bool {
        is_link_local(address) || self.connected(address, self.vrf_of(port)) == Some(port)
    }

    /// Whether the MAC address for this next hop is configured or can be resolved.
    pub(crate) fn has_mac(&self, next_hop: NextHop) -> bool {
        let port = self.configs.get(usize::from(next_hop.port));
        // A live port resolves it.
        let asks = port.is_some_and(|config| config.interface.is_some());
        let default = port.and_then(|config| config.default_mac);
        let listed = |n: &StaticNeighbor| n.port == next_hop.port && Some(n.address) == next_hop.gateway;
        asks || default.is_some() || self.neighbors.iter().any(listed)
    }

    /// Finds the path to a gateway: through `port` if given, otherwise through the connected prefix of the VRF. An
    /// error says what is wrong and what was expected.
    pub(crate) fn next_hop(
        &self,
        gateway: IpAddr,
        port: Option<PortIndex>,
        vrf: VrfIndex,
    ) -> Result<NextHop, (String, String)> {
        let vrf = port.map_or(vrf, |port| self.vrf_of(port));
        self.check_neighbor(gateway, vrf)?;
        match port {
            Some(port) if self.is_on(gateway, port) => Ok(NextHop { port, gateway: Some(gateway) }),
            Some(port) => Err((
                format!("next hop {gateway} is not on port {}", self.name(port)),
                format!("an address within {}", self.prefixes_of(Some(port), vrf, gateway)),
            )),
            None if is_link_local(gateway) => Err((
                format!("link-local next hop {gateway} could be on any port"),
                "a port beside it".to_owned(),
            )),
            None => match self.connected(gateway, vrf) {
                Some(port) => Ok(NextHop { port, gateway: Some(gateway) }),
                None => Err((
                    format!("next hop {gateway} is on no connected network{}", self.in_words(vrf)),
                    format!("an address within {}", self.prefixes_of(None, vrf, gateway)),
                )),
            },
        }
    }

    /// A gateway on a port's link outside the port's networks, as with an address of /32.
    pub(crate) fn next_hop_on_link(
        &self,
        gateway: IpAddr,
        port: PortIndex,
    ) -> Result<NextHop, (String, String)> {
        let vrf = self.vrf_of(port);
        self.check_neighbor(gateway, vrf)?;
        if let Some(other) = self.connected(gateway, vrf).filter(|other| *other != port) {
            let message = format!("next hop {gateway} is on port {}", self.name(other));
            return Err((message, format!("that port, or an address on the link of {}", self.name(port))));
        }
        let speaks =
            |(p, net): &(PortIndex, At<IpNet>)| *p == port && net.value.addr().is_ipv4() == gateway.is_ipv4();
        if !self.addresses.iter().any(speaks) {
            let family = if gateway.is_ipv4() { "IPv4" } else { "IPv6" };
            let message = format!("port {} has no {family} address to reach {gateway} with", self.name(port));
            return Err((message, format!("`addresses` with one of {family}")));
        }
        Ok(NextHop { port, gateway: Some(gateway) })
    }

    /// Checks that an address can belong to another router or host. An error says what is wrong and what was
    /// expected.
    pub(crate) fn check_neighbor(&self, address: IpAddr, vrf: VrfIndex) -> Result<(), (String, String)> {
        if let Some(owner) = self.owner(address, vrf) {
            let message = format!("next hop {address} is the router itself");
            return Err((message, format!("a neighbor's address, not that of port {}", self.name(owner))));
        }
        if !values::is_unicast(address) {
            return Err((
                format!("next hop {address} is not a unicast address"),
                "a neighbor's address".to_owned(),
            ));
        }
        Ok(())
    }

    /// If an address is the network or broadcast address of a VRF's connected network, a text that says so.
    pub(crate) fn nobodys(&self, address: IpAddr, vrf: VrfIndex) -> Option<String> {
        let IpAddr::V4(address) = address else { return None };
        self.addresses_in(vrf).find_map(|(port, net)| match net.value {
            IpNet::V4(net)
                if net.prefix_len() <= 30 && [net.network(), net.broadcast()].contains(&address) =>
            {
                let what = if address == net.network() { "network" } else { "broadcast" };
                Some(format!(
                    "{address} is the {what} address of {} on port {}",
                    net.trunc(),
                    self.name(*port)
                ))
            }
            _ => None,
        })
    }

    pub(crate) fn name(&self, port: PortIndex) -> &str {
        self.configs.get(usize::from(port)).map_or("?", |config| config.name.as_str())
    }

    /// A VRF in a message: nothing if it is the main one.
    fn in_words(&self, vrf: VrfIndex) -> String {
        if vrf == 0 { String::new() } else { format!(" of VRF {}", self.vrfs.name(vrf)) }
    }

    /// The connected prefixes of one port or of all of a VRF, of the address's family, for a message.
    fn prefixes_of(&self, port: Option<PortIndex>, vrf: VrfIndex, like: IpAddr) -> String {
        const SHOWN: usize = 6;
        let prefixes: Vec<String> = self
            .addresses_in(vrf)
            .filter(|(p, net)| {
                port.is_none_or(|port| port == *p) && net.value.addr().is_ipv4() == like.is_ipv4()
            })
            .map(|(p, net)| format!("{} ({})", net.value.trunc(), self.name(*p)))
            .collect();
        match prefixes.len() {
            0 => "a connected prefix (there is none of its family)".to_owned(),
            n if n > SHOWN => format!("{} or another connected prefix", prefixes[..SHOWN].join(", ")),
            _ => one_of(prefixes.iter().map(String::as_str)),
        }
    }
}

/// Reads `[[neighbors]]` into the ports.
pub(crate) fn read_static_neighbors(reader: &mut Reader, root: &mut Section<'_>, ports: &mut Ports) {
    let mut neighbors: Vec<(StaticNeighbor, Range<usize>)> = Vec::new();
    for mut section in root.sections(reader, &NEIGHBORS) {
        let port = section.take(&NEIGHBOR_PORT).and_then(|item| ports.named(reader, &item));
        let address = section.read(reader, &NEIGHBOR_ADDRESS);
        let mac = section.read(reader, &NEIGHBOR_MAC).map(|at| at.value);
        section.finish(reader);
        let (Some(port), Some(At { value: address, span }), Some(mac)) = (port, address, mac) else {
            continue;
        };
        if let Err((message, expected)) = ports.next_hop(address, Some(port), 0) {
            let message = message.replacen("next hop", "neighbor", 1);
            reader.error(ErrorKind::NotConnected, &span, message, expected);
            continue;
        }
        if let Some((_, first)) = neighbors.iter().find(|(n, _)| n.port == port && n.address == address) {
            let expected = format!("each neighbor once; see {}", reader.line(first));
            reader.error(ErrorKind::Duplicate, &span, format!("neighbor {address} is given twice"), expected);
            continue;
        }
        neighbors.push((StaticNeighbor { port, address, mac }, span));
    }
    ports.neighbors = neighbors.into_iter().map(|(neighbor, _)| neighbor).collect();
}

/// The system routes what its programs send by a mirror, and knows no VRF of the router.
fn check_mirror(reader: &mut Reader, config: &PortConfig, span: &Range<usize>) {
    let mirror = config.interface.as_ref().and_then(|interface| interface.mirror.as_ref());
    if config.vrf != 0 && mirror.is_some() {
        let message = format!("port {} is in a VRF, and programs reach it by a mirror", config.name);
        let expected =
            format!("no mirror, or `vrf = \"{MAIN_VRF}\"`: the system's routes are those of one table");
        reader.error(ErrorKind::Conflict, span, message, expected);
    }
}

fn acl_name(reader: &mut Reader, item: &Item<'_>) -> Option<String> {
    reader.string(item, "the name of an access list").map(str::to_owned)
}

fn check_name(reader: &mut Reader, name: &str, span: &Range<usize>) {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fits = !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with(['.', '-']);
    if !fits || !name.chars().all(is_allowed) {
        let expected = "up to 64 letters, digits, `_`, `-` and `.`, beginning with none of the last two";
        reader.error(ErrorKind::BadValue, span, format!("bad port name `{name}`"), expected);
    }
}

/// Spaces separate the fields of a trace, and `#` begins a comment.
fn parse_trace_name(text: &str) -> Result<String, &'static str> {
    let fits = !text.is_empty() && text.len() <= NAME_MAX && !text.starts_with('#');
    if fits && !text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        Ok(text.to_owned())
    } else {
        Err("up to 64 characters without blanks, not beginning with `#`")
    }
}

fn check_trace_name(
    reader: &mut Reader,
    seen: &mut Vec<At<String>>,
    config: &PortConfig,
    name_span: &Range<usize>,
    item: &Item<'_>,
) {
    let span = match item.value {
        toml::de::DeValue::Table(table) => {
            table.iter().find(|(key, _)| key.get_ref() == "trace_name").map(|(_, value)| value.span())
        }
        _ => None,
    }
    .unwrap_or_else(|| name_span.clone());
    match seen.iter().find(|at| at.value == config.trace_name) {
        Some(first) => {
            let message = format!("two ports are `{}` in traces", config.trace_name);
            let expected = format!("a name other than that on {}", reader.line(&first.span));
            reader.error(ErrorKind::Duplicate, &span, message, expected);
        }
        None => seen.push(At { value: config.trace_name.clone(), span }),
    }
}

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    match (a, b) {
        (IpNet::V4(a), IpNet::V4(b)) => a.contains(&b.network()) || b.contains(&a.network()),
        (IpNet::V6(a), IpNet::V6(b)) => a.contains(&b.network()) || b.contains(&a.network()),
        _ => false,
    }
}

pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

//! `[ports.NAME]` and `[[neighbors]]`.
//!
//! ```toml
//! [ports.wan]                         # the name: letters, digits, `-`, `_` and `.`; it names output files
//! mac = "02:00:00:00:00:01"           # required: source MAC address of what leaves here
//! addresses = ["203.0.113.2/30"]      # own addresses, each with the prefix connected here; default none
//! mtu = 1500                          # largest IP packet in bytes, 68 to 65535 (1280 with IPv6); default 1500
//! trace_name = "eth3"                 # name in text traces and pcapng interfaces; default: the port's name
//! default_mac = "02:00:00:00:ff:01"   # where frames to neighbors that are not listed go; default: they are asked
//!                                     # for (live), or dropped (replay)
//! interface = "eth0"                  # what `thalweg run` opens; `mac` may then be left out for the interface's own
//! driver = "auto"                     # af_xdp, af_packet, tap (makes the interface), auto: the best that works; dpdk
//! device = "net_null0"                # with driver dpdk, in place of `interface`: see the module dpdk
//! mirror = "tw-wan"                   # a TAP interface with the port's addresses, for ping, ssh, other daemons;
//!                                     # true: `tw-` and the port's name; default: none
//! router_advertisements = false       # tell IPv6 hosts that a router is here
//! xdp_mode = "generic"                # or "native"; the best that works if left out
//! offload = false                     # let the kernel forward flows that have been decided on
//! queues = 4                          # receive queues that are worked on apart, 1 to 64; default: as many as workers
//! acl_in = "from-internet"            # the access list for what comes in; default: none
//! acl_out = "to-internet"             # the access list for what leaves; default: none
//! urpf = "strict"                     # reverse path check (RFC 3704), or "loose", "loose-allow-default",
//!                                     # "new-sessions" (the default of NAT's inside ports), "off"
//!
//! [ports."wan.100"]                   # a VLAN sub-interface: a port on another's wire
//! parent = "wan"                      # the port whose wire it is; `mac` and `mtu` default to that port's
//! vlan = 100                          # 1 to 4094
//! addresses = ["198.51.100.2/30"]
//! mirror = true                       # this and `router_advertisements` as above, where the parent has an interface
//!
//! [[neighbors]]
//! port = "wan"                        # required
//! address = "203.0.113.1"             # required, within a connected prefix of the port
//! mac = "02:00:00:00:00:99"           # required
//! ```

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use ipnet::IpNet;

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::interfaces::{InterfaceNames, Use, interface_name};
use crate::reader::{At, Item, Reader, Section};
use crate::types::{
    Driver, InterfaceConfig, MTU_DEFAULT, NatConfig, NextHop, PORTS_MAX, PortConfig, PortIndex,
    ReversePathMode, RouteTarget, RoutingConfig, StaticNeighbor, SubInterface, XdpPlace,
};
use crate::{dpdk, values};

/// RFC 791 wants every link to carry 68 bytes, RFC 8200 section 5 wants 1280 for IPv6.
const MTU_MIN: u64 = 68;
const MTU_MIN_IPV6: u64 = 1280;
const NAME_MAX: usize = 64;
/// As many as the drivers serve apart.
const QUEUES_MAX: u64 = 64;

/// The ports, with the places that later sections compare themselves with.
#[derive(Default)]
pub(crate) struct Ports {
    pub(crate) configs: Vec<PortConfig>,
    /// Own addresses of all ports, with their ports.
    pub(crate) addresses: Vec<(PortIndex, At<IpNet>)>,
    pub(crate) neighbors: Vec<StaticNeighbor>,
    /// Access lists that ports name, for incoming packets or (false) outgoing ones.
    pub(crate) acl_names: Vec<(PortIndex, bool, At<String>)>,
    /// Ports that say how their sources are checked.
    with_urpf: Vec<PortIndex>,
    /// Ports that name a parent.
    parents: Vec<Parent>,
    interface_names: InterfaceNames,
}

/// An address that a program has given a port's mirror: as a DHCP client does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedAddress {
    /// The port's name.
    pub port: String,
    /// The address, with the prefix length of its network.
    pub address: IpNet,
}

impl LearnedAddress {
    /// An address on a port; `None` if its network cannot have that length.
    pub fn new(port: &str, address: IpAddr, length: u8) -> Option<Self> {
        Some(Self { port: port.to_owned(), address: IpNet::new(address, length).ok()? })
    }
}

/// What a port says of its parent, until all ports are known.
struct Parent {
    port: PortIndex,
    name: At<String>,
    vlan: At<u16>,
    has_mac: bool,
    mtu: Option<Range<usize>>,
}

impl Ports {
    /// Reads `[ports]`. A port with mistakes keeps its name and place, so that what refers to it does not
    /// fail as well. Ports of these `places` have the numbers of their places, and others come behind.
    pub(crate) fn read(
        reader: &mut Reader,
        root: &mut Section<'_>,
        learned: &[LearnedAddress],
        places: &[String],
    ) -> Self {
        let mut ports = Self::read_named(reader, root, learned, places);
        ports.fill_up_to(places.len());
        ports.settle_parents(reader);
        ports.check_overlaps(reader);
        ports
    }

    /// Numbers below `place` that have no port stay vacant.
    fn fill_up_to(&mut self, place: usize) {
        let length = self.configs.len().max(place);
        self.configs.resize_with(length, PortConfig::vacant);
    }

    fn read_named(
        reader: &mut Reader,
        root: &mut Section<'_>,
        learned: &[LearnedAddress],
        places: &[String],
    ) -> Self {
        let mut ports = Ports::default();
        let Some(item) = root.take("ports") else {
            // A router that speaks BGP and forwards nothing: a route server, a reflector, a collector.
            if root.has("bgp") {
                return ports;
            }
            let expected = "a section [ports.NAME] for each port";
            reader.error(ErrorKind::MissingKey, &(0..0), "the router has no ports", expected);
            return ports;
        };
        let Some(section) = reader.section(&item, "[ports]".to_owned()) else { return ports };
        let place_of: HashMap<&str, usize> = places.iter().map(String::as_str).zip(0..).collect();
        let place = |item: &Item<'_>| place_of.get(item.key).copied().unwrap_or(places.len());
        let mut names = section.into_names();
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

    /// Adds what programs have given the port's mirror beside what is configured.
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
        let Some(mut section) = reader.section(item, format!("[ports.{}]", config.name)) else {
            return config;
        };
        let index = self.configs.len() as PortIndex;
        config.interface = read_interface(reader, &mut section, &config.name, &mut self.interface_names);
        let example = "\"02:00:00:00:00:01\"";
        let is_sub_interface = section.has("parent");
        let has_own = is_sub_interface || config.interface.is_some();
        let mac = if has_own { section.take("mac") } else { section.require("mac", example) };
        if let Some(mac) = &mac {
            config.mac = reader.parse(mac, values::mac).map_or([0; 6], |at| at.value);
            if let Some(interface) = &mut config.interface {
                interface.own_mac = false;
            }
        }
        if let Some(addresses) = section.take("addresses") {
            for entry in reader.list(&addresses) {
                if let Some(net) = reader.parse(&entry, values::interface_address) {
                    config.addresses.push(net.value);
                    self.addresses.push((index, net));
                }
            }
        }
        let mtu = section.take("mtu");
        if let Some(mtu) = &mtu {
            let has_ipv6 = config.addresses.iter().any(|net| matches!(net, IpNet::V6(_)));
            let least = if has_ipv6 { MTU_MIN_IPV6 } else { MTU_MIN };
            let unit = if has_ipv6 { "bytes (IPv6 needs 1280)" } else { "bytes" };
            config.mtu = reader.integer(mtu, least..=65535, unit).map_or(MTU_DEFAULT, |mtu| mtu as u16);
        }
        if let Some(trace_name) = section.take("trace_name")
            && let Some(name) = reader.parse(&trace_name, parse_trace_name)
        {
            config.trace_name = name.value;
        }
        if let Some(mac) = section.take("default_mac") {
            config.default_mac = reader.parse(&mac, values::mac).map(|at| at.value);
        }
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
        let both = section.has("parent") || section.has("vlan");
        let mut take = |key, example| if both { section.require(key, example) } else { section.take(key) };
        let (parent, vlan) = (take("parent", "\"wan\""), take("vlan", "100"));
        let (Some(parent), Some(vlan)) = (parent, vlan) else { return };
        let name = reader.string(&parent, "the name of a port");
        let vlan_id = reader.integer(&vlan, 1..=4094, "");
        if let (Some(name), Some(id)) = (name, vlan_id) {
            let name = At { value: name.to_owned(), span: parent.span };
            let vlan = At { value: id as u16, span: vlan.span };
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
        for (key, inbound) in [("acl_in", true), ("acl_out", false)] {
            if let Some(item) = section.take(key)
                && let Some(name) = reader.string(&item, "the name of an access list")
            {
                self.acl_names.push((port, inbound, At { value: name.to_owned(), span: item.span }));
            }
        }
        const MODES: [(&str, ReversePathMode); 5] = [
            ("new-sessions", ReversePathMode::NewSessions),
            ("strict", ReversePathMode::Strict),
            ("loose", ReversePathMode::Loose),
            ("loose-allow-default", ReversePathMode::LooseAllowDefault),
            ("off", ReversePathMode::Off),
        ];
        if let Some(item) = section.take("urpf") {
            config.urpf = reader.word(&item, &MODES).unwrap_or_default();
            self.with_urpf.push(port);
        }
    }

    /// Ports that NAT translates and that do not say otherwise have their sources checked where a packet would make a
    /// session: those with an IPv4 network of their own, and without a default route.
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
            nat.inside.iter().filter(|port| !self.with_urpf.contains(port) && !defaults.contains(port))
        {
            if let Some(config) = self.configs.get_mut(usize::from(port))
                && config.addresses.iter().any(|net| net.addr().is_ipv4())
            {
                config.urpf = ReversePathMode::NewSessions;
            }
        }
    }

    /// Gives sub-interfaces their parents.
    fn settle_parents(&mut self, reader: &mut Reader) {
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

    /// The same address twice, or connected prefixes of different ports that share addresses.
    fn check_overlaps(&self, reader: &mut Reader) {
        for (i, (port, at)) in self.addresses.iter().enumerate() {
            for (earlier_port, earlier) in &self.addresses[..i] {
                let where_from = format!(
                    "`{}` of port {}, {}",
                    earlier.value,
                    self.configs[usize::from(*earlier_port)].name,
                    reader.line(&earlier.span)
                );
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

    /// The port a name stands for.
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

    /// The port that an address is connected to: the longest connected prefix that holds it.
    pub(crate) fn connected(&self, address: IpAddr) -> Option<PortIndex> {
        self.addresses
            .iter()
            .filter(|(_, net)| !is_link_local(net.value.addr()) && net.value.contains(&address))
            .max_by_key(|(_, net)| net.value.prefix_len())
            .map(|(port, _)| *port)
    }

    /// The port whose own address this is.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<PortIndex> {
        self.addresses.iter().find(|(_, net)| net.value.addr() == address).map(|(port, _)| *port)
    }

    /// Whether `address` can be a neighbor on `port`.
    pub(crate) fn is_on(&self, address: IpAddr, port: PortIndex) -> bool {
        is_link_local(address) || self.connected(address) == Some(port)
    }

    /// Whether frames to this next hop have a MAC address to go to.
    pub(crate) fn has_mac(&self, next_hop: NextHop) -> bool {
        let port = self.configs.get(usize::from(next_hop.port));
        // A live port asks.
        let asks = port.is_some_and(|config| config.interface.is_some());
        let default = port.and_then(|config| config.default_mac);
        let listed = |n: &StaticNeighbor| n.port == next_hop.port && Some(n.address) == next_hop.gateway;
        asks || default.is_some() || self.neighbors.iter().any(listed)
    }

    /// Finds the way to a gateway: through `port` if it is named, else through the connected prefix.
    /// Answers what was wrong and what was expected.
    pub(crate) fn next_hop(
        &self,
        gateway: IpAddr,
        port: Option<PortIndex>,
    ) -> Result<NextHop, (String, String)> {
        self.check_neighbor(gateway)?;
        match port {
            Some(port) if self.is_on(gateway, port) => Ok(NextHop { port, gateway: Some(gateway) }),
            Some(port) => Err((
                format!("next hop {gateway} is not on port {}", self.name(port)),
                format!("an address within {}", self.prefixes_of(Some(port), gateway)),
            )),
            None if is_link_local(gateway) => Err((
                format!("link-local next hop {gateway} could be on any port"),
                "a port beside it".to_owned(),
            )),
            None => match self.connected(gateway) {
                Some(port) => Ok(NextHop { port, gateway: Some(gateway) }),
                None => Err((
                    format!("next hop {gateway} is on no connected network"),
                    format!("an address within {}", self.prefixes_of(None, gateway)),
                )),
            },
        }
    }

    /// A gateway on a port's link that no network of the port holds, as with an address of /32.
    pub(crate) fn next_hop_on_link(
        &self,
        gateway: IpAddr,
        port: PortIndex,
    ) -> Result<NextHop, (String, String)> {
        self.check_neighbor(gateway)?;
        if let Some(other) = self.connected(gateway).filter(|other| *other != port) {
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

    /// What is wrong with an address as that of another router or host, and what was expected.
    pub(crate) fn check_neighbor(&self, address: IpAddr) -> Result<(), (String, String)> {
        if let Some(owner) = self.owner(address) {
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

    /// What is wrong with a host's address that is none: the connected network whose own or broadcast address it is.
    pub(crate) fn nobodys(&self, address: IpAddr) -> Option<String> {
        let IpAddr::V4(address) = address else { return None };
        self.addresses.iter().find_map(|(port, net)| match net.value {
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

    /// The connected prefixes of one port or all, of the address's family, for a message.
    fn prefixes_of(&self, port: Option<PortIndex>, like: IpAddr) -> String {
        const SHOWN: usize = 6;
        let prefixes: Vec<String> = self
            .addresses
            .iter()
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

/// Reads what a live port needs; `None` where no interface is named.
fn read_interface(
    reader: &mut Reader,
    section: &mut Section<'_>,
    port: &str,
    names: &mut InterfaceNames,
) -> Option<InterfaceConfig> {
    let item = section.take("interface");
    let driver = section.take("driver");
    let device = section.take("device");
    let mirror = section.take("mirror");
    let advertise = section.take("router_advertisements");
    let offload = section.take("offload");
    let xdp_mode = section.take("xdp_mode");
    let queues = section.take("queues");
    if section.has("parent") {
        for key in [&item, &driver, &device, &offload, &xdp_mode, &queues].into_iter().flatten() {
            let message = format!("`{}` is the parent's affair", key.key);
            reader.error(ErrorKind::Conflict, &key.span, message, "no such key where there is a `parent`");
        }
        return Some(InterfaceConfig {
            // The parent's, once it is known.
            name: String::new(),
            driver: Driver::default(),
            device: None,
            own_mac: true,
            mirror: mirror.and_then(|item| names.mirror(reader, &item, port)),
            offload: false,
            queues: None,
            xdp_mode: None,
            router_advertisements: advertise.and_then(|item| reader.boolean(&item)).unwrap_or(false),
        });
    }
    let driver_key = driver.as_ref().map(|item| item.span.clone());
    let driver = driver.map(|item| (reader.word(&item, &Driver::NAMES).unwrap_or_default(), item));
    let is_dpdk = driver.as_ref().is_some_and(|(driver, _)| *driver == Driver::Dpdk);
    let device = read_device(reader, is_dpdk, driver_key, &item, device);
    let item = item.filter(|_| !is_dpdk);
    if item.is_none() && !is_dpdk {
        let driver = driver.map(|(_, item)| item);
        for key in [driver, mirror, advertise, offload, xdp_mode, queues].into_iter().flatten() {
            let message = format!("`{}` says something about an interface, and the port has none", key.key);
            reader.error(ErrorKind::MissingKey, &key.span, message, "a key `interface` beside it");
        }
        return None;
    }
    let name = match (item, &device) {
        (Some(item), _) => {
            let name = reader.parse(&item, interface_name)?;
            names.take(reader, Use::Interface, port, &name.value, &name.span);
            name.value
        }
        // A device with a mistake still is one, and the port needs no `mac`.
        (None, device) => dpdk::name_of(device.as_deref().unwrap_or_default()).to_owned(),
    };
    let driver = driver.map(|(driver, _)| driver).unwrap_or_default();
    let mirror = mirror.and_then(|item| names.mirror(reader, &item, port));
    let router_advertisements = advertise.and_then(|item| reader.boolean(&item)).unwrap_or(false);
    let needs_xdp = |reader: &mut Reader, item: &Item<'_>, what: &str| {
        if !matches!(driver, Driver::AfXdp | Driver::Auto) {
            let message = format!("{what}, and the driver is {}", driver.name());
            reader.error(ErrorKind::Conflict, &item.span, message, "driver `af_xdp` or `auto`");
        }
    };
    let offload = offload.is_some_and(|item| {
        let wanted = reader.boolean(&item).unwrap_or(false);
        if wanted {
            needs_xdp(reader, &item, "flows are offloaded by XDP");
        }
        wanted
    });
    let xdp_mode = xdp_mode.and_then(|item| {
        needs_xdp(reader, &item, "`xdp_mode` says where an XDP program runs");
        reader.word(&item, &XdpPlace::NAMES)
    });
    let queues = queues.and_then(|item| {
        let wanted = reader.integer(&item, 1..=QUEUES_MAX, "")?;
        if wanted > 1 && matches!(driver, Driver::Tap | Driver::Dpdk) {
            let message = format!("a port of driver {} has one queue", driver.name());
            reader.error(ErrorKind::Conflict, &item.span, message, "no key `queues`, or another driver");
        }
        Some(wanted as u16)
    });
    Some(InterfaceConfig {
        name,
        driver,
        device,
        own_mac: true,
        mirror,
        router_advertisements,
        offload,
        xdp_mode,
        queues,
    })
}

/// Reads the device of a port that DPDK drives, and says where there is one too many or too few.
fn read_device(
    reader: &mut Reader,
    is_dpdk: bool,
    driver: Option<Range<usize>>,
    interface: &Option<Item<'_>>,
    device: Option<Item<'_>>,
) -> Option<String> {
    match (is_dpdk, device, driver) {
        (true, Some(device), _) => {
            if let Some(interface) = interface {
                let message = "DPDK drives devices, not interfaces";
                reader.error(ErrorKind::Conflict, &interface.span, message, "no `interface` beside `device`");
            }
            reader.parse(&device, dpdk::device).map(|at| at.value)
        }
        (true, None, driver) => {
            let message = "DPDK has to be told which device";
            let expected = "a key `device` beside it, as `device = \"net_af_packet0,iface=eth0\"`";
            reader.error(ErrorKind::MissingKey, &driver.unwrap_or_default(), message, expected);
            None
        }
        (false, Some(device), _) => {
            let message = "`device` is one of DPDK's";
            reader.error(ErrorKind::Conflict, &device.span, message, "driver = \"dpdk\", or `interface`");
            None
        }
        (false, None, _) => None,
    }
}

/// Reads `[[neighbors]]` into the ports.
pub(crate) fn read_static_neighbors(reader: &mut Reader, root: &mut Section<'_>, ports: &mut Ports) {
    let mut neighbors: Vec<(StaticNeighbor, Range<usize>)> = Vec::new();
    let Some(item) = root.take_renamed("neighbors", "neighbours") else { return };
    for entry in reader.list(&item) {
        let Some(mut section) = reader.section(&entry, "[[neighbors]]".to_owned()) else { continue };
        let port = section.require("port", "\"wan\"").and_then(|item| ports.named(reader, &item));
        let address =
            section.require("address", "\"192.0.2.1\"").and_then(|item| reader.parse(&item, values::address));
        let mac = section
            .require("mac", "\"02:00:00:00:00:99\"")
            .and_then(|item| reader.parse(&item, values::mac))
            .map(|at| at.value);
        section.finish(reader);
        let (Some(port), Some(At { value: address, span }), Some(mac)) = (port, address, mac) else {
            continue;
        };
        if let Err((message, expected)) = ports.next_hop(address, Some(port)) {
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

fn check_name(reader: &mut Reader, name: &str, span: &Range<usize>) {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fits = !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with(['.', '-']);
    if !fits || !name.chars().all(is_allowed) {
        let expected = "up to 64 letters, digits, `_`, `-` and `.`, beginning with none of the last two";
        reader.error(ErrorKind::BadValue, span, format!("bad port name `{name}`"), expected);
    }
}

/// A trace's fields are separated by blanks and its comments begin with `#`.
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

/// Whether two prefixes share an address.
fn overlap(a: &IpNet, b: &IpNet) -> bool {
    match (a, b) {
        (IpNet::V4(a), IpNet::V4(b)) => a.contains(&b.network()) || b.contains(&a.network()),
        (IpNet::V6(a), IpNet::V6(b)) => a.contains(&b.network()) || b.contains(&a.network()),
        _ => false,
    }
}

/// Whether the address is good on its own link only.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

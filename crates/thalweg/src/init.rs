//! `thalweg init`: writes a configuration for the interfaces of this machine, with the meaning of each key.
//!
//! It asks nothing. What it cannot know is there as a comment. The text is checked before it is written.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use thalweg_config::{RouterConfig, keys};
use thalweg_ports::kernel::NetworkView;

use crate::cli::{InitArgs, InitKind};
use crate::config_keys::plain;
use crate::{Failure, print};

pub(crate) fn run(args: &InitArgs) -> Result<(), Failure> {
    let machine = Machine::here();
    let text = match args.kind {
        InitKind::Router => router(&machine),
        InitKind::Probe => probe(&machine),
        InitKind::RouteServer => route_server(&machine),
    };
    // An interface may have what no port can, such as an address twice.
    RouterConfig::from_text("init", &text, Path::new("/")).map_err(Failure::Config)?;
    let Some(path) = &args.output else { return print(&text) };
    let failed = |error: std::io::Error| Failure::Run(format!("cannot write {}: {error}", path.display()));
    let file = if args.force { File::create(path) } else { File::create_new(path) };
    let mut file = file.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::Run(format!("{} is there already: --force replaces it", path.display()))
        }
        _ => failed(error),
    })?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    let name = path.display();
    print(&format!("wrote {name}\nnext: read it, then `thalweg check {name}` and `thalweg run {name}`\n"))
}

/// What the configuration is made from.
#[derive(Debug, Default)]
struct Machine {
    interfaces: Vec<Interface>,
    gateway: Option<Ipv4Addr>,
}

#[derive(Debug, Default)]
struct Interface {
    name: String,
    /// With prefix lengths.
    addresses: Vec<String>,
}

impl Machine {
    fn here() -> Self {
        let addresses = NetworkView::read_addresses().unwrap_or_default();
        // `/sys` may be another network namespace's, whose interfaces are not to be had here.
        let links = NetworkView::read_links();
        let is_here = |index: u32, name: &str| {
            links
                .as_ref()
                .is_ok_and(|links| links.iter().any(|link| link.index == index && *link.name == *name))
        };
        let text = |name: &str, file: &str| {
            fs::read_to_string(Path::new("/sys/class/net").join(name).join(file)).unwrap_or_default()
        };
        let read = |name: &str, file: &str| text(name, file).trim().parse::<u32>().ok();
        // ARPHRD_ETHER; IFF_NOARP.
        const ETHERNET: u32 = 1;
        const NO_ARP: u32 = 0x80;
        // What has no neighbors: ifb, dummy.
        let has_arp = |name: &str| {
            let flags = u32::from_str_radix(text(name, "flags").trim().trim_start_matches("0x"), 16);
            flags.is_ok_and(|flags| flags & NO_ARP == 0)
        };
        let is_link_local =
            |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        let interface = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            // What the system uses itself: bridges and their ports, interfaces of other programs.
            let is_busy =
                ["bridge", "master", "tun_flags"].iter().any(|file| entry.path().join(file).exists());
            let index = read(&name, "ifindex")
                .filter(|index| !is_busy && is_here(*index, &name))
                .filter(|_| read(&name, "type") == Some(ETHERNET) && has_arp(&name))?;
            let own = addresses.iter().filter(|own| own.interface == index && !is_link_local(&own.address));
            let addresses = own.map(|own| format!("{}/{}", own.address, own.network.length())).collect();
            Some(Interface { name, addresses })
        };
        let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        let mut interfaces: Vec<Interface> = entries.filter_map(interface).collect();
        interfaces.sort_by(|one, other| one.name.cmp(&other.name));
        let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
        Self { interfaces, gateway: default_gateway(&routes) }
    }

    /// The first IPv4 address, for BGP's identifier.
    fn first_address(&self) -> Option<Ipv4Addr> {
        let mut all = self.interfaces.iter().flat_map(|interface| &interface.addresses);
        all.find_map(|address| address.split('/').next()?.parse().ok())
    }
}

/// The gateway of the default route in `/proc/net/route`, whose numbers are in the machine's byte order.
fn default_gateway(routes: &str) -> Option<Ipv4Addr> {
    routes.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_default = *fields.get(1)? == "00000000" && *fields.get(7)? == "00000000";
        let gateway =
            u32::from_str_radix(fields.get(2)?, 16).ok().filter(|gateway| *gateway != 0 && is_default)?;
        Some(Ipv4Addr::from(gateway.to_ne_bytes()))
    })
}

/// A line `key = value` with the key's meaning, from the table of keys; `is_off` makes it a comment.
fn line(text: &mut String, section: &str, key: &str, value: &str, is_off: bool) {
    let sections = keys();
    let rows = sections.iter().find(|each| each.section == section).map(|each| &each.keys);
    let row = rows.and_then(|rows| rows.iter().find(|row| row.key == key));
    debug_assert!(row.is_some(), "[{section}] has no {key}");
    let help = row.map(|row| plain(row.help)).unwrap_or_default();
    let _ = writeln!(text, "# {help}\n{}{key} = {value}", if is_off { "# " } else { "" });
}

fn ports(text: &mut String, machine: &Machine, is_router: bool) {
    if machine.interfaces.is_empty() {
        *text += "\n# This machine has no Ethernet interface: a port with a TAP interface of its own, to try it out.\n\
                  [ports.tap0]\ninterface = \"tap0\"\ndriver = \"tap\"\naddresses = [\"192.0.2.1/24\"]\n";
        return;
    }
    for Interface { name, addresses } in &machine.interfaces {
        let _ = writeln!(text, "\n[ports.{name:?}]");
        line(text, "ports.NAME", "interface", &format!("{name:?}"), false);
        if is_router {
            let (addresses, is_off) = match addresses.as_slice() {
                [] => (vec!["192.0.2.1/24".to_owned()], true),
                known => (known.to_vec(), false),
            };
            line(text, "ports.NAME", "addresses", &format!("{addresses:?}"), is_off);
            line(text, "ports.NAME", "mirror", "true", false);
        }
    }
}

fn router(machine: &Machine) -> String {
    let mut text = "# A router between the interfaces of this machine, with the addresses that they have now. Remove ports\n\
                    # that stay with the system. All keys: `thalweg config keys`.\n"
        .to_owned();
    ports(&mut text, machine, true);
    let off = if machine.gateway.is_some() { "" } else { "# " };
    let gateway = machine.gateway.unwrap_or(Ipv4Addr::new(192, 0, 2, 254));
    let _ = writeln!(
        text,
        "\n# Where everything else goes.\n{off}[[routes]]\n{off}prefix = \"0.0.0.0/0\"\n{off}via = \"{gateway}\""
    );
    text += "\n# Hosts with private addresses reach the Internet by NAT, and nothing from there reaches them:\n\
             # [nat]\n# outside = \"wan\"\n# inside = \"lan\"\n\
             # [firewall]\n# zones = { inside = \"lan\", outside = \"wan\" }\n\
             \n# BGP, with the best routes in the forwarding table:\n\
             # [bgp]\n# as = 64500\n# router_id = \"192.0.2.1\"\n# install = \"fib\"\n";
    text += COMMON;
    text
}

fn probe(machine: &Machine) -> String {
    let mut text = "# A flow probe: ports without addresses that receive copies of traffic, by a tap or a switch's mirror port.\n\
                    # Packets are counted and dropped. REMOVE the interface by which you reach this machine.\n"
        .to_owned();
    ports(&mut text, machine, false);
    text += "\n[flows]\n";
    line(&mut text, "flows", "store", "\"/var/lib/thalweg/flows\"", false);
    line(&mut text, "flows", "keep", "\"30d\"", false);
    line(&mut text, "flows", "collectors", "[\"ipfix://192.0.2.9:4739\"]", true);
    line(&mut text, "flows", "applications", "\"payload\"", false);
    text += COMMON;
    text
}

fn route_server(machine: &Machine) -> String {
    let mut text =
        "# A route server (RFC 7947): it passes on routes of its clients and forwards no packets.\n\n[bgp]\n"
            .to_owned();
    let id = machine.first_address().unwrap_or(Ipv4Addr::new(192, 0, 2, 1));
    line(&mut text, "bgp", "as", "64500", false);
    line(&mut text, "bgp", "router_id", &format!("\"{id}\""), false);
    line(&mut text, "bgp", "install", "\"none\"", false);
    text += "\n# A client; copy it for each.\n[[bgp.neighbor]]\nname = \"client-1\"\naddress = \"192.0.2.77\"\nas = 64501\n\
             route_server_client = true\nimport = \"client-in\"\nexport = \"client-out\"\n\
             max_prefixes = { ipv4 = 10000, ipv6 = 2000 }\n\
             \n# Nothing is passed on until you say what: here all but default routes.\n\
             [policy.prefix_sets.defaults]\nentries = [\"0.0.0.0/0\", \"::/0\"]\n\
             [[policy.rules.client-in]]\nmatch = { prefix = \"defaults\" }\naction = \"reject\"\n\
             [[policy.rules.client-in]]\ndefault = \"accept\"\n\
             [[policy.rules.client-out]]\ndefault = \"accept\"\n";
    text += COMMON;
    text
}

/// The end of each file.
const COMMON: &str = "\n# Members of this group may use `thalweg show` and the like:\n\
                      # [control]\n# group = \"adm\"\n\
                      \n# The console in a browser, for this machine alone:\n\
                      # [web]\n# listen = \"127.0.0.1:8080\"\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let interface = |name: &str, addresses: &[&str]| Interface {
            name: name.to_owned(),
            addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
        };
        Machine {
            interfaces: vec![
                interface("enp1s0", &["198.51.100.2/30", "2001:db8:9::2/64"]),
                interface("enp2s0.7", &["10.1.0.1/24"]),
                interface("wlan0", &[]),
            ],
            gateway: Some(Ipv4Addr::new(198, 51, 100, 1)),
        }
    }

    /// Uncommented, what is a comment must be valid too, as far as it needs nothing else.
    #[test]
    fn each_kind_is_a_valid_configuration_on_any_machine() {
        for machine in [machine(), Machine::default()] {
            for text in [router(&machine), probe(&machine), route_server(&machine)] {
                let config = RouterConfig::from_text("init", &text, Path::new("/"));
                let config = config.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
                assert!(config.warnings.is_empty(), "{:?}\n{text}", config.warnings);
                assert!(text.lines().all(|line| !line.starts_with("# \n") && !line.contains("](")), "{text}");
            }
        }
        let config =
            RouterConfig::from_text("init", &router(&machine()), Path::new("/")).expect("it is valid");
        assert_eq!(config.ports.len(), 3);
        assert_eq!(config.ports[0].addresses.len(), 2);
        assert!(
            config.ports.iter().all(|port| port.interface.as_ref().is_some_and(|of| of.mirror.is_some()))
        );
    }

    #[test]
    fn the_default_route_of_the_system_is_found() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
                     eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                     eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
        let expected = if cfg!(target_endian = "little") { [192, 0, 2, 1] } else { [1, 2, 0, 192] };
        assert_eq!(default_gateway(table), Some(expected.into()));
        assert_eq!(default_gateway("Iface\nnonsense\n"), None);
    }
}

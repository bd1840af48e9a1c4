//! `[[vrrp]]`: virtual routers, whose addresses several routers share.

use std::net::IpAddr;

use thalweg_dataplane::vrrp::VrrpConfig;
use thalweg_wire::vrrp::INTERVAL_MAX_CS;

use crate::diagnostic::ErrorKind;
use crate::key::{Differs, Key, Sub, table};
use crate::ports::{Ports, is_link_local};
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::types::Driver;
use crate::values;

/// Drivers learn only when they open a port that it may get other MAC addresses.
const CHANGED: Differs = Differs::Router(|before, after| before.vrrp != after.vrrp);

pub(crate) static VRRP: Key<Sub> = Key::sections("vrrp", &TABLE)
    .restart(CHANGED)
    .help("live: virtual routers (VRRP version 3): see [failover.md](failover.md#virtual-routers)");
table! {
    static TABLE: "vrrp", "[[vrrp]]";

    static PORT: Key<()> = Key::raw("port", "a port").required("\"lan\"").restart(CHANGED).help("where the hosts are that use the addresses");
    static ID: Key<u8> = Key::number("id", 1..=255).required("1").restart(CHANGED).help("number of the virtual router (VRID) on the port's link");
    static ADDRESSES: Key<()> = Key::raw("addresses", "an address or a list of at most 32")
        .required("\"192.168.1.1\"")
        .restart(CHANGED)
        .help("its addresses, all of one family, without prefix length; with IPv6 a link-local one first");
    static PRIORITY: Key<u8> = Key::number("priority", 1..=255).default(100).restart(CHANGED).help(
        "of the routers that can be reached the one with the highest has the addresses; 255 means that they are the port's own",
    );
    static INTERVAL_MS: Key<u16> = Key::number("interval_ms", 10..=INTERVAL_MAX_MS)
        .unit("milliseconds")
        .default(1000)
        .restart(CHANGED)
        .help("time between advertisements, in steps of 10 ms; others take over after three of them and up to one more");
    static PREEMPT: Key<bool> =
        Key::flag("preempt").default(true).restart(CHANGED).help("take over from a router of lower priority");
    static ACCEPT: Key<bool> =
        Key::flag("accept").default(false).restart(CHANGED).help("answer echo requests to the addresses though they are not the port's own");
    static PSEUDO_HEADER: Key<bool> = Key::flag("pseudo_header")
        .default(false)
        .restart(CHANGED)
        .help("with IPv4 the checksum covers a pseudo header, as by default with keepalived and FRR");
}

const INTERVAL_MAX_MS: u64 = INTERVAL_MAX_CS as u64 * 10;
/// The most addresses of one virtual router, and virtual routers of one router.
const ADDRESSES_MAX: usize = 32;
const ROUTERS_MAX: usize = 255;
const OWNER: u8 = 255;

pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, ports: &Ports) -> Vec<VrrpConfig> {
    let mut all: Vec<VrrpConfig> = Vec::new();
    for mut section in root.sections(reader, &VRRP) {
        let span = section.span.clone();
        let Some(config) = read_one(reader, &mut section, ports) else {
            section.finish(reader);
            continue;
        };
        section.finish(reader);
        let is_same = |known: &VrrpConfig| {
            (known.port, known.id, known.is_ipv6()) == (config.port, config.id, config.is_ipv6())
        };
        if all.iter().any(is_same) {
            let message = format!("port {} has two virtual routers {}", ports.name(config.port), config.id);
            reader.error(ErrorKind::Duplicate, &span, message, "another `id`");
        } else if all.len() >= ROUTERS_MAX {
            reader.error(
                ErrorKind::TooMany,
                &span,
                "too many virtual routers",
                format!("at most {ROUTERS_MAX}"),
            );
        } else {
            all.push(config);
        }
    }
    all
}

fn read_one(reader: &mut Reader, section: &mut Section<'_>, ports: &Ports) -> Option<VrrpConfig> {
    let port = section.take(&PORT);
    let id = section.read(reader, &ID);
    let addresses = section.take(&ADDRESSES);
    let priority = section.get(reader, &PRIORITY);
    let interval = section.read(reader, &INTERVAL_MS);
    let interval_ms = interval.as_ref().map(|at| at.value).or_else(|| INTERVAL_MS.default_value(reader));
    let (preempt, accept) = (section.get(reader, &PREEMPT)?, section.get(reader, &ACCEPT)?);
    let pseudo_header = section.get(reader, &PSEUDO_HEADER)?;
    let port_item = port?;
    let port = ports.named(reader, &port_item)?;
    check_port(reader, ports, port, &port_item);
    let addresses = read_addresses(reader, &addresses?, ports, port, priority? == OWNER)?;
    if let Some(at) = interval.filter(|at| !at.value.is_multiple_of(10)) {
        let message = format!("{} ms is no multiple of 10 ms", at.value);
        reader.error(ErrorKind::BadValue, &at.span, message, "a multiple of 10");
    }
    let (id, priority, interval_cs) = (id?.value, priority?, interval_ms? / 10);
    Some(VrrpConfig { port, id, addresses, priority, interval_cs, preempt, accept, pseudo_header })
}

fn check_port(reader: &mut Reader, ports: &Ports, port: u16, item: &Item<'_>) {
    let Some(config) = ports.configs.get(usize::from(port)) else { return };
    let driver = config.interface.as_ref().map(|interface| interface.driver);
    let why = match driver {
        _ if config.sub_interface.is_some() => "it is a VLAN",
        None => "it has no interface",
        Some(Driver::Tap | Driver::Dpdk) => "its driver has no second MAC address",
        Some(_) => return,
    };
    let message = format!("port {} can have no virtual router: {why}", config.name);
    reader.error(
        ErrorKind::Conflict,
        &item.span,
        message,
        "a port with an interface, by AF_XDP or AF_PACKET",
    );
}

fn read_addresses(
    reader: &mut Reader,
    item: &Item<'_>,
    ports: &Ports,
    port: u16,
    is_owner: bool,
) -> Option<Vec<IpAddr>> {
    let entries = reader.filled_list(item);
    if entries.len() > ADDRESSES_MAX {
        reader.error(
            ErrorKind::TooMany,
            &item.span,
            "too many addresses",
            format!("at most {ADDRESSES_MAX}"),
        );
        return None;
    }
    let mut addresses: Vec<IpAddr> = Vec::new();
    for entry in &entries {
        let At { value: address, span } = reader.parse(entry, values::address)?;
        let is_near = is_link_local(address) || ports.connected(address, ports.vrf_of(port)) == Some(port);
        let (kind, message, expected) = match ports.owner(address, ports.vrf_of(port)) {
            _ if addresses.first().is_some_and(|first| first.is_ipv4() != address.is_ipv4()) => {
                (ErrorKind::Conflict, format!("{address} is of another family than the first"), "one family")
            }
            _ if addresses.contains(&address) => {
                (ErrorKind::Duplicate, format!("{address} is given twice"), "each address once")
            }
            Some(owner) if owner == port && is_owner => {
                addresses.push(address);
                continue;
            }
            Some(_) => (
                ErrorKind::Conflict,
                format!("{address} is the router's own address"),
                "another address, or `priority = 255` for the port's own",
            ),
            None if is_owner => (
                ErrorKind::Conflict,
                format!("{address} is not an address of the port, so this router is not its owner"),
                "an address of the port, or a lower priority",
            ),
            None if !values::is_unicast(address) || !is_near => (
                ErrorKind::NotConnected,
                format!("{address} is not in a network of port {}", ports.name(port)),
                "an address of a host there",
            ),
            None => {
                addresses.push(address);
                continue;
            }
        };
        reader.error(kind, &span, message, expected);
        return None;
    }
    (!addresses.is_empty()).then_some(addresses)
}

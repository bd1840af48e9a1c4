//! `[[bgp.group]]` and `[[bgp.neighbor]]`, without the keys that they share with `[bgp]`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::session::config::RemoteAs;

use crate::bgp_settings::{SHARED, Settings, remote_as};
use crate::diagnostic::ErrorKind;
use crate::key::{Key, Sub, table};
use crate::policy_sets::{check_name, unknown};
use crate::ports::Ports;
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::values::bgp_prefix;

pub(crate) static GROUP: Key<Sub> =
    Key::sections("group", &GROUP_TABLE).help("settings for several neighbors, and dynamic neighbors");
table! {
    static GROUP_TABLE: "bgp.group", "[[bgp.group]]", shared SHARED;

    static GROUP_NAME: Key<()> = Key::raw("name", "a name").required("\"customers\"").help("its name");
    static AS: Key<RemoteAs> = Key::by("as", "a number, a list of numbers and ranges, or `\"any\"`", remote_as)
        .otherwise("a neighbor's is its group's; required with `dynamic`, and for a neighbor without a group")
        .session()
        .help("the neighbor's AS");
    static DYNAMIC: Key<Vec<At<IpPrefix>>> = Key::by("dynamic", "a prefix or a list", |reader, item| {
        reader.all(item, |reader, entry| reader.parse(entry, bgp_prefix))
    })
    .help("accept dynamic neighbors that connect from these prefixes");
    static DYNAMIC_MAX: Key<usize> = Key::number("dynamic_max", 1..=NEIGHBORS_MAX as u64)
        .unit("neighbors")
        .default(1000)
        .help("limit of dynamic neighbors at a time");
}

pub(crate) static NEIGHBOR: Key<Sub> =
    Key::sections("neighbor", &NEIGHBOR_TABLE).help("configured neighbors");
table! {
    static NEIGHBOR_TABLE: "bgp.neighbor", "[[bgp.neighbor]]", shared SHARED;

    static ADDRESS: Key<IpAddr> = Key::text("address", "an address", unicast_address)
        .required("\"198.18.1.1\"")
        .help("the neighbor's address, which identifies it");
    row AS;
    static NAME: Key<Arc<str>> =
        Key::by("name", "a name", name).otherwise("its address").help("name, for logs and commands");
    static NEIGHBOR_GROUP: Key<()> = Key::raw("group", "a name").help("the neighbor's group");
}

/// A neighbor's number has 16 bits, and the last one is our own.
const NEIGHBORS_MAX: usize = 60_000;

/// A group as read.
pub(crate) struct RawGroup {
    pub(crate) name: At<Arc<str>>,
    pub(crate) settings: Settings,
    pub(crate) ranges: Vec<At<IpPrefix>>,
    pub(crate) max: usize,
}

/// A neighbor as read, with the settings of its group and of `[bgp]` applied.
pub(crate) struct RawBgpNeighbor {
    pub(crate) name: Option<At<Arc<str>>>,
    pub(crate) address: At<IpAddr>,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) settings: Settings,
}

pub(crate) fn read_groups(reader: &mut Reader, bgp: &mut Section<'_>, outer: &Settings) -> Vec<RawGroup> {
    let mut groups: Vec<RawGroup> = Vec::new();
    for mut section in bgp.sections(reader, &GROUP) {
        let name = section.take(&GROUP_NAME);
        let asn = section.read(reader, &AS);
        let dynamic = section.read(reader, &DYNAMIC);
        let max = section.get(reader, &DYNAMIC_MAX);
        let mut settings = Settings::read(reader, &mut section);
        settings.remote_as = asn;
        let span = section.span.clone();
        section.finish(reader);
        let Some(item) = name else { continue };
        let Some(name) = reader.string(&item, "a name") else { continue };
        check_name(reader, name, &item.span);
        if let Some(first) = groups.iter().find(|group| &*group.name.value == name) {
            let expected = format!("another name than on {}", reader.line(&first.name.span));
            reader.error(
                ErrorKind::Duplicate,
                &item.span,
                format!("two groups are called `{name}`"),
                expected,
            );
            continue;
        }
        if dynamic.is_some() && settings.remote_as.is_none() {
            let message = format!("dynamic group `{name}` lacks `as`");
            reader.error(ErrorKind::MissingKey, &span, message, "`as = 64600`, a list of ranges or \"any\"");
        }
        let ranges = dynamic.map(|at| at.value).unwrap_or_default();
        check_ranges(reader, &groups, &ranges);
        groups.push(RawGroup {
            name: At { value: name.into(), span: item.span.clone() },
            settings: settings.or(outer),
            ranges,
            max: max.unwrap_or_default(),
        });
    }
    groups
}

/// The group of a connecting neighbor must not depend on order.
fn check_ranges(reader: &mut Reader, groups: &[RawGroup], ranges: &[At<IpPrefix>]) {
    for (index, at) in ranges.iter().enumerate() {
        let others = groups.iter().flat_map(|group| &group.ranges).chain(&ranges[..index]);
        if let Some(other) = others.into_iter().find(|other| overlap(other.value, at.value)) {
            let message = format!("dynamic neighbors of {} are also those of {}", at.value, other.value);
            let expected =
                format!("a prefix that shares no address with that of {}", reader.line(&other.span));
            reader.error(ErrorKind::Overlap, &at.span, message, expected);
        }
    }
}

fn overlap(a: IpPrefix, b: IpPrefix) -> bool {
    match (a, b) {
        (IpPrefix::V4(a), IpPrefix::V4(b)) => a.covers(b) || b.covers(a),
        (IpPrefix::V6(a), IpPrefix::V6(b)) => a.covers(b) || b.covers(a),
        _ => false,
    }
}

pub(crate) fn read_neighbors(
    reader: &mut Reader,
    bgp: &mut Section<'_>,
    outer: &Settings,
    groups: &[RawGroup],
    ports: &Ports,
) -> Vec<RawBgpNeighbor> {
    let mut neighbors: Vec<RawBgpNeighbor> = Vec::new();
    let mut addresses: HashMap<IpAddr, Range<usize>> = HashMap::new();
    let mut names: HashMap<Arc<str>, Range<usize>> = HashMap::new();
    let Some(item) = bgp.take(&NEIGHBOR) else { return neighbors };
    let entries = reader.list(&item);
    if entries.len() > NEIGHBORS_MAX {
        let expected = format!("at most {NEIGHBORS_MAX}");
        reader.error(ErrorKind::TooMany, &item.span, "too many neighbors", expected);
        return neighbors;
    }
    for entry in entries {
        let Some(mut section) = reader.section(&entry, &NEIGHBOR_TABLE) else { continue };
        let address = section.read(reader, &ADDRESS);
        let asn = section.read(reader, &AS);
        let name = section.read(reader, &NAME);
        let group = section.take(&NEIGHBOR_GROUP).and_then(|item| find_group(reader, &item, groups));
        let mut settings = Settings::read(reader, &mut section);
        settings.remote_as = asn;
        let settings = settings.or(group.map_or(outer, |group| &group.settings));
        let span = section.span.clone();
        section.finish(reader);
        let Some(address) = address else { continue };
        if let Some(first) = addresses.insert(address.value, address.span.clone()) {
            let message = format!("neighbor {} is given twice", address.value);
            let expected = format!("each address once; see {}", reader.line(&first));
            reader.error(ErrorKind::Duplicate, &address.span, message, expected);
            continue;
        }
        check_way(reader, ports, &address);
        if let Some(port) = ports.owner(address.value, 0) {
            let message =
                format!("neighbor {} is this router itself (port {})", address.value, ports.name(port));
            reader.error(ErrorKind::Conflict, &address.span, message, "the address of another router");
        }
        if let Some(name) = &name
            && let Some(first) = names.insert(name.value.clone(), name.span.clone())
        {
            let message = format!("two neighbors are called `{}`", name.value);
            let expected = format!("another name than on {}", reader.line(&first));
            reader.error(ErrorKind::Duplicate, &name.span, message, expected);
        }
        if settings.remote_as.is_none() {
            let message = format!("neighbor {} has no AS, nor has its group", address.value);
            reader.error(ErrorKind::MissingKey, &span, message, "`as = 64600`");
        }
        neighbors.push(RawBgpNeighbor {
            name,
            address,
            group: group.map(|g| g.name.value.clone()),
            settings,
        });
    }
    neighbors
}

/// The system makes BGP's connections and reaches a port's network only through the port's mirror.
fn check_way(reader: &mut Reader, ports: &Ports, address: &At<IpAddr>) {
    if let Some(why) = ports.nobodys(address.value, 0) {
        let message = format!("neighbor {why}");
        reader.error(ErrorKind::BadValue, &address.span, message, "the address of another router");
        return;
    }
    let Some(port) = ports.connected(address.value, 0) else {
        let mut others = (1..).take(ports.vrfs.names.len().saturating_sub(1));
        if let Some(port) = others.find_map(|vrf| ports.connected(address.value, vrf)) {
            let (name, vrf) = (ports.name(port), ports.vrfs.name(ports.vrf_of(port)));
            let message = format!(
                "neighbor {} is on port {name} of VRF {vrf}: no session will come up by it",
                address.value
            );
            let expected = "a neighbor that the main table or the system reaches";
            reader.warning(ErrorKind::Conflict, &address.span, message, expected);
        }
        return;
    };
    let port = &ports.configs[usize::from(port)];
    let Some(interface) = &port.interface else { return };
    if interface.mirror.is_none() {
        let message = format!(
            "neighbor {} is on port {}, which has no mirror: no session will come up",
            address.value, port.name
        );
        let expected = format!("`mirror = true` in [ports.{}]", port.name);
        let finding = reader.warning(ErrorKind::MissingKey, &address.span, message, expected);
        finding.help =
            Some("BGP's connections are made by the system, and a mirror is its way to a port".to_owned());
    }
}

/// Loopback addresses are useful in laboratories.
fn unicast_address(text: &str) -> Result<IpAddr, &'static str> {
    const EXPECTED: &str = "the address of one router, such as \"198.18.1.1\"";
    let address: IpAddr = text.parse().map_err(|_| EXPECTED)?;
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if address.is_unspecified() || address.is_multicast() || broadcast { Err(EXPECTED) } else { Ok(address) }
}

fn find_group<'g>(reader: &mut Reader, item: &Item<'_>, groups: &'g [RawGroup]) -> Option<&'g RawGroup> {
    let name = reader.string(item, "the name of a group")?;
    let found = groups.iter().find(|group| &*group.name.value == name);
    if found.is_none() {
        let names = groups.iter().map(|group| &*group.name.value);
        unknown(reader, item, name, "group", "[[bgp.group]]", names);
    }
    found
}

fn name(reader: &mut Reader, item: &Item<'_>) -> Option<Arc<str>> {
    let name = reader.string(item, "a name")?;
    check_name(reader, name, &item.span).then(|| name.into())
}

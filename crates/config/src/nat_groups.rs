//! `[[nat.groups]]`: inside hosts with public addresses and limits of their own.

use std::net::Ipv4Addr;
use std::ops::Range;

use ipnet::IpNet;
use thalweg_dataplane::nat::{BlockAllocation, HostLimits, NatConfig, NatGroup};

use crate::diagnostic::{ErrorKind, one_of};
use crate::items::PREFIX_LIST;
use crate::key::{Key, Sub, table};
use crate::nat_addresses::read_addresses;
use crate::nat_subscribers;
use crate::policy_sets::check_name;
use crate::ports::Ports;
use crate::reader::{At, Reader};
use crate::section::Section;
use crate::sets;
use crate::types::PortIndex;

pub(crate) static GROUPS: Key<Sub> =
    Key::sections("groups", &TABLE).help("inside hosts with public addresses and limits of their own");
table! {
    static TABLE: "nat.groups", "[[nat.groups]]";

    static NAME: Key<String> =
        Key::text("name", "a name", |text| Ok(text.to_owned())).required("\"business\"").help("its name in `show nat --pools` and in metrics");
    static INSIDE: Key<Vec<IpNet>> = Key::by("inside", PREFIX_LIST, sets::prefixes)
        .required("[\"100.64.8.0/22\"]")
        .help("inside prefixes, or a set: `\"@business\"`; a host is in the first group that has it; of IPv6 with `nat64`");
    static ADDRESSES: Key<()> = Key::raw("addresses", "an address or a list")
        .required("[\"203.0.113.16\"]")
        .help("its public addresses, which no other host gets");
    static OUTSIDE: Key<()> = Key::raw("outside", "a port")
        .otherwise("the first")
        .help("the outside port, where there are several");
    static VRF: Key<()> = Key::raw("vrf", "a VRF")
        .otherwise("that of the outside port")
        .help("the [VRF](vrf.md) of the inside hosts");
    static PORTS_MAX: Key<u32> = Key::number("ports_max", 1..=u16::MAX as u64)
        .otherwise("that of `[nat.subscribers]`")
        .help("limit of public ports of an address, per protocol, with `[nat.subscribers]`");
    static SESSIONS_MAX: Key<u32> = Key::number("sessions_max", 1..=1 << 24)
        .otherwise("that of `[nat.subscribers]`, else `host_sessions_max`")
        .help("limit of sessions of an address");
    static SESSIONS_PER_SECOND: Key<u32> = Key::number("sessions_per_second", 1..=1_000_000)
        .otherwise("`host_sessions_per_second`")
        .help("limit of new sessions per second of an address, approximate");
}

const GROUPS_MAX: usize = 64;

/// Reads the groups, and adds their public addresses to those of their outside ports.
pub(crate) fn read(
    reader: &mut Reader,
    nat: &mut Section<'_>,
    ports: &Ports,
    (outsides, inside): (&[PortIndex], &[PortIndex]),
    pools: &mut [Vec<Ipv4Addr>],
    (hosts, subscribers, nat64): (HostLimits, Option<&nat_subscribers::Read>, bool),
) -> Vec<NatGroup> {
    let mut groups: Vec<NatGroup> = Vec::new();
    // IPv6 hosts have no deterministic blocks.
    let allocation = subscribers.map(|subscribers| &subscribers.config.allocation);
    let nat64 = nat64 && !matches!(allocation, Some(BlockAllocation::Deterministic(_)));
    for mut section in nat.sections(reader, &GROUPS) {
        let name = section.read(reader, &NAME);
        let hosts_of = section.read(reader, &INSIDE);
        let outside = section.take(&OUTSIDE).map_or(Some(0), |item| {
            let port = ports.named(reader, &item)?;
            let place = outsides.iter().position(|outside| *outside == port);
            if place.is_none() {
                let message = format!("`{}` is no outside port", ports.name(port));
                let expected = one_of(outsides.iter().map(|port| ports.name(*port)));
                reader.error(ErrorKind::UnknownName, &item.span, message, expected);
            }
            place
        });
        let vrf_of = |place: usize| outsides.get(place).map(|port| ports.vrf_of(*port));
        let vrf = match section.take(&VRF) {
            Some(item) => ports.vrfs.named(reader, &item),
            None => outside.and_then(vrf_of),
        };
        let addresses = section.require(&ADDRESSES);
        let mut limits = hosts;
        if let Some(subscribers) = subscribers {
            limits.sessions_max = Some(subscribers.config.sessions_max);
        }
        for (key, limit) in
            [(&SESSIONS_MAX, &mut limits.sessions_max), (&SESSIONS_PER_SECOND, &mut limits.new_per_second)]
        {
            *limit = section.get(reader, key).or(*limit);
        }
        let ports_max = read_ports_max(reader, &mut section, subscribers);
        let span = section.finish(reader).unwrap_or_default();
        let (Some(name), Some(hosts_of), Some(outside), Some(vrf)) = (name, hosts_of, outside, vrf) else {
            continue;
        };
        let inside_nets = translated(reader, &hosts_of, nat64);
        let Some(addresses) = addresses else { continue };
        let each = pools.iter().zip(outsides);
        let taken: Vec<_> = each
            .flat_map(|(pool, port)| pool.iter().map(|address| (ports.vrf_of(*port), *address)))
            .collect();
        let Some(port) = outsides.get(outside) else { continue };
        let own = read_addresses(reader, (span.clone(), Some(addresses)), ports, (*port, &taken), inside);
        if !is_sound(reader, &groups, (&name, &inside_nets), &span) || own.is_empty() {
            continue;
        }
        if let Some(subscribers) = subscribers
            && !fits(reader, subscribers, &groups, (&inside_nets, own.len()), &span)
        {
            continue;
        }
        let Some(pool) = pools.get_mut(outside) else { continue };
        let addresses = pool.len()..pool.len() + own.len();
        pool.extend(own);
        groups.push(NatGroup {
            name: name.value,
            inside: inside_nets,
            vrf,
            addresses,
            outside,
            limits,
            ports_max,
        });
    }
    groups
}

fn read_ports_max(
    reader: &mut Reader,
    section: &mut Section<'_>,
    subscribers: Option<&nat_subscribers::Read>,
) -> u32 {
    let Some(At { value, span }) = section.read(reader, &PORTS_MAX) else {
        return subscribers.map_or(0, |subscribers| subscribers.config.ports_max);
    };
    if subscribers.is_none() {
        let message = "`ports_max` is a limit of subscribers with blocks of ports";
        reader.error(ErrorKind::Conflict, &span, message, "[nat.subscribers], or `sessions_max`");
    }
    value
}

/// The prefixes whose hosts NAT translates.
fn translated(reader: &mut Reader, nets: &At<Vec<IpNet>>, nat64: bool) -> Vec<IpNet> {
    let is_translated = |net: &IpNet| nat64 || matches!(net, IpNet::V4(_));
    let translated: Vec<_> = nets.value.iter().copied().filter(is_translated).collect();
    if translated.is_empty() {
        let message = "a group without hosts that NAT translates";
        reader.error(ErrorKind::BadValue, &nets.span, message, "IPv4 prefixes, or `nat64`");
    }
    translated
}

/// Whether a group has a name of its own and not too many prefixes; if not, reports it.
fn is_sound(
    reader: &mut Reader,
    groups: &[NatGroup],
    (name, inside): (&At<String>, &[IpNet]),
    span: &Range<usize>,
) -> bool {
    check_name(reader, &name.value, &name.span);
    if name.value == "default" || groups.iter().any(|other| other.name == name.value) {
        let message = format!("there is another pool called `{}`", name.value);
        reader.error(ErrorKind::Duplicate, &name.span, message, "each name once, and not `default`");
        return false;
    }
    let prefixes = groups.iter().map(|group| group.inside.len()).sum::<usize>() + inside.len();
    if groups.len() >= GROUPS_MAX || prefixes > NatConfig::GROUP_PREFIXES_MAX {
        let expected =
            format!("at most {GROUPS_MAX} groups with {} prefixes in all", NatConfig::GROUP_PREFIXES_MAX);
        reader.error(ErrorKind::TooMany, span, "too many groups", expected);
        return false;
    }
    !inside.is_empty()
}

/// Whether the addresses of a group have a deterministic block for each of its hosts, and no host has another; if not,
/// reports it.
fn fits(
    reader: &mut Reader,
    subscribers: &nat_subscribers::Read,
    groups: &[NatGroup],
    (inside, addresses): (&[IpNet], usize),
    span: &Range<usize>,
) -> bool {
    let BlockAllocation::Deterministic(networks) = &subscribers.config.allocation else { return true };
    let subscribers_of = |net: &IpNet| match net {
        IpNet::V4(net) => 1u64 << (32 - net.prefix_len()),
        IpNet::V6(_) => 0,
    };
    let wanted: u64 = inside.iter().map(subscribers_of).sum();
    let there = u64::from(subscribers.blocks) * addresses as u64;
    if wanted > there {
        let message = format!("{wanted} inside addresses need a block each, and there are {there}");
        reader.error(ErrorKind::TooMany, span, message, "as many blocks as addresses");
        return false;
    }
    let others = networks.iter().copied().chain(groups.iter().flat_map(NatGroup::inside_v4));
    let overlaps = |net: &IpNet| inside.iter().any(|own| own.contains(net) || net.contains(own));
    if let Some(other) = others.map(IpNet::V4).find(overlaps) {
        let message = format!("hosts of {other} have deterministic blocks already");
        reader.error(ErrorKind::Overlap, span, message, "each inside address once");
        return false;
    }
    true
}

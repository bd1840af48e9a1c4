//! `[bgp]`, `[[bgp.group]]` and `[[bgp.neighbor]]`.
//!
//! ```toml
//! [bgp]
//! as = 65000                           # required
//! router_id = "198.18.0.1"             # default: the first IPv4 address of a port, or of `listen`
//! listen = ["0.0.0.0:179", "[::]:179"] # this is the default; [] accepts no connections
//! scheduling = "sharded"               # or "serial", "per-peer", "dynamic"
//! threads = 2                          # default: one for each core
//! install = "fib"                      # or "none", "kernel"
//! selection_deferral_s = 240           # after a graceful restart of ours: how long to wait for neighbors' tables
//! on_stop = "remove-routes"            # or "keep-routes": stopping begins a graceful restart
//! next_hop_check = "auto"              # or "off", "kernel": whose routes say which next hops can be reached
//! networks = ["192.0.2.0/24"]          # originated here
//!
//! [[bgp.group]]
//! name = "customers"
//! import = "customers-in"              # any shared key: see `bgp_settings`
//! dynamic = ["198.18.0.0/15"]          # neighbors may call from any address in these
//! as = "any"                           # and have any AS
//!
//! [[bgp.neighbor]]
//! address = "198.18.1.1"
//! as = 64600
//! group = "customers"
//! ```

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::policy::{ACCEPT, Policy, PolicyError, REJECT};
use thalweg_bgp::rib::{DampingConfig, DecisionConfig};
use thalweg_bgp::session::config::{
    BGP_PORT, CapabilityConfig, Confederation, DynamicRange, NeighborConfig, RemoteAs,
};
use thalweg_bgp::session::import::is_martian;
use thalweg_exec::THREADS_MAX;
use thalweg_exec::control::SchedulingKind;
use toml::de::DeValue;

use crate::bgp_settings::{Chain, Settings, remote_as};
use crate::bgp_types::{BgpConfig, GroupConfig, Install, KernelConfig, MrtConfig, NextHopCheck, OnStop};
use crate::diagnostic::ErrorKind;
use crate::policy::{Policies, check_name, unknown};
use crate::policy_rules::{Group, Groups};
use crate::ports::Ports;
use crate::reader::{At, Item, Reader, Section};
use crate::{policy, policy_test, values};

/// A neighbor's number has 16 bits and the last is our own.
const NEIGHBORS_MAX: usize = 60_000;
const DYNAMIC_DEFAULT: usize = 1000;
const TIME_MAX_S: u64 = 7 * 86_400;
/// Enough for a full table from a slow neighbor, and less than neighbors keep stale routes (six minutes).
const SELECTION_DEFERRAL_S: u32 = 240;

/// A group as it is read.
struct RawGroup {
    name: At<Arc<str>>,
    settings: Settings,
    ranges: Vec<At<IpPrefix>>,
    max: usize,
}

/// A neighbor as it is read, its group's and the daemon's settings applied.
struct RawBgpNeighbor {
    name: Option<At<Arc<str>>>,
    address: At<IpAddr>,
    group: Option<Arc<str>>,
    settings: Settings,
}

/// What every neighbor has.
struct Common {
    local_as: u32,
    router_id: Ipv4Addr,
    confederation: Option<Arc<Confederation>>,
    cluster_id: Option<Ipv4Addr>,
    /// Packets are forwarded by this process, and not while it is away.
    forwards_itself: bool,
}

/// Reads everything about BGP and the policies; `None` without `[bgp]`.
pub(crate) fn read(
    reader: &mut Reader,
    root: &mut Section<'_>,
    ports: &Ports,
    folder: &Path,
) -> Option<BgpConfig> {
    let section = root.take("bgp").and_then(|item| reader.section(&item, "[bgp]".to_owned()));
    let Some(mut section) = section else {
        let mut policies = policy::read(reader, root, folder, &Groups::default());
        policy_test::run(reader, &mut policies, &[]);
        return None;
    };
    let title = section.span.clone();
    let asn =
        section.require("as", "65000").and_then(|item| reader.integer(&item, 1..=u64::from(u32::MAX), ""));
    let listen = read_listen(reader, &mut section);
    let router_id = read_router_id(reader, &mut section, ports, &listen);
    let kinds = SchedulingKind::ALL.map(|kind| (kind.name(), kind));
    let scheduling = section.take("scheduling").and_then(|item| reader.word(&item, &kinds));
    let threads =
        section.take("threads").and_then(|item| reader.integer(&item, 1..=THREADS_MAX as u64, "threads"));
    let installs = [Install::None, Install::Fib, Install::Kernel].map(|install| (install.name(), install));
    let install = section.take("install").and_then(|item| reader.word(&item, &installs));
    // Without ports there is no data plane to install into.
    let install = install.unwrap_or(if ports.configs.is_empty() { Install::None } else { Install::Fib });
    let forwards_itself =
        install == Install::Fib || ports.configs.iter().any(|port| port.interface.is_some());
    let selection_deferral_s = section
        .take("selection_deferral_s")
        .and_then(|item| reader.integer(&item, 1..=TIME_MAX_S, "seconds"))
        .map_or(SELECTION_DEFERRAL_S, |seconds| seconds as u32);
    let stops = [OnStop::RemoveRoutes, OnStop::KeepRoutes].map(|each| (each.name(), each));
    let on_stop = section.take("on_stop").and_then(|item| reader.word(&item, &stops)).unwrap_or_default();
    let next_hop_check = read_next_hop_check(reader, &mut section, install);
    let confederation = read_confederation(reader, &mut section);
    let cluster_id = section.take("cluster_id").and_then(|item| reader.parse(&item, values::address_v4));
    let decision = read_decision(reader, &mut section);
    let damping = section.take("damping").and_then(|item| read_damping(reader, &item));
    let networks = read_networks(reader, &mut section);
    let kernel = read_kernel(reader, &mut section);
    let mrt = read_mrt(reader, &mut section, folder);
    let seed_mrt = read_seed(reader, &mut section, folder);
    let outer = Settings::read(reader, &mut section);
    let groups = read_groups(reader, &mut section, &outer);
    let neighbors = read_neighbors(reader, &mut section, &outer, &groups, ports);
    section.finish(reader);

    let mut policies = policy::read(reader, root, folder, &pattern_groups(&groups, &neighbors));
    // With a mistake in them, others stand in so that the rest is checked as well.
    let common = Common {
        local_as: asn.map_or(0, |asn| asn as u32),
        router_id: router_id.unwrap_or(Ipv4Addr::UNSPECIFIED),
        confederation,
        cluster_id: cluster_id.map(|at| at.value),
        forwards_itself,
    };
    let all = groups.iter().map(|raw| &raw.settings).chain(neighbors.iter().map(|raw| &raw.settings));
    check_preserved(reader, all.chain([&outer]), forwards_itself);
    let configs: Vec<Arc<NeighborConfig>> =
        neighbors.iter().map(|raw| Arc::new(finish_neighbor(reader, raw, &common))).collect();
    let groups_done = groups.iter().map(|raw| finish_group(reader, raw, &common)).collect();
    let chains = groups.iter().map(|raw| &raw.settings).chain(neighbors.iter().map(|raw| &raw.settings));
    let compiled = compile(reader, &policies, chains.chain([&outer]), &title);
    let tests_passed = policy_test::run(reader, &mut policies, &configs);
    Some(BgpConfig {
        local_as: common.local_as,
        router_id: common.router_id,
        listen,
        scheduling: scheduling.unwrap_or(SchedulingKind::Sharded),
        threads: threads.map(|threads| threads as usize),
        install,
        selection_deferral_s,
        on_stop,
        next_hop_check,
        kernel,
        confederation: common.confederation,
        decision,
        damping,
        networks,
        neighbors: configs,
        groups: groups_done,
        mrt,
        seed_mrt,
        library: policies.library,
        tests_passed,
        policies: compiled,
        accept: Arc::new(Policy::accept_all()),
        reject: Arc::new(Policy::reject_all()),
    })
}

/// A router whose own forwarding ends with its process cannot promise that forwarding goes on.
fn check_preserved<'s>(
    reader: &mut Reader,
    settings: impl Iterator<Item = &'s Settings>,
    forwards_itself: bool,
) {
    let mut reported = std::collections::HashSet::new();
    let promised = settings.filter_map(Settings::promises_forwarding).filter(|_| forwards_itself);
    for span in promised {
        // A group's setting comes by with each of its neighbors.
        if reported.insert(span.clone()) {
            let message =
                "`forwarding_preserved` on a router that forwards packets itself: that ends with it";
            let expected =
                "`install = \"kernel\"` or `\"none\"` in [bgp] and no port with an interface, or no such key";
            reader.error(ErrorKind::Conflict, &span, message, expected);
        }
    }
}

/// A router that installs its routes nowhere passes them on to others: whether *they* reach the next hops is nothing
/// it could know.
fn read_next_hop_check(reader: &mut Reader, section: &mut Section<'_>, install: Install) -> NextHopCheck {
    let kinds = [("auto", None), ("off", Some(NextHopCheck::Off)), ("kernel", Some(NextHopCheck::Kernel))];
    let chosen = section.take("next_hop_check").and_then(|item| reader.word(&item, &kinds)).flatten();
    chosen.unwrap_or(if install == Install::Kernel { NextHopCheck::Kernel } else { NextHopCheck::Off })
}

/// A path; relative ones begin at the configuration.
pub(crate) fn path(reader: &mut Reader, item: &Item<'_>, folder: &Path) -> Option<PathBuf> {
    let text = reader.string(item, "a path")?;
    if text.is_empty() || text.contains('\0') {
        reader.error(ErrorKind::BadValue, &item.span, format!("bad path for `{}`", item.key), "a path");
        return None;
    }
    Some(folder.join(text))
}

fn read_listen(reader: &mut Reader, section: &mut Section<'_>) -> Vec<SocketAddr> {
    let Some(item) = section.take("listen") else {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), std::net::Ipv6Addr::UNSPECIFIED.into()];
        return any.map(|address| SocketAddr::new(address, BGP_PORT)).into();
    };
    let parse = |text: &str| {
        let with_port = text.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
        let address = with_port.or_else(|| Some(SocketAddr::new(text.parse().ok()?, BGP_PORT)));
        address.ok_or("an address, with a port where it is not 179: \"192.0.2.1\" or \"[2001:db8::1]:1790\"")
    };
    let mut listen: Vec<SocketAddr> = Vec::new();
    for entry in reader.list(&item) {
        let Some(at) = reader.parse(&entry, parse) else { continue };
        if listen.contains(&at.value) {
            reader.error(
                ErrorKind::Duplicate,
                &at.span,
                format!("{} is given twice", at.value),
                "each address once",
            );
        } else {
            listen.push(at.value);
        }
    }
    listen
}

fn read_router_id(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    listen: &[SocketAddr],
) -> Option<Ipv4Addr> {
    let good = |address: &Ipv4Addr| !address.is_unspecified();
    if let Some(item) = section.take("router_id") {
        let at = reader.parse(&item, values::address_v4)?;
        if !good(&at.value) {
            let message = "0.0.0.0 is nobody's BGP identifier";
            reader.error(
                ErrorKind::BadValue,
                &at.span,
                message,
                "another one, such as \"198.18.0.1\" (RFC 6286)",
            );
            return None;
        }
        return Some(at.value);
    }
    let v4 = |address: IpAddr| match address {
        IpAddr::V4(address) => Some(address).filter(good),
        IpAddr::V6(_) => None,
    };
    let of_ports = ports.addresses.iter().filter_map(|(_, net)| v4(net.value.addr()));
    let derived = of_ports.chain(listen.iter().filter_map(|address| v4(address.ip()))).next();
    if derived.is_none() {
        let span = section.span.clone();
        let message = "[bgp] lacks `router_id`, and there is no IPv4 address to take it from";
        reader.error(ErrorKind::MissingKey, &span, message, "`router_id = \"198.18.0.1\"`");
    }
    derived
}

fn read_confederation(reader: &mut Reader, section: &mut Section<'_>) -> Option<Arc<Confederation>> {
    let item = section.take("confederation")?;
    let mut section = reader.section(&item, "`confederation`".to_owned())?;
    let numbers = 1..=u64::from(u32::MAX);
    let id = section.require("id", "64500").and_then(|item| reader.integer(&item, numbers.clone(), ""));
    let members = section.require("members", "[65001, 65002]").map(|item| {
        let entries = reader.filled_list(&item);
        entries
            .iter()
            .filter_map(|entry| reader.integer(entry, numbers.clone(), ""))
            .map(|n| n as u32)
            .collect()
    });
    section.finish(reader);
    Some(Arc::new(Confederation { id: id? as u32, members: members? }))
}

fn read_decision(reader: &mut Reader, section: &mut Section<'_>) -> DecisionConfig {
    let mut decision = DecisionConfig::default();
    let rows: [(&'static str, &mut bool); 3] = [
        ("always_compare_med", &mut decision.always_compare_med),
        ("med_missing_as_worst", &mut decision.med_missing_as_worst),
        ("compare_med_in_confederation", &mut decision.compare_med_in_confederation),
    ];
    for (key, value) in rows {
        if let Some(item) = section.take(key) {
            *value = reader.boolean(&item).unwrap_or(*value);
        }
    }
    decision
}

/// `true`, `false` or a table.
fn read_damping(reader: &mut Reader, item: &Item<'_>) -> Option<DampingConfig> {
    let mut damping = DampingConfig::default();
    if let DeValue::Boolean(on) = item.value {
        return on.then_some(damping);
    }
    let mut section = reader.section(item, "`damping`".to_owned())?;
    let rows: [(&'static str, &mut f32); 5] = [
        ("withdrawal_penalty", &mut damping.withdrawal_penalty),
        ("attribute_change_penalty", &mut damping.attribute_change_penalty),
        ("suppress_threshold", &mut damping.suppress_threshold),
        ("reuse_threshold", &mut damping.reuse_threshold),
        ("penalty_max", &mut damping.penalty_max),
    ];
    for (key, value) in rows {
        if let Some(item) = section.take(key) {
            *value = reader.integer(&item, 1..=1_000_000, "").map_or(*value, |n| n as f32);
        }
    }
    for (key, value) in
        [("half_life_s", &mut damping.half_life_s), ("max_suppress_s", &mut damping.max_suppress_s)]
    {
        if let Some(item) = section.take(key) {
            *value = reader.integer(&item, 1..=TIME_MAX_S, "seconds").map_or(*value, |n| n as u32);
        }
    }
    if damping.reuse_threshold >= damping.suppress_threshold {
        let message = "`reuse_threshold` is not below `suppress_threshold`";
        reader.error(
            ErrorKind::Conflict,
            &item.span,
            message,
            "a route that is used again below the threshold",
        );
    }
    if damping.penalty_max <= damping.suppress_threshold {
        let message = "`penalty_max` is not above `suppress_threshold`";
        reader.error(ErrorKind::Conflict, &item.span, message, "a penalty that can cross the threshold");
    }
    section.finish(reader);
    Some(damping)
}

pub(crate) fn prefix(text: &str) -> Result<IpPrefix, &'static str> {
    text.parse().map_err(|_| "a prefix without bits set beyond its length, such as \"192.0.2.0/24\"")
}

fn read_networks(reader: &mut Reader, section: &mut Section<'_>) -> Vec<IpPrefix> {
    let Some(item) = section.take("networks") else { return Vec::new() };
    let mut seen = std::collections::HashSet::new();
    let mut networks = Vec::new();
    for entry in reader.list(&item) {
        let Some(at) = reader.parse(&entry, prefix) else { continue };
        if is_martian(at.value) {
            let message = format!("network {} is no prefix that may be announced", at.value);
            let expected = "a prefix of hosts: not loopback, multicast, link-local, reserved or 0.0.0.0/8";
            reader.error(ErrorKind::BadValue, &at.span, message, expected);
        } else if seen.insert(at.value) {
            networks.push(at.value);
        } else {
            let message = format!("network {} is given twice", at.value);
            reader.error(ErrorKind::Duplicate, &at.span, message, "each prefix once");
        }
    }
    networks
}

fn read_kernel(reader: &mut Reader, section: &mut Section<'_>) -> KernelConfig {
    let mut kernel = KernelConfig::default();
    let Some(item) = section.take("kernel") else { return kernel };
    let Some(mut section) = reader.section(&item, "[bgp.kernel]".to_owned()) else { return kernel };
    let most = u64::from(u32::MAX);
    for (key, value, range, unit) in [
        ("table", &mut kernel.table, 1..=most, ""),
        ("metric", &mut kernel.metric, 1..=most, ""),
        ("repair_s", &mut kernel.repair_s, 1..=TIME_MAX_S, "seconds"),
    ] {
        if let Some(item) = section.take(key) {
            *value = reader.integer(&item, range, unit).map_or(*value, |n| n as u32);
        }
    }
    section.finish(reader);
    kernel
}

fn read_mrt(reader: &mut Reader, section: &mut Section<'_>, folder: &Path) -> MrtConfig {
    let mut mrt = MrtConfig { dump_interval_s: 7200, rotate_s: 900, compress: true, ..MrtConfig::default() };
    let Some(item) = section.take("mrt") else { return mrt };
    let Some(mut section) = reader.section(&item, "[bgp.mrt]".to_owned()) else { return mrt };
    mrt.dump = section.take("dump").and_then(|item| path(reader, &item, folder));
    mrt.updates = section.take("updates").and_then(|item| path(reader, &item, folder));
    for (key, value) in [("interval_s", &mut mrt.dump_interval_s), ("rotate_s", &mut mrt.rotate_s)] {
        if let Some(item) = section.take(key) {
            *value = reader.integer(&item, 1..=TIME_MAX_S, "seconds").map_or(*value, |n| n as u32);
        }
    }
    if let Some(item) = section.take("compress") {
        mrt.compress = reader.boolean(&item).unwrap_or(mrt.compress);
    }
    section.finish(reader);
    mrt
}

fn read_seed(reader: &mut Reader, section: &mut Section<'_>, folder: &Path) -> Option<PathBuf> {
    let item = section.take("seed")?;
    let mut section = reader.section(&item, "[bgp.seed]".to_owned())?;
    let file = section.require("mrt", "\"rib.mrt.gz\"");
    section.finish(reader);
    let file = file?;
    let path = path(reader, &file, folder)?;
    if !path.is_file() {
        let message = format!("cannot read {}: no such file", path.display());
        let finding = reader.error(ErrorKind::File, &file.span, message, "an MRT file");
        finding.help = Some("paths are relative to the configuration".to_owned());
    }
    Some(path)
}

fn read_groups(reader: &mut Reader, section: &mut Section<'_>, outer: &Settings) -> Vec<RawGroup> {
    let mut groups: Vec<RawGroup> = Vec::new();
    let Some(item) = section.take("group") else { return groups };
    for entry in reader.list(&item) {
        let Some(mut section) = reader.section(&entry, "[[bgp.group]]".to_owned()) else { continue };
        let name = section.require("name", "\"customers\"");
        let asn = section.take("as").and_then(|item| remote_as(reader, &item));
        let dynamic = section.take("dynamic");
        let ranges: Vec<At<IpPrefix>> = match &dynamic {
            Some(item) => {
                let entries = reader.filled_list(item);
                entries.iter().filter_map(|entry| reader.parse(entry, prefix)).collect()
            }
            None => Vec::new(),
        };
        let most = NEIGHBORS_MAX as u64;
        let max = section.take("dynamic_max").and_then(|item| reader.integer(&item, 1..=most, "neighbors"));
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
        check_ranges(reader, &groups, &ranges);
        groups.push(RawGroup {
            name: At { value: name.into(), span: item.span.clone() },
            settings: settings.or(outer),
            ranges,
            max: max.map_or(DYNAMIC_DEFAULT, |max| max as usize),
        });
    }
    groups
}

/// Which group a caller belongs to must not be a matter of order.
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

fn read_neighbors(
    reader: &mut Reader,
    section: &mut Section<'_>,
    outer: &Settings,
    groups: &[RawGroup],
    ports: &Ports,
) -> Vec<RawBgpNeighbor> {
    let mut neighbors: Vec<RawBgpNeighbor> = Vec::new();
    let mut addresses: HashMap<IpAddr, Range<usize>> = HashMap::new();
    let mut names: HashMap<Arc<str>, Range<usize>> = HashMap::new();
    let Some(item) = section.take("neighbor") else { return neighbors };
    let entries = reader.list(&item);
    if entries.len() > NEIGHBORS_MAX {
        let expected = format!("at most {NEIGHBORS_MAX}");
        reader.error(ErrorKind::TooMany, &item.span, "too many neighbors", expected);
        return neighbors;
    }
    for entry in entries {
        let Some(mut section) = reader.section(&entry, "[[bgp.neighbor]]".to_owned()) else { continue };
        let address = section
            .require("address", "\"198.18.1.1\"")
            .and_then(|item| reader.parse(&item, unicast_address));
        let asn = section.take("as").and_then(|item| remote_as(reader, &item));
        let name = section.take("name").and_then(|item| {
            let name = reader.string(&item, "a name")?;
            check_name(reader, name, &item.span)
                .then(|| At::<Arc<str>> { value: name.into(), span: item.span.clone() })
        });
        let group = section.take("group").and_then(|item| find_group(reader, &item, groups));
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
        if let Some(port) = ports.owner(address.value) {
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

/// BGP's connections are made by the system, which reaches what is behind a port by the port's mirror alone.
fn check_way(reader: &mut Reader, ports: &Ports, address: &At<IpAddr>) {
    if let Some(why) = ports.nobodys(address.value) {
        let message = format!("neighbor {why}");
        reader.error(ErrorKind::BadValue, &address.span, message, "the address of another router");
        return;
    }
    let port = ports.connected(address.value).and_then(|port| ports.configs.get(usize::from(port)));
    let Some((port, interface)) = port.and_then(|port| Some((port, port.interface.as_ref()?))) else {
        return;
    };
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

/// Loopback addresses are for laboratories.
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

fn pattern_groups(groups: &[RawGroup], neighbors: &[RawBgpNeighbor]) -> Groups {
    let members = |name: &str| {
        let of_group = neighbors.iter().filter(|n| n.group.as_deref() == Some(name));
        of_group.map(|n| n.address.value).collect()
    };
    Groups {
        groups: groups
            .iter()
            .map(|group| Group {
                name: group.name.value.clone(),
                addresses: members(&group.name.value),
                ranges: group.ranges.iter().map(|at| at.value).collect(),
            })
            .collect(),
        addresses: neighbors.iter().map(|neighbor| neighbor.address.value).collect(),
        names: neighbors.iter().filter_map(|neighbor| Some(neighbor.name.as_ref()?.value.clone())).collect(),
    }
}

fn base(address: IpAddr, settings: &Settings, common: &Common) -> NeighborConfig {
    let mut config = NeighborConfig::new(address, 0, common.local_as, common.router_id);
    if let Some(at) = &settings.remote_as {
        config.remote_as = at.value.clone();
    }
    config.confederation = common.confederation.clone();
    config.export.cluster_id = common.cluster_id;
    config.capabilities =
        CapabilityConfig { families: [address.is_ipv4(), address.is_ipv6()], ..config.capabilities };
    settings.apply(&mut config);
    if let Some(restart) = &mut config.capabilities.graceful_restart {
        restart.forwarding_preserved &= !common.forwards_itself;
    }
    config
}

fn is_internal(config: &NeighborConfig) -> Option<bool> {
    match (&config.remote_as, config.local_as) {
        (RemoteAs::One(_), 0) => None,
        (RemoteAs::One(asn), own) => Some(*asn == own),
        _ => None,
    }
}

fn finish_neighbor(reader: &mut Reader, raw: &RawBgpNeighbor, common: &Common) -> NeighborConfig {
    let mut config = base(raw.address.value, &raw.settings, common);
    config.group = raw.group.clone();
    if let Some(name) = &raw.name {
        config.name = name.value.clone();
    }
    raw.settings.check(reader, &config, is_internal(&config));
    let external = match config.remote_as {
        RemoteAs::One(asn) => config.kind(asn) == thalweg_bgp::peer::PeerKind::External,
        _ => true,
    };
    let missing = match (&config.import.rules, &config.export.rules) {
        (None, None) => Some("`import` nor `export`: nothing will come from it or go to it"),
        (None, Some(_)) => Some("`import`: nothing that it sends will be accepted"),
        (Some(_), None) => Some("`export`: nothing will be sent to it"),
        (Some(_), Some(_)) => None,
    };
    if let (true, Some(missing), true) = (external, missing, raw.settings.remote_as.is_some()) {
        let neither = if missing.contains("nor") { "neither" } else { "no" };
        let message = format!("external neighbor {} has {neither} {missing}", config.name);
        let expected = "rule sets, or \"accept\" or \"reject\" to say so";
        let finding = reader.warning(ErrorKind::MissingKey, &raw.address.span, message, expected);
        finding.help = Some("RFC 8212 wants this default".to_owned());
    }
    config
}

fn finish_group(reader: &mut Reader, raw: &RawGroup, common: &Common) -> GroupConfig {
    let dynamic = raw.ranges.first().map(|first| {
        let mut template = base(first.value.address(), &raw.settings, common);
        template.group = Some(raw.name.value.clone());
        if raw.settings.families().is_none() {
            let has = |v4: bool| raw.ranges.iter().any(|at| matches!(at.value, IpPrefix::V4(_)) == v4);
            template.capabilities.families = [has(true), has(false)];
        }
        template.passive = true;
        raw.settings.check(reader, &template, is_internal(&template));
        let prefixes = raw.ranges.iter().map(|at| at.value).collect();
        Arc::new(DynamicRange { prefixes, max: raw.max, template })
    });
    GroupConfig { name: raw.name.value.clone(), dynamic }
}

/// Compiles every combination of rule sets that is used; names that nothing defines are reported.
fn compile<'s>(
    reader: &mut Reader,
    policies: &Policies<'_>,
    settings: impl Iterator<Item = &'s Settings>,
    title: &Range<usize>,
) -> BTreeMap<Vec<Arc<str>>, Arc<Policy>> {
    let mut compiled: BTreeMap<Vec<Arc<str>>, Arc<Policy>> = BTreeMap::new();
    let mut reported = std::collections::HashSet::new();
    let sets = &policies.library.sets;
    for chain in settings.flat_map(|settings| settings.import.iter().chain(&settings.export)) {
        for at in chain {
            let known = sets.contains_key(&at.value) || [ACCEPT, REJECT].contains(&&*at.value);
            // A group's setting comes by with each of its neighbors.
            if !known && reported.insert(at.span.clone()) {
                let value = DeValue::Boolean(false);
                let item = Item { key: "rules", value: &value, span: at.span.clone() };
                let names = sets.keys().map(|name| &**name).chain([ACCEPT, REJECT]);
                unknown(reader, &item, &at.value, "rule set", "[policy.rules]", names);
            }
        }
        compile_chain(reader, policies, chain, title, &mut compiled);
    }
    compiled
}

fn compile_chain(
    reader: &mut Reader,
    policies: &Policies<'_>,
    chain: &Chain,
    title: &Range<usize>,
    compiled: &mut BTreeMap<Vec<Arc<str>>, Arc<Policy>>,
) {
    let names: Vec<Arc<str>> = chain.iter().map(|at| at.value.clone()).collect();
    if compiled.contains_key(&names) {
        return;
    }
    let policy = match Policy::compile(&policies.library, &names) {
        Ok(policy) => policy,
        // Reported where the name or the call stands.
        Err(PolicyError::Unknown { .. } | PolicyError::Cycle { .. } | PolicyError::TooDeep { .. }) => {
            Policy::reject_all()
        }
        Err(error @ PolicyError::TooMany { .. }) => {
            let span = chain.first().map_or(title, |at| &at.span);
            reader.error(ErrorKind::TooMany, span, error.to_string(), "fewer rules");
            Policy::reject_all()
        }
    };
    compiled.insert(names, Arc::new(policy));
}

//! `[bgp]`. Groups and neighbors are in `bgp_neighbors.rs`, the keys that all share in `bgp_settings.rs`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::peer::PeerKind;
use thalweg_bgp::policy::{ACCEPT, Policy, PolicyError, REJECT};
use thalweg_bgp::rib::{DampingConfig, DecisionConfig};
use thalweg_bgp::session::config::{BGP_PORT, CapabilityConfig, Confederation, DynamicRange, NeighborConfig};
use thalweg_bgp::session::import::is_martian;
use thalweg_exec::THREADS_MAX;
use thalweg_exec::control_plane::SchedulingKind;
use toml::de::DeValue;

use crate::bgp_neighbors::{GROUP, NEIGHBOR, RawBgpNeighbor, RawGroup, read_groups, read_neighbors};
use crate::bgp_settings::{Chain, SHARED, Settings};
use crate::bgp_types::{
    BgpConfig, GroupConfig, Install, KernelConfig, MrtConfig, NextHopCheck, OnStop, PolicyTable,
};
use crate::diagnostic::ErrorKind;
use crate::key::{Differs, Key, Sub, U32, table};
use crate::policy::Policies;
use crate::policy_rules::{Group, Groups};
use crate::policy_sets::unknown;
use crate::ports::Ports;
use crate::reader::{Item, Reader};
use crate::rpki::{RPKI, read_rpki};
use crate::section::Section;
use crate::{policy, policy_test, values};

pub(crate) static BGP: Key<Sub> = Key::section("bgp", &TABLE).restart(Differs::Process).help("BGP");
table! {
    static TABLE: "bgp", "[bgp]", shared SHARED;

    static AS: Key<u32> = Key::number("as", 1..=U32)
        .required("65000")
        .restart(Differs::Bgp(|old, new| old.local_as != new.local_as))
        .help("our AS; inside a confederation our member AS");
    static ROUTER_ID: Key<Ipv4Addr> = Key::text("router_id", "an IPv4 address", values::address_v4)
        .otherwise("the first IPv4 address of a port, or of `listen`")
        .restart(Differs::Bgp(|old, new| old.router_id != new.router_id))
        .help("BGP identifier, written as an IPv4 address");
    static LISTEN: Key<Vec<SocketAddr>> = Key::by("listen", "an address or a list", listen)
        .otherwise("all addresses")
        .restart(Differs::Bgp(|old, new| old.listen != new.listen))
        .help("addresses to listen on, with a port if it is not 179; `[]`: accept no connections");
    static SCHEDULING: Key<SchedulingKind> = Key::word("scheduling", &SchedulingKind::NAMES)
        .default(SchedulingKind::Sharded)
        .restart(Differs::Bgp(|old, new| old.scheduling != new.scheduling))
        .help("scheduling of BGP over threads: see [bgp.md](bgp.md)");
    static THREADS: Key<usize> = Key::number("threads", 1..=THREADS_MAX as u64)
        .unit("threads")
        .otherwise("one for each core")
        .restart(Differs::Bgp(|old, new| old.threads != new.threads))
        .help("how many");
    static INSTALL: Key<Install> = Key::word("install", &Install::NAMES)
        .otherwise("`\"fib\"`; `\"none\"` without ports")
        .restart(Differs::Bgp(|old, new| old.install != new.install))
        .help("where best routes are installed");
    static SAVE_FIB: Key<bool> = Key::flag("save_fib")
        .default(false)
        .restart(Differs::Bgp(|old, new| old.save_fib != new.save_fib))
        .help(
            "save the forwarding table beside the control socket, so that a router that is started again forwards by it at \
             once; needs `install = \"fib\"` and `graceful_restart`: see [bgp.md](bgp.md#a-saved-forwarding-table)",
        );
    /// Enough for a full table from a slow neighbor, and less than the time for which neighbors keep stale routes
    /// (six minutes).
    static SELECTION_DEFERRAL_S: Key<u32> = Key::number("selection_deferral_s", 1..=TIME_MAX_S)
        .unit("seconds")
        .default(240)
        .help("after a graceful restart of this router: time to wait for End-of-RIB before routes are selected");
    static ON_STOP: Key<OnStop> = Key::word("on_stop", &OnStop::NAMES).default(OnStop::RemoveRoutes).help(
        "what SIGTERM and `thalweg stop` do with routes: `\"remove-routes\"`, or `\"keep-routes\"`, which begins a graceful \
         restart",
    );
    static NEXT_HOP_CHECK: Key<Option<NextHopCheck>> = Key::word(
        "next_hop_check",
        &[("auto", None), ("off", Some(NextHopCheck::Off)), ("kernel", Some(NextHopCheck::Kernel))],
    )
    .default(None)
    .restart(Differs::Bgp(|old, new| old.next_hop_check != new.next_hop_check))
    .help(
        "whose routes say which next hops can be reached and which is nearer: `\"kernel\"`, `\"off\"` (all can, none is) or \
         `\"auto\"`: `\"kernel\"` with `install = \"kernel\"`, else `\"off\"`; see [below](#which-next-hops-can-be-reached)",
    );
    static NETWORKS: Key<Vec<IpPrefix>> =
        Key::by("networks", "a prefix or a list", networks).help("prefixes to originate");
    static CONFEDERATION: Key<Sub> = Key::section("confederation", &CONFEDERATION_TABLE)
        .restart(Differs::Bgp(|old, new| old.confederation != new.confederation))
        .help("`{ id = 64500, members = [65001, 65002] }` (RFC 5065)");
    static CLUSTER_ID: Key<Ipv4Addr> = Key::text("cluster_id", "an IPv4 address", values::address_v4)
        .otherwise("`router_id`")
        .help("cluster ID as a route reflector (RFC 4456)");
    static ALWAYS_COMPARE_MED: Key<bool> = Key::flag("always_compare_med")
        .default(false)
        .restart(Differs::Bgp(|old, new| old.decision.always_compare_med != new.decision.always_compare_med))
        .help("compare MED between different neighboring ASes too");
    static MED_MISSING_AS_WORST: Key<bool> = Key::flag("med_missing_as_worst")
        .default(false)
        .restart(Differs::Bgp(|old, new| old.decision.med_missing_as_worst != new.decision.med_missing_as_worst))
        .help("treat a path without MED as worst");
    static COMPARE_MED_IN_CONFEDERATION: Key<bool> = Key::flag("compare_med_in_confederation")
        .default(false)
        .restart(Differs::Bgp(|old, new| {
            old.decision.compare_med_in_confederation != new.decision.compare_med_in_confederation
        }))
        .help("compare MED between confederation members too");
    static DAMPING: Key<Option<DampingConfig>> = Key::by("damping", "true, false, or a table", damping)
        .default_toml("false")
        .keys(&DAMPING_TABLE)
        .restart(Differs::Bgp(|old, new| old.damping != new.damping))
        .help("route flap damping (RFC 2439 with the parameters of RFC 7196)");
    static KERNEL: Key<Sub> =
        Key::section("kernel", &KERNEL_TABLE).help("how routes are installed in the kernel");
    static MRT: Key<Sub> = Key::section("mrt", &MRT_TABLE)
        .help("MRT files to write: [mrt.md](formats.md#mrt-routing-tables-and-bgp-messages)");
    static SEED: Key<Sub> = Key::section("seed", &SEED_TABLE).help("a table to load into the RIB at the start");
    row RPKI;
    row GROUP;
    row NEIGHBOR;
}

table! {
    static CONFEDERATION_TABLE: "bgp.confederation", "`confederation`";

    static ID: Key<u32> =
        Key::number("id", 1..=U32).required("64500").help("confederation identifier, the AS that others see");
    static MEMBERS: Key<Vec<u32>> =
        Key::by("members", "a list of AS numbers", |reader, item| reader.all(item, as_number))
            .required("[65001, 65002]")
            .help("the member ASes");
}

table! {
    static DAMPING_TABLE: "bgp.damping", "`damping`";

    static WITHDRAWAL_PENALTY: Key<f32> = Key::number("withdrawal_penalty", PENALTY)
        .default(DampingConfig::DEFAULT.withdrawal_penalty)
        .help("penalty of a withdrawal");
    static ATTRIBUTE_CHANGE_PENALTY: Key<f32> = Key::number("attribute_change_penalty", PENALTY)
        .default(DampingConfig::DEFAULT.attribute_change_penalty)
        .help("penalty of an attribute change");
    static SUPPRESS_THRESHOLD: Key<f32> = Key::number("suppress_threshold", PENALTY)
        .default(DampingConfig::DEFAULT.suppress_threshold)
        .help("suppress threshold: a route above it is not used");
    static REUSE_THRESHOLD: Key<f32> = Key::number("reuse_threshold", PENALTY)
        .default(DampingConfig::DEFAULT.reuse_threshold)
        .help("reuse threshold: a route below it is used again");
    static PENALTY_MAX: Key<f32> =
        Key::number("penalty_max", PENALTY).default(DampingConfig::DEFAULT.penalty_max).help("maximum penalty");
    static HALF_LIFE_S: Key<u32> = Key::number("half_life_s", 1..=TIME_MAX_S)
        .unit("seconds")
        .default(DampingConfig::DEFAULT.half_life_s)
        .help("half-life of a penalty");
    static MAX_SUPPRESS_S: Key<u32> = Key::number("max_suppress_s", 1..=TIME_MAX_S)
        .unit("seconds")
        .default(DampingConfig::DEFAULT.max_suppress_s)
        .help("maximum time that a route is suppressed");
}

table! {
    static KERNEL_TABLE: "bgp.kernel", "[bgp.kernel]";

    static KERNEL_TABLE_NUMBER: Key<u32> = Key::number("table", 1..=U32)
        .default(254)
        .restart(Differs::Bgp(|old, new| old.kernel.table != new.kernel.table))
        .help("kernel table; 254 is the main table");
    // After the routes of administrators and DHCP clients.
    static METRIC: Key<u32> = Key::number("metric", 1..=U32)
        .default(116)
        .restart(Differs::Bgp(|old, new| old.kernel.metric != new.kernel.metric))
        .help("metric of our routes");
    static REPAIR_S: Key<u32> = Key::number("repair_s", 1..=TIME_MAX_S)
        .unit("seconds")
        .default(60)
        .restart(Differs::Bgp(|old, new| old.kernel.repair_s != new.kernel.repair_s))
        .help("time between scans for drift: routes that others removed or changed");
}

table! {
    static MRT_TABLE: "bgp.mrt", "[bgp.mrt]";

    static DUMP: Key<PathBuf> = Key::by("dump", "a path", Reader::made_path)
        .restart(Differs::Bgp(|old, new| old.mrt.dump != new.mrt.dump))
        .help("path of RIB dumps, with `%Y %m %d %H %M %S %s` for the time");
    static INTERVAL_S: Key<u32> = Key::number("interval_s", 1..=TIME_MAX_S)
        .unit("seconds")
        .default(7200)
        .restart(Differs::Bgp(|old, new| old.mrt.dump_interval_s != new.mrt.dump_interval_s))
        .help("time between dumps, aligned to multiples of it since the epoch");
    static UPDATES: Key<PathBuf> = Key::by("updates", "a path", Reader::made_path)
        .restart(Differs::Bgp(|old, new| old.mrt.updates != new.mrt.updates))
        .help("path of the stream of received UPDATEs and session state changes");
    static ROTATE_S: Key<u32> = Key::number("rotate_s", 1..=TIME_MAX_S)
        .unit("seconds")
        .default(900)
        .restart(Differs::Bgp(|old, new| old.mrt.rotate_s != new.mrt.rotate_s))
        .help("time after which a new file of UPDATEs begins");
    static COMPRESS: Key<bool> = Key::flag("compress")
        .default(true)
        .restart(Differs::Bgp(|old, new| old.mrt.compress != new.mrt.compress))
        .help("compress files with gzip");
}

table! {
    static SEED_TABLE: "bgp.seed", "[bgp.seed]";

    static SEED_MRT: Key<PathBuf> = Key::by("mrt", "a path", Reader::path)
        .required("\"rib.mrt.gz\"")
        .restart(Differs::Bgp(|old, new| old.seed_mrt != new.seed_mrt))
        .help("an MRT file, plain or compressed");
}

const TIME_MAX_S: u64 = 7 * 86_400;
const PENALTY: std::ops::RangeInclusive<u64> = 1..=1_000_000;

/// What all neighbors have in common.
struct Common {
    local_as: u32,
    router_id: Ipv4Addr,
    confederation: Option<Arc<Confederation>>,
    cluster_id: Option<Ipv4Addr>,
    /// This process forwards packets, so forwarding ends with it.
    forwards_itself: bool,
}

/// Reads the BGP configuration and the policies; `None` without `[bgp]`.
pub(crate) fn read(
    reader: &mut Reader,
    root: &mut Section<'_>,
    ports: &Ports,
    folder: &Path,
) -> Option<BgpConfig> {
    let Some(mut section) = root.section(reader, &BGP) else {
        let policies = policy::read(reader, root, folder, &Groups::default());
        policy_test::run(reader, &policies.library, &policies.tests, &[]);
        return None;
    };
    let title = section.span.clone();
    let asn = section.get(reader, &AS);
    let listen = section.get(reader, &LISTEN).unwrap_or_else(|| {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        any.map(|address| SocketAddr::new(address, BGP_PORT)).into()
    });
    let router_id = read_router_id(reader, &mut section, ports, &listen);
    let scheduling = section.get(reader, &SCHEDULING);
    let threads = section.get(reader, &THREADS);
    // Without ports there is no data plane to install routes into.
    let has_ports = !ports.configs.is_empty();
    let install =
        section.get(reader, &INSTALL).unwrap_or(if has_ports { Install::Fib } else { Install::None });
    let saves_at = read_save_fib(reader, &mut section, install);
    let save_fib = saves_at.is_some();
    let forwards_itself =
        (install == Install::Fib || ports.configs.iter().any(|port| port.interface.is_some())) && !save_fib;
    let selection_deferral_s = section.get(reader, &SELECTION_DEFERRAL_S).unwrap_or_default();
    let on_stop = section.get(reader, &ON_STOP).unwrap_or_default();
    let next_hop_check = read_next_hop_check(reader, &mut section, install);
    let confederation = read_confederation(reader, &mut section);
    let cluster_id = section.get(reader, &CLUSTER_ID);
    let decision = read_decision(reader, &mut section);
    let damping = section.get(reader, &DAMPING).flatten();
    let networks = section.get(reader, &NETWORKS).unwrap_or_default();
    let kernel = read_kernel(reader, &mut section);
    let mrt = read_mrt(reader, &mut section);
    let seed_mrt = read_seed(reader, &mut section);
    let rpki = read_rpki(reader, &mut section);
    let outer = Settings::read(reader, &mut section);
    let groups = read_groups(reader, &mut section, &outer);
    let neighbors = read_neighbors(reader, &mut section, &outer, &groups, ports);
    section.finish(reader);

    let policies = policy::read(reader, root, folder, &pattern_groups(&groups, &neighbors));
    // If these have errors, defaults replace them so that the rest is checked as well.
    let common = Common {
        local_as: asn.unwrap_or_default(),
        router_id: router_id.unwrap_or(Ipv4Addr::UNSPECIFIED),
        confederation,
        cluster_id,
        forwards_itself,
    };
    let all = groups.iter().map(|raw| &raw.settings).chain(neighbors.iter().map(|raw| &raw.settings));
    check_preserved(reader, all.chain([&outer]), forwards_itself);
    let configs: Vec<Arc<NeighborConfig>> =
        neighbors.iter().map(|raw| Arc::new(finish_neighbor(reader, raw, &common))).collect();
    let groups_done: Vec<_> = groups.iter().map(|raw| finish_group(reader, raw, &common)).collect();
    let dynamic = groups_done.iter().filter_map(|group| group.dynamic.as_ref()).map(|range| &range.template);
    let mut all = configs.iter().map(|config| &**config).chain(dynamic);
    if let Some(span) = saves_at.filter(|_| all.all(|each| each.capabilities.graceful_restart.is_none())) {
        let message = "`save_fib`, but no neighbor waits for a restart: a saved table is never used";
        reader.warning(
            ErrorKind::Conflict,
            &span,
            message,
            "`graceful_restart = true`, here or with a neighbor",
        );
    }
    let chains = groups.iter().map(|raw| &raw.settings).chain(neighbors.iter().map(|raw| &raw.settings));
    let compiled = compile(reader, &policies, chains.chain([&outer]), &title, !rpki.is_empty());
    let tests_passed = policy_test::run(reader, &policies.library, &policies.tests, &configs);
    Some(BgpConfig {
        local_as: common.local_as,
        router_id: common.router_id,
        listen,
        scheduling: scheduling.unwrap_or(SchedulingKind::Sharded),
        threads,
        install,
        save_fib,
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
        rpki,
        library: Arc::new(policies.library),
        tests_passed,
        policies: Arc::new(compiled),
    })
}

/// A router whose forwarding ends with its process cannot promise to preserve it.
fn check_preserved<'s>(
    reader: &mut Reader,
    settings: impl Iterator<Item = &'s Settings>,
    forwards_itself: bool,
) {
    let mut reported = std::collections::HashSet::new();
    let promised = settings.filter_map(Settings::promises_forwarding).filter(|_| forwards_itself);
    for span in promised {
        // A group's setting occurs again with each of its neighbors.
        if reported.insert(span.clone()) {
            let message =
                "`forwarding_preserved` on a router that forwards packets itself: that ends with it";
            let expected = "`save_fib = true` in [bgp], or `install = \"kernel\"` or `\"none\"` and no port with an interface, or no \
                 such key";
            reader.error(ErrorKind::Conflict, &span, message, expected);
        }
    }
}

/// Where the text wants the forwarding table to be saved. Only the tables of this program can be.
fn read_save_fib(reader: &mut Reader, section: &mut Section<'_>, install: Install) -> Option<Range<usize>> {
    let at = section.read(reader, &SAVE_FIB).filter(|at| at.value)?;
    if install != Install::Fib {
        let message =
            format!("`save_fib` with `install = \"{}\"`: there is no forwarding table here", install.name());
        reader.error(ErrorKind::Conflict, &at.span, message, "`install = \"fib\"`, or no such key");
        return None;
    }
    Some(at.span)
}

/// A router that installs its routes nowhere passes them on to others, and cannot know whether *they* reach
/// the next hops.
fn read_next_hop_check(reader: &mut Reader, section: &mut Section<'_>, install: Install) -> NextHopCheck {
    let chosen = section.get(reader, &NEXT_HOP_CHECK).flatten();
    chosen.unwrap_or(if install == Install::Kernel { NextHopCheck::Kernel } else { NextHopCheck::Off })
}

fn listen(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<SocketAddr>> {
    let parse = |text: &str| {
        let with_port = text.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
        let address = with_port.or_else(|| Some(SocketAddr::new(text.parse().ok()?, BGP_PORT)));
        address.ok_or("an address, with a port where it is not 179: \"192.0.2.1\" or \"[2001:db8::1]:1790\"")
    };
    let mut listen: Vec<SocketAddr> = Vec::new();
    for entry in reader.list(item) {
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
    Some(listen)
}

fn read_router_id(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    listen: &[SocketAddr],
) -> Option<Ipv4Addr> {
    let good = |address: &Ipv4Addr| !address.is_unspecified();
    if let Some(item) = section.take(&ROUTER_ID) {
        let id = ROUTER_ID.value(reader, &item)?;
        if !good(&id) {
            let message = "0.0.0.0 is nobody's BGP identifier";
            reader.error(
                ErrorKind::BadValue,
                &item.span,
                message,
                "another one, such as \"198.18.0.1\" (RFC 6286)",
            );
            return None;
        }
        return Some(id);
    }
    let v4 = |address: IpAddr| match address {
        IpAddr::V4(address) => Some(address).filter(good),
        IpAddr::V6(_) => None,
    };
    let of_ports = ports.addresses_in(0).filter_map(|(_, net)| v4(net.value.addr()));
    let derived = of_ports.chain(listen.iter().filter_map(|address| v4(address.ip()))).next();
    if derived.is_none() {
        let span = section.span.clone();
        let message = "[bgp] lacks `router_id`, and there is no IPv4 address to take it from";
        reader.error(ErrorKind::MissingKey, &span, message, "`router_id = \"198.18.0.1\"`");
    }
    derived
}

fn read_confederation(reader: &mut Reader, bgp: &mut Section<'_>) -> Option<Arc<Confederation>> {
    let mut section = bgp.section(reader, &CONFEDERATION)?;
    let (id, members) = (section.get(reader, &ID), section.get(reader, &MEMBERS));
    section.finish(reader);
    Some(Arc::new(Confederation { id: id?, members: members?.into_iter().collect() }))
}

fn as_number(reader: &mut Reader, item: &Item<'_>) -> Option<u32> {
    reader.integer(item, 1..=U32, "")
}

fn read_decision(reader: &mut Reader, section: &mut Section<'_>) -> DecisionConfig {
    let mut decision = DecisionConfig::default();
    section.set(reader, &ALWAYS_COMPARE_MED, &mut decision.always_compare_med);
    section.set(reader, &MED_MISSING_AS_WORST, &mut decision.med_missing_as_worst);
    section.set(reader, &COMPARE_MED_IN_CONFEDERATION, &mut decision.compare_med_in_confederation);
    decision
}

/// `true`, `false` or a table.
fn damping(reader: &mut Reader, item: &Item<'_>) -> Option<Option<DampingConfig>> {
    let mut damping = DampingConfig::default();
    if let DeValue::Boolean(on) = item.value {
        return Some(on.then_some(damping));
    }
    let mut section = reader.section(item, &DAMPING_TABLE)?;
    section.set(reader, &WITHDRAWAL_PENALTY, &mut damping.withdrawal_penalty);
    section.set(reader, &ATTRIBUTE_CHANGE_PENALTY, &mut damping.attribute_change_penalty);
    section.set(reader, &SUPPRESS_THRESHOLD, &mut damping.suppress_threshold);
    section.set(reader, &REUSE_THRESHOLD, &mut damping.reuse_threshold);
    section.set(reader, &PENALTY_MAX, &mut damping.penalty_max);
    section.set(reader, &HALF_LIFE_S, &mut damping.half_life_s);
    section.set(reader, &MAX_SUPPRESS_S, &mut damping.max_suppress_s);
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
    Some(Some(damping))
}

pub(crate) fn networks(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<IpPrefix>> {
    let mut seen = std::collections::HashSet::new();
    let mut networks = Vec::new();
    for entry in reader.list(item) {
        let Some(at) = reader.parse(&entry, values::bgp_prefix) else { continue };
        if is_martian(at.value) {
            let message = format!("network {} must not be announced", at.value);
            let expected = "a prefix of hosts: not loopback, multicast, link-local, reserved or 0.0.0.0/8";
            reader.error(ErrorKind::BadValue, &at.span, message, expected);
        } else if seen.insert(at.value) {
            networks.push(at.value);
        } else {
            let message = format!("network {} is given twice", at.value);
            reader.error(ErrorKind::Duplicate, &at.span, message, "each prefix once");
        }
    }
    Some(networks)
}

fn read_kernel(reader: &mut Reader, bgp: &mut Section<'_>) -> KernelConfig {
    let mut kernel = KernelConfig::default();
    let mut section = bgp.section_or_empty(reader, &KERNEL);
    section.set(reader, &KERNEL_TABLE_NUMBER, &mut kernel.table);
    section.set(reader, &METRIC, &mut kernel.metric);
    section.set(reader, &REPAIR_S, &mut kernel.repair_s);
    section.finish(reader);
    kernel
}

fn read_mrt(reader: &mut Reader, bgp: &mut Section<'_>) -> MrtConfig {
    let mut mrt = MrtConfig::default();
    let mut section = bgp.section_or_empty(reader, &MRT);
    mrt.dump = section.get(reader, &DUMP);
    mrt.updates = section.get(reader, &UPDATES);
    section.set(reader, &INTERVAL_S, &mut mrt.dump_interval_s);
    section.set(reader, &ROTATE_S, &mut mrt.rotate_s);
    section.set(reader, &COMPRESS, &mut mrt.compress);
    section.finish(reader);
    mrt
}

fn read_seed(reader: &mut Reader, bgp: &mut Section<'_>) -> Option<PathBuf> {
    let mut section = bgp.section(reader, &SEED)?;
    let file = section.read(reader, &SEED_MRT);
    section.finish(reader);
    let file = file?;
    if !file.value.is_file() {
        let message = format!("cannot read {}: no such file", file.value.display());
        let finding = reader.error(ErrorKind::File, &file.span, message, "an MRT file");
        finding.help = Some("paths are relative to the configuration".to_owned());
    }
    Some(file.value)
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

fn finish_neighbor(reader: &mut Reader, raw: &RawBgpNeighbor, common: &Common) -> NeighborConfig {
    let mut config = base(raw.address.value, &raw.settings, common);
    config.group = raw.group.clone();
    if let Some(name) = &raw.name {
        config.name = name.value.clone();
    }
    raw.settings.check(reader, &config);
    let external = config.certain_kind().is_none_or(|kind| kind == PeerKind::External);
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
        if !raw.settings.has_families() {
            let has = |v4: bool| raw.ranges.iter().any(|at| matches!(at.value, IpPrefix::V4(_)) == v4);
            template.capabilities.families = [has(true), has(false)];
        }
        template.passive = true;
        raw.settings.check(reader, &template);
        let prefixes = raw.ranges.iter().map(|at| at.value).collect();
        Arc::new(DynamicRange { prefixes, max: raw.max, template })
    });
    GroupConfig { name: raw.name.value.clone(), dynamic }
}

/// Compiles every used combination of rule sets; reports undefined names.
fn compile<'s>(
    reader: &mut Reader,
    policies: &Policies<'_>,
    settings: impl Iterator<Item = &'s Settings>,
    title: &Range<usize>,
    has_rpki: bool,
) -> PolicyTable {
    let (accept, reject) = (Arc::new(Policy::accept_all()), Arc::new(Policy::reject_all()));
    let mut compiled = PolicyTable { used: BTreeMap::new(), accept, reject };
    let mut reported = std::collections::HashSet::new();
    let sets = &policies.library.sets;
    let chains = settings.flat_map(|settings| {
        let import = settings.import.iter().map(|chain| (chain, true));
        import.chain(settings.export.iter().map(|chain| (chain, false)))
    });
    for (chain, is_import) in chains {
        for at in chain {
            let known = sets.contains_key(&at.value) || [ACCEPT, REJECT].contains(&&*at.value);
            // A group's setting occurs again with each of its neighbors.
            if !known && reported.insert(at.span.clone()) {
                let value = DeValue::Boolean(false);
                let item = Item { key: "rules", value: &value, span: at.span.clone() };
                let names = sets.keys().map(|name| &**name).chain([ACCEPT, REJECT]);
                unknown(reader, &item, &at.value, "rule set", "[policy.rules]", names);
            }
        }
        let policy = compile_chain(reader, policies, chain, title, &mut compiled);
        let Some(first) = chain.first().filter(|_| policy.depends_on_validity()) else { continue };
        if !(is_import && has_rpki) && reported.insert(first.span.clone()) {
            check_validity(reader, &first.span, is_import);
        }
    }
    compiled
}

/// Validity is a matter of import, and of a source that says it.
fn check_validity(reader: &mut Reader, span: &Range<usize>, is_import: bool) {
    match is_import {
        true => {
            let message = "the policy asks for the validity of origins, and no [[bgp.rpki_source]] says it";
            reader.warning(
                ErrorKind::MissingKey,
                span,
                message,
                "`[[bgp.rpki_source]]` with a cache or a file",
            );
        }
        false => {
            let message = "an export policy asks for the validity of origins (`rpki`)";
            let expected = "a condition on a community that import adds";
            reader.error(ErrorKind::Conflict, span, message, expected);
        }
    }
}

fn compile_chain(
    reader: &mut Reader,
    policies: &Policies<'_>,
    chain: &Chain,
    title: &Range<usize>,
    compiled: &mut PolicyTable,
) -> Arc<Policy> {
    let names: Vec<Arc<str>> = chain.iter().map(|at| at.value.clone()).collect();
    if let Some(policy) = compiled.used.get(&names) {
        return policy.clone();
    }
    let policy = match Policy::compile(&policies.library, &names) {
        Ok(policy) => policy,
        // Reported at the name or the call.
        Err(PolicyError::Unknown { .. } | PolicyError::Cycle { .. } | PolicyError::TooDeep { .. }) => {
            Policy::reject_all()
        }
        Err(error @ PolicyError::TooMany { .. }) => {
            let span = chain.first().map_or(title, |at| &at.span);
            reader.error(ErrorKind::TooMany, span, error.to_string(), "fewer rules");
            Policy::reject_all()
        }
    };
    compiled.used.entry(names).or_insert(Arc::new(policy)).clone()
}

//! The keys that `[bgp]`, `[[bgp.group]]` and `[[bgp.neighbor]]` share. A neighbor's own value comes first, then
//! its group's, then the one in `[bgp]`, then the default.
//!
//! ```toml
//! import = "customers-in"              # a rule set or several in order; "accept" and "reject" are built in
//! export = ["sanity", "to-customers"]
//! families = ["ipv4", "ipv6"]          # default: the family of the neighbor's address
//! max_prefixes = { ipv4 = 1000, ipv6 = 200, warn_percent = 75, action = "restart", restart_s = 300 }
//! ```

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use thalweg_bgp::peer::Role;
use thalweg_bgp::session::config::{
    AddPathConfig, GracefulRestartConfig, HonorBlackhole, MaxPrefixes, MaxPrefixesAction, NeighborConfig,
    Password, PrivateAs, RemoteAs, SendCommunities,
};
use toml::de::DeValue;

use crate::bgp::prefix;
use crate::diagnostic::ErrorKind;
use crate::policy_rules::{FAMILIES, ROLES};
use crate::reader::{At, Item, Reader, Section};
use crate::values;

/// Longest key of TCP MD5 signatures (Linux's TCP_MD5SIG_MAXKEYLEN).
const PASSWORD_MAX: usize = 80;
/// A day: longer times are mistakes.
const TIME_MAX_S: u64 = 86_400;
/// RFC 4724 has 12 bits for it.
const RESTART_TIME_MAX_S: u64 = 4095;
/// Paths of one prefix that a neighbor may be sent.
const ADD_PATHS_MAX: u64 = 64;

/// Rule sets in order, with their places.
pub(crate) type Chain = Vec<At<Arc<str>>>;

/// Values as far as they were given.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) remote_as: Option<At<RemoteAs>>,
    pub(crate) import: Option<Chain>,
    pub(crate) export: Option<Chain>,
    pub(crate) local_address: Option<At<IpAddr>>,
    pub(crate) role: Option<At<Role>>,
    description: Option<String>,
    enabled: Option<bool>,
    passive: Option<bool>,
    families: Option<[bool; 2]>,
    port: Option<u16>,
    password: Option<Password>,
    ttl_security: Option<At<u8>>,
    multihop_ttl: Option<At<u8>>,
    hold_time_s: Option<At<u16>>,
    hold_time_min_s: Option<u16>,
    keepalive_s: Option<At<u16>>,
    connect_retry_s: Option<u16>,
    idle_hold_s: Option<u16>,
    idle_hold_max_s: Option<u16>,
    send_hold_s: Option<u32>,
    mrai_ms: Option<u32>,
    role_strict: Option<At<bool>>,
    max_prefixes: Option<[Option<MaxPrefixes>; 2]>,
    allow_own_as: Option<u8>,
    reject_as_set: Option<bool>,
    first_as_check: Option<bool>,
    martian_check: Option<bool>,
    honor_blackhole: Option<HonorBlackhole>,
    route_reflector_client: Option<At<bool>>,
    route_server_client: Option<At<bool>>,
    next_hop_self: Option<At<bool>>,
    next_hop_unchanged: Option<At<bool>>,
    next_hop: Option<Vec<IpAddr>>,
    private_as: Option<PrivateAs>,
    send_communities: Option<SendCommunities>,
    add_path: Option<[AddPathConfig; 2]>,
    graceful_restart: Option<GracefulRestart>,
    four_octet_as: Option<bool>,
    route_refresh: Option<bool>,
    enhanced_refresh: Option<bool>,
    extended_messages: Option<bool>,
    extended_next_hop: Option<bool>,
}

/// What `graceful_restart` says.
#[derive(Clone, Debug)]
struct GracefulRestart {
    config: Option<GracefulRestartConfig>,
    /// Where `forwarding_preserved = true` stands, if it does.
    promised: Option<Range<usize>>,
}

/// Takes a key and reads it.
fn take<T>(
    reader: &mut Reader,
    section: &mut Section<'_>,
    key: &'static str,
    read: impl FnOnce(&mut Reader, &Item<'_>) -> Option<T>,
) -> Option<At<T>> {
    let item = section.take(key)?;
    let value = read(reader, &item)?;
    Some(At { value, span: item.span })
}

fn flag(reader: &mut Reader, section: &mut Section<'_>, key: &'static str) -> Option<bool> {
    take(reader, section, key, |reader, item| reader.boolean(item)).map(|at| at.value)
}

fn flag_at(reader: &mut Reader, section: &mut Section<'_>, key: &'static str) -> Option<At<bool>> {
    take(reader, section, key, |reader, item| reader.boolean(item))
}

fn seconds<T: TryFrom<u64>>(
    reader: &mut Reader,
    section: &mut Section<'_>,
    key: &'static str,
    least: u64,
    most: u64,
) -> Option<T> {
    let at = take(reader, section, key, |reader, item| reader.integer(item, least..=most, "seconds"))?;
    T::try_from(at.value).ok()
}

impl Settings {
    /// Takes every shared key of a section.
    pub(crate) fn read(reader: &mut Reader, section: &mut Section<'_>) -> Self {
        let r = reader;
        Self {
            remote_as: None,
            import: section.take("import").and_then(|item| chain(r, &item)),
            export: section.take("export").and_then(|item| chain(r, &item)),
            families: section.take("families").map(|item| families(r, &item)),
            passive: flag(r, section, "passive"),
            password: section.take("password").and_then(|item| password(r, &item)),
            ttl_security: take(r, section, "ttl_security", |r, item| hops(r, item, 1..=254)),
            multihop_ttl: take(r, section, "multihop_ttl", |r, item| hops(r, item, 2..=255)),
            local_address: section.take("local_address").and_then(|item| r.parse(&item, values::address)),
            port: take(r, section, "port", |r, item| r.integer(item, 1..=65535, ""))
                .map(|at| at.value as u16),
            hold_time_s: take(r, section, "hold_time_s", hold_time),
            hold_time_min_s: seconds(r, section, "hold_time_min_s", 0, 65535),
            keepalive_s: take(r, section, "keepalive_s", |r, item| r.integer(item, 1..=21845, "seconds"))
                .map(|at| At { value: at.value as u16, span: at.span }),
            connect_retry_s: seconds(r, section, "connect_retry_s", 1, 65535),
            idle_hold_s: seconds(r, section, "idle_hold_s", 0, 65535),
            idle_hold_max_s: seconds(r, section, "idle_hold_max_s", 1, 65535),
            send_hold_s: seconds(r, section, "send_hold_s", 1, TIME_MAX_S),
            mrai_ms: take(r, section, "mrai_ms", |r, item| r.integer(item, 0..=600_000, "milliseconds"))
                .map(|at| at.value as u32),
            role: take(r, section, "role", |r, item| r.word(item, &ROLES)),
            role_strict: flag_at(r, section, "role_strict"),
            max_prefixes: section.take("max_prefixes").and_then(|item| max_prefixes(r, &item)),
            allow_own_as: take(r, section, "allow_own_as", |r, item| r.integer(item, 0..=10, "times"))
                .map(|at| at.value as u8),
            reject_as_set: take(r, section, "as_set", |r, item| {
                r.word(item, &[("reject", true), ("accept", false)])
            })
            .map(|at| at.value),
            first_as_check: flag(r, section, "first_as_check"),
            martian_check: flag(r, section, "martian_check"),
            honor_blackhole: section.take("honor_blackhole").and_then(|item| honor_blackhole(r, &item)),
            route_reflector_client: flag_at(r, section, "route_reflector_client"),
            route_server_client: flag_at(r, section, "route_server_client"),
            next_hop_self: flag_at(r, section, "next_hop_self"),
            next_hop_unchanged: flag_at(r, section, "next_hop_unchanged"),
            next_hop: section.take("next_hop").and_then(|item| next_hops(r, &item)),
            private_as: take(r, section, "private_as", |r, item| {
                let words = [
                    ("keep", PrivateAs::Keep),
                    ("remove", PrivateAs::Remove),
                    ("replace", PrivateAs::Replace),
                ];
                r.word(item, &words)
            })
            .map(|at| at.value),
            send_communities: section.take("send_communities").map(|item| send_communities(r, &item)),
            add_path: section.take("add_path").and_then(|item| add_path(r, &item)),
            graceful_restart: section.take("graceful_restart").and_then(|item| graceful_restart(r, &item)),
            four_octet_as: flag(r, section, "four_octet_as"),
            route_refresh: flag(r, section, "route_refresh"),
            enhanced_refresh: flag(r, section, "enhanced_refresh"),
            extended_messages: flag(r, section, "extended_messages"),
            extended_next_hop: flag(r, section, "extended_next_hop"),
            description: section
                .take("description")
                .and_then(|item| r.string(&item, "text").map(str::to_owned)),
            enabled: flag(r, section, "enabled"),
        }
    }

    /// These, and where nothing was said, those of the group or of `[bgp]`.
    pub(crate) fn or(self, outer: &Self) -> Self {
        macro_rules! first {
            ($($field:ident),* $(,)?) => {
                Self { $($field: self.$field.or_else(|| outer.$field.clone())),* }
            };
        }
        first!(
            remote_as,
            import,
            export,
            local_address,
            role,
            description,
            enabled,
            passive,
            families,
            port,
            password,
            ttl_security,
            multihop_ttl,
            hold_time_s,
            hold_time_min_s,
            keepalive_s,
            connect_retry_s,
            idle_hold_s,
            idle_hold_max_s,
            send_hold_s,
            mrai_ms,
            role_strict,
            max_prefixes,
            allow_own_as,
            reject_as_set,
            first_as_check,
            martian_check,
            honor_blackhole,
            route_reflector_client,
            route_server_client,
            next_hop_self,
            next_hop_unchanged,
            next_hop,
            private_as,
            send_communities,
            add_path,
            graceful_restart,
            four_octet_as,
            route_refresh,
            enhanced_refresh,
            extended_messages,
            extended_next_hop,
        )
    }

    /// Where it says that forwarding goes on while the daemon is away, if it does.
    pub(crate) fn promises_forwarding(&self) -> Option<Range<usize>> {
        self.graceful_restart.as_ref()?.promised.clone()
    }

    /// Which families were asked for.
    pub(crate) fn families(&self) -> Option<[bool; 2]> {
        self.families
    }

    /// Fills in what was given.
    pub(crate) fn apply(&self, config: &mut NeighborConfig) {
        fn set<T: Clone>(to: &mut T, from: &Option<T>) {
            if let Some(value) = from {
                to.clone_from(value);
            }
        }
        fn set_at<T: Clone>(to: &mut T, from: &Option<At<T>>) {
            if let Some(at) = from {
                to.clone_from(&at.value);
            }
        }
        let names = |chain: &Chain| chain.iter().map(|at| at.value.clone()).collect();
        config.description = self.description.clone();
        config.role = self.role.as_ref().map(|at| at.value);
        config.import.rules = self.import.as_ref().map(names);
        config.export.rules = self.export.as_ref().map(names);
        set(&mut config.enabled, &self.enabled);
        set(&mut config.passive, &self.passive);
        set_at(&mut config.role_strict, &self.role_strict);
        set(&mut config.max_prefixes, &self.max_prefixes);
        let transport = &mut config.transport;
        set(&mut transport.port, &self.port);
        transport.local_address = self.local_address.as_ref().map(|at| at.value);
        transport.password = self.password.clone();
        transport.ttl_security_hops = self.ttl_security.as_ref().map(|at| at.value);
        transport.multihop_ttl = self.multihop_ttl.as_ref().map(|at| at.value);
        let timers = &mut config.timers;
        set_at(&mut timers.hold_time_s, &self.hold_time_s);
        set(&mut timers.hold_time_min_s, &self.hold_time_min_s);
        timers.keepalive_s = self.keepalive_s.as_ref().map(|at| at.value);
        set(&mut timers.connect_retry_s, &self.connect_retry_s);
        set(&mut timers.idle_hold_s, &self.idle_hold_s);
        set(&mut timers.idle_hold_max_s, &self.idle_hold_max_s);
        timers.send_hold_s = self.send_hold_s.or(timers.send_hold_s);
        set(&mut timers.mrai_ms, &self.mrai_ms);
        let capabilities = &mut config.capabilities;
        set(&mut capabilities.families, &self.families);
        set(&mut capabilities.four_octet_as, &self.four_octet_as);
        set(&mut capabilities.route_refresh, &self.route_refresh);
        set(&mut capabilities.enhanced_refresh, &self.enhanced_refresh);
        set(&mut capabilities.extended_messages, &self.extended_messages);
        set(&mut capabilities.extended_next_hop, &self.extended_next_hop);
        set(&mut capabilities.add_path, &self.add_path);
        set(&mut capabilities.graceful_restart, &self.graceful_restart.as_ref().map(|each| each.config));
        set(&mut config.import.allow_own_as, &self.allow_own_as);
        set(&mut config.import.reject_as_set, &self.reject_as_set);
        set(&mut config.import.first_as_check, &self.first_as_check);
        set(&mut config.import.martian_check, &self.martian_check);
        set(&mut config.import.honor_blackhole, &self.honor_blackhole);
        let export = &mut config.export;
        set_at(&mut export.route_reflector_client, &self.route_reflector_client);
        set_at(&mut export.route_server_client, &self.route_server_client);
        set_at(&mut export.next_hop_self, &self.next_hop_self);
        set_at(&mut export.next_hop_unchanged, &self.next_hop_unchanged);
        for address in self.next_hop.iter().flatten() {
            match address {
                IpAddr::V4(address) => export.next_hop_ipv4 = Some(*address),
                IpAddr::V6(address) => export.next_hop_ipv6 = Some(*address),
            }
        }
        set(&mut export.private_as, &self.private_as);
        set(&mut export.send_communities, &self.send_communities);
    }

    /// Values that do not fit together. `kind`: whether the neighbor is in our AS, if that is known.
    pub(crate) fn check(&self, reader: &mut Reader, config: &NeighborConfig, internal: Option<bool>) {
        let mut conflict = |span: &Range<usize>, message: String, expected: &str| {
            reader.error(ErrorKind::Conflict, span, message, expected);
        };
        let on = |flag: &Option<At<bool>>| flag.as_ref().filter(|at| at.value).map(|at| at.span.clone());
        let name = &config.name;
        if let (Some(at), true) = (&self.multihop_ttl, self.ttl_security.is_some()) {
            let message = format!("neighbor {name} has both `ttl_security` and `multihop_ttl`");
            conflict(&at.span, message, "either of them: `ttl_security` says how far away it may be");
        }
        if let (Some(span), true) = (on(&self.next_hop_unchanged), on(&self.next_hop_self).is_some()) {
            let message = format!("neighbor {name} has both `next_hop_self` and `next_hop_unchanged`");
            conflict(&span, message, "either of them");
        }
        if let (Some(span), Some(false)) = (on(&self.route_reflector_client), internal) {
            let message = format!("neighbor {name} is external: it cannot be a route reflector client");
            conflict(&span, message, "a neighbor in our AS (RFC 4456)");
        }
        if let (Some(span), Some(true)) = (on(&self.route_server_client), internal) {
            let message = format!("neighbor {name} is in our AS: it cannot be a route server client");
            conflict(&span, message, "a neighbor in another AS (RFC 7947)");
        }
        if let (Some(at), Some(true)) = (&self.role, internal) {
            let message = format!("neighbor {name} is in our AS: it has no role");
            conflict(&at.span, message, "a role for external neighbors only (RFC 9234)");
        }
        if let (Some(at), true) = (&self.role, on(&self.route_server_client).is_some())
            && at.value != Role::RouteServerClient
        {
            let message = format!("neighbor {name} is a route server client and has another role");
            conflict(&at.span, message, "\"route-server-client\", or no role");
        }
        if let (Some(span), None) = (on(&self.role_strict), &self.role) {
            let message = format!("neighbor {name} has `role_strict` without a role");
            conflict(&span, message, "`role`");
        }
        if let Some(at) = &self.keepalive_s
            && config.timers.hold_time_s > 0
            && at.value >= config.timers.hold_time_s
        {
            let message =
                format!("KEEPALIVEs every {} s do not hold for {} s", at.value, config.timers.hold_time_s);
            conflict(&at.span, message, "at most a third of the hold time (RFC 4271 section 4.4)");
        }
        if let Some(at) = &self.local_address
            && at.value.is_ipv4() != config.address.is_ipv4()
        {
            let message =
                format!("local address {} is of another family than neighbor {}", at.value, config.address);
            conflict(&at.span, message, "an address of the neighbor's family");
        }
    }
}

/// `"name"` or `["a", "b"]`
fn chain(reader: &mut Reader, item: &Item<'_>) -> Option<Chain> {
    let mut chain = Chain::new();
    for entry in reader.filled_list(item) {
        let name = reader.string(&entry, "the name of a rule set, \"accept\" or \"reject\"")?;
        chain.push(At { value: name.into(), span: entry.span });
    }
    if chain.is_empty() { None } else { Some(chain) }
}

fn families(reader: &mut Reader, item: &Item<'_>) -> [bool; 2] {
    let mut families = [false; 2];
    for entry in reader.filled_list(item) {
        if let Some(family) = reader.word(&entry, &FAMILIES) {
            families[family.index()] = true;
        }
    }
    families
}

fn password(reader: &mut Reader, item: &Item<'_>) -> Option<Password> {
    let text = reader.string(item, "a password")?;
    if text.is_empty() || text.len() > PASSWORD_MAX {
        let message = format!("a password of {} bytes", text.len());
        let expected = format!("1 to {PASSWORD_MAX} bytes (TCP MD5, RFC 2385)");
        reader.error(ErrorKind::BadValue, &item.span, message, expected);
        return None;
    }
    Some(Password::new(text))
}

fn hops(reader: &mut Reader, item: &Item<'_>, range: std::ops::RangeInclusive<u64>) -> Option<u8> {
    reader.integer(item, range, "hops").map(|hops| hops as u8)
}

/// RFC 4271 section 4.2: 0, or at least 3.
fn hold_time(reader: &mut Reader, item: &Item<'_>) -> Option<u16> {
    let seconds = reader.integer(item, 0..=65535, "seconds")?;
    if matches!(seconds, 1 | 2) {
        let message = format!("a hold time of {seconds} s");
        reader.error(
            ErrorKind::BadValue,
            &item.span,
            message,
            "0 (none) or at least 3 seconds (RFC 4271 section 4.2)",
        );
        return None;
    }
    Some(seconds as u16)
}

fn next_hops(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for entry in reader.filled_list(item) {
        let at = reader.parse(&entry, values::address)?;
        if addresses.iter().any(|other| other.is_ipv4() == at.value.is_ipv4()) {
            let expected = "at most one IPv4 and one IPv6 address";
            reader.error(ErrorKind::Duplicate, &at.span, "two next hops of one family", expected);
        }
        addresses.push(at.value);
    }
    Some(addresses)
}

/// `true`, `false` or the prefixes that the neighbor is authorized to announce.
fn honor_blackhole(reader: &mut Reader, item: &Item<'_>) -> Option<HonorBlackhole> {
    if let DeValue::Boolean(on) = item.value {
        return Some(if *on { HonorBlackhole::Hosts } else { HonorBlackhole::No });
    }
    let mut prefixes = Vec::new();
    for entry in reader.filled_list(item) {
        prefixes.push(reader.parse(&entry, prefix)?.value);
    }
    Some(HonorBlackhole::Within(prefixes.into()))
}

/// `true`, `false` or a list of kinds.
fn send_communities(reader: &mut Reader, item: &Item<'_>) -> SendCommunities {
    if let DeValue::Boolean(all) = item.value {
        return SendCommunities { standard: *all, extended: *all, large: *all };
    }
    let mut kinds = SendCommunities { standard: false, extended: false, large: false };
    for entry in reader.list(item) {
        match reader.word(&entry, &[("standard", 0), ("extended", 1), ("large", 2)]) {
            Some(0) => kinds.standard = true,
            Some(1) => kinds.extended = true,
            Some(_) => kinds.large = true,
            None => {}
        }
    }
    kinds
}

fn max_prefixes(reader: &mut Reader, item: &Item<'_>) -> Option<[Option<MaxPrefixes>; 2]> {
    let mut section = reader.section(item, "`max_prefixes`".to_owned())?;
    let mut limits = [None; 2];
    for (name, family) in FAMILIES {
        if let Some(item) = section.take(name) {
            limits[family.index()] = reader.integer(&item, 1..=u64::from(u32::MAX), "prefixes");
        }
    }
    if limits == [None; 2] && !section.is_empty() {
        let span = section.span.clone();
        reader.error(
            ErrorKind::MissingKey,
            &span,
            "`max_prefixes` limits no family",
            "`ipv4 = 1000` or `ipv6 = 200`",
        );
    }
    let warn_percent =
        section.take("warn_percent").and_then(|item| reader.integer(&item, 1..=100, "percent"));
    let restart = section.take("restart_s");
    let after_s = restart.as_ref().and_then(|item| reader.integer(item, 1..=TIME_MAX_S, "seconds"));
    let words = [
        ("warn", MaxPrefixesAction::Warn),
        ("restart", MaxPrefixesAction::Restart { after_s: after_s.unwrap_or(300) as u32 }),
        ("stop", MaxPrefixesAction::Stop),
    ];
    let action = section.take("action").and_then(|item| reader.word(&item, &words));
    let action = action.unwrap_or(if restart.is_some() { words[1].1 } else { MaxPrefixesAction::Stop });
    if let (Some(item), false) = (&restart, matches!(action, MaxPrefixesAction::Restart { .. })) {
        let message = "`restart_s` without a restart";
        reader.error(ErrorKind::Conflict, &item.span, message, "`action = \"restart\"`");
    }
    section.finish(reader);
    Some(limits.map(|limit: Option<u64>| {
        let warn_percent = warn_percent.unwrap_or(75) as u8;
        limit.map(|limit| MaxPrefixes { limit: limit as u32, warn_percent, action })
    }))
}

fn add_path(reader: &mut Reader, item: &Item<'_>) -> Option<[AddPathConfig; 2]> {
    let mut section = reader.section(item, "`add_path`".to_owned())?;
    let paths = section.take("paths").and_then(|item| reader.integer(&item, 2..=ADD_PATHS_MAX, "paths"));
    let send_paths = paths.unwrap_or(2) as u8;
    let words = [
        ("send", AddPathConfig { receive: false, send_paths }),
        ("receive", AddPathConfig { receive: true, send_paths: 0 }),
        ("both", AddPathConfig { receive: true, send_paths }),
    ];
    let mut config = [AddPathConfig::default(); 2];
    for (name, family) in FAMILIES {
        if let Some(value) = section.take(name).and_then(|item| reader.word(&item, &words)) {
            config[family.index()] = value;
        }
    }
    section.finish(reader);
    Some(config)
}

/// `true`, `false` or a table.
fn graceful_restart(reader: &mut Reader, item: &Item<'_>) -> Option<GracefulRestart> {
    let (mut config, mut promised) = (GracefulRestartConfig::default(), None);
    if let DeValue::Boolean(on) = item.value {
        return Some(GracefulRestart { config: on.then_some(config), promised });
    }
    let mut section = reader.section(item, "`graceful_restart`".to_owned())?;
    if let Some(time) = seconds(reader, &mut section, "time_s", 0, RESTART_TIME_MAX_S) {
        config.time_s = time;
    }
    if let Some(time) = seconds(reader, &mut section, "stale_path_s", 1, TIME_MAX_S) {
        config.stale_path_s = time;
    }
    config.notification = flag(reader, &mut section, "notification").unwrap_or(config.notification);
    if let Some(item) = section.take("forwarding_preserved") {
        config.forwarding_preserved = reader.boolean(&item).unwrap_or(config.forwarding_preserved);
        promised = config.forwarding_preserved.then(|| item.span.clone());
    }
    section.finish(reader);
    Some(GracefulRestart { config: Some(config), promised })
}

/// A neighbor's AS: one, several (for dynamic neighbors), or any.
pub(crate) fn remote_as(reader: &mut Reader, item: &Item<'_>) -> Option<At<RemoteAs>> {
    let value = match item.value {
        DeValue::Integer(_) => RemoteAs::One(reader.integer(item, 1..=u64::from(u32::MAX), "")? as u32),
        DeValue::String(text) if text == "any" => RemoteAs::Any,
        DeValue::String(_) | DeValue::Array(_) => {
            let mut ranges = Vec::new();
            for entry in reader.filled_list(item) {
                ranges.push(crate::policy::as_range(reader, &entry)?.into_inner());
            }
            RemoteAs::AnyOf(ranges)
        }
        _ => return reader.wrong_type(item, "an AS number, a list of numbers and ranges, or \"any\""),
    };
    Some(At { value, span: item.span.clone() })
}

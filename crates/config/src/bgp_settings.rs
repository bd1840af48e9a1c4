//! The keys that `[bgp]`, `[[bgp.group]]` and `[[bgp.neighbor]]` share. A neighbor's own value comes first,
//! then its group's, then the one in `[bgp]`, then the default. A row applies its value to a neighbor, so a
//! key without dependencies needs only its row.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use thalweg_bgp::peer::{PeerKind, Role};
use thalweg_bgp::session::config::{
    AddPathConfig, GracefulRestartConfig, HonorBlackhole, KeepRejected, MaxPrefixes, MaxPrefixesAction,
    NeighborConfig, Password, PrivateAs, RemoteAs, SendCommunities,
};
use toml::de::DeValue;

use crate::diagnostic::ErrorKind;
use crate::key::{Key, Setting, U32, table};
use crate::policy_rules::{FAMILIES, ROLES};
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::values::{self, bgp_prefix};

/// A day: longer times are errors.
const TIME_MAX_S: u64 = 86_400;
/// The longest TCP MD5 password (Linux's TCP_MD5SIG_MAXKEYLEN).
const PASSWORD_MAX: usize = 80;
/// The limit of 16 bits.
const U16: u64 = u16::MAX as u64;

table! {
    pub(crate) static SHARED: "bgp.shared", "[bgp], [[bgp.group]] or [[bgp.neighbor]]";

    static IMPORT: Key<Chain> = Key::by("import", "a name or a list", chain)
        .otherwise("everything inside our AS, nothing outside (RFC 8212)")
        .help("import policy: rule sets in order, or `\"accept\"` or `\"reject\"`, for what it sends; see [policy](policy.md)");
    static EXPORT: Key<Chain> = Key::by("export", "a name or a list", chain)
        .otherwise("everything inside our AS, nothing outside (RFC 8212)")
        .help("export policy, likewise");
    static FAMILIES_KEY: Key<[bool; 2]> = Key::by("families", "a list of `\"ipv4\"`, `\"ipv6\"`", families)
        .otherwise("the family of the address")
        .session()
        .help("address families to exchange: `[\"ipv4\", \"ipv6\"]`")
        .sets(|config, value| config.capabilities.families = *value);
    static PASSIVE: Key<bool> =
        Key::flag("passive").help("accept connections, but open none").field(|config| &mut config.passive);
    static PASSWORD: Key<Password> = Key::by("password", "text of up to 80 bytes", password)
        .session()
        .help("TCP MD5 key (RFC 2385)")
        .sets(|config, value| config.transport.password = Some(value.clone()));
    static TTL_SECURITY: Key<u8> = Key::number("ttl_security", 1..=254)
        .unit("hops")
        .otherwise("off")
        .session()
        .help("maximum distance in hops (GTSM, RFC 5082)")
        .sets(|config, value| config.transport.ttl_security_hops = Some(*value));
    static MULTIHOP_TTL: Key<u8> = Key::number("multihop_ttl", 2..=255)
        .unit("hops")
        .otherwise("1")
        .session()
        .help("TTL to an external neighbor that is not directly connected")
        .sets(|config, value| config.transport.multihop_ttl = Some(*value));
    static LOCAL_ADDRESS: Key<IpAddr> = Key::text("local_address", "an address", values::address)
        .otherwise("the route's")
        .session()
        .help("our address for the session")
        .sets(|config, value| config.transport.local_address = Some(*value));
    static PORT: Key<u16> = Key::number("port", 1..=U16)
        .session()
        .help("TCP port to connect to")
        .field(|config| &mut config.transport.port);
    static HOLD_TIME_S: Key<u16> = Key::by("hold_time_s", "0 or 3 to 65535 seconds", hold_time)
        .default_toml("90")
        .session()
        .help("hold time we offer: 0 (none) or at least 3")
        .sets(|config, value| config.timers.hold_time_s = *value);
    static HOLD_TIME_MIN_S: Key<u16> = Key::number("hold_time_min_s", 0..=U16)
        .unit("seconds")
        .session()
        .help("refuse a neighbor that offers a shorter hold time")
        .field(|config| &mut config.timers.hold_time_min_s);
    static KEEPALIVE_S: Key<u16> = Key::number("keepalive_s", 1..=21_845)
        .unit("seconds")
        .otherwise("a third of the hold time")
        .session()
        .help("keepalive interval, at most")
        .sets(|config, value| config.timers.keepalive_s = Some(*value));
    static CONNECT_RETRY_S: Key<u16> = Key::number("connect_retry_s", 1..=U16)
        .unit("seconds")
        .help("connect retry time, at most")
        .field(|config| &mut config.timers.connect_retry_s);
    static IDLE_HOLD_S: Key<u16> = Key::number("idle_hold_s", 0..=U16)
        .unit("seconds")
        .help("idle time after the first [protocol error](bgp.md#when-a-session-ends)")
        .field(|config| &mut config.timers.idle_hold_s);
    static IDLE_HOLD_MAX_S: Key<u16> = Key::number("idle_hold_max_s", 1..=U16)
        .unit("seconds")
        .help("idle time after repeated errors, at most")
        .field(|config| &mut config.timers.idle_hold_max_s);
    static SEND_HOLD_S: Key<u32> = Key::number("send_hold_s", 1..=TIME_MAX_S)
        .unit("seconds")
        .otherwise("the larger of 480 and twice the hold time")
        .help("send hold time (RFC 9687)")
        .sets(|config, value| config.timers.send_hold_s = Some(*value));
    static MRAI_MS: Key<u32> = Key::number("mrai_ms", 0..=600_000)
        .unit("milliseconds")
        .help("minimum route advertisement interval of a prefix (MRAI)")
        .field(|config| &mut config.timers.mrai_ms);
    static MRAI_WITHDRAWALS: Key<bool> = Key::flag("mrai_withdrawals")
        .help("apply `mrai_ms` to withdrawals too (RFC 4271 9.2.1.1): see [bgp.md](bgp.md#minimum-route-advertisement-interval)")
        .field(|config| &mut config.timers.mrai_withdrawals);
    static ROLE: Key<Role> = Key::word("role", &ROLES)
        .session()
        .help("the neighbor's role to us (RFC 9234)")
        .sets(|config, value| config.role = Some(*value));
    static ROLE_STRICT: Key<bool> = Key::flag("role_strict")
        .session()
        .help("refuse a neighbor that announces no role")
        .field(|config| &mut config.role_strict);
    static MAX_PREFIXES: Key<[Option<MaxPrefixes>; 2]> = Key::by("max_prefixes", "a table", max_prefixes).keys(&MAX_PREFIXES_TABLE).otherwise("no limit").help("`{ ipv4 = 1000, ipv6 = 200, warn_percent = 75, action = \"stop\", restart_s = 300 }`; actions `\"warn\"`, `\"restart\"`, `\"stop\"`").sets(|config, value| config.max_prefixes = *value);
    static ALLOW_OWN_AS: Key<u8> = Key::number("allow_own_as", 0..=10)
        .unit("times")
        .help("how often our AS may appear in a path")
        .field(|config| &mut config.import.allow_own_as);
    static AS_SET: Key<bool> = Key::word("as_set", &[("reject", true), ("accept", false)])
        .help("paths with sets (RFC 9774)")
        .field(|config| &mut config.import.reject_as_set);
    static FIRST_AS_CHECK: Key<bool> = Key::flag("first_as_check")
        .help("an external path must begin with the neighbor's AS")
        .field(|config| &mut config.import.first_as_check);
    static MARTIAN_CHECK: Key<bool> = Key::flag("martian_check").help("ignore prefixes that no network has (RFC 4271 6.3): within 0/8, 127/8, 224/3, ::/96, ::ffff:0:0/96, fe80::/10, ff00::/8").field(|config| &mut config.import.martian_check);
    static HONOR_BLACKHOLE: Key<HonorBlackhole> = Key::by("honor_blackhole", "true, false, or a prefix or a list", honor_blackhole).default_toml("false").help("discard packets to routes with the community BLACKHOLE (RFC 7999), if `import` accepts them: `true` for single addresses (/32, /128), or the prefixes the neighbor is authorized to announce, `[\"203.0.113.0/24\"]`, for all within them").sets(|config, value| config.import.honor_blackhole.clone_from(value));
    static KEEP_REJECTED: Key<KeepRejected> = Key::word(
        "keep_rejected",
        &[("none", KeepRejected::None), ("rpki", KeepRejected::Rpki), ("all", KeepRejected::All)],
    )
    .otherwise("`\"none\"`; with `rpki = \"reject-invalid\"` `\"rpki\"`")
    .help("keep the neighbor's routes as it sent them too, to show rejected ones and to apply a new `import` without asking it: see [bgp.md](bgp.md#routes-before-import-policy); `\"rpki\"`: rejected ones that other VRPs may let in")
    .sets(|config, value| config.import.keep_rejected = *value);
    static RPKI: Key<bool> = Key::word("rpki", &[("reject-invalid", true), ("ignore", false)])
        .help("reject routes that the RPKI calls invalid, before `import`: see [rpki.md](rpki.md)")
        .field(|config| &mut config.import.reject_invalid);
    static ROUTE_REFLECTOR_CLIENT: Key<bool> = Key::flag("route_reflector_client")
        .session()
        .help("the neighbor is a route reflector client")
        .field(|config| &mut config.export.route_reflector_client);
    static ROUTE_SERVER_CLIENT: Key<bool> = Key::flag("route_server_client")
        .session()
        .help("the neighbor is a route server client (RFC 7947)")
        .field(|config| &mut config.export.route_server_client);
    static NEXT_HOP_SELF: Key<bool> = Key::flag("next_hop_self")
        .help("always announce our address as next hop ([bgp.md](bgp.md#next-hops))")
        .field(|config| &mut config.export.next_hop_self);
    static NEXT_HOP_UNCHANGED: Key<bool> = Key::flag("next_hop_unchanged")
        .help("always announce the route's own next hop")
        .field(|config| &mut config.export.next_hop_unchanged);
    static NEXT_HOP: Key<Vec<IpAddr>> = Key::by("next_hop", "an address or a list", next_hops)
        .otherwise("our address for the session")
        .help("our next hop to announce, one address for each family")
        .sets(|config, value| set_next_hops(config, value));
    static PRIVATE_AS: Key<PrivateAs> = Key::word(
        "private_as",
        &[("keep", PrivateAs::Keep), ("remove", PrivateAs::Remove), ("replace", PrivateAs::Replace)],
    )
    .help("what to do with private AS numbers in announced paths")
    .field(|config| &mut config.export.private_as);
    static SEND_COMMUNITIES: Key<SendCommunities> = Key::by(
        "send_communities",
        "true, false, or a list of `\"standard\"`, `\"extended\"`, `\"large\"`",
        send_communities,
    )
    .default_toml("true")
    .help("communities to announce")
    .sets(|config, value| config.export.send_communities = *value);
    static ADD_PATH: Key<[AddPathConfig; 2]> = Key::by("add_path", "a table", add_path)
        .keys(&ADD_PATH_TABLE)
        .otherwise("off")
        .session()
        .help("`{ ipv4 = \"both\", ipv6 = \"send\", paths = 4 }`, also `\"receive\"` (RFC 7911)")
        .sets(|config, value| config.capabilities.add_path = *value);
    static GRACEFUL_RESTART: Key<GracefulRestart> = Key::by("graceful_restart", "true, false, or a table", graceful_restart).keys(&GRACEFUL_RESTART_TABLE).otherwise("off; `forwarding_preserved` is true unless this router forwards packets itself without `save_fib`, and cannot be true then").session().help("`true`, or `{ time_s = 120, stale_path_s = 360, notification = true, forwarding_preserved = true }`: see [bgp.md](bgp.md#graceful-restart)");
    static FOUR_OCTET_AS: Key<bool> = Key::flag("four_octet_as")
        .session()
        .help("offer four-octet AS numbers (RFC 6793)")
        .field(|config| &mut config.capabilities.four_octet_as);
    static ROUTE_REFRESH: Key<bool> = Key::flag("route_refresh")
        .session()
        .help("offer route refresh (RFC 2918)")
        .field(|config| &mut config.capabilities.route_refresh);
    static ENHANCED_REFRESH: Key<bool> = Key::flag("enhanced_refresh")
        .session()
        .help("offer enhanced route refresh (RFC 7313)")
        .field(|config| &mut config.capabilities.enhanced_refresh);
    static EXTENDED_MESSAGES: Key<bool> = Key::flag("extended_messages")
        .session()
        .help("offer extended messages (RFC 8654)")
        .field(|config| &mut config.capabilities.extended_messages);
    static EXTENDED_NEXT_HOP: Key<bool> = Key::flag("extended_next_hop")
        .session()
        .help("IPv4 routes may have IPv6 next hops (RFC 8950)")
        .field(|config| &mut config.capabilities.extended_next_hop);
    static DESCRIPTION: Key<String> =
        Key::by("description", "text", |reader, item| reader.string(item, "text").map(str::to_owned))
            .help("description, not interpreted")
            .sets(|config, value| config.description = Some(value.clone()));
    static ENABLED: Key<bool> =
        Key::flag("enabled").session().help("`false`: keep the session down").field(|config| &mut config.enabled);
}

/// Rule sets in order, with their positions in the text.
pub(crate) type Chain = Vec<At<Arc<str>>>;

/// The values that were given.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) remote_as: Option<At<RemoteAs>>,
    pub(crate) import: Option<Chain>,
    pub(crate) export: Option<Chain>,
    graceful_restart: Option<GracefulRestart>,
    /// All other values, by key.
    others: BTreeMap<&'static str, At<Setting>>,
}

/// The value of `graceful_restart`.
#[derive(Clone, Debug)]
struct GracefulRestart {
    config: Option<GracefulRestartConfig>,
    /// The position of `forwarding_preserved = true`, if present.
    promised: Option<Range<usize>>,
}

impl Settings {
    /// Reads every shared key of a section.
    pub(crate) fn read(reader: &mut Reader, section: &mut Section<'_>) -> Self {
        let chain = |chain: At<Chain>| chain.value;
        let import = section.read(reader, &IMPORT).map(chain);
        let export = section.read(reader, &EXPORT).map(chain);
        let mut others = BTreeMap::new();
        for row in SHARED.rows.iter().filter(|row| row.is_setting()) {
            if let Some(item) = section.take(*row)
                && let Some(value) = row.setting(reader, &item)
            {
                others.insert(row.name(), At { value, span: item.span });
            }
        }
        let graceful_restart = section.read(reader, &GRACEFUL_RESTART).map(|at| at.value);
        Self { remote_as: None, import, export, graceful_restart, others }
    }

    /// These values; missing ones come from the group or `[bgp]`.
    pub(crate) fn or(mut self, outer: &Self) -> Self {
        self.remote_as = self.remote_as.or_else(|| outer.remote_as.clone());
        self.import = self.import.or_else(|| outer.import.clone());
        self.export = self.export.or_else(|| outer.export.clone());
        self.graceful_restart = self.graceful_restart.or_else(|| outer.graceful_restart.clone());
        for (key, setting) in &outer.others {
            self.others.entry(key).or_insert_with(|| setting.clone());
        }
        self
    }

    /// The position of the promise that forwarding continues while the daemon is away, if there is one.
    pub(crate) fn promises_forwarding(&self) -> Option<Range<usize>> {
        self.graceful_restart.as_ref()?.promised.clone()
    }

    pub(crate) fn has_families(&self) -> bool {
        self.others.contains_key(FAMILIES_KEY.name())
    }

    /// Applies the given values.
    pub(crate) fn apply(&self, config: &mut NeighborConfig) {
        let names = |chain: &Chain| chain.iter().map(|at| at.value.clone()).collect();
        config.import.rules = self.import.as_ref().map(names);
        config.export.rules = self.export.as_ref().map(names);
        if let Some(restart) = &self.graceful_restart {
            config.capabilities.graceful_restart = restart.config;
        }
        for setting in self.others.values() {
            (setting.value)(config);
        }
        if config.import.reject_invalid && !self.others.contains_key(KEEP_REJECTED.name()) {
            config.import.keep_rejected = KeepRejected::Rpki;
        }
    }

    fn span<T>(&self, key: &Key<T>) -> Range<usize> {
        self.others.get(key.name()).map_or(0..0, |at| at.span.clone())
    }

    /// Reports values that contradict each other.
    pub(crate) fn check(&self, reader: &mut Reader, config: &NeighborConfig) {
        // Without an AS of our own, which is reported elsewhere, it is neither.
        let kind = config.certain_kind().filter(|_| config.local_as != 0);
        let internal = kind.map(PeerKind::is_internal);
        let mut conflict = |span: &Range<usize>, message: String, expected: &str| {
            reader.error(ErrorKind::Conflict, span, message, expected);
        };
        let (name, transport, export) = (&config.name, &config.transport, &config.export);
        if transport.multihop_ttl.is_some() && transport.ttl_security_hops.is_some() {
            let message = format!("neighbor {name} has both `ttl_security` and `multihop_ttl`");
            let expected = "either of them: `ttl_security` says how far away it may be";
            conflict(&self.span(&MULTIHOP_TTL), message, expected);
        }
        if export.next_hop_unchanged && export.next_hop_self {
            let message = format!("neighbor {name} has both `next_hop_self` and `next_hop_unchanged`");
            conflict(&self.span(&NEXT_HOP_UNCHANGED), message, "either of them");
        }
        if export.route_reflector_client && internal == Some(false) {
            let message = format!("neighbor {name} is external: it cannot be a route reflector client");
            conflict(&self.span(&ROUTE_REFLECTOR_CLIENT), message, "a neighbor in our AS (RFC 4456)");
        }
        if export.route_server_client && internal == Some(true) {
            let message = format!("neighbor {name} is in our AS: it cannot be a route server client");
            conflict(&self.span(&ROUTE_SERVER_CLIENT), message, "a neighbor in another AS (RFC 7947)");
        }
        if config.role.is_some() && internal == Some(true) {
            let message = format!("neighbor {name} is in our AS: it has no role");
            conflict(&self.span(&ROLE), message, "a role for external neighbors only (RFC 9234)");
        }
        if export.route_server_client && config.role.is_some_and(|role| role != Role::RouteServerClient) {
            let message = format!("neighbor {name} is a route server client and has another role");
            conflict(&self.span(&ROLE), message, "\"route-server-client\", or no role");
        }
        if config.role_strict && config.role.is_none() {
            let message = format!("neighbor {name} has `role_strict` without a role");
            conflict(&self.span(&ROLE_STRICT), message, "`role`");
        }
        let hold_time_s = config.timers.hold_time_s;
        if let Some(keepalive_s) = config.timers.keepalive_s
            && hold_time_s > 0
            && keepalive_s >= hold_time_s
        {
            let message =
                format!("a keepalive time of {keepalive_s} s is too long for a hold time of {hold_time_s} s");
            let expected = "at most a third of the hold time (RFC 4271 section 4.4)";
            conflict(&self.span(&KEEPALIVE_S), message, expected);
        }
        if let Some(address) = transport.local_address
            && address.is_ipv4() != config.address.is_ipv4()
        {
            let message =
                format!("local address {address} is of another family than neighbor {}", config.address);
            conflict(&self.span(&LOCAL_ADDRESS), message, "an address of the neighbor's family");
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

fn families(reader: &mut Reader, item: &Item<'_>) -> Option<[bool; 2]> {
    let mut families = [false; 2];
    for entry in reader.filled_list(item) {
        if let Some(family) = reader.word(&entry, &FAMILIES) {
            families[family.index()] = true;
        }
    }
    Some(families)
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

/// RFC 4271 section 4.2: 0, or at least 3.
fn hold_time(reader: &mut Reader, item: &Item<'_>) -> Option<u16> {
    let seconds: u16 = reader.integer(item, 0..=65535, "seconds")?;
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
    Some(seconds)
}

fn set_next_hops(config: &mut NeighborConfig, addresses: &[IpAddr]) {
    for address in addresses {
        match address {
            IpAddr::V4(address) => config.export.next_hop_ipv4 = Some(*address),
            IpAddr::V6(address) => config.export.next_hop_ipv6 = Some(*address),
        }
    }
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
        prefixes.push(reader.parse(&entry, bgp_prefix)?.value);
    }
    Some(HonorBlackhole::Within(prefixes.into()))
}

/// `true`, `false` or a list of kinds.
fn send_communities(reader: &mut Reader, item: &Item<'_>) -> Option<SendCommunities> {
    if let DeValue::Boolean(all) = item.value {
        return Some(SendCommunities { standard: *all, extended: *all, large: *all });
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
    Some(kinds)
}

table! {
    static MAX_PREFIXES_TABLE: "bgp.shared.max_prefixes", "`max_prefixes`";

    static MAX_IPV4: Key<u32> =
        Key::number("ipv4", 1..=U32).unit("prefixes").otherwise("no limit").help("limit of IPv4 prefixes");
    static MAX_IPV6: Key<u32> =
        Key::number("ipv6", 1..=U32).unit("prefixes").otherwise("no limit").help("limit of IPv6 prefixes");
    static WARN_PERCENT: Key<u8> = Key::number("warn_percent", 1..=100)
        .unit("percent")
        .default(75)
        .help("share of a limit at which a warning is logged");
    static MAX_ACTION: Key<MaxPrefixesAction> = Key::word(
        "action",
        &[
            ("warn", MaxPrefixesAction::Warn),
            ("restart", MaxPrefixesAction::Restart { after_s: 300 }),
            ("stop", MaxPrefixesAction::Stop),
        ],
    )
    .otherwise("`\"stop\"`; with `restart_s` `\"restart\"`")
    .help("action when a limit is exceeded");
    static RESTART_S: Key<u32> = Key::number("restart_s", 1..=TIME_MAX_S)
        .unit("seconds")
        .otherwise("300")
        .help("time until the session opens again");
}

fn max_prefixes(reader: &mut Reader, item: &Item<'_>) -> Option<[Option<MaxPrefixes>; 2]> {
    let mut section = reader.section(item, &MAX_PREFIXES_TABLE)?;
    let limits = [section.get(reader, &MAX_IPV4), section.get(reader, &MAX_IPV6)];
    if limits == [None; 2] && !section.is_empty() {
        let message = "`max_prefixes` limits no family";
        reader.error(ErrorKind::MissingKey, &item.span, message, "`ipv4 = 1000` or `ipv6 = 200`");
    }
    let warn_percent = section.get(reader, &WARN_PERCENT).unwrap_or(75);
    let restart = section.take(&RESTART_S);
    let restart_s = restart.as_ref().and_then(|item| RESTART_S.value(reader, item));
    let mut action = section.get(reader, &MAX_ACTION).unwrap_or(match restart {
        Some(_) => MaxPrefixesAction::Restart { after_s: 300 },
        None => MaxPrefixesAction::Stop,
    });
    if let MaxPrefixesAction::Restart { after_s } = &mut action {
        *after_s = restart_s.unwrap_or(*after_s);
    } else if let Some(item) = &restart {
        let message = "`restart_s` without a restart";
        reader.error(ErrorKind::Conflict, &item.span, message, "`action = \"restart\"`");
    }
    section.finish(reader);
    Some(limits.map(|limit| limit.map(|limit| MaxPrefixes { limit, warn_percent, action })))
}

table! {
    static ADD_PATH_TABLE: "bgp.shared.add_path", "`add_path`";

    static ADD_PATH_IPV4: Key<(bool, bool)> =
        Key::word("ipv4", &ADD_PATH_WAYS).otherwise("neither").session().help("for IPv4");
    static ADD_PATH_IPV6: Key<(bool, bool)> =
        Key::word("ipv6", &ADD_PATH_WAYS).otherwise("neither").session().help("for IPv6");
    static PATHS: Key<u8> = Key::number("paths", 2..=64)
        .unit("paths")
        .default(2)
        .session()
        .help("limit of paths per prefix to announce");
}

/// Whether several paths are sent, and whether they are received.
const ADD_PATH_WAYS: [(&str, (bool, bool)); 3] =
    [("send", (true, false)), ("receive", (false, true)), ("both", (true, true))];

fn add_path(reader: &mut Reader, item: &Item<'_>) -> Option<[AddPathConfig; 2]> {
    let mut section = reader.section(item, &ADD_PATH_TABLE)?;
    let paths = section.get(reader, &PATHS).unwrap_or(2);
    let ways = [section.get(reader, &ADD_PATH_IPV4), section.get(reader, &ADD_PATH_IPV6)];
    section.finish(reader);
    Some(ways.map(|way| {
        let (sends, receive) = way.unwrap_or_default();
        AddPathConfig { receive, send_paths: if sends { paths } else { 0 } }
    }))
}

table! {
    static GRACEFUL_RESTART_TABLE: "bgp.shared.graceful_restart", "`graceful_restart`";

    /// RFC 4724 has 12 bits for it.
    static TIME_S: Key<u16> = Key::number("time_s", 0..=4095)
        .unit("seconds")
        .default_of(|| GracefulRestartConfig::default().time_s)
        .session()
        .help("restart time to announce to neighbors");
    static STALE_PATH_S: Key<u32> = Key::number("stale_path_s", 1..=TIME_MAX_S)
        .unit("seconds")
        .default_of(|| GracefulRestartConfig::default().stale_path_s)
        .session()
        .help("how long to keep routes of a restarting neighbor");
    static NOTIFICATION: Key<bool> = Key::flag("notification")
        .default_of(|| GracefulRestartConfig::default().notification)
        .session()
        .help("keep routes after a NOTIFICATION too (RFC 8538)");
    static FORWARDING_PRESERVED: Key<bool> = Key::flag("forwarding_preserved")
        .otherwise("true unless this router forwards packets itself without `save_fib`")
        .session()
        .help("this router keeps forwarding while it restarts");
}

/// `true`, `false` or a table.
fn graceful_restart(reader: &mut Reader, item: &Item<'_>) -> Option<GracefulRestart> {
    let (mut config, mut promised) = (GracefulRestartConfig::default(), None);
    if let DeValue::Boolean(on) = item.value {
        return Some(GracefulRestart { config: on.then_some(config), promised });
    }
    let mut section = reader.section(item, &GRACEFUL_RESTART_TABLE)?;
    section.set(reader, &TIME_S, &mut config.time_s);
    section.set(reader, &STALE_PATH_S, &mut config.stale_path_s);
    section.set(reader, &NOTIFICATION, &mut config.notification);
    if let Some(at) = section.read(reader, &FORWARDING_PRESERVED) {
        config.forwarding_preserved = at.value;
        promised = at.value.then_some(at.span);
    }
    section.finish(reader);
    Some(GracefulRestart { config: Some(config), promised })
}

/// A neighbor's AS: one, several (for dynamic neighbors), or any.
pub(crate) fn remote_as(reader: &mut Reader, item: &Item<'_>) -> Option<RemoteAs> {
    let remote_as = match item.value {
        DeValue::Integer(_) => RemoteAs::One(reader.integer(item, 1..=u64::from(u32::MAX), "")?),
        DeValue::String(text) if text == "any" => RemoteAs::Any,
        DeValue::String(_) | DeValue::Array(_) => {
            let mut ranges = Vec::new();
            for entry in reader.filled_list(item) {
                ranges.push(crate::policy_sets::as_range(reader, &entry)?.into_inner());
            }
            RemoteAs::AnyOf(ranges)
        }
        _ => return reader.wrong_type(item, "an AS number, a list of numbers and ranges, or \"any\""),
    };
    Some(remote_as)
}

//! The configuration of one neighbor: every setting of `[[bgp.neighbor]]`, with the defaults of its group and the
//! daemon already applied.
//!
//! The settings are grouped by their readers: the session ([`NeighborConfig::timers`],
//! [`NeighborConfig::capabilities`]), the import path ([`ImportConfig`]), the export side ([`ExportConfig`]) and
//! the code that opens sockets ([`TransportConfig`]). A reload compares the old value with the new one;
//! [`NeighborConfig::difference`] says what becomes of the session.
//!
//! Policies are only named here. When the text of a rule set changes, it is compiled again and swapped without a
//! change of the neighbor's configuration.
//!
//! A dynamic neighbor (a whole prefix of addresses) is a [`DynamicRange`]: a template and a bound.
//! [`DynamicRange::neighbor`] makes the configuration of one address in it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_wire::bgp::Family;

use crate::peer::{PeerKind, Role};

/// The port BGP listens on.
pub const BGP_PORT: u16 = 179;

/// The settings of one neighbor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighborConfig {
    /// The name in logs and commands: the address, unless the configuration gives a name.
    pub name: Arc<str>,
    pub description: Option<String>,
    /// The `[[bgp.group]]` it belongs to.
    pub group: Option<Arc<str>>,
    /// `false`: administratively down from the beginning.
    pub enabled: bool,
    pub address: IpAddr,
    pub remote_as: RemoteAs,
    /// Our AS number; inside a confederation, our member AS.
    pub local_as: u32,
    /// Our BGP identifier (RFC 6286: any value but 0).
    pub router_id: Ipv4Addr,
    /// The confederation we are a member of (RFC 5065).
    pub confederation: Option<Arc<Confederation>>,
    /// Only accepts connections and does not open any.
    pub passive: bool,
    pub transport: TransportConfig,
    pub timers: TimerConfig,
    pub capabilities: CapabilityConfig,
    /// The neighbor's business relation to us (RFC 9234): `Some(Provider)` means that *it* sells us transit, and we
    /// announce the role Customer.
    pub role: Option<Role>,
    /// Refuse a session with a neighbor that announces no role (strict mode of RFC 9234). Needs `role`.
    pub role_strict: bool,
    /// By [`Family::index`].
    pub max_prefixes: [Option<MaxPrefixes>; 2],
    pub import: ImportConfig,
    pub export: ExportConfig,
}

/// The AS numbers that a neighbor may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteAs {
    One(u32),
    /// One of these ranges, both ends included (a dynamic neighbor).
    AnyOf(Vec<(u32, u32)>),
    /// Any but 0 (a dynamic neighbor).
    Any,
}

impl RemoteAs {
    /// Whether a neighbor may have this AS number. It may never have AS 0 (RFC 7607).
    pub fn matches(&self, asn: u32) -> bool {
        asn != 0
            && match self {
                Self::One(one) => *one == asn,
                Self::AnyOf(ranges) => ranges.iter().any(|&(first, last)| first <= asn && asn <= last),
                Self::Any => true,
            }
    }
}

impl fmt::Display for RemoteAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(one) => write!(f, "AS {one}"),
            Self::Any => f.write_str("any AS"),
            Self::AnyOf(ranges) => {
                f.write_str("AS")?;
                for (index, (first, last)) in ranges.iter().enumerate() {
                    f.write_str(if index == 0 { " " } else { ", " })?;
                    match first == last {
                        true => write!(f, "{first}")?,
                        false => write!(f, "{first}-{last}")?,
                    }
                }
                Ok(())
            }
        }
    }
}

/// A confederation as one of its members sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Confederation {
    /// The AS number that neighbors outside the confederation see.
    pub id: u32,
    /// The member ASes, with or without ours.
    pub members: Vec<u32>,
}

/// The settings of the TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportConfig {
    /// The port to connect to.
    pub port: u16,
    /// The address to connect from, and the only one to accept connections on.
    pub local_address: Option<IpAddr>,
    /// TCP MD5 signature (RFC 2385).
    pub password: Option<Password>,
    /// Generalized TTL security (RFC 5082): the largest distance of the neighbor in hops.
    pub ttl_security_hops: Option<u8>,
    /// The TTL of packets to an external neighbor that is not directly connected. Without it, an external neighbor
    /// must be one hop away.
    pub multihop_ttl: Option<u8>,
}

/// A secret that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Wraps a secret, so that logs do not show it.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret in the clear, for the socket option.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(***)")
    }
}

/// The timers of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerConfig {
    /// The hold time that we offer; 0 (never expires) or at least 3.
    pub hold_time_s: u16,
    /// Refuses a neighbor that offers less than this; 0 refuses none.
    pub hold_time_min_s: u16,
    /// The longest time between KEEPALIVEs. A third of the negotiated hold time if that is shorter or this is not
    /// set.
    pub keepalive_s: Option<u16>,
    /// The longest time between two attempts to connect. The first attempts come sooner, at intervals that double
    /// from one second.
    pub connect_retry_s: u16,
    /// The hold time until OPEN arrives (RFC 4271 8.2.2 suggests a large one, 240 s).
    pub open_hold_s: u16,
    /// The time in Idle after the first protocol error; doubles with each further one in a row.
    pub idle_hold_s: u16,
    /// The most that `idle_hold_s` doubles to.
    pub idle_hold_max_s: u16,
    /// Send hold time (RFC 9687): how long a neighbor may read nothing while we have something to send. `None`:
    /// eight minutes or twice the hold time, whichever is larger.
    pub send_hold_s: Option<u32>,
    /// How long routes are kept after a refresh that began (RFC 7313) and did not end.
    pub refresh_stale_s: u32,
    /// The shortest time between two announcements of one prefix to the neighbor (MinRouteAdvertisementInterval);
    /// 0: none.
    pub mrai_ms: u32,
    /// Withdrawals wait for `mrai_ms` too.
    pub mrai_withdrawals: bool,
}

impl Default for TimerConfig {
    fn default() -> Self {
        Self {
            hold_time_s: 90,
            hold_time_min_s: 0,
            keepalive_s: None,
            connect_retry_s: 30,
            open_hold_s: 240,
            idle_hold_s: 1,
            idle_hold_max_s: 120,
            send_hold_s: None,
            refresh_stale_s: 600,
            mrai_ms: 0,
            mrai_withdrawals: true,
        }
    }
}

/// The capabilities that OPEN offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapabilityConfig {
    /// Families to exchange, by [`Family::index`].
    pub families: [bool; 2],
    /// Four-octet AS numbers (RFC 6793). Off only for an old neighbor that cannot bear the capability.
    pub four_octet_as: bool,
    /// Route refresh (RFC 2918).
    pub route_refresh: bool,
    /// Enhanced route refresh (RFC 7313).
    pub enhanced_refresh: bool,
    /// Messages of up to 65,535 bytes (RFC 8654).
    pub extended_messages: bool,
    /// IPv4 routes with IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// Additional paths (RFC 7911), by family.
    pub add_path: [AddPathConfig; 2],
    /// Graceful restart (RFC 4724). `None`: not offered, and the neighbor's routes are removed when its session
    /// ends.
    pub graceful_restart: Option<GracefulRestartConfig>,
}

impl Default for CapabilityConfig {
    fn default() -> Self {
        Self {
            families: [true, false],
            four_octet_as: true,
            route_refresh: true,
            enhanced_refresh: true,
            extended_messages: true,
            extended_next_hop: false,
            add_path: [AddPathConfig::default(); 2],
            graceful_restart: None,
        }
    }
}

/// Additional paths of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddPathConfig {
    /// Offers to receive them.
    pub receive: bool,
    /// The most paths of a prefix to send; 0: does not offer to send them.
    pub send_paths: u8,
}

/// Graceful restart (RFC 4724, RFC 8538).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GracefulRestartConfig {
    /// How long a neighbor should wait for us to come back, at most 4095.
    pub time_s: u16,
    /// How long the routes of a neighbor that came back are kept until its End-of-RIB.
    pub stale_path_s: u32,
    /// Restart gracefully after a NOTIFICATION too, if the neighbor can (RFC 8538).
    pub notification: bool,
    /// Forwarding continues while the daemon is away. Without it, the capability names no family: neighbors drop
    /// our routes when the session ends, and we still keep theirs.
    pub forwarding_preserved: bool,
}

impl Default for GracefulRestartConfig {
    fn default() -> Self {
        Self { time_s: 120, stale_path_s: 360, notification: true, forwarding_preserved: true }
    }
}

/// The limit of a family's prefixes from one neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPrefixes {
    /// The most prefixes that are accepted.
    pub limit: u32,
    /// Percentage of the limit at which to warn.
    pub warn_percent: u8,
    pub action: MaxPrefixesAction,
}

impl MaxPrefixes {
    /// The smallest number of prefixes at which to warn.
    pub fn warns_at(self) -> u32 {
        let share = u64::from(self.limit) * u64::from(self.warn_percent.min(100));
        (share.div_ceil(100) as u32).max(1)
    }
}

/// What happens above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxPrefixesAction {
    /// Logs a warning and does nothing else.
    Warn,
    /// Ends the session, which comes back after some time.
    Restart {
        /// Seconds of rest.
        after_s: u32,
    },
    /// Ends the session until an operator starts it.
    Stop,
}

/// The treatment of a neighbor's routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportConfig {
    /// Rule sets in order. `None`: none is configured, so all routes of an external neighbor are rejected (RFC
    /// 8212). The names "accept" and "reject" are built in.
    pub rules: Option<Vec<Arc<str>>>,
    /// How many times our own AS may be in the AS_PATH.
    pub allow_own_as: u8,
    /// Reject paths with AS_SET or AS_CONFED_SET (RFC 9774).
    pub reject_as_set: bool,
    /// Reject routes of an external neighbor whose AS_PATH does not begin with its AS. Never applied to the routes
    /// of a route server.
    pub first_as_check: bool,
    /// Reject prefixes that no network has (RFC 4271 6.3): see [`is_martian`](super::import::is_martian).
    pub martian_check: bool,
    pub honor_blackhole: HonorBlackhole,
    pub keep_rejected: KeepRejected,
    /// Reject routes that the RPKI calls invalid, before policy.
    pub reject_invalid: bool,
    /// Attributes to remove from received routes, by type code: an emergency measure against attributes that harm
    /// the network.
    pub discard_attributes: Vec<u8>,
}

impl Default for ImportConfig {
    fn default() -> Self {
        Self {
            rules: None,
            allow_own_as: 0,
            reject_as_set: true,
            first_as_check: true,
            martian_check: true,
            honor_blackhole: HonorBlackhole::No,
            keep_rejected: KeepRejected::None,
            reject_invalid: false,
            discard_attributes: Vec::new(),
        }
    }
}

/// Whether a neighbor's routes are kept as they were before import, so that rejected ones can be shown, and judged
/// again without the neighbor. Kept routes are never selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepRejected {
    #[default]
    None,
    /// Rejected ones that other VRPs may let in.
    Rpki,
    /// All that it sends, rejected or not (Adj-RIB-In before policy).
    All,
}

/// Which of a neighbor's routes with the community BLACKHOLE discard their traffic, once import policy has accepted
/// them (RFC 7999 3.3). All others with the community are ordinary routes. A default route never discards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HonorBlackhole {
    #[default]
    No,
    /// Those to a single address.
    Hosts,
    /// Those within one of these prefixes, which the neighbor is authorized to announce.
    Within(Arc<[IpPrefix]>),
}

impl HonorBlackhole {
    /// Whether a route to the prefix may discard its traffic.
    pub fn covers(&self, prefix: IpPrefix) -> bool {
        let within = |outer: &IpPrefix| match (outer, prefix) {
            (IpPrefix::V4(outer), IpPrefix::V4(prefix)) => outer.covers(prefix),
            (IpPrefix::V6(outer), IpPrefix::V6(prefix)) => outer.covers(prefix),
            _ => false,
        };
        match self {
            Self::No => false,
            Self::Hosts => {
                matches!((prefix, prefix.length()), (IpPrefix::V4(_), 32) | (IpPrefix::V6(_), 128))
            }
            Self::Within(prefixes) => prefix.length() > 0 && prefixes.iter().any(within),
        }
    }
}

/// The settings of what a neighbor is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportConfig {
    /// Rule sets in order. `None`: none is configured, so an external neighbor gets nothing (RFC 8212).
    pub rules: Option<Vec<Arc<str>>>,
    /// We reflect routes for it (RFC 4456).
    pub route_reflector_client: bool,
    /// We are a route server, and the neighbor is a client (RFC 7947).
    pub route_server_client: bool,
    /// Our cluster ID; `None`: our BGP identifier.
    pub cluster_id: Option<Ipv4Addr>,
    /// Announce ourselves as the next hop, even to an internal neighbor.
    pub next_hop_self: bool,
    /// Keep the next hop, even to an external neighbor.
    pub next_hop_unchanged: bool,
    /// The next hop of IPv4 routes; `None`: our address in the session.
    pub next_hop_ipv4: Option<Ipv4Addr>,
    /// The next hop of IPv6 routes; `None`: our address in the session.
    pub next_hop_ipv6: Option<std::net::Ipv6Addr>,
    pub private_as: PrivateAs,
    pub send_communities: SendCommunities,
}

impl Default for ExportConfig {
    fn default() -> Self {
        Self {
            rules: None,
            route_reflector_client: false,
            route_server_client: false,
            cluster_id: None,
            next_hop_self: false,
            next_hop_unchanged: false,
            next_hop_ipv4: None,
            next_hop_ipv6: None,
            private_as: PrivateAs::Keep,
            send_communities: SendCommunities::default(),
        }
    }
}

/// The treatment of private AS numbers in paths to an external neighbor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PrivateAs {
    #[default]
    Keep,
    Remove,
    /// Replaces them by our AS.
    Replace,
}

/// The kinds of communities that a neighbor is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendCommunities {
    pub standard: bool,
    pub extended: bool,
    pub large: bool,
}

impl Default for SendCommunities {
    fn default() -> Self {
        Self { standard: true, extended: true, large: true }
    }
}

/// What becomes of a session when its configuration changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigDifference {
    /// Nothing changed.
    None,
    /// The session stays up and uses the new values.
    Quiet,
    /// The session stays up; its routes are filtered again (route refresh, new export).
    Routes,
    /// The session must start again: its OPEN or its socket would be different.
    Session,
}

impl NeighborConfig {
    /// A neighbor with default settings.
    pub fn new(address: IpAddr, remote_as: u32, local_as: u32, router_id: Ipv4Addr) -> Self {
        Self {
            name: address.to_string().into(),
            description: None,
            group: None,
            enabled: true,
            address,
            remote_as: RemoteAs::One(remote_as),
            local_as,
            router_id,
            confederation: None,
            passive: false,
            transport: TransportConfig {
                port: BGP_PORT,
                local_address: None,
                password: None,
                ttl_security_hops: None,
                multihop_ttl: None,
            },
            timers: TimerConfig::default(),
            capabilities: CapabilityConfig::default(),
            role: None,
            role_strict: false,
            max_prefixes: [None; 2],
            import: ImportConfig::default(),
            export: ExportConfig::default(),
        }
    }

    /// The kind of a neighbor with this AS.
    pub fn kind(&self, remote_as: u32) -> PeerKind {
        let member = |c: &Arc<Confederation>| c.members.contains(&remote_as);
        if remote_as == self.local_as {
            match self.export.route_reflector_client {
                true => PeerKind::InternalClient,
                false => PeerKind::Internal,
            }
        } else if self.confederation.as_ref().is_some_and(member) {
            PeerKind::Confederation
        } else {
            PeerKind::External
        }
    }

    /// The kind of the neighbor, if it is certain before OPEN: with a range of ASes, if that contains none of ours.
    pub fn certain_kind(&self) -> Option<PeerKind> {
        if let RemoteAs::One(asn) = self.remote_as {
            return Some(self.kind(asn));
        }
        let members = self.confederation.iter().flat_map(|confederation| &confederation.members);
        let has_ours = members.chain([&self.local_as]).any(|asn| self.remote_as.matches(*asn));
        (!has_ours).then_some(PeerKind::External)
    }

    /// Whether a neighbor of this kind must be one hop away: an external one without a larger distance. Its session
    /// ends when the link to it does.
    pub fn is_one_hop_away(&self, kind: PeerKind) -> bool {
        let hops = self.transport.ttl_security_hops.or(self.transport.multihop_ttl);
        kind == PeerKind::External && hops.is_none_or(|hops| hops <= 1) && !self.address.is_loopback()
    }

    /// The AS number that a neighbor of this kind sees: outside the confederation, the confederation's.
    pub fn shown_as(&self, kind: PeerKind) -> u32 {
        match (&self.confederation, kind) {
            (Some(confederation), PeerKind::External) => confederation.id,
            _ => self.local_as,
        }
    }

    /// Our cluster ID (RFC 4456).
    pub fn cluster_id(&self) -> Ipv4Addr {
        self.export.cluster_id.unwrap_or(self.router_id)
    }

    /// Whether the family is exchanged.
    pub fn family(&self, family: Family) -> bool {
        self.capabilities.families[family.index()]
    }

    /// What becomes of the session if this replaces `old`.
    pub fn difference(&self, old: &Self) -> ConfigDifference {
        let session = |c: &Self| {
            (
                (c.enabled, c.address, c.remote_as.clone(), c.local_as, c.router_id, c.confederation.clone()),
                (c.transport.clone(), c.capabilities.clone(), c.role, c.role_strict),
                (c.timers.hold_time_s, c.timers.hold_time_min_s, c.timers.keepalive_s),
                (c.export.route_reflector_client, c.export.route_server_client),
            )
        };
        let routes = |c: &Self| (c.import.clone(), c.export.clone());
        if self == old {
            ConfigDifference::None
        } else if session(self) != session(old) {
            ConfigDifference::Session
        } else if routes(self) != routes(old) {
            ConfigDifference::Routes
        } else {
            ConfigDifference::Quiet
        }
    }
}

/// Addresses from which neighbors may connect without being configured one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicRange {
    pub prefixes: Vec<IpPrefix>,
    /// The most neighbors at a time; further ones are refused.
    pub max: usize,
    /// The settings of each; name and address are replaced.
    pub template: NeighborConfig,
}

impl DynamicRange {
    /// Whether a neighbor may have the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(address))
    }

    /// The neighbor at this address. It is passive: only its connection shows that it is there.
    pub fn neighbor(&self, address: IpAddr) -> NeighborConfig {
        NeighborConfig { name: address.to_string().into(), address, passive: true, ..self.template.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbor() -> NeighborConfig {
        NeighborConfig::new([198, 18, 1, 1].into(), 64_600, 65_000, Ipv4Addr::new(198, 18, 0, 1))
    }

    #[test]
    fn ranges_of_as_numbers() {
        let ranges = RemoteAs::AnyOf(vec![(64_512, 64_520), (65_001, 65_001)]);
        assert!(ranges.matches(64_512) && ranges.matches(64_520) && ranges.matches(65_001));
        assert!(!ranges.matches(64_511) && !ranges.matches(64_521));
        assert_eq!(ranges.to_string(), "AS 64512-64520, 65001");
        assert!(RemoteAs::Any.matches(1) && !RemoteAs::Any.matches(0));
        assert!(!RemoteAs::AnyOf(vec![(0, 10)]).matches(0));
    }

    #[test]
    fn what_a_neighbor_is_to_us() {
        let mut config = neighbor();
        assert_eq!(config.kind(64_600), PeerKind::External);
        assert_eq!(config.kind(65_000), PeerKind::Internal);
        config.export.route_reflector_client = true;
        assert_eq!(config.kind(65_000), PeerKind::InternalClient);
        config.confederation = Some(Arc::new(Confederation { id: 64_500, members: vec![65_000, 65_001] }));
        assert_eq!(config.kind(65_001), PeerKind::Confederation);
        assert_eq!(config.shown_as(PeerKind::External), 64_500);
        assert_eq!(config.shown_as(PeerKind::Confederation), 65_000);
    }

    #[test]
    fn ranges_of_as_numbers_may_leave_the_kind_open() {
        let mut config = neighbor();
        assert_eq!(config.certain_kind(), Some(PeerKind::External));
        let mut kind_of = |remote_as| {
            config.remote_as = remote_as;
            config.certain_kind()
        };
        assert_eq!(kind_of(RemoteAs::One(65_000)), Some(PeerKind::Internal));
        assert_eq!(kind_of(RemoteAs::Any), None);
        assert_eq!(
            kind_of(RemoteAs::AnyOf(vec![(64_512, 64_600), (65_001, 65_010)])),
            Some(PeerKind::External)
        );
        assert_eq!(kind_of(RemoteAs::AnyOf(vec![(64_512, 65_000)])), None);
        config.confederation = Some(Arc::new(Confederation { id: 64_500, members: vec![65_000, 65_001] }));
        config.remote_as = RemoteAs::AnyOf(vec![(65_001, 65_010)]);
        assert_eq!(config.certain_kind(), None);
    }

    #[test]
    fn external_neighbors_are_one_hop_away_unless_configured_otherwise() {
        let mut config = neighbor();
        assert!(config.is_one_hop_away(PeerKind::External));
        assert!(!config.is_one_hop_away(PeerKind::Internal));
        assert!(!config.is_one_hop_away(PeerKind::Confederation));
        config.transport.ttl_security_hops = Some(1);
        assert!(config.is_one_hop_away(PeerKind::External));
        config.transport.ttl_security_hops = Some(2);
        assert!(!config.is_one_hop_away(PeerKind::External));
        config.transport = TransportConfig { multihop_ttl: Some(3), ..neighbor().transport };
        assert!(!config.is_one_hop_away(PeerKind::External));
        config.transport.multihop_ttl = None;
        config.address = [127, 0, 0, 1].into();
        assert!(!config.is_one_hop_away(PeerKind::External));
    }

    #[test]
    fn differences_cost_what_they_touch() {
        let old = neighbor();
        assert_eq!(old.clone().difference(&old), ConfigDifference::None);
        let mut new = old.clone();
        new.description = Some("uplink".into());
        assert_eq!(new.difference(&old), ConfigDifference::Quiet);
        new.import.rules = Some(vec!["accept".into()]);
        assert_eq!(new.difference(&old), ConfigDifference::Routes);
        new.timers.hold_time_s = 30;
        assert_eq!(new.difference(&old), ConfigDifference::Session);
    }

    #[test]
    fn a_dynamic_neighbor_is_its_template_at_its_address() {
        let range =
            DynamicRange { prefixes: vec!["198.18.0.0/15".parse().unwrap()], max: 10, template: neighbor() };
        assert!(range.contains([198, 19, 255, 255].into()));
        assert!(!range.contains([198, 20, 0, 0].into()));
        assert!(!range.contains("2001:db8::1".parse().unwrap()));
        let one = range.neighbor([198, 19, 0, 7].into());
        assert_eq!(one.address, IpAddr::from([198, 19, 0, 7]));
        assert!(one.passive);
        assert_eq!(&*one.name, "198.19.0.7");
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut config = neighbor();
        config.transport.password = Some(Password::new("hunter2"));
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}

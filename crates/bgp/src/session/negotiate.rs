//! Builds our OPEN, checks the neighbor's, and derives what both agree on.
//!
//! RFC 4271 6.2 and 8, RFC 5492 (both ends must announce a capability, with the exceptions noted below), RFC 4760 8
//! (an OPEN without families means IPv4 unicast), RFC 6286, RFC 6793, RFC 7911, RFC 8654, RFC 9234.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use thalweg_wire::bgp::{
    AS_TRANS, AddPath, AfiSafi, Capabilities, Codec, ExtendedNextHop, Family, GracefulRestart, Notification,
    Open, RestartFamily, capability, error, open_error,
};

use super::config::{NeighborConfig, RemoteAs};
use crate::peer::{PeerId, PeerInfo, PeerKind, Role};

/// The longest restart time that the capability can encode.
const RESTART_TIME_MAX_S: u16 = 0x0fff;

thalweg_base::words! {
    /// One of the two connections a session may have while it comes up.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Connection {
        /// We opened it.
        Outgoing = 0 => "outgoing connection",
        /// The neighbor opened it.
        Incoming = 1 => "incoming connection",
    }
}

impl Connection {
    /// The other connection.
    pub const fn other(self) -> Self {
        match self {
            Self::Outgoing => Self::Incoming,
            Self::Incoming => Self::Outgoing,
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

/// What both ends negotiated for a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Negotiated {
    /// Which connection carries the session.
    pub connection: Connection,
    pub local_address: IpAddr,
    /// The neighbor's address.
    pub remote_address: IpAddr,
    /// The AS number we showed.
    pub local_as: u32,
    /// The neighbor's AS.
    pub remote_as: u32,
    /// What it is to us.
    pub kind: PeerKind,
    /// Its BGP identifier.
    pub remote_router_id: Ipv4Addr,
    /// The encoding of messages.
    pub codec: Codec,
    /// The families whose routes are exchanged.
    pub families: [bool; 2],
    /// Hold time; 0: none.
    pub hold_time_s: u16,
    /// Longest time between our KEEPALIVEs; 0: none are sent.
    pub keepalive_ms: u64,
    /// The neighbor supports route refresh.
    pub route_refresh: bool,
    /// The neighbor supports marks at its beginning and end (RFC 7313).
    pub enhanced_refresh: bool,
    /// The most paths of a prefix to send, by family; 0 without add-path.
    pub send_paths: [u8; 2],
    /// Set if graceful restart was negotiated.
    pub graceful_restart: Option<NeighborRestart>,
    /// The role it announced.
    pub role: Option<Role>,
    pub remote_open: Arc<Open>,
}

/// The neighbor's restart capability (RFC 4724, RFC 8538).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborRestart {
    /// It has just restarted and waits for our End-of-RIB.
    pub restarting: bool,
    /// Both ends restart gracefully after NOTIFICATIONs too.
    pub notification: bool,
    /// How long it may take to come back.
    pub time_s: u16,
    /// By family: `None` if its routes are not kept, otherwise whether forwarding was preserved.
    pub families: [Option<bool>; 2],
}

impl Negotiated {
    /// The neighbor in the form that routes and decisions need.
    pub fn peer_info(&self, id: PeerId, config: &NeighborConfig) -> PeerInfo {
        PeerInfo {
            id,
            name: config.name.clone(),
            address: self.remote_address,
            local_address: self.local_address,
            remote_as: self.remote_as,
            local_as: self.local_as,
            kind: self.kind,
            router_id: self.remote_router_id,
            role: if self.kind == PeerKind::External { config.role } else { None },
            route_server_client: config.export.route_server_client,
        }
    }

    /// Whether routes of the family are exchanged.
    pub fn family(&self, family: Family) -> bool {
        self.families[family.index()]
    }
}

impl fmt::Display for Negotiated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AS {}, identifier {},", self.remote_as, self.remote_router_id)?;
        for family in Family::ALL.into_iter().filter(|each| self.family(*each)) {
            write!(f, " {family}")?;
        }
        write!(f, ", hold time {} s", self.hold_time_s)
    }
}

/// The parts of our OPEN that do not depend on the configuration alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OfferState {
    /// The neighbor did not understand capabilities.
    pub(super) without_capabilities: bool,
    /// The daemon has just restarted.
    pub(super) restarting: bool,
    /// Forwarding by the neighbor's routes did not stop since the last session with it.
    pub(super) forwarding: bool,
}

/// The OPEN we send.
pub(super) fn offer(config: &NeighborConfig, state: OfferState) -> Open {
    let shown_as = config.shown_as(expected_kind(config));
    let hold_time_s = config.timers.hold_time_s;
    let mut open = Open::new(shown_as, hold_time_s, config.router_id, Capabilities::default());
    if state.without_capabilities {
        open.capabilities = Capabilities::default();
        return open;
    }
    let wanted = &config.capabilities;
    let families = || Family::ALL.into_iter().filter(|each| wanted.families[each.index()]);
    open.capabilities = Capabilities {
        families: families().map(AfiSafi::from).collect(),
        route_refresh: wanted.route_refresh,
        enhanced_refresh: wanted.enhanced_refresh,
        extended_message: wanted.extended_messages,
        four_octet_as: wanted.four_octet_as.then_some(shown_as),
        add_path: families().filter_map(|family| offered_paths(config, family)).collect(),
        extended_next_hop: match wanted.extended_next_hop && wanted.families[Family::Ipv4.index()] {
            true => vec![ExtendedNextHop { afi: 1, safi: 1, next_hop_afi: 2 }],
            false => Vec::new(),
        },
        graceful_restart: wanted.graceful_restart.map(|restart| GracefulRestart {
            restarting: state.restarting,
            notification: restart.notification,
            time_s: restart.time_s.min(RESTART_TIME_MAX_S),
            families: families()
                .filter(|_| restart.forwarding_preserved)
                .map(|family| RestartFamily { family: family.into(), forwarding: state.forwarding })
                .collect(),
        }),
        role: match expected_kind(config) {
            PeerKind::External => config.role.map(|role| counterpart(role) as u8),
            _ => None,
        },
        ..Capabilities::default()
    };
    open
}

/// What our OPEN takes the neighbor for, before its own says it: with ranges of ASes, what the first is.
fn expected_kind(config: &NeighborConfig) -> PeerKind {
    match &config.remote_as {
        RemoteAs::One(asn) => config.kind(*asn),
        RemoteAs::AnyOf(ranges) => {
            ranges.first().map_or(PeerKind::External, |&(first, _)| config.kind(first))
        }
        RemoteAs::Any => PeerKind::External,
    }
}

/// An AS number in the two-octet field of OPEN (RFC 6793).
fn two_bytes(asn: u32) -> u16 {
    u16::try_from(asn).unwrap_or(AS_TRANS)
}

fn offered_paths(config: &NeighborConfig, family: Family) -> Option<AddPath> {
    let wanted = config.capabilities.add_path[family.index()];
    let (receive, send) = (wanted.receive, wanted.send_paths > 0);
    (receive || send).then_some(AddPath { family: family.into(), receive, send })
}

/// Our role toward a neighbor with this role.
pub(super) fn counterpart(role: Role) -> Role {
    match role {
        Role::Provider => Role::Customer,
        Role::Customer => Role::Provider,
        Role::RouteServer => Role::RouteServerClient,
        Role::RouteServerClient => Role::RouteServer,
        Role::Peer => Role::Peer,
    }
}

fn role_from_byte(byte: u8) -> Option<Role> {
    [Role::Provider, Role::RouteServer, Role::RouteServerClient, Role::Customer, Role::Peer]
        .into_iter()
        .find(|role| *role as u8 == byte)
}

/// A problem with a well-formed OPEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenProblem {
    /// The AS is another.
    RemoteAs {
        /// What came.
        got: u32,
        /// What is configured, in words.
        expected: String,
    },
    /// The identifier is 0, or that of this router inside one AS (RFC 6286).
    Identifier {
        /// What came.
        got: std::net::Ipv4Addr,
    },
    /// The hold time is too short.
    HoldTime {
        /// What came.
        got: u16,
        /// The least that would do.
        min: u16,
    },
    /// There is no family that both ends want.
    NoCommonFamily,
    /// The roles do not fit (RFC 9234).
    Role {
        /// What the neighbor says it is to us; `None` in strict mode.
        got: Option<Role>,
        /// What it is configured to be.
        expected: Role,
    },
    /// Nobody knows the role it announces.
    UnknownRole {
        /// The number that came.
        got: u8,
    },
}

impl fmt::Display for OpenProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RemoteAs { got, expected } => write!(f, "the neighbor has AS {got}, expected {expected}"),
            Self::Identifier { got } => write!(f, "the neighbor's BGP identifier is {got}"),
            Self::HoldTime { got, min } => write!(f, "hold time {got} s, the least is {min} s"),
            Self::NoCommonFamily => f.write_str("no address family in common"),
            Self::Role { got: Some(got), expected } => {
                write!(f, "the neighbor claims to be our {got:?}, configured is {expected:?}")
            }
            Self::Role { got: None, expected } => {
                write!(f, "the neighbor announces no role; it has to be our {expected:?}")
            }
            Self::UnknownRole { got } => write!(f, "the neighbor announces the unknown role {got}"),
        }
    }
}

/// A rejected OPEN: the NOTIFICATION for the neighbor and the problem for the log.
pub(super) type Unacceptable = (Notification, OpenProblem);

/// The ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) connection: Connection,
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
}

/// Derives what our OPEN and the neighbor's agree on.
pub(super) fn agree(
    config: &NeighborConfig,
    offered: &Open,
    remote: Open,
    ends: Ends,
) -> Result<Negotiated, Unacceptable> {
    let remote_as = remote.asn();
    let kind = config.kind(remote_as);
    check_identity(config, offered, &remote, kind)?;
    let role = check_role(config, &remote, kind)?;
    let (ours, theirs) = (&offered.capabilities, &remote.capabilities);
    let families = Family::ALL.map(|family| ours.supports(family) && theirs.supports(family));
    if families == [false, false] {
        let mut data = Vec::new();
        for family in &ours.families {
            let [high, low] = family.afi.to_be_bytes();
            data.extend_from_slice(&[capability::MULTIPROTOCOL, 4, high, low, 0, family.safi]);
        }
        let notification = Notification::with_data(error::OPEN, open_error::UNSUPPORTED_CAPABILITY, &data);
        return Err((notification, OpenProblem::NoCommonFamily));
    }
    let paths = |family: Family, one: &Capabilities, other: &Capabilities| {
        families[family.index()]
            && one.add_path(family).is_some_and(|way| way.send)
            && other.add_path(family).is_some_and(|way| way.receive)
    };
    let codec = Codec {
        four_octet_as: ours.four_octet_as.is_some() && theirs.four_octet_as.is_some(),
        extended_messages: ours.extended_message && theirs.extended_message,
        add_path_receive: Family::ALL.map(|family| paths(family, theirs, ours)),
        add_path_send: Family::ALL.map(|family| paths(family, ours, theirs)),
        extended_next_hop: ours.ipv4_with_ipv6_next_hop() && theirs.ipv4_with_ipv6_next_hop(),
    };
    let hold_time_s = offered.hold_time_s.min(remote.hold_time_s);
    let send_paths = Family::ALL.map(|family| match codec.add_path_send[family.index()] {
        true => config.capabilities.add_path[family.index()].send_paths,
        false => 0,
    });
    Ok(Negotiated {
        connection: ends.connection,
        local_address: ends.local,
        remote_address: ends.remote,
        local_as: config.shown_as(kind),
        remote_as,
        kind,
        remote_router_id: remote.router_id,
        codec,
        families,
        hold_time_s,
        keepalive_ms: keepalive_ms(config, hold_time_s),
        route_refresh: ours.route_refresh && theirs.route_refresh,
        enhanced_refresh: ours.enhanced_refresh && theirs.enhanced_refresh,
        send_paths,
        graceful_restart: neighbor_restart(ours, theirs, families),
        role,
        remote_open: Arc::new(remote),
    })
}

/// The time between KEEPALIVEs: a third of the hold time, or less if configured.
fn keepalive_ms(config: &NeighborConfig, hold_time_s: u16) -> u64 {
    let third = u64::from(hold_time_s) * 1000 / 3;
    match config.timers.keepalive_s {
        Some(configured) if hold_time_s > 0 && configured > 0 => third.min(u64::from(configured) * 1000),
        _ => third,
    }
}

fn check_identity(
    config: &NeighborConfig,
    offered: &Open,
    remote: &Open,
    kind: PeerKind,
) -> Result<(), Unacceptable> {
    let refuse = |subcode, problem| Err((Notification::new(error::OPEN, subcode), problem));
    let got = remote.asn();
    // A range may contain members of the confederation and others; then we may have shown the wrong AS.
    let shown_fits = offered.my_as == two_bytes(config.shown_as(kind));
    if !config.remote_as.matches(got) || !shown_fits {
        let expected = config.remote_as.to_string();
        return refuse(open_error::BAD_PEER_AS, OpenProblem::RemoteAs { got, expected });
    }
    let own = kind.is_internal() && remote.router_id == config.router_id;
    if remote.router_id.is_unspecified() || own {
        let got = remote.router_id;
        return refuse(open_error::BAD_IDENTIFIER, OpenProblem::Identifier { got });
    }
    let (got, min) = (remote.hold_time_s, config.timers.hold_time_min_s);
    if matches!(got, 1 | 2) || (got != 0 && got < min) {
        return refuse(open_error::UNACCEPTABLE_HOLD_TIME, OpenProblem::HoldTime { got, min: min.max(3) });
    }
    Ok(())
}

/// RFC 9234 4.2. A role that is unknown cannot have been configured.
fn check_role(config: &NeighborConfig, remote: &Open, kind: PeerKind) -> Result<Option<Role>, Unacceptable> {
    let got = remote.capabilities.role.map(role_from_byte);
    let Some(expected) = config.role.filter(|_| kind == PeerKind::External) else { return Ok(got.flatten()) };
    let fits = match got {
        None => !config.role_strict,
        Some(role) => role == Some(expected),
    };
    if fits {
        return Ok(got.flatten());
    }
    let problem = match got {
        Some(None) => OpenProblem::UnknownRole { got: remote.capabilities.role.unwrap_or_default() },
        got => OpenProblem::Role { got: got.flatten(), expected },
    };
    Err((Notification::new(error::OPEN, open_error::ROLE_MISMATCH), problem))
}

fn neighbor_restart(
    ours: &Capabilities,
    theirs: &Capabilities,
    families: [bool; 2],
) -> Option<NeighborRestart> {
    let (own, restart) = (ours.graceful_restart.as_ref()?, theirs.graceful_restart.as_ref()?);
    let kept = |family: Family| {
        let listed = restart.families.iter().find(|each| each.family == family.into());
        listed.filter(|_| families[family.index()]).map(|each| each.forwarding)
    };
    Some(NeighborRestart {
        restarting: restart.restarting,
        notification: own.notification && restart.notification,
        time_s: restart.time_s,
        families: Family::ALL.map(kept),
    })
}

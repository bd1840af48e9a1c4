//! What the firewall is told: zones, their policy, rules, timeouts and limits.

use crate::acl::Rule;
use crate::helpers::Helpers;
use crate::rate_limit::Rate;

thalweg_base::words! {
    /// What becomes of a connection that no rule decides about.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Policy {
        /// It passes within a zone, and from any zone to one outside.
        OutgoingOnly => "outgoing-only",
        /// It is dropped.
        Deny => "deny",
        /// It passes.
        Permit => "permit",
    }
}

thalweg_base::words! {
    /// What a packet is to the firewall.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum PacketState {
        /// It begins a connection, or nothing is remembered of its kind.
        New = 0 => "new",
        /// It belongs to a connection that was permitted.
        Established = 1 => "established",
        /// An ICMP error about such a connection, or the first packet of one that such a connection has announced.
        Related = 2 => "related",
        /// It belongs to no connection, and cannot begin one.
        Invalid = 3 => "invalid",
    }
}

/// A zone's number: zone 0 has the ports that are in no other zone, [`ROUTER`] is the router itself.
pub type Zone = u8;

/// The zone of the router itself.
pub const ROUTER: Zone = Zone::MAX;

/// A rule between zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneRule {
    /// What it matches in a packet, as the real hosts see it, and what happens.
    pub rule: Rule,
    /// The zones that packets come from; empty for any but the router itself.
    pub from: Vec<Zone>,
    /// The zones that packets go to, likewise.
    pub to: Vec<Zone>,
    /// What packets must be; empty for new ones alone.
    pub states: Vec<PacketState>,
    /// The most connections that it permits.
    pub limit: Option<Rate>,
    /// What it decides is logged.
    pub logs: bool,
}

impl ZoneRule {
    /// Whether it is about packets in this state from zone to zone.
    pub fn is_about(&self, state: PacketState, from: Zone, to: Zone) -> bool {
        let of = |zones: &[Zone], zone: Zone| zones.is_empty() && zone != ROUTER || zones.contains(&zone);
        let of_state = match self.states.is_empty() {
            true => state == PacketState::New,
            false => self.states.contains(&state),
        };
        of_state && of(&self.from, from) && of(&self.to, to)
    }
}

/// Idle timeouts of states, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateTimeouts {
    /// RFC 6092 REC-14: not below two minutes.
    pub udp_s: u32,
    /// RFC 6092 REC-35: not below two hours and four minutes.
    pub tcp_established_s: u32,
    /// RFC 6092 REC-35: not below four minutes.
    pub tcp_transitory_s: u32,
    /// Certainly refused or reset.
    pub tcp_aborted_s: u32,
    pub icmp_s: u32,
    pub other_s: u32,
}

impl StateTimeouts {
    pub const DEFAULT: Self = Self {
        udp_s: 120,
        tcp_established_s: 7440,
        tcp_transitory_s: 240,
        tcp_aborted_s: 10,
        icmp_s: 60,
        other_s: 300,
    };
}

/// The firewall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallConfig {
    /// By port; ports past the end are in zone 0.
    pub zones: Vec<Zone>,
    /// The zones outside.
    pub outside: Vec<Zone>,
    pub policy: Policy,
    /// The first that matches decides.
    pub rules: Vec<ZoneRule>,
    /// The size of the table.
    pub states_max: u32,
    /// The most connections of one host that nobody has answered, approximate.
    pub half_open_max: Option<u32>,
    /// TCP segments must be in their window.
    pub checks_windows: bool,
    /// A plain acknowledgment can begin a connection that was there before the firewall.
    pub picks_up: bool,
    pub timeouts: StateTimeouts,
    /// Protocols whose messages announce connections, where NAT does not translate them.
    pub helpers: Helpers,
}

impl FirewallConfig {
    /// The most zones, zone 0 included.
    pub const ZONES_MAX: usize = 32;
    /// The most states: 92 bytes each.
    pub const STATES_MOST: u32 = 1 << 26;

    /// Whether another configuration decides the same about every new connection.
    pub fn decides_like(&self, other: &Self) -> bool {
        let of = |config: &Self| (config.policy, config.zones.clone(), config.outside.clone());
        self.rules == other.rules && of(self) == of(other)
    }

    /// Whether more than the first packet of a connection is decided about.
    pub fn needs_every_packet(&self) -> bool {
        self.checks_windows || self.rules.iter().any(|rule| rule.states.contains(&PacketState::Established))
    }

    /// Whether a rule is about packets for the router itself, or from it. Otherwise these are not the firewall's.
    pub fn names_router(&self) -> bool {
        self.rules.iter().any(|rule| rule.from.contains(&ROUTER) || rule.to.contains(&ROUTER))
    }

    /// The zone of a port.
    pub fn zone(&self, port: u16) -> Zone {
        self.zones.get(usize::from(port)).copied().unwrap_or(0)
    }

    /// Whether the policy alone permits a connection from zone to zone. It permits those of the router itself.
    pub fn permits(&self, from: Zone, to: Zone) -> bool {
        match self.policy {
            _ if from == ROUTER || to == ROUTER => true,
            Policy::Permit => true,
            Policy::Deny => false,
            Policy::OutgoingOnly => from == to || self.outside.contains(&to) && !self.outside.contains(&from),
        }
    }
}

//! What the firewall tells the log: it has no log itself.

use super::config::PacketState;
use crate::acl::Action;

/// A packet that a rule with `log` decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirewallEvent {
    /// By the packet clock.
    pub time_ns: u64,
    pub rule: u16,
    pub action: Action,
    pub state: PacketState,
    pub port_in: u16,
    pub port_out: u16,
    pub protocol: u8,
    pub is_ipv6: bool,
    /// Address (IPv4 in the lowest 32 bits) and port.
    pub source: (u128, u16),
    pub destination: (u128, u16),
}

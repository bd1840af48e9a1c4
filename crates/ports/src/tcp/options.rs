//! Socket options of a connection.

use std::os::fd::AsFd;

use socket2::Socket;

use super::error::{TcpError, option};
use crate::socket_option;

/// DSCP CS6 as a byte of the header: the usual mark of routing protocols (RFC 4594).
const CLASS_SELECTOR_6: u32 = 0xc0;

/// The allowed distance of the neighbor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HopLimit {
    /// For internal neighbors: packets have the system's default TTL, and any TTL is accepted.
    #[default]
    Any,
    /// Packets are sent with this TTL: 1 for directly connected external neighbors, more for multihop.
    Send(u8),
    /// GTSM (RFC 5082): packets are sent with TTL 255 and accepted only from a neighbor at most this many
    /// hops away (1 is directly connected).
    Gtsm(u8),
}

impl HopLimit {
    /// The TTL to send with, unless it is the system's.
    pub fn sent(self) -> Option<u8> {
        match self {
            Self::Any => None,
            Self::Send(ttl) => Some(ttl),
            Self::Gtsm(_) => Some(255),
        }
    }

    /// The lowest accepted TTL; 0 for any.
    pub fn minimum(self) -> u8 {
        match self {
            Self::Any | Self::Send(_) => 0,
            Self::Gtsm(hops) => 255 - hops.max(1) + 1,
        }
    }
}

/// Sets the options of a connection.
pub(super) fn apply(socket: &Socket, v6: bool, hop_limit: HopLimit) -> Result<(), TcpError> {
    socket.set_tcp_nodelay(true).map_err(option("TCP_NODELAY"))?;
    // The hold timer detects dead neighbors; a second mechanism would only end sessions without saying why.
    socket.set_keepalive(false).map_err(option("keepalive off"))?;
    if let Some(ttl) = hop_limit.sent() {
        set_ttl(socket, v6, ttl)?;
    }
    set_minimum_ttl(socket, v6, hop_limit.minimum())?;
    let marked = match v6 {
        true => socket.set_tclass_v6(CLASS_SELECTOR_6),
        false => socket.set_tos_v4(CLASS_SELECTOR_6),
    };
    marked.map_err(option("the traffic class"))
}

pub(super) fn set_ttl(socket: &Socket, v6: bool, ttl: u8) -> Result<(), TcpError> {
    let set = if v6 { socket.set_unicast_hops_v6(ttl.into()) } else { socket.set_ttl_v4(ttl.into()) };
    set.map_err(option("the TTL"))
}

/// Makes the kernel drop packets with a lower TTL.
fn set_minimum_ttl(socket: &Socket, v6: bool, ttl: u8) -> Result<(), TcpError> {
    let (level, name) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT) } else { (libc::IPPROTO_IP, libc::IP_MINTTL) };
    socket_option::set_int(socket.as_fd(), level, name, ttl.into())
        .map_err(option("GTSM (the lowest TTL taken)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbor_next_door_must_send_255() {
        assert_eq!(HopLimit::Gtsm(1).minimum(), 255);
        assert_eq!(HopLimit::Gtsm(2).minimum(), 254);
        assert_eq!(HopLimit::Gtsm(255).minimum(), 1);
        assert_eq!(HopLimit::Gtsm(0).minimum(), 255, "no neighbor is nearer than next door");
        assert_eq!(HopLimit::Send(3).minimum(), 0);
        assert_eq!(
            (HopLimit::Gtsm(3).sent(), HopLimit::Send(3).sent(), HopLimit::Any.sent()),
            (Some(255), Some(3), None)
        );
    }
}

//! Predicts what a session would negotiate with a neighbor that offers everything we ask for, to evaluate a
//! configuration before a session exists.

use std::net::{IpAddr, Ipv4Addr};

use thalweg_wire::bgp::{AddPath, Capabilities, Open};

use super::config::NeighborConfig;
use super::negotiate::{Connection, Ends, Negotiated, OfferState, OpenProblem, agree, offer};

/// Facts about a neighbor that its configuration does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssumedNeighbor {
    pub asn: u32,
    pub router_id: Ipv4Addr,
    /// Our address in the session.
    pub local_address: IpAddr,
}

/// The session with this neighbor if its OPEN mirrors ours.
pub fn assume(config: &NeighborConfig, neighbor: AssumedNeighbor) -> Result<Negotiated, OpenProblem> {
    let offered = offer(config, OfferState::default());
    let capabilities = offered.capabilities.clone();
    let mirrored = |way: AddPath| AddPath { receive: way.send, send: way.receive, ..way };
    let capabilities = Capabilities {
        four_octet_as: capabilities.four_octet_as.map(|_| neighbor.asn),
        add_path: capabilities.add_path.into_iter().map(mirrored).collect(),
        // We announce our role toward it, and it announces its role toward us.
        role: capabilities.role.and(config.role).map(|role| role as u8),
        ..capabilities
    };
    let answer = Open::new(neighbor.asn, offered.hold_time_s, neighbor.router_id, capabilities);
    let ends =
        Ends { connection: Connection::Outgoing, local: neighbor.local_address, remote: config.address };
    agree(config, &offered, answer, ends).map_err(|(_, problem)| problem)
}

#[cfg(test)]
mod tests {
    use super::super::config::AddPathConfig;
    use super::*;
    use crate::peer::{PeerKind, Role};

    fn neighbor(asn: u32) -> AssumedNeighbor {
        AssumedNeighbor {
            asn,
            router_id: Ipv4Addr::new(192, 0, 2, 9),
            local_address: Ipv4Addr::UNSPECIFIED.into(),
        }
    }

    fn config() -> NeighborConfig {
        NeighborConfig::new([192, 0, 2, 9].into(), 64_501, 64_500, Ipv4Addr::new(192, 0, 2, 1))
    }

    #[test]
    fn what_is_offered_is_agreed_on() {
        let mut config = config();
        config.capabilities.add_path[0] = AddPathConfig { receive: true, send_paths: 3 };
        config.role = Some(Role::Provider);
        config.role_strict = true;
        let agreed = assume(&config, neighbor(64_501)).expect("a session");
        assert_eq!((agreed.kind, agreed.remote_as), (PeerKind::External, 64_501));
        assert_eq!(agreed.families, [true, false]);
        assert_eq!(agreed.send_paths, [3, 0]);
        assert!(agreed.codec.add_path_receive[0] && agreed.codec.four_octet_as);
        assert_eq!(agreed.role, Some(Role::Provider));
    }

    #[test]
    fn another_as_is_no_session() {
        let problem = assume(&config(), neighbor(64_502)).expect_err("no session");
        assert!(matches!(problem, OpenProblem::RemoteAs { got: 64_502, .. }));
    }
}

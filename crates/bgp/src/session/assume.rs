//! What a session would negotiate with a neighbor that offers everything we ask for: for code that evaluates a
//! configuration before a session exists.

use std::net::{IpAddr, Ipv4Addr};

use thalweg_wire::bgp::{AddPath, Capabilities, Open};

use super::config::NeighborConfig;
use super::negotiate::{Connection, Ends, Negotiated, OfferState, OpenProblem, agree, offer};

/// What of a neighbor its configuration does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssumedNeighbor {
    /// Its AS.
    pub asn: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// Our address toward it.
    pub local_address: IpAddr,
}

/// The session with this neighbor, if it answers our OPEN with its mirror image.
pub fn assume(config: &NeighborConfig, neighbor: AssumedNeighbor) -> Result<Negotiated, OpenProblem> {
    let offered = offer(config, OfferState::default());
    let capabilities = offered.capabilities.clone();
    let mirrored = |way: AddPath| AddPath { receive: way.send, send: way.receive, ..way };
    let capabilities = Capabilities {
        four_octet_as: capabilities.four_octet_as.map(|_| neighbor.asn),
        add_path: capabilities.add_path.into_iter().map(mirrored).collect(),
        // We say what we are to it, and it says what it is to us.
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

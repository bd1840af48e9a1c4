//! Sessions at a standby: those of the active router, and of no use to it before it takes over.

use super::super::{Filtering, NatLogging, PortForward, PortSelection, SessionState};
use super::nat64::{self, Edge};
use super::*;
use crate::standby::testing::stand_by;
use std::collections::BTreeSet;
use thalweg_wire::standby::Table;

/// What is the same on both routers.
type Same = (NatProtocol, SocketAddr, SocketAddrV4, SessionState);

fn sessions(router: &Router) -> BTreeSet<String> {
    let same =
        |session: SessionInfo| -> Same { (session.protocol, session.inside, session.public, session.state) };
    router.sessions().into_iter().map(|session| format!("{:?}", same(session))).collect()
}

/// Has the second router stand by until it has everything.
fn copy(routers: &mut [Router; 2]) {
    let now_ns = {
        let (a, b) = (routers[0].nat.copies(), routers[1].nat.copies());
        stand_by(Table::Sessions, [&a, &b], routers[0].now_ns)
    };
    routers.iter_mut().for_each(|router| router.now_ns = now_ns);
}

/// Both routers have a port forward, and no limits of a host.
fn config(port_selection: PortSelection, filtering: Filtering) -> NatConfig {
    let forward = PortForward {
        protocol: NatProtocol::Tcp,
        public_address: 0,
        public_port: 8080,
        inside_address: [192, 168, 0, 9].into(),
        vrf: 0,
        inside_port: 80,
        count: 1,
    };
    NatConfig { port_selection, filtering, forwards: vec![forward], ..testing::config(2) }
}

fn pair(config: &NatConfig) -> [Router; 2] {
    [0, 1].map(|_| Router::new(config))
}

#[test]
fn a_standby_translates_what_the_active_router_did() {
    for selection in [PortSelection::Preserve, PortSelection::Hash] {
        for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
            let mut routers = pair(&config(selection, filtering));
            routers.iter().for_each(|router| router.nat.set_logging(Some(NatLogging::Sessions)));
            let mut open = Vec::new();
            for n in 0..300u16 {
                let from = host((n % 7) as u8 + 1, 2000 + n / 3);
                let to = remote((n % 5) as u8 + 1, 443);
                let protocol = NatProtocol::ALL[usize::from(n) % 3];
                let Ok(public) = routers[0].open(protocol, from, to) else { continue };
                if protocol == NatProtocol::Tcp {
                    routers[0].arrive(&testing::tcp(to, public, SYN_ACK)).unwrap();
                }
                open.push((protocol, from, to, public));
            }
            assert!(open.len() > 250);
            copy(&mut routers);
            assert_eq!(sessions(&routers[0]), sessions(&routers[1]));
            let [_, standby] = &routers;
            for (protocol, from, to, public) in &open {
                assert_eq!(standby.enter(*protocol, *to, *public), Ok(*from));
                let again =
                    standby.leave(&testing::any(*protocol, *from, *to, ACK)).map(|bytes| source(&bytes));
                assert_eq!(again, Ok(*public));
            }
            assert_eq!(standby.nat.counters().sessions_created, 0);
            // The active router has logged these sessions, and a copy makes no second line.
            let mut events = 0;
            standby.nat.hand_out_events(&mut |_| events += 1);
            assert_eq!(events, 0);
            // Ports in use stay in use.
            let taken: BTreeSet<_> = open.iter().map(|(protocol, .., public)| (*protocol, *public)).collect();
            for n in 0..200 {
                let public = standby.open(NatProtocol::Udp, host(99, 2000 + n), remote(1, 53)).unwrap();
                assert!(!taken.contains(&(NatProtocol::Udp, public)));
            }
        }
    }
}

#[test]
fn copies_end_with_their_sessions_and_not_before() {
    let config = config(PortSelection::Preserve, Filtering::EndpointIndependent);
    let mut routers = pair(&config);
    let (udp_s, server) = (u64::from(config.timeouts.udp_s), remote(1, 53));
    routers[0].open(NatProtocol::Udp, host(1, 1000), server).unwrap();
    let short_lived = routers[0].open(NatProtocol::Udp, host(2, 1001), server).unwrap();
    copy(&mut routers);
    // One of them is used at the active router alone.
    routers[0].wait_s(udp_s - 20);
    routers[0].open(NatProtocol::Udp, host(1, 1000), server).unwrap();
    copy(&mut routers);
    routers[0].wait_s(15);
    copy(&mut routers);
    assert_eq!(sessions(&routers[0]), sessions(&routers[1]));
    let left: Vec<_> =
        routers[1].sessions().into_iter().filter(|session| session.remaining_s.is_some()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].inside, SocketAddr::V4(host(1, 1000)));
    assert!(u64::from(left[0].remaining_s.unwrap()) > udp_s - 5, "as if it had just been used");
    let refused = routers[1].enter(NatProtocol::Udp, server, short_lived);
    assert_eq!(refused, Err(DropReason::NatNoMapping));
    // Without the active router it lives as long as any.
    routers[1].wait_s(udp_s + 1);
    routers[1].nat.advance(routers[1].now_ns);
    assert_eq!(routers[1].nat.counters().sessions_active, 0);
}

#[test]
fn a_standby_has_the_sessions_of_ipv6_hosts() {
    let config = nat64::config(1);
    let mut edges = [0, 1].map(|_| Edge::new(&config));
    let copy = |edges: &mut [Edge; 2]| {
        let [a, b] = edges.each_ref().map(|edge| edge.router.nat.copies());
        let now_ns = stand_by(Table::Sessions, [&a, &b], edges[0].router.now_ns);
        drop((a, b));
        edges.iter_mut().for_each(|edge| edge.router.now_ns = now_ns);
    };
    // One that the standby does not know is of another host.
    edges[1].open(99, 4000).unwrap();
    let publics = (1..40).map(|n| edges[0].open(n, 4000)).collect::<Vec<_>>();
    copy(&mut edges);
    assert_eq!(sessions(&edges[0].router), sessions(&edges[1].router));
    let created = edges[1].router.nat.counters().sessions_created;
    assert!((1..40).map(|n| edges[1].open(n, 4000)).eq(publics));
    assert_eq!((created, edges[1].router.nat.counters().sessions_created), (1, 1));
    let now_ns = edges[0].router.now_ns;
    edges[0].router.nat.end_sessions(now_ns, EndedBy::Request, |_| true, |_| true);
    copy(&mut edges);
    let counters = edges[1].router.nat.counters();
    assert_eq!((counters.sessions_active, counters.nat64_hosts), (0, 0));
}

/// A router that was active has sessions of its own; those of the other one are right.
#[test]
fn what_the_active_router_does_not_have_goes() {
    let config = config(PortSelection::Preserve, Filtering::EndpointIndependent);
    let mut routers = pair(&config);
    let server = remote(1, 53);
    for n in 0..50 {
        routers[1].open(NatProtocol::Udp, host(7, 3000 + n), server).unwrap();
        routers[0].open(NatProtocol::Udp, host(8, 3025 + n), server).unwrap();
    }
    let public = routers[0].open(NatProtocol::Udp, host(8, 3030), server).unwrap();
    copy(&mut routers);
    assert_eq!(sessions(&routers[0]), sessions(&routers[1]));
    assert_eq!(routers[1].enter(NatProtocol::Udp, server, public), Ok(host(8, 3030)));
    // A port that went is free again, and forwards stay.
    assert!(routers[1].open(NatProtocol::Udp, host(7, 3000), server).is_ok());
    assert_eq!(routers[1].enter(NatProtocol::Tcp, server, at([198, 51, 100, 1], 8080)), Ok(host(9, 80)));
}

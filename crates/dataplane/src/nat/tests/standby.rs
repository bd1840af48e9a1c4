//! Sessions at a standby: those of the active router, and of no use to it before it takes over.

use super::super::{Filtering, NatLogging, PortSelection, SessionState};
use super::nat64::{self, Edge};
use super::tenants::{self, BLUE, INSIDES, RED};
use super::*;
use crate::standby::testing::stand_by;
use crate::standby::{Shards, Tables};
use std::collections::BTreeSet;
use thalweg_wire::standby::{Change, Entry, SessionEntry};
use thalweg_wire::testing as build;

/// What is the same on both routers.
type Same = (NatProtocol, SocketAddr, SocketAddrV4, SessionState);

fn sessions(router: &Router) -> BTreeSet<String> {
    let same =
        |session: SessionInfo| -> Same { (session.protocol, session.inside, session.public, session.state) };
    router.sessions().into_iter().map(|session| format!("{:?}", same(session))).collect()
}

/// Has the second router stand by until it has everything.
fn copy(routers: &mut [Router; 2]) {
    copy_between(routers.each_mut());
}

fn copy_between(routers: [&mut Router; 2]) {
    let now_ns = {
        let [a, b] = routers.each_ref().map(|router| router.nat.copies());
        let of = |sessions| Tables { sessions: Some(sessions), states: None, now_ns: routers[0].now_ns };
        stand_by([of(&a), of(&b)])
    };
    routers.into_iter().for_each(|router| router.now_ns = now_ns);
}

/// Both routers have a port forward, and no limits of a host.
fn config(port_selection: PortSelection, filtering: Filtering) -> NatConfig {
    NatConfig {
        port_selection,
        filtering,
        forwards: vec![forward(NatProtocol::Tcp, 8080, host(9, 80))],
        ..testing::config(2)
    }
}

fn pair(config: &NatConfig) -> [Router; 2] {
    [0, 1].map(|_| Router::new(config))
}

#[test]
fn a_standby_translates_what_the_active_router_did() {
    for selection in [PortSelection::Preserve, PortSelection::Hash] {
        for filtering in Filtering::ALL {
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
    let copy = |edges: &mut [Edge; 2]| copy_between(edges.each_mut().map(|edge| &mut edge.router));
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

/// Hosts of two VRFs with one address: each has its sessions at the standby, and its answers find it.
#[test]
fn a_standby_has_the_sessions_of_every_vrf() {
    for port_selection in [PortSelection::Preserve, PortSelection::Hash] {
        let reference = tenants::reference(false, Filtering::EndpointIndependent);
        let config = NatConfig { port_selection, ..tenants::ours(&reference) };
        let mut edges = [0, 1].map(|_| tenants::Edge::new(&config));
        let [active, standby] = &edges;
        let server = SocketAddr::from(remote(1, 53));
        let packets = |vrf: u16, n: u16, to: SocketAddr| {
            let host6 = tenants::inside6(vrf, 2, 5000 + n, false);
            let mapped = SocketAddr::new(nat64::mapped([203, 0, 113, 1].into()).into(), 53);
            [
                build::udp(host(2, 5000 + n), to, b"?"),
                build::tcp(host(2, 5000 + n), to, SYN, b""),
                build::udp(host6, mapped, b"?"),
            ]
        };
        let leave = |edge: &tenants::Edge, vrf: u16, packet: &[u8]| {
            edge.send(INSIDES[usize::from(vrf - 1)], packet).0.map(|out| source(&out))
        };
        // What the standby had before: blue's host at what is red's public endpoint now.
        leave(standby, BLUE, &packets(BLUE, 0, server)[0]).unwrap();
        let mut open = Vec::new();
        for (n, vrf) in (0..40).flat_map(|n| [(n, RED), (n, BLUE)]) {
            for packet in packets(vrf, n, server) {
                let public = leave(active, vrf, &packet).unwrap();
                open.push((vrf, packet, public));
            }
        }
        copy_between(edges.each_mut().map(|edge| &mut edge.router));
        let [active, standby] = &edges;
        let all = |edge: &tenants::Edge| -> BTreeSet<_> {
            let row = |one: SessionInfo| format!("{:?}", (one.vrf, one.protocol, one.inside, one.public));
            edge.router.sessions().into_iter().map(row).collect()
        };
        assert_eq!(all(active), all(standby));
        for (vrf, packet, public) in &open {
            assert_eq!(leave(standby, *vrf, packet), Ok(*public), "{vrf} {packet:02x?}");
            let answer = match packet[9] {
                6 if packet[0] >> 4 == 4 => build::tcp(server, *public, SYN_ACK, b""),
                _ => build::udp(server, *public, b"!"),
            };
            let (back, led_to) = standby.send(OUTSIDE, &answer);
            assert_eq!(led_to, Some(*vrf), "{packet:02x?}");
            let at = if packet[0] >> 4 == 6 { (8..24, 24..40) } else { (12..16, 16..20) };
            assert_eq!(back.unwrap()[at.1], packet[at.0]);
        }
        assert_eq!(standby.router.nat.counters().sessions_created, 1, "the one of before");
    }
}

/// A copy from a router with other VRFs, should one come, is not taken for one of another tenant.
#[test]
fn a_copy_of_an_unknown_vrf_is_refused() {
    let reference = tenants::reference(false, Filtering::EndpointIndependent);
    let config = tenants::ours(&reference);
    let active = tenants::Edge::new(&config);
    let shards = active.router.nat.copies();
    shards.follow(true);
    active.send(INSIDES[1], &build::udp(host(2, 5000), remote(1, 53), b"?")).0.unwrap();
    let told = |shard: u16| {
        let mut copy = None;
        shards.changes(shard, &mut |Change { entry, .. }| copy = Some(entry));
        copy.map(|copy| (shard, copy))
    };
    let Some((shard, Entry::Session(copy))) = (0..config.shards).find_map(told) else {
        panic!("no session was told")
    };
    assert_eq!(u16::from(copy.vrf), BLUE);
    let red_alone =
        NatConfig { inside_ports: vec![2], vrfs: vec![0, 0, RED], forwards: Vec::new(), ..config.clone() };
    let standby = tenants::Edge::new(&red_alone);
    let there = standby.router.nat.copies();
    for vrf in [copy.vrf, 64, 64 + 1, 255] {
        let copy = Entry::Session(SessionEntry { vrf, ..copy });
        assert!(!there.put(shard, &copy, standby.router.now_ns), "{vrf}");
        there.end(shard, &copy, standby.router.now_ns);
    }
    assert!(standby.router.sessions().is_empty());
}

/// The same ends in another VRF are another host: the copy takes the public endpoint over.
#[test]
fn a_copy_replaces_a_session_of_another_tenant() {
    let reference = tenants::reference(false, Filtering::EndpointIndependent);
    let standby = tenants::Edge::new(&tenants::ours(&reference));
    let server = remote(1, 53);
    let out = standby.send(INSIDES[1], &build::udp(host(2, 5000), server, b"?")).0.unwrap();
    let shards = standby.router.nat.copies();
    let mut known = Vec::new();
    for shard in 0..shards.count() {
        shards.walk(shard, 0, false, standby.router.now_ns, &mut |entry| known.push((shard, entry)));
    }
    let [(shard, Entry::Session(blue))] = known[..] else { panic!("{known:?}") };
    let red = SessionEntry { vrf: u8::try_from(RED).unwrap(), ..blue };
    assert!(shards.put(shard, &Entry::Session(red), standby.router.now_ns));
    let (back, led_to) = standby.send(OUTSIDE, &build::udp(server, source(&out), b"!"));
    assert_eq!((back.map(|back| destination(&back)), led_to), (Ok(host(2, 5000)), Some(RED)));
    // The end of blue's is not that of red's.
    shards.end(shard, &Entry::Session(blue), standby.router.now_ns);
    assert_eq!(standby.send(OUTSIDE, &build::udp(server, source(&out), b"!")).1, Some(RED));
}

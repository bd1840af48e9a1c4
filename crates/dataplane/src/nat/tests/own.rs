//! The router's own ports and flows, and hairpins to them.

use super::super::{OwnFlow, OwnPort};
use super::*;
use crate::nat::testing::{config, tcp};

const PUBLIC: [u8; 4] = [198, 51, 100, 1];

fn port(protocol: NatProtocol, port: u16) -> OwnPort {
    OwnPort { protocol, address: PUBLIC.into(), port }
}

fn udp_open(router: &Router, from: SocketAddrV4) -> SocketAddrV4 {
    router.open(NatProtocol::Udp, from, remote(1, 53)).unwrap()
}

#[test]
fn a_service_of_the_router_is_nobodys_port() {
    let router = Router::new(&config(1));
    let wireguard = port(NatProtocol::Udp, 51_820);
    // The guest was first: the router's program takes over the port, and the guest gets another.
    let guest = host(9, 51_820);
    assert_eq!(udp_open(&router, guest).port(), 51_820);
    router.nat.reserve(&[wireguard], router.now_ns);
    let refused = router.enter(NatProtocol::Udp, remote(1, 53), at(PUBLIC, 51_820));
    assert_eq!(refused, Err(DropReason::NatNoMapping), "what comes is for the router");
    assert_ne!(udp_open(&router, guest).port(), 51_820);
    assert_ne!(udp_open(&router, host(8, 51_820)).port(), 51_820);
    let tcp = router.open(NatProtocol::Tcp, guest, remote(1, 53)).unwrap();
    assert_eq!(tcp.port(), 51_820, "of TCP it is free");
    let counters = router.nat.counters();
    assert_eq!((counters.router_ports, counters.router_displaced), (1, 1));
    // The program ends.
    router.nat.reserve(&[], router.now_ns);
    assert_eq!(udp_open(&router, host(7, 51_820)).port(), 51_820);
    assert_eq!(router.nat.counters().router_ports, 0);
}

#[test]
fn the_router_keeps_its_replies_on_a_port_that_a_session_has() {
    let mut router = Router::new(&config(1));
    let (guest, server) = (host(9, 40_000), remote(7, 443));
    let public = router.open(NatProtocol::Tcp, guest, remote(1, 80)).unwrap();
    assert_eq!(public, at(PUBLIC, 40_000));
    let flow = OwnFlow { at: port(NatProtocol::Tcp, 40_000), remote: server };
    router.nat.claim(flow, router.now_ns);
    assert_eq!(router.enter(NatProtocol::Tcp, server, public), Err(DropReason::NatNoMapping));
    assert_eq!(router.enter(NatProtocol::Tcp, remote(1, 80), public), Ok(guest), "the session stays up");
    assert_eq!(router.enter(NatProtocol::Tcp, remote(7, 444), public), Ok(guest));
    let error = testing::icmp(
        u32::from(*remote(3, 0).ip()),
        u32::from(*public.ip()),
        3,
        [0, 1, 0, 0],
        &tcp(public, server, SYN),
    );
    assert_eq!(router.arrive(&error), Err(DropReason::NatNoMapping), "an error about the router's packet");
    assert_eq!(router.nat.counters().router_packets, 1);
    // It is silent for a while: the port belongs to the session alone.
    router.wait_s(200);
    router.leave(&tcp(guest, remote(1, 80), ACK)).unwrap();
    assert_eq!(router.enter(NatProtocol::Tcp, server, public), Ok(guest));
    assert_eq!(router.nat.counters().router_flows, 0);
}

#[test]
fn a_port_that_the_router_sends_from_is_not_given_to_a_session() {
    let mut router = Router::new(&config(1));
    let flow = OwnFlow { at: port(NatProtocol::Udp, 40_000), remote: remote(7, 123) };
    router.nat.claim(flow, router.now_ns);
    assert_ne!(udp_open(&router, host(1, 40_000)).port(), 40_000);
    for _ in 0..5 {
        router.wait_s(100);
        router.nat.claim(flow, router.now_ns);
        assert_ne!(udp_open(&router, host(2, 40_000)).port(), 40_000, "as long as it sends");
    }
    router.wait_s(400);
    router.nat.advance(router.now_ns);
    assert_eq!(udp_open(&router, host(3, 40_000)).port(), 40_000);
}

#[test]
fn an_ended_session_leaves_its_shared_port_to_the_router() {
    let mut router = Router::new(&config(1));
    let public = udp_open(&router, host(1, 40_000));
    let flow = OwnFlow { at: port(NatProtocol::Udp, 40_000), remote: remote(7, 123) };
    for _ in 0..5 {
        router.nat.claim(flow, router.now_ns);
        router.wait_s(90);
    }
    let reply = router.enter(NatProtocol::Udp, remote(7, 123), public);
    assert_eq!(reply, Err(DropReason::NatNoMapping));
    assert_ne!(udp_open(&router, host(1, 40_000)).port(), 40_000);
    // A listener on it appears and goes again: the flow still holds it.
    router.nat.reserve(&[flow.at], router.now_ns);
    router.nat.reserve(&[], router.now_ns);
    assert_ne!(udp_open(&router, host(2, 40_000)).port(), 40_000);
}

#[test]
fn a_port_forward_stays_where_the_configuration_has_put_it() {
    let forward = forward(NatProtocol::Tcp, 8080, host(1, 80));
    let router = Router::new(&NatConfig { forwards: vec![forward], ..config(1) });
    router.nat.reserve(&[port(NatProtocol::Tcp, 8080)], router.now_ns);
    router.nat.reserve(&[], router.now_ns);
    assert_eq!(router.enter(NatProtocol::Tcp, remote(1, 9), at(PUBLIC, 8080)), Ok(host(1, 80)));
}

#[test]
fn what_the_router_has_goes_on_in_another_table() {
    let router = Router::new(&config(1));
    let guest = host(9, 40_001);
    let public = udp_open(&router, guest);
    let shared = OwnFlow { at: port(NatProtocol::Udp, 40_001), remote: remote(7, 123) };
    router.nat.reserve(&[port(NatProtocol::Udp, 51_820)], router.now_ns);
    router.nat.claim(OwnFlow { at: port(NatProtocol::Udp, 40_000), ..shared }, router.now_ns);
    router.nat.claim(shared, router.now_ns);
    for shards in [16, 64] {
        let next = Router::new(&NatConfig { shards, sessions_max: 5000, ..config(1) });
        next.nat.migrate_from(&router.nat);
        let counters = next.nat.counters();
        assert_eq!((counters.router_ports, counters.router_flows), (2, 2), "{shards} shards");
        assert_ne!(udp_open(&next, host(1, 51_820)).port(), 51_820);
        assert_ne!(udp_open(&next, host(1, 40_000)).port(), 40_000);
        let reply = next.enter(NatProtocol::Udp, remote(7, 123), public);
        assert_eq!(reply, Err(DropReason::NatNoMapping));
        assert_eq!(next.enter(NatProtocol::Udp, remote(1, 53), public), Ok(guest));
    }
}

#[test]
fn a_hairpin_to_nobody_is_the_routers_and_as_it_was() {
    let router = Router::new(&config(1));
    let asked = tcp(host(1, 4000), at(PUBLIC, 22), SYN);
    let mut chunk = testing::chunk(&[(INSIDE, &asked, asked.len() as u32)], router.now_ns);
    testing::label(&router.labeler, &mut chunk, router.nat.shard_count() as u16);
    let shards = router.nat.shard_count();
    router.nat.run_groups(&mut chunk, 0..shards, shards);
    router.nat.run_crossing(&mut chunk, &mut |_, _, _| panic!("no other host to keep away"));
    let packet = &chunk.packets()[0];
    assert_eq!(packet.drop_reason(), Some(DropReason::NatNoMapping));
    assert!(!packet.flags.has(PacketFlags::TRANSLATED));
    assert_eq!(chunk.frame(0), asked, "the router sees who asks");
    assert_eq!(router.nat.counters().sessions_created, 0);
}

#[test]
fn a_hairpin_is_judged_by_what_it_really_is() {
    let router = Router::new(&config(1));
    let server = host(2, 80);
    let public = router.open(NatProtocol::Tcp, server, remote(1, 80)).unwrap();
    let asked = tcp(host(1, 4000), public, SYN);
    for admitted in [false, true] {
        let mut chunk = testing::chunk(&[(INSIDE, &asked, asked.len() as u32)], router.now_ns);
        let shards = router.nat.shard_count();
        testing::label(&router.labeler, &mut chunk, shards as u16);
        router.nat.run_groups(&mut chunk, 0..shards, shards);
        let mut judged = 0;
        router.nat.run_crossing(&mut chunk, &mut |packet, l3, inside| {
            judged += 1;
            assert_eq!((source(l3), destination(l3), inside), (host(1, 4000), public, server));
            if !admitted {
                packet.drop_for(DropReason::AclDenied);
            }
        });
        assert_eq!(judged, 1);
        assert_eq!(chunk.packets()[0].is_alive(), admitted);
        assert_eq!(router.nat.counters().sessions_created, 1 + u64::from(admitted));
    }
}

//! Flows that the kernel forwards, on real interfaces.

use super::super::offload::OffloadOptions;
use super::*;
use crate::kernel::DriverFeatures;
use crate::live::packet::{self, PacketOptions};

const LEASE: u32 = 7;

#[test]
fn drivers_forward_leased_flows() {
    in_namespace("live::xdp::tests::leases::drivers_forward_leased_flows", || {
        let far = veth(1500, "");
        ip("link add w0 type veth peer name w1");
        for end in ["w0", "w1"] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1").unwrap();
            ip(&format!("link set {end} up"));
        }
        let way_out = Interface::find("w0").unwrap().index;
        let mut features = DriverFeatures::open().unwrap();
        assert!(!features.takes_redirected().unwrap().contains(&way_out));
        // A veth takes them if its other end works in batches, as a driver with a program does.
        let beyond_options = XdpOptions::new("w1");
        let _awake = Setup::new(&beyond_options).unwrap().attach(true).unwrap();
        assert!(features.takes_redirected().unwrap().contains(&way_out));
        let beyond = FarEnd::of("w1");

        let offload = Arc::new(Offload::create(&OffloadOptions { flows: 1024, ports: 3 }).unwrap());
        offload.set_lease(LEASE);
        let modes = vec![XdpMode::NativeCopy];
        let options = XdpOptions { offload: Some(offload.clone()), modes, ..XdpOptions::new("v0") };
        let mut port = open(&options).unwrap();
        assert_eq!(port.facts.mode, "af_xdp native copy, offload");
        assert!(offload.is_native());
        let mut packet = datagram([192, 0, 2, 1], 5000, 100);
        packet[..6].copy_from_slice(&port.facts.mac.0);
        let mut out = packet.clone();
        out[..12].copy_from_slice(&[2, 0, 0, 0, 8, 8, 2, 0, 0, 0, 8, 1]);
        out[22] -= 1;
        out[24..26].fill(0);
        let sum = checksum::finish(checksum::sum(&out[14..34], 0));
        out[24..26].copy_from_slice(&sum.to_be_bytes());
        far.send(&packet);
        assert_eq!(receive(&mut *port.rx[0], 1), [packet.clone()]);
        let key = offload::FlowKey::of_frame(&packet).unwrap();
        let egress = offload::Egress { port: 2, interface: way_out, mtu: 1500 };
        let action = offload::FlowAction::between(&key, &out, egress).unwrap();
        offload.install(&key, &action, offload.generation()).unwrap();
        far.send(&packet);
        assert_eq!(beyond.receive(|frame| frame[12..14] == [8, 0]), out);
        assert_eq!(offload.forwarded().unwrap(), [(0, 0), (0, 0), (1, 100)]);
    });
}

#[test]
fn the_kernel_forwards_leased_flows() {
    in_namespace("live::xdp::tests::leases::the_kernel_forwards_leased_flows", || {
        let open = |offload: Arc<Offload>| {
            open(&XdpOptions { offload: Some(offload), ..XdpOptions::new("v0") }).unwrap()
        };
        the_kernel_forwards(open, "af_xdp generic copy, offload");
        await_detached();
    });
}

#[test]
fn the_kernel_forwards_what_a_packet_socket_leaves_to_it() {
    in_namespace("live::xdp::tests::leases::the_kernel_forwards_what_a_packet_socket_leaves_to_it", || {
        let open = |offload: Arc<Offload>| {
            packet::open(&PacketOptions { offload: Some(offload), ..PacketOptions::new("v0") }).unwrap()
        };
        the_kernel_forwards(open, "af_packet, offload");
    });
}

/// The steps of a lease, each seen at the router's end and at the next hop's.
fn the_kernel_forwards(open: impl Fn(Arc<Offload>) -> Port, mode: &str) {
    let far = veth(1500, "");
    ip("link add w0 type veth peer name w1");
    for end in ["w0", "w1"] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1").unwrap();
        ip(&format!("link set {end} up"));
    }
    let beyond = FarEnd::of("w1");
    let offload = Arc::new(Offload::create(&OffloadOptions { flows: 1024, ports: 3 }).unwrap());
    offload.set_lease(LEASE);
    let mut port = open(offload.clone());
    assert_eq!(port.facts.mode, mode, "{:?}", port.facts.why_not_better);
    let mac = port.facts.mac;
    let packet = |payload: usize| {
        let mut frame = datagram([192, 0, 2, 1], 5000, 42 + payload);
        frame[..6].copy_from_slice(&mac.0);
        frame
    };
    let key = offload::FlowKey::of_frame(&packet(1)).unwrap();
    // As NAT would do: another source and port, no checksum as before.
    let out = |before: &[u8]| {
        let mut frame = before.to_vec();
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 8, 8, 2, 0, 0, 0, 8, 1]);
        frame[22] -= 1;
        frame[26..30].copy_from_slice(&[203, 0, 113, 7]);
        frame[34..36].copy_from_slice(&[0xbe, 0xef]);
        frame[24..26].fill(0);
        let sum = checksum::finish(checksum::sum(&frame[14..34], 0));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let egress = offload::Egress { port: 2, interface: Interface::find("w0").unwrap().index, mtu: 1500 };
    let action = offload::FlowAction::between(&key, &out(&packet(1)), egress).unwrap();
    let goes_up = |port: &mut Port, payload: usize| {
        far.send(&packet(payload));
        assert_eq!(receive(&mut *port.rx[0], 1), [packet(payload)]);
    };
    let goes_on = |payload: usize| {
        far.send(&packet(payload));
        assert_eq!(beyond.receive(|frame| frame[12..14] == [8, 0]), out(&packet(payload)));
    };
    let (few, many) = (30, 900);
    goes_up(&mut port, few);
    offload.install(&key, &action, offload.generation()).unwrap();
    goes_on(few);
    goes_on(many);
    // Another flow; and the same flow with one packet that needs an answer.
    let mut other = packet(few);
    other[35] ^= 1;
    far.send(&other);
    assert_eq!(receive(&mut *port.rx[0], 1), [other]);
    // The lease ends, is renewed, and all leases end at once; a decision made before is not installed.
    for _ in 0..=LEASE {
        goes_on(few);
        offload.advance().unwrap();
    }
    goes_up(&mut port, few);
    let before = offload.generation();
    offload.install(&key, &action, before).unwrap();
    goes_on(few);
    offload.invalidate().unwrap();
    goes_up(&mut port, few);
    offload.install(&key, &action, before).unwrap();
    goes_up(&mut port, few);
    offload.install(&key, &action, offload.generation()).unwrap();
    goes_on(few);
    // IPv6, whose flows have their own table.
    let mut v6 = [&mac.0[..], &[2, 0, 0, 0, 7, 7, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]].concat();
    v6.extend([0x20; 32]);
    v6.extend([0, 1, 0, 2, 0, 8, 9, 9]);
    let mut v6_out = [&[2, 0, 0, 0, 8, 8, 2, 0, 0, 0, 8, 1], &v6[12..]].concat();
    v6_out[21] -= 1;
    far.send(&v6);
    assert_eq!(receive(&mut *port.rx[0], 1), [v6.clone()]);
    let key = offload::FlowKey::of_frame(&v6).unwrap();
    let action = offload::FlowAction::between(&key, &v6_out, egress).unwrap();
    offload.install(&key, &action, offload.generation()).unwrap();
    far.send(&v6);
    assert_eq!(beyond.receive(|frame| frame[12..14] == [0x86, 0xdd]), v6_out);
    // The interface's address changes, which the next reading of the counters notices.
    ip("link set v0 address 02:00:00:00:00:77");
    port.rx[0].counters();
    far.send(&packet(few));
    assert!(is_readable(port.rx[0].fd()));
    let mut into = ChunkBuilder::with_capacity(1 << 16);
    assert_eq!(port.rx[0].receive(3, 77, 8, &mut into).unwrap(), 0);
    assert_eq!(port.rx[0].counters().foreign, 1);
    let forwarded = offload.forwarded().unwrap();
    let packets = 2 + u64::from(LEASE) + 1 + 1 + 1;
    let bytes = packets * (42 + few as u64) - (few as u64) + many as u64;
    assert_eq!(forwarded, [(0, 0), (0, 0), (packets + 1, bytes + v6.len() as u64)]);
}

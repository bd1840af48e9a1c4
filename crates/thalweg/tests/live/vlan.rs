//! A router on a stick: two hosts in separate VLANs, and one veth to the router, which forwards between them.
//!
//! ```text
//! office ── lan ──┐                             ┌ office.10
//!                 switch ── trunk, tagged ── uplink, router ── wan ── outside
//! guest ─ guest ──┘                             └ guest.20
//! ```
//!
//! The switch is a thread of this test: it tags frames from hosts and untags frames to them. A tag that it writes
//! is in the frame when it reaches the router's interface: XDP finds it there, and AF_PACKET beside the frame,
//! where the kernel has put it. Both hosts have the same MAC address, so one address stands for the switch.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use thalweg_dataplane::vlan::EgressTag;
use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::{LiveClock, LiveSource, PortTx, SourceOptions};
use thalweg_wire::MacAddr;

use crate::clients::iperf3;
use crate::packets::build;
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Site, eventually, has};
use crate::wire::{Wire, is_traffic};
use thalweg_testdata::Stop;

const HOSTS_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0x56, 1]);
const ROUTERS_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0x56, 2]);
const VLANS: [(Host, u16); 2] = [(OFFICE, 10), (GUEST, 20)];

/// The router's end of the trunk, and the switch's.
const UPLINK: &str = "uplink";
const TRUNK: &str = "trunk";

fn config(driver: &str) -> String {
    format!(
        r#"
[ports.uplink]
interface = "uplink"
driver = "{driver}"

[ports."office.10"]
parent = "uplink"
vlan = 10
addresses = ["10.1.0.1/24", "2001:db8:1::1/64"]
mirror = "tw-office"

[ports."guest.20"]
parent = "uplink"
vlan = 20
addresses = ["10.2.0.1/24", "2001:db8:2::1/64"]

[ports.wan]
interface = "wan"
driver = "{driver}"
addresses = ["198.51.100.1/24", "2001:db8:9::1/64"]

[[qos.classes]]
name = "default"
weight = 1

[[qos.egress]]
port = "uplink"
rate = "500 Mbit/s"
"#
    )
}

/// Tags and untags frames until stopped.
struct Switch {
    source: LiveSource,
    /// Access ports, then the trunk.
    tx: Vec<Box<dyn PortTx>>,
}

impl Switch {
    fn open(site: &Site) -> Self {
        let open = |interface: &str, mac| {
            let options = PacketOptions { mac: Some(mac), ..PacketOptions::new(interface) };
            site.within(&site.router(), || packet::open(&options).expect("the switch's port"))
        };
        let access = VLANS.iter().map(|(host, _)| open(host.port, ROUTERS_MAC));
        let ports: Vec<_> = access.chain([open(TRUNK, HOSTS_MAC)]).collect();
        let (mut halves, mut tx) = (Vec::new(), Vec::new());
        for (number, port) in (0u16..).zip(ports) {
            halves.extend(port.rx.into_iter().map(|rx| (number, rx)));
            tx.push(port.tx);
        }
        let source = LiveSource::new(halves, SourceOptions::default(), LiveClock::start());
        Self { source: source.expect("a source"), tx }
    }

    fn run(mut self, stop: &AtomicBool, guests_vlan: &AtomicU16) {
        while !stop.load(Ordering::Acquire) {
            let Some(chunk) = self.source.next_chunk(Duration::from_millis(50)).expect("a timer is running")
            else {
                continue;
            };
            let guests_vlan = guests_vlan.load(Ordering::Acquire);
            let vlans = VLANS.map(|(host, vlan)| if host == GUEST { guests_vlan } else { vlan });
            for (i, packet) in chunk.packets().iter().enumerate() {
                let frame = chunk.frame(i);
                let to = match usize::from(packet.port_in) {
                    from if from == VLANS.len() => to_host(frame, vlans),
                    from => {
                        let mut tagged = vec![0; frame.len() + 4];
                        let tag = EgressTag { parent: 0, tci: vlans[from] };
                        tag.write(frame, &mut tagged).map(|_| (VLANS.len(), tagged))
                    }
                };
                let Some((to, frame)) = to else { continue };
                // Packets to a slow host are lost, as with any switch.
                let _ = self.tx[to].push(&frame);
            }
            self.tx.iter_mut().for_each(|tx| drop(tx.flush()));
        }
    }
}

/// The access port of a frame's tag, and the frame without the tag.
fn to_host(frame: &[u8], vlans: [u16; 2]) -> Option<(usize, Vec<u8>)> {
    let [0x81, 0x00, tag @ ..] = frame.get(12..16)? else { return None };
    let vlan = u16::from_be_bytes([tag[0], tag[1]]);
    let port = vlans.iter().position(|each| *each == vlan)?;
    Some((port, [&frame[..12], &frame[16..]].concat()))
}

/// Runs `act` while office and guests are behind the switch. Its argument is the guests' VLAN, which it may
/// change.
pub(crate) fn behind_a_switch(site: &Site, act: impl FnOnce(&AtomicU16)) {
    let router_namespace = site.router();
    site.ip(&router_namespace, &format!("link add {UPLINK} type veth peer name {TRUNK}"));
    site.ip(&router_namespace, &format!("link set {UPLINK} address {}", ROUTERS_MAC));
    for interface in [UPLINK, TRUNK] {
        // Keeps the kernel's own packets off the trunk.
        site.said(&router_namespace, "sysctl", &["-q", &format!("net.ipv6.conf.{interface}.disable_ipv6=1")]);
        site.ip(&router_namespace, &format!("link set {interface} up"));
    }
    for (host, _) in VLANS {
        let namespace = site.namespace(host);
        site.ip(&namespace, &format!("link set eth0 address {}", HOSTS_MAC));
    }
    let switch = Switch::open(site);
    let (stop, guests_vlan) = (AtomicBool::new(false), AtomicU16::new(VLANS[1].1));
    thread::scope(|scope| {
        let _stops = Stop(&stop);
        scope.spawn(|| switch.run(&stop, &guests_vlan));
        act(&guests_vlan);
    });
}

fn on_a_stick(driver: &str, mode: &str) {
    let Some(site) = Site::new() else { return };
    behind_a_switch(&site, |guests_vlan| {
        let router = site.run_alone(&config(driver), &[]);
        site.ip(&site.namespace(OUTSIDE), "route add default via 198.51.100.1");
        let ports = router.show(&["ports"]).expect("the router answers");
        let port = |name: &str| ports.iter().find(|port| port["name"] == name).expect("the port").clone();
        assert!(port("uplink")["mode"].as_str().is_some_and(|found| found.starts_with(mode)), "{ports:?}");
        assert!(
            port("office.10")["mode"].as_str().is_some_and(|mode| mode.ends_with(", VLAN 10")),
            "{ports:?}"
        );
        assert_eq!(port("guest.20")["mac"], ROUTERS_MAC.to_string());

        for (from, to) in [
            (OFFICE, GUEST.v4),
            (GUEST, OFFICE.v4),
            (OFFICE, GUEST.v6),
            (OFFICE, OFFICE.gateway_v4),
            (GUEST, GUEST.gateway_v6),
            (OFFICE, OUTSIDE.v4),
            (OUTSIDE, GUEST.v6),
        ] {
            eventually(to, || site.pings(from, to).then_some(()));
        }
        hops_are_seen(&site);
        a_stream_passes(&site);
        // Through a VLAN's mirror the system is in the VLAN.
        eventually("the system is in the VLAN", || {
            let arguments = ["-c", "1", "-W", "1", "-I", "tw-office", OFFICE.v4];
            site.output(&site.router(), "ping", &arguments).status.success().then_some(())
        });

        let before = dropped(&router.counters_add_up(), "unknown-vlan");
        guests_vlan.store(99, Ordering::Release);
        assert!(!site.pings(GUEST, OFFICE.v4), "a VLAN that the router does not have leads nowhere");
        guests_vlan.store(VLANS[1].1, Ordering::Release);
        eventually("the guest is back", || site.pings(GUEST, OFFICE.v4).then_some(()));
        let counters = router.counters_add_up();
        assert!(dropped(&counters, "unknown-vlan") > before, "{counters}");
        accounts_for_everything(&counters);
        let neighbors = router.show(&["neighbors"]).expect("the router answers");
        let of = |port: &str| neighbors.iter().filter(|each| each["port"] == port).count();
        assert!(of("office.10") >= 2 && of("guest.20") >= 2 && of("uplink") == 0, "{neighbors:?}");
    });
}

fn dropped(counters: &Value, reason: &str) -> u64 {
    counters["dropped"][reason].as_u64().unwrap_or(0)
}

/// Checks that received packets and the router's own were sent, wait, were for the router, or were dropped with a
/// reason.
fn accounts_for_everything(counters: &Value) {
    let number = |key: &str| counters[key].as_u64().expect("a number");
    assert_eq!(number("queued"), 0, "{counters}");
    assert!(number("received") > 0 && number("sent") > 0, "{counters}");
}

fn hops_are_seen(site: &Site) {
    if !has("traceroute") {
        return;
    }
    let said = eventually("all hops answer", || {
        let said = site.said(
            &site.namespace(OFFICE),
            "traceroute",
            &["-n", "-q", "1", "-w", "2", "-z", "200", GUEST.v4],
        );
        (!said.contains('*')).then_some(said)
    });
    let hops: Vec<&str> = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(hops, [OFFICE.gateway_v4, GUEST.v4], "{said}");
}

fn a_stream_passes(site: &Site) {
    if !has("iperf3") {
        return;
    }
    let (_, sent) = iperf3(site, OFFICE, (GUEST, GUEST.v4), &["-n", "4M"]);
    assert!(sent >= 4_000_000, "{sent}");
}

#[test]
fn vlans_by_af_packet() {
    on_a_stick("af_packet", "af_packet");
}

#[test]
fn vlans_by_af_xdp() {
    on_a_stick("af_xdp", "af_xdp");
}

/// Without a driver in the configuration, a port with VLANs gets the driver that sees every tag.
#[test]
fn vlans_by_whatever_sees_tags() {
    on_a_stick("auto", "af_packet");
}

/// A port without VLANs: tagged frames are for others, a priority tag (VLAN 0) counts as untagged, and untagged
/// frames pass.
fn without_vlans(driver: &str) {
    const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0x56, 9]);
    const FRAMES: u64 = 20;
    let Some(site) = Site::new() else { return };
    site.ip(&site.namespace(OUTSIDE), "route add default via 198.51.100.1");
    let config = format!(
        "[ports.lan]\ninterface = \"lan\"\ndriver = \"{driver}\"\naddresses = [\"10.1.0.1/24\"]\n\n\
         [ports.wan]\ninterface = \"wan\"\ndriver = \"{driver}\"\naddresses = [\"198.51.100.1/24\"]\n"
    );
    let router = site.run(&config, &[]);
    let near = site.mac_of(&site.router(), "lan");
    let packet = build::line("0 eth ip 10.1.0.9 > 198.51.100.2 udp 4000 > 9 data 100").frame;
    let plain = [near.as_ref(), STRANGER.as_ref(), &packet[12..]].concat();
    let mut wire = Wire::beside(&site, &site.namespace(OFFICE), "eth0", STRANGER);
    let mut end =
        Wire::beside(&site, &site.namespace(OUTSIDE), "eth0", site.mac_of(&site.namespace(OUTSIDE), "eth0"));
    let mut frames = Vec::new();
    for tags in [&[][..], &[0xe000], &[10], &[0xe00a], &[10, 20], &[0, 10]] {
        let mut frame = plain.clone();
        for tci in tags.iter().rev() {
            let mut tagged = vec![0; frame.len() + 4];
            EgressTag { parent: 0, tci: *tci }.write(&frame, &mut tagged).expect("there is room");
            frame = tagged;
        }
        frames.extend((0..FRAMES).map(|_| frame.clone()));
    }
    let before = dropped(&router.one("counters"), "unknown-vlan");
    assert_eq!(wire.send(frames.iter().map(Vec::as_slice)), frames.len());
    eventually("the VLANs' frames are dropped", || {
        (dropped(&router.one("counters"), "unknown-vlan") == before + 4 * FRAMES).then_some(())
    });
    let is_ours = |frame: &[u8]| is_traffic(frame) && frame.get(26..30) == Some(&[10, 1, 0, 9]);
    let passed = end.receive(2 * FRAMES as usize, is_ours);
    assert_eq!(passed.len(), 2 * FRAMES as usize, "those without a VLAN");
    router.counters_add_up();
}

#[test]
fn a_port_without_vlans_by_af_packet() {
    without_vlans("af_packet");
}

#[test]
fn a_port_without_vlans_by_af_xdp() {
    without_vlans("af_xdp");
}

//! The same traffic gives the same bytes with every driver. The reference is a replay of the same packets from
//! files.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;

use thalweg_wire::MacAddr;
use thalweg_wire::checksum::{finish, sum};

use crate::packets::{build, show};
use crate::site::{GUEST, Host, OFFICE, OUTSIDE, Site, eventually};
use crate::wire::{Wire, is_traffic};

const HOSTS: [Host; 3] = [OFFICE, GUEST, OUTSIDE];
const MTU: u32 = 9000;

/// The router's MAC address on a veth.
fn near(host: Host) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host.number()])
}

/// The MAC address at a veth's far end.
fn far(host: Host) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0xff, host.number()])
}

/// Packets of hosts, in the language of replay scenarios: first those from inside, then the answers to them.
const INSIDE: &str = "
    ip 10.1.0.9 > 198.51.100.2 udp 4000 > 53
    ip 10.1.0.9 > 198.51.100.2 udp 4000 > 53 data 1
    ip 10.1.0.9 > 198.51.100.2 tos 184 udp 4001 > 5004 data 160
    ip 10.1.0.9 > 198.51.100.2 tos 2 tcp 4002 > 80 S
    ip 10.1.0.9 > 198.51.100.2 tcp 4002 > 80 A
    ip 10.1.0.9 > 198.51.100.2 tcp 4002 > 80 PA data 1460
    ip 10.1.0.9 > 198.51.100.2 tcp 4002 > 80 PA data 8960
    ip 10.1.0.9 > 198.51.100.2 echo 4003 1 data 56
    ip 10.1.0.9 > 198.51.100.2 options 94040000 udp 4004 > 53 data 3
    ip 10.1.0.9 > 198.51.100.2 id 77 more udp 4005 > 2049 data 1472
    ip 10.1.0.9 > 198.51.100.2 id 77 frag 1480 more proto 17 data 1480
    ip 10.1.0.9 > 198.51.100.2 id 77 frag 2960 proto 17 data 10
    ip 10.1.0.9 > 198.51.100.2 udp 4006 > 53 data 40 flip 60
    ip 10.1.0.9 > 10.2.0.7 udp 4000 > 53 data 18
    ip 10.1.0.9 > 10.2.0.7 tcp 4002 > 80 S
    ip 10.1.0.9 > 10.2.0.7 proto 47 data 100
    ip 10.1.0.9 > 10.2.0.7 proto 50 data 301
    ip 10.1.0.9 > 10.2.0.7 id 9 frag 1480 proto 17 data 31
    ip 10.1.0.9 > 10.2.0.7 error 3 3 0 ip 10.2.0.7 > 10.1.0.9 udp 5 > 6 data 8
    ip 10.1.0.9 > 10.2.0.7 udp 4000 > 53 data 8900
    ip 10.1.0.9 > 10.2.0.7 udp 4000 > 53 data 40 flip 60
    ip 10.1.0.9 > 10.2.0.7 ttl 2 options 0101010101010100 udp 4000 > 53
    ip 2001:db8:1::9 > 2001:db8:9::2 udp 4000 > 53 data 11
    ip 2001:db8:1::9 > 2001:db8:9::2 tos 184 tcp 4000 > 80 S
    ip 2001:db8:1::9 > 2001:db8:9::2 echo 7 1 data 56
    ip 2001:db8:1::9 > 2001:db8:9::2 hop 050200000000 udp 4000 > 53 data 11
    ip 2001:db8:1::9 > 2001:db8:9::2 dest 010400000000 tcp 4000 > 80 A
    ip 2001:db8:1::9 > 2001:db8:9::2 frag6 0 99 more udp 4000 > 53 data 1440
    ip 2001:db8:1::9 > 2001:db8:9::2 frag6 1448 99 proto 17 data 33
    ip 2001:db8:1::9 > 2001:db8:2::7 ttl 2 tcp 4000 > 80 PA data 8900
    ip 2001:db8:1::9 > 2001:db8:2::7 proto 50 data 77
    ip 2001:db8:1::9 > 2001:db8:2::7 udp 1 > 2 data 40 flip 90";

const OUTSIDE_IN: &str = "
    ip 198.51.100.2 > 198.51.100.1 udp 53 > 4000 data 200
    ip 198.51.100.2 > 198.51.100.1 tcp 80 > 4002 SA
    ip 198.51.100.2 > 198.51.100.1 tcp 80 > 4002 A data 8000
    ip 198.51.100.2 > 198.51.100.1 echo-reply 4003 1 data 56
    ip 198.51.100.2 > 198.51.100.1 error 3 3 0 ip 198.51.100.1 > 198.51.100.2 udp 4000 > 53 data 1
    ip 198.51.100.2 > 198.51.100.1 id 5 more udp 53 > 4000 data 24
    ip 198.51.100.2 > 198.51.100.1 id 5 frag 32 proto 17 data 10
    ip 2001:db8:9::2 > 2001:db8:1::9 udp 53 > 4000 data 100
    ip 2001:db8:9::2 > 2001:db8:2::7 tcp 80 > 4000 SA";

/// The frames of a host on its veth.
fn frames(of: Host, lines: &str) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let mut frame = build::line(&format!("0 eth {line}")).frame;
        frame[..6].copy_from_slice(&near(of).0);
        frame[6..12].copy_from_slice(&far(of).0);
        // Network cards pad short frames, and padding must not matter: half of the short frames have it.
        if frame.len() < 60 && frames.len() % 2 == 0 {
            frame.resize(60, 0xee);
        }
        frames.push(frame);
    }
    frames
}

/// Datagrams that the far end's kernel sends: destination, and bytes.
const OF_THE_KERNEL: [(&str, usize); 4] =
    [("198.51.100.2", 1), ("198.51.100.2", 1400), ("2001:db8:9::2", 33), ("10.2.0.7", 7000)];

/// The frames of these datagrams on the wire, with the checksums that the kernel leaves to hardware.
fn of_the_kernel() -> Vec<Vec<u8>> {
    let line = |(to, bytes): &(&str, usize)| match to.contains(':') {
        true => format!("ip 2001:db8:1::2 > {to} udp 4500 > 4501 data {bytes}"),
        false => format!("ip 10.1.0.2 > {to} udp 4500 > 4501 data {bytes}"),
    };
    let lines: Vec<String> = OF_THE_KERNEL.iter().map(line).collect();
    let mut frames = frames(OFFICE, &lines.join("\n"));
    for frame in frames.iter_mut().filter(|frame| frame[12] == 8) {
        // The kernel does not pad, and sets Don't Fragment.
        let length = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        frame.truncate(length);
        frame[20] |= 0x40;
        without_identification(frame);
    }
    frames
}

/// Sets an IPv4 packet's identification to 0 and corrects the checksum.
fn without_identification(frame: &mut [u8]) {
    frame[18..20].fill(0);
    frame[24..26].fill(0);
    let checksum = finish(sum(&frame[14..34], 0));
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

/// The kernel chooses the identification of packets with Don't Fragment freely, so it is cleared.
fn comparable(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for frame in frames.iter_mut().filter(|frame| frame[12] == 8 && frame[20] & 0x40 != 0) {
        assert_eq!(finish(sum(&frame[14..34], 0)), 0, "the header's checksum is right");
        without_identification(frame);
    }
    frames
}

/// How packets reach the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Files,
    Packet,
    XdpNative,
    XdpGeneric,
    Tap,
    #[cfg(feature = "dpdk")]
    Dpdk,
}

fn config(by: By) -> String {
    let driver = match by {
        By::Files => None,
        By::Packet => Some("af_packet"),
        By::XdpNative | By::XdpGeneric => Some("af_xdp"),
        By::Tap => Some("tap"),
        #[cfg(feature = "dpdk")]
        By::Dpdk => Some("dpdk"),
    };
    let mut config = String::new();
    for host in HOSTS {
        config += &format!(
            "[ports.{0}]\naddresses = [\"{1}/24\", \"{2}/64\"]\nmtu = {MTU}\ndefault_mac = \"{3}\"\n",
            host.port,
            host.gateway_v4,
            host.gateway_v6,
            far(host)
        );
        if let Some(driver) = driver {
            config += &match driver {
                // `net_pcap`, because `net_af_packet` and `net_tap` accept no packets longer than Ethernet's.
                "dpdk" => format!("device = \"net_pcap{},iface={},phy_mac=1\"\n", host.number(), host.port),
                _ => format!("interface = \"{}\"\n", host.port),
            };
            config += &format!("driver = \"{driver}\"\n");
        }
        // AF_XDP uses the interface's address, which is the same.
        if matches!(by, By::Files | By::Tap) {
            config += &format!("mac = \"{}\"\n", near(host));
        }
    }
    config + "[nat]\noutside = \"wan\"\ninside = [\"lan\", \"guest\"]\naddresses = [\"198.51.100.1\"]\n"
}

/// The frames sent by each port.
type Out = BTreeMap<&'static str, Vec<Vec<u8>>>;

/// From files: all packets of one port, then all of the other.
fn replayed() -> Out {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("router.toml"), config(By::Files)).expect("the folder is writable");
    let mut arguments = vec!["replay".to_owned()];
    let inputs = [
        (OFFICE, [frames(OFFICE, INSIDE), of_the_kernel()].concat()),
        (OUTSIDE, frames(OUTSIDE, OUTSIDE_IN)),
    ];
    for (host, frames) in inputs {
        let built = |frame: Vec<u8>| build::Built {
            time_ns: 0,
            port: host.port.to_owned(),
            link_code: 1,
            wire_len: frame.len() as u32,
            frame,
        };
        let packets: Vec<_> = frames.into_iter().map(built).collect();
        let file = path(&format!("{}.pcapng", host.port));
        fs::write(&file, build::pcapng(&packets)).expect("the folder is writable");
        arguments.push(format!("{}={}", host.port, file.display()));
    }
    let output = path("out");
    for argument in
        ["-c", path("router.toml").to_str().expect("text"), "--output", output.to_str().expect("text")]
    {
        arguments.push(argument.to_owned());
    }
    let replay = Command::new(env!("CARGO_BIN_EXE_thalweg")).args(&arguments).output().expect("it runs");
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    let out: Out = HOSTS
        .map(|host| {
            (host.port, captured(&fs::read(output.join(format!("{}.pcap", host.port))).expect("a capture")))
        })
        .into();
    let all = frames(OFFICE, INSIDE).len() + OF_THE_KERNEL.len() + frames(OUTSIDE, OUTSIDE_IN).len();
    let said = String::from_utf8_lossy(&replay.stdout);
    assert_eq!(out.values().map(Vec::len).sum::<usize>(), all, "everything is forwarded: {said}");
    out
}

/// The frames of a capture in the classic format, in this machine's byte order.
fn captured(file: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = &file[24..];
    while let Some((header, behind)) = rest.split_at_checked(16) {
        let bytes = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]) as usize;
        frames.push(behind[..bytes].to_vec());
        rest = &behind[bytes..];
    }
    frames
}

/// Through a driver, on veths; `None` if no veths can be made.
fn live(by: By, expected: &Out) -> Option<Out> {
    let site = Site::new()?;
    let here = site.router();
    for host in HOSTS {
        let there = site.namespace(host);
        if by == By::Tap {
            site.ip(&there, "link del eth0");
            continue;
        }
        if by == By::XdpGeneric {
            // The kernel attaches no native XDP program to a veth whose other end has more queues.
            site.ip(&there, "link del eth0");
            let queues = format!(
                "link add eth0 numtxqueues 2 type veth peer name {} numrxqueues 1 netns {here}",
                host.port
            );
            site.ip(&there, &queues);
            site.ip(&there, &format!("addr add {}/24 dev eth0", host.v4));
            site.ip(&there, &format!("addr add {}/64 dev eth0 nodad", host.v6));
        }
        site.ip(&here, &format!("link set {} mtu {MTU} address {} up", host.port, near(host)));
        site.ip(&there, &format!("link set eth0 mtu {MTU} address {} up", far(host)));
        site.ip(&there, &format!("route replace default via {}", host.gateway_v4));
        site.ip(&there, &format!("-6 route replace default via {}", host.gateway_v6));
        for gateway in [host.gateway_v4, host.gateway_v6] {
            let neighbor = format!("neigh replace {gateway} lladdr {} dev eth0 nud permanent", near(host));
            site.ip(&there, &neighbor);
        }
        site.said(&there, "sysctl", &["-q", "-w", "net.ipv6.auto_flowlabels=0"]);
    }
    #[cfg(feature = "dpdk")]
    if by == By::Dpdk && !site.finishes_checksums() {
        return None;
    }
    let router = site.run_alone(&config(by), &[]);
    if let Some(mode) = match by {
        By::XdpNative => Some("native"),
        By::XdpGeneric => Some("generic"),
        _ => None,
    } {
        let ports = router.show(&["ports"]).expect("the router answers");
        assert!(
            ports.iter().all(|port| port["mode"].as_str().is_some_and(|is| is.contains(mode))),
            "{ports:?}"
        );
    }
    let wire = |host: Host| match by {
        By::Tap => Wire::open(&site, &here, host.port, far(host)),
        _ => Wire::open(&site, &site.namespace(host), "eth0", far(host)),
    };
    let [mut office, mut guest, mut outside] = HOSTS.map(wire);
    let send = |wire: &mut Wire, frames: Vec<Vec<u8>>| {
        assert_eq!(wire.send(frames.iter().map(Vec::as_slice)), frames.len());
    };
    send(&mut office, frames(OFFICE, INSIDE));
    match by {
        By::Tap => send(&mut office, of_the_kernel()),
        _ => site.within(&site.namespace(OFFICE), the_kernel_sends),
    }
    // Answers need the sessions of the packets that they answer.
    let to_outside = outside.receive(expected["wan"].len(), is_traffic);
    send(&mut outside, frames(OUTSIDE, OUTSIDE_IN));
    let to_office = office.receive(expected["lan"].len(), is_traffic);
    let to_guest = guest.receive(expected["guest"].len(), is_traffic);
    let counters = router.counters_add_up();
    assert_eq!(counters["queued"], 0, "{counters}");
    let out = [("lan", to_office), ("guest", to_guest), ("wan", to_outside)];
    Some(out.map(|(port, frames)| (port, comparable(frames))).into())
}

/// From the office's own address, as programs send.
fn the_kernel_sends() {
    for (to, bytes) in OF_THE_KERNEL {
        let from = if to.contains(':') { OFFICE.v6 } else { OFFICE.v4 };
        // A program that another test is just starting briefly holds copies of open sockets, perhaps of the one
        // closed here.
        let socket = eventually("its own address", || UdpSocket::bind((from, 4500)).ok());
        let payload: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
        assert_eq!(socket.send_to(&payload, (to, 4501)).expect("sending succeeds"), bytes);
    }
}

/// Frames by addresses and protocol, each in the order of arrival.
fn by_flow(frames: &[Vec<u8>]) -> BTreeMap<Vec<u8>, Vec<&[u8]>> {
    let mut flows: BTreeMap<Vec<u8>, Vec<&[u8]>> = BTreeMap::new();
    for frame in frames {
        let flow = match frame[12..14] {
            [0x08, 0x00] => [&frame[26..34], &frame[23..24]].concat(),
            _ => frame[22..54].to_vec(),
        };
        flows.entry(flow).or_default().push(frame);
    }
    flows
}

#[track_caller]
fn the_same(by: By) {
    let expected = replayed();
    let Some(got) = live(by, &expected) else { return };
    for (port, expected) in &expected {
        let (expected, got) = (by_flow(expected), by_flow(&got[port]));
        assert_eq!(
            got.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>(),
            "flows out of {port}"
        );
        for (flow, expected) in &expected {
            let [expected, got] = [expected, &got[flow]].map(|frames| {
                frames
                    .iter()
                    .map(|frame| format!("{}\n{frame:02x?}", show::frame(frame, false)))
                    .collect::<Vec<_>>()
            });
            assert_eq!(got, expected, "{by:?}: out of {port}");
        }
    }
}

#[test]
fn by_af_packet_as_by_files() {
    the_same(By::Packet);
}

#[test]
fn by_af_xdp_as_by_files() {
    the_same(By::XdpNative);
}

#[test]
fn by_generic_af_xdp_as_by_files() {
    the_same(By::XdpGeneric);
}

#[test]
fn by_tap_as_by_files() {
    the_same(By::Tap);
}

#[cfg(feature = "dpdk")]
#[test]
fn by_dpdk_as_by_files() {
    the_same(By::Dpdk);
}

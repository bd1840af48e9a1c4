//! What an edge router does for its customers, with real hosts: segment sizes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use socket2::SockRef;

use crate::site::{Host, OFFICE, OUTSIDE, Site, eventually};

/// The largest segments that two hosts send each other: what the other announced, less the options in each segment.
fn segments(site: &Site, server: &str) -> [u32; 2] {
    let listener =
        site.within(&site.namespace(OUTSIDE), || TcpListener::bind(server)).expect("the server listens");
    let mut client =
        site.within(&site.namespace(OFFICE), || TcpStream::connect(server)).expect("the client connects");
    let (mut served, _) = listener.accept().expect("a connection");
    // It works: a large answer in many segments.
    client.write_all(b"question").expect("sent");
    served.read_exact(&mut [0; 8]).expect("the question");
    let answer: Vec<u8> = (0..200_000u32).map(|byte| byte as u8).collect();
    let expected = answer.clone();
    let sending = std::thread::spawn(move || served.write_all(&answer).map(|()| served));
    let mut got = vec![0; expected.len()];
    client.read_exact(&mut got).expect("the answer");
    assert!(got == expected, "the answer is whole");
    let served = sending.join().expect("no panic").expect("sent");
    [&client, &served].map(|end| SockRef::from(end).tcp_mss().expect("a size"))
}

#[test]
fn hosts_learn_a_segment_size_that_fits() {
    const TIMESTAMPS: u32 = 12;
    for driver in ["driver = \"af_packet\"", "driver = \"af_xdp\"", "driver = \"af_xdp\"\noffload = true"] {
        let Some(site) = Site::new() else { return };
        let port = |host: Host, more: &str| {
            format!(
                "[ports.{0}]\ninterface = \"{0}\"\n{driver}\n{more}addresses = [\"{1}/24\", \"{2}/64\"]\n\n",
                host.port, host.gateway_v4, host.gateway_v6
            )
        };
        let config = |wan: &str| {
            port(OFFICE, "") + &port(OUTSIDE, wan) + "[nat]\noutside = \"wan\"\ninside = \"lan\"\n"
        };
        let mut router = site.run(&config("mss = 1000\n"), &[]);
        eventually("IPv6", || site.pings(OFFICE, OUTSIDE.v6).then_some(()));
        let ipv4 = format!("{}:7000", OUTSIDE.v4);
        let ipv6 = format!("[{}]:7000", OUTSIDE.v6);
        assert_eq!(segments(&site, &ipv4), [1000 - TIMESTAMPS; 2], "{driver}");
        assert_eq!(segments(&site, &ipv6), [980 - TIMESTAMPS; 2], "{driver}");
        let lowered = |name: &str| {
            let ports = router.show(&["ports"]).expect("the router answers");
            let port = ports.iter().find(|port| port["name"] == name).expect("the port");
            port["mss_lowered"].as_u64().expect("a number")
        };
        // Two connections, both ways; a SYN may have been repeated.
        let before = lowered("wan");
        assert!(before >= 4 && lowered("lan") == 0, "{before}");
        // What the MTU has room for. The counters go on.
        router.reload(&config("mtu = 1400\nmss = \"mtu\"\n")).expect("the router takes it");
        assert_eq!(segments(&site, &ipv4.replace("7000", "7001")), [1360 - TIMESTAMPS; 2], "{driver}");
        assert!(lowered("wan") >= before + 2);
        router.counters_add_up();
        assert!(router.process.end(), "the router stops with success");
    }
}

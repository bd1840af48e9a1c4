//! NAT64 and prefixes of IPv6 in the whole router, with a firewall: what was asked for comes in, and nothing else.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType};
use thalweg_config::RouterConfig;
use thalweg_exec::{ModelKind, ModelOptions, Sink, Source};
use thalweg_node::plan::RouterPlan;
use thalweg_wire::testing;

const WAN: u16 = 0;
const LAN: u16 = 1;

const CONFIG: &str = r#"
[ports.wan]
mac = "02:00:00:00:00:01"
addresses = ["203.0.113.2/24", "2001:db8:ffff::2/64"]
default_mac = "02:00:00:00:ff:01"

[ports.lan]
mac = "02:00:00:00:00:02"
addresses = ["2001:db8:1::1/64"]
default_mac = "02:00:00:00:ff:02"

[[routes]]
prefix = "0.0.0.0/0"
via = "203.0.113.1"

[[routes]]
prefix = "::/0"
via = "2001:db8:ffff::1"

[nat]
outside = "wan"
inside = "lan"
nat64 = "2001:db8:64::/96"

[[prefix_translation]]
inside = "2001:db8:1::/64"
outside = "2001:db8:77::/64"
port = "wan"

[firewall]
outside = "wan"

[firewall.zones]
wan = "wan"
lan = "lan"
"#;

const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 7);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const STRANGER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 8);
const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);

fn mapped(address: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = address.octets();
    let [high, low] = [[a, b], [c, d]].map(u16::from_be_bytes);
    Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, high, low)
}

struct Feed(std::vec::IntoIter<Chunk>);

impl Source<Chunk> for Feed {
    fn next(&mut self) -> Option<Chunk> {
        self.0.next()
    }
}

/// The fate of each packet, with its IP packet if it leaves.
#[derive(Default)]
struct Fates(Vec<Result<(u16, Vec<u8>), DropReason>>);

impl Sink<Chunk> for Fates {
    fn accept(&mut self, chunk: Chunk) {
        for (place, packet) in chunk.packets().iter().enumerate() {
            let out = || (packet.port_out, chunk.egress_frame(place)[14..].to_vec());
            self.0.push(packet.drop_reason().map_or_else(|| Ok(out()), Err));
        }
    }
}

/// Sends packets one after the other through a new router.
fn fates(packets: &[(u16, Vec<u8>)]) -> Vec<Result<(u16, Vec<u8>), DropReason>> {
    let config =
        RouterConfig::from_text("test.toml", CONFIG, Path::new(".")).unwrap_or_else(|e| panic!("{e}"));
    let plan = RouterPlan::from_config(&config, None).unwrap();
    let chunks = (0..).zip(packets).map(|(n, (port, packet))| {
        let frame = testing::frame(packet);
        let mut builder = ChunkBuilder::with_capacity(frame.len() + ChunkBuilder::HEADROOM);
        let at = builder.next_frame_offset();
        builder.buffer_mut()[at..].copy_from_slice(&frame);
        let now_ns = 1_700_000_000_000_000_000;
        builder.push(at, frame.len(), frame.len() as u32, now_ns, LinkType::Ethernet, *port, 0);
        builder.finish(n, n + 1, now_ns)
    });
    let mut sink = Fates::default();
    let mut source = Feed(chunks.collect::<Vec<_>>().into_iter());
    thalweg_exec::run(&plan, &mut source, &mut sink, &ModelOptions::new(ModelKind::Serial, 1)).unwrap();
    sink.0
}

/// The same with one hop less.
fn after_a_hop(mut packet: Vec<u8>) -> Vec<u8> {
    assert!(thalweg_dataplane::ip_packet::count_down(&mut packet));
    packet
}

#[test]
fn what_an_ipv6_host_asked_for_comes_in() {
    let asked = testing::udp((HOST, 5000), (mapped(SERVER), 53), b"question");
    let answer = testing::udp((SERVER, 53), (PUBLIC, 5000), b"answer");
    let known = testing::udp((mapped(SERVER), 53), (HOST, 5000), b"answer");
    let error = |from: Ipv4Addr| {
        let quote = testing::udp((PUBLIC, 5000), (SERVER, 53), b"question");
        testing::icmp(from, PUBLIC, 3, [0; 4], &quote)
    };
    let refused = testing::icmp(HOST, mapped(SERVER), 1, [0; 4], &known);
    let ping = testing::icmp(HOST, mapped(SERVER), 128, [0x13, 0x88, 0, 1], b"ping");
    let pong = testing::icmp(SERVER, PUBLIC, 0, [0x13, 0x88, 0, 1], b"ping");
    let got = fates(&[
        (WAN, answer.clone()),
        (LAN, asked.clone()),
        (WAN, answer),
        (WAN, testing::udp((STRANGER, 53), (PUBLIC, 5000), b"anything")),
        (WAN, error(STRANGER)),
        (LAN, refused),
        (LAN, ping),
        (WAN, pong),
    ]);
    assert_eq!(got[0], Err(DropReason::NatNoMapping));
    let (port, out) = got[1].clone().unwrap();
    assert_eq!((port, &out[12..20]), (WAN, &[203, 0, 113, 2, 198, 51, 100, 7][..]));
    assert_eq!(got[2], Ok((LAN, after_a_hop(known))));
    assert_eq!(
        got[3],
        Err(DropReason::FirewallNotAsked),
        "the mapping is everybody's, the connection is not"
    );
    let told = testing::icmp(mapped(STRANGER), HOST, 1, [0; 4], &asked);
    assert_eq!(got[4], Ok((LAN, after_a_hop(told))));
    assert!(got[5].is_ok() && got[6].is_ok(), "{:?}", &got[5..7]);
    let pong = testing::icmp(mapped(SERVER), HOST, 129, [0x13, 0x88, 0, 1], b"ping");
    assert_eq!(got[7], Ok((LAN, after_a_hop(pong))));
}

#[test]
fn what_a_host_with_another_prefix_outside_asked_for_comes_in() {
    let server = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 2);
    // The prefixes differ by 0x76 in one word.
    let outside = Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0xff89, 0, 0, 7);
    let got = fates(&[
        (WAN, testing::udp((server, 53), (outside, 5000), b"answer")),
        (LAN, testing::udp((HOST, 5000), (server, 53), b"question")),
        (WAN, testing::udp((server, 53), (outside, 5000), b"answer")),
    ]);
    assert_eq!(got[0], Err(DropReason::FirewallNotAsked));
    let question = testing::udp((outside, 5000), (server, 53), b"question");
    assert_eq!(got[1], Ok((WAN, after_a_hop(question))));
    let answer = testing::udp((server, 53), (HOST, 5000), b"answer");
    assert_eq!(got[2], Ok((LAN, after_a_hop(answer))));
}

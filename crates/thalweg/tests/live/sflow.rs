//! Samples of packets from a running router, as a collector of sFlow gets them.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use thalweg_testdata::{uninterrupted, with_room};
use thalweg_wire::sflow::{DATAGRAM_BYTES_MAX, Interface, Sample, discard, read};
use thalweg_wire::testing;

use crate::site::{OFFICE, OUTSIDE, Site, eventually, has};

/// An address behind the outside host.
const BEYOND: &str = "203.0.113.5";
/// Datagrams in each direction.
const DATAGRAMS: usize = 30;
const DENIED: usize = 7;

fn config(collector: u16, sampling: u32) -> String {
    format!(
        "[ports.lan]\ninterface = \"lan\"\naddresses = [\"10.1.0.1/24\"]\ndriver = \"af_packet\"\nacl_in = \"inside\"\n\n\
         [ports.wan]\ninterface = \"wan\"\naddresses = [\"198.51.100.1/24\"]\ndriver = \"af_packet\"\n\n\
         [nat]\noutside = \"wan\"\ninside = [\"lan\"]\n\n\
         [[routes]]\nprefix = \"203.0.113.0/24\"\nvia = \"{}\"\n\n\
         [[acl]]\nname = \"inside\"\ndefault = \"permit\"\n\n\
         [[acl.rules]]\naction = \"deny\"\nprotocol = \"udp\"\ndestination_ports = \"9\"\n\n\
         [flows]\ncollectors = [\"sflow://127.0.0.1:{collector}\"]\nsflow_sampling = {sampling}\n\
         sflow_header = 64\nobservation_domain = 5\n",
        OUTSIDE.v4
    )
}

/// A flow sample, without its packet's other bytes.
#[derive(Debug)]
struct Taken {
    rate: u32,
    places: (Interface, Interface),
    addresses: (IpAddr, IpAddr),
    port: u16,
    bytes: u32,
    /// Next hop, and the length of the destination's prefix.
    route: Option<(IpAddr, u32)>,
}

fn taken(datagrams: &[Vec<u8>]) -> Vec<Taken> {
    let mut all = Vec::new();
    for (number, datagram) in (1..).zip(datagrams) {
        assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
        let (header, fault) = read(datagram, |_, sample| {
            let Sample::Flow(sample) = sample else { return };
            let header = sample.header.expect("a header");
            let start = header.start;
            // UDP in IPv4: the neighbors' ARP is sampled, too.
            if start.get(12..14) != Some(&[8, 0]) || start[23] != 17 {
                return;
            }
            assert!(start.len() <= 64);
            let address = |at: usize| IpAddr::from(*start[at..].first_chunk::<4>().expect("an address"));
            all.push(Taken {
                rate: sample.rate,
                places: (sample.input, sample.output),
                addresses: (address(26), address(30)),
                port: u16::from_be_bytes([start[36], start[37]]),
                bytes: header.bytes,
                route: sample.router.map(|router| (router.next_hop, router.dst_prefix_length)),
            });
        })
        .expect("it is sFlow");
        assert_eq!((header.sequence, header.sub_agent, fault), (number, 5, None));
        assert_eq!(header.agent, IpAddr::from([10, 1, 0, 1]), "the first port's address");
    }
    all
}

/// What tshark says of datagrams.
fn dissected(site: &Site, datagrams: &[Vec<u8>]) -> String {
    let mut capture =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    for datagram in datagrams {
        let frame = testing::frame(&testing::udp(([10, 1, 0, 1], 1), ([192, 0, 2, 9], 6343), datagram));
        let length = u32::try_from(frame.len()).expect("it is short").to_le_bytes();
        capture.extend([[0; 4], [0; 4], length, length].concat());
        capture.extend(frame);
    }
    let file = site.file("sflow.pcap");
    fs::write(&file, capture).expect("the folder is writable");
    site.said(&site.router(), "tshark", &["-r", &file.display().to_string(), "-V"])
}

#[test]
fn a_collector_of_sflow_gets_what_the_router_decided() {
    let Some(site) = Site::new() else { return };
    let collector =
        with_room(site.within(&site.router(), || UdpSocket::bind("127.0.0.1:0")).expect("a collector"));
    site.ip(&site.router(), "link set lo up");
    let outside = site.namespace(OUTSIDE);
    site.ip(&outside, &format!("addr add {BEYOND}/32 dev lo"));
    let port = collector.local_addr().expect("an address").port();
    let mut router = site.run(&config(port, 1), &[]);

    let server = site.within(&outside, || UdpSocket::bind((BEYOND, 7000))).expect("a server");
    let client = site.within(&site.namespace(OFFICE), || UdpSocket::bind("10.1.0.2:5555")).expect("a client");
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    }
    let mut buffer = [0; 64];
    for _ in 0..DATAGRAMS {
        client.send_to(&[1; 20], (BEYOND, 7000)).expect("sent");
        let (_, seen) = uninterrupted(|| server.recv_from(&mut buffer)).expect("data arrives");
        server.send_to(&[2; 40], seen).expect("sent");
        uninterrupted(|| client.recv_from(&mut buffer)).expect("the answer arrives");
    }
    for _ in 0..DENIED {
        client.send_to(&[3; 20], (BEYOND, 9)).expect("sent");
    }
    eventually("the collector has got all", || {
        let outlet = router.one("flow-cache")["outlets"][0].take();
        (outlet["records"].as_u64() >= Some((2 * DATAGRAMS + DENIED) as u64)).then_some(outlet)
    });

    // Another rate needs no restart, and samples go on.
    let changes = router.reload(&config(port, 2)).expect("the reload succeeds");
    assert!(changes.contains("the flow cache stays"), "{changes}");
    let before = router.one("flow-cache")["outlets"][0]["records"].as_u64();
    eventually("samples of the new rate are sent", || {
        client.send_to(&[4; 20], (BEYOND, 7000)).expect("sent");
        (router.one("flow-cache")["outlets"][0]["records"].as_u64() > before).then_some(())
    });
    assert!(router.process.end(), "the router stops with success");

    collector.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let (mut datagrams, mut message) = (Vec::new(), vec![0; 65_536]);
    while let Ok(length) = uninterrupted(|| collector.recv(&mut message)) {
        datagrams.push(message[..length].to_vec());
    }
    let all = taken(&datagrams);
    let office: IpAddr = "10.1.0.2".parse().expect("an address");
    let beyond: IpAddr = BEYOND.parse().expect("an address");
    let of_rate = |rate: u32| all.iter().filter(move |sample| sample.rate == rate);
    let out: Vec<_> = of_rate(1).filter(|sample| sample.port == 7000).collect();
    assert_eq!(out.len(), DATAGRAMS, "{all:?}");
    let gateway: IpAddr = OUTSIDE.v4.parse().expect("an address");
    let (lan, wan) = out[0].places;
    assert!(lan != wan && ![lan, wan].contains(&Interface::Unknown));
    for sample in out {
        assert_eq!((sample.places, sample.addresses, sample.bytes), ((lan, wan), (office, beyond), 62));
        assert_eq!(sample.route, Some((gateway, 24)), "the route of the configuration");
    }
    // As they came, before NAT.
    let back: Vec<_> = of_rate(1).filter(|sample| sample.addresses.0 == beyond).collect();
    assert_eq!(back.len(), DATAGRAMS);
    for sample in back {
        let wan_address: IpAddr = OUTSIDE.gateway_v4.parse().expect("an address");
        assert_eq!((sample.places, sample.addresses.1, sample.bytes), ((wan, lan), wan_address, 82));
        let (next_hop, _) = sample.route.expect("a route");
        assert!(next_hop.is_unspecified(), "the destination is on the port's network: {next_hop}");
    }
    let denied: Vec<_> = of_rate(1).filter(|sample| sample.port == 9).collect();
    assert_eq!(denied.len(), DENIED);
    assert!(denied.iter().all(|sample| sample.places == (lan, Interface::Dropped(discard::ACL))));
    assert!(of_rate(2).count() > 0);

    if has("tshark") {
        let text = dissected(&site, &datagrams);
        assert!(!text.contains("Malformed") && !text.contains("Exception"), "{text}");
        assert!(text.contains("203.0.113.5") && text.contains("Extended router data"), "{text}");
    }
}

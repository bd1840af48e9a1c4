//! Samples of packets from a running router, as a collector of sFlow gets them.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use thalweg_testdata::{uninterrupted, with_room};
use thalweg_wire::sflow::{
    DATAGRAM_BYTES_MAX, DirectionCounters, Interface, InterfaceCounters, Sample, discard, read,
};
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

/// The datagrams that wait for a collector that does not.
fn waiting(collector: &UdpSocket) -> Vec<Vec<u8>> {
    let (mut all, mut message) = (Vec::new(), vec![0; 65_536]);
    while let Ok(length) = uninterrupted(|| collector.recv(&mut message)) {
        all.push(message[..length].to_vec());
    }
    all
}

/// What tshark says of datagrams.
fn dissected(site: &Site, datagrams: &[Vec<u8>], arguments: &[&str]) -> String {
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
    site.said(&site.router(), "tshark", &[&["-r", &file.display().to_string()], arguments].concat())
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
    collector.set_nonblocking(true).expect("it can");
    let mut datagrams = Vec::new();
    eventually("samples of the new rate are sent", || {
        client.send_to(&[4; 20], (BEYOND, 7000)).expect("sent");
        datagrams.extend(waiting(&collector));
        taken(&datagrams).iter().any(|sample| sample.rate == 2).then_some(())
    });
    assert!(router.process.end(), "the router stops with success");

    datagrams.extend(waiting(&collector));
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

    if has("tshark") {
        let text = dissected(&site, &datagrams, &["-V"]);
        assert!(!text.contains("Malformed") && !text.contains("Exception"), "{text}");
        assert!(text.contains("203.0.113.5") && text.contains("Extended router data"), "{text}");
    }
}

/// Counter samples as they come: the sequence numbers of each interface go up by one.
#[derive(Default)]
struct Counted {
    datagrams: Vec<Vec<u8>>,
    all: Vec<InterfaceCounters>,
    sequences: BTreeMap<u32, u32>,
}

impl Counted {
    /// Takes what has come since.
    fn take(&mut self, collector: &UdpSocket) {
        for datagram in waiting(collector) {
            let (_, fault) = read(&datagram, |_, sample| {
                let Sample::Counters(sample) = sample else { return };
                let sequence = self.sequences.entry(sample.source).or_default();
                *sequence += 1;
                assert_eq!(sample.sequence, *sequence, "of interface {}", sample.source);
                let counters = sample.interface.expect("an interface's counters");
                assert_eq!(counters.interface, sample.source);
                self.all.push(counters);
            })
            .expect("it is sFlow");
            assert_eq!(fault, None);
            self.datagrams.push(datagram);
        }
    }

    fn last(&self, interface: u32) -> Option<&InterfaceCounters> {
        self.all.iter().rfind(|counters| counters.interface == interface)
    }
}

/// What iproute2 says of an interface: its number, and the counters of what it received and sent.
fn of_kernel(site: &Site, interface: &str) -> (u32, [DirectionCounters; 2]) {
    let said = site.said(&site.router(), "ip", &["-j", "-s", "-s", "link", "show", "dev", interface]);
    let links: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let counters = &links[0]["stats64"];
    let number =
        |way: &str, name: &str| counters[way][name].as_u64().unwrap_or_else(|| panic!("{name}: {said}"));
    let direction = |way: &str, multicast: Option<u64>, missed: u64| DirectionCounters {
        bytes: Some(number(way, "bytes")),
        unicast: Some((number(way, "packets") - multicast.unwrap_or(0)) as u32),
        multicast: multicast.map(|packets| packets as u32),
        broadcast: None,
        discarded: Some((number(way, "dropped") + missed) as u32),
        errors: Some(number(way, "errors") as u32),
    };
    let received = direction("rx", Some(number("rx", "multicast")), number("rx", "missed_errors"));
    (links[0]["ifindex"].as_u64().expect("a number") as u32, [received, direction("tx", None, 0)])
}

#[test]
fn a_collector_of_sflow_gets_the_counters_of_all_ports() {
    let Some(site) = Site::new() else { return };
    let collector =
        with_room(site.within(&site.router(), || UdpSocket::bind("127.0.0.1:0")).expect("a collector"));
    collector.set_nonblocking(true).expect("it can");
    site.ip(&site.router(), "link set lo up");
    let port = collector.local_addr().expect("an address").port();
    let tap = "[ports.vm]\ninterface = \"vm0\"\naddresses = [\"10.7.0.1/24\"]\ndriver = \"tap\"\n\n";
    let config = |every_s: u32| format!("{tap}{}sflow_counters_s = {every_s}\n", config(port, 1_000_000));
    let mut router = site.run(&config(86_400), &[]);
    let mut counted = Counted::default();
    eventually("counters are sent at the start", || {
        counted.take(&collector);
        (!counted.all.is_empty()).then_some(())
    });
    // Another interval needs no restart, and the sequence numbers go on.
    let changes = router.reload(&config(1)).expect("the reload succeeds");
    assert!(changes.contains("flows: settings changed"), "{changes}");
    let server = site.within(&site.namespace(OUTSIDE), || UdpSocket::bind((OUTSIDE.v4, 7000)));
    let server = server.expect("a server");
    let client = site.within(&site.namespace(OFFICE), || UdpSocket::bind("10.1.0.2:5555")).expect("a client");
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    }
    let mut buffer = [0; 64];
    for _ in 0..DATAGRAMS {
        client.send_to(&[1; 20], (OUTSIDE.v4, 7000)).expect("sent");
        uninterrupted(|| server.recv_from(&mut buffer)).expect("data arrives");
    }
    site.ip(&site.router(), "addr add 10.7.0.2/24 dev vm0");
    eventually("the router answers on its TAP", || {
        site.output(&site.router(), "ping", &["-c", "3", "-W", "1", "10.7.0.1"])
            .status
            .success()
            .then_some(())
    });

    for name in ["lan", "wan"] {
        let last = eventually("a sample has the kernel's counters", || {
            counted.take(&collector);
            let (interface, [received, sent]) = of_kernel(&site, name);
            let last = counted.last(interface)?;
            (last.received == received && last.sent == sent).then_some(*last)
        });
        assert!(last.received.unicast.max(last.sent.unicast) >= Some(DATAGRAMS as u32), "{last:?}");
        assert_eq!((last.kind, last.is_enabled, last.is_up), (InterfaceCounters::ETHERNET, true, true));
        assert_eq!((last.bits_per_s, last.is_full_duplex), (10_000_000_000, Some(true)), "as a veth says");
        assert_eq!(last.unknown_protocols, None);
    }
    // What the router receives on a TAP, the other end has sent.
    eventually("the TAP has the router's counters", || {
        counted.take(&collector);
        let (interface, [received, sent]) = of_kernel(&site, "vm0");
        let last = counted.last(interface)?;
        let ways = |of: &DirectionCounters| (of.bytes, of.unicast);
        assert_eq!((last.received.multicast, last.received.broadcast), (None, None));
        (ways(&last.received) == ways(&sent) && ways(&last.sent) == ways(&received)).then_some(())
    });

    let (lan, _) = of_kernel(&site, "lan");
    site.ip(&site.namespace(OFFICE), "link set eth0 down");
    eventually("a sample says that there is no carrier", || {
        counted.take(&collector);
        counted.last(lan).filter(|last| last.is_enabled && !last.is_up).map(drop)
    });
    site.ip(&site.namespace(OFFICE), "link del eth0");
    let outlet = eventually("the interface is missed", || {
        let outlet = router.one("flow-cache")["outlets"][0].take();
        (outlet["interfaces_uncounted"] == 1).then_some(outlet)
    });
    assert!(outlet["counter_samples"].as_u64() >= Some(9), "{outlet}");
    let said = router.said(&["flow-cache"], 200);
    let row = said.lines().find(|line| line.starts_with("sflow://")).expect("a row").to_owned();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert!(said.contains("Ports not counted") && (cells[3], cells[4]) == ("1", "0"), "{said}");
    let (wan, _) = of_kernel(&site, "wan");
    counted.take(&collector);
    let before = counted.sequences[&wan];
    eventually("those of other ports go on", || {
        counted.take(&collector);
        (counted.sequences[&wan] > before + 1).then_some(())
    });
    assert!(router.process.end(), "the router stops with success");

    counted.take(&collector);
    assert_same_as_tshark(&site, &counted);
}

/// All counters, in the order of the record.
const FIELDS: [&str; 19] = [
    "ifindex",
    "iftype",
    "ifspeed",
    "ifdirection",
    "ifadmin_status",
    "ifoper_status",
    "ifinoct",
    "ifinpkt",
    "ifinmcast",
    "ifinbcast",
    "ifindisc",
    "ifinerr",
    "ifinunk",
    "ifoutoct",
    "ifoutpkt",
    "ifoutmcast",
    "ifoutbcast",
    "ifoutdisc",
    "ifouterr",
];

fn assert_same_as_tshark(site: &Site, counted: &Counted) {
    if !has("tshark") {
        return;
    }
    let fields = FIELDS.map(|field| format!("sflow_245.{field}"));
    let mut arguments = vec!["-T", "fields", "-E", "separator=;", "-Y", "sflow_245.ifindex"];
    arguments.extend(fields.iter().flat_map(|field| ["-e", field]));
    let said = dissected(site, &counted.datagrams, &arguments);
    // A line has each field's values of all its datagram's samples.
    let mut found: Vec<Vec<u64>> = Vec::new();
    for line in said.lines() {
        let columns: Vec<Vec<u64>> = line.split(';').map(numbers).collect();
        assert_eq!(columns.len(), FIELDS.len(), "{line}");
        found.extend(
            (0..columns[0].len()).map(|sample| columns.iter().map(|column| column[sample]).collect()),
        );
    }
    let ours: Vec<Vec<u64>> = counted.all.iter().map(words).collect();
    assert_eq!(found, ours);
}

fn numbers(column: &str) -> Vec<u64> {
    let number = |text: &str| match text {
        "True" => 1,
        "False" => 0,
        number => number.parse().unwrap_or_else(|_| panic!("{column}")),
    };
    column.split(',').map(number).collect()
}

fn words(counters: &InterfaceCounters) -> Vec<u64> {
    let unknown = u64::from(u32::MAX);
    let direction = |of: &DirectionCounters| {
        let words = [of.unicast, of.multicast, of.broadcast, of.discarded, of.errors];
        let words = words.map(|word| word.map_or(unknown, u64::from));
        [&[of.bytes.unwrap_or(u64::MAX)], words.as_slice()].concat()
    };
    let duplex = counters.is_full_duplex.map_or(0, |is_full| if is_full { 1 } else { 2 });
    let head = [counters.interface.into(), counters.kind.into(), counters.bits_per_s, duplex];
    let status = [counters.is_enabled, counters.is_up].map(u64::from);
    let between = [counters.unknown_protocols.map_or(unknown, u64::from)];
    let [received, sent] = [counters.received, counters.sent].map(|of| direction(&of));
    [head.as_slice(), &status, &received, &between, &sent].concat()
}

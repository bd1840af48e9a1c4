//! Exported records: collectors receive what was metered.

use std::collections::HashMap;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Traffic, folder, options, run};
use thalweg_probe::{ExportTargets, ModelKind, ProbeOptions, Shape};
use thalweg_testdata::{uninterrupted, with_room};

/// A reader of IPFIX (RFC 7011) that knows just enough to add up counters.
#[derive(Default)]
struct SlowReader {
    /// By observation domain and template: elements (bit 15 marks an enterprise's) and lengths.
    templates: HashMap<(u32, u16), Vec<(u16, u16)>>,
    /// By observation domain: the next sequence number.
    sequence: HashMap<u32, u32>,
    records: u64,
    packets: u64,
    bytes: u64,
    /// Options data: statistics, names.
    options: u64,
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl SlowReader {
    fn message(&mut self, message: &[u8]) {
        assert_eq!((be(&message[..2]), be(&message[2..4])), (10, message.len() as u64), "version, length");
        let (sequence, domain) = (be(&message[8..12]) as u32, be(&message[12..16]) as u32);
        assert_eq!(sequence, *self.sequence.entry(domain).or_default(), "a message is missing");
        let before = self.records + self.options;
        let mut rest = &message[16..];
        while rest.len() >= 4 {
            let (id, length) = (be(&rest[..2]) as u16, be(&rest[2..4]) as usize);
            let set = &rest[4..length];
            match id {
                2 => self.templates_of(domain, set, 4),
                3 => self.templates_of(domain, set, 6),
                _ => self.data(domain, id, set),
            }
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
        let more = (self.records + self.options - before) as u32;
        self.sequence.insert(domain, sequence.wrapping_add(more));
    }

    fn templates_of(&mut self, domain: u32, mut set: &[u8], header: usize) {
        while set.len() > header {
            let (id, fields) = (be(&set[..2]) as u16, be(&set[2..4]));
            set = &set[header..];
            let mut template = Vec::new();
            for _ in 0..fields {
                template.push((be(&set[..2]) as u16, be(&set[2..4]) as u16));
                set = &set[if set[0] & 0x80 != 0 { 8 } else { 4 }..];
            }
            self.templates.insert((domain, id), template);
        }
    }

    fn data(&mut self, domain: u32, id: u16, mut set: &[u8]) {
        let template = self.templates.get(&(domain, id)).expect("the template comes first").clone();
        let shortest: usize =
            template.iter().map(|(_, n)| if *n == u16::MAX { 1 } else { usize::from(*n) }).sum();
        let is_flow = template.iter().any(|(element, _)| matches!(element, 8 | 27));
        while set.len() >= shortest {
            for &(element, length) in &template {
                let (skip, length) = match length {
                    u16::MAX if set[0] == 255 => (3, be(&set[1..3]) as usize),
                    u16::MAX => (1, usize::from(set[0])),
                    fixed => (0, usize::from(fixed)),
                };
                let value = be(&set[skip..skip + length.min(8)]);
                match element & 0x7fff {
                    1 if is_flow => self.bytes += value,
                    2 if is_flow => self.packets += value,
                    _ => {}
                }
                set = &set[skip + length..];
            }
            if is_flow { self.records += 1 } else { self.options += 1 }
        }
    }
}

/// A collector on a connection: reads until the other end closes.
fn stream_collector(listener: &TcpListener) -> SlowReader {
    let (mut stream, _) = listener.accept().expect("a client connects");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it is closed in order");
    let (mut reader, mut rest) = (SlowReader::default(), &bytes[..]);
    while !rest.is_empty() {
        let (message, behind) = rest.split_at(be(&rest[2..4]) as usize);
        reader.message(message);
        rest = behind;
    }
    reader
}

fn targets(addresses: Vec<String>) -> ExportTargets {
    ExportTargets { addresses, observation_domain: 7, ..ExportTargets::default() }
}

#[test]
fn a_collector_on_a_connection_gets_all_of_it() {
    let traffic = Traffic::mixed(20_000, 1_500, 1);
    let (_folder, capture, lines) = folder(&traffic);
    for biflow in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = format!("ipfix+tcp://{}", listener.local_addr().expect("it has one"));
        let mut options =
            ProbeOptions { export: targets(vec![address.clone()]), ..options(&capture, &lines) };
        options.meter.biflow = biflow;
        options.shape = Shape { model: ModelKind::Farm, pipelines: 2, ..Shape::default() };
        let (summary, reader) = std::thread::scope(|scope| {
            let collector = scope.spawn(|| stream_collector(&listener));
            (run(&options), collector.join().expect("the messages are IPFIX"))
        });
        assert_eq!(reader.records, summary.records_exported);
        assert_eq!(reader.packets, traffic.ip_packets());
        assert_eq!(reader.bytes, traffic.ip_bytes());
        assert!(reader.options > 0, "the totals go too");
        let outlet =
            summary.outlets.iter().find(|outlet| outlet.to == address).expect("the summary has the outlet");
        assert_eq!((outlet.records, outlet.packets), (summary.records_exported, summary.packets_exported));
        assert!(outlet.lost.is_empty(), "{outlet:?}");
    }
}

#[test]
fn several_collectors_get_the_same_or_share() {
    let traffic = Traffic::mixed(8_000, 600, 2);
    let (_folder, capture, lines) = folder(&traffic);
    for balance in [false, true] {
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port is free"));
        let address =
            |listener: &TcpListener| format!("ipfix+tcp://{}", listener.local_addr().expect("it has one"));
        let export = ExportTargets { balance, ..targets(listeners.iter().map(address).collect()) };
        let options = ProbeOptions { export, ..options(&capture, &lines) };
        let (summary, readers) = std::thread::scope(|scope| {
            let collectors: Vec<_> =
                listeners.iter().map(|listener| scope.spawn(|| stream_collector(listener))).collect();
            let summary = run(&options);
            (summary, collectors.into_iter().map(|one| one.join().expect("IPFIX")).collect::<Vec<_>>())
        });
        let packets: u64 = readers.iter().map(|reader| reader.packets).sum();
        let times = if balance { 1 } else { 3 };
        assert_eq!(packets, times * traffic.ip_packets());
        assert!(readers.iter().all(|reader| reader.records > summary.records_exported / 10));
        let mut domains: Vec<u32> =
            readers.iter().flat_map(|reader| reader.sequence.keys().copied()).filter(|n| *n > 0).collect();
        domains.sort_unstable();
        assert_eq!(domains, [7, 8, 9], "a session each; 0 is the exporter itself");
    }
}

#[test]
fn datagrams_arrive_too() {
    let traffic = Traffic::mixed(3_000, 200, 3);
    let (_folder, capture, lines) = folder(&traffic);
    let socket = with_room(UdpSocket::bind("127.0.0.1:0").expect("a port is free"));
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("the timeout can be set");
    let address = format!("ipfix://{}", socket.local_addr().expect("it has one"));
    let options = ProbeOptions { export: targets(vec![address]), ..options(&capture, &lines) };
    let is_over = AtomicBool::new(false);
    let (summary, reader) = std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let (mut reader, mut datagram) = (SlowReader::default(), [0; 65_536]);
            loop {
                match uninterrupted(|| socket.recv(&mut datagram)) {
                    Ok(bytes) => reader.message(&datagram[..bytes]),
                    Err(_) if is_over.load(Ordering::SeqCst) => return reader,
                    Err(_) => {}
                }
            }
        });
        let summary = run(&options);
        is_over.store(true, Ordering::SeqCst);
        (summary, collector.join().expect("the messages are IPFIX"))
    });
    assert_eq!((reader.records, reader.packets), (summary.records_exported, traffic.ip_packets()));
}

#[test]
fn what_could_not_be_sent_is_told() {
    let traffic = Traffic::mixed(500, 50, 4);
    let (_folder, capture, lines) = folder(&traffic);
    // NetFlow 5 cannot express IPv6.
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("v5://{}", socket.local_addr().expect("it has one"));
    let options = ProbeOptions { export: targets(vec![address]), ..options(&capture, &lines) };
    let summary = run(&options);
    let outlet = &summary.outlets.last().expect("the summary has the outlet");
    assert!(
        outlet.lost["ipv6"] > 0 && outlet.records + outlet.lost["ipv6"] == summary.records_exported,
        "{outlet:?}"
    );
    let wrong = ProbeOptions { export: targets(vec!["v7://nowhere".to_owned()]), ..options };
    let error = thalweg_probe::probe(&wrong, &Default::default(), &()).expect_err("no such protocol");
    assert!(error.is_usage() && error.to_string().contains("v7://nowhere"), "{error}");
}

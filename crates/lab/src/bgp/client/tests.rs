//! The client with a minimal neighbor that copies every UPDATE to the last session.

use super::super::message::{NextHops, Said, path_hash, read_update};
use super::super::monitor::Goal;
use super::super::order::{Arrival, Way, order};
use super::super::table::{Neighbors, Packing, PathKind, Table};
use super::*;
use std::net::TcpListener;
use thalweg_base::IpPrefix;

const AS: u32 = 65000;
const MONITOR: Ipv4Addr = Ipv4Addr::new(127, 0, 99, 1);

/// Accepts sessions until the test ends; sends `greet` after its OPEN.
fn mirror(greet: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let to_monitor: Arc<Mutex<Option<TcpStream>>> = Arc::default();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let to_monitor = Arc::clone(&to_monitor);
            std::thread::spawn(move || {
                if let Ok(stream) = stream {
                    let _ = serve(stream, greet, &to_monitor);
                }
            });
        }
    });
    address
}

fn serve(mut stream: TcpStream, greet: &[u8], monitor: &Mutex<Option<TcpStream>>) -> io::Result<()> {
    let mut bytes = Vec::new();
    let fields = OpenFields {
        as_number: AS,
        hold_time_s: 90,
        router_id: Ipv4Addr::new(1, 1, 1, 1),
        families: vec![Family::Ipv4],
    };
    message::open(&mut bytes, &fields);
    bytes.extend_from_slice(greet);
    // Before the session is established, so that the sender finds it.
    if stream.peer_addr()?.ip() == MONITOR {
        *monitor.lock() = Some(stream.try_clone()?);
    }
    stream.write_all(&bytes)?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 999]);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
        while let Some((kind, _, length)) = message::frame(&bytes, MESSAGE_MAX).unwrap() {
            if kind == kind::UPDATE {
                let mut out = monitor.lock();
                out.as_mut().unwrap().write_all(&bytes[..length])?;
            }
            bytes.drain(..length);
        }
    }
}

fn greeting() -> &'static [u8] {
    let mut bytes = Vec::new();
    message::keepalive(&mut bytes);
    Vec::leak(bytes)
}

fn config(daemon: SocketAddr, neighbors: Neighbors) -> ClientConfig {
    let speaker =
        |source: Ipv4Addr, as_number| Speaker { source: source.into(), as_number, router_id: source };
    let mut speakers: Vec<Speaker> =
        (0..neighbors.count).map(|n| speaker(neighbors.address_of(n), neighbors.as_of(n))).collect();
    speakers.push(speaker(MONITOR, 64_599));
    ClientConfig {
        daemon,
        daemon_as: AS,
        speakers,
        monitored: true,
        families: vec![Family::Ipv4],
        hold_time_s: 90,
        connect_timeout: Duration::from_secs(20),
        pace: Duration::ZERO,
    }
}

/// The routes that the mirror's monitor should have: paths without their first AS.
fn reflected(streams: &[Stream]) -> Vec<(IpPrefix, u64)> {
    let mut paths = Vec::new();
    for stream in streams {
        let mut start = 0;
        for end in &stream.ends {
            read_update(&stream.bytes[start + HEADER_LEN..*end], |said| {
                if let Said::Announced(prefix, path) = said {
                    paths.push((prefix, path_hash(path.numbers().skip(1))));
                }
            })
            .unwrap();
            start = *end;
        }
    }
    paths
}

#[test]
fn every_way_of_sending_brings_every_message() {
    let neighbors = Neighbors { count: 6, address: Ipv4Addr::new(127, 0, 98, 1), as_number: 64_600 };
    let table = Table::made(4000, Packing::Real, neighbors, 5);
    let streams: Vec<Stream> = (0..6).map(|n| table.announce(n, PathKind::Any, false)).collect();
    let messages: usize = streams.iter().map(Stream::messages).sum();
    for way in [Way::FileOrder, Way::RoundRobin(3), Way::ThreadPerPeer, Way::AtATime(2)] {
        let client = Client::connect(&config(mirror(greeting()), neighbors)).unwrap();
        assert_eq!(client.sessions(), 7);
        client.monitor().expect(reflected(&streams).into_iter(), 0, Goal::Table);
        if way == Way::ThreadPerPeer {
            client.send_by_threads(&streams).unwrap();
        } else {
            let runs = order(&streams, way, Arrival { file: &[], seed: 1 });
            client.send(&streams, &runs).unwrap();
        }
        let reached = client.wait(Duration::from_secs(60)).unwrap();
        assert!(reached.is_some(), "{way:?}: {:?}", client.monitor().state());
        assert_eq!(client.monitor().heard().updates, messages as u64);
        assert_eq!(client.monitor().heard().unexpected, 0);
        client.check().unwrap();
    }
}

#[test]
fn many_sessions_come_up_and_each_has_its_address() {
    let neighbors = Neighbors { count: 300, address: Ipv4Addr::new(127, 0, 97, 1), as_number: 64_600 };
    let client = Client::connect(&config(mirror(greeting()), neighbors)).unwrap();
    assert_eq!(client.sessions(), 301);
    assert!(client.established_in() > Duration::ZERO);
    let mut stream = Stream::default();
    let hops = NextHops { v4: MONITOR, v6: std::net::Ipv6Addr::LOCALHOST };
    let prefix: IpPrefix = "198.51.100.0/24".parse().unwrap();
    stream.announce(&[], hops, &[prefix], 1);
    client.monitor().expect(std::iter::once((prefix, path_hash(std::iter::empty()))), 0, Goal::Table);
    client.send_bytes(299, &stream.bytes).unwrap();
    assert!(client.wait(Duration::from_secs(60)).unwrap().is_some());
}

#[test]
fn a_peer_that_does_not_answer_is_named() {
    let neighbors = Neighbors { count: 1, address: Ipv4Addr::new(127, 0, 96, 1), as_number: 64_600 };
    // A port without a listener: bound, then closed.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut config = config(nobody, neighbors);
    config.connect_timeout = Duration::from_millis(100);
    let error = Client::connect(&config).unwrap_err().to_string();
    assert!(error.starts_with("0 of 2 sessions") && error.contains("127.0.96.1"), "{error}");
    // A neighbor that answers with a NOTIFICATION.
    let mut bytes = Vec::new();
    message::message(&mut bytes, kind::NOTIFICATION, |out| out.extend([6, 5]));
    config.daemon = mirror(Vec::leak(bytes));
    let error = Client::connect(&config).unwrap_err().to_string();
    assert!(error.contains("NOTIFICATION 6/5"), "{error}");
}

#[test]
fn a_session_that_goes_down_is_named() {
    let neighbors = Neighbors { count: 1, address: Ipv4Addr::new(127, 0, 95, 1), as_number: 64_600 };
    let mut bytes = greeting().to_vec();
    message::message(&mut bytes, kind::NOTIFICATION, |out| out.extend([6, 2]));
    let client = Client::connect(&config(mirror(Vec::leak(bytes)), neighbors)).unwrap();
    let prefix: IpPrefix = "198.51.100.0/24".parse().unwrap();
    client.monitor().expect(std::iter::once((prefix, 1)), 0, Goal::Table);
    let error = client.wait(Duration::from_secs(60)).unwrap_err().to_string();
    assert!(error.contains("went down: NOTIFICATION 6/2"), "{error}");
}

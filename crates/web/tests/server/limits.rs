//! Clients that take too much, or are too slow.

use std::collections::VecDeque;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thalweg_base::uninterrupted;

use crate::client::{ask, connect, connect_as, get, read, request};
use crate::router::{Fixture, PREFIXES, samples_of};

/// Sends a text and reads what comes until the connection ends.
fn until_end(server: &Fixture, text: &str) -> String {
    let mut stream = connect(server.address());
    stream.write_all(text.as_bytes()).expect("sending");
    let mut all = Vec::new();
    // The server may reset the connection.
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn a_head_that_does_not_come_ends_the_connection() {
    let server = Fixture::open();
    for begun in ["", "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let text = until_end(&server, begun);
        assert!(!text.contains("HTTP/1.1 200"), "{text}");
    }
    assert_eq!(server.sample("thalweg_web_connections_cut_total{reason=\"slow-head\"}"), 2);
}

#[test]
fn what_is_no_http_ends_the_connection() {
    let server = Fixture::open();
    let many: String = (0..100).map(|number| format!("X-{number}: 1\r\n")).collect();
    // The last piece that is read may go beyond the limit.
    let long = "x".repeat(300_000);
    for (bad, status) in [
        ("\u{0}\u{1}\u{2}\r\n\r\n".to_owned(), " 400 "),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), " 400 "),
        (format!("GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), " 431 "),
        (format!("GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"), " 431 "),
    ] {
        let text = until_end(&server, &bad);
        assert!(text.is_empty() || text.contains(status), "{text}");
    }
    assert_eq!(server.sample("thalweg_web_connections_cut_total{reason=\"malformed\"}"), 4);
}

#[test]
fn a_body_that_ends_too_early_changes_nothing() {
    let server = Fixture::open();
    let mut unix = UnixStream::connect(server.socket()).expect("the socket");
    let head = "POST /api/v1/config/reload HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{}";
    unix.write_all(head.as_bytes()).expect("sending");
    unix.shutdown(std::net::Shutdown::Write).expect("closing");
    let mut all = String::new();
    let _ = unix.read_to_string(&mut all);
    assert!(!all.contains(" 200 ") && !all.contains("changes"), "{all}");
    assert_eq!(server.written.load(Ordering::Relaxed), 0, "the router was asked nothing");
}

#[test]
fn one_client_has_so_many_connections_and_requests() {
    let server = Fixture::open();
    let held: Vec<TcpStream> = (0..32).map(|_| connect(server.address())).collect();
    let refused = until_end(&server, "");
    assert!(refused.contains(" 503 ") && refused.contains("problem+json"), "{refused}");
    drop(held);
    assert!(server.sample("thalweg_web_connections_cut_total{reason=\"client-connections-full\"}") >= 1);
    let mut kinds = std::collections::BTreeSet::new();
    let mut stream = connect(server.address());
    let address = server.address();
    for _ in 0..200 {
        let answer = ask(&mut stream, &format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n"));
        match answer.status {
            200 => {}
            429 => {
                assert_eq!(
                    (answer.problem(), answer.header("retry-after")),
                    ("too-many".to_owned(), Some("1"))
                );
            }
            other => panic!("{other}: {answer:?}"),
        }
        kinds.insert(answer.status);
    }
    assert!(kinds.into_iter().eq([200, 429]));
}

/// Far more than fit, of one client and of many: each further one is closed at once and counted, and a client that came
/// before is served all the while.
#[test]
fn half_open_connections_move_nothing() {
    const ALL: u32 = 2_000;
    const OF_ONE: u32 = 200;
    /// Held at a time, more than the server has.
    const HELD: usize = 300;
    let server = Fixture::open();
    let mut unix = UnixStream::connect(server.socket()).expect("the socket");
    let mut status = || ask(&mut unix, "GET /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n").status;
    assert_eq!(status(), 200);
    let mut held = VecDeque::new();
    for number in 0..ALL {
        held.push_back(connect_as(number.saturating_sub(OF_ONE), server.address()));
        held.drain(..held.len().saturating_sub(HELD));
        if number % 50 == 0 {
            assert_eq!(status(), 200);
        }
    }
    // Connections are taken in turn: when the last has its answer, or its end, all others have theirs. If it got a place,
    // its end is its time for a head, which is as long as a client may take between two questions: so ask meanwhile.
    let last = held.pop_back().expect("the last");
    last.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    while uninterrupted(|| last.peek(&mut [0])).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
        assert_eq!(status(), 200);
    }
    let refused = read(&mut BufReader::new(last));
    assert!(refused.is_none_or(|refused| (refused.status, refused.problem()) == (503, "busy".to_owned())));
    let metrics = ask(&mut unix, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").text();
    let cuts = samples_of(&metrics, "thalweg_web_connections_cut_total");
    assert!(cuts["client-connections-full"] >= u64::from(OF_ONE) - 32, "{cuts:?}");
    assert!(cuts["connections-full"] >= 1_000, "{cuts:?}");
}

#[test]
fn a_client_that_takes_nothing_stops_only_its_own_list() {
    let server = Fixture::open();
    let mut slow = UnixStream::connect(server.socket()).expect("the socket");
    let list = "GET /api/v1/bgp/routes HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\nConnection: close\r\n\r\n";
    slow.write_all(list.as_bytes()).expect("sending");
    // Others are served meanwhile, and another list of theirs from beginning to end.
    let other = request(
        server.address(),
        "GET",
        "/api/v1/bgp/routes?neighbor=r1",
        &["Accept: application/x-ndjson"],
        "",
    );
    assert_eq!(other.text().lines().count(), PREFIXES as usize);
    let mut unix = UnixStream::connect(server.socket()).expect("the socket");
    let mut status = || ask(&mut unix, "GET /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n").status;
    // Each status is an item too: when nothing else is written between two, the list has stopped.
    let mut written = 0;
    while server.written.load(Ordering::Relaxed) > written + 1 {
        written = server.written.load(Ordering::Relaxed);
        assert_eq!(status(), 200);
    }
    let all = 2 * PREFIXES as usize;
    assert!(written < all + PREFIXES as usize, "the router wrote {written} items, and nobody took them");
    let answer = read(&mut BufReader::new(slow)).expect("the rest");
    assert!(answer.is_whole && answer.text().lines().count() == all, "nothing is lost meanwhile");
}

#[test]
fn one_list_at_a_time() {
    let server = Fixture::open();
    let mut slow = connect(server.address());
    let address = server.address();
    let list = format!(
        "GET /api/v1/bgp/routes HTTP/1.1\r\nHost: {address}\r\nAccept: application/x-ndjson\r\nConnection: close\r\n\r\n"
    );
    slow.write_all(list.as_bytes()).expect("sending");
    let mut first = [0];
    slow.read_exact(&mut first).expect("it has begun");
    assert_eq!(get(server.address(), "/api/v1/bgp/routes").problem(), "too-many");
    drop(slow);
    while get(server.address(), "/api/v1/bgp/neighbors").status != 200 {}
}

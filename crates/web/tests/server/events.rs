//! Streams of events.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use crate::client::connect;
use crate::router::Fixture;

/// The events of a stream: names and data.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(server: &Fixture, topics: &str) -> Self {
        let mut stream = connect(server.address());
        let address = server.address();
        write!(stream, "GET /api/v1/events?topics={topics} HTTP/1.1\r\nHost: {address}\r\n\r\n")
            .expect("sending");
        Self(BufReader::new(stream))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).expect("a line") > 0, "the stream ended");
        line.trim_end().to_owned()
    }

    /// The next event.
    fn event(&mut self) -> (String, serde_json::Value) {
        loop {
            if let Some(name) = self.line().strip_prefix("event: ") {
                let data = self.line();
                let data = data.strip_prefix("data: ").expect("data follows");
                return (name.to_owned(), serde_json::from_str(data).expect("JSON"));
            }
        }
    }
}

#[test]
fn a_stream_has_whole_views_again_and_again() {
    let server = Fixture::open();
    let mut stream = Stream::open(&server, "ports,status,nat");
    let (mut ports, mut statuses, mut absent) = (0, 0, 0);
    while ports < 2 || statuses < 2 {
        let (name, data) = stream.event();
        match name.as_str() {
            "ports" => {
                assert_eq!(data["items"][1]["name"], "wan", "{data}");
                assert_eq!(data["time"], "2026-11-22T16:22:42Z");
                ports += 1;
            }
            "status" => {
                assert_eq!(data["item"]["uptime_s"], 3_600, "{data}");
                statuses += 1;
            }
            "absent" => {
                assert_eq!(data["topic"], "nat");
                absent += 1;
            }
            other => panic!("{other}: {data}"),
        }
    }
    assert_eq!(absent, 1, "what is absent is said once");
}

#[test]
fn a_router_that_is_away_is_an_event() {
    let server = Fixture::open();
    std::fs::remove_file(server.folder.path().join("router.sock")).expect("removing");
    let mut stream = Stream::open(&server, "ports,bgp");
    for _ in 0..2 {
        let (name, data) = stream.event();
        assert!(name == "gone" && data["detail"].is_string(), "{name}: {data}");
    }
}

#[test]
fn streams_are_limited() {
    let server = Fixture::open();
    let open = || {
        let mut stream = UnixStream::connect(server.socket()).expect("the socket");
        stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n").expect("sending");
        let mut line = String::new();
        BufReader::new(stream.try_clone().expect("a copy")).read_line(&mut line).expect("a line");
        (stream, line.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()))
    };
    let mut streams: Vec<_> = (0..32).map(|_| open()).collect();
    assert!(streams.iter().all(|(_, status)| *status == Some(200)));
    assert_eq!(open().1, Some(503));
    // One that ends makes room.
    streams.pop();
    while open().1 != Some(200) {}
}

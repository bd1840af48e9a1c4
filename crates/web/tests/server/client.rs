//! A client of HTTP/1.1 that sends what it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

/// No answer takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body came to its end.
    pub(crate) is_whole: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The kind of the problem, which must be a whole document.
    #[track_caller]
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let document = self.json();
        assert_eq!(document["status"], self.status, "{document}");
        assert!(document["title"].is_string() && document["detail"].is_string(), "{document}");
        let kind = document["type"].as_str().and_then(|kind| kind.strip_prefix("urn:thalweg:problem:"));
        kind.expect("our kind").to_owned()
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Same as `connect`, from an address of loopback with this number: to the server each is another client.
pub(crate) fn connect_as(client: u32, address: SocketAddr) -> TcpStream {
    const FIRST: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);
    let source = SocketAddr::from((Ipv4Addr::from_bits(FIRST.to_bits() + client), 0));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&source.into()).expect("an address of loopback");
    socket.connect(&address.into()).expect("the server listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Sends a text and reads an answer.
#[track_caller]
pub(crate) fn ask(stream: &mut (impl Read + Write), text: &str) -> Answer {
    stream.write_all(text.as_bytes()).expect("sending");
    read(&mut BufReader::new(stream)).expect("an answer")
}

/// Reads an answer.
pub(crate) fn read(reader: &mut impl BufRead) -> Option<Answer> {
    let mut line = || {
        let mut line = String::new();
        let length = reader.read_line(&mut line).unwrap_or(0);
        (length > 0).then(|| line.trim_end().to_owned())
    };
    let status = line()?.split(' ').nth(1)?.parse().ok()?;
    let mut headers = Vec::new();
    while let Some((name, value)) = line()?.split_once(": ") {
        headers.push((name.to_owned(), value.to_owned()));
    }
    let mut answer = Answer { status, headers, body: Vec::new(), is_whole: false };
    if answer.header("transfer-encoding").is_some() {
        answer.is_whole = read_chunks(reader, &mut answer.body).is_some();
    } else {
        let length: u64 = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let got = reader.take(length).read_to_end(&mut answer.body).unwrap_or(0);
        answer.is_whole = got as u64 == length;
    }
    Some(answer)
}

fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> Option<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length = u64::from_str_radix(line.trim_end(), 16).ok()?;
        let got = reader.take(length).read_to_end(body).ok()?;
        let mut end = [0; 2];
        reader.read_exact(&mut end).ok()?;
        match length {
            0 => return Some(()),
            _ if got as u64 != length => return None,
            _ => {}
        }
    }
}

/// The text of a request with a method, a path and further lines of its head.
pub(crate) fn request_text(
    address: SocketAddr,
    method: &str,
    path: &str,
    head: &[&str],
    body: &str,
) -> String {
    let has_host = head.iter().any(|line| line.to_ascii_lowercase().starts_with("host:"));
    let host = if has_host { String::new() } else { format!("Host: {address}\r\n") };
    let head: String = head.iter().map(|line| format!("{line}\r\n")).collect();
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{method} {path} HTTP/1.1\r\n{host}{head}{length}Connection: close\r\n\r\n{body}")
}

/// The answer to such a request.
pub(crate) fn request(address: SocketAddr, method: &str, path: &str, head: &[&str], body: &str) -> Answer {
    ask(&mut connect(address), &request_text(address, method, path, head, body))
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path, &[], "")
}

pub(crate) fn post(address: SocketAddr, path: &str, head: &[&str], body: &str) -> Answer {
    let head = [&["Content-Type: application/json"], head].concat();
    request(address, "POST", path, &head, body)
}

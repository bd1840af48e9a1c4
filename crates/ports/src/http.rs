//! A client of HTTP/1.1: a connection for each request, or connections that stay (`kept`). Redirections are not followed.

pub(crate) mod kept;

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use rustls::StreamOwned;

use crate::collector::{Tls, shake_hands};

/// The time for a connection, and for the server to take a part of a request.
const WITHIN: Duration = Duration::from_secs(5);
/// How often it is asked whether to wait on for an answer.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The beginning of an answer that is read if only the status counts.
const STATUS_BYTES_MAX: usize = 2048;
/// The longest answer.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// A server.
pub(crate) struct Server {
    /// A name or an address; IPv6 without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<Tls>,
}

/// What is asked for or posted.
pub(crate) struct Request<'a> {
    pub(crate) method: &'static str,
    /// The path, with the query.
    pub(crate) path: &'a str,
    /// Further lines of the header, each with its end.
    pub(crate) header: &'a str,
    pub(crate) body: &'a [u8],
}

/// Why a request failed.
pub(crate) enum PostError {
    /// Nothing was sent.
    Connect(io::Error),
    /// It is unknown what the server did.
    Broken(io::Error),
    /// The server's answer is not 2xx: the line with the status, and the text behind the header.
    Refused { line: String, text: String },
}

impl Server {
    fn connect(&self) -> io::Result<TcpStream> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, WITHIN) {
                Ok(socket) => {
                    socket.set_write_timeout(Some(WITHIN))?;
                    return Ok(socket);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Sends a request whose answer has only a status; waits for it as long as `waits` says so.
    pub(crate) fn post(&self, request: &Request<'_>, waits: &dyn Fn() -> bool) -> Result<(), PostError> {
        // Behind a status of success nothing counts.
        let is_enough = |answer: &[u8]| answer.contains(&b'\n') && is_success(&first_line(answer));
        self.send(request, &Reading { waits, most: STATUS_BYTES_MAX, is_enough: &is_enough }).map(drop)
    }

    /// Sends a request, and returns the body of the answer.
    pub(crate) fn ask(&self, request: &Request<'_>, waits: &dyn Fn() -> bool) -> Result<Vec<u8>, PostError> {
        let answer = self.send(request, &Reading { waits, most: ANSWER_BYTES_MAX, is_enough: &|_| false })?;
        body(&answer).map_err(PostError::Broken)
    }

    fn send(&self, request: &Request<'_>, reading: &Reading<'_>) -> Result<Vec<u8>, PostError> {
        let mut socket = self.connect().map_err(PostError::Connect)?;
        let session = self.tls.as_ref().map(|tls| shake_hands(&socket, tls)).transpose();
        let session = session.map_err(PostError::Connect)?;
        socket.set_read_timeout(Some(LOOK_EVERY)).map_err(PostError::Connect)?;
        match session {
            None => self.exchange(&mut socket, request, reading),
            Some(session) => self.exchange(&mut StreamOwned::new(session, socket), request, reading),
        }
    }

    /// Sends the request and reads the answer, which is one of success.
    fn exchange(
        &self,
        stream: &mut (impl Read + Write),
        request: &Request<'_>,
        reading: &Reading<'_>,
    ) -> Result<Vec<u8>, PostError> {
        let Request { method, path, header, body } = request;
        let (host, port, length) = (&self.host, self.port, body.len());
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: thalweg\r\n{header}\
             Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let sent = sent.and_then(|()| stream.flush());
        // A server that refuses early says why before it closes.
        let answer = reading.answer(stream);
        match (sent, answer) {
            (_, Ok(answer)) if !answer.is_empty() => judged(answer),
            (Err(error), _) | (Ok(()), Err(error)) => Err(PostError::Broken(error)),
            (Ok(()), Ok(_)) => Err(PostError::Broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// How much of an answer is read, and how long.
struct Reading<'a> {
    waits: &'a dyn Fn() -> bool,
    most: usize,
    is_enough: &'a dyn Fn(&[u8]) -> bool,
}

impl Reading<'_> {
    fn answer(&self, stream: &mut impl Read) -> io::Result<Vec<u8>> {
        let mut answer = Vec::new();
        let mut piece = [0; 16 << 10];
        while answer.len() < self.most && !(self.is_enough)(&answer) {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => answer.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if !(self.waits)() {
                        return if answer.is_empty() {
                            Err(io::ErrorKind::TimedOut.into())
                        } else {
                            Ok(answer)
                        };
                    }
                }
                Err(error) => return if answer.is_empty() { Err(error) } else { Ok(answer) },
            }
        }
        Ok(answer)
    }
}

/// The whole body of an answer.
fn body(answer: &[u8]) -> io::Result<Vec<u8>> {
    let broken = || io::Error::new(io::ErrorKind::UnexpectedEof, "the answer broke off");
    let end = memchr::memmem::find(answer, b"\r\n\r\n").ok_or_else(broken)?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let body = &answer[end + 4..];
    let member = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if member("transfer-encoding:") == Some("chunked") {
        return chunks(body).ok_or_else(broken);
    }
    match member("content-length:").map(str::parse) {
        Some(Ok(length)) if body.len() >= length => Ok(body[..length].to_vec()),
        None if answer.len() < ANSWER_BYTES_MAX => Ok(body.to_vec()),
        _ => Err(broken()),
    }
}

/// The contents of chunks; `None` if the last one is missing.
fn chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = memchr::memmem::find(rest, b"\r\n")?;
        let line = std::str::from_utf8(&rest[..line_end]).ok()?;
        let length = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        let (chunk, behind) = rest.get(line_end + 2..)?.split_at_checked(length)?;
        body.extend_from_slice(chunk);
        rest = behind.strip_prefix(b"\r\n")?;
    }
}

/// For a query in a URL.
pub(crate) fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(2 * text.len()), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' => encoded.push(byte.into()),
            // Writing to a string cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
        encoded
    })
}

fn first_line(answer: &[u8]) -> String {
    let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).trim().to_owned()
}

fn is_success(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next().is_some_and(|version| version.starts_with("HTTP/1."))
        && words.next().is_some_and(|status| status.len() == 3 && status.starts_with('2'))
}

fn judged(answer: Vec<u8>) -> Result<Vec<u8>, PostError> {
    let line = first_line(&answer);
    if is_success(&line) {
        return Ok(answer);
    }
    let text = match body(&answer) {
        Ok(body) => String::from_utf8_lossy(&body).trim().to_owned(),
        Err(_) => {
            let text = String::from_utf8_lossy(&answer);
            text.split_once("\r\n\r\n").map_or("", |(_, text)| text).trim().to_owned()
        }
    };
    Err(PostError::Refused { line, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_whole_or_an_error() {
        let of =
            |answer: &str| body(answer.as_bytes()).map(|body| String::from_utf8(body).expect("text")).ok();
        let whole = Some("abcdef".to_owned());
        assert_eq!(of("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef"), whole);
        assert_eq!(of("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nabcdef"), None);
        assert_eq!(of("HTTP/1.0 200 OK\r\n\r\nabcdef"), whole);
        let chunked =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n4;x=y\r\ncdef\r\n0\r\n\r\n";
        assert_eq!(of(chunked), whole);
        assert_eq!(of(&chunked[..chunked.len() - 5]), None);
        assert_eq!(of(&chunked.replace("4;", "fffffffffffffffff;")), None);
        assert_eq!(of("HTTP/1.1 200 OK\r\n"), None);
    }
}

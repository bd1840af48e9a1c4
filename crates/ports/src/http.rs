//! A client of HTTP/1.1 for posting: a connection for each request. Redirections are not followed.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use rustls::StreamOwned;

use crate::collector::{Tls, shake_hands};

/// The time for a connection, and for the server to take a part of a request.
const WITHIN: Duration = Duration::from_secs(5);
/// How often it is asked whether to wait on for an answer.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The beginning of an answer that is read.
const ANSWER_BYTES_MAX: usize = 2048;

/// A server.
pub(crate) struct Server {
    /// A name or an address; IPv6 without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<Tls>,
}

/// What is posted.
pub(crate) struct Request<'a> {
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

    /// Posts; waits for an answer as long as `waits` says so.
    pub(crate) fn post(&self, request: &Request<'_>, waits: &dyn Fn() -> bool) -> Result<(), PostError> {
        let mut socket = self.connect().map_err(PostError::Connect)?;
        let session = self.tls.as_ref().map(|tls| shake_hands(&socket, tls)).transpose();
        let session = session.map_err(PostError::Connect)?;
        socket.set_read_timeout(Some(LOOK_EVERY)).map_err(PostError::Connect)?;
        match session {
            None => self.exchange(&mut socket, request, waits),
            Some(session) => self.exchange(&mut StreamOwned::new(session, socket), request, waits),
        }
    }

    /// Sends the request and reads the beginning of the answer.
    fn exchange(
        &self,
        stream: &mut (impl Read + Write),
        request: &Request<'_>,
        waits: &dyn Fn() -> bool,
    ) -> Result<(), PostError> {
        let Request { path, header, body } = request;
        let (host, port, length) = (&self.host, self.port, body.len());
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: thalweg\r\n{header}\
             Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let sent = sent.and_then(|()| stream.flush());
        // A server that refuses early says why before it closes.
        let answer = read_answer(stream, waits);
        match (sent, answer) {
            (_, Ok(answer)) if !answer.is_empty() => judge(&answer),
            (Err(error), _) | (Ok(()), Err(error)) => Err(PostError::Broken(error)),
            (Ok(()), Ok(_)) => Err(PostError::Broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// Reads to the end of the answer, its limit, or the end of a status of success, behind which nothing counts.
fn read_answer(stream: &mut impl Read, waits: &dyn Fn() -> bool) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut piece = [0; 512];
    while answer.len() < ANSWER_BYTES_MAX && !(answer.contains(&b'\n') && is_success(&first_line(&answer))) {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if !waits() {
                    return if answer.is_empty() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(answer) };
                }
            }
            Err(error) => return if answer.is_empty() { Err(error) } else { Ok(answer) },
        }
    }
    Ok(answer)
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

fn judge(answer: &[u8]) -> Result<(), PostError> {
    let line = first_line(answer);
    if is_success(&line) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(answer);
    let text = text.split_once("\r\n\r\n").map_or("", |(_, text)| text).trim().to_owned();
    Err(PostError::Refused { line, text })
}

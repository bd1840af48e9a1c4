//! Connections that stay open between requests: a question to a store of objects takes hundreds of them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::{ClientConnection, StreamOwned};

use super::{LOOK_EVERY, Server, chunks};
use crate::collector::shake_hands;

/// Connections that wait for the next request.
const IDLE_MAX: usize = 32;
/// How long a server may send nothing.
const SILENT_MAX: Duration = Duration::from_secs(30);
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The longest body of an answer.
const BODY_BYTES_MAX: usize = 1 << 30;
/// How much of a file is sent at a time.
const PIECE_BYTES: usize = 256 << 10;

/// What goes behind the header.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    Nothing,
    File(&'a File, u64),
    Bytes(&'a [u8]),
}

/// A request; the header has the host's line.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'static str,
    pub(crate) path: &'a str,
    pub(crate) header: &'a str,
    pub(crate) body: Body<'a>,
}

/// An answer, whatever its status.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A line of the header, by its name in small letters.
    pub(crate) fn member(&self, name: &str) -> Option<&str> {
        member(&self.head, name)
    }
}

/// A server and the open connections to it.
pub(crate) struct Pool {
    server: Server,
    idle: Mutex<Vec<Stream>>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// Why there is no answer.
struct Broken {
    error: io::Error,
    /// Nothing of an answer had come.
    is_silent: bool,
}

impl Pool {
    pub(crate) fn new(server: Server) -> Self {
        Self { server, idle: Mutex::default() }
    }

    /// Sends a request and reads the whole answer; gives up when `goes_on` says so. A request may be sent twice, when the
    /// server closes a connection that was open.
    pub(crate) fn ask(&self, asked: &Asked<'_>, goes_on: &dyn Fn() -> bool) -> io::Result<Answer> {
        let idle = self.idle.lock().pop();
        if let Some(mut stream) = idle {
            match self.exchange(&mut stream, asked, goes_on) {
                Ok((answer, stays)) => return Ok(self.keep(stream, answer, stays)),
                Err(broken) if broken.is_silent && goes_on() => self.idle.lock().clear(),
                Err(broken) => return Err(broken.error),
            }
        }
        let mut stream = self.connect()?;
        let (answer, stays) = self.exchange(&mut stream, asked, goes_on).map_err(|broken| broken.error)?;
        Ok(self.keep(stream, answer, stays))
    }

    fn keep(&self, stream: Stream, answer: Answer, stays: bool) -> Answer {
        let mut idle = self.idle.lock();
        if stays && idle.len() < IDLE_MAX {
            idle.push(stream);
        }
        answer
    }

    fn connect(&self) -> io::Result<Stream> {
        let socket = self.server.connect()?;
        socket.set_nodelay(true)?;
        let session = self.server.tls.as_ref().map(|tls| shake_hands(&socket, tls)).transpose()?;
        socket.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(match session {
            None => Stream::Plain(socket),
            Some(session) => Stream::Tls(Box::new(StreamOwned::new(session, socket))),
        })
    }

    fn exchange(
        &self,
        stream: &mut Stream,
        asked: &Asked<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(Answer, bool), Broken> {
        let sent = send(stream, asked, goes_on);
        // A server that refuses early says why before it closes.
        let mut received = Received { bytes: Vec::new(), goes_on };
        match (sent, received.answer(stream, asked.method)) {
            (Ok(()), Ok(answer)) => Ok(answer),
            (Err(_), Ok((answer, _))) => Ok((answer, false)),
            (Err(error), Err(_)) | (Ok(()), Err(error)) => {
                Err(Broken { error, is_silent: received.bytes.is_empty() })
            }
        }
    }
}

fn send(stream: &mut Stream, asked: &Asked<'_>, goes_on: &dyn Fn() -> bool) -> io::Result<()> {
    let Asked { method, path, header, body } = asked;
    let length = match body {
        Body::Nothing => 0,
        Body::File(_, length) => *length,
        Body::Bytes(bytes) => bytes.len() as u64,
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nUser-Agent: thalweg\r\n{header}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if let Body::Bytes(bytes) = body {
        stream.write_all(bytes)?;
    }
    if let Body::File(file, length) = body {
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < *length {
            if !goes_on() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let count = usize::try_from(length - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
            file.read_exact_at(&mut piece[..count], at)?;
            stream.write_all(&piece[..count])?;
            at += count as u64;
        }
    }
    stream.flush()
}

/// What has come of an answer.
struct Received<'a> {
    bytes: Vec<u8>,
    goes_on: &'a dyn Fn() -> bool,
}

impl Received<'_> {
    /// The answer, and whether the connection may be used again.
    fn answer(&mut self, stream: &mut Stream, method: &str) -> io::Result<(Answer, bool)> {
        let (status, head, behind) = self.head(stream)?;
        let length =
            member(&head, "content-length").map(str::parse::<usize>).transpose().map_err(io::Error::other)?;
        let closes = member(&head, "connection").is_some_and(|what| what.eq_ignore_ascii_case("close"));
        let is_chunked =
            member(&head, "transfer-encoding").is_some_and(|what| what.eq_ignore_ascii_case("chunked"));
        let has_none = method == "HEAD" || status == 204 || status == 304;
        let (body, stays) = if has_none {
            (Vec::new(), true)
        } else if is_chunked {
            (self.chunked(stream, behind)?, false)
        } else if let Some(length) = length {
            if length > BODY_BYTES_MAX {
                return Err(io::Error::other("the answer is too long"));
            }
            let end = behind.saturating_add(length);
            while self.bytes.len() < end {
                self.more(stream)?;
            }
            // Anything behind it is no answer to a question.
            let stays = self.bytes.len() == end;
            (self.bytes[behind..end].to_vec(), stays)
        } else {
            (self.rest(stream, behind)?, false)
        };
        Ok((Answer { status, head, body }, stays && !closes))
    }

    /// The status, the header and where the body begins.
    fn head(&mut self, stream: &mut Stream) -> io::Result<(u16, String, usize)> {
        loop {
            if let Some(end) = memchr::memmem::find(&self.bytes, b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
                let mut words = head.split_whitespace();
                let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
                let status = words.next().and_then(|status| status.parse::<u16>().ok());
                let Some(status) = status.filter(|_| is_http) else {
                    return Err(io::Error::other("the answer is not HTTP"));
                };
                if !(100..200).contains(&status) {
                    return Ok((status, head, end + 4));
                }
                self.bytes.drain(..end + 4);
            } else if self.bytes.len() > HEAD_BYTES_MAX {
                return Err(io::Error::other("the answer's header is too long"));
            } else {
                self.more(stream)?;
            }
        }
    }

    fn chunked(&mut self, stream: &mut Stream, behind: usize) -> io::Result<Vec<u8>> {
        loop {
            if let Some(body) = chunks(&self.bytes[behind..]) {
                return Ok(body);
            }
            self.more(stream)?;
        }
    }

    /// Everything until the server closes.
    fn rest(&mut self, stream: &mut Stream, behind: usize) -> io::Result<Vec<u8>> {
        loop {
            match self.more(stream) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(self.bytes[behind..].to_vec());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads on, and fails when the server has closed.
    fn more(&mut self, stream: &mut Stream) -> io::Result<()> {
        let mut piece = [0; 64 << 10];
        let began = Instant::now();
        loop {
            match stream.read(&mut piece) {
                Ok(0) => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer broke off"));
                }
                Ok(_) if self.bytes.len() > BODY_BYTES_MAX + HEAD_BYTES_MAX => {
                    return Err(io::Error::other("the answer is too long"));
                }
                Ok(count) => {
                    self.bytes.extend_from_slice(&piece[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if !(self.goes_on)() || began.elapsed() > SILENT_MAX {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn member<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut members = head.lines().filter_map(|line| line.split_once(':'));
    members.find(|(theirs, _)| theirs.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

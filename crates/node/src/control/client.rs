//! The client of a control socket: it blocks, for a bounded time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _};
use thalweg_wire::pcapng::BLOCK_BYTES_MAX;

use super::{Line, RefusalKind, Request};

/// Why a router has not answered.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no router answers at {}: {error}", path.display())]
    NoRouter { path: PathBuf, error: io::Error },
    #[error("the connection to the router is lost: {0}")]
    Lost(io::Error),
    #[error("the router has said nothing for too long")]
    Silent,
    #[error("the router closed the connection before the end of its answer")]
    Closed,
    #[error("{text}")]
    Refused { kind: RefusalKind, text: String },
    #[error("cannot read the router's answer: {0}")]
    Unreadable(serde_json::Error),
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Lost(error),
        }
    }
}

/// A connection to a router, for one request after the other.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
    line: String,
}

impl Client {
    /// Connects to a router, which may take `silence_max` for each line of an answer; `None`: for ever.
    pub fn connect(socket: &Path, silence_max: Option<Duration>) -> Result<Self, ClientError> {
        let connect = || {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(silence_max)?;
            stream.set_write_timeout(silence_max)?;
            io::Result::Ok(stream)
        };
        let stream = connect().map_err(|error| ClientError::NoRouter { path: socket.to_owned(), error })?;
        Ok(Self { reader: BufReader::new(stream), line: String::new() })
    }

    /// Sends a request; [`item`](Self::item) reads its answer.
    pub fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut text = serde_json::to_string(request).map_err(ClientError::Unreadable)?;
        text.push('\n');
        Ok(self.reader.get_mut().write_all(text.as_bytes())?)
    }

    /// The next item as the router wrote it; `None` at the end of the answer.
    pub fn item(&mut self) -> Result<Option<&str>, ClientError> {
        self.line.clear();
        if self.reader.read_line(&mut self.line)? == 0 {
            return Err(ClientError::Closed);
        }
        let line = self.line.trim_end();
        // Not parsed, because there may be millions.
        if let Some(item) = line.strip_prefix("{\"item\":").and_then(|rest| rest.strip_suffix('}')) {
            return Ok(Some(item));
        }
        match serde_json::from_str(line).map_err(ClientError::Unreadable)? {
            Line::Done { .. } => Ok(None),
            Line::Error { kind, text } => Err(ClientError::Refused { kind, text }),
            Line::Item(_) => {
                Err(ClientError::Unreadable(serde_json::Error::custom("a space before an item")))
            }
        }
    }

    /// Asks, and passes on each item until the answer ends or `item` breaks. After a break, or an error that is not
    /// [`ClientError::Refused`], the connection is of no use.
    pub fn ask<B>(
        &mut self,
        request: &Request,
        mut item: impl FnMut(&str) -> ControlFlow<B>,
    ) -> Result<Option<B>, ClientError> {
        self.send(request)?;
        while let Some(text) = self.item()? {
            if let ControlFlow::Break(why) = item(text) {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    /// All views of an answer.
    pub fn views<V: DeserializeOwned>(&mut self, request: &Request) -> Result<Vec<V>, ClientError> {
        let mut views = Vec::new();
        let failed = self.ask(request, |text| match serde_json::from_str(text) {
            Ok(view) => {
                views.push(view);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(ClientError::Unreadable(error)),
        })?;
        failed.map_or(Ok(views), Err)
    }

    /// The next block of a capture, behind its first item; `None` where a line begins, or the connection ends.
    pub fn block(&mut self) -> io::Result<Option<Vec<u8>>> {
        if matches!(self.reader.fill_buf()?, [] | [b'{', ..]) {
            return Ok(None);
        }
        let mut block = vec![0; 8];
        self.reader.read_exact(&mut block)?;
        let length = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if !(12..=BLOCK_BYTES_MAX).contains(&length) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a block of {length} bytes")));
        }
        block.resize(length, 0);
        self.reader.read_exact(&mut block[8..])?;
        Ok(Some(block))
    }

    /// Whether more of the answer is here without waiting.
    pub fn has_more(&self) -> bool {
        !self.reader.buffer().is_empty()
    }

    /// The connection, for those who end it from another thread or read it themselves.
    pub fn stream(&self) -> &UnixStream {
        self.reader.get_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// What a client makes of this answer.
    fn asked(answer: &'static [u8]) -> (Vec<String>, Result<Option<()>, ClientError>) {
        let path = std::env::temp_dir().join(format!(
            "thalweg-client-{}-{:?}",
            std::process::id(),
            thread::current().id()
        ));
        let listener = UnixListener::bind(&path).unwrap();
        let router = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            (&stream).write_all(answer).unwrap();
            request
        });
        let mut client = Client::connect(&path, None).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut items = Vec::new();
        let result = client.ask(&Request::Status, |item| {
            items.push(item.to_owned());
            ControlFlow::Continue(())
        });
        assert_eq!(router.join().unwrap(), "{\"request\":\"status\"}\n");
        (items, result)
    }

    #[test]
    fn every_end_of_an_answer_is_told() {
        let (items, result) = asked(b"{\"item\":{\"a\":1}}\n{\"item\":\"}\"}\n{\"done\":{\"items\":2}}\n");
        assert_eq!(items, ["{\"a\":1}", "\"}\""]);
        assert!(matches!(result, Ok(None)), "{result:?}");
        let (items, result) = asked(b"{\"item\":1}\n");
        assert_eq!(items, ["1"]);
        assert!(matches!(result, Err(ClientError::Closed)), "{result:?}");
        let (_, result) = asked(b"{\"error\":{\"kind\":\"absent\",\"text\":\"none\"}}\n");
        let Err(ClientError::Refused { kind: RefusalKind::Absent, text }) = result else {
            panic!("{result:?}")
        };
        assert_eq!(text, "none");
        for other in [&b"{\"item\": 1\n"[..], b"hello\n", b"\n", b"\xff\n"] {
            let (items, result) = asked(other);
            assert!(items.is_empty() && result.is_err(), "{items:?}");
        }
    }

    #[test]
    fn who_says_nothing_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("thalweg-client-{}-silent", std::process::id()));
        let _listener = UnixListener::bind(&path).unwrap();
        let mut client = Client::connect(&path, Some(Duration::from_millis(1))).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(client.views::<u8>(&Request::Status), Err(ClientError::Silent)));
        assert!(matches!(Client::connect(&path, None), Err(ClientError::NoRouter { .. })));
    }
}

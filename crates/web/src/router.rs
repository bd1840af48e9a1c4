//! Asks the router over its control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::de::DeserializeOwned;
use thalweg_node::control::{Line, Request};

use crate::limits::ROUTER_MAX;
use crate::problem::{Problem, ProblemKind};

/// A connection to the router, for one request after the other.
pub(crate) struct Conversation {
    reader: BufReader<UnixStream>,
    line: String,
}

impl Conversation {
    pub(crate) fn open(socket: &Path) -> Result<Self, Problem> {
        let connect = || {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(ROUTER_MAX))?;
            stream.set_write_timeout(Some(ROUTER_MAX))?;
            io::Result::Ok(stream)
        };
        let stream = connect().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Problem::failed(format!("{}: {error}", socket.display())),
            _ => no_router(format!("no router answers at {}: {error}", socket.display())),
        })?;
        Ok(Self { reader: BufReader::new(stream), line: String::new() })
    }

    /// Asks, and passes on each item as the router wrote it, until the answer ends or `item` has enough. After that
    /// break, or an error, the connection is of no use.
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        item: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), Problem> {
        let mut text = serde_json::to_string(request).map_err(Problem::failed)?;
        text.push('\n');
        self.reader.get_mut().write_all(text.as_bytes()).map_err(|error| lost(&error))?;
        loop {
            self.line.clear();
            if self.reader.read_line(&mut self.line).map_err(|error| lost(&error))? == 0 {
                return Err(no_router("the router closed the connection before the end of its answer"));
            }
            let line = self.line.trim_end();
            if let Some(text) = line.strip_prefix("{\"item\":").and_then(|rest| rest.strip_suffix('}')) {
                if item(text).is_break() {
                    return Ok(());
                }
                continue;
            }
            return match serde_json::from_str(line) {
                Ok(Line::Done { .. }) => Ok(()),
                Ok(Line::Error { kind, text }) => Err(Problem::of_router(kind, text)),
                Ok(Line::Item(_)) => Err(Problem::failed("cannot read the router's answer")),
                Err(error) => Err(Problem::failed(format!("cannot read the router's answer: {error}"))),
            };
        }
    }

    /// All views of an answer.
    pub(crate) fn views<V: DeserializeOwned>(&mut self, request: &Request) -> Result<Vec<V>, Problem> {
        let (mut views, mut failed) = (Vec::new(), None);
        self.ask(request, &mut |text| match serde_json::from_str(text) {
            Ok(view) => {
                views.push(view);
                ControlFlow::Continue(())
            }
            Err(error) => {
                failed = Some(Problem::failed(format!("cannot read the router's answer: {error}")));
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(views), Err)
    }

    /// The bytes behind the answers so far, for a request that takes the whole connection.
    pub(crate) fn reader(&mut self) -> &mut BufReader<UnixStream> {
        &mut self.reader
    }
}

fn lost(error: &io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            no_router(format!("the router has said nothing for {} s", ROUTER_MAX.as_secs()))
        }
        _ => no_router(format!("the connection to the router is lost: {error}")),
    }
}

fn no_router(detail: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::NoRouter, detail)
}

//! Queries a running router over its control socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use thalweg_node::control::{Line, Request};

use crate::Failure;

/// The default control socket.
const SOCKET_DEFAULT: &str = "/run/thalweg/thalweg.sock";

/// Which running router a command asks.
#[derive(Clone, Debug, Args)]
pub(crate) struct SocketArgs {
    /// Control socket of the router
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    pub(crate) socket: PathBuf,
}

/// Sends a request and passes on the items of the answer.
pub(crate) fn ask(
    socket: &Path,
    request: &Request,
    mut item: impl FnMut(Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let stream = connect(socket, request)?;
    for line in BufReader::new(stream).lines() {
        let line = serde_json::from_str(&line.map_err(|error| lost(socket, error))?)
            .map_err(|error| Failure::Control(format!("cannot read the router's answer: {error}")))?;
        match line {
            Line::Item(value) => item(value)?,
            Line::Done { .. } => return Ok(()),
            Line::Error { text, .. } => return Err(Failure::Control(text)),
        }
    }
    Err(Failure::Control("the router closed the connection before the end of its answer".to_owned()))
}

/// Connects to a router and sends a request.
pub(crate) fn connect(socket: &Path, request: &Request) -> Result<UnixStream, Failure> {
    let mut stream = UnixStream::connect(socket).map_err(|error| lost(socket, error))?;
    let text = serde_json::to_string(request).map_err(|error| Failure::Control(error.to_string()))?;
    stream.write_all(format!("{text}\n").as_bytes()).map_err(|error| lost(socket, error))?;
    Ok(stream)
}

/// Why a router cannot be reached.
pub(crate) fn lost(socket: &Path, error: std::io::Error) -> Failure {
    let name = socket.display();
    Failure::Control(match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            format!("no router answers at {name}: is `thalweg run` running, with this --socket?")
        }
        std::io::ErrorKind::PermissionDenied => format!(
            "no permission to open {name}: `[control] group` names who may, beside the router's own user"
        ),
        _ => format!("{name}: {error}"),
    })
}

pub(crate) fn parse<T: serde::de::DeserializeOwned>(item: Value) -> Result<T, Failure> {
    serde_json::from_value(item)
        .map_err(|error| Failure::Control(format!("cannot read the router's answer: {error}")))
}

pub(crate) fn parse_all<T: serde::de::DeserializeOwned>(items: Vec<Value>) -> Result<Vec<T>, Failure> {
    items.into_iter().map(parse).collect()
}

//! Queries a running router over its control socket.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use thalweg_node::control::{Client, ClientError, Request};

use crate::Failure;

/// The default control socket.
const SOCKET_DEFAULT: &str = "/run/thalweg/thalweg.sock";

/// The longest time between two lines of an answer. A reload says nothing until it is done.
const SILENCE_MAX: Duration = Duration::from_secs(120);

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
    let mut client = Client::connect(socket, Some(SILENCE_MAX))?;
    let failed = client.ask(request, |text| match read(text).and_then(&mut item) {
        Ok(()) => ControlFlow::Continue(()),
        Err(failure) => ControlFlow::Break(failure),
    })?;
    failed.map_or(Ok(()), Err)
}

/// All views of an answer.
pub(crate) fn views<V: serde::de::DeserializeOwned>(
    socket: &Path,
    request: &Request,
) -> Result<Vec<V>, Failure> {
    Ok(Client::connect(socket, Some(SILENCE_MAX))?.views(request)?)
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Control(match &error {
            ClientError::NoRouter { path, error: system } => match system.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => format!(
                    "no router answers at {}: is `thalweg run` running, with this --socket?",
                    path.display()
                ),
                ErrorKind::PermissionDenied => format!(
                    "no permission to open {}: `[control] group` names who may, beside the router's own user",
                    path.display()
                ),
                _ => error.to_string(),
            },
            _ => error.to_string(),
        })
    }
}

/// Reads an item of an answer.
pub(crate) fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| ClientError::Unreadable(error).into())
}

pub(crate) fn parse<T: serde::de::DeserializeOwned>(item: Value) -> Result<T, Failure> {
    serde_json::from_value(item).map_err(|error| ClientError::Unreadable(error).into())
}

pub(crate) fn parse_all<T: serde::de::DeserializeOwned>(items: Vec<Value>) -> Result<Vec<T>, Failure> {
    items.into_iter().map(parse).collect()
}

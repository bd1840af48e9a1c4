//! Asks the router over its control socket.

use std::io;
use std::path::Path;

use thalweg_node::control::{Client, ClientError};

use crate::limits::ROUTER_MAX;
use crate::problem::{Problem, ProblemKind};

pub(crate) fn connect(socket: &Path) -> Result<Client, Problem> {
    Ok(Client::connect(socket, Some(ROUTER_MAX))?)
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { kind, text } => Self::of_router(kind, text),
            ClientError::NoRouter { path, error } if error.kind() == io::ErrorKind::PermissionDenied => {
                Self::failed(format!("{}: {error}", path.display()))
            }
            ClientError::Unreadable(_) => Self::failed(error),
            _ => Self::new(ProblemKind::NoRouter, error.to_string()),
        }
    }
}

//! Routes as neighbors send them, over the control socket.
//!
//! Like a capture this uses a connection of its own: after the request come items until one side ends it. MRT
//! records come as [`ReceivedItem::Mrt`], with that many bytes after its line; [`ReceivedItem::Watching`] comes
//! once. Before it come the requested routes as import left them (TABLE_DUMP_V2), after it every UPDATE,
//! ROUTE-REFRESH and state change of the sessions with these neighbors (BGP4MP_ET). The router does not ask
//! neighbors for routes: a client that wants all of them sends [`super::BgpRequest::Refresh`] too. The client ends
//! the connection by closing its half.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Request;

/// Selects neighbors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedRequest {
    /// Neighbors whose sessions to watch.
    pub watch: Vec<IpAddr>,
    /// Those of them whose routes are wanted as the RIB has them now, after import.
    pub after_import: Vec<IpAddr>,
}

/// An item of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceivedItem {
    /// MRT records follow the line.
    Mrt {
        /// Their length.
        bytes: usize,
    },
    /// From here on, messages that sessions receive follow.
    Watching,
}

impl Request {
    /// The request for received routes, if it is one.
    pub fn as_received(&self) -> Option<&ReceivedRequest> {
        match self {
            Self::Received(received) => Some(received),
            _ => None,
        }
    }
}

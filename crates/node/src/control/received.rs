//! Routes as neighbors send them, over the control socket.
//!
//! Like a capture this takes a connection of its own: the request, then items until one side ends it. Items are records of
//! MRT, as [`ReceivedItem::Mrt`] with that many bytes behind its line, and [`ReceivedItem::Watching`] once: before it the
//! routes that were asked for as import left them (TABLE_DUMP_V2), behind it every UPDATE, ROUTE-REFRESH and change of
//! state of the sessions with these neighbors (BGP4MP_ET). The router asks nobody for anything: a client that wants all routes
//! sends [`super::BgpRequest::Refresh`] besides. It ends the connection by closing its half.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Request;

/// Whose routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedRequest {
    /// Neighbors whose sessions to look at.
    pub watch: Vec<IpAddr>,
    /// Those among them whose routes are wanted as the RIB has them now, after import.
    pub after_import: Vec<IpAddr>,
}

/// What the router answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceivedItem {
    /// Records of MRT follow the line.
    Mrt {
        /// How many bytes of them.
        bytes: usize,
    },
    /// What sessions receive follows from here on.
    Watching,
}

impl Request {
    /// Whose routes, if that is what is asked for.
    pub fn as_received(&self) -> Option<&ReceivedRequest> {
        match self {
            Self::Received(received) => Some(received),
            _ => None,
        }
    }
}

//! The reasons for which a simulation cannot go on.

use std::io;

/// An error of the simulation itself.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A router never finished its work at one moment of virtual time.
    #[error("router {router} never idles at {} ms of virtual time: it always has more work", at_us / 1000)]
    NoRest { router: usize, at_us: u64 },
    /// A router does not start, or does not accept its connections.
    #[error("router {router}: {source}")]
    Router { router: usize, source: io::Error },
    /// A request to a router that is not running.
    #[error("router {0} does not run")]
    NotRunning(usize),
    #[error("no link between routers {0} and {1}")]
    NoLink(usize, usize),
    /// A router refuses a request or a configuration.
    #[error("router {router}: {reason}")]
    Refused {
        router: usize,
        /// In the router's words.
        reason: String,
    },
    /// The system has no poller, with which routers register their connections.
    #[error("no poller: {0}")]
    Poller(#[from] io::Error),
}

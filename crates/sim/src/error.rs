//! Why a simulation cannot go on.

use std::io;

/// What went wrong in the simulation itself.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A router went on working at one moment of virtual time.
    #[error("router {router} never idles at {} ms of virtual time: it always has more work", at_us / 1000)]
    NoRest {
        /// Its number.
        router: usize,
        at_us: u64,
    },
    /// A router does not start or take its connections.
    #[error("router {router}: {source}")]
    Router {
        /// Its number.
        router: usize,
        source: io::Error,
    },
    /// Something is asked of a router that does not run.
    #[error("router {0} does not run")]
    NotRunning(usize),
    /// There is no link between two routers.
    #[error("no link between routers {0} and {1}")]
    NoLink(usize, usize),
    /// A router refuses a request or a configuration.
    #[error("router {router}: {reason}")]
    Refused {
        /// Its number.
        router: usize,
        /// In its words.
        reason: String,
    },
    /// The system has no poller, which routers register their connections with.
    #[error("no poller: {0}")]
    Poller(#[from] io::Error),
}

//! The HTTP API of a router, its console, metrics and looking glass.
//!
//! ```text
//! clients ──HTTP──> listen ──> server ──> routes: which request is it, may they?
//!                                │
//!                                ├─ a thread for each answer (at most 8) ──> the router's control socket
//!                                └─ events: one thread for all streams ────> the same
//! ```
//!
//! This is a client of the control socket like `show`: [`thalweg_node::control::Request`] is the API, and answers stream
//! through without being collected. So it can be a thread of the router's process or a process of its own, without any
//! right but that to open the socket. One thread serves all connections; `limits.rs` has what they may take, and each
//! refusal is counted. Nothing here holds up the router: a slow client stops only its own question.

mod answer;
mod assets;
mod body;
mod check;
mod clients;
mod counters;
mod download;
mod events;
mod exposition;
mod flows;
mod glass;
mod hosts;
mod limits;
mod listen;
mod metrics;
mod problem;
mod query;
mod reports;
mod rights;
mod router;
mod routes;
mod server;
mod stream;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thalweg_config::WebConfig;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use listen::Listeners;
use server::Server;

/// Where the router is, and what else the server is given.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// The router's control socket.
    pub router: PathBuf,
    /// The folder of stored flow records.
    pub store: Option<PathBuf>,
    pub version: &'static str,
    /// The time, in nanoseconds since the epoch.
    pub wall_ns: fn() -> u64,
}

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("cannot listen on {}: {error}", path.display())]
    Socket { path: PathBuf, error: io::Error },
    #[error("a token cannot be used: {0}")]
    Token(io::Error),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct Web {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Where it listens, with the ports that the system chose.
    addresses: Vec<SocketAddr>,
    /// Removed at the end.
    socket: Option<PathBuf>,
}

/// At the end, answers being made may take this long.
const ENDING_MAX: Duration = Duration::from_millis(200);

impl Web {
    /// Opens the sockets and serves them on a thread of its own.
    pub fn start(config: &WebConfig, options: WebOptions) -> Result<Self, WebError> {
        let listeners = Listeners::open(config)?;
        let (addresses, socket) = (listeners.addresses(), config.socket.clone());
        let server = Arc::new(Server::new(config, options).map_err(WebError::Token)?);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(limits::ANSWERS_MAX)
            .build()
            .map_err(WebError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                match listeners.serve(&server) {
                    // Dropping the other end stops too.
                    Ok(()) => drop(stopped.await),
                    Err(error) => tracing::error!("the HTTP API is not served: {error}"),
                }
            });
            runtime.shutdown_timeout(ENDING_MAX);
        };
        let thread = thread::Builder::new().name("web".to_owned()).spawn(serve).map_err(WebError::Thread)?;
        tracing::info!(?addresses, ?socket, "serving the HTTP API");
        Ok(Self { stop: Some(stop), thread: Some(thread), addresses, socket })
    }

    /// The TCP addresses of the API, then those of the looking glass, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if ended.is_some_and(|ended| ended.is_err()) {
            tracing::error!("the thread of the HTTP API panicked; please report it");
        }
        if let Some(Err(error)) = self.socket.as_ref().map(std::fs::remove_file) {
            tracing::warn!("cannot remove the socket of the HTTP API: {error}");
        }
    }
}

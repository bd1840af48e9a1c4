//! What one client, and all together, can take of this server.

use std::time::Duration;

/// Connections at a time; a further one is told so and closed.
pub(crate) const CONNECTIONS_MAX: u32 = 64;
/// Of these, how many one address may have.
pub(crate) const CLIENT_CONNECTIONS_MAX: u32 = 32;
/// How long the head of a request may take, from the connection or the last answer on.
pub(crate) const HEAD_MAX: Duration = Duration::from_secs(5);
pub(crate) const HEADERS_MAX: usize = 64;
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;
pub(crate) const BODY_MAX: Duration = Duration::from_secs(10);
/// A connection on which nothing moves ends after this.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);
/// A client that takes nothing of an answer is dropped after this.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(30);
/// Answers being made at a time, each on a thread.
pub(crate) const ANSWERS_MAX: usize = 8;
/// How long a request waits for one of these threads.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How often a request to the looking glass asks whether it is its turn.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(20);
/// An answer goes to its client in pieces of about this size, [`PIECES_AHEAD`] ahead of it.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
pub(crate) const PIECES_AHEAD: usize = 2;
/// Requests of a client in a second, in the long run and at once.
pub(crate) const REQUESTS_PER_S: f64 = 20.0;
pub(crate) const REQUESTS_AT_ONCE: f64 = 60.0;
/// Addresses whose requests are counted.
pub(crate) const CLIENTS_MAX: usize = 1024;
/// Streams of events at a time.
pub(crate) const STREAMS_MAX: usize = 32;
/// A stream whose client is this far behind ends.
pub(crate) const BEHIND_BYTES_MAX: usize = 256 << 10;
/// Views of a list unless `limit` says otherwise, and the largest `limit`.
pub(crate) const LIST_DEFAULT: usize = 1_000;
pub(crate) const LIST_MAX: usize = 10_000;
/// How long the router may take for the next line of an answer.
pub(crate) const ROUTER_MAX: Duration = Duration::from_secs(30);

//! TCP for BGP: listeners, connections, their options.
//!
//! ```text
//! Listener::bind ── accept ──> Stream ── apply(hop limit)
//! connect(local, remote, hop limit) ──> Stream ── writable ── connected()?
//! ```
//!
//! Nothing here blocks. A [`Stream`] is read and written through `&self`, so that one thread may read while
//! another writes. A call that is not possible now returns [`Progress::WouldBlock`]; the scheduling's poller
//! (`crates/exec`) says when it is.
//!
//! What BGP needs from TCP, and where it is:
//!
//! | need | solution |
//! |---|---|
//! | MD5 signatures (RFC 2385), also for a range of dynamic neighbors | [`Md5Key`], `TCP_MD5SIG_EXT` with a prefix length |
//! | GTSM (RFC 5082) and eBGP multihop | [`HopLimit`]: TTL sent, and `IP_MINTTL`, `IPV6_MINHOPCOUNT` |
//! | routing before other traffic | class selector 6 |
//! | dead neighbors found by BGP's timers, not TCP's | keepalive off |
//!
//! IPv4 and IPv6 listen on separate sockets (`IPV6_V6ONLY`), so that no address is an IPv4-mapped one, and
//! MD5 passwords have the family of their address.
//!
//! # What the kernel does not do
//!
//! - GTSM protects an accepted connection from [`Stream::apply`] on; the handshake is answered before that
//!   with any TTL.
//! - Passwords of a listener count against `net.core.optmem_max` (131,072 bytes by default, about 800
//!   passwords): [`TcpError::TooManyKeys`] says to raise it for more.
//! - A connection accepted from an address with a password keeps it; changing the listener's does not change
//!   the connection's.
//!
//! Missing: TCP-AO (RFC 5925; the kernels tested with lack it), VRFs.

mod error;
mod listener;
mod md5;
mod options;
mod stream;

pub use error::{KEY_LENGTH_MAX, TcpError};
pub use listener::{BACKLOG, Listener};
pub use md5::{Md5Key, SignatureFaults};
pub use options::HopLimit;
pub use stream::{Progress, SLICES_MAX, Stream, connect};

//! TCP for BGP: listeners, connections, their options, and one poller per thread.
//!
//! ```text
//! Listener::bind ── accept ──> Stream ── apply(options) ── register ──> Poller (one per thread)
//! connect(local, remote, options) ──> Stream ── writable ── connected()?
//! ```
//!
//! Nothing here blocks. A [`Stream`] is read and written through `&self`, so that one thread may read while
//! another writes. What a call cannot do now it answers with [`Progress::WouldBlock`]; the thread that registered the
//! stream with a [`Poller`] hears when it can. Events are *edges*: after one, read (or write) until
//! `WouldBlock`, or remember that there is more.
//!
//! What BGP wants of TCP, and where it is:
//!
//! | want | how |
//! |---|---|
//! | MD5 signatures (RFC 2385), also for a range of dynamic neighbors | [`Md5Key`], `TCP_MD5SIG_EXT` with a prefix length |
//! | GTSM (RFC 5082) and eBGP multihop | [`HopLimit`]: TTL sent, and `IP_MINTTL`, `IPV6_MINHOPCOUNT` |
//! | routing before other traffic | class selector 6 ([`SocketOptions::dscp_byte`]) |
//! | dead neighbors found by BGP's timers, not TCP's | keepalive off, `TCP_USER_TIMEOUT` optional |
//! | a bounded, recent backlog | `TCP_NOTSENT_LOWAT` optional: encode late, when the socket takes more |
//!
//! IPv4 and IPv6 listen on sockets of their own (`IPV6_V6ONLY`), so that an address is never an IPv4 one in
//! IPv6's clothes and MD5 keys are of the family they look like.
//!
//! # What the kernel does not do
//!
//! - GTSM on an accepted connection holds from [`Stream::apply`] on; the handshake is answered before, whatever
//!   the TTL, unless [`ListenOptions::minimum_ttl`] says otherwise for all neighbors of the listener.
//! - Keys of a listener count against `net.core.optmem_max` (131,072 bytes by default, about 800 keys): more
//!   neighbors with a password of their own need it raised, and [`TcpError::TooManyKeys`] says so.
//! - A connection accepted from an address with a key has the key; changing the listener's does not change the
//!   connection's.
//!
//! Missing: TCP-AO (RFC 5925; the kernels at hand are built without it), VRFs.

mod error;
mod listener;
mod md5;
mod options;
mod poller;
mod stream;

pub use error::{KEY_LENGTH_MAX, TcpError};
pub use listener::{BACKLOG, ListenOptions, Listener};
pub use md5::{Md5Key, SignatureFaults};
pub use options::{CLASS_SELECTOR_6, HopLimit, SocketOptions};
pub use poller::{EVENTS_PER_POLL, Event, Events, Interest, Poller, Registrar, Waker};
pub use stream::{Progress, SLICES_MAX, Stream, connect};

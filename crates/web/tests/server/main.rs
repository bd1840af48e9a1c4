//! The server as clients see it: over sockets, with a router that is only a control socket.

mod client;
mod endpoints;
mod events;
mod glass;
mod limits;
mod misuse;
mod openbgpd;
mod prometheus;
mod reports;
mod router;
mod tls;

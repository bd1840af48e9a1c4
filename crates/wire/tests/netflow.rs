//! Real exporters' messages: every datagram of a collection of vendors' quirks, and captures whose records other decoders
//! wrote down.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod datagrams;
mod netgauze;
mod tshark;

//! Byte formats, pure: bytes to values and back. Nothing here opens a file or a socket, or knows what a value is used
//! for.
//!
//! | module | formats |
//! |---|---|
//! | [`ethernet`], [`checksum`] | where the IP packet of a frame begins; the Internet checksum and its update |
//! | [`bgp`] | BGP messages, the rules of each path attribute |
//! | [`mrt`] | routing tables and BGP messages in files |
//! | [`netflow`] | NetFlow 5 and 9, IPFIX: information elements, received messages |
//! | [`pcap`], [`pcapng`], [`trace`] | captures, text traces |
//! | [`application`] | names of applications, their protocols and ports |
//!
//! A format that two crates need has its one definition here.

pub mod application;
pub mod bgp;
pub mod checksum;
pub mod ethernet;
pub mod mrt;
pub mod netflow;
pub mod pcap;
pub mod pcapng;
pub mod trace;

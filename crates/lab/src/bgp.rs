//! A laboratory for BGP daemons: neighbours made of pre-built bytes, and the clock that runs while a daemon
//! deals with them.
pub mod bench;
pub mod client;
pub mod daemon;
pub mod experiment;
pub mod message;
pub mod monitor;
pub mod order;
pub mod receive;
pub mod replay;
pub mod scenario;
pub mod table;

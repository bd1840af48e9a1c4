//! A laboratory for BGP daemons: neighbours made of pre-built bytes, and the clock that runs while a daemon
//! deals with them.
pub mod client;
pub mod message;
pub mod monitor;
pub mod order;
pub mod replay;
pub mod scenario;
pub mod table;

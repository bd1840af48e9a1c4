//! One neighbour's session.

pub mod config;

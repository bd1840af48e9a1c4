//! One router: from its configuration to what it does.

pub mod config;

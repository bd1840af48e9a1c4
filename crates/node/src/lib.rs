//! One router: from its configuration to what it does.

pub mod config;
mod replay;
pub mod summary;

pub use replay::{FieldOrder, Model, Output, ReplayError, ReplayOptions, ReplayProgress, Work, replay};
pub use summary::ReplaySummary;

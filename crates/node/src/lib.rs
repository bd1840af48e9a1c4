//! One router: from its configuration to what it does.

mod build;
pub mod config;
pub mod plan;
mod replay;
pub mod summary;

pub use build::BuildError;
pub use replay::{FieldOrder, Model, Output, ReplayError, ReplayOptions, ReplayProgress, Work, replay};
pub use summary::ReplaySummary;

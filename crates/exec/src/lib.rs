//! The execution models: which core runs what.

mod plan;

pub use plan::{Plan, Scope, Sink, Source, StageSpec};

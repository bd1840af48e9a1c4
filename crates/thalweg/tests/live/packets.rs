//! Packets in the language of replay scenarios.

#[path = "../../../replay/tests/scenario/build.rs"]
pub(crate) mod build;
#[path = "../../../replay/tests/scenario/show.rs"]
pub(crate) mod show;

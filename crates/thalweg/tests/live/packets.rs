//! The language in which the replay's scenarios write down packets.

#[path = "../../../replay/tests/scenario/build.rs"]
pub(crate) mod build;
#[path = "../../../replay/tests/scenario/show.rs"]
pub(crate) mod show;

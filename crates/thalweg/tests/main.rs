//! The tests of this folder that need no program of their own. One program links once, which is faster.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod collectors;
mod command_line;
mod docs;
mod examples;
mod flows;
mod flows_import;
mod full_disk;
mod mrt;
mod package;
mod probe;
mod support;
mod whatif;

//! The tests of this folder that need no program of their own. One program links once, which is faster.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../web/tests/console/browser.rs"]
#[allow(dead_code, reason = "the console's own tests press keys and change its look")]
mod browser;
mod collectors;
mod command_line;
mod docs;
mod examples;
#[cfg(feature = "kafka")]
mod feed;
mod flows;
mod flows_archive;
mod flows_asked;
mod flows_import;
mod full_disk;
mod mrt;
mod package;
mod probe;
mod support;
mod whatif;

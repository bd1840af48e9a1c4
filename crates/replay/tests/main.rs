//! The tests of this folder that need no program of their own. One program links once, which is faster.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "scenario/build.rs"]
mod build;
mod captures;
mod checksums;
mod conformance;
mod edge;
mod firewall;
mod scenarios;
#[path = "scenario/show.rs"]
mod show;
#[path = "conform/suite.rs"]
mod suite;

//! The tests of this folder that need no program of their own. One program links once, which is faster.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod alarms;
mod clickhouse;
mod common;
mod export;
mod files;
mod import;
mod live;
mod names;
mod sflow;
mod sflow_totals;

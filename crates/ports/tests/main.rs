//! The tests of this folder that need no program of their own. One program links once, which is faster.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod captures;
mod common;
mod kernel;
mod kernel_neighbors;
mod live;
mod mrt_messages;
mod stdin;
mod tcp;

//! The tests of this folder that need no program of their own, in one program because that compiles faster.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod direct;
mod families;
mod kept;
mod lanes;
mod limits;
mod local;
mod merged;
mod panics;
mod reload;
mod same_answer;
mod same_answer_bgp;
mod strangers;
mod turns;

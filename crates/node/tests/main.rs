//! The tests of this folder that need no program of their own: what links once is compiled faster.

mod lanes;
mod limits;
mod local;
mod panics;
mod reload;
mod same_answer;
mod same_answer_bgp;
mod strangers;

//! The tests of this folder that need no program of their own: what links once is compiled faster.

mod bgp;
mod bgp_messages;
mod netflow;

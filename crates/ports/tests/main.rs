//! The tests of this folder that need no program of their own: what links once is compiled faster.

mod captures;
mod common;
mod kernel;
mod kernel_neighbors;
mod live;
mod mrt_messages;
mod stdin;
mod tcp;

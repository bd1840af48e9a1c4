//! The tests of this folder that need no program of their own: what links once is compiled faster.

mod common;
mod export;
mod files;
mod import;
mod live;

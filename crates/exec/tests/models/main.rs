//! The execution models on a toy plan: all give the same answer, they overlap work, and runs end properly.

// A test that cannot continue should panic.
#![allow(clippy::unwrap_used)]

mod control;
mod ends;
mod explore;
mod lanes;
mod overlap;
mod predict;
mod same_answer;
mod toy;

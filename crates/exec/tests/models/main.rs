//! The execution models against a toy plan: that they all give the same answer, that they do overlap, and how
//! runs end.

// A test that cannot go on should say so by panicking.
#![allow(clippy::unwrap_used)]

mod ends;
mod explore;
mod lanes;
mod overlap;
mod predict;
mod same_answer;
mod toy;

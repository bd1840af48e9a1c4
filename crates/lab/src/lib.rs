//! The laboratory: workloads, experiments, statistics and reports with plots.
//!
//! An experiment here is always the same walk. A *workload* ([`workload`]) is made from a seed, so that
//! anyone can make it again. The *cells* of the experiment are measured several times each in shuffled order
//! ([`models::run`]), because on a shared machine the minute a measurement is taken in matters as much as
//! what is measured. Medians and spreads come from [`stats`]. A [`report::Report`] puts tables and plots
//! ([`plot`]) into one HTML file that names machine, commit, input and command, and writes the same numbers
//! as `results.json`; the tables also go to the terminal.
//!
//! Experiments and what shows them are apart: [`models::run`] takes a closure that runs one cell, tables and
//! reports take rows that somebody has measured. So both can be tested with made-up numbers. Only
//! [`bgp::schedulings`], [`lpm::bench`], [`models::replayed`], [`stages`] and [`workload::generate`] know the router.
//!
//! Invariants: a number is never shown without its spread where there is one; a report needs nothing but
//! itself (no script, font or picture from elsewhere); text from outside is escaped.

pub mod bgp;
mod cpu_time;
pub mod forwarding;
pub mod lpm;
mod markup;
pub mod models;
pub mod nat;
pub mod plot;
pub mod probe;
pub mod qos;
pub mod report;
pub mod stages;
pub mod stats;
pub mod workload;

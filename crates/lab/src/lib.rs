//! The laboratory: workloads, experiments, statistics, and reports with plots.
//!
//! A [`workload`] follows from a seed. An experiment measures its *cells* several times each in shuffled order
//! ([`rounds`]), because on a shared machine the minute of a measurement matters as much as its subject.
//! [`claims`] has what the papers say, as data, and computes from results whether it holds. [`cores`] limits what is
//! measured to some cores. [`stats`] gives medians and spreads. A [`report::Report`] puts tables and plots ([`plot`]) into one HTML file that
//! names machine, commit, input and command, and the same numbers into `results.json`.
//!
//! - [`models`], [`stages`], [`lpm`], [`divide`], [`bgp::schedulings`]: in memory. [`bgp`], [`probe`]: programs as processes.
//! - [`predict`]: the models on virtual cores.
//! - [`network`], [`convergence`], [`seeds`]: routers on virtual time; the graph of the Internet.
//! - [`forwarding`], [`nat`], [`qos`], [`bulk`], [`latency`], [`failover`]: routers between two testers in network namespaces.
//!
//! Tables and reports take measured rows, so tests can use generated numbers. A number never appears without its spread
//! if there is one; a report needs no other file; text from outside is escaped. The laboratory does not use
//! `thalweg-live`, `thalweg-store`, `thalweg-probe` or `thalweg-daemon`: it measures the program from outside.

pub mod all;
pub mod bgp;
pub mod bulk;
pub mod claims;
pub mod convergence;
pub mod cores;
mod cpu_time;
pub mod divide;
pub mod experiment;
pub mod failover;
mod figures;
pub mod forwarding;
pub mod latency;
pub mod lpm;
mod markup;
pub mod models;
pub mod nat;
pub mod network;
pub mod noise;
pub mod plot;
pub mod predict;
pub mod probe;
pub mod qos;
pub mod report;
pub mod rounds;
pub mod seeds;
pub mod stages;
pub mod stats;
pub mod unexpected;
pub mod workload;

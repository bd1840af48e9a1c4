//! The Internet in a process: routers that run the shipped BGP code on simulated links and virtual time.
#![warn(missing_docs)]

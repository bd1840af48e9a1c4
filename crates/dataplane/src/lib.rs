//! Packet stages, pure: each takes packets and changes them, and none has a thread, a file or a clock.
//!
//! A packet passes them in this order; the scope says what a model may do with each.
//!
//! | stage | module | scope |
//! |---|---|---|
//! | validate, find ports, hash | [`ingress`] | any batch |
//! | class of service | [`classify`] | any batch |
//! | colour and police, track fragments | [`police`], [`fragments`] | in order of arrival |
//! | order of service | [`schedule`] | one chunk |
//! | address and port translation | [`nat`] | per shard |
//! | look-up, TTL, MAC addresses | [`route`], [`lpm`] | any batch |
//! | books | [`account`] | any batch |

pub mod account;
pub mod classify;
pub mod fragments;
pub mod ingress;
pub mod lpm;
pub mod nat;
pub mod police;
pub mod queens;
pub mod route;
pub mod schedule;

#[cfg(test)]
mod test_support;

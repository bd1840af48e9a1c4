//! Packet stages, pure: each takes packets and changes them, and none has a thread, a file or a clock.

pub mod queens;

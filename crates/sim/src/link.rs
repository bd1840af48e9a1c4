//! What lies between two routers.

/// Whether a link carries anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It does.
    Up,
    /// Connections end for both routers, and new ones are refused.
    Down,
    /// Nothing arrives, and neither router learns of it. Connections that were on the link stay dead when it is up again,
    /// as those of a router that lost its memory do.
    Silent,
}

/// A link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether it carries anything.
    pub state: LinkState,
    /// How long a byte is on its way, in microseconds; at least one.
    pub latency_us: u64,
    /// Bytes that arrive in a millisecond, at least one.
    pub rate: usize,
    /// Bytes that a connection may have on the way before its writer waits.
    pub capacity: usize,
}

impl Default for Link {
    fn default() -> Self {
        Self { state: LinkState::Up, latency_us: 3000, rate: 1 << 20, capacity: 64 << 10 }
    }
}

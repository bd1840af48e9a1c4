//! The link between two routers.

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    Up,
    /// Connections end for both routers, and new ones are refused.
    Down,
    /// Nothing arrives, and neither router learns of it. Connections of that time stay dead when the link is
    /// up again, like those of a router that lost its memory.
    Silent,
}

/// A link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub state: LinkState,
    /// The latency of a byte in microseconds, at least 1.
    pub latency_us: u64,
    /// Bytes per millisecond, at least 1.
    pub rate: usize,
    /// The bytes that a connection may have in flight before its writer blocks.
    pub capacity: usize,
}

impl Default for Link {
    fn default() -> Self {
        Self { state: LinkState::Up, latency_us: 3000, rate: 1 << 20, capacity: 64 << 10 }
    }
}

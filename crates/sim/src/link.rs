//! The link between two routers, and what its latency means for those who run them.

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

/// The time that a window is about: from the first work of any router to the end of the run.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start_us: u64,
    pub(crate) until_us: u64,
}

impl Span {
    /// The time before which nothing new arrives over links that take at least `latency_us`: nothing was sent before the
    /// start that is not delivered yet, and nothing arrives between multiples of the grain.
    pub(crate) fn end_us(self, latency_us: u64, grain_us: u64) -> u64 {
        let grain_us = grain_us.max(1);
        let lookahead_us = latency_us.max(grain_us - self.start_us % grain_us);
        self.start_us.saturating_add(lookahead_us).min(self.until_us + 1)
    }
}

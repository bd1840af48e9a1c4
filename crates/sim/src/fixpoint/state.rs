//! Routes while they spread.

/// Length of a path that is not there.
pub(super) const NONE: u32 = u32::MAX;

/// Routes by rank. Only `lengths` says whether there is one.
#[derive(Debug)]
pub(super) struct State {
    pub(super) lengths: Vec<u32>,
    pub(super) next: Vec<u32>,
    pub(super) classes: Vec<u8>,
    /// Which origin, or the leak. All zero where nobody looks.
    pub(super) sources: Vec<u8>,
}

impl State {
    pub(super) fn new(ases: usize) -> Self {
        Self {
            lengths: vec![NONE; ases],
            next: vec![0; ases],
            classes: vec![0; ases],
            sources: vec![0; ases],
        }
    }
}

//! The routes while the solver spreads them.

/// The length that marks a missing path.
pub(super) const NONE: u32 = u32::MAX;

/// Routes by rank. Only `lengths` says whether a rank has one.
#[derive(Debug)]
pub(super) struct State {
    pub(super) lengths: Vec<u32>,
    pub(super) next: Vec<u32>,
    pub(super) classes: Vec<u8>,
    /// The origin's number, or the leak's. All zero if no guard looks at sources.
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

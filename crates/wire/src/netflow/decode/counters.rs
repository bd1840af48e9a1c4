//! Counters of the decoder.

/// Counters of a decoder, over all exporters.
///
/// `sets_unknown = sets_recovered + sets_given_up` + those that still wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages with a valid header, by version: NetFlow 5, NetFlow 9, IPFIX.
    pub messages: [u64; 3],
    pub messages_refused: u64,
    /// Records of flows and events.
    pub records: u64,
    pub options_records: u64,
    /// Templates received, including repeated ones.
    pub templates: u64,
    /// Templates that were repeated with other fields.
    pub templates_changed: u64,
    pub templates_evicted: u64,
    /// Templates not repeated within their lifetime.
    pub templates_expired: u64,
    /// Templates forgotten because their exporter restarted.
    pub templates_rebooted: u64,
    pub withdrawals: u64,
    /// Withdrawals of unknown templates, or over datagrams (RFC 7011, 8.4).
    pub withdrawals_ignored: u64,
    /// Data sets whose template was unknown when they arrived.
    pub sets_unknown: u64,
    /// Unknown sets that were decoded when the template arrived.
    pub sets_recovered: u64,
    /// Unknown sets that were dropped, because too many wait, or the exporter left or restarted.
    pub sets_given_up: u64,
    /// Sets that end with bytes that are too few for a record and not all zeros: the template may be the
    /// wrong one.
    pub sets_with_tail: u64,
    /// Faults in messages that were otherwise decoded.
    pub faults: u64,
    pub sessions_evicted: u64,
    pub sequence: SequenceCounters,
}

/// Counters of sequence numbers. Units are flows, messages or data records, depending on the version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceCounters {
    /// Messages with the expected number.
    pub in_order: u64,
    /// Messages with nothing to compare with.
    pub unchecked: u64,
    pub gaps: u64,
    /// Units that are still missing.
    pub units_missing: u64,
    pub late: u64,
    /// Messages whose number was used before.
    pub repeated: u64,
    pub restarts: u64,
}

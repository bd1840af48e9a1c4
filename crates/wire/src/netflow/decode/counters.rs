//! What was decoded and what was not, in numbers.

/// Counters of a decoder, over all exporters.
///
/// `sets_unknown = sets_recovered + sets_given_up` + those that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages whose header could be read, by version: NetFlow 5, NetFlow 9, IPFIX.
    pub messages: [u64; 3],
    /// Messages that were refused as a whole.
    pub messages_refused: u64,
    /// Records of flows and events.
    pub records: u64,
    pub options_records: u64,
    /// Templates received, repeated ones included.
    pub templates: u64,
    /// Templates that came again with other fields.
    pub templates_changed: u64,
    /// Templates thrown out because too many are known.
    pub templates_evicted: u64,
    /// Templates not repeated within their lifetime.
    pub templates_expired: u64,
    /// Templates forgotten because their exporter had begun anew.
    pub templates_rebooted: u64,
    /// Templates withdrawn.
    pub withdrawals: u64,
    /// Withdrawals of templates that are not known, or sent over datagrams (RFC 7011, 8.4).
    pub withdrawals_ignored: u64,
    /// Data sets whose template was not known when they came.
    pub sets_unknown: u64,
    /// Those among them that were decoded when the template came.
    pub sets_recovered: u64,
    /// Those among them that were thrown away, because too many wait, or the exporter is gone or has begun anew.
    pub sets_given_up: u64,
    /// Sets that end with bytes too few for a record and more than zeros: the template may not be the right one.
    pub sets_with_tail: u64,
    /// Faults in messages that were read otherwise.
    pub faults: u64,
    /// Sessions forgotten because too many are known.
    pub sessions_evicted: u64,
    /// Sequence numbers.
    pub sequence: SequenceCounters,
}

/// Counters of sequence numbers. Units are what the version counts: flows, messages or data records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceCounters {
    /// Messages that said what was expected.
    pub in_order: u64,
    /// Messages with nothing to compare with.
    pub unchecked: u64,
    /// Times that something was missing.
    pub gaps: u64,
    /// Units that are still missing.
    pub units_missing: u64,
    /// Messages that came late.
    pub late: u64,
    /// Messages whose number had been taken.
    pub repeated: u64,
    /// Times that an exporter counted anew.
    pub restarts: u64,
}

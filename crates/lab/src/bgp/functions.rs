//! The time of each function as a daemon counts it, in the terms of the thesis's table 4.2.
//!
//! ```text
//! {"functions": {"read": {"ns": 0, "calls": 0}, "header_parse": {}, "payload_parse": {}, "table_update": {}, ..},
//!  "bytes": {"headers": 0, "payloads": 0}}
//! ```
//!
//! The thesis's daemon read each header and each payload separately; a daemon that reads many messages at once
//! has one time for both, `read`. To fill both lines of the table, that time is divided in proportion to bytes
//! ([`HEADER_READ_SHARE`], [`PAYLOAD_READ_SHARE`]); it is a share of a measurement, and is labeled so wherever it
//! appears. [`super::receive`] measures the cost of two reads per message. A daemon that does read separately
//! reports `header_read` and `payload_read`, which stay as they are.

use super::progress::Progress;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The share of the read time for headers, by bytes.
pub const HEADER_READ_SHARE: &str = "header_read_share";

/// The share of the read time for payloads, by bytes.
pub const PAYLOAD_READ_SHARE: &str = "payload_read_share";

/// Headers and payloads read together.
const READ: &str = "read";

/// Time in one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionTime {
    /// Total nanoseconds.
    pub ns: u64,
    /// Number of calls.
    pub calls: u64,
}

/// Bytes of processed messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageBytes {
    /// 19 bytes per message.
    pub headers: u64,
    /// All other bytes.
    pub payloads: u64,
}

/// The output of `thalweg show bgp functions --format json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct FunctionTimes {
    pub functions: BTreeMap<String, FunctionTime>,
    /// The bytes read.
    #[serde(default)]
    pub bytes: MessageBytes,
    /// When UPDATEs were processed.
    #[serde(default)]
    pub progress: Progress,
}

impl FunctionTimes {
    /// The increase since an earlier reading.
    pub fn since(mut self, before: &Self) -> Self {
        for (name, time) in &mut self.functions {
            let before = before.functions.get(name).copied().unwrap_or_default();
            time.ns = time.ns.saturating_sub(before.ns);
            time.calls = time.calls.saturating_sub(before.calls);
        }
        self.bytes.headers = self.bytes.headers.saturating_sub(before.bytes.headers);
        self.bytes.payloads = self.bytes.payloads.saturating_sub(before.bytes.payloads);
        self
    }

    /// Times by function, with the read time divided between headers and payloads. Both shares get all calls,
    /// because each call read both. If no bytes were counted, `read` stays.
    pub fn by_function(mut self) -> BTreeMap<String, FunctionTime> {
        let MessageBytes { headers, payloads } = self.bytes;
        let all = u128::from(headers) + u128::from(payloads);
        if all > 0
            && let Some(read) = self.functions.remove(READ)
        {
            let of_headers =
                u64::try_from(u128::from(read.ns) * u128::from(headers) / all).unwrap_or(read.ns);
            for (name, ns) in [(HEADER_READ_SHARE, of_headers), (PAYLOAD_READ_SHARE, read.ns - of_headers)] {
                self.functions.insert(name.to_owned(), FunctionTime { ns, calls: read.calls });
            }
        }
        self.functions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(read_ns: u64, calls: u64, headers: u64, payloads: u64) -> FunctionTimes {
        let text = format!(
            r#"{{"functions": {{"read": {{"ns": {read_ns}, "calls": {calls}}}, "write": {{"ns": 5, "calls": 1}}}},
                "bytes": {{"headers": {headers}, "payloads": {payloads}}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn reading_is_shared_out_by_bytes() {
        let run = times(1_100, 12, 190 + 19, 810 + 4).since(&times(100, 2, 19, 4));
        assert_eq!(run.bytes, MessageBytes { headers: 190, payloads: 810 });
        let functions = run.by_function();
        assert_eq!(functions[HEADER_READ_SHARE], FunctionTime { ns: 190, calls: 10 });
        assert_eq!(functions[PAYLOAD_READ_SHARE], FunctionTime { ns: 810, calls: 10 });
        assert_eq!(functions["write"], FunctionTime::default());
        assert_eq!(functions.len(), 3, "not the whole beside its parts");
    }

    #[test]
    fn what_cannot_be_shared_out_stays() {
        let functions = times(7, 1, 0, 0).by_function();
        assert_eq!(functions["read"].ns, 7);
        let text = r#"{"functions": {"header_read": {"ns": 1, "calls": 2}}}"#;
        let halves: FunctionTimes = serde_json::from_str(text).unwrap();
        assert_eq!(halves.by_function()["header_read"], FunctionTime { ns: 1, calls: 2 });
        let functions = times(u64::MAX, 1, u64::MAX, u64::MAX).by_function();
        assert_eq!(functions[HEADER_READ_SHARE].ns, u64::MAX / 2);
    }
}

//! Log events about a neighbor's routes and messages: at most one event of a kind in [`REPEAT_MS`], with a count.

use std::fmt::Write as _;

use thalweg_base::Throttle;

use super::Session;
use super::action::Event;
use super::import::{Importer, Remark};
use crate::peer::Millis;

/// The least time between two events of one kind about one neighbor.
pub(super) const REPEAT_MS: u64 = 60_000;

/// Bytes of a message or an attribute that an event shows.
const SHOWN_BYTES: usize = 48;

/// What was counted of each remark there was, and what of it an event has told.
pub(super) type Remarks = Vec<(Remark, u64, Throttle)>;

impl Session {
    /// Reports remarks about routes. A remark that is too early waits for the next received bytes, at the latest
    /// the next KEEPALIVE.
    pub(super) fn emit_remarks(&mut self, import: &Importer, now: Millis) {
        for remark in Remark::all() {
            let count = import.counters().remarks(remark);
            let known = self.remarks.iter().position(|(of, ..)| *of == remark);
            if count == 0 && known.is_none() {
                continue;
            }
            let place = known.unwrap_or_else(|| {
                self.remarks.push((remark, 0, Throttle::default()));
                self.remarks.len() - 1
            });
            let (_, counted, throttle) = &mut self.remarks[place];
            throttle.note(count.saturating_sub(std::mem::replace(counted, count)));
            if let Some(count) = throttle.due(now.0, REPEAT_MS) {
                self.event(Event::Routes { remark, count, example: import.example(remark) });
            }
        }
    }
}

/// A message for an event: `UPDATE of 27 bytes: 0000 0004 ...`.
pub(super) fn excerpt(kind: &str, bytes: &[u8]) -> String {
    let mut text = format!("{kind} of {} bytes: ", bytes.len());
    write_hex(&mut text, bytes);
    text
}

/// The first bytes in hexadecimal.
pub(super) fn write_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes.iter().take(SHOWN_BYTES) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > SHOWN_BYTES {
        text.push_str("...");
    }
}

//! The state of a network as a number: two moments with the same one have the same future, if nothing comes from outside.
//!
//! It follows from every path of every table and from every message under way that is no KEEPALIVE, with the time that is
//! left until it arrives. What routers send follows from their tables, and what they compute depends on no clock, so this is
//! all that decides about routes, with exceptions: intervals between advertisements, records of flaps, restarts, full
//! connections, cut messages, times of computing. While there is any of these, or a session is down, there is no number.

use std::cmp::Reverse;

use thalweg_bgp::attrs::Attrs;
use xxhash_rust::xxh3::xxh3_128;

use crate::error::SimError;
use crate::network::Network;
use crate::site::{Parcel, Site, What};

const HEADER_BYTES: usize = 19;
const KEEPALIVE: u8 = 4;

impl Network {
    /// The number; `None` if it would not decide what comes.
    pub(crate) fn state(&self) -> Result<Option<u128>, SimError> {
        if self.sessions_down()? > 0 {
            return Ok(None);
        }
        let mut state = Vec::new();
        for node in (0..self.len()).filter(|node| self.is_running(*node)) {
            let speaker = self.speaker(node)?;
            if !speaker.holds_only_routes() || !self.write_site_state(node, &mut state) {
                return Ok(None);
            }
            // Tables are not in order: what they have is summed up.
            let mut sum = 0_u128;
            let mut row = Vec::new();
            speaker.each_path(&mut |prefix, path, is_best, neighbor| {
                row.clear();
                let source = neighbor.map(|info| info.address);
                let flags = (is_best, path.stale, path.damped, path.path_id);
                row.extend_from_slice(format!("{prefix} {source:?} {flags:?} ").as_bytes());
                write_attributes(path.attrs, &mut row);
                sum = sum.wrapping_add(xxh3_128(&row));
            });
            state.extend_from_slice(&sum.to_le_bytes());
        }
        Ok(Some(xxh3_128(&state)))
    }
}

fn write_attributes(attrs: &Attrs, out: &mut Vec<u8>) {
    let plain = (attrs.weight, attrs.local_pref, attrs.med(), attrs.origin, attrs.flags);
    out.extend_from_slice(format!("{plain:?} {:?}", attrs.next_hop()).as_bytes());
    out.extend_from_slice(attrs.encoded());
}

impl Site {
    /// Writes what is on its way to the router; whether that is all that its connections hold.
    pub(crate) fn write_state(&self, out: &mut Vec<u8>) -> bool {
        let mut arriving: Vec<&Parcel> = self.arriving().map(|Reverse(parcel)| parcel).collect();
        arriving.sort_unstable();
        for parcel in arriving {
            let what = match &parcel.what {
                What::Bytes(bytes) => without_keepalives(bytes),
                What::Room(_) => continue,
                // Somebody makes or ends a connection.
                What::Open | What::Opened(_) | What::End { .. } => return false,
            };
            if !what.is_empty() {
                out.extend_from_slice(&(parcel.at_us - self.now_us).to_le_bytes());
                out.extend_from_slice(&parcel.from.to_le_bytes());
                out.extend_from_slice(&what);
            }
        }
        self.is_plain()
    }
}

/// Messages without KEEPALIVEs; what is no whole message stays as it is.
fn without_keepalives(mut bytes: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
        let Some((message, after)) = bytes.split_at_checked(length.max(HEADER_BYTES)) else { break };
        if header[18] != KEEPALIVE {
            rest.extend_from_slice(message);
        }
        bytes = after;
    }
    rest.extend_from_slice(bytes);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keepalives_do_not_count() {
        let message = |kind: u8, body: &[u8]| {
            let length = u16::try_from(HEADER_BYTES + body.len()).expect("a short message");
            [&[0xff; 16][..], &length.to_be_bytes(), &[kind], body].concat()
        };
        let (update, keepalive) = (message(2, b"routes"), message(KEEPALIVE, b""));
        let stream = [&keepalive[..], &update, &keepalive, &update, &update[..22]].concat();
        assert_eq!(without_keepalives(&stream), [&update[..], &update, &update[..22]].concat());
        assert!(without_keepalives(&keepalive).is_empty());
    }
}

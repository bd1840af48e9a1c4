//! ROUTE-REFRESH: asking for all routes again (RFC 2918), and the marks around the answer (RFC 7313).

use std::fmt;

use super::header::{MessageKind, begin_message, finish_message};
use super::notification::{Notification, error, header_error};
use super::{AfiSafi, HEADER_LENGTH};

thalweg_base::words! {
    /// What a ROUTE-REFRESH says.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum RefreshKind {
        /// Send everything again.
        Request = 0 => "request",
        /// Everything comes again from here.
        Begin = 1 => "begin",
        /// Everything came; what did not is gone.
        End = 2 => "end",
    }
}

/// A ROUTE-REFRESH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteRefresh {
    pub family: AfiSafi,
    pub kind: RefreshKind,
}

impl RouteRefresh {
    /// Decodes the body of a message; `None` for an unknown kind, which is ignored (RFC 7313 5). Filters
    /// behind a request (RFC 5291) were not negotiated and are ignored too.
    pub fn parse(body: &[u8]) -> Result<Option<Self>, Notification> {
        let Some((&[afi_high, afi_low, subtype, safi], rest)) = body.split_first_chunk::<4>() else {
            return Err(bad_length(body));
        };
        let kind = match subtype {
            0 => RefreshKind::Request,
            1 => RefreshKind::Begin,
            2 => RefreshKind::End,
            _ => return Ok(None),
        };
        if kind != RefreshKind::Request && !rest.is_empty() {
            return Err(marks_length(body));
        }
        Ok(Some(Self { family: AfiSafi { afi: u16::from_be_bytes([afi_high, afi_low]), safi }, kind }))
    }

    /// Appends the message.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = begin_message(out, MessageKind::RouteRefresh);
        out.extend_from_slice(&self.family.afi.to_be_bytes());
        out.extend_from_slice(&[self.kind as u8, self.family.safi]);
        // 23 bytes are not too long.
        let _ = finish_message(out, start);
    }
}

impl fmt::Display for RouteRefresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ROUTE-REFRESH {} {}", self.kind, self.family)
    }
}

/// The message is too short to identify its kind.
fn bad_length(body: &[u8]) -> Notification {
    let length = (body.len() + HEADER_LENGTH) as u16;
    Notification::with_data(error::HEADER, header_error::BAD_LENGTH, &length.to_be_bytes())
}

/// A marker with a wrong length; the data is the whole message (RFC 7313 5).
fn marks_length(body: &[u8]) -> Notification {
    let mut data = Vec::with_capacity(HEADER_LENGTH + body.len());
    let start = begin_message(&mut data, MessageKind::RouteRefresh);
    data.extend_from_slice(body);
    // A received message fits.
    let _ = finish_message(&mut data, start);
    Notification { code: error::ROUTE_REFRESH, subcode: 1, data }
}

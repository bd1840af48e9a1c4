//! Faults of an attribute, and the notification for them.

use crate::bgp::as_path::AsPathError;
use crate::bgp::attribute as a;
use crate::bgp::notification::{Notification, error, update_error};

/// Why an attribute is malformed or unacceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// OPTIONAL or TRANSITIVE have wrong values.
    Flags(u8),
    Length(u16),
    /// It extends beyond the path attributes field, or its header does (RFC 7606 4).
    Overrun,
    /// A mandatory attribute is missing.
    Missing,
    /// An unknown value of ORIGIN.
    Origin(u8),
    /// A next hop that cannot be a host's address.
    NextHop,
    /// A family, next hop or prefixes that cannot be decoded.
    MpNlri,
    /// AS_PATH or AS4_PATH.
    AsPath(AsPathError),
    /// AS 0 in AGGREGATOR or AS4_AGGREGATOR (RFC 7607).
    AsZero,
    /// The code occurred before; the first one counts (RFC 7606 3 g).
    Duplicate,
    /// It has no meaning from an external neighbor (RFC 7606 7.5, 7.9, 7.10).
    FromOutside,
    /// AS4_PATH or AS4_AGGREGATOR from a neighbor with four-octet AS numbers (RFC 6793 3).
    FromFourOctetSpeaker,
    /// The operator configured that it is discarded.
    Unwanted,
}

/// An attribute with its fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttributeProblem {
    /// Type code; 0 if the field ends before it.
    pub code: u8,
    pub fault: Fault,
}

impl AttributeProblem {
    /// The notification if the problem ends the session. `whole` is the undecoded attribute.
    pub(super) fn notification(self, whole: &[u8]) -> Notification {
        let subcode = match self.fault {
            Fault::Flags(_) => update_error::ATTRIBUTE_FLAGS,
            Fault::Length(_) => update_error::ATTRIBUTE_LENGTH,
            Fault::Missing => {
                let data = [self.code];
                return Notification::with_data(error::UPDATE, update_error::MISSING_WELL_KNOWN, &data);
            }
            Fault::Origin(_) => update_error::INVALID_ORIGIN,
            Fault::NextHop if self.code == a::NEXT_HOP => update_error::INVALID_NEXT_HOP,
            Fault::NextHop | Fault::MpNlri => update_error::OPTIONAL_ATTRIBUTE,
            Fault::AsPath(_) => {
                return Notification::new(error::UPDATE, update_error::MALFORMED_AS_PATH);
            }
            _ => return Notification::new(error::UPDATE, update_error::MALFORMED_ATTRIBUTE_LIST),
        };
        Notification::with_data(error::UPDATE, subcode, whole)
    }
}

impl std::error::Error for AttributeProblem {}

/// The most discarded attributes of one message that are named.
const NAMED: usize = 4;

/// Discarded attributes: their number, and the first few of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards {
    count: u16,
    first: [Option<AttributeProblem>; NAMED],
}

impl Discards {
    /// The number of discarded attributes.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether none was discarded.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first few discarded attributes.
    pub fn iter(&self) -> impl Iterator<Item = AttributeProblem> + '_ {
        self.first.iter().copied().flatten()
    }

    #[cold]
    pub(super) fn push(&mut self, problem: AttributeProblem) {
        if let Some(slot) = self.first.get_mut(usize::from(self.count)) {
            *slot = Some(problem);
        }
        self.count = self.count.saturating_add(1);
    }
}

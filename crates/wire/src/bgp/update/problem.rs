//! What can be wrong with an attribute, and what is said about it.

use crate::bgp::as_path::AsPathError;
use crate::bgp::attribute as a;
use crate::bgp::notification::{Notification, error, update_error};

/// What is wrong with an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// OPTIONAL or TRANSITIVE are not as they must be.
    Flags(u8),
    /// A length it cannot have.
    Length(u16),
    /// It reaches beyond the field of attributes, or its header does (RFC 7606 4).
    Overrun,
    /// It must be there and is not.
    Missing,
    /// ORIGIN has a value that is not known.
    Origin(u8),
    /// A next hop that cannot be an address of a host.
    NextHop,
    /// A family, a next hop or prefixes that cannot be read.
    MpNlri,
    /// AS_PATH or AS4_PATH.
    AsPath(AsPathError),
    /// AS 0 in AGGREGATOR or AS4_AGGREGATOR (RFC 7607).
    AsZero,
    /// The same code came before; the first one counts (RFC 7606 3 g).
    Duplicate,
    /// It has no meaning from outside (RFC 7606 7.5, 7.9, 7.10).
    FromOutside,
    /// AS4_PATH or AS4_AGGREGATOR from a neighbor with AS numbers of four bytes (RFC 6793 3).
    FromFourOctetSpeaker,
    /// The operator does not want it.
    Unwanted,
}

/// An attribute and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttributeProblem {
    /// Its type code; 0 where the field ends before there is one.
    pub code: u8,
    /// What is wrong.
    pub fault: Fault,
}

impl AttributeProblem {
    /// What the neighbor is told where the problem ends the session. `whole` is the attribute as it stands.
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

/// How many discarded attributes of one message are named.
const NAMED: usize = 4;

/// Attributes that were left out: how many, and the first few of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards {
    count: u16,
    first: [Option<AttributeProblem>; NAMED],
}

impl Discards {
    /// How many.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether none was.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first few.
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

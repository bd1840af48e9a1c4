//! BGP-4 as bytes (RFC 4271 and what has been added since): messages, path attributes, capabilities.
//!
//! ```text
//! bytes ──frame──> Frame ──Open::parse, Notification::parse, RouteRefresh::parse──> owned values ──write──> bytes
//!                    └────Update::parse──> a view of the message     begin_update .. finish_message ──> bytes
//! ```
//!
//! This module is pure: the only session state is the [`Codec`] that the two ends negotiated. One pass checks
//! a message before any of it is used (RFC 7606). An error ends the session and is the [`Notification`] to
//! send; a lesser fault is a [`Verdict`] or one of the [`Discards`]. Views cannot fail, and reading an UPDATE
//! allocates nothing. `docs/bgp-design.md` lists the consequence of each fault and where other
//! implementations differ.
//!
//! RFC 4271, 1997, 2545, 2918, 4360, 4456, 4486, 4724, 4760, 5065, 5492, 5701, 6286, 6608, 6793, 7313, 7606,
//! 7607, 7911, 8092, 8538, 8654, 8950, 9003, 9072, 9234, 9384, 9687. Missing: prefixes of other families than
//! IPv4 and IPv6 unicast, outbound route filters (RFC 5291).

mod as_path;
mod attributes;
mod capabilities;
mod header;
mod next_hop;
mod nlri;
mod notification;
mod open;
mod refresh;
mod update;
mod view;
mod write;

use std::fmt;

pub use as_path::{AS_PATH_ASNS_MAX, AsPathError, narrow_as_path, prepend_as};
pub use attributes::{
    ATTRIBUTES, AttributeRow, Export, LengthRule, Severity, attribute_name, recognized_attribute,
};
pub use capabilities::{
    AddPath, Capabilities, ExtendedNextHop, GracefulRestart, HostName, LongLivedFamily, RestartFamily,
    UnknownCapability, capability,
};
pub use header::{
    EXTENDED_MESSAGE_LENGTH_MAX, Frame, HEADER_LENGTH, HeaderError, MESSAGE_LENGTH_MAX, MessageKind,
    MessageTooLong, begin_message, finish_message, frame, write_keepalive,
};
pub use next_hop::NextHop;
pub use nlri::{Nlri, NlriError, NlriIter, nlri_length, write_nlri};
pub use notification::{
    Notification, SHUTDOWN_TEXT_BYTES_MAX, cease, error, fsm_error, header_error, open_error, update_error,
};
pub use open::{AS_TRANS, Open, VERSION};
pub use refresh::{RefreshKind, RouteRefresh};
pub use update::{
    Aggregator, AttributeProblem, CodeSet, Discards, Fault, MpNlri, MpReach, PeerFacts, PeerSide,
    RawAttributes, Update, Verdict,
};
pub use view::{AsPath, AsSegment, Attribute, Attributes, SegmentKind};
pub use write::{
    begin_attributes, begin_mp_reach, begin_mp_unreach, begin_update, finish_attribute, finish_attributes,
    write_attribute, write_end_of_rib,
};

thalweg_base::words! {
    /// An address family and subsequent address family whose routes are stored.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Family {
        /// IPv4 unicast, AFI 1, SAFI 1.
        Ipv4 = 0 => "ipv4",
        /// IPv6 unicast, AFI 2, SAFI 1.
        Ipv6 = 1 => "ipv6",
    }
}

impl Family {
    /// The AFI and SAFI.
    pub const fn afi_safi(self) -> (u16, u8) {
        match self {
            Self::Ipv4 => (1, 1),
            Self::Ipv6 => (2, 1),
        }
    }

    /// The family of these identifiers, if its routes are stored.
    pub const fn from_afi_safi(afi: u16, safi: u8) -> Option<Self> {
        match (afi, safi) {
            (1, 1) => Some(Self::Ipv4),
            (2, 1) => Some(Self::Ipv6),
            _ => None,
        }
    }

    /// An index for arrays with an element per family.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// An AFI and SAFI of any kind of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AfiSafi {
    pub afi: u16,
    pub safi: u8,
}

impl AfiSafi {
    /// The family, if its routes are stored.
    #[inline]
    pub const fn kept(self) -> Option<Family> {
        Family::from_afi_safi(self.afi, self.safi)
    }
}

impl From<Family> for AfiSafi {
    fn from(family: Family) -> Self {
        let (afi, safi) = family.afi_safi();
        Self { afi, safi }
    }
}

impl fmt::Display for AfiSafi {
    /// `ipv4`, `ipv6`, or the two numbers: `25/70`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kept() {
            Some(family) => family.fmt(f),
            None => write!(f, "{}/{}", self.afi, self.safi),
        }
    }
}

/// The negotiated options that change how messages are encoded and decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Codec {
    /// AS numbers in AS_PATH and AGGREGATOR take four bytes (RFC 6793).
    pub four_octet_as: bool,
    /// Messages may have up to 65,535 bytes (RFC 8654).
    pub extended_messages: bool,
    /// By family: received NLRI has path identifiers (RFC 7911).
    pub add_path_receive: [bool; 2],
    /// By family: sent NLRI has path identifiers.
    pub add_path_send: [bool; 2],
    /// IPv4 routes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
}

impl Codec {
    /// The longest allowed message.
    pub const fn message_length_max(&self) -> usize {
        if self.extended_messages { EXTENDED_MESSAGE_LENGTH_MAX } else { MESSAGE_LENGTH_MAX }
    }
}

/// Type codes and flags of path attributes.
pub mod attribute {
    pub use super::attributes::code::*;

    pub const FLAG_OPTIONAL: u8 = 0x80;
    /// Routers that do not recognize the attribute pass it on.
    pub const FLAG_TRANSITIVE: u8 = 0x40;
    /// Some router on the way did not recognize the attribute.
    pub const FLAG_PARTIAL: u8 = 0x20;
    /// The length takes two bytes.
    pub const FLAG_EXTENDED: u8 = 0x10;
}

thalweg_base::words! {
    /// ORIGIN. Lower is preferred.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Origin {
        /// Learned from an interior protocol.
        #[default]
        Igp = 0 => "igp",
        /// Learned from EGP.
        Egp = 1 => "egp",
        /// Learned some other way.
        Incomplete = 2 => "incomplete",
    }
}

/// Well-known communities (RFC 1997, 7999, 8326).
pub mod community {
    /// Do not send outside the confederation.
    pub const NO_EXPORT: u32 = 0xffff_ff01;
    /// Do not send to any peer.
    pub const NO_ADVERTISE: u32 = 0xffff_ff02;
    /// Do not send outside the member AS.
    pub const NO_EXPORT_SUBCONFED: u32 = 0xffff_ff03;
    /// The session will end soon: prefer other routes.
    pub const GRACEFUL_SHUTDOWN: u32 = 0xffff_0000;
    /// Discard traffic to this prefix.
    pub const BLACKHOLE: u32 = 0xffff_029a;
}

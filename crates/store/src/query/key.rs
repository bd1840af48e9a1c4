//! By what records are grouped.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::error::StoreError;
use crate::schema::{ColumnId, Kind};

/// Something that flows have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The name, as it is written.
    pub name: &'static str,
    /// The column; of keys that mean either end, that of the source.
    pub(crate) source: ColumnId,
    /// The other end's column, if the key means either end.
    pub(crate) destination: Option<ColumnId>,
}

const fn one(name: &'static str, source: ColumnId) -> Key {
    Key { name, source, destination: None }
}

const fn either(name: &'static str, source: ColumnId, destination: ColumnId) -> Key {
    Key { name, source, destination: Some(destination) }
}

impl Key {
    /// All keys.
    pub const ALL: &'static [Key] = &[
        one("src", ColumnId::Src),
        one("dst", ColumnId::Dst),
        either("host", ColumnId::Src, ColumnId::Dst),
        one("src-port", ColumnId::SrcPort),
        one("dst-port", ColumnId::DstPort),
        either("port", ColumnId::SrcPort, ColumnId::DstPort),
        one("proto", ColumnId::Protocol),
        one("src-as", ColumnId::SrcAs),
        one("dst-as", ColumnId::DstAs),
        either("as", ColumnId::SrcAs, ColumnId::DstAs),
        one("app", ColumnId::App),
        one("ingress", ColumnId::Ingress),
        one("egress", ColumnId::Egress),
        one("next-hop", ColumnId::NextHop),
        one("bgp-next-hop", ColumnId::BgpNextHop),
        one("vlan", ColumnId::Vlan),
        one("mpls", ColumnId::MplsLabel),
        one("tos", ColumnId::TrafficClass),
        one("end", ColumnId::EndReasonWord),
        one("nat-src", ColumnId::NatSrc),
        one("nat-dst", ColumnId::NatDst),
        one("nat-src-port", ColumnId::NatSrcPort),
        one("drop", ColumnId::DropReason1),
        one("icmp-type", ColumnId::IcmpType),
        one("icmp-code", ColumnId::IcmpCode),
    ];

    /// The names of all keys, for messages.
    pub fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|key| key.name).collect();
        names.join(", ")
    }

    /// Bits that a value takes in a packed key; for addresses, those of the number that stands for one.
    pub(crate) fn bits(&self) -> u32 {
        match self.source.definition().kind {
            // One more, for that nothing is known.
            Kind::Number(bits) if bits < 32 => u32::from(bits) + 1,
            Kind::Word(_) => 8,
            _ => 32,
        }
    }

    pub(crate) fn is_address(&self) -> bool {
        self.source.definition().kind == Kind::Address
    }

    /// A number of its column, as people know it.
    pub(crate) fn value(&self, number: u32) -> KeyValue {
        let definition = self.source.definition();
        if definition.absent == Some(u64::from(number)) {
            return KeyValue::Unknown;
        }
        match definition.kind {
            Kind::Word(vocabulary) => KeyValue::Word(vocabulary.text(number)),
            _ => KeyValue::Number(number),
        }
    }
}

impl FromStr for Key {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        Self::ALL.iter().find(|key| key.name == text).copied().ok_or_else(|| {
            StoreError::Query(format!("`{text}` is not a key; expected one of {}", Self::names()))
        })
    }
}

/// What a key is in some records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyValue {
    /// An address.
    Address(IpAddr),
    /// A number: a port, a protocol, an AS.
    Number(u32),
    /// A name.
    Word(String),
    /// The records do not say.
    Unknown,
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => f.pad(word),
            Self::Unknown => f.pad("-"),
        }
    }
}

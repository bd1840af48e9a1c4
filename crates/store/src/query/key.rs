//! Keys by which records are grouped.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::error::StoreError;
use thalweg_flow::FlowRecord;
use thalweg_flow::fields::{Access, Field, Kind, Vocabulary};

/// A property by which records are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub name: &'static str,
    /// The column; for keys of either end, that of the source.
    pub(crate) source: Field,
    /// The destination's column, for keys of either end.
    pub(crate) destination: Option<Field>,
}

const fn one(name: &'static str, source: Field) -> Key {
    Key { name, source, destination: None }
}

const fn either(name: &'static str, source: Field, destination: Field) -> Key {
    Key { name, source, destination: Some(destination) }
}

impl Key {
    pub const ALL: &'static [Key] = &[
        one("src", Field::Src),
        one("dst", Field::Dst),
        either("host", Field::Src, Field::Dst),
        one("src-port", Field::SrcPort),
        one("dst-port", Field::DstPort),
        either("port", Field::SrcPort, Field::DstPort),
        one("proto", Field::Protocol),
        one("src-as", Field::SrcAs),
        one("dst-as", Field::DstAs),
        either("as", Field::SrcAs, Field::DstAs),
        one("next-as", Field::NextAs),
        one("src-country", Field::SrcCountry),
        one("dst-country", Field::DstCountry),
        either("country", Field::SrcCountry, Field::DstCountry),
        one("src-net", Field::SrcNet),
        one("dst-net", Field::DstNet),
        either("network", Field::SrcNet, Field::DstNet),
        one("app", Field::App),
        one("ingress", Field::Ingress),
        one("egress", Field::Egress),
        one("next-hop", Field::NextHop),
        one("bgp-next-hop", Field::BgpNextHop),
        one("vlan", Field::Vlan),
        one("mpls", Field::MplsLabel),
        one("tos", Field::TrafficClass),
        one("end", Field::EndReasonWord),
        one("nat-src", Field::NatSrc),
        one("nat-dst", Field::NatDst),
        one("nat-src-port", Field::NatSrcPort),
        one("drop", Field::DropReason1),
        one("icmp-type", Field::IcmpType),
        one("icmp-code", Field::IcmpCode),
        one("exporter", Field::ExporterName),
        one("exporter-address", Field::ExporterAddress),
        one("domain", Field::ExporterDomain),
        one("in-if", Field::IngressName),
        one("out-if", Field::EgressName),
        one("in-vrf", Field::IngressVrf),
        one("out-vrf", Field::EgressVrf),
        one("direction", Field::DirectionWord),
        one("event", Field::EventWord),
        one("server-name", Field::ServerName),
        one("resolved-name", Field::ResolvedName),
        one("dns-name", Field::DnsQuestion),
        one("dns-type", Field::DnsType),
        one("dns-code", Field::DnsCode),
        one("alpn", Field::Alpn),
        one("ja4", Field::Ja4),
    ];

    /// The names of all keys, for messages.
    pub fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|key| key.name).collect();
        names.join(", ")
    }

    /// The key of the other end or side; one of either end is its own.
    #[must_use]
    pub fn reversed(self) -> Self {
        let opposite = self.source.opposite().filter(|_| self.destination.is_none());
        let of = |field: Field| Self::ALL.iter().find(|key| key.source == field && key.destination.is_none());
        opposite.and_then(of).copied().unwrap_or(self)
    }

    /// Bits of a value in a packed key; for addresses, the bits of their number.
    pub(crate) fn bits(&self) -> u32 {
        match self.source.row().kind {
            // One more bit for unknown.
            Kind::Number(bits) if bits < 32 => u32::from(bits) + 1,
            Kind::Word(vocabulary) if vocabulary.is_of_names() => 32,
            Kind::Word(_) => 8,
            _ => 32,
        }
    }

    /// Whether its values are names without end.
    pub(crate) fn is_passing_name(&self) -> bool {
        self.source.row().kind == Kind::Word(Vocabulary::PassingName)
    }

    pub(crate) fn is_address(&self) -> bool {
        self.source.row().kind == Kind::Address
    }

    /// The values of a record, of both ends for a key of either end; without unknown ones.
    pub fn values(&self, record: &FlowRecord) -> impl Iterator<Item = RawValue> {
        let of = |field: Field| {
            let row = field.row();
            match row.access {
                Access::Address(get, _) => get(record).map(RawValue::Address),
                Access::Number(get, _) => Some(get(record))
                    .filter(|number| row.absent != Some(u64::from(*number)))
                    .map(RawValue::Number),
                Access::Wide(..) | Access::Text(_) => None,
            }
        };
        let first = of(self.source);
        let second = self.destination.and_then(of).filter(|second| first != Some(*second));
        first.into_iter().chain(second)
    }

    /// A value for display.
    pub fn shown(&self, value: RawValue) -> KeyValue {
        match value {
            RawValue::Address(address) => KeyValue::Address(address),
            RawValue::Number(number) => self.value(number),
        }
    }

    /// A value of the key's column for display.
    pub(crate) fn value(&self, number: u32) -> KeyValue {
        let row = self.source.row();
        if row.absent == Some(u64::from(number)) {
            return KeyValue::Unknown;
        }
        match row.kind {
            Kind::Word(vocabulary) => KeyValue::Word(vocabulary.text(number).into_owned()),
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

/// The value of a key as columns have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RawValue {
    Address(IpAddr),
    /// A number, or the code of a word.
    Number(u32),
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyValue {
    Address(IpAddr),
    /// A port, a protocol or an AS.
    Number(u32),
    Word(String),
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

//! The fields of a flow record, defined once: JSON and CSV lines, protocol buffers, Parquet columns, images
//! on disk and IPFIX templates all use the table in `fields/table.rs`.
//!
//! A row has a field's name and type, how to read its value from a [`FlowRecord`] and restore it, its number
//! in `flow_record.proto`, its IPFIX elements, and a line of help. Fields that files store come first, in the
//! order of columns; a new one goes to their end. Derived fields follow.
//!
//! In columns, a value is a plain number, and unknown is a number that no known value has ([`Row::absent`]).
//! [`Field::value`] gives values for people and programs.

mod parts;
mod table;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use thalweg_base::{DropReason, Name};
use thalweg_wire::{MacAddr, application};

use crate::record::{Counters, Direction, EndReason, Event, FlowKey, FlowRecord, SAMPLING_UNKNOWN};
pub use parts::Differing;
pub use table::Field;
pub(crate) use table::NO_NUMBER;

/// An unknown eight-bit value.
pub const NO_SMALL: u32 = 1 << 8;
/// The translated port of a flow that was not translated.
pub const NO_TRANSLATION: u32 = 1 << 16;
/// An unknown 64-bit value.
pub const ABSENT_WIDE: u64 = u64::MAX;
/// No MPLS label: a label has 20 bits.
const NO_LABEL: u32 = u32::MAX;

/// A row of the table.
pub struct Row {
    /// The name in JSON, CSV, files and messages.
    pub name: &'static str,
    /// The number in `flow_record.proto`, never reused for another field.
    pub number: u32,
    pub kind: Kind,
    /// The number that means unknown; `None` if the value is always known. Addresses need none.
    pub absent: Option<u64>,
    /// IPFIX elements: one for both families, or IPv4's and IPv6's. Empty if the export encodes the field
    /// specially.
    pub elements: &'static [u16],
    pub access: Access,
    /// One line.
    pub help: &'static str,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nanoseconds since the Unix epoch.
    Time,
    /// An unsigned number of 64 bits.
    Wide,
    /// An unsigned number of this many bits, at most 32.
    Number(u8),
    /// A code that has a word.
    Word(Vocabulary),
    /// A MAC address: a 64-bit number in columns, text elsewhere.
    Mac,
    Address,
    /// A text that no column has.
    Text,
}

/// How to read a value from a record and how to restore it.
#[derive(Clone, Copy)]
pub enum Access {
    /// A time, a MAC address or a 64-bit number.
    Wide(fn(&FlowRecord) -> u64, fn(&mut FlowRecord, u64)),
    /// A smaller number, or the code of a word.
    Number(fn(&FlowRecord) -> u32, fn(&mut FlowRecord, u32)),
    /// An address; `None` if unknown.
    Address(fn(&FlowRecord) -> Option<IpAddr>, fn(&mut FlowRecord, IpAddr)),
    /// A text that follows from other fields; files do not store any.
    Text(fn(&FlowRecord) -> Option<String>),
}

/// Sets of words for codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    /// `thalweg_wire::application`.
    Application,
    /// [`EndReason`].
    EndReason,
    /// [`DropReason`].
    DropReason,
    Direction,
    Event,
    /// Names from outside ([`Name`]): codes are those of this process.
    Name,
    /// Names without end ([`Name::passing`]).
    PassingName,
}

impl Vocabulary {
    /// The words of all codes; names are not listed.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        (1..=u32::from(u8::MAX)).filter_map(move |code| self.name(code))
    }

    /// Whether its words are names from outside.
    pub fn is_of_names(self) -> bool {
        matches!(self, Self::Name | Self::PassingName)
    }

    /// The word for a code; a code without one becomes a number.
    pub fn text(self, code: u32) -> Cow<'static, str> {
        if self.is_of_names() {
            return Name::from_code(code).text();
        }
        self.name(code).map_or_else(|| code.to_string().into(), Cow::Borrowed)
    }

    fn name(self, code: u32) -> Option<&'static str> {
        let code = u8::try_from(code).ok()?;
        match self {
            Self::Application => application::by_code(code).map(|application| application.name),
            Self::EndReason => EndReason::from_code(code).map(EndReason::name),
            Self::DropReason => DropReason::from_code(code).map(DropReason::name),
            Self::Direction => Direction::from_code(code).map(Direction::name),
            Self::Event => Event::from_code(code).map(Event::name),
            Self::Name | Self::PassingName => None,
        }
    }

    /// The code of a word; `None` if the word is unknown, or if there are too many names.
    pub fn code(self, text: &str) -> Option<u32> {
        let code = match self {
            Self::Name => return Some(Name::of(text).code()).filter(|code| *code != 0),
            Self::PassingName => return Some(Name::passing(text).code()),
            Self::Application => application::by_name(text).map(|application| application.code),
            _ => (1..=u8::MAX).find(|code| self.name(u32::from(*code)) == Some(text)),
        };
        code.or_else(|| text.parse().ok()).map(u32::from)
    }
}

/// A value of a record for output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nanoseconds since the Unix epoch.
    Time(u64),
    Number(u64),
    Text(Cow<'static, str>),
    Address(IpAddr),
}

impl Field {
    /// The fields of lines and messages, in order: all, but [`Field::CommunityId`] only if it is asked for.
    pub fn of_lines(with_community_id: bool) -> impl Iterator<Item = Self> {
        let chosen = move |field: &Self| with_community_id || *field != Self::CommunityId;
        Self::ALL.iter().copied().filter(chosen)
    }

    /// The name of the field.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The field of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|field| field.name() == name)
    }

    /// The field that says the same of the other end or the other side: `dst_as` for `src_as`.
    pub fn opposite(self) -> Option<Self> {
        let ends = [("src", "dst"), ("dst", "src"), ("ingress", "egress"), ("egress", "ingress")];
        let (from, to) = ends.into_iter().find(|(from, _)| self.name().contains(from))?;
        Self::named(&self.name().replacen(from, to, 1))
    }

    /// Whether the value may be unknown.
    pub fn is_nullable(self) -> bool {
        self.row().absent.is_some()
    }

    /// The value in a record; `None` if unknown.
    pub fn value(self, record: &FlowRecord) -> Option<Value> {
        let row = self.row();
        let number = match row.access {
            Access::Address(get, _) => return get(record).map(Value::Address),
            Access::Text(get) => return get(record).map(|text| Value::Text(text.into())),
            Access::Wide(get, _) => get(record),
            Access::Number(get, _) => get(record).into(),
        };
        if row.absent == Some(number) {
            return None;
        }
        match row.kind {
            Kind::Time => Some(Value::Time(number)),
            Kind::Word(vocabulary) => Some(Value::Text(vocabulary.text(number as u32))),
            Kind::Mac => Some(Value::Text(MacAddr::from_u64(number).to_string().into())),
            Kind::Wide | Kind::Number(_) | Kind::Address | Kind::Text => Some(Value::Number(number)),
        }
    }
}

/// A record with all values unknown, which [`Access`] fills in.
pub fn unknown_record() -> FlowRecord {
    let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let key = FlowKey {
        src: unspecified,
        dst: unspecified,
        src_port: 0,
        dst_port: 0,
        protocol: 0,
        traffic_class: 0,
        ingress: 0,
        vlan: 0,
        mpls_label: None,
    };
    let record = FlowRecord::new(key, Counters::default(), None);
    FlowRecord { sampling_interval: SAMPLING_UNKNOWN, ..record }
}

#[cfg(test)]
mod tests;

//! The fields of a flow record, once: lines of JSON and CSV, messages of protocol buffers, columns of Parquet files, images on
//! disk and templates of IPFIX all read the table in `fields/table.rs`.
//!
//! A row gives a field's name, its type, where its value stands in a [`FlowRecord`] and how it gets back there, its number
//! in `flow_record.proto`, its IPFIX elements, and a line of help. Fields of a file come first, in the order of its columns: a
//! new one goes to their end. Behind them are fields that follow from others.
//!
//! A value is a plain number wherever records are columns; what is not known is a number of its own then
//! ([`Row::absent`]) that no known value has. [`Field::value`] gives values as people and programs read them.

mod table;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use thalweg_base::DropReason;
use thalweg_wire::application;

use crate::record::{Counters, EndReason, FlowKey, FlowRecord, SAMPLING_UNKNOWN};
pub use table::Field;

/// What an eight-bit value is where nothing is known.
pub const NO_SMALL: u32 = 1 << 8;
/// What a translated port is where nothing was translated.
pub const NO_TRANSLATION: u32 = 1 << 16;
/// What a 64-bit value is where nothing is known.
pub const ABSENT_WIDE: u64 = u64::MAX;
/// What an MPLS label is where there is none: a label has 20 bits.
const NO_LABEL: u32 = u32::MAX;

/// A row of the table.
pub struct Row {
    /// The name everywhere: in JSON, CSV, files, messages.
    pub name: &'static str,
    /// Its number in `flow_record.proto`, never used for another field again.
    pub number: u32,
    /// Its type.
    pub kind: Kind,
    /// The number that stands for "not known"; `None` if the value is always known. Addresses need no number of their own.
    pub absent: Option<u64>,
    /// IPFIX elements: one for both families, or IPv4's and IPv6's. None where the export has a form of its own.
    pub elements: &'static [u16],
    /// Where its value stands in a record.
    pub access: Access,
    /// What it is, in a line.
    pub help: &'static str,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nanoseconds since the Unix epoch.
    Time,
    /// An unsigned number of 64 bits.
    Wide,
    /// An unsigned number of so many bits, at most 32.
    Number(u8),
    /// A word for a code.
    Word(Vocabulary),
    /// An IPv4 or IPv6 address.
    Address,
}

/// How a value is read from a record, and put there.
#[derive(Clone, Copy)]
pub enum Access {
    /// A time, or a number of 64 bits.
    Wide(fn(&FlowRecord) -> u64, fn(&mut FlowRecord, u64)),
    /// A smaller number, or the code of a word.
    Number(fn(&FlowRecord) -> u32, fn(&mut FlowRecord, u32)),
    /// An address; `None` where it is not known.
    Address(fn(&FlowRecord) -> Option<IpAddr>, fn(&mut FlowRecord, IpAddr)),
}

/// Words that stand for codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    /// `thalweg_wire::application`.
    Application,
    /// [`EndReason`].
    EndReason,
    /// [`DropReason`].
    DropReason,
    /// Names of interfaces, which only the one who metered knows.
    Interface,
}

impl Vocabulary {
    /// The word for a code; codes without one are written as numbers.
    pub fn text(self, code: u32) -> Cow<'static, str> {
        self.name(code).map_or_else(|| code.to_string().into(), Cow::Borrowed)
    }

    fn name(self, code: u32) -> Option<&'static str> {
        let code = u8::try_from(code).ok()?;
        match self {
            Self::Application => application::by_code(code).map(|application| application.name),
            Self::EndReason => EndReason::from_code(code).map(EndReason::name),
            Self::DropReason => DropReason::from_code(code).map(DropReason::name),
            Self::Interface => None,
        }
    }

    /// The code of a word; `None` for a word that is not known here.
    pub fn code(self, text: &str) -> Option<u32> {
        let code = match self {
            Self::Application => application::by_name(text).map(|application| application.code),
            Self::EndReason => {
                EndReason::ALL.iter().find(|reason| reason.name() == text).map(|reason| *reason as u8)
            }
            Self::DropReason => {
                DropReason::ALL.iter().find(|reason| reason.name() == text).map(|reason| *reason as u8)
            }
            Self::Interface => None,
        };
        code.or_else(|| text.parse().ok()).map(u32::from)
    }
}

/// Names of interfaces, by their numbers in records.
pub trait InterfaceNames {
    /// The name of the interface with this number.
    fn name(&self, number: u32) -> Option<&str>;
}

/// No interface has a name.
impl InterfaceNames for () {
    fn name(&self, _: u32) -> Option<&str> {
        None
    }
}

/// A value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Nanoseconds since the Unix epoch.
    Time(u64),
    /// Any other number.
    Number(u64),
    /// A word, or a name.
    Text(Cow<'a, str>),
    Address(IpAddr),
}

impl Field {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether its value may be unknown.
    pub fn is_nullable(self) -> bool {
        self.row().absent.is_some()
    }

    /// Its value in a record; `None` if it is not known.
    pub fn value<'a>(self, record: &FlowRecord, interfaces: &'a dyn InterfaceNames) -> Option<Value<'a>> {
        let row = self.row();
        let number = match row.access {
            Access::Address(get, _) => return get(record).map(Value::Address),
            Access::Wide(get, _) => get(record),
            Access::Number(get, _) => get(record).into(),
        };
        if row.absent == Some(number) {
            return None;
        }
        match row.kind {
            Kind::Time => Some(Value::Time(number)),
            Kind::Word(Vocabulary::Interface) => {
                interfaces.name(number as u32).map(|name| Value::Text(name.into()))
            }
            Kind::Word(vocabulary) => Some(Value::Text(vocabulary.text(number as u32))),
            Kind::Wide | Kind::Number(_) | Kind::Address => Some(Value::Number(number)),
        }
    }
}

/// A record of which nothing is known: what [`Access`] puts values into.
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

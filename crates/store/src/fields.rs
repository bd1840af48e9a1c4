//! A record as names and values: those of the file's columns, for JSON and CSV.

use std::net::IpAddr;

use thalweg_flow::FlowRecord;

use crate::schema::{ColumnId, Get, Kind};

/// A value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// Nanoseconds since the epoch.
    Time(u64),
    /// A number.
    Number(u64),
    /// A name.
    Word(String),
    /// An address.
    Address(IpAddr),
}

/// The names of all columns, in the order of [`fields`].
pub fn names() -> impl ExactSizeIterator<Item = &'static str> {
    ColumnId::ALL.iter().map(|id| id.definition().name)
}

/// Every column's name and value; `None` is not known.
pub fn fields(record: &FlowRecord) -> impl Iterator<Item = (&'static str, Option<Field>)> {
    ColumnId::ALL.iter().map(|id| {
        let definition = id.definition();
        let number = match definition.get {
            Get::Address(get) => return (definition.name, get(record).map(Field::Address)),
            Get::Wide(get) => get(record),
            Get::Number(get) => get(record).into(),
        };
        let known = Some(number).filter(|number| Some(*number) != definition.absent);
        let field = known.map(|number| match definition.kind {
            Kind::Time => Field::Time(number),
            Kind::Word(vocabulary) => Field::Word(vocabulary.text(number as u32)),
            _ => Field::Number(number),
        });
        (definition.name, field)
    })
}

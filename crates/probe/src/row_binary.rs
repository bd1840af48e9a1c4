//! Encodes a record as a row of ClickHouse's RowBinary, by the table of fields. `contrib/clickhouse/flows.sql`
//! has the tables; a test compares the two.
//!
//! Encoding: <https://clickhouse.com/docs/interfaces/formats/RowBinary>. Values follow each other without names
//! or types, numbers in little-endian order; one that may be unknown has a byte in front, 1 for unknown.

use std::net::IpAddr;

use thalweg_flow::FlowRecord;
use thalweg_flow::fields::{Field, Kind, Value};

use crate::protobuf::put_varint;

/// The columns in order.
pub(crate) struct RowBinary {
    fields: Vec<Field>,
}

impl RowBinary {
    pub(crate) fn new(with_community_id: bool) -> Self {
        Self { fields: Field::of_lines(with_community_id).collect() }
    }

    /// The names of the columns.
    pub(crate) fn columns(&self) -> Vec<&'static str> {
        self.fields.iter().map(|field| field.name()).collect()
    }

    pub(crate) fn write(&self, record: &FlowRecord, row: &mut Vec<u8>) {
        for field in &self.fields {
            let value = field.value(record);
            if field.is_nullable() {
                row.push(value.is_none().into());
            }
            match value {
                // Both have eight bytes; the sign decides only what they are shown as.
                Some(Value::Time(number)) => row.extend_from_slice(&number.to_le_bytes()),
                Some(Value::Number(number)) => {
                    row.extend_from_slice(&number.to_le_bytes()[..number_bytes(field.row().kind)]);
                }
                Some(Value::Address(IpAddr::V4(address))) => {
                    row.extend_from_slice(&address.to_ipv6_mapped().octets());
                }
                Some(Value::Address(IpAddr::V6(address))) => row.extend_from_slice(&address.octets()),
                Some(Value::Text(text)) => {
                    put_varint(row, text.len() as u64);
                    row.extend_from_slice(text.as_bytes());
                }
                None => {}
            }
        }
    }
}

fn number_bytes(kind: Kind) -> usize {
    match kind {
        Kind::Number(bits) => usize::from(bits / 8),
        _ => 8,
    }
}

#[cfg(test)]
mod tests;

//! Writes a record as a line: JSON for readers that need names, CSV for readers that need columns.
//!
//! Both have the given fields in order, usually those of [`Field::of_lines`]. JSON omits unknown values; CSV leaves them empty. Times
//! are RFC 3339 text with nine fractional digits: they sort as text, no reader rounds them to 53 bits, and
//! DuckDB reads them as timestamps.

use std::fmt::Display;
use std::io::Write;

use thalweg_text::calendar::rfc3339_ns;

use crate::fields::{Field, Value};
use crate::record::FlowRecord;

/// The format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// RFC 8259, one object per line.
    Json,
    /// RFC 4180, with a header.
    Csv,
}

impl LineFormat {
    /// The text before the first record.
    pub fn header(self, fields: impl Iterator<Item = Field>) -> String {
        match self {
            Self::Json => String::new(),
            Self::Csv => fields.map(Field::name).collect::<Vec<_>>().join(",") + "\n",
        }
    }

    /// Appends a record's line.
    pub fn write(self, record: &FlowRecord, fields: impl Iterator<Item = Field>, line: &mut Vec<u8>) {
        match self {
            Self::Json => write_json(record, fields, line),
            Self::Csv => write_csv(record, fields, line),
        }
    }
}

fn write_json(record: &FlowRecord, fields: impl Iterator<Item = Field>, line: &mut Vec<u8>) {
    let mut before = b'{';
    for field in fields {
        let Some(value) = field.value(record) else { continue };
        line.push(before);
        before = b',';
        put(line, format_args!("\"{}\":", field.name()));
        match value {
            Value::Number(number) => put(line, number),
            Value::Address(address) => put(line, format_args!("\"{address}\"")),
            Value::Time(time_ns) => {
                line.push(b'"');
                line.extend_from_slice(&rfc3339_ns(time_ns));
                line.push(b'"');
            }
            Value::Text(text) => put_json_text(line, &text),
        }
    }
    if before == b'{' {
        line.push(b'{');
    }
    line.extend_from_slice(b"}\n");
}

fn write_csv(record: &FlowRecord, fields: impl Iterator<Item = Field>, line: &mut Vec<u8>) {
    for (place, field) in fields.enumerate() {
        if place > 0 {
            line.push(b',');
        }
        match field.value(record) {
            Some(Value::Number(number)) => put(line, number),
            Some(Value::Address(address)) => put(line, address),
            Some(Value::Time(time_ns)) => line.extend_from_slice(&rfc3339_ns(time_ns)),
            Some(Value::Text(text)) => put_csv_text(line, &text),
            None => {}
        }
    }
    line.push(b'\n');
}
fn put(line: &mut Vec<u8>, value: impl Display) {
    // Writing to memory cannot fail.
    let _ = write!(line, "{value}");
}

/// RFC 8259, 7.
fn put_json_text(line: &mut Vec<u8>, text: &str) {
    line.push(b'"');
    for character in text.chars() {
        match character {
            '"' | '\\' => put(line, format_args!("\\{character}")),
            control if control < ' ' => put(line, format_args!("\\u{:04x}", u32::from(control))),
            other => put(line, other),
        }
    }
    line.push(b'"');
}

/// RFC 4180, 2.
fn put_csv_text(line: &mut Vec<u8>, text: &str) {
    if text.contains(['"', ',', '\n', '\r']) {
        put(line, format_args!("\"{}\"", text.replace('"', "\"\"")));
    } else {
        line.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests;

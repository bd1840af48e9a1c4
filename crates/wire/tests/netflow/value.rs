//! A field's value by its element's type, for comparison with other readers.

use std::borrow::Cow;
use std::net::IpAddr;

use thalweg_wire::MacAddr;
use thalweg_wire::netflow::decode::{Field, Header};
use thalweg_wire::netflow::element::DataType;

/// Bytes if the type is unknown or does not fit the length.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Unsigned(u64),
    Float(f64),
    Mac(MacAddr),
    Address(IpAddr),
    TimeNs(u64),
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn of(field: &Field<'a>, header: &Header) -> Self {
        let typed = field.name.element().and_then(|element| match element.data_type {
            DataType::Unsigned(_) => field.unsigned().map(Value::Unsigned),
            DataType::Float64 => field.float().map(Value::Float),
            DataType::MacAddress => field.bytes.try_into().ok().map(Value::Mac),
            DataType::Ipv4Address | DataType::Ipv6Address => field.address().map(Value::Address),
            DataType::Seconds | DataType::Milliseconds | DataType::Microseconds | DataType::Nanoseconds => {
                field.time_ns(header).map(Value::TimeNs)
            }
            DataType::String => Some(Value::Text(field.text())),
            DataType::Bytes => None,
        });
        typed.unwrap_or(Value::Bytes(field.bytes))
    }
}

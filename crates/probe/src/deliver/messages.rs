//! Encodes records as values of Kafka messages.

use thalweg_flow::FlowRecord;
use thalweg_ports::collector::{Encode, MessageFormat};

use crate::interfaces::SharedInterfaces;
use crate::protobuf::Protobuf;
use thalweg_flow::lines::LineFormat;

/// An encoder for this format, with the names of these interfaces.
pub(super) fn encode(format: MessageFormat, interfaces: SharedInterfaces) -> Encode {
    match format {
        MessageFormat::Json => Box::new(move |record: &FlowRecord, message: &mut Vec<u8>| {
            LineFormat::Json.write(record, &*interfaces.get(), message);
            // A message has no line end.
            message.pop();
        }),
        MessageFormat::Protobuf => {
            let protobuf = Protobuf::new();
            Box::new(move |record: &FlowRecord, message: &mut Vec<u8>| {
                protobuf.write(record, &*interfaces.get(), message)
            })
        }
    }
}

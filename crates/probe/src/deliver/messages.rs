//! Encodes records as values of Kafka messages.

use thalweg_flow::FlowRecord;
use thalweg_ports::collector::{Encode, MessageFormat};

use crate::protobuf::Protobuf;
use thalweg_flow::fields::Field;
use thalweg_flow::lines::LineFormat;

/// An encoder for this format.
pub(crate) fn encode(format: MessageFormat, with_community_id: bool) -> Encode {
    match format {
        MessageFormat::Json => Box::new(move |record: &FlowRecord, message: &mut Vec<u8>| {
            LineFormat::Json.write(record, Field::of_lines(with_community_id), message);
            // A message has no line end.
            message.pop();
        }),
        MessageFormat::Protobuf => {
            let protobuf = Protobuf::new(with_community_id);
            Box::new(move |record: &FlowRecord, message: &mut Vec<u8>| protobuf.write(record, message))
        }
    }
}

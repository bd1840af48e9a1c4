//! Columns of files of version 2, as today's.
//!
//! | column | then | now |
//! |---|---|---|
//! | interfaces | ports, counted from 0; of imported records the exporter's number less one | the number itself |
//! | TTLs | 0 where unknown | NULL |
//! | TCP flags | 0 for other protocols | NULL |
//! | ICMP's type and code | in the destination port only | columns of their own too |

use thalweg_flow::{NO_INTERFACE, icmp_type_and_code};

use super::FlowFile;
use crate::block::Column;
use crate::error::StoreError;
use thalweg_flow::fields::{Field, NO_SMALL};

/// What NULL is among the numbers of ports while they are read: no port has it.
const NO_PORT_READ: u64 = u32::MAX as u64;
const TCP: u32 = 6;

/// What a column was called in files of any version before its name of today.
pub(super) fn name(id: Field) -> Option<&'static str> {
    match id {
        Field::Bytes => Some("octets"),
        Field::ReverseBytes => Some("reverse_octets"),
        Field::DroppedBytes => Some("dropped_octets"),
        _ => None,
    }
}

/// Whether a column was never NULL, and may be now.
pub(super) fn was_never_null(id: Field) -> bool {
    use Field as C;
    matches!(id, C::TcpFlags | C::TtlMin | C::TtlMax | C::EndReasonWord | C::SamplingInterval)
}

/// Whether values differ from those in the file, so that its statistics do not hold.
pub(super) fn is_converted(id: Field) -> bool {
    use Field as C;
    matches!(id, C::Ingress | C::Egress | C::TtlMin | C::TtlMax | C::TcpFlags)
        || matches!(id, C::ReverseTtlMin | C::ReverseTtlMax | C::ReverseTcpFlags)
}

/// One column of a row group.
pub(super) fn column(file: &FlowFile, row_group: usize, id: Field) -> Result<Column, StoreError> {
    use Field as C;
    let numbers = |id: Field, absent: Option<u64>| match file.decoded(row_group, id, absent)? {
        Column::Number(values) => Ok(values),
        _ => Err(StoreError::Encoding(format!("column {} has no numbers", id.name()))),
    };
    let mut values = match id {
        C::IcmpType | C::IcmpCode => {
            let (protocols, ports) = (numbers(C::Protocol, None)?, numbers(C::DstPort, None)?);
            let of = |(protocol, port): (&u32, &u32)| {
                let (icmp_type, code) = icmp_type_and_code(*protocol as u8, *port as u16)?;
                Some(u32::from(if id == C::IcmpType { icmp_type } else { code }))
            };
            let both = protocols.iter().zip(&ports);
            return Ok(Column::Number(both.map(|row| of(row).unwrap_or(NO_SMALL)).collect()));
        }
        C::Ingress | C::Egress => numbers(id, Some(NO_PORT_READ))?,
        _ if is_converted(id) => numbers(id, id.row().absent)?,
        _ => return file.decoded(row_group, id, id.row().absent),
    };
    match id {
        // NULL wraps around to where it is today.
        C::Ingress | C::Egress => {
            const { assert!((NO_PORT_READ as u32).wrapping_add(1) == NO_INTERFACE) };
            values.iter_mut().for_each(|number| *number = number.wrapping_add(1));
        }
        C::TcpFlags | C::ReverseTcpFlags => {
            let protocols = numbers(C::Protocol, None)?;
            let others = values.iter_mut().zip(protocols).filter(|(_, protocol)| *protocol != TCP);
            others.for_each(|(flags, _)| *flags = NO_SMALL);
        }
        _ => values.iter_mut().filter(|ttl| **ttl == 0).for_each(|ttl| *ttl = NO_SMALL),
    }
    Ok(Column::Number(values))
}

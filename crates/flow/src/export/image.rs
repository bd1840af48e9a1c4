//! Flow records as bytes, for storing them until a collector is back.
//!
//! An image is not a message: sequence numbers and templates belong to a session, which is not known yet. It
//! consists of a length (two bytes), a checksum (four), the form (two, little-endian), and the known fields.
//! A field is its position in the table of fields and its value: an address, a number in groups of seven bits,
//! lowest first, or a name with its length in front. The checksum detects a torn end. An image of another form is an error.

use crate::fields::{Access, Field, Kind, Vocabulary, unknown_record};
use crate::record::FlowRecord;
use std::net::IpAddr;
use thalweg_base::{Name, mix64};

/// The most bytes of an image.
pub const IMAGE_BYTES_MAX: usize = 2048;
const HEAD_BYTES: usize = 6;
/// The form in which positions and values of fields follow.
const FIELDS: u16 = 1 << 8;
const NAME: Kind = Kind::Word(Vocabulary::Name);

/// Why bytes are not an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The bytes end inside an image.
    #[error("ends inside a record")]
    Short,
    #[error("the record's checksum is wrong")]
    Sum,
    /// The checksum is right, but a field has an impossible value: another version wrote it.
    #[error("the record has a value that this version does not know")]
    Value,
}

/// Appends the image of a record.
pub fn write_image(record: &FlowRecord, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    out.extend_from_slice(&FIELDS.to_le_bytes());
    for field in Field::STORED {
        let row = field.row();
        let number = match row.access {
            Access::Wide(get, _) => get(record),
            // The number of a name is that of this process.
            Access::Number(get, _) if row.kind == NAME => {
                let name = Name::from_code(get(record)).text();
                if !name.is_empty() {
                    out.push(*field as u8);
                    put_number(name.len() as u64, out);
                    out.extend_from_slice(name.as_bytes());
                }
                continue;
            }
            Access::Number(get, _) => get(record).into(),
            Access::Address(get, _) => {
                if let Some(address) = get(record) {
                    out.push(*field as u8);
                    put_address(address, out);
                }
                continue;
            }
        };
        // The reader starts from these values.
        if number != row.absent.unwrap_or(0) {
            out.push(*field as u8);
            put_number(number, out);
        }
    }
    let length = (out.len() - start - HEAD_BYTES) as u16;
    let sum = sum(&out[start + HEAD_BYTES..]);
    out[start..start + 2].copy_from_slice(&length.to_le_bytes());
    out[start + 2..start + HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => {
            out.push(4);
            out.extend_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(6);
            out.extend_from_slice(&v6.octets());
        }
    }
}

fn sum(image: &[u8]) -> u32 {
    let mut sum = image.len() as u64;
    for word in image.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        sum = mix64(sum ^ u64::from_le_bytes(bytes));
    }
    (sum >> 32) as u32
}

/// Reads the image at the beginning of `bytes`; returns the record and the remaining bytes.
pub fn read_image(bytes: &[u8]) -> Result<(FlowRecord, &[u8]), ImageError> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(ImageError::Short)?;
    let length = usize::from(u16::from_le_bytes([head[0], head[1]]));
    let (body, rest) = rest.split_at_checked(length).ok_or(ImageError::Short)?;
    if sum(body).to_le_bytes() != head[2..] {
        return Err(ImageError::Sum);
    }
    let mut body = Body(body);
    let record = body.record().ok_or(ImageError::Value)?;
    if body.0.is_empty() { Ok((record, rest)) } else { Err(ImageError::Value) }
}

/// The unread part of an image.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let [byte] = self.take()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn address(&mut self) -> Option<IpAddr> {
        match self.take()? {
            [4] => Some(IpAddr::from(self.take::<4>()?)),
            [6] => Some(IpAddr::from(self.take::<16>()?)),
            _ => None,
        }
    }

    fn name(&mut self) -> Option<Name> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok().map(Name::of)
    }

    fn record(&mut self) -> Option<FlowRecord> {
        if u16::from_le_bytes(self.take()?) & FIELDS == 0 {
            return None;
        }
        let mut record = unknown_record();
        while let Some([place]) = self.take() {
            let row = Field::STORED.get(usize::from(place))?.row();
            match row.access {
                Access::Wide(_, set) => set(&mut record, self.number()?),
                Access::Number(_, set) if row.kind == NAME => set(&mut record, self.name()?.code()),
                Access::Number(_, set) => set(&mut record, u32::try_from(self.number()?).ok()?),
                Access::Address(_, set) => set(&mut record, self.address()?),
            }
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ExporterId;

    #[test]
    fn an_exporter_is_written_by_its_name() {
        let exporter =
            ExporterId { address: "192.0.2.7".parse().ok(), domain: Some(9), name: Name::of("edge1") };
        let record = FlowRecord { exporter, ..unknown_record() };
        let mut image = Vec::new();
        write_image(&record, &mut image);
        assert!(image.windows(5).any(|part| part == b"edge1"));
        assert_eq!(read_image(&image), Ok((record, &[][..])));
        image.truncate(image.len() - 1);
        assert_eq!(read_image(&image), Err(ImageError::Short));
    }

    /// The form before [`FIELDS`] had the same head and sum.
    #[test]
    fn images_of_another_form_are_refused_in_words() {
        let mut image = Vec::new();
        write_image(&unknown_record(), &mut image);
        image[HEAD_BYTES..HEAD_BYTES + 2].copy_from_slice(&0u16.to_le_bytes());
        let sum = sum(&image[HEAD_BYTES..]);
        image[2..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
        let refusal = read_image(&image).expect_err("another form");
        assert_eq!(refusal, ImageError::Value);
        assert_eq!(refusal.to_string(), "the record has a value that this version does not know");
    }
}

//! Avro's binary form, as far as manifests need it: values one after the other, and files of one block.
//!
//! Apache Avro 1.12, "Binary Encoding" and "Object Container Files". Only what was written with the same schema is read.

use xxhash_rust::xxh3::xxh3_128;

use crate::file::zigzag;

/// What is wrong with bytes.
pub(super) type Fault = &'static str;

const MAGIC: [u8; 4] = *b"Obj\x01";
const CUT: Fault = "it ends early";
const SYNC_BYTES: usize = 16;

/// Writes values.
#[derive(Default)]
pub(super) struct Encoder(Vec<u8>);

impl Encoder {
    /// A number of 32 or 64 bits.
    pub(super) fn number(&mut self, value: i64) {
        zigzag(value, &mut self.0);
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    /// Bytes or a text.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
    }

    /// A union of NULL, which is first, and something else.
    pub(super) fn optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.number(i64::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
    }

    pub(super) fn list<T>(&mut self, items: &[T], mut put: impl FnMut(&mut Self, &T)) {
        if !items.is_empty() {
            self.number(items.len() as i64);
            items.iter().for_each(|item| put(self, item));
        }
        self.number(0);
    }

    /// A file with these records.
    pub(super) fn file<T>(
        schema: &str,
        header: &[(&str, String)],
        records: &[T],
        mut put: impl FnMut(&mut Self, &T),
    ) -> Vec<u8> {
        let mut block = Self::default();
        records.iter().for_each(|record| put(&mut block, record));
        let sync = xxh3_128(&block.0).to_le_bytes();
        let mut file = Self(MAGIC.to_vec());
        let own = [("avro.schema", schema), ("avro.codec", "null")];
        let header: Vec<(&str, &str)> =
            own.into_iter().chain(header.iter().map(|(key, value)| (*key, value.as_str()))).collect();
        file.list(&header, |file, (key, value)| {
            file.bytes(key.as_bytes());
            file.bytes(value.as_bytes());
        });
        file.0.extend_from_slice(&sync);
        if !records.is_empty() {
            file.number(records.len() as i64);
            file.bytes(&block.0);
            file.0.extend_from_slice(&sync);
        }
        file.0
    }
}

/// Reads values.
pub(super) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn number(&mut self) -> Result<i64, Fault> {
        let mut zigzag = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            zigzag |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed());
            }
        }
        Err("a number of more than 64 bits")
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Fault> {
        Ok(self.take(1)?[0] != 0)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let count = usize::try_from(self.number()?).map_err(|_| CUT)?;
        self.take(count)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a text that is not UTF-8")
    }

    pub(super) fn optional<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        match self.number()? {
            0 => Ok(None),
            1 => take(self).map(Some),
            _ => Err("a union without such a branch"),
        }
    }

    pub(super) fn list<T>(
        &mut self,
        mut take: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut items = Vec::new();
        loop {
            match self.number()? {
                0 => return Ok(items),
                count @ 1.. => {
                    for _ in 0..count {
                        items.push(take(self)?);
                    }
                }
                _ => return Err("a list in a form that this program does not write"),
            }
        }
    }

    /// The records of a file, which must have this schema.
    pub(super) fn file<T>(
        bytes: &'a [u8],
        schema: &str,
        mut take: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut file = Self(bytes);
        if file.take(MAGIC.len())? != MAGIC {
            return Err("not an Avro file");
        }
        let header = file.list(|file| Ok((file.text()?, file.bytes()?)))?;
        if !header.contains(&("avro.schema", schema.as_bytes())) {
            return Err("an Avro file of another program, or of another version");
        }
        file.take(SYNC_BYTES)?;
        let mut records = Vec::new();
        while !file.0.is_empty() {
            let count = file.number()?;
            let mut block = Self(file.bytes()?);
            for _ in 0..count {
                records.push(take(&mut block)?);
            }
            file.take(SYNC_BYTES)?;
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(put: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        let mut encoder = Encoder::default();
        put(&mut encoder);
        encoder.0
    }

    /// The examples of the specification.
    #[test]
    fn values_are_those_of_the_specification() {
        let numbers: [(i64, &[u8]); 7] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (-64, &[0x7f]),
            (64, &[0x80, 1]),
            (i64::MAX, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
            (i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ];
        for (number, bytes) in numbers {
            assert_eq!(encoded(|it| it.number(number)), bytes);
            assert_eq!(Decoder(bytes).number(), Ok(number));
        }
        assert_eq!(encoded(|it| it.bytes(b"foo")), [6, b'f', b'o', b'o']);
        assert_eq!(encoded(|it| it.optional(Some(b"a"), |it, text| it.bytes(text))), [2, 2, b'a']);
        assert_eq!(encoded(|it| it.optional(None, |it, text: &[u8]| it.bytes(text))), [0]);
        assert_eq!(encoded(|it| it.list(&[3, 27], |it, number| it.number(*number))), [4, 6, 54, 0]);
        assert_eq!(encoded(|it| it.list(&[], |it, number: &i64| it.number(*number))), [0]);
    }

    #[test]
    fn a_file_is_read_as_written_and_no_cut_or_foreign_one_is() {
        let records = ["one", "two", "", "four"];
        let header = [("format-version", "2".to_owned())];
        let file =
            Encoder::file("\"string\"", &header, &records, |it, text: &&str| it.bytes(text.as_bytes()));
        assert_eq!(Decoder::file(&file, "\"string\"", Decoder::text), Ok(records.to_vec()));
        assert!(Decoder::file(&file, "\"bytes\"", Decoder::text).is_err());
        let whole_without_block = file.len() - (2 + records.concat().len() + records.len() + SYNC_BYTES);
        for length in (0..file.len()).filter(|length| *length != whole_without_block) {
            assert!(Decoder::file(&file[..length], "\"string\"", Decoder::text).is_err(), "{length} bytes");
        }
    }
}

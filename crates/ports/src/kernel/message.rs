//! Netlink's framing: messages and their attributes in host byte order, padded to four bytes.
//!
//! ```text
//! [length 4][type 2][flags 2][sequence 4][port 4] [family header, e.g. rtmsg 12] ([length 2][type 2][value, padded])*
//! ```

/// Bytes of a message's header.
pub(super) const HEADER: usize = 16;

/// Writes messages into a buffer for one `send`.
#[derive(Debug, Default)]
pub(super) struct MessageWriter {
    buffer: Vec<u8>,
    /// Where the open message begins.
    start: usize,
    /// Where the last finished message begins.
    last: Option<usize>,
    count: u32,
}

impl MessageWriter {
    pub(super) fn clear(&mut self) {
        self.buffer.clear();
        self.start = 0;
        self.last = None;
        self.count = 0;
    }

    /// Begins a message with its family's header, whose length must be a multiple of four.
    pub(super) fn begin(&mut self, kind: u16, flags: u16, sequence: u32, family_header: &[u8]) {
        self.start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        self.buffer.extend_from_slice(&flags.to_ne_bytes());
        self.buffer.extend_from_slice(&sequence.to_ne_bytes());
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(family_header);
    }

    pub(super) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.buffer.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        self.buffer.extend_from_slice(value);
        self.buffer.resize(self.buffer.len().next_multiple_of(4), 0);
    }

    pub(super) fn attribute_u32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    pub(super) fn end(&mut self) {
        let length = (self.buffer.len() - self.start) as u32;
        self.buffer[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
        self.last = Some(self.start);
        self.count += 1;
    }

    pub(super) fn add_flags_to_last(&mut self, flags: u16) {
        if let Some(at) = self.last {
            let old = u16::from_ne_bytes([self.buffer[at + 6], self.buffer[at + 7]]);
            self.buffer[at + 6..at + 8].copy_from_slice(&(old | flags).to_ne_bytes());
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// The number of finished messages.
    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    /// The bytes behind the header.
    pub(super) body: &'a [u8],
}

/// The messages of one datagram; ends at the first malformed one.
pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = u32_at(self.0, 0)? as usize;
        let message = self.0.get(..length).filter(|message| message.len() >= HEADER)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Message {
            kind: u16_at(message, 4)?,
            flags: u16_at(message, 6)?,
            sequence: u32_at(message, 8)?,
            body: &message[HEADER..],
        })
    }
}

/// The attributes behind a family's header, without flags in their types; ends at the first malformed one.
pub(super) struct AttributesOf<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for AttributesOf<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let attribute = self.0.get(..length).filter(|attribute| attribute.len() >= 4)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((u16_at(attribute, 2)? & 0x3fff, &attribute[4..]))
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            messages in prop::collection::vec(
                (any::<u16>(), any::<u32>(), prop::collection::vec((0u16..0x4000, prop::collection::vec(any::<u8>(), 0..20)), 0..4)),
                0..6,
            ),
        ) {
            let mut writer = MessageWriter::default();
            for (kind, sequence, attributes) in &messages {
                writer.begin(*kind, 1, *sequence, &[9; 12]);
                for (kind, value) in attributes {
                    writer.attribute(*kind, value);
                }
                writer.end();
            }
            writer.add_flags_to_last(4);
            prop_assert_eq!(writer.count() as usize, messages.len());
            let read: Vec<_> = Messages(writer.bytes()).collect();
            prop_assert_eq!(read.len(), messages.len());
            for (i, (message, (kind, sequence, attributes))) in read.iter().zip(&messages).enumerate() {
                prop_assert_eq!((message.kind, message.sequence), (*kind, *sequence));
                prop_assert_eq!(message.flags, if i + 1 == messages.len() { 5 } else { 1 });
                let got: Vec<_> = AttributesOf(&message.body[12..]).map(|(k, v)| (k, v.to_vec())).collect();
                prop_assert_eq!(&got, attributes);
            }
        }

        #[test]
        fn nonsense_ends_the_iteration(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(Messages(&bytes).count() <= bytes.len() / HEADER);
            prop_assert!(AttributesOf(&bytes).count() <= bytes.len() / 4);
        }
    }
}

//! The first message of a TLS client, which is in clear text: ClientHello (RFC 8446, 4.1.2). In TCP it is in
//! records ([`handshake`]), in QUIC in CRYPTO frames.
//!
//! A hello may be cut: what its beginning shows is read, and only extensions that are there as a whole.
//! [`ClientHello::is_whole`] tells.
//!
//! Extensions: server_name RFC 6066, application_layer_protocol_negotiation RFC 7301, supported_versions and
//! signature_algorithms RFC 8446. Reserved numbers that clients send to be ignored: RFC 8701.

use std::borrow::Cow;

/// Extension numbers.
pub const SERVER_NAME: u16 = 0;
pub const SIGNATURE_ALGORITHMS: u16 = 13;
pub const ALPN: u16 = 16;
pub const SUPPORTED_VERSIONS: u16 = 43;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RECORD_HEADER_BYTES: usize = 5;
const MESSAGE_HEADER_BYTES: usize = 4;
/// The most bytes of a record, with the room that TLS 1.2 had for compression.
const RECORD_BYTES_MAX: usize = (1 << 14) + 2048;

/// The handshake messages at the beginning of a TCP stream, as far as they are there: without the headers of their
/// records. `None` if it begins with something else.
pub fn handshake(stream: &[u8]) -> Option<Cow<'_, [u8]>> {
    let (first, mut rest) = record(stream)?;
    let mut messages = Cow::Borrowed(first);
    while let Some((more, behind)) = record(rest) {
        messages.to_mut().extend_from_slice(more);
        rest = behind;
    }
    Some(messages)
}

/// The content of the handshake record at the beginning, as far as it is there, and what follows.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
    let [HANDSHAKE, 3, 0..=4, high, low] = *header else { return None };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let is_possible = (1..=RECORD_BYTES_MAX).contains(&length);
    is_possible.then(|| rest.split_at(length.min(rest.len())))
}

/// Whether a number is one of those that clients send to be ignored (RFC 8701).
pub fn is_reserved(number: u16) -> bool {
    let [high, low] = number.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

/// A client's hello, or its beginning.
#[derive(Clone, Copy, Debug)]
pub struct ClientHello<'a> {
    is_whole: bool,
    version: u16,
    ciphers: &'a [u8],
    extensions: &'a [u8],
}

impl<'a> ClientHello<'a> {
    /// Views the hello at the beginning of handshake messages; `None` if there is another message, or not even the
    /// version.
    pub fn new(messages: &'a [u8]) -> Option<Self> {
        let (&[CLIENT_HELLO, high, middle, low], body) =
            messages.split_first_chunk::<MESSAGE_HEADER_BYTES>()?
        else {
            return None;
        };
        let length = usize::try_from(u32::from_be_bytes([0, high, middle, low])).ok()?;
        let mut body = Cut(body.get(..length).unwrap_or(body));
        let is_whole = body.0.len() == length;
        let version = body.number(2)?;
        let _random = body.take(32);
        let _session = body.list(1);
        let ciphers = body.list(2);
        let _compression = body.list(1);
        // Before TLS 1.3 a hello could end here.
        let extensions = body.list(2);
        Some(Self { is_whole, version, ciphers, extensions })
    }

    /// Whether all of it is there.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The version field. Since TLS 1.3 it is that of 1.2, and [`SUPPORTED_VERSIONS`] decides.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Cipher suites, best first.
    pub fn ciphers(&self) -> impl Iterator<Item = u16> + 'a {
        numbers(self.ciphers)
    }

    /// Numbers and contents of extensions.
    pub fn extensions(&self) -> impl Iterator<Item = (u16, &'a [u8])> + 'a {
        let mut rest = Cut(self.extensions);
        std::iter::from_fn(move || {
            let (number, length) = (rest.number(2)?, usize::from(rest.number(2)?));
            let content = rest.take(length);
            (content.len() == length).then_some((number, content))
        })
    }

    /// The content of an extension.
    pub fn extension(&self, number: u16) -> Option<&'a [u8]> {
        self.extensions().find(|(is, _)| *is == number).map(|(_, content)| content)
    }

    /// The name of the server that the client asks for.
    pub fn server_name(&self) -> Option<&'a [u8]> {
        let mut list = Cut(self.extension(SERVER_NAME)?);
        let mut names = Cut(list.list(2));
        const HOST_NAME: u16 = 0;
        (names.number(1)? == HOST_NAME).then(|| names.list(2)).filter(|name| !name.is_empty())
    }

    /// The application protocols that the client offers, best first.
    pub fn protocols(&self) -> impl Iterator<Item = &'a [u8]> + 'a {
        let mut list = Cut(self.extension(ALPN).unwrap_or_default());
        let mut rest = Cut(list.list(2));
        std::iter::from_fn(move || Some(rest.list(1)).filter(|name| !name.is_empty()))
    }

    /// The versions that the client offers; empty before TLS 1.3.
    pub fn supported_versions(&self) -> impl Iterator<Item = u16> + 'a {
        let mut list = Cut(self.extension(SUPPORTED_VERSIONS).unwrap_or_default());
        numbers(list.list(1))
    }

    /// The signature algorithms that the client accepts, best first.
    pub fn signature_algorithms(&self) -> impl Iterator<Item = u16> + 'a {
        let mut list = Cut(self.extension(SIGNATURE_ALGORITHMS).unwrap_or_default());
        numbers(list.list(2))
    }
}

fn numbers(list: &[u8]) -> impl Iterator<Item = u16> + '_ {
    list.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// Bytes that may end anywhere.
struct Cut<'a>(&'a [u8]);

impl<'a> Cut<'a> {
    /// The next bytes, or those that are left.
    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// The number in the next one or two bytes; without them nothing is left.
    fn number(&mut self, bytes: usize) -> Option<u16> {
        match *self.take(bytes) {
            [low] if bytes == 1 => Some(low.into()),
            [high, low] => Some(u16::from_be_bytes([high, low])),
            _ => None,
        }
    }

    /// What follows a length of this many bytes, as far as it is there.
    fn list(&mut self, length_bytes: usize) -> &'a [u8] {
        let length = self.number(length_bytes).unwrap_or(0);
        self.take(length.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{client_hello, in_records};

    #[test]
    fn a_hello_says_what_it_was_made_of() {
        let message = client_hello(Some("www.example.org"), &["h2", "http/1.1"]);
        let hello = ClientHello::new(&message).expect("a hello");
        assert!(hello.is_whole());
        assert_eq!(hello.server_name(), Some(&b"www.example.org"[..]));
        assert_eq!(hello.protocols().collect::<Vec<_>>(), [&b"h2"[..], b"http/1.1"]);
        assert_eq!(hello.ciphers().count(), 16);
        assert_eq!(
            (hello.version(), hello.supported_versions().collect::<Vec<_>>()),
            (0x303, vec![0xdada, 0x304, 0x303])
        );
        assert_eq!(hello.signature_algorithms().next(), Some(0x403));
        assert_eq!(ClientHello::new(&client_hello(None, &[])).and_then(|hello| hello.server_name()), None);
    }

    /// A cut hello says the same or nothing, wherever it is cut.
    #[test]
    fn no_name_is_cut() {
        let message = client_hello(Some("www.example.org"), &["h2"]);
        for end in 0..message.len() {
            let Some(hello) = ClientHello::new(&message[..end]) else { continue };
            assert!(!hello.is_whole());
            assert!(hello.server_name().is_none_or(|name| name == b"www.example.org"), "cut at {end}");
            assert!(hello.protocols().all(|name| name == b"h2"), "cut at {end}");
        }
    }

    #[test]
    fn records_may_cut_a_message_anywhere() {
        let message = client_hello(Some("example.org"), &["h2"]);
        for bytes in [1, 7, 200, 5_000] {
            let stream = in_records(&message, bytes);
            assert_eq!(handshake(&stream).as_deref(), Some(&message[..]));
            let more = [&stream[..], b"\x17\x03\x03\0\x01x"].concat();
            assert_eq!(handshake(&more).as_deref(), Some(&message[..]), "other records follow");
            let cut = handshake(&stream[..stream.len() - 1]).expect("records");
            assert!(message.starts_with(&cut) && cut.len() < message.len());
        }
        assert_eq!(handshake(b"\x16\x03\x01\0\0"), None);
        assert_eq!(handshake(b"GET / HTTP/1.1"), None);
    }

    #[test]
    fn reserved_numbers_are_sixteen() {
        assert_eq!((0..=u16::MAX).filter(|number| is_reserved(*number)).count(), 16);
        assert!(is_reserved(0x0a0a) && is_reserved(0xfafa) && !is_reserved(0x0a1a));
    }
}

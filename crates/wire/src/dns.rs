//! DNS messages (RFC 1035), as far as a watcher needs them: the first question and the answers.
//!
//! Names become text without case, because senders mix it at random (draft-vixie-dnsext-dns0x20): labels with dots
//! between, no dot at the end; letters and digits of UTF-8 (RFC 6762, 16), `-` and `_` as they are, other bytes as
//! `\ddd`. A compression pointer must lead back, so no name is endless.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HEADER_BYTES: usize = 12;
/// The most bytes of a name as it is encoded.
const NAME_BYTES_MAX: usize = 255;
const CLASS_INTERNET: u16 = 1;
/// Types of records.
pub const A: u16 = 1;
pub const CNAME: u16 = 5;
pub const AAAA: u16 = 28;

/// A message whose header is there.
#[derive(Clone, Copy, Debug)]
pub struct DnsView<'a> {
    header: &'a [u8; HEADER_BYTES],
    message: &'a [u8],
}

/// What a message asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub name: String,
    pub kind: u16,
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Address(IpAddr),
    /// An alias: the question's name is another name of this one.
    Alias(String),
    Other,
}

impl<'a> DnsView<'a> {
    /// Views a message from its first byte; `None` unless it is a query or the response to one.
    pub fn new(message: &'a [u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = message.first_chunk()?;
        // Operation 0; the reserved bit is 0. mDNS has the flags of queries and responses, too.
        let is_query = header[2] & 0x78 == 0 && header[3] & 0x40 == 0;
        is_query.then_some(Self { header, message })
    }

    /// Whether it answers a query.
    pub fn is_response(&self) -> bool {
        self.header[2] & 0x80 != 0
    }

    /// The response code: 0 no error, 3 no such name.
    pub fn code(&self) -> u8 {
        self.header[3] & 0x0f
    }

    fn count(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.header[at], self.header[at + 1]])
    }

    /// The first question, and where the next part begins.
    fn first(&self) -> Option<(Question, usize)> {
        if self.count(4) == 0 {
            return None;
        }
        let (name, at) = name(self.message, HEADER_BYTES)?;
        let kind = be16(self.message, at)?;
        // The class, and in mDNS a flag.
        let class = be16(self.message, at + 2)? & 0x7fff;
        (class == CLASS_INTERNET || class == 255).then_some((Question { name, kind }, at + 4))
    }

    /// The first question.
    pub fn question(&self) -> Option<Question> {
        Some(self.first()?.0)
    }

    /// The answers, as far as they are there, with their lifetimes in seconds. A message with several questions has
    /// none here.
    pub fn answers(&self) -> impl Iterator<Item = (Answer, u32)> + '_ {
        let mut at = self.first().filter(|_| self.count(4) == 1).map(|(_, at)| at);
        (0..self.count(6)).map_while(move |_| {
            let (answer, lifetime_s, next) = answer(self.message, at?)?;
            at = Some(next);
            Some((answer, lifetime_s))
        })
    }
}

/// The record at `at`, its lifetime, and where the next begins.
fn answer(message: &[u8], at: usize) -> Option<(Answer, u32, usize)> {
    let at = skip_name(message, at)?;
    let (kind, class) = (be16(message, at)?, be16(message, at + 2)? & 0x7fff);
    let lifetime_s = u32::from_be_bytes(*message.get(at + 4..)?.first_chunk()?);
    let (start, length) = (at + 10, usize::from(be16(message, at + 8)?));
    let data = message.get(start..start + length)?;
    let address: Option<IpAddr> = match (class, kind) {
        (CLASS_INTERNET, A) => data.try_into().map(|bytes: [u8; 4]| Ipv4Addr::from(bytes).into()).ok(),
        (CLASS_INTERNET, AAAA) => data.try_into().map(|bytes: [u8; 16]| Ipv6Addr::from(bytes).into()).ok(),
        _ => None,
    };
    let answer = match address {
        Some(address) => Answer::Address(address),
        None if kind == CNAME => Answer::Alias(name(message, start)?.0),
        None => Answer::Other,
    };
    Some((answer, lifetime_s, start + length))
}

/// The name at `at` as text, and where it ends there.
fn name(message: &[u8], at: usize) -> Option<(String, usize)> {
    let end = skip_name(message, at)?;
    let mut text = String::new();
    let (mut at, mut limit, mut bytes) = (at, at, 0);
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => return Some((text, end)),
            1..=63 => {
                bytes += 1 + length;
                if bytes >= NAME_BYTES_MAX {
                    return None;
                }
                if !text.is_empty() {
                    text.push('.');
                }
                push_label(&mut text, message.get(at + 1..at + 1 + length)?);
                at += 1 + length;
            }
            192.. => {
                let target = usize::from(be16(message, at)? & 0x3fff);
                // Only back, before all that was followed: so it ends.
                if target >= limit {
                    return None;
                }
                (at, limit) = (target, target);
            }
            _ => return None,
        }
    }
}

fn push_label(text: &mut String, label: &[u8]) {
    let is_plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    for part in label.utf8_chunks() {
        for c in part.valid().chars() {
            match c {
                plain if is_plain(plain) => text.push(plain.to_ascii_lowercase()),
                other => push_bytes(text, other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_bytes(text, part.invalid());
    }
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\{byte:03}");
    }
}

/// Where the name at `at` ends.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            192.. => return Some(at + 2),
            _ => return None,
        }
    }
}

fn be16(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The response of RFC 1035's examples in spirit: an alias, and its addresses.
    const RESPONSE: &[u8] = b"\x12\x34\x81\x80\0\x01\0\x03\0\0\0\0\
        \x03WwW\x07example\x03org\0\0\x01\0\x01\
        \xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x07\x04edge\xc0\x10\
        \xc0\x2d\0\x01\0\x01\0\0\0\x1e\0\x04\xc0\0\x02\x07\
        \xc0\x2d\0\x1c\0\x01\0\0\0\x1e\0\x10\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01";

    #[test]
    fn a_response_has_its_question_and_its_answers() {
        let view = DnsView::new(RESPONSE).expect("a message");
        assert_eq!((view.is_response(), view.code()), (true, 0));
        assert_eq!(view.question(), Some(Question { name: "www.example.org".to_owned(), kind: A }));
        let answers: Vec<_> = view.answers().collect();
        assert_eq!(
            answers,
            [
                (Answer::Alias("edge.example.org".to_owned()), 60),
                (Answer::Address("192.0.2.7".parse().expect("an address")), 30),
                (Answer::Address("2001:db8::1".parse().expect("an address")), 30),
            ]
        );
        for end in 0..RESPONSE.len() {
            let Some(view) = DnsView::new(&RESPONSE[..end]) else { continue };
            assert!(
                view.question().is_none_or(|question| question.name == "www.example.org"),
                "cut at {end}"
            );
            assert!(view.answers().eq(answers.iter().take(view.answers().count()).cloned()), "cut at {end}");
        }
    }

    #[test]
    fn pointers_that_lead_on_and_names_that_are_too_long_are_none() {
        let ask = |name: &[u8]| {
            let message = [&b"\0\0\x01\0\0\x01\0\0\0\0\0\0"[..], name, &b"\0\x01\0\x01"[..]].concat();
            DnsView::new(&message).and_then(|view| view.question()).map(|question| question.name)
        };
        assert_eq!(ask(b"\x01a\0").as_deref(), Some("a"));
        assert_eq!(ask(b"\0").as_deref(), Some(""), "the root");
        assert_eq!(ask(b"\x03a. \0").as_deref(), Some("a\\046\\032"));
        assert_eq!(ask(b"\x04B\xc3\xa4\xff\0").as_deref(), Some("bä\\255"));
        assert_eq!(ask(b"\xc0\x0c"), None, "to itself");
        assert_eq!(ask(b"\x01a\xc0\x0c"), None, "around");
        assert_eq!(ask(b"\xc0\x20"), None, "ahead");
        assert_eq!(ask(b"\x40a\0"), None, "an extended label");
        let long = |labels: usize| [b"\x01a".repeat(labels), vec![0]].concat();
        assert_eq!(ask(&long(126)).map(|name| name.len()), Some(251));
        assert_eq!(ask(&long(127)).map(|name| name.len()), Some(253));
        assert_eq!(ask(&long(128)), None);
    }
}

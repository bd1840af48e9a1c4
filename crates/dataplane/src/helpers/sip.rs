//! Messages of SIP (RFC 3261) and their bodies of SDP (RFC 8866): where endpoints are in them. A message is one UDP
//! datagram.
//!
//! Of a header only the parts are read that lead a packet somewhere: the URI of a request, the topmost `Via`, all of
//! `Contact`; of a body `o=`, `c=`, `m=` and `a=rtcp` (RFC 3605). Everything else, names and domains too, is left alone.
//! Lines that are folded (obsolete since RFC 3261) are read as far as their first part.

use std::net::Ipv4Addr;
use std::ops::Range;

/// The port of both ends, unless they say another.
pub(crate) const PORT: u16 = 5060;
/// Endpoints and media of one message; one with more is not read.
const PARTS_MAX: usize = 32;
/// Seconds of a registration that count.
const REGISTERS_MAX_S: u32 = 3600;

/// Where an endpoint is: host and port as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// From the first byte of the host to the last of the port.
    pub(crate) range: Range<usize>,
    pub(crate) address: Ipv4Addr,
    /// `None`: the default.
    pub(crate) port: Option<u16>,
}

/// An address in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) range: Range<usize>,
    pub(crate) address: Ipv4Addr,
}

/// A medium of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Media {
    pub(crate) port_at: Range<usize>,
    pub(crate) port: u16,
    pub(crate) address: Option<Address>,
    /// The port of `a=rtcp`, and its address.
    pub(crate) rtcp: Option<(Range<usize>, u16)>,
    pub(crate) rtcp_address: Option<Address>,
    /// Where its lines end.
    pub(crate) end: usize,
}

impl Media {
    /// The port of RTCP.
    pub(crate) fn rtcp_port(&self) -> u16 {
        self.rtcp.as_ref().map_or(self.port.wrapping_add(1), |(_, port)| *port)
    }

    pub(crate) fn ports(&self) -> [u16; 2] {
        [self.port, self.rtcp_port()]
    }
}

/// The endpoints of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) endpoints: Vec<Endpoint>,
    /// That of `o=`, and of the `c=` of all media.
    pub(crate) origin: Option<Address>,
    pub(crate) address: Option<Address>,
    pub(crate) media: Vec<Media>,
    content_length: Option<(Range<usize>, usize)>,
    body_at: usize,
    /// For how long a REGISTER asks, or its answer grants, to be reached.
    pub(crate) registers_s: Option<u32>,
}

/// Replacements in a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edits(Vec<(Range<usize>, String)>);

impl Edits {
    pub(crate) fn put(&mut self, range: Range<usize>, text: String) {
        self.0.push((range, text));
    }
}

impl Message {
    /// Where a medium is: its own address, else that of all.
    pub(crate) fn address_of(&self, media: &Media) -> Option<Ipv4Addr> {
        media.address.as_ref().or(self.address.as_ref()).map(|address| address.address)
    }

    /// The message with replacements, and the length of its body; `None` if nothing changes.
    pub(crate) fn rewritten(&self, bytes: &[u8], edits: &mut Edits) -> Option<Vec<u8>> {
        edits.0.retain(|(range, text)| bytes.get(range.clone()).is_some_and(|old| old != text.as_bytes()));
        let in_body = edits.0.iter().filter(|(range, _)| range.start >= self.body_at);
        let growth = in_body.map(|(range, text)| (text.len(), range.len()));
        let (more, less) = growth.fold((0, 0), |(more, less), (new, old)| (more + new, less + old));
        if let Some((range, length)) = self.content_length.as_ref().filter(|_| more != less) {
            edits.put(range.clone(), (length + more).saturating_sub(less).to_string());
        }
        if edits.0.is_empty() {
            return None;
        }
        edits.0.sort_by_key(|(range, _)| range.start);
        let (mut new, mut done) = (Vec::with_capacity(bytes.len() + 64), 0);
        for (range, text) in &edits.0 {
            // Two replacements of one place do not come up: the first counts.
            if range.start >= done {
                new.extend_from_slice(bytes.get(done..range.start)?);
                new.extend_from_slice(text.as_bytes());
                done = range.end;
            }
        }
        new.extend_from_slice(bytes.get(done..)?);
        Some(new)
    }
}

/// Whether bytes begin as a message does. Others are keep-alives, STUN, or of another protocol.
pub(crate) fn is_message(bytes: &[u8]) -> bool {
    bytes.starts_with(b"SIP/2.0 ") || request_uri(bytes).is_some()
}

/// The range of the URI of a request.
fn request_uri(bytes: &[u8]) -> Option<Range<usize>> {
    let line = bytes.split(|byte| *byte == b'\r' || *byte == b'\n').next()?;
    let line = line.strip_suffix(b" SIP/2.0")?;
    let method = line.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    (method > 0 && line.get(method) == Some(&b' ')).then_some(method + 1..line.len())
}

/// Reads a message; `None` if it is none, is not whole, or has too many parts.
pub(crate) fn read(bytes: &[u8]) -> Option<Message> {
    let uri = request_uri(bytes);
    let is_register = bytes.starts_with(b"REGISTER ");
    if uri.is_none() && !bytes.starts_with(b"SIP/2.0 ") {
        return None;
    }
    let mut message = Message::default();
    message.endpoints.extend(uri.and_then(|uri| of_uri(bytes, uri)));
    let (mut has_via, mut expires_s, mut is_of_register, mut at) = (false, None, is_register, 0);
    let mut contact_expires_s = None;
    loop {
        let line = at..at + bytes.get(at..)?.iter().position(|byte| *byte == b'\n')?;
        at = line.end + 1;
        let line = line.start..line.end - usize::from(bytes[line.clone()].ends_with(b"\r"));
        if line.is_empty() {
            break;
        }
        let Some(colon) = bytes[line.clone()].iter().position(|byte| *byte == b':') else { continue };
        let name = bytes[line.start..line.start + colon].trim_ascii().to_ascii_lowercase();
        let value = trimmed(bytes, line.start + colon + 1..line.end);
        match name.as_slice() {
            b"via" | b"v" if !has_via => {
                has_via = true;
                message.endpoints.extend(of_via(bytes, value));
            }
            b"contact" | b"m" => {
                for part in parts(bytes, value) {
                    contact_expires_s = parameter(&bytes[part.clone()], b"expires").or(contact_expires_s);
                    message.endpoints.extend(of_uri(bytes, part));
                }
            }
            b"expires" => expires_s = decimal(&bytes[value]),
            b"cseq" => is_of_register |= bytes[value].ends_with(b"REGISTER"),
            b"content-length" | b"l" => {
                let length = usize::try_from(decimal(&bytes[value.clone()])?).ok()?;
                message.content_length = Some((value, length));
            }
            _ => {}
        }
        if message.endpoints.len() > PARTS_MAX {
            return None;
        }
    }
    message.body_at = at;
    let body = bytes.len() - at;
    // Without the header the datagram's end is the body's (RFC 3261 section 18.3).
    let length = message.content_length.as_ref().map_or(body, |(_, length)| *length);
    if is_of_register {
        let asked = contact_expires_s.or(expires_s).unwrap_or(REGISTERS_MAX_S);
        message.registers_s = Some(asked.min(REGISTERS_MAX_S));
    }
    (length <= body).then_some(())?;
    read_body(bytes, at..at + length, &mut message)?;
    Some(message)
}

fn read_body(bytes: &[u8], body: Range<usize>, message: &mut Message) -> Option<()> {
    let mut at = body.start;
    if !bytes[body.clone()].starts_with(b"v=0") {
        return Some(());
    }
    while at < body.end {
        let length = bytes[at..body.end].iter().position(|byte| *byte == b'\n');
        let end = length.map_or(body.end, |length| at + length);
        let line = trimmed(bytes, at..end);
        at = (end + 1).min(body.end);
        let is_another = bytes[line.clone()].starts_with(b"m=");
        if let Some(media) = message.media.last_mut().filter(|_| !is_another) {
            media.end = at;
        }
        let Some(kind) = bytes[line.clone()].first_chunk::<2>() else { continue };
        match (kind, message.media.last_mut()) {
            (b"o=", None) => message.origin = last_address(bytes, &line),
            (b"c=", None) => message.address = last_address(bytes, &line),
            (b"c=", Some(media)) => media.address = last_address(bytes, &line),
            (b"m=", _) => {
                let mut words = words(bytes, line.clone());
                let port_at = words.nth(1)?;
                // A medium may have several ports, `49170/2`.
                let digits = bytes[port_at.clone()].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let port_at = port_at.start..port_at.start + digits;
                let port = u16::try_from(decimal(&bytes[port_at.clone()])?).ok()?;
                let (address, rtcp, rtcp_address) = (None, None, None);
                message.media.push(Media { port_at, port, address, rtcp, rtcp_address, end: at });
                (message.media.len() <= PARTS_MAX).then_some(())?;
            }
            (b"a=", Some(media)) if bytes[line.clone()].starts_with(b"a=rtcp:") => {
                let number = line.start + 7..line.end;
                let digits = bytes[number.clone()].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let port_at = number.start..number.start + digits;
                let port = u16::try_from(decimal(&bytes[port_at.clone()])?).ok()?;
                media.rtcp = Some((port_at, port));
                media.rtcp_address = last_address(bytes, &line);
            }
            _ => {}
        }
    }
    Some(())
}

fn trimmed(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let text = &bytes[range.clone()];
    let start = range.start + (text.len() - text.trim_ascii_start().len());
    start..start + bytes[start..range.end].trim_ascii_end().len()
}

fn decimal(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Words between blanks.
fn words(bytes: &[u8], line: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut at = line.start;
    bytes[line].split(|byte| *byte == b' ').filter_map(move |word| {
        let range = at..at + word.len();
        at = range.end + 1;
        (!word.is_empty()).then_some(range)
    })
}

/// The IPv4 address that a line of SDP ends with; a multicast address may have a TTL behind it, and is left alone.
fn last_address(bytes: &[u8], line: &Range<usize>) -> Option<Address> {
    let range = words(bytes, line.clone()).last()?;
    let address = std::str::from_utf8(&bytes[range.clone()]).ok()?.parse().ok()?;
    Some(Address { range, address })
}

/// The values of a header with several, between commas outside quotes and brackets.
fn parts(bytes: &[u8], value: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let (mut start, mut quoted, mut bracketed) = (value.start, false, false);
    let end = value.end;
    (value.start..=end).filter_map(move |at| {
        match bytes.get(at).filter(|_| at < end) {
            Some(b'"') => quoted = !quoted,
            Some(b'<') => bracketed |= !quoted,
            Some(b'>') => bracketed &= quoted,
            _ => {}
        }
        let is_end = at == end || bytes[at] == b',' && !quoted && !bracketed;
        is_end.then(|| std::mem::replace(&mut start, at + 1)..at)
    })
}

/// The number of a parameter.
fn parameter(text: &[u8], name: &[u8]) -> Option<u32> {
    let mut each = text.split(|byte| *byte == b';').skip(1);
    each.find_map(|text| {
        let (key, value) = text.split_at_checked(text.iter().position(|byte| *byte == b'=')?)?;
        key.trim_ascii().eq_ignore_ascii_case(name).then(|| decimal(value[1..].trim_ascii()))?
    })
}

/// The endpoint of the SIP URI in some bytes.
fn of_uri(bytes: &[u8], range: Range<usize>) -> Option<Endpoint> {
    let text = &bytes[range.clone()];
    let scheme = text.windows(4).position(|word| word.eq_ignore_ascii_case(b"sip:"))?;
    let from = range.start + scheme + 4;
    let uri = &bytes[from..range.end];
    let length = uri.iter().position(|byte| b">;? \t\"".contains(byte)).unwrap_or(uri.len());
    let host = uri[..length].iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
    of_host(bytes, from + host..from + length)
}

/// The endpoint of a `Via`: `SIP/2.0/UDP host:port;branch=..`.
fn of_via(bytes: &[u8], value: Range<usize>) -> Option<Endpoint> {
    let host = words(bytes, value.clone()).nth(1)?;
    let length = bytes[host.clone()].iter().position(|byte| b";,".contains(byte)).unwrap_or(host.len());
    of_host(bytes, host.start..host.start + length)
}

fn of_host(bytes: &[u8], range: Range<usize>) -> Option<Endpoint> {
    let text = std::str::from_utf8(&bytes[range.clone()]).ok()?;
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port.parse().ok()?)),
        None => (text, None),
    };
    Some(Endpoint { range, address: host.parse().ok()?, port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INVITE: &str = "INVITE sip:bob@198.51.100.9:5070 SIP/2.0\r\n\
        Via: SIP/2.0/UDP 192.168.0.2:5062;branch=z9hG4bK1;rport\r\n\
        Via: SIP/2.0/UDP 10.9.9.9\r\n\
        From: <sip:alice@192.168.0.2>;tag=1\r\n\
        m: \"A, <b>\" <sip:alice@192.168.0.2:5062;x=y>;expires=60, <sip:192.168.0.2>\r\n\
        CSeq: 1 INVITE\r\n\
        Content-Type: application/sdp\r\n\
        Content-Length: 143\r\n\
        \r\n\
        v=0\r\n\
        o=- 1 1 IN IP4 192.168.0.2\r\n\
        c=IN IP4 192.168.0.2\r\n\
        m=audio 49170 RTP/AVP 0\r\n\
        a=rtcp:49180\r\n\
        m=video 5000/2 RTP/AVP 31\r\n\
        c=IN IP4 192.168.0.3\r\n";

    fn at(text: &str, range: &Range<usize>) -> String {
        text[range.clone()].to_owned()
    }

    #[test]
    fn where_endpoints_are() {
        let message = read(INVITE.as_bytes()).expect("a message");
        let endpoints: Vec<_> = message.endpoints.iter().map(|e| (at(INVITE, &e.range), e.port)).collect();
        let expected = [
            ("198.51.100.9:5070", Some(5070)),
            ("192.168.0.2:5062", Some(5062)),
            ("192.168.0.2:5062", Some(5062)),
            ("192.168.0.2", None),
        ];
        assert_eq!(endpoints, expected.map(|(text, port)| (text.to_owned(), port)));
        let [audio, video] = &message.media[..] else { panic!("{message:?}") };
        assert_eq!((audio.ports(), at(INVITE, &audio.port_at).as_str()), ([49_170, 49_180], "49170"));
        assert_eq!((video.ports(), message.address_of(video)), ([5000, 5001], Some([192, 168, 0, 3].into())));
        assert_eq!(message.address_of(audio), Some([192, 168, 0, 2].into()));
        assert_eq!(message.origin.as_ref().map(|origin| origin.range.len()), Some(11));
        assert_eq!(message.registers_s, None);
        assert_eq!((INVITE.len() - message.body_at, audio.end), (143, INVITE.find("m=video").unwrap()));
    }

    #[test]
    fn a_new_body_has_a_new_length() {
        let message = read(INVITE.as_bytes()).expect("a message");
        let mut edits = Edits::default();
        for address in [&message.origin, &message.address].into_iter().flatten() {
            edits.put(address.range.clone(), "203.0.113.200".to_owned());
        }
        edits.put(message.endpoints[0].range.clone(), "x".to_owned());
        let new = String::from_utf8(message.rewritten(INVITE.as_bytes(), &mut edits).unwrap()).unwrap();
        let (head, body) = new.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with("Content-Length: 147"), "{head}");
        assert!(head.starts_with("INVITE sip:bob@x SIP/2.0\r\n") && body.len() == 147);
        assert_eq!(message.rewritten(INVITE.as_bytes(), &mut Edits::default()), None);
    }

    #[test]
    fn registrations_and_what_is_no_message() {
        let register = |more: &str| {
            format!("REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1\r\n{more}\r\n")
        };
        for (more, expected) in [
            ("", 3600),
            ("Expires: 300\r\n", 300),
            ("Expires: 300\r\nContact: <sip:a@10.0.0.1>;expires=60\r\n", 60),
            ("Expires: 86400\r\n", 3600),
        ] {
            assert_eq!(read(register(more).as_bytes()).and_then(|m| m.registers_s), Some(expected), "{more}");
        }
        let ok = "SIP/2.0 200 OK\r\nCSeq: 7 REGISTER\r\nContact: <sip:a@10.0.0.1>;expires=90\r\n\r\n";
        assert_eq!(read(ok.as_bytes()).and_then(|m| m.registers_s), Some(90));
        for other in ["\r\n\r\n", "", "OPTIONS x HTTP/1.1\r\n\r\n", "INVITE sip:x SIP/2.0\r\nno end"] {
            assert_eq!(read(other.as_bytes()), None, "{other:?}");
        }
        let cut = &INVITE[..INVITE.len() - 1];
        assert!(read(cut.as_bytes()).is_none() && is_message(cut.as_bytes()), "not whole");
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes: Vec<u8>, cut in 0usize..600, noise in prop::collection::vec((0usize..600, any::<u8>()), 0..6)) {
            read(&bytes);
            let mut damaged = INVITE.as_bytes()[..cut.min(INVITE.len())].to_vec();
            for (at, byte) in noise {
                if let Some(place) = damaged.get_mut(at) {
                    *place = byte;
                }
            }
            if let Some(message) = read(&damaged) {
                prop_assert_eq!(message.rewritten(&damaged, &mut Edits::default()), None);
            }
        }
    }
}

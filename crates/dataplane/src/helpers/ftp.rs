//! Messages of FTP's control connection that announce a data connection: `PORT` and `EPRT` of the client, replies 227 and
//! 229 of the server (RFC 959, RFC 2428). What sends one will listen at the endpoint that it names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// The port of the control connection.
pub(crate) const PORT: u16 = 21;
/// Nobody is led to a lower port (RFC 2577 section 3).
pub(crate) const LOWEST_PORT: u16 = 1024;

/// How an endpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `10,0,0,1,7,138`
    Commas,
    /// `|1|10.0.0.1|1930|`
    Extended(u8),
    /// `|||1930|`
    PortAlone(u8),
}

/// An endpoint in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// Where it is in the line.
    pub(crate) range: Range<usize>,
    pub(crate) form: Form,
    /// `None`: that of the control connection.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

impl Announced {
    /// The same form with another endpoint.
    pub(crate) fn with(&self, address: Ipv4Addr, port: u16) -> String {
        match self.form {
            Form::Commas => {
                let ([a, b, c, d], [high, low]) = (address.octets(), port.to_be_bytes());
                format!("{a},{b},{c},{d},{high},{low}")
            }
            Form::Extended(delimiter) => {
                let d = char::from(delimiter);
                format!("{d}1{d}{address}{d}{port}{d}")
            }
            Form::PortAlone(delimiter) => {
                let d = char::from(delimiter);
                format!("{d}{d}{d}{port}{d}")
            }
        }
    }
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// It should announce something, and cannot be understood.
    Unreadable,
    Announces(Announced),
}

/// Whether a line that is not whole may be one that announces something.
pub(crate) fn may_announce(is_client: bool, start: &[u8]) -> bool {
    let words: [&[u8]; 2] = if is_client { [b"PORT ", b"EPRT "] } else { [b"227 ", b"229 "] };
    words.iter().any(|word| {
        let length = word.len().min(start.len());
        length > 0 && start[..length].eq_ignore_ascii_case(&word[..length])
    })
}

/// Reads a line without its end.
pub(crate) fn read(is_client: bool, line: &[u8]) -> Found {
    let Some((word, rest)) = line.split_at_checked(4) else { return Found::Nothing };
    let found = match (is_client, word.to_ascii_uppercase().as_slice()) {
        (true, b"PORT") if rest.starts_with(b" ") => first(rest, commas),
        (true, b"EPRT") if rest.starts_with(b" ") => first(rest, extended),
        (false, b"227 ") => anywhere(rest, commas),
        (false, b"229 ") => anywhere(rest, port_alone),
        _ => return Found::Nothing,
    };
    found.map_or(Found::Unreadable, |mut announced| {
        announced.range = announced.range.start + 4..announced.range.end + 4;
        Found::Announces(announced)
    })
}

/// Reads the beginning of some bytes; returns how many they are.
type Reader = fn(&[u8]) -> Option<(usize, Form, Option<IpAddr>, u16)>;

fn at(bytes: &[u8], start: usize, read: Reader) -> Option<Announced> {
    let (length, form, address, port) = read(bytes.get(start..)?)?;
    Some(Announced { range: start..start + length, form, address, port })
}

/// Behind blanks.
fn first(bytes: &[u8], read: Reader) -> Option<Announced> {
    at(bytes, bytes.iter().take_while(|byte| **byte == b' ').count(), read)
}

/// The text of a reply is the server's own (RFC 1123 section 4.1.2.6): an endpoint begins behind anything but a digit.
fn anywhere(bytes: &[u8], read: Reader) -> Option<Announced> {
    let begins = |start: &usize| start.checked_sub(1).is_none_or(|before| !bytes[before].is_ascii_digit());
    (0..bytes.len()).filter(begins).find_map(|start| at(bytes, start, read))
}

/// A decimal number at the beginning, and its digits.
fn number(bytes: &[u8]) -> Option<(usize, u16)> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = std::str::from_utf8(bytes.get(..digits)?).ok()?;
    Some((digits, text.parse().ok().filter(|_| digits <= 5)?))
}

fn commas(bytes: &[u8]) -> Option<(usize, Form, Option<IpAddr>, u16)> {
    let (mut numbers, mut length) = ([0u8; 6], 0);
    for (place, value) in numbers.iter_mut().enumerate() {
        if place > 0 {
            (bytes.get(length) == Some(&b',')).then_some(())?;
            length += 1;
        }
        let (digits, number) = number(bytes.get(length..)?)?;
        *value = u8::try_from(number).ok()?;
        length += digits;
    }
    let [a, b, c, d, high, low] = numbers;
    let address = IpAddr::from([a, b, c, d]);
    Some((length, Form::Commas, Some(address), u16::from_be_bytes([high, low])))
}

/// A delimiter may be any printable character (RFC 2428 section 2); none that could be part of what it delimits.
fn delimiter(bytes: &[u8]) -> Option<u8> {
    let is_one =
        |byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_alphanumeric() && !b".:,".contains(byte);
    bytes.first().copied().filter(is_one)
}

fn extended(bytes: &[u8]) -> Option<(usize, Form, Option<IpAddr>, u16)> {
    let mark = delimiter(bytes)?;
    let mut parts = bytes[1..].split(|byte| *byte == mark);
    let (family, address, port) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next()?;
    let text = std::str::from_utf8(address).ok()?;
    let parsed = match family {
        b"1" => IpAddr::V4(text.parse::<Ipv4Addr>().ok()?),
        b"2" => IpAddr::V6(text.parse::<Ipv6Addr>().ok()?),
        _ => return None,
    };
    let (digits, number) = number(port)?;
    let length = 1 + family.len() + 1 + address.len() + 1 + port.len() + 1;
    (digits == port.len()).then_some((length, Form::Extended(mark), Some(parsed), number))
}

fn port_alone(bytes: &[u8]) -> Option<(usize, Form, Option<IpAddr>, u16)> {
    let mark = delimiter(bytes)?;
    (bytes.get(..3)? == [mark; 3]).then_some(())?;
    let (digits, number) = number(&bytes[3..])?;
    (bytes.get(3 + digits) == Some(&mark)).then_some((4 + digits, Form::PortAlone(mark), None, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn announced(is_client: bool, line: &str) -> Option<(String, String, u16)> {
        match read(is_client, line.as_bytes()) {
            Found::Announces(found) => {
                let address = found.address.map(|address| address.to_string()).unwrap_or_default();
                Some((line[found.range].to_owned(), address, found.port))
            }
            Found::Nothing => None,
            Found::Unreadable => Some((String::new(), "?".to_owned(), 0)),
        }
    }

    #[test]
    fn messages_and_what_they_announce() {
        let unreadable = ("", "?", 0);
        for (is_client, line, expected) in [
            (true, "PORT 10,0,0,1,7,138", Some(("10,0,0,1,7,138", "10.0.0.1", 1930))),
            (true, "port  192,168,1,255,255,255 ", Some(("192,168,1,255,255,255", "192.168.1.255", 65_535))),
            (true, "EPRT |1|10.0.0.1|1930|", Some(("|1|10.0.0.1|1930|", "10.0.0.1", 1930))),
            (true, "eprt !2!2001:db8::7!40000!", Some(("!2!2001:db8::7!40000!", "2001:db8::7", 40_000))),
            (true, "PORT 10,0,0,256,7,138", Some(unreadable)),
            (true, "PORT 10,0,0,1,7", Some(unreadable)),
            (true, "EPRT |3|x|1|", Some(unreadable)),
            (true, "EPRT |1|10.0.0.1|70000|", Some(unreadable)),
            (true, "EPRT |1|10.0.0.1|80", Some(unreadable)),
            (true, "PORTAL 10,0,0,1,7,138", None),
            (true, "STOR PORT 10,0,0,1,7,138", None),
            (true, "227 (10,0,0,1,7,138)", None),
            (
                false,
                "227 Entering Passive Mode (10,0,0,1,7,138).",
                Some(("10,0,0,1,7,138", "10.0.0.1", 1930)),
            ),
            (false, "227 see 10,0,0,1,7,138", Some(("10,0,0,1,7,138", "10.0.0.1", 1930))),
            (false, "229 Extended Passive Mode OK (|||1930|)", Some(("|||1930|", "", 1930))),
            (false, "227 Entering Passive Mode", Some(unreadable)),
            (false, "229 (||1930|)", Some(unreadable)),
            (false, "227-more follows (10,0,0,1,7,138)", None),
            (false, "150 227 (10,0,0,1,7,138)", None),
            (false, "PORT 10,0,0,1,7,138", None),
        ] {
            let expected = expected.map(|(text, address, port)| (text.to_owned(), address.to_owned(), port));
            assert_eq!(announced(is_client, line), expected, "{line}");
        }
    }

    #[test]
    fn beginnings() {
        for (start, may) in
            [("PO", true), ("eprt |1|10", true), ("PORTAL", false), ("LIST", false), ("", false)]
        {
            assert_eq!(may_announce(true, start.as_bytes()), may, "{start}");
        }
        assert!(may_announce(false, b"22") && !may_announce(false, b"226 done"));
    }

    proptest! {
        /// What is written is read again, in every form.
        #[test]
        fn endpoints_are_written_as_they_are_read(address: [u8; 4], port: u16, form in 0u8..3) {
            let (is_client, line) = [
                (true, "PORT 1,2,3,4,5,6"), (true, "EPRT |1|1.2.3.4|5|"), (false, "229 ok (|||5|)"),
            ][usize::from(form)];
            let Found::Announces(found) = read(is_client, line.as_bytes()) else { panic!("{line}") };
            let mut other = line.to_owned();
            other.replace_range(found.range.clone(), &found.with(address.into(), port));
            let Found::Announces(again) = read(is_client, other.as_bytes()) else { panic!("{other}") };
            let expected = found.address.map(|_| IpAddr::from(address));
            prop_assert_eq!((again.address, again.port), (expected, port));
        }

        #[test]
        fn nothing_panics(line: Vec<u8>, is_client: bool) {
            if let Found::Announces(found) = read(is_client, &line) {
                prop_assert!(found.range.end <= line.len());
            }
        }
    }
}

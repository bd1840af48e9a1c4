//! From a client's hello to names: server, protocols, fingerprint.
//!
//! The fingerprint is FoxIO's JA4 (of TLS clients; its license is BSD, unlike that of the other JA4+ methods):
//! <https://github.com/FoxIO-LLC/ja4/blob/main/technical_details/JA4.md>. Numbers that are reserved to be ignored
//! (RFC 8701) do not count.
//!
//! ```text
//! t 13 d 15 16 h2 _ 8daaf6152771 _ e5627efa2ab1
//! |  | |  |  |  |   SHA-256 of      SHA-256 of extensions, sorted, without server name and ALPN,
//! |  | |  |  |  |   ciphers, sorted      and of signature algorithms as they came
//! |  | |  |  |  first and last character of the first protocol
//! |  | |  |  extensions
//! |  | |  ciphers
//! |  | d: a server is named, i: none
//! |  highest version
//! t: TCP, q: QUIC
//! ```

use super::crypto;
use crate::record::FlowNames;
use std::fmt::Write;
use thalweg_base::Name;
use thalweg_wire::tls::{self, ClientHello, is_reserved};

/// The longest name that DNS allows.
const HOST_BYTES_MAX: usize = 255;

/// Reads a hello, or its beginning.
pub(super) fn read(hello: &ClientHello<'_>, carrier: char, ja4: bool, names: &mut FlowNames) {
    if let Some(server) = hello.server_name() {
        names.server = host_name(server);
    }
    let mut protocols = String::new();
    for protocol in hello.protocols() {
        if let (true, Ok(text)) = (protocol.iter().all(u8::is_ascii_graphic), str::from_utf8(protocol)) {
            push_to_list(&mut protocols, text);
        }
    }
    if !protocols.is_empty() {
        names.alpn = Name::passing(&protocols);
    }
    if ja4 && hello.is_whole() {
        names.ja4 = fingerprint(hello, carrier).map_or(Name::NONE, |text| Name::passing(&text));
    }
}

/// A host's name or address, unless it has other characters.
pub(super) fn host_name(host: &[u8]) -> Name {
    let is_fit = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(byte);
    match str::from_utf8(host) {
        Ok(text) if host.len() <= HOST_BYTES_MAX && host.iter().all(is_fit) => {
            Name::passing(&text.to_ascii_lowercase())
        }
        _ => Name::NONE,
    }
}

/// Appends a text to others with commas between, if a name has room for it.
pub(super) fn push_to_list(list: &mut String, text: &str) {
    if list.len() + 1 + text.len() > Name::BYTES_MAX {
        return;
    }
    if !list.is_empty() {
        list.push(',');
    }
    list.push_str(text);
}

/// JA4; see the module documentation.
fn fingerprint(hello: &ClientHello<'_>, carrier: char) -> Option<String> {
    let mut ciphers: Vec<u16> = hello.ciphers().filter(|number| !is_reserved(*number)).collect();
    let extensions = hello.extensions().map(|(number, _)| number).filter(|number| !is_reserved(*number));
    let mut extensions: Vec<u16> = extensions.collect();
    let versions = hello.supported_versions().filter(|number| !is_reserved(*number));
    let version = match versions.max().unwrap_or_else(|| hello.version()) {
        0x304 => "13",
        0x303 => "12",
        0x302 => "11",
        0x301 => "10",
        0x300 => "s3",
        0x002 => "s2",
        _ => "00",
    };
    let names_server = if extensions.contains(&tls::SERVER_NAME) { 'd' } else { 'i' };
    let counts = (ciphers.len().min(99), extensions.len().min(99));
    let [first, last] = ends(hello.protocols().next());
    let mut text = format!("{carrier}{version}{names_server}{:02}{:02}{first}{last}", counts.0, counts.1);
    ciphers.sort_unstable();
    extensions.retain(|number| ![tls::SERVER_NAME, tls::ALPN].contains(number));
    extensions.sort_unstable();
    let mut second = list(extensions.iter().copied());
    let algorithms = list(hello.signature_algorithms().filter(|number| !is_reserved(*number)));
    if !algorithms.is_empty() && !second.is_empty() {
        second = second + "_" + &algorithms;
    }
    for part in [list(ciphers.into_iter()), second] {
        text.push('_');
        push_digest(&mut text, &part)?;
    }
    Some(text)
}

/// First and last character of the first protocol; those of its hexadecimal form if one is no letter or digit.
fn ends(protocol: Option<&[u8]>) -> [char; 2] {
    let (Some(first), Some(last)) = (protocol.and_then(<[u8]>::first), protocol.and_then(<[u8]>::last))
    else {
        return ['0', '0'];
    };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [char::from(*first), char::from(*last)];
    }
    let digit = |number: u8| char::from_digit(number.into(), 16).unwrap_or('0');
    [digit(first >> 4), digit(last & 0x0f)]
}

/// Four hexadecimal digits each, with commas between.
fn list(numbers: impl Iterator<Item = u16>) -> String {
    numbers.map(|number| format!("{number:04x}")).collect::<Vec<_>>().join(",")
}

/// Appends the first six bytes of the digest; zeros for nothing.
fn push_digest(text: &mut String, of: &str) -> Option<()> {
    let digest = if of.is_empty() { [0; 32] } else { crypto::sha256(of.as_bytes())? };
    // Writing to a string cannot fail.
    digest[..6].iter().try_for_each(|byte| write!(text, "{byte:02x}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::testing::client_hello;

    fn ja4(server: Option<&str>, protocols: &[&str]) -> String {
        let message = client_hello(server, protocols);
        fingerprint(&ClientHello::new(&message).expect("a hello"), 't').expect("a fingerprint")
    }

    /// The example in its specification.
    #[test]
    fn the_fingerprint_is_that_of_the_specification() {
        assert_eq!(ja4(Some("www.example.org"), &["h2", "http/1.1"]), "t13d1516h2_8daaf6152771_e5627efa2ab1");
        assert_eq!(ja4(None, &["h2"]), "t13i1515h2_8daaf6152771_e5627efa2ab1");
        assert_eq!(ja4(None, &[]), "t13i151400_8daaf6152771_e5627efa2ab1");
        assert_eq!(ja4(None, &["http/1.1"])[..10], *"t13i1515h1");
        assert_eq!(ja4(None, &["\u{1}\u{2b}"])[..10], *"t13i15150b");
    }

    #[test]
    fn names_of_hosts_are_lower_case_and_nothing_else() {
        assert_eq!(host_name(b"WWW.Example.org").text(), "www.example.org");
        assert_eq!(host_name(b"[2001:db8::1%eth0]").text(), "[2001:db8::1%eth0]");
        for other in [&b"a b"[..], b"a\0", b"\xff", b"a/b", b"", &[b'a'; 256]] {
            assert_eq!(host_name(other), Name::NONE, "{}", other.escape_ascii());
        }
    }
}

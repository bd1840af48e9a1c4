//! The address of a collector with its protocol: `ipfix://host:port`, `ipfix+tcp://`, `ipfix+tls://`,
//! `v9://`, `v5://`. IPFIX may add `?options=in-domain&names=variable`, or one of these.

use super::CollectorError;
use std::fmt;
use std::str::FromStr;
use thalweg_flow::export::{Transport, Version};

/// Default ports (RFC 7011, 10.3.4; by convention for NetFlow).
const IPFIX_PORT: u16 = 4739;
const IPFIX_TLS_PORT: u16 = 4740;
const NETFLOW_PORT: u16 = 2055;

const IN_DOMAIN: &str = "options=in-domain";
const VARIABLE_NAMES: &str = "names=variable";
const EXPECTED: &str = "ipfix://, ipfix+tcp://, ipfix+tls://, v9:// or v5://, then HOST or HOST:PORT";

/// The transport of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    Udp,
    Tcp,
    Tls,
}

impl Carrier {
    /// The kind of transport for an exporter.
    pub fn transport(self) -> Transport {
        match self {
            Self::Udp => Transport::Datagram,
            Self::Tcp | Self::Tls => Transport::Stream,
        }
    }
}

/// A collector's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorAddress {
    pub version: Version,
    pub carrier: Carrier,
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    pub port: u16,
    /// `options=in-domain`: see [`ExportOptions::options_in_domain`](thalweg_flow::export::ExportOptions::options_in_domain).
    pub options_in_domain: bool,
    /// `names=variable`: see [`ExportOptions::variable_names`](thalweg_flow::export::ExportOptions::variable_names).
    pub variable_names: bool,
}

impl CollectorAddress {
    fn scheme(&self) -> &'static str {
        match (self.version, self.carrier) {
            (Version::Ipfix, Carrier::Udp) => "ipfix",
            (Version::Ipfix, Carrier::Tcp) => "ipfix+tcp",
            (Version::Ipfix, Carrier::Tls) => "ipfix+tls",
            (Version::NetFlow9, _) => "v9",
            (Version::NetFlow5, _) => "v5",
        }
    }
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}://{open}{}{close}:{}", self.scheme(), self.host, self.port)?;
        let told = [(self.options_in_domain, IN_DOMAIN), (self.variable_names, VARIABLE_NAMES)];
        for (n, (_, word)) in told.iter().filter(|(is_told, _)| *is_told).enumerate() {
            write!(f, "{}{word}", if n == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl FromStr for CollectorAddress {
    type Err = CollectorError;

    fn from_str(text: &str) -> Result<Self, CollectorError> {
        let error = |at: usize, expected: &'static str| CollectorError::Address {
            text: text.to_owned(),
            column: text[..at].chars().count() + 1,
            expected,
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| error(0, EXPECTED))?;
        let (version, carrier, default_port) = match scheme {
            "ipfix" | "ipfix+udp" => (Version::Ipfix, Carrier::Udp, IPFIX_PORT),
            "ipfix+tcp" => (Version::Ipfix, Carrier::Tcp, IPFIX_PORT),
            "ipfix+tls" => (Version::Ipfix, Carrier::Tls, IPFIX_TLS_PORT),
            "v9" => (Version::NetFlow9, Carrier::Udp, NETFLOW_PORT),
            "v5" => (Version::NetFlow5, Carrier::Udp, NETFLOW_PORT),
            "sflow" => {
                return Err(error(
                    0,
                    "a protocol of flow records: sFlow, which has none, is sent by `thalweg probe` and by a router",
                ));
            }
            _ => return Err(error(0, EXPECTED)),
        };
        let host_at = text.len() - rest.len();
        let end = text.find('?').unwrap_or(text.len());
        if end < text.len() && version != Version::Ipfix {
            return Err(error(end, "nothing: only IPFIX has anything to choose"));
        }
        let (mut options_in_domain, mut variable_names) = (false, false);
        for word in text[end..].split(['?', '&']).skip(1) {
            match word {
                IN_DOMAIN => options_in_domain = true,
                VARIABLE_NAMES => variable_names = true,
                _ => {
                    return Err(error(
                        end,
                        "nothing, or `?`, and `options=in-domain` or `names=variable` or both with `&` between",
                    ));
                }
            }
        }
        let rest = &text[host_at.min(end)..end];
        let (host, port) =
            host_and_port(rest, default_port).map_err(|(at, expected)| error(host_at + at, expected))?;
        Ok(Self { version, carrier, host, port, options_in_domain, variable_names })
    }
}

/// Parses `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`. The error has the byte's offset and what was expected there.
pub(super) fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), (usize, &'static str)> {
    let (host, port_at) = match text.strip_prefix('[') {
        Some(inside) => {
            let end = inside.find(']').ok_or((0, "a closing bracket behind the address"))?;
            (&inside[..end], end + 2)
        }
        None => {
            let end = text.find(':').unwrap_or(text.len());
            (&text[..end], end)
        }
    };
    if host.is_empty() || host.contains(['/', ' ']) {
        return Err((0, "a host's name or address; IPv6 in brackets"));
    }
    let port = match text[port_at..].strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|&port| port != 0),
        None if port_at == text.len() => Some(default_port),
        None => None,
    };
    let port = port.ok_or((port_at, "nothing, or a colon and a port from 1 to 65535"))?;
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in [
            ("ipfix://collector", "ipfix://collector:4739"),
            ("ipfix+udp://10.0.0.1:9", "ipfix://10.0.0.1:9"),
            ("ipfix+tcp://[::1]:4739", "ipfix+tcp://[::1]:4739"),
            ("ipfix+tls://host.example", "ipfix+tls://host.example:4740"),
            ("v9://[2001:db8::1]", "v9://[2001:db8::1]:2055"),
            ("v5://a:1", "v5://a:1"),
            ("ipfix+tcp://a?options=in-domain", "ipfix+tcp://a:4739?options=in-domain"),
            ("ipfix://a:1?names=variable&options=in-domain", "ipfix://a:1?options=in-domain&names=variable"),
        ] {
            let address: CollectorAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), written);
            assert_eq!(written.parse::<CollectorAddress>().unwrap(), address);
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_column() {
        for (text, column) in [
            ("", 1),
            ("host:4739", 1),
            ("v7://host", 1),
            ("sflow://host", 1),
            ("v9+tcp://host", 1),
            ("ipfix://", 9),
            ("ipfix://:4739", 9),
            ("ipfix://[::1", 9),
            ("ipfix://host:0", 13),
            ("ipfix://host:99999", 13),
            ("ipfix://[::1]x", 14),
            ("ipfix://::1", 9),
            ("ipfix://a:1?", 12),
            ("ipfix://a:1?names=variable&", 12),
            ("ipfix://a:1?options=apart", 12),
            ("v9://a:1?options=in-domain", 9),
            ("ipfix?options=in-domain", 1),
            ("?://", 1),
        ] {
            match text.parse::<CollectorAddress>() {
                Err(CollectorError::Address { column: told, .. }) => assert_eq!(told, column, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}

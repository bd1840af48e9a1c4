//! A collector of sFlow: its address, `sflow://HOST[:PORT]`, and the socket to it.

use super::CollectorError;
use super::address::host_and_port;
use super::datagrams::way;
use super::pace::Pace;
use super::udp::Way;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;

const SCHEME: &str = "sflow://";
/// sFlow's port at IANA.
const SFLOW_PORT: u16 = 6343;

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SflowAddress {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    pub port: u16,
}

impl SflowAddress {
    /// Whether a text names a collector of sFlow, perhaps wrongly.
    pub fn is_meant_by(text: &str) -> bool {
        text.starts_with(SCHEME)
    }
}

impl fmt::Display for SflowAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{SCHEME}{open}{}{close}:{}", self.host, self.port)
    }
}

impl FromStr for SflowAddress {
    type Err = CollectorError;

    fn from_str(text: &str) -> Result<Self, CollectorError> {
        let error = |at: usize, expected| CollectorError::Address {
            text: text.to_owned(),
            column: text[..at].chars().count() + 1,
            expected,
        };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| error(0, "sflow://HOST or sflow://HOST:PORT"))?;
        let (host, port) =
            host_and_port(rest, SFLOW_PORT).map_err(|(at, expected)| error(SCHEME.len() + at, expected))?;
        Ok(Self { host, port })
    }
}

/// A socket that is opened again as those of other collectors are.
pub struct SflowSocket {
    way: Way,
    /// Of a collector on this system.
    pace: Option<Pace>,
    refused: u64,
}

impl SflowSocket {
    /// Opens the socket. Without a way to the collector, it is looked for at each datagram, once a second at most; so is
    /// the address of a name with `waits_for_name`.
    ///
    /// # Errors
    ///
    /// The name has no address, and nothing waits for it.
    pub fn open(address: &SflowAddress, waits_for_name: bool) -> Result<Self, CollectorError> {
        let way = way(&address.host, address.port, waits_for_name)?;
        Ok(Self { pace: way.socket().and_then(Pace::of), way, refused: 0 })
    }

    /// The address of this system that datagrams come from.
    pub fn source(&self) -> Option<IpAddr> {
        Some(self.way.socket()?.local_addr().ok()?.ip())
    }

    /// Sends a datagram; waits for room in the buffer of a collector on this system.
    ///
    /// # Errors
    ///
    /// That of the system, or why there is no way.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.way.has_ended() && self.way.renew() {
            self.pace = self.way.socket().and_then(Pace::of);
        }
        self.pace.iter_mut().for_each(|pace| pace.wait(1));
        let (result, refused) = self.way.send(bytes);
        self.refused += refused;
        result
    }

    /// Looks for what became of the last datagrams.
    pub fn finish(&mut self) {
        self.refused += u64::from(self.way.hears_last_refusal());
        self.pace.iter_mut().for_each(Pace::look);
    }

    /// Datagrams answered by an ICMP error.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Datagrams that the buffer of a collector on this system had no room for.
    pub fn dropped(&self) -> u64 {
        self.pace.as_ref().map_or(0, Pace::dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in [
            ("sflow://collector", "sflow://collector:6343"),
            ("sflow://[::1]", "sflow://[::1]:6343"),
            ("sflow://192.0.2.1:9", "sflow://192.0.2.1:9"),
        ] {
            assert!(SflowAddress::is_meant_by(text));
            assert_eq!(text.parse::<SflowAddress>().unwrap().to_string(), written);
        }
        for (text, told) in [("sflow://", 9), ("sflow://a:0", 10), ("ipfix://a", 1), ("sflow://[::1", 9)] {
            let error = text.parse::<SflowAddress>().unwrap_err();
            assert!(matches!(error, CollectorError::Address { column, .. } if column == told), "{error}");
        }
    }
}

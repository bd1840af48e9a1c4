//! TCP MD5 passwords (RFC 2385) in the kernel's format.
//!
//! `struct tcp_md5sig`, 216 bytes:
//!
//! ```text
//! [sockaddr_storage 128][flags 1][prefix length 1][key length 2][interface 4][key 80]
//! ```

use std::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use super::error::{KEY_LENGTH_MAX, TcpError};
use crate::socket_option;

const STORAGE: usize = 128;
const FLAG_PREFIX: u8 = 1;

/// A password. It is never displayed, not even by `Debug`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Md5Key(Box<[u8]>);

impl Md5Key {
    /// Makes a password of 1 to [`KEY_LENGTH_MAX`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, TcpError> {
        match bytes.len() {
            1..=KEY_LENGTH_MAX => Ok(Self(bytes.into())),
            bytes => Err(TcpError::KeyLength { bytes }),
        }
    }
}

impl fmt::Debug for Md5Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Md5Key(..)")
    }
}

/// Sets, replaces or (`None`) removes the password for neighbors within a prefix. Removing a missing one is
/// no error.
pub(super) fn set_key(
    socket: BorrowedFd<'_>,
    neighbor: IpAddr,
    length: u8,
    key: Option<&Md5Key>,
) -> Result<(), TcpError> {
    let bytes = encode(neighbor, length, key)?;
    match socket_option::set(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG_EXT, &bytes) {
        Ok(()) => Ok(()),
        Err(error) if key.is_none() && error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => Err(TcpError::TooManyKeys { neighbor }),
        Err(source) => Err(TcpError::Option { what: "an MD5 password", source }),
    }
}

/// Segments that the kernel dropped because of their signature, since the start of this network namespace.
/// The kernel reports them to no socket: a wrong password shows only in these counters and in silence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignatureFaults {
    /// The signature was wrong: the passwords differ.
    pub wrong: u64,
    /// A signature was expected but missing: the neighbor has no password.
    pub missing: u64,
    /// A signature was unexpected: we have no password for the neighbor.
    pub unexpected: u64,
}

impl SignatureFaults {
    /// Reads the kernel's counters; `None` if it does not provide them.
    pub fn read() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/net/netstat").ok()?)
    }

    /// Pairs of lines, `TcpExt: NAME ...` and `TcpExt: VALUE ...`.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
        let (names, values) = (lines.next()?, lines.next()?);
        let all = || names.split_whitespace().zip(values.split_whitespace());
        let value = |wanted: &str| all().find(|(name, _)| *name == wanted)?.1.parse().ok();
        Some(Self {
            wrong: value("TCPMD5Failure")?,
            missing: value("TCPMD5NotFound")?,
            unexpected: value("TCPMD5Unexpected")?,
        })
    }

    /// The difference since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            wrong: self.wrong.saturating_sub(before.wrong),
            missing: self.missing.saturating_sub(before.missing),
            unexpected: self.unexpected.saturating_sub(before.unexpected),
        }
    }
}

fn encode(
    neighbor: IpAddr,
    length: u8,
    key: Option<&Md5Key>,
) -> Result<[u8; STORAGE + 8 + KEY_LENGTH_MAX], TcpError> {
    let mut bytes = [0; STORAGE + 8 + KEY_LENGTH_MAX];
    // sockaddr_in: family, port, address. sockaddr_in6: family, port, flow information, address.
    let (family, longest) = match neighbor {
        IpAddr::V4(address) => {
            bytes[4..8].copy_from_slice(&address.octets());
            (libc::AF_INET, 32)
        }
        IpAddr::V6(address) => {
            bytes[8..24].copy_from_slice(&address.octets());
            (libc::AF_INET6, 128)
        }
    };
    if length > longest {
        return Err(TcpError::PrefixLength { address: neighbor, length });
    }
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    bytes[STORAGE] = FLAG_PREFIX;
    bytes[STORAGE + 1] = length;
    if let Some(Md5Key(key)) = key {
        bytes[STORAGE + 2..STORAGE + 4].copy_from_slice(&(key.len() as u16).to_ne_bytes());
        bytes[STORAGE + 8..STORAGE + 8 + key.len()].copy_from_slice(key);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_length() {
        assert!(matches!(Md5Key::new(b""), Err(TcpError::KeyLength { bytes: 0 })));
        assert!(Md5Key::new(&[7; KEY_LENGTH_MAX]).is_ok());
        let error = Md5Key::new(&[7; 81]).expect_err("one too many");
        assert_eq!(error.to_string(), "an MD5 password has 1 to 80 bytes, this one has 81");
    }

    #[test]
    fn faults_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent TCPMD5NotFound TCPMD5Unexpected TCPMD5Failure Last\n\
                    TcpExt: 9 1 2 3 8\nIpExt: InNoRoutes\nIpExt: 5\n";
        let faults = SignatureFaults { wrong: 3, missing: 1, unexpected: 2 };
        assert_eq!(SignatureFaults::parse(text), Some(faults));
        assert_eq!(SignatureFaults::parse("TcpExt: SyncookiesSent\nTcpExt: 9\n"), None);
        assert_eq!(SignatureFaults::parse(""), None);
        let later = SignatureFaults { wrong: 5, missing: 1, unexpected: 2 };
        assert_eq!(later.since(faults), SignatureFaults { wrong: 2, ..SignatureFaults::default() });
    }

    #[test]
    fn keys_are_not_shown() {
        assert_eq!(format!("{:?}", Md5Key::new(b"secret")), "Ok(Md5Key(..))");
    }

    #[test]
    fn the_kernel_gets_what_it_expects() {
        let key = Md5Key::new(b"abc").unwrap();
        let bytes = encode("192.0.2.0".parse().unwrap(), 24, Some(&key)).unwrap();
        assert_eq!(bytes[..8], [libc::AF_INET as u8, 0, 0, 0, 192, 0, 2, 0]);
        assert_eq!(bytes[128..139], [1, 24, 3, 0, 0, 0, 0, 0, b'a', b'b', b'c']);
        let bytes = encode("2001:db8::".parse().unwrap(), 32, None).unwrap();
        assert_eq!(bytes[..12], [libc::AF_INET6 as u8, 0, 0, 0, 0, 0, 0, 0, 0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(bytes[128..132], [1, 32, 0, 0]);
        assert!(encode("192.0.2.0".parse().unwrap(), 33, None).is_err());
    }
}

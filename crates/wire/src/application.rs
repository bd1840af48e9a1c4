//! Application protocols by name: what a name in a text trace or a class of the configuration means on
//! the wire. One row per application gives the parser, the port guess and the display.

/// IP protocol numbers used here.
pub mod ip_protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
}

use ip_protocol::{ICMP, TCP, UDP};

/// An application protocol: its name, its transport and, where it has one, its well-known port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Application {
    /// Code carried by a packet, from 1.
    pub code: u8,
    /// Lower-case name.
    pub name: &'static str,
    /// IP protocol number.
    pub transport: u8,
    /// IANA port, 0 where the application has none of its own (RTP).
    pub port: u16,
}

macro_rules! applications {
    ($($code:literal $name:literal $transport:ident $port:literal;)*) => {
        /// Every application this router knows by name, in code order.
        pub const APPLICATIONS: &[Application] =
            &[$(Application { code: $code, name: $name, transport: $transport, port: $port },)*];
    };
}

applications! {
    1 "rtp" UDP 0;
    2 "rtcp" UDP 0;
    3 "sip" UDP 5060;
    4 "http" TCP 80;
    5 "https" TCP 443;
    6 "ftp" TCP 21;
    7 "ftp-data" TCP 20;
    8 "dns" UDP 53;
    9 "ssh" TCP 22;
    10 "smtp" TCP 25;
    11 "icmp" ICMP 0;
    12 "telnet" TCP 23;
    13 "tftp" UDP 69;
    14 "pop3" TCP 110;
    15 "ntp" UDP 123;
    16 "imap" TCP 143;
    17 "snmp" UDP 161;
    18 "bgp" TCP 179;
    19 "ldap" TCP 389;
    20 "smb" TCP 445;
    21 "syslog" UDP 514;
    22 "rtsp" TCP 554;
    23 "imaps" TCP 993;
    24 "pop3s" TCP 995;
    25 "dhcp" UDP 67;
    26 "quic" UDP 443;
    27 "h323" TCP 1720;
    28 "mgcp" UDP 2427;
    29 "rdp" TCP 3389;
    30 "stun" UDP 3478;
    31 "sips" TCP 5061;
    32 "iax" UDP 4569;
    33 "mysql" TCP 3306;
    34 "postgresql" TCP 5432;
    35 "radius" UDP 1812;
    36 "tcp" TCP 0;
    37 "udp" UDP 0;
}

/// The application with this code.
pub fn by_code(code: u8) -> Option<&'static Application> {
    APPLICATIONS.get(usize::from(code).checked_sub(1)?)
}

/// The application with this name, in any letter case.
pub fn by_name(name: &str) -> Option<&'static Application> {
    APPLICATIONS.iter().find(|a| a.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_places_and_names_unique() {
        for (i, a) in APPLICATIONS.iter().enumerate() {
            assert_eq!(usize::from(a.code), i + 1);
            assert_eq!(by_name(&a.name.to_uppercase()), Some(a));
            assert_eq!(by_code(a.code), Some(a));
        }
        assert_eq!(by_code(0), None);
        assert_eq!(by_name("no-such"), None);
    }
}

//! Application protocols by name: the transport and port of a name in a text trace or of a class in the
//! configuration. The parser, the guess by port and the display all use one row per application.

use crate::ip_protocol::{ESP, GRE, ICMP, ICMPV6, SCTP, TCP, UDP};

/// An application protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Application {
    /// The code in a packet's descriptor, from 1.
    pub code: u8,
    pub name: &'static str,
    /// IP protocol number.
    pub transport: u8,
    /// IANA port; 0 if the application has none (RTP).
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
    38 "icmpv6" ICMPV6 0;
    39 "sctp" SCTP 0;
    40 "gre" GRE 0;
    41 "esp" ESP 0;
    42 "tls" TCP 0;
    43 "dtls" UDP 0;
    44 "mdns" UDP 5353;
    45 "llmnr" UDP 5355;
    46 "ssdp" UDP 1900;
    47 "netbios" UDP 137;
    48 "dhcpv6" UDP 547;
    49 "dot" TCP 853;
    50 "kerberos" TCP 88;
    51 "ldaps" TCP 636;
    52 "ike" UDP 500;
    53 "l2tp" UDP 1701;
    54 "pptp" TCP 1723;
    55 "openvpn" UDP 1194;
    56 "wireguard" UDP 51820;
    57 "vxlan" UDP 4789;
    58 "geneve" UDP 6081;
    59 "gtp" UDP 2152;
    60 "teredo" UDP 3544;
    61 "capwap" UDP 5247;
    62 "netflow" UDP 2055;
    63 "ipfix" UDP 4739;
    64 "sflow" UDP 6343;
    65 "rip" UDP 520;
    66 "bfd" UDP 3784;
    67 "ldp" TCP 646;
    68 "hsrp" UDP 1985;
    69 "ptp" UDP 319;
    70 "tacacs" TCP 49;
    71 "diameter" TCP 3868;
    72 "submission" TCP 587;
    73 "smtps" TCP 465;
    74 "nntp" TCP 119;
    75 "whois" TCP 43;
    76 "irc" TCP 6667;
    77 "xmpp" TCP 5222;
    78 "mqtt" TCP 1883;
    79 "amqp" TCP 5672;
    80 "coap" UDP 5683;
    81 "vnc" TCP 5900;
    82 "rsync" TCP 873;
    83 "git" TCP 9418;
    84 "nfs" TCP 2049;
    85 "rpcbind" TCP 111;
    86 "socks" TCP 1080;
    87 "redis" TCP 6379;
    88 "memcached" TCP 11211;
    89 "mongodb" TCP 27017;
    90 "mssql" TCP 1433;
    91 "oracle" TCP 1521;
    92 "cassandra" TCP 9042;
    93 "elasticsearch" TCP 9200;
    94 "kafka" TCP 9092;
    95 "rtmp" TCP 1935;
    96 "bittorrent" TCP 6881;
    97 "modbus" TCP 502;
    98 "bacnet" UDP 47808;
    99 "lisp" UDP 4341;
    100 "dnscrypt" UDP 0;
}

/// Further well-known ports: of another transport, or a second one. They label flows; in text traces an
/// application means its first port.
const FURTHER_PORTS: &[(u8, u16, u8)] = &[
    (TCP, 53, code_of("dns")),
    (UDP, 68, code_of("dhcp")),
    (UDP, 546, code_of("dhcpv6")),
    (TCP, 5901, code_of("vnc")),
    (UDP, 1434, code_of("mssql")),
    (TCP, 8080, code_of("http")),
    (TCP, 3128, code_of("http")),
    (TCP, 8443, code_of("https")),
    (TCP, 5060, code_of("sip")),
    (UDP, 5061, code_of("sips")),
    (UDP, 554, code_of("rtsp")),
    (TCP, 3478, code_of("stun")),
    (TCP, 514, code_of("syslog")),
    (UDP, 162, code_of("snmp")),
    (UDP, 1813, code_of("radius")),
    (UDP, 138, code_of("netbios")),
    (TCP, 139, code_of("netbios")),
    (UDP, 88, code_of("kerberos")),
    (UDP, 389, code_of("ldap")),
    (UDP, 4500, code_of("ike")),
    (TCP, 1194, code_of("openvpn")),
    (UDP, 2123, code_of("gtp")),
    (UDP, 5246, code_of("capwap")),
    (UDP, 521, code_of("rip")),
    (UDP, 646, code_of("ldp")),
    (UDP, 320, code_of("ptp")),
    (UDP, 4342, code_of("lisp")),
    (TCP, 5269, code_of("xmpp")),
    (TCP, 8883, code_of("mqtt")),
    (UDP, 2049, code_of("nfs")),
    (UDP, 111, code_of("rpcbind")),
    (UDP, 3389, code_of("rdp")),
    (UDP, 11211, code_of("memcached")),
    (UDP, 6881, code_of("bittorrent")),
    (UDP, 2727, code_of("mgcp")),
];

/// The application with this code.
pub fn by_code(code: u8) -> Option<&'static Application> {
    APPLICATIONS.get(usize::from(code).checked_sub(1)?)
}

/// The application with this name, ignoring case.
pub fn by_name(name: &str) -> Option<&'static Application> {
    APPLICATIONS.iter().find(|a| a.name.eq_ignore_ascii_case(name))
}

/// The code of a name, for constants: an unknown name does not compile.
pub const fn code_of(name: &str) -> u8 {
    let mut row = 0;
    while row < APPLICATIONS.len() {
        if is_same(APPLICATIONS[row].name.as_bytes(), name.as_bytes()) {
            return APPLICATIONS[row].code;
        }
        row += 1;
    }
    panic!("no application has this name")
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// The row for an IP protocol itself ("tcp", not "http").
pub fn by_ip_protocol(number: u8) -> Option<&'static Application> {
    let name = match number {
        ICMP => "icmp",
        TCP => "tcp",
        UDP => "udp",
        GRE => "gre",
        ESP => "esp",
        ICMPV6 => "icmpv6",
        SCTP => "sctp",
        _ => return None,
    };
    by_name(name)
}

/// The application with this well-known port. It is called for every packet of a capture that needs
/// applications; a look-up usually reads one place of a sparse table.
#[inline]
pub fn by_port(transport: u8, port: u16) -> Option<&'static Application> {
    if port == 0 {
        return None;
    }
    let mut slot = port_slot(port);
    loop {
        // An empty slot has code 0, which is no application and ends the search.
        let application = by_code(BY_PORT[slot])?;
        if application.port == port && application.transport == transport {
            return Some(application);
        }
        slot = (slot + 1) % PORT_SLOTS;
    }
}

/// [`by_port`] over all known ports.
#[inline]
pub fn by_any_port(transport: u8, port: u16) -> Option<&'static Application> {
    // Few ports are known. In a flood, where each record has ports of its own, a search of both tables mispredicts its branches.
    let is_known = KNOWN_PORTS[usize::from(port / 64)] >> (port % 64) & 1 == 1;
    if is_known { by_port(transport, port).or_else(|| by_further_port(transport, port)) } else { None }
}

/// A bit for each port that an application has by some transport.
static KNOWN_PORTS: [u64; 1024] = {
    let mut known = [0; 1024];
    let mut row = 0;
    while row < APPLICATIONS.len() {
        let port = APPLICATIONS[row].port;
        if port != 0 {
            known[wide(port) / 64] |= 1 << (port % 64);
        }
        row += 1;
    }
    row = 0;
    while row < FURTHER_PORTS.len() {
        let port = FURTHER_PORTS[row].1;
        known[wide(port) / 64] |= 1 << (port % 64);
        row += 1;
    }
    known
};

fn by_further_port(transport: u8, port: u16) -> Option<&'static Application> {
    let mut slot = port_slot(port) % FURTHER_SLOTS;
    loop {
        // An empty slot has 0 and ends the search.
        let (of, number, code) = FURTHER_PORTS[usize::from(BY_FURTHER_PORT[slot]).checked_sub(1)?];
        if of == transport && number == port {
            return by_code(code);
        }
        slot = (slot + 1) % FURTHER_SLOTS;
    }
}

const FURTHER_SLOTS: usize = 128;

/// Indexes into the list of further ports, from 1, by open addressing.
static BY_FURTHER_PORT: [u8; FURTHER_SLOTS] = {
    let mut table = [0; FURTHER_SLOTS];
    let mut row = 0;
    while row < FURTHER_PORTS.len() {
        let mut slot = port_slot(FURTHER_PORTS[row].1) % FURTHER_SLOTS;
        while table[slot] != 0 {
            slot = (slot + 1) % FURTHER_SLOTS;
        }
        row += 1;
        table[slot] = row as u8;
    }
    table
};

const PORT_SLOTS: usize = 256;

/// Codes of the applications with a port, by open addressing.
static BY_PORT: [u8; PORT_SLOTS] = {
    let mut table = [0; PORT_SLOTS];
    let mut i = 0;
    while i < APPLICATIONS.len() {
        if APPLICATIONS[i].port != 0 {
            let mut slot = port_slot(APPLICATIONS[i].port);
            while table[slot] != 0 {
                slot = (slot + 1) % PORT_SLOTS;
            }
            table[slot] = APPLICATIONS[i].code;
        }
        i += 1;
    }
    table
};

const fn port_slot(port: u16) -> usize {
    (wide(port).wrapping_mul(0x9e37) >> 5) % PORT_SLOTS
}

const fn wide(port: u16) -> usize {
    port as usize
}

/// A name of one to eight bytes as a little-endian word, padded with zero bytes; 0 for any other length.
pub const fn short_key(name: &[u8]) -> u64 {
    if name.len() > 8 {
        return 0;
    }
    let mut key = 0;
    let mut i = 0;
    while i < name.len() {
        key |= (name[i] as u64) << (8 * i);
        i += 1;
    }
    key
}

/// A perfect hash of the short names: one multiplication, one byte, one comparison of eight bytes. The
/// multiplier is searched at compile time, so a new row cannot break it unnoticed.
struct ShortNames {
    multiplier: u64,
    code: [u8; SHORT_SLOTS],
}

/// Places for short names. With fewer, the search for a multiplier would slow compilation.
const SHORT_SLOTS: usize = 1024;
const SHORT_SHIFT: u32 = u64::BITS - SHORT_SLOTS.ilog2();

const SHORT_KEYS: [u64; APPLICATIONS.len() + 1] = {
    let mut keys = [0; APPLICATIONS.len() + 1];
    let mut i = 0;
    while i < APPLICATIONS.len() {
        keys[i + 1] = short_key(APPLICATIONS[i].name.as_bytes());
        i += 1;
    }
    keys
};

static SHORT_NAMES: ShortNames = {
    let mut multiplier = 0x9e37_79b9_7f4a_7c15u64;
    'search: loop {
        let mut code = [0u8; SHORT_SLOTS];
        let mut i = 1;
        while i < SHORT_KEYS.len() {
            let slot = (SHORT_KEYS[i].wrapping_mul(multiplier) >> SHORT_SHIFT) as usize;
            if SHORT_KEYS[i] != 0 && code[slot] != 0 {
                multiplier = multiplier.wrapping_mul(0xd134_2543_de82_ef95) | 1;
                continue 'search;
            }
            if SHORT_KEYS[i] != 0 {
                code[slot] = i as u8;
            }
            i += 1;
        }
        break ShortNames { multiplier, code };
    }
};

/// The code of the application whose lower-case name has this [`short_key`]; 0 if there is none.
#[inline(always)]
pub fn code_by_short_key(key: u64) -> u8 {
    let code = SHORT_NAMES.code[(key.wrapping_mul(SHORT_NAMES.multiplier) >> SHORT_SHIFT) as usize];
    if SHORT_KEYS[usize::from(code)] == key { code } else { 0 }
}

/// Transport of each application by code; 0 for no application.
static TRANSPORTS: [u8; 256] = {
    let mut transports = [0; 256];
    let mut i = 0;
    while i < APPLICATIONS.len() {
        transports[i + 1] = APPLICATIONS[i].transport;
        i += 1;
    }
    transports
};

/// IP protocol number of the application with this code; 0 for a code that names none.
#[inline(always)]
pub fn transport_of(code: u8) -> u8 {
    TRANSPORTS[usize::from(code)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_table_finds_exactly_the_short_names() {
        for a in APPLICATIONS {
            let expected = if a.name.len() <= 8 { a.code } else { 0 };
            assert_eq!(code_by_short_key(short_key(a.name.as_bytes())), expected, "{}", a.name);
            assert_eq!(transport_of(a.code), a.transport);
        }
        for stranger in ["", "f", "ftpx", "ht", "tp", "zzzzzzzz", "icmpv66"] {
            assert_eq!(code_by_short_key(short_key(stranger.as_bytes())), 0, "{stranger}");
        }
    }

    #[test]
    fn protocols_and_ports_lead_to_their_rows() {
        for number in 0..=255 {
            if let Some(a) = by_ip_protocol(number) {
                assert_eq!((a.transport, a.port), (number, 0));
            }
        }
        for a in APPLICATIONS {
            let first = APPLICATIONS.iter().find(|b| b.port == a.port && b.transport == a.transport);
            assert_eq!(by_port(a.transport, a.port), first.filter(|_| a.port != 0), "{}", a.name);
        }
        assert_eq!(by_port(TCP, 80).map(|a| a.name), Some("http"));
        assert_eq!(by_port(UDP, 80), None);
        assert_eq!(by_port(UDP, 0), None);
    }

    #[test]
    fn further_ports_lead_to_rows_and_are_nobody_elses() {
        for (at, (transport, port, code)) in FURTHER_PORTS.iter().enumerate() {
            assert_eq!(by_port(*transport, *port), None, "{port} has a row");
            let twice = FURTHER_PORTS[..at].iter().any(|(t, p, _)| (t, p) == (transport, port));
            assert!(!twice, "{port} twice");
            assert_eq!(by_any_port(*transport, *port).map(|a| a.code), Some(*code));
        }
        for (transport, port) in
            [TCP, UDP, SCTP].into_iter().flat_map(|of| (0..=u16::MAX).map(move |port| (of, port)))
        {
            let further = FURTHER_PORTS.iter().find(|(of, number, _)| (*of, *number) == (transport, port));
            let slow = by_port(transport, port).or_else(|| further.and_then(|(_, _, code)| by_code(*code)));
            assert_eq!(by_any_port(transport, port), slow, "{transport} {port}");
        }
        assert_eq!(by_any_port(TCP, 80), by_port(TCP, 80));
        assert_eq!(by_any_port(TCP, 65_000), None);
    }

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

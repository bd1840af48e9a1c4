//! Compares applications and servers' names with nDPI's.
//!
//! nDPI knows about four hundred names, and has two for a flow: that of the protocol and, if known, that of the
//! service in it ("TLS.Amazon"). The first is compared if it exists here too.

use super::{Capture, captures, list, meter};
use thalweg_base::Name;
use thalweg_wire::application::by_code;

/// nDPI's names and the equivalent names here.
const NAMES: &[(&str, &[&str])] = &[
    ("BGP", &["bgp"]),
    ("CAPWAP", &["capwap"]),
    ("DHCP", &["dhcp"]),
    ("DHCPV6", &["dhcpv6"]),
    ("DNS", &["dns"]),
    ("DNScrypt", &["dnscrypt"]),
    ("DTLS", &["dtls"]),
    ("FTP_CONTROL", &["ftp"]),
    ("FTP_DATA", &["ftp-data"]),
    ("Git", &["git"]),
    ("H323", &["h323"]),
    ("HTTP", &["http"]),
    ("HTTP_Proxy", &["http"]),
    ("IAX", &["iax"]),
    ("ICMP", &["icmp"]),
    ("ICMPV6", &["icmpv6"]),
    ("IMAP", &["imap"]),
    ("IMAPS", &["imaps"]),
    ("IPsec", &["esp", "ike"]),
    ("Kerberos", &["kerberos"]),
    ("LDAP", &["ldap"]),
    ("LLMNR", &["llmnr"]),
    ("MDNS", &["mdns"]),
    ("MGCP", &["mgcp"]),
    ("MsSQL-TDS", &["mssql"]),
    ("MySQL", &["mysql"]),
    ("NFS", &["nfs"]),
    ("NTP", &["ntp"]),
    ("NetBIOS", &["netbios"]),
    ("NetFlow", &["netflow", "ipfix"]),
    ("Oracle", &["oracle"]),
    ("POP3", &["pop3"]),
    ("POPS", &["pop3s"]),
    ("PostgreSQL", &["postgresql"]),
    ("QUIC", &["quic"]),
    ("RDP", &["rdp"]),
    ("RSYNC", &["rsync"]),
    ("RTCP", &["rtcp"]),
    ("RTMP", &["rtmp"]),
    ("RTP", &["rtp"]),
    ("RTSP", &["rtsp"]),
    ("Radius", &["radius"]),
    ("SIP", &["sip", "sips"]),
    ("SMBv23", &["smb"]),
    ("SMTP", &["smtp"]),
    // Port 587, which here is named after its purpose.
    ("SMTPS", &["smtps", "submission"]),
    ("SOCKS", &["socks"]),
    ("SSDP", &["ssdp"]),
    ("SSH", &["ssh"]),
    ("STUN", &["stun"]),
    ("Syslog", &["syslog"]),
    ("TLS", &["tls", "https", "imaps", "pop3s", "sips", "dot", "ldaps", "smtps"]),
    ("Telnet", &["telnet"]),
    ("Teredo", &["teredo"]),
    ("VNC", &["vnc"]),
    ("Whois-DAS", &["whois"]),
    ("sFlow", &["sflow"]),
];

/// The result of the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    same: u64,
    other: u64,
    unknown: u64,
}

impl Outcome {
    fn count(&mut self, answer: Option<bool>) {
        match answer {
            Some(true) => self.same += 1,
            Some(false) => self.other += 1,
            None => self.unknown += 1,
        }
    }
}

pub(crate) fn compare() {
    let mut applications = Outcome::default();
    let captures = captures();
    for Capture { name, path, list } in &captures {
        let metered = meter::meter(path);
        for (ends, listed) in list::read(list) {
            let Some(flow) = metered.flows.get(&ends) else { continue };
            let ours = flow.application.and_then(by_code).map(|application| application.name);
            if let Some((_, same)) = NAMES.iter().find(|(theirs, _)| *theirs == listed.names[0]) {
                let answer = ours.map(|ours| same.contains(&ours));
                if answer != Some(true) {
                    println!("{name} {ends:?}: {} is {ours:?} here", listed.names.join("."));
                }
                applications.count(answer);
            }
        }
    }
    println!("applications {applications:?}");
    if !captures.is_empty() {
        // Most of the others are DNSCrypt on QUIC's port; most unknown ones are scanned ports that never
        // answered.
        assert!(applications.same >= 2003, "{applications:?}");
        assert!(applications.other <= 152 && applications.unknown <= 108, "{applications:?}");
    }
}

/// nDPI's names of flows whose server, or question, it lists.
const NAMED: [&str; 4] = ["DNS", "HTTP", "QUIC", "TLS"];

/// By nDPI's name: flows of records with the same name, another one, and none. In docs/flows.md.
const RECORDS: &[(&str, [u64; 3])] = &[
    ("DNS", [314, 0, 0]),
    ("TLS", [320, 0, 2]),
    ("QUIC", [115, 0, 0]),
    ("HTTP", [850, 0, 4]),
    ("SIP", [25, 0, 0]),
    ("RTP", [8, 0, 2]),
    ("RTCP", [2, 0, 0]),
    ("STUN", [64, 0, 1]),
    ("SSH", [1, 0, 0]),
    ("DHCP", [16, 0, 0]),
];

/// The same for records of a probe with payload inspection: each flow has the first answer from its first
/// packets, else that of its ports.
pub(crate) fn compare_records() {
    let mut outcomes: Vec<Outcome> = vec![Outcome::default(); RECORDS.len()];
    let mut names = Outcome::default();
    let captures = captures();
    for Capture { name, path, list } in &captures {
        let records = meter::meter_in_earnest(path);
        for (ends, listed) in list::read(list) {
            let Some((_, application, found)) = records.get(&ends) else { continue };
            if let (true, Some(host)) = (NAMED.contains(&listed.names[0].as_str()), &listed.host) {
                let asked = if listed.names[0] == "DNS" { found.dns_question } else { found.server };
                let ours = Some(asked).filter(|name| *name != Name::NONE).map(|name| name.text() == *host);
                if ours != Some(true) {
                    println!("{name} {ends:?}: {host} is {:?} here", asked.text());
                }
                names.count(ours);
            }
            let Some(place) = RECORDS.iter().position(|(name, _)| *name == listed.names[0]) else { continue };
            let ours = application.and_then(by_code).map(|application| application.name);
            let same =
                NAMES.iter().find(|(theirs, _)| *theirs == listed.names[0]).map_or(&[][..], |row| row.1);
            outcomes[place].count(ours.map(|ours| same.contains(&ours)));
        }
    }
    let found: Vec<_> = RECORDS
        .iter()
        .zip(&outcomes)
        .map(|((name, _), outcome)| (*name, [outcome.same, outcome.other, outcome.unknown]))
        .collect();
    println!("{found:?}, names {names:?}");
    if !captures.is_empty() {
        assert_eq!(found, RECORDS, "same, other, none");
        // All others are questions of flows with several: nDPI has the last of them and replaces strange bytes. None has
        // one with a damaged question, and one of Google's QUIC.
        assert_eq!(names, Outcome { same: 1257, other: 32, unknown: 5 });
    }
}

//! Compares applications and servers' names with nDPI's.
//!
//! nDPI knows about four hundred names, and has two for a flow: that of the protocol and, if known, that of the
//! service in it ("TLS.Amazon"). The first is compared if it exists here too.

use super::{Capture, captures, list, meter};
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
    let (mut applications, mut servers) = (Outcome::default(), Outcome::default());
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
            let has_name = ["HTTP", "TLS"].contains(&listed.names[0].as_str());
            if let (true, Some(host)) = (has_name, &listed.host) {
                // nDPI has it without the port.
                let is_host = |name: &String| name == host || name.starts_with(&format!("{host}:"));
                servers.count(flow.server_name.as_ref().map(is_host));
            }
        }
    }
    println!("applications {applications:?}, servers' names {servers:?}");
    if !captures.is_empty() {
        assert_eq!(servers, Outcome { same: 1003, other: 0, unknown: 0 });
        // Most of the others are DNSCrypt on QUIC's port; most unknown ones are scanned ports that never
        // answered.
        assert!(applications.same >= 2003, "{applications:?}");
        assert!(applications.other <= 152 && applications.unknown <= 108, "{applications:?}");
    }
}

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
    let captures = captures();
    for Capture { path, list, .. } in &captures {
        let records = meter::meter_in_earnest(path);
        for (ends, listed) in list::read(list) {
            let place = RECORDS.iter().position(|(name, _)| *name == listed.names[0]);
            let (Some(place), Some((_, application))) = (place, records.get(&ends)) else { continue };
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
    println!("{found:?}");
    if !captures.is_empty() {
        assert_eq!(found, RECORDS, "same, other, none");
    }
}

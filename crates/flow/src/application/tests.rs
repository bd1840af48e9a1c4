use super::*;
use proptest::prelude::*;
use thalweg_wire::application::by_code;
use thalweg_wire::ip_protocol::*;

fn name(code: Option<u8>) -> &'static str {
    code.and_then(by_code).map_or("-", |row| row.name)
}

fn tcp(port: u16, payload: &[u8]) -> &'static str {
    name(by_payload(TCP, 50_000, port, payload))
}

fn udp(port: u16, payload: &[u8]) -> &'static str {
    name(by_payload(UDP, 50_000, port, payload))
}

/// A client's hello with this name, in a record.
fn hello(server: &str) -> Vec<u8> {
    let name = server.as_bytes();
    let with_len = |len: usize, bytes: &[u8]| [&(len as u16).to_be_bytes()[..], bytes].concat();
    let host = [&[0][..], &with_len(name.len(), name)].concat();
    let list = with_len(host.len(), &host);
    let extensions = [&[0x2b, 0x2b, 0, 2, 7, 7][..], &[0, 0], &with_len(list.len(), &list)].concat();
    let body = [
        &[3, 3][..],
        &[9; 32],
        &[4, 1, 2, 3, 4],
        &[0, 4, 0x13, 1, 0x13, 2],
        &[1, 0],
        &with_len(extensions.len(), &extensions),
    ]
    .concat();
    let handshake = [&[1, 0][..], &with_len(body.len(), &body)].concat();
    [&[0x16, 3, 1][..], &with_len(handshake.len(), &handshake)].concat()
}

#[test]
fn ports_say_the_same_in_both_directions_and_the_lower_one_first() {
    assert_eq!(name(by_ports(TCP, 40_000, 80)), "http");
    assert_eq!(name(by_ports(TCP, 80, 27_017)), "http", "a client's port by chance");
    assert_eq!(name(by_ports(UDP, 40_000, 53)), "dns");
    assert_eq!(name(by_ports(TCP, 53, 40_000)), "dns");
    assert_eq!(name(by_ports(SCTP, 80, 80)), "-");
    assert_eq!(name(by_ports(TCP, 40_000, 40_001)), "-");
    assert_eq!(["icmp", "icmpv6", "gre", "esp"], [ICMP, ICMPV6, GRE, ESP].map(|p| name(by_ports(p, 0, 0))));
    for (a, b) in [(80, 443), (53, 5060), (1194, 9999)] {
        assert_eq!(by_ports(UDP, a, b), by_ports(UDP, b, a));
    }
}

#[test]
fn tcp_is_known_by_its_first_words() {
    let cases: [(&[u8], &str); 30] = [
        (b"GET / HTTP/1.1\r\n", "http"),
        (b"HTTP/1.0 200 OK\r\n", "http"),
        (b"PRI * HTTP/2.0\r\n\r\nSM", "http"),
        (b"OPTIONS * HTTP/1.1\r\n", "http"),
        (b"OPTIONS sip:bob@example.net SIP/2.0\r\n", "sip"),
        (b"OPTIONS rtsp://example.net/a RTSP/1.0\r\n", "rtsp"),
        (b"RTSP/1.0 200 OK\r\n", "rtsp"),
        (b"SIP/2.0 200 OK\r\n", "sip"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "ssh"),
        (b"\x13BitTorrent protocol\0\0\0\0", "bittorrent"),
        (b"220 mail.example.net ESMTP\r\n", "smtp"),
        (b"220-Welcome to ftp.example.net FTP\r\n", "ftp"),
        (b"220 hello\r\n", "-"),
        (b"220 hello\r\nSMTP", "-"),
        (b"EHLO example.net\r\n", "smtp"),
        (b"+OK POP3 ready\r\n", "pop3"),
        (b"* OK IMAP4rev1\r\n", "imap"),
        (b"RFB 003.008\n", "vnc"),
        (b"<?xml version='1.0'?><stream:stream to='x'>", "xmpp"),
        (b"<?xml version='1.0'?><html>", "-"),
        (&[0xff; 19], "bgp"),
        (b"\0\0\0\x60\xfeSMB@\0", "smb"),
        (b"\0\0\0\x60\xfdSMC@\0", "-"),
        (b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x03\0\0\0", "rdp"),
        (b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c", "mqtt"),
        (b"\x10\x8c\x01\0\x06MQIsdp", "mqtt"),
        (b"\x01\x01\0\0\x21\x12\xa4\x42aaaabbbbcccc", "stun"),
        (b"\x16\x03\x01\0\x01\x01\0\0\0", "-"),
        (b"GETTING", "-"),
        (b"", "-"),
    ];
    for (payload, expected) in cases {
        assert_eq!(tcp(7777, payload), expected, "{}", payload.escape_ascii());
    }
    let handshake = [&[3][..], &[0; 4], &[0; 4], &[7; 1100]].concat();
    assert_eq!((tcp(7777, &handshake), tcp(7777, &handshake[..1000])), ("rtmp", "-"));
}

#[test]
fn tls_has_the_name_of_what_is_in_it_where_a_port_tells() {
    let hello = hello("example.net");
    for (port, expected) in
        [(443, "https"), (993, "imaps"), (853, "dot"), (8443, "https"), (7777, "tls"), (25, "tls")]
    {
        assert_eq!(tcp(port, &hello), expected, "{port}");
    }
    assert_eq!(
        name(by_payload(TCP, 993, 50_000, b"\x16\x03\x03\0\x7a\x02\0\0\x76\x03\x03")),
        "imaps",
        "the answer"
    );
}

#[test]
fn udp_is_known_by_its_first_words_and_its_form() {
    let question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03net\0\0\x01\0\x01";
    for (port, expected) in [(53, "dns"), (5353, "mdns"), (5355, "llmnr"), (7777, "-")] {
        assert_eq!(udp(port, question), expected);
    }
    assert_eq!(udp(53, b"hello, this is no question"), "-");
    assert_eq!(tcp(53, &[&[0, 29][..], question].concat()), "dns");
    let ntp = |first: u8, len: usize| [&[first][..], &vec![0; len - 1]].concat();
    assert_eq!(
        (udp(123, &ntp(0x23, 48)), udp(123, &ntp(0x20, 48)), udp(123, &ntp(0x23, 47))),
        ("ntp", "-", "-")
    );
    let dhcp = [&[1, 1, 6, 0][..], &[0; 232], &[0x63, 0x82, 0x53, 0x63]].concat();
    assert_eq!(udp(7777, &dhcp), "dhcp");
    let cases: [(&[u8], &str); 19] = [
        (b"INVITE sip:bob@example.net SIP/2.0\r\n", "sip"),
        (b"INVITE bob", "-"),
        (b"M-SEARCH * HTTP/1.1\r\n", "ssdp"),
        (b"NOTIFY * HTTP/1.1\r\n", "ssdp"),
        (b"NOTIFY sip:bob@example.net SIP/2.0\r\n", "sip"),
        (b"d1:ad2:id20:aaaaaaaaaaaaaaaaaaaa", "bittorrent"),
        (b"CRCX 1204 aaln/1@rgw.example.net MGCP 1.0\r\n", "mgcp"),
        (b"\0\x01\0\0\x21\x12\xa4\x42aaaabbbbcccc", "stun"),
        (b"\0\x01\0\x01\x21\x12\xa4\x42aaaabbbbcccc", "-"),
        (b"\x16\xfe\xfd\0\0\0\0\0\0\0\0\0\x02aa", "dtls"),
        (b"\x16\xfe\xfd\0\0\0\0\0\0\0\0\0\x03aa", "-"),
        (b"\xc3\0\0\0\x01\x08abcdefgh\0", "quic"),
        (b"\xc3\x6b\x33\x43\xcf\x08abcdefgh\0", "quic"),
        (b"\xc3\0\0\0\x01\x15abcdefgh\0", "-"),
        (b"\xc3\0\0\0\x02\x08abcdefgh\0", "-"),
        (b"\x0dabcdefghQ039\x01", "quic"),
        (b"r6fnvWj8aaaa", "dnscrypt"),
        (b"hello", "-"),
        (b"", "-"),
    ];
    for (payload, expected) in cases {
        assert_eq!(udp(7777, payload), expected, "{}", payload.escape_ascii());
    }
    let wireguard = |kind: u8, len: usize| [&[kind, 0, 0, 0][..], &vec![7; len - 4]].concat();
    assert_eq!(
        ["wireguard", "wireguard", "-"],
        [(1, 148), (2, 92), (1, 92)].map(|(kind, len)| udp(7777, &wireguard(kind, len)))
    );
    let netflow =
        |version: u8, count: u8, len: usize| [&[0, version, 0, count][..], &vec![0; len - 4]].concat();
    let cases = [
        (5, 2, 120, "netflow"),
        (5, 2, 119, "-"),
        (9, 1, 60, "netflow"),
        (10, 60, 60, "ipfix"),
        (10, 59, 60, "-"),
    ];
    for (version, count, len, expected) in cases {
        assert_eq!(udp(2055, &netflow(version, count, len)), expected, "{version} {count} {len}");
    }
}

/// A record of DTLS.
fn dtls(kind: u8, version: [u8; 2], epoch: u8, content: &[u8]) -> Vec<u8> {
    let head = [kind, version[0], version[1], 0, epoch, 0, 0, 0, 0, 0, 7];
    [&head[..], &(content.len() as u16).to_be_bytes(), content].concat()
}

#[test]
fn dtls_is_known_on_the_port_of_quic_and_where_a_capture_has_cut_it() {
    let hello = [&[1, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 100][..], &[9; 100]].concat();
    for version in [[0xfe, 0xff], [0xfe, 0xfd], [1, 0]] {
        let record = dtls(22, version, 0, &hello);
        for end in [record.len(), 60, 25] {
            assert_eq!(udp(443, &record[..end]), "dtls", "{version:?}, {end} bytes");
        }
        assert_eq!(udp(443, &record[..24]), "-", "too little of the message");
        assert_eq!(udp(443, &dtls(23, version, 1, &[7; 300])[..100]), "dtls", "in mid-session");
    }
    assert_eq!(udp(443, &dtls(25, [0xfe, 0xfd], 1, &[7; 300])), "dtls", "with a connection identifier");
    assert_eq!(udp(443, &dtls(25, [1, 0], 1, &[7; 300])), "-");
    assert_eq!(udp(443, &dtls(22, [3, 3], 0, &hello)), "-");
    let mut torn = dtls(22, [0xfe, 0xfd], 0, &hello);
    torn[13] = 99;
    assert_eq!(udp(443, &torn[..60]), "-", "no message of a handshake");
    assert_eq!(udp(443, b"\x83\0\0\0\x01\x08abcdefgh\0"), "-", "QUIC has a fixed bit");
}

/// A packet of OpenVPN's control channel: opcode, protection, acknowledgments and content.
fn openvpn(opcode: u8, protection: &[u8], acks: &[u32], rest: &[u8]) -> Vec<u8> {
    let mut packet = [&[opcode << 3][..], b"session!", protection, &[acks.len() as u8]].concat();
    packet.extend(acks.iter().flat_map(|ack| ack.to_be_bytes()));
    if !acks.is_empty() {
        packet.extend(b"remote!!");
    }
    [packet, rest.to_vec()].concat()
}

#[test]
fn openvpn_is_known_by_its_control_channel_on_any_port() {
    let id_and_time = [&[0, 0, 0, 1][..], &1_700_000_000u32.to_be_bytes()].concat();
    let mut cases = Vec::new();
    for hmac in [0, 16, 20, 32, 64] {
        let protection = if hmac == 0 { Vec::new() } else { [&vec![0xa5; hmac][..], &id_and_time].concat() };
        cases.extend([
            openvpn(7, &protection, &[], &[0; 4]),
            openvpn(8, &protection, &[0], &[0; 4]),
            openvpn(5, &protection, &[3, 4], &[]),
            openvpn(4, &protection, &[1], b"\0\0\0\x01\x16\x03\x01\x02\0"),
        ]);
        let wrong = [
            openvpn(7, &protection, &[], &[0, 0, 0, 1]),
            openvpn(8, &protection, &[], &[0; 4]),
            openvpn(5, &protection, &[], &[]),
            openvpn(4, &protection, &[1], b"\0\0\0\x01GET /"),
            openvpn(6, &protection, &[], &[0; 4]),
        ];
        assert!(wrong.iter().all(|packet| udp(7777, packet) == "-"), "{hmac}");
    }
    let encrypted = |opcode: u8, behind: usize| {
        let head = [&[opcode << 3][..], b"session!", &id_and_time].concat();
        [head, vec![0xa5; 32 + behind]].concat()
    };
    cases.extend([encrypted(7, 5), encrypted(8, 17), encrypted(10, 300)]);
    for packet in &cases {
        assert_eq!(udp(7777, packet), "openvpn", "{packet:x?}");
        assert_eq!(udp(443, packet), "openvpn");
        let stream = [&(packet.len() as u16).to_be_bytes()[..], packet].concat();
        assert_eq!((tcp(443, &stream), tcp(443, &stream[..stream.len() - 1])), ("openvpn", "-"));
    }
    assert_eq!(udp(7777, &encrypted(7, 6)), "-");
    let early = [&[0x38][..], b"session!", &[0, 0, 0, 1, 0, 0, 0, 9], &[0xa5; 37]].concat();
    assert_eq!(udp(7777, &early), "-", "a time in 1970");
}

#[test]
fn rtp_is_believed_with_care() {
    let rtp = |first: u8, second: u8, len: usize| [&[first, second, 0, 1][..], &vec![0; len - 4]].concat();
    assert_eq!(["rtp", "rtp", "rtp"], [0, 0x80 | 96, 34].map(|kind| udp(7777, &rtp(0x80, kind, 172))));
    // Another version, padding, sources, an unused type, only a header, a server's port.
    for (first, second, len) in
        [(0x40, 0, 172), (0xa0, 0, 172), (0x83, 0, 172), (0x80, 72, 172), (0x80, 0, 12)]
    {
        assert_eq!(udp(7777, &rtp(first, second, len)), "-");
    }
    assert_eq!(name(by_payload(UDP, 50_000, 1000, &rtp(0x80, 0, 172))), "-");
    assert_eq!(udp(4569, &rtp(0x80, 0, 172)), "-", "a port that is another's");
    let mut extended = rtp(0x90, 0, 172);
    assert_eq!(udp(7777, &extended), "rtp");
    extended[15] = 200;
    assert_eq!(udp(7777, &extended), "-", "longer than the datagram");
    assert_eq!(
        udp(7777, &[0x81, 200, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        "rtcp"
    );
    assert_eq!(udp(7777, &[0x81, 200, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]), "-");
}

proptest! {
    #[test]
    fn whatever_the_payload_both_directions_agree(
        payload in proptest::collection::vec(any::<u8>(), 0..300), a: u16, b: u16, protocol in 0u8..140,
    ) {
        let there = by_payload(protocol, a, b, &payload);
        prop_assert_eq!(there, by_payload(protocol, b, a, &payload));
        prop_assert_eq!(by_ports(protocol, a, b), by_ports(protocol, b, a));
        prop_assert!(there.is_none_or(|code| by_code(code).is_some()));
    }
}

/// About one random datagram in six hundred is recognized, always as RTP or RTCP.
#[test]
fn random_bytes_look_like_nothing() {
    let mut rng = thalweg_base::XorShift64Star::new(11);
    let mut seen = std::collections::BTreeMap::new();
    let rounds = 200_000;
    for _ in 0..rounds {
        let payload: Vec<u8> = (0..12).flat_map(|_| rng.next_u64().to_be_bytes()).collect();
        if let Some(code) =
            by_payload(UDP, 40_000, 50_000, &payload).or(by_payload(TCP, 40_000, 50_000, &payload))
        {
            *seen.entry(name(Some(code))).or_insert(0) += 1;
        }
    }
    let total: i32 = seen.values().sum();
    assert!(total < rounds / 300, "{seen:?}");
    assert!(seen.keys().all(|name| ["rtp", "rtcp"].contains(name)), "{seen:?}");
}

use super::*;
use crate::checksum;
use proptest::prelude::*;
use std::net::Ipv4Addr;

/// The obvious reference: splits at white space, one rule per line, everything through the standard library.
fn obvious(line: &[u8], order: FieldOrder) -> Option<Vec<String>> {
    let fields: Vec<&[u8]> = line.split(|&b| b <= b' ').filter(|f| !f.is_empty()).collect();
    let until = fields.iter().position(|f| f[0] == b'#').filter(|&i| i == 0 || i == 6);
    let fields = &fields[..until.unwrap_or(fields.len())];
    let [port, a, b, p, q, protocol] = fields else { return None };
    let (dst, src, dport, sport) = match order {
        FieldOrder::DestinationFirst => (a, b, p, q),
        FieldOrder::SourceFirst => (b, a, q, p),
    };
    let text = |f: &[u8]| String::from_utf8(f.to_vec()).ok();
    let address = |f: &[u8]| {
        let f = text(f)?;
        if f.contains(':') {
            return f.parse::<Ipv6Addr>().ok().map(|a| a.to_string());
        }
        let bytes: Option<Vec<u8>> = f
            .split('.')
            .map(|o| {
                (!o.is_empty() && o.len() <= 3 && o.bytes().all(|b| b.is_ascii_digit()))
                    .then(|| o.parse().ok())
                    .flatten()
            })
            .collect();
        <[u8; 4]>::try_from(bytes?).ok().map(|o| Ipv4Addr::from(o).to_string())
    };
    let number = |f: &[u8]| {
        let f = text(f)?;
        (f.len() <= 5 && f.bytes().all(|b| b.is_ascii_digit())).then(|| f.parse::<u16>().ok()).flatten()
    };
    let (dst, src) = (address(dst)?, address(src)?);
    if dst.contains(':') != src.contains(':') {
        return None;
    }
    let protocol = text(protocol)?.to_lowercase();
    let (mut transport, mut name) = match application::by_name(&protocol) {
        Some(a) => (a.transport, a.name.to_string()),
        None => {
            let n = number(protocol.as_bytes()).filter(|_| protocol.len() <= 3)?;
            let n = u8::try_from(n).ok()?;
            (n, application::by_ip_protocol(n).map_or(n.to_string(), |a| a.name.to_string()))
        }
    };
    if transport == 1 || transport == 58 {
        (transport, name) = if dst.contains(':') { (58, "icmpv6".into()) } else { (1, "icmp".into()) };
    }
    if dst.contains(':') && [0, 43, 44, 60].contains(&transport) {
        return None;
    }
    let port = String::from_utf8_lossy(port).into_owned();
    Some(vec![
        port,
        dst,
        src,
        number(dport)?.to_string(),
        number(sport)?.to_string(),
        name,
        transport.to_string(),
    ])
}

/// The same, from a parsed line.
fn told(line: &TraceLine<'_>) -> Vec<String> {
    let (dst, src) = match line.addresses {
        Addresses::V4 { source, destination } => {
            (Ipv4Addr::from(destination).to_string(), Ipv4Addr::from(source).to_string())
        }
        Addresses::V6 { source, destination } => {
            (Ipv6Addr::from(destination).to_string(), Ipv6Addr::from(source).to_string())
        }
    };
    let name =
        application::by_code(line.application).map_or(line.protocol.to_string(), |a| a.name.to_string());
    vec![
        String::from_utf8_lossy(line.port.bytes()).into_owned(),
        dst,
        src,
        line.destination_port.to_string(),
        line.source_port.to_string(),
        name,
        line.protocol.to_string(),
    ]
}

/// Parses with every entry point and checks that all agree.
fn parse_all_ways(text: &[u8], order: FieldOrder) -> Option<TraceLine<'_>> {
    let careful = parse_line(text, order);
    // With many bytes behind the line, so that the fast half parses it.
    let mut buffer = text.to_vec();
    buffer.push(b'\n');
    buffer.extend_from_slice(&[b'x'; 100]);
    let mut steps = Vec::new();
    each_line(&buffer, 0..text.len() + 1, order, |step| {
        steps.push(step);
        true
    });
    fast::walk::<false>(&buffer, 0..text.len() + 1, order, |step| {
        steps.push(step);
        true
    });
    assert_eq!(steps.len(), 2);
    for step in steps {
        match (&careful, step) {
            (Ok(Some(line)), Step::Packet(fast)) => {
                assert_eq!(*line, fast);
                assert_eq!(fast.port, PortName::new(fast.port.bytes()));
            }
            (Ok(None), Step::Nothing) => {}
            (Err(error), Step::Bad(fast)) => assert_eq!(*error, fast),
            (careful, fast) => panic!("{careful:?} against {fast:?}"),
        }
    }
    each_line(text, 0..text.len(), order, |step| panic!("{step:?} of no whole line"));
    assert_eq!(careful.ok().flatten().map(|l| told(&l)), obvious(text, order));
    careful.ok().flatten()
}

const ARTICLE: &[u8] = b"eth3 104.44.44.10 10.230.30.03 4003 5003 ftp";

#[test]
fn the_articles_line() {
    let line = parse_all_ways(ARTICLE, FieldOrder::DestinationFirst).unwrap();
    assert_eq!(told(&line), ["eth3", "104.44.44.10", "10.230.30.3", "4003", "5003", "ftp", "6"]);
    let line = parse_all_ways(ARTICLE, FieldOrder::SourceFirst).unwrap();
    assert_eq!(told(&line), ["eth3", "10.230.30.3", "104.44.44.10", "5003", "4003", "ftp", "6"]);
}

#[test]
fn spellings_that_are_fine() {
    for text in [
        "eth0 1.2.3.4 5.6.7.8 1 2 HTTP\r",
        "  \teth0\t1.2.3.4   5.6.7.8 00001 65535 Rtp   ",
        "a-very-long-port-name 001.002.003.004 255.255.255.255 0 0 ftp-data",
        "e 1.2.3.4 5.6.7.8 1 2 postgresql",
        "e 1.2.3.4 5.6.7.8 1 2 6 # as a number",
        "e 1.2.3.4 5.6.7.8 1 2 099",
        "e 2001:db8::1 ::1 1 2 icmp",
        "e 1.2.3.4 5.6.7.8 1 2 icmpv6",
        "eth0 100.200.100.200 100.200.100.200 65535 65535 https #123456",
    ] {
        assert!(parse_all_ways(text.as_bytes(), FieldOrder::default()).is_some(), "{text}");
    }
    for text in
        ["", "   ", "\r", "# comment", "  #comment of many words to make it longer than 64 bytes in all"]
    {
        assert_eq!(parse_all_ways(text.as_bytes(), FieldOrder::default()), None);
        assert_eq!(parse_line(text.as_bytes(), FieldOrder::default()), Ok(None), "{text}");
    }
}

#[test]
fn errors_say_where_and_what() {
    use End::*;
    for (text, column, expected) in [
        ("eth3", 5, Expected::Address(Destination)),
        ("eth3 1.2.3", 6, Expected::Address(Destination)),
        ("eth3 1.2.3.4 1.2.3.256 1 2 ftp", 14, Expected::Address(Source)),
        ("eth3 1.2.3.4 1.2.3.0004 1 2 ftp", 14, Expected::Address(Source)),
        ("eth3 1.2.3.4 ::1 1 2 ftp", 14, Expected::SameFamily(Source)),
        ("eth3 1.2.3.4 1.2.3.4 65536 2 ftp", 22, Expected::PortNumber(Destination)),
        ("eth3 1.2.3.4 1.2.3.4 1 x ftp", 24, Expected::PortNumber(Source)),
        ("eth3 1.2.3.4 1.2.3.4 1 2", 25, Expected::Protocol),
        ("eth3 1.2.3.4 1.2.3.4 1 2 ftpx", 26, Expected::Protocol),
        ("eth3 1.2.3.4 1.2.3.4 1 2 256", 26, Expected::Protocol),
        ("eth3 ::1 ::2 1 2 44", 18, Expected::Protocol),
        ("eth3 1.2.3.4 1.2.3.4 1 2 ftp x", 30, Expected::EndOfLine),
    ] {
        parse_all_ways(text.as_bytes(), FieldOrder::default());
        assert_eq!(
            parse_line(text.as_bytes(), FieldOrder::default()),
            Err(TraceError { column, expected }),
            "{text}"
        );
    }
    let long = [b'x'; LINE_BYTES_MAX + 1];
    assert_eq!(parse_line(&long, FieldOrder::default()).unwrap_err().expected, Expected::LineFeed);
}

fn field_text() -> impl Strategy<Value = String> {
    let byte =
        || prop_oneof![(0u32..256).prop_map(|n| n.to_string()), (0u32..400).prop_map(|n| format!("{n:03}"))];
    let v4 = || (byte(), byte(), byte(), byte()).prop_map(|(a, b, c, d)| format!("{a}.{b}.{c}.{d}"));
    let v6 = || any::<u128>().prop_map(|n| Ipv6Addr::from_bits(n).to_string());
    let address = || prop_oneof![8 => v4(), 1 => v6()];
    let port = || {
        prop_oneof![(0u32..70_000).prop_map(|n| n.to_string()), (0u32..999).prop_map(|n| format!("{n:05}"))]
    };
    let name = prop_oneof![
        6 => (0..application::APPLICATIONS.len()).prop_map(|i| application::APPLICATIONS[i].name.to_string()),
        2 => (0..application::APPLICATIONS.len()).prop_map(|i| application::APPLICATIONS[i].name.to_uppercase()),
        1 => (0u32..300).prop_map(|n| n.to_string()),
    ];
    let gap = || prop_oneof![8 => Just(" "), 1 => Just("\t"), 1 => Just("  ")];
    (
        "[a-z0-9:#.]{1,12}",
        address(),
        address(),
        port(),
        port(),
        name,
        gap(),
        gap(),
        prop_oneof![Just(""), Just("\r"), Just(" #x")],
    )
        .prop_map(|(n, a, b, p, q, r, g, h, end)| format!("{n}{g}{a} {b}{h}{p} {q} {r}{end}"))
}

proptest! {
    #[test]
    fn all_parsers_agree_on_likely_lines(text in field_text(), src_first: bool) {
        let order = if src_first { FieldOrder::SourceFirst } else { FieldOrder::DestinationFirst };
        parse_all_ways(text.as_bytes(), order);
    }

    #[test]
    fn all_parsers_agree_on_mutated_lines(
        text in field_text(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..4),
    ) {
        let mut bytes = text.into_bytes();
        for (at, value, how) in changes {
            let value = if value == b'\n' { b' ' } else { value };
            let at = at.index(bytes.len().max(1));
            match how {
                0 if at < bytes.len() => bytes[at] = value,
                1 if at < bytes.len() => { bytes.remove(at); }
                _ => bytes.insert(at.min(bytes.len()), value),
            }
        }
        parse_all_ways(&bytes, FieldOrder::DestinationFirst);
    }

    #[test]
    fn print_then_parse_is_the_same_line(
        name in "[a-z][a-z0-9.-]{0,14}", v6: bool, source: u128, destination: u128,
        source_port: u16, destination_port: u16, protocol: u8, pick in 0u8..60, src_first: bool,
    ) {
        let order = if src_first { FieldOrder::SourceFirst } else { FieldOrder::DestinationFirst };
        let addresses = if v6 { Addresses::V6 { source, destination } }
            else { Addresses::V4 { source: source as u32, destination: destination as u32 } };
        let named = application::by_code(pick);
        let mut protocol = named.map_or(protocol, |a| a.transport);
        let mut application = named.or(application::by_ip_protocol(protocol)).map_or(0, |a| a.code);
        prop_assume!(!v6 || ![0, 43, 44, 60].contains(&protocol));
        if protocol == 1 || protocol == 58 {
            protocol = if v6 { 58 } else { 1 };
            application = application::by_ip_protocol(protocol).unwrap().code;
        }
        let port = PortName::new(name.as_bytes());
        let line = TraceLine { port, addresses, source_port, destination_port, protocol, application };
        let mut text = Vec::new();
        line.print(order, &mut text);
        prop_assert_eq!(text.pop(), Some(b'\n'));
        prop_assert_eq!(parse_all_ways(&text, order), Some(line));

        // And through a packet: everything but the application's name survives if there are ports.
        let mut slot = [0xee; PACKET_SLOT];
        let len = line.write_packet(&mut slot);
        let back = TraceLine::of_packet(port, &slot[..len], application).unwrap();
        prop_assert_eq!((back.addresses, back.protocol, back.application), (addresses, protocol, application));
        if matches!(protocol, 1 | 6 | 17 | 58 | 132) {
            prop_assert_eq!((back.source_port, back.destination_port), (source_port, destination_port));
        }
        assert_valid(&slot[..len], protocol, v6);
    }

    #[test]
    fn of_packet_survives_anything(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = TraceLine::of_packet(PortName::new(b"p"), &bytes, 0);
        for version in [0x45, 0x60] {
            let mut bytes = bytes.clone();
            if let Some(first) = bytes.first_mut() { *first = version; }
            let _ = TraceLine::of_packet(PortName::new(b"p"), &bytes, 3);
        }
    }
}

/// Lengths and checksums, computed plainly.
fn assert_valid(ip: &[u8], protocol: u8, v6: bool) {
    let (header_len, pseudo) = if v6 {
        assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])) + 40, ip.len());
        assert_eq!((ip[0], ip[6], ip[7]), (0x60, protocol, 64));
        (40, checksum::sum(&ip[8..40], 0))
    } else {
        assert_eq!((ip[0], ip[8], ip[9]), (0x45, 64, protocol));
        assert_eq!(ip.len(), 46);
        assert_eq!(u16::from_be_bytes([ip[2], ip[3]]), 46);
        assert_eq!(checksum::fold(checksum::sum(&ip[..20], 0)), 0xffff);
        (20, checksum::sum(&ip[12..20], 0))
    };
    let payload = &ip[header_len..];
    let pseudo = pseudo + u32::from(protocol) + payload.len() as u32;
    let start = if protocol == 1 { 0 } else { pseudo };
    if matches!(protocol, 1 | 6 | 17 | 58) {
        assert_eq!(checksum::fold(checksum::sum(payload, start)), 0xffff);
    }
    if protocol == 17 {
        assert_eq!(usize::from(u16::from_be_bytes([payload[4], payload[5]])), payload.len());
        assert_ne!(&payload[6..8], [0, 0]);
    }
}

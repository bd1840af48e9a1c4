use super::*;
use proptest::prelude::*;
use std::net::Ipv6Addr;
use thalweg_base::{IpPrefix, Prefix};

/// Bytes from hexadecimal; blanks are ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// A record around a body; the length field is `length`, or the true length.
fn record(kind: u16, subtype: u16, body: &[u8], length: Option<usize>) -> Vec<u8> {
    let mut out = 1_000_000_000_u32.to_be_bytes().to_vec();
    out.extend(kind.to_be_bytes());
    out.extend(subtype.to_be_bytes());
    out.extend((length.unwrap_or(body.len()) as u32).to_be_bytes());
    out.extend(body);
    out
}

/// Lines of records, and the faults between them.
fn lines(bytes: &[u8]) -> (String, Vec<Fault>) {
    let (mut out, mut faults) = (Vec::new(), Vec::new());
    let mut decoder = Decoder::new();
    let mut records = Records::new(bytes);
    for record in records.by_ref() {
        let result =
            decoder.decode(&record).and_then(|content| write_lines(&mut out, &record, &content, Style::Unix));
        faults.extend(result.err());
    }
    assert_eq!(records.rest().len(), 0);
    (String::from_utf8(out).unwrap(), faults)
}

fn clean_lines(bytes: &[u8]) -> String {
    let (text, faults) = lines(bytes);
    assert_eq!(faults, []);
    text
}

/// ORIGIN, AS_PATH 64496 64497 of two bytes each, NEXT_HOP 192.0.2.1.
const TWO_OCTET_ATTRIBUTES: &str = "40010100 4002060202fbf0fbf1 400304c0000201";
/// The same with four.
const FOUR_OCTET_ATTRIBUTES: &str = "40010100 40020a02020000fbf00000fbf1 400304c0000201";

/// TABLE_DUMP's entry: prefix, its length, status, time, peer, its AS, attributes.
fn table_dump_entry(prefix: &str, length: &str) -> String {
    format!("{prefix}{length}01 3b9aca00 c6120001 fbf0 0014 {TWO_OCTET_ATTRIBUTES}")
}

#[test]
fn table_dump_is_read_in_all_its_layouts() {
    let head = "0000 0007";
    let (one, two) = (table_dump_entry("0a000000", "08"), table_dump_entry("0a010000", "10"));
    let line = |prefix: &str| {
        format!("TABLE_DUMP|1000000000|B|198.18.0.1|64496|{prefix}|64496 64497|IGP|192.0.2.1|0|0||NAG||\n")
    };
    let single = hex(&format!("{head}{one}"));
    assert_eq!(clean_lines(&record(12, 1, &single, None)), line("10.0.0.0/8"));
    let batch = hex(&format!("{head}{one}{two}"));
    let both = line("10.0.0.0/8") + &line("10.1.0.0/16");
    // As collectors of 2000 wrote it, and with the right length; another record follows.
    for length in [batch.len() - 4, batch.len()] {
        let mut file = record(12, 1, &batch, Some(length));
        file.extend(record(12, 1, &single, Some(single.len() - 4)));
        file.extend(record(12, 1, &single, None));
        assert_eq!(clean_lines(&file), format!("{both}{0}{0}", line("10.0.0.0/8")));
    }
    // With four bytes more it is still broken, and the next one is read.
    let mut file = record(12, 1, &batch[..batch.len() - 1], None);
    file.extend(record(12, 1, &single, None));
    let (text, faults) = lines(&file);
    assert_eq!(text, line("10.0.0.0/8"));
    let expected = Expected::Bytes { what: "attributes", wanted: 20, left: 19 };
    assert_eq!(faults, [Fault { at: 12 + 4 + 38 + 18, expected }]);
    // Two-byte AS numbers become four bytes in the later subtypes.
    let body = hex(&format!(
        "00000000 20010db8{zero} 20 01 00000000 20010db8{zero} 00030d40 0018 {FOUR_OCTET_ATTRIBUTES}",
        zero = "00".repeat(12)
    ));
    assert_eq!(
        clean_lines(&record(12, 4, &body, None)),
        "TABLE_DUMP|1000000000|B|2001:db8::|200000|2001:db8::/32|64496 64497|IGP|192.0.2.1|0|0||NAG||\n"
    );
}

fn peer_table() -> PeerIndex {
    let peer = |id: u32, address: IpAddr, asn| Peer { id: Ipv4Addr::from(id), address, asn };
    PeerIndex {
        collector: Ipv4Addr::new(192, 0, 2, 254),
        view: "master".to_owned(),
        peers: vec![
            peer(1, Ipv4Addr::new(198, 18, 0, 1).into(), 64496),
            peer(2, "2001:db8::2".parse().unwrap(), 4_200_000_000),
        ],
    }
}

fn table() -> Vec<u8> {
    let mut out = Vec::new();
    write_peer_index_table(&mut out, 1_000_000_000, &peer_table()).unwrap();
    out
}

fn v4(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

#[test]
fn a_table_that_is_written_is_read_with_all_attributes() {
    let mut file = table();
    // MED 10, LOCAL_PREF 100, ATOMIC_AGGREGATE, AGGREGATOR, communities of three kinds, of which one well known.
    let rest = "800404 0000000a 400504 00000064 400600 c00708 0000fbf0 c0000202
        c00808 fbf00001 ffffff01 c01008 0002fbf000000001 c0200c 0000fbf0 00000001 00000002";
    let attributes = hex(&format!("{FOUR_OCTET_ATTRIBUTES}{rest}"));
    let mut rib = RibRecord::begin(&mut file, 1_000_000_000, 0, v4("10.0.0.0/8"), false);
    rib.push(0, 5, 0, &attributes).unwrap();
    rib.push(1, 6, 0, &hex("500e0011 10 20010db8000000000000000000000009")).unwrap();
    assert_eq!(rib.finish(), 2);
    let mut rib = RibRecord::begin(&mut file, 1_000_000_000, 1, v4("2001:db8:8000::/33"), true);
    // MP_REACH_NLRI in full, with a link-local next hop, as Quagga writes it.
    let full = "800e2b 000201 20 20010db8000000000000000000000009 fe800000000000000000000000000009 00
        21 20010db880";
    rib.push(1, 7, 42, &hex(full)).unwrap();
    rib.finish();
    let routes = "\
TABLE_DUMP2|1000000000|B|198.18.0.1|64496|10.0.0.0/8|64496 64497|IGP|192.0.2.1|100|10|64496:1 no-export|AG|64496 192.0.2.2|
TABLE_DUMP2|1000000000|B|2001:db8::2|4200000000|10.0.0.0/8||INCOMPLETE|2001:db8::9|0|0||NAG||
TABLE_DUMP2_AP|1000000000|B|2001:db8::2|4200000000|2001:db8:8000::/33|42||INCOMPLETE|2001:db8::9|0|0||NAG||
";
    assert_eq!(clean_lines(&file), routes);

    let mut decoder = Decoder::new();
    let (first, length) = frame(&file).unwrap().unwrap();
    assert!(matches!(decoder.decode(&first), Ok(Content::Peers(peers)) if *peers == peer_table()));
    let (second, _) = frame(&file[length..]).unwrap().unwrap();
    let Ok(Content::Rib(rib)) = decoder.decode(&second) else { panic!("a RIB record") };
    let entries: Vec<_> = rib.entries().collect();
    assert_eq!((entries[0].attributes, entries[0].originated_s), (&attributes[..], 5));
    assert_eq!((entries[1].peer, entries[1].peer_index), (peer_table().peers[1], Some(1)));
    let path = PathView::new(entries[0].attributes, entries[0].as_size);
    assert_eq!((path.large_communities.len(), path.extended_communities.len()), (12, 8));
}

#[test]
fn generic_tables_are_read_if_their_family_is() {
    let entry = |id: &str| format!("0000 00000005 {id} 0018 {FOUR_OCTET_ATTRIBUTES}");
    let line = |kind: &str, id: &str| {
        format!("{kind}|1000000000|B|198.18.0.1|64496|10.0.0.0/8|{id}64496 64497|IGP|192.0.2.1|0|0||NAG||\n")
    };
    let generic = |subtype, family: &str, id: &str| {
        let body = hex(&format!("00000000 {family} {id} 080a 0001 {}", entry("")));
        [table(), record(13, subtype, &body, None)].concat()
    };
    assert_eq!(clean_lines(&generic(6, "000101", "")), line("TABLE_DUMP2", ""));
    assert_eq!(clean_lines(&generic(6, "000180", "")), "", "VPN routes are skipped");
    // The path identifier in the NLRI, and in the entry.
    assert_eq!(clean_lines(&generic(12, "000101", "0000002a")), line("TABLE_DUMP2", ""));
    let body = hex(&format!("00000000 000102 080a 0001 {}", entry("0000002a")));
    let file = [table(), record(13, 12, &body, None)].concat();
    assert_eq!(clean_lines(&file), line("TABLE_DUMP2_AP", "42|"));
    assert_eq!(clean_lines(&record(13, 7, &[1, 2, 3], None)), "", "GEO_PEER_TABLE is skipped");
}

fn update(withdrawn: &str, attributes: &str, announced: &str) -> Vec<u8> {
    let (withdrawn, attributes, announced) = (hex(withdrawn), hex(attributes), hex(announced));
    let mut out = vec![0xff; 16];
    out.extend(
        (23 + withdrawn.len() as u16 + attributes.len() as u16 + announced.len() as u16).to_be_bytes(),
    );
    out.push(2);
    out.extend((withdrawn.len() as u16).to_be_bytes());
    out.extend(withdrawn);
    out.extend((attributes.len() as u16).to_be_bytes());
    out.extend(attributes);
    out.extend(announced);
    out
}

/// BGP4MP from 198.18.0.1, AS 64496, to 198.18.0.2, AS 64499, AS numbers of two bytes.
fn bgp4mp(subtype: u16, message: &[u8]) -> Vec<u8> {
    let body = [&hex("fbf0fbf3 0000 0001 c6120001 c6120002")[..], message].concat();
    record(16, subtype, &body, None)
}

fn endpoints(six: bool) -> (Endpoint, Endpoint) {
    let end = |last: u16, asn| Endpoint {
        address: if six {
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into()
        } else {
            Ipv4Addr::new(198, 18, 0, last as u8).into()
        },
        asn,
    };
    (end(1, 64496), end(2, 64499))
}

#[test]
fn updates_are_lines_withdrawals_first() {
    let reach = "900e001a 000201 10 20010db8000000000000000000000009 00 20 20010db9";
    let unreach = "800f08 000201 20 20010db8";
    let message = update("080b", &format!("{TWO_OCTET_ATTRIBUTES}{reach}{unreach}"), "080a 00");
    let expected = "\
BGP4MP|1000000000|W|198.18.0.1|64496|11.0.0.0/8
BGP4MP|1000000000|W|198.18.0.1|64496|2001:db8::/32
BGP4MP|1000000000|A|198.18.0.1|64496|10.0.0.0/8|64496 64497|IGP|192.0.2.1|0|0||NAG||
BGP4MP|1000000000|A|198.18.0.1|64496|0.0.0.0/0|64496 64497|IGP|192.0.2.1|0|0||NAG||
BGP4MP|1000000000|A|198.18.0.1|64496|2001:db9::/32|64496 64497|IGP|2001:db8::9|0|0||NAG||
";
    assert_eq!(clean_lines(&bgp4mp(1, &message)), expected);
    // Sent by the collector: the peer stays the same.
    let local = expected.replace("BGP4MP", "BGP4MP_LOCAL");
    assert_eq!(clean_lines(&bgp4mp(6, &message)), local);

    let message = update("00000001 080b", TWO_OCTET_ATTRIBUTES, "0000002a 080a 0000002b 080a");
    let with_ids = "\
BGP4MP_AP|1000000000|W|198.18.0.1|64496|11.0.0.0/8
BGP4MP_AP|1000000000|A|198.18.0.1|64496|10.0.0.0/8|42|64496 64497|IGP|192.0.2.1|0|0||NAG||
BGP4MP_AP|1000000000|A|198.18.0.1|64496|10.0.0.0/8|43|64496 64497|IGP|192.0.2.1|0|0||NAG||
";
    assert_eq!(clean_lines(&bgp4mp(8, &message)), with_ids);
    assert_eq!(clean_lines(&bgp4mp(10, &message)), with_ids.replace("BGP4MP", "BGP4MP_LOCAL"));
    // The subtype says that there are no path identifiers, but without them 172.17.0.0/24 cannot be read.
    let hidden = update("", TWO_OCTET_ATTRIBUTES, "0000002a 18ac1100");
    let line =
        "BGP4MP_AP|1000000000|A|198.18.0.1|64496|172.17.0.0/24|42|64496 64497|IGP|192.0.2.1|0|0||NAG||\n";
    assert_eq!(clean_lines(&bgp4mp(1, &hidden)), line);
}

#[test]
fn what_is_written_with_microseconds_is_read() {
    let time = Timestamp { seconds: 1_000_000_000, microseconds: 42 };
    let message = update("", FOUR_OCTET_ATTRIBUTES, "080a");
    let mut file = Vec::new();
    for six in [false, true] {
        let (peer, local) = endpoints(six);
        write_state_change(&mut file, time, peer, local, 5, 6).unwrap();
        write_message(
            &mut file,
            time,
            peer,
            local,
            MessageForm { direction: Direction::Received, as_size: AsSize::Four, add_path: false },
            &message,
        )
        .unwrap();
        write_message(
            &mut file,
            time,
            peer,
            local,
            MessageForm { direction: Direction::Sent, as_size: AsSize::Four, add_path: false },
            &message,
        )
        .unwrap();
    }
    let four = "\
BGP4MP_ET|1000000000.000042|STATE|198.18.0.1|64496|5|6
BGP4MP_ET|1000000000.000042|A|198.18.0.1|64496|10.0.0.0/8|64496 64497|IGP|192.0.2.1|0|0||NAG||
BGP4MP_ET_LOCAL|1000000000.000042|A|198.18.0.1|64496|10.0.0.0/8|64496 64497|IGP|192.0.2.1|0|0||NAG||
";
    assert_eq!(clean_lines(&file), format!("{four}{}", four.replace("198.18.0.1", "2001:db8::1")));
    let (four, six) = (endpoints(false).0, endpoints(true).1);
    let before = file.len();
    assert_eq!(write_state_change(&mut file, time, four, six, 1, 2), Err(WriteError::MixedFamilies));
    assert_eq!(file.len(), before);

    let (record, _) = frame(&file).unwrap().unwrap();
    let mut human = Vec::new();
    let mut decoder = Decoder::new();
    let content = decoder.decode(&record).unwrap();
    write_lines(&mut human, &record, &content, Style::Human).unwrap();
    assert_eq!(human, b"BGP4MP_ET|09/09/01 01:46:40.000042|STATE|198.18.0.1|64496|5|6\n");
}

#[test]
fn messages_of_1999_have_no_header() {
    let ends = "fbf0c6120001 fbf3c6120002";
    let communities = "c00804fbf00001";
    let body = update("080b", &format!("{TWO_OCTET_ATTRIBUTES}{communities}"), "080a");
    let mut file = record(5, 1, &[&hex(ends)[..], &body[19..]].concat(), None);
    file.extend(record(
        5,
        1,
        &[&hex(ends)[..], &update("", TWO_OCTET_ATTRIBUTES, "080a")[19..]].concat(),
        None,
    ));
    file.extend(record(5, 3, &hex("fbf0c6120001 0003 0002"), None));
    file.extend(record(5, 7, &hex(ends), None));
    assert_eq!(
        clean_lines(&file),
        "\
BGP|1000000000|W|198.18.0.1|64496|11.0.0.0/8
BGP|1000000000|A|198.18.0.1|64496|10.0.0.0/8|64496 64497|IGP|192.0.2.1|0|0|64496:1|NAG||
BGP|1000000000|A|198.18.0.1|64496|10.0.0.0/8|64496 64497|IGP|192.0.2.1|0|0|NAG||
BGP|1000000000|STATE|198.18.0.1|64496|3|2
"
    );
    let (record, _) = frame(&file).unwrap().unwrap();
    let message = record.message().unwrap().unwrap();
    let mut whole = Vec::new();
    message.write(&mut whole);
    assert_eq!((whole, message.whole()), (body, None));
    assert!(!message.codec().four_octet_as);
}

#[test]
fn zebra_left_addresses_out() {
    let state = record(16, 0, &hex("fbf0fbf3 0003 0004"), None);
    assert_eq!(clean_lines(&state), "BGP4MP|1000000000|STATE|0.0.0.0|64496|3|4\n");
    let open = record(16, 1, &hex(&format!("fbf0fbf3 {} 0013 04", "ff".repeat(16))), None);
    let (view, _) = frame(&open).unwrap().unwrap();
    let message = view.message().unwrap().unwrap();
    assert_eq!((message.message_type, message.peer.asn, message.body().len()), (4, 64496, 0));
}

/// The path of a line from AS_PATH and AS4_PATH.
fn merged(as_path: &str, more: &str) -> String {
    let (path, more) = (hex(as_path), hex(more));
    let attributes = [&[0x40, 2, path.len() as u8][..], &path, &more].concat();
    let message = update("", &attributes.iter().map(|b| format!("{b:02x}")).collect::<String>(), "080a");
    let text = lines(&bgp4mp(1, &message)).0;
    let fields: Vec<_> = text.split('|').collect();
    format!("{}|{}", fields[6], fields[13])
}

#[test]
fn as4_path_replaces_the_end_of_as_path() {
    // 64496 23456 23456, AS4_PATH 200000 200001.
    let path = "0203fbf05ba05ba0";
    let newer = "c0110a 0202 00030d40 00030d41";
    assert_eq!(merged(path, newer), "64496 200000 200001|");
    assert_eq!(merged(path, ""), "64496 23456 23456|");
    // Longer than AS_PATH, so it is ignored.
    assert_eq!(merged("02015ba0", newer), "23456|");
    // A set is one hop, and a sequence can be cut.
    assert_eq!(merged("0202fbf05ba0 01025ba0fbf1", newer), "64496 200000 200001|");
    assert_eq!(merged("0102fbf0fbf1 02025ba05ba0", newer), "{64496,64497} 200000 200001|");
    // An AGGREGATOR of AS_TRANS is replaced; one of another AS invalidates AS4_PATH.
    let aggregator = "c00706 5ba0 c0000202 c01208 00030d40 c0000203";
    assert_eq!(merged(path, &format!("{newer}{aggregator}")), "64496 200000 200001|200000 192.0.2.3");
    let aggregator = "c00706 fbf0 c0000202 c01208 00030d40 c0000203";
    assert_eq!(merged(path, &format!("{newer}{aggregator}")), "64496 23456 23456|64496 192.0.2.2");
    assert_eq!(merged("0202fbf0fbf1 0302fdeafdeb 0401fdec", ""), "64496 64497 (65002 65003) [65004]|");
    assert_eq!(merged("0203fbf0", ""), "! Error !|");
}

#[test]
fn broken_records_say_what_was_expected_and_where() {
    let fault = |bytes: &[u8]| {
        let (_, faults) = lines(bytes);
        assert_eq!(faults.len(), 1, "{faults:?}");
        format!("{}", faults[0])
    };
    let message = update("", TWO_OCTET_ATTRIBUTES, "080a");
    let mut marker = message.clone();
    marker[3] = 0;
    let mut long = message.clone();
    long[17] += 1;
    let short = [&message[..16], &[0, 18, 2]].concat();
    let rib = |entries: &str| record(13, 2, &hex(&format!("00000000 080a {entries}")), None);
    let cases = [
        (bgp4mp(1, &marker), "expected the marker of a BGP message at byte 28 of the record"),
        (bgp4mp(1, &long), "expected a BGP message of 19 to 45 bytes, found a length of 46 at byte 44"),
        (bgp4mp(1, &short), "expected a BGP message of 19 to 19 bytes, found a length of 18 at byte 44"),
        (bgp4mp(99, &message), "expected a registered record type, found 16/99 at byte 6"),
        (
            record(16, 1, &hex("fbf0fbf3 0000 0003"), None),
            "expected address family 1 or 2, found 3 at byte 18",
        ),
        (
            record(16, 0, &hex("fbf0fbf3 0000 0001 c612"), None),
            "expected 4 bytes of the peer's address, found 2",
        ),
        (record(99, 1, &[], None), "expected a registered record type, found 99/1 at byte 4"),
        (rib("0000"), "expected a PEER_INDEX_TABLE before the first RIB record"),
        (
            [table(), rib("0001 0002 00000000 0000")].concat(),
            "expected a peer number below 2, found 2 at byte 20",
        ),
        (
            [table(), rib("0001 0001 00000000 0001")].concat(),
            "expected 1 bytes of attributes, found 0 at byte 28",
        ),
        ([table(), rib("0000 00")].concat(), "expected the record's end, found 1 more bytes at byte 20"),
        (
            [table(), rib("0001 0001 00000000 0003 400101")].concat(),
            "expected 1 bytes of an attribute, found 0",
        ),
        (record(13, 1, &hex("c0000201 0000 0001"), None), "expected 1 bytes of a peer's type, found 0"),
        (
            [table(), record(13, 2, &hex("00000000 21 0000000000"), None)].concat(),
            "expected a prefix length of at most 32, found 33 at byte 16",
        ),
        (
            bgp4mp(1, &update("", "400206020afbf0fbf1", "")),
            "expected an AS_PATH of whole segments at byte 54",
        ),
    ];
    for (bytes, expected) in cases {
        let found = fault(&bytes);
        assert!(found.starts_with(expected), "{found}, not {expected}");
    }
    // Everything before the fault is printed.
    let (text, faults) = lines(&bgp4mp(1, &update("", TWO_OCTET_ATTRIBUTES, "0d0b0d 0b")));
    assert_eq!(text.matches("11.8.0.0/13").count(), 1);
    let expected = Expected::Bytes { what: "a prefix", wanted: 2, left: 0 };
    assert_eq!(faults, [Fault { at: 28 + 23 + 20 + 4, expected }]);
    let too_long = record(13, 2, &[], Some(RECORD_BYTES_MAX + 1));
    assert_eq!(frame(&too_long).unwrap_err().length as usize, RECORD_BYTES_MAX + 1);
}

#[test]
fn records_that_would_not_fit_leave_nothing_behind() {
    let mut out = Vec::new();
    let mut rib = RibRecord::begin(&mut out, 0, 0, v4("10.0.0.0/8"), false);
    let error = rib.push(0, 0, 0, &vec![0; 70_000]).unwrap_err();
    assert_eq!(error, WriteError::TooMany { what: "bytes of attributes", found: 70_000, max: 65_535 });
    assert_eq!(rib.finish(), 0);
    assert_eq!(out.len(), 0);
    let mut rib = RibRecord::begin(&mut out, 0, 0, v4("10.0.0.0/8"), true);
    rib.push(0, 0, 0, &[]).unwrap();
    drop(rib);
    assert_eq!(out.len(), 0);
    let mut rib = RibRecord::begin(&mut out, 0, 0, v4("10.0.0.0/8"), false);
    let mut pushed = 0;
    while rib.push(0, 0, 0, &[0; 1000]).is_ok() {
        pushed += 1;
    }
    assert_eq!(rib.finish(), pushed);
    assert!(frame(&out).unwrap().is_some_and(|(_, length)| length == out.len()));
    let many = PeerIndex { peers: vec![peer_table().peers[0]; 65_536], ..peer_table() };
    assert!(write_peer_index_table(&mut out, 0, &many).is_err());
}

#[test]
fn days_are_what_calendars_say() {
    // date -u -d @N
    for (seconds, text) in [
        (0, "1970-01-01 00:00:00"),
        (951_782_399, "2000-02-28 23:59:59"),
        (951_782_400, "2000-02-29 00:00:00"),
        (1_709_251_199, "2024-02-29 23:59:59"),
        (4_107_542_399, "2100-02-28 23:59:59"),
        (4_107_542_400, "2100-03-01 00:00:00"),
        (u64::from(u32::MAX), "2106-02-07 06:28:15"),
    ] {
        let Civil { year, month, day, hour, minute, second } = Civil::from_unix(seconds);
        assert_eq!(format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"), text);
    }
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).into()),
        any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).into()),
    ]
}

fn any_prefix() -> impl Strategy<Value = IpPrefix> {
    prop_oneof![
        (any::<u32>(), 0..=32u8).prop_map(|(bits, length)| Prefix::new(bits, length).unwrap().into()),
        (any::<u128>(), 0..=128u8).prop_map(|(bits, length)| Prefix::new(bits, length).unwrap().into()),
    ]
}

fn any_bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..max)
}

proptest! {
    #[test]
    fn tables_read_are_tables_written(
        collector: u32,
        view in "[a-zäö]{0,20}",
        peers in proptest::collection::vec((any::<u32>(), any_address(), any::<u32>()), 1..20),
        prefix in any_prefix(),
        add_path: bool,
        routes in proptest::collection::vec((any::<u16>(), any::<u32>(), any::<u32>(), any_bytes(60)), 1..20),
        sequence: u32,
    ) {
        let peers: Vec<_> =
            peers.into_iter().map(|(id, address, asn)| Peer { id: id.into(), address, asn }).collect();
        let table = PeerIndex { collector: collector.into(), view, peers };
        let mut file = Vec::new();
        write_peer_index_table(&mut file, 1, &table).unwrap();
        let first = file.len();
        let mut rib = RibRecord::begin(&mut file, 2, sequence, prefix, add_path);
        for (peer, time, id, attributes) in &routes {
            rib.push(peer % table.peers.len() as u16, *time, *id, attributes).unwrap();
        }
        prop_assert_eq!(usize::from(rib.finish()), routes.len());

        let mut decoder = Decoder::new();
        let (record, length) = frame(&file).unwrap().unwrap();
        prop_assert_eq!(length, first);
        prop_assert!(matches!(decoder.decode(&record), Ok(Content::Peers(peers)) if *peers == table));
        let (record, length) = frame(&file[first..]).unwrap().unwrap();
        prop_assert_eq!((record.time_s, first + length), (2, file.len()));
        let Ok(Content::Rib(rib)) = decoder.decode(&record) else { panic!("a RIB record") };
        prop_assert_eq!((rib.sequence, rib.add_path(), rib.multicast), (sequence, add_path, false));
        let read: Vec<_> = rib.entries().collect();
        prop_assert_eq!(read.len(), routes.len());
        for (entry, (peer, time, id, attributes)) in read.iter().zip(&routes) {
            let index = peer % table.peers.len() as u16;
            prop_assert_eq!(entry.peer, table.peers[usize::from(index)]);
            prop_assert_eq!((entry.peer_index, entry.originated_s), (Some(index), *time));
            prop_assert_eq!((entry.path_id, entry.prefix), (add_path.then_some(*id), prefix));
            prop_assert_eq!((entry.attributes, entry.as_size), (&attributes[..], AsSize::Four));
        }
    }

    #[test]
    fn sessions_read_are_sessions_written(
        seconds: u32, microseconds in 0..1_000_000u32, six: bool, sent: bool, add_path: bool, two: bool,
        asn: u32, body in any_bytes(100), message_type in 1..=5u8, states: (u16, u16),
    ) {
        let (mut peer, local) = endpoints(six);
        peer.asn = asn;
        let time = Timestamp { seconds, microseconds };
        let direction = if sent { Direction::Sent } else { Direction::Received };
        let as_size = if two { AsSize::Two } else { AsSize::Four };
        let mut message = vec![0xff; 16];
        message.extend((19 + body.len() as u16).to_be_bytes());
        message.push(message_type);
        message.extend(&body);
        let mut file = Vec::new();
        write_message(&mut file, time, peer, local, MessageForm { direction, as_size, add_path }, &message).unwrap();
        let first = file.len();
        write_state_change(&mut file, time, peer, local, states.0, states.1).unwrap();

        let mut decoder = Decoder::new();
        let (record, length) = frame(&file).unwrap().unwrap();
        prop_assert_eq!((length, record.time_s, record.microseconds), (first, seconds, Some(microseconds)));
        let Ok(Content::Message(read)) = decoder.decode(&record) else { panic!("a message") };
        // AS_TRANS stands for numbers beyond two bytes.
        let shown = if two && asn > 0xffff { 23456 } else { asn };
        prop_assert_eq!((read.peer.asn, read.as_size), (shown, as_size));
        prop_assert_eq!((read.peer.address, read.local, read.direction), (peer.address, local, direction));
        prop_assert_eq!((read.whole(), read.message_type), (Some(&message[..]), message_type));
        prop_assert_eq!(read.body(), &body[..]);
        prop_assert!(read.add_path || !add_path);
        let (record, _) = frame(&file[first..]).unwrap().unwrap();
        let Ok(Content::StateChange(read)) = decoder.decode(&record) else { panic!("a state change") };
        prop_assert_eq!((read.peer, read.local, (read.old, read.new)), (peer, local, states));
    }

    #[test]
    fn any_body_is_read_or_refused(
        kind in prop_oneof![Just(5u16), Just(12), Just(13), Just(16), Just(17), any::<u16>()],
        subtype in 0..14u16,
        mut body in any_bytes(300),
        marker: bool,
    ) {
        if marker && kind >= 16 && body.len() > 60 {
            // So that the messages are reached.
            body[4..8].copy_from_slice(&[0, 0, 0, 1]);
            body[16..32].fill(0xff);
            let length = (body.len() - 16) as u16;
            body[32..34].copy_from_slice(&length.to_be_bytes());
            body[34] = 2;
            body[35] = 0;
            body[37] = 0;
        }
        let file = [table(), record(kind, subtype, &body, None)].concat();
        let mut decoder = Decoder::new();
        let mut rest = &file[..];
        let mut out = Vec::new();
        while let Some((record, length)) = frame(rest).unwrap() {
            rest = &rest[length..];
            let start = rest.len() + length;
            match decoder.decode(&record) {
                Ok(content) => {
                    let _ = write_lines(&mut out, &record, &content, Style::Unix);
                    let _ = write_lines(&mut out, &record, &content, Style::Json);
                }
                Err(fault) => prop_assert!(fault.at <= start, "{}", fault),
            }
        }
        prop_assert!(String::from_utf8(out).is_ok());
    }

    #[test]
    fn a_record_is_whole_or_not_yet(body in any_bytes(40), cut in 0..60usize) {
        let file = record(13, 2, &body, None);
        let cut = cut.min(file.len());
        let framed = frame(&file[..cut]).unwrap();
        prop_assert_eq!(framed.is_some(), cut == file.len());
        if let Some((record, length)) = framed {
            prop_assert_eq!((record.body(), length), (&body[..], file.len()));
        }
    }
}

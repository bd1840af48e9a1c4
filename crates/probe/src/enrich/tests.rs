//! Facts about addresses, beside other programs' answers and slow references.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use thalweg_base::IpPrefix;
use thalweg_flow::fields::unknown_record;
use thalweg_flow::{FlowRecord, Translation};

use super::*;

/// A database in MaxMind's format, with records of 24 bits and addresses of both families.
mod mmdb {
    use std::net::IpAddr;
    use thalweg_base::IpPrefix;

    #[derive(Clone, Copy)]
    enum Link {
        Nothing,
        Node(usize),
        /// A place in the data.
        Data(usize),
    }

    pub(super) enum Value {
        Text(&'static str),
        Number(u32),
        Map(Vec<(&'static str, Value)>),
    }

    fn head(kind: u8, size: usize, out: &mut Vec<u8>) {
        assert!(size < 29, "longer values are encoded differently");
        match kind {
            1..=7 => out.push(kind << 5 | size as u8),
            _ => out.extend([size as u8, kind - 7]),
        }
    }

    fn put_text(text: &str, out: &mut Vec<u8>) {
        head(2, text.len(), out);
        out.extend(text.as_bytes());
    }

    fn put(value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Text(text) => put_text(text, out),
            Value::Number(number) => {
                head(6, 4, out);
                out.extend(number.to_be_bytes());
            }
            Value::Map(entries) => {
                head(7, entries.len(), out);
                for (key, value) in entries {
                    put_text(key, out);
                    put(value, out);
                }
            }
        }
    }

    /// Of nested networks, the shorter come first.
    pub(super) fn database(kind: &'static str, networks: &[(IpPrefix, Value)]) -> Vec<u8> {
        let (mut nodes, mut data) = (vec![[Link::Nothing; 2]], Vec::new());
        for (prefix, value) in networks {
            // IPv4 is the lowest part of IPv6's space.
            let (bits, length) = match prefix.address() {
                IpAddr::V4(first) => (u128::from(u32::from(first)), prefix.length() + 96),
                IpAddr::V6(first) => (u128::from(first), prefix.length()),
            };
            let bit = |index: u8| (bits >> (127 - index) & 1) as usize;
            let mut node = 0;
            for index in 0..length - 1 {
                node = match nodes[node][bit(index)] {
                    Link::Node(next) => next,
                    other => {
                        nodes.push([other; 2]);
                        let new = nodes.len() - 1;
                        nodes[node][bit(index)] = Link::Node(new);
                        new
                    }
                };
            }
            nodes[node][bit(length - 1)] = Link::Data(data.len());
            put(value, &mut data);
        }
        let mut out = Vec::new();
        for link in nodes.iter().flatten() {
            let number = match link {
                Link::Nothing => nodes.len(),
                Link::Node(node) => *node,
                Link::Data(place) => nodes.len() + 16 + place,
            };
            out.extend(&(number as u32).to_be_bytes()[1..]);
        }
        out.extend([0; 16]);
        out.extend(data);
        out.extend(b"\xab\xcd\xefMaxMind.com");
        head(7, 9, &mut out);
        let numbers = [
            ("node_count", nodes.len() as u32),
            ("record_size", 24),
            ("ip_version", 6),
            ("binary_format_major_version", 2),
            ("binary_format_minor_version", 0),
        ];
        for (name, number) in numbers {
            put_text(name, &mut out);
            head(if name == "node_count" { 6 } else { 5 }, 2, &mut out);
            out.extend(&number.to_be_bytes()[2..]);
        }
        put_text("database_type", &mut out);
        put_text(kind, &mut out);
        put_text("languages", &mut out);
        head(11, 0, &mut out);
        put_text("build_epoch", &mut out);
        head(9, 1, &mut out);
        out.push(1);
        put_text("description", &mut out);
        head(7, 0, &mut out);
        out
    }
}

use mmdb::Value::{Map, Number, Text};

fn prefix(text: &str) -> IpPrefix {
    text.parse().expect("a prefix")
}

fn country(code: &'static str) -> mmdb::Value {
    Map(vec![("country", Map(vec![("iso_code", Text(code))]))])
}

fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("it can be written");
    path
}

/// The forms of MaxMind and DB-IP (nested), and of IPinfo (flat).
fn databases(folder: &tempfile::TempDir) -> [PathBuf; 2] {
    let countries = mmdb::database(
        "Test-Country",
        &[
            (prefix("192.0.0.0/8"), country("US")),
            (prefix("192.0.2.0/24"), country("DE")),
            (prefix("2001:db8::/32"), country("CH")),
            (
                prefix("198.51.100.0/24"),
                Map(vec![("registered_country", Map(vec![("iso_code", Text("FR"))]))]),
            ),
            (prefix("203.0.113.0/24"), Map(vec![("country", Map(vec![("iso_code", Text("not a code"))]))])),
        ],
    );
    let systems = mmdb::database(
        "Test-ASN",
        &[
            (prefix("192.0.2.128/25"), Map(vec![("autonomous_system_number", Number(64_500))])),
            (prefix("10.0.0.0/8"), Map(vec![("asn", Text("AS64501")), ("country_code", Text("AT"))])),
        ],
    );
    [file(folder, "country.mmdb", &countries), file(folder, "asn.mmdb", &systems)]
}

/// What `mmdblookup` says, if it is there.
fn looked_up(database: &Path, address: &str, path: &[&str]) -> Option<String> {
    let lookup =
        Command::new("mmdblookup").arg("--file").arg(database).args(["--ip", address]).args(path).output();
    let text = String::from_utf8(lookup.ok()?.stdout).expect("text");
    let value = text.split('<').next().unwrap_or("").trim().trim_matches('"');
    Some(value.to_owned())
}

#[test]
fn databases_say_country_and_as() {
    let folder = tempfile::tempdir().expect("a folder");
    let [countries, systems] = databases(&folder);
    let files = EnrichFiles { databases: vec![countries.clone(), systems.clone()], ..EnrichFiles::default() };
    let enrichment = Enrichment::open(&files, &Notify::default()).expect("databases");
    let has_mmdblookup = Command::new("mmdblookup").arg("--version").output().is_ok();
    if !has_mmdblookup {
        thalweg_testdata::skipped("no mmdblookup (Debian: mmdb-bin)");
    }
    for (address, code, number) in [
        ("192.0.3.1", "US", 0),
        ("192.0.2.1", "DE", 0),
        ("192.0.2.200", "DE", 64_500),
        ("2001:db8::1", "CH", 0),
        ("198.51.100.1", "FR", 0),
        ("203.0.113.1", "", 0),
        ("10.1.2.3", "AT", 64_501),
        ("172.16.0.1", "", 0),
        ("2001:db9::1", "", 0),
    ] {
        let facts = enrichment.facts(address.parse().expect("an address"));
        assert_eq!((&*facts.country.text(), facts.origin_as), (code, number), "{address}");
        if has_mmdblookup {
            let said = |database, path: &[&str]| looked_up(database, address, path).expect("it runs");
            let by_country = [
                said(&countries, &["country", "iso_code"]),
                said(&countries, &["registered_country", "iso_code"]),
                said(&systems, &["country_code"]),
            ];
            let by_country = by_country.iter().find(|code| !code.is_empty() && *code != "not a code");
            assert_eq!(by_country.map_or("", String::as_str), code, "{address}");
            let asn = said(&systems, &["autonomous_system_number"]);
            let asn = if asn.is_empty() { said(&systems, &["asn"]).replace("AS", "") } else { asn };
            assert_eq!(asn.parse().unwrap_or(0), number, "{address}");
        }
    }
    // Torn, empty, and something else: errors or unknown, never a panic.
    let whole = std::fs::read(&countries).expect("it was written");
    for end in (0..whole.len()).step_by(7) {
        let torn = file(&folder, "torn.mmdb", &whole[..end]);
        if let Ok(database) = Database::read(&torn) {
            database.facts("192.0.2.1".parse().expect("an address"));
        }
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        if let Ok(database) = Database::read(&file(&folder, "flipped.mmdb", &bytes)) {
            database.facts("192.0.2.1".parse().expect("an address"));
            database.facts("2001:db8::1".parse().expect("an address"));
        }
    }
}

/// Every prefix of a real table, beside `bgpdump` and a search by length.
#[test]
fn a_real_table_says_what_bgpdump_prints() {
    let Some(path) = thalweg_testdata::shared("mrt/rib.ris-rrc00.20000111.0032.td2.gz") else { return };
    let Ok(dump) = Command::new("bgpdump").arg("-m").arg(&path).output() else {
        thalweg_testdata::skipped("no bgpdump");
        return;
    };
    let text = String::from_utf8(dump.stdout).expect("text");
    let mut best: HashMap<IpPrefix, (usize, Route)> = HashMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let (to, path) = (prefix(fields[5]), fields[6].split(' ').filter(|word| !word.is_empty()));
        let path: Vec<&str> = path.collect();
        // A set, in braces, is no number.
        let number = |word: Option<&&str>| word.and_then(|word| word.parse().ok()).unwrap_or(0);
        let route =
            Route { origin_as: number(path.last()), neighbor_as: number(path.first()), length: to.length() };
        let known = best.entry(to).or_insert((path.len(), route));
        if path.len() < known.0 {
            *known = (path.len(), route);
        }
    }
    let (table, damaged) = rib::read(&path).expect("a table");
    assert_eq!((table.prefixes(), damaged), (best.len(), 0));
    assert!(best.len() > 80_000);
    let scan = |address: u32| {
        (0..=32).rev().find_map(|length| {
            let prefix = thalweg_base::Prefix::new(address, length).expect("a length");
            best.get(&IpPrefix::V4(prefix)).map(|(_, route)| *route)
        })
    };
    for prefix in best.keys() {
        let IpAddr::V4(first) = prefix.address() else { panic!("IPv4 only") };
        let behind = u32::from(first).wrapping_add(u32::MAX.checked_shr(prefix.length().into()).unwrap_or(0));
        for address in [u32::from(first), behind, behind.wrapping_add(1)] {
            assert_eq!(table.get(IpAddr::V4(address.into())), scan(address), "{prefix}");
        }
    }
}

fn record(src: &str, dst: &str) -> FlowRecord {
    let mut record = unknown_record();
    (record.key.src, record.key.dst) = (src.parse().expect("an address"), dst.parse().expect("an address"));
    record
}

#[test]
fn what_a_record_says_counts_and_changed_files_are_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let networks = file(&folder, "networks.csv", b"10.0.0.0/8,office\n192.0.2.0/24,peer\n");
    let files = EnrichFiles {
        databases: databases(&folder).to_vec(),
        networks: Some(networks.clone()),
        ..EnrichFiles::default()
    };
    let told = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&told);
    let notify = Notify::new(move |_, text| writeln!(heard.lock(), "{text}").expect("memory"));
    let enrichment = Arc::new(Enrichment::open(&files, &notify).expect("files"));
    let mut complete = enrichment.completion();
    let mut one = record("10.0.0.7", "192.0.2.200");
    one.dst_as = 64_999;
    complete(&mut one);
    let (from, toward) = (one.src_place, one.dst_place);
    assert_eq!((&*from.network.text(), &*from.country.text(), one.src_as), ("office", "AT", 64_501));
    assert_eq!((&*toward.network.text(), &*toward.country.text()), ("peer", "DE"));
    assert_eq!(one.dst_as, 64_999, "what the exporter says");
    // The inside of NAT has the name, its outside the country.
    let mut translated = record("10.0.0.7", "192.0.3.1");
    let (src, dst) = ("198.51.100.1".parse().expect("an address"), translated.key.dst);
    translated.translation = Some(Translation { src, dst, src_port: 1, dst_port: 2 });
    complete(&mut translated);
    let from = translated.src_place;
    assert_eq!((&*from.network.text(), &*from.country.text(), translated.src_as), ("office", "FR", 0));

    let name = |complete: &mut dyn FnMut(&mut FlowRecord)| {
        let mut one = record("10.0.0.7", "10.0.0.8");
        complete(&mut one);
        one.src_place.network.text()
    };
    std::fs::write(&networks, "10.0.0.0/8\n").expect("it can be written");
    enrichment.renew(&notify);
    assert_eq!(name(&mut complete), "office", "a bad list leaves the former one");
    assert!(told.lock().contains("networks.csv, line 1: expected a name"), "{}", told.lock());
    std::fs::remove_file(&networks).expect("it is there");
    enrichment.renew(&notify);
    assert_eq!(name(&mut complete), "office");
    std::fs::write(&networks, "10.0.0.0/8,headquarters\n").expect("it can be written");
    enrichment.renew(&notify);
    assert_eq!(name(&mut complete), "headquarters", "cached answers are forgotten");
}

#[test]
fn files_of_something_else_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let prose = file(&folder, "prose", b"dear router, please find enclosed our addresses, which are many\n");
    let none = folder.path().join("nosuch");
    for path in [prose, none] {
        let rib = EnrichFiles { rib: Some(path.clone()), ..EnrichFiles::default() };
        let database = EnrichFiles { databases: vec![path.clone()], ..EnrichFiles::default() };
        let networks = EnrichFiles { networks: Some(path.clone()), ..EnrichFiles::default() };
        for files in [rib, database, networks] {
            let error = Enrichment::open(&files, &Notify::default()).err().expect("no such data").to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }
    if let Some(cut) = thalweg_testdata::shared("mrt/rib.routeviews2.20140523.0600.first1MB.bz2") {
        let files = EnrichFiles { rib: Some(cut), ..EnrichFiles::default() };
        let error = Enrichment::open(&files, &Notify::default()).err().expect("it ends early").to_string();
        assert!(error.contains("first1MB"), "{error}");
    }
}

//! Small tables under two configurations.

use std::net::Ipv4Addr;
use std::path::Path;

use thalweg_config::RouterConfig;
use thalweg_wire::mrt::{Content, Decoder, Peer, PeerIndex, RibRecord, frame, write_peer_index_table};

use super::*;

/// A configuration with neighbors 192.0.2.N of AS 645NN: their number and their own keys.
fn config(more: &str, neighbors: &[(u8, &str)]) -> Arc<BgpConfig> {
    let mut text = format!(
        "[bgp]\nas = 64500\nrouter_id = \"198.51.100.1\"\nlisten = []\ninstall = \"none\"\nimport = \"accept\"\n\
         export = \"accept\"\n{more}\n"
    );
    for (number, keys) in neighbors {
        text += &format!(
            "[[bgp.neighbor]]\nname = \"n{number}\"\naddress = \"192.0.2.{number}\"\nas = 645{number:02}\n{keys}\n"
        );
    }
    match RouterConfig::from_text("router.toml", &text, Path::new("")) {
        Ok(config) => Arc::new(config.bgp.expect("[bgp] in the configuration")),
        Err(errors) => panic!("{errors}\n{text}"),
    }
}

/// A table: prefixes 10.P.0.0/16, each with its neighbors and their path lengths.
fn table(routes: &[(u8, &[(u8, usize)])]) -> Vec<u8> {
    let peer = |number: u8| Peer {
        id: Ipv4Addr::new(192, 0, 2, number),
        address: Ipv4Addr::new(192, 0, 2, number).into(),
        asn: 64_500 + u32::from(number),
    };
    let index =
        PeerIndex { collector: Ipv4Addr::LOCALHOST, view: String::new(), peers: (0..10).map(peer).collect() };
    let mut out = Vec::new();
    write_peer_index_table(&mut out, 0, &index).expect("the peers fit");
    for (number, paths) in routes {
        let prefix: IpPrefix = format!("10.{number}.0.0/16").parse().expect("a prefix");
        let mut record = RibRecord::begin(&mut out, 0, 0, prefix, false);
        for (from, length) in *paths {
            let mut attributes = vec![0x40, 1, 1, 0, 0x40, 2, (2 + 4 * length) as u8, 2, *length as u8];
            for hop in 0..*length {
                let asn = if hop == 0 { 64_500 + u32::from(*from) } else { 64_700 + hop as u32 };
                attributes.extend_from_slice(&asn.to_be_bytes());
            }
            attributes.extend_from_slice(&[0x40, 3, 4, 192, 0, 2, *from]);
            record.push((*from).into(), 0, 0, &attributes).expect("enough room");
        }
        record.finish();
    }
    out
}

fn converged(
    old: Arc<BgpConfig>,
    new: Arc<BgpConfig>,
    options: Options,
    table: &[u8],
) -> Result<Converged, WhatIfError> {
    let mut what_if = WhatIf::new(old, new, options)?;
    let mut decoder = Decoder::default();
    let mut rest = table;
    while let Ok(Some((record, length))) = frame(rest) {
        if let Ok(Content::Rib(rib)) = decoder.decode(&record) {
            rib.entries().for_each(|entry| what_if.push(&entry));
        }
        rest = &rest[length..];
    }
    what_if.converge()
}

/// The report on a table under two configurations.
fn report(old: Arc<BgpConfig>, new: Arc<BgpConfig>, options: Options, table: &[u8]) -> Report {
    converged(old, new, options, table).expect("a comparison").report()
}

/// 10.1 has a short path of neighbor 1 and a long one of neighbor 2; 10.2 is neighbor 1's alone, 10.3 neighbor 2's.
const ROUTES: &[(u8, &[(u8, usize)])] = &[(1, &[(1, 1), (2, 3)]), (2, &[(1, 1)]), (3, &[(2, 1)])];

#[test]
fn the_same_configuration_changes_nothing() {
    let all = || config("networks = [\"10.9.0.0/16\"]", &[(1, "role = \"provider\""), (2, ""), (3, "")]);
    let report = report(all(), all(), Options { why: true, ..Options::default() }, &table(ROUTES));
    let Report { neighbors, exports, examples, restart, down, prefixes, .. } = report;
    assert!(neighbors.is_empty() && exports.is_empty() && examples.is_empty());
    assert!(restart.is_empty() && down.is_empty());
    assert_eq!(prefixes, Prefixes { before: 4, after: 4, ..Prefixes::default() });
}

#[test]
fn a_neighbor_that_goes_takes_its_routes_along() {
    let old = config("", &[(1, ""), (2, ""), (3, "")]);
    let new = config("", &[(2, ""), (3, "")]);
    let mut both =
        converged(old, new, Options { why: true, ..Options::default() }, &table(ROUTES)).expect("tables");
    for (destination, bytes) in
        [([10, 1, 0, 1], 5), ([10, 2, 0, 1], 7), ([10, 3, 0, 1], 11), ([10, 8, 0, 1], 13)]
    {
        both.add_traffic(destination.into(), bytes);
    }
    let report = both.report();
    assert_eq!(report.prefixes, Prefixes { before: 3, after: 2, moved: 1, lost: 1, ..Prefixes::default() });
    assert_eq!(report.neighbors, [NeighborChange { neighbor: "n1".to_owned(), change: Change::Removed }]);
    let to_3 = report.exports.iter().find(|export| export.neighbor == "n3").expect("3 is sent less").routes;
    assert_eq!((to_3.more, to_3.less, to_3.changed, to_3.leaks), (0, 1, 1, 0));
    let traffic = report.traffic.expect("traffic");
    assert_eq!((traffic.bytes, traffic.moved, traffic.lost), (36, 5, 7));
    let notes: Vec<_> = report.examples.iter().flat_map(|example| &example.notes).collect();
    assert!(notes.iter().any(|note| note.contains("there is no neighbor n1")), "{notes:?}");
}

#[test]
fn import_policy_holds_for_the_table() {
    let old = config("", &[(1, ""), (2, ""), (3, "")]);
    let new = config("", &[(1, ""), (2, "import = \"reject\""), (3, "")]);
    let report = report(old, new, Options { why: true, ..Options::default() }, &table(ROUTES));
    assert_eq!(report.prefixes, Prefixes { before: 3, after: 2, lost: 1, ..Prefixes::default() });
    let import = report.imports.iter().find(|import| import.neighbor == "n2").expect("2 has routes");
    assert_eq!((import.routes, import.accepted), (2, Both { before: 2, after: 0 }));
    assert_eq!(import.rejected["policy"], Both { before: 0, after: 2 });
    assert!(report.examples[0].notes[0].contains("import rejects the route of n2: policy"));
}

/// With both roles RFC 9234 keeps the route back; removing a role lets it out.
#[test]
fn a_role_that_goes_is_a_leak() {
    let provider = "role = \"provider\"";
    let old = config("", &[(1, provider), (2, provider)]);
    let new = config("", &[(1, ""), (2, "")]);
    let report = report(old, new, Options::default(), &table(&[(2, &[(1, 1)])]));
    let to_2 = report.exports.iter().find(|export| export.neighbor == "n2").expect("2 is sent more").routes;
    assert_eq!((to_2.more, to_2.leaks), (1, 1));
    assert_eq!(report.exports_total.leaks, 1);
}

#[test]
fn a_failure_is_told_under_both_configurations_and_leaves_nothing_behind() {
    let old = config("", &[(1, ""), (2, ""), (3, "")]);
    let new = config("", &[(1, ""), (2, "import = \"reject\""), (3, "")]);
    let options = Options { failing: Failing::Each, ..Options::default() };
    let mut both = converged(old, new, options, &table(ROUTES)).expect("tables");
    both.add_traffic([10, 1, 0, 1].into(), 5);
    let report = both.report();
    let of =
        |name: &str| report.failures.iter().find(|each| each.neighbor == name).expect("it failed").counts;
    let (before, after) =
        (of("n1").before.expect("the session is up"), of("n1").after.expect("the session is up"));
    assert_eq!((before.lost, before.moved, before.bytes_moved, before.bytes_lost), (1, 1, 5, 0));
    assert_eq!((after.lost, after.moved, after.bytes_moved, after.bytes_lost), (2, 0, 0, 5));
    // Earlier failures have been undone.
    assert_eq!(of("n2").before.expect("the session is up").lost, 1);
    assert_eq!(of("n3").after.expect("the session is up"), FailureCounts::default());
}

#[test]
fn a_limit_ends_a_session() {
    let old = config("", &[(1, ""), (2, "")]);
    let new = config("", &[(1, "max_prefixes = { ipv4 = 1, action = \"stop\" }"), (2, "")]);
    let report = report(old, new, Options::default(), &table(ROUTES));
    assert_eq!(report.prefixes.lost, 1);
    let why = report.down[0].why.after.as_deref().expect("it is down");
    assert!(report.down[0].neighbor == "n1" && why.contains("above its limit of 1"), "{why}");
}

#[test]
fn what_cannot_be_answered_says_what_to_do() {
    let here = || config("", &[(1, "")]);
    let error = |options: Options, table: &[u8]| {
        converged(here(), here(), options, table).err().expect("the comparison fails").to_string()
    };
    assert!(error(Options::default(), &[]).contains("the table has no routes"));
    let strange = error(Options::default(), &table(&[(1, &[(7, 1)])]));
    assert!(strange.contains("--map") && strange.contains("192.0.2.7 (AS 64507"), "{strange}");
    let failing = Options { failing: Failing::One("n9".to_owned()), ..Options::default() };
    assert!(error(failing, &table(ROUTES)).contains("there are n1"));
    let map = Options { map: vec![([192, 0, 2, 7].into(), "n1".to_owned())], ..Options::default() };
    // Mapped, but of another AS: import reports it.
    let report = report(here(), here(), map, &table(&[(1, &[(7, 1)])]));
    assert_eq!(report.imports[0].rejected["first_as"], Both { before: 1, after: 1 });
}

#[test]
fn conditions() {
    let mut report = Report::default();
    report.prefixes.lost = 3;
    report.traffic = Some(Traffic { bytes: 200, lost: 10, ..Traffic::default() });
    let held = |text: &str| {
        let all = Condition::parse_all(text).expect("conditions");
        all.iter().filter_map(|each| each.check(&report)).count()
    };
    assert_eq!(held("lost>0, leak>0,bytes-lost>=5%,lost!=3"), 2);
    assert_eq!(held("lost<3,lost<=3,lost=3,bytes-lost>5%"), 2);
    for wrong in ["lost", "found>0", "lost>many", "lost>5%"] {
        assert!(Condition::parse_all(wrong).is_err(), "{wrong}");
    }
}

//! `thalweg mrt` on real files, compared with `bgpdump`'s text, and by itself.
//!
//! Files and expected text are test data outside the repository. Small files in thalweg-wire and thalweg-ports
//! test all of `mrt`'s functions, too.

use crate::support::thalweg;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use thalweg_testdata::{shared, skipped};

fn run(path: &Path, arguments: &[&str]) -> Output {
    let path = path.to_str().expect("the path is UTF-8");
    thalweg(&[&["mrt", path], arguments].concat())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("output is text")
}

fn unpacked(path: &Path) -> String {
    let file = std::fs::File::open(path).expect("expected text is there");
    let (_, mut source) = thalweg_ports::decompressed(file).expect("expected text can be read");
    let mut out = String::new();
    std::io::Read::read_to_string(&mut source, &mut out).expect("expected text is whole");
    out
}

/// Compares line by line, which gives a short failure message.
fn assert_same_lines(name: &str, ours: &str, theirs: &str) {
    for (number, (our, their)) in ours.lines().zip(theirs.lines()).enumerate() {
        assert_eq!(our, their, "{name}, line {}", number + 1);
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{name}: lines");
}

/// Expected counts of a file: routes or announcements, withdrawals and state changes, distinct prefixes of each
/// family, peers, errors.
struct Expected {
    path: &'static str,
    routes: u64,
    changes: u64,
    v4: u64,
    v6: u64,
    peers: u64,
    errors: u64,
}

const fn rib(path: &'static str, routes: u64, v4: u64, v6: u64, peers: u64) -> Expected {
    Expected { path, routes, changes: 0, v4, v6, peers, errors: 0 }
}

const fn updates(path: &'static str, changes: u64, v4: u64, v6: u64, peers: u64) -> Expected {
    Expected { path, routes: 0, changes, v4, v6, peers, errors: 0 }
}

/// Files without lines, and why: a configuration, or text.
const REFUSED: &[&str] = &[
    "README.md",
    "mrtparse-samples/bird-mrtdump.conf",
    "mrtparse-samples/bird.conf",
    "mrtparse-samples/bird6-mrtdump.conf",
    "mrtparse-samples/bird6.conf",
    "mrtparse-samples/quagga.conf",
];

/// The counts that come with the data, except where a comment gives a reason.
const EXPECTED: &[Expected] = &[
    rib("bgpkit/rrc00.bview.20000111.0032.gz", 452_018, 82_377, 0, 7),
    // The data says 532 prefixes, as bgpdump prints them: for records of type BGP it prints the peer's address
    // for every withdrawn prefix.
    updates("bgpkit/rrc00.updates.20000102.2014.gz", 6359, 481, 0, 8),
    updates("bgpkit/rrc01.updates.20001104.0124.gz", 883, 145, 0, 32),
    updates("bgpkit/rrc03.updates.20100227.1600.first-796-records.gz", 1363, 198, 7, 29),
    updates("bgpkit/rrc15.updates.20100227.1610.gz", 7485, 2247, 0, 10),
    rib("rib.routeviews-jinx.20140530.2200.bz2", 503_590, 497_323, 84, 14),
    // The file ends inside a bzip2 block.
    Expected { errors: 1, ..rib("rib.routeviews2.20140523.0600.first1MB.bz2", 270_005, 9072, 0, 35) },
    updates("updates.ris-rrc06.20150401.0000.gz", 1561, 452, 48, 3),
    updates("updates.routeviews-jinx.20150401.0000.bz2", 8611, 6219, 1, 4),
    updates("updates.routeviews.20260222.1530.bz2", 118_663, 7839, 0, 20),
    rib("bgpdump-pairs/bview.64k_stream_overflow.gz", 23, 0, 1, 23),
    rib("bgpdump-pairs/bview.ipv4_unicast_add_path.gz", 62, 31, 0, 3),
    rib("bgpdump-pairs/bview.ipv6_unicast_add_path.gz", 62, 0, 31, 3),
    updates("bgpdump-pairs/updates.20020722.2238.gz", 3337, 949, 0, 10),
    updates("bgpdump-pairs/updates.20160811.1600.gz", 41_234, 1623, 94, 40),
    updates("bgpdump-pairs/updates.long_withdrawal.gz", 4096, 0, 4096, 1),
    // The second of two prefixes is cut off.
    Expected { errors: 1, ..updates("bgpdump-pairs/updates.nlri_mask_trailing_bits.gz", 1, 1, 0, 1) },
    updates("mrtparse-samples/bird-mrtdump_bgp", 24, 3, 0, 2),
    rib("mrtparse-samples/bird-mrtdump_rib", 18, 6, 0, 2),
    updates("mrtparse-samples/bird6-mrtdump_bgp", 24, 0, 3, 2),
    rib("mrtparse-samples/bird6-mrtdump_rib", 10, 0, 5, 2),
    // These have path identifiers under a subtype without them; the data's counts (44 changes, 5 prefixes; 36, 3)
    // take the identifiers' bytes for prefixes.
    updates("mrtparse-samples/bird6_bgp", 26, 0, 4, 2),
    updates("mrtparse-samples/bird_bgp", 26, 4, 0, 2),
    rib("mrtparse-samples/quagga_rib", 9, 3, 3, 2),
    rib("rib.ris-rrc00.20000111.0032.td2.gz", 452_018, 82_377, 0, 7),
];

/// Paths below `directory`, relative to it.
fn walk(directory: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("data can be listed").flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            walk(&entry.path(), &format!("{name}/"), found);
        } else {
            found.push(name);
        }
    }
}

#[test]
fn every_file_is_read_with_its_counts_or_refused() {
    let Some(data) = shared("mrt") else { return };
    let mut found = Vec::new();
    walk(&data, "", &mut found);
    for name in &found {
        let path = data.join(name);
        if let Some(expected) = EXPECTED.iter().find(|expected| expected.path == name) {
            check_counts(&path, expected);
        } else {
            assert!(REFUSED.contains(&name.as_str()) || name.ends_with(".bgp.gz"), "{name} is new");
            let output = run(&path, &[]);
            let error = text(output.stderr);
            assert!(error.contains("record 1 at byte 0: expected MRT"), "{name}: {error}");
            assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{name}");
        }
    }
    for expected in EXPECTED {
        assert!(found.iter().any(|name| name == expected.path), "{} is gone", expected.path);
    }
}

fn check_counts(path: &Path, expected: &Expected) {
    let output = run(path, &["--count", "--format", "json"]);
    let counts: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let count = |name: &str| counts[name].as_u64().expect("a number");
    let changes = count("announcements") + count("withdrawals") + count("state_changes");
    let found = [
        count("routes"),
        changes,
        count("ipv4_prefixes"),
        count("ipv6_prefixes"),
        count("peers"),
        count("errors"),
    ];
    let Expected { path: name, routes, changes, v4, v6, peers, errors } = *expected;
    assert_eq!(found, [routes, changes, v4, v6, peers, errors], "{name}");
    assert_eq!(output.status.code(), Some(i32::from(errors > 0)), "{name}");
    let told = text(output.stderr);
    assert_eq!(
        told.matches("error: ").count() as u64,
        if errors > 0 { errors + 1 } else { 0 },
        "{name}: {told}"
    );
}

#[test]
fn lines_are_those_of_the_pairs() {
    let Some(data) = shared("mrt/bgpdump-pairs") else { return };
    let mut found = Vec::new();
    walk(&data, "", &mut found);
    let expected: Vec<_> = found.iter().filter(|name| name.ends_with(".bgp.gz")).collect();
    assert_eq!(expected.len(), 7);
    for name in expected {
        let file = name.strip_suffix(".bgp.gz").expect("it has it");
        let ours = text(run(&data.join(file), &["-m"]).stdout);
        assert_same_lines(file, &ours, &unpacked(&data.join(name)));
    }
}

/// Debian's bgpdump, on files without expected text. Its known mistakes are excluded by hand.
#[test]
fn lines_are_those_of_bgpdump() {
    if let Err(error) = Command::new("bgpdump").arg("-T").stdout(Stdio::null()).stderr(Stdio::null()).status()
    {
        return skipped(&format!("bgpdump does not run ({error}): install it with apt"));
    }
    for expected in EXPECTED {
        // Reads only one record of the batched layout; takes path identifiers for prefixes; has a subtype newer
        // than Debian's version.
        let wrong = ["rrc00.bview.20000111", "samples/bird_bgp", "samples/bird6_bgp", "trailing_bits"];
        if wrong.iter().any(|part| expected.path.contains(part)) {
            continue;
        }
        let Some(path) = shared(&format!("mrt/{}", expected.path)) else { return };
        let old = expected.path.contains("rrc00.updates.20000102");
        // One line format is enough for the large files.
        let modes = if expected.routes + expected.changes > 100_000 { &["-m"][..] } else { &["-m", "-M"] };
        for &mode in modes {
            let theirs =
                Command::new("bgpdump").arg("-v").arg(mode).arg(&path).output().expect("it ran before");
            let ours = text(run(&path, &[mode]).stdout);
            let theirs = text(theirs.stdout);
            let kept = |text: &str| {
                // bgpdump prints the peer's address instead of the prefix.
                let lines = text.lines().filter(|line| !old || !line.contains("|W|"));
                lines.fold(String::new(), |out, line| out + line + "\n")
            };
            assert_same_lines(expected.path, &kept(&ours), &kept(&theirs));
            if !mode.contains('m') {
                continue;
            }
            assert_eq!(ours.lines().count() as u64, expected.routes + expected.changes, "{}", expected.path);
        }
    }
}

#[test]
fn json_says_what_lines_say() {
    let Some(data) = shared("mrt") else { return };
    for name in ["bgpdump-pairs/updates.20160811.1600.gz", "mrtparse-samples/bird-mrtdump_rib"] {
        let path = data.join(name);
        let lines = text(run(&path, &["-m"]).stdout);
        let objects = text(run(&path, &["--format", "json"]).stdout);
        assert_eq!(lines.lines().count(), objects.lines().count());
        for (line, object) in lines.lines().zip(objects.lines()) {
            let value: serde_json::Value = serde_json::from_str(object).expect("a JSON object");
            let fields: Vec<_> = line.split('|').collect();
            let action = match value["action"].as_str().expect("an action") {
                "route" => "B",
                "announce" => "A",
                "withdraw" => "W",
                _ => "STATE",
            };
            assert_eq!(
                [fields[0], fields[2], fields[3]],
                [value["format"].as_str().expect("text"), action, value["peer"].as_str().expect("text"),]
            );
            assert_eq!(fields[4], value["peer_as"].to_string());
            if action == "STATE" {
                assert_eq!(fields[5..7], [value["old_state"].to_string(), value["new_state"].to_string()]);
            } else {
                assert_eq!(Some(fields[5]), value["prefix"].as_str());
            }
            if matches!(action, "A" | "B") {
                let at = 6 + usize::from(value["path_id"].is_u64());
                assert_eq!(Some(fields[at]), value["as_path"].as_str());
                let communities: Vec<_> = value["communities"]
                    .as_array()
                    .map_or(vec![], |list| list.iter().map(|each| each.as_str().expect("text")).collect());
                assert_eq!(fields[at + 5], communities.join(" "));
            }
        }
    }
}

/// One record three times, the second with a broken BGP marker.
fn small_file() -> Vec<u8> {
    use std::net::Ipv4Addr;
    use thalweg_wire::mrt::{AsSize, Direction, Endpoint, MessageForm, Timestamp, write_message};
    let end = |last, asn| Endpoint { address: Ipv4Addr::new(198, 18, 0, last).into(), asn };
    let time = Timestamp { seconds: 1_000_000_000, microseconds: 7 };
    // Withdraws 10.0.0.0/8.
    let message = [&[0xff; 16][..], &[0, 25, 2, 0, 2, 8, 10, 0, 0]].concat();
    let mut out = Vec::new();
    for marker in [0xff, 0, 0xff] {
        let mut message = message.clone();
        message[0] = marker;
        write_message(
            &mut out,
            time,
            end(1, 64496),
            end(2, 64499),
            MessageForm { direction: Direction::Received, as_size: AsSize::Four, add_path: false },
            &message,
        )
        .expect("it fits");
    }
    out
}

#[test]
fn damage_is_told_and_output_is_kept() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("small.mrt");
    std::fs::write(&path, small_file()).expect("it can be written");
    let line = "BGP4MP_ET|1000000000.000007|W|198.18.0.1|64496|10.0.0.0/8\n";
    let output = run(&path, &[]);
    assert_eq!(text(output.stdout), line.repeat(2));
    let error = text(output.stderr);
    let told =
        format!("error: {}: record 2 at byte 61: BGP4MP_ET/MESSAGE_AS4: expected the marker", path.display());
    assert!(error.starts_with(&told) && error.ends_with("error: errors in the input: 1\n"), "{error}");
    assert_eq!(output.status.code(), Some(1));

    let output = run(&path, &["--format", "json"]);
    let object = "{\"action\":\"withdraw\",\"format\":\"BGP4MP_ET\",\"time\":1000000000.000007,\
                  \"peer\":\"198.18.0.1\",\"peer_as\":64496,\"prefix\":\"10.0.0.0/8\"}\n";
    assert_eq!(text(output.stdout), object.repeat(2));
    let output = run(&path, &["-M"]);
    assert_eq!(text(output.stdout), line.replace("1000000000.", "09/09/01 01:46:40.").repeat(2));
    let output = run(&path, &["--count"]);
    let expected =
        "           2  records BGP4MP_ET/MESSAGE_AS4\n           0  routes\n           0  announcements\n";
    assert!(text(output.stdout).starts_with(expected));
}

#[test]
fn files_are_read_in_order_and_standard_input_is_one() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("small.mrt");
    std::fs::write(&path, &small_file()[..61]).expect("it can be written");
    let missing = directory.path().join("missing");
    let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .arg("mrt")
        .args([&path, &missing])
        .args(["-", "-v"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    child.stdin.take().expect("a pipe").write_all(&small_file()[..61]).expect("it is read");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(text(output.stdout).lines().count(), 2);
    let error = text(output.stderr);
    assert!(error.starts_with(&format!("error: {}: No such file", missing.display())), "{error}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(run(&path, &[]).status.code(), Some(0));
    for wrong in [&["mrt"][..], &["mrt", "x", "-m", "-M"], &["mrt", "x", "--count", "-m"]] {
        assert_eq!(thalweg(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn more_errors_than_are_shown_are_counted() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("broken.mrt");
    let broken = small_file()[61..122].repeat(250);
    std::fs::write(&path, broken).expect("it can be written");
    let output = run(&path, &[]);
    let error = text(output.stderr);
    assert_eq!(error.lines().count(), 101);
    assert!(error.ends_with("error: errors in the input: 250, not shown of them: 150\n"), "{error}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
}

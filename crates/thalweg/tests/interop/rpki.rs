//! Route origin validation: a real cache (StayRTR) with the whole RPKI of one moment, and BIRD's `roa_check` as the
//! oracle for every route of a real table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thalweg_lab::bgp::replay::Replay;
use thalweg_lab::bgp::table::Neighbors;
use thalweg_testdata::shared;

use crate::net::{End, Net, Process, program, until, until_done};
use crate::router::{Family, Router, Spec};
use crate::tables::{FIRST, connect};
use crate::{bird, thalweg};

const PORT: u16 = 8282;

/// StayRTR with a file of VRPs, in the neighbors' namespace.
struct Cache<'n> {
    net: &'n Net,
    folder: PathBuf,
    process: Option<Process>,
}

impl<'n> Cache<'n> {
    /// `None` if it is not installed.
    fn start(net: &'n Net, vrps: &str) -> Option<Self> {
        program(&["stayrtr"], "stayrtr")?;
        let mut cache = Self { net, folder: net.folder("cache"), process: None };
        cache.serve(vrps);
        cache.run();
        Some(cache)
    }

    fn file(&self) -> String {
        self.folder.join("vrps.json").display().to_string()
    }

    /// Replaces the VRPs; it looks once a second.
    fn serve(&self, vrps: &str) {
        let new = self.folder.join("new");
        fs::write(&new, format!("{{\"metadata\": {{}}, \"roas\": [{vrps}]}}")).expect("writing");
        fs::rename(new, self.file()).expect("renaming");
    }

    fn run(&mut self) {
        let (bind, file) = (address().to_string(), self.file());
        let arguments = ["-bind", &bind, "-cache", &file, "-checktime=false", "-refresh", "1"];
        let log = self.folder.join("log");
        let process = self.net.start(End::Right, "stayrtr", &arguments, &log);
        // It reads all VRPs first, which takes as long as others leave it no core.
        until_done("StayRTR listens", 60, || process.listens(PORT).map_err(|why| (process.ticks(), why)));
        self.process = Some(process);
    }
}

fn address() -> SocketAddr {
    SocketAddr::new(End::Right.v4().into(), PORT)
}

/// The VRPs of rpki-client's file without the times at which they expire, which are over.
fn unexpired(path: &Path) -> String {
    let file = File::open(path).expect("the file");
    let mut unpacking = Command::new("bzcat").stdin(file).stdout(Stdio::piped()).spawn().expect("bzcat");
    let mut vrps = String::new();
    for line in BufReader::new(unpacking.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        let Some((vrp, _)) = line.split_once(", \"ta\"") else { continue };
        if vrp.contains("\"maxLength\"") {
            let comma = if vrps.is_empty() { "" } else { ",\n" };
            let _ = write!(vrps, "{comma}{vrp}}}");
        }
    }
    assert!(unpacking.wait().expect("bzcat ends").success());
    vrps
}

/// How many routes have which validity.
fn counts(validities: &BTreeMap<String, String>) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    validities.values().for_each(|validity| *counts.entry(validity.as_str()).or_default() += 1);
    counts
}

/// Every route of a real table has the validity that BIRD finds, by the VRPs of the same cache.
#[test]
fn a_real_table_is_as_valid_as_bird_finds_it() {
    let Some(table) = shared("mrt/rib.ris-rrc00.20000111.0032.td2.gz") else { return };
    let Some(vrps) = shared("rpki/rpkiclient_20250720T093135Z.json.bz2") else { return };
    let Some(net) = Net::new() else { return };
    let Some(_cache) = Cache::start(&net, &unexpired(&vrps)) else { return };
    let replay = Replay::read(&table, usize::MAX).expect("a table");
    let number = replay.peers[0].as_number;
    net.add_addresses(End::Right, std::iter::once(FIRST));
    let spec = |end| Spec { families: vec![Family::V4], cache: Some(address()), ..Spec::new(end) };
    let Some(mut right) = bird::make(&net, spec(End::Right)) else { return };
    let mut left =
        thalweg::Thalweg::start_in(&net, Spec { others: vec![(FIRST, number)], ..spec(End::Left) });
    until("the session", 20, || left.established(Family::V4));
    until_done("all VRPs", 60, || {
        let view = left.json(&["show", "bgp", "rpki"]).map_err(|why| (0, why))?.remove(0);
        let count = view["vrps"]["ipv4"].as_u64().unwrap_or(0) + view["vrps"]["ipv6"].as_u64().unwrap_or(0);
        if count > 700_000 { Ok(()) } else { Err((0, format!("{view}"))) }
    });
    let client = connect(&net, &[(FIRST, number)]);
    let hops = Neighbors { count: 1, address: FIRST, as_number: number }.hops_of(0);
    client.send_bytes(0, &replay.stream(0, hops).bytes).expect("the daemon reads");
    let expected = replay.paths(0).len();
    until_done("both have judged every route alike", 60, || {
        let ours = left.validities().map_err(|why| (0, why))?;
        let theirs = right.validities().map_err(|why| (0, why))?;
        let same = ours.iter().filter(|(prefix, validity)| theirs.get(*prefix) == Some(*validity)).count();
        if (ours.len(), theirs.len(), same) == (expected, expected, expected) {
            let counts = counts(&ours);
            assert!(counts.len() == 3 && counts.values().all(|count| *count > 100), "{counts:?}");
            return Ok(());
        }
        let first = ours.iter().find(|(prefix, validity)| theirs.get(*prefix) != Some(*validity));
        let other = first.and_then(|(prefix, _)| theirs.get(prefix));
        Err((
            same,
            format!("{same} of {expected} alike, {} and {}: {first:?} {other:?}", ours.len(), theirs.len()),
        ))
    });
    // The same number of routes is sent as BIRD has.
    until("the sent routes are counted", 60, || {
        let view = left.json(&["show", "bgp", "neighbor", &End::Right.v4().to_string()])?.remove(0);
        let sent = view["sent_by_family"]["ipv4"].as_u64();
        if sent == Some(expected as u64) { Ok(()) } else { Err(format!("{sent:?} of {expected}")) }
    });
    client.check().expect("the laboratory's session stays up");
}

fn vrp(prefix: &str, asn: u32) -> String {
    format!("{{\"prefix\": \"{prefix}\", \"maxLength\": 24, \"asn\": {asn}}}")
}

/// Waits until the router has these routes, with this validity.
#[track_caller]
fn has(left: &mut thalweg::Thalweg<'_>, what: &str, expected: &[(&str, &str)]) {
    let expected: BTreeMap<String, String> =
        expected.iter().map(|(prefix, validity)| (prefix.to_string(), validity.to_string())).collect();
    until(what, 30, || {
        let found = left.validities()?;
        let source = left.json(&["show", "bgp", "rpki"])?;
        if found == expected { Ok(()) } else { Err(format!("{found:?}; {source:?}")) }
    });
}

/// VRPs that come and go while the cache runs, and a cache that goes and returns.
#[test]
fn a_cache_that_changes_its_mind() {
    let Some(net) = Net::new() else { return };
    let (good, bad) = (vrp("203.0.113.0/24", 65002), vrp("203.0.113.0/24", 65009));
    let Some(mut cache) = Cache::start(&net, &good) else { return };
    let networks = ["203.0.113.0/24", "198.51.100.0/24"].map(str::to_owned);
    let spec = |end| Spec { families: vec![Family::V4], ..Spec::new(end) };
    let Some(_right) = bird::make(&net, spec(End::Right).originating(&networks)) else { return };
    let spec = Spec { cache: Some(address()), reject_invalid: true, ..spec(End::Left) };
    let mut left = thalweg::Thalweg::start_in(&net, spec);
    let both = [("198.51.100.0/24", "not-found"), ("203.0.113.0/24", "valid")];
    has(&mut left, "a valid route", &both);
    cache.serve(&bad);
    has(&mut left, "an invalid route is rejected", &both[..1]);
    until("it is kept once the neighbor has repeated it", 30, || {
        let rejected = left.json(&["show", "bgp", "routes", "--rejected"])?;
        let is_it =
            |route: &serde_json::Value| route["rejected"] == "rpki_invalid" && route["validity"] == "invalid";
        if rejected.len() == 1 && rejected.iter().all(is_it) { Ok(()) } else { Err(format!("{rejected:?}")) }
    });
    cache.serve(&format!("{bad}, {good}"));
    has(&mut left, "it is valid again", &both);
    let source = |left: &thalweg::Thalweg<'_>| {
        let view = left.json(&["show", "bgp", "rpki"]).map(|mut views| views.remove(0));
        view.map(|view| view["sources"][0].clone())
    };
    let synced = source(&left).expect("an answer");
    assert!(synced["state"] == "synced" && synced["used"] == true, "{synced}");
    assert!(synced["counters"]["withdrawn"].as_u64() > Some(0), "differences, not everything: {synced}");
    assert_eq!(synced["counters"]["refused"], 0, "{synced}");
    // Without the cache its VRPs stay in force.
    cache.process.take().expect("it runs").kill();
    until("the cache is missed", 30, || {
        let source = source(&left)?;
        if source["state"] != "synced" && source["used"] == true { Ok(()) } else { Err(source.to_string()) }
    });
    // It returns with another session and other VRPs.
    cache.serve(&bad);
    cache.run();
    has(&mut left, "the route is invalid", &both[..1]);
}

//! Simulated networks through the real binary: convergence, policies without a stable state, packets, the routers
//! of one AS.

use std::path::Path;

use serde_json::Value;
use thalweg_sim::gadgets::{GADGETS, Gadget};

use super::{experiment, of_repository, report, results, support};

/// Every part, with small networks. Each ends, measures something, and says for each published statement whether
/// it holds here.
#[test]
fn what_is_known_of_convergence() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = results(&experiment(&["lab", "convergence", "--quick"], folder.path()), folder.path());
    let parts = json["results"].as_array().expect("parts");
    let names: Vec<&str> = parts.iter().filter_map(|part| part["part"].as_str()).collect();
    assert_eq!(names, ["cliques", "events", "gadgets", "damping", "mrai", "beacons", "surges", "growth"]);
    for part in parts {
        let columns = part["columns"].as_array().expect("columns").len();
        let rows = part["rows"].as_array().expect("rows");
        assert!(
            rows.len() >= 2 && rows.iter().all(|row| row["values"].as_array().map(Vec::len) == Some(columns))
        );
        assert!(part["claims"].as_array().is_some_and(|claims| claims.len() >= 2), "{part}");
    }
    let bad = parts[2]["rows"].as_array().and_then(|rows| rows.iter().find(|row| row["what"] == "BAD"));
    assert_eq!(bad.expect("BAD")["values"][3], 10.0, "it never ends, whatever the latencies");
    // The same seed gives the same answer with another number of threads.
    let again = tempfile::tempdir().expect("a folder");
    let arguments = ["lab", "convergence", "--quick", "--only", "events,growth", "--threads", "3"];
    let again = results(&experiment(&arguments, again.path()), again.path());
    assert_eq!((&again["results"][0], &again["results"][1]), (&parts[1], &parts[7]));
}

/// Writes the links and configurations of a gadget.
fn write_gadget(gadget: &Gadget, folder: &Path) {
    let links = gadget.links().into_iter().map(|(a, b)| format!("{}|{}|0\n", 64_500 + a, 64_500 + b));
    std::fs::write(folder.join("links.txt"), links.collect::<String>()).expect("a file");
    std::fs::create_dir_all(folder.join("own")).expect("a folder");
    for router in 0..gadget.routers() {
        let path = folder.join(format!("own/AS{}-router.toml", 64_500 + router));
        std::fs::write(path, gadget.configuration(router)).expect("a file");
    }
}

/// Configurations of the reader's own: policies without a stable state are reported with their cycle, mistakes
/// with their line.
#[test]
fn policies_that_never_end_are_named() {
    let gadget = |name| GADGETS.iter().find(|gadget| gadget.name == name).expect("a gadget");
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["lab", "network", "--caida", "links.txt", "--configurations", "own"];
    let run = || experiment(&arguments, folder.path());
    let error = || {
        let output = run();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    write_gadget(gadget("GOOD"), folder.path());
    let json = results(&run(), folder.path());
    assert_eq!(json["results"]["phases"][0]["oscillation"], Value::Null);

    write_gadget(gadget("BAD"), folder.path());
    let (code, text) = error();
    let named = "cold start: oscillating: the best paths to 20.0.0.0/24 at AS64501, AS64502, AS64503, AS64504 change ";
    assert!(code == Some(1) && text.contains(named) && text.contains(" times every "), "{text}");
    // The cycle of routes, and why it never ends.
    assert!(text.contains("AS64501 takes 64503 64500"), "{text}");
    assert!(text.contains("All tables and all messages under way were the same again after"), "{text}");
    let json = std::fs::read_to_string(report(folder.path()).join("results.json")).expect("numbers");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let oscillation = &json["results"]["phases"][0]["oscillation"];
    assert_eq!(oscillation["prefix"], "20.0.0.0/24");
    assert!(oscillation["recurs_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{oscillation}");
    assert!(oscillation["round"].as_array().is_some_and(|round| round.len() >= 4), "{oscillation}");

    let own = folder.path().join("own/AS64501-router.toml");
    let good = std::fs::read_to_string(&own).expect("a configuration");
    std::fs::write(&own, good.replace("import = \"ranked\"", "import = \"ranks\"")).expect("a file");
    let (code, text) = error();
    assert!(code == Some(1) && text.contains("AS64501-router.toml:") && text.contains("ranks"), "{text}");
    std::fs::write(&own, good.replace("as = 64501", "as = 64509")).expect("a file");
    let (code, text) = error();
    assert!(code == Some(1) && text.contains("is of AS 64509, not of AS 64501"), "{text}");
    std::fs::write(&own, &good).expect("a file");
    std::fs::write(folder.path().join("own/AS7-router.toml"), &good).expect("a file");
    let (code, text) = error();
    assert!(code == Some(1) && text.contains("AS 7 is not in the graph"), "{text}");
    std::fs::write(folder.path().join("links.txt"), "64500|64501|0\n64501|64500|-1\n").expect("a file");
    let (code, text) = error();
    assert!(
        code == Some(1) && text.contains("links.txt:2: ") && text.contains("line 1 made it a peer"),
        "{text}"
    );
}

/// Packets use a simulated router's table: each leaves through the port of the neighbor with the best route.
#[test]
fn packets_for_a_simulated_router() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["lab", "network", "--ases", "60", "--collect", "8", "--packets", "3000"];
    let json = results(&experiment(&arguments, folder.path()), folder.path());
    let asn = &json["results"]["collected"][0]["asn"];
    let file = |name: &str| report(folder.path()).join(format!("AS{asn}-{name}"));
    let text = |name: &str| std::fs::read_to_string(file(name)).expect("a file");
    assert_eq!(text("prefixes.txt").lines().count(), 60);
    let [config, trace] = ["packets.toml", "packets.txt"].map(|name| file(name).display().to_string());
    let output = folder.path().join("out").display().to_string();
    let replayed =
        support::thalweg(&["replay", "-c", &config, &trace, "--output", &output, "--format", "json"]);
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    let summary: Value = serde_json::from_slice(&replayed.stdout).expect("JSON");
    assert_eq!((&summary["packets_in"], &summary["packets_out"]), (&3000.into(), &3000.into()), "{summary}");
    // The packets for each port, computed from the table and the trace alone.
    let hops: Vec<(String, String)> = text("prefixes.txt")
        .lines()
        .filter_map(|line| line.split_once(".0/24 "))
        .map(|(network, hop)| (network.to_owned(), hop.to_owned()))
        .collect();
    let ports = summary["ports"].as_object().expect("ports");
    for (name, port) in ports {
        let block = text("packets.toml");
        let block = block.split(&format!("[ports.{name}]")).nth(1).expect("a port").to_owned();
        let ours = block.split('"').find(|part| part.ends_with("/30")).expect("an address");
        let network = ours.trim_end_matches("/30");
        let (head, last) = network.rsplit_once('.').expect("an address");
        let theirs = format!("{head}.{}", last.parse::<u8>().expect("a number") + 1);
        let wanted = text("packets.txt")
            .lines()
            .filter(|line| {
                let destination = line.split(' ').nth(1).expect("a destination");
                let (network, _) = destination.rsplit_once('.').expect("an address");
                hops.iter().any(|(of, hop)| of == network && *hop == theirs)
            })
            .count();
        assert_eq!(port["packets_out"], wanted, "{name}");
    }
}

/// Routers of one AS: with a full mesh each uses the nearest exit; route reflectors need fewer sessions, and
/// their clients learn fewer paths.
#[test]
fn routers_of_one_as() {
    let folder = tempfile::tempdir().expect("a folder");
    let zoo = of_repository("crates/thalweg/tests/lab/five-routers.graphml");
    let arguments = ["lab", "network", "--zoo", &zoo, "--prefixes", "4", "--exits", "2"];
    let json = results(&experiment(&arguments, folder.path()), folder.path());
    let phases = json["results"]["phases"].as_array().expect("phases");
    assert_eq!(phases.len(), 8, "four things happen to each of two ways");
    for phase in phases {
        assert_eq!(phase["routes"], 24, "each of six routers has each of four prefixes: {phase}");
        let sessions = if phase["ibgp"] == "mesh" { 15 } else { 9 };
        assert_eq!(phase["sessions"], sessions);
        assert!(phase["ibgp"] != "mesh" || phase["nearest"] == 24, "{phase}");
    }
    let changed = |name: &str| {
        let of = phases.iter().filter(|phase| phase["name"] == name);
        of.map(|phase| phase["changed"].as_u64().expect("a number")).min().expect("a phase")
    };
    assert!(changed("an exit's neighbor goes") >= 4, "the exit itself changes at least");
    let refused = experiment(&["lab", "network", "--zoo", &zoo, "--load", "links"], folder.path());
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("--load does not go with --zoo"), "{text}");
}

/// Computing can take virtual time: slower routers converge later, with the same routes.
#[test]
fn computing_takes_virtual_time() {
    let converged = |more: &[&str]| {
        let folder = tempfile::tempdir().expect("a folder");
        let arguments = [&["lab", "network", "--ases", "40"], more].concat();
        let json = results(&experiment(&arguments, folder.path()), folder.path());
        let phase = &json["results"]["phases"][0];
        assert_eq!(phase["is_quiet"], true);
        let costs = json["results"]["processing"]["costs_ns"].as_array().map_or(0, Vec::len);
        (phase["converged_s"][3].as_f64().expect("seconds"), costs, phase["changed"].clone())
    };
    let none = converged(&[]);
    let slow = converged(&["--processing", "measured", "--processing-scale", "500"]);
    assert_eq!((none.1, slow.1), (0, 256));
    assert!(slow.0 > 1.05 * none.0, "{none:?} {slow:?}");
    assert_eq!(none.2, slow.2, "every router has every prefix");
}

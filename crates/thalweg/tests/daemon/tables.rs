//! Tables read and written: seeding, the forwarding table, MRT files.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use thalweg_base::IpPrefix;
use thalweg_wire::bgp::attribute;
use thalweg_wire::mrt::{Peer, PeerIndex, RibRecord, write_peer_index_table};

use crate::router::{Router, eventually, free_port, neighbor, speaker};

const TIME_S: u32 = 1_700_000_000;

const UP: &str = "BGP4MP_ET|STATE|127.0.0.2|64502|5|6";
const DOWN: &str = "BGP4MP_ET|STATE|127.0.0.2|64502|6|1";

/// A route of a table.
pub(crate) struct Route {
    prefix: IpPrefix,
    peer: u16,
    attributes: Vec<u8>,
}

impl Route {
    /// A route of the first peer.
    pub(crate) fn v4(prefix: &str, next_hop: &str, path: &[u32]) -> Self {
        let next_hop: Ipv4Addr = next_hop.parse().expect("an address");
        let mut attributes = origin_and_path(path);
        attributes.extend([attribute::FLAG_TRANSITIVE, attribute::NEXT_HOP, 4]);
        attributes.extend(next_hop.octets());
        Self { prefix: prefix.parse().expect("a prefix"), peer: 0, attributes }
    }

    fn v6(prefix: &str, next_hop: &str, path: &[u32]) -> Self {
        let next_hop: Ipv6Addr = next_hop.parse().expect("an address");
        let mut attributes = origin_and_path(path);
        attributes.extend([attribute::FLAG_OPTIONAL, attribute::MP_REACH_NLRI, 17, 16]);
        attributes.extend(next_hop.octets());
        Self { prefix: prefix.parse().expect("a prefix"), peer: 0, attributes }
    }

    fn of(self, peer: u16) -> Self {
        Self { peer, ..self }
    }
}

fn origin_and_path(path: &[u32]) -> Vec<u8> {
    let mut bytes = vec![attribute::FLAG_TRANSITIVE, attribute::ORIGIN, 1, 0];
    bytes.extend([attribute::FLAG_TRANSITIVE, attribute::AS_PATH, 2 + 4 * path.len() as u8]);
    bytes.extend([2, path.len() as u8]);
    bytes.extend(path.iter().flat_map(|asn| asn.to_be_bytes()));
    bytes
}

/// An MRT table with two peers, AS 64510 and AS 64520. Routes of the same prefix must be adjacent.
pub(crate) fn table(routes: &[Route]) -> Vec<u8> {
    let peer = |last, asn| Peer {
        id: Ipv4Addr::new(192, 0, 2, last),
        address: IpAddr::V4(Ipv4Addr::new(198, 18, 0, last)),
        asn,
    };
    let collector = Ipv4Addr::new(192, 0, 2, 200);
    let peers = vec![peer(10, 64510), peer(20, 64520)];
    let mut out = Vec::new();
    write_peer_index_table(&mut out, TIME_S, &PeerIndex { collector, view: String::new(), peers })
        .expect("two peers fit");
    for (sequence, routes) in routes.chunk_by(|a, b| a.prefix == b.prefix).enumerate() {
        let mut record = RibRecord::begin(&mut out, TIME_S, sequence as u32, routes[0].prefix, false);
        for route in routes {
            record.push(route.peer, TIME_S, 0, &route.attributes).expect("it fits");
        }
        record.finish();
    }
    out
}

/// Lines of `thalweg mrt`, without the fields with times.
fn mrt(files: &[PathBuf]) -> Vec<String> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_thalweg")).arg("mrt").args(files).output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let without_time = |line: &str| {
        let mut fields: Vec<_> = line.split('|').collect();
        fields.remove(1);
        fields.join("|")
    };
    text.lines().map(without_time).collect()
}

/// Complete files whose names have this prefix, in order.
fn files(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("it is there").map(|entry| entry.expect("readable").path());
    let wanted =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    let mut files: Vec<_> = entries.filter(wanted).collect();
    files.sort();
    files
}

fn seeded(install: &str) -> String {
    format!("{}install = {install:?}\n[bgp.seed]\nmrt = \"seed.mrt\"\n", speaker(1, free_port()))
}

#[test]
fn a_seeded_table_is_decided_on_and_installed() {
    let directory = tempfile::tempdir().unwrap();
    let broken = Route { attributes: vec![0x40, 1, 9, 0], ..Route::v4("20.3.0.0/16", "198.18.0.10", &[1]) };
    let routes = [
        Route::v4("20.0.0.0/8", "198.18.0.10", &[64510, 64999]),
        Route::v4("20.1.0.0/16", "198.18.0.10", &[64510, 64511, 64512]),
        Route::v4("20.1.0.0/16", "198.18.0.20", &[64520, 64512]).of(1),
        broken,
        Route::v6("2001:db8:1::/48", "2001:db8::10", &[64510]),
    ];
    fs::write(directory.path().join("seed.mrt"), table(&routes)).unwrap();
    let router = Router::start(directory.path(), "one", &seeded("fib"));
    router.await_route("2001:db8:1::/48");

    // Paths from the file compete like a neighbor's.
    let both = eventually("both are there", || {
        Some(router.json(&["bgp", "route", "20.1.0.0/16", "--why"])).filter(|routes| routes.len() == 2)
    });
    let loser = both.iter().find(|route| route["best"] == false).expect("one of two routes is not best");
    assert_eq!(loser["neighbor"], "mrt-198.18.0.10");
    let why = loser["why"].as_str().unwrap();
    assert!(why.contains("path") && why.ends_with("than mrt-198.18.0.20"), "{why}");
    assert!(router.json(&["bgp", "route", "20.3.0.0/16", "--exact"]).is_empty());
    eventually("the log reports the result", || {
        router.log().contains("routes=4 peers=2 refused=1").then_some(())
    });

    // The data plane's table has the same routes.
    eventually("all three are installed", || {
        let view = router.one(&["forwarding"]);
        (view["prefixes"] == serde_json::json!({"ipv4": 2, "ipv6": 1})).then_some(())
    });
    // A prefix counts as installed with its first path; the better path may follow a moment later.
    eventually("the better path is the one installed", || {
        let view = router.one(&["fib", "20.1.2.3"]);
        (view["prefix"] == "20.1.0.0/16" && view["neighbor"] == "198.18.0.20").then_some(())
    });
    assert_eq!(
        router.text("show", &["fib", "20.2.0.1"]),
        "20.2.0.1: forward to 198.18.0.10, by 20.0.0.0/8 (bgp)\n"
    );
    assert!(router.text("show", &["fib", "2001:db8:1::5"]).contains("forward to 2001:db8::10"));
    assert_eq!(router.one(&["fib", "192.0.2.1"])["action"], "no route");
    assert!(router.text("show", &["forwarding"]).contains("Best routes go into the forwarding table"));
}

#[test]
fn what_neighbors_send_changes_the_forwarding_table() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let one = format!("{}install = \"fib\"\n{}", speaker(1, port), neighbor(1, 2, port));
    let one = Router::start(directory.path(), "one", &one);
    let two = format!("{}networks = [\"203.0.113.0/24\"]\n{}", speaker(2, port), neighbor(2, 1, port));
    let two = Router::start(directory.path(), "two", &two);
    let action = || one.one(&["fib", "203.0.113.9"])["action"].as_str().map(str::to_owned);
    eventually("it is installed", || (action()? == "forward").then_some(()));
    two.stop();
    eventually("the route is removed", || (action()? == "no route").then_some(()));
}

#[test]
fn files_say_what_the_table_is_and_what_neighbors_sent() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    // Router one is seeded from a file. It writes table dumps, and updates from router two.
    let routes = [
        Route::v4("20.0.0.0/8", "198.18.0.10", &[64510, 64999]),
        Route::v4("20.0.0.0/8", "198.18.0.20", &[64520, 64999]).of(1),
        Route::v6("2001:db8:1::/48", "2001:db8::10", &[64510]),
    ];
    fs::write(directory.path().join("seed.mrt"), table(&routes)).unwrap();
    let one = format!(
        "{}{}[bgp.seed]\nmrt = \"seed.mrt\"\n[bgp.mrt]\ndump = \"rib.%s.mrt.gz\"\ninterval_s = 1\n\
         updates = \"updates.%s.mrt\"\nrotate_s = 3600\ncompress = true\n",
        speaker(1, port),
        neighbor(1, 2, port)
    );
    let one = Router::start(directory.path(), "one", &one);
    let two = format!("{}networks = [\"203.0.113.0/24\"]\n{}", speaker(2, port), neighbor(2, 1, port));
    let two_config = two.clone();
    let two = Router::start(directory.path(), "two", &two);
    one.await_route("203.0.113.0/24");
    // Router one announces the seeded route to router two.
    two.await_route("20.0.0.0/8");
    fs::write(&two.config, two_config.replace("203.0.113.0/24", "203.0.112.0/24")).unwrap();
    two.text("reload", &[]);
    one.await_route("203.0.112.0/24");
    one.await_no_route("203.0.113.0/24");

    let mut wanted = [
        "TABLE_DUMP2|B|198.18.0.10|64510|20.0.0.0/8|64510 64999|IGP|198.18.0.10|0|0||NAG||",
        "TABLE_DUMP2|B|198.18.0.20|64520|20.0.0.0/8|64520 64999|IGP|198.18.0.20|0|0||NAG||",
        "TABLE_DUMP2|B|198.18.0.10|64510|2001:db8:1::/48|64510|IGP|2001:db8::10|0|0||NAG||",
        "TABLE_DUMP2|B|127.0.0.2|64502|203.0.112.0/24|64502|IGP|127.0.0.2|0|0||NAG||",
    ];
    wanted.sort();
    let dump = eventually("a dump has all of it", || {
        let latest = files(directory.path(), "rib.").pop()?;
        let mut lines = mrt(std::slice::from_ref(&latest));
        lines.sort();
        (lines == wanted).then_some(latest)
    });

    two.stop();
    one.await_no_route("203.0.112.0/24");
    let (status, log) = one.stop();
    assert!(status.success(), "{log}");
    let lines = mrt(&files(directory.path(), "updates."));
    // The withdrawal and the announcement of one change may come in either order.
    assert_eq!((lines.first().unwrap().as_str(), lines.last().unwrap().as_str()), (UP, DOWN));
    let mut sorted = lines.clone();
    sorted.sort();
    assert_eq!(
        sorted,
        [
            "BGP4MP_ET|A|127.0.0.2|64502|203.0.112.0/24|64502|IGP|127.0.0.2|0|0||NAG||",
            "BGP4MP_ET|A|127.0.0.2|64502|203.0.113.0/24|64502|IGP|127.0.0.2|0|0||NAG||",
            UP,
            DOWN,
            "BGP4MP_ET|W|127.0.0.2|64502|203.0.113.0/24",
        ]
    );
    let hidden = files(directory.path(), ".");
    assert!(hidden.is_empty(), "unfinished files are left: {hidden:?}");

    // A dump can seed another router.
    let three = seeded("none").replace("seed.mrt", &dump.to_string_lossy());
    let three = Router::start(directory.path(), "three", &three);
    three.await_route("203.0.112.0/24");
    three.await_route("2001:db8:1::/48");
    eventually("all four are there", || (three.json(&["bgp", "routes"]).len() == 4).then_some(()));
}

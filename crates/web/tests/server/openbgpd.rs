//! The looking glass in the form of bgplgd, compared with what `bgpctl -j` of OpenBGPD 7.7 printed
//! (`tests/fixtures/openbgpd`), and read by structures as strict as those of Alice-LG.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::client::get;
use crate::router::{Fixture, PREFIXES};

fn recorded(name: &str) -> Value {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/openbgpd").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

/// Every field of ours is one of theirs, of the same type; of a list, each element is like one of theirs.
fn is_like(ours: &Value, theirs: &Value) -> Result<(), String> {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => ours.iter().try_for_each(|(name, value)| {
            let known = theirs.get(name).ok_or_else(|| format!("{name} is no field of theirs"))?;
            is_like(value, known).map_err(|why| format!("{name}: {why}"))
        }),
        (Value::Array(ours), Value::Array(theirs)) => ours.iter().try_for_each(|each| {
            let mut whys = theirs.iter().map(|known| is_like(each, known).err());
            match whys.clone().any(|why| why.is_none()) {
                true => Ok(()),
                false => Err(whys.next().flatten().unwrap_or_else(|| "theirs is empty".to_owned())),
            }
        }),
        _ if std::mem::discriminant(ours) == std::mem::discriminant(theirs) => Ok(()),
        _ => Err(format!("{ours}, not like {theirs}")),
    }
}

fn answer(server: &Fixture, path: &str) -> Value {
    let answer = get(server.glass(), path);
    assert!(answer.status == 200 && answer.is_whole, "{path}: {answer:?}");
    answer.json()
}

#[test]
fn fields_are_those_of_bgpctl() {
    let server = Fixture::open();
    for (path, name) in [
        ("/summary", "summary"),
        ("/neighbors", "neighbors"),
        ("/neighbors?neighbor=192.0.2.1", "neighbors"),
        ("/rib?best=1&prefix=10.0.0.0/24", "rib"),
        ("/rib/in?neighbor=r1&prefix=10.0.0.0/24", "rib"),
        ("/rib/out?neighbor=r1", "rib"),
    ] {
        let ours = answer(&server, path);
        is_like(&ours, &recorded(name)).unwrap_or_else(|why| panic!("{path}: {why}"));
        assert!(ours.as_object().is_some_and(|fields| !fields.is_empty()), "{path}");
    }
    // The comparison can fail.
    assert!(is_like(&serde_json::json!({ "neighbors": [{ "state": 1 }] }), &recorded("summary")).is_err());
    assert!(is_like(&serde_json::json!({ "routes": [] }), &recorded("rib")).is_err());
}

#[derive(Deserialize)]
struct Prefixes {
    sent: u64,
    received: u64,
}

#[derive(Deserialize)]
struct Stats {
    prefixes: Prefixes,
}

#[derive(Deserialize)]
struct Neighbor {
    remote_as: String,
    remote_addr: String,
    description: String,
    state: String,
    last_updown: String,
    stats: Stats,
}

#[derive(Deserialize)]
struct Neighbors {
    neighbors: Vec<Neighbor>,
}

#[derive(Deserialize)]
struct From {
    remote_addr: String,
}

#[derive(Deserialize)]
struct Route {
    prefix: String,
    aspath: String,
    true_nexthop: String,
    origin: String,
    #[serde(default)]
    best: bool,
    localpref: u64,
    last_update: String,
    neighbor: From,
    communities: Vec<String>,
    large_communities: Vec<String>,
    extended_communities: Vec<String>,
}

#[derive(Deserialize)]
struct Rib {
    rib: Vec<Route>,
}

fn read<T: for<'de> Deserialize<'de>>(value: Value) -> T {
    serde_json::from_value(value).expect("what readers want")
}

#[test]
fn values_are_as_readers_want_them() {
    // What they print can be read like that too.
    let theirs: Neighbors = read(recorded("neighbors"));
    assert_eq!(
        (theirs.neighbors[0].stats.prefixes.received, theirs.neighbors[0].stats.prefixes.sent),
        (3, 1)
    );
    let server = Fixture::open();
    let ours: Neighbors = read(answer(&server, "/neighbors"));
    let [first, second] = &ours.neighbors[..] else { panic!("two neighbors") };
    assert_eq!((first.remote_as.as_str(), first.remote_addr.as_str()), ("64497", "192.0.2.1"));
    assert_eq!((first.state.as_str(), first.last_updown.as_str()), ("Established", "01:00:36"));
    assert_eq!((first.description.as_str(), first.stats.prefixes.received), ("the <b>first</b>", 3));
    assert_eq!((second.last_updown.as_str(), second.stats.prefixes.sent), ("02:00:00", 0));

    let routes: Rib = read(answer(&server, "/rib?neighbor=r1"));
    assert_eq!(routes.rib.len(), PREFIXES as usize);
    let first = &routes.rib[0];
    assert_eq!((first.prefix.as_str(), first.aspath.as_str()), ("10.0.0.0/24", "64497 64500"));
    assert_eq!((first.true_nexthop.as_str(), first.origin.as_str()), ("192.0.2.9", "IGP"));
    assert_eq!((first.best, first.localpref, first.last_update.as_str()), (true, 100, "00:05:36"));
    assert_eq!(
        (first.neighbor.remote_addr.as_str(), first.communities[0].as_str()),
        ("192.0.2.1", "64497:1")
    );
    assert_eq!(
        (first.large_communities[0].as_str(), first.extended_communities[0].as_str()),
        ("64497:1:2", "rt 64497:5")
    );
}

#[test]
fn who_is_hidden_is_not_shown() {
    let server = Fixture::with(|config| config.looking_glass_hidden = vec!["r2".to_owned()]);
    let all: Neighbors = read(answer(&server, "/neighbors"));
    assert_eq!(all.neighbors.len(), 1);
    // Nothing is an empty object there.
    assert_eq!(answer(&server, "/neighbors?neighbor=r2"), serde_json::json!({}));
    assert_eq!(answer(&server, "/rib?neighbor=r2"), serde_json::json!({}));
    assert_eq!(get(server.glass(), "/rib?ovs=valid").problem(), "bad-request");
}

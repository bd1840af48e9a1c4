//! Two routers with NAT and a firewall share their addresses; connections survive when one of them dies, and when it is
//! back.
//!
//! ```text
//!                  ┌─ eth0 ══ lan   router   wan ══ eth0 ─┐
//!   office ─ br0 ──┤                guest                 ├── br0 ─ outside
//!                  │                 ║ (standby)          │
//!                  └─ peer ══ eth9  guest   eth8 ══ peer ─┘
//! ```

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::site::{GUEST, OFFICE, OUTSIDE, Router, Site, eventually};
use crate::vrrp::share_link;
use thalweg_testdata::Stop;

const IDLE: usize = 50;
const BUSY: usize = 4;
/// Longer than three intervals.
const STANDS_STILL: Duration = Duration::from_secs(2);
/// Far longer than routers take to replace each other.
const PATIENCE: Duration = Duration::from_secs(30);

/// The configuration of router 1 or 2, by its interfaces, and its priority.
fn config(site: &Site, [lan, wan]: [&str; 2], number: u8, priority: u8) -> String {
    // The hosts have 2.
    let (own, other) = (2 * number - 1, 3 - number);
    let key = site.file("standby.key");
    fs::write(&key, "a secret that nobody on the link can guess\n").expect("the folder is writable");
    format!(
        r#"
[ports.lan]
interface = "{lan}"
driver = "af_packet"
addresses = ["10.1.0.{own}/24"]

[ports.wan]
interface = "{wan}"
driver = "af_packet"
addresses = ["198.51.100.{own}/24"]

[[vrrp]]
port = "lan"
id = 51
addresses = "10.1.0.254"
priority = {priority}
interval_ms = 200

[[vrrp]]
port = "wan"
id = 52
addresses = "198.51.100.254"
priority = {priority}
interval_ms = 200

[nat]
outside = "wan"
inside = "lan"
addresses = "198.51.100.254"
port_selection = "hash"

[firewall]
outside = "internet"
tcp_windows = true
tcp_pickup = false

[firewall.zones]
office = "lan"
internet = "wan"

[standby]
listen = "10.2.0.{number}:29190"
peer = "10.2.0.{other}:29190"
key = "{}"
"#,
        key.display()
    )
}

fn site() -> Option<Site> {
    let site = Site::new()?;
    share_link(&site, OFFICE, "eth9");
    share_link(&site, OUTSIDE, "eth8");
    // The link of the two routers alone is the kernel's.
    site.ip(&site.router(), "addr add 10.2.0.1/24 dev guest");
    site.ip(&site.namespace(OFFICE), "route replace default via 10.1.0.254");
    Some(site)
}

fn first(site: &Site) -> Router<'_> {
    site.run_alone(&config(site, ["lan", "wan"], 1, 200), &[])
}

fn is(router: &Router<'_>, state: &str) -> Option<Value> {
    router.show(&["standby"])?.pop().filter(|view| view["state"] == state)
}

/// Whether both virtual routers of a router are in this state.
fn are(router: &Router<'_>, state: &str) -> Option<()> {
    let all = router.show(&["vrrp"])?;
    (all.len() == 2 && all.iter().all(|each| each["state"] == state)).then_some(())
}

/// Waits until both routers have the same, and at least so many NAT sessions and states of the firewall.
fn both_have(active: &Router<'_>, beside: &Router<'_>, least: [usize; 2]) {
    eventually("both have the same", || {
        let (here, there) = (is(active, "covered")?, is(beside, "ready")?);
        let mut tables = ["sessions", "states"].into_iter().zip(least);
        let has = |(table, least)| here[table] == there[table] && there[table].as_u64() >= Some(least as u64);
        tables.all(has).then_some(())
    });
}

/// Connections between the office and the outside, each with both ends.
struct Connections(Vec<(TcpStream, TcpStream)>);

impl Connections {
    fn open(site: &Site, count: usize) -> Self {
        let listener = site.within(&site.namespace(OUTSIDE), || TcpListener::bind((OUTSIDE.v4, 0)));
        let listener = listener.expect("a listener");
        let to = listener.local_addr().expect("an address");
        let connect = || TcpStream::connect_timeout(&to, PATIENCE).expect("the outside answers");
        let one =
            |_| (site.within(&site.namespace(OFFICE), connect), listener.accept().expect("a connection").0);
        let all: Vec<_> = (0..count).map(one).collect();
        for end in all.iter().flat_map(|(client, server)| [client, server]) {
            end.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        }
        Self(all)
    }

    /// Each end says something that the other hears: the outside first, which no router lets in without a state.
    fn speak(&mut self) {
        for (client, server) in &mut self.0 {
            say(server, client, 1000);
            say(client, server, 1000);
        }
    }
}

fn say(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    let (said, mut heard) = (vec![b'x'; bytes], vec![0; bytes]);
    from.write_all(&said).expect("the connection lives");
    to.read_exact(&mut heard).expect("the connection lives");
    assert_eq!(said, heard);
}

#[test]
fn connections_survive_the_death_of_a_router_and_its_return() {
    let Some(site) = site() else { return };
    let mut active = first(&site);
    eventually("the first router is active", || are(&active, "active"));
    let beside = site.run_beside(GUEST, &config(&site, ["eth9", "eth8"], 2, 100));
    eventually("the second one has everything", || is(&beside, "ready"));
    let (mut idle, mut busy) = (Connections::open(&site, IDLE), Connections::open(&site, BUSY));
    idle.speak();
    let (ends, rounds) = (AtomicBool::new(false), [(); BUSY].map(|()| AtomicU64::new(0)));
    // All busy connections have moved this many bytes more.
    let moves_on = || {
        let before = [0, 1, 2, 3].map(|place: usize| rounds[place].load(Ordering::Acquire));
        eventually("bytes move", || {
            rounds
                .iter()
                .zip(before)
                .all(|(now, before)| now.load(Ordering::Acquire) > before + 10)
                .then_some(())
        });
    };
    thread::scope(|scope| {
        let end = Stop(&ends);
        for ((client, server), rounds) in busy.0.iter_mut().zip(&rounds) {
            let ends = &ends;
            scope.spawn(move || {
                while !ends.load(Ordering::Acquire) {
                    say(client, server, 10_000);
                    say(server, client, 10_000);
                    rounds.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        moves_on();
        both_have(&active, &beside, [IDLE + BUSY; 2]);

        active.process.kill();
        eventually("the second router is active", || are(&beside, "active"));
        moves_on();
        idle.speak();
        eventually("it knows that it is alone", || is(&beside, "alone"));

        active = first(&site);
        eventually("the first router is active again", || are(&active, "active"));
        eventually("and the second one its standby", || are(&beside, "backup"));
        moves_on();
        idle.speak();
        eventually("it has everything", || is(&beside, "ready"));
        drop(end);
    });
    idle.speak();
    eventually("and the first one knows", || is(&active, "covered"));
    assert!(active.said(&["standby"], 100).contains("the other can take over"));
}

/// A process stands still for longer than routers take to replace each other, as in a snapshot of its machine.
#[test]
fn connections_survive_a_router_that_stands_still() {
    let Some(site) = site() else { return };
    let active = first(&site);
    eventually("the first router is active", || are(&active, "active"));
    let beside = site.run_beside(GUEST, &config(&site, ["eth9", "eth8"], 2, 100));
    eventually("the second one has everything", || is(&beside, "ready"));
    let mut connections = Connections::open(&site, IDLE);
    connections.speak();
    both_have(&active, &beside, [IDLE; 2]);
    let of_both = |name: &str| -> u64 {
        let all = beside.show(&["vrrp"]).expect("the router answers");
        all.iter().filter_map(|each| each[name].as_u64()).sum()
    };

    // The second one does not take that for silence of the first.
    beside.process.signal("STOP");
    thread::sleep(STANDS_STILL);
    beside.process.signal("CONT");
    let heard = of_both("received");
    eventually("it hears the first one", || (of_both("received") >= heard + 10).then_some(()));
    assert_eq!(of_both("became_active"), 0, "{}", site.log());
    connections.speak();

    // Nor does the first one go on without what the second has learned meanwhile.
    active.process.signal("STOP");
    eventually("the second router is active", || are(&beside, "active"));
    let mut newer = Connections::open(&site, IDLE);
    newer.speak();
    active.process.signal("CONT");
    eventually("the second router is a standby again", || are(&beside, "backup"));
    eventually("and the first one active", || are(&active, "active"));
    connections.speak();
    newer.speak();
}

/// The configuration with the office in a VRF that leaks to the outside.
fn in_vrf(config: &str, vrf: &str) -> String {
    let ports = config.replace("[ports.lan]\n", &format!("[ports.lan]\nvrf = \"{vrf}\"\n"));
    let leak = format!("[vrfs.{vrf}]\n[[vrfs.{vrf}.leaks]]\nfrom = \"main\"\nprefixes = \"0.0.0.0/0\"\n");
    ports + &leak
}

/// The same without a firewall.
fn without_firewall(config: &str) -> String {
    let (before, rest) = config.split_once("[firewall]").expect("a firewall");
    let (_, after) = rest.split_once("[standby]").expect("a standby");
    format!("{before}[standby]{after}")
}

#[test]
fn connections_of_a_vrf_survive_the_death_of_a_router() {
    survive_in_a_vrf(without_firewall, 0);
}

/// The firewall picks no connection up, so without the first router's states the outside would reach nobody.
#[test]
fn connections_of_a_vrf_survive_it_behind_a_firewall() {
    survive_in_a_vrf(str::to_owned, IDLE);
}

/// Connections of a VRF with such a configuration, of which the firewall has so many states.
fn survive_in_a_vrf(with: impl Fn(&str) -> String, states: usize) {
    let Some(site) = site() else { return };
    let of = |ports, number, priority| in_vrf(&with(&config(&site, ports, number, priority)), "red");
    let mut active = site.run_alone(&of(["lan", "wan"], 1, 200), &[]);
    eventually("the first router is active", || are(&active, "active"));
    let beside = site.run_beside(GUEST, &of(["eth9", "eth8"], 2, 100));
    eventually("the second one has everything", || is(&beside, "ready"));
    let mut connections = Connections::open(&site, IDLE);
    connections.speak();
    both_have(&active, &beside, [IDLE, states]);
    active.process.kill();
    eventually("the second router is active", || are(&beside, "active"));
    // The outside speaks first: without sessions it would reach nobody.
    connections.speak();
    let of_vrf = beside.show(&["nat", "--vrf", "red"]).expect("its sessions");
    assert!(of_vrf.len() >= IDLE, "{of_vrf:?}");
}

/// A number of a VRF means another one there.
#[test]
fn a_standby_with_other_vrfs_says_so_and_has_nothing() {
    let Some(site) = site() else { return };
    let active = site.run_alone(&in_vrf(&config(&site, ["lan", "wan"], 1, 200), "red"), &[]);
    eventually("the first router is active", || are(&active, "active"));
    let beside = site.run_beside(GUEST, &in_vrf(&config(&site, ["eth9", "eth8"], 2, 100), "green"));
    let connections = Connections::open(&site, 3);
    for router in [&active, &beside] {
        let counted = |view: &Value| view["counters"]["other_vrfs"].as_u64() > Some(1);
        eventually("it is told, and counted", || is(router, "other-vrfs").filter(counted));
        assert!(router.said(&["standby"], 100).contains("do not have the same names"));
    }
    let view = is(&beside, "other-vrfs").expect("a view");
    assert_eq!((&view["sessions"], &view["states"]), (&0.into(), &0.into()), "{view}");
    drop(connections);
}

/// Another secret is as good as none.
#[test]
fn a_router_without_the_secret_learns_and_tells_nothing() {
    let Some(site) = site() else { return };
    let active = first(&site);
    eventually("the first router is active", || are(&active, "active"));
    let stranger = config(&site, ["eth9", "eth8"], 2, 100);
    fs::write(site.file("standby.key"), "another secret, which is as long as it has to be\n")
        .expect("writable");
    let stranger = site.run_beside(GUEST, &stranger);
    let connections = Connections::open(&site, 3);
    eventually("both drop what they hear", || {
        let views = [&active, &stranger].map(|router| is(router, "alone"));
        let forged = |view: &Value| view["counters"]["forged"].as_u64() > Some(3);
        views.iter().all(|view| view.as_ref().is_some_and(forged)).then_some(())
    });
    let view = is(&stranger, "alone").expect("a view");
    assert_eq!((&view["sessions"], &view["states"]), (&0.into(), &0.into()), "{view}");
    drop(connections);
}

/// At boot the link's address may come after the router.
#[test]
fn a_router_starts_before_the_link_to_its_standby_has_an_address() {
    let Some(site) = site() else { return };
    site.ip(&site.router(), "addr del 10.2.0.1/24 dev guest");
    let mut router = first(&site);
    eventually("the missing address is told", || site.log().contains("10.2.0.1:29190 yet").then_some(()));
    let unsent = |view: &Value| view["counters"]["unsent"].as_u64() > Some(0);
    eventually("what is not sent is counted", || is(&router, "alone").filter(unsent));
    site.ip(&site.router(), "addr add 10.2.0.1/24 dev guest");
    eventually("it uses the address", || site.log().contains("uses 10.2.0.1:29190 now").then_some(()));
    assert_eq!(site.log().matches("10.2.0.1:29190 yet").count(), 1, "{}", site.log());
    assert_eq!(router.process.end_code(), Some(0), "{}", site.log());
}

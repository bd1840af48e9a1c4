//! The four schedulings, with one thread and with many, produce the same tables from the same neighbors.
//!
//! Each run is a speaker under a scheduling, with real threads and real (local) sockets. Neighbors of a trace
//! replay their messages concurrently; each ends with a route to one prefix in every shard, so that when these
//! arrive everything before has arrived. Two more such rounds of one neighbor show when everything has been passed
//! on. The runs are compared with the serial one, route by route: the table with the best route of every prefix,
//! the decoded messages to a listening neighbor, and the changes that a reader has received.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_bgp::peer::PeerTable;
use thalweg_bgp::route::{Change, RouteAddress, SHARDS, SharedChanges, shard_of};
use thalweg_config::{BgpConfig, RouterConfig};
use thalweg_exec::control_plane::{SchedulingKind, SchedulingOptions, schedule};
use thalweg_node::control::{BgpNeighborView, BgpRequest, ByFamily, RouteFilter, RouteView};
use thalweg_node::speaker::{RouteReader, Speaker, SpeakerOptions};
use thalweg_ports::MrtReader;
use thalweg_testdata::{shared, uninterrupted};
use thalweg_wire::bgp::{
    AsPath, Codec, MpNlri, PeerFacts, Update, begin_attributes, begin_update, finish_attributes,
    finish_message, frame, write_nlri,
};
use thalweg_wire::mrt::{AsSize, Content};

use crate::local::{self, Ending, announce, ask, eventually, greeting, plain_attributes};

const OWN_AS: u32 = 64_998;
const LISTENER_AS: u32 = 64_999;
const LISTENER: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);

/// A neighbor's input: its AS and its UPDATEs, as consecutive whole messages.
type Trace = Vec<(u32, Vec<u8>)>;

/// Best routes according to the changes.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<BTreeMap<IpPrefix, String>>>);

impl Told {
    fn take<A: RouteAddress>(&self, changes: &[Change<A>]) {
        let mut table = self.0.lock().unwrap();
        for change in changes {
            let prefix = A::to_ip_prefix(change.prefix);
            let old = change.old.as_ref().map(|old| old.attrs.as_path().to_string());
            let known = match &change.new {
                Some(new) => table.insert(prefix, new.attrs.as_path().to_string()),
                None => table.remove(&prefix),
            };
            assert_eq!(known, old, "changes of {prefix} follow each other");
        }
    }
}

impl RouteReader for Told {
    fn handle_changes(&mut self, changes: &SharedChanges, _: &PeerTable) {
        self.take(&changes.v4);
        self.take(&changes.v6);
    }

    fn flush(&mut self) {}
}

/// The result of a run, sorted.
#[derive(PartialEq)]
struct Answer {
    /// Best routes in full.
    best: Vec<String>,
    /// The table of the listening neighbor.
    sent: BTreeMap<IpPrefix, String>,
}

fn config() -> Arc<BgpConfig> {
    let text = format!(
        "[bgp]\nas = {OWN_AS}\nrouter_id = \"198.18.0.1\"\nlisten = []\ninstall = \"none\"\nhold_time_s = 0\n\
         families = [\"ipv4\", \"ipv6\"]\n\
         [[bgp.group]]\nname = \"trace\"\nas = \"any\"\ndynamic = [\"127.0.0.0/16\"]\nimport = \"accept\"\n\
         first_as_check = false\nas_set = \"accept\"\n\
         [[bgp.neighbor]]\naddress = \"{LISTENER}\"\nas = {LISTENER_AS}\nimport = \"reject\"\nexport = \"accept\"\npassive = true\n\
         next_hop = [\"2001:db8::1\"]\n"
    );
    let config = RouterConfig::from_text("router.toml", &text, Path::new(""));
    Arc::new(config.unwrap_or_else(|errors| panic!("{errors}")).bgp.unwrap())
}

/// A /32 in each shard.
fn markers(from: u32) -> Vec<Prefix<u32>> {
    let mut found: HashMap<usize, Prefix<u32>> = HashMap::new();
    let all = (from..).map(|address| Prefix::new(address, 32).unwrap());
    for prefix in all {
        found.entry(shard_of(prefix)).or_insert(prefix);
        if found.len() == SHARDS {
            break;
        }
    }
    found.into_values().collect()
}

fn withdraw(out: &mut Vec<u8>, prefixes: &[Prefix<u32>]) {
    let message = begin_update(out);
    prefixes.iter().for_each(|prefix| write_nlri(out, None, *prefix));
    let start = begin_attributes(out, message);
    finish_attributes(out, start);
    finish_message(out, message).unwrap();
}

/// Keeps up a table of what arrives, until the connection ends.
fn listen(mut stream: UnixStream, table: &Mutex<BTreeMap<IpPrefix, String>>) {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(read @ 1..) = uninterrupted(|| stream.read(&mut buffer)) {
        bytes.extend_from_slice(&buffer[..read]);
        let mut done = 0;
        while let Some(message) = frame(&bytes[done..], 65_535).expect("good messages") {
            if message.kind == thalweg_wire::bgp::MessageKind::Update {
                hear(message.body, &mut table.lock().unwrap());
            }
            done += message.length;
        }
        bytes.drain(..done);
    }
}

fn hear(body: &[u8], table: &mut BTreeMap<IpPrefix, String>) {
    let codec = Codec { four_octet_as: true, extended_messages: true, ..Codec::default() };
    let update = Update::parse(body, &codec, &PeerFacts::default()).expect("a good UPDATE");
    assert_eq!(update.verdict, Default::default());
    for (_, prefix) in update.withdrawn.iter() {
        table.remove(&IpPrefix::V4(prefix));
    }
    match update.mp_unreach {
        Some(MpNlri::Ipv4(routes)) => routes.iter().for_each(|(_, p)| drop(table.remove(&IpPrefix::V4(p)))),
        Some(MpNlri::Ipv6(routes)) => routes.iter().for_each(|(_, p)| drop(table.remove(&IpPrefix::V6(p)))),
        None => {}
    }
    let mut scratch = Vec::new();
    let path = AsPath::new(update.as_path(&mut scratch)).to_string();
    let mut rest: Vec<_> =
        update.attributes().map(|each| (each.code, each.flags, each.value.to_vec())).collect();
    rest.sort_unstable();
    let route = format!("{path} {rest:?} {:?}", update.mp_reach.map(|reach| reach.next_hop));
    for (_, prefix) in update.reach_v4.iter() {
        table.insert(IpPrefix::V4(prefix), route.clone());
    }
    match update.mp_reach.map(|reach| reach.routes) {
        Some(MpNlri::Ipv4(routes)) => {
            routes.iter().for_each(|(_, p)| drop(table.insert(IpPrefix::V4(p), route.clone())));
        }
        Some(MpNlri::Ipv6(routes)) => {
            routes.iter().for_each(|(_, p)| drop(table.insert(IpPrefix::V6(p), route.clone())));
        }
        None => {}
    }
}

/// Messages to other ASes, and the beginning of their paths.
fn sent_path(route: &RouteView) -> Option<(IpPrefix, String)> {
    let kept = ["65535:65281", "65535:65282", "65535:65283"];
    let stays = route.communities.iter().any(|each| kept.contains(&each.as_str()));
    let path = format!("{OWN_AS} {} ", route.as_path).replace("  ", " ");
    (!stays).then(|| (route.prefix.parse().unwrap(), path))
}

fn run(trace: &Trace, kind: SchedulingKind, threads: usize) -> Answer {
    let (network, mut door) = local::network();
    let told = Told::default();
    let options = SpeakerOptions {
        readers: vec![Box::new(told.clone())],
        ..SpeakerOptions::new(network, threads as u64)
    };
    let speaker = Speaker::new(config(), options).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let table = Mutex::new(BTreeMap::new());
    let (markers, ends) = (markers(0xc612_0000), markers(0xc613_0000));
    thread::scope(|scope| {
        let scheduling = scope.spawn(|| schedule(&speaker, SchedulingOptions { kind, threads }, &stop));
        let mut ending = Ending(&stop, &speaker, Vec::new());
        let mut listener = door.connect(LISTENER);
        listener.write_all(&greeting(LISTENER_AS, LISTENER)).unwrap();
        ending.2.push(listener.try_clone().unwrap());
        scope.spawn(|| listen(listener, &table));
        for (index, (asn, messages)) in trace.iter().enumerate() {
            let address = Ipv4Addr::new(127, 0, (index / 250) as u8, (index % 250 + 2) as u8);
            let mut stream = door.connect(address);
            ending.2.push(stream.try_clone().unwrap());
            let mut tail = Vec::new();
            announce(&mut tail, plain_attributes(&[*asn], [192, 0, 2, 1]), &markers);
            scope.spawn(move || {
                // Fails only if the run ends early.
                let _ = stream.write_all(&greeting(*asn, address));
                let _ = stream.write_all(messages);
                let _ = stream.write_all(&tail);
            });
        }
        for marker in &markers {
            let destination = marker.to_string();
            let request = BgpRequest::Route { destination, exact: true, why: false };
            eventually("the last routes", || ask::<RouteView>(&speaker, &request).len() == trace.len());
        }
        // Everything known before the first of these is passed on with it or earlier; everything sent with the
        // first has arrived when the second does.
        let mut first = ending.2[1].try_clone().unwrap();
        for times in 1..=2 {
            let path = vec![trace[0].0; times];
            let mut message = Vec::new();
            announce(&mut message, plain_attributes(&path, [192, 0, 2, 1]), &ends);
            first.write_all(&message).unwrap();
            let text: Vec<String> = path.iter().map(u32::to_string).collect();
            let text = text.join(" ");
            eventually("the listener and the reader", || {
                let (heard, told) = (table.lock().unwrap(), told.0.lock().unwrap());
                ends.iter().all(|end| {
                    let end = IpPrefix::V4(*end);
                    let heard =
                        heard.get(&end).is_some_and(|route| route.starts_with(&format!("{OWN_AS} {text} [")));
                    heard && told.get(&end) == Some(&text)
                })
            });
        }
        let best = RouteFilter { best: true, ..RouteFilter::default() };
        let best: Vec<RouteView> = ask(&speaker, &BgpRequest::Routes(best));
        let wanted: BTreeMap<IpPrefix, String> = best.iter().filter_map(sent_path).collect();
        let heard = table.lock().unwrap().clone();
        assert!(heard.keys().eq(wanted.keys()), "the listener has the prefixes that go out");
        for (prefix, path) in &wanted {
            assert!(
                heard[prefix].starts_with(path.as_str()),
                "{prefix}: heard {}, not {path}",
                heard[prefix]
            );
        }
        speaker.count_sent();
        let views: Vec<BgpNeighborView> = ask(&speaker, &BgpRequest::Neighbors);
        let listener = views.iter().find(|view| view.address == LISTENER).expect("the listener");
        let [ipv4, ipv6] = [true, false]
            .map(|is_v4| heard.keys().filter(|prefix| prefix.address().is_ipv4() == is_v4).count() as u64);
        assert_eq!(listener.sent_by_family, Some(ByFamily { ipv4, ipv6 }), "what it is sent is what it has");
        let paths = best.iter().map(|route| (route.prefix.parse().unwrap(), route.as_path.clone()));
        assert!(*told.0.lock().unwrap() == paths.collect(), "the reader was told what is best");
        drop(ending);
        scheduling.join().unwrap().unwrap();
        let mut lines: Vec<String> =
            best.into_iter().map(|route| format!("{:?}", RouteView { age_s: 0, ..route })).collect();
        lines.sort_unstable();
        Answer { best: lines, sent: heard }
    })
}

/// Compares all schedulings with the serial one.
fn compare(name: &str, trace: &Trace, threads: &[usize]) {
    let serial = run(trace, SchedulingKind::Serial, 1);
    assert!(serial.best.len() > 100 && !serial.sent.is_empty(), "{name}: there is something to compare");
    for kind in [SchedulingKind::PerPeer, SchedulingKind::Dynamic, SchedulingKind::Sharded] {
        for &threads in if kind == SchedulingKind::PerPeer { &[1][..] } else { threads } {
            let other = run(trace, kind, threads);
            for (a, b) in serial.best.iter().zip(&other.best) {
                assert_eq!(a, b, "{name}: {kind} with {threads} threads chooses differently");
            }
            assert_eq!(serial.best.len(), other.best.len(), "{name}: {kind} with {threads} threads");
            for (a, b) in serial.sent.iter().zip(&other.sent) {
                assert_eq!(a, b, "{name}: {kind} with {threads} threads sends something else");
            }
            assert!(serial == other, "{name}: {kind} with {threads} threads");
        }
    }
}

/// A trace from a file: at most `max` messages or routes.
fn read_trace(path: &Path, max: usize) -> Trace {
    let mut reader = MrtReader::open(path).unwrap();
    let mut places: HashMap<(IpAddr, u32), usize> = HashMap::new();
    let mut trace = Trace::new();
    let mut count = 0;
    let mut place = |trace: &mut Trace, address, asn| {
        *places.entry((address, asn)).or_insert_with(|| {
            trace.push((asn, Vec::new()));
            trace.len() - 1
        })
    };
    while let Some(item) = reader.next() {
        let Ok(item) = item else { continue };
        match item.content {
            Content::Message(message)
                if message.message_type == 2 && message.as_size == AsSize::Four && !message.add_path =>
            {
                let place = place(&mut trace, message.peer.address, message.peer.asn);
                message.write(&mut trace[place].1);
                count += 1;
            }
            Content::Rib(rib) => {
                for entry in rib.entries() {
                    let (IpPrefix::V4(prefix), AsSize::Four) = (entry.prefix, entry.as_size) else {
                        continue;
                    };
                    let place = place(&mut trace, entry.peer.address, entry.peer.asn);
                    let attributes = |out: &mut Vec<u8>| out.extend_from_slice(entry.attributes);
                    announce(&mut trace[place].1, attributes, &[prefix]);
                    count += 1;
                }
            }
            _ => {}
        }
        if count >= max {
            break;
        }
    }
    trace
}

#[test]
fn updates_of_a_real_collector() {
    if let Some(path) = shared("mrt/updates.routeviews.20260222.1530.bz2") {
        compare("updates", &read_trace(&path, 60_000), &[1, 2, 4, 8]);
    }
}

#[test]
fn a_real_table() {
    if let Some(path) = shared("mrt/rib.ris-rrc00.20000111.0032.td2.gz") {
        compare("table", &read_trace(&path, 60_000), &[1, 2, 4, 8]);
    }
}

/// Neighbors that announce and withdraw the same prefixes repeatedly, in many ways.
#[test]
fn made_up_updates() {
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let trace: Trace = (0..8)
        .map(|neighbor| {
            let asn = 64_512 + neighbor;
            let mut messages = Vec::new();
            for _ in 0..2000 {
                let count = 1 + random(20);
                let prefixes: Vec<Prefix<u32>> = (0..count)
                    .map(|_| Prefix::new(0x0a00_0000 + ((random(600) as u32) << 8), 24).unwrap())
                    .collect();
                if random(3) == 0 {
                    withdraw(&mut messages, &prefixes);
                } else {
                    let path: Vec<u32> = std::iter::once(asn)
                        .chain((0..random(4)).map(|_| 64_600 + random(5) as u32))
                        .collect();
                    let next_hop = [192, 0, 2, 1 + random(3) as u8];
                    announce(&mut messages, plain_attributes(&path, next_hop), &prefixes);
                }
            }
            (asn, messages)
        })
        .collect();
    compare("made up", &trace, &[1, 2, 4, 8]);
}

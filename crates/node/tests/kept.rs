//! A neighbor's routes kept as it sent them: what is shown of them, and what a new import policy makes of them.
//!
//! The oracle of a reload is a fresh session under the last policy: both must come to the same routes, the same
//! rejected ones and the same reasons. Policies and UPDATEs are random, policies change while UPDATEs arrive, and the
//! neighbor is asked for nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;

use proptest::prelude::*;
use thalweg_base::Prefix;
use thalweg_bgp::route::{SHARDS, shard_of};
use thalweg_bgp::rpki::{Vrp, VrpList, VrpTable};
use thalweg_config::{BgpConfig, RouterConfig};
use thalweg_exec::control_plane::{SchedulingKind, SchedulingOptions, schedule};
use thalweg_node::control::{
    BgpNeighborView, BgpRequest, MemoryView, RouteFilter, RouteView, RpkiView, ValidityView,
};
use thalweg_node::speaker::{Speaker, SpeakerOptions};
use thalweg_testdata::uninterrupted;
use thalweg_wire::bgp::{
    MessageKind, attribute, begin_attributes, begin_update, finish_attributes, finish_message, frame,
    write_attribute, write_nlri,
};

use crate::local::{self, Ending, announce, ask, eventually, greeting, plain_attributes};

const OWN_AS: u32 = 64_998;
const NEIGHBOR_AS: u32 = 64_500;
const NEIGHBOR: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);

/// A router with one neighbor, with these rules of its import policy and further keys.
fn config(rules: &str, keys: &str) -> Arc<BgpConfig> {
    let text = format!(
        "[bgp]\nas = {OWN_AS}\nrouter_id = \"198.18.0.1\"\nlisten = []\ninstall = \"none\"\nhold_time_s = 0\n\
         [[bgp.neighbor]]\nname = \"n\"\naddress = \"{NEIGHBOR}\"\nas = {NEIGHBOR_AS}\nimport = \"in\"\n\
         passive = true\nhonor_blackhole = true\n{keys}\n{rules}"
    );
    let config = RouterConfig::from_text("router.toml", &text, Path::new(""));
    Arc::new(config.unwrap_or_else(|errors| panic!("{errors}\n{text}")).bgp.unwrap())
}

const ONE_THREAD: SchedulingOptions = SchedulingOptions { kind: SchedulingKind::Serial, threads: 1 };

const KEEP: &str = "keep_rejected = \"all\"";

/// Everything that a reload decides, in words.
#[derive(Debug, PartialEq)]
struct Picture {
    rib: BTreeSet<String>,
    sent: BTreeSet<String>,
    rejected: BTreeSet<String>,
    /// IPv4 routes that are accepted, kept and rejected.
    counts: [u64; 3],
}

fn routes(speaker: &Speaker, filter: RouteFilter) -> Vec<RouteView> {
    ask(speaker, &BgpRequest::Routes(filter))
}

fn words(routes: Vec<RouteView>) -> BTreeSet<String> {
    let count = routes.len();
    let words: BTreeSet<String> =
        routes.into_iter().map(|route| format!("{:?}", RouteView { age_s: 0, ..route })).collect();
    assert_eq!(words.len(), count, "no route is shown twice");
    words
}

fn neighbor(speaker: &Speaker) -> BgpNeighborView {
    ask(speaker, &BgpRequest::Neighbors).remove(0)
}

fn picture(speaker: &Speaker) -> Picture {
    let filter = |pre_policy, rejected| RouteFilter {
        neighbor: Some("n".to_owned()),
        pre_policy,
        rejected,
        ..RouteFilter::default()
    };
    let view = neighbor(speaker);
    let of = |counts: Option<thalweg_node::control::ByFamily<u64>>| counts.unwrap_or_default().ipv4;
    Picture {
        rib: words(routes(speaker, filter(false, false))),
        sent: words(routes(speaker, filter(true, false))),
        rejected: words(routes(speaker, filter(false, true))),
        counts: [view.accepted_by_family.ipv4, of(view.kept_by_family), of(view.rejected_by_family)],
    }
}

/// A prefix in each shard: when they have arrived, so has all that was sent before them.
fn markers() -> Vec<Prefix<u32>> {
    let mut found: HashMap<usize, Prefix<u32>> = HashMap::new();
    for prefix in (0xc612_0000_u32..).map(|address| Prefix::new(address, 32).unwrap()) {
        found.entry(shard_of(prefix)).or_insert(prefix);
        if found.len() == SHARDS {
            break;
        }
    }
    found.into_values().collect()
}

/// Reads what the neighbor is sent until the connection ends; returns the kinds of messages.
fn hear(mut stream: UnixStream) -> Vec<MessageKind> {
    let (mut bytes, mut buffer, mut kinds) = (Vec::new(), vec![0; 1 << 16], Vec::new());
    while let Ok(read @ 1..) = uninterrupted(|| stream.read(&mut buffer)) {
        bytes.extend_from_slice(&buffer[..read]);
        let mut done = 0;
        while let Some(message) = frame(&bytes[done..], 65_535).expect("good messages") {
            kinds.push(message.kind);
            done += message.length;
        }
        bytes.drain(..done);
    }
    kinds
}

/// What changes while a neighbor sends its messages.
#[derive(Clone, Debug)]
enum Change {
    Config(Arc<BgpConfig>),
    Vrps(Arc<VrpTable>),
}

impl Change {
    fn apply(&self, speaker: &Speaker) {
        match self {
            Self::Config(config) => drop(speaker.reload(config.clone()).unwrap()),
            Self::Vrps(vrps) => speaker.set_vrps(vrps.clone()),
        }
    }
}

/// Runs a router that begins like this, and whose policies and VRPs follow each other while the neighbor sends its messages, and waits until `is_end`
/// says that the picture is the last one. Returns it, with the kinds of messages that the neighbor was sent.
fn run(
    kind: SchedulingKind,
    (first, vrps): (&Arc<BgpConfig>, Option<&Arc<VrpTable>>),
    changes: &[Change],
    messages: &[u8],
    is_end: &dyn Fn(&Picture) -> bool,
) -> (Picture, Vec<MessageKind>) {
    let (network, mut door) = local::network();
    let speaker = Speaker::new(first.clone(), SpeakerOptions::new(network, 1)).unwrap();
    vrps.iter().for_each(|vrps| speaker.set_vrps(Arc::clone(vrps)));
    let stop = Arc::new(AtomicBool::new(false));
    let markers = markers();
    let mut tail = Vec::new();
    announce(&mut tail, plain_attributes(&[NEIGHBOR_AS], [192, 0, 2, 1]), &markers);
    let mut last = None;
    let mut heard = Vec::new();
    thread::scope(|scope| {
        let scheduling = scope.spawn(|| schedule(&speaker, SchedulingOptions { kind, threads: 3 }, &stop));
        let mut stream = door.connect(NEIGHBOR);
        let ending = Ending(&stop, &speaker, vec![stream.try_clone().unwrap()]);
        let ear = stream.try_clone().unwrap();
        let hearing = scope.spawn(move || hear(ear));
        stream.write_all(&greeting(NEIGHBOR_AS, NEIGHBOR)).unwrap();
        eventually("the session", || neighbor(&speaker).negotiated.is_some());
        assert!(neighbor(&speaker).negotiated.is_some_and(|agreed| agreed.route_refresh));
        scope.spawn(move || {
            // Fails only if the run ends early.
            let _ = stream.write_all(messages);
            let _ = stream.write_all(&tail);
        });
        for change in changes {
            // Somewhere in the midst of the messages; where does not matter.
            thread::yield_now();
            change.apply(&speaker);
        }
        let mut arrived = false;
        eventually("the last picture", || {
            let now = picture(&speaker);
            let inside = |prefix: &Prefix<u32>| {
                let prefix = format!("prefix: \"{prefix}\"");
                now.sent.iter().any(|route| route.contains(&prefix))
            };
            // Only a picture that begins after the last arrival shows all of it.
            let is = arrived && is_end(&now);
            arrived = arrived || markers.iter().all(inside);
            last = is.then_some(now);
            is
        });
        drop(ending);
        scheduling.join().unwrap().unwrap();
        heard = hearing.join().unwrap();
    });
    (last.unwrap(), heard)
}

/// Rules of the set `in` from a recipe.
fn rules(recipe: &[(u8, u8, u8)], default: bool) -> String {
    let matches = [
        "",
        "match = { prefix = [\"10.0.0.0/9 le 32\"] }",
        "match = { prefix_length = \"25-32\" }",
        "match = { origin_as = [64601] }",
        "match = { path_length = \"3-9\" }",
        "match = { community = [\"64500:1\"] }",
        "match = { med = \"0-5\" }",
        "match = { community = [\"64500:9\"] }",
        "match = { rpki = \"invalid\" }",
        "unless = { rpki = [\"valid\", \"not-found\"] }",
        "match = { rpki = \"valid\" }",
    ];
    let sets = [
        "",
        "set = { local_pref = 200 }",
        "set = { communities_add = [\"64500:9\"] }",
        "set = { prepend = 2, med = \"remove\" }",
        "set = { discard = true }",
        "set = { communities_remove = [\"blackhole\", \"graceful-shutdown\"] }",
    ];
    let actions = ["accept", "reject", "next"];
    let mut text = String::new();
    for (number, (condition, set, action)) in recipe.iter().enumerate() {
        let pick = |list: &[&'static str], at: u8| list[usize::from(at) % list.len()];
        text += &format!(
            "[[policy.rules.in]]\nname = \"rule {number}\"\n{}\n{}\naction = {:?}\n",
            pick(&matches, *condition),
            pick(&sets, *set),
            pick(&actions, *action)
        );
    }
    let default = if default { "accept" } else { "reject" };
    text + &format!("[[policy.rules.in]]\ndefault = {default:?}\n")
}

/// Announcements and withdrawals from a recipe: a prefix, a path, communities, MED.
fn messages(recipe: &[(u8, u8, u8, u8)]) -> Vec<u8> {
    let mut out = Vec::new();
    for &(place, way, tags, med) in recipe {
        let (byte, count) = (u32::from(place % 40), 1 + u32::from(med % 3));
        let prefix = |more: u32| {
            let first = if place % 40 == 39 { 127 } else { 10 };
            let length = if tags & 16 == 0 { 24 } else { 32 };
            Prefix::new((first << 24) + ((byte * 5 + more) << 16), length).unwrap()
        };
        let prefixes: Vec<Prefix<u32>> = (0..count).map(prefix).collect();
        if way % 8 == 7 {
            let message = begin_update(&mut out);
            prefixes.iter().for_each(|prefix| write_nlri(&mut out, None, *prefix));
            let start = begin_attributes(&mut out, message);
            finish_attributes(&mut out, start);
            finish_message(&mut out, message).unwrap();
            continue;
        }
        let path: &[u32] = [
            &[NEIGHBOR_AS][..],
            &[NEIGHBOR_AS, 64_601],
            &[NEIGHBOR_AS, 64_602, 64_601],
            &[NEIGHBOR_AS, OWN_AS],
            &[64_601, NEIGHBOR_AS],
            &[NEIGHBOR_AS, 64_602],
            &[NEIGHBOR_AS, 64_603, 64_604, 64_605],
        ][usize::from(way % 8)];
        let attributes = |out: &mut Vec<u8>| {
            plain_attributes(path, [192, 0, 2, 1 + way % 3])(out);
            if med < 128 {
                let value = u32::from(med % 10).to_be_bytes();
                write_attribute(out, attribute::FLAG_OPTIONAL, attribute::MED, &value);
            }
            let known = [0xfbf4_0001_u32, 0xfbf4_0009, 0xffff_029a, 0xffff_0000];
            let given = known.iter().enumerate().filter(|(bit, _)| tags & 1 << bit != 0);
            let value: Vec<u8> = given.flat_map(|(_, community)| community.to_be_bytes()).collect();
            if !value.is_empty() {
                let flags = attribute::FLAG_OPTIONAL | attribute::FLAG_TRANSITIVE;
                write_attribute(out, flags, attribute::COMMUNITIES, &value);
            }
        };
        announce(&mut out, attributes, &prefixes);
    }
    out
}

/// Words for the reason of each rejected route, and how often each is counted.
fn reasons(picture: &Picture) -> BTreeMap<String, u64> {
    let mut reasons = BTreeMap::new();
    for route in &picture.rejected {
        let reason = route.split("rejected: Some(\"").nth(1).and_then(|rest| rest.split('"').next());
        *reasons.entry(reason.expect("a rejected route has a reason").to_owned()).or_default() += 1;
    }
    reasons
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A reload comes to what a fresh session comes to, whenever it happens, and without a route refresh.
    #[test]
    fn a_reload_is_a_fresh_session(
        recipes in proptest::collection::vec(
            (proptest::collection::vec(any::<(u8, u8, u8)>(), 0..5), any::<bool>()), 2..5),
        sent in proptest::collection::vec(any::<(u8, u8, u8, u8)>(), 1..150),
        kind in 0usize..4,
    ) {
        let kind = SchedulingKind::ALL[kind];
        let messages = messages(&sent);
        let configs: Vec<_> = recipes.iter().map(|(recipe, default)| config(&rules(recipe, *default), KEEP)).collect();
        let fresh = (configs.last().expect("some"), None);
        let changes: Vec<_> = configs[1..].iter().cloned().map(Change::Config).collect();
        // In a fresh session everything has been judged when it has arrived.
        let (expected, _) = run(SchedulingKind::Serial, fresh, &[], &messages, &|_| true);
        let [accepted, kept, rejected] = expected.counts;
        prop_assert_eq!([kept, rejected], [expected.sent.len() as u64, expected.rejected.len() as u64]);
        prop_assert_eq!((accepted, accepted + rejected), (expected.rib.len() as u64, kept));
        let (reached, heard) = run(kind, (&configs[0], None), &changes, &messages, &|now| *now == expected);
        prop_assert_eq!(reached, expected);
        prop_assert!(!heard.contains(&MessageKind::RouteRefresh), "the neighbor is not asked");
    }

    /// Other VRPs come to what a fresh session under them comes to, under every scheduling, also if policies change
    /// meanwhile.
    #[test]
    fn other_vrps_are_a_fresh_session(
        recipes in proptest::collection::vec(
            (proptest::collection::vec(any::<(u8, u8, u8)>(), 0..4), any::<bool>(), any::<bool>()), 1..3),
        vrps in proptest::collection::vec(proptest::collection::vec(any::<(u8, u8, u8)>(), 0..30), 1..5),
        sent in proptest::collection::vec(any::<(u8, u8, u8, u8)>(), 1..150),
        kind in 0usize..4,
    ) {
        let kind = SchedulingKind::ALL[kind];
        let messages = messages(&sent);
        let configs: Vec<_> = recipes.iter().map(|(recipe, default, rejects)| {
            // The first rule of each policy asks for validity.
            let recipe: Vec<_> = [(8, 1, 2), (10, 2, 2)].iter().chain(recipe).copied().collect();
            let rejects = if *rejects { "reject-invalid" } else { "ignore" };
            config(&rules(&recipe, *default), &format!("{KEEP}\nrpki = \"{rejects}\""))
        }).collect();
        let tables: Vec<_> = vrps.iter().map(|recipe| table(recipe)).collect();
        let fresh = (configs.last().expect("some"), tables.last());
        let (expected, _) = run(SchedulingKind::Serial, fresh, &[], &messages, &|_| true);
        let mut changes: Vec<_> = tables.iter().cloned().map(Change::Vrps).collect();
        let place = changes.len() / 2;
        changes.splice(place..place, configs[1..].iter().cloned().map(Change::Config));
        let (reached, heard) = run(kind, (&configs[0], None), &changes, &messages, &|now| *now == expected);
        prop_assert_eq!(reached, expected);
        prop_assert!(!heard.contains(&MessageKind::RouteRefresh), "the neighbor is not asked");
    }
}

/// VRPs from a recipe, of prefixes and origins that `messages` has too.
fn table(recipe: &[(u8, u8, u8)]) -> Arc<VrpTable> {
    let vrp = |&(place, length, asn): &(u8, u8, u8)| {
        let prefix =
            Prefix::new((10 << 24) + (u32::from(place) << 16), [8, 12, 16, 24][usize::from(length % 4)]);
        let prefix = prefix.unwrap();
        let max_length = if length & 16 == 0 { prefix.length() } else { prefix.length().max(24) };
        let asn = [0, NEIGHBOR_AS, 64_601, 64_602, 64_605][usize::from(asn % 5)];
        Vrp { prefix: prefix.into(), max_length, asn }
    };
    Arc::new(recipe.iter().map(vrp).collect::<VrpList>().into_table())
}

/// Only what other VRPs may let in is kept; what is accepted is asked for if it may fare otherwise, and withdrawn at
/// once if it became invalid.
#[test]
fn rejected_routes_return_without_the_neighbor() {
    let accept = rules(&[], true);
    let (network, mut door) = local::network();
    let config = config(&accept, "rpki = \"reject-invalid\"");
    let speaker = Speaker::new(config, SpeakerOptions::new(network, 1)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let vrp = |text: &str, asn| Vrp { prefix: text.parse().unwrap(), max_length: 24, asn };
    let set =
        |vrps: &[Vrp]| speaker.set_vrps(Arc::new(vrps.iter().copied().collect::<VrpList>().into_table()));
    let (first, other) = (vrp("10.5.0.0/16", 64_601), vrp("10.10.0.0/16", 64_602));
    let shown = |rejected| {
        let filter = RouteFilter { rejected, ..RouteFilter::default() };
        let of = |route: RouteView| (route.prefix, route.validity.unwrap_or_default(), route.rejected);
        routes(&speaker, filter).into_iter().map(of).collect::<BTreeSet<_>>()
    };
    let route = |prefix: &str, validity: &str, rejected: Option<&str>| {
        (prefix.to_owned(), validity.to_owned(), rejected.map(str::to_owned))
    };
    set(&[first]);
    thread::scope(|scope| {
        scope.spawn(|| schedule(&speaker, ONE_THREAD, &stop));
        let mut stream = door.connect(NEIGHBOR);
        let _ending = Ending(&stop, &speaker, vec![stream.try_clone().unwrap()]);
        let ear = stream.try_clone().unwrap();
        let hearing = scope.spawn(move || hear(ear));
        stream.write_all(&greeting(NEIGHBOR_AS, NEIGHBOR)).unwrap();
        // 10.5.0.0/24 of AS 64601, 10.10.0.0/24 of AS 64601.
        let message = messages(&[(1, 1, 0, 0), (2, 1, 0, 0)]);
        stream.write_all(&message).unwrap();
        let both =
            BTreeSet::from([route("10.5.0.0/24", "valid", None), route("10.10.0.0/24", "not-found", None)]);
        eventually("both routes", || shown(false) == both);
        assert_eq!(neighbor(&speaker).kept_by_family.unwrap_or_default().ipv4, 0);
        set(&[first, other]);
        let valid = BTreeSet::from([route("10.5.0.0/24", "valid", None)]);
        eventually("the invalid one is withdrawn", || shown(false) == valid);
        eventually("the neighbor is asked", || {
            speaker.ask_for_unkept();
            neighbor(&speaker).sent_by_type.route_refresh == 1
        });
        stream.write_all(&message).unwrap();
        let rejected = BTreeSet::from([route("10.10.0.0/24", "invalid", Some("rpki_invalid"))]);
        eventually("the invalid one is kept", || shown(true) == rejected);
        assert_eq!(neighbor(&speaker).kept_by_family.unwrap_or_default().ipv4, 1);
        set(&[first]);
        eventually("it returns", || shown(false) == both && shown(true).is_empty());
        speaker.ask_for_unkept();
        assert_eq!(neighbor(&speaker).sent_by_type.route_refresh, 1, "without the neighbor");
        speaker.count_validity();
        let view: Vec<RpkiView> = ask(&speaker, &BgpRequest::Rpki);
        assert_eq!(
            (view[0].valid_paths.ipv4, view[0].not_found_paths.ipv4, view[0].invalid_paths.ipv4),
            (1, 1, 0)
        );
        let vrps: Vec<ValidityView> =
            ask(&speaker, &BgpRequest::Vrps { prefix: "10.5.0.0/25".to_owned(), origin_as: Some(64_601) });
        assert_eq!((vrps[0].validity.as_deref(), vrps[0].vrps.len()), (Some("invalid"), 1));
        drop(hearing);
    });
}

/// Each prefix is announced once, so the reasons shown are as many as importing counted.
#[test]
fn reasons_are_those_that_were_counted() {
    // The last one is a martian that nothing else rejects.
    let sent: Vec<_> = (0..40).map(|n| if n == 39 { (n, 0, 0, 3) } else { (n, n % 7, n, 3) }).collect();
    let recipe = rules(&[(5, 0, 1), (4, 2, 1)], true);
    let (network, mut door) = local::network();
    let speaker = Speaker::new(config(&recipe, KEEP), SpeakerOptions::new(network, 1)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Mutex::new(None);
    thread::scope(|scope| {
        scope.spawn(|| schedule(&speaker, ONE_THREAD, &stop));
        let mut stream = door.connect(NEIGHBOR);
        let _ending = Ending(&stop, &speaker, vec![stream.try_clone().unwrap()]);
        stream.write_all(&greeting(NEIGHBOR_AS, NEIGHBOR)).unwrap();
        stream.write_all(&messages(&sent)).unwrap();
        eventually("all routes", || picture(&speaker).counts[1] == 40);
        let counted = neighbor(&speaker).counters["rejected"].clone();
        let memory: Vec<MemoryView> = ask(&speaker, &BgpRequest::Memory);
        *seen.lock().unwrap() = Some((picture(&speaker), counted, memory[0].received));
    });
    let (picture, counted, bytes) = seen.into_inner().unwrap().expect("the scope has filled it");
    let shown = reasons(&picture);
    for (name, count) in counted.as_object().expect("counters by reason") {
        assert_eq!(shown.get(name).copied().unwrap_or(0), count.as_u64().unwrap_or(0), "{name}");
    }
    for name in ["as_loop", "first_as", "martian", "policy"] {
        assert!(shown.contains_key(name), "{name}: {shown:?}");
    }
    let by_rule = |words: &str| picture.rejected.iter().filter(|route| route.contains(words)).count();
    assert!(by_rule("rule: Some(\"in, rule 1 (rule 0)\")") > 0, "{:?}", picture.rejected);
    // What the rule added before it rejected the route is shown.
    let marked = picture.rejected.iter().filter(|route| route.contains("in, rule 2 (rule 1)"));
    assert!(marked.clone().count() > 0 && marked.clone().all(|route| route.contains("64500:9")));
    assert!(bytes > 0, "the memory of kept routes is counted");
}

/// To keep routes from now on needs them once; to forget them does not.
#[test]
fn keeping_can_begin_and_end() {
    let accept = rules(&[], true);
    let (network, mut door) = local::network();
    let speaker = Speaker::new(config(&accept, ""), SpeakerOptions::new(network, 1)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| schedule(&speaker, ONE_THREAD, &stop));
        let mut stream = door.connect(NEIGHBOR);
        let _ending = Ending(&stop, &speaker, vec![stream.try_clone().unwrap()]);
        stream.write_all(&greeting(NEIGHBOR_AS, NEIGHBOR)).unwrap();
        let message = messages(&[(1, 0, 0, 0)]);
        stream.write_all(&message).unwrap();
        eventually("the route", || neighbor(&speaker).accepted == 1);
        assert_eq!(neighbor(&speaker).kept_by_family, None);
        let filter =
            RouteFilter { neighbor: Some("n".to_owned()), pre_policy: true, ..RouteFilter::default() };
        let refused = speaker.answer(&BgpRequest::Routes(filter), &mut |_| Ok(())).unwrap().unwrap_err();
        assert!(refused.to_string().contains("keep_rejected"), "{refused}");

        let done = speaker.reload(config(&accept, KEEP)).unwrap();
        assert!(done[0].contains("is asked for its routes"), "{done:?}");
        stream.write_all(&message).unwrap();
        eventually("the route is kept", || {
            neighbor(&speaker).kept_by_family.is_some_and(|kept| kept.ipv4 == 1)
        });
        // The neighbor may not have repeated all of its routes.
        assert_eq!(neighbor(&speaker).rejected_by_family, None);
        let done = speaker.reload(config(&rules(&[], false), KEEP)).unwrap();
        assert!(done[0].contains("is asked for its routes"), "{done:?}");

        let done = speaker.reload(config(&rules(&[], false), "")).unwrap();
        assert_eq!(done, ["neighbor n has new settings"]);
        eventually("nothing is kept", || {
            let memory: Vec<MemoryView> = ask(&speaker, &BgpRequest::Memory);
            memory[0].received == 0
        });
    });
}

//! Compares answers with a slow reference that asks every record, one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use thalweg_base::Name;
use thalweg_flow::{Direction, EndReason, Event, FlowRecord};

use super::*;
use crate::testing::{self, Chance, START_NS};
use crate::writer::{Writer, WriterOptions};

const MINUTE_NS: u64 = 60_000_000_000;

/// A filter's text and its meaning.
type Condition = (&'static str, fn(&FlowRecord) -> bool);

fn in_net(address: IpAddr, net: [u8; 2]) -> bool {
    matches!(address, IpAddr::V4(address) if address.octets()[..2] == net)
}

const CONDITIONS: &[Condition] = &[
    ("", |_| true),
    ("any and not any", |_| false),
    ("udp", |r| r.key.protocol == 17),
    ("ipv6", |r| r.key.src.is_ipv6()),
    ("src net 10.0.0.0/16", |r| in_net(r.key.src, [10, 0])),
    ("ip 10.0.0.7", |r| r.key.src.to_string() == "10.0.0.7" || r.key.dst.to_string() == "10.0.0.7"),
    ("net 2001:db8::/64 or dst 10.0.0.9", |r| {
        r.key.src.is_ipv6() && r.key.src.to_string().starts_with("2001:db8::")
            || r.key.dst.is_ipv6() && r.key.dst.to_string().starts_with("2001:db8::")
            || r.key.dst.to_string() == "10.0.0.9"
    }),
    ("dst port < 100 and proto tcp", |r| r.key.dst_port < 100 && r.key.protocol == 6),
    ("port 1-200", |r| (1..=200).contains(&r.key.src_port) || (1..=200).contains(&r.key.dst_port)),
    ("dst port 53,443,80-90 and proto tcp,udp", |r| {
        matches!(r.key.dst_port, 53 | 443 | 80..=90) && matches!(r.key.protocol, 6 | 17)
    }),
    ("port != http,dns", |r| ![r.key.src_port, r.key.dst_port].iter().any(|port| matches!(port, 80 | 53))),
    ("not as 64503", |r| r.src_as != 64_503 && r.dst_as != 64_503),
    ("packets > 1M", |r| scaled(r, r.packets()) > 1_000_000),
    ("bytes <= 10k", |r| scaled(r, r.bytes()) <= 10_000),
    ("duration >= 30s", |r| r.counters.last_ns - r.counters.first_ns >= 30_000_000_000),
    ("flags SA", |r| r.counters.tcp_flags.is_some_and(|flags| flags & 0x12 == 0x12)),
    ("icmp-type 0-7 or icmp-code > 200", |r| r.key.icmp().is_some_and(|(of, code)| of <= 7 || code > 200)),
    ("ttl > 250", |r| [r.counters.ttl_min, r.counters.ttl_max].into_iter().flatten().any(|ttl| ttl > 250)),
    ("mpls > 1000", |r| r.key.mpls_label.is_some_and(|label| label > 1000)),
    ("ttl < 10", |r| [r.counters.ttl_min, r.counters.ttl_max].into_iter().flatten().any(|ttl| ttl < 10)),
    ("nat", |r| r.translation.is_some()),
    ("vlan != 0", |r| r.key.vlan != 0),
    ("mpls 0-524287", |r| r.key.mpls_label.is_some_and(|label| label < 524_288)),
    ("app dns or app unknown", |r| r.application == 8 || r.application == 0),
    ("dropped > 0", |r| r.drops.packets() > 0),
    ("dropped > 20k", |r| scaled(r, r.drops.packets()) > 20_000),
    ("end active-timeout", |r| r.end_reason == Some(EndReason::ActiveTimeout)),
    ("dscp 10-20", |r| (10..=20).contains(&(r.key.traffic_class >> 2))),
    ("next-hop 10.0.0.0/26", |r| {
        r.next_hop.is_some_and(|hop| in_net(hop, [10, 0]) && hop < "10.0.0.64".parse::<IpAddr>().unwrap())
    }),
    ("sampling > 1 and (ingress 3 || egress 3)", |r| {
        r.sampling_interval > 1 && (r.key.ingress == 3 || r.egress == 3)
    }),
    ("exporter edge1 or exporter co*", |r| ["edge1", "core1"].contains(&&*r.exporter.name.text())),
    ("in-if xe-0/* and not out-if Transit*", |r| {
        r.ingress_name.name.text().starts_with("xe-0/") && r.egress_name.description.text().is_empty()
    }),
    ("name *.example.org", |r| {
        let names = [r.names.server, r.names.resolved, r.names.dns_question];
        names.iter().any(|name| name.text().ends_with(".example.org"))
    }),
    ("server-name = www.example.org or dns-code 1-3", |r| {
        r.names.server.text() == "www.example.org"
            || r.names.dns_code.is_some_and(|code| (1..=3).contains(&code))
    }),
    ("dst-country CH or src-net office*", |r| {
        r.dst_place.country.text() == "CH" || r.src_place.network.text().starts_with("office")
    }),
    ("country DE and not network servers and next-as != 64501", |r| {
        let places = [r.src_place, r.dst_place];
        places.iter().any(|place| place.country.text() == "DE")
            && places.iter().all(|place| place.network.text() != "servers")
            && r.next_as != 64_501
    }),
    ("nat-src-port 20000-40000 and nat-dst-port < 50000", |r| {
        r.translation.is_some_and(|t| {
            let last = r.details.nat_block_end.unwrap_or(t.src_port);
            let is_of_block = t.src_port <= 40_000 && last >= 20_000;
            ((20_000..=40_000).contains(&t.src_port) || is_of_block) && t.dst_port < 50_000
        })
    }),
    ("not nat-src-port 1024", |r| {
        r.translation.is_none_or(|t| {
            t.src_port != 1024
                && !r.details.nat_block_end.is_some_and(|last| (t.src_port..=last).contains(&1024))
        })
    }),
    ("event any", |r| r.details.event.is_some()),
    ("event nat-session-begin or tcp", |r| {
        r.details.event == Some(Event::NatSessionBegin) || r.key.protocol == 6
    }),
    ("direction egress and not in-vrf 1-2", |r| {
        r.details.direction == Some(Direction::Egress)
            && !r.details.ingress_vrf.is_some_and(|vrf| (1..=2).contains(&vrf))
    }),
    ("exporter 10.0.0.0/16 and domain < 3", |r| {
        r.exporter.address.is_some_and(|address| in_net(address, [10, 0]))
            && r.exporter.domain.is_some_and(|domain| domain < 3)
    }),
];

fn number(key: &Key, number: u32) -> KeyValue {
    key.value(number)
}

/// The values of a key in a record: two if it means either end.
fn values(key: &Key, record: &FlowRecord) -> [KeyValue; 2] {
    let both = |value: KeyValue| [value.clone(), value];
    let address = |address: Option<IpAddr>| address.map_or(KeyValue::Unknown, KeyValue::Address);
    let k = &record.key;
    match key.name {
        "src" => both(address(Some(k.src))),
        "dst" => both(address(Some(k.dst))),
        "host" => [address(Some(k.src)), address(Some(k.dst))],
        "src-port" => both(number(key, k.src_port.into())),
        "dst-port" => both(number(key, k.dst_port.into())),
        "port" => [number(key, k.src_port.into()), number(key, k.dst_port.into())],
        "proto" => both(number(key, k.protocol.into())),
        "dst-as" => both(number(key, record.dst_as)),
        "as" => [number(key, record.src_as), number(key, record.dst_as)],
        "app" => both(number(key, record.application.into())),
        "egress" => both(number(key, record.egress)),
        "icmp-type" => both(number(key, k.icmp().map_or(256, |(of, _)| of.into()))),
        "next-hop" => both(address(record.next_hop)),
        "vlan" => both(number(key, k.vlan.into())),
        "mpls" => both(number(key, k.mpls_label.unwrap_or(u32::MAX))),
        "nat-src" => both(address(record.translation.map(|t| t.src))),
        "exporter" => both(number(key, record.exporter.name.code())),
        "exporter-address" => both(address(record.exporter.address)),
        "in-if" => both(number(key, record.ingress_name.name.code())),
        "out-if" => both(number(key, record.egress_name.name.code())),
        "in-vrf" => both(number(key, record.details.ingress_vrf.unwrap_or(u32::MAX))),
        "direction" => both(number(key, record.details.direction.map_or(0, |way| way as u32))),
        "next-as" => both(number(key, record.next_as)),
        "dst-country" => both(number(key, record.dst_place.country.code())),
        "country" => [record.src_place, record.dst_place].map(|place| number(key, place.country.code())),
        "network" => [record.src_place, record.dst_place].map(|place| number(key, place.network.code())),
        "event" => both(number(key, record.details.event.map_or(0, |event| event as u32))),
        "server-name" => both(number(key, record.names.server.code())),
        "dns-name" => both(number(key, record.names.dns_question.code())),
        "dns-code" => both(number(key, record.names.dns_code.map_or(256, u32::from))),
        "domain" => both(number(key, record.exporter.domain.unwrap_or(u32::MAX))),
        other => panic!("the reference does not know {other}"),
    }
}

/// A counter as displayed: scaled to all traffic.
fn scaled(record: &FlowRecord, counter: u64) -> u64 {
    counter.saturating_mul(match record.sampling_interval {
        0 => 1,
        interval => interval.into(),
    })
}

fn amount(record: &FlowRecord) -> Sums {
    Sums { packets: scaled(record, record.packets()), bytes: scaled(record, record.bytes()), flows: 1 }
}

fn reference_groups(records: &[&FlowRecord], keys: &[Key]) -> BTreeMap<Vec<KeyValue>, Sums> {
    let mut groups: BTreeMap<Vec<KeyValue>, Sums> = BTreeMap::new();
    for record in records {
        let pairs: Vec<[KeyValue; 2]> = keys.iter().map(|key| values(key, record)).collect();
        let ends: BTreeSet<Vec<KeyValue>> =
            (0..2).map(|end| pairs.iter().map(|pair| pair[end].clone()).collect()).collect();
        for end in ends {
            groups.entry(end).or_default().add(amount(record));
        }
    }
    groups
}

/// Records, most of them in files, some pending, some the caller's own; and the view of all.
struct World {
    _folder: tempfile::TempDir,
    _writer: Writer,
    records: Vec<FlowRecord>,
    view: View,
}

fn world(seed: u64) -> World {
    let folder = tempfile::tempdir().unwrap();
    let mut options = WriterOptions::new(|| 0);
    options.upkeep_interval_s = 0;
    options.flush_interval_s = 1 << 40;
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    let mut chance = Chance::new(seed);
    let mut part = |count: usize| -> Vec<FlowRecord> {
        (0..count)
            .map(|_| {
                let mut record = testing::any_record(&mut chance);
                // Sums of counters as large as these would not fit; small ones are compared in full.
                record.counters.packets >>= 20;
                record.counters.bytes >>= 20;
                record.details.event = Event::ALL.get(chance.below(200) as usize).copied();
                record
            })
            .collect()
    };
    let mut records = Vec::new();
    for _ in 0..5 {
        let some = part(700);
        writer.append(&some).unwrap();
        writer.flush().unwrap();
        records.extend(some);
    }
    let pending = part(300);
    writer.append(&pending).unwrap();
    let cached = part(200);
    records.extend(pending);
    records.extend(&cached);
    let mut view = writer.view(Window::ALL).unwrap();
    view.add_cached(cached.into());
    World { _folder: folder, _writer: writer, records, view }
}

fn windows() -> [Window; 3] {
    let from = START_NS;
    [
        Window::ALL,
        Window { from_ns: from + 13 * MINUTE_NS, to_ns: from + 71 * MINUTE_NS },
        Window { from_ns: from + 400 * MINUTE_NS, to_ns: u64::MAX },
    ]
}

fn matching<'a>(world: &'a World, window: Window, condition: &Condition) -> Vec<&'a FlowRecord> {
    let records = world.records.iter();
    let wants_events = condition.0.contains("event ");
    let is_wanted = |record: &&FlowRecord| wants_events || record.details.event.is_none();
    records.filter(|r| window.contains(r.counters.last_ns) && condition.1(r)).filter(is_wanted).collect()
}

#[test]
fn top_agrees_with_the_slow_reference() {
    let world = world(1);
    let key = |name: &str| name.parse::<Key>().unwrap();
    let groupings = [
        vec![],
        vec![key("src")],
        vec![key("host")],
        vec![key("port")],
        vec![key("proto")],
        vec![key("as")],
        vec![key("mpls")],
        vec![key("nat-src")],
        vec![key("next-hop"), key("app")],
        vec![key("host"), key("port"), key("egress")],
        vec![key("icmp-type")],
        vec![key("src"), key("dst"), key("src-port"), key("dst-port"), key("proto")],
        vec![key("dst-as"), key("vlan")],
        vec![key("exporter")],
        vec![key("exporter-address"), key("exporter"), key("domain")],
        vec![key("in-if"), key("out-if"), key("proto")],
        vec![key("event"), key("direction"), key("in-vrf")],
        vec![key("server-name")],
        vec![key("dns-name"), key("dns-code")],
        vec![key("network"), key("dst-country")],
        vec![key("country")],
        vec![key("next-as")],
    ];
    for (window, threads) in windows().into_iter().zip([1, 2, 3]) {
        for condition in CONDITIONS {
            let filter = Filter::parse(condition.0).unwrap();
            let query = Query { threads, ..Query::new(window, filter) };
            let records = matching(&world, window, condition);
            for (keys, by) in
                groupings.iter().zip([Metric::Bytes, Metric::Packets, Metric::Flows].into_iter().cycle())
            {
                let answer = top(&world.view, &query, keys, by, 10).unwrap();
                let groups = reference_groups(&records, keys);
                let what = format!("{:?} by {keys:?} in {window:?}", condition.0);
                let mut total = Sums::default();
                records.iter().for_each(|record| total.add(amount(record)));
                assert_eq!(answer.total, total, "{what}");
                if keys.is_empty() {
                    continue;
                }
                assert_eq!(answer.keys, groups.len() as u64, "{what}");
                let mut expected: Vec<TopRow> =
                    groups.into_iter().map(|(key, sums)| TopRow { key, sums }).collect();
                expected.sort_by(|a, b| b.sums.of(by).cmp(&a.sums.of(by)).then(a.key.cmp(&b.key)));
                expected.truncate(10);
                assert_eq!(answer.rows, expected, "{what}");
                assert_eq!(answer.rest, Sums::default());
            }
        }
    }
}

#[test]
fn raw_counters_are_as_counted() {
    let world = world(7);
    let filter = || Filter::parse("sampling > 1 and packets > 1000").unwrap();
    let raw = Query { raw: true, ..Query::new(Window::ALL, filter()) };
    let sums = |raw: bool| {
        let counter = |r: &FlowRecord, counter: u64| if raw { counter } else { scaled(r, counter) };
        let mut sums = Sums::default();
        let matches = |r: &&FlowRecord| {
            r.details.event.is_none() && r.sampling_interval > 1 && counter(r, r.packets()) > 1000
        };
        for r in world.records.iter().filter(matches) {
            sums.add(Sums { packets: counter(r, r.packets()), bytes: counter(r, r.bytes()), flows: 1 });
        }
        sums
    };
    let answer = |query: &Query| top(&world.view, query, &[], Metric::Bytes, 1).unwrap();
    assert_eq!(answer(&raw).total, sums(true));
    assert_eq!(answer(&Query::new(Window::ALL, filter())).total, sums(false));
    assert_ne!(sums(true), sums(false));
    let all = answer(&Query::new(Window::ALL, Filter::default())).scanned;
    let unknown =
        world.records.iter().filter(|r| r.sampling_interval == 0 && r.details.event.is_none()).count() as u64;
    assert!(unknown > 0 && all.sampling_unknown == unknown, "{all:?}");
}

#[test]
fn list_agrees_with_the_slow_reference() {
    let world = world(2);
    for window in windows() {
        for condition in CONDITIONS {
            let query = Query::new(window, Filter::parse(condition.0).unwrap());
            for count in [0, 1, 40, 100_000] {
                let (listed, _) = list(&world.view, &query, count).unwrap();
                let mut expected = matching(&world, window, condition);
                expected.sort_by_key(|r| (r.counters.last_ns, r.counters.first_ns, r.key, r.counters.bytes));
                expected.drain(..expected.len().saturating_sub(count));
                let expected: Vec<FlowRecord> = expected.into_iter().copied().collect();
                assert_eq!(listed, expected, "{count} of {:?} in {window:?}", condition.0);
            }
        }
    }
}

#[test]
fn the_other_direction_exchanges_source_and_destination() {
    let turned = [
        ("src net 10.0.0.0/8 and dst port 53,443", "dst net 10.0.0.0/8 and src port 53,443"),
        ("not (src-as 64500 or in-if lan)", "not (dst-as 64500 or (out-if lan))"),
        ("port 53 and host 10.0.0.1 and packets > 10", "port 53 and host 10.0.0.1 and packets > 10"),
    ];
    let world = world(5);
    for (text, other) in turned {
        let [filter, other] = [text, other].map(|text| Filter::parse(text).unwrap());
        let select = |filter: &Filter| filter.select(&Arc::from(world.records.clone())).unwrap();
        assert_eq!(select(&filter.reversed()), select(&other), "{text}");
        assert_eq!(select(&filter.reversed().reversed()), select(&filter), "{text}");
    }
    let key = |name: &str| name.parse::<Key>().unwrap();
    let turned = ["src", "dst-port", "in-if", "nat-src", "as", "proto"].map(|name| key(name).reversed().name);
    assert_eq!(turned, ["dst", "src-port", "out-if", "nat-dst", "as", "proto"]);
    // The same values, in the order that they are asked in, the others together.
    let query = Query::new(Window::ALL, Filter::default());
    let largest =
        graph(&world.view, &query, &[key("src-as")], Metric::Bytes, Lines::Largest(3), Some(7 * MINUTE_NS))
            .unwrap();
    let mut values: Vec<_> = largest.series.iter().filter_map(|series| series.key.clone()).collect();
    values.reverse();
    let chosen = graph(
        &world.view,
        &query,
        &[key("src-as")],
        Metric::Bytes,
        Lines::These(&values),
        Some(7 * MINUTE_NS),
    )
    .unwrap();
    let mut series = largest.series;
    let named = values.len();
    series[..named].reverse();
    assert_eq!(chosen.series, series);
}

#[test]
fn graph_agrees_with_the_slow_reference() {
    let world = world(3);
    let key = "dst-as".parse::<Key>().unwrap();
    for window in windows() {
        for condition in CONDITIONS {
            let query = Query::new(window, Filter::parse(condition.0).unwrap());
            let answer =
                graph(&world.view, &query, &[key], Metric::Bytes, Lines::Largest(3), Some(7 * MINUTE_NS))
                    .unwrap();
            let mut steps: BTreeMap<(Option<Vec<KeyValue>>, u64), Sums> = BTreeMap::new();
            let shown: Vec<_> = answer.series.iter().filter_map(|series| series.key.clone()).collect();
            for record in matching(&world, window, condition) {
                let own = vec![values(&key, record)[0].clone()];
                let own = Some(own).filter(|own| shown.contains(own));
                let step = (record.counters.last_ns - answer.from_ns) / answer.step_ns;
                steps.entry((own, step)).or_default().add(amount(record));
            }
            let mut answered = BTreeMap::new();
            for series in &answer.series {
                for (step, sums) in (0..).zip(&series.steps).filter(|(_, sums)| sums.flows > 0) {
                    answered.insert((series.key.clone(), step), *sums);
                }
            }
            assert_eq!(answered, steps, "{:?} in {window:?}", condition.0);
            let totals: Vec<u64> =
                answer.series.iter().filter(|s| s.key.is_some()).map(|s| s.total.bytes).collect();
            assert!(totals.is_sorted_by(|a, b| a >= b));
        }
    }
}

#[test]
fn keys_beyond_the_bound_are_summed_up_together() {
    let world = world(4);
    let key = "src".parse::<Key>().unwrap();
    let query = Query { keys_max: 10, threads: 1, ..Query::new(Window::ALL, Filter::default()) };
    let answer = top(&world.view, &query, &[key], Metric::Flows, 100).unwrap();
    assert_eq!(answer.keys, 10);
    let shown: u64 = answer.rows.iter().map(|row| row.sums.flows).sum();
    assert!(answer.rest.flows > 0);
    assert_eq!(shown + answer.rest.flows, answer.total.flows);
    assert_eq!(answer.total.flows, matching(&world, Window::ALL, &CONDITIONS[0]).len() as u64);
}

#[test]
fn statistics_rule_row_groups_out() {
    let world = world(5);
    let query = |text: &str| Query::new(Window::ALL, Filter::parse(text).unwrap());
    let pruned = |text: &str| {
        let answer = top(&world.view, &query(text), &[], Metric::Flows, 1).unwrap();
        (answer.total.flows, answer.scanned.row_groups_read, answer.scanned.row_groups_pruned)
    };
    let groups = world.view.files.iter().map(|file| file.row_groups.len() as u64).sum::<u64>();
    assert_eq!(pruned("any").2, 0);
    assert_eq!(pruned("dst port > 5000"), (0, 0, groups));
    assert_eq!(pruned("udp and dst port > 5000").2, groups);
    assert_eq!(pruned("any or dst port > 5000").2, 0);
    let sampled = top(&world.view, &query("any"), &[], Metric::Flows, 1).unwrap();
    assert!(sampled.scanned.sampled);
}

#[test]
fn too_many_keys_are_an_error() {
    let world = world(6);
    let keys: Vec<Key> =
        ["src", "dst", "next-hop", "bgp-next-hop", "proto"].map(|name| name.parse().unwrap()).into();
    let query = Query::new(Window::ALL, Filter::default());
    assert!(top(&world.view, &query, &keys, Metric::Flows, 1).is_err());
}

#[test]
fn a_flow_of_several_exporters_counts_where_most_of_it_was_seen() {
    let mut chance = Chance::new(9);
    let mut record = |_| {
        let mut record = testing::likely_record(&mut chance);
        record.key.src = [10, 0, 0, chance.below(5) as u8].into();
        record.key.dst = [10, 0, 1, chance.below(3) as u8].into();
        (record.key.src_port, record.key.dst_port) = (1000, 53 + chance.below(2) as u16);
        let names = ["edge1", "edge2", "core1", ""];
        record.exporter.name = Name::of(names[chance.below(4) as usize]);
        record.exporter.domain = Some(chance.below(2));
        record.details.direction = Direction::ALL.get(chance.below(3) as usize).copied();
        record.sampling_interval = 1 + 99 * chance.below(2);
        record
    };
    let records: Vec<FlowRecord> = (0..2000).map(&mut record).collect();
    let mut view = View::default();
    records.chunks(700).for_each(|batch| view.add_batch(batch.into()));
    let filters: [Condition; 2] =
        [("", |_| true), ("exporter edge*", |r| r.exporter.name.text().starts_with("edge"))];
    for (filter, matches) in filters {
        let flow = |r: &FlowRecord| (r.key.src, r.key.dst, r.key.src_port, r.key.dst_port, r.key.protocol);
        let place = |r: &FlowRecord| (r.exporter.name.code(), r.exporter.domain, r.details.direction);
        let mut sums: BTreeMap<_, BTreeMap<_, u64>> = BTreeMap::new();
        for r in records.iter().filter(|r| matches(r)) {
            *sums.entry(flow(r)).or_default().entry(place(r)).or_default() += scaled(r, r.bytes());
        }
        let most =
            |of: &BTreeMap<_, u64>| of.iter().max_by_key(|(_, bytes)| **bytes).map(|(place, _)| *place);
        let counts = |r: &&FlowRecord| matches(r) && most(&sums[&flow(r)]) == Some(place(r));
        let mut expected = Sums::default();
        records.iter().filter(counts).for_each(|r| expected.add(amount(r)));
        let query = Query { threads: 2, ..Query::new(Window::ALL, Filter::parse(filter).unwrap()) };
        let once = query.clone().deduplicated(&view).unwrap();
        let total = |query: &Query| top(&view, query, &[], Metric::Bytes, 1).unwrap().total;
        assert_eq!(
            (total(&once), once.dedup.as_ref().map(|dedup| dedup.missed)),
            (expected, Some(0)),
            "{filter}"
        );
        assert!(total(&query).flows > expected.flows);
        let few = Query { keys_max: 1, threads: 1, ..query }.deduplicated(&view).unwrap();
        assert!(few.dedup.is_some_and(|dedup| dedup.missed > 0));
    }
}

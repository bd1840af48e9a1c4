//! A neighbor's routes on their way in.

use std::sync::Arc;

use thalweg_bgp::attrs::flag;
use thalweg_bgp::peer::Role;
use thalweg_bgp::policy::{Action, Amount, Policy, Rule, RuleLibrary, RuleSet, Verdict};
use thalweg_bgp::session::NeighborConfig;
use thalweg_bgp::session::Remark;
use thalweg_bgp::session::config::{Confederation, HonorBlackhole, RemoteAs};
use thalweg_bgp::session::import::{CACHE_SLOTS, Rejection};
use thalweg_wire::bgp::{
    begin_attributes, begin_mp_reach, begin_update, community, finish_attribute, finish_attributes,
    finish_message, write_attribute, write_nlri,
};

use crate::net::{Net, announce, announce_with, config};

/// A session whose end 0 is configured like this, after these UPDATEs from end 1.
fn received(change: impl Fn(&mut NeighborConfig), bytes: &[Vec<u8>]) -> Net {
    let (mut a, b) = (config(0), config(1));
    change(&mut a);
    let mut net = Net::up_with(a, b);
    bytes.iter().for_each(|each| net.deliver(1, each));
    net
}

fn rejected(net: &Net, rejection: Rejection) -> u64 {
    let counters = net.ends[0].import.counters();
    assert_eq!(counters.rejected_total(), counters.rejected(rejection), "{counters:?}");
    counters.rejected(rejection)
}

#[test]
fn loops_and_the_first_as() {
    let one = "10.1.0.0/16";
    // The first announcement is accepted; the next one replaces it and is rejected.
    let good = announce(&[64_601, 1], &[one]);
    for (path, rejection) in [
        (&[64_601, 64_600, 5][..], Rejection::AsLoop),
        (&[5, 64_601], Rejection::FirstAs),
        (&[], Rejection::FirstAs),
    ] {
        let net = received(|_| {}, &[good.clone(), announce(path, &[one])]);
        assert!(net.ends[0].routes.is_empty());
        assert_eq!(rejected(&net, rejection), 1);
    }
    let net = received(|config| config.import.allow_own_as = 1, &[announce(&[64_601, 64_600], &[one])]);
    assert_eq!(net.ends[0].prefixes(), [one]);
    let net = received(|config| config.import.first_as_check = false, &[announce(&[5, 64_601], &[one])]);
    assert_eq!(net.ends[0].prefixes(), [one]);
    let member = |config: &mut NeighborConfig| {
        config.confederation = Some(Arc::new(Confederation { id: 64_600, members: vec![65_001] }));
        config.local_as = 65_001;
    };
    let net = received(member, &[announce(&[64_601, 64_600], &[one])]);
    assert_eq!(rejected(&net, Rejection::AsLoop), 1, "the confederation's AS");
}

#[test]
fn sets_in_paths_and_our_own_next_hop() {
    let mut out = Vec::new();
    let message = begin_update(&mut out);
    let attributes = begin_attributes(&mut out, message);
    write_attribute(&mut out, 0x40, 1, &[0]);
    write_attribute(&mut out, 0x40, 2, &[2, 1, 0, 0, 0xfc, 0x59, 1, 1, 0, 0, 0, 7]);
    write_attribute(&mut out, 0x40, 3, &[192, 0, 2, 1]);
    finish_attributes(&mut out, attributes);
    write_nlri(&mut out, None, thalweg_base::Prefix::new(0x0a01_0000_u32, 16).unwrap());
    finish_message(&mut out, message).unwrap();
    assert_eq!(rejected(&received(|_| {}, std::slice::from_ref(&out)), Rejection::AsSet), 1);
    let net = received(|config| config.import.reject_as_set = false, &[out.clone()]);
    assert_eq!(net.ends[0].prefixes(), ["10.1.0.0/16"]);
    let own = [198, 18, 0, 1];
    let at = out.windows(4).position(|four| four == [192, 0, 2, 1]).unwrap();
    out[at..at + 4].copy_from_slice(&own);
    let net = received(|config| config.import.reject_as_set = false, &[out]);
    assert_eq!(rejected(&net, Rejection::NextHop), 1);
}

#[test]
fn reflected_routes_that_come_back() {
    let internal = |end: usize| {
        let mut config = config(end);
        (config.remote_as, config.local_as) = (RemoteAs::One(64_600), 64_600);
        config
    };
    for (code, value) in [(9, [198, 18, 0, 1]), (10, [198, 18, 0, 1])] {
        let mut net = Net::up_with(internal(0), internal(1));
        net.deliver(
            1,
            &announce_with(&[5], &["10.1.0.0/16"], |out| write_attribute(out, 0x80, code, &value)),
        );
        net.deliver(
            1,
            &announce_with(&[5], &["10.2.0.0/16"], |out| write_attribute(out, 0x80, code, &[9; 4])),
        );
        assert_eq!(net.ends[0].prefixes(), ["10.2.0.0/16"]);
        assert_eq!(rejected(&net, Rejection::ReflectionLoop), 1);
    }
}

#[test]
fn only_to_customer() {
    let with = |mark: Option<u32>| {
        announce_with(&[64_601], &["10.1.0.0/16"], |out| {
            if let Some(asn) = mark {
                write_attribute(out, 0xc0, 35, &asn.to_be_bytes());
            }
        })
    };
    let cases = [
        (Role::Customer, None, true),
        (Role::Customer, Some(1), false),
        (Role::RouteServerClient, Some(1), false),
        (Role::Peer, Some(64_601), true),
        (Role::Peer, Some(1), false),
        (Role::Provider, Some(1), true),
        (Role::RouteServer, Some(1), true),
    ];
    for (role, mark, accepted) in cases {
        let net = received(|config| config.role = Some(role), &[with(mark)]);
        assert_eq!(net.ends[0].routes.len() == 1, accepted, "{role:?} {mark:?}");
        if !accepted {
            assert_eq!(rejected(&net, Rejection::RouteLeak), 1);
        }
    }
    for (role, mark, expected) in [
        (Role::Provider, None, Some(64_601)),
        (Role::Provider, Some(7), Some(7)),
        (Role::Peer, None, Some(64_601)),
        (Role::Customer, None, None),
    ] {
        let net = received(|config| config.role = Some(role), &[with(mark)]);
        let route = net.ends[0].routes.values().next().unwrap();
        assert_eq!(route.attrs.only_to_customer(), expected, "{role:?} {mark:?}");
    }
}

#[test]
fn no_policy_means_no_route_from_outside() {
    let mut net = Net::up();
    net.ends[0].import.set_policy(None);
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16", "10.2.0.0/16"]));
    assert!(net.ends[0].routes.is_empty());
    assert_eq!(rejected(&net, Rejection::NoPolicy), 2);
}

/// A set that a policy rejects, or changes before it is stored, takes no memory.
#[test]
fn what_a_policy_rejects_or_changes_is_not_interned() {
    let mut net = Net::up();
    let sets = |net: &Net| net.ends[0].interner.counters().sets;
    net.ends[0].import.set_policy(Some(Arc::new(Policy::reject_all())));
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16"]));
    assert_eq!(sets(&net), 0);
    let prefer = Rule {
        actions: vec![Action::LocalPref(Amount::Set(200))],
        verdict: Some(Verdict::Accept),
        ..Rule::default()
    };
    let set = RuleSet { rules: vec![prefer], default: None };
    let library = RuleLibrary { sets: [("prefer".into(), set)].into() };
    net.ends[0].import.set_policy(Some(Arc::new(Policy::compile(&library, &["prefer".into()]).unwrap())));
    net.deliver(1, &announce(&[64_601], &["10.1.0.0/16"]));
    assert_eq!((sets(&net), net.ends[0].routes.values().next().unwrap().attrs.local_pref), (1, 200));
}

#[test]
fn a_changed_policy_forgets_what_was_remembered() {
    let mut net = Net::up();
    let one = announce(&[64_601], &["10.1.0.0/16"]);
    net.deliver(1, &one);
    net.deliver(1, &one);
    assert_eq!(net.ends[0].import.counters().cache_hits, 1);
    net.ends[0].import.set_policy(Some(Arc::new(Policy::reject_all())));
    net.deliver(1, &one);
    assert!(net.ends[0].routes.is_empty());
    assert_eq!(rejected(&net, Rejection::Policy), 1);
    net.ends[0].import.set_policy(Some(Arc::new(Policy::accept_all())));
    net.deliver(1, &one);
    assert_eq!(net.ends[0].prefixes(), ["10.1.0.0/16"]);
    // A changed configuration clears the cache too.
    let mut config = net.ends[0].session.config().as_ref().clone();
    config.import.discard_attributes = vec![8];
    net.ends[0].import.set_config(&config);
    net.deliver(1, &one);
    assert_eq!(net.ends[0].import.counters().cache_hits, 1);
}

#[test]
fn remembered_attributes_come_to_the_same_as_new_ones() {
    // More attribute sets than the cache holds, in an order with repetitions, compared with an importer whose
    // cache is always empty.
    let mut net = Net::up();
    let mut forgetful = Net::up();
    for n in 0..400u32 {
        let set = (n * n) % (2 * CACHE_SLOTS as u32);
        let bytes = announce_with(&[64_601, 100 + set], &[&format!("10.{}.0.0/16", n % 50)], |out| {
            write_attribute(out, 0xc0, 8, &set.to_be_bytes());
        });
        net.deliver(1, &bytes);
        forgetful.ends[0].import.set_policy(Some(Arc::new(Policy::accept_all())));
        forgetful.deliver(1, &bytes);
    }
    assert!(net.ends[0].import.counters().cache_hits > 0);
    assert_eq!(forgetful.ends[0].import.counters().cache_hits, 0);
    let said = |net: &Net| -> Vec<String> {
        net.ends[0].routes.iter().map(|((prefix, _), route)| format!("{prefix} {:?}", route.attrs)).collect()
    };
    assert_eq!(said(&net), said(&forgetful));
}

#[test]
fn a_graceful_shutdown_is_the_last_choice() {
    let net = received(
        |_| {},
        &[announce_with(&[64_601], &["10.1.0.0/16"], |out| {
            write_attribute(out, 0xc0, 8, &community::GRACEFUL_SHUTDOWN.to_be_bytes());
        })],
    );
    assert_eq!(net.ends[0].routes.values().next().unwrap().attrs.local_pref, 0);
}

/// RFC 8097: what another AS says of validity is not heard; all else it says is.
#[test]
fn validity_is_not_taken_from_outside() {
    let list =
        |communities: &[u64]| communities.iter().flat_map(|each| each.to_be_bytes()).collect::<Vec<u8>>();
    let (valid, other) = (0x4300_0000_0000_0000, 0x0002_fde8_0000_0001);
    for (sent, kept) in
        [(&[valid, other][..], Some(list(&[other]))), (&[valid], None), (&[other], Some(list(&[other])))]
    {
        let net = received(
            |_| {},
            &[announce_with(&[64_601], &["10.1.0.0/16"], |out| write_attribute(out, 0xc0, 16, &list(sent)))],
        );
        assert_eq!(net.ends[0].routes.values().next().unwrap().attrs.get(16).map(<[u8]>::to_vec), kept);
    }
}

#[test]
fn both_families_and_next_hops_that_differ() {
    let both = |config: &mut NeighborConfig| config.capabilities.families = [true, true];
    let (mut a, mut b) = (config(0), config(1));
    both(&mut a);
    both(&mut b);
    let mut net = Net::up_with(a, b);
    let v6 = |next_hop: &str, prefix: u128| {
        announce_with(&[64_601], &["10.1.0.0/16"], |out| {
            let global = next_hop.parse().unwrap();
            let hop = thalweg_wire::bgp::NextHop::V6 { global, link_local: None };
            let start = begin_mp_reach(out, thalweg_wire::bgp::Family::Ipv6, hop);
            write_nlri(out, None, thalweg_base::Prefix::new(prefix, 48).unwrap());
            finish_attribute(out, start);
        })
    };
    net.deliver(1, &v6("2001:db8::1", 0x2001_0db8_0001 << 80));
    net.deliver(1, &v6("2001:db8::2", 0x2001_0db8_0002 << 80));
    net.deliver(1, &v6("2001:db8::1", 0x2001_0db8_0003 << 80));
    let hops: Vec<String> =
        net.ends[0].routes.values().map(|route| route.attrs.next_hop().to_string()).collect();
    assert_eq!(hops, ["192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db8::1"]);
    assert!(net.ends[0].import.counters().cache_hits >= 1);
    // A family that was not negotiated is ignored, not kept.
    let mut net = Net::up();
    net.deliver(1, &v6("2001:db8::1", 0x2001_0db8_0001 << 80));
    assert_eq!(net.ends[0].prefixes(), ["10.1.0.0/16"]);
    assert_eq!(net.ends[0].import.counters().other_family, 1);
}

/// RFC 4271 6.3: an invalid prefix is ignored and logged; the session and the other prefixes stay.
#[test]
fn prefixes_that_no_network_has_are_passed_over() {
    let all = ["0.0.0.0/0", "0.0.0.0/8", "10.1.0.0/16", "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4"];
    let update = announce(&[64_601], &all);
    let net = received(|_| {}, std::slice::from_ref(&update));
    assert!(net.is_up());
    assert_eq!(net.ends[0].prefixes(), ["0.0.0.0/0", "10.1.0.0/16"]);
    assert_eq!(rejected(&net, Rejection::Martian), 4);
    assert_eq!(net.ends[0].import.counters().accepted, 2);
    let words = net.ends[0].words();
    let told =
        "4 routes rejected: no network has such a prefix (`martian_check`), the last of them 240.0.0.0/4";
    assert!(words.contains(told), "{words}");
    let net = received(|config| config.import.martian_check = false, &[update]);
    assert_eq!(net.ends[0].prefixes().len(), all.len());
}

fn discards(net: &Net) -> Vec<String> {
    let routes = net.ends[0].routes.iter().filter(|(_, route)| route.attrs.has(flag::DISCARD));
    routes.map(|((prefix, _), _)| prefix.to_string()).collect()
}

/// RFC 7999 3.3: BLACKHOLE has no effect unless it was agreed on, and never applies to a default route.
#[test]
fn blackhole_is_honored_only_where_it_was_agreed_on() {
    let all = ["0.0.0.0/0", "1.1.1.0/24", "10.1.0.7/32", "198.51.100.0/25", "198.51.100.9/32"];
    let tagged = announce_with(&[64_601], &all, |out| {
        write_attribute(out, 0xc0, 8, &community::BLACKHOLE.to_be_bytes());
    });
    let within = |text: &str| HonorBlackhole::Within([text.parse().unwrap()].into());
    let cases = [
        (HonorBlackhole::No, &[][..]),
        (HonorBlackhole::Hosts, &["10.1.0.7/32", "198.51.100.9/32"]),
        (within("198.51.100.0/24"), &["198.51.100.0/25", "198.51.100.9/32"]),
        (within("198.51.100.9/32"), &["198.51.100.9/32"]),
        (within("0.0.0.0/0"), &all[1..]),
    ];
    for (honor, expected) in cases {
        let net =
            received(|config| config.import.honor_blackhole = honor.clone(), std::slice::from_ref(&tagged));
        assert_eq!(net.ends[0].prefixes(), all, "all are routes");
        assert_eq!(discards(&net), expected, "{honor:?}");
        let counters = net.ends[0].import.counters();
        let counted =
            (counters.remarks(Remark::BlackholeHonored), counters.remarks(Remark::BlackholeIgnored));
        assert_eq!(counted, (expected.len() as u64, (all.len() - expected.len()) as u64));
        for route in net.ends[0].routes.values() {
            // RFC 7999 3.2: the route stays in this AS.
            assert_eq!(route.attrs.has(flag::NO_EXPORT), route.attrs.has(flag::DISCARD));
        }
        let words = net.ends[0].words();
        assert_eq!(words.contains("packets to them are discarded"), !expected.is_empty(), "{words}");
        assert!(words.contains("`honor_blackhole` does not cover them"), "{words}");
    }
    // A route that policy rejects is not kept, whatever its communities.
    let mut net = Net::up_with(
        NeighborConfig {
            import: thalweg_bgp::session::config::ImportConfig {
                honor_blackhole: HonorBlackhole::Hosts,
                ..config(0).import
            },
            ..config(0)
        },
        config(1),
    );
    net.ends[0].import.set_policy(Some(Arc::new(Policy::reject_all())));
    net.deliver(1, &tagged);
    assert!(net.ends[0].routes.is_empty());
    assert_eq!(rejected(&net, Rejection::Policy), all.len() as u64);
}

/// A neighbor keeps sending routes that are rejected: one line at once, then one per minute with their number.
#[test]
fn rejected_routes_are_told_once_a_minute() {
    let mut net = Net::up();
    for number in 0..180_u32 {
        let prefix = format!("10.{number}.0.0/16");
        net.deliver(1, &announce(&[5, 64_601], &[&prefix, "10.250.0.0/16"]));
        net.run_ms(1_000);
    }
    assert_eq!(rejected(&net, Rejection::FirstAs), 360);
    let words = net.ends[0].words();
    let lines: Vec<&str> = words.lines().filter(|line| line.contains("first_as_check")).collect();
    let start = "2 routes rejected: the path does not begin with the neighbor's AS (`first_as_check`), the last of them ";
    assert!(lines[0].starts_with(start), "{}", lines[0]);
    assert!((3..=4).contains(&lines.len()), "{lines:?}");
    let told: u64 = lines.iter().map(|line| line.split(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    net.run_ms(120_000);
    let words = net.ends[0].words();
    let lines: Vec<&str> = words.lines().filter(|line| line.contains("first_as_check")).collect();
    let all: u64 = lines.iter().map(|line| line.split(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert!(told <= all && all == 360, "a KEEPALIVE reports the rest: {told} of {all}");
}

//! Reads UPDATE messages of real files with two independent readers: the lenient one of MRT and the strict one of
//! sessions (RFC 7606). They must agree.

use std::net::IpAddr;
use thalweg_base::IpPrefix;
use thalweg_ports::MrtReader;
use thalweg_wire::bgp::{MpNlri, PeerFacts, Update, Verdict};
use thalweg_wire::mrt::{Action, Content, Message, visit_changes};

/// The effect of an UPDATE: withdrawn prefixes, and announced ones with next hop and MED.
type Effect = Vec<(u32, IpPrefix, Announced)>;

/// `None` for a withdrawal.
type Announced = Option<(Option<IpAddr>, Option<u32>)>;

fn leniently(content: &Content<'_>) -> Effect {
    let mut effect = Vec::new();
    let _ = visit_changes(content, |change| match change.action {
        Action::Withdraw { prefix, path_id } => effect.push((path_id.unwrap_or(0), prefix, None)),
        Action::Announce { prefix, path_id, next_hop, path } => {
            effect.push((path_id.unwrap_or(0), prefix, Some((next_hop, path.med))));
        }
        Action::Route { .. } | Action::State { .. } => {}
    });
    effect
}

fn push(effect: &mut Effect, routes: MpNlri<'_>, what: Announced) {
    match routes {
        MpNlri::Ipv4(routes) => effect.extend(routes.iter().map(|(id, prefix)| (id, prefix.into(), what))),
        MpNlri::Ipv6(routes) => effect.extend(routes.iter().map(|(id, prefix)| (id, prefix.into(), what))),
    }
}

/// `None` if the strict reader refuses the message or its attributes, or drops some.
fn strictly(message: &Message<'_>) -> Option<Effect> {
    let update = Update::parse(message.body(), &message.codec(), &PeerFacts::default()).ok()?;
    if update.verdict != Verdict::Good || update.foreign_reach.is_some() || update.foreign_unreach.is_some() {
        return None;
    }
    let mut effect = Vec::new();
    push(&mut effect, MpNlri::Ipv4(update.withdrawn), None);
    if let Some(routes) = update.mp_unreach {
        push(&mut effect, routes, None);
    }
    let next_hop = update.next_hop.map(IpAddr::V4);
    push(&mut effect, MpNlri::Ipv4(update.reach_v4), Some((next_hop, update.med)));
    if let Some(reach) = update.mp_reach {
        push(&mut effect, reach.routes, Some((Some(reach.next_hop.address()), update.med)));
    }
    Some(effect)
}

#[test]
fn both_readers_of_updates_agree() {
    // Files with their number of UPDATE messages; the strict reader accepts all of them.
    let files = [
        ("bgpkit/rrc00.updates.20000102.2014.gz", 3818),
        ("bgpkit/rrc01.updates.20001104.0124.gz", 266),
        ("bgpdump-pairs/updates.20020722.2238.gz", 393),
        ("bgpdump-pairs/updates.20160811.1600.gz", 17_216),
        ("bgpdump-pairs/updates.long_withdrawal.gz", 1),
        ("mrtparse-samples/bird_bgp", 8),
        ("mrtparse-samples/bird6_bgp", 8),
        ("updates.routeviews.20260222.1530.bz2", 49_220),
    ];
    for (name, expected) in files {
        let Some(path) = thalweg_testdata::shared(&format!("mrt/{name}")) else { return };
        let mut reader = MrtReader::open(&path).unwrap();
        let mut updates = 0;
        while let Some(result) = reader.next() {
            let item = result.unwrap();
            let Content::Message(message) = item.content else { continue };
            if message.update().unwrap().is_none() {
                continue;
            }
            updates += 1;
            assert_eq!(Some(leniently(&item.content)), strictly(&message), "{name}, record {}", item.number);
        }
        assert_eq!(updates, expected, "{name}");
    }
}

//! Samples about BGP.

use thalweg_bgp::session::State;
use thalweg_node::control::{
    BgpNeighborView, ByFamily, MemoryView, MessagesView, RibView, RpkiSourceView, RpkiView,
};

use super::{Each, Views};
use crate::exposition::Exposition;

pub(super) fn write(text: &mut Exposition, views: &Views) {
    if let Some(neighbors) = &views.neighbors {
        write_neighbors(text, neighbors);
    }
    if let Some(rib) = &views.rib {
        write_rib(text, rib);
    }
    if let Some(rpki) = &views.rpki {
        write_rpki(text, rpki);
    }
    if let Some(memory) = &views.memory {
        write_memory(text, memory);
    }
}

fn write_neighbors(text: &mut Exposition, neighbors: &[BgpNeighborView]) {
    let mut info = text.gauge("bgp_neighbor_info", "1, with what is configured of the neighbor.");
    for each in neighbors {
        let (address, description) =
            (each.address.to_string(), each.description.as_deref().unwrap_or_default());
        let labels = [
            of(each),
            ("address", address.as_str()),
            ("as", each.remote_as.as_str()),
            ("description", description),
        ];
        info.sample(&labels, 1u64);
    }
    let established = State::Established.name();
    let mut up = text.gauge("bgp_neighbor_up", "Whether the session is established.");
    neighbors.iter().for_each(|each| up.sample(&[of(each)], each.state == established));
    let mut state = text.gauge("bgp_neighbor_state", "1 for the state that the session is in.");
    for each in neighbors {
        for name in State::ALL.map(State::name) {
            state.sample(&[of(each), ("state", name)], each.state == name);
        }
    }
    let mut uptime =
        text.gauge("bgp_neighbor_uptime_seconds", "Time since the session came up; 0 while it is down.");
    neighbors.iter().for_each(|each| uptime.sample(&[of(each)], each.uptime_s.unwrap_or(0)));
    let mut flaps = text.counter("bgp_neighbor_flaps", "Times that the session went down.");
    neighbors.iter().for_each(|each| flaps.sample(&[of(each)], each.flaps));
    type Routes = fn(&BgpNeighborView) -> Option<ByFamily<u64>>;
    let routes: [(&str, &str, Routes); 4] = [
        ("bgp_neighbor_accepted_prefixes", "Routes of the neighbor in the RIB.", |each| {
            Some(each.accepted_by_family)
        }),
        ("bgp_neighbor_kept_prefixes", "Routes kept as the neighbor sent them.", |each| each.kept_by_family),
        ("bgp_neighbor_sent_prefixes", "Routes that the neighbor is sent, counted in rounds.", |each| {
            each.sent_by_family
        }),
        ("bgp_neighbor_rejected_prefixes", "Kept routes that import rejects.", |each| {
            each.rejected_by_family
        }),
    ];
    for (name, help, view) in routes {
        let mut family = text.gauge(name, help);
        for each in neighbors {
            if let Some(ByFamily { ipv4, ipv6 }) = view(each) {
                family.sample(&[of(each), ("family", "ipv4")], ipv4);
                family.sample(&[of(each), ("family", "ipv6")], ipv6);
            }
        }
    }
    let mut rejected = text.counter("bgp_neighbor_rejected_routes", "Routes that import refused, by reason.");
    for each in neighbors {
        for (reason, number) in
            each.counters.get("rejected").and_then(|value| value.as_object()).into_iter().flatten()
        {
            rejected.sample(&[of(each), ("reason", reason)], number.as_u64().unwrap_or(0));
        }
    }
    let messages: [Each<BgpNeighborView, MessagesView>; 2] = [
        ("bgp_neighbor_messages_received", "Messages received, by type.", |each| each.received_by_type),
        ("bgp_neighbor_messages_sent", "Messages sent, by type.", |each| each.sent_by_type),
    ];
    for (name, help, view) in messages {
        let mut family = text.counter(name, help);
        for each in neighbors {
            let MessagesView { open, update, notification, keepalive, route_refresh } = view(each);
            let types = [
                ("open", open),
                ("update", update),
                ("notification", notification),
                ("keepalive", keepalive),
                ("route-refresh", route_refresh),
            ];
            types.iter().for_each(|(name, number)| family.sample(&[of(each), ("type", name)], *number));
        }
    }
}

fn of(neighbor: &BgpNeighborView) -> (&'static str, &str) {
    ("neighbor", &neighbor.name)
}

fn write_rib(text: &mut Exposition, rib: &RibView) {
    let both = [("bgp_prefixes", "Prefixes with a path.", rib.prefixes), ("bgp_paths", "Paths.", rib.paths)];
    for (name, help, by_family) in both {
        let mut family = text.gauge(name, help);
        family.sample(&[("family", "ipv4")], by_family.ipv4);
        family.sample(&[("family", "ipv6")], by_family.ipv6);
    }
    text.gauge("bgp_attribute_sets", "Distinct attribute sets.").sample(&[], rib.attribute_sets);
    text.counter("bgp_kept_refused", "Routes that were not kept as neighbors sent them, for lack of room.")
        .sample(&[], rib.kept_refused);
    text.counter(
        "bgp_unknown_refused",
        "Connections refused because no neighbor is configured at their address.",
    )
    .sample(&[], rib.unknown_refused);
}

fn write_rpki(text: &mut Exposition, rpki: &RpkiView) {
    let mut vrps = text.gauge("rpki_vrps", "VRPs in force.");
    vrps.sample(&[("family", "ipv4")], rpki.vrps.ipv4);
    vrps.sample(&[("family", "ipv6")], rpki.vrps.ipv6);
    let mut paths = text.gauge("rpki_paths", "Paths in the RIB by validity, counted once a minute.");
    let validities =
        [("valid", rpki.valid_paths), ("not-found", rpki.not_found_paths), ("invalid", rpki.invalid_paths)];
    for (validity, ByFamily { ipv4, ipv6 }) in validities {
        paths.sample(&[("validity", validity), ("family", "ipv4")], ipv4);
        paths.sample(&[("validity", validity), ("family", "ipv6")], ipv6);
    }
    text.counter("rpki_revalidated", "Routes judged again because their validity changed.")
        .sample(&[], rpki.revalidated);
    let up = |each: &RpkiSourceView| ["synced", "loaded"].contains(&each.state.as_str());
    type Source = fn(&RpkiSourceView) -> u64;
    let gauges: [(&str, &str, Source); 4] = [
        ("rpki_source_used", "Whether the VRPs of the source are in force.", |each| each.used.into()),
        ("rpki_source_vrps", "VRPs of the source.", |each| each.vrps.ipv4 + each.vrps.ipv6),
        ("rpki_source_serial", "The serial number of the cache's data.", |each| {
            each.serial.unwrap_or(0).into()
        }),
        ("rpki_source_age_seconds", "Time since the VRPs of the source were complete.", |each| {
            each.age_s.unwrap_or(0)
        }),
    ];
    let mut family = text.gauge("rpki_source_up", "Whether the source is synced or loaded.");
    rpki.sources.iter().for_each(|each| family.sample(&[("source", &each.source)], up(each)));
    for (name, help, value) in gauges {
        let mut family = text.gauge(name, help);
        rpki.sources.iter().for_each(|each| family.sample(&[("source", &each.source)], value(each)));
    }
    let mut events = text.counter("rpki_source_events", "What happened with the source, by kind.");
    for each in &rpki.sources {
        for (kind, number) in each.counters.as_object().into_iter().flatten() {
            let labels = [("source", each.source.as_str()), ("kind", kind.as_str())];
            events.sample(&labels, number.as_u64().unwrap_or(0));
        }
    }
}

fn write_memory(text: &mut Exposition, memory: &MemoryView) {
    let mut family = text.gauge("bgp_memory_bytes", "Memory of BGP's tables.");
    let parts = [
        ("rib", memory.rib),
        ("received", memory.received),
        ("attributes", memory.attributes),
        ("update-groups", memory.update_groups),
    ];
    parts.iter().for_each(|(part, bytes)| family.sample(&[("part", part)], *bytes));
}

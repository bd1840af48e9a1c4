//! Our views in the form of birdwatcher.

use serde_json::{Value, json};
use thalweg_node::control::{BgpNeighborView, RibView, RouteView, StatusView};
use thalweg_text::calendar::{SECOND_NS, format_time};

use super::Glass;

/// The version of birdwatcher's API.
const API_VERSION: &str = "2.0.0";

/// How long readers may keep an answer.
const TTL_NS: u64 = 300 * SECOND_NS;

/// The name of a neighbor as an ID: other characters would have to be escaped in paths.
pub(super) fn id(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

impl Glass {
    /// The beginning of an answer, up to the value with this name.
    pub(super) fn beginning(&self, name: &str) -> String {
        let (now, until) = (iso(self.now_ns), iso(self.now_ns.saturating_add(TTL_NS)));
        let date = json!({ "date": now, "timezone_type": "UTC", "timezone": "UTC" });
        let api = json!({
            "Version": API_VERSION,
            "result_from_cache": false,
            "cache_status": { "cached_at": date },
        });
        format!("{{\"api\":{api},\"ttl\":\"{until}\",\"cached_at\":\"{now}\",\"{name}\":")
    }

    pub(super) fn status(&self, status: &StatusView, rib: &RibView) -> Value {
        json!({
            "version": format!("Thalweg {}", self.version),
            "router_id": rib.router_id,
            "current_server": self.ago(0),
            "last_reboot": self.ago(status.uptime_s),
            "last_reconfig": self.ago(status.config_age_s),
            "message": "Daemon is up and running",
        })
    }

    pub(super) fn protocol(&self, id: &str, view: &BgpNeighborView, rib: &RibView) -> Value {
        let is_up = view.uptime_s.is_some();
        let counts = |imported: u64, filtered: u64, exported: u64| json!({ "imported": imported, "filtered": filtered, "exported": exported, "preferred": 0 });
        let channel = |imported, filtered, exported| {
            let counts = counts(imported, filtered, exported);
            json!({ "routes": counts, "routes_count": counts })
        };
        let (accepted, rejected) = (view.accepted_by_family, view.rejected_by_family.unwrap_or_default());
        let sent = view.sent_by_family.unwrap_or_default();
        let mut protocol = json!({
            "protocol": id,
            "bird_protocol": "BGP",
            "state": if is_up { "UP" } else { "DOWN" },
            "table": "master4",
            "connection": view.state,
            "description": view.description.as_deref().unwrap_or_default(),
            "neighbor_address": view.address.to_string(),
            "neighbor_as": view.remote_as.parse::<u32>().unwrap_or(0),
            "local_as": rib.local_as,
            "bgp_state": view.state,
            "last_error": view.last_error.as_deref().unwrap_or_default(),
            "channels": {
                "ipv4": channel(accepted.ipv4, rejected.ipv4, sent.ipv4),
                "ipv6": channel(accepted.ipv6, rejected.ipv6, sent.ipv6),
            },
            // A reader fails without it, even where there is nothing to count.
            "routes": if is_up { counts(view.accepted, rejected.ipv4 + rejected.ipv6, sent.ipv4 + sent.ipv6) } else { json!({}) },
            "route_changes": {},
        });
        if let Some(changed) = self.changed(view) {
            protocol["state_changed"] = changed.into();
        }
        protocol
    }

    pub(super) fn short(&self, view: &BgpNeighborView) -> Value {
        let mut protocol = json!({
            "proto": "BGP",
            "table": "---",
            "state": if view.uptime_s.is_some() { "up" } else { "start" },
            "info": view.state,
        });
        if let Some(changed) = self.changed(view) {
            protocol["since"] = changed.into();
        }
        protocol
    }

    /// When the session came up or went down; unknown for a neighbor that was never started. Like birdwatcher, views leave
    /// out what is unknown.
    fn changed(&self, view: &BgpNeighborView) -> Option<String> {
        view.uptime_s.or(view.down_s).map(|seconds| self.ago(seconds))
    }

    pub(super) fn route(&self, route: &RouteView, neighbor: Option<&BgpNeighborView>) -> Value {
        // Readers compare the gateway of one route with that of others, so it is the neighbor and not a next hop.
        let learned_from = neighbor.map(|view| view.address.to_string()).unwrap_or_default();
        let (mut standard, mut large, mut extended) = (Vec::new(), Vec::new(), Vec::new());
        for community in &route.communities {
            let numbers: Option<Vec<u32>> = community.split(':').map(|part| part.parse().ok()).collect();
            match (numbers, community.strip_prefix("ext:")) {
                (Some(numbers), _) if numbers.len() == 2 => standard.push(numbers),
                (Some(numbers), _) => large.push(numbers),
                (None, Some(hex)) => extended.extend(extended_community(hex)),
                (None, None) => {}
            }
        }
        let mut bgp = json!({
            "origin": if route.origin == "incomplete" { "Incomplete".to_owned() } else { route.origin.to_ascii_uppercase() },
            "as_path": route.as_path.split_whitespace().collect::<Vec<_>>(),
            "next_hop": route.next_hop,
            "local_pref": route.local_pref.to_string(),
            "communities": standard,
            "large_communities": large,
            "ext_communities": extended,
        });
        if let Some(med) = route.med {
            bgp["med"] = med.to_string().into();
        }
        let mut view = json!({
            "network": route.prefix,
            "gateway": learned_from,
            "interface": "",
            "from_protocol": id(&route.neighbor),
            "age": self.ago(route.age_s),
            "learnt_from": learned_from,
            "primary": route.best,
            "metric": route.local_pref,
            "type": ["BGP", "univ"],
            "bgp": bgp,
        });
        if route.rejected.is_some() {
            // Readers know reasons by communities that rules add; this is for people.
            view["reason"] = route.rule.as_ref().or(route.why.as_ref()).cloned().unwrap_or_default().into();
        }
        view
    }

    /// The time some seconds ago, as BIRD writes it.
    fn ago(&self, seconds: u64) -> String {
        let time = iso(self.now_ns.saturating_sub(seconds.saturating_mul(SECOND_NS)));
        time.trim_end_matches('Z').replace('T', " ")
    }
}

/// A time in whole seconds.
fn iso(time_ns: u64) -> String {
    format_time(time_ns / SECOND_NS * SECOND_NS)
}

/// An extended community in three texts, as BIRD writes it: kind, administrator, number.
pub(super) fn extended_community(hex: &str) -> Option<[String; 3]> {
    let [kind, subkind, rest @ ..] = u64::from_str_radix(hex, 16).ok()?.to_be_bytes();
    let name = match subkind {
        2 => "rt",
        3 => "ro",
        _ => "generic",
    };
    let [a, b, c, d, e, f] = rest;
    let (administrator, number) = match (kind & 0x3f, name) {
        (0, "rt" | "ro") => {
            (u16::from_be_bytes([a, b]).to_string(), u32::from_be_bytes([c, d, e, f]).to_string())
        }
        (1, "rt" | "ro") => {
            (std::net::Ipv4Addr::from([a, b, c, d]).to_string(), u16::from_be_bytes([e, f]).to_string())
        }
        (2, "rt" | "ro") => {
            (u32::from_be_bytes([a, b, c, d]).to_string(), u16::from_be_bytes([e, f]).to_string())
        }
        _ => {
            let high = u32::from_be_bytes([kind, subkind, a, b]);
            return Some([
                "generic".to_owned(),
                format!("{high:#x}"),
                format!("{:#x}", u32::from_be_bytes([c, d, e, f])),
            ]);
        }
    };
    Some([name.to_owned(), administrator, number])
}

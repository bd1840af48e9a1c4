//! Other programs' readings of the same messages, as the lines that [`facts`](super::facts) writes.

use serde_json::Value;

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The lines of one message that NetGauze decoded, or `None` for other kinds of messages than UPDATE.
pub(crate) fn netgauze(message: &Value) -> Option<Vec<String>> {
    let update = message.get("Update")?;
    let mut facts = Vec::new();
    let mut next_hop = String::new();
    let mut other_next_hop = String::new();
    let mut reach = Vec::new();
    for attribute in list(&update["path_attributes"]) {
        let (name, value) = attribute["value"].as_object().and_then(|object| object.iter().next())?;
        match name.as_str() {
            "Origin" => facts.push(format!("origin {}", text(value).to_lowercase())),
            "AsPath" => {
                let segments = list(&value["As4PathSegments"]).iter();
                let words: Vec<String> = segments.map(netgauze_segment).collect();
                facts.push(format!("as-path {}", words.join(" ")));
            }
            "NextHop" => next_hop = text(&value["next_hop"]),
            "MultiExitDiscriminator" => facts.push(format!("med {}", value["metric"])),
            "LocalPreference" => facts.push(format!("local-pref {}", value["metric"])),
            "Communities" => facts.push(format!("communities {}", numbers(&value["communities"]))),
            "Aggregator" => {
                let inner = value.as_object().and_then(|object| object.values().next())?;
                facts.push(format!("aggregator {} {}", inner["asn"], text(&inner["origin"])));
            }
            "MpReach" => match value.get("Ipv6Unicast") {
                Some(routes) => {
                    other_next_hop = text(&routes["next_hop_global"]);
                    reach = list(&routes["nlri"]).iter().map(netgauze_prefix).collect();
                }
                None => facts.push("foreign reach".to_owned()),
            },
            "MpUnreach" => match value.get("Ipv6Unicast") {
                Some(routes) => {
                    let routes = list(&routes["nlri"]).iter();
                    facts.extend(routes.map(|each| format!("withdraw {}", netgauze_prefix(each))));
                }
                None => facts.push("foreign unreach".to_owned()),
            },
            _ => {}
        }
    }
    let withdrawn = list(&update["withdrawn_routes"]).iter();
    facts.extend(withdrawn.map(|each| format!("withdraw {}", netgauze_prefix(each))));
    let routes = list(&update["nlri"]).iter();
    facts.extend(routes.map(|each| format!("announce {} via {next_hop}", netgauze_prefix(each))));
    facts.extend(reach.iter().map(|each| format!("announce {each} via {other_next_hop}")));
    Some(facts)
}

fn numbers(value: &Value) -> String {
    let words: Vec<String> = list(value).iter().map(Value::to_string).collect();
    words.join(" ")
}

fn netgauze_prefix(value: &Value) -> String {
    path_id(text(&value["network"]), value["path_id"].as_u64())
}

fn path_id(prefix: String, id: Option<u64>) -> String {
    match id {
        Some(id) => format!("{prefix}#{id}"),
        None => prefix,
    }
}

fn netgauze_segment(segment: &Value) -> String {
    let words: Vec<String> = list(&segment["as_numbers"]).iter().map(Value::to_string).collect();
    match segment["segment_type"].as_str() {
        Some("AsSequence") => words.join(" "),
        _ => format!("{{{}}}", words.join(",")),
    }
}

/// OPEN as NetGauze decoded it.
pub(crate) fn netgauze_open(message: &Value) -> Option<String> {
    let open = message.get("Open")?;
    let numbers = ["my_as", "hold_time"].map(|name| open[name].to_string());
    Some(format!("open {} {} {}", numbers[0], numbers[1], text(&open["bgp_id"])))
}

/// The lines of ExaBGP's JSON for a message, without families other than IPv4 and IPv6 unicast.
pub(crate) fn exabgp(message: &Value) -> Vec<String> {
    let update = &message["neighbor"]["message"]["update"];
    let attribute = &update["attribute"];
    let mut facts = Vec::new();
    let mut fact = |name: &str, key: &str| {
        if let Some(value) = attribute.get(key) {
            facts.push(format!("{name} {}", text(value)));
        }
    };
    fact("origin", "origin");
    fact("med", "med");
    fact("local-pref", "local-preference");
    if let Some(path) = attribute.get("as-path").and_then(Value::as_object) {
        let words: Vec<String> = path.values().map(|segment| numbers(&segment["value"])).collect();
        facts.push(format!("as-path {}", words.join(" ")));
    } else if attribute.get("origin").is_some() {
        facts.push("as-path ".to_owned());
    }
    if let Some(value) = attribute.get("aggregator") {
        facts.push(format!("aggregator {}", text(value).replace(':', " ")));
    }
    let communities = list(&attribute["community"]).iter().map(|pair| {
        let half = |at: usize| pair[at].as_u64().expect("a number");
        (half(0) << 16 | half(1)).to_string()
    });
    let communities: Vec<String> = communities.collect();
    if !communities.is_empty() {
        facts.push(format!("communities {}", communities.join(" ")));
    }
    for family in ["ipv4 unicast", "ipv6 unicast"] {
        let Some(by_next_hop) = update["announce"].get(family).and_then(Value::as_object) else { continue };
        for (next_hop, routes) in by_next_hop {
            for route in list(routes) {
                let id = route.get("path-information").map(|dotted| {
                    let address: std::net::Ipv4Addr = text(dotted).parse().expect("dotted");
                    u64::from(u32::from(address))
                });
                facts.push(format!("announce {} via {next_hop}", path_id(text(&route["nlri"]), id)));
            }
        }
    }
    facts
}

/// A message in tcpdump's words.
#[derive(Debug, Default)]
pub(crate) struct Dumped {
    /// `Update 95`
    pub(crate) head: String,
    /// AS_PATH as printed, `empty`, or nothing.
    pub(crate) as_path: Option<String>,
    /// Prefixes in the order of the text.
    pub(crate) prefixes: Vec<String>,
}

/// The messages in tcpdump's text, in order.
pub(crate) fn tcpdump(text: &str) -> Vec<Dumped> {
    let mut messages: Vec<Dumped> = Vec::new();
    for line in text.lines() {
        if let Some((kind, rest)) = line.trim_start().split_once(" Message (") {
            let length = rest.split_once("length: ").map_or("", |(_, after)| after);
            let length = length.split(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
            messages.push(Dumped { head: format!("{kind} {length}"), ..Dumped::default() });
            continue;
        }
        let Some(message) = messages.last_mut() else { continue };
        if let Some(path) = line.strip_prefix("\t  AS Path (2)") {
            let path = path.split_once("]: ").map_or("", |(_, path)| path);
            message.as_path = Some(path.trim().replace("empty", ""));
        }
        // Routes are the lines that are indented more than the attributes and begin with a prefix.
        let mut words = line.split_whitespace();
        if line.starts_with("\t    ")
            && let Some(prefix) = words.next().filter(|word| is_prefix(word.trim_end_matches(',')))
            && !prefix.ends_with(',')
        {
            let id = (words.next() == Some("Path")).then(|| words.nth(1)).flatten();
            message.prefixes.push(path_id(prefix.to_owned(), id.and_then(|id| id.parse().ok())));
        }
    }
    messages
}

fn is_prefix(word: &str) -> bool {
    word.split_once('/').is_some_and(|(address, length)| {
        address.parse::<std::net::IpAddr>().is_ok() && length.parse::<u8>().is_ok()
    })
}

//! The table of keys is right: the reference shows it, missing keys have its defaults, and it has every key of
//! examples and cases.

use std::path::{Path, PathBuf};

use thalweg_config::{KeyInfo, RouterConfig, SectionInfo, diff, keys, needs_restart, port_needs_restart};
use toml::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const BEGIN: &str = "<!-- keys: ";
const END: &str = "<!-- end -->";

/// The page with the tables of keys inserted between their marks, and the names of these tables.
fn with_tables(page: &str, sections: &[SectionInfo]) -> (String, Vec<String>) {
    let (mut text, mut shown) = (String::new(), Vec::new());
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(" -->").expect("the mark ends");
        let (_, after) = after.split_once(END).expect("the table ends");
        let section = sections.iter().find(|section| section.section == name.trim());
        let table = section.unwrap_or_else(|| panic!("there is no section `{name}`")).markdown();
        text += &format!("{before}{BEGIN}{name} -->\n{table}{END}");
        shown.push(name.trim().to_owned());
        rest = after;
    }
    (text + rest, shown)
}

#[test]
fn the_reference_shows_every_key() {
    let path = repository().join("docs/configuration.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let sections = keys();
    let (text, mut shown) = with_tables(&page, &sections);
    if std::env::var_os("THALWEG_BLESS").is_some() {
        std::fs::write(&path, &text).expect("writing the page");
    } else {
        assert!(text == page, "docs/configuration.md is not what the keys say: THALWEG_BLESS=1 rewrites it");
    }
    let mut all: Vec<String> = sections.iter().map(|section| section.section.to_owned()).collect();
    all.sort();
    shown.sort();
    assert_eq!(shown, all, "each section once");
}

#[test]
fn every_row_says_what_it_is_for() {
    let mut seen = std::collections::HashSet::new();
    for section in keys() {
        for key in &section.keys {
            let name = format!("{} {}", section.title, key.key);
            assert!(!key.help.is_empty() && !key.help.contains('\n'), "{name}");
            assert!(!key.help.ends_with('.') && !key.help.contains(" | "), "{name}: {}", key.help);
            assert!(seen.insert((section.section, key.key)), "{name} has two rows");
        }
    }
    assert!(seen.len() > 250, "{} keys", seen.len());
}

/// A configuration with every section that has defaults, and the lines where these keys belong.
const SECTIONS: &str = r#"
# control
[control]
# system
[system]
# web
[web]
listen = "127.0.0.1:8080"
# web.token
[[web.token]]
name = "a"
file = "a.token"
# workers
[workers]
# kernel
[kernel]
routes = "off"
# flows
[flows]
collectors = ["ipfix://192.0.2.9:4739"]
# alarms
[[alarms]]
name = "a"
key = "dst"
measure = "ports"
above = 10
# validate
[validate]
# nat
[nat]
outside = "wan"
inside = "lan"
# nat.timeouts
[nat.timeouts]
# nat.subscribers
[nat.subscribers]
# acl
[[acl]]
name = "a"
# firewall
[firewall]
zones = { inside = "lan", outside = "wan" }
# firewall.timeouts
[firewall.timeouts]
# qos.classes
[[qos.classes]]
name = "a"
match = [{ dscp = "ef" }]
# qos.classes.policer
[qos.classes.policer]
kind = "srtcm"
cir = 1000
cbs = 2000
ebs = 2000
# qos.classes.queue
[qos.classes.queue]
# qos.egress
[[qos.egress]]
port = "wan"
# routes
[[routes]]
prefix = "10.0.0.0/8"
via = "203.0.113.1"
port = "wan"
# routes.check
[routes.check]
# routing.rules
[[routing.rules]]
via = "203.0.113.1"
port = "wan"
# vrrp
[[vrrp]]
port = "wan"
id = 7
addresses = "203.0.113.6"
# ports.NAME
[ports.wan]
interface = "eth0"
addresses = ["203.0.113.2/29"]
[ports.lan]
mac = "02:00:00:00:00:02"
addresses = ["192.168.1.1/24"]
# dpdk
[dpdk]
# bgp
[bgp]
as = 64500
import = "accept"
export = "accept"
# bgp.damping
[bgp.damping]
# bgp.kernel
[bgp.kernel]
# bgp.mrt
[bgp.mrt]
# bgp.rpki_source
[[bgp.rpki_source]]
cache = "203.0.113.3"
# bgp.group
[[bgp.group]]
name = "g"
as = "any"
dynamic = "198.18.0.0/15"
# bgp.shared
[[bgp.neighbor]]
address = "203.0.113.3"
as = 64501
# bgp.shared.graceful_restart
[bgp.neighbor.graceful_restart]
# bgp.shared.max_prefixes
[bgp.neighbor.max_prefixes]
ipv4 = 10
# bgp.shared.add_path
[bgp.neighbor.add_path]
ipv4 = "both"
"#;

/// The result of a configuration as text, without its own text.
fn read(text: &str) -> Result<String, String> {
    let config = RouterConfig::from_text("test.toml", text, Path::new("/")).map_err(|e| e.to_string())?;
    Ok(format!("{:?}", RouterConfig { text: "".into(), warnings: Vec::new(), ..config }))
}

#[test]
fn defaults_are_what_holds_without_the_key() {
    let mut tried = 0;
    for section in keys() {
        let mark = format!("# {}\n", section.section);
        let Some((before, after)) = SECTIONS.split_once(&mark) else {
            let left: Vec<&KeyInfo> = section.keys.iter().filter(|key| key.default.is_some()).collect();
            // A count stands beside an AS number, so a test of the rules covers its default.
            assert!(
                left.is_empty() || section.section.ends_with("prepend"),
                "{} has defaults",
                section.title
            );
            continue;
        };
        let (header, rest) = after.split_once('\n').expect("a header");
        for key in &section.keys {
            let Some(default) = &key.default else { continue };
            // A key that may be a section is tried without that section.
            let rest = rest.replace(&format!("[{}.{}]\n", section.section, key.key), "");
            let without = read(&format!("{before}{header}\n{rest}"));
            let with = read(&format!("{before}{header}\n{} = {default}\n{rest}", key.key));
            assert!(without.is_ok(), "{} {}: {without:?}", section.title, key.key);
            assert_eq!(with, without, "{} {} = {default}", section.title, key.key);
            tried += 1;
        }
    }
    assert!(tried > 80, "{tried} defaults");
}

/// Values other than those of [`SECTIONS`], for keys that a reload cannot simply apply, and for some that it can.
const OTHER: &str = r#"
kernel routes = "import"
kernel neighbors = "import"
kernel metric = 7
kernel repair_s = 7
dpdk eal = ["--in-memory"]
dpdk mbufs = 8192
flows balance = true
flows observation_domain = 7
flows gso = false
flows store = "flows"
flows nat_events = "sessions"
flows idle_timeout_s = 7
flows key = "ports"
validate martians = false
nat hairpin = false
firewall policy = "deny"
firewall states_max = 7
ports.NAME mac = "02:00:00:00:00:09"
ports.NAME driver = "af_packet"
ports.NAME xdp_mode = "generic"
ports.NAME queues = 2
ports.NAME queue_workers = [0]
ports.NAME mirror = true
ports.NAME router_advertisements = true
ports.NAME default_mac = "02:00:00:00:00:09"
ports.NAME urpf = "strict"
bgp router_id = "192.0.2.9"
bgp listen = []
bgp scheduling = "serial"
bgp threads = 2
bgp install = "none"
bgp next_hop_check = "kernel"
bgp always_compare_med = true
bgp med_missing_as_worst = true
bgp compare_med_in_confederation = true
bgp selection_deferral_s = 7
bgp save_fib = true
bgp on_stop = "keep-routes"
bgp networks = ["192.0.2.0/24"]
bgp.kernel table = 7
bgp.kernel metric = 7
bgp.kernel repair_s = 7
bgp.mrt dump = "dump"
bgp.mrt interval_s = 7
bgp.mrt updates = "updates"
bgp.mrt rotate_s = 7
bgp.mrt compress = false
bgp.shared families = ["ipv4", "ipv6"]
bgp.shared passive = true
bgp.shared password = "x"
bgp.shared ttl_security = 7
bgp.shared multihop_ttl = 7
bgp.shared local_address = "203.0.113.2"
bgp.shared port = 7
bgp.shared hold_time_s = 7
bgp.shared hold_time_min_s = 7
bgp.shared keepalive_s = 7
bgp.shared connect_retry_s = 7
bgp.shared idle_hold_s = 7
bgp.shared idle_hold_max_s = 7
bgp.shared send_hold_s = 7
bgp.shared mrai_ms = 7
bgp.shared mrai_withdrawals = false
bgp.shared role = "peer"
bgp.shared allow_own_as = 7
bgp.shared as_set = "accept"
bgp.shared first_as_check = false
bgp.shared martian_check = false
bgp.shared honor_blackhole = true
bgp.shared keep_rejected = "all"
bgp.shared rpki = "reject-invalid"
bgp.rpki_source refresh_s = 7
bgp.rpki_source vrps_max = 7
bgp.shared route_server_client = true
bgp.shared next_hop_self = true
bgp.shared next_hop_unchanged = true
bgp.shared next_hop = "203.0.113.2"
bgp.shared private_as = "remove"
bgp.shared send_communities = false
bgp.shared four_octet_as = false
bgp.shared route_refresh = false
bgp.shared enhanced_refresh = false
bgp.shared extended_messages = false
bgp.shared extended_next_hop = true
bgp.shared description = "x"
bgp.shared enabled = false
bgp.shared.graceful_restart time_s = 7
bgp.shared.graceful_restart stale_path_s = 7
bgp.shared.graceful_restart notification = false
bgp.shared.max_prefixes ipv6 = 7
bgp.shared.max_prefixes warn_percent = 7
bgp.shared.add_path ipv4 = "send"
bgp.shared.add_path paths = 7
"#;

/// How a reload treats a difference, in the words of the table.
fn reload(old: &RouterConfig, new: &RouterConfig) -> &'static str {
    let ports = old.ports.iter().zip(&new.ports);
    let bgp = diff(old.bgp.as_ref().expect("BGP"), new.bgp.as_ref().expect("BGP"));
    match () {
        () if needs_restart(old, new).is_some() || !bgp.restart.is_empty() => "restart",
        () if ports.filter_map(|(old, new)| port_needs_restart(old, new)).count() > 0 => "new-port",
        () if !bgp.reset.is_empty() => "session",
        () => "live",
    }
}

#[test]
fn a_reload_does_what_rows_say() {
    let parse = |text: &str| RouterConfig::from_text("test.toml", text, Path::new("/"));
    let before_reload = parse(SECTIONS).expect("a good configuration");
    let (sections, mut failures) = (keys(), Vec::new());
    for line in OTHER.lines().filter(|line| !line.is_empty()) {
        let (name, assignment) = line.split_once(' ').expect("a section");
        let key = assignment.split(' ').next().expect("a key");
        let section = sections.iter().find(|each| each.section == name).expect("a section");
        let row = section.keys.iter().find(|row| row.key == key).expect("a row");
        let (before, after) = SECTIONS.split_once(&format!("# {name}\n")).expect("the section's heading");
        let (header, rest) = after.split_once('\n').expect("a header");
        // Removes the section's own line for the key.
        let own = rest.lines().take_while(|line| !line.starts_with(['[', '#']));
        let given = own.filter(|line| line.starts_with(&format!("{key} =")));
        let rest = given.fold(rest.to_owned(), |rest, line| rest.replacen(line, "", 1));
        let other = format!("{before}{header}\n{assignment}\n{rest}");
        match parse(&other).map(|other| reload(&before_reload, &other)) {
            Ok(what) if what == row.reload => {}
            other => failures.push(format!("{line}: {other:?}, the row says {}", row.reload)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(reload(&before_reload, &before_reload), "live");
}

/// Every key of a table has a row.
fn check(sections: &[SectionInfo], section: &SectionInfo, value: &Value, file: &Path) {
    match value {
        Value::Array(entries) => {
            entries.iter().for_each(|entry| check(sections, section, entry, file));
        }
        Value::Table(table) => {
            for (name, value) in table {
                let has_shared = ["bgp", "bgp.group", "bgp.neighbor"].contains(&section.section);
                let is_it = |row: &&KeyInfo| row.key == name || row.former == Some(name);
                let shared = sections.iter().find(|each| has_shared && each.section == "bgp.shared");
                let row = section.keys.iter().chain(shared.iter().flat_map(|each| &each.keys)).find(is_it);
                let Some(row) = row else {
                    panic!("{}: `{name}` of {} has no row", file.display(), section.title)
                };
                let begun = sections.iter().find(|each| Some(each.section) == row.section);
                match (begun, value) {
                    (None, _) => {}
                    // The keys of this table are names.
                    (Some(begun), Value::Table(named)) if begun.section.ends_with(".NAME") => {
                        named.values().for_each(|value| check(sections, begun, value, file));
                    }
                    (Some(begun), value) => check(sections, begun, value, file),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_key_in_use_has_a_row() {
    let sections = keys();
    let mut files = 0;
    let mut folders = vec![repository().join("examples"), repository().join("crates/config/tests/warnings")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                let text = std::fs::read_to_string(&path).expect("text");
                let Ok(document) = text.parse::<toml::Table>() else { continue };
                check(&sections, &sections[0], &Value::Table(document), &path);
                files += 1;
            }
        }
    }
    assert!(files >= 15, "{files} files");
}

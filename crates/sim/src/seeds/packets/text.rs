//! Writes the configuration of a setup as an operator would.

use std::fmt::Write;
use std::path::Path;

use thalweg_config::{ConfigErrors, RouterConfig};

use super::frames::{FORWARD, inside, public};
use super::plan::{ClassSetup, Deny, FlowSetup, NatSetup, Setup};

/// DSCP of voice and of bulk.
pub(super) const VOICE: u8 = 46;
/// The DSCP of voice beyond its rate, if it is remarked.
pub(super) const REMARKED: u8 = 10;
/// The MTU of a small outside port.
pub(super) const SMALL_MTU: usize = 400;
/// The most blocks of a subscriber.
pub(super) const BLOCKS: u16 = 2;

/// The configuration of a setup.
pub(super) fn configuration(setup: &Setup) -> Result<RouterConfig, ConfigErrors> {
    let mut config = RouterConfig::from_text("router.toml", &text(setup), Path::new(""))?;
    if let (Some(flows), Some(wanted)) = (&mut config.flows, &setup.flows) {
        // Smaller than operators may configure it, so that a few packets fill it. A shard has at least 16
        // flows.
        let shards = setup.nat.as_ref().map_or(64, |nat| u32::from(nat.shards));
        flows.meter.flows_max = wanted.flows_max.max(16 * shards);
        flows.meter.huge_pages = false;
    }
    Ok(config)
}

fn text(setup: &Setup) -> String {
    let lans: Vec<String> = (0..setup.lans()).map(|lan| format!("lan{lan}")).collect();
    let mut text = ports(setup);
    let six = (!setup.small_mtu).then_some(("2001:db8::/32", "via = \"2001:db8:1::2\""));
    let four = [
        ("0.0.0.0/0", "via = \"198.51.100.2\""),
        ("10.9.0.0/16", "action = \"blackhole\""),
        ("10.10.0.0/16", "action = \"unreachable\""),
    ];
    for (prefix, way) in four.into_iter().chain(six) {
        let _ = writeln!(text, "[[routes]]\nprefix = \"{prefix}\"\n{way}");
    }
    if let Some(nat) = &setup.nat {
        text += &translation(nat, &lans);
    }
    if let Some(deny) = setup.deny {
        let rule = match deny {
            Deny::Host(host) => format!("source = \"{}/32\"", inside(host, setup.lans()).1),
            Deny::Udp => "protocol = \"udp\"".to_owned(),
        };
        let _ = writeln!(
            text,
            "[[acl]]\nname = \"inside\"\ndefault = \"permit\"\nrules = [{{ action = \"deny\", {rule} }}]"
        );
    }
    if let Some(classes) = &setup.classes {
        text += &traffic_classes(classes);
    }
    if let Some(flows) = &setup.flows {
        text += &metering(flows);
    }
    text
}

fn ports(setup: &Setup) -> String {
    let mut text = String::new();
    let mut port = |name: &str, number: u8, addresses: &str, more: &str| {
        let _ = writeln!(
            text,
            "[ports.{name}]\nmac = \"02:00:00:00:00:{number:02x}\"\naddresses = [{addresses}]\n{more}"
        );
    };
    let known = |number: u8| format!("default_mac = \"02:00:00:00:ff:{number:02x}\"\n");
    let mut outside = if setup.lost_gateway { String::new() } else { known(0) };
    if setup.small_mtu {
        let _ = writeln!(outside, "mtu = {SMALL_MTU}");
    }
    // IPv6 requires a link MTU of at least 1280 bytes.
    let six = if setup.small_mtu { "" } else { ", \"2001:db8:1::1/64\"" };
    port("wan", 0, &format!("\"198.51.100.1/24\"{six}"), &outside);
    port("dark", 1, "\"10.11.0.1/24\"", "");
    for lan in 0..setup.lans() {
        let mut more = known(2 + lan);
        if setup.strict_sources {
            more += "urpf = \"strict\"\n";
        }
        if setup.deny.is_some() {
            more += "acl_in = \"inside\"\n";
        }
        let addresses = format!("\"10.0.{lan}.1/24\", \"fd00:0:0:{lan}::1/64\"");
        port(&format!("lan{lan}"), 2 + lan, &addresses, &more);
    }
    text
}

fn translation(nat: &NatSetup, lans: &[String]) -> String {
    let addresses: Vec<String> = (0..nat.addresses).map(|at| public(at).to_string()).collect();
    let [udp, established, transitory, icmp, other] = nat.lives_s();
    let mut text = format!(
        "[nat]\noutside = \"wan\"\ninside = {lans:?}\naddresses = {addresses:?}\nports = \"{}-{}\"\nshards = {}\n\
         sessions_max = {}\nport_selection = \"{}\"\nfiltering = \"{}\"\nhairpin = {}\ninbound_refresh = {}\n\
         drop_half_open = {}\n",
        nat.ports.0,
        nat.ports.1,
        nat.shards,
        nat.sessions_max,
        if nat.hash { "hash" } else { "preserve" },
        match (nat.address_dependent, nat.port_dependent) {
            (false, _) => "endpoint-independent",
            (true, false) => "address-dependent",
            (true, true) => "address-and-port-dependent",
        },
        !nat.no_hairpin,
        nat.inbound_refresh,
        !nat.keep_half_open,
    );
    if nat.block.is_none() {
        let (sessions, rate) = nat.host_limits;
        let _ = writeln!(text, "host_sessions_max = {sessions}\nhost_sessions_per_second = {rate}");
    }
    let _ = writeln!(
        text,
        "[nat.timeouts]\nudp_s = {udp}\ntcp_established_s = {established}\ntcp_transitory_s = {transitory}\n\
         tcp_aborted_s = 2\nicmp_s = {icmp}\nother_s = {other}"
    );
    if let Some(block) = nat.block {
        let ports_max = u32::from(block) * u32::from(BLOCKS);
        let _ = writeln!(
            text,
            "[nat.subscribers]\nblocks = \"dynamic\"\nblock_size = {block}\nports_max = {ports_max}\nhold_s = 5"
        );
    }
    if nat.forward {
        let (port, to) = FORWARD;
        let host = inside(0, 1).1;
        let _ = writeln!(text, "[[nat.forwards]]\nprotocol = \"udp\"\nport = {port}\nto = \"{host}:{to}\"");
    }
    text
}

fn traffic_classes(classes: &ClassSetup) -> String {
    let mut text = format!("[[qos.classes]]\nname = \"voice\"\nstrict = 0\nmatch = [{{ dscp = {VOICE} }}]\n");
    if let Some(bps) = classes.policed_bps {
        let red = if classes.remark {
            format!("red = \"remark\"\nred_dscp = {REMARKED}\n")
        } else {
            "red = \"drop\"\n".to_owned()
        };
        let _ = write!(
            text,
            "[qos.classes.policer]\nkind = \"srtcm\"\ncir = {bps}\ncbs = 1500\nebs = 1500\n{red}"
        );
    }
    text + "[[qos.classes]]\nname = \"bulk\"\nweight = 1\nmatch = [{ dscp = 8 }]\n\
            [[qos.classes]]\nname = \"default\"\nweight = 4\n"
}

fn metering(flows: &FlowSetup) -> String {
    let mut text = format!(
        "[flows]\ncollectors = [\"ipfix://192.0.2.9:4739\"]\nidle_timeout_s = {}\nactive_timeout_s = {}\nbiflow = {}\n\
         sample = {}\n",
        flows.idle_s, flows.active_s, flows.biflow, flows.sample
    );
    if flows.without_ports {
        text += "key = [\"ingress\"]\n";
    }
    text
}

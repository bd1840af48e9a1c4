//! `thalweg check` on interfaces: how ports would be driven, and what prevents it.

use std::fs;

use serde_json::Value;

use crate::site::{OFFICE, OUTSIDE, Site, eventually};

fn check(site: &Site, config: &str, arguments: &[&str]) -> (Value, String) {
    let file = site.file("check.toml");
    fs::write(&file, config).expect("the folder is writable");
    let file = file.display().to_string();
    let ask = |format: &str| {
        let all = [&["check", &file, "--format", format][..], arguments].concat();
        site.said(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &all)
    };
    (serde_json::from_str(&ask("json")).expect("JSON"), ask("human"))
}

fn port(name: &str, interface: &str, more: &str) -> String {
    format!("[ports.{name}]\ninterface = \"{interface}\"\n{more}\n")
}

/// Says which priority the forwarding threads will have and, if it is not the best one, which right is missing.
#[test]
fn the_priority_of_workers_is_said() {
    let Some(site) = Site::new() else { return };
    let config = port("lan", "lan", "addresses = [\"10.1.0.1/24\"]");
    let (json, text) = check(&site, &config, &[]);
    let here = json["workers"]["priority_here"].as_str().expect("a priority");
    assert!(["realtime", "nice", "normal"].contains(&here), "{json:#}");
    assert!(text.contains(&format!("Forwarding threads get priority {here} here.")), "{text}");
    let file = site.file("check.toml").display().to_string();
    let without_rights =
        ["--rtprio=0", "--nice=0", "setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"];
    let all = [&without_rights[..], &[env!("CARGO_BIN_EXE_thalweg"), "check", &file]].concat();
    let text = site.said(&site.router(), "prlimit", &all);
    assert!(text.contains("Forwarding threads get priority normal here."), "{text}");
    assert!(text.contains("instead of realtime") && text.contains("LimitRTPRIO=1"), "{text}");
    let (json, _) = check(&site, &config, &["--offline"]);
    assert_eq!(json["workers"]["priority_here"], Value::Null, "no neighbor request was sent");
}

#[test]
fn ports_are_told_what_they_will_get() {
    let Some(site) = Site::new() else { return };
    let here = site.router();
    site.ip(&here, "link add many numtxqueues 2 type veth peer name few numrxqueues 1");
    site.ip(&here, "link set few up");
    let config = [
        port("lan", "lan", "addresses = [\"10.1.0.1/24\"]"),
        port("slow", "wan", "driver = \"af_packet\"\nmtu = 9000"),
        port("few", "few", ""),
        port("other", "guest", "mac = \"02:00:00:00:00:07\""),
        port("xdp", "many", "driver = \"af_xdp\"\nmac = \"02:00:00:00:00:08\""),
        port("none", "nosuch0", ""),
        port("made", "made0", "driver = \"tap\"\nmac = \"02:00:00:00:00:09\""),
    ];
    let pings = || assert!(site.pings(OFFICE, OFFICE.gateway_v4), "the system goes on");
    site.ip(&here, &format!("addr add {}/24 dev lan", OFFICE.gateway_v4));
    pings();
    let (json, text) = check(&site, &config.concat(), &[]);
    pings();
    let of = |name: &str| -> Value {
        let ports = json["ports"].as_array().expect("ports");
        ports.iter().find(|port| port["name"] == name).expect("the port")["interface"].clone()
    };
    let has = |value: &Value, part: &str| assert!(value.to_string().contains(part), "{part}: {value}");
    assert_eq!(of("lan")["mode"], "af_xdp native copy", "{json:#}");
    has(&of("lan")["why_not_better"], "native zero-copy: ");
    has(&of("lan")["findings"], "the system still has 10.1.0.1/24 on lan");
    has(&of("lan")["findings"], "`ip addr del 10.1.0.1/24 dev lan`");
    assert_eq!(of("lan")["findings"].as_array().map(Vec::len), Some(1), "{json:#}");
    let mac = |name: &str| {
        let ports = json["ports"].as_array().expect("ports");
        ports.iter().find(|port| port["name"] == name).expect("the port")["mac"].clone()
    };
    assert_eq!(mac("lan"), site.mac_of(&here, "lan").to_string(), "as it will be");
    assert_eq!((mac("other"), mac("none")), ("02:00:00:00:00:07".into(), Value::Null));
    assert!(text.contains("that of nosuch0, at start") && text.contains("asked for (ARP, ND)"), "{text}");
    assert_eq!((&of("slow")["mode"], &of("slow")["why_not_better"]), (&"af_packet".into(), &Value::Null));
    has(&of("slow")["findings"], "wan takes packets of 1500 bytes, the configuration says 9000");
    assert_eq!(of("few")["mode"], "af_xdp generic copy");
    has(&of("few")["why_not_better"], "native copy: ");
    has(&of("few")["findings"], "few has no carrier");
    assert_eq!(of("other")["mode"], "af_packet");
    has(&of("other")["why_not_better"], "leave `mac` out");
    assert_eq!(of("xdp")["mode"], Value::Null);
    has(&of("xdp")["findings"], "leave `mac` out");
    has(&of("xdp")["findings"], "`ip link set many up`");
    assert_eq!(of("none")["mode"], Value::Null);
    has(&of("none")["findings"], "no such interface");
    assert_eq!(of("made")["mode"], "tap");
    for part in
        ["cannot be opened", "not better: native zero-copy", "af_xdp generic copy", "few has no carrier"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The kernel's asynchronous clean-up leaves nothing attached.
    for interface in ["lan", "guest", "few"] {
        eventually("the program is gone", || {
            let said = site.said(&here, "ip", &["-d", "link", "show", interface]);
            (!said.contains("prog/xdp")).then_some(())
        });
    }
    let (json, text) = check(&site, &config.concat(), &["--offline"]);
    assert_eq!(json["ports"][0]["interface"]["looked_at"], false);
    assert!(!text.contains("here and now"), "{text}");
}

/// An interface that another router uses: `check` and a second router name that router.
#[test]
fn an_interface_has_one_router() {
    let Some(site) = Site::new() else { return };
    for driver in ["af_packet", "af_xdp"] {
        let more = |host: crate::site::Host| {
            format!("driver = \"{driver}\"\naddresses = [\"{}/24\"]", host.gateway_v4)
        };
        let config = [port("lan", "lan", &more(OFFICE)), port("wan", "wan", &more(OUTSIDE))].concat();
        let router = site.run_alone(&config, &[]);
        let (json, _) = check(&site, &config, &[]);
        let findings = json["ports"][0]["interface"]["findings"].to_string();
        assert!(findings.contains("lan: another router (process "), "{findings}");
        let file = site.file("router.toml").display().to_string();
        let socket = site.file("second.sock").display().to_string();
        let second =
            site.output(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &["run", &file, "--socket", &socket]);
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(
            !second.status.success() && said.contains("port lan: lan: another router (process "),
            "{said}"
        );
        // The first router continues.
        router.counters_add_up();
        let twice = [port("a", "lan", ""), port("b", "lan", "")].concat();
        drop(router);
        fs::write(site.file("twice.toml"), twice).expect("the folder is writable");
        let file = site.file("twice.toml").display().to_string();
        let output =
            site.output(&site.router(), env!("CARGO_BIN_EXE_thalweg"), &["run", &file, "--socket", &socket]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("two ports have interface lan") && said.contains("that on line 2"), "{said}");
    }
}

/// A port with VLANs is shown with the driver that it will get, and its VLANs with its MAC address.
#[test]
fn a_trunk_is_shown_as_it_will_be() {
    let Some(site) = Site::new() else { return };
    let config = [
        port("lan", "lan", "addresses = [\"10.1.0.1/24\"]"),
        "[ports.voice]\nparent = \"lan\"\nvlan = 7\naddresses = [\"10.7.0.1/24\"]\n".to_owned(),
    ]
    .concat();
    let (json, text) = check(&site, &config, &[]);
    let lan = &json["ports"][0];
    assert_eq!(lan["interface"]["mode"], "af_packet", "{json:#}");
    assert!(lan["interface"]["why_not_better"].to_string().contains("VLAN tags"), "{json:#}");
    assert_eq!((&lan["mac"], lan["mac"].is_string()), (&json["ports"][1]["mac"], true));
    assert!(text.contains("VLAN 7 of lan"), "{text}");
    let router = site.run_alone(&config, &[]);
    assert_eq!(router.show(&["ports"]).expect("the router answers")[0]["mode"], lan["interface"]["mode"]);
}

//! FRR's bgpd, with zebra beside it. Without zebra, bgpd knows no interfaces, and takes IPv6 routes with a
//! link-local next hop for withdrawn.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::net::{Net, Process, address, program, until};
use crate::router::{Family, Route, Router, Routes, Spec, numbers};

const BGPD: &str = "/usr/lib/frr/bgpd";
const ZEBRA: &str = "/usr/lib/frr/zebra";

pub(crate) struct Frr<'a> {
    net: &'a Net,
    spec: Spec,
    folder: PathBuf,
    process: Option<Process>,
    zebra: Option<Process>,
}

pub(crate) fn make<'a>(net: &'a Net, spec: Spec) -> Option<Box<dyn Router + 'a>> {
    program(&[BGPD], "frr")?;
    program(&["vtysh"], "frr")?;
    let folder = net.folder("frr");
    let mut frr = Frr { net, spec, folder, process: None, zebra: None };
    frr.start();
    Some(Box::new(frr))
}

fn unicast(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4 unicast",
        Family::V6 => "ipv6 unicast",
    }
}

impl Frr<'_> {
    fn configuration(&self) -> String {
        let spec = &self.spec;
        let mut text = format!(
            "frr defaults datacenter\nlog stdout\nrouter bgp {}\n bgp router-id {}\n no bgp ebgp-requires-policy\n \
             no bgp network import-check\n no bgp default ipv4-unicast\n no bgp suppress-duplicates\n \
             bgp coalesce-time 0\n timers bgp {} {}\n timers bgp minimum-holdtime 1\n timers connect 1\n",
            spec.as_number,
            spec.router_id(),
            (spec.hold_time_s / 3).max(1),
            spec.hold_time_s
        );
        if spec.graceful_restart {
            text.push_str(" bgp graceful-restart\n bgp graceful-restart preserve-fw-state\n");
        }
        for family in &spec.families {
            let neighbor = spec.neighbor(*family);
            let _ = writeln!(text, " neighbor {neighbor} remote-as {}", spec.neighbor_as);
            let _ = writeln!(text, " neighbor {neighbor} timers connect 1");
            let _ = writeln!(text, " neighbor {neighbor} advertisement-interval 0");
            if let Some(password) = &spec.password {
                let _ = writeln!(text, " neighbor {neighbor} password {password}");
            }
            if spec.passive {
                let _ = writeln!(text, " neighbor {neighbor} passive");
            }
        }
        for family in &spec.families {
            let neighbor = spec.neighbor(*family);
            let _ = writeln!(text, " address-family {}", unicast(*family));
            for network in spec.networks_of(*family) {
                let _ = writeln!(text, "  network {network}");
            }
            let _ = writeln!(text, "  neighbor {neighbor} activate");
            let _ = writeln!(text, "  neighbor {neighbor} soft-reconfiguration inbound");
            if spec.add_path {
                let _ = writeln!(text, "  neighbor {neighbor} addpath-tx-all-paths");
            }
            text.push_str(" exit-address-family\n");
        }
        text
    }

    fn ask(&self, commands: &[&str]) -> Result<String, String> {
        let folder = self.folder.display().to_string();
        let mut arguments = vec!["--vty_socket", &folder, "-d", "bgpd"];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        let output = self.net.output(self.spec.end, "vtysh", &arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(text) } else { Err(text) }
    }

    fn json(&self, command: &str) -> Result<Value, String> {
        let text = self.ask(&[command])?;
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }

    fn change(&self, networks: &[String], word: &str) {
        for family in &self.spec.families {
            let lines: Vec<String> = networks
                .iter()
                .filter(|n| family.has(n))
                .map(|network| format!("{word} {network}"))
                .collect();
            let (number, family) = (
                format!("router bgp {}", self.spec.as_number),
                format!("address-family {}", unicast(*family)),
            );
            for lines in lines.chunks(200) {
                let mut commands = vec!["configure terminal", &number, &family];
                commands.extend(lines.iter().map(String::as_str));
                let answer = self.ask(&commands).expect("vtysh answers");
                assert!(!answer.contains('%'), "{answer}");
            }
        }
    }
}

impl Router for Frr<'_> {
    fn name(&self) -> &'static str {
        "FRR"
    }

    fn check(&mut self) -> Result<(), String> {
        self.process.as_mut().map_or(Ok(()), Process::check)
    }

    fn established(&mut self, family: Family) -> Result<(), String> {
        let neighbor = self.spec.neighbor(family).to_string();
        let answer = self.json(&format!("show bgp neighbors {neighbor} json"))?;
        match answer[&neighbor]["bgpState"].as_str() {
            Some("Established") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    fn routes(&mut self, family: Family) -> Result<Routes, String> {
        let answer = self.json(&format!("show bgp {} json", unicast(family)))?;
        let mut routes = Routes::new();
        for (prefix, paths) in answer["routes"].as_object().into_iter().flatten() {
            for path in paths.as_array().into_iter().flatten() {
                if path["peerId"].as_str().is_none_or(|peer| peer == "(unspec)") {
                    continue;
                }
                let next_hop = path["nexthops"][0]["ip"].as_str().and_then(address);
                let route = Route { path: numbers(path["path"].as_str().unwrap_or_default()), next_hop };
                routes.entry(prefix.clone()).or_default().push(route);
            }
        }
        routes.values_mut().for_each(|paths| paths.sort());
        Ok(routes)
    }

    fn announce(&mut self, networks: &[String]) {
        self.spec.networks.extend_from_slice(networks);
        self.change(networks, "network");
    }

    fn withdraw(&mut self, networks: &[String]) {
        self.spec.networks.retain(|n| !networks.contains(n));
        self.change(networks, "no network");
    }

    fn refresh(&mut self, family: Family) {
        let neighbor = self.spec.neighbor(family);
        let answer = self.ask(&[&format!("clear bgp {} {neighbor} in", unicast(family))]);
        assert!(!answer.as_ref().expect("vtysh answers").contains('%'), "{answer:?}");
    }

    fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    fn stop(&mut self) {
        self.process.take().expect("it runs").stop();
    }

    fn start(&mut self) {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let (config, pid, folder) = (path("bgpd.conf"), path("bgpd.pid"), self.folder.display().to_string());
        fs::write(&config, self.configuration()).expect("writing");
        let (api, zebra_config, zebra_pid) = (path("zserv.api"), path("zebra.conf"), path("zebra.pid"));
        let zebra_log = self.folder.join("zebra.log");
        if self.zebra.is_none() {
            fs::write(&zebra_config, "log stdout\n").expect("writing");
            let arguments =
                ["-f", &zebra_config, "-i", &zebra_pid, "-z", &api, "--vty_socket", &folder, "-P", "0"];
            self.zebra = Some(self.net.start(self.spec.end, ZEBRA, &arguments, &zebra_log));
            until("zebra starts", 10, || {
                self.zebra.as_mut().map_or(Ok(()), Process::check)?;
                fs::metadata(&api).map(drop).map_err(|error| error.to_string())
            });
        }
        let arguments =
            ["-f", &config, "-n", "-z", &api, "-S", "-i", &pid, "--vty_socket", &folder, "-P", "0"];
        let log = self.folder.join("log");
        self.process = Some(self.net.start(self.spec.end, BGPD, &arguments, &log));
        until("FRR starts", 10, || {
            self.check()?;
            self.ask(&["show version"]).map(drop)
        });
    }

    fn signal(&mut self, signal: &str) {
        self.process.as_ref().expect("it runs").signal(signal);
    }
}

//! OpenBGPD.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::net::{Net, Process, address, program, until};
use crate::router::{Family, Route, Router, Routes, Spec, numbers};

const BGPD: &str = "/usr/sbin/bgpd";

pub(crate) struct OpenBgpd<'a> {
    net: &'a Net,
    spec: Spec,
    folder: PathBuf,
    process: Option<Process>,
}

pub(crate) fn make<'a>(net: &'a Net, spec: Spec) -> Option<Box<dyn Router + 'a>> {
    program(&[BGPD], "openbgpd")?;
    program(&["bgpctl"], "openbgpd")?;
    let folder = net.folder("openbgpd");
    let mut bgpd = OpenBgpd { net, spec, folder, process: None };
    bgpd.start();
    Some(Box::new(bgpd))
}

impl OpenBgpd<'_> {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn configuration(&self) -> String {
        let spec = &self.spec;
        let mut text = format!(
            "AS {}\nrouter-id {}\nfib-update no\nholdtime {}\nsocket \"{}\"\n",
            spec.as_number,
            spec.router_id(),
            spec.hold_time_s.max(3),
            self.path("bgpd.sock")
        );
        if !spec.passive {
            text.push_str("connect-retry 1\n");
        }
        for family in &spec.families {
            let _ = writeln!(text, "listen on {}", spec.local(*family));
        }
        for network in &spec.networks {
            let _ = writeln!(text, "network {network}");
        }
        for family in &spec.families {
            let _ = writeln!(text, "neighbor {} {{", spec.neighbor(*family));
            let _ = writeln!(text, "\tremote-as {}", spec.neighbor_as);
            let _ = writeln!(text, "\tlocal-address {}", spec.local(*family));
            if let Some(password) = &spec.password {
                let _ = writeln!(text, "\ttcp md5sig password {password}");
            }
            if spec.passive {
                text.push_str("\tpassive\n");
            }
            if spec.add_path {
                text.push_str("\tannounce add-path recv yes\n\tannounce add-path send all\n");
            }
            let other = if *family == Family::V4 { "IPv6" } else { "IPv4" };
            let mine = if *family == Family::V4 { "IPv4" } else { "IPv6" };
            let restart = if spec.graceful_restart { "yes" } else { "no" };
            let _ = writeln!(
                text,
                "\tannounce {other} none\n\tannounce {mine} unicast\n\tannounce restart {restart}"
            );
            text.push_str("}\n");
        }
        text + "allow from any\nallow to any\n"
    }

    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let socket = self.path("bgpd.sock");
        let output =
            self.net.output(self.spec.end, "bgpctl", &[&["-s", socket.as_str()], arguments].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let wrong = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(text) } else { Err(text + &wrong) }
    }

    fn json(&self, arguments: &[&str]) -> Result<Value, String> {
        let text = self.ask(&[&["-j"], arguments].concat())?;
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }

    fn change(&self, networks: &[String], word: &str) {
        for network in networks {
            self.ask(&["network", word, network]).expect("bgpctl answers");
        }
    }
}

impl Router for OpenBgpd<'_> {
    fn name(&self) -> &'static str {
        "OpenBGPD"
    }

    fn check(&mut self) -> Result<(), String> {
        self.process.as_mut().map_or(Ok(()), Process::check)
    }

    fn established(&mut self, family: Family) -> Result<(), String> {
        let answer = self.json(&["show", "neighbor", &self.spec.neighbor(family).to_string()])?;
        match answer["neighbors"][0]["state"].as_str() {
            Some("Established") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    fn routes(&mut self, family: Family) -> Result<Routes, String> {
        let name = if family == Family::V4 { "ipv4" } else { "ipv6" };
        let answer = self.json(&["show", "rib", name])?;
        let mut routes = Routes::new();
        for path in answer["rib"].as_array().into_iter().flatten() {
            if path["announced"].as_bool() == Some(true) || path["origin"].is_null() {
                continue;
            }
            let (prefix, neighbor) = (path["prefix"].as_str().unwrap_or_default(), &path["neighbor"]);
            if neighbor["remote_addr"].as_str().is_none_or(|a| a.is_empty() || a == "0.0.0.0" || a == "::") {
                continue;
            }
            let next_hop = path["exit_nexthop"].as_str().and_then(address);
            let route = Route { path: numbers(path["aspath"].as_str().unwrap_or_default()), next_hop };
            routes.entry(prefix.to_owned()).or_default().push(route);
        }
        routes.values_mut().for_each(|paths| paths.sort());
        Ok(routes)
    }

    fn announce(&mut self, networks: &[String]) {
        self.spec.networks.extend_from_slice(networks);
        self.change(networks, "add");
    }

    fn withdraw(&mut self, networks: &[String]) {
        self.spec.networks.retain(|n| !networks.contains(n));
        // A network from the configuration can be withdrawn only by changing the configuration.
        fs::write(self.path("bgpd.conf"), self.configuration()).expect("writing");
        self.ask(&["reload"]).expect("bgpctl answers");
        for network in networks {
            let _ = self.ask(&["network", "delete", network]);
        }
    }

    fn refresh(&mut self, family: Family) {
        let neighbor = self.spec.neighbor(family).to_string();
        self.ask(&["neighbor", &neighbor, "refresh"]).expect("bgpctl answers");
    }

    fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
        let _ = fs::remove_file(self.path("bgpd.sock"));
    }

    fn stop(&mut self) {
        self.process.take().expect("it runs").stop();
    }

    fn start(&mut self) {
        // Its unprivileged processes change their root directory to their user's home.
        let home =
            Command::new("sh").args(["-c", "mkdir -p \"$(getent passwd _openbgpd | cut -d: -f6)\""]).status();
        assert!(home.is_ok_and(|status| status.success()), "no home for OpenBGPD");
        let config = self.path("bgpd.conf");
        fs::write(&config, self.configuration()).expect("writing");
        Command::new("chmod").args(["600", &config]).status().expect("chmod runs");
        let log = self.folder.join("log");
        self.process = Some(self.net.start(self.spec.end, BGPD, &["-d", "-f", &config], &log));
        until("OpenBGPD starts", 10, || {
            self.check()?;
            self.ask(&["show"]).map(drop)
        });
    }

    fn signal(&mut self, signal: &str) {
        self.process.as_ref().expect("it runs").signal(signal);
    }
}

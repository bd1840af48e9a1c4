//! ExaBGP. It has no table, so the learned routes are collected from the UPDATEs that it reports.
//!
//! It writes reports with blocking calls. The program that sends it commands reads nothing, so it gets no
//! reports: once that pipe was full, ExaBGP would stop and read no more commands.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::net::{Net, Process, address, program, until};
use crate::router::{Family, Route, Router, Routes, Spec};

pub(crate) struct ExaBgp<'a> {
    net: &'a Net,
    spec: Spec,
    folder: PathBuf,
    process: Option<Process>,
    commands: Option<File>,
}

pub(crate) fn make<'a>(net: &'a Net, spec: Spec) -> Option<Box<dyn Router + 'a>> {
    program(&["exabgp"], "exabgp")?;
    let folder = net.folder("exabgp");
    let mut exabgp = ExaBgp { net, spec, folder, process: None, commands: None };
    exabgp.start();
    Some(Box::new(exabgp))
}

impl ExaBgp<'_> {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn configuration(&self) -> String {
        let spec = &self.spec;
        let mut text = format!(
            "process commands {{\n  run {};\n  encoder text;\n}}\nprocess events {{\n  run {};\n  encoder json;\n}}\n",
            self.path("commands.sh"),
            self.path("events.sh")
        );
        for family in &spec.families {
            let name = if *family == Family::V4 { "ipv4" } else { "ipv6" };
            let password =
                spec.password.as_ref().map_or(String::new(), |p| format!("  md5-password \"{p}\";\n"));
            let passive = if spec.passive { "  passive true;\n" } else { "" };
            let restart = if spec.graceful_restart { "    graceful-restart 60;\n" } else { "" };
            let add_path = if spec.add_path { "    add-path send/receive;\n" } else { "" };
            let _ = write!(
                text,
                "neighbor {} {{\n  router-id {};\n  local-address {};\n  local-as {};\n  peer-as {};\n  \
                 hold-time {};\n{password}{passive}  capability {{\n    route-refresh enable;\n{restart}{add_path}  }}\n  \
                 family {{\n    {name} unicast;\n  }}\n  api commands-{name} {{\n    processes [ commands ];\n  }}\n  \
                 api events-{name} {{\n    processes [ events ];\n    neighbor-changes;\n    receive {{\n      parsed;\n      \
                 update;\n    }}\n  }}\n",
                spec.neighbor(*family),
                spec.router_id(),
                spec.local(*family),
                spec.as_number,
                spec.neighbor_as,
                spec.hold_time_s,
            );
            text.push_str("  static {\n");
            for network in spec.networks_of(*family) {
                let _ = writeln!(text, "    route {network} next-hop {};", spec.local(*family));
            }
            text.push_str("  }\n}\n");
        }
        text
    }

    fn command(&mut self, lines: String) {
        let pipe = self.commands.as_mut().expect("it runs");
        pipe.write_all(lines.as_bytes()).expect("it reads");
    }

    fn change(&mut self, networks: &[String], word: &str) {
        let mut lines = String::new();
        for network in networks {
            let family = if Family::V4.has(network) { Family::V4 } else { Family::V6 };
            let (neighbor, local) = (self.spec.neighbor(family), self.spec.local(family));
            let _ = writeln!(lines, "neighbor {neighbor} {word} route {network} next-hop {local}");
        }
        self.command(lines);
    }

    /// The events that it reported about one family's session, in order.
    fn events(&self, family: Family) -> Result<Vec<Value>, String> {
        let text = fs::read_to_string(self.folder.join("events")).map_err(|error| error.to_string())?;
        let neighbor = self.spec.neighbor(family).to_string();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(events.filter(|e| e["neighbor"]["address"]["peer"].as_str() == Some(&neighbor)).collect())
    }
}

impl Router for ExaBgp<'_> {
    fn name(&self) -> &'static str {
        "ExaBGP"
    }

    fn check(&mut self) -> Result<(), String> {
        self.process.as_mut().map_or(Ok(()), Process::check)
    }

    fn established(&mut self, family: Family) -> Result<(), String> {
        let events = self.events(family)?;
        let last = events.iter().rev().find(|event| event["type"] == "state");
        match last.and_then(|event| event["neighbor"]["state"].as_str()) {
            Some("up") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    fn routes(&mut self, family: Family) -> Result<Routes, String> {
        let mut routes = Routes::new();
        let name = if family == Family::V4 { "ipv4 unicast" } else { "ipv6 unicast" };
        for event in self.events(family)? {
            if event["type"] == "state" && event["neighbor"]["state"] != "up" {
                routes.clear();
            }
            let update = &event["neighbor"]["message"]["update"];
            let text = |nlri: &Value| nlri["nlri"].as_str().or(nlri.as_str()).unwrap_or_default().to_owned();
            for nlri in update["withdraw"][name].as_array().into_iter().flatten() {
                routes.remove(&text(nlri));
            }
            let path = update["attribute"]["as-path"].as_array().into_iter().flatten();
            let path: Vec<u32> = path.filter_map(|n| n.as_u64().map(|n| n as u32)).collect();
            for (next_hop, nlris) in update["announce"][name].as_object().into_iter().flatten() {
                for nlri in nlris.as_array().into_iter().flatten() {
                    let route = Route { path: path.clone(), next_hop: address(next_hop) };
                    let paths = routes.entry(text(nlri)).or_default();
                    if !self.spec.add_path {
                        paths.clear();
                    }
                    paths.push(route);
                }
            }
        }
        routes.values_mut().for_each(|paths| paths.sort());
        Ok(routes)
    }

    fn announce(&mut self, networks: &[String]) {
        self.spec.networks.extend_from_slice(networks);
        self.change(networks, "announce");
    }

    fn withdraw(&mut self, networks: &[String]) {
        self.spec.networks.retain(|n| !networks.contains(n));
        self.change(networks, "withdraw");
    }

    fn refresh(&mut self, family: Family) {
        let name = if family == Family::V4 { "ipv4" } else { "ipv6" };
        let neighbor = self.spec.neighbor(family);
        self.command(format!("neighbor {neighbor} announce route-refresh {name} unicast\n"));
    }

    fn can_be_asked(&self) -> bool {
        // ExaBGP 4.2.21 resets the session on an enhanced route refresh request (RFC 7313).
        false
    }

    fn kill(&mut self) {
        self.commands = None;
        self.process.take().expect("it runs").kill();
    }

    fn stop(&mut self) {
        self.process.take().expect("it runs").stop();
        self.commands = None;
    }

    fn start(&mut self) {
        let script = |name: &str, text: String| {
            fs::write(self.path(name), text).expect("writing");
            Command::new("chmod").args(["755", &self.path(name)]).status().expect("chmod runs");
        };
        let (fifo, events) = (self.path("fifo"), self.path("events"));
        script("commands.sh", format!("#!/bin/sh\nexec cat {fifo}\n"));
        // Without `exec`, because ExaBGP takes a program that closes its standard output for dead.
        script("events.sh", format!("#!/bin/sh\ncat >> {events}\nexit 0\n"));
        let _ = fs::remove_file(&fifo);
        let _ = fs::remove_file(&events);
        assert!(Command::new("mkfifo").arg(&fifo).status().is_ok_and(|s| s.success()), "a pipe");
        // Opened for reading and writing, so that opening does not wait for the other end.
        self.commands = Some(File::options().read(true).write(true).open(&fifo).expect("a pipe"));
        let config = self.path("exabgp.conf");
        fs::write(&config, self.configuration()).expect("writing");
        let environment = [
            ("exabgp_daemon_user", "root"),
            ("exabgp_api_ack", "false"),
            ("exabgp_api_cli", "false"),
            ("exabgp_log_all", "false"),
            ("exabgp_log_level", "WARNING"),
        ];
        let log = self.folder.join("log");
        self.process = Some(self.net.start_with(self.spec.end, "exabgp", &[&config], &environment, &log));
        until("ExaBGP starts", 10, || {
            self.check()?;
            fs::metadata(&events).map(drop).map_err(|error| error.to_string())
        });
    }

    fn signal(&mut self, signal: &str) {
        self.process.as_ref().expect("it runs").signal(signal);
    }
}

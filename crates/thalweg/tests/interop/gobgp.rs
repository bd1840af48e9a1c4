//! GoBGP.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::net::{Net, Process, address, program, until};
use crate::router::{Family, Route, Router, Routes, Spec};

pub(crate) struct GoBgp<'a> {
    net: &'a Net,
    spec: Spec,
    folder: PathBuf,
    process: Option<Process>,
    restarted: bool,
}

pub(crate) fn make<'a>(net: &'a Net, spec: Spec) -> Option<Box<dyn Router + 'a>> {
    program(&["gobgpd"], "gobgpd")?;
    program(&["gobgp"], "gobgpd")?;
    let folder = net.folder("gobgp");
    let mut gobgp = GoBgp { net, spec, folder, process: None, restarted: false };
    gobgp.start();
    Some(Box::new(gobgp))
}

fn short(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

impl GoBgp<'_> {
    fn configuration(&self) -> String {
        let spec = &self.spec;
        let mut text =
            format!("[global.config]\n  as = {}\n  router-id = \"{}\"\n", spec.as_number, spec.router_id());
        for family in &spec.families {
            let _ = write!(
                text,
                "[[neighbors]]\n  [neighbors.config]\n    neighbor-address = \"{}\"\n    peer-as = {}\n",
                spec.neighbor(*family),
                spec.neighbor_as
            );
            if let Some(password) = &spec.password {
                let _ = writeln!(text, "    auth-password = \"{password}\"");
            }
            let _ = write!(
                text,
                "  [neighbors.timers.config]\n    hold-time = {}\n    connect-retry = 1\n    \
                 idle-hold-time-after-reset = 1\n  [neighbors.transport.config]\n    passive-mode = {}\n",
                spec.hold_time_s, spec.passive
            );
            if spec.graceful_restart {
                text.push_str(
                    "  [neighbors.graceful-restart.config]\n    enabled = true\n    restart-time = 60\n",
                );
            }
            let _ = write!(
                text,
                "  [[neighbors.afi-safis]]\n    [neighbors.afi-safis.config]\n      afi-safi-name = \"{}-unicast\"\n",
                short(*family)
            );
            if spec.graceful_restart {
                text.push_str("    [neighbors.afi-safis.mp-graceful-restart.config]\n      enabled = true\n");
            }
            if spec.add_path {
                text.push_str(
                    "    [neighbors.afi-safis.add-paths.config]\n      receive = true\n      send-max = 8\n",
                );
            }
        }
        text
    }

    /// The client gives up after a second, which a busy machine can take to start it; it is asked again then.
    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let mut tries = 0;
        loop {
            let output = self.net.output(self.spec.end, "gobgp", arguments);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let wrong = String::from_utf8_lossy(&output.stderr);
            tries += 1;
            if output.status.success() {
                return Ok(text);
            } else if tries == 20 || !wrong.contains("deadline exceeded") {
                return Err(text + &wrong);
            }
        }
    }

    fn json(&self, arguments: &[&str]) -> Result<Value, String> {
        let text = self.ask(arguments)?;
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }

    /// Makes one call for each network, all from one shell, because the client takes no lists. The client's short
    /// timeout can expire on a busy machine, so calls are repeated.
    fn change(&self, networks: &[String], word: &str) {
        let mut script = String::from("set -e\n");
        for network in networks {
            let family = if Family::V4.has(network) { Family::V4 } else { Family::V6 };
            let call = format!("gobgp global rib {word} {network} -a {}", short(family));
            let _ = writeln!(
                script,
                "n=0; until {call}; do n=$((n + 1)); [ $n -lt 20 ] || exit 1; sleep 0.2; done"
            );
        }
        let output = self.net.output(self.spec.end, "sh", &["-c", &script]);
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}

impl Router for GoBgp<'_> {
    fn name(&self) -> &'static str {
        "GoBGP"
    }

    fn check(&mut self) -> Result<(), String> {
        self.process.as_mut().map_or(Ok(()), Process::check)
    }

    fn established(&mut self, family: Family) -> Result<(), String> {
        let answer = self.json(&["neighbor", &self.spec.neighbor(family).to_string(), "-j"])?;
        match &answer["state"]["session_state"] {
            Value::Number(state) if state.as_u64() == Some(6) => Ok(()),
            Value::String(state) if state == "established" || state == "ESTABLISHED" => Ok(()),
            other => Err(other.to_string()),
        }
    }

    fn routes(&mut self, family: Family) -> Result<Routes, String> {
        let answer = self.json(&["global", "rib", "-a", short(family), "-j"])?;
        let mut routes = Routes::new();
        for (prefix, paths) in answer.as_object().into_iter().flatten() {
            for path in paths.as_array().into_iter().flatten() {
                // Routes that it originates have no neighbor.
                let neighbor = path["source-id"].as_str().or(path["neighbor-ip"].as_str());
                if neighbor.is_none_or(|n| n.is_empty() || n == "<nil>") {
                    continue;
                }
                let mut route = Route { path: Vec::new(), next_hop: None };
                for attribute in path["attrs"].as_array().into_iter().flatten() {
                    match attribute["type"].as_u64() {
                        Some(2) => {
                            let segments = attribute["as_paths"].as_array().into_iter().flatten();
                            let numbers = segments.flat_map(|s| s["asns"].as_array().into_iter().flatten());
                            route.path = numbers.filter_map(|n| n.as_u64().map(|n| n as u32)).collect();
                        }
                        Some(3 | 14) => route.next_hop = attribute["nexthop"].as_str().and_then(address),
                        _ => {}
                    }
                }
                routes.entry(prefix.clone()).or_default().push(route);
            }
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
        self.change(networks, "del");
    }

    fn refresh(&mut self, family: Family) {
        self.ask(&["neighbor", &self.spec.neighbor(family).to_string(), "softresetin"])
            .expect("gobgp answers");
    }

    fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    fn stop(&mut self) {
        self.process.take().expect("it runs").stop();
    }

    fn start(&mut self) {
        let config = self.folder.join("gobgpd.toml").display().to_string();
        fs::write(&config, self.configuration()).expect("writing");
        let mut arguments =
            vec!["-f", &config, "-t", "toml", "--pprof-disable", "--api-hosts", "127.0.0.1:50051"];
        if self.restarted && self.spec.graceful_restart {
            arguments.push("-r");
        }
        self.restarted = true;
        let log = self.folder.join("log");
        self.process = Some(self.net.start(self.spec.end, "gobgpd", &arguments, &log));
        until("GoBGP listens for BGP and for its client", 10, || {
            self.check()?;
            let process = self.process.as_ref().expect("it runs");
            [179, 50051].into_iter().try_for_each(|port| process.listens(port))
        });
        let networks = self.spec.networks.clone();
        self.change(&networks, "add");
    }

    fn signal(&mut self, signal: &str) {
        self.process.as_ref().expect("it runs").signal(signal);
    }
}

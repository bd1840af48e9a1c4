//! This repository's own daemon.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::Value;

use crate::net::{Net, Process, address, until};
use crate::router::{Family, Route, Router, Routes, Spec, numbers};

/// The binary under test: the one that cargo built for these tests, or a named one, such as an optimized build.
static BINARY: LazyLock<String> = LazyLock::new(|| {
    std::env::var("THALWEG_INTEROP_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_thalweg").to_owned())
});

pub(crate) struct Thalweg<'a> {
    net: &'a Net,
    spec: Spec,
    folder: PathBuf,
    process: Option<Process>,
}

pub(crate) fn make<'a>(net: &'a Net, spec: Spec) -> Option<Box<dyn Router + 'a>> {
    Some(Box::new(Thalweg::start_in(net, spec)))
}

fn names(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

impl<'a> Thalweg<'a> {
    /// A running daemon.
    pub(crate) fn start_in(net: &'a Net, spec: Spec) -> Thalweg<'a> {
        let mut thalweg = Thalweg { net, spec, folder: net.folder("thalweg"), process: None };
        thalweg.start();
        thalweg
    }
}

impl Thalweg<'_> {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn configuration(&self) -> String {
        let spec = &self.spec;
        let mut text = format!(
            "[control]\nsocket = \"{}\"\n\n[bgp]\nas = {}\nrouter_id = \"{}\"\nlisten = [\"{}:179\", \"[{}]:179\"]\n\
             install = \"none\"\nhold_time_s = {}\nconnect_retry_s = 1\n",
            self.path("control.sock"),
            spec.as_number,
            spec.router_id(),
            spec.local(Family::V4),
            spec.local(Family::V6),
            spec.hold_time_s
        );
        if spec.graceful_restart {
            text.push_str("graceful_restart = { time_s = 60 }\n");
        }
        let networks: Vec<String> = spec.networks.iter().map(|n| format!("  \"{n}\",\n")).collect();
        let _ = writeln!(text, "networks = [\n{}]", networks.concat());
        if let Some(cache) = spec.cache {
            let _ = writeln!(text, "[[bgp.rpki_source]]\ncache = \"{cache}\"\nretry_s = 1\n");
        }
        for family in &spec.families {
            let _ = writeln!(
                text,
                "\n[[bgp.neighbor]]\naddress = \"{}\"\nlocal_address = \"{}\"\nas = {}\nfamilies = [\"{}\"]\n\
                 import = \"accept\"\nexport = \"accept\"\nas_set = \"accept\"\npassive = {}",
                spec.neighbor(*family),
                spec.local(*family),
                spec.neighbor_as,
                names(*family),
                spec.passive
            );
            if let Some(password) = &spec.password {
                let _ = writeln!(text, "password = \"{password}\"");
            }
            if spec.reject_invalid {
                text.push_str("rpki = \"reject-invalid\"\n");
            }
            if !spec.third_party_next_hops {
                text.push_str("next_hop_self = true\n");
            }
            if spec.add_path {
                let _ = writeln!(text, "add_path = {{ {} = \"both\", paths = 8 }}", names(*family));
            }
        }
        for (neighbor, number) in &spec.others {
            let _ = writeln!(
                text,
                "\n[[bgp.neighbor]]\naddress = \"{neighbor}\"\nas = {number}\nfamilies = [\"ipv4\"]\n\
                 import = \"accept\"\nexport = \"accept\"\nas_set = \"accept\"\npassive = true"
            );
        }
        text
    }

    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let socket = self.path("control.sock");
        let arguments = [arguments, &["--socket", &socket]].concat();
        let output = self.net.output(self.spec.end, &BINARY, &arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let wrong = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(text) } else { Err(text + &wrong) }
    }

    /// The objects of an answer, in a list or one after another.
    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Vec<Value>, String> {
        let text = self.ask(&[arguments, &["--format", "json"]].concat())?;
        let mut objects = Vec::new();
        for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            match value.map_err(|error| format!("{error}: {text}"))? {
                Value::Array(list) => objects.extend(list),
                other => objects.push(other),
            }
        }
        Ok(objects)
    }

    fn reload(&self) {
        fs::write(self.path("thalweg.toml"), self.configuration()).expect("writing");
        self.ask(&["reload"]).expect("the reload succeeds");
    }

    /// The state of the session with a neighbor.
    pub(crate) fn state(&self, neighbor: std::net::IpAddr) -> Result<String, String> {
        let neighbors = self.json(&["show", "bgp", "neighbors"])?;
        let found = neighbors.iter().find(|n| n["address"].as_str().and_then(address) == Some(neighbor));
        let state = found.and_then(|n| n["state"].as_str());
        state.map(str::to_lowercase).ok_or_else(|| format!("{neighbor} is not among {neighbors:?}"))
    }

    /// A counter of the session with a neighbor.
    pub(crate) fn counter(&self, neighbor: std::net::IpAddr, name: &str) -> Result<u64, String> {
        let views = self.json(&["show", "bgp", "neighbor", &neighbor.to_string()])?;
        let counters = views.first().map(|view| &view["counters"]);
        let number = counters.and_then(|counters| counters[name].as_u64());
        number.ok_or_else(|| format!("no {name} in {views:?}"))
    }

    /// Runs a command on a neighbor.
    pub(crate) fn neighbor(&self, neighbor: std::net::IpAddr, what: &str) {
        self.ask(&["bgp", what, &neighbor.to_string()]).expect("the command succeeds");
    }

    /// `true`: limits its open files to those that it has open now. `false`: lifts the limit.
    pub(crate) fn limit_files(&self, is_limited: bool) {
        self.process.as_ref().expect("it runs").limit_files(is_limited);
    }

    /// Its whole log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub(crate) fn memory_kib(&self) -> u64 {
        self.process.as_ref().map_or(0, Process::memory_kib)
    }
}

impl Router for Thalweg<'_> {
    fn name(&self) -> &'static str {
        "Thalweg"
    }

    fn check(&mut self) -> Result<(), String> {
        self.process.as_mut().map_or(Ok(()), Process::check)
    }

    fn established(&mut self, family: Family) -> Result<(), String> {
        match self.state(self.spec.neighbor(family))?.as_str() {
            "established" => Ok(()),
            other => Err(format!("{other}\n{}", self.process.as_ref().map_or(String::new(), Process::said))),
        }
    }

    fn routes(&mut self, family: Family) -> Result<Routes, String> {
        let mut routes = Routes::new();
        for route in self.json(&["show", "bgp", "routes"])? {
            let prefix = route["prefix"].as_str().unwrap_or_default();
            // Routes that it originates have no neighbor.
            let is_local = route["neighbor"].as_str().is_none_or(|neighbor| neighbor == "local");
            if !family.has(prefix) || is_local {
                continue;
            }
            let next_hop = route["next_hop"].as_str().and_then(address);
            let route = Route { path: numbers(&route["as_path"].to_string()), next_hop };
            routes.entry(prefix.to_owned()).or_default().push(route);
        }
        routes.values_mut().for_each(|paths| paths.sort());
        Ok(routes)
    }

    fn validities(&mut self) -> Result<BTreeMap<String, String>, String> {
        let routes = self.json(&["show", "bgp", "routes"])?;
        let of = |route: &Value, field: &str| route[field].as_str().map(str::to_owned);
        Ok(routes.iter().filter_map(|route| Some((of(route, "prefix")?, of(route, "validity")?))).collect())
    }

    fn announce(&mut self, networks: &[String]) {
        self.spec.networks.extend_from_slice(networks);
        self.reload();
    }

    fn withdraw(&mut self, networks: &[String]) {
        self.spec.networks.retain(|n| !networks.contains(n));
        self.reload();
    }

    fn refresh(&mut self, family: Family) {
        self.ask(&["bgp", "refresh", &self.spec.neighbor(family).to_string()]).expect("it asks");
    }

    fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    fn stop(&mut self) {
        self.process.take().expect("it runs").stop();
    }

    fn start(&mut self) {
        let config = self.path("thalweg.toml");
        fs::write(&config, self.configuration()).expect("writing");
        let log = self.folder.join("log");
        let arguments = ["run", &config, "--log", "debug"];
        self.process = Some(self.net.start(self.spec.end, &BINARY, &arguments, &log));
        until("Thalweg starts", 10, || {
            self.check()?;
            self.ask(&["show", "bgp", "neighbors"]).map(drop)
        });
    }

    fn signal(&mut self, signal: &str) {
        self.process.as_ref().expect("it runs").signal(signal);
    }
}

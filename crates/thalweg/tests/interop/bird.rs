//! BIRD 2.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use crate::net::{Net, Process, address, program, until};
use crate::router::{Family, Route, Router, Routes, Spec, numbers};

pub(crate) struct Bird<'a> {
    net: &'a Net,
    spec: Spec,
    folder: PathBuf,
    process: Option<Process>,
    restarted: bool,
}

pub(crate) fn make<'a>(net: &'a Net, spec: Spec) -> Option<Box<dyn Router + 'a>> {
    program(&["bird"], "bird2")?;
    let folder = net.folder("bird");
    let mut bird = Bird { net, spec, folder, process: None, restarted: false };
    bird.start();
    Some(Box::new(bird))
}

fn protocol(family: Family) -> &'static str {
    match family {
        Family::V4 => "peer4",
        Family::V6 => "peer6",
    }
}

impl Bird<'_> {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn configuration(&self) -> String {
        let spec = &self.spec;
        let mut text =
            format!("log stderr all;\nrouter id {};\nprotocol device {{ scan time 1; }}\n", spec.router_id());
        if let Some(cache) = spec.cache {
            let _ = writeln!(
                text,
                "roa4 table r4;\nroa6 table r6;\nprotocol rpki {{ roa4 {{ table r4; }}; roa6 {{ table r6; }}; \
                 remote {} port {}; retry keep 1; }}",
                cache.ip(),
                cache.port()
            );
            for (family, table) in [("IP4", "r4"), ("IP6", "r6")] {
                let _ = writeln!(text, "filter validity{family} {{");
                for (state, number) in [("VALID", 1), ("UNKNOWN", 2), ("INVALID", 3)] {
                    let _ = writeln!(
                        text,
                        "  if roa_check({table}, net, bgp_path.last) = ROA_{state} then bgp_community.add((64999, {number}));"
                    );
                }
                text.push_str("  accept;\n}\n");
            }
        }
        for family in &spec.families {
            let channel = if *family == Family::V4 { "ipv4" } else { "ipv6" };
            let _ = writeln!(text, "protocol static {{ {channel} {{}};");
            for network in spec.networks_of(*family) {
                let _ = writeln!(text, "  route {network} blackhole;");
            }
            text.push_str("}\n");
            let mut options = String::new();
            if let Some(password) = &spec.password {
                let _ = write!(options, "password \"{password}\"; ");
            }
            if spec.passive {
                options.push_str("passive yes; ");
            }
            options.push_str(if spec.graceful_restart {
                "graceful restart yes; "
            } else {
                "graceful restart off; "
            });
            let import = match (spec.cache, family) {
                (None, _) => "import all",
                (Some(_), Family::V4) => "import filter validityIP4",
                (Some(_), Family::V6) => "import filter validityIP6",
            };
            let add_paths = if spec.add_path { "add paths yes; " } else { "" };
            let _ = writeln!(
                text,
                "protocol bgp {} {{ local {} as {}; neighbor {} as {}; hold time {}; connect delay time 1; \
                 connect retry time 1; error wait time 1,2; {options}\
                 {channel} {{ {import}; export all; next hop self; {add_paths}}}; }}",
                protocol(*family),
                spec.local(*family),
                spec.as_number,
                spec.neighbor(*family),
                spec.neighbor_as,
                spec.hold_time_s,
            );
        }
        for (at, (neighbor, number)) in spec.others.iter().enumerate() {
            let _ = writeln!(
                text,
                "protocol bgp other{at} {{ local {} as {}; neighbor {neighbor} as {number}; passive yes; \
                 ipv4 {{ import all; export all; }}; }}",
                spec.local(Family::V4),
                spec.as_number
            );
        }
        text
    }

    fn ask(&self, question: &str) -> Result<String, String> {
        let socket = self.path("bird.ctl");
        let output = self.net.output(self.spec.end, "birdc", &["-s", &socket, question]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(text) } else { Err(text) }
    }

    fn reconfigure(&self) {
        fs::write(self.path("bird.conf"), self.configuration()).expect("writing");
        let answer = self.ask("configure").expect("birdc answers");
        assert!(answer.contains("Reconfigur"), "{answer}");
    }
}

impl Router for Bird<'_> {
    fn name(&self) -> &'static str {
        "BIRD"
    }

    fn check(&mut self) -> Result<(), String> {
        self.process.as_mut().map_or(Ok(()), Process::check)
    }

    fn established(&mut self, family: Family) -> Result<(), String> {
        let answer = self.ask(&format!("show protocols {}", protocol(family)))?;
        if answer.contains("Established") { Ok(()) } else { Err(answer) }
    }

    fn routes(&mut self, family: Family) -> Result<Routes, String> {
        let answer = self.ask(&format!("show route protocol {} all", protocol(family)))?;
        let mut routes = Routes::new();
        let mut prefix = String::new();
        for line in answer.lines() {
            let word = line.split_whitespace().next().unwrap_or_default();
            if line.contains(" [peer") {
                // Further paths of a prefix are shown without the prefix.
                if line.starts_with(|c: char| c.is_ascii_hexdigit()) {
                    prefix = word.to_owned();
                }
                let route = Route { path: Vec::new(), next_hop: None };
                routes.entry(prefix.clone()).or_default().push(route);
            } else if let Some(route) = routes.get_mut(&prefix).and_then(|r| r.last_mut()) {
                let value = line.split_once(':').map_or("", |(_, value)| value);
                match word {
                    "BGP.as_path:" => route.path = numbers(value),
                    "BGP.next_hop:" => route.next_hop = address(value),
                    _ => {}
                }
            }
        }
        routes.values_mut().for_each(|paths| paths.sort());
        Ok(routes)
    }

    fn validities(&mut self) -> Result<BTreeMap<String, String>, String> {
        let answer = self.ask("show route protocol peer4 all")?;
        let mut found = BTreeMap::new();
        let mut prefix = String::new();
        for line in answer.lines() {
            let word = line.split_whitespace().next().unwrap_or_default();
            if line.contains(" [peer") {
                prefix = word.to_owned();
            }
            let marks = [("(64999,1)", "valid"), ("(64999,2)", "not-found"), ("(64999,3)", "invalid")];
            let mark = marks.iter().find(|(mark, _)| word == "BGP.community:" && line.contains(mark));
            if let Some((_, validity)) = mark {
                found.insert(prefix.clone(), (*validity).to_owned());
            }
        }
        Ok(found)
    }

    fn announce(&mut self, networks: &[String]) {
        self.spec.networks.extend_from_slice(networks);
        self.reconfigure();
    }

    fn withdraw(&mut self, networks: &[String]) {
        self.spec.networks.retain(|n| !networks.contains(n));
        self.reconfigure();
    }

    fn refresh(&mut self, family: Family) {
        let answer = self.ask(&format!("reload in {}", protocol(family))).expect("birdc answers");
        assert!(answer.contains("reloading"), "{answer}");
    }

    fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    fn stop(&mut self) {
        self.process.take().expect("it runs").stop();
    }

    fn start(&mut self) {
        let (config, socket, log) = (self.path("bird.conf"), self.path("bird.ctl"), self.folder.join("log"));
        fs::write(&config, self.configuration()).expect("writing");
        let mut arguments = vec!["-f", "-c", &config, "-s", &socket];
        if self.restarted && self.spec.graceful_restart {
            arguments.push("-R");
        }
        self.restarted = true;
        self.process = Some(self.net.start(self.spec.end, "bird", &arguments, &log));
        until("BIRD starts", 10, || {
            self.check()?;
            self.ask("show status").map(drop)
        });
    }

    fn signal(&mut self, signal: &str) {
        self.process.as_ref().expect("it runs").signal(signal);
    }
}

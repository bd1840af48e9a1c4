//! The same cases with the Linux kernel: a namespace with nftables, and a TAP interface for each port, whose other end is
//! this test. Hosts are entries in the kernel's neighbor table; nothing answers for them.

use super::case::{Case, Names, plain};
use super::{build, show};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use thalweg_base::ChunkBuilder;
use thalweg_ports::live::{Port, tap};
use thalweg_wire::MacAddr;

/// The kernel handles a packet in microseconds. If nothing has come for this long, nothing will.
const SILENCE: Duration = Duration::from_millis(120);
/// The longest time for an expected packet on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Cases with longer waits are not run.
const WAIT_MAX_S: f64 = 3.0;

const PORTS: [(&str, &str); 3] =
    [("wan", "203.0.113.2/29"), ("lan", "192.168.1.1/24"), ("dmz", "192.168.2.1/24")];
/// The other ends of all links.
const PERMANENT: &str = "lladdr 02:00:00:00:ff:01 nud permanent";
const PORTS_IPV6: [(&str, &str); 3] =
    [("wan", "2001:db8:ffff::2/64"), ("lan", "2001:db8:1::1/64"), ("dmz", "2001:db8:2::1/64")];
const MASQUERADE: &str = "add rule ip nat post oifname wan masquerade";

/// A namespace that is removed when dropped.
pub(crate) struct Kernel {
    namespace: String,
    ports: Vec<(&'static str, Port, MacAddr)>,
}

impl Kernel {
    /// Makes a namespace with the rules of a case.
    pub(crate) fn new(case: &Case) -> Result<Self, String> {
        let chain = |name: &str, hook: &str, priority: &str| {
            format!("add chain ip nat {name} {{ type nat hook {hook} priority {priority}; }}")
        };
        let mut rules = vec![
            "add table ip nat".to_owned(),
            chain("pre", "prerouting", "dstnat"),
            chain("post", "postrouting", "srcnat"),
        ];
        match case.linux.is_empty() {
            true => rules.push(MASQUERADE.to_owned()),
            false => rules.extend(case.linux.iter().cloned()),
        }
        Self::with("nat", case, &rules.join("\n"), &[])
    }

    /// Makes a namespace with these rules, IPv6 too. The segments of cases all have the same numbers, so TCP's are not
    /// checked.
    pub(crate) fn of_both_families(case: &Case, rules: &str) -> Result<Self, String> {
        let mut kernel = Self::with("both", case, rules, &["net.ipv6.conf.all.forwarding=1"])?;
        within(&kernel.namespace, "sysctl", &["-qw", "net.netfilter.nf_conntrack_tcp_be_liberal=1"], "")?;
        kernel.add_ipv6()?;
        Ok(kernel)
    }

    fn with(kind: &str, case: &Case, rules: &str, settings: &[&str]) -> Result<Self, String> {
        let namespace = format!("{kind}conf{}-{}", std::process::id(), case.name);
        said("ip", &["netns", "add", &namespace], "")?;
        let mut kernel = Self { namespace, ports: Vec::new() };
        kernel.set_up(rules, settings)?;
        Ok(kernel)
    }

    fn add_ipv6(&mut self) -> Result<(), String> {
        let mut lines = Vec::new();
        for (name, address) in PORTS_IPV6 {
            lines.push(format!("addr add {address} dev {name} nodad"));
        }
        lines.push("route add default via 2001:db8:ffff::1 dev wan".to_owned());
        let hosts = (0x10..0x14)
            .flat_map(|n| [format!("2001:db8:1::{n:x} dev lan"), format!("2001:db8:2::{n:x} dev dmz")]);
        let all = hosts.chain(["2001:db8:ffff::1 dev wan".to_owned()]);
        lines.extend(all.map(|neighbor| format!("neigh replace {neighbor} {PERMANENT}")));
        said("ip", &["-6", "-n", &self.namespace, "-batch", "-"], &lines.join("\n")).map(drop)
    }

    fn set_up(&mut self, rules: &str, more_settings: &[&str]) -> Result<(), String> {
        let namespace =
            File::open(Path::new("/run/netns").join(&self.namespace)).map_err(|e| e.to_string())?;
        let ports = thread::scope(|scope| {
            let within = scope.spawn(|| {
                let network = rustix::thread::LinkNameSpaceType::Network;
                rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(network))
                    .map_err(|e| e.to_string())?;
                PORTS.iter().map(|(name, _)| open_port(name)).collect::<Result<Vec<_>, String>>()
            });
            within.join().map_err(|_| "setting up panicked".to_owned())?
        })?;
        self.ports = ports;
        let namespace = &self.namespace;
        let mut lines = vec!["link set lo up".to_owned()];
        for (name, address) in PORTS {
            lines.extend([format!("addr add {address} dev {name}"), format!("link set {name} up")]);
        }
        lines.push("route add default via 203.0.113.1 dev wan".to_owned());
        let neighbors = ["203.0.113.1 dev wan".to_owned(), "203.0.113.6 dev wan".to_owned()].into_iter();
        let hosts =
            (2..32).flat_map(|n| [format!("192.168.1.{n} dev lan"), format!("192.168.2.{n} dev dmz")]);
        lines.extend(neighbors.chain(hosts).map(|neighbor| format!("neigh replace {neighbor} {PERMANENT}")));
        said("ip", &["-n", namespace, "-batch", "-"], &lines.join("\n"))?;
        within(namespace, "nft", &["-f", "-"], rules)?;
        let settings =
            ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.wan.rp_filter=0"];
        within(namespace, "sysctl", &[&["-qw"][..], &settings, more_settings].concat(), "").map(drop)
    }

    /// Runs a case; the error says what differs.
    pub(crate) fn run(&mut self, case: &Case) -> Result<(), String> {
        if let Some((file, least)) = &case.linux_setting {
            let text = within(&self.namespace, "cat", &[&format!("/proc/sys/net/netfilter/{file}")], "")?;
            let found: u64 = text.trim().parse().map_err(|_| format!("{file} says {text}"))?;
            return if found >= *least { Ok(()) } else { Err(format!("{file} is {found}")) };
        }
        let mut names = Names::new();
        let mut now_s = 0.0;
        for step in &case.steps {
            if step.time_s - now_s > WAIT_MAX_S {
                return Err(format!("not run: waits for {} s", step.time_s - now_s));
            }
            thread::sleep(Duration::from_secs_f64((step.time_s - now_s).max(0.0)));
            now_s = step.time_s;
            let packet = build::line(&step.line(&names)?);
            self.send(step.port(), packet.frame)?;
            let left = self.receive(step.required())?;
            step.judge(&left, &mut names)?;
        }
        Ok(())
    }

    fn send(&mut self, port: &str, mut frame: Vec<u8>) -> Result<(), String> {
        let (_, port, mac) = self.ports.iter_mut().find(|(name, ..)| *name == port).ok_or("no such port")?;
        frame[..6].copy_from_slice(&mac.0);
        port.tx.push(&frame).map_err(|why| format!("{why:?}"))?;
        port.tx.flush().map_err(|e| e.to_string())
    }

    /// Receives until nothing more comes, ordered by port as in the configuration.
    fn receive(&mut self, required: usize) -> Result<Vec<String>, String> {
        let mut left: Vec<(usize, String)> = Vec::new();
        let (begun, mut last) = (Instant::now(), Instant::now());
        while last.elapsed() < SILENCE || (left.len() < required && begun.elapsed() < TIMEOUT) {
            for (place, (name, port, _)) in self.ports.iter_mut().enumerate() {
                let mut into = ChunkBuilder::with_capacity(64 << 10);
                for rx in &mut port.rx {
                    rx.receive(0, 0, 16, &mut into).map_err(|e| e.to_string())?;
                }
                let chunk = into.finish(0, 1, 0);
                for i in 0..chunk.packets().len() {
                    let frame = chunk.frame(i);
                    // Unicast: the kernel's own packets (IGMP, MLD, router solicitations) do not count.
                    let is_unicast = match frame.get(12..14) {
                        Some([8, 0]) => frame.get(30).is_some_and(|byte| *byte < 224),
                        Some([0x86, 0xdd]) => frame.get(38).is_some_and(|byte| *byte != 0xff),
                        _ => false,
                    };
                    if is_unicast {
                        left.push((place, plain(name, &show::frame(frame, false))));
                        last = Instant::now();
                    }
                }
            }
            thread::sleep(Duration::from_millis(2));
        }
        left.sort_by_key(|(place, _)| *place);
        Ok(left.into_iter().map(|(_, line)| line).collect())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.ports.clear();
        // If it could not be made, this fails and nothing is left.
        let _ = said("ip", &["netns", "del", &self.namespace], "");
    }
}

/// The kernel's major and minor version.
pub(crate) fn version() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.split('.').take(2).collect::<Vec<_>>().join(".")
}

fn open_port(name: &'static str) -> Result<(&'static str, Port, MacAddr), String> {
    let (port, _) = tap::open(&tap::TapOptions::new(name)).map_err(|e| e.to_string())?;
    let mac = port.facts.mac;
    Ok((name, port, mac))
}

fn within(namespace: &str, program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    said("ip", &[&["netns", "exec", namespace, program][..], arguments].concat(), input)
}

/// Runs a program with some input; returns its output.
fn said(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    // A program that does not read its whole input has ended, and its output says why.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{program} {}: {}", arguments.join(" "), text(&output.stderr))),
    }
}
